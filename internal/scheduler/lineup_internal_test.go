package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// TestPickedOrderIsTheQueues: cycles that look at some of what waits start the
// same works, in the same order, as the queue does when it has all of them.
func TestPickedOrderIsTheQueues(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		snap := &registry.Snapshot{Specs: map[string]*registry.Spec{}, Centers: []*registry.Center{{ID: "c", Total: core.Quantities{core.CPU: int64(200 + rng.IntN(1500))}}}}
		for i := range 3 {
			id := fmt.Sprint("s", i)
			snap.Specs[id] = &registry.Spec{ID: id, Quantity: core.Quantities{core.CPU: int64(1 + i)}}
		}
		conf := settings{QueueSettings: QueueSettings{Order: []QueueOrder{PriorityFirst, FairShares, FirstCome}[rng.IntN(3)]}}
		for i := range 3 {
			conf.queues = append(conf.queues, Queue{ID: fmt.Sprint("t", i), Weight: 1 + rng.Int64N(3), Limit: core.Quantities{core.CPU: 50 + rng.Int64N(1000)}})
		}
		l, err := newLineup(conf)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.places(snap); err != nil {
			t.Fatal(err)
		}
		// More of a shape than a cycle looks at, so that much is left out.
		for i := range 3*perShape + rng.IntN(perShape) {
			it := &Item{Work: place.Work{ID: fmt.Sprintf("j%05d", i), Tenant: fmt.Sprint("t", min(rng.IntN(6), 2)), Priority: rng.Int64N(3), Arrival: rng.Int64N(100),
				Tasks: []place.Task{{ID: "0", Spec: fmt.Sprint("s", min(rng.IntN(5), 2)), Replicas: 1, Indices: []int{0}}}}}
			if err := l.put(it, snap); err != nil {
				t.Fatal(err)
			}
		}
		want := ordered(t, l, conf, snap)
		got := cycled(t, l, snap)
		if !slices.Equal(got, want) {
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Fatalf("seed %d, order %s: %d started in cycles, %d by the queue; from the %dth on %v, want %v", seed, conf.Order, len(got), len(want), i, got[i:min(i+5, len(got))], want[i:min(i+5, len(want))])
		}
		if len(want) == 0 {
			t.Errorf("seed %d: nothing was started", seed)
		}
	}
}

// ordered are the works that a queue with all of them starts.
func ordered(t *testing.T, l *lineup, conf settings, snap *registry.Snapshot) (out []string) {
	t.Helper()
	q, err := queue.New(conf.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetPlace("c", queue.Amounts(snap.Centers[0].Total)); err != nil {
		t.Fatal(err)
	}
	for _, e := range l.works {
		if err := q.Put(e.queueWork()); err != nil {
			t.Fatal(err)
		}
	}
	free := snap.Centers[0].Total[core.CPU]
	r := q.Round(1000)
	for o, ok := r.Next(); ok; o, ok = r.Next() {
		if o.Amounts[core.CPU] > free {
			r.Refuse("no room", nil)
			continue
		}
		free -= o.Amounts[core.CPU]
		if err := r.Start([]queue.Hold{{Place: "c", Members: 1}}); err != nil {
			t.Fatal(err)
		}
		out = append(out, o.ID)
	}
	return out
}

// cycled are those that cycles start until one misses nothing.
func cycled(t *testing.T, l *lineup, snap *registry.Snapshot) (out []string) {
	t.Helper()
	free := snap.Centers[0].Total[core.CPU]
	for missed := true; missed; {
		d := &driver{lineup: l, now: 1000, snap: snap, entries: map[string]*entry{}, dropped: map[replica]bool{}, refused: map[string]bool{}}
		var works []*place.Work
		for _, e := range l.pick() {
			d.entries[e.id] = e
			w := e.Work
			w.ID = e.id
			works = append(works, &w)
		}
		d.round = l.q.Round(d.now)
		next := d.order(works)
		for i, ok := next(nil); ok; i, ok = next(nil) {
			e := d.entries[works[i].ID]
			if e.amounts[core.CPU] > free {
				d.round.Refuse("no room", nil)
				continue
			}
			free -= e.amounts[core.CPU]
			if err := d.round.Start([]queue.Hold{{Place: "c", Members: 1}}); err != nil {
				t.Fatal(err)
			}
			e.queued = false // it runs
			l.dropWork(e.id)
			out = append(out, e.id)
		}
		if missed = d.missed; d.err != nil {
			t.Fatal(d.err)
		}
	}
	return out
}

// TestReconcileBesideCycles: what begins and ends while the open runs are read
// is not undone by what was read.
func TestReconcileBesideCycles(t *testing.T) {
	t.Parallel()
	l, err := newLineup(settings{QueueSettings: QueueSettings{Order: FirstCome}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.places(&registry.Snapshot{Centers: []*registry.Center{{ID: "c", Total: core.Quantities{core.CPU: 100}}}}); err != nil {
		t.Fatal(err)
	}
	runs := func(ids ...string) (out []Running) {
		for _, id := range ids {
			out = append(out, Running{AttemptID: id, JobID: "job-" + id, Tenant: "t", Center: "c", Resources: core.Quantities{core.CPU: 1}})
		}
		return out
	}
	begin := func(ids ...string) {
		t.Helper()
		if err := l.begin(runs(ids...)); err != nil {
			t.Fatal(err)
		}
	}
	begin("stays", "ends elsewhere", "ends here")
	l.ends, l.begun = map[string]bool{}, map[string]bool{} // reading begins
	begin("comes", "comes and ends")
	l.end("ends here", 1)
	l.end("comes and ends", 1)
	if err := l.reconcile([]string{"stays", "ends here", "came elsewhere", "comes and ends"}, runs("came elsewhere", "comes and ends"), 2); err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(keys(l.runs))
	if want := []string{"came elsewhere", "comes", "stays"}; !slices.Equal(got, want) {
		t.Errorf("counted are %q, want %q", got, want)
	}
	if err := l.reconcile([]string{"comes"}, nil, 3); err != nil { // nothing was told of meanwhile
		t.Fatal(err)
	}
	if got := slices.Sorted(keys(l.runs)); !slices.Equal(got, []string{"comes"}) {
		t.Errorf("counted are %q then", got)
	}
}

// TestShapeOfExcluded: who may go to other centers is not behind one that finds none.
func TestShapeOfExcluded(t *testing.T) {
	t.Parallel()
	shape := func(excluded map[string]string) string {
		return shapeOf(&Item{Work: place.Work{ID: "w", Tasks: []place.Task{{ID: "0", Spec: "s", Image: "host", Excluded: excluded}}}})
	}
	all, one := shape(map[string]string{"a": "why", "b": "why"}), shape(map[string]string{"a": "why"})
	if none := shape(nil); all == one || all == none || one == none || one == shape(map[string]string{"b": "why"}) || one != shape(map[string]string{"a": "another reason"}) {
		t.Errorf("shapes are %q, %q, %q", none, one, all)
	}
}
