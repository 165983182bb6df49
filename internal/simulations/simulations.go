// Package simulations plays scheduling on the platform for those who cannot, or
// need not, play it elsewhere: on what the platform has and did, on files, or on
// what is made up. It compares policies, those kept as data and their drafts too.
//
// What it keeps true:
//
//   - What decides in a simulation is the code that decides live: package sim plays
//     the engines, package policies chooses.
//   - What is wrong with an input is said when it is given, all of it. Input and
//     policies are kept then: what changes later does not change the simulation,
//     but for what of the platform's policies is in force when it runs.
//   - A simulation belongs to a tenant, as the jobs that it may be about do.
//   - One simulation is played at a time, by the process that holds the lease, so
//     that it takes at most one core from what the platform is there for. None takes
//     longer than [MaxTime] or holds more than the limits of its input let it.
//
// # Life
//
//	start ─▶ waiting ─▶ running ─▶ done | failed | canceled
//	            ▲          │
//	            └──────────┘ the platform stopped: played again, from the beginning
//	                         (the same input and seed give the same); the third time it
//	                         is interrupted
//
// # Where things are
//
// The state is in the database. Input and results are objects below
// "simulations/<id>/": nodes, jobs, report.json, report.html, events-<n>. Inputs are
// stored before the record and deleted after it; those that a crash leaves without a
// record are deleted when the loop begins.
package simulations

import (
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/policies"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// State of a simulation; stored and the contract's.
type State int64

// The states.
const (
	Waiting     State = 1
	Running     State = 2
	Done        State = 3
	Failed      State = 4
	Canceled    State = 5
	Interrupted State = 6
)

// Ended reports whether nothing comes any more.
func (s State) Ended() bool { return s > Running }

// Limits.
const (
	MaxTime     = 10 * time.Minute
	maxOpen     = 10  // of a tenant, not ended
	maxKept     = 200 // of a tenant
	maxPolicies = 8
	maxQueues   = 4
	maxResults  = 16
	maxFiles    = 8 << 20
	maxJobs     = 200_000
	maxNodes    = 10_000
	maxCenters  = 5_000
	maxLoad     = 100
	maxSpeed    = 1e12
	maxRuns     = 3
	maxEvents   = 20_000 // kept of a result
	maxTables   = 5_000
	maxSince    = 365 * 24 * 3600
	defaultJobs = 5_000
	defaultDays = 7
)

// Source says what is played.
type Source string

// The sources.
const (
	Platform Source = "platform"
	Files    Source = "files"
	Made     Source = "recipe"
)

// Spec is what is asked for; the JSON is stored.
type Spec struct {
	Title  string `json:"title,omitempty"`
	Source Source `json:"source"`
	Recipe string `json:"recipe,omitempty"`
	// Since and Jobs bound what of the platform is played.
	Since int64 `json:"since,omitempty"` // seconds
	Jobs  int   `json:"jobs,omitempty"`

	NodesName string    `json:"nodes_name,omitempty"`
	JobsName  string    `json:"jobs_name,omitempty"`
	Nodes     []byte    `json:"-"`
	JobsFile  []byte    `json:"-"`
	Policies  []Compare `json:"policies"`
	Queues    []string  `json:"queues,omitempty"`
	Seed      uint64    `json:"seed"`
	Load      float64   `json:"load,omitempty"`
	Baseline  string    `json:"baseline,omitempty"`
	Speed     float64   `json:"speed,omitempty"`

	// Names of the results, in their order.
	Names []string `json:"names"`
}

// Compare is a policy to compare; one of Preset, ID, Document and InForce.
type Compare struct {
	Name     string             `json:"name"`
	Preset   string             `json:"preset,omitempty"`
	ID       string             `json:"policy_id,omitempty"`
	Version  int64              `json:"version,omitempty"`
	Document *policies.Document `json:"document,omitempty"`
	InForce  bool               `json:"in_force,omitempty"`
}

// Simulation is a stored one.
type Simulation struct {
	ID, TenantID, UserID          string
	State                         State
	CancelAsked                   bool
	Message                       string
	Spec                          Spec
	Places, Jobs                  int64
	Progress                      int64 // thousandths
	Measures                      []Measure
	Runs                          int64
	CreatedAt, StartedAt, EndedAt time.Time
	Version                       int64
}

// Measure is a figure by which results are compared.
type Measure struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Unit    string   `json:"unit,omitempty"`
	More    bool     `json:"more,omitempty"`
	Figures []Figure `json:"figures"`
}

// Figure is that of a result.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Best  bool    `json:"best,omitempty"`
}

// measures are the figures of a comparison.
func measures(c *sim.Comparison) []Measure {
	out := []Measure{}
	for _, m := range sim.Measures() {
		x := Measure{ID: m.ID, Title: m.Title, Unit: m.Unit, More: m.More}
		for _, r := range c.Results {
			if v, ok := m.Of(r); ok {
				x.Figures = append(x.Figures, Figure{r.Name, v, c.IsBest(m, r)})
			}
		}
		if len(x.Figures) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// Event is one thing that happened in a result; the JSON is stored.
type Event struct {
	At       int64           `json:"at"` // microseconds
	What     string          `json:"what"`
	Job      string          `json:"job,omitempty"`
	Places   map[string]int  `json:"places,omitempty"`
	Decision *place.Decision `json:"decision,omitempty"`
}

// check finds what is wrong with a request by itself.
func (x *Spec) check(c *core.Check) {
	c.Text("title", x.Title, false, 128, 0)
	switch x.Source {
	case Platform:
		c.Range("platform.since_seconds", x.Since, 0, maxSince)
		c.Range("platform.jobs", int64(x.Jobs), 0, policies.MaxRecorded)
	case Files:
		if n := len(x.Nodes) + len(x.JobsFile); n > maxFiles {
			c.Add("files", "must be at most %d MiB together, got %d bytes", maxFiles>>20, n)
		}
		c.Text("files.nodes_name", x.NodesName, true, 128, 0)
		if c.Text("files.jobs_name", x.JobsName, len(x.JobsFile) > 0, 128, 0); len(x.Nodes) == 0 {
			c.Add("files.nodes", "is required")
		}
	}
	if len(x.Policies) > maxPolicies {
		c.Add("policies", "must be at most %d, got %d", maxPolicies, len(x.Policies))
	}
	for i := range x.Policies {
		p, given := &x.Policies[i], 0
		for _, is := range []bool{p.Preset != "", p.ID != "", p.Document != nil, p.InForce} {
			if is {
				given++
			}
		}
		at := fmt.Sprintf("policies[%d]", i)
		if given != 1 {
			c.Add(at, "must have one of preset, policy_id, document and in_force, got %d", given)
		}
		if c.Text(at+".preset", p.Preset, false, 1024, 0); p.ID != "" {
			c.ID(at+".policy_id", p.ID)
		}
		c.Range(at+".version", p.Version, 0, 1<<40)
	}
	if len(x.Queues) > maxQueues {
		c.Add("queues", "must be at most %d, got %d", maxQueues, len(x.Queues))
	}
	if n := max(len(x.Policies), 1) * max(len(x.Queues), 1); n > maxResults {
		c.Add("queues", "times policies must be at most %d results, got %d", maxResults, n)
	}
	for _, f := range []struct {
		name    string
		v, most float64
	}{{"load", x.Load, maxLoad}, {"speed", x.Speed, maxSpeed}} {
		if !(f.v >= 0 && f.v <= f.most) {
			c.Add(f.name, "must be 0 to %g, got %g", f.most, f.v)
		}
	}
}

// bounds checks that an input is not larger than what is played here.
func bounds(in *sim.Input) error {
	var c core.Check
	c.Range("nodes", int64(len(in.Nodes)), 0, maxNodes)
	c.Range("centers", int64(len(in.Centers)), 0, maxCenters)
	c.Range("jobs", int64(len(in.Jobs)), 1, maxJobs)
	return c.Err()
}

// name the results: policies, with their queue where there are several.
func (x *Spec) name() error {
	for _, p := range x.Policies {
		for _, q := range x.Queues {
			name := p.Name
			if len(x.Queues) > 1 {
				if q == "" {
					q = "fair"
				}
				name += " / " + q
			}
			if slices.Contains(x.Names, name) {
				return fault.Fields(fault.Field{Path: "policies", Problem: fmt.Sprintf("%q is compared twice", name)})
			}
			x.Names = append(x.Names, name)
		}
	}
	if x.Baseline != "" && !slices.Contains(x.Names, x.Baseline) {
		return fault.Fields(fault.Field{Path: "baseline", Problem: fmt.Sprintf("must be one of %q, got %q", x.Names, x.Baseline)})
	}
	return nil
}
