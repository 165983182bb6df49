//go:build linux

package pool_test

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// These tests run a real program of CUDA (shim/test/cuda.c) on a stand-in of the
// driver (fakecuda.c): nothing here says how cards behave.

// cudaNode is a node with what plays two cards, cuda-0 and cuda-1.
type cudaNode struct {
	node
	program, library, driver, remote string
}

func startCUDA(t *testing.T, more ...string) cudaNode {
	t.Helper()
	return startCUDAWith(t, "cuda", more...)
}

// startCUDAWith is that with options for what plays the driver.
func startCUDAWith(t *testing.T, cuda string, more ...string) cudaNode {
	t.Helper()
	return startCUDAOf(t, pool.NodeConfig{}, cuda, more...)
}

func startCUDAOf(t *testing.T, cfg pool.NodeConfig, cuda string, more ...string) cudaNode {
	t.Helper()
	driver := cardstest.Build(t, append(more, cuda)...)
	if len(more) > 0 {
		vendor(t, driver)
	}
	cfg.Libraries = driver
	n := cudaNode{node: start(t, cfg), driver: driver, program: filepath.Join(t.TempDir(), "cuda")}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", n.program, "../../shim/test/cuda.c", "-L"+driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("the test's program: %v: %s", err, out)
	}
	var err error
	if n.library, err = pool.CUDALibrary(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if n.remote, err = pool.RemoteCUDA(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return n
}

// share asks for a task and returns it with what runs the program on it.
func (n cudaNode) share(t *testing.T, s pool.Spec) (pool.Task, func(args ...string) *exec.Cmd) {
	t.Helper()
	task, token := ask(t, n.unix, s)
	return task, func(args ...string) *exec.Cmd { return n.run(t, n.unix, task.ID, token, args...) }
}

func (n cudaNode) run(t *testing.T, at, task, token string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), n.program, args...)
	cmd.Env = append(append(os.Environ(), "LD_PRELOAD="+n.library, "LD_LIBRARY_PATH="+n.driver), pool.Environment(0, pool.CUDA, at, task, token)...)
	return cmd
}

// TestCUDA: however a program finds the driver's functions, it sees its slice and
// no more, to 1 MiB; what the library does not know goes through.
func TestCUDA(t *testing.T) {
	n := startCUDA(t)
	devices, err := dial(t, n.unix).Devices()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range devices {
		if d.API == pool.CUDA {
			found++
		}
		if d.ID == "cuda-1" && (d.Model != "FAKE H100" || d.Bus != "0000:65:00.0" || d.Memory != 8<<30 || d.Units != 132 || d.UUID != "GPU-02020202-0202-0202-0202-020202020202" || d.Driver != "CUDA 12.4") {
			t.Errorf("the second card: %+v", d)
		}
	}
	if found != 2 {
		t.Fatalf("%d devices of CUDA: %+v", found, devices)
	}
	task, start := n.share(t, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 37 * mib})
	// The node gives back what a program had in a moment after its end.
	run := func(args ...string) *exec.Cmd {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
			tasks, err := dial(t, n.unix).Tasks()
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(tasks, func(x pool.Task) bool { return x.ID == task.ID }); i >= 0 && tasks[i].Used == 0 {
				return start(args...)
			}
			if time.Now().After(deadline) {
				t.Fatalf("memory of programs that have ended is used: %+v", tasks)
			}
		}
	}
	for _, way := range []string{"linked", "dlsym", "proc", "proc-own", "proc-first"} {
		if got, want := output(t, run(way, "info")), "devices 1, FAKE H100 at 0000:65:00.0, 37 MiB, 37 of 37 free, other 101 101, unknown 42\n"; got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
		const filled = "filled 37, error 2\nagain 0 2\n"
		for _, what := range []string{"fill", "env"} {
			if got := output(t, run(way, what)); got != filled {
				t.Errorf("%s, %s: got %q, want %q", way, what, got, filled)
			}
		}
		if got, want := output(t, run(way, "kinds")), "managed 3\npitch 4\nasync 5\npool 6\narray 8\nmapped 4\nheap 7\nnone 0\n"; got != want {
			t.Errorf("%s: kinds of memory: got %q, want %q", way, got, want)
		}
		// A table that is not documented is the driver's own, and a pool of its keeps nothing that nobody counts.
		if got, want := output(t, run(way, "table"))+output(t, run(way, "kept")), "table 0, 42\nkept 0\n"; got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
		if got := output(t, run(way, "contexts")); got != "8 then 0\n" {
			t.Errorf("%s: memory of a context that ends: %q", way, got)
		}
		if got := output(t, run(way, "add", "5")); got != "sum 327680\n" {
			t.Errorf("%s: it computes %q", way, got)
		}
	}
	at := time.Now()
	for got := n.show(t, task.ID); got.Busy <= 0 || got.Used != 0 || got.Programs != 0; got = n.show(t, task.ID) {
		if time.Since(at) > 2*time.Second {
			t.Fatalf("afterwards: %+v", got)
		}
	}
}

// TestCUDAFinds: a program that names devices by itself, that opens its parts so that
// they find their own functions first, and one whose driver gives other addresses than
// it exports, sees its slice, too.
func TestCUDAFinds(t *testing.T) {
	n := startCUDAWith(t, "cuda -DOTHER_ADDRESSES")
	_, run := n.share(t, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 37 * mib})
	const filled = "filled 37, error 2\nagain 0 2\n"
	for _, way := range []string{"proc", "proc-own", "proc-first", "proc-old", "dlsym"} {
		if got := output(t, run(way, "fill")); got != filled {
			t.Errorf("%s, of another address: %q", way, got)
		}
	}
	const card = "GPU-02020202-0202-0202-0202-020202020202"
	for _, c := range []struct {
		what, listed string
		env          []string
	}{
		{"visible", "0", []string{"CUDA_VISIBLE_DEVICES=" + card}},
		{"listed", card, []string{"CUDA_VISIBLE_DEVICES=" + card}},
		{"listed", "1", []string{"CUDA_VISIBLE_DEVICES=1", "YUNHE_POOL_CARD=" + card}}, // as programs read it
		{"listed", "0", []string{"CUDA_VISIBLE_DEVICES=0", "YUNHE_POOL_CARD=" + card}}, // as who starts processes for each device says it
		{"unset", "nowhere", []string{"CUDA_VISIBLE_DEVICES=1", "YUNHE_POOL_CARD=" + card}},
	} {
		cmd := run("proc", c.what)
		cmd.Env = append(cmd.Env, c.env...)
		if got, want := output(t, cmd), fmt.Sprintf("devices 1, at 0000:65:00.0, listed %s, to others %[1]s\n", c.listed); got != want {
			t.Errorf("a program that names devices, %v, %s: got %q, want %q", c.env, c.what, got, want)
		}
	}
	for _, none := range []string{"", "-1", "NoDevFiles"} { // who hides all devices from itself sees none
		cmd := run("proc", "hidden", none)
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES=GPU-02020202-0202-0202-0202-020202020202")
		if out, err := cmd.CombinedOutput(); err == nil || string(out) != "cuInit: error 100\n" {
			t.Errorf("with CUDA_VISIBLE_DEVICES=%q: %v: %s", none, err, out)
		}
	}
	dir := t.TempDir()
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-Dmain=program", "-o", dir + "/part.so", "../../shim/test/cuda.c", "-L" + n.driver, "-l:libcuda.so.1"},
		{"-o", dir + "/deep", "testdata/deep.c"},
	} {
		if out, err := exec.CommandContext(t.Context(), "gcc", append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, way := range []string{"proc", "dlsym", "linked"} {
		cmd := run(way, "fill")
		cmd.Path, cmd.Args = dir+"/deep", append([]string{"deep", dir + "/part.so"}, cmd.Args[1:]...)
		if got := output(t, cmd); got != filled {
			t.Errorf("%s, of a part that finds its own first: %q", way, got)
		}
	}
}

// TestCUDAOpens: the dynamic loader knows who opens libraries and looks for functions, as
// it does without the library: PyTorch's parts find theirs by that.
func TestCUDAOpens(t *testing.T) {
	library, err := pool.CUDALibrary(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/parts", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-DPART", "-o", dir + "/parts/libpart.so"},
		{"-Wl,-rpath,$ORIGIN/parts,--enable-new-dtags", "-o", dir + "/program"},
	} {
		args = append(append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"}, args...), "testdata/parts.c", "-ldl")
		if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, preload := range []string{"", library} {
		cmd := exec.CommandContext(t.Context(), dir+"/program", "libpart.so")
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
		if got := output(t, cmd); got != "opened, none is next\n" {
			t.Errorf("with %q: %q", preload, got)
		}
	}
}

// TestCUDADoor: a driver that is a door to another one finds that one's functions, and not
// those that are to find the driver's.
func TestCUDADoor(t *testing.T) {
	n := startCUDA(t)
	_, run := n.share(t, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 37 * mib})
	dir := t.TempDir()
	if err := os.Link(n.driver+"/libcuda.so.1", dir+"/libcuda.so.1.1"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1,--no-as-needed",
		"-o", dir+"/libcuda.so.1", "testdata/door.c", "-L"+dir, "-l:libcuda.so.1.1", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, way := range []string{"dlsym", "linked", "proc"} {
		cmd := run(way, "fill")
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+dir)
		if got := output(t, cmd); got != "filled 37, error 2\nagain 0 2\n" {
			t.Errorf("%s: %q", way, got)
		}
	}
}

func (n cudaNode) show(t *testing.T, id string) pool.Task {
	t.Helper()
	tasks, err := dial(t, n.unix).Tasks()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range tasks {
		if k.ID == id {
			return k
		}
	}
	t.Fatalf("no task %s in %+v", id, tasks)
	return pool.Task{}
}

// TestCUDARefused: only programs on the node's machine, of a task on a device of
// CUDA, have one with the driver in their own process; a program without a task
// sees none.
func TestCUDARefused(t *testing.T) {
	n := startCUDA(t)
	task, token := ask(t, n.unix, pool.Spec{Device: "cuda-0", Memory: mib})
	other, _ := ask(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: mib})
	for _, x := range []struct{ at, task, token, says string }{
		{n.tcp, task.ID, token, "run on the node's machine"},
		{n.unix, task.ID, strings.Repeat("0", 64), "no such task with this token"},
		{n.unix, other.ID, token, "no such task with this token"},
		{"", "", "", "was not started by yunhe pool run"},
	} {
		if out, err := n.run(t, x.at, x.task, x.token, "dlsym", "info").CombinedOutput(); err == nil || !strings.Contains(string(out), x.says) || !strings.Contains(string(out), "cuInit: error 100") {
			t.Errorf("%+v: %v: %s", x, err, out)
		}
	}
	if out, err := program(t, n.unix, task.ID, token, "add", "1").CombinedOutput(); err == nil {
		t.Errorf("a program of OpenCL has a device of CUDA: %s", out)
	}
	if _, _, err := dial(t, n.unix).Migrate(task.ID, "", "cuda-1"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("moving it: %v", err)
	}
	if task, _ := ask(t, n.unix, pool.Spec{Compute: 50, Memory: mib}); task.API != pool.OpenCL {
		t.Errorf("who names no device has %+v", task)
	}
}

// holding is a program that holds memory, and does what it is told.
type holding struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func hold(t *testing.T, cmd *exec.Cmd) *holding {
	t.Helper()
	h := &holding{cmd: cmd}
	var err error
	if h.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *holding) line(t *testing.T) string {
	t.Helper()
	s, err := h.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (h *holding) ask(t *testing.T, what string) string {
	t.Helper()
	if _, err := io.WriteString(h.in, what); err != nil {
		t.Fatal(err)
	}
	return h.line(t)
}

// TestCUDATogether: the programs of a slice have its memory together, also after
// it was resized; what one has that is killed is the others' within two seconds.
func TestCUDATogether(t *testing.T) {
	n := startCUDA(t)
	task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 100 * mib})
	a, b := hold(t, run("proc", "hold", "60")), hold(t, run("dlsym", "hold", "40"))
	if x, y := a.line(t), b.line(t); x != "holds 0" || y != "holds 0" {
		t.Fatal(x, y)
	}
	if x, y := a.ask(t, "u"), b.ask(t, "m"); x != "uses 100" || y != "more 2" {
		t.Error(x, y)
	}
	if _, err := dial(t, n.unix).Resize(task.ID, 0, 101*mib); err != nil {
		t.Fatal(err)
	}
	if x, y := b.ask(t, "m"), b.ask(t, "m"); x != "more 0" || y != "more 2" {
		t.Error("after it was resized", x, y)
	}
	if _, neighbor := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 10 * mib}); true {
		if out, err := neighbor("linked", "crash", "10").CombinedOutput(); err == nil {
			t.Errorf("it did not crash: %s", out)
		}
		if got := output(t, neighbor("linked", "fill")); got != "filled 10, error 2\nagain 0 2\n" {
			t.Errorf("after one that crashed: %q", got)
		}
	}
	at := time.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for b.ask(t, "u") != "uses 41" {
		if time.Since(at) > 2*time.Second {
			t.Fatalf("it is not given back: %s", b.ask(t, "u"))
		}
	}
	_ = a.cmd.Wait()
	if err := dial(t, n.unix).Stop(task.ID); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the program of a task that was stopped: %v", err)
	}
}

// kernels reads how many a program computed.
func kernels(t *testing.T, out, what string) (n float64) {
	t.Helper()
	for line := range strings.Lines(out) {
		if _, err := fmt.Sscanf(line, what+" %f", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no %s in %q", what, out)
	return 0
}

// TestCUDAShares: slices that contend compute by their shares; graphs count, too.
// How exact it is on an idle machine make bench-pool says.
func TestCUDAShares(t *testing.T) {
	n := startCUDA(t)
	const within = 0.06 // the machine does other things
	for _, x := range []struct {
		a, b int64
		what string
	}{{30, 70, "spin"}, {10, 90, "spin"}, {30, 70, "graph"}} {
		one, first := n.share(t, pool.Spec{Device: "cuda-0", Compute: x.a, Memory: mib})
		two, second := n.share(t, pool.Spec{Device: "cuda-0", Compute: x.b, Memory: mib})
		a, b := hold(t, first("dlsym", x.what, "1000", "3")), hold(t, second("proc", x.what, "1000", "3"))
		outA, errA := io.ReadAll(a.out)
		outB, errB := io.ReadAll(b.out)
		if errA != nil || errB != nil || a.cmd.Wait() != nil || b.cmd.Wait() != nil {
			t.Fatal(errA, errB)
		}
		k, l := kernels(t, string(outA), "kernels"), kernels(t, string(outB), "kernels")
		t.Logf("%d:%d %s: %.0f and %.0f kernels, %.1f %%", x.a, x.b, x.what, k, l, 100*k/(k+l))
		if got := k / (k + l); math.Abs(got-float64(x.a)/100) > within {
			t.Errorf("%d:%d %s: the first has %.1f %%", x.a, x.b, x.what, 100*got)
		}
		// What waits for turns and for the device sleeps meanwhile.
		if cpu := a.cmd.ProcessState.UserTime() + a.cmd.ProcessState.SystemTime() + b.cmd.ProcessState.UserTime() + b.cmd.ProcessState.SystemTime(); cpu > time.Second {
			t.Errorf("%d:%d %s: of 3 s two programs that compute nothing themselves used a processor for %v", x.a, x.b, x.what, cpu)
		}
		for _, task := range []pool.Task{one, two} {
			if err := dial(t, n.unix).Stop(task.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCUDACaptures: what is captured is not computed, and waits for nobody: while it is,
// other threads of its program may do less.
func TestCUDACaptures(t *testing.T) {
	n := startCUDA(t)
	_, first := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: mib})
	task, second := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: mib})
	const last, most = 2 * time.Second, 800 * time.Millisecond // after 1 s a turn is given beside who has the device
	h := hold(t, first("proc", "long", fmt.Sprint(last.Microseconds())))
	if got := h.line(t); got != "began" {
		t.Fatalf("it says %q", got)
	}
	at := time.Now()
	if got := output(t, second("proc", "captures", "100")); got != "captured\n" {
		t.Error(got)
	}
	if took := time.Since(at); took > most {
		t.Errorf("it took %v, while another program had the device for %v", took, last)
	}
	if used := n.show(t, task.ID).Busy; used != 0 {
		t.Errorf("it had the device for %v", used)
	}
	if got := h.line(t); got != "ended" {
		t.Errorf("the other says %q", got)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestCUDAResize: a share counts from when it is changed, while the program computes.
func TestCUDAResize(t *testing.T) {
	n := startCUDA(t)
	task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 10, Memory: mib})
	h := hold(t, run("proc", "spin", "1000", "4"))
	before := kernels(t, h.line(t), "half")
	if _, err := dial(t, n.unix).Resize(task.ID, 60, 0); err != nil {
		t.Fatal(err)
	}
	after := kernels(t, h.line(t), "kernels") - before
	if err := h.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%.0f and %.0f kernels", before, after); after < 3*before || after > 12*before { // the machine does other things
		t.Errorf("at 10 %% it computed %.0f kernels, then at 60 %% %.0f", before, after)
	}
}

// TestCUDALoads: a launch that loads its kernel first takes long, while the device has
// nothing to do; that is not charged, or a small share would be in debt for long.
func TestCUDALoads(t *testing.T) {
	n := startCUDAWith(t, "cuda -DLAZY=1500")
	task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 5, Memory: 2 * mib})
	at := time.Now()
	if got := output(t, run("proc", "add", "20")); got != "sum 1310720\n" {
		t.Error(got)
	}
	if took, used := time.Since(at), n.show(t, task.ID).Busy; used > 500*time.Millisecond || took > 15*time.Second {
		t.Errorf("it took %v, of which the device is said to have computed %v", took, used)
	}
}

// TestCUDABatch: several fetches at once and copies that say how they may be done, as
// CUDA 13 has them, and what is decompressed take a turn.
func TestCUDABatch(t *testing.T) {
	n := startCUDA(t)
	for _, way := range []string{"linked", "dlsym", "proc"} {
		for what, want := range map[string]string{"batch": "", "unpack": "hello\n", "row": "", "box": ""} {
			task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 8, Memory: 2 * mib})
			if got := output(t, run(way, what)); got != want {
				t.Errorf("%s, %s: %s", way, what, got)
			}
			if n.show(t, task.ID).Busy == 0 {
				t.Errorf("%s, %s: it had the device for no time", way, what)
			}
		}
	}
}

// TestCUDAPools: memory counts if it is the device's, of whatever pool it is.
func TestCUDAPools(t *testing.T) {
	n := startCUDA(t)
	for _, way := range []string{"linked", "dlsym", "proc"} {
		_, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 10, Memory: 8 * mib})
		if got, want := output(t, run(way, "pools")), "place 1: 6, 0\nplace 2: 0, 0\nplace 3: 0, 0\nthe host's own: 0\n"; got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
	}
}

// TestCUDAImports: memory that was exported, and is there when that is released, counts
// for who imports it.
func TestCUDAImports(t *testing.T) {
	n := startCUDA(t)
	for _, way := range []string{"linked", "dlsym", "proc"} {
		_, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 10, Memory: 8 * mib})
		if got, want := output(t, run(way, "imports")), "place 1: 6, 6, 6, 0\nplace 2: 0, 0, 0, 0\n"; got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
	}
}

// TestCUDAGreen: what green contexts compute is waited for and charged, also by their
// streams while another context is current, and where one was that has ended; what is made
// in them is the primary one's.
func TestCUDAGreen(t *testing.T) {
	n := startCUDA(t)
	for _, way := range []string{"linked", "dlsym", "proc"} {
		for _, own := range []string{"0", "1"} {
			task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 10, Memory: 4 * mib})
			if got := output(t, run(way, "greens", "100000", own)); got != "it has 2, then 0\n" {
				t.Errorf("%s, %s: %s", way, own, got)
			}
			if used := n.show(t, task.ID).Busy; used < 200*time.Millisecond || used > 500*time.Millisecond {
				t.Errorf("%s, %s: of 200 ms it was charged %v", way, own, used)
			}
			if err := dial(t, n.unix).Stop(task.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCUDATwin: a card that OpenCL and CUDA show is lent by one of them at a time.
func TestCUDATwin(t *testing.T) {
	n := startCUDA(t, "opencl")
	devices, err := dial(t, n.unix).Devices()
	if err != nil {
		t.Fatal(err)
	}
	twin := ""
	for _, d := range devices {
		if d.API == pool.OpenCL && d.Bus == "0000:65:00.0" {
			twin = d.ID
		}
	}
	for _, x := range [][2]string{{twin, "cuda-1"}, {"cuda-1", twin}} {
		task, _ := ask(t, n.unix, pool.Spec{Device: x[0], Compute: 10, Memory: mib})
		if _, _, err := dial(t, n.unix).Run(pool.Spec{Device: x[1], Compute: 10, Memory: mib}); fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "is lent as "+x[0]) {
			t.Errorf("%s while %s is lent: %v", x[1], x[0], err)
		}
		ask(t, n.unix, pool.Spec{Device: "cuda-0", Compute: 10, Memory: mib})
		if err := dial(t, n.unix).Stop(task.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCUDAInterrupted: threads that are canceled while they wait for a turn, signals, and
// children that are forked at any moment change nothing for the rest of the program.
func TestCUDAInterrupted(t *testing.T) {
	n := startCUDA(t)
	_, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 10, Memory: 37 * mib})
	for what, want := range map[string]string{"canceled": "canceled 8\n", "forks": "children 300\n", "interrupted": "filled 37, error 2\nagain 0 2\n"} {
		cmd := run("proc", what)
		ends := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		if got := output(t, cmd); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		ends.Stop()
	}
}

// TestCUDAEnds: a child that was forked does not keep what its parent had, which
// was killed; and a kernel that waits for what its program does next is not waited for.
func TestCUDAEnds(t *testing.T) {
	n := startCUDA(t)
	task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 64 * mib})
	h := hold(t, run("dlsym", "fork", "64"))
	if got := h.line(t); got != "forked" {
		t.Fatal(got)
	}
	if got := n.show(t, task.ID); got.Used != 64*mib || got.Resident != 64*mib {
		t.Errorf("while it lives: %+v", got)
	}
	at := time.Now()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for got := n.show(t, task.ID); got.Used != 0; got = n.show(t, task.ID) {
		if time.Since(at) > 2*time.Second {
			t.Fatalf("its child keeps %+v", got)
		}
	}
	_ = h.in.Close() // the child ends
	_ = h.cmd.Wait()
	if got := output(t, run("proc", "waits", "300")); got != "went on\n" {
		t.Errorf("a kernel that waits for its program: %q", got)
	}
}

// TestCUDAExec: what a process had counts until that ends, also if it runs another program
// meanwhile: drivers leave their files open then, and with them that memory on the card.
func TestCUDAExec(t *testing.T) {
	n := startCUDA(t)
	task, run := n.share(t, pool.Spec{Device: "cuda-0", Compute: 10, Memory: 37 * mib})
	if got := output(t, run("proc", "exec", "30")); got != "filled 7, error 2\nagain 0 2\n" {
		t.Errorf("it says %q", got)
	}
	for at := time.Now(); ; <-time.After(5 * time.Millisecond) {
		if got := n.show(t, task.ID); got.Used == 0 && got.Programs == 0 {
			return
		} else if time.Since(at) > 5*time.Second {
			t.Fatalf("afterwards: %+v", got)
		}
	}
}

// TestCUDANext: programs that follow each other on a slice, as the commands of a script,
// each have all of its memory, however soon one begins when the one before has ended.
func TestCUDANext(t *testing.T) {
	t.Parallel()
	n := startCUDA(t)
	_, run := n.share(t, pool.Spec{Device: "cuda-0", Memory: 37 * mib})
	one := run("proc", "fill")
	script := exec.CommandContext(t.Context(), "sh", "-c", `for i in $(seq 30); do "$0" proc fill || exit; done`, n.program)
	script.Env = one.Env
	out, err := script.CombinedOutput()
	if got := strings.Count(string(out), "filled 37, error 2\nagain 0 2\n"); err != nil || got != 30 {
		t.Errorf("%d of 30 have it: %v: %s", got, err, out)
	}
}
