package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
)

func jobScaleCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "scale JOB TASK=REPLICAS", Short: "Set how many replicas a task has",
		Long: `Sets how many replicas a task has, within its min_replicas and max_replicas. More
are placed as there is room; fewer stop those with the highest indices.`,
		Example: `  yunhe job scale JOB worker=8`,
		Args:    takes(2, 2, "the ID of a job and TASK=REPLICAS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			task, number, _ := strings.Cut(args[1], "=")
			n, err := strconv.ParseInt(number, 10, 32)
			if task == "" || err != nil {
				return usagef("want TASK=REPLICAS with a whole number, got %q", args[1])
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			j, err := a.jobs.ScaleJob(cmd.Context(), &jobsv1.ScaleJobRequest{JobId: args[0], Task: task, ReplicaNumber: int32(n)})
			if err != nil {
				return err
			}
			return c.print(result{msg: j, names: []string{j.GetJobId()}, print: func(w io.Writer, color bool) error {
				_, err := fmt.Fprintf(w, "%s  %s  %s\n", j.GetJobId(), text.Paint(stateName(j.GetState()), stateColor(j.GetState()), color), text.Count(replicasIn(j.GetSpec()), "replica"))
				return err
			}})
		},
	}
}

func jobPreemptCommand(c *cli) *cobra.Command {
	var reason, center string
	cmd := &cobra.Command{
		Use: "preempt JOB...", Short: "Take the runs of jobs back for other work",
		Long: `Takes the runs of jobs back: each is asked to end, killed after its grace, and put
in the queue again, which uses up no retry. Jobs that say no_preemption are refused.`,
		Args: takes(1, -1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res := &jobsv1.ListJobsResponse{}
			err = c.each(args, func(id string) error {
				job, err := a.jobs.PreemptJob(cmd.Context(), &jobsv1.PreemptJobRequest{JobId: id, Reason: reason, AiCenterId: center})
				if err == nil {
					res.Jobs = append(res.Jobs, job)
				}
				return err
			})
			return errors.Join(err, c.print(result{msg: res, names: jobIDs(res.Jobs), print: func(w io.Writer, color bool) error {
				for _, j := range res.Jobs {
					ending := 0
					for _, r := range j.GetReplicas() {
						if r.GetState() == jobsv1.State_STATE_STOPPING {
							ending++
						}
					}
					if _, err := fmt.Fprintf(w, "%s  %s  %s ending\n", j.GetJobId(), text.Paint(stateName(j.GetState()), stateColor(j.GetState()), color), text.Count(ending, "run")); err != nil {
						return err
					}
				}
				return nil
			}}))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, shown with the runs")
	cmd.Flags().StringVar(&center, "center", "", "only runs at this center")
	return cmd
}

// showWaits prints what holds a job back, and when it may start.
func (c *cli) showWaits(w io.Writer, color bool, waits []*schedulerv1.Wait, task func(int32) string, start string) error {
	if len(waits) > 0 {
		t := text.NewTable("WAITS FOR", "TASK", ">REPLICAS", "WHY")
		for _, x := range waits {
			name := ""
			if x.GetTaskIndex() >= 0 {
				name = task(x.GetTaskIndex())
			}
			t.Row(strings.ReplaceAll(enumName(x.GetCause().String(), "CAUSE_"), "_", " "), name, x.GetReplicas(), x.GetMessage())
		}
		if err := t.Write(w, color); err != nil {
			return err
		}
	}
	if start == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, text.Clean(start))
	return err
}

// estimate says in one line when work may start.
func (c *cli) estimate(known bool, at, basis string) string {
	switch {
	case known:
		return "may start " + at + ": " + basis
	case basis != "":
		return "when it may start is not known: " + basis
	}
	return ""
}

// planJob shows what would become of a job.
func (c *cli) planJob(cmd *cobra.Command, a *api, spec *jobsv1.JobSpec) error {
	p, err := a.jobs.PlanJob(cmd.Context(), &jobsv1.PlanJobRequest{Job: spec})
	if err != nil {
		return err
	}
	explained := &schedulerv1.ExplainJobResponse{Decisions: p.GetDecisions()}
	return c.print(result{msg: p, names: chosenCenters(explained), print: func(w io.Writer, color bool) error {
		if _, err := fmt.Fprintf(w, "%d of %s would be placed at once; nothing was submitted\n", p.GetReplicasPlaced(), text.Count(int(p.GetReplicasTotal()), "replica")); err != nil {
			return err
		}
		if err := c.showWaits(w, color, p.GetWaits(), func(i int32) string { return spec.GetTasks()[i].GetName() },
			c.estimate(p.GetEstimatedStart() != nil, c.stamp(p.GetEstimatedStart()), p.GetEstimateBasis())); err != nil {
			return err
		}
		if len(p.GetDecisions()) == 0 {
			return nil
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return c.explainJob(w, color, explained)
	}})
}
