package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/scheduler/bench"
)

func simBenchCommand(c *cli) *cobra.Command {
	var only []string
	var parts int
	cmd := &cobra.Command{
		Use: "bench", Short: "How fast this machine decides, beside goals and others' figures",
		Long: `Measures the engines of the scheduler in this process, in memory, on work drawn
from fixed seeds: centers (network level), nodes and cards (pool level), and the
queue. It takes about two minutes and both time and memory depend on what else
the machine does; PER CPU SECOND depends least on that. GOAL is what the project
wants on a machine of 2 cores. OTHERS are figures of docs/benchmarks.md: measured
on such a machine when they were run by themselves, not measured by this command.

Rows: ` + strings.Join(bench.Names(), ", ") + `.`,
		Example: `  yunhe sim bench
  yunhe sim bench --only pool,gangs -o json`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if parts < 1 || parts > 1000 {
				return usagef("--part must be 1 to 1000, got %d", parts)
			}
			if parts > 1 {
				c.note("one part in %d of the work: it shows that it runs; nothing is judged", parts)
			}
			out := []bench.Row{}
			if err := bench.Run(cmd.Context(), only, parts, func(r bench.Row) {
				out = append(out, r)
				if c.forPeople() {
					c.note("%-16s %s/s", r.Name, thousands(r.PerSecond))
				}
			}); err != nil {
				return err
			}
			names := make([]string, len(out))
			for i, r := range out {
				names[i] = r.Name
			}
			return c.print(result{msg: out, names: names, print: func(w io.Writer, color bool) error { return printBench(w, color, out) }})
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "rows to measure, separated by commas; all if not given")
	cmd.Flags().IntVar(&parts, "part", 1, "do one part in so many of the work; above 1 nothing is judged")
	return cmd
}

func printBench(w io.Writer, color bool, rows []bench.Row) error {
	t := text.NewTable("WORK", ">PLACES", ">JOBS", ">PER SECOND", ">PER CPU SECOND", ">P99, ms", "OF A", ">PEAK, MiB", "GOAL", "", "OTHERS, PER SECOND")
	for _, r := range rows {
		speed, goal, met := thousands(r.PerSecond), r.Goal, text.Cell{}
		if r.Ratio > 0 {
			speed = fmt.Sprintf("ratio %.2f", r.Ratio)
		}
		if r.OK != nil {
			met = text.Cell{Text: "below", Color: text.Red}
			if *r.OK {
				met = text.Cell{Text: "ok", Color: text.Green}
			}
		}
		p99 := ""
		if r.P99Millis > 0 {
			p99 = fmt.Sprintf("%.3g", r.P99Millis)
		}
		t.Row(r.Work, r.Candidates, r.Jobs, speed, thousands(r.PerCPUSecond), p99, r.P99Of, fmt.Sprintf("%.0f", r.PeakMiB), goal, met, r.Peer)
	}
	return t.Write(w, color)
}

// thousands is a number without decimals, in groups of three.
func thousands(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
