package queue_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// TestVictimsAgainstBruteForce: on small cases the victims are those of all
// sets that are legal and enough with the lowest cost, and none of them is
// needless.
func TestVictimsAgainstBruteForce(t *testing.T) {
	t.Parallel()
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
		for i := range rapid.IntRange(3, 9).Draw(rt, "runs") {
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
		w := job("w", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "for"), 0, rapid.Int64Range(4, 12).Draw(rt, "wants"))
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
}

// pen has runs of one gpu-count each at a place, in order of their names.
type pen struct {
	*rig
}

func newPen(t *testing.T, c queue.Config, places ...string) *pen {
	t.Helper()
	c.Preempt = true
	q, err := queue.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		if err := q.SetPlace(p, gpus(8)); err != nil {
			t.Fatal(err)
		}
	}
	return &pen{&rig{t, q}}
}

func (p *pen) run(w queue.Work, place string, start int64) {
	p.t.Helper()
	if err := p.Restore(w, []queue.Hold{{Place: place, Members: max(w.Min, 1)}}, start); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pen) victims(id string, now int64, o queue.VictimsOptions) string {
	plan, ok := p.Victims(id, now, o)
	if !ok {
		return "none"
	}
	out := ""
	for _, v := range plan.Victims {
		out += fmt.Sprintf("%s:%s:%d ", v.ID, v.Why, v.Cost)
	}
	return out + fmt.Sprintf("= %d at %v", plan.Cost, plan.Places)
}

// TestClaims: who may be taken for whom.
func TestClaims(t *testing.T) {
	t.Parallel()
	ms := int64(60_000) // a minute of one gpu
	high := func(w queue.Work, priority int64) queue.Work { w.Priority = priority; return w }
	keep := func(w queue.Work) queue.Work { w.Keep = true; return w }
	grace := func(w queue.Work, g int64) queue.Work { w.Grace = g; return w }
	tenants := []queue.Tenant{{Name: "g", Guaranteed: gpus(4)}, {Name: "h", Guaranteed: gpus(4)}, {Name: "x"}}
	type r struct {
		w     queue.Work
		start int64
	}
	for _, c := range []struct {
		name   string
		strict bool
		runs   []r
		want   queue.Work
		victim string
	}{
		{"lower priority of the same tenant, the cheapest", false,
			[]r{{job("a", "x", 0, 4), 10 * minute}, {job("b", "x", 0, 4), 20 * minute}}, high(job("w", "x", 1, 3), 1),
			fmt.Sprintf("b:priority:%d = %d at [p]", 4*40*ms, 4*40*ms)},
		{"equal priority", false, []r{{job("a", "x", 0, 8), 1}}, job("w", "x", 1, 3), "none"},
		{"lower priority of another tenant", false, []r{{job("a", "x", 0, 8), 1}}, high(job("w", "y", 1, 3), 1), "none"},
		{"the same with strict classes", true, []r{{job("a", "x", 0, 8), 30 * minute}}, high(job("w", "y", 1, 3), 1), fmt.Sprintf("a:priority:%d = %d at [p]", 8*30*ms, 8*30*ms)},
		{"strict, but within a guarantee", true, []r{{job("a", "g", 0, 4), 1}, {high(job("b", "x", 0, 4), 5), 1}}, high(job("w", "y", 1, 3), 1), "none"},
		{"guarantee against borrowed", false, []r{{high(job("a", "x", 0, 8), 5), 30 * minute}}, job("w", "g", 1, 4), fmt.Sprintf("a:guarantee:%d = %d at [p]", 8*30*ms, 8*30*ms)},
		{"beyond the own guarantee", false, []r{{job("a", "x", 0, 8), 1}}, job("w", "g", 1, 5), "none"},
		// g has 3 + 3: without one of them it is within its 4, and the other stays.
		{"only while beyond", false, []r{{job("a", "g", 0, 3), 30 * minute}, {job("b", "g", 0, 3), 40 * minute}}, job("w", "h", 1, 4), fmt.Sprintf("b:guarantee:%d = %d at [p]", 3*20*ms, 3*20*ms)},
		{"kept", false, []r{{keep(job("a", "x", 0, 8)), 1}}, job("w", "g", 1, 4), "none"},
		// One of 6 for 10 minutes costs 60, two of 3 for 15 and 4 minutes 57.
		{"two for less than one", false, []r{{job("a", "x", 0, 2), 1}, {job("b", "x", 0, 3), 45 * minute}, {job("c", "x", 0, 3), 56 * minute}}, job("w", "g", 1, 4),
			fmt.Sprintf("c:guarantee:%d b:guarantee:%d = %d at [p]", 12*ms, 45*ms, 57*ms)},
		// a ran for an hour, but can save itself in a minute.
		{"grace", false, []r{{grace(job("a", "x", 0, 4), minute), 1}, {job("b", "x", 0, 4), 58 * minute}}, job("w", "g", 1, 4), fmt.Sprintf("a:guarantee:%d = %d at [p]", 4*ms, 4*ms)},
	} {
		p := newPen(t, queue.Config{StrictClasses: c.strict, Devices: []string{"gpu"}, Tenants: tenants}, "p")
		for _, x := range c.runs {
			p.run(x.w, "p", x.start)
		}
		p.put(c.want)
		if got := p.victims("w", 60*minute, queue.VictimsOptions{}); got != c.victim {
			t.Errorf("%s: %s, want %s", c.name, got, c.victim)
		}
	}
}

// TestClaimsInTheTree: a guarantee counts where the ways up part, and every
// tenant below that must hold more than its own.
func TestClaimsInTheTree(t *testing.T) {
	t.Parallel()
	tenants := []queue.Tenant{{Name: "o1", Guaranteed: gpus(4)}, {Name: "a", Parent: "o1"}, {Name: "b", Parent: "o1", Guaranteed: gpus(2)}, {Name: "o2", Guaranteed: gpus(4)}, {Name: "c", Parent: "o2"}}
	p := newPen(t, queue.Config{Devices: []string{"gpu"}, Tenants: tenants}, "p")
	p.run(job("a1", "a", 0, 4), "p", 10*minute)
	p.run(job("b1", "b", 0, 2), "p", 50*minute) // cheaper, but b's own
	p.run(job("b2", "b", 0, 2), "p", minute)    // b holds more than 2: this one, or b1, may go
	p.put(job("w", "c", 1, 4))
	ms := int64(60_000)
	if got, want := p.victims("w", 60*minute, queue.VictimsOptions{}), fmt.Sprintf("a1:guarantee:%d = %d at [p]", 4*50*ms, 4*50*ms); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.put(job("v", "c", 1, 2))
	if got, want := p.victims("v", 60*minute, queue.VictimsOptions{}), fmt.Sprintf("b1:guarantee:%d = %d at [p]", 2*10*ms, 2*10*ms); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.put(job("u", "b", 1, 1)) // b has its 2 already
	if got := p.victims("u", 60*minute, queue.VictimsOptions{}); got != "none" {
		t.Errorf("%s, want none", got)
	}
}

// TestVictimsOfAGang: members in several places are made room for where that
// costs least; a caller's own rule of what fits decides.
func TestVictimsOfAGang(t *testing.T) {
	t.Parallel()
	p := newPen(t, queue.Config{Tenants: []queue.Tenant{{Name: "g", Guaranteed: gpus(32)}}}, "p1", "p2", "p3", "p4")
	for i, place := range []string{"p1", "p2", "p3", "p4"} {
		p.run(job("big-"+place, "x", 0, 6), place, int64(10+10*i)*minute)
	}
	gang := job("w", "g", 1, 4)
	gang.Min = 2
	p.put(gang)
	// Without devices each costs its run time: the last that started cost least. One
	// place has room for both members when its 6 are gone.
	if got, want := p.victims("w", 60*minute, queue.VictimsOptions{}), "big-p4:guarantee:1200000 = 1200000 at [p4]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	gang.ID, gang.Min = "v", 3
	p.put(gang)
	if got := p.victims("v", 60*minute, queue.VictimsOptions{}); got != "none" {
		t.Errorf("at one place: %s", got)
	}
	if got, want := p.victims("v", 60*minute, queue.VictimsOptions{Spread: true}), "big-p4:guarantee:1200000 big-p3:guarantee:1800000 = 3000000 at [p1 p2 p3 p4]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := p.victims("v", 60*minute, queue.VictimsOptions{Spread: true, Places: []string{"p1", "p2", "p1", "x"}}), "big-p2:guarantee:2400000 big-p1:guarantee:3000000 = 5400000 at [p1 p2]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	fits := func(places []string, gone []queue.Victim) bool { // needs the first place empty
		return slices.ContainsFunc(gone, func(v queue.Victim) bool { return v.ID == "big-p1" })
	}
	if got, want := p.victims("w", 60*minute, queue.VictimsOptions{Fits: fits}), "big-p1:guarantee:3000000 = 3000000 at [p1]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !p.Checkpointed("big-p1", 59*minute) {
		t.Error("big-p1 does not run")
	}
	if got, want := p.victims("w", 60*minute, queue.VictimsOptions{}), "big-p1:guarantee:60000 = 60000 at [p1]"; got != want {
		t.Errorf("after a checkpoint %s, want %s", got, want)
	}
}

// TestVictimsLimits: so many for a work, and in a round; none where it is not allowed.
func TestVictimsLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		round, work int
		want        string
	}{{5, 3, "none none none"}, {6, 4, "4 none none"}, {8, 4, "4 4 none"}, {0, 0, "4 4 none"}} {
		p := newPen(t, queue.Config{VictimsPerRound: c.round, VictimsPerWork: c.work, Tenants: []queue.Tenant{{Name: "g", Guaranteed: gpus(8)}}}, "p")
		for i := range 8 {
			p.run(job(fmt.Sprint("x", i), "x", 0, 1), "p", minute)
		}
		p.Round(60 * minute)
		p.put(job("u", "g", 1, 4), job("v", "g", 2, 4), job("w", "y", 3, 1))
		var got []string
		for _, id := range []string{"u", "v", "w"} {
			if plan, ok := p.Victims(id, 60*minute, queue.VictimsOptions{}); ok {
				got = append(got, fmt.Sprint(len(plan.Victims)))
			} else {
				got = append(got, "none")
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%d a round, %d a work: %s, want %s", c.round, c.work, s, c.want)
		}
	}
	q, err := queue.New(queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := q.Victims("w", 1, queue.VictimsOptions{}); ok {
		t.Error("victims though none may be taken")
	}
}

// TestNoTurns: a work within a guarantee of cards takes room from one of a
// higher class; that does not take it back for the cores it has no guarantee of.
func TestNoTurns(t *testing.T) {
	t.Parallel()
	p := newPen(t, queue.Config{StrictClasses: true, Tenants: []queue.Tenant{{Name: "g", Guaranteed: gpus(4)}}})
	if err := p.SetPlace("p", queue.Amounts{"gpu": 4, "cpu": 4}); err != nil {
		t.Fatal(err)
	}
	low, high := job("low", "g", 1, 4), job("high", "x", 0, 4)
	low.Amounts["cpu"], high.Amounts["cpu"], high.Priority = 4, 4, 5
	p.run(high, "p", minute)
	p.put(low)
	if got, want := p.victims("low", 2*minute, queue.VictimsOptions{}), "high:guarantee:60000 = 60000 at [p]"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	p.Ended("high", 2*minute)
	p.Remove("low")
	p.run(low, "p", 2*minute)
	p.put(high)
	if got := p.victims("high", 3*minute, queue.VictimsOptions{}); got != "none" {
		t.Errorf("%s, want none", got)
	}
}

// What a work may have end for its priority, whatever is held: lower ones of its own tenant, of
// another's where classes are strict and that holds more than its guarantee, each without those before it.
func TestYields(t *testing.T) {
	t.Parallel()
	const now = 100 * minute
	for _, strict := range []bool{false, true} {
		p := newPen(t, queue.Config{StrictClasses: strict, Tenants: []queue.Tenant{{Name: "own"}, {Name: "other", Guaranteed: gpus(3)}}}, "p", "q")
		work := func(id, tenant string, priority, gpu int64) queue.Work {
			w := job(id, tenant, 0, gpu)
			w.Priority = priority
			return w
		}
		p.run(work("old", "own", 1, 1), "p", now-20*minute)
		p.run(work("young", "own", 4, 1), "q", now-5*minute)
		p.run(work("equal", "own", 5, 1), "p", now-minute)
		kept := work("kept", "own", 0, 1)
		kept.Keep = true
		p.run(kept, "p", now-minute)
		graceful, brief := work("graceful", "own", 2, 1), work("brief", "own", 3, 1)
		graceful.Grace, brief.Grace = minute, minute
		p.run(graceful, "q", now-50*minute)
		p.run(brief, "q", now-40*minute)
		p.run(work("theirs-1", "other", 0, 2), "p", now-2*minute)
		p.run(work("theirs-2", "other", 0, 2), "p", now-3*minute)
		if err := p.Put(work("w", "own", 5, 64)); err != nil { // for which there is no room anyway
			t.Fatal(err)
		}
		want := "graceful=60000 brief=60000 young=300000 old=1200000"
		if strict { // without one of the other's the rest is within its guarantee
			want = "graceful=60000 brief=60000 theirs-1=120000 young=300000 old=1200000"
		}
		all := []string{"old", "young", "equal", "kept", "graceful", "brief", "theirs-2", "theirs-1", "w", "is not there"}
		var got []string
		for _, y := range p.Yields("w", all, now) {
			got = append(got, fmt.Sprintf("%s=%d", y.ID, y.Lost))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("strict %v: may end %v, want %s", strict, got, want)
		}
		if got := p.Yields("w", []string{"young"}, now); len(got) != 1 || got[0].ID != "young" {
			t.Errorf("of one there may end %v", got)
		}
		if got := p.Yields("is not there", all, now); got != nil {
			t.Errorf("for what does not wait there may end %v", got)
		}
	}
}
