package topology

import "math"

// Health is how something is.
type Health byte

// The healths.
const (
	NoHealth     Health = 0
	Healthy      Health = 1
	Busy         Health = 2
	Warning      Health = 3
	Down         Health = 4
	Unknown      Health = 5
	SetAside     Health = 6 // isolated
	numberHealth        = 7
)

// health is what a state alone says.
func (s State) health() Health {
	switch s {
	case Ready:
		return Healthy
	case NotReady:
		return Down
	case NotHeard:
		return Unknown
	case Isolated:
		return SetAside
	}
	return NoHealth // registered and not in use, retired, or none
}

// severity orders healths; the worst is the highest.
var severity = [numberHealth]int{NoHealth: 0, Healthy: 1, SetAside: 2, Busy: 3, Warning: 4, Unknown: 5, Down: 6}

func worst(a, b Health) Health {
	if severity[b] > severity[a] {
		return b
	}
	return a
}

// Counts are numbers of vertices by health.
type Counts [numberHealth]int64

// Total is how many there are.
func (c *Counts) Total() (n int64) {
	for _, x := range c {
		n += x
	}
	return n
}

func (c *Counts) add(o *Counts) {
	for i := range c {
		c[i] += o[i]
	}
}

// rollUp is the health of a whole from its own and that of its parts.
func rollUp(own Health, parts *Counts) Health {
	switch own {
	case Down, Unknown, SetAside:
		return own
	}
	all := parts.Total() - parts[NoHealth]
	if all == 0 {
		return own
	}
	for _, h := range []Health{Down, Unknown, SetAside} {
		if parts[h] == all {
			return h
		}
	}
	part := Healthy
	switch {
	case parts[Down]+parts[Unknown]+parts[Warning] > 0:
		part = Warning
	case 2*parts[Busy] >= all-parts[SetAside]:
		part = Busy
	}
	return worst(own, part)
}

// picture is a graph with how everything in it is. It is never changed.
type picture struct {
	*graph
	health []Health // by vertex, rolled up
	worst  []Health
	card   []Health // by card
	link   []Health // by link
	nodes  []Counts // by vertex: nodes below it and itself
	cards  []Counts
	values []*layer   // of the bindings with thresholds
	from   []*reading // what those are made of
	hash   uint64
}

// newPicture judges a graph by what is measured.
func newPicture(g *graph, values []*layer) *picture {
	p := &picture{graph: g, health: make([]Health, len(g.v)), worst: make([]Health, len(g.v)), card: make([]Health, g.cards), link: make([]Health, len(g.links)),
		nodes: make([]Counts, len(g.v)), cards: make([]Counts, len(g.v)), values: values}
	parts := make([]Counts, len(g.v))
	for i := len(g.v) - 1; i >= 0; i-- {
		v := &g.v[i]
		own := v.State.health()
		if v.center >= 0 && g.v[v.center].State == NotHeard && own != SetAside {
			own = Unknown
		}
		limited := own == Healthy
		if limited {
			for _, l := range values {
				if l.vertex != nil && l.level == v.Level {
					own = worst(own, l.judge(l.vertex[i]))
				}
			}
		}
		if v.cards > 0 {
			state := v.State.health()
			if own == Unknown {
				state = Unknown
			}
			for c := v.card; c < v.card+v.cards; c++ {
				h := state
				if limited {
					for _, l := range values {
						if l.card != nil {
							h = worst(h, l.judge(l.card[c]))
						}
					}
				}
				p.card[c] = h
				p.cards[i][h]++
			}
			parts[i].add(&p.cards[i])
		}
		h := rollUp(own, &parts[i])
		p.health[i] = h
		p.worst[i] = worst(p.worst[i], worst(own, h))
		for h := range p.cards[i] {
			if p.cards[i][h] > 0 {
				p.worst[i] = worst(p.worst[i], Health(h))
			}
		}
		if v.Level == LevelNode {
			p.nodes[i][h]++
		}
		if v.parent >= 0 {
			parts[v.parent][h]++
			p.nodes[v.parent].add(&p.nodes[i])
			p.cards[v.parent].add(&p.cards[i])
			p.worst[v.parent] = worst(p.worst[v.parent], p.worst[i])
		}
	}
	p.judgeLinks()
	p.hash = p.sum()
	return p
}

// judgeLinks: a path is as its center is reached, a link of a resource as the
// resource, and both as what is measured says.
func (p *picture) judgeLinks() {
	for i, it := range p.links {
		h := it.State.health()
		measured := false
		for _, end := range []string{it.Link.From, it.Link.To} {
			v := &p.v[p.at[end]]
			if v.Level == LevelCenter && it.Link.Source == Measured && (v.State == NotHeard || v.State == NotReady) {
				h = worst(h, v.State.health())
			}
		}
		if h == NoHealth || h == Healthy {
			for _, l := range p.values {
				if l.link == nil {
					continue
				}
				if x := l.link[i]; !math.IsNaN(x) {
					measured = true
					h = worst(h, l.judge(x))
				}
			}
			if measured {
				h = worst(h, Healthy)
			}
		}
		p.link[i] = h
	}
}

// sum names the healths: FNV-1a.
func (p *picture) sum() uint64 {
	h := uint64(14695981039346656037)
	for _, list := range [][]Health{p.health, p.worst, p.card, p.link} {
		for _, x := range list {
			h = (h ^ uint64(x)) * 1099511628211
		}
	}
	return h
}
