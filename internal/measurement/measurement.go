// Package measurement says what the centers of the network are, what they do
// now and how fast they are, by one scheme of indicators, and measures them by
// a benchmark that runs there as an ordinary job.
//
// What it keeps true:
//
//   - Every value names its indicator, its time and its origin: declared by
//     somebody, reported by a driver, measured, or derived. What is not known
//     has no value; nothing is guessed.
//   - Rates of different precision are never added: each has an indicator of its
//     own, and none takes part in a combined one.
//   - A run of the benchmark is an ordinary job of the platform's own tenant:
//     placed, logged and billed as every other, at the price of its specification.
//   - Figures count only if the log has one whole report (package report) and
//     none is beyond what is physically possible (package score).
//   - A center has one run at a time, and each of its nodes one that its schedule
//     began (the schema sees to it).
//
// # A run
//
//	            job submitted       job ended well, report read
//	waiting ──────────────▶ running ───────────────────────────▶ succeeded
//	   │                       │ ├─ figures that cannot be ─────▶ refused
//	   └── job cannot be made ─┴─┴─ job failed, no report ───────▶ failed
//
// The run is stored before its job is submitted, under a request ID that is the
// run's: whoever looks after a crash submits the same job again and gets the
// first one's ID. It ends in one transaction with what becomes of its factor.
//
// # A factor
//
//	            policy automatic
//	succeeded ────────────────────▶ accepted: the center's factor, used by placement
//	    │  policy confirm, or an      ▲
//	    └─ operator stated a factor ▶ awaited ──▶ rejected
//	                                     └──────▶ replaced, by a later run
//
// What was measured outlives what a gateway declares of itself; what an
// operator stated outlives what is measured, until somebody accepts a run. The
// factor of a node that was chosen among several is awaited under either policy;
// that of one its schedule chose is only the node's. So it is with the speeds of
// accelerators, which a run of devices measures; labels that state them count
// where none was measured.
//
// # Nodes by a schedule
//
// A center may have a schedule for its nodes. The longest due is begun first, as
// a job of the lowest priority, so many at once as the schedule says; none
// while somebody's job waits that could run there. A job that does not get onto
// its node gives way after [nodeWait]; that and what failed is tried again
// after a pause. All of it is stored, so that whoever leads next goes on.
//
// # Failures
//
// A center that goes away with a run: its job is as every other's there; after
// [maxAge] it is stopped and the run has failed. A platform that is killed: the
// loop looks at every open run when it starts. A job that was deleted: the run
// has failed. A log that arrives after the end of its job is waited for.
package measurement

import (
	"slices"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
	"yunhe.dev/yunhe/internal/registry"
)

// Scope is what of the benchmark is run.
type Scope int

// The scopes.
const (
	Machine Scope = 1
	Devices Scope = 2
)

func (s Scope) String() string {
	if s == Devices {
		return report.Devices
	}
	return report.Machine
}

// State of a run.
type State int

// The states of a run.
const (
	Waiting   State = 1
	Running   State = 2
	Succeeded State = 3
	Failed    State = 4
	Refused   State = 5
)

// Decision is what became of the factor of a run; 0: it has none.
type Decision int

// The decisions.
const (
	Awaited  Decision = 1
	Accepted Decision = 2
	Rejected Decision = 3
	Replaced Decision = 4
)

// Policy says what becomes of a factor when a run succeeds.
type Policy int

// The policies.
const (
	Automatic Policy = 1
	Confirm   Policy = 2
)

// Limits.
const (
	// maxAge is how long a run may take from being asked for, waiting included.
	maxAge = 6 * time.Hour
	// maxRun is how long the job may work, in seconds.
	maxRun = 180
	// logWithin is how long after its job's end a log may still come.
	logWithin = time.Minute
	// maxLog is how much of a log is read: a report is a hundredth of it.
	maxLog     = 256 << 10
	maxWeights = 32
	maxWeight  = 100
	maxCompare = 8
	maxNodes   = 1000 // shown of a center
	shownRuns  = 20
)

// Scheduled asks for runs that nobody else did.
const Scheduled = "schedule"

// Run of the benchmark.
type Run struct {
	ID           string
	CenterID     string
	Scope        Scope
	Node         string // where it ran, or is to run; "": not known
	State        State
	Message      string // why it failed or was refused
	JobID        string
	SpecID       string
	ImageID      string
	Architecture string // of the program that was sent
	ScheduleNode string // the node, if the schedule of the center's nodes began it
	RequestedBy  string
	CreatedAt    time.Time
	EndedAt      time.Time
	Performance  int64 // 0: none
	Decision     Decision
	DecidedBy    string
	Result       Result
}

func (r *Run) open() bool { return r.State <= Running }

// Result is what a run found; empty until it succeeded or was refused.
type Result struct {
	Report report.Report `json:"report"`
	Shares []score.Share `json:"shares,omitempty"`
	// Speeds are those of the accelerators measured.
	Speeds []registry.Speed `json:"speeds,omitempty"`
}

// Request asks for a run.
type Request struct {
	RequestID string
	CenterID  string
	Node      string
	Scope     Scope // 0: Machine
	SpecID    string
	ImageID   string

	atOnce int64 // begun by the schedule of nodes, which allows so many; 0: it was not
}

func (r *Request) check() error {
	var c core.Check
	c.Text("request_id", r.RequestID, false, 0, 65)
	c.ID("ai_center_id", r.CenterID)
	if r.Node != "" {
		c.Text("node", r.Node, true, 253, 0)
	}
	if r.Scope == 0 {
		r.Scope = Machine
	}
	c.Range("scope", int64(r.Scope), int64(Machine), int64(Devices))
	if r.SpecID != "" {
		c.ID("resource_spec_id", r.SpecID)
	}
	if r.ImageID != "" {
		c.ID("image_id", r.ImageID)
	}
	return c.Err()
}

// Settings of measuring.
type Settings struct {
	Policy    Policy
	OnJoin    bool  // measure a center that never was
	EveryDays int64 // 0: not again
	Weights   []score.Weight
	Version   int64
	UpdatedAt time.Time
}

func (s *Settings) check() error {
	var c core.Check
	c.Range("settings.policy", int64(s.Policy), int64(Automatic), int64(Confirm))
	c.Range("settings.every_days", s.EveryDays, 0, 365)
	if len(s.Weights) < 1 || len(s.Weights) > maxWeights {
		c.Add("settings.weights", "must be 1 to %d, got %d", maxWeights, len(s.Weights))
		return c.Err()
	}
	seen, sum := map[string]bool{}, int64(0)
	for i, w := range s.Weights {
		at := "settings.weights[" + strconv.Itoa(i) + "]."
		if !slices.Contains(score.Weighable(), w.Indicator) {
			c.Add(at+"indicator_id", "must be one of %v, got %q", score.Weighable(), clip(w.Indicator))
		}
		if seen[w.Indicator] {
			c.Add(at+"indicator_id", "names %s a second time", clip(w.Indicator))
		}
		seen[w.Indicator] = true
		if !(w.Reference > 0 && w.Reference <= 1e12) {
			c.Add(at+"reference", "must be more than 0 and at most 1e12, got %g", w.Reference)
		}
		c.Range(at+"weight", w.Weight, 0, maxWeight)
		sum += max(0, w.Weight)
	}
	if sum == 0 {
		c.Add("settings.weights", "must have a weight of more than 0")
	}
	return c.Err()
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
