package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/sim"
)

func simForecastCommand(c *cli) *cobra.Command {
	var f simFlags
	var learn float64
	cmd := &cobra.Command{
		Use: "forecast --jobs FILE", Short: "How well run times are told from what ran before",
		Long: `Goes through recorded jobs in the order in which they came, tells how long each
will run from those that have ended by then, and compares with how long it ran.
Beside the forecast, which is the one the platform's scheduler uses, are what
was stated for the jobs, the mean of the user's last two runs, and the mean of
all runs.

Of the jobs before --learn of the trace is only learned. OFF is how many times
too long or too short a run was told to be, the median of the jobs (1.00 is
exact); TWICE the part of them that was off by no more than twice; LONGER the
part that took longer than told, which is bad where others rely on the end;
90 % the part that took no longer than the upper estimate of the forecast.`,
		Example: `  yunhe sim forecast --jobs openb_pod_list_default.csv`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.jobs == "" {
				return usagef("--jobs is required")
			}
			speeds, err := readThroughputs(f)
			if err != nil {
				return err
			}
			in, err := readJobs(f, speeds)
			if err != nil {
				return err
			}
			out, err := sim.Forecasts(in, learn)
			if err != nil {
				return err
			}
			names := make([]string, len(out))
			for i := range out {
				names[i] = out[i].Way
			}
			return c.print(result{msg: out, names: names, print: func(w io.Writer, color bool) error {
				t := text.NewTable("WAY", ">JOBS", ">OFF", ">TWICE", ">MEAN ERROR", ">LONGER", ">90 %")
				for _, x := range out {
					within := "-"
					if x.Within > 0 {
						within = fmt.Sprintf("%.1f %%", x.Within)
					}
					t.Row(x.Way, fmt.Sprint(x.Jobs), fmt.Sprintf("%.2f", x.Off), fmt.Sprintf("%.1f %%", x.Twice), fmt.Sprintf("%.0f s", x.Error), fmt.Sprintf("%.1f %%", x.Short), within)
				}
				return t.Write(w, color)
			}})
		},
	}
	cmd.Flags().StringVar(&f.jobs, "jobs", "", "file with jobs, as of yunhe sim run")
	cmd.Flags().StringVar(&f.throughputs, "throughputs", "", "file with the steps per second of a gavel trace")
	cmd.Flags().Float64Var(&learn, "learn", 0.5, "part of the trace, from 0 to below 1, that is only learned from")
	return cmd
}
