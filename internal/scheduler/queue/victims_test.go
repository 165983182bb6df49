package queue_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// TestVictimsAgainstBruteForce: on small cases the victims are those of all
// sets that are legal and enough with the lowest cost, and none of them is
// needless.
func TestVictimsAgainstBruteForce(t *testing.T) {
	t.Parallel()
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		cfg := queue.Config{Preempt: true, Devices: []string{"gpu"}, StrictClasses: rapid.Bool().Draw(rt, "strict"), Tenants: []queue.Tenant{
			{Name: "a", Guaranteed: queue.Amounts{"gpu": rapid.Int64Range(0, 8).Draw(rt, "a")}},
			{Name: "b", Guaranteed: queue.Amounts{"gpu": rapid.Int64Range(0, 8).Draw(rt, "b")}}, {Name: "c"},
		}}
		const capacity = 12
		q, err := queue.New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		free := map[string]int64{}
		used := map[string]int64{}
		guaranteed := map[string]int64{"a": cfg.Tenants[0].Guaranteed["gpu"], "b": cfg.Tenants[1].Guaranteed["gpu"]}
		for _, p := range []string{"p1", "p2"} {
			if err := q.SetPlace(p, queue.Amounts{"gpu": capacity}); err != nil {
				rt.Fatal(err)
			}
			free[p] = capacity
		}
		type run struct {
			w     queue.Work
			place string
			cost  int64
			start int64
		}
		var runs []run
		now := 100 * minute
		for i := range rapid.IntRange(0, 9).Draw(rt, "runs") {
			x := run{place: rapid.SampledFrom([]string{"p1", "p2"}).Draw(rt, "place"), start: rapid.Int64Range(1, 99).Draw(rt, "start") * minute}
			x.w = job(fmt.Sprintf("r%d", i), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "tenant"), 0, rapid.Int64Range(1, 5).Draw(rt, "gpu"))
			x.w.Priority = rapid.Int64Range(0, 3).Draw(rt, "priority")
			x.w.Keep = rapid.IntRange(0, 5).Draw(rt, "keep") == 0
			if x.w.Amounts["gpu"] > free[x.place] {
				continue
			}
			free[x.place] -= x.w.Amounts["gpu"]
			used[x.w.Tenant] += x.w.Amounts["gpu"]
			x.cost = x.w.Amounts["gpu"] * (now - x.start) / 1000
			runs = append(runs, x)
			if err := q.Restore(x.w, []queue.Hold{{Place: x.place, Members: 1}}, x.start); err != nil {
				rt.Fatal(err)
			}
		}
		w := job("w", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "for"), 0, rapid.Int64Range(1, 10).Draw(rt, "wants"))
		w.Priority = rapid.Int64Range(0, 3).Draw(rt, "its priority")
		if err := q.Put(w); err != nil {
			rt.Fatal(err)
		}
		wants := w.Amounts["gpu"]
		entitled := guaranteed[w.Tenant] > 0 && used[w.Tenant]+wants <= guaranteed[w.Tenant]
		// Candidates are taken cheapest first, newest among equals, then by ID.
		slices.SortFunc(runs, func(a, b run) int {
			if a.cost != b.cost {
				return int(math.Copysign(1, float64(a.cost-b.cost)))
			}
			if a.start != b.start {
				return int(math.Copysign(1, float64(b.start-a.start)))
			}
			return slices.Compare([]byte(a.w.ID), []byte(b.w.ID))
		})
		best, roomy := int64(-1), false
		for _, p := range []string{"p1", "p2"} {
			roomy = roomy || free[p] >= wants
			for set := range 1 << len(runs) {
				sum, cost, legal := free[p], int64(0), true
				taken := map[string]int64{}
				for i, x := range runs {
					if set&(1<<i) == 0 {
						continue
					}
					lower := x.w.Priority < w.Priority
					switch {
					case x.w.Keep || x.place != p:
						legal = false
					case x.w.Tenant == w.Tenant:
						legal = legal && lower
					default:
						beyond := used[x.w.Tenant]-taken[x.w.Tenant] > guaranteed[x.w.Tenant]
						legal = legal && beyond && (entitled || cfg.StrictClasses && lower)
					}
					taken[x.w.Tenant] += x.w.Amounts["gpu"]
					sum += x.w.Amounts["gpu"]
					cost += x.cost
				}
				if legal && sum >= wants && (best < 0 || cost < best) {
					best = cost
				}
			}
		}
		plan, ok := q.Victims("w", now, queue.VictimsOptions{})
		if roomy {
			if ok {
				rt.Fatalf("there is room, but victims: %+v", plan)
			}
			return
		}
		if ok != (best >= 0) || ok && plan.Cost != best {
			rt.Fatalf("victims %+v (%t), want a cost of %d\nrunning %+v\nfor %+v with %+v", plan, ok, best, runs, w, cfg.Tenants)
		}
		if !ok {
			return
		}
		found++
		sum := free[plan.Places[0]]
		for _, v := range plan.Victims {
			sum += runs[slices.IndexFunc(runs, func(x run) bool { return x.w.ID == v.ID })].w.Amounts["gpu"]
		}
		for _, v := range plan.Victims {
			if n := runs[slices.IndexFunc(runs, func(x run) bool { return x.w.ID == v.ID })].w.Amounts["gpu"]; sum-n >= wants {
				rt.Fatalf("%s is not needed: %+v", v.ID, plan)
			}
		}
	})
	if found == 0 {
		t.Error("no case had victims")
	}
}
