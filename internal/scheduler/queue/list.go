package queue

import "slices"

// list keeps works in order. Most come at its end and leave at its front, both
// without a search; anything else costs O(log n). Each chunk knows the
// shortest expected run in it, so that the first work that is short enough to
// pass a reservation is found without looking at all.
type list struct {
	chunks []*chunk
	n      int
}

const chunkSize = 128

type chunk struct {
	items []*entry
	// shortest is at most the run of every item; it may be less after one left.
	shortest int64
}

func (c *chunk) measure() {
	c.shortest = Never
	for _, e := range c.items {
		c.shortest = min(c.shortest, e.run)
	}
}

// before is the order within a bucket.
func (e *entry) before(f *entry) bool {
	if e.due != f.due {
		return e.due < f.due
	}
	if e.work.Arrival != f.work.Arrival {
		return e.work.Arrival < f.work.Arrival
	}
	return e.work.ID < f.work.ID
}

// find is the chunk in which e is, or into which it belongs.
func (l *list) find(e *entry) int {
	lo, hi := 0, len(l.chunks)-1
	for lo < hi {
		m := (lo + hi) / 2
		if c := l.chunks[m]; c.items[len(c.items)-1].before(e) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (c *chunk) find(e *entry) int {
	lo, hi := 0, len(c.items)
	for lo < hi {
		if m := (lo + hi) / 2; c.items[m].before(e) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (l *list) insert(e *entry) {
	l.n++
	if len(l.chunks) == 0 {
		l.chunks = append(l.chunks, &chunk{items: []*entry{e}, shortest: e.run})
		return
	}
	i := len(l.chunks) - 1
	c := l.chunks[i]
	if last := c.items[len(c.items)-1]; last.before(e) {
		if len(c.items) == chunkSize {
			l.chunks = append(l.chunks, &chunk{items: append(make([]*entry, 0, 8), e), shortest: e.run})
			return
		}
		c.items = append(c.items, e)
	} else {
		i = l.find(e)
		c = l.chunks[i]
		c.items = slices.Insert(c.items, c.find(e), e)
	}
	c.shortest = min(c.shortest, e.run)
	if len(c.items) > chunkSize {
		right := &chunk{items: slices.Clone(c.items[chunkSize/2:])}
		clear(c.items[chunkSize/2:])
		c.items = c.items[:chunkSize/2]
		c.measure()
		right.measure()
		l.chunks = slices.Insert(l.chunks, i+1, right)
	}
}

func (l *list) remove(e *entry) {
	l.n--
	i := 0
	if l.chunks[0].items[0] != e {
		i = l.find(e)
	}
	c := l.chunks[i]
	if c.items[0] == e {
		c.items[0] = nil
		c.items = c.items[1:]
	} else {
		k := c.find(e)
		c.items = slices.Delete(c.items, k, k+1)
	}
	if len(c.items) > 0 {
		return
	}
	if i == 0 {
		l.chunks[0] = nil
		l.chunks = l.chunks[1:]
	} else {
		l.chunks = slices.Delete(l.chunks, i, i+1)
	}
}

// first is the first work whose expected run is below limit, nil if there is none.
func (l *list) first(limit int64) *entry {
	for _, c := range l.chunks {
		if c.shortest >= limit {
			continue
		}
		for _, e := range c.items {
			if e.run < limit {
				return e
			}
		}
		c.measure()
	}
	return nil
}

// rank is how many works are before e, which need not be in the list.
func (l *list) rank(e *entry) int {
	n := 0
	for _, c := range l.chunks {
		if c.items[len(c.items)-1].before(e) {
			n += len(c.items)
			continue
		}
		return n + c.find(e)
	}
	return n
}
