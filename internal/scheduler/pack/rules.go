package pack

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// rules is what spreading needs to know: the values of labels, and where the
// tasks of each group are.
type rules struct {
	labels map[string]*label
	groups map[string]*group
	// aside are nodes that have as many tasks of a group as a rule for single
	// nodes allows. They are out of the index until somebody else asks.
	aside   []int32
	asideOf *group
	most    int32
}

// label is what the nodes say under one label.
type label struct {
	name   string
	values map[string]int32
	of     []int32 // by kind; -1: it does not have it
	nodes  []int32 // by value: how many are not drained
}

// group is where its tasks are.
type group struct {
	name   string
	nodes  map[int32]int32
	counts map[*label][]int32 // by value
}

// rule is one of an ask; at is where its label is among those of the ask, -1:
// each node by itself.
type rule struct {
	Spread
	at int
}

func labelsOf(m map[string]string) string {
	s := ""
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s += " " + strconv.Quote(k) + strconv.Quote(m[k])
	}
	return s
}

func (c *Cluster) label(name string) *label {
	l := c.labels[name]
	if l != nil {
		return l
	}
	l = &label{name: name, values: map[string]int32{}, of: make([]int32, len(c.kinds))}
	for k := range c.kinds {
		l.of[k] = -1
		if text, ok := c.kinds[k].labels[name]; ok {
			v, known := l.values[text]
			if !known {
				v = int32(len(l.nodes))
				l.values[text] = v
				l.nodes = append(l.nodes, 0)
			}
			l.of[k] = v
		}
	}
	for i, k := range c.kindOf {
		if v := l.of[k]; v >= 0 && !c.drained[i] {
			l.nodes[v]++
		}
	}
	if c.labels == nil {
		c.labels = map[string]*label{}
	}
	c.labels[name] = l
	return l
}

// live counts a node among those that take tasks, or not.
func (c *Cluster) live(node int32, yes bool) {
	for _, l := range c.labels {
		if v := l.of[c.kindOf[node]]; v >= 0 && yes {
			l.nodes[v]++
		} else if v >= 0 {
			l.nodes[v]--
		}
	}
}

// group is the one of that name; it is kept while it has tasks.
func (c *Cluster) group(name string) *group {
	if g := c.groups[name]; g != nil {
		return g
	}
	return &group{name: name, nodes: map[int32]int32{}, counts: map[*label][]int32{}}
}

// by has the tasks of a group by the values of a label.
func (c *Cluster) by(g *group, l *label) []int32 {
	n, ok := g.counts[l]
	if !ok {
		n = make([]int32, len(l.nodes))
		for node, k := range g.nodes {
			if v := l.of[c.kindOf[node]]; v >= 0 {
				n[v] += k
			}
		}
		g.counts[l] = n
	}
	return n
}

// count notes that a group has one task more, or fewer, on a node.
func (c *Cluster) count(g *group, node, n int32) {
	if len(g.nodes) == 0 {
		if c.groups == nil {
			c.groups = map[string]*group{}
		}
		c.groups[g.name] = g
	}
	k := g.nodes[node] + n
	if g.nodes[node] = k; k == 0 {
		delete(g.nodes, node)
	}
	if len(g.nodes) == 0 {
		delete(c.groups, g.name)
	}
	for l, counts := range g.counts {
		if v := l.of[c.kindOf[node]]; v >= 0 {
			counts[v] += n
		}
	}
	if n > 0 && c.asideOf == g && k >= c.most && c.at[node] >= 0 {
		c.leave(node)
		c.aside = append(c.aside, node)
	}
}

// asideFor takes the nodes out of the index that an ask may not use because
// they have too many tasks of its group, and puts back others.
func (c *Cluster) asideFor(a *Ask) {
	if a.task.Group != "" {
		a.group = c.group(a.task.Group)
	}
	var g *group
	most := int32(0)
	for i := range a.rules {
		if r := &a.rules[i]; r.at < 0 && !(r.Soft && a.strict) && (g == nil || int32(r.Most) < most) {
			g, most = a.group, int32(r.Most)
		}
	}
	if g == c.asideOf && most == c.most {
		return
	}
	c.restore()
	if c.asideOf, c.most = g, most; g == nil {
		return
	}
	for _, node := range slices.Sorted(maps.Keys(g.nodes)) {
		if g.nodes[node] >= most && c.at[node] >= 0 {
			c.leave(node)
			c.aside = append(c.aside, node)
		}
	}
}

func (c *Cluster) restore() {
	for _, node := range c.aside {
		c.join(node)
	}
	c.aside, c.asideOf, c.most = c.aside[:0], nil, 0
}

// domains tells apart the kinds of nodes for a row: one domain for each
// combination of values of the labels that the ask is spread over.
func (c *Cluster) domains(r *row, a *Ask) {
	usable := c.usable(&a.shape)
	r.kinds = make([]int32, len(c.kinds))
	r.usable = make([][]bool, len(a.over))
	for i, l := range a.over {
		r.usable[i] = make([]bool, len(l.nodes))
	}
	known := map[string]int32{}
	var name []byte
	for k := range c.kinds {
		r.kinds[k] = -1
		x := &c.kinds[k]
		if !usable[x.class] || !selects(a.task.Select, x.labels) {
			continue
		}
		values := make([]int32, len(a.over))
		name = name[:0]
		for i, l := range a.over {
			values[i] = l.of[k]
			name = append(strconv.AppendInt(name, int64(values[i]), 10), ' ')
			if values[i] >= 0 {
				r.usable[i][values[i]] = true
			}
		}
		d, ok := known[string(name)]
		if !ok {
			d = int32(len(r.heaps))
			known[string(name)] = d
			r.heaps = append(r.heaps, nil)
			r.values = append(r.values, values)
		}
		r.kinds[k] = d
	}
}

func selects(want, have map[string]string) bool {
	for k, v := range want {
		if x, ok := have[k]; !ok || x != v {
			return false
		}
	}
	return true
}

// allowed says which domains the rules of an ask allow now.
func (c *Cluster) allowed(a *Ask, within *label, value int32) func(domain int) bool {
	type bound struct {
		at     int
		counts []int32
		limit  int32
	}
	var bounds [maxRules]bound
	n := 0
	for i := range a.rules {
		r := &a.rules[i]
		if r.at < 0 || r.Soft && a.strict {
			continue
		}
		l := a.over[r.at]
		b := bound{r.at, c.by(a.group, l), maxAmount}
		if r.Most > 0 {
			b.limit = int32(r.Most)
		}
		if r.Skew > 0 {
			least := int32(maxAmount)
			for v, ok := range a.row.usable[r.at] {
				if ok && l.nodes[v] > 0 && b.counts[v] < least {
					least = b.counts[v]
				}
			}
			if int64(least)+int64(r.Skew) < int64(b.limit) {
				b.limit = least + int32(r.Skew)
			}
		}
		bounds[n] = b
		n++
	}
	return func(d int) bool {
		values := a.row.values[d]
		if within != nil && values[0] != value { // within is always told apart first
			return false
		}
		for i := range bounds[:n] {
			b := &bounds[i]
			if v := values[b.at]; v < 0 || b.counts[v] >= b.limit {
				return false
			}
		}
		return true
	}
}

// order is the values of the label that a gang is within, best first for its
// first task, without those that have no room for that.
func (c *Cluster) order(g *Gang) []int32 {
	a := g.asks[0]
	c.asideFor(a)
	a.row = c.row(a)
	best := map[int32]*entry{}
	for d, h := range a.row.heaps {
		if v := a.row.values[d][0]; len(h) > 0 && v >= 0 && (best[v] == nil || h[0].before(best[v])) {
			best[v] = &h[0]
		}
	}
	return slices.SortedFunc(maps.Keys(best), func(x, y int32) int {
		if n := cmp.Compare(best[x].cost, best[y].cost); n != 0 {
			return n
		}
		return cmp.Compare(best[x].first, best[y].first)
	})
}

func median(n []int) int {
	slices.Sort(n)
	return n[len(n)/2]
}

// same reports whether two tasks ask for the same thing.
func same(a, b *Task) bool {
	return a.CPU == b.CPU && a.Memory == b.Memory && a.Cards == b.Cards && a.Share == b.Share && a.Group == b.Group &&
		slices.Equal(a.Models, b.Models) && maps.Equal(a.Select, b.Select) && slices.Equal(a.Spread, b.Spread) && slices.Equal(a.Prefer, b.Prefer)
}
