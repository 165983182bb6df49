package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"yunhe.dev/yunhe/internal/fault"
)

// prepared is a SQLite connection that keeps its statements: parsing costs
// more than running most of ours. One caller uses it at a time.
type prepared struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func prepare(conn *sql.Conn) prepared { return prepared{conn, map[string]*sql.Stmt{}} }

// ExecContext runs a statement.
func (p prepared) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	st, err := p.statement(q)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// QueryContext runs a query.
func (p prepared) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	st, err := p.statement(q)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// maxStatements bounds the statements kept; texts are constants in our code,
// so it is a guard, not a cache policy.
const maxStatements = 512

func (p prepared) statement(q string) (*sql.Stmt, error) {
	if st, ok := p.stmts[q]; ok {
		return st, nil
	}
	if len(p.stmts) >= maxStatements {
		for k, st := range p.stmts {
			_ = st.Close() // only frees memory
			delete(p.stmts, k)
		}
	}
	// The statement outlives the call that needs it first.
	st, err := p.conn.PrepareContext(context.Background(), q)
	if err != nil {
		return nil, err
	}
	p.stmts[q] = st
	return st, nil
}

func (p prepared) close() error {
	var err error
	for _, st := range p.stmts {
		err = errors.Join(err, st.Close())
	}
	return errors.Join(err, p.conn.Close())
}

// discard closes the connection, with the transaction that may be open on it;
// after close, others of the process would be given it as it is.
func (p prepared) discard() {
	for _, st := range p.stmts {
		_ = st.Close() // before its connection, which it would look for
	}
	_ = p.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// readers are SQLite connections that are read from. They are kept, with
// their statements, and at most maxReaders are in use at once.
type readers struct {
	sql   *sql.DB
	slots chan struct{} // one taken by each that is in use

	mu     sync.Mutex // guards the fields below
	idle   []prepared
	closed bool
}

// maxReaders bounds the memory of SQLite's caches.
const maxReaders = 16

func newReaders(db *sql.DB) *readers {
	return &readers{sql: db, slots: make(chan struct{}, maxReaders)}
}

func (r *readers) take(ctx context.Context) (prepared, error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return prepared{}, ctx.Err()
	}
	r.mu.Lock()
	closed := r.closed
	if n := len(r.idle); n > 0 && !closed {
		p := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		return p, nil
	}
	r.mu.Unlock()
	if closed {
		<-r.slots
		return prepared{}, fault.New(fault.Unavailable, "the database is closed")
	}
	conn, err := r.sql.Conn(ctx)
	if err != nil {
		<-r.slots
		return prepared{}, fmt.Errorf("read connection: %w", err)
	}
	return prepare(conn), nil
}

// give takes a connection back; one that is not clean is closed.
func (r *readers) give(p prepared, clean bool) {
	r.mu.Lock()
	keep := clean && !r.closed
	if keep {
		r.idle = append(r.idle, p)
	}
	r.mu.Unlock()
	switch {
	case !clean:
		p.discard()
	case !keep:
		_ = p.close() // it is of no use any more
	}
	<-r.slots
}

// close waits for reads under way and closes all connections.
func (r *readers) close() error {
	r.mu.Lock()
	again := r.closed
	r.closed = true
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	if again {
		return nil
	}
	for range maxReaders {
		r.slots <- struct{}{}
	}
	for range maxReaders { // whoever comes now is told that it is closed
		<-r.slots
	}
	var err error
	for _, p := range idle {
		err = errors.Join(err, p.close())
	}
	return err
}
