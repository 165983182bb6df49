package queue

import (
	"cmp"
	"container/heap"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// place is where works run, as far as the queue knows it: amounts, not nodes.
type place struct {
	name     string
	declared bool    // it has a capacity
	capacity []int64 // by resource
	held     []int64 // by what runs there
	runs     []ref   // in no order
	spans    []*span // by begin, then ID

	mark int64 // of the forecast that looks at it
	slot int   // there
}

// ref is one hold of a running work.
type ref struct {
	e *entry
	i int32
}

// span takes amounts out of what can be used at a place from one time to
// another. It is a window, or part of a reservation.
type span struct {
	id       string
	at       *place
	from, to int64
	amounts  []int64 // by resource; nil: everything
	tenant   string  // may use it, and those below it; empty: nobody
	owner    *entry  // has the reservation; nil: it is a window
	block    bool    // of a reservation whose time cannot be computed
	held     []int64 // at the place, by works that still run at from
	own      []int64 // the part of held that is the tenant's

	asked   *entry // passes was asked for it last,
	askedAt int64  // at this tick,
	passed  bool   // with this answer
}

func (p *place) grow(to int) {
	for len(p.capacity) < to {
		p.capacity, p.held = append(p.capacity, 0), append(p.held, 0)
	}
}

func (w *span) grow(to int) {
	for len(w.held) < to {
		w.held, w.own = append(w.held, 0), append(w.own, 0)
		if w.amounts != nil {
			w.amounts = append(w.amounts, 0)
		}
	}
}

// Window takes amounts out of what can be used in [From, To): an advance
// reservation, or maintenance.
type Window struct {
	ID       string
	Place    string // empty: of all places together
	From, To int64
	Amounts  Amounts // nil: everything there
	Tenant   string  // it, and those below it, may use the amounts; empty: nobody
}

// SetPlace says what there is at a place in all, used or not. Places make the
// totals of which shares are parts. What no place has is not checked for room.
func (q *Queue) SetPlace(name string, capacity Amounts) error {
	var k core.Check
	if name == "" {
		k.Add("name", "is required")
	}
	checkAmounts(&k, "capacity", capacity, maxHeld/1024)
	if err := k.Err(); err != nil {
		return err
	}
	q.RemovePlace(name)
	for _, n := range sorted(capacity) {
		q.resource(n)
	}
	p := q.place(name)
	p.declared = true
	for n, v := range capacity {
		r := q.index[n]
		p.capacity[r] = v
		q.all.capacity[r] += v
		q.known[r]++
	}
	q.openRoom(p, 1)
	q.stale = true
	return nil
}

// RemovePlace forgets what there is at a place; what runs there goes on.
func (q *Queue) RemovePlace(name string) {
	p := q.places[name]
	if p == nil || !p.declared {
		return
	}
	q.openRoom(p, -1)
	for r, v := range p.capacity {
		if v > 0 {
			q.known[r]--
		}
		q.all.capacity[r] -= v
		p.capacity[r] = 0
	}
	p.declared = false
	q.stale = true
}

func (q *Queue) openRoom(p *place, sign int64) {
	for r, v := range p.capacity {
		q.room[r] += sign * max(0, v-p.held[r])
	}
}

func (q *Queue) place(name string) *place {
	p := q.places[name]
	if p == nil {
		p = &place{name: name}
		p.grow(len(q.names))
		q.places[name] = p
		i, _ := slices.BinarySearchFunc(q.sorted, name, func(p *place, n string) int { return cmp.Compare(p.name, n) })
		q.sorted = slices.Insert(q.sorted, i, p)
	}
	return p
}

// SetWindow adds a window, or changes the one with its ID.
func (q *Queue) SetWindow(w Window) error {
	var k core.Check
	if w.ID == "" {
		k.Add("id", "is required")
	}
	k.Range("from", w.From, 0, Never-1)
	if w.To <= w.From {
		k.Add("to", "must be after from (%d), got %d", w.From, w.To)
	}
	checkAmounts(&k, "amounts", w.Amounts, MaxAmount)
	if err := k.Err(); err != nil {
		return err
	}
	q.RemoveWindow(w.ID)
	p := &q.all
	if w.Place != "" {
		p = q.place(w.Place)
	}
	q.addSpan(&span{id: w.ID, at: p, from: w.From, to: w.To, tenant: w.Tenant, amounts: q.dense(w.Amounts)})
	return nil
}

// dense is a vector of amounts by resource; nil of nil.
func (q *Queue) dense(a Amounts) []int64 {
	if a == nil {
		return nil
	}
	ts := q.terms(a)
	v := make([]int64, len(q.names))
	for _, t := range ts {
		v[t.r] = t.n
	}
	return v
}

// RemoveWindow forgets a window.
func (q *Queue) RemoveWindow(id string) {
	for _, w := range q.windows {
		if w.owner == nil && w.id == id {
			q.removeSpan(w)
			return
		}
	}
}

func (w *span) compare(v *span) int {
	return cmp.Or(cmp.Compare(w.from, v.from), cmp.Compare(w.id, v.id))
}

func (q *Queue) addSpan(w *span) {
	w.grow(len(q.names))
	i, _ := slices.BinarySearchFunc(w.at.spans, w, (*span).compare)
	w.at.spans = slices.Insert(w.at.spans, i, w)
	q.windows = append(q.windows, w)
	if w.tenant == "" {
		// Everything, but what has ended by then: the top of the heap of ends.
		copy(w.held, w.at.held)
		q.endedBy(w, 0)
		return
	}
	places := []*place{w.at}
	if w.at == &q.all {
		places = q.sorted
	}
	for _, p := range places {
		for _, x := range p.runs {
			w.count(x.e, &x.e.live.holds[x.i], 1)
		}
	}
}

// endedBy takes from what w counts the works of the heap of ends, from i down,
// that have ended when it begins.
func (q *Queue) endedBy(w *span, i int) {
	if i >= len(q.ends) || q.ends[i].at > w.from {
		return
	}
	e := q.ends[i].e
	for k := range e.live.holds {
		h := &e.live.holds[k]
		if h.place != w.at && w.at != &q.all {
			continue
		}
		for _, t := range h.terms(e) {
			w.held[t.r] -= t.n * h.times()
		}
	}
	q.endedBy(w, 2*i+1)
	q.endedBy(w, 2*i+2)
}

func (q *Queue) removeSpan(w *span) {
	same := func(v *span) bool { return v == w }
	w.at.spans = slices.DeleteFunc(w.at.spans, same)
	q.windows = slices.DeleteFunc(q.windows, same)
}

// count notes that a work takes (1), or gives back (-1), what it holds where w is.
func (w *span) count(e *entry, h *hold, sign int64) {
	if e.live.end <= w.from {
		return
	}
	mine := w.serves(e)
	for _, t := range h.terms(e) {
		n := sign * t.n * h.times()
		w.held[t.r] += n
		if mine {
			w.own[t.r] += n
		}
	}
}

// serves says whether the window is there for e.
func (w *span) serves(e *entry) bool {
	if w.tenant == "" {
		return false
	}
	for n := e.leaf; n.parent != nil; n = n.parent {
		if n.name == w.tenant {
			return true
		}
	}
	return false
}

// passes says whether w keeps nothing from e: it is there for it, or for a work
// over which e goes first.
func (w *span) passes(q *Queue, e *entry) bool {
	if w.owner == e {
		return true
	}
	if w.asked != e || w.askedAt != q.ticks {
		w.asked, w.askedAt = e, q.ticks
		w.passed = w.serves(e)
		if o := w.owner; o != nil {
			w.passed = w.block && e.state == reserved && e.turn < o.turn || q.overrides(e, o)
		}
	}
	return w.passed
}

// overrides says whether e may take what is kept for o: it has a higher
// priority, where that orders the two, or is within a guarantee and the other is
// not. A lower share alone does not break a promise.
func (q *Queue) overrides(e, o *entry) bool {
	if q.cfg.Order == FirstCome || e.state == running {
		return false
	}
	if q.cfg.Order == FairShare && e.leaf != o.leaf {
		b := o.leaf
		for b.parent != nil && !b.parent.has(e.leaf) {
			b = b.parent
		}
		a := e.leaf
		for a.parent != b.parent {
			a = a.parent
		}
		if x, y := a.within(e.shape.ask, int64(e.shape.min)), b.within(o.shape.ask, int64(o.shape.min)); x != y {
			return x
		}
		if !q.cfg.StrictClasses {
			return false
		}
	}
	return q.priority(e) > q.priority(o)
}

// withheld is what w keeps from e of a resource.
func (w *span) withheld(r int) int64 { return max(0, w.amounts[r]-w.own[r]) }

// may is how many members of e, at most up to, can run at p from a time on, in
// what is held then (by resource, nil: what is held now), without taking what
// a span keeps for others.
func (q *Queue) may(e *entry, p *place, up, from int64, held []int64) int64 {
	if held == nil {
		held = p.held
	}
	end := Never
	if e.run < unknownRun {
		end = from + e.run
	}
	reach := q.reach(e, from)
	up = q.fit(e, p, up, from, held)
	for _, w := range p.spans {
		if w.from >= end || up == 0 {
			break
		}
		if w.to <= from || w.owner == nil && w.from >= reach || w.passes(q, e) {
			continue
		}
		if w.amounts == nil {
			return 0
		}
		if w.from > from {
			up = q.fit(e, p, up, w.from, w.held)
		}
	}
	return up
}

// reach is until when e is taken to run, if it begins at from, where it is about
// windows.
func (q *Queue) reach(e *entry, from int64) int64 {
	switch {
	case e.run < unknownRun:
		return from + e.run
	case q.cfg.UnknownReach > 0:
		return from + q.cfg.UnknownReach
	}
	return Never
}

// window is the first window that lets fewer than up members of e start at p
// now; "" if none does.
func (q *Queue) window(e *entry, p *place, up int64) string {
	for _, w := range p.spans {
		if w.owner != nil || w.to <= q.now || w.from >= q.reach(e, q.now) || w.passes(q, e) {
			continue
		}
		held := p.held
		if w.from > q.now {
			held = w.held
		}
		if w.amounts == nil || q.fit(e, p, up, max(w.from, q.now), held) < min(up, q.bare(e, p, up, held)) {
			return w.id
		}
	}
	return ""
}

// bare is how many members have room in what is held, windows or not.
func (q *Queue) bare(e *entry, p *place, up int64, held []int64) int64 {
	if !p.declared {
		return up
	}
	for _, t := range e.shape.ask {
		if q.known[t.r] > 0 {
			up = min(up, max(0, p.capacity[t.r]-held[t.r])/t.n)
		}
	}
	return up
}

// Blocked says whether a window, and which, keeps even one member of a work
// from starting at a place now. The work need not be in the queue.
func (q *Queue) Blocked(w Work, name string, now int64) (id string, yes bool) {
	q.now = max(q.now, now)
	p := q.places[name]
	if p == nil {
		return "", false
	}
	e := &entry{work: w, leaf: q.root, run: w.Run, shape: &shape{ask: q.terms(w.Amounts), min: 1, max: 1}}
	if n := q.leaves[w.Tenant]; n != nil {
		e.leaf = n
	}
	if e.run == 0 {
		e.run = unknownRun
	}
	q.ticks++
	id = q.window(e, p, 1)
	return id, id != ""
}

// fit is how many members, at most up to, have room at one time.
func (q *Queue) fit(e *entry, p *place, up, at int64, held []int64) int64 {
	if !p.declared {
		return up
	}
	for _, t := range e.shape.ask {
		if q.known[t.r] == 0 {
			continue
		}
		left := p.capacity[t.r] - held[t.r]
		for _, w := range p.spans {
			if w.from > at {
				break
			}
			if w.to > at && w.amounts != nil && !w.passes(q, e) {
				left -= w.withheld(t.r)
			}
		}
		up = min(up, max(0, left)/t.n)
	}
	return up
}

// empty is how many members, at most up to, have room at p when nothing runs
// there and nothing is reserved.
func (q *Queue) empty(e *entry, p *place, up int64) int64 {
	for _, t := range e.shape.ask {
		if q.known[t.r] > 0 {
			left := p.capacity[t.r]
			for _, w := range p.spans {
				if w.owner == nil && w.to == Never && !w.serves(e) {
					if w.amounts == nil {
						return 0
					}
					left -= w.amounts[t.r]
				}
			}
			up = min(up, max(0, left)/t.n)
		}
	}
	return up
}

// Hold is a part of a running work at one place.
type Hold struct {
	Place   string
	Members int
	// Amounts are what the part takes there, where that is not Members times
	// what the work asks for; nil: it is.
	Amounts Amounts
}

type hold struct {
	place   *place
	members int32
	pos     int32  // in place.runs
	other   []term // instead of members times the ask
}

func (h *hold) terms(e *entry) []term {
	if h.other != nil {
		return h.other
	}
	return e.shape.ask
}

func (h *hold) times() int64 {
	if h.other != nil {
		return 1
	}
	return int64(h.members)
}

// live is what a running work has beyond a waiting one.
type live struct {
	holds   []hold
	one     [1]hold
	members int64
	start   int64
	end     int64 // expected; Never: not known
	saved   int64 // last checkpoint
}

// occupy notes what a hold takes (1) or gives back (-1) at its place.
func (q *Queue) occupy(e *entry, h *hold, sign int64) {
	p := h.place
	for _, t := range h.terms(e) {
		n := sign * t.n * h.times()
		if p.declared {
			c := p.capacity[t.r]
			q.room[t.r] += max(0, c-p.held[t.r]-n) - max(0, c-p.held[t.r])
		}
		p.held[t.r] += n
		q.all.held[t.r] += n
	}
	for _, w := range p.spans {
		w.count(e, h, sign)
	}
	for _, w := range q.all.spans {
		w.count(e, h, sign)
	}
}

// settle adds holds to a running work.
func (q *Queue) settle(e *entry, holds []Hold) {
	l := e.live
	if l.holds == nil && len(holds) == 1 {
		l.holds = l.one[:0]
	}
	l.holds = slices.Grow(l.holds, len(holds))
	for i := range holds {
		h := hold{place: q.place(holds[i].Place), members: int32(holds[i].Members)}
		if holds[i].Amounts != nil {
			h.other = q.terms(holds[i].Amounts)
		}
		h.pos = int32(len(h.place.runs))
		h.place.runs = append(h.place.runs, ref{e, int32(len(l.holds))})
		l.holds = append(l.holds, h)
		l.members += int64(h.members)
		q.occupy(e, &h, 1)
	}
}

// vacate takes hold i of e from its place.
func (q *Queue) vacate(e *entry, i int) {
	h := &e.live.holds[i]
	q.occupy(e, h, -1)
	runs := h.place.runs
	last := runs[len(runs)-1]
	runs[h.pos] = last
	last.e.live.holds[last.i].pos = h.pos
	runs[len(runs)-1] = ref{}
	h.place.runs = runs[:len(runs)-1]
	e.live.members -= int64(h.members)
}

// begin makes e a running work.
func (q *Queue) begin(e *entry, holds []Hold, start int64) {
	e.state = running
	e.live = &live{start: start, saved: start, end: Never}
	if e.run < unknownRun {
		e.live.end = start + e.run
	}
	q.settle(e, holds)
	e.heap = -1
	if e.live.end != Never {
		heap.Push(&q.ends, timed{e.live.end, e})
	}
	if e.live.members < int64(e.shape.max) {
		q.elastic[e] = true
	}
}

// Ended takes a running work out, however it ended; false: it does not run.
func (q *Queue) Ended(id string, now int64) bool {
	e := q.works[id]
	if e == nil || e.state != running {
		return false
	}
	q.now = max(q.now, now)
	members := e.live.members
	if e.live.end > now {
		q.early++
	}
	for i := range e.live.holds {
		q.vacate(e, i)
	}
	if e.heap >= 0 {
		heap.Remove(&q.ends, int(e.heap))
	}
	delete(q.elastic, e)
	n := e.leaf
	q.charge(n, e.shape.ask, -members)
	n.works--
	q.drop(e)
	q.lift(n)
	return true
}

// Shrunk says that a running work gave back what it had of these holds, by
// place. At least one member is left.
func (q *Queue) Shrunk(id string, holds []Hold, now int64) error {
	e := q.works[id]
	if e == nil || e.state != running {
		return fault.New(fault.NotFound, "no work %q runs", id)
	}
	q.now = max(q.now, now)
	less := map[string]int32{}
	sum := int64(0)
	for _, h := range holds {
		less[h.Place] += int32(h.Members)
		sum += int64(h.Members)
	}
	had := map[string]int32{}
	for i := range e.live.holds {
		had[e.live.holds[i].place.name] += e.live.holds[i].members
	}
	for name, n := range less {
		if n < 0 || n > had[name] || sum >= e.live.members {
			return fault.New(fault.Invalid, "work %q has %d members, %d of them at %q; it cannot give back %d, %d of them there", id, e.live.members, had[name], name, sum, n)
		}
	}
	for i := range e.live.holds {
		h := &e.live.holds[i]
		n := min(h.members, less[h.place.name])
		if n == 0 {
			continue
		}
		less[h.place.name] -= n
		q.occupy(e, h, -1)
		h.members -= n
		q.occupy(e, h, 1)
		e.live.members -= int64(n)
	}
	q.charge(e.leaf, e.shape.ask, -sum)
	q.elastic[e] = true
	q.lift(e.leaf)
	return nil
}

// Expect changes when a running work is expected to end; Never: not known.
func (q *Queue) Expect(id string, end int64) bool {
	e := q.works[id]
	if e == nil || e.state != running {
		return false
	}
	q.setEnd(e, end)
	return true
}

func (q *Queue) setEnd(e *entry, end int64) {
	for i := range e.live.holds {
		h := &e.live.holds[i]
		for _, ws := range [2][]*span{h.place.spans, q.all.spans} {
			for _, w := range ws {
				w.count(e, h, -1)
			}
		}
	}
	if e.heap >= 0 {
		heap.Remove(&q.ends, int(e.heap))
		e.heap = -1
	}
	e.live.end = end
	for i := range e.live.holds {
		h := &e.live.holds[i]
		for _, ws := range [2][]*span{h.place.spans, q.all.spans} {
			for _, w := range ws {
				w.count(e, h, 1)
			}
		}
	}
	if end != Never {
		heap.Push(&q.ends, timed{end, e})
	}
}

// overdue gives works that did not end when expected as much time again as
// they have had.
func (q *Queue) overdue() {
	for len(q.ends) > 0 && q.ends[0].at <= q.now {
		e := q.ends[0].e
		q.setEnd(e, q.now+max(q.now-e.live.start, 1_000_000))
	}
}

// Checkpointed says that what a running work did until then is safe.
func (q *Queue) Checkpointed(id string, at int64) bool {
	e := q.works[id]
	if e == nil || e.state != running {
		return false
	}
	e.live.saved = max(e.live.saved, at)
	return true
}

// Restore adds a work that runs already, whatever the limits: after a restart,
// or one that the queue did not start.
func (q *Queue) Restore(w Work, holds []Hold, start int64) error {
	if err := w.Check(); err != nil {
		return err
	}
	if q.works[w.ID] != nil {
		return fault.New(fault.Exists, "work %q is in the queue already", w.ID)
	}
	e := q.entry(w)
	q.begin(e, holds, start)
	q.charge(e.leaf, e.shape.ask, e.live.members)
	e.leaf.works++
	q.lift(e.leaf)
	return nil
}
