package pool

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPut: what was left by who was killed while it wrote goes, what others write now
// and what is called otherwise stays.
func TestPut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, old := filepath.Join(dir, "library.so"), time.Now().Add(-2*putTime)
	for name, written := range map[string]time.Time{"library.so-1234": old, "library.so-99": time.Now(), "library.so-other": old, "library.so.1": old} {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, written, written); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := put(path, []byte("text"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("it is %q, %v", got, err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(all) != 4 {
		t.Errorf("there are %v, %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "library.so-1234")); err == nil {
		t.Error("what was left is there")
	}
}
