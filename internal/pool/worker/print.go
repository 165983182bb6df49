//go:build linux

package worker

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// capture has what kernels print go to the program: drivers write it to this
// process's standard output, which is a pipe from then on.
func (s *Session) capture() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("a pipe for what kernels print: %w", err)
	}
	defer unix.Close(p[1])
	if err := unix.Dup3(p[1], unix.Stdout, 0); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return fmt.Errorf("a pipe for what kernels print: %w", err)
	}
	unbuffered()
	s.printed = p[0]
	go func() { // a kernel waits when the pipe is full
		for {
			fds := []unix.PollFd{{Fd: int32(s.printed), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, -1); err == nil {
				s.show()
			}
		}
	}()
	return nil
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

// show sends what was printed, before an answer says that the kernel has ended.
// If the program is gone, so is this process in a moment.
func (s *Session) show() {
	if s.printed == 0 {
		return
	}
	s.showing.Lock()
	defer s.showing.Unlock()
	for {
		n, err := unix.Read(s.printed, s.text[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		_ = s.send(wire.OpPrinted, 0, 0, clSuccess, 0, 0, s.text[:n])
	}
}
