// Package place decides where work runs: it is the engine under the network
// level (a computing center per replica), the pool level (a node and device
// slices) and the simulator.
//
// It is pure: no I/O, no clock, no goroutine. The caller loads a [Snapshot],
// calls [Plan], and commits what comes back. These things stay true:
//
//   - No candidate gets more than it had free, no replica is placed twice, and
//     a gang is placed whole or not at all.
//   - The same input gives the same plan, in whatever order candidates, works
//     and map keys arrive. Scores and totals are integers; ties go to the
//     lower candidate ID.
//   - Every decision can be explained: a [Decision] holds what kept each
//     candidate out or how each policy scored it, and what would have changed
//     the outcome.
//   - A decision costs what changed since the last one like it. Replicas that
//     ask for the same thing share one score table; see score.go.
//
// # From facts to a choice
//
//	candidates ──filters──▶ feasible ──factors──▶ raw facts ──▶ scores 0…100 ──evaluator──▶ choice
//	               │                                 │                │
//	         reasons for the owner            number and unit    one per policy
//
// A [Filter] says why a candidate cannot run a replica. A [Factor] reads one
// integer fact. A [Policy] turns its factors into one score per candidate by
// min-max over the feasible candidates of this decision: the best fact known
// scores 100, the worst 0, those between are linear, rounded half away from
// zero. If all known facts are equal, or only one candidate is left, they
// score 100. A policy of several factors scores their rounded mean. A fact
// nobody knows scores what its factor declares: 0 where the provider declares
// it (price, power, speed), so that silence never pays, and 50 where the
// platform measures it (network, distance), so that a new center is not
// punished for our own missing probe.
//
// Min-max stretches small differences: 1.00 against 1.01 yuan is 100 against 0
// points when nothing else is on offer. That is the price of one rule that is
// the same for every policy and never lowers a candidate that got better;
// weights say how much a policy may matter.
//
// An [Evaluator] compares candidates by their scores. [Weighted] is eq. (2) of
// the standard, S_k = Σ w_i·s_ik, compared exactly in integers and rounded
// only for display.
package place

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Amounts counts resources by name. Units are fixed by name: "cpu" counts
// thousandths of a core, "memory" and "storage" count bytes, every other name
// counts pieces.
type Amounts map[string]int64

// Fact is a number that may be unknown. The zero value is unknown.
type Fact struct {
	Value int64
	Known bool
}

// Known returns a fact with value v.
func Known(v int64) Fact { return Fact{v, true} }

// MarshalJSON writes the number, or null if it is unknown.
func (f Fact) MarshalJSON() ([]byte, error) {
	if !f.Known {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// UnmarshalJSON reads a number, or null for unknown.
func (f *Fact) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = Fact{}
		return nil
	}
	f.Known = true
	return json.Unmarshal(b, &f.Value)
}

// Snapshot is everything a plan knows about the places work can go. Plan reads
// it and never writes to it.
type Snapshot struct {
	Candidates []Candidate `json:"candidates"` // in any order
	Links      []Link      `json:"links,omitempty"`
	// Unmet says of every expression that a task names which candidates do not
	// meet it, by ID, and why, for the owner. Whoever makes the snapshot
	// evaluates; candidates that are not listed meet it.
	Unmet map[string]map[string]string `json:"unmet,omitempty"`
	// Groups counts replicas that have a place already, for rules: by the name
	// of a group or the ID of a work that is not in the queue, then by
	// candidate. Those of works in the queue are in [Work.Placed]; a group does
	// count them here.
	Groups map[string]map[string]int `json:"groups,omitempty"`
	// Sound says of candidates, by their place in the list, that Check found
	// nothing against them: they are not looked at again. nil: all are. Who changes
	// a candidate or the list afterwards must say so here.
	Sound []bool `json:"-"`
}

// Status says whether a candidate takes new work.
type Status string

// The states of a candidate. Only Available takes work; the zero value counts
// as Unknown.
const (
	Available   Status = "available"
	Unavailable Status = "unavailable"
	Unknown     Status = "unknown"
	Draining    Status = "draining"
)

// Candidate is a place that can run work: a computing center, or a node of a
// pool.
type Candidate struct {
	ID           string            `json:"id"` // unique; breaks ties
	Name         string            `json:"name,omitempty"`
	Region       string            `json:"region,omitempty"`
	Status       Status            `json:"status"`
	StatusReason string            `json:"status_reason,omitempty"` // why it is not available, for the job's owner
	Attributes   map[string]string `json:"attributes,omitempty"`    // tags, device model, …
	Position     *Position         `json:"position,omitempty"`      // nil: unknown

	// SecurityGrade counts up from 0, the lowest.
	SecurityGrade int64 `json:"security_grade,omitempty"`

	// Total and Free are capacities by resource name; a name that is absent
	// from Free has none. A nil Free means that the candidate reports no
	// vector: then only the idle packages of its offers limit it.
	Total Amounts `json:"total,omitempty"`
	Free  Amounts `json:"free"`

	// Devices can be shared in slices; see [DeviceRequest].
	Devices []Device `json:"devices,omitempty"`

	Offers   map[string]Offer `json:"offers,omitempty"` // by specification ID
	Images   []string         `json:"images,omitempty"` // image IDs that can start here
	AnyImage bool             `json:"any_image,omitempty"`
	Data     Amounts          `json:"data,omitempty"` // bytes held, by dataset ID

	// RunningTasks and WaitingTasks count what was sent there: each replica is
	// one job of the center that receives it.
	RunningTasks int64 `json:"running_tasks,omitempty"`
	WaitingTasks int64 `json:"waiting_tasks,omitempty"`

	Speeds []Speed          `json:"speeds,omitempty"`
	Power  map[string]Power `json:"power,omitempty"` // by resource name; "device/" before that of a slice
	PUE    Fact             `json:"pue"`             // facility power per device power, in thousandths
	Carbon Fact             `json:"carbon"`          // grams of CO2 per kWh of its electricity

	// Business is how well it suits kinds of business, 0 to 100 by its own word;
	// "" is all that are not named.
	Business map[string]int64 `json:"business,omitempty"`

	// Availability is the share of past time it was available in, in millionths.
	Availability Fact `json:"availability_ppm"`

	// Network is what the platform measures to the candidate. A Link from the
	// work's origin comes first where there is one.
	Network Network `json:"network"`
}

// Position is a place on earth in millionths of a degree.
type Position struct {
	Longitude int64 `json:"longitude_e6"`
	Latitude  int64 `json:"latitude_e6"`
}

// Offer is a resource specification as a candidate sells it.
type Offer struct {
	PriceFenPerHour Fact `json:"price_fen_per_hour"` // per package
	Idle            Fact `json:"idle"`               // packages free now; a limit where known
	Total           Fact `json:"total"`              // packages in all
}

// Speed is how fast a candidate computes, relative to the reference on which
// run times are stated. Speeds of different kind or precision are never
// compared.
type Speed struct {
	Kind      string `json:"kind"`                // compute kind: cpu, gpu, npu, …
	Precision string `json:"precision,omitempty"` // FP64, FP32, FP16, INT8; empty: not stated
	Milli     int64  `json:"milli"`               // 1000 is the reference speed
}

// Power is the draw of one unit of a resource. Units that are not 1 are given
// in Per: 1000 for a whole core of "cpu", 1<<30 for a GiB of "memory".
type Power struct {
	Per    int64 `json:"per,omitempty"` // units the figures are for; 0 means 1
	Static int64 `json:"static_mw"`     // milliwatts while held and idle
	Busy   int64 `json:"busy_mw"`       // milliwatts while executing, static included
}

// Network is the quality of a path.
type Network struct {
	LatencyMicros Fact `json:"latency_us"` // round trip
	JitterMicros  Fact `json:"jitter_us"`
	LossPPM       Fact `json:"loss_ppm"`
	BandwidthKbps Fact `json:"bandwidth_kbps"` // usable
	// FeeFenPerGiB is what carrying data over the path costs. On a candidate's
	// own path it is its part: two candidates with no link between them charge
	// both.
	FeeFenPerGiB Fact `json:"fee_fen_per_gib"`
	// Source says for people where the facts are from; explanations show it.
	Source string `json:"source,omitempty"`
}

// Link is a measured path between two candidates, or between an origin and a
// candidate. An end is a candidate's ID, an origin's name or a [RegionEnd],
// which stands for all in the region. It counts in both directions, but for
// facts that another link states of the other direction. Of several that fit two places, each fact is
// taken from the most exact that states it.
type Link struct {
	From string `json:"from"`
	To   string `json:"to"`
	Network
}

// Device is a piece of hardware inside a candidate that is shared in slices.
type Device struct {
	ID    string  `json:"id"` // unique in its candidate; breaks ties
	Model string  `json:"model,omitempty"`
	Total Amounts `json:"total"` // for example share: 100 (per cent), memory: bytes
	Free  Amounts `json:"free"`
}

// check reports the first thing that makes the snapshot unusable.
func (s *Snapshot) check() error {
	var seen map[string]bool // not needed while they come in order
	for i := range s.Candidates {
		c := &s.Candidates[i]
		if c.ID == "" {
			return fault.New(fault.Invalid, "candidates[%d].id is empty", i)
		}
		if seen == nil && i > 0 && c.ID <= s.Candidates[i-1].ID {
			seen = make(map[string]bool, len(s.Candidates))
			for k := range i {
				seen[s.Candidates[k].ID] = true
			}
		}
		if seen[c.ID] {
			return fault.New(fault.Invalid, "candidates[%d].id %q is given twice", i, c.ID)
		}
		if seen != nil {
			seen[c.ID] = true
		}
		if i < len(s.Sound) && s.Sound[i] {
			continue
		}
		if err := c.Check(); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Groups)) {
		if id, found := firstBad(s.Groups[name], func(n int) bool { return n < 0 || n > maxCount }); found {
			return fault.New(fault.Invalid, "groups[%q]: replicas at %s must be 0 to %d, got %d", name, id, maxCount, s.Groups[name][id])
		}
	}
	paths := make(map[[2]string]bool, len(s.Links))
	for i, l := range s.Links {
		if k := [2]string{l.From, l.To}; paths[k] {
			return fault.New(fault.Invalid, "links[%d] from %q to %q is given twice", i, l.From, l.To)
		} else {
			paths[k] = true
		}
		if err := l.Network.check(fmt.Sprintf("links[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// Limits of the input. Within them no sum the engine makes overflows.
const (
	maxAmount  = int64(1) << 60
	maxLoad    = int64(10_000_000) // its square, times 90,000 candidates, fits an int64
	maxDevices = 1_000_000
	maxMicros  = int64(1_000_000_000) // of a round trip, which is summed over replicas
	maxCount   = 1_000_000            // replicas of a task
	maxFee     = int64(1_000_000_000) // fen per GiB
)

// Check returns fault.Invalid if c breaks its contract.
func (c *Candidate) Check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "candidate %s: "+format, append([]any{c.ID}, args...)...)
	}
	if min(c.RunningTasks, c.WaitingTasks) < 0 || max(c.RunningTasks, c.WaitingTasks) > maxLoad {
		return bad("running_tasks %d and waiting_tasks %d must be 0 to %d", c.RunningTasks, c.WaitingTasks, maxLoad)
	}
	for _, v := range []struct {
		what    string
		amounts Amounts
	}{{"free", c.Free}, {"total", c.Total}} {
		if name, found := firstBad(v.amounts, func(n int64) bool { return n < -maxAmount || n > maxAmount }); found {
			return bad("%s %s must be within ±%d, got %d", v.what, name, maxAmount, v.amounts[name])
		}
	}
	if name, found := firstBad(c.Power, func(p Power) bool { return p.Per < 0 || p.Static < 0 || p.Busy < 0 }); found {
		p := c.Power[name]
		return bad("power of %s must be at least 0, got static %d and busy %d mW per %d", name, p.Static, p.Busy, p.Per)
	}
	for i, sp := range c.Speeds {
		if sp.Milli <= 0 {
			return bad("speed of %s must be at least 1 thousandth, got %d", sp.name(), sp.Milli)
		}
		if slices.ContainsFunc(c.Speeds[:i], func(o Speed) bool { return o.Kind == sp.Kind && o.Precision == sp.Precision }) {
			return bad("speed of %s is given twice", sp.name())
		}
	}
	if id, found := firstBad(c.Offers, func(o Offer) bool { return o.PriceFenPerHour.Known && o.PriceFenPerHour.Value < 0 }); found {
		return bad("price of specification %s must be at least 0, got %d fen per hour", id, c.Offers[id].PriceFenPerHour.Value)
	}
	if id, found := firstBad(c.Offers, func(o Offer) bool {
		return min(o.Idle.Value, o.Total.Value) < -maxAmount || max(o.Idle.Value, o.Total.Value) > maxAmount
	}); found {
		o := c.Offers[id]
		return bad("packages of specification %s must be within ±%d, got %d idle of %d", id, maxAmount, o.Idle.Value, o.Total.Value)
	}
	if p := c.Position; p != nil && (p.Longitude < -180e6 || p.Longitude > 180e6 || p.Latitude < -90e6 || p.Latitude > 90e6) {
		return bad("position must be within ±180 and ±90 degrees, got %d and %d millionths", p.Longitude, p.Latitude)
	}
	for _, f := range []struct {
		name string
		fact Fact
	}{{"pue", c.PUE}, {"carbon", c.Carbon}, {"availability_ppm", c.Availability}} {
		if f.fact.Known && f.fact.Value < 0 {
			return bad("%s must be at least 0, got %d", f.name, f.fact.Value)
		}
	}
	if name, found := firstBad(c.Business, func(n int64) bool { return n < 0 || n > MaxScore }); found {
		return bad("fit for business %q must be 0 to %d, got %d", name, MaxScore, c.Business[name])
	}
	if err := c.checkDevices(); err != nil {
		return err
	}
	return c.Network.check("candidate " + c.ID)
}

// firstBad returns the lowest key whose value is bad.
func firstBad[V any](m map[string]V, bad func(V) bool) (key string, found bool) {
	for k, v := range m {
		if bad(v) && (!found || k < key) {
			key, found = k, true
		}
	}
	return key, found
}

func (c *Candidate) checkDevices() error {
	seen := make(map[string]bool, len(c.Devices))
	for _, d := range c.Devices {
		if d.ID == "" || seen[d.ID] {
			return fault.New(fault.Invalid, "candidate %s: device id %q is empty or given twice", c.ID, d.ID)
		}
		seen[d.ID] = true
		if name, found := firstBad(d.Free, func(n int64) bool { return n < -maxAmount || n > maxAmount }); found {
			return fault.New(fault.Invalid, "candidate %s device %s: free %s must be within ±%d, got %d", c.ID, d.ID, name, maxAmount, d.Free[name])
		}
	}
	return nil
}

// name writes the kind and, if stated, the precision.
func (s *Speed) name() string {
	if s.Precision == "" {
		return s.Kind
	}
	return s.Kind + " " + s.Precision
}

func (n *Network) check(path string) error {
	for _, f := range []struct {
		name      string
		fact      Fact
		low, high int64
	}{
		{"latency_us", n.LatencyMicros, 0, maxMicros}, {"jitter_us", n.JitterMicros, 0, maxMicros},
		{"loss_ppm", n.LossPPM, 0, 1_000_000}, {"bandwidth_kbps", n.BandwidthKbps, 1, maxAmount},
		{"fee_fen_per_gib", n.FeeFenPerGiB, 0, maxFee},
	} {
		if f.fact.Known && (f.fact.Value < f.low || f.fact.Value > f.high) {
			return fault.New(fault.Invalid, "%s: %s must be %d to %d, got %d", path, f.name, f.low, f.high, f.fact.Value)
		}
	}
	return nil
}
