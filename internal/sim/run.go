package sim

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Config says how a workload is played.
type Config struct {
	Policy Policy
	Queue  Queue
	Seed   uint64
	// Fill, if above 0, is the measure of Weng et al.: jobs are drawn at random
	// with replacement until they have asked for that many times the cards there
	// are; they do not end, and what does not fit when it comes is dropped.
	Fill float64
	// Watch is called with the time before it goes on, and what there is of the
	// result: counts. It may wait, so that people can follow. An error ends the run, whose result is then Partial.
	Watch func(now int64, r *Result) error
	// Log is called for every event; it must not keep what it is given.
	Log func(Event)
	// Decided is called with the score table of every decision about a center,
	// those that found no room too. Tables are made only for it.
	Decided func(at int64, job int, d *place.Decision)
}

// What happens to jobs.
type Happening uint8

// The events.
const (
	Arrives Happening = iota
	Starts
	Ends
	TakenBack
	Drops
	NeverFits
	Grows     // an elastic job
	Interrupt // by a failure
	Fails     // a place: Job is -1
	Repaired  // a place: Job is -1
)

func (h Happening) String() string {
	return [...]string{"arrives", "starts", "ends", "taken back", "is dropped", "never fits", "grows", "is interrupted", "fails", "is repaired"}[h]
}

// Event is one thing that happened.
type Event struct {
	At    int64
	What  Happening
	Job   int // its number
	Spots []Spot
}

// Spot is where replicas of a job are: the number of the node or center, and on
// a node which cards.
type Spot struct {
	At, Replicas int
	Cards        []int
}

// phase of a job.
type phase uint8

const (
	later phase = iota
	waiting
	running
	done
	dropped
	never
)

// life of a job.
type life struct {
	phase  phase
	tenant int32
	runs   int32 // how often it started
	turn   int32 // how often its end was foreseen
	first  int64 // when it started first
	start  int64 // when it started last
	since  int64 // when it was last counted, at least start
	left   int64 // run time to go, at reference speed with all replicas
	useful int64 // time it ran that was not lost
	seat   seat
}

type end struct {
	at   int64
	job  int32
	turn int32 // of the job when this was foreseen; another one means that it is not true any more
}

type ends []end

func (h ends) Len() int { return len(h) }
func (h ends) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].job < h[j].job
}
func (h ends) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *ends) Push(x any)   { *h = append(*h, x.(end)) }
func (h *ends) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// sim is a simulation in progress.
type sim struct {
	in      *Input
	cfg     *Config
	jobs    []Job
	order   []int32 // of arrival
	next    int     // in order
	lives   []life
	room    room
	net     *network // room, where it is one of centers; else nil
	line    *line
	m       meter
	ends    ends
	wake    int64    // when the queue wants to be asked next
	names   []string // of tenants
	counts  Jobs
	hunted  int            // searches for victims in this round
	evicted []int32        // taken back in this round
	failed  map[hunt]int64 // when one found nothing
	outages *outages       // nil: nothing fails
	elastic bool           // a job may grow
	res     Result
}

// Run plays a workload on a fleet. The input is not changed and may be shared
// by runs at the same time. It returns fault.Invalid for what cannot be played.
func Run(in *Input, cfg Config) (*Result, error) {
	if cfg.Fill > 0 {
		in = mixed(in, &cfg)
	}
	s, err := start(in, &cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Fill > 0 {
		err = s.fill()
	} else {
		err = s.play()
	}
	var stopped stop
	if errors.As(err, &stopped) {
		s.res.Partial = true
	} else if err != nil {
		return nil, err
	}
	s.finish()
	return &s.res, nil
}

// stop is what ended a run early.
type stop struct{ error }

func start(in *Input, cfg *Config) (*sim, error) {
	s := &sim{in: in, cfg: cfg, jobs: in.Jobs, lives: make([]life, len(in.Jobs)), order: make([]int32, len(in.Jobs))}
	s.res = Result{Policy: cfg.Policy.Name, Queue: cfg.Queue.Name, Seed: cfg.Seed}
	s.counts.Total = int64(len(in.Jobs))
	tenants := map[string]int32{}
	for i := range in.Jobs {
		s.order[i] = int32(i)
		tenants[in.Jobs[i].Tenant] = 0
	}
	s.names = slices.Sorted(maps.Keys(tenants))
	for i, name := range s.names {
		tenants[name] = int32(i)
	}
	for i := range s.lives {
		s.lives[i] = life{tenant: tenants[in.Jobs[i].Tenant], first: -1, left: in.Jobs[i].Run}
	}
	slices.SortStableFunc(s.order, func(a, b int32) int {
		return int(min(max(s.jobs[a].Arrival-s.jobs[b].Arrival, -1), 1))
	})
	var err error
	if len(in.Nodes) > 0 {
		if cfg.Policy.Pack == "" {
			return nil, fault.New(fault.Invalid, "policy %q is not for nodes", cfg.Policy.Name)
		}
		s.room, err = newPool(&in.Fleet, &in.Workload, cfg.Policy.Pack, cfg.Seed)
	} else {
		s.net, err = newNetwork(&in.Fleet, &in.Workload, &cfg.Policy)
		s.room = s.net
	}
	if err != nil {
		return nil, err
	}
	if s.net != nil && cfg.Decided != nil {
		s.net.decided = func(i int32, d *place.Decision) { cfg.Decided(s.m.now, int(i), d) }
	}
	s.outages = newOutages(in, cfg.Seed)
	s.elastic = slices.ContainsFunc(s.jobs, func(j Job) bool { return j.Least > 0 && j.Least < j.Replicas })
	s.wake, s.failed = math.MaxInt64, map[hunt]int64{}
	s.m = meter{width: Second, tenant: make([]tally, len(s.names)), frag: s.room.fragmentation()}
	cpu := int64(0)
	for _, cards := range in.supplies() {
		s.m.whole += cards * pack.Whole
	}
	if s.m.whole > 0 {
		return s, nil
	}
	for i := range in.Nodes {
		cpu += in.Nodes[i].CPU
	}
	for i := range in.Centers {
		cpu += in.Centers[i].CPU
	}
	s.m.whole, s.m.cores = cpu, true
	return s, nil
}

// holds is what a job that runs takes of what the meter counts.
func (s *sim) holds(i int32) int64 {
	if s.m.cores {
		return int64(s.lives[i].seat.members) * s.jobs[i].Ask.CPU
	}
	return s.demand(i)
}

// demand is what a job that runs has of cards, in thousandths of one.
func (s *sim) demand(i int32) int64 { return int64(s.lives[i].seat.members) * s.jobs[i].each() }

// patience is how often the queue is asked again when nothing runs or comes any
// more, and something waits.
const patience = 1000

// play goes from event to event.
func (s *sim) play() error {
	var err error
	if s.line, err = s.newLine(); err != nil {
		return err
	}
	if len(s.order) > 0 {
		// Time begins with the first arrival: what was before is no part of it.
		s.m.now, s.m.from = s.jobs[s.order[0]].Arrival, s.jobs[s.order[0]].Arrival
	}
	for idle := 0; ; {
		at := int64(math.MaxInt64)
		if s.next < len(s.order) {
			at = s.jobs[s.order[s.next]].Arrival
		}
		for len(s.ends) > 0 && !s.comes(s.ends[0]) {
			heap.Pop(&s.ends)
		}
		if len(s.ends) > 0 {
			at = min(at, s.ends[0].at)
		}
		alone := at == math.MaxInt64 // only time itself can let something start
		if at = min(at, s.wake, s.outages.next(s.counts.Waiting+s.counts.Running > 0 || !alone)); at == math.MaxInt64 || alone && idle >= patience {
			return nil
		}
		if idle++; !alone {
			idle = 0
		}
		if s.cfg.Watch != nil {
			s.res.Jobs = s.counts
			if err := s.cfg.Watch(at, &s.res); err != nil {
				return stop{err}
			}
		}
		s.m.advance(at, s.next < len(s.order), s.counts.Running, s.counts.Waiting)
		if s.net != nil {
			s.net.now = at
		}
		for len(s.ends) > 0 && s.ends[0].at == at {
			if e := heap.Pop(&s.ends).(end); s.comes(e) {
				s.end(e.job)
			}
		}
		if err := s.fail(); err != nil {
			return err
		}
		for s.next < len(s.order) && s.jobs[s.order[s.next]].Arrival == at {
			if err := s.arrive(s.order[s.next]); err != nil {
				return err
			}
			s.next++
		}
		if err := s.round(); err != nil {
			return err
		}
		if s.wake = math.MaxInt64; s.line.Len() > 0 {
			s.wake = s.line.Wake()
		}
	}
}

func (s *sim) tell(what Happening, i int32, at seat) {
	s.res.Events++
	if s.cfg.Log == nil {
		return
	}
	e := Event{At: s.m.now, What: what, Job: int(i)}
	for _, x := range at.spots {
		e.Spots = append(e.Spots, Spot{int(x.at), int(x.n), x.cards})
	}
	s.cfg.Log(e)
}

func (s *sim) arrive(i int32) error {
	l := &s.lives[i]
	s.m.tenant[l.tenant].jobs++
	s.tell(Arrives, i, seat{})
	if why := s.room.check(i); why != "" {
		l.phase = never
		s.counts.Never++
		s.tell(NeverFits, i, seat{})
		if len(s.res.NeverFits) < maxLeft {
			s.res.NeverFits = append(s.res.NeverFits, Left{s.jobs[i].ID, "never", why})
		}
		return nil
	}
	l.phase = waiting
	s.counts.Waiting++
	return s.line.put(i)
}

// begin starts a job that has its places.
func (s *sim) begin(i int32, at seat) {
	j, l := &s.jobs[i], &s.lives[i]
	l.phase, l.start, l.since, l.seat = running, s.m.now, s.m.now, at
	l.runs++
	s.counts.Running++
	if l.first < 0 {
		l.first = s.m.now
		wait := l.first - j.Arrival
		s.m.waits = append(s.m.waits, wait)
		s.m.tenant[l.tenant].wait.add(wait, 1)
		s.m.tenant[l.tenant].started++
	}
	s.m.hold(s.holds(i))
	s.outages.begin(i, &l.seat)
	s.tell(Starts, i, at)
	if len(at.bring) > 0 {
		s.net.started(&l.seat)
		s.res.Transfers.add(&l.seat)
	}
	s.foresee(i)
}

// foresee says when a job that runs will end.
func (s *sim) foresee(i int32) {
	j, l := &s.jobs[i], &s.lives[i]
	l.turn++
	if l.left == Forever {
		return
	}
	// Rounded up: nothing ends before it is done.
	run := int64(math.Ceil(float64(l.left) * 1000 / float64(l.seat.speed) * float64(j.Replicas) / float64(l.seat.members)))
	heap.Push(&s.ends, end{s.m.now + s.wait(l) + max(run, 1), i, l.turn})
}

// comes reports whether an end that was foreseen is still to come.
func (s *sim) comes(e end) bool {
	return s.lives[e.job].phase == running && s.lives[e.job].turn == e.turn
}

// wait is how long the data of a running job is still on its way.
func (s *sim) wait(l *life) int64 { return max(l.start+l.seat.delay-s.m.now, 0) }

// ran is how long a job ran since it was last counted, without waiting for data.
func (s *sim) ran(l *life) int64 { return max(s.m.now-max(l.since, l.start+l.seat.delay), 0) }

// progress takes what was done in so much time off what is left.
func (s *sim) progress(i int32, kept int64) {
	j, l := &s.jobs[i], &s.lives[i]
	if l.left != Forever {
		l.left = max(l.left-int64(float64(kept)*float64(l.seat.speed)/1000*float64(l.seat.members)/float64(j.Replicas)), 1)
	}
}

// leave counts what a job used since it was last counted, and frees its places.
// What it kept is the part of it that need not be done again; to is where the
// rest is counted as lost.
func (s *sim) leave(i int32, kept int64, to *exact) {
	l := &s.lives[i]
	s.used(i)
	l.useful += kept
	s.m.tenant[l.tenant].run.add(kept, 1)
	to.add(s.demand(i), s.ran(l)-kept)
	s.m.hold(-s.holds(i))
	s.counts.Running--
	s.outages.leave(i, &l.seat)
	s.room.release(i, l.seat)
}

// used counts cost and energy since a running job was last counted.
func (s *sim) used(i int32) {
	j, l := &s.jobs[i], &s.lives[i]
	dt, busy := s.m.now-l.since, s.ran(l)
	s.m.tenant[l.tenant].card.add(s.demand(i), dt)
	total := int64(l.seat.members)
	for _, x := range l.seat.spots {
		supply, perHour := s.supply(int(x.at)), int64(-1)
		spec := j.Spec
		if j.Work != nil {
			spec = j.Work.Tasks[x.task].Spec
		}
		if len(s.in.Centers) > 0 && spec != "" {
			if o := s.in.Centers[x.at].Offers[spec]; o.PriceFenPerHour.Known {
				perHour = o.PriceFenPerHour.Value * int64(x.n)
			}
		}
		n, parts := int64(x.n), int64(1)
		if spots := int64(len(l.seat.spots)); len(s.in.Nodes) > 0 && spots > total {
			parts = spots / total // a replica's cards, one by one
		}
		s.m.used(supply, j.Ask.Demand()/parts*n, j.Ask.CPU/parts*n, perHour, dt, busy)
	}
}

func (s *sim) supply(at int) *Supply {
	if len(s.in.Nodes) > 0 {
		return &s.in.Nodes[at].Supply
	}
	return &s.in.Centers[at].Supply
}

func (s *sim) end(i int32) {
	j, l := &s.jobs[i], &s.lives[i]
	s.leave(i, s.ran(l), &s.m.lost)
	s.tell(Ends, i, l.seat)
	l.phase, l.seat = done, seat{}
	s.counts.Done++
	t := &s.m.tenant[l.tenant]
	t.done++
	stay := s.m.now - j.Arrival
	t.stay.add(stay, 1)
	s.m.ends = append(s.m.ends, stay)
	s.m.slow = append(s.m.slow, max(float64(stay)/float64(max(l.useful, floor)), 1))
	if s.line.runs != nil {
		s.line.runs.Observe(s.line.worth(i), l.useful)
	}
	if j.Deadline > 0 {
		if s.m.now <= j.Deadline {
			s.res.Deadlines.Met++
		} else {
			s.res.Deadlines.Missed++
		}
	}
	s.line.ended(i)
}

// takeBack ends a run so that another work has its room; the job waits again
// when the round is over, so that it takes nothing back in the same one.
func (s *sim) takeBack(i int32) {
	l := &s.lives[i]
	s.interrupt(i, TakenBack, &s.m.lost)
	s.res.Preemptions++
	s.m.tenant[l.tenant].preempted++
	s.evicted = append(s.evicted, i)
}

// interrupt ends a run that is not done; what was saved of it is kept.
func (s *sim) interrupt(i int32, why Happening, lost *exact) {
	j, l := &s.jobs[i], &s.lives[i]
	kept := int64(0)
	if j.Checkpoint > 0 {
		kept = s.ran(l) / j.Checkpoint * j.Checkpoint
	}
	s.leave(i, kept, lost)
	s.tell(why, i, l.seat)
	s.progress(i, kept)
	l.phase, l.seat = waiting, seat{}
	l.turn++
	s.counts.Waiting++
	s.line.ended(i)
}

// grow gives a running elastic job more replicas.
func (s *sim) grow(i int32, more seat) {
	l := &s.lives[i]
	s.used(i)
	done := s.ran(l)
	l.useful += done
	s.m.tenant[l.tenant].run.add(done, 1)
	s.progress(i, done)
	s.m.hold(-s.holds(i))
	s.outages.leave(i, &l.seat)
	if len(more.bring) > 0 { // the new ones wait for their data, the others for them
		s.net.started(&more)
		s.res.Transfers.add(&more)
		l.seat.delay = max(l.seat.delay, s.m.now+more.delay-l.start)
	}
	l.since = s.m.now
	l.seat.spots = append(l.seat.spots, more.spots...)
	l.seat.members += more.members
	l.seat.speed = min(l.seat.speed, more.speed)
	s.outages.begin(i, &l.seat)
	s.m.hold(s.holds(i))
	s.res.Growths++
	s.tell(Grows, i, more)
	s.foresee(i)
}

// mixed is an input with its nodes in the order that pack.Fill has them in; the
// log goes on to name them by their own numbers.
func mixed(in *Input, cfg *Config) *Input {
	out, order := *in, pack.Order(len(in.Nodes), cfg.Seed)
	out.Nodes = make([]Node, len(order))
	for i, k := range order {
		out.Nodes[i] = in.Nodes[k]
	}
	if log := cfg.Log; log != nil {
		cfg.Log = func(e Event) {
			e.Spots = slices.Clone(e.Spots)
			for i := range e.Spots {
				e.Spots[i].At = order[e.Spots[i].At]
			}
			log(e)
		}
	}
	return &out
}

// fill draws jobs until they have asked for so much.
func (s *sim) fill() error {
	asks := slices.ContainsFunc(s.jobs, func(j Job) bool { return j.Ask.Cards > 0 })
	if !(s.cfg.Fill <= 100) || !asks || s.m.cores {
		return fault.New(fault.Invalid, "to fill, there must be cards, jobs that ask for some, and a load of at most 100, got %v", s.cfg.Fill)
	}
	dice := rand.New(rand.NewPCG(s.cfg.Seed, 7)) // draws as pack.Fill does
	whole, arrived, next := float64(s.m.whole), int64(0), 0.0
	note := func() {
		for ; next <= 100*float64(arrived)/whole; next++ {
			l := Load{Arrived: next, Allocation: per(float64(s.m.held), whole)}
			if s.m.frag != nil {
				l.Fragmentation = s.m.frag()
			}
			s.res.Loads = append(s.res.Loads, l)
		}
	}
	s.counts.Total = 0
	for note(); float64(arrived) < s.cfg.Fill*whole; note() {
		i := int32(dice.IntN(len(s.jobs)))
		j := &s.jobs[i]
		if s.cfg.Watch != nil {
			if err := s.cfg.Watch(s.m.now+Second, &s.res); err != nil {
				return stop{err}
			}
		}
		arrived += j.Demand()
		s.m.now += Second
		s.m.span += Second
		s.m.total.add(s.m.held, Second)
		s.counts.Total++
		s.res.Decisions++
		s.m.tenant[s.lives[i].tenant].jobs++
		s.tell(Arrives, i, seat{})
		at, ok, err := s.room.place(i, j.Replicas, j.Replicas)
		if err != nil {
			return err
		}
		if !ok {
			s.counts.Dropped++
			s.tell(Drops, i, seat{})
			continue
		}
		s.counts.Running++
		s.m.waits = append(s.m.waits, 0)
		s.m.hold(j.Demand())
		s.tell(Starts, i, at)
	}
	return nil
}

// finish counts what is left when the time is over.
func (s *sim) finish() {
	s.res.Name = s.res.Policy
	for i := range s.lives {
		l, j := &s.lives[i], &s.jobs[i]
		state := ""
		switch t := &s.m.tenant[l.tenant]; l.phase {
		case running:
			s.used(int32(i))
			t.run.add(s.ran(l), 1)
			t.stay.add(s.m.now-j.Arrival, 1)
			state = "running"
		case waiting:
			t.stay.add(s.m.now-j.Arrival, 1)
			state = "waiting"
		case later:
			if s.cfg.Fill == 0 {
				s.counts.Later++
				state = "later"
			}
		}
		if state != "" && j.Deadline > 0 && s.m.now > j.Deadline {
			s.res.Deadlines.Missed++
		}
		if state != "" && len(s.res.NotDone) < maxLeft {
			s.res.NotDone = append(s.res.NotDone, Left{ID: j.ID, State: state, Why: s.why(int32(i))})
		}
	}
	s.res.Jobs = s.counts
	s.outages.finish(s)
	s.m.fill(&s.res, &s.in.Fleet, s.names)
}

// why says what a job waits for.
func (s *sim) why(i int32) string {
	if s.lives[i].phase != waiting || s.line == nil {
		return ""
	}
	return s.line.why(i)
}

var errNoTurn = fmt.Errorf("the queue names a job that does not wait")
