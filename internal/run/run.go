// Package run starts and stops background loops and elects, by a lease in the
// database, the one process that runs a loop which must run once.
//
// A [Group] starts its loops in order and stops them in reverse; a loop that
// returns before it was asked to stops the whole group, because a process
// with half its loops is worse than one its supervisor restarts.
//
// A lease ([Lead]) is held by at most one process: it is renewed well before
// it ends, and the loop under it is canceled if a renewal was not confirmed
// in time, before anyone else can take it. A process that was killed and is
// started again with the same folder ([OpenInstance]) has its leases at once;
// others wait until they end.
package run

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Init brings the tables of this package up to date.
func Init(ctx context.Context, d *db.DB) error { return d.Migrate(ctx, "run", migrations) }

// Loop runs until ctx ends and then returns nil. It leaves no goroutine behind.
type Loop func(ctx context.Context) error

// Group is a list of loops that live and die together.
type Group struct {
	log   *slog.Logger
	names []string
	loops []Loop
}

// NewGroup returns an empty group.
func NewGroup(log *slog.Logger) *Group { return &Group{log: log} }

// Add appends a loop.
func (g *Group) Add(name string, l Loop) {
	g.names = append(g.names, name)
	g.loops = append(g.loops, l)
}

// grace is how long one loop may take to stop.
const grace = 10 * time.Second

// Run runs all loops until ctx ends or one of them returns, then stops them
// in reverse order. It returns the error of the first loop that failed.
func (g *Group) Run(ctx context.Context) error {
	type end struct {
		i   int
		err error
	}
	ends := make(chan end, len(g.loops))
	cancels := make([]context.CancelFunc, len(g.loops))
	done := make([]chan struct{}, len(g.loops))
	for i, l := range g.loops {
		lctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancels[i], done[i] = cancel, make(chan struct{})
		go func() {
			err := guarded(lctx, l)
			close(done[i])
			ends <- end{i, err}
		}()
	}
	var first error
	select {
	case <-ctx.Done():
	case e := <-ends:
		first = fmt.Errorf("loop %s ended early: %w", g.names[e.i], errOr(e.err))
	}
	for i := len(g.loops) - 1; i >= 0; i-- {
		cancels[i]()
		select {
		case <-done[i]:
		case <-time.After(grace):
			g.log.Error("loop does not stop", "loop", g.names[i])
			first = errors.Join(first, fmt.Errorf("loop %s does not stop", g.names[i]))
		}
	}
	return first
}

func errOr(err error) error {
	if err == nil {
		return errors.New("no error given")
	}
	return err
}

func guarded(ctx context.Context, l Loop) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l(ctx)
}

const (
	leaseTime  = 10 * time.Second
	leaseRenew = 3 * time.Second
)

// Lead runs fn whenever this process, named me, holds the named lease, and
// again when it gets it back after losing it. No two processes may have one
// name at the same time. On SQLite, where there is one process, it runs fn at
// once. It returns when ctx ends or fn fails.
func Lead(ctx context.Context, d *db.DB, name, me string, log *slog.Logger, fn Loop) error {
	if d.Engine() == db.SQLite {
		return fn(ctx)
	}
	for ctx.Err() == nil {
		got, err := take(ctx, d, name, me)
		if err != nil {
			log.Warn("lease not taken", "lease", name, "error", err)
		}
		if got {
			log.Info("lease taken", "lease", name)
			if err := hold(ctx, d, name, me, fn); err != nil {
				return err
			}
			log.Info("lease ended", "lease", name)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(leaseRenew):
		}
	}
	return nil
}

// hold runs fn until it ends, ctx ends or the lease cannot be renewed.
func hold(ctx context.Context, d *db.DB, name, me string, fn Loop) error {
	fctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- guarded(fctx, fn) }()
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	good := time.Now()
	for {
		select {
		case err := <-ended:
			release(ctx, d, name, me)
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-tick.C:
			rctx, rcancel := context.WithTimeout(ctx, leaseRenew)
			ok, err := take(rctx, d, name, me)
			rcancel()
			if err == nil && ok {
				good = time.Now()
			} else if (err == nil && !ok) || time.Since(good) > leaseTime-2*leaseRenew {
				cancel()
				<-ended
				return nil
			}
		}
	}
}

// take gets or renews the lease. Time is the database clock's of this
// process; leases assume clocks within a second of each other.
func take(ctx context.Context, d *db.DB, name, me string) (bool, error) {
	var got bool
	err := d.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `INSERT INTO leases (name, owner, until) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET owner = $2, until = $3 WHERE leases.owner = $2 OR leases.until < $4`,
			name, me, db.Micros(tx.Now.Add(leaseTime)), db.Micros(tx.Now))
		got = n == 1
		return err
	})
	return got && err == nil, err
}

func release(ctx context.Context, d *db.DB, name, me string) {
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	// If this fails the lease ends by itself.
	_ = d.Tx(rctx, func(tx *db.Tx) error {
		_, err := tx.Exec(rctx, `DELETE FROM leases WHERE name = $1 AND owner = $2`, name, me)
		return err
	})
}
