package bus_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/bus/bustest"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
)

func open(t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	first := open(t, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	bustest.Suite(t, func(*testing.T) *bus.Bus { return first }) // one process, one bus
}

// TestCluster: the same contract on three servers elsewhere; the configuration
// is all that differs.
func TestCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trust, err := bus.LoadTrust(dir)
	if err != nil {
		t.Fatal(err)
	}
	cluster := enginetest.NATSCluster(t, 3, func(_ int, o *server.Options) {
		if o.MaxPayload = 8 << 20; err == nil {
			err = trust.Apply(o)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	bustest.Suite(t, func(t *testing.T) *bus.Bus { return open(t, bus.Config{URL: cluster.URL(), Dir: dir, Replicas: 3}) })
}

// TestRestart: a platform that starts again listens where its agents look for
// it, and they come back by themselves.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Config{Dir: dir, Listen: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { b.Close() }()
	if err := b.Ready(); err != nil {
		t.Error(err)
	}
	a := bustest.Agent(t, b, "a")
	bustest.Go(t, func(ctx context.Context) error {
		return a.Answer(ctx, 1, func(context.Context, string, []byte) ([]byte, error) { return []byte("here"), nil })
	})
	urls := b.AgentURLs()
	for round := range 2 {
		if out, err := bustest.Ask(t, b, bus.AgentDown(a.Name(), "x"), nil); err != nil || string(out) != "here" {
			t.Fatalf("round %d: the agent answered %q, %v", round, out, err)
		}
		b.Close()
		if err := b.Ready(); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("a closed bus is ready: %v", err)
		}
		if b, err = bus.Open(t.Context(), bus.Config{Dir: dir, Listen: "127.0.0.1:0"}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if got := b.AgentURLs(); got[0] != urls[0] {
			t.Fatalf("it listens on %v, before on %v", got, urls)
		}
	}
}

func TestOpenRejects(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "keys.json"), []byte(`{"operator_seed":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	noJSON := t.TempDir()
	if err := os.WriteFile(filepath.Join(noJSON, "keys.json"), []byte(`nonsense`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		cfg  bus.Config
		kind fault.Kind
		word string
	}{
		"no address":       {bus.Config{Dir: t.TempDir(), Listen: ""}, fault.Invalid, "bus.listen"},
		"no port":          {bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:x"}, fault.Invalid, "bus.listen"},
		"a file":           {bus.Config{Dir: file, Listen: "127.0.0.1:0"}, fault.Unavailable, file},
		"keys cut short":   {bus.Config{Dir: broken, Listen: "127.0.0.1:0"}, fault.Invalid, "keys.json"},
		"keys of nonsense": {bus.Config{Dir: noJSON, Listen: "127.0.0.1:0"}, fault.Invalid, "keys.json"},
	} {
		b, err := bus.Open(t.Context(), x.cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			b.Close()
		}
		if msg, _ := fault.Message(err); fault.KindOf(err) != x.kind || !strings.Contains(msg, x.word) {
			t.Errorf("%s: got %v, want %v that names %q", name, err, x.kind, x.word)
		}
	}
}

// TestKeys: processes that start at once with one folder trust the same
// operator, and nobody else can read the file.
func TestKeys(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir := t.TempDir()
		var wg sync.WaitGroup
		accounts := make([]string, 8)
		for i := range accounts {
			wg.Go(func() {
				trust, err := bus.LoadTrust(dir)
				if err != nil {
					t.Error(err)
				}
				accounts[i] = trust.SystemAccount
			})
		}
		wg.Wait()
		for _, a := range accounts {
			if a != accounts[0] || a == "" {
				t.Fatalf("processes that started at once have the accounts %q", accounts)
			}
		}
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 1 {
			t.Fatalf("the folder holds %v, %v; want the keys only", list, err)
		}
		if st, err := list[0].Info(); err != nil || list[0].Name() != "keys.json" || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v; want keys.json with 0600", list[0].Name(), st.Mode(), err)
		}
	}
}

func TestAgentSubjects(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "a.b", "a-b_c.d", "x..y", bus.AgentName("a.b", "UABCDEFGHIJKLMNOPQRS"), bus.AgentName("a", "")} {
		if got, what := bus.AgentOf(bus.AgentUp(id, "hello")); got != id || what != "hello" {
			t.Errorf("%q became %q, %q", id, got, what)
		}
		if strings.Count(bus.AgentDown(id, "x"), ".") != 4 || strings.Contains(bus.AgentInbox(id), ".") {
			t.Errorf("%q makes the subject %q and the inbox %q", id, bus.AgentDown(id, "x"), bus.AgentInbox(id))
		}
	}
	for _, subject := range []string{"", "yunhe.agent.a.up", "yunhe.agent.a.b.up.x"} {
		if id, what := bus.AgentOf(subject); id != "" || what != "" {
			t.Errorf("%q is of agent %q and asks %q", subject, id, what)
		}
	}
	seed, pub, err := bus.NewAgentKey()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bus.PublicKey(seed); err != nil || got != pub {
		t.Errorf("the public key of a seed is %q, %v; want %q", got, err, pub)
	}
	if _, err := bus.PublicKey("nonsense"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a seed of nonsense: %v, want it invalid", err)
	}
}

// TestListenAfterACut: a listener whose connection was lost hears what it
// missed meanwhile.
func TestListenAfterACut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	near := open(t, bus.Config{Dir: dir, Listen: "127.0.0.1:0"})
	to, err := url.Parse(near.AgentURLs()[0])
	if err != nil {
		t.Fatal(err)
	}
	way := newWay(t, to.Host)
	far := open(t, bus.Config{Dir: dir, URL: "nats://" + way.ln.Addr().String()})
	heard := make(chan string, 1000)
	stop, err := far.Listen("x.changed", func(subject string, payload []byte) { heard <- subject + " " + string(payload) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	d := dbtest.SQLite(t)
	bustest.Go(t, func(ctx context.Context) error { return near.Relay(ctx, d) })
	told := make(chan string, 1000) // to a listener that is not cut off
	stopNear, err := near.Listen("x.changed", func(_ string, payload []byte) { told <- string(payload) })
	if err != nil {
		t.Fatal(err)
	}
	defer stopNear()
	await := func(from <-chan string, want string) {
		t.Helper()
		for ctx := bustest.Within(t); ; {
			select {
			case got := <-from:
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("not told %q", want)
			}
		}
	}
	for _, round := range []string{"first", "second"} {
		bustest.Emit(t, d, "x.changed", round+" before")
		await(heard, "x.changed "+round+" before")
		way.cut()
		bustest.Emit(t, d, "x.changed", round+" meanwhile")
		await(told, round+" meanwhile")
		way.open()
		await(heard, "x.changed "+round+" meanwhile")
	}
}

// TestListenInPlace: what is published once Listen has returned is heard, also where
// the server is told late of who listens, or later than Listen waits for.
func TestListenInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	near := open(t, bus.Config{Dir: dir, Listen: "127.0.0.1:0"})
	d := dbtest.SQLite(t)
	bustest.Go(t, func(ctx context.Context) error { return near.Relay(ctx, d) })
	to, err := url.Parse(near.AgentURLs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, lag := range []time.Duration{300 * time.Millisecond, 6 * time.Second} {
		way := newWay(t, to.Host)
		far := open(t, bus.Config{Dir: dir, URL: "nats://" + way.ln.Addr().String()})
		way.lag.Store(int64(lag))
		heard := make(chan string, 100)
		stop, err := far.Listen("x.changed", func(_ string, payload []byte) { heard <- string(payload) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		way.lag.Store(0) // of what comes behind
		bustest.Emit(t, d, "x.changed", lag.String())
		for got := ""; got != lag.String(); {
			select {
			case got = <-heard:
			case <-bustest.Within(t).Done():
				t.Fatalf("late by %s: not told", lag)
			}
		}
	}
}

// way passes connections on until it is cut.
type way struct {
	ln  net.Listener
	to  string
	lag atomic.Int64 // of what goes to the server

	mu    sync.Mutex // guards the fields below
	shut  bool
	conns []net.Conn
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{ln: ln, to: to}
	t.Cleanup(func() {
		_ = ln.Close()
		w.cut()
	})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.pass(c)
		}
	}()
	return w
}

func (w *way) pass(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, err := net.Dial("tcp", w.to)
	if w.shut || err != nil {
		_ = c.Close()
		if err == nil {
			_ = o.Close()
		}
		return
	}
	w.conns = append(w.conns, c, o)
	for from, to := range map[net.Conn]net.Conn{c: o, o: c} {
		into := io.Writer(to)
		if to == o {
			into = lagging{to, &w.lag}
		}
		go func() {
			_, _ = io.Copy(into, from)      // until either end is closed
			_, _ = to.Close(), from.Close() // maybe again
		}()
	}
}

type lagging struct {
	io.Writer
	lag *atomic.Int64
}

func (l lagging) Write(b []byte) (int, error) {
	<-time.After(time.Duration(l.lag.Load()))
	return l.Writer.Write(b)
}

// cut ends all connections and lets none through.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func (w *way) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = false
}
