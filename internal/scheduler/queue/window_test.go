package queue_test

import (
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// Work that does not say how long it runs is taken to reach so far into the
// future where it is about windows; who is kept out is told by which window.
func TestWindowsAndUnknownRuns(t *testing.T) {
	t.Parallel()
	q, err := queue.New(queue.Config{UnknownReach: 3600 * second, Backfill: queue.BackfillGreedy})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		q.SetPlace("a", queue.Amounts{"cpu": 4}),
		q.SetWindow(queue.Window{ID: "soon", Place: "a", From: 1800 * second, To: 7200 * second, Amounts: queue.Amounts{"cpu": 3}}),
		q.Put(queue.Work{ID: "unknown", Tenant: "t", Amounts: queue.Amounts{"cpu": 2}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	try := func(now int64) (started bool) {
		r := q.Round(now)
		for o, ok := r.Next(); ok; o, ok = r.Next() {
			if r.Allows("a", 1) == 0 {
				r.Refuse("kept", nil)
				continue
			}
			if err := r.Start([]queue.Hold{{Place: "a", Members: 1}}); err != nil {
				t.Fatal(err)
			}
			started = started || o.ID == "unknown"
		}
		return started
	}
	if try(1) {
		t.Error("started, though it may reach into the window")
	}
	if x, ok := q.Explain("unknown", 1); !ok || x.Cause != queue.CauseWindow || x.Window != "soon" {
		t.Errorf("explained by %+v", x)
	}
	for _, c := range []struct {
		run, cpu int64
		blocked  bool
	}{{0, 2, true}, {0, 1, false}, {1799, 4, false}, {1801, 2, true}, {1801, 1, false}} {
		id, yes := q.Blocked(queue.Work{ID: "x", Tenant: "t", Amounts: queue.Amounts{"cpu": c.cpu}, Run: c.run * second}, "a", 1)
		if yes != c.blocked || yes && id != "soon" {
			t.Errorf("a run of %d s with %d cpu: %q %v, want %v", c.run, c.cpu, id, yes, c.blocked)
		}
	}
	// A window further ahead than it reaches is not in its way.
	if err := q.SetWindow(queue.Window{ID: "soon", Place: "a", From: 3700 * second, To: 7200 * second}); err != nil {
		t.Fatal(err)
	}
	if !try(2) {
		t.Error("not started, though the window is further ahead than it reaches")
	}
}
