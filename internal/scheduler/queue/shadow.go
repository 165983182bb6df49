package queue

import (
	"cmp"
	"container/heap"
	"slices"
)

// Shadow computes when and where a waiting work can start: the first time at
// which enough of what runs is expected to have ended, with what is kept for
// others left alone, by amounts at each place. Only the places named are
// looked at; nil: all. At is Never where ends are not known but the places are
// large enough; Holds are then the places with most room now. False: they are
// too small.
func (q *Queue) Shadow(id string, only []string) (Shadow, bool) {
	e := q.works[id]
	if e == nil || e.state == running {
		return Shadow{}, false
	}
	return q.shadow(e, q.where(e, only))
}

// where are the places that e can go to, of those named, by name.
func (q *Queue) where(e *entry, only []string) []*place {
	if e.shape.places == nil && only == nil {
		return q.sorted
	}
	names := e.shape.places
	if only != nil {
		if names = only; e.shape.places != nil {
			names = slices.DeleteFunc(slices.Clone(only), func(n string) bool { return !slices.Contains(e.shape.places, n) })
		}
	}
	var out []*place
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if p := q.places[name]; p != nil {
			out = append(out, p)
		}
	}
	return out
}

func (q *Queue) shadow(e *entry, places []*place) (Shadow, bool) {
	least := int64(e.shape.min)
	f := forecast{q: q, e: e, least: least}
	q.marks++
	q.ticks++
	ceiling := int64(0)
	for _, p := range places {
		if !p.declared {
			continue
		}
		n := q.empty(e, p, least)
		if n == 0 || e.shape.onePlace && n < least {
			continue
		}
		ceiling += n
		p.mark, p.slot = q.marks, len(f.here)
		f.here = append(f.here, prospect{p: p, held: p.held})
	}
	if ceiling < least {
		return Shadow{}, false
	}
	if f.run(q.now) {
		return Shadow{At: f.now, Holds: f.pick()}, true
	}
	// Not by what is known. As much as fits when all is empty, where most is free.
	free := make([]int64, len(f.here))
	for k := range f.here {
		h := &f.here[k]
		h.n = q.empty(e, h.p, least)
		free[k] = q.fit(e, h.p, least, q.now, h.p.held)
	}
	f.order = func(a, b int) int {
		return cmp.Or(cmp.Compare(f.here[b].n, f.here[a].n), cmp.Compare(free[b], free[a]))
	}
	return Shadow{At: Never, Holds: f.pick()}, true
}

// forecast follows the expected ends of what runs until a work has room.
type forecast struct {
	q     *Queue
	e     *entry
	least int64
	here  []prospect
	now   int64
	sum   int64 // of members that may start, over all places
	full  int   // places where all may
	order func(a, b int) int
}

// prospect is a place as it will be.
type prospect struct {
	p    *place
	held []int64
	own  bool  // held is not the place's
	n    int64 // members that may start
}

// look counts anew what may start at a place.
func (f *forecast) look(k int) {
	h := &f.here[k]
	n := f.q.may(f.e, h.p, f.least, f.now, h.held)
	if h.n >= f.least {
		f.full--
	}
	if n >= f.least {
		f.full++
	}
	f.sum += n - h.n
	h.n = n
}

func (f *forecast) done() bool { return f.full > 0 || !f.e.shape.onePlace && f.sum >= f.least }

// run goes forward until there is room; false: there never is, by what is known.
func (f *forecast) run(now int64) bool {
	q := f.q
	f.now = now
	var spanned []int // places where windows change what may start later
	for k := range f.here {
		f.look(k)
		if len(f.here[k].p.spans) > 0 {
			spanned = append(spanned, k)
		}
	}
	var opens []timed // windows that end
	for _, w := range q.windows {
		if w.to != Never && w.to > now && w.owner != f.e && w.at.mark == q.marks {
			opens = append(opens, timed{at: w.to})
		}
	}
	slices.SortFunc(opens, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	// The heap of ends is read in order without being changed.
	var next positions
	if len(q.ends) > 0 {
		next = positions{{q.ends[0].at, 0}}
	}
	var touched []int
	for !f.done() && (len(next) > 0 || len(opens) > 0) {
		at := Never
		if len(next) > 0 {
			at = next[0].at
		}
		if len(opens) > 0 {
			at = min(at, opens[0].at)
		}
		f.now = max(f.now, at)
		touched = touched[:0]
		for len(next) > 0 && next[0].at <= at {
			i := next[0].i
			heap.Pop(&next)
			for c := 2*i + 1; c <= 2*i+2 && c < len(q.ends); c++ {
				heap.Push(&next, position{q.ends[c].at, c})
			}
			touched = f.release(q.ends[i].e, touched)
		}
		for len(opens) > 0 && opens[0].at <= at {
			opens = opens[1:]
		}
		for _, k := range touched {
			f.look(k)
		}
		for _, k := range spanned {
			f.look(k)
		}
	}
	return f.done()
}

// release takes out what a work holds.
func (f *forecast) release(v *entry, touched []int) []int {
	for i := range v.live.holds {
		x := &v.live.holds[i]
		if x.place.mark != f.q.marks {
			continue
		}
		h := &f.here[x.place.slot]
		if !h.own {
			h.held, h.own = slices.Clone(h.held), true
		}
		for _, t := range x.terms(v) {
			h.held[t.r] -= t.n * x.times()
		}
		touched = append(touched, x.place.slot)
	}
	return touched
}

// pick takes the places where most may start.
func (f *forecast) pick() []Hold {
	order := make([]int, 0, len(f.here))
	for k := range f.here {
		if f.here[k].n > 0 {
			order = append(order, k)
		}
	}
	if f.order == nil {
		f.order = func(a, b int) int { return cmp.Compare(f.here[b].n, f.here[a].n) }
	}
	slices.SortStableFunc(order, f.order)
	var out []Hold
	left := f.least
	for _, k := range order {
		if n := min(left, f.here[k].n); n > 0 {
			out = append(out, Hold{Place: f.here[k].p.name, Members: int(n)})
			left -= n
		}
	}
	return out
}

// position is an element of a heap, by its time.
type position struct {
	at int64
	i  int
}

type positions []position

func (h positions) Len() int           { return len(h) }
func (h positions) Less(i, j int) bool { return h[i].at < h[j].at }
func (h positions) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *positions) Push(x any)        { *h = append(*h, x.(position)) }
func (h *positions) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
