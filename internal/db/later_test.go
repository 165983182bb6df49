package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/fault"
)

// TestLater has statements done later: what comes after sees them, checks and
// errors undo all of the transaction, and nothing of one that fails stays.
func TestLater(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		columns := []string{"id TEXT", "n BIGINT"}
		add := `UPDATE counter SET n = counter.n + v.n FROM v WHERE counter.id = v.id`
		count := func() (n int64) {
			t.Helper()
			must(t, d.Read(ctx, func(tx *db.Tx) error {
				_, err := tx.Get(ctx, `SELECT COALESCE(SUM(n), 0) FROM counter`, nil, &n)
				return err
			}))
			return n
		}
		committed := 0
		must(t, d.Tx(ctx, func(tx *db.Tx) error {
			tx.AfterCommit(func() { committed++ })
			if err := tx.InsertLater(ctx, "store counters", "counter", []string{"id", "n"}, [][]any{{"a", 1}, {"b", 2}}); err != nil {
				return err
			}
			if err := tx.ExecLater(ctx, "add one", `UPDATE counter SET n = n + 1 WHERE id = $1`, "a"); err != nil {
				return err
			}
			var n int64
			if _, err := tx.Get(ctx, `SELECT n FROM counter WHERE id = 'a'`, nil, &n); err != nil || n != 2 {
				return fmt.Errorf("a query sees %d, %w", n, err)
			}
			return tx.ExecRowsLater(ctx, "add to all", columns, [][]any{{"a", int64(10)}, {"b", int64(10)}, {"c", int64(10)}}, add, func(n int64) error {
				if n != 2 {
					return fmt.Errorf("%d rows were changed, not 2", n)
				}
				return nil
			})
		}))
		if n := count(); n != 24 || committed != 1 {
			t.Errorf("the sum is %d, not 24, and %d were told of the commit", n, committed)
		}
		no := errors.New("no")
		for name, f := range map[string]func(tx *db.Tx) error{
			"a check of rows that changed": func(tx *db.Tx) error {
				return tx.ExecRowsLater(ctx, "add", columns, [][]any{{"a", int64(1)}}, add, func(int64) error { return no })
			},
			"a check of rows that are there": func(tx *db.Tx) error {
				if err := tx.ExecLater(ctx, "add", `UPDATE counter SET n = n + 1`); err != nil {
					return err
				}
				return tx.CheckLater(ctx, "look", `SELECT 1 FROM counter WHERE n > $1`, []any{int64(5)}, func(n int64) error {
					if n != 2 {
						return fmt.Errorf("%d rows are there", n)
					}
					return no
				})
			},
			"the function": func(tx *db.Tx) error {
				return errors.Join(tx.ExecLater(ctx, "add", `UPDATE counter SET n = n + 1`), no)
			},
		} {
			if err := d.Tx(ctx, func(tx *db.Tx) error {
				tx.AfterCommit(func() { committed++ })
				return f(tx)
			}); !errors.Is(err, no) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		err := d.RowsTx(ctx, func(tx *db.Tx) error {
			if err := tx.ExecLater(ctx, "add", `UPDATE counter SET n = n + 1`); err != nil {
				return err
			}
			return tx.InsertLater(ctx, "store one twice", "counter", []string{"id", "n"}, [][]any{{"a", 1}})
		})
		if !db.IsDuplicate(err) || !strings.Contains(err.Error(), "store one twice") {
			t.Errorf("a key that is there: got %v", err)
		}
		if n := count(); n != 24 || committed != 1 {
			t.Errorf("the sum is %d after what failed, not 24, and %d were told of a commit", n, committed)
		}
		// The connections are as good as before.
		for i := range 20 {
			must(t, d.Tx(ctx, func(tx *db.Tx) error {
				return tx.ExecLater(ctx, "add", `UPDATE counter SET n = n + $1 WHERE id = 'b'`, int64(i%2))
			}))
		}
		if n := count(); n != 34 {
			t.Errorf("the sum is %d in the end, not 34", n)
		}
	})
}

// TestLaterCutOff has the server end the session between a statement and the commit
// that were sent together: what was sent is not there, it is tried again, and the
// caller hears that the database does not answer.
func TestLaterCutOff(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	makeTable(t, d)
	ctx := t.Context()
	tries := 0
	cut := func(times int) error {
		tries = 0
		return d.Tx(ctx, func(tx *db.Tx) error {
			tries++
			if err := tx.InsertLater(ctx, "store a counter", "counter", []string{"id", "n"}, [][]any{{fmt.Sprint("cut", times), 1}}); err != nil {
				return err
			}
			if tries > times {
				return nil
			}
			return tx.ExecLater(ctx, "cut off", `SELECT pg_terminate_backend(pg_backend_pid())`)
		})
	}
	if err := cut(1); err != nil || tries != 2 {
		t.Errorf("cut off once: %v after %d tries, want it done by the second", err, tries)
	}
	if err := cut(1 << 30); fault.KindOf(err) != fault.Unavailable || tries < 2 {
		t.Errorf("cut off each time: %v after %d tries", err, tries)
	}
	var n int64
	must(t, d.Read(ctx, func(tx *db.Tx) error {
		_, err := tx.Get(ctx, `SELECT COUNT(*) FROM counter`, nil, &n)
		return err
	}))
	if n != 1 {
		t.Errorf("%d are stored, want that of the second try alone", n)
	}
}

// TestZeros stores rows some of whose columns are 0, false or empty, in all rows or
// in some, and reads them again.
func TestZeros(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		must(t, d.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TABLE zeros (id TEXT PRIMARY KEY, name TEXT NOT NULL, n BIGINT NOT NULL, yes BOOLEAN NOT NULL, body BYTEA NOT NULL)`)
			return err
		}))
		columns := []string{"id", "name", "n", "yes", "body"}
		var want []string
		for kind := range 8 {
			for _, size := range []int{1, 3, 8, 20} {
				var rows [][]any
				for i := range size {
					r := []any{fmt.Sprintf("%d-%02d-%02d", kind, size, i), "", 0, false, []byte{}}
					if kind&1 != 0 {
						r[1] = "name"
					}
					if kind&2 != 0 && i == size-1 {
						r[2] = 7
					}
					if kind&4 != 0 {
						r[3] = true
					}
					rows = append(rows, r)
					want = append(want, fmt.Sprint(r...))
				}
				must(t, d.Tx(ctx, func(tx *db.Tx) error { return tx.Insert(ctx, "zeros", columns, rows) }))
			}
		}
		var got []string
		must(t, d.Read(ctx, func(tx *db.Tx) error {
			got = nil
			return tx.Query(ctx, `SELECT id, name, n, yes, body FROM zeros`, nil, func(row db.Row) error {
				var id, name string
				var n int
				var yes bool
				var body []byte
				err := row.Scan(&id, &name, &n, &yes, &body)
				got = append(got, fmt.Sprint(id, name, n, yes, body))
				return err
			})
		}))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %d rows\n%q, want\n%q", len(got), got, want)
		}
	})
}
