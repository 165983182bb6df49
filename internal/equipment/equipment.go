// Package equipment keeps the network equipment of centers: switches, routers and
// the like, their ports and the links between them, and says by rules what of it
// is wrong.
//
// What it keeps true:
//
//   - Equipment is what its source said last, and that is stored: platform and
//     sources may start again. A source is a plug-in or gateway of the center, or a
//     platform of network management that calls the API. What one reports no other
//     does.
//   - What did not change writes nothing. Rates of errors and loss, which change all
//     the time, are kept in steps, the highest of a minute.
//   - What the rules find is told when asked (by alarms, which compares it with what
//     is open), and stored nowhere else. Asking reads what is not well, not what is.
//   - What is wrong has one cause where one is known: a link follows from equipment
//     at its end that is down, equipment that is out of reach from a neighbor that
//     is down, and a node that is not ready from the equipment or link through which
//     alone it is reached.
//
// # How facts come
//
//	plug-in ──Watch──────┐
//	gateway ──heartbeat──┼──▶ compare with what is stored ──▶ one transaction: rows + "equipment.changed"
//	API ─────Report──────┘                                                        │
//	                                                    alarms asks Troubles ◀────┘
//
// A link is two ports that name each other, or one that names what is at its other
// end. It is one thing, whichever end tells of it.
package equipment

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/core"
)

// Kind is what equipment is; the numbers are the contract's.
type Kind int64

// The kinds.
const (
	Switch   Kind = 1
	Router   Kind = 2
	lastKind Kind = 5
)

// State of equipment; the numbers are the contract's.
type State int64

// The states.
const (
	Up          State = 1
	Degraded    State = 2 // it works, and a part of it does not
	Down        State = 3
	Unreachable State = 4 // it does not answer
	Disabled    State = 5 // on purpose
)

// PortState is the state of a port; the numbers are the contract's.
type PortState int64

// The states of ports.
const (
	PortUp       PortState = 1
	PortDown     PortState = 2
	PortDisabled PortState = 3
)

// Port of equipment.
type Port struct {
	Name          string    `json:"name"`
	State         PortState `json:"state"`
	Reason        string    `json:"reason,omitempty"`
	Speed         int64     `json:"speed,omitempty"` // bits per second
	PeerEquipment string    `json:"peer_equipment,omitempty"`
	PeerPort      string    `json:"peer_port,omitempty"`
	PeerNode      string    `json:"peer_node,omitempty"`
	Errors        int64     `json:"errors,omitempty"` // ppm, in steps
	Loss          int64     `json:"loss,omitempty"`   // ppm, in steps
	Since         int64     `json:"since"`            // of the state, microseconds
}

// Equipment of a center.
type Equipment struct {
	CenterID  string    `json:"-"`
	Name      string    `json:"-"`
	Source    string    `json:"-"`
	Kind      Kind      `json:"-"`
	State     State     `json:"-"`
	Reason    string    `json:"reason,omitempty"`
	Vendor    string    `json:"vendor,omitempty"`
	Model     string    `json:"model,omitempty"`
	Address   string    `json:"address,omitempty"`
	Ports     []Port    `json:"ports,omitempty"` // by name
	Since     time.Time `json:"-"`
	UpdatedAt time.Time `json:"-"`

	// What is known without its ports.
	PortCount, PortsDown, WorstErrors, WorstLoss int64 `json:"-"`
	Silent                                       bool  `json:"-"`
}

// Limits of what is reported.
const (
	maxReport  = 1000
	maxPorts   = 1024
	maxSilence = 7 * 24 * 3600
	maxReason  = 1000
)

// hold is how long the highest rate of a port counts.
const hold = time.Minute

// step is the largest of 1, 2, 5, 10, 20, ... that is at most ppm.
func step(ppm int64) int64 {
	for unit := int64(100_000); unit > 0; unit /= 10 {
		for _, n := range []int64{10, 5, 2, 1} {
			if ppm >= n*unit {
				return n * unit
			}
		}
	}
	return 0
}

// tidy makes text from elsewhere such that it can be stored and shown.
func tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	for utf8.RuneCountInString(s) > maxReason {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

var sourceForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// check says what is wrong with equipment, below a path.
func (e *Equipment) check(c *core.Check, path string) {
	c.Text(path+".name", e.Name, true, 253, 0)
	c.Range(path+".kind", int64(e.Kind), 0, int64(lastKind))
	c.Range(path+".state", int64(e.State), int64(Up), int64(Disabled))
	c.Text(path+".vendor", e.Vendor, false, 128, 0)
	c.Text(path+".model", e.Model, false, 128, 0)
	c.Text(path+".address", e.Address, false, 253, 0)
	if len(e.Ports) > maxPorts {
		c.Add(path+".ports", "must be at most %d, got %d", maxPorts, len(e.Ports))
		return
	}
	seen := make(map[string]bool, len(e.Ports))
	for i := range e.Ports {
		p := &e.Ports[i]
		at := fmt.Sprintf("%s.ports[%d]", path, i)
		c.Text(at+".name", p.Name, true, 64, 0)
		if seen[p.Name] {
			c.Add(at+".name", "is there twice: %q", p.Name)
		}
		seen[p.Name] = true
		c.Range(at+".state", int64(p.State), int64(PortUp), int64(PortDisabled))
		c.Range(at+".speed_bits_per_second", p.Speed, 0, 1_000_000_000_000_000)
		c.Text(at+".peer_equipment", p.PeerEquipment, false, 253, 0)
		c.Text(at+".peer_port", p.PeerPort, false, 64, 0)
		c.Text(at+".peer_node", p.PeerNode, false, 253, 0)
		if p.PeerEquipment != "" && p.PeerNode != "" {
			c.Add(at+".peer_node", "must be empty where peer_equipment is given")
		}
		c.Range(at+".errors_ppm", p.Errors, 0, 1_000_000)
		c.Range(at+".loss_ppm", p.Loss, 0, 1_000_000)
	}
}

// sum counts what is known without the ports.
func (e *Equipment) sum() {
	e.PortCount, e.PortsDown, e.WorstErrors, e.WorstLoss = int64(len(e.Ports)), 0, 0, 0
	for i := range e.Ports {
		p := &e.Ports[i]
		if p.State == PortDown {
			e.PortsDown++
		}
		e.WorstErrors, e.WorstLoss = max(e.WorstErrors, p.Errors), max(e.WorstLoss, p.Loss)
	}
}

// uplinks counts the ports that are up by the node they lead to; nodes without
// one are in it, too.
func (e *Equipment) uplinks() map[string]int64 {
	out := map[string]int64{}
	for i := range e.Ports {
		if p := &e.Ports[i]; p.PeerNode != "" {
			if _, known := out[p.PeerNode]; !known {
				out[p.PeerNode] = 0
			}
			if p.State == PortUp {
				out[p.PeerNode]++
			}
		}
	}
	return out
}

// fails reports that it carries nothing.
func (s State) fails() bool { return s == Down || s == Unreachable }
