//go:build !linux || (!amd64 && !arm64)

package sent

import "syscall"

// Watch begins with signals that are caught by now (signal.Notify).
func Watch(...syscall.Signal) {}

// ByProcess reports whether a process sent the signal since the last call; here,
// whether terminals do not send it.
func ByProcess(s syscall.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGQUIT && s != syscall.SIGTSTP && s != syscall.SIGWINCH
}

// Default does to this process what a signal does that is not caught; here, nothing.
func Default(syscall.Signal) {}
