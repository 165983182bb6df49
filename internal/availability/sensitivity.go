package availability

import (
	"cmp"
	"math"
	"slices"
)

// Influence is what a submodule means for the system.
type Influence struct {
	Module       string  `json:"module"`
	Submodule    string  `json:"submodule"`
	Availability float64 `json:"availability"`
	// Importance is Birnbaum's: the derivative of the system's availability by
	// the submodule's.
	Importance float64 `json:"importance"`
	// Gain is by how much the system's unavailability falls if the submodule is
	// down half as often.
	Gain float64 `json:"gain"`
}

// Sensitivity says which submodules of a plan to improve first: those that
// gain most come first. The plan must be of the system, with modules.
func Sensitivity(s *System, plan *Plan) []Influence {
	p := newPlanner(s)
	splits := p.indices(plan)
	var out []Influence
	for i := range s.Modules {
		for j := range s.Modules[i].Submodules {
			sub := &s.Modules[i].Submodules[j]
			out = append(out, Influence{Module: s.Modules[i].Name, Submodule: sub.Name, Availability: sub.Availability})
		}
	}
	for _, st := range p.states {
		up := st.probability * math.Exp(-p.lost(splits, st))
		if up == 0 {
			continue
		}
		at := 0
		for i := range s.Modules {
			m, g := &s.Modules[i], p.group(i, st)
			for _, members := range splits[i] {
				sum := 0.0
				for _, j := range members {
					sum += weight(m.Submodules[j].Availability)
				}
				for _, j := range members {
					a := m.Submodules[j].Availability
					half := sum - weight(a) + weight((1+a)/2)
					out[at+j].Importance += up * g.slope(sum) / a
					out[at+j].Gain += up * math.Expm1(g.loss(sum)-g.loss(half))
				}
			}
			at += len(m.Submodules)
		}
	}
	slices.SortStableFunc(out, func(a, b Influence) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}

// indices finds the submodules a plan names.
func (p *planner) indices(plan *Plan) [][][]int {
	out := make([][][]int, len(plan.Modules))
	for i := range plan.Modules {
		at := map[string]int{}
		for j := range p.sys.Modules[i].Submodules {
			at[p.sys.Modules[i].Submodules[j].Name] = j
		}
		for _, names := range plan.Modules[i].Microservices {
			members := make([]int, len(names))
			for k, name := range names {
				members[k] = at[name]
			}
			out[i] = append(out[i], members)
		}
	}
	return out
}
