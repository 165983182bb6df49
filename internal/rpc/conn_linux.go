package rpc

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func unheard(conn net.Conn) (d time.Duration) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0 // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && i.Unacked > 0 {
			d = time.Duration(i.Last_ack_recv) * time.Millisecond
		}
	})
	return d
}
