package adaptertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	"yunhe.dev/yunhe/sdk/adapter"
)

var built struct {
	sync.Once
	path string
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set { // wrong drivers are waited for more than they work
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	Main(m, func(ctx context.Context) error { return adapter.Serve(ctx, adapter.Unimplemented{}) })
}

// example builds the example driver, once.
func example(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		dir, err := os.MkdirTemp("", "adaptertest")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "driver")
		cmd := exec.Command("go", "build", "-o", built.path, "../../examples/driver")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the example driver: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// world is a backend and what surrounds a driver there, for one check.
type world struct {
	mu      sync.Mutex // guards the fields below
	drained bool
	held    map[string]*adapterv1.Status // attempts that wait for what is not there
	n       int                          // instances started
	far     *far
}

// proxy is the example driver behind one that may lie. By itself it is honest.
type proxy struct {
	adapterv1connect.DriverServiceHandler // the driver as it should be
	w                                     *world
	n                                     int // of its instance
	lie                                   lie
}

// lie changes what goes through a proxy. Every field may be nil.
type lie struct {
	describe func(*adapterv1.DescribeResponse)
	discover func(n int, r *adapterv1.DiscoverResponse)
	watch    func(ctx context.Context, n int, r *adapterv1.WatchResponse) error
	apply    func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error)
	remove   func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error)
	// status changes a status; false: it is not sent. n counts those of its stream.
	status func(n int, st *adapterv1.Status) bool
	// observe is called when a stream begins; an error is its end.
	observe func(ctx context.Context) error
	read    func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error)
	suspend func(p *proxy, ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error)
	// exec changes what is asked, told what it answers; false: it is not sent.
	execAsk  func(*adapterv1.ExecRequest)
	execTell func(*adapterv1.ExecResponse) bool
	execOpen func(ctx context.Context, start *adapterv1.ExecStart) (context.Context, error)
	parts    partLies
	begin    func(p *proxy) // the instance begins
	end      func(p *proxy) // the instance ends in good order
}

// honest are the proxy's own ways, for lies to go back to.
type honest struct {
	adapter.Unimplemented
	client adapterv1connect.DriverServiceClient
}

func (h honest) Describe(ctx context.Context, r *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	return h.client.Describe(ctx, r)
}

func (h honest) Discover(ctx context.Context, r *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	return h.client.Discover(ctx, r)
}

func (h honest) Apply(ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	return h.client.Apply(ctx, r)
}

func (h honest) Remove(ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	return h.client.Remove(ctx, r)
}

func (h honest) Suspend(ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
	return h.client.Suspend(ctx, r)
}

func (p *proxy) Suspend(ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
	if p.lie.suspend != nil {
		return p.lie.suspend(p, ctx, r)
	}
	return p.DriverServiceHandler.Suspend(ctx, r)
}

func (p *proxy) Exec(ctx context.Context, in *connect.BidiStream[adapterv1.ExecRequest, adapterv1.ExecResponse]) error {
	first, err := in.Receive()
	if err != nil {
		return err
	}
	if p.lie.execOpen != nil {
		if ctx, err = p.lie.execOpen(ctx, first.Start); err != nil {
			return err
		}
	}
	out, err := p.DriverServiceHandler.(honest).client.Exec(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = out.CloseRequest() }) // it may be closed
	defer stop()
	send := func(m *adapterv1.ExecRequest) error {
		if p.lie.execAsk != nil {
			p.lie.execAsk(m)
		}
		return out.Send(m)
	}
	if err := send(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	go func() { // ends with the stream
		for {
			m, err := in.Receive()
			if err != nil || send(m) != nil {
				return
			}
		}
	}()
	for {
		m, err := out.Receive()
		if err != nil {
			return err
		}
		if p.lie.execTell == nil || p.lie.execTell(m) {
			if err := in.Send(m); err != nil {
				return err
			}
		}
		if m.Ended {
			return nil
		}
	}
}

func (h honest) ReadLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	return h.client.ReadLog(ctx, r)
}

func (h honest) Watch(ctx context.Context, r *adapterv1.WatchRequest, out *connect.ServerStream[adapterv1.WatchResponse]) error {
	return forward(ctx, h.client.Watch, r, out.Send)
}

func (h honest) Observe(ctx context.Context, r *adapterv1.ObserveRequest, out *connect.ServerStream[adapterv1.ObserveResponse]) error {
	return forward(ctx, h.client.Observe, r, out.Send)
}

func forward[R, M any](ctx context.Context, open func(context.Context, *R) (*connect.ServerStreamForClient[M], error), r *R, send func(*M) error) error {
	in, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read to its end, or given up
	for in.Receive() {
		if err := send(in.Msg()); err != nil {
			return err
		}
	}
	return in.Err()
}

func (p *proxy) Describe(ctx context.Context, r *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	res, err := p.DriverServiceHandler.Describe(ctx, r)
	if err == nil {
		res.Parts = append(res.Parts, adapterv1.Part_PART_ACCOUNT, adapterv1.Part_PART_STORAGE, adapterv1.Part_PART_RESOURCE)
		res.Features = append(res.Features, adapterv1.Feature_FEATURE_NODE)
	}
	if err == nil && p.lie.describe != nil {
		p.lie.describe(res)
	}
	return res, err
}

func (p *proxy) Discover(ctx context.Context, r *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	res, err := p.DriverServiceHandler.Discover(ctx, r)
	if err == nil && p.lie.discover != nil {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.w.n++
		p.lie.discover(p.w.n, res)
	}
	return res, err
}

func (p *proxy) Watch(ctx context.Context, r *adapterv1.WatchRequest, out *connect.ServerStream[adapterv1.WatchResponse]) error {
	n := 0
	return forward(ctx, p.DriverServiceHandler.(honest).client.Watch, r, func(m *adapterv1.WatchResponse) error {
		n++
		p.w.mu.Lock()
		drained := p.w.drained
		p.w.mu.Unlock()
		if state := adapterv1.NodeState_NODE_STATE_READY; m.Trouble == "" && n > 0 {
			if drained || p.isolated() {
				state = adapterv1.NodeState_NODE_STATE_DRAINED
			}
			if len(m.Nodes) == 0 {
				m.Nodes = []*adapterv1.Node{{Name: "machine", Capacity: map[string]int64{}, Allocatable: map[string]int64{}}}
				d, err := p.DriverServiceHandler.Discover(ctx, &adapterv1.DiscoverRequest{})
				if err != nil {
					return err
				}
				m.Nodes[0].Capacity, m.Nodes[0].Allocatable = d.Inventory.Capacity, d.Inventory.Capacity
			}
			m.Nodes[0].State, m.Nodes[0].Reason = state, "as it was set"
		}
		if p.lie.watch != nil {
			if err := p.lie.watch(ctx, n, m); err != nil {
				return err
			}
		}
		return out.Send(m)
	})
}

// queued is the cpu that has an attempt wait for good.
const queued = 1717

func (p *proxy) Apply(ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	if p.lie.apply != nil {
		return p.lie.apply(p, ctx, r)
	}
	return p.enqueue(ctx, r, "waits for cpu")
}

func (p *proxy) enqueue(ctx context.Context, r *adapterv1.ApplyRequest, message string) (*adapterv1.ApplyResponse, error) {
	r = proto.CloneOf(r)
	p.w.mu.Lock()
	r.Attempts = slices.DeleteFunc(r.Attempts, func(a *adapterv1.Attempt) bool {
		if a.Resources["cpu"] == queued {
			p.w.held[a.AttemptId] = &adapterv1.Status{AttemptId: a.AttemptId, Phase: adapterv1.Phase_PHASE_PENDING, Message: message}
			return true
		}
		return false
	})
	p.w.mu.Unlock()
	return p.applyParts(ctx, r)
}

func (p *proxy) Remove(ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	if p.lie.remove != nil {
		return p.lie.remove(p, ctx, r)
	}
	r = proto.CloneOf(r)
	p.w.mu.Lock()
	r.Stop = slices.DeleteFunc(r.Stop, func(id string) bool {
		st := p.w.held[id]
		if st != nil {
			p.w.held[id] = &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "stopped"}
		}
		return st != nil
	})
	for _, id := range r.Forget {
		delete(p.w.held, id)
	}
	p.w.mu.Unlock()
	return p.DriverServiceHandler.Remove(ctx, r)
}

func (p *proxy) Observe(ctx context.Context, r *adapterv1.ObserveRequest, out *connect.ServerStream[adapterv1.ObserveResponse]) error {
	if p.lie.observe != nil {
		if err := p.lie.observe(ctx); err != nil {
			return err
		}
	}
	var mu sync.Mutex // guards out and sent
	sent := map[string]*adapterv1.Status{}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { // those held
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			mu.Lock()
			p.w.mu.Lock()
			for id, st := range p.w.held {
				if !proto.Equal(sent[id], st) {
					sent[id] = st
					_ = out.Send(&adapterv1.ObserveResponse{Statuses: []*adapterv1.Status{st}}) // the other sender hears of an end
				}
			}
			p.w.mu.Unlock()
			mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	n := 0
	return forward(ctx, p.DriverServiceHandler.(honest).client.Observe, r, func(m *adapterv1.ObserveResponse) error {
		mu.Lock()
		defer mu.Unlock()
		if p.lie.status != nil {
			m.Statuses = slices.DeleteFunc(m.Statuses, func(st *adapterv1.Status) bool {
				n++
				return !p.lie.status(n, st)
			})
		}
		return out.Send(m)
	})
}

func (p *proxy) ReadLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	if p.lie.read != nil {
		return p.lie.read(p, ctx, r)
	}
	return p.DriverServiceHandler.ReadLog(ctx, r)
}

// config is a suite's configuration for a driver that tells a lie, on a
// backend of its own.
func (l lie) config(t testing.TB) Config {
	t.Helper()
	bin, dir := example(t), t.TempDir()
	w := &world{held: map[string]*adapterv1.Status{}, far: newFar(filepath.Join(dir, "volumes"))}
	runs, away, shared := filepath.Join(dir, "runs"), filepath.Join(dir, "away"), filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	must := func(t testing.TB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // a wrong driver leaves what it should not have started
		left, err := filepath.Glob(filepath.Join(runs, "*", "started"))
		must(t, err)
		for _, path := range left {
			var pid int
			if b, err := os.ReadFile(path); err == nil {
				_, _ = fmt.Sscan(string(b), &pid) // whole, if it is there
			}
			if pid > 1 {
				_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended
				for late := time.Now().Add(2 * time.Second); syscall.Kill(-pid, 0) == nil && time.Now().Before(late); {
					<-time.After(5 * time.Millisecond) // or it still writes while its folder is removed
				}
			}
		}
	})
	var instances atomic.Int64
	return Config{
		ImageID: "host", SpecID: "small", Resources: map[string]int64{"cpu": 100, "memory": 16 << 20}, Shared: shared,
		Commands: Commands{Wait: "exec sleep 300"},           // should one be left after all
		Patience: time.Minute, CallTimeout: 30 * time.Second, // other tests keep the machine busy
		Start: func(t testing.TB) *Instance {
			in := Program{Command: []string{bin, "--dir", runs}}.Start(t)
			p := &proxy{DriverServiceHandler: honest{client: in.Client()}, w: w, n: int(instances.Add(1)), lie: l}
			if l.begin != nil {
				l.begin(p)
			}
			out := Serve(t, p)
			return &Instance{HTTP: out.HTTP, URL: out.URL, Kill: func() { out.Kill(); in.Kill() }, Stop: func() {
				if l.end != nil {
					l.end(p)
				}
				out.Stop()
				in.Stop()
			}}
		},
		Waiting: map[string]int64{"cpu": queued},
		Break: func(t testing.TB) {
			must(t, os.Rename(runs, away))
			must(t, os.WriteFile(runs, nil, 0o600))
		},
		Repair: func(t testing.TB) {
			must(t, os.Remove(runs))
			must(t, os.Rename(away, runs))
		},
		Delete: func(t testing.TB, id string) {
			b, err := os.ReadFile(filepath.Join(runs, id, "started"))
			must(t, err)
			out, err := exec.Command("kill", "-KILL", "--", "-"+strings.TrimSpace(string(b))).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		},
		Change: func(testing.TB) func() {
			set := func(v bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.drained = v
			}
			set(true)
			return func() { set(false) }
		},
	}
}

// recorder is a test that is allowed to fail.
type recorder struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex // guards the fields below
	failures []string
	cleanups []func()
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// record runs a check and returns what it complained about.
func record(t *testing.T, c Config, name string) []string {
	t.Helper()
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(checks(), func(k check) bool { return k.name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runCheck(r, c, checks()[i])
	}()
	<-done
	cancel()
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.failures
}

// TestHonest: whatever a lie below is caught for, it is
// not for the proxy that tells it.
func TestHonest(t *testing.T) {
	t.Parallel()
	c := lie{}.config(t)
	c.Parallel = true
	t.Run("marks are the proof", func(t *testing.T) { Run(t, c) })
	c = lie{}.config(t)
	c.Parallel, c.Shared = true, ""
	c.Skip = map[string]string{"logs": "done above", "ends": "done above", "watch": "done above", "refuse": "done above", "describe": "done above", "discover": "done above",
		"broken": "done above", "observe": "done above", "runs": "done above", "forget/ended": "done above", "stop/graceful": "done above"}
	t.Run("the log is the proof", func(t *testing.T) { Run(t, c) })
}

// TestWrong: for each rule a driver that breaks it, and is told so.
func TestWrong(t *testing.T) {
	t.Parallel()
	wrongs := slices.Concat(wrongs, partWrongs)
	for _, w := range wrongs {
		t.Run(w.check+" "+w.name, func(t *testing.T) {
			t.Parallel()
			c := w.lie().config(t)
			c.Patience, c.CallTimeout = 8*time.Second, 10*time.Second
			got := record(t, c, w.check)
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, w.want) }) {
				t.Errorf("a driver that %s was told %q by %s, want something with %q", w.name, got, w.check, w.want)
			}
		})
	}
	for _, name := range Names() {
		if !slices.ContainsFunc(wrongs, func(w wrong) bool { return w.check == name }) {
			t.Errorf("no driver here breaks %s", name)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	start := func(testing.TB) *Instance { return nil }
	for want, c := range map[string]Config{
		"needs Start":      {ImageID: "i", SpecID: "s"},
		"is no check":      {Start: start, ImageID: "i", SpecID: "s", Skip: map[string]string{"logs/no-such": "because"}},
		"gives no reason":  {Start: start, ImageID: "i", SpecID: "s", Skip: map[string]string{"logs": ""}},
		`got image ""`:     {Start: start, SpecID: "s"},
		`specification ""`: {Start: start, ImageID: "i"},
	} {
		if _, err := c.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", c, err, want)
		}
	}
	c, err := Config{Start: start, ImageID: "i", SpecID: "s", Commands: Commands{NoShell: true}, Skip: map[string]string{"logs": "it has none"}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"logs/offsets": "it has none", "runs/files": "NoShell", "stop/waiting": "Waiting", "broken/start": "Break", "deleted/lost": "Delete", "watch/changes": "Change", "apply/once": ""} {
		i := slices.IndexFunc(checks(), func(k check) bool { return k.name == name })
		if why := c.skipped(checks()[i]); !strings.Contains(why, want) || want == "" && why != "" {
			t.Errorf("%s is skipped for %q, want %q", name, why, want)
		}
	}
	seen := map[string]bool{}
	for _, name := range Names() {
		if seen[name] {
			t.Errorf("two checks are named %s", name)
		}
		seen[name] = true
	}
}

// TestSelf: a driver in the test program itself, which offers nothing.
func TestSelf(t *testing.T) {
	t.Parallel()
	in := Self().Start(t)
	_, err := in.Client().Describe(t.Context(), &adapterv1.DescribeRequest{})
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("Describe: %v, want unimplemented from the driver in this program", err)
	}
	in.Stop()
	in.Kill()
	if _, err := in.Client().Describe(t.Context(), &adapterv1.DescribeRequest{}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("Describe after Stop: %v, want unavailable", err)
	}
}

func TestProgramThatIsNoDriver(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t, ctx: t.Context()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Program{Command: []string{"/bin/sh", "-c", "echo no >&2; exit 3"}}.Start(r)
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], adapter.SocketEnv) {
		t.Errorf("told %q, want one failure that names %s", r.failures, adapter.SocketEnv)
	}
}
