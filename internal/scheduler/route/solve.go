package route

import (
	"cmp"
	"math"
	"slices"
)

// far is what a microsecond of latency beyond the limit costs more: so much
// that no wait below the allowed use is worth it.
const far = int64(1_000_000_000_000)

// over is what a unit above the allowed use of a place costs at least.
const over = float64(100 * far)

// flow is the state of the search: how many units of each origin go where.
type flow struct {
	p     *Problem
	unit  float64   // requests per second
	cost  [][]int64 // [origin][place], Unreachable if so
	n     [][]int   // [origin][place] units
	load  []int     // [place] units
	usual [][]float64
	// swap[a][b] is the least it costs to move a unit that is served at a to
	// b, by[a][b] the origin it is of; none if nothing can be moved.
	swap [][]int64
	by   [][]int
}

const none = math.MaxInt64

// Solve finds the plan with the least mean time.
func Solve(p *Problem) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	total := 0.0
	for _, o := range p.Origins {
		total += o.Demand
	}
	f := newFlow(p, total/float64(p.Units))
	for _, o := range f.turns(f.units(total)) {
		f.add(o)
	}
	return f.plan(), nil
}

func newFlow(p *Problem, unit float64) *flow {
	f := &flow{p: p, unit: unit, load: make([]int, len(p.Places))}
	for o := range p.Origins {
		costs := slices.Clone(p.Latency[o])
		for q, l := range costs {
			switch {
			case p.Places[q].Replicas == 0:
				costs[q] = Unreachable
			case p.MaxLatency > 0 && l > p.MaxLatency:
				costs[q] = l + far
			}
		}
		f.cost, f.n = append(f.cost, costs), append(f.n, make([]int, len(p.Places)))
	}
	for range p.Places {
		row := make([]int64, len(p.Places))
		for i := range row {
			row[i] = none
		}
		f.swap, f.by = append(f.swap, row), append(f.by, make([]int, len(p.Places)))
	}
	f.usual = make([][]float64, len(p.Places))
	return f
}

// units cuts demand by the largest remainder; who asks for anything gets one.
func (f *flow) units(total float64) []int {
	out, left := make([]int, len(f.p.Origins)), f.p.Units
	if total == 0 {
		return out
	}
	type rest struct {
		origin int
		part   float64
	}
	var rests []rest
	for i, o := range f.p.Origins {
		exact := o.Demand / f.unit
		out[i] = int(exact)
		left -= out[i]
		rests = append(rests, rest{i, exact - float64(out[i])})
	}
	slices.SortStableFunc(rests, func(a, b rest) int { return cmp.Compare(b.part, a.part) })
	for _, r := range rests {
		if r.part > 0 && (left > 0 || out[r.origin] == 0) {
			out[r.origin]++
			left--
		}
	}
	return out
}

// turns lists whose unit is next: the origins in turn, so that none is last.
func (f *flow) turns(units []int) []int {
	var out []int
	for more := true; more; {
		more = false
		for o := range units {
			if units[o] > 0 {
				units[o]--
				out, more = append(out, o), true
			}
		}
	}
	return out
}

// marginal is what one unit more costs at a place, in microseconds: its
// service, what it waits itself, and what all others there wait longer for it.
func (f *flow) marginal(q int) float64 {
	n := f.load[q]
	for len(f.usual[q]) <= n {
		f.usual[q] = append(f.usual[q], f.marginalAt(q, len(f.usual[q])))
	}
	return f.usual[q][n]
}

func (f *flow) marginalAt(q, n int) float64 {
	place := &f.p.Places[q]
	limit := place.Capacity() * f.p.MaxUse
	next := float64(n+1) * f.unit
	if next > limit*(1+1e-9) {
		return over * (1 + next/limit) // the least overloaded first
	}
	return 1e6 * (1/place.Rate + (next*place.Wait(next)-float64(n)*f.unit*place.Wait(float64(n)*f.unit))/f.unit)
}

// add sends a unit of an origin the shortest way: to a place, from which
// another unit may move on to a second place, and so on.
func (f *flow) add(o int) {
	dist, from := slices.Clone(f.cost[o]), make([]int, len(f.p.Places))
	for q := range from {
		from[q] = -1
		if dist[q] == Unreachable {
			dist[q] = none
		}
	}
	for changed, round := true, 0; changed && round < len(dist); round++ {
		changed = false
		for a := range dist {
			if dist[a] == none {
				continue
			}
			for b, s := range f.swap[a] {
				if s != none && dist[a]+s < dist[b] {
					dist[b], from[b], changed = dist[a]+s, a, true
				}
			}
		}
	}
	best, least := -1, math.Inf(1)
	for q := range dist {
		if dist[q] == none {
			continue
		}
		if c := float64(dist[q]) + f.marginal(q); c < least {
			best, least = q, c
		}
	}
	if best < 0 {
		return
	}
	f.load[best]++
	for from[best] >= 0 {
		a := from[best]
		mover := f.by[a][best]
		f.move(mover, a, -1)
		f.move(mover, best, 1)
		best = a
	}
	f.move(o, best, 1)
}

// move changes how many units of an origin a place serves.
func (f *flow) move(o, q, by int) {
	f.n[o][q] += by
	switch {
	case by > 0 && f.n[o][q] == 1: // it can be moved now
		for b, c := range f.cost[o] {
			if s := c - f.cost[o][q]; b != q && c != Unreachable && s < f.swap[q][b] {
				f.swap[q][b], f.by[q][b] = s, o
			}
		}
	case by < 0 && f.n[o][q] == 0: // it cannot any more
		for b := range f.swap[q] {
			if f.swap[q][b] == none || f.by[q][b] != o {
				continue
			}
			f.swap[q][b] = none
			for r := range f.n {
				if c := f.cost[r][b]; f.n[r][q] > 0 && c != Unreachable && c-f.cost[r][q] < f.swap[q][b] {
					f.swap[q][b], f.by[q][b] = c-f.cost[r][q], r
				}
			}
		}
	}
}

func (f *flow) plan() *Plan {
	out := &Plan{}
	for o, row := range f.n {
		sum := 0
		for _, n := range row {
			sum += n
		}
		shares := make([]float64, len(row))
		if sum == 0 { // asks for nothing now, or reaches nothing: to the nearest
			if q := f.nearest(o); q >= 0 {
				shares[q] = 1
			}
		}
		for q, n := range row {
			if n > 0 {
				shares[q] = float64(n) / float64(sum)
			}
		}
		out.Share = append(out.Share, shares)
	}
	out.judge(f.p)
	return out
}

func (f *flow) nearest(o int) int {
	best := -1
	for q, c := range f.cost[o] {
		if c != Unreachable && (best < 0 || c < f.cost[o][best]) {
			best = q
		}
	}
	return best
}

// judge fills in what shares lead to.
func (out *Plan) judge(p *Problem) {
	out.Load, out.Over = make([]float64, len(p.Places)), make([]float64, len(p.Places))
	served, beyond, sum := 0.0, 0.0, 0.0
	for o, row := range out.Share {
		for q, s := range row {
			x := s * p.Origins[o].Demand
			out.Load[q] += x
			served += x
			if x > 0 {
				sum += x * float64(p.Latency[o][q])
			}
			if p.MaxLatency > 0 && p.Latency[o][q] > p.MaxLatency {
				beyond += x
			}
		}
	}
	for q := range p.Places {
		place := &p.Places[q]
		out.Over[q] = max(0, out.Load[q]-place.Capacity()*p.MaxUse*(1+1e-9))
		if x := out.Load[q]; x > 0 {
			sum += x * 1e6 * (place.Wait(x) + 1/place.Rate)
		}
	}
	if served > 0 {
		out.MeanMicros, out.Far = sum/served, beyond/served
	}
}

// Judge says what given shares lead to, for comparison.
func Judge(p *Problem, share [][]float64) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	out := &Plan{Share: share}
	out.judge(p)
	return out, nil
}
