package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk makes a file system in memory of a size, such as 64m, for a test. It
// needs root.
func Disk(tb testing.TB, size string) (dir string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("SKIPPED: a disk of its own needs root")
	}
	dir = tb.TempDir()
	check(tb, mountDisk(dir, "mode=0700,size="+size))
	tb.Cleanup(func() { check(tb, unmountDisk(dir)) })
	return dir
}

func mountDisk(dir, options string) error { return syscall.Mount("disk", dir, "tmpfs", 0, options) }

// unmountDisk also takes a disk away that is in use.
func unmountDisk(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// FillDisk takes all the room that is left on the disk of a folder, until free
// is called. The file is emptied before it goes: a process that is being
// started beside this one has a copy of what is open, and would keep the room.
func FillDisk(dir string) (free func() error, err error) {
	name := filepath.Join(dir, "filler")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("fill a disk: %w", err)
	}
	free = func() error { return errors.Join(f.Truncate(0), f.Close(), os.Remove(name)) }
	block := make([]byte, 1<<20)
	for size := len(block); size > 0; {
		if _, err = f.Write(block[:size]); errors.Is(err, syscall.ENOSPC) {
			size /= 2 // until there is not even room for a byte
		} else if err != nil {
			return nil, errors.Join(fmt.Errorf("fill a disk: %w", err), free())
		}
	}
	return free, nil
}
