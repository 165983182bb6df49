package topology_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/topology"
)

// Placement reads links between centers and regions, and how long centers were
// available.
func TestNetworkLinks(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c", "south")
		w.join(t, "d", "north")
		w.sync(t)
		for _, l := range []topology.DeclaredLink{
			{ID: "direct", From: "center:c", To: "center:d", Kind: topology.LeasedLine, Bandwidth: 10_000_000_000, Latency: 18_000},
			{ID: "wide", From: "region:south", To: "region:north", Kind: topology.Internet, Latency: 30_000},
			{ID: "uplink", From: "network", To: "center:d", Kind: topology.Internet, Bandwidth: 1_000_000_000},
			{ID: "mute", From: "center:d", To: "region:south", Kind: topology.Internet},
			{ID: "private", From: "center:d", To: "region:south", Kind: topology.Internet, Latency: 1, TenantID: "acme"},
		} {
			_, err := w.PutLink(ctx, l)
			must(t, err)
		}
		links, err := w.NetworkLinks(ctx)
		must(t, err)
		got := ""
		for _, l := range links {
			got += fmt.Sprintln(l.From, l.To, l.Facts.LatencyMicros, l.Facts.BandwidthKbps, l.Source)
		}
		want := "center:c center:d {18000 true} {10000000 true} of a link\ncenter:d * {0 false} {1000000 true} of a link\nregion:south region:north {30000 true} {0 false} of a link\n"
		if got != want {
			t.Errorf("links\n%swant\n%s", got, want)
		}
		// Half an hour is too short to say anything; then half of an hour each.
		start := w.clock.now()
		w.clock.advance(30 * time.Minute)
		if got, err := w.Availability(ctx, start.Add(-time.Hour)); err != nil || len(got) != 0 {
			t.Errorf("after half an hour: %v, %v", got, err)
		}
		w.sync(t) // they were not heard of
		w.clock.advance(30 * time.Minute)
		ppm, err := w.Availability(ctx, start.Add(-time.Hour))
		must(t, err)
		if len(ppm) != 2 || ppm["c"] != 500_000 || ppm["d"] != 500_000 {
			t.Errorf("availability %v, want half of an hour", ppm)
		}
	})
}
