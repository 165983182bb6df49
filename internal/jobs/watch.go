package jobs

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"yunhe.dev/yunhe/internal/db"
)

// hub tells the watchers in this process which jobs changed.
type hub struct {
	mu   sync.Mutex // guards subs
	subs map[*subscription]bool
}

// subscription gathers changes until its owner takes them: a slow watcher
// loses no change, only intermediate states.
type subscription struct {
	job string // "": all
	hub *hub

	mu    sync.Mutex // guards dirty
	dirty map[string]change
	wake  chan struct{}
}

func newHub() *hub { return &hub{subs: map[*subscription]bool{}} }

func (h *hub) subscribe(job string) *subscription {
	s := &subscription{job: job, hub: h, dirty: map[string]change{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[s] = true
	return s
}

func (s *subscription) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
}

func (h *hub) publish(list []change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.offer(list)
	}
}

// maxDirty bounds what a watcher of all jobs may fall behind; what is over is
// told with the job's next change.
const maxDirty = 10000

func (s *subscription) offer(list []change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range list {
		if (s.job == "" || s.job == c.ID) && len(s.dirty) < maxDirty {
			s.dirty[c.ID] = c
		}
	}
	if len(s.dirty) > 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *subscription) take() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]change, 0, len(s.dirty))
	for _, c := range s.dirty {
		out = append(out, c)
	}
	clear(s.dirty)
	return out
}

// Watch feeds the watchers and wakes the scheduler from the events of all
// processes, until ctx ends.
func (s *Service) Watch(ctx context.Context) error {
	stop, err := s.bus.Listen("job.changed", func(_ string, payload []byte) {
		var list []change
		if err := json.Unmarshal(payload, &list); err != nil {
			s.log.Warn("event not read", "error", err)
			return
		}
		s.hub.publish(list)
		if s.db.Engine() == db.Postgres { // another process may have submitted, placed or ended it
			s.sched.Wake()
			if slices.ContainsFunc(list, func(c change) bool { return c.Pool }) {
				s.wakeLend()
			}
		}
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	return nil
}
