package place

import (
	"math"
	"slices"
	"strconv"
)

// The score tables. All replicas with the same ask and policy set share one
// shape and its table. The planner logs which sites change; a table that is
// used again looks only at those:
//
//	changed site ──▶ still fits? new facts? ──▶ range of the factor moved? ──▶ yes: score all again
//	                                                                      └▶ no: score this site
//
// so a decision costs one scan of the totals (a nanosecond per site) plus what
// changed. Tables are dropped after the last task that needs them, and the
// oldest ones when they grow past maxCells.

// maxCells bounds sites × live tables: with 12 policies about 200 MB.
const maxCells = 1 << 20

// noFact is an unknown fact in a column.
const noFact = math.MinInt64

// shape is what equal replicas share.
type shape struct {
	ask     Ask
	set     *Set
	filters []Filter // of the plan and of the set
	uses    int      // tasks yet to come
	*table
}

// table holds the scores of one shape.
type table struct {
	weights []int64
	sum     int64
	compare func(weights []int64, a, b []uint8) int // nil: by final
	reasons [][]Reason                              // static, by site; nil: passes every filter
	fits    []bool                                  // passes, and has room
	nfit    int
	columns []column
	first   []int    // by policy: its first column; one more at the end
	scores  []uint8  // by site, then policy
	final   []int64  // by site: Σ w·s
	moved   []int32  // sites with new load to score again
	entered []int32  // sites that fit again, to score from scratch
	seen    int      // changes looked at
	peers   int64    // version of the peers looked at
	used    int      // when it was last used
	show    *explain // nil until the first explanation
	miss    string   // why nothing fits, if missAt is seen
	missAt  int
}

// column holds one factor.
type column struct {
	f        *Factor
	value    []int64
	score    []uint8
	min, max int64
	counted  int  // sites that fit and whose fact is known
	dirty    bool // min or max may be gone
	all      bool // the range moved: score every site again
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
	h.ask.Task.ID, h.ask.Task.Replicas, h.ask.Task.Indices = "", 0, nil
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

// decide returns the best site for one replica of h, -1 if none fits.
func (p *planner) decide(h *shape) int32 {
	p.refresh(h)
	best := int32(-1)
	if h.nfit == 0 {
		return best
	}
	if compare := h.table.compare; compare != nil {
		n := len(h.weights)
		for i := range h.fits {
			if h.fits[i] && (best < 0 ||
				compare(h.weights, h.scores[i*n:(i+1)*n], h.scores[int(best)*n:(int(best)+1)*n]) > 0) {
				best = int32(i)
			}
		}
		return best
	}
	most := int64(-1)
	final := h.final
	for i, ok := range h.fits {
		if ok && final[i] > most {
			best, most = int32(i), final[i]
		}
	}
	return best
}

// refresh brings the table of h up to date.
func (p *planner) refresh(h *shape) {
	p.clock++
	if h.table == nil {
		p.build(h)
	}
	t := h.table
	t.used = p.clock
	if changed := p.changes[t.seen:]; 4*len(changed) < len(p.sites) {
		for _, i := range changed {
			p.touch(h, i)
		}
	} else {
		for i := range p.sites {
			if p.sites[i].changed > t.seen {
				p.touch(h, int32(i))
			}
		}
	}
	t.seen = len(p.changes)
	if h.ask.peers != nil && h.ask.peers.version != t.peers {
		t.peers = h.ask.peers.version
		for c := range t.columns {
			if t.columns[c].f.Varies == WithPeers {
				t.columns[c].measure(h, p.sites)
			}
		}
		t.show.staleAll()
	}
	t.rescore()
}

// build makes the table of h: every filter and every factor for every site.
func (p *planner) build(h *shape) {
	p.evict(len(p.sites))
	n := len(p.sites)
	t := &table{
		weights: h.set.Weights(), compare: h.set.Evaluator.Compare, reasons: make([][]Reason, n), fits: make([]bool, n),
		final: make([]int64, n), scores: make([]uint8, n*len(h.set.Uses)), seen: len(p.changes),
	}
	h.table = t
	p.live = append(p.live, h)
	p.cells += n
	h.ask.prepare(p)
	if h.ask.peers != nil {
		t.peers = h.ask.peers.version
	}
	for i := range p.sites {
		t.reasons[i] = p.reasons(h, &p.sites[i])
		if t.fits[i] = t.reasons[i] == nil && p.fits(int32(i), h); t.fits[i] {
			t.nfit++
		}
	}
	for u := range h.set.Uses {
		t.sum += t.weights[u]
		t.first = append(t.first, len(t.columns))
		factors := h.set.Uses[u].Policy.Factors
		for f := range factors {
			t.columns = append(t.columns, column{f: &factors[f], value: make([]int64, n), score: make([]uint8, n)})
		}
	}
	t.first = append(t.first, len(t.columns))
	for c := range t.columns {
		t.columns[c].measure(h, p.sites)
	}
}

// reasons returns why s cannot run h whatever is free, nil if it can. Without
// tables the first reason is enough.
func (p *planner) reasons(h *shape, s *Site) (out []Reason) {
	for f := range h.filters {
		if text := h.filters[f].Check(&h.ask, s); text != "" {
			out = append(out, Reason{Filter: h.filters[f].ID, Text: text})
			if p.opts.NoTables {
				break
			}
		}
	}
	return out
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

// drop frees the table of h.
func (p *planner) drop(h *shape) {
	for i := range p.live {
		if p.live[i] == h {
			p.live[i] = p.live[len(p.live)-1]
			p.live = p.live[:len(p.live)-1]
			p.cells -= len(p.sites)
			h.table = nil
			return
		}
	}
}

// measure fills the whole column and has its range found again. Sites that
// fail a filter are never scored.
func (c *column) measure(h *shape, sites []Site) {
	c.counted = 0
	for i := range sites {
		if h.reasons[i] != nil {
			continue
		}
		c.value[i] = noFact
		if f := c.f.Measure(&h.ask, &sites[i]); f.Known {
			c.value[i] = clamp(f.Value)
			if h.fits[i] {
				c.counted++
			}
		}
	}
	c.dirty, c.all = true, true
}

// touch looks at site i after its state changed.
func (p *planner) touch(h *shape, i int32) {
	t := h.table
	t.show.stale(i)
	if t.reasons[i] != nil {
		return
	}
	was, now := t.fits[i], p.fits(i, h)
	if !was && !now {
		return
	}
	for k := range t.columns {
		c := &t.columns[k]
		if was && now && c.f.Varies != WithLoad {
			continue
		}
		old := c.value[i]
		if now && c.f.Varies == WithLoad {
			c.value[i] = noFact
			if f := c.f.Measure(&h.ask, &p.sites[i]); f.Known {
				c.value[i] = clamp(f.Value)
			}
		}
		c.move(old, c.value[i], was, now)
	}
	t.fits[i] = now
	switch {
	case was && now:
		t.moved = append(t.moved, i)
	case now:
		t.entered = append(t.entered, i)
		t.nfit++
	default:
		t.nfit--
	}
}

// move keeps the range of c while one site goes from a value to another, or in
// or out of those that fit.
func (c *column) move(from, to int64, was, now bool) {
	was, now = was && from != noFact, now && to != noFact
	if was == now && from == to {
		return
	}
	if was {
		c.counted--
		if from == c.min || from == c.max {
			c.dirty = true
		}
	}
	if !now {
		return
	}
	if c.counted++; c.counted == 1 {
		c.dirty = true
	}
	if to < c.min {
		c.min, c.all = to, true
	}
	if to > c.max {
		c.max, c.all = to, true
	}
}

// span finds the range of c among the sites that fit.
func (c *column) span(fits []bool) {
	c.dirty = false
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for i, ok := range fits {
		if v := c.value[i]; ok && v != noFact {
			low, high = min(low, v), max(high, v)
		}
	}
	if low != c.min || high != c.max {
		c.min, c.max, c.all = low, high, true
	}
}

// rate scores one fact within the range of c.
func (c *column) rate(v int64) uint8 {
	switch {
	case v == noFact:
		return uint8(c.f.Unknown)
	case c.f.Absolute:
		return uint8(min(max(v, 0), MaxScore))
	case c.min == c.max:
		return MaxScore
	case c.f.Better == Lower:
		return spread(c.max-v, c.max-c.min)
	}
	return spread(v-c.min, c.max-c.min)
}

// rescore turns facts into scores and totals: of all sites where the range of
// a factor moved, of the changed ones elsewhere.
func (t *table) rescore() {
	for u := range t.weights {
		columns := t.columns[t.first[u]:t.first[u+1]]
		all, load := false, false
		for k := range columns {
			c := &columns[k]
			if c.dirty {
				c.span(t.fits)
			}
			if !c.all {
				c.rateSites(t, t.entered)
				if c.f.Varies == WithLoad {
					load = true
					c.rateSites(t, t.moved)
				}
				continue
			}
			all, c.all = true, false
			for i, ok := range t.fits {
				if ok {
					c.score[i] = c.rate(c.value[i])
				}
			}
		}
		if all {
			for i, ok := range t.fits {
				if ok {
					t.settle(int32(i), u, columns)
				}
			}
			continue
		}
		t.settleSites(t.entered, u, columns)
		if load {
			t.settleSites(t.moved, u, columns)
		}
	}
	t.moved, t.entered = t.moved[:0], t.entered[:0]
}

func (c *column) rateSites(t *table, sites []int32) {
	for _, i := range sites {
		if t.fits[i] {
			c.score[i] = c.rate(c.value[i])
		}
	}
}

func (t *table) settleSites(sites []int32, u int, columns []column) {
	for _, i := range sites {
		if t.fits[i] {
			t.settle(i, u, columns)
		}
	}
}

// settle writes the score of policy u at site i and corrects the total.
func (t *table) settle(i int32, u int, columns []column) {
	score := columns[0].score[i]
	if n := len(columns); n > 1 {
		sum := 0
		for k := range columns {
			sum += int(columns[k].score[i])
		}
		score = uint8((2*sum + n) / (2 * n))
	}
	cell := &t.scores[int(i)*len(t.weights)+u]
	if *cell == score {
		return
	}
	t.final[i] += t.weights[u] * (int64(score) - int64(*cell))
	*cell = score
	t.show.stale(i)
}

// nearMiss says in one sentence why nothing fits h: how many sites fail which
// filter first, and what the one that came closest lacks.
func (p *planner) nearMiss(h *shape) string {
	if h.miss == "" || h.missAt != h.seen {
		h.miss, h.missAt = p.findMiss(h), h.seen
	}
	return h.miss
}

func (p *planner) findMiss(h *shape) string {
	noun := p.opts.Noun
	if noun == "" {
		noun = "center"
	}
	if len(p.sites) == 0 {
		return "there is no " + noun
	}
	counts := make([]int, len(h.filters)+1) // the last is capacity
	closest, stage, share := int32(0), -1, int64(-1)
	for i := range p.sites {
		at, part := len(h.filters), int64(0)
		if r := h.reasons[i]; r != nil {
			at = h.filterIndex(r[0].Filter)
		} else {
			part = p.coverage(int32(i), h)
		}
		counts[at]++
		if at > stage || at == stage && part > share {
			closest, stage, share = int32(i), at, part
		}
	}
	text := "none of " + strconv.Itoa(len(p.sites)) + " " + noun + "s fits"
	if len(p.sites) == 1 {
		text = "the only " + noun + " does not fit"
	}
	sep := " ("
	for f := len(counts) - 1; f >= 0; f-- {
		if counts[f] == 0 {
			continue
		}
		id := capacityFilter
		if f < len(h.filters) {
			id = h.filters[f].ID
		}
		text += sep + id + ": " + strconv.Itoa(counts[f])
		sep = ", "
	}
	why := p.shortage(closest, h)
	if r := h.reasons[closest]; r != nil {
		why = r[0].Text
	}
	return text + "); closest is " + p.sites[closest].ID + ": " + why
}

func (h *shape) filterIndex(id string) int {
	for f := range h.filters {
		if h.filters[f].ID == id {
			return f
		}
	}
	return len(h.filters)
}

// coverage returns how much of one replica of h site i could take, in
// thousandths of the scarcest dimension.
func (p *planner) coverage(i int32, h *shape) int64 {
	part := int64(1000)
	for j := range h.ask.need {
		n := &h.ask.need[j]
		part = min(part, mulDiv(1000, min(max(p.available(i, h, n), 0), n.amount), n.amount))
	}
	if d := h.ask.devices; d != nil {
		part = min(part, int64(p.devicesFit(i, d))*1000/int64(d.count))
	}
	return part
}
