package measurement_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/measurement"
)

func node(name string) *adapterv1.Node {
	room := map[string]int64{core.CPU: 4000, core.Memory: 1 << 34}
	return &adapterv1.Node{Name: name, State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "amd64", OperatingSystem: "linux", Capacity: room, Allocatable: room}
}

// several joins a center that lets jobs choose among its nodes.
func several(t *testing.T, a *apptest.App, k apptest.Center, names ...string) *apptest.FakeCenter {
	t.Helper()
	k.ID, k.Features = "c1", []adapterv1.Feature{adapterv1.Feature_FEATURE_NODE}
	c := a.Join(t, k)
	nodes := make([]*adapterv1.Node, len(names))
	for i, name := range names {
		nodes[i] = node(name)
	}
	must(t, a.Measurement.Nodes(t.Context(), "c1", nodes...))
	return c
}

func scheduled(ctx context.Context, t *testing.T, a *apptest.App, hours, atOnce int64) measurement.NodeSchedule {
	t.Helper()
	sch, err := a.Measurement.NodeSchedule(ctx, "c1")
	must(t, err)
	sch.IntervalHours, sch.AtOnce = hours, atOnce
	sch, err = a.Measurement.SetNodeSchedule(ctx, sch)
	must(t, err)
	return sch
}

func measured(ctx context.Context, t *testing.T, a *apptest.App) map[string]measurement.MeasuredNode {
	t.Helper()
	rows, next, err := a.Measurement.MeasuredNodes(ctx, "c1", 0, "")
	if err != nil || next != "" {
		t.Fatalf("nodes: %v, %q", err, next)
	}
	out := map[string]measurement.MeasuredNode{}
	for _, n := range rows {
		out[n.Node] = n
	}
	return out
}

// Every node is measured once in the interval, so many at once as the schedule
// says; what failed is tried again after a pause; what left is forgotten; all of
// it outlives a restart.
func TestNodeSchedule(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := operator(t.Context())
		var mu sync.Mutex
		runs, most, broken := map[string]int{}, 0, true
		several(t, a, apptest.Center{CPU: 64000, Performance: 700, Play: says(func(r *apptest.Replica) (string, int32) {
			mu.Lock()
			defer mu.Unlock()
			runs[r.Node]++
			if broken && r.Node == "n2" {
				return "the disk is broken\n", 5
			}
			rep := figures(2)
			rep.Host = r.Node
			return rep.Text(), 0
		})}, "n1", "n2", "n3")
		count := func(n string) int {
			mu.Lock()
			defer mu.Unlock()
			return runs[n]
		}
		if n := measured(ctx, t, a)["n1"]; !n.DueAt.IsZero() || !n.MeasuredAt.IsZero() {
			t.Errorf("without a schedule: %+v", n)
		}
		sch := scheduled(ctx, t, a, 24, 0)
		if sch.AtOnce != 1 || sch.Version != 1 || sch.UpdatedBy != "op" {
			t.Errorf("schedule %+v", sch)
		}
		var got map[string]measurement.MeasuredNode
		settled := func(failures int64) {
			t.Helper()
			apptest.Until(t, "each node was tried", func() bool {
				must(t, a.Measurement.MeasureNodes(ctx))
				got = measured(ctx, t, a)
				open := 0
				for _, n := range got {
					if n.Open {
						open++
					}
				}
				mu.Lock()
				most = max(most, open)
				mu.Unlock()
				return open == 0 && got["n1"].DueAt.After(time.Now()) && got["n3"].DueAt.After(time.Now()) && got["n2"].DueAt.After(time.Now()) && got["n2"].Failures == failures
			})
		}
		settled(1)
		if most > 1 {
			t.Errorf("%d nodes were measured at once", most)
		}
		n1, n2 := got["n1"], got["n2"]
		if n1.Performance != 2000 || n1.Failures != 0 || n1.Message != "" || n1.DueAt.Sub(n1.MeasuredAt) != 24*time.Hour {
			t.Errorf("n1: %+v", n1)
		}
		if !n2.MeasuredAt.IsZero() || !strings.Contains(n2.Message, "the disk is broken") || n2.Performance != 0 {
			t.Errorf("n2: %+v", n2)
		}
		r, err := a.Measurement.Get(ctx, n1.RunID)
		must(t, err)
		if r.Node != "n1" || r.RequestedBy != measurement.Scheduled || r.Decision != 0 || r.Performance != 2000 {
			t.Errorf("run of n1: %+v", r)
		}
		j := a.Admin.Job(t, r.JobID)
		if k := j.Spec.Tasks[0].Constraints; j.Spec.Priority != -100 || k.Node != "n1" || len(k.Centers) != 1 {
			t.Errorf("job of n1: priority %d, %v", j.Spec.Priority, k)
		}
		// A node does not speak for the center, and nobody has to decide about it.
		if f, from := performance(t, a, "c1"); f != 700 || from != "declared" {
			t.Errorf("factor %d, %s", f, from)
		}
		p, err := a.Measurement.Picture(ctx, "c1", true)
		must(t, err)
		if v, ok := value(p, "service.measured", "n1", ""); !ok || v.Number != 2000 || len(p.Runs) != 0 {
			t.Errorf("n1 in the picture: %+v, %d runs", v, len(p.Runs))
		}
		// What is known is stored: nothing is measured again after a restart.
		a.Restart()
		must(t, a.Measurement.MeasureNodes(ctx))
		if count("n1") != 1 || count("n2") != 1 || count("n3") != 1 {
			t.Errorf("after a restart: %v", runs)
		}
		// What failed comes first, after its pause, and may fail again: the pause doubles.
		must(t, a.Measurement.AgeNodes(ctx, "c1", 61*time.Minute))
		settled(2)
		if d := time.Until(got["n2"].DueAt); count("n1") != 1 || count("n2") != 2 || d < 90*time.Minute || d > 2*time.Hour {
			t.Errorf("after an hour: %v, n2 is due in %s", runs, d)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		must(t, a.Measurement.AgeNodes(ctx, "c1", 25*time.Hour))
		settled(0)
		if count("n1") != 2 || count("n2") != 3 || count("n3") != 2 || got["n2"].Performance != 2000 || got["n2"].Message != "" {
			t.Errorf("after a day: %v, %+v", runs, got["n2"])
		}
		// A node that left is forgotten; when it comes back it is a new one.
		must(t, a.Measurement.Nodes(ctx, "c1", node("n1"), node("n2")))
		must(t, a.Measurement.MeasureNodes(ctx))
		if _, err := a.Measurement.Get(ctx, got["n3"].RunID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("the run of a node that left: %v", err)
		}
		must(t, a.Measurement.Nodes(ctx, "c1", node("n1"), node("n2"), node("n3")))
		settled(0)
		if count("n3") != 3 || count("n1") != 2 {
			t.Errorf("after n3 came back: %v", runs)
		}
		// Without a schedule nothing is due.
		scheduled(ctx, t, a, 0, 1)
		must(t, a.Measurement.AgeNodes(ctx, "c1", 100*time.Hour))
		must(t, a.Measurement.MeasureNodes(ctx))
		if n := measured(ctx, t, a)["n1"]; count("n1") != 2 || !n.DueAt.IsZero() || n.MeasuredAt.IsZero() {
			t.Errorf("switched off: %v, %+v", runs, n)
		}
	})
}

// Measuring takes no room that somebody's job waits for.
func TestNodeScheduleGivesWay(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	a := apptest.Start(t, apptest.Options{})
	a.Measurement.Hasty()
	ctx := operator(t.Context())
	c := several(t, a, apptest.Center{CPU: 4000}, "n1", "n2")
	scheduled(ctx, t, a, 1, 1)
	x := c.Await(1)[0] // the benchmark, not begun
	open := func() measurement.Run {
		t.Helper()
		rows, _, err := a.Measurement.List(ctx, "c1", 0, "")
		must(t, err)
		if len(rows) == 0 || rows[0].State > measurement.Running {
			t.Fatalf("runs %+v", rows)
		}
		return rows[0]
	}
	r := open()
	// All the room there is: it waits for the benchmark, which gives way.
	work := a.Admin.Submit(t, c.Pin(apptest.Job("work", 4)))
	apptest.Until(t, "the benchmark gave way", func() bool {
		a.Measurement.Look(ctx)
		var err error
		r, err = a.Measurement.Get(ctx, r.ID)
		must(t, err)
		return r.State == measurement.Failed
	})
	if !strings.Contains(r.Message, "gave way: job "+work+" waits") {
		t.Errorf("it ended with %q", r.Message)
	}
	n := measured(ctx, t, a)[r.Node]
	if n.Failures != 0 || n.Message != r.Message || time.Until(n.DueAt) < 5*time.Minute {
		t.Errorf("the node that gave way: %+v", n)
	}
	x.AwaitStop()
	x.End("stopped", 143)
	var replicas []*apptest.Replica
	for _, y := range c.Of(work, 4) {
		y.Run()
		replicas = append(replicas, y)
	}
	// Nothing is begun while there is no room, and the schedule says so.
	apptest.Until(t, "the schedule says why", func() bool {
		must(t, a.Measurement.MeasureNodes(ctx))
		sch, err := a.Measurement.NodeSchedule(ctx, "c1")
		must(t, err)
		return strings.Contains(sch.Message, "needs") && strings.Contains(sch.Message, "has 0 free")
	})
	for _, y := range replicas {
		y.End("completed", 0)
	}
	apptest.Until(t, "the other node is begun", func() bool {
		must(t, a.Measurement.MeasureNodes(ctx))
		return len(c.Await(6)) == 6
	})
	r = open()
	if sch, err := a.Measurement.NodeSchedule(ctx, "c1"); err != nil || r.Node == n.Node {
		t.Errorf("next is %s, after %s gave way: %+v, %v", r.Node, n.Node, sch, err)
	}
	if _, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "c1", Node: r.Node}); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("the same node, asked for: %v", err)
	}
	// A node that has no room after all.
	must(t, a.Measurement.Age(ctx, r.ID, 6*time.Minute))
	a.Measurement.Look(ctx)
	if r = ended(t, a, r.ID); r.Message != "gave way: node "+r.Node+" had no room within 5m" {
		t.Errorf("it ended with %q", r.Message)
	}
}

// Two processes that both think they lead begin no node twice and not more
// than the schedule says.
func TestNodeScheduleTwice(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := operator(t.Context())
		c := several(t, a, apptest.Center{CPU: 64000}, "n1", "n2", "n3", "n4", "n5")
		other, err := a.Measurement.Beside(ctx)
		must(t, err)
		scheduled(ctx, t, a, 1, 2)
		for round := range 2 {
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					s := []*measurement.Service{a.Measurement, other}[i%2]
					if err := s.MeasureNodes(ctx); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			wg.Wait()
			var rows []measurement.Run
			apptest.Until(t, "two more are begun", func() bool {
				must(t, other.MeasureNodes(ctx)) // one that saw a replica of the other waits with the next
				rows, _, err = a.Measurement.List(ctx, "c1", 0, "")
				must(t, err)
				return len(rows) >= 2*(round+1)
			})
			open := map[string]bool{}
			for _, r := range rows {
				if r.State <= measurement.Running {
					open[r.Node] = true
				}
			}
			if len(open) != 2 || len(rows) != 2*(round+1) {
				t.Fatalf("round %d: %d runs, open %v", round, len(rows), open)
			}
			if round > 0 {
				break
			}
			for _, x := range c.Await(2) {
				x.Run()
			}
			for _, r := range rows {
				end(t, c, r)
				ended(t, a, r.ID)
			}
			apptest.Until(t, "the next two are begun", func() bool {
				must(t, other.MeasureNodes(ctx))
				return len(c.Await(4)) == 4
			})
		}
	})
}

// end ends the job of a run well.
func end(t *testing.T, c *apptest.FakeCenter, r measurement.Run) {
	t.Helper()
	x := c.Of(r.JobID, 1)[0]
	x.Write(figures(1).Text())
	x.End("completed", 0)
}

func TestNodeScheduleRefuses(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := operator(t.Context())
	a.Join(t, apptest.Center{ID: "c1"})
	set := func(n measurement.NodeSchedule) error {
		_, err := a.Measurement.SetNodeSchedule(ctx, n)
		return err
	}
	if err := set(measurement.NodeSchedule{CenterID: "a b", IntervalHours: 8761, AtOnce: 17}); len(fault.FieldsOf(err)) != 3 {
		t.Errorf("everything wrong: %v", err)
	}
	if err := set(measurement.NodeSchedule{CenterID: "none", IntervalHours: 1}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("no center: %v", err)
	}
	must(t, set(measurement.NodeSchedule{CenterID: "c1", IntervalHours: 1}))
	for _, version := range []int64{0, 2} {
		if err := set(measurement.NodeSchedule{CenterID: "c1", IntervalHours: 2, Version: version}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("version %d: %v", version, err)
		}
	}
	must(t, a.Measurement.Nodes(ctx, "c1", node("n1"), node("n2")))
	if err := set(measurement.NodeSchedule{CenterID: "c1", IntervalHours: 2, Version: 1}); fault.KindOf(err) != fault.Unimplemented {
		t.Errorf("nodes that cannot be chosen: %v", err)
	}
	res := a.Admin.REST(t, "PUT", "/v1/centers/c1/node-schedule", `{"intervalHours":0,"atOnce":3,"version":1}`)
	if res.Status != 200 || !strings.Contains(string(res.Body), `"atOnce":3`) {
		t.Errorf("by REST: %d %s", res.Status, res.Body)
	}
	if res := a.Admin.REST(t, "GET", "/v1/centers/c1/measured-nodes?page_size=1", ""); res.Status != 200 || !strings.Contains(string(res.Body), `"node":"n1"`) || !strings.Contains(string(res.Body), "nextPageToken") {
		t.Errorf("nodes by REST: %d %s", res.Status, res.Body)
	}
	// A center that left takes its schedule with it.
	if res := a.Admin.REST(t, "DELETE", "/v1/centers/c1", ""); res.Status != 200 {
		t.Fatalf("delete: %d %s", res.Status, res.Body)
	}
	must(t, a.Measurement.MeasureNodes(ctx))
	_, err := a.Admin.Registry.CreateCenter(ctx, &registryv1.CreateCenterRequest{Center: &registryv1.Center{AiCenterId: "c1", Name: "again"}})
	must(t, err)
	if sch, err := a.Measurement.NodeSchedule(ctx, "c1"); err != nil || sch.Version != 0 {
		t.Errorf("the schedule of a center that left: %+v, %v", sch, err)
	}
}
