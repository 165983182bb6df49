package queue_test

import (
	"fmt"
	"runtime"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// BenchmarkRound: works of ten tenants and four shapes start one after the
// other, at one of many places, while as many end.
func BenchmarkRound(b *testing.B) {
	for _, c := range []struct {
		name    string
		tenants int
		waiting int
		cfg     queue.Config
	}{
		{"tenants=10/waiting=100000", 10, 100_000, queue.Config{}},
		{"tenants=100/waiting=1000000", 100, 1_000_000, queue.Config{}},
		{"tenants=100/waiting=1000000/half-life", 100, 1_000_000, queue.Config{HalfLife: 24 * hour}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, c.cfg, nil)
			places := make([]string, 1000)
			for i := range places {
				places[i] = fmt.Sprintf("node-%04d", i)
				if err := r.SetPlace(places[i], queue.Amounts{"gpu": 8_000, "cpu": 128_000, "mem": 1 << 40}); err != nil {
					b.Fatal(err)
				}
			}
			n := 0
			put := func() {
				w := job(fmt.Sprintf("job-%09d", n), fmt.Sprintf("tenant-%d", n*7919%c.tenants), int64(n), int64(1+n%4))
				w.Amounts["cpu"], w.Amounts["mem"] = 4, 32<<30/1000
				w.Run = hour
				r.put(w)
				n++
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for range c.waiting {
				put()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			var running []string
			round := r.Round(int64(n))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				o, ok := round.Next()
				if !ok {
					b.Fatal("nothing left")
				}
				id := o.ID
				if err := round.Start([]queue.Hold{{Place: places[i%len(places)], Members: 1}}); err != nil {
					b.Fatal(err)
				}
				if running = append(running, id); len(running) == 1000 {
					b.StopTimer()
					for _, id := range running {
						r.Ended(id, int64(n))
						put()
					}
					running = running[:0]
					round = r.Round(int64(n))
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(c.waiting), "B/job")
		})
	}
}
