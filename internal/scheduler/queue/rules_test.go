package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

func gpus(n int64) queue.Amounts { return queue.Amounts{"gpu": n} }

// TestConfigErrors: every fault is named at once, with the value and the limit.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  queue.Config
		want []string
	}{
		{"cycle", queue.Config{Tenants: []queue.Tenant{{Name: "a", Parent: "b"}, {Name: "b", Parent: "a"}}},
			[]string{`tenants[0].parent: "a" is below itself`, `tenants[1].parent: "b" is below itself`}},
		{"itself", queue.Config{Tenants: []queue.Tenant{{Name: "a", Parent: "a"}}}, []string{`tenants[0].parent: "a" is below itself`}},
		{"no parent", queue.Config{Tenants: []queue.Tenant{{Name: "a", Parent: "x"}}}, []string{`tenants[0].parent: there is no tenant "x"`}},
		{"no name", queue.Config{Tenants: []queue.Tenant{{}}}, []string{"tenants[0].name: is required"}},
		{"twice", queue.Config{Tenants: []queue.Tenant{{Name: "a"}, {Name: "a"}}}, []string{`tenants[1].name: "a" is named twice, first in tenants[0]`}},
		{"weight", queue.Config{Tenants: []queue.Tenant{{Name: "a", Weight: -1}, {Name: "b", Weight: queue.MaxWeight + 1}}},
			[]string{"tenants[0].weight: must be between 0 and 1000000, got -1", "tenants[1].weight: must be between 0 and 1000000, got 1000001"}},
		{"above the limit", queue.Config{Tenants: []queue.Tenant{{Name: "a", Guaranteed: gpus(5), Limit: gpus(4)}}},
			[]string{"tenants[0].guaranteed.gpu: must be at most the limit (4), got 5"}},
		{"sums", queue.Config{Tenants: []queue.Tenant{{Name: "a", Guaranteed: gpus(5)}, {Name: "b", Parent: "a", Guaranteed: gpus(3)}, {Name: "c", Parent: "a", Guaranteed: gpus(3)}}},
			[]string{"tenants[0].guaranteed.gpu: must be at least what those below it are guaranteed together (6), got 5"}},
		{"sums above a limit", queue.Config{Tenants: []queue.Tenant{{Name: "a", Limit: gpus(2)}, {Name: "b", Parent: "a", Guaranteed: gpus(3)}}},
			[]string{"tenants[0].limit.gpu: must be at least what those below it are guaranteed together (3), got 2"}},
		{"negative", queue.Config{HalfLife: -1, Tenants: []queue.Tenant{{Name: "a", Borrowable: gpus(-1)}}},
			[]string{"half_life: must be between 0", "tenants[0].borrowable.gpu: must be between 0 and 9007199254740992, got -1"}},
		{"all numbers", queue.Config{Order: 9, Backfill: 9, Ageing: queue.Ageing{Step: -1, Max: -1}, Reservations: -1, StarveAfter: -1, BlockAfter: -1, AssumedRun: -1, DeadlineMargin: -1, VictimsPerRound: -1, VictimsPerWork: -1},
			[]string{"order:", "backfill:", "ageing.step:", "ageing.max:", "reservations:", "starve_after:", "block_after:", "assumed_run:", "deadline_margin:", "victims_per_round:", "victims_per_work:"}},
	} {
		_, err := queue.New(c.cfg)
		expect(t, c.name, err, c.want)
	}
}

func expect(t *testing.T, name string, err error, want []string) {
	t.Helper()
	var got []string
	for _, f := range fault.FieldsOf(err) {
		got = append(got, f.Path+": "+f.Problem)
	}
	ok := fault.KindOf(err) == fault.Invalid && err != nil && len(got) == len(want)
	for i := range want {
		ok = ok && strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestWorkErrors(t *testing.T) {
	t.Parallel()
	q, err := queue.New(queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "empty", q.Put(queue.Work{}), []string{"id: is required", "tenant: is required"})
	w := queue.Work{ID: "w", Tenant: "t", Priority: 1 << 40, Arrival: -1, Min: 3, Max: 2, Run: -1, Deadline: -1, NotBefore: -1, Grace: -1, Amounts: queue.Amounts{"gpu": -1, "": 2}}
	expect(t, "all wrong", q.Put(w), []string{"priority:", "arrival:", "max: must be at least min (3), got 2", "run:", "deadline:", "not_before:", "grace:",
		"amounts: has an amount without", "amounts.gpu: must be between 0 and 3002399751580330, got -1"})
	expect(t, "too much in all", q.Put(queue.Work{ID: "w", Tenant: "t", Min: 1000, Amounts: gpus(queue.MaxAmount)}), []string{"amounts.gpu: must be between 0 and 9007199254740, got 9007199254740992"})
	if err := q.Put(job("w", "t", 1, 1)); err != nil {
		t.Error(err)
	}
	if err := q.Put(job("w", "t", 1, 1)); fault.KindOf(err) != fault.Exists {
		t.Errorf("put twice: %v", err)
	}
	expect(t, "window", q.SetWindow(queue.Window{From: -1, To: -1, Amounts: gpus(-2)}), []string{"id:", "from:", "to: must be after from (-1), got -1", "amounts.gpu:"})
	expect(t, "place", q.SetPlace("", gpus(-2)), []string{"name:", "capacity.gpu:"})
	if q.Ended("w", 1) || q.Checkpointed("w", 1) || q.Expect("w", 1) || q.Remove("x") || q.Ended("x", 1) {
		t.Error("a work that does not run ended, or one that does not exist")
	}
	if !q.Remove("w") || q.Len() != 0 {
		t.Error("not removed")
	}
}

// TestLimits: a tenant above its limit is passed over, at any height; what is
// guaranteed goes first and is never in the way of borrowing.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{Tenants: []queue.Tenant{
		{Name: "org", Limit: gpus(6)}, {Name: "a", Parent: "org"}, {Name: "b", Parent: "org", Limit: gpus(2)},
		{Name: "c", Guaranteed: gpus(2), Borrowable: gpus(1)},
	}}, gpus(100))
	for i := range 10 {
		r.put(job(fmt.Sprint("a", i), "a", int64(i), 1), job(fmt.Sprint("b", i), "b", int64(i), 1), job(fmt.Sprint("c", i), "c", int64(50+i), 1))
	}
	// c is within its guarantee with c0 and c1. Then org has 0 to c's 2: a and b in
	// turns, until org has as much as c; c2 came later than a's. b stops at 2, org at
	// 6, c at 2 + 1.
	if got, want := r.round(100, gpus(100)), "c0 c1 a0 b0 a1 c2 b1 a2 a3"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	for id, want := range map[string]string{"a4": "limit of org", "b2": "limit of b", "c3": "limit of c"} {
		x, _ := r.Explain(id, 100)
		if got := fmt.Sprintf("%s of %s", x.Cause, x.Tenant); got != want || x.Used+x.Asked <= x.Limit || x.Resource != "gpu" {
			t.Errorf("%s: %s, want %s (%+v)", id, got, want, x)
		}
	}
	r.Ended("a0", 200)
	r.Ended("b0", 200)
	if got, want := r.round(200, gpus(100)), "b2 a4"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	// New limits hold at once for what starts; what runs goes on.
	if err := r.Configure(queue.Config{Tenants: []queue.Tenant{{Name: "a", Limit: gpus(5)}, {Name: "c", Limit: gpus(2)}}}); err != nil {
		t.Fatal(err)
	}
	// a has 4, b 2: b3, b4, then a5 came as early as b5, and its name is first.
	if got, want := r.round(300, gpus(3)), "b3 b4 a5"; got != want {
		t.Errorf("after the change %s, want %s", got, want)
	}
}

// TestHalfLife: what was used in the past counts, half as much after each half-life.
func TestHalfLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{HalfLife: hour}, gpus(4))
	r.put(job("a0", "a", 1, 4))
	if got := r.round(1, gpus(4)); got != "a0" {
		t.Fatalf("started %s", got)
	}
	r.Ended("a0", 1+hour)
	// a held 4 for an hour from nothing: its mean is 4·(1 - 1/2) = 2 of 4 gpus.
	if u := r.Usage(1 + hour)[0]; u.ShareMillionths != 500_000 {
		t.Errorf("share %d after an hour", u.ShareMillionths)
	}
	r.put(job("a1", "a", 2, 1), job("a2", "a", 3, 1), job("a3", "a", 4, 1), job("b1", "b", 10, 1), job("b2", "b", 11, 1), job("b3", "b", 12, 1))
	// b has nothing: b1 (0 against 2), b2 (1 against 2), then 2 against 2 (or a
	// rounding less): a came first.
	if got, want := r.round(1+hour, gpus(4)), "b1 b2 a1 b3"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	for _, id := range strings.Fields("b1 b2 b3 a1") {
		r.Ended(id, 1+hour)
	}
	// 20 half-lives later a's 2 are less than a millionth.
	if u := r.Usage(1 + 21*hour); u[0].ShareMillionths > 1 || u[1].ShareMillionths > 1 {
		t.Errorf("after 20 half-lives: %+v", u)
	}
}

// TestAgeing: a priority grows by 1 each minute, by 2 at most.
func TestAgeing(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{StrictClasses: true, Ageing: queue.Ageing{Step: minute, Max: 2}}, gpus(9))
	old, young, top := job("old", "a", 1, 1), job("young", "b", 2*minute, 1), job("top", "c", 10*minute, 1)
	young.Priority, top.Priority = 1, 3
	r.put(old, young)
	if x, _ := r.Explain("old", minute-1); x.Priority != 0 {
		t.Errorf("priority %d after 0 minutes", x.Priority)
	}
	if at := r.Wake(); at != minute+1 {
		t.Errorf("wakes at %d, want %d", at, minute+1)
	}
	// At 2:30 old has 0 + 2, young 1 + 0.
	if got := r.round(2*minute+30*second, gpus(1)); got != "old" {
		t.Errorf("started %s", got)
	}
	r.Ended("old", 3*minute)
	old.ID = "old2"
	r.put(old, top)
	// At 20:00 old2 has 0 + 2, young 1 + 2, top 3 + 2.
	if got := r.round(20*minute, gpus(3)); got != "top young old2" {
		t.Errorf("started %s", got)
	}
}

// TestDeadlines: earliest deadline first, where the tenant asks for it; a work
// at risk before all others of its priority.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	cfg := queue.Config{DeadlineMargin: minute, Tenants: []queue.Tenant{{Name: "a", Deadlines: true}, {Name: "b"}}}
	works := func(tenant string) []queue.Work {
		w := []queue.Work{job("none", tenant, 1, 1), job("late", tenant, 2, 1), job("soon", tenant, 3, 1), job("long", tenant, 4, 1)}
		w[1].Deadline, w[1].Run = 60*minute, 10*minute
		w[2].Deadline, w[2].Run = 30*minute, 10*minute
		w[3].Deadline, w[3].Run = 90*minute, 85*minute // must start by 5:00, with the margin by 4:00
		return w
	}
	r := newRig(t, cfg, gpus(9))
	r.put(works("a")...)
	r.put(job("other", "c", 1000, 1))
	if got, want := r.round(2*minute, gpus(1)), "soon"; got != want {
		t.Errorf("first %s, want %s", got, want)
	}
	if x, _ := r.Explain("long", 2*minute); x.AtRisk || x.Ahead != 1 {
		t.Errorf("long: %+v", x)
	}
	r.Ended("soon", 3*minute)
	if got, want := r.round(4*minute, gpus(3)), "long other late"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	r = newRig(t, cfg, gpus(9))
	r.put(works("b")...)
	if got, want := r.round(4*minute, gpus(9)), "none late soon long"; got != want {
		t.Errorf("without deadlines %s, want %s", got, want)
	}
}

// TestShapes: what was refused holds back what asks for the same, and nothing else.
func TestShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backfill queue.Backfill
		want     string
	}{{queue.BackfillGreedy, "small c0 c1"}, {queue.BackfillNone, "c0 c1"}, {queue.BackfillReserve, "small c0 c1"}} {
		r := newRig(t, queue.Config{Backfill: c.backfill, Order: queue.FirstCome}, queue.Amounts{"gpu": 8, "cpu": 8})
		for i := range 1000 {
			r.put(job(fmt.Sprint("flood", i), "a", 1, 4))
		}
		r.put(job("small", "b", 2, 1))
		for i := range 2 {
			r.put(queue.Work{ID: fmt.Sprint("c", i), Tenant: "c", Arrival: 3, Amounts: queue.Amounts{"cpu": 4}})
		}
		if got := r.round(10, queue.Amounts{"gpu": 3, "cpu": 8}); got != c.want {
			t.Errorf("backfill %d: started %s, want %s", c.backfill, got, c.want)
		}
	}
}

// TestOffers: each shape is offered once in a round, though a thousand works have it.
func TestOffers(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{}, nil)
	for i := range 1000 {
		r.put(job(fmt.Sprint("w", i), fmt.Sprint("t", i%10), 1, int64(1+i%3)))
	}
	n := 0
	round := r.Round(10)
	for _, ok := round.Next(); ok; _, ok = round.Next() {
		n++
		round.Refuse("no", nil)
	}
	if n != 3 {
		t.Errorf("%d offers, want 3", n)
	}
	if err := round.Start(nil); fault.KindOf(err) != fault.Conflict {
		t.Errorf("start without an offer: %v", err)
	}
}
