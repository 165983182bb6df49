package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// Window is a time in which amounts at a center are kept from work.
type Window struct {
	ID, Center string
	From, To   time.Time
	Amounts    core.Quantities // nil: everything, for maintenance
	Drain      time.Duration   // so long before From nothing is sent there any more
	Text       string          // for people
}

// Reserved is what a reservation has for work that names it.
type Reserved struct {
	Allocations []string
	Over        bool      // it has no time to come
	Why         string    // why it cannot be used now; "": it can
	At          time.Time // when it begins; zero: it has begun
}

// Hold is what an allocation would hold from now on.
type Hold struct {
	Amounts     core.Quantities
	Until       time.Time // zero: without end
	Reservation string    // that it is for, whose own promise does not count; "": none
	Allocation  string    // that would hold this instead of what it holds; "": none
}

// Calendar knows reservations and maintenance.
type Calendar interface {
	// Windows returns the windows of the coming 30 days, and a number that changes
	// with them. The list must not be changed.
	Windows(ctx context.Context) ([]Window, int64, error)
	// Keeps returns the centers that could hold what is asked only by breaking a
	// promise, and why, and the version of the calendar that says so.
	Keeps(ctx context.Context, h Hold) (map[string]string, int64, error)
	// VersionTx returns the version of the calendar.
	VersionTx(ctx context.Context, tx *db.Tx) (int64, error)
	// Drawn returns what reservations have.
	Drawn(ctx context.Context, reservations []string) (map[string]Reserved, error)
}

// SetCalendar says who knows reservations and maintenance; without it there are
// none.
func (s *Service) SetCalendar(c Calendar) { s.calendar = c }

// Kept says why a center could hold something only by breaking a promise, "" if
// it need not, and the version of the calendar for [Service.CalendarIsTx].
func (s *Service) Kept(ctx context.Context, center string, h Hold) (why string, version int64, err error) {
	if s.calendar == nil {
		return "", 0, nil
	}
	kept, version, err := s.calendar.Keeps(ctx, h)
	return kept[center], version, err
}

// CalendarIsTx reports whether the calendar has still that version: what it
// keeps is as it was, until the transaction has ended.
func (s *Service) CalendarIsTx(ctx context.Context, tx *db.Tx, version int64) (bool, error) {
	if s.calendar == nil {
		return true, nil
	}
	now, err := s.calendar.VersionTx(ctx, tx)
	return now == version, err
}

// reach is how long work is taken to run that does not say so, where it is about
// windows: as everywhere else.
const reach = time.Hour

// IsReservation reports whether what work draws on is a reservation.
func IsReservation(id string) bool { return strings.HasPrefix(id, "rsv_") }

// windows returns those of the calendar.
func (s *Service) windows(ctx context.Context) ([]Window, int64, error) {
	if s.calendar == nil {
		return nil, 0, nil
	}
	list, version, err := s.calendar.Windows(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read reservations and maintenance: %w", err)
	}
	return list, version, nil
}

// follow makes the lineup's windows those of the calendar.
func (l *lineup) follow(list []Window) error {
	next := make(map[string]Window, len(list))
	for _, w := range list {
		next[w.ID] = w
	}
	for id := range l.windows {
		if _, ok := next[id]; !ok {
			l.q.RemoveWindow(id)
		}
	}
	for _, w := range list {
		if was, ok := l.windows[w.ID]; ok && was.From.Equal(w.From) && was.To.Equal(w.To) && maps.Equal(was.Amounts, w.Amounts) {
			continue
		}
		if err := l.q.SetWindow(queue.Window{ID: w.ID, Place: w.Center, From: db.Micros(w.From), To: db.Micros(w.To), Amounts: queue.Amounts(w.Amounts)}); err != nil {
			return fmt.Errorf("window %s: %w", w.ID, err)
		}
	}
	l.windows = next
	l.shut = nil
	for _, w := range list {
		if w.Amounts == nil {
			l.shut = append(l.shut, w)
		}
	}
	return nil
}

// shutFor are the centers whose maintenance work would run into if it started
// now, and why.
func shutFor(list []Window, runSeconds int64, now time.Time) map[string]string {
	var out map[string]string
	run := reach
	if runSeconds > 0 {
		run = time.Duration(runSeconds) * time.Second
	}
	for _, w := range list {
		if w.Amounts != nil || !w.To.After(now) || !w.From.Before(now.Add(run)) && w.From.Add(-w.Drain).After(now) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		if out[w.Center] == "" {
			out[w.Center] = w.Text
		}
	}
	return out
}

// exclude keeps a work from centers.
func exclude(w *place.Work, centers map[string]string) {
	for i := range w.Tasks { // fill made the list anew
		t := &w.Tasks[i]
		if len(t.Excluded) == 0 {
			t.Excluded = centers
			continue
		}
		both := make(map[string]string, len(t.Excluded)+len(centers))
		for _, m := range []map[string]string{centers, t.Excluded} {
			for id, why := range m {
				both[id] = why
			}
		}
		t.Excluded = both
	}
}

// kept are the centers where not even one replica of a task could start now
// beside what is kept in the calendar, and why.
func (l *lineup) kept(of *question, amounts core.Quantities, now int64) map[string]string {
	var out map[string]string
	w := queue.Work{ID: of.Job, Tenant: of.Tenant, Amounts: queue.Amounts(amounts), Run: of.RunSeconds * 1e6}
	for _, win := range l.windows {
		if out[win.Center] != "" {
			continue
		}
		if id, ok := l.q.Blocked(w, win.Center, now); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[win.Center] = l.windows[id].Text
		}
	}
	return out
}

// question is what the queue is asked about it.
func (it *Item) question(snap *registry.Snapshot) *question {
	q := &question{Job: it.Work.ID, Tenant: it.Work.Tenant, RunSeconds: it.RunSeconds}
	if it.AllocationID != "" {
		return q // it has its own room
	}
	for _, t := range it.Work.Tasks {
		var amounts core.Quantities
		if spec := snap.Specs[t.Spec]; spec != nil {
			amounts = spec.Quantity
		}
		q.Amounts = append(q.Amounts, amounts)
	}
	return q
}

// avoid has a plan see what the calendar keeps, and the queue because of it.
func (s *Service) avoid(ctx context.Context, w *place.Work, it *Item, of *told) error {
	list, _, err := s.windows(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	if shut := shutFor(list, it.RunSeconds, s.db.Now()); shut != nil {
		exclude(w, shut)
	}
	if of == nil {
		return nil
	}
	for i := range min(len(w.Tasks), len(of.Kept)) {
		if of.Kept[i] != nil {
			exclude(&place.Work{Tasks: w.Tasks[i : i+1]}, of.Kept[i])
		}
	}
	return nil
}

// QueueLimit is what a queue may never exceed, and the tenants that it bounds.
type QueueLimit struct {
	Queue   string
	Limit   core.Quantities
	Tenants []string
}

// LimitsOf returns the limits that bound a tenant, its own first.
func (s *Service) LimitsOf(ctx context.Context, tenant string) ([]QueueLimit, error) {
	conf, err := s.settings(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[string]*Queue{}
	for i := range conf.queues {
		byID[conf.queues[i].ID] = &conf.queues[i]
	}
	var out []QueueLimit
	for q := byID[tenant]; q != nil; q = byID[q.Parent] {
		if len(q.Limit) == 0 {
			continue
		}
		l := QueueLimit{Queue: q.ID, Limit: q.Limit}
		for id := range byID {
			for up := byID[id]; up != nil; up = byID[up.Parent] {
				if up == q {
					l.Tenants = append(l.Tenants, id)
				}
			}
		}
		slices.Sort(l.Tenants)
		out = append(out, l)
	}
	return out, nil
}
