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

// The policies; all but Waste are for comparison.
const (
	Waste      Policy = "waste"
	FGD        Policy = "fgd"
	BestFit    Policy = "best-fit"
	DotProduct Policy = "dot-product"
	Packing    Policy = "packing"
	Clustering Policy = "clustering"
	Random     Policy = "random"
)

// Policies lists all policies.
func Policies() []Policy {
	return []Policy{Waste, FGD, BestFit, DotProduct, Packing, Clustering, Random}
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
		return random{dice}, nil
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

// waste is what is expected to be left of a node's cards.
type waste struct {
	memory
	play [][rounds][]shape // by class of cards: what can use it
	// least that any task asks for, by class
	least []shape
	fine  *fragmentation
}

func newWaste(c *Cluster, likely []Task) *waste {
	w := &waste{play: make([][rounds][]shape, len(c.models)), least: make([]shape, len(c.models)), fine: newFragmentation(c, likely)}
	w.memory = memory{of: w.expected, by: map[room]float64{}}
	for k := range w.least {
		w.least[k] = shape{cpu: math.MaxInt32, memory: math.MaxInt32, share: Whole}
	}
	var tasks []shape
	for _, t := range likely {
		if t.Cards > 0 {
			tasks = append(tasks, shapeOf(t))
		}
	}
	dice := rand.New(rand.NewPCG(99, 3)) // the same for all clusters
	for i := range rounds {
		for range min(steps, steps*len(tasks)) {
			s := tasks[dice.IntN(len(tasks))]
			for k, usable := range c.usable(&s) {
				if usable {
					w.play[k][i] = append(w.play[k][i], s)
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
	least := &w.least[r.class]
	for i := range w.play[r.class] {
		x := *r
		left := x.left()
		play := w.play[r.class][i]
		for k := range play {
			s := &play[k]
			if s.demand() > left || x.memory < s.memory || !x.fits(s) {
				continue
			}
			x.take(s, x.tightest(s))
			left -= s.demand()
			if left < int32(least.share) || x.cpu < least.cpu || x.memory < least.memory {
				break
			}
		}
		total += left
	}
	return float64(total)/rounds + finer*w.fine.amount(r)
}

func (w *waste) rate(r *room, s *shape) rate {
	const grain = 20 // of what is told apart, in thousandths of a card
	before, best := w.value(*r), rate{cost: math.Inf(1)}
	for card := range tries(r, s) {
		x := *r
		x.take(s, card)
		if cost := w.value(x) - before; cost < best.cost {
			best = rate{cost, int8(card)}
		}
	}
	best.cost = math.Floor(best.cost/grain+0.5) * grain
	return best
}

// tries goes through the cards that differ in what a part would leave.
func tries(r *room, s *shape) func(func(int) bool) {
	return func(yield func(int) bool) {
		if !s.partial() {
			yield(0)
			return
		}
		for i := range int(r.cards) {
			if r.free[i] >= s.share && !slices.Contains(r.free[:i], r.free[i]) && !yield(i) {
				return
			}
		}
	}
}

// fragmentation is what the likely tasks could not use of a node, on average.
type fragmentation struct {
	memory
	tasks  []shape
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
		s := shapeOf(t)
		s.memory = 0
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
		f.tasks, f.usable, f.share = append(f.tasks, s), append(f.usable, c.usable(&s)), append(f.share, float64(count[s]))
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

func (f *fragmentation) rate(r *room, s *shape) rate {
	plain := func(r room) room { r.memory = 0; return r }
	before, best := f.value(plain(*r)), rate{cost: math.Inf(1)}
	for card := range tries(r, s) {
		x := plain(*r)
		x.take(s, card)
		x.memory = 0
		score := math.Trunc(100 / (1 + math.Exp((f.value(x)-before)/Whole)))
		if -score < best.cost {
			best = rate{-score, int8(card)}
		}
	}
	return best
}

// bestFit leaves the least.
type bestFit struct{}

func (bestFit) rate(r *room, s *shape) rate {
	rest := float64(r.cpu-s.cpu)/largeCPU/2 + float64(r.left()-s.demand())/largeCards/2
	return rate{-math.Trunc(100 * (1 - rest)), int8(r.tightest(s))}
}

// dotProduct takes the node whose free amounts point least the way of the task.
type dotProduct struct{}

func (dotProduct) rate(r *room, s *shape) rate {
	dot := float64(r.cpu)/largeCPU*float64(s.cpu)/largeCPU + float64(r.left())/largeCards*float64(s.demand())/largeCards
	return rate{-math.Trunc(100 * (1 - dot/2)), int8(r.tightest(s))}
}

// packing prefers cards in use, then free cards of nodes in use.
type packing struct{}

func (packing) rate(r *room, s *shape) rate {
	card := int8(r.tightest(s))
	if s.cards == 0 {
		return rate{0, card}
	}
	idle := 0
	for _, f := range r.free[:r.cards] {
		if f == Whole {
			idle++
		}
	}
	if idle == int(r.cards) {
		return rate{-float64(max(100/3-idle, idle)), card}
	}
	fresh, used, need := 0, 0, int(s.cards)
	free := r.state().free
	for _, f := range free[:r.cards] {
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
		return rate{-float64(max(50-fresh, 100/3)), card}
	}
	return rate{-float64(max(100-used/10, 50)), card}
}

// clustering keeps tasks that ask for the same number of cards together.
type clustering struct{}

func (clustering) rate(r *room, s *shape) rate {
	card := int8(r.tightest(s))
	if s.cards == 0 {
		return rate{0, card}
	}
	base := 25
	switch {
	case r.kinds == s.kind():
		base = 75
	case r.kinds&s.kind() != 0:
		base = 50
	case r.kinds != 0:
		base = 0
	}
	return rate{-float64(25*(largeCards-int(r.left()))/largeCards + base), card}
}

type random struct{ dice *rand.Rand }

func (p random) rate(r *room, s *shape) rate {
	card := 0
	if s.partial() {
		n := 0
		for i := range int(r.cards) {
			if r.free[i] >= s.share {
				if n++; p.dice.IntN(n) == 0 {
					card = i
				}
			}
		}
	}
	return rate{p.dice.Float64(), int8(card)}
}
