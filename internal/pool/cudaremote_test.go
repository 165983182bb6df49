//go:build linux

package pool_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// These tests run a real program of CUDA (shim/test/cudaremote.c) without the
// driver: a worker at the node has that, which is a stand-in (fakecuda.c). Nothing
// here says how cards behave.

// remoteNode is a node that plays two cards, and a program that has no driver.
type remoteNode struct {
	cudaNode
	far string // the program
	elf string // code for it
}

func startRemote(t *testing.T, options ...string) remoteNode {
	t.Helper()
	return startRemoteOf(t, pool.NodeConfig{}, options...)
}

func startRemoteOf(t *testing.T, cfg pool.NodeConfig, options ...string) remoteNode {
	t.Helper()
	n := remoteNode{cudaNode: startCUDAOf(t, cfg, "cuda "+strings.Join(options, " ")), far: filepath.Join(t.TempDir(), "cudaremote"), elf: filepath.Join(t.TempDir(), "code")}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", n.far, "../../shim/test/cudaremote.c", "-L"+n.driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("the test's program: %v: %s", err, out)
	}
	if err := os.WriteFile(n.elf, cubin(), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// share asks for a task at an address and returns it with what runs the program on it.
func (n remoteNode) share(t *testing.T, at string, s pool.Spec) (pool.Task, func(args ...string) *exec.Cmd) {
	t.Helper()
	task, token := ask(t, at, s)
	return task, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), n.far, args...)
		cmd.Env = append(append(os.Environ(), pool.RemoteCUDAEnvironment(n.remote, "", "")...), pool.Environment(0, pool.CUDA, at, task.ID, token)...)
		return cmd
	}
}

// native runs the program with the driver itself.
func (n remoteNode) native(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), n.far, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+n.driver)
	return output(t, cmd)
}

// cubin is an ELF file in the form of CUDA's code, as far as the stand-in and the
// worker look: a section for each kernel says what its arguments are.
func cubin() []byte {
	le := binary.LittleEndian
	kernels := []struct {
		name   string
		params [][2]uint32 // offset, size
	}{
		{"saxpy", [][2]uint32{{0, 8}, {8, 8}, {16, 4}, {20, 4}}}, {"fill", [][2]uint32{{0, 8}, {8, 4}, {12, 4}}}, {"sum", [][2]uint32{{0, 8}, {8, 8}, {16, 4}}},
		{"odd", [][2]uint32{{0, 1}, {8, 8}, {16, 2}, {20, 4}}}, {"wild", nil},
	}
	const header, section = 64, 64
	body := make([]byte, header)
	names := []byte("\x00.shstrtab\x00")
	sections := make([]byte, section)
	add := func(name uint32, kind uint32, text []byte) {
		s := make([]byte, section)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], kind)
		le.PutUint64(s[24:], uint64(len(body)))
		le.PutUint64(s[32:], uint64(len(text)))
		le.PutUint64(s[48:], 1)
		body = append(body, text...)
		sections = append(sections, s...)
	}
	const nobits, nvInfo, strtab = 8, 0x70000000, 3
	for _, k := range kernels {
		info := []byte{3, 0x19, 24, 0}            // a form whose value is short
		for i := len(k.params) - 1; i >= 0; i-- { // as compilers have them
			info = append(info, 4, 0x17, 12, 0)
			info = le.AppendUint32(info, 0)
			info = le.AppendUint16(info, uint16(i))
			info = le.AppendUint16(info, uint16(k.params[i][0]))
			info = le.AppendUint32(info, k.params[i][1]<<18|0x1F000)
		}
		at := uint32(len(names))
		names = append(append(names, ".nv.info."+k.name...), 0)
		add(at, nvInfo, info)
	}
	at := uint32(len(names))
	names = append(append(names, ".nv.shared"...), 0)
	add(at, nobits, nil)
	le.PutUint64(sections[len(sections)-section+32:], 1<<40) // which takes no room in the file
	add(1, strtab, names)
	for len(body)%8 != 0 {
		body = append(body, 0)
	}
	n := len(sections) / section
	copy(body, "\x7fELF\x02\x01\x01")
	le.PutUint16(body[16:], 2)
	le.PutUint16(body[18:], 190) // EM_CUDA
	le.PutUint32(body[20:], 1)
	le.PutUint64(body[40:], uint64(len(body)))
	le.PutUint16(body[52:], header)
	le.PutUint16(body[58:], section)
	le.PutUint16(body[60:], uint16(n))
	le.PutUint16(body[62:], uint16(n-1))
	out := append(body, sections...)
	h := fnv.New64a()
	_, _ = h.Write(out[16:])
	le.PutUint64(out[8:], h.Sum64()) // where the stand-in looks whether all has come
	return out
}

// TestCUDARemote: a program says the same with the driver and without, on this
// machine and over TCP.
func TestCUDARemote(t *testing.T) {
	n := startRemote(t)
	for _, args := range [][]string{{"compute", n.elf}, {"copies"}, {"streams"}, {"memory"}, {"textures"}, {"jit"}, {"threads", "8"}, {"late"}, {"wrong"}} {
		want := n.native(t, args...)
		for _, at := range []string{n.unix, n.tcp} {
			task, run := n.share(t, at, pool.Spec{Device: "cuda-1", Compute: 100, Memory: 400 * mib})
			if got := output(t, run(args...)); got != want {
				t.Errorf("%s at %s:\n%s", args[0], at, differ(got, want))
			}
			if err := dial(t, at).Stop(task.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// differ says in which lines two texts do.
func differ(a, b string) string {
	var out bytes.Buffer
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		var p, q string
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if p != q {
			out.WriteString(p + " != " + q + "\n")
		}
	}
	return out.String()
}

// TestCUDARemoteOld: a driver that does not tell how large arguments are is not
// asked: the code says so.
func TestCUDARemoteOld(t *testing.T) {
	n := startRemote(t, "-DOLD")
	want := n.native(t, "compute", n.elf)
	// What is text says nothing of arguments; the part of the program that needs none of it still runs.
	_, run := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 64 * mib})
	out, err := run("compute", n.elf).CombinedOutput()
	first, _, _ := strings.Cut(want, "odd ")
	if err == nil || !strings.HasPrefix(string(out), first) || !strings.Contains(string(out), "error 801") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCUDARemoteFinds: however programs come to the driver they come to the
// library, in the form that they ask for; what is not there is said not to be.
func TestCUDARemoteFinds(t *testing.T) {
	n := startRemote(t)
	_, run := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 64 * mib})
	for _, name := range []string{"libcuda.so.1", "libcuda.so", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", filepath.Join(n.driver, "libcuda.so.1")} {
		if got := output(t, run("open", name)); got != "the same driver\n" {
			t.Errorf("%s: %s", name, got)
		}
	}
	const want = `cuMemAlloc 12040: 0 0 right
cuMemAlloc 2000: 0 0 right
cuMemAllocAsync 11010: 0 2 right
cuLinkCreate 6000: 0 0 right
cuStreamWaitValue32 11060: 0 0 right
cuCtxCreate 11000: 0 0 right
cuCtxCreate 12000: 0 0 right
cuLaunchKernel 12000: 0 0 right
cuMemcpyHtoD 12000: 0 0 right
cuGraphInstantiate 12000: 0 0 right
cuGraphInstantiate 11000: 0 0 right
cuNobody 12000: 0 1 right
cuGetProcAddress 12000: 0 0 right
cuGetProcAddress 11040: 0 0 right
yunhe pool: CUDA's runtime (libcudart, which PyTorch needs) does not start on another machine than the card's: it asks the driver for tables that are not documented
table 1
peer 0 0, managed 801
registered 0 712, 0 1
unregistered 0 713 1
pointer 0 2, 0 1, 0 5000
 by the stream
called 0 1
its own stream 40 49
before: no shape 1, wrong 1 1 1 1 400, right 70 79
detached, and as before 1, again 201
attribute 16: 132
attribute 75: 9
attribute 83: 0
`
	if got := output(t, run("proc")); got != want {
		t.Errorf("\n%s", differ(got, want))
	}
}

// TestCUDARemoteFFmpeg: ffmpeg keeps pictures on the card, and has them back.
func TestCUDARemoteFFmpeg(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("SKIPPED: ffmpeg is not installed: scripts/deps.sh pool")
	}
	n := startRemote(t)
	task, token := ask(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 64 * mib})
	sum := func(env []string, card, filters string) string {
		args := append(strings.Fields(card), strings.Fields("-v error -f lavfi -i testsrc=size=320x240:rate=5 -t 2 -vf "+filters+" -f md5 -")...)
		cmd := exec.CommandContext(t.Context(), ffmpeg, args...)
		cmd.Env = append(os.Environ(), env...)
		return output(t, cmd)
	}
	want := sum(nil, "", "format=nv12")
	env := append(pool.RemoteCUDAEnvironment(n.remote, "", ""), pool.Environment(0, pool.CUDA, n.tcp, task.ID, token)...)
	if got := sum(env, "-init_hw_device cuda=c:0 -filter_hw_device c", "format=nv12,hwupload_cuda,hwdownload,format=nv12"); got != want {
		t.Errorf("from the card %q, want %q", got, want)
	}
}

// TestCUDARemoteOpenCL: a program on a slice of CUDA that looks for OpenCL, too, finds
// none, and nothing is asked of the slice's worker.
func TestCUDARemoteOpenCL(t *testing.T) {
	n := startRemote(t)
	task, token := ask(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 64 * mib})
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), b.program, "add")
	cmd.Env = append(append(os.Environ(), "OCL_ICD_VENDORS="+b.vendors), pool.Environment(0, pool.CUDA, n.tcp, task.ID, token)...)
	if out, err := cmd.CombinedOutput(); err == nil || string(out) != "failed platform -1001\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCUDARemoteMemory: the programs of a slice have its memory together, to 1 MiB,
// also after it was resized and beside a program that has the driver itself; what
// one has that is killed is the others' within two seconds.
func TestCUDARemoteMemory(t *testing.T) {
	n := startRemote(t)
	task, token := ask(t, n.unix, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 100 * mib})
	run := func(at string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), n.far, args...)
		cmd.Env = append(append(os.Environ(), pool.RemoteCUDAEnvironment(n.remote, "", "")...), pool.Environment(0, pool.CUDA, at, task.ID, token)...)
		return cmd
	}
	if got := output(t, run(n.tcp, "fill")); got != "filled 100, error 2\nagain 0\n" {
		t.Fatal(got)
	}
	for at := time.Now(); n.show(t, task.ID).Used != 0; { // the program has ended, its worker is about to
		if time.Since(at) > 2*time.Second {
			t.Fatalf("afterwards: %+v", n.show(t, task.ID))
		}
	}
	a, b := hold(t, run(n.tcp, "hold", "60")), hold(t, run(n.unix, "hold", "20"))
	c := hold(t, n.run(t, n.unix, task.ID, token, "dlsym", "hold", "20"))
	if x, y, z := a.line(t), b.line(t), c.line(t); x != "filled 60, error 0" || y != "filled 20, error 0" || z != "holds 0" {
		t.Fatal(x, y, z)
	}
	if x, y, z := a.ask(t, "u"), b.ask(t, "m"), c.ask(t, "m"); x != "free 0" || y != "more 2" || z != "more 2" {
		t.Error(x, y, z)
	}
	if _, err := dial(t, n.unix).Resize(task.ID, 0, 101*mib); err != nil {
		t.Fatal(err)
	}
	if x, y := b.ask(t, "m"), b.ask(t, "m"); x != "more 0" || y != "more 2" {
		t.Error("after it was resized", x, y)
	}
	if x := b.ask(t, "h"); x != "heap 2" { // what kernels allocate from
		t.Error(x)
	}
	at := time.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for b.ask(t, "u") != "free 60" {
		if time.Since(at) > 2*time.Second {
			t.Fatalf("it is not given back: %s", b.ask(t, "u"))
		}
	}
	_ = a.cmd.Wait()
	if x, y := b.ask(t, "h"), b.ask(t, "u"); x != "heap 0" || y != "free 58" {
		t.Error(x, y)
	}
	if got := n.show(t, task.ID); got.Used != 43*mib || got.Resident != 43*mib || got.Programs != 2 {
		t.Errorf("%+v", got)
	}
	if err := dial(t, n.unix).Stop(task.ID); err != nil {
		t.Fatal(err)
	}
	if x, y := b.ask(t, "s"), b.ask(t, "m"); x != "synchronized 46" || y != "more 46" {
		t.Error("after the slice was stopped", x, y)
	}
	_ = b.in.Close()
	_, _ = b.cmd.Wait(), c.cmd.Wait()
}

// TestCUDARemoteFails: a kernel that ends its worker, a worker that is killed and a
// node that ends have their program's calls fail, and nobody else's.
func TestCUDARemoteFails(t *testing.T) {
	n := startRemote(t)
	task, run := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 40, Memory: 64 * mib})
	_, other := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 40, Memory: 64 * mib})
	beside := hold(t, other("hold", "5"))
	beside.line(t)
	out, err := run("crash").CombinedOutput()
	// The worker may be gone before it has answered the launch, too.
	if err != nil || !regexp.MustCompile(`launched (0|46)\n`).Match(out) || !strings.Contains(string(out), "then 46\n") {
		t.Errorf("a kernel that ends its worker: %v: %s", err, out)
	}
	if got := output(t, run("late")); got != n.native(t, "late") {
		t.Errorf("afterwards: %s", got)
	}
	for at := time.Now(); n.show(t, task.ID).Programs != 0; {
		if time.Since(at) > 2*time.Second {
			t.Fatalf("afterwards: %+v", n.show(t, task.ID))
		}
	}
	h := hold(t, run("hold", "5"))
	h.line(t)
	workers := cudaWorkers(t)
	if len(workers) != 2 {
		t.Fatalf("workers: %v", workers)
	}
	if err := syscall.Kill(slices.Max(workers), syscall.SIGKILL); err != nil { // the younger
		t.Fatal(err)
	}
	if x, y := h.ask(t, "m"), h.ask(t, "s"); x != "more 46" || y != "synchronized 46" {
		t.Error("after its worker was killed", x, y)
	}
	if x, y := beside.ask(t, "m"), beside.ask(t, "s"); x != "more 0" || y != "synchronized 0" {
		t.Error("the neighbor", x, y)
	}
	n.stop()
	if x := beside.ask(t, "m"); x != "more 46" {
		t.Error("after the node has ended", x)
	}
	for _, p := range []*holding{h, beside} {
		_ = p.in.Close()
		_ = p.cmd.Wait()
	}
	if out, err := run("hold", "1").CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot be reached") || !strings.Contains(string(out), "error 100") {
		t.Errorf("without a node: %v: %s", err, out)
	}
}

// cudaWorkers are the processes of this one's nodes that make calls of CUDA.
func cudaWorkers(t *testing.T) (all []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		args, err := os.ReadFile(path)
		status, err2 := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil || err2 != nil || !bytes.Contains(args, []byte("\x00serve-cuda\x00")) || !bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid())) {
			continue // or it has ended
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// TestCUDARemoteRefused: who is of no task has no device.
func TestCUDARemoteRefused(t *testing.T) {
	n := startRemote(t)
	task, token := ask(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 40, Memory: 64 * mib})
	for _, x := range [][2]string{{task.ID, strings.Repeat("0", 64)}, {strings.Repeat("0", 26), token}, {task.ID, "rubbish"}, {"", ""}} {
		cmd := exec.CommandContext(t.Context(), n.far, "late")
		cmd.Env = append(os.Environ(), pool.RemoteCUDAEnvironment(n.remote, "", "")...)
		if x[0] != "" {
			cmd.Env = append(cmd.Env, pool.Environment(0, pool.CUDA, n.tcp, x[0], x[1])...)
		}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "error 100") {
			t.Errorf("%v: %v: %s", x, err, out)
		}
	}
	if _, _, err := dial(t, n.unix).Migrate(task.ID, "", "cuda-1"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("moving it: %v", err)
	}
}

// TestCUDARemoteShares: slices that contend compute by their shares, also beside one
// that has the driver itself.
func TestCUDARemoteShares(t *testing.T) {
	n := startRemote(t)
	const within = 0.06 // the machine does other things
	for _, x := range []struct {
		a, b  int64
		local bool
	}{{30, 70, false}, {10, 90, false}, {30, 70, true}} {
		one, first := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: x.a, Memory: mib})
		two, second := n.share(t, n.unix, pool.Spec{Device: "cuda-0", Compute: x.b, Memory: mib})
		a, b := hold(t, first("spin", "1000", "3")), &holding{}
		if x.local {
			if err := dial(t, n.unix).Stop(two.ID); err != nil {
				t.Fatal(err)
			}
			var local func(args ...string) *exec.Cmd
			two, local = n.cudaNode.share(t, pool.Spec{Device: "cuda-0", Compute: x.b, Memory: mib})
			b = hold(t, local("dlsym", "spin", "1000", "3"))
		} else {
			b = hold(t, second("spin", "1000", "3"))
		}
		outA, errA := io.ReadAll(a.out)
		outB, errB := io.ReadAll(b.out)
		if errA != nil || errB != nil || a.cmd.Wait() != nil || b.cmd.Wait() != nil {
			t.Fatal(errA, errB, string(outA), string(outB))
		}
		k, l := kernels(t, string(outA), "kernels"), kernels(t, string(outB), "kernels")
		had, other := n.show(t, one.ID).Busy.Seconds(), n.show(t, two.ID).Busy.Seconds()
		t.Logf("%d:%d: %.0f and %.0f kernels, %.1f %% of the device's time", x.a, x.b, k, l, 100*had/(had+other))
		if got := had / (had + other); math.Abs(got-float64(x.a)/100) > within || k == 0 || l == 0 {
			t.Errorf("%d:%d: the first has %.1f %%", x.a, x.b, 100*got)
		}
		for _, task := range []pool.Task{one, two} {
			if err := dial(t, n.unix).Stop(task.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCUDARemoteLoads: a launch that loads its kernel first takes long, while the device
// has nothing to do; that is not charged, also when other work was given just before.
func TestCUDARemoteLoads(t *testing.T) {
	n := startRemote(t, "-DLAZY=700")
	task, run := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 5, Memory: 2 * mib})
	at := time.Now()
	if got := output(t, run("loads", "10000")); got != "sum 29850\n" {
		t.Error(got)
	}
	if took, used := time.Since(at), n.show(t, task.ID).Busy; used < 10*time.Millisecond || used > 300*time.Millisecond || took > 15*time.Second {
		t.Errorf("it took %v, of which the device is said to have computed %v", took, used)
	}
}

// TestCUDABlocking: launches that last until their kernels have ended, as an environment may
// have them, are charged, though nothing else is given to the device.
func TestCUDABlocking(t *testing.T) {
	t.Setenv("CUDA_LAUNCH_BLOCKING", "1")
	n := startRemote(t)
	far, remote := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 2 * mib})
	near, local := n.cudaNode.share(t, pool.Spec{Device: "cuda-1", Compute: 100, Memory: 2 * mib})
	for task, cmd := range map[string]*exec.Cmd{far.ID: remote("spin", "20000", "1"), near.ID: local("proc", "spin", "20000", "1")} {
		output(t, cmd)
		if used := n.show(t, task).Busy; used < 800*time.Millisecond {
			t.Errorf("%s: of one second it was charged %v", cmd.Path, used)
		}
	}
}

// TestCUDARemoteIdle: a slice ends when it is not used; what is posted is done though
// nothing is waited for; a child that is forked starts anew.
func TestCUDARemoteIdle(t *testing.T) {
	n := startRemote(t)
	task, run := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 64 * mib, Idle: 1})
	if got := output(t, run("soon")); got != "ran\n" {
		t.Error(got)
	}
	n.log.await(t, "idle timeout")
	again, fork := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 64 * mib})
	if got := output(t, fork("fork")); got != "in the child 3, then 0\nthe child 0, the parent 100\n" {
		t.Errorf("a child: %s", got)
	}
	if err := dial(t, n.unix).Stop(again.ID); err != nil {
		t.Fatal(err)
	}
	if tasks, err := dial(t, n.unix).Tasks(); err != nil || len(tasks) != 0 {
		t.Errorf("%v: %+v, of which %s is idle", err, tasks, task.ID)
	}
}

// TestCUDARemoteReplace: a node is replaced while a program computes that has no
// driver.
func TestCUDARemoteReplace(t *testing.T) {
	n := startRemote(t)
	s := serve(t, plays+"="+n.driver)
	_, tcp, _ := strings.Cut(s.said("msg=serves"), "at=tcp:")
	tcp, _, _ = strings.Cut("tcp:"+tcp, " ")
	task, token := ask(t, s.unix, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 64 * mib})
	cmd := exec.CommandContext(t.Context(), n.far, "hold", "60")
	cmd.Env = append(append(os.Environ(), pool.RemoteCUDAEnvironment(n.remote, "", "")...), pool.Environment(0, pool.CUDA, tcp, task.ID, token)...)
	h := hold(t, cmd)
	h.line(t)
	s.tell(syscall.SIGUSR1)
	s.said("goes on in another program")
	if x, y, z := h.ask(t, "m"), h.ask(t, "s"), h.ask(t, "u"); x != "more 0" || y != "synchronized 0" || z != "free 3" {
		t.Error("afterwards", x, y, z)
	}
	_ = h.in.Close()
	_ = h.cmd.Wait()
}

// TestCUDARemoteSanitized: the client library reads and writes nothing that is not
// its own, and does nothing that C leaves open.
func TestCUDARemoteSanitized(t *testing.T) {
	n := startRemote(t)
	program := filepath.Join(t.TempDir(), "sanitized")
	sources, err := filepath.Glob("../../shim/remote/*.c")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program, "../../shim/test/cudaremote.c", "../../shim/src/conn.c", "../../shim/src/given.c", "../../shim/src/own.c", "../../shim/src/path.c", "../../shim/src/ring.c", "../../shim/src/rdma.c", "../../shim/src/tls.c", "../../shim/src/sha256.c", "-ldl", "-pthread"}, sources...)
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "san") {
			t.Skipf("SKIPPED: no AddressSanitizer: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	task, token := ask(t, n.tcp, pool.Spec{Device: "cuda-1", Compute: 100, Memory: 400 * mib})
	for _, args := range [][]string{{"compute", n.elf}, {"copies"}, {"streams"}, {"memory"}, {"jit"}, {"threads", "4"}, {"wrong"}, {"late"}} {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0"), pool.Environment(0, pool.CUDA, n.tcp, task.ID, token)...)
		if got, want := output(t, cmd), n.native(t, args...); got != want {
			t.Errorf("%s:\n%s", args[0], differ(got, want))
		}
	}
}

// TestCUDAImages: how long an image of code is, is found by what it says, and
// nothing beyond it is looked at, whatever it says.
func TestCUDAImages(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("SKIPPED: no gcc")
	}
	program := filepath.Join(t.TempDir(), "image")
	build := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program, "../../shim/test/image.c", "../../shim/remote/image.c")
	if out, err := build.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "CL/cl.h") || strings.Contains(string(out), "asan") {
			t.Skipf("SKIPPED: no headers of OpenCL, or no AddressSanitizer: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	code := cubin()
	fat := binary.LittleEndian.AppendUint64([]byte{0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0}, uint64(len(code)))
	var in bytes.Buffer
	for _, image := range [][]byte{code, append(fat, code...), []byte(".version 8.0\n.target sm_90\n\x00"), {0}} {
		in.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(image))))
		in.Write(image)
	}
	cmd := exec.CommandContext(t.Context(), program, "50000")
	cmd.Stdin = &in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A program elsewhere that has a function of the driver's name, as one has that looks at what is
// called, is given the driver's.
func TestCUDARemoteTraced(t *testing.T) {
	n := startRemote(t)
	n.far = compiled(t, "traced", "testdata/traced.c", "-rdynamic", "-ldl")
	_, run := n.share(t, n.unix, pool.Spec{Device: "cuda-1", Memory: 400 * mib})
	if out, err := run().CombinedOutput(); err != nil || !strings.Contains(string(out), "the driver's") {
		t.Errorf("%v: %s", err, out)
	}
}
