// Package forecast learns how long work runs from how long work like it ran.
//
// It is pure: no I/O, no clock, no goroutine. The same observations in the same
// order give the same answers. A [Model] is not safe for use by several
// goroutines at once.
//
// # How it learns
//
// Several experts see every run that ends. Each keeps the latest runs of a group
// of works: of the same tenant, user, name and shape; of the same user, the last
// two by themselves, too; of the same shape; of all. Two more keep, by user and of
// all, how long runs took as a part of what was stated for them; one believes what
// is stated.
//
//	run ends ──▶ each expert is asked what it would have said ──▶ its error counts
//	         └─▶ then it sees how long the run took
//	estimate ──▶ the expert whose errors were smallest lately, in its group of this work
//
// An error is the logarithm of the ratio of said and true, so that 10 for 20
// minutes is as wrong as 10 for 20 hours. Older errors count less. An expert that
// has seen little in a group is judged by its errors in all groups as well. What
// is stated is an expert like the others: where users know better, they are
// believed; where nothing like the work has run yet, what is stated is the answer,
// and where nothing is stated there is none.
//
// # What it keeps
//
// Of each group the latest [Kept] runs and a sum of errors, in memory. Groups
// nobody used for longest are forgotten beyond [MaxGroups]. After a restart the
// caller shows it the latest runs again.
package forecast

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

const (
	// Kept are the latest runs of a group by which it judges.
	Kept = 64
	// MaxGroups bounds memory, to about 60 MB.
	MaxGroups = 100_000
	// enough runs of a group to say something.
	enough = 3
	// fade of an error with each later one in its group.
	fade = 0.95
	// borrowed is how many errors an expert's record in all groups counts as,
	// beside those in the group.
	borrowed = 4
	// half and high are the parts of runs that take no longer than estimated.
	half, high = 0.5, 0.9
	// tie is how much smaller errors must be than those of what is stated.
	tie = 1e-6
)

// Work is what is known of work before it runs.
type Work struct {
	Tenant, User string
	Name         string // as its owner calls it; digits do not tell works apart
	Shape        string // what it asks for
	Stated       int64  // how long it is expected to run by its owner, microseconds; 0: not stated
	Limit        int64  // it is ended after that, microseconds; 0: never
}

// Basis says what an estimate rests on.
type Basis string

// The bases, from the nearest to the farthest.
const (
	OfName   Basis = "name"   // runs of the same user, name and shape
	OfUser   Basis = "user"   // of the same user and shape
	OfOwner  Basis = "owner"  // of the same user
	OfLast   Basis = "last"   // the last two of the same user
	OfTenant Basis = "tenant" // of the same tenant and shape
	OfShape  Basis = "shape"  // of the same shape
	OfAll    Basis = "all"    // of all work
	OfHabit  Basis = "habit"  // what is stated, and how the user's runs compared with that
	OfHabits Basis = "habits" // what is stated, and how all runs compared with that
	Stated   Basis = "stated" // what is stated
	NoBasis  Basis = ""       // nothing is known
)

// bases are those of the experts, in their order.
var bases = [...]Basis{OfName, OfUser, OfOwner, OfLast, OfTenant, OfShape, OfAll, OfHabit, OfHabits, Stated}

// relative reports whether an expert keeps parts of what is stated.
func relative(expert int) bool { return bases[expert] == OfHabit || bases[expert] == OfHabits }

// Estimate is how long work may run, in microseconds; 0: nobody knows.
type Estimate struct {
	Median  int64
	High    int64 // nine of ten runs like it took no longer; at least Median
	Basis   Basis
	Samples int // runs it rests on; 0 where it is what is stated
}

// group is what an expert knows of works alike.
type group struct {
	last   [Kept]float32 // logarithms of run times or of parts, the oldest overwritten
	sorted [Kept]float32 // the same, ascending
	n      int           // runs seen
	errors float64       // faded sum
	weight float64       // faded count
	used   int           // when it was last used
}

// Model forecasts run times. The zero value is ready for use.
type Model struct {
	groups map[string]*group
	all    [len(bases)]group // errors of each expert in all groups
	clock  int
	key    []byte
	most   int // groups; 0: MaxGroups
}

// Len is how many groups it keeps.
func (m *Model) Len() int { return len(m.groups) }

// Observe shows it a run that ended by itself after so many microseconds.
func (m *Model) Observe(w *Work, run int64) {
	if run <= 0 {
		return
	}
	m.clock++
	if m.groups == nil {
		m.groups, m.most = map[string]*group{}, cmp.Or(m.most, MaxGroups)
	}
	truth := math.Log(float64(run))
	stated := 0.0
	if w.Stated > 0 {
		stated = math.Log(float64(w.Stated))
	}
	for x := range bases {
		if w.Stated <= 0 && (relative(x) || bases[x] == Stated) {
			continue
		}
		key := m.keyOf(x, w)
		g := m.groups[string(key)]
		if g == nil {
			if len(m.groups) >= m.most {
				m.forget()
			}
			g = &group{}
			m.groups[string(key)] = g
		}
		g.used = m.clock
		if said, ok := g.say(x, stated, half); ok {
			miss := math.Abs(said - truth)
			for _, h := range []*group{g, &m.all[x]} {
				h.errors = h.errors*fade + miss
				h.weight = h.weight*fade + 1
			}
		}
		value := truth
		if relative(x) {
			value -= stated
		}
		g.add(float32(value))
	}
}

// add takes in a run, in the place of the oldest one.
func (g *group) add(value float32) {
	have := g.sorted[:min(g.n, Kept)]
	if g.n >= Kept {
		at, _ := slices.BinarySearch(have, g.last[g.n%Kept])
		have = slices.Delete(have, at, at+1)
	}
	at, _ := slices.BinarySearch(have, value)
	copy(g.sorted[at+1:], have[at:])
	g.sorted[at] = value
	g.last[g.n%Kept] = value
	g.n++
}

// Run says how long work may run.
func (m *Model) Run(w *Work) Estimate {
	best, least := -1, math.Inf(1)
	var from *group
	stated := 0.0
	if w.Stated > 0 {
		stated = math.Log(float64(w.Stated))
	}
	for x := range bases {
		if w.Stated <= 0 && (relative(x) || bases[x] == Stated) {
			continue
		}
		g := m.groups[string(m.keyOf(x, w))]
		if g == nil || bases[x] != Stated && g.n < enough || m.all[x].weight == 0 {
			continue
		}
		prior := m.all[x].errors / m.all[x].weight
		if miss := (g.errors + borrowed*prior) / (g.weight + borrowed); miss < least-tie || bases[x] == Stated && miss < least+tie {
			best, least, from = x, miss, g
		}
	}
	out := Estimate{Basis: NoBasis}
	switch {
	case best < 0 && w.Stated > 0, best >= 0 && bases[best] == Stated:
		out = Estimate{Median: w.Stated, High: w.Stated, Basis: Stated}
	case best >= 0:
		median, _ := from.say(best, stated, half)
		most, _ := from.say(best, stated, high)
		out = Estimate{Median: micros(median), High: micros(most), Basis: bases[best], Samples: min(from.n, Kept)}
		if out.Basis == OfLast {
			out.Samples = 2
		}
	}
	if w.Limit > 0 {
		out.Median, out.High = min(out.Median, w.Limit), min(out.High, w.Limit)
	}
	return out
}

// micros turns a logarithm back, within what a time can be.
func micros(log float64) int64 {
	return int64(min(max(math.Exp(log), 1), 1<<60))
}

// say is the logarithm of what an expert says of a work in a group: the given
// part of the runs it keeps took no longer.
func (g *group) say(expert int, stated, part float64) (log float64, ok bool) {
	if bases[expert] == Stated {
		return stated, true
	}
	if g.n < enough {
		return 0, false
	}
	last := min(g.n, Kept) - 1
	log = float64(g.sorted[int(part*float64(last)+0.5)])
	if bases[expert] == OfLast {
		two := math.Log((math.Exp(float64(g.last[(g.n-1)%Kept])) + math.Exp(float64(g.last[(g.n-2)%Kept]))) / 2)
		if part == half || two > log {
			log = two
		}
	}
	if relative(expert) {
		log += stated
	}
	return log, true
}

// keyOf names the group of a work that an expert asks.
func (m *Model) keyOf(expert int, w *Work) []byte {
	b := append(m.key[:0], byte(expert))
	add := func(parts ...string) {
		for _, p := range parts {
			b = append(append(b, 0), p...)
		}
	}
	switch bases[expert] {
	case OfName:
		add(w.Tenant, w.User, w.Shape, plain(w.Name))
	case OfUser:
		add(w.Tenant, w.User, w.Shape)
	case OfOwner, OfLast, OfHabit, Stated:
		add(w.Tenant, w.User)
	case OfTenant:
		add(w.Tenant, w.Shape)
	case OfShape:
		add(w.Shape)
	}
	m.key = b
	return b
}

// plain is a name without its digits: train-17 and train-18 are alike.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
}

// forget drops the half of the groups that were not used for longest.
func (m *Model) forget() {
	used := make([]int, 0, len(m.groups))
	for _, g := range m.groups {
		used = append(used, g.used)
	}
	slices.Sort(used)
	limit := used[len(used)/2]
	for key, g := range m.groups {
		if g.used <= limit {
			delete(m.groups, key)
		}
	}
}
