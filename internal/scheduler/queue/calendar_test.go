package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

func wide(id, tenant string, arrival, gpu, run int64) queue.Work {
	w := job(id, tenant, arrival, gpu)
	w.Run = run
	return w
}

func newFirstCome(t *testing.T, c queue.Config, capacity map[string]queue.Amounts) *yard {
	t.Helper()
	c.Order = queue.FirstCome
	return newYard(t, t.Fatalf, c, capacity)
}

// started is what started, in order, with the minute.
func (y *yard) order(ids string) string {
	var out []string
	for _, id := range strings.Fields(ids) {
		if at, ok := y.started[id]; ok {
			out = append(out, fmt.Sprintf("%s@%d", id, at/minute))
		} else {
			out = append(out, id+"@-")
		}
	}
	return strings.Join(out, " ")
}

// TestBackfill: of 8 gpus 6 are busy until 10:00. The wide work gets them at
// 10:00. A short work passes it, since it ends by then; a long one does not,
// and starts beside or after it.
func TestBackfill(t *testing.T) {
	t.Parallel()
	y := newFirstCome(t, queue.Config{}, map[string]queue.Amounts{"p": gpus(8)})
	y.coming = []queue.Work{
		wide("busy", "a", 0, 6, 10*minute),
		wide("wide", "a", minute, 7, 10*minute),
		wide("long", "a", 2*minute, 2, 9*minute),  // would end at 11:00
		wide("short", "b", 3*minute, 2, 7*minute), // ends at 10:00
		wide("thin", "b", 4*minute, 1, 60*minute), // fits beside the wide one, but short has the room until 10:00
	}
	for y.step() {
	}
	if got, want := y.order("busy wide long short thin"), "busy@0 wide@10 long@20 short@3 thin@10"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestBackfillLate: what runs longer than expected delays the reservation, but
// does not lose it.
func TestBackfillLate(t *testing.T) {
	t.Parallel()
	y := newFirstCome(t, queue.Config{Reservations: 1}, map[string]queue.Amounts{"p": gpus(8)})
	y.real["busy"] = 30 * minute
	y.coming = []queue.Work{wide("busy", "a", 0, 6, 10*minute), wide("wide", "a", minute, 7, 10*minute)}
	for i := range 40 { // always something that could take two gpus
		y.coming = append(y.coming, wide(fmt.Sprintf("s%02d", i), "b", int64(i+2)*minute, 2, 3*minute))
	}
	for y.step() {
	}
	// busy is expected at 10:00, then, as late, at 20:00 and 40:00: what runs 3
	// minutes passes while it ends before. One has started at 29:00 when busy
	// ends at 30:00; the wide one then has to wait for no other.
	if got, want := y.order("wide s00"), "wide@32 s00@2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestNoStarvation: a gang that needs everything starts in bounded time, though
// small works come without end; also where no run time is known.
func TestNoStarvation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		known bool
		cfg   queue.Config
		by    int64
	}{
		// The works that run when it comes end within 7 minutes.
		{"runs known", true, queue.Config{}, 8 * minute},
		{"fair share", true, queue.Config{Order: queue.FairShare}, 8 * minute},
		// After BlockAfter nothing starts any more; 7 minutes later all have ended.
		{"runs not known", false, queue.Config{BlockAfter: 20 * minute}, 29 * minute},
		{"all reservations taken", true, queue.Config{Reservations: 1, StarveAfter: 10 * minute}, 90 * minute},
	} {
		y := newYard(t, t.Fatalf, c.cfg, map[string]queue.Amounts{"p1": gpus(8), "p2": gpus(8)})
		gang := job("gang", "a", minute, 2)
		gang.Min, gang.Run = 8, 5*minute
		for i := range int64(600) {
			w := wide(fmt.Sprintf("s%03d", i), "b", i*minute/4, 1, (3+i%5)*minute)
			if i%3 == 0 {
				w.Tenant = "a"
			}
			y.real[w.ID] = w.Run
			if !c.known {
				w.Run = 0
			}
			y.coming = append(y.coming, w)
			if w.Arrival == minute {
				y.coming = append(y.coming, gang)
			}
		}
		y.real["gang"] = gang.Run
		for y.step() && y.started["gang"] == 0 {
		}
		if at, ok := y.started["gang"]; !ok || at > c.by {
			t.Errorf("%s: started at %d s, want by %d s", c.name, at/second, c.by/second)
		}
	}
}

// TestMaintenance: nothing starts that would reach into a window; what ends
// before does, and other places do not care.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	y := newFirstCome(t, queue.Config{}, map[string]queue.Amounts{"p1": gpus(8), "p2": gpus(1)})
	if err := y.q.SetWindow(queue.Window{ID: "m", Place: "p1", From: 60 * minute, To: 120 * minute}); err != nil {
		t.Fatal(err)
	}
	unknown := job("unknown", "a", 5*minute, 1)
	y.real["unknown"] = minute
	y.coming = []queue.Work{
		wide("one", "a", minute, 1, 300*minute),    // p2
		wide("two", "a", 2*minute, 2, 59*minute),   // would end at 61:00
		wide("three", "a", 3*minute, 2, 57*minute), // ends at 60:00
		wide("four", "a", 70*minute, 2, 10*minute), // within
		unknown, // without end, as far as is known
	}
	y.coming[3], y.coming[4] = y.coming[4], y.coming[3]
	for y.step() {
	}
	if got, want := y.order("one two three unknown four"), "one@1 two@120 three@3 unknown@120 four@120"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A shorter assumed run lets it start.
	y = newFirstCome(t, queue.Config{AssumedRun: 10 * minute}, map[string]queue.Amounts{"p1": gpus(8)})
	if err := y.q.SetWindow(queue.Window{ID: "m", Place: "p1", From: 60 * minute, To: 120 * minute}); err != nil {
		t.Fatal(err)
	}
	y.real["unknown"] = minute
	y.coming = []queue.Work{unknown}
	for y.step() {
	}
	if got, want := y.order("unknown"), "unknown@5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAdvanceReservation: 6 of 8 gpus are for a tenant from 60:00 to 120:00.
func TestAdvanceReservation(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"p", ""} {
		y := newFirstCome(t, queue.Config{Tenants: []queue.Tenant{{Name: "vip"}, {Name: "team", Parent: "vip"}}}, map[string]queue.Amounts{"p": gpus(8)})
		if err := y.q.SetWindow(queue.Window{ID: "r", Place: place, From: 60 * minute, To: 120 * minute, Amounts: gpus(6), Tenant: "vip"}); err != nil {
			t.Fatal(err)
		}
		y.coming = []queue.Work{
			wide("long", "a", minute, 2, 100*minute),  // beside it
			wide("more", "a", 2*minute, 1, 80*minute), // would take one of the 6 until 82:00
			wide("brief", "a", 3*minute, 6, 50*minute),
			wide("theirs", "team", 61*minute, 4, 30*minute), // of the 6
			wide("others", "a", 62*minute, 1, minute),       // only 2 are left to them, long has both
			wide("rest", "vip", 63*minute, 2, minute),
		}
		for y.step() {
		}
		if got, want := y.order("long more brief theirs others rest"), "long@1 more@101 brief@3 theirs@61 others@101 rest@63"; got != want {
			t.Errorf("at %q: %s, want %s", place, got, want)
		}
	}
	q, err := queue.New(queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetWindow(queue.Window{ID: "w", From: 1, To: 2}); err != nil {
		t.Fatal(err)
	}
	if !q.Round(1).Constrained() {
		t.Error("a window constrains nothing")
	}
	q.RemoveWindow("w")
	q.RemoveWindow("w")
	if q.Round(1).Constrained() {
		t.Error("constrained without a window")
	}
}

// TestElastic: a gang of 2 to 6 starts with what there is, grows, and gives
// back when told.
func TestElastic(t *testing.T) {
	t.Parallel()
	y := newFirstCome(t, queue.Config{Preempt: true, Devices: []string{"gpu"}, Tenants: []queue.Tenant{{Name: "a", Limit: gpus(5)}}}, map[string]queue.Amounts{"p": gpus(8)})
	e := wide("e", "a", 2*minute, 1, 100*minute)
	e.Min, e.Max = 2, 6
	y.coming = []queue.Work{wide("busy", "b", minute, 5, 10*minute), e}
	members := func() (n int) {
		for _, h := range y.q.Holds("e") {
			n += h.Members
		}
		return n
	}
	for _, want := range []int{0, 3, 5} { // 8 - 5, then a's limit
		if !y.step() || members() != want {
			t.Fatalf("at %d min: %d members, want %d", y.now/minute, members(), want)
		}
	}
	y.coming = []queue.Work{wide("next", "b", 20*minute, 6, minute)}
	y.step()
	plan, ok := y.q.Victims("next", y.now, queue.VictimsOptions{})
	// 3 are free, 6 wanted: all 3 members above the least, which have run for 18
	// minutes at one gpu each.
	if !ok || len(plan.Victims) != 1 || !plan.Victims[0].Shrink || plan.Victims[0].Why != queue.ClaimElastic || len(plan.Victims[0].Holds) != 2 || plan.Cost != 3*18*60*1000 {
		t.Fatalf("victims %+v (%t)", plan, ok)
	}
	for _, bad := range [][]queue.Hold{{{Place: "p", Members: 5}}, {{Place: "x", Members: 1}}, {{Place: "p", Members: -1}}} {
		if err := y.q.Shrunk("e", bad, y.now); err == nil {
			t.Errorf("gave back %v", bad)
		}
	}
	if err := y.q.Shrunk("e", plan.Victims[0].Holds, y.now); err != nil {
		t.Fatal(err)
	}
	y.free["p"]["gpu"] += 3
	y.runs["e"].holds = []queue.Hold{{Place: "p", Members: 2}}
	y.round()
	if _, ok := y.started["next"]; !ok || members() != 2 {
		t.Errorf("next did not start, e has %d members", members())
	}
	y.step()
	if members() != 5 {
		t.Errorf("e has %d members after next ended", members())
	}
	for y.step() {
	}
	if y.q.Usage(y.now)[0].Used["gpu"] != 0 {
		t.Errorf("usage %+v", y.q.Usage(y.now))
	}
}

// TestRestore: a queue made anew from what runs and waits goes on the same.
func TestRestore(t *testing.T) {
	t.Parallel()
	cfg := queue.Config{Backfill: queue.BackfillGreedy, Tenants: []queue.Tenant{{Name: "a", Limit: gpus(5)}}}
	y := newYard(t, t.Fatalf, cfg, map[string]queue.Amounts{"p": gpus(8)})
	for i := range int64(30) {
		y.coming = append(y.coming, wide(fmt.Sprintf("w%02d", i), string("ab"[i%2]), i*minute, 1+i%4, (5+i%7)*minute))
	}
	for y.now < 10*minute {
		y.step()
	}
	next, err := queue.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.SetPlace("p", gpus(8)); err != nil {
		t.Fatal(err)
	}
	for id, x := range y.runs {
		if err := next.Restore(x.w, x.holds, y.started[id]); err != nil {
			t.Fatal(err)
		}
		if err := next.Restore(x.w, x.holds, y.started[id]); err == nil {
			t.Fatal("restored twice")
		}
	}
	for i := range int64(11) {
		w := wide(fmt.Sprintf("w%02d", i), string("ab"[i%2]), i*minute, 1+i%4, (5+i%7)*minute)
		if _, started := y.started[w.ID]; !started {
			if err := next.Put(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	if fmt.Sprint(next.Usage(y.now)) != fmt.Sprint(y.q.Usage(y.now)) {
		t.Errorf("usage %+v, want %+v", next.Usage(y.now), y.q.Usage(y.now))
	}
	// Both play on from here.
	other := *y
	other.q, other.free, other.runs, other.started, other.coming = next, map[string]queue.Amounts{"p": maps.Clone(y.free["p"])}, maps.Clone(y.runs), maps.Clone(y.started), slices.Clone(y.coming)
	for y.step() {
	}
	for other.step() {
	}
	if got, want := fmt.Sprint(other.started), fmt.Sprint(y.started); got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// TestPromises: what is kept for one work is taken by those that go before it
// by guarantee, or by priority where that orders the two, and by nobody else.
func TestPromises(t *testing.T) {
	t.Parallel()
	tenants := []queue.Tenant{{Name: "a"}, {Name: "b"}, {Name: "g", Guaranteed: gpus(2)}}
	for _, c := range []struct {
		name   string
		cfg    queue.Config
		tenant string
		higher bool
		starts bool
	}{
		{"another's", queue.Config{Tenants: tenants}, "b", false, false},
		{"higher priority of another, shares decide", queue.Config{Tenants: tenants}, "b", true, false},
		{"higher priority of the same", queue.Config{Tenants: tenants}, "a", true, true},
		{"higher class", queue.Config{Tenants: tenants, StrictClasses: true}, "b", true, true},
		{"same class", queue.Config{Tenants: tenants, StrictClasses: true}, "b", false, false},
		{"within a guarantee", queue.Config{Tenants: tenants}, "g", false, true},
		{"priority in one line", queue.Config{Order: queue.PriorityOrder}, "b", true, true},
		{"arrival only", queue.Config{Order: queue.FirstCome}, "b", true, false},
	} {
		y := newYard(t, t.Fatalf, c.cfg, map[string]queue.Amounts{"p": gpus(8)})
		w := wide("w", c.tenant, 3*minute, 2, 60*minute)
		if c.higher {
			w.Priority = 1
		}
		y.coming = []queue.Work{wide("busy", "a", 0, 6, 10*minute), wide("wide", "a", minute, 7, 10*minute), w}
		for y.now < 3*minute {
			y.step()
		}
		if _, ok := y.started["w"]; ok != c.starts {
			t.Errorf("%s: started is %t, want %t", c.name, ok, c.starts)
		}
	}
}

// TestExpect: a new expected end moves the promise at the next refusal, one
// that is gone is not waited for, and a round that is over offers nothing.
func TestExpect(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{}, gpus(8))
	r.put(wide("busy", "a", 0, 8, 60*minute))
	r.round(0, gpus(8))
	old := r.Queue.Round(minute)
	r.put(wide("w", "b", minute, 8, minute))
	r.round(2*minute, gpus(0))
	if x, _ := r.Explain("w", 2*minute); x.Cause != queue.CauseReserved || x.Start != 60*minute {
		t.Errorf("%+v", x)
	}
	if at := r.Wake(); at != 60*minute {
		t.Errorf("wakes at %d", at)
	}
	if _, ok := old.Next(); ok {
		t.Error("a round that is over offers work")
	}
	if !r.Expect("busy", queue.Never) {
		t.Error("busy does not run")
	}
	// Nothing is known any more: at 60:00 the promise is over, and at 61:00, an hour
	// after it came, it keeps everything from others.
	r.round(60*minute, gpus(0))
	if x, _ := r.Explain("w", 60*minute); x.Cause != queue.CauseRoom {
		t.Errorf("%+v", x)
	}
	r.round(61*minute, gpus(0))
	r.put(wide("small", "c", 61*minute, 1, minute))
	if got := r.round(62*minute, gpus(1)); got != "" {
		t.Errorf("started %s", got)
	}
	r.Ended("busy", 63*minute)
	if got, want := r.round(63*minute, gpus(8)), "w"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// TestOffersForVictims: where works may be taken back, one is offered though
// there is no room at all.
func TestOffersForVictims(t *testing.T) {
	t.Parallel()
	for _, preempt := range []bool{false, true} {
		r := newRig(t, queue.Config{Preempt: preempt}, gpus(8))
		r.put(job("busy", "a", 0, 8))
		r.round(0, gpus(8))
		r.put(job("w", "a", 1, 1))
		if _, ok := r.Queue.Round(minute).Next(); ok != preempt {
			t.Errorf("offered is %t where victims are %t", ok, preempt)
		}
	}
}
