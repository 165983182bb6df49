//go:build !linux

package bus

import "net"

// segments is Linux's here.
func segments(net.Conn) (sent, again int64, ok bool) { return 0, 0, false }
