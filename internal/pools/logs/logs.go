// Package logs keeps the log of the accelerator pool: what the platform decides,
// and what nodes tell.
//
// What it keeps true:
//
//   - What a transaction does and what the log says of it are stored together.
//   - An entry of a node is kept once, however often it comes.
//   - The log is bounded: [Keep] by time and [most] entries, the oldest go first.
//   - A tenant sees what is about its own slices.
package logs

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Level of an entry; the numbers are the API's.
type Level int64

// The levels.
const (
	Debug Level = 1
	Info  Level = 2
	Warn  Level = 3
	Error Level = 4
)

var names = [5]string{"", "debug", "info", "warn", "error"}

func (l Level) String() string {
	if l < 0 || int(l) >= len(names) {
		return strconv.FormatInt(int64(l), 10)
	}
	return names[l]
}

// Platform is the source of what no node says.
const Platform = "platform"

// Entry says what happened.
type Entry struct {
	ID      string
	At      time.Time
	Level   Level
	Source  string // Platform, or a node
	Message string

	Node, Device, Slice, User, Tenant, Group string

	Details string // name=value, separated by blanks
}

const (
	// Keep is how long entries are kept.
	Keep = 30 * 24 * time.Hour
	// most entries are kept.
	most = 500_000
	// MostMessage and MostDetails are the characters that are kept of each.
	MostMessage, MostDetails = 300, 2000
	// MostExported entries go into a file.
	MostExported = 20_000
)

// Log is the log of the pool. It is safe for concurrent use.
type Log struct{ db *db.DB }

// New returns the log.
func New(ctx context.Context, d *db.DB) (*Log, error) {
	return &Log{d}, d.Migrate(ctx, "poollogs", migrations)
}

const columns = `log_id, at, level, source, message, node_id, device_id, slice_id, user_id, tenant_id, group_id, details`

var inserted = strings.Split(strings.ReplaceAll(columns, " ", "")+",lowered", ",")

// AddTx stores entries. One that has no ID is the platform's, of now; one whose ID
// is there already is passed over.
func (l *Log) AddTx(ctx context.Context, tx *db.Tx, entries ...Entry) error {
	rows := make([][]any, 0, len(entries))
	for _, e := range entries {
		if e.ID == "" {
			e.ID, e.At, e.Source = core.NewID("log"), tx.Now, Platform
		}
		e.Message, e.Details = clip(e.Message, MostMessage), clip(e.Details, MostDetails)
		rows = append(rows, []any{e.ID, db.Micros(e.At), int64(e.Level), e.Source, e.Message, e.Node, e.Device, e.Slice, e.User, e.Tenant, e.Group, e.Details, strings.ToLower(e.Message + "\n" + e.Details)})
	}
	if _, err := tx.InsertNew(ctx, "pool_logs", inserted, 1, rows); err != nil {
		return fmt.Errorf("store what the pool did: %w", err)
	}
	return nil
}

// clip keeps the first n characters, without what no entry may hold.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if utf8.RuneCountInString(s) > n {
		s = string([]rune(s)[:n])
	}
	return s
}

// Filter selects entries; what is empty selects all.
type Filter struct {
	Level             Level // at least
	From, To          time.Time
	Node, Slice, User string
	Text              string
}

func (f *Filter) check() error {
	var c core.Check
	c.Range("level", int64(f.Level), 0, int64(Error))
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		c.Add("to", "must be after from (%s), got %s", f.From.UTC().Format(time.RFC3339), f.To.UTC().Format(time.RFC3339))
	}
	if f.Node != "" {
		c.ID("node_id", f.Node)
	}
	c.Text("slice_id", f.Slice, false, 64, 0)
	c.Text("user_id", f.User, false, 128, 0)
	c.Text("text", f.Text, false, 200, 0)
	return c.Err()
}

// Search returns a page of the entries the caller may see, newest first.
func (l *Log) Search(ctx context.Context, f Filter, size int32, token string) (list []Entry, next string, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	before, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	list, err = l.read(ctx, f, before, n+1)
	if len(list) > n {
		list = list[:n]
		next = core.PageToken(strconv.FormatInt(db.Micros(list[n-1].At), 10), list[n-1].ID)
	}
	return list, next, err
}

// All returns the newest [MostExported] entries the caller may see, newest first.
func (l *Log) All(ctx context.Context, f Filter) ([]Entry, error) {
	return l.read(ctx, f, nil, MostExported)
}

func (l *Log) read(ctx context.Context, f Filter, before []string, n int) (list []Entry, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	var where []string
	var args []any
	add := func(cond string, v any) {
		args = append(args, v)
		where = append(where, strings.ReplaceAll(cond, "?", "$"+strconv.Itoa(len(args))))
	}
	add("level >= ?", int64(f.Level))
	if !f.From.IsZero() {
		add("at >= ?", db.Micros(f.From))
	}
	if !f.To.IsZero() {
		add("at < ?", db.Micros(f.To))
	}
	for _, x := range [][2]string{{"node_id", f.Node}, {"slice_id", f.Slice}, {"user_id", f.User}, {"tenant_id", core.CallerFrom(ctx).Tenant("")}} {
		if x[1] != "" {
			add(x[0]+" = ?", x[1])
		}
	}
	if f.Text != "" {
		escaped := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(strings.ToLower(f.Text))
		add(`lowered LIKE ? ESCAPE '\'`, "%"+escaped+"%")
	}
	if before != nil {
		at, err := strconv.ParseInt(before[0], 10, 64)
		if err != nil {
			_, err := core.ParsePageToken("!", 2)
			return nil, err
		}
		add("at <= ?", at)
		where = append(where, fmt.Sprintf("(at < $%d OR log_id < $%d)", len(args), len(args)+1))
		args = append(args, before[1])
	}
	args = append(args, int64(n))
	err = l.db.View(ctx, func(tx *db.Tx) error {
		list = nil
		return tx.Query(ctx, `SELECT `+columns+` FROM pool_logs WHERE `+strings.Join(where, " AND ")+` ORDER BY at DESC, log_id DESC LIMIT $`+strconv.Itoa(len(args)), args, func(row db.Row) error {
			var e Entry
			var at int64
			err := row.Scan(&e.ID, &at, &e.Level, &e.Source, &e.Message, &e.Node, &e.Device, &e.Slice, &e.User, &e.Tenant, &e.Group, &e.Details)
			e.At = db.Time(at)
			list = append(list, e)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of the pool: %w", err)
	}
	return list, nil
}

// Refused counts what was refused since a time.
func (l *Log) Refused(ctx context.Context, tx *db.Tx, since time.Time) (n int64, err error) {
	_, err = tx.Get(ctx, `SELECT COUNT(*) FROM pool_logs WHERE at >= $1 AND message LIKE '%refused'`, []any{db.Micros(since)}, &n)
	return n, err
}

// Purge deletes what is too old, or too much.
func (l *Log) Purge(ctx context.Context) error {
	return l.db.Tx(ctx, func(tx *db.Tx) error {
		var last int64
		if _, err := tx.Get(ctx, `SELECT at FROM pool_logs ORDER BY at DESC, log_id DESC LIMIT 1 OFFSET $1`, []any{int64(most)}, &last); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM pool_logs WHERE at <= $1`, max(last, db.Micros(tx.Now.Add(-Keep))))
		return err
	})
}
