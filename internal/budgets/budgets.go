// Package budgets bounds what work may cost in a period: of a tenant, of a user,
// of a project, or of what those have in common.
//
// What it keeps true:
//
//   - What is spent is what metering has recorded of the period and what open
//     runs cost until now; of what reaches over the edge of a period each period
//     pays the part that lies in it. What is committed is what open runs will
//     cost beyond that, if they take as long as they are expected to. Both are
//     read in one transaction: a run is in the records or among the open ones.
//   - Of a budget that holds or stops, nothing is placed that would bring what is
//     spent and committed above the amount. The process that schedules asks here
//     (scheduler.Budgets), and takes off by itself what it has placed since.
//   - What was reached (a share to be warned of, the amount) is a mark, written
//     once per period with an event; alarms are made of marks.
//   - All state is in the database; the loop may die anywhere.
//
// # By how much more than the amount may be spent
//
// Runs that take longer than expected are not stopped by a budget that holds:
// it is overspent by what they cost beyond the expected time (their timeout, or
// expected_seconds, else an hour). A budget that stops asks all runs to end when
// the amount is spent and the grace is over: it is overspent by what those cost
// within the grace, [lookEvery], and the time that they take to end. What
// allocations and reservations hold is never given up for a budget, is not held
// back by one, and is seen when it is metered, up to an hour late. Raising a
// price does not change what runs already.
//
//	spent < warn % ──▶ mark, alarm ──▶ spent and committed = amount ──▶ work waits
//	                                        │
//	                                        └─▶ spent = amount ──▶ mark, alarm ──grace──▶ jobs stopped
//	                                   (a new period begins: no marks, work goes on)
//
// # Failures
//
// A record that was committed more than [lateCommit] after its transaction began
// is missed until everything is summed anew, every [sumEvery] in each process.
package budgets

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/metering/rate"
)

// Period is how long an amount is for; the numbers are the API's.
type Period int

// The periods.
const (
	Once  Period = 1
	Day   Period = 2
	Week  Period = 3
	Month Period = 4
	Year  Period = 5
)

// Action is what becomes of work when an amount is spent; the numbers are the
// API's.
type Action int

// The actions.
const (
	Warn Action = 1
	Hold Action = 2
	Stop Action = 3
)

// Budget is an amount of money for work in a period.
type Budget struct {
	ID                    string
	Tenant, User, Project string // whose work; "": anybody's
	Amount                int64  // micro-yuan
	Period                Period
	TimeZone              string
	StartAt               time.Time // of a period without end
	WarnPercents          []int32   // ascending
	Action                Action
	GraceSeconds          int64
	UpdatedAt             time.Time
}

// Standing is how a budget stands in its current period.
type Standing struct {
	Budget
	Spent, Committed int64     // micro-yuan
	Rate             int64     // micro-yuan an hour, now
	From, To         time.Time // of the period; the zero To: without end
	Reached          int32     // percent, of WarnPercents and 100; 0: none
	ReachedAt        time.Time
}

// Limits of a budget.
const (
	maxAmount  = 9_000_000_000_000_000 // micro-yuan: 9 thousand million yuan
	maxWarns   = 8
	maxGrace   = 7 * 24 * 3600 // seconds
	maxBudgets = 1000
	maxPayer   = 128 // characters of users and projects
)

// check refuses what is no budget, with the fields of the API.
func (b *Budget) check(now time.Time) error {
	var c core.Check
	c.ID("budget_id", b.ID)
	if b.Tenant != "" {
		c.ID("budget.tenant_id", b.Tenant)
	}
	c.Text("budget.user_id", b.User, false, maxPayer, 0)
	c.Text("budget.project", b.Project, false, maxPayer, 0)
	c.Range("budget.amount_micros", b.Amount, 1, maxAmount)
	c.Range("budget.period", int64(b.Period), int64(Once), int64(Year))
	c.Range("budget.action", int64(b.Action), int64(Warn), int64(Stop))
	if _, err := zone(b.TimeZone); err != nil {
		msg, _ := fault.Message(err)
		c.Add("budget.time_zone", "%s", msg)
	}
	switch {
	case b.Period != Once && !b.StartAt.IsZero():
		c.Add("budget.start_at", "goes with the period PERIOD_ONCE only")
	case b.Period == Once && (b.StartAt.After(now.AddDate(10, 0, 0)) || !b.StartAt.IsZero() && b.StartAt.Year() < 1971):
		c.Add("budget.start_at", "must be after 1970 and at most 10 years ahead, got %s", b.StartAt.UTC().Format(time.RFC3339))
	}
	if len(b.WarnPercents) > maxWarns {
		c.Add("budget.warn_percents", "must be at most %d, got %d", maxWarns, len(b.WarnPercents))
	}
	for i, p := range b.WarnPercents[:min(len(b.WarnPercents), maxWarns)] {
		path := fmt.Sprintf("budget.warn_percents[%d]", i)
		if c.Range(path, int64(p), 1, 99); slices.Contains(b.WarnPercents[:i], p) {
			c.Add(path, "is given twice: %d", p)
		}
	}
	if c.Range("budget.grace_seconds", b.GraceSeconds, 0, maxGrace); b.GraceSeconds > 0 && b.Action != Stop {
		c.Add("budget.grace_seconds", "goes with ACTION_STOP")
	}
	return c.Err()
}

func zone(name string) (*time.Location, error) {
	where, err := time.LoadLocation(name) // "" is UTC
	if err != nil || name == "Local" || len(name) > 64 {
		return nil, fault.New(fault.Invalid, "must be a time zone such as Asia/Shanghai, got %q", strings.ToValidUTF8(name[:min(len(name), 64)], ""))
	}
	return where, nil
}

// span is the period that now lies in; the zero to: without end.
func (b *Budget) span(now time.Time) (from, to time.Time) {
	if b.Period == Once {
		return b.StartAt, time.Time{}
	}
	where, err := zone(b.TimeZone)
	if err != nil { // it was known when the budget was made
		where = time.UTC
	}
	y, m, d := now.In(where).Date()
	begin := func(n int) time.Time { // of the n-th period from this one
		switch b.Period {
		case Day:
			return time.Date(y, m, d+n, 0, 0, 0, 0, where)
		case Week:
			monday := d - (int(now.In(where).Weekday())+6)%7
			return time.Date(y, m, monday+7*n, 0, 0, 0, 0, where)
		case Month:
			return time.Date(y, m+time.Month(n), 1, 0, 0, 0, 0, where)
		}
		return time.Date(y+n, 1, 1, 0, 0, 0, 0, where)
	}
	return begin(0).UTC(), begin(1).UTC()
}

func (b *Budget) covers(p metering.Payer) bool {
	return (b.Tenant == "" || b.Tenant == p.Tenant) && (b.User == "" || b.User == p.User) && (b.Project == "" || b.Project == p.Project)
}

// unexpected is how long a run is taken to last that nobody knows more of, as the
// scheduler has it.
const unexpected = time.Hour

// charge adds what an open run costs.
func (s *Standing) charge(c jobs.Charge, run time.Duration, now time.Time) {
	if run == 0 {
		run = unexpected
	}
	from, end := now, now.Add(run)
	if !c.StartedAt.IsZero() {
		from, end = c.StartedAt, c.StartedAt.Add(run)
		s.Rate = plus(s.Rate, cost(c.Price, time.Hour))
	}
	if end.Before(now) {
		end = now
	}
	if !s.To.IsZero() && end.After(s.To) {
		end = s.To
	}
	if from.Before(s.From) {
		from = s.From
	}
	if from.Before(now) {
		s.Spent = plus(s.Spent, cost(c.Price, now.Sub(from)))
		from = now
	}
	if end.After(from) {
		s.Committed = plus(s.Committed, cost(c.Price, end.Sub(from)))
	}
}

func cost(price core.Fen, d time.Duration) int64 {
	micros, err := rate.Cost(int64(price), d)
	if err != nil { // more than any budget
		return math.MaxInt64
	}
	return micros
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// left is what is neither spent nor committed.
func (s *Standing) left() int64 { return s.Amount - plus(s.Spent, s.Committed) }

// reached are the percents of those to be marked that are spent.
func (s *Standing) reached() (out []int32) {
	for _, p := range append(slices.Clone(s.WarnPercents), 100) {
		if s.Spent >= part(s.Amount, p) {
			out = append(out, p)
		}
	}
	return out
}

// part is a percentage of an amount, rounded up.
func part(amount int64, percent int32) int64 { return (amount*int64(percent) + 99) / 100 }

// next is when the first of what is not reached yet will be, if all goes on as
// it does; zero: nobody knows.
func (s *Standing) next(now time.Time) time.Time {
	at := time.Time{}
	for _, p := range append(slices.Clone(s.WarnPercents), 100) {
		missing := part(s.Amount, p) - s.Spent
		if missing <= 0 || s.Rate == 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(missing), uint64(time.Hour))
		if hi >= uint64(s.Rate) {
			continue // in more than 500 years
		}
		if d, _ := bits.Div64(hi, lo, uint64(s.Rate)); d < uint64(time.Hour)*24*366 && (at.IsZero() || now.Add(time.Duration(d)).Before(at)) {
			at = now.Add(time.Duration(d) + time.Millisecond)
		}
	}
	return at
}

// Name says whose and what for a budget is, for people.
func (b *Budget) name() string {
	var of []string
	for _, x := range [][2]string{{"tenant", b.Tenant}, {"user", b.User}, {"project", b.Project}} {
		if x[1] != "" {
			of = append(of, x[0]+" "+x[1])
		}
	}
	if of == nil {
		return "budget " + b.ID
	}
	return "budget " + b.ID + " of " + strings.Join(of, ", ")
}

var periods = map[Period]string{Once: "in all", Day: "a day", Week: "a week", Month: "a month", Year: "a year"}

// yuan is an amount of micro-yuan to people, rounded down to fen.
func yuan(micros int64) string { return core.Fen(micros/rate.MicrosPerFen).String() + " CNY" }

// text says how a budget stands that something waits for. What all tenants spend
// together is no tenant's business.
func (s *Standing) text() string {
	until := ""
	if !s.To.IsZero() {
		until = " until " + s.To.Format(time.RFC3339)
	}
	if s.Tenant == "" {
		return s.name() + " has too little left" + until
	}
	return fmt.Sprintf("%s has %s of %s %s left%s", s.name(), yuan(max(0, s.left())), yuan(s.Amount), periods[s.Period], until)
}
