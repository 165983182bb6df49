//go:build linux

package pool_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// vendor has OpenCL show what plays a maker's device in a folder, beside what there
// is. Workers may read that folder.
func vendor(t *testing.T, dir string) {
	t.Helper()
	_, _ = built() // which says what there is
	files, err := filepath.Glob(filepath.Join(cmp.Or(os.Getenv("OCL_ICD_VENDORS"), "/etc/OpenCL/vendors"), "*.icd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "fake.icd"), []byte(filepath.Join(dir, "libfakecl.so")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OCL_ICD_VENDORS", dir)
}

// A device of OpenCL is the card of its maker's library that is at the same place,
// by whatever its driver says where it is; a card that OpenCL does not show is
// listed with why it cannot be lent.
func TestMakers(t *testing.T) {
	for _, how := range []string{"", " -DNV", " -DAMD"} {
		t.Run("bus"+strings.TrimSpace(how), func(t *testing.T) {
			libraries := cardstest.Build(t, "nvml", "dcmi", "opencl"+how)
			vendor(t, libraries)
			n := start(t, pool.NodeConfig{Libraries: libraries})
			n.log.await(t, "index=1 model=\"FAKE H200\"")
			n.log.await(t, "index=1 model=\"Ascend FAKE910B1\"")
			devices, err := dial(t, n.tcp).Devices()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range devices {
				switch {
				case d.Type == "cpu":
					if d.Card != nil || d.NotLent != "" {
						t.Errorf("a processor is a card: %+v", d)
					}
				case d.Bus == "0000:65:00.0":
					if d.Card == nil || *d.Card.Temperature != 41 || d.Card.Model != d.Model || d.NotLent != "" || !strings.HasPrefix(d.ID, "opencl-") {
						t.Errorf("the device of a card: %+v", d)
					}
				default:
					if d.Card == nil || !strings.Contains(d.NotLent, "OpenCL shows no device at "+d.Bus) {
						t.Errorf("a card that OpenCL does not show: %+v", d)
					}
				}
			}
			for _, id := range []string{"nvml-1", "dcmi-0", "dcmi-1"} {
				i := slices.IndexFunc(devices, func(d pool.Device) bool { return d.ID == id })
				if i < 0 {
					t.Fatalf("no %s in %+v", id, devices)
				}
			}
			if _, _, err := dial(t, n.tcp).Run(pool.Spec{Device: "nvml-1", Memory: 1 << 20}); err == nil {
				t.Error("a card that OpenCL does not show was lent")
			}
		})
	}
}

// Libraries that crash or hang leave a node as it is.
func TestMakersFail(t *testing.T) {
	for how, says := range map[string]string{"CRASH": "fakenvml crashes", "ASLEEP": "Driver Not Loaded"} {
		t.Run(how, func(t *testing.T) {
			n := start(t, pool.NodeConfig{Libraries: cardstest.Build(t, "nvml -D"+how, "cndev")})
			n.log.await(t, says)
			n.log.await(t, "FAKE MLU370")
			_, run := share(t, n.tcp, pool.Spec{Memory: 64 << 20})
			output(t, run("add", "4"))
		})
	}
	t.Run("HANG", func(t *testing.T) {
		n := start(t, pool.NodeConfig{Libraries: cardstest.Build(t, "nvml -DHANG", "cndev")})
		n.log.await(t, "FAKE MLU370")
		_, run := share(t, n.tcp, pool.Spec{Memory: 64 << 20})
		output(t, run("add", "4"))
		n.stop() // does not wait for the library
	})
}

// What a device used is counted by its card's counter, or as it is told, and is
// its tasks' by device time.
func TestEnergy(t *testing.T) {
	libraries := cardstest.Build(t, "nvml", "opencl")
	vendor(t, libraries)
	n := start(t, pool.NodeConfig{Libraries: libraries, Power: map[string]pool.Watts{"opencl-0": {Idle: 50, Full: 150}, "opencl-1": {Idle: 50, Full: 150}}})
	client := dial(t, n.tcp)
	of := func(kind string) pool.Device {
		t.Helper()
		devices, err := client.Devices()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(devices, func(d pool.Device) bool { return d.Type == kind })
		if i < 0 {
			t.Skipf("SKIPPED: no device of the type %s", kind)
		}
		return devices[i]
	}
	task, run := share(t, n.tcp, pool.Spec{Device: of("cpu").ID, Memory: 64 << 20})
	mine := int64(0)
	for mine == 0 { // the node counts every second
		output(t, run("add", "20"))
		tasks, err := client.Tasks()
		if err != nil {
			t.Fatal(err)
		}
		mine = tasks[slices.IndexFunc(tasks, func(x pool.Task) bool { return x.ID == task.ID })].Energy
	}
	if d := of("cpu"); d.EnergySource != pool.EnergyModel || d.Energy < mine || d.Power < 50_000 || d.Power > 150_000 {
		t.Errorf("a device of a model: %d mJ, of which a task %d, %d mW by %q", d.Energy, mine, d.Power, d.EnergySource)
	}
	for of("gpu").Energy == 0 { // until its card was asked again
		output(t, run("add", "20"))
	}
	if d := of("gpu"); d.EnergySource != pool.EnergyCounter || d.Energy%500 != 0 || d.Power != 90_000 {
		t.Errorf("a card with a counter: %d mJ, %d mW by %q", d.Energy, d.Power, d.EnergySource)
	}
}

// What a card draws is limited within what it allows, where its maker's library
// and its driver let the node; a group may not.
func TestLimitPower(t *testing.T) {
	libraries := cardstest.Build(t, "nvml", "cndev")
	n := startAt(t, pool.NodeConfig{Libraries: libraries, Groups: []pool.Group{}}, "unix:"+filepath.Join(t.TempDir(), "s"))
	n.log.await(t, "index=1 model=\"FAKE H200\"")
	n.log.await(t, "FAKE MLU370")
	client, err := pool.Dial(t.Context(), n.unix, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.LimitPower("nvml-0", 200); err != nil {
		t.Error(err)
	}
	n.log.await(t, "milliwatts=200000")
	if err := client.LimitPower("nvml-0", 0); err != nil {
		t.Error(err)
	}
	n.log.await(t, "milliwatts=350000")
	for _, c := range []struct {
		device string
		watts  int64
		kind   fault.Kind
		says   string
	}{
		{"nvml-0", 99, fault.Invalid, "at least 100 and at most 400"}, {"nvml-0", 401, fault.Invalid, "at least 100 and at most 400"}, {"nvml-1", 200, fault.Denied, "Insufficient Permissions"},
		{"cndev-0", 100, fault.Invalid, "nothing sets"}, {"nvml-7", 100, fault.NotFound, "nvml-7"},
	} {
		if err := client.LimitPower(c.device, c.watts); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s to %d W: %v", c.device, c.watts, err)
		}
	}
	of := start(t, pool.NodeConfig{Libraries: libraries})
	if err := dial(t, of.tcp).LimitPower("nvml-0", 200); fault.KindOf(err) != fault.Denied {
		t.Errorf("a group: %v", err)
	}
}

// Equal cards are told apart by where they are on the bus: the one that goes is gone,
// whatever order those are shown in that stay.
func TestEqualCards(t *testing.T) {
	show := shows(t)
	show("efg")
	n := start(t, pool.NodeConfig{})
	ids := map[string]string{} // by bus
	for _, shown := range []string{"efg", "fg", "gef", "h"} {
		show(shown) // which the node notices by itself
		eventually(t, func() bool {
			devices, err := dial(t, n.unix).Devices()
			if err != nil {
				t.Fatal(err)
			}
			now := map[string]string{}
			for _, d := range devices {
				if d.Bus != "" && !d.Gone {
					now[busOf(d)] = d.ID
				}
			}
			if len(now) != len(shown) || strings.Trim(strings.Join(slices.Collect(maps.Keys(now)), ""), shown) != "" {
				return false
			}
			for bus, id := range now {
				if was, ok := ids[bus]; ok && was != id {
					t.Errorf("shown as %s, the card at %s is %s, and was %s", shown, bus, id, was)
				}
			}
			ids = now
			return true
		})
	}
}

// shows has the fake OpenCL there, and is what shows its cards, by the letters of their buses.
func shows(t *testing.T) func(letters string) {
	t.Helper()
	libraries := cardstest.Build(t, "opencl")
	vendor(t, libraries)
	buses := filepath.Join(libraries, "buses")
	t.Setenv("FAKECL_BUSES", buses)
	return func(letters string) {
		t.Helper()
		if err := os.WriteFile(buses, []byte(letters), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A card that comes when a node has looked and does not run yet is not missed.
func TestCardComesEarly(t *testing.T) {
	show := shows(t)
	show("e")
	start(t, pool.NodeConfig{}) // or it says why not
	log := &lines{}
	n, err := pool.NewNode(pool.NodeConfig{Dir: t.TempDir()}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	found := func() int { return strings.Count(log.String(), "device found") }
	before := found()
	show("ef")
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = n.Run(ctx) })
	defer run.Wait()
	defer cancel()
	eventually(t, func() bool { return found() == before+1 })
}

// busOf is the letter that a card of fakecl has for its bus.
func busOf(d pool.Device) string {
	var b byte
	_, _ = fmt.Sscanf(d.Bus, "0000:%x:00.0", &b) // what it is not is no letter of the test's
	return string(rune(b))
}

// A device has its name for good: not another has it while it is away, be that with its node
// stopped or not; another card in its place does.
func TestNames(t *testing.T) {
	show := shows(t)
	dir := t.TempDir()
	var n node
	names := func() string { // buses, and which of their names they have
		t.Helper()
		devices, err := dial(t, n.unix).Devices()
		if err != nil {
			t.Fatal(err)
		}
		var now []string
		for _, d := range devices {
			if d.Bus != "" && d.NotLent == "" && !d.Gone {
				now = append(now, busOf(d)+strings.TrimPrefix(d.ID, "opencl-"))
			}
		}
		slices.Sort(now)
		return strings.Join(now, " ")
	}
	for _, x := range []struct {
		what, start, names, then, become string
	}{
		{"at first", "efg\n123", "e0 f1 g2", "fg\n23", "f1 g2"},
		{"the first is away, and one comes", "gf\n32", "f1 g2", "hgf\n432", "f1 g2 h4"},
		{"all are moved", "abcd\n2341", "a1 b2 c4 d0", "abcd\n2341", "a1 b2 c4 d0"},
		{"another in a place", "abcd\n2945", "a1 b2 c4 d0", "abc\n234", "a1 b2 c4"},
		{"who says nothing more", "pqrs", "p0 q1 r2 s4", "pr", "p0 r2"},
	} {
		show(x.start)
		n = start(t, pool.NodeConfig{Dir: dir})
		if got := names(); got != x.names {
			t.Errorf("%s: %s, want %s", x.what, got, x.names)
		}
		show(x.then)
		eventually(t, func() bool { return len(names()) == len(x.become) })
		if got := names(); got != x.become {
			t.Errorf("%s, then: %s, want %s", x.what, got, x.become)
		}
		n.stop()
	}
	// What tells no place is known by its maker, also with another version of the driver.
	file := filepath.Join(dir, "devices.json")
	b, err := os.ReadFile(file)
	var all []map[string]string
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d["bus"] == "" {
			d["id"], d["kind"], d["model"] = "opencl-9", "of before", "of before"
		}
	}
	if b, err = json.Marshal(all); err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n = start(t, pool.NodeConfig{Dir: dir})
	devices, err := dial(t, n.unix).Devices()
	if err != nil || !slices.ContainsFunc(devices, func(d pool.Device) bool { return d.ID == "opencl-9" && d.Type == "cpu" }) {
		t.Errorf("with another driver: %+v, %v", devices, err)
	}
	n.stop()
	if err := os.WriteFile(file, []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	n = start(t, pool.NodeConfig{Dir: dir})
	n.log.await(t, "devices are numbered anew")
	if got := names(); got != "p0 r1" {
		t.Errorf("numbered anew: %s", got)
	}
	n.stop()
	// What cannot be written, nor read, keeps no node from lending.
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	n = start(t, pool.NodeConfig{Dir: dir})
	n.log.await(t, "devices may have other names")
	if got := names(); got != "p0 r1" {
		t.Errorf("where nothing is kept: %s", got)
	}
}
