package db

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUpUnsent ends a connection whose data is not acknowledged for deadAfter.
func giveUpUnsent(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// What is not TCP, a socket on this machine, has no such option and needs none.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
}
