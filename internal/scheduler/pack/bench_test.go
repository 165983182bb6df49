package pack_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/pack"
)

// fleet is n nodes of 8 cards; if different, no two have the same CPU and memory.
func fleet(n int, different bool) []pack.Node {
	var out []pack.Node
	for i := range n {
		x := pack.Node{ID: fmt.Sprintf("node-%05d", i), CPU: 128_000, Memory: 1 << 20, Cards: 8, Model: "H200",
			Labels: map[string]string{"rack": fmt.Sprintf("rack-%03d", i/40), "zone": fmt.Sprintf("zone-%d", i%3)}}
		if different {
			x.CPU += int64(i)
			x.Memory += int64(i) * 7
			delete(x.Labels, "rack")
			delete(x.Labels, "zone")
		}
		out = append(out, x)
	}
	return out
}

// work is `kinds` different tasks, a quarter of a card to two cards each.
func work(kinds int) []pack.Task {
	dice := rand.New(rand.NewPCG(4, uint64(kinds)))
	var out []pack.Task
	for i := range kinds {
		t := pack.Task{CPU: 500 * (1 + dice.Int64N(8)), Memory: 1024 * (1 + dice.Int64N(16)), Cards: 1, Share: []int{250, 500, 1000}[i%3]}
		if i%8 == 7 {
			t.Cards, t.Share = 2, pack.Whole
		}
		out = append(out, t)
	}
	return out
}

// BenchmarkPut fills a cluster to about nine tenths and empties it again.
func BenchmarkPut(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, policy := range []pack.Policy{pack.BestFit, pack.Balanced, pack.Waste} {
			for _, kinds := range []int{1, 24, 200} {
				for _, different := range []bool{false, true} {
					b.Run(fmt.Sprintf("nodes=%d/%s/kinds=%d/different=%v", n, policy, kinds, different), func(b *testing.B) {
						tasks := work(kinds)
						c, err := pack.New(fleet(n, different), policy, tasks, 1)
						if err != nil {
							b.Fatal(err)
						}
						var asks []*pack.Ask
						for _, t := range tasks {
							a, err := c.Prepare(t)
							if err != nil {
								b.Fatal(err)
							}
							asks = append(asks, a)
						}
						dice := rand.New(rand.NewPCG(1, 1))
						type held struct {
							p pack.Placement
							k int
						}
						var all []held
						b.ReportAllocs()
						b.ResetTimer()
						for range b.N {
							k := dice.IntN(kinds)
							p, ok := c.Put(asks[k])
							if !ok {
								b.StopTimer()
								for _, h := range all {
									c.Release(tasks[h.k], h.p)
								}
								all = all[:0]
								b.StartTimer()
								continue
							}
							all = append(all, held{p, k})
						}
						b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "placements/s")
					})
				}
			}
		}
	}
}
