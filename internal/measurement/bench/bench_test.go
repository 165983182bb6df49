package bench_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/measurement/bench"
	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
)

// The program measures everything there is, says what it could not, leaves
// nothing behind, and what it prints is read and believed.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	r, err := bench.Machine(t.Context(), bench.Options{Dir: dir, Cores: 1, MemoryBytes: 512 << 20, DiskBytes: 32 << 20, Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.Parse("noise\n" + r.Text())
	if err != nil {
		t.Fatal(err)
	}
	if bad := score.Implausible(got, 1, func(string, string) (float64, bool) { return 0, false }); len(bad) > 0 {
		t.Errorf("not believed: %v", bad)
	}
	want := []string{score.IntegerSingle, score.IntegerAll, score.FloatSingle, score.FloatAll, score.MemoryBandwidth, score.Loopback, score.RoundTrip}
	if medium, inMemory := bench.Medium(dir); runtime.GOOS == "linux" && !inMemory && !strings.Contains(strings.Join(got.Notes, " "), "O_DIRECT") {
		want = append(want, score.DiskWrite, score.DiskRead, score.DiskReads, score.DiskWrites)
		if got.Medium != medium {
			t.Errorf("medium %q, want %q", got.Medium, medium)
		}
	}
	for _, id := range want {
		if _, ok := got.Find(id); !ok {
			t.Errorf("no figure of %s; notes %q", id, got.Notes)
		}
	}
	if got.Cores != 1 || got.Architecture != runtime.GOARCH || got.Seconds <= 0 {
		t.Errorf("facts: %+v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestMachineWithoutDisk(t *testing.T) {
	r, err := bench.Machine(t.Context(), bench.Options{Dir: filepath.Join(t.TempDir(), "absent"), Cores: 1, MemoryBytes: 64 << 20, Quick: true})
	if err != nil || !strings.Contains(strings.Join(r.Notes, " "), "no disk was measured") {
		t.Errorf("%+v, %v", r, err)
	}
	if _, ok := r.Find(score.DiskWrite); ok {
		t.Error("a figure of a disk that is not there")
	}
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		if name, inMemory := bench.Medium("/dev/shm"); runtime.GOOS == "linux" && name == "tmpfs" && !inMemory {
			t.Error("memory is taken for a disk")
		}
	}
}

func TestMachineCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := bench.Machine(ctx, bench.Options{Dir: t.TempDir(), Quick: true}); !errors.Is(err, context.Canceled) || len(r.Figures) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The figures a run takes, each by itself, for comparing with other tools.
func BenchmarkTriad(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bench.Triad(b.Context(), bench.Workers(), 512<<20, 100*time.Millisecond, 25), "MB/s")
	}
}

func BenchmarkInteger(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bench.Integer(b.Context(), 1, time.Second), "Mop/s")
	}
}
