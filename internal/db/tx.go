package db

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"yunhe.dev/yunhe/internal/core"
)

type runner interface {
	ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
}

// Tx is a transaction under way. It belongs to the function it was given to.
type Tx struct {
	// Now is the time of this transaction, in whole microseconds, UTC.
	Now time.Time

	db    *DB
	run   runner
	conn  *sql.Conn // of a transaction on PostgreSQL; else nil
	later []later   // not sent yet; see InsertLater
	emits int
	after []func()
}

// Engine returns the kind of database in use.
func (tx *Tx) Engine() Engine { return tx.db.engine }

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	if tx.db.engine == SQLite {
		q = lite(q)
	}
	res, err := tx.run.ExecContext(ctx, q, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query runs a query and calls scan for each row. An error of scan ends it.
func (tx *Tx) Query(ctx context.Context, q string, args []any, scan func(row Row) error) error {
	if tx.db.engine == SQLite {
		q = lite(q)
	}
	rows, err := tx.run.QueryContext(ctx, q, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := scan(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Get runs a query that gives at most one row and scans it into dest. It
// reports whether there was one.
func (tx *Tx) Get(ctx context.Context, q string, args []any, dest ...any) (found bool, err error) {
	err = tx.Query(ctx, q, args, func(row Row) error {
		found = true
		return row.Scan(dest...)
	})
	return found, err
}

// Row is one row of an answer.
type Row interface {
	Scan(dest ...any) error
}

// statementRows are the numbers of rows that one INSERT may have: few, so
// that the engine keeps each text prepared, and within its limits on
// parameters. The largest that is not too many is taken.
var statementRows = []int{128, 64, 32, 16, 8, 4, 2, 1}

// arrayRows is how many rows a statement has at most on PostgreSQL, where they
// are sent as an array for each column: one text, and one way to the server,
// whatever their number.
const arrayRows = 4096

// Insert writes rows into table, many per statement. Each row has one value
// per column.
func (tx *Tx) Insert(ctx context.Context, table string, columns []string, rows [][]any) error {
	return tx.insertAll(ctx, table, columns, rows, "")
}

// InsertMissing is Insert that passes over rows whose key is there.
func (tx *Tx) InsertMissing(ctx context.Context, table string, columns []string, rows [][]any) error {
	return tx.insertAll(ctx, table, columns, rows, " ON CONFLICT DO NOTHING")
}

func (tx *Tx) insertAll(ctx context.Context, table string, columns []string, rows [][]any, suffix string) error {
	for len(rows) > 0 {
		q, args, n := tx.insert(table, columns, rows, suffix)
		if _, err := tx.run.ExecContext(ctx, q, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insert is the next statement that writes some of the rows, and how many.
func (tx *Tx) insert(table string, columns []string, rows [][]any, suffix string) (q string, args []any, n int) {
	if part := rows[:min(len(rows), arrayRows)]; tx.db.engine == Postgres && len(part) > 1 {
		if types, args, ok := arrays(part); ok {
			q, args := unnestInto(table, columns, types, args, zeros(part), suffix)
			return q, args, len(part)
		}
	}
	n, args = statement(rows)
	return insertText(tx.db.engine, table, columns, n, suffix), args, n
}

// fewRows are so few that nothing is gained by leaving columns out of them.
const fewRows = 8

// zeros has a bit for each column that is 0, false or empty in all of the rows;
// none if all columns are.
func zeros(rows [][]any) (z uint64) {
	if len(rows) < fewRows {
		return 0
	}
	defer func() {
		if bits.OnesCount64(z) == len(rows[0]) {
			z = 0
		}
	}()
	for i, v := range rows[0][:min(len(rows[0]), 64)] {
		if v != "" && v != int64(0) && v != 0 && v != false {
			continue
		}
		if !slices.ContainsFunc(rows, func(r []any) bool { return r[i] != v }) {
			z |= 1 << i
		}
	}
	return z
}

// unnestInto is the text that inserts rows given as arrays, those of columns that
// are nothing but zeros left out: PostgreSQL takes longer for each array than for
// all that is done with its values.
func unnestInto(table string, columns, types []string, args []any, zeros uint64, suffix string) (string, []any) {
	key := unnestKey{table, strings.Join(columns, ", "), strings.Join(types, ", "), suffix, zeros}
	var q string
	if known, ok := unnestTexts.Load(key); ok {
		q = known.(string)
	} else if zeros == 0 || unnestKinds.Add(1) <= maxKinds {
		q = unnestText(key, columns, types)
		unnestTexts.Store(key, q)
	} else { // the engine keeps each text prepared
		return unnestInto(table, columns, types, args, 0, suffix)
	}
	given := make([]any, 0, len(args))
	for i, a := range args {
		if zeros>>i&1 == 0 {
			given = append(given, a)
		}
	}
	return q, given
}

// unnestKey names such a text.
type unnestKey struct {
	table, columns, types, suffix string
	zeros                         uint64
}

// unnestTexts caches them; there are at most maxKinds that leave something out.
var (
	unnestTexts sync.Map
	unnestKinds atomic.Int64
)

const maxKinds = 256

func unnestText(key unnestKey, columns, types []string) string {
	literals := map[string]string{"TEXT": "''", "BIGINT": "0", "BOOLEAN": "FALSE"}
	values, names := make([]string, len(columns)), []string(nil)
	var given []string
	for i, c := range columns {
		if key.zeros>>i&1 == 0 {
			values[i], names, given = "v."+c, append(names, c), append(given, types[i])
		} else {
			values[i] = literals[types[i]]
		}
	}
	return "INSERT INTO " + key.table + " (" + key.columns + ") SELECT " + strings.Join(values, ", ") + " FROM " + unnest(given) + " AS v (" + strings.Join(names, ", ") + ")" + key.suffix
}

// arrays are the rows' columns, each a slice of its own, and their types at
// PostgreSQL. It reports whether all values of a column are of one type that
// it knows.
func arrays(rows [][]any) (types []string, columns []any, ok bool) {
	types, columns, ok = make([]string, len(rows[0])), make([]any, len(rows[0])), true
	for i, v := range rows[0] {
		switch v.(type) {
		case string:
			types[i], columns[i] = "TEXT", column[string](rows, i, &ok)
		case int64:
			types[i], columns[i] = "BIGINT", column[int64](rows, i, &ok)
		case int:
			types[i], columns[i] = "BIGINT", column[int](rows, i, &ok)
		case bool:
			types[i], columns[i] = "BOOLEAN", column[bool](rows, i, &ok)
		case []byte:
			types[i], columns[i] = "BYTEA", column[[]byte](rows, i, &ok)
		default:
			ok = false
		}
	}
	return types, columns, ok
}

func column[T any](rows [][]any, i int, ok *bool) []T {
	out := make([]T, len(rows))
	for k, r := range rows {
		v, is := r[i].(T)
		out[k], *ok = v, *ok && is
	}
	return out
}

// unnest is a table of parameters that are arrays of the given types.
func unnest(types []string) string {
	var b strings.Builder
	for i, t := range types {
		fmt.Fprintf(&b, ", CAST($%d AS %s[])", i+1, t)
	}
	return "unnest(" + b.String()[2:] + ")"
}

// In is the condition that a column is one of ids, to be written behind its
// name, and the value of its parameter, which is the n-th.
func (tx *Tx) In(n int, ids []string) (condition string, arg any) {
	if tx.db.engine == Postgres {
		return fmt.Sprintf("= ANY(CAST($%d AS TEXT[]))", n), ids
	}
	list, err := json.Marshal(ids)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return fmt.Sprintf("IN (SELECT value FROM json_each($%d))", n), string(list)
}

// InsertNew is Insert that passes over rows whose key, the first keys columns,
// is there already, also from this very call. The key must be a unique one of
// the table, of strings. It reports which of the rows it wrote.
func (tx *Tx) InsertNew(ctx context.Context, table string, columns []string, keys int, rows [][]any) (written []bool, err error) {
	key := strings.Join(columns[:keys], ", ")
	suffix := " ON CONFLICT (" + key + ") DO NOTHING RETURNING " + key
	fresh := map[string]bool{}
	got, dest := make([]string, keys), make([]any, keys)
	for i := range got {
		dest[i] = &got[i]
	}
	for rest := rows; len(rest) > 0; {
		q, args, n := tx.insert(table, columns, rest, suffix)
		res, err := tx.run.QueryContext(ctx, q, args...)
		if err != nil {
			return nil, err
		}
		for res.Next() {
			if err := res.Scan(dest...); err != nil {
				return nil, errors.Join(err, res.Close())
			}
			fresh[fmt.Sprintf("%q", got)] = true
		}
		if err := errors.Join(res.Err(), res.Close()); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	written = make([]bool, len(rows))
	for i, r := range rows {
		for j := range keys {
			got[j] = r[j].(string)
		}
		k := fmt.Sprintf("%q", got)
		written[i] = fresh[k]
		delete(fresh, k) // the next of the same key was passed over
	}
	return written, nil
}

// statement returns how many of the rows the next statement takes, and their values.
func statement(rows [][]any) (n int, args []any) {
	for _, n = range statementRows {
		if n <= len(rows) {
			break
		}
	}
	args = make([]any, 0, n*len(rows[0]))
	for _, r := range rows[:n] {
		args = append(args, r...)
	}
	return n, args
}

// insertKey names the text of a statement for many rows.
type insertKey struct {
	engine                 Engine
	table, columns, suffix string
	rows                   int
}

// insertTexts caches them: making one costs more than running it.
var insertTexts sync.Map

func insertText(engine Engine, table string, columns []string, n int, suffix string) string {
	key := insertKey{engine, table, strings.Join(columns, ", "), suffix, n}
	if q, ok := insertTexts.Load(key); ok {
		return q.(string)
	}
	var b strings.Builder
	b.WriteString("INSERT INTO " + table + " (" + key.columns + ") VALUES ")
	p := 1
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		for j := range columns {
			if j > 0 {
				b.WriteByte(',')
			}
			if engine == SQLite {
				// Not ?1: the driver looks the name of each parameter up in a list
				// of all of them, which took half the time of a batch.
				b.WriteByte('?')
			} else {
				fmt.Fprintf(&b, "$%d", p)
			}
			p++
		}
		b.WriteByte(')')
	}
	b.WriteString(suffix)
	q := b.String()
	insertTexts.Store(key, q)
	return q
}

// ExecRows runs a statement for many rows at once, and returns how many it
// changed. The text sees the rows as the table v, whose columns are given as
// "name TYPE":
//
//	tx.ExecRows(ctx, []string{"id TEXT", "n BIGINT"}, rows, "UPDATE t SET used = used + v.n FROM v WHERE t.id = v.id")
func (tx *Tx) ExecRows(ctx context.Context, columns []string, rows [][]any, text string) (changed int64, err error) {
	for len(rows) > 0 {
		var q string
		n, args := min(len(rows), arrayRows), []any(nil)
		if tx.db.engine == Postgres {
			if q, args, err = arraysText(columns, rows[:n], text); err != nil {
				return changed, err
			}
		} else {
			n, args = statement(rows)
			q = rowsText(columns, n, text)
		}
		res, err := tx.run.ExecContext(ctx, q, args...)
		if err != nil {
			return changed, err
		}
		some, err := res.RowsAffected()
		if err != nil {
			return changed, err
		}
		changed += some
		rows = rows[n:]
	}
	return changed, nil
}

// names are the parts of "name TYPE".
func names(columns []string) (names, types []string) {
	for _, c := range columns {
		name, kind, _ := strings.Cut(c, " ")
		names, types = append(names, name), append(types, kind)
	}
	return names, types
}

// arraysText is planned anew each time: how it is best run depends on how many
// rows there are, and on how large the table has grown since.
func arraysText(columns []string, rows [][]any, text string) (string, []any, error) {
	_, args, ok := arrays(rows)
	if !ok {
		return "", nil, fmt.Errorf("rows of %s have values of other types, the first %v", strings.Join(columns, ", "), rows[0])
	}
	names, types := names(columns)
	return "WITH v (" + strings.Join(names, ", ") + ") AS (SELECT * FROM " + unnest(types) + ") " + text, append([]any{pgx.QueryExecModeCacheDescribe}, args...), nil
}

// rowsText is for SQLite.
func rowsText(columns []string, n int, text string) string {
	key := insertKey{engine: SQLite, columns: strings.Join(columns, ", "), suffix: text, rows: n}
	if q, ok := insertTexts.Load(key); ok {
		return q.(string)
	}
	names, _ := names(columns)
	row := "(" + strings.Join(slices.Repeat([]string{"?"}, len(columns)), ",") + ")" // not ?1: see insertText
	q := "WITH v (" + strings.Join(names, ", ") + ") AS (VALUES " + strings.Join(slices.Repeat([]string{row}, n), ",") + ") " + text
	insertTexts.Store(key, q)
	return q
}

// SkipLocked is appended to a SELECT that claims work: on PostgreSQL other
// claimants pass over the rows, on SQLite there is one writer.
func (tx *Tx) SkipLocked() string {
	if tx.db.engine == Postgres {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// Emit appends an event to the outbox. It is published at least once after
// the commit, and never if the transaction does not commit.
func (tx *Tx) Emit(ctx context.Context, subject string, payload []byte) error {
	tx.emits++
	if payload == nil {
		payload = []byte{} // nil would be NULL
	}
	return tx.ExecLater(ctx, "append event "+subject, `INSERT INTO outbox (event_id, subject, payload, at) VALUES ($1, $2, $3, $4)`,
		core.NewID("evt"), subject, payload, Micros(tx.Now))
}

// AfterCommit calls f once the transaction is durable; never if it is not.
// f must not block.
func (tx *Tx) AfterCommit(f func()) { tx.after = append(tx.after, f) }

func (tx *Tx) committed() {
	if tx.emits > 0 {
		select {
		case tx.db.emitted <- struct{}{}:
		default:
		}
	}
	for _, f := range tx.after {
		f()
	}
}

// Micros is how times are stored: microseconds since 1970, 0 for no time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Time is the reverse of Micros.
func Time(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func stack() string { return string(debug.Stack()) }
