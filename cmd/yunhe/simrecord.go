package main

import (
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	simulationsv1 "yunhe.dev/yunhe/gen/yunhe/simulations/v1"
)

func simRecordCommand(c *cli) *cobra.Command {
	var since, out string
	req := &simulationsv1.RecordPlatformRequest{}
	cmd := &cobra.Command{
		Use: "record", Short: "Write what a live platform has and did, for \"sim run\"",
		Long: `Writes the platform's centers as its scheduler sees them, the jobs of the time
given that you may see, the settings of the queue and the policies in force, as a
file that "yunhe sim run" takes for --nodes and --jobs. Played with --policy live,
it decides as the platform did.

A job's duration is how long it ran, times the speed of where it ran. Of jobs that
have not ended it is what is expected of them. Replicas that need not start
together are jobs of their own. What other work holds is taken off the centers.`,
		Example: `  yunhe sim record --since 168h > state.json
  yunhe sim run --nodes state.json --jobs state.json --policy live,balanced,lowest-cost`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := c.parseTime("--since", since)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req.SinceSeconds = max(int64(c.now().Sub(at.AsTime()).Seconds()), 1)
			s, err := a.simulations.RecordPlatform(cmd.Context(), req)
			if err != nil {
				return err
			}
			if out == "" {
				if _, err := c.out.Write(s.GetContent()); err != nil {
					return err
				}
			} else if err := os.WriteFile(out, s.GetContent(), 0o644); err != nil {
				return err
			}
			c.note("recorded %d centers and %d jobs", s.GetCenters(), s.GetJobs())
			if n := s.GetOpenJobs(); n > 0 {
				c.note("%d had not ended: their durations are not what they will be", n)
			}
			for _, why := range slices.Sorted(maps.Keys(s.GetLeftOut())) {
				c.note("left out %d that %s", s.GetLeftOut()[why], why)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "168h", "jobs submitted since, and those that have not ended: a time, a date, or how long ago (2h, 7d)")
	cmd.Flags().Int32Var(&req.Jobs, "most", 0, "the latest of them, at most 20,000 (0: 5,000)")
	cmd.Flags().StringVar(&out, "out", "", "write to this file")
	return cmd
}
