package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// later is a statement of a transaction that was not sent yet.
type later struct {
	what  string // it does, for errors
	q     string
	args  []any
	reads bool                // it changes nothing
	check func(n int64) error // of how many rows it changed or read; nil: any
}

// InsertLater is Insert whose rows are written before anything else of the
// transaction is done, or in the end: on PostgreSQL, statements that nothing
// waits for go there, and come back, together. What fails then, fails the
// transaction; what says for errors what the rows are.
func (tx *Tx) InsertLater(ctx context.Context, what, table string, columns []string, rows [][]any) error {
	for len(rows) > 0 {
		q, args, n := tx.insert(table, columns, rows, "")
		if err := tx.do(ctx, later{what: what, q: q, args: args}); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// ExecLater is Exec with what is said at InsertLater.
func (tx *Tx) ExecLater(ctx context.Context, what, q string, args ...any) error {
	return tx.do(ctx, later{what: what, q: q, args: args})
}

// ExecRowsLater is ExecRows with what is said at InsertLater. check is told how
// many rows it changed.
func (tx *Tx) ExecRowsLater(ctx context.Context, what string, columns []string, rows [][]any, text string, check func(changed int64) error) error {
	if tx.conn == nil || len(rows) == 0 {
		n, err := tx.ExecRows(ctx, columns, rows, text)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return check(n)
	}
	changed := int64(0)
	for left := rows; len(left) > 0; {
		n := min(len(left), arrayRows)
		q, args, err := arraysText(columns, left[:n], text)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		left = left[n:]
		last := len(left) == 0
		tx.later = append(tx.later, later{what: what, q: q, args: args, check: func(n int64) error {
			if changed += n; last {
				return check(changed)
			}
			return nil
		}})
	}
	return nil
}

// CheckLater has check be told how many rows a query gives, which need not be
// known before the transaction ends.
func (tx *Tx) CheckLater(ctx context.Context, what, q string, args []any, check func(rows int64) error) error {
	return tx.do(ctx, later{what: what, q: q, args: args, reads: true, check: check})
}

// do does a statement now or later.
func (tx *Tx) do(ctx context.Context, l later) error {
	if tx.conn != nil {
		tx.later = append(tx.later, l)
		return nil
	}
	n := int64(0)
	var err error
	if l.reads {
		err = tx.Query(ctx, l.q, l.args, func(Row) error { n++; return nil })
	} else {
		n, err = tx.Exec(ctx, l.q, l.args...)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.what, err)
	}
	if l.check != nil {
		return l.check(n)
	}
	return nil
}

// session runs the statements of a transaction on PostgreSQL: first those that
// are to be done later.
type session struct{ tx *Tx }

func (s session) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	if err := s.tx.flush(ctx, false); err != nil {
		return nil, err
	}
	return s.tx.conn.ExecContext(ctx, q, args...)
}

func (s session) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	if slices.ContainsFunc(s.tx.later, func(l later) bool { return !l.reads }) {
		if err := s.tx.flush(ctx, false); err != nil {
			return nil, err
		}
	}
	return s.tx.conn.QueryContext(ctx, q, args...)
}

// flush does what is to be done later, and commits with the same message if
// commit says so.
func (tx *Tx) flush(ctx context.Context, commit bool) error {
	if len(tx.later) == 0 && !commit {
		return nil
	}
	list := tx.later
	tx.later = nil
	return tx.conn.Raw(func(c any) error { return send(ctx, c.(*stdlib.Conn).Conn(), list, commit) })
}

// end commits what fn left.
func (tx *Tx) end(ctx context.Context) error {
	if slices.ContainsFunc(tx.later, func(l later) bool { return l.check != nil }) {
		if err := tx.flush(ctx, false); err != nil {
			return err
		}
	}
	return tx.flush(ctx, true)
}

// unknown adds to err, of something that a commit was sent with, that nobody knows
// whether it was done. If the server refused what came before the commit, that
// is known.
func unknown(ctx context.Context, err error, before bool) error {
	var refused *pgconn.PgError
	if !isGone(ctx, err) || before && errors.As(err, &refused) {
		return err
	}
	return errors.Join(errUnknown, err)
}

// send sends statements together and looks at what came of each.
func send(ctx context.Context, c *pgx.Conn, list []later, commit bool) (err error) {
	described, built, anew := make([]*pgconn.StatementDescription, len(list)), make([]pgx.ExtendedQueryBuilder, len(list)), make([]bool, len(list))
	for i := range list {
		l := &list[i]
		if _, anew[i] = first(l.args).(pgx.QueryExecMode); anew[i] { // see arraysText
			l.args = l.args[1:]
		}
		if described[i], err = c.Prepare(ctx, l.q, l.q); err == nil { // known to the connection but for the first time
			err = built[i].Build(c.TypeMap(), described[i], l.args)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.what, err)
		}
	}
	p, before := c.PgConn().StartPipeline(ctx), true
	defer func() {
		if commit {
			err = unknown(ctx, err, before)
		}
	}()
	defer func() {
		if cerr := p.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("end of %d statements: %w", len(list), cerr)
		}
	}()
	for i := range list {
		b := &built[i]
		if anew[i] {
			p.SendQueryParams(list[i].q, b.ParamValues, described[i].ParamOIDs, b.ParamFormats, b.ResultFormats)
		} else {
			p.SendQueryStatement(described[i], b.ParamValues, b.ParamFormats, b.ResultFormats)
		}
	}
	if commit {
		p.SendQueryParams("commit", nil, nil, nil, nil)
	}
	if err := p.Sync(); err != nil {
		return fmt.Errorf("send %d statements: %w", len(list), err)
	}
	for i := range list {
		n, err := done(p)
		if err == nil && list[i].check != nil {
			if err := list[i].check(n.RowsAffected()); err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", list[i].what, err)
		}
	}
	if commit {
		before = false
		tag, err := done(p)
		if err == nil && tag.String() != "COMMIT" {
			err = pgx.ErrTxCommitRollback
		}
		if err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}

func first(args []any) any {
	if len(args) == 0 {
		return nil
	}
	return args[0]
}

// done waits for the end of the next statement of a pipeline.
func done(p *pgconn.Pipeline) (pgconn.CommandTag, error) {
	res, err := p.GetResults()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	r, ok := res.(*pgconn.ResultReader)
	if !ok {
		return pgconn.CommandTag{}, fmt.Errorf("a statement was answered with %T", res)
	}
	return r.Close()
}

// begun are the texts that begin transactions.
var begun = map[sql.TxOptions]string{
	{Isolation: sql.LevelSerializable}:                   "begin isolation level serializable",
	{Isolation: sql.LevelRepeatableRead}:                 "begin isolation level repeatable read",
	{Isolation: sql.LevelRepeatableRead, ReadOnly: true}: "begin isolation level repeatable read read only",
}

// rollback ends a transaction that is not to be, if it is still open, or its
// connection.
func rollback(ctx context.Context, conn *sql.Conn) {
	_ = conn.Raw(func(c any) error { // the error that led here is the one to report
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadAfter)
		defer cancel()
		k := c.(*stdlib.Conn).Conn()
		if k.PgConn().TxStatus() == 'I' {
			return nil
		}
		if _, err := k.Exec(ctx, "rollback"); err != nil {
			return driver.ErrBadConn // it is closed, and not used again
		}
		return nil
	})
}
