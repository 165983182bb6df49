// Package pool lends shares of accelerators to programs on this machine and on
// others. A pool node has devices; a task is a share of one: percent of its
// time, bytes of its memory. Programs of a task need not know: the client
// library (shim/) is a vendor library of OpenCL to them, and what they call is
// done by workers at the node.
//
//	yunhe pool run ── control ──▶ node: the task, for as long as this connection lasts
//	  └─ the program
//	       └─ libyunhe-pool.so ── data ──▶ node ── hands the connection to ──▶ worker ──▶ OpenCL
//	                                         ▲                                   │
//	                                         └────────── turns, memory ──────────┘
//
// The node is authoritative for what a task has: a client proves that it is the
// task's with a token and says nothing else. Memory is counted when it is made,
// in a page that the node and the task's workers share, so that a new limit
// counts at once. Time is given in turns: a worker asks before it gives the
// device work, and gives the device back when its turn is over (arbiter).
//
// Each connection has a worker, a process of its own. If a program ends or is
// killed, its worker ends; if a worker dies, its program's calls fail and nobody
// else's. The node then gives back what the worker held. A kernel that never
// ends keeps the device for a second beyond its turn, then the others are let
// compute beside it. Nobody is waited for who does not listen: a worker that leaves
// what it is told unread is ended, and a client is given up. A task moves to another device or node while its programs
// compute, all of it or not at all (migrate_linux.go, worker/move.go).
//
// Nothing is kept on disk: a node that is started again has no tasks, and who
// had one is told by the end of the connection. A node that is replaced by
// another program hands over what it has, in the same process, while its tasks
// compute (handover_linux.go).
//
// Programs of CUDA on the node's machine have the driver in their own process and a
// library before it that asks the node for turns and memory (shim/cuda,
// cuda_linux.go). The node believes of them what they say. On other machines the
// client library is the driver to them (shim/remote), and they have workers
// (worker/cuda) as those of OpenCL have.
//
// A node may belong to a platform ([Member]): then the platform says who gets
// what, by tickets, and the node tells it what runs ([Node.Attend]). It lends to
// nobody else, counts no room, and goes on with what runs while the platform is
// away.
package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/cards"
)

// HandoverFormat is the form in which a node gives all it has to another program
// ([Node.Replace]), and of what workers say to it. Both programs have the same.
const HandoverFormat = 1

// Device is one of a node's.
type Device struct {
	ID       string `json:"id"`
	API      string `json:"api"` // opencl or cuda: what programs use it by
	Model    string `json:"model"`
	Vendor   string `json:"vendor"`
	Driver   string `json:"driver"`
	Version  string `json:"version"`
	Type     string `json:"type"`
	Units    int64  `json:"units"`
	Memory   int64  `json:"memory_bytes"`
	Disabled bool   `json:"disabled,omitempty"` // no new tasks
	Gone     bool   `json:"gone,omitempty"`     // not shown any more; tasks use it still
	Tasks    int    `json:"tasks"`
	Compute  int64  `json:"compute_allotted"`      // percent
	Allotted int64  `json:"memory_allotted_bytes"` // of tasks
	Resident int64  `json:"memory_resident_bytes"` // what is on it
	// Concurrent says that tasks use the device beside each other, by their
	// weights; else one after the other, in turns.
	Concurrent bool `json:"concurrent,omitempty"`
	// Bus is where it is, and UUID which of all there are, "" where the driver does not say.
	Bus  string `json:"bus,omitempty"`
	UUID string `json:"uuid,omitempty"`
	// Pages says of a device of CUDA that its driver moves memory to the host and back, so
	// that tasks can have more of it together than there is; of others the node does.
	Pages bool `json:"pages,omitempty"`
	// Card is what its maker's library says of what is there, if it has one.
	Card *cards.Card `json:"card,omitempty"`
	// Power is what it draws now, Energy what it has used since the node began, both
	// milli, and EnergySource how that is known; "": it is not.
	Power        int64  `json:"power_mw,omitempty"`
	Energy       int64  `json:"energy_mj,omitempty"`
	EnergySource string `json:"energy_source,omitempty"`
	// NotLent says why a card that a maker's library shows cannot be lent; "": it can.
	NotLent string `json:"not_lent,omitempty"`
}

// Spec is what is asked for.
type Spec struct {
	Device   string `json:"device,omitempty"`       // "": any
	API      string `json:"api,omitempty"`          // of the device; "": that of the one named, or opencl
	Model    string `json:"model,omitempty"`        // "": any; a part of its name
	Compute  int64  `json:"compute,omitempty"`      // percent; 0: 100
	Memory   int64  `json:"memory_bytes,omitempty"` // 0: all that is left
	Weighted bool   `json:"weighted,omitempty"`     // compute is a weight, and what others leave is used
	Idle     int64  `json:"idle_s,omitempty"`       // seconds without use after which the task ends; 0: never
	Limit    int64  `json:"limit_s,omitempty"`      // seconds after which the task ends; 0: never
	Name     string `json:"name,omitempty"`         // for people: what runs
}

// MaxCards is how many devices a program has at most; as in shim/src/pool.h and shim/cuda/cuda.h.
const MaxCards = 16

// MaxSeconds is the longest limit of a task.
const MaxSeconds = 366 * 24 * 3600

// By what programs use a device.
const (
	OpenCL = "opencl"
	CUDA   = "cuda"
)

const (
	mib     = 1 << 20
	maxName = 200
)

func (s Spec) check() error {
	var bad []string
	if s.API != "" && s.API != OpenCL && s.API != CUDA {
		bad = append(bad, fmt.Sprintf("api: %q is neither %s nor %s", s.API, OpenCL, CUDA))
	}
	if s.Compute < 0 || s.Compute > 100 {
		bad = append(bad, fmt.Sprintf("compute: %d is not a percentage from 1 to 100", s.Compute))
	}
	if s.Memory < 0 || s.Memory%mib != 0 {
		bad = append(bad, fmt.Sprintf("memory: %d bytes are not a number of MiB", s.Memory))
	}
	if s.Idle < 0 || s.Idle > MaxSeconds {
		bad = append(bad, fmt.Sprintf("idle: %d s, at most %d", s.Idle, MaxSeconds))
	}
	if s.Limit < 0 || s.Limit > MaxSeconds {
		bad = append(bad, fmt.Sprintf("limit: %d s, at most %d", s.Limit, MaxSeconds))
	}
	if len(s.Name) > maxName {
		bad = append(bad, fmt.Sprintf("name: %d bytes, at most %d", len(s.Name), maxName))
	}
	if len(bad) > 0 {
		return fault.New(fault.Invalid, "%s", strings.Join(bad, "; "))
	}
	return nil
}

// Task is a share of a device that is lent.
type Task struct {
	ID       string        `json:"id"`
	Group    string        `json:"group,omitempty"`
	Slice    string        `json:"slice,omitempty"` // the platform's, where the node belongs to one
	Name     string        `json:"name,omitempty"`
	Device   string        `json:"device"`
	API      string        `json:"api"`
	UUID     string        `json:"uuid,omitempty"` // of a device of CUDA, by which the driver finds it
	Bus      string        `json:"bus,omitempty"`  // and where that is
	Compute  int64         `json:"compute"`
	Weighted bool          `json:"weighted,omitempty"`
	Memory   int64         `json:"memory_bytes"`
	Used     int64         `json:"memory_used_bytes"`
	Resident int64         `json:"memory_resident_bytes"` // of that, on the device now
	Swaps    int64         `json:"memory_swaps"`          // how often its programs' memory was taken off the device for others
	Busy     time.Duration `json:"device_time_ns"`
	Energy   int64         `json:"energy_mj,omitempty"` // of the device's, by its share of device time
	Programs int           `json:"programs"`
	Started  time.Time     `json:"started"`
}

// Group may use a node with its key.
type Group struct {
	Name    string   `yaml:"name"`
	Key     string   `yaml:"key"`
	Devices []string `yaml:"devices"` // none: all
	Compute int64    `yaml:"compute"` // percent of all its tasks together; 0: no limit
	Memory  int64    `yaml:"memory_mib"`
	Admin   bool     `yaml:"admin"` // it administers the node: devices, and the tasks of all groups
}

// administers reports whether who comes for a group may do what is the node's own
// business; nil is who opens the Unix socket of a node without groups.
func (g *Group) administers() bool { return g == nil || g.Admin }

// uses reports whether a group's tasks may be on a device.
func (g *Group) uses(device string) bool {
	return g == nil || len(g.Devices) == 0 || slices.Contains(g.Devices, device)
}

// owns reports whether a group may see and change a task of a group.
func (g *Group) owns(of string) bool { return g.administers() || g.Name == of }

// CheckGroups tells all that is wrong with groups at once.
func CheckGroups(groups []Group) error {
	var bad []string
	var names []string
	for i, g := range groups {
		if g.Name == "" || strings.ContainsAny(g.Name, " \n\"") || len(g.Name) > 63 || slices.Contains(names, g.Name) {
			bad = append(bad, fmt.Sprintf("groups[%d].name: %q is empty, longer than 63 bytes, has blanks or is there twice", i, g.Name))
		}
		if names = append(names, g.Name); len(g.Key) < 16 {
			bad = append(bad, fmt.Sprintf("groups[%d].key: %d characters, at least 16", i, len(g.Key)))
		}
		if g.Compute < 0 || g.Memory < 0 {
			bad = append(bad, fmt.Sprintf("groups[%d]: compute and memory_mib are not below 0", i))
		}
	}
	if len(bad) > 0 {
		return fault.New(fault.Invalid, "%s", strings.Join(bad, "; "))
	}
	return nil
}
