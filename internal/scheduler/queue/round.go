package queue

import (
	"cmp"
	"container/heap"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Round is one pass over what waits: everything is tried once, in order, but
// what cannot start for a reason that others of the pass have shown already.
// It is over when [Queue.Round] is called again. Works may be put, removed and
// ended while it goes on; room that this gives counts in the next.
type Round struct {
	q       *Queue
	round   int64
	cur     *entry
	most    int64  // members of cur that limits and windows let start
	grows   bool   // cur runs, and could have more members
	held    bool   // Allows refused a place to cur
	window  string // the window for which it did, "": none
	foreign bool   // for a window that serves others
	first   []*entry
	growing []*entry
	grown   bool
	stop    []bool // by resource: BackfillNone holds back what asks for it
}

// Offer is a work to try.
type Offer struct {
	*Work // not to be changed, nor kept after Start or Refuse
	// Least and Most are how many members may start now; of a running work that
	// may grow, how many more.
	Least, Most int
	// Reserved says that room was kept for it.
	Reserved bool
}

// refusal is why works of a shape did not start.
type refusal struct {
	at   int64
	id   string
	why  string
	held bool // room is kept for others
	// window is the one that keeps it; "": a reservation of another work does.
	window string
}

// Round begins a round.
func (q *Queue) Round(now int64) *Round {
	q.now = max(q.now, now)
	q.round++
	q.taken = 0
	q.overdue()
	for len(q.later) > 0 && q.later[0].at <= q.now {
		q.wait(heap.Pop(&q.later).(timed).e)
	}
	q.unpark()
	if q.stale || q.cfg.HalfLife > 0 {
		q.refresh(q.root)
		q.stale = false
	}
	r := &Round{q: q, round: q.round, first: slices.Clone(q.reserved)}
	slices.SortStableFunc(r.first, func(a, b *entry) int {
		switch {
		case q.overrides(a, b):
			return -1
		case q.overrides(b, a):
			return 1
		}
		return 0
	})
	return r
}

// Wake is the next time at which a round could start more, though nothing was
// put and nothing ended: a work's time comes, a window ends, what is kept for a
// work falls to it, or age or deadlines change the order. Never: none is known.
func (q *Queue) Wake() int64 {
	at := Never
	soon := func(t int64) {
		if t > q.now {
			at = min(at, t)
		}
	}
	if len(q.later) > 0 {
		soon(q.later[0].at)
	}
	for _, w := range q.windows {
		if w.owner != nil {
			soon(w.from)
		}
		soon(w.to)
	}
	for _, n := range q.leaves {
		if len(n.buckets) > 0 {
			soon(n.change)
		}
	}
	return at
}

// Next is the next work to try; false: there is none left. An offer that was
// neither started nor refused is refused.
func (r *Round) Next() (Offer, bool) {
	q := r.q
	if r.round != q.round {
		return Offer{}, false
	}
	if r.cur != nil {
		r.Refuse("", nil)
	}
	for len(r.first) > 0 {
		e := r.first[0]
		r.first = r.first[1:]
		if e.state != reserved {
			continue
		}
		if n, _ := e.leaf.above(e.shape.ask, int64(e.shape.min)); n != nil {
			q.unreserve(e)
			q.wait(e)
			continue
		}
		if r.look(e) {
			return r.offer(true), true
		}
		r.refuse("", nil)
	}
	for {
		n := q.root
		for len(n.ready) > 0 {
			n = n.ready[0]
		}
		if n == q.root || len(n.buckets) == 0 {
			return Offer{}, false
		}
		b := n.buckets[0]
		e, s := b.next, b.key.shape
		switch {
		case e.run >= q.blocked(s):
			q.seek(b)
		case r.stop != nil && r.stopped(s):
			q.park(b)
		case !q.enough(s) && !q.cfg.Preempt: // else the caller asks for victims
			r.cur, r.grows, r.held = e, false, false
			r.refuse("nothing has room for it", nil)
		default:
			if above, _ := n.above(s.ask, int64(s.min)); above != nil {
				q.park(b)
				continue
			}
			if r.look(e) {
				return r.offer(false), true
			}
			r.refuse("", nil)
		}
	}
}

// look makes e the current work and finds how much of it may start; false:
// windows of all places together let too little.
func (r *Round) look(e *entry) bool {
	q, s := r.q, e.shape
	q.ticks++
	r.cur, r.grows, r.held, r.foreign, r.window = e, false, false, false, ""
	r.most = int64(s.min)
	if s.max > s.min {
		r.most = e.leaf.most(s.ask, int64(s.max))
	}
	if len(q.all.spans) > 0 {
		r.most = r.may(&q.all, r.most)
	}
	return r.most >= int64(s.min)
}

func (r *Round) offer(kept bool) Offer {
	return Offer{Work: &r.cur.work, Least: r.cur.shape.min, Most: int(r.most), Reserved: kept}
}

// may is how many members of the current work may start at p.
func (r *Round) may(p *place, up int64) int64 {
	n := r.q.may(r.cur, p, up, r.q.now, nil)
	if n < up {
		r.held = true
		for _, w := range p.spans {
			r.foreign = r.foreign || w.tenant != "" && !w.serves(r.cur)
		}
		if r.window == "" {
			r.window = r.q.window(r.cur, p, up)
		}
	}
	return n
}

// enough says whether all places together have room for the least of a shape.
func (q *Queue) enough(s *shape) bool {
	for _, t := range s.ask {
		if q.known[t.r] > 0 && t.n*int64(s.min) > q.room[t.r] {
			return false
		}
	}
	return true
}

func (r *Round) stopped(s *shape) bool {
	for _, t := range s.ask {
		if t.r < len(r.stop) && r.stop[t.r] {
			return true
		}
	}
	return false
}

// Constrained says whether there is any window or reservation: if not, Allows
// says yes to everything.
func (r *Round) Constrained() bool { return len(r.q.windows) > 0 }

// Allows says how many members of the offered work, at most up to, may start at
// a place now without running into a window, or taking what is kept for others.
// It does not say that there is room, where nothing is kept.
func (r *Round) Allows(name string, up int) int {
	p := r.q.places[name]
	if p == nil || len(p.spans) == 0 || r.cur == nil {
		return up
	}
	return int(r.may(p, int64(up)))
}

// Start says that the offered work starts, or grows, as held.
func (r *Round) Start(holds []Hold) error {
	q, e := r.q, r.cur
	if e == nil || r.round != q.round {
		return fault.New(fault.Conflict, "no work is offered")
	}
	n := int64(0)
	for i := range holds {
		if holds[i].Members < 0 {
			return fault.New(fault.Invalid, "a hold has %d members", holds[i].Members)
		}
		n += int64(holds[i].Members)
	}
	least := int64(e.shape.min)
	if r.grows {
		least = 1
	}
	if n < least || n > r.most {
		return fault.New(fault.Invalid, "work %q may start with %d to %d members, got %d", e.work.ID, least, r.most, n)
	}
	r.cur = nil
	if r.grows {
		q.settle(e, holds)
		if e.live.members >= int64(e.shape.max) {
			delete(q.elastic, e)
		}
	} else {
		leaf := e.leaf
		leaf.starts[leaf.count%rateWindow] = q.now
		leaf.count++
		q.waiting--
		q.charge(leaf, e.shape.ask, n)
		leaf.works++
		if e.state == reserved {
			q.unreserve(e)
			q.lift(leaf)
		} else {
			q.take(e) // this lifts the leaf too
		}
		q.begin(e, holds, q.now)
		return nil
	}
	q.charge(e.leaf, e.shape.ask, n)
	q.lift(e.leaf)
	return nil
}

// Shadow is when and where a waiting work can start.
type Shadow struct {
	At    int64 // Never: cannot be computed
	Holds []Hold
}

// Refuse says that nothing has room for the offered work, and why. Shadow,
// which is asked only where the work gets a reservation, is when and where it
// can start; nil: the queue computes it from amounts (see [Queue.Shadow]).
func (r *Round) Refuse(why string, shadow func(*Work) (Shadow, bool)) {
	if r.cur != nil && r.round == r.q.round {
		r.refuse(why, shadow)
	}
}

func (r *Round) refuse(why string, shadow func(*Work) (Shadow, bool)) {
	q, e := r.q, r.cur
	r.cur = nil
	if r.grows {
		return
	}
	ref := &refusal{at: q.now, id: e.work.ID, why: why, held: r.held, window: r.window}
	b := e.bucket
	switch {
	case r.held && r.foreign:
		e.shape.refusal = ref
		if b != nil {
			q.park(b) // the window is there for others, who may ask for the same
		}
	case r.held:
		q.block(e.shape, e.run, ref)
	default:
		q.block(e.shape, 0, ref)
	}
	switch q.cfg.Backfill {
	case BackfillReserve:
		q.reserve(e, shadow)
	case BackfillNone:
		if r.stop == nil {
			r.stop = make([]bool, len(q.names))
		}
		for _, t := range e.shape.ask {
			r.stop[t.r] = true
		}
	}
}

// block keeps works of a shape that run as long from being tried in this round.
func (q *Queue) block(s *shape, run int64, why *refusal) {
	if s.round != q.round {
		s.round, s.blocked = q.round, Never
	}
	s.blocked = min(s.blocked, run)
	s.refusal = why
	for _, b := range s.buckets {
		if b.pos >= 0 && b.next.run >= s.blocked {
			q.seek(b)
		}
	}
}

// reserve keeps room for a refused work, if it is its turn for that.
func (q *Queue) reserve(e *entry, shadow func(*Work) (Shadow, bool)) {
	promised := Never
	if e.state == reserved {
		if w := e.spans[0]; !w.block && w.from > q.now {
			if e.early == q.early {
				return // not yet
			}
			promised = w.from // something ended early: perhaps sooner
		}
	} else if len(q.reserved) >= q.cfg.Reservations {
		starved := 0
		for _, f := range q.reserved {
			if q.now-f.work.Arrival >= q.cfg.StarveAfter {
				starved++
			}
		}
		if q.now-e.work.Arrival < q.cfg.StarveAfter || starved >= q.cfg.Reservations {
			return
		}
	}
	e.early = q.early
	var s Shadow
	var ok bool
	if shadow != nil {
		s, ok = shadow(&e.work)
	} else {
		s, ok = q.shadow(e, q.where(e, nil))
		ok = ok && s.At > q.now
	}
	if promised < Never && (!ok || s.At >= promised) {
		return
	}
	block := s.At == Never
	if block && q.now-e.work.Arrival < q.cfg.BlockAfter {
		ok = false
	}
	if !ok || len(s.Holds) == 0 {
		if e.state == reserved {
			q.unreserve(e)
			q.wait(e)
		}
		return
	}
	if e.state == waiting {
		q.take(e)
		e.state = reserved
		q.reserved = append(q.reserved, e)
		q.turns++
		e.turn = q.turns
	}
	q.unspan(e)
	from, to := max(s.At, q.now), Never
	if block {
		from = q.now
	} else if e.run < unknownRun {
		to = from + e.run
	}
	for _, h := range s.Holds {
		a := make([]int64, len(q.names))
		if h.Amounts != nil {
			a = q.dense(h.Amounts)
		} else {
			for _, t := range e.shape.ask {
				a[t.r] = t.n * int64(h.Members)
			}
		}
		w := &span{id: "work " + e.work.ID, at: q.place(h.Place), from: from, to: to, amounts: a, owner: e, block: block}
		e.spans = append(e.spans, w)
		q.addSpan(w)
	}
}

func (q *Queue) unspan(e *entry) {
	for _, w := range e.spans {
		q.removeSpan(w)
	}
	e.spans = e.spans[:0]
}

// unreserve gives up what is kept for e.
func (q *Queue) unreserve(e *entry) {
	if len(e.spans) > 0 && e.spans[0].from > q.now {
		q.early++ // others may do so too
	}
	q.unspan(e)
	e.spans = nil
	e.state = gone
	q.reserved = slices.DeleteFunc(q.reserved, func(f *entry) bool { return f == e })
}

// Grow offers running works that could have more members, after Next found
// none left: higher priorities first, then lower shares, then arrival. Start
// adds members.
func (r *Round) Grow() (Offer, bool) {
	q := r.q
	if r.round != q.round {
		return Offer{}, false
	}
	if r.cur != nil {
		r.Refuse("", nil)
	}
	if !r.grown {
		r.grown = true
		for e := range q.elastic {
			r.growing = append(r.growing, e)
		}
		slices.SortFunc(r.growing, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(b.work.Priority, a.work.Priority), a.leaf.share.compare(&b.leaf.share),
				cmp.Compare(a.work.Arrival, b.work.Arrival), cmp.Compare(a.work.ID, b.work.ID))
		})
	}
	for len(r.growing) > 0 {
		e := r.growing[0]
		r.growing = r.growing[1:]
		if !q.elastic[e] {
			continue
		}
		q.ticks++
		r.cur, r.grows, r.held = e, true, false
		r.most = e.leaf.most(e.shape.ask, int64(e.shape.max)-e.live.members)
		for _, t := range e.shape.ask {
			if q.known[t.r] > 0 {
				r.most = min(r.most, q.room[t.r]/t.n)
			}
		}
		if len(q.all.spans) > 0 && r.most > 0 {
			r.most = r.may(&q.all, r.most)
		}
		if r.most > 0 {
			return Offer{Work: &e.work, Least: 1, Most: int(r.most)}, true
		}
		r.cur = nil
	}
	return Offer{}, false
}
