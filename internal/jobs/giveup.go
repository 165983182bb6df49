package jobs

import (
	"context"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/standing"
)

// GiveUp writes off the runs at silent centers whose grace is over; they are
// run again elsewhere. See standing.Runs.
func (s *Service) GiveUp(ctx context.Context, silent []standing.Link, graces standing.Graces) error {
	for i := range silent {
		l := &silent[i]
		if !l.Over(standing.MinGrace) { // for nobody
			continue
		}
		var ids []string
		err := s.db.View(ctx, func(tx *db.Tx) error {
			ids = nil
			return tx.Query(ctx, `SELECT DISTINCT job_id FROM attempts WHERE ai_center_id = $1 AND ended_at = 0 ORDER BY job_id`, []any{l.CenterID}, func(row db.Row) error {
				var id string
				err := row.Scan(&id)
				ids = append(ids, id)
				return err
			})
		})
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := s.giveUp(ctx, id, l, graces); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) giveUp(ctx context.Context, id string, l *standing.Link, graces standing.Graces) error {
	lost := 0
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		lost = 0
		r, err := loadJob(ctx, tx, id)
		if err != nil || r == nil {
			return err
		}
		grace := graces.For(r.spec.LostGraceSeconds, r.tenant, l.CenterID)
		if !l.Over(grace) {
			return nil
		}
		silent, err := s.stand.SilentTx(ctx, tx, l)
		if err != nil || !silent { // it has come back since
			return err
		}
		loss := Loss{Reason: "its center was silent for longer than its grace of " + grace.String(), Retry: true, byGrace: true}
		if lost, err = s.writeOff(ctx, tx, r, loss, map[string]time.Time{l.CenterID: l.HeardAt}); err != nil || lost == 0 {
			return err
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		return s.changed(ctx, tx, r)
	})
	if err == nil && lost > 0 {
		s.log.Warn("runs of a lost center given up", "job_id", id, "attempts", lost, "ai_center_id", l.CenterID, "silent", l.Silent)
		s.sched.Wake()
	}
	return err
}

// OpenLosses returns the centers with runs that were written off and are not
// known to be over there. See standing.Runs.
func (s *Service) OpenLosses(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		return tx.Query(ctx, `SELECT DISTINCT ai_center_id FROM attempts WHERE lost`, nil, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			out[id] = true
			return err
		})
	})
	return out, err
}
