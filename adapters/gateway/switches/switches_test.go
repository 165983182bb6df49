package switches

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"yunhe.dev/yunhe/adapters/gateway/switches/switchestest"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

var quiet = slog.New(slog.DiscardHandler)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask polls once, as follow does.
func ask(t *testing.T, w *Watch, s *Switch, r rates) string {
	t.Helper()
	got, err := poll(t.Context(), s)
	must(t, err)
	w.set(w.equipment(s, got, r))
	return shown(w, s.Name)
}

func shown(w *Watch, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.now[name]
	out := strings.ToLower(strings.TrimPrefix(x.GetState().String(), "EQUIPMENT_STATE_"))
	for _, p := range x.GetPorts() {
		out += fmt.Sprintf("\n%s %s", p.Name, strings.ToLower(strings.TrimPrefix(p.State.String(), "PORT_STATE_")))
		if p.PeerNode != "" {
			out += " node " + p.PeerNode
		}
		if p.PeerEquipment != "" {
			out += " " + p.PeerEquipment + ":" + p.PeerPort
		}
		if p.ErrorsPpm+p.LossPpm > 0 {
			out += fmt.Sprintf(" %d %d", p.ErrorsPpm, p.LossPpm)
		}
	}
	return out
}

// What a switch says is told: its ports, where they lead, and what goes wrong there.
func TestPoll(t *testing.T) {
	t.Parallel()
	a := switchestest.New(t)
	a.Set(sysDescr, "CE6865\r\nVersion 8")
	for i, name := range []string{"25GE1/0/1", "25GE1/0/2", "25GE1/0/3", "25GE1/0/4", "25GE1/0/5"} {
		a.Port(i+1, name, 1, []int{1, 1, 2, 2, 1}[i])
	}
	a.Port(5, "25GE1/0/5", 2, 2)
	a.Port(30, "25GE1/0/30", 1, 1)
	a.Set(ifType+".99", 53) // a VLAN
	a.Set(ifName+".99", "Vlanif1")
	for i := range 60 { // more than one answer has
		a.Set(fmt.Sprintf("%s.%d", ifInErrors, i+200), uint32(i))
	}
	a.Set(lldpLocPort+".7", "25GE1/0/2") // local numbers of its own
	a.Set(lldpFarName+".0.7.1", "spine-1")
	a.Set(lldpFarPort+".0.7.1", "100GE1/0/9")
	a.Set(lldpFarName+".0.1.4", "gw-host") // those of the interfaces
	a.Set(lldpFarPort+".0.1.4", "\x00\x11\xff\xee\x00\x01")
	s := &Switch{Name: "leaf-1", Address: a.Address(), Community: switchestest.Community, Ports: map[string]Far{"25GE1/0/3": {Node: "n7"}}}
	file := filepath.Join(t.TempDir(), "switches.json")
	w := New(Config{Switches: []Switch{*s}}, "gw-host", file, quiet)
	r := rates{}
	const first = "up\n25GE1/0/1 up node gw-host\n25GE1/0/2 up spine-1:100GE1/0/9\n25GE1/0/3 down node n7\n25GE1/0/4 disabled\n25GE1/0/5 disabled\n25GE1/0/30 up"
	if got := ask(t, w, s, r); got != first {
		t.Errorf("found %s\nwant %s", got, first)
	}
	if x := w.now["leaf-1"]; x.Model != "CE6865  Version 8" || x.Ports[0].SpeedBitsPerSecond != 25e9 || x.Kind != adapterv1.EquipmentKind_EQUIPMENT_KIND_SWITCH {
		t.Errorf("found %v", x)
	}
	// Its neighbor is forgotten, not where the port led; also by who starts again.
	a.Port(2, "25GE1/0/2", 1, 2)
	a.Delete(lldpFarName + ".0.7.1")
	if got, want := ask(t, w, s, r), strings.Replace(first, "25GE1/0/2 up", "25GE1/0/2 down", 1); got != want {
		t.Errorf("found %s\nwant %s", got, want)
	}
	again := New(Config{}, "gw-host", file, quiet)
	if got, want := ask(t, again, s, rates{}), strings.Replace(first, "25GE1/0/2 up spine-1:100GE1/0/9", "25GE1/0/2 down", 1); got != want {
		t.Errorf("after the start %s\nwant %s", got, want)
	}
	// Rates need frames, and begin anew with the counters.
	count := func(frames, errors, dropped int) string {
		a.Set(ifHCUnicast+".30", uint64(frames))
		a.Set(ifInErrors+".30", uint32(errors))
		a.Set(ifInDiscards+".30", uint32(dropped))
		_, last, _ := strings.Cut(ask(t, w, s, r), "25GE1/0/30 up")
		return last
	}
	for i, x := range []struct {
		frames, errors, dropped int
		want                    string
	}{{0, 0, 0, ""}, {899, 50, 50, ""}, {99_000, 500, 500, " 5000 5000"}, {10, 0, 0, ""}, {100_010, 0, 100, " 0 999"}} {
		if got := count(x.frames, x.errors, x.dropped); got != x.want {
			t.Errorf("%d: rates %q, want %q", i, got, x.want)
		}
	}
	if _, err := poll(t.Context(), &Switch{Address: a.Address(), Community: "wrong"}); err == nil {
		t.Error("a wrong community is answered")
	}
	a.Silent(false, true)
	if _, err := poll(t.Context(), s); err == nil {
		t.Error("rubbish is taken for an answer")
	}
}

// A switch that does not answer is out of reach after a while, with the ports it had.
func TestLost(t *testing.T) {
	t.Parallel()
	w := New(Config{Switches: []Switch{{Name: "leaf-1"}, {Name: "never"}}}, "", filepath.Join(t.TempDir(), "x.json"), quiet)
	s := &Switch{Name: "leaf-1", Address: "10.0.0.2"}
	w.set(w.equipment(s, &found{ports: []port{{name: "1", wanted: true, up: true}}}, rates{}))
	w.lost(s, os.ErrDeadlineExceeded)
	if got := shown(w, "leaf-1"); got != "unreachable\n1 up" {
		t.Errorf("shown as %s", got)
	}
	w.lost(&Switch{Name: "never"}, os.ErrDeadlineExceeded)
	list, whole, said := w.Tell()
	if len(list) != 2 || !whole || list[1].State != adapterv1.EquipmentState_EQUIPMENT_STATE_UNREACHABLE || list[1].Reason == "" {
		t.Errorf("told %v, whole: %v", list, whole)
	}
	if list, whole, _ := w.Tell(); len(list) != 2 || !whole {
		t.Errorf("what was not taken is not told again: %v", list)
	}
	said()
	if list, whole, _ := w.Tell(); len(list) != 0 || whole {
		t.Errorf("told again: %v", list)
	}
	w.set(w.equipment(s, &found{ports: []port{{name: "1", wanted: true}}}, rates{}))
	if list, whole, _ := w.Tell(); len(list) != 1 || whole || list[0].Ports[0].State != adapterv1.PortState_PORT_STATE_DOWN {
		t.Errorf("told %v", list)
	}
	w.Forget()
	if list, whole, _ := w.Tell(); len(list) != 2 || !whole {
		t.Errorf("not all is told: %v", list)
	}
}

// Who has just started knows of some switches before the others: the platform is
// not told that these are all.
func TestStart(t *testing.T) {
	t.Parallel()
	w := New(Config{Switches: []Switch{{Name: "a"}, {Name: "b"}}}, "", filepath.Join(t.TempDir(), "x.json"), quiet)
	if list, whole, _ := w.Tell(); len(list) != 0 || whole {
		t.Errorf("told %v, whole: %v", list, whole)
	}
	w.set(&adapterv1.Equipment{Name: "a"})
	list, whole, said := w.Tell()
	if len(list) != 1 || whole {
		t.Errorf("told %v, whole: %v", list, whole)
	}
	said()
	w.set(&adapterv1.Equipment{Name: "b"})
	if list, whole, _ := w.Tell(); len(list) != 2 || !whole {
		t.Errorf("told %v, whole: %v", list, whole)
	}
	if _, whole, _ := New(Config{}, "", filepath.Join(t.TempDir(), "y.json"), quiet).Tell(); !whole {
		t.Error("of no switches it is not told that there are none")
	}
}

// The loop asks every switch until it is told to end, also those that hang.
func TestRun(t *testing.T) {
	t.Parallel()
	a, dead := switchestest.New(t), switchestest.New(t)
	dead.Silent(true, false)
	a.Port(1, "1", 1, 1)
	w := New(Config{Switches: []Switch{{Name: "a", Address: a.Address(), Community: switchestest.Community}, {Name: "dead", Address: dead.Address()}}}, "", filepath.Join(t.TempDir(), "x.json"), quiet)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		if list, _, _ := w.Tell(); len(list) == 1 && len(list[0].Ports) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the switch is not told of")
		}
	}
	cancel()
	<-done
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := Config{Switches: []Switch{{Name: "a", Address: "10.0.0.1"}, {Name: "b", Address: "sw.example.org:1161", Kind: "router"}, {Name: "c", Address: "[fd00::1]:161"}}}
	must(t, good.Check())
	for want, s := range map[string]Switch{"name": {Address: "10.0.0.1"}, "address": {Name: "x", Address: "10.0.0.1:x"}, "kind": {Name: "x", Address: "10.0.0.1", Kind: "fridge"},
		"both": {Name: "x", Address: "10.0.0.1", Ports: map[string]Far{"1": {Node: "n", Equipment: "e"}}}} {
		bad := Config{Switches: []Switch{s}}
		if err := bad.Check(); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to name %s", s, err, want)
		}
	}
	twice := Config{Switches: []Switch{good.Switches[0], good.Switches[0]}}
	if twice.Check() == nil {
		t.Error("a switch may be there twice")
	}
}

// FuzzPorts: whatever tables a switch sends, what is made of them can be told.
func FuzzPorts(f *testing.F) {
	f.Add("1", "25GE1/0/1", int64(6), int64(1), "0.1.1", "spine")
	f.Add("x", "\xff\x00", int64(-1), int64(1)<<62, "..", "\n")
	f.Fuzz(func(t *testing.T, index, name string, kind, speed int64, neighbor, far string) {
		pdu := func(v any) gosnmp.SnmpPDU {
			if s, ok := v.(string); ok {
				return gosnmp.SnmpPDU{Type: gosnmp.OctetString, Value: []byte(s)}
			}
			return gosnmp.SnmpPDU{Type: gosnmp.Counter64, Value: uint64(v.(int64))}
		}
		got := ports(map[string]map[string]gosnmp.SnmpPDU{ifName: {index: pdu(name)}, ifType: {index: pdu(kind)}, ifHighSpeed: {index: pdu(speed)}, ifInErrors: {index: pdu(speed)},
			lldpFarName: {neighbor: pdu(far)}, lldpLocPort: {neighbor: pdu(name)}})
		for _, p := range got {
			if p.name == "" || len(p.name) > 64 || len(p.farName) > 253 || p.speed < 0 || p.speed > 1e15 || strings.ContainsFunc(p.name+p.farName, func(r rune) bool { return r < ' ' }) {
				t.Errorf("%+v", p)
			}
		}
		r := rates{}
		for _, c := range []counters{{}, {uint64(speed), uint64(kind), 1}} {
			if e, l := r.add("x", c); e < 0 || l < 0 || e > 1_000_000 || l > 1_000_000 {
				t.Errorf("rates %d, %d of %+v", e, l, c)
			}
		}
	})
}
