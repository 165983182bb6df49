// Package pools joins pool nodes to one accelerator pool, and lends slices of
// their devices.
//
// What it keeps true:
//
//   - No slice is lent twice: what a device has lent is counted in the
//     transaction that lends it, and the schema holds it within the limits.
//   - Who may use what is decided here: a logical group names tenants, users and
//     devices, and bounds what all its slices have. A client gets a ticket for a
//     slice, which is good once, for one start of one node, and for less than a
//     minute; the node takes nothing else ([pool.Member]).
//   - What a slice had is metered from when it has a place until it ends.
//   - All state is in the database; each process may place, and the loop may die
//     anywhere. What a process knows of all nodes it reads as their changes, and checks
//     what it lends against what is stored.
//
// # States of a slice
//
//	request ─▶ waiting ──placed──▶ assigned ──its program comes──▶ running
//	              ▲  │                │ │  ▲                          │ │
//	              │  │ nobody awaits  │ │  └──── program gone (fixed) ┘ │ program gone, or its time is over
//	              │  └───────▶ ended ◀┘ └ nobody comes                  └────▶ ended
//	              └── the node or its device is gone: what no program uses is placed anew
//
// The queue goes by priority, then by time. Who waits for room keeps those behind
// it off the devices that it could use, so that small ones do not starve it; who
// waits for its group's quota keeps nobody off.
//
// A slice that moves has a place at both devices until its node says that it has
// gone, and the other that it runs there; or until the move fails, and it has the
// place at the other no more. It is metered once. Slices of a name of affinity
// are on one device, of a name of anti-affinity on different ones.
//
// A device is lent in parts, or whole if its virtualization is off. A card that both
// OpenCL and CUDA show is two devices at one place of the bus: while one of them has
// slices, the other takes none, and what waits for one keeps both. Programs of CUDA
// do not move: a slice of theirs does only while none runs.
//
// # Nodes
//
// A node reports what it has and what runs there; one report waits at the
// platform for news, all the time. The node is authoritative for what runs, the
// platform for what may: what runs and may not is told to end, and the node takes
// no new slices before it has. A node whose waiting report breaks off, or who
// does not report for [silence], is gone: its slices end, fixed ones are placed
// anew. It may come back; what still runs there is then ended. A loop that starts
// waits for [silence] before it believes that a node is gone, as the platform may
// have been away itself.
package pools

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/pool"
)

// Mode says whether a node lends; the numbers are the API's.
type Mode int64

// The modes.
const (
	Enabled  Mode = 1
	Disabled Mode = 2
	Draining Mode = 3 // as disabled, and it leaves when nothing runs there
)

// State of a slice; the numbers are the API's.
type State int64

// The states.
const (
	Waiting  State = 1
	Assigned State = 2
	Running  State = 3
	Ended    State = 4
)

// Policy says where slices go; the numbers are the API's, 0 is as the pool's
// policy says.
type Policy struct{ Local, Nodes, Devices int64 }

// What a policy says.
const (
	LocalAny   = 1
	LocalFirst = 2
	LocalOnly  = 3

	Balanced = 1
	Compact  = 2
)

func (p Policy) over(base Policy) Policy {
	for _, x := range []struct{ own, base *int64 }{{&p.Local, &base.Local}, {&p.Nodes, &base.Nodes}, {&p.Devices, &base.Devices}} {
		if *x.own == 0 {
			*x.own = *x.base
		}
	}
	return p
}

func (p Policy) check(c *core.Check, path string) {
	c.Range(path+".local", p.Local, 0, LocalOnly)
	c.Range(path+".nodes", p.Nodes, 0, Compact)
	c.Range(path+".devices", p.Devices, 0, Compact)
}

// Device is one of a node's.
type Device struct {
	ID                            string
	API                           string // what programs use it by: [pool.OpenCL] or [pool.CUDA]
	Bus                           string // where it is; "": unknown
	Model, Vendor, Driver, Type   string
	Units, Memory                 int64 // MiB
	Present, Disabled             bool
	Physical                      bool  // lent whole
	ComputeLimit, MemoryLimit     int64 // percent, MiB: what slices may have together
	MemoryRatio                   int64 // percent of its memory that MemoryLimit is
	PowerLimit                    int64 // watts; 0: the platform does not say, -1: as its maker set it
	ComputeLent, MemoryLent, Used int64 // percent, MiB, slices
}

// set reports whether something was set for a device, which it is to have again when it
// is gone and comes back.
func (d *Device) set() bool {
	return d.Disabled || d.Physical || d.ComputeLimit != minLimit || d.MemoryRatio != minLimit || d.PowerLimit > 0
}

// Node lends its devices.
type Node struct {
	ID            string
	Mode          Mode
	Online        bool
	Ending        bool // nobody may have its room yet: it runs what has been taken back, or its report broke off
	Host, Version string
	Addresses     []string
	JoinedAt      time.Time
	SeenAt        time.Time
	Devices       []*Device

	// As last reported, of that start of the node.
	Boot    string
	Figures []pool.Figure
}

// same are the devices of another API that are the same card as one.
func (n *Node) same(d *Device) (out []*Device) {
	for _, x := range n.Devices {
		if d.Bus != "" && x.Bus == d.Bus && x.API != d.API {
			out = append(out, x)
		}
	}
	return out
}

// lentAs is the device that a device's card is lent as now; nil: it is not, or by
// itself.
func (n *Node) lentAs(d *Device) *Device {
	for _, x := range n.same(d) {
		if x.Used > 0 {
			return x
		}
	}
	return nil
}

// Counts reports whether a device is the one by which its card is counted, of those
// that are one card: the one that lends, or else the first.
func (n *Node) Counts(d *Device) bool {
	same := n.same(d)
	return d.Used > 0 || n.lentAs(d) == nil && !slices.ContainsFunc(same, func(x *Device) bool { return x.Present && x.ID < d.ID })
}

// Spec is a kind of slice.
type Spec struct {
	ID              string
	Compute, Memory int64 // percent, MiB
	Weighted        bool
	Model           string // a part of its name; "": any
	PriceFen        int64  // of a whole device for an hour
	UpdatedAt       time.Time
}

// Group is a part of the pool, and who may use it.
type Group struct {
	ID                        string
	Tenants, Users, Members   []string
	ComputeLimit, MemoryLimit int64 // percent, MiB; 0: none
	MaxPriority               int64
	UpdatedAt                 time.Time

	ComputeLent, MemoryLent, Slices int64
}

// Slice is a part of a device, lent or wanted.
type Slice struct {
	ID, Group, Tenant, User, UserName string
	Name, Spec                        string
	Compute, Memory                   int64 // percent, MiB
	Weighted                          bool
	API                               string // of its device
	Model, WantNode, WantDevice, Host string
	Policy                            Policy
	Fixed                             bool
	Priority                          int64
	Idle, Limit                       int64 // seconds
	Physical                          bool  // a whole card
	Affinity, Anti                    string
	Set                               string // the first of the slices that one program has together, or a name for those that a gang waits for; "": it has one only
	Across                            bool   // each of them on another node
	PriceFen                          int64
	State                             State
	Node, Device                      string
	Reason                            string

	CreatedAt, PolledAt, AssignedAt, StartedAt, EndedAt, meteredAt time.Time
	QueuedAt                                                       time.Time // since when it waits, or waited last
	Busy                                                           time.Duration
	Energy                                                         int64 // millijoules

	past       time.Duration // of Busy, its programs' before the one that runs
	pastEnergy int64

	Cards          []string // the slices of its set
	Position       int64    // in the queue, from 1
	Used, Programs int64    // bytes; as last reported

	// Where it moves to; "": it does not. Each move has an ID.
	ToNode, ToDevice, moveID string
	leftAt                   time.Time // when its node said that it has gone
	MoveError                string    // of the last move
	Pause                    time.Duration

	run        run
	wished     bool // a replica asked for it that is not placed yet
	said       bool // what it did is known of its node's last word on it
	requestKey string
	beside     *[2]string         // of its affinity; nil: anywhere
	apart      map[[2]string]bool // of its anti-affinity and its set; without a device: all of the node's
	home       string             // of its set, of a program of CUDA: that node only
	mates      []*Slice           // of that set, with it, that its node has to have room for; none: itself only
}

// run is a job's that has a slice; zero: it is no job's. Until its replica is placed the
// ID is the name of that ([pool.Shares.Wish]).
type run struct {
	ID, Job, Project, Task     string
	TaskIndex, Replica, Number int64
	Priority                   int64 // of the job
}

// counted is what of its compute is taken off a device: weights are of what
// there is.
func (s *Slice) counted() int64 {
	if s.Weighted {
		return 0
	}
	return s.Compute
}

// Limits.
const (
	maxMemory   = 1 << 20 // MiB
	maxPriority = 100
	maxSeconds  = 366 * 24 * 3600
	maxNodes    = 1000
	maxDevices  = 256 // of a node
	maxSpecs    = 1000
	maxGroups   = 1000
	maxWaiting  = 10000
	maxMembers  = 1000
	maxTenants  = 100
	maxPrice    = 1_000_000
	minLimit    = 100 // percent of a device's time, and of its memory
	maxLimit    = 10000
)

func (s *Spec) check() error {
	var c core.Check
	c.ID("spec_id", s.ID)
	c.Range("spec.compute_percent", s.Compute, 1, 100)
	c.Range("spec.memory_mib", s.Memory, 1, maxMemory)
	c.Text("spec.model", s.Model, false, 100, 0)
	c.Range("spec.price_fen", s.PriceFen, 0, maxPrice)
	return c.Err()
}

func (g *Group) check() error {
	var c core.Check
	c.ID("group_id", g.ID)
	if len(g.Tenants) == 0 {
		c.Add("group.tenant_ids", "at least one tenant is required")
	}
	for _, x := range []struct {
		path string
		list []string
		most int
	}{{"group.tenant_ids", g.Tenants, maxTenants}, {"group.user_ids", g.Users, maxMembers}, {"group.members", g.Members, maxMembers}} {
		if len(x.list) > x.most {
			c.Add(x.path, "must be at most %d, got %d", x.most, len(x.list))
			continue
		}
		for _, v := range x.list {
			c.Text(x.path, v, true, 128, 0)
		}
	}
	for i, v := range g.Members {
		node, device, of := strings.Cut(v, "/")
		var parts core.Check
		if parts.ID("node", node); of {
			parts.ID("device", device)
		}
		if v != "" && parts.Err() != nil {
			c.Add(fmt.Sprintf("group.members[%d]", i), "must be NODE or NODE/DEVICE, got %q", clip(v))
		}
	}
	c.Range("group.compute_limit_percent", g.ComputeLimit, 0, 1_000_000_000)
	c.Range("group.memory_limit_mib", g.MemoryLimit, 0, 1<<40)
	c.Range("group.max_priority", g.MaxPriority, 0, maxPriority)
	return c.Err()
}

// has reports whether a device is in the group.
func (g *Group) has(node, device string) bool {
	return len(g.Members) == 0 || slices.Contains(g.Members, node) || slices.Contains(g.Members, node+"/"+device)
}

// admits reports whether the caller may use the group.
func (g *Group) admits(c core.Caller) bool {
	return c.AllTenants && c.Can("scheduler.write") || slices.Contains(g.Tenants, c.TenantID) && (len(g.Users) == 0 || slices.Contains(g.Users, c.UserID))
}

// sees reports whether the caller may see the group.
func (g *Group) sees(c core.Caller) bool { return c.AllTenants || g.admits(c) }

// Request is what is asked for.
type Request struct {
	ID, Group, Spec         string
	Compute, Memory         int64
	Weighted                bool
	API                     string // "": that of the device named, or OpenCL
	Model, Node, Device     string
	Fixed                   bool
	Priority                int64
	Policy                  Policy
	Host, Name              string
	IdleSeconds, LimSeconds int64
	Physical                bool
	Affinity, Anti          string
	Cards                   int64 // 0: one
	Across                  bool

	run    run
	remote bool // a worker computes for its programs
	beside bool // they run on the machine of the node that it names
}

func (r *Request) check() error {
	var c core.Check
	c.Text("request_id", r.ID, false, 64, 0)
	for _, x := range [][2]string{{"group_id", r.Group}, {"spec_id", r.Spec}, {"node_id", r.Node}} {
		if x[1] != "" {
			c.ID(x[0], x[1])
		}
	}
	switch {
	case r.Physical:
		if r.Spec != "" || r.Compute != 0 || r.Memory != 0 || r.Weighted {
			c.Add("physical", "is a whole card: no specification, compute, memory or weight is given beside it")
		}
	case r.Spec == "":
		c.Range("compute_percent", r.Compute, 1, 100)
		c.Range("memory_mib", r.Memory, 1, maxMemory)
	case r.Compute != 0 || r.Memory != 0 || r.Weighted:
		c.Add("spec_id", "says compute, memory and weighted: they are not given beside it")
	}
	c.Text("affinity", r.Affinity, false, 64, 0)
	c.Text("anti_affinity", r.Anti, false, 64, 0)
	c.Text("model", r.Model, false, 100, 0)
	if r.API != "" && r.API != pool.OpenCL && r.API != pool.CUDA {
		c.Add("api", "must be %s or %s, got %q", pool.OpenCL, pool.CUDA, r.API)
	}
	c.Text("device_id", r.Device, false, 64, 0)
	if r.Device != "" && r.Node == "" {
		c.Add("device_id", "goes with a node_id")
	}
	c.Range("priority", r.Priority, 0, maxPriority)
	r.Policy.check(&c, "policy")
	c.Text("host", r.Host, false, 64, 0)
	if r.Policy.Local == LocalOnly && r.Host == "" {
		c.Add("host", "is required with LOCAL_ONLY")
	}
	c.Text("name", r.Name, false, 200, 0)
	switch c.Range("cards", r.Cards, 0, pool.MaxCards); {
	case r.Cards > 1 && r.API == pool.CUDA && r.remote:
		c.Add("cards", "must be 1 with the api cuda, but for slices that are local: a worker computes for the programs of jobs, which find one device then, got %d", r.Cards)
	case r.Cards > 1 && r.API == pool.CUDA && r.Across:
		c.Add("across_nodes", "is not for the api cuda, whose programs have cards of one node")
	case r.Cards > 1 && r.API == pool.CUDA && !r.Fixed && !r.beside && r.Host == "":
		c.Add("host", "is required with cards from 2 of the api cuda, which a program has on its node's machine only")
	case r.Cards < 2 && r.Across:
		c.Add("across_nodes", "goes with cards from 2")
	case r.Cards > 1 && r.Device != "":
		c.Add("device_id", "names one device: it is not given beside cards")
	case r.Cards > 1 && r.Affinity != "":
		c.Add("affinity", "is for one device: it is not given beside cards")
	case r.Across && (r.Node != "" || r.Policy.Local == LocalOnly):
		c.Add("across_nodes", "is of several nodes: neither a node_id nor LOCAL_ONLY is given beside it")
	}
	c.Range("idle_seconds", r.IdleSeconds, 0, maxSeconds)
	c.Range("limit_seconds", r.LimSeconds, 0, maxSeconds)
	return c.Err()
}

// fits reports whether a device is of the kind that a slice wants and where it may
// be; g is its group.
func (s *Slice) fits(g *Group, n *Node, d *Device) bool {
	at := [2]string{n.ID, d.ID}
	return s.kind(g, n, d) && d.Physical == s.Physical && (s.beside == nil || *s.beside == at) && !s.apart[at] && !s.apart[[2]string{n.ID}] && (s.home == "" || s.home == n.ID)
}

// kind reports whether a device is of the kind that a slice wants.
func (s *Slice) kind(g *Group, n *Node, d *Device) bool {
	return d.API == s.API && (s.WantNode == "" || s.WantNode == n.ID) && (s.WantDevice == "" || s.WantDevice == d.ID) && g.has(n.ID, d.ID) &&
		(s.Model == "" || strings.Contains(strings.ToLower(d.Model), strings.ToLower(s.Model)))
}
