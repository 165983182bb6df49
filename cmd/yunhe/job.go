package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobCommand(c *cli) *cobra.Command {
	return group("job", groupJobs, "Submit, follow, explain, pause and end jobs",
		jobSubmitCommand(c), jobListCommand(c), jobShowCommand(c), jobRunsCommand(c), jobLogsCommand(c), jobWaitCommand(c),
		jobExplainCommand(c), jobTopCommand(c), jobCostCommand(c), jobPauseCommand(c), jobResumeCommand(c), jobScaleCommand(c), jobPreemptCommand(c), jobExecCommand(c), jobStopCommand(c), jobWriteOffCommand(c), jobDeleteCommand(c))
}

// stateName returns "running" for STATE_RUNNING.
func stateName(s jobsv1.State) string { return enumName(s.String(), "STATE_") }

func stateCell(s jobsv1.State) text.Cell {
	return text.Cell{Text: stateName(s), Color: stateColor(s)}
}

func stateColor(s jobsv1.State) text.Color {
	switch s {
	case jobsv1.State_STATE_RUNNING:
		return text.Cyan
	case jobsv1.State_STATE_SUCCEEDED:
		return text.Green
	case jobsv1.State_STATE_FAILED:
		return text.Red
	case jobsv1.State_STATE_STOPPING, jobsv1.State_STATE_STOPPED, jobsv1.State_STATE_PAUSED:
		return text.Yellow
	case jobsv1.State_STATE_DISPATCHING, jobsv1.State_STATE_PENDING, jobsv1.State_STATE_MIGRATING:
		return text.Blue
	}
	return text.Plain
}

// ended tells whether a job or replica in this state is over for good.
func ended(s jobsv1.State) bool {
	switch s {
	case jobsv1.State_STATE_STOPPED, jobsv1.State_STATE_SUCCEEDED, jobsv1.State_STATE_FAILED:
		return true
	}
	return false
}

// states lists the states from the first to the last of a life.
func states() []jobsv1.State {
	var all []jobsv1.State
	for n := range jobsv1.State_name {
		if n != 0 {
			all = append(all, jobsv1.State(n))
		}
	}
	slices.Sort(all)
	return all
}

// parseStates reads state names; "active" and "ended" stand for several.
func parseStates(names []string) ([]jobsv1.State, error) {
	var out []jobsv1.State
	known := []string{"active", "ended"}
	for _, name := range names {
		found := false
		for _, s := range states() {
			known = append(known, stateName(s))
			if name == stateName(s) || (name == "active" && !ended(s)) || (name == "ended" && ended(s)) {
				out, found = append(out, s), true
			}
		}
		if !found {
			return nil, usagef("--state: want one of %s, got %q", strings.Join(known, ", "), name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// jobExit is the exit status that stands for a job's end.
func jobExit(s jobsv1.State) error {
	switch s {
	case jobsv1.State_STATE_SUCCEEDED:
		return nil
	case jobsv1.State_STATE_STOPPED:
		return exitStatus(2)
	}
	return exitStatus(1)
}

// taskTitle returns the name of a task, its index if the job has no such task.
func taskTitle(job *jobsv1.Job, index int32) string {
	if tasks := job.GetSpec().GetTasks(); int(index) >= 0 && int(index) < len(tasks) {
		return tasks[index].GetName()
	}
	return strconv.Itoa(int(index))
}

// replicaTitle returns "train/0".
func replicaTitle(job *jobsv1.Job, r *jobsv1.Replica) string {
	return fmt.Sprintf("%s/%d", taskTitle(job, r.GetTaskIndex()), r.GetReplicaIndex())
}

func centerTitle(r *jobsv1.Replica) string { return cmp.Or(r.GetCenterName(), r.GetAiCenterId()) }

// selection is the replicas a command line asks for.
type selection struct {
	task    string // name or index; "": all
	replica int    // below 0: all
}

func selectionFlags(cmd *cobra.Command, s *selection) {
	cmd.Flags().StringVar(&s.task, "task", "", "only this task, by name or by index from 0")
	cmd.Flags().IntVar(&s.replica, "replica", -1, "only this replica of the task, by index from 0")
}

// resolve returns the index of the chosen task, -1 for all.
func (s selection) resolve(job *jobsv1.Job) (int32, error) {
	tasks := job.GetSpec().GetTasks()
	index := -1
	if s.task != "" {
		index = slices.IndexFunc(tasks, func(t *jobsv1.Task) bool { return t.GetName() == s.task })
		if n, err := strconv.Atoi(s.task); index < 0 && err == nil && n >= 0 && n < len(tasks) {
			index = n
		}
		if index < 0 {
			var names []string
			for _, t := range tasks {
				names = append(names, t.GetName())
			}
			return 0, usagef("--task: job %s has no task %q; it has %s", job.GetJobId(), s.task, text.Clean(strings.Join(names, ", ")))
		}
	}
	if s.replica >= 0 {
		most := int32(0)
		for i, t := range tasks {
			if index < 0 || i == index {
				most = max(most, t.GetReplicaNumber())
			}
		}
		if int64(s.replica) >= int64(most) {
			return 0, usagef("--replica: want 0 to %d, got %d", most-1, s.replica)
		}
	}
	return int32(index), nil
}

// has tells whether a replica is chosen; task is what resolve returned.
func (s selection) has(task, taskIndex, replicaIndex int32) bool {
	return (task < 0 || taskIndex == task) && (s.replica < 0 || replicaIndex == int32(s.replica))
}
