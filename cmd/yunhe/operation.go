package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
)

func operationCommand(c *cli) *cobra.Command {
	return group("operation", groupNetwork, "What was asked of resources, and what became of it",
		operationListCommand(c), operationShowCommand(c), operationWatchCommand(c))
}

func operationState(o *controlv1.Operation) text.Cell {
	color := text.Yellow
	switch o.GetState() {
	case controlv1.OperationState_OPERATION_STATE_SUCCEEDED:
		color = text.Green
	case controlv1.OperationState_OPERATION_STATE_FAILED:
		color = text.Red
	}
	return text.Cell{Text: enumName(o.GetState().String(), "OPERATION_STATE_"), Color: color}
}

func operationKind(o *controlv1.Operation) string {
	return enumName(o.GetKind().String(), "OPERATION_KIND_")
}

// operationTarget is what an operation is about.
func operationTarget(o *controlv1.Operation) string {
	if o.GetAllocationId() != "" {
		return o.GetAllocationId()
	}
	return joinNonEmpty(" ", o.GetAiCenterId(), o.GetNode())
}

func (c *cli) operationTable(list []*controlv1.Operation) *text.Table {
	t := text.NewTable("OPERATION", "KIND", "STATE", "TARGET", "WHO", "ASKED", "MESSAGE")
	for _, o := range list {
		t.Row(o.GetOperationId(), operationKind(o), operationState(o), operationTarget(o), o.GetUserName(), c.ago(o.GetCreatedAt()), o.GetMessage())
	}
	return t
}

func operationListCommand(c *cli) *cobra.Command {
	var p paging
	req := &controlv1.ListOperationsRequest{}
	var states, kinds []string
	cmd := &cobra.Command{
		Use: "list", Short: "List operations, newest first",
		Example: `  yunhe operation list --state running
  yunhe operation list --center gz-1 --kind isolate,reclaim`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range states {
				n, err := enumFlag("--state", s, controlv1.OperationState_value, "OPERATION_STATE_")
				if err != nil {
					return err
				}
				req.States = append(req.States, controlv1.OperationState(n))
			}
			for _, s := range kinds {
				n, err := enumFlag("--kind", s, controlv1.OperationKind_value, "OPERATION_KIND_")
				if err != nil {
					return err
				}
				req.Kinds = append(req.Kinds, controlv1.OperationKind(n))
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*controlv1.Operation, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.control.ListOperations(cmd.Context(), req)
				return res.GetOperations(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(list))
			for i, o := range list {
				names[i] = o.GetOperationId()
			}
			err = c.print(result{msg: &controlv1.ListOperationsResponse{Operations: list, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
				if len(list) == 0 {
					c.note("no operations")
					return nil
				}
				return c.operationTable(list).Write(w, color)
			}})
			c.noteMore(len(list), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "only in these states: running, succeeded, failed, partly")
	f.StringSliceVar(&kinds, "kind", nil, "only of these kinds: apply, adjust, release, isolate, restore, reclaim, join")
	f.StringVar(&req.AiCenterId, "center", "", "only about this center")
	f.StringVar(&req.Node, "node", "", "only about this node")
	f.StringVar(&req.TenantId, "tenant", "", "only of this tenant")
	pageFlags(cmd, &p, 100)
	return cmd
}

func (c *cli) printOperation(o *controlv1.Operation) error {
	return c.print(result{msg: o, names: []string{o.GetOperationId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		state := operationState(o)
		f.Add("Operation", o.GetOperationId())
		f.Add("Kind", operationKind(o))
		f.AddColor("State", state.Text, state.Color)
		f.Add("Message", o.GetMessage())
		f.Add("Target", operationTarget(o))
		f.Add("Reason", o.GetReason())
		f.Add("Asked by", joinNonEmpty(" of ", o.GetUserName(), o.GetTenantId()))
		f.Add("Asked", c.stamp(o.GetCreatedAt()))
		f.Add("Stops at", c.stamp(o.GetStopAt()))
		f.Add("Ended", c.stamp(o.GetEndedAt()))
		if err := f.Write(w, color); err != nil || len(o.GetSteps()) == 0 {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		t := text.NewTable("STEP", "AT", "RESULT", "MESSAGE", "ABOUT")
		for _, s := range o.GetSteps() {
			res := text.Cell{Text: "ok", Color: text.Green}
			if !s.GetOk() {
				res = text.Cell{Text: "failed", Color: text.Red}
			}
			t.Row(s.GetName(), c.ago(s.GetAt()), res, s.GetMessage(), strings.Join(s.GetSubjects(), " "))
		}
		return t.Write(w, color)
	}})
}

func operationShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show OPERATION", Short: "Show an operation with its steps",
		Args: takes(1, 1, "the ID of an operation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			o, err := a.control.GetOperation(cmd.Context(), &controlv1.GetOperationRequest{OperationId: args[0]})
			if err != nil {
				return err
			}
			return c.printOperation(o)
		},
	}
}

func operationWatchCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "watch OPERATION", Short: "Wait for the end of an operation, showing what is done",
		Args: takes(1, 1, "the ID of an operation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			o, err := c.followOperation(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			return c.endOf(o)
		},
	}
}

// followOperation notes the steps of an operation as they are done and returns
// it when it has ended.
func (c *cli) followOperation(ctx context.Context, a *api, id string) (*controlv1.Operation, error) {
	said := 0
	tries := c.newLink(false).try()
	for {
		var last *controlv1.Operation
		st, err := a.control.WatchOperations(ctx, &controlv1.WatchOperationsRequest{OperationId: id})
		if err == nil {
			for st.Receive() {
				if o := st.Msg().GetOperation(); o != nil {
					tries.ok()
					for last = o; said < len(o.GetSteps()); said++ {
						s := o.GetSteps()[said]
						c.note("%s: %s", s.GetName(), s.GetMessage())
					}
				}
			}
			if err = st.Err(); err == nil && last.GetEndedAt() != nil {
				return last, nil
			}
			if err == nil {
				err = errNotOver
			}
		}
		if err = tries.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// endOf prints an operation; one that did not succeed is an error.
func (c *cli) endOf(o *controlv1.Operation) error {
	if err := c.printOperation(o); err != nil {
		return err
	}
	switch o.GetState() {
	case controlv1.OperationState_OPERATION_STATE_FAILED, controlv1.OperationState_OPERATION_STATE_PARTLY:
		return fmt.Errorf("operation %s %s: %s", o.GetOperationId(), enumName(o.GetState().String(), "OPERATION_STATE_"), o.GetMessage())
	}
	return nil
}

// resourceArgs are a center and, for nodes, one of its nodes.
func resourceArgs(nodes bool) (use string, args cobra.PositionalArgs) {
	if nodes {
		return " CENTER NODE", takes(2, 2, "the ID of a center and the name of one of its nodes")
	}
	return " CENTER", takes(1, 1, "the ID of a center")
}

func nodeOf(args []string) string {
	if len(args) > 1 {
		return args[1]
	}
	return ""
}

// done follows an operation if it is asked to, and prints it.
func (c *cli) done(ctx context.Context, a *api, o *controlv1.Operation, wait bool) error {
	if wait && o.GetEndedAt() == nil {
		var err error
		if o, err = c.followOperation(ctx, a, o.GetOperationId()); err != nil {
			return err
		}
	}
	return c.endOf(o)
}

func isolateCommand(c *cli, nodes bool) *cobra.Command {
	var reason, request string
	var wait bool
	use, args := resourceArgs(nodes)
	cmd := &cobra.Command{
		Use: "isolate" + use, Short: "Have it take no new work; what runs goes on",
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			o, err := a.control.IsolateResource(cmd.Context(), &controlv1.IsolateResourceRequest{AiCenterId: args[0], Node: nodeOf(args), Reason: reason, RequestId: request})
			if err != nil {
				return err
			}
			return c.done(cmd.Context(), a, o, wait)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, shown with it")
	cmd.Flags().StringVar(&request, "request-id", "", "makes the call safe to repeat")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is so")
	return cmd
}

func restoreCommand(c *cli, nodes bool) *cobra.Command {
	var request string
	var wait bool
	use, args := resourceArgs(nodes)
	cmd := &cobra.Command{
		Use: "restore" + use, Short: "Have it take work again",
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			o, err := a.control.RestoreResource(cmd.Context(), &controlv1.RestoreResourceRequest{AiCenterId: args[0], Node: nodeOf(args), RequestId: request})
			if err != nil {
				return err
			}
			return c.done(cmd.Context(), a, o, wait)
		},
	}
	cmd.Flags().StringVar(&request, "request-id", "", "makes the call safe to repeat")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is so")
	return cmd
}

func reclaimCommand(c *cli, nodes bool) *cobra.Command {
	req := &controlv1.ReclaimResourceRequest{}
	var grace string
	var wait, yes bool
	use, args := resourceArgs(nodes)
	cmd := &cobra.Command{
		Use: "reclaim" + use, Short: "Take it back: isolate it, then stop what still runs there",
		Long: `Takes a node or a center back: it takes no new work, notice is given, and what
still runs there after the grace period is stopped. A run stopped this way is
run again elsewhere as far as its job's retries allow. Restore it to call that
off.`,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := parseDuration(grace)
			if err != nil {
				return usagef("--grace: want a time such as 10m, got %q", grace)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req.AiCenterId, req.Node, req.GraceSeconds = args[0], nodeOf(args), int64(d.Seconds())
			if !yes {
				if err := c.confirm(fmt.Sprintf("Stop what runs at %s in %s?", text.Clean(strings.Join(args, " ")), text.Duration(d))); err != nil {
					return err
				}
			}
			o, err := a.control.ReclaimResource(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.done(cmd.Context(), a, o, wait)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Reason, "reason", "", "why, shown with what is stopped")
	f.StringVar(&grace, "grace", "5m", "time between notice and stop, such as 10m or 0s")
	f.BoolVar(&req.ThenFree, "then-free", false, "have it take work again afterward")
	f.StringVar(&req.RequestId, "request-id", "", "makes the call safe to repeat")
	f.BoolVar(&wait, "wait", false, "wait until it is done")
	yesFlag(cmd, &yes)
	return cmd
}
