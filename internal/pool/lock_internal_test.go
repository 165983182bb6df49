//go:build linux

package pool

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
)

// TestLockFolder: a folder is one node's; the other is told whose, before it changes
// anything there, and has it when the first is gone.
func TestLockFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/data"
	l, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewNode(NodeConfig{Dir: dir, Listen: []string{"unix:" + dir + "/s"}}, slog.New(slog.DiscardHandler))
	if fault.KindOf(err) != fault.Exists || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("a second node on %s: %v", dir, err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("a node that was refused left %v", list)
	}
	l.Release()
	if l, err = LockFolder(dir); err != nil {
		t.Errorf("when it is free: %v", err)
	}
	l.Release()
	if l, err = LockFolder(dir + "/node.lock/no"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("where no folder can be: %v, %v", l, err)
	}
}

// TestLockHandedOver: a node that goes on in another program has its folder by what it
// was handed. One that was handed nothing has it if this process has: a program of
// before left it open.
func TestLockHandedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	var keep copies
	fd, err := keep.of(l.file)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	n := &Node{cfg: NodeConfig{Dir: dir}}
	if err := n.takeLock(&handover{Lock: fd}); err != nil {
		t.Fatal(err)
	}
	keep.close()
	if _, err := LockFolder(dir); fault.KindOf(err) != fault.Exists {
		t.Errorf("what was handed over holds nothing: %v", err)
	}
	if err := (&Node{cfg: NodeConfig{Dir: dir}}).takeLock(&handover{}); err != nil {
		t.Errorf("what this process has is refused: %v", err)
	}
	if err := n.lock.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := n.lock.file.WriteAt([]byte("1\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := (&Node{cfg: NodeConfig{Dir: dir}}).takeLock(&handover{}); fault.KindOf(err) != fault.Exists {
		t.Errorf("what another process has is taken: %v", err)
	}
	if flags, err := unix.FcntlInt(n.lock.file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("workers keep the folder: %d, %v", flags, err)
	}
}
