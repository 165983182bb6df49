package db_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
)

// TestClock: the time of a transaction is the server's, also when that is far
// from this process's, and when it is set while the process runs.
func TestClock(t *testing.T) {
	t.Parallel()
	url := enginetest.Postgres(t)
	admin, err := db.Open(t.Context(), db.Config{URL: url, Now: time.Now}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, admin.Close()) })
	exec := func(text string) {
		t.Helper()
		must(t, admin.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), text)
			return err
		}))
	}
	// Sessions of the database find this clock before the server's own.
	exec(`CREATE SCHEMA skewed`)
	set := func(ahead time.Duration) {
		t.Helper()
		exec(fmt.Sprintf(`CREATE OR REPLACE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS $f$ SELECT pg_catalog.clock_timestamp() + interval '%d seconds' $f$`, int(ahead.Seconds())))
	}
	set(-time.Hour)
	exec(`DO $d$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = skewed, pg_catalog, public', current_database()); END $d$`)
	d, err := db.Open(t.Context(), db.Config{URL: url}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	ahead := func() time.Duration {
		t.Helper()
		var own time.Time
		must(t, d.Tx(t.Context(), func(tx *db.Tx) error { own = tx.Now; return nil }))
		if since := d.Now().Sub(own); since < 0 || since > time.Minute {
			t.Errorf("the database's time is %v after that of its last transaction", since)
		}
		return time.Until(own)
	}
	near := func(got, want time.Duration) bool { return (got - want).Abs() < time.Minute }
	if got := ahead(); !near(got, -time.Hour) {
		t.Errorf("with a server an hour behind, transactions are at %v", got)
	}
	set(2 * time.Hour)
	for end := time.Now().Add(time.Minute); !near(ahead(), 2*time.Hour); <-time.After(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a minute after the server's clock was set two hours ahead, transactions are at %v", ahead())
		}
	}
}
