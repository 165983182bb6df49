//go:build linux

package pool_test

import (
	"io"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// small is a card with less memory than its tasks have together.
func small(t *testing.T, concurrent ...string) node {
	return start(t, pool.NodeConfig{Memory: 32 * mib, MemoryOver: 300, Concurrent: concurrent})
}

// swapped waits until a task's memory was taken off the card a few times more.
func swapped(t *testing.T, at, task string, times int64) {
	t.Helper()
	c := dial(t, at)
	for from := int64(-1); t.Context().Err() == nil; {
		tasks, err := c.Tasks()
		if err != nil {
			t.Fatal(err)
		}
		var there bool
		for _, k := range tasks {
			if k.ID != task {
				continue
			}
			if there = true; from < 0 {
				from = k.Swaps
			}
			if k.Resident > k.Used || k.Used > k.Memory {
				t.Errorf("%d bytes on the card, of %d, of %d", k.Resident, k.Used, k.Memory)
			}
			if k.Swaps >= from+times {
				return
			}
		}
		if !there {
			t.Fatal("the task has ended")
		}
		d, err := c.Devices()
		if err != nil || d[0].Resident > d[0].Memory {
			t.Fatalf("on the card: %+v, %v", d, err)
		}
		<-time.After(5 * time.Millisecond) // the node is asked, not told
	}
}

// TestSwap: programs that have more memory together than the card has compute
// side by side, each step of theirs is right, in turns and beside each other.
func TestSwap(t *testing.T) {
	t.Parallel()
	for name, concurrent := range map[string][]string{"in turns": nil, "beside each other": {"opencl-0"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := small(t, concurrent...)
			var walkers []*walker
			var tasks []string
			for _, at := range []string{n.unix, n.tcp} { // whose buffers are shared with the program at first, and are not
				task, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 50, Weighted: true, Memory: 32 * mib})
				walkers, tasks = append(walkers, walk(t, run("walk", "25"))), append(tasks, task.ID)
			}
			if d, err := dial(t, n.unix).Devices(); err != nil || d[0].Allotted != 64*mib || d[0].Memory != 32*mib || d[0].Concurrent != (concurrent != nil) {
				t.Errorf("shown as %+v, %v", d, err)
			}
			for _, id := range tasks {
				swapped(t, n.unix, id, 3)
			}
			for _, w := range walkers {
				w.end()
			}
		})
	}
}

// TestSwapHeld: a program whose commands wait for events that it has not set gives
// all memory to others but what those name.
func TestSwapHeld(t *testing.T) {
	t.Parallel()
	n := small(t)
	spec := pool.Spec{Device: "opencl-0", Compute: 50, Weighted: true, Memory: 32 * mib}
	task, run := share(t, n.tcp, spec)
	_, other := share(t, n.tcp, spec)
	in, out := converse(t, run(movesProgram(t), "gates", "20"))
	w := walk(t, other("walk", "20"))
	for range 2 {
		for _, want := range []string{"held\n", "held\n", "set\n"} {
			if line, err := out.ReadString('\n'); line != want {
				t.Fatalf("it said %q, not %q: %v\n%s", line, want, err, n.log)
			}
			swapped(t, n.tcp, task.ID, 2)
			_, _ = io.WriteString(in, "\n")
		}
	}
	_, _ = io.WriteString(in, "xxx")
	w.end()
}

// TestSwapRefused: a task has at most what the card has, and all together what
// the node lends; what a program makes beyond that fails as without others.
func TestSwapRefused(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Memory: 64 * mib, MemoryOver: 150})
	client := dial(t, n.unix)
	if _, _, err := client.Run(pool.Spec{Compute: 10, Memory: 65 * mib}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("more than the card: %v", err)
	}
	task, run := share(t, n.unix, pool.Spec{Compute: 30, Memory: 60 * mib})
	_, other := share(t, n.unix, pool.Spec{Compute: 30}) // what is left
	if _, _, err := client.Run(pool.Spec{Compute: 10, Memory: mib}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("more than is lent: %v", err)
	}
	if got := output(t, run("fill", "100")); got != "buffers 60 error -4\n" {
		t.Errorf("%q", got)
	}
	w := walk(t, run("walk", "40"))
	if got := output(t, other("fill", "100")); got != "buffers 36 error -4\n" {
		t.Errorf("beside one whose memory is in the way: %q", got)
	}
	if _, err := client.Resize(task.ID, 0, 61*mib); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("resized beyond what is lent: %v", err)
	}
	w.end()
}

// TestSwapAmidst: what else happens to programs happens while their memory goes
// to and fro: they are resized, killed, cut off and moved, and each step is right.
func TestSwapAmidst(t *testing.T) {
	t.Parallel()
	a, b := small(t), small(t)
	spec := pool.Spec{Device: "opencl-0", Compute: 33, Memory: 30 * mib}
	stays, runStays := share(t, a.tcp, spec)
	goes, runGoes := share(t, a.tcp, spec)
	staying, going := walk(t, runStays("walk", "20")), walk(t, runGoes("walk", "20"))
	swapped(t, a.tcp, stays.ID, 1)

	client := dial(t, a.tcp)
	for range 2 { // one that is killed, whatever is done with its memory just then
		task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 25 * mib})
		dying := walk(t, run("walk", "20"))
		_ = dying.cmd.Process.Kill()
		_ = dying.cmd.Wait() // it was killed
		for held := true; held; {
			tasks, err := client.Tasks()
			if err != nil {
				t.Fatal(err)
			}
			held = false
			for _, k := range tasks {
				held = held || k.ID == task.ID && (k.Programs > 0 || k.Used > 0 || k.Resident > 0)
			}
		}
		if err := client.Stop(task.ID); err != nil {
			t.Error(err)
		}
	}
	if k, err := client.Resize(stays.ID, 40, 25*mib); err != nil || k.Memory != 25*mib {
		t.Errorf("resized to %+v, %v", k, err)
	}
	swapped(t, a.tcp, stays.ID, 1)
	at, to := a.tcp, b.tcp
	for i := range 2 {
		if _, _, err := dial(t, at).Migrate(goes.ID, to, ""); err != nil {
			t.Fatalf("move %d: %v\n%s\n%s", i, err, a.log, b.log)
		}
		if at, to = to, at; at == a.tcp {
			swapped(t, a.tcp, goes.ID, 1)
		}
	}
	going.end()
	staying.end()
}
