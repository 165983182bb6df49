package budgets

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/scheduler"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps the budgets. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	bus   *bus.Bus
	ids   *identity.Service
	meter *metering.Service
	jobs  *jobs.Service
	sched *scheduler.Service
	log   *slog.Logger

	turn chan struct{} // held by who reads, with the field below
	seen *seen
}

// New returns the service; its loop is Run.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, meter *metering.Service, work *jobs.Service, sched *scheduler.Service, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "budgets", migrations); err != nil {
		return nil, err
	}
	s := &Service{db: d, bus: b, ids: ids, meter: meter, jobs: work, sched: sched, log: log.With("component", "budgets"), turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s, nil
}

// ChangedSubject is the event that a budget was set or deleted, or that one of
// its marks came or went.
const ChangedSubject = "budgets.changed"

// Set makes a budget, or replaces all that is said of it. It returns
// fault.Invalid, and fault.Exhausted if there are too many.
func (s *Service) Set(ctx context.Context, b Budget) (*Standing, error) {
	b.WarnPercents = slices.Clone(b.WarnPercents)
	b.StartAt = b.StartAt.Truncate(time.Second)
	if b.Period == 0 {
		b.Period = Month
	}
	if b.Action == 0 {
		b.Action = Hold
	}
	if err := b.check(s.db.Now()); err != nil {
		return nil, err
	}
	if b.Tenant != "" {
		if err := s.ids.CheckTenant(ctx, b.Tenant); err != nil {
			if fault.KindOf(err) == fault.NotFound {
				return nil, fault.Fields(fault.Field{Path: "budget.tenant_id", Problem: fmt.Sprintf("there is no tenant %q", b.Tenant)})
			}
			return nil, err
		}
	}
	slices.Sort(b.WarnPercents)
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		all, err := readBudgets(ctx, tx)
		if err != nil {
			return err
		}
		own := b
		i := slices.IndexFunc(all, func(x Budget) bool { return x.ID == b.ID })
		switch {
		case i < 0 && len(all) >= maxBudgets:
			return fault.New(fault.Exhausted, "there are %d budgets, which is the most", maxBudgets)
		case own.Period == Once && own.StartAt.IsZero() && i >= 0 && all[i].Period == Once:
			own.StartAt = all[i].StartAt
		case own.Period == Once && own.StartAt.IsZero():
			own.StartAt = tx.Now
		}
		own.UpdatedAt = tx.Now
		if err := putBudget(ctx, tx, &own); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, own.ID); err != nil {
			return err
		}
		return tx.Emit(ctx, ChangedSubject, nil)
	})
	if err != nil {
		return nil, err
	}
	s.sched.BudgetsChanged()
	return s.Get(ctx, b.ID)
}

// Delete deletes a budget; fault.NotFound if there is none.
func (s *Service) Delete(ctx context.Context, id string) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM budgets WHERE budget_id = $1`, id)
		if err != nil {
			return err
		}
		if n == 0 {
			return missing(id)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM budget_marks WHERE budget_id = $1`, id); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		return tx.Emit(ctx, ChangedSubject, nil)
	})
	if err == nil {
		s.sched.BudgetsChanged()
	}
	return err
}

func missing(id string) error {
	if len(id) > 32 {
		id = id[:32]
	}
	return fault.New(fault.NotFound, "there is no budget %q; see yunhe budget list", id)
}

// List returns the budgets of a tenant, "": of all, as far as the caller may see
// them, by ID.
func (s *Service) List(ctx context.Context, tenant string) ([]Standing, error) {
	var c core.Check
	if c.Text("tenant_id", tenant, false, 64, 0); c.Err() != nil {
		return nil, c.Err()
	}
	all, err := s.standings(ctx, s.db.Now().Add(-time.Second))
	if err != nil {
		return nil, err
	}
	tenant = core.CallerFrom(ctx).Tenant(tenant)
	return slices.DeleteFunc(slices.Clone(all), func(x Standing) bool { return tenant != "" && x.Tenant != tenant }), nil
}

// Get returns a budget the caller may see; fault.NotFound if there is none.
func (s *Service) Get(ctx context.Context, id string) (*Standing, error) {
	all, err := s.standings(ctx, s.db.Now())
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].ID == id && core.CallerFrom(ctx).Sees(all[i].Tenant) {
			return &all[i], nil
		}
	}
	return nil, missing(id)
}

// Budgets implements scheduler.Budgets.
func (s *Service) Budgets(ctx context.Context, since time.Time) (out []scheduler.Budget, err error) {
	all, err := s.standings(ctx, since)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if x := &all[i]; x.Action >= Hold && !x.From.After(s.db.Now()) {
			out = append(out, scheduler.Budget{ID: x.ID, Tenant: x.Tenant, User: x.User, Project: x.Project, Left: x.left(), Ends: x.To, Text: x.text()})
		}
	}
	return out, nil
}

// Reached returns the budgets of which something was reached, by ID.
func (s *Service) Reached(ctx context.Context) ([]Standing, error) {
	all, err := s.standings(ctx, s.db.Now())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(x Standing) bool { return x.Reached == 0 }), nil
}

// Alarm says what was reached, for people.
func (s *Standing) Alarm() string {
	if s.Reached < 100 {
		return fmt.Sprintf("%d %% of %s are spent: %s %s", s.Reached, s.name(), yuan(s.Amount), periods[s.Period])
	}
	then := map[Action]string{Warn: "", Hold: "; what would cost more waits", Stop: "; what would cost more waits, what runs is stopped"}
	return fmt.Sprintf("%s is spent: %s %s%s", s.name(), yuan(s.Amount), periods[s.Period], then[s.Action])
}

const (
	// lateCommit is how long after its begin a transaction may commit a record of
	// use and be seen at once.
	lateCommit = 10 * time.Second
	// sumEvery is how often all records of a period are summed.
	sumEvery = 10 * time.Minute
)

// sum is what payers spent in a period: by records that were recorded before
// mark, and by those recorded since, which may become more.
type sum struct {
	from, to     time.Time
	micros, late map[metering.Payer]int64
	mark         time.Time
	since        time.Time // when all were summed
}

// seen is what was read, and what the next reading needs of it.
type seen struct {
	at    time.Time
	all   []Standing
	sums  []sum
	payer map[string]jobs.Paying // of jobs with open runs
}

// standings returns how all budgets stand, by ID, as read at since or after.
// What it returns must not be changed.
func (s *Service) standings(ctx context.Context, since time.Time) ([]Standing, error) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Canceled, ctx.Err(), "the caller went away")
	}
	defer func() { s.turn <- struct{}{} }()
	if s.seen != nil && s.seen.at.After(since) {
		return s.seen.all, nil
	}
	was := s.seen
	if was == nil {
		was = &seen{}
	}
	next := &seen{}
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		*next = seen{at: tx.Now}
		list, err := readBudgets(ctx, tx)
		if err != nil || len(list) == 0 {
			return err
		}
		marks, err := readMarks(ctx, tx)
		if err != nil {
			return err
		}
		for _, b := range list {
			x := Standing{Budget: b}
			x.From, x.To = b.span(tx.Now)
			for _, m := range marks {
				if m.id == b.ID && m.period.Equal(x.From) && m.percent > x.Reached {
					x.Reached, x.ReachedAt = m.percent, m.at
				}
			}
			if err := s.spent(ctx, tx, &x, was, next); err != nil {
				return err
			}
			next.all = append(next.all, x)
		}
		return s.open(ctx, tx, was, next)
	})
	if err != nil {
		return nil, fmt.Errorf("read how budgets stand: %w", err)
	}
	s.seen = next
	return next.all, nil
}

// spent adds what was metered. Of a period that was summed before only what was
// recorded since is read.
func (s *Service) spent(ctx context.Context, tx *db.Tx, x *Standing, was, next *seen) error {
	same := func(y sum) bool { return y.from.Equal(x.From) && y.to.Equal(x.To) }
	i := slices.IndexFunc(next.sums, same)
	if i < 0 {
		y := sum{from: x.From, to: x.To, micros: map[metering.Payer]int64{}, mark: tx.Now.Add(-lateCommit), since: tx.Now}
		q := metering.Spent{From: x.From, To: x.To, RecordedBefore: y.mark}
		if k := slices.IndexFunc(was.sums, same); k >= 0 && tx.Now.Sub(was.sums[k].since) < sumEvery {
			old := was.sums[k]
			y.micros, y.since, q.RecordedFrom = maps.Clone(old.micros), old.since, old.mark
			if y.mark.Before(old.mark) { // a clock was set back
				y.mark, q.RecordedBefore = old.mark, old.mark
			}
		}
		if q.RecordedFrom.IsZero() || q.RecordedFrom.Before(q.RecordedBefore) {
			got, err := s.meter.SpentTx(ctx, tx, q)
			if err != nil {
				return err
			}
			for p, n := range got {
				y.micros[p] = plus(y.micros[p], n)
			}
		}
		late, err := s.meter.SpentTx(ctx, tx, metering.Spent{From: x.From, To: x.To, RecordedFrom: y.mark})
		if err != nil {
			return err
		}
		y.late = late
		next.sums = append(next.sums, y)
		i = len(next.sums) - 1
	}
	for _, m := range []map[metering.Payer]int64{next.sums[i].micros, next.sums[i].late} {
		for p, n := range m {
			if x.covers(p) {
				x.Spent = plus(x.Spent, n)
			}
		}
	}
	return nil
}

// open adds what runs.
func (s *Service) open(ctx context.Context, tx *db.Tx, was, next *seen) error {
	runs, err := s.jobs.ChargesTx(ctx, tx)
	if err != nil {
		return err
	}
	next.payer = make(map[string]jobs.Paying, len(was.payer))
	var fresh []string
	for _, c := range runs {
		if _, ok := next.payer[c.JobID]; ok {
			continue
		}
		p, ok := was.payer[c.JobID]
		if !ok {
			fresh = append(fresh, c.JobID)
		}
		next.payer[c.JobID] = p
	}
	got, err := s.jobs.PayingTx(ctx, tx, fresh)
	if err != nil {
		return err
	}
	maps.Copy(next.payer, got)
	for _, c := range runs {
		p := next.payer[c.JobID]
		for i := range next.all {
			if next.all[i].covers(p.Payer) {
				next.all[i].charge(c, time.Duration(p.RunSeconds)*time.Second, tx.Now)
			}
		}
	}
	return nil
}

const budgetColumns = `budget_id, tenant_id, user_id, project, amount_micros, period, time_zone, start_at, warn_percents, action, grace_seconds, updated_at`

func readBudgets(ctx context.Context, tx *db.Tx) (out []Budget, err error) {
	err = tx.Query(ctx, `SELECT `+budgetColumns+` FROM budgets ORDER BY budget_id`, nil, func(row db.Row) error {
		var b Budget
		var start, updated int64
		var warns string
		if err := row.Scan(&b.ID, &b.Tenant, &b.User, &b.Project, &b.Amount, &b.Period, &b.TimeZone, &start, &warns, &b.Action, &b.GraceSeconds, &updated); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(warns), &b.WarnPercents); err != nil {
			return fmt.Errorf("stored shares of budget %s: %w", b.ID, err)
		}
		if b.UpdatedAt = db.Time(updated); b.Period == Once {
			b.StartAt = db.Time(start)
		}
		out = append(out, b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read budgets: %w", err)
	}
	return out, nil
}

func putBudget(ctx context.Context, tx *db.Tx, b *Budget) error {
	warns, err := json.Marshal(b.WarnPercents)
	if err != nil {
		return fmt.Errorf("encode shares: %w", err)
	}
	start := int64(0)
	if b.Period == Once {
		start = db.Micros(b.StartAt)
	}
	_, err = tx.Exec(ctx, `INSERT INTO budgets (`+budgetColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (budget_id) DO UPDATE SET tenant_id = $2, user_id = $3, project = $4, amount_micros = $5, period = $6, time_zone = $7, start_at = $8, warn_percents = $9,
		action = $10, grace_seconds = $11, updated_at = $12`, b.ID, b.Tenant, b.User, b.Project, b.Amount, int64(b.Period), b.TimeZone, start, string(warns), int64(b.Action), b.GraceSeconds, db.Micros(b.UpdatedAt))
	if err != nil {
		return fmt.Errorf("store budget %s: %w", b.ID, err)
	}
	return nil
}

// mark is that a percentage of a budget was reached in a period.
type mark struct {
	id      string
	period  time.Time // when it began
	percent int32
	at      time.Time
}

func readMarks(ctx context.Context, tx *db.Tx) (out []mark, err error) {
	err = tx.Query(ctx, `SELECT budget_id, period_at, percent, at FROM budget_marks ORDER BY budget_id, period_at, percent`, nil, func(row db.Row) error {
		var m mark
		var period, at int64
		err := row.Scan(&m.id, &period, &m.percent, &at)
		m.period, m.at = db.Time(period), db.Time(at)
		out = append(out, m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what was reached of budgets: %w", err)
	}
	return out, nil
}
