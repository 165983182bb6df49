package calendar

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/tags"
	"yunhe.dev/yunhe/internal/tags/expr"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps the calendar. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	ids   *identity.Service
	reg   *registry.Service
	tags  *tags.Service
	sched *scheduler.Service
	jobs  *jobs.Service
	ctl   *control.Service
	log   *slog.Logger
	wake  chan struct{}

	mu      sync.Mutex // guards the fields below
	windows []scheduler.Window
	version int64
	until   time.Time // the windows are those of the version until then
}

// Deps are the components that the calendar works with.
type Deps struct {
	Identity  *identity.Service
	Registry  *registry.Service
	Tags      *tags.Service
	Scheduler *scheduler.Service
	Jobs      *jobs.Service
	Control   *control.Service
}

// New returns the service; its loop is Run.
func New(ctx context.Context, d *db.DB, deps Deps, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "calendar", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, ids: deps.Identity, reg: deps.Registry, tags: deps.Tags, sched: deps.Scheduler, jobs: deps.Jobs, ctl: deps.Control,
		log: log.With("component", "calendar"), wake: make(chan struct{}, 1)}, nil
}

// changed has the loop, and the scheduler of this process, look; others see the
// new version.
func (s *Service) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
	s.sched.Wake()
}

// Wish is what is to be reserved.
type Wish struct {
	Name                 string
	SpecID               string
	Count                int64
	Amounts              map[string]string // Kubernetes notation
	Centers, Regions     []string
	Expression           string
	StartAt, EndAt       time.Time // StartAt zero: now
	Recurrence, TimeZone string
	Preempt              bool
	UnusedSeconds        int64 // 0: defaultUnused
}

// check checks a wish and makes the reservation of it, without its parts.
func (s *Service) check(ctx context.Context, in Wish, q Request, now time.Time) (*Reservation, error) {
	cat, err := s.reg.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	r := &Reservation{ID: core.NewID("rsv"), Name: in.Name, State: Planned, SpecID: in.SpecID, Count: in.Count, Amounts: core.Quantities{}, Recurrence: in.Recurrence, TimeZone: in.TimeZone,
		Preempt: in.Preempt, UnusedSeconds: in.UnusedSeconds, StartAt: in.StartAt.Truncate(time.Second), EndAt: in.EndAt.Truncate(time.Second), CreatedAt: now, requestID: q.ID, digest: q.Digest}
	if r.UnusedSeconds == 0 {
		r.UnusedSeconds = defaultUnused
	}
	if in.StartAt.IsZero() {
		r.StartAt = now.Truncate(time.Second)
	}
	var c core.Check
	c.Text("request_id", q.ID, false, 64, 0)
	c.Text("name", in.Name, false, 0, 64)
	if (in.SpecID == "") == (len(in.Amounts) == 0) {
		c.Add("resource_spec_id", "give one of resource_spec_id with count, and amounts")
	}
	switch {
	case in.SpecID != "":
		if c.ID("resource_spec_id", in.SpecID); cat.Specs[in.SpecID] == nil && len(in.SpecID) <= 32 {
			c.Add("resource_spec_id", "there is no resource specification %q", clip(in.SpecID))
		}
		c.Range("count", in.Count, 1, maxCount)
	case in.Count != 0:
		c.Add("count", "is of a specification, got %d without one", in.Count)
	}
	r.Amounts = control.ParseAmounts(&c, "amounts", in.Amounts)
	for _, l := range []struct {
		path string
		list []string
	}{{"ai_center_ids", in.Centers}, {"regions", in.Regions}} {
		if len(l.list) > maxSelected {
			c.Add(l.path, "must be at most %d, got %d", maxSelected, len(l.list))
			continue
		}
		for i, x := range l.list {
			at := l.path + "[" + strconv.Itoa(i) + "]"
			if l.path == "regions" {
				c.Text(at, x, true, 0, 64)
			} else if c.ID(at, x); cat.Centers[x] == nil && len(x) <= 32 {
				c.Add(at, "there is no center %q", clip(x))
			}
		}
	}
	if in.Expression != "" {
		_, problems := expr.Compile(expr.Placement, in.Expression)
		for _, p := range problems {
			c.Add("expression", "%s", p)
		}
	}
	c.Range("unused_seconds", r.UnusedSeconds, 60, maxUnused)
	r.Times = checkTimes(&c, r.StartAt, r.EndAt, in.Recurrence, in.TimeZone, now)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

// checkTimes checks when a reservation is, and returns its times.
func checkTimes(c *core.Check, start, end time.Time, rule, zone string, now time.Time) []Time {
	late := now.Add(maxAhead)
	ok := checkRule(c, rule, zone, start)
	bad := func(path, format string, args ...any) {
		ok = false
		c.Add(path, format, args...)
	}
	switch {
	case start.Before(now.Truncate(time.Second)):
		bad("start_at", "must not be in the past, got %s; leave it out to begin now", start.UTC().Format(time.RFC3339))
	case start.After(late):
		bad("start_at", "must be at most 366 days ahead, got %s", start.UTC().Format(time.RFC3339))
	}
	switch {
	case end.IsZero():
		bad("end_at", "is required")
	case !end.After(start):
		bad("end_at", "must be after start_at %s, got %s", start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
	case end.Sub(start) > maxAhead:
		bad("end_at", "must be at most 366 days after start_at")
	}
	if !ok {
		return nil
	}
	list, err := times(span{start, end}, rule, zone, now.Add(-time.Second), late.Add(24*time.Hour), maxTimes+1)
	if msg, _ := fault.Message(err); err != nil {
		c.Add("recurrence", "%s", msg)
		return nil
	}
	out := make([]Time, len(list))
	for i, s := range list {
		out[i] = Time{Number: i, State: TimePlanned, From: s.from, To: s.to}
		if i > 0 && s.from.Before(list[i-1].to) {
			c.Add("recurrence", "comes again, from this start_at and end_at, before it has ended: %s", when(s))
			return nil
		}
	}
	switch {
	case len(list) == 0:
		c.Add("recurrence", "has no time in the next 366 days")
	case len(list) > maxTimes:
		c.Add("recurrence", "has more than %d times within 366 days; give COUNT or UNTIL", maxTimes)
	case list[len(list)-1].to.After(late):
		c.Add("recurrence", "must end within 366 days; give COUNT or UNTIL")
	}
	return out
}

// Reserve promises what is wished for. It returns fault.Invalid,
// fault.Exhausted if it cannot be honored, fault.Denied without the right to
// take runs back, and fault.Conflict for a request ID of something else.
func (s *Service) Reserve(ctx context.Context, in Wish, q Request) (*Reservation, error) {
	caller := core.CallerFrom(ctx)
	if known, err := s.asked(ctx, q); known != nil || err != nil {
		return known, err // however late it is sent again
	}
	r, err := s.check(ctx, in, q, s.db.Now())
	if err != nil {
		return nil, err
	}
	if in.Preempt && !caller.Can("scheduler.write") {
		return nil, fault.New(fault.Denied, "only who may write to the scheduler may have runs taken back; reserve without preempt")
	}
	if caller.TenantID == "" {
		return nil, fault.New(fault.Denied, "user %q belongs to no tenant", caller.UserID)
	}
	r.TenantID, r.UserID = caller.TenantID, caller.UserID
	where, err := s.candidates(ctx, in)
	if err != nil {
		return nil, err
	}
	limits, err := s.sched.LimitsOf(ctx, r.TenantID)
	if err != nil {
		return nil, err
	}
	known := ""
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		known = ""
		if err := bump(ctx, tx); err != nil {
			return err
		}
		if q.ID != "" {
			rows, err := readReservations(ctx, tx, `WHERE tenant_id = $1 AND request_id = $2`, r.TenantID, q.ID)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				known = rows[0].ID
				return same(rows[0].digest, q)
			}
		}
		as, err := s.ctl.HeldTx(ctx, tx)
		if err != nil {
			return err
		}
		held := heldOf(as)
		for i := range where {
			where[i].held = held[where[i].ID]
		}
		if err := s.fit(ctx, tx, r, where); err != nil {
			return err
		}
		if err := within(ctx, tx, r, limits); err != nil {
			return err
		}
		if err := insertReservation(ctx, tx, r); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, r.ID)
	})
	if err != nil {
		return nil, err
	}
	if known != "" {
		return s.Reservation(ctx, known)
	}
	s.changed()
	s.log.Info("reserved", "reservation_id", r.ID, "tenant_id", r.TenantID, "times", len(r.Times))
	return s.Reservation(ctx, r.ID)
}

// asked returns the reservation that the same request made before, nil if none
// did.
func (s *Service) asked(ctx context.Context, q Request) (*Reservation, error) {
	var c core.Check
	if c.Text("request_id", q.ID, true, 64, 0); c.Err() != nil {
		return nil, nil // there is none; what is wrong with it is said with the rest
	}
	var rows []*Reservation
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readReservations(ctx, tx, `WHERE tenant_id = $1 AND request_id = $2`, core.CallerFrom(ctx).TenantID, q.ID)
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if err := same(rows[0].digest, q); err != nil {
		return nil, err
	}
	return s.Reservation(ctx, rows[0].ID)
}

func same(digest string, q Request) error {
	if digest == q.Digest {
		return nil
	}
	return fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "request_id", Problem: "was used for another request"}), "request_id %q was used for a different request", q.ID)
}

// candidate is a center that may be promised.
type candidate struct {
	*registry.Center
	held []demand // by allocations
}

// candidates are the centers that a wish may be honored at, by ID.
func (s *Service) candidates(ctx context.Context, in Wish) ([]candidate, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var unmet map[string]string
	if in.Expression != "" {
		all, err := s.tags.Exclude(ctx, []string{in.Expression})
		if err != nil {
			return nil, fmt.Errorf("judge the expression: %w", err)
		}
		unmet = all[in.Expression]
	}
	var out []candidate
	for _, c := range snap.Centers {
		_, offered := c.Offers[in.SpecID]
		if c.Drained || c.Status != registry.Available || in.SpecID != "" && !offered || len(in.Centers) > 0 && !slices.Contains(in.Centers, c.ID) ||
			len(in.Regions) > 0 && !slices.Contains(in.Regions, c.Region) || unmet[c.ID] != "" {
			continue
		}
		out = append(out, candidate{Center: c})
	}
	return out, nil
}

// heldOf is what allocations hold by center, but those of reservations.
func heldOf(as []*control.Allocation) map[string][]demand {
	out := map[string][]demand{}
	for _, a := range as {
		if a.ReservationID != "" {
			continue // a time of it counts
		}
		out[a.CenterID] = append(out[a.CenterID], held(a))
	}
	return out
}

// held is what an allocation holds, and how long.
func held(a *control.Allocation) demand {
	d := demand{span{a.StartAt, a.EndAt}, a.Amounts}
	if a.State == control.Releasing {
		d.amounts = a.Used
	}
	if a.EndAt.IsZero() {
		d.to = time.Unix(1<<33, 0) // in the year 2242
	}
	return d
}

// fit finds the parts of every time of a reservation; fault.Exhausted if one
// has no room.
func (s *Service) fit(ctx context.Context, tx *db.Tx, r *Reservation, where []candidate) error {
	all := span{r.Times[0].From, r.Times[len(r.Times)-1].To}
	taken, err := s.demands(ctx, tx, "", all)
	if err != nil {
		return err
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return err
	}
	unit := r.Amounts
	if r.SpecID != "" {
		spec := cat.Specs[r.SpecID]
		if spec == nil {
			return fault.New(fault.Conflict, "specification %s is no more", r.SpecID)
		}
		unit = spec.Quantity
	}
	for i := range r.Times {
		t := &r.Times[i]
		t.ReservationID = r.ID
		if t.Parts = split(where, taken, span{t.From, t.To}, unit, max(1, r.Count)); t.Parts == nil {
			return fault.New(fault.Exhausted, "it cannot be honored %s: %s", when(span{t.From, t.To}), shortOf(where, taken, span{t.From, t.To}, unit, max(1, r.Count)))
		}
		if r.SpecID == "" {
			t.Parts[0].Count = 0
		}
	}
	return nil
}

// split lays packages over centers, as few as need be: at the one that has the
// least room of those that have enough, else at those with most room first. Nil
// if there is not enough.
func split(where []candidate, taken map[string][]demand, during span, unit core.Quantities, count int64) []Part {
	type site struct {
		id string
		n  int64
	}
	var sites []site
	for _, c := range where {
		if n := fits(c, taken, during, unit, count); n > 0 {
			sites = append(sites, site{c.ID, n})
		}
	}
	slices.SortStableFunc(sites, func(a, b site) int {
		switch {
		case a.n >= count && b.n >= count || a.n == b.n:
			return strings.Compare(a.id, b.id)
		case a.n > b.n:
			return -1
		}
		return 1
	})
	var out []Part
	for _, x := range sites {
		n := min(count, x.n)
		p := Part{CenterID: x.id, Count: n, Amounts: core.Quantities{}}
		for name, q := range unit {
			p.Amounts[name] = q * n
		}
		out = append(out, p)
		if count -= n; count == 0 {
			return out
		}
	}
	return nil
}

// fits is how many packages, at most up to, a center has room for.
func fits(c candidate, taken map[string][]demand, during span, unit core.Quantities, up int64) int64 {
	free := room(c.Total, append(slices.Clone(c.held), taken[c.ID]...), during)
	for name, q := range unit {
		if q > 0 {
			up = min(up, free[name]/q)
		}
	}
	return up
}

// shortOf says why a time has no room.
func shortOf(where []candidate, taken map[string][]demand, during span, unit core.Quantities, count int64) string {
	if len(where) == 0 {
		return "no center that is in use, and heard of, is as asked for"
	}
	n, best := int64(0), where[0]
	for _, c := range where {
		one := fits(c, taken, during, unit, count)
		if n += one; one > fits(best, taken, during, unit, count) {
			best = c
		}
	}
	if n > 0 {
		return fmt.Sprintf("there is room for %d of %d", n, count)
	}
	free := room(best.Total, append(slices.Clone(best.held), taken[best.ID]...), during)
	name, _ := holds(free, unit)
	return fmt.Sprintf("center %s, for one, has %s of %s that is not promised, %s is asked for", best.ID, core.FormatQuantity(name, free[name]), name, core.FormatQuantity(name, unit[name]))
}

// within refuses a reservation with which more would be reserved at one time
// than a queue may use.
func within(ctx context.Context, tx *db.Tx, r *Reservation, limits []scheduler.QueueLimit) error {
	if len(limits) == 0 {
		return nil
	}
	all := span{r.Times[0].From, r.Times[len(r.Times)-1].To}
	ts, err := readTimes(ctx, tx, `WHERE ended_at = 0 AND from_at < $1 AND to_at > $2`, db.Micros(all.to), db.Micros(all.from))
	if err != nil {
		return err
	}
	tenants := map[string]string{}
	rs, err := readReservations(ctx, tx, `WHERE ended_at = 0`)
	if err != nil {
		return err
	}
	for _, x := range rs {
		tenants[x.ID] = x.TenantID
	}
	for _, l := range limits {
		var ds []demand
		for _, t := range ts {
			if slices.Contains(l.Tenants, tenants[t.ReservationID]) {
				for _, p := range t.Parts {
					ds = append(ds, demand{span{t.From, t.To}, p.Amounts})
				}
			}
		}
		for _, t := range r.Times {
			sum := core.Quantities{}
			for _, p := range t.Parts {
				for name, n := range p.Amounts {
					sum[name] += n
				}
			}
			free := room(l.Limit, ds, span{t.From, t.To})
			for _, name := range slices.Sorted(maps.Keys(l.Limit)) {
				if sum[name] > free[name] {
					return fault.New(fault.Exhausted, "queue %s may use %s of %s, of which %s is not reserved %s; %s is asked for", l.Queue, core.FormatQuantity(name, l.Limit[name]), name,
						core.FormatQuantity(name, free[name]), when(span{t.From, t.To}), core.FormatQuantity(name, sum[name]))
				}
			}
		}
	}
	return nil
}

// visible reads a reservation that the caller may see, with its latest times.
func visible(ctx context.Context, tx *db.Tx, id string) (*Reservation, error) {
	var c core.Check
	if c.ID("reservation_id", id); c.Err() != nil {
		return nil, c.Err()
	}
	rows, err := readReservations(ctx, tx, `WHERE reservation_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !core.CallerFrom(ctx).Sees(rows[0].TenantID) {
		return nil, fault.New(fault.NotFound, "there is no reservation %s", id)
	}
	rows[0].Times, err = readTimes(ctx, tx, `WHERE reservation_id = $1 ORDER BY number`, id)
	return rows[0], err
}

// Reservation returns a reservation the caller may see.
func (s *Service) Reservation(ctx context.Context, id string) (r *Reservation, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		r, err = visible(ctx, tx, id)
		return err
	})
	return r, err
}

// Reservations returns a page of those the caller may see, newest first, and
// the token of the next page, "" on the last.
func (s *Service) Reservations(ctx context.Context, states []State, tenant string, size int32, token string) ([]*Reservation, string, error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	c.Text("tenant_id", tenant, false, 64, 0)
	c.Range("states", int64(len(states)), 0, 16)
	for i, x := range states {
		c.Range("states["+strconv.Itoa(i)+"]", int64(x), 1, int64(Canceled))
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	where, args := []string{"1 = 1"}, []any{}
	and := func(cond string, v any) {
		args = append(args, v)
		where = append(where, strings.ReplaceAll(cond, "?", "$"+strconv.Itoa(len(args))))
	}
	if tenant = core.CallerFrom(ctx).Tenant(tenant); tenant != "" {
		and("tenant_id = ?", tenant)
	}
	if key != nil {
		and("reservation_id < ?", key[0])
	}
	if len(states) > 0 {
		var any []string
		for _, x := range states {
			args = append(args, int64(x))
			any = append(any, "$"+strconv.Itoa(len(args)))
		}
		where = append(where, "state IN ("+strings.Join(any, ", ")+")")
	}
	args = append(args, n+1)
	var rows []*Reservation
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		if rows, err = readReservations(ctx, tx, "WHERE "+strings.Join(where, " AND ")+" ORDER BY reservation_id DESC LIMIT $"+strconv.Itoa(len(args)), args...); err != nil {
			return err
		}
		for _, r := range rows {
			if r.Times, err = readTimes(ctx, tx, `WHERE reservation_id = $1 ORDER BY number`, r.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].ID), nil
}

// Cancel gives a reservation back; one that is over is returned as it is. It
// returns fault.Conflict while jobs run in it and stop is not set.
func (s *Service) Cancel(ctx context.Context, id string, stop bool) (*Reservation, error) {
	r, err := s.Reservation(ctx, id)
	if err != nil || r.over() {
		return r, err
	}
	if !stop {
		used, err := s.used(ctx, r)
		if err != nil {
			return nil, err
		}
		if used {
			return nil, fault.New(fault.Conflict, "jobs run in reservation %s; wait for them, or say that they shall be stopped", id)
		}
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := bump(ctx, tx); err != nil {
			return err
		}
		r, err := visible(ctx, tx, id)
		if err != nil || r.over() {
			return err
		}
		r.State, r.Reason, r.EndedAt = Canceled, "canceled by "+core.CallerFrom(ctx).UserID, tx.Now
		for i := range r.Times {
			if t := &r.Times[i]; t.EndedAt.IsZero() {
				t.State, t.EndedAt = TimeCanceled, tx.Now
				t.released = t.From.After(tx.Now) // nothing was held for it yet
				if err := saveTime(ctx, tx, t); err != nil {
					return err
				}
			}
		}
		if err := saveReservation(ctx, tx, r); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	if err != nil {
		return nil, err
	}
	s.changed()
	if r, err = s.Reservation(ctx, id); err != nil {
		return nil, err
	}
	for i := range r.Times { // at once; the loop sees to it that it is done
		if t := &r.Times[i]; !t.released {
			s.warn(ctx, "allocations of a reservation not released", s.release(ctx, r, t), "reservation_id", id)
		}
	}
	return r, nil
}

// used reports whether jobs run in a reservation.
func (s *Service) used(ctx context.Context, r *Reservation) (bool, error) {
	for _, t := range r.Times {
		for _, p := range t.Parts {
			if p.AllocationID == "" || !t.EndedAt.IsZero() {
				continue
			}
			runs, err := s.jobs.Runs(ctx, jobs.RunFilter{AllocationID: p.AllocationID})
			if err != nil || len(runs) > 0 {
				return len(runs) > 0, err
			}
		}
	}
	return false, nil
}
