package availability

import (
	"cmp"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// clustered joins submodules that depend on each other, whatever module they
// are of, until there are as many microservices as modules. It knows nothing
// of availability; it is here to be compared with.
func (p *planner) clustered() (*Plan, error) {
	if len(p.sys.Dependencies) == 0 {
		return nil, fault.Fields(fault.Field{Path: "dependencies", Problem: "is required by the method fca: what it joins submodules by"})
	}
	type sub struct{ module, index int }
	var subs []sub
	at := map[string]int{}
	for i := range p.sys.Modules {
		m := &p.sys.Modules[i]
		for j := range m.Submodules {
			at[m.Name+"/"+m.Submodules[j].Name] = len(subs)
			subs = append(subs, sub{i, j})
		}
	}
	parent := make([]int, len(subs))
	for i := range parent {
		parent[i] = i
	}
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	deps := slices.Clone(p.sys.Dependencies)
	slices.SortStableFunc(deps, func(a, b Dependency) int { return cmp.Compare(b.Strength, a.Strength) })
	clusters := len(subs)
	for _, d := range deps {
		a, aKnown := at[d.From]
		b, bKnown := at[d.To]
		if !aKnown || !bKnown || clusters == len(p.sys.Modules) {
			continue
		}
		if x, y := find(a), find(b); x != y {
			parent[max(x, y)] = min(x, y)
			clusters--
		}
	}
	members := map[int][]int{}
	for i := range subs {
		members[find(i)] = append(members[find(i)], i)
	}
	out := &Plan{Method: Clustered, Target: p.sys.Target}
	var sums []float64
	for i := range subs {
		if len(members[i]) == 0 {
			continue
		}
		s, cost, mp := 0.0, int64(0), ModulePlan{Instances: p.sys.Instances, Microservices: [][]string{nil}}
		for _, k := range members[i] {
			m := &p.sys.Modules[subs[k].module]
			s += weight(m.Submodules[subs[k].index].Availability)
			mp.Microservices[0] = append(mp.Microservices[0], m.Name+"/"+m.Submodules[subs[k].index].Name)
			cost = max(cost, m.Cost)
		}
		out.Cost += cost * int64(p.sys.Instances)
		mp.Name = mp.Microservices[0][0]
		sums = append(sums, s)
		mp.Availability = 1 - p.down(func(st state) float64 { return p.groupOf(p.sys.Instances, st).loss(s) })
		out.Modules = append(out.Modules, mp)
	}
	out.Unavailability = p.down(func(st state) float64 {
		l := 0.0
		for _, s := range sums {
			l += p.groupOf(p.sys.Instances, st).loss(s)
		}
		return l
	})
	out.Availability, out.Microservices, out.AtLeast = 1-out.Unavailability, len(sums), len(sums)
	out.Reachable = p.enough(out.Unavailability)
	return out, nil
}
