package adapters

import (
	"context"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
)

// beatDelay is how long heartbeats are gathered before they are stored in one
// transaction: with a thousand centers there are hundreds each second. One that
// is answered and then lost with this process is made good by the next.
const beatDelay = 200 * time.Millisecond

// beats are heartbeats that wait to be stored, the last of each center.
type beats struct {
	mu    sync.Mutex // guards waits
	waits map[string]registry.Measured
}

func (b *beats) put(center string, m registry.Measured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits == nil {
		b.waits = map[string]registry.Measured{}
	}
	b.waits[center] = m
}

func (b *beats) take() map[string]registry.Measured {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.waits
	b.waits = nil
	return out
}

// storeBeats stores heartbeats until ctx ends, and then those that wait.
func (s *Service) storeBeats(ctx context.Context) {
	tick := time.NewTicker(beatDelay)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		if ms := s.beats.take(); len(ms) > 0 {
			s.storeSome(ctx, ms)
		}
	}
}

func (s *Service) storeSome(ctx context.Context, ms map[string]registry.Measured) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if err := s.db.Tx(ctx, func(tx *db.Tx) error { return s.reg.MeasureAllTx(ctx, tx, ms) }); err != nil {
		s.log.Warn("heartbeats not stored, the next ones will be", "centers", len(ms), "error", err)
	}
}
