package bus

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
)

// Feed tells the watchers in this process which records changed: an event
// whose payload is a list of IDs, from whatever process it comes.
type Feed struct {
	bus     *Bus
	subject string
	log     *slog.Logger

	mu   sync.Mutex // guards subs
	subs map[*Watcher]bool
}

// NewFeed returns a feed of the events of a subject; its loop is Run.
func NewFeed(b *Bus, subject string, log *slog.Logger) *Feed {
	return &Feed{bus: b, subject: subject, log: log, subs: map[*Watcher]bool{}}
}

// Run feeds the watchers until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	stop, err := f.bus.Listen(f.subject, func(_ string, payload []byte) {
		var ids []string
		if err := json.Unmarshal(payload, &ids); err != nil {
			f.log.Warn("event not read", "subject", f.subject, "error", err)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for w := range f.subs {
			w.offer(ids)
		}
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	return nil
}

// Watcher gathers what changed until its owner takes it: a slow one loses
// intermediate states, never a record. Close it.
type Watcher struct {
	// Changed has a value when there is something to take.
	Changed chan struct{}

	feed *Feed

	mu    sync.Mutex // guards dirty
	dirty map[string]bool
}

// Watch returns a watcher of what changes from now on.
func (f *Feed) Watch() *Watcher {
	w := &Watcher{Changed: make(chan struct{}, 1), feed: f, dirty: map[string]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subs[w] = true
	return w
}

// Close ends the watcher.
func (w *Watcher) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.subs, w)
}

// maxDirty bounds what a watcher may fall behind; what is over is told with
// the record's next change.
const maxDirty = 10000

func (w *Watcher) offer(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if len(w.dirty) < maxDirty {
			w.dirty[id] = true
		}
	}
	select {
	case w.Changed <- struct{}{}:
	default:
	}
}

// Take returns the IDs of what changed since the last time.
func (w *Watcher) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, len(w.dirty))
	for id := range w.dirty {
		out = append(out, id)
	}
	clear(w.dirty)
	return out
}
