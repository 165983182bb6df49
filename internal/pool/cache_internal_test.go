//go:build linux

package pool

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What drivers leave behind goes, and what they compiled stays; while a program
// runs, what is young may be its.
func TestTidy(t *testing.T) {
	n := &Node{cfg: NodeConfig{Dir: t.TempDir()}, tasks: map[string]*task{}}
	if err := makeCaches(n.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if err := makeCachesOf(n.cfg.Dir, owner("a")); err != nil {
		t.Fatal(err)
	}
	folders := caches(n.cfg.Dir, owner("a"))
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
	now := time.Now()
	program := func(name string, ago time.Duration) { // of many groups, and one of a node of before
		t.Helper()
		dir := filepath.Join(caches(n.cfg.Dir, owner(name))["POCL_CACHE_DIR"], name[:1], name)
		if name == "b" {
			dir = filepath.Join(n.cfg.Dir, "cache", "pocl", name[:1], name)
		}
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
		var all []string
		for _, path := range n.cached("pocl", "*", "*") {
			all = append(all, filepath.Base(path))
		}
		slices.Sort(all)
		if got := strings.Join(all, ""); got != want {
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

// The cache of a group goes when it had no program for long, and no one's else does.
func TestForgetCaches(t *testing.T) {
	n := &Node{cfg: NodeConfig{Dir: t.TempDir()}, tasks: map[string]*task{"x": {Task: Task{Group: "busy"}}}, log: slog.New(slog.DiscardHandler)}
	if err := makeCaches(n.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"", "busy", "gone", "../../x"} {
		if err := makeCachesOf(n.cfg.Dir, owner(group)); err != nil {
			t.Fatal(err)
		}
	}
	left := func() int { return len(n.cached("tmp")) }
	if n.bound(time.Now().Add(cacheKept - time.Hour)); left() != 5 {
		t.Errorf("%d caches are left of 5", left())
	}
	if n.bound(time.Now().Add(cacheKept + time.Hour)); left() != 2 {
		t.Errorf("%d caches are left of the node's and that of who has a program", left())
	}
	if err := makeCachesOf(n.cfg.Dir, owner("gone")); err != nil {
		t.Fatal(err)
	}
	if n.bound(time.Now().Add(time.Hour)); left() != 3 {
		t.Error("one that is used again goes")
	}
}

// What a link in a cache leads to stays, whoever made it, and the link goes.
func TestLinksInCaches(t *testing.T) {
	n := &Node{cfg: NodeConfig{Dir: t.TempDir(), Cache: 1}, tasks: map[string]*task{}, log: slog.New(slog.DiscardHandler)}
	if err := makeCaches(n.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if err := makeCachesOf(n.cfg.Dir, owner("a")); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	kept := filepath.Join(outside, "in", "file")
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	of := caches(n.cfg.Dir, owner("a"))
	for _, link := range []string{filepath.Join(of["POCL_CACHE_DIR"], "aa"), filepath.Join(of["TMPDIR"], "x"), filepath.Join(of["XDG_CACHE_HOME"], "more"), of["MESA_SHADER_CACHE_DIR"]} {
		_ = os.Remove(link) // the folder that it is instead of
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	late := time.Now().Add(time.Hour)
	n.tidy(late)
	n.bound(late)
	emptied(of["XDG_CACHE_HOME"])
	if err := makeCachesOf(n.cfg.Dir, owner("a")); err != nil {
		t.Error(err)
	}
	if f, err := os.Lstat(of["MESA_SHADER_CACHE_DIR"]); err != nil || !f.IsDir() {
		t.Errorf("the folder of a cache is %v, %v", f, err)
	}
	n.tidy(late)
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(of["TMPDIR"]); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(kept), of["TMPDIR"]); err != nil { // the folder itself
		t.Fatal(err)
	}
	if n.tidy(late); len(n.cached("tmp", "*")) != 0 {
		t.Errorf("there are %v", n.cached("tmp", "*"))
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// TestSizeOf: what is below a path is what it takes of the disk: a file may say that it is
// larger than there is room, and more files together more than can be counted.
func TestSizeOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 3*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		f, err := os.Create(filepath.Join(dir, string(rune('a'+i))))
		for size := int64(1) << 60; err == nil && f.Truncate(size) != nil; size /= 2 { // as large as the file system takes
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	if got := sizeOf(dir); got.taken < 3*mib || got.taken > 4*mib || got.bytes < 3*mib || got.bytes > 4*mib {
		t.Errorf("3 MiB, and files without contents, are %d bytes and take %d", got.bytes, got.taken)
	}
	few := t.TempDir()
	for i := range 256 {
		if err := os.WriteFile(filepath.Join(few, strconv.Itoa(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(few, &fs); err != nil {
		t.Fatal(err)
	}
	if got := sizeOf(few); got.bytes != 256 || got.taken < 256*512 && fs.Type != unix.BTRFS_SUPER_MAGIC {
		t.Errorf("256 files of a byte are %d bytes and take %d", got.bytes, got.taken)
	}
}
