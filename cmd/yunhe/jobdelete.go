package main

import (
	"errors"

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
			a, err := c.api()
			if err != nil {
				return err
			}
			deleted := []string{}
			err = c.each(args, func(id string) error {
				_, err := a.jobs.DeleteJob(cmd.Context(), &jobsv1.DeleteJobRequest{JobId: id})
				if err == nil {
					deleted = append(deleted, id)
				}
				return err
			})
			return errors.Join(err, c.printDone("jobIds", deleted, "deleted"))
		},
	}
}
