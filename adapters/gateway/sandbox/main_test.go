package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
)

// scratch is a folder that goes when all tests have ended.
var scratch string

// runnerProgram is the runner as it ships, built for these tests; empty
// where that is not possible, then the test binary plays it.
var runnerProgram []string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "runner":
			os.Exit(runner.Main(os.Args[2:]))
		case "gateway":
			os.Exit(helperGateway(os.Args[2:]))
		}
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sandbox-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		scratch = dir
		if runtime.GOOS == "linux" && os.Geteuid() == 0 {
			program := filepath.Join(dir, "runner")
			build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./runner/cmd")
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "the shipped runner cannot be built, the test binary plays it: %v\n%s", err, out)
			} else {
				runnerProgram = []string{program}
			}
		}
		code := m.Run()
		removeParents()
		return code
	}())
}

// removeParents removes what the kernel was not done with after each test.
func removeParents() {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		busy := false
		for _, pattern := range []string{"/sys/fs/cgroup/*/yunhe/", "/sys/fs/cgroup/yunhe/"} {
			found, _ := filepath.Glob(fmt.Sprintf("%stest-%d-*", pattern, os.Getpid()))
			for _, p := range found {
				busy = os.Remove(p) != nil || busy
			}
		}
		if !busy {
			return
		}
	}
}

// needHost skips a test that isolates for real where that cannot work.
func needHost(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("skipped: isolation needs Linux, this is", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: isolation needs root, this is user", os.Geteuid())
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		t.Skip("skipped: no control groups on this machine:", err)
	}
}

var gateways atomic.Int64

// config is that of a gateway of its own.
func config(t testing.TB) sandbox.Config {
	return sandbox.Config{
		Dir:       filepath.Join(t.TempDir(), "runs"),
		GatewayID: fmt.Sprintf("test-%d-%d", os.Getpid(), gateways.Add(1)),
		Runner:    runnerProgram,
	}
}

// current is the sandbox now open on a folder.
var current sync.Map

// open returns a sandbox that leaves nothing on the machine. A test may
// close it and open another on the same folder.
func open(t testing.TB, cfg sandbox.Config) *sandbox.Sandbox {
	t.Helper()
	needHost(t)
	s, err := sandbox.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if _, reopened := current.Swap(cfg.Dir, s); reopened {
		return s
	}
	t.Cleanup(func() {
		v, _ := current.LoadAndDelete(cfg.Dir)
		s := v.(*sandbox.Sandbox)
		runs, err := s.Adopt(context.Background())
		if err != nil {
			t.Errorf("Adopt: %v", err)
		}
		for _, r := range runs {
			if err := r.Stop(); err != nil {
				t.Errorf("Stop %s: %v", r.ID(), err)
			}
		}
		for _, r := range runs {
			wait(t, r)
		}
		s.Close()
		complaints(t, cfg.Dir)
		removeGroups(t, cfg.GatewayID)
	})
	return s
}

// complaints fails the test for what a runner had to say.
func complaints(t testing.TB, dir string) {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(dir, ".runners.log")); err == nil && len(b) > 0 {
		t.Errorf("runners complained:\n%s", b)
	}
}

// removeGroups fails the test if groups of the gateway's attempts are left,
// and takes away its own, as far as the kernel is done with the attempts'.
func removeGroups(t testing.TB, id string) {
	t.Helper()
	for _, p := range ownGroups(t, id) {
		left, err := filepath.Glob(p + "/*/")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			if filepath.Base(l) != ".runners" {
				t.Errorf("control group is left: %s", l)
			}
		}
		os.Remove(filepath.Join(p, ".runners"))
		os.Remove(p)
	}
}

func ownGroups(t testing.TB, id string) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/yunhe/", "/sys/fs/cgroup/yunhe/"} {
		found, err := filepath.Glob(pattern + id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// small are bounds that suit most tests.
func small(id, command string) sandbox.Spec {
	return sandbox.Spec{ID: id, Command: command, CPUMilli: 2000, MemoryBytes: 64 << 20, WallTime: time.Minute, StopGrace: 5 * time.Second}
}

// wait returns the run's result.
func wait(t testing.TB, r *sandbox.Run) sandbox.Result {
	t.Helper()
	select {
	case <-r.Done():
	case <-time.After(90 * time.Second):
		t.Fatalf("run %s does not end", r.ID())
	}
	res, ok := r.Result()
	if !ok {
		t.Fatalf("run %s is done and has no result", r.ID())
	}
	return res
}

// run starts spec and returns its end and what it wrote.
func run(t testing.TB, s *sandbox.Sandbox, spec sandbox.Spec) (sandbox.Result, string) {
	t.Helper()
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start %s: %v", spec.ID, err)
	}
	res := wait(t, r)
	return res, output(t, r)
}

// output returns what is kept of the run's output, with markers in place of
// what is not.
func output(t testing.TB, r *sandbox.Run) string {
	t.Helper()
	var b bytes.Buffer
	l := r.Log(0, true)
	defer l.Close()
	for {
		c, err := l.Next(context.Background())
		if err == io.EOF {
			return b.String()
		}
		if err != nil {
			t.Fatalf("read output of %s: %v", r.ID(), err)
		}
		if c.Dropped > 0 {
			b.WriteString(sandbox.DropMarker(c.Dropped))
		}
		b.Write(c.Data)
	}
}

// await reads the run's output until it contains text.
func await(t testing.TB, r *sandbox.Run, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := r.Log(0, true)
	defer l.Close()
	var seen strings.Builder
	for !strings.Contains(seen.String(), text) {
		c, err := l.Next(ctx)
		if err != nil {
			res, _ := r.Result()
			t.Fatalf("output of %s: %v before %q; got %q, result %+v", r.ID(), err, text, seen.String(), res)
		}
		seen.Write(c.Data)
	}
}

func expect(t testing.TB, res sandbox.Result, reason sandbox.Reason, code int) {
	t.Helper()
	if res.Reason != reason || res.ExitCode != code {
		t.Errorf("ended with %s, code %d, want %s, code %d: %+v", res.Reason, res.ExitCode, reason, code, res)
	}
}
