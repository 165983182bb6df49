package pools

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
)

const (
	// roundEvery is how often the loop looks for what is over.
	roundEvery = 500 * time.Millisecond
	// brokenFor is how long a node may take to come back whose report broke off.
	brokenFor = time.Second
	// silence is how long a node may not report. It reports every two seconds.
	silence = 15 * time.Second
	// unclaimed is how long a slice waits for who asked for it.
	unclaimed = 15 * time.Second
	// piece is the longest time that one record of use covers.
	piece = time.Hour
)

// Run ends what is over, until ctx ends. One process at a time runs it.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	begun := s.db.Now()
	for {
		core.Round(ctx, roundEvery)
		if err := s.round(ctx, begun); err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("pool not looked after, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// over are slices and nodes whose time may be over.
type over struct {
	gone, drained []string // nodes
	slices        []string // nobody awaits or claims them
	lost          []string // slices that left a node and came to none
	pieces        []string // slices to be metered
}

// overTx reads what is over. begun is when this process began to look.
func overTx(ctx context.Context, tx *db.Tx, begun time.Time) (o over, err error) {
	ids := func(to *[]string) func(db.Row) error {
		return func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			*to = append(*to, id)
			return err
		}
	}
	at := func(d time.Duration) int64 { return db.Micros(tx.Now.Add(-d)) }
	silent := at(silence)
	if tx.Now.Sub(begun) < silence {
		silent = 0
	}
	if err := tx.Query(ctx, `SELECT n.node_id FROM pool_nodes n LEFT JOIN pool_beats b ON b.node_id = n.node_id
		WHERE (n.online OR EXISTS (SELECT 1 FROM pool_slices x WHERE x.node_id = n.node_id AND x.state IN (2, 3) AND x.left_at = 0)) AND (b.gone_at > 0 AND b.gone_at < $1 OR b.seen_at < $2) ORDER BY n.node_id`,
		[]any{at(brokenFor), silent}, ids(&o.gone)); err != nil {
		return o, err
	}
	if err := tx.Query(ctx, `SELECT node_id FROM pool_nodes n WHERE mode = 3 AND NOT EXISTS (SELECT 1 FROM pool_slices x WHERE (x.node_id = n.node_id OR x.to_node = n.node_id) AND x.state IN (2, 3)) ORDER BY node_id`, nil, ids(&o.drained)); err != nil {
		return o, err
	}
	idle := at(unclaimed)
	if tx.Now.Sub(begun) < unclaimed {
		idle = 0
	}
	if err := tx.Query(ctx, `SELECT slice_id FROM pool_slices WHERE NOT fixed AND (state = 1 AND polled_at < $1 OR state = 2 AND assigned_at < $1) ORDER BY slice_id`, []any{idle}, ids(&o.slices)); err != nil {
		return o, err
	}
	if err := tx.Query(ctx, `SELECT slice_id FROM pool_slices WHERE state = 3 AND left_at > 0 AND left_at < $1 ORDER BY slice_id`, []any{at(silence)}, ids(&o.lost)); err != nil {
		return o, err
	}
	err = tx.Query(ctx, `SELECT slice_id FROM pool_slices WHERE state IN (2, 3) AND metered_at < $1 ORDER BY slice_id`, []any{at(piece)}, ids(&o.pieces))
	return o, err
}

func (s *Service) round(ctx context.Context, begun time.Time) error {
	var o over
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		o, err = overTx(ctx, tx, begun)
		return err
	})
	if err != nil || len(o.gone)+len(o.drained)+len(o.slices)+len(o.lost)+len(o.pieces) == 0 {
		return err
	}
	return s.tx(ctx, func(tx *db.Tx) error {
		o, err := overTx(ctx, tx, begun) // it may have changed
		if err != nil {
			return err
		}
		for _, id := range o.gone {
			if err := s.goneTx(ctx, tx, id); err != nil {
				return err
			}
		}
		for _, id := range o.drained {
			if err := s.leaveTx(ctx, tx, id); err != nil {
				return err
			}
		}
		for _, id := range o.slices {
			list, err := readSlices(ctx, tx, `WHERE slice_id = $1 AND state IN (1, 2)`, id)
			if err != nil {
				return err
			}
			for _, x := range list {
				if err := s.endTx(ctx, tx, x, x.unclaimed()); err != nil {
					return err
				}
			}
		}
		for _, id := range o.lost {
			if err := s.lostTx(ctx, tx, id); err != nil {
				return err
			}
		}
		for _, id := range o.pieces {
			list, err := readSlices(ctx, tx, `WHERE slice_id = $1 AND state IN (2, 3)`, id)
			if err != nil {
				return err
			}
			for _, x := range list {
				if err := s.meterTx(ctx, tx, x, tx.Now); err != nil {
					return err
				}
				if err := putSlice(ctx, tx, x); err != nil {
					return err
				}
			}
		}
		return s.fillTx(ctx, tx)
	})
}

// goneTx takes back what a node had: what a program used ends, the rest is placed
// anew.
func (s *Service) goneTx(ctx context.Context, tx *db.Tx, id string) error {
	if err := revise(ctx, tx, false); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE pool_nodes SET online = $2, rev = `+revision+` WHERE node_id = $1`, id, false); err != nil {
		return err
	}
	live, err := readSlices(ctx, tx, `WHERE state IN (2, 3) AND left_at = 0 AND node_id = $1 ORDER BY slice_id`, id)
	if err != nil {
		return err
	}
	for _, x := range live {
		if over, err := overWithSet(ctx, tx, x); err != nil {
			return err
		} else if over {
			continue
		}
		if x.State == Running && !x.Fixed {
			if err := s.endTx(ctx, tx, x, fmt.Sprintf(nodeGone, id)); err != nil {
				return err
			}
			continue
		}
		if err := s.anewTx(ctx, tx, x, fmt.Sprintf(nodeGone, id)); err != nil {
			return err
		}
	}
	tx.AfterCommit(func() { s.log.Warn("pool node gone", "node_id", id, "slices", len(live)) })
	if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Error, Message: "node is gone", Node: id, Details: fmt.Sprintf("slices=%d", len(live))}); err != nil {
		return err
	}
	return s.emit(ctx, tx, id)
}

// anewWithSetTx is anewTx of a slice and of those of its set that would have to be beside it
// and that no program uses: where they are there may be no room for it any more.
func (s *Service) anewWithSetTx(ctx context.Context, tx *db.Tx, x *Slice, why string) error {
	if err := s.anewTx(ctx, tx, x, why); err != nil || x.Set == "" || x.API != pool.CUDA {
		return err
	}
	mates, err := readSlices(ctx, tx, `WHERE set_id = $1 AND set_id <> '' AND state = 2 AND to_node = '' ORDER BY slice_id`, x.Set)
	if err != nil {
		return err
	}
	for _, y := range mates {
		if err := s.anewTx(ctx, tx, y, why); err != nil {
			return err
		}
	}
	return nil
}

// anewTx takes a slice's place, and has it wait for another. The caller calls fillTx.
func (s *Service) anewTx(ctx context.Context, tx *db.Tx, x *Slice, why string) error {
	if err := s.giveBackTx(ctx, tx, x); err != nil {
		return err
	}
	x.State, x.Node, x.Device, x.Reason, x.PolledAt, x.QueuedAt = Waiting, "", "", why, tx.Now, tx.Now
	if x.Physical {
		x.Memory = 0 // it is given another card, with the memory of that
	}
	if err := putSlice(ctx, tx, x); err != nil {
		return err
	}
	return s.emit(ctx, tx, x.ID)
}

// leaveTx ends a node's membership.
func (s *Service) leaveTx(ctx context.Context, tx *db.Tx, id string) error {
	if err := revise(ctx, tx, true); err != nil {
		return err
	}
	for _, table := range []string{"pool_devices", "pool_beats", "pool_nodes"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE node_id = $1`, id); err != nil {
			return fmt.Errorf("let pool node %s leave: %w", id, err)
		}
	}
	tx.AfterCommit(func() { s.log.Info("pool node left", "node_id", id) })
	if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Info, Message: "node left", Node: id}); err != nil {
		return err
	}
	return s.emit(ctx, tx, id)
}
