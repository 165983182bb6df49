package jobs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// maxAfter dependencies of a task.
const maxAfter = 32

// checkAfter checks what the tasks of a job wait for: other tasks of it, and
// none, by way of others, for itself.
func checkAfter(c *core.Check, prefix string, j *jobsv1.JobSpec) {
	index := map[string]int{}
	for i, t := range j.Tasks {
		if _, twice := index[t.GetName()]; !twice {
			index[t.GetName()] = i
		}
	}
	edges := make([][]int, len(j.Tasks))
	for i, t := range j.Tasks {
		p := fmt.Sprintf("%stasks[%d].after", prefix, i)
		if len(t.GetAfter()) > maxAfter {
			c.Add(p, "must be at most %d, got %d", maxAfter, len(t.After))
			continue
		}
		for k, d := range t.GetAfter() {
			q := fmt.Sprintf("%s[%d]", p, k)
			on, ok := index[d.GetTask()]
			switch {
			case !ok:
				c.Add(q+".task", "there is no task %q in this job", clip(d.GetTask()))
			case on == i:
				c.Add(q+".task", "a task cannot wait for itself")
			case slices.Contains(edges[i], on):
				c.Add(q+".task", "%q is named twice", clip(d.GetTask()))
			default:
				edges[i] = append(edges[i], on)
			}
			enum(c, q+".condition", int32(d.GetCondition()), jobsv1.Dependency_Condition_name)
		}
	}
	if circle := findCircle(edges); circle != nil {
		var names []string
		for _, i := range circle {
			names = append(names, clip(j.Tasks[i].Name))
		}
		c.Add(fmt.Sprintf("%stasks[%d].after", prefix, circle[0]), "goes in a circle: %s", strings.Join(append(names, names[0]), " after "))
	}
}

// findCircle returns the nodes of a circle from its lowest on, nil if there is
// none.
func findCircle(edges [][]int) []int {
	const fresh, open, done = 0, 1, 2
	state := make([]int, len(edges))
	var path, circle []int
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = open
		path = append(path, i)
		for _, on := range edges[i] {
			if state[on] == open {
				circle = slices.Clone(path[slices.Index(path, on):])
				return true
			}
			if state[on] == fresh && visit(on) {
				return true
			}
		}
		state[i] = done
		path = path[:len(path)-1]
		return false
	}
	for i := range edges {
		if state[i] == fresh && visit(i) {
			low := slices.Index(circle, slices.Min(circle))
			return append(circle[low:], circle[:low]...)
		}
	}
	return nil
}

// depends reports whether a task of the job waits for another.
func depends(j *jobsv1.JobSpec) bool {
	return slices.ContainsFunc(j.Tasks, func(t *jobsv1.Task) bool { return len(t.After) > 0 })
}

// stand is how far a task has come.
type stand struct {
	attempts                      bool  // it has had a run
	started, succeeded            int64 // replicas
	over, overUnstarted, overElse int64 // ended for good: all, never started, without success
}

// verdict is what a task waits for: "" and not never, nothing.
type verdict struct {
	waits string
	never bool
}

// verdicts says of every task of a job whether its replicas may be placed. A
// task that has had a run may: what it waited for came.
func verdicts(j *jobsv1.JobSpec, skipped []int, as []*attempt) []verdict {
	stands := make([]stand, len(j.Tasks))
	begun := map[[2]int64]bool{}
	latest := map[[2]int64]*attempt{}
	for _, a := range as { // by number: the last attempt stays
		key := [2]int64{a.task, a.replica}
		begun[key] = begun[key] || a.started > 0
		latest[key] = a
	}
	for key, a := range latest {
		s := &stands[key[0]]
		s.attempts = true
		if key[1] >= int64(j.Tasks[key[0]].ReplicaNumber) {
			continue // scaled in
		}
		if begun[key] {
			s.started++
		}
		if a.ended == 0 || follows(a) {
			continue
		}
		s.over++
		if !begun[key] {
			s.overUnstarted++
		}
		if a.state == succeeded {
			s.succeeded++
		} else {
			s.overElse++
		}
	}
	for _, i := range skipped {
		n := int64(j.Tasks[i].ReplicaNumber)
		stands[i] = stand{over: n, overUnstarted: n, overElse: n}
	}
	out := make([]verdict, len(j.Tasks))
	for i, t := range j.Tasks {
		if stands[i].attempts {
			continue
		}
		for _, d := range t.After {
			on := slices.IndexFunc(j.Tasks, func(o *jobsv1.Task) bool { return o.Name == d.Task })
			s, n := stands[on], int64(j.Tasks[on].ReplicaNumber)
			var met, never bool
			var what string
			switch d.Condition {
			case jobsv1.Dependency_CONDITION_STARTED:
				met, never, what = s.started == n, s.overUnstarted > 0, fmt.Sprintf("have started: %d", s.started)
			case jobsv1.Dependency_CONDITION_ENDED:
				met, what = s.over == n, fmt.Sprintf("have ended: %d", s.over)
			default:
				met, never, what = s.succeeded == n, s.overElse > 0, fmt.Sprintf("have succeeded: %d", s.succeeded)
			}
			switch {
			case never:
				out[i] = verdict{never: true, waits: fmt.Sprintf("task %s cannot come so far any more", d.Task)}
			case !met && out[i].waits == "":
				out[i].waits = fmt.Sprintf("waits until all %d replicas of task %s %s", n, d.Task, what)
			}
			if never {
				break
			}
		}
	}
	return out
}

// follows reports whether a replica whose latest run is a waits for another.
func follows(a *attempt) bool { return a.retry || a.ended > 0 && a.takenAs == takenScaled }

func (r *record) skippedTasks() (out []int) {
	for _, f := range strings.Fields(r.skipped) {
		if i, err := strconv.Atoi(f); err == nil && i < len(r.spec.Tasks) {
			out = append(out, i)
		}
	}
	return out
}

// follow has the tasks of a job whose runs have come further go on: those that
// wait for no more are read by the queue again, those that wait in vain are
// counted as stopped. It reports whether counters changed.
func follow(ctx context.Context, tx *db.Tx, r *record) (counted bool, err error) {
	as, err := jobAttempts(ctx, tx, r.id)
	if err != nil {
		return false, err
	}
	skipped := r.skippedTasks()
	for more := true; more; { // what is skipped may have others skipped
		more = false
		for i, v := range verdicts(r.spec, skipped, as) {
			switch {
			case v.never && !slices.Contains(skipped, i):
				n := int64(r.spec.Tasks[i].ReplicaNumber)
				r.unplaced, r.stopped = r.unplaced-n, r.stopped+n
				skipped = append(skipped, i)
				counted, more = true, true
			case v.waits == "" && !v.never && len(r.spec.Tasks[i].After) > 0:
				r.waitingSince = db.Micros(tx.Now) // the queue reads it again
			}
		}
	}
	slices.Sort(skipped)
	var words []string
	for _, i := range skipped {
		words = append(words, strconv.Itoa(i))
	}
	r.skipped = strings.Join(words, " ")
	return counted, nil
}
