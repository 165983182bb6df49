package queue_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// TestFlatAsEver: without tenants below tenants the order of what starts is what
// it was before shares were computed over several levels. The sums were taken
// then.
func TestFlatAsEver(t *testing.T) {
	t.Parallel()
	for seed, want := range []uint64{
		0xec6023e80d542cd0, 0x838390dbd52561e, 0x43c3ba41fcde29a5, 0xaa73c416820d93b,
		0x9ae0c9aba3a2422d, 0x2655d220188df42a, 0xf38faa3546fd1bc5, 0xecb876170e0ee66b,
	} {
		d := rand.New(rand.NewPCG(7, uint64(seed)))
		cfg := queue.Config{StrictClasses: seed%2 == 1, Backfill: queue.Backfill(seed / 2 % 2)}
		if seed >= 4 {
			cfg.HalfLife, cfg.Ageing = hour, queue.Ageing{Step: 10 * minute, Max: 3}
		}
		for i := range 12 {
			x := queue.Tenant{Name: fmt.Sprint("t", i), Weight: 1 + d.Int64N(5)}
			if i%4 == 0 {
				x.Guaranteed = queue.Amounts{"gpu": d.Int64N(8)}
			}
			if i%5 == 0 {
				x.Limit = queue.Amounts{"gpu": 8 + d.Int64N(10)}
			}
			cfg.Tenants = append(cfg.Tenants, x)
		}
		total := queue.Amounts{"gpu": 64, "cpu": 300, "mem": 1000}
		h := newRig(t, cfg, total)
		sum, n := fnv.New64a(), 0
		var running []queue.Work
		for now := minute; now < 200*minute; now += minute {
			for range d.IntN(12) {
				h.put(queue.Work{
					ID: fmt.Sprintf("w%05d", n), Tenant: fmt.Sprint("t", d.IntN(15)), Priority: d.Int64N(3), Arrival: now, Run: (1 + d.Int64N(20)) * minute,
					Amounts: queue.Amounts{"gpu": d.Int64N(5), "cpu": 1 + d.Int64N(20), "mem": d.Int64N(60)},
				})
				n++
			}
			round := h.Queue.Round(now)
			for o, ok := round.Next(); ok; o, ok = round.Next() {
				fits := round.Allows("p", 1) > 0
				for r, a := range o.Amounts {
					fits = fits && a <= total[r]
				}
				if !fits {
					round.Refuse("full", nil)
					continue
				}
				for r, a := range o.Amounts {
					total[r] -= a
				}
				fmt.Fprintln(sum, now, o.ID)
				running = append(running, *o.Work)
				if err := round.Start([]queue.Hold{{Place: "p", Members: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			running = slices.DeleteFunc(running, func(w queue.Work) bool {
				if d.IntN(10) > 0 {
					return false
				}
				for r, a := range w.Amounts {
					total[r] += a
				}
				return h.Ended(w.ID, now)
			})
		}
		if got := sum.Sum64(); got != want {
			t.Errorf("seed %d: %#x, want %#x", seed, got, want)
		}
	}
}
