package calendar

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler"
)

const (
	// roundEvery is how late a time begins at most.
	roundEvery = time.Second
	// maintainEvery is how often runs are looked for that maintenance is in the
	// way of.
	maintainEvery = 10 * time.Second
	// askAgain is how long after runs were asked to end for a reservation others
	// are looked for, beyond their grace.
	askAgain = time.Minute
)

// Run does what is due, until ctx ends. One process at a time runs it; were
// there two, what they do has names, and is done once.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	var maintained, next time.Time // next: when maintenance of nodes begins or ends
	for {
		core.Round(ctx, roundEvery)
		s.begin(ctx)
		if now := s.db.Now(); now.Sub(maintained) >= maintainEvery || now.Before(maintained) || !next.IsZero() && !now.Before(next) {
			maintained = now
			next = s.maintain(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			maintained = time.Time{}
		case <-tick.C:
		}
	}
}

func (s *Service) warn(ctx context.Context, what string, err error, args ...any) {
	if err != nil && ctx.Err() == nil {
		s.log.Warn(what+", will try again", append(args, "error", err)...)
	}
}

// notRead warns that a round could not see what there is to do.
func (s *Service) notRead(ctx context.Context, what string, err error) {
	if err != nil {
		core.RoundFailed(ctx, err)
		s.warn(ctx, what+" not read", err)
	}
}

// begin carries on the times that have begun.
func (s *Service) begin(ctx context.Context) {
	var due []Time
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		due, err = readTimes(ctx, tx, `WHERE ended_at = 0 AND from_at <= $1 ORDER BY from_at, reservation_id, number`, db.Micros(tx.Now))
		return err
	})
	s.notRead(ctx, "reservations", err)
	for i := range due {
		s.warn(ctx, "reservation not carried on", s.carry(ctx, &due[i]), "reservation_id", due[i].ReservationID)
	}
	s.giveBackAll(ctx)
}

// carry carries on a time that has begun.
func (s *Service) carry(ctx context.Context, t *Time) error {
	var r *Reservation
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readReservations(ctx, tx, `WHERE reservation_id = $1`, t.ReservationID)
		if len(rows) > 0 {
			r = rows[0]
		}
		return err
	})
	if err != nil || r == nil {
		return err
	}
	owner := core.WithCaller(ctx, core.Caller{TenantID: r.TenantID, UserID: r.UserID})
	now := s.db.Now()
	if !t.To.After(now) {
		state := TimeEnded
		if t.State != TimeActive {
			state = TimeMissed
		}
		return s.endTime(ctx, r, t, state, "")
	}
	granted, used := true, false
	for i := range t.Parts {
		p := &t.Parts[i]
		a, err := s.allocate(owner, r, t, i)
		if k := fault.KindOf(err); err != nil && (k == fault.Invalid || k == fault.NotFound || k == fault.Conflict) {
			// Its center or its specification is gone: it waits, and says so.
			msg, _ := fault.Message(err)
			if msg = "its room cannot be held: " + msg; r.Reason == msg {
				return nil
			}
			return s.update(ctx, r, t, TimeBeginning, msg, func(time.Time) {})
		}
		if err != nil {
			return err
		}
		p.AllocationID = a.ID
		granted = granted && a.State == control.Granted
		for _, n := range a.Used {
			used = used || n > 0
		}
		if a.State >= control.Refused && t.State == TimeActive { // released by hand
			return s.endTime(ctx, r, t, TimeUnused, "its allocation "+a.ID+" is over: "+a.Reason)
		}
	}
	switch {
	case granted && t.State != TimeActive:
		return s.update(ctx, r, t, TimeActive, "", func(now time.Time) { t.idleSince = now })
	case t.State == TimePlanned:
		return s.update(ctx, r, t, TimeBeginning, "waits for its room to become free", func(time.Time) {})
	case t.State == TimeActive && used && now.Sub(t.idleSince) > time.Duration(r.UnusedSeconds)*time.Second/4:
		return s.update(ctx, r, t, TimeActive, "", func(now time.Time) { t.idleSince = now })
	case t.State == TimeActive && !used && now.Sub(t.idleSince) >= time.Duration(r.UnusedSeconds)*time.Second:
		return s.endTime(ctx, r, t, TimeUnused, fmt.Sprintf("time %d was given back: nothing ran in it for %d s", t.Number, r.UnusedSeconds))
	case !granted && r.Preempt && now.After(t.askedUntil):
		return s.takeBack(ctx, r, t)
	}
	return nil
}

// allocate applies for a part, once however often it is called, and returns the
// allocation.
func (s *Service) allocate(owner context.Context, r *Reservation, t *Time, i int) (*control.Allocation, error) {
	p := &t.Parts[i]
	if p.AllocationID != "" {
		return s.ctl.GetAllocation(owner, p.AllocationID)
	}
	in := control.Application{Name: r.Name, CenterID: p.CenterID, EndAt: t.To, ReservationID: r.ID}
	if r.SpecID != "" {
		in.SpecID, in.Count = r.SpecID, p.Count
	} else {
		in.Amounts = map[string]string{}
		for name, n := range p.Amounts {
			in.Amounts[name] = core.FormatQuantity(name, n)
		}
	}
	return s.ctl.Apply(owner, in, control.Request{ID: fmt.Sprintf("%s.%d.%d", r.ID, t.Number, i), Digest: r.digest})
}

// update stores a time in a state, unless it ended meanwhile.
func (s *Service) update(ctx context.Context, r *Reservation, t *Time, state TimeState, reason string, f func(now time.Time)) error {
	moved := t.State != state
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := bump(ctx, tx); err != nil {
			return err
		}
		rows, err := readTimes(ctx, tx, `WHERE reservation_id = $1 AND number = $2 AND ended_at = 0`, t.ReservationID, t.Number)
		if err != nil || len(rows) == 0 {
			return err
		}
		t.State = state
		f(tx.Now)
		if r.State, r.Reason = Active, reason; state == TimeBeginning {
			r.State = Beginning
		}
		if err := saveTime(ctx, tx, t); err != nil {
			return err
		}
		return saveReservation(ctx, tx, r)
	})
	if err == nil && moved {
		s.log.Info("reservation carried on", "reservation_id", r.ID, "time", t.Number, "state", int(state))
		s.sched.Wake()
	}
	return err
}

// endTime ends a time, and its reservation with the last one.
func (s *Service) endTime(ctx context.Context, r *Reservation, t *Time, state TimeState, reason string) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := bump(ctx, tx); err != nil {
			return err
		}
		open, err := readTimes(ctx, tx, `WHERE reservation_id = $1 AND ended_at = 0`, t.ReservationID)
		if err != nil || !slices.ContainsFunc(open, func(x Time) bool { return x.Number == t.Number }) {
			return err
		}
		t.State, t.EndedAt = state, tx.Now
		if err := saveTime(ctx, tx, t); err != nil {
			return err
		}
		r.State, r.Reason = Planned, reason
		if len(open) == 1 {
			r.State, r.EndedAt = Ended, tx.Now
		}
		return saveReservation(ctx, tx, r)
	})
	if err != nil {
		return err
	}
	s.log.Info("time of a reservation ended", "reservation_id", r.ID, "time", t.Number, "state", int(state))
	s.changed()
	return nil
}

// giveBackAll releases the allocations of times that are over, whoever ended
// them. It comes after all that applies for allocations, so that none is missed.
func (s *Service) giveBackAll(ctx context.Context) {
	var over []Time
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		over, err = readTimes(ctx, tx, `WHERE ended_at > 0 AND NOT released ORDER BY reservation_id, number LIMIT 1000`)
		return err
	})
	s.notRead(ctx, "times that are over", err)
	for i := range over {
		s.warn(ctx, "allocations of a reservation not released", s.giveBack(ctx, &over[i]), "reservation_id", over[i].ReservationID)
	}
}

// giveBack releases the allocations of a time that is over, and notes that it
// is done.
func (s *Service) giveBack(ctx context.Context, t *Time) error {
	var r *Reservation
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readReservations(ctx, tx, `WHERE reservation_id = $1`, t.ReservationID)
		if len(rows) > 0 {
			r = rows[0]
		}
		return err
	})
	if err != nil || r == nil {
		return err
	}
	if err := s.release(ctx, r, t); err != nil {
		return err
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		t.released = true
		return saveTime(ctx, tx, t)
	})
}

// release gives back what is held for a time: allocations that it names, and
// one that was applied for when it ended. What is released already stays so.
func (s *Service) release(ctx context.Context, r *Reservation, t *Time) error {
	open, err := s.ctl.OpenFor(ctx, r.ID)
	if err != nil {
		return err
	}
	owner := core.WithCaller(ctx, core.Caller{TenantID: r.TenantID, UserID: r.UserID})
	for _, a := range open {
		ours := a.EndAt.Equal(t.To) || slices.ContainsFunc(t.Parts, func(p Part) bool { return p.AllocationID == a.ID })
		if !ours || a.State == control.Releasing {
			continue
		}
		if _, err := s.ctl.Release(owner, a.ID, true, control.Request{}); err != nil {
			return fmt.Errorf("release %s: %w", a.ID, err)
		}
	}
	return nil
}

// takeBack asks runs to end that are in the way of a time.
func (s *Service) takeBack(ctx context.Context, r *Reservation, t *Time) error {
	open, err := s.jobs.Running(ctx)
	if err != nil {
		return err
	}
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return err
	}
	var ids []string
	grace := int64(0)
	for _, p := range t.Parts {
		for _, c := range snap.Centers {
			if c.ID != p.CenterID || c.Used == nil {
				continue
			}
			for _, v := range inTheWay(c.Total, c.Used, p.Amounts, open, c.ID) {
				ids, grace = append(ids, v.AttemptID), max(grace, v.GraceSeconds)
			}
		}
	}
	n := 0
	if len(ids) > 0 {
		if n, err = s.jobs.Preempt(ctx, ids, fmt.Sprintf("preempted for reservation %s of tenant %s", r.ID, r.TenantID)); err != nil {
			return err
		}
		s.log.Info("runs preempted", "reservation_id", r.ID, "runs", n)
	}
	reason := "waits for its room to become free"
	if n > 0 {
		reason = fmt.Sprintf("%d runs were asked to end for it", n)
	}
	return s.update(ctx, r, t, TimeBeginning, reason, func(now time.Time) {
		t.askedUntil = now.Add(askAgain + time.Duration(grace)*time.Second)
	})
}

// inTheWay are the runs at a center whose end gives room for amounts: of the
// lowest priority first, then the youngest, and none that is not needed.
func inTheWay(total, used, want core.Quantities, open []scheduler.Running, center string) []scheduler.Running {
	missing := core.Quantities{}
	for name, n := range want {
		if short := n - (total[name] - used[name]); short > 0 {
			missing[name] = short
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var can []scheduler.Running
	for _, r := range open {
		if r.Center == center && !r.Keep && r.AllocationID == "" {
			can = append(can, r)
		}
	}
	slices.SortFunc(can, func(a, b scheduler.Running) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), -cmp.Compare(a.Since, b.Since), cmp.Compare(a.AttemptID, b.AttemptID))
	})
	left := core.Quantities{}
	for name, n := range missing {
		left[name] = n
	}
	enough := func() bool {
		for _, n := range left {
			if n > 0 {
				return false
			}
		}
		return true
	}
	helps := func(r scheduler.Running) bool {
		for name, n := range r.Resources {
			if n > 0 && left[name] > 0 {
				return true
			}
		}
		return false
	}
	var out []scheduler.Running
	for _, r := range can {
		if enough() {
			break
		}
		if helps(r) {
			out = append(out, r)
			for name := range left {
				left[name] -= r.Resources[name]
			}
		}
	}
	if !enough() {
		return nil // it would be for nothing: others hold too much
	}
	// The last ones may have made earlier ones needless.
	for i := 0; i < len(out); i++ {
		needed := false
		for name := range left {
			needed = needed || left[name]+out[i].Resources[name] > 0
		}
		if !needed {
			for name := range left {
				left[name] += out[i].Resources[name]
			}
			out = slices.Delete(out, i, i+1)
			i--
		}
	}
	return out
}

// maintain asks runs to end that maintenance is about to meet, and ends
// maintenance that has no time to come. It returns when nodes are to be taken out
// of use, or back, next; zero: at no time that is known.
func (s *Service) maintain(ctx context.Context) (due time.Time) {
	var open []*Maintenance
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		open, err = readMaintenance(ctx, tx, `WHERE ended_at = 0 ORDER BY maintenance_id`)
		return err
	})
	s.notRead(ctx, "maintenance", err)
	if err != nil {
		return due
	}
	now := s.db.Now()
	out, due, err := outOfUse(open, now)
	if err == nil {
		err = s.ctl.Maintain(ctx, out)
	}
	s.warn(ctx, "nodes not taken out of use, or back", err)
	for _, m := range open {
		s.warn(ctx, "maintenance not carried on", s.maintainOne(ctx, m, now), "maintenance_id", m.ID)
	}
	return due
}

// outOfUse are the nodes that take no new work now, by node the first maintenance
// that it is for, and when that will be different.
func outOfUse(open []*Maintenance, now time.Time) (out map[control.Target]string, due time.Time, err error) {
	out = map[control.Target]string{}
	for _, m := range open {
		if len(m.Nodes) == 0 {
			continue
		}
		drain := time.Duration(m.DrainSeconds) * time.Second
		list, err := m.times(now, now.Add(horizon), 2) // the second may be drained while the first is under way
		if err != nil {
			return nil, due, err
		}
		away := false
		for _, x := range list {
			change := x.from.Add(-drain)
			if !change.After(now) {
				away, change = true, x.to
			}
			if due.IsZero() || change.Before(due) {
				due = change
			}
		}
		for _, name := range m.Nodes {
			if t := (control.Target{CenterID: m.CenterID, Node: name}); away && out[t] == "" {
				out[t] = m.ID
			}
		}
	}
	return out, due, nil
}

func (s *Service) maintainOne(ctx context.Context, m *Maintenance, now time.Time) error {
	notice := time.Duration(m.NoticeSeconds) * time.Second
	next, err := m.times(now, now.Add(100*maxAhead), 1)
	if err != nil {
		return err
	}
	if len(next) == 0 {
		return s.db.Tx(ctx, func(tx *db.Tx) error {
			if err := bump(ctx, tx); err != nil {
				return err
			}
			m, err := maintenanceTx(ctx, tx, m.ID)
			if err != nil || !m.EndedAt.IsZero() {
				return err
			}
			m.EndedAt = tx.Now
			return endMaintenance(ctx, tx, m)
		})
	}
	if m.Runs != Requeue || next[0].from.Add(-notice).After(now) {
		return nil
	}
	what := []control.Target{{CenterID: m.CenterID}}
	if len(m.Nodes) > 0 {
		what = nil
	}
	for _, name := range m.Nodes {
		what = append(what, control.Target{CenterID: m.CenterID, Node: name})
	}
	n := 0
	for _, t := range what {
		f, err := s.ctl.RunsAt(ctx, t)
		if err != nil {
			return err
		}
		runs, err := s.jobs.Runs(ctx, f)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			continue
		}
		ids := make([]string, len(runs))
		for i, r := range runs {
			ids[i] = r.AttemptID
		}
		asked, err := s.jobs.Preempt(ctx, ids, fmt.Sprintf("%s is under maintenance %s", t, when(next[0])))
		if err != nil {
			return err
		}
		n += asked
	}
	if n > 0 {
		s.log.Info("runs taken back for maintenance", "maintenance_id", m.ID, "runs", n)
	}
	return nil
}
