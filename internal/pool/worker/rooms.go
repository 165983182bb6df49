//go:build linux

package worker

import (
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	mostRooms = 1 << 30 // bytes that are kept
	roomsLast = time.Second
)

// rooms is memory of large messages and transfers, which is kept for a while for those that come
// next: pages that are new cost more than what is copied into them.
type rooms struct {
	mu    sync.Mutex
	free  [][]byte // the oldest first
	bytes int      // of these
	given time.Time
	timer *time.Timer // nil: nothing is kept
}

// take returns memory of n bytes, whatever is in it.
func (r *rooms) take(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	best := -1
	for i, b := range r.free {
		if cap(b) >= n && cap(b)/2 <= n && (best < 0 || cap(b) < cap(r.free[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, n, max(n, 4096))
	}
	return r.remove(best)[:n]
}

func (r *rooms) remove(i int) []byte {
	b := r.free[i]
	r.free, r.bytes = slices.Delete(r.free, i, i+1), r.bytes-cap(b)
	return b
}

// give gives memory back that nobody uses any more.
func (r *rooms) give(b []byte) {
	if cap(b) <= keepBody || cap(b) > mostRooms {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.bytes+cap(b) > mostRooms {
		r.remove(0)
	}
	r.free, r.bytes, r.given = append(r.free, b), r.bytes+cap(b), time.Now()
	if r.timer == nil {
		r.timer = time.AfterFunc(roomsLast, r.forget)
	}
}

// forget gives back to the system what was not used for a while.
func (r *rooms) forget() {
	r.mu.Lock()
	left := roomsLast - time.Since(r.given)
	if left > 0 {
		r.timer.Reset(left)
	} else {
		r.free, r.bytes, r.timer = nil, 0, nil
	}
	r.mu.Unlock()
	if left <= 0 {
		debug.FreeOSMemory()
	}
}
