//go:build linux

package pool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
)

func TestParseWatts(t *testing.T) {
	t.Parallel()
	if d, w, err := ParseWatts("opencl-0=35:120"); d != "opencl-0" || w != (Watts{35, 120}) || err != nil {
		t.Errorf("got %s %+v %v", d, w, err)
	}
	for _, s := range []string{"", "opencl-0", "=1:2", "a=1", "a=2:1", "a=-1:2", "a=1:100001", "a=x:2"} {
		if _, _, err := ParseWatts(s); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestDrawn(t *testing.T) {
	t.Parallel()
	w := Watts{Idle: 50, Full: 150}
	for _, c := range []struct {
		span, busy time.Duration
		want       int64
	}{{time.Second, 0, 50_000}, {time.Second, time.Second, 150_000}, {2 * time.Second, 500 * time.Millisecond, 150_000}, {time.Second, 5 * time.Second, 150_000}, {0, 0, 0}} {
		if got := w.drawn(c.span, c.busy); got != c.want {
			t.Errorf("%s busy of %s: got %d mJ, want %d", c.busy, c.span, got, c.want)
		}
	}
}

// Tasks never have more energy than their device used, whatever they did.
func TestByTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		span time.Duration
		busy []time.Duration
		want []int64
	}{
		{time.Second, []time.Duration{250 * time.Millisecond, 0}, []int64{250, 0}},
		{time.Second, []time.Duration{time.Second, time.Second}, []int64{500, 500}}, // beside each other
		{0, []time.Duration{0}, []int64{0}},
	} {
		if got := byTime(1000, c.span, c.busy); !slices.Equal(got, c.want) {
			t.Errorf("%v of %s: got %v, want %v", c.busy, c.span, got, c.want)
		}
	}
	if err := quick.Check(func(energy uint32, span uint32, busy []uint32) bool {
		var times []time.Duration
		for _, b := range busy {
			times = append(times, time.Duration(b))
		}
		sum := int64(0)
		for _, e := range byTime(int64(energy), time.Duration(span), times) {
			sum += e
		}
		return sum <= int64(energy)
	}, nil); err != nil {
		t.Error(err)
	}
}

// Of a card that two interfaces show, what it uses is counted once.
func TestCounts(t *testing.T) {
	t.Parallel()
	n := &Node{tasks: map[string]*task{}}
	for _, api := range []string{OpenCL, CUDA} {
		n.devices = append(n.devices, &device{Device: Device{ID: api, API: api, Bus: "0000:65:00.0"}})
	}
	n.devices = append(n.devices, &device{Device: Device{ID: "other", API: CUDA}})
	for _, x := range []struct {
		at   int // which of them has a task; -1: none
		want string
	}{{-1, "opencl other"}, {0, "opencl other"}, {1, "cuda other"}} {
		clear(n.tasks)
		if x.at >= 0 {
			n.tasks["t"] = &task{device: n.devices[x.at], memory: between.NewMemory(make([]byte, between.PageSize), 0)}
		}
		var got []string
		for _, d := range n.devices {
			if n.counts(d) {
				got = append(got, d.ID)
			}
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("with a task at %d: %v, want %s", x.at, got, x.want)
		}
	}
	clear(n.tasks)
	n.devices[0].Gone = true
	if !n.counts(n.devices[1]) {
		t.Error("what is left of a card is not counted")
	}
}

func TestOverflown(t *testing.T) {
	t.Parallel()
	if got, err := overflown(10, 25, 100); got != 15 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := overflown(90, 5, 100); got != 15 || err != nil {
		t.Errorf("over its end: got %d, %v", got, err)
	}
	if _, err := overflown(200, 5, 100); err == nil {
		t.Error("a counter beyond its end is taken")
	}
}

// counter writes the files by which the kernel tells what a processor used.
func counter(t *testing.T, dir, used, most string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"energy_uj": used, "max_energy_range_uj": most} {
		if v == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(v+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPowercap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, _, ok := powercap(dir); ok {
		t.Error("a kernel that tells nothing")
	}
	counter(t, filepath.Join(dir, "intel-rapl:0"), "1000", "5000")
	counter(t, filepath.Join(dir, "intel-rapl:1"), "2000", "5000")
	counter(t, filepath.Join(dir, "intel-rapl:0:0"), "700", "5000") // of what is within the first
	counter(t, filepath.Join(dir, "intel-rapl-mmio:0"), "1000", "5000")
	if used, most, ok := powercap(dir); used != 3000 || most != 10000 || !ok {
		t.Errorf("got %d of %d, %t", used, most, ok)
	}
	counter(t, filepath.Join(dir, "intel-rapl:2"), "not a number", "5000")
	if _, _, ok := powercap(dir); ok {
		t.Error("a counter that cannot be read")
	}
}

// TestEnergyAfterUpgrade: what a task used before its node was replaced is counted; it is not again
// when the task ends, be that before anything was measured.
func TestEnergyAfterUpgrade(t *testing.T) {
	t.Parallel()
	before, k := moving(t)
	k.account.used, k.Energy = time.Hour, 7_000
	fd, err := unix.Dup(int(k.page.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	after, _ := moving(t)
	after.tasks, after.devices = map[string]*task{}, before.devices
	h := &handover{Tasks: []handTask{{Task: k.show(), Token: k.token, Page: fd, Account: handAccount{Used: k.account.used}}}}
	if err := after.take(h); err != nil {
		t.Fatal(err)
	}
	same := after.tasks[k.ID]
	same.device.EnergySource, same.device.Power = EnergyModel, 100_000
	same.settle(time.Hour + 500*time.Millisecond)
	if same.Energy != 57_000 {
		t.Errorf("it has %d mJ, want 50,000 more than the 7,000 of before", same.Energy)
	}
}
