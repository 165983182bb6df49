// Package policies keeps scheduling policies as data and chooses, for every
// job that is placed, which of them decide about it (S 6.2.2, Table 6).
//
// What it keeps true:
//
//   - A version of a policy does not change. One that cannot work (an expression
//     that does not compile, a weight of a policy that is not there) is never
//     stored; one that names what is missing is never issued.
//   - A decision names the versions that made it, and they were in force when it
//     was committed: the commit fails if the policies changed since they chose
//     ([scheduler.Verdict]), and the cycle decides again.
//   - What is in force is the database's, counted by a generation. A process
//     notices another generation within [recheck]; its own changes at once.
//   - The same jobs, centers and policies give the same sets, whatever the order
//     they come in. An expression or a module sees one job, one center and the
//     time of the cycle, and nothing else.
//   - A module that fails never fails a cycle: its rule is skipped or lets no
//     center pass, as its policy says, and a module that goes on failing is
//     isolated until someone restores it.
//
// # Life of a version
//
//	create, update ─▶ draft ─validate▶ validated ─simulate▶ simulated
//	                    └──────────┬───────────┴────────────┘
//	                             issue (checks all again)
//	                               ▼
//	                   issued ─withdraw, another version▶ withdrawn
//	                      ▲                                    │
//	                      └────────── roll back, issue ────────┘
//
// One version of a policy is in force at most. While versions are compared (a
// test), the jobs that the policy in force matches are shared out among the
// arms by a hash of test and job.
//
// # From a job to the set that decides
//
//	job ─▶ class: what of it the policies in force read ─▶ matching policies,
//	       highest priority first, as far as their combination goes
//	    ─▶ with the arms of tests: a variant ─▶ place.Set (weights, own scores,
//	       filters), with the centers of the snapshot judged once per variant
//
// Classes, variants and judgments are remembered as long as they hold: a class
// while the generation does, a judgment that reads nothing live while what is
// known of centers does. So a queue of like jobs costs a look-up for each.
package policies

import (
	"time"
)

// State of a version; stored and the contract's.
type State int64

// The states.
const (
	Draft     State = 1
	Validated State = 2
	Simulated State = 3
	Issued    State = 4
	Withdrawn State = 5
)

// Combination with the next policy that matches; stored and the contract's.
type Combination int64

// The combinations; the zero value is First.
const (
	First   Combination = 1
	Merge   Combination = 2
	Filters Combination = 3
)

// JobWeights says what becomes of a job's own weights; stored and the
// contract's.
type JobWeights int64

// The treatments; the zero value is Allow.
const (
	Allow  JobWeights = 1
	Ignore JobWeights = 2
)

// Failure says what happens where a module fails; stored and the contract's.
type Failure int64

// The treatments; the zero value is Skip.
const (
	Skip   Failure = 1
	Refuse Failure = 2
)

// Limits.
const (
	maxPolicies    = 500 // of which
	maxIssued      = 100 // may be in force
	maxRules       = 16
	maxScope       = 256
	maxWeight      = 1000
	maxPriority    = 1000
	maxTitle       = 128
	maxText        = 256
	maxNote        = 512
	maxDescription = 1024
	maxAlgorithm   = 64
	maxRuleID      = 20
	maxDepth       = 5
	maxIncluded    = 32
	maxListed      = 200
	maxModules     = 100
	maxCode        = 256 << 10
)

// businessLabel of a job names its business type.
const businessLabel = "business"

// Document is a policy as people write it; the JSON is stored, and its names
// are those of the contract.
type Document struct {
	ID          string      `json:"policy_id"`
	Title       string      `json:"title,omitempty"`
	Description string      `json:"description,omitempty"`
	Priority    int64       `json:"priority,omitempty"`
	Match       []MatchRule `json:"match_rules,omitempty"`
	Scope       Scope       `json:"scope,omitzero"`
	Rules       Rules       `json:"rules,omitzero"`
	Combination Combination `json:"combination,omitempty"`
	Includes    []Include   `json:"includes,omitempty"`
	JobWeights  JobWeights  `json:"job_weights,omitempty"`
	From        time.Time   `json:"effective_from,omitzero"`
	To          time.Time   `json:"effective_to,omitzero"`
	Algorithm   string      `json:"ai_algorithm,omitempty"` // that learned the weights; empty: none
}

// MatchRule is a condition on a job.
type MatchRule struct {
	Expression  string `json:"expression"`
	Description string `json:"description,omitempty"`
}

// Scope is where a policy applies; what is empty does not restrict it.
type Scope struct {
	Regions    []string          `json:"regions,omitempty"`
	Businesses []string          `json:"businesses,omitempty"`
	Tenants    []string          `json:"tenants,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Centers    []string          `json:"centers,omitempty"`
	Users      []string          `json:"users,omitempty"`
}

// IsZero reports whether s restricts nothing.
func (s Scope) IsZero() bool {
	return len(s.Regions)+len(s.Businesses)+len(s.Tenants)+len(s.Labels)+len(s.Centers)+len(s.Users) == 0
}

// Rules are what a policy decides by.
type Rules struct {
	Weights   map[string]int64 `json:"weights,omitempty"`
	Preset    string           `json:"preset,omitempty"`
	Ranking   []string         `json:"ranking,omitempty"`
	Evaluator string           `json:"evaluator,omitempty"`
	Filters   []FilterRule     `json:"filters,omitempty"`
	Scores    []ScoreRule      `json:"scores,omitempty"`
	Minimums  map[string]int64 `json:"minimums,omitempty"`
}

// IsZero reports whether there is no rule.
func (r Rules) IsZero() bool {
	return len(r.Weights)+len(r.Ranking)+len(r.Filters)+len(r.Scores)+len(r.Minimums) == 0 && r.Preset == "" && r.Evaluator == ""
}

// FilterRule keeps centers out.
type FilterRule struct {
	ID         string     `json:"filter_id"`
	Expression string     `json:"expression,omitempty"`
	Module     *ModuleUse `json:"module,omitempty"`
	Message    string     `json:"message,omitempty"`
}

// ScoreRule scores centers.
type ScoreRule struct {
	ID         string     `json:"score_id"`
	Expression string     `json:"expression,omitempty"`
	Module     *ModuleUse `json:"module,omitempty"`
}

// ModuleUse names a module's version.
type ModuleUse struct {
	ID        string  `json:"module_id"`
	Version   int64   `json:"version"`
	OnFailure Failure `json:"on_failure,omitempty"`
}

// Include names a policy whose rules are part of another. Version 0 is the one
// in force.
type Include struct {
	ID      string `json:"policy_id"`
	Version int64  `json:"version,omitempty"`
}

// Version is a stored version.
type Version struct {
	Version   int64
	State     State
	Document  Document
	CreatedAt time.Time
	CreatedBy string
	Note      string
	CheckedAt time.Time
	Checked   string // "", "static" or "simulation"
}

// Record is a policy with one of its versions.
type Record struct {
	ID          string
	Version     Version
	Latest      int64
	Issued      int64 // version in force; 0: none
	IssuedScope Scope
	IssuedAt    time.Time
	IssuedBy    string
	TestID      string // comparison under way; "": none
}

// Event is something that was done with a policy.
type Event struct {
	ID       string
	PolicyID string
	At       time.Time
	Action   string
	Version  int64
	UserID   string
	Reason   string
}

// Problem is what is wrong with a document. Field is a path below it.
type Problem struct {
	Field        string
	Text         string
	Warning      bool
	Line, Column int // in an expression, from 1; 0: not in one
}
