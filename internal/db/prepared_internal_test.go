package db

import (
	"log/slog"
	"os"
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

// TestOddPath: the database is in the file that it is named, whatever the name.
func TestOddPath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a#1", "b?mode=memory", "c%41", "d e&f", "数据"} {
		dir := filepath.Join(t.TempDir(), name)
		d, err := Open(t.Context(), Config{URL: filepath.Join(dir, "y.db")}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f, err := os.Stat(filepath.Join(dir, "y.db")); err != nil || f.Size() == 0 {
			t.Errorf("%s: the file is %v, %v", name, f, err)
		}
	}
}
