package run

import (
	"sync"
	"time"
)

// patience is how long a round may take beside the rest after it: far longer
// than any that was seen, and than a database that does not answer is waited for.
const patience = 2 * time.Minute

// rounds watches a loop that begins a round again and again, or stands still.
type rounds struct {
	stuck chan struct{}

	mu    sync.Mutex  // guards timer
	timer *time.Timer // nil before the first round and at the end
}

// begun takes in that a round has begun, with a rest after it.
func (r *rounds) begun(rest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(rest+patience, func() {
		select {
		case r.stuck <- struct{}{}:
		default:
		}
	})
}

func (r *rounds) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
}
