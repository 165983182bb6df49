package adapters

import (
	"context"
	"sync"
	"time"
)

// recent is something that was read a moment ago, kept for those who need it
// again at once: a thousand centers ask for the same.
type recent[T any] struct {
	read func(ctx context.Context) (T, error)
	turn chan struct{} // taken by the one who reads

	mu     sync.Mutex // guards the fields below
	value  T
	at     time.Time // when it was read; zero: it is not known
	forgot uint64    // how often it was forgotten
}

func newRecent[T any](read func(ctx context.Context) (T, error)) *recent[T] {
	return &recent[T]{read: read, turn: make(chan struct{}, 1)}
}

// known returns what was read at most so long before now.
func (r *recent[T]) known(now time.Time, age time.Duration) (v T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Sub(r.at)
	return r.value, !r.at.IsZero() && since >= 0 && since < age
}

// get returns what was read at most age ago, and reads it if that was earlier.
// Those who come while it is read wait for it.
func (r *recent[T]) get(ctx context.Context, now func() time.Time, age time.Duration) (T, error) {
	if v, ok := r.known(now(), age); ok {
		return v, nil
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	at := now()
	if v, ok := r.known(at, age); ok {
		return v, nil
	}
	r.mu.Lock()
	forgot := r.forgot
	r.mu.Unlock()
	v, err := r.read(ctx)
	if err != nil {
		return v, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forgot == forgot { // otherwise it may be out of date already
		r.value, r.at = v, at
	}
	return v, nil
}

// forget has it read anew.
func (r *recent[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
	r.forgot++
}
