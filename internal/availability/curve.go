package availability

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// group is how instances of a microservice fail.
type group struct {
	instances int
	common    float64 // probability that they fail together or not at all
}

// loss of a microservice whose instances are each up with probability e^−s:
// −ln of its availability. Exact to the last digits also where the
// availability is too close to 1, or too small, to be written as a float64.
func (g group) loss(s float64) float64 {
	if g.instances == 0 {
		return math.Inf(1)
	}
	if down := g.down(-math.Expm1(-s)); down < 0.5 {
		return -math.Log1p(-down)
	}
	return -math.Log(g.up(s))
}

// up is the probability that a microservice is up, for the large s where
// 1 − down would lose its digits.
func (g group) up(s float64) float64 {
	return g.common*math.Exp(-s) - (1-g.common)*math.Expm1(float64(g.instances)*math.Log1p(-math.Exp(-s)))
}

// down is the probability that a microservice is down whose instances are each
// down with probability u.
func (g group) down(u float64) float64 {
	return g.common*u + (1-g.common)*math.Pow(u, float64(g.instances))
}

// weight of a submodule: −ln of its availability.
func weight(a float64) float64 { return -math.Log(a) }

// curve knows, for each number of microservices, how little a module can lose.
type curve struct {
	// losses by number of microservices, from 1: no split loses less, and if
	// exact the best one loses just that.
	losses []float64
	exact  bool
	// hull has the numbers at which the lower convex hull of losses touches it.
	hull []int
	// split is the best split into n that is known: indices of submodules.
	split func(n int) [][]int
}

// most is the largest number of microservices: that of the submodules.
func (c *curve) most() int { return len(c.losses) - 1 }

func newHull(losses []float64) []int {
	points := []int{1}
	for n := 2; n < len(losses); n++ {
		for len(points) > 1 {
			a, b := points[len(points)-2], points[len(points)-1]
			if (losses[b]-losses[a])*float64(n-a) <= (losses[n]-losses[a])*float64(b-a) {
				break
			}
			points = points[:len(points)-1]
		}
		points = append(points, n)
	}
	return points
}

// slope is the derivative of loss.
func (g group) slope(s float64) float64 {
	if g.instances == 0 {
		return 0
	}
	u, k := -math.Expm1(-s), float64(g.instances)
	return (g.common + (1-g.common)*k*math.Pow(u, k-1)) * math.Exp(-s) / g.up(s)
}

// newCurve chooses the cheapest way that is exact in at most work steps, or
// the water-filling bound.
func newCurve(m *Module, g group, work float64) *curve {
	c := &curve{exact: true, losses: make([]float64, len(m.Submodules)+1)}
	losses, exact := c.fill(m, g, work)
	c.exact = exact
	for n := 1; n < len(c.losses); n++ {
		c.losses[n] = losses(n)
	}
	c.hull = newHull(c.losses)
	return c
}

func (c *curve) fill(m *Module, g group, work float64) (losses func(int) float64, exact bool) {
	w := make([]float64, len(m.Submodules))
	for i := range m.Submodules {
		w[i] = weight(m.Submodules[i].Availability)
	}
	kinds := kindsOf(w)
	if len(kinds) == 1 {
		if e := newEven(w[0], len(w), g); isConvex(e.sizes) {
			c.split = e.split
			return e.loss, true
		}
	}
	if dpSteps(kinds, len(w)) <= work {
		e := newExact(kinds, len(w), g)
		c.split = e.split
		return func(n int) float64 { return e.loss[n][len(e.loss[n])-1] }, true
	}
	f := newFilled(w, g)
	c.split = f.split
	return f.bound, false
}

// even is the curve of equal submodules: the most even split is the best.
type even struct {
	sizes []float64 // loss of a microservice of i submodules
}

func newEven(w float64, n int, g group) even {
	e := even{sizes: make([]float64, n+1)}
	for i := 1; i <= n; i++ {
		e.sizes[i] = g.loss(float64(i) * w)
	}
	return e
}

// isConvex allows for rounding.
func isConvex(f []float64) bool {
	for i := 2; i < len(f); i++ {
		if a, b := f[i-1]-f[i-2], f[i]-f[i-1]; b < a-1e-12*math.Abs(a)-1e-300 {
			return false
		}
	}
	return true
}

func (e even) loss(n int) float64 {
	size, larger := (len(e.sizes)-1)/n, (len(e.sizes)-1)%n
	loss := float64(n-larger) * e.sizes[size]
	if larger > 0 {
		loss += float64(larger) * e.sizes[size+1]
	}
	return loss
}

func (e even) split(n int) [][]int {
	out := make([][]int, n)
	next, size, larger := 0, (len(e.sizes)-1)/n, (len(e.sizes)-1)%n
	for i := range out {
		k := size
		if i < larger {
			k++
		}
		for range k {
			out[i] = append(out[i], next)
			next++
		}
	}
	return out
}

// kind is what equal submodules have in common.
type kind struct {
	weight  float64
	members []int
}

// kindsOf gathers equal weights, the largest first.
func kindsOf(w []float64) []kind {
	at := map[float64]int{}
	var out []kind
	for i, x := range w {
		k, ok := at[x]
		if !ok {
			k = len(out)
			at[x] = k
			out = append(out, kind{weight: x})
		}
		out[k].members = append(out[k].members, i)
	}
	slices.SortFunc(out, func(a, b kind) int { return cmp.Compare(b.weight, a.weight) })
	return out
}

// dpSteps is about how many steps newExact takes.
func dpSteps(kinds []kind, n int) float64 {
	pairs := 1.0 // states times the microservices that can be cut from each
	for _, k := range kinds {
		c := float64(len(k.members))
		pairs *= (c + 1) * (c + 2) / 2
	}
	return pairs * float64(n)
}

// exactCurve comes from dynamic programming over how many of each kind are left.
type exactCurve struct {
	kinds  []kind
	stride []int
	loss   [][]float64 // [n][state]: least loss of the submodules in state as n microservices
	cut    [][]int32   // the microservice cut off to get there, as a state
}

func newExact(kinds []kind, total int, g group) *exactCurve {
	e := &exactCurve{kinds: kinds, stride: make([]int, len(kinds))}
	states := 1
	for i, k := range kinds {
		e.stride[i] = states
		states *= len(k.members) + 1
	}
	// of: the loss of one microservice that holds a state.
	of, counts := make([]float64, states), make([][]int, states)
	for st := range states {
		counts[st] = e.counts(st)
		s := 0.0
		for i, n := range counts[st] {
			s += float64(n) * kinds[i].weight
		}
		of[st] = g.loss(s)
	}
	parts := make([][]int32, states)
	for st := 1; st < states; st++ {
		parts[st] = e.parts(counts[st])
	}
	e.loss, e.cut = make([][]float64, total+1), make([][]int32, total+1)
	for n := 1; n <= total; n++ {
		e.loss[n], e.cut[n] = make([]float64, states), make([]int32, states)
		for st := range states {
			e.loss[n][st] = math.Inf(1)
			if n == 1 && st > 0 {
				e.loss[1][st], e.cut[1][st] = of[st], int32(st)
			}
			if n == 1 {
				continue
			}
			for _, part := range parts[st] {
				if rest := st - int(part); rest > 0 {
					if l := of[part] + e.loss[n-1][rest]; l < e.loss[n][st] {
						e.loss[n][st], e.cut[n][st] = l, part
					}
				}
			}
		}
	}
	return e
}

func (e *exactCurve) counts(state int) []int {
	out := make([]int, len(e.kinds))
	for i := range e.kinds {
		out[i] = state / e.stride[i] % (len(e.kinds[i].members) + 1)
	}
	return out
}

// parts lists the microservices that can be cut from a state and that hold
// one of its first kind: each split is then met once, not in every order.
func (e *exactCurve) parts(have []int) []int32 {
	first := slices.IndexFunc(have, func(n int) bool { return n > 0 })
	out := []int32{0}
	for i, n := range have {
		var next []int32
		for _, base := range out {
			for k := range n + 1 {
				if i == first && k == 0 {
					continue
				}
				next = append(next, base+int32(k*e.stride[i]))
			}
		}
		out = next
	}
	return out
}

func (e *exactCurve) split(n int) [][]int {
	used := make([]int, len(e.kinds))
	state := len(e.cut[1]) - 1
	var out [][]int
	for ; n > 0; n-- {
		part := int(e.cut[n][state])
		var members []int
		for i, k := range e.counts(part) {
			members = append(members, e.kinds[i].members[used[i]:used[i]+k]...)
			used[i] += k
		}
		out, state = append(out, members), state-part
	}
	return out
}

// filled is the curve of many unequal submodules: a bound that is near, and
// splits that are near the bound.
type filled struct {
	g     group
	order []int     // submodules by weight, the heaviest first
	w     []float64 // weights in that order
	rest  []float64 // rest[i]: sum of w[i:]
	alone []float64 // alone[i]: loss of the first i, each alone
	bend  bool      // the loss is convex over the whole range
}

func newFilled(w []float64, g group) *filled {
	f := &filled{g: g, order: make([]int, len(w)), w: make([]float64, len(w)), rest: make([]float64, len(w)+1), alone: make([]float64, len(w)+1)}
	for i := range f.order {
		f.order[i] = i
	}
	slices.SortStableFunc(f.order, func(a, b int) int { return cmp.Compare(w[b], w[a]) })
	for i, o := range f.order {
		f.w[i] = w[o]
		f.alone[i+1] = f.alone[i] + g.loss(w[o])
	}
	for i := len(w) - 1; i >= 0; i-- {
		f.rest[i] = f.rest[i+1] + f.w[i]
	}
	samples := make([]float64, 257)
	for i := range samples {
		samples[i] = g.loss(f.rest[0] * float64(i) / 256)
	}
	f.bend = isConvex(samples)
	return f
}

// bound fills microservices evenly as if weights could be divided, but for
// those heavier than their share, which stand alone. Any split is less even.
func (f *filled) bound(n int) float64 {
	if !f.bend {
		return 0 // with a common cause evenness is not the best; this always holds
	}
	heavy := sort.Search(n-1, func(i int) bool { return f.w[i]*float64(n-i) <= f.rest[i] })
	return f.alone[heavy] + float64(n-heavy)*f.g.loss(f.rest[heavy]/float64(n-heavy))
}

// split puts the heaviest that is left where the least is, then exchanges.
func (f *filled) split(n int) [][]int {
	out, sums := make([][]int, n), make([]float64, n)
	h := make([]int, n) // a heap of microservices by sum
	for i := range h {
		h[i] = i
	}
	down := func(i int) {
		for {
			k := i
			for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
				if sums[h[c]] < sums[h[k]] {
					k = c
				}
			}
			if k == i {
				return
			}
			h[i], h[k] = h[k], h[i]
			i = k
		}
	}
	for i, o := range f.order {
		g := h[0]
		out[g] = append(out[g], o)
		sums[g] += f.w[i]
		down(0)
	}
	f.exchange(out, sums)
	return out
}

// exchange evens out the heaviest microservice with each other one as long as
// that helps: a move or a swap that halves their difference best.
func (f *filled) exchange(out [][]int, sums []float64) {
	if len(out) < 2 {
		return
	}
	weights := make([]float64, len(f.order))
	for i, o := range f.order {
		weights[o] = f.w[i]
	}
	for range 4 * len(out) {
		a, b := 0, 0
		for i := range sums {
			if sums[i] > sums[a] && len(out[i]) > 1 || len(out[a]) == 1 {
				a = i
			}
			if sums[i] < sums[b] {
				b = i
			}
		}
		gap := sums[a] - sums[b]
		best, from, to := gap*(1-1e-9), -1, -1
		for i, x := range out[a] {
			if d := math.Abs(gap - 2*weights[x]); d < best && len(out[a]) > 1 {
				best, from, to = d, i, -1
			}
			for j, y := range out[b] {
				if d := math.Abs(gap - 2*(weights[x]-weights[y])); d < best {
					best, from, to = d, i, j
				}
			}
		}
		if from < 0 {
			return
		}
		x := out[a][from]
		if to >= 0 {
			y := out[b][to]
			out[a][from], out[b][to] = y, x
			sums[a], sums[b] = sums[a]-weights[x]+weights[y], sums[b]-weights[y]+weights[x]
			continue
		}
		out[a] = slices.Delete(out[a], from, from+1)
		out[b] = append(out[b], x)
		sums[a], sums[b] = sums[a]-weights[x], sums[b]+weights[x]
	}
}

// lossOf is what a split really loses.
func lossOf(m *Module, split [][]int, g group) float64 {
	total := 0.0
	for _, members := range split {
		s := 0.0
		for _, j := range members {
			s += weight(m.Submodules[j].Availability)
		}
		total += g.loss(s)
	}
	return total
}
