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

// Replicas of jobs that are to be placed ask for their slices first, and wait for them
// without taking anything else: what they ask for is in the name of a wish, and becomes
// their run's when that is there (Lend).

// maxAsked is how many replicas of a tenant may wait for what is alike, or are before one that
// would: others are not behind all of its jobs. One that goes before some of so many has the last of
// them wait elsewhere.
const maxAsked = 64

// maxLocal is how many runs of a tenant may wait so that have a place already, as their
// shares are to be on their machine.
const maxLocal = 16

// crowded is why a replica does not wait here.
const crowded = "others of its tenant wait for such shares before it"

// likeness is what tells of two wishes of a tenant that they wait for the same devices.
type likeness struct {
	tenant, group, api, model, node string
	physical                        bool
}

func (s *Slice) likeness() likeness {
	return likeness{s.Tenant, s.Group, s.API, s.Model, s.WantNode, s.Physical}
}

// turn is when a replica has its turn among those that wait for what is alike.
type turn struct {
	priority, job, since int64
	wish                 string
}

func (s *Slice) asks() turn {
	return turn{s.Priority, s.run.Priority, db.Micros(s.CreatedAt), s.run.ID}
}

// above reports whether it goes before another for its priority.
func (t turn) above(o turn) bool {
	return cmp.Or(cmp.Compare(t.priority, o.priority), cmp.Compare(t.job, o.job)) > 0
}

// line are those that wait for what is alike.
type line []turn

// full reports whether one more would be behind as many as may wait.
func (l line) full(t turn) bool {
	before := 0
	for _, o := range l {
		if !t.above(o) {
			before++
		}
	}
	return before >= maxAsked
}

// last is where of those whose priority is lower the last is; -1: there is none, or not too
// many wait.
func (l line) last(t turn) (at int) {
	if at = -1; len(l) < maxAsked {
		return at
	}
	for i, o := range l {
		if t.above(o) && (at < 0 || l[at].above(o) || !o.above(l[at]) && o.since >= l[at].since) {
			at = i
		}
	}
	return at
}

func readAsked(ctx context.Context, tx *db.Tx) (map[string]pool.Wish, map[likeness]line, error) {
	wishes, waiting := map[string]pool.Wish{}, map[likeness]line{}
	err := tx.Query(ctx, `SELECT run_id, state, reason, tenant_id, group_id, api, model, want_node, physical, priority, job_priority, created_at FROM pool_slices WHERE wished AND state IN (1, 2) ORDER BY slice_id`, nil, func(row db.Row) error {
		var reason string
		var state State
		var l likeness
		var t turn
		if err := row.Scan(&t.wish, &state, &reason, &l.tenant, &l.group, &l.api, &l.model, &l.node, &l.physical, &t.priority, &t.job, &t.since); err != nil {
			return err
		}
		switch w, known := wishes[t.wish]; {
		case state == Assigned && !known:
			wishes[t.wish] = pool.Wish{Placed: true}
		case state == Waiting && (!known || w.Placed):
			waiting[l] = append(waiting[l], t)
			wishes[t.wish] = pool.Wish{Waits: cmp.Or(reason, notPlaced)}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read what replicas asked for: %w", err)
	}
	return wishes, waiting, nil
}

// readLocal counts the runs that wait with a place, by what is alike wherever they are.
func readLocal(ctx context.Context, tx *db.Tx) (map[likeness]int, error) {
	waiting := map[likeness]int{}
	err := tx.Query(ctx, `SELECT tenant_id, group_id, api, model, physical, COUNT(DISTINCT run_id) FROM pool_slices WHERE state = 1 AND run_id <> '' AND NOT wished GROUP BY tenant_id, group_id, api, model, physical`, nil, func(row db.Row) error {
		var l likeness
		var n int
		err := row.Scan(&l.tenant, &l.group, &l.api, &l.model, &l.physical, &n)
		waiting[l] = n
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count the runs that wait for slices: %w", err)
	}
	return waiting, nil
}

// AskedTx returns what replicas that wait to be placed have asked for.
func (s *Service) AskedTx(ctx context.Context, tx *db.Tx) (out pool.Asked, err error) {
	var waiting map[likeness]line
	if out.Wishes, waiting, err = readAsked(ctx, tx); err != nil {
		return out, err
	}
	p := &whole{} // which nodes there are says nothing of it
	if p.groups, err = readGroups(ctx, tx); err != nil {
		return out, err
	}
	if p.specs, err = readSpecs(ctx, tx); err != nil {
		return out, err
	}
	local, err := readLocal(ctx, tx)
	if err != nil {
		return out, err
	}
	out.Full = func(w pool.Shares) string {
		r, caller := request(w)
		x, cards := r.slice(caller, tx.Now)
		if _, err := p.complete(caller, &r, x, cards); err != nil {
			return "" // who asks is told
		}
		l := x.likeness()
		if w.Local {
			if l.node = ""; local[l] >= maxLocal {
				return crowded
			}
			local[l]++
			return ""
		}
		if waiting[l].full(x.asks()) {
			return crowded
		}
		waiting[l] = append(waiting[l], x.asks())
		return ""
	}
	return out, nil
}

// RoomTx returns what says why a run could not have its shares now, "" if it could, unless
// others wait for them; of what the pool refuses whatever there is it says nothing.
func (s *Service) RoomTx(ctx context.Context, tx *db.Tx) (func(w pool.Shares) (string, error), error) {
	p, err := s.readPool(ctx, tx)
	if err != nil {
		return nil, err
	}
	nodes := mine(p.nodes)
	return func(w pool.Shares) (string, error) {
		r, caller := request(w)
		x, cards := r.slice(caller, tx.Now)
		g, err := p.complete(caller, &r, x, cards)
		if err != nil {
			return "", nil //nolint:nilerr // who asks is told
		}
		set := []*Slice{x}
		for i := range cards - 1 {
			y := *x
			y.ID = fmt.Sprintf("%s.%d", x.ID, i)
			set = append(set, &y)
		}
		return s.together(set, g, nodes, p.base)
	}, nil
}

// Ask has replicas that are to be placed ask for their shares, in their order, unless they
// did, and returns what those wait for that have none yet, and why others may not ask now. What
// is refused whenever it is asked for waits for nothing: Lend says why.
func (s *Service) Ask(ctx context.Context, all []pool.Shares) (waits, not map[string]string, err error) {
	if err := s.refresh(ctx); err != nil {
		return nil, nil, err
	}
	err = s.tx(ctx, func(tx *db.Tx) error {
		waits, not = map[string]string{}, map[string]string{}
		a := &asking{s: s}
		if a.wishes, a.waiting, err = readAsked(ctx, tx); err != nil {
			return err
		}
		if a.pool, err = s.readPool(ctx, tx); err != nil {
			return err
		}
		for _, gang := range byGang(all) {
			why, err := a.ask(ctx, tx, gang)
			if err != nil {
				return err
			}
			for _, w := range gang {
				if why != "" {
					not[w.Wish] = why
				}
			}
		}
		if a.asked > 0 {
			if err := s.fillTx(ctx, tx); err != nil {
				return err
			}
			if a.wishes, _, err = readAsked(ctx, tx); err != nil {
				return err
			}
		}
		for _, w := range all {
			if x, has := a.wishes[w.Wish]; has && !x.Placed {
				waits[w.Wish] = x.Waits
			}
		}
		return nil
	})
	return waits, not, err
}

// byGang are replicas by their gangs, in the order of the first of each.
func byGang(all []pool.Shares) (out [][]pool.Shares) {
	at := map[string]int{}
	for _, w := range all {
		i, known := at[w.Gang]
		if !known || w.Gang == "" {
			i = len(out)
			at[w.Gang], out = i, append(out, nil)
		}
		out[i] = append(out[i], w)
	}
	return out
}

// asking is what is known while replicas ask.
type asking struct {
	s       *Service
	pool    *whole
	wishes  map[string]pool.Wish
	waiting map[likeness]line
	bare    []*Node // with nothing lent; nil: not made
	asked   int
}

// ask has the replicas of a gang, or one by itself, ask for what they have not; all or none:
// it returns why.
func (a *asking) ask(ctx context.Context, tx *db.Tx, gang []pool.Shares) (why string, err error) {
	var list []*Slice
	var cards []int64
	has, sum := false, int64(0)
	for _, w := range gang {
		if _, known := a.wishes[w.Wish]; known {
			has = true
			continue
		}
		r, caller := request(w)
		x, n := r.slice(caller, tx.Now.Add(time.Duration(a.asked+len(list))*time.Microsecond))
		if !w.Since.IsZero() && w.Since.Before(x.CreatedAt) {
			x.CreatedAt = w.Since
		}
		if r.check() != nil || a.pool.allowed(caller, &r, x, n) != nil {
			continue
		}
		x.run.ID, x.wished = w.Wish, true
		list, cards, sum = append(list, x), append(cards, n), sum+n
	}
	if len(list) == 0 {
		return "", nil
	}
	if len(gang) > 1 {
		if could, err := a.could(list); err != nil || !could {
			return fmt.Sprintf("the pool has no %d such shares at once", len(list)), err
		}
	}
	if !has {
		kind := list[0].likeness()
		if a.waiting[kind].full(list[0].asks()) {
			return crowded, nil
		}
		if err := a.give(ctx, tx, kind, list[0].asks()); err != nil {
			return "", err
		}
	}
	if err := mayWait(ctx, tx, sum); errors.Is(err, errFull) {
		why, _ = fault.Message(err)
		return why, nil
	} else if err != nil {
		return "", err
	}
	sets := map[string]string{} // by group
	for i, x := range list {
		// Who had a place and came too late to what else it needs keeps its turn.
		var since int64
		if _, err := tx.Get(ctx, `SELECT COALESCE(MIN(created_at), 0) FROM pool_slices WHERE run_id = $1 AND run_id <> ''`, []any{x.run.ID}, &since); err != nil {
			return "", fmt.Errorf("read since when %s asks: %w", x.run.ID, err)
		}
		if since > 0 {
			x.CreatedAt = db.Time(since)
		}
		if len(gang) > 1 {
			if sets[x.Group] == "" {
				sets[x.Group] = core.NewID("set") // of no slice: a run's own has the name of its first
			}
			x.Set = sets[x.Group]
		}
		owner := core.Caller{UserID: x.User, UserName: x.UserName, TenantID: x.Tenant}
		if err := a.s.queueTx(core.WithCaller(ctx, owner), tx, x, cards[i]); err != nil {
			return "", err
		}
		a.asked++
		a.waiting[x.likeness()] = append(a.waiting[x.likeness()], x.asks())
	}
	return "", nil
}

// pushedOff is why what a replica asked for ends that it may ask for again later.
const pushedOff = "as many with a higher priority wait for such shares"

// give has one that waits with a lower priority, and its gang, make place for another.
func (a *asking) give(ctx context.Context, tx *db.Tx, kind likeness, t turn) error {
	i := a.waiting[kind].last(t)
	if i < 0 {
		return nil
	}
	list, err := readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' AND state IN (1, 2) ORDER BY slice_id`, a.waiting[kind][i].wish)
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for _, x := range list {
		if gone[x.run.ID] = true; x.Set != "" {
			set, err := readSlices(ctx, tx, `WHERE set_id = $1 AND set_id <> '' AND state < 4 ORDER BY slice_id`, x.Set)
			if err != nil {
				return err
			}
			for _, y := range set {
				gone[y.run.ID] = true
			}
		}
		if err := a.s.endTx(ctx, tx, x, pushedOff); err != nil {
			return err
		}
	}
	for id := range gone {
		delete(a.wishes, id)
	}
	for l, line := range a.waiting {
		a.waiting[l] = slices.DeleteFunc(line, func(o turn) bool { return gone[o.wish] })
	}
	return nil
}

// could reports whether the slices of a gang could have a place together if nothing was
// lent.
func (a *asking) could(list []*Slice) (bool, error) {
	if a.bare == nil {
		a.bare = bare(a.pool.nodes)
	}
	of := map[string][]*Slice{}
	for _, x := range list {
		of[x.Group] = append(of[x.Group], x)
	}
	for id, set := range of {
		i := slices.IndexFunc(a.pool.groups, func(g *Group) bool { return g.ID == id })
		if why, err := a.s.together(set, emptied(a.pool.groups[i]), a.bare, a.pool.base); why != "" || err != nil {
			return false, err
		}
	}
	return true, nil
}

// PriorityTx changes what the priority of their job is for runs, and wishes.
func (s *Service) PriorityTx(ctx context.Context, tx *db.Tx, ids []string, priority int64) error {
	among, arg := tx.In(2, ids)
	if _, err := tx.Exec(ctx, `UPDATE pool_slices SET job_priority = $1 WHERE run_id <> '' AND state < 4 AND run_id `+among, priority, arg); err != nil {
		return fmt.Errorf("change the priority of what a job's runs wait for: %w", err)
	}
	return nil
}

// Keep says that replicas still wait for what they asked for.
func (s *Service) Keep(ctx context.Context, wishes []string) error {
	for part := range slices.Chunk(wishes, 500) {
		err := s.tx(ctx, func(tx *db.Tx) error {
			among, arg := tx.In(2, part)
			_, err := tx.Exec(ctx, `UPDATE pool_slices SET polled_at = $1 WHERE state = 1 AND run_id `+among, db.Micros(tx.Now), arg)
			return err
		})
		if err != nil {
			return fmt.Errorf("say that replicas wait: %w", err)
		}
	}
	return nil
}

// Hold has replicas keep slices that have a place until then, though they have no room: it is
// being made.
func (s *Service) Hold(ctx context.Context, wishes []string, until time.Time) error {
	err := s.tx(ctx, func(tx *db.Tx) error {
		among, arg := tx.In(2, wishes)
		_, err := tx.Exec(ctx, `UPDATE pool_slices SET assigned_at = $1 WHERE wished AND state = 2 AND assigned_at < $1 AND run_id `+among, db.Micros(until.Add(-unclaimed)), arg)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep slices for replicas: %w", err)
	}
	return nil
}

// adopt makes what a replica asked for its run's, and returns it.
func (s *Service) adopt(ctx context.Context, w pool.Shares) (list []*Slice, err error) {
	err = s.tx(ctx, func(tx *db.Tx) (err error) {
		list, err = readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' AND state < 4 ORDER BY slice_id`, w.Wish)
		if err != nil || len(list) == 0 {
			return err
		}
		set := "" // of its own: those of its gang end when they end
		if len(list) > 1 {
			set = list[0].ID
		}
		_, err = tx.Exec(ctx, `UPDATE pool_slices SET run_id = $2, run_number = $3, set_id = $4, wished = $5, polled_at = $6, metered_at = $6, assigned_at = CASE WHEN state = 2 THEN $6 ELSE assigned_at END
			WHERE run_id = $1 AND run_id <> '' AND state < 4`, w.Wish, w.Run, int64(w.Number), set, false, db.Micros(tx.Now))
		if err != nil {
			return fmt.Errorf("give run %s what was asked for it: %w", w.Run, err)
		}
		list, err = readSlices(ctx, tx, `WHERE run_id = $1 AND run_id <> '' ORDER BY slice_id`, w.Run)
		return err
	})
	return list, err
}
