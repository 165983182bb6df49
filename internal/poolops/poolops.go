// Package poolops operates the accelerator pool: it takes the logs of nodes,
// configures and upgrades their components, says by rules what is wrong, and
// counts what is used.
//
// What it keeps true:
//
//   - What a node should be configured like has a generation; the node says which
//     it has taken. A node that is away takes it when it is back; one that joins is
//     another, also with the name of one that left.
//   - One upgrade at a time is not over. What it has come to is in the database: a
//     platform that starts again, also as what it was upgraded to, goes on with it.
//     A node is upgraded when it says that it runs the program, not before.
//   - Use is counted once: in the transaction that moves the time up to which it
//     is counted. One process counts, every [countEvery]; what a device computed
//     comes from what nodes report and, at its end, from the slice itself. While
//     no process counts, at most [gap] of time is counted; device time is not lost.
//   - What the rules find is told when asked (by alarms, which compares it with
//     what is open), and stored nowhere else.
package poolops

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/release"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service operates the pool. It is safe for concurrent use.
type Service struct {
	db      *db.DB
	ids     *identity.Service
	pools   *pools.Service
	logs    *logs.Log
	log     *slog.Logger
	feed    *bus.Feed
	blobs   *objects.Chunks
	version string // of the platform
	self    Program
	stirred chan struct{} // an upgrade was started or changed

	// Of the loop of upgrades.
	leaving   bool   // this process becomes another program
	problem   string // why it did not, or did and came back
	problemAt time.Time
}

// Process is what the service is told of the one it is in.
type Process struct {
	Version string // of the platform
	Self    Program
}

// Program is the program of this process, if it can become another; else nil.
type Program interface {
	Sum() string            // its SHA-256
	Folder() release.Folder // of programs
	// Become ends the process soon, and goes on as another program.
	Become(path string)
	// Back says why the program that this one became gave up; "": none did.
	Back() string
}

// ChangedSubject is the event that nodes are to be configured anew, or that a rule
// changed; its payload lists the nodes' IDs.
const ChangedSubject = "poolops.changed"

// New returns the service; its loops are Run, RunUpgrades and Watch.
func New(ctx context.Context, proc Process, d *db.DB, b *bus.Bus, ids *identity.Service, p *pools.Service, blobs *objects.Chunks, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "poolops", migrations); err != nil {
		return nil, err
	}
	log = log.With("component", "poolops")
	s := &Service{db: d, ids: ids, pools: p, logs: p.Logs(), log: log, feed: bus.NewFeed(b, ChangedSubject, log), blobs: blobs, version: proc.Version, self: proc.Self, stirred: make(chan struct{}, 1)}
	p.OnJoin(forgetTx)
	if s.self != nil {
		s.problem, s.problemAt = s.self.Back(), d.Now()
	}
	return s, nil
}

// Watch hears of what all processes change, until ctx ends.
func (s *Service) Watch(ctx context.Context) error { return s.feed.Run(ctx) }

const (
	countEvery = 15 * time.Second
	gap        = time.Minute
	purgeEvery = time.Hour
	// keepUse is how long use is kept.
	keepUse = 2 * 366 * 24 * time.Hour
)

// Run counts what is used and deletes what is old, until ctx ends. One process at
// a time runs it.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	var purged time.Time
	for {
		core.Round(ctx, countEvery)
		if err := s.Count(ctx); err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("use of the pool not counted, will try again", "error", err)
		}
		if now := s.db.Now(); now.Sub(purged) >= purgeEvery {
			purged = now
			if err := s.purge(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("old logs and use of the pool not deleted", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *Service) purge(ctx context.Context) error {
	if err := errors.Join(s.logs.Purge(ctx), s.pruneReleases(ctx)); err != nil {
		return err
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"pool_use", "pool_room"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE hour < $1`, db.Micros(tx.Now.Add(-keepUse))); err != nil {
				return fmt.Errorf("delete old use: %w", err)
			}
		}
		// Of nodes that left.
		nodes, err := s.pools.NodesTx(ctx, tx)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, n := range nodes {
			there[n.ID] = true
		}
		all, err := readComponents(ctx, tx)
		if err != nil {
			return err
		}
		for id := range all {
			if there[id] {
				continue
			}
			if err := forgetTx(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// forgetTx deletes what is known of a node that left.
func forgetTx(ctx context.Context, tx *db.Tx, node string) error {
	for _, table := range []string{"pool_components", "pool_programs"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE node_id = $1`, node); err != nil {
			return fmt.Errorf("forget pool node %s: %w", node, err)
		}
	}
	return nil
}
