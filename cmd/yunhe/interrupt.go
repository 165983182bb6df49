package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// interrupted is the signal that this program was asked to end by: the cause of its
// context's end.
type interrupted syscall.Signal

func (s interrupted) Error() string { return syscall.Signal(s).String() }

// untilSignal is a context that ends when this program is asked to end. To be asked
// again ends it at once.
func untilSignal() context.Context {
	ctx, interrupt := context.WithCancelCause(context.Background())
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) { // as of what a script has in the background
		ends = append(ends, os.Interrupt)
	}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, ends...)
	go func() {
		interrupt(interrupted((<-caught).(syscall.Signal)))
		signal.Stop(caught)
	}()
	return ctx
}

// exit ends this program. A shell goes on with its script after a program that exits,
// whatever its status, but not after one that Ctrl-C ends.
func exit(ctx context.Context, status int) {
	if status == exitInterrupted && context.Cause(ctx) == interrupted(syscall.SIGINT) && os.Getpid() > 1 {
		signal.Reset(os.Interrupt)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		time.Sleep(time.Second) // it ends here
	}
	os.Exit(status)
}
