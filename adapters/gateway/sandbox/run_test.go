package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/internal/fault"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	for _, c := range []struct {
		name   string
		spec   sandbox.Spec
		reason sandbox.Reason
		code   int
		signal int
		output string
	}{
		{"success", small("ok", "echo out; echo err >&2"), "completed", 0, 0, "out\nerr\n"},
		{"exit code", small("code", "exit 3"), "exit", 3, 0, ""},
		{"highest exit code", small("code-255", "exit 255"), "exit", 255, 0, ""},
		{"crash", small("crash", "kill -SEGV $$"), "signal", -1, 11, ""},
		{"own SIGTERM", small("term", "kill $$; sleep 60"), "signal", -1, 15, ""},
		{"own SIGKILL", small("kill", "kill -9 $$"), "signal", -1, 9, ""},
		{"arguments", sandbox.Spec{ID: "args", Args: []string{"printf", "%s|", "a b", "", "$HOME"}, CPUMilli: 1000, MemoryBytes: 16 << 20},
			"completed", 0, 0, "a b||$HOME|"},
		{"environment", func() sandbox.Spec {
			s := small("env", `echo "$YUNHE_JOB $HOME $TMPDIR $LANG $PWD"; env | wc -l`)
			s.Env = map[string]string{"YUNHE_JOB": "j 1", "LANG": "C"}
			return s
		}(), "completed", 0, 0, "j 1 /workspace /tmp C /workspace\n6\n"},
		{"inputs", func() sandbox.Spec {
			s := small("files", "./a/b/run; cat data; stat -c %a:%U data a a/b/run; echo more >>data; cat data")
			s.Files = []sandbox.File{{Path: "a/b/run", Data: []byte("#!/bin/sh\necho ran\n"), Mode: 0o755}, {Path: "data", Data: []byte("1\n")}}
			return s
		}(), "completed", 0, 0, "ran\n1\n644:yunhe\n755:yunhe\n755:yunhe\n1\nmore\n"},
		{"background processes end with the command", small("background", "setsid sleep 1000 & echo $?"), "completed", 0, 0, "0\n"},
		{"place", small("Place.of_it", "pwd; hostname; id -un; umask; cat /etc/hostname; getent hosts place-of-it"), "completed", 0, 0,
			"/workspace\nplace-of-it\nyunhe\n0022\nplace-of-it\n127.0.0.1       localhost place-of-it\n"},
		{"own loopback", small("lo", "grep -c : /proc/net/dev"), "completed", 0, 0, "1\n"},
		{"standard input", small("stdin", "wc -c; ls -l /proc/self/fd | grep -c -e '->'"), "completed", 0, 0, "0\n4\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := time.Now().Add(-time.Millisecond)
			res, out := run(t, s, c.spec)
			expect(t, res, c.reason, c.code)
			if res.Signal != c.signal || out != c.output {
				t.Errorf("signal %d, output %q, want %d, %q: %+v", res.Signal, out, c.signal, c.output, res)
			}
			if res.StartedAt.Before(before) || res.EndedAt.Before(res.StartedAt) || res.EndedAt.After(time.Now().Add(time.Millisecond)) ||
				res.CPU <= 0 || res.MaxMemoryBytes <= 0 || res.OutputBytes != int64(len(out)) || res.DroppedBytes != 0 {
				t.Errorf("measured %+v", res)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	empty := t.TempDir()
	noShell := t.TempDir()
	if err := os.WriteFile(filepath.Join(noShell, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("without the program", func(t *testing.T) {
		for name, want := range map[string]string{
			"nope": `run nope: not found in PATH "/usr/local/sbin`, "/nope": "run /nope: no such file or directory",
			"/etc/passwd": "run /etc/passwd: permission denied",
		} {
			spec := small("x"+strings.ReplaceAll(name, "/", "-"), "")
			spec.Args = []string{name}
			res, _ := run(t, s, spec)
			expect(t, res, "start_failed", -1)
			if !strings.HasPrefix(res.Message, want) || !res.StartedAt.IsZero() {
				t.Errorf("%s: %+v, want message %q", name, res, want)
			}
		}
	})
	t.Run("without a shell in the image", func(t *testing.T) {
		spec := small("no-shell", "echo x")
		spec.RootFS = noShell
		res, _ := run(t, s, spec)
		expect(t, res, "start_failed", -1)
		if want := "run /bin/sh: no such file or directory"; res.Message != want {
			t.Errorf("message %q, want %q", res.Message, want)
		}
	})
	for name, c := range map[string]struct {
		edit func(*sandbox.Spec)
		kind fault.Kind
	}{
		"image is empty":   {func(s *sandbox.Spec) { s.RootFS = empty }, fault.Invalid},
		"image is missing": {func(s *sandbox.Spec) { s.RootFS = empty + "/nope" }, fault.Invalid},
		"spec is invalid":  {func(s *sandbox.Spec) { s.CPUMilli = 0 }, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			spec := small("again", "exit 0")
			c.edit(&spec)
			if _, err := s.Start(t.Context(), spec); fault.KindOf(err) != c.kind {
				t.Errorf("got %v, want kind %v", err, c.kind)
			}
			if _, err := s.Get("again"); fault.KindOf(err) != fault.NotFound {
				t.Errorf("something is left: %v", err)
			}
		})
	}
	res, _ := run(t, s, small("again", "exit 0"))
	expect(t, res, "completed", 0)
}

func TestStartIsIdempotent(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	var wg sync.WaitGroup
	runs := make([]*sandbox.Run, 200)
	for i := range runs {
		wg.Go(func() {
			r, err := s.Start(t.Context(), small("one", "echo ran; sleep 0.2"))
			if err != nil {
				t.Error(err)
			}
			runs[i] = r
		})
	}
	wg.Wait()
	for _, r := range runs[1:] {
		if r != runs[0] {
			t.Fatalf("got different runs")
		}
	}
	expect(t, wait(t, runs[0]), "completed", 0)
	if out := output(t, runs[0]); out != "ran\n" {
		t.Errorf("output %q, want it once", out)
	}
	again, err := s.Start(t.Context(), small("one", "echo ran; sleep 0.2"))
	if err != nil || again != runs[0] {
		t.Errorf("after the end: %v, %v, want the same run", again, err)
	}
}

func TestStartIsConcurrent(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			res, out := run(t, s, small(fmt.Sprint("r", i), fmt.Sprintf("id -u; echo %d", i)))
			expect(t, res, "completed", 0)
			if !strings.HasSuffix(out, fmt.Sprintf("\n%d\n", i)) {
				t.Errorf("run %d wrote %q", i, out)
			}
		})
	}
	wg.Wait()
	runs, err := s.Adopt(t.Context())
	if err != nil || len(runs) != 40 {
		t.Errorf("%d runs, %v, want 40", len(runs), err)
	}
}

func TestStartReturnsWhenContextEnds(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := s.Start(ctx, small("r", "exit 7"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, r), "exit", 7)
}

func TestUsersAreNotShared(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.FirstUID, cfg.UIDs = 300000, 2
	s := open(t, cfg)
	var runs []*sandbox.Run
	var users []string
	for _, id := range []string{"a", "b"} {
		r, err := s.Start(t.Context(), small(id, "id -u; sleep 60"))
		if err != nil {
			t.Fatal(err)
		}
		await(t, r, "\n")
		runs, users = append(runs, r), append(users, output1(t, r))
	}
	if want := []string{"300000\n", "300001\n"}; !slices.Equal(users, want) {
		t.Errorf("users %q, want %q", users, want)
	}
	if _, err := s.Start(t.Context(), small("c", "id -u")); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("third of two: %v, want Exhausted", err)
	}
	if err := runs[0].Stop(); err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, runs[0]), "stopped", -1)
	if _, out := run(t, s, small("c", "id -u")); out != users[0] {
		t.Errorf("user %q, want the free one %q", out, users[0])
	}
}

// output1 returns the output so far.
func output1(t testing.TB, r *sandbox.Run) string {
	t.Helper()
	l := r.Log(0, false)
	defer l.Close()
	c, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(c.Data)
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	start := func(t *testing.T, spec sandbox.Spec) *sandbox.Run {
		r, err := s.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		await(t, r, "ready\n")
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("one that handles SIGTERM", func(t *testing.T) {
		t.Parallel()
		r := start(t, small("handles", "exec 2>/dev/null; trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"))
		expect(t, wait(t, r), "stopped", 5)
		if out := output(t, r); out != "ready\nbye\n" {
			t.Errorf("output %q", out)
		}
	})
	t.Run("one that does not care", func(t *testing.T) {
		t.Parallel()
		r := start(t, small("plain", "echo ready; sleep 1000"))
		res := wait(t, r)
		expect(t, res, "stopped", -1)
		if res.Signal != 15 {
			t.Errorf("result %+v, want an end by SIGTERM", res)
		}
	})
	t.Run("one that ignores SIGTERM", func(t *testing.T) {
		t.Parallel()
		spec := small("ignores", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
		spec.StopGrace = 200 * time.Millisecond
		res := wait(t, start(t, spec))
		expect(t, res, "stopped", -1)
		if res.Signal != 9 || res.EndedAt.Sub(res.StartedAt) < spec.StopGrace {
			t.Errorf("result %+v, want an end by SIGKILL after the grace period", res)
		}
	})
	t.Run("children have their grace", func(t *testing.T) {
		t.Parallel()
		// The shell dies of SIGTERM at once; its child saves its work.
		r := start(t, small("child", "exec 2>/dev/null; (trap 'sleep 0.2; echo saved; exit' TERM; echo ready; while :; do sleep 0.01; done); true"))
		expect(t, wait(t, r), "stopped", -1)
		if out := output(t, r); out != "ready\nsaved\n" {
			t.Errorf("output %q, want the child to have saved", out)
		}
	})
	t.Run("twice, and after the end", func(t *testing.T) {
		t.Parallel()
		r := start(t, small("twice", "exec 2>/dev/null; trap 'echo got it' TERM; echo ready; n=0; while [ $n -lt 20 ]; do sleep 0.01; n=$((n+1)); done; exit 6"))
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		expect(t, wait(t, r), "stopped", 6)
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		// The context has ended: Start returns while the runner starts up.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 20 {
			r, err := s.Start(ctx, small(fmt.Sprint("early", i), "sleep 1000"))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			expect(t, wait(t, r), "stopped", -1)
		}
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	r, err := s.Start(t.Context(), small("busy", "echo go; while :; do :; done"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "go\n")
	used := func() time.Duration {
		u, err := r.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := used()
	res, _ := run(t, s, small("meanwhile", "n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done"))
	expect(t, res, "completed", 0)
	if after := used(); after != before {
		t.Errorf("paused, it used %s", after-before)
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); used() < before+50*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatal("resumed, it does not run")
		}
	}
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, r), "stopped", -1)
	if err := r.Pause(t.Context()); fault.KindOf(err) != fault.Conflict {
		t.Errorf("pausing an ended run: %v, want Conflict", err)
	}
	if _, err := r.Usage(); fault.KindOf(err) != fault.Conflict {
		t.Errorf("usage of an ended run: %v, want Conflict", err)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	if err := s.Remove("r"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("unknown: %v, want NotFound", err)
	}
	r, err := s.Start(t.Context(), small("r", "sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("r"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("running: %v, want Conflict", err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, r)
	if err := s.Remove("r"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "r")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is still there: %v", err)
	}
	if _, err := s.Get("r"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("after removal: %v, want NotFound", err)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("r", "exec 2>/dev/null; echo first; trap 'echo last; exit 0' TERM; while :; do sleep 0.01; done")
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	l := r.Log(0, true)
	defer l.Close()
	c, err := l.Next(t.Context())
	if err != nil || string(c.Data) != "first\n" || c.Offset != 0 {
		t.Fatalf("got %+v, %v", c, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing is there and Next gave %v", err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if c, err = l.Next(t.Context()); err != nil || string(c.Data) != "last\n" || c.Offset != 6 {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := l.Next(t.Context()); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
	// Later readers start anywhere.
	for offset, want := range map[int64]string{-1: "first\nlast\n", 8: "st\n", 11: "", 1 << 40: ""} {
		l := r.Log(offset, true)
		c, err := l.Next(t.Context())
		if string(c.Data) != want || (err == io.EOF) != (want == "") {
			t.Errorf("from %d: %q, %v, want %q", offset, c.Data, err, want)
		}
		l.Close()
	}
}

// TestFollowUnderPressure reads while old files are deleted: what arrives is
// in its place, and what does not is counted.
func TestFollowUnderPressure(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	const total = 20 << 20
	spec := small("r", fmt.Sprintf("yes 0123456789abcde | head -c %d", total))
	spec.LogFileBytes, spec.LogFiles = 64<<10, 2
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	l := r.Log(0, true)
	defer l.Close()
	next := int64(0)
	for {
		c, err := l.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.Offset != next+c.Dropped {
			t.Fatalf("offset %d after %d with %d dropped", c.Offset, next, c.Dropped)
		}
		for i, b := range c.Data {
			if want := "0123456789abcde\n"[(c.Offset+int64(i))%16]; b != want {
				t.Fatalf("byte %d is %q, want %q", c.Offset+int64(i), b, want)
			}
		}
		next = c.Offset + int64(len(c.Data))
	}
	if next != total {
		t.Errorf("read up to %d, want %d", next, total)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for name, edit := range map[string]func(*sandbox.Config){
		"relative folder": func(c *sandbox.Config) { c.Dir = "runs" },
		"root":            func(c *sandbox.Config) { c.Dir = "/" },
		"bad gateway":     func(c *sandbox.Config) { c.GatewayID = "a/b" },
		"system users":    func(c *sandbox.Config) { c.FirstUID = 1000 },
		"too many users":  func(c *sandbox.Config) { c.UIDs = 1<<32 - 1 },
		"host path":       func(c *sandbox.Config) { c.HostPaths = []string{"/opt/../root"} },
		"scratch path":    func(c *sandbox.Config) { c.HostPaths = []string{"/tmp/x"} },
	} {
		cfg := config(t)
		edit(&cfg)
		if _, err := sandbox.New(cfg, log); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	needHost(t)
	for name, edit := range map[string]func(*sandbox.Config){
		"no control groups": func(c *sandbox.Config) { c.Cgroups = t.TempDir() },
		"no runner":         func(c *sandbox.Config) { c.Runner = []string{"/nope"} },
		"not a runner":      func(c *sandbox.Config) { c.Runner = []string{"/bin/echo"} },
	} {
		cfg := config(t)
		edit(&cfg)
		if _, err := sandbox.New(cfg, log); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: %v, want Unavailable", name, err)
		}
		removeGroups(t, cfg.GatewayID)
	}
	cfg := config(t)
	open(t, cfg)
	if _, err := sandbox.New(cfg, log); fault.KindOf(err) != fault.Conflict {
		t.Errorf("second on one folder: %v, want Conflict", err)
	}
}

func TestHostPaths(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	dir, err := os.MkdirTemp("/opt", "yunhe-test-")
	if err != nil {
		t.Skip("skipped: /opt is not writable:", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.HostPaths = []string{dir, "/opt/not-there"}
	s := open(t, cfg)
	res, out := run(t, s, small("r", dir+"/tool; touch "+dir+"/x 2>/dev/null || echo read-only; ls /opt | wc -l"))
	expect(t, res, "completed", 0)
	if out != "tool\nread-only\n1\n" {
		t.Errorf("output %q", out)
	}
}

// TestRunnerWithoutItsOwnProgram: a gateway built without it plays the
// runner itself.
func TestRunnerWithoutItsOwnProgram(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{"embedded or self": nil, "self": {os.Args[0], "runner"}} {
		cfg := config(t)
		cfg.Runner = command
		s := open(t, cfg)
		res, out := run(t, s, small("r", "echo fine"))
		expect(t, res, "completed", 0)
		if out != "fine\n" {
			t.Errorf("%s: output %q", name, out)
		}
	}
}
