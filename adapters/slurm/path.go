package slurm

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// way is the network path to slurmrestd, measured by opening a connection now
// and then: that takes one round trip and asks nobody for anything.
type way struct {
	peer string // host and port

	mu   sync.Mutex // guards what follows
	took []time.Duration
}

const (
	wayEvery   = 2 * time.Second
	wayTimeout = time.Second // after which a probe counts as lost
	wayKept    = 30          // probes: a minute's
	wayLost    = adapter.Lost
)

// newWay returns nil for a socket: that is no network.
func newWay(rawURL string) *way {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return nil
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return &way{peer: net.JoinHostPort(u.Hostname(), port)}
}

// run probes until ctx ends.
func (w *way) run(ctx context.Context) {
	tick := time.NewTicker(wayEvery)
	defer tick.Stop()
	for {
		w.probe(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *way) probe(ctx context.Context) {
	dialing, cancel := context.WithTimeout(ctx, wayTimeout)
	defer cancel()
	begun := time.Now()
	conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", w.peer)
	took := time.Since(begun)
	if err != nil {
		took = wayLost
	} else {
		_ = conn.Close() // nothing was sent on it
	}
	if ctx.Err() == nil {
		w.add(took)
	}
}

func (w *way) add(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.took = append(w.took, took); len(w.took) > wayKept {
		w.took = slices.Delete(w.took, 0, len(w.took)-wayKept)
	}
}

// quality is what the last probes say; nothing if there were none.
func (w *way) quality() []*adapterv1.Path {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := adapter.PathOf(w.peer, w.took); p != nil {
		return []*adapterv1.Path{p}
	}
	return nil
}
