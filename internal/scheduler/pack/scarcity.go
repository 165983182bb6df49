package pack

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// dear is the weight of places for tasks on several cards beside waste.
	dear = 0.1
	// dearest is how many kinds of such tasks are looked at.
	dearest = 64
	// pours is in how many parts what is sought is shared out among classes.
	pours = 200
)

// scarcity is what some tasks cannot do without, and others should leave to them
// where they can. Waste alone does not see it: in the end others fill the cards.
type scarcity struct {
	// Places for tasks on several cards.
	needs  []need
	usable [][]bool
	price  []float64 // of a place, in thousandths of a card
	// sought is how much of each class of cards is asked for by tasks that name
	// models, as a part of what there is, once all tasks ask for all there is.
	sought []float64
}

func newScarcity(c *Cluster, likely []Task) *scarcity {
	x := &scarcity{sought: make([]float64, len(c.models))}
	counts, asked := map[shape]int{}, 0.0
	for _, t := range likely {
		if s := shapeOf(&t); s.cards > 0 {
			s.labels = ""
			counts[s]++
			asked += float64(s.demand())
		}
	}
	if asked == 0 {
		return x
	}
	byName := func(a, b shape) int {
		return cmp.Or(cmp.Compare(a.models, b.models), cmp.Compare(a.cards, b.cards), cmp.Compare(a.share, b.share), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.memory, b.memory))
	}
	shapes := slices.SortedFunc(maps.Keys(counts), byName)
	full := float64(c.whole) / asked // how often the likely tasks come until they have asked for all
	x.seek(c, shapes, counts, full)
	x.places(c, shapes, counts, full)
	return x
}

// seek shares what tasks ask for that name models out among these, always to the
// one that is sought least.
func (x *scarcity) seek(c *Cluster, shapes []shape, counts map[shape]int, full float64) {
	there := make([]float64, len(c.models))
	for i := range c.rooms {
		there[c.rooms[i].class] += float64(c.rooms[i].left())
	}
	var named []shape // one for each set of models
	var asks []float64
	for _, s := range shapes {
		if s.models == "" {
			continue
		}
		if n := len(named); n == 0 || named[n-1].models != s.models {
			named, asks = append(named, s), append(asks, 0)
		}
		asks[len(asks)-1] += float64(counts[s]) * float64(s.demand()) * full
	}
	usable := make([][]bool, len(named))
	for i := range named {
		usable[i] = c.usable(&named[i])
	}
	for range pours {
		for i := range named {
			least := -1
			for k, ok := range usable[i] {
				if ok && there[k] > 0 && (least < 0 || x.sought[k] < x.sought[least]) {
					least = k
				}
			}
			if least >= 0 {
				x.sought[least] += asks[i] / pours / there[least]
			}
		}
	}
	for k, v := range x.sought {
		x.sought[k] = math.Round(v*Whole) / Whole
	}
}

// places prices a place for each kind of task on several cards by how many will
// be asked for of those that an empty cluster has.
func (x *scarcity) places(c *Cluster, shapes []shape, counts map[shape]int, full float64) {
	empty := map[room]int{}
	for i := range c.rooms {
		empty[c.rooms[i]]++
	}
	type kind struct {
		shape
		price float64
	}
	var kinds []kind
	for _, s := range shapes {
		if s.cards < 2 {
			continue
		}
		usable, there := c.usable(&s), 0
		for r, n := range empty {
			if usable[r.class] {
				there += n * int(r.places(&s.need))
			}
		}
		if there > 0 {
			kinds = append(kinds, kind{s, min(1, float64(counts[s])*full/float64(there)) * float64(s.demand())})
		}
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return cmp.Compare(b.price, a.price) })
	for _, k := range kinds[:min(len(kinds), dearest)] {
		x.needs, x.usable, x.price = append(x.needs, k.need), append(x.usable, c.usable(&k.shape)), append(x.price, k.price)
	}
}

// worth is what the places in a room are worth, in thousandths of a card.
func (x *scarcity) worth(r *room) float64 {
	v := 0.0
	for k := range x.needs {
		if x.usable[k][r.class] {
			v += x.price[k] * float64(r.places(&x.needs[k]))
		}
	}
	return v
}

// places is how many of a task that asks for whole cards fit into a room.
func (r *room) places(s *need) int32 {
	n := int32(0)
	for _, f := range r.free[:r.cards] {
		if f == Whole {
			n++
		}
	}
	n /= int32(s.cards)
	if s.cpu > 0 {
		n = min(n, r.cpu/s.cpu)
	}
	if s.memory > 0 {
		n = min(n, r.memory/s.memory)
	}
	return n
}
