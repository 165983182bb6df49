package availability

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Method is a way to split modules into microservices.
type Method string

const (
	// None makes each module one microservice: the fewest.
	None Method = "none"
	// Full makes each submodule one: the most.
	Full Method = "full"
	// Aware makes as few as reach the target.
	Aware Method = "aware"
	// Clustered joins what depends on each other, whatever module it is of.
	Clustered Method = "fca"
)

// Methods lists all methods.
func Methods() []Method { return []Method{None, Full, Aware, Clustered} }

// Plan is a system split into microservices.
type Plan struct {
	Method        Method
	Microservices int
	Availability  float64
	// Unavailability is 1 − Availability, exact also where that is written as 1.
	Unavailability float64
	Target         float64 // 0: none
	Reachable      bool    // the target is reached
	// Minimal says that fewer microservices are proven not to do. AtLeast is the
	// number proven to be needed; 0: the target cannot be reached.
	Minimal bool
	AtLeast int
	// Cost of all instances.
	Cost    int64
	Modules []ModulePlan
	// Advice is set where the target is not reached.
	Advice *Advice
}

// ModulePlan is a module of a plan.
type ModulePlan struct {
	Name          string
	Availability  float64
	Instances     int
	Microservices [][]string // names of the submodules in each
}

// Advice says what would reach the target.
type Advice struct {
	// Instances of every microservice, with each submodule its own microservice;
	// 0: no number up to MaxInstances does.
	Instances int
	// Submodule is the availability every submodule would need, if none were
	// better than that, with the instances as they are; 0: none does.
	Submodule float64
}

// Make plans a checked system by a method.
func Make(s *System, method Method) (*Plan, error) {
	p := newPlanner(s)
	var counts []int
	switch method {
	case None:
		counts = p.all(func(*curve) int { return 1 })
	case Full:
		counts = p.all((*curve).most)
	case Aware:
		return p.aware()
	case Clustered:
		return p.clustered()
	default:
		return nil, fault.New(fault.Invalid, "method must be one of %v, got %q", Methods(), string(method))
	}
	plan := p.plan(method, p.splits(counts))
	plan.AtLeast = plan.Microservices
	return plan, nil
}

// workAll bounds the steps spent on exact curves, and on the exact choice of
// their points, of a whole system.
const (
	workAll = 1e8
	workOne = 1e7
)

// planner is a system with the curves of its modules.
type planner struct {
	sys    *System
	states []state
	curves []*curve // by module, with all sites up
}

// state is a set of sites that are up.
type state struct {
	probability float64
	up          []bool
}

func newPlanner(s *System) *planner {
	p := &planner{sys: s, states: states(s.Sites), curves: make([]*curve, len(s.Modules))}
	for i := range s.Modules {
		p.curves[i] = p.curve(i, p.states[0])
	}
	return p
}

// states lists the sets of sites that are up, all of them first.
func states(sites []Site) []state {
	out := []state{{probability: 1}}
	for _, site := range sites {
		var next []state
		for _, is := range []bool{true, false} {
			for _, st := range out {
				q := site.Availability
				if !is {
					q = 1 - q
				}
				next = append(next, state{st.probability * q, append(slices.Clone(st.up), is)})
			}
		}
		out = next
	}
	return out
}

// group of a module's microservices while only some sites are up.
func (p *planner) group(module int, st state) group {
	return p.groupOf(p.sys.Modules[module].Instances, st)
}

func (p *planner) groupOf(instances int, st state) group {
	up := instances
	if len(st.up) > 0 {
		up = 0
		for i := range instances {
			if st.up[i%len(st.up)] {
				up++
			}
		}
	}
	return group{instances: up, common: p.sys.CommonCause}
}

func (p *planner) curve(module int, st state) *curve {
	return newCurve(&p.sys.Modules[module], p.group(module, st), min(workOne, workAll/float64(len(p.sys.Modules))))
}

func (p *planner) all(f func(*curve) int) []int {
	out := make([]int, len(p.curves))
	for i, c := range p.curves {
		out[i] = f(c)
	}
	return out
}

func (p *planner) splits(counts []int) [][][]int {
	out := make([][][]int, len(counts))
	for i, n := range counts {
		out[i] = p.curves[i].split(n)
	}
	return out
}

// lost is what the system loses in a state, split as given.
func (p *planner) lost(splits [][][]int, st state) float64 {
	total := 0.0
	for i := range splits {
		total += lossOf(&p.sys.Modules[i], splits[i], p.group(i, st))
	}
	return total
}

// down is the unavailability of the system, over all states of its sites.
func (p *planner) down(loss func(state) float64) float64 {
	u := 0.0
	for _, st := range p.states {
		if st.probability > 0 {
			u += st.probability * -math.Expm1(-loss(st))
		}
	}
	return u
}

// enough allows for rounding in the last digits.
func (p *planner) enough(down float64) bool {
	return p.sys.Target > 0 && down <= (1-p.sys.Target)*(1+1e-12)
}

// plan writes down splits.
func (p *planner) plan(method Method, splits [][][]int) *Plan {
	u := p.down(func(st state) float64 { return p.lost(splits, st) })
	out := &Plan{Method: method, Unavailability: u, Availability: 1 - u, Target: p.sys.Target, Reachable: p.enough(u)}
	for i, split := range splits {
		m := &p.sys.Modules[i]
		mp := ModulePlan{Name: m.Name, Instances: m.Instances, Availability: 1 - p.down(func(st state) float64 { return lossOf(m, split, p.group(i, st)) })}
		for _, members := range split {
			names := make([]string, len(members))
			for k, j := range members {
				names[k] = m.Submodules[j].Name
			}
			mp.Microservices = append(mp.Microservices, names)
		}
		out.Microservices += len(split)
		out.Cost += m.Cost * int64(m.Instances) * int64(len(split))
		out.Modules = append(out.Modules, mp)
	}
	return out
}

// aware finds the fewest microservices that reach the target, and with as many
// the highest availability.
func (p *planner) aware() (*Plan, error) {
	if p.sys.Target == 0 {
		return nil, fault.Fields(fault.Field{Path: "target", Problem: "is required: the availability wanted, such as 0.9999"})
	}
	atLeast := p.atLeast()
	if atLeast == 0 {
		plan := p.plan(Aware, p.splits(p.all(bestCount)))
		if !plan.Reachable { // else the bound was rounded just below
			plan.Advice = p.advice()
			return plan, nil
		}
	}
	var splits [][][]int
	var exact bool
	if len(p.states) > 1 {
		splits, exact = p.reachSites()
	} else {
		splits = p.reach()
	}
	plan := p.plan(Aware, splits)
	if plan.AtLeast = max(atLeast, len(p.curves)); exact {
		plan.AtLeast = plan.Microservices
	}
	plan.Minimal = plan.Reachable && plan.Microservices == plan.AtLeast
	if !plan.Reachable {
		plan.Advice = p.advice()
	}
	return plan, nil
}

// bestCount is the smallest number with the least loss: the most, unless a
// common cause makes sharing better.
func bestCount(c *curve) int {
	best := c.most()
	if !c.exact {
		return best
	}
	for n := best - 1; n >= 1; n-- {
		if c.losses[n] <= c.losses[best] {
			best = n
		}
	}
	return best
}

// walk goes through the numbers of microservices from one for each module up,
// always where the hull of the curves falls fastest, until stop says so, and
// tells it the loss of the hulls. For every number no choice loses less.
type walk struct {
	curves []*curve
	counts []int
	loss   float64
	order  steps
}

// step is the next piece of a module's hull.
type step struct {
	module int
	points []int // those ahead
	gain   float64
}

type steps []step

func (s steps) Len() int           { return len(s) }
func (s steps) Less(i, j int) bool { return s[i].gain > s[j].gain }
func (s steps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)        { *s = append(*s, x.(step)) }
func (s *steps) Pop() any {
	old := *s
	x := old[len(old)-1]
	*s = old[:len(old)-1]
	return x
}

func newWalk(curves []*curve) *walk {
	w := &walk{curves: curves, counts: make([]int, len(curves))}
	for i, c := range curves {
		w.counts[i] = 1
		w.loss += c.losses[1]
		if s := (step{module: i, points: c.hull}); w.aim(&s) {
			w.order = append(w.order, s)
		}
	}
	heap.Init(&w.order)
	return w
}

// aim sets the gain of a step's next piece; false: nothing is gained any more.
func (w *walk) aim(s *step) bool {
	if len(s.points) < 2 {
		return false
	}
	c := w.curves[s.module]
	a, b := s.points[0], s.points[1]
	s.gain = (c.losses[a] - c.losses[b]) / float64(b-a)
	return s.gain > 0
}

// next adds one microservice; the module it went to, or -1 at the end.
func (w *walk) next() int {
	if len(w.order) == 0 {
		return -1
	}
	s := &w.order[0]
	i := s.module
	w.counts[i]++
	w.loss -= s.gain
	if w.counts[i] == s.points[1] {
		s.points = s.points[1:]
		if !w.aim(s) {
			heap.Pop(&w.order)
		} else {
			heap.Fix(&w.order, 0)
		}
	}
	return i
}

// atLeast is a number of microservices that every split reaching the target
// has; 0: none reaches it.
func (p *planner) atLeast() int {
	// Each state of the sites by itself loses at least what its own walk says.
	down := make([]float64, 1) // by number of microservices beyond one for each module
	for _, st := range p.states {
		if st.probability == 0 {
			continue
		}
		curves := p.curves
		if len(p.states) > 1 {
			curves = make([]*curve, len(p.curves))
			for i := range curves {
				curves[i] = p.curve(i, st)
			}
		}
		w, n := newWalk(curves), 0
		for {
			if n == len(down) {
				down = append(down, down[n-1])
			}
			if len(p.states) == 1 {
				// Nothing else is added to it: stop as early as possible.
				if p.enough(-math.Expm1(-w.loss) * st.probability) {
					return len(p.curves) + n
				}
			} else {
				down[n] += st.probability * -math.Expm1(-w.loss)
			}
			n++
			if w.next() < 0 {
				break
			}
		}
		for ; n < len(down); n++ {
			down[n] += st.probability * -math.Expm1(-w.loss)
		}
	}
	if len(p.states) > 1 {
		for n, u := range down {
			if p.enough(u) {
				return len(p.curves) + n
			}
		}
	}
	return 0
}

// reach finds splits that reach the target with few microservices, where no
// site fails.
func (p *planner) reach() [][][]int {
	if counts := p.exactCounts(); counts != nil {
		return p.splits(counts)
	}
	w := newWalk(p.curves)
	splits := make([][][]int, len(p.curves))
	loss, total := make([]float64, len(splits)), 0.0
	put := func(i, n int) {
		splits[i] = p.curves[i].split(n)
		total -= loss[i]
		loss[i] = lossOf(&p.sys.Modules[i], splits[i], p.group(i, p.states[0]))
		total += loss[i]
	}
	for i := range splits {
		put(i, 1)
	}
	// Splits of large unequal modules are costly: they are made when the bound
	// says that it is time.
	limit, stale := -math.Log(p.sys.Target), map[int]bool{}
	for !p.enough(-math.Expm1(-total)) {
		i := w.next()
		if i < 0 {
			break
		}
		stale[i] = true
		if w.loss > limit {
			continue
		}
		for i := range stale {
			put(i, w.counts[i])
		}
		clear(stale)
	}
	for i := range stale {
		put(i, w.counts[i])
	}
	return splits
}

// exactCounts finds the fewest microservices and, with as many, the least
// loss, where all curves are exact; nil where the walk is to be trusted or
// this is too long.
func (p *planner) exactCounts() []int {
	most, straight := 0, true
	for _, c := range p.curves {
		if !c.exact {
			return nil
		}
		most += c.most()
		straight = straight && len(c.hull) == c.most()
	}
	if straight {
		w := newWalk(p.curves)
		for !p.enough(-math.Expm1(-w.loss)) && w.next() >= 0 {
		}
		return w.counts
	}
	if float64(most)*float64(most) > workAll {
		return nil
	}
	// best[i][n]: least loss of the first i modules as n microservices.
	best := [][]float64{{0}}
	took := [][]int32{nil}
	for _, c := range p.curves {
		last := best[len(best)-1]
		next, from := make([]float64, len(last)+c.most()), make([]int32, len(last)+c.most())
		for n := range next {
			next[n] = math.Inf(1)
		}
		for a, l := range last {
			for n := 1; n <= c.most(); n++ {
				if v := l + c.losses[n]; v < next[a+n] {
					next[a+n], from[a+n] = v, int32(n)
				}
			}
		}
		best, took = append(best, next), append(took, from)
	}
	final := best[len(best)-1]
	n := slices.IndexFunc(final, func(l float64) bool { return p.enough(-math.Expm1(-l)) })
	if n < 0 {
		n = slices.Index(final, slices.MinFunc(final, cmp.Compare[float64]))
	}
	counts := make([]int, len(p.curves))
	for i := len(counts); i > 0; i-- {
		counts[i-1] = int(took[i][n])
		n -= counts[i-1]
	}
	return counts
}

// advice finds out what would reach the target.
func (p *planner) advice() *Advice {
	with := func(change func(*System)) bool {
		s := *p.sys
		s.Modules = slices.Clone(p.sys.Modules)
		for i := range s.Modules {
			s.Modules[i].Submodules = slices.Clone(p.sys.Modules[i].Submodules)
		}
		change(&s)
		q := &planner{sys: &s, states: p.states}
		return q.enough(q.down(func(st state) float64 {
			l := 0.0
			for i := range s.Modules {
				for _, sub := range s.Modules[i].Submodules {
					l += q.group(i, st).loss(weight(sub.Availability))
				}
			}
			return l
		}))
	}
	a := &Advice{}
	for k := 1; k <= MaxInstances; k++ {
		if with(func(s *System) {
			for i := range s.Modules {
				s.Modules[i].Instances = k
			}
		}) {
			a.Instances = k
			break
		}
	}
	better := func(to float64) bool {
		return with(func(s *System) {
			for i := range s.Modules {
				for j := range s.Modules[i].Submodules {
					sub := &s.Modules[i].Submodules[j]
					sub.Availability = max(sub.Availability, to)
				}
			}
		})
	}
	// The unavailability is searched for: it is what spans orders of magnitude.
	lo, hi := -16.0, 0.0 // powers of ten: enough, too much
	if better(1 - math.Pow(10, lo)) {
		for hi-lo > 1e-6 {
			if mid := (lo + hi) / 2; better(1 - math.Pow(10, mid)) {
				lo = mid
			} else {
				hi = mid
			}
		}
		a.Submodule = 1 - math.Pow(10, lo)
	}
	return a
}
