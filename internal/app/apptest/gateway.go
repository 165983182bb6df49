package apptest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/adapters/gateway/switches"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// Main runs a package's tests. A package that uses [App.Gateway] calls it
// from TestMain: where the runner is not embedded the test binary plays it.
func Main(m *testing.M) int {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		return runner.Main(os.Args[2:])
	}
	code := m.Run()
	removeGroups()
	return code
}

// removeGroups takes away the control groups of this process's gateways, as
// soon as the kernel is done with them.
func removeGroups() {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		busy := false
		for _, pattern := range []string{"/sys/fs/cgroup/*/yunhe/", "/sys/fs/cgroup/yunhe/"} {
			found, _ := filepath.Glob(fmt.Sprintf("%sapptest-%d-*", pattern, os.Getpid()))
			for _, p := range found {
				_ = os.Remove(filepath.Join(p, ".runners")) // it may be gone
				busy = os.Remove(p) != nil || busy
			}
		}
		if !busy {
			return
		}
	}
}

var gateways atomic.Int64

// Gateway is a real compute gateway in this process: what it runs is run for
// real, isolated by the kernel.
type Gateway struct {
	ID   string
	Dir  string
	Root string // looked at in place of this machine's, from the next Start on
	// Switches that it asks, from the next Start on.
	Switches switches.Config

	tb  testing.TB
	cfg agent.Config

	mu   sync.Mutex // guards stop
	stop func()
}

// NeedRoot skips a test that isolates for real where that cannot work.
func NeedRoot(tb testing.TB) {
	tb.Helper()
	switch {
	case runtime.GOOS != "linux":
		tb.Skipf("SKIPPED: the sandbox needs Linux, this is %s", runtime.GOOS)
	case os.Geteuid() != 0:
		tb.Skipf("SKIPPED: the sandbox needs root, this is user %d", os.Geteuid())
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		tb.Skipf("SKIPPED: the sandbox needs control groups: %v", err)
	}
}

// Gateway starts a real gateway, joined to the platform, with ample declared
// room. It ends with the test, and so does what it runs. The test is skipped
// aloud where the sandbox cannot work.
func (a *App) Gateway(tb testing.TB) *Gateway {
	tb.Helper()
	NeedRoot(tb)
	id := fmt.Sprintf("apptest-%d-%d", os.Getpid(), gateways.Add(1))
	token, err := a.Admin.Adapters.CreateJoinToken(tb.Context(), &adaptersv1.CreateJoinTokenRequest{AiCenterId: id})
	if err != nil {
		tb.Fatalf("create a token: %v", err)
	}
	g := &Gateway{ID: id, Dir: filepath.Join(tb.TempDir(), "gateway"), tb: tb}
	g.cfg = agent.Config{Dir: g.Dir, Token: token.Token, Version: "test", Join: a.Joiner(),
		Center: agent.Center{ID: id, Name: id, CPU: "64", Memory: "64Gi", Prices: map[string]int64{"small": 100, "medium": 240}}}
	g.Start()
	tb.Cleanup(func() {
		g.Stop()
		endRuns(id)
	})
	return g
}

// endRuns kills what a gateway that has stopped left running: runs outlive it.
func endRuns(id string) {
	for _, pattern := range []string{"/sys/fs/cgroup/*/yunhe/", "/sys/fs/cgroup/yunhe/"} {
		for _, own := range []string{id, id + "-*"} {
			found, _ := filepath.Glob(pattern + own)
			for _, group := range found {
				_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
					if err != nil || d.Name() != "cgroup.procs" {
						return nil // a group may go meanwhile
					}
					list, _ := os.ReadFile(path)
					for text := range strings.FieldsSeq(string(list)) {
						if pid, err := strconv.Atoi(text); err == nil && pid > 1 && pid != os.Getpid() {
							_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
						}
					}
					return nil
				})
			}
		}
	}
}

// Joiner reaches the platform as a gateway's command line does.
func (a *App) Joiner() agent.Joiner {
	return func(ctx context.Context, r *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error) {
		res, err := NewClient(a.URL(), "").Adapters.Join(ctx, r)
		if connect.CodeOf(err) == connect.CodeUnavailable {
			return nil, fault.Wrap(fault.Unavailable, err, "the platform does not answer")
		}
		return res, err
	}
}

// Start runs the gateway, again after a Stop.
func (g *Gateway) Start() {
	g.tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.tb.Context()))
	done := make(chan error, 1)
	log, cfg := Log(g.tb), g.cfg
	cfg.Root, cfg.Switches = g.Root, g.Switches
	go func() { done <- agent.Run(ctx, cfg, log) }()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				g.tb.Errorf("gateway %s ended with: %v", g.ID, err)
			}
		case <-time.After(Patience):
			g.tb.Errorf("gateway %s does not stop", g.ID)
		}
	})
}

// Stop ends the gateway; what it runs goes on.
func (g *Gateway) Stop() {
	g.mu.Lock()
	stop := g.stop
	g.mu.Unlock()
	stop()
}
