package enginetest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/enginetest"
)

// TestFillDisk: while a disk is full nothing can be written to it, and
// afterwards as much as before.
func TestFillDisk(t *testing.T) {
	t.Parallel()
	dir := enginetest.Disk(t, "1m")
	name := filepath.Join(dir, "beside")
	write := func() error { return os.WriteFile(name, make([]byte, 512<<10), 0o600) }
	for range 2 {
		free, err := enginetest.FillDisk(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a write to a full disk gave %v, want no space left", err)
		}
		if err := free(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Errorf("with room again: %v", err)
		}
		if err := os.Truncate(name, 0); err != nil { // gives the room back whoever has the file open
			t.Fatal(err)
		}
	}
}
