// Package scheduler decides where waiting work runs. The decision itself is
// the pure package place; this one keeps the queue, takes snapshots, commits
// what was decided and explains it.
//
// What it keeps true:
//
//   - What waits is state of the jobs ([Source]); the queue in memory is a copy
//     of it, brought up to date from what changed and read anew every
//     [reloadEvery], so a lost wake-up delays work and never loses it.
//   - A decision, the reservations for it and the attempts that follow from it
//     are one transaction. If a center has less than the snapshot said, nothing
//     of the cycle is committed and the next cycle decides again.
//   - One process schedules at a time (run.Lead). Were there two, the
//     reservations would still hold: they are conditional on what is free.
//   - Every decision is kept with its whole score table.
//
// A cycle:
//
//	Waiting (what changed) ─▶ queue ─▶ pick ─▶ place.Plan(snapshot) ─▶ one tx:
//	    jobs.PlacedTx · registry.ReserveTx · decisions ─▶ centers are told
//
// Pick takes the first works of every shape (what they ask for), so that a
// flood of equal jobs neither makes a cycle long nor hides a job that asks for
// something else. A cycle runs when something changed: work came, room did, or
// ([lookEvery]) a center.
package scheduler

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/tags"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Item is a job that waits.
type Item struct {
	Work    place.Work
	Weights map[string]int32 // own policy weights; empty: the platform's
	User    string           // who submitted it
	Labels  map[string]string
	Since   int64 // when it was last put in the queue, microseconds
	// AllocationID is what it draws on; "": what centers have free.
	AllocationID string
	NotBefore    int64 // not placed before then, microseconds; 0: at once
	Deadline     int64 // when it should have ended, microseconds; 0: none
	NoPreemption bool  // its runs are never taken back
	// Held is what of the job waits for something else than room; it is not in
	// Work.
	Held []Held
}

// Cause is what holds work back.
type Cause = schedulerv1.Wait_Cause

// Causes that the owner of jobs knows.
const (
	Dependency = schedulerv1.Wait_CAUSE_DEPENDENCY
	Restart    = schedulerv1.Wait_CAUSE_RESTART
	NearJob    = schedulerv1.Wait_CAUSE_NEAR_JOB
)

// Held are replicas of a task that wait for something else than room.
type Held struct {
	Cause    Cause
	Task     int // its index; -1: the whole job
	Replicas int
	Text     string // for people
}

// KeepNear keeps the work to the places of another job, and holds it while
// there are none.
func (it *Item) KeepNear(job string, places []string) {
	if places != nil {
		for i := range it.Work.Tasks {
			t := &it.Work.Tasks[i]
			if t.Pinned == nil {
				t.Pinned = places
				continue
			}
			both := []string{}
			for _, c := range t.Pinned {
				if slices.Contains(places, c) {
					both = append(both, c)
				}
			}
			t.Pinned = both
		}
		return
	}
	n := 0
	for _, t := range it.Work.Tasks {
		n += t.Replicas
	}
	if n > 0 {
		it.Held = append(it.Held, Held{Cause: NearJob, Task: -1, Replicas: n, Text: fmt.Sprintf("waits until job %s, which it shall be near to, has a place", job)})
		it.Work.Tasks = nil
	}
}

// Placement gives a replica its place.
type Placement struct {
	JobID         string
	Task, Replica int
	Center        string
	Spec          string
	Resources     core.Quantities
	Price         int64 // fen per hour
	DecisionID    string
	AllocationID  string // that it draws on; "": on what its center has free
	OnNodes       bool   // it may run on the allocation's nodes only
}

// PlacedReplica is a placement made, for explaining.
type PlacedReplica struct {
	Task, Replica, Attempt int
	CenterID, DecisionID   string
	At                     time.Time
}

// Explained is what of a job can be explained.
type Explained struct {
	JobID     string
	TaskNames []string
	Placed    []PlacedReplica
	Waiting   *Item // nil: nothing waits
	Paused    bool  // what waits is not placed
}

// Source owns what waits; implemented by jobs.
type Source interface {
	// Waiting returns the jobs put in the queue at or after since (0: all) that
	// known does not know, and those of again that wait.
	Waiting(ctx context.Context, since int64, known func(id string, since int64) bool, again []string) ([]Item, error)
	// Preempt takes runs back for other work: they are stopped and wait again,
	// which uses up no retry. It returns how many; runs that have ended or are
	// not to be preempted stay as they are.
	Preempt(ctx context.Context, attemptIDs []string, why string) (int, error)
	// WaitingByTenant returns what waits of each tenant, the longest queue first.
	WaitingByTenant(ctx context.Context) ([]TenantQueue, error)
	// SchedulingTimes returns the scheduling time (equation 3) in microseconds of
	// the newest jobs that all replicas of were issued, at most limit, of those
	// received at or after since; the zero time: of those received last.
	SchedulingTimes(ctx context.Context, since time.Time, limit int) ([]int64, error)
	// PlacedTx records placements and returns those it took.
	PlacedTx(ctx context.Context, tx *db.Tx, ps []Placement) ([]Placement, error)
	// Explained returns what of a job the caller may see can be explained.
	Explained(ctx context.Context, jobID string) (*Explained, error)
	// FirstTask returns the first task of a job the caller may see.
	FirstTask(ctx context.Context, jobID string) (place.Task, error)
}

// Service is the scheduler.
type Service struct {
	db       *db.DB
	reg      *registry.Service
	log      *slog.Logger
	src      Source
	room     Allocations // nil: there are none
	tags     *tags.Service
	policies Policies                                             // nil: there are none
	held     func(ctx context.Context) (map[string]string, error) // nil: none is
	wake     chan struct{}
	enc      *zstd.Encoder
	dec      *zstd.Decoder

	placed  prometheus.Counter
	cycles  prometheus.Histogram
	waiting prometheus.Gauge
	times   prometheus.Histogram

	mu      sync.Mutex // guards the fields below
	set     *place.Set
	setAt   time.Time
	unsaved figures
}

// New returns the service; its loop is Run. SetSource must be called before.
func New(ctx context.Context, d *db.DB, reg *registry.Service, metrics prometheus.Registerer, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "scheduler", migrations); err != nil {
		return nil, err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(128<<10))
	if err != nil {
		return nil, fmt.Errorf("compressor: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, fmt.Errorf("decompressor: %w", err)
	}
	s := &Service{db: d, reg: reg, log: log.With("component", "scheduler"), wake: make(chan struct{}, 1), enc: enc, dec: dec,
		placed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "yunhe_scheduler_placed_total", Help: "Replicas placed."}),
		cycles:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "yunhe_scheduler_cycle_seconds", Help: "Time of scheduling cycles that placed something.", Buckets: prometheus.ExponentialBuckets(.0005, 2, 14)}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "yunhe_scheduler_waiting", Help: "Jobs in the queue."}),
		times: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "yunhe_scheduler_scheduling_seconds", Help: "Time from receiving a job until all its replicas were issued to centers (equation 3).",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 18)}),
	}
	metrics.MustRegister(s.placed, s.cycles, s.waiting, s.times)
	return s, d.Tx(ctx, func(tx *db.Tx) error { // counting begins with the first start
		_, err := tx.Exec(ctx, `INSERT INTO scheduling_figures (bucket, began_at, jobs, replicas, busy_us) VALUES (0, $1, 0, 0, 0) ON CONFLICT (bucket) DO NOTHING`, db.Micros(tx.Now))
		return err
	})
}

// SetSource says who owns what waits; it breaks the circle of construction
// between this component and jobs.
func (s *Service) SetSource(src Source) { s.src = src }

// SetTags says who judges the expressions of tasks. Without it, work that has
// one waits.
func (s *Service) SetTags(t *tags.Service) { s.tags = t }

// SetHeld says who knows the centers that take no new work, and why, for the
// owners of jobs. It is called before the first call, if at all.
func (s *Service) SetHeld(f func(ctx context.Context) (map[string]string, error)) { s.held = f }

// holdBack takes the centers out that are held back.
func (s *Service) holdBack(ctx context.Context, out *place.Snapshot) error {
	if s.held == nil {
		return nil
	}
	held, err := s.held(ctx)
	if err != nil {
		return fmt.Errorf("read which centers are held back: %w", err)
	}
	for i := range out.Candidates {
		if c := &out.Candidates[i]; held[c.ID] != "" && c.Status == place.Available {
			c.Status, c.StatusReason = place.Unavailable, held[c.ID]
		}
	}
	return nil
}

// Wake asks for a cycle soon. It does not block.
func (s *Service) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	// reloadEvery repairs what signals missed.
	reloadEvery = 20 * time.Second
	// lookEvery is how soon work that waits notices a center that came.
	lookEvery = 500 * time.Millisecond
	// perShape works of each shape go into a cycle.
	perShape = 128
	// maxCycle works in all go into a cycle.
	maxCycle = 2048
	// overlap is how far back a look for new work reaches on PostgreSQL, where
	// transactions commit in another order than they began.
	overlap = 10 * int64(time.Second/time.Microsecond)
)

// queue is the copy in memory of what waits.
type queue struct {
	items  map[string]*entry
	shapes map[string]*shape
	cursor int64
}

// entry is a job in the queue with its shape.
type entry struct {
	Item
	shape string
	gone  bool // not in the queue any more
}

// shape holds the jobs that ask for the same thing, best first when sorted.
type shape struct {
	list   []*entry
	gone   int // entries of the list that are gone
	sorted bool
}

func newQueue() *queue { return &queue{items: map[string]*entry{}, shapes: map[string]*shape{}} }

func (q *queue) put(it Item) {
	q.remove(it.Work.ID)
	e := &entry{Item: it, shape: shapeOf(&it)}
	q.items[it.Work.ID] = e
	sh := q.shapes[e.shape]
	if sh == nil {
		sh = &shape{sorted: true}
		q.shapes[e.shape] = sh
	}
	if n := len(sh.list); n > 0 && before(e, sh.list[n-1]) {
		sh.sorted = false
	}
	sh.list = append(sh.list, e)
	q.cursor = max(q.cursor, it.Since)
}

// remove forgets a job. Its entry in the shape's list is dropped when met.
func (q *queue) remove(id string) {
	if e := q.items[id]; e != nil {
		e.gone = true
		q.shapes[e.shape].gone++
		delete(q.items, id)
	}
}

// live drops the entries that are gone if they are in the way: at the front,
// where they mostly are, or half of the list.
func (sh *shape) live() []*entry {
	for len(sh.list) > 0 && sh.list[0].gone {
		sh.list, sh.gone = sh.list[1:], sh.gone-1
	}
	if sh.gone > len(sh.list)/2 {
		sh.list, sh.gone = slices.DeleteFunc(sh.list, func(e *entry) bool { return e.gone }), 0
	}
	return sh.list
}

func before(a, b *entry) bool {
	return cmp.Or(-cmp.Compare(a.Work.Priority, b.Work.Priority), cmp.Compare(a.Work.Arrival, b.Work.Arrival), strings.Compare(a.Work.ID, b.Work.ID)) < 0
}

// pick returns the first works of every shape, best first.
func (q *queue) pick() []*entry {
	var out []*entry
	for name, sh := range q.shapes {
		if len(sh.live()) == 0 {
			delete(q.shapes, name)
			continue
		}
		if !sh.sorted {
			slices.SortFunc(sh.list, func(a, b *entry) int {
				if before(a, b) {
					return -1
				}
				return 1
			})
			sh.sorted = true
		}
		n := 0
		for _, e := range sh.list {
			if n == perShape {
				break
			}
			if !e.gone {
				out = append(out, e)
				n++
			}
		}
	}
	slices.SortFunc(out, func(a, b *entry) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	return out[:min(len(out), maxCycle)]
}

// shapeOf names what a job asks for: two jobs with the same name compete for
// the same room.
func shapeOf(it *Item) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s|", it.Work.Gang, it.AllocationID)
	for _, t := range it.Work.Tasks {
		fmt.Fprintf(&b, "%s %s %d %v %v %d %d %q;", t.Spec, t.Image, t.Replicas, t.Pinned, t.Regions, t.MinGrade, t.MaxPrice.Value, t.Expression)
	}
	return b.String()
}

// Run schedules until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	q := newQueue()
	reload := time.NewTicker(reloadEvery)
	defer reload.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	full, seen := true, ""
	for {
		more, err := s.cycle(ctx, q, full)
		if full = err != nil; full {
			q = newQueue() // what failed may be the copy's fault
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("scheduling cycle failed, will read the queue anew", "error", err)
		}
		if more && err == nil {
			continue
		}
		retry := retryAfter(err)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
				waiting = len(q.items) == 0 || !s.roomChanged(ctx, &seen)
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
	for _, c := range snap.Centers {
		fmt.Fprintf(&b, " %s %d", c.ID, c.Status)
	}
	changed := b.String() != *seen
	*seen = b.String()
	return changed
}

// retryAfter is a pause after a failed cycle, none (for ever) otherwise.
func retryAfter(err error) <-chan time.Time {
	if err == nil {
		return nil
	}
	return time.After(200 * time.Millisecond)
}

// update brings the queue up to date with what was put into it since the last
// time or, if full, with all that waits: of that, only what the queue does not
// know is read whole.
func (s *Service) update(ctx context.Context, q *queue, full bool) error {
	since := q.cursor
	if s.db.Engine() == db.Postgres {
		since = max(0, q.cursor-overlap)
	}
	if full {
		since = 0
	}
	listed := map[string]bool{}
	items, err := s.src.Waiting(ctx, since, func(id string, at int64) bool {
		if full {
			listed[id] = true
		}
		old := q.items[id]
		return old != nil && old.Since == at
	}, nil)
	if err != nil {
		return err
	}
	if full {
		for id := range q.items {
			if !listed[id] {
				q.remove(id)
			}
		}
	}
	for _, it := range items {
		q.put(it)
	}
	return nil
}

// cycle looks for new work and places what fits. It reports whether another
// cycle may place more at once.
func (s *Service) cycle(ctx context.Context, q *queue, full bool) (more bool, err error) {
	if err := s.update(ctx, q, full); err != nil {
		return false, fmt.Errorf("read the queue: %w", err)
	}
	s.waiting.Set(float64(len(q.items)))
	picked := q.pick()
	if len(picked) == 0 {
		return false, nil
	}
	start := time.Now()
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return false, fmt.Errorf("read the centers: %w", err)
	}
	set, err := s.policySet(ctx)
	if err != nil {
		return false, err
	}
	works, items := make([]place.Work, 0, len(picked)), make([]*Item, 0, len(picked))
	for _, e := range picked {
		if w, ok := fill(&e.Item, snap); ok {
			works, items = append(works, w), append(items, &e.Item)
		}
	}
	res, err := s.plan(ctx, snap, works, items, set)
	if err != nil {
		return false, err
	}
	if len(res.Placements) == 0 {
		return false, nil
	}
	taken, err := s.commit(ctx, snap, res, q)
	if err != nil {
		return false, err
	}
	for id := range workIDs(res.Placements) {
		if !waits(res.Unplaced, id) {
			q.remove(id)
		} else if e := q.items[id]; e != nil {
			e.Work = rest(e.Work, res.Placements)
		}
	}
	s.placed.Add(float64(taken))
	s.cycles.Observe(time.Since(start).Seconds())
	s.count(figures{replicas: int64(taken), busy: time.Since(start)})
	return len(q.items) > 0, nil
}

func workIDs(ps []place.Placement) map[string]bool {
	out := map[string]bool{}
	for _, p := range ps {
		out[p.Work] = true
	}
	return out
}

func waits(us []place.Unplaced, id string) bool {
	return slices.ContainsFunc(us, func(u place.Unplaced) bool { return u.Work == id })
}

// rest is what of a work still waits after placements.
func rest(w place.Work, ps []place.Placement) place.Work {
	placed := map[string]map[int]bool{}
	counts := map[string]int{}
	for c, n := range w.Placed {
		counts[c] = n
	}
	for _, p := range ps {
		if p.Work == w.ID {
			if placed[p.Task] == nil {
				placed[p.Task] = map[int]bool{}
			}
			placed[p.Task][p.Replica] = true
			counts[p.Candidate]++
		}
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

// fill completes a work with what its specifications amount to. It reports
// false if one no longer exists: the job waits, and explain says why.
func fill(it *Item, snap *registry.Snapshot) (place.Work, bool) {
	w := it.Work
	w.Tasks = slices.Clone(w.Tasks)
	for i := range w.Tasks {
		spec := snap.Specs[w.Tasks[i].Spec]
		if spec == nil {
			return w, false
		}
		w.Tasks[i].Request = place.Amounts(spec.Quantity)
		w.Tasks[i].Kind = kindOf(spec.Quantity)
	}
	if set := ownSet(it.Weights); set != nil {
		w.Set = set
	}
	return w, true
}

// kindOf is the compute kind that decides how long a task runs.
func kindOf(q core.Quantities) string {
	for _, k := range []string{"gpu", "npu", "mlu"} {
		if q[k] > 0 {
			return k
		}
	}
	return "cpu"
}

// commit stores what was decided, all or nothing.
func (s *Service) commit(ctx context.Context, snap *registry.Snapshot, res *planned, q *queue) (taken int, err error) {
	placements := res.Placements
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		taken = 0
		ids := map[*place.Decision]map[string]string{} // one record per decision and job
		var rows [][]any
		list := make([]Placement, len(placements))
		for i, p := range placements {
			if ids[p.Decision] == nil {
				ids[p.Decision] = map[string]string{}
			}
			id, ok := ids[p.Decision][p.Work]
			if !ok {
				id = core.NewID("dec")
				ids[p.Decision][p.Work] = id
				body, err := s.pack(p.Decision)
				if err != nil {
					return err
				}
				rows = append(rows, []any{id, p.Work, db.Micros(tx.Now), body})
			}
			var err error
			if list[i], err = placement(snap, q, p, id); err != nil {
				return err
			}
			list[i].OnNodes = res.rooms[list[i].AllocationID].OnNodes
		}
		got, err := s.src.PlacedTx(ctx, tx, list)
		if err != nil {
			return err
		}
		taken = len(got)
		if res.verdict != nil {
			if err := res.verdict.CommitTx(ctx, tx, got); err != nil {
				return err
			}
		}
		if err := tx.Insert(ctx, "decisions", []string{"decision_id", "job_id", "at", "body"}, rows); err != nil {
			return fmt.Errorf("store decisions: %w", err)
		}
		return s.reserve(ctx, tx, got)
	})
	return taken, err
}

func (s *Service) reserve(ctx context.Context, tx *db.Tx, ps []Placement) error {
	sums, counts, draws := map[string]core.Quantities{}, map[string]int64{}, map[string]core.Quantities{}
	for _, p := range ps {
		if sums[p.Center] == nil {
			sums[p.Center] = core.Quantities{}
		}
		to := sums[p.Center]
		if p.AllocationID != "" {
			if draws[p.AllocationID] == nil {
				draws[p.AllocationID] = core.Quantities{}
			}
			to = draws[p.AllocationID]
		}
		for name, n := range p.Resources {
			to[name] += n
		}
		counts[p.Center]++
	}
	// Allocations first, as everywhere where both are locked.
	for _, id := range slices.Sorted(keys(draws)) {
		ok, err := s.room.DrawTx(ctx, tx, id, draws[id])
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Conflict, "allocation %s has less room than it said", id)
		}
	}
	// In one order everywhere, so that concurrent transactions do not lock crosswise.
	for _, center := range slices.Sorted(keys(sums)) {
		ok, err := s.reg.ReserveTx(ctx, tx, center, sums[center], counts[center])
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Conflict, "center %s has less room than the snapshot said", center)
		}
	}
	return nil
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func placement(snap *registry.Snapshot, q *queue, p place.Placement, decisionID string) (Placement, error) {
	out := Placement{JobID: p.Work, Replica: p.Replica, Center: p.Candidate, DecisionID: decisionID}
	if _, err := fmt.Sscanf(p.Task, "%d", &out.Task); err != nil {
		return out, fmt.Errorf("task %q of %s: %w", p.Task, p.Work, err)
	}
	e := q.items[p.Work]
	if e == nil {
		return out, fmt.Errorf("placed %s, which does not wait", p.Work)
	}
	for _, t := range e.Work.Tasks {
		if t.ID == p.Task {
			out.Spec = t.Spec
		}
	}
	spec, center := snap.Specs[out.Spec], centerOf(snap, p.Candidate)
	if spec == nil || center == nil {
		return out, fmt.Errorf("placed %s by a specification or center that is gone", p.Work)
	}
	out.Resources, out.AllocationID = spec.Quantity, e.AllocationID
	out.Price = int64(center.Offers[out.Spec])
	return out, nil
}

func (s *Service) pack(d *place.Decision) ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode decision: %w", err)
	}
	return s.enc.EncodeAll(b, nil), nil
}

func (s *Service) unpack(body []byte) (*place.Decision, error) {
	b, err := s.dec.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("stored decision: %w", err)
	}
	d := &place.Decision{}
	return d, json.Unmarshal(b, d)
}

// ForgetTx deletes the decisions of a job.
func (s *Service) ForgetTx(ctx context.Context, tx *db.Tx, jobID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM decisions WHERE job_id = $1`, jobID)
	return err
}

// snapshotFor is snapshotOf with what the expressions of the works say.
func (s *Service) snapshotFor(ctx context.Context, snap *registry.Snapshot, works []place.Work) (*place.Snapshot, error) {
	out := snapshotOf(snap)
	if err := s.holdBack(ctx, out); err != nil {
		return nil, err
	}
	var expressions []string
	last := "" // neighbors in the queue mostly ask for the same
	for i := range works {
		for _, t := range works[i].Tasks {
			if t.Expression != "" && t.Expression != last {
				last = t.Expression
				expressions = append(expressions, last)
			}
		}
	}
	if len(expressions) == 0 || s.tags == nil {
		return out, nil
	}
	var err error
	if out.Unmet, err = s.tags.Exclude(ctx, expressions); err != nil {
		return nil, fmt.Errorf("judge expressions: %w", err)
	}
	return out, nil
}

// snapshotOf translates the registry's snapshot for the engine.
func snapshotOf(snap *registry.Snapshot) *place.Snapshot {
	out := &place.Snapshot{Candidates: make([]place.Candidate, 0, len(snap.Centers))}
	for _, c := range snap.Centers {
		out.Candidates = append(out.Candidates, candidate(c))
	}
	return out
}

// centerOf finds a center of a snapshot; nil if there is none.
func centerOf(snap *registry.Snapshot, id string) *registry.Center {
	i, ok := slices.BinarySearchFunc(snap.Centers, id, func(c *registry.Center, id string) int { return strings.Compare(c.ID, id) })
	if !ok {
		return nil
	}
	return snap.Centers[i]
}

func candidate(c *registry.Center) place.Candidate {
	p := place.Candidate{ID: c.ID, Name: c.Name, Region: c.Region, SecurityGrade: c.SecurityGrade, Attributes: c.Labels, Total: place.Amounts(c.Total),
		Free: place.Amounts{}, Offers: map[string]place.Offer{}, RunningTasks: c.Running, WaitingTasks: c.Waiting}
	switch {
	case c.Drained:
		p.Status, p.StatusReason = place.Draining, "an operator took it out of use"
	case c.Status == registry.Available:
		p.Status = place.Available
	case c.Status == registry.Unavailable:
		p.Status = place.Unavailable
	default:
		p.Status, p.StatusReason = place.Unknown, "it has not been heard of for "+registry.SeenWithin.String()
	}
	for name, n := range c.Total {
		p.Free[name] = max(0, n-c.Used[name])
	}
	for spec, price := range c.Offers {
		p.Offers[spec] = place.Offer{PriceFenPerHour: place.Known(int64(price))}
	}
	for id := range c.Images {
		p.Images = append(p.Images, id)
	}
	slices.Sort(p.Images)
	if c.Position != nil {
		p.Position = &place.Position{Longitude: c.Position.Longitude, Latitude: c.Position.Latitude}
	}
	if c.Performance > 0 {
		p.Speeds = []place.Speed{{Kind: "cpu", Milli: c.Performance}}
	}
	if c.Power.Active > 0 {
		// Declared per core, for the core and all that goes with it.
		p.Power = map[string]place.Power{}
		for name := range c.Total {
			p.Power[name] = place.Power{}
		}
		p.Power[core.CPU] = place.Power{Per: 1000, Static: c.Power.Static, Busy: c.Power.Active}
	}
	return p
}
