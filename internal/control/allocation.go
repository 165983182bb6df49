package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Application is what is applied for.
type Application struct {
	Name     string
	SpecID   string
	Count    int64
	Amounts  map[string]string // Kubernetes notation
	Nodes    []string
	CenterID string
	Region   string
	StartAt  time.Time // zero: now
	EndAt    time.Time // zero: open
	NoWait   bool
	Weights  map[string]int32
	// ReservationID is what the calendar applies for; its promise is not in its
	// own way.
	ReservationID string
}

// ParseAmounts reads amounts, adding what is wrong to c.
func ParseAmounts(c *core.Check, path string, in map[string]string) core.Quantities {
	out := core.Quantities{}
	if len(in) > maxAmounts {
		c.Add(path, "must name at most %d resources, got %d", maxAmounts, len(in))
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		var named core.Check
		if named.ID("", name); named.Err() != nil {
			c.Add(path, "resource name %q must be letters, digits, dots and hyphens", clip(name))
			continue
		}
		n, err := core.ParseQuantity(name, in[name])
		if msg, _ := fault.Message(err); err != nil {
			c.Add(path+"."+name, "%s", msg)
		}
		out[name] = n
	}
	return out
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// times is what packages of a specification amount to.
func times(c *core.Check, path string, q core.Quantities, count int64) core.Quantities {
	out := core.Quantities{}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if n := q[name]; n > 0 && count > 0 && n > (1<<60)/count {
			c.Add(path, "%d packages are more of %s than can be counted", count, name)
			return core.Quantities{}
		}
		if q[name] > 0 {
			out[name] = q[name] * count
		}
	}
	return out
}

// check checks an application and returns the amounts of it, none for nodes.
func (s *Service) check(ctx context.Context, in Application, r Request, now time.Time) (core.Quantities, error) {
	cat, err := s.reg.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	var c core.Check
	checkRequest(&c, r)
	c.Text("name", in.Name, false, 0, 64)
	c.Text("region", in.Region, false, 0, 64)
	if in.CenterID != "" {
		if c.ID("ai_center_id", in.CenterID); cat.Centers[in.CenterID] == nil && len(in.CenterID) <= 32 {
			c.Add("ai_center_id", "there is no center %q", clip(in.CenterID))
		}
	}
	ways := 0
	for _, given := range []bool{in.SpecID != "", len(in.Amounts) > 0, len(in.Nodes) > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		c.Add("resource_spec_id", "give one of resource_spec_id with count, amounts, and nodes")
	}
	amounts := ParseAmounts(&c, "amounts", in.Amounts)
	switch {
	case in.SpecID != "":
		c.ID("resource_spec_id", in.SpecID)
		c.Range("count", in.Count, 1, maxCount)
		if spec := cat.Specs[in.SpecID]; spec == nil {
			c.Add("resource_spec_id", "there is no resource specification %q", clip(in.SpecID))
		} else {
			amounts = times(&c, "count", spec.Quantity, in.Count)
		}
	case in.Count != 0:
		c.Add("count", "is of a specification, got %d without one", in.Count)
	}
	checkNodes(&c, in)
	if !in.EndAt.IsZero() && !in.EndAt.After(now) {
		c.Add("end_at", "must be in the future, got %s", in.EndAt.UTC().Format(time.RFC3339))
	}
	if !in.EndAt.IsZero() && !in.StartAt.IsZero() && !in.EndAt.After(in.StartAt) {
		c.Add("end_at", "must be after start_at")
	}
	if in.EndAt.After(now.Add(100 * maxAhead)) {
		c.Add("end_at", "must be at most 100 years ahead; leave it out for one without an end")
	}
	if in.StartAt.After(now.Add(maxAhead)) {
		c.Add("start_at", "must be at most a year ahead, got %s", in.StartAt.UTC().Format(time.RFC3339))
	}
	if err := s.sched.CheckWeights(in.Weights); err != nil {
		c.Add("policy_weights", "%s", err)
	}
	return amounts, c.Err()
}

func checkNodes(c *core.Check, in Application) {
	if len(in.Nodes) == 0 {
		return
	}
	if in.CenterID == "" {
		c.Add("ai_center_id", "is required with nodes")
	}
	if len(in.Nodes) > maxNodes {
		c.Add("nodes", "must be at most %d, got %d", maxNodes, len(in.Nodes))
		return
	}
	for i, n := range in.Nodes {
		at := "nodes[" + strconv.Itoa(i) + "]"
		if c.Text(at, n, true, 253, 0); slices.Contains(in.Nodes[:i], n) {
			c.Add(at, "names %s a second time", clip(n))
		}
	}
}

// Apply applies for resources. It returns fault.Invalid, fault.Denied for
// nodes without the right to control them, fault.NotFound for a node that is
// not there and fault.Conflict for a request ID of something else.
func (s *Service) Apply(ctx context.Context, in Application, r Request) (*Allocation, error) {
	amounts, err := s.check(ctx, in, r, s.db.Now())
	if err != nil {
		return nil, err
	}
	caller := core.CallerFrom(ctx)
	if len(in.Nodes) > 0 && !caller.Can("registry.write") {
		return nil, fault.New(fault.Denied, "only who may control resources may apply for named nodes; apply for a specification or amounts")
	}
	var id string
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		a := &Allocation{ID: core.NewID("alc"), Name: in.Name, TenantID: caller.TenantID, UserID: caller.UserID, State: Waiting, Reason: "it is being decided", SpecID: in.SpecID,
			Count: in.Count, Amounts: amounts, Region: in.Region, CenterID: in.CenterID, wish: in.CenterID, Nodes: slices.Sorted(slices.Values(in.Nodes)), StartAt: in.StartAt, EndAt: in.EndAt,
			CreatedAt: tx.Now, noWait: in.NoWait, weights: in.Weights, ReservationID: in.ReservationID}
		if a.StartAt.Before(tx.Now) {
			a.StartAt = tx.Now
		}
		if a.StartAt.After(tx.Now) {
			a.State, a.Reason = Scheduled, "its start is yet to come"
		}
		if len(a.Nodes) > 0 {
			if a.Amounts, err = s.nodeAmounts(ctx, tx, a.CenterID, a.Nodes); err != nil {
				return err
			}
		}
		o := &Operation{Kind: Apply, AllocationID: a.ID, CenterID: in.CenterID, Message: a.Reason}
		known, err := s.begin(ctx, tx, o, r)
		if err != nil {
			return err
		}
		if known != nil {
			id = known.AllocationID
			return nil
		}
		id, a.OperationID = a.ID, o.ID
		return insertAllocation(ctx, tx, a)
	})
	if err != nil {
		return nil, err
	}
	if _, err := s.grant(ctx, id); err != nil { // the loop tries again
		s.log.Warn("allocation not decided yet", "allocation_id", id, "error", err)
	}
	return s.GetAllocation(ctx, id)
}

// nodeAmounts is what nodes have for jobs, of what their center counts.
func (s *Service) nodeAmounts(ctx context.Context, tx *db.Tx, centerID string, nodes []string) (core.Quantities, error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	total := core.Quantities{}
	if k := cat.Centers[centerID]; k != nil {
		total = k.Total
	}
	out := core.Quantities{}
	for _, name := range nodes {
		n, found, err := s.reg.NodeTx(ctx, tx, centerID, name)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fault.New(fault.NotFound, "center %s has no node %s", centerID, name)
		}
		for what, amount := range n.Allocatable {
			if total[what] > 0 && amount > 0 {
				out[what] = min(out[what]+amount, total[what]) // a center may offer less than its nodes have
			}
		}
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Conflict, "the nodes have nothing for jobs that center %s offers", centerID)
	}
	return out, nil
}

// grant decides a waiting allocation, and reports whether anything changed. When
// the calendar changes meanwhile it decides anew; the loop tries again at last.
func (s *Service) grant(ctx context.Context, id string) (changed bool, err error) {
	for again, tries := true, 0; again && tries < 3 && err == nil; tries++ {
		changed, again, err = s.grantOnce(ctx, id)
	}
	if changed && err == nil {
		s.sched.Wake() // work may wait for it
	}
	return changed, err
}

func (s *Service) grantOnce(ctx context.Context, id string) (changed, again bool, err error) {
	var a *Allocation
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1 AND state = $2`, id, int64(Waiting))
		if len(rows) > 0 {
			a = rows[0]
		}
		return err
	})
	if err != nil || a == nil {
		return false, false, err
	}
	choice, err := s.choose(ctx, a)
	if err != nil {
		return false, false, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		changed, again = false, false
		rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1 AND state = $2`, id, int64(Waiting))
		if err != nil || len(rows) == 0 {
			return err
		}
		same, err := s.sched.CalendarIsTx(ctx, tx, choice.Version)
		if again = !same; err != nil || again {
			return err
		}
		changed, err = s.decide(ctx, tx, rows[0], choice)
		return err
	})
	return changed, again, err
}

// choose says where a waiting allocation would go now. That of named nodes goes
// where they are, unless their room is promised.
func (s *Service) choose(ctx context.Context, a *Allocation) (scheduler.Choice, error) {
	if len(a.Nodes) > 0 {
		why, version, err := s.sched.Kept(ctx, a.wish, scheduler.Hold{Amounts: a.Amounts, Until: a.EndAt, Reservation: a.ReservationID})
		if why != "" {
			return scheduler.Choice{Possible: true, Reason: "center " + a.wish + ": " + why, Version: version}, err
		}
		return scheduler.Choice{CenterID: a.wish, Possible: true, Version: version}, err
	}
	t := place.Task{Spec: a.SpecID, Request: place.Amounts(a.Amounts)}
	if a.wish != "" {
		t.Pinned = []string{a.wish}
	}
	if a.Region != "" {
		t.Regions = []string{a.Region}
	}
	return s.sched.Choose(ctx, scheduler.Ask{Task: t, Weights: a.weights, Until: a.EndAt, Reservation: a.ReservationID})
}

// decide grants a waiting allocation where the choice says, refuses it, or
// notes why it goes on waiting.
func (s *Service) decide(ctx context.Context, tx *db.Tx, a *Allocation, choice scheduler.Choice) (changed bool, err error) {
	reason := choice.Reason
	if choice.CenterID != "" {
		if reason, err = s.hold(ctx, tx, a, choice.CenterID); err != nil {
			return false, err
		}
	}
	ops, err := readOperations(ctx, tx, `WHERE operation_id = $1`, a.OperationID)
	if err != nil {
		return false, err
	}
	o := &Operation{}
	if len(ops) > 0 {
		o = ops[0]
	}
	switch {
	case reason == "":
		a.State, a.Reason, a.CenterID, a.GrantedAt = Granted, "", choice.CenterID, tx.Now
		a.held = maps.Clone(a.Amounts)
		o.CenterID = a.CenterID
		o.step(tx.Now, "hold", true, "held at center "+a.CenterID, a.CenterID)
		o.end(tx.Now, Succeeded, "granted at center "+a.CenterID)
		s.log.Info("allocation granted", "allocation_id", a.ID, "ai_center_id", a.CenterID)
	case !choice.Possible || a.noWait:
		a.State, a.Reason, a.EndedAt = Refused, reason, tx.Now
		if !choice.Possible {
			a.Reason = "it would fit nowhere even if nothing else were held: " + reason
		}
		o.step(tx.Now, "refuse", false, a.Reason)
		o.end(tx.Now, Failed, a.Reason)
		s.log.Info("allocation refused", "allocation_id", a.ID, "reason", a.Reason)
	case a.Reason == reason:
		return false, nil
	default:
		a.Reason, o.Message = reason, reason
		o.step(tx.Now, "wait", true, reason)
	}
	if err := saveAllocation(ctx, tx, a); err != nil {
		return false, err
	}
	if a.State == Granted {
		if err := s.meterTx(ctx, tx, a); err != nil {
			return false, err
		}
	}
	if o.ID == "" {
		return true, nil
	}
	if err := saveOperation(ctx, tx, o); err != nil {
		return false, err
	}
	return true, s.changed(ctx, tx, o)
}

// hold reserves an allocation at a center; it returns why not, and then has
// written nothing.
func (s *Service) hold(ctx context.Context, tx *db.Tx, a *Allocation, centerID string) (why string, err error) {
	controls := make([]*NodeControl, len(a.Nodes))
	for i, name := range a.Nodes {
		n, err := getControl(ctx, tx, centerID, name)
		if err != nil {
			return "", err
		}
		if !n.free() {
			what := "is isolated"
			switch {
			case n.AllocationID != "":
				what = "is held by allocation " + n.AllocationID
			case n.MaintenanceID != "":
				what = "is out of use for maintenance " + n.MaintenanceID
			}
			return "node " + name + " " + what, nil
		}
		controls[i] = n
	}
	ok, err := s.reg.ReserveTx(ctx, tx, centerID, a.Amounts, 0)
	if err != nil {
		return "", err
	}
	if !ok {
		return "center " + centerID + " has less room than is needed, or takes no new work", nil
	}
	for _, n := range controls {
		n.AllocationID, n.UserID = a.ID, a.UserID
		n.settle()
		if err := putControl(ctx, tx, n); err != nil {
			return "", err
		}
	}
	return "", nil
}

// visibleAllocation reads an allocation the caller may see.
func visibleAllocation(ctx context.Context, tx *db.Tx, id string) (*Allocation, error) {
	rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !core.CallerFrom(ctx).Sees(rows[0].TenantID) {
		return nil, fault.New(fault.NotFound, "there is no allocation %s", id)
	}
	return rows[0], nil
}

func checkID(path, id string) error {
	var c core.Check
	c.ID(path, id)
	return c.Err()
}

// GetAllocation returns an allocation. It returns fault.Invalid and fault.NotFound.
func (s *Service) GetAllocation(ctx context.Context, id string) (a *Allocation, err error) {
	if err := checkID("allocation_id", id); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		a, err = visibleAllocation(ctx, tx, id)
		return err
	})
	return a, err
}

// ListAllocations returns a page of the allocations the caller may see, newest
// first, and the token of the next page, "" on the last.
func (s *Service) ListAllocations(ctx context.Context, states []AllocationState, tenant, center string, size int32, token string) ([]*Allocation, string, error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	checkFilterIDs(&c, "ai_center_id", center)
	c.Text("tenant_id", tenant, false, 64, 0)
	c.Range("states", int64(len(states)), 0, 16)
	for i, x := range states {
		c.Range("states["+strconv.Itoa(i)+"]", int64(x), 1, int64(Expired))
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	var q conditions
	if tenant = core.CallerFrom(ctx).Tenant(tenant); tenant != "" {
		q.and("tenant_id = ?", tenant)
	}
	if center != "" {
		q.and("ai_center_id = ?", center)
	}
	q.in("state", ints(states))
	if key != nil {
		q.and("allocation_id < ?", key[0])
	}
	rest, args := q.text("allocation_id DESC", n+1)
	var rows []*Allocation
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readAllocations(ctx, tx, rest, args...)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].ID), nil
}

// Adjustment is what to change; zero fields leave what is.
type Adjustment struct {
	Count    int64
	Amounts  map[string]string
	EndAt    time.Time
	BelowUse bool
}

// Adjust changes the size or the end of an allocation. It returns
// fault.Invalid, fault.NotFound, fault.Exhausted if its center has not the
// room, and fault.Conflict if it is over, or is to be smaller than what is in
// use.
func (s *Service) Adjust(ctx context.Context, id string, adj Adjustment, r Request) (*Allocation, error) {
	cat, err := s.reg.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	var c core.Check
	checkRequest(&c, r)
	c.ID("allocation_id", id)
	c.Range("count", adj.Count, 0, maxCount)
	amounts := ParseAmounts(&c, "amounts", adj.Amounts)
	if adj.Count == 0 && len(adj.Amounts) == 0 && adj.EndAt.IsZero() {
		c.Add("count", "give a count, amounts or end_at to change")
	}
	if !adj.EndAt.IsZero() && !adj.EndAt.After(s.db.Now()) {
		c.Add("end_at", "must be in the future, got %s; release it to end it now", adj.EndAt.UTC().Format(time.RFC3339))
	}
	if adj.EndAt.After(s.db.Now().Add(100 * maxAhead)) {
		c.Add("end_at", "must be at most 100 years ahead")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	grows, version, err := s.growth(ctx, id, adj, amounts, cat)
	if err != nil {
		return nil, err
	}
	o := &Operation{Kind: Adjust, AllocationID: id}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		a, err := visibleAllocation(ctx, tx, id)
		if err != nil {
			return err
		}
		*o = Operation{Kind: Adjust, AllocationID: id, CenterID: a.CenterID}
		if known, err := s.begin(ctx, tx, o, r); known != nil || err != nil {
			return err
		}
		if grows {
			same, err := s.sched.CalendarIsTx(ctx, tx, version)
			if err != nil {
				return err
			}
			if !same {
				return fault.New(fault.Conflict, "what is promised to reservations changed meanwhile; adjust again")
			}
		}
		if err := s.adjust(ctx, tx, a, adj, amounts, cat, o); err != nil {
			return err
		}
		o.end(tx.Now, Succeeded, "adjusted")
		return saveOperation(ctx, tx, o)
	})
	if err != nil {
		return nil, s.failed(ctx, o, r, err)
	}
	s.sched.Wake()
	return s.GetAllocation(ctx, id)
}

// growth reports whether an allocation would hold more, or longer. Then it must
// break no promise; the version of the calendar says what was promised.
func (s *Service) growth(ctx context.Context, id string, adj Adjustment, amounts core.Quantities, cat *registry.Catalog) (grows bool, version int64, err error) {
	a, err := s.GetAllocation(ctx, id)
	if err != nil || a.State != Granted {
		return false, 0, err
	}
	h := scheduler.Hold{Amounts: a.Amounts, Until: a.EndAt, Allocation: a.ID}
	if spec := cat.Specs[a.SpecID]; adj.Count > 0 && spec != nil {
		var c core.Check
		h.Amounts = times(&c, "count", spec.Quantity, adj.Count)
		if c.Err() != nil {
			return false, 0, c.Err()
		}
	} else if len(amounts) > 0 && a.SpecID == "" && len(a.Nodes) == 0 { // else it is refused
		h.Amounts = amounts
	}
	for name, n := range h.Amounts {
		grows = grows || n > a.Amounts[name]
	}
	if !adj.EndAt.IsZero() {
		h.Until, grows = adj.EndAt, grows || !a.EndAt.IsZero() && adj.EndAt.After(a.EndAt)
	}
	if !grows {
		return false, 0, nil
	}
	why, version, err := s.sched.Kept(ctx, a.CenterID, h)
	if why != "" {
		err = fault.New(fault.Exhausted, "center %s cannot hold so much for so long: %s", a.CenterID, why)
	}
	return true, version, err
}

func (s *Service) adjust(ctx context.Context, tx *db.Tx, a *Allocation, adj Adjustment, amounts core.Quantities, cat *registry.Catalog, o *Operation) error {
	var c core.Check
	switch {
	case a.over():
		return fault.New(fault.Conflict, "allocation %s is over", a.ID)
	case a.ReservationID != "":
		return fault.New(fault.Conflict, "allocation %s holds what reservation %s promises; cancel that, or reserve more", a.ID, a.ReservationID)
	case (adj.Count > 0 || len(amounts) > 0) && len(a.Nodes) > 0:
		c.Add("count", "an allocation of named nodes cannot change its size; release it and apply for others")
	case adj.Count > 0 && a.SpecID == "":
		c.Add("count", "the allocation is of amounts")
	case len(amounts) > 0 && a.SpecID != "":
		c.Add("amounts", "the allocation is of packages of %s", a.SpecID)
	case adj.Count > 0:
		spec := cat.Specs[a.SpecID]
		if spec == nil {
			return fault.New(fault.Conflict, "specification %s is no more; release the allocation and apply for another", a.SpecID)
		}
		amounts = times(&c, "count", spec.Quantity, adj.Count)
	}
	if err := c.Err(); err != nil {
		return err
	}
	if !adj.EndAt.IsZero() {
		a.EndAt = adj.EndAt
		o.step(tx.Now, "end", true, "ends at "+adj.EndAt.UTC().Format(time.RFC3339))
	}
	if len(amounts) == 0 {
		return saveAllocation(ctx, tx, a)
	}
	more := core.Quantities{}
	next := core.Quantities{}
	for name := range a.Amounts { // what is not named any more becomes nothing
		next[name] = 0
	}
	maps.Copy(next, amounts)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if used := a.Used[name]; next[name] < used && !adj.BelowUse {
			return fault.New(fault.Conflict, "runs use %s of %s; wait for them, or say that it shall be less all the same", core.FormatQuantity(name, used), name)
		}
		if grow := next[name] - a.held[name]; grow > 0 && a.State == Granted {
			more[name] = grow
			a.held[name] = next[name]
		}
	}
	a.Amounts = next
	if adj.Count > 0 {
		a.Count = adj.Count
	}
	if len(more) > 0 {
		ok, err := s.reg.ReserveTx(ctx, tx, a.CenterID, more, 0)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Exhausted, "center %s has not so much more free, or takes no new work", a.CenterID)
		}
		o.step(tx.Now, "hold", true, "more is held at center "+a.CenterID, a.CenterID)
	}
	o.step(tx.Now, "adjust", true, "the size is changed")
	return s.settle(ctx, tx, a)
}

// Release gives an allocation back. It returns fault.Invalid, fault.NotFound
// and, while runs use it and stop is not set, fault.Conflict.
func (s *Service) Release(ctx context.Context, id string, stop bool, r Request) (*Allocation, error) {
	var c core.Check
	checkRequest(&c, r)
	c.ID("allocation_id", id)
	if err := c.Err(); err != nil {
		return nil, err
	}
	o := &Operation{Kind: Release, AllocationID: id}
	taken := false
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		taken = false
		a, err := visibleAllocation(ctx, tx, id)
		if err != nil {
			return err
		}
		if a.over() {
			return nil
		}
		*o = Operation{Kind: Release, AllocationID: id, CenterID: a.CenterID, Message: "waits for its runs to end"}
		if known, err := s.begin(ctx, tx, o, r); known != nil || err != nil {
			return err
		}
		if inUse(a) && !stop {
			return fault.New(fault.Conflict, "runs use allocation %s; wait for them, or say that they shall be stopped", id)
		}
		taken = inUse(a)
		return s.close(ctx, tx, a, Released, "released by "+core.CallerFrom(ctx).UserID, o.ID)
	})
	if err != nil {
		return nil, s.failed(ctx, o, r, err)
	}
	if taken {
		s.stopUsers(ctx, id, "allocation "+id+" was released")
	}
	s.sched.Wake()
	return s.GetAllocation(ctx, id)
}

func inUse(a *Allocation) bool {
	for _, n := range a.Used {
		if n > 0 {
			return true
		}
	}
	return false
}

// close begins the end of an allocation; it ends here if nothing uses it.
func (s *Service) close(ctx context.Context, tx *db.Tx, a *Allocation, final AllocationState, reason, operation string) error {
	if a.State < Granted {
		if err := s.endApplication(ctx, tx, a, reason); err != nil {
			return err
		}
	}
	a.State, a.final, a.Reason, a.closing = Releasing, final, reason, operation
	return s.settle(ctx, tx, a)
}

// endApplication ends the operation of an application that was not decided.
func (s *Service) endApplication(ctx context.Context, tx *db.Tx, a *Allocation, reason string) error {
	ops, err := readOperations(ctx, tx, `WHERE operation_id = $1 AND ended_at = 0`, a.OperationID)
	if err != nil || len(ops) == 0 {
		return err
	}
	ops[0].step(tx.Now, "withdraw", true, reason)
	ops[0].end(tx.Now, Failed, "not granted: "+reason)
	if err := saveOperation(ctx, tx, ops[0]); err != nil {
		return err
	}
	return s.changed(ctx, tx, ops[0])
}

// settle gives back to the center what is held and neither wanted nor used,
// and ends an allocation that is releasing when nothing uses it.
func (s *Service) settle(ctx context.Context, tx *db.Tx, a *Allocation) error {
	back := core.Quantities{}
	for name, held := range a.held {
		keep := a.Used[name]
		if a.State != Releasing {
			keep = max(keep, a.Amounts[name])
		}
		if held > keep {
			back[name], a.held[name] = held-keep, keep
		}
	}
	if a.State == Releasing && !inUse(a) {
		a.State, a.EndedAt = a.final, tx.Now
		if err := s.freeNodes(ctx, tx, a); err != nil {
			return err
		}
		if err := s.endRelease(ctx, tx, a); err != nil {
			return err
		}
		s.log.Info("allocation over", "allocation_id", a.ID, "reason", a.Reason)
	}
	if err := saveAllocation(ctx, tx, a); err != nil {
		return err
	}
	if err := s.meterTx(ctx, tx, a); err != nil {
		return err
	}
	if len(back) == 0 {
		return nil
	}
	tx.AfterCommit(func() { s.sched.Wake(); s.poke() })
	return s.reg.GiveBackTx(ctx, tx, a.CenterID, back)
}

func (s *Service) endRelease(ctx context.Context, tx *db.Tx, a *Allocation) error {
	ops, err := readOperations(ctx, tx, `WHERE operation_id = $1 AND ended_at = 0`, a.closing)
	if err != nil || len(ops) == 0 {
		return err
	}
	ops[0].step(tx.Now, "free", true, "nothing is held any more")
	ops[0].end(tx.Now, Succeeded, a.Reason)
	if err := saveOperation(ctx, tx, ops[0]); err != nil {
		return err
	}
	return s.changed(ctx, tx, ops[0])
}

func (s *Service) freeNodes(ctx context.Context, tx *db.Tx, a *Allocation) error {
	for _, name := range a.Nodes {
		n, err := getControl(ctx, tx, a.CenterID, name)
		if err != nil {
			return err
		}
		if n.AllocationID != a.ID {
			continue
		}
		n.AllocationID = ""
		n.settle()
		if err := putControl(ctx, tx, n); err != nil {
			return err
		}
	}
	return nil
}

// stopUsers stops what draws on an allocation. What fails the loop does.
func (s *Service) stopUsers(ctx context.Context, id, why string) {
	if _, err := s.jobs.TakeAway(ctx, jobs.RunFilter{AllocationID: id}, why); err != nil {
		s.log.Warn("runs of an allocation not stopped yet", "allocation_id", id, "error", err)
	}
}

// Held returns the allocations that hold something.
func (s *Service) Held(ctx context.Context) (out []*Allocation, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = s.HeldTx(ctx, tx)
		return err
	})
	return out, err
}

// HeldTx is Held in the caller's transaction.
func (s *Service) HeldTx(ctx context.Context, tx *db.Tx) ([]*Allocation, error) {
	return readAllocations(ctx, tx, `WHERE ended_at = 0 AND state IN ($1, $2) ORDER BY allocation_id`, int64(Granted), int64(Releasing))
}

// OpenFor returns the allocations made for a reservation that have not ended.
func (s *Service) OpenFor(ctx context.Context, reservation string) (out []*Allocation, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readAllocations(ctx, tx, `WHERE ended_at = 0 AND reservation_id = $1 ORDER BY allocation_id`, reservation)
		return err
	})
	return out, err
}

// Usable is what one run may draw at most of an allocation of the caller's
// tenant: see jobs.Allocations.
func (s *Service) Usable(ctx context.Context, id string) (core.Quantities, error) {
	if err := checkID("allocation_id", id); err != nil {
		return nil, err
	}
	var out core.Quantities
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1 AND tenant_id = $2`, id, core.CallerFrom(ctx).TenantID)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fault.New(fault.NotFound, "your tenant has no allocation %s", id)
		}
		if rows[0].over() {
			return fault.New(fault.Conflict, "allocation %s is over", id)
		}
		out = rows[0].Amounts
		return nil
	})
	return out, err
}

// Rooms implements scheduler.Allocations.
func (s *Service) Rooms(ctx context.Context, ids []string) (map[string]scheduler.Room, error) {
	out := map[string]scheduler.Room{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		for _, id := range ids {
			rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1 AND state = $2`, id, int64(Granted))
			if err != nil {
				return err
			}
			for _, a := range rows {
				room := scheduler.Room{CenterID: a.CenterID, Total: a.Amounts, Free: core.Quantities{}, OnNodes: len(a.Nodes) > 0}
				for name, n := range a.Amounts {
					room.Free[name] = max(0, n-a.Used[name])
				}
				out[id] = room
			}
		}
		return nil
	})
	return out, err
}

// DrawTx implements scheduler.Allocations. After false the caller's
// transaction must not commit.
func (s *Service) DrawTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities) (bool, error) {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if q[name] == 0 {
			continue
		}
		n, err := tx.Exec(ctx, `UPDATE allocation_amounts SET used = used + $3 WHERE allocation_id = $1 AND resource = $2 AND used + $3 <= wanted
			AND EXISTS (SELECT 1 FROM allocations a WHERE a.allocation_id = $1 AND a.state = $4)`, id, name, q[name], int64(Granted))
		if err != nil {
			return false, fmt.Errorf("draw %s on %s: %w", name, id, err)
		}
		if n == 0 {
			return false, nil
		}
	}
	rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1`, id)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	return true, s.meterTx(ctx, tx, rows[0])
}

// GiveBackTx implements jobs.Allocations.
func (s *Service) GiveBackTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if q[name] == 0 {
			continue
		}
		n, err := tx.Exec(ctx, `UPDATE allocation_amounts SET used = used - $3 WHERE allocation_id = $1 AND resource = $2 AND used >= $3`, id, name, q[name])
		if err != nil {
			return fmt.Errorf("give back %s to %s: %w", name, id, err)
		}
		if n == 0 {
			return fmt.Errorf("give back %s to %s: less than %d is in use", name, id, q[name])
		}
	}
	rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1`, id)
	if err != nil || len(rows) == 0 {
		return err
	}
	return s.settle(ctx, tx, rows[0])
}
