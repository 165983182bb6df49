// Package db runs one SQL on SQLite and PostgreSQL.
//
// What it keeps true, on both engines:
//
//   - A transaction ([DB.Tx]) is serializable and durable: when Tx returns nil
//     its writes survive a power cut (SQLite: WAL with synchronous=FULL;
//     PostgreSQL: the server's synchronous_commit). [DB.RowsTx] isolates less,
//     for those that need no more.
//   - A function given to Tx may run more than once (conflicts are retried),
//     so it must have no effect but its writes.
//   - Events appended with [Tx.Emit] become visible to the relay if and only
//     if the transaction commits.
//
// SQLite has one writer. Transactions that wait for it are run one after the
// other between savepoints and share one commit, so that many small writers
// pay for one fsync together (group commit). Readers never wait: they see the
// last committed snapshot. Only one process may open a SQLite database; a
// lock file says so.
//
// On PostgreSQL the way there and back is what small statements cost. Those that
// nothing waits for ([Tx.InsertLater], [Tx.ExecLater], [Tx.ExecRowsLater],
// [Tx.CheckLater], [Tx.Emit]) go there together, with the commit if none of them is
// to be checked; one query alone needs no transaction ([DB.Read]). On SQLite they
// are done at once.
//
// Times are those of one clock ([Tx.Now]): on PostgreSQL the server's, so that
// they order what processes did whose own clocks differ, or jump.
//
// Queries are written once, with $N parameters; see the house rules on SQL.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/filelock"
)

// Engine is the kind of database in use.
type Engine string

// The engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Config says where the state is kept.
type Config struct {
	// URL is postgres://... or the path of a SQLite file.
	URL string
	// Now is the clock; nil means the server's on PostgreSQL, and on SQLite the
	// machine's, which goes on evenly though it is set.
	Now func() time.Time
	// Name of this process's sessions at PostgreSQL; at most 63 letters, digits
	// and underscores.
	Name string
}

// DB is a database. It is safe for concurrent use.
type DB struct {
	engine  Engine
	sql     *sql.DB // readers; on PostgreSQL writers too
	log     *slog.Logger
	now     func() time.Time
	clock   *clock   // nil: now is another
	writer  *writer  // SQLite only
	readers *readers // SQLite only
	lock    *os.File
	emitted chan struct{}
	turn    chan struct{} // taken by a transaction that met others too often
}

// maxGroup bounds the transactions that share one commit, so that the first
// of them does not wait long for the last.
const maxGroup = 128

// Open opens the database and brings the tables of this package up to date.
// It fails with fault.Unavailable if the database cannot be reached, and with
// fault.Conflict if another process holds the SQLite file.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*DB, error) {
	d := &DB{log: log.With("component", "db"), now: cfg.Now, emitted: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	var err error
	if strings.HasPrefix(cfg.URL, "postgres://") || strings.HasPrefix(cfg.URL, "postgresql://") {
		err = d.openPostgres(ctx, cfg.URL, cfg.Name)
	} else {
		if d.now == nil {
			d.now = newEven(d.log).now
		}
		err = d.openSQLite(ctx, strings.TrimPrefix(cfg.URL, "sqlite:"))
	}
	if err != nil {
		return nil, err
	}
	if err := d.Migrate(ctx, "db", migrations); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *DB) openPostgres(ctx context.Context, url, name string) error {
	d.engine = Postgres
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "database url is not a PostgreSQL connection string")
	}
	outlive(cfg, name)
	d.sql = stdlib.OpenDB(*cfg)
	d.sql.SetMaxOpenConns(16)
	d.sql.SetMaxIdleConns(16)
	if err := d.readClock(ctx); err != nil {
		return errors.Join(fault.Wrap(fault.Unavailable, err, "PostgreSQL at %s does not answer", cfg.Host), d.sql.Close())
	}
	return nil
}

// readClock has the time be the server's, unless the configuration has another.
func (d *DB) readClock(ctx context.Context) error {
	if d.now != nil {
		return d.sql.PingContext(ctx)
	}
	d.clock = &clock{log: d.log}
	d.now = d.clock.now
	for range 3 { // the first answer is that of a new connection
		if err := d.clock.ask(ctx, d.sql); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) openSQLite(ctx context.Context, path string) error {
	d.engine = SQLite
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot make the folder of the database %s", path)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot open the database lock %s.lock", path)
	}
	if err := filelock.Lock(lock); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = fault.New(fault.Conflict, "another process uses the database %s; with SQLite only one may run: stop it, or use PostgreSQL", path)
		}
		return errors.Join(err, lock.Close())
	}
	d.lock = lock
	// The file holds hashes and jobs of all tenants: only the owner may read it.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot open the database %s", path)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", path, err)
	}
	dsn := "file:" + uriPath.Replace(path) + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)" +
		"&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-16000)&_pragma=journal_size_limit(67108864)"
	if d.sql, err = sql.Open("sqlite", dsn); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	conn, err := d.sql.Conn(ctx)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot open the database %s", path)
	}
	d.writer = newWriter(conn, d)
	d.readers = newReaders(d.sql)
	return nil
}

// uriPath has a file's path mean itself in a URI of SQLite's.
var uriPath = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

// Engine returns the kind of database in use.
func (d *DB) Engine() Engine { return d.engine }

// Emitted is signaled after a commit that appended events.
func (d *DB) Emitted() <-chan struct{} { return d.emitted }

// Now returns the time of the database's clock, in whole microseconds, UTC.
func (d *DB) Now() time.Time { return d.now().UTC().Truncate(time.Microsecond) }

// Close waits for transactions under way and closes the database.
func (d *DB) Close() error {
	var err error
	if d.writer != nil {
		err = d.writer.close()
	}
	if d.readers != nil {
		err = errors.Join(err, d.readers.close())
	}
	err = errors.Join(err, d.sql.Close())
	if d.lock != nil {
		err = errors.Join(err, filelock.Unlock(d.lock))
	}
	return err
}

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.sql.PingContext(ctx); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the database does not answer")
	}
	return nil
}

// Tx runs fn in a serializable read-write transaction and commits it. If fn
// returns an error nothing is written and Tx returns that error. Conflicts are
// retried; fault.Conflict says that they did not end. So is what a lost
// connection interrupted before the commit; fault.Unavailable says that the
// database did not come back, or that the answer to the commit got lost: then
// the transaction may have been written.
func (d *DB) Tx(ctx context.Context, fn func(*Tx) error) error {
	return d.tx(ctx, sql.LevelSerializable, "", fn)
}

// TxOn is Tx for transactions most of which write one table, and so meet. One that was
// tried often has those wait that come to write that table before it is done, of all
// processes, so that it is not tried for ever among new ones. table is not escaped.
func (d *DB) TxOn(ctx context.Context, table string, fn func(*Tx) error) error {
	return d.tx(ctx, sql.LevelSerializable, table, fn)
}

// RowsTx is Tx for transactions whose decisions rest on rows that they write
// themselves, and on no other row being there or not: two of them that meet
// write one row, and the later is run again. What they only read may be as it
// was when they began. Nothing fails then because an index page was read that
// others add to: on PostgreSQL such a transaction, among many that insert, was
// run again for seconds.
func (d *DB) RowsTx(ctx context.Context, fn func(*Tx) error) error {
	return d.tx(ctx, sql.LevelRepeatableRead, "", fn)
}

func (d *DB) tx(ctx context.Context, level sql.IsolationLevel, on string, fn func(*Tx) error) error {
	if check, ok := ctx.Value(fence{}).(func(context.Context, *Tx) error); ok {
		free := fn
		fn = func(tx *Tx) error {
			if err := check(ctx, tx); err != nil {
				return err
			}
			return free(tx)
		}
	}
	if d.writer != nil {
		return d.writer.do(ctx, fn)
	}
	return d.pgTx(ctx, &sql.TxOptions{Isolation: level}, on, fn)
}

type fence struct{}

// Fenced returns a context whose transactions ([DB.Tx]) begin with check: if it, or
// what it has checked later ([Tx.CheckLater]), gives an error nothing is written.
func Fenced(ctx context.Context, check func(context.Context, *Tx) error) context.Context {
	return context.WithValue(ctx, fence{}, check)
}

// Read is View for one query: fn must ask no other. On PostgreSQL that is one way
// there and back, where View takes three.
func (d *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	if d.engine == Postgres {
		return d.pgTx(ctx, nil, "", fn)
	}
	return d.View(ctx, fn)
}

// View runs fn on a consistent snapshot. fn must not write.
func (d *DB) View(ctx context.Context, fn func(*Tx) error) error {
	if d.engine == Postgres {
		return d.pgTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, "", fn)
	}
	conn, err := d.readers.take(ctx)
	if err != nil {
		return err
	}
	// Nobody waits at this; and had it an end, it could have begun and say that it has not.
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "BEGIN"); err != nil {
		d.readers.give(conn, false)
		return fmt.Errorf("begin: %w", err)
	}
	err = protect(fn, &Tx{db: d, run: conn, Now: d.Now()})
	// The caller may be gone; the connection must be left clean all the same.
	_, rerr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if rerr != nil && err == nil {
		err = fmt.Errorf("end read: %w", rerr)
	}
	d.readers.give(conn, rerr == nil)
	return err
}

// conflictTime is how long conflicting transactions are tried again, at
// least conflictTries times.
const (
	conflictTime  = 5 * time.Second
	conflictTries = 12
	// conflictAlone is after how many tries a transaction waits for its turn
	// among those of this process that fail as often.
	conflictAlone = 4
)

// pgTx runs fn in a transaction or, if opt is nil, outside of one. In its turn
// nobody else writes the table on, if that is named.
func (d *DB) pgTx(ctx context.Context, opt *sql.TxOptions, on string, fn func(*Tx) error) error {
	begin, lock := time.Now(), ""
	for i := 0; ; i++ {
		if i == conflictAlone {
			// Those that meet again and again take turns, so that one of them wins.
			select {
			case d.turn <- struct{}{}:
				defer func() { <-d.turn }()
			case <-ctx.Done():
				return ctx.Err()
			}
			if on != "" { // before anything is read, which is then as those left it that had the table before
				lock = "; lock table " + on + " in exclusive mode"
			}
		}
		err := d.pgOnce(ctx, opt, lock, fn)
		switch {
		case isGone(ctx, err):
			if errors.Is(err, errUnknown) || time.Since(begin) > goneTime {
				return fault.Wrap(fault.Unavailable, err, "the database does not answer")
			}
		case err != nil && ctx.Err() != nil && fault.KindOf(err) == fault.Internal:
			return errors.Join(ctx.Err(), err) // the caller has gone, whatever the driver calls it
		case !isConflict(err):
			return err
		case i >= conflictTries && time.Since(begin) > conflictTime:
			return fault.Wrap(fault.Conflict, err, "too many writers at once, please try again")
		}
		// All of the pause is random: writers that met once must not meet again.
		pause := rand.N(time.Duration(2<<min(i, 6)) * time.Millisecond)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (d *DB) pgOnce(ctx context.Context, opt *sql.TxOptions, lock string, fn func(*Tx) error) error {
	if opt == nil {
		return protect(fn, &Tx{db: d, run: d.sql, Now: d.Now()})
	}
	conn, err := d.sql.Conn(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer conn.Close() // the pool has it again
	if _, err := conn.ExecContext(ctx, begun[*opt]+lock); err != nil {
		rollback(ctx, conn)
		return fmt.Errorf("begin: %w", err)
	}
	if d.clock != nil && d.clock.due() {
		if err := d.clock.ask(ctx, conn); err != nil {
			rollback(ctx, conn)
			return err
		}
	}
	tx := &Tx{db: d, conn: conn, Now: d.Now()}
	tx.run = session{tx}
	err = protect(fn, tx)
	if err == nil {
		err = tx.end(ctx)
	}
	if err != nil {
		rollback(ctx, conn)
		return err
	}
	tx.committed()
	return nil
}

// protect turns a panic of fn into an error, so that one caller's mistake
// neither leaves a transaction open nor stops the writer.
func protect(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in transaction: %v\n%s", p, stack())
		}
	}()
	return fn(tx)
}

func isConflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// IsDuplicate reports whether err says that a unique key exists already.
func IsDuplicate(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "23505"
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return lite.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || lite.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
	}
	return false
}

// rewritten caches SQLite's form of each query text.
var rewritten sync.Map

// lite turns $1 into ?1: SQLite numbers $1 by appearance, not by its digit.
func lite(q string) string {
	if r, ok := rewritten.Load(q); ok {
		return r.(string)
	}
	b := []byte(q)
	for i := range len(b) - 1 {
		if b[i] == '$' && b[i+1] >= '0' && b[i+1] <= '9' {
			b[i] = '?'
		}
	}
	r := string(b)
	rewritten.Store(q, r)
	return r
}
