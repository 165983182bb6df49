package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/filelock"
)

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	if err := filelock.Lock(first); err != nil {
		t.Fatal(err)
	}
	if err := filelock.Lock(second); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("second lock: %v, want %v", err, filelock.ErrHeld)
	}
	// A copy of the descriptor, as a child has it before it executes its program.
	child, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if err := filelock.Unlock(first); err != nil {
		t.Fatal(err)
	}
	if err := filelock.Lock(second); err != nil {
		t.Fatalf("lock after unlock, with a copy of the descriptor open: %v", err)
	}
	if err := filelock.Unlock(second); err != nil {
		t.Fatal(err)
	}
}

// A child of a killed process keeps the lock until it executes its program.
func TestLockWaits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := filelock.Lock(held); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { held.Close() })
	if err := filelock.Lock(f); err != nil {
		t.Fatalf("lock that is freed soon: %v", err)
	}
	if err := filelock.Unlock(f); err != nil {
		t.Fatal(err)
	}
}
