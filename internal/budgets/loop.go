package budgets

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

const (
	// lookEvery is how often the loop looks at what runs while there are budgets;
	// what is reached by what runs already is seen at its time.
	lookEvery = 5 * time.Second
	// lookIdle is how often it looks whether there are budgets.
	lookIdle = time.Minute
)

// Run writes marks and stops what is to be stopped, until ctx ends. One process
// at a time runs it.
func (s *Service) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	stop, err := s.bus.Listen(ChangedSubject, func(string, []byte) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	for {
		core.Round(ctx, lookIdle)
		next, err := s.Look(ctx)
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("budgets not looked at, will try again", "error", err)
		}
		due := time.NewTimer(next)
		select {
		case <-ctx.Done():
			due.Stop()
			return nil
		case <-wake:
			due.Stop()
		case <-due.C:
		}
	}
}

// Look does once what Run does again and again, and returns how soon to look
// again.
func (s *Service) Look(ctx context.Context) (time.Duration, error) {
	now := s.db.Now()
	all, err := s.standings(ctx, now)
	if err != nil || len(all) == 0 {
		return lookIdle, err
	}
	changed, err := s.mark(ctx, all)
	if err != nil {
		return lookEvery, err
	}
	if changed {
		if all, err = s.standings(ctx, s.db.Now()); err != nil {
			return lookEvery, err
		}
	}
	next := now.Add(lookEvery)
	sooner := func(at time.Time) {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	for i := range all {
		x := &all[i]
		sooner(x.To)
		sooner(x.next(now))
		if x.Action != Stop || x.Reached < 100 {
			continue
		}
		at := x.ReachedAt.Add(time.Duration(x.GraceSeconds) * time.Second)
		if sooner(at); at.After(now) {
			continue
		}
		n, err := s.jobs.StopSpent(ctx, x.covers, x.name()+" is spent")
		if err != nil {
			return lookEvery, err
		}
		if n > 0 {
			s.log.Info("jobs stopped, their budget is spent", "budget_id", x.ID, "jobs", n)
		}
	}
	return max(10*time.Millisecond, next.Sub(s.db.Now())), nil
}

// event is the payload of budgets.changed where a mark came or went.
type event struct {
	BudgetID string `json:"budget_id"`
	TenantID string `json:"tenant_id"`
	Percent  int32  `json:"percent"` // 0: nothing is reached any more
}

// mark makes the marks those of what is reached, and reports whether one came or
// went.
func (s *Service) mark(ctx context.Context, all []Standing) (changed bool, err error) {
	now := map[mark]bool{}
	for i := range all {
		for _, p := range all[i].reached() {
			now[mark{id: all[i].ID, period: all[i].From, percent: p}] = true
		}
	}
	upToDate := func(marks []mark) bool {
		n := 0
		for _, m := range marks {
			if m.at = (time.Time{}); !now[m] {
				return false
			}
			n++
		}
		return n == len(now)
	}
	var marks []mark
	if err := s.db.View(ctx, func(tx *db.Tx) error {
		marks, err = readMarks(ctx, tx)
		return err
	}); err != nil || upToDate(marks) {
		return false, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		marks, err := readMarks(ctx, tx)
		if err != nil {
			return err
		}
		known, touched := map[mark]bool{}, map[string]bool{}
		for _, m := range marks {
			key := m
			key.at = time.Time{}
			if known[key] = true; now[key] {
				continue
			}
			if _, err := tx.Exec(ctx, `DELETE FROM budget_marks WHERE budget_id = $1 AND period_at = $2 AND percent = $3`, m.id, db.Micros(m.period), int64(m.percent)); err != nil {
				return fmt.Errorf("delete a mark of budget %s: %w", m.id, err)
			}
			touched[m.id] = true
		}
		var rows [][]any
		for m := range now {
			if !known[m] {
				rows = append(rows, []any{m.id, db.Micros(m.period), int64(m.percent), db.Micros(tx.Now)})
				touched[m.id] = true
			}
		}
		if len(rows) > 0 {
			if err := tx.Insert(ctx, "budget_marks", []string{"budget_id", "period_at", "percent", "at"}, rows); err != nil {
				return fmt.Errorf("mark what was reached: %w", err)
			}
		}
		var events []event
		for i := range all {
			if x := &all[i]; touched[x.ID] {
				e := event{BudgetID: x.ID, TenantID: x.Tenant}
				if list := x.reached(); len(list) > 0 {
					e.Percent = slices.Max(list)
				}
				events = append(events, e)
			}
		}
		payload, err := json.Marshal(events)
		if err != nil {
			return fmt.Errorf("event %s: %w", ChangedSubject, err)
		}
		return tx.Emit(ctx, ChangedSubject, payload)
	})
	return err == nil, err
}
