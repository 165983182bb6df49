package place

import (
	"encoding/binary"
	"math"
)

// What asks share. Much of what a table is made of does not depend on the whole
// ask, so it is kept by what it does depend on:
//
//	verdicts  what a filter says of every site      by what the filter reads
//	mask      which sites pass every filter         by the filters that keep any out
//	class     which sites fit: pass, and have room  by mask and request
//	facts     a factor of every site                by what the factor reads
//	column    the range of facts among those that fit, and scores   by class and facts
//
// All follow the planner's log of changed sites, each from where it stopped.

// noFact is an unknown fact among facts.
const noFact = math.MinInt64

// maxShared bounds the cells of each of the maps of what is shared; a full one
// is forgotten, and what is in use lives on with its users.
const maxShared = 1 << 23

// verdicts is what one filter says of every site.
type verdicts struct {
	id   int
	text []string // by site; nil: all pass
}

// mask is which sites pass every filter.
type mask struct {
	id      int
	pass    []bool
	filters []int // that keep sites out, ascending
	says    []*verdicts
	reaches map[*domains]*reach // made when first needed
}

// class is which sites fit asks of one mask and one request.
type class struct {
	*mask
	shape   *shape // one of them, to ask for room
	fits    []bool
	nfit    int
	seen    int     // changes looked at
	turns   []int32 // sites that came to fit or ceased to, in order
	columns map[*facts]*column
	tables  []*table
}

// facts is what one factor says of every site.
type facts struct {
	f     *Factor
	ask   *Ask // one of those that share them
	value []int64
	pass  []bool // nil: of all sites; else only where true
	seen  int    // changes looked at, if they vary with load
	peers int64  // version of the peers looked at
}

// span is a range of known facts.
type span struct {
	min, max int64
	none     bool // no fact is known
}

// column is facts among the sites of a class.
type column struct {
	*facts
	class        *class
	now          span
	minAt, maxAt int32 // where the ends are; -1: no fact is known
	low, high    *tree // find another end; made when first needed
	version      int   // changes with now
	seen         int   // changes looked at; turns of the class, if facts are fixed
	// score is of all sites; what does not fit may be out of range.
	score        []uint8
	scoreVersion int
	scoreSeen    int
}

// since calls visit once for every site that changed after the first n changes.
func (p *planner) since(n int, visit func(i int32)) {
	if changed := p.changes[n:]; 4*len(changed) < len(p.sites) {
		for k, i := range changed {
			if int(p.latest[i]) == n+k+1 { // its last change
				visit(i)
			}
		}
		return
	}
	for i, at := range p.latest {
		if int(at) > n {
			visit(int32(i))
		}
	}
}

// verdictsOf asks filter f of h about every site. One that reads anything is
// not asked about sites that others keep out already, unless all reasons are
// wanted: it may be costly.
func (p *planner) verdictsOf(h *shape, f int, out []bool) *verdicts {
	filter := &h.filters[f]
	key := binary.AppendUvarint(p.keyBuf[:0], uint64(f))
	if f >= len(p.filters) {
		key = binary.AppendUvarint(key, uint64(1+p.setIndex[h.set]))
	} else {
		key = append(key, 0)
	}
	key = appendReads(key, filter.Reads, &h.ask.Task, &h.ask.Origin)
	p.keyBuf = key
	if v, ok := p.verdicts[string(key)]; ok {
		return v
	}
	v := &verdicts{id: p.nextID}
	p.nextID++
	for i := range p.sites {
		if filter.Reads == 0 && p.opts.NoTables && out[i] {
			continue
		}
		if text := filter.Check(&h.ask, &p.sites[i]); text != "" {
			if v.text == nil {
				v.text = make([]string, len(p.sites))
				p.texts += 2 * len(p.sites)
			}
			v.text[i] = text
		}
	}
	p.verdicts[string(key)] = v
	return v
}

// maskOf asks every filter of h.
func (p *planner) maskOf(h *shape) *mask {
	if p.texts+len(p.masks)*len(p.sites) > maxShared {
		clear(p.verdicts)
		clear(p.masks)
		clear(p.classes)
		p.texts = 0
	}
	m := &mask{}
	out := p.boolBuf(len(p.sites))
	for f := range h.filters {
		if v := p.verdictsOf(h, f, out); v.text != nil {
			m.filters, m.says = append(m.filters, f), append(m.says, v)
			for i, text := range v.text {
				out[i] = out[i] || text != ""
			}
		}
	}
	key := p.keyBuf[:0]
	for _, v := range m.says {
		key = binary.AppendUvarint(key, uint64(v.id))
	}
	p.keyBuf = key
	if old, ok := p.masks[string(key)]; ok {
		return old
	}
	m.id = p.nextID
	p.nextID++
	m.pass = make([]bool, len(out))
	for i := range out {
		m.pass[i] = !out[i]
	}
	p.masks[string(key)] = m
	return m
}

// boolBuf returns n times false.
func (p *planner) boolBuf(n int) []bool {
	if cap(p.bools) < n {
		p.bools = make([]bool, n)
	}
	clear(p.bools[:n])
	return p.bools[:n]
}

// reasonsAt returns why site i cannot run what the mask is for whatever is
// free, nil if it can.
func (m *mask) reasonsAt(filters []Filter, i int32) (out []Reason) {
	if m.pass[i] {
		return nil
	}
	for k, v := range m.says {
		if v.text[i] != "" {
			out = append(out, Reason{Filter: filters[m.filters[k]].ID, Text: v.text[i]})
		}
	}
	return out
}

// classOf returns the class of h.
func (p *planner) classOf(h *shape) *class {
	m := p.maskOf(h)
	key := binary.AppendUvarint(p.keyBuf[:0], uint64(m.id))
	key = appendBool(key, p.opts.Hold != nil)
	if p.opts.Hold != nil { // room then depends on run times
		key = binary.AppendUvarint(key, uint64(p.nextID))
		p.nextID++
	}
	for _, n := range h.ask.need {
		key = appendBool(binary.AppendVarint(binary.AppendUvarint(key, uint64(n.dim)), n.amount), n.spec)
	}
	if d := h.ask.devices; d != nil {
		key = appendString(append(key, 0xff), d.model)
		key = binary.AppendUvarint(key, uint64(d.count))
		for _, n := range d.each {
			key = binary.AppendVarint(binary.AppendUvarint(key, uint64(n.dim)), n.amount)
		}
	}
	p.keyBuf = key
	if c, ok := p.classes[string(key)]; ok {
		return c
	}
	if len(p.classes)*len(p.sites) > maxShared {
		clear(p.classes)
	}
	c := &class{mask: m, shape: h, fits: make([]bool, len(p.sites)), seen: len(p.changes), columns: map[*facts]*column{}}
	for i, ok := range m.pass {
		if ok && p.fits(int32(i), h) {
			c.fits[i] = true
			c.nfit++
		}
	}
	p.classes[string(key)] = c
	return c
}

// follow brings the class up to date.
func (c *class) follow(p *planner) {
	if c.seen == len(p.changes) {
		return
	}
	p.since(c.seen, func(i int32) {
		was := c.fits[i] // and passes, which need not be looked up
		if !was && !c.pass[i] {
			return
		}
		if now := p.fits(i, c.shape); now != was {
			c.fits[i] = now
			c.turns = append(c.turns, i)
			if now {
				c.nfit++
			} else {
				c.nfit--
			}
		}
	})
	c.seen = len(p.changes)
}

// factsOf returns a factor of every site for h.
func (p *planner) factsOf(h *shape, f *Factor) *facts {
	n, ok := p.factorIndex[f]
	if !ok {
		n = len(p.factorIndex)
		p.factorIndex[f] = n
	}
	key := binary.AppendUvarint(p.keyBuf[:0], uint64(n))
	own := f.Varies == WithPeers && h.ask.peers != nil
	if own {
		key = binary.AppendUvarint(append(key, 1), uint64(p.nextID))
		p.nextID++
	} else {
		key = append(key, 0)
	}
	key = appendReads(key, f.Reads, &h.ask.Task, &h.ask.Origin)
	// One that reads anything is asked only where every filter passes.
	if f.Reads == 0 {
		key = binary.AppendUvarint(key, uint64(h.class.mask.id))
	}
	p.keyBuf = key
	if m, ok := p.facts[string(key)]; ok {
		return m
	}
	if len(p.facts)*len(p.sites) > maxShared {
		clear(p.facts)
	}
	m := &facts{f: f, ask: &h.ask, value: make([]int64, len(p.sites)), seen: len(p.changes)}
	if f.Reads == 0 {
		m.pass = h.class.pass
	}
	m.measureAll(p)
	if !own {
		p.facts[string(key)] = m
	}
	return m
}

func (m *facts) measureAll(p *planner) {
	if m.ask.peers != nil {
		m.peers = m.ask.peers.version
	}
	for i := range m.value {
		if m.pass == nil || m.pass[i] {
			m.measure(p, int32(i))
		} else {
			m.value[i] = noFact
		}
	}
}

func (m *facts) measure(p *planner, i int32) {
	m.value[i] = noFact
	if f := m.f.Measure(m.ask, &p.sites[i]); f.Known {
		m.value[i] = clamp(f.Value)
	}
}

// follow brings facts that vary with load up to date.
func (m *facts) follow(p *planner) {
	if m.f.Varies != WithLoad || m.seen == len(p.changes) {
		return
	}
	p.since(m.seen, func(i int32) {
		if m.pass == nil || m.pass[i] {
			m.measure(p, i)
		}
	})
	m.seen = len(p.changes)
}

// columnOf returns a factor among the sites that fit h.
func (p *planner) columnOf(h *shape, f *Factor) *column {
	m := p.factsOf(h, f)
	m.follow(p)
	c := h.class
	if col, ok := c.columns[m]; ok {
		return col
	}
	if len(c.columns)*len(p.sites) > maxShared {
		clear(c.columns)
	}
	col := &column{facts: m, class: c, version: 1}
	col.stand(p)
	col.findEnds()
	c.columns[m] = col
	return col
}

// stand notes that all changes were looked at.
func (c *column) stand(p *planner) {
	c.seen = len(c.class.turns)
	if c.f.Varies == WithLoad {
		c.seen = len(p.changes)
	}
}

// findEnds looks at every site.
func (c *column) findEnds() {
	c.minAt, c.maxAt, c.low, c.high = -1, -1, nil, nil
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for i, ok := range c.class.fits {
		v := c.value[i]
		if !ok || v == noFact {
			continue
		}
		if v < low {
			low, c.minAt = v, int32(i)
		}
		if v > high {
			high, c.maxAt = v, int32(i)
		}
	}
	c.now = span{low, high, false}
	if c.minAt < 0 {
		c.now = span{none: true}
	}
}

// counts tells whether site i has a say in the range.
func (c *column) counts(i int32) bool { return c.class.fits[i] && c.value[i] != noFact }

// follow brings the range up to date. Ends that give way are replaced through
// trees, whose keys may be too high and are put right when they come first.
func (c *column) follow(p *planner) {
	c.facts.follow(p)
	if m := c.ask.peers; m != nil && c.f.Varies == WithPeers && m.version != c.peers {
		c.measureAll(p)
		c.findEnds()
		c.version++
		c.stand(p)
		return
	}
	lost := false
	visit := func(i int32) {
		if !c.counts(i) {
			lost = lost || i == c.minAt || i == c.maxAt
			return
		}
		v := c.value[i]
		if c.low != nil && -v > c.low.key[i] {
			c.low.set(i, -v)
		}
		if c.high != nil && v > c.high.key[i] {
			c.high.set(i, v)
		}
		if c.minAt < 0 || v < c.now.min {
			c.now.min, c.minAt = v, i
			c.version++
		}
		if c.maxAt < 0 || v > c.now.max {
			c.now.max, c.maxAt = v, i
			c.version++
		}
		c.now.none = false
		lost = lost || i == c.minAt && v != c.now.min || i == c.maxAt && v != c.now.max
	}
	if c.f.Varies == WithLoad {
		if c.seen == len(p.changes) {
			return
		}
		p.since(c.seen, visit)
	} else {
		for _, i := range c.class.turns[c.seen:] {
			visit(i)
		}
	}
	c.stand(p)
	if lost {
		c.replaceEnds()
	}
}

// replaceEnds finds the ends again after one of them gave way.
func (c *column) replaceEnds() {
	was := c.now
	if c.low == nil {
		low, high := make([]int64, len(c.value)), make([]int64, len(c.value))
		for i := range low {
			low[i], high[i] = never, never
			if c.counts(int32(i)) {
				low[i], high[i] = -c.value[i], c.value[i]
			}
		}
		c.low, c.high = newTree(low), newTree(high)
	}
	c.minAt, c.maxAt = c.end(c.low, -1), c.end(c.high, 1)
	c.now = span{none: true}
	if c.minAt >= 0 {
		c.now = span{c.value[c.minAt], c.value[c.maxAt], false}
	}
	if c.now != was {
		c.version++
	}
}

// end returns the site with the highest fact times sign.
func (c *column) end(t *tree, sign int64) int32 {
	for {
		i := t.first()
		if i < 0 {
			return i
		}
		now := int64(never)
		if c.counts(i) {
			now = sign * c.value[i]
		}
		if t.key[i] == now {
			return i
		}
		t.set(i, now)
	}
}

// rate scores one fact within a range; beyond it, it scores as its end.
func (f *Factor) rate(v int64, s *span) uint8 {
	switch {
	case v == noFact:
		return uint8(f.Unknown)
	case f.Absolute:
		return uint8(min(max(v, 0), MaxScore))
	}
	d := v - s.min
	if f.Better == Lower {
		d = s.max - v
	}
	n := s.max - s.min
	switch {
	case d < 0:
		return 0
	case d >= n:
		return MaxScore
	}
	return spread(d, n)
}

// scores returns the scores of all sites in the present range.
func (c *column) scores(p *planner) []uint8 {
	switch {
	case c.score == nil || c.scoreVersion != c.version:
		if c.score == nil {
			c.score = make([]uint8, len(c.value))
		}
		for i, v := range c.value {
			c.score[i] = c.f.rate(v, &c.now)
		}
	case c.f.Varies == WithLoad && c.scoreSeen != len(p.changes):
		p.since(c.scoreSeen, func(i int32) { c.score[i] = c.f.rate(c.value[i], &c.now) })
	}
	c.scoreVersion, c.scoreSeen = c.version, len(p.changes)
	return c.score
}
