package jobs

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

func checkScale(c *core.Check, p string, t *jobsv1.Task, elastic bool) {
	c.Range(p+"max_replicas", int64(t.MaxReplicas), 0, maxReplicas)
	if c.Range(p+"min_replicas", int64(t.MinReplicas), 0, maxReplicas); t.MaxReplicas == 0 {
		if t.MinReplicas > 0 && !elastic {
			c.Add(p+"min_replicas", "needs max_replicas, without which the task cannot be scaled, or a job that is elastic")
		}
		return
	}
	if low := int32(max(1, t.MinReplicas)); low > t.MaxReplicas {
		c.Add(p+"min_replicas", "must be at most max_replicas %d, got %d", t.MaxReplicas, t.MinReplicas)
	} else if t.ReplicaNumber > 0 && (t.ReplicaNumber < low || t.ReplicaNumber > t.MaxReplicas) {
		c.Add(p+"replica_number", "must be between min_replicas %d and max_replicas %d, got %d", low, t.MaxReplicas, t.ReplicaNumber)
	}
}

// Scale sets how many replicas a task of a job has and returns the job.
// fault.Invalid beyond the task's bounds, fault.Conflict if the job is ending
// or has ended.
func (s *Service) Scale(ctx context.Context, id, task string, n int32) (*jobsv1.Job, error) {
	var c core.Check
	c.Text("task", task, true, 32, 64)
	c.Range("replica_number", int64(n), 1, maxReplicas)
	if err := c.Err(); err != nil {
		return nil, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(r.spec.Tasks, func(t *jobsv1.Task) bool { return t.Name == task })
		switch {
		case ended(r.state) || r.outcome != 0:
			return fault.New(fault.Conflict, "job %s is ending or has ended; it is not scaled any more", id)
		case r.settled():
			return fault.New(fault.Conflict, "job %s is an elastic gang of which a replica has succeeded; it is not scaled any more", id)
		case i < 0:
			return fault.Fields(fault.Field{Path: "task", Problem: fmt.Sprintf("job %s has no task %q", id, clip(task))})
		case r.spec.Tasks[i].MaxReplicas == 0:
			return fault.Fields(fault.Field{Path: "task", Problem: fmt.Sprintf("task %s cannot be scaled: it has no max_replicas", task)})
		}
		t := r.spec.Tasks[i]
		if low := max(1, t.MinReplicas); n < low || n > t.MaxReplicas {
			return fault.Fields(fault.Field{Path: "replica_number", Problem: fmt.Sprintf("must be between %d and %d for task %s, got %d", low, t.MaxReplicas, task, n)})
		}
		if room := maxTotal - r.total + int64(t.ReplicaNumber); int64(n) > room {
			return fault.Fields(fault.Field{Path: "replica_number", Problem: fmt.Sprintf("must be at most %d: a job has at most %d replicas in all, got %d", room, maxTotal, n)})
		}
		if n == t.ReplicaNumber {
			return nil
		}
		return s.scale(ctx, tx, r, i, int64(n))
	})
	if err != nil {
		return nil, err
	}
	s.sched.Wake()
	return s.Get(ctx, id)
}

// scale changes the number of replicas of a task.
func (s *Service) scale(ctx context.Context, tx *db.Tx, r *record, task int, n int64) error {
	t := r.spec.Tasks[task]
	was, issued := int64(t.ReplicaNumber), r.issued >= r.total
	t.ReplicaNumber = int32(n)
	as, err := queryAttempts(ctx, tx, `job_id = $1 AND task_index = $2 AND replica_index >= $3 ORDER BY replica_index, attempt`, r.id, task, min(was, n))
	if err != nil {
		return err
	}
	latest := map[int64]*attempt{}
	for _, a := range as {
		latest[a.replica] = a
	}
	skipped := slices.Contains(r.skippedTasks(), task)
	for i := was; i < n; i++ {
		switch a := latest[i]; {
		case a != nil && a.ended == 0: // still ending from before; it counts, and is run again then
		case skipped:
			r.total, r.stopped = r.total+1, r.stopped+1
		default:
			r.total, r.unplaced = r.total+1, r.unplaced+1
		}
	}
	var open []*attempt
	for i := n; i < was; i++ {
		a := latest[i]
		if a != nil && a.ended == 0 {
			open = append(open, a)
			continue
		}
		r.total--
		switch {
		case a == nil && skipped:
			r.stopped--
		case a == nil || follows(a):
			r.unplaced--
		case a.state == succeeded:
			r.succeeded--
		case a.state == stopped:
			r.stopped--
		default:
			r.failed--
		}
		if a != nil {
			a.retry, a.takenAs = false, takenScaled
			if err := saveAttempt(ctx, tx, a); err != nil {
				return err
			}
		}
	}
	if err := s.take(ctx, tx, open, takenScaled, fmt.Sprintf("task %s was scaled to %d replicas", t.Name, n)); err != nil {
		return err
	}
	if issued || r.issued > r.total { // the scheduling time is that of the replicas it came with
		r.issued = r.total
	}
	r.waitingSince = db.Micros(tx.Now)
	if r.rawSpec, err = (proto.MarshalOptions{Deterministic: true}).Marshal(r.spec); err != nil {
		return fmt.Errorf("encode job: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE jobs SET spec = $2 WHERE job_id = $1`, r.id, r.rawSpec); err != nil {
		return err
	}
	if depends(r.spec) {
		if _, err := follow(ctx, tx, r); err != nil {
			return err
		}
	}
	switch outcomeOf(r) {
	case succeeded:
		err = s.conclude(ctx, tx, r, succeeded, "", "", db.Micros(tx.Now))
	case failed:
		err = s.conclude(ctx, tx, r, failed, "policy", "all replicas have ended and not enough of them succeeded", db.Micros(tx.Now))
	}
	if err != nil {
		return err
	}
	if err := saveJob(ctx, tx, r); err != nil {
		return err
	}
	if err := s.ids.AuditTx(ctx, tx, r.id); err != nil {
		return err
	}
	return s.changed(ctx, tx, r)
}
