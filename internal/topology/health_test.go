package topology_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/topology"
)

// figures writes what is measured of a vertex.
func (w *world) figures(t testing.TB, ctx context.Context, id string, at time.Time) string {
	t.Helper()
	v, err := w.Vertex(ctx, id, at)
	must(t, err)
	out := ""
	for _, f := range v.Figures {
		out += fmt.Sprintf("%s %.3g %s\n", f.Binding.ID, f.Value, healths[f.Health])
	}
	return out
}

// What is measured is on the vertices its labels name, makes them busy or
// warning, and reaches up to the whole; and so it was at a past time.
func TestMeasured(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c", "north", machines(2)...)
		w.join(t, "d", "north", machines(1)...)
		w.sync(t)
		before := w.clock.now()
		wantText(t, w.tree(t, ctx, "", time.Time{}, 2, 0), `
network healthy
  region:north healthy
    center:c healthy +2
    center:d healthy +1
path:c:platform: center:c = network -
path:d:platform: center:d = network -`)
		w.clock.advance(40 * time.Second) // values at hand are too old
		w.heard(t, "c", "d")
		w.sync(t)
		w.measure(t, "yunhe_node_cpu_busy_ratio{ai_center_id=c,node=node-0000}", 0.99)
		w.measure(t, "yunhe_node_cpu_busy_ratio{ai_center_id=c,node=node-0001}", 0.5)
		w.measure(t, "yunhe_node_memory_busy_bytes{ai_center_id=c,node=node-0001}", 0.25*(1<<39))
		w.measure(t, "yunhe_node_cpu_busy_ratio{ai_center_id=c,node=node-9999}", 0.99)
		for i := range 8 {
			w.measure(t, fmt.Sprintf("yunhe_accelerator_busy_ratio{ai_center_id=d,node=node-0000,index=%d}", i), map[bool]float64{true: 0.9, false: 0.1}[i < 4])
		}
		w.measure(t, "yunhe_accelerator_memory_busy_bytes{ai_center_id=d,node=node-0000,index=5}", 40<<30)
		w.measure(t, "yunhe_accelerator_busy_ratio{ai_center_id=d,node=node-0000,index=8}", 1)
		w.measure(t, "yunhe_center_cpu_busy_permille{center=d}", 300)
		w.measure(t, "yunhe_path_latency_seconds{ai_center_id=c,peer=platform}", 0.02)
		w.measure(t, "yunhe_path_loss_ratio{ai_center_id=c,peer=platform}", 0.06)
		w.measure(t, "yunhe_path_latency_seconds{ai_center_id=c,peer=d}", 0.2)
		w.measure(t, "yunhe_path_latency_seconds{ai_center_id=d,peer=c}", 0.4)
		w.sync(t) // finds the path between the two
		now := w.clock.now()
		wantText(t, w.tree(t, ctx, "", time.Time{}, 3, 0), `
network warning
  region:north warning
    center:c warning
      node:c:node-0000 warning +0
      node:c:node-0001 healthy +0
    center:d busy
      node:d:node-0000 busy +0
path:c:d: center:c = center:d warning
path:c:platform: center:c = network warning
path:d:c: center:d = center:c warning
path:d:platform: center:d = network -`)
		wantText(t, w.figures(t, ctx, "node:c:node-0001", time.Time{}), "node.cpu 0.5 healthy\nnode.memory 0.25 healthy")
		wantText(t, w.figures(t, ctx, "node:d:node-0000", time.Time{}), "card.busy 0.5 healthy\ncard.memory 0.5 -")
		wantText(t, w.figures(t, ctx, "card:d/node-0000/gpu/5", time.Time{}), "card.busy 0.1 healthy\ncard.memory 0.5 -")
		wantText(t, w.figures(t, ctx, "network", time.Time{}), "card.busy 0.5 healthy\ncard.memory 0.5 -\ncenter.cpu 0.3 healthy\nnode.cpu 0.745 healthy\nnode.memory 0.25 healthy")
		v, err := w.Vertex(ctx, "center:d", time.Time{})
		must(t, err)
		if v.Cards[topology.Busy] != 4 || v.Cards[topology.Healthy] != 4 || v.Nodes[topology.Busy] != 1 {
			t.Errorf("counts: %v, %v", v.Nodes, v.Cards)
		}
		t.Run("a view names itself", func(t *testing.T) {
			view, err := w.View(ctx, time.Time{}, "")
			must(t, err)
			again, err := w.View(ctx, time.Time{}, view.Revision)
			must(t, err)
			if !again.Unchanged || view.Unchanged {
				t.Errorf("unchanged: %v, then %v", view.Unchanged, again.Unchanged)
			}
		})
		t.Run("values of a binding", func(t *testing.T) {
			_, err := w.Bindings(ctx, 99)
			wantKind(t, err, fault.Invalid)
			_, _, err = w.Values(ctx, "none", time.Time{})
			wantKind(t, err, fault.NotFound)
			_, l, err := w.Values(ctx, "link.latency", time.Time{})
			must(t, err)
			if got := fmt.Sprintf("%.2f", topology.LinkValues(l)); got != "[0.30 0.02 0.30 NaN]" {
				t.Errorf("latencies %s", got)
			}
		})
		w.clock.advance(10 * time.Minute)
		w.heard(t, "c", "d")
		w.sync(t)
		wantText(t, w.tree(t, ctx, "region:north", time.Time{}, 1, 0), "region:north healthy\n  center:c healthy +2\n  center:d healthy +1\npath:c:d: center:c = center:d -\npath:d:c: center:d = center:c -")
		wantText(t, w.tree(t, ctx, "region:north", now, 1, 0), "region:north warning\n  center:c warning +2\n  center:d busy +1\npath:c:d: center:c = center:d warning\npath:d:c: center:d = center:c warning")
		wantText(t, w.figures(t, ctx, "node:c:node-0000", now), "node.cpu 0.99 warning")
		wantText(t, w.figures(t, ctx, "node:c:node-0000", before), "")
	})
}

// Bindings are data: replaced, added, deleted, and as at first again.
func TestBindings(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c", "north", machines(1)...)
		w.sync(t)
		first, err := w.Bindings(ctx, topology.LevelNode)
		must(t, err)
		if len(first) != 2 || first[0].ID != "node.cpu" || !first[0].BuiltIn || first[0].Node != "node" {
			t.Fatalf("bindings of nodes: %+v", first)
		}
		limit := 0.4
		b := first[0]
		b.Warning, b.Busy = &limit, nil
		got, err := w.PutBinding(ctx, b)
		must(t, err)
		if got.Version != 1 || got.BuiltIn {
			t.Errorf("replaced: %+v", got)
		}
		again, err := w.PutBinding(ctx, b)
		must(t, err)
		if again.Version != 1 || !again.UpdatedAt.Equal(got.UpdatedAt) {
			t.Errorf("replaced again: %+v", again)
		}
		w.measure(t, "yunhe_node_cpu_busy_ratio{ai_center_id=c,node=node-0000}", 0.5)
		wantText(t, w.figures(t, ctx, "node:c:node-0000", time.Time{}), "node.cpu 0.5 warning")
		b.Version, b.Title = 9, "CPU"
		_, err = w.PutBinding(ctx, b)
		wantKind(t, err, fault.Conflict)

		low := 3.0
		own := topology.Binding{ID: "disk", Title: "Disk free", Level: topology.LevelNode, Expression: `max by (site, host) (disk_free)`, Center: "site", Node: "host", Scale: 2, Warning: &low, LowIsBad: true, High: 100}
		_, err = w.PutBinding(ctx, own)
		must(t, err)
		w.measure(t, "disk_free{site=c,host=node-0000,disk=a}", 1)
		w.measure(t, "disk_free{site=c,host=node-0000,disk=b,tenant=acme}", 9) // a tenant's own is not everyone's
		wantText(t, w.figures(t, ctx, "node:c:node-0000", time.Time{}), "disk 2 warning\nnode.cpu 0.5 warning")

		must(t, w.DeleteBinding(ctx, "node.cpu"))
		must(t, w.DeleteBinding(ctx, "node.cpu"))
		must(t, w.DeleteBinding(ctx, "disk"))
		wantKind(t, w.DeleteBinding(ctx, "disk"), fault.NotFound)
		wantText(t, w.figures(t, ctx, "node:c:node-0000", time.Time{}), "node.cpu 0.5 healthy")

		wantKind(t, w.DeleteBinding(member(ctx, "acme"), "node.cpu"), fault.Denied)
		_, err = w.PutBinding(member(ctx, "acme"), own)
		wantKind(t, err, fault.Denied)
		nan := math.NaN()
		for field, bad := range map[string]topology.Binding{
			"binding.binding_id":   {Title: "x", Level: topology.LevelNode, Expression: "x"},
			"binding.title":        {ID: "x", Level: topology.LevelNode, Expression: "x"},
			"binding.level":        {ID: "x", Title: "x", Level: topology.LevelRegion, Expression: "x"},
			"binding.expression":   {ID: "x", Title: "x", Level: topology.LevelNode, Expression: "sum("},
			"binding.center_label": {ID: "x", Title: "x", Level: topology.LevelNode, Expression: "x", Center: "a-b"},
			"binding.relative_to":  {ID: "x", Title: "x", Level: topology.LevelNode, Expression: "x", Relative: "power"},
			"binding.scale":        {ID: "x", Title: "x", Level: topology.LevelNode, Expression: "x", Scale: nan},
			"binding.aggregate":    {ID: "x", Title: "x", Level: topology.LevelNode, Expression: "x", Aggregate: 5},
		} {
			_, err := w.PutBinding(ctx, bad)
			wantKind(t, err, fault.Invalid)
			if f := fault.FieldsOf(err); len(f) != 1 || f[0].Path != field {
				t.Errorf("got %v, want a violation of %s", err, field)
			}
		}
	})
}

// What its cards and names are called does not lead astray.
func FuzzCardID(f *testing.F) {
	f.Add("c", "n/1", "gpu", int64(0))
	f.Add("gz", "a/gpu/0", "nvidia.com/gpu", int64(12))
	f.Fuzz(func(t *testing.T, center, node, resource string, index int64) {
		var c core.Check
		if c.ID("", center); c.Err() != nil || node == "" || resource == "" || index < 0 || index > math.MaxInt32 {
			return
		}
		id := topology.CardID(center, node, resource, index)
		gotCenter, rest, gotIndex, ok := topology.SplitCard(id)
		if !ok || gotCenter != center || rest != node+"/"+resource || gotIndex != index {
			t.Errorf("%q: %q, %q, %d, %v", id, gotCenter, rest, gotIndex, ok)
		}
	})
}

// FuzzVertex asks for anything: the answer is one, or a refusal.
func FuzzVertex(f *testing.F) {
	for _, id := range []string{"network", "region:north", "center:c", "node:c:node-0000", "card:c/node-0000/gpu/0", "card:c/node-0000/gpu/99", "x", "card:c//gpu/0", "node:c:", "", "card:c/a/b/c/d/1"} {
		f.Add(id)
	}
	w := newWorld(f, f.TempDir()+"/yunhe.db")
	w.join(f, "c", "north", machines(1)...)
	w.sync(f)
	ctx := operator(f.Context())
	f.Fuzz(func(t *testing.T, id string) {
		v, err := w.Vertex(ctx, id, time.Time{})
		switch kind := fault.KindOf(err); {
		case err == nil && v.ID == id:
		case err != nil && (kind == fault.Invalid || kind == fault.NotFound):
		default:
			t.Errorf("%q: %+v, %v", id, v, err)
		}
		if _, err := w.Topology(ctx, id, time.Time{}, 1, 1); err != nil && fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.NotFound {
			t.Errorf("%q: %v", id, err)
		}
	})
}

// A change in the registry is drawn as soon as it is told, and the loops stop.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c", "north", machine("a", ready))
		run, cancel := context.WithCancel(t.Context())
		done := make(chan error, 3)
		go func() { done <- w.bus.Relay(run, w.d) }()
		go func() { done <- w.Run(run) }()
		go func() { done <- w.Follow(run) }()
		seen := make(chan struct{}, 100)
		stop, err := w.bus.Listen(topology.ChangedSubject, func(string, []byte) { seen <- struct{}{} })
		must(t, err)
		defer stop()
		until := func(what string, ok func() bool) {
			t.Helper()
			limit := time.After(time.Minute)
			for !ok() {
				select {
				case <-seen:
				case <-limit:
					t.Fatalf("never: %s", what)
				}
			}
		}
		is := func(id string, h topology.Health) func() bool {
			return func() bool {
				v, err := w.Vertex(ctx, id, time.Time{})
				return err == nil && v.Health == h
			}
		}
		until("the center is drawn", is("node:c:a", topology.Healthy))
		w.nodes(t, "c", nil, machine("a", notReady), machine("b", ready))
		until("the node is down", is("node:c:a", topology.Down))
		until("the node is there", is("node:c:b", topology.Healthy))
		w.nodes(t, "c", []string{"a"})
		until("the node is gone", func() bool {
			_, err := w.Vertex(ctx, "node:c:a", time.Time{})
			return fault.KindOf(err) == fault.NotFound
		})
		must(t, w.reg.DeleteCenter(ctx, "c"))
		until("the center is gone with its nodes", func() bool {
			_, err := w.Vertex(ctx, "node:c:b", time.Time{})
			_, err2 := w.Vertex(ctx, "center:c", time.Time{})
			return fault.KindOf(err) == fault.NotFound && fault.KindOf(err2) == fault.NotFound
		})
		cancel()
		for range 3 {
			must(t, <-done)
		}
		w.whole(t)
	})
}

// A center that is drained, or down, says why.
func TestCenterStates(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c", "north", machines(1)...)
		k, err := w.reg.GetCenter(ctx, "c")
		must(t, err)
		k.Drained = true
		k.Position = registry.NewPosition(106.5, 26.6)
		_, err = w.reg.UpdateCenter(ctx, k)
		must(t, err)
		w.sync(t)
		v, err := w.Vertex(ctx, "center:c", time.Time{})
		must(t, err)
		if v.State != topology.Isolated || v.Reason == "" || v.Position == nil || v.Health != topology.SetAside {
			t.Errorf("drained: %+v", v.Item)
		}
	})
}
