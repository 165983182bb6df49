//go:build linux

package pool

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What drivers leave behind goes, and what they compiled stays; while a program
// runs, what is young may be its.
func TestTidy(t *testing.T) {
	n := &Node{cfg: NodeConfig{Dir: t.TempDir()}, tasks: map[string]*task{}}
	if err := makeCaches(n.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	folders := caches(n.cfg.Dir)
	kept := filepath.Join(folders["POCL_CACHE_DIR"], "program.bc")
	files := []string{kept, filepath.Join(folders["POCL_CACHE_DIR"], "tempfile_1"), filepath.Join(folders["TMPDIR"], "x")}
	for _, f := range files {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(at time.Duration, want int) {
		t.Helper()
		n.tidy(time.Now().Add(at))
		left := 0
		for _, f := range files {
			if _, err := os.Stat(f); err == nil {
				left++
			}
		}
		if left != want {
			t.Errorf("after %s there are %d of the files, want %d", at, left, want)
		}
	}
	busy := &task{}
	busy.workers[0] = &proc{}
	n.tasks["a"] = busy
	check(time.Minute, 3)
	delete(n.tasks, "a")
	check(0, 3)
	check(time.Minute, 1)
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
