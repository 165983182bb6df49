package pools_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// carded joins a node that shows one card by both interfaces (d0, c0) and another by
// CUDA only (c1).
func (w *world) carded(id string) *played {
	w.t.Helper()
	n := w.node(id, "A")
	n.Devices[0].Bus, n.Devices[0].Driver = "0000:65:00.0", "1"
	n.Devices = append(n.Devices,
		pool.Device{ID: "c0", API: pool.CUDA, Model: "A", Driver: "1", Memory: 1000 << 20, Bus: "0000:65:00.0"},
		pool.Device{ID: "c1", API: pool.CUDA, Model: "B", Driver: "1", Memory: 1000 << 20, Bus: "0000:66:00.0"})
	n.report()
	return n
}

// at waits for nothing: it says where a slice is, or why it is not.
func (w *world) at(x *pools.Slice) string {
	w.t.Helper()
	got := w.slice(x.ID)
	if got.State == pools.Waiting {
		return "waits: " + got.Reason
	}
	return got.Node + "/" + got.Device
}

// Who asks for CUDA, or names a device of it, gets a slice of one, is bounded by the
// group, resized, metered and ended as others; who does not, never does.
func TestCUDA(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", ComputeLimit: 150})
		n := w.carded("n1")
		for _, c := range []struct {
			r    pools.Request
			kind fault.Kind
			says string
		}{
			{pools.Request{API: "vulkan", Compute: 10}, fault.Invalid, `api: must be opencl or cuda, got "vulkan"`},
			{pools.Request{API: pool.OpenCL, Compute: 10, Node: "n1", Device: "c1"}, fault.NotFound, `device "c1", api opencl`},
			{pools.Request{API: pool.CUDA, Compute: 10, Node: "n1", Device: "d0"}, fault.NotFound, `device "d0", api cuda`},
			{pools.Request{API: pool.CUDA, Compute: 10, Model: "none"}, fault.NotFound, "no device of the api cuda"},
			{pools.Request{Compute: 10, Model: "B"}, fault.NotFound, `no device of OpenCL of the model "B", but one of CUDA`},
			{pools.Request{Compute: 10, Model: "none"}, fault.NotFound, `no device of the model "none"`},
			{pools.Request{API: pool.CUDA, Compute: 10, Memory: 1001}, fault.Exhausted, "no device that is allowed has"},
		} {
			if c.r.Memory == 0 {
				c.r.Memory = 10
			}
			_, err := w.Request(w.ann, c.r)
			wantKind(t, err, c.kind, c.says)
		}
		x := w.ask(pools.Request{API: pool.CUDA, Model: "B", Compute: 60, Memory: 900})
		y := w.ask(pools.Request{Node: "n1", Device: "c1", Compute: 40, Memory: 100})
		if w.at(x) != "n1/c1" || w.at(y) != "n1/c1" || x.API != pool.CUDA || y.API != pool.CUDA {
			t.Errorf("they are at %s and %s: %+v", w.at(x), w.at(y), y)
		}
		full := w.ask(pools.Request{API: pool.CUDA, Model: "B", Compute: 1, Memory: 1})
		if got := w.at(full); got != "waits: no device that is allowed has room now" {
			t.Errorf("of a full device: %s", got)
		}
		over := w.ask(pools.Request{API: pool.CUDA, Compute: 60})
		if got := w.at(over); !strings.Contains(got, "too little of its quota left") {
			t.Errorf("beyond the quota: %s", got)
		}
		n.runs(x.ID, y.ID)
		if _, err := w.Resize(w.ann, x.ID, 50, 800); err != nil {
			t.Error(err)
		}
		if got := n.runs(x.ID, y.ID); len(got.Slices) != 3 || got.Slices[0] != (pool.WantedSlice{Slice: x.ID, Compute: 50, Memory: 800 << 20}) {
			t.Errorf("the node is told %+v", got)
		}
		if got := w.at(full); got != "n1/c1" {
			t.Errorf("with room it %s", got)
		}
		w.clock.add(time.Minute)
		n.Ended = []pool.EndedTask{{Slice: x.ID, Reason: pool.Released + "idle timeout, it was not used for 1 s", Busy: 7 * time.Second}}
		n.runs(y.ID)
		if got := w.slice(x.ID); got.State != pools.Ended || got.Busy != 7*time.Second || !strings.Contains(got.Reason, "idle timeout") {
			t.Errorf("its program has ended: %+v", got)
		}
		records, _, err := w.meter.List(t.Context(), metering.Filter{AllocationID: x.ID}, 10, "")
		must(t, err)
		var sum int64
		for _, r := range records {
			sum += r.PackageMicros
		}
		if want := (30 * time.Second).Microseconds(); sum < want || sum > want+100_000 {
			t.Errorf("metered %d us, want %d", sum, want)
		}
		if over := w.at(over); over != "n1/c0" && over != "n1/c1" {
			t.Errorf("with a quota it %s", over)
		}
		if _, err := w.SetDevice(w.admin, "n1", "c1", pools.DeviceChange{MemoryRatio: 150}); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "memory_limit_percent") {
			t.Errorf("more memory than there is: %v", err)
		}
		// One whose driver moves memory lends more than there is, which tickets from then on say.
		paged := func(x *pools.Slice) bool {
			t.Helper()
			_, a, err := w.Await(w.ann, x.ID, 0)
			if err != nil || a == nil {
				t.Fatalf("%+v, %v", a, err)
			}
			var k pool.Ticket
			b, err := base64.RawURLEncoding.DecodeString(a.Ticket)
			must(t, errors.Join(err, json.Unmarshal(b, &k)))
			return k.Pages
		}
		if paged(full) {
			t.Error("what stays on a card is to be moved")
		}
		n.Figures = []pool.Figure{{Device: "c1", Pages: true}}
		n.runs(y.ID)
		if _, err := w.SetDevice(w.admin, "n1", "c1", pools.DeviceChange{MemoryRatio: 150}); err != nil {
			t.Error(err)
		}
		if _, err := w.SetDevice(w.admin, "n1", "c0", pools.DeviceChange{MemoryRatio: 150}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("of another card that does not: %v", err)
		}
		if !paged(full) {
			t.Error("what does not stay on a card is not to be moved")
		}
		if x := w.ask(pools.Request{Node: "n1", Device: "c1", Compute: 1, Memory: 1000}); w.at(x) != "n1/c1" {
			t.Errorf("of a device that lends more than it has: %s", w.at(x))
		} else if _, err := w.Release(w.ann, x.ID); err != nil {
			t.Error(err)
		}
		if _, err := w.SetDevice(w.admin, "n1", "c1", pools.DeviceChange{ComputeLimit: 150}); err != nil {
			t.Error(err)
		}
		// A node of before says no api.
		w.node("n0", "Z")
		if z := w.ask(pools.Request{Model: "Z", Compute: 1}); z.API != pool.OpenCL || w.at(z) != "n0/d0" {
			t.Errorf("of a node that says no api: %s, %+v", w.at(z), z)
		}
	})
}

// A card that both interfaces show is lent by one of them at a time, and who waits
// for one is not starved by those who use the other.
func TestOneCard(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.carded("n1")
		cuda := w.ask(pools.Request{Node: "n1", Device: "c0", Compute: 10})
		opencl := w.ask(pools.Request{Compute: 10})
		if w.at(cuda) != "n1/c0" || !strings.HasPrefix(w.at(opencl), "waits") {
			t.Fatalf("%s and %s", w.at(cuda), w.at(opencl))
		}
		again := w.ask(pools.Request{Node: "n1", Device: "c0", Compute: 10})
		if !strings.HasPrefix(w.at(again), "waits") {
			t.Errorf("one behind who waits for the other interface is at %s", w.at(again))
		}
		other := w.ask(pools.Request{API: pool.CUDA, Compute: 10})
		if w.at(other) != "n1/c1" {
			t.Errorf("another card: %s", w.at(other))
		}
		nodes, err := w.Nodes(t.Context())
		must(t, err)
		counted := ""
		for _, d := range nodes[0].Devices {
			if nodes[0].Counts(d) {
				counted += d.ID
			}
		}
		if counted != "c0c1" {
			t.Errorf("cards are counted by %s", counted)
		}
		if _, err := w.Release(w.ann, cuda.ID); err != nil {
			t.Fatal(err)
		}
		if w.at(opencl) != "n1/d0" || !strings.HasPrefix(w.at(again), "waits") {
			t.Errorf("then %s and %s", w.at(opencl), w.at(again))
		}
		n.runs(opencl.ID)
		n.runs()
		if w.at(again) != "n1/c0" {
			t.Errorf("at last %s", w.at(again))
		}
	})
}

// Whoever asks at once, of whichever process, no card is lent by both interfaces.
func TestOneCardAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.carded("n1")
		w.carded("n2")
		two := []*pools.Service{w.Service, w.another()}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for k := range 6 {
					s := two[(i+k)%2]
					r := pools.Request{API: []string{pool.CUDA, pool.OpenCL}[(i+k/2)%2], Model: "A", Compute: 30, Memory: 50, Fixed: true}
					x, err := s.Request(w.ann, r)
					for fault.KindOf(err) == fault.Conflict {
						x, err = s.Request(w.ann, r)
					}
					if err != nil {
						t.Errorf("request: %v", err)
						return
					}
					nodes, err := s.Nodes(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					for _, n := range nodes {
						if used := n.Devices; used[0].Used > 0 && used[2].Used > 0 {
							t.Errorf("%s lends its card as %s and as %s", n.ID, used[0].ID, used[2].ID)
						}
					}
					if _, err := s.Release(w.ann, x.ID); err != nil && fault.KindOf(err) != fault.Conflict {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// Programs of CUDA do not move; what moves otherwise keeps to its interface and to
// cards that are not lent by the other.
func TestCUDAMoves(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one := w.carded("n1")
		w.carded("n2")
		x := w.ask(pools.Request{Node: "n1", Device: "c1", Compute: 10, Fixed: true})
		one.runs(x.ID)
		before := w.lent()
		for _, to := range [][2]string{{"n2", ""}, {"n2", "c1"}, {"n1", "c0"}} {
			_, err := w.Move(w.ann, x.ID, to[0], to[1], 0)
			wantKind(t, err, fault.Conflict, "does not move")
		}
		if got := one.runs(x.ID); len(got.Moves) > 0 || w.lent() != before {
			t.Errorf("the node is told %+v, lent %s", got, w.lent())
		}
		one.runs() // its program has ended
		_, err := w.Move(w.ann, x.ID, "n2", "d0", 0)
		wantKind(t, err, fault.Conflict, "both must be the same")
		if _, err := w.Move(w.ann, x.ID, "n2", "", 0); err != nil || w.at(x) != "n2/c1" {
			t.Errorf("a held slice without a program: %v, %s", err, w.at(x))
		}
		y := w.ask(pools.Request{Node: "n1", Device: "d0", Compute: 10, Fixed: true})
		one.runs(y.ID)
		z := w.ask(pools.Request{Node: "n2", Device: "c0", Compute: 10, Fixed: true})
		_, err = w.Move(w.ann, y.ID, "n2", "", 0)
		wantKind(t, err, fault.Exhausted, "lent as c0")
		if _, err := w.Release(w.ann, z.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Move(w.ann, y.ID, "n2", "", 0); err != nil {
			t.Errorf("to a card that is free: %v", err)
		}
		if late := w.ask(pools.Request{Node: "n2", Device: "c0", Compute: 10}); !strings.HasPrefix(w.at(late), "waits") {
			t.Errorf("where one comes to: %s", w.at(late))
		}
	})
}

// A node that drains keeps what runs on CUDA until that ends; one that is gone gives
// what is held to another device of CUDA.
func TestCUDALeaves(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one := w.carded("n1")
		x := w.ask(pools.Request{Node: "n1", Device: "c1", Compute: 10})
		one.runs(x.ID)
		_, err := w.SetNode(w.admin, "n1", pools.Draining)
		must(t, err)
		w.round()
		if got := w.slice(x.ID); got.State != pools.Running || got.Node != "n1" || got.ToNode != "" {
			t.Errorf("while its node drains: %+v", got)
		}
		one.runs()
		w.round()
		nodes, err := w.Nodes(t.Context())
		must(t, err)
		if len(nodes) != 0 {
			t.Errorf("it has not left: %+v", nodes)
		}
		two := w.carded("n2")
		held := w.ask(pools.Request{API: pool.CUDA, Model: "B", Compute: 10, Fixed: true})
		three := w.carded("n3")
		_ = two
		w.clock.add(10 * time.Second)
		three.report()
		w.clock.add(10 * time.Second)
		w.round()
		if got := w.at(held); got != "n3/c1" {
			t.Errorf("its node is gone: %s", got)
		}
		if got := fmt.Sprint(w.slice(held.ID).API); got != pool.CUDA {
			t.Errorf("it is of %s now", got)
		}
	})
}

// A program of CUDA has several cards of one node, that of its machine: all of them or
// none, and they stay there.
func TestCUDACards(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		for i, id := range []string{"n1", "n2"} {
			n := w.node(id)
			for c := range 3 - i {
				n.Devices = append(n.Devices, pool.Device{ID: fmt.Sprintf("d%d", c), API: pool.CUDA, Model: "A", Driver: "1", Memory: 1000 << 20})
			}
			n.report()
		}
		const here = "host-n2"
		for _, c := range []struct {
			r    pools.Request
			kind fault.Kind
			says string
		}{
			{pools.Request{Cards: 2}, fault.Invalid, "host: is required with cards from 2 of the api cuda"},
			{pools.Request{Cards: 2, Across: true, Host: here}, fault.Invalid, "across_nodes: is not for the api cuda"},
			{pools.Request{Cards: 4, Fixed: true}, fault.Exhausted, "4 cards of one pool node are wanted: none has more than 3"},
			{pools.Request{Cards: 3, Host: here}, fault.Exhausted, "3 cards of one pool node are wanted: none has more than 2"},
			{pools.Request{Cards: 2, Host: "elsewhere"}, fault.NotFound, "no pool node with such a device on the program's machine, and a program of CUDA has several cards there only"},
		} {
			c.r.API, c.r.Compute, c.r.Memory = pool.CUDA, 10, 10
			_, err := w.Request(w.ann, c.r)
			wantKind(t, err, c.kind, c.says)
		}
		_, err := w.Lendable(t.Context(), pool.Shares{Tenant: "t", User: "ann", Group: "g", API: pool.CUDA, Compute: 10, Memory: 10, Cards: 2}, nil)
		wantKind(t, err, fault.Invalid, "cards: must be 1 with the api cuda, but for slices that are local: a worker computes for the programs of jobs")

		set := func(x *pools.Slice) (at []string) {
			t.Helper()
			for _, id := range w.slice(x.ID).Cards {
				at = append(at, w.at(w.slice(id)))
			}
			slices.Sort(at)
			return at
		}
		one := w.ask(pools.Request{API: pool.CUDA, Node: "n2", Device: "d0", Compute: 95, Memory: 10})
		x := w.ask(pools.Request{API: pool.CUDA, Cards: 2, Compute: 60, Memory: 10, Fixed: true, Policy: pools.Policy{Nodes: pools.Compact}}) // which would begin at n2
		if got := set(x); len(got) != 2 || !strings.HasPrefix(got[0], "n1/") || !strings.HasPrefix(got[1], "n1/") {
			t.Errorf("two of the node that has two: %v", got)
		}
		y := w.ask(pools.Request{API: pool.CUDA, Cards: 2, Compute: 60, Memory: 10, Fixed: true})
		if got := set(y); !slices.Equal(got, []string{"waits: no device that is allowed has room now", "waits: no device that is allowed has room now"}) {
			t.Errorf("two where each node has one: %v", got)
		}
		_, err = w.Release(w.ann, one.ID)
		must(t, err)
		if got := set(y); !slices.Equal(got, []string{"n2/d0", "n2/d1"}) {
			t.Errorf("with room: %v", got)
		}
		_, err = w.Release(w.ann, y.ID)
		must(t, err)
		if got := set(w.ask(pools.Request{API: pool.CUDA, Cards: 2, Compute: 40, Memory: 10, Host: here})); !slices.Equal(got, []string{"n2/d0", "n2/d1"}) {
			t.Errorf("on the program's machine: %v", got)
		}
		first := w.slice(x.ID)
		_, err = w.Move(w.admin, x.ID, "n2", "", 0)
		wantKind(t, err, fault.Conflict, "stays on pool node n1: a program of CUDA has cards of one node")
		if moved, err := w.Move(w.admin, x.ID, "n1", "", 0); err != nil || moved.Device == first.Device && moved.ToDevice == "" {
			t.Errorf("to the third card of the node: %+v, %v", moved, err)
		}
	})
}

// A set of CUDA's that waits keeps no node from others that never has room for it; is placed
// where its largest has room; and when one of its devices is gone, all of it has a place
// elsewhere.
func TestCUDACardsWait(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		add := func(id string, cards int) *played {
			n := w.node(id)
			for c := range cards {
				n.Devices = append(n.Devices, pool.Device{ID: fmt.Sprintf("d%d", c), API: pool.CUDA, Model: "A", Driver: "1", Memory: 1000 << 20})
			}
			n.report()
			return n
		}
		one := add("n1", 3)
		add("n2", 2)
		cards := func(n int64, compute int64) pools.Request {
			return pools.Request{API: pool.CUDA, Cards: n, Compute: compute, Memory: 10, Fixed: true}
		}
		where := func(x *pools.Slice) (at string) {
			t.Helper()
			for _, id := range w.slice(x.ID).Cards {
				at += w.at(w.slice(id)) + " "
			}
			return strings.TrimSpace(at)
		}
		release := func(x *pools.Slice) {
			t.Helper()
			_, err := w.Release(w.ann, x.ID)
			must(t, err)
		}
		three, more := w.ask(cards(3, 60)), w.ask(cards(3, 60))
		if got := where(more); strings.Count(got, "waits") != 3 {
			t.Fatalf("the second three: %s", got)
		}
		single := w.ask(pools.Request{API: pool.CUDA, Compute: 50, Memory: 10})
		if got := w.at(single); !strings.HasPrefix(got, "n2/") {
			t.Errorf("behind three that n2 never has: %s", got)
		}
		for _, x := range []*pools.Slice{three, more, single} {
			release(x)
		}

		// One is small and one is large, and the large one's device goes: both have a place where
		// that has room, and not where only the small one had.
		r := cards(2, 10)
		r.Policy.Nodes = pools.Compact
		two := w.ask(r)
		if got := where(two); strings.Count(got, "n1/") != 2 {
			t.Fatalf("two cards: %s", got)
		}
		ids := w.slice(two.ID).Cards
		_, err := w.Resize(w.ann, ids[1], 90, 10)
		must(t, err)
		for _, compute := range []int64{85, 75} {
			w.ask(pools.Request{API: pool.CUDA, Node: "n1", Compute: compute, Memory: 10})
		}
		large := w.slice(ids[1]).Device
		one.Devices = slices.DeleteFunc(one.Devices, func(d pool.Device) bool { return d.ID == large })
		one.report()
		if got := where(two); strings.Count(got, "n2/") != 2 {
			t.Errorf("when a device of n1 is gone: %s; lent %s", got, w.lent())
		}
	})
}
