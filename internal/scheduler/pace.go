package scheduler

import (
	"context"
	"time"
)

const (
	// restShare is how many times as long as a cycle that placed something took
	// the next one waits, at most restMost: while jobs arrive it then has more of
	// them to share what a cycle costs whatever it places.
	restShare = 2
	restMost  = 10 * time.Millisecond
)

// breathe waits after a cycle that took so long, 0 if it placed nothing; it
// reports whether ctx goes on.
func breathe(ctx context.Context, took time.Duration) bool {
	if took == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(min(restShare*took, max(restMost, took/2))):
		return true
	}
}
