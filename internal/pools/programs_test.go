package pools_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
)

// These tests run a real program on real devices of OpenCL through a platform.

// built is the program of shim/test and the client library.
var built = sync.OnceValues(func() (b struct{ dir, program, vendors string }, err error) {
	if b.dir, err = os.MkdirTemp("", "yunhe-pools-test-"); err != nil {
		return b, err
	}
	if err := os.Setenv("POCL_CACHE_DIR", filepath.Join(b.dir, "cache")); err != nil { // nodes compile a kernel once, not each
		return b, err
	}
	b.program = filepath.Join(b.dir, "program")
	if out, err := exec.Command("gcc", "-std=gnu11", "-O2", "-o", b.program, "../../shim/test/pool.c", "-l:libOpenCL.so.1", "-pthread").CombinedOutput(); err != nil {
		return b, fmt.Errorf("%w: %s", err, out)
	}
	b.vendors, err = pool.Library(b.dir)
	return b, err
})

type real struct {
	t    *testing.T
	app  *apptest.App
	stop func()          // the node, as a signal would
	cut  func()          // what it says to the platform
	dir  string          // the node's
	cfg  pool.NodeConfig // of its nodes, but for where they are
}

// start runs a platform with a node of this machine's devices.
func start(t *testing.T, a *apptest.App, with ...pool.NodeConfig) *real {
	t.Helper()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	if _, err := built(); err != nil {
		t.Skipf("SKIPPED: the test's program cannot be built: %v", err)
	}
	_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	x := &real{t: t, app: a}
	for _, cfg := range with {
		x.cfg = cfg
	}
	x.stop, x.cut = x.join("n1")
	return x
}

// join runs a node of this machine's devices.
func (r *real) join(name string) (leave, cut func()) {
	t := r.t
	t.Helper()
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return r.joinFrom(dir, name)
}

// joinFrom runs one that has its folder already, or will.
func (r *real) joinFrom(dir, name string) (leave, cut func()) {
	t, a := r.t, r.app
	t.Helper()
	if r.dir == "" {
		r.dir = dir
	}
	token, err := a.Admin.Pool.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	transport := &http.Transport{}
	client := poolv1connect.NewPoolServiceClient(&http.Client{Transport: transport}, a.Admin.URL)
	m, err := agent.Join(t.Context(), dir, a.Admin.URL, name, token.Token, client)
	must(t, err)
	member, err := m.Member()
	must(t, err)
	cfg := r.cfg
	cfg.Dir, cfg.Listen, cfg.Member = dir, []string{"unix:" + filepath.Join(dir, "s"), "tcp:127.0.0.1:0"}, member
	n, err := pool.NewNode(cfg, slog.New(slog.DiscardHandler))
	if k := fault.KindOf(err); k == fault.Unavailable || k == fault.NotFound {
		t.Skipf("SKIPPED: no device of OpenCL (pocl-opencl-icd): %v", err)
	}
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	speak, cut := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { _ = n.Run(ctx) })
	tell := m.Tell(client, "test")
	loops.Go(func() {
		_ = n.Attend(speak, func(ctx context.Context, r pool.Report, wait time.Duration) (pool.Wanted, error) {
			if r.Stopping {
				return pool.Wanted{}, fault.New(fault.Unavailable, "cut off") // as one that is killed says nothing
			}
			return tell(ctx, r, wait)
		})
	})
	leave = sync.OnceFunc(func() { stop(); loops.Wait(); transport.CloseIdleConnections() })
	t.Cleanup(leave)
	apptest.Until(t, "the node is there", func() bool {
		res, err := a.Admin.Pool.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
		must(t, err)
		i := slices.IndexFunc(res.Nodes, func(x *poolv1.PoolNode) bool { return x.NodeId == name })
		return i >= 0 && res.Nodes[i].Online && len(res.Nodes[i].Devices) > 0
	})
	return leave, cut
}

// request asks for a slice; one that is held ends for nobody's being late.
func (r *real) request(compute, mem int64, held bool) *poolv1.Slice {
	r.t.Helper()
	x, err := r.app.Admin.Pool.RequestSlice(r.t.Context(), &poolv1.RequestSliceRequest{Fixed: held, ComputePercent: compute, MemoryMib: mem, DeviceId: "opencl-0", NodeId: "n1", Host: pool.Host(), Name: "program"})
	must(r.t, err)
	return x
}

func (r *real) take(slice string) *agent.Task {
	r.t.Helper()
	task, err := agent.Take(r.t.Context(), r.app.Admin.Pool, agent.Awaited{Slice: slice, Waits: func(*poolv1.Slice) {}})
	must(r.t, err)
	r.t.Cleanup(task.Client.Close)
	return task
}

func (r *real) program(task *agent.Task, args ...string) *exec.Cmd {
	return r.over([]*agent.Task{task}, args...)
}

// over is a program that has several slices.
func (r *real) over(tasks []*agent.Task, args ...string) *exec.Cmd {
	b, err := built()
	must(r.t, err)
	cmd := exec.CommandContext(r.t.Context(), b.program, args...)
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+b.vendors)
	for i, k := range tasks {
		cmd.Env = append(cmd.Env, pool.Environment(i, k.API, k.At, k.ID, k.Token)...)
	}
	return cmd
}

// state waits until a slice has a state.
func (r *real) state(slice string, want poolv1.Slice_State) *poolv1.Slice {
	r.t.Helper()
	var got *poolv1.Slice
	apptest.Until(r.t, fmt.Sprintf("slice %s is %v", slice, want), func() bool {
		res, err := r.app.Admin.Pool.AwaitSlice(r.t.Context(), &poolv1.AwaitSliceRequest{SliceId: slice})
		must(r.t, err)
		got = res.Slice
		return got.State == want
	})
	return got
}

// A program gets a slice, computes what it computes natively, is resized while it
// runs, and what it had is somebody else's when it ends.
func TestProgram(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a)
		b, _ := built()
		native, err := exec.CommandContext(t.Context(), b.program, "add", "3").Output()
		must(t, err)
		x := r.request(60, 20, false)
		task := r.take(x.SliceId)
		if !strings.HasPrefix(task.At, "unix:") {
			t.Errorf("on the same machine it goes over %s", task.At)
		}
		waiting := r.request(60, 20, true) // the device has 40 % left
		if waiting.State != poolv1.Slice_STATE_WAITING || waiting.Position != 1 {
			t.Errorf("the second: %v", waiting)
		}
		lent := r.state(x.SliceId, poolv1.Slice_STATE_RUNNING)
		if lent.ComputePercent != 60 || lent.MemoryMib != 20 || lent.Programs != 0 || lent.MemoryUsedBytes != 0 {
			t.Errorf("lent, and no program runs: %v", lent)
		}
		cmd := r.program(task, "fill", "100", "wait")
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewReader(out)
		if line, _ := lines.ReadString('\n'); line != "buffers 20 error -4\n" {
			t.Errorf("of 20 MiB: %q", line)
		}
		apptest.Until(t, "what the program has is told", func() bool {
			got := r.state(x.SliceId, poolv1.Slice_STATE_RUNNING)
			return got.Programs == 1 && got.MemoryUsedBytes == 20<<20
		})
		_, err = a.Admin.Pool.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: x.SliceId, ComputePercent: 30, MemoryMib: 21})
		must(t, err)
		r.state(waiting.SliceId, poolv1.Slice_STATE_ASSIGNED) // there is room now
		apptest.Until(t, "the node has resized it", func() bool {
			c, err := pool.Dial(t.Context(), task.At, "", "")
			must(t, err)
			defer c.Close()
			tasks, err := c.Tasks()
			must(t, err)
			return len(tasks) == 1 && tasks[0].Compute == 30 && tasks[0].Memory == 21<<20
		})
		_, _ = io.WriteString(in, "\n")
		if line, _ := lines.ReadString('\n'); line != "again 0\n" {
			t.Errorf("with one MiB more: %q", line)
		}
		must(t, cmd.Wait())
		second := r.take(waiting.SliceId)
		got, err := r.program(second, "add", "3").CombinedOutput()
		if err != nil || string(got) != string(native) {
			t.Errorf("computed %q, natively %q: %v", got, native, err)
		}
		task.Client.Close()
		if x := r.state(x.SliceId, poolv1.Slice_STATE_ENDED); x.Reason != "its client ended the connection" {
			t.Errorf("ended as %v", x)
		}
		_, err = a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: waiting.SliceId})
		must(t, err)
		if why, err := second.Client.Ended(); err != nil || !strings.Contains(why, "virtual resource released") {
			t.Errorf("the client of a slice that was released is told %q, %v", why, err)
		}
		if out, err := r.program(second, "add").CombinedOutput(); err == nil {
			t.Errorf("a program on a slice that was released: %s", out)
		}
	})
}

// TestWeightBound: a program whose share is a weight has at most what its group may
// have, though nobody else wants the device.
func TestWeightBound(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	r := start(t, a)
	_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}, ComputeLimitPercent: 50}})
	must(t, err)
	x, err := a.Admin.Pool.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 10, Weighted: true, MemoryMib: 20, DeviceId: "opencl-0", NodeId: "n1", Host: pool.Host()})
	must(t, err)
	cmd := r.program(r.take(x.SliceId), "spin", "600", "4000", "20")
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	had := func() time.Duration {
		return time.Duration(r.state(x.SliceId, poolv1.Slice_STATE_RUNNING).DeviceMicros) * time.Microsecond
	}
	apptest.Until(t, "it computes, and the node has heard of the bound", func() bool { return had() > 2*time.Second })
	before, began := had(), time.Now()
	apptest.Until(t, "it has had the device for a while", func() bool { return had()-before > 5*time.Second })
	if got := 100 * (had() - before).Seconds() / time.Since(began).Seconds(); got > 70 {
		t.Errorf("its group may have 50 %%, and it had %.1f %%", got)
	}
}

// A ticket is good once, with its key, at its node; nothing else gets anything.
func TestTickets(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	r := start(t, a)
	x := r.request(10, 5, true)
	res, err := a.Admin.Pool.AwaitSlice(t.Context(), &poolv1.AwaitSliceRequest{SliceId: x.SliceId})
	must(t, err)
	other, err := a.Admin.Pool.AwaitSlice(t.Context(), &poolv1.AwaitSliceRequest{SliceId: r.request(10, 5, true).SliceId})
	must(t, err)
	tcp := res.Addresses[1]
	for _, c := range [][2]string{{"", ""}, {res.Ticket, ""}, {res.Ticket, other.TicketKey}, {res.Ticket + "A", res.TicketKey}, {"", res.TicketKey}} {
		if _, err := pool.DialTicket(t.Context(), tcp, c[0], c[1]); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("ticket %q: %v", c[0], err)
		}
	}
	if _, err := pool.Dial(t.Context(), tcp, "g", "a key that is long enough"); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("without a ticket: %v", err)
	}
	local, err := pool.Dial(t.Context(), res.Addresses[0], "", "")
	must(t, err)
	defer local.Close()
	if _, _, err := local.Run(pool.Spec{Compute: 1, Memory: 1 << 20}); fault.KindOf(err) != fault.Denied {
		t.Errorf("past the platform: %v", err)
	}
	if err := local.Enable("opencl-0", false); fault.KindOf(err) != fault.Denied {
		t.Errorf("past the platform: %v", err)
	}
	client, err := pool.DialTicket(t.Context(), tcp, res.Ticket, res.TicketKey)
	must(t, err)
	if _, err := client.Devices(); fault.KindOf(err) != fault.Denied {
		t.Errorf("a ticket shows devices: %v", err)
	}
	_, _, err = client.Run(pool.Spec{Compute: 100, Memory: 1 << 30}) // the ticket says what it is
	must(t, err)
	if tasks, err := local.Tasks(); err != nil || len(tasks) != 1 || tasks[0].Compute != 10 || tasks[0].Memory != 5<<20 {
		t.Errorf("it got %+v, %v", tasks, err)
	}
	again, err := pool.DialTicket(t.Context(), tcp, res.Ticket, res.TicketKey)
	must(t, err)
	defer again.Close()
	if _, _, err := again.Run(pool.Spec{}); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("a ticket used twice: %v", err)
	}
	r.state(x.SliceId, poolv1.Slice_STATE_RUNNING)
	client.Close()
	r.state(x.SliceId, poolv1.Slice_STATE_ASSIGNED)
}

// A node that stops reporting has what it lent taken back; it is told so when it
// comes back.
func TestNodeGone(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	r := start(t, a)
	x := r.request(10, 5, false)
	r.take(x.SliceId)
	r.state(x.SliceId, poolv1.Slice_STATE_RUNNING)
	r.cut()
	if got := r.state(x.SliceId, poolv1.Slice_STATE_ENDED); got.Reason != "pool node n1 is gone" {
		t.Errorf("ended as %v", got)
	}
}

// A program moves from node to node and back while it computes, each of its steps
// is right, and a node that it has left goes without it.
func TestProgramMoves(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a)
		r.join("n2")
		x := r.request(60, 64, false)
		task := r.take(x.SliceId)
		over := make(chan string, 1)
		go func() {
			why, _ := task.Client.Ended()
			over <- why
		}()
		cmd := r.program(task, "walk", "4")
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewReader(out)
		if line, _ := lines.ReadString('\n'); line != "walking\n" {
			t.Fatalf("it said %q", line)
		}
		r.state(x.SliceId, poolv1.Slice_STATE_RUNNING)
		for _, to := range []string{"n2", "n1", "n2"} {
			var got *poolv1.Slice
			apptest.Until(t, "it is at "+to, func() bool {
				got, err = a.Admin.Pool.MoveSlice(t.Context(), &poolv1.MoveSliceRequest{SliceId: x.SliceId, NodeId: to, DeviceId: "opencl-0", WaitMs: 5000})
				must(t, err)
				if got.MoveError != "" || got.State != poolv1.Slice_STATE_RUNNING {
					t.Fatalf("not moved to %s: %v", to, got)
				}
				return got.NodeId == to && got.MovingToNodeId == ""
			})
		}
		r.stop() // n1, where it was first, and its client
		_, _ = io.WriteString(in, "\n")
		if line, _ := lines.ReadString('\n'); !strings.HasPrefix(line, "walked ") {
			t.Errorf("it ended with %q", line)
		}
		must(t, cmd.Wait())
		task.Client.Close()
		if got := r.state(x.SliceId, poolv1.Slice_STATE_ENDED); got.NodeId != "n2" {
			t.Errorf("it ended at %s: %s", got.NodeId, got.Reason)
		}
		<-over
	})
}
