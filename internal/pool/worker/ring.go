//go:build linux

package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a path through memory that program and worker both map: two rings of
// bytes, one each way. Who writes counts what it has written, who reads what it
// has read, both modulo 2^32, in words that the other looks at.
//
//	0     to the worker, of who writes: how much it has written, whether it waits for
//	      room, where the few bytes end, how much it has seen of the other way; and
//	16    these few bytes: the last that were written, ending at 64
//	128   of who reads: how much it has read; and 192, whether it waits, its processor:
//	      another processor has such a line again only where it has changed
//	256   to the program: the same
//	4096  bytes to the worker, then bytes to the program, ringSize each
//
// A message of few bytes is in the line that says that it was written, too, where
// that cannot be overwritten while it is read: if the other has seen all before it. Who
// asks and is answered then exchanges one line each way.
//
// Who finds nothing to read (or no room) looks again and again for spinFor, unless the
// other is on the same processor, or that was in vain lately; then it says that it
// waits for the word to change and does so (futex), at most for keep; who waits to read
// says then that it waits for a byte on the socket, and waits for that, because that
// ends with the other, and for the alarm. Who has written wakes who waits.
//
// What the page says is the other's, who may write anything there at any time:
// counts of this side's own are kept elsewhere, the other's are read once and compared
// with the size, and bytes are copied out before they are looked at.
type ring struct {
	*Line // the socket

	file          int
	page          []byte
	in, out       way
	read, written uint32 // of in, and of out
	taken         uint32 // of out: as far as the program is known to have read
	processors    [2]*atomic.Uint32
	met           atomic.Bool // the program did not wait when it was written to
	back, skip    int         // of spinning: after how many waits it is tried again, and how many of those are left
	waits         int         // that were not skipped
}

type way struct {
	written, room *atomic.Uint32 // room: whether who writes waits for some
	ends, seen    *uint32        // written before written is, read after it
	few           []byte
	read, waits   *atomic.Uint32
	data          []byte
}

const (
	ringSize = 256 << 10 // a power of two
	ringPage = 4096
	ringAll  = ringPage + 2*ringSize

	awake    = 0
	asleep   = 1 // waits for the word to change
	listens  = 2 // waits for a byte on the socket
	spinFor  = 20 * time.Microsecond
	mostSkip = 1024
	try      = 64
	seldom   = 64
	looks    = 1000 // between two of the clock
)

// Operations of the kernel's futex, between processes.
const (
	futexWaitOp = 0
	futexWakeOp = 1
)

var errRing = errors.New("what is said of the ring cannot be")

// newRing makes a ring for a program that came by a socket.
func newRing(l *Line) (*ring, error) {
	fd, err := unix.MemfdCreate("yunhe-pool-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	if err = unix.Ftruncate(fd, ringAll); err == nil { // the program may not change that: who reads what is cut off dies
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return openRing(l, fd, 0, 0)
}

// openRing maps a ring of which so much was read and written.
func openRing(l *Line, fd int, read, written uint32) (*ring, error) {
	page, err := unix.Mmap(fd, 0, ringAll, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("memory of a ring: %w", err)
	}
	word := func(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&page[at])) }
	plain := func(at int) *uint32 { return (*uint32)(unsafe.Pointer(&page[at])) }
	one := func(at int, data []byte) way {
		return way{word(at), word(at + 4), plain(at + 8), plain(at + 12), page[at+16 : at+64], word(at + 128), word(at + 192), data}
	}
	return &ring{
		Line: l, file: fd, page: page, read: read, written: written, taken: written - ringSize, back: 1, processors: [2]*atomic.Uint32{word(256 + 196), word(196)},
		in: one(0, page[ringPage:ringPage+ringSize:ringPage+ringSize]), out: one(256, page[ringPage+ringSize:]),
	}, nil
}

// Read reads what there is.
func (r *ring) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if r.rung.Load() {
			return 0, os.ErrDeadlineExceeded
		}
		written := r.in.written.Load()
		there := written - r.read
		if there > ringSize {
			return 0, errRing
		}
		if there == 0 {
			if err := r.await(); err != nil {
				return 0, err
			}
			continue
		}
		n := 0
		if few := r.in.few; there <= uint32(len(few)) && *r.in.ends == written {
			n = copy(b, few[uint32(len(few))-there:])
			r.read, there = r.read+uint32(n), 0
		}
		for n < len(b) && there > 0 { // once more where it begins anew
			at := r.read % ringSize
			k := copy(b[n:], r.in.data[at:min(at+there, ringSize)])
			n, r.read, there = n+k, r.read+uint32(k), there-uint32(k)
		}
		r.in.read.Store(r.read)
		if r.in.room.Load() == asleep && r.in.room.CompareAndSwap(asleep, awake) {
			futexWake(r.in.read)
		}
		return n, nil
	}
}

// await returns when there may be something to read, or the alarm rings.
func (r *ring) await() error {
	word, seen := r.in.written, r.read
	if r.keeps && r.spin(word, seen) {
		return nil
	}
	defer r.in.waits.Store(awake)
	for end := time.Now().Add(keep); ; {
		r.in.waits.Store(asleep)
		left := time.Until(end)
		if word.Load() != seen || r.rung.Load() {
			return nil
		}
		if left <= 0 {
			break
		}
		futexWait(word, seen, left, r.keeps)
	}
	for {
		r.in.waits.Store(listens)
		if word.Load() != seen || r.rung.Load() {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}, {Fd: int32(r.alarm), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return err
		}
		if fds[0].Revents == 0 {
			continue
		}
		var bells [64]byte
		n, _, err := unix.Recvfrom(r.fd, bells[:], unix.MSG_DONTWAIT)
		switch {
		case word.Load() != seen:
			return nil
		case n == 0 && err == nil:
			return io.EOF
		case err != nil && err != unix.EAGAIN && err != unix.EINTR:
			return err
		}
	}
}

// spin looks whether a word changes soon, where there is a chance of that.
func (r *ring) spin(word *atomic.Uint32, seen uint32) bool {
	may := r.skip == 0
	if may {
		r.waits++
		may = r.met.Load() || r.waits%try == 0
	} else {
		r.skip--
	}
	if !may || r.waits%seldom == 0 { // the kernel is asked, which takes as long as a message
		var here uint32
		_, _, _ = unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&here)), 0, 0)
		r.processors[1].Store(here + 1)
	}
	if !may || r.processors[0].Load() == r.processors[1].Load() {
		return false
	}
	var end time.Time
	for {
		for range looks {
			if word.Load() != seen {
				r.back = 1
				return true
			}
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(spinFor)
		} else if now.After(end) {
			r.skip, r.back = r.back, min(2*r.back, mostSkip)
			return false
		}
	}
}

// Write writes all of b.
func (r *ring) Write(b []byte) (int, error) {
	if err := r.write(b, nil, -1); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (r *ring) write(head, data []byte, fd int) error {
	if fd >= 0 {
		if err := r.Line.write([]byte{0}, nil, fd); err != nil {
			return err
		}
	}
	const part = ringSize / 4 // of what is much, which the other reads meanwhile
	if few, n := r.out.few, len(head)+len(data); n <= len(few) && *r.in.seen == r.written {
		copy(few[len(few)-n:], head)
		copy(few[len(few)-len(data):], data)
		*r.out.ends = r.written + uint32(n)
	}
	for _, p := range [...][]byte{head, data} {
		for len(p) > 0 {
			there := r.written - r.taken
			if len(p) > int(ringSize-there) { // the program's word is not looked at while there is room in any case
				r.taken = r.out.read.Load()
				if there = r.written - r.taken; there > ringSize {
					return errRing
				}
				if there == ringSize {
					if err := r.awaitRoom(); err != nil {
						return err
					}
					continue
				}
			}
			at := r.written % ringSize
			k := copy(r.out.data[at:], p[:min(len(p), int(ringSize-there), part)])
			p, r.written = p[k:], r.written+uint32(k)
			if len(p) > 0 {
				r.publish()
			}
		}
	}
	r.publish()
	return nil
}

// publish has the program see what was written, and wakes it.
func (r *ring) publish() {
	*r.out.seen = r.in.read.Load()
	r.out.written.Store(r.written)
	waits := r.out.waits.Load()
	if met := waits == awake; met != r.met.Load() {
		r.met.Store(met)
	}
	switch {
	case waits == awake || !r.out.waits.CompareAndSwap(waits, awake):
	case waits == asleep:
		futexWake(r.out.written)
	case waits == listens:
		_ = unix.Sendto(r.fd, []byte{0}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) // one that is full, or has ended, wakes, too
	}
}

// awaitRoom returns when the program may have read something. Who waits for
// long looks now and then whether there is a program.
func (r *ring) awaitRoom() error {
	r.publish()
	seen := r.written - ringSize
	defer r.out.room.Store(awake)
	for wait := keep; ; wait = min(2*wait, 16*keep) {
		r.out.room.Store(asleep)
		if r.out.read.Load() != seen {
			return nil
		}
		futexWait(r.out.read, seen, wait, false)
		if r.out.read.Load() != seen {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(fds, 0); n > 0 || err != nil && err != unix.EINTR {
			return unix.EPIPE
		}
	}
}

// stay gives back a ring that the program does not use.
func (r *ring) stay() {
	_ = unix.Munmap(r.page) // it was mapped so
	_ = unix.Close(r.file)
}

// handOver is line's, and the ring.
func (r *ring) handOver() ([]string, error) {
	args, err := r.Line.handOver()
	if err != nil {
		return nil, err
	}
	file, err := keepOpen(r.file)
	return append(args, file, strconv.FormatUint(uint64(r.read), 10), strconv.FormatUint(uint64(r.written), 10)), err
}

// futexWait waits until a word is not as it was seen, or a time is over; in vain now
// and then. Its processor is kept for it where it is told so.
func futexWait(word *atomic.Uint32, seen uint32, most time.Duration, keeps bool) {
	call, t := syscall.Syscall6, unix.NsecToTimespec(int64(most))
	if keeps {
		call = syscall.RawSyscall6
	}
	_, _, _ = call(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitOp, uintptr(seen), uintptr(unsafe.Pointer(&t)), 0, 0)
}

func futexWake(word *atomic.Uint32) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOp, 1, 0, 0, 0)
}
