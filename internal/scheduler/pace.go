package scheduler

import (
	"context"
	"time"
)

const (
	// After a cycle that placed something the next one waits restShare times as
	// long as it took, but at most a quarter of what is missing to restUntil: while
	// jobs arrive it then has more of them to share what a cycle costs whatever it
	// places. One that took so long has enough of them, and more come than a
	// scheduler that rests could place.
	restShare = 2
	restUntil = 100 * time.Millisecond
)

// pauseAfter is how long the next cycle waits after one that took so long.
func pauseAfter(took time.Duration) time.Duration {
	return max(0, min(restShare*took, (restUntil-took)/4))
}

// breathe waits after a cycle that took so long, 0 if it placed nothing; it
// reports whether ctx goes on.
func breathe(ctx context.Context, took time.Duration) bool {
	if took == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pauseAfter(took)):
		return true
	}
}
