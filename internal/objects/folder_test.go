package objects

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// killedVar makes the test binary the process that TestFolderSurvivesKill
// kills: its value is the folder to write to.
const killedVar = "YUNHE_OBJECTS_TEST_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedVar); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// letters is a whole version of an object: one letter, as often as it says.
func letters(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*997%70000) }

// writeUntilKilled puts, replaces, creates and appends, and says on standard
// output what it has been told is stored.
func writeUntilKilled(dir string) {
	s, err := openFolder(dir)
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	ctx, c, size := contextBackground(), NewChunks(s), int64(0)
	for i := 0; ; i++ {
		data := letters(i)
		_, err1 := s.Put(ctx, "replaced", bytes.NewReader(data), -1, "")
		_, err2 := s.Create(ctx, fmt.Sprintf("deep/%d/%d/k", i%10, i), bytes.NewReader(data), int64(len(data)), "")
		end, err3 := c.Append(ctx, "log", size, data)
		if err := errors.Join(err1, err2, err3); err != nil {
			fmt.Println("write:", err)
			os.Exit(1)
		}
		size = end
		fmt.Println(i, size)
	}
}

func TestFolderSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	last, logged, appended := -1, int64(0), 0
	for range 5 {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), killedVar+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		// Each round starts on an emptied tree but keeps what a kill left in tmp.
		if err := os.RemoveAll(s.objects); err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// Kill it in a random write: it does not wait for us to read, so the
		// signal finds it at any step of a later one.
		stop := 5 + rand.IntN(20)
		for i := 0; i < stop; i++ {
			if _, err := fmt.Fscanln(out, &last, &logged); err != nil {
				t.Fatalf("child: %v", err)
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// What it said before the signal came counts too.
		rest, _ := io.ReadAll(out)
		for line := range strings.Lines(string(rest)) {
			if strings.HasSuffix(line, "\n") {
				_, _ = fmt.Sscan(line, &last, &logged)
			}
		}
		_ = child.Wait() // it was killed

		again, err := openFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		c := NewChunks(again)
		count := 0
		for after := ""; ; {
			page, err := again.List(t.Context(), "", after, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page {
				after = o.Key
				r, info, err := again.Get(t.Context(), o.Key, 0, -1)
				if err != nil {
					t.Fatalf("%s after a kill: %v", o.Key, err)
				}
				data, err := io.ReadAll(r)
				r.Close()
				if err != nil || int64(len(data)) != info.Size || bytes.Count(data, data[:1]) != len(data) {
					t.Errorf("%s after a kill: %v, or not a whole version", o.Key, err)
				}
				count++
			}
			if len(page) < 100 {
				break
			}
		}
		for i := range last + 1 {
			key := fmt.Sprintf("deep/%d/%d/k", i%10, i)
			if info, err := again.Stat(t.Context(), key); err != nil || info.Size != int64(len(letters(i))) {
				t.Errorf("%s was stored before the kill: %+v, %v", key, info, err)
			}
		}
		size, err := c.Size(t.Context(), "log")
		if err != nil || size < logged {
			t.Errorf("log has %d bytes (%v), %d were appended before the kill", size, err, logged)
		}
		// The writer that was killed repeats its append, answered or not.
		next := last + 1
		if end, err := c.Append(t.Context(), "log", logged, letters(next)); err != nil || end != logged+int64(len(letters(next))) {
			t.Errorf("repeated append at %d of %d: %d, %v", logged, size, end, err)
		}
		appended += count
	}
	if appended == 0 {
		t.Error("no object was written in any round")
	}
}

func TestFolderSweepsWhatIsLeftAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(s.tmp, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f.Name(), old, old); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	file("put-left")
	living := file("put-living")
	if err := syscall.Flock(int(living.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	young := file("put-young")
	if err := os.Chtimes(young.Name(), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"put-left": false, "put-living": true, "put-young": true} {
		_, err := os.Stat(filepath.Join(s.tmp, name))
		if got := err == nil; got != want {
			t.Errorf("%s is there: got %v, want %v", name, got, want)
		}
	}
}

func TestFolderNoticesDamage(t *testing.T) {
	t.Parallel()
	s, err := openFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	content := strings.Repeat("content ", 1000)
	for name, damage := range map[string]func([]byte) []byte{
		"a changed byte":     func(b []byte) []byte { b[4000]++; return b },
		"a lost end":         func(b []byte) []byte { return b[:len(b)-100] },
		"a lost beginning":   func(b []byte) []byte { return b[100:] },
		"no trailer":         func(b []byte) []byte { return b[:len(content)] },
		"less than one":      func(b []byte) []byte { return b[:10] },
		"nothing":            func([]byte) []byte { return nil },
		"a damaged trailer":  func(b []byte) []byte { b[len(content)+20] = 'x'; return b },
		"more than was put":  func(b []byte) []byte { return append([]byte("x"), b...) },
		"a changed checksum": func(b []byte) []byte { b[bytes.LastIndex(b, []byte("crc32c="))+7] ^= 1; return b },
	} {
		if _, err := s.Put(t.Context(), "k", strings.NewReader(content), -1, ""); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(s.path("k"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path("k"), damage(data), 0o600); err != nil {
			t.Fatal(err)
		}
		r, _, err := s.Get(t.Context(), "k", 0, -1)
		if err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		if err == nil || fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("%s: got error %v, want an internal one that names the object", name, err)
		}
	}
}

func TestFolderIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here")
	s, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "a/b/c", strings.NewReader("x"), 1, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "a/b/d", strings.NewReader("x"), 1, ""); err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || files != 2 {
		t.Errorf("walk: %v, %d files, want the 2 objects and nothing left in tmp", err, files)
	}
}

func TestFolderCleansUpAfterDelete(t *testing.T) {
	t.Parallel()
	s, err := openFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "a/b/c", strings.NewReader("x"), 1, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a/b/c"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(s.objects); err != nil || len(entries) != 0 {
		t.Errorf("after delete: %v, %v, want no folders left", entries, err)
	}
	// A kill between the two steps of a delete leaves empty folders.
	if err := os.MkdirAll(s.path("x/y/z"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "x", strings.NewReader("x"), 1, ""); err != nil {
		t.Errorf("put over empty folders: %v", err)
	}
	if err := os.MkdirAll(s.path("v/w"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "v", strings.NewReader("x"), 1, ""); err != nil {
		t.Errorf("create over empty folders: %v", err)
	}
}

func TestOpenFolderRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{URL: file})
	wantKind(t, "open a file as folder", err, fault.Invalid)
}

func FuzzFolderKeysStayInside(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "../a", "/etc/passwd", "a/../../b", "..", ".", "a\x00", "中/文", "a//b", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	s, err := openFolder(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		_, err := s.Put(t.Context(), key, strings.NewReader(key), -1, "")
		if checkKey(key) != nil {
			wantKind(t, "put", err, fault.Invalid)
			return
		}
		if kind := fault.KindOf(err); err != nil && kind != fault.Conflict {
			t.Fatalf("put %q: %v", key, err)
		}
		if err != nil {
			return
		}
		if rel, err := filepath.Rel(s.objects, s.path(key)); err != nil || rel != key || !filepath.IsLocal(rel) {
			t.Errorf("key %q is stored at %q", key, s.path(key))
		}
		found, err := s.List(t.Context(), key, "", 1)
		if err != nil || len(found) != 1 || found[0].Key != key {
			t.Errorf("list %q: got %v, %v", key, found, err)
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	})
}
