package adapter

import (
	"context"
	"maps"
	"sync"
)

// Board keeps the newest value of every key and tells readers what changed: a
// slow reader misses intermediate values and never the last. It is what a
// driver needs to answer Observe and Watch. It is safe for concurrent use; the
// zero value is empty and ready.
type Board[V any] struct {
	mu      sync.Mutex // guards the fields below
	values  map[string]V
	readers map[*reader]bool
}

// reader is a Watch under way: the keys it has to look at, and a signal.
type reader struct {
	dirty map[string]bool // guarded by the board's mu
	wake  chan struct{}
}

// Set puts a value on the board.
func (b *Board[V]) Set(key string, v V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.values == nil {
		b.values = map[string]V{}
	}
	b.values[key] = v
	b.touch(key)
}

// Delete takes a key off the board.
func (b *Board[V]) Delete(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.values[key]; ok {
		delete(b.values, key)
		b.touch(key)
	}
}

// touch tells the readers of a change; b.mu is held.
func (b *Board[V]) touch(key string) {
	for r := range b.readers {
		r.dirty[key] = true
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Get returns the value of a key.
func (b *Board[V]) Get(key string) (v V, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok = b.values[key]
	return v, ok
}

// All returns all values by key.
func (b *Board[V]) All() map[string]V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.values)
}

// Watch calls f with all there is, be it nothing, and then with what changed
// since its last call, until ctx ends or f fails. It returns f's error, or nil.
func (b *Board[V]) Watch(ctx context.Context, f func(set map[string]V, gone []string) error) error {
	r := &reader{dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	b.mu.Lock()
	if b.readers == nil {
		b.readers = map[*reader]bool{}
	}
	b.readers[r] = true
	set := maps.Clone(b.values)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.readers, r)
	}()
	var gone []string
	for {
		if err := f(set, gone); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		set, gone = b.take(r)
	}
}

func (b *Board[V]) take(r *reader) (set map[string]V, gone []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	set = map[string]V{}
	for key := range r.dirty {
		if v, ok := b.values[key]; ok {
			set[key] = v
		} else {
			gone = append(gone, key)
		}
	}
	clear(r.dirty)
	return set, gone
}
