// Package queue decides which waiting work is tried next, and which running
// work may be taken back for it. It knows amounts, tenants, priorities and
// times. Where a work runs is decided by others (packages place and pack):
// they ask for the next work, try to place it, and say what came of it.
//
// It is pure: no I/O, no clock, no goroutine. Time is an argument, in
// microseconds of any epoch. The same calls give the same answers; works that
// were put in another order give them too. A Queue is not safe for use by
// several goroutines at once.
//
//	q, err := queue.New(queue.Config{})
//	q.SetPlace("center-a", queue.Amounts{"gpu": 64})
//	err = q.Put(queue.Work{ID: "job-1", Tenant: "t", Arrival: now, Amounts: queue.Amounts{"gpu": 8}})
//	r := q.Round(now)
//	for o, ok := r.Next(); ok; o, ok = r.Next() {
//		if at, ok := place(o.Work, r.Allows); ok {
//			err = r.Start([]queue.Hold{{Place: at, Members: 1}})
//		} else {
//			r.Refuse("no center has room", nil)
//		}
//	}
//	q.Ended("job-1", later)
//
// # Order
//
// Tenants form a tree. Among siblings one whose next work stays within its
// guarantee goes first; then, where classes are strict, the higher priority;
// then the lower weighted dominant share: the largest part of any resource
// that the tenant holds, divided by its weight. With a half-life, what it held
// in the past counts too, less with every half-life. What those below a tenant
// hold counts for it as far as none of them is much ahead of the one with the
// lowest share that has something to try: see shares.go.
// Inside a tenant the order is priority (raised with age up to a bound),
// deadlines at risk, deadlines where the tenant asks for that, arrival, ID.
// All comparisons are of integers.
//
// # Refusals
//
// Works with the same [Work.Shape] and amounts ask for the same. When one of
// them was refused for lack of room, the others are not tried again in the
// same round; works of other shapes are. A work above a limit of its tenant,
// or of one above it, is passed over. So no flood of work holds back work that
// needs something else.
//
// # Reservations
//
// A work that was refused for lack of room gets a reservation: a time at which
// it can start, computed from the expected ends of what runs, and what it will
// take where. [Round.Allows] then refuses every run that would still hold at that
// time what the reservation needs. Reservations and windows (maintenance, advance
// reservations) are the same thing. A reserved work goes first in each round, and
// gets an earlier time when something ends early. Works that go before it by
// guarantee or priority take what is kept for it; those of a tenant with a lower
// share do not. Works that did not end when expected are given as much time again
// as they have had. Where no time can be computed because run times are not known,
// a work that has waited for BlockAfter keeps from others what it needs, at once.
//
// # Taking back
//
// [Queue.Victims] finds the cheapest works whose end gives a waiting one its
// room. It ends nothing by itself. Where that is allowed, works for which there is
// no room at all are offered too, so that the caller can ask for victims.
//
// # After a restart
//
// The queue is memory only. Put what waits with its old arrival and [Queue.Restore]
// what runs; usage, limits and order are then as before. Past usage, reservations
// and rates of starting begin anew.
package queue

import (
	"container/heap"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Never is the time that does not come.
const Never = int64(math.MaxInt64)

// unknownRun is the run of work that may go on without end.
const unknownRun = Never - 1

// Limits of what a queue takes.
const (
	MaxAmount  = int64(1) << 53 // of a resource in one member, or in all of a work
	MaxMembers = 1_000_000
	MaxWeight  = 1_000_000
	maxHeld    = int64(1) << 62 // of a resource by all together
)

// Amounts are how much of each resource, by name; the unit is the caller's.
type Amounts map[string]int64

// Work is a job as the queue knows it.
type Work struct {
	ID string // unique among what waits and runs
	// Tenant owns it; one that the configuration does not name is made below
	// the root with weight 1.
	Tenant   string
	Priority int64 // higher goes first
	Arrival  int64 // lower goes first; kept when the work is put back
	// Shape is equal for works that the same places can take, as far as it is not
	// said by Amounts: a digest of their constraints. May be empty.
	Shape   string
	Amounts Amounts // of one member; must not change after Put
	// Min and Max are how many members start together. 0 means 1 and Min.
	// With Max above Min the work is elastic: it starts with what there is.
	Min, Max int
	// Places are where it can go, for reservations and victims; nil: anywhere.
	// Must not change after Put.
	Places []string
	// OnePlace says that all members go to the same place.
	OnePlace bool
	// Run is how long it is expected to run; 0: not known.
	Run int64
	// Deadline is when it must have ended; 0: none.
	Deadline int64
	// NotBefore is when it may start at the earliest; 0: at once.
	NotBefore int64
	// Keep says that it is never taken back for other work.
	Keep bool
	// Grace is how long it may take to write a checkpoint when it is taken back.
	Grace int64
}

// Order is how waiting works are ordered.
type Order uint8

// The orders. FairShare is the default; the others look at all tenants' works as
// one line, but keep limits.
const (
	FairShare     Order = iota
	PriorityOrder       // priority, then arrival
	FirstCome           // arrival only
)

// Backfill is what later works may do while an earlier one waits for room.
type Backfill uint8

const (
	// BackfillReserve lets them start unless that delays a reservation.
	BackfillReserve Backfill = iota
	// BackfillGreedy lets them start; wide works may starve.
	BackfillGreedy
	// BackfillNone holds back every later work that asks for a resource that the
	// refused one asks for.
	BackfillNone
)

// Ageing raises the priority of waiting work by 1 for each Step (in
// microseconds) it waits, by at most Max. A Step of 0: not at all. Works that go
// by their deadline do not age.
type Ageing struct {
	Step int64
	Max  int64
}

// Config says how a queue decides. The zero value works.
type Config struct {
	Tenants []Tenant
	Order   Order
	// StrictClasses lets a higher priority go before a lower one of any tenant.
	StrictClasses bool
	// HalfLife is the time after which past usage counts half; 0: it does not count.
	HalfLife int64
	Ageing   Ageing
	Backfill Backfill
	// Reservations are how many works have one at once; 0 means 8.
	Reservations int
	// StarveAfter is how long a work waits until it gets a reservation beyond that
	// number, so that no order of the others keeps it from one; 0 means an hour.
	StarveAfter int64
	// BlockAfter is how long a work waits, where no time for a reservation can be
	// computed, until it keeps others from what it needs; 0 means an hour.
	BlockAfter int64
	// AssumedRun is for works whose run is not known; 0: they may run for ever, so
	// they do not start where they could reach into a window.
	AssumedRun int64
	// UnknownReach is how far works whose run is not known are taken to reach where
	// it is about windows; 0: as far as their run says.
	UnknownReach int64
	// DeadlineMargin is how long before its latest start a work is at risk.
	DeadlineMargin int64
	// Preempt allows [Queue.Victims] to find any.
	Preempt bool
	// Devices are the resources whose time is lost when a work is ended; none:
	// every work costs its run time.
	Devices []string
	// VictimsPerRound limits what is taken back in a round, VictimsPerWork for one
	// work; 0 means 64 and 16.
	VictimsPerRound int
	VictimsPerWork  int
}

const hour = int64(3_600_000_000)

func (c *Config) defaults() {
	def := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.StarveAfter, hour)
	def(&c.BlockAfter, hour)
	for _, x := range []struct {
		p *int
		v int
	}{{&c.Reservations, 8}, {&c.VictimsPerRound, 64}, {&c.VictimsPerWork, 16}} {
		if *x.p == 0 {
			*x.p = x.v
		}
	}
}

// Check refuses a configuration with every fault in it named.
func (c *Config) Check() error {
	var k core.Check
	if c.Order > FirstCome {
		k.Add("order", "must be at most %d, got %d", FirstCome, c.Order)
	}
	if c.Backfill > BackfillNone {
		k.Add("backfill", "must be at most %d, got %d", BackfillNone, c.Backfill)
	}
	k.Range("half_life", c.HalfLife, 0, Never/4)
	k.Range("ageing.step", c.Ageing.Step, 0, Never/4)
	k.Range("ageing.max", c.Ageing.Max, 0, math.MaxInt32)
	k.Range("reservations", int64(c.Reservations), 0, 1000)
	k.Range("starve_after", c.StarveAfter, 0, Never/4)
	k.Range("block_after", c.BlockAfter, 0, Never/4)
	k.Range("assumed_run", c.AssumedRun, 0, Never/4)
	k.Range("unknown_reach", c.UnknownReach, 0, Never/4)
	k.Range("deadline_margin", c.DeadlineMargin, 0, Never/4)
	k.Range("victims_per_round", int64(c.VictimsPerRound), 0, MaxMembers)
	k.Range("victims_per_work", int64(c.VictimsPerWork), 0, MaxMembers)
	checkTenants(&k, c.Tenants)
	return k.Err()
}

// Check refuses a work with every fault in it named.
func (w *Work) Check() error {
	var k core.Check
	if w.ID == "" {
		k.Add("id", "is required")
	}
	if w.Tenant == "" {
		k.Add("tenant", "is required")
	}
	k.Range("priority", w.Priority, math.MinInt32, math.MaxInt32)
	k.Range("arrival", w.Arrival, 0, Never/4)
	k.Range("min", int64(w.Min), 0, MaxMembers)
	k.Range("max", int64(w.Max), 0, MaxMembers)
	if w.Max != 0 && w.Max < w.Min {
		k.Add("max", "must be at least min (%d), got %d", w.Min, w.Max)
	}
	k.Range("run", w.Run, 0, Never/4)
	k.Range("deadline", w.Deadline, 0, Never/4)
	k.Range("not_before", w.NotBefore, 0, Never/4)
	k.Range("grace", w.Grace, 0, Never/4)
	most := MaxAmount / int64(max(w.Min, w.Max, 1))
	checkAmounts(&k, "amounts", w.Amounts, most)
	return k.Err()
}

func checkAmounts(k *core.Check, at string, a Amounts, most int64) {
	bad := false
	for name, n := range a {
		bad = bad || name == "" || n < 0 || n > most
	}
	if !bad {
		return
	}
	for _, name := range sorted(a) {
		if name == "" {
			k.Add(at, "has an amount without the name of a resource")
		}
		k.Range(at+"."+name, a[name], 0, most)
	}
}

// state is what the queue knows of a work.
type state uint8

const (
	gone     state = iota
	later          // waits for its time
	waiting        // in a bucket
	reserved       // has a reservation
	running
)

// entry is a work in the queue.
type entry struct {
	work   Work
	shape  *shape
	leaf   *node
	bucket *bucket
	run    int64 // expected; unknownRun if it is not known
	due    int64 // deadline if its tenant orders by it, else Never
	state  state
	heap   int32   // position in q.later or q.ends
	live   *live   // while it runs
	spans  []*span // while it has a reservation
	turn   int64   // of its reservation
	early  int64   // q.early when it was computed
}

// shape is what equal works ask for.
type shape struct {
	key      shapeKey
	amounts  Amounts
	ask      []term // of one member
	places   []string
	min, max int
	onePlace bool
	works    int
	buckets  []*bucket // in no order

	// In a round: works that run as long as this, or longer, are not tried.
	round   int64
	blocked int64

	refusal *refusal // the last one, nil: none
}

// term is an amount of one resource.
type term struct {
	r int
	n int64
}

// Queue holds works. See the package comment.
type Queue struct {
	cfg   Config
	now   int64
	round int64

	names []string // of resources
	index map[string]int

	root   *node
	leaves map[string]*node
	works  map[string]*entry
	shapes map[shapeKey][]*shape

	later timeHeap // by NotBefore
	ends  timeHeap // running, by expected end

	parked   []*bucket // in this round
	passing  []*bucket // whose first works are passed over in this round
	reserved []*entry
	elastic  map[*entry]bool // running with fewer members than they could have

	places  map[string]*place
	sorted  []*place // by name
	all     place    // everything together
	known   []int    // by resource: how many places declare it
	devices []bool   // by resource
	windows []*span  // all, by ID
	room    []int64  // by resource: free at all places together
	stale   bool     // shares changed for another reason than a start or an end

	marks   int64 // forecasts made
	ticks   int64 // works looked at
	turns   int64 // reservations made
	early   int64 // works that ended, or started, before they were expected to
	waiting int
	taken   int // victims in this round
	free    []*entry
}

// New makes an empty queue.
func New(c Config) (*Queue, error) {
	q := &Queue{index: map[string]int{}, works: map[string]*entry{}, shapes: map[shapeKey][]*shape{}, places: map[string]*place{}, elastic: map[*entry]bool{}, round: 1, all: place{declared: true}}
	return q, q.Configure(c)
}

// Configure changes how the queue decides; what waits and runs stays. Tenants
// that still have work, and are not named any more, go below the root.
func (q *Queue) Configure(c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	for _, n := range q.leaves {
		q.age(n)
	}
	c.defaults()
	c.Tenants = slices.Clone(c.Tenants)
	q.cfg = c
	clear(q.devices)
	for _, name := range c.Devices {
		q.devices[q.resource(name)] = true
	}
	q.plant()
	return nil
}

// resource is the number of a resource.
func (q *Queue) resource(name string) int {
	if r, ok := q.index[name]; ok {
		return r
	}
	r := len(q.names)
	q.index[name] = r
	q.names = append(q.names, name)
	q.known = append(q.known, 0)
	q.room = append(q.room, 0)
	q.devices = append(q.devices, slices.Contains(q.cfg.Devices, name))
	if q.root != nil {
		q.root.grow(r + 1)
	}
	q.all.grow(r + 1)
	for _, p := range q.sorted {
		p.grow(r + 1)
	}
	for _, w := range q.windows {
		w.grow(r + 1)
	}
	return r
}

// Len is how many works wait.
func (q *Queue) Len() int { return q.waiting }

// Put adds a waiting work. It must not be in the queue.
func (q *Queue) Put(w Work) error {
	if err := w.Check(); err != nil {
		return err
	}
	if q.works[w.ID] != nil {
		return fault.New(fault.Exists, "work %q is in the queue already", w.ID)
	}
	e := q.entry(w)
	q.waiting++
	if w.NotBefore > q.now {
		e.state = later
		heap.Push(&q.later, timed{w.NotBefore, e})
		return nil
	}
	q.wait(e)
	return nil
}

func (q *Queue) entry(w Work) *entry {
	if w.Min == 0 {
		w.Min = 1
	}
	if w.Max == 0 {
		w.Max = w.Min
	}
	e := q.blank()
	e.work = w
	e.shape = q.shape(&w)
	e.work.Amounts, e.work.Shape, e.work.Places = e.shape.amounts, e.shape.key.key, e.shape.places // one for all
	e.leaf = q.leaf(w.Tenant)
	e.work.Tenant = e.leaf.name
	q.expect(e)
	q.works[w.ID] = e
	return e
}

// blank is an entry to fill; they are made in blocks.
func (q *Queue) blank() *entry {
	if len(q.free) == 0 {
		block := make([]entry, 256)
		for i := range block {
			q.free = append(q.free, &block[i])
		}
	}
	e := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	return e
}

// expect fills in what depends on the configuration.
func (q *Queue) expect(e *entry) {
	e.run = e.work.Run
	if e.run == 0 {
		e.run = q.cfg.AssumedRun
	}
	if e.run == 0 {
		e.run = unknownRun
	}
	e.due = Never
	if e.leaf.deadlines && e.work.Deadline != 0 && q.cfg.Order != FirstCome {
		e.due = e.work.Deadline
	}
}

// shapeKey tells shapes apart, but for rare ones with the same sum.
type shapeKey struct {
	key      string
	sum      uint64 // of the amounts
	min, max int32
}

// shape finds the one of w, or makes it.
func (q *Queue) shape(w *Work) *shape {
	k := shapeKey{key: w.Shape, min: int32(w.Min), max: int32(w.Max)}
	for name, n := range w.Amounts {
		x := (uint64(q.resource(name))+1)*0x9e3779b97f4a7c15 ^ uint64(n)
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // spreads its bits
		x = (x ^ x>>27) * 0x94d049bb133111eb
		k.sum += x ^ x>>31 // in whatever order they come
	}
	for _, s := range q.shapes[k] {
		if s.onePlace == w.OnePlace && slices.Equal(s.places, w.Places) && equal(s.amounts, w.Amounts) {
			s.works++
			return s
		}
	}
	s := &shape{key: k, amounts: w.Amounts, places: w.Places, min: w.Min, max: w.Max, onePlace: w.OnePlace, works: 1}
	s.ask = q.terms(w.Amounts)
	q.shapes[k] = append(q.shapes[k], s)
	return s
}

func equal(a, b Amounts) bool {
	if len(a) != len(b) {
		return false
	}
	for name, n := range a {
		if m, ok := b[name]; !ok || m != n {
			return false
		}
	}
	return true
}

// terms are amounts above 0, ordered by name.
func (q *Queue) terms(a Amounts) []term {
	ts := make([]term, 0, len(a))
	for _, name := range sorted(a) {
		if a[name] > 0 {
			ts = append(ts, term{q.resource(name), a[name]})
		}
	}
	return ts
}

func sorted(a Amounts) []string {
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (q *Queue) drop(e *entry) {
	delete(q.works, e.work.ID)
	e.shape.works--
	if s := e.shape; s.works == 0 {
		same := slices.DeleteFunc(q.shapes[s.key], func(x *shape) bool { return x == s })
		if q.shapes[s.key] = same; len(same) == 0 {
			delete(q.shapes, s.key)
		}
	}
	*e = entry{}
	q.free = append(q.free, e)
}

// Remove takes a waiting work out; false: none waits under that ID.
func (q *Queue) Remove(id string) bool {
	e := q.works[id]
	if e == nil || e.state == running {
		return false
	}
	q.leave(e)
	q.drop(e)
	return true
}

// leave takes e out of where it waits.
func (q *Queue) leave(e *entry) {
	switch e.state {
	case later:
		heap.Remove(&q.later, int(e.heap))
	case waiting:
		q.take(e)
	case reserved:
		q.unreserve(e)
	}
	e.state = gone
	q.waiting--
}

// Holds is where a running work is; nil: it does not run.
func (q *Queue) Holds(id string) []Hold {
	e := q.works[id]
	if e == nil || e.state != running {
		return nil
	}
	out := make([]Hold, 0, len(e.live.holds))
	for i := range e.live.holds {
		h := &e.live.holds[i]
		out = append(out, Hold{Place: h.place.name, Members: int(h.members)})
	}
	return out
}

// timed is an entry at a time, in a heap. What is due at the same time is
// handled together, so its order does not matter.
type timed struct {
	at int64
	e  *entry
}

type timeHeap []timed

func (h timeHeap) Len() int           { return len(h) }
func (h timeHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].e.heap, h[j].e.heap = int32(i), int32(j)
}
func (h *timeHeap) Push(x any) {
	t := x.(timed)
	t.e.heap = int32(len(*h))
	*h = append(*h, t)
}
func (h *timeHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = timed{}
	*h = old[:len(old)-1]
	return t
}
