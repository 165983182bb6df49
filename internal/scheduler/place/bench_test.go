package place_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// fleet returns n centers with every fact known and room enough not to run
// out, drawn from a fixed seed.
func fleet(n int) *place.Snapshot {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	s := &place.Snapshot{}
	for i := range n {
		c := place.Candidate{
			ID: fmt.Sprintf("center-%05d", i), Name: "Center", Region: fmt.Sprintf("region-%d", i%31),
			Status: place.Available, SecurityGrade: r.Int64N(5), AnyImage: true,
			Position: &place.Position{Longitude: 80e6 + r.Int64N(40e6), Latitude: 20e6 + r.Int64N(25e6)},
			Total:    place.Amounts{"cpu": 1e9, "memory": 1 << 50, "gpu": 100_000},
			Free:     place.Amounts{"cpu": 1e9 - r.Int64N(5e8), "memory": 1 << 49, "gpu": 50_000 + r.Int64N(50_000)},
			Offers:   map[string]place.Offer{}, RunningTasks: r.Int64N(1000), WaitingTasks: r.Int64N(100),
			Speeds: []place.Speed{{Kind: "gpu", Precision: "FP16", Milli: 500 + r.Int64N(2000)}},
			Power: map[string]place.Power{
				"cpu": {Per: 1000, Static: 2000, Busy: 5000 + r.Int64N(5000)}, "memory": {Per: 1 << 30, Static: 100, Busy: 300},
				"gpu": {Static: 50_000, Busy: 200_000 + r.Int64N(400_000)},
			},
			Network: place.Network{LatencyMicros: place.Known(1000 + r.Int64N(50_000)), JitterMicros: place.Known(r.Int64N(3000)),
				LossPPM: place.Known(r.Int64N(500)), BandwidthKbps: place.Known(1e6 + r.Int64N(1e8))},
			Data: place.Amounts{fmt.Sprintf("data-%d", i%max(50, n/20)): 1 << 40}, // 20 copies of each
		}
		for k := range 20 {
			c.Offers[fmt.Sprintf("spec-%d", k)] = place.Offer{PriceFenPerHour: place.Known(100 + r.Int64N(5000))}
		}
		s.Candidates = append(s.Candidates, c)
	}
	return s
}

// backlog returns n jobs of one replica whose asks are drawn from `kinds`
// different ones.
func backlog(n, kinds int) []place.Work {
	r := rand.New(rand.NewPCG(2, uint64(n)))
	queue := make([]place.Work, n)
	for i := range queue {
		k := r.IntN(kinds)
		queue[i] = place.Work{
			ID: fmt.Sprintf("job-%06d", i), Tenant: fmt.Sprintf("tenant-%d", i%40), Priority: r.Int64N(4), Arrival: int64(i),
			Tasks: []place.Task{{
				ID: "main", Replicas: 1, Spec: fmt.Sprintf("spec-%d", k%20), Image: "image", Kind: "gpu", Precision: "FP16",
				Request:    place.Amounts{"cpu": 4000, "memory": 16 << 30, "gpu": 1 + int64(k%8)},
				RunSeconds: place.Known(600 + int64(k)),
				Data:       []place.DataNeed{{Dataset: fmt.Sprintf("data-%d", k%50), Bytes: 1 << 36}},
			}},
		}
	}
	return queue
}

// eight is clause 6.6.2 a) to h) with different weights.
func eight(tb testing.TB) *place.Set {
	tb.Helper()
	var w []place.Weight
	for i, p := range place.Policies()[:8] {
		w = append(w, place.Weight{Policy: p.ID, Weight: int64(i + 1)})
	}
	set, err := place.NewSet("eight", place.Weighted, w)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// measure runs plan until the benchmark has enough of it, and reports decisions
// per second: of the clock, and of the processor, which other work on the
// machine disturbs less.
func measure(b *testing.B, decisions int, plan func()) {
	b.Helper()
	b.ReportAllocs()
	cpu := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	start := cpu()
	for b.Loop() {
		plan()
	}
	n := float64(decisions) * float64(b.N)
	b.ReportMetric(n/(cpu()-start).Seconds(), "decisions/cpu-s")
	b.ReportMetric(n/b.Elapsed().Seconds(), "decisions/s")
}

func BenchmarkPlan(b *testing.B) {
	set := eight(b)
	for _, c := range []struct{ centers, jobs, kinds int }{
		{10, 10_000, 100}, {100, 10_000, 100}, {1000, 1000, 20}, {1000, 1000, 1000}, {1000, 10_000, 1}, {1000, 10_000, 100},
	} {
		s, queue := fleet(c.centers), backlog(c.jobs, c.kinds)
		for name, o := range map[string]place.Options{"none": {NoTables: true}, "top20": {TableRows: 20}, "full": {}} {
			b.Run(fmt.Sprintf("centers=%d/jobs=%d/kinds=%d/tables=%s", c.centers, c.jobs, c.kinds, name), func(b *testing.B) {
				measure(b, c.jobs, func() {
					res, err := place.Plan(s, queue, set, o)
					if err != nil || len(res.Placements) != c.jobs {
						b.Fatalf("placed %d of %d: %v", len(res.Placements), c.jobs, err)
					}
				})
			})
		}
	}
}

// BenchmarkPlanFull goes through a backlog for which there is no room: what a
// cycle costs when everything waits.
func BenchmarkPlanFull(b *testing.B) {
	s, queue, set := fleet(1000), backlog(100_000, 100), eight(b)
	for i := range s.Candidates {
		s.Candidates[i].Free["gpu"] = 0
	}
	for _, tables := range []bool{false, true} {
		b.Run(fmt.Sprintf("centers=1000/jobs=100000/kinds=100/tables=%v", tables), func(b *testing.B) {
			measure(b, len(queue), func() {
				res, err := place.Plan(s, queue, set, place.Options{NoTables: !tables})
				if err != nil || len(res.Unplaced) != len(queue) {
					b.Fatalf("%d of %d stay: %v", len(res.Unplaced), len(queue), err)
				}
			})
		})
	}
}

// BenchmarkPlanGangs places distributed gangs of 64 replicas in two tasks.
func BenchmarkPlanGangs(b *testing.B) {
	s, queue, set := fleet(1000), backlog(64, 10), eight(b)
	for i := range s.Candidates {
		s.Candidates[i].Free["gpu"] = 64
	}
	for i := range queue {
		w := &queue[i]
		w.Gang, w.Distributed = true, true
		server := w.Tasks[0]
		server.ID, server.Replicas = "server", 4
		server.Request = place.Amounts{"cpu": 8000, "gpu": 1}
		w.Tasks[0].Replicas = 60
		w.Tasks = append(w.Tasks, server)
	}
	for name, o := range map[string]place.Options{"none": {NoTables: true}, "top20": {TableRows: 20}, "full": {}} {
		b.Run("centers=1000/gangs=64/replicas=4096/tables="+name, func(b *testing.B) {
			measure(b, 4096, func() {
				res, err := place.Plan(s, queue, set, o)
				if err != nil || len(res.Placements) != 4096 {
					b.Fatalf("%d of 4096 placed: %v", len(res.Placements), err)
				}
			})
		})
	}
}

// BenchmarkPlanLarge is the load of a whole network: every candidate counts in
// every decision.
func BenchmarkPlanLarge(b *testing.B) {
	set := eight(b)
	for _, c := range []struct{ centers, jobs, kinds int }{
		{1000, 100_000, 1}, {10_000, 100_000, 1}, {1000, 100_000, 100}, {10_000, 100_000, 100},
	} {
		s, queue := fleet(c.centers), backlog(c.jobs, c.kinds)
		b.Run(fmt.Sprintf("centers=%d/jobs=%d/kinds=%d", c.centers, c.jobs, c.kinds), func(b *testing.B) {
			measure(b, c.jobs, func() {
				res, err := place.Plan(s, queue, set, place.Options{NoTables: true})
				if err != nil || len(res.Placements) != c.jobs {
					b.Fatalf("placed %d of %d: %v", len(res.Placements), c.jobs, err)
				}
			})
		})
	}
}

// BenchmarkPlanSpread places jobs of ten replicas by rules: over regions, over
// centers, and beside those of the job before.
func BenchmarkPlanSpread(b *testing.B) {
	set := eight(b)
	for _, c := range []struct {
		centers, jobs, kinds int
		name                 string
		rules                []place.Rule
	}{
		{1000, 1000, 10, "region", []place.Rule{{Kind: place.Spread, Over: "region", MaxSkew: 1}}},
		{10_000, 10_000, 1, "region", []place.Rule{{Kind: place.Spread, Over: "region", MaxSkew: 1}}},
		{10_000, 10_000, 10, "region", []place.Rule{{Kind: place.Spread, Over: "region", MaxSkew: 1}}},
		{10_000, 10_000, 10, "center", []place.Rule{{Kind: place.Spread, MaxSkew: 1}}},
		{10_000, 10_000, 10, "with", []place.Rule{{Kind: place.With, Over: "region", Preferred: true}, {Kind: place.Apart, Preferred: true}}},
	} {
		s, queue := fleet(c.centers), backlog(c.jobs, c.kinds)
		for i := range queue {
			queue[i].Tasks[0].Replicas, queue[i].Tasks[0].Rules = 10, c.rules
		}
		b.Run(fmt.Sprintf("centers=%d/replicas=%d/kinds=%d/%s", c.centers, 10*c.jobs, c.kinds, c.name), func(b *testing.B) {
			measure(b, 10*c.jobs, func() {
				res, err := place.Plan(s, queue, set, place.Options{NoTables: true})
				if err != nil || len(res.Placements) != 10*c.jobs {
					b.Fatalf("placed %d of %d: %v", len(res.Placements), 10*c.jobs, err)
				}
			})
		})
	}
}
