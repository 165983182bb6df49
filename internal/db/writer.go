package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"yunhe.dev/yunhe/internal/fault"
)

// writer owns SQLite's one writing connection. Callers queue; it takes all
// that wait (at most maxGroup), runs each between savepoints and commits them
// together. It runs in the goroutine of whichever caller finds it idle, so
// there is nothing to start or stop.
type writer struct {
	prepared // used only by the caller that is busy
	db       *DB

	mu     sync.Mutex // guards the fields below
	queue  []*call
	busy   bool
	closed bool
	idle   sync.Cond
}

type call struct {
	ctx  context.Context
	fn   func(*Tx) error
	tx   *Tx
	err  error
	done chan struct{}
	lead bool // set before done is closed if this caller shall run the next group
}

func newWriter(conn *sql.Conn, d *DB) *writer {
	w := &writer{prepared: prepare(conn), db: d}
	w.idle.L = &w.mu
	return w
}

func (w *writer) do(ctx context.Context, fn func(*Tx) error) error {
	c := &call{ctx: ctx, fn: fn, done: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return fault.New(fault.Unavailable, "the database is closed")
	}
	w.queue = append(w.queue, c)
	if w.busy {
		w.mu.Unlock()
		<-c.done // groups are short; a canceled caller is skipped when its turn comes
		if !c.lead {
			return c.err
		}
		w.mu.Lock()
	}
	w.busy = true
	group := w.queue
	if len(group) > maxGroup {
		group = group[:maxGroup]
	}
	w.queue = w.queue[len(group):]
	w.mu.Unlock()

	w.commit(group)

	w.mu.Lock()
	if len(w.queue) > 0 {
		next := w.queue[0]
		next.lead = true
		close(next.done)
	} else {
		w.queue, w.busy = nil, false
		w.idle.Broadcast()
	}
	w.mu.Unlock()
	for _, o := range group {
		if o != c {
			close(o.done)
		}
	}
	return c.err
}

// commit runs the group in one SQLite transaction and sets each call's err.
func (w *writer) commit(group []*call) {
	// Statements must not be interrupted: SQLite would roll back the whole
	// group. A caller that gave up is skipped before its turn.
	ctx := context.Background()
	fail := func(err error) {
		for _, c := range group {
			if c.err == nil {
				c.err = err
			}
		}
	}
	if _, err := w.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		fail(fault.Wrap(fault.Unavailable, err, "the database cannot be written"))
		return
	}
	for _, c := range group {
		if c.err = c.ctx.Err(); c.err == nil {
			c.err = w.one(ctx, c)
		}
		if noRoom(c.err) {
			c.err = fault.Wrap(fault.Unavailable, c.err, "the database cannot be written")
		}
	}
	if _, err := w.ExecContext(ctx, "COMMIT"); err != nil {
		_, rerr := w.ExecContext(ctx, "ROLLBACK")
		fail(fault.Wrap(fault.Unavailable, errors.Join(err, rerr), "the database cannot be written"))
		return
	}
	for _, c := range group {
		if c.err == nil {
			c.tx.committed()
		}
	}
}

// noRoom reports whether the disk is full, or does not do its work.
func noRoom(err error) bool {
	var lite *sqlite.Error
	if !errors.As(err, &lite) {
		return false
	}
	code := lite.Code() & 0xff // without what exactly it was
	return code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR
}

func (w *writer) one(ctx context.Context, c *call) error {
	if _, err := w.ExecContext(ctx, "SAVEPOINT one"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	c.tx = &Tx{db: w.db, run: w, Now: w.db.Now()}
	err := protect(c.fn, c.tx)
	if err != nil {
		if _, rerr := w.ExecContext(ctx, "ROLLBACK TO one"); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	if _, rerr := w.ExecContext(ctx, "RELEASE one"); rerr != nil && err == nil {
		err = fmt.Errorf("release savepoint: %w", rerr)
	}
	return err
}

// ExecContext and QueryContext take no notice of the caller's context; see commit.
func (w *writer) ExecContext(_ context.Context, q string, args ...any) (sql.Result, error) {
	return w.prepared.ExecContext(context.Background(), q, args...)
}

func (w *writer) QueryContext(_ context.Context, q string, args ...any) (*sql.Rows, error) {
	return w.prepared.QueryContext(context.Background(), q, args...)
}

func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.busy {
		w.idle.Wait()
	}
	return w.prepared.close()
}
