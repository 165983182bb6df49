package slurm

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
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
	wayLost    = time.Duration(-1)
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
	all := slices.Clone(w.took)
	w.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	n := int64(len(all))
	good := slices.DeleteFunc(all, func(t time.Duration) bool { return t == wayLost })
	p := &adapterv1.Path{Peer: w.peer, LossPpm: (n - int64(len(good))) * 1_000_000 / n}
	var jitter time.Duration
	for i := 1; i < len(good); i++ {
		jitter += (good[i] - good[i-1]).Abs()
	}
	if len(good) > 1 {
		p.JitterMicroseconds = (jitter / time.Duration(len(good)-1)).Microseconds()
	}
	if len(good) > 0 {
		slices.Sort(good)
		p.LatencyMicroseconds = good[len(good)/2].Microseconds()
	}
	return []*adapterv1.Path{p}
}
