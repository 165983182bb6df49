package calendar

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/scheduler"
)

const (
	// renewed is how long windows are given out without a look at the rules of
	// maintenance.
	renewed = 10 * time.Minute
	// renewedHeld is the same where reservations are, or maintenance of nodes: what
	// allocations hold, and nodes have, counts then, and changes without a change
	// of the calendar.
	renewedHeld = time.Second
)

// Windows implements scheduler.Calendar.
func (s *Service) Windows(ctx context.Context) ([]scheduler.Window, int64, error) {
	now := s.db.Now()
	var version int64
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		version, err = s.VersionTx(ctx, tx)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	if s.version == version && now.Before(s.until) {
		defer s.mu.Unlock()
		return s.windows, version, nil
	}
	s.mu.Unlock()
	var out []scheduler.Window
	reserved := map[string]bool{}
	ofNodes := false
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, ofNodes = nil, false
		clear(reserved)
		if version, err = s.VersionTx(ctx, tx); err != nil {
			return err
		}
		ts, err := readTimes(ctx, tx, `WHERE ended_at = 0 AND from_at < $1 AND to_at > $2 ORDER BY reservation_id, number`, db.Micros(now.Add(horizon)), db.Micros(now))
		if err != nil {
			return err
		}
		for _, t := range ts {
			for i, p := range t.Parts {
				reserved[p.CenterID] = true
				out = append(out, scheduler.Window{ID: fmt.Sprintf("%s.%d.%d", t.ReservationID, t.Number, i), Center: p.CenterID, From: t.From, To: t.To, Amounts: p.Amounts,
					Text: fmt.Sprintf("its room is held for reservation %s %s", t.ReservationID, when(span{t.From, t.To}))})
			}
		}
		outages, err := s.outages(ctx, tx, span{now, now.Add(horizon)}, now)
		for _, o := range outages {
			ofNodes = ofNodes || o.nodes
			out = append(out, scheduler.Window{ID: o.id, Center: o.center, From: o.from, To: o.to, Amounts: o.amounts, Drain: o.drain, Text: o.text})
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the calendar: %w", err)
	}
	fresh := renewed
	if ofNodes || len(reserved) > 0 {
		fresh = renewedHeld
	}
	if len(reserved) > 0 {
		as, err := s.ctl.Held(ctx)
		if err != nil {
			return nil, 0, err
		}
		for _, a := range as {
			if d := held(a); reserved[a.CenterID] && a.ReservationID == "" && d.to.After(now) {
				out = append(out, scheduler.Window{ID: a.ID, Center: a.CenterID, From: d.from, To: d.to, Amounts: d.amounts, Text: "its room is held by allocation " + a.ID})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows, s.version, s.until = out, version, now.Add(fresh)
	return out, version, nil
}

// VersionTx implements scheduler.Calendar.
func (s *Service) VersionTx(ctx context.Context, tx *db.Tx) (version int64, err error) {
	if _, err = tx.Get(ctx, `SELECT version FROM calendar_version WHERE one = 1`, nil, &version); err != nil {
		return 0, fmt.Errorf("read the calendar: %w", err)
	}
	return version, nil
}

// Keeps implements scheduler.Calendar.
func (s *Service) Keeps(ctx context.Context, h scheduler.Hold) (map[string]string, int64, error) {
	now, until := s.db.Now(), h.Until
	if until.IsZero() {
		until = now.Add(10 * maxAhead)
	}
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	var taken map[string][]demand
	var version int64
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		if version, err = s.VersionTx(ctx, tx); err != nil {
			return err
		}
		outages, err := s.outages(ctx, tx, span{now, now.Add(time.Second)}, time.Time{}) // maintenance counts while it is under way
		if err != nil {
			return err
		}
		taken = map[string][]demand{}
		for _, o := range outages {
			taken[o.center] = append(taken[o.center], o.demand)
		}
		ts, err := readTimes(ctx, tx, `WHERE ended_at = 0 AND from_at < $1 AND to_at > $2 AND reservation_id <> $3`, db.Micros(until), db.Micros(now), h.Reservation)
		for _, t := range ts {
			for _, p := range t.Parts {
				taken[p.CenterID] = append(taken[p.CenterID], demand{span{t.From, t.To}, p.Amounts})
			}
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the calendar: %w", err)
	}
	if len(taken) == 0 {
		return nil, version, nil
	}
	as, err := s.ctl.Held(ctx)
	if err != nil {
		return nil, 0, err
	}
	held := heldOf(slices.DeleteFunc(as, func(a *control.Allocation) bool { return a.ID == h.Allocation }))
	open, err := s.jobs.Running(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range open {
		if r.AllocationID == "" && len(taken[r.Center]) > 0 {
			held[r.Center] = append(held[r.Center], demand{span{now, endOf(r, now)}, r.Resources})
		}
	}
	out := map[string]string{}
	for _, c := range snap.Centers {
		ds := taken[c.ID]
		if len(ds) == 0 {
			continue
		}
		if slices.ContainsFunc(ds, func(d demand) bool { return d.amounts == nil }) {
			out[c.ID] = "it is under maintenance"
			continue
		}
		if name, ok := holds(room(c.Total, append(slices.Clone(held[c.ID]), ds...), span{now, until}), h.Amounts); !ok {
			out[c.ID] = "its " + name + " is promised to reservations, or out of use for maintenance"
		}
	}
	return out, version, nil
}

// endOf is when a run is expected to end: as it says, or in an hour; one that
// should have ended gets as much time again as it has had.
func endOf(r scheduler.Running, now time.Time) time.Time {
	if r.RunSeconds == 0 {
		return now.Add(time.Hour)
	}
	since := db.Time(r.Since)
	end := since.Add(time.Duration(r.RunSeconds) * time.Second)
	if !end.After(now) {
		end = now.Add(now.Sub(since))
	}
	return end
}

// Drawn implements scheduler.Calendar: by reservation the allocations that hold
// it now.
func (s *Service) Drawn(ctx context.Context, ids []string) (map[string]scheduler.Reserved, error) {
	out := map[string]scheduler.Reserved{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		for _, id := range ids {
			r, err := reserved(ctx, tx, id)
			if err != nil {
				return err
			}
			out[id] = r
		}
		return nil
	})
	return out, err
}

func reserved(ctx context.Context, tx *db.Tx, id string) (r scheduler.Reserved, err error) {
	ts, err := readTimes(ctx, tx, `WHERE reservation_id = $1 AND ended_at = 0 ORDER BY number`, id)
	if err != nil || len(ts) == 0 {
		return scheduler.Reserved{Over: err == nil}, err
	}
	t := ts[0]
	switch {
	case t.State == TimePlanned:
		r.Why, r.At = fmt.Sprintf("waits for reservation %s, which begins at %s", id, t.From.UTC().Format(time.RFC3339)), t.From
	case t.State == TimeBeginning:
		r.Why = fmt.Sprintf("waits for reservation %s, whose room is not free yet", id)
	}
	for _, p := range t.Parts {
		if p.AllocationID != "" {
			r.Allocations = append(r.Allocations, p.AllocationID)
		}
	}
	return r, nil
}

// Reserved implements jobs.Reservations.
func (s *Service) Reserved(ctx context.Context, id string) (most core.Quantities, err error) {
	most = core.Quantities{}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		clear(most)
		var c core.Check
		if c.ID("reservation_id", id); c.Err() != nil {
			return c.Err()
		}
		rows, err := readReservations(ctx, tx, `WHERE reservation_id = $1 AND tenant_id = $2`, id, core.CallerFrom(ctx).TenantID)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fault.New(fault.NotFound, "your tenant has no reservation %s", id)
		}
		if rows[0].over() {
			return fault.New(fault.Conflict, "reservation %s is over", id)
		}
		ts, err := readTimes(ctx, tx, `WHERE reservation_id = $1 AND ended_at = 0`, id)
		for _, t := range ts {
			for _, p := range t.Parts {
				for name, n := range p.Amounts {
					most[name] = max(most[name], n)
				}
			}
		}
		return err
	})
	return most, err
}

// OverTx implements jobs.Reservations.
func (s *Service) OverTx(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	r, err := reserved(ctx, tx, id)
	return r.Over, err
}

var (
	_ jobs.Reservations  = (*Service)(nil)
	_ scheduler.Calendar = (*Service)(nil)
)
