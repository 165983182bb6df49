//go:build linux

package pool_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/between"
)

// workers are the processes that serve programs of OpenCL at a node of this process.
func (n node) workers(t *testing.T) (all []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		args, err := os.ReadFile(path)
		status, err2 := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil || err2 != nil || !bytes.HasPrefix(args, []byte(n.dir)) || !bytes.Contains(args, []byte("\x00serve\x00")) || !bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid())) {
			continue // or it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

// taskOf is a task as a node shows it; ok: there is one.
func taskOf(t *testing.T, c *pool.Client, id string) (k pool.Task, ok bool) {
	t.Helper()
	tasks, err := c.Tasks()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tasks, func(x pool.Task) bool { return x.ID == id })
	if i < 0 {
		return k, false
	}
	return tasks[i], true
}

// returns expects that what was lent is back within two seconds of a death, in one
// of three times: the machine may have other things to do. What dies does so in
// kill, and back says whether it is back.
func returns(t *testing.T, what string, once func(t *testing.T) (kill func(), back func() bool)) {
	t.Helper()
	const most = 2 * time.Second
	var took []time.Duration
	for range 3 {
		kill, back := once(t)
		began := time.Now()
		kill()
		for !back() {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: what was lent does not come back", what)
			}
			<-time.After(5 * time.Millisecond) // the node is asked, not told
		}
		if took = append(took, time.Since(began)); took[len(took)-1] <= most {
			t.Logf("%s: back after %v", what, took)
			return
		}
	}
	t.Errorf("%s: what was lent was back after %v, not %s", what, took, most)
}

// TestIsolation: beside programs that take all memory, are not built, crash, never
// end and are killed, with their worker or with who asked for their share, a
// neighbor on the same card computes on, all the time, and each of its steps is
// right; what they held can be lent again within two seconds.
func TestIsolation(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	c := dial(t, n.unix)
	want := native(t, "add", "6")
	neighbor, beside := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
	w := walk(t, beside("walk", "4"))
	computes := func(what string) {
		t.Helper()
		before, _ := taskOf(t, c, neighbor.ID)
		for now := before; now.Busy <= before.Busy; <-time.After(5 * time.Millisecond) {
			var ok bool
			if now, ok = taskOf(t, c, neighbor.ID); !ok || t.Context().Err() != nil {
				t.Fatalf("%s: the neighbor computes no more\n%s\n%s", what, w.errs, n.log)
			}
		}
	}
	bad, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 5 * mib})

	if got := output(t, run("fill", "9")); got != "buffers 5 error -4\n" {
		t.Errorf("out of memory: %q", got)
	}
	computes("out of memory")
	if got := output(t, run("peek", "/there is no such file")); !strings.HasPrefix(got, "built -11\n") {
		t.Errorf("a kernel that cannot be built: %q", got)
	}
	computes("a kernel that cannot be built")
	if got, err := run("crash").Output(); err != nil || string(got) != "crash -5\n" {
		t.Errorf("a kernel that writes where it must not: the program is to be told by an error: %v, %q", err, got)
	}
	computes("a crash")

	// empty says whether a task has nothing any more.
	empty := func() bool {
		k, ok := taskOf(t, c, bad.ID)
		if !ok {
			t.Fatal("the task has ended with its program")
		}
		return k.Programs == 0 && k.Used == 0 && k.Resident == 0
	}
	endless := func(t *testing.T) (program *exec.Cmd, said *bufio.Reader, worker int) {
		t.Helper()
		before := n.workers(t)
		program = run("forever")
		in, said := converse(t, program)
		t.Cleanup(func() { _ = in.Close(); _ = program.Process.Kill() })
		if line, _ := said.ReadString('\n'); line != "forever\n" {
			t.Fatalf("it said %q", line)
		}
		now := slices.DeleteFunc(n.workers(t), func(pid int) bool { return slices.Contains(before, pid) })
		if len(now) != 1 {
			t.Fatalf("its workers are %v", now)
		}
		computes("a kernel that never ends")
		return program, said, now[0]
	}
	again := func(what string) {
		t.Helper()
		if got := output(t, run("fill", "9")); got != "buffers 5 error -4\n" {
			t.Errorf("%s: what it held is not all there: %q", what, got)
		}
		if got := output(t, run("add", "1")); !strings.HasPrefix(got, "sum ") {
			t.Errorf("%s: its share does not compute: %q", what, got)
		}
		computes(what)
	}
	returns(t, "a program is killed", func(t *testing.T) (kill func(), back func() bool) {
		program, _, _ := endless(t)
		if got := output(t, beside("add", "6")); got != want {
			t.Errorf("beside a kernel that never ends: %q, want %q", got, want)
		}
		return func() { _ = program.Process.Kill(); _ = program.Wait() }, empty
	})
	again("a program is killed")
	returns(t, "a worker is killed", func(t *testing.T) (kill func(), back func() bool) {
		program, said, worker := endless(t)
		return func() {
			if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if line, _ := said.ReadString('\n'); line != "finish -5\n" {
				t.Errorf("a program whose worker is killed: %q", line)
			}
			_ = program.Wait()
		}, empty
	})
	again("a worker is killed")
	d, err := c.Devices()
	if err != nil {
		t.Fatal(err)
	}
	before := d[0]
	returns(t, "who asked for a share is killed", func(t *testing.T) (kill func(), back func() bool) {
		holder, task, token := holderOf(t, n.tcp)
		if d, err := c.Devices(); err != nil || d[0].Compute != 100 || d[0].Allotted != before.Allotted+task.Memory {
			t.Fatalf("shown as %+v, %v", d, err)
		}
		program := program(t, n.unix, task.ID, token, "forever")
		begin(t, program, "forever")
		computes("a kernel that never ends")
		next := dial(t, n.unix)
		return func() { _ = holder.Process.Kill(); _ = holder.Wait() }, func() bool {
			if _, _, err := next.Run(pool.Spec{Device: "opencl-0", Compute: 40, Memory: task.Memory}); err != nil {
				return false
			}
			next.Close() // for the next time
			for d, err := c.Devices(); ; d, err = c.Devices() {
				if err != nil {
					t.Fatal(err)
				}
				if d[0].Compute == before.Compute && d[0].Allotted == before.Allotted {
					return true
				}
			}
		}
	})
	computes("all that")
	if got := output(t, beside("add", "6")); got != want {
		t.Errorf("after all that: %q, want %q", got, want)
	}
	w.end()
}

// holderOf has another process ask for a share of 40 % and 64 MiB, which lasts as long as that.
func holderOf(t *testing.T, at string) (holder *exec.Cmd, task pool.Task, token string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder = exec.CommandContext(t.Context(), self)
	holder.Env = append(os.Environ(), holds+"="+at)
	out, err := holder.StderrPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	var id string
	if _, err := fmt.Fscanf(bufio.NewReader(out), "task %s\ntoken %s\n", &id, &token); err != nil {
		t.Fatal(err)
	}
	task, ok := taskOf(t, dial(t, at), id)
	if !ok || task.Compute != 40 {
		t.Fatalf("it holds %+v", task)
	}
	return holder, task, token
}

// TestSharesComputed: two programs that always want the device have as much of its
// time as their shares are, whatever else the machine does: what is compared is the
// time that they are charged.
func TestSharesComputed(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	c := dial(t, n.unix)
	var ids []string
	for _, percent := range []int64{30, 70} {
		task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: percent, Memory: 16 * mib})
		begin(t, run("spin", "600", "4000", "20"), "spinning")
		ids = append(ids, task.ID)
	}
	busy := func() (all [2]time.Duration) {
		for i, id := range ids {
			k, ok := taskOf(t, c, id)
			if !ok || k.Programs != 1 {
				t.Fatalf("it computes no more: %+v\n%s", k, n.log)
			}
			all[i] = k.Busy
		}
		return all
	}
	for before := busy(); ; <-time.After(20 * time.Millisecond) {
		now := busy()
		less, more := now[0]-before[0], now[1]-before[1]
		if less+more < 6*time.Second {
			continue
		}
		got := 100 * less.Seconds() / (less + more).Seconds()
		if got < 20 || got > 40 {
			if less+more < 40*time.Second { // what else there is to do for the machine evens out
				continue
			}
			t.Errorf("with shares of 30 and 70 %% one had %s and the other %s: %.1f %%", less, more, got)
		}
		t.Logf("%s and %s: %.1f %%", less, more, got)
		return
	}
}

// caches are the folders that a worker is told to write in.
func caches(t *testing.T, pid int) (dirs []string) {
	t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for e := range strings.SplitSeq(string(env), "\x00") {
		name, value, _ := strings.Cut(e, "=")
		last[name] = value
	}
	for _, name := range []string{"TMPDIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "MESA_SHADER_CACHE_DIR"} {
		dirs = append(dirs, last[name])
	}
	return dirs
}

// walks starts a program of a group's that checks its steps, and returns it with its worker.
func (n node) walks(t *testing.T, group, key string, s pool.Spec) (*walker, int) {
	t.Helper()
	c, err := pool.Dial(t.Context(), n.tcp, group, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	task, token, err := c.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	before := n.workers(t)
	w := walk(t, program(t, n.tcp, task.ID, token, "walk", "1"))
	come := slices.DeleteFunc(n.workers(t), func(pid int) bool { return slices.Contains(before, pid) })
	if len(come) != 1 {
		t.Fatalf("its workers are %v", come)
	}
	return w, come[0]
}

// TestPoison: a group's program, even one whose kernel is code of its worker, puts
// nothing where the drivers of another group's find what was compiled, nor what leads
// out of its own caches, and makes no sockets; of root's powers it has few. Natively it would.
func TestPoison(t *testing.T) {
	t.Parallel()
	if between.Landlock() == 0 || runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: this kernel has no Landlock, or another processor")
	}
	poison := compiled(t, "poison", "../../shim/test/poison.c", "-l:libOpenCL.so.1")
	here := filepath.Join(t.TempDir(), "x")
	if out, err := exec.CommandContext(t.Context(), poison, here, "link:"+here+"y", "socket:1").CombinedOutput(); err != nil || string(out) != "0\n0\n0\n" {
		t.Fatalf("natively its kernel makes no file, link or socket: %v: %s", err, out)
	}
	n := start(t, pool.NodeConfig{})
	spec := pool.Spec{Device: "opencl-0", Compute: 20, Memory: 20 * mib}
	victim, theirs := n.walks(t, "b", strings.ToUpper(key), spec)
	own, worker := n.walks(t, "a", key, spec)
	_, run := share(t, n.tcp, spec)
	paths, want := []string{poison}, ""
	for _, dir := range caches(t, worker) {
		paths, want = append(paths, filepath.Join(dir, "poison"), "link:"+filepath.Join(dir, "link")), want+"0\n-13\n"
	}
	for family := range 3 {
		paths, want = append(paths, fmt.Sprint("socket:", family)), want+"-97\n"
	}
	for _, dir := range caches(t, theirs) {
		paths, want = append(paths, filepath.Join(dir, "poison")), want+"-13\n"
	}
	if got := output(t, run(paths...)); got != want {
		t.Errorf("in %v: got %q, want %q", paths[1:], got, want)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", worker))
	if err != nil {
		t.Fatal(err)
	}
	const few = "0000000000804002" // CAP_DAC_OVERRIDE, CAP_IPC_LOCK, CAP_SYS_NICE
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t" + few, "CapEff:\t" + few, "CapBnd:\t" + few} {
		if !strings.Contains(string(status), want+"\n") && (os.Getuid() == 0 || !strings.HasPrefix(want, "Cap")) {
			t.Errorf("the worker's status has not %q:\n%s", want, status)
		}
	}
	victim.end()
	own.end()
}

// TestFullDisk: who fills the node's disk by what is compiled, or kept for a while, ends
// before others have no room, and what is left of it goes; also who has files there that have
// no name. Others compute on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128m,mode=700"); err != nil {
		t.Skipf("SKIPPED: only root mounts: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	n := start(t, pool.NodeConfig{Dir: dir})
	spec := pool.Spec{Device: "opencl-0", Compute: 20, Memory: 20 * mib}
	neighbor, _ := n.walks(t, "a", key, spec)
	_, bad := n.walks(t, "b", strings.ToUpper(key), spec)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(caches(t, bad)[0], "large")
	f, err := os.Create(file)
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize-2*mib)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	n.log.await(t, "the node's disk is full, and programs of its group have")
	n.log.await(t, "a cache is emptied, as the disk is full")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", file, err)
	}
	t.Run("without names", func(t *testing.T) {
		if runtime.GOARCH != "amd64" {
			t.Skip("SKIPPED: what a kernel asks the system for is written for x86-64")
		}
		poison := compiled(t, "poison", "../../shim/test/poison.c", "-l:libOpenCL.so.1")
		c, err := pool.Dial(t.Context(), n.tcp, "b", strings.ToUpper(key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		task, token, err := c.Run(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		cmd := program(t, n.tcp, task.ID, token, poison, "hidden:"+filepath.Dir(file), strconv.FormatInt(int64(fs.Bavail)*fs.Bsize-4*mib, 10))
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"file", "size"} {
			var told int
			if _, err := fmt.Fscanln(out, &told); err != nil || told != 0 {
				t.Errorf("its %s: told %d, %v", what, told, err)
			}
		}
		n.log.await(t, `msg="program ended" component=pool task_id=`+task.ID)
		_ = stdin.Close()
		_ = cmd.Wait() // its worker has ended
	})
	neighbor.end()
}

// TestSealed: what a node and its workers, or programs of CUDA, have in common nobody makes
// shorter, which would end the node.
func TestSealed(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 20 * mib})
	all, err := os.ReadDir("/proc/self/fd") // the node is in this process
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range all {
		path := filepath.Join("/proc/self/fd", f.Name())
		at, _ := os.Readlink(path)
		name, ok := strings.CutPrefix(at, "/memfd:yunhe-pool-")
		if name = strings.TrimSuffix(name, " (deleted)"); !ok || name != "task" && name != "card" {
			continue
		}
		page, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // another test's, and closed meanwhile
		}
		seen[name] = true
		if err := page.Truncate(0); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s was made shorter: %v", at, err)
		}
		_ = page.Close()
	}
	if !seen["task"] || !seen["card"] {
		t.Errorf("seen were %v", seen)
	}
}

// TestLateWork: what the program has kept back until its turn was over is computed in
// a turn, and charged, too.
func TestLateWork(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	spec := pool.Spec{Device: "opencl-0", Compute: 50, Memory: 16 * mib}
	_, run := share(t, n.unix, spec)
	output(t, run("late", "1")) // its kernel is compiled
	task, run := share(t, n.unix, spec)
	var took time.Duration
	if _, err := fmt.Sscanf(output(t, run("late", "10")), "took %d\n", &took); err != nil {
		t.Fatal(err)
	}
	n.log.await(t, `msg="program ended" component=pool task_id=`+task.ID) // and with it its last turn
	k, ok := taskOf(t, dial(t, n.unix), task.ID)
	if !ok {
		t.Fatal("the task has ended")
	}
	if k.Busy < took*9/10 {
		t.Errorf("it was charged %s for kernels of %s", k.Busy, took)
	}
}

// TestFailsOften: commands that fail because an event does that the program sets leave
// the worker as it is. (PoCL 3.1 ended it once in some 2,000 times, and on a busy machine once in 40,000.)
func TestFailsOften(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Memory: 16 * mib})
	if got := output(t, run("fails", "5000")); got != "failed\n" {
		t.Errorf("it says %q\n%s", got, n.log)
	}
}
