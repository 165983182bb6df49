package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

const (
	// reloadEvery repairs what signals missed.
	reloadEvery = 20 * time.Second
	// lookEvery is how soon work that waits notices a center that came.
	lookEvery = 500 * time.Millisecond
	// anewEvery is how often is read again what may go elsewhere by then.
	anewEvery = 2 * time.Second
	// settingsFresh is how long the settings of the queue are used: another
	// process may change them.
	settingsFresh = time.Second
	// overlap is how far back a look for new work reaches on PostgreSQL, where
	// transactions commit in another order than they began: a little each time,
	// and now and then far, for those that took long. What waits is read again
	// each time, as far as the look reaches.
	overlap      = int64(500 * time.Millisecond / time.Microsecond)
	overlapFar   = 10 * int64(time.Second/time.Microsecond)
	lookFarEvery = time.Second
	// countShare is how many times as long as it takes to read what runs the next
	// reading is put off.
	countShare = 10
)

// Run schedules until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	defer s.setLine(nil)
	stop, err := s.serveLine(ctx)
	if err != nil {
		return err
	}
	defer stop()
	reload := time.NewTicker(reloadEvery)
	defer reload.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	c := &cycler{Service: s}
	defer func() {
		if c.counting != nil {
			<-c.counting.done
		}
	}()
	full, seen := true, ""
	for {
		core.Round(ctx, reloadEvery)
		more, err := c.cycle(ctx, full)
		if full = err != nil; full {
			c.l, c.purse = nil, nil // what failed may be the copy's fault
		}
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("scheduling cycle failed, will read the queue anew", "error", err)
		}
		if more && err == nil {
			continue
		}
		if !breathe(ctx, c.took) {
			return nil
		}
		retry := retryAfter(err)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
				waiting = !c.lookDue() && (c.idle() || !c.due() && !s.roomChanged(ctx, &seen))
				continue
			case <-s.wake:
			case <-reload.C:
				full = true
			case <-retry:
			}
			waiting = false
		}
	}
}

// retryAfter is a pause after a failed cycle, none (for ever) otherwise.
func retryAfter(err error) <-chan time.Time {
	if err == nil {
		return nil
	}
	return time.After(200 * time.Millisecond)
}

func (s *Service) setLine(l *lineup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = l
}

func (s *Service) getLine() *lineup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line
}

// Ended tells the scheduler that a run has ended. It may be called for runs
// that it does not know, and in any process.
func (s *Service) Ended(attemptIDs []string) {
	l := s.getLine()
	if l == nil {
		return
	}
	now := db.Micros(s.db.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range attemptIDs {
		l.end(id, now)
	}
}

// roomChanged reports whether centers came, went or changed since seen, which
// it brings up to date: no job's event tells of that.
func (s *Service) roomChanged(ctx context.Context, seen *string) bool {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return false // the next cycle says so
	}
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d", cat.Version)
	if s.tags != nil {
		version, err := s.tags.PlacementVersion(ctx)
		if err != nil {
			return false
		}
		fmt.Fprintf(&b, " %d", version)
	}
	if s.held != nil {
		held, err := s.held(ctx)
		if err != nil {
			return false
		}
		fmt.Fprintf(&b, " %v", held) // in the order of their IDs
	}
	if n, err := s.generation(ctx); err == nil {
		fmt.Fprintf(&b, " %d", n)
	}
	if _, n, err := s.windows(ctx); err == nil {
		fmt.Fprintf(&b, " %d", n)
	}
	if s.network != nil {
		if n, err := s.network.Generation(ctx); err == nil {
			fmt.Fprintf(&b, " %d", n)
		}
	}
	if s.policies != nil {
		if n, err := s.policies.Generation(ctx); err == nil {
			fmt.Fprintf(&b, " %d", n)
		}
	}
	for _, c := range snap.Centers {
		fmt.Fprintf(&b, " %s %d", c.ID, c.Status)
	}
	changed := b.String() != *seen
	*seen = b.String()
	return changed
}

// cycler runs cycles; it belongs to one goroutine. What it shares with others
// is in the lineup, under its lock.
type cycler struct {
	*Service
	l       *lineup
	confAt  time.Time
	counted time.Time // when the open runs were last read
	// countTook is how long that took, counting what is being read now.
	countTook time.Duration
	counting  *counting
	// lookedFar is when a look for new work last reached far back, looked that one
	// since then did not.
	lookedFar time.Time
	looked    bool
	wakeAt    int64 // when something comes due by itself
	anything  bool  // something waits
	nearHeld  bool
	anew      bool          // some of that is read again now and then,
	anewAt    time.Time     // and was then, which
	anewTook  time.Duration // took so long
	freed     []string      // jobs that are read again: their reservation is over, or they wait for what else they need
	took      time.Duration // the last cycle; 0: it placed nothing
	rows      place.Rows    // memory for decisions, which are over with their cycle
	packed    packing       // and for what is stored of them
	// policyGeneration is that of the policies the lineup was made by.
	policyGeneration int64
	purse            *purse // nil: not read
}

// lookDue reports whether work may be there that a look did not reach.
func (c *cycler) lookDue() bool { return c.looked && time.Since(c.lookedFar) >= lookFarEvery }

func (c *cycler) idle() bool { return c.l != nil && !c.anything }

// due reports whether time alone lets a cycle do more.
func (c *cycler) due() bool {
	return c.l == nil || c.nearHeld || c.anewDue() || db.Micros(c.db.Now()) >= c.wakeAt
}

// anewDue reports whether what may go elsewhere by now is to be read again, which
// takes a twentieth of the time at most.
func (c *cycler) anewDue() bool {
	return c.anew && time.Since(c.anewAt) >= max(anewEvery, 20*c.anewTook)
}

// configure makes the lineup, or has it follow changed settings.
func (c *cycler) configure(ctx context.Context) error {
	changed, err := c.policiesChanged(ctx, &c.policyGeneration)
	if err != nil {
		return err
	}
	other, err := c.fillPurse(ctx)
	if err != nil {
		return err
	}
	if changed || other {
		c.l = nil // who asks for the same is another question now
	}
	if c.l != nil && time.Since(c.confAt) < settingsFresh && !c.changed.Swap(false) {
		return nil
	}
	n, err := c.generation(ctx)
	if err != nil {
		return fmt.Errorf("read the settings of the queue: %w", err)
	}
	if c.l != nil && n == c.l.conf.generation {
		c.confAt = time.Now()
		return nil
	}
	conf, err := c.settings(ctx)
	if err != nil {
		return fmt.Errorf("read the settings of the queue: %w", err)
	}
	c.confAt = time.Now()
	if c.l == nil {
		if c.l, err = newLineup(conf); err != nil {
			return err
		}
		c.l.class, c.l.told, c.l.ran = c.classOf, c.runs.expected, c.runs.note
		c.l.bounds = func(it *Item) []int { return c.purse.bounds(it) }
		c.counted = time.Time{}
		c.setLine(c.l)
		return nil
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.conf = conf
	return c.l.q.Configure(conf.config())
}

// arrivals is what was put into the queue since the last time or, if full, all
// that waits: of that, only what the lineup does not know is read whole.
type arrivals struct {
	items  []Item
	near   []string        // jobs that were read again
	listed map[string]bool // if full: all that wait
}

// read reads what arrived. It looks at the lineup's jobs, which nobody else may
// change meanwhile.
func (c *cycler) read(ctx context.Context, full bool) (*arrivals, error) {
	fresh := len(c.l.jobs) == 0
	since := c.l.cursor
	if c.db.Engine() == db.Postgres {
		since = max(0, c.l.cursor-overlap)
		if c.looked = true; time.Since(c.lookedFar) >= lookFarEvery {
			since, c.looked, c.lookedFar = max(0, c.l.cursor-overlapFar), false, time.Now()
		}
	}
	if full || fresh {
		since = 0
	}
	var near []string
	for id, w := range c.l.jobs { // few: they are looked at only while some wait for others
		if !c.nearHeld {
			break
		}
		if w.near {
			near = append(near, id)
		}
	}
	anew := c.anewDue()
	if anew {
		before := len(near)
		for id, w := range c.l.jobs {
			if w.anew {
				near = append(near, id)
			}
		}
		c.anew, c.anewAt = len(near) > before, time.Now()
	}
	near = append(near, c.freed...)
	c.freed = nil
	slices.Sort(near)
	a := &arrivals{near: slices.Compact(near), listed: map[string]bool{}}
	items, err := c.src.Waiting(ctx, since, func(id string, at int64) bool {
		if full {
			a.listed[id] = true
		}
		old := c.l.jobs[id]
		return old != nil && old.since == at
	}, a.near)
	if err != nil {
		return nil, fmt.Errorf("read the queue: %w", err)
	}
	if a.items = items; anew {
		c.anewTook = time.Since(c.anewAt)
	}
	return a, nil
}

// update brings the lineup up to date with what arrived.
func (c *cycler) update(snap *registry.Snapshot, a *arrivals, full bool) error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if err := c.l.places(snap); err != nil {
		return err
	}
	if full {
		for id := range c.l.jobs {
			if !a.listed[id] {
				c.l.drop(id)
			}
		}
		for _, e := range c.l.works { // a specification may be back
			if !e.queued && e.AllocationID == "" && c.l.measure(e, snap) && c.l.q.Put(e.queueWork()) == nil {
				e.queued = true
			}
		}
	}
	for i := range a.items {
		if err := c.l.put(&a.items[i], snap); err != nil {
			return err
		}
	}
	c.nearHeld = false
	for _, id := range a.near {
		w := c.l.jobs[id]
		c.nearHeld = c.nearHeld || w != nil && w.near
	}
	for i := range a.items {
		w := c.l.jobs[a.items[i].Work.ID]
		c.nearHeld, c.anew = c.nearHeld || w != nil && w.near, c.anew || w != nil && w.anew
	}
	return nil
}

// counting is a look at what runs. It goes on beside cycles: there may be tens
// of thousands of runs.
type counting struct {
	of   *lineup
	done chan struct{} // closed when the fields below are set
	open []string      // all
	news []Running     // those of them that the lineup did not know
	took time.Duration
	err  error
}

// look begins to read what runs.
func (c *cycler) look(ctx context.Context) *counting {
	k := &counting{of: c.l, done: make(chan struct{})}
	c.l.mu.Lock()
	c.l.ends, c.l.begun = map[string]bool{}, map[string]bool{}
	c.l.mu.Unlock()
	go func() {
		began := time.Now()
		k.open, k.news, k.err = c.src.Open(ctx, k.of.runsNow)
		k.took = time.Since(began)
		close(k.done)
		c.Wake()
	}()
	return k
}

// count makes the lineup count what runs: at the start, now and then, and
// where limits hold and another process may have recorded ends.
func (c *cycler) count(ctx context.Context, full bool) error {
	first := c.counted.IsZero()
	if c.counting != nil {
		select {
		case <-c.counting.done:
		default:
			if !first {
				return nil
			}
			<-c.counting.done
		}
		k := c.counting
		if c.counting = nil; k.of == c.l {
			return c.counts(k)
		}
	}
	every := max(settingsFresh, countShare*c.countTook)
	if !first && !full && (c.db.Engine() != db.Postgres || len(c.l.conf.queues) == 0 || time.Since(c.counted) < every) {
		return nil
	}
	k := c.look(ctx)
	if !first {
		c.counting = k
		return nil
	}
	<-k.done
	return c.counts(k)
}

// counts takes over what was read.
func (c *cycler) counts(k *counting) error {
	if k.err != nil {
		return fmt.Errorf("read what runs: %w", k.err)
	}
	c.counted, c.countTook = time.Now(), k.took
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.l.reconcile(k.open, k.news, db.Micros(c.db.Now()))
}

// cycle looks for new work and places what fits. It reports whether another
// cycle may place more at once.
func (c *cycler) cycle(ctx context.Context, full bool) (more bool, err error) {
	began := time.Now()
	c.took = 0
	if err := c.configure(ctx); err != nil {
		return false, err
	}
	c.learn(ctx)
	if err := c.count(ctx, full); err != nil {
		return false, err
	}
	var snap *registry.Snapshot
	var arrived *arrivals
	var windows []Window
	reads, rctx := errgroup.WithContext(ctx)
	reads.Go(func() (err error) {
		if snap, err = c.reg.Snapshot(rctx); err != nil {
			return fmt.Errorf("read the centers: %w", err)
		}
		windows, _, err = c.windows(rctx)
		return err
	})
	reads.Go(func() (err error) {
		arrived, err = c.read(rctx, full)
		return err
	})
	if err := reads.Wait(); err != nil {
		return false, err
	}
	// Who changes a center and then submits a job means the changed one.
	if now, err := c.reg.Catalog(ctx); err != nil {
		return false, fmt.Errorf("read the centers: %w", err)
	} else if now.Version != snap.Version {
		if snap, err = c.reg.Snapshot(ctx); err != nil {
			return false, fmt.Errorf("read the centers: %w", err)
		}
	}
	if err := c.update(snap, arrived, full); err != nil {
		return false, err
	}
	c.waiting.Set(float64(len(c.l.jobs)))
	c.l.mu.Lock()
	err = c.l.follow(windows)
	picked := c.l.pick()
	c.l.mu.Unlock()
	if err != nil {
		return false, err
	}
	c.anything = len(c.l.jobs) > 0
	if len(picked) == 0 {
		return false, nil
	}
	start := time.Now()
	set, err := c.policySet(ctx)
	if err != nil {
		return false, err
	}
	works, items, entries := make([]place.Work, 0, len(picked)), make([]*Item, 0, len(picked)), make(map[string]*entry, len(picked))
	for _, e := range picked {
		if w, ok := fillWork(e, snap, c.l.shut, db.Micros(c.db.Now())); ok {
			c.purse.cap(e, &w, snap, c.db.Now())
			works, items, entries[e.id] = append(works, w), append(items, &e.Item), e
		}
	}
	d := &driver{lineup: c.l, now: db.Micros(c.db.Now()), entries: entries, snap: snap, purse: c.purse, dropped: map[replica]bool{}, refused: map[string]bool{}}
	res, err := c.planLive(ctx, d, works, items, set)
	if err != nil {
		return false, err
	}
	if c.wakeAt, err = c.refusedUntil(ctx, works, d.wake); err != nil {
		return false, err
	}
	c.wakeAt = c.purse.wake(c.db.Now(), c.wakeAt)
	for _, e := range entries {
		for _, until := range e.kept {
			c.wakeAt = min(c.wakeAt, until)
		}
	}
	for _, e := range picked {
		if res.over[e.AllocationID] {
			c.freed, d.missed = append(c.freed, e.Work.ID), true
		}
	}
	all := res.Placements
	if len(all) > 0 {
		if res.Placements, err = c.ready(ctx, snap, all, entries); err != nil {
			return false, err
		}
		var taken []Placement
		if len(res.Placements) > 0 {
			if taken, err = c.commit(ctx, snap, res, entries); err != nil {
				return false, err
			}
		}
		if err := c.settle(all, taken, entries, snap); err != nil {
			return false, err
		}
		c.took = time.Since(began)
		c.placed.Add(float64(len(taken)))
		c.cycles.Observe(time.Since(start).Seconds())
		c.Service.count(figures{replicas: int64(len(taken)), busy: time.Since(start)})
	}
	c.anything = len(c.l.jobs) > 0
	if err := c.preempt(ctx, d); err != nil {
		return false, err
	}
	return c.anything && (len(all) > 0 || d.missed), nil
}

// ready leaves out placements of replicas that do not have what else they need. Their jobs
// are read again, and say what they wait for.
func (c *cycler) ready(ctx context.Context, snap *registry.Snapshot, all []place.Placement, entries map[string]*entry) ([]place.Placement, error) {
	var asked []Placement
	for _, p := range all {
		e := entries[p.Work]
		if e == nil || !e.Asks {
			continue
		}
		q, err := placement(snap, e, p, "")
		if err != nil {
			return nil, err
		}
		asked = append(asked, q)
	}
	if len(asked) == 0 {
		return all, nil
	}
	ready, err := c.src.Ready(ctx, asked, c.may())
	if err != nil {
		return nil, fmt.Errorf("ask what else replicas need: %w", err)
	}
	out := make([]place.Placement, 0, len(all))
	i := -1
	for _, p := range all {
		if e := entries[p.Work]; e != nil && e.Asks {
			if i++; !ready[i] {
				c.freed = append(c.freed, e.Work.ID)
				if len(e.budgets) > 0 {
					c.BudgetsChanged() // what it would have cost is left
				}
				continue
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// planLive plans as the queue says. The plan's own goroutine is the only one
// that asks the queue meanwhile.
func (c *cycler) planLive(ctx context.Context, d *driver, works []place.Work, items []*Item, set *place.Set) (*planned, error) {
	res, err := c.planWith(ctx, d.snap, works, items, set, func(o *place.Options) func() {
		c.l.mu.Lock()
		d.round = c.l.q.Round(d.now)
		c.rows.Reset()
		o.Rows = &c.rows
		o.Changes, o.Order, o.Placed = true, d.order, d.placed
		return func() {
			d.wake = c.l.q.Wake()
			c.l.mu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	if d.err != nil {
		return nil, d.err
	}
	if len(d.dropped) > 0 {
		res.Placements = slices.DeleteFunc(res.Placements, func(p place.Placement) bool { return d.dropped[replica{p.Work, p.Task, p.Replica}] })
	}
	return res, nil
}

// settle brings the lineup up to date with what was committed.
func (c *cycler) settle(placements []place.Placement, taken []Placement, entries map[string]*entry, snap *registry.Snapshot) error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	now := db.Micros(c.db.Now())
	moved := map[string][]place.Placement{}
	var order []string
	for _, p := range placements {
		if moved[p.Work] == nil {
			order = append(order, p.Work)
		}
		moved[p.Work] = append(moved[p.Work], p)
	}
	for _, id := range order {
		e := entries[id]
		if e.queued { // it is one per run from now on
			c.l.q.Ended(id, now)
		}
		e.queued = false
		w := c.l.jobs[e.Work.ID]
		c.l.dropWork(id)
		left := rest(e.Work, moved[id])
		if w != nil {
			w.works = slices.DeleteFunc(w.works, func(x string) bool { return x == id })
		}
		if len(left.Tasks) > 0 && w != nil {
			more := &entry{Item: e.Item, id: id, more: e.more}
			more.Work = left
			if err := c.l.add(more, snap); err != nil {
				return err
			}
			w.works = append(w.works, id)
		}
		if e.Work.Gang && w != nil && len(e.More) > 0 { // it has its least
			e.Item.Work.Placed = left.Placed
			for _, m := range moreOf(&e.Item) {
				if err := c.l.add(m, snap); err != nil {
					return err
				}
				w.works = append(w.works, m.id)
			}
		}
		if w != nil && len(w.works) == 0 && len(w.item.Held) == 0 {
			delete(c.l.jobs, e.Work.ID)
		}
	}
	rs := make([]Running, 0, len(taken))
	for _, p := range taken {
		e := entries[p.work]
		r := Running{AttemptID: p.AttemptID, JobID: p.JobID, Tenant: e.Work.Tenant, Center: p.Center, Task: p.Task, Gang: e.Work.Gang, Resources: p.Resources,
			Priority: e.Work.Priority, Since: now, RunSeconds: e.RunSeconds, GraceSeconds: e.GraceSeconds, Keep: e.NoPreemption, AllocationID: p.AllocationID, Kin: e.Kin}
		if e.Least != nil {
			r.Least = e.Least[p.Task]
		}
		rs = append(rs, r)
	}
	return c.l.begin(rs)
}

// rest is what of a work still waits after placements.
func rest(w place.Work, ps []place.Placement) place.Work {
	placed := map[string]map[int]bool{}
	counts := map[string]int{}
	for c, n := range w.Placed {
		counts[c] = n
	}
	for _, p := range ps {
		if placed[p.Task] == nil {
			placed[p.Task] = map[int]bool{}
		}
		placed[p.Task][p.Replica] = true
		counts[p.Candidate]++
	}
	w.Placed = counts
	var tasks []place.Task
	for _, t := range w.Tasks {
		var left []int
		for _, i := range t.Indices {
			if !placed[t.ID][i] {
				left = append(left, i)
			}
		}
		if t.Indices, t.Replicas = left, len(left); len(left) > 0 {
			tasks = append(tasks, t)
		}
	}
	w.Tasks = tasks
	return w
}
