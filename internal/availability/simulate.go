package availability

import (
	"math"
	"math/rand/v2"
)

// Simulation is what a plan was seen to do in trials.
type Simulation struct {
	Trials int `json:"trials"`
	// Down is the share of trials in which the system was down.
	Down float64 `json:"unavailability"`
	// Low and High enclose the true value with 99 % confidence (Wilson).
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Model is what the formulas say.
	Model float64 `json:"model"`
	// Agrees says that Model lies between Low and High.
	Agrees bool `json:"agrees"`
}

// Simulate checks the formulas by throwing dice: each trial decides for each
// site and each submodule of each instance whether it is up, and looks whether
// every microservice has an instance that is.
func Simulate(s *System, plan *Plan, trials int, seed uint64) Simulation {
	p := newPlanner(s)
	splits := p.indices(plan)
	dice := rand.New(rand.NewPCG(seed, 0x59756e6865))
	up, downs := make([]bool, len(s.Sites)), 0
	for range trials {
		for i := range up {
			up[i] = dice.Float64() < s.Sites[i].Availability
		}
		if !p.trial(splits, up, dice) {
			downs++
		}
	}
	n, x := float64(trials), float64(downs)
	const z = 2.5758293035489004
	share := x / n
	mid := (share + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	out := Simulation{Trials: trials, Down: share, Low: max(0, mid-half), High: mid + half, Model: plan.Unavailability}
	out.Agrees = out.Low <= out.Model && out.Model <= out.High
	return out
}

// trial reports whether the system is up.
func (p *planner) trial(splits [][][]int, up []bool, dice *rand.Rand) bool {
	for i := range splits {
		m := &p.sys.Modules[i]
		for _, members := range splits[i] {
			instance := func() bool {
				for _, j := range members {
					if dice.Float64() >= m.Submodules[j].Availability {
						return false
					}
				}
				return true
			}
			together := p.sys.CommonCause > 0 && dice.Float64() < p.sys.CommonCause
			shared, any := together && instance(), false
			for k := range m.Instances {
				if len(up) > 0 && !up[k%len(up)] {
					continue
				}
				if together && shared || !together && instance() {
					any = true
					break
				}
			}
			if !any {
				return false
			}
		}
	}
	return true
}
