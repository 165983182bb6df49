package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
)

func allocationCommand(c *cli) *cobra.Command {
	return group("allocation", groupNetwork, "Resources held for your tenant: apply, adjust, release",
		allocationApplyCommand(c), allocationListCommand(c), allocationShowCommand(c), allocationAdjustCommand(c), allocationReleaseCommand(c), allocationViewCommand(c))
}

func allocationApplyCommand(c *cli) *cobra.Command {
	req := &controlv1.ApplyAllocationRequest{}
	var start, end string
	var weights map[string]int
	cmd := &cobra.Command{
		Use: "apply", Short: "Apply for resources",
		Long: `Applies for resources: packages of a specification, amounts, or named nodes of a
center. They are held at the named center, in the named region, or wherever the
scheduling policies prefer, and jobs that name the allocation run in it. An
application for which there is no room waits; one that would never fit is
refused.`,
		Example: `  yunhe allocation apply --spec medium --count 8
  yunhe allocation apply --amount cpu=64 --amount memory=256Gi --region guizhou --for 48h
  yunhe allocation apply --center gz-1 --node n1 --node n2`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if req.StartAt, err = c.moment("--from", start); err != nil {
				return err
			}
			if req.EndAt, err = c.moment("--for", end); err != nil {
				return err
			}
			if req.ResourceSpecId != "" && !cmd.Flags().Changed("count") {
				req.Count = 1
			}
			req.PolicyWeights = map[string]int32{}
			for name, n := range weights {
				if n < 0 || n > 1000 {
					return usagef("--weight %s: must be between 0 and 1000, got %d", name, n)
				}
				req.PolicyWeights[name] = int32(n)
			}
			got, err := a.control.ApplyAllocation(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printAllocations(got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Name, "name", "", "a name for it")
	f.StringVar(&req.ResourceSpecId, "spec", "", "packages of this specification")
	f.Int64Var(&req.Count, "count", 0, "how many packages (default 1)")
	f.StringToStringVar(&req.Amounts, "amount", nil, "amounts instead, such as cpu=64 (repeatable)")
	f.StringArrayVar(&req.Nodes, "node", nil, "this node of --center, held whole (repeatable)")
	f.StringVar(&req.AiCenterId, "center", "", "at this center")
	f.StringVar(&req.Region, "region", "", "in this region")
	f.StringVar(&start, "from", "", "starts then: a time such as 2h from now, or 2026-12-01T08:00:00Z")
	f.StringVar(&end, "for", "", "ends then: a time from now, or a date")
	f.BoolVar(&req.NoWait, "no-wait", false, "refuse it if there is no room")
	f.StringVar(&req.RequestId, "request-id", "", "makes the call safe to repeat")
	f.StringToIntVar(&weights, "weight", nil, "own weight of a scheduling policy, POLICY=N (repeatable)")
	return cmd
}

// moment reads a time from now, or a date; nil for "".
func (c *cli) moment(flag, s string) (*timestamppb.Timestamp, error) {
	if s == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return timestamppb.New(t), nil
	}
	d, err := parseDuration(s)
	if err != nil {
		return nil, usagef("%s: want a time such as 2h or 2026-12-01T08:00:00Z, got %q", flag, s)
	}
	return timestamppb.New(c.now().Add(d)), nil
}

func allocationListCommand(c *cli) *cobra.Command {
	var p paging
	var center, tenant string
	var states []string
	cmd := &cobra.Command{
		Use: "list", Short: "List allocations, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &controlv1.ListAllocationsRequest{AiCenterId: center, TenantId: tenant}
			for _, s := range states {
				n, err := enumFlag("--state", s, controlv1.AllocationState_value, "ALLOCATION_STATE_")
				if err != nil {
					return err
				}
				req.States = append(req.States, controlv1.AllocationState(n))
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*controlv1.Allocation, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.control.ListAllocations(cmd.Context(), req)
				return res.GetAllocations(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(list) == 0 && c.forPeople() {
				c.note("no allocations; `yunhe allocation apply` asks for one")
				return nil
			}
			err = c.printAllocationList(list, next)
			c.noteMore(len(list), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "only in these states: scheduled, waiting, granted, refused, releasing, released, expired")
	f.StringVar(&center, "center", "", "only at this center")
	f.StringVar(&tenant, "tenant", "", "only of this tenant")
	pageFlags(cmd, &p, 100)
	return cmd
}

func (c *cli) printAllocations(list ...*controlv1.Allocation) error {
	if len(list) == 1 && !c.forPeople() {
		return c.print(result{msg: list[0], names: []string{list[0].GetAllocationId()}})
	}
	return c.printAllocationList(list, "")
}

func (c *cli) printAllocationList(list []*controlv1.Allocation, next string) error {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.GetAllocationId()
	}
	return c.print(result{msg: &controlv1.ListAllocationsResponse{Allocations: list, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
		t := text.NewTable("ALLOCATION", "NAME", "STATE", "CENTER", "HOLDS", "USED", "ENDS", "REASON")
		for _, x := range list {
			end := "-"
			if x.GetEndAt() != nil {
				end = c.stamp(x.GetEndAt())
			}
			t.Row(x.GetAllocationId(), x.GetName(), allocationState(x), x.GetAiCenterId(), allocationSize(x), amountsText(x.GetUsed()), end, x.GetReason())
		}
		return t.Write(w, color)
	}})
}

func allocationState(x *controlv1.Allocation) text.Cell {
	color := text.Yellow
	switch x.GetState() {
	case controlv1.AllocationState_ALLOCATION_STATE_GRANTED:
		color = text.Green
	case controlv1.AllocationState_ALLOCATION_STATE_REFUSED:
		color = text.Red
	case controlv1.AllocationState_ALLOCATION_STATE_RELEASED, controlv1.AllocationState_ALLOCATION_STATE_EXPIRED:
		color = text.Plain
	}
	return text.Cell{Text: enumName(x.GetState().String(), "ALLOCATION_STATE_"), Color: color}
}

func allocationSize(x *controlv1.Allocation) string {
	switch {
	case x.GetResourceSpecId() != "":
		return fmt.Sprintf("%d × %s", x.GetCount(), x.GetResourceSpecId())
	case len(x.GetNodes()) > 0:
		return strings.Join(x.GetNodes(), ", ")
	}
	return amountsText(x.GetAmounts())
}

// amountsText leaves out what is nothing.
func amountsText(m map[string]string) string {
	var out []string
	for name, n := range m {
		if n != "0" {
			out = append(out, name+"="+n)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func allocationShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show ALLOCATION", Short: "Show an allocation with what was done about it",
		Args: takes(1, 1, "the ID of an allocation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.control.GetAllocation(cmd.Context(), &controlv1.GetAllocationRequest{AllocationId: args[0]})
			if err != nil {
				return err
			}
			ops, err := a.control.ListOperations(cmd.Context(), &controlv1.ListOperationsRequest{AllocationId: args[0]})
			if err != nil {
				return err
			}
			return c.print(result{msg: x, names: []string{x.GetAllocationId()}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				state := allocationState(x)
				f.Add("Allocation", x.GetAllocationId())
				f.Add("Name", x.GetName())
				f.AddColor("State", state.Text, state.Color)
				f.Add("Reason", x.GetReason())
				f.Add("Center", x.GetAiCenterId())
				f.Add("Region", x.GetRegion())
				f.Add("For", allocationSize(x))
				f.Add("Holds", amountsText(x.GetAmounts()))
				f.Add("Used", amountsText(x.GetUsed()))
				f.Add("Owner", joinNonEmpty(" of ", x.GetUserName(), x.GetTenantId()))
				f.Add("Applied", c.stamp(x.GetCreatedAt()))
				f.Add("Starts", c.stamp(x.GetStartAt()))
				f.Add("Granted", c.stamp(x.GetGrantedAt()))
				f.Add("Ends", c.stamp(x.GetEndAt()))
				f.Add("Ended", c.stamp(x.GetEndedAt()))
				if err := f.Write(w, color); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(w); err != nil {
					return err
				}
				return c.operationTable(ops.GetOperations()).Write(w, color)
			}})
		},
	}
}

func allocationAdjustCommand(c *cli) *cobra.Command {
	req := &controlv1.AdjustAllocationRequest{}
	var end string
	cmd := &cobra.Command{
		Use: "adjust ALLOCATION", Short: "Change the size or the end of an allocation",
		Args: takes(1, 1, "the ID of an allocation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req.AllocationId = args[0]
			if req.EndAt, err = c.moment("--for", end); err != nil {
				return err
			}
			x, err := a.control.AdjustAllocation(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printAllocations(x)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&req.Count, "count", 0, "the new number of packages")
	f.StringToStringVar(&req.Amounts, "amount", nil, "the new amounts, all of them (repeatable)")
	f.StringVar(&end, "for", "", "the new end: a time from now, or a date")
	f.BoolVar(&req.BelowUse, "below-use", false, "even below what runs use at present")
	f.StringVar(&req.RequestId, "request-id", "", "makes the call safe to repeat")
	return cmd
}

func allocationReleaseCommand(c *cli) *cobra.Command {
	var stop, yes bool
	cmd := &cobra.Command{
		Use: "release ALLOCATION...", Short: "Give allocations back",
		Args: takes(1, -1, "the ID of an allocation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if stop && !yes {
				if err := c.confirm("Release " + text.Clean(strings.Join(args, ", ")) + " and stop what runs in it?"); err != nil {
					return err
				}
			}
			var out []*controlv1.Allocation
			err = c.each(args, func(id string) error {
				x, err := a.control.ReleaseAllocation(cmd.Context(), &controlv1.ReleaseAllocationRequest{AllocationId: id, Stop: stop})
				if err == nil {
					out = append(out, x)
				}
				return err
			})
			if len(out) == 0 {
				return err
			}
			if perr := c.printAllocations(out...); err == nil {
				err = perr
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "stop what runs in it")
	yesFlag(cmd, &yes)
	return cmd
}

func allocationViewCommand(c *cli) *cobra.Command {
	req := &controlv1.GetResourceViewRequest{}
	cmd := &cobra.Command{
		Use: "view", Short: "Show what is free, by region, center and specification",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.control.GetResourceView(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			for _, g := range v.GetRegions() {
				for _, k := range g.GetCenters() {
					names = append(names, k.GetAiCenterId())
				}
			}
			return c.print(result{msg: v, names: names, print: func(w io.Writer, color bool) error {
				t := text.NewTable("REGION", "CENTER", "STATUS", "FREE", "ALLOCATED", ">NODES", "PACKAGES")
				for _, g := range v.GetRegions() {
					for _, k := range g.GetCenters() {
						var specs []string
						for _, s := range k.GetSpecs() {
							specs = append(specs, fmt.Sprintf("%d %s", s.GetFree(), s.GetResourceSpecId()))
						}
						t.Row(g.GetRegion(), k.GetAiCenterId(), k.GetStatus(), amountsText(k.GetFree()), amountsText(k.GetAllocated()),
							fmt.Sprint(k.GetNodesReady()+k.GetNodesNotReady()+k.GetNodesIsolated()), strings.Join(specs, ", "))
					}
				}
				return t.Write(w, color)
			}})
		},
	}
	cmd.Flags().StringVar(&req.Region, "region", "", "only this region")
	cmd.Flags().StringVar(&req.ResourceSpecId, "spec", "", "only centers that offer this specification")
	return cmd
}
