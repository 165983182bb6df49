package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
)

// maxWait is how long an answer may wait.
const maxWait = 5 * time.Second

// Request asks for a slice. Kinds: Invalid, NotFound for a group, specification
// or kind of device that is not there, Exhausted for what the quota or no device
// allows, Denied.
func (s *Service) Request(ctx context.Context, r Request) (out *Slice, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	caller := core.CallerFrom(ctx)
	if caller.TenantID == "" {
		return nil, fault.New(fault.Denied, "user %s belongs to no tenant, whose the slice would be", caller.UserID)
	}
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	var wanted *Slice
	err = s.tx(ctx, func(tx *db.Tx) error {
		x, cards := r.slice(caller, tx.Now)
		wanted = x
		if r.ID != "" {
			x.requestKey = caller.UserID + "/" + r.ID
			if known, err := readSlices(ctx, tx, `WHERE request_key = $1`, x.requestKey); err != nil || len(known) > 0 {
				if err == nil {
					out, err = s.readTx(ctx, tx, known[0].ID)
				}
				return err
			}
		}
		p, err := s.readPool(ctx, tx)
		if err != nil {
			return err
		}
		if err := p.allowed(caller, &r, x, cards); err != nil {
			return err
		}
		if err := mayWait(ctx, tx, cards); err != nil {
			return err
		}
		if err := s.queueTx(ctx, tx, x, cards); err != nil {
			return err
		}
		if err := s.fillTx(ctx, tx); err != nil {
			return err
		}
		out, err = s.readTx(ctx, tx, x.ID)
		return err
	})
	if kind := fault.KindOf(err); err != nil && (kind == fault.Exhausted || kind == fault.Denied) {
		s.refused(ctx, wanted, err)
	}
	return out, err
}

// slice is what a caller asks for, of as many as it returns, that waits since now.
func (r *Request) slice(caller core.Caller, now time.Time) (x *Slice, cards int64) {
	x = &Slice{ID: core.NewID("slice"), Tenant: caller.TenantID, User: caller.UserID, UserName: caller.UserName, Name: r.Name, Spec: r.Spec, Compute: r.Compute, Memory: r.Memory, Weighted: r.Weighted,
		Model: r.Model, WantNode: r.Node, WantDevice: r.Device, Host: r.Host, Policy: r.Policy, Fixed: r.Fixed, Priority: r.Priority, Idle: r.IdleSeconds, Limit: r.LimSeconds, Physical: r.Physical, Affinity: r.Affinity, Anti: r.Anti, Across: r.Across, State: Waiting, run: r.run,
		CreatedAt: now, PolledAt: now, QueuedAt: now}
	if x.requestKey = x.ID; x.Physical {
		x.Compute = 100 // and the card's memory, when it is known
	}
	if cards = max(r.Cards, 1); cards > 1 {
		x.Set = x.ID
	}
	return x, cards
}

// errFull: more do not wait.
var errFull = fault.New(fault.Exhausted, "%d slices wait already, which is the most", maxWaiting)

// mayWait is errFull if not so many more slices may wait.
func mayWait(ctx context.Context, tx *db.Tx, more int64) error {
	var waiting int64
	if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM pool_slices WHERE state = 1`, nil, &waiting); err != nil {
		return fmt.Errorf("count the slices that wait: %w", err)
	}
	if waiting+more > maxWaiting {
		return errFull
	}
	return nil
}

// queueTx has slices wait, as many as there are cards. The caller calls fillTx.
func (s *Service) queueTx(ctx context.Context, tx *db.Tx, x *Slice, cards int64) error {
	for i := range cards {
		y := *x
		if i > 0 {
			y.ID = core.NewID("slice")
			y.requestKey = y.ID
		}
		if err := putSlice(ctx, tx, &y); err != nil {
			return err
		}
		if err := s.logs.AddTx(ctx, tx, about(&y, logs.Info, "slice requested", y.asked())); err != nil {
			return err
		}
	}
	return s.ids.AuditTx(ctx, tx, x.ID)
}

// allowed says whether a slice that is asked for could be had, and completes it.
func (p *whole) allowed(caller core.Caller, r *Request, x *Slice, cards int64) error {
	g, err := p.complete(caller, r, x, cards)
	if err != nil {
		return err
	}
	return possible(x, cards, g, p.nodes, p.base)
}

// whole is what there is to lend, and who may have it.
type whole struct {
	groups []*Group
	specs  []*Spec
	nodes  []*Node
	base   Policy
	near   []*Slice // that others are to be beside, or apart from; read where it matters
}

func (s *Service) readPool(ctx context.Context, tx *db.Tx) (p *whole, err error) {
	p = &whole{}
	if p.groups, err = readGroups(ctx, tx); err != nil {
		return nil, err
	}
	if p.specs, err = readSpecs(ctx, tx); err != nil {
		return nil, err
	}
	if p.nodes, err = s.nodesTx(ctx, tx); err != nil {
		return nil, err
	}
	p.base, err = readPolicy(ctx, tx)
	return p, err
}

// complete says of a slice that is asked for what its group, which it returns, and its
// specification say.
func (p *whole) complete(caller core.Caller, r *Request, x *Slice, cards int64) (*Group, error) {
	g, err := groupOf(p.groups, caller, r.Group)
	if err != nil {
		return nil, err
	}
	if x.Group = g.ID; x.Priority > g.MaxPriority {
		return nil, fault.Fields(fault.Field{Path: "priority", Problem: fmt.Sprintf("must be at most %d in group %s, got %d", g.MaxPriority, g.ID, x.Priority)})
	}
	if r.Spec != "" {
		i := slices.IndexFunc(p.specs, func(y *Spec) bool { return y.ID == r.Spec })
		if i < 0 {
			return nil, fault.New(fault.NotFound, "there is no specification %q of slices; see yunhe pool spec list", r.Spec)
		}
		if x.Compute, x.Memory, x.Weighted, x.PriceFen = p.specs[i].Compute, p.specs[i].Memory, p.specs[i].Weighted, p.specs[i].PriceFen; x.Model == "" {
			x.Model = p.specs[i].Model
		}
	}
	x.API = cmp.Or(r.API, apiOf(p.nodes, r.Node, r.Device), pool.OpenCL)
	if cards > 1 && x.API == pool.CUDA && !x.Fixed && !r.beside {
		x.Policy.Local = LocalOnly
	}
	return g, nil
}

// apiOf is what programs use a device by; "": there is no such device.
func apiOf(nodes []*Node, node, device string) string {
	for _, n := range nodes {
		for _, d := range n.Devices {
			if n.ID == node && d.ID == device {
				return d.API
			}
		}
	}
	return ""
}

// refused has the log say what was refused: not in the transaction, which did
// nothing.
func (s *Service) refused(ctx context.Context, x *Slice, why error) {
	if !s.refusals.allow(s.db.Now()) {
		return
	}
	err := s.tx(ctx, func(tx *db.Tx) error {
		e := about(x, logs.Warn, "slice refused", fmt.Sprintf("reason=%q %s", why.Error(), x.asked()))
		e.Slice = "" // there is none
		return s.logs.AddTx(ctx, tx, e)
	})
	if err != nil {
		s.log.Warn("not logged that a slice was refused", "error", err)
	}
}

func groupOf(all []*Group, caller core.Caller, id string) (*Group, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(g *Group) bool { return !g.admits(caller) || id != "" && g.ID != id })
	switch {
	case len(all) == 1:
		return all[0], nil
	case id != "":
		return nil, fault.New(fault.Denied, "there is no group %q of the pool that user %s may use", id, caller.UserID)
	case len(all) == 0:
		return nil, fault.New(fault.Denied, "user %s may use no group of the pool; an administrator makes one with: yunhe pool group set", caller.UserID)
	}
	return nil, fault.Fields(fault.Field{Path: "group_id", Problem: fmt.Sprintf("is required: there are %d groups that you may use", len(all))})
}

// readTx returns a slice with its position and what its node last reported.
func (s *Service) readTx(ctx context.Context, tx *db.Tx, id string) (*Slice, error) {
	x, err := findSlice(ctx, tx, id, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	return x, details(ctx, tx, []*Slice{x})
}

// details adds positions, and what nodes last reported.
func details(ctx context.Context, tx *db.Tx, list []*Slice) error {
	beats := map[string]*beat{}
	var queue map[string]int64 // positions
	for _, x := range list {
		if x.Set != "" {
			set, err := readSlices(ctx, tx, `WHERE set_id = $1 AND set_id <> '' ORDER BY slice_id`, x.Set)
			if err != nil {
				return err
			}
			x.Cards = nil
			for _, y := range set {
				if y.run.ID == x.run.ID { // else of another replica of its gang
					x.Cards = append(x.Cards, y.ID)
				}
			}
			slices.SortStableFunc(x.Cards, func(a, b string) int { // the first is the one that was answered
				if (a == x.Set) != (b == x.Set) {
					return map[bool]int{true: -1, false: 1}[a == x.Set]
				}
				return 0
			})
		}
		switch {
		case x.State == Waiting:
			if len(list) == 1 {
				if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM pool_slices WHERE state = 1 AND (priority > $1 OR priority = $1 AND (job_priority > $2 OR job_priority = $2 AND (created_at, slice_id) <= ($3, $4)))`, x.turn(), &x.Position); err != nil {
					return fmt.Errorf("read the queue: %w", err)
				}
				continue
			}
			if queue == nil {
				queue = map[string]int64{}
				if err := tx.Query(ctx, `SELECT slice_id FROM pool_slices WHERE state = 1`+inTurn, nil, func(row db.Row) error {
					var id string
					err := row.Scan(&id)
					queue[id] = int64(len(queue)) + 1
					return err
				}); err != nil {
					return fmt.Errorf("read the queue: %w", err)
				}
			}
			x.Position = queue[x.ID]
		case x.State == Running:
			if beats[x.Node] == nil {
				b, err := readBeat(ctx, tx, x.Node)
				if err != nil {
					return err
				}
				beats[x.Node] = b
			}
			beats[x.Node].did(x)
			for _, t := range beats[x.Node].tasks {
				if t.Slice == x.ID {
					x.Used, x.Programs = t.Used, t.Programs
				}
			}
		}
	}
	return nil
}

// Access is how a client gets to a slice.
type Access struct {
	Addresses   []string
	Host        string
	Ticket, Key string
	Bus         string // where a card of CUDA's is
}

// pollEvery is how often it is stored that somebody awaits a slice.
const pollEvery = 3 * time.Second

// Await waits until a slice has a place, for as long as wait, and then gives a
// ticket.
func (s *Service) Await(ctx context.Context, id string, wait time.Duration) (*Slice, *Access, error) {
	var c core.Check
	if c.Range("wait_ms", wait.Milliseconds(), 0, maxWait.Milliseconds()); c.Err() != nil {
		return nil, nil, c.Err()
	}
	caller := core.CallerFrom(ctx)
	told := s.feed.Watch()
	defer told.Close()
	late := time.NewTimer(wait)
	defer late.Stop()
	for over := wait == 0; ; {
		var x *Slice
		var access *Access
		err := s.db.View(ctx, func(tx *db.Tx) (err error) {
			if x, err = findSlice(ctx, tx, id, caller.Sees); err != nil {
				return err
			}
			if err := details(ctx, tx, []*Slice{x}); err != nil {
				return err
			}
			if x.User != caller.UserID && !caller.AllTenants { // others see it and have no use of it
				return fault.New(fault.Denied, "slice %s is user %s's", id, x.User)
			}
			access, err = s.access(ctx, tx, x)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if err := s.awaited(ctx, x); err != nil {
			return nil, nil, err
		}
		if over || access != nil || x.State != Waiting && x.State != Assigned {
			return x, access, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, fault.Wrap(fault.Canceled, ctx.Err(), "the caller went away")
		case <-late.C:
			over = true
		case <-told.Changed:
			for !slices.Contains(told.Take(), id) && !over {
				select {
				case <-ctx.Done():
					return nil, nil, fault.Wrap(fault.Canceled, ctx.Err(), "the caller went away")
				case <-late.C:
					over = true
				case <-told.Changed:
				}
			}
		}
	}
}

// awaited stores, now and then, that somebody awaits a slice.
func (s *Service) awaited(ctx context.Context, x *Slice) error {
	if x.State != Waiting || s.db.Now().Sub(x.PolledAt) <= pollEvery {
		return nil
	}
	return s.tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE pool_slices SET polled_at = $2 WHERE (slice_id = $1 OR set_id = $3 AND $3 <> '') AND state = 1`, x.ID, db.Micros(tx.Now), x.Set)
		return err
	})
}

// access returns a new ticket for a slice that has a place, nil if it has none.
func (s *Service) access(ctx context.Context, tx *db.Tx, x *Slice) (*Access, error) {
	if x.moves() || x.State != Assigned && !(x.State == Running && x.Fixed) { // what moves is told where it is when it is there
		return nil, nil
	}
	secret, err := s.secretTx(ctx, tx, x.Node)
	if err != nil {
		return nil, err
	}
	b, err := readBeat(ctx, tx, x.Node)
	if err != nil {
		return nil, err
	}
	a := &Access{}
	var addresses string
	if _, err := tx.Get(ctx, `SELECT host, addresses FROM pool_nodes WHERE node_id = $1`, []any{x.Node}, &a.Host, &addresses); err != nil {
		return nil, err
	}
	if err := fromJSON(addresses, &a.Addresses); err != nil {
		return nil, err
	}
	serial := x.ID // a slice for one program has one, ever
	if x.Fixed {
		serial = core.NewID("ticket")
	}
	if !x.AssignedAt.IsZero() && !x.Fixed {
		serial += "." + strconv.FormatInt(db.Micros(x.AssignedAt), 36) // placed anew, on another start of a node maybe
	}
	ratio := int64(minLimit)
	if x.API == pool.CUDA {
		if _, err := tx.Get(ctx, `SELECT memory_ratio, bus FROM pool_devices WHERE node_id = $1 AND device_id = $2`, []any{x.Node, x.Device}, &ratio, &a.Bus); err != nil {
			return nil, err
		}
	}
	t := pool.Ticket{Node: x.Node, Boot: b.boot, Epoch: b.epoch, Serial: serial, Slice: x.ID, Group: x.Group, Shared: x.Fixed, Pages: ratio > minLimit,
		Spec: pool.Spec{Device: x.Device, Compute: x.Compute, Memory: x.Memory << 20, Weighted: x.Weighted, Idle: x.Idle, Limit: x.Limit, Name: x.Name}}
	a.Ticket, a.Key, err = t.Sign(secret)
	return a, err
}

// Filter selects slices; what is empty selects all.
type Filter struct {
	States              []State
	Group, Node, Device string // Device is of Node
}

// List returns a page of the slices the caller may see, newest first.
func (s *Service) List(ctx context.Context, f Filter, size int32, token string) (list []*Slice, next string, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	before, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	if len(before) == 0 {
		before = []string{"~"} // after all IDs
	}
	var c core.Check
	for _, x := range [][2]string{{"group_id", f.Group}, {"node_id", f.Node}, {"device_id", f.Device}} {
		if x[1] != "" {
			c.ID(x[0], x[1])
		}
	}
	if f.Device != "" && f.Node == "" {
		c.Add("node_id", "is required with device_id")
	}
	if len(f.States) == 0 {
		f.States = []State{Waiting, Assigned, Running}
	}
	wanted := [5]bool{}
	for i, st := range f.States {
		if c.Range(fmt.Sprintf("states[%d]", i), int64(st), int64(Waiting), int64(Ended)); st >= Waiting && st <= Ended {
			wanted[st] = true
		}
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	caller := core.CallerFrom(ctx)
	scope := caller.Tenant("")
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		list, err = readSlices(ctx, tx, `WHERE slice_id < $1 AND ($2 = '' OR tenant_id = $2) AND ($3 = '' OR group_id = $3) AND ($4 = '' OR node_id = $4)
			AND (state = 1 AND $5 OR state = 2 AND $6 OR state = 3 AND $7 OR state = 4 AND $8) AND ($9 = '' OR device_id = $9) ORDER BY slice_id DESC LIMIT $10`,
			before[0], scope, f.Group, f.Node, wanted[1], wanted[2], wanted[3], wanted[4], f.Device, int64(n)+1)
		if err != nil {
			return err
		}
		if len(list) > n {
			list = list[:n]
			next = core.PageToken(list[n-1].ID)
		}
		return details(ctx, tx, list)
	})
	return list, next, err
}

// own returns a slice that the caller may change.
func own(ctx context.Context, tx *db.Tx, id string) (*Slice, error) {
	caller := core.CallerFrom(ctx)
	x, err := findSlice(ctx, tx, id, caller.Sees)
	if err == nil && x.User != caller.UserID && !caller.Can("scheduler.write") {
		err = fault.New(fault.Denied, "slice %s is user %s's", id, x.User)
	}
	return x, err
}

// Resize changes what a slice has, while its program computes; 0 stays.
func (s *Service) Resize(ctx context.Context, id string, compute, mem int64) (out *Slice, err error) {
	var c core.Check
	if compute != 0 {
		c.Range("compute_percent", compute, 1, 100)
	}
	if mem != 0 {
		c.Range("memory_mib", mem, 1, maxMemory)
	}
	if compute == 0 && mem == 0 {
		c.Add("compute_percent", "or memory_mib is required")
	}
	if c.Err() != nil {
		return nil, c.Err()
	}
	err = s.tx(ctx, func(tx *db.Tx) error {
		x, err := own(ctx, tx, id)
		if err != nil {
			return err
		}
		switch {
		case x.State != Assigned && x.State != Running:
			return fault.New(fault.Conflict, "slice %s has no place", id)
		case x.Physical:
			return fault.New(fault.Conflict, "slice %s is a whole card", id)
		case x.moves():
			return fault.New(fault.Conflict, "slice %s is being moved", id)
		}
		was := *x
		if compute != 0 {
			x.Compute = compute
		}
		if mem != 0 {
			x.Memory = mem
		}
		if err := s.roomTx(ctx, tx, x, x.counted()-was.counted(), x.Memory-was.Memory); err != nil {
			return err
		}
		if err := s.meterTx(ctx, tx, &was, tx.Now); err != nil {
			return err
		}
		x.meteredAt = was.meteredAt
		if err := lend(ctx, tx, x.Node, x.Device, x.counted()-was.counted(), x.Memory-was.Memory, 0); err != nil {
			return err
		}
		if err := putSlice(ctx, tx, x); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		if err := s.logs.AddTx(ctx, tx, about(x, logs.Info, "slice resized", x.asked())); err != nil {
			return err
		}
		if err := s.emit(ctx, tx, x.ID, x.Node); err != nil {
			return err
		}
		if err := s.fillTx(ctx, tx); err != nil {
			return err
		}
		out, err = s.readTx(ctx, tx, id)
		return err
	})
	return out, err
}

// roomTx says whether a slice's device and group have that much more, which it has
// then.
func (s *Service) roomTx(ctx context.Context, tx *db.Tx, x *Slice, compute, mem int64) error {
	n, err := readNode(ctx, tx, x.Node, false)
	switch {
	case fault.KindOf(err) == fault.NotFound: // it is gone
	case err != nil:
		return err
	default:
		for _, d := range n.Devices {
			if d.ID != x.Device {
				continue
			}
			if d.ComputeLent+compute > d.ComputeLimit || d.MemoryLent+mem > d.MemoryLimit {
				return fault.New(fault.Exhausted, "device %s of pool node %s has %d%% and %d MiB left, %d%% and %d MiB more are wanted", d.ID, n.ID, d.ComputeLimit-d.ComputeLent, d.MemoryLimit-d.MemoryLent, compute, mem)
			}
			if mem > 0 && x.Memory > d.Memory {
				return fault.New(fault.Exhausted, "device %s of pool node %s has %d MiB of memory, %d MiB are wanted", d.ID, n.ID, d.Memory, x.Memory)
			}
		}
	}
	groups, err := readGroups(ctx, tx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.ID == x.Group && (compute > 0 && g.ComputeLimit > 0 && g.ComputeLent+compute > g.ComputeLimit || mem > 0 && g.MemoryLimit > 0 && g.MemoryLent+mem > g.MemoryLimit) {
			return fault.New(fault.Exhausted, "the request exceeds the quota of group %s: %d of %d%% compute and %d of %d MiB memory are lent", g.ID, g.ComputeLent, g.ComputeLimit, g.MemoryLent, g.MemoryLimit)
		}
	}
	return nil
}

// Release ends a slice; one that has ended stays as it is.
func (s *Service) Release(ctx context.Context, id string) (out *Slice, err error) {
	err = s.tx(ctx, func(tx *db.Tx) error {
		x, err := own(ctx, tx, id)
		if err != nil {
			return err
		}
		if x.State != Ended {
			if err := s.endTx(ctx, tx, x, "it was released"); err != nil {
				return err
			}
			if err := s.ids.AuditTx(ctx, tx, id); err != nil {
				return err
			}
			if err := s.fillTx(ctx, tx); err != nil {
				return err
			}
		}
		out, err = s.readTx(ctx, tx, id)
		return err
	})
	return out, err
}

// endTx ends a slice, and the others that its program has, or its gang waits for, and gives
// back what they had. The caller calls fillTx.
func (s *Service) endTx(ctx context.Context, tx *db.Tx, x *Slice, reason string) error {
	if over, err := overWithSet(ctx, tx, x); err != nil || over {
		return err
	}
	if err := s.endOneTx(ctx, tx, x, reason); err != nil || x.Set == "" {
		return err
	}
	others, err := readSlices(ctx, tx, `WHERE set_id = $1 AND set_id <> '' AND state < 4 ORDER BY slice_id`, x.Set)
	if err != nil {
		return err
	}
	for _, o := range others {
		why := reason // of another replica of its gang
		if o.run.ID == x.run.ID {
			why = "slice " + x.ID + ofProgram + reason
		}
		if err := s.endOneTx(ctx, tx, o, why); err != nil {
			return err
		}
	}
	return nil
}

// overWithSet reports whether a slice ended, since it was read, with another that its
// program has.
func overWithSet(ctx context.Context, tx *db.Tx, x *Slice) (bool, error) {
	if x.Set == "" {
		return false, nil
	}
	now, err := readSlices(ctx, tx, `WHERE slice_id = $1 AND state = 4`, x.ID)
	return len(now) > 0, err
}

func (s *Service) endOneTx(ctx context.Context, tx *db.Tx, x *Slice, reason string) error {
	ids := []string{x.ID}
	if x.State != Waiting {
		ids = append(ids, x.Node)
		if err := s.giveBackTx(ctx, tx, x); err != nil {
			return err
		}
	}
	x.State, x.Reason, x.EndedAt = Ended, reason, tx.Now
	level := logs.Info
	if x.Failed() {
		level = logs.Error
	}
	if err := s.logs.AddTx(ctx, tx, about(x, level, "slice ended", fmt.Sprintf("reason=%q device_time=%s", reason, x.Busy.Round(time.Millisecond)))); err != nil {
		return err
	}
	if err := putSlice(ctx, tx, x); err != nil {
		return err
	}
	if err := tx.Insert(ctx, "pool_ended", []string{"slice_id"}, [][]any{{x.ID}}); err != nil {
		return err
	}
	return s.emit(ctx, tx, ids...)
}

// giveBackTx takes a slice's place, also the one that it moves to, and meters it.
func (s *Service) giveBackTx(ctx context.Context, tx *db.Tx, x *Slice) error {
	if err := s.meterTx(ctx, tx, x, tx.Now); err != nil {
		return err
	}
	if x.State == Running && !x.said {
		b, err := readBeat(ctx, tx, x.Node)
		if err != nil {
			return err
		}
		b.did(x)
	}
	if x.moves() {
		if err := s.stayTx(ctx, tx, x, "the slice ended"); err != nil {
			return err
		}
	}
	return lend(ctx, tx, x.Node, x.Device, -x.counted(), -x.Memory, -1)
}

// custom stands for the specification of what has none.
const custom = "custom"

// meterTx records what a slice had since it was last recorded, as time of a whole
// device: half a device for an hour is half an hour.
func (s *Service) meterTx(ctx context.Context, tx *db.Tx, x *Slice, until time.Time) error {
	from := x.meteredAt
	if !until.After(from) {
		return nil // a clock that went back takes nothing away
	}
	if x.meteredAt = until; x.wished {
		return nil // it is nobody's until its run is placed
	}
	spec := x.Spec
	if spec == "" {
		spec = custom
	}
	return s.meter.RecordTx(ctx, tx, []metering.Record{{AttemptID: fmt.Sprintf("%s.%d", x.ID, db.Micros(from)), TenantID: x.Tenant, UserName: x.UserName, AICenterID: "pool/" + x.Node, ResourceSpecID: spec,
		StartedAt: from, EndedAt: until, Price: x.PriceFen, AllocationID: x.ID, PackageMicros: until.Sub(from).Microseconds() * x.Compute / 100,
		JobID: x.run.Job, Project: x.run.Project, TaskName: x.run.Task, TaskIndex: int32(x.run.TaskIndex), ReplicaIndex: int32(x.run.Replica), Attempt: int32(x.run.Number)}})
}
