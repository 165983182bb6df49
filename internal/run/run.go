// Package run starts and stops background loops and elects, by a lease in the
// database, the one process that runs a loop which must run once.
//
// A [Group] starts its loops in order and stops them in reverse; a loop that
// returns before it was asked to stops the whole group, because a process
// with half its loops is worse than one its supervisor restarts.
//
// # Leases
//
// An [Elector] holds the leases of its process, and takes those that are free:
//
//	free ──take──▶ held ──renewed every renewEvery──▶ held
//	                │ not confirmed for giveUp: the loop is canceled
//	                │ owner without a session for orphaned: another takes it
//	                ├ not renewed for leaseTime: another takes it
//	                └ the loop begins no round in its time: given up
//
// Time is the database's, so that a clock that jumps gives nobody a lease. A
// process that was killed leaves no session at the database, which is seen at
// once; one that is cut off leaves it open, and its lease is waited for. A
// process that is started again with the same folder ([OpenInstance]) has its
// leases at once.
//
// A loop says when it begins a round ([core.Round]). One that does not begin the next
// in its time is canceled and its lease given up, so that another process does
// its work; if it does not even end, its process does.
//
// Each time a lease changes hands its term grows. Transactions of the loop
// under a lease begin with a look at the term (a fence, [db.Fenced]): what a
// process does that stood still while another took its lease is refused by the
// database. A lease is thus held by one process at a time, in the order of the
// database's transactions, whatever a process believes.
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
