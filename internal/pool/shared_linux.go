package pool

import (
	"net"
	"os"
	"path/filepath"
)

// shared is the path of the socket that may be shown to anybody.
func (n *Node) shared() string { return filepath.Join(n.cfg.Dir, SharedSocket) }

// listenShared opens that, for a node of a platform: others know no tickets. Where it
// cannot be, programs in containers come over the network.
func (n *Node) listenShared() {
	path := n.shared()
	if n.member == nil {
		return
	}
	folder := filepath.Dir(path)
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.Chmod(folder, 0o755) // whatever the umask is
	}
	var l net.Listener
	if err == nil {
		_ = os.Remove(path) // of a node that was killed: this one has the folder
		l, err = net.Listen("unix", path)
	}
	if err == nil {
		if err = os.Chmod(path, 0o666); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		n.log.Warn("programs in containers reach the pool node over the network only", "error", err)
		return
	}
	n.listeners = append(n.listeners, l)
}
