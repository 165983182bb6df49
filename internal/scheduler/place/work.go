package place

import (
	"maps"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Work is a job as the queue holds it: tasks whose replicas want a place.
type Work struct {
	ID       string `json:"id"` // unique in the queue
	Tenant   string `json:"tenant,omitempty"`
	Priority int64  `json:"priority,omitempty"` // higher goes first
	Arrival  int64  `json:"arrival,omitempty"`  // sequence number or time; lower goes first

	// Gang places all replicas of all tasks, or none.
	Gang bool `json:"gang,omitempty"`

	// Distributed says that the replicas talk to each other while they run, so
	// that data-topology keeps them close. Placed counts those that run
	// already, by candidate; rules count them too.
	Distributed bool           `json:"distributed,omitempty"`
	Placed      map[string]int `json:"placed,omitempty"`

	// Mates is a name that works of one job share: if they are distributed, their
	// replicas talk to each other too. Empty: it is the only one of its job.
	Mates string `json:"mates,omitempty"`

	Origin Origin `json:"origin"` // where its users are
	Tasks  []Task `json:"tasks"`

	// Groups are names under which rules of other works count the replicas of
	// this one.
	Groups []string `json:"groups,omitempty"`

	// Set overrides the plan's policy set for this work; nil keeps it.
	Set *Set `json:"-"`
}

// Origin is where work comes from and is used.
type Origin struct {
	Name     string    `json:"name,omitempty"`     // an end of links
	Region   string    `json:"region,omitempty"`   // whose links count where it has none of its own
	Position *Position `json:"position,omitempty"` // nil: unknown
}

// Task is a group of equal replicas.
type Task struct {
	ID       string `json:"id"`
	Replicas int    `json:"replicas"`
	// Indices names the replicas to place; nil means 0…Replicas-1. Two tasks of
	// a work may share an ID if their indices differ: that is how one replica
	// is tried again under other constraints.
	Indices []int `json:"indices,omitempty"`

	Spec    string         `json:"spec,omitempty"`    // specification that must be on offer; empty: none
	Request Amounts        `json:"request,omitempty"` // what one replica takes
	Devices *DeviceRequest `json:"devices,omitempty"` // slices that one replica takes; nil: none
	Image   string         `json:"image,omitempty"`   // image that must be there; empty: none

	Kind      string `json:"kind,omitempty"`      // compute kind its run time depends on: cpu, gpu, …
	Precision string `json:"precision,omitempty"` // numeric precision it computes in; empty: not stated

	Pinned   []string          `json:"pinned,omitempty"`   // manual policy: only these candidates; nil: any
	Regions  []string          `json:"regions,omitempty"`  // only these regions; nil: any
	Excluded map[string]string `json:"excluded,omitempty"` // candidate ID → why not, for the owner
	Require  map[string]string `json:"require,omitempty"`  // attributes a candidate must have
	// Expression is one that a candidate must meet; see [Snapshot.Unmet]. Empty:
	// none.
	Expression string `json:"expression,omitempty"`
	MinGrade   int64  `json:"min_grade,omitempty"`
	MaxPrice   Fact   `json:"max_price"` // fen per package and hour

	// Business is the kind of business the task belongs to; see
	// [Candidate.Business]. Empty: not stated.
	Business string `json:"business,omitempty"`

	RunSeconds Fact       `json:"run_seconds"` // expected, at reference speed
	Data       []DataNeed `json:"data,omitempty"`
	QoS        QoS        `json:"qos"`

	// Rules say where replicas may go by where others are.
	Rules []Rule `json:"rules,omitempty"`
}

// DeviceRequest asks for Count different devices with Each free on every one.
type DeviceRequest struct {
	Count int     `json:"count"`
	Each  Amounts `json:"each"`
	Model string  `json:"model,omitempty"` // empty: any
}

// DataNeed is a dataset a replica reads.
type DataNeed struct {
	Dataset string `json:"dataset"`
	Bytes   int64  `json:"bytes"`
	// At names candidates that hold it whole, beside those that say so
	// themselves ([Candidate.Data]).
	At []string `json:"at,omitempty"`
	// Stay says that the data is too large or too private to move: the replica
	// must go to it.
	Stay bool `json:"stay,omitempty"`
}

// QoS holds the targets the qos policy judges by. Unknown means no target.
type QoS struct {
	MaxLatencyMicros Fact `json:"max_latency_us"`
	MaxJitterMicros  Fact `json:"max_jitter_us"`
	MaxLossPPM       Fact `json:"max_loss_ppm"`
	MinBandwidthKbps Fact `json:"min_bandwidth_kbps"`
	FinishSeconds    Fact `json:"finish_seconds"` // data copied and run ended within
	// MinAvailabilityPPM is of the candidate itself.
	MinAvailabilityPPM Fact `json:"min_availability_ppm"`
	// Required keeps candidates out that miss a target, or of which it is not
	// known.
	Required bool `json:"required,omitempty"`
}

// Ask is what one replica asks for. Filters and factors read nothing else of
// the work: two replicas with the same Ask get the same scores, and they are
// computed once.
type Ask struct {
	Task   Task // without ID, Replicas and Indices
	Origin Origin

	p        *planner
	need     []need
	devices  *deviceNeed
	from     *end   // of the origin; nil: there are no links
	peers    *peers // where the work's replicas are; nil unless it is distributed
	offers   []*Offer
	speeds   []Fact // by site
	whole    *whole
	draws    []draw // made when first needed
	data     []*copies
	transfer []int64  // ms to bring the data, by site; nil if there is none
	assumed  []bool   // transfer rests on the assumed bandwidth
	unmet    []string // why a site does not meet the expression, by site; nil if there is none
}

// Offer returns s's offer of the specification asked for, nil if there is none.
func (a *Ask) Offer(s *Site) *Offer { return a.offers[s.index] }

// indices returns the replica numbers of t to place, ascending.
func (t *Task) indices() []int {
	if t.Indices != nil {
		return slices.Sorted(slices.Values(t.Indices))
	}
	out := make([]int, t.Replicas)
	for i := range out {
		out[i] = i
	}
	return out
}

func (t *Task) count() int {
	if t.Indices != nil {
		return len(t.Indices)
	}
	return t.Replicas
}

func (w *Work) check() error {
	for _, id := range slices.Sorted(maps.Keys(w.Placed)) {
		if n := w.Placed[id]; n < 0 || n > maxCount {
			return fault.New(fault.Invalid, "work %s: replicas placed at %s must be 0 to %d, got %d", w.ID, id, maxCount, n)
		}
	}
	if len(w.Groups) > MaxGroups {
		return fault.New(fault.Invalid, "work %s: groups must be at most %d, got %d", w.ID, MaxGroups, len(w.Groups))
	}
	if i := slices.Index(w.Groups, ""); i >= 0 {
		return fault.New(fault.Invalid, "work %s: groups[%d] is empty", w.ID, i)
	}
	ids := make(map[string]bool, len(w.Tasks))
	numbered := false
	for i := range w.Tasks {
		t := &w.Tasks[i]
		if t.Replicas < 0 || t.Replicas > maxCount {
			return fault.New(fault.Invalid, "work %s task %s: replicas must be 0 to %d, got %d", w.ID, t.ID, maxCount, t.Replicas)
		}
		if err := t.check(w.ID); err != nil {
			return err
		}
		numbered = numbered || ids[t.ID] || t.Indices != nil
		ids[t.ID] = true
	}
	if !numbered {
		return nil // each task has its own ID and counts from 0: nothing can repeat
	}
	type replica struct {
		task  string
		index int
	}
	seen := make(map[replica]bool)
	for i := range w.Tasks {
		for _, n := range w.Tasks[i].indices() {
			r := replica{w.Tasks[i].ID, n}
			if seen[r] {
				return fault.New(fault.Invalid, "work %s task %s: replica %d is given twice", w.ID, r.task, n)
			}
			seen[r] = true
		}
	}
	return nil
}

func (t *Task) check(work string) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "work %s task %s: "+format, append([]any{work, t.ID}, args...)...)
	}
	var buf [16]string
	for _, name := range sortedKeys(buf[:0], t.Request) {
		if n := t.Request[name]; n < 0 || n > maxAmount {
			return bad("request of %s must be 0 to %d, got %d", name, maxAmount, n)
		}
	}
	if d := t.Devices; d != nil {
		if d.Count < 1 || d.Count > maxDevices {
			return bad("device count must be 1 to %d, got %d", maxDevices, d.Count)
		}
		for _, name := range sortedKeys(buf[:0], d.Each) {
			if n := d.Each[name]; n < 0 || n > maxAmount {
				return bad("%s of a device must be 0 to %d, got %d", name, maxAmount, n)
			}
		}
	}
	for _, n := range t.Data {
		if n.Bytes < 0 {
			return bad("dataset %s must have at least 0 bytes, got %d", n.Dataset, n.Bytes)
		}
	}
	if t.RunSeconds.Known && t.RunSeconds.Value < 0 {
		return bad("run_seconds must be at least 0, got %d", t.RunSeconds.Value)
	}
	if len(t.Rules) > MaxRules {
		return bad("rules must be at most %d, got %d", MaxRules, len(t.Rules))
	}
	for i := range t.Rules {
		if err := t.Rules[i].check(); err != nil {
			return bad("rules[%d]: %v", i, err)
		}
	}
	for _, f := range t.QoS.targets() {
		if f.Known && f.Value < 0 {
			return bad("qos targets must be at least 0, got %d", f.Value)
		}
	}
	return nil
}

func (q *QoS) targets() [6]Fact {
	return [...]Fact{q.MaxLatencyMicros, q.MaxJitterMicros, q.MaxLossPPM, q.MinBandwidthKbps, q.FinishSeconds, q.MinAvailabilityPPM}
}

// held returns how many bytes of the data s holds; ok is false if it says
// nothing of it.
func (n *DataNeed) held(s *Site) (bytes int64, ok bool) {
	if slices.Contains(n.At, s.ID) {
		return n.Bytes, true
	}
	have, ok := s.Data[n.Dataset]
	return max(have, 0), ok
}
