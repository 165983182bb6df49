package pack

import "math"

// index finds the best node for an ask without looking at all nodes, and finds
// the same one. Nodes in equal state, which every policy rates alike, are a
// class; every shape asked for has a row with the rate of each class and a heap
// of them. A placement changes two classes at most: the one its node leaves and
// the one it comes to. A row reads what has changed when it is next asked for.
//
//	node ──state──▶ class (slot): heap of its nodes, the first on top
//	                  │ changed: slots in the order in which they changed
//	shape ──▶ row: rate by slot, heap of slots by (cost, first node)
//
// Classes whose nodes have all gone keep their slot, so that their rates are
// known if the state comes again, while there are few slots; where all nodes
// differ the slots are used again at once.
type index struct {
	states  []state
	members [][]int32 // by slot: a heap of nodes
	first   []int32   // by slot: none, or the first of its nodes
	gens    []uint32  // by slot: how often it was given to a state
	noted   []int     // by slot: where in changed it stands last
	slotOf  map[state]int32
	free    []int32 // slots without nodes, some of which have nodes again
	listed  []bool  // by slot: it is in free
	at      []int32 // by node: its slot; -1: it takes no tasks now
	pos     []int32 // by node: where in the heap of its class
	changed []int32
	dropped int // how many were dropped from the front of changed
	seen    int // up to where some row has read changed
	rows    map[shape]*row
	cells   int // of all rows
	// The limits below; tests lower them.
	keep, maxCells int
}

// state is what ratings see of a node.
type state struct {
	room
	kind int32
}

const (
	none      = math.MaxInt32
	keepSlots = 1024    // slots that may stay without nodes
	keepCells = 4 << 20 // of rows; the longest unread ones go first
)

func (x *index) init(nodes int) {
	x.slotOf, x.rows = map[state]int32{}, map[shape]*row{}
	x.keep, x.maxCells = keepSlots, keepCells
	x.at, x.pos = make([]int32, nodes), make([]int32, nodes)
	for i := range x.at {
		x.at[i] = -1
	}
}

// join puts a node into the class of its state.
func (c *Cluster) join(node int32) {
	s := state{c.rooms[node].sorted(), c.kindOf[node]}
	if !c.ilks {
		s.ilks = 0
	}
	slot, ok := c.slotOf[s]
	if !ok {
		slot = c.slot(s)
	}
	m := append(c.members[slot], node)
	c.members[slot] = m
	c.at[node] = slot
	c.rise(m, len(m)-1)
	if first := m[0]; first != c.first[slot] {
		c.first[slot] = first
		c.note(slot)
	}
}

// leave takes a node out of its class.
func (c *Cluster) leave(node int32) {
	slot, i := c.at[node], int(c.pos[node])
	m := c.members[slot]
	last := len(m) - 1
	if i != last {
		m[i] = m[last]
		c.pos[m[i]] = int32(i)
	}
	m = m[:last]
	c.members[slot], c.at[node] = m, -1
	if i != last {
		c.sink(m, i)
		c.rise(m, i)
	}
	if i > 0 {
		return
	}
	c.first[slot] = none
	if last > 0 {
		c.first[slot] = m[0]
	} else if !c.listed[slot] {
		c.listed[slot] = true
		c.free = append(c.free, slot)
	}
	c.note(slot)
}

// move brings a node whose room has changed to its new class.
func (c *Cluster) move(node int32) {
	if c.at[node] >= 0 {
		c.leave(node)
		c.join(node)
	}
}

func (x *index) rise(m []int32, i int) {
	node := m[i]
	for i > 0 {
		up := (i - 1) / 2
		if m[up] <= node {
			break
		}
		m[i] = m[up]
		x.pos[m[i]] = int32(i)
		i = up
	}
	m[i] = node
	x.pos[node] = int32(i)
}

func (x *index) sink(m []int32, i int) {
	node := m[i]
	for {
		k := 2*i + 1
		if k >= len(m) {
			break
		}
		if k+1 < len(m) && m[k+1] < m[k] {
			k++
		}
		if node <= m[k] {
			break
		}
		m[i] = m[k]
		x.pos[m[i]] = int32(i)
		i = k
	}
	m[i] = node
	x.pos[node] = int32(i)
}

// slot gives a state a slot.
func (x *index) slot(s state) int32 {
	slot := int32(-1)
	for len(x.states) >= x.keep && len(x.free) > 0 && slot < 0 {
		k := x.free[len(x.free)-1]
		x.free = x.free[:len(x.free)-1]
		if x.listed[k] = false; len(x.members[k]) == 0 {
			slot = k
		}
	}
	if slot < 0 {
		slot = int32(len(x.states))
		x.states = append(x.states, s)
		x.members = append(x.members, nil)
		x.first = append(x.first, none)
		x.gens = append(x.gens, 0)
		x.noted = append(x.noted, -1)
		x.listed = append(x.listed, false)
	} else {
		delete(x.slotOf, x.states[slot])
		x.states[slot] = s
	}
	x.gens[slot]++
	x.slotOf[s] = slot
	return slot
}

// note writes down that a class has changed, for the rows that have yet to
// read it.
func (x *index) note(slot int32) {
	if x.noted[slot] >= x.seen {
		return // nobody has read that it changed before
	}
	if len(x.changed) > 4*len(x.states)+4*x.keep {
		// A row that is so far behind looks at all classes instead.
		drop := len(x.changed) / 2
		x.changed = append(x.changed[:0], x.changed[drop:]...)
		x.dropped += drop
	}
	x.noted[slot] = x.dropped + len(x.changed)
	x.changed = append(x.changed, slot)
}

// row has the ratings of all classes for one shape.
type row struct {
	shape  shape
	kinds  []int32 // by kind: the domain it is in; -1: it cannot be used
	cells  []cell  // by slot
	heaps  [][]entry
	values [][]int32 // of each domain: the value of each label it is told apart by; -1: it has none
	usable [][]bool  // by label and value: a kind that can be used has it
	read   int       // how far in changed
	gone   bool
}

// cell is what a row knows of a slot.
type cell struct {
	cost float64 // +Inf: does not fit
	gen  uint32
	pos  int32 // in its heap; -1: not there
	in   int32 // which heap
	at   cards
}

// entry is a class with a node that the shape fits on.
type entry struct {
	cost  float64
	first int32
	slot  int32
}

func (e *entry) before(f *entry) bool {
	return e.cost < f.cost || e.cost == f.cost && e.first < f.first
}

// row has the ratings for an ask, up to date.
func (c *Cluster) row(a *Ask) *row {
	r := c.rows[a.shape]
	if r == nil {
		r = &row{shape: a.shape, read: -1}
		c.domains(r, a)
		if c.cells > c.maxCells {
			c.forget()
		}
		c.rows[a.shape] = r
	}
	c.refresh(r)
	return r
}

// forget drops the half of the rows that have not been read for longest.
func (c *Cluster) forget() {
	reads := make([]int, 0, len(c.rows))
	for _, r := range c.rows {
		reads = append(reads, r.read)
	}
	limit := median(reads)
	c.cells = 0
	for s, r := range c.rows {
		if r.read <= limit {
			r.gone = true
			delete(c.rows, s)
			continue
		}
		c.cells += len(r.cells)
	}
}

// refresh reads what has changed.
func (c *Cluster) refresh(r *row) {
	if n := len(c.states); len(r.cells) < n {
		c.cells -= len(r.cells)
		for len(r.cells) < n {
			r.cells = append(r.cells, cell{pos: -1})
		}
		c.cells += n
	}
	end := c.dropped + len(c.changed)
	switch {
	case r.read == end:
		return
	case r.read < c.dropped || end-r.read > len(c.states):
		for slot := range int32(len(c.states)) {
			c.update(r, slot)
		}
	default:
		for i := r.read; i < end; i++ {
			if slot := c.changed[i-c.dropped]; c.noted[slot] == i { // else it stands again further on
				c.update(r, slot)
			}
		}
	}
	r.read, c.seen = end, end
}

// update brings a slot of a row up to date.
func (c *Cluster) update(r *row, slot int32) {
	x, first := &r.cells[slot], c.first[slot]
	if x.gen != c.gens[slot] {
		if x.pos >= 0 {
			r.remove(x)
		}
		if first == none {
			return // rated when a node has that state
		}
		c.rate(r, x, slot)
	}
	switch {
	case first == none || x.cost > math.MaxFloat64:
		if x.pos >= 0 {
			r.remove(x)
		}
	case x.pos < 0:
		h := append(r.heaps[x.in], entry{x.cost, first, slot})
		r.heaps[x.in] = h
		r.rise(h, len(h)-1)
	default:
		h := r.heaps[x.in]
		if e := &h[x.pos]; e.first != first {
			lower := first < e.first
			e.first = first
			if lower {
				r.rise(h, int(x.pos))
			} else {
				r.sink(h, int(x.pos))
			}
		}
	}
}

func (c *Cluster) rate(r *row, x *cell, slot int32) {
	s := &c.states[slot]
	x.gen, x.in, x.cost, x.at = c.gens[slot], r.kinds[s.kind], math.Inf(1), 0
	if x.in >= 0 && s.holds(&r.shape.need) {
		x.cost, x.at = c.policy.rate(&s.room, &r.shape.need, &c.kinds[s.kind])
	}
}

// best is the node with the lowest cost among the domains that are allowed, all
// if that is nil; -1: there is none.
func (r *row) best(c *Cluster, allowed func(int) bool) (int32, cards) {
	if c.dice != nil {
		return r.any(c, allowed)
	}
	var best *entry
	for d, h := range r.heaps {
		if len(h) > 0 && (best == nil || h[0].before(best)) && (allowed == nil || allowed(d)) {
			best = &h[0]
		}
	}
	if best == nil {
		return -1, 0
	}
	return best.first, r.cells[best.slot].at
}

// any is any node, all with the same chance.
func (r *row) any(c *Cluster, allowed func(int) bool) (int32, cards) {
	n := 0
	for d, h := range r.heaps {
		if allowed == nil || allowed(d) {
			for i := range h {
				n += len(c.members[h[i].slot])
			}
		}
	}
	if n == 0 {
		return -1, 0
	}
	n = c.dice.IntN(n)
	for d, h := range r.heaps {
		if allowed == nil || allowed(d) {
			for i := range h {
				m := c.members[h[i].slot]
				if n < len(m) {
					return m[n], r.cells[h[i].slot].at
				}
				n -= len(m)
			}
		}
	}
	panic("pack: the dice fell off the table")
}

// The heaps have four children to an entry: they fill a line of the cache.

func (r *row) remove(x *cell) {
	h, i := r.heaps[x.in], int(x.pos)
	last := len(h) - 1
	x.pos = -1
	if i != last {
		h[i] = h[last]
		r.cells[h[i].slot].pos = int32(i)
	}
	h = h[:last]
	r.heaps[x.in] = h
	if i != last {
		r.sink(h, i)
		r.rise(h, i)
	}
}

func (r *row) rise(h []entry, i int) {
	e := h[i]
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		r.cells[h[i].slot].pos = int32(i)
		i = up
	}
	h[i] = e
	r.cells[e.slot].pos = int32(i)
}

func (r *row) sink(h []entry, i int) {
	e := h[i]
	for {
		k := 4*i + 1
		if k >= len(h) {
			break
		}
		for j := k + 1; j < min(4*i+5, len(h)); j++ {
			if h[j].before(&h[k]) {
				k = j
			}
		}
		if !h[k].before(&e) {
			break
		}
		h[i] = h[k]
		r.cells[h[i].slot].pos = int32(i)
		i = k
	}
	h[i] = e
	r.cells[e.slot].pos = int32(i)
}
