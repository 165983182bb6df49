package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// request is what a run of a job asks for, as its owner would.
func request(w pool.Shares) (Request, core.Caller) {
	r := Request{remote: !w.Local, Host: w.Host, Group: w.Group, Spec: w.Spec, Compute: w.Compute, Memory: w.Memory, Weighted: w.Weighted, API: w.API, Model: w.Model, Priority: w.Priority, Cards: w.Cards, Across: w.Across, Physical: w.Whole, Node: w.Node, Affinity: w.Affinity, Anti: w.Anti, Name: w.Task,
		run: run{ID: w.Run, Job: w.Job, Project: w.Project, Task: w.Task, TaskIndex: int64(w.TaskIndex), Replica: int64(w.Replica), Number: int64(w.Number)}}
	if w.Local {
		r.Policy.Local = LocalOnly
	}
	return r, core.Caller{UserID: w.User, UserName: w.UserName, TenantID: w.Tenant}
}

// wanted is a slice that a run asks for, of as many as it has cards.
func (r *Request) wanted() (x *Slice, cards int64) {
	return &Slice{ID: "wanted", Compute: map[bool]int64{true: 100, false: r.Compute}[r.Physical], Memory: r.Memory, Weighted: r.Weighted, Model: r.Model, WantNode: r.Node, Priority: r.Priority, Policy: r.Policy, Host: r.Host, Physical: r.Physical, Across: r.Across}, max(r.Cards, 1)
}

// Lendable says whether a run could have shares, now or later, and in which group; one
// that is local, on one of these machines. Kinds: those of Request.
func (s *Service) Lendable(ctx context.Context, w pool.Shares, hosts []string) (group string, err error) {
	r, caller := request(w)
	r.hosts = append([]string{}, hosts...)
	if err := r.check(); err != nil {
		return "", err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		x, cards := r.wanted()
		p, err := complete(ctx, tx, caller, &r, x, cards)
		if err != nil {
			return err
		}
		if group = x.Group; !w.Local {
			return possible(x, cards, p.group, p.nodes, p.base)
		}
		_, ever, why, err := p.local(x, cards, hosts)
		if err != nil || len(ever) > 0 {
			return err
		}
		if why == nil {
			return fault.New(fault.NotFound, "no center has a pool node on its machine that its runs may use there (yunhe gateway --pool-node)")
		}
		text, _ := fault.Message(why)
		return fault.New(fault.KindOf(why), "at no center that has a pool node on its machine: %s", text)
	})
	return group, err
}

// LocalTx returns on which of these machines a run that is local could have its shares
// now, and on which now or later; nil where the pool refuses them everywhere, as it does
// when they are asked for.
func (s *Service) LocalTx(ctx context.Context, tx *db.Tx, w pool.Shares, hosts []string) (now, ever map[string]bool, err error) {
	r, caller := request(w)
	x, cards := r.wanted()
	p, err := complete(ctx, tx, caller, &r, x, cards)
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Exhausted:
		if err != nil {
			return nil, nil, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	now, ever, _, err = p.local(x, cards, hosts)
	return now, ever, err
}

// local says on which machines a slice, and others beside it, could be: now, and now or
// later; and why on none.
func (p *part) local(x *Slice, cards int64, hosts []string) (now, ever map[string]bool, why, err error) {
	there := map[string][]*Node{}
	for _, n := range p.nodes {
		there[n.Host] = append(there[n.Host], n)
	}
	now, ever = map[string]bool{}, map[string]bool{}
	for range cards {
		x.mates = append(x.mates, x)
	}
	for _, x.Host = range hosts {
		nodes := there[x.Host]
		if refused := possible(x, cards, p.group, nodes, p.base); refused != nil {
			if why == nil || len(nodes) > 0 { // what a node has not says more than that there is none
				why = refused
			}
			continue
		}
		ever[x.Host] = true
		_, device, err := choose(x, p.group, nodes, nil, p.base)
		if err != nil {
			return nil, nil, nil, err
		}
		now[x.Host] = device != nil
	}
	return now, ever, why, nil
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
	if len(live) > 0 && live[0].State == Waiting && live[0].Host != w.Host {
		if err := s.away(ctx, w.Run); err != nil {
			return nil, "", err
		}
		live = nil
	}
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
			passes = append(passes, pool.Pass{Slice: x.ID, Addresses: a.Addresses, Host: a.Host, Ticket: a.Ticket, Key: a.Key, Node: x.Node, Bus: a.Bus})
		}
		return nil
	})
	return passes, waits, err
}

// away ends the slices of a run that wait for a place on a machine whose system was
// started anew since: it has another name now.
func (s *Service) away(ctx context.Context, run string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		list, err := readSlices(ctx, tx, `WHERE run_id = $1 AND state = 1 ORDER BY slice_id`, run)
		for _, x := range list {
			err = errors.Join(err, s.endTx(ctx, tx, x, "its run's machine was started anew"))
		}
		return err
	})
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
