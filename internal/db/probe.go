package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"yunhe.dev/yunhe/internal/fault"
)

// Probed is what a PostgreSQL server said.
type Probed struct {
	Version string // as it writes it
	Number  int    // 150004 is 15.4
	Time    time.Time
	// Connections in use, of so many.
	Connections, MaxConnections int
	Bytes                       int64 // of the database
	ReadOnly                    bool  // a standby
}

// Probe asks a PostgreSQL server and changes nothing. Kinds: Invalid if url is
// not one, Unavailable.
func Probe(ctx context.Context, url string) (p Probed, err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return p, fault.New(fault.Invalid, "database.url is not a PostgreSQL connection string") // the error repeats the password
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return p, fault.Wrap(fault.Unavailable, err, "PostgreSQL at %s does not let us in", cfg.Host)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // read only
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int, clock_timestamp(),
		(SELECT count(*)::int FROM pg_stat_activity), current_setting('max_connections')::int, pg_database_size(current_database()), pg_is_in_recovery()`).
		Scan(&p.Version, &p.Number, &p.Time, &p.Connections, &p.MaxConnections, &p.Bytes, &p.ReadOnly)
	if err != nil {
		return p, fault.Wrap(fault.Unavailable, err, "PostgreSQL at %s does not answer", cfg.Host)
	}
	return p, nil
}
