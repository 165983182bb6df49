package queue_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// levels are tenants of which each has so many below it; the lowest are named
// tenant-0 and so on.
func levels(fan ...int) []queue.Tenant {
	var out []queue.Tenant
	at, leaf := []string{""}, 0
	for i, n := range fan {
		var next []string
		for _, parent := range at {
			for k := range n {
				name := fmt.Sprintf("%s/%d", parent, k)
				if i == len(fan)-1 {
					name = fmt.Sprintf("tenant-%d", leaf)
					leaf++
				}
				out = append(out, queue.Tenant{Name: name, Parent: parent, Weight: int64(1 + k%3)})
				next = append(next, name)
			}
		}
		at = next
	}
	return out
}

// BenchmarkRound: works of many tenants and four shapes start one after the
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
		{"tenants=100/waiting=100000", 100, 100_000, queue.Config{}},
		{"tenants=100/levels=3/waiting=100000", 100, 100_000, queue.Config{Tenants: levels(4, 5, 5)}},
		{"tenants=100/levels=3/waiting=100000/half-life", 100, 100_000, queue.Config{Tenants: levels(4, 5, 5), HalfLife: 24 * hour}},
		{"tenants=1000/levels=2/waiting=100000", 1000, 100_000, queue.Config{Tenants: levels(2, 500)}},
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

// BenchmarkCycle: a full fleet of 80,000 cards with 160,000 works running and a
// million waiting, of 24 shapes, 100 tenants and 3 priorities; in each cycle
// 1,000 end, 1,000 come, and what has room starts.
func BenchmarkCycle(b *testing.B) {
	const cards = 80_000
	r := newRig(b, queue.Config{HalfLife: 24 * hour, Ageing: queue.Ageing{Step: hour, Max: 2}}, queue.Amounts{"gpu": 1000 * cards, "cpu": 16_000 * cards})
	d := rand.New(rand.NewPCG(1, 2))
	free := queue.Amounts{"gpu": 1000 * cards, "cpu": 16_000 * cards}
	asks := make([]queue.Amounts, 24)
	for i := range asks {
		asks[i] = queue.Amounts{"gpu": int64(250 * (1 + i%4)), "cpu": int64(1000 * (1 + i/4))}
	}
	n, now := 0, int64(0)
	put := func() {
		w := job(fmt.Sprintf("job-%09d", n), fmt.Sprint("tenant-", d.IntN(100)), now, 0)
		w.Amounts, w.Priority, w.Run = asks[d.IntN(len(asks))], d.Int64N(3), (1+d.Int64N(60))*minute
		r.put(w)
		n++
	}
	var running []string
	held := map[string]queue.Amounts{}
	round := func() {
		round := r.Queue.Round(now)
		for o, ok := round.Next(); ok; o, ok = round.Next() {
			gpu, cpu := o.Amounts["gpu"], o.Amounts["cpu"]
			if gpu > free["gpu"] || cpu > free["cpu"] || round.Constrained() && round.Allows("p", 1) < 1 {
				round.Refuse("full", nil)
				continue
			}
			free["gpu"] -= gpu
			free["cpu"] -= cpu
			running, held[o.ID] = append(running, o.ID), o.Amounts
			if err := round.Start([]queue.Hold{{Place: "p", Members: 1}}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 1_000_000 {
		put()
	}
	round()
	for r.Len() < 1_000_000 {
		put()
	}
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		now += second
		start := time.Now()
		for range 1000 {
			k := d.IntN(len(running))
			id := running[k]
			running[k] = running[len(running)-1]
			running = running[:len(running)-1]
			free["gpu"] += held[id]["gpu"]
			free["cpu"] += held[id]["cpu"]
			delete(held, id)
			r.Ended(id, now)
			put()
		}
		round()
		took = append(took, time.Since(start))
	}
	b.StopTimer()
	slices.Sort(took)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(m.HeapSys)/(1<<20), "MiB")
}
