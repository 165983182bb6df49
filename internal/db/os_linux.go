package db

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpUnsent ends a connection whose data is not acknowledged for deadAfter.
func giveUpUnsent(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// What is not TCP, a socket on this machine, has no such option and needs none.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
}

// slept is how long the machine has slept since it was started, which the clock
// by which time passes leaves out.
func slept() time.Duration {
	var with, without unix.Timespec
	// Neither fails for these clocks; if they did nothing would have been slept.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &without)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &with)
	return max(0, time.Duration(with.Nano()-without.Nano()))
}
