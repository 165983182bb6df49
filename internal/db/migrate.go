package db

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"yunhe.dev/yunhe/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrateLock is the PostgreSQL advisory lock under which migrations run, so
// that processes that start together do not both create a table.
const migrateLock = 0x59554e4845 // "YUNHE"

// Migrate brings the tables of a component up to date. files holds
// migrations/NNNN_what.sql; they are forward-only. It is safe when several
// processes start at once.
func (d *DB) Migrate(ctx context.Context, component string, files fs.FS) error {
	dir, err := fs.Sub(files, "migrations")
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", component, err)
	}
	dialect := database.DialectSQLite3
	if d.engine == Postgres {
		dialect = database.DialectPostgres
		conn, err := d.sql.Conn(ctx)
		if err != nil {
			return fmt.Errorf("migrate %s: %w", component, err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", migrateLock); err != nil {
			return fmt.Errorf("lock migrations: %w", err)
		}
		defer func() {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", migrateLock) // ends with the connection in any case
		}()
	}
	store, err := database.NewStore(dialect, "goose_"+component)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", component, err)
	}
	steps, err := steps(dir)
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", component, err)
	}
	p, err := goose.NewProvider("", d.sql, nil, goose.WithStore(store), goose.WithDisableGlobalRegistry(true), goose.WithGoMigrations(steps...))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", component, err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fault.Wrap(fault.Internal, err, "the tables of %s cannot be brought up to date", component)
	}
	return nil
}

// up is how the text of a migration begins.
const up = "-- +goose Up\n"

// steps are the migrations of a folder. The engines take the text of one as it
// is: what goose reads it with takes as long as they do, and more with the race
// detector than many a test.
func steps(dir fs.FS) (all []*goose.Migration, err error) {
	files, err := fs.ReadDir(dir, ".")
	for _, f := range files {
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		text, err := fs.ReadFile(dir, f.Name())
		if err != nil {
			return nil, err
		}
		if sql, ok := strings.CutPrefix(string(text), up); !ok || strings.Contains(sql, "+goose") {
			return nil, fmt.Errorf("%s: it has to begin with %q, and to have nothing else for goose", f.Name(), up)
		}
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
			return nil
		}}, nil))
	}
	return all, err
}
