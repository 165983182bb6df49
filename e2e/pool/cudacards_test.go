package pool_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// both are the slices of a program that has two cards, in the order in which it has them.
func (w *cudaWorld) both(name string) (a, b *poolv1.Slice) {
	w.t.Helper()
	var list []*poolv1.Slice
	w.until(name+" runs on two cards", func() bool {
		list = nil
		for _, id := range w.live()[name].GetCardSliceIds() {
			res, err := w.bench.API.AwaitSlice(w.t.Context(), &poolv1.AwaitSliceRequest{SliceId: id})
			must(w.t, err)
			if res.Slice.State != poolv1.Slice_STATE_RUNNING {
				return false
			}
			list = append(list, res.Slice)
		}
		return len(list) == 2
	})
	return list[0], list[1]
}

// TestCUDACards: a platform lends a program on its node's machine two cards, each
// bounded, resized and metered by itself; all or none; and no program elsewhere.
func TestCUDACards(t *testing.T) {
	w := openCUDA(t)
	node := w.start("n1", true)
	w.online(1)
	two := []string{"--api", "cuda", "--cards", "2", "--compute", "30", "--memory", "37MiB"}
	if out, err := w.run(append(two, "--", w.near, "linked", "cards", "1000")...); err != nil || !strings.Contains(out, ", then 101\n") ||
		strings.Count(out, "has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n") != 2 || !strings.Contains(out, "sum 6\nat the end 0, at the end 0\n") {
		t.Errorf("on two cards: %v: %s", err, out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--remote"}, "several cards, here 2, on their node's machine only: with --remote a worker computes"},
		{[]string{"--across-nodes"}, "across_nodes: is not for the api cuda"},
		{[]string{"--cards", "3"}, "3 cards of one pool node are wanted: none has more than 2"},
		{[]string{"--into", w.dir + "/into"}, "several cards, here 2, on their node's machine only: with --into and without --local only a worker computes"},
	} {
		args := append(append([]string{}, two...), c.args...)
		if c.args[0] != "--into" {
			args = append(args, "--", w.near, "linked", "cards", "1")
		}
		if out, err := w.run(args...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
	}

	// One card's memory is another's affair; what is changed of one is; each is metered.
	k := w.talk(append(two, "--", w.near, "dlsym", "hold", "37")...)
	k.expect("", "holds 0")
	k.expect("m", "more 2")
	first, second := w.both("cuda")
	if first.NodeId != "n1" || second.NodeId != "n1" || first.DeviceId == second.DeviceId {
		t.Fatalf("they are %v and %v", first, second)
	}
	w.until("what it has is told", func() bool {
		a, b := w.both("cuda")
		return a.MemoryUsedBytes == 37<<20 && b.MemoryUsedBytes == 0 && a.Programs == 1 && b.Programs == 1
	})
	_, err := w.bench.API.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: second.SliceId, MemoryMib: 50})
	must(t, err)
	k.expect("m", "more 2")
	_, err = w.bench.API.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: first.SliceId, MemoryMib: 38})
	must(t, err)
	w.until("it has more of the first", func() bool {
		_, err := io.WriteString(k.in, "m")
		must(t, err)
		return k.out.Scan() && k.out.Text() == "more 0"
	})
	must(t, k.in.Close())
	must(t, k.cmd.Wait())
	for _, x := range []*poolv1.Slice{first, second} {
		w.ended(x.SliceId)
		used, err := meteringv1connect.NewMeteringServiceClient(http.DefaultClient, w.url, w.auth).ListUsage(t.Context(), &meteringv1.ListUsageRequest{AllocationId: x.SliceId})
		if err != nil || len(used.Usage) == 0 || used.Usage[0].PackageMicroseconds <= 0 {
			t.Errorf("metered as %v, %v", used, err)
		}
	}

	// Cards that are held; one that ends, ends the program, as nothing else gives back its memory.
	held, err := w.bench.API.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 20, MemoryMib: 20, Api: "cuda", Cards: 2, Fixed: true, Name: "held"})
	must(t, err)
	if held.State != poolv1.Slice_STATE_ASSIGNED || len(held.CardSliceIds) != 2 {
		t.Fatalf("held: %v", held)
	}
	for range 2 {
		if out, err := w.run("--slice", held.SliceId, "--", w.near, "proc", "shows"); err != nil || strings.Count(out, "0000:") != 2 {
			t.Errorf("on cards that are held: %v: %s", err, out)
		}
	}
	if out, err := w.run("--slice", held.SliceId, "--remote", "--", w.far, "fill"); err == nil || !strings.Contains(out, "several cards, here 2, on their node's machine only") {
		t.Errorf("by workers: %v: %s", err, out)
	}
	if out, err := w.run("--slice", held.SliceId, "--into", w.dir+"/into"); err == nil || !strings.Contains(out, "several cards, here 2, on their node's machine only: with --into and without --local only a worker computes") {
		t.Errorf("for programs of others: %v: %s", err, out)
	}
	h := w.talk("--slice", held.SliceId, "--", w.near, "dlsym", "hold", "10")
	h.expect("", "holds 0")
	_, err = w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: held.CardSliceIds[1]})
	must(t, err)
	if err := h.cmd.Wait(); err == nil {
		t.Errorf("it goes on without a card: %s", h.errs.String())
	}
	for _, id := range held.CardSliceIds {
		w.ended(id)
	}

	// A node that is killed takes both.
	g := w.talk(append(two, "--", w.near, "proc", "hold", "5")...)
	g.expect("", "holds 0")
	first, second = w.both("cuda")
	must(t, node.Process.Kill())
	for _, x := range []*poolv1.Slice{first, second} {
		if why := w.ended(x.SliceId); !strings.Contains(why, "pool node n1 is gone") {
			t.Errorf("it ended as %q", why)
		}
	}
	_ = g.in.Close()
	_ = g.cmd.Wait() // which may end well

	// Another machine's node lends a program here one card only.
	w.start("n2", false)
	w.until("n2 is there", func() bool {
		res, err := w.bench.API.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
		must(t, err)
		return slices.ContainsFunc(res.Nodes, func(n *poolv1.PoolNode) bool { return n.NodeId == "n2" && n.Online && len(n.Devices) > 0 })
	})
	if out, err := w.run(append(two, "--", w.near, "linked", "shows")...); err == nil || !strings.Contains(out, "node's machine only") {
		t.Errorf("of a node without a socket: %v: %s", err, out)
	}
}
