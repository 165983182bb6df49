// Package planning answers questions about availability: it serves the planner
// of package availability, and measures how available the roles of the
// platform's processes were, which is what a plan of the platform itself
// should assume.
//
// # Planning
//
// Planning keeps nothing and is pure work of the processor. What one request
// may ask for is bounded, and a process works on [atOnce] of them; those beyond
// wait, and are told to come again after [patience].
//
// # Measuring
//
//	process starts ─▶ span begins ─▶ a sign of life every [beatEvery] ─▶ stops in order: the span ends
//	                      ▲                       │
//	                      └── comes back ◀── silence: killed, stopped, idle, or cut off from the database
//
// Each process writes down the spans in which it was there and did its work,
// one for each of its roles: the API answers, what must run once per platform
// is run by some process, the bus is connected. The time between two spans of an instance is a failure, unless the
// first ended in order. A process is known by its data folder, so one that is
// started anew elsewhere is another: an instance that does not come back
// within [gone] counts as down for that long and is then taken as replaced. A
// failure looks longer than it was by [beatEvery] at most; a silence shorter
// than [silent] of a process that goes on is none.
//
// Whether a loop that runs gets anything done is not measured.
package planning

import (
	"cmp"
	"slices"
	"time"
)

const (
	// beatEvery is how often a process gives a sign of life.
	beatEvery = 5 * time.Second
	// silent is how long a process may miss signs and still have been there.
	silent = 15 * time.Second
	// gone is after which silence an instance is taken as replaced.
	gone = time.Hour
	// keep spans that ended.
	keep = 400 * 24 * time.Hour
	// MaxDays is how far one can look back.
	MaxDays = 400
)

// Role is how available a role was.
type Role struct {
	Name string
	// Each is the mean over the instances of the share of their time in which
	// they were there, Any the share of time in which at least one was.
	Each, Any           float64
	Instances, Failures int
	Since               time.Time
}

// span of an instance of a role.
type span struct {
	role, instance string
	since, seen    time.Time
	ended          bool
}

// measure says how available each role was between from and now, by name;
// those of which nothing but a first sign is known are left out.
func measure(spans []span, from, now time.Time) []Role {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.instance, b.instance), a.since.Compare(b.since))
	})
	var out []Role
	for len(spans) > 0 {
		n := 1
		for n < len(spans) && spans[n].role == spans[0].role {
			n++
		}
		if r := measureRole(spans[:n], from, now); r.Instances > 0 {
			out = append(out, r)
		}
		spans = spans[n:]
	}
	return out
}

// measureRole works on the spans of one role, by instance and time.
func measureRole(spans []span, from, now time.Time) Role {
	r := Role{Name: spans[0].role, Since: now}
	var there []interval
	var sum float64
	for i := 0; i < len(spans); {
		n := i
		var up, down time.Duration
		for ; n < len(spans) && spans[n].instance == spans[i].instance; n++ {
			s := interval{later(spans[n].since, from), later(spans[n].seen, from)}
			if now.Sub(spans[n].seen) <= silent && !spans[n].ended {
				s.to = now // the next sign is on its way
			}
			there = append(there, s)
			up += s.length()
			if spans[n].ended || s.to.Equal(now) {
				continue
			}
			r.Failures++
			if next := n + 1; next < len(spans) && spans[next].instance == spans[n].instance {
				down += interval{s.to, spans[next].since}.length()
			} else {
				down += min(now.Sub(s.to), gone)
			}
		}
		r.Since = earlier(r.Since, later(spans[i].since, from))
		if up+down > 0 {
			sum += float64(up) / float64(up+down)
			r.Instances++
		}
		i = n
	}
	if r.Instances > 0 {
		r.Each = sum / float64(r.Instances)
	}
	if all := now.Sub(r.Since); all > 0 {
		r.Any = float64(covered(there)) / float64(all)
	}
	return r
}

type interval struct{ from, to time.Time }

func (i interval) length() time.Duration { return max(0, i.to.Sub(i.from)) }

// covered is the time in at least one of the intervals.
func covered(all []interval) (sum time.Duration) {
	slices.SortFunc(all, func(a, b interval) int { return a.from.Compare(b.from) })
	var end time.Time
	for _, i := range all {
		i.from = later(i.from, end)
		sum += i.length()
		end = later(end, i.to)
	}
	return sum
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
