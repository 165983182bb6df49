package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobWriteOffCommand(c *cli) *cobra.Command {
	var req jobsv1.WriteOffJobRequest
	var yes bool
	cmd := &cobra.Command{
		Use: "write-off JOB...", Short: "End runs of jobs whose center is gone",
		Long: `Writes off the runs of jobs at centers that are gone: not heard of for longer
than 10 seconds, or without their gateway. Such a run ends as failed, reason
"lost", and is billed up to the last moment its center was heard of; what it
held is free again. Runs at other centers go on.

The runs are not tried again, because they may still be under way: with --retry
they are, as far as the job's own retries allow. A center that comes back is
told to stop them, and what it says of them changes nothing any more.`,
		Example: `  yunhe job write-off JOB --reason "rack 7 burned"
  yunhe job list --center bj-1 --state active -o name | xargs yunhe job write-off --center bj-1 --retry`,
		Args: takes(1, -1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if !yes {
				if err := c.confirm(fmt.Sprintf("Write off the lost runs of %s? This cannot be undone.", text.Clean(strings.Join(args, ", ")))); err != nil {
					return err
				}
			}
			res := &jobsv1.ListJobsResponse{}
			err = c.each(args, func(id string) error {
				job, err := a.jobs.WriteOffJob(cmd.Context(), &jobsv1.WriteOffJobRequest{JobId: id, Reason: req.Reason, AiCenterId: req.AiCenterId, Retry: req.Retry})
				if err == nil {
					res.Jobs = append(res.Jobs, job)
				}
				return err
			})
			return errors.Join(err, c.print(result{msg: res, names: jobIDs(res.Jobs), print: func(w io.Writer, color bool) error {
				for _, j := range res.Jobs {
					if _, err := fmt.Fprintf(w, "%s  %s  %s\n", j.GetJobId(), text.Paint(stateName(j.GetState()), stateColor(j.GetState()), color), lostOf(j)); err != nil {
						return err
					}
				}
				return nil
			}}))
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Reason, "reason", "", "why, shown with the runs")
	f.StringVar(&req.AiCenterId, "center", "", "only runs at this center (default: at every center that is gone)")
	f.BoolVar(&req.Retry, "retry", false, "run them again elsewhere, as far as the job's retries allow")
	yesFlag(cmd, &yes)
	return cmd
}

// lostOf counts a job's replicas whose latest run was lost.
func lostOf(j *jobsv1.Job) string {
	lost, again := 0, 0
	for _, r := range j.GetReplicas() {
		switch {
		case r.GetReason() != "lost":
		case ended(r.GetState()):
			lost++
		default:
			again++
		}
	}
	s := fmt.Sprintf("%d of %s lost", lost, text.Count(len(j.GetReplicas()), "replica"))
	if again > 0 {
		s += fmt.Sprintf(", %d to run again", again)
	}
	return s
}
