//go:build linux

package worker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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

// Line is a path through a socket, read without the runtime's poller. With that a
// message that is waited for costs two more calls of the kernel and wakes two
// more threads: the one that polls, on each answer too, and the one that
// supervises when all others sleep.
type Line struct {
	fd, alarm int // a socket that blocks, and a descriptor that ends waiting
	rung      atomic.Bool
	keeps     bool       // there are other processors for what else there is
	local     bool       // the other is on this machine
	at        netip.Addr // this side's address, of TCP
}

// NewLine takes a connection over, in any case.
func NewLine(conn net.Conn) (*Line, error) {
	defer conn.Close() // the socket stays open, and leaves the poller
	s, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T is no socket", conn)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	_, local := conn.(*net.UnixConn)
	l := &Line{fd: -1, keeps: runtime.GOMAXPROCS(0) > 1, local: local, at: localAddress(conn)}
	bad := raw.Control(func(fd uintptr) { l.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(bad, err); err != nil {
		return nil, err
	}
	if l.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(l.fd)
		return nil, err
	}
	wait := unix.NsecToTimeval(int64(keep))
	if err = errors.Join(unix.SetNonblock(l.fd, false), unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)); err != nil {
		_ = unix.Close(l.fd)
		_ = unix.Close(l.alarm)
		return nil, err
	}
	return l, nil
}

// Read reads, and ends with os.ErrDeadlineExceeded while the alarm rings.
func (l *Line) Read(b []byte) (int, error) {
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

func (l *Line) receive(b []byte) (int, syscall.Errno) {
	call := syscall.Syscall6
	if l.keeps {
		call = syscall.RawSyscall6
	}
	n, _, errno := call(unix.SYS_RECVFROM, uintptr(l.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// Write writes all of b.
func (l *Line) Write(b []byte) (int, error) {
	if err := l.write(b, nil, -1); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteAll writes two pieces, of which the second may be empty, at once where it can.
func WriteAll(w io.Writer, head, data []byte) error {
	if p, ok := w.(path); ok {
		return p.write(head, data, -1)
	}
	_, err := (&net.Buffers{head, data}).WriteTo(w)
	return err
}

func (l *Line) write(head, data []byte, fd int) error {
	var control []byte
	if fd >= 0 {
		control = unix.UnixRights(fd)
	}
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
func (l *Line) SetReadDeadline(t time.Time) error {
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
func (l *Line) Close() error { return unix.Shutdown(l.fd, unix.SHUT_RDWR) }

// free ends a line that nobody uses.
func (l *Line) free() {
	_ = l.Close()
	_ = unix.Close(l.fd)
	_ = unix.Close(l.alarm)
}

// ended returns when the other has.
func (l *Line) ended() {
	for {
		fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(fds, -1); err == nil {
			return
		}
	}
}

func (l *Line) handOver() ([]string, error) {
	fd, err := keepOpen(l.fd)
	return []string{fd}, err
}
