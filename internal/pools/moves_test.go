package pools_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// at is where a slice is, and where it moves to.
func at(x *pools.Slice) string {
	out := x.Node + "/" + x.Device
	if x.ToNode != "" {
		out += " > " + x.ToNode + "/" + x.ToDevice
	}
	return out
}

// A slice that moves has a place at both nodes until it is there; it is metered
// once, and what is asked again changes nothing.
func TestMove(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one, two := w.node("n1", "A"), w.node("n2", "A", "B")
		x := w.ask(pools.Request{Compute: 60, Node: "n1"})
		one.runs(x.ID)
		two.runs("slice_of_before")
		_, err := w.Move(w.ann, x.ID, "n2", "", 0)
		wantKind(t, err, fault.Conflict, "it ends what was taken back there")
		two.runs()
		for range 2 {
			got, err := w.Move(w.ann, x.ID, "n2", "", 0)
			must(t, err)
			if at(got) != "n1/d0 > n2/d0" || w.lent() != "n1/d0=60 n2/d0=60 n2/d1=0" {
				t.Fatalf("it moves as %s, lent %s", at(got), w.lent())
			}
		}
		if _, a, err := w.Await(w.ann, x.ID, 0); err != nil || a != nil {
			t.Errorf("while it moves there is a ticket: %v, %v", a, err)
		}
		_, err = w.Resize(w.ann, x.ID, 70, 0)
		wantKind(t, err, fault.Conflict, "is being moved")
		_, err = w.Move(w.ann, x.ID, "n1", "d0", 0)
		wantKind(t, err, fault.Conflict, "is being moved to n2/d0")
		got := one.report()
		if len(got.Moves) != 1 || got.Moves[0].Slice != x.ID || got.Moves[0].Addresses[0] != "tcp:n2:7420" || got.Moves[0].Ticket == "" || len(got.End) > 0 {
			t.Fatalf("its node is told %+v", got)
		}
		if again := two.report(); len(again.Moves) != 0 || len(again.End) != 0 {
			t.Errorf("the other is told %+v", again)
		}
		w.clock.add(time.Minute)
		one.Moved = []pool.Moved{{Slice: x.ID, ID: got.Moves[0].ID, Pause: 3 * time.Millisecond}}
		one.runs() // it has gone
		if got := w.slice(x.ID); got.State != pools.Running || at(got) != "n1/d0 > n2/d0" {
			t.Errorf("between the nodes it is %s, %v", at(got), got.State)
		}
		two.runs(x.ID)
		if got := w.slice(x.ID); at(got) != "n1/d0 > n2/d0" {
			t.Errorf("on a device that nobody named it is %s", at(got))
		}
		two.Tasks = []pool.Task{{Slice: x.ID, Device: "d0", Busy: time.Second}}
		if got := two.report(); len(got.End) != 0 || len(got.Slices) != 1 {
			t.Errorf("there the node is told %+v", got)
		}
		if got := w.slice(x.ID); at(got) != "n2/d0" || got.Pause != 3*time.Millisecond || w.lent() != "n1/d0=0 n2/d0=60 n2/d1=0" {
			t.Errorf("it is %+v, lent %s", got, w.lent())
		}
		w.clock.add(time.Minute)
		_, err = w.Release(w.ann, x.ID)
		must(t, err)
		records, _, err := w.meter.List(t.Context(), metering.Filter{AllocationID: x.ID}, 10, "")
		must(t, err)
		sum := int64(0)
		for _, r := range records {
			sum += r.PackageMicros
		}
		if want := (72 * time.Second).Microseconds(); len(records) != 2 || sum < want || sum > want+1_000_000 {
			t.Errorf("metered %d µs in %d records", sum, len(records))
		}
		// What no program uses is elsewhere at once.
		held := w.ask(pools.Request{Compute: 10, Node: "n1", Fixed: true})
		if got, err := w.Move(w.ann, held.ID, "n2", "d0", 0); err != nil || at(got) != "n2/d0" || w.lent() != "n1/d0=0 n2/d0=10 n2/d1=0" {
			t.Errorf("held: %v, %v, lent %s", got, err, w.lent())
		}
		// On one node from device to device.
		three := w.node("n3", "A", "A")
		y := w.ask(pools.Request{Compute: 20, Node: "n3", Device: "d0"})
		three.runs(y.ID)
		if got, err := w.Move(w.ann, y.ID, "n3", "", 0); err != nil || at(got) != "n3/d0 > n3/d1" {
			t.Errorf("on one node: %v, %v", got, err)
		}
		moves := three.runs(y.ID)
		if len(moves.Moves) != 1 || len(moves.Moves[0].Addresses) != 0 {
			t.Fatalf("its node is told %+v", moves)
		}
		three.Tasks = []pool.Task{{Slice: y.ID, Device: "d1"}}
		three.report()
		if got := w.slice(y.ID); at(got) != "n3/d1" {
			t.Errorf("it is %s", at(got))
		}
		// No program was there any more: who waits hears at once that it has moved.
		three.Moved = []pool.Moved{{Slice: y.ID, ID: moves.Moves[0].ID}}
		three.report()
		began := time.Now()
		if got, err := w.Move(w.ann, y.ID, "n3", "d1", 5*time.Second); err != nil || at(got) != "n3/d1" || time.Since(began) > 4*time.Second {
			t.Errorf("after %s: %v, %v", time.Since(began), got, err)
		}
	})
}

// What speaks against a move is said; a move that fails leaves the slice where it
// was, one that is cut off does not keep two places.
func TestMoveFails(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one, two := w.node("n1", "A"), w.node("n2", "A", "B")
		x := w.ask(pools.Request{Compute: 60, Node: "n1"})
		_, err := w.Move(w.bob, x.ID, "n2", "", 0)
		wantKind(t, err, fault.NotFound, "no slice")
		one.runs(x.ID)
		_, err = w.Move(w.ann, x.ID, "", "", time.Hour)
		wantKind(t, err, fault.Invalid, "wait_ms")
		for _, c := range []struct {
			device string
			before func()
			kind   fault.Kind
			says   string
		}{
			{"d9", func() {}, fault.NotFound, "no device \"d9\""},
			{"d1", func() {}, fault.Conflict, "both must be the same"},
			{"", func() { two.Version = "2"; two.report() }, fault.Conflict, "of one version"},
			{"", func() {
				two.Version = "1"
				two.report()
				_, err = w.SetNode(w.admin, "n2", pools.Disabled)
				must(t, err)
			}, fault.Conflict, "is disabled or leaves"},
			{"", func() {
				_, err = w.SetNode(w.admin, "n2", pools.Enabled)
				must(t, err)
				_, err = w.SetDevice(w.admin, "n2", "d0", pools.DeviceChange{Disabled: new(true)})
				must(t, err)
			}, fault.Conflict, "disabled or gone"},
			{"d0", func() {
				_, err = w.SetDevice(w.admin, "n2", "d0", pools.DeviceChange{Disabled: new(false), Physical: new(true)})
				must(t, err)
			}, fault.Conflict, "virtualization"},
			{"d0", func() {
				_, err = w.SetDevice(w.admin, "n2", "d0", pools.DeviceChange{Physical: new(false)})
				must(t, err)
				w.ask(pools.Request{Compute: 50, Node: "n2", Device: "d0", Fixed: true})
			}, fault.Exhausted, "has 50% and 990 MiB left, 60% and 10 MiB are wanted"},
		} {
			c.before()
			_, err := w.Move(w.ann, x.ID, "n2", c.device, 0)
			wantKind(t, err, c.kind, c.says)
		}
		_, err = w.SetDevice(w.admin, "n2", "d0", pools.DeviceChange{ComputeLimit: 200})
		must(t, err)
		begin := func() string {
			t.Helper()
			_, err := w.Move(w.ann, x.ID, "n2", "d0", 0)
			must(t, err)
			got := one.report()
			if len(got.Moves) != 1 {
				t.Fatalf("its node is told %+v", got)
			}
			return got.Moves[0].ID
		}
		id := begin()
		one.Moved = []pool.Moved{{Slice: x.ID, ID: "move_other", Error: "of another"}}
		one.report()
		if got := w.slice(x.ID); got.ToNode != "n2" {
			t.Errorf("another move's end ended this: %s", at(got))
		}
		one.Moved = []pool.Moved{{Slice: x.ID, ID: id, Error: "no room"}}
		one.report()
		one.Moved = nil
		if got := w.slice(x.ID); at(got) != "n1/d0" || got.State != pools.Running || got.MoveError != "no room" || w.lent() != "n1/d0=60 n2/d0=50 n2/d1=0" {
			t.Errorf("after it failed: %+v, lent %s", got, w.lent())
		}
		// It leaves and does not come.
		begin()
		one.runs()
		w.clock.add(16 * time.Second)
		one.report()
		two.report()
		w.round()
		if got := w.slice(x.ID); got.State != pools.Ended || !strings.Contains(got.Reason, "did not come to pool node n2") || w.lent() != "n1/d0=0 n2/d0=50 n2/d1=0" {
			t.Errorf("lost: %+v, lent %s", got, w.lent())
		}
		if got := two.runs(x.ID); len(got.End) != 1 {
			t.Errorf("it comes late, and the node is told %+v", got)
		}
		two.runs()
		// Its node starts anew, or is gone, while it moves.
		for _, gone := range []func(){
			func() { one.Boot, one.Sequence = "another", 0; one.runs() },
			func() { one.Stopping = true; one.report(); w.clock.add(2 * time.Second); two.report(); w.round() },
		} {
			x = w.ask(pools.Request{Compute: 60, Node: "n1"})
			one.runs(x.ID)
			begin()
			gone()
			if got := w.slice(x.ID); got.State != pools.Ended || w.lent() != "n1/d0=0 n2/d0=50 n2/d1=0" {
				t.Errorf("its node was away: %+v, lent %s", got, w.lent())
			}
		}
	})
}

// A card whose virtualization is off is given whole, to one; it is switched while
// nobody has any of it.
func TestPhysical(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.group(pools.Group{ID: "tight", MemoryLimit: 999})
		n := w.node("n1", "A", "B")
		_, err := w.Request(w.ann, pools.Request{Group: "g", Physical: true})
		wantKind(t, err, fault.NotFound, "the virtualization of all is on")
		_, err = w.Request(w.ann, pools.Request{Group: "g", Physical: true, Memory: 5})
		wantKind(t, err, fault.Invalid, "physical")
		part := w.ask(pools.Request{Group: "g", Compute: 10, Device: "d0", Node: "n1", Fixed: true})
		_, err = w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{Physical: new(true)})
		wantKind(t, err, fault.Conflict, "has 1 slices")
		_, err = w.Release(w.ann, part.ID)
		must(t, err)
		_, err = w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{Physical: new(true)})
		must(t, err)
		_, err = w.Request(w.ann, pools.Request{Group: "g", Compute: 10, Memory: 10, Node: "n1", Device: "d0"})
		wantKind(t, err, fault.NotFound, "the virtualization of all is off")
		tight, err := w.Request(w.ann, pools.Request{Group: "tight", Physical: true, Fixed: true})
		must(t, err)
		if tight.State != pools.Waiting || !strings.Contains(tight.Reason, "1000 MiB of a whole card") {
			t.Errorf("beyond the quota: %+v", tight)
		}
		card, err := w.Request(w.ann, pools.Request{Group: "g", Physical: true})
		must(t, err)
		next, err := w.Request(w.ann, pools.Request{Group: "g", Physical: true})
		must(t, err)
		if card.State != pools.Assigned || card.Compute != 100 || card.Memory != 1000 || card.Device != "d0" || next.State != pools.Waiting || w.lent() != "n1/d0=100 n1/d1=0" {
			t.Errorf("got %+v and %+v, lent %s", card, next, w.lent())
		}
		_, err = w.Resize(w.ann, card.ID, 50, 0)
		wantKind(t, err, fault.Conflict, "is a whole card")
		n.runs(card.ID)
		n.runs()
		if got := w.slice(next.ID); got.State != pools.Assigned {
			t.Errorf("the next: %+v", got)
		}
		// A card that is shown no more goes when what runs there has ended.
		x := w.ask(pools.Request{Group: "g", Compute: 10, Model: "B"})
		n.Devices = n.Devices[:1]
		n.runs(next.ID, x.ID)
		if w.lent() != "n1/d0=100 n1/d1=10" || w.slice(x.ID).State != pools.Running {
			t.Errorf("while it is used: lent %s", w.lent())
		}
		n.runs(next.ID)
		n.report()
		if w.lent() != "n1/d0=100" {
			t.Errorf("when it is used no more: lent %s", w.lent())
		}
	})
}

// Slices of an affinity are on one device, those of an anti-affinity on different
// ones.
func TestAffinity(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.group(pools.Group{ID: "h"})
		w.node("n1", "A", "A")
		n := w.node("n2", "A")
		for _, d := range [][2]string{{"n1", "d0"}, {"n1", "d1"}, {"n2", "d0"}} {
			_, err := w.SetDevice(w.admin, d[0], d[1], pools.DeviceChange{ComputeLimit: 200})
			must(t, err)
		}
		first := w.ask(pools.Request{Group: "g", Compute: 100, Affinity: "pair", Fixed: true})
		second := w.ask(pools.Request{Group: "g", Compute: 100, Affinity: "pair", Fixed: true})
		third := w.ask(pools.Request{Group: "g", Compute: 100, Affinity: "pair"})
		other := w.ask(pools.Request{Group: "h", Compute: 100, Affinity: "pair"})
		if at(first) != at(second) || third.State != pools.Waiting || other.State != pools.Assigned || at(other) == at(first) {
			t.Errorf("of one affinity: %s %s, %v, of another group %s", at(first), at(second), third.State, at(other))
		}
		_, err := w.Move(w.ann, second.ID, "n2", "", 0)
		wantKind(t, err, fault.Conflict, "affinity")
		seen := map[string]bool{}
		for range 3 {
			x := w.ask(pools.Request{Group: "g", Compute: 1, Anti: "apart", Weighted: true, Fixed: true})
			seen[at(x)] = true
		}
		if last := w.ask(pools.Request{Group: "g", Compute: 1, Anti: "apart", Fixed: true}); len(seen) != 3 || last.State != pools.Waiting {
			t.Errorf("of one anti-affinity: %v, the fourth %v", seen, last.State)
		}
		n.report()
	})
}

// A slice that is held and whose program ends while it moves stays where it is, and
// can be used and moved again.
func TestMoveOfHeldEnds(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one := w.node("n1", "A")
		w.node("n2", "A")
		for _, ends := range []func(id string){
			func(id string) { one.Ended = []pool.EndedTask{{Slice: id, Reason: "its program ended"}}; one.runs() },
			func(string) { one.Boot, one.Sequence = "another", 0; one.runs() },
		} {
			x := w.ask(pools.Request{Compute: 60, Node: "n1", Fixed: true})
			one.runs(x.ID)
			_, err := w.Move(w.ann, x.ID, "n2", "", 0)
			must(t, err)
			one.report()
			ends(x.ID)
			got, a, err := w.Await(w.ann, x.ID, 0)
			if err != nil || got.State != pools.Assigned || at(got) != "n1/d0" || got.MoveError == "" || a == nil || w.lent() != "n1/d0=60 n2/d0=0" {
				t.Errorf("its program ended: %s %+v, %v, %v, lent %s", at(got), got, a, err, w.lent())
			}
			if got, err := w.Move(w.ann, x.ID, "n2", "", 0); err != nil || at(got) != "n2/d0" {
				t.Errorf("moved again: %v, %v", got, err)
			}
			_, err = w.Release(w.ann, x.ID)
			must(t, err)
		}
	})
}

// What has left its node comes to the other, also if the node starts anew meanwhile.
func TestMoveOutlivesNode(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one, two := w.node("n1", "A"), w.node("n2", "A")
		for _, fixed := range []bool{false, true} {
			x := w.ask(pools.Request{Compute: 60, Node: "n1", Fixed: fixed})
			one.runs(x.ID)
			_, err := w.Move(w.ann, x.ID, "n2", "", 0)
			must(t, err)
			one.Moved = []pool.Moved{{Slice: x.ID, ID: one.report().Moves[0].ID, Pause: time.Millisecond}}
			one.runs()
			one.Moved = nil
			one.Boot, one.Sequence = one.Boot+"x", 0
			one.runs()
			two.Tasks = []pool.Task{{Slice: x.ID, Device: "d0"}}
			if told := two.report(); len(told.End) > 0 {
				t.Errorf("where it has come to it is to end: %+v", told)
			}
			if got := w.slice(x.ID); got.State != pools.Running || at(got) != "n2/d0" {
				t.Errorf("fixed %v: it is %v at %s: %s", fixed, got.State, at(got), got.Reason)
			}
			_, err = w.Release(w.ann, x.ID)
			must(t, err)
			two.runs()
		}
	})
}

// Who is to be beside a slice that moves waits until it is there.
func TestAffinityMoves(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one, two := w.node("n1", "A"), w.node("n2", "A")
		x := w.ask(pools.Request{Compute: 40, Node: "n1", Affinity: "pair"})
		one.runs(x.ID)
		_, err := w.Move(w.ann, x.ID, "n2", "", 0)
		must(t, err)
		y := w.ask(pools.Request{Compute: 40, Affinity: "pair", Fixed: true})
		one.report()
		two.Tasks = []pool.Task{{Slice: x.ID, Device: "d0"}}
		two.report()
		if x, y = w.slice(x.ID), w.slice(y.ID); at(x) != "n2/d0" || at(y) != "n2/d0" {
			t.Errorf("of one affinity are %s and %s (%v)", at(x), at(y), y.State)
		}
	})
}

// A whole card that is given anew may be one of less memory.
func TestPhysicalAnew(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one, two := w.node("n1", "A"), w.node("n2", "A")
		two.Devices[0].Memory = 600 << 20
		two.report()
		for _, n := range []string{"n1", "n2"} {
			_, err := w.SetDevice(w.admin, n, "d0", pools.DeviceChange{Physical: new(true), Disabled: new(n == "n2")})
			must(t, err)
		}
		x, err := w.Request(w.ann, pools.Request{Physical: true, Fixed: true})
		must(t, err)
		if at(x) != "n1/d0" || x.Memory != 1000 {
			t.Fatalf("placed at %s with %d MiB", at(x), x.Memory)
		}
		_, err = w.SetDevice(w.admin, "n2", "d0", pools.DeviceChange{Disabled: new(false)})
		must(t, err)
		one.Stopping = true
		one.report()
		w.clock.add(2 * time.Second)
		two.report()
		w.round()
		if got := w.slice(x.ID); at(got) != "n2/d0" || got.Memory != 600 {
			t.Errorf("anew it is %v at %s with %d MiB: %s", got.State, at(got), got.Memory, got.Reason)
		}
	})
}

// A slice does not move to a device that has less memory than it, however much that
// lends.
func TestMoveToLess(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A")
		two := w.node("n2", "A")
		two.Devices[0].Memory = 600 << 20
		two.report()
		_, err := w.SetDevice(w.admin, "n2", "d0", pools.DeviceChange{MemoryRatio: 200})
		must(t, err)
		x := w.ask(pools.Request{Compute: 10, Memory: 700, Fixed: true})
		if at(x) != "n1/d0" {
			t.Fatalf("placed at %s", at(x))
		}
		_, err = w.Move(w.ann, x.ID, "n2", "", 0)
		wantKind(t, err, fault.Exhausted, "device d0 of pool node n2 has 600 MiB of memory, 700 MiB are wanted")
	})
}

// A whole card that moves is all of the other, which may have more memory, if its group
// may have that.
func TestPhysicalMoves(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", MemoryLimit: 1599})
		one, two := w.node("n1", "A"), w.node("n2", "A")
		two.Devices[0].Memory = 1600 << 20
		two.report()
		for _, n := range []string{"n1", "n2"} {
			_, err := w.SetDevice(w.admin, n, "d0", pools.DeviceChange{Physical: new(true)})
			must(t, err)
		}
		memory := func() (out []int64) {
			t.Helper()
			nodes, err := w.Nodes(t.Context())
			must(t, err)
			groups, err := w.Groups(w.ann)
			must(t, err)
			return []int64{nodes[0].Devices[0].MemoryLent, nodes[1].Devices[0].MemoryLent, groups[0].MemoryLent}
		}
		for _, runs := range []bool{false, true} {
			w.group(pools.Group{ID: "g", MemoryLimit: 1599})
			x, err := w.Request(w.ann, pools.Request{Physical: true, Node: "n1", Fixed: true})
			must(t, err)
			if runs {
				one.runs(x.ID)
			}
			_, err = w.Move(w.ann, x.ID, "n2", "", 0)
			wantKind(t, err, fault.Exhausted, "group g has too little of its quota left for 1600 MiB of a whole card: 1000 MiB are lent")
			w.group(pools.Group{ID: "g", MemoryLimit: 1600})
			_, err = w.Move(w.ann, x.ID, "n2", "", 0)
			must(t, err)
			if runs {
				one.runs()
				two.Tasks = []pool.Task{{Slice: x.ID, Device: "d0"}}
				if told := two.report(); len(told.Slices) != 1 || told.Slices[0].Memory != 1600<<20 {
					t.Errorf("where it has come to it is to have %+v", told.Slices)
				}
			}
			if got := w.slice(x.ID); at(got) != "n2/d0" || got.Memory != 1600 || !slices.Equal(memory(), []int64{0, 1600, 1600}) {
				t.Errorf("runs %v: it is at %s with %d MiB, lent %v", runs, at(got), got.Memory, memory())
			}
			_, err = w.Release(w.ann, x.ID)
			must(t, err)
			if two.runs(); !slices.Equal(memory(), []int64{0, 0, 0}) {
				t.Errorf("runs %v: lent %v when it is released", runs, memory())
			}
		}
		// Others of its group may have taken what is left while it moved.
		w.group(pools.Group{ID: "g", MemoryLimit: 1700})
		three := w.node("n3", "B")
		x, err := w.Request(w.ann, pools.Request{Physical: true, Node: "n1"})
		must(t, err)
		one.runs(x.ID)
		_, err = w.Move(w.ann, x.ID, "n2", "", 0)
		must(t, err)
		w.ask(pools.Request{Compute: 1, Memory: 200, Model: "B", Fixed: true})
		one.runs()
		two.Tasks = []pool.Task{{Slice: x.ID, Device: "d0"}}
		two.report()
		if got := w.slice(x.ID); at(got) != "n2/d0" || got.Memory != 1000 || !slices.Equal(memory(), []int64{0, 1000, 1200}) {
			t.Errorf("it is at %s with %d MiB, lent %v", at(got), got.Memory, memory())
		}
		three.report()
	})
}

// What is held, and whose program was lost on its way to another device, is placed anew.
func TestMoveOfHeldLost(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		one, two := w.node("n1", "A"), w.node("n2", "A")
		x := w.ask(pools.Request{Compute: 60, Node: "n1", Fixed: true})
		one.runs(x.ID)
		_, err := w.Move(w.ann, x.ID, "n2", "", 0)
		must(t, err)
		one.report()
		one.runs() // it has gone
		w.clock.add(16 * time.Second)
		one.report()
		two.report()
		w.round()
		if got := w.slice(x.ID); got.State != pools.Assigned || at(got) != "n1/d0" || w.lent() != "n1/d0=60 n2/d0=0" {
			t.Errorf("it is %v at %s: %s; lent %s", got.State, at(got), got.Reason, w.lent())
		}
	})
}
