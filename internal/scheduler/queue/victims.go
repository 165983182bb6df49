package queue

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Victim is a running work to be taken back, or to be shrunk.
type Victim struct {
	ID       string
	Tenant   string
	Priority int64
	// Holds are what it gives back, by place: all it has, or, where it shrinks,
	// the members above its least.
	Holds  []Hold
	Shrink bool
	// Cost is what is lost: the time since its last checkpoint, in milliseconds
	// times its devices; with a grace, at most the grace.
	Cost  int64
	Grace int64
	Why   Claim
}

// Claim is why a work may have what another holds.
type Claim string

// The claims.
const (
	ClaimPriority  Claim = "priority"  // of the same tenant, or classes are strict
	ClaimGuarantee Claim = "guarantee" // within its tenant's guarantee; the other's tenant is beyond its own
	ClaimElastic   Claim = "elastic"   // members above the least
)

// Plan is what would give a waiting work its room.
type Plan struct {
	Victims []Victim
	Places  []string // where the room is then
	Cost    int64    // of all victims
	// Exact says that no cheaper set was left untried.
	Exact bool
}

// VictimsOptions narrow a search for victims.
type VictimsOptions struct {
	// Places are those of the work to look at; nil: all. All members go to one of
	// them unless Spread is set.
	Places []string
	Spread bool
	// Steps bounds the search for the cheapest set, beyond which the best that was
	// found is taken; 0 means 20,000. One step asks Fits once.
	Steps int
	// Fits says whether the work has its room at the places when these are gone;
	// with more victims it must not turn false. Nil: amounts at each place decide.
	Fits func(places []string, gone []Victim) bool
}

// candidate is a victim with what the search needs to know.
type candidate struct {
	Victim
	e     *entry
	holds []hold
	start int64
}

// hunt is the search for victims at some places.
type hunt struct {
	q      *Queue
	e      *entry
	o      *VictimsOptions
	path   []*node // from its tenant up
	places []*place
	names  []string
	held   [][]int64         // by place, without what was taken
	room   []int64           // by place: members that may start
	sum    int64             // of room
	mark   int64             // of the places
	lacks  []bool            // by resource: giving it back can help
	taken  map[*node][]int64 // by tenant
	all    []*candidate
	chosen []*candidate
	cost   int64

	best     []*candidate
	bestCost int64
	steps    int
}

// Victims finds the cheapest running works whose end, or whose shrinking, gives
// a waiting one room at one place, within its tenants' limits; false: there is no
// such set, it would need too many, or it is not allowed. A plan counts against
// the limit of the round; nothing is ended by it.
//
// A work may have what another holds if both are of one tenant and it has a
// higher priority; or if the other's tenant, and every tenant above that up to
// where the two part, holds more than its guarantee of something the other asks
// for, or has none of that, and either it stays itself within a guarantee, or classes are strict and it has a higher
// priority. Members above the least of an elastic work are given for equal
// priorities too. Priorities are those given, without age. Works are taken
// cheapest first, and each only while its tenant still holds more than its guarantee.
func (q *Queue) Victims(id string, now int64, o VictimsOptions) (Plan, bool) {
	q.now = max(q.now, now)
	e := q.works[id]
	most := min(q.cfg.VictimsPerWork, q.cfg.VictimsPerRound-q.taken)
	if !q.cfg.Preempt || e == nil || e.state == running || most <= 0 {
		return Plan{}, false
	}
	if o.Steps == 0 {
		o.Steps = 20_000
	}
	places := q.where(e, o.Places)
	var best *hunt
	steps, roomy := 0, false
	try := func(at []*place) {
		h := q.hunt(e, &o, at)
		h.steps, h.bestCost = steps, math.MaxInt64
		roomy = roomy || h.enough()
		if best != nil {
			h.bestCost = best.bestCost
		}
		h.greedy(most)
		h.search(0, most)
		if steps = h.steps; h.best != nil {
			h.best = h.prune(h.best)
			best = h
		}
	}
	if o.Spread && !e.shape.onePlace {
		try(places)
	} else {
		for i := range places {
			try(places[i : i+1])
		}
	}
	if roomy || best == nil {
		return Plan{}, false
	}
	p := Plan{Exact: steps < o.Steps, Places: best.names}
	for _, c := range best.best {
		p.Victims = append(p.Victims, c.Victim)
		p.Cost += c.Cost
	}
	q.taken += len(p.Victims)
	return p, true
}

func (q *Queue) hunt(e *entry, o *VictimsOptions, places []*place) *hunt {
	h := &hunt{q: q, e: e, o: o, places: places, taken: map[*node][]int64{}}
	for n := e.leaf; n != nil; n = n.parent {
		h.path = append(h.path, n)
	}
	seen := map[*entry]bool{}
	h.lacks = make([]bool, len(q.names))
	q.marks++
	q.ticks++
	h.mark = q.marks
	for k, p := range places {
		h.names = append(h.names, p.name)
		h.held = append(h.held, slices.Clone(p.held))
		h.room = append(h.room, 0)
		p.mark, p.slot = q.marks, k
		h.count(k)
	}
	least := int64(e.shape.min)
	for _, t := range e.shape.ask {
		h.lacks[t.r] = o.Fits != nil || len(places) > 1 || !places[0].declared || places[0].capacity[t.r]-places[0].held[t.r] < t.n*least || len(places[0].spans) > 0
		for _, n := range h.path {
			h.lacks[t.r] = h.lacks[t.r] || n.used[t.r]+t.n*least > n.limit[t.r]
		}
	}
	for _, p := range places {
		for _, x := range p.runs {
			if seen[x.e] || x.e.work.Keep || x.e == e {
				continue
			}
			seen[x.e] = true
			h.consider(x.e)
		}
	}
	slices.SortFunc(h.all, func(a, b *candidate) int {
		s := 0
		if a.Shrink != b.Shrink {
			if s = 1; a.Shrink {
				s = -1
			}
		}
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), s, cmp.Compare(b.start, a.start), cmp.Compare(a.ID, b.ID), cmp.Compare(len(a.Holds), len(b.Holds)))
	})
	return h
}

// consider adds what may be taken of v.
func (h *hunt) consider(v *entry) {
	l := v.live
	base := candidate{e: v, start: l.start, Victim: Victim{ID: v.work.ID, Tenant: v.work.Tenant, Priority: v.work.Priority, Grace: v.work.Grace}}
	if extra := l.members - int64(v.shape.min); extra > 0 {
		c := base
		c.Shrink = true
		for i := len(l.holds) - 1; i >= 0 && extra > 0; i-- {
			x := l.holds[i]
			if x.other != nil || x.members == 0 {
				continue
			}
			x.members = int32(min(int64(x.members), extra))
			extra -= int64(x.members)
			c.holds = append(c.holds, x)
		}
		h.add(c)
	}
	base.holds = l.holds
	h.add(base)
}

// Yield is a running work that may be taken back.
type Yield struct {
	ID   string
	Lost int64 // of its time: since its last checkpoint, with a grace at most the grace; milliseconds
}

// Yields returns which of these running works another, which waits or is about to start, may
// have end for its priority, by the rules of Victims: any of them, and all together. Those by
// which the least is lost come first, then those of the lowest priority, then the youngest. What
// they hold is not looked at: it may lack something that the queue does not know.
func (q *Queue) Yields(id string, of []string, now int64) (out []Yield) {
	q.now = max(q.now, now)
	e := q.works[id]
	if !q.cfg.Preempt || e == nil {
		return nil
	}
	q.marks++
	h := &hunt{q: q, e: e, mark: q.marks, taken: map[*node][]int64{}} // at no place
	for n := e.leaf; n != nil; n = n.parent {
		h.path = append(h.path, n)
	}
	var all []*candidate
	for _, name := range of {
		v := q.works[name]
		if v == nil || v.state != running || v.work.Keep || v == e {
			continue
		}
		c := &candidate{e: v, holds: v.live.holds, start: v.live.start, Victim: Victim{ID: name, Tenant: v.work.Tenant, Priority: v.work.Priority, Grace: v.work.Grace}}
		c.Cost = q.unsaved(v) / 1000
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.start, a.start), cmp.Compare(a.ID, b.ID))
	})
	for _, c := range all {
		if h.claim(c) == ClaimPriority { // as things are without those before it
			h.take(c, 1)
			out = append(out, Yield{c.ID, c.Cost})
		}
	}
	return out
}

func (h *hunt) add(c candidate) {
	helps := false
	for i := range c.holds {
		x := &c.holds[i]
		if x.place.mark == h.mark {
			for _, t := range x.terms(c.e) {
				helps = helps || h.lacks[t.r]
			}
		}
		c.Holds = append(c.Holds, Hold{Place: x.place.name, Members: int(x.members)})
	}
	if c.Why = h.claim(&c); c.Why == "" || !helps {
		return
	}
	c.Cost = h.q.lost(c.e, c.holds)
	h.all = append(h.all, &c)
}

// unsaved is the time of a running work that is lost with it, microseconds.
func (q *Queue) unsaved(v *entry) int64 {
	d := max(0, q.now-v.live.saved)
	if v.work.Grace > 0 {
		d = min(d, v.work.Grace)
	}
	return d
}

// lost is what ending these parts of a running work costs.
func (q *Queue) lost(v *entry, holds []hold) int64 {
	d := q.unsaved(v)
	n := uint64(0)
	if len(q.cfg.Devices) == 0 {
		n = 1
	}
	for i := range holds {
		for _, t := range holds[i].terms(v) {
			if q.devices[t.r] {
				n += uint64(t.n * holds[i].times())
			}
		}
	}
	hi, lo := bits.Mul64(uint64(d), n)
	if hi >= 1000 {
		return math.MaxInt64 / MaxMembers
	}
	ms, _ := bits.Div64(hi, lo, 1000)
	return int64(min(ms, math.MaxInt64/MaxMembers))
}

// claim is why the work may have c, as things are without what was taken; empty:
// it may not.
func (h *hunt) claim(c *candidate) Claim {
	w, v := h.e, c.e
	lower := v.work.Priority < w.work.Priority
	elastic := c.Shrink && v.work.Priority <= w.work.Priority
	if v.leaf == w.leaf {
		switch {
		case elastic:
			return ClaimElastic
		case lower:
			return ClaimPriority
		}
		return ""
	}
	// b is the tenant on the way up from v below the one that has both; every one
	// up to it must hold more than its guarantee. a is its sibling above w.
	b := v.leaf
	for n := b; !slices.Contains(h.path, n); n = n.parent {
		if !h.beyond(n, v) {
			return ""
		}
		b = n
	}
	a := h.path[slices.Index(h.path, b.parent)-1]
	switch {
	case elastic:
		return ClaimElastic
	case lower && h.q.cfg.StrictClasses:
		return ClaimPriority
	case a.within(w.shape.ask, int64(w.shape.min)):
		return ClaimGuarantee
	}
	return ""
}

// beyond says whether n, without what was taken, is not within its guarantee as
// far as v goes: of each resource that is guaranteed to it and that v asks for,
// and at least one. It is the rule by which v would be within it, so that no two
// works take each other's room in turns.
func (h *hunt) beyond(n *node, v *entry) bool {
	taken := h.taken[n]
	guaranteed := false
	for _, t := range v.shape.ask {
		g := n.guaranteed[t.r]
		if g == 0 {
			continue
		}
		guaranteed = true
		u := n.used[t.r]
		if taken != nil {
			u -= taken[t.r]
		}
		if u > g {
			return true
		}
	}
	return !guaranteed
}

// take takes c (1), or puts it back (-1).
func (h *hunt) take(c *candidate, sign int64) {
	members := int64(0)
	for i := range c.holds {
		x := &c.holds[i]
		members += int64(x.members)
		if k := x.place.slot; x.place.mark == h.mark {
			for _, t := range x.terms(c.e) {
				h.held[k][t.r] -= sign * t.n * x.times()
			}
			h.count(k)
		}
	}
	for n := c.e.leaf; n != nil; n = n.parent {
		v := h.taken[n]
		if v == nil {
			v = make([]int64, len(h.q.names))
			h.taken[n] = v
		}
		for _, t := range c.e.shape.ask {
			v[t.r] += sign * t.n * members
		}
	}
	h.cost += sign * c.Cost
	if sign > 0 {
		h.chosen = append(h.chosen, c)
	} else {
		h.chosen = h.chosen[:len(h.chosen)-1]
	}
}

// legal says whether c may be taken after those chosen already.
func (h *hunt) legal(c *candidate) bool {
	for _, x := range h.chosen {
		if x.e == c.e {
			return false
		}
	}
	return h.claim(c) != ""
}

// enough says whether the work has its room, and its tenants may have it.
func (h *hunt) enough() bool {
	e := h.e
	least := int64(e.shape.min)
	for _, n := range h.path {
		taken := h.taken[n]
		for _, t := range e.shape.ask {
			u := n.used[t.r] + t.n*least
			if taken != nil {
				u -= taken[t.r]
			}
			if u > n.limit[t.r] {
				return false
			}
		}
	}
	if h.o.Fits != nil {
		gone := make([]Victim, len(h.chosen))
		for i, c := range h.chosen {
			gone[i] = c.Victim
		}
		return h.o.Fits(h.names, gone)
	}
	return h.sum >= least
}

// count counts anew what may start at a place.
func (h *hunt) count(k int) {
	n := h.q.may(h.e, h.places[k], int64(h.e.shape.min), h.q.now, h.held[k])
	h.sum += n - h.room[k]
	h.room[k] = n
}

// better says whether what is chosen is better than the best.
func (h *hunt) better() bool {
	return h.cost < h.bestCost || h.cost == h.bestCost && h.best != nil && len(h.chosen) < len(h.best)
}

func (h *hunt) keep() {
	if h.better() {
		h.best, h.bestCost = slices.Clone(h.chosen), h.cost
	}
}

// greedy takes the cheapest until that is enough, and then gives back what was
// not needed; once with, once without works that would only shrink. At several
// places it does so place by place, that with the lowest cost of another
// member first.
func (h *hunt) greedy(most int) {
	for _, shrink := range []bool{true, false} {
		if len(h.places) == 1 {
			for _, c := range h.all {
				if h.enough() || len(h.chosen) > 4*most {
					break
				}
				if (shrink || !c.Shrink) && h.legal(c) {
					h.take(c, 1)
				}
			}
		} else {
			h.spread(most, shrink)
		}
		if h.enough() {
			pruned := h.prune(slices.Clone(h.chosen))
			h.clear()
			for _, c := range pruned {
				h.take(c, 1)
			}
			if len(pruned) <= most {
				h.keep()
			}
		}
		h.clear()
	}
}

// spread takes victims place by place.
func (h *hunt) spread(most int, shrink bool) {
	at := make([][]*candidate, len(h.places))
	for _, c := range h.all {
		for i := range c.holds {
			if p := c.holds[i].place; p.mark == h.mark && (shrink || !c.Shrink) && (len(at[p.slot]) == 0 || at[p.slot][len(at[p.slot])-1] != c) {
				at[p.slot] = append(at[p.slot], c)
			}
		}
	}
	// price is what the next members at a place cost, each; victims those to take.
	price := func(k int) (per int64, set []*candidate) {
		had, before := h.room[k], len(h.chosen)
		cost := h.cost
		for _, c := range at[k] {
			if h.room[k] > had || len(h.chosen) > 4*most {
				break
			}
			if h.legal(c) {
				h.take(c, 1)
			}
		}
		if gain := h.room[k] - had; gain > 0 {
			per, set = (h.cost-cost)/gain, slices.Clone(h.chosen[before:])
		}
		for len(h.chosen) > before {
			h.take(h.chosen[len(h.chosen)-1], -1)
		}
		return per, set
	}
	type offer struct {
		per int64
		k   int
		set []*candidate
	}
	offers := make([]offer, 0, len(at))
	for k := range at {
		if per, set := price(k); set != nil {
			offers = append(offers, offer{per, k, set})
		}
	}
	for len(offers) > 0 && !h.enough() && len(h.chosen) <= 4*most {
		i := 0
		for j := range offers {
			if offers[j].per < offers[i].per {
				i = j
			}
		}
		for _, c := range offers[i].set {
			if h.legal(c) {
				h.take(c, 1)
			}
		}
		k := offers[i].k
		if per, set := price(k); set != nil {
			offers[i] = offer{per, k, set}
		} else {
			offers = slices.Delete(offers, i, i+1)
		}
	}
}

func (h *hunt) clear() {
	for len(h.chosen) > 0 {
		h.take(h.chosen[len(h.chosen)-1], -1)
	}
}

// prune leaves out victims that are not needed, the most costly first.
func (h *hunt) prune(set []*candidate) []*candidate {
	for i := len(set) - 1; i >= 0; i-- {
		h.clear()
		for k, c := range set {
			if k != i {
				h.take(c, 1)
			}
		}
		if h.enough() {
			set = slices.Delete(set, i, i+1)
		}
	}
	h.clear()
	return set
}

// search tries all sets that could be cheaper than the best, until it has taken
// too many steps.
func (h *hunt) search(from, most int) {
	if h.steps++; h.steps >= h.o.Steps {
		return
	}
	if h.enough() {
		h.keep()
		return // a larger set only costs more
	}
	if len(h.chosen) == most {
		return
	}
	for i := from; i < len(h.all); i++ {
		c := h.all[i]
		if h.cost+c.Cost > h.bestCost {
			return // those after it cost as much
		}
		if !h.legal(c) {
			continue
		}
		h.take(c, 1)
		h.search(i+1, most)
		h.take(c, -1)
	}
}
