package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// request is what a run of a job asks for, as its owner would.
func request(w pool.Shares) (Request, core.Caller) {
	r := Request{remote: !w.Local, beside: w.Local, Group: w.Group, Spec: w.Spec, Compute: w.Compute, Memory: w.Memory, Weighted: w.Weighted, API: w.API, Model: w.Model, Priority: w.Priority, Cards: w.Cards, Across: w.Across, Physical: w.Whole, Node: w.Node, Affinity: w.Affinity, Anti: w.Anti, Name: w.Task,
		run: run{ID: w.Run, Job: w.Job, Project: w.Project, Task: w.Task, TaskIndex: int64(w.TaskIndex), Replica: int64(w.Replica), Number: int64(w.Number), Priority: w.JobPriority}}
	if w.Local { // wherever the pool's policy would have it
		r.Policy.Local = LocalAny
	}
	return r, core.Caller{UserID: w.User, UserName: w.UserName, TenantID: w.Tenant}
}

// Lendable says whether a run could have shares, now or later, and in which group; one
// that is local, of one of these nodes. Kinds: those of Request.
func (s *Service) Lendable(ctx context.Context, w pool.Shares, nodes []string) (group string, err error) {
	r, caller := request(w)
	if err := r.check(); err != nil {
		return "", err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		p, err := s.readPool(ctx, tx)
		if err != nil {
			return err
		}
		x, cards := r.slice(caller, tx.Now)
		g, err := p.complete(caller, &r, x, cards)
		if err != nil {
			return err
		}
		if group = g.ID; !w.Local {
			return possible(x, cards, g, p.nodes, p.base)
		}
		var why error
		for _, n := range p.nodes {
			if !slices.Contains(nodes, n.ID) {
				continue
			}
			refused := possible(x, cards, g, []*Node{n}, p.base)
			if refused == nil {
				return nil
			}
			why = cmp.Or(why, refused)
		}
		if why == nil {
			return fault.New(fault.NotFound, "no center has a pool node on its machine that its runs may use there (yunhe gateway --pool-node)")
		}
		text, _ := fault.Message(why)
		return fault.New(fault.KindOf(why), "at no center that has a pool node on its machine: %s", text)
	})
	return group, err
}

// HostsTx returns the pool's nodes, and which they are by what names their machines
// ([pool.Host]). Of several that are on one machine, and online if any is, it does not say
// the latter: a run there is shown one of them, and nobody knows here which.
func (s *Service) HostsTx(ctx context.Context, tx *db.Tx) (all []string, at map[string]string, err error) {
	nodes, err := s.nodesTx(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	of := map[string][]*Node{}
	for _, n := range nodes {
		if all = append(all, n.ID); n.Host != "" {
			of[n.Host] = append(of[n.Host], n)
		}
	}
	at = map[string]string{}
	for host, list := range of {
		if online := slices.DeleteFunc(slices.Clone(list), func(n *Node) bool { return !n.Online }); len(online) > 0 {
			list = online
		}
		if len(list) == 1 {
			at[host] = list[0].ID
		}
	}
	return all, at, nil
}

// LocalTx returns what says of runs that are local of which of some nodes they could have
// their shares: now, and now or later. Of what the pool refuses whatever the node, as it
// does when it is asked, that says all.
func (s *Service) LocalTx(ctx context.Context, tx *db.Tx) (func(w pool.Shares, nodes []string) (now, ever []string, err error), error) {
	p, err := s.readPool(ctx, tx)
	if err == nil {
		p.near, err = readNear(ctx, tx)
	}
	if err != nil {
		return nil, err
	}
	at := map[string]*Node{}
	for _, n := range p.nodes {
		at[n.ID] = n
	}
	return func(w pool.Shares, nodes []string) (now, ever []string, err error) {
		r, caller := request(w)
		x, cards := r.slice(caller, tx.Now)
		g, err := p.complete(caller, &r, x, cards)
		if err != nil {
			return nodes, nodes, nil
		}
		x.mates = slices.Repeat([]*Slice{x}, int(cards))
		x.regard(p.near)
		for _, id := range nodes {
			n := at[id] // one that lends nothing new counts as none
			if n == nil || !n.Online || n.Mode != Enabled || x.beside != nil && x.beside[0] != n.ID {
				continue
			}
			lends := *n
			lends.Devices = slices.DeleteFunc(slices.Clone(n.Devices), func(d *Device) bool { return !d.Present || d.Disabled })
			if possible(x, cards, g, []*Node{&lends}, p.base) != nil {
				continue
			}
			ever = append(ever, id)
			_, device, err := choose(x, g, []*Node{&lends}, nil, p.base)
			if err != nil {
				return nil, nil, err
			}
			if device != nil {
				now = append(now, id)
			}
		}
		return now, ever, nil
	}, nil
}

// Lend returns passes to the slices of a run, one for each card, once all have a
// place; until then it says what they wait for, and nothing once the run has begun. It
// asks for them if the run has none, and is called again until the run begins: it has
// one set of slices at a time, and none again when it has begun. One that is local has
// them of its home; [pool.ErrNoNode]: it has none, and none of its slices has a place.
// Kinds: those of Request.
func (s *Service) Lend(ctx context.Context, w pool.Shares, home pool.Home) (passes []pool.Pass, waits string, err error) {
	var had []*Slice
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		had, err = readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' ORDER BY slice_id`, w.Run)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(had) == 0 && w.Wish != "" {
		if had, err = s.adopt(ctx, w); err != nil {
			return nil, "", err
		}
	}
	live := slices.DeleteFunc(slices.Clone(had), func(x *Slice) bool { return x.State == Ended })
	if len(live) == 0 && slices.ContainsFunc(had, func(x *Slice) bool { return !x.StartedAt.IsZero() }) {
		return nil, "", nil
	}
	if w.Local && (len(live) == 0 || live[0].State == Waiting) {
		if home.Node == "" {
			return nil, "", pool.ErrNoNode
		}
		w.Node = home.Node
		if len(live) > 0 {
			if err := s.follow(ctx, w.Run, live[0].WantNode, home); err != nil {
				return nil, "", err
			}
		}
	}
	if len(live) == 0 {
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
		all, err := readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' AND state < 4 ORDER BY slice_id`, w.Run)
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
				passes, waits = nil, cmp.Or(x.Reason, notPlaced)
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

// waitsNoMore is why what a replica asked for ends that is not placed any more.
const waitsNoMore = "its replica does not wait any more"

// notPlaced is what waits that nobody looked at yet.
const notPlaced = "its slices are not placed yet"

// errStays: what waits for a node would wait for another, too.
var errStays = errors.New("it has no place there either")

// follow has the slices of a run that wait for one node wait for its home, where they are
// as old as they are: if they have a place there now, or if it may not wait where it does.
func (s *Service) follow(ctx context.Context, run, node string, home pool.Home) error {
	stays := slices.Contains(home.Lends, node)
	if node == home.Node || stays && !home.Room {
		return nil
	}
	err := s.tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE pool_slices SET want_node = $2 WHERE run_id = $1 AND run_id <> '' AND state = 1`, run, home.Node)
		if err != nil || n == 0 { // they have a place
			return err
		}
		if err := s.fillTx(ctx, tx); err != nil {
			return err
		}
		left, err := readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' AND state = 1`, run)
		if err == nil && stays && len(left) > 0 {
			return errStays // others are before it
		}
		return err
	})
	if errors.Is(err, errStays) {
		return nil
	}
	return err
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

// FateTx says what became of the slices of a run that began then and has failed.
func (s *Service) FateTx(ctx context.Context, tx *db.Tx, run string, began time.Time) (f pool.Fate, err error) {
	list, err := readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' ORDER BY slice_id`, run)
	if err != nil || len(list) == 0 {
		return f, err
	}
	last := list[len(list)-1] // those that it did not come for in time were not its last
	for _, x := range list {
		if x != last && (x.Set == "" || x.Set != last.Set) {
			continue
		}
		why, lost := "", false
		switch {
		case x.State == Ended:
			if why, lost = x.Cause(), x.Failed(); why == programEnded || why == pool.ClientEnded {
				why = ""
			}
		case x.State == Waiting, x.StartedAt.IsZero() && !began.IsZero() && x.QueuedAt.After(began): // its pass is to where they were
			why, lost = "their node or device went before it had them", true
		default:
			b, err := readBeat(ctx, tx, x.Node)
			if err != nil {
				return f, err
			}
			if lost = !b.gone.IsZero(); lost {
				why = fmt.Sprintf(nodeGone, x.Node)
			}
		}
		if f.Begun = f.Begun || !x.StartedAt.IsZero(); why != "" && (f.Why == "" || lost && !f.Lost) {
			f.Why, f.Lost = why, lost
		}
	}
	return f, nil
}

// RunEndedTx ends the slices of a run, or of a replica that waits no more to be placed.
func (s *Service) RunEndedTx(ctx context.Context, tx *db.Tx, id string) error {
	live, err := readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' AND state < 4 ORDER BY slice_id`, id)
	if err != nil || len(live) == 0 {
		return err
	}
	for _, x := range live {
		why := "its run ended"
		if x.wished {
			why = waitsNoMore
		}
		if err := s.endTx(ctx, tx, x, why); err != nil {
			return err
		}
	}
	return s.fillTx(ctx, tx)
}
