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
