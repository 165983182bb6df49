package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobPauseCommand(c *cli) *cobra.Command {
	return pauseCommand(c, &cobra.Command{
		Use: "pause JOB...", Short: "Have jobs stand still",
		Long: `Has jobs stand still: what waits is not placed, what runs stops where it is and
keeps all it holds, which is billed as before. Its timeout does not count the time.
A job with runs at centers that cannot pause is refused, and the centers are
named. A paused job can be resumed and stopped. Pausing it again changes nothing.`,
	}, func(ctx context.Context, a *api, id string) (*jobsv1.Job, error) {
		return a.jobs.PauseJob(ctx, &jobsv1.PauseJobRequest{JobId: id})
	})
}

func jobResumeCommand(c *cli) *cobra.Command {
	return pauseCommand(c, &cobra.Command{
		Use: "resume JOB...", Short: "Have paused jobs go on",
		Long: `Has paused jobs go on where they stopped. Resuming a job that is not paused changes
nothing.`,
	}, func(ctx context.Context, a *api, id string) (*jobsv1.Job, error) {
		return a.jobs.ResumeJob(ctx, &jobsv1.ResumeJobRequest{JobId: id})
	})
}

func pauseCommand(c *cli, cmd *cobra.Command, call func(context.Context, *api, string) (*jobsv1.Job, error)) *cobra.Command {
	cmd.Args = takes(1, -1, "the ID of a job")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := c.api()
		if err != nil {
			return err
		}
		changed := &jobsv1.ListJobsResponse{}
		err = c.each(args, func(id string) error {
			job, err := call(cmd.Context(), a, id)
			if err == nil {
				changed.Jobs = append(changed.Jobs, job)
			}
			return err
		})
		return errors.Join(err, c.print(result{msg: changed, names: jobIDs(changed.Jobs), print: func(w io.Writer, color bool) error {
			for _, j := range changed.Jobs {
				if _, err := fmt.Fprintf(w, "%s  %s\n", j.GetJobId(), text.Paint(jobState(j), stateColor(j.GetState()), color)); err != nil {
					return err
				}
			}
			return nil
		}}))
	}
	return cmd
}

// jobState names a job's state, and where it is on the way to.
func jobState(j *jobsv1.Job) string {
	name := stateName(j.GetState())
	switch paused := j.GetState() == jobsv1.State_STATE_PAUSED; {
	case j.GetPauseAsked() && !paused:
		return name + ", pausing"
	case paused && !j.GetPauseAsked():
		return name + ", resuming"
	}
	return name
}
