package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
)

// request is what a run of a job asks for, as its owner would.
func request(w pool.Shares) (Request, core.Caller) {
	return Request{remote: true, Group: w.Group, Spec: w.Spec, Compute: w.Compute, Memory: w.Memory, Weighted: w.Weighted, API: w.API, Model: w.Model, Priority: w.Priority, Cards: w.Cards, Across: w.Across, Physical: w.Whole, Node: w.Node, Affinity: w.Affinity, Anti: w.Anti, Name: w.Task,
		run: run{ID: w.Run, Job: w.Job, Project: w.Project, Task: w.Task, TaskIndex: int64(w.TaskIndex), Replica: int64(w.Replica), Number: int64(w.Number)}}, core.Caller{UserID: w.User, UserName: w.UserName, TenantID: w.Tenant}
}

// Lendable says whether a run could have shares, now or later, and in which group.
// Kinds: those of Request.
func (s *Service) Lendable(ctx context.Context, w pool.Shares) (group string, err error) {
	r, caller := request(w)
	if err := r.check(); err != nil {
		return "", err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		x := &Slice{Compute: map[bool]int64{true: 100, false: r.Compute}[r.Physical], Memory: r.Memory, Weighted: r.Weighted, Model: r.Model, WantNode: r.Node, Priority: r.Priority, Physical: r.Physical, Across: r.Across}
		err := allowed(ctx, tx, caller, &r, x, max(r.Cards, 1))
		group = x.Group
		return err
	})
	return group, err
}

// Lend returns passes to the slices of a run, one for each card, once all have a
// place; until then it says what they wait for, and nothing once the run has begun. It
// asks for them if the run has none, and is called again until the run begins: it has
// one set of slices at a time, and none again when it has begun. Kinds: those of Request.
func (s *Service) Lend(ctx context.Context, w pool.Shares) (passes []pool.Pass, waits string, err error) {
	var had []*Slice
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		had, err = readSlices(ctx, tx, `WHERE run_id = $1 ORDER BY slice_id`, w.Run)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	live := slices.DeleteFunc(slices.Clone(had), func(x *Slice) bool { return x.State == Ended })
	if len(live) == 0 {
		if slices.ContainsFunc(had, func(x *Slice) bool { return !x.StartedAt.IsZero() }) {
			return nil, "", nil
		}
		r, caller := request(w)
		// Those that it did not come for in time, or whose node went, are had no more.
		r.ID = fmt.Sprintf("%s.%d", w.Run, len(had))
		x, err := s.Request(core.WithCaller(ctx, caller), r)
		if err != nil {
			return nil, "", err
		}
		live = []*Slice{x}
	}
	first := live[0]
	if err := s.awaited(ctx, first); err != nil {
		return nil, "", err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		passes, waits = nil, ""
		all, err := readSlices(ctx, tx, `WHERE run_id = $1 AND state < 4 ORDER BY slice_id`, w.Run)
		if err != nil {
			return err
		}
		for _, x := range all {
			a, err := s.access(ctx, tx, x)
			if err != nil {
				return err
			}
			switch {
			case x.State == Running && len(passes) == 0:
				return nil
			case a == nil:
				passes, waits = nil, cmp.Or(x.Reason, "its slices are not placed yet")
				return nil
			}
			// A run is not sent to a node that may be gone: it would have failed.
			if b, err := readBeat(ctx, tx, x.Node); err != nil || !b.gone.IsZero() {
				passes, waits = nil, fmt.Sprintf("pool node %s does not answer", x.Node)
				return err
			}
			passes = append(passes, pool.Pass{Slice: x.ID, Addresses: a.Addresses, Host: a.Host, Ticket: a.Ticket, Key: a.Key})
		}
		return nil
	})
	return passes, waits, err
}

// Placed returns the runs that have slices with a place, which no program has yet.
func (s *Service) Placed(ctx context.Context) (map[string]bool, error) {
	runs := map[string]bool{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(runs)
		return tx.Query(ctx, `SELECT DISTINCT run_id FROM pool_slices WHERE state = 2 AND run_id <> ''`, nil, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			runs[id] = true
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read runs with slices: %w", err)
	}
	return runs, nil
}

// RunEndedTx ends the slices of a run.
func (s *Service) RunEndedTx(ctx context.Context, tx *db.Tx, id string) error {
	live, err := readSlices(ctx, tx, `WHERE run_id = $1 AND state < 4 ORDER BY slice_id`, id)
	if err != nil || len(live) == 0 {
		return err
	}
	for _, x := range live {
		if err := s.endTx(ctx, tx, x, "its run ended"); err != nil {
			return err
		}
	}
	return s.fillTx(ctx, tx)
}
