package queue_test

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// hall is a queue over one place whose works never end by themselves. Each
// tenant always has work waiting, all of one kind.
type hall struct {
	*rig
	free    queue.Amounts
	total   queue.Amounts
	wants   map[string]queue.Amounts // by tenant
	waits   map[string]int
	running map[string][]string // by tenant, first started first
	n       int
	now     int64

	priority map[string]int64
}

func newHall(t testing.TB, tenants []queue.Tenant, total queue.Amounts) *hall {
	cfg := queue.Config{Tenants: tenants, Backfill: queue.BackfillGreedy}
	return &hall{rig: newRig(t, cfg, total), free: maps.Clone(total), total: total, wants: map[string]queue.Amounts{}, waits: map[string]int{}, running: map[string][]string{}}
}

// come lets a tenant have work from now on.
func (h *hall) come(tenant string, want queue.Amounts) { h.wants[tenant] = want }

func (h *hall) put(tenant string) {
	h.n++
	h.rig.put(queue.Work{ID: fmt.Sprintf("%s %06d", tenant, h.n), Tenant: tenant, Priority: h.priority[tenant], Arrival: int64(h.n), Shape: tenant, Amounts: h.wants[tenant]})
	h.waits[tenant]++
}

// fill starts what there is room for.
func (h *hall) fill() {
	h.t.Helper()
	h.now++
	for _, tenant := range slices.Sorted(maps.Keys(h.wants)) {
		for h.waits[tenant] < 3 {
			h.put(tenant)
		}
	}
	round := h.Queue.Round(h.now)
	for o, ok := round.Next(); ok; o, ok = round.Next() {
		fits := true
		for r, a := range o.Amounts {
			fits = fits && a <= h.free[r]
		}
		if !fits {
			round.Refuse("full", nil)
			continue
		}
		for r, a := range o.Amounts {
			h.free[r] -= a
		}
		tenant := o.Tenant
		h.running[tenant] = append(h.running[tenant], o.ID)
		if err := round.Start([]queue.Hold{{Place: "p", Members: 1}}); err != nil {
			h.t.Fatal(err)
		}
		h.waits[tenant]--
		h.put(tenant)
	}
}

// end ends the first work of a tenant.
func (h *hall) end(tenant string) {
	h.t.Helper()
	id := h.running[tenant][0]
	h.running[tenant] = h.running[tenant][1:]
	if !h.Ended(id, h.now) {
		h.t.Fatalf("%s does not run", id)
	}
	for r, a := range h.wants[tenant] {
		h.free[r] += a
	}
}

// churn ends works one after the other, each tenant's in turn, until all that
// ran have ended some times, and starts others each time.
func (h *hall) churn(times int) {
	h.t.Helper()
	for range times {
		for _, tenant := range slices.Sorted(maps.Keys(h.wants)) {
			for range len(h.running[tenant]) {
				if len(h.running[tenant]) > 0 {
					h.end(tenant)
					h.fill()
				}
			}
		}
	}
}

func (h *hall) has(tenant string) int { return len(h.running[tenant]) }

// near says of each tenant whether it has so many works, or one more or less.
func (h *hall) near(when string, want map[string]int) {
	h.t.Helper()
	for tenant, n := range want {
		if got := h.has(tenant); got < n-1 || got > n+1 {
			h.t.Errorf("%s: %s has %d works, want %d or one more or less", when, tenant, got, n)
		}
	}
}

// TestComplementarySiblings: b's children want different resources. That one of
// them holds all of what nobody else wants does not cost the other its half.
func TestComplementarySiblings(t *testing.T) {
	t.Parallel()
	h := newHall(t, []queue.Tenant{{Name: "a"}, {Name: "b"}, {Name: "b-cpu", Parent: "b"}, {Name: "b-gpu", Parent: "b"}}, queue.Amounts{"cpu": 20, "gpu": 20})
	h.come("a", queue.Amounts{"cpu": 1})
	h.come("b-cpu", queue.Amounts{"cpu": 1})
	h.come("b-gpu", queue.Amounts{"gpu": 1})
	want := map[string]int{"a": 10, "b-cpu": 10, "b-gpu": 20}
	h.fill()
	h.near("first", want)
	h.churn(3)
	h.near("later", want)
}

// TestLateSibling: b-cpu comes when b-gpu has had all gpus for long, and a and c
// all cpus; half of the cpus are b's.
func TestLateSibling(t *testing.T) {
	t.Parallel()
	h := newHall(t, []queue.Tenant{{Name: "a"}, {Name: "b", Weight: 2}, {Name: "c"}, {Name: "b-cpu", Parent: "b"}, {Name: "b-gpu", Parent: "b"}}, queue.Amounts{"cpu": 40, "gpu": 80})
	h.come("a", queue.Amounts{"cpu": 1})
	h.come("c", queue.Amounts{"cpu": 1})
	h.come("b-gpu", queue.Amounts{"gpu": 1})
	h.fill()
	h.near("first", map[string]int{"a": 20, "b-gpu": 80, "c": 20})
	h.come("b-cpu", queue.Amounts{"cpu": 1})
	h.churn(4)
	h.near("later", map[string]int{"a": 10, "b-cpu": 20, "b-gpu": 80, "c": 10})
}

// TestBlockedSibling: b-big asks for what there is not, and so holds nothing
// for ever. It neither holds b-cpu back, nor lets it have more than b's half.
func TestBlockedSibling(t *testing.T) {
	t.Parallel()
	h := newHall(t, []queue.Tenant{{Name: "a"}, {Name: "b"}, {Name: "b-big", Parent: "b"}, {Name: "b-cpu", Parent: "b"}}, queue.Amounts{"cpu": 20, "gpu": 4})
	h.come("a", queue.Amounts{"cpu": 1})
	h.come("b-big", queue.Amounts{"cpu": 1, "gpu": 5})
	h.come("b-cpu", queue.Amounts{"cpu": 1})
	h.fill()
	h.churn(3)
	h.near("later", map[string]int{"a": 10, "b-cpu": 10})
}

// TestLowClassSibling: where classes are strict, b's work of the higher class
// does not count for less because b has other work that never gets its turn.
func TestLowClassSibling(t *testing.T) {
	t.Parallel()
	tenants := []queue.Tenant{{Name: "a"}, {Name: "b"}, {Name: "b-high", Parent: "b"}, {Name: "b-low", Parent: "b"}}
	h := newHall(t, tenants, queue.Amounts{"cpu": 20})
	if err := h.Configure(queue.Config{Tenants: tenants, StrictClasses: true, Backfill: queue.BackfillGreedy}); err != nil {
		t.Fatal(err)
	}
	h.priority = map[string]int64{"a": 1, "b-high": 1}
	for _, x := range []string{"a", "b-high", "b-low"} {
		h.come(x, queue.Amounts{"cpu": 1})
	}
	h.fill()
	h.churn(3)
	h.near("later", map[string]int{"a": 10, "b-high": 10})
}

// TestPastOfSiblings: what b-old used in the past is held against b only as far
// as b-new had as much.
func TestPastOfSiblings(t *testing.T) {
	t.Parallel()
	tenants := []queue.Tenant{{Name: "a"}, {Name: "b"}, {Name: "b-new", Parent: "b"}, {Name: "b-old", Parent: "b"}}
	r := newRig(t, queue.Config{Tenants: tenants, HalfLife: hour}, queue.Amounts{"cpu": 20, "gpu": 20})
	cpu, gpu := queue.Amounts{"cpu": 1}, queue.Amounts{"gpu": 20}
	r.put(queue.Work{ID: "old", Tenant: "b-old", Arrival: 1, Amounts: gpu})
	r.round(1, queue.Amounts{"gpu": 20})
	r.Ended("old", 1+hour) // b-old's mean is half of all gpus
	for i := range 4 {
		r.put(queue.Work{ID: fmt.Sprint("a", i), Tenant: "a", Arrival: 2, Amounts: cpu}, queue.Work{ID: fmt.Sprint("n", i), Tenant: "b-new", Arrival: 3, Amounts: cpu})
	}
	if got, want := r.round(1+hour, queue.Amounts{"cpu": 8}), "a0 n0 a1 n1 a2 n2 a3 n3"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	// With the same share b-old's past is b's.
	r.put(queue.Work{ID: "next", Tenant: "b-old", Arrival: 1, Amounts: queue.Amounts{"gpu": 1}}, queue.Work{ID: "a9", Tenant: "a", Arrival: 9, Amounts: queue.Amounts{"gpu": 1}})
	if got, want := r.round(1+hour, queue.Amounts{"gpu": 2}), "a9 next"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
}

// TestManySiblings: that each of many below b wants its first work does not put
// a behind them all.
func TestManySiblings(t *testing.T) {
	t.Parallel()
	tenants := []queue.Tenant{{Name: "a"}, {Name: "b"}}
	for i := range 50 {
		tenants = append(tenants, queue.Tenant{Name: fmt.Sprintf("b-%02d", i), Parent: "b"})
	}
	h := newHall(t, tenants, queue.Amounts{"cpu": 80})
	for i, x := range tenants[2:] {
		h.come(x.Name, queue.Amounts{"cpu": int64(1 + 3*(i%2))})
	}
	h.come("a", queue.Amounts{"cpu": 1})
	h.fill()
	h.near("first", map[string]int{"a": 40})
	h.churn(3)
	if n := h.has("a"); n < 36 || n > 44 { // others have four at once
		t.Errorf("a has %d of 80, want about 40", n)
	}
}

// forest draws tenants up to four deep, and names those without others below.
func forest(t *rapid.T) (tenants []queue.Tenant, leaves []string) {
	inner, depth := map[string]bool{}, map[string]int{}
	for i := range rapid.IntRange(2, 14).Draw(t, "tenants") {
		x := queue.Tenant{Name: fmt.Sprintf("t%02d", i), Weight: rapid.Int64Range(1, 4).Draw(t, "weight")}
		if i > 0 && rapid.IntRange(0, 3).Draw(t, "below") > 0 {
			if p := tenants[rapid.IntRange(0, i-1).Draw(t, "parent")].Name; depth[p] < 3 {
				x.Parent, inner[p] = p, true
			}
		}
		depth[x.Name] = depth[x.Parent] + 1
		tenants = append(tenants, x)
	}
	for _, x := range tenants {
		if !inner[x.Name] {
			leaves = append(leaves, x.Name)
		}
	}
	return tenants, leaves
}

// size is how much one work of a tenant, or the largest of those below it, is
// of all there is.
func (h *hall) size(tenants []queue.Tenant, name string) *big.Rat {
	v := map[string]*big.Rat{"": new(big.Rat)}
	for r, a := range h.wants[name] {
		v[r] = big.NewRat(a, h.total[r])
	}
	for _, x := range tenants {
		if x.Parent == name {
			v[x.Name] = h.size(tenants, x.Name)
		}
	}
	return top(v)
}

// due are the parts of tenants in a static split by weights, where of what a
// tenant has its children first have one work each: works are not divided.
func (h *hall) due(tenants []queue.Tenant) map[string]*big.Rat {
	out := map[string]*big.Rat{"": big.NewRat(1, 1)}
	for _, x := range tenants { // parents come first
		sum, d := int64(0), new(big.Rat).Set(out[x.Parent])
		if x.Parent != "" {
			sum = 1 // its own works have a part, too
		}
		for _, y := range tenants {
			if y.Parent == x.Parent {
				sum += y.Weight
				if y.Name != x.Name {
					d.Sub(d, h.size(tenants, y.Name))
				}
			}
		}
		out[x.Name] = d.Mul(d, big.NewRat(x.Weight, sum))
	}
	return out
}

// fair fails where a tenant has less than its due, but so many works.
func (h *hall) fair(rt *rapid.T, tenants []queue.Tenant, leaves []string, but int) {
	due := h.due(tenants)
	for _, x := range leaves {
		if has := new(big.Rat).Mul(h.size(tenants, x), big.NewRat(int64(h.has(x)+but), 1)); has.Cmp(due[x]) < 0 {
			rt.Fatalf("%s has %d works, %s of all is due\n%+v\n%v of %v", x, h.has(x), due[x].FloatString(3), tenants, h.wants, h.total)
		}
	}
}

// TestSharingGuarantee: tenants of a random tree, each of which wants one
// resource, come one after the other, the first to take whatever they can.
// However works end, each then has what a static split would give it; none with
// something due starves.
func TestSharingGuarantee(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		tenants, leaves := forest(rt)
		total := queue.Amounts{}
		for _, r := range []string{"cpu", "gpu", "mem"} {
			total[r] = rapid.Int64Range(20, 120).Draw(rt, r)
		}
		h := newHall(t, tenants, total)
		d := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(rt, "seed")))
		for _, i := range d.Perm(len(leaves)) {
			h.come(leaves[i], queue.Amounts{rapid.SampledFrom([]string{"cpu", "gpu", "mem"}).Draw(rt, "wants"): 1})
			h.fill()
		}
		for range 1200 {
			h.endOne(d)
			h.fill()
		}
		for range 50 {
			h.fair(rt, tenants, leaves, 0)
			h.endOne(d)
			h.fill()
		}
	})
}

// endOne ends any work.
func (h *hall) endOne(d *rand.Rand) {
	h.t.Helper()
	n := 0
	for _, ids := range h.running {
		n += len(ids)
	}
	n = d.IntN(n)
	for _, tenant := range slices.Sorted(maps.Keys(h.running)) {
		if ids := h.running[tenant]; n < len(ids) {
			ids[0], ids[n] = ids[n], ids[0]
			h.end(tenant)
			return
		} else {
			n -= len(ids)
		}
	}
}

// TestStaticSplit: so have tenants that want several resources in whatever
// proportion, when nothing ran before.
func TestStaticSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		tenants, leaves := forest(rt)
		h := newHall(t, tenants, queue.Amounts{"cpu": rapid.Int64Range(100, 400).Draw(rt, "cpus"), "gpu": rapid.Int64Range(100, 400).Draw(rt, "gpus")})
		for _, x := range leaves {
			want := queue.Amounts{"cpu": rapid.Int64Range(0, 3).Draw(rt, "cpu"), "gpu": rapid.Int64Range(0, 3).Draw(rt, "gpu")}
			if want["cpu"]+want["gpu"] == 0 {
				want["gpu"] = 1
			}
			h.come(x, want)
		}
		h.fill()
		h.fair(rt, tenants, leaves, 1) // what is left may be less than one
	})
}
