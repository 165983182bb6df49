package pool_test

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// TestHeld: programs that are started on one held slice share it, also while it moves
// and when one of them is killed; it stays when all have ended, and all end with it.
func TestHeld(t *testing.T) {
	w := open(t, false)
	w.lend(w.vendors("one", "pocl.icd"), "n1", "n2")
	held, err := w.bench.API.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{GroupId: "g", ComputePercent: 40, MemoryMib: 64, NodeId: "n1", Fixed: true})
	must(t, err)
	slice := func() *poolv1.Slice {
		t.Helper()
		res, err := w.bench.API.AwaitSlice(t.Context(), &poolv1.AwaitSliceRequest{SliceId: held.SliceId})
		must(t, err)
		return res.Slice
	}
	command := func(args ...string) *exec.Cmd {
		return w.bench.Yunhe(context.WithoutCancel(t.Context()), "", nil, append([]string{"pool", "run", "--platform", "--slice", held.SliceId, "--", w.bench.Program}, args...)...)
	}
	walks := func() *talk {
		t.Helper()
		k := talkTo(t, command("walk", "4"))
		k.expect("", "walking")
		return k
	}
	ends := func(k *talk, how string) {
		t.Helper()
		must(t, k.in.Close())
		if !k.out.Scan() || !regexp.MustCompile(`^walked [1-9]`).MatchString(k.out.Text()) {
			t.Errorf("%s: %q, %s", how, k.out.Text(), k.errs.String())
		}
		if err := k.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}

	a, b, c := walks(), walks(), walks()
	w.until("three programs are told of", func() bool { return slice().Programs == 3 })
	out, err := command("fill", "100").CombinedOutput()
	if err != nil || !regexp.MustCompile(`^buffers ([0-9]|[1-5][0-9]) error -4\n$`).Match(out) {
		t.Errorf("beside programs that have some of 64 MiB, one has %q, %v", out, err)
	}
	if x := w.moved(held.SliceId, "n2"); x.NodeId != "n2" || x.MoveError != "" {
		t.Fatalf("moved: %v", x)
	}
	d := walks()
	must(t, a.cmd.Process.Kill())
	w.until("the killed one is gone", func() bool { return slice().Programs == 3 })
	ends(b, "one that moved, after another was killed")
	ends(d, "one that came after the move")
	w.until("one is left", func() bool { return slice().Programs == 1 })
	ends(c, "the last one")
	w.until("it is held and nothing runs", func() bool { return slice().State == poolv1.Slice_STATE_ASSIGNED })

	a, b = walks(), walks()
	_, err = w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: held.SliceId})
	must(t, err)
	for _, k := range []*talk{a, b} {
		if err := k.cmd.Wait(); err == nil || !strings.Contains(k.errs.String(), "released") {
			t.Errorf("of a slice that was released: %v, %s", err, k.errs.String())
		}
	}
}
