package bench

import (
	"fmt"
	"math/rand/v2"

	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

func dice(n uint64) *rand.Rand { return rand.New(rand.NewPCG(20, n)) }

// nodes are machines of 8 cards, 128 cores and 1 TiB, 40 in a rack and a
// quarter of them in each of 4 clusters; if different, no two are alike.
func nodes(n int, different bool) []pack.Node {
	out := make([]pack.Node, n)
	for i := range out {
		out[i] = pack.Node{ID: fmt.Sprintf("node-%05d", i), CPU: 128_000, Memory: 1 << 20, Cards: 8, Model: "card",
			Labels: map[string]string{"rack": fmt.Sprintf("rack-%03d", i/40), "cluster": fmt.Sprintf("cluster-%d", i*4/n)}}
		if different {
			out[i].CPU += int64(i)
			out[i].Memory += 3 * int64(i)
			out[i].Labels = nil
		}
	}
	return out
}

// asks are different tasks for a quarter of a card each on average, so that
// 32,000 of them fill 1,000 nodes.
func asks(n int) []pack.Task {
	d := dice(1)
	out := make([]pack.Task, n)
	shares := []int{100, 125, 200, 250, 250, 300, 375, 400}
	for i := range out {
		out[i] = pack.Task{CPU: 500 * (1 + d.Int64N(7)), Memory: 1024 * (4 + d.Int64N(24)), Cards: 1, Share: shares[i%len(shares)]}
	}
	return out
}

// centers are candidates with every fact known and room enough not to run out,
// and the policies of clause 6.6.2 a) to h) with different weights.
func centers(n int) (*place.Snapshot, *place.Set, error) {
	d := dice(3)
	s := &place.Snapshot{}
	for i := range n {
		c := place.Candidate{
			ID: fmt.Sprintf("center-%05d", i), Region: fmt.Sprintf("region-%d", i%31), Status: place.Available,
			SecurityGrade: d.Int64N(5), AnyImage: true,
			Position: &place.Position{Longitude: 80e6 + d.Int64N(40e6), Latitude: 20e6 + d.Int64N(25e6)},
			Total:    place.Amounts{"cpu": 1e9, "memory": 1 << 50, "gpu": 100_000},
			Free:     place.Amounts{"cpu": 1e9 - d.Int64N(5e8), "memory": 1 << 49, "gpu": 50_000 + d.Int64N(50_000)},
			Offers:   map[string]place.Offer{}, RunningTasks: d.Int64N(1000), WaitingTasks: d.Int64N(100),
			Speeds: []place.Speed{{Kind: "gpu", Precision: "FP16", Milli: 500 + d.Int64N(2000)}},
			Power: map[string]place.Power{
				"cpu": {Per: 1000, Static: 2000, Busy: 5000 + d.Int64N(5000)}, "memory": {Per: 1 << 30, Static: 100, Busy: 300},
				"gpu": {Static: 50_000, Busy: 200_000 + d.Int64N(400_000)},
			},
			Network: place.Network{LatencyMicros: place.Known(1000 + d.Int64N(50_000)), JitterMicros: place.Known(d.Int64N(3000)),
				LossPPM: place.Known(d.Int64N(500)), BandwidthKbps: place.Known(1e6 + d.Int64N(1e8))},
			Data: place.Amounts{fmt.Sprintf("data-%d", i%50): 1 << 40},
		}
		for k := range 20 {
			c.Offers[fmt.Sprintf("spec-%d", k)] = place.Offer{PriceFenPerHour: place.Known(100 + d.Int64N(5000))}
		}
		s.Candidates = append(s.Candidates, c)
	}
	var w []place.Weight
	for i, p := range place.Policies()[:8] {
		w = append(w, place.Weight{Policy: p.ID, Weight: int64(i + 1)})
	}
	set, err := place.NewSet("eight", place.Weighted, w)
	return s, set, err
}

// backlog is jobs of one replica with asks of so many kinds.
func backlog(n, kinds int) []place.Work {
	d := dice(4)
	out := make([]place.Work, n)
	for i := range out {
		k := d.IntN(kinds)
		if kinds >= n {
			k = i
		}
		out[i] = place.Work{
			ID: fmt.Sprintf("job-%06d", i), Tenant: fmt.Sprintf("tenant-%d", i%10), Priority: d.Int64N(4), Arrival: int64(i),
			Tasks: []place.Task{{
				ID: "main", Replicas: 1, Spec: fmt.Sprintf("spec-%d", k%20), Image: "image", Kind: "gpu", Precision: "FP16",
				Request:    place.Amounts{"cpu": 4000, "memory": 16 << 30, "gpu": 1 + int64(k%8)},
				RunSeconds: place.Known(600 + int64(k)),
				Data:       []place.DataNeed{{Dataset: fmt.Sprintf("data-%d", k%50), Bytes: 1 << 36}},
			}},
		}
	}
	return out
}
