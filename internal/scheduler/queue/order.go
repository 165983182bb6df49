package queue

// bucket has the works of one tenant with the same shape and priority, in
// order. Those with a deadline that counts have buckets of their own, one for
// each expected run: then the first of a bucket is the first to be at risk, as
// it is the first to be raised by its age.
type bucket struct {
	leaf *node
	key  bucketKey
	list list
	pos  int    // in the leaf's heap; notReady or inParked
	same int    // in the shape's buckets
	next *entry // the first that may be tried

	priority int64 // of next, with its age
	risk     bool  // next is at risk of missing its deadline
	change   int64 // when one of these changes
}

type bucketKey struct {
	shape    *shape
	priority int64
	run      int64 // -1: without deadline
}

const (
	notReady = -1
	inParked = -2
)

// wait puts e into its bucket.
func (q *Queue) wait(e *entry) {
	e.state = waiting
	k := bucketKey{e.shape, e.work.Priority, -1}
	if e.due != Never {
		k.run = e.run
	}
	n := e.leaf
	b := n.byKey[k]
	if b == nil {
		b = &bucket{leaf: n, key: k, pos: notReady}
		n.byKey[k] = b
		b.same = len(e.shape.buckets)
		e.shape.buckets = append(e.shape.buckets, b)
	}
	e.bucket = b
	b.list.insert(e)
	if b.pos == notReady || b.pos >= 0 && e.before(b.next) {
		q.aim(b, e)
		q.ready(b)
	}
}

// take removes e from its bucket.
func (q *Queue) take(e *entry) {
	b := e.bucket
	e.bucket = nil
	b.list.remove(e)
	if b.list.n == 0 {
		delete(b.leaf.byKey, b.key)
		s := b.key.shape
		last := s.buckets[len(s.buckets)-1]
		s.buckets[b.same], last.same = last, b.same
		s.buckets[len(s.buckets)-1] = nil
		s.buckets = s.buckets[:len(s.buckets)-1]
	}
	if b.pos >= 0 && b.next == e {
		q.seek(b)
	}
}

// seek finds the next work of b that may be tried in this round.
func (q *Queue) seek(b *bucket) {
	var e *entry
	if limit := q.blocked(b.key.shape); b.list.n > 0 && limit == Never {
		e = b.list.chunks[0].items[0]
	} else if b.list.n > 0 {
		if e = b.list.first(limit); e != nil {
			q.passing = append(q.passing, b)
		}
	}
	switch {
	case e != nil:
		q.aim(b, e)
		q.ready(b)
	case b.list.n > 0:
		q.park(b)
	default:
		q.unready(b)
	}
}

// blocked is the run from which works of a shape are not tried in this round.
func (q *Queue) blocked(s *shape) int64 {
	if s.round != q.round {
		return Never
	}
	return s.blocked
}

// aim makes e the next of b.
func (q *Queue) aim(b *bucket, e *entry) {
	b.next = e
	b.priority, b.change = q.priority(e), Never
	if a := q.cfg.Ageing; a.Step > 0 && e.due == Never {
		if up := b.priority - e.work.Priority; up < a.Max {
			b.change = e.work.Arrival + (up+1)*a.Step
		}
	}
	b.risk = false
	if e.due != Never {
		last := e.due - q.cfg.DeadlineMargin
		if e.run < unknownRun {
			last -= e.run
		}
		if b.risk = q.now >= last; !b.risk {
			b.change = min(b.change, last)
		}
	}
	b.leaf.change = min(b.leaf.change, b.change)
}

// priority is that of e with its age. Works that go by their deadline do not
// age.
func (q *Queue) priority(e *entry) int64 {
	if a := q.cfg.Ageing; a.Step > 0 && e.due == Never {
		return e.work.Priority + min(max(q.now-e.work.Arrival, 0)/a.Step, a.Max)
	}
	return e.work.Priority
}

// before is the order of buckets in a tenant.
func (b *bucket) before(c *bucket, o Order) bool {
	if o != FirstCome && b.priority != c.priority {
		return b.priority > c.priority
	}
	return b.next.sooner(c.next, b.risk, c.risk)
}

// sooner is the order of works of one priority.
func (e *entry) sooner(f *entry, risk, frisk bool) bool {
	if risk != frisk {
		return risk
	}
	return e.before(f)
}

// Buckets that may be tried are a heap in their leaf; leaves and inner nodes
// that have such buckets are a heap in their parent.

func (q *Queue) ready(b *bucket) {
	n := b.leaf
	if b.pos < 0 {
		b.pos = len(n.buckets)
		n.buckets = append(n.buckets, b)
	}
	h := n.buckets
	if i := b.pos; !q.upBucket(h, i) {
		q.downBucket(h, i)
	}
	if n.pos < 0 || n.head != n.buckets[0].next || n.class != n.buckets[0].priority || b.pos == 0 {
		q.lift(n)
	}
}

func (q *Queue) unready(b *bucket) {
	if b.pos < 0 {
		b.pos = notReady
		return
	}
	n, i := b.leaf, b.pos
	last := len(n.buckets) - 1
	n.buckets[i] = n.buckets[last]
	n.buckets[i].pos = i
	n.buckets[last] = nil
	n.buckets = n.buckets[:last]
	if i < last && !q.upBucket(n.buckets, i) {
		q.downBucket(n.buckets, i)
	}
	b.pos, b.next = notReady, nil
	if i == 0 { // else its first is the same as before
		q.lift(n)
	}
}

// park sets b aside for the rest of the round.
func (q *Queue) park(b *bucket) {
	q.unready(b)
	b.pos = inParked
	q.parked = append(q.parked, b)
}

func (q *Queue) upBucket(h []*bucket, i int) bool {
	b, moved := h[i], false
	for i > 0 {
		p := (i - 1) / 2
		if !b.before(h[p], q.cfg.Order) {
			break
		}
		h[i] = h[p]
		h[i].pos = i
		i, moved = p, true
	}
	h[i] = b
	b.pos = i
	return moved
}

func (q *Queue) downBucket(h []*bucket, i int) {
	b := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(h[c], q.cfg.Order) {
			c++
		}
		if !h[c].before(b, q.cfg.Order) {
			break
		}
		h[i] = h[c]
		h[i].pos = i
		i = c
	}
	h[i] = b
	b.pos = i
}

// lift brings the place of n among its siblings up to date, and that of all
// above it.
func (q *Queue) lift(n *node) {
	for ; n.parent != nil; n = n.parent {
		p := n.parent
		var e *entry
		if n.leaf() && len(n.buckets) > 0 {
			b := n.buckets[0]
			e, n.class = b.next, b.priority
		} else if len(n.ready) > 0 {
			e, n.class = n.ready[0].head, n.ready[0].class
		}
		n.head = e
		if q.cfg.Order == FairShare && (e != nil || n.parted) {
			q.measure(n)
		}
		if e == nil {
			if n.pos >= 0 {
				p.removeReady(q, n)
			}
			continue
		}
		if q.cfg.Order == FairShare {
			n.entitled = n.within(e.shape.ask, int64(e.shape.min))
		}
		if n.pos < 0 {
			n.pos = len(p.ready)
			p.ready = append(p.ready, n)
		}
		if !q.upNode(p.ready, n.pos) {
			q.downNode(p.ready, n.pos)
		}
	}
}

func (p *node) removeReady(q *Queue, n *node) {
	i, last := n.pos, len(p.ready)-1
	p.ready[i] = p.ready[last]
	p.ready[i].pos = i
	p.ready[last] = nil
	p.ready = p.ready[:last]
	if i < last && !q.upNode(p.ready, i) {
		q.downNode(p.ready, i)
	}
	n.pos = -1
}

// ahead is the order of siblings.
func (q *Queue) ahead(a, b *node) bool {
	switch q.cfg.Order {
	case FairShare:
		if a.entitled != b.entitled {
			return a.entitled
		}
		if q.cfg.StrictClasses && a.class != b.class {
			return a.class > b.class
		}
		if c := a.compare(b); c != 0 {
			return c < 0
		}
	case PriorityOrder:
		if a.class != b.class {
			return a.class > b.class
		}
	}
	return a.head.come(b.head)
}

// come is the order of arrival.
func (e *entry) come(f *entry) bool {
	if e.work.Arrival != f.work.Arrival {
		return e.work.Arrival < f.work.Arrival
	}
	return e.work.ID < f.work.ID
}

func (q *Queue) upNode(h []*node, i int) bool {
	n, moved := h[i], false
	for i > 0 {
		p := (i - 1) / 2
		if !q.ahead(n, h[p]) {
			break
		}
		h[i] = h[p]
		h[i].pos = i
		i, moved = p, true
	}
	h[i] = n
	n.pos = i
	return moved
}

func (q *Queue) downNode(h []*node, i int) {
	n := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && q.ahead(h[c+1], h[c]) {
			c++
		}
		if !q.ahead(h[c], n) {
			break
		}
		h[i] = h[c]
		h[i].pos = i
		i = c
	}
	h[i] = n
	n.pos = i
}

// refresh orders everything anew, after time or totals changed shares.
func (q *Queue) refresh(n *node) {
	q.age(n)
	for _, c := range n.children {
		q.refresh(c)
	}
	n.ready, n.head = n.ready[:0], nil
	for _, c := range n.children {
		c.pos = -1
		if c.head != nil {
			c.pos = len(n.ready)
			n.ready = append(n.ready, c)
		}
	}
	for i := len(n.ready)/2 - 1; i >= 0; i-- {
		q.downNode(n.ready, i)
	}
	var e *entry
	if n.leaf() && len(n.buckets) > 0 {
		e, n.class = n.buckets[0].next, n.buckets[0].priority
	} else if len(n.ready) > 0 {
		e, n.class = n.ready[0].head, n.ready[0].class
	}
	n.head = e
	if n == q.root || q.cfg.Order != FairShare {
		return
	}
	if e != nil || n.parted {
		q.measure(n)
	}
	if e != nil {
		n.entitled = n.within(e.shape.ask, int64(e.shape.min))
	}
}

// unpark brings back what was set aside in the last round, and what was passed
// over, and orders anew the tenants in which that or time changed the order.
func (q *Queue) unpark() {
	for _, b := range q.parked {
		if b.pos != inParked || b.list.n == 0 {
			continue
		}
		n := b.leaf
		q.aim(b, b.list.chunks[0].items[0])
		b.pos = len(n.buckets)
		n.buckets = append(n.buckets, b)
		n.mixed = true
	}
	for _, b := range q.passing {
		if b.pos >= 0 {
			q.aim(b, b.list.chunks[0].items[0])
			b.leaf.mixed = true
		}
	}
	clear(q.parked)
	clear(q.passing)
	q.parked, q.passing = q.parked[:0], q.passing[:0]
	for _, n := range q.leaves {
		if n.change <= q.now {
			n.change = Never
			for _, b := range n.buckets {
				q.aim(b, b.next)
			}
			n.mixed = true
		}
		if !n.mixed {
			continue
		}
		n.mixed = false
		for i := len(n.buckets)/2 - 1; i >= 0; i-- {
			q.downBucket(n.buckets, i)
		}
		for i, b := range n.buckets {
			b.pos = i
		}
		q.stale = true
	}
}
