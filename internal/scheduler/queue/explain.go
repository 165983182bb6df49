package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Cause is what holds a waiting work back.
type Cause string

// The causes.
const (
	CauseTime     Cause = "not-before"  // its time has not come
	CauseLimit    Cause = "limit"       // a tenant would exceed its limit
	CauseRoom     Cause = "room"        // no place has room for works of its shape
	CauseReserved Cause = "reservation" // it has a reservation
	CauseKept     Cause = "kept"        // it would run into what is kept for others
	CauseWindow   Cause = "window"      // it would run into a window
	CauseOrder    Cause = "order"       // others go first
)

// Explanation is what holds a work back, and when it may start.
type Explanation struct {
	Cause Cause
	// Text says the same, with names and figures.
	Text   string
	Window string // its ID, of CauseWindow
	// Tenant, Resource, Used, Asked and Limit are of a limit.
	Tenant             string
	Resource           string
	Used, Asked, Limit int64
	// Ahead is how many works of its tenant go before it; Others how many
	// tenants have work to try and a lower share, theirs or that of one above them
	// where the two part, or, without shares, earlier work.
	Ahead, Others int
	Priority      int64 // with its age
	Share         int64 // of its tenant, in millionths, weighted
	AtRisk        bool  // of missing its deadline
	// Start is when it is expected to start, by Basis; 0: not computable.
	Start int64
	Basis Basis
}

// Basis is what an expected start was computed from.
type Basis string

// The bases.
const (
	BasisTime        Basis = "not-before"
	BasisReservation Basis = "reservation" // the expected ends of what runs
	BasisEnds        Basis = "ends"        // the same, for the first of its tenant without a reservation
	BasisRate        Basis = "rate"        // the last starts of its tenant, and how many are ahead
)

// Explain says what holds a waiting work back; false: none waits under that ID.
func (q *Queue) Explain(id string, now int64) (Explanation, bool) {
	q.now = max(q.now, now)
	e := q.works[id]
	if e == nil || e.state == running {
		return Explanation{}, false
	}
	var x Explanation
	n := e.leaf
	q.weigh(q.root)
	if q.cfg.Order == FairShare {
		q.turn(n)
	}
	x.Share = n.share.millionths()
	mine := bucket{leaf: n, key: bucketKey{e.shape, e.work.Priority, -1}}
	change := n.change
	q.aim(&mine, e)
	n.change = change
	x.Priority, x.AtRisk = mine.priority, mine.risk
	for _, b := range n.byKey {
		x.Ahead += q.aheadIn(b, &mine)
	}
	for _, f := range q.reserved {
		if f != e && f.leaf == n {
			x.Ahead++
		}
	}
	for _, m := range q.leaves {
		if m == n || len(m.buckets) == 0 {
			continue
		}
		first := false
		if q.cfg.Order == FairShare {
			a, b := apart(n, m)
			first = b.compare(a) < 0
		} else {
			first = m.buckets[0].before(&mine, q.cfg.Order)
		}
		if first {
			x.Others++
		}
	}
	q.cause(e, &x)
	q.estimate(e, &x)
	for m := n; m != q.root; m = m.parent {
		q.measure(m) // as it was
	}
	return x, true
}

// line says what goes before the work of which x tells, and the shares that
// decided that.
func (q *Queue) line(n *node, x *Explanation) string {
	text := fmt.Sprintf("%d works of its tenant, and %d tenants, go first", x.Ahead, x.Others)
	if q.cfg.Order != FairShare {
		return text
	}
	var shares []string
	for ; n != q.root; n = n.parent {
		name := n.name
		if n.parent.name == name {
			name = "its own work"
		}
		shares = append(shares, fmt.Sprintf("%s %.1f %%", name, float64(n.share.millionths())/10_000))
	}
	slices.Reverse(shares)
	return text + "; shares by weight: " + strings.Join(shares, ", ")
}

func (s *ratio) millionths() int64 {
	top, mid, low := mul192(0, s.num, 1_000_000)
	_ = top
	f := float64(mid)*(1<<64) + float64(low)
	return int64(f / float64(s.total) / float64(s.weight))
}

// aheadIn is how many works of b go before the next of mine.
func (q *Queue) aheadIn(b *bucket, mine *bucket) int {
	if q.cfg.Ageing.Step == 0 && b.key.run < 0 {
		// All of b have the same priority.
		if q.cfg.Order != FirstCome && b.key.priority != mine.priority {
			if b.key.priority > mine.priority {
				return b.list.n
			}
			return 0
		}
		if mine.risk {
			return 0
		}
		return b.list.rank(mine.next)
	}
	// Those before mine are the first of b: with age they are raised in order.
	probe := bucket{leaf: b.leaf, key: b.key}
	change := b.leaf.change
	defer func() { b.leaf.change = change }()
	ahead := 0
	for _, c := range b.list.chunks {
		lo, hi := 0, len(c.items)
		for lo < hi {
			m := (lo + hi) / 2
			if q.aim(&probe, c.items[m]); probe.before(mine, q.cfg.Order) {
				lo = m + 1
			} else {
				hi = m
			}
		}
		if ahead += lo; lo < len(c.items) {
			break
		}
	}
	return ahead
}

func (q *Queue) cause(e *entry, x *Explanation) {
	switch {
	case e.state == later:
		x.Cause, x.Text = CauseTime, "its time has not come"
		return
	case e.state == reserved && e.spans[0].from > q.now:
		x.Cause, x.Text = CauseReserved, "room is kept for it at "+e.spans[0].at.name+" when what runs there has ended"
		if n := len(e.spans); n > 1 {
			x.Text = fmt.Sprintf("room is kept for it at %d places when what runs there has ended", n)
		}
		return
	}
	if n, r := e.leaf.above(e.shape.ask, int64(e.shape.min)); n != nil {
		asked := int64(0)
		for _, t := range e.shape.ask {
			if t.r == r {
				asked = t.n * int64(e.shape.min)
			}
		}
		x.Cause, x.Tenant, x.Resource, x.Used, x.Asked, x.Limit = CauseLimit, n.name, q.names[r], n.used[r], asked, n.limit[r]
		x.Text = fmt.Sprintf("tenant %s uses %d of %s and may use %d; %d more are asked for", n.name, n.used[r], q.names[r], n.limit[r], asked)
		return
	}
	ref := e.shape.refusal
	switch {
	case ref == nil || e.shape.round != q.round:
		x.Cause, x.Text = CauseOrder, q.line(e.leaf, x)
	case ref.held && e.run >= q.blocked(e.shape) && ref.window != "":
		x.Cause, x.Window, x.Text = CauseWindow, ref.window, "it would run into "+ref.window
	case ref.held && e.run >= q.blocked(e.shape):
		x.Cause, x.Text = CauseKept, "it would run into what is kept for others"
	case ref.held:
		x.Cause, x.Text = CauseOrder, q.line(e.leaf, x)
	default:
		x.Cause, x.Text = CauseRoom, cmp.Or(ref.why, "no place has room for it")
	}
}

func (q *Queue) estimate(e *entry, x *Explanation) {
	n := e.leaf
	switch {
	case e.state == later:
		x.Start, x.Basis = e.work.NotBefore, BasisTime
	case e.state == reserved && e.spans[0].from > q.now:
		x.Start, x.Basis = e.spans[0].from, BasisReservation
	case x.Ahead == 0 && x.Cause == CauseRoom:
		if s, ok := q.shadow(e, q.where(e, nil)); ok && s.At != Never && s.At > q.now {
			x.Start, x.Basis = s.At, BasisEnds
		}
	}
	if x.Start == 0 && n.count > 1 {
		k := min(n.count, rateWindow)
		first := n.starts[(n.count-k)%rateWindow]
		// k starts took q.now - first; the work is number Ahead + 1.
		if d := q.now - first; d > 0 && int64(x.Ahead+1) < Never/d {
			x.Start, x.Basis = q.now+d*int64(x.Ahead+1)/k, BasisRate
		}
	}
}
