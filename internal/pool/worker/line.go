//go:build linux

package worker

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keep is how long a line waits in the kernel, its processor kept, before it
// lets others have that.
const keep = time.Millisecond

// line is a program's connection, read without the runtime's poller. With that a
// message that is waited for costs two more calls of the kernel and wakes two
// more threads: the one that polls, on each answer too, and the one that
// supervises when all others sleep.
type line struct {
	net.Conn // the addresses only

	fd, alarm int // a socket that blocks, and a descriptor that ends waiting
	rung      atomic.Bool
	keeps     bool // there are other processors for what else there is
}

// NewLine takes a connection over. One that it cannot take stays as it is.
func NewLine(conn net.Conn) net.Conn {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return conn
	}
	l := &line{Conn: conn, fd: -1, keeps: runtime.GOMAXPROCS(0) > 1}
	_ = raw.Control(func(fd uintptr) { l.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil || l.fd < 0 {
		return conn
	}
	if l.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(l.fd)
		return conn
	}
	wait := unix.NsecToTimeval(int64(keep))
	if unix.SetNonblock(l.fd, false) != nil || unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait) != nil {
		_ = unix.SetNonblock(l.fd, true)
		_ = unix.Close(l.fd)
		_ = unix.Close(l.alarm)
		return conn
	}
	_ = conn.Close() // the socket stays open, and leaves the poller
	return l
}

// Read reads, and ends with os.ErrDeadlineExceeded while the alarm rings.
func (l *line) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if l.rung.Load() {
			return 0, os.ErrDeadlineExceeded
		}
		n, errno := l.receive(b)
		switch errno {
		case 0:
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(l.alarm), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
				return 0, err
			}
		case unix.EBADF:
			return 0, net.ErrClosed
		default:
			return 0, errno
		}
	}
}

func (l *line) receive(b []byte) (int, syscall.Errno) {
	call := syscall.Syscall6
	if l.keeps {
		call = syscall.RawSyscall6
	}
	n, _, errno := call(unix.SYS_RECVFROM, uintptr(l.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// Write writes all of b.
func (l *line) Write(b []byte) (int, error) {
	if err := l.write(b, nil, nil); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteAll writes two pieces, of which the second may be empty, at once where it can.
func WriteAll(conn net.Conn, head, data []byte) error {
	if len(data) == 0 {
		_, err := conn.Write(head)
		return err
	}
	if l, ok := conn.(*line); ok {
		return l.write(head, data, nil)
	}
	buffers := net.Buffers{head, data}
	_, err := buffers.WriteTo(conn)
	return err
}

// write writes all of two pieces, with a message of control, as descriptors are.
func (l *line) write(head, data, control []byte) error {
	for len(head) > 0 || len(data) > 0 {
		n, err := unix.SendmsgBuffers(l.fd, [][]byte{head, data}, control, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		k := min(n, len(head))
		head, data, control = head[k:], data[n-k:], nil
	}
	return nil
}

// SetReadDeadline knows two: one that is over, and none.
func (l *line) SetReadDeadline(t time.Time) error {
	var b [8]byte
	if l.rung.Store(!t.IsZero()); t.IsZero() {
		_, _ = unix.Read(l.alarm, b[:])
		return nil
	}
	b[0] = 1
	_, err := unix.Write(l.alarm, b[:])
	return err
}

// Close ends the connection for who reads and writes; the descriptor stays, for
// they may be about to use it, until the process ends.
func (l *line) Close() error { return unix.Shutdown(l.fd, unix.SHUT_RDWR) }

// File is the socket, to be passed on.
func (l *line) File() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "program"), nil
}
