package sim

import (
	"cmp"
	"container/heap"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// turn is when a place fails, or is repaired.
type turn struct {
	at    int64
	place int32
	down  bool
	drawn bool // the next one follows from it
}

type turns []turn

func (h turns) Len() int { return len(h) }
func (h turns) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	if c := cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.place, b.place)); c != 0 {
		return c < 0
	}
	return a.down && !b.down // a place that fails as it is repaired stays down
}
func (h turns) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *turns) Push(x any)   { *h = append(*h, x.(turn)) }
func (h *turns) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// outages are the failures of a run. A nil one knows of none.
type outages struct {
	turns turns
	down  []int32 // by place: for how many reasons it is down
	since []int64
	here  []map[int32]bool // by place: jobs that run there
	dice  map[int32]*rand.Rand
	hours exact
	n     int64
}

// newOutages is nil where nothing fails.
func newOutages(in *Input, seed uint64) *outages {
	o := &outages{dice: map[int32]*rand.Rand{}}
	index := map[string]int32{}
	k := int32(0)
	from := Forever
	for i := range in.Jobs {
		from = min(from, in.Jobs[i].Arrival)
	}
	add := func(id string, s *Supply) {
		index[id] = k
		if s.MTBF > 0 {
			h := fnv.New64a()
			h.Write([]byte(id))
			o.dice[k] = rand.New(rand.NewPCG(seed, h.Sum64()))
			o.turns = append(o.turns, turn{at: after(from, o.draw(k, s.MTBF)), place: k, down: true, drawn: true})
		}
		k++
	}
	for i := range in.Nodes {
		add(in.Nodes[i].ID, &in.Nodes[i].Supply)
	}
	for i := range in.Centers {
		add(in.Centers[i].ID, &in.Centers[i].Supply)
	}
	for _, x := range in.Outages {
		if p, ok := index[x.Place]; ok {
			o.turns = append(o.turns, turn{at: max(x.At, from), place: p, down: true}, turn{at: max(x.At+x.Long, from), place: p})
		}
	}
	if len(o.turns) == 0 {
		return nil
	}
	heap.Init(&o.turns)
	o.down, o.since, o.here = make([]int32, k), make([]int64, k), make([]map[int32]bool, k)
	return o
}

// after adds without overflow.
func after(at, more int64) int64 {
	if at > math.MaxInt64/2 || more > math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return at + more
}

// draw draws a time with a mean, at least a second.
func (o *outages) draw(place int32, mean int64) int64 {
	return max(int64(min(o.dice[place].ExpFloat64()*float64(mean), float64(MaxTime))), Second)
}

// next is when something fails or is repaired next, as long as there is work.
func (o *outages) next(work bool) int64 {
	if o == nil || !work || len(o.turns) == 0 {
		return math.MaxInt64
	}
	return o.turns[0].at
}

func (o *outages) begin(i int32, s *seat) {
	if o == nil {
		return
	}
	for _, x := range s.spots {
		if o.here[x.at] == nil {
			o.here[x.at] = map[int32]bool{}
		}
		o.here[x.at][i] = true
	}
}

func (o *outages) leave(i int32, s *seat) {
	if o == nil {
		return
	}
	for _, x := range s.spots {
		delete(o.here[x.at], i)
	}
}

// finish counts what is down when the time is over.
func (o *outages) finish(s *sim) {
	if o == nil {
		return
	}
	for p, n := range o.down {
		if n > 0 {
			o.hours.add(1, s.m.now-o.since[p])
		}
	}
	s.res.Failures.Outages, s.res.Failures.DownHours = o.n, o.hours.over(Hour)
}

// fail has places fail, and be repaired, whose time it is.
func (s *sim) fail() error {
	o := s.outages
	if o == nil {
		return nil
	}
	for len(o.turns) > 0 && o.turns[0].at <= s.m.now {
		t := heap.Pop(&o.turns).(turn)
		if t.drawn {
			mean := s.supply(int(t.place)).MTBF
			if t.down {
				mean = s.supply(int(t.place)).MTTR
			}
			heap.Push(&o.turns, turn{at: after(t.at, o.draw(t.place, mean)), place: t.place, down: !t.down, drawn: true})
		}
		var err error
		if t.down {
			err = s.breaks(t.place)
		} else {
			err = s.mends(t.place)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sim) breaks(p int32) error {
	o := s.outages
	if o.down[p]++; o.down[p] > 1 {
		return nil
	}
	o.since[p] = s.m.now
	o.n++
	s.tell(Fails, -1, seat{spots: []spot{{at: p}}})
	for _, i := range slices.Sorted(maps.Keys(o.here[p])) {
		s.interrupt(i, Interrupt, &s.m.broken)
		s.res.Failures.Interrupted++
		if err := s.line.put(i); err != nil {
			return err
		}
	}
	s.room.shut([]int32{p}, true)
	s.line.RemovePlace(s.name(int(p)))
	return nil
}

func (s *sim) mends(p int32) error {
	o := s.outages
	if o.down[p]--; o.down[p] > 0 {
		return nil
	}
	o.hours.add(1, s.m.now-o.since[p])
	s.tell(Repaired, -1, seat{spots: []spot{{at: p}}})
	s.room.shut([]int32{p}, false)
	return s.line.setPlace(p)
}
