package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

// Reasons of attempts that were written off, and that their center did not take.
const (
	reasonLost    = "lost"
	reasonRefused = "refused"
)

// Loss says what of a job to write off, and how.
type Loss struct {
	Reason   string // shown with the attempts
	CenterID string // only attempts there; "": at every center that is gone
	Retry    bool   // let the job's retry policy run them again

	byGrace bool // the center's grace is over: it uses up no retry
}

// WriteOff ends a job's attempts at centers that are gone: those not heard of
// for registry.SeenWithin, and those whose gateway was removed. Each ends as
// failed, reason "lost", at the last moment its center was heard of, but not
// before it was started (placed, if it never started) and not after now; it
// is billed from its start to its end. What it held is released.
//
// It returns fault.NotFound for a job the caller does not see and
// fault.Conflict, with nothing changed, if the job has open attempts and none
// of them is at a center that is gone. A job without open attempts is returned
// as it is: a second call changes nothing.
func (s *Service) WriteOff(ctx context.Context, id string, loss Loss) (*jobsv1.Job, error) {
	var c core.Check
	c.Text("reason", loss.Reason, false, 0, 128)
	if loss.CenterID != "" {
		c.ID("ai_center_id", loss.CenterID)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	// Who is gone is found out first: the registry answers in a transaction of
	// its own. A center that comes back in between is one that came back after
	// the call, see the package comment.
	gone, err := s.gone(ctx, id, loss.CenterID)
	if err != nil || len(gone) == 0 {
		if err != nil {
			return nil, err
		}
		return s.Get(ctx, id)
	}
	lost := 0
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		if lost, err = s.writeOff(ctx, tx, r, loss, gone); err != nil || lost == 0 {
			return err
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		return s.changed(ctx, tx, r)
	})
	if err != nil {
		return nil, err
	}
	if lost > 0 {
		s.log.Info("runs written off", "job_id", id, "attempts", lost, "ai_center_ids", slices.Sorted(maps.Keys(gone)), "retry", loss.Retry)
		s.sched.Wake()
	}
	return s.Get(ctx, id)
}

// gone returns of the centers where the job has open attempts those that are
// gone, with when they were last heard of; fault.Conflict if all are there.
func (s *Service) gone(ctx context.Context, id, only string) (map[string]time.Time, error) {
	var at []string
	err := s.db.View(ctx, func(tx *db.Tx) error {
		at = nil
		if _, err := visible(ctx, tx, id); err != nil {
			return err
		}
		return tx.Query(ctx, `SELECT DISTINCT ai_center_id FROM attempts WHERE job_id = $1 AND ended_at = 0 ORDER BY ai_center_id`, []any{id}, func(row db.Row) error {
			var c string
			err := row.Scan(&c)
			if only == "" || c == only {
				at = append(at, c)
			}
			return err
		})
	})
	if err != nil || len(at) == 0 {
		return nil, err
	}
	members, err := s.ad.Gateways(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, c := range at {
		k, err := s.reg.GetCenter(ctx, c)
		if err != nil {
			return nil, err
		}
		if isGone(k, members, s.db.Now()) {
			out[c] = k.LastSeen
		}
	}
	if len(out) == 0 {
		which := "center " + at[0] + ", which is"
		if len(at) > 1 {
			which = "centers " + strings.Join(at, ", ") + ", which are"
		}
		return nil, fault.New(fault.Conflict, "job %s has open runs at %s heard of; stop the job, or write its runs off %s after the center was last heard of",
			id, which, registry.SeenWithin)
	}
	return out, nil
}

// isGone tells a center that went away from one that is only out of use: a
// drained one is unavailable too, and works off what it has.
func isGone(k registry.Center, members []adapters.Gateway, now time.Time) bool {
	switch {
	case k.Status == registry.Available:
		return false
	case k.Status == registry.Unknown || !k.Drained:
		return true
	case now.Sub(k.LastSeen) > registry.SeenWithin:
		return true
	}
	return k.Adapter == "gateway" && !slices.ContainsFunc(members, func(g adapters.Gateway) bool { return g.CenterID == k.ID })
}

// writeOff ends the open attempts at the centers and returns how many. Centers
// go by ID, as everywhere where several are released (registry.ReserveTx).
func (s *Service) writeOff(ctx context.Context, tx *db.Tx, r *record, loss Loss, gone map[string]time.Time) (lost int, err error) {
	for _, center := range slices.Sorted(maps.Keys(gone)) {
		as, err := queryAttempts(ctx, tx, `job_id = $1 AND ai_center_id = $2 AND ended_at = 0 ORDER BY task_index, replica_index`, r.id, center)
		if err != nil {
			return 0, err
		}
		b := &batch{s: s, tx: tx, center: center, release: core.Quantities{}, final: !loss.Retry}
		for _, a := range as {
			if a.lost = true; loss.byGrace && a.takenAs == "" {
				a.takenAs = takenLost
			}
			if err := b.end(ctx, r, a, lossOf(a, loss.Reason, core.CallerFrom(ctx).UserID, gone[center], tx.Now)); err != nil {
				return 0, err
			}
		}
		lost += len(as)
		if err := b.book(ctx); err != nil {
			return 0, err
		}
		tx.AfterCommit(func() { s.sched.Ended(b.over) })
	}
	return lost, nil
}

// lossOf is what the center would have reported had it ended the attempt when
// it was last heard of.
func lossOf(a *attempt, why, by string, seen, now time.Time) *adapterv1.Status {
	if why == "" {
		why = "written off by " + by
	}
	heard := "never heard of"
	if !seen.IsZero() && db.Micros(seen) > 0 {
		heard = "last heard of at " + seen.UTC().Format(time.RFC3339)
	}
	// end keeps it from lying before the start; a start that its center's clock
	// put into the future is billed with nothing.
	at := min(max(db.Micros(seen), a.placed), db.Micros(now))
	return &adapterv1.Status{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: reasonLost, EndedAt: at,
		Message: fmt.Sprintf("%s: center %s was %s", why, a.center, heard)}
}

// outstandingLost adds to what a center should stop the attempts there that
// were written off, and returns them for a center that may have forgotten
// them: with Seen, so that it never starts them but says that it has not got
// them. They are told until it has reported their end: a center can come back
// without a new connection, when only its process or the way to it stood still.
func (s *Service) outstandingLost(ctx context.Context, tx *db.Tx, centerID string, stop *[]string) (lost []*adapterv1.Attempt, err error) {
	as, err := queryAttempts(ctx, tx, `ai_center_id = $1 AND lost ORDER BY attempt_id`, centerID)
	if err != nil {
		return nil, err
	}
	for _, a := range as {
		r, err := loadJob(ctx, tx, a.job)
		if err != nil {
			return nil, err
		}
		m := s.message(r, a)
		m.Seen = true
		lost, *stop = append(lost, m), append(*stop, a.id)
	}
	return lost, nil
}
