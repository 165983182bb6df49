package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/samples"
)

// running is a collector under test that gathers what the test hands it.
type running struct {
	t      *testing.T
	logs   *logBuffer
	rounds chan round
	stop   context.CancelFunc
	ended  chan error
}

type round struct {
	batch []samples.Sample
	err   error
}

func start(t *testing.T, store *samples.Store) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, logs: &logBuffer{}, rounds: make(chan round), stop: cancel, ended: make(chan error, 1)}
	c := monitor.NewCollector(store, func(context.Context) ([]samples.Sample, error) {
		select {
		case next := <-r.rounds:
			return next.batch, next.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, r.logs.logger())
	c.Every = 400 * time.Millisecond
	go func() { r.ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// give returns when the collector has taken the round, and so has ended the
// one before.
func (r *running) give(batch []samples.Sample, err error) {
	r.t.Helper()
	select {
	case r.rounds <- round{batch, err}:
	case <-r.t.Context().Done():
		r.t.Fatal("the collector asks for no more rounds")
	}
}

func (r *running) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v, want nil", err)
	}
	r.ended <- nil
}

func (r *running) wantLog(want ...string) {
	r.t.Helper()
	got := r.logs.lines("")
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.Contains(got[i], want[i])
	}
	if !ok {
		r.t.Errorf("logged %q, want %q", got, want)
	}
}

func sample(name string, at time.Time) []samples.Sample {
	return []samples.Sample{{Name: name, Labels: samples.L("center", "c1"), Value: float64(at.UnixMilli() % 1000), At: at}}
}

// stored returns when the series has samples.
func stored(t *testing.T, store *samples.Store, name string, end time.Time) []time.Time {
	t.Helper()
	got, err := store.Query(t.Context(), name+"[1h]", end)
	must(t, err)
	var out []time.Time
	for _, s := range got {
		for _, p := range s.Points {
			out = append(out, p.At)
		}
	}
	return out
}

func TestCollectorStores(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	r := start(t, store)
	now := time.Now().UTC().Truncate(time.Millisecond)
	var want []time.Time
	for i := range 5 {
		at := now.Add(time.Duration(i-10) * time.Second)
		want = append(want, at)
		r.give(sample("x", at), nil)
	}
	r.give(nil, nil) // a round without samples is fine
	r.give(nil, nil)
	r.end()
	if diff := cmp.Diff(want, stored(t, store, "x", now)); diff != "" {
		t.Errorf("stored (-want +got): %s", diff)
	}
	r.wantLog()
}

func TestCollectorLogsFailuresToGatherOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	r := start(t, store)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for range 3 {
		r.give(nil, errors.New("registry is away"))
	}
	r.give(make([]samples.Sample, samples.MaxBatch+1), nil)
	r.give(sample("x", now.Add(-time.Second)), nil)
	for range 2 {
		r.give(nil, errors.New("away again"))
	}
	r.give(sample("x", now), nil)
	r.give(nil, nil)
	r.end()
	r.wantLog("registry is away", "samples gathered again", "away again", "samples gathered again")
	if got := stored(t, store, "x", now); len(got) != 2 {
		t.Errorf("stored %v, want 2", got)
	}
}

func TestCollectorPassesOverRefusedSamples(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	r := start(t, store)
	now := time.Now().UTC().Truncate(time.Millisecond)
	r.give(sample("x", now.Add(-3*time.Second)), nil)
	r.give(sample("not a name", now.Add(-2*time.Second)), nil)
	r.give(sample("not a name", now.Add(-time.Second)), nil)
	r.give(sample("x", now), nil)
	r.give(sample("x", now.Add(-time.Hour)), nil) // a clock that jumped back
	r.give(sample("x", now.Add(time.Second)), nil)
	r.give(nil, nil)
	r.end()
	if got := stored(t, store, "x", now.Add(time.Minute)); len(got) != 3 {
		t.Errorf("stored %v, want 3", got)
	}
	r.wantLog(`metric name must be`, "samples accepted again", "1 late, 0 early, 0 with another value", "samples accepted again")
	if got := r.logs.lines("samples_dropped=2"); len(got) != 1 {
		t.Errorf("logged %q, want 2 samples dropped in the first outage", r.logs.lines(""))
	}
}

// backend is a real Prometheus behind a door.
type backend struct {
	*httptest.Server
	closed atomic.Bool
	hang   atomic.Bool
	hits   atomic.Int64
}

// untilGone returns when the client has given up. The server notices that only
// once the body is read.
func untilGone(req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	<-req.Context().Done()
}

func newBackend(t *testing.T) (*backend, *samples.Store) {
	t.Helper()
	target, err := url.Parse(enginetest.Prometheus(t))
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	b := &backend{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b.hits.Add(1)
		switch {
		case !b.closed.Load():
			proxy.ServeHTTP(w, req)
		case b.hang.Load():
			untilGone(req)
		default:
			http.Error(w, "closed", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(b.Close)
	return b, openStore(t, b.URL)
}

func TestCollectorBridgesAnOutage(t *testing.T) {
	t.Parallel()
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprintf("hang=%t", hang), func(t *testing.T) {
			t.Parallel()
			b, store := newBackend(t)
			b.hang.Store(hang)
			r := start(t, store)
			now := time.Now().UTC().Truncate(time.Millisecond)
			var want []time.Time
			next := func() {
				at := now.Add(time.Duration(len(want)-30) * time.Second)
				want = append(want, at)
				r.give(sample("x", at), nil)
			}
			next()
			r.waitStored(store, "x", now, 1)
			b.closed.Store(true)
			before := b.hits.Load()
			for range 5 { // rounds go on, and ask the store again
				next()
			}
			if b.hits.Load() == before {
				t.Error("no round asked the store during the outage")
			}
			b.closed.Store(false)
			next()
			r.waitStored(store, "x", now, len(want))
			r.end()
			if diff := cmp.Diff(want, stored(t, store, "x", now)); diff != "" {
				t.Errorf("stored after the outage (-want +got): %s", diff)
			}
			r.wantLog("samples not stored", "samples stored again")
			if got := r.logs.lines("samples_dropped=0"); len(got) != 1 {
				t.Errorf("logged %q, want nothing dropped", r.logs.lines(""))
			}
		})
	}
}

// waitStored gives empty rounds until n samples are stored.
func (r *running) waitStored(store *samples.Store, name string, end time.Time, n int) {
	r.t.Helper()
	for len(stored(r.t, store, name, end)) < n {
		r.give(nil, nil)
	}
}

func TestCollectorStopsWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		untilGone(req)
	}))
	t.Cleanup(srv.Close)
	store := openStore(t, srv.URL)
	ctx, cancel := context.WithCancel(t.Context())
	logs := &logBuffer{}
	c := monitor.NewCollector(store, func(context.Context) ([]samples.Sample, error) { return sample("x", time.Now()), nil }, logs.logger())
	c.Every = time.Hour // only the end of ctx can end the call
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-asked
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v, want nil", err)
	}
	if got := logs.lines(""); len(got) > 0 {
		t.Errorf("the end of the process was logged as an outage: %q", got)
	}
}

func TestCenterSamples(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	got := monitor.CenterSamples([]monitor.Center{
		{ID: "c1", CPUUsedMilli: 1, CPUTotalMilli: 2, MemoryUsedBytes: 3, MemoryTotalBytes: 4, Running: 5, Waiting: 6, CPUBusyPermille: 7},
		{ID: "c2", CPUBusyPermille: -1},
	}, at)
	var want []samples.Sample
	for i, name := range []string{"cpu_used_milli", "cpu_total_milli", "memory_used_bytes", "memory_total_bytes", "running", "waiting", "cpu_busy_permille"} {
		want = append(want, samples.Sample{Name: "yunhe_center_" + name, Labels: samples.L("center", "c1"), Value: float64(i + 1), At: at})
	}
	for _, s := range want[:6] {
		want = append(want, samples.Sample{Name: s.Name, Labels: samples.L("center", "c2"), At: at})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got): %s", diff)
	}
	fill(t, openStore(t, t.TempDir()), monitor.CenterSamples([]monitor.Center{{ID: "c1"}}, time.Now()))
}
