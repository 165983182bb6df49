package poolops_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/pools"
)

// What devices used is counted once, over starts of the node and of the platform,
// with what of it is of slices; it is in reports.
func TestEnergy(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		must(t, w.Count(t.Context())) // from here on
		x := w.ask(50, 100)
		says := func(boot string, device, task int64) {
			t.Helper()
			w.clock.add(15 * time.Second)
			r := pool.Report{Boot: boot, Figures: []pool.Figure{{Device: "d0", Source: pool.EnergyCounter, Power: 90_000, Energy: device}, {Device: "nvml-1", Model: "Other", NotLent: "OpenCL does not show it", Power: 1, Energy: 7}}}
			if task >= 0 {
				r.Tasks = []pool.Task{{Slice: x.ID, Device: "d0", Busy: time.Second, Energy: task}}
			}
			must(t, w.says("n1", r))
			must(t, w.restarted().Count(t.Context()))
			must(t, w.Count(t.Context())) // again counts nothing more
		}
		says("b", 1000, 0)
		says("b", 3000, 1200)
		w.clock.add(15 * time.Second)
		must(t, w.says("n1", pool.Report{Boot: "b", Figures: []pool.Figure{{Device: "d0", Source: pool.EnergyCounter, Energy: 3500}}, Ended: []pool.EndedTask{{Slice: x.ID, Reason: "its program ended", Busy: 2 * time.Second, Energy: 1500}}}))
		must(t, w.Count(t.Context()))
		says("b2", 100, -1) // the node was started again: it counts from 0
		st, err := w.Statistics(w.admin, time.Time{}, time.Time{})
		must(t, err)
		if len(st.Devices) != 1 || st.Devices[0].Name != "n1/d0" || st.Devices[0].Energy != 3600 || st.Devices[0].SliceEnergy != 1500 {
			t.Errorf("devices: %+v", st.Devices)
		}
		if len(st.Users) != 1 || st.Users[0].SliceEnergy != 1500 || st.Groups[0].SliceEnergy != 1500 {
			t.Errorf("users %+v, groups %+v", st.Users, st.Groups)
		}
		if got, _, err := w.pools.Await(w.ann, x.ID, 0); err != nil || got.Energy != 1500 {
			t.Errorf("the slice: %+v, %v", got, err)
		}
		for language, want := range map[string]string{"en": "Energy Wh,Of slices Wh", "zh": "能耗 Wh,切片能耗 Wh"} {
			file, err := w.Report(w.admin, poolops.Resources, poolops.ReportCSV, time.Time{}, time.Time{}, language)
			if must(t, err); !strings.Contains(string(file.Content), want) || !strings.Contains(string(file.Content), ",0.001,0.000\n") {
				t.Errorf("%s: %s", language, file.Content)
			}
		}
	})
}

// A card that both OpenCL and CUDA show is counted once among what there is, by the
// device that lends.
func TestOneCardCounted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		both := []pool.Device{{ID: "d0", Model: "Card", Memory: 1000 << 20, Bus: "0000:65:00.0"}, {ID: "e0", API: pool.CUDA, Model: "Card", Memory: 1000 << 20, Bus: "0000:65:00.0"}}
		tell := func() {
			t.Helper()
			w.beats["n1"]++
			_, err := w.pools.Report(w.admin, pools.Report{Node: "n1", Secret: secret, Version: "v1", Report: pool.Report{Boot: "b", Sequence: w.beats["n1"], Addresses: []string{"tcp:h:1"}, Devices: both}}, 0)
			must(t, err)
			must(t, w.Count(t.Context()))
		}
		tell()
		w.clock.add(15 * time.Second)
		tell()
		_, err := w.pools.Request(w.ann, pools.Request{Group: "team", API: pool.CUDA, Compute: 50, Memory: 100, Fixed: true})
		must(t, err)
		w.clock.add(15 * time.Second)
		tell()
		st, err := w.Statistics(w.admin, time.Time{}, time.Time{})
		must(t, err)
		got := map[string]int64{}
		for _, d := range st.Devices {
			got[d.Name] = d.ComputeThere
		}
		if len(got) != 2 || got["n1/d0"] < 1490 || got["n1/d0"] > 1510 || got["n1/e0"] < 1490 || got["n1/e0"] > 1510 {
			t.Errorf("in 15 s each: %v percent seconds", got)
		}
	})
}

// Rules find what is too warm and what draws too much, while the node is online.
func TestEnergyRules(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		says := func(celsius, milliwatts int64, stopping bool) {
			t.Helper()
			must(t, w.says("n1", pool.Report{Boot: "b", Stopping: stopping, Figures: []pool.Figure{{Device: "d0", Driver: "nvml", Temperature: &celsius, Power: milliwatts, Source: pool.EnergyPower}}}))
		}
		expect := func(what string, want ...string) {
			t.Helper()
			list, _, err := w.Troubles(w.admin)
			must(t, err)
			var got []string
			for _, x := range list {
				got = append(got, x.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
		says(89, 299_999, false)
		expect("below")
		says(90, 300_000, false)
		expect("warm; power is no alarm at first", "pool/10/n1/d0")
		_, err := w.SetRule(w.admin, poolops.Rule{Kind: poolops.PowerHigh, Enabled: true, Threshold: 300, Severity: 1})
		must(t, err)
		expect("both", "pool/10/n1/d0", "pool/11/n1/d0")
		says(95, 400_000, true)
		expect("of a node that is away")
		if _, err := w.SetRule(w.admin, poolops.Rule{Kind: poolops.DeviceHot, Enabled: true, Threshold: 500, Severity: 1}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("500 °C: %v", err)
		}
	})
}

// A report that cannot be is refused with its fields.
func TestFiguresRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		err := w.says("n1", pool.Report{Boot: "b", Figures: []pool.Figure{{Device: "", Power: -1, Energy: -1, Source: strings.Repeat("x", 300)}}, Tasks: []pool.Task{{Slice: "s", Energy: -1}}})
		for _, path := range []string{"figures[0].device_id", "figures[0].power_milliwatts", "figures[0].energy_millijoules", "figures[0].energy_source", "tasks[0].energy_millijoules"} {
			if !slices.ContainsFunc(fault.FieldsOf(err), func(f fault.Field) bool { return f.Path == path }) {
				t.Errorf("%s is not named: %v", path, err)
			}
		}
		if err := w.says("n1", pool.Report{Boot: "b", Figures: make([]pool.Figure, 513)}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("513 figures: %v", err)
		}
	})
}

// What a task computed until its slice was released, or moved, is counted, once; and so is
// what the next program of a slice that is held does.
func TestBusyCounted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		w.join("n2")
		must(t, w.Count(w.admin))
		x, err := w.pools.Request(w.ann, pools.Request{Group: "team", Compute: 50, Memory: 100, Node: "n1", Fixed: true})
		must(t, err)
		counted := func(what string, want time.Duration) {
			t.Helper()
			w.clock.add(5 * time.Second)
			must(t, w.Count(w.admin))
			st, err := w.Statistics(w.admin, time.Time{}, time.Time{})
			must(t, err)
			if len(st.Users) != 1 || st.Users[0].Busy != want.Microseconds() || st.Users[0].SliceEnergy != want.Milliseconds() {
				t.Errorf("%s: counted %+v, want %s", what, st.Users, want)
			}
		}
		task := func(node string, busy time.Duration) {
			t.Helper()
			w.report(node, pool.Task{Slice: x.ID, Device: "d0", Busy: busy, Energy: busy.Milliseconds()})
		}
		var told []pool.EndedTask
		task("n1", 5*time.Second)
		counted("a program", 5*time.Second)
		w.report("n1")
		task("n1", 2*time.Second)
		counted("the next", 7*time.Second)
		// Three begin and two end between two counts; each end is told until its node hears that it was.
		ends := func(busy time.Duration, then ...pool.Task) {
			t.Helper()
			told = append(told, pool.EndedTask{Slice: x.ID, Busy: busy, Energy: busy.Milliseconds()})
			for range 2 {
				must(t, w.says("n1", pool.Report{Boot: "b", Ended: told, Tasks: then}))
			}
		}
		ends(3 * time.Second)
		task("n1", 9*time.Second)
		task("n1", 10*time.Second)
		told = nil
		ends(11*time.Second, pool.Task{Slice: x.ID, Busy: time.Second, Energy: 1000})
		counted("two that ended, and one that runs", 20*time.Second)
		// It moves, and is counted while it is at neither.
		task("n1", 4*time.Second)
		_, err = w.pools.Move(w.ann, x.ID, "n2", "d0", 0)
		must(t, err)
		counted("before it moves", 23*time.Second)
		w.beats["n1"]++
		moves := pool.Report{Boot: "b", Sequence: w.beats["n1"], Devices: []pool.Device{{ID: "d0", Model: "Card", Memory: 1000 << 20}}, Tasks: []pool.Task{{Slice: x.ID, Busy: 4 * time.Second, Energy: 4000}}}
		wanted, err := w.pools.Report(w.admin, pools.Report{Node: "n1", Secret: secret, Version: "v1", Report: moves}, 0)
		if must(t, err); len(wanted.Moves) != 1 {
			t.Fatalf("its node is told %+v", wanted)
		}
		must(t, w.says("n1", pool.Report{Boot: "b", Moved: []pool.Moved{{Slice: x.ID, ID: wanted.Moves[0].ID, Pause: time.Millisecond}}}))
		counted("on its way", 23*time.Second)
		task("n2", 6*time.Second)
		counted("where it came", 25*time.Second)
		task("n2", 8*time.Second)
		got, err := w.pools.Release(w.ann, x.ID)
		if must(t, err); got.Busy != 27*time.Second || got.Energy != 27000 {
			t.Errorf("it ended with %s, %d mJ", got.Busy, got.Energy)
		}
		counted("released", 27*time.Second)
		y, err := w.pools.Request(w.ann, pools.Request{Group: "team", Compute: 10, Memory: 100, Node: "n2"})
		must(t, err)
		z, err := w.pools.Request(w.ann, pools.Request{Group: "team", Compute: 10, Memory: 100, Node: "n2", Fixed: true})
		must(t, err)
		w.report("n2", pool.Task{Slice: y.ID, Busy: time.Second, Energy: 1000}, pool.Task{Slice: z.ID, Busy: time.Second, Energy: 1000})
		w.beats["n2"] = 0
		must(t, w.says("n2", pool.Report{Boot: "c", Tasks: []pool.Task{{Slice: z.ID, Busy: 3 * time.Second, Energy: 3000}}}))
		counted("their node began anew", 32*time.Second)
		for id, want := range map[string]time.Duration{y.ID: time.Second, z.ID: 4 * time.Second} {
			if got, _, err := w.pools.Await(w.ann, id, 0); err != nil || got.Busy != want {
				t.Errorf("slice %s had its device for %+v, %v, want %s", id, got, err, want)
			}
		}
	})
}
