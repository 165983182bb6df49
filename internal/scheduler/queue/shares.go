package queue

import "math/bits"

// Shares of tenants with others below them are those of hierarchical
// dominant-resource fairness (Bhattacharya, Culler, Friedman, Ghodsi, Shenker,
// Stoica: "Hierarchical Scheduling for Diverse Datacenter Workloads", SoCC
// 2013): what the children of a tenant hold is scaled down, before it is added,
// to the share of the child that has the lowest and something to try. So what
// one child holds of something that its siblings do not want does not cost them
// theirs. Children that have nothing to try, because they want nothing or have
// been refused in this round, are never the one with the lowest share. What they
// hold is scaled down like that of others, and never up.
//
// One thing is different: a child counts with one of its works more. Children
// that take turns differ by as much, and a tenant with many of them would else
// count as one that holds nothing until the last of them has something.

// whole is all there is of a resource, in parts.
const whole = uint64(1) << 60

// mostParts bounds parts, so that two can be added: more is held than there is
// where places are gone, or past usage counts.
const mostParts = 8*whole - 1

// parts is what counts of what a tenant and those below it hold, where that
// depends on more than the tenant's own share.
type parts struct {
	of   []uint64 // by resource, of all there is
	unit []uint64 // the same, scaled so that the largest is whole
	top  uint64   // the largest
	by   uint64   // that, by weight
	// level is the same in steps that are coarser than what scaling rounds off:
	// tenants that are equal by the rules have the same.
	level uint64
	piece uint64 // the mean of works that run; of those below, the largest
}

// part is how much n of a resource is of all there is.
func (q *Queue) part(r int, n uint64) uint64 {
	total := uint64(q.all.capacity[r])
	if total == 0 {
		return 0
	}
	hi, lo := bits.Mul64(n, whole)
	if hi >= total {
		return mostParts
	}
	x, _ := bits.Div64(hi, lo, total)
	return min(x, mostParts)
}

// held is how much of a resource a leaf counts as holding, with past usage.
func (q *Queue) held(n *node, r int) uint64 {
	x := uint64(n.used[r])
	if q.cfg.HalfLife > 0 {
		x += n.hist[r].hi
	}
	return x
}

// measure computes the weighted dominant share of n.
func (q *Queue) measure(n *node) {
	if n.leaf() {
		q.measureLeaf(n)
		return
	}
	to := mostParts
	if q.cfg.Order == FairShare {
		for _, c := range n.ready {
			if !q.cfg.StrictClasses || c.class >= n.class {
				to = min(to, c.by)
			}
		}
	}
	n.mix(to)
}

func (q *Queue) measureLeaf(n *node) {
	best := ratio{num: 0, total: 1, weight: n.weight}
	for r, total := range q.all.capacity {
		if total == 0 {
			continue
		}
		x := ratio{q.held(n, r), uint64(total), n.weight}
		if x.num > 0 && x.compare(&best) > 0 {
			best = x
		}
	}
	n.share = best
	if !n.parted {
		return
	}
	n.piece = 0
	for r := range n.of {
		n.of[r] = q.part(r, q.held(n, r))
		if n.works > 0 {
			n.piece = max(n.piece, q.part(r, uint64(n.used[r]))/n.works)
		}
	}
	n.divide()
}

// mix adds up what counts of the children of n, when the lowest share by weight
// of those with something to try is low.
func (n *node) mix(low uint64) {
	clear(n.of)
	n.piece = 0
	for _, c := range n.children {
		if c.top == 0 {
			continue
		}
		n.piece = max(n.piece, c.piece)
		hi, to := bits.Mul64(low, c.weight)
		if to += c.piece; hi > 0 || to >= c.top || to < c.piece {
			for r, x := range c.of {
				n.of[r] = min(n.of[r]+x, mostParts)
			}
			continue
		}
		for r, x := range c.unit {
			hi, lo := bits.Mul64(x, to)
			n.of[r] = min(n.of[r]+(hi<<4|lo>>60), mostParts)
		}
	}
	n.divide()
	n.share = ratio{n.top, whole, n.weight}
}

// divide computes what follows from the parts of n.
func (n *node) divide() {
	n.top = 0
	for _, x := range n.of {
		n.top = max(n.top, x)
	}
	for r, x := range n.of {
		n.unit[r] = 0
		if x > 0 {
			hi, lo := bits.Mul64(x, whole)
			n.unit[r], _ = bits.Div64(hi, lo, n.top)
		}
	}
	n.by = n.top / n.weight
	n.level = (n.by + 1<<16/3) >> 16 // a third of a step more, where no share lies
}

// compare is the order of siblings by their weighted shares.
func (n *node) compare(m *node) int {
	if n.parent.deep {
		return order(n.level, m.level)
	}
	return n.share.compare(&m.share)
}

// turn measures all above n as they are when it is the turn of n.
func (q *Queue) turn(n *node) {
	for ; n.parent != q.root; n = n.parent {
		n.parent.mix(n.by)
	}
}

// apart are the tenants above n and m, or these, that have the same one above.
func apart(n, m *node) (*node, *node) {
	for ; ; n = n.parent {
		for x := m; x != nil; x = x.parent {
			if x.parent == n.parent {
				return n, x
			}
		}
	}
}

// weigh measures all of n anew.
func (q *Queue) weigh(n *node) {
	for _, c := range n.children {
		q.weigh(c)
	}
	if n != q.root {
		q.age(n)
		q.measure(n)
	}
}
