package db_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
)

// TestMigrateBeside: a process of the version before starts and works on a
// database that a newer one has brought further.
func TestMigrateBeside(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
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

// TestMigrateFails: a migration of which one statement fails changes nothing, and
// the error names it; text that goose would read otherwise is refused.
func TestMigrateFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		first := &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE x (a TEXT NOT NULL); -- b;\nINSERT INTO x VALUES ('c;d');\n")}
		for text, want := range map[string]string{
			"-- +goose Up\nCREATE TABLE y (a TEXT);\nINSERT INTO nowhere VALUES (1);": "0002_y.sql",
			"CREATE TABLE y (a TEXT);": "0002_y.sql: it has to begin with",
			"-- +goose Up\nCREATE TABLE y (a TEXT);\n-- +goose Down\nDROP TABLE y;":         "nothing else for goose",
			"-- +goose Up\n-- +goose NO TRANSACTION\nCREATE TABLE y (a TEXT);\nSELECT nono": "nothing else for goose",
		} {
			err := d.Migrate(t.Context(), "fails", fstest.MapFS{"migrations/0001_x.sql": first, "migrations/0002_y.sql": {Data: []byte(text)}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
		must(t, d.Migrate(t.Context(), "fails", fstest.MapFS{"migrations/0001_x.sql": first, "migrations/0002_y.sql": {Data: []byte("-- +goose Up\nCREATE TABLE y (a TEXT);")}}))
		var a string
		must(t, d.View(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Get(t.Context(), `SELECT a FROM x`, nil, &a)
			return err
		}))
		if a != "c;d" {
			t.Errorf("the first migration wrote %q, want c;d once", a)
		}
	})
}
