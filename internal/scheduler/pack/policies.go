package pack

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Policy names a way to choose.
type Policy string

// The policies. Waste leaves the least over, BestFit and Balanced are fast; the
// others are for comparison.
const (
	Waste      Policy = "waste"
	FGD        Policy = "fgd"
	BestFit    Policy = "best-fit"
	DotProduct Policy = "dot-product"
	Packing    Policy = "packing"
	Clustering Policy = "clustering"
	Random     Policy = "random"
	// Balanced loads all nodes alike; it leaves whole nodes to nobody.
	Balanced Policy = "balanced"
)

// Policies lists all policies.
func Policies() []Policy {
	return []Policy{Waste, FGD, BestFit, DotProduct, Packing, Clustering, Random, Balanced}
}

func (c *Cluster) rater(p Policy, likely []Task, dice *rand.Rand) (rater, error) {
	switch p {
	case Waste:
		return newWaste(c, likely), nil
	case FGD:
		return newFragmentation(c, likely), nil
	case BestFit:
		return bestFit{}, nil
	case DotProduct:
		return dotProduct{}, nil
	case Packing:
		return packing{}, nil
	case Clustering:
		return clustering{}, nil
	case Random:
		c.dice = dice
		return random{}, nil
	case Balanced:
		return balanced{}, nil
	}
	return nil, fault.New(fault.Invalid, "there is no policy %q; there are %v", string(p), Policies())
}

// What a large node has, for scores that compare kinds of resources.
const (
	largeCPU   = 128_000
	largeCards = 8 * Whole
)

// memory of ratings by the state of a node.
type memory struct {
	of func(*room) float64
	by map[room]float64
}

func (m *memory) value(r room) float64 {
	if r.cards == 0 {
		return 0
	}
	r = r.state()
	v, ok := m.by[r]
	if !ok {
		if len(m.by) >= maxRemembers {
			clear(m.by)
		}
		v = m.of(&r)
		m.by[r] = v
	}
	return v
}

// rounds of tasks, of length steps, are played on a node to see what is wasted.
const (
	rounds = 32
	steps  = 100
	// finer is the weight of fragmentation beside waste: it tells apart what the
	// rounds, being few, do not.
	finer = 0.05
)

// waste is what is expected to be left of a node's cards, less what places there
// are worth to tasks that hardly find others.
type waste struct {
	memory
	play [][rounds][]need // by class of cards: what can use it
	// least that any task asks for, by class
	least []need
	fine  *fragmentation
	rare  *scarcity
}

func newWaste(c *Cluster, likely []Task) *waste {
	w := &waste{play: make([][rounds][]need, len(c.models)), least: make([]need, len(c.models)), fine: newFragmentation(c, likely), rare: newScarcity(c, likely)}
	w.memory = memory{of: w.expected, by: map[room]float64{}}
	for k := range w.least {
		w.least[k] = need{cpu: math.MaxInt32, memory: math.MaxInt32, share: Whole}
	}
	var tasks []shape
	for _, t := range likely {
		if t.Cards > 0 {
			tasks = append(tasks, shapeOf(&t))
		}
	}
	dice := rand.New(rand.NewPCG(99, 3)) // the same for all clusters
	for i := range rounds {
		for range min(steps, steps*len(tasks)) {
			s := tasks[dice.IntN(len(tasks))]
			for k, usable := range c.usable(&s) {
				if usable {
					w.play[k][i] = append(w.play[k][i], s.need)
					l := &w.least[k]
					l.cpu, l.memory, l.share = min(l.cpu, s.cpu), min(l.memory, s.memory), min(l.share, s.share)
				}
			}
		}
	}
	return w
}

func (w *waste) expected(r *room) float64 {
	total := int32(0)
	for i := range w.play[r.class] {
		total += w.fill(*r, w.play[r.class][i])
	}
	return float64(total)/rounds + finer*w.fine.amount(r) - dear*w.rare.worth(r)
}

// fill is what is left of a sorted room's cards after tasks have come to it. It
// keeps the room sorted, so that the last card shows what fits no more.
func (w *waste) fill(x room, play []need) int32 {
	least, left, last := &w.least[x.class], x.left(), x.cards-1
	for k := range play {
		s := &play[k]
		if x.cpu < s.cpu || x.memory < s.memory || x.free[last] < s.share {
			continue
		}
		switch {
		case s.cards == 1:
			i := int16(0)
			for x.free[i] < s.share {
				i++
			}
			rest := x.free[i] - s.share
			for ; i > 0 && x.free[i-1] > rest; i-- {
				x.free[i] = x.free[i-1]
			}
			x.free[i] = rest
		case s.cards > x.cards || x.free[x.cards-s.cards] < Whole:
			continue
		default: // the last cards are whole; they become the first
			copy(x.free[s.cards:x.cards], x.free[:x.cards-s.cards])
			clear(x.free[:s.cards])
		}
		x.cpu -= s.cpu
		x.memory -= s.memory
		if left -= s.demand(); x.free[last] < least.share || x.cpu < least.cpu || x.memory < least.memory {
			break
		}
	}
	return left
}

func (w *waste) rate(r *room, s *need, _ *kind) (float64, cards) {
	const grain = 20 // of what is told apart, in thousandths of a card
	before := w.value(*r)
	cost, at := least(r, s, func(x *room) float64 { return w.value(*x) - before })
	return math.Floor(cost/grain+0.5)*grain + w.rare.sought[r.class]*float64(s.demand()), at
}

// least tries the cards that differ in what a part would leave.
func least(r *room, s *need, rate func(*room) float64) (cost float64, at cards) {
	if !s.partial() {
		x := *r
		x.take(s, 0)
		return rate(&x), 1
	}
	cost = math.Inf(1)
	for i := range int(r.cards) {
		if r.free[i] < s.share || i > 0 && r.free[i] == r.free[i-1] {
			continue
		}
		x := *r
		x.take(s, i)
		switch c := rate(&x); {
		case c < cost:
			cost, at = c, 1<<i
		case c == cost:
			at |= 1 << i
		}
	}
	return cost, at
}

// fragmentation is what the likely tasks could not use of a node, on average.
type fragmentation struct {
	memory
	tasks  []need
	usable [][]bool
	share  []float64
}

// covers is how much of all tasks the typical ones make up.
const covers = 0.95

func newFragmentation(c *Cluster, likely []Task) *fragmentation {
	f := &fragmentation{}
	f.memory = memory{of: f.amount, by: map[room]float64{}}
	count := map[shape]int{}
	var kinds []shape
	for _, t := range likely {
		s := shapeOf(&t)
		s.memory, s.labels = 0, ""
		if count[s] == 0 {
			kinds = append(kinds, s)
		}
		count[s]++
	}
	slices.SortStableFunc(kinds, func(a, b shape) int { return cmp.Compare(count[b], count[a]) })
	sum := 0
	for _, s := range kinds {
		if float64(sum) >= covers*float64(len(likely)) {
			break
		}
		sum += count[s]
		f.tasks, f.usable, f.share = append(f.tasks, s.need), append(f.usable, c.usable(&s)), append(f.share, float64(count[s]))
	}
	for i := range f.share {
		f.share[i] /= float64(sum)
	}
	return f
}

func (f *fragmentation) amount(r *room) float64 {
	total, left := 0.0, float64(r.left())
	for k := range f.tasks {
		s := &f.tasks[k]
		if s.cards == 0 || !f.usable[k][r.class] || !r.fits(s) {
			total += f.share[k] * left
			continue
		}
		for _, free := range r.free[:r.cards] {
			if free < s.share {
				total += f.share[k] * float64(free)
			}
		}
	}
	return total
}

func (f *fragmentation) rate(r *room, s *need, _ *kind) (float64, cards) {
	plain := *r
	plain.memory = 0
	before := f.value(plain)
	return least(&plain, s, func(x *room) float64 {
		x.memory = 0
		return -math.Trunc(100 / (1 + math.Exp((f.value(*x)-before)/Whole)))
	})
}

// bestFit leaves the least.
type bestFit struct{}

func (bestFit) rate(r *room, s *need, _ *kind) (float64, cards) {
	rest := float64(r.cpu-s.cpu)/largeCPU/2 + float64(r.left()-s.demand())/largeCards/2
	return -math.Trunc(100 * (1 - rest)), r.tight(s)
}

// dotProduct takes the node whose free amounts point least the way of the task.
type dotProduct struct{}

func (dotProduct) rate(r *room, s *need, _ *kind) (float64, cards) {
	dot := float64(r.cpu)/largeCPU*float64(s.cpu)/largeCPU + float64(r.left())/largeCards*float64(s.demand())/largeCards
	return -math.Trunc(100 * (1 - dot/2)), r.tight(s)
}

// packing prefers cards in use, then free cards of nodes in use.
type packing struct{}

func (packing) rate(r *room, s *need, _ *kind) (float64, cards) {
	at := r.tight(s)
	if s.cards == 0 {
		return 0, at
	}
	idle := 0
	for _, f := range r.free[:r.cards] {
		if f == Whole {
			idle++
		}
	}
	if idle == int(r.cards) {
		return -float64(max(100/3-idle, idle)), at
	}
	fresh, used, need := 0, 0, int(s.cards)
	for _, f := range r.free[:r.cards] {
		if need > 0 && f >= s.share {
			need--
			if f == Whole {
				fresh++
			} else {
				used += int(f) * 100 / Whole
			}
		}
	}
	if fresh > 0 {
		return -float64(max(50-fresh, 100/3)), at
	}
	return -float64(max(100-used/10, 50)), at
}

// clustering keeps tasks that ask for the same number of cards together.
type clustering struct{}

func (clustering) rate(r *room, s *need, _ *kind) (float64, cards) {
	at := r.tight(s)
	if s.cards == 0 {
		return 0, at
	}
	base := 25
	switch {
	case r.ilks == s.ilk():
		base = 75
	case r.ilks&s.ilk() != 0:
		base = 50
	case r.ilks != 0:
		base = 0
	}
	return -float64(25*(largeCards-int(r.left()))/largeCards + base), at
}

// random takes any node, and any card of it; the dice are cast when a node is
// chosen, not when it is rated.
type random struct{}

func (random) rate(r *room, s *need, _ *kind) (float64, cards) {
	at := cards(1)
	if s.partial() {
		at = 0
		for i := range int(r.cards) {
			if r.free[i] >= s.share {
				at |= 1 << i
			}
		}
	}
	return 0, at
}

// balanced takes the node whose fullest resource stays the least full.
type balanced struct{}

func (balanced) rate(r *room, s *need, k *kind) (float64, cards) {
	full := 0.0
	for _, x := range [...][2]int32{{r.cpu - s.cpu, k.cpu}, {r.memory - s.memory, k.memory}, {r.left() - s.demand(), int32(r.cards) * Whole}} {
		if x[1] > 0 {
			full = max(full, 1-float64(x[0])/float64(x[1]))
		}
	}
	return full, r.tight(s)
}
