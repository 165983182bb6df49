package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"yunhe.dev/yunhe/internal/core"
)

// Tenant is a node of the tree of tenants. Any may have work; the work of one
// with others below it competes with them like a child of weight 1.
type Tenant struct {
	Name   string
	Parent string // empty: below the root
	Weight int64  // of its share among its siblings; 0 means 1
	// Guaranteed is what it can always have: its works go before those of
	// siblings beyond their guarantee, and may be given room by ending theirs.
	// A tenant is guaranteed at least what those below it are.
	Guaranteed Amounts
	// Borrowable is how much beyond Guaranteed it may use; nil, or a resource
	// that is not named: no limit.
	Borrowable Amounts
	// Limit is what it and those below it never exceed.
	Limit Amounts
	// Deadlines orders its works by deadline, within a priority.
	Deadlines bool
}

const maxDepth = 32

func checkTenants(k *core.Check, ts []Tenant) {
	at := map[string]int{}
	for i := range ts {
		t, path := &ts[i], fmt.Sprintf("tenants[%d]", i)
		if t.Name == "" {
			k.Add(path+".name", "is required")
		} else if first, ok := at[t.Name]; ok {
			k.Add(path+".name", "%q is named twice, first in tenants[%d]", t.Name, first)
		} else {
			at[t.Name] = i
		}
		k.Range(path+".weight", t.Weight, 0, MaxWeight)
		checkAmounts(k, path+".guaranteed", t.Guaranteed, MaxAmount)
		checkAmounts(k, path+".borrowable", t.Borrowable, MaxAmount)
		checkAmounts(k, path+".limit", t.Limit, MaxAmount)
		for _, r := range sorted(t.Limit) {
			if g := t.Guaranteed[r]; g > t.Limit[r] {
				k.Add(path+".guaranteed."+r, "must be at most the limit (%d), got %d", t.Limit[r], g)
			}
		}
	}
	sums := map[string]Amounts{}
	for i := range ts {
		t, path := &ts[i], fmt.Sprintf("tenants[%d]", i)
		if t.Parent == "" {
			continue
		}
		if _, ok := at[t.Parent]; !ok {
			k.Add(path+".parent", "there is no tenant %q", t.Parent)
			continue
		}
		depth := 1
		for p := t.Parent; p != "" && depth <= maxDepth; depth++ {
			if p == t.Name {
				k.Add(path+".parent", "%q is below itself", t.Name)
				break
			}
			j, ok := at[p]
			if !ok {
				break
			}
			p = ts[j].Parent
		}
		if depth > maxDepth {
			k.Add(path+".parent", "must be at most %d tenants deep", maxDepth)
		}
		if sums[t.Parent] == nil {
			sums[t.Parent] = Amounts{}
		}
		for r, n := range t.Guaranteed {
			sums[t.Parent][r] += n
		}
	}
	for i := range ts {
		t, path := &ts[i], fmt.Sprintf("tenants[%d]", i)
		sum := sums[t.Name]
		for _, r := range sorted(sum) {
			if g, ok := t.Guaranteed[r]; ok && sum[r] > g {
				k.Add(path+".guaranteed."+r, "must be at least what those below it are guaranteed together (%d), got %d", sum[r], g)
			} else if l, limited := t.Limit[r]; limited && sum[r] > l {
				k.Add(path+".limit."+r, "must be at least what those below it are guaranteed together (%d), got %d", sum[r], l)
			}
		}
	}
}

// node is a tenant at work. Tenants with others below them have a leaf of the
// same name for their own works.
type node struct {
	name       string
	parent     *node
	children   []*node
	weight     uint64
	guaranteed []int64
	limit      []int64
	deadlines  bool
	made       bool // not named by the configuration

	used  []int64
	works uint64  // of a leaf: that run
	hist  []fixed // of a leaf: decayed mean of what was used
	at    int64   // when hist was computed

	// In a round, the children (or, of a leaf, the buckets) that have something
	// to try, in order; and what its place among its siblings depends on.
	ready    []*node
	buckets  []*bucket // heap
	byKey    map[bucketKey]*bucket
	pos      int  // in the parent's ready, -1: nothing to try
	mixed    bool // buckets is not in order
	head     *entry
	entitled bool
	class    int64
	share    ratio
	change   int64 // when the order of its buckets changes by time

	deep   bool // a child has children: children are compared by level
	parted bool // what follows is computed
	parts

	starts [rateWindow]int64 // when its last works started
	count  int64             // how many did
}

// rateWindow is how many starts the rate of a tenant is estimated from.
const rateWindow = 32

func (n *node) leaf() bool { return n.byKey != nil }

// grow makes room for resources, here and below.
func (n *node) grow(to int) {
	for len(n.used) < to {
		n.used = append(n.used, 0)
		n.of = append(n.of, 0)
		n.unit = append(n.unit, 0)
		n.guaranteed = append(n.guaranteed, 0)
		n.limit = append(n.limit, maxHeld)
		if n.leaf() {
			n.hist = append(n.hist, fixed{})
		}
	}
	for _, c := range n.children {
		c.grow(to)
	}
}

// child makes an inner node below n, bear a leaf.
func (n *node) child(name string) *node {
	return n.add(&node{name: name, parent: n, weight: 1, pos: -1})
}

func (n *node) bear(name string) *node {
	return n.add(&node{name: name, parent: n, weight: 1, pos: -1, byKey: map[bucketKey]*bucket{}, change: Never})
}

func (n *node) add(c *node) *node {
	c.grow(len(n.used))
	c.parted = n.parent != nil || n.deep
	n.children = append(n.children, c)
	return c
}

// deepen says of n, and of all below it, by what they are compared.
func (n *node) deepen() {
	for _, c := range n.children {
		n.deep = n.deep || !c.leaf()
	}
	for _, c := range n.children {
		c.parted = n.parent != nil || n.deep
		c.deepen()
	}
}

// leaf is where the works of a tenant wait.
func (q *Queue) leaf(tenant string) *node {
	if n := q.leaves[tenant]; n != nil {
		return n
	}
	n := q.root.bear(tenant)
	n.made = true
	n.at = q.now
	q.leaves[tenant] = n
	return n
}

// plant builds the tree and moves everything into it.
func (q *Queue) plant() {
	old := q.leaves
	q.parked, q.passing = nil, nil
	for _, t := range q.cfg.Tenants { // so that vectors have their full length at once
		for _, a := range []Amounts{t.Guaranteed, t.Borrowable, t.Limit} {
			for _, name := range sorted(a) {
				q.resource(name)
			}
		}
	}
	q.root = &node{weight: 1, pos: -1}
	q.root.grow(len(q.names))
	q.leaves = map[string]*node{}
	inner := map[string]bool{}
	byName := map[string]*Tenant{}
	for i := range q.cfg.Tenants {
		t := &q.cfg.Tenants[i]
		byName[t.Name] = t
		inner[t.Parent] = true
	}
	nodes := map[string]*node{"": q.root}
	var make func(t *Tenant) *node
	make = func(t *Tenant) *node {
		if n := nodes[t.Name]; n != nil {
			return n
		}
		parent := q.root
		if t.Parent != "" {
			parent = make(byName[t.Parent])
		}
		var n *node
		if inner[t.Name] {
			n = parent.child(t.Name)
			own := n.bear(t.Name)
			own.deadlines = t.Deadlines
			q.leaves[t.Name] = own
		} else {
			n = parent.bear(t.Name)
			n.deadlines = t.Deadlines
			q.leaves[t.Name] = n
		}
		n.weight = uint64(max(t.Weight, 1))
		for name, v := range t.Guaranteed {
			n.guaranteed[q.index[name]] = v
		}
		for name, v := range t.Limit {
			n.limit[q.index[name]] = v
		}
		nodes[t.Name] = n
		return n
	}
	for i := range q.cfg.Tenants {
		make(&q.cfg.Tenants[i])
	}
	q.root.deepen()
	q.root.promise()
	for name, n := range nodes {
		if t := byName[name]; t != nil {
			for r, v := range t.Borrowable {
				i := q.index[r]
				n.limit[i] = min(n.limit[i], n.guaranteed[i]+v)
			}
		}
	}
	q.move(old)
}

// promise raises guarantees to what is guaranteed below.
func (n *node) promise() {
	sum := make([]int64, len(n.used))
	for _, c := range n.children {
		c.promise()
		for r, v := range c.guaranteed {
			sum[r] += v
		}
	}
	for r := range sum {
		n.guaranteed[r] = max(n.guaranteed[r], sum[r])
	}
}

// move takes over what the old tree held.
func (q *Queue) move(old map[string]*node) {
	for _, name := range slices.Sorted(maps.Keys(old)) {
		from := old[name]
		if from.made && q.leaves[name] == nil && len(from.byKey) == 0 && !from.busy() {
			continue
		}
		to := q.leaf(name)
		to.starts, to.count, to.at = from.starts, from.count, q.now
		to.works += from.works
		for r := range from.used {
			to.hist[r] = to.hist[r].add(from.hist[r])
			for n := to; n != nil; n = n.parent {
				n.used[r] += from.used[r]
			}
		}
	}
	for _, e := range q.works {
		e.shape.buckets = nil
		e.leaf = q.leaf(e.work.Tenant)
		q.expect(e)
		e.bucket = nil
	}
	// Buckets depend on the order, so all works find theirs anew, in an order
	// that is cheap for the lists.
	var wait []*entry
	for _, e := range q.works {
		if e.state == waiting {
			wait = append(wait, e)
		}
	}
	slices.SortFunc(wait, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.work.Arrival, b.work.Arrival), cmp.Compare(a.work.ID, b.work.ID))
	})
	for _, e := range wait {
		q.wait(e)
	}
	q.stale = true
}

func (n *node) busy() bool {
	for r := range n.used {
		if n.used[r] != 0 || n.hist[r].hi != 0 {
			return true
		}
	}
	return false
}

// age brings the history of n up to now.
func (q *Queue) age(n *node) {
	dt := q.now - n.at
	if q.cfg.HalfLife == 0 || dt <= 0 {
		return
	}
	f := decay(dt, q.cfg.HalfLife)
	n.at = q.now
	for r := range n.hist {
		if u := uint64(n.used[r]); u != 0 || n.hist[r] != (fixed{}) {
			n.hist[r] = n.hist[r].scale(f).add(fixed{hi: u}.scale(one - f))
		}
	}
}

// charge adds to what a tenant holds, and to all above it.
func (q *Queue) charge(leaf *node, ask []term, members int64) {
	q.age(leaf)
	for n := leaf; n != nil; n = n.parent {
		for _, t := range ask {
			n.used[t.r] += t.n * members
		}
	}
}

// above is the tenant of the path of n that a start of members would put above
// its limit, and the resource; nil: none.
func (n *node) above(ask []term, members int64) (*node, int) {
	for ; n != nil; n = n.parent {
		for _, t := range ask {
			if t.n*members > n.limit[t.r]-n.used[t.r] {
				return n, t.r
			}
		}
	}
	return nil, 0
}

// most is how many members, at most up to, the limits above n let start.
func (n *node) most(ask []term, up int64) int64 {
	for ; n != nil; n = n.parent {
		for _, t := range ask {
			up = min(up, max(0, n.limit[t.r]-n.used[t.r])/t.n)
		}
	}
	return up
}

// has says whether m is n, or below it.
func (n *node) has(m *node) bool {
	for ; m != nil; m = m.parent {
		if m == n {
			return true
		}
	}
	return false
}

// within says whether n, with so much more, stays within its guarantee: of
// each resource that is guaranteed to it and asked for, and at least one.
func (n *node) within(ask []term, members int64) bool {
	any := false
	for _, t := range ask {
		if g := n.guaranteed[t.r]; g > 0 {
			if n.used[t.r]+t.n*members > g {
				return false
			}
			any = true
		}
	}
	return any
}

// Usage is what a tenant and those below it hold, and may hold.
type Usage struct {
	Name       string
	Parent     string
	Used       Amounts
	Guaranteed Amounts
	Limit      Amounts // with what may be borrowed; resources without a limit are left out
	// ShareMillionths is the weighted dominant share by which it is compared with
	// its siblings, with past usage.
	ShareMillionths int64
	Waiting         int // works of the tenant itself
}

// Usage lists all tenants, parents before those below them.
func (q *Queue) Usage(now int64) []Usage {
	q.now = max(q.now, now)
	q.weigh(q.root)
	waits := map[*node]int{}
	for _, e := range q.works {
		if e.state != running {
			waits[e.leaf]++
		}
	}
	var out []Usage
	var walk func(n *node)
	walk = func(n *node) {
		own := n.parent != nil && n.name == n.parent.name && n.parent != q.root
		if n != q.root && !own {
			u := Usage{Name: n.name, Parent: n.parent.name, Used: Amounts{}, Guaranteed: Amounts{}, Limit: Amounts{}}
			for r, name := range q.names {
				if n.used[r] != 0 {
					u.Used[name] = n.used[r]
				}
				if n.guaranteed[r] != 0 {
					u.Guaranteed[name] = n.guaranteed[r]
				}
				if n.limit[r] != maxHeld {
					u.Limit[name] = n.limit[r]
				}
			}
			u.ShareMillionths = n.share.millionths()
			u.Waiting = waits[n]
			for _, c := range n.children {
				if c.name == n.name {
					u.Waiting += waits[c]
				}
			}
			out = append(out, u)
		}
		children := slices.Clone(n.children)
		slices.SortFunc(children, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
		for _, c := range children {
			walk(c)
		}
	}
	walk(q.root)
	return out
}
