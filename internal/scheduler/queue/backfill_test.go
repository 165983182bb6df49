package queue_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// yard plays works on places whose runs end exactly when expected. It checks
// at every event that no place holds more than it has.
type yard struct {
	t        testing.TB
	fail     func(string, ...any)
	q        *queue.Queue
	capacity map[string]queue.Amounts
	free     map[string]queue.Amounts
	runs     map[string]*yardRun
	coming   []queue.Work // by arrival
	now      int64
	started  map[string]int64
	ends     map[string]int64
	// each is called after every round.
	each func()
	// limited: how long a run really takes, where that is not what is expected
	real map[string]int64
}

type yardRun struct {
	w     queue.Work
	holds []queue.Hold
	end   int64
}

func newYard(t testing.TB, fail func(string, ...any), c queue.Config, capacity map[string]queue.Amounts) *yard {
	q, err := queue.New(c)
	if err != nil {
		fail("%v", err)
	}
	y := &yard{t: t, fail: fail, q: q, capacity: capacity, free: map[string]queue.Amounts{}, runs: map[string]*yardRun{}, started: map[string]int64{}, ends: map[string]int64{}, real: map[string]int64{}}
	for name, a := range capacity {
		y.free[name] = maps.Clone(a)
		if err := q.SetPlace(name, a); err != nil {
			fail("%v", err)
		}
	}
	return y
}

// fit is how many members have room at a place.
func (y *yard) fit(w *queue.Work, place string, most int) int {
	for name, a := range w.Amounts {
		if a > 0 {
			most = min(most, int(y.free[place][name]/a))
		}
	}
	return most
}

func (y *yard) give(w *queue.Work, holds []queue.Hold, sign int64) {
	for _, h := range holds {
		for name, a := range w.Amounts {
			y.free[h.Place][name] -= sign * a * int64(h.Members)
			if y.free[h.Place][name] < 0 || y.free[h.Place][name] > y.capacity[h.Place][name] {
				y.fail("%s has %d %s free of %d", h.Place, y.free[h.Place][name], name, y.capacity[h.Place][name])
			}
		}
	}
}

// round starts what it can, first place first.
func (y *yard) round() {
	r := y.q.Round(y.now)
	place := func(o queue.Offer) bool {
		var holds []queue.Hold
		left := o.Most
		for _, p := range slices.Sorted(maps.Keys(y.capacity)) {
			n := y.fit(o.Work, p, left)
			if n = r.Allows(p, n); o.OnePlace && n < o.Least {
				continue
			}
			if n > 0 {
				holds = append(holds, queue.Hold{Place: p, Members: n})
				left -= n
			}
			if o.OnePlace {
				break
			}
		}
		if o.Most-left < o.Least {
			return false
		}
		y.give(o.Work, holds, 1)
		if x := y.runs[o.ID]; x != nil {
			x.holds = append(x.holds, holds...)
		} else {
			run, ok := y.real[o.ID]
			if !ok {
				run = o.Run
			}
			y.runs[o.ID] = &yardRun{*o.Work, holds, y.now + run}
			y.started[o.ID] = y.now
		}
		if err := r.Start(holds); err != nil {
			y.fail("%v", err)
		}
		return true
	}
	for o, ok := r.Next(); ok; o, ok = r.Next() {
		if !place(o) {
			r.Refuse("full", nil)
		}
	}
	for o, ok := r.Grow(); ok; o, ok = r.Grow() {
		if !place(o) {
			r.Refuse("full", nil)
		}
	}
	if y.each != nil {
		y.each()
	}
}

// step goes to the next event; false: there is none.
func (y *yard) step() bool {
	at := y.q.Wake()
	if len(y.coming) > 0 {
		at = min(at, y.coming[0].Arrival)
	}
	for _, x := range y.runs {
		at = min(at, x.end)
	}
	if at == queue.Never {
		return false
	}
	y.now = at
	for _, id := range slices.Sorted(maps.Keys(y.runs)) {
		if x := y.runs[id]; x.end <= at {
			y.give(&x.w, x.holds, -1)
			delete(y.runs, id)
			y.ends[id] = at
			if !y.q.Ended(id, at) {
				y.fail("%s does not run", id)
			}
		}
	}
	for len(y.coming) > 0 && y.coming[0].Arrival <= at {
		if err := y.q.Put(y.coming[0]); err != nil {
			y.fail("%v", err)
		}
		y.coming = y.coming[1:]
	}
	y.round()
	return true
}

// TestReservationKept: with true run times a work that was promised a start
// starts then, or earlier, whatever passes it; and everything runs in the end.
func TestReservationKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := queue.Config{Order: rapid.SampledFrom([]queue.Order{queue.FairShare, queue.PriorityOrder, queue.FirstCome}).Draw(rt, "order"), Reservations: rapid.IntRange(1, 4).Draw(rt, "reservations")}
		capacity := map[string]queue.Amounts{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "places") {
			capacity[fmt.Sprint("p", i)] = queue.Amounts{"gpu": 8, "cpu": 20}
		}
		y := newYard(t, rt.Fatalf, cfg, capacity)
		n := rapid.IntRange(1, 40).Draw(rt, "works")
		for i := range n {
			w := job(fmt.Sprintf("w%02d", i), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "tenant"), rapid.Int64Range(1, 40).Draw(rt, "arrival")*minute, rapid.Int64Range(0, 8).Draw(rt, "gpu"))
			w.Amounts["cpu"] = rapid.Int64Range(0, 6).Draw(rt, "cpu")
			w.Run = rapid.Int64Range(1, 30).Draw(rt, "run") * minute
			w.OnePlace = rapid.Bool().Draw(rt, "one place")
			if w.Amounts["gpu"] <= 4 && len(capacity) > 1 {
				w.Min = rapid.IntRange(1, 2*len(capacity)).Draw(rt, "gang")
				w.OnePlace = w.OnePlace && w.Min <= 2
			}
			y.coming = append(y.coming, w)
		}
		slices.SortFunc(y.coming, func(a, b queue.Work) int {
			return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), strings.Compare(a.ID, b.ID))
		})
		promise := map[string]int64{}
		y.each = func() {
			for i := range n {
				id := fmt.Sprintf("w%02d", i)
				x, ok := y.q.Explain(id, y.now)
				if !ok || x.Cause != queue.CauseReserved {
					continue
				}
				if p, was := promise[id]; was && x.Start > p {
					rt.Fatalf("%s was promised %d, now %d", id, p, x.Start)
				}
				promise[id] = x.Start
			}
		}
		for y.step() {
		}
		for i := range n {
			id := fmt.Sprintf("w%02d", i)
			s, ok := y.started[id]
			if !ok {
				rt.Fatalf("%s never started", id)
			}
			if p, ok := promise[id]; ok && s > p {
				rt.Fatalf("%s was promised %d and started at %d", id, p, s)
			}
		}
	})
}
