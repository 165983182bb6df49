package pools_test

import (
	"testing"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// What was set for a device stays while its node does not show it, and holds again
// when it is back; of one for which nothing was set nothing stays.
func TestDeviceComesBack(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		n := w.node("n1", "A", "B", "C", "D", "E", "F")
		n.Figures = []pool.Figure{{Device: "d2", LeastLimit: new(int64(100_000)), MostLimit: new(int64(400_000))}}
		n.report()
		for device, x := range map[string]pools.DeviceChange{"d0": {ComputeLimit: 200}, "d1": {MemoryRatio: 150}, "d2": {PowerLimit: 250}, "d3": {Disabled: new(true)}, "d4": {Physical: new(true)}} {
			_, err := w.SetDevice(w.admin, "n1", device, x)
			must(t, err)
		}
		all := n.Devices
		n.Devices = nil
		for range 2 {
			n.report()
		}
		nodes, err := w.Nodes(t.Context())
		must(t, err)
		for _, d := range nodes[0].Devices {
			if d.Present || d.ID == "d5" {
				t.Errorf("while it is away: %+v", d)
			}
		}
		n.Devices = all
		n.report()
		nodes, err = w.Nodes(t.Context())
		must(t, err)
		d := nodes[0].Devices
		if len(d) != 6 || d[0].ComputeLimit != 200 || d[1].MemoryRatio != 150 || d[1].MemoryLimit != 1500 || d[2].PowerLimit != 250 || !d[3].Disabled || !d[4].Physical || d[5].ComputeLimit != 100 || !d[0].Present {
			t.Errorf("when they are back:")
			for _, d := range d {
				t.Errorf("%+v", d)
			}
		}
		// What is as at first is forgotten when it goes.
		for device, x := range map[string]pools.DeviceChange{"d0": {ComputeLimit: 100}, "d1": {MemoryRatio: 100}, "d2": {PowerLimit: -1}, "d3": {Disabled: new(false)}, "d4": {Physical: new(false)}} {
			_, err := w.SetDevice(w.admin, "n1", device, x)
			must(t, err)
		}
		n.Devices = nil
		n.report()
		if w.lent() != "" {
			t.Errorf("left are %s", w.lent())
		}
	})
}

// What has a place at a device that is gone is placed anew, unless a program uses it:
// what is held so is when that has ended.
func TestHeldOfDeviceGone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A", "A")
		idle := w.ask(pools.Request{Compute: 10, Node: "n1", Device: "d1", Fixed: true})
		used := w.ask(pools.Request{Compute: 20, Affinity: "x", Fixed: true, Policy: pools.Policy{Devices: pools.Compact}})
		asked := w.ask(pools.Request{Compute: 30, Affinity: "x"})
		if at(used) != "n1/d1" || at(asked) != "n1/d1" {
			t.Fatalf("placed at %s and %s", at(used), at(asked))
		}
		n.Devices = n.Devices[:1]
		n.runs(used.ID)
		idle, used, asked = w.slice(idle.ID), w.slice(used.ID), w.slice(asked.ID)
		if idle.State != pools.Waiting || at(used) != "n1/d1" || used.State != pools.Running || asked.State != pools.Waiting || w.lent() != "n1/d0=0 n1/d1=20" {
			t.Errorf("when it goes: %v, %v at %s, %v, lent %s", idle.State, used.State, at(used), asked.State, w.lent())
		}
		n.runs()
		used, asked = w.slice(used.ID), w.slice(asked.ID)
		if at(used) != "n1/d0" || used.State != pools.Assigned || at(asked) != "n1/d0" || w.lent() != "n1/d0=50 n1/d1=0" {
			t.Errorf("when its program ended: %v at %s, %v at %s, lent %s", used.State, at(used), asked.State, at(asked), w.lent())
		}
		n.Devices = append(n.Devices, pool.Device{ID: "d1", Model: "A", Memory: 1000 << 20})
		n.report()
		if got := w.slice(idle.ID); at(got) != "n1/d1" {
			t.Errorf("when it is back: %v at %s: %s", got.State, at(got), got.Reason)
		}
	})
}
