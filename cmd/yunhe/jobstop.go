package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobStopCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "stop JOB...", Short: "Stop jobs",
		Long: `Stops jobs: what waits never starts, what runs is asked to end and killed after
its grace period. Stopping a job that has ended changes nothing.`,
		Args: takes(1, -1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			stopped := &jobsv1.ListJobsResponse{}
			err = c.each(args, func(id string) error {
				job, err := a.jobs.StopJob(cmd.Context(), &jobsv1.StopJobRequest{JobId: id, Reason: reason})
				if err == nil {
					stopped.Jobs = append(stopped.Jobs, job)
				}
				return err
			})
			return errors.Join(err, c.print(result{msg: stopped, names: jobIDs(stopped.Jobs), print: func(w io.Writer, color bool) error {
				for _, j := range stopped.Jobs {
					if _, err := fmt.Fprintf(w, "%s  %s\n", j.GetJobId(), text.Paint(stateName(j.GetState()), stateColor(j.GetState()), color)); err != nil {
						return err
					}
				}
				return nil
			}}))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, shown with the job")
	return cmd
}

// eachDone does to every thing what fn does, and prints to which it was done.
func (c *cli) eachDone(ids []string, member, done string, fn func(a *api, id string) error) error {
	a, err := c.api()
	if err != nil {
		return err
	}
	changed := []string{}
	err = c.each(ids, func(id string) error {
		err := fn(a, id)
		if err == nil {
			changed = append(changed, id)
		}
		return err
	})
	return errors.Join(err, c.printDone(member, changed, done))
}

// each calls fn for every argument, reports what fails and goes on. It returns
// an error if any call failed.
func (c *cli) each(args []string, fn func(string) error) error {
	failed := error(nil)
	for _, arg := range args {
		if err := fn(arg); err != nil {
			msg, fields, hint := explain(err)
			if len(args) > 1 {
				msg = arg + ": " + msg
			}
			c.complain(msg, fields, hint)
			failed = exitStatus(exitFailed)
		}
	}
	return failed
}
