package sim

import (
	"fmt"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler/forecast"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// line is the queue of a simulation: the platform's own, which knows jobs by
// their ID.
type line struct {
	*queue.Queue
	s      *sim
	byID   map[string]int32
	shapes map[askKey]*lineShape
	of     []*lineShape // by job
	places map[string]int32
	runs   *forecast.Model // nil: run times are not forecast
	stated bool            // jobs say how long they run; only where that is forecast
}

// lineShape is what jobs that ask for the same share.
type lineShape struct {
	name    string
	amounts queue.Amounts // of a replica
	single  queue.Amounts // of one card, where it may be split
	only    []string      // places that could take it; nil: all
	asked   bool          // only is known
}

func (s *sim) newLine() (*line, error) {
	cfg := s.cfg.Queue.Config
	for _, t := range s.in.Tenants {
		cfg.Tenants = append(cfg.Tenants, queue.Tenant{Name: t.ID, Parent: t.Parent, Weight: t.Weight, Guaranteed: t.Guaranteed, Borrowable: t.Borrowable, Limit: t.Limit})
	}
	q, err := queue.New(cfg)
	if err != nil {
		return nil, err
	}
	l := &line{Queue: q, s: s, byID: make(map[string]int32, len(s.jobs)), shapes: map[askKey]*lineShape{}, of: make([]*lineShape, len(s.jobs)), places: map[string]int32{}}
	if s.cfg.Queue.Forecast {
		l.runs, l.stated = &forecast.Model{}, statesRuns(s.jobs)
	}
	for p := range int32(len(s.in.Nodes) + len(s.in.Centers)) {
		l.places[s.name(int(p))] = p
		if err := l.setPlace(p); err != nil {
			return nil, err
		}
	}
	for i := range s.jobs {
		l.byID[s.jobs[i].ID] = int32(i)
	}
	return l, nil
}

// setPlace tells the queue what there is at a place.
func (l *line) setPlace(p int32) error {
	if in := l.s.in; len(in.Nodes) > 0 {
		n := &in.Nodes[p]
		return l.SetPlace(n.ID, amounts(n.CPU, n.Memory, int64(n.Cards)*pack.Whole, nil))
	}
	c := &l.s.in.Centers[p]
	return l.SetPlace(c.ID, amounts(c.CPU, c.Memory, c.Cards*pack.Whole, c.Resources))
}

// amounts in the units in which tenants' shares are stated.
func amounts(cpu, memory, cards int64, more map[string]int64) queue.Amounts {
	a := queue.Amounts{}
	for name, n := range more {
		a[name] = n
	}
	for _, x := range []struct {
		name string
		n    int64
	}{{core.CPU, cpu}, {core.Memory, memory}, {cardName, cards}} {
		if x.n > 0 {
			a[x.name] += x.n
		}
	}
	return a
}

func (l *line) shape(i int32) *lineShape {
	if l.of[i] != nil {
		return l.of[i]
	}
	j := &l.s.jobs[i]
	k := askKey{j.Ask.CPU, j.Ask.Memory, j.Ask.Cards, j.Ask.Share, strings.Join(j.Ask.Models, "|"), j.Kind + "\x00" + j.Spec, j.Split, len(j.Resources) > 0}
	if len(j.Resources) > 0 {
		k.kind += fmt.Sprint(j.Resources) // in the order of names
	}
	if j.Work != nil {
		k.kind += constraints(j.Work)
	}
	for _, d := range j.Data {
		k.kind += fmt.Sprintf("\x00%s %d %v", d.Dataset, d.Bytes, d.Stay)
	}
	s := l.shapes[k]
	if s == nil {
		s = &lineShape{name: strconv.Itoa(len(l.shapes)), amounts: amounts(j.Ask.CPU, j.Ask.Memory, j.Ask.Demand(), j.Resources)}
		if n := int64(j.Ask.Cards); n > 1 && j.Split {
			s.single = amounts(j.Ask.CPU/n, j.Ask.Memory/n, int64(j.Ask.Share), nil)
		}
		l.shapes[k] = s
	}
	l.of[i] = s
	return s
}

// constraints of a recorded work, as far as they decide where it can go.
func constraints(w *place.Work) string {
	var b strings.Builder
	for i := range w.Tasks {
		t := &w.Tasks[i]
		fmt.Fprintf(&b, "|%s %s %v %v %d %d %q %d", t.Spec, t.Image, t.Pinned, t.Regions, t.MinGrade, t.MaxPrice.Value, t.Expression, t.Replicas)
		if len(t.Rules) > 0 { // by which each has its own places
			fmt.Fprintf(&b, " %s", w.ID)
		}
	}
	return b.String()
}

// put lets a job wait.
func (l *line) put(i int32) error {
	j, life := &l.s.jobs[i], &l.s.lives[i]
	run := l.expected(i)
	if run > 0 && life.left != Forever {
		run = max(run-(j.Run-life.left), Second)
	}
	shape := l.shape(i)
	tenant := j.Tenant
	if tenant == "" {
		tenant = "-" // the queue wants a name
	}
	return l.Put(queue.Work{ID: j.ID, Tenant: tenant, Priority: j.Priority, Arrival: j.Arrival, Shape: shape.name, Amounts: shape.amounts,
		Min: j.least(), Max: j.Replicas, Run: run, NotBefore: j.NotBefore, Deadline: j.Deadline, Keep: !j.Preemptible, Places: l.s.able(i)})
}

func (l *line) ended(i int32) { l.Ended(l.s.jobs[i].ID, l.s.m.now) }

// round tries what waits, in the order of the queue; then once more, if work
// was taken back, which may find room elsewhere.
func (s *sim) round() error {
	s.hunted = 0
	if err := s.pass(); err != nil || len(s.evicted) == 0 {
		return err
	}
	for _, i := range s.evicted {
		if err := s.line.put(i); err != nil {
			return err
		}
	}
	s.evicted, s.hunted = s.evicted[:0], tries
	return s.pass()
}

func (s *sim) pass() error {
	if s.line.Len() == 0 && !s.elastic {
		return nil
	}
	r := s.line.Round(s.m.now)
	for o, ok := r.Next(); ok; o, ok = r.Next() {
		i, known := s.line.byID[o.ID]
		if !known || s.lives[i].phase != waiting {
			return fmt.Errorf("%w: %s", errNoTurn, o.ID)
		}
		at, ok, err := s.try(i, r, o.Least, o.Most)
		if err != nil {
			return err
		}
		if !ok && s.cfg.Queue.Config.Preempt {
			if at, ok, err = s.makeRoom(i, r, o); err != nil {
				return err
			}
		}
		if !ok {
			r.Refuse("nothing has room for it", nil)
			continue
		}
		holds := s.holdsOf(i, at)
		s.counts.Waiting--
		s.begin(i, at)
		if err := r.Start(holds); err != nil {
			return fmt.Errorf("start job %s: %w", s.jobs[i].ID, err)
		}
	}
	return s.growAll(r)
}

// growAll gives running elastic jobs the room that is left.
func (s *sim) growAll(r *queue.Round) error {
	for o, ok := r.Grow(); ok; o, ok = r.Grow() {
		i, known := s.line.byID[o.ID]
		if !known || s.lives[i].phase != running {
			return fmt.Errorf("%w: %s", errNoTurn, o.ID)
		}
		at, ok, err := s.try(i, r, 1, o.Most)
		if err != nil {
			return err
		}
		if !ok {
			r.Refuse("", nil)
			continue
		}
		if err := r.Start(s.holdsOf(i, at)); err != nil {
			return fmt.Errorf("grow job %s: %w", s.jobs[i].ID, err)
		}
		s.grow(i, at)
	}
	return nil
}

// try looks for places that the queue does not keep for others.
func (s *sim) try(i int32, r *queue.Round, least, most int) (at seat, ok bool, err error) {
	var shut []int32
	defer func() { s.room.shut(shut, false) }()
	for {
		s.res.Decisions++
		if at, ok, err = s.room.place(i, least, most); err != nil || !ok || !r.Constrained() {
			return at, ok, err
		}
		full := len(shut)
		for k, x := range at.spots {
			n := 0
			for _, y := range at.spots { // replicas there
				if y.at == x.at {
					n += int(y.n)
				}
			}
			if s.isSplit(i, at) {
				n = 1 // cards one by one
			}
			if first := at.first(k); first == k && r.Allows(s.name(int(x.at)), n) < n {
				shut = append(shut, x.at)
			}
		}
		if len(shut) == full {
			return at, true, nil
		}
		s.room.release(i, at)
		s.room.shut(shut[full:], true)
	}
}

// first is the first spot at the place of spot k.
func (s *seat) first(k int) int {
	for i := range s.spots {
		if s.spots[i].at == s.spots[k].at {
			return i
		}
	}
	return k
}

func (s *sim) name(at int) string {
	if len(s.in.Nodes) > 0 {
		return s.in.Nodes[at].ID
	}
	return s.in.Centers[at].ID
}

// isSplit reports whether the cards of a job's replicas are given one by one.
func (s *sim) isSplit(i int32, at seat) bool {
	return len(s.in.Nodes) > 0 && len(at.spots) > s.jobs[i].Replicas
}

// holdsOf says to the queue what a job has where.
func (s *sim) holdsOf(i int32, at seat) []queue.Hold {
	j := &s.jobs[i]
	split := s.isSplit(i, at)
	var out []queue.Hold
	for k, x := range at.spots {
		h := queue.Hold{Place: s.name(int(x.at)), Members: int(x.n)}
		if split {
			h.Amounts, h.Members = s.line.shape(i).single, 0
			if k < j.Replicas {
				h.Members = 1
			}
		} else if f := at.first(k); f != k {
			continue
		} else {
			for _, y := range at.spots[k+1:] {
				if y.at == x.at {
					h.Members += int(y.n)
				}
			}
		}
		out = append(out, h)
	}
	return out
}

// why says what holds a job back.
func (l *line) why(i int32) string {
	x, ok := l.Explain(l.s.jobs[i].ID, l.s.m.now)
	if !ok {
		return ""
	}
	return x.Text
}

// hunt is a search for victims as far as others are the same.
type hunt struct {
	shape    *lineShape
	tenant   int32
	replicas int
	priority int64
}

// makeRoom takes back the cheapest running work that gives a job its room, and
// places it.
func (s *sim) makeRoom(i int32, r *queue.Round, offer queue.Offer) (seat, bool, error) {
	j := &s.jobs[i]
	h := hunt{s.line.shape(i), s.lives[i].tenant, j.Replicas, j.Priority}
	if at, ok := s.failed[h]; s.hunted >= tries || ok && s.m.now-at < again {
		return seat{}, false, nil
	}
	s.hunted++
	s.saved()
	o := queue.VictimsOptions{Spread: j.Replicas > 1, Steps: searches}
	if p, ok := s.room.(*pool); ok {
		room := p.withoutSome(i)
		o.Fits = func(places []string, gone []queue.Victim) bool {
			return room(places, s.line.places, len(gone), func(k int) (int32, seat) {
				g := s.line.byID[gone[k].ID]
				return g, s.lives[g].seat
			})
		}
	}
	plan, ok := s.line.Victims(j.ID, s.m.now, o)
	for _, v := range plan.Victims {
		l := &s.lives[s.line.byID[v.ID]]
		ok = ok && s.m.now-l.start >= protected<<min(l.runs-1, 20)
	}
	if !ok {
		s.failed[h] = s.m.now
		return seat{}, false, nil
	}
	for _, v := range plan.Victims {
		s.takeBack(s.line.byID[v.ID])
	}
	return s.try(i, r, offer.Least, offer.Most)
}

// Searches for victims in a round, and what one of them looks at.
const (
	tries    = 4
	searches = 500
	// again is how long after a search that found nothing the same is not searched
	// again.
	again = 60 * Second
	// protected is how long a run is left alone at first; twice as long each time
	// the job was taken back. Else two works with a claim on each other's room,
	// one by priority, one by guarantee, could take turns for ever.
	protected = 300 * Second
)

// saved tells the queue of the checkpoints that were written, once in a round.
func (s *sim) saved() {
	if s.hunted > 1 {
		return
	}
	for _, e := range s.ends {
		j, l := &s.jobs[e.job], &s.lives[e.job]
		if ran := s.ran(l); s.comes(e) && j.Checkpoint > 0 && ran >= j.Checkpoint {
			s.line.Checkpointed(j.ID, s.m.now-ran%j.Checkpoint)
		}
	}
}

// able are the places that could take a replica of a job if they were empty.
func (s *sim) able(i int32) []string {
	sh := s.line.shape(i)
	if !sh.asked {
		sh.only, sh.asked = s.room.able(i), true
	}
	return sh.only
}
