//go:build linux

package worker

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
)

// verbs is librdmacm, whose rsockets are sockets over RDMA: InfiniBand, RoCE, iWARP.
// Its numbers of sockets are no descriptors, and cannot be given to another process.
type verbs map[string]uintptr

var openVerbs = sync.OnceValues(func() (verbs, error) {
	const name = "librdmacm.so.1"
	h, err := purego.Dlopen(name, purego.RTLD_NOW)
	if err != nil {
		return nil, fmt.Errorf("there is no %s: %w", name, err)
	}
	v := verbs{}
	for _, f := range strings.Fields("rsocket rbind rlisten raccept rsend rrecv rpoll rfcntl rgetsockname rshutdown rclose __errno_location") {
		if v[f], err = purego.Dlsym(h, f); err != nil {
			return nil, fmt.Errorf("%s has no %s", name, f)
		}
	}
	return v, nil
})

// call calls a function that returns a number, -1 for an error.
func (v verbs) call(name string, args ...uintptr) (int, error) {
	runtime.LockOSThread() // whose error it is
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(v[name], args...)
	if n := int(int32(r)); n >= 0 {
		return n, nil
	}
	at, _, _ := purego.SyscallN(v["__errno_location"])
	return -1, syscall.Errno(**(**int32)(unsafe.Pointer(&at)))
}

// poll waits for one of some descriptors and sockets, -1: for ever.
func (v verbs) poll(fds []unix.PollFd, most time.Duration) (int, error) {
	ms := -1
	if most >= 0 {
		ms = int((most + time.Millisecond - 1) / time.Millisecond)
	}
	return v.call("rpoll", pin(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(ms))
}

// listen makes a socket that listens at an address, on a port that is chosen.
func (v verbs) listen(at netip.Addr) (fd int, port uint16, err error) {
	family, address := uintptr(unix.AF_INET), make([]byte, 28) // struct sockaddr_in6, the longer one
	size := 16
	if at.Is4() {
		copy(address[4:], at.AsSlice())
	} else {
		family, size = unix.AF_INET6, len(address)
		copy(address[8:], at.AsSlice())
	}
	binary.NativeEndian.PutUint16(address, uint16(family))
	if fd, err = v.call("rsocket", family, unix.SOCK_STREAM, 0); err != nil {
		return -1, 0, err
	}
	length := []uint32{uint32(size)}
	if _, err = v.call("rbind", uintptr(fd), atBytes(address), uintptr(size)); err == nil {
		if _, err = v.call("rlisten", uintptr(fd), 8); err == nil {
			if _, err = v.call("rgetsockname", uintptr(fd), atBytes(address), pin(unsafe.Pointer(unsafe.SliceData(length)))); err == nil {
				return fd, binary.BigEndian.Uint16(address[2:]), nil
			}
		}
	}
	_, _ = v.call("rclose", uintptr(fd))
	return -1, 0, err
}

// CheckRDMA says why programs cannot come over RDMA at an address of this machine.
func CheckRDMA(at string) error {
	a, err := netip.ParseAddr(at)
	if err != nil {
		return err
	}
	v, err := openVerbs()
	if err != nil {
		return err
	}
	fd, _, err := v.listen(a.Unmap())
	if err == nil {
		_, err = v.call("rclose", uintptr(fd))
	}
	if err != nil {
		return fmt.Errorf("there is no RDMA at %s: %w", at, err)
	}
	return nil
}

// hasRDMA reports whether programs may go on over RDMA that have connected to an address.
func hasRDMA(local netip.Addr) bool {
	return slices.ContainsFunc(strings.Fields(os.Getenv(between.RDMAEnv)), func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && local.IsValid() && (a.IsUnspecified() || a.Unmap() == local)
	})
}

// localAddress is this side's of a TCP connection.
func localAddress(conn net.Conn) netip.Addr {
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

const (
	tokenSize = 32
	rdmaTime  = 2 * time.Second // in which a program must have come
)

// rdma is a path over RDMA. The program connects to a socket that the worker
// made for it, and proves that it is the one that asked by a token that is good once.
type rdma struct {
	*Line // TCP

	verbs verbs
	fd    int
	token [tokenSize]byte
	ready chan struct{} // closed when fd is the program's, or -1: it has not come
	over  chan struct{} // closed when it is not waited for any more
	end   sync.Once
}

// newRDMA listens for the program of a connection.
func newRDMA(l *Line) (r *rdma, port uint16, err error) {
	v, err := openVerbs()
	if err != nil {
		return nil, 0, err
	}
	r = &rdma{Line: l, verbs: v, fd: -1, ready: make(chan struct{}), over: make(chan struct{})}
	_, _ = rand.Read(r.token[:]) // it does not fail
	door, port, err := v.listen(l.at)
	if err != nil {
		return nil, 0, err
	}
	go func() {
		defer close(r.ready)
		r.fd = r.accept(door)
		_, _ = v.call("rclose", uintptr(door))
	}()
	return r, port, nil
}

// accept takes the program's connection, and no other's.
func (r *rdma) accept(door int) int {
	end := time.Now().Add(rdmaTime)
	for {
		if !r.await(door, unix.POLLIN, end) {
			return -1
		}
		fd, err := r.verbs.call("raccept", uintptr(door), 0, 0)
		if err != nil {
			return -1
		}
		if _, err = r.verbs.call("rfcntl", uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err == nil && r.proves(fd, end) {
			return fd
		}
		_, _ = r.verbs.call("rclose", uintptr(fd))
	}
}

// await waits for an end of waiting, too.
func (r *rdma) await(fd int, events int16, end time.Time) bool {
	for {
		select {
		case <-r.over:
			return false
		default:
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if n, err := r.verbs.poll(fds, min(left, 50*time.Millisecond)); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func (r *rdma) proves(fd int, end time.Time) bool {
	got := make([]byte, tokenSize)
	for at := 0; at < len(got); {
		if !r.await(fd, unix.POLLIN, end) {
			return false
		}
		n, err := r.verbs.call("rrecv", uintptr(fd), atBytes(got[at:]), uintptr(len(got)-at), unix.MSG_DONTWAIT)
		if n == 0 || err != nil && !errors.Is(err, unix.EAGAIN) {
			return false
		}
		at += max(n, 0)
	}
	if subtle.ConstantTimeCompare(got, r.token[:]) != 1 {
		return false
	}
	n, err := r.verbs.call("rsend", uintptr(fd), atBytes([]byte{1}), 1, 0)
	return n == 1 && err == nil
}

// usable waits until the program has come.
func (r *rdma) usable() bool {
	<-r.ready
	return r.fd >= 0
}

// Read reads, and ends as line's does.
func (r *rdma) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}, {Fd: int32(r.Line.fd), Events: unix.POLLRDHUP}, {Fd: int32(r.alarm), Events: unix.POLLIN}}
	for gone := false; ; {
		if r.rung.Load() {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := r.verbs.call("rrecv", uintptr(r.fd), atBytes(b), uintptr(min(len(b), 1<<30)), unix.MSG_DONTWAIT)
		switch {
		case n > 0:
			return n, nil
		case n == 0 || gone:
			return 0, io.EOF
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return 0, err
		}
		if _, err := r.verbs.poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		gone = fds[1].Revents != 0
	}
}

// Write writes all of b.
func (r *rdma) Write(b []byte) (int, error) {
	if err := r.write(b, nil, -1); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (r *rdma) write(head, data []byte, _ int) error {
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLOUT}, {Fd: int32(r.Line.fd), Events: unix.POLLRDHUP}}
	for _, p := range [...][]byte{head, data} {
		for len(p) > 0 {
			n, err := r.verbs.call("rsend", uintptr(r.fd), atBytes(p), uintptr(min(len(p), 1<<30)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			switch {
			case n > 0:
				p = p[n:]
			case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
				return err
			default:
				if _, err := r.verbs.poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
					return err
				}
				if fds[1].Revents != 0 {
					return unix.EPIPE
				}
			}
		}
	}
	return nil
}

// Close ends both connections.
func (r *rdma) Close() error {
	r.end.Do(func() {
		close(r.over)
		if r.usable() {
			_, _ = r.verbs.call("rshutdown", uintptr(r.fd), unix.SHUT_RDWR)
		}
	})
	return r.Line.Close()
}

// stay ends the waiting for a program that does not use it.
func (r *rdma) stay() {
	r.end.Do(func() { close(r.over) })
	if r.usable() {
		_, _ = r.verbs.call("rclose", uintptr(r.fd))
	}
}

// handOver cannot be: what the other has to do with is this process.
func (r *rdma) handOver() ([]string, error) { return nil, errors.ErrUnsupported }
