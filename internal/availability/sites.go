package availability

import (
	"math"
	"slices"
)

const (
	// maxListed is the largest module whose splits are all looked at.
	maxListed = 7
	// maxChoices bounds the splits of a system that are kept side by side.
	maxChoices = 20_000
)

// choice is a split of one module, or of the modules so far, with what it
// loses in each state of the sites. Where sites fail no split is the best in
// all states, so all are kept that no other one beats in every state.
type choice struct {
	count  int
	losses []float64
	split  [][]int
	before *choice
}

// beats reports whether c is at least as good as d in every state.
func (c *choice) beats(d *choice) bool {
	for k := range c.losses {
		if c.losses[k] > d.losses[k] {
			return false
		}
	}
	return c.count <= d.count
}

// choices lists the splits of a module that are worth keeping; exact says
// that no other one is.
func (p *planner) choices(module int) (out []*choice, exact bool) {
	m := &p.sys.Modules[module]
	add := func(split [][]int) {
		c := &choice{count: len(split), split: split}
		for _, st := range p.states {
			c.losses = append(c.losses, lossOf(m, split, p.group(module, st)))
		}
		out = append(out, c)
	}
	equal := !slices.ContainsFunc(m.Submodules, func(s Submodule) bool { return s.Availability != m.Submodules[0].Availability })
	switch {
	case equal && p.sys.CommonCause == 0: // the most even split is the best for any number of instances
		for n := range len(m.Submodules) {
			add(p.curves[module].split(n + 1))
		}
		return out, true
	case len(m.Submodules) <= maxListed:
		var groups [][]int
		var put func(j int)
		put = func(j int) {
			if j == len(m.Submodules) {
				split := make([][]int, len(groups))
				for i := range groups {
					split[i] = slices.Clone(groups[i])
				}
				add(split)
				return
			}
			for i := range groups {
				groups[i] = append(groups[i], j)
				put(j + 1)
				groups[i] = groups[i][:len(groups[i])-1]
			}
			groups = append(groups, []int{j})
			put(j + 1)
			groups = groups[:len(groups)-1]
		}
		put(0)
		return best(out), true
	}
	for _, st := range p.states {
		c := p.curve(module, st)
		for n := range c.most() {
			add(c.split(n + 1))
		}
	}
	return best(out), false
}

// best drops what another one beats.
func best(all []*choice) []*choice {
	slices.SortFunc(all, func(a, b *choice) int {
		if a.count != b.count {
			return a.count - b.count
		}
		return slices.Compare(a.losses, b.losses)
	})
	var out []*choice
	for _, c := range all {
		if !slices.ContainsFunc(out, func(d *choice) bool { return d.beats(c) }) {
			out = append(out, c)
		}
	}
	return out
}

// reachSites finds the splits with the fewest microservices that reach the
// target over all states of the sites. Where there are too many choices it
// keeps those that are best by the availability so far and is not exact.
func (p *planner) reachSites() (splits [][][]int, exact bool) {
	front, exact := []*choice{{losses: make([]float64, len(p.states))}}, true
	down := func(c *choice) float64 {
		u := 0.0
		for k, st := range p.states {
			if st.probability > 0 {
				u += st.probability * -math.Expm1(-c.losses[k])
			}
		}
		return u
	}
	for i := range p.sys.Modules {
		own, whole := p.choices(i)
		exact = exact && whole
		if most := max(maxChoices/len(own), 1); len(front) > most {
			front, exact = thin(front, most, down), false
		}
		next := make([]*choice, 0, len(front)*len(own))
		for _, f := range front {
			for _, o := range own {
				c := &choice{count: f.count + o.count, split: o.split, before: f, losses: make([]float64, len(p.states))}
				for k := range c.losses {
					c.losses[k] = f.losses[k] + o.losses[k]
				}
				next = append(next, c)
			}
		}
		front = best(next)
	}
	var chosen *choice
	for _, c := range front { // by count
		switch {
		case chosen == nil,
			!p.enough(down(chosen)) && down(c) < down(chosen),
			p.enough(down(chosen)) && c.count == chosen.count && down(c) < down(chosen):
			chosen = c
		}
	}
	splits = make([][][]int, len(p.sys.Modules))
	for i := len(splits) - 1; i >= 0; i-- {
		splits[i], chosen = chosen.split, chosen.before
	}
	return splits, exact
}

// thin keeps for each number of microservices those that are best so far.
func thin(front []*choice, most int, down func(*choice) float64) []*choice {
	counts := map[int][]*choice{}
	for _, c := range front {
		counts[c.count] = append(counts[c.count], c)
	}
	each := max(most/len(counts), 1)
	var out []*choice
	for _, cs := range counts {
		slices.SortFunc(cs, func(a, b *choice) int {
			if x, y := down(a), down(b); x != y {
				return map[bool]int{true: -1, false: 1}[x < y]
			}
			return slices.Compare(a.losses, b.losses)
		})
		out = append(out, cs[:min(each, len(cs))]...)
	}
	return out
}
