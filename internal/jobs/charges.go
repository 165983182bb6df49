package jobs

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/scheduler"
)

// Charge is an open run: it has a price and no usage record yet.
type Charge struct {
	JobID     string
	Price     core.Fen  // per hour
	PlacedAt  time.Time // when it got its place
	StartedAt time.Time // zero: it has not started
}

// ChargesTx returns the open runs that have a price, in no certain order.
func (s *Service) ChargesTx(ctx context.Context, tx *db.Tx) (out []Charge, err error) {
	err = tx.Query(ctx, `SELECT job_id, price, placed_at, started_at FROM attempts WHERE ended_at = 0 AND price > 0`, nil, func(row db.Row) error {
		var c Charge
		var placed, started int64
		err := row.Scan(&c.JobID, &c.Price, &placed, &started)
		if c.PlacedAt = db.Time(placed); started > 0 {
			c.StartedAt = db.Time(started)
		}
		out = append(out, c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what runs: %w", err)
	}
	return out, nil
}

// Paying is who pays for a job, and how long its runs are expected to take; 0:
// not known.
type Paying struct {
	metering.Payer
	RunSeconds int64
}

// PayingTx returns who pays for those of the jobs that there are.
func (s *Service) PayingTx(ctx context.Context, tx *db.Tx, ids []string) (map[string]Paying, error) {
	rs, err := loadJobs(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("read who pays for %d jobs: %w", len(ids), err)
	}
	out := make(map[string]Paying, len(rs))
	for _, r := range rs {
		out[r.id] = paying(r)
	}
	return out, nil
}

func paying(r *record) Paying {
	run, _ := expectations(r.spec)
	return Paying{metering.Payer{Tenant: r.tenant, User: r.user, Project: r.spec.Labels[scheduler.ProjectLabel]}, run}
}

const (
	// reasonBudget is why jobs are stopped whose budget is spent.
	reasonBudget = "budget"
	// stopTogether jobs are stopped in one transaction.
	stopTogether = 100
)

// StopSpent stops the jobs with open runs that pays chooses, and returns how
// many. What of them waits never starts.
func (s *Service) StopSpent(ctx context.Context, pays func(metering.Payer) bool, why string) (n int, err error) {
	var ids []string
	err = s.db.View(ctx, func(tx *db.Tx) error {
		ids = nil
		return tx.Query(ctx, `SELECT job_id FROM jobs WHERE ended_at = 0 AND outcome = 0 AND active > 0 ORDER BY job_id`, nil, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			ids = append(ids, id)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("read which jobs run: %w", err)
	}
	for len(ids) > 0 {
		part := ids[:min(len(ids), stopTogether)]
		ids = ids[len(part):]
		done := 0
		err := s.db.Tx(ctx, func(tx *db.Tx) error {
			done = 0
			rs, err := loadJobs(ctx, tx, part)
			if err != nil {
				return err
			}
			var stops []*record
			for _, r := range rs {
				if r.ended > 0 || r.outcome != 0 || r.active == 0 || !pays(paying(r).Payer) {
					continue
				}
				if err := s.conclude(ctx, tx, r, stopped, reasonBudget, clipText(why, 500), db.Micros(tx.Now)); err != nil {
					return err
				}
				if err := saveJob(ctx, tx, r); err != nil {
					return err
				}
				stops = append(stops, r)
			}
			if done = len(stops); done == 0 {
				return nil
			}
			return s.changed(ctx, tx, stops...)
		})
		if err != nil {
			return n, fmt.Errorf("stop jobs whose budget is spent: %w", err)
		}
		n += done
	}
	return n, nil
}
