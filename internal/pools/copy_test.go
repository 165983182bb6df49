package pools_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// Whatever changes of nodes and devices, and in whichever process, each process knows it
// from the changes alone as if it had read all.
func TestCopies(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		all := []*pools.Service{w.Service, w.another()}
		random := rand.New(rand.NewPCG(1, 2))
		var nodes []*played
		var ids []string
		for step := range 120 {
			w.Service = all[step%2] // by which what follows is done
			pick := func() *played { return nodes[random.IntN(len(nodes))] }
			what := random.IntN(8)
			switch {
			case what == 0 && len(nodes) < 12 || len(nodes) < 3:
				nodes = append(nodes, w.node(fmt.Sprintf("n%d", len(nodes)*7%12), "A", "B"))
			case what == 1: // a card comes, or the last goes
				n := pick()
				if k := len(n.Devices); k > 1 && random.IntN(2) == 0 {
					n.Devices = n.Devices[:k-1]
				} else {
					n.Devices = append(n.Devices, pool.Device{ID: fmt.Sprintf("d%d", k), Model: "A", Memory: 1000 << 20})
				}
				n.report()
			case what == 2:
				n := pick()
				n.Stopping = !n.Stopping
				n.report()
			case what == 3:
				_, err := w.SetNode(w.admin, pick().Node, pools.Mode(1+random.IntN(2)))
				must(t, err)
			case what == 4:
				disabled := random.IntN(2) == 0
				_, err := w.SetDevice(w.admin, pick().Node, "d0", pools.DeviceChange{Disabled: &disabled})
				must(t, err)
			case what == 5 && len(ids) > 0:
				i := random.IntN(len(ids))
				_, err := w.Release(w.ann, ids[i])
				must(t, err)
				ids = append(ids[:i], ids[i+1:]...)
			default:
				if x, err := w.Request(w.ann, pools.Request{Compute: 1 + random.Int64N(60), Memory: 10, Fixed: true}); err == nil {
					ids = append(ids, x.ID)
				}
			}
			for i, s := range all {
				if how, err := s.CopyDiffers(t.Context()); err != nil || how != "" {
					t.Fatalf("after step %d, a %d, process %d knows %s (%v)", step, what, i, how, err)
				}
			}
		}
		// One leaves.
		gone := nodes[0]
		for _, id := range ids {
			_, err := w.Release(w.ann, id)
			must(t, err)
		}
		_, err := w.SetNode(w.admin, gone.Node, pools.Draining)
		must(t, err)
		w.round()
		for i, s := range all {
			if how, err := s.CopyDiffers(t.Context()); err != nil || how != "" || strings.Contains(w.lent(), gone.Node+"/") {
				t.Errorf("after a node left, process %d knows %s (%v)", i, how, err)
			}
		}
	})
}

// What a process does not know of, as one of an older version did it, is not lent again;
// after a while it is known.
func TestCopyIsWrong(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A")
		w.node("n2", "B", "B")
		if x := w.ask(pools.Request{Compute: 10, Fixed: true, Model: "A"}); x.State != pools.Assigned {
			t.Fatalf("it is %+v", x)
		}
		must(t, w.Exec(t.Context(), `UPDATE pool_devices SET compute_lent = 95 WHERE node_id = 'n1'`))
		must(t, w.Exec(t.Context(), `UPDATE pool_devices SET compute_lent = 95 WHERE node_id = 'n2' AND device_id = 'd1'`))
		x := w.ask(pools.Request{Compute: 50, Fixed: true, Model: "A"})
		if x.State != pools.Waiting || w.lent() != "n1/d0=95 n2/d0=0 n2/d1=95" {
			t.Errorf("it is %+v, and lent %s", x, w.lent())
		}
		both := w.ask(pools.Request{Compute: 50, Fixed: true, Model: "B", Cards: 2})
		if both.State != pools.Waiting || w.lent() != "n1/d0=95 n2/d0=0 n2/d1=95" {
			t.Errorf("they are %+v, and lent %s", both, w.lent())
		}
		must(t, w.Exec(t.Context(), `UPDATE pool_devices SET compute_lent = 10 WHERE node_id = 'n1'`))
		w.clock.add(31 * time.Second)
		if y := w.ask(pools.Request{Compute: 20, Fixed: true, Model: "A"}); y.State != pools.Assigned || w.slice(x.ID).State != pools.Assigned {
			t.Errorf("when it is known that there is room they are %+v and %+v", w.slice(x.ID), y)
		}
	})
}

// Where many wait, of several kinds, each has its turn: what has no room keeps its place
// from those alike, and no others; a program's cards are had together wherever the queue
// is cut; all say what they wait for.
func TestManyWait(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A")
		w.node("n2", "B", "B")
		w.node("n3", "C")
		have := map[string]string{}
		for name, r := range map[string]pools.Request{"a": {Model: "A"}, "b1": {Model: "B"}, "b2": {Model: "B"}, "c": {Model: "C"}} {
			r.Compute, r.Fixed = 100, true
			have[name] = w.ask(r).ID
		}
		many := func(n int) {
			for range n {
				w.ask(pools.Request{Compute: 60, Fixed: true, Model: "A"})
			}
		}
		many(63)
		both := w.ask(pools.Request{Compute: 100, Fixed: true, Model: "B", Cards: 2}) // 64th and 65th
		many(90)
		c := w.ask(pools.Request{Compute: 100, Fixed: true, Model: "C"})
		b := w.ask(pools.Request{Compute: 10, Fixed: true, Model: "B"})
		for _, x := range []*pools.Slice{both, c, b} {
			if x = w.slice(x.ID); x.State != pools.Waiting || x.Reason != "no device that is allowed has room now" {
				t.Errorf("it is %+v", x)
			}
		}
		if got := w.slice(c.ID).Position; got != 63+2+90+1 {
			t.Errorf("it is the %dth", got)
		}
		release := func(name string) {
			t.Helper()
			_, err := w.Release(w.ann, have[name])
			must(t, err)
		}
		release("c")
		if x := w.slice(c.ID); x.State != pools.Assigned {
			t.Errorf("behind others that it has nothing to do with it is %+v", x)
		}
		release("b1")
		if x, y := w.slice(both.ID), w.slice(b.ID); x.State != pools.Waiting || y.State != pools.Waiting {
			t.Errorf("with one card they are %+v and %+v", x, y)
		}
		release("b2")
		list, _, err := w.List(w.ann, pools.Filter{States: []pools.State{pools.Assigned}}, 100, "")
		must(t, err)
		placed := 0
		for _, x := range list {
			if x.Set == both.ID {
				placed++
			}
		}
		if placed != 2 || w.slice(b.ID).State != pools.Waiting {
			t.Errorf("%d of its two cards have a place, and what is behind them is %+v", placed, w.slice(b.ID))
		}
		release("a")
		if n := strings.Count(w.lent(), "n1/d0=60"); n != 1 {
			t.Errorf("lent is %s", w.lent())
		}
	})
}

// Processes that lend at the same time, and take back, lend nothing twice, and none of
// them is told that it was in another's way.
func TestLendAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		for i := range 4 {
			w.node(fmt.Sprintf("n%d", i), "A", "A")
		}
		all := []*pools.Service{w.Service, w.another()}
		var work sync.WaitGroup
		for i := range 16 {
			work.Go(func() {
				s := all[i%2]
				for range 10 {
					x, err := s.Request(w.ann, pools.Request{Compute: 60, Memory: 10, Fixed: true})
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := s.Release(w.ann, x.ID); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		if want := "n0/d0=0 n0/d1=0 n1/d0=0 n1/d1=0 n2/d0=0 n2/d1=0 n3/d0=0 n3/d1=0"; w.lent() != want {
			t.Errorf("at last lent is %s", w.lent())
		}
		for i, s := range all {
			if how, err := s.CopyDiffers(t.Context()); err != nil || how != "" {
				t.Errorf("process %d knows %s (%v)", i, how, err)
			}
		}
	})
}
