package pool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
)

// lockFile is in a node's folder. Its text is the holder's process, for people.
const lockFile = "node.lock"

// Lock is a folder that one pool node has for itself, as long as its process lives:
// the kernel keeps it, so one that was killed leaves nothing behind. A node that
// becomes another program is the same process, which keeps it (handover_linux.go).
type Lock struct{ file *os.File }

// LockFolder takes a folder, which is made if there is none. fault.Exists: another
// process has it.
func LockFolder(dir string) (*Lock, error) {
	path := filepath.Join(dir, lockFile)
	err := os.MkdirAll(dir, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "a pool node needs a folder that it may write in (--data), and %s cannot be written", path)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.Wrap(fault.Invalid, err, "%s cannot be locked", path)
		}
		who := "another pool node"
		if pid := lockedBy(path); pid != 0 {
			who += fmt.Sprintf(" (process %d)", pid)
		}
		return nil, fault.New(fault.Exists, "%s has the folder %s: each node needs one of its own, see --data", who, dir)
	}
	// Who has it counts, not what is said of it: a full disk keeps no node from starting.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &Lock{f}, nil
}

// lockedBy is the process that a lock's file names; 0: none.
func lockedBy(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 32)) // what cannot be read names nobody
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// Release lets another have the folder.
func (l *Lock) Release() {
	if l != nil {
		_ = l.file.Close() // with the last descriptor the lock goes
	}
}

// takeLock has the node have its folder: by what the program before it handed over,
// or anew. A program that knows nothing of locks keeps one open that it was handed,
// and does not hand it over: then this process has it already.
func (n *Node) takeLock(h *handover) (err error) {
	switch {
	case h == nil && n.cfg.Lock != nil:
		n.lock = n.cfg.Lock
	case h == nil:
		n.lock, err = LockFolder(n.cfg.Dir)
	case h.Lock != 0:
		var f *os.File
		if f, err = file(h.Lock, lockFile); err == nil {
			n.lock = &Lock{f}
		}
	default:
		n.lock, err = LockFolder(n.cfg.Dir)
		if fault.KindOf(err) == fault.Exists && lockedBy(filepath.Join(n.cfg.Dir, lockFile)) == os.Getpid() {
			err = nil
		}
	}
	if h != nil {
		n.cfg.Lock = n.lock // the process keeps it: the folder is in use until it ends
	}
	return err
}

// unlock lets another have the folder, if the lock is the node's own.
func (n *Node) unlock() {
	if n.cfg.Lock == nil {
		n.lock.Release()
	}
}
