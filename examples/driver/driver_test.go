package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/sdk/adaptertest"
)

// TestConformance runs the driver as its users do, against a folder that is
// taken away to break it.
func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin, runs, away, shared := filepath.Join(dir, "driver"), filepath.Join(dir, "runs"), filepath.Join(dir, "away"), filepath.Join(dir, "shared")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	if err := os.MkdirAll(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	move := func(from, to string) func(testing.TB) {
		return func(t testing.TB) {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(t testing.TB) {
		if err := os.WriteFile(runs, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	adaptertest.Run(t, adaptertest.Config{
		Start:   adaptertest.Program{Command: []string{bin}, Config: map[string]any{"dir": runs}}.Start,
		ImageID: "host", SpecID: "small", Resources: map[string]int64{"cpu": 100, "memory": 16 << 20},
		Shared: shared, Parallel: true,
		Break: func(t testing.TB) { move(runs, away)(t); file(t) },
		Repair: func(t testing.TB) {
			if err := os.Remove(runs); err != nil {
				t.Fatal(err)
			}
			move(away, runs)(t)
		},
		Delete: func(t testing.TB, id string) {
			b, err := os.ReadFile(filepath.Join(runs, id, "started"))
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
				t.Fatalf("kill the processes of %s: %v", id, err)
			}
		},
		Skip: map[string]string{
			"stop/waiting":  "it has no queue: what is accepted starts at once",
			"watch/changes": "its machine does not change",
		},
	})
}
