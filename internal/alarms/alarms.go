// Package alarms tells what has gone wrong in the network and what follows
// from it: resources that fail, and work that finds no place.
//
// What it keeps true:
//
//   - There is at most one open alarm for each cause (the schema sees to it).
//     A cause that comes back within [again] opens the same alarm anew and
//     counts; nothing floods the list.
//   - An alarm is cleared by itself when its cause is gone, acknowledged or not.
//   - Alarms are linked: what follows from another names it as its parent. A
//     center that is down is the root of the alarms of its gateway, its
//     instance, its nodes, its equipment and of the jobs with runs there; equipment
//     that is down is that of its links and of the nodes behind it, and people are
//     told of it and not of them.
//   - A tenant sees the alarms of resources, which are everyone's, and those
//     of its own jobs, allocations, budgets and tasks of the accelerator pool.
//   - People are told of what is raised and cleared in the transaction that does
//     it (package notices).
//
// # How alarms come and go
//
//	facts (registry, adapters, equipment, jobs, control, budgets, poolops) ─▶ causes ─▶ compared with what is open ─▶ raised, changed, cleared
//	     ▲                                                                          one transaction
//	     └── after an event, when the clock makes something an alarm, and every [sweepEvery]
//
// Owners of facts tell of changes by events. Only those are followed that can
// raise or clear an alarm: of jobs, that one was refused, or that one with an
// open alarm changed. What no event tells, because it is silence or waiting,
// happens at a time that is known before: a look returns the earliest, and the
// next one is then.
//
// What is wrong is never stored but here: a look compares the facts as they
// are, so events that come twice or in any order change nothing, a lost one
// delays an alarm by [sweepEvery] at most, and after a restart the first look
// knows everything.
package alarms

import (
	"time"
)

// Severity says how bad it is; the numbers are the API's.
type Severity int

// The severities.
const (
	Warning  Severity = 1
	Major    Severity = 2
	Critical Severity = 3
)

// State of an alarm; the numbers are the API's.
type State int

// The states.
const (
	Active       State = 1
	Acknowledged State = 2
	Cleared      State = 3
)

// Kind of an alarm; the numbers are the API's.
type Kind int

// The kinds.
const (
	CenterDown           Kind = 1
	GatewaySilent        Kind = 2
	InstanceTrouble      Kind = 3
	NodeNotReady         Kind = 4
	NodeNotSet           Kind = 5
	JobUnplaced          Kind = 6
	PlacementRefused     Kind = 7
	JobAtRisk            Kind = 8
	AllocationNotGranted Kind = 9
	ReclaimAnnounced     Kind = 10
	BudgetReached        Kind = 11
	// PoolRule and the kind of a rule of the accelerator pool make a kind.
	PoolRule Kind = 11
	// EquipmentRule and the kind of a rule of network equipment make a kind.
	EquipmentRule Kind = 22
	lastKind      Kind = 30
)

// About is what an alarm is about; fields that do not apply are empty.
type About struct {
	CenterID, Node, JobID, AllocationID, InstanceID string
	Equipment                                       string
	TenantID                                        string // whose; "": a resource's
}

// Alarm is a cause that was seen.
type Alarm struct {
	ID       string
	Kind     Kind
	Severity Severity
	State    State
	ParentID string
	About
	Message         string
	FirstAt, LastAt time.Time
	Count           int64
	AcknowledgedBy  string
	AcknowledgedAt  time.Time
	Note            string
	ClearedAt       time.Time
	Affected        int64
	cause           string
}

// cause is something that is wrong now.
type cause struct {
	key, parent string // parent is the key of another cause, "" for a root
	kind        Kind
	severity    Severity
	About
	message string
}

const (
	// sweepEvery is how often the facts are looked at whatever happens.
	sweepEvery = 30 * time.Second
	// sweepPause is the least time between two sweeps, however many events come.
	sweepPause = 500 * time.Millisecond
	// again is how soon a cause must come back to be the same alarm.
	again = 5 * time.Minute
	// recently is how long what a center or the platform refused is an alarm.
	recently = 10 * time.Minute
	// keep cleared alarms.
	keep = 30 * 24 * time.Hour
	// most of one kind are raised, those that began first.
	most = 1000
)

// Config says from when on waiting is an alarm; zero values are filled in.
type Config struct {
	UnplacedAfter time.Duration `yaml:"unplaced_after"` // a job without a place; 1 min
	WaitingAfter  time.Duration `yaml:"waiting_after"`  // an allocation without room; 1 min
	UnsetAfter    time.Duration `yaml:"unset_after"`    // a node that is not as asked; 30 s
}

func (c Config) filled() Config {
	if c.UnplacedAfter == 0 {
		c.UnplacedAfter = time.Minute
	}
	if c.WaitingAfter == 0 {
		c.WaitingAfter = time.Minute
	}
	if c.UnsetAfter == 0 {
		c.UnsetAfter = 30 * time.Second
	}
	return c
}
