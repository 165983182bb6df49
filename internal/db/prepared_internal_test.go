package db

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// TestReadersDiscard: a connection that is given back amidst a transaction is not
// used again.
func TestReadersDiscard(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), Config{URL: filepath.Join(t.TempDir(), "y.db")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for range 3 {
		conn, err := d.readers.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.ExecContext(t.Context(), "BEGIN")
		d.readers.give(conn, false)
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := d.sql.Stats().OpenConnections; n != 1 { // the writer's
		t.Errorf("%d connections are open, want 1", n)
	}
}
