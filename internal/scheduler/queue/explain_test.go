package queue_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// TestExplain: one work for each cause.
func TestExplain(t *testing.T) {
	t.Parallel()
	y := newFirstCome(t, queue.Config{Reservations: 1, Tenants: []queue.Tenant{{Name: "l", Limit: gpus(1)}}}, map[string]queue.Amounts{"p": gpus(8)})
	soon := job("soon", "a", 1*minute, 1)
	soon.NotBefore, soon.Run = 30*minute, minute
	y.coming = []queue.Work{
		wide("busy", "a", minute, 6, 10*minute), soon,
		wide("wide", "a", 2*minute, 7, 10*minute), // at 11:00
		wide("wide2", "a", 2*minute, 8, 10*minute),
		wide("long", "b", 3*minute, 2, 60*minute), // would hold 2 of 8 at 11:00
		wide("limited", "l", 3*minute, 2, minute),
	}
	for y.now < 3*minute {
		y.step()
	}
	x := func(id string) string {
		e, ok := y.q.Explain(id, y.now)
		if !ok {
			return "not waiting"
		}
		return fmt.Sprintf("%s start %d by %s, %d ahead", e.Cause, e.Start/minute, e.Basis, e.Ahead)
	}
	for id, want := range map[string]string{
		"soon": "not-before start 30 by not-before, 1 ahead",
		"wide": "reservation start 11 by reservation, 0 ahead",
		// When wide has ended, at 21:00; counted behind wide.
		"wide2":   "room start 0 by , 1 ahead",
		"long":    "kept start 0 by , 0 ahead",
		"limited": "limit start 0 by , 0 ahead",
		"busy":    "not waiting",
		"no such": "not waiting",
	} {
		if got := x(id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	// A new work has not been tried.
	if err := y.q.Put(wide("new", "a", 4*minute, 3, minute)); err != nil {
		t.Fatal(err)
	}
	if got, want := x("new"), "order start 0 by , 2 ahead"; got != want {
		t.Errorf("new: %s, want %s", got, want)
	}
}

// TestEstimates: the first of a tenant by the ends of what runs, others by how
// fast works of the tenant have been starting.
func TestEstimates(t *testing.T) {
	t.Parallel()
	y := newFirstCome(t, queue.Config{Backfill: queue.BackfillGreedy}, map[string]queue.Amounts{"p": gpus(1)})
	for i := range 10 {
		y.coming = append(y.coming, wide(fmt.Sprint("w", i), "a", int64(i), 1, 2*minute))
	}
	for y.now < 6*minute {
		y.step()
	}
	// At 6:00 w3 has started: w4 when it ends, at 8:00. Four starts in 6 minutes:
	// w6 is the third, 3·6/4 minutes from now.
	for id, want := range map[string]string{"w4": "ends 8m0s", "w6": "rate 10m30s"} {
		e, _ := y.q.Explain(id, y.now)
		if got := fmt.Sprintf("%s %dm%ds", e.Basis, e.Start/minute, e.Start%minute/second); got != want {
			t.Errorf("%s: %s, want %s (%+v)", id, got, want, e)
		}
	}
}

// TestPosition: how many are ahead is how many of the tenant are offered before,
// whatever their age, deadline and shape.
func TestPosition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := queue.Config{Order: rapid.SampledFrom([]queue.Order{queue.FairShare, queue.FirstCome}).Draw(rt, "order"), Tenants: []queue.Tenant{{Name: "a", Deadlines: rapid.Bool().Draw(rt, "deadlines")}}}
		if rapid.Bool().Draw(rt, "ages") {
			cfg.Ageing = queue.Ageing{Step: 2 * minute, Max: 2}
		}
		r := newRig(t, cfg, gpus(1000))
		// Many works, to have several chunks: from a seed, which is cheaper to draw.
		n := rapid.SampledFrom([]int{3, 20, 200}).Draw(rt, "works")
		d := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for i := range n {
			w := job(fmt.Sprintf("w%03d", i), "a", d.Int64N(10)*minute, d.Int64N(3))
			w.Priority, w.Run = d.Int64N(4), d.Int64N(3)*minute
			if d.IntN(2) == 0 {
				w.Deadline = (1 + d.Int64N(20)) * minute
			}
			r.put(w)
		}
		now := 10 * minute
		r.Round(now)
		want := map[string]int{}
		for i := range n {
			id := fmt.Sprintf("w%03d", i)
			x, ok := r.Explain(id, now)
			if !ok {
				rt.Fatalf("%s does not wait", id)
			}
			want[id] = x.Ahead
		}
		for i, id := range strings.Fields(r.round(now, gpus(1000))) {
			if want[id] != i {
				rt.Fatalf("%s is number %d, explained as %d", id, i, want[id])
			}
		}
	})
}

// TestGuaranteeReached: whatever others hold, tenants get what they are
// guaranteed within a few rounds, as long as they want it.
func TestGuaranteeReached(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		const total = 8
		cfg := queue.Config{Preempt: true, Devices: []string{"gpu"}}
		left := int64(total)
		n := rapid.IntRange(1, 4).Draw(rt, "tenants")
		for i := range n {
			g := rapid.Int64Range(0, left).Draw(rt, "guaranteed")
			left -= g
			cfg.Tenants = append(cfg.Tenants, queue.Tenant{Name: fmt.Sprint("t", i), Guaranteed: gpus(g), Weight: rapid.Int64Range(1, 3).Draw(rt, "weight")})
		}
		y := newYard(t, rt.Fatalf, cfg, map[string]queue.Amounts{"p1": gpus(total / 2), "p2": gpus(total / 2)})
		id := 0
		put := func(tenant string) {
			w := wide(fmt.Sprintf("w%03d", id), tenant, y.now, rapid.Int64Range(1, 3).Draw(rt, "gpu"), 1000*minute)
			if tenant != "x" {
				w.Amounts["gpu"] = 1
			}
			id++
			if err := y.q.Put(w); err != nil {
				rt.Fatal(err)
			}
		}
		for range 8 {
			put(rapid.SampledFrom([]string{"x", "t0"}).Draw(rt, "first"))
		}
		y.now = minute
		y.round()
		for i := range n {
			for range total {
				put(fmt.Sprint("t", i))
			}
		}
		for range 2 * total {
			y.now += minute
			y.round()
			for i := range id {
				w := fmt.Sprintf("w%03d", i)
				if y.runs[w] != nil {
					continue
				}
				if plan, ok := y.q.Victims(w, y.now, queue.VictimsOptions{}); ok {
					for _, v := range plan.Victims {
						x := y.runs[v.ID]
						y.give(&x.w, x.holds, -1)
						delete(y.runs, v.ID)
						y.q.Ended(v.ID, y.now)
					}
					break // the room is for this one: a round gives it
				}
			}
		}
		y.round()
		for _, u := range y.q.Usage(y.now) {
			if u.Used["gpu"] < u.Guaranteed["gpu"] {
				rt.Fatalf("%s has %d of the %d it is guaranteed", u.Name, u.Used["gpu"], u.Guaranteed["gpu"])
			}
		}
	})
}

// TestExplainShares: a work that waits for its turn is told the shares that
// decide whose turn it is.
func TestExplainShares(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{Tenants: []queue.Tenant{{Name: "a"}, {Name: "b", Weight: 2}, {Name: "b-cpu", Parent: "b"}, {Name: "b-gpu", Parent: "b"}}}, queue.Amounts{"cpu": 20, "gpu": 20})
	run := func(n int, tenant string, amounts queue.Amounts) {
		for i := range n {
			if err := r.Restore(queue.Work{ID: fmt.Sprint(tenant, " runs ", i), Tenant: tenant, Amounts: amounts}, []queue.Hold{{Place: "p", Members: 1}}, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	cpu, gpu := queue.Amounts{"cpu": 1}, queue.Amounts{"gpu": 1}
	run(5, "a", cpu)
	run(4, "b-cpu", cpu)
	run(15, "b-gpu", gpu)
	run(2, "b", gpu)
	r.put(queue.Work{ID: "x", Tenant: "b-cpu", Arrival: 2, Amounts: cpu}, queue.Work{ID: "y", Tenant: "a", Arrival: 3, Amounts: cpu},
		queue.Work{ID: "z", Tenant: "b-gpu", Arrival: 1, Amounts: gpu}, queue.Work{ID: "o", Tenant: "b", Arrival: 1, Amounts: gpu})
	for id, want := range map[string]string{
		// When it is b-cpu's turn, b-gpu counts with 5, one more than b-cpu has, of
		// its 15, and b with its own 2: (5 + 2) of 20 by 2.
		"x": "0 works of its tenant, and 1 tenants, go first; shares by weight: b 17.5 %, b-cpu 20.0 %",
		// b has a lower share.
		"y": "0 works of its tenant, and 3 tenants, go first; shares by weight: a 25.0 %",
		// When it is b-gpu's turn, all count with what they have: 17 of 20 by 2.
		"z": "0 works of its tenant, and 3 tenants, go first; shares by weight: b 42.5 %, b-gpu 75.0 %",
		// Now b-cpu and b-gpu count with 3, one more than b itself has: 5 of 20 by 2.
		"o": "0 works of its tenant, and 0 tenants, go first; shares by weight: b 12.5 %, its own work 10.0 %",
	} {
		if x, _ := r.Explain(id, 10); x.Text != want {
			t.Errorf("%s: %s, want %s", id, x.Text, want)
		}
	}
	if got, want := r.round(10, queue.Amounts{"cpu": 9, "gpu": 3}), "o x y z"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}
