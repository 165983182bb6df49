package db_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/fstest"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
)

// TestMigrateBeside: a process of the version before starts and works on a
// database that a newer one has brought further.
func TestMigrateBeside(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "x.db") },
		"postgres": func(t *testing.T) string { return enginetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := db.Open(t.Context(), db.Config{URL: url(t)}, slog.New(slog.DiscardHandler))
			must(t, err)
			defer d.Close()
			old := fstest.MapFS{"migrations/0001_x.sql": {Data: []byte("-- +goose Up\nCREATE TABLE x (a TEXT NOT NULL);")}}
			fresh := fstest.MapFS{"migrations/0001_x.sql": old["migrations/0001_x.sql"],
				"migrations/0002_y.sql": {Data: []byte("-- +goose Up\nALTER TABLE x ADD COLUMN b BIGINT NOT NULL DEFAULT 7;")}}
			must(t, d.Migrate(t.Context(), "beside", old))
			must(t, d.Migrate(t.Context(), "beside", fresh))
			must(t, d.Migrate(t.Context(), "beside", old))
			must(t, d.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO x (a) VALUES ('old')`)
				return err
			}))
			must(t, d.Migrate(t.Context(), "beside", fresh))
			var b int64
			must(t, d.View(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Get(t.Context(), `SELECT b FROM x`, nil, &b)
				return err
			}))
			if b != 7 {
				t.Errorf("what the older version wrote has b = %d, want the default", b)
			}
		})
	}
}
