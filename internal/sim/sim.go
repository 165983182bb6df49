// Package sim plays scheduling on work of the past, or on work that is made up,
// before it is done to work of today. It runs the platform's own engine, the
// same packages that decide live: queue says whose turn it is and what may be
// taken back, pack chooses node and cards in a pool, place chooses the center
// in a network of centers. What it says of a policy is what that policy does.
//
// It is a discrete-event simulation: time jumps from one event to the next, and
// nothing depends on the clock, on the order of maps or on goroutines, so that
// the same input and seed give the same result, byte for byte.
//
//	         arrival            turn and room             run time over
//	─────▶ waiting ──────────────▶ running ──────────────▶ done
//	          ▲                      │
//	          └──────────────────────┘ taken back (preempted)
//	waiting at the end, or asking for what no node has: not done, and listed so
//
// Events of one instant are taken in this order: ends, arrivals, then one round
// of the queue. A replica is placed where the policy says or its job waits; all
// replicas of a job start together and end together. What a job has of a
// node or center is given back the instant it ends or is taken back; a node
// never has more than it has room for.
//
// Work is taken back as the queue says, but for runs that began less than five
// minutes ago, twice as long each time the job was taken back.
//
// Nodes and centers fail if the input says how often, or when ([Fleet.Outages]).
// What ran there waits again, as work that was taken back does, whether it may be
// or not; nothing is placed there until it is repaired. Each place draws its
// failures from the seed by itself, so that they are the same whatever the policy.
//
// Elastic jobs start with at least Least of their replicas and grow when there is
// room. With part of its replicas a job takes that much longer. To grow, it saves
// what it has done.
//
// A job with data runs when the data is there: it holds its places while what is
// missing comes from the center that has it, one dataset after the other, and
// draws what it draws idle. The copy stays.
//
// # Recorded platforms
//
// An input may hold what a platform's own scheduler saw ([Center.Candidate],
// [Job.Work]): then the engine is given that and nothing made of other fields, so
// that it decides as it did there.
//
// # What it leaves out
//
// Starting and stopping take no time. A run takes as long as the input says, times
// the speed of where it runs; neighbors do not slow each other down.
package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Times are microseconds since the start of the simulation.
const (
	Second = int64(1_000_000)
	Hour   = 3600 * Second
	// Forever is the run time of a job that does not end.
	Forever = int64(math.MaxInt64)
)

// Limits of what is simulated.
const (
	MaxNodes    = pack.MaxNodes
	MaxCenters  = 20_000
	MaxJobs     = 2_000_000
	MaxReplicas = 4_096
	MaxTenants  = 10_000
	MaxTime     = 20 * 365 * 24 * Hour
	maxRate     = 1_000_000_000 // fen per hour
	maxPower    = 10_000_000    // mW of one card
	maxCards    = 100_000       // of a center
	maxCPU      = 10_000_000_000
	maxOutages  = 100_000
	maxData     = 64      // datasets of a job
	maxBytes    = 1 << 60 // of a dataset
)

// Fleet is where work runs: the nodes of one pool, or a network of centers.
type Fleet struct {
	Nodes   []Node
	Centers []Center
	Links   []place.Link // between centers
	// Outages are known beforehand; those drawn from [Supply.MTBF] come on top.
	Outages []Outage
	// Unmet says which centers do not meet an expression of a recorded work, as
	// [place.Snapshot] does.
	Unmet map[string]map[string]string
}

// Outage is a time in which nothing runs at a node or center.
type Outage struct {
	Place    string
	At, Long int64
}

// Supply says what running costs at a node or center.
type Supply struct {
	Price     place.Fact // fen per card and hour
	CorePrice place.Fact // fen per core and hour
	// Idle and Busy are what one card draws, in milliwatts: held by nobody, and
	// in use. CoreBusy is what a core in use draws more.
	Idle, Busy, CoreBusy int64
	// Base is what is drawn whatever runs, in milliwatts.
	Base   int64
	PUE    place.Fact // facility power per device power, in thousandths
	Carbon place.Fact // grams of CO2 per kWh
	// Speed in thousandths of the reference's, on which run times are stated; 0
	// is 1000. Speeds are those of kinds of work that differ, and Spread those
	// of jobs of that kind whose cards are on several nodes. Maps are shared and
	// never written.
	Speed          int64
	Speeds, Spread map[string]int64
	// MTBF is the mean time between failures, 0: it does not fail; MTTR is the
	// mean time to repair. Both are drawn from exponential distributions.
	MTBF, MTTR int64
}

// speed of a kind of work here, in thousandths; 0: it cannot run here.
func (s *Supply) speed(kind string, spread bool) int64 {
	if spread {
		if v, ok := s.Spread[kind]; ok {
			return v
		}
	}
	if v, ok := s.Speeds[kind]; ok {
		return v
	}
	if s.Speed == 0 {
		return 1000
	}
	return s.Speed
}

// Node is a machine of a pool.
type Node struct {
	pack.Node
	Supply
}

// Center is a computing center.
type Center struct {
	ID, Region string
	CPU        int64  // thousandths of a core
	Memory     int64  // MiB
	Cards      int64  // whole
	Model      string // of its cards
	Resources  place.Amounts
	Supply
	Grade    int64
	Position *place.Position
	Network  place.Network
	// Offers are specifications it sells, by ID, with their price.
	Offers map[string]place.Offer
	Data   place.Amounts // bytes held, by dataset
	Labels map[string]string
	// Candidate is what a platform's scheduler saw of it, with nothing in use; see
	// [RecordedCenter]. nil: what the other fields say.
	Candidate *place.Candidate
}

// RecordedCenter is a center as a platform's scheduler sees it when nothing
// runs there.
func RecordedCenter(k place.Candidate) Center {
	c := Center{ID: k.ID, Region: k.Region, CPU: k.Total[core.CPU], Memory: k.Total[core.Memory] >> 20, Grade: k.SecurityGrade, Position: k.Position, Network: k.Network,
		Offers: k.Offers, Data: k.Data, Candidate: &k, Supply: Supply{PUE: k.PUE, Carbon: k.Carbon}}
	for name, n := range k.Total {
		if name != core.CPU && name != core.Memory && n > 0 {
			if c.Resources == nil {
				c.Resources = place.Amounts{}
			}
			c.Resources[name] = n
		}
	}
	if p := k.Power[core.CPU]; p.Per > 0 {
		c.CoreBusy = max(p.Busy-p.Static, 0) * 1000 / p.Per
		c.Base = min(p.Static*(c.CPU/p.Per), maxPower*1000)
	}
	return c
}

// devices are accelerators that platforms count as resources.
var devices = []string{"gpu", "npu", "mlu"}

// cards of all kinds.
func (c *Center) cards() int64 {
	n := c.Cards
	for _, d := range devices {
		n += c.Resources[d]
	}
	return n
}

// Ask is what a replica takes.
type Ask struct {
	CPU    int64 // thousandths of a core
	Memory int64 // MiB
	Cards  int
	Share  int      // thousandths of each card; less than a whole one only of one card
	Models []string // of cards it can use; none: all
}

// Demand is what it asks of cards, in thousandths of one.
func (a *Ask) Demand() int64 { return int64(a.Cards) * int64(a.Share) }

// Job is work that arrives once and runs until it is done.
type Job struct {
	ID      string
	Tenant  string
	Arrival int64
	// Run is how long it runs at reference speed; Forever: it does not end.
	Run int64
	// Expected is what the queue is told of it; 0: nothing.
	Expected int64
	Priority int64
	Replicas int // that start together
	// Least, if above 0, makes it elastic: it starts with that many and grows to
	// Replicas. Run is with all of them.
	Least int
	Ask   Ask
	// Kind of work its speed depends on; empty: the general one.
	Kind string
	// Resources are asked for beside Ask, by every replica; only of centers.
	Resources place.Amounts
	Spec      string // specification its replicas ask for; only of centers
	Deadline  int64  // 0: none
	// Preemptible work may be taken back; it starts again from its last
	// checkpoint, one every Checkpoint, or from its beginning where that is 0.
	Preemptible bool
	Checkpoint  int64
	// Split allows that one replica's cards are on several nodes if no node has
	// them all; it then runs at the speed stated for that.
	Split bool
	// Data is read by every replica, which needs it at its center.
	Data []place.DataNeed
	// NotBefore is when it may start at the earliest; 0: at once.
	NotBefore int64
	// User, Labels and Weights (of policies, its own) are what policies read of a
	// job beside its work. Maps are shared and never written.
	User    string
	Labels  map[string]string
	Weights map[string]int32
	// Work is what a platform's scheduler was asked to place; see [Job.Recorded].
	// nil: what the other fields say.
	Work *place.Work
}

// Recorded makes j a job that is placed as w, all of it at once: its replicas,
// what they ask for on average, rounded up, and its data are those of w.
func (j *Job) Recorded(w place.Work) {
	w.Gang = true
	sum := place.Amounts{}
	j.Work, j.Replicas, j.Data, j.Ask, j.Resources = &w, 0, nil, Ask{}, nil
	for _, t := range w.Tasks {
		j.Replicas += t.Replicas
		j.Data = append(j.Data, t.Data...)
		for name, n := range t.Request {
			sum[name] += n * int64(t.Replicas)
		}
	}
	for name, n := range sum {
		n = (n + int64(j.Replicas) - 1) / int64(max(j.Replicas, 1))
		switch {
		case name == core.CPU:
			j.Ask.CPU = n
		case name == core.Memory:
			j.Ask.Memory = (n + 1<<20 - 1) >> 20
		case n > 0:
			if j.Resources == nil {
				j.Resources = place.Amounts{}
			}
			j.Resources[name] = n
		}
	}
}

// each is what a replica asks of cards, in thousandths of one.
func (j *Job) each() int64 {
	n := j.Ask.Demand()
	for _, d := range devices {
		n += pack.Whole * j.Resources[d]
	}
	return n
}

// Demand is what all replicas ask of cards, in thousandths of one.
func (j *Job) Demand() int64 { return int64(j.Replicas) * j.each() }

// least is how many replicas it starts with.
func (j *Job) least() int {
	if j.Least > 0 {
		return j.Least
	}
	return j.Replicas
}

// Tenant shares the fleet with others.
type Tenant struct {
	ID     string
	Parent string // empty: below the root
	Weight int64  // 0 is 1
	// Guaranteed, Borrowable and Limit by resource: "card" in thousandths, "cpu"
	// in thousandths of a core, "memory" in MiB. A resource that Limit or
	// Borrowable does not name is not limited.
	Guaranteed, Borrowable, Limit map[string]int64
}

// Workload is what is played on a fleet.
type Workload struct {
	Jobs    []Job // by arrival; ties in this order
	Tenants []Tenant
}

// Check refuses a fleet that cannot be simulated, naming each violation.
func (f *Fleet) Check() error {
	var c core.Check
	switch {
	case len(f.Nodes) == 0 && len(f.Centers) == 0:
		return fault.New(fault.Invalid, "there is nothing to run on: there must be nodes or centers")
	case len(f.Nodes) > 0 && len(f.Centers) > 0:
		return fault.New(fault.Invalid, "there are nodes and centers; a simulation is of one pool of nodes or of one network of centers")
	case len(f.Nodes) > MaxNodes:
		c.Add("nodes", "must be at most %d, got %d", MaxNodes, len(f.Nodes))
	case len(f.Centers) > MaxCenters:
		c.Add("centers", "must be at most %d, got %d", MaxCenters, len(f.Centers))
	}
	seen := map[string]int{}
	once := func(at, id string, i int) {
		if id == "" {
			c.Add(at+".id", "is required")
		} else if first, twice := seen[id]; twice {
			c.Add(at+".id", "must be given once, got %q as number %d too", id, first)
		}
		seen[id] = i
	}
	for i := range f.Nodes {
		n, at := &f.Nodes[i], fmt.Sprintf("nodes[%d]", i)
		once(at, n.ID, i)
		c.Range(at+".cpu", n.CPU, 0, math.MaxInt32)
		c.Range(at+".memory", n.Memory, 0, math.MaxInt32)
		c.Range(at+".cards", int64(n.Cards), 0, pack.MaxCards)
		n.check(&c, at)
	}
	for i := range f.Centers {
		n, at := &f.Centers[i], fmt.Sprintf("centers[%d]", i)
		once(at, n.ID, i)
		c.Range(at+".cpu", n.CPU, 0, maxCPU)
		c.Range(at+".memory", n.Memory, 0, 1<<40)
		c.Range(at+".cards", n.Cards, 0, maxCards)
		for _, name := range slices.Sorted(maps.Keys(n.Resources)) {
			c.Range(at+".resources."+name, n.Resources[name], 0, 1<<50)
		}
		n.check(&c, at)
	}
	c.Range("outages", int64(len(f.Outages)), 0, maxOutages)
	for i, o := range f.Outages[:min(len(f.Outages), maxOutages)] {
		at := fmt.Sprintf("outages[%d]", i)
		if _, ok := seen[o.Place]; !ok {
			c.Add(at+".place", "must be a node or center, got %q", o.Place)
		}
		c.Range(at+".at", o.At, 0, MaxTime)
		c.Range(at+".duration", o.Long, 1, MaxTime)
	}
	return c.Err()
}

func (s *Supply) check(c *core.Check, at string) {
	for _, f := range []struct {
		name    string
		n, most int64
	}{{"price", s.Price.Value, maxRate}, {"core_price", s.CorePrice.Value, maxRate}, {"idle", s.Idle, maxPower}, {"busy", s.Busy, maxPower},
		{"core_busy", s.CoreBusy, maxPower / 100}, {"base", s.Base, maxPower * 1000}} {
		c.Range(at+"."+f.name, f.n, 0, f.most)
	}
	if s.Busy < s.Idle {
		c.Add(at+".busy", "must be at least idle, got %d and %d mW", s.Busy, s.Idle)
	}
	if s.PUE.Known {
		c.Range(at+".pue", s.PUE.Value, 1000, 5000)
	}
	if s.Carbon.Known {
		c.Range(at+".carbon", s.Carbon.Value, 0, 10_000)
	}
	c.Range(at+".speed", s.Speed, 0, 1_000_000)
	c.Range(at+".mtbf", s.MTBF, 0, MaxTime)
	c.Range(at+".mttr", s.MTTR, 0, MaxTime)
	if (s.MTBF > 0) != (s.MTTR > 0) {
		c.Add(at+".mttr", "must be given with mtbf, both above 0, got %d and %d us", s.MTTR, s.MTBF)
	}
}

// Check refuses work that cannot be simulated, naming each violation.
func (w *Workload) Check() error {
	var c core.Check
	if len(w.Jobs) == 0 || len(w.Jobs) > MaxJobs {
		c.Add("jobs", "must be 1 to %d jobs, got %d", MaxJobs, len(w.Jobs))
	}
	if len(w.Tenants) > MaxTenants {
		c.Add("tenants", "must be at most %d, got %d", MaxTenants, len(w.Tenants))
	}
	seen := make(map[string]int, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if !j.sound() {
			j.check(&c, fmt.Sprintf("jobs[%d]", i))
		}
		if first, twice := seen[j.ID]; twice {
			c.Add(fmt.Sprintf("jobs[%d].id", i), "must be given once, got %q as number %d too", j.ID, first)
		}
		seen[j.ID] = i
	}
	return c.Err()
}

// sound is what check finds, without the words: there are many jobs.
func (j *Job) sound() bool {
	t := &j.Ask
	cards := t.Cards == 0 && t.Share == 0 || t.Cards == 1 && t.Share >= 1 && t.Share <= pack.Whole || t.Cards > 1 && t.Cards <= pack.MaxCards && t.Share == pack.Whole
	return j.ID != "" && len(j.ID) <= 128 && j.Arrival >= 0 && j.Arrival <= MaxTime && j.Run >= 1 && (j.Run <= MaxTime || j.Run == Forever) &&
		j.Expected >= 0 && j.Priority >= -1000 && j.Priority <= 1000 && j.Replicas >= 1 && j.Replicas <= MaxReplicas && j.Deadline >= 0 && j.Checkpoint >= 0 &&
		t.CPU >= 0 && t.CPU <= math.MaxInt32 && t.Memory >= 0 && t.Memory <= math.MaxInt32 && cards && j.asks() && len(j.Resources) == 0 &&
		j.Least == 0 && j.NotBefore == 0 && len(j.Data) == 0 && j.Work == nil
}

// asks reports whether it asks for anything that can be counted.
func (j *Job) asks() bool {
	return j.Ask.CPU > 0 || j.Ask.Memory > 0 || j.Ask.Cards > 0 || len(j.Resources) > 0 || j.Spec != ""
}

func (j *Job) check(c *core.Check, at string) {
	c.Text(at+".id", j.ID, true, 128, 0)
	c.Range(at+".arrival", j.Arrival, 0, MaxTime)
	if j.Run != Forever {
		c.Range(at+".duration", j.Run, 1, MaxTime)
	}
	c.Range(at+".expected", j.Expected, 0, Forever)
	c.Range(at+".priority", j.Priority, -1000, 1000)
	c.Range(at+".replicas", int64(j.Replicas), 1, MaxReplicas)
	c.Range(at+".min_replicas", int64(j.Least), 0, int64(max(j.Replicas, 0)))
	if j.Least > 0 && (j.Split || j.Work != nil && len(j.Work.Tasks) > 1) {
		c.Add(at+".min_replicas", "does not go with split, nor with several tasks")
	}
	c.Range(at+".deadline", j.Deadline, 0, MaxTime)
	c.Range(at+".not_before", j.NotBefore, 0, MaxTime)
	c.Range(at+".data", int64(len(j.Data)), 0, maxData)
	for _, d := range j.Data {
		c.Range(at+".data."+d.Dataset, d.Bytes, 0, maxBytes)
	}
	c.Range(at+".checkpoint", j.Checkpoint, 0, MaxTime)
	if j.Work != nil && len(j.Work.Tasks) == 0 {
		c.Add(at+".work.tasks", "must not be empty")
	}
	c.Range(at+".cpu", j.Ask.CPU, 0, math.MaxInt32)
	c.Range(at+".memory", j.Ask.Memory, 0, math.MaxInt32)
	switch t := &j.Ask; {
	case t.Cards == 0 && t.Share != 0:
		c.Add(at+".share", "must be left out where cards is 0, got %d", t.Share)
	case t.Cards == 1:
		c.Range(at+".share", int64(t.Share), 1, pack.Whole)
	case t.Cards > 1 && t.Share != pack.Whole:
		c.Add(at+".share", "must be %d where cards is above 1, got %d", pack.Whole, t.Share)
	default:
		c.Range(at+".cards", int64(t.Cards), 0, pack.MaxCards)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Resources)) {
		c.Range(at+".resources."+name, j.Resources[name], 1, 1<<50)
	}
	if !j.asks() {
		c.Add(at, "must ask for cpu, memory, cards or another resource")
	}
}
