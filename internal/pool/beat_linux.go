package pool

import (
	"errors"
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

// cutOff reports whether a connection ended as nothing got through over it.
func cutOff(err error) bool {
	for _, e := range []error{unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN} { // the kernel says the last reason that it heard
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
