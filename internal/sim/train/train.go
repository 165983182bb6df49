// Package train learns weights of policies for a network of centers by playing
// work over and over: which weights serve which kind of job best, for a goal
// that is stated.
//
// What is learned is data, not a black box: for each class of jobs a weight for
// each of a few policies. It is written as policy documents, whose match rules
// say which jobs are of the class, and goes live the way any policy does: looked
// at, issued, compared with what was there, taken back.
//
// # Method
//
// A set of weights is judged by the goal: the weighted mean of a few measures,
// each relative to what the preset "balanced" comes to on the same input; below
// 1 is better. The cross-entropy method looks for the best set: weights are drawn
// around a mean, the best of those drawn make the next mean and spread. First
// one set for all jobs is learned, then, starting from it, one for each class.
//
// # Safety
//
// Three inputs that have nothing in common are used: one kind to learn from,
// one to choose by, one to report on. What was learned for the classes is kept
// only if it is better than the single set, and that only if it is better than
// every preset, on the inputs to choose by; else the better of them is the
// result, and the report says so. The figures shown are of the third kind, which
// nothing was fitted to.
package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// Policies are those that get weights.
var Policies = []string{"lowest-price", "lowest-energy", "lowest-carbon", "highest-performance", "least-load", "load-fairness", "idle-spec"}

// Class of jobs, by what is known before they run.
type Class struct {
	ID    string
	Title string
	// Match says the same as Of, as an expression of policy documents.
	Match string
	Of    func(*sim.Job) bool
}

// long is from when a job counts as long.
const long = 3600

// Classes of jobs; every job is of one.
func Classes() []Class {
	length := func(j *sim.Job) bool { return j.Run == sim.Forever || j.Run >= long*sim.Second }
	const longMatch = "job.tasks.exists(t, t.run_seconds >= 3600)"
	return []Class{
		{"short-single", "short, one replica", "!" + longMatch + " && job.replicas == 1", func(j *sim.Job) bool { return !length(j) && j.Replicas == 1 }},
		{"short-wide", "short, several replicas", "!" + longMatch + " && job.replicas > 1", func(j *sim.Job) bool { return !length(j) && j.Replicas > 1 }},
		{"long-single", "an hour and longer, one replica", longMatch + " && job.replicas == 1", func(j *sim.Job) bool { return length(j) && j.Replicas == 1 }},
		{"long-wide", "an hour and longer, several replicas", longMatch + " && job.replicas > 1", func(j *sim.Job) bool { return length(j) && j.Replicas > 1 }},
	}
}

// Goal weighs measures; those of weight 0 do not count.
type Goal struct {
	Completion float64 // mean time from arrival to the end
	Cost       float64 // of cards and cores held
	Energy     float64 // that is there because of the work
}

// Options of a training.
type Options struct {
	Goal        Goal
	Queue       sim.Queue
	Population  int // sets drawn in a generation, 4 to 200; 0: 16
	Generations int // 1 to 200; 0: 6
	Seed        uint64
	// Progress is called after each generation with how many are done of how many.
	Progress func(done, all int)
}

// Sets is a policy: a set of weights for each class, or one for all.
type Sets struct {
	Name    string             `json:"name"`
	All     map[string]int32   `json:"weights,omitempty"` // one for all jobs
	Classes []map[string]int32 `json:"classes,omitempty"` // or in the order of Classes
	// Choosing and Held are what the goal comes to on the inputs to choose by
	// and to report on, relative to the preset balanced: below 1 is better.
	Choosing float64 `json:"choosing"`
	Held     float64 `json:"held_out"`
}

// Report is what a training came to.
type Report struct {
	// Tried are the learned sets and all presets, the best by Choosing first.
	Tried []Sets `json:"tried"`
	// Chosen is the name of the first.
	Chosen string `json:"chosen"`
	// Gain is how much better Held of the chosen one is than that of the best
	// preset on the inputs to choose by, in per cent; below 0: worse.
	Gain float64 `json:"gain_percent"`
	Runs int     `json:"runs"` // simulations played
}

// Inputs to learn from, to choose by and to report on.
type Inputs struct {
	Learn, Choose, Report []*sim.Input
}

type trainer struct {
	ctx  context.Context
	opt  Options
	in   Inputs
	base map[*sim.Input]measures
	dice *rand.Rand
	runs int
	done int
	all  int
}

// measures of a run.
type measures struct{ completion, cost, energy float64 }

// weights by policy, in the order of Policies; each set of a list is for the
// class of its index, a single one for all.
type weights [][]float64

// Run trains. It returns fault.Invalid for inputs or options it cannot use.
func Run(ctx context.Context, in Inputs, opt Options) (*Report, error) {
	var c core.Check
	if opt.Population == 0 {
		opt.Population = 16
	}
	if opt.Generations == 0 {
		opt.Generations = 6
	}
	c.Range("population", int64(opt.Population), 4, 200)
	c.Range("generations", int64(opt.Generations), 1, 200)
	g := opt.Goal
	if !(g.Completion >= 0 && g.Cost >= 0 && g.Energy >= 0 && g.Completion+g.Cost+g.Energy > 0) {
		c.Add("goal", "must have weights from 0, one of them above 0, got %+v", g)
	}
	for _, part := range []struct {
		name string
		list []*sim.Input
	}{{"learn", in.Learn}, {"choose", in.Choose}, {"report", in.Report}} {
		if len(part.list) == 0 {
			c.Add(part.name, "is required")
		}
		if i := slices.IndexFunc(part.list, func(x *sim.Input) bool { return len(x.Centers) == 0 || len(x.Jobs) == 0 }); i >= 0 {
			c.Add(part.name, "must be centers with jobs, got %d centers and %d jobs", len(part.list[i].Centers), len(part.list[i].Jobs))
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	t := &trainer{ctx: ctx, opt: opt, in: in, base: map[*sim.Input]measures{}, dice: rand.New(rand.NewPCG(opt.Seed, 0x747261696e)), all: opt.Generations * (1 + len(Classes()))}
	if err := t.baseline(); err != nil {
		return nil, err
	}
	one, err := t.search(weights{t.even()}, 0, 0.35, t.presets())
	if err != nil {
		return nil, err
	}
	each := weights{}
	for range Classes() {
		each = append(each, slices.Clone(one[0]))
	}
	for i := range each {
		if each, err = t.search(each, i, 0.2, nil); err != nil {
			return nil, err
		}
	}
	return t.report(one, each)
}

// baseline plays what all else is compared with.
func (t *trainer) baseline() error {
	balanced := place.Presets()[0]
	inputs := slices.Concat(t.in.Learn, t.in.Choose, t.in.Report)
	got := make([]measures, len(inputs))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, x := range inputs {
		g.Go(func() (err error) {
			got[i], err = t.play(x, sim.Policy{Name: balanced.ID, Set: balanced})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	t.runs += len(inputs)
	for i, x := range inputs {
		if got[i].completion <= 0 {
			return fault.New(fault.Invalid, "no job of an input is done under the preset %s: there is nothing to learn from", balanced.ID)
		}
		t.base[x] = got[i]
	}
	return nil
}

func (t *trainer) play(in *sim.Input, p sim.Policy) (measures, error) {
	r, err := sim.Run(in, sim.Config{Policy: p, Queue: t.opt.Queue, Seed: 1, Watch: func(int64, *sim.Result) error { return t.ctx.Err() }})
	if err != nil {
		return measures{}, err
	}
	if err := t.ctx.Err(); err != nil {
		return measures{}, err
	}
	m := measures{completion: r.Completion.Mean}
	if r.CostFen != nil {
		m.cost = float64(*r.CostFen)
	}
	if r.WorkEnergy != nil {
		m.energy = *r.WorkEnergy
	}
	return m, nil
}

// goal is what measures come to relative to the baseline; what is not stated
// in an input does not count there.
func (t *trainer) goal(in *sim.Input, m measures) float64 {
	b, g := t.base[in], t.opt.Goal
	sum, all := 0.0, 0.0
	for _, x := range []struct{ weight, is, was float64 }{{g.Completion, m.completion, b.completion}, {g.Cost, m.cost, b.cost}, {g.Energy, m.energy, b.energy}} {
		if x.weight > 0 && x.was > 0 {
			sum, all = sum+x.weight*x.is/x.was, all+x.weight
		}
	}
	if all == 0 {
		return math.Inf(1)
	}
	return sum / all
}

// judge plays each policy on all inputs; the mean of the goal is its figure.
func (t *trainer) judge(inputs []*sim.Input, list []sim.Policy) ([]float64, error) {
	got := make([][]float64, len(list))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range list {
		got[i] = make([]float64, len(inputs))
		for k, in := range inputs {
			g.Go(func() error {
				m, err := t.play(in, p)
				got[i][k] = t.goal(in, m)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	t.runs += len(list) * len(inputs)
	out := make([]float64, len(list))
	for i := range got {
		for _, v := range got[i] {
			out[i] += v / float64(len(inputs))
		}
	}
	return out, nil
}

// even are equal weights.
func (t *trainer) even() []float64 {
	out := make([]float64, len(Policies))
	for i := range out {
		out[i] = 1 / float64(len(out))
	}
	return out
}

// presets are the weights presets give to the policies that get weights, each
// once: what people knew before.
func (t *trainer) presets() [][]float64 {
	var out [][]float64
	for _, p := range place.Presets() {
		w, sum := make([]float64, len(Policies)), 0.0
		for _, u := range p.Uses {
			if i := slices.Index(Policies, u.Policy.ID); i >= 0 {
				w[i] = float64(u.Weight)
				sum += w[i]
			}
		}
		for i := range w {
			w[i] /= sum
		}
		if sum > 0 && !slices.ContainsFunc(out, func(o []float64) bool { return slices.Equal(o, w) }) {
			out = append(out, w)
		}
	}
	return out
}

// search looks for better weights of one class, the others as they are: the
// cross-entropy method. It begins with from and the hints, and what it returns
// is never worse on the inputs to learn from than any of them.
func (t *trainer) search(from weights, class int, spread float64, hints [][]float64) (weights, error) {
	best, bestIs := from, math.Inf(1)
	mean, width := slices.Clone(from[class]), make([]float64, len(Policies))
	for i := range width {
		width[i] = spread
	}
	for n := range t.opt.Generations {
		var known [][]float64
		if n == 0 {
			known = append([][]float64{from[class]}, hints...)
		}
		drawn, list := make([]weights, max(t.opt.Population, len(known))), make([]sim.Policy, max(t.opt.Population, len(known)))
		for i := range drawn {
			w := slices.Clone(best)
			switch {
			case i < len(known):
				w[class] = known[i]
			case i == 0: // the best so far stays among them
			default:
				w[class] = make([]float64, len(Policies))
				for k := range w[class] {
					w[class][k] = max(0, mean[k]+width[k]*t.dice.NormFloat64())
				}
			}
			var err error
			if drawn[i], list[i], err = policy(w); err != nil {
				return nil, err
			}
		}
		is, err := t.judge(t.in.Learn, list)
		if err != nil {
			return nil, err
		}
		order := make([]int, len(drawn))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case is[a] < is[b]:
				return -1
			case is[a] > is[b]:
				return 1
			}
			return 0
		})
		if is[order[0]] < bestIs {
			best, bestIs = drawn[order[0]], is[order[0]]
		}
		elite := order[:max(2, len(order)/4)]
		for k := range mean {
			m, v := 0.0, 0.0
			for _, i := range elite {
				m += drawn[i][class][k] / float64(len(elite))
			}
			for _, i := range elite {
				v += (drawn[i][class][k] - m) * (drawn[i][class][k] - m) / float64(len(elite))
			}
			mean[k], width[k] = m, max(math.Sqrt(v), 0.02)
		}
		if t.done++; t.opt.Progress != nil {
			t.opt.Progress(t.done, t.all)
		}
	}
	return best, nil
}

// whole writes weights as whole numbers, the largest 1000; all 0 become equal.
func whole(w []float64) map[string]int32 {
	most := slices.Max(w)
	out := map[string]int32{}
	for i, id := range Policies {
		switch {
		case !(most > 0):
			out[id] = 1
		case math.Round(1000*w[i]/most) > 0:
			out[id] = int32(math.Round(1000 * w[i] / most))
		}
	}
	return out
}

// policy makes weights that add up to 1 for each class, and what plays them.
func policy(w weights) (weights, sim.Policy, error) {
	out := make(weights, len(w))
	sets := make([]*place.Set, len(w))
	for i := range w {
		sum := 0.0
		for _, x := range w[i] {
			sum += x
		}
		out[i] = slices.Clone(w[i])
		for k := range out[i] {
			if sum > 0 {
				out[i][k] /= sum
			}
		}
		set, err := setOf(fmt.Sprintf("learned-%d", i), whole(w[i]))
		if err != nil {
			return nil, sim.Policy{}, err
		}
		sets[i] = set
	}
	p := sim.Policy{Name: "learned", Set: sets[0]}
	if len(sets) > 1 {
		classes := Classes()
		p.Choose = func(j *sim.Job) *place.Set {
			for i := range classes {
				if classes[i].Of(j) {
					return sets[i]
				}
			}
			return nil
		}
	}
	return out, p, nil
}

func setOf(name string, w map[string]int32) (*place.Set, error) {
	var list []place.Weight
	for _, id := range Policies {
		if w[id] > 0 {
			list = append(list, place.Weight{Policy: id, Weight: int64(w[id])})
		}
	}
	return place.NewSet(name, place.Weighted, list)
}

// report judges what was learned, and the presets, on inputs not learned from.
func (t *trainer) report(one, each weights) (*Report, error) {
	_, single, err := policy(one)
	if err != nil {
		return nil, err
	}
	_, byClass, err := policy(each)
	if err != nil {
		return nil, err
	}
	r := &Report{Tried: []Sets{{Name: "learned", All: whole(one[0])}, {Name: "learned by class"}}}
	for i := range each {
		r.Tried[1].Classes = append(r.Tried[1].Classes, whole(each[i]))
	}
	list := []sim.Policy{single, byClass}
	for _, p := range place.Presets() {
		s := Sets{Name: p.ID, All: map[string]int32{}}
		for _, u := range p.Uses {
			s.All[u.Policy.ID] = int32(u.Weight)
		}
		r.Tried, list = append(r.Tried, s), append(list, sim.Policy{Name: p.ID, Set: p})
	}
	choosing, err := t.judge(t.in.Choose, list)
	if err != nil {
		return nil, err
	}
	held, err := t.judge(t.in.Report, list)
	if err != nil {
		return nil, err
	}
	preset := -1
	for i := range r.Tried {
		r.Tried[i].Choosing, r.Tried[i].Held = choosing[i], held[i]
		if i > 1 && (preset < 0 || choosing[i] < choosing[preset]) {
			preset = i
		}
	}
	bestPreset := r.Tried[preset]
	// Equal figures go to what is simpler: presets, then one set, then classes.
	rank := func(s Sets) int {
		switch {
		case s.Classes != nil:
			return 2
		case s.Name == "learned":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(r.Tried, func(a, b Sets) int {
		switch {
		case a.Choosing < b.Choosing:
			return -1
		case a.Choosing > b.Choosing:
			return 1
		}
		return rank(a) - rank(b)
	})
	r.Chosen, r.Runs = r.Tried[0].Name, t.runs
	r.Gain = 100 * (1 - r.Tried[0].Held/bestPreset.Held)
	return r, nil
}

// Split cuts the jobs of an input by arrival: half to learn from, a quarter to
// choose by and a quarter to report on.
func Split(in *sim.Input) (Inputs, error) {
	n := len(in.Jobs)
	if n < 8 {
		return Inputs{}, fault.Fields(fault.Field{Path: "jobs", Problem: fmt.Sprintf("must be at least 8 to learn from, got %d", n)})
	}
	jobs := slices.Clone(in.Jobs)
	slices.SortStableFunc(jobs, func(a, b sim.Job) int {
		switch {
		case a.Arrival < b.Arrival:
			return -1
		case a.Arrival > b.Arrival:
			return 1
		}
		return 0
	})
	part := func(from, to int) []*sim.Input {
		x := *in
		x.Jobs = jobs[from:to]
		return []*sim.Input{&x}
	}
	return Inputs{part(0, n/2), part(n/2, n*3/4), part(n*3/4, n)}, nil
}
