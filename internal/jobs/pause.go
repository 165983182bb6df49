package jobs

import (
	"context"
	"slices"
	"strings"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Pause has a job stand still, see the package comment. It returns when the
// wish is stored; a paused job is returned as it is. fault.Conflict, with
// nothing changed, if the job is ending or has ended, or has open attempts at
// centers that cannot pause.
func (s *Service) Pause(ctx context.Context, id string) (*jobsv1.Job, error) {
	return s.setPause(ctx, id, true)
}

// Resume has a job go on; one that is not paused is returned as it is.
// fault.Conflict if it is ending or has ended.
func (s *Service) Resume(ctx context.Context, id string) (*jobsv1.Job, error) {
	return s.setPause(ctx, id, false)
}

func (s *Service) setPause(ctx context.Context, id string, on bool) (*jobsv1.Job, error) {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case ended(r.state):
			return fault.New(fault.Conflict, "job %s has ended; what has ended is neither paused nor resumed", id)
		case r.outcome != 0:
			return fault.New(fault.Conflict, "job %s is ending; it is neither paused nor resumed any more", id)
		case r.pauseAsked == on:
			return nil
		}
		as, err := queryAttempts(ctx, tx, `job_id = $1 AND ended_at = 0 ORDER BY ai_center_id, attempt_id`, id)
		if err != nil {
			return err
		}
		if on {
			if err := s.checkPausable(ctx, tx, id, as); err != nil {
				return err
			}
		}
		r.pauseAsked = on
		if !on && r.unplaced > 0 {
			r.waitingSince = db.Micros(tx.Now) // the queue reads it again
		}
		tell := map[string][]string{}
		for _, a := range as {
			a.pauseAsked = on
			if err := saveAttempt(ctx, tx, a); err != nil {
				return err
			}
			// Either way: what was wished before may be under way to the center.
			if a.state == running || a.state == paused {
				tell[a.center] = append(tell[a.center], a.id)
			}
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		tx.AfterCommit(func() {
			for center, ids := range tell {
				if on {
					s.ad.Suspend(center, ids, nil)
				} else {
					s.ad.Suspend(center, nil, ids)
				}
			}
			if !on {
				s.sched.Wake()
			}
		})
		return s.changed(ctx, tx, r)
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// checkPausable refuses to pause what is at centers that cannot: half a job
// that stands still is no paused job.
func (s *Service) checkPausable(ctx context.Context, tx *db.Tx, id string, as []*attempt) error {
	var centers []string
	for _, a := range as {
		if !slices.Contains(centers, a.center) {
			centers = append(centers, a.center)
		}
	}
	lacking, err := s.ad.LackingTx(ctx, tx, adapterv1.Feature_FEATURE_SUSPEND, centers)
	if err != nil || len(lacking) == 0 {
		return err
	}
	which := "center " + lacking[0] + ", which does"
	if len(lacking) > 1 {
		which = "centers " + strings.Join(lacking, ", ") + ", which do"
	}
	return fault.New(fault.Conflict, "job %s cannot be paused: it has runs at %s not offer to suspend; stop it, or wait until those runs have ended", id, which)
}
