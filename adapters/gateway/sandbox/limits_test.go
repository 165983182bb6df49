//go:build linux

package sandbox_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/enginetest"
)

func TestForkBombIsContained(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("bomb", "echo lit; f() { f | f & }; f 2>/dev/null & while :; do :; done") // a shell that cannot fork ends: not this one
	spec.Pids, spec.CPUMilli, spec.WallTime, spec.StopGrace = 64, 500, 2*time.Second, 100*time.Millisecond
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "lit\n")
	// The machine answers: a process of the host's, and another run.
	if err := exec.Command("/bin/true").Run(); err != nil {
		t.Errorf("the host cannot start a process: %v", err)
	}
	res, out := run(t, s, small("neighbor", "echo fine"))
	expect(t, res, "completed", 0)
	if out != "fine\n" {
		t.Errorf("neighbor wrote %q", out)
	}
	if u, err := r.Usage(); err != nil || u.Pids > spec.Pids {
		t.Errorf("usage %+v, %v, want at most %d processes", u, err, spec.Pids)
	}
	res = wait(t, r)
	expect(t, res, "wall_time", -1)
	if res.PidsLimitHits == 0 {
		t.Errorf("no fork was refused: %+v", res)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	t.Run("within it", func(t *testing.T) {
		res, out := run(t, s, probing(t, "within", "memory", "40"))
		expect(t, res, "completed", 0)
		if out != "touched 40\n" || res.MaxMemoryBytes < 40<<20 || res.MaxMemoryBytes > 64<<20 || res.OOMKills != 0 {
			t.Errorf("output %q, result %+v", out, res)
		}
	})
	t.Run("beyond it", func(t *testing.T) {
		res, out := run(t, s, probing(t, "beyond", "memory", "100"))
		expect(t, res, "oom", -1)
		if out != "" || res.Signal != 9 || res.OOMKills == 0 || res.MaxMemoryBytes > 64<<20 {
			t.Errorf("output %q, result %+v", out, res)
		}
	})
	t.Run("a child beyond it fails the command", func(t *testing.T) {
		res, _ := run(t, s, small("child", "head -c 200000000 /dev/zero | tail -n 1; echo $?; exit 12"))
		expect(t, res, "oom", 12)
	})
	t.Run("a child beyond it does not fail the command", func(t *testing.T) {
		res, _ := run(t, s, small("survivor", "head -c 200000000 /dev/zero | tail -n 1; exit 0"))
		expect(t, res, "completed", 0)
		if res.OOMKills == 0 {
			t.Errorf("no kill is reported: %+v", res)
		}
	})
	t.Run("files count", func(t *testing.T) {
		spec := small("files", "head -c 200000000 /dev/zero >/dev/shm/x")
		spec.DiskBytes = 1 << 30
		res, _ := run(t, s, spec)
		if res.Reason != "oom" {
			t.Errorf("ended with %s, want oom: %+v", res.Reason, res)
		}
	})
}

func TestDiskLimit(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	spec := small("fill", `
head -c 5000000 /dev/zero >/workspace/a && echo fits
head -c 100000000 /dev/zero >/tmp/b 2>/tmp/err || echo full
head -c 100000 /dev/zero >/dev/shm/c || echo full as well
stat -c %s /workspace/a /tmp/b | paste -s -d+`)
	spec.DiskBytes = 8 << 20
	res, out := run(t, s, spec)
	expect(t, res, "completed", 0)
	lines := strings.Split(out, "\n")
	if !strings.HasPrefix(out, "fits\n") || !strings.Contains(out, "full\n") || !strings.Contains(out, "full as well\n") || !strings.Contains(out, "No space left") {
		t.Errorf("output:\n%s", out)
	}
	a, b, _ := strings.Cut(lines[len(lines)-2], "+")
	na, _ := strconv.ParseInt(a, 10, 64)
	nb, _ := strconv.ParseInt(b, 10, 64)
	if na+nb > 8<<20+64<<10 || na+nb < 7<<20 {
		t.Errorf("files hold %d+%d bytes, want about %d", na, nb, 8<<20)
	}
	// On the host there is the attempt's folder and nothing in it grew.
	var onDisk int64
	err := filepath.Walk(filepath.Join(cfg.Dir, "fill"), func(_ string, st os.FileInfo, err error) error {
		if err == nil {
			onDisk += st.Size()
		}
		return err
	})
	if err != nil || onDisk > 64<<10 {
		t.Errorf("%d bytes on the host's disk, %v", onDisk, err)
	}
}

func TestCPULimit(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("spin", "while :; do :; done & while :; do :; done & while :; do :; done")
	spec.CPUMilli, spec.WallTime, spec.StopGrace = 300, 3*time.Second, time.Second
	res, _ := run(t, s, spec)
	expect(t, res, "wall_time", -1)
	share := res.CPU.Seconds() / res.EndedAt.Sub(res.StartedAt).Seconds()
	t.Logf("limit 0.300 CPUs, used %.3f over %s", share, res.EndedAt.Sub(res.StartedAt))
	if share > 0.3*1.15 {
		t.Errorf("used %.3f CPUs, limit 0.300", share)
	}
	if share < 0.1 {
		t.Errorf("used %.3f CPUs: it did not even try, or nobody counted", share)
	}
}

func TestOutputFlood(t *testing.T) {
	t.Parallel()
	total := int64(1 << 30)
	if testing.Short() {
		total = 64 << 20
	}
	cfg := config(t)
	s := open(t, cfg)
	spec := small("flood", fmt.Sprintf("yes 0123456789abcde | head -c %d", total))
	spec.LogFileBytes, spec.LogFiles = 1<<20+1, 3 // not a multiple of anything
	start := time.Now()
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	res := wait(t, r)
	took := time.Since(start)
	expect(t, res, "completed", 0)
	t.Logf("%d MiB in %s: %.0f MiB/s", total>>20, took, float64(total>>20)/took.Seconds())
	var kept int64
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "flood", "log.*"))
	if err != nil || len(files) > spec.LogFiles {
		t.Fatalf("files %q, %v, want at most %d", files, err, spec.LogFiles)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		kept += st.Size()
	}
	if res.OutputBytes != total || res.DroppedBytes != total-kept || kept < 2<<20 {
		t.Errorf("output %d, dropped %d, kept %d, want %d in all", res.OutputBytes, res.DroppedBytes, kept, total)
	}
	// Every kept byte is where it belongs.
	const line = "0123456789abcde\n"
	l := r.Log(5, false)
	defer l.Close()
	next := res.DroppedBytes
	for first := true; ; first = false {
		c, err := l.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if first && c.Dropped != res.DroppedBytes-5 || !first && c.Dropped != 0 {
			t.Fatalf("at %d: %d bytes reported as dropped, want %d before the first only", c.Offset, c.Dropped, res.DroppedBytes-5)
		}
		if c.Offset != next {
			t.Fatalf("got offset %d, want %d", c.Offset, next)
		}
		for i, b := range c.Data {
			if want := line[(c.Offset+int64(i))%16]; b != want {
				t.Fatalf("byte %d is %q, want %q", c.Offset+int64(i), b, want)
			}
		}
		next += int64(len(c.Data))
	}
	if next != total {
		t.Errorf("read up to %d, want %d", next, total)
	}
}

func TestWallTime(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("slow", "exec 2>/dev/null; trap 'echo late; exit 9' TERM; while :; do sleep 0.01; done")
	spec.WallTime = 300 * time.Millisecond
	res, out := run(t, s, spec)
	expect(t, res, "wall_time", 9)
	if took := res.EndedAt.Sub(res.StartedAt); took < spec.WallTime || took > 20*time.Second || out != "late\n" {
		t.Errorf("took %s, output %q", took, out)
	}
	// It holds for the whole process tree.
	spec = small("detached", "setsid sleep 1000 & setsid sleep 1000 & sleep 1000")
	spec.WallTime, spec.StopGrace = 100*time.Millisecond, 100*time.Millisecond
	res, _ = run(t, s, spec)
	expect(t, res, "wall_time", -1)
	if res.Signal != 15 {
		t.Errorf("signal %d, want SIGTERM: %+v", res.Signal, res)
	}
}

func TestOrphansAreCollected(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := probing(t, "orphans", "orphans")
	spec.Pids = 60 // zombies of 20 would not leave room for 20 more and their threads
	res, out := run(t, s, spec)
	expect(t, res, "completed", 0)
	if out != "made\n" || res.PidsLimitHits != 0 {
		t.Errorf("output %q, result %+v", out, res)
	}
}

func TestLogWriteFailureDoesNotStopTheCommand(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	spec := small("r", "exec 2>/dev/null; trap 'echo two; exit 4' TERM; head -c 4096 /dev/zero | tr '\\0' x; while :; do sleep 0.01; done")
	spec.LogFileBytes = 4096
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, strings.Repeat("x", 4096))
	// A folder stands where the next log file should be made.
	if err := os.Mkdir(runner.LogName(filepath.Join(cfg.Dir, "r"), 1), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	res := wait(t, r)
	expect(t, res, "stopped", 4)
	if res.OutputBytes != 4100 || !strings.HasPrefix(res.Message, "some output could not be kept: ") {
		t.Errorf("result %+v", res)
	}
}

// TestFullDisk: what has been taken on runs, ends and is recorded though the disk
// fills up before it begins. What comes then is refused for now, and leaves nothing.
func TestFullDisk(t *testing.T) {
	needHost(t)
	if runnerProgram == nil {
		t.Skip("SKIPPED: the runner cannot be built here")
	}
	cfg, gate := config(t), filepath.Join(t.TempDir(), "gate")
	cfg.Dir = enginetest.Disk(t, "16m")
	cfg.Runner = []string{"/bin/sh", "-c", `case "$0" in /*) until [ -e ` + gate + ` ]; do /bin/sleep 0.01; done;; esac; exec ` + runnerProgram[0] + ` "$0" "$@"`}
	s := open(t, cfg)
	type started struct {
		run *sandbox.Run
		err error
	}
	first := make(chan started, 1)
	go func() {
		r, err := s.Start(t.Context(), small("first", "seq 20000; exit 4"))
		first <- started{r, err}
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(cfg.Dir, "first", runner.ExitFile+".new")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("there is no room for how the run ends")
		}
	}
	free, err := enginetest.FillDisk(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x := <-first
	if x.err != nil {
		t.Fatal(x.err)
	}
	res := wait(t, x.run)
	expect(t, res, "exit", 4)
	if res.OutputBytes != 108894 || !strings.HasPrefix(res.Message, "some output could not be kept: ") || x.run.StartedAt().IsZero() {
		t.Errorf("result %+v", res)
	}
	if _, err := s.Start(t.Context(), small("second", "true")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("with a full disk Start gets %v, want that it is full", err)
	}
	if err := free(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(cfg.Dir, "second*")); err != nil || len(left) > 0 {
		t.Errorf("what was refused left %v, %v", left, err)
	}
	res, _ = run(t, s, small("second", "true"))
	expect(t, res, "completed", 0)
}
