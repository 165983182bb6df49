package main

import (
	"cmp"
	"io"

	"github.com/spf13/cobra"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobRunsCommand(c *cli) *cobra.Command {
	var p paging
	var sel selection
	cmd := &cobra.Command{
		Use: "runs JOB", Short: "List all runs of a job's replicas and how they ended",
		Long: `Lists the runs of a job's replicas in the order of tasks, replicas and runs: of a
replica that was run again, also those before its latest, and why they ended.`,
		Example: `  yunhe job runs JOB --task train --replica 0
  yunhe job logs JOB --task train --replica 0 --attempt 1`,
		Args: takes(1, 1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			job, err := a.jobs.GetJob(cmd.Context(), &jobsv1.GetJobRequest{JobId: args[0]})
			if err != nil {
				return err
			}
			task, err := sel.resolve(job)
			if err != nil {
				return err
			}
			runs, next, err := pages(p, func(size int32, token string) ([]*jobsv1.Replica, string, error) {
				r := &jobsv1.ListRunsRequest{JobId: job.GetJobId(), PageSize: size, PageToken: token}
				if task >= 0 {
					r.TaskIndex = &task
				}
				if n := int32(sel.replica); n >= 0 {
					r.ReplicaIndex = &n
				}
				res, err := a.jobs.ListRuns(cmd.Context(), r)
				return res.GetRuns(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(runs))
			for i, r := range runs {
				names[i] = r.GetAttemptId()
			}
			err = c.print(result{msg: &jobsv1.ListRunsResponse{Runs: runs, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
				if len(runs) == 0 {
					c.note("no replica has been placed yet; yunhe job explain says what it waits for")
					return nil
				}
				for _, r := range runs {
					r.Message = cmp.Or(r.GetMessage(), r.GetReason())
				}
				return c.replicaTable(job, runs).Write(w, color)
			}})
			c.noteMore(len(runs), next)
			return err
		},
	}
	selectionFlags(cmd, &sel)
	pageFlags(cmd, &p, 50)
	return cmd
}
