package main

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

func (c *cli) printSliceSpecs(msg any, list ...*poolv1.SliceSpec) error {
	t := text.NewTable("SPEC", ">COMPUTE", ">MEMORY", "MODEL", ">YUAN/H OF A DEVICE")
	var names []string
	for _, x := range list {
		names = append(names, x.SpecId)
		share := strconv.FormatInt(x.ComputePercent, 10) + "%"
		if x.Weighted {
			share += " weight"
		}
		t.Row(x.SpecId, share, text.Bytes(x.MemoryMib<<20), x.Model, text.Fen(x.PriceFen))
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("there are no specifications of slices; `yunhe pool spec set` makes one")
			return nil
		}
		return t.Write(w, color)
	}})
}

func poolSpecListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the specifications of slices",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.pool.ListSliceSpecs(cmd.Context(), &poolv1.ListSliceSpecsRequest{})
			if err != nil {
				return err
			}
			return c.printSliceSpecs(res, res.Specs...)
		},
	}
}

func poolSpecSetCommand(c *cli) *cobra.Command {
	x := &poolv1.SliceSpec{}
	var mem, price string
	cmd := &cobra.Command{
		Use: "set SPEC", Short: "Make a specification of slices, or replace it",
		Example: "  yunhe pool spec set small --compute 25 --memory 4GiB --price 2.00",
		Args:    takes(1, 1, "the ID of a specification"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := mebibytes("--memory", mem)
			if err != nil {
				return err
			}
			x.MemoryMib = size >> 20
			if x.PriceFen, err = text.ParseFen(price); err != nil {
				return usagef("--price: want yuan with at most two decimals, such as 1.20, got %q", price)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.pool.SetSliceSpec(cmd.Context(), &poolv1.SetSliceSpecRequest{SpecId: args[0], Spec: x})
			if err != nil {
				return err
			}
			return c.printSliceSpecs(got, got)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&x.ComputePercent, "compute", 100, "percent of a device's time")
	f.StringVar(&mem, "memory", "", "memory of the device, such as 1234MiB")
	f.BoolVar(&x.Weighted, "weighted", false, "take --compute as a weight: use what others leave, too")
	f.StringVar(&x.Model, "model", "", "a part of the name of the model (default: any)")
	f.StringVar(&price, "price", "0", "yuan for a whole device and an hour; a slice costs its percentage")
	return cmd
}

func poolSpecDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete SPEC", Short: "Delete a specification of slices; slices stay as they are",
		Args: takes(1, 1, "the ID of a specification"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.pool.DeleteSliceSpec(cmd.Context(), &poolv1.DeleteSliceSpecRequest{SpecId: args[0]}); err != nil {
				return err
			}
			return c.printDone("specIds", args, "deleted")
		},
	}
}

func (c *cli) printPoolGroups(msg any, list ...*poolv1.PoolGroup) error {
	t := text.NewTable("GROUP", "TENANTS", "USERS", "MEMBERS", ">SLICES", ">COMPUTE", ">MEMORY", ">MAX PRIORITY")
	of := func(lent, limit string, none bool) string {
		if none {
			return lent
		}
		return lent + " of " + limit
	}
	all := func(list []string) string {
		if len(list) == 0 {
			return "all"
		}
		return strings.Join(list, " ")
	}
	var names []string
	for _, g := range list {
		names = append(names, g.GroupId)
		t.Row(g.GroupId, strings.Join(g.TenantIds, " "), all(g.UserIds), all(g.Members), g.Slices,
			of(strconv.FormatInt(g.ComputeLentPercent, 10)+"%", strconv.FormatInt(g.ComputeLimitPercent, 10)+"%", g.ComputeLimitPercent == 0),
			of(text.Bytes(g.MemoryLentMib<<20), text.Bytes(g.MemoryLimitMib<<20), g.MemoryLimitMib == 0), g.MaxPriority)
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("there are no groups of the pool that you may use")
			return nil
		}
		return t.Write(w, color)
	}})
}

func poolGroupListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the logical groups that you may use, with what they have",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.pool.ListPoolGroups(cmd.Context(), &poolv1.ListPoolGroupsRequest{})
			if err != nil {
				return err
			}
			return c.printPoolGroups(res, res.Groups...)
		},
	}
}

func poolGroupSetCommand(c *cli) *cobra.Command {
	g := &poolv1.PoolGroup{}
	var mem string
	cmd := &cobra.Command{
		Use: "set GROUP --tenant TENANT", Short: "Make a logical group of the pool, or replace it",
		Long: `Makes a logical group, or replaces all that is said of it: a part of the pool, who
may use it, and how much all its slices may have together.`,
		Example: "  yunhe pool group set team-a --tenant physics --member n1 --member n2/opencl-0 --compute 150 --memory 8GiB",
		Args:    takes(1, 1, "the ID of a group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := mebibytes("--memory", mem)
			if err != nil {
				return err
			}
			g.MemoryLimitMib = size >> 20
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.pool.SetPoolGroup(cmd.Context(), &poolv1.SetPoolGroupRequest{GroupId: args[0], Group: g})
			if err != nil {
				return err
			}
			return c.printPoolGroups(got, got)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&g.TenantIds, "tenant", nil, "whose users may use it; may be repeated")
	f.StringSliceVar(&g.UserIds, "user", nil, "only these of their users; may be repeated")
	f.StringSliceVar(&g.Members, "member", nil, "NODE or NODE/DEVICE in it; may be repeated (default: the whole pool)")
	f.Int64Var(&g.ComputeLimitPercent, "compute", 0, "percent that all its slices may have together (default: no limit)")
	f.StringVar(&mem, "memory", "", "memory that all its slices may have together, such as 8GiB (default: no limit)")
	f.Int32Var(&g.MaxPriority, "max-priority", 0, "highest priority of its slices, 0 to 100")
	return cmd
}

func poolGroupDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP", Short: "Delete a logical group that has no slices",
		Args: takes(1, 1, "the ID of a group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.pool.DeletePoolGroup(cmd.Context(), &poolv1.DeletePoolGroupRequest{GroupId: args[0]}); err != nil {
				return err
			}
			return c.printDone("groupIds", args, "deleted")
		},
	}
}
