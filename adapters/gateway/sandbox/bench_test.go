package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
)

// cpuMeter reports the CPU time per operation: this process's own, and that
// of the processes that ended under it, which is runners with their commands.
func cpuMeter(b *testing.B) func() {
	used := func(who int) int64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(who, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	self, children := used(syscall.RUSAGE_SELF), used(syscall.RUSAGE_CHILDREN)
	return func() {
		b.ReportMetric(float64(used(syscall.RUSAGE_SELF)-self)/1e6/float64(b.N), "own-cpu-ms/op")
		b.ReportMetric(float64(used(syscall.RUSAGE_CHILDREN)-children)/1e6/float64(b.N), "child-cpu-ms/op")
	}
}

// BenchmarkStart is the time from the call until the command runs.
func BenchmarkStart(b *testing.B) {
	s := open(b, config(b))
	if _, err := s.Adopt(b.Context()); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		r, err := s.Start(b.Context(), small(fmt.Sprint("r", i), "echo x"))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		expect(b, wait(b, r), "completed", 0)
		b.StartTimer()
	}
}

// BenchmarkRun is a whole life, from the call to the durable record. Folders
// are not removed in between: an ext4 without journal, which some test
// machines have, avoids inodes deleted in the last five seconds by looking at
// each, and that would be measured.
func BenchmarkRun(b *testing.B) {
	s := open(b, config(b))
	if _, err := s.Adopt(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer cpuMeter(b)()
	for i := 0; b.Loop(); i++ {
		r, err := s.Start(b.Context(), small(fmt.Sprint("r", i), "echo x"))
		if err != nil {
			b.Fatal(err)
		}
		expect(b, wait(b, r), "completed", 0)
	}
}

// BenchmarkRunParallel keeps the machine busy with short runs, as a gateway
// with many tiny jobs does.
func BenchmarkRunParallel(b *testing.B) {
	s := open(b, config(b))
	if _, err := s.Adopt(b.Context()); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	defer cpuMeter(b)()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := s.Start(context.Background(), small(fmt.Sprint("r", n.Add(1)), "echo x"))
			if err != nil {
				b.Error(err)
				return
			}
			expect(b, wait(b, r), "completed", 0)
		}
	})
}

// BenchmarkPlain is the same command without any of it, for comparison.
func BenchmarkPlain(b *testing.B) {
	defer cpuMeter(b)()
	for b.Loop() {
		if out, err := exec.Command("/bin/sh", "-c", "echo x").Output(); err != nil || string(out) != "x\n" {
			b.Fatal(err, out)
		}
	}
}

// BenchmarkRunc is the same command under runc, for comparison.
func BenchmarkRunc(b *testing.B) {
	needHost(b)
	if _, err := exec.LookPath("runc"); err != nil {
		b.Skip("skipped: no runc on this machine")
	}
	dir := b.TempDir()
	root := filepath.Join(dir, "rootfs")
	for _, d := range []string{"usr", "etc", "proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			b.Fatal(err)
		}
	}
	spec := exec.Command("runc", "spec")
	spec.Dir = dir
	if out, err := spec.CombinedOutput(); err != nil {
		b.Fatalf("runc spec: %v: %s", err, out)
	}
	config := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(config)
	if err != nil {
		b.Fatal(err)
	}
	edited := strings.NewReplacer(
		`"terminal": true`, `"terminal": false`,
		`"sh"`, `"/bin/sh", "-c", "echo x"`,
		`"mounts": [`, `"mounts": [{"destination": "/usr", "type": "bind", "source": "/usr", "options": ["bind", "ro"]},`,
		`"devices": [`, `"memory": {"limit": 67108864}, "cpu": {"quota": 200000, "period": 100000}, "pids": {"limit": 512}, "devices": [`,
		`"hard": 1024`, `"hard": 1024`,
	).Replace(string(text))
	if err := os.WriteFile(config, []byte(edited), 0o600); err != nil {
		b.Fatal(err)
	}
	defer cpuMeter(b)()
	for i := 0; b.Loop(); i++ {
		c := exec.Command("runc", "--root", filepath.Join(dir, "state"), "run", "-b", dir, fmt.Sprintf("bench-%d-%d", os.Getpid(), i))
		if out, err := c.CombinedOutput(); err != nil || string(out) != "x\n" {
			b.Fatalf("runc run: %v: %s", err, out)
		}
	}
}

// BenchmarkExec is the time from the call until a command beside a run's own
// runs, and until its end is known.
func BenchmarkExec(b *testing.B) {
	s := open(b, config(b))
	started(b, s, small("r", ""))
	defer cpuMeter(b)()
	var begun time.Duration
	for b.Loop() {
		at := time.Now()
		x, err := s.Exec(b.Context(), "r", sandbox.ExecSpec{Args: []string{"true"}})
		if err != nil {
			b.Fatal(err)
		}
		begun += time.Since(at)
		if code, err := x.ExitCode(); code != 0 || err != nil {
			b.Fatal(code, err)
		}
		x.Close()
	}
	b.ReportMetric(float64(begun.Microseconds())/1e3/float64(b.N), "start-ms/op")
}

// BenchmarkPause is a pause and its end.
func BenchmarkPause(b *testing.B) {
	s := open(b, config(b))
	r, _ := started(b, s, small("r", ""))
	for b.Loop() {
		if err := r.Pause(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := r.Resume(); err != nil {
			b.Fatal(err)
		}
	}
}
