package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/accelerators"
)

func acceleratorCommand(c *cli) *cobra.Command {
	return group("accelerator", groupNetwork, "Peak figures of known accelerators, by precision; needs no server",
		acceleratorListCommand(c), acceleratorShowCommand(c), acceleratorTotalCommand(c))
}

func acceleratorListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the accelerators that are known, with what they reach",
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			all := accelerators.Known().All()
			names := make([]string, len(all))
			t := text.NewTable("VENDOR", "MODEL", "COUNTS AS", ">MEMORY", "PEAK, DENSE")
			for i, a := range all {
				names[i] = a.Model
				t.Row(a.Vendor, a.Model, a.Class, text.Bytes(a.MemoryBytes), rates(a.Peak))
			}
			return c.print(result{msg: all, names: names, print: t.Write})
		},
	}
}

func rates(rs []accelerators.Rate) string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.String()
	}
	return orDash(strings.Join(out, ", "))
}

// findAccelerator finds a model by any name that drivers give it.
func findAccelerator(name string) (accelerators.Accelerator, error) {
	a, ok := accelerators.Known().Find(name)
	if !ok {
		return a, usagef("there is no accelerator %q; `yunhe accelerator list` shows those that are known", name)
	}
	return a, nil
}

func acceleratorShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show MODEL", Short: "Show an accelerator and where its figures are from",
		Example: "  yunhe accelerator show NVIDIA-H800-80GB-HBM3",
		Args:    takes(1, 1, "the name of a model, as a driver or a cluster gives it"),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := findAccelerator(args[0])
			if err != nil {
				return err
			}
			return c.print(result{msg: a, names: []string{a.Model}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Vendor", a.Vendor)
				f.Add("Model", a.Model)
				f.Add("Counts as", a.Class)
				f.Add("Memory", text.Bytes(a.MemoryBytes))
				f.Add("Peak, dense", rates(a.Peak))
				f.Add("Source", a.Source)
				for _, check := range a.Checked {
					f.Add("Compared", strings.Join(check.Figures, ", ")+" with "+check.Page)
				}
				if names := a.Uncompared(); names != nil {
					f.Add("Not compared", strings.Join(names, ", ")+": the source was not opened again")
				}
				if a.Reported {
					f.Add("Reported", "by others than the maker")
				}
				f.Add("Note", a.Note)
				return f.Write(w, color)
			}})
		},
	}
}

func acceleratorTotalCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "total MODEL=COUNT...", Short: "Add up the peak figures of many, each precision by itself",
		Example: "  yunhe accelerator total H800=16 H20=8",
		Args:    takes(1, -1, "at least one model with a count such as H800=16"),
		RunE: func(_ *cobra.Command, args []string) error {
			var all []accelerators.Rate
			for _, arg := range args {
				name, count, _ := strings.Cut(arg, "=")
				n, err := strconv.ParseInt(count, 10, 32)
				if err != nil || n < 1 {
					return usagef("want a model with a count such as H800=16, got %q", arg)
				}
				a, err := findAccelerator(name)
				if err != nil {
					return err
				}
				for _, r := range a.Peak {
					all = append(all, r.Times(n))
				}
			}
			sums := accelerators.Totals(all...)
			t := text.NewTable("PRECISION", ">PEAK, DENSE")
			for _, r := range sums {
				t.Row(string(r.Precision()), fmt.Sprintf("%s %s", strconv.FormatFloat(r.Tera(), 'f', -1, 64), r.Precision().Unit()))
			}
			return c.print(result{msg: sums, print: t.Write})
		},
	}
}
