// Package filelock keeps a second process from a folder or file that only one
// may use.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// wait covers a child of a killed process between fork and exec: it has the
// descriptors of its parent, so it holds the lock a moment longer.
const wait = time.Second

// ErrHeld says that another process, or another part of this one, has the lock.
var ErrHeld = errors.New("the file is locked")

// Lock locks f for its caller alone and returns ErrHeld if it stays held. The
// end of the process unlocks it; before that, Unlock does.
func Lock(f *os.File) error {
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Now().After(end):
			return ErrHeld
		}
	}
}

// Unlock unlocks f and closes it. Closing alone would leave it locked for as
// long as a child between fork and exec has a copy of the descriptor.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
