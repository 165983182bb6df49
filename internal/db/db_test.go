package db_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/fault"
)

func makeTable(t *testing.T, d *db.DB) {
	t.Helper()
	err := d.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `CREATE TABLE counter (id TEXT PRIMARY KEY, n BIGINT NOT NULL CHECK (n >= 0))`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTxLosesNoWrite(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*db.DB, context.Context, func(*db.Tx) error) error{"Tx": (*db.DB).Tx, "RowsTx": (*db.DB).RowsTx, "TxOn": onCounter} {
		t.Run(name, func(t *testing.T) { losesNoWrite(t, run) })
	}
}

func onCounter(d *db.DB, ctx context.Context, fn func(*db.Tx) error) error {
	return d.TxOn(ctx, "counter", fn)
}

// Others write while it looks, each time if they can: they cannot for ever.
func TestTxOnIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	d, ctx := dbtest.Postgres(t), t.Context()
	makeTable(t, d)
	must(t, d.Tx(ctx, func(tx *db.Tx) error {
		return tx.Insert(ctx, "counter", []string{"id", "n"}, [][]any{{"a", 0}})
	}))
	more := func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE counter SET n = n + 1 WHERE id = 'a'`)
		return err
	}
	tries := 0
	var other sync.WaitGroup
	must(t, d.TxOn(ctx, "counter", func(tx *db.Tx) error {
		tries++
		var n int64
		if _, err := tx.Get(ctx, `SELECT n FROM counter WHERE id = 'a'`, nil, &n); err != nil {
			return err
		}
		wrote := make(chan struct{})
		other.Go(func() {
			defer close(wrote)
			if err := onCounter(d, ctx, more); err != nil {
				t.Error(err)
			}
		})
		wait := 10 * time.Second
		if tries > 4 {
			wait = 200 * time.Millisecond // what it cannot do it does not do later, either
		}
		select {
		case <-wrote:
		case <-time.After(wait):
		}
		_, err := tx.Exec(ctx, `UPDATE counter SET n = $1 WHERE id = 'a'`, n+1)
		return err
	}))
	other.Wait()
	if tries != 5 {
		t.Errorf("it was tried %d times", tries)
	}
	must(t, d.View(ctx, func(tx *db.Tx) error {
		var n int64
		if _, err := tx.Get(ctx, `SELECT n FROM counter WHERE id = 'a'`, nil, &n); err != nil || n != 6 {
			t.Errorf("the counter is %d (%v)", n, err)
		}
		return nil
	}))
}

func losesNoWrite(t *testing.T, run func(*db.DB, context.Context, func(*db.Tx) error) error) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		must(t, d.Tx(ctx, func(tx *db.Tx) error {
			return tx.Insert(ctx, "counter", []string{"id", "n"}, [][]any{{"a", 0}})
		}))
		var wg sync.WaitGroup
		var mu sync.Mutex
		ok := int64(0)
		for range 8 {
			wg.Go(func() {
				for range 25 {
					err := run(d, ctx, func(tx *db.Tx) error {
						var n int64
						if _, err := tx.Get(ctx, `SELECT n FROM counter WHERE id = $1`, []any{"a"}, &n); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, `UPDATE counter SET n = $2 WHERE id = $1`, "a", n+1)
						return err
					})
					if err == nil {
						mu.Lock()
						ok++
						mu.Unlock()
					} else if fault.KindOf(err) != fault.Conflict {
						t.Errorf("increment: %v", err)
					}
				}
			})
		}
		wg.Wait()
		var n int64
		must(t, d.View(ctx, func(tx *db.Tx) error {
			_, err := tx.Get(ctx, `SELECT n FROM counter WHERE id = 'a'`, nil, &n)
			return err
		}))
		if n != ok || ok == 0 {
			t.Errorf("counter = %d after %d acknowledged increments", n, ok)
		}
	})
}

// TestRowsTxIsNotDisturbedByReaders has a transaction read what another adds to
// while a third has read what it writes: a serializable one would be run again.
func TestRowsTxIsNotDisturbedByReaders(t *testing.T) {
	t.Parallel()
	d, ctx := dbtest.Postgres(t), t.Context()
	makeTable(t, d)
	insert := func(id string) func(*db.Tx) error {
		return func(tx *db.Tx) error { return tx.Insert(ctx, "counter", []string{"id", "n"}, [][]any{{id, 0}}) }
	}
	must(t, d.Tx(ctx, insert("a")))
	read := func(tx *db.Tx) error {
		return tx.Query(ctx, `SELECT id FROM counter WHERE n >= 0`, nil, func(db.Row) error { return nil })
	}
	runs := 0
	must(t, d.Tx(ctx, func(tx *db.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		return d.RowsTx(ctx, func(tx *db.Tx) error {
			runs++
			if err := read(tx); err != nil {
				return err
			}
			if err := d.Tx(ctx, insert(fmt.Sprint("b", runs))); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE counter SET n = 1 WHERE id = 'a'`)
			return err
		})
	}))
	if runs != 1 {
		t.Errorf("it was run %d times", runs)
	}
}

func TestTxRollsBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		boom := errors.New("boom")
		insert := func(id string, n int) func(*db.Tx) error {
			return func(tx *db.Tx) error {
				return tx.Insert(ctx, "counter", []string{"id", "n"}, [][]any{{id, n}})
			}
		}
		if err := d.Tx(ctx, func(tx *db.Tx) error {
			return errors.Join(insert("x", 1)(tx), tx.Emit(ctx, "s", nil), boom)
		}); !errors.Is(err, boom) {
			t.Errorf("error of the function = %v, want boom", err)
		}
		if err := d.Tx(ctx, func(tx *db.Tx) error {
			if err := insert("x", 1)(tx); err != nil {
				return err
			}
			panic("no")
		}); err == nil {
			t.Error("a panic committed")
		}
		must(t, d.Tx(ctx, insert("x", 1)))
		if err := d.Tx(ctx, insert("x", 1)); !db.IsDuplicate(err) {
			t.Errorf("second insert: %v, want a duplicate", err)
		}
		if err := d.Tx(ctx, insert("y", -1)); err == nil || db.IsDuplicate(err) {
			t.Errorf("negative: %v, want a CHECK violation", err)
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		if err := d.Tx(canceled, insert("z", 1)); err == nil {
			t.Error("a canceled caller committed")
		}
		rows, events := 0, 0
		must(t, d.View(ctx, func(tx *db.Tx) error {
			if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM counter`, nil, &rows); err != nil {
				return err
			}
			_, err := tx.Get(ctx, `SELECT COUNT(*) FROM outbox`, nil, &events)
			return err
		}))
		if rows != 1 || events != 0 {
			t.Errorf("%d rows and %d events remain, want 1 and 0", rows, events)
		}
	})
}

func TestGroupCommitIsolatesFailures(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				err := d.Tx(ctx, func(tx *db.Tx) error {
					if err := tx.Insert(ctx, "counter", []string{"id", "n"}, [][]any{{fmt.Sprint(i), i}}); err != nil {
						return err
					}
					if i%2 == 1 {
						return errors.New("odd")
					}
					return nil
				})
				if (err != nil) != (i%2 == 1) && fault.KindOf(err) != fault.Conflict {
					t.Errorf("transaction %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		must(t, d.View(ctx, func(tx *db.Tx) error {
			var odd int
			_, err := tx.Get(ctx, `SELECT COUNT(*) FROM counter WHERE n % 2 = 1`, nil, &odd)
			if odd != 0 {
				t.Errorf("%d failed transactions left rows", odd)
			}
			return err
		}))
	})
}

func TestInsertMany(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		rows := make([][]any, 5000) // several statements
		for i := range rows {
			rows[i] = []any{fmt.Sprint(i), i}
		}
		rows[4998][1], rows[4999][1] = int64(4998), "4999" // as an engine converts them
		must(t, d.Tx(ctx, func(tx *db.Tx) error { return tx.Insert(ctx, "counter", []string{"id", "n"}, rows) }))
		var sum int64
		must(t, d.View(ctx, func(tx *db.Tx) error {
			_, err := tx.Get(ctx, `SELECT CAST(SUM(n) AS BIGINT) FROM counter`, nil, &sum)
			return err
		}))
		if sum != 4999*5000/2 {
			t.Errorf("sum = %d", sum)
		}
		for _, ids := range [][]string{nil, {"7", "", "4999", "none", `"'`}} {
			var found []string
			must(t, d.View(ctx, func(tx *db.Tx) error {
				among, arg := tx.In(2, ids)
				return tx.Query(ctx, `SELECT id FROM counter WHERE n > $1 AND id `+among+` ORDER BY n`, []any{int64(6), arg}, func(row db.Row) error {
					found = append(found, "")
					return row.Scan(&found[len(found)-1])
				})
			}))
			if want := []string{"7", "4999"}; ids != nil && !slices.Equal(found, want) || ids == nil && found != nil {
				t.Errorf("among %q: %q, want %q", ids, found, want)
			}
		}
	})
}

func TestExecRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		var rows [][]any
		for i := range 300 { // several statements
			rows = append(rows, []any{fmt.Sprintf("id%03d", i), 1})
		}
		columns := []string{"id TEXT", "n BIGINT"}
		const add = `UPDATE counter SET n = counter.n + v.n FROM v WHERE counter.id = v.id`
		must(t, d.Tx(ctx, func(tx *db.Tx) error {
			if err := tx.Insert(ctx, "counter", []string{"id", "n"}, rows); err != nil {
				return err
			}
			changed, err := tx.ExecRows(ctx, columns, append([][]any{{"missing", 5}}, rows[:299]...), add)
			if changed != 299 {
				t.Errorf("%d rows changed, want 299", changed)
			}
			return err
		}))
		sum := int64(0)
		must(t, d.View(ctx, func(tx *db.Tx) error {
			if n, err := tx.ExecRows(ctx, columns, nil, add); n != 0 || err != nil {
				t.Errorf("no rows: %d, %v", n, err)
			}
			_, err := tx.Get(ctx, `SELECT CAST(SUM(n) AS BIGINT) FROM counter`, nil, &sum)
			return err
		}))
		if sum != 599 {
			t.Errorf("the sum is %d, want 599", sum)
		}
		err := d.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecRows(ctx, columns, [][]any{{"id000", -9}}, add)
			return err
		})
		if err == nil {
			t.Error("what the table forbids was written")
		}
	})
}

func TestSQLiteRefusesSecondProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "y.db")
	log := slog.New(slog.DiscardHandler)
	d, err := db.Open(t.Context(), db.Config{URL: path}, log)
	must(t, err)
	if _, err := db.Open(t.Context(), db.Config{URL: path}, log); fault.KindOf(err) != fault.Conflict {
		t.Errorf("second open: %v, want a conflict", err)
	}
	must(t, d.Close())
	d, err = db.Open(t.Context(), db.Config{URL: path}, log)
	must(t, err)
	must(t, d.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkTxOneRow(b *testing.B) {
	for _, e := range []struct {
		name string
		open func(testing.TB) *db.DB
	}{{"sqlite", dbtest.SQLite}, {"postgres", dbtest.Postgres}} {
		b.Run(e.name, func(b *testing.B) {
			d := e.open(b)
			ctx := b.Context()
			if err := d.Tx(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `CREATE TABLE r (id TEXT PRIMARY KEY, v TEXT NOT NULL)`)
				return err
			}); err != nil {
				b.Fatal(err)
			}
			var n int64
			var mu sync.Mutex
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					mu.Lock()
					n++
					id := n
					mu.Unlock()
					if err := d.Tx(ctx, func(tx *db.Tx) error {
						return tx.Insert(ctx, "r", []string{"id", "v"}, [][]any{{fmt.Sprint(id), "some text of a row"}})
					}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func TestInsertNew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		insert := func(ids ...string) (written []bool) {
			rows := make([][]any, len(ids))
			for i, id := range ids {
				rows[i] = []any{id, i}
			}
			must(t, d.Tx(ctx, func(tx *db.Tx) (err error) {
				written, err = tx.InsertNew(ctx, "counter", []string{"id", "n"}, 1, rows)
				return err
			}))
			return written
		}
		if got, want := insert("a", "b", "a"), []bool{true, true, false}; !slices.Equal(got, want) {
			t.Errorf("a, b, a: wrote %v, want %v", got, want)
		}
		if got, want := insert("c", "b", "d", "a", "e"), []bool{true, false, true, false, true}; !slices.Equal(got, want) {
			t.Errorf("c, b, d, a, e: wrote %v, want %v", got, want)
		}
		if got := insert(); len(got) != 0 {
			t.Errorf("nothing: wrote %v", got)
		}
		var ids, n int64
		must(t, d.View(ctx, func(tx *db.Tx) error {
			_, err := tx.Get(ctx, `SELECT COUNT(*), CAST(SUM(n) AS BIGINT) FROM counter`, nil, &ids, &n)
			return err
		}))
		if ids != 5 || n != 0+1+0+2+4 {
			t.Errorf("got %d rows of sum %d, want the first of each", ids, n)
		}
	})
}

func TestViewAfterClose(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Config{URL: filepath.Join(t.TempDir(), "x.db")}, slog.New(slog.DiscardHandler))
	must(t, err)
	nothing := func(*db.Tx) error { return nil }
	must(t, d.View(t.Context(), nothing))
	must(t, d.Close())
	if err := d.View(t.Context(), nothing); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("read after close: got %v, want unavailable", err)
	}
	if err := d.Tx(t.Context(), nothing); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("write after close: got %v, want unavailable", err)
	}
}
