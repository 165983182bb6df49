package scheduler

import (
	"testing"
	"time"
)

// TestPause: the next cycle waits the less the longer the last one took, and a
// short one has a short pause too.
func TestPause(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{0: 0, 4 * time.Millisecond: 8 * time.Millisecond, 28 * time.Millisecond: 18 * time.Millisecond,
		60 * time.Millisecond: 10 * time.Millisecond, 100 * time.Millisecond: 0, time.Second: 0} {
		if got := pauseAfter(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
