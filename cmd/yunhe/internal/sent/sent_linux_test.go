package sent_test

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"yunhe.dev/yunhe/cmd/yunhe/internal/sent"
)

// TestByProcess has a process, a timer of the kernel and both send a signal.
func TestByProcess(t *testing.T) {
	const by = syscall.SIGALRM
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, by)
	t.Cleanup(func() { signal.Stop(caught) })
	sent.Watch(by, by) // twice is once
	await := func() {
		t.Helper()
		select {
		case <-caught:
		case <-time.After(10 * time.Second):
			t.Fatal("no signal came")
		}
	}
	process := func() {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), by); err != nil {
			t.Fatal(err)
		}
		await()
	}
	kernel := func() {
		t.Helper()
		soon := [4]int64{3: 1000} // struct itimerval: after 1 ms, once
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&soon)), 0); e != 0 {
			t.Fatal(e)
		}
		await()
	}
	kernel()
	if sent.ByProcess(by) {
		t.Error("the kernel's signal is taken for a process's")
	}
	process()
	kernel()
	if !sent.ByProcess(by) {
		t.Error("a process's signal is taken for the kernel's")
	}
	if sent.ByProcess(by) {
		t.Error("one signal is told of twice")
	}
}
