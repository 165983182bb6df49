package inventory_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/inventory"
)

// BenchmarkApply measures batches of 500 compute resources: new ones, the same
// again, and with one of ten changed. ns/op is of one batch.
func BenchmarkApply(b *testing.B) {
	for _, e := range []struct {
		name string
		url  func(b *testing.B) string
	}{
		{"sqlite", func(b *testing.B) string { return filepath.Join(b.TempDir(), "yunhe.db") }},
		{"postgres", func(b *testing.B) string { return enginetest.Postgres(b) }},
	} {
		b.Run(e.name, func(b *testing.B) {
			ctx := operator(b.Context())
			w := newWorld(b, e.url(b))
			w.create(b, ctx, platform("p1", ""), cloud("k1", "p1"), node("n1", "k1"))
			const size = 500
			batch := func(from int, mark string) []inventory.Resource {
				out := make([]inventory.Resource, size)
				for i := range out {
					out[i] = compute(fmt.Sprintf("g%07d", from+i), "n1")
					out[i].Labels = map[string]string{"rack": "r1", "mark": mark}
				}
				return out
			}
			apply := func(ctx context.Context, rs []inventory.Resource) {
				if _, applied, err := w.Apply(ctx, rs, false); err != nil || !applied {
					b.Fatalf("applied %v, %v", applied, err)
				}
			}
			rate := func(b *testing.B) { b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "resources/s") }
			from := 0
			b.Run("new", func(b *testing.B) {
				for b.Loop() {
					apply(ctx, batch(from, "a"))
					from += size
				}
				rate(b)
			})
			b.Run("same", func(b *testing.B) {
				rs := batch(0, "a")
				for b.Loop() {
					apply(ctx, rs)
				}
				rate(b)
			})
			b.Run("changed-1-of-10", func(b *testing.B) {
				rs := batch(0, "a")
				for n := 0; b.Loop(); n++ {
					for i := 0; i < size; i += 10 {
						rs[i].Labels = map[string]string{"rack": "r1", "mark": fmt.Sprint(n)}
					}
					apply(ctx, rs)
				}
				rate(b)
			})
		})
	}
}
