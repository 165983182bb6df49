// Package runtest starts and stops loops until what is wrong with their ends
// shows. Use it under the race detector.
package runtest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/run"
)

// patience bounds every wait for a loop that was told to stop.
const patience = 30 * time.Second

// Stress runs the loop many times and stops it after a little longer each
// time, the first time before it begins. Each run must end by itself, with
// nil, and no goroutine with owner in its stack ("internal/jobs.") may be
// left when all have ended.
func Stress(tb testing.TB, rounds int, owner string, loop run.Loop) {
	tb.Helper()
	for i := range rounds {
		ctx, cancel := context.WithCancel(tb.Context())
		done := make(chan error, 1)
		if i == 0 {
			cancel()
		}
		go func() { done <- loop(ctx) }()
		for range i * 50 {
			runtime.Gosched()
		}
		cancel()
		select {
		case err := <-done:
			if err != nil {
				tb.Fatalf("round %d: the loop was stopped and returned %v, want nil", i, err)
			}
		case <-time.After(patience):
			tb.Fatalf("round %d: the loop does not stop\n%s", i, stacks())
		}
	}
	deadline := time.Now().Add(patience)
	for {
		left := 0
		for _, s := range strings.Split(stacks(), "\n\n") {
			if strings.Contains(s, owner) && !strings.Contains(s, "runtest.Stress") {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the loop left %d goroutines of %s behind\n%s", left, owner, stacks())
		}
		runtime.Gosched()
	}
}

func stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}
