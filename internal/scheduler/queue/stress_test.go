package queue_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// TestEverything plays works of all kinds under all settings, twice: once put
// in another order, with tenants named in another order. Both make the same decisions; no place, limit or window is
// ever exceeded; what is used is what runs.
func TestEverything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		settings := func() queue.Config {
			return queue.Config{
				Tenants: tree(rt, rapid.Bool().Draw(rt, "guarantees")), Order: rapid.SampledFrom([]queue.Order{queue.FairShare, queue.FairShare, queue.PriorityOrder, queue.FirstCome}).Draw(rt, "order"),
				StrictClasses: rapid.Bool().Draw(rt, "strict"), HalfLife: rapid.SampledFrom([]int64{0, 10 * minute}).Draw(rt, "half-life"),
				Ageing:   queue.Ageing{Step: rapid.SampledFrom([]int64{0, 5 * minute}).Draw(rt, "ageing"), Max: 2},
				Backfill: rapid.SampledFrom([]queue.Backfill{queue.BackfillReserve, queue.BackfillReserve, queue.BackfillGreedy, queue.BackfillNone}).Draw(rt, "backfill"),
				Preempt:  rapid.Bool().Draw(rt, "preempt"), Devices: []string{"gpu"}, BlockAfter: 10 * minute, StarveAfter: 10 * minute, Reservations: rapid.IntRange(1, 3).Draw(rt, "reservations"),
				AssumedRun: rapid.SampledFrom([]int64{0, 5 * minute}).Draw(rt, "assumed"),
			}
		}
		cfg := settings()
		for i := range cfg.Tenants {
			cfg.Tenants[i].Deadlines = rapid.Bool().Draw(rt, "deadlines")
		}
		capacity := map[string]queue.Amounts{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "places") {
			capacity[fmt.Sprint("p", i)] = queue.Amounts{"gpu": 8, "cpu": 20}
		}
		turned := cfg
		turned.Tenants = rapid.Permutation(cfg.Tenants).Draw(rt, "other tenants")
		ys := [2]*yard{newYard(t, rt.Fatalf, cfg, capacity), newYard(t, rt.Fatalf, turned, capacity)}
		window := queue.Window{ID: "w", Place: rapid.SampledFrom([]string{"", "p0"}).Draw(rt, "window"), From: 15 * minute, To: 25 * minute}
		if rapid.Bool().Draw(rt, "of amounts") {
			window.Amounts = queue.Amounts{"gpu": 5}
			window.Tenant = rapid.SampledFrom([]string{"", "t0"}).Draw(rt, "for")
		}
		works := map[string]queue.Work{}
		batch := func(n int, now int64) {
			var ws []queue.Work
			for range n {
				w := queue.Work{
					ID: fmt.Sprintf("w%02d", len(works)), Tenant: cfg.Tenants[rapid.IntRange(0, len(cfg.Tenants)-1).Draw(rt, "tenant")].Name,
					Priority: rapid.Int64Range(0, 2).Draw(rt, "priority"), Arrival: now - rapid.Int64Range(0, 2).Draw(rt, "earlier"),
					Amounts: queue.Amounts{"gpu": rapid.Int64Range(0, 4).Draw(rt, "gpu"), "cpu": rapid.Int64Range(0, 5).Draw(rt, "cpu")},
					Min:     rapid.IntRange(0, 3).Draw(rt, "min"), OnePlace: rapid.Bool().Draw(rt, "one place"),
					Run: rapid.Int64Range(0, 12).Draw(rt, "run") * minute, Keep: rapid.Bool().Draw(rt, "keep"),
				}
				if rapid.Bool().Draw(rt, "elastic") {
					w.Max = w.Min + 2
				}
				if rapid.IntRange(0, 3).Draw(rt, "waits") == 0 {
					w.NotBefore = now + 3*minute
				}
				if rapid.Bool().Draw(rt, "due") {
					w.Deadline = now + rapid.Int64Range(0, 30).Draw(rt, "deadline")*minute
				}
				real := max(1, w.Run/minute+rapid.Int64Range(-2, 4).Draw(rt, "late")) * minute
				works[w.ID], ys[0].real[w.ID], ys[1].real[w.ID] = w, real, real
				ws = append(ws, w)
			}
			other := rapid.Permutation(ws).Draw(rt, "order")
			for i := range ws {
				if err := ys[0].q.Put(ws[i]); err != nil {
					rt.Fatal(err)
				}
				if err := ys[1].q.Put(other[i]); err != nil {
					rt.Fatal(err)
				}
			}
		}
		before := map[string]bool{}
		check := func(y *yard) {
			used := map[string]int64{}
			parent := map[string]string{}
			for _, x := range cfg.Tenants {
				parent[x.Name] = x.Parent
			}
			for id, x := range y.runs {
				n := int64(0)
				for _, h := range x.holds {
					n += int64(h.Members)
				}
				if w := works[id]; int(n) < max(w.Min, 1) || int(n) > max(w.Min, w.Max, 1) {
					rt.Fatalf("%s has %d members", id, n)
				}
				for tenant := x.w.Tenant; tenant != ""; tenant = parent[tenant] {
					used[tenant] += n * x.w.Amounts["gpu"]
				}
				if y.started[id] == y.now && !before[id] && window.Amounts == nil && y.now >= window.From && y.now < window.To {
					for _, h := range x.holds {
						if window.Place == "" || h.Place == window.Place {
							rt.Fatalf("%s started at %s in a window", id, h.Place)
						}
					}
				}
			}
			for _, u := range y.q.Usage(y.now) {
				if u.Used["gpu"] != used[u.Name] {
					rt.Fatalf("%s uses %v, want %d gpus", u.Name, u.Used, used[u.Name])
				}
				if l, ok := u.Limit["gpu"]; ok && u.Used["gpu"] > l {
					rt.Fatalf("%s uses %d, at most %d", u.Name, u.Used["gpu"], l)
				}
			}
		}
		for _, y := range ys {
			if err := y.q.SetWindow(window); err != nil {
				rt.Fatal(err)
			}
		}
		for now := minute; now < 28*minute; now += minute {
			for _, y := range ys {
				y.now = now
				for _, id := range slices.Sorted(maps.Keys(y.runs)) {
					if x := y.runs[id]; x.end <= now {
						y.give(&x.w, x.holds, -1)
						delete(y.runs, id)
						y.q.Ended(id, now)
					}
				}
			}
			if now < 22*minute {
				batch(rapid.IntRange(0, 3).Draw(rt, "come"), now)
			}
			if len(works) > 0 && rapid.IntRange(0, 9).Draw(rt, "removes") == 0 {
				id := fmt.Sprintf("w%02d", rapid.IntRange(0, len(works)-1).Draw(rt, "removed"))
				if ys[0].q.Remove(id) != ys[1].q.Remove(id) {
					rt.Fatalf("%s waits in one only", id)
				}
			}
			if now == 20*minute {
				next := settings()
				next.Tenants = cfg.Tenants // the same, so that limits still hold
				for _, y := range ys {
					if err := y.q.Configure(next); err != nil {
						rt.Fatal(err)
					}
				}
			}
			for _, y := range ys {
				y.round()
				check(y)
			}
			for id := range ys[0].started {
				before[id] = true
			}
			// Victims for one that waits, and what becomes of that.
			if len(works) > 0 {
				id := fmt.Sprintf("w%02d", rapid.IntRange(0, len(works)-1).Draw(rt, "for"))
				o := queue.VictimsOptions{Spread: rapid.Bool().Draw(rt, "spread")}
				p0, ok0 := ys[0].q.Victims(id, now, o)
				p1, ok1 := ys[1].q.Victims(id, now, o)
				if ok0 != ok1 || fmt.Sprint(p0) != fmt.Sprint(p1) {
					rt.Fatalf("victims %+v and %+v", p0, p1)
				}
				for _, y := range ys {
					for _, v := range p0.Victims {
						x := y.runs[v.ID]
						if x == nil || x.w.Keep || v.ID == id {
							rt.Fatalf("%+v is no victim", v)
						}
						if v.Shrink {
							if err := y.q.Shrunk(v.ID, v.Holds, now); err != nil {
								rt.Fatal(err)
							}
							y.give(&x.w, v.Holds, -1)
							x.holds = y.q.Holds(v.ID)
							continue
						}
						y.give(&x.w, x.holds, -1)
						delete(y.runs, v.ID)
						y.q.Ended(v.ID, now)
					}
					if ok0 {
						check(y)
					}
				}
			}
			if a, b := fmt.Sprint(ys[0].started), fmt.Sprint(ys[1].started); a != b {
				rt.Fatalf("at %d: started %s and %s", now/minute, a, b)
			}
			for id := range works {
				a, ok := ys[0].q.Explain(id, now)
				b, ok2 := ys[1].q.Explain(id, now)
				if ok != ok2 || a != b || ok && (a.Cause == "" || a.Text == "") {
					rt.Fatalf("%s: %+v and %+v", id, a, b)
				}
			}
		}
	})
}

// TestShares: tenants that always want more get weighted dominant shares that
// differ by less than a work of each, and none envies another: with what
// another has, by weight, it could not run a work more than it does.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		total := queue.Amounts{"gpu": rapid.Int64Range(20, 100).Draw(rt, "gpus"), "cpu": rapid.Int64Range(20, 100).Draw(rt, "cpus")}
		n := rapid.IntRange(2, 5).Draw(rt, "tenants")
		var cfg queue.Config
		ask := make([]queue.Amounts, n)
		for i := range n {
			cfg.Tenants = append(cfg.Tenants, queue.Tenant{Name: fmt.Sprint("t", i), Weight: rapid.Int64Range(1, 4).Draw(rt, "weight")})
			ask[i] = queue.Amounts{"gpu": rapid.Int64Range(1, 4).Draw(rt, "gpu"), "cpu": rapid.Int64Range(1, 4).Draw(rt, "cpu")}
		}
		// Ends with the first refusal: until then all still get what they want.
		r := newRig(t, cfg, total)
		for i := range n {
			for k := range 60 {
				r.put(queue.Work{ID: fmt.Sprintf("t%d-%03d", i, k), Tenant: fmt.Sprint("t", i), Arrival: int64(k), Amounts: ask[i]})
			}
		}
		free, has := queue.Amounts{"gpu": total["gpu"] / 2, "cpu": total["cpu"] / 2}, make([]int64, n) // so that it is the test that refuses
		round := r.Queue.Round(1000)
		for o, ok := round.Next(); ok; o, ok = round.Next() {
			if o.Amounts["gpu"] > free["gpu"] || o.Amounts["cpu"] > free["cpu"] {
				break
			}
			free["gpu"] -= o.Amounts["gpu"]
			free["cpu"] -= o.Amounts["cpu"]
			has[o.Tenant[1]-'0']++
			if err := round.Start([]queue.Hold{{Place: "p", Members: 1}}); err != nil {
				rt.Fatal(err)
			}
		}
		share := func(i int, works int64) *big.Rat {
			best := new(big.Rat)
			for name, a := range ask[i] {
				if x := big.NewRat(a*works, total[name]*cfg.Tenants[i].Weight); x.Cmp(best) > 0 {
					best = x
				}
			}
			return best
		}
		for i := range n {
			for j := range n {
				if has[j] > 0 && share(j, has[j]-1).Cmp(share(i, has[i])) > 0 {
					rt.Fatalf("t%d has %d works, a share of %s; t%d has %d, %s, and got its last before", i, has[i], share(i, has[i]), j, has[j], share(j, has[j]))
				}
				could := int64(1 << 40) // works of i in what j has but its last, by weight
				for name, a := range ask[i] {
					could = min(could, max(0, has[j]-1)*ask[j][name]*cfg.Tenants[i].Weight/cfg.Tenants[j].Weight/a)
				}
				if could > has[i] {
					rt.Fatalf("t%d has %d works and envies t%d: %d", i, has[i], j, could)
				}
			}
		}
	})
}
