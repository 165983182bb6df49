package topology_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/topology"
)

// big is a network of 10 centers with 1,000 nodes of 8 cards each.
func big(b testing.TB, url string) *world {
	w := newWorld(b, url)
	for i := range 10 {
		w.join(b, fmt.Sprintf("c%d", i), fmt.Sprintf("r%d", i%3), machines(1000)...)
	}
	return w
}

// load measures every node and card.
func (w *world) load(b testing.TB) {
	var batch []samples.Sample
	at := w.clock.now()
	add := func(name string, value float64, labels ...string) {
		batch = append(batch, samples.Sample{Name: name, Labels: samples.L(labels...), Value: value, At: at})
	}
	flush := func() {
		r, err := w.samples.Append(b.Context(), batch)
		must(b, err)
		if r.Stored != len(batch) {
			b.Fatalf("%+v", r)
		}
		batch = batch[:0]
	}
	for c := range 10 {
		center := fmt.Sprintf("c%d", c)
		for n := range 1000 {
			node := fmt.Sprintf("node-%04d", n)
			add("yunhe_node_cpu_busy_ratio", float64(n%100)/100, "ai_center_id", center, "node", node)
			add("yunhe_node_memory_busy_bytes", float64(n%100)/100*(1<<39), "ai_center_id", center, "node", node)
			for i := range 8 {
				add("yunhe_accelerator_busy_ratio", float64((n+i)%100)/100, "ai_center_id", center, "node", node, "index", fmt.Sprint(i))
			}
		}
		flush()
	}
}

var engines = []struct {
	name string
	url  func(b testing.TB) string
}{
	{"sqlite", func(b testing.TB) string { return filepath.Join(b.TempDir(), "yunhe.db") }},
	{"postgres", func(b testing.TB) string { return enginetest.Postgres(b) }},
}

// BenchmarkTopology measures a network of 10,000 nodes with 8 cards each.
func BenchmarkTopology(b *testing.B) {
	for _, e := range engines {
		b.Run(e.name, func(b *testing.B) {
			b.Run("first", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					w := big(b, e.url(b))
					b.StartTimer()
					if n := w.sync(b); n < 10_000 {
						b.Fatalf("%d changes", n)
					}
				}
			})
			w := big(b, e.url(b))
			ctx := operator(b.Context())
			w.sync(b)
			w.load(b)
			b.Run("sweep", func(b *testing.B) {
				for b.Loop() {
					if n := w.sync(b); n != 0 {
						b.Fatalf("%d changes", n)
					}
				}
			})
			i := 0
			b.Run("node", func(b *testing.B) { // one changes, and is drawn
				for b.Loop() {
					i++
					w.clock.advance(time.Millisecond)
					w.nodes(b, "c0", nil, machine("node-0500", adapterv1.NodeState(1+i%2)))
					topology.Tell(w.Service, "c0", "node-0500")
					if n, err := w.Sync(ctx, false); err != nil || n != 1 {
						b.Fatalf("%d changes, %v", n, err)
					}
				}
			})
			for _, x := range []struct {
				name   string
				before func()
			}{{"view", func() {}}, {"view-structure-changed", func() {
				i++
				w.nodes(b, "c0", nil, machine("node-0500", adapterv1.NodeState(1+i%2)))
				topology.Tell(w.Service, "c0", "node-0500")
				_, err := w.Sync(ctx, false)
				must(b, err)
			}}, {"view-values-too-old", func() { w.clock.advance(31 * time.Second); w.load(b) }}} {
				b.Run(x.name, func(b *testing.B) {
					size := 0
					for b.Loop() {
						b.StopTimer()
						x.before()
						b.StartTimer()
						data, err := topology.ViewBytes(ctx, w.Service)
						must(b, err)
						size = len(data)
					}
					b.ReportMetric(float64(size), "bytes")
				})
			}
			b.Run("view-unchanged", func(b *testing.B) {
				v, err := w.View(ctx, time.Time{}, "")
				must(b, err)
				for b.Loop() {
					if v, err := w.View(ctx, time.Time{}, v.Revision); err != nil || !v.Unchanged {
						b.Fatal(v.Unchanged, err)
					}
				}
			})
			b.Run("values-of-cards", func(b *testing.B) {
				size := 0
				for b.Loop() {
					m, err := topology.ValuesMessage(ctx, w.Service, "card.busy")
					must(b, err)
					size = proto.Size(m)
				}
				b.ReportMetric(float64(size), "bytes")
			})
			b.Run("vertex", func(b *testing.B) {
				for b.Loop() {
					_, err := w.Vertex(ctx, "node:c7:node-0123", time.Time{})
					must(b, err)
				}
			})
			// 20,000 changes lie between then and now.
			then := w.clock.now()
			for n := range 20 {
				w.clock.advance(time.Second)
				state := ready
				if n%2 == 0 {
					state = notReady
				}
				nodes := machines(1000)
				for _, m := range nodes {
					m.State = state
				}
				w.join(b, "c3", "r0", nodes...)
				w.sync(b)
			}
			b.Run("as-of", func(b *testing.B) {
				for b.Loop() {
					w.clock.advance(time.Microsecond)
					b.StopTimer()
					topology.Forget(w.Service)
					b.StartTimer()
					_, err := w.Topology(ctx, "", then, 2, 100)
					must(b, err)
				}
			})
			b.Run("changes", func(b *testing.B) {
				for b.Loop() {
					rows, _, _, err := w.Changes(ctx, topology.ChangeFilter{Newest: true}, 100, "")
					must(b, err)
					if len(rows) != 100 {
						b.Fatal(len(rows))
					}
				}
			})
			b.Run("density", func(b *testing.B) {
				for b.Loop() {
					_, err := w.Density(ctx, topology.Span{}, 500, "")
					must(b, err)
				}
			})
			b.Run("diff", func(b *testing.B) {
				for b.Loop() {
					_, err := w.Diff(ctx, topology.Span{From: then}, "", 0, "")
					must(b, err)
				}
			})
		})
	}
}

// TestViewIsSmall keeps what the console reads of 10,000 nodes within bounds.
func TestViewIsSmall(t *testing.T) {
	t.Parallel()
	w := big(t, filepath.Join(t.TempDir(), "yunhe.db"))
	w.sync(t)
	w.load(t)
	ctx := operator(t.Context())
	view, err := topology.ViewBytes(ctx, w.Service)
	must(t, err)
	if n := len(view); n > 2<<20 || n < 100_000 {
		t.Errorf("the view has %d bytes, want at most 2 MiB", n)
	}
	m, err := topology.ValuesMessage(ctx, w.Service, "card.busy")
	must(t, err)
	if n := proto.Size(m); n > 1<<20 || n < 320_000 {
		t.Errorf("the values have %d bytes, want at most 1 MiB", n)
	}
}
