// Package bustest is what every bus must do: the suite runs against the one in
// process and against a cluster, and what opens the bus is all that differs.
package bustest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/fault"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// Open opens a bus of its own for a test and closes it when the test ends.
// Every bus it returns uses the same signals.
type Open func(t *testing.T) *bus.Bus

// Suite runs the contract. Subtests share what open connects to, so each has
// subjects of its own.
func Suite(t *testing.T, open Open) {
	t.Run("a request is answered", func(t *testing.T) { t.Parallel(); answers(t, open) })
	t.Run("nobody answers", func(t *testing.T) { t.Parallel(); nobody(t, open) })
	t.Run("answerers of one group share", func(t *testing.T) { t.Parallel(); shared(t, open) })
	t.Run("an event that fails comes again", func(t *testing.T) { t.Parallel(); redelivered(t, open) })
	t.Run("every consumer gets every event", func(t *testing.T) { t.Parallel(); consumers(t, open) })
	t.Run("what commits is published, nothing else", func(t *testing.T) {
		t.Parallel()
		dbtest.Each(t, func(t *testing.T, d *db.DB) { committed(t, open, d) })
	})
	t.Run("a relay that died between publishing and deleting", func(t *testing.T) {
		t.Parallel()
		dbtest.Each(t, func(t *testing.T, d *db.DB) { twice(t, open, d) })
	})
	t.Run("an agent has its own subjects only", func(t *testing.T) { t.Parallel(); permissions(t, open) })
}

// Name is a subject token of the test's own.
func Name(t *testing.T) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, t.Name())
}

// Within returns a context that ends when waiting makes no more sense.
func Within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Go runs a loop until the test ends and checks that it then ends well.
func Go(t *testing.T, loop func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("loop ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("loop does not stop")
		}
	})
}

// Ask repeats a request until somebody answers it: an answerer's subscription
// takes a moment to be known.
func Ask(t *testing.T, b *bus.Bus, subject string, data []byte) ([]byte, error) {
	t.Helper()
	ctx := Within(t)
	for {
		out, err := b.Request(ctx, subject, data)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no responders") {
			return out, err
		}
	}
}

func answers(t *testing.T, open Open) {
	a, b := open(t), open(t)
	name := Name(t)
	Go(t, func(ctx context.Context) error {
		return a.Answer(ctx, name+".*", "g", 4, func(_ context.Context, subject string, data []byte) ([]byte, error) {
			switch string(data) {
			case "fault":
				return nil, fault.New(fault.NotFound, "there is\nno such thing")
			case "error":
				return nil, errors.New("the secret of the database")
			case "panic":
				panic("the secret of the panic")
			}
			return append([]byte(subject+" "), data...), nil
		})
	})
	if out, err := Ask(t, b, name+".x", []byte("hello")); err != nil || string(out) != name+".x hello" {
		t.Fatalf("got %q, %v", out, err)
	}
	for data, want := range map[string]struct {
		kind fault.Kind
		msg  string
	}{"fault": {fault.NotFound, "there is no such thing"}, "error": {fault.Unavailable, "internal error"}, "panic": {fault.Unavailable, "internal error"}} {
		_, err := b.Request(Within(t), name+".x", []byte(data))
		if msg, _ := fault.Message(err); fault.KindOf(err) != want.kind || msg != want.msg {
			t.Errorf("%s: got %v, want %s with %q", data, err, want.kind, want.msg)
		}
	}
	big := make([]byte, 7<<20)
	if out, err := b.Request(Within(t), name+".x", big); err != nil || len(out) < len(big) {
		t.Errorf("a request of 7 MiB: got %d bytes, %v", len(out), err)
	}
}

func nobody(t *testing.T, open Open) {
	b := open(t)
	start := time.Now()
	_, err := b.Request(Within(t), Name(t), nil)
	if fault.KindOf(err) != fault.Unavailable || time.Since(start) > patience/2 {
		t.Errorf("got %v after %v, want it unavailable at once", err, time.Since(start))
	}
}

func shared(t *testing.T, open Open) {
	b, name := open(t), Name(t)
	const n = 200
	var mu sync.Mutex // guards seen
	seen := map[string]int{}
	for range 2 {
		a := open(t)
		Go(t, func(ctx context.Context) error {
			return a.Answer(ctx, name, "g", 2, func(_ context.Context, _ string, data []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				seen[string(data)]++
				return data, nil
			})
		})
	}
	for i := range n {
		if _, err := Ask(t, b, name, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != n {
		t.Errorf("%d requests reached an answerer, want %d", len(seen), n)
	}
	for data, times := range seen {
		if times != 1 {
			t.Errorf("request %s was answered %d times", data, times)
		}
	}
}

// Emit appends events in one transaction.
func Emit(t *testing.T, d *db.DB, subject string, payloads ...string) {
	t.Helper()
	err := d.Tx(t.Context(), func(tx *db.Tx) error {
		for _, p := range payloads {
			if err := tx.Emit(t.Context(), subject, []byte(p)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// collect consumes until want payloads, then the one that says "end", came.
func collect(t *testing.T, b *bus.Bus, name, subject string) <-chan string {
	t.Helper()
	out := make(chan string, 10000)
	Go(t, func(ctx context.Context) error {
		return b.Consume(ctx, name, subject, func(_ context.Context, _ string, payload []byte) error {
			out <- string(payload)
			return nil
		})
	})
	return out
}

// until reads up to the payload that ends a test's events.
func until(t *testing.T, in <-chan string, end string) []string {
	t.Helper()
	ctx := Within(t)
	var out []string
	for {
		select {
		case s := <-in:
			if s == end {
				return out
			}
			out = append(out, s)
		case <-ctx.Done():
			t.Fatalf("got %d events %.200q, and never %q", len(out), out, end)
		}
	}
}

func redelivered(t *testing.T, open Open) {
	b, d, name := open(t), dbtest.SQLite(t), Name(t)
	Go(t, func(ctx context.Context) error { return b.Relay(ctx, d) })
	tries, done := map[string]int{}, make(chan map[string]int, 1)
	Go(t, func(ctx context.Context) error {
		return b.Consume(ctx, name, name+".x", func(_ context.Context, _ string, payload []byte) error {
			tries[string(payload)]++ // one call at a time
			switch {
			case string(payload) == "fails once" && tries["fails once"] == 1:
				return errors.New("not now")
			case string(payload) == "panics once" && tries["panics once"] == 1:
				panic("not now")
			case tries["fails once"] == 2 && tries["panics once"] == 2 && tries["fine"] == 1:
				done <- tries
			}
			return nil
		})
	})
	Emit(t, d, name+".x", "fails once", "panics once", "fine")
	select {
	case <-done:
	case <-Within(t).Done():
		t.Fatal("an event that failed did not come again")
	}
}

func consumers(t *testing.T, open Open) {
	a, b, d, name := open(t), open(t), dbtest.SQLite(t), Name(t)
	// A consumer's name is for ever: what comes while it is away waits for it.
	var outs []<-chan string
	for _, c := range []struct {
		b    *bus.Bus
		name string
	}{{a, "one"}, {b, "two"}} {
		outs = append(outs, collect(t, c.b, name+c.name, name+".*"))
	}
	Go(t, func(ctx context.Context) error { return a.Relay(ctx, d) })
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint("event", i))
		Emit(t, d, fmt.Sprintf("%s.%d", name, i%3), want[i])
	}
	Emit(t, d, name+".0", "end")
	for _, out := range outs {
		got := until(t, out, "end")
		slices.Sort(got)
		if sorted := slices.Sorted(slices.Values(want)); !slices.Equal(slices.Compact(got), sorted) {
			t.Errorf("a consumer got %d events, want all %d", len(got), len(want))
		}
	}
}

func committed(t *testing.T, open Open, d *db.DB) {
	b, name := open(t), Name(t)
	out := collect(t, b, name, name+".>")
	Go(t, func(ctx context.Context) error { return b.Relay(ctx, d) })
	var want []string
	rollback := errors.New("rollback")
	for i := range 30 {
		Emit(t, d, name+".x", fmt.Sprint("a", i), fmt.Sprint("b", i))
		want = append(want, fmt.Sprint("a", i), fmt.Sprint("b", i))
		err := d.Tx(t.Context(), func(tx *db.Tx) error {
			if err := tx.Emit(t.Context(), name+".x", []byte("never")); err != nil {
				return err
			}
			return rollback
		})
		if !errors.Is(err, rollback) {
			t.Fatal(err)
		}
	}
	Emit(t, d, name+".x", "end")
	if got := until(t, out, "end"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q in this order", got, want)
	}
	empty(t, d)
}

// empty waits until the outbox holds nothing.
func empty(t *testing.T, d *db.DB) {
	t.Helper()
	ctx, left := Within(t), -1
	for left != 0 {
		err := d.View(ctx, func(tx *db.Tx) error {
			_, err := tx.Get(ctx, `SELECT COUNT(*) FROM outbox`, nil, &left)
			return err
		})
		if err != nil {
			t.Fatalf("%d events are left in the outbox: %v", left, err)
		}
	}
}

// twice publishes events whose deletion was lost: the outbox still has them,
// the stream drops them.
func twice(t *testing.T, open Open, d *db.DB) {
	b, name := open(t), Name(t)
	type row struct {
		id, subject string
		payload     []byte
		at          int64
	}
	Emit(t, d, name+".x", "1", "2", "3")
	var rows []row
	err := d.View(t.Context(), func(tx *db.Tx) error {
		return tx.Query(t.Context(), `SELECT event_id, subject, payload, at FROM outbox ORDER BY event_id`, nil, func(r db.Row) error {
			var x row
			err := r.Scan(&x.id, &x.subject, &x.payload, &x.at)
			rows = append(rows, x)
			return err
		})
	})
	if err != nil || len(rows) != 3 {
		t.Fatalf("the outbox holds %d events, %v", len(rows), err)
	}
	out := collect(t, b, name, name+".>")
	relay := func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- b.Relay(ctx, d) }()
		empty(t, d)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	relay()
	err = d.Tx(t.Context(), func(tx *db.Tx) error {
		for _, x := range rows {
			if err := tx.Insert(t.Context(), "outbox", []string{"event_id", "subject", "payload", "at"}, [][]any{{x.id, x.subject, x.payload, x.at}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	relay()
	Emit(t, d, name+".x", "end")
	relay()
	if got := until(t, out, "end"); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("got %q, want each event once", got)
	}
}

// Agent is an agent with a key of its own that has connected.
func Agent(t *testing.T, b *bus.Bus, id string) *bus.Agent {
	t.Helper()
	seed, pub, err := bus.NewAgentKey()
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := b.AgentJWT(id, pub)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{}, 100)
	a, err := bus.DialAgent(b.AgentURLs(), id, seed, jwt, func() { connected <- struct{}{} }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	select {
	case <-connected:
	case <-Within(t).Done():
		t.Fatal("the agent does not get a connection")
	}
	return a
}

func permissions(t *testing.T, open Open) {
	b := open(t)
	name := Name(t)
	mine, other := name+".a", name+".b"
	Go(t, func(ctx context.Context) error {
		return b.Answer(ctx, bus.AgentUp("*", "*"), name, 4, func(_ context.Context, subject string, data []byte) ([]byte, error) {
			id, what := bus.AgentOf(subject)
			return []byte(id + " asks " + what + " " + string(data)), nil
		})
	})
	a := Agent(t, b, mine)
	Go(t, func(ctx context.Context) error {
		return a.Answer(ctx, 2, func(_ context.Context, what string, data []byte) ([]byte, error) {
			return append([]byte(what+" "), data...), nil
		})
	})
	var out []byte
	var err error
	for ctx := Within(t); ctx.Err() == nil; { // the platform's subscription takes a moment
		if out, err = a.Ask(ctx, "hello", []byte("x")); err == nil {
			break
		}
	}
	if string(out) != a.Name()+" asks hello x" {
		t.Errorf("the platform answered %q, %v; want it to know %s", out, err, mine)
	}
	if out, err := Ask(t, b, bus.AgentDown(a.Name(), "run"), []byte("x")); err != nil || string(out) != "run x" {
		t.Errorf("the agent answered %q, %v", out, err)
	}
	// Another identity than the one its credentials are for: it hears nothing
	// and is not heard.
	seed, pub, err := bus.NewAgentKey()
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := b.AgentJWT(other, pub)
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{}, 100)
	thief, err := bus.DialAgent(b.AgentURLs(), mine, seed, jwt, func() { up <- struct{}{} }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(thief.Close)
	select {
	case <-up:
	case <-Within(t).Done():
		t.Fatal("the second agent does not get a connection")
	}
	Go(t, func(ctx context.Context) error {
		return thief.Answer(ctx, 2, func(context.Context, string, []byte) ([]byte, error) { return []byte("stolen"), nil })
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if out, err := thief.Ask(ctx, "hello", nil); err == nil {
		t.Errorf("an agent spoke for another: %q", out)
	}
	for range 50 {
		if out, err := Ask(t, b, bus.AgentDown(a.Name(), "run"), []byte("x")); err != nil || string(out) != "run x" {
			t.Fatalf("the platform asked %s and heard %q, %v", mine, out, err)
		}
	}
	if _, err := b.AgentJWT(mine, "nonsense"); fault.KindOf(err) != fault.Invalid || len(fault.FieldsOf(err)) != 1 {
		t.Errorf("credentials for no key: %v, want public_key refused", err)
	}
}
