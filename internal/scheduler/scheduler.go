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
//   - One process schedules at a time (run.Elector). Were there two, the
//     reservations would still hold: they are conditional on what is free.
//   - Every decision is kept with its whole score table: a cycle's decisions as
//     one trail, in which a table is what changed since the one before.
//
// A cycle:
//
//	Waiting (what changed) ─▶ queue ─▶ pick ─▶ place.Plan(snapshot) ─▶ jobs.Ready ─▶
//	    one tx: jobs.PlacedTx · registry.ReserveTx · decisions ─▶ centers are told
//
// Pick takes the first works of every shape (what they ask for), so that a
// flood of equal jobs neither makes a cycle long nor hides a job that asks for
// something else. A cycle runs when something changed: work came, room did, or
// ([lookEvery]) a center; after one that placed something the next waits a little
// ([restShare]). What centers have is read as far as it changed
// ([registry.Service.Snapshot]).
package scheduler

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/standing"
	"yunhe.dev/yunhe/internal/tags"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Item is a job that waits.
type Item struct {
	Work    place.Work       // its origin is a name of [network.From] until it is decided about
	Weights map[string]int32 // own policy weights; empty: the platform's
	User    string           // who submitted it
	Labels  map[string]string
	Since   int64 // when it was last put in the queue, microseconds
	// AllocationID is the allocation or reservation that it draws on; "": what
	// centers have free.
	AllocationID string
	NotBefore    int64 // not placed before then, microseconds; 0: at once
	Deadline     int64 // when it should have ended, microseconds; 0: none
	NoPreemption bool  // its runs are never taken back
	RunSeconds   int64 // how long it is expected to run, as its owner says; 0: not known
	GraceSeconds int64 // how long its runs may take to end when they are asked to
	Kin          Kin   // what it is compared with to tell how long it runs
	// More are what of an elastic gang is placed once the gang has its least,
	// which is in Work: one by one, as room allows.
	More []place.Task
	// Least is, of an elastic gang, how many replicas each of the job's tasks has at
	// least.
	Least []int
	// Held is what of the job waits for something else than room; it is not in
	// Work.
	Held []Held
	// Anew says that where it may go changes while it waits: it is read again now and
	// then.
	Anew bool
	// Asks says that its replicas are placed only once they have what else they need:
	// [Source.Ready].
	Asks bool
}

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
		for _, tasks := range [][]place.Task{it.Work.Tasks, it.More} {
			for i := range tasks {
				t := &tasks[i]
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
		}
		return
	}
	n := 0
	for _, tasks := range [][]place.Task{it.Work.Tasks, it.More} {
		for _, t := range tasks {
			n += t.Replicas
		}
	}
	if n > 0 {
		it.Held = append(it.Held, Held{Cause: NearJob, Task: -1, Replicas: n, Text: fmt.Sprintf("waits until job %s, which it shall be near to, has a place", job)})
		it.Work.Tasks, it.More = nil, nil
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
	Gang          bool   // it is placed with the others of its job that are in the same list, or not
	AttemptID     string // the run made of it; set by the source
	work          string // of the queue
}

// May says which of some runs may be taken back so that a replica has what it needs beside
// room, those first by which the least is lost; nil: none ever. Any of them may, and all together.
type May func(p Placement, attempts []string) []Yield

// Yield are runs that are taken back together, or not.
type Yield struct {
	Runs []string
	Lost int64 // of their time, see [queue.Yield]
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
	Specs     []string // of the tasks
	Priority  int64
	Placed    []PlacedReplica
	Waiting   *Item  // nil: nothing waits
	Paused    bool   // what waits is not placed
	Lacking   []Held // what replicas with a place wait for before they begin
}

// Source owns what waits; implemented by jobs.
type Source interface {
	// Waiting returns the jobs put in the queue at or after since (0: all) that
	// known does not know, and those of again that wait.
	Waiting(ctx context.Context, since int64, known func(id string, since int64) bool, again []string) ([]Item, error)
	// Running returns the open runs, in no certain order.
	Running(ctx context.Context) ([]Running, error)
	// Open returns the IDs of the open runs that draw on no allocation, and those
	// of them whole that known does not know, both in no certain order.
	Open(ctx context.Context, known func(attemptID string) bool) ([]string, []Running, error)
	// EndedRuns returns those of the given attempts that ended by themselves; nil:
	// the latest, as many as given. They come in the order in which they were placed.
	EndedRuns(ctx context.Context, attemptIDs []string, latest int) ([]EndedRun, error)
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
	// Ready returns which replicas that would be placed have what else they need, and asks
	// for it for the others, which wait for that from then on, and may have runs taken back.
	Ready(ctx context.Context, ps []Placement, may May) ([]bool, error)
	// Hold has replicas that are ready and not placed yet keep what they have until then:
	// runs end for them.
	Hold(ctx context.Context, ps []Placement, until time.Time) error
	// PlacedTx records placements and returns those it took.
	PlacedTx(ctx context.Context, tx *db.Tx, ps []Placement) ([]Placement, error)
	// Neighbors counts the open runs of jobs, by their IDs, and of groups, by the
	// names in [place.Work.Groups], by center.
	Neighbors(ctx context.Context, names []string) (map[string]map[string]int, error)
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
	calendar Calendar    // nil: there is none
	budgets  Budgets     // nil: there are none
	tags     *tags.Service
	network  *network.Service                                     // nil: nothing is known of paths
	bus      *bus.Bus                                             // nil: only the process that schedules knows the queue
	policies Policies                                             // nil: there are none
	held     func(ctx context.Context) (map[string]string, error) // nil: none is
	wake     chan struct{}
	changed  atomic.Bool // the settings of the queue, by this process
	runs     runtimes
	enc      *zstd.Encoder
	dec      *zstd.Decoder

	budgetsChanged atomic.Bool // by this process

	placed  prometheus.Counter
	cycles  prometheus.Histogram
	waiting prometheus.Gauge
	times   prometheus.Histogram

	stand *standing.Service // nil: no center refuses

	last  atomic.Pointer[[]translated] // see snapshotOf
	spare sync.Pool                    // of *[]place.Candidate, see release

	mu      sync.Mutex // guards the fields below
	set     *place.Set
	setAt   time.Time
	unsaved figures
	line    *lineup // nil: another process schedules
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
	for _, k := range accelerators.Classes() {
		if q[k] > 0 {
			return k
		}
	}
	return "cpu"
}

// commit stores what was decided, all or nothing.
func (c *cycler) commit(ctx context.Context, snap *registry.Snapshot, res *planned, entries map[string]*entry) (taken []Placement, err error) {
	// All that needs no transaction comes before it: others wait while it is open.
	type about struct {
		decision *place.Decision
		work     string
	}
	ids := map[about]string{} // one record per decision and work
	var rows [][]any
	trail := newTrail()
	list := make([]Placement, len(res.Placements))
	for i, p := range res.Placements {
		key := about{p.Decision, p.Work}
		if ids[key] == "" {
			ids[key] = core.NewID("dec")
			rows = append(rows, []any{ids[key], entries[p.Work].Work.ID, int64(0), trail.add(p.Decision)})
		}
		if list[i], err = placement(snap, entries[p.Work], p, ids[key]); err != nil {
			return nil, err
		}
		if from := res.parts[list[i].AllocationID]; from != nil {
			list[i].AllocationID = from[list[i].Center]
		}
		list[i].OnNodes = res.rooms[list[i].AllocationID].OnNodes
	}
	pack := sync.OnceValues(func() ([]byte, error) { return c.packTrail(trail, &c.packed) })
	go pack() // while the jobs' rows are written
	defer func() { _, _ = pack() }()
	run := c.db.RowsTx // jobs, attempts and what centers hold: each is a row written here
	if slices.ContainsFunc(list, func(p Placement) bool { return p.AllocationID != "" }) {
		run = c.db.Tx // whether an allocation is granted is only read
	}
	err = run(ctx, func(tx *db.Tx) error {
		taken = nil
		got, err := c.src.PlacedTx(ctx, tx, list)
		if err != nil {
			return err
		}
		taken = got
		if res.verdict != nil {
			if err := res.verdict.CommitTx(ctx, tx, got); err != nil {
				return err
			}
		}
		for _, r := range rows {
			r[2] = db.Micros(tx.Now)
		}
		body, err := pack()
		if err != nil {
			return err
		}
		if err := storeTrail(ctx, tx, body, rows); err != nil {
			return err
		}
		return c.reserve(ctx, tx, got)
	})
	return taken, err
}

func (s *Service) reserve(ctx context.Context, tx *db.Tx, ps []Placement) error {
	claims, draws := map[string]registry.Claim{}, map[string]core.Quantities{}
	for _, p := range ps {
		c := claims[p.Center]
		if c.Amounts == nil {
			c.Amounts = core.Quantities{}
		}
		c.Replicas++
		claims[p.Center] = c
		to := c.Amounts
		if p.AllocationID != "" {
			if draws[p.AllocationID] == nil {
				draws[p.AllocationID] = core.Quantities{}
			}
			to = draws[p.AllocationID]
		}
		for name, n := range p.Resources {
			to[name] += n
		}
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
	return s.reg.ReserveAllTx(ctx, tx, claims)
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

func placement(snap *registry.Snapshot, e *entry, p place.Placement, decisionID string) (Placement, error) {
	if e == nil {
		return Placement{}, fmt.Errorf("placed %s, which does not wait", p.Work)
	}
	out := Placement{JobID: e.Work.ID, work: e.id, Replica: p.Replica, Center: p.Candidate, DecisionID: decisionID, Gang: e.Work.Gang}
	if _, err := fmt.Sscanf(p.Task, "%d", &out.Task); err != nil {
		return out, fmt.Errorf("task %q of %s: %w", p.Task, p.Work, err)
	}
	for i := range e.Work.Tasks {
		if t := &e.Work.Tasks[i]; t.ID == p.Task {
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

// unpack reads a decision that was stored by itself, as all once were.
func (s *Service) unpack(body []byte) (*place.Decision, error) {
	b, err := s.dec.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("stored decision: %w", err)
	}
	d := &place.Decision{}
	return d, json.Unmarshal(b, d)
}

// snapshotFor is snapshotOf with what the expressions and rules of the works
// read.
func (s *Service) snapshotFor(ctx context.Context, snap *registry.Snapshot, works []place.Work) (*place.Snapshot, error) {
	out := s.snapshotOf(snap)
	if err := s.holdBack(ctx, out); err != nil {
		return nil, err
	}
	if err := s.spareRefused(ctx, works); err != nil {
		return nil, err
	}
	if err := s.joinNetwork(ctx, out, works); err != nil {
		return nil, err
	}
	if err := s.neighbors(ctx, out, works); err != nil {
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

// translated is a center as the engine sees it.
type translated struct {
	of        *registry.Center
	candidate *place.Candidate // read-only
	sound     bool             // see place.Snapshot
}

// snapshotOf translates the registry's snapshot for the engine. Centers that
// have not changed since the last one are what they were. It is the caller's
// own, who may give its memory back with release.
func (s *Service) snapshotOf(snap *registry.Snapshot) *place.Snapshot {
	var old []translated
	if last := s.last.Load(); last != nil {
		old = *last
	}
	now := make([]translated, len(snap.Centers))
	out := &place.Snapshot{Sound: make([]bool, len(now))}
	if spare, ok := s.spare.Get().(*[]place.Candidate); ok && cap(*spare) >= len(now) {
		out.Candidates = (*spare)[:len(now)]
	} else {
		out.Candidates = make([]place.Candidate, len(now))
	}
	for i, c := range snap.Centers {
		if i < len(old) && old[i].of == c {
			now[i] = old[i]
		} else {
			k := candidate(c)
			now[i] = translated{c, &k, k.Check() == nil}
		}
		out.Candidates[i], out.Sound[i] = *now[i].candidate, now[i].sound
	}
	s.last.Store(&now)
	return out
}

// release gives back a snapshot that nobody looks at any more.
func (s *Service) release(ps *place.Snapshot) {
	list := ps.Candidates
	ps.Candidates = nil
	s.spare.Put(&list)
}

// centerOf finds a center of a snapshot; nil if there is none.
func centerOf(snap *registry.Snapshot, id string) *registry.Center {
	i, ok := slices.BinarySearchFunc(snap.Centers, id, func(c *registry.Center, id string) int { return strings.Compare(c.ID, id) })
	if !ok {
		return nil
	}
	return snap.Centers[i]
}

// businessLabel begins the labels by which a center says how well it suits a
// kind of business: "business.rendering" is "90"; "business" alone is all that
// it does not name. Other values than 0 to 100 say nothing.
const businessLabel = "business"

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
	for key, text := range c.Labels {
		name, ok := strings.CutPrefix(key, businessLabel)
		if !ok || name != "" && name[0] != '.' {
			continue
		}
		if fit, err := strconv.ParseInt(text, 10, 64); err == nil && fit >= 0 && fit <= place.MaxScore {
			if p.Business == nil {
				p.Business = map[string]int64{}
			}
			p.Business[strings.TrimPrefix(name, ".")] = fit
		}
	}
	if c.Position != nil {
		p.Position = &place.Position{Longitude: c.Position.Longitude, Latitude: c.Position.Latitude}
	}
	if c.Performance > 0 {
		p.Speeds = []place.Speed{{Kind: "cpu", Milli: c.Performance}}
	}
	for _, v := range c.Speeds {
		if v.Measured {
			addSpeed(&p, v.Kind, string(v.Precision), v.Milli)
		}
	}
	if c.Power.Active > 0 {
		// Declared per core, for the core and all that goes with it.
		p.Power = map[string]place.Power{}
		for name := range c.Total {
			p.Power[name] = place.Power{}
		}
		p.Power[core.CPU] = place.Power{Per: 1000, Static: c.Power.Static, Busy: c.Power.Active}
	}
	declare(&p, c.Labels)
	publish(&p, c.Speeds)
	return p
}
