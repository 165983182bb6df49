//go:build linux

package pool_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// A stand-in has a card of 8 GiB, which processes share by a file.
const paged = 6 << 30

// TestCUDAPages: programs have more memory than the card together, where the node lends
// more of it. What the driver has moved to the host for one is on the card again before
// the other computes, and kernels never wait for it; all comes out right.
func TestCUDAPages(t *testing.T) {
	n := startCUDAOf(t, pool.NodeConfig{MemoryOver: 150}, "cuda")
	card := "FAKE_CARD=" + filepath.Join(t.TempDir(), "card")
	// The card has no room for both.
	native := func(mib string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), n.program, "proc", "hold", mib)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+n.driver, card)
		return cmd
	}
	first := hold(t, native("6144"))
	if got := first.line(t); got != "holds 0" {
		t.Fatal(got)
	}
	if got := output(t, native("6144")); !strings.HasPrefix(got, "holds 2\n") {
		t.Fatalf("the card has room for two programs: %s", got)
	}
	_ = first.in.Close()
	_ = first.cmd.Wait()

	type one struct {
		*holding
		errs bytes.Buffer
	}
	start := func(way string) *one {
		_, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: paged})
		cmd := run(way, "paged", "6144", "1.5")
		cmd.Env = append(cmd.Env, card)
		x := &one{}
		cmd.Stderr = &x.errs
		x.holding = hold(t, cmd)
		return x
	}
	programs := []*one{start("proc"), start("dlsym")}
	if _, _, err := dial(t, n.unix).Run(pool.Spec{Device: "cuda-0", Compute: 1, Memory: mib}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("more than 150%% of the card: %v", err)
	}
	for _, x := range programs {
		if got, want := x.line(t), "has 6144 of 6144, 0 free"; got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	for _, x := range programs {
		fmt.Fprint(x.in, "g")
	}
	for _, x := range programs {
		if got, want := x.line(t), "right, 0 left"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for i, x := range programs {
		if err := x.cmd.Wait(); err != nil {
			t.Error(err)
		}
		fetched, faults := 0, 0
		if _, err := fmt.Sscanf(x.errs.String(), "fake card: %d fetched, %d faults", &fetched, &faults); err != nil {
			t.Fatalf("%v: %q", err, &x.errs)
		}
		// All was fetched again and again, 24 sections each time, before a kernel came to it.
		if fetched < 2*24 || faults > 0 {
			t.Errorf("program %d: %d sections were fetched, kernels waited for %d", i, fetched, faults)
		}
	}
}

// TestCUDABounded: a node that bounds what is used of its cards lends that and no more, as
// the driver knows of no bound.
func TestCUDABounded(t *testing.T) {
	n := startCUDAOf(t, pool.NodeConfig{MemoryOver: 150, Memory: 1 << 30}, "cuda")
	_, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 1 << 30})
	if _, _, err := dial(t, n.unix).Run(pool.Spec{Device: "cuda-0", Compute: 1, Memory: mib}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("more than the bound: %v", err)
	}
	if got := output(t, run("proc", "fill")); got != "filled 1024, error 2\nagain 0 2\n" {
		t.Error(got)
	}
}

// TestCUDAPagesRemote: so it is for programs elsewhere, whose workers have the driver: of
// memory that stays on the card there is 1 GiB here, as others have the rest.
func TestCUDAPagesRemote(t *testing.T) {
	for over, want := range map[int64]string{100: "cuMemAlloc: error 2", 150: "has 6144 of 6144, 0 free"} {
		n := startRemoteOf(t, pool.NodeConfig{MemoryOver: over}, "-DFIXED=(1UL<<30)")
		var run []*holding
		for i := range 2 {
			if over == 100 && i > 0 {
				break
			}
			_, start := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 50, Memory: paged})
			cmd := start("proc", "paged", "6144", "0.5")
			cmd.Path = n.program
			h := hold(t, cmd)
			if got := h.line(t); got != want {
				t.Fatalf("with %d%%: %q, want %q", over, got, want)
			}
			run = append(run, h)
		}
		if over == 100 {
			continue
		}
		for _, h := range run {
			fmt.Fprint(h.in, "g")
		}
		for _, h := range run {
			if got := h.line(t); got != "right, 0 left" {
				t.Errorf("with %d%%: %q", over, got)
			}
		}
	}
}

// TestCUDAPagesKilled: a program is killed while both fetch by turns; its neighbor goes on.
func TestCUDAPagesKilled(t *testing.T) {
	n := startCUDAOf(t, pool.NodeConfig{MemoryOver: 150}, "cuda")
	card := "FAKE_CARD=" + filepath.Join(t.TempDir(), "card")
	var programs []*holding
	for range 2 {
		_, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: paged})
		cmd := run("proc", "paged", "6144", "1")
		cmd.Env = append(cmd.Env, card)
		h := hold(t, cmd)
		if got, want := h.line(t), "has 6144 of 6144, 0 free"; got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		programs = append(programs, h)
	}
	for _, h := range programs {
		fmt.Fprint(h.in, "g")
	}
	<-time.After(300 * time.Millisecond)
	_ = programs[0].cmd.Process.Kill()
	_ = programs[0].cmd.Wait()
	if got := programs[1].line(t); got != "right, 0 left" {
		t.Error(got)
	}
}
