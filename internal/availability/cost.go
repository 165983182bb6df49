package availability

import (
	"cmp"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Bounds of the choices kept, and looked at for one module, while costs are
// minimized.
const (
	maxFront  = 200_000
	maxMerged = 10_000_000
)

// option is a choice for one module, or for the modules so far.
type option struct {
	cost      int64
	loss      float64
	instances int
	count     int
	before    int // in the front of the modules before
}

// Cheapest plans the least cost, instances times what one costs, that reaches
// the target: for each module it chooses the split and the number of
// instances, 1 to the given number. It is exact, and therefore refuses systems
// whose choices are too many to keep.
func Cheapest(s *System, instances int) (*Plan, error) {
	switch {
	case s.Target == 0:
		return nil, fault.Fields(fault.Field{Path: "target", Problem: "is required: the availability wanted, such as 0.9999"})
	case len(s.Sites) > 0:
		return nil, fault.Fields(fault.Field{Path: "sites", Problem: "must be empty for the objective cost"})
	case instances < 1 || instances > MaxInstances:
		return nil, fault.New(fault.Invalid, "instances must be 1 to %d, got %d", MaxInstances, instances)
	}
	fronts := [][]option{{{}}}
	curves := make([][]*curve, len(s.Modules)) // by module and instances − 1
	for i := range s.Modules {
		m := &s.Modules[i]
		var own []option
		for k := 1; k <= instances; k++ {
			c := newCurve(m, group{instances: k, common: s.CommonCause}, min(workOne, workAll/float64(len(s.Modules)*instances)))
			if !c.exact {
				return nil, fault.Fields(fault.Field{Path: "modules", Problem: "module " + m.Name + " has too many unequal submodules to find the least cost; use the objective microservices"})
			}
			curves[i] = append(curves[i], c)
			for n := 1; n <= c.most(); n++ {
				own = append(own, option{cost: m.Cost * int64(k*n), loss: c.losses[n], instances: k, count: n})
			}
		}
		own = pareto(own)
		var next []option
		if len(fronts[i])*len(own) <= maxMerged {
			next = merge(fronts[i], own)
		}
		if next == nil || len(next) > maxFront {
			return nil, fault.Fields(fault.Field{Path: "modules", Problem: "there are too many choices to find the least cost; use the objective microservices, or costs that are small whole numbers"})
		}
		fronts = append(fronts, next)
	}
	last := fronts[len(fronts)-1]
	best := slices.IndexFunc(last, func(o option) bool { return -math.Expm1(-o.loss) <= (1-s.Target)*(1+1e-12) })
	reachable := best >= 0
	if !reachable {
		best = len(last) - 1
	}
	chosen := *s
	chosen.Modules = slices.Clone(s.Modules)
	splits := make([][][]int, len(s.Modules))
	for i := len(s.Modules); i > 0; i-- {
		o := fronts[i][best]
		chosen.Modules[i-1].Instances = o.instances
		splits[i-1] = curves[i-1][o.instances-1].split(o.count)
		best = o.before
	}
	p := &planner{sys: &chosen, states: states(nil)}
	plan := p.plan(Aware, splits)
	plan.Minimal = reachable
	if !reachable {
		plan.Advice = p.advice()
	}
	return plan, nil
}

// pareto keeps the options that no other one beats in cost and loss, by cost.
func pareto(all []option) []option {
	slices.SortFunc(all, func(a, b option) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.loss, b.loss)) })
	out := all[:0]
	least := math.Inf(1)
	for _, o := range all {
		if o.loss < least {
			out, least = append(out, o), o.loss
		}
	}
	return out
}

// merge combines the modules so far with one more.
func merge(front, own []option) []option {
	out := make([]option, 0, len(front)*len(own))
	for i, f := range front {
		for _, o := range own {
			out = append(out, option{cost: f.cost + o.cost, loss: f.loss + o.loss, instances: o.instances, count: o.count, before: i})
		}
	}
	return pareto(out)
}
