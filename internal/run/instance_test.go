package run_test

import (
	"os"
	"path/filepath"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/run"
)

func open(t *testing.T, dir string) string {
	t.Helper()
	i, err := run.OpenInstance(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	return i.ID
}

func TestOpenInstance(t *testing.T) {
	t.Parallel()
	t.Run("the name stays, and no other folder has it", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := open(t, dir)
		if again := open(t, dir); again != first || first == "" {
			t.Errorf("got %q, then %q, want one name", first, again)
		}
		copied := t.TempDir()
		b, err := os.ReadFile(filepath.Join(dir, "instance"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, "instance"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if other := open(t, copied); other == first {
			t.Errorf("a copy of the folder has the same name %q", other)
		}
	})
	t.Run("a name cut short is made anew", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "instance"), []byte("ins_01"), 0o600); err != nil {
			t.Fatal(err)
		}
		first := open(t, dir)
		if again := open(t, dir); again != first || len(first) < 30 {
			t.Errorf("got %q, then %q, want one whole name", first, again)
		}
	})
	t.Run("one process at a time", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		i, err := run.OpenInstance(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close() // the end of the test does it too
		if _, err := run.OpenInstance(dir); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a second process got %v, want a conflict", err)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		t.Parallel()
		if _, err := run.OpenInstance(filepath.Join(t.TempDir(), "none")); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("got %v, want unavailable", err)
		}
	})
}
