// Package dbtest opens databases for tests: SQLite in a temporary folder and,
// where a server can be started, PostgreSQL.
package dbtest

import (
	"log/slog"
	"path/filepath"
	"testing"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
)

// SQLite opens a new database that is closed when the test ends.
func SQLite(tb testing.TB) *db.DB {
	tb.Helper()
	return open(tb, filepath.Join(tb.TempDir(), "yunhe.db"))
}

// Postgres opens a new database on a real server; it skips aloud if there is
// none to be had.
func Postgres(tb testing.TB) *db.DB {
	tb.Helper()
	return open(tb, enginetest.Postgres(tb))
}

// Each runs a test on every engine.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, Postgres(t)) })
}

func open(tb testing.TB, url string) *db.DB {
	tb.Helper()
	d, err := db.Open(tb.Context(), db.Config{URL: url}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatalf("open %s: %v", url, err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("close database: %v", err)
		}
	})
	return d
}
