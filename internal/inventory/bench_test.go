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
	engines(b, func(b *testing.B, url string) {
		ctx := operator(b.Context())
		w := newWorld(b, url)
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

// engines runs a benchmark on both.
func engines(b *testing.B, f func(b *testing.B, url string)) {
	b.Run("sqlite", func(b *testing.B) { f(b, filepath.Join(b.TempDir(), "yunhe.db")) })
	b.Run("postgres", func(b *testing.B) { f(b, enginetest.Postgres(b)) })
}

// BenchmarkList measures lists of 100,000 resources: all pages of what few
// have, and the first page of what all have.
func BenchmarkList(b *testing.B) {
	engines(b, func(b *testing.B, url string) {
		ctx := operator(b.Context())
		w := newWorld(b, url)
		w.create(b, ctx, platform("p1", ""), cloud("k1", "p1"), node("n1", "k1"))
		for from := 0; from < 100_000; from += inventory.MaxBatch {
			out := make([]inventory.Resource, inventory.MaxBatch)
			for i := range out {
				out[i] = compute(fmt.Sprintf("g%07d", from+i), "n1")
				out[i].Labels = map[string]string{"rack": fmt.Sprint("r", (from+i)/50), "mark": "a"}
			}
			_, applied, err := w.Apply(ctx, out, false)
			if err != nil || !applied {
				b.Fatalf("applied %v, %v", applied, err)
			}
		}
		for _, x := range []struct {
			name  string
			f     inventory.Filter
			pages int
			want  int
		}{
			{"attribute-of-one", inventory.Filter{Attributes: []string{"serial_number=SN-g0070000"}}, 1000, 1},
			{"attributes-of-one", inventory.Filter{Attributes: []string{"chip_type=GPU", "serial_number=SN-g0070000"}}, 1000, 1},
			{"attribute-of-none", inventory.Filter{Attributes: []string{"chip_model=H900"}}, 1000, 0},
			{"attribute-of-all", inventory.Filter{Attributes: []string{"chip_model=H800"}}, 1, 100},
			{"label-of-50", inventory.Filter{Labels: []string{"rack=r1900"}}, 1000, 50},
			{"label-of-all", inventory.Filter{Labels: []string{"mark=a"}}, 1, 100},
		} {
			b.Run(x.name, func(b *testing.B) {
				for b.Loop() {
					found, token := 0, ""
					for range x.pages {
						rows, next, err := w.List(ctx, x.f, 100, token)
						if err != nil {
							b.Fatal(err)
						}
						found += len(rows)
						if token = next; token == "" {
							break
						}
					}
					if found != x.want {
						b.Fatalf("%d found, want %d", found, x.want)
					}
				}
			})
		}
	})
}
