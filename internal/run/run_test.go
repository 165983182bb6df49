package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/run"
	"yunhe.dev/yunhe/internal/run/runtest"
)

var quiet = slog.New(slog.DiscardHandler)

func TestGroupStopsInReverse(t *testing.T) {
	t.Parallel()
	g := run.NewGroup(quiet)
	var mu sync.Mutex // guards stopped
	var stopped []int
	var up sync.WaitGroup
	for i := range 5 {
		up.Add(1)
		g.Add(fmt.Sprint("loop", i), func(ctx context.Context) error {
			up.Done()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, i)
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { up.Wait(); cancel() }()
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(stopped, []int{4, 3, 2, 1, 0}) {
		t.Errorf("loops stopped in the order %v, want last to first", stopped)
	}
}

func TestGroupEndsWithItsLoops(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, x := range map[string]struct {
		loop  run.Loop
		is    error
		words string
	}{
		"an error":       {func(context.Context) error { return broken }, broken, "loop bad ended early"},
		"an early end":   {func(context.Context) error { return nil }, nil, "loop bad ended early"},
		"a panic":        {func(context.Context) error { panic("the cause") }, nil, "the cause"},
		"a nil pointer":  {func(context.Context) error { var p *int; *p = 1; return nil }, nil, "nil pointer"},
		"an early error": {func(ctx context.Context) error { return fmt.Errorf("wrapped: %w", broken) }, broken, "wrapped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := run.NewGroup(quiet)
			var others atomic.Int32
			for range 3 {
				g.Add("good", func(ctx context.Context) error { <-ctx.Done(); others.Add(1); return nil })
			}
			g.Add("bad", x.loop)
			err := g.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), x.words) || x.is != nil && !errors.Is(err, x.is) {
				t.Errorf("the group returned %v, want %q", err, x.words)
			}
			if others.Load() != 3 {
				t.Errorf("%d of the other loops were stopped, want all 3", others.Load())
			}
		})
	}
}

// TestGroupGrace: a loop that does not stop is named and does not keep the
// others from stopping.
func TestGroupGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := run.NewGroup(slog.New(slog.NewTextHandler(&out, nil)))
		var first atomic.Bool
		release := make(chan struct{})
		g.Add("first", func(ctx context.Context) error { <-ctx.Done(); first.Store(true); return nil })
		g.Add("stuck", func(context.Context) error { <-release; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		start := time.Now()
		cancel()
		err := <-done
		close(release)
		if err == nil || !strings.Contains(err.Error(), "loop stuck does not stop") || !strings.Contains(out.String(), "loop=stuck") {
			t.Errorf("the group returned %v and logged %q, want the stuck loop named", err, out.String())
		}
		if d := time.Since(start); !first.Load() || d > 15*time.Second {
			t.Errorf("after %v the other loop has stopped: %v", d, first.Load())
		}
	})
}

func TestStress(t *testing.T) {
	t.Parallel()
	runtest.Stress(t, 50, "run_test.stressed", func(ctx context.Context) error {
		g := run.NewGroup(quiet)
		for i := range 4 {
			g.Add(fmt.Sprint(i), stressed)
		}
		return g.Run(ctx)
	})
}

func stressed(ctx context.Context) error { <-ctx.Done(); return nil }

// postgres opens n connections to one database, as n processes would.
func postgres(t *testing.T, n int) []*db.DB {
	t.Helper()
	url := enginetest.Postgres(t)
	out := make([]*db.DB, n)
	for i := range out {
		d, err := db.Open(t.Context(), db.Config{URL: url, Name: fmt.Sprint("process", i)}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = d
		t.Cleanup(func() { _ = d.Close() }) // some tests close it first
		if err := run.Init(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// lead runs Lead, of an elector of its own, until ctx ends or the loop does.
func lead(ctx context.Context, d *db.DB, name, me string, fn run.Loop) error {
	e := run.NewElector(d, me, quiet)
	ectx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ectx) }()
	err := e.Lead(ctx, name, fn)
	cancel()
	return errors.Join(err, <-ended)
}

// leader runs Lead until the test ends or stop is called.
func leader(t *testing.T, d *db.DB, name, me string, fn run.Loop) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- lead(ctx, d, name, me, fn) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() }) // whoever cares has asked already
	return stop
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not happen", what)
	}
}

// TestLeadSQLite: one process, no lease.
func TestLeadSQLite(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	if err := run.Init(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := lead(t.Context(), d, "x", "me", func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want what the loop returned", err)
	}
}

// TestLeadOnce: of many processes one runs the loop at any time, and each
// that stops hands over at once.
func TestLeadOnce(t *testing.T) {
	t.Parallel()
	ds := postgres(t, 3)
	var active, most, runs atomic.Int32
	started := make(chan int, 10)
	stops := make([]func() error, len(ds))
	for i, d := range ds {
		stops[i] = leader(t, d, "once", fmt.Sprint("process", i), func(ctx context.Context) error {
			runs.Add(1)
			if n := active.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer active.Add(-1)
			started <- i
			<-ctx.Done()
			return nil
		})
	}
	seen := map[int]bool{}
	for range ds {
		var i int
		select {
		case i = <-started:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody takes over")
		}
		seen[i] = true
		if err := stops[i](); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 3 || most.Load() != 1 || runs.Load() != 3 {
		t.Errorf("processes %v led, at most %d at once, %d times; want 3, 1, 3", seen, most.Load(), runs.Load())
	}
}

// TestLeadOfDifferentNames: leases do not touch each other.
func TestLeadOfDifferentNames(t *testing.T) {
	t.Parallel()
	ds := postgres(t, 2)
	var both sync.WaitGroup
	both.Add(2)
	for i, d := range ds {
		leader(t, d, fmt.Sprint("lease", i), "me", func(ctx context.Context) error { both.Done(); <-ctx.Done(); return nil })
	}
	up := make(chan struct{})
	go func() { both.Wait(); close(up) }()
	wait(t, "leading two loops at once", up)
}

// TestLeadAfterKill: a killed leader's lease is taken when it ends, and not a
// moment before.
func TestLeadAfterKill(t *testing.T) {
	t.Parallel()
	d := postgres(t, 1)[0]
	until := time.Now().Add(1500 * time.Millisecond)
	err := d.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.Insert(t.Context(), "leases", []string{"name", "owner", "until"}, [][]any{{"x", "the dead", db.Micros(until)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	var at time.Time
	leader(t, d, "x", "the heir", func(ctx context.Context) error { at = time.Now(); close(up); <-ctx.Done(); return nil })
	wait(t, "taking over", up)
	if at.Before(until) || at.After(until.Add(10*time.Second)) {
		t.Errorf("taken %v after the lease ended, want 0 to 10 s", at.Sub(until))
	}
}

// TestLeadComesBack: a killed process that starts again under its name does
// not wait for its own lease.
func TestLeadComesBack(t *testing.T) {
	t.Parallel()
	d := postgres(t, 1)[0]
	err := d.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.Insert(t.Context(), "leases", []string{"name", "owner", "until"}, [][]any{{"x", "me", db.Micros(time.Now().Add(time.Hour))}})
	})
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	leader(t, d, "x", "me", func(ctx context.Context) error { close(up); <-ctx.Done(); return nil })
	wait(t, "taking the own lease back", up)
}

// TestLeadLostRenewal: a leader that cannot reach the database any more stops
// its loop before its lease ends.
func TestLeadLostRenewal(t *testing.T) {
	t.Parallel()
	ds := postgres(t, 2)
	up, down := make(chan struct{}), make(chan struct{})
	stop := leader(t, ds[0], "x", "me", func(ctx context.Context) error { close(up); <-ctx.Done(); close(down); return ctx.Err() })
	wait(t, "leading", up)
	if err := ds[0].Close(); err != nil {
		t.Fatal(err)
	}
	wait(t, "stopping the loop", down)
	var until int64
	err := ds[1].View(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Get(t.Context(), `SELECT until FROM leases WHERE name = 'x' AND owner = 'me'`, nil, &until)
		return err
	})
	if err != nil || until == 0 {
		t.Fatalf("the lease ends %v, %v", until, err)
	}
	if left := time.Until(db.Time(until)); left < time.Second {
		t.Errorf("the loop stopped %v before the lease ended, want at least 1 s", left)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestLeadStolen: a leader whose lease has another owner stops its loop, and
// leads again when the lease is free.
func TestLeadStolen(t *testing.T) {
	t.Parallel()
	d := postgres(t, 1)[0]
	ups, downs := make(chan struct{}, 2), make(chan struct{}, 2)
	leader(t, d, "x", "me", func(ctx context.Context) error {
		ups <- struct{}{}
		<-ctx.Done()
		downs <- struct{}{}
		return nil
	})
	wait(t, "leading", ups)
	set := func(owner string, until time.Time) {
		err := d.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE leases SET owner = $1, until = $2 WHERE name = 'x'`, owner, db.Micros(until))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set("a thief", time.Now().Add(time.Hour))
	wait(t, "stopping the loop", downs)
	set("a thief", time.Now().Add(-time.Second))
	wait(t, "leading again", ups)
}

// TestLeadFails: what the loop returns ends Lead, and so does its panic; the
// lease is free at once.
func TestLeadFails(t *testing.T) {
	t.Parallel()
	d := postgres(t, 1)[0]
	broken := errors.New("broken")
	if err := lead(t.Context(), d, "x", "me", func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want what the loop returned", err)
	}
	if err := lead(t.Context(), d, "x", "another", func(context.Context) error { panic("the cause") }); err == nil || !strings.Contains(err.Error(), "the cause") {
		t.Errorf("got %v, want the panic", err)
	}
}
