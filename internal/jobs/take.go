package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// As what a run is taken away; each is the reason that it then ends with.
const (
	takenReclaimed = "reclaimed" // its node or allocation is taken back: as its job's retries allow, it is run again
	takenPreempted = "preempted" // for other work: it is run again and uses up no retry
	takenRestarted = "restarted" // with another of its gang: as above
	takenScaled    = "scaled_in" // its task shall have fewer replicas
	takenLost      = "lost"      // its center was silent for too long: it is run again and uses up no retry
	takenUnlent    = "pool_lost" // its shares of the accelerator pool went: as above
	takenRefused   = "refused"   // its center does not take it now: as above
)

// take asks the centers of runs to stop them, after the commit of tx.
func (s *Service) take(ctx context.Context, tx *db.Tx, as []*attempt, kind, why string) error {
	byCenter := map[string][]string{}
	for _, a := range as {
		a.stopAsked, a.takenAs, a.taken = true, kind, clipText(why, 500)
		if err := saveAttempt(ctx, tx, a); err != nil {
			return err
		}
		byCenter[a.center] = append(byCenter[a.center], a.id)
	}
	tx.AfterCommit(func() {
		for _, center := range slices.Sorted(maps.Keys(byCenter)) {
			s.ad.Stop(center, byCenter[center])
		}
	})
	return nil
}

// PreemptJob takes the runs of a job back, all or those at a center, and
// returns the job. They are in the queue again when they have ended.
// fault.Conflict if the job says that it is not to be preempted, or is ending
// or has ended.
func (s *Service) PreemptJob(ctx context.Context, id, why, center string) (*jobsv1.Job, error) {
	var c core.Check
	c.Text("reason", why, false, 0, 128)
	if center != "" {
		c.ID("ai_center_id", center)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if why == "" {
		why = "preempted by " + core.CallerFrom(ctx).UserID
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case ended(r.state) || r.outcome != 0:
			return fault.New(fault.Conflict, "job %s is ending or has ended; nothing of it is preempted any more", id)
		case r.spec.NoPreemption:
			return fault.New(fault.Conflict, "job %s is not to be preempted: it says no_preemption", id)
		}
		as, err := queryAttempts(ctx, tx, `job_id = $1 AND ended_at = 0 AND NOT stop_asked AND ($2 = '' OR ai_center_id = $2) ORDER BY attempt_id`, id, center)
		if err != nil || len(as) == 0 {
			return err
		}
		if err := s.takeBack(ctx, tx, r, as, takenPreempted, why); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

func (s *Service) takeBack(ctx context.Context, tx *db.Tx, r *record, as []*attempt, kind, why string) error {
	if err := s.take(ctx, tx, as, kind, why); err != nil {
		return err
	}
	if err := saveJob(ctx, tx, r); err != nil { // watchers see that it stops
		return err
	}
	return s.changed(ctx, tx, r)
}

// Preempt takes runs back for other work and returns how many; those that have
// ended, are stopping already or are of jobs that are not to be preempted stay
// as they are. See scheduler.Source.
func (s *Service) Preempt(ctx context.Context, attemptIDs []string, why string) (n int, err error) {
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		n = 0
		byJob := map[string][]*attempt{}
		for _, id := range attemptIDs {
			as, err := queryAttempts(ctx, tx, `attempt_id = $1 AND ended_at = 0 AND NOT stop_asked`, id)
			if err != nil {
				return err
			}
			for _, a := range as {
				byJob[a.job] = append(byJob[a.job], a)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(byJob)) {
			r, err := loadJob(ctx, tx, id)
			if err != nil {
				return err
			}
			if r == nil || r.outcome != 0 || r.spec.NoPreemption {
				continue
			}
			if err := s.takeBack(ctx, tx, r, byJob[id], takenPreempted, why); err != nil {
				return err
			}
			n += len(byJob[id])
		}
		return nil
	})
	return n, err
}

// restartOthers takes the other runs of a gang away that is run again as a
// whole because of a.
func (b *batch) restartOthers(ctx context.Context, r *record, a *attempt) error {
	if !r.spec.RestartWhole || a.reason == takenRestarted || a.reason == takenScaled {
		return nil
	}
	as, err := queryAttempts(ctx, b.tx, `job_id = $1 AND ended_at = 0 AND attempt_id <> $2 AND NOT stop_asked ORDER BY attempt_id`, r.id, a.id)
	if err != nil || len(as) == 0 {
		return err
	}
	why := fmt.Sprintf("the gang is run again: task %s replica %d: %s", r.spec.Tasks[a.task].Name, a.replica, describe(a))
	return b.s.take(ctx, b.tx, as, takenRestarted, why)
}
