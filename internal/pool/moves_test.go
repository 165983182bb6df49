//go:build linux

package pool_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

func movesProgram(t *testing.T) string {
	t.Helper()
	return compiled(t, "moves", "../../shim/test/moves.c", "-l:libOpenCL.so.1")
}

// TestMigrateTells: all that OpenCL told of programs and kernels before a move it
// tells after it, though they are made of what they were built to.
func TestMigrateTells(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	in, out := converse(t, run(movesProgram(t), "tells"))
	told := func() []string {
		var all []string
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				t.Fatalf("it ended after %q: %v\n%s", all, err, a.log)
			}
			if line == "told\n" {
				return all
			}
			all = append(all, line)
		}
	}
	want, at, to := told(), a.tcp, b.tcp
	if !strings.Contains(strings.Join(want, ""), "reqd_work_group_size(4, 2, 1") {
		t.Errorf("before it moved: %s", want)
	}
	for i := range 3 {
		if _, _, err := dial(t, at).Migrate(task.ID, to, ""); err != nil {
			t.Fatal(err)
		}
		at, to = to, at
		_, _ = io.WriteString(in, "\n")
		got := told()
		for k := range max(len(got), len(want)) {
			if k >= len(got) || k >= len(want) || got[k] != want[k] {
				t.Errorf("after move %d: %q, before %q", i+1, got[min(k, len(got)-1)], want[min(k, len(want)-1)])
			}
		}
	}
}

// TestMigrateHeld: commands that wait for events that the program has not set,
// and calls that wait for those, go with it, in their order: nothing runs twice,
// nothing is lost, and where the move fails all goes on where it was.
func TestMigrateHeld(t *testing.T) {
	t.Parallel()
	program := movesProgram(t)
	natively := exec.CommandContext(t.Context(), program, "gates")
	natively.Stdin = strings.NewReader("\n\n\n\n\n")
	if out, err := natively.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "gates 2\n") {
		t.Fatalf("natively: %v: %s", err, out)
	}
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	for _, c := range []struct{ name, from, to string }{{"over TCP", a.tcp, b.tcp}, {"on this machine", a.unix, b.unix}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task, run := share(t, c.from, pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
			cmd := run(program, "gates")
			errs := &lines{}
			cmd.Stderr = errs
			in, out := converse(t, cmd)
			at, to := c.from, c.to
			move := func() {
				t.Helper()
				if _, _, err := dial(t, at).Migrate(task.ID, to, ""); err != nil {
					t.Fatalf("it does not move: %v\n%s\n%s%s", err, a.log, b.log, errs)
				}
				at, to = to, at
			}
			fails := func(x cut) {
				t.Helper()
				if strings.HasPrefix(to, "unix:") {
					return
				}
				if _, _, err := dial(t, at).Migrate(task.ID, x.listen(t, to), ""); fault.KindOf(err) != fault.Unavailable {
					t.Errorf("cut off at %+v: %v", x, err)
				}
			}
			heard := func(want string) {
				t.Helper()
				if line, err := out.ReadString('\n'); line != want {
					t.Fatalf("it said %q, not %q: %v\n%s\n%s%s", line, want, err, a.log, b.log, errs)
				}
			}
			steps := [][2]func(){{move, func() {}}, {func() {}, move}, {move, move}, {func() { move(); move() }, func() { move(); move(); move() }},
				{func() { fails(cut{after: 500}); fails(cut{word: `"arrived"`}) }, func() { fails(cut{after: 300 << 10}); move() }}}
			for i, s := range steps {
				for _, do := range s {
					heard("held\n")
					do()
					_, _ = io.WriteString(in, "\n")
				}
				heard("set\n")
				if i < len(steps)-1 {
					_, _ = io.WriteString(in, "\n")
				}
			}
			_, _ = io.WriteString(in, "x")
			heard("gates 5\n")
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMigrateBetween: a program moves while one of its threads waits for a queue and
// another holds back what comes into that.
func TestMigrateBetween(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 80, Memory: 64 * mib})
	in, out := converse(t, run(movesProgram(t), "between"))
	if line, err := out.ReadString('\n'); line != "held\n" {
		t.Fatalf("it said %q: %v\n%s", line, err, a.log)
	}
	if _, _, err := dial(t, a.tcp).Migrate(task.ID, b.tcp, ""); err != nil {
		t.Errorf("it does not move: %v", err)
	}
	_, _ = io.WriteString(in, "\n")
	if line, err := out.ReadString('\n'); line != "between 9\n" {
		t.Errorf("it said %q: %v\n%s\n%s", line, err, a.log, b.log)
	}
}

// TestFailsBeforeSet: a call that waits for an event that the program has not set and
// for one that it has failed is told that, here and where the program has moved to;
// what comes after it is done. (Natively PoCL ends the program.)
func TestFailsBeforeSet(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	for _, moves := range []bool{false, true} {
		task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
		in, out := converse(t, run(movesProgram(t), "fails"))
		said := func(want string) {
			t.Helper()
			if line, err := out.ReadString('\n'); line != want {
				t.Fatalf("it said %q, not %q: %v\n%s\n%s", line, want, err, a.log, b.log)
			}
		}
		said("read -14\n")
		said("fill 1, told 1\n")
		said("held\n")
		if moves {
			if _, _, err := dial(t, a.tcp).Migrate(task.ID, b.tcp, ""); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.WriteString(in, "\n")
		said("fails 7\n")
	}
}

// copier is a program that says how many bytes go over its connection when it writes, reads and maps memory.
type copier struct {
	t  *testing.T
	n  node
	in io.WriteCloser
	r  *bufio.Reader
}

func copies(t *testing.T, n node, run func(args ...string) *exec.Cmd) *copier {
	t.Helper()
	cmd := run(movesProgram(t), "copies")
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+compiled(t, "passed.so", "-shared", "-fPIC", "testdata/passed.c", "-ldl"), pool.TransportVariable+"=socket")
	in, r := converse(t, cmd)
	return &copier{t, n, in, r}
}

// least and most are how many bytes go over the connection where memory is not
// shared, and where it is.
const least, most = 40 * mib, 5 * mib

func (c *copier) copied() (n int) {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if k, _ := fmt.Sscanf(line, "copied %d\n", &n); k != 1 {
		c.t.Fatalf("it said %q: %v\n%s", line, err, c.n.log)
	}
	return n
}

func (c *copier) passes(shared bool) {
	c.t.Helper()
	if n := c.copied(); shared && n > most || !shared && n < least {
		c.t.Errorf("%d bytes went over the connection; shared: %v", n, shared)
	}
}

// follows has it copy until it shares memory where it has moved to: it may do so
// before it has followed.
func (c *copier) follows(shared bool) {
	c.t.Helper()
	for range 20 {
		c.say("")
		if n := c.copied(); n < most == shared {
			return
		}
	}
	c.t.Errorf("memory is shared: %v", !shared)
}

func (c *copier) say(line string) { _, _ = io.WriteString(c.in, line+"\n") }

// TestMigrateShared: memory that program and worker both map is that again where
// the program has moved to, if they are on one machine.
func TestMigrateShared(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	task, run := share(t, a.unix, pool.Spec{Device: "opencl-0", Compute: 80, Memory: 64 * mib})
	c := copies(t, a, run)
	c.passes(true)
	at := a.unix
	for _, to := range []struct {
		at     string
		shared bool
	}{{b.unix, true}, {a.unix, true}, {b.tcp, false}, {a.unix, true}, {b.unix, true}} {
		if _, _, err := dial(t, at).Migrate(task.ID, to.at, ""); err != nil {
			t.Fatal(err)
		}
		at = to.at
		c.follows(to.shared)
		c.say("keep") // what it has mapped when it moves
		c.passes(to.shared)
	}
	_ = c.in.Close()
	if line, _ := c.r.ReadString('\n'); line != "done\n" {
		t.Errorf("it ended with %q", line)
	}
}

// TestSwapShared: memory that program and worker both map stays that while it is
// taken off the device and put back.
func TestSwapShared(t *testing.T) {
	t.Parallel()
	n := small(t)
	spec := pool.Spec{Device: "opencl-0", Compute: 50, Weighted: true, Memory: 32 * mib}
	task, run := share(t, n.unix, spec)
	_, other := share(t, n.unix, spec)
	c := copies(t, n, run)
	c.passes(true)
	w := walk(t, other("walk", "20"))
	for i := range 4 {
		for off := false; !off; <-time.After(5 * time.Millisecond) { // since it was last used
			tasks, err := dial(t, n.unix).Tasks()
			if err != nil {
				t.Fatal(err)
			}
			off = slices.ContainsFunc(tasks, func(k pool.Task) bool { return k.ID == task.ID && k.Swaps > int64(i) })
		}
		c.say("keep")
		c.passes(true)
	}
	w.end()
	_ = c.in.Close()
	if line, _ := c.r.ReadString('\n'); line != "done\n" {
		t.Errorf("it ended with %q", line)
	}
}
