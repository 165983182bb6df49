package pack

import (
	"math"
	"math/rand/v2"
	"strings"
)

// Cluster is a set of nodes that fills up.
type Cluster struct {
	nodes  []Node
	rooms  []room
	policy rater
	models []string       // of cards, by class
	seen   map[shape]*row // what was asked for before
	// changed has the nodes in the order in which they changed; a row has read
	// it up to some point.
	changed []int32
	offset  int // how many were dropped from its front
	whole   int64
	left    int64
}

// row has the ratings of all nodes for one shape.
type row struct {
	shape  shape
	usable []bool // by class of cards
	rates  []rate
	read   int // how far in changed
	// tree finds the lowest rate: node i + size is the leaf of node i.
	tree []int32
	size int
}

// rate is what a policy says of a placement; lower is better.
type rate struct {
	cost float64 // +Inf: does not fit
	card int8
}

// rater is a policy at work on one cluster.
type rater interface {
	rate(r *room, s *shape) rate
}

// Placement is where a task went.
type Placement struct {
	Node  int
	Cards []int
}

// New makes an empty cluster. Likely are tasks like those that will come, such
// as those of last week; the policies that look ahead use them.
func New(nodes []Node, policy Policy, likely []Task, seed uint64) (*Cluster, error) {
	if err := Check(nodes, likely); err != nil {
		return nil, err
	}
	c := &Cluster{nodes: nodes, seen: map[shape]*row{}}
	class := map[string]int16{}
	for i := range nodes {
		n := &nodes[i]
		k, ok := class[n.Model]
		if !ok {
			k = int16(len(c.models))
			class[n.Model] = k
			c.models = append(c.models, n.Model)
		}
		r := room{cpu: int32(n.CPU), memory: int32(n.Memory), class: k, cards: int16(n.Cards)}
		for j := range n.Cards {
			r.free[j] = Whole
		}
		c.rooms = append(c.rooms, r)
		c.whole += int64(n.Cards) * Whole
	}
	c.left = c.whole
	var err error
	c.policy, err = c.rater(policy, likely, rand.New(rand.NewPCG(seed, 0x7061636b)))
	return c, err
}

// Whole and Left are what all cards have, and what is free of it, in
// thousandths of a card.
func (c *Cluster) Whole() int64 { return c.whole }
func (c *Cluster) Left() int64  { return c.left }

func (c *Cluster) usable(s *shape) []bool {
	out := make([]bool, len(c.models))
	for k, m := range c.models {
		out[k] = s.cards == 0 || s.models == "" || strings.Contains(s.models, "|"+m+"|")
	}
	return out
}

// Place puts a task on the node the policy prefers; false: it fits nowhere.
// The task must be within the limits of Check.
func (c *Cluster) Place(t Task) (Placement, bool) {
	s := shapeOf(t)
	r := c.row(s)
	best := int(r.tree[1])
	if math.IsInf(r.rates[best].cost, 1) {
		return Placement{}, false
	}
	room := &c.rooms[best]
	before := room.free
	room.take(&s, int(r.rates[best].card))
	p := Placement{Node: best}
	for i := range int(room.cards) {
		if room.free[i] != before[i] {
			p.Cards = append(p.Cards, i)
		}
	}
	c.left -= int64(s.demand())
	c.change(best)
	return p, true
}

// Release gives back what a task had.
func (c *Cluster) Release(t Task, p Placement) {
	r := &c.rooms[p.Node]
	r.cpu += int32(t.CPU)
	r.memory += int32(t.Memory)
	for _, card := range p.Cards {
		r.free[card] += int16(t.Share)
	}
	if r.left() == int32(r.cards)*Whole {
		r.kinds = 0
	}
	c.left += t.Demand()
	c.change(p.Node)
}

// change notes that a node's ratings are old. Rows that have not been asked
// for a long time are forgotten, so that notes can be dropped.
func (c *Cluster) change(node int) {
	c.changed = append(c.changed, int32(node))
	if len(c.changed) < 8*len(c.nodes)+1024 {
		return
	}
	drop := len(c.changed) / 2
	for s, r := range c.seen {
		if r.read < c.offset+drop {
			delete(c.seen, s)
		}
	}
	c.changed = append(c.changed[:0], c.changed[drop:]...)
	c.offset += drop
}

// row has the ratings for a shape, up to date.
func (c *Cluster) row(s shape) *row {
	r := c.seen[s]
	if r == nil {
		r = &row{shape: s, usable: c.usable(&s), rates: make([]rate, len(c.nodes)), size: 1}
		for r.size < len(c.nodes) {
			r.size *= 2
		}
		r.tree = make([]int32, 2*r.size)
		for i := range c.rooms {
			r.rates[i] = c.rate(r, i)
		}
		for i := range r.size {
			r.tree[r.size+i] = int32(min(i, len(c.nodes)-1))
		}
		for i := r.size - 1; i > 0; i-- {
			r.tree[i] = r.better(r.tree[2*i], r.tree[2*i+1])
		}
		c.seen[s] = r
	} else {
		for _, i := range c.changed[r.read-c.offset:] {
			next := c.rate(r, int(i))
			if next == r.rates[i] {
				continue
			}
			r.rates[i] = next
			for k := (r.size + int(i)) / 2; k > 0; k /= 2 {
				r.tree[k] = r.better(r.tree[2*k], r.tree[2*k+1])
			}
		}
	}
	r.read = c.offset + len(c.changed)
	return r
}

// better is the node with the lower rate, the first among equals.
func (r *row) better(a, b int32) int32 {
	if x, y := r.rates[a].cost, r.rates[b].cost; y < x || y == x && b < a {
		return b
	}
	return a
}

func (c *Cluster) rate(r *row, node int) rate {
	room := &c.rooms[node]
	if room.memory < r.shape.memory || !r.usable[room.class] || !room.fits(&r.shape) {
		return rate{cost: math.Inf(1)}
	}
	return c.policy.rate(room, &r.shape)
}
