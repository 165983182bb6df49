package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Locks are flock's: they go with the process that holds them, and hold
// between any two opens, also of one process.
const (
	lockShared = syscall.LOCK_SH
	lockAlone  = syscall.LOCK_EX
)

var errLocked = errors.New("locked by another process")

// lockFolder locks a folder, and returns fs.ErrNotExist if it is gone. A
// shared lock waits for the moment in which another holds it alone; errLocked
// says that a lock alone is not to be had.
func lockFolder(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if how == lockAlone {
		how |= syscall.LOCK_NB
	}
	if err = flock(f, how); err == nil {
		// It may have been renamed between the two.
		err = stillThere(path, f)
	}
	if err != nil {
		_ = f.Close() // read only
		return nil, err
	}
	return f, nil
}

func stillThere(path string, f *os.File) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	held, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(now, held) {
		return &fs.PathError{Op: "lock", Path: path, Err: fs.ErrNotExist}
	}
	return nil
}

// lockFile locks a file that exists for this only.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, how|syscall.LOCK_NB); err != nil {
		_ = f.Close() // empty
		return nil, err
	}
	return f, nil
}

// lockWait locks a file alone; flock itself has no way to be interrupted.
func lockWait(ctx context.Context, path string) (*os.File, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		f, err := lockFile(path, lockAlone)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		case err != nil:
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}

func links(st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 2 // not known: kept
}

// syncFolder makes names in a folder survive a power failure.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
