package main

import (
	"github.com/spf13/cobra"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete JOB...", Short: "Delete the records of jobs that have ended",
		Long: `Deletes the records of jobs that have ended; their usage records stay. A job
that has not ended must be stopped first.`,
		Args: takes(1, -1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "jobIds", "deleted", func(a *api, id string) error {
				_, err := a.jobs.DeleteJob(cmd.Context(), &jobsv1.DeleteJobRequest{JobId: id})
				return err
			})
		},
	}
}
