// Package switches asks the switches and routers of a gateway's center how they
// are, by SNMP (version 2c): whether they answer, which of their ports are up, how
// many frames come in broken or are dropped, and, by LLDP, where ports lead.
//
// What it keeps true:
//
//   - What does not answer is out of reach after [patience] polls, and is shown with
//     the ports it had. It is never said to be down: that cannot be seen from here.
//   - A port that is down is told as down if it was ever up, or if the configuration
//     says where it leads; others never had anything plugged in. What was up is kept
//     in a file.
//   - One switch that hangs delays no other.
package switches

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// Config says which switches there are.
type Config struct {
	Switches []Switch `yaml:"switches"`
}

// Switch of the center.
type Switch struct {
	Name      string         `yaml:"name"`      // as alarms call it, and as it calls itself to its neighbors
	Address   string         `yaml:"address"`   // HOST, or HOST:PORT; the port is 161
	Community string         `yaml:"community"` // "public" if empty
	Kind      string         `yaml:"kind"`      // switch, router, firewall or other; switch if empty
	Ports     map[string]Far `yaml:"ports"`     // what ports lead to, where LLDP does not say
}

// Far is what is at the other end of a port: a node, or a port of other equipment.
type Far struct {
	Node      string `yaml:"node"`
	Equipment string `yaml:"equipment"`
	Port      string `yaml:"port"`
}

const (
	// every is how often switches are asked.
	every = 10 * time.Second
	// patience is how many polls in a row may fail.
	patience = 3
	// timeout of one question, which is asked twice.
	timeout = 2 * time.Second
	// window is over how many polls rates are measured.
	window = 6
	// few frames say nothing of a rate.
	few = 1000
	// most switches of a gateway.
	most = 1000
)

var kinds = map[string]adapterv1.EquipmentKind{"": adapterv1.EquipmentKind_EQUIPMENT_KIND_SWITCH, "switch": adapterv1.EquipmentKind_EQUIPMENT_KIND_SWITCH, "router": adapterv1.EquipmentKind_EQUIPMENT_KIND_ROUTER,
	"firewall": adapterv1.EquipmentKind_EQUIPMENT_KIND_FIREWALL, "other": adapterv1.EquipmentKind_EQUIPMENT_KIND_OTHER}

// Check says what is wrong with a configuration: fault.Invalid.
func (c *Config) Check() error {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(c.Switches) > most {
		add("must be at most %d, got %d", most, len(c.Switches))
	}
	seen := map[string]bool{}
	for i, s := range c.Switches {
		if s.Name == "" || len(s.Name) > 253 || seen[s.Name] {
			add("switches[%d].name must be 1 to 253 characters and there once, got %q", i, s.Name)
		}
		seen[s.Name] = true
		if _, _, err := s.target(); err != nil {
			add("switches[%d].address must be HOST or HOST:PORT, got %q", i, s.Address)
		}
		if _, known := kinds[s.Kind]; !known {
			add("switches[%d].kind must be switch, router, firewall or other, got %q", i, s.Kind)
		}
		for name, far := range s.Ports {
			if far.Node != "" && far.Equipment != "" {
				add("switches[%d].ports[%s] leads to a node or to equipment, not to both", i, name)
			}
		}
	}
	if len(wrong) > 0 {
		return fault.New(fault.Invalid, "%s", strings.Join(wrong, "; "))
	}
	return nil
}

func (s *Switch) target() (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(s.Address)
	if err != nil {
		host, text = s.Address, "161"
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if host == "" || err != nil || n == 0 || strings.ContainsAny(host, " /") {
		return "", 0, fmt.Errorf("no address: %q", s.Address)
	}
	return host, uint16(n), nil
}

// Watch knows how the switches are. It is safe for concurrent use.
type Watch struct {
	cfg  Config
	node string // of the gateway's machine, as it is called by LLDP too; "": it has no name
	file string
	log  *slog.Logger

	mu sync.Mutex // guards the fields below

	now  map[string]*adapterv1.Equipment
	told map[string]*adapterv1.Equipment // what the platform has taken
	all  bool                            // it has taken that this is all there is
	up   map[string]map[string]bool      // ports that were ever up, by switch
}

// New returns a watch whose loop is Run; file keeps what was ever up. A file that
// cannot be read is begun anew.
func New(cfg Config, node, file string, log *slog.Logger) *Watch {
	w := &Watch{cfg: cfg, node: node, file: file, log: log, now: map[string]*adapterv1.Equipment{}, told: map[string]*adapterv1.Equipment{}, up: map[string]map[string]bool{}}
	if b, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(b, &w.up); err != nil {
			log.Warn("what was up of the switches is not known", "file", file, "error", err)
			w.up = map[string]map[string]bool{}
		}
	}
	return w
}

// Forget has the platform told everything anew.
func (w *Watch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told, w.all = map[string]*adapterv1.Equipment{}, false
}

// Tell returns what the platform does not know yet, and whether that is all there
// is: once each switch has answered or is given up, so that a gateway that starts
// does not have the platform forget what it cannot know yet. said is called once
// the platform has taken it.
func (w *Watch) Tell() (list []*adapterv1.Equipment, whole bool, said func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	whole = !w.all && len(w.now) == len(w.cfg.Switches)
	for _, name := range slices.Sorted(maps.Keys(w.now)) {
		if x := w.now[name]; whole || !proto.Equal(x, w.told[name]) {
			list = append(list, x)
		}
	}
	return list, whole, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = w.all || whole
		for _, x := range list {
			w.told[x.Name] = x
		}
	}
}

// Run asks the switches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var polls sync.WaitGroup
	for i := range w.cfg.Switches {
		polls.Go(func() { w.follow(ctx, &w.cfg.Switches[i]) })
	}
	polls.Wait()
}

// follow asks one switch.
func (w *Watch) follow(ctx context.Context, s *Switch) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	r := rates{}
	failed := 0
	for {
		got, err := poll(ctx, s)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed = 0
			w.set(w.equipment(s, got, r))
		default:
			if failed++; failed >= patience {
				w.lost(s, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Watch) set(x *adapterv1.Equipment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.now[x.Name]; old == nil || old.State != x.State {
		w.log.Info("switch", "name", x.Name, "state", x.State, "reason", x.Reason)
	}
	w.now[x.Name] = x
}

// lost says that a switch does not answer.
func (w *Watch) lost(s *Switch, err error) {
	w.mu.Lock()
	x := &adapterv1.Equipment{Name: s.Name, Kind: kinds[s.Kind], Address: s.Address}
	if old := w.now[s.Name]; old != nil {
		x = proto.CloneOf(old)
	}
	w.mu.Unlock()
	x.State, x.Reason = adapterv1.EquipmentState_EQUIPMENT_STATE_UNREACHABLE, fmt.Sprintf("it has not answered %d times", patience)
	w.log.Debug("switch does not answer", "name", s.Name, "error", err)
	w.set(x)
}

// equipment is what a poll found, in the contract's words.
func (w *Watch) equipment(s *Switch, got *found, r rates) *adapterv1.Equipment {
	x := &adapterv1.Equipment{Name: s.Name, Kind: kinds[s.Kind], Address: s.Address, State: adapterv1.EquipmentState_EQUIPMENT_STATE_UP, Model: got.model}
	names := map[string]bool{}
	for _, p := range got.ports {
		if names[p.name] || len(x.Ports) == 1024 {
			continue
		}
		names[p.name] = true
		out := &adapterv1.Port{Name: p.name, SpeedBitsPerSecond: p.speed}
		far, stated := s.Ports[p.name]
		switch {
		case stated:
			out.PeerNode, out.PeerEquipment, out.PeerPort = far.Node, far.Equipment, far.Port
		case p.farName != "" && p.farName == w.node:
			out.PeerNode = w.node
		case p.farName != "":
			out.PeerEquipment, out.PeerPort = p.farName, p.farPort
		}
		switch {
		case !p.wanted:
			out.State = adapterv1.PortState_PORT_STATE_DISABLED
		case p.up:
			out.State = adapterv1.PortState_PORT_STATE_UP
			w.remember(s.Name, p.name)
		case stated || w.wasUp(s.Name, p.name):
			out.State = adapterv1.PortState_PORT_STATE_DOWN
			if old := w.before(s.Name, p.name); old != nil && !stated { // LLDP forgets
				out.PeerNode, out.PeerEquipment, out.PeerPort = old.PeerNode, old.PeerEquipment, old.PeerPort
			}
		default:
			out.State = adapterv1.PortState_PORT_STATE_DISABLED
		}
		out.ErrorsPpm, out.LossPpm = r.add(p.name, p.counted)
		x.Ports = append(x.Ports, out)
	}
	return x
}

// before is a port as it was last told.
func (w *Watch) before(name, port string) *adapterv1.Port {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.now[name].GetPorts() {
		if p.Name == port {
			return p
		}
	}
	return nil
}

func (w *Watch) wasUp(name, port string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up[name][port]
}

// remember keeps that a port was up.
func (w *Watch) remember(name, port string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.up[name][port] {
		return
	}
	if w.up[name] == nil {
		w.up[name] = map[string]bool{}
	}
	w.up[name][port] = true
	b, err := json.Marshal(w.up)
	if err == nil {
		if err = os.WriteFile(w.file+".new", b, 0o600); err == nil {
			err = os.Rename(w.file+".new", w.file)
		}
	}
	if err != nil {
		w.log.Warn("what was up of the switches is not kept", "file", w.file, "error", err)
	}
}

// counters of a port.
type counters struct{ frames, errors, dropped uint64 }

// rates are the last counters by port.
type rates map[string][]counters

// add returns the rates of about the last minute, in millionths.
func (r rates) add(port string, c counters) (errors, loss int64) {
	list := append(r[port], c)
	if n := len(list); n > 1 && (c.frames < list[n-2].frames || c.errors < list[n-2].errors || c.dropped < list[n-2].dropped) {
		list = []counters{c} // it began anew
	}
	if len(list) > window+1 {
		list = slices.Delete(list, 0, 1)
	}
	r[port] = list
	first := list[0]
	bad, dropped := float64(c.errors-first.errors), float64(c.dropped-first.dropped)
	all := float64(c.frames-first.frames) + bad + dropped
	if all < few {
		return 0, 0
	}
	return int64(bad / all * 1e6), int64(dropped / all * 1e6)
}

// byName orders ports as people count them.
func byName(a, b port) int {
	return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.name, b.name))
}
