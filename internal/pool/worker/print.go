//go:build linux

package worker

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Prints is what kernels print, until it is shown.
type Prints struct {
	fd   int
	send func(text []byte)

	mu   sync.Mutex // guards what follows
	text [4 << 10]byte
}

// Capture has what kernels print go to send: drivers write it to this process's
// standard output, which is a pipe from then on.
func Capture(send func(text []byte)) (*Prints, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("a pipe for what kernels print: %w", err)
	}
	defer unix.Close(p[1])
	if err := unix.Dup3(p[1], unix.Stdout, 0); err != nil {
		return nil, fmt.Errorf("standard output: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, fmt.Errorf("a pipe for what kernels print: %w", err)
	}
	unbuffered()
	k := &Prints{fd: p[0], send: send}
	go func() { // a kernel waits when the pipe is full
		for {
			fds := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, -1); err == nil {
				k.Show()
			}
		}
	}()
	return k, nil
}

func (s *Session) capture() (err error) {
	s.printed, err = Capture(func(text []byte) { _ = s.send(wire.OpPrinted, 0, 0, clSuccess, 0, 0, text) }) // if the program is gone, so is this process in a moment
	return err
}

// unbuffered has the C library write at once what drivers print through it: into
// a pipe it would do so when there is much of it.
func unbuffered() {
	const no = 2 // _IONBF
	out, err := purego.Dlsym(purego.RTLD_DEFAULT, "stdout")
	set, err2 := purego.Dlsym(purego.RTLD_DEFAULT, "setvbuf")
	if err == nil && err2 == nil { // else drivers have their own ways
		purego.SyscallN(set, **(**uintptr)(unsafe.Pointer(&out)), 0, no, 0)
	}
}

const pipeSize = 64 << 10

// Show sends what was printed, before an answer says that the kernel has ended.
func (k *Prints) Show() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for left := pipeSize; left > 0; { // what was printed since is not waited for
		n, err := unix.Read(k.fd, k.text[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		left -= n
		k.send(k.text[:n])
	}
}
