package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// goneTime is how long what a lost connection interrupted is tried again:
	// a server that restarts is mostly back by then.
	goneTime = 2 * time.Second
	// deadAfter is how long a server, or a process at the server, may be silent
	// on the wire until its connection is given up.
	deadAfter = 5 * time.Second
)

// errUnknown says that a commit was sent and its answer did not come.
var errUnknown = errors.New("whether the transaction was committed is not known")

// outlive has connections to PostgreSQL end soon when the other side is cut
// off, on both sides: what a lost process left locked is free again.
func outlive(cfg *pgx.ConnConfig, name string) {
	d := net.Dialer{Timeout: deadAfter, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadAfter / 2, Interval: time.Second, Count: 3}, Control: giveUpUnsent}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}
	if cfg.ConnectTimeout == 0 || cfg.ConnectTimeout > deadAfter {
		cfg.ConnectTimeout = deadAfter
	}
	set := func(key, value string) {
		if _, ok := cfg.RuntimeParams[key]; !ok {
			cfg.RuntimeParams[key] = value
		}
	}
	set("application_name", name)
	// The first ends transactions of processes that stand still, the others
	// those of processes that are cut off.
	set("idle_in_transaction_session_timeout", "15000")
	// A connection keeps its plans: one made while a table was small would go on
	// to read it whole.
	set("enable_seqscan", "off")
	set("jit", "off") // what must be read whole counts as so dear that it would be compiled
	set("tcp_keepalives_idle", "3")
	set("tcp_keepalives_interval", "1")
	set("tcp_keepalives_count", "3")
	set("tcp_user_timeout", "5000")
}

// isGone reports whether err says that the server, or the way to it, was lost,
// or that it cannot write now.
func isGone(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		for _, class := range []string{
			"08",    // connections
			"53",    // its resources: disk, memory, connections
			"57P",   // it stops, crashed or starts
			"25P03", // this process stood still for too long in a transaction
			"25006", // it is a standby now
			"58030", // input or output failed
		} {
			if strings.HasPrefix(pg.Code, class) {
				return true
			}
		}
		return false
	}
	var connect *pgconn.ConnectError
	var wire *net.OpError
	return errors.As(err, &connect) || errors.As(err, &wire) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}
