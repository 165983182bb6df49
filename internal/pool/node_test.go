//go:build linux

package pool_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/between"
)

// These tests run real programs of OpenCL on a node with the machine's devices.
// The programs are not changed and do not know.

const key = "a key of group a, long enough"

// built is what the tests share: the program of shim/test and the client library.
var built = sync.OnceValues(func() (b struct{ program, vendors string }, err error) {
	dir, err := os.MkdirTemp("", "yunhe-pool-test-")
	if err != nil {
		return b, err
	}
	if err := os.Setenv("POCL_CACHE_DIR", filepath.Join(dir, "cache")); err != nil { // nodes compile a kernel once, not each
		return b, err
	}
	b.program = filepath.Join(dir, "program")
	if out, err := exec.Command("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", b.program, "../../shim/test/pool.c", "-l:libOpenCL.so.1", "-pthread").CombinedOutput(); err != nil {
		return b, fmt.Errorf("%w: %s", err, out)
	}
	b.vendors, err = pool.Library(dir)
	return b, err
})

// install writes a program. A child that is forked meanwhile has not it open, with which it could not be started.
func install(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}

// onlyPoCL has programs and nodes see PoCL only, where it is, whatever else is
// installed (programs take the first platform), unless the environment says more.
func onlyPoCL(dir string) error {
	icd, err := os.ReadFile("/etc/OpenCL/vendors/pocl.icd")
	if os.Getenv("OCL_ICD_VENDORS") != "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "pocl.icd"), icd, 0o644), os.Setenv("OCL_ICD_VENDORS", dir))
}

func TestMain(m *testing.M) {
	if at := os.Getenv(holds); at != "" {
		if err := holdTask(at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if at := os.Getenv(administers); at != "" {
		fmt.Println(administer(context.Background(), at))
		return
	}
	if dir := os.Getenv(serves); dir != "" {
		if err := serveNode(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	seen, err := os.MkdirTemp("", "yunhe-pool-test-")
	if err == nil {
		err = onlyPoCL(filepath.Join(seen, "natively")) // before tests that have others seen
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(seen)
	if b, err := built(); err == nil && b.program != "" {
		_ = os.RemoveAll(filepath.Dir(b.program))
	}
	os.Exit(code)
}

type node struct {
	unix, tcp string
	log       *lines
	stop      func() // and wait until it has
	dir       string
}

type lines struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	written chan struct{} // closed by the next write, if someone waits for it
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.buf.Write(p)
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

// await waits until a text is written.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	for {
		l.mu.Lock()
		if strings.Contains(l.buf.String(), text) {
			l.mu.Unlock()
			return
		}
		if l.written == nil {
			l.written = make(chan struct{})
		}
		written := l.written
		l.mu.Unlock()
		select {
		case <-written:
		case <-t.Context().Done():
			t.Fatalf("it never said %q", text)
		}
	}
}

// start starts a node, or skips where there is nothing to lend.
func start(t *testing.T, cfg pool.NodeConfig) node {
	t.Helper()
	return startAt(t, cfg, "tcp:127.0.0.1:0")
}

func startAt(t *testing.T, cfg pool.NodeConfig, tcp string) node {
	t.Helper()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	if _, err := built(); err != nil && !strings.Contains(err.Error(), "cannot find -l:libOpenCL") {
		t.Fatalf("the test's program cannot be built: %v", err)
	} else if err != nil {
		t.Skip("SKIPPED: no loader of OpenCL (ocl-icd-libopencl1)")
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	sock, err := os.MkdirTemp("", "yp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	cfg.Listen = []string{"unix:" + filepath.Join(sock, "s"), tcp}
	if cfg.Groups == nil {
		cfg.Groups = []pool.Group{{Name: "a", Key: key}, {Name: "b", Key: strings.ToUpper(key)}}
	}
	log := &lines{}
	n, err := pool.NewNode(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if k := fault.KindOf(err); k == fault.Unavailable || k == fault.NotFound {
		t.Skipf("SKIPPED: no device of OpenCL (pocl-opencl-icd): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = n.Run(ctx) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	at := n.Addresses()
	return node{at[0], at[1], log, stop, cfg.Dir}
}

func dial(t *testing.T, at string) *pool.Client {
	t.Helper()
	c, err := pool.Dial(t.Context(), at, "a", key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// share asks for a task and returns it with what runs a program on it.
func share(t *testing.T, at string, s pool.Spec) (pool.Task, func(args ...string) *exec.Cmd) {
	t.Helper()
	task, token := ask(t, at, s)
	return task, func(args ...string) *exec.Cmd { return program(t, at, task.ID, token, args...) }
}

func program(t *testing.T, at, task, token string, args ...string) *exec.Cmd {
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "/") {
		args = append([]string{b.program}, args...)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "OCL_ICD_VENDORS="+b.vendors), pool.Environment(0, pool.OpenCL, at, task, token)...)
	return cmd
}

func native(t *testing.T, args ...string) string {
	b, _ := built() // start saw that it is
	out, err := exec.CommandContext(t.Context(), b.program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("native: %v: %s", err, out)
	}
	return string(out)
}

// converse starts a program that is told by a line to end, and says where what it says is read.
func converse(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, bufio.NewReader(out)
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

const mib = 1 << 20

func quarter(t *testing.T, at string) int64 {
	d, err := dial(t, at).Devices()
	if err != nil || len(d) == 0 {
		t.Fatalf("devices: %v, %v", d, err)
	}
	return d[0].Memory / 4 / mib * mib
}

// TestSameResults: a program computes the same natively, on this machine's
// pool, and over TCP.
func TestSameResults(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	want, prints := native(t, "add", "4"), native(t, "print")
	for _, x := range []struct{ at, transport string }{{n.unix, ""}, {n.unix, "socket"}, {n.unix, "ring"}, {n.tcp, ""}} {
		at := x.at + " " + x.transport
		_, task := share(t, x.at, pool.Spec{Device: "opencl-0", Compute: 25, Memory: 100 * mib})
		run := func(args ...string) *exec.Cmd {
			cmd := task(args...)
			cmd.Env = append(cmd.Env, pool.TransportVariable+"="+x.transport)
			return cmd
		}
		if got := output(t, run("add", "4")); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
		if got := output(t, run("print")); got != prints || strings.Count(got, "kernel says") != 101 {
			t.Errorf("%s: what kernels print: got %q, want %q", at, got, prints)
		}
		if got := output(t, run("threads")); got != "threads 7\n" {
			t.Errorf("%s: an event that another thread sets: %q", at, got)
		}
	}
}

// TestIncludes: a program is built with header files of its own machine.
func TestIncludes(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	in := func(cmd *exec.Cmd) string {
		t.Helper()
		cmd.Dir = t.TempDir()
		for _, dir := range []string{"inc/empty", "inc/sub"} {
			if err := os.MkdirAll(filepath.Join(cmd.Dir, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return output(t, cmd)
	}
	const want = "included 5321, options as given\nincluded 5421, options as given\ncompiled 401\nwithout folders -11\nof no option 87000, source as given\n"
	for _, at := range []string{n.unix, n.tcp} {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
		if got := in(run("includes")); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
	}
}

// TestConfined: a program sees no files of the node's machine, by any driver,
// though the node's user may read them.
func TestConfined(t *testing.T) {
	if between.Landlock() == 0 {
		t.Skip("SKIPPED: this kernel has no Landlock")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("what_only_the_node knows;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, library := range vendors {
		t.Run(name, func(t *testing.T) {
			of(t, name, library)
			n := start(t, pool.NodeConfig{})
			if got := native(t, "peek", secret); !strings.Contains(got, "what_only_the_node") {
				t.Fatalf("natively it does not see the file: %s", got)
			}
			_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
			if got := output(t, run("peek", secret)); strings.HasPrefix(got, "built 0\n") || strings.Contains(got, "what_only_the_node") {
				t.Errorf("a file of the node's: %s", got)
			}
			if got, want := output(t, run("add")), native(t, "add"); got != want {
				t.Errorf("it computes %q, natively %q", got, want)
			}
		})
	}
}

// vendors are implementations of OpenCL, by their drivers.
var vendors = map[string]string{
	"pocl":     "libpocl.so.2",
	"oclgrind": "/usr/lib/oclgrind/liboclgrind-rt-icd.so",
	"rusticl":  "/usr/lib/x86_64-linux-gnu/libRusticlOpenCL.so.1",
}

// of has one of them used until the test ends, or skips.
func of(t *testing.T, name, library string) {
	t.Helper()
	if _, err := os.Stat(library); filepath.IsAbs(library) && err != nil {
		t.Skipf("SKIPPED: %v (package oclgrind, mesa-opencl-icd)", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name+".icd"), []byte(library+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OCL_ICD_VENDORS", dir)
	t.Setenv("RUSTICL_ENABLE", "llvmpipe")
}

// TestAsks: programs are told the same natively and by the pool.
func TestAsks(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	want := native(t, "asks")
	for _, at := range []string{n.unix, n.tcp} {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
		if got := output(t, run("unbuilt")); got != "log ''\n" {
			t.Errorf("%s: of what was not built it says %q", at, got)
		}
		if got := output(t, run("asks")); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
	}
}

// TestFlood: what a program sends and asks for without waiting does not fill the
// memory of the node's machine.
func TestFlood(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
	cmd := run("flood", "1536")
	most := int64(0)
	watch := again(t, func(int) error {
		most = max(most, resident(os.Getpid()))
		return nil
	})
	if got := output(t, cmd); got != "pieces 48, the last is right: 1\n" {
		t.Errorf("got %q", got)
	}
	if watch(); most == 0 || most > 1500*mib {
		t.Errorf("a worker had %d MiB", most/mib)
	}
}

// TestTalks: a program that gives much to do while its kernel prints much hears what
// that says.
func TestTalks(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	want := native(t, "talks")
	for _, at := range []string{n.unix, n.tcp} {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
		if got := output(t, run("talks")); got != want {
			t.Errorf("%s: %d bytes, natively %d", at, len(got), len(want))
		}
	}
}

// resident is how much memory the largest child of a process has.
func resident(pid int) (most int64) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // or the thread has ended
		for child := range strings.FieldsSeq(string(children)) {
			statm, _ := os.ReadFile("/proc/" + child + "/statm")
			name, _ := os.ReadFile("/proc/" + child + "/comm")
			var size, pages int64
			if _, err := fmt.Sscan(string(statm), &size, &pages); err == nil && strings.HasPrefix("yunhe-pool-worker", strings.TrimSpace(string(name))) {
				most = max(most, pages*int64(os.Getpagesize()))
			}
		}
	}
	return most
}

// TestVendors: programs compute the same on devices of other implementations of
// OpenCL, natively and through the pool. It is not parallel: which one there is
// is said by the environment.
func TestVendors(t *testing.T) {
	habits := compiled(t, "habits", "../../shim/test/habits.c", "-l:libOpenCL.so.1")
	for name, library := range vendors {
		if name == "pocl" { // every other test's
			continue
		}
		t.Run(name, func(t *testing.T) {
			of(t, name, library)
			n := start(t, pool.NodeConfig{})
			_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
			for _, args := range [][]string{{"add", "2"}, {"print"}} {
				// What a driver's compiler says the first time, it says at the node.
				want := regexp.MustCompile(`(?m)^MESA: .*\n`).ReplaceAllString(native(t, args...), "")
				if got := output(t, run(args...)); got != want {
					t.Errorf("%v: got %q, want %q", args, got, want)
				}
			}
			if name == "rusticl" { // of memory that it shares it makes no images
				_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
				if got, want := output(t, run("imageof")), native(t, "imageof"); got != want {
					t.Errorf("an image of a buffer: got %q, want %q", got, want)
				}
			}
			if got := output(t, run(habits, "divides")); got != "divided -30\n" { // natively rusticl crashes
				t.Errorf("dividing what cannot be divided: %q", got)
			}
			if got := output(t, run("threads")); got != "threads 7\n" {
				t.Errorf("an event that another thread sets: %q", got)
			}
			if got := output(t, run(habits, "late")); got != "written in another queue: 0 are wrong\n0 reads are late\n" {
				t.Errorf("what is read elsewhere, or that nobody waits for: %q", got)
			}
		})
	}
}

// TestBasic: a driver that waits for itself for ever when two threads call it is
// called by one at a time, so that programs compute on it beside one another. It
// is not parallel: which driver there is is said by the environment.
func TestBasic(t *testing.T) {
	t.Setenv("POCL_DEVICES", "basic")
	n := start(t, pool.NodeConfig{})
	var walkers []*walker
	for range 2 {
		_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
		walkers = append(walkers, walk(t, run("walk", "1")))
	}
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
	if got, want := output(t, run("add", "20")), native(t, "add", "20"); got != want {
		t.Errorf("beside others it computes %q, natively %q", got, want)
	}
	for _, w := range walkers {
		w.end()
	}
}

// TestClinfo: what clinfo tells of the device is what it tells natively, but
// for the platform's name and what the pool does not have.
func TestClinfo(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	clinfo, err := exec.LookPath("clinfo")
	if err != nil {
		t.Skip("SKIPPED: no clinfo")
	}
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 1234 * mib})
	got := output(t, run(clinfo, "--raw"))
	if !strings.Contains(got, "Yunhe accelerator pool") || !regexp.MustCompile(`CL_DEVICE_GLOBAL_MEM_SIZE +1293942784\b`).MatchString(got) {
		t.Fatalf("clinfo shows no device of the pool with 1234 MiB:\n%s", got)
	}
	out, err := exec.CommandContext(t.Context(), clinfo, "--raw").Output()
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^.*/0\]\s+(CL_DEVICE_(?:NAME|VENDOR|VERSION|MAX_\w+|IMAGE\w*|LOCAL_MEM\w*|PREFERRED\w*|NATIVE\w*|\w+_FP_CONFIG|EXTENSIONS|ADDRESS_BITS|PRINTF\w*))\s+(.*)$`)
	facts := func(text string) map[string]string {
		m := map[string]string{}
		for _, x := range line.FindAllStringSubmatch(text, -1) {
			m[x[1]] = x[2]
		}
		delete(m, "CL_DEVICE_MAX_MEM_ALLOC_SIZE") // the task's
		return m
	}
	here, there := facts(string(out)), facts(got)
	for _, lacks := range []string{"cl_khr_command_buffer"} { // functions of the driver's that programs cannot call in the pool
		if strings.Contains(got, lacks) {
			t.Errorf("the pool's device has %s", lacks)
		}
		here["CL_DEVICE_EXTENSIONS"] = strings.ReplaceAll(here["CL_DEVICE_EXTENSIONS"], lacks+" ", "")
	}
	if len(there) < 20 {
		t.Errorf("only %d facts", len(there))
	}
	for k, v := range there {
		if w, ok := here[k]; ok && strings.TrimSpace(w) != strings.TrimSpace(v) {
			t.Errorf("%s: %q natively, %q in the pool", k, w, v)
		}
	}
}

// TestMemory: a task has its memory to the mebibyte, all its programs together;
// a new limit counts at once, while they run.
func TestMemory(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 37 * mib})
	cmd := run("fill", "100", "wait")
	in, r := converse(t, cmd)
	if line, _ := r.ReadString('\n'); line != "buffers 37 error -4\n" {
		t.Errorf("of 37 MiB: %q", line)
	}
	other := dial(t, n.unix)
	if tasks, err := other.Tasks(); err != nil || len(tasks) != 1 || tasks[0].Used != 37*mib || tasks[0].Programs != 1 {
		t.Errorf("the task is shown as %+v, %v", tasks, err)
	}
	if got := output(t, run("fill", "100")); got != "buffers 0 error -4\n" {
		t.Errorf("a second program of a task that is full: %q", got)
	}
	if k, err := other.Resize(task.ID, 20, 38*mib); err != nil || k.Compute != 20 || k.Memory != 38*mib {
		t.Errorf("resized to %+v, %v", k, err)
	}
	_, _ = io.WriteString(in, "\n")
	if line, _ := r.ReadString('\n'); line != "again 0\n" {
		t.Errorf("with one MiB more: %q", line)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := output(t, run("fill", "100")); got != "buffers 38 error -4\n" {
		t.Errorf("what the first held is not back: %q", got)
	}
	if got, want := output(t, run("crumbs", "10000")), fmt.Sprintf("buffers %d error -4\n", 38*mib>>12); got != want {
		t.Errorf("in small pieces it has %q, not %q", got, want)
	}
}

// begin starts a program and returns when it has said so.
func begin(t *testing.T, cmd *exec.Cmd, says string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != says+"\n" {
		t.Fatalf("it said %q", line)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestEnds: a task ends when it is stopped, when its time is over and when it
// is not used, and its client is told why; its programs' calls fail then.
func TestEnds(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	for name, c := range map[string]struct {
		spec pool.Spec
		want string
	}{
		"stopped": {pool.Spec{}, "it was stopped"},
		"limit":   {pool.Spec{Limit: 1}, "virtual resource released: run timeout, it ran for its limit of 1 s"},
		"idle":    {pool.Spec{Idle: 1}, "virtual resource released: idle timeout, it was not used for 1 s"},
	} {
		c.spec.Device, c.spec.Compute, c.spec.Memory = "opencl-0", 5, 5*mib
		client := dial(t, n.unix)
		task, token, err := client.Run(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if name == "stopped" {
			if err := dial(t, n.unix).Stop(task.ID); err != nil {
				t.Error(err)
			}
		}
		if why, err := client.Ended(); err != nil || why != c.want {
			t.Errorf("%s: ended with %q, %v", name, why, err)
		}
		if out, err := program(t, n.unix, task.ID, token, "add").CombinedOutput(); err == nil || !strings.Contains(string(out), "no such task") {
			t.Errorf("%s: a program of a task that has ended: %v, %s", name, err, out)
		}
	}
}

// TestDevices: what is lent is shown, a disabled device takes no new tasks, and
// what a device has is not lent twice.
func TestDevices(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Groups: []pool.Group{{Name: "a", Key: key}}})
	memory := quarter(t, n.unix)
	_, _ = share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 60, Memory: memory})
	c := dial(t, n.unix)
	if d, err := c.Devices(); err != nil || d[0].Tasks != 1 || d[0].Compute != 60 || d[0].Allotted != memory {
		t.Errorf("shown as %+v, %v", d, err)
	}
	if _, _, err := c.Run(pool.Spec{Device: "opencl-0", Compute: 41, Memory: mib}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("101%% of a device: %v", err)
	}
	if _, _, err := c.Run(pool.Spec{Device: "opencl-0", Compute: 1, Memory: 4 * memory}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("more than its memory: %v", err)
	}
	if _, _, err := c.Run(pool.Spec{Device: "opencl-0", Compute: 41, Weighted: true, Memory: mib}); err != nil {
		t.Errorf("a weight beside it: %v", err)
	}
}

// TestLibrary: who starts while others do finds the client library whole.
func TestLibrary(t *testing.T) {
	t.Parallel()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	dir := t.TempDir()
	vendors, err := pool.Library(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(vendors, "yunhe.icd"))
	if err != nil || !strings.HasPrefix(string(want), dir) {
		t.Fatalf("the loader is told %q: %v", want, err)
	}
	others := make(chan error, 1)
	go func() {
		var bad error
		for range 100 {
			_, err := pool.Library(dir)
			bad = errors.Join(bad, err)
		}
		others <- bad
	}()
	for {
		if got, err := os.ReadFile(filepath.Join(vendors, "yunhe.icd")); err != nil || string(got) != string(want) {
			t.Fatalf("meanwhile the loader is told %q: %v", got, err)
		}
		select {
		case err := <-others:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// TestSubDevices: sub-devices are what they are natively, and a context is of
// those that it was made for (PoCL says that it is of the whole device).
func TestSubDevices(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	ours := regexp.MustCompile(`(?m)^(context of|references fell).*\n`)
	want := native(t, "parts")
	if !strings.Contains(want, "part 1: sum") {
		t.Skipf("SKIPPED: this machine's device cannot be divided: %s", want)
	}
	for _, at := range []string{n.unix, n.tcp} {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
		got := output(t, run("parts"))
		if ours.ReplaceAllString(got, "") != ours.ReplaceAllString(want, "") {
			t.Errorf("%s: got\n%s\nwant\n%s", at, got, want)
		}
		for _, line := range []string{"context of 3, the first right\n", "references fell \n"} {
			if !strings.Contains(got, line) {
				t.Errorf("%s: no %q in\n%s", at, line, got)
			}
		}
	}
}

// TestWrongArguments: calls with wrong arguments fail as they do natively. Where
// PoCL says something else than the standard, the pool says what that does.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	standard := map[string]string{
		"clGetDeviceIDs(platform, 0, 1, &d, NULL)":                                                          "-31",
		"clGetDeviceIDs(platform, 1 << 20, 1, &d, &n)":                                                      "-31",
		"clCreateContext(neither, 1, &d, NULL, NULL, &e)":                                                   "-64",
		"clCreateImage(c, 0, &rgba, &huge, NULL, &e)":                                                       "-40",
		"clCreateImage(c, 0, &rgba, &pitched, NULL, &e)":                                                    "-65",
		"clCreateImage(c, CL_MEM_COPY_HOST_PTR, &rgba, &pitched, host, &e)":                                 "-65",
		"clCreateImage(c, 0, &rgba, &strange, NULL, &e)":                                                    "-65",
		"clGetImageInfo(m, CL_IMAGE_WIDTH, 8, space, NULL)":                                                 "-38",
		"clSetKernelArg(k, 0, sizeof s, &s)":                                                                "-38",
		"clSetKernelArg(k, 3, sizeof m, &m)":                                                                "-41",
		"clSetKernelArgSVMPointer(one, 0, host)":                                                            "-50",
		"clSetKernelExecInfo(k, 1, sizeof v1, &v1)":                                                         "-30",
		"clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_PTRS, 3, &v1)":                                      "-30",
		"clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof yes, &yes)":               "-59",
		"clEnqueueSVMMap(q, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, v1, 64, 0, NULL, NULL)": "-30",
		"clEnqueueNDRangeKernel(q, one, 1, NULL, &w4, NULL, 0, &done, NULL)":                                "-57",
		"clEnqueueNDRangeKernel(q, one, 1, NULL, &w4, NULL, 1, &other, NULL)":                               "-34",
	}
	ofSeveral := map[string]string{ // and of two nodes' cards in a context
		"clGetKernelWorkGroupInfo(k, NULL, CL_KERNEL_WORK_GROUP_SIZE, 8, space, NULL)": "-33",
	}
	n, other := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	wrong := filepath.Join(t.TempDir(), "wrong")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-clobbered", "-Werror", "-o", wrong, "../../shim/test/wrong.c", "-l:libOpenCL.so.1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, err := exec.CommandContext(t.Context(), wrong).Output()
	for range 2 { // a thread of PoCL's own may crash of it
		if err != nil {
			t.Logf("natively: %v", err)
			want, err = exec.CommandContext(t.Context(), wrong).Output()
		}
	}
	if err != nil {
		t.Fatalf("natively: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(want)), "\n")
	for i, line := range lines {
		code, call, _ := strings.Cut(line, " ")
		if call = strings.TrimPrefix(call, "made "); standard[call] != "" && code != standard[call] {
			lines[i] = standard[call] + " " + call
		}
	}
	for i, at := range []string{n.unix, n.tcp, n.unix, "two nodes"} {
		var cmd *exec.Cmd
		if i < 3 {
			_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 30, Memory: 100 * mib})
			cmd = run(wrong)
		} else {
			cmd = over(t, n.unix, other.tcp)(wrong, "all")
		}
		if i == 2 {
			at, cmd = "our loader", withLoader(cmd)
		}
		got, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Split(strings.TrimSpace(string(got)), "\n")
		if len(said) != len(lines) || len(lines) < 200 {
			t.Fatalf("%s: %d calls, natively %d", at, len(said), len(lines))
		}
		for k := range lines {
			want := lines[k]
			if _, call, _ := strings.Cut(want, " "); i == 3 && ofSeveral[call] != "" {
				want = ofSeveral[call] + " " + call
			}
			if said[k] != want {
				t.Errorf("%s: %s, want %s", at, said[k], want)
			}
		}
	}
}

// TestHabits: what programs may do and few do comes to the same natively and in
// the pool.
func TestHabits(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	habits := compiled(t, "habits", "../../shim/test/habits.c", "-l:libOpenCL.so.1")
	want, err := exec.CommandContext(t.Context(), habits).Output()
	if err != nil {
		t.Fatalf("natively: %v", err)
	}
	for i, at := range []string{n.unix, n.tcp, n.unix} {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 30, Memory: 100 * mib})
		cmd := run(habits)
		if i == 2 {
			at, cmd = "our loader", withLoader(cmd)
		}
		if got := output(t, cmd); got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", at, got, want)
		}
		if at == n.tcp {
			if got := output(t, run(habits, "again")); got != "new pages for what is mapped again: few\nkept: yes, and when it is idle: no\n" {
				t.Errorf("what is mapped again: %q", got)
			}
		}
	}
}

// TestQueuesGo: a program may release a queue while the end of its turn waits for
// what others have. (Its worker crashed.)
func TestQueuesGo(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	if got := output(t, run("queues", "5000")); got != "5000 queues\n" {
		t.Errorf("it says %q", got)
	}
}
