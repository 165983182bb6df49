// Package control controls resources for the scheduling layer (interface I2):
// it holds resources for tenants, takes nodes and centers out of use and back,
// and keeps of every request what was done and how it ended.
//
// What it keeps true:
//
//   - What an allocation holds is reserved in the registry, in the transaction
//     that grants it: allocations and runs together never take more than a
//     center has, whoever asks at the same time and whatever is restarted.
//   - A run that names an allocation draws on it and on nothing else. An
//     allocation that shrinks, is released or expires keeps held what runs
//     still use, and gives each piece back when its run ends.
//   - What an allocation holds and no run uses is metered, from the grant to the
//     end, in pieces of at most [piece]: a piece is recorded in the transaction
//     that changes what is unused, or begins the next one, so that every moment
//     is counted once, whatever is restarted.
//   - How a node is to be is state here. A center that is away, or forgets it,
//     is told again until it is so ([Service.Run]). It takes no new work while
//     somebody has isolated it or maintenance needs it; neither undoes the other.
//   - Every request is an operation, stored with what it changes. A process
//     that dies leaves operations that the next one carries on.
//
// # States of an allocation
//
//	scheduled ──start──▶ waiting ──room──▶ granted ──release, end──▶ releasing ──last run ends──▶ released | expired
//	    │                   │ never fits, or no_wait                       ▲
//	    └── release ──▶ released    ▼                                      └ at once if nothing runs
//	                             refused
//
// An allocation lies at one center. Where that is, the placement engine of the
// scheduler says, as it does for a replica as large as the whole allocation.
//
// # A node
//
//	asked (generation) ─▶ SetNode at its center ─▶ applied
//	   ▲                        │ no answer: again, ever less often
//	   └── reported otherwise ──┘ repaired, counted
//
// A whole center is isolated by the registry's own mark (drained), which needs
// no answer of the center.
//
// # Reclaim
//
//	isolate ─▶ notice, wait for the grace period ─▶ stop ─▶ wait for the ends ─▶ isolated | free
//
// Nothing is ever counted as gone that its center has not reported as ended:
// a reclaim at a center that is not heard of goes on until it is, or until the
// runs are written off, or until somebody restores the resource.
package control

import (
	"encoding/json"
	"time"

	"yunhe.dev/yunhe/internal/core"
)

// AllocationState is where an allocation stands; the numbers are the API's.
type AllocationState int

// The states of an allocation.
const (
	Scheduled AllocationState = 1
	Waiting   AllocationState = 2
	Granted   AllocationState = 3
	Refused   AllocationState = 4
	Releasing AllocationState = 5
	Released  AllocationState = 6
	Expired   AllocationState = 7
)

// Allocation is resources held for a tenant.
type Allocation struct {
	ID, Name, TenantID, UserID string
	State                      AllocationState
	Reason                     string
	SpecID                     string
	Count                      int64
	Amounts, Used              core.Quantities // wanted in all, and used by runs
	Region                     string
	CenterID                   string // where it is, or is to be
	Nodes                      []string
	StartAt, EndAt             time.Time
	CreatedAt                  time.Time
	GrantedAt, EndedAt         time.Time
	OperationID                string
	ReservationID              string // that it was made for; "": none

	wish    string
	weights map[string]int32
	noWait  bool
	final   AllocationState
	closing string
	held    core.Quantities
}

// over reports whether nothing will ever run in it again.
func (a *Allocation) over() bool { return a.State >= Refused }

// OperationState says how an operation stands; the numbers are the API's.
type OperationState int

// The states of an operation.
const (
	Running   OperationState = 1
	Succeeded OperationState = 2
	Failed    OperationState = 3
	Partly    OperationState = 4
)

// OperationKind says what was asked; the numbers are the API's.
type OperationKind int

// The kinds of operations.
const (
	Apply   OperationKind = 1
	Adjust  OperationKind = 2
	Release OperationKind = 3
	Isolate OperationKind = 4
	Restore OperationKind = 5
	Reclaim OperationKind = 6
	Join    OperationKind = 7
)

// Operation is a request and what became of it.
type Operation struct {
	ID               string
	Kind             OperationKind
	State            OperationState
	TenantID, UserID string
	CenterID, Node   string
	AllocationID     string
	Reason, Message  string
	Steps            []Step
	CreatedAt        time.Time
	UpdatedAt        time.Time
	EndedAt          time.Time
	StopAt           time.Time

	requestID, digest string
	phase             int64
	grace             int64
	thenFree          bool
}

// Step is a thing done in the course of an operation.
type Step struct {
	At       int64    `json:"at"` // microseconds
	Name     string   `json:"name"`
	OK       bool     `json:"ok"`
	Message  string   `json:"message,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
}

// Request identifies what a caller sends, so that it can be sent again.
type Request struct {
	ID     string // chosen by the caller; "": no protection
	Digest string // of all that was asked
}

// NodeControl is how a node is to be.
type NodeControl struct {
	CenterID, Node string
	Isolated       bool
	AllocationID   string
	MaintenanceID  string // that it is out of use for; "": none
	Reason, UserID string
	ChangedAt      time.Time
	Applied        bool
	AppliedAt      time.Time
	Problem        string
	Repaired       int64

	generation, applied int64
}

// free reports whether the node is to be as if nobody had asked for anything.
func (n *NodeControl) free() bool { return !n.away() && n.AllocationID == "" }

// away reports whether the node is to take no new work.
func (n *NodeControl) away() bool { return n.Isolated || n.MaintenanceID != "" }

// settle has the reason follow what the node is kept for, but for one that was
// isolated: that reason is of who did it.
func (n *NodeControl) settle() {
	switch {
	case n.Isolated:
	case n.MaintenanceID != "":
		n.Reason = "maintenance " + n.MaintenanceID
	case n.AllocationID != "":
		n.Reason = "held by allocation " + n.AllocationID
	default:
		n.Reason = ""
	}
}

// Limits of what is asked.
const (
	maxCount    = 100_000
	maxAmounts  = 16
	maxNodes    = 256
	maxGrace    = 86400
	maxSteps    = 64
	maxSubjects = 200
	maxAhead    = 366 * 24 * time.Hour
	keepOps     = 30 * 24 * time.Hour
)

func (o *Operation) step(now time.Time, name string, ok bool, message string, subjects ...string) {
	if len(o.Steps) >= maxSteps {
		return
	}
	o.Steps = append(o.Steps, Step{At: now.UnixMicro(), Name: name, OK: ok, Message: message, Subjects: subjects[:min(len(subjects), maxSubjects)]})
}

// end closes the operation.
func (o *Operation) end(now time.Time, state OperationState, message string) {
	o.State, o.Message, o.EndedAt = state, message, now
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null" // only maps and lists of strings and numbers come here
	}
	return string(b)
}
