package pools

import (
	"cmp"
	"context"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
)

// Where the settings let work of a higher priority have what that of a lower one holds, a
// replica that waits for its shares has runs taken back that hold such; so have gangs that
// wait for each other. Which runs these may be is not decided here, but which of them
// keep the right cards.

// maxYields is how many runs, or gangs of such, are taken back for one replica or gang.
const maxYields = 64

// Yield returns for each of those that wait which runs are to be taken back, so that they have
// their shares when these have ended; none where that would not do, or is not
// needed. ending are runs that are taken back already. A claim is looked at in its turn:
// what those before it wait for is theirs.
func (s *Service) Yield(ctx context.Context, claims []pool.Claim, ending []string) (out [][]string, err error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = make([][]string, len(claims))
		y, err := s.yielding(ctx, tx)
		if err != nil {
			return err
		}
		for _, run := range ending {
			y.count(y.has[run], -1)
			delete(y.has, run)
		}
		return y.each(ctx, tx, claims, out)
	})
	return out, err
}

// yielding is the pool as it is when runs have ended that are to be taken back.
type yielding struct {
	filling
	device map[[2]string]*Device
	others []*Slice            // that some are to be beside, or apart from
	has    map[string][]*Slice // what runs have that are not taken back
	gone   map[string]bool     // of others, those that are taken back
	from   []candidate         // for the claim that is looked at
	at     map[[2]string][]int // which of these have a slice of a device
	vain   map[vain]bool
}

// vain is for what no runs are to be taken back: for others like it neither.
type vain struct {
	job string
	alike
}

// candidate are runs that are taken back together.
type candidate struct {
	runs   []string
	slices []*Slice
	cost   int64 // what is lost of their time, times their percent of a card
	gone   bool
}

func (s *Service) yielding(ctx context.Context, tx *db.Tx) (*yielding, error) {
	p, err := s.readPool(ctx, tx)
	if err != nil {
		return nil, err
	}
	y := &yielding{device: map[[2]string]*Device{}, has: map[string][]*Slice{}, gone: map[string]bool{}, vain: map[vain]bool{}}
	y.filling = filling{s: s, nodes: mine(p.nodes), base: p.base, groups: map[string]*Group{}, closed: map[[2]string]bool{}, done: map[string]bool{}, full: map[alike]string{}}
	for _, g := range p.groups {
		y.groups[g.ID] = g
	}
	for _, n := range y.nodes {
		for _, d := range n.Devices {
			y.device[[2]string{n.ID, d.ID}] = d
		}
	}
	live, err := readSlices(ctx, tx, `WHERE state IN (2, 3) AND (run_id <> '' OR affinity <> '' OR anti_affinity <> '' OR set_id <> '') ORDER BY slice_id`)
	for _, x := range live {
		if x.regards() {
			y.others = append(y.others, x)
		}
		if x.run.ID != "" && !x.wished {
			y.has[x.run.ID] = append(y.has[x.run.ID], x)
		}
	}
	y.live = y.others
	return y, err
}

// each looks at all that wait, in their turn.
func (y *yielding) each(ctx context.Context, tx *db.Tx, claims []pool.Claim, out [][]string) error {
	of := map[string]int{}
	for i, c := range claims {
		for _, wish := range c.Wishes {
			of[wish] = i
		}
	}
	var after *Slice
	for left := len(of); left > 0; {
		waiting, err := nextWaiting(ctx, tx, after)
		if err != nil {
			return err
		}
		for set := range y.sets(waiting) {
			if i, asks := of[set[0].run.ID]; asks {
				runs, err := y.claim(set, claims[i])
				if err != nil {
					return err
				}
				out[i] = append(out[i], runs...)
			} else if _, err := y.seat(set); err != nil {
				return err
			}
			for _, x := range set {
				if _, asks := of[x.run.ID]; asks {
					delete(of, x.run.ID)
					left--
				}
				if x.Node != "" && x.regards() {
					y.others, y.live = append(y.others, x), append(slices.Clip(y.live), x)
				}
			}
		}
		if len(waiting) < someWaiting || y.kept() {
			return nil
		}
		after = waiting[someWaiting-1]
	}
	return nil
}

// kept reports whether all devices are for those that were looked at.
func (y *yielding) kept() bool {
	for at := range y.device {
		if !y.closed[at] {
			return false
		}
	}
	return true
}

// claim seats what waits, and returns the runs to be taken back for it.
func (y *yielding) claim(set []*Slice, c pool.Claim) (runs []string, err error) {
	_, no, err := y.try(set)
	if err != nil || no.reason == "" {
		return nil, err
	}
	kind, single := set[0].alike()
	like := vain{set[0].run.Job, kind}
	if single && y.vain[like] {
		return nil, nil
	}
	chosen, err := y.choose(set, c)
	if err != nil {
		return nil, err
	}
	for _, i := range chosen {
		runs = append(runs, y.from[i].runs...)
		for _, run := range y.from[i].runs {
			delete(y.has, run)
		}
	}
	if len(chosen) == 0 {
		y.vain[like] = single
		y.keep(set, no)
	}
	return runs, nil
}

// choose takes runs back, few and cheap ones, and seats what waits; none: it has no seat.
func (y *yielding) choose(set []*Slice, claim pool.Claim) (chosen []int, err error) {
	y.from, y.at = nil, map[[2]string][]int{}
	for _, c := range claim.From {
		x := candidate{runs: c.Runs}
		for _, run := range c.Runs {
			for _, o := range y.has[run] {
				x.slices, x.cost = append(x.slices, o), x.cost+c.Lost*o.Compute
			}
		}
		// Those that go before it in the pool's queue would have theirs again before it.
		if len(x.slices) > 0 && (claim.Ahead || !slices.ContainsFunc(x.slices, func(o *Slice) bool { return o.Priority > set[0].Priority })) {
			y.from = append(y.from, x)
		}
	}
	slices.SortStableFunc(y.from, func(a, b candidate) int { return cmp.Compare(a.cost, b.cost) })
	for i := range y.from {
		for _, o := range y.from[i].slices {
			for _, at := range o.places() {
				if list := y.at[at]; len(list) == 0 || list[len(list)-1] != i {
					y.at[at] = append(list, i)
				}
			}
		}
	}
	chosen, ok := y.devices(set)
	if !ok {
		return nil, nil
	}
	for i := range y.from { // its group's quota may lack them, too
		spots, no, err := y.try(set)
		if err != nil {
			return nil, err
		}
		if y.unseat(set, spots); no.reason == "" || no.full || len(chosen) > maxYields {
			break
		}
		if c := &y.from[i]; !c.gone && slices.ContainsFunc(c.slices, func(o *Slice) bool { return o.Group == set[0].Group }) {
			y.take(i, -1)
			chosen = append(chosen, i)
		}
	}
	// The dearest first: does it do without?
	slices.SortFunc(chosen, func(a, b int) int { return b - a })
	for _, i := range slices.Clone(chosen) {
		y.take(i, 1)
		spots, no, err := y.try(set)
		if err != nil {
			return nil, err
		}
		if no.reason != "" {
			y.take(i, -1)
			continue
		}
		y.unseat(set, spots)
		chosen = slices.DeleteFunc(chosen, func(o int) bool { return o == i })
	}
	if len(chosen) <= maxYields {
		if _, no, err := y.try(set); err != nil || no.reason == "" {
			return chosen, err
		}
	}
	for _, i := range chosen {
		y.take(i, 1)
	}
	return nil, nil
}

// devices takes back the runs that keep a set from devices where that costs least: of one
// node, or of any; false: nowhere do they.
func (y *yielding) devices(set []*Slice) (chosen []int, ok bool) {
	if beside(set) {
		best := int64(math.MaxInt64)
		for _, n := range y.nodes {
			if list, cost, has := y.among(set, []*Node{n}); has && cost < best {
				chosen, best, ok = list, cost, true
			}
		}
	} else {
		chosen, _, ok = y.among(set, y.nodes)
	}
	for _, i := range chosen {
		y.take(i, -1)
	}
	return chosen, ok
}

// among returns which runs keep a set from devices of some nodes, and what they cost. All is as
// before then.
func (y *yielding) among(set []*Slice, nodes []*Node) (chosen []int, cost int64, ok bool) {
	g := y.groups[set[0].Group]
	var spots []spot
	var had []*Slice
	for _, x := range set {
		mine := *x
		mine.mates = nil
		at, add, c := y.cheapest(&mine, had, nodes)
		if at.device == nil {
			break
		}
		for _, i := range add {
			y.take(i, -1)
		}
		at.take(&mine, g, 1)
		mine.Node, mine.Device = at.node.ID, at.device.ID
		chosen, cost, spots, had = append(chosen, add...), cost+c, append(spots, at), append(had, &mine)
	}
	for i, at := range spots {
		at.take(had[i], g, -1)
	}
	for _, i := range chosen {
		y.take(i, 1)
	}
	return chosen, cost, len(had) == len(set)
}

// cheapest returns the device that a slice could have when these runs have ended, and costs
// least. had are those of its set before it. All is as before then.
func (y *yielding) cheapest(x *Slice, had []*Slice, nodes []*Node) (best spot, runs []int, least int64) {
	g := y.groups[x.Group]
	least = math.MaxInt64
	for _, n := range nodes {
		if x.Policy.over(y.base).Local == LocalOnly && (x.Host == "" || n.Host != x.Host) {
			continue
		}
		for _, d := range n.Devices {
			at := [2]string{n.ID, d.ID}
			if !taking(n, d) || !x.kind(g, n, d) || d.Physical != x.Physical || y.closed[at] || x.Memory > d.Memory || x.counted() > d.ComputeLimit {
				continue
			}
			list := y.at[at]
			for _, o := range n.same(d) {
				list = append(list[:len(list):len(list)], y.at[[2]string{n.ID, o.ID}]...)
			}
			slices.Sort(list)
			var add []int
			var cost int64
			for _, i := range list {
				if cost >= least || y.room(x, had, n, d) {
					break
				}
				if !y.from[i].gone {
					y.take(i, -1)
					add, cost = append(add, i), cost+y.from[i].cost
				}
			}
			if cost < least && y.room(x, had, n, d) {
				best, runs, least = spot{node: n, device: d}, add, cost
			}
			for _, i := range add {
				y.take(i, 1)
			}
		}
	}
	return best, runs, least
}

// room reports whether a device has room for a slice now.
func (y *yielding) room(x *Slice, had []*Slice, n *Node, d *Device) bool {
	if x.regards() {
		forget([]*Slice{x})
		x.regard(y.live)
		x.regard(had)
	}
	return x.fits(y.groups[x.Group], n, d) && d.ComputeLent+x.counted() <= d.ComputeLimit && d.MemoryLent+x.Memory <= d.MemoryLimit && !(x.Physical && d.Used > 0) && n.lentAs(d) == nil
}

// take takes runs back (-1), or not (1).
func (y *yielding) take(i int, by int64) {
	c := &y.from[i]
	c.gone = by < 0
	y.count(c.slices, by)
}

// count counts slices at their places, or takes them from there.
func (y *yielding) count(list []*Slice, by int64) {
	for _, x := range list {
		for _, at := range x.places() {
			if d := y.device[at]; d != nil {
				d.take(x, by)
			}
		}
		y.groups[x.Group].take(x, by)
		if x.regards() {
			y.gone[x.ID] = by < 0
			y.live = slices.DeleteFunc(slices.Clone(y.others), func(o *Slice) bool { return y.gone[o.ID] })
		}
	}
}

// places are where a slice is counted.
func (s *Slice) places() [][2]string {
	if s.moves() {
		return [][2]string{{s.Node, s.Device}, {s.ToNode, s.ToDevice}}
	}
	return [][2]string{{s.Node, s.Device}}
}
