//go:build linux

package pool_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// compiled builds a program of shim/test, or a library.
func compiled(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args = append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path}, args...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, "-pthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func svmProgram(t *testing.T) string {
	t.Helper()
	return compiled(t, "svm", "../../shim/test/svm.c", "-l:libOpenCL.so.1")
}

// placing has nodes see devices whose driver says where shared virtual memory is.
func placing(t *testing.T) {
	t.Helper()
	of(t, "placing", compiled(t, "libplacing.so", "-shared", "-fPIC", "testdata/placing.c", "-ldl"))
}

// svmSame compares what a program makes of shared virtual memory natively and on a node.
func svmSame(t *testing.T, n node, program string, at string, transports ...string) {
	t.Helper()
	natively, err := exec.CommandContext(t.Context(), program, "same").Output()
	if err != nil {
		t.Fatalf("natively: %v: %s", err, natively)
	}
	want := string(natively)
	for _, transport := range append(transports, "") {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 64 * mib})
		cmd := run(program, "same")
		cmd.Env = append(cmd.Env, pool.TransportVariable+"="+transport)
		if got := output(t, cmd); got != want || !strings.Contains(got, "lists ") {
			t.Errorf("%s %s: got\n%s\nwant\n%s\n%s", at, transport, got, want, n.log)
		}
	}
}

// TestSVM: what is in shared virtual memory, pointers too, is the same natively
// and in the pool, and where programs had none it is as if there were none.
func TestSVM(t *testing.T) {
	t.Parallel()
	n, other := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	program := svmProgram(t)
	svmSame(t, n, program, n.unix, "socket", "ring")
	svmSame(t, n, program, n.tcp)
	_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 64 * mib})
	if got, want := output(t, run(program, "taken")), "taken 40, there 20\n"; got != want {
		t.Errorf("where the program has something: %q, want %q", got, want)
	}
	if got, want := output(t, run(program, "cards")), "cards 1, offers 1, made 1, copies 0\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	natively, err := exec.CommandContext(t.Context(), program, "same").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][]string{{n.unix, other.tcp}, {n.tcp, other.unix, n.tcp}} { // each has what it points to, at the same addresses
		if got := output(t, over(t, at...)(program, "same", "all")); got != string(natively) {
			t.Errorf("%v: got\n%s\nwant\n%s", at, got, natively)
		}
	}
	if got, want := output(t, over(t, n.unix, other.tcp)(program, "cards")), "cards 2, offers 1, made 1, copies 0\n"; got != want {
		t.Errorf("over two nodes: %q, want %q", got, want)
	}
	if got, want := output(t, over(t, n.unix, other.tcp)(program, "fill", "100", "all")), "regions 64\nmore 32\n"; got != want {
		t.Errorf("over two nodes: %q, want %q", got, want)
	}
}

// svmMemory: shared virtual memory is the task's, to the mebibyte, and comes back
// when it is freed, and when its program was killed.
func svmMemory(t *testing.T, n node, program string) {
	t.Helper()
	task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 37 * mib})
	cmd := run(program, "fill", "100", "wait")
	in, r := converse(t, cmd)
	if line, _ := r.ReadString('\n'); line != "regions 37\n" {
		t.Errorf("of 37 MiB: %q", line)
	}
	client := dial(t, n.unix)
	used := func() int64 {
		tasks, err := client.Tasks()
		if err != nil || len(tasks) != 1 || tasks[0].ID != task.ID {
			t.Fatalf("%+v, %v", tasks, err)
		}
		return tasks[0].Used
	}
	if got := used(); got != 37*mib {
		t.Errorf("%d bytes are counted", got)
	}
	beside, neighbor := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 40, Weighted: true, Memory: 64 * mib})
	if got, want := output(t, neighbor("add")), native(t, "add"); got != want {
		t.Errorf("a neighbor: %q, want %q", got, want)
	}
	if err := dial(t, n.unix).Stop(beside.ID); err != nil {
		t.Error(err)
	}
	if _, err := client.Resize(task.ID, 0, 38*mib); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(in, "\n")
	if line, _ := r.ReadString('\n'); line != "more 19\n" {
		t.Errorf("after 18 were freed and it has one MiB more: %q", line)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	w := walk(t, run(program, "walk", "16"))
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // it was killed
	eventually(t, func() bool { return used() == 0 })
	if got := output(t, run(program, "fill", "100")); got != "regions 38\nmore 19\n" {
		t.Errorf("what the first held is not back: %q", got)
	}
}

func TestSVMMemory(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	svmMemory(t, n, svmProgram(t))
}

// TestSVMMoves: shared virtual memory has the same addresses where a program moves to.
func TestSVMMoves(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	svm := svmProgram(t)
	for _, c := range []struct{ name, from string }{{"over TCP", a.tcp}, {"from this machine's memory", a.unix}} {
		task, run := share(t, c.from, pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
		w := walk(t, run(svm, "walk", "12"))
		from, to := a.tcp, b.tcp
		for i := range 4 {
			if moved, _, err := dial(t, from).Migrate(task.ID, to, ""); err != nil || moved.Used < 12*mib {
				t.Fatalf("%s: move %d: %+v, %v\n%s\n%s%s", c.name, i, moved, err, a.log, b.log, w.errs)
			}
			from, to = to, from
		}
		w.end()
	}
	c := start(t, pool.NodeConfig{})
	var tasks []pool.Task
	var env []string
	for i, at := range []string{a.tcp, b.tcp} {
		task, token := ask(t, at, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 64 * mib})
		tasks, env = append(tasks, task), append(env, pool.Environment(i, pool.OpenCL, at, task.ID, token)...)
	}
	cmd := program(t, "", "", "", svm, "walk", "4", "all")
	cmd.Env = append(cmd.Env, env...)
	w := walk(t, cmd)
	from, to := b.tcp, c.tcp
	for i := range 3 {
		if _, _, err := dial(t, from).Migrate(tasks[1].ID, to, ""); err != nil {
			t.Fatalf("a card of two: move %d: %v\n%s\n%s%s", i, err, b.log, c.log, w.errs)
		}
		from, to = to, from
	}
	w.end()
}

// TestSVMSwap: it is taken off a card and put back where it was.
func TestSVMSwap(t *testing.T) {
	t.Parallel()
	n := small(t)
	program := svmProgram(t)
	var walkers []*walker
	var tasks []string
	for _, at := range []string{n.unix, n.tcp} {
		task, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 50, Weighted: true, Memory: 32 * mib})
		walkers, tasks = append(walkers, walk(t, run(program, "walk", "24"))), append(tasks, task.ID)
	}
	for _, id := range tasks {
		swapped(t, n.unix, id, 3)
	}
	for _, w := range walkers {
		w.end()
	}
}

// TestSVMPlaced: where a driver says where it is, programs have it there or, if they
// have something there, elsewhere. It does not leave the card: a program that has
// some does not move, and where memory is lent more than once there is none. It is not parallel: the
// environment says which driver there is.
func TestSVMPlaced(t *testing.T) {
	start(t, pool.NodeConfig{}) // or there is nothing to lend
	if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/libpocl.so.2"); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	program := svmProgram(t)
	placing(t)
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	svmSame(t, a, program, a.unix)
	svmSame(t, a, program, a.tcp)
	_, run := share(t, a.unix, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 64 * mib})
	if got, want := output(t, run(program, "taken")), "taken 40, there 20\n"; got != want {
		t.Errorf("where the program has something: %q, want %q", got, want)
	}
	if got, want := output(t, over(t, a.unix, b.tcp)(program, "cards")), "cards 2, offers 0, made 0, copies -59\n"; got != want {
		t.Errorf("over two nodes: %q, want %q", got, want)
	}
	task, run := share(t, b.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 64 * mib})
	w := walk(t, run(program, "walk", "8"))
	if _, _, err := dial(t, b.tcp).Migrate(task.ID, a.tcp, ""); fault.KindOf(err) != fault.Conflict && fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "shared virtual memory cannot have the same address there") {
		t.Errorf("it moved: %v", err)
	}
	w.end()
	c := start(t, pool.NodeConfig{})
	svmMemory(t, c, program)
	if _, run := share(t, small(t).unix, pool.Spec{Device: "opencl-0", Compute: 10, Weighted: true, Memory: 30 * mib}); output(t, run(program, "cards")) != "cards 1, offers 0, made 0, copies -59\n" {
		t.Error("where memory is lent more than once it is offered")
	}
}
