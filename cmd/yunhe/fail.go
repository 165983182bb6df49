package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/fault"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotRun      = 126 // a program that "pool run" was to run cannot be, as shells report it
	exitNoProgram   = 127 // likewise: there is none
	exitSignal      = 128 // and the number of the signal that ended a program, likewise
	exitInterrupted = exitSignal + int(syscall.SIGINT)
)

// usageError is a wrong command line: nothing was asked of the server.
type usageError struct{ msg, hint string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{msg: fmt.Sprintf(format, args...)} }

// hinted is an error with the way out.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// exitStatus ends the program with this status; everything is said already.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// callError is a call of the API that failed.
type callError struct {
	target target
	method string // "/yunhe.jobs.v1.JobService/GetJob"
	err    error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// takes checks the number of arguments; what names them in the message, for
// example "the ID of a job". most below 0 means any number.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return &usageError{msg: fmt.Sprintf("%s needs %s", cmd.CommandPath(), what), hint: seeHelp(cmd)}
		case most == 0 && len(args) > 0:
			return &usageError{msg: fmt.Sprintf("%s takes no arguments, got %q", cmd.CommandPath(), args[0]), hint: seeHelp(cmd)}
		case most >= 0 && len(args) > most:
			return &usageError{msg: fmt.Sprintf("%s takes %s only, got also %q", cmd.CommandPath(), what, args[most]), hint: seeHelp(cmd)}
		}
		return nil
	}
}

// report tells the user what went wrong and returns the exit status.
func (c *cli) report(ctx context.Context, err error) int {
	var status exitStatus
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		c.complain(usage.msg, nil, usage.hint)
		return exitUsage
	case ctx.Err() != nil:
		if by, ok := context.Cause(ctx).(interrupted); ok && syscall.Signal(by) != syscall.SIGINT {
			return exitSignal + int(by)
		}
		fmt.Fprintln(c.err) // behind the ^C
		return exitInterrupted
	}
	msg, fields, hint := explain(err)
	c.complain(msg, fields, hint)
	return exitFailed
}

// complain prints an error, its fields one per line, and a hint.
func (c *cli) complain(msg string, fields []fault.Field, hint string) {
	fmt.Fprintf(c.err, "%s %s\n", c.paint(c.err, "error:", text.Red), msg)
	for _, f := range fields {
		fmt.Fprintf(c.err, "  %s: %s\n", c.paint(c.err, text.Clean(f.Path), text.Bold), text.Clean(f.Problem))
	}
	if hint != "" {
		fmt.Fprintf(c.err, "%s %s\n", c.paint(c.err, "hint:", text.Cyan), hint)
	}
}

// explain turns an error into a line for people, the fields it names and a
// hint. Both may be empty.
func explain(err error) (msg string, fields []fault.Field, hint string) {
	var call *callError
	var wire *connect.Error
	if errors.As(err, &call) && errors.As(call.err, &wire) {
		msg, fields, hint = explainCall(call, wire)
	} else if m, ok := fault.Message(err); ok {
		msg = m
		if cause := errors.Unwrap(err); cause != nil && fault.KindOf(err) != fault.NotFound {
			msg = err.Error()
		}
	} else {
		msg = err.Error()
	}
	var h *hinted
	if errors.As(err, &h) && h.hint != "" {
		hint = h.hint
	}
	return text.Clean(msg), fields, hint
}

func explainCall(call *callError, e *connect.Error) (msg string, fields []fault.Field, hint string) {
	if !connect.IsWireError(e) {
		if msg, hint = explainTransport(call.target, e); msg != "" {
			return msg, nil, hint
		}
	}
	fields = violations(e)
	msg = e.Message()
	if msg == "" {
		msg = fmt.Sprintf("the server answered %q without saying why", e.Code())
	}
	switch {
	case len(fields) == 1 && !strings.Contains(msg, fields[0].Problem):
		// the message and the field say different things: show both
	case len(fields) == 1:
		msg, hint = join(fields[0]), fieldHint(fields)
		return msg, nil, hint
	case len(fields) > 1 && strings.Contains(msg, fields[0].Problem):
		msg = text.Count(len(fields), "field") + " not valid"
	}
	if hint = fieldHint(fields); hint == "" {
		hint = codeHint(call, e.Code())
	}
	return msg, fields, hint
}

func join(f fault.Field) string { return f.Path + ": " + f.Problem }

// violations returns the fields a server complained about.
func violations(e *connect.Error) []fault.Field {
	var fields []fault.Field
	for _, d := range e.Details() {
		v, err := d.Value()
		if err != nil {
			continue // a detail of a newer server; the message still stands
		}
		if bad, ok := v.(*errdetails.BadRequest); ok {
			for _, f := range bad.GetFieldViolations() {
				fields = append(fields, fault.Field{Path: f.GetField(), Problem: f.GetDescription()})
			}
		}
	}
	return fields
}

// explainTransport says why a call did not reach a Yunhe server; "" if the
// error is none of the known ways.
func explainTransport(t target, e *connect.Error) (msg, hint string) {
	var dns *net.DNSError
	var op *net.OpError
	low := strings.ToLower(e.Message())
	switch {
	case errors.Is(e, syscall.ECONNREFUSED):
		return fmt.Sprintf("no server answers at %s: connection refused", t.server), startHint(t)
	case errors.As(e, &dns):
		return fmt.Sprintf("no machine has the name %s (%s)", dns.Name, t.source), "check the address"
	case strings.Contains(low, "server gave http response to https client"):
		return t.server + " does not speak TLS", "use http:// instead of https:// in the address"
	case strings.Contains(low, "x509:") || strings.Contains(low, "tls:"):
		return fmt.Sprintf("the certificate of %s cannot be trusted: %s", t.server, e.Message()), ""
	case e.Code() == connect.CodeUnimplemented:
		return fmt.Sprintf("%s does not offer this: %s", t.server, e.Message()), "is it a Yunhe server of this version?"
	case e.Code() == connect.CodeDeadlineExceeded:
		return fmt.Sprintf("%s did not answer in time", t.server), ""
	case errors.As(e, &op):
		return fmt.Sprintf("cannot reach %s: %s", t.server, op.Err), startHint(t)
	case e.Code() == connect.CodeUnavailable:
		return fmt.Sprintf("cannot reach %s: %s", t.server, e.Message()), startHint(t)
	}
	return "", ""
}

func startHint(t target) string {
	if t.local() {
		return "start a server with `yunhe up`, or name another one with --server or `yunhe context use`"
	}
	return fmt.Sprintf("the address comes from %s; see `yunhe context list`", t.source)
}

// fieldHints says where to find good values, by the last element of a field.
var fieldHints = map[string]string{
	"imageid":        "`yunhe image list` shows the images",
	"resourcespecid": "`yunhe spec list` shows the specifications",
	"centers":        "`yunhe center list` shows the centers",
	"aicenterid":     "`yunhe center list` shows the centers",
	"regions":        "`yunhe center list -o wide` shows the regions",
	"policyweights":  "`yunhe policy list` shows the policies",
	"weights":        "`yunhe policy list` shows the policies",
	"policyid":       "`yunhe policy list` shows the policies",
	"tenantid":       "`yunhe tenant list` shows the tenants",
	"userid":         "`yunhe user list` shows the users",
}

func fieldHint(fields []fault.Field) string {
	for _, f := range fields {
		if strings.Contains(f.Problem, "yunhe ") {
			return "" // the server's message has the hint in it
		}
		for _, element := range strings.Split(f.Path, ".") {
			name, _, _ := strings.Cut(element, "[")
			if hint := fieldHints[strings.ToLower(strings.ReplaceAll(name, "_", ""))]; hint != "" {
				return hint
			}
		}
	}
	return ""
}

func codeHint(call *callError, code connect.Code) string {
	switch code {
	case connect.CodeUnauthenticated:
		if call.target.key == "" {
			return "give a key with --key, YUNHE_KEY or `yunhe context add`"
		}
		return fmt.Sprintf("the key comes from %s; `yunhe key create` makes another", call.target.keySource)
	case connect.CodePermissionDenied:
		return "`yunhe whoami` shows your role and permissions"
	case connect.CodeNotFound:
		return missingHint(call.method)
	}
	return ""
}

// missingHint names the command that lists what a method is about.
func missingHint(method string) string {
	for _, m := range []struct{ part, command, things string }{
		{"JobService", "job list", "jobs"},
		{"ExplainJob", "job list", "jobs"},
		{"JobCost", "job list", "jobs"},
		{"Offer", "center list` and `yunhe spec list", "centers and specifications"},
		{"Center", "center list", "centers"},
		{"Spec", "spec list", "specifications"},
		{"Image", "image list", "images"},
		{"Gateway", "gateway list", "gateways"},
		{"PolicyService/", "policy records", "policies"},
		{"Policy", "policy list", "policies"},
		{"CreateUser", "tenant list", "tenants"},
		{"CreateKey", "user list", "users"},
		{"Key", "key list", "keys"},
		{"User", "user list", "users"},
	} {
		if strings.Contains(method, m.part) {
			verb := "shows"
			if strings.Contains(m.command, "`") {
				verb = "show"
			}
			return fmt.Sprintf("`yunhe %s` %s the %s", m.command, verb, m.things)
		}
	}
	return ""
}
