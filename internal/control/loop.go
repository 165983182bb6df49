package control

import (
	"context"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

const (
	// roundEvery is how often what waits is looked at without being told to:
	// for room that came, ends of grace periods, centers that are back.
	roundEvery = time.Second
	// purgeEvery is how often old operations are deleted.
	purgeEvery = time.Hour
	// setWidth centers are told at once.
	setWidth = 16
)

// Run carries on what was asked, until ctx ends: waiting allocations, starts
// and ends, nodes that are not as they are to be, and reclaims. One process
// at a time runs it; were there two, nothing would be done twice, because
// every change is conditional on the state it was decided in.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	var purged time.Time
	told := s.feed.Watch() // what other processes store
	defer told.Close()
	for {
		core.Round(ctx, roundEvery)
		s.Round(ctx)
		if now := s.db.Now(); now.Sub(purged) >= purgeEvery {
			purged = now
			s.purge(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-told.Changed:
			told.Take()
		case <-tick.C:
		}
	}
}

// Round does once what [Service.Run] does again and again.
func (s *Service) Round(ctx context.Context) {
	s.allocations(ctx)
	s.meters(ctx)
	s.nodes(ctx)
	s.advanceAll(ctx)
}

func (s *Service) warn(ctx context.Context, what string, err error, args ...any) {
	if err != nil && ctx.Err() == nil {
		s.log.Warn(what+", will try again", append(args, "error", err)...)
	}
}

// notRead warns that a round could not see what there is to do.
func (s *Service) notRead(ctx context.Context, what string, err error) {
	if err != nil {
		core.RoundFailed(ctx, err)
		s.warn(ctx, what+" not read", err)
	}
}

func (s *Service) purge(ctx context.Context) {
	s.warn(ctx, "old operations not deleted", s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM operations WHERE ended_at > 0 AND ended_at < $1`, db.Micros(tx.Now.Add(-keepOps)))
		return err
	}))
}

// allocations starts, grants and ends allocations that are due.
func (s *Service) allocations(ctx context.Context) {
	var open []*Allocation
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		open, err = readAllocations(ctx, tx, `WHERE ended_at = 0 AND (state IN ($1, $2, $3) OR state = $4 AND end_at > 0 AND end_at <= $5) ORDER BY created_at, allocation_id`,
			int64(Scheduled), int64(Waiting), int64(Releasing), int64(Granted), db.Micros(tx.Now))
		return err
	})
	s.notRead(ctx, "allocations", err)
	for _, a := range open { // oldest first: who applied first is granted first
		now := s.db.Now()
		switch {
		case a.State == Releasing:
			s.stopUsers(ctx, a.ID, "allocation "+a.ID+" is over")
			continue
		case !a.EndAt.IsZero() && !a.EndAt.After(now):
			s.warn(ctx, "allocation not ended", s.expire(ctx, a.ID), "allocation_id", a.ID)
			continue
		case a.State == Scheduled && a.StartAt.After(now):
			continue
		case a.State == Scheduled:
			s.warn(ctx, "allocation not started", s.begun(ctx, a.ID), "allocation_id", a.ID)
		}
		_, err := s.grant(ctx, a.ID)
		s.warn(ctx, "allocation not decided", err, "allocation_id", a.ID)
	}
}

// begun has an allocation whose start has come wait for room.
func (s *Service) begun(ctx context.Context, id string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE allocations SET state = $2, reason = 'it is being decided' WHERE allocation_id = $1 AND state = $3`, id, int64(Waiting), int64(Scheduled))
		return err
	})
}

// expire ends an allocation whose end has passed.
func (s *Service) expire(ctx context.Context, id string) error {
	taken := false
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		taken = false
		rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1 AND ended_at = 0 AND end_at > 0 AND end_at <= $2`, id, db.Micros(tx.Now))
		if err != nil || len(rows) == 0 || rows[0].over() {
			return err
		}
		a := rows[0]
		o := &Operation{ID: core.NewID("opr"), Kind: Release, State: Running, TenantID: a.TenantID, CenterID: a.CenterID, AllocationID: a.ID, Reason: "its end has passed", CreatedAt: tx.Now}
		if err := insertOperation(ctx, tx, o); err != nil {
			return err
		}
		taken = inUse(a)
		if err := s.close(ctx, tx, a, Expired, "its end has passed", o.ID); err != nil {
			return err
		}
		return s.changed(ctx, tx, o)
	})
	if err == nil && taken {
		s.stopUsers(ctx, id, "allocation "+id+" has reached its end")
	}
	return err
}

// nodes tells centers what they have not confirmed, and again what they have
// forgotten.
func (s *Service) nodes(ctx context.Context) {
	var all []*NodeControl
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		all, err = readControls(ctx, tx, `ORDER BY ai_center_id, node`)
		return err
	})
	s.notRead(ctx, "node controls", err)
	now := s.db.Now()
	byCenter := map[string][]*NodeControl{}
	for _, n := range all {
		if n.Applied {
			if !s.drifted(ctx, n, now) {
				continue
			}
			if err := s.repair(ctx, n); err != nil {
				s.warn(ctx, "node not marked to be set anew", err, "ai_center_id", n.CenterID, "node", n.Node)
				continue
			}
		}
		s.mu.Lock()
		wait := s.tries[[2]string{n.CenterID, n.Node}].at.After(now)
		s.mu.Unlock()
		if !wait {
			byCenter[n.CenterID] = append(byCenter[n.CenterID], n)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, setWidth)
	for _, list := range byCenter {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, n := range list {
				if err := s.applyNode(ctx, Target{n.CenterID, n.Node}); err != nil {
					s.log.Debug("node not set, will try again", "ai_center_id", n.CenterID, "node", n.Node, "error", err)
					if fault.KindOf(err) == fault.Unavailable {
						return // its other nodes would wait as long
					}
				}
			}
		})
	}
	wg.Wait()
}

// drifted reports whether a node is not as it was confirmed to be, or may not
// be.
func (s *Service) drifted(ctx context.Context, n *NodeControl, now time.Time) bool {
	if n.AllocationID != "" && now.Sub(n.AppliedAt) >= holdAgain {
		return true
	}
	if !n.away() || now.Sub(n.AppliedAt) < settleTime {
		return false
	}
	node, err := s.reg.GetNode(ctx, n.CenterID, n.Node)
	return err == nil && node.State == registry.NodeReady
}

// repair has a node set anew. Only what was reported otherwise counts.
func (s *Service) repair(ctx context.Context, n *NodeControl) error {
	count := int64(0)
	if n.away() {
		count = 1
		s.log.Warn("node is not as it was set, setting it anew", "ai_center_id", n.CenterID, "node", n.Node)
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE node_controls SET applied = 0, repaired = repaired + $4 WHERE ai_center_id = $1 AND node = $2 AND generation = $3`, n.CenterID, n.Node, n.generation, count)
		return err
	})
}

// advanceAll carries the reclaims on.
func (s *Service) advanceAll(ctx context.Context) {
	var open []*Operation
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		open, err = readOperations(ctx, tx, `WHERE ended_at = 0 AND kind = $1 ORDER BY operation_id`, int64(Reclaim))
		return err
	})
	s.notRead(ctx, "operations", err)
	for _, o := range open {
		s.warn(ctx, "reclaim not carried on", s.advance(ctx, o), "operation_id", o.ID)
	}
}

// Reclaims returns the reclaims under way, for alarms.
func (s *Service) Reclaims(ctx context.Context) (out []*Operation, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readOperations(ctx, tx, `WHERE ended_at = 0 AND kind = $1 ORDER BY operation_id`, int64(Reclaim))
		return err
	})
	return out, err
}

// Ungranted returns the allocations that have waited for room since before
// the time, and those refused after it: for alarms.
func (s *Service) Ungranted(ctx context.Context, before, refusedAfter time.Time) (out []*Allocation, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readAllocations(ctx, tx, `WHERE state = $1 AND start_at < $2 OR state = $3 AND ended_at > $4 ORDER BY allocation_id LIMIT 1000`,
			int64(Waiting), db.Micros(before), int64(Refused), db.Micros(refusedAfter))
		return err
	})
	return out, err
}
