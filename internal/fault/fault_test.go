package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		err  error
		want fault.Kind
	}{
		{"none of ours", io.EOF, fault.Internal},
		{"a fault", fault.New(fault.NotFound, "x"), fault.NotFound},
		{"a wrapped fault", fmt.Errorf("get: %w", fault.New(fault.Exists, "x")), fault.Exists},
		{"the outermost counts", fault.Wrap(fault.Unavailable, fault.New(fault.Invalid, "x"), "y"), fault.Unavailable},
		{"joined", errors.Join(io.EOF, fault.New(fault.Conflict, "x")), fault.Conflict},
		{"a caller who left", fmt.Errorf("read: %w", context.Canceled), fault.Canceled},
		{"a deadline", fmt.Errorf("read: %w", context.DeadlineExceeded), fault.Unavailable},
		{"a classified deadline", fault.Wrap(fault.Exhausted, context.DeadlineExceeded, "x"), fault.Exhausted},
		{"nil", nil, fault.Internal},
	} {
		if got := fault.KindOf(x.err); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := fault.Internal; k <= fault.TooLarge; k++ {
		if s := k.String(); seen[s] || !regexp.MustCompile(`^[A-Z_]+$`).MatchString(s) {
			t.Errorf("kind %d is called %q, want a name of its own in capitals", k, s)
		}
		seen[k.String()] = true
	}
	if got := fault.Kind(200).String(); got != "INTERNAL" {
		t.Errorf("an unknown kind is called %q", got)
	}
}

// TestMessage: the user reads the message, the operator the cause too.
func TestMessage(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("place: %w", fault.Wrap(fault.Unavailable, io.ErrUnexpectedEOF, "adapter %s does not answer", "a"))
	if msg, ok := fault.Message(err); !ok || msg != "adapter a does not answer" {
		t.Errorf("the user reads %q, %v", msg, ok)
	}
	if !strings.Contains(err.Error(), "unexpected EOF") || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the operator reads %q, without the cause", err)
	}
	for _, err := range []error{io.EOF, fault.New(fault.Internal, "secret"), nil} {
		if msg, ok := fault.Message(err); ok || msg != "" {
			t.Errorf("of %v the user reads %q", err, msg)
		}
	}
	if fault.Wrap(fault.Invalid, nil, "x") != nil {
		t.Error("no error became one")
	}
	if err := fault.New(fault.Invalid, "100%% of %d", 3); err.Error() != "100% of 3" {
		t.Errorf("got %q", err)
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	if fault.Fields() != nil {
		t.Error("no violation became an error")
	}
	f := func(n int) (out []fault.Field) {
		for i := range n {
			out = append(out, fault.Field{Path: fmt.Sprintf("f%d", i), Problem: "is wrong"})
		}
		return out
	}
	for n, want := range map[int]string{1: "f0: is wrong", 3: "f0: is wrong; f1: is wrong; f2: is wrong", 5: "f0: is wrong; f1: is wrong; f2: is wrong (and 2 more)"} {
		err := fmt.Errorf("submit: %w", fault.Fields(f(n)...))
		if msg, _ := fault.Message(err); msg != want || fault.KindOf(err) != fault.Invalid || len(fault.FieldsOf(err)) != n {
			t.Errorf("%d violations read %q with %d fields, want %q", n, msg, len(fault.FieldsOf(err)), want)
		}
	}
	if fault.FieldsOf(io.EOF) != nil || fault.FieldsOf(nil) != nil {
		t.Error("what is no fault has fields")
	}
	// A message of its own and fields beneath it: request_id and the like.
	err := fault.Wrap(fault.Conflict, fault.Fields(f(1)...), "was used before")
	if got := fault.FieldsOf(err); len(got) != 1 || got[0].Path != "f0" {
		t.Errorf("the fields beneath a fault are %v, want f0", got)
	}
}
