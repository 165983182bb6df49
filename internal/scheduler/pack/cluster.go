package pack

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Cluster is a set of nodes that fills up. It is not safe for concurrent use.
type Cluster struct {
	nodes   []Node
	rooms   []room
	kindOf  []int32 // by node
	kinds   []kind
	models  []string // of cards, by class
	policy  rater
	dice    *rand.Rand // of the random policy; nil: another one
	ilks    bool       // the policy looks at who came
	drained []bool
	whole   int64
	left    int64
	// released counts what has made room.
	released int64

	index
	rules

	spare []int // for the cards of placements to come
	undo  []step
}

// kind is what a set of nodes have in common for good.
type kind struct {
	cpu, memory int32 // of an empty node
	class       int16 // of its cards
	labels      map[string]string
}

// step is what a decision has changed, to be taken back.
type step struct {
	node  int32
	room  room
	group *group
}

// rater is a policy at work on one cluster. It rates placing a task on a sorted
// room in which it fits, lower being better, and says which cards are as good
// as each other for a part.
type rater interface {
	rate(r *room, s *need, k *kind) (cost float64, at cards)
}

// Placement is where a task went.
type Placement struct {
	Node  int
	Cards []int
}

// Ask is a task made ready to be placed in one cluster, again and again.
type Ask struct {
	task   Task
	shape  shape
	row    *row
	group  *group
	over   []*label // of the rules that have one
	rules  []rule
	strict bool // without the soft rules
	soft   bool // it has some
}

// New makes an empty cluster. Likely are tasks like those that will come, such
// as those of last week; the policies that look ahead use them.
func New(nodes []Node, policy Policy, likely []Task, seed uint64) (*Cluster, error) {
	if err := Check(nodes, likely); err != nil {
		return nil, err
	}
	c := &Cluster{nodes: nodes, drained: make([]bool, len(nodes)), ilks: policy == Clustering}
	class, kinds := map[string]int16{}, map[string]int32{}
	for i := range nodes {
		n := &nodes[i]
		k, ok := class[n.Model]
		if !ok {
			if len(c.models) > math.MaxInt16 {
				return nil, fault.New(fault.Invalid, "there are more than %d models of cards", math.MaxInt16)
			}
			k = int16(len(c.models))
			class[n.Model] = k
			c.models = append(c.models, n.Model)
		}
		name := strconv.Itoa(int(k)) + " " + strconv.FormatInt(n.CPU, 10) + " " + strconv.FormatInt(n.Memory, 10) + labelsOf(n.Labels)
		at, ok := kinds[name]
		if !ok {
			at = int32(len(c.kinds))
			kinds[name] = at
			c.kinds = append(c.kinds, kind{int32(n.CPU), int32(n.Memory), k, n.Labels})
		}
		c.kindOf = append(c.kindOf, at)
		r := room{cpu: int32(n.CPU), memory: int32(n.Memory), class: k, cards: int16(n.Cards)}
		for j := range n.Cards {
			r.free[j] = Whole
		}
		c.rooms = append(c.rooms, r)
		c.whole += int64(n.Cards) * Whole
	}
	c.left = c.whole
	var err error
	if c.policy, err = c.rater(policy, likely, rand.New(rand.NewPCG(seed, 0x7061636b))); err != nil {
		return nil, err
	}
	c.index.init(len(nodes))
	for i := range nodes {
		c.join(int32(i))
	}
	return c, nil
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

// Prepare checks a task and makes it ready to be placed.
func (c *Cluster) Prepare(t Task) (*Ask, error) {
	var check core.Check
	t.check(&check, "task")
	for i, n := range t.Prefer {
		if n < 0 || n >= len(c.nodes) {
			check.Add("task.prefer["+strconv.Itoa(i)+"]", "must be a node from 0 to %d, got %d", len(c.nodes)-1, n)
		}
	}
	if err := check.Err(); err != nil {
		return nil, err
	}
	a := c.ask(&t, nil)
	return &a, nil
}

// ask makes a task ready; the places of the label within are told apart.
func (c *Cluster) ask(t *Task, within *label) Ask {
	a := Ask{task: *t, shape: shapeOf(t)}
	if t.Group == "" && within == nil {
		return a
	}
	if within != nil {
		a.over = append(a.over, within)
	}
	for _, r := range t.Spread {
		x := rule{Spread: r, at: -1}
		if r.Label != "" {
			l := c.label(r.Label)
			if x.at = slices.Index(a.over, l); x.at < 0 {
				x.at = len(a.over)
				a.over = append(a.over, l)
			}
		}
		a.soft = a.soft || r.Soft
		a.rules = append(a.rules, x)
	}
	for _, l := range a.over {
		a.shape.over += strconv.Quote(l.name)
	}
	return a
}

// Place puts a task on the node the policy prefers; false: it fits nowhere.
// The task must be within the limits of Prepare.
func (c *Cluster) Place(t Task) (Placement, bool) {
	a := c.ask(&t, nil)
	return c.Put(&a)
}

// Put is Place of a task that was made ready by this cluster.
func (c *Cluster) Put(a *Ask) (Placement, bool) {
	c.undo = c.undo[:0]
	return c.put(a, nil, 0)
}

// put places an ask; if within is not nil, where that label has a value.
func (c *Cluster) put(a *Ask, within *label, value int32) (Placement, bool) {
	p, ok := c.try(a, within, value)
	if !ok && a.soft {
		a.strict = true
		p, ok = c.try(a, within, value)
		a.strict = false
	}
	return p, ok
}

func (c *Cluster) try(a *Ask, within *label, value int32) (Placement, bool) {
	c.asideFor(a)
	if a.row == nil || a.row.gone {
		a.row = c.row(a)
	} else {
		c.refresh(a.row)
	}
	var allowed func(int) bool
	if len(a.over) > 0 {
		allowed = c.allowed(a, within, value)
	}
	if len(a.task.Prefer) > 0 {
		if node, at, ok := c.preferred(a, allowed); ok {
			return c.take(a, node, at), true
		}
	}
	node, at := a.row.best(c, allowed)
	if node < 0 {
		return Placement{}, false
	}
	return c.take(a, node, at), true
}

// preferred is the best of the nodes that the task prefers.
func (c *Cluster) preferred(a *Ask, allowed func(int) bool) (node int32, at cards, ok bool) {
	best := math.Inf(1)
	for _, n := range a.task.Prefer {
		i := int32(n)
		if c.at[i] < 0 {
			continue // drained, or set aside
		}
		x := &a.row.cells[c.at[i]]
		if math.IsInf(x.cost, 1) || allowed != nil && !allowed(int(x.in)) {
			continue
		}
		if x.cost < best || x.cost == best && i < node {
			best, node, at, ok = x.cost, i, x.at, true
		}
	}
	return node, at, ok
}

// take gives the task its place; at are cards of the sorted room.
func (c *Cluster) take(a *Ask, node int32, at cards) Placement {
	r, s := &c.rooms[node], &a.shape.need
	c.undo = append(c.undo, step{node, *r, a.group})
	p := Placement{Node: int(node)}
	if s.cards > 0 {
		p.Cards = c.slots(int(s.cards))
		if s.partial() {
			p.Cards[0] = c.choose(r, s, &c.states[c.at[node]].room, at)
		} else {
			n := 0
			for i := 0; n < len(p.Cards); i++ {
				if r.free[i] == Whole {
					p.Cards[n] = i
					n++
				}
			}
		}
		r.take(s, p.Cards[0])
	} else {
		r.take(s, 0)
	}
	c.left -= int64(s.demand())
	c.move(node)
	if a.group != nil {
		c.count(a.group, node, 1)
	}
	return p
}

// choose is the first card in the node's own order that has as much free as one
// of those that are as good as each other; the random policy casts the dice.
func (c *Cluster) choose(r *room, s *need, sorted *room, at cards) int {
	n, card := 0, -1
	for i := range int(r.cards) {
		if r.free[i] < s.share {
			continue
		}
		for k := range int(r.cards) {
			if at&(1<<k) != 0 && sorted.free[k] == r.free[i] {
				if c.dice == nil {
					return i
				}
				if n++; c.dice.IntN(n) == 0 {
					card = i
				}
				break
			}
		}
	}
	return card
}

// slots are room for the cards of a placement, cut from pieces small enough
// that one long-lived placement keeps little alive.
func (c *Cluster) slots(n int) []int {
	if len(c.spare) < n {
		c.spare = make([]int, 4*MaxCards)
	}
	out := c.spare[:n:n]
	c.spare = c.spare[n:]
	return out
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
		r.ilks = 0
	}
	c.left += t.Demand()
	c.released++
	c.move(int32(p.Node))
	if t.Group != "" {
		c.restore()
		c.count(c.group(t.Group), int32(p.Node), -1)
	}
}

// Drain keeps new tasks off a node, or lets them come again; those that are
// there stay.
func (c *Cluster) Drain(node int, drain bool) {
	if c.drained[node] == drain {
		return
	}
	c.restore()
	c.drained[node] = drain
	if drain {
		c.leave(int32(node))
	} else {
		c.released++
		c.join(int32(node))
	}
	c.live(int32(node), !drain)
}

// PlaceGang places all tasks or none: false leaves the cluster as it was. If
// within is a label, all go where it has one value; the values are tried in the
// order in which the policy likes the first task there. Each task goes where it
// is best for it alone, so that tasks of different sizes can be refused although
// some other arrangement would hold them.
func (c *Cluster) PlaceGang(tasks []Task, within string) ([]Placement, bool) {
	g := c.gang(tasks, within)
	return c.PutGang(g)
}

// Gang is tasks made ready to be placed together in one cluster.
type Gang struct {
	asks   []*Ask
	within *label
	// failed is what the cluster had released when the gang was refused last:
	// more tasks make no room. That is so where the tasks are alike and have no
	// rules; else what others take can move the first tasks to better places, and
	// what others of a group get can meet a skew.
	failed int64
	alike  bool
}

// PrepareGang checks tasks and makes them ready to be placed together.
func (c *Cluster) PrepareGang(tasks []Task, within string) (*Gang, error) {
	if len(tasks) == 0 {
		return nil, fault.New(fault.Invalid, "a gang needs a task")
	}
	for _, t := range tasks {
		if _, err := c.Prepare(t); err != nil {
			return nil, err
		}
	}
	return c.gang(tasks, within), nil
}

func (c *Cluster) gang(tasks []Task, within string) *Gang {
	g := &Gang{failed: -1, alike: len(tasks) > 0 && len(tasks[0].Spread) == 0}
	if within != "" {
		g.within = c.label(within)
	}
	for i := range tasks {
		if i > 0 && same(&tasks[i], &tasks[i-1]) {
			g.asks = append(g.asks, g.asks[i-1])
			continue
		}
		g.alike = g.alike && i == 0
		a := c.ask(&tasks[i], g.within)
		g.asks = append(g.asks, &a)
	}
	return g
}

// PutGang is PlaceGang of a gang that was made ready by this cluster.
func (c *Cluster) PutGang(g *Gang) ([]Placement, bool) {
	if len(g.asks) == 0 || g.failed == c.released {
		return nil, false
	}
	c.undo = c.undo[:0]
	if g.within == nil {
		if out, ok := c.putAll(g, 0); ok {
			return out, true
		}
	} else {
		for _, v := range c.order(g) {
			if out, ok := c.putAll(g, v); ok {
				return out, true
			}
		}
	}
	if g.alike {
		g.failed = c.released
	}
	return nil, false
}

func (c *Cluster) putAll(g *Gang, value int32) ([]Placement, bool) {
	out := make([]Placement, 0, len(g.asks))
	for _, a := range g.asks {
		p, ok := c.put(a, g.within, value)
		if !ok {
			c.rollback()
			return nil, false
		}
		out = append(out, p)
	}
	return out, true
}

// rollback takes back what was placed since undo was emptied.
func (c *Cluster) rollback() {
	if len(c.undo) > 0 {
		c.restore()
	}
	for i := len(c.undo) - 1; i >= 0; i-- {
		u := &c.undo[i]
		c.left += int64(u.room.left() - c.rooms[u.node].left())
		c.rooms[u.node] = u.room
		if i == 0 || !slices.ContainsFunc(c.undo[:i], func(x step) bool { return x.node == u.node }) {
			c.move(u.node)
		}
		if u.group != nil {
			c.count(u.group, u.node, -1)
		}
	}
	c.undo = c.undo[:0]
}
