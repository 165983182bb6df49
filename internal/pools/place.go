package pools

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Names of what the engine counts.
const (
	share  = "share"
	memory = "memory_mib"
)

// emptiness scores a node by the share of it that is left of what is scarcest
// there.
func emptiness(better place.Direction) place.Policy {
	return place.Policy{ID: "emptiness", Title: "Emptiness", Factors: []place.Factor{{
		ID: "left", Unit: "ppm", Better: better, Varies: place.WithLoad,
		Measure: func(_ *place.Ask, s *place.Site) place.Fact {
			least := int64(1_000_000)
			for name, total := range s.Total {
				if left, _ := s.Left(name); total > 0 {
					least = min(least, max(left, 0)*1_000_000/total)
				}
			}
			return place.Known(least)
		},
	}}}
}

// local scores the node on the machine of the program.
var local = place.Policy{ID: "local", Title: "Local", Factors: []place.Factor{{
	ID: "local", Absolute: true, Reads: place.ReadsOrigin,
	Measure: func(a *place.Ask, s *place.Site) place.Fact {
		if a.Origin.Name != "" && s.Attributes["host"] == a.Origin.Name {
			return place.Known(place.MaxScore)
		}
		return place.Known(0)
	},
}}}

// taking reports whether a device takes new slices.
func taking(n *Node, d *Device) bool {
	return n.Online && !n.Ending && n.Mode == Enabled && d.Present && !d.Disabled
}

// choose returns where a slice goes; false: nowhere now. Devices that are closed,
// by node and device, are not for it.
func choose(s *Slice, g *Group, nodes []*Node, closed map[[2]string]bool, base Policy) (node *Node, device *Device, err error) {
	p := s.Policy.over(base)
	snap := &place.Snapshot{}
	seen := map[string]bool{}
	var key []byte
	for _, n := range nodes {
		if p.Local == LocalOnly && (s.Host == "" || n.Host != s.Host) {
			continue
		}
		// Of nodes that are alike in all that is looked at the first would be chosen.
		key = append(key[:0], 0)
		if p.Local == LocalFirst && n.Host == s.Host {
			key[0] = 1
		}
		var open []*Device
		for _, d := range n.Devices {
			if !taking(n, d) || !s.fits(g, n, d) || closed[[2]string{n.ID, d.ID}] || s.Physical && d.Used > 0 || s.Memory > d.Memory || n.lentAs(d) != nil {
				continue
			}
			open = append(open, d)
			for _, k := range []int64{d.ComputeLimit, d.ComputeLent, d.MemoryLimit, d.MemoryLent} {
				key = binary.AppendVarint(key, k)
			}
		}
		if len(open) == 0 || seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		c := place.Candidate{ID: n.ID, Status: place.Available, Attributes: map[string]string{"host": n.Host}, Total: place.Amounts{}, Free: place.Amounts{}}
		for _, d := range open {
			total := place.Amounts{share: d.ComputeLimit, memory: d.MemoryLimit}
			free := place.Amounts{share: d.ComputeLimit - d.ComputeLent, memory: d.MemoryLimit - d.MemoryLent}
			for name := range total {
				c.Total[name] += total[name]
				c.Free[name] += free[name]
			}
			c.Devices = append(c.Devices, place.Device{ID: d.ID, Model: d.Model, Total: total, Free: free})
		}
		if s.roomFor(c.Devices) {
			snap.Candidates = append(snap.Candidates, c)
		}
	}
	better, rule := place.Higher, place.BalancedDevices
	if p.Nodes == Compact {
		better = place.Lower
	}
	if p.Devices == Compact {
		rule = place.CompactDevices
	}
	set := &place.Set{ID: "pool", Evaluator: place.Lexicographic, Uses: []place.Use{{Policy: emptiness(better), Weight: 1}}}
	if p.Local == LocalFirst {
		set.Uses = append(set.Uses, place.Use{Policy: local, Weight: 2})
	}
	want := place.Amounts{memory: s.Memory}
	if s.counted() > 0 {
		want[share] = s.counted()
	}
	work := place.Work{ID: s.ID, Origin: place.Origin{Name: s.Host},
		Tasks: []place.Task{{ID: "slice", Replicas: 1, Request: want, Devices: &place.DeviceRequest{Count: 1, Each: want}}}}
	res, err := place.Plan(snap, []place.Work{work}, set, place.Options{NoTables: true, Devices: rule, Noun: "pool node"})
	if err != nil {
		return nil, nil, fmt.Errorf("place slice %s: %w", s.ID, err)
	}
	if len(res.Placements) == 0 {
		return nil, nil, nil
	}
	at := res.Placements[0]
	n, err := findNode(nodes, at.Candidate)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(n.Devices, func(d *Device) bool { return d.ID == at.Devices[0] })
	return n, n.Devices[i], nil
}

// roomFor reports whether a node's devices have room for the slice and for those of
// its set that are to be beside it, none of which is larger than one before it.
func (s *Slice) roomFor(devices []place.Device) bool {
	taken := map[string]bool{}
	for _, x := range s.mates {
		var best *place.Device // that fits, and has the least to spare
		for i, d := range devices {
			if !taken[d.ID] && d.Free[memory] >= x.Memory && d.Free[share] >= x.counted() && (best == nil || d.Free[share] < best.Free[share]) {
				best = &devices[i]
			}
		}
		if best == nil {
			return false
		}
		taken[best.ID] = true
	}
	return true
}

// larger orders the slices of a set by what they take.
func larger(a, b *Slice) int {
	return cmp.Or(cmp.Compare(b.counted(), a.counted()), cmp.Compare(b.Memory, a.Memory))
}

// oneNode reports whether cards of a program are all of one node: CUDA has no others.
func (s *Slice) oneNode(cards int64) bool { return cards > 1 && s.API == pool.CUDA }

// possible refuses what no waiting would give a place.
func possible(s *Slice, cards int64, g *Group, nodes []*Node, base Policy) error {
	switch {
	case g.ComputeLimit > 0 && cards*s.counted() > g.ComputeLimit:
		return fault.New(fault.Exhausted, "the request exceeds the quota of group %s: %d%% compute wanted, the quota is %d%%", g.ID, cards*s.Compute, g.ComputeLimit)
	case g.MemoryLimit > 0 && cards*s.Memory > g.MemoryLimit:
		return fault.New(fault.Exhausted, "the request exceeds the quota of group %s: %d MiB memory wanted, the quota is %d MiB", g.ID, cards*s.Memory, g.MemoryLimit)
	}
	kind, mode, size, here := false, false, false, false
	cuda, asCUDA := false, *s // would one of CUDA be of the kind?
	asCUDA.API = pool.CUDA
	var there int64 // that it could have at once
	only := s.Policy.over(base).Local == LocalOnly
	for _, n := range nodes {
		before := there
		for _, d := range n.Devices {
			cuda = cuda || d.Present && asCUDA.kind(g, n, d)
			if !d.Present || !s.kind(g, n, d) {
				continue
			}
			if kind = true; d.Physical != s.Physical {
				continue
			}
			mode = true
			fits := s.counted() <= d.ComputeLimit && s.Memory <= d.Memory
			size, here = size || fits, here || fits && n.Host == s.Host
			if fits && (!only || n.Host == s.Host) && (!s.Across || there == before) {
				there++
			}
		}
		if s.oneNode(cards) {
			there = max(before, there-before)
		}
	}
	model := "" // that is wanted
	if s.Model != "" {
		model = fmt.Sprintf(" of the model %q", s.Model)
	}
	switch {
	case !kind && s.WantNode != "":
		which := "api " + s.API
		if s.WantDevice != "" {
			which = fmt.Sprintf("device %q, %s", s.WantDevice, which)
		}
		if s.Model != "" {
			which = fmt.Sprintf("model %q, %s", s.Model, which)
		}
		return fault.New(fault.NotFound, "group %s has no such device on pool node %q: %s", g.ID, s.WantNode, which)
	case !kind && s.API != pool.OpenCL:
		return fault.New(fault.NotFound, "group %s has no device of the api %s%s", g.ID, s.API, model)
	case !kind && cuda:
		return fault.New(fault.NotFound, "group %s has no device of OpenCL%s, but one of CUDA: ask for the api cuda", g.ID, model)
	case !kind:
		return fault.New(fault.NotFound, "group %s has no device%s", g.ID, model)
	case !mode && s.Physical:
		return fault.New(fault.NotFound, "no device that is allowed is lent whole: the virtualization of all is on")
	case !mode:
		return fault.New(fault.NotFound, "no device that is allowed is lent in parts: the virtualization of all is off")
	case !size:
		return fault.New(fault.Exhausted, "no device that is allowed has %d%% compute and %d MiB memory", s.Compute, s.Memory)
	case only && !here && s.oneNode(cards):
		return fault.New(fault.NotFound, "there is no pool node with such a device on the program's machine, and a program of CUDA has several cards there only")
	case only && !here:
		return fault.New(fault.NotFound, "there is no pool node with such a device on the program's machine, and the policy is local only")
	case cards > 1 && there < cards && s.Across:
		return fault.New(fault.Exhausted, "%d cards on as many nodes are wanted: %d pool nodes have one that is allowed and large enough", cards, there)
	case there < cards && s.oneNode(cards):
		return fault.New(fault.Exhausted, "%d cards of one pool node are wanted: none has more than %d that are allowed and large enough", cards, there)
	case cards > 1 && there < cards:
		return fault.New(fault.Exhausted, "%d cards are wanted: there are %d that are allowed and large enough", cards, there)
	}
	return nil
}

// fillTx gives waiting slices their places, as far as there is room. It is called
// in every transaction that makes room or a request.
func (s *Service) fillTx(ctx context.Context, tx *db.Tx) error {
	wrong, err := s.fill(ctx, tx, s.nodesTx)
	if err != nil || !wrong {
		return err
	}
	s.copied.Store(nil)
	wrong, err = s.fill(ctx, tx, func(ctx context.Context, tx *db.Tx) ([]*Node, error) { return selectNodes(ctx, tx, false, "") })
	if err == nil && wrong {
		err = errors.New("what is stored of the pool's devices does not agree with itself")
	}
	return err
}

// fill is that with these nodes; wrong: one of them lends less than is said here.
func (s *Service) fill(ctx context.Context, tx *db.Tx, read func(context.Context, *db.Tx) ([]*Node, error)) (wrong bool, err error) {
	waiting, err := nextWaiting(ctx, tx, nil)
	if err != nil || len(waiting) == 0 {
		return false, err
	}
	nodes, err := read(ctx, tx)
	if err != nil {
		return false, err
	}
	list, err := readGroups(ctx, tx)
	if err != nil {
		return false, err
	}
	nodes = mine(nodes)
	base, err := readPolicy(ctx, tx)
	if err != nil {
		return false, err
	}
	groups := map[string]*Group{}
	for _, g := range list {
		groups[g.ID] = g
	}
	f := &filling{s: s, nodes: nodes, groups: groups, base: base, closed: map[[2]string]bool{}, done: map[string]bool{}, full: map[alike]string{}}
	for len(waiting) > 0 {
		wrong, err := f.page(ctx, tx, waiting)
		if err != nil {
			return false, err
		}
		if wrong {
			return true, s.emit(ctx, tx, f.changed...)
		}
		if len(waiting) < someWaiting {
			break
		}
		if !f.open() { // none behind them has a place either
			if _, err := tx.Exec(ctx, `UPDATE pool_slices SET reason = $1 WHERE state = 1 AND reason = ''`, noRoom); err != nil {
				return false, fmt.Errorf("say what slices wait for: %w", err)
			}
			break
		}
		if waiting, err = nextWaiting(ctx, tx, waiting[someWaiting-1]); err != nil {
			return false, err
		}
	}
	return false, s.emit(ctx, tx, f.changed...)
}

// someWaiting is how many slices that wait are looked at together.
const someWaiting = 64

// inTurn is the order in which slices that wait have their turn, turn what of one tells when.
const inTurn = ` ORDER BY priority DESC, job_priority DESC, created_at, slice_id`

func (s *Slice) turn() []any { return []any{s.Priority, s.run.Priority, db.Micros(s.CreatedAt), s.ID} }

// nextWaiting returns the first slices of the queue, or those behind one; with one of a
// program's all of them.
func nextWaiting(ctx context.Context, tx *db.Tx, after *Slice) ([]*Slice, error) {
	where, args := `WHERE state = 1`, []any(nil)
	if after != nil {
		where += ` AND (priority < $1 OR priority = $1 AND (job_priority < $2 OR job_priority = $2 AND (created_at, slice_id) > ($3, $4)))`
		args = after.turn()
	}
	list, err := readSlices(ctx, tx, fmt.Sprintf("%s%s LIMIT %d", where, inTurn, someWaiting), args...)
	if err != nil || len(list) < someWaiting || list[someWaiting-1].Set == "" {
		return list, err
	}
	rest, err := readSlices(ctx, tx, `WHERE state = 1 AND set_id = $1 AND set_id <> ''`+inTurn, list[someWaiting-1].Set)
	for _, x := range rest {
		if !slices.ContainsFunc(list, func(y *Slice) bool { return y.ID == x.ID }) {
			list = append(list, x)
		}
	}
	return list, err
}

// filling is the pool while slices are given places.
type filling struct {
	s       *Service
	nodes   []*Node
	groups  map[string]*Group
	base    Policy
	live    []*Slice           // that others are to be beside, or apart from
	near    bool               // these were read
	closed  map[[2]string]bool // devices that are kept for those before
	full    map[alike]string   // why what wants alike had no place
	bare    []*Node            // the pool with nothing lent; nil: not made
	done    map[string]bool    // slices that were looked at
	changed []string
}

// open reports whether a device might take one more slice.
func (f *filling) open() bool {
	for _, n := range f.nodes {
		for _, d := range n.Devices {
			if taking(n, d) && d.MemoryLent < d.MemoryLimit && !f.closed[[2]string{n.ID, d.ID}] {
				return true
			}
		}
	}
	return false
}

// page gives slices their places, in their order; wrong: a device lends less than is said.
func (f *filling) page(ctx context.Context, tx *db.Tx, waiting []*Slice) (wrong bool, err error) {
	if !f.near && slices.ContainsFunc(waiting, (*Slice).regards) {
		near, err := readNear(ctx, tx)
		if err != nil {
			return false, err
		}
		f.live, f.near = near, true
	}
	for set := range f.sets(waiting) {
		reason, err := f.seat(set)
		if err != nil {
			return false, err
		}
		if reason != "" {
			for _, x := range set {
				if x.Reason == reason {
					continue
				}
				x.Reason = reason
				if err := putSlice(ctx, tx, x); err != nil {
					return false, err
				}
			}
			continue
		}
		for i, x := range set {
			ok, err := lendIf(ctx, tx, x)
			if err != nil {
				return false, err
			}
			if ok {
				continue
			}
			for _, y := range set[:i] {
				if err := lend(ctx, tx, y.Node, y.Device, -y.counted(), -y.Memory, -1); err != nil {
					return false, err
				}
			}
			return true, nil
		}
		for _, x := range set {
			x.State, x.Reason, x.AssignedAt, x.meteredAt = Assigned, "", tx.Now, tx.Now
			if err := f.s.logs.AddTx(ctx, tx, about(x, logs.Info, "slice placed", fmt.Sprintf("waited=%s", tx.Now.Sub(x.QueuedAt).Round(time.Millisecond)))); err != nil {
				return false, err
			}
			if err := putSlice(ctx, tx, x); err != nil {
				return false, err
			}
			f.changed, f.live = append(f.changed, x.ID), append(f.live, x)
		}
	}
	return false, nil
}

// sets are slices that wait by those that have a place together: all of a program's, and all
// of a gang that is not placed yet. Those of before are left out.
func (f *filling) sets(waiting []*Slice) iter.Seq[[]*Slice] {
	return func(yield func([]*Slice) bool) {
		for _, first := range waiting {
			if f.groups[first.Group] == nil || f.done[first.ID] {
				continue // a group cannot be deleted while it has slices
			}
			set := []*Slice{first}
			if first.Set != "" {
				set = slices.DeleteFunc(slices.Clone(waiting), func(x *Slice) bool { return x.Set != first.Set })
			}
			for _, x := range set {
				f.done[x.ID] = true
			}
			if !yield(set) {
				return
			}
		}
	}
}

// beside reports whether slices of a set are all on one node.
func beside(set []*Slice) bool {
	var cards int64 // of its program
	for _, x := range set {
		if x.run.ID == set[0].run.ID {
			cards++
		}
	}
	return set[0].oneNode(cards)
}

// seat counts the slices of a set at places, all or none; it returns why it has none. What they
// could have is kept for them then.
func (f *filling) seat(set []*Slice) (reason string, err error) {
	kind, single := set[0].alike()
	if single && f.full[kind] != "" {
		return f.full[kind], nil
	}
	_, no, err := f.try(set)
	f.keep(set, no)
	return no.reason, err
}

// noSeat is why a set has no place, and the devices that it could have: those are for
// nobody behind it.
type noSeat struct {
	reason string
	full   bool // what it could have has no room
	could  [][2]string
}

// keep keeps these for a set.
func (f *filling) keep(set []*Slice, no noSeat) {
	if !no.full {
		return
	}
	if kind, single := set[0].alike(); single {
		f.full[kind] = no.reason
	}
	for _, d := range no.could {
		f.closed[d] = true
	}
}

// try is seat that keeps nothing for the set.
func (f *filling) try(set []*Slice) (spots []spot, no noSeat, err error) {
	forget(set)
	g, one := f.groups[set[0].Group], beside(set)
	if one {
		slices.SortStableFunc(set, larger)
	}
	var could [][2]string
	for i, x := range set {
		if one {
			x.mates = set[i:]
		}
		if x.regard(f.live); i == 0 && len(set) > 1 { // as it is before the first keeps the others off its device
			could = x.could(g, f.nodes, f.base)
		}
		at, err := f.s.spot(x, g, f.nodes, f.closed, f.base)
		if err != nil {
			return nil, no, err
		}
		if no.reason = at.reason; no.reason != "" {
			if no.full = at.full; no.full && len(set) > 1 { // what never has room would keep all from those behind it
				if no.full, err = f.ever(set, g); err != nil {
					return nil, no, err
				}
			}
			if no.could = could; len(set) == 1 {
				no.could = x.could(g, f.nodes, f.base)
			}
			break
		}
		at.take(x, g, 1)
		spots = append(spots, at)
		x.Node, x.Device = at.node.ID, at.device.ID
		for _, o := range set {
			o.regard([]*Slice{x})
		}
	}
	if no.reason != "" {
		f.unseat(set, spots)
		return nil, no, nil
	}
	return spots, no, nil
}

// forget has slices not regard others any more.
func forget(set []*Slice) {
	for _, x := range set {
		x.beside, x.apart, x.home = nil, nil, ""
	}
}

// unseat takes slices of a set from their places.
func (f *filling) unseat(set []*Slice, spots []spot) {
	for i, at := range spots {
		at.take(set[i], f.groups[set[i].Group], -1)
		if set[i].Node, set[i].Device = "", ""; set[i].Physical {
			set[i].Memory = 0
		}
	}
}

// ever reports whether slices that have a place together only could have it if nothing was
// lent.
func (f *filling) ever(set []*Slice, g *Group) (bool, error) {
	if f.bare == nil {
		f.bare = bare(f.nodes)
	}
	why, err := f.s.together(set, emptied(g), f.bare, f.base)
	return why == "", err
}

// emptied is a group that has nothing.
func emptied(g *Group) *Group {
	own := *g
	own.ComputeLent, own.MemoryLent = 0, 0
	return &own
}

// bare are nodes of which nothing is lent.
func bare(nodes []*Node) []*Node {
	out := mine(nodes)
	for _, n := range out {
		for _, d := range n.Devices {
			d.Used, d.ComputeLent, d.MemoryLent = 0, 0, 0
		}
	}
	return out
}

// together returns why slices have no room at the same time, "" if they have; nodes are as
// before then.
func (s *Service) together(set []*Slice, g *Group, nodes []*Node, base Policy) (why string, err error) {
	own := *g
	var had []*Slice
	var spots []spot
	defer func() {
		for i, at := range spots {
			at.take(had[i], &own, -1)
		}
	}()
	for _, x := range set {
		y := *x
		y.beside, y.apart, y.home = nil, nil, ""
		if y.regard(had); y.Physical {
			y.Memory = 0
		}
		at, err := s.spot(&y, &own, nodes, nil, base)
		if err != nil || at.reason != "" {
			return at.reason, err
		}
		at.take(&y, &own, 1)
		y.Node, y.Device = at.node.ID, at.device.ID
		had, spots = append(had, &y), append(spots, at)
	}
	return "", nil
}

// alike is what tells of slices that wait by themselves, and beside no others, where they
// may be.
type alike struct {
	group, api, model, node, device, host string
	compute, memory                       int64
	physical                              bool
	policy                                Policy
}

// alike reports that; false: it does not wait by itself.
func (s *Slice) alike() (alike, bool) {
	if s.regards() {
		return alike{}, false
	}
	return alike{s.Group, s.API, s.Model, s.WantNode, s.WantDevice, s.Host, s.counted(), s.Memory, s.Physical, s.Policy}, true
}

// noRoom is why a slice waits that could have a place.
const noRoom = "no device that is allowed has room now"

// spot is a place for a slice, or the reason why there is none.
type spot struct {
	node   *Node
	device *Device
	reason string
	full   bool // what it could have has no room
}

// could returns the devices that a slice could have if they had room, and those that
// are the same cards: else those who use a card by another API kept it.
func (s *Slice) could(g *Group, nodes []*Node, base Policy) (out [][2]string) {
	only := s.Policy.over(base).Local == LocalOnly
	for _, n := range nodes {
		if only && n.Host != s.Host {
			continue
		}
		var there [][2]string
		fit := 0
		for _, d := range n.Devices {
			if !s.fits(g, n, d) || s.Memory > d.Memory || s.counted() > d.ComputeLimit {
				continue
			}
			fit++
			for _, x := range append(n.same(d), d) {
				there = append(there, [2]string{n.ID, x.ID})
			}
		}
		if fit >= len(s.mates) { // else it never has room for its set
			out = append(out, there...)
		}
	}
	return out
}

// take counts a slice at its place, by 1, or takes it from there, by -1.
func (at spot) take(x *Slice, g *Group, by int64) {
	at.device.take(x, by)
	g.take(x, by)
}

func (d *Device) take(x *Slice, by int64) {
	d.Used += by
	d.ComputeLent += by * x.counted()
	d.MemoryLent += by * x.Memory
}

func (g *Group) take(x *Slice, by int64) {
	g.ComputeLent += by * x.counted()
	g.MemoryLent += by * x.Memory
}

// spot returns where a slice that waits goes. Closed devices are kept for those
// before it.
func (s *Service) spot(x *Slice, g *Group, nodes []*Node, closed map[[2]string]bool, base Policy) (spot, error) {
	if g.ComputeLimit > 0 && g.ComputeLent+x.counted() > g.ComputeLimit || g.MemoryLimit > 0 && g.MemoryLent+x.Memory > g.MemoryLimit {
		return spot{reason: fmt.Sprintf("group %s has too little of its quota left: %d%% and %d MiB are lent", g.ID, g.ComputeLent, g.MemoryLent)}, nil
	}
	node, device, err := choose(x, g, nodes, closed, base)
	if err != nil {
		return spot{}, err
	}
	if device == nil {
		return spot{reason: noRoom, full: true}, nil
	}
	if x.Physical {
		if g.MemoryLimit > 0 && g.MemoryLent+device.Memory > g.MemoryLimit {
			return spot{reason: fmt.Sprintf("group %s has too little of its quota left for %d MiB of a whole card: %d MiB are lent", g.ID, device.Memory, g.MemoryLent)}, nil
		}
		x.Memory = device.Memory
	}
	return spot{node: node, device: device}, nil
}

// neighbors returns the slices with a place that those that want one may have to
// be beside, or apart from.
func neighbors(ctx context.Context, tx *db.Tx, want []*Slice) ([]*Slice, error) {
	if !slices.ContainsFunc(want, (*Slice).regards) {
		return nil, nil
	}
	return readNear(ctx, tx)
}

// regards reports whether where a slice may be depends on others.
func (s *Slice) regards() bool { return s.Affinity != "" || s.Anti != "" || s.Set != "" }

func readNear(ctx context.Context, tx *db.Tx) ([]*Slice, error) {
	return readSlices(ctx, tx, `WHERE state IN (2, 3) AND (affinity <> '' OR anti_affinity <> '' OR set_id <> '') ORDER BY slice_id`)
}

// regard notes where a slice may be for what others are that have a place.
func (s *Slice) regard(live []*Slice) {
	for _, o := range live {
		if o.ID == s.ID || o.Group != s.Group {
			continue
		}
		if at := [2]string{o.Node, o.Device}; s.Affinity != "" && o.Affinity == s.Affinity {
			if s.beside = &at; o.moves() { // where it will be is not known: nowhere yet
				s.beside = &[2]string{}
			}
		}
		of := s.Set != "" && o.Set == s.Set && o.run.ID == s.run.ID
		if !of && (s.Anti == "" || o.Anti != s.Anti) {
			continue
		}
		if s.apart == nil {
			s.apart = map[[2]string]bool{}
		}
		s.apart[[2]string{o.Node, o.Device}] = true
		if of && s.API == pool.CUDA {
			s.home = o.Node
		}
		if o.moves() {
			s.apart[[2]string{o.ToNode, o.ToDevice}] = true
		}
		if of && s.Across {
			s.apart[[2]string{o.Node}] = true
			if o.moves() {
				s.apart[[2]string{o.ToNode}] = true
			}
		}
	}
}
