// Package calendar keeps what the time of centers is promised for: advance
// reservations, and maintenance.
//
// What it keeps true:
//
//   - A reservation is accepted only if it can be honored: at each of its times,
//     what is reserved at a center, what allocations hold there beyond its
//     begin, and maintenance, leave room; and what is reserved for a tenant stays
//     within the limits of its queue and of those above. Who changes anything
//     here writes the same row first, so that two reservations never count on
//     the same room.
//   - From acceptance on the room is kept. The scheduler gets every time as a
//     window ([Service.Windows]) and starts nothing that would still hold it;
//     allocations are granted, and grow, only beside it ([Service.Keeps]), in a
//     transaction that fails if the calendar has changed since.
//   - At its begin each part becomes an allocation at its center (component
//     control), which holds it in the registry, is metered, and is drawn on by
//     the jobs that name the reservation. The request for it has a name made of
//     the time and the part: made again after a crash, it is the same one.
//   - All state is in the database; the loop ([Service.Run]) does what is due,
//     and may die anywhere.
//
// # A time of a reservation
//
//	planned ──begin──▶ beginning ──all parts held──▶ active ──end──▶ ended
//	   │                  │ end                        ├── nothing ran for long ──▶ unused
//	   └── cancel         └──▶ missed                  └── cancel ──▶ canceled
//
// Beginning lasts while runs hold the room that began before the reservation was
// made, ran longer than they said, or said nothing and ran for more than an hour.
// With preempt they are taken back; else their ends are waited for. A center that
// is not heard of holds nothing: the time waits for it, and is missed in the end.
//
// When the last time is over, jobs that name the reservation and still wait go on
// as if they named none.
//
// # Maintenance
//
// A window takes everything at its center, or what its nodes have. What would run
// into it is not placed there, or only beside that. Nodes are isolated by
// component control from the begin of the window, or of its drain, to its end; what a node has
// is kept free in the queue for as long as its center still declares it, so that
// a center that cannot isolate nodes is not overbooked either. Nodes that several
// windows name at once count once. With [Requeue], runs are asked to end ahead of it, again and again until
// it is over; those that are not to be preempted go on. A center that is lost
// during its maintenance is treated as any other.
package calendar

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/teambition/rrule-go"

	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// State is how a reservation stands; the numbers are the API's.
type State int

// The states of a reservation.
const (
	Planned   State = 1
	Beginning State = 2
	Active    State = 3
	Ended     State = 4
	Canceled  State = 5
)

// TimeState is how a time of a reservation stands; the numbers are the API's.
type TimeState int

// The states of a time.
const (
	TimePlanned   TimeState = 1
	TimeBeginning TimeState = 2
	TimeActive    TimeState = 3
	TimeEnded     TimeState = 4
	TimeUnused    TimeState = 5
	TimeCanceled  TimeState = 6
	TimeMissed    TimeState = 7
)

// Runs is what becomes of runs when maintenance begins; the numbers are the
// API's.
type Runs int

// What becomes of runs.
const (
	Finish  Runs = 1
	Requeue Runs = 2
)

// Reservation is amounts promised to a tenant.
type Reservation struct {
	ID, TenantID, UserID, Name string
	State                      State
	Reason                     string
	SpecID                     string
	Count                      int64
	Amounts                    core.Quantities // where there is no SpecID
	Recurrence, TimeZone       string
	Preempt                    bool
	UnusedSeconds              int64
	StartAt, EndAt             time.Time // of the first time
	CreatedAt, EndedAt         time.Time
	Times                      []Time

	requestID, digest string
}

func (r *Reservation) over() bool { return r.State >= Ended }

// Time is one time of a reservation.
type Time struct {
	ReservationID string
	Number        int
	State         TimeState
	From, To      time.Time
	Parts         []Part
	EndedAt       time.Time

	idleSince, askedUntil time.Time
	released              bool // it is over, and nothing is held for it any more
}

// Part is what a time has at one center.
type Part struct {
	CenterID     string          `json:"center"`
	Amounts      core.Quantities `json:"amounts"`
	Count        int64           `json:"count,omitempty"`
	AllocationID string          `json:"allocation,omitempty"`
}

// Maintenance is when a center, or nodes of it, are out of use.
type Maintenance struct {
	ID, CenterID, UserID, Reason string
	Nodes                        []string // by name; none: the whole center
	Runs                         Runs
	NoticeSeconds, DrainSeconds  int64
	StartAt, EndAt               time.Time // of the first time
	Recurrence, TimeZone         string
	CreatedAt                    time.Time
	CanceledAt, EndedAt          time.Time
	Meets                        []string                        // reservations; see Service.met
	controls                     map[string]*control.NodeControl // of its nodes that are out of use now

	tenantID, requestID, digest string
}

// Request identifies what a caller sends, so that it can be sent again.
type Request struct {
	ID     string // chosen by the caller; "": no protection
	Digest string // of all that was asked
}

// Limits of what is asked.
const (
	maxCount      = 100_000
	maxSelected   = 64 // centers, regions
	maxTimes      = 400
	maxSpans      = 24 * 370 // of maintenance that are looked at: every hour for longer than maxAhead
	maxAhead      = 366 * 24 * time.Hour
	maxMaintained = 31 * 24 * time.Hour
	maxNodes      = 256
	maxInterval   = 1000
	maxUnused     = 30 * 24 * 3600
	defaultUnused = 1800
	// horizon is how far windows of maintenance are looked at: no job may say
	// that it runs longer.
	horizon = 30 * 24 * time.Hour
)

// span is a time by its ends.
type span struct{ from, to time.Time }

func (s span) meets(from, to time.Time) bool { return s.from.Before(to) && s.to.After(from) }

// ruleKinds are how often a rule may repeat.
var ruleKinds = []rrule.Frequency{rrule.MONTHLY, rrule.WEEKLY, rrule.DAILY, rrule.HOURLY}

// parseRule reads a rule of iCalendar (RFC 5545) for times that begin as the
// first does. It takes what always comes again, so that no rule is searched for
// times that it does not have.
func parseRule(text, zone string, first time.Time) (*rrule.RRule, error) {
	bad := func(format string, args ...any) (*rrule.RRule, error) {
		return nil, fault.New(fault.Invalid, format, args...)
	}
	where, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	if len(text) > 256 || strings.ContainsAny(text, "\r\n") || strings.Contains(strings.ToUpper(text), "DTSTART") {
		return bad(`must be one rule of at most 256 characters such as "FREQ=WEEKLY;BYDAY=MO;COUNT=8"`)
	}
	o, err := rrule.StrToROptionInLocation(text, where)
	if err != nil {
		return bad(`is not a rule such as "FREQ=WEEKLY;BYDAY=MO;COUNT=8": %s`, clip(err.Error()))
	}
	switch {
	case !slices.Contains(ruleKinds, o.Freq):
		return bad("FREQ must be HOURLY, DAILY, WEEKLY or MONTHLY")
	case o.Interval < 0 || o.Interval > maxInterval:
		return bad("INTERVAL must be between 1 and %d", maxInterval)
	case o.Count < 0:
		return bad("COUNT must be at least 1")
	case o.Count > 0 && !o.Until.IsZero():
		return bad("COUNT and UNTIL exclude each other")
	case len(o.Bysetpos)+len(o.Bymonth)+len(o.Byyearday)+len(o.Byweekno)+len(o.Byhour)+len(o.Byminute)+len(o.Bysecond)+len(o.Byeaster) > 0:
		return bad("may say FREQ, INTERVAL, COUNT, UNTIL, BYDAY, BYMONTHDAY and WKST only")
	case len(o.Byweekday) > 0 && o.Freq != rrule.WEEKLY && o.Freq != rrule.MONTHLY:
		return bad("BYDAY goes with FREQ=WEEKLY and FREQ=MONTHLY") // else there are rules that are searched for long and never come
	case len(o.Bymonthday) > 0 && (o.Freq != rrule.MONTHLY || len(o.Byweekday) > 0):
		return bad("BYMONTHDAY goes with FREQ=MONTHLY and without BYDAY")
	case slices.ContainsFunc(o.Bymonthday, func(n int) bool { return n == 0 || n > 28 || n < -28 }):
		return bad("BYMONTHDAY must be between 1 and 28, or -1 and -28: days that every month has")
	case slices.ContainsFunc(o.Byweekday, func(d rrule.Weekday) bool { return d.N() != 0 && (o.Freq != rrule.MONTHLY || d.N() > 4 || d.N() < -4) }):
		return bad("BYDAY may count days (2MO, -1FR) only with FREQ=MONTHLY, to 4")
	}
	o.Dtstart = first.In(where).Truncate(time.Second)
	r, err := rrule.NewRRule(*o)
	if err != nil {
		return bad("is not a rule: %s", clip(err.Error()))
	}
	return r, nil
}

// checkRule checks a rule ("": none) and its time zone; false: it adds what is
// wrong.
func checkRule(c *core.Check, rule, zone string, first time.Time) bool {
	path := "time_zone"
	_, err := loadZone(zone)
	if err == nil && rule != "" {
		path = "recurrence"
		_, err = parseRule(rule, zone, first)
	}
	if msg, _ := fault.Message(err); err != nil {
		c.Add(path, "%s", msg)
	}
	return err == nil
}

func loadZone(zone string) (*time.Location, error) {
	if zone == "Local" || len(zone) > 64 {
		return nil, fault.New(fault.Invalid, "must be a time zone such as Asia/Shanghai, got %q", clip(zone))
	}
	where, err := time.LoadLocation(zone) // "" is UTC
	if err != nil {
		return nil, fault.New(fault.Invalid, "must be a time zone such as Asia/Shanghai, got %q", clip(zone))
	}
	return where, nil
}

// times are the spans of a rule that meet [from, to), at most limit; without a
// rule there is one.
func times(first span, rule, zone string, from, to time.Time, limit int) ([]span, error) {
	if rule == "" {
		if first.meets(from, to) {
			return []span{first}, nil
		}
		return nil, nil
	}
	r, err := parseRule(rule, zone, first.from)
	if err != nil {
		return nil, err
	}
	length := first.to.Sub(first.from)
	var out []span
	next := r.Iterator()
	for at, ok := next(); ok && at.Before(to) && len(out) < limit; at, ok = next() {
		s := span{at.UTC(), at.UTC().Add(length)}
		if s.meets(from, to) {
			out = append(out, s)
		}
	}
	return out, nil
}

// demand is what is taken of a center for a while; nil amounts are everything.
type demand struct {
	span
	amounts core.Quantities
}

// room is what a center has at every moment of a span beside the demands. No
// amount is below 0.
func room(total core.Quantities, ds []demand, during span) core.Quantities {
	if slices.ContainsFunc(ds, func(d demand) bool { return d.amounts == nil && d.meets(during.from, during.to) }) {
		return core.Quantities{} // nothing of anything
	}
	// The sum is greatest at the begin of the span or of a demand.
	at := []time.Time{during.from}
	for _, d := range ds {
		if d.from.After(during.from) && d.from.Before(during.to) {
			at = append(at, d.from)
		}
	}
	out := maps.Clone(total)
	for _, t := range at {
		sum := core.Quantities{}
		for _, d := range ds {
			if d.from.After(t) || !d.to.After(t) {
				continue
			}
			for name, n := range d.amounts {
				sum[name] += n
			}
		}
		for name, n := range total {
			out[name] = min(out[name], max(0, n-sum[name]))
		}
	}
	return out
}

// holds reports whether a room has amounts; the name of a resource that it has
// too little of.
func holds(room, want core.Quantities) (short string, ok bool) {
	for name, n := range want {
		if n > room[name] && (short == "" || name < short) {
			short = name
		}
	}
	return short, short == ""
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

// when says a span to people.
func when(s span) string {
	return fmt.Sprintf("from %s to %s", s.from.UTC().Format(time.RFC3339), s.to.UTC().Format(time.RFC3339))
}
