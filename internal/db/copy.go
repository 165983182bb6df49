package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"modernc.org/sqlite"

	"yunhe.dev/yunhe/internal/fault"
)

// CopySQLite writes the database in the file from, which may be in use, to the
// file to, page by page as one transaction sees it, and checks it. Kinds:
// NotFound if there is no database, Unavailable, Internal if it is damaged.
func CopySQLite(ctx context.Context, from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "there is no database %s", from)
	}
	if err := withSQLite(ctx, from, func(conn *sql.Conn) error {
		return conn.Raw(func(c any) error {
			source, ok := c.(interface {
				NewBackup(to string) (*sqlite.Backup, error)
			})
			if !ok {
				return fmt.Errorf("the driver of SQLite cannot copy: %T", c)
			}
			b, err := source.NewBackup(to)
			if err != nil {
				return fault.Wrap(fault.Unavailable, err, "the copy %s cannot be made", to)
			}
			// All at once: the source is read in one transaction, and nobody waits for it.
			_, err = b.Step(-1)
			return errors.Join(err, b.Finish())
		})
	}); err != nil {
		return err
	}
	return CheckSQLite(ctx, to)
}

// CheckSQLite reads a database, which nobody uses, and returns fault.Internal
// if it is damaged.
func CheckSQLite(ctx context.Context, path string) error {
	return withSQLite(ctx, path, func(conn *sql.Conn) error {
		var said string
		if err := conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&said); err != nil {
			return fault.Wrap(fault.Internal, err, "the database %s cannot be read", path)
		}
		if said != "ok" {
			return fault.New(fault.Internal, "the database %s is damaged: %s", path, said)
		}
		return nil
	})
}

func withSQLite(ctx context.Context, path string, do func(*sql.Conn) error) (err error) {
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "_pragma=busy_timeout(10000)"}).String())
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	conn, err := d.Conn(ctx)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the database %s cannot be opened", path)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return do(conn)
}
