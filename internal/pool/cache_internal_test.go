//go:build linux

package pool

import (
	"log/slog"
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

// Programs that were used longest ago go first, and only as many as must; what a
// worker may be using stays.
func TestBound(t *testing.T) {
	n := &Node{cfg: NodeConfig{Dir: t.TempDir(), Cache: 1000}, tasks: map[string]*task{}, log: slog.New(slog.DiscardHandler)}
	if err := makeCaches(n.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	pocl, now := caches(n.cfg.Dir)["POCL_CACHE_DIR"], time.Now()
	program := func(name string, ago time.Duration) {
		t.Helper()
		dir := filepath.Join(pocl, name[:1], name)
		if err := os.MkdirAll(filepath.Join(dir, "kernel"), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, old := range map[string]time.Duration{"program.bc": 100 * time.Hour, "last_accessed": ago} {
			path := filepath.Join(dir, "kernel", file)
			if err := os.WriteFile(path, make([]byte, 150), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, now.Add(-old), now.Add(-old)); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := func(want string) {
		t.Helper()
		n.bound(now)
		got := ""
		all, err := filepath.Glob(filepath.Join(pocl, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			got += filepath.Base(path)
		}
		if got != want {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	program("a", 3*time.Hour)
	program("b", 30*time.Hour)
	program("c", 20*time.Minute)
	there("abc") // 900 bytes
	program("d", 10*time.Minute)
	there("acd")
	program("e", time.Minute)
	busy := &task{}
	busy.workers[0] = &proc{}
	n.tasks["x"] = busy
	there("cde")
	program("f", time.Minute)
	there("cdef") // all were used within the hour
	delete(n.tasks, "x")
	there("def")
	n.cfg.Cache = 0
	program("g", time.Hour)
	there("defg")
}
