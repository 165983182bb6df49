package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Runs that are local have their shares of the pool's node on the machine where they run.
// A gateway's center is one machine. Where a center has many, the run goes to the one
// whose node lends it its shares, and stays there.

const (
	// localPatience is how long a run waits until a pool node of its center lends again,
	// as after its machine was started anew.
	localPatience = 30 * time.Second
	// spreadFor is how long a run that is local waits for the centers whose nodes have no
	// room while others' have: it may be that those cannot have it for other reasons.
	spreadFor = 10 * time.Second
)

// spot is a pool node of which runs at a center may have shares on their own machine.
type spot struct {
	node    string         // the pool's
	machine *registry.Node // of the center; nil: the center is one machine
}

func nodesOf(list []spot) (ids []string) {
	for _, x := range list {
		ids = append(ids, x.node)
	}
	return ids
}

// spots are those of all centers.
type spots struct {
	at   map[string][]spot            // by center that could have some
	many map[string]bool              // centers that have many machines
	held map[string]map[string]string // by center and machine: the allocation whose it is
}

// localWish is what tells of two such runs where they could be.
type localWish struct {
	shares                 pool.Shares
	allocation, node, spec string
	amounts                string
}

// wish is what a run of a task asks for so.
func (r *record) wish(task int64, spec string, amounts map[string]int64) localWish {
	w := localWish{shares: sharesOf(r, task), allocation: r.spec.AllocationId, node: r.spec.Tasks[task].GetConstraints().GetNode(), spec: spec, amounts: fmt.Sprint(amounts)}
	w.shares.Job, w.shares.Task, w.shares.TaskIndex, w.shares.Project, w.shares.UserName, w.shares.JobPriority = "", "", 0, "", "", 0
	return w
}

// nodes are those of the pool among them.
func (x *spots) nodes() (ids []string) {
	for _, list := range x.at {
		ids = append(ids, nodesOf(list)...)
	}
	return ids
}

// of are those of a center where a run may begin.
func (x *spots) of(center string, w localWish, amounts map[string]int64) (out []spot) {
	holds := map[string]bool{} // allocations made of machines
	for _, id := range x.held[center] {
		holds[id] = true
	}
	for _, p := range x.at[center] {
		if m := p.machine; m != nil {
			whose := x.held[center][m.Name]
			if m.State != registry.NodeReady || w.node != "" && m.Name != w.node || whose != "" && whose != w.allocation || whose == "" && holds[w.allocation] ||
				len(m.Specs) > 0 && w.spec != "" && !slices.Contains(m.Specs, w.spec) || !holdsAll(m.Allocatable, nil, amounts) {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// holdsAll reports whether a machine has that much, beside what is used, of what it tells.
func holdsAll(has, used, wants map[string]int64) bool {
	for name, n := range wants {
		if all, known := has[name]; known && all-used[name] < n {
			return false
		}
	}
	return true
}

// spotsTx returns where runs that are local can be.
func (s *Service) spotsTx(ctx context.Context, tx *db.Tx) (*spots, error) {
	nodes, many, err := s.ad.PoolNodesTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	out := &spots{at: map[string][]spot{}, many: map[string]bool{}}
	for _, center := range many {
		out.at[center], out.many[center] = nil, true
	}
	for center, ids := range nodes {
		out.at[center] = nil
		for _, id := range ids {
			out.at[center] = append(out.at[center], spot{node: id})
		}
	}
	if len(many) == 0 {
		return out, nil
	}
	all, hosts, err := s.pool.HostsTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	machines, err := s.reg.PooledTx(ctx, tx, all, sortedKeys(hosts))
	if err != nil {
		return nil, err
	}
	for i := range machines {
		if m := &machines[i]; out.many[m.CenterID] {
			out.at[m.CenterID] = append(out.at[m.CenterID], spot{cmp.Or(m.PoolNode, hosts[m.Host]), m})
		}
	}
	for center, list := range out.at { // several of one, as a cluster in containers has: nobody knows whose it is
		times := map[string]int{}
		for _, p := range list {
			times[p.node]++
		}
		out.at[center] = slices.DeleteFunc(list, func(p spot) bool { return p.machine != nil && times[p.node] > 1 })
	}
	if s.allocs != nil {
		out.held, err = s.allocs.NodesTx(ctx, tx)
	}
	return out, err
}

// lending is where runs could have shares of a pool node on their own machine, and of which
// nodes: now, and now or later.
type lending struct {
	*spots
	room func(w pool.Shares, nodes []string) (now, ever []string, err error)
}

func (s *Service) lendingTx(ctx context.Context, tx *db.Tx) (x lending, err error) {
	if x.spots, err = s.spotsTx(ctx, tx); err == nil {
		x.room, err = s.pool.LocalTx(ctx, tx)
	}
	return x, err
}

// localRooms is what is read once while work is told where it cannot go.
type localRooms struct {
	lending
	found  map[localWish]rooms
	byTask map[localTask]rooms
}

// localTask is a task by its job and index.
type localTask struct {
	job  string
	task int
}

// rooms are centers that are not for a run: at none of whose nodes it could have its
// shares, and, if there are others, at none of whose nodes it could now.
type rooms struct {
	never, busy map[string]string
	free        bool // one could lend them now
}

// keepLocal keeps tasks whose shares are of their machine's pool node from centers
// whose node lends none such, and at first from those whose node has no room while another's has.
func (s *Service) keepLocal(ctx context.Context, tx *db.Tx, r *record, it *scheduler.Item, local *localRooms) error {
	var failed error
	exclude(it, func(n int, wants place.Amounts) map[string]string {
		if !r.spec.Tasks[n].GetPool().GetLocal() || failed != nil || s.pool == nil {
			return nil
		}
		it.Anew = true
		w := r.wish(int64(n), r.spec.Tasks[n].ResourceSpecId, wants)
		found, known := local.found[w]
		if !known {
			if found, failed = s.notLocal(ctx, tx, w, wants, local); failed != nil {
				return nil
			}
		}
		local.byTask[localTask{r.id, n}] = found
		if tx.Now.Sub(db.Time(r.waitingSince)) >= spreadFor {
			return found.never
		}
		return found.busy
	})
	return failed
}

// full reports whether at none of the centers where a task may go a node has room for it now.
func (l *localRooms) full(job string, task int, t *place.Task) bool {
	x, known := l.byTask[localTask{job, task}]
	if !known {
		return false
	}
	for center := range l.at {
		if x.free && x.busy[center] == "" && (t.Pinned == nil || slices.Contains(t.Pinned, center)) {
			return false
		}
	}
	return true
}

func (s *Service) notLocal(ctx context.Context, tx *db.Tx, w localWish, amounts map[string]int64, local *localRooms) (rooms, error) {
	if local.found == nil {
		var err error
		if local.lending, err = s.lendingTx(ctx, tx); err != nil {
			return rooms{}, err
		}
		local.found, local.byTask = map[localWish]rooms{}, map[localTask]rooms{}
	}
	x := rooms{never: map[string]string{}, busy: map[string]string{}}
	for center := range local.at {
		now, ever, err := local.room(w.shares, nodesOf(local.of(center, w, amounts)))
		switch {
		case err != nil:
			return rooms{}, err
		case len(ever) == 0:
			x.never[center], x.busy[center] = "no pool node on its machine lends such shares now", "no pool node on its machine lends such shares now"
		case len(now) == 0:
			x.busy[center] = "the pool node on its machine has no room for its shares now, another center's has"
		}
		x.free = x.free || len(now) > 0
	}
	if !x.free {
		x.busy = x.never
	}
	local.found[w] = x
	return x, nil
}

// nearby is what is read once while runs are lent their shares.
type nearby struct {
	lending
	found map[wishAt]nodesFor
	used  map[string]map[string]core.Quantities // by center and machine: what runs have there
}

// wishAt is what runs at a center want alike.
type wishAt struct {
	center string
	wish   localWish
}

func (r *record) wishAt(a *attempt) wishAt {
	x := wishAt{a.center, r.wish(a.task, a.spec, a.resources)}
	if x.wish.allocation = ""; a.onNodes {
		x.wish.allocation = a.allocation
	}
	return x
}

// refuse notes that a node has no room for what wants alike, though it seemed so.
func (near *nearby) refuse(r *record, a *attempt, node string) {
	key := r.wishAt(a)
	x := near.found[key]
	x.now = slices.DeleteFunc(slices.Clone(x.now), func(id string) bool { return id == node })
	near.found[key] = x
}

// nodesFor are the nodes of which they could have it: now, and now or later.
type nodesFor struct{ now, ever []string }

// homeOf returns where a run is to have its shares on its machine: of the nodes on
// machines that have room for it first; where it was lent some already, there only. better
// says of one that another machine has room for it.
func (s *Service) homeOf(ctx context.Context, near *nearby, r *record, a *attempt, w pool.Shares) (home pool.Home, better bool, err error) {
	key := r.wishAt(a)
	list := []spot(nil)
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		if near.found == nil {
			if near.lending, err = s.lendingTx(ctx, tx); err != nil {
				return err
			}
			near.found = map[wishAt]nodesFor{}
		}
		list = near.of(a.center, key.wish, a.resources)
		if _, known := near.found[key]; !known {
			var x nodesFor
			if x.now, x.ever, err = near.room(w, nodesOf(list)); err != nil {
				return err
			}
			near.found[key] = x
		}
		if near.used[a.center] == nil && near.many[a.center] && a.node == "" && len(list) > 1 {
			err = near.read(ctx, tx, a.center)
		}
		return err
	})
	if err != nil {
		return home, false, err
	}
	slices.SortStableFunc(list, func(x, y spot) int { return near.full(x, a) - near.full(y, a) })
	found := near.found[key]
	for _, p := range list {
		now := slices.Contains(found.now, p.node)
		if p.machine != nil && a.node != "" && p.machine.Name != a.node {
			better = better || now
			continue
		}
		if slices.Contains(found.ever, p.node) {
			home.Lends = append(home.Lends, p.node)
		}
		if now && !home.Room {
			home.Node, home.Room = p.node, true
		}
	}
	if home.Node == "" && len(home.Lends) > 0 {
		home.Node = home.Lends[0]
	}
	return home, better && !home.Room, nil
}

// full is 1 of a machine that has no room for a run now.
func (near *nearby) full(p spot, a *attempt) int {
	if p.machine == nil || holdsAll(p.machine.Allocatable, near.used[a.center][p.machine.Name], a.resources) {
		return 0
	}
	return 1
}

// read sums up what runs have on the machines of a center.
func (near *nearby) read(ctx context.Context, tx *db.Tx, center string) error {
	as, err := queryAttempts(ctx, tx, `ai_center_id = $1 AND ended_at = 0 AND node <> ''`, center)
	if err != nil {
		return err
	}
	if near.used == nil {
		near.used = map[string]map[string]core.Quantities{}
	}
	near.used[center] = map[string]core.Quantities{}
	for _, a := range as {
		near.has(a, a.node)
	}
	return nil
}

func (near *nearby) has(a *attempt, machine string) {
	used := near.used[a.center][machine]
	if used == nil {
		used = core.Quantities{}
		near.used[a.center][machine] = used
	}
	for name, n := range a.resources {
		used[name] += n
	}
}

// settle has a run whose slices have a place go to that machine of its center, if that has
// many, and stay there; false: it tells of none. It is stored before the center is told.
func (s *Service) settle(ctx context.Context, near *nearby, a *attempt, m *adapterv1.Attempt) (bool, error) {
	if !near.many[a.center] {
		return true, nil
	}
	list := near.at[a.center]
	i := slices.IndexFunc(list, func(p spot) bool { return p.node == m.Pool.Passes[0].NodeId })
	if i < 0 || a.node != "" && list[i].machine.Name != a.node {
		return false, nil
	}
	if m.Node = list[i].machine.Name; a.node == m.Node {
		return true, nil
	}
	if near.used[a.center] != nil {
		near.has(a, m.Node)
	}
	a.node = m.Node
	return true, s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE attempts SET node = $2 WHERE attempt_id = $1 AND ended_at = 0`, a.id, a.node); err != nil {
			return fmt.Errorf("store the node of %s: %w", a.id, err)
		}
		return nil
	})
}
