package pool

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// impatient has the kernel end a connection over which nothing gets through for so
// long, though something is said ([beatEvery]).
func impatient(conn net.Conn, silent time.Duration) {
	t, ok := conn.(*net.TCPConn)
	if !ok {
		return // on a Unix socket the end is never lost
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silent/time.Millisecond)) // else the system's own patience does
	})
}
