package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show JOB", Short: "Show a job with its tasks and replicas",
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
			return c.print(result{msg: job, names: []string{job.GetJobId()}, print: func(w io.Writer, color bool) error {
				return c.showJob(w, color, job)
			}})
		},
	}
}

// shownReplicas is how many rows a person reads; -o wide shows all.
const shownReplicas = 100

func (c *cli) showJob(w io.Writer, color bool, job *jobsv1.Job) error {
	if err := c.jobFacts(job).Write(w, color); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := c.taskTable(job).Write(w, color); err != nil {
		return err
	}
	replicas := job.GetReplicas()
	if len(replicas) == 0 {
		return nil
	}
	hidden := 0
	if len(replicas) > shownReplicas && !c.wide() {
		replicas, hidden = replicas[:shownReplicas], len(replicas)-shownReplicas
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := c.replicaTable(job, replicas).Write(w, color); err != nil {
		return err
	}
	if hidden > 0 {
		c.note("and %s more; -o wide shows all", text.Count(hidden, "replica"))
	}
	return nil
}

func (c *cli) jobFacts(job *jobsv1.Job) text.Facts {
	spec := job.GetSpec()
	var f text.Facts
	f.Add("Job", job.GetJobId())
	f.Add("Name", spec.GetName())
	f.Add("Description", spec.GetDesc())
	f.AddColor("State", jobState(job), stateColor(job.GetState()))
	f.Add("Reason", strings.TrimSpace(joinNonEmpty(": ", job.GetReason(), job.GetMessage())))
	f.Add("Replicas", replicaCounts(job))
	f.Add("Centers", strings.Join(job.GetCenterIds(), ", "))
	f.Add("Owner", joinNonEmpty(" of ", joinNonEmpty(" ", job.GetUserName(), parens(job.GetCreatedUser())), job.GetTenantId()))
	f.Add("Submitted", c.stamp(job.GetCreatedAt()))
	f.Add("Placed", c.stamp(job.GetPlacedAt()))
	if job.GetSchedulingMicroseconds() > 0 {
		f.Add("Scheduled in", microseconds(job.GetSchedulingMicroseconds()))
	}
	f.Add("Started", c.stamp(job.GetStartedAt()))
	f.Add("Ended", c.stamp(job.GetEndedAt()))
	if job.GetStartedAt() != nil {
		f.Add("Ran", c.span(job.GetStartedAt(), job.GetEndedAt()))
	}
	f.Add("Cost", text.Fen(job.GetCostFen()))
	if spec.GetPriority() != 0 {
		f.Add("Priority", fmt.Sprint(spec.GetPriority()))
	}
	if spec.GetGang() {
		f.Add("Gang", "all replicas at once or none")
	}
	if spec.GetMaxRetries() > 0 {
		f.Add("Retries", fmt.Sprintf("at most %d per replica", spec.GetMaxRetries()))
	}
	f.Add("Allocation", spec.GetAllocationId())
	f.Add("Reservation", spec.GetReservationId())
	f.Add("Origin", spec.GetOriginId())
	f.Add("Weights", pairs(spec.GetPolicyWeights()))
	f.Add("Labels", pairs(spec.GetLabels()))
	return f
}

func parens(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func joinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

// pairs formats a map as "a=1 b=2", sorted by name.
func pairs[V any](m map[string]V) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(out, " ")
}

// replicaCounts formats "3: 1 succeeded, 2 running".
func replicaCounts(job *jobsv1.Job) string {
	waiting := job.GetReplicasTotal()
	var parts []string
	for _, n := range []struct {
		count int32
		name  string
	}{
		{job.GetReplicasSucceeded(), "succeeded"}, {job.GetReplicasFailed(), "failed"},
		{job.GetReplicasStopped(), "stopped"}, {job.GetReplicasRunning(), "running"},
	} {
		if waiting -= n.count; n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.name))
		}
	}
	if waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", waiting))
	}
	return joinNonEmpty(": ", fmt.Sprint(job.GetReplicasTotal()), strings.Join(parts, ", "))
}

func (c *cli) taskTable(job *jobsv1.Job) *text.Table {
	columns := []string{"TASK", ">REPLICAS", "IMAGE", "SPEC", "COMMAND"}
	if c.wide() {
		columns = []string{"TASK", ">REPLICAS", "IMAGE", "SPEC", "TIMEOUT", "NETWORK", "CONSTRAINTS", "NEEDS", "COMMAND"}
	}
	t := text.NewTable(columns...)
	for _, task := range job.GetSpec().GetTasks() {
		row := []any{task.GetName(), task.GetReplicaNumber(), task.GetImageId(), task.GetResourceSpecId()}
		command := text.Clean(task.GetCommand())
		if c.wide() {
			row = append(row, seconds(task.GetTimeoutSeconds()), task.GetNetwork(), constraints(task.GetConstraints()), needsText(task))
		} else {
			command = text.Cut(command, 60)
		}
		t.Row(append(row, command)...)
	}
	return t
}

// seconds formats a limit in seconds; 0 is none.
func seconds(n int64) string {
	if n == 0 {
		return "-"
	}
	return text.Duration(time.Duration(n) * time.Second)
}

func constraints(k *jobsv1.Constraints) string {
	var parts []string
	if len(k.GetCenters()) > 0 {
		parts = append(parts, "centers "+strings.Join(k.GetCenters(), ","))
	}
	if k.GetNode() != "" {
		parts = append(parts, "node "+k.GetNode())
	}
	if len(k.GetRegions()) > 0 {
		parts = append(parts, "regions "+strings.Join(k.GetRegions(), ","))
	}
	if k.GetMinSecurityGrade() > 0 {
		parts = append(parts, fmt.Sprintf("security grade %d or more", k.GetMinSecurityGrade()))
	}
	if k.GetExpression() != "" {
		parts = append(parts, k.GetExpression())
	}
	if k.GetMaxPrice() > 0 {
		parts = append(parts, "at most "+text.Fen(k.GetMaxPrice())+"/h")
	}
	return strings.Join(parts, "; ")
}

func (c *cli) replicaTable(job *jobsv1.Job, replicas []*jobsv1.Replica) *text.Table {
	columns := []string{"REPLICA", "STATE", "CENTER", ">RUN", "STARTED", ">RAN", ">CPU TIME", ">MEMORY", ">COST", ">EXIT", "MESSAGE"}
	if c.wide() {
		columns = append(columns, "REASON", "CENTER ID", "NODE", ">PRICE", "ATTEMPT")
	}
	t := text.NewTable(columns...)
	for _, r := range replicas {
		exit := "-"
		if r.GetEndedAt() != nil {
			exit = fmt.Sprint(r.GetExitCode())
		}
		run := "-"
		if r.GetAttempt() > 0 {
			run = fmt.Sprint(r.GetAttempt())
		}
		message := r.GetMessage()
		if !c.wide() {
			message = text.Cut(text.Clean(message), 60)
		}
		row := []any{
			replicaTitle(job, r), stateCell(r.GetState()), centerTitle(r), run, c.ago(r.GetStartedAt()),
			c.span(r.GetStartedAt(), r.GetEndedAt()), microseconds(r.GetCpuMicroseconds()), memory(r.GetMemoryPeakBytes()),
			text.Micros(r.GetCostMicros()), exit, message,
		}
		if c.wide() {
			row = append(row, r.GetReason(), r.GetAiCenterId(), r.GetNode(), text.Fen(r.GetPrice())+"/h", r.GetAttemptId())
		}
		t.Row(row...)
	}
	return t
}

// memory formats a peak of memory; 0 is not measured yet.
func memory(n int64) string {
	if n == 0 {
		return "-"
	}
	return text.Bytes(n)
}
