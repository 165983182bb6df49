// Package standing knows how far a center is to be relied on just now: how its
// link stands, for how long its silence is put up with, and what it has refused
// to take.
//
// # The link of a center
//
//	            not heard of            grace over
//	connected ───────────────▶ silent ───────────▶ lost
//	    ▲  ▲                     │                  │
//	    │  └──── heard of ───────┘                  │ heard of
//	    │                                           ▼
//	    └──── what it lost is stopped there ─────── back
//
// A center counts as heard of for registry.SeenWithin after each sign of life.
// What runs there is untouched while it is silent. Silence begins anew each time
// it is heard of, so a link that flickers never costs a run.
//
// Silence is counted only while the platform listens: the row of a silent
// center has how long that was ([Service.Look]), not when it ends. So a grace
// goes on after a restart where it stood, and does not run while the platform is
// down. After a gap nothing is given up for [settle], in which centers can come
// back. When several centers are silent and none is heard of, it is the platform
// that is cut off, and no time passes.
//
// Whose grace counts is for the owner of the runs to ask ([Graces.For]): the
// job's, its tenant's, the center's, the platform's, in this order.
//
// # Refusals
//
// A center that refuses a run is left alone by work that asks for the same
// (specification and image): for [firstBlock], and twice as long each time it
// refuses again within as long after that, at most [maxBlock]. Refusals that
// arrive while it is left alone were under way before and do not count as again.
// All that is stored, so a restart forgets nothing.
package standing

import (
	"time"

	"yunhe.dev/yunhe/internal/core"
)

// State of a center's link; the numbers are the API's.
type State int

// The states.
const (
	Connected State = 1
	Silent    State = 2
	Lost      State = 3
	Back      State = 4
)

func (s State) String() string { return [...]string{"", "connected", "silent", "lost", "back"}[s] }

const (
	// DefaultGrace is how long silence is put up with where nobody says.
	DefaultGrace = 30 * time.Minute
	// MinGrace is the shortest that can be set.
	MinGrace = 30 * time.Second
	maxGrace = 30 * 24 * time.Hour
	// Never is a grace, in seconds, that does not end.
	Never = -1

	// lookEvery is how often links are looked at.
	lookEvery = 5 * time.Second
	// maxStep between two looks is counted; after a longer one there was a gap.
	maxStep = 4 * lookEvery
	// settle is how long after a gap nothing is given up.
	settle = 30 * time.Second

	firstBlock = 30 * time.Second
	maxBlock   = time.Hour
	// keepRefusals is for how long a refusal is shown.
	keepRefusals = 24 * time.Hour
	maxReason    = 500
)

// Link is how the link of a center stands.
type Link struct {
	CenterID string
	State    State
	Since    time.Time     // of the state; zero: it was never silent
	Silent   time.Duration // how long was listened in vain
	// HeardAt is when it was last heard of; zero: never.
	HeardAt          time.Time
	Silences, Losses int64 // so far

	watched  time.Duration
	lookedAt time.Time
}

// sight is what a look sees of a center.
type sight struct {
	heard bool
	open  bool          // written off runs there are not yet over
	deaf  bool          // nobody is heard of: time does not count
	grace time.Duration // of the center; negative: without end
}

// look returns the link after a look at now.
func (l Link) look(now time.Time, s sight) Link {
	step := now.Sub(l.lookedAt)
	l.lookedAt = now
	if step < 0 || step > maxStep {
		step, l.watched = 0, 0
	}
	enter := func(to State) { l.State, l.Since = to, now }
	switch {
	case s.heard && l.State == Silent:
		enter(Connected)
	case s.heard && l.State == Lost:
		enter(Back)
	case s.heard && l.State == Back && !s.open:
		enter(Connected)
	case !s.heard && (l.State == Connected || l.State == Back):
		enter(Silent)
		l.Silences++
		l.watched = 0
	case !s.heard && !s.deaf:
		l.Silent += step
		l.watched += step
		if l.State == Silent && l.Over(s.grace) {
			enter(Lost)
			l.Losses++
		}
	}
	if s.heard {
		l.Silent, l.watched = 0, 0
	}
	return l
}

// Over reports whether the center has been silent for longer than a grace;
// a negative one does not end.
func (l *Link) Over(grace time.Duration) bool {
	return (l.State == Silent || l.State == Lost) && grace >= 0 && l.Silent >= grace && l.watched >= settle
}

// Scope of a grace.
type Scope string

// The scopes, the widest first.
const (
	OfPlatform Scope = "platform"
	OfCenter   Scope = "center"
	OfTenant   Scope = "tenant"
)

// Grace is how long silence is put up with before work is run elsewhere.
type Grace struct {
	Scope     Scope
	ID        string // of the center or tenant
	Seconds   int64  // Never: it is not
	ChangedAt time.Time
}

// Graces are all that are set, by scope and ID.
type Graces map[Scope]map[string]int64

// For returns the grace of a job that states seconds (0: nothing), negative if
// it does not end.
func (g Graces) For(seconds int64, tenant, center string) time.Duration {
	if seconds != 0 {
		return span(seconds)
	}
	if n, ok := g[OfTenant][tenant]; ok {
		return span(n)
	}
	return g.ofCenter(center)
}

func (g Graces) ofCenter(center string) time.Duration {
	if n, ok := g[OfCenter][center]; ok {
		return span(n)
	}
	if n, ok := g[OfPlatform][""]; ok {
		return span(n)
	}
	return DefaultGrace
}

func span(seconds int64) time.Duration {
	if seconds < 0 {
		return -1
	}
	return time.Duration(seconds) * time.Second
}

// CheckGrace checks a grace in seconds; 0 passes, it means none is stated.
func CheckGrace(c *core.Check, path string, seconds int64) {
	if seconds != 0 && seconds != Never && (seconds < int64(MinGrace/time.Second) || seconds > int64(maxGrace/time.Second)) {
		c.Add(path, "must be -1 (never), 0 (not stated) or %d to %d, got %d", int64(MinGrace/time.Second), int64(maxGrace/time.Second), seconds)
	}
}

// Refusal is what a center did not take.
type Refusal struct {
	CenterID, SpecID, ImageID string
	Reason                    string // as the center said it last
	Count                     int64
	FirstAt, LastAt           time.Time
	Until                     time.Time // not tried again before

	level int64
}

// again returns the refusal after another at now.
func (r Refusal) again(now time.Time, reason string) Refusal {
	block := blockOf(r.level)
	switch {
	case r.Count == 0 || now.After(r.Until.Add(block)):
		r.level = 1
		r.FirstAt, r.Count = now, 0
	case now.After(r.Until):
		r.level++
	}
	if r.Count == 0 || now.After(r.Until) {
		r.Until = now.Add(blockOf(r.level))
	}
	r.Count++
	r.LastAt, r.Reason = now, reason
	return r
}

func blockOf(level int64) time.Duration {
	if level <= 0 {
		return 0
	}
	return min(firstBlock<<min(level-1, 10), maxBlock)
}
