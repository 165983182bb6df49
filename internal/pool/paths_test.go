//go:build linux

package pool_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// TestRing: a program of this machine uses a ring by itself, after moves, too,
// and not where it is told otherwise; none elsewhere. Who waits on one hears when
// the other is killed.
func TestRing(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	const ring = "yunhe-pool-ring"
	maps := func(w *walker) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	with := func(cmd *exec.Cmd, transport string) *exec.Cmd {
		cmd.Env = append(cmd.Env, pool.TransportVariable+"="+transport)
		return cmd
	}
	task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	w := walk(t, run("walk", "4"))
	if !strings.Contains(maps(w), ring) {
		t.Error("a program of this machine uses no ring")
	}
	for range 2 { // to a ring of another worker
		before := regexp.MustCompile(`.*` + ring).FindString(maps(w))
		if _, _, err := dial(t, n.unix).Migrate(task.ID, "", "opencl-0"); err != nil {
			t.Fatalf("%v\n%s", err, n.log)
		}
		eventually(t, func() bool { m := maps(w); return strings.Contains(m, ring) && !strings.Contains(m, before) })
	}
	if strings.Count(maps(w), ring) != 1 {
		t.Errorf("after moves it has mapped\n%s", maps(w))
	}
	w.end()
	w = walk(t, with(run("walk", "4"), "socket"))
	if strings.Contains(maps(w), ring) {
		t.Error("a program that is told to use the socket uses a ring")
	}
	_ = w.cmd.Process.Kill()
	_, far := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
	if out, err := with(far("add"), "ring").CombinedOutput(); err == nil || !strings.Contains(string(out), "there is no ring to the pool node") {
		t.Errorf("a ring over TCP: %v, %s", err, out)
	}

	hears(t, n, task, run)
}

// TestRDMA: a program that comes by an address of RDMA goes on over rsockets, after
// moves, too; over TCP where it cannot. It is played by a stand-in of librdmacm,
// and not parallel: the environment says where that is.
func TestRDMA(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", filepath.Join(dir, "librdmacm.so.1"), "testdata/fakerdmacm.c").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no gcc to build what plays RDMA: %v, %s", err, out)
	}
	const at, missed = "rdma:127.0.0.1:0", "reached by TCP, and not over RDMA"
	refused := func(why string) {
		t.Helper()
		_, err := pool.NewNode(pool.NodeConfig{Dir: t.TempDir(), Listen: []string{at}, Groups: []pool.Group{{Name: "a", Key: key}}}, slog.New(slog.DiscardHandler))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "cannot listen at "+at) || !strings.Contains(err.Error(), why) {
			t.Errorf("a node without RDMA: %v", err)
		}
	}
	start(t, pool.NodeConfig{}) // or there is nothing to lend
	if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/librdmacm.so.1"); err != nil {
		refused("there is no librdmacm.so.1")
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	whose := fmt.Sprint(os.Getpid())
	t.Setenv("FAKERDMACM_NAME", whose)
	t.Setenv("FAKERDMACM_NONE", "1")
	refused("there is no RDMA at 127.0.0.1: no such device")
	if err := os.Unsetenv("FAKERDMACM_NONE"); err != nil {
		t.Fatal(err)
	}

	a, b := startAt(t, pool.NodeConfig{}, at), startAt(t, pool.NodeConfig{}, at)
	if !strings.HasPrefix(a.tcp, "rdma:") {
		t.Fatalf("it listens at %s", a.tcp)
	}
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 60, Memory: 100 * mib})
	with := func(cmd *exec.Cmd, env ...string) *exec.Cmd {
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
	want := native(t, "add", "4")
	for _, c := range []struct {
		name   string
		env    string
		missed bool
	}{
		{name: "by itself", env: "NOTHING="},
		{name: "as it is told to", env: pool.TransportVariable + "=rdma"},
		{name: "after another came to its port", env: "FAKERDMACM_INTRUDER=1"},
		{name: "told to stay", env: pool.TransportVariable + "=socket"},
		{name: "without the library", env: "LD_LIBRARY_PATH=", missed: true},
		{name: "without a device", env: "FAKERDMACM_NONE=1", missed: true},
	} {
		var errs lines
		cmd := with(run("add", "4"), c.env)
		cmd.Stderr = &errs
		if got, err := cmd.Output(); err != nil || string(got) != want || strings.Contains(errs.String(), missed) != c.missed {
			t.Errorf("%s: %q, %v, want %q\n%s", c.name, got, err, want, errs.String())
		}
	}
	if out, err := with(run("add"), pool.TransportVariable+"=ring").CombinedOutput(); err == nil {
		t.Errorf("a ring over RDMA: %s", out)
	}
	svmSame(t, a, svmProgram(t), a.tcp, "rdma")

	uses := func() int {
		text, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "@yunhe-fakerdmacm-"+whose+"-")
	}
	eventually(t, func() bool { return uses() == 0 })
	w := walk(t, run("walk", "8"))
	if uses() != 1 {
		t.Errorf("%d connections over RDMA, want 1", uses())
	}
	from, to := a.tcp, b.tcp
	for i := range 6 {
		if _, _, err := dial(t, from).Migrate(task.ID, to, ""); err != nil {
			t.Fatalf("move %d: %v\n%s\n%s%s", i, err, a.log, b.log, w.errs)
		}
		eventually(t, func() bool { return uses() == 1 }) // the one of before has ended
		from, to = to, from
	}
	w.end()
	eventually(t, func() bool { return uses() == 0 })
	if d, err := dial(t, b.tcp).Devices(); err != nil || d[0].Resident != 0 || d[0].Tasks != 0 {
		t.Errorf("where it left it has %+v, %v", d, err)
	}
	hears(t, a, task, run)
}

// TestNetworksApart: a program in a network of its own, as containers have, computes
// on its machine's node through memory though it has no network at all; the node's TCP
// is reached from another network where there is a way to it, and only there.
func TestNetworksApart(t *testing.T) {
	t.Parallel()
	hosts := enginetest.Network(t, 2)
	n := startAt(t, pool.NodeConfig{}, "tcp:"+hosts.Address+":0")
	task, token := ask(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	want := native(t, "add")
	const unreached = "the pool node cannot be reached"
	for at, reached := range map[string]bool{n.unix: true, n.tcp: false} {
		cmd := program(t, at, task.ID, token, "add")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if reached {
			cmd.Env = append(cmd.Env, pool.TransportVariable+"=ring")
		}
		out, err := cmd.CombinedOutput()
		if reached && (err != nil || string(out) != want) || !reached && (err == nil || !strings.Contains(string(out), unreached)) {
			t.Errorf("without a network, at %s: %q, %v", at, out, err)
		}
	}
	if err := hosts.Host(1).Cut(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, says := range []string{want, unreached} {
		cmd := program(t, n.tcp, task.ID, token, "add")
		p, err := enginetest.StartProgramOn(hosts.Host(i), fmt.Sprintf("network%d", i), cmd.Path, t.TempDir(), cmd.Env, cmd.Args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if out, err := os.ReadFile(p.Log()); err != nil || !strings.Contains(string(out), says) {
			t.Errorf("in network %d: %s, %v, want %q", i, out, err, says)
		}
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never is so")
		}
	}
}

// hears: a program that waits hears that its worker was killed, and ends its task
// so; a worker that waits hears that its program was.
func hears(t *testing.T, n node, task pool.Task, run func(args ...string) *exec.Cmd) {
	t.Helper()
	w := walk(t, run("walk", "4"))
	_ = w.cmd.Process.Kill()
	eventually(t, func() bool {
		tasks, err := dial(t, n.unix).Tasks()
		return err == nil && !slices.ContainsFunc(tasks, func(x pool.Task) bool { return x.ID == task.ID && x.Programs > 0 })
	})
	cmd := run("forever")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if line, _ := in.ReadString('\n'); line != "forever\n" {
		t.Fatalf("it said %q", line)
	}
	<-time.After(50 * time.Millisecond) // it waits by then
	began := time.Now()
	if err := dial(t, n.unix).Stop(task.ID); err != nil {
		t.Fatal(err)
	}
	if line, _ := in.ReadString('\n'); line != "finish -5\n" || time.Since(began) > 2*time.Second {
		t.Errorf("after %s it said %q", time.Since(began), line)
	}
	_ = cmd.Wait()
}

// TestNothingToAsk: what a program knows to be over it does not ask the node for.
func TestNothingToAsk(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	var said counter
	at := through(t, n.tcp, &said, io.Discard)
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 100 * mib})
	cmd := program(t, at, task.ID, token, compiled(t, "habits", "../../shim/test/habits.c", "-l:libOpenCL.so.1"), "quiet")
	in, out := converse(t, cmd)
	lines, before := bufio.NewScanner(out), int64(0)
	for lines.Scan() {
		switch lines.Text() {
		case "quiet":
			before = said.n.Load()
		case "was quiet":
			if now := said.n.Load(); before == 0 || now != before {
				t.Errorf("it said %d bytes to the node, and %d when it had asked 1,000 times for what it knows", before, now)
			}
		default:
			continue
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// door is an address at which a node is reached by way of the test, which has each
// connection there and the one to the node.
func door(t *testing.T, at string, pass func(from, node net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	scheme, address, _ := strings.Cut(at, ":")
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			node, err := net.Dial("tcp", address)
			if err != nil { // it has ended
				_ = from.Close()
				continue
			}
			go pass(from, node)
		}
	}()
	return scheme + ":" + l.Addr().String()
}

// through is an address at which a node is reached, which has what is said to it and by it written down.
func through(t *testing.T, at string, to, by io.Writer) string {
	return door(t, at, func(from, node net.Conn) {
		go func() { _, _ = io.Copy(io.MultiWriter(from, by), node); _ = from.Close() }()
		_, _ = io.Copy(io.MultiWriter(node, to), from)
		_ = node.Close()
	})
}

type counter struct{ n atomic.Int64 }

func (c *counter) Write(b []byte) (int, error) { c.n.Add(int64(len(b))); return len(b), nil }

// TestUnseen: who reads along on TCP does not learn what proves that a program is of a task.
func TestUnseen(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	to, by := &lines{}, &lines{}
	at := through(t, n.tcp, to, by)
	task, token := ask(t, at, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
	output(t, program(t, at, task.ID, token, "add"))
	raw, err := hex.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	all := to.String() + by.String()
	if !strings.Contains(by.String(), task.ID) {
		t.Fatal("nothing was written down")
	}
	for what, secret := range map[string]string{"the token": token, "the token's bytes": string(raw), "the group's key": key} {
		if strings.Contains(all, secret) {
			t.Errorf("%s was said", what)
		}
	}
}
