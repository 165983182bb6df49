package jobs

import (
	"context"
	"fmt"
	"maps"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

func checkElastic(c *core.Check, prefix string, j *jobsv1.JobSpec) {
	if !j.Elastic {
		return
	}
	if !j.Gang {
		c.Add(prefix+"elastic", "is for gangs; set gang too")
	}
	for i, t := range j.Tasks {
		if t != nil && t.ReplicaNumber > 0 && t.MinReplicas > t.ReplicaNumber {
			c.Add(fmt.Sprintf("%stasks[%d].min_replicas", prefix, i), "must be at most replica_number %d, got %d", t.ReplicaNumber, t.MinReplicas)
		}
	}
}

// least is how many replicas of a task an elastic gang has at least.
func least(t *jobsv1.Task) int { return int(max(1, t.MinReplicas)) }

// present counts the replicas of each task that run, are on their way or have
// succeeded, and those of the job that are being taken back for other work.
func present(r *record, as []*attempt) (there []int, leaving int) {
	there = make([]int, len(r.spec.Tasks))
	for _, a := range as {
		switch {
		case a.ended == 0 && a.stopAsked:
			if a.takenAs == takenPreempted {
				leaving++
			}
		case a.ended == 0, a.state == succeeded:
			there[a.task]++
		}
	}
	return there, leaving
}

// settled reports whether an elastic gang grows no more: a replica of it has
// succeeded.
func (r *record) settled() bool { return r.spec.Elastic && r.succeeded > 0 }

// giveUpWaiting counts the replicas of an elastic gang that wait as stopped.
func (b *batch) giveUpWaiting(ctx context.Context, r *record) error {
	if r.unplaced == 0 {
		return nil
	}
	r.stopped, r.unplaced = r.stopped+r.unplaced, 0
	if _, err := b.tx.Exec(ctx, `UPDATE attempts SET retry = $2, state = $3 WHERE job_id = $1 AND retry`, r.id, false, int64(stopped)); err != nil {
		return fmt.Errorf("give up what waits of %s: %w", r.id, err)
	}
	return nil
}

// outcomeOf is decide for a job; of a settled elastic gang those that were
// given up do not count.
func outcomeOf(r *record) State {
	c := r.counts
	if r.settled() {
		c.total, c.stopped = c.total-c.stopped, 0
	}
	return decide(c, r.spec.SuccessPolicy, r.spec.FailurePolicy)
}

// toIssue is how many replicas have to be issued until the scheduling time of a
// job is known: of an elastic gang those that it starts with.
func toIssue(r *record) int64 {
	if !r.spec.Elastic {
		return r.total
	}
	n := int64(0)
	for _, t := range r.spec.Tasks {
		n += int64(min(least(t), int(t.ReplicaNumber)))
	}
	return n
}

// coresOf marks, among the open attempts of elastic gangs, those of [coreOf].
func coresOf(ctx context.Context, tx *db.Tx, jobIDs []string, byID map[string]*record) (map[string]bool, error) {
	cores := map[string]bool{}
	if len(jobIDs) == 0 {
		return cores, nil
	}
	among, arg := tx.In(1, jobIDs)
	as, err := queryAttempts(ctx, tx, `ended_at = 0 AND job_id `+among+` ORDER BY placed_at, attempt_id`, arg)
	if err != nil {
		return nil, err
	}
	of := map[string][]*attempt{}
	for _, a := range as {
		of[a.job] = append(of[a.job], a)
	}
	for id, own := range of {
		maps.Copy(cores, coreOf(byID[id].spec, own))
	}
	return cores, nil
}

// coreOf marks the open attempts without which an elastic gang would be below
// its least: the first placed of each task.
func coreOf(j *jobsv1.JobSpec, as []*attempt) map[string]bool {
	out, seen := map[string]bool{}, map[int64]int{}
	for _, a := range as {
		if !a.stopAsked {
			if seen[a.task]++; seen[a.task] <= least(j.Tasks[a.task]) {
				out[a.id] = true
			}
		}
	}
	return out
}
