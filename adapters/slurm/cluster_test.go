package slurm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/sdk/adapter"
)

// quick lets small jobs begin at once.
const quick = "SchedulerParameters=batch_sched_delay=0,sched_interval=1\n"

// patience is for what a cluster does on a busy machine.
const patience = 60 * time.Second

// user is whose jobs the tests run.
const user = "nobody"

// config of a driver for a cluster.
func config(t testing.TB, s *enginetest.Slurm) slurm.Config {
	t.Helper()
	token, err := s.Token(t.Context(), user, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return slurm.Config{
		URL: s.RESTURL, User: user, Token: token, Directory: s.Work, OutputDir: s.Work, PollMillis: 100,
		Partitions: []slurm.Partition{{Name: "main", Spec: "small", Price: 7, Quantity: map[string]int64{"cpu": 1000, "memory": 100 << 20}}, {Name: "high", Price: 9}},
		GRES:       map[string]string{"gpu": "gpu:h20"},
	}
}

// driver is a driver under test and what was heard of it.
type driver struct {
	testing.TB
	adapterv1connect.DriverServiceClient
	d    *slurm.Driver
	kill func()

	mu      sync.Mutex // guards the fields below
	last    map[string]*adapterv1.Status
	history map[string][]string // phases and reasons in the order they came
	news    chan struct{}
}

// start serves a driver over a connection, as its process does.
func start(t testing.TB, cfg slurm.Config) *driver {
	t.Helper()
	d, err := slurm.New(t.Context(), "c1", cfg, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = adapter.ServeListener(ctx, l, d) })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	v := &driver{TB: t, d: d, DriverServiceClient: adapterv1connect.NewDriverServiceClient(&http.Client{Transport: tr}, "http://"+l.Addr().String()),
		last: map[string]*adapterv1.Status{}, history: map[string][]string{}, news: make(chan struct{})}
	wg.Go(func() { v.observe(ctx) })
	v.kill = sync.OnceFunc(func() {
		cancel()
		tr.CloseIdleConnections()
		d.Close()
		wg.Wait()
	})
	t.Cleanup(v.kill)
	return v
}

// testWriter gives what a driver logs to the test that failed.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func (v *driver) observe(ctx context.Context) {
	s, err := v.Observe(ctx, &adapterv1.ObserveRequest{})
	if err != nil {
		return
	}
	defer s.Close()
	for s.Receive() {
		v.mu.Lock()
		for _, st := range s.Msg().Statuses {
			v.last[st.AttemptId] = st
			v.history[st.AttemptId] = append(v.history[st.AttemptId], strings.TrimPrefix(st.Phase.String(), "PHASE_")+" "+st.Reason)
		}
		close(v.news)
		v.news = make(chan struct{})
		v.mu.Unlock()
	}
}

// until waits for a status of an attempt.
func (v *driver) until(id, what string, ok func(*adapterv1.Status) bool) *adapterv1.Status {
	v.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		v.mu.Lock()
		st, news := v.last[id], v.news
		v.mu.Unlock()
		if st != nil && ok(st) {
			return st
		}
		select {
		case <-news:
		case <-timer.C:
			v.Fatalf("attempt %s is {%v}, want it %s", id, st, what)
		}
	}
}

func (v *driver) ended(id string) *adapterv1.Status {
	v.Helper()
	return v.until(id, "ended", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_ENDED })
}

func (v *driver) running(id string) *adapterv1.Status {
	v.Helper()
	return v.until(id, "running", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_RUNNING })
}

func (v *driver) pending(id, because string) *adapterv1.Status {
	v.Helper()
	return v.until(id, "pending because of "+because, func(st *adapterv1.Status) bool {
		return st.Phase == adapterv1.Phase_PHASE_PENDING && strings.Contains(st.Message, because)
	})
}

func (v *driver) apply(as ...*adapterv1.Attempt) {
	v.Helper()
	res, err := v.Apply(v.Context(), &adapterv1.ApplyRequest{Attempts: as})
	if err != nil || len(res.Refusals) > 0 {
		v.Fatalf("apply: %v, %v", res, err)
	}
}

func (v *driver) stop(ids ...string) {
	v.Helper()
	if _, err := v.Remove(v.Context(), &adapterv1.RemoveRequest{Stop: ids}); err != nil {
		v.Fatal(err)
	}
}

func (v *driver) log(id string) string {
	v.Helper()
	var out []byte
	for {
		r, err := v.ReadLog(v.Context(), &adapterv1.ReadLogRequest{AttemptId: id, Offset: int64(len(out)), WaitMilliseconds: 5000})
		if err != nil {
			v.Fatal(err)
		}
		if out = append(out, r.Data...); r.End {
			return string(out)
		}
	}
}

// output is what an attempt has written so far.
func (v *driver) output(s *enginetest.Slurm, a *adapterv1.Attempt) []byte {
	v.Helper()
	b, err := os.ReadFile(filepath.Join(s.Work, "c1", a.AttemptId, "log"))
	if err != nil && !os.IsNotExist(err) {
		v.Fatal(err)
	}
	return b
}

// attempt makes an attempt of a command.
func attempt(command string) *adapterv1.Attempt {
	return &adapterv1.Attempt{AttemptId: core.NewID("att"), JobId: core.NewID("job"), Name: "t", Command: command, ImageId: "host", ResourcespecId: "small",
		Resources: map[string]int64{"cpu": 1000, "memory": 50 << 20}, StopGraceSeconds: 2}
}

// proof is a file that commands add a line to each time they run.
func proof(t testing.TB, s *enginetest.Slurm) string {
	t.Helper()
	path := filepath.Join(s.Work, core.NewID("proof"))
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func lines(t testing.TB, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// within waits for what no message tells.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// trouble waits until Watch says something that holds for ok.
func (v *driver) trouble(what string, ok func(trouble string) bool) string {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	s, err := v.Watch(ctx, &adapterv1.WatchRequest{})
	if err != nil {
		v.Fatal(err)
	}
	defer s.Close()
	last := ""
	for s.Receive() {
		if m := s.Msg(); m.Trouble != "" || m.Inventory != nil || m.Measurement != nil {
			if last = m.Trouble; ok(last) {
				return last
			}
		}
	}
	v.Fatalf("watch does not tell %s: trouble is %q, %v", what, last, s.Err())
	return ""
}

func (v *driver) troubled(words ...string) string {
	v.Helper()
	return v.trouble(fmt.Sprintf("trouble with %q", words), func(trouble string) bool {
		for _, w := range words {
			if !strings.Contains(trouble, w) {
				return false
			}
		}
		return trouble != ""
	})
}

func (v *driver) well() {
	v.Helper()
	v.trouble("that all is well", func(trouble string) bool { return trouble == "" })
}

// proxy stands before slurmrestd and does what a test wants.
type proxy struct {
	*httptest.Server
	mu sync.Mutex // guards do
	do func(w http.ResponseWriter, r *http.Request, forward func() (status int, header http.Header, body []byte))
}

func newProxy(t testing.TB, s *enginetest.Slurm) *proxy {
	t.Helper()
	p := &proxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		do := p.do
		p.mu.Unlock()
		forward := func() (int, http.Header, []byte) {
			body, _ := io.ReadAll(r.Body) // a client that hung up may still get through
			req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, s.RESTURL+r.URL.RequestURI(), bytes.NewReader(body))
			if err != nil {
				return http.StatusBadGateway, nil, nil
			}
			req.Header = r.Header.Clone()
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				return http.StatusBadGateway, nil, nil
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, resp.Header, b
		}
		if do != nil {
			do(w, r, forward)
			return
		}
		give(w)(forward())
	}))
	t.Cleanup(func() {
		p.set(nil)
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func give(w http.ResponseWriter) func(int, http.Header, []byte) {
	return func(status int, h http.Header, b []byte) {
		if k := h.Get("Content-Type"); k != "" {
			w.Header().Set("Content-Type", k)
		}
		w.WriteHeader(status)
		_, _ = w.Write(b) // the client may have gone
	}
}

func (p *proxy) set(do func(w http.ResponseWriter, r *http.Request, forward func() (int, http.Header, []byte))) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.do = do
}
