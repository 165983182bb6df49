package run_test

import (
	"context"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/run"
)

// give makes a lease another process's, as its elector does.
func give(t *testing.T, d *db.DB, name, owner string, until time.Time) {
	t.Helper()
	err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO leases (name, owner, until) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET owner = $2, until = $3`, name, owner, db.Micros(until)); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO lease_terms (name, owner, term) VALUES ($1, $2, 1) ON CONFLICT (name) DO UPDATE SET owner = $2, term = lease_terms.term + 1`, name, owner)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLeadOfTheDead: the lease of an owner without a session at the database is
// not waited for; that of one with a session is, and so is that of an owner of
// an older version, whose sessions have no name.
func TestLeadOfTheDead(t *testing.T) {
	t.Parallel()
	d := postgres(t, 2)[1]
	hour := time.Now().Add(time.Hour)
	give(t, d, "dead", "killed@here:/data", hour)
	give(t, d, "alive", "process0@here:/data", hour)
	give(t, d, "old", "killed@here:/data", hour)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `DELETE FROM lease_terms WHERE name = 'old'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e := run.NewElector(d, "process1@here:/data", quiet)
	taken := make(chan string, 3)
	ended := make(chan error, 4)
	go func() { ended <- e.Run(ctx) }()
	for _, name := range []string{"alive", "old", "dead"} {
		go func() {
			ended <- e.Lead(ctx, name, func(ctx context.Context) error { taken <- name; <-ctx.Done(); return nil })
		}()
	}
	select {
	case name := <-taken:
		if name != "dead" {
			t.Errorf("the lease %q was taken from its owner", name)
		}
	case <-time.After(30 * time.Second):
		t.Error("the lease of a process that is dead is not taken")
	}
	if e.Live("unknown") || !e.Live("alive") {
		t.Error("a lease is live if a process holds it")
	}
	cancel()
	for range 4 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if len(taken) > 0 {
		t.Errorf("the lease %q was taken from its owner", <-taken)
	}
}

// TestLeadFence: what a process does under a lease that another has taken
// meanwhile is not written, even if the process knows nothing of it.
func TestLeadFence(t *testing.T) {
	t.Parallel()
	ds := postgres(t, 2)
	up, stolen, result := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	leader(t, ds[0], "x", "me", func(ctx context.Context) error {
		write := func() {
			ctx := context.WithoutCancel(ctx) // the cancellation may come first
			result <- ds[0].Tx(ctx, func(tx *db.Tx) error { return tx.Emit(ctx, "was here", nil) })
		}
		write()
		close(up)
		<-stolen
		write()
		<-ctx.Done()
		return nil
	})
	wait(t, "leading", up)
	if err := <-result; err != nil {
		t.Errorf("who holds the lease cannot write: %v", err)
	}
	give(t, ds[1], "x", "a thief", time.Now().Add(time.Hour))
	close(stolen)
	if err := <-result; fault.KindOf(err) != fault.Unavailable {
		t.Errorf("who has lost the lease writes, and gets %v", err)
	}
	n := 0
	if err := ds[1].View(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Get(t.Context(), `SELECT COUNT(*) FROM outbox`, nil, &n)
		return err
	}); err != nil || n != 1 {
		t.Errorf("%d writes, %v", n, err)
	}
}

// TestLeadClock: a process whose clock is far ahead takes no lease that is held.
func TestLeadClock(t *testing.T) {
	t.Parallel()
	url := enginetest.Postgres(t)
	d, err := db.Open(t.Context(), db.Config{URL: url, Now: func() time.Time { return time.Now().Add(24 * time.Hour) }}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := run.Init(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	give(t, d, "held", "another", time.Now().Add(time.Hour))
	give(t, d, "free", "another", time.Now().Add(-time.Hour))
	up := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	e := run.NewElector(d, "me", quiet)
	ended := make(chan error, 3)
	go func() { ended <- e.Run(ctx) }()
	go func() {
		ended <- e.Lead(ctx, "held", func(ctx context.Context) error { t.Error("a lease that is held was taken"); return nil })
	}()
	go func() {
		ended <- e.Lead(ctx, "free", func(ctx context.Context) error { close(up); <-ctx.Done(); return nil })
	}()
	wait(t, "taking the lease that is free", up)
	cancel()
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
