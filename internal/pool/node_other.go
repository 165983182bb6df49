//go:build !linux

package pool

import (
	"context"
	"log/slog"
	"net"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// NodeConfig is how a node is started.
type NodeConfig struct {
	Dir        string
	Lock       *Lock
	Listen     []string
	Groups     []Group
	Overcommit int64
	Memory     int64
	MemoryOver int64
	Concurrent []string
	Power      map[string]Watts
	Powercap   string
	Libraries  string
	Cache      int64
	Member     *Member
	Encryption bool
}

// Lock is of a node's folder.
type Lock struct{}

// LockFolder takes none: there are no nodes.
func LockFolder(string) (*Lock, error) { return nil, nil }

// Release does nothing.
func (l *Lock) Release() {}

// Node lends this machine's devices, where it is Linux.
type Node struct{}

// NewNode refuses: turns and memory are counted with what Linux has.
func NewNode(NodeConfig, *slog.Logger) (*Node, error) {
	return nil, fault.New(fault.Unimplemented, "pool nodes run on Linux")
}

// impatient does nothing: the system's own patience ends a connection that is cut.
func impatient(net.Conn, time.Duration) {}

// Addresses are none.
func (n *Node) Addresses() []string { return nil }

// Shown is the address.
func (n *Node) Shown(at string) string { return at }

// Run does nothing.
func (n *Node) Run(context.Context) error { return nil }

// Rescan does nothing.
func (n *Node) Rescan() error { return nil }

// Attend does nothing.
func (n *Node) Attend(context.Context, Tell) error { return nil }

// SetLimits does nothing.
func (n *Node) SetLimits(Limits) {}

// Parts are none.
func (n *Node) Parts() []Part { return nil }

// Replace refuses.
func (n *Node) Replace(context.Context, string) error {
	return fault.New(fault.Unimplemented, "pool nodes run on Linux")
}

// GivenBack says nothing.
func (n *Node) GivenBack() string { return "" }

// HandedOver reports nothing.
func HandedOver() bool { return false }

// Libraries is nothing.
func (n *Node) Libraries() string { return "" }

// LibrariesVariable names nothing.
const LibrariesVariable = "YUNHE_POOL_LIBRARIES"

// Look finds nothing.
func Look(string) (int, error) { return 0, nil }

// GiveBack does nothing.
func GiveBack(error) error { return nil }
