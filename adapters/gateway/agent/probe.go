package agent

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/sdk/adapter"
)

const (
	// probeEvery and probes: the quality of the path is that of the last minute.
	probeEvery = time.Second
	probes     = 60
	// probeTimeout is when a probe counts as lost.
	probeTimeout = 3 * time.Second
	// probeWidth probes are on their way at most; more than their timeout lets be.
	probeWidth = 8
	// fewProbes say nothing yet.
	fewProbes = 5
	// fewSegments sent say nothing about how many get lost.
	fewSegments = 30
	// bandwidthEvery is how often bandwidth is measured, and bandwidthFirst how
	// long after the start.
	bandwidthEvery = 10 * time.Minute
	bandwidthFirst = 10 * time.Second
	// bandwidthTime is how long sending may take, about: reports have to wait.
	bandwidthTime = 300 * time.Millisecond
	// bandwidthPiece is what is sent at first, and in one message; of those at
	// most bandwidthPieces are sent.
	bandwidthPiece  = 128 << 10
	bandwidthPieces = 32
)

// prober measures the way to the platform over the bus: a small request every
// second, which is answered at once and with nothing, and rarely a bounded
// number of large ones.
//
// The bus runs over TCP, which sends again what got lost: a probe is then late,
// not lost. Where the system tells how much was sent again on the connection,
// loss is the larger of that share and the share of probes without an answer.
type prober struct {
	ask      func(ctx context.Context, payload []byte) error
	segments func() (sent, again int64, ok bool)
	every    time.Duration
	timeout  time.Duration
	window   int // probes that count

	mu      sync.Mutex // guards the fields below
	results []*probe   // in the order they were sent, the last probes
	bits    int64      // bandwidth per second, 0: not measured
	counted []count    // one for each probe
}

// probe is one request; took is 0 while it is on its way, and negative if it
// got lost.
type probe struct{ took time.Duration }

// count is what the system had counted of a connection.
type count struct {
	sent, again int64
	ok          bool
}

func newProber(ask func(ctx context.Context, payload []byte) error, segments func() (sent, again int64, ok bool)) *prober {
	return &prober{ask: ask, segments: segments, every: probeEvery, timeout: probeTimeout, window: probes}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	wide := time.NewTimer(bandwidthFirst)
	defer wide.Stop()
	slots := make(chan struct{}, probeWidth)
	for {
		select {
		case <-ctx.Done():
			return
		case <-wide.C:
			wg.Go(func() { p.measureBandwidth(ctx) })
			wide.Reset(bandwidthEvery)
			continue
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		set := p.begin()
		wg.Go(func() {
			defer func() { <-slots }()
			pctx, cancel := context.WithTimeout(ctx, p.timeout)
			defer cancel()
			if took, ok := p.send(pctx, nil); ok {
				set(took)
			} else if ctx.Err() == nil {
				set(-1)
			}
		})
	}
}

// begin notes that a probe is sent; the function it returns says what became
// of it.
func (p *prober) begin() func(took time.Duration) {
	sent, again, ok := p.segments()
	x := &probe{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.results) == p.window {
		p.results, p.counted = p.results[1:], p.counted[1:]
	}
	p.results, p.counted = append(p.results, x), append(p.counted, count{sent, again, ok})
	return func(took time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		x.took = took
	}
}

// send returns how long a request and its answer took.
func (p *prober) send(ctx context.Context, payload []byte) (time.Duration, bool) {
	start := time.Now()
	err := p.ask(ctx, payload)
	took := max(time.Since(start), 1)
	// A platform that knows no probes has answered, too.
	return took, err == nil || fault.KindOf(err) != fault.Unavailable
}

// measureBandwidth sends one large message, and then as many at once as would
// take bandwidthTime at that speed: the time from the first's answer to the
// last's is that of the data, and of one way back.
func (p *prober) measureBandwidth(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 4*p.timeout)
	defer cancel()
	piece := make([]byte, bandwidthPiece)
	_, _ = rand.Read(piece) // nothing on the way can make it smaller; it never fails
	first, ok := p.send(ctx, piece)
	if !ok {
		return
	}
	n := min(max(int(bandwidthTime/first), 1), bandwidthPieces)
	start := time.Now()
	var wg sync.WaitGroup
	lost := make(chan struct{}, n)
	for range n {
		wg.Go(func() {
			if _, ok := p.send(ctx, piece); !ok {
				lost <- struct{}{}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if len(lost) > 0 {
		return
	}
	if path := p.path(); path != nil {
		if way := time.Duration(path.LatencyMicroseconds) * time.Microsecond; 2*way < took {
			took -= way
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bits = int64(float64(n*len(piece)*8) / took.Seconds())
}

// path is the quality of the way in the last minute; nil: it is not known yet.
func (p *prober) path() *adapterv1.Path {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ended []time.Duration
	for _, x := range p.results {
		switch {
		case x.took < 0:
			ended = append(ended, adapter.Lost)
		case x.took > 0:
			ended = append(ended, x.took)
		}
	}
	if len(ended) < fewProbes {
		return nil
	}
	out := adapter.PathOf("platform", ended)
	out.LossPpm, out.BandwidthBitsPerSecond = max(out.LossPpm, p.resent()), p.bits
	return out
}

// resent is the share of data that was sent again since the oldest probe, in
// millionths; p.mu is held. Connections that ended meanwhile are left out.
func (p *prober) resent() int64 {
	var sent, again int64
	for i, c := range p.counted {
		if i == 0 || !c.ok || !p.counted[i-1].ok {
			continue
		}
		if b := p.counted[i-1]; c.sent >= b.sent && c.again >= b.again {
			sent, again = sent+c.sent-b.sent, again+c.again-b.again
		}
	}
	if sent < fewSegments {
		return 0
	}
	return min(again*1_000_000/sent, 1_000_000)
}
