//go:build linux && (amd64 || arm64)

package sent

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the handler reads and writes, by number of the signal.
var (
	byProcess [65]uint32
	runtimes  [65]uintptr // handlers of Go's runtime
)

var handler uintptr // the address of the instructions; see sent_*.s

// action is the kernel's struct sigaction.
type action struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// Watch begins with signals that are caught by now (signal.Notify).
func Watch(signals ...syscall.Signal) {
	for _, s := range signals {
		var a action
		if !sigaction(s, nil, &a) || a.handler <= 1 || a.handler == handler { // the default, or ignored
			continue
		}
		runtimes[s], a.handler = a.handler, handler
		sigaction(s, &a, nil)
	}
}

// Default does to this process what a signal does that is not caught.
// (signal.Reset leaves the runtime's handler, which ignores those that stop.)
func Default(s syscall.Signal) {
	var was action
	if !sigaction(s, nil, &was) || !sigaction(s, &action{}, nil) {
		return
	}
	runtime.LockOSThread() // the signal is this thread's: it has been done when the call is back
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), s)
	sigaction(s, &was, nil)
}

func sigaction(s syscall.Signal, to, was *action) bool {
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(was)), unsafe.Sizeof(to.mask), 0, 0)
	return e == 0
}

// ByProcess reports whether a process sent the signal since the last call.
func ByProcess(s syscall.Signal) bool { return atomic.SwapUint32(&byProcess[s], 0) != 0 }
