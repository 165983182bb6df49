// Package drivernode_test holds the example driver in JavaScript to the suite
// every driver passes.
package drivernode_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/sdk/adaptertest"
)

// node finds a Node that is new enough, or skips.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("NOT CHECKED: the example driver in JavaScript needs Node 20 or later, and there is no node here")
	}
	out, err := exec.Command(path, "-p", "Number(process.versions.node.split('.')[0]) >= 20").Output()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		t.Skipf("NOT CHECKED: the example driver in JavaScript needs Node 20 or later; %s is older (%v)", path, err)
	}
	return path
}

func TestConformance(t *testing.T) {
	t.Parallel()
	program := []string{node(t), "driver.mjs"}
	dir := t.TempDir()
	runs, away, shared := filepath.Join(dir, "runs"), filepath.Join(dir, "away"), filepath.Join(dir, "shared")
	must := func(t testing.TB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.Mkdir(shared, 0o700))
	adaptertest.Run(t, adaptertest.Config{
		Start:   adaptertest.Program{Command: program, Config: map[string]any{"dir": runs}}.Start,
		ImageID: "host", SpecID: "small", Resources: map[string]int64{"cpu": 100, "memory": 16 << 20},
		Shared: shared, Parallel: true,
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
			pid, _, _ := strings.Cut(string(b), " ")
			if out, err := exec.Command("kill", "-KILL", "--", "-"+pid).CombinedOutput(); err != nil {
				t.Fatalf("kill the processes of %s: %v: %s", id, err, out)
			}
		},
		Skip: map[string]string{
			"stop/waiting":  "it has no queue: what is accepted starts at once",
			"watch/changes": "its machine does not change",
		},
	})
}
