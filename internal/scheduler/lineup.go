package scheduler

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

const (
	// perShape works of each tenant and shape go into a cycle.
	perShape = 512
	// maxCycle works in all go into a cycle.
	maxCycle = 2048
)

// Running is an open run, as the queue counts it.
type Running struct {
	AttemptID, JobID, Tenant, Center string
	Task                             int
	Gang                             bool
	Least                            int // replicas of its task that an elastic gang has at least; 0: it is none
	Resources                        core.Quantities
	Priority, Since                  int64 // since when it holds what it does, microseconds
	RunSeconds                       int64 // expected; 0: not known
	GraceSeconds                     int64
	Keep                             bool // never taken back
	AllocationID                     string
	Kin                              Kin
}

// lineup is the copy in memory of what waits and of what runs. Which work goes
// next is decided by package queue; this type keeps what that does not know:
// the jobs behind the works, and which of equal works a cycle looks at.
//
// A job is one work if it is a gang or has one task, else a work per task. An
// elastic gang is one work of its least, and when that has its place a work per
// task of the others.
// What runs is a work per run, and one for all runs of a gang. Works that draw
// on an allocation are not in the queue: nobody competes for their room.
type lineup struct {
	mu    sync.Mutex // guards the fields below; held in no I/O
	q     *queue.Queue
	jobs  map[string]*waitingJob
	works map[string]*entry
	lists map[listKey]*list
	runs  map[string]run // by attempt ID
	wants map[string]bool
	// ends and begun are attempts that did so while the open ones were read; nil:
	// they are not.
	ends, begun map[string]bool
	asked       map[string]int64
	specs       map[string]queue.Amounts
	// centers are the places that the queue knows, with what they have.
	centers map[string]core.Quantities
	seen    []*registry.Center // the last snapshot's, which nobody changes
	// cursor is the latest time at which a job known here was put in the queue.
	cursor int64
	conf   settings
	// told is how long work is expected to run, microseconds; nil: as stated. ran
	// is called with attempts that ended; nil: nobody asks.
	told func(tenant string, k *Kin, stated int64) int64
	ran  func(attempt string)
	// windows are those that the queue knows, by ID; shut are those of maintenance.
	windows map[string]Window
	shut    []Window
	class   func(*Item) string // what policies make of it; nil: there are none
	bounds  func(*Item) []int  // the budgets that it is bounded by; nil: there are none
}

// waitingJob is a job in the queue.
type waitingJob struct {
	since int64
	works []string
	near  bool // waits for the place of another job
	anew  bool // as of its item
	item  *Item
}

// listKey are the works that one list holds.
type listKey struct{ tenant, shape string }

// entry is a work in the queue. Its Item has the tasks of this work only; its
// Work.ID is the job's.
type entry struct {
	Item
	id      string // of the work
	key     listKey
	gone    bool // not in the queue any more
	queued  bool // in q
	more    bool // beyond the least of an elastic gang
	members int
	run     int64            // expected, microseconds
	amounts queue.Amounts    // of a member
	kept    map[string]int64 // centers left out until then, microseconds
	budgets []int            // that bound it, in the purse
	capped  *Budget          // for which dear centers are left out in this cycle
	poor    int64            // no budget is asked for it until then, microseconds
}

// list holds works of one tenant that ask for the same thing, best first when
// sorted.
type list struct {
	list   []*entry
	gone   int // entries of the list that are gone
	sorted bool
}

// run is what an attempt holds of a running work.
type run struct {
	id, place string // of the work, of the center
	job       string
	task      int
	least     int // see Running
	amounts   queue.Amounts
}

func newLineup(conf settings) (*lineup, error) {
	q, err := queue.New(conf.config())
	if err != nil {
		return nil, fmt.Errorf("configure the queue: %w", err)
	}
	return &lineup{q: q, jobs: map[string]*waitingJob{}, works: map[string]*entry{}, lists: map[listKey]*list{}, runs: map[string]run{},
		wants: map[string]bool{}, asked: map[string]int64{}, specs: map[string]queue.Amounts{}, centers: map[string]core.Quantities{}, conf: conf}, nil
}

// put adds a job that waits, or replaces what is known of it.
func (l *lineup) put(it *Item, snap *registry.Snapshot) error {
	l.drop(it.Work.ID)
	w := &waitingJob{since: it.Since, item: it, anew: it.Anew}
	l.jobs[it.Work.ID] = w
	l.cursor = max(l.cursor, it.Since)
	for _, h := range it.Held {
		w.near = w.near || h.Cause == NearJob
	}
	for _, e := range split(it) {
		if err := l.add(e, snap); err != nil {
			return err
		}
		w.works = append(w.works, e.id)
	}
	return nil
}

// split makes works of what waits of a job.
func split(it *Item) []*entry {
	switch {
	case len(it.Work.Tasks) == 0:
		return moreOf(it)
	case it.Work.Gang || len(it.Work.Tasks) == 1:
		return []*entry{{Item: *it, id: it.Work.ID}}
	}
	out := make([]*entry, len(it.Work.Tasks))
	for i := range it.Work.Tasks {
		e := &entry{Item: *it, id: it.Work.ID + "/" + it.Work.Tasks[i].ID}
		e.Work.Tasks = it.Work.Tasks[i : i+1]
		out[i] = e
	}
	return out
}

// moreOf makes works of what of an elastic gang is beyond its least.
func moreOf(it *Item) []*entry {
	var out []*entry
	for i := range it.More {
		e := &entry{Item: *it, id: it.Work.ID + "+" + it.More[i].ID, more: true}
		e.Work.Gang, e.Work.Tasks, e.More = false, it.More[i:i+1], nil
		out = append(out, e)
	}
	return out
}

func (l *lineup) add(e *entry, snap *registry.Snapshot) error {
	e.key = listKey{e.Work.Tenant, shapeOf(&e.Item)}
	if l.class != nil {
		e.key.shape += l.class(&e.Item) // policies may give them different centers
	}
	if l.bounds != nil {
		if e.budgets = l.bounds(&e.Item); e.budgets != nil {
			e.key.shape += fmt.Sprintf(" budgets %v", e.budgets)
		}
	}
	e.run = l.expected(e.Work.Tenant, &e.Kin, e.RunSeconds)
	l.works[e.id] = e
	li := l.lists[e.key]
	if li == nil {
		li = &list{sorted: true}
		l.lists[e.key] = li
	}
	if n := len(li.list); n > 0 && before(e, li.list[n-1]) {
		li.sorted = false
	}
	li.list = append(li.list, e)
	if e.AllocationID != "" {
		return nil
	}
	ok := l.measure(e, snap)
	if !ok {
		return nil // its specification is gone: it waits, and explain says why
	}
	if err := l.q.Put(e.queueWork()); err != nil {
		return fmt.Errorf("queue %s: %w", e.id, err)
	}
	e.queued = true
	return nil
}

// measure says what a member of a work takes; false if a specification is not
// there. Tasks of a gang may differ: a member takes the mean of them.
func (l *lineup) measure(e *entry, snap *registry.Snapshot) bool {
	e.members = 0
	var sum queue.Amounts
	for i := range e.Work.Tasks {
		t := &e.Work.Tasks[i]
		spec := snap.Specs[t.Spec]
		if spec == nil {
			return false
		}
		e.members += t.Replicas
		if len(e.Work.Tasks) == 1 {
			e.amounts = l.shared(t.Spec, spec.Quantity)
			return true
		}
		if sum == nil {
			sum = queue.Amounts{}
		}
		for name, n := range spec.Quantity {
			sum[name] += n * int64(t.Replicas)
		}
	}
	for name := range sum {
		sum[name] = (sum[name] + int64(e.members) - 1) / int64(e.members)
	}
	e.amounts = sum
	return true
}

// shared returns one map for all works of a specification.
func (l *lineup) shared(spec string, q core.Quantities) queue.Amounts {
	if a, ok := l.specs[spec]; ok && maps.Equal(a, queue.Amounts(q)) {
		return a
	}
	a := queue.Amounts(maps.Clone(q))
	l.specs[spec] = a
	return a
}

// expected is how long the queue is told that work runs, microseconds.
func (l *lineup) expected(tenant string, k *Kin, stated int64) int64 {
	if l.told == nil {
		return stated * 1e6
	}
	return l.told(tenant, k, stated)
}

func (e *entry) queueWork() queue.Work {
	w := queue.Work{ID: e.id, Tenant: e.Work.Tenant, Priority: e.Work.Priority, Arrival: e.Work.Arrival, Shape: e.key.shape, Amounts: e.amounts,
		Min: 1, Max: e.members, Deadline: e.Deadline, NotBefore: e.NotBefore, Keep: e.NoPreemption, Run: e.run}
	if e.Work.Gang {
		w.Min = e.members
	}
	return w
}

// drop forgets a job that waits.
func (l *lineup) drop(job string) {
	w := l.jobs[job]
	if w == nil {
		return
	}
	delete(l.jobs, job)
	for _, id := range w.works {
		l.dropWork(id)
	}
}

// dropWork forgets a work. Its entry in the list is dropped when met.
func (l *lineup) dropWork(id string) {
	e := l.works[id]
	if e == nil {
		return
	}
	if e.queued {
		l.q.Remove(id)
	}
	e.gone = true
	l.lists[e.key].gone++
	delete(l.works, id)
	delete(l.wants, id)
	delete(l.asked, id)
}

// live drops the entries that are gone if they are in the way: at the front,
// where they mostly are, or half of the list.
func (li *list) live() []*entry {
	for len(li.list) > 0 && li.list[0].gone {
		li.list, li.gone = li.list[1:], li.gone-1
	}
	if li.gone > len(li.list)/2 {
		li.list, li.gone = slices.DeleteFunc(li.list, func(e *entry) bool { return e.gone }), 0
	}
	return li.list
}

func before(a, b *entry) bool { return compare(a, b) < 0 }

func compare(a, b *entry) int {
	return cmp.Or(-cmp.Compare(a.Work.Priority, b.Work.Priority), cmp.Compare(a.Work.Arrival, b.Work.Arrival), strings.Compare(a.id, b.id))
}

// pick returns the works that the next cycle looks at: those that the last one
// missed, and the first of every tenant and shape, best first.
func (l *lineup) pick() []*entry {
	var out []*entry
	for key, li := range l.lists {
		if len(li.live()) == 0 {
			delete(l.lists, key)
			continue
		}
		if !li.sorted {
			slices.SortFunc(li.list, compare)
			li.sorted = true
		}
		n := 0
		for _, e := range li.list {
			if n == perShape {
				break
			}
			if !e.gone {
				n++
				if !l.wants[e.id] {
					out = append(out, e)
				}
			}
		}
	}
	slices.SortFunc(out, compare)
	wanted := make([]*entry, 0, len(l.wants))
	for id := range l.wants {
		wanted = append(wanted, l.works[id])
	}
	slices.SortFunc(wanted, compare)
	out = append(wanted, out...)
	return out[:min(len(out), maxCycle)]
}

// shapeOf names what a work asks for: two works with the same name compete for
// the same room.
func shapeOf(it *Item) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s|", it.Work.Gang, it.AllocationID)
	for i := range it.Work.Tasks {
		t := &it.Work.Tasks[i]
		fmt.Fprintf(&b, "%s %s %v %v %d %d %q", t.Spec, t.Image, t.Pinned, t.Regions, t.MinGrade, t.MaxPrice.Value, t.Expression)
		if it.Work.Gang {
			fmt.Fprintf(&b, " %d", t.Replicas)
		}
		appendNeeds(&b, &it.Work, t)
		if len(t.Excluded) > 0 { // who may go elsewhere is not behind it
			h := fnv.New64a()
			for _, center := range slices.Sorted(maps.Keys(t.Excluded)) {
				_, _ = h.Write(append([]byte(center), 0)) // it never fails
			}
			fmt.Fprintf(&b, " but %x", h.Sum64())
		}
		if len(t.Rules) > 0 { // by which each work has its own places
			fmt.Fprintf(&b, " %s", it.Work.ID)
		}
		b.WriteByte(';')
	}
	return b.String()
}

// start adds a work that runs. Those that the queue refuses are left out: it
// counts less then than there is, and the centers' room still bounds all.
func (l *lineup) start(id string, r Running, members int, holds []queue.Hold) error {
	w := queue.Work{ID: id, Tenant: r.Tenant, Priority: r.Priority, Arrival: r.Since, Amounts: queue.Amounts(r.Resources), Min: members, Max: members,
		Keep: r.Keep, Grace: r.GraceSeconds * 1e6, Run: l.expected(r.Tenant, &r.Kin, r.RunSeconds)}
	return l.q.Restore(w, holds, r.Since)
}

// begin counts runs that have their place.
func (l *lineup) begin(rs []Running) error {
	gangs := map[string][]Running{}
	var order []string
	for _, r := range rs {
		if _, known := l.runs[r.AttemptID]; known || l.ends[r.AttemptID] || r.AllocationID != "" {
			continue
		}
		if r.Gang {
			if gangs[r.JobID] == nil {
				order = append(order, r.JobID)
			}
			gangs[r.JobID] = append(gangs[r.JobID], r)
			continue
		}
		a := queue.Amounts(r.Resources)
		if err := l.start(r.AttemptID, r, 1, []queue.Hold{{Place: r.Center, Members: 1}}); err != nil {
			return fmt.Errorf("count the run %s: %w", r.AttemptID, err)
		}
		l.note(r.AttemptID, run{id: r.AttemptID, place: r.Center, job: r.JobID, task: r.Task, least: r.Least, amounts: a})
	}
	for _, job := range order {
		rs := gangs[job]
		id := "gang of " + job + " with " + rs[0].AttemptID
		var holds []queue.Hold
		sum := core.Quantities{}
		for _, r := range rs {
			for name, n := range r.Resources {
				sum[name] += n
			}
			holds = append(holds, queue.Hold{Place: r.Center, Members: 1, Amounts: queue.Amounts(r.Resources)})
			l.note(r.AttemptID, run{id: id, place: r.Center, job: job, task: r.Task, least: r.Least, amounts: queue.Amounts(r.Resources)})
		}
		for name := range sum { // members are alike to the queue
			sum[name] = (sum[name] + int64(len(rs)) - 1) / int64(len(rs))
		}
		rs[0].Resources = sum
		if err := l.start(id, rs[0], len(rs), holds); err != nil {
			return fmt.Errorf("count the gang of %s: %w", job, err)
		}
	}
	return nil
}

// note notes what an attempt holds.
func (l *lineup) note(attempt string, r run) {
	if l.runs[attempt] = r; l.begun != nil {
		l.begun[attempt] = true
	}
}

// end counts a run no more.
func (l *lineup) end(attempt string, now int64) {
	if l.ends != nil {
		l.ends[attempt] = true
	}
	r, ok := l.runs[attempt]
	if !ok {
		return
	}
	delete(l.runs, attempt)
	if l.ran != nil {
		l.ran(attempt)
	}
	if r.id == attempt || l.q.Shrunk(r.id, []queue.Hold{{Place: r.place, Members: 1, Amounts: r.amounts}}, now) != nil {
		l.q.Ended(r.id, now) // it was the last of its gang
	}
}

// runsNow reports whether a run is counted.
func (l *lineup) runsNow(attempt string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.runs[attempt]
	return ok
}

// reconcile makes what is counted what is open: of open, news are those that
// were not counted when they were read.
func (l *lineup) reconcile(open []string, news []Running, now int64) error {
	there := make(map[string]bool, len(open))
	for _, id := range open {
		there[id] = true
	}
	for id := range l.runs {
		if !there[id] && !l.begun[id] {
			l.end(id, now)
		}
	}
	err := l.begin(news)
	l.ends, l.begun = nil, nil
	return err
}

// places tells the queue what the centers have, as far as that changed.
func (l *lineup) places(snap *registry.Snapshot) error {
	same := len(l.seen) == len(snap.Centers) // so far: the same centers
	for i, c := range snap.Centers {
		if i < len(l.seen) && l.seen[i] == c {
			continue
		}
		same = same && l.seen[i].ID == c.ID
		if was, ok := l.centers[c.ID]; ok && maps.Equal(was, c.Total) {
			continue
		}
		if err := l.q.SetPlace(c.ID, queue.Amounts(c.Total)); err != nil {
			return fmt.Errorf("center %s: %w", c.ID, err)
		}
		l.centers[c.ID] = c.Total
	}
	l.seen = snap.Centers
	if same {
		return nil
	}
	there := make(map[string]bool, len(snap.Centers))
	for _, c := range snap.Centers {
		there[c.ID] = true
	}
	for id := range l.centers {
		if !there[id] {
			l.q.RemovePlace(id)
			delete(l.centers, id)
		}
	}
	return nil
}

// fillWork completes the work of an entry for the engine, under the work's ID.
func fillWork(e *entry, snap *registry.Snapshot, shut []Window, now int64) (place.Work, bool) {
	w, ok := fill(&e.Item, snap)
	w.ID = e.id
	if shut := shutFor(shut, e.RunSeconds, db.Time(now)); shut != nil {
		exclude(&w, shut)
	}
	maps.DeleteFunc(e.kept, func(_ string, until int64) bool { return until <= now })
	if len(e.kept) > 0 {
		out := map[string]string{}
		for c := range e.kept {
			out[c] = "what is free there is kept for work that waits longer, or is reserved"
		}
		exclude(&w, out)
	}
	return w, ok
}
