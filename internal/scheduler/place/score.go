package place

import "slices"

// The score tables. All replicas with the same ask and policy set share one
// shape. Shapes whose differences no filter or factor saw share a table, and
// tables share what asks have in common; see class.go.
//
// A choice is the highest total, exactly, and finds it without looking at every
// site again. Each table keeps a key for each site in a tournament tree: its
// total when it was last scored, under the ranges of that time (the reference).
// What raises a total is put into the tree at once (a site that got room back,
// or whose facts a placement improves); what lowers it (work was placed there)
// is left until the site comes first. Then:
//
//	ranges as at the reference ──▶ first of the tree, scored now ──▶ key was right: chosen
//	                                        ▲                    └▶ too high: put right, again
//	ranges moved ──▶ no total rose by more than the slack: take from the tree
//	                 while key + slack can beat the best found so far
//	             └▶ and when that has cost as much as scoring all: new reference
//
// so a decision costs what changed and what is nearly as good, not what there
// is. Sets that this does not suit, and decisions that are recorded with all
// scores, use a sheet; see sheet.go.

// maxCells bounds sites × live tables: about 100 MB.
const maxCells = 1 << 22

// shape is what equal replicas share.
type shape struct {
	ask     Ask
	set     *Set
	filters []Filter // of the plan and of the set
	uses    int      // tasks yet to come
	*table
}

// table holds the scores of one shape, or of several that cannot be told apart.
type table struct {
	*class
	of      *Set
	from    *end // of the origin
	users   int  // shapes
	columns []*column
	first   []int   // by policy: its first column; one more at the end
	weights []int64 // of the set
	sum     int64
	used    int   // when it was last used
	peers   int64 // version of the peers looked at
	compare func(weights []int64, a, b []uint8) int
	sheet   *sheet   // all scores; nil until needed
	show    *explain // nil until the first explanation
	miss    string   // why nothing fits, if missAt is seen
	missAt  int

	keys     *tree   // nil: chosen by the sheet
	rank     []int64 // weights that order candidates
	vetoes   []int   // policies with a least score
	loaded   []int   // policies with a factor that varies with load
	settled  []int   // the others
	worsens  bool    // placing work never raises a total within the ranges
	fixed    []int64 // by site: Σ rank·score of the settled policies at the reference
	ref      []span  // by column: the reference
	versions []int   // of the columns looked at
	moved    bool    // ranges differ from the reference
	fixMoved bool    // those of settled policies do
	slack    int64   // how much a total may have risen since the reference
	spent    int     // sites scored because ranges moved
	rises    int     // rises looked at
	changed  int     // changes looked at
	groves   []*grove
	aside    []aside
}

// aside is a site taken out of the tree while another is looked for.
type aside struct {
	site int32
	key  int64
}

// shapeOf returns the shape of a task. Works whose replicas talk to each other
// have their own.
func (p *planner) shapeOf(w *Work, t *Task, set *Set, mates *peers) *shape {
	index, ok := p.setIndex[set]
	if !ok {
		index = len(p.setIndex)
		p.setIndex[set] = index
	}
	key := append(p.keyBuf[:0], byte(index), byte(index>>8), byte(index>>16))
	if mates != nil {
		key = appendString(append(key, 1), w.ID)
	} else {
		key = append(key, 0)
	}
	key = appendKey(key, t, &w.Origin)
	p.keyBuf = key
	if h, ok := p.shapes[string(key)]; ok {
		return h
	}
	h := &shape{set: set, filters: append(slices.Clip(p.filters), set.Filters...), ask: Ask{Task: *t, Origin: w.Origin, peers: mates}}
	h.ask.Task.ID, h.ask.Task.Replicas, h.ask.Task.Indices, h.ask.Task.Rules = "", 0, nil, nil
	var buf [16]string
	for _, name := range sortedKeys(buf[:0], t.Request) {
		if t.Request[name] == 0 {
			continue // nothing of it fits anywhere, even where it is overdrawn
		}
		h.ask.need = append(h.ask.need, need{dim: p.dimIndex[name], amount: t.Request[name]})
	}
	if t.Spec != "" {
		h.ask.need = append(h.ask.need, need{dim: p.dimIndex[specDim+t.Spec], amount: 1, spec: true})
	}
	if d := t.Devices; d != nil {
		h.ask.devices = &deviceNeed{count: d.Count, model: d.Model}
		for _, name := range sortedKeys(buf[:0], d.Each) {
			if d.Each[name] == 0 {
				continue
			}
			h.ask.devices.each = append(h.ask.devices.each, need{dim: p.devDim[name], amount: d.Each[name]})
		}
	}
	p.shapes[string(key)] = h
	return h
}

// refresh brings the table of h up to date.
func (p *planner) refresh(h *shape) {
	p.clock++
	if h.table == nil {
		p.build(h)
	}
	t := h.table
	t.used = p.clock
	t.class.follow(p)
	same := true
	for k, c := range t.columns {
		c.follow(p)
		if c.version != t.versions[k] {
			t.versions[k], same = c.version, false
		}
	}
	met := h.ask.peers != nil && h.ask.peers.version != t.peers
	if met {
		t.peers = h.ask.peers.version
	}
	switch {
	case t.keys == nil:
		t.sheet.follow(p, h)
	case met || !same && !t.compareRanges():
		t.refer(p)
	default:
		t.raise(p)
	}
}

// build makes the table of h.
func (p *planner) build(h *shape) {
	p.evict(len(p.sites))
	t := &table{of: h.set, weights: h.set.Weights(), compare: h.set.Evaluator.Compare, users: 1}
	h.table = t
	h.ask.prepare(p)
	t.class, t.from = p.classOf(h), h.ask.from
	t.class.follow(p)
	t.worsens = true
	t.rank = h.set.ranks()
	keyed := t.rank != nil && p.opts.NoTables
	for u := range h.set.Uses {
		t.sum += t.weights[u]
		t.first = append(t.first, len(t.columns))
		if h.set.Uses[u].Min > 0 {
			t.vetoes = append(t.vetoes, u)
		} else if keyed && t.weights[u] == 0 {
			continue // neither shown nor counted
		}
		load := false
		factors := h.set.Uses[u].Policy.Factors
		for f := range factors {
			t.columns = append(t.columns, p.columnOf(h, &factors[f]))
			if factors[f].Varies == WithLoad {
				load = true
				t.worsens = t.worsens && (factors[f].Worsens || t.weights[u] == 0)
			}
		}
		if load {
			t.loaded = append(t.loaded, u)
		} else {
			t.settled = append(t.settled, u)
		}
	}
	t.first = append(t.first, len(t.columns))
	p.live = append(p.live, h)
	if h.ask.peers != nil {
		t.peers = h.ask.peers.version
	} else if old := t.class.like(t); old != nil {
		old.users++
		h.table = old
		return
	} else {
		t.class.tables = append(t.class.tables, t)
	}
	p.cells += len(p.sites)
	t.versions = make([]int, len(t.columns))
	for k, c := range t.columns {
		t.versions[k] = c.version
	}
	if keyed {
		t.refer(p)
	} else {
		t.sheet = newSheet(p, h)
	}
}

// like returns a table that holds what t is to hold, nil if there is none.
func (c *class) like(t *table) *table {
	for _, o := range c.tables {
		if o.of == t.of && o.from.is(t.from) && slices.Equal(o.columns, t.columns) {
			return o
		}
	}
	return nil
}

// evict makes room for n more cells by dropping the tables used longest ago.
func (p *planner) evict(n int) {
	for p.cells > 0 && p.cells+n > p.maxCells {
		oldest := 0
		for i := range p.live {
			if p.live[i].used < p.live[oldest].used {
				oldest = i
			}
		}
		p.drop(p.live[oldest])
	}
}

// retire drops the shape that was retired before: the table of h, which no task
// has any more, may be what the next shape shares.
func (p *planner) retire(h *shape) {
	if p.retired != nil && p.retired.table != nil {
		p.drop(p.retired)
	}
	p.retired = h
}

// drop frees the table of h, unless other shapes use it.
func (p *planner) drop(h *shape) {
	i := slices.Index(p.live, h)
	p.live[i] = p.live[len(p.live)-1]
	p.live = p.live[:len(p.live)-1]
	t := h.table
	h.table = nil
	if t.users--; t.users > 0 {
		return
	}
	p.cells -= len(p.sites)
	t.class.tables = slices.DeleteFunc(t.class.tables, func(o *table) bool { return o == t })
}

// refer makes the present ranges the reference and scores every site.
func (t *table) refer(p *planner) {
	n := len(t.fits)
	if t.keys == nil {
		t.fixed, t.ref = make([]int64, n), make([]span, len(t.columns))
		t.keys = newTree(make([]int64, n))
	}
	for k, c := range t.columns {
		t.ref[k] = c.now
	}
	t.moved, t.fixMoved, t.slack, t.spent = false, false, 0, 0
	t.rises, t.changed = len(p.rises), len(p.changes)
	clear(t.fixed)
	for _, u := range t.settled {
		t.add(p, u, t.fixed)
	}
	copy(t.keys.key, t.fixed)
	for _, u := range t.loaded {
		t.add(p, u, t.keys.key)
	}
	for i, ok := range t.fits {
		if !ok {
			t.keys.key[i] = never
		}
	}
	t.keys.build()
	for _, g := range t.groves {
		g.copy(t.keys.key)
	}
}

// add adds what policy u gives to the total of every site.
func (t *table) add(p *planner, u int, totals []int64) {
	w := t.rank[u]
	if w == 0 {
		return
	}
	columns := t.columns[t.first[u]:t.first[u+1]]
	if len(columns) == 1 {
		for i, s := range columns[0].scores(p) {
			totals[i] += w * int64(s)
		}
		return
	}
	sums := p.sums(len(totals))
	for _, c := range columns {
		for i, s := range c.scores(p) {
			sums[i] += int32(s)
		}
	}
	n := int32(len(columns))
	for i, s := range sums {
		totals[i] += w * int64((2*s+n)/(2*n))
	}
}

// sums returns n times 0.
func (p *planner) sums(n int) []int32 {
	if cap(p.sumBuf) < n {
		p.sumBuf = make([]int32, n)
	}
	clear(p.sumBuf[:n])
	return p.sumBuf[:n]
}

// raise puts into the tree what may have raised a total.
func (t *table) raise(p *planner) {
	up := func(i int32) { t.set(i, t.total(i, t.ref, false)) }
	if !t.worsens {
		p.since(t.changed, up)
	} else {
		for _, i := range p.rises[t.rises:] { // a site that fits again is one of them
			up(i)
		}
	}
	t.rises, t.changed = len(p.rises), len(p.changes)
}

// compareRanges finds the slack; false: the reference is of no use.
func (t *table) compareRanges() bool {
	t.moved, t.fixMoved, t.slack = false, false, 0
	for u := range t.weights {
		var rise int64
		moved := false
		for k := t.first[u]; k < t.first[u+1]; k++ {
			c := t.columns[k]
			if c.now == t.ref[k] {
				continue
			}
			if c.now.none != t.ref[k].none {
				return false
			}
			moved = true
			rise += c.f.mostRise(&t.ref[k], &c.now)
		}
		if moved && t.rank[u] > 0 {
			n := int64(t.first[u+1] - t.first[u])
			t.moved = true
			t.fixMoved = t.fixMoved || slices.Contains(t.settled, u)
			t.slack += t.rank[u] * ((rise + n - 1) / n)
		}
	}
	return true
}

// mostRise bounds how much the score of a fact in range now may be higher than
// it was in range ref. Both are linear in the fact but for the ends of ref, so
// the difference is largest at an end of either; rounding adds less than 1.
func (f *Factor) mostRise(ref, now *span) int64 {
	if f.Absolute {
		return 0
	}
	most := int64(-1)
	for _, v := range [...]int64{now.min, now.max, ref.min - 1, ref.min, ref.min + 1, ref.max - 1, ref.max, ref.max + 1} {
		if v >= now.min && v <= now.max {
			most = max(most, int64(f.rate(v, now))-int64(f.rate(v, ref)))
		}
	}
	return max(most+1, 0)
}

// total returns Σ rank·score of site i in the given ranges (nil: the present
// ones), never if nothing fits there. All says that what was kept of settled
// policies is of other ranges.
func (t *table) total(i int32, ranges []span, all bool) int64 {
	if !t.fits[i] {
		return never
	}
	var sum int64
	if all {
		for _, u := range t.settled {
			sum += t.rank[u] * t.scoreAt(u, i, ranges)
		}
	} else {
		sum = t.fixed[i]
	}
	for _, u := range t.loaded {
		sum += t.rank[u] * t.scoreAt(u, i, ranges)
	}
	return sum
}

// scoreAt returns the score of policy u at site i.
func (t *table) scoreAt(u int, i int32, ranges []span) int64 {
	from, to := t.first[u], t.first[u+1]
	var sum int64
	for k := from; k < to; k++ {
		c := t.columns[k]
		r := &c.now
		if ranges != nil {
			r = &ranges[k]
		}
		sum += int64(c.f.rate(c.value[i], r))
	}
	n := int64(to - from)
	if n == 1 {
		return sum
	}
	return (2*sum + n) / (2 * n)
}

// selection is among which sites to search.
type selection struct {
	first func() int32       // the one with the highest key
	allow func(i int32) bool // nil: any
}

// set changes the key of a site.
func (t *table) set(i int32, key int64) {
	t.keys.set(i, key)
	for _, g := range t.groves {
		g.set(i, key)
	}
}

// search finds the site with the highest total in a selection, -1 if there is
// none.
func (p *planner) search(t *table, sel *selection) int32 {
	for {
		best, ok := t.look(sel)
		for _, a := range t.aside {
			t.set(a.site, a.key)
		}
		t.aside = t.aside[:0]
		if ok {
			return best
		}
		t.refer(p)
	}
}

// look searches the tree; not ok: scoring all anew costs less.
func (t *table) look(sel *selection) (best int32, ok bool) {
	best, most := int32(-1), int64(never)
	for {
		i := sel.first()
		if i < 0 {
			return best, true
		}
		key := t.keys.key[i]
		if best >= 0 && (key+t.slack < most || key+t.slack == most && i > best) {
			return best, true
		}
		now := t.total(i, nil, t.fixMoved)
		if !t.moved {
			if now != key {
				t.set(i, now)
				continue
			}
			if sel.allow == nil || sel.allow(i) {
				return i, true
			}
			t.aside = append(t.aside, aside{i, key})
			t.set(i, never)
			continue
		}
		if t.spent++; t.spent > 64+len(t.fits)/16 {
			return -1, false
		}
		t.aside = append(t.aside, aside{i, t.total(i, t.ref, false)})
		t.set(i, never)
		if now != never && (now > most || now == most && i < best) && (sel.allow == nil || sel.allow(i)) {
			best, most = i, now
		}
	}
}
