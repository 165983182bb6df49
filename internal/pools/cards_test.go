package pools_test

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/pools/agent"
)

// cards are the slices of a set, with the nodes they are at.
func (w *world) cards(x *pools.Slice) (list []*pools.Slice, nodes string) {
	w.t.Helper()
	for _, id := range w.slice(x.ID).Cards {
		y := w.slice(id)
		list, nodes = append(list, y), nodes+" "+y.Node
	}
	return list, strings.TrimSpace(nodes)
}

// A program's cards get places all or none, on as many nodes, are metered each,
// and end together.
func TestSet(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", ComputeLimit: 240})
		one, two := w.node("n1", "A", "A"), w.node("n2", "A")
		x := w.ask(pools.Request{ID: "r", Compute: 60, Cards: 2, Across: true})
		list, at := w.cards(x)
		if len(list) != 2 || list[0].ID != x.ID || at != "n1 n2" && at != "n2 n1" || list[0].State != pools.Assigned || list[1].State != pools.Assigned {
			t.Fatalf("placed at %q: %+v", at, list)
		}
		if again := w.ask(pools.Request{ID: "r", Compute: 60, Cards: 2, Across: true}); again.ID != x.ID || len(again.Cards) != 2 {
			t.Errorf("asked again: %+v", again)
		}
		second := w.ask(pools.Request{Compute: 50, Cards: 2, Across: true}) // n1 has room, n2 has not
		if list, at := w.cards(second); at != "" || list[0].State != pools.Waiting || list[1].State != pools.Waiting || strings.Count(w.lent(), "=60") != 2 {
			t.Errorf("half of it is placed: %q, %s", at, w.lent())
		}
		for _, y := range list {
			map[string]*played{"n1": one, "n2": two}[y.Node].runs(y.ID)
		}
		_, err := w.Move(w.ann, list[0].ID, list[1].Node, "", 0)
		wantKind(t, err, fault.Conflict, "other cards of its program")
		w.clock.add(time.Minute)
		map[string]*played{"n1": one, "n2": two}[list[1].Node].runs() // its program has ended there
		for _, y := range list {
			if got := w.slice(y.ID); got.State != pools.Ended || !strings.Contains(got.Reason, "its program ended") {
				t.Errorf("%s is %v: %s", y.ID, got.State, got.Reason)
			}
			records, _, err := w.meter.List(t.Context(), metering.Filter{AllocationID: y.ID}, 10, "")
			must(t, err)
			if want := (36 * time.Second).Microseconds(); len(records) != 1 || records[0].PackageMicros < want || records[0].PackageMicros > want+1_000_000 || records[0].AICenterID != "pool/"+y.Node {
				t.Errorf("%s is metered as %+v", y.ID, records)
			}
		}
		if list, at := w.cards(second); list[0].State != pools.Assigned || list[1].State != pools.Assigned || strings.Count(w.lent(), "=50") != 2 {
			t.Errorf("the second is at %q, %s", at, w.lent())
		}
		// A node's end ends what ran on several, once.
		list, _ = w.cards(second)
		for _, y := range list {
			map[string]*played{"n1": one, "n2": two}[y.Node].runs(y.ID)
		}
		w.clock.add(10 * time.Second)
		one.report()
		w.clock.add(10 * time.Second)
		w.round()
		if got := w.slice(second.ID); got.State != pools.Ended || !got.Failed() || strings.Contains(w.lent(), "=50") {
			t.Errorf("its node is gone: %v %s, lent %s", got.State, got.Reason, w.lent())
		}
	})
}

// What can never be is refused, and two on one node are two cards.
func TestSetRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", ComputeLimit: 240})
		w.node("n1", "A", "A")
		w.node("n2", "A")
		for _, c := range []struct {
			r    pools.Request
			kind fault.Kind
			says string
		}{
			{pools.Request{Compute: 10, Cards: 3, Across: true}, fault.Exhausted, "3 cards on as many nodes are wanted: 2 pool nodes"},
			{pools.Request{Compute: 10, Cards: 4}, fault.Exhausted, "4 cards are wanted: there are 3"},
			{pools.Request{Compute: 90, Cards: 3}, fault.Exhausted, "270% compute wanted, the quota is 240%"},
			{pools.Request{Compute: 10, Cards: 17}, fault.Invalid, "cards: must be between 0 and 16"},
			{pools.Request{Compute: 10, Across: true}, fault.Invalid, "across_nodes: goes with cards"},
			{pools.Request{Compute: 10, Cards: 2, Node: "n1", Device: "d0"}, fault.Invalid, "device_id: names one device"},
			{pools.Request{Compute: 10, Cards: 2, Affinity: "x"}, fault.Invalid, "affinity: is for one device"},
			{pools.Request{Compute: 10, Cards: 2, Across: true, Node: "n1"}, fault.Invalid, "across_nodes: is of several nodes"},
		} {
			c.r.Memory = 10
			_, err := w.Request(w.ann, c.r)
			wantKind(t, err, c.kind, c.says)
		}
		list, at := w.cards(w.ask(pools.Request{Compute: 10, Cards: 2, Node: "n1"}))
		if at != "n1 n1" || list[0].Device == list[1].Device {
			t.Errorf("two cards of one node are %q: %+v", at, list)
		}
		list, at = w.cards(w.ask(pools.Request{Compute: 60, Cards: 3}))
		if nodes := strings.Fields(at); len(list) != 3 || len(nodes) != 3 {
			t.Errorf("three cards are at %q", at)
		}
	})
}

// Whoever asks for several at once, of whichever process, no set has a part of its
// places.
func TestSetsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		for _, id := range []string{"n1", "n2", "n3"} {
			w.node(id, "A")
		}
		two := []*pools.Service{w.Service, w.another()}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for k := range 3 {
					s := two[(i+k)%2]
					r := pools.Request{Compute: 20 + int64(i), Memory: 50, Fixed: true, Cards: 2 + int64(k)%2, Across: true}
					x, err := s.Request(w.ann, r)
					for fault.KindOf(err) == fault.Conflict {
						x, err = s.Request(w.ann, r)
					}
					if err != nil {
						t.Errorf("request: %v", err)
						return
					}
					if k == 0 {
						if _, err := s.Release(w.ann, x.ID); err != nil && fault.KindOf(err) != fault.Conflict {
							t.Errorf("release: %v", err)
						}
					}
				}
			})
		}
		wg.Wait()
		list, _, err := w.List(w.ann, pools.Filter{}, 1000, "")
		must(t, err)
		states, sum, placed := map[string][]pools.State{}, map[string]int64{}, 0
		for _, x := range list {
			states[x.Set] = append(states[x.Set], x.State)
			if x.State == pools.Assigned {
				sum[x.Node] += x.Compute
				placed++
			}
			if len(x.Cards) < 2 || !slices.Contains(x.Cards, x.ID) {
				t.Errorf("%s is of the set %v", x.ID, x.Cards)
			}
		}
		for id, s := range states {
			if slices.Min(s) != slices.Max(s) {
				t.Errorf("the set %s has states %v", id, s)
			}
		}
		for id, n := range sum {
			if n > 100 || !strings.Contains(w.lent(), fmt.Sprintf("%s/d0=%d", id, n)) {
				t.Errorf("%s has lent %d%%; counted %s", id, n, w.lent())
			}
		}
		if placed < 4 {
			t.Errorf("only %d slices have a place", placed)
		}
	})
}

// A program that was not changed has cards of two nodes through the platform, and
// one of them moves to a third while it computes.
func TestProgramOverNodes(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	r := start(t, a)
	r.join("n2")
	r.join("n3")
	x, err := a.Admin.Pool.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 40, MemoryMib: 64, Cards: 2, AcrossNodes: true, Host: pool.Host(), Name: "program"})
	must(t, err)
	tasks, err := agent.TakeAll(t.Context(), a.Admin.Pool, agent.Awaited{Slice: x.SliceId, Waits: func(*poolv1.Slice) {}})
	must(t, err)
	for _, k := range tasks {
		t.Cleanup(k.Client.Close)
	}
	if len(tasks) != 2 || tasks[0].Slice.NodeId == tasks[1].Slice.NodeId {
		t.Fatalf("it has %d tasks: %v", len(tasks), tasks)
	}
	if out, err := r.over(tasks, "cards", "2").CombinedOutput(); err != nil || string(out) != "cards 2\nrounds 2\n" {
		t.Errorf("computed %q: %v", out, err)
	}
	cmd := r.over(tasks, "cards", "0")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	if line, _ := lines.ReadString('\n'); line != "cards 2\n" {
		t.Fatalf("it said %q", line)
	}
	there := map[string]bool{tasks[0].Slice.NodeId: true, tasks[1].Slice.NodeId: true}
	for _, free := range []string{"n1", "n2", "n3"} {
		if there[free] {
			continue
		}
		apptest.Until(t, "a card is at "+free, func() bool {
			got, err := a.Admin.Pool.MoveSlice(t.Context(), &poolv1.MoveSliceRequest{SliceId: tasks[1].Slice.SliceId, NodeId: free, DeviceId: "opencl-0", WaitMs: 5000})
			must(t, err)
			if got.MoveError != "" || got.State != poolv1.Slice_STATE_RUNNING {
				t.Fatalf("not moved: %v", got)
			}
			return got.NodeId == free && got.MovingToNodeId == ""
		})
	}
	_, _ = io.WriteString(in, "\n")
	if line, _ := lines.ReadString('\n'); !strings.HasPrefix(line, "rounds ") || line == "rounds 0\n" {
		t.Errorf("it ended with %q", line)
	}
	must(t, cmd.Wait())
	for _, k := range tasks {
		k.Client.Close()
	}
	for _, k := range tasks {
		r.state(k.Slice.SliceId, poolv1.Slice_STATE_ENDED)
	}
}

// What ended with another slice of its program does not come back by what was read
// before: neither when a node is gone, nor by a report.
func TestSetEndsOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A", "A")
		other := w.node("n2", "B")
		// Its program has one of its cards, and not yet the other.
		x := w.ask(pools.Request{Compute: 60, Cards: 2, Node: "n1"})
		list, _ := w.cards(x)
		n.runs(list[0].ID)
		w.clock.add(20 * time.Second)
		other.report()
		w.round()
		for _, y := range list {
			if got := w.slice(y.ID); got.State != pools.Ended || !strings.Contains(got.Reason, "is gone") {
				t.Errorf("%s is %v: %s", y.ID, got.State, got.Reason)
			}
		}
		n.runs()
		if w.lent() != "n1/d0=0 n1/d1=0 n2/d0=0" {
			t.Errorf("lent %s", w.lent())
		}
		// One of two that are held is over, and the program ends at the other.
		x = w.ask(pools.Request{Compute: 60, Cards: 2, Node: "n1", Fixed: true})
		list, _ = w.cards(x)
		n.runs(list[0].ID, list[1].ID)
		ids := []string{list[0].ID, list[1].ID}
		if ids[0] > ids[1] {
			ids[0], ids[1] = ids[1], ids[0]
		}
		n.Ended = []pool.EndedTask{{Slice: ids[0], Reason: pool.Released + "its time is over"}, {Slice: ids[1], Reason: "its program ended"}}
		n.runs()
		for _, id := range ids {
			if got := w.slice(id); got.State != pools.Ended {
				t.Errorf("%s is %v: %s", id, got.State, got.Reason)
			}
		}
		if w.lent() != "n1/d0=0 n1/d1=0 n2/d0=0" {
			t.Errorf("lent %s", w.lent())
		}
	})
}
