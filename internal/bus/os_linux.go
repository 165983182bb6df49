package bus

import (
	"net"

	"golang.org/x/sys/unix"
)

// segments asks the system what it counted of a TCP connection.
func segments(c net.Conn) (sent, again int64, ok bool) {
	t, isTCP := c.(*net.TCPConn)
	if !isTCP {
		return 0, 0, false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); cerr != nil || err != nil {
		return 0, 0, false
	}
	return int64(info.Data_segs_out), int64(info.Total_retrans), true
}
