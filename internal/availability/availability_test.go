package availability_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/availability"
	"yunhe.dev/yunhe/internal/fault"
)

// partitions calls f with every way to split n things.
func partitions(n int, f func([][]int)) {
	var groups [][]int
	var put func(i int)
	put = func(i int) {
		if i == n {
			f(groups)
			return
		}
		for g := range groups {
			groups[g] = append(groups[g], i)
			put(i + 1)
			groups[g] = groups[g][:len(groups[g])-1]
		}
		groups = append(groups, []int{i})
		put(i + 1)
		groups = groups[:len(groups)-1]
	}
	put(0)
}

// up is the model written down as it is defined, with k instances.
func up(m availability.Module, groups [][]int, k int, common float64) float64 {
	a := 1.0
	for _, g := range groups {
		one := 1.0
		for _, j := range g {
			one *= m.Submodules[j].Availability
		}
		u := 1 - one
		a *= 1 - common*u - (1-common)*math.Pow(u, float64(k))
	}
	return a
}

// choice is a number of microservices of one module with the availability for
// each number of instances that are up.
type choice struct {
	n  int
	by []float64
}

// brute finds the fewest microservices and with them the best availability by
// looking at every split; 0 and the best of all where the target is missed.
func brute(s *availability.System) (int, float64) {
	var options [][]choice
	for _, m := range s.Modules {
		var own []choice
		partitions(len(m.Submodules), func(g [][]int) {
			c := choice{n: len(g)}
			for k := range m.Instances + 1 {
				c.by = append(c.by, up(m, g, k, s.CommonCause))
				if k == 0 {
					c.by[0] = 0
				}
			}
			own = append(own, c)
		})
		options = append(options, own)
	}
	total := func(chosen []choice) float64 {
		sum := 0.0
		for set := range 1 << len(s.Sites) {
			p := 1.0
			for i, site := range s.Sites {
				if set>>i&1 == 1 {
					p *= site.Availability
				} else {
					p *= 1 - site.Availability
				}
			}
			for i, c := range chosen {
				k := 0
				for j := range s.Modules[i].Instances {
					if len(s.Sites) == 0 || set>>(j%len(s.Sites))&1 == 1 {
						k++
					}
				}
				p *= c.by[k]
			}
			sum += p
		}
		return sum
	}
	fewest, best, all := 0, 0.0, 0.0
	var walk func(chosen []choice, n int)
	walk = func(chosen []choice, n int) {
		if len(chosen) < len(options) {
			for _, o := range options[len(chosen)] {
				walk(append(chosen, o), n+o.n)
			}
			return
		}
		a := total(chosen)
		all = max(all, a)
		if a < s.Target {
			return
		}
		if fewest == 0 || n < fewest || n == fewest && a > best {
			fewest, best = n, a
		}
	}
	walk(nil, 0)
	if fewest == 0 {
		return 0, all
	}
	return fewest, best
}

func randomSystem(dice *rand.Rand, unequal bool) *availability.System {
	s := &availability.System{Instances: 1 + dice.IntN(4)}
	for i := range 1 + dice.IntN(3) {
		m := availability.Module{Name: fmt.Sprintf("m%d", i)}
		if dice.IntN(3) == 0 {
			m.Instances = 1 + dice.IntN(4)
		}
		a := 0.7 + 0.3*dice.Float64()
		for j := range 1 + dice.IntN(5) {
			if unequal {
				a = 0.6 + 0.4*dice.Float64()
			}
			m.Submodules = append(m.Submodules, availability.Submodule{Name: fmt.Sprintf("s%d", j), Availability: a})
		}
		s.Modules = append(s.Modules, m)
	}
	return s
}

// target draws one from below the worst to above the best.
func target(dice *rand.Rand, s *availability.System) float64 {
	none, err := availability.Make(s, availability.None)
	if err != nil {
		panic(err)
	}
	full, err := availability.Make(s, availability.Full)
	if err != nil {
		panic(err)
	}
	x := -0.1 + 1.2*dice.Float64()
	if full.Availability-none.Availability < 1e-9 {
		return min(none.Availability, 0.9) * (0.9 + 0.05*x)
	}
	return min(max(none.Availability+x*(full.Availability-none.Availability), 1e-6), 1-1e-9)
}

func TestOptimal(t *testing.T) {
	for _, unequal := range []bool{false, true} {
		for _, common := range []bool{false, true} {
			t.Run(fmt.Sprintf("unequal=%v,common=%v", unequal, common), func(t *testing.T) {
				dice := rand.New(rand.NewPCG(1, 2))
				for range 300 {
					s := randomSystem(dice, unequal)
					if common {
						s.CommonCause = 0.3 * dice.Float64()
					}
					if err := s.Check(); err != nil {
						t.Fatal(err)
					}
					s.Target = target(dice, s)
					n, a := brute(s)
					plan, err := availability.Make(s, availability.Aware)
					if err != nil {
						t.Fatal(err)
					}
					if plan.Reachable != (n > 0) || n > 0 && (plan.Microservices != n || !plan.Minimal && !common) || math.Abs(plan.Availability-a) > 1e-12 {
						t.Fatalf("%+v: planned %d, %.15f, reachable %v, minimal %v; the best is %d, %.15f", s, plan.Microservices, plan.Availability, plan.Reachable, plan.Minimal, n, a)
					}
					if plan.Reachable && plan.AtLeast > n {
						t.Fatalf("%+v: says that at least %d are needed; %d do", s, plan.AtLeast, n)
					}
				}
			})
		}
	}
}

func TestSites(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 4))
	reached, proven, fewest := 0, 0, 0
	for i := range 150 {
		s := randomSystem(dice, i%2 == 0)
		for j := range 1 + dice.IntN(3) {
			s.Sites = append(s.Sites, availability.Site{Name: fmt.Sprintf("site%d", j), Availability: 0.9 + 0.1*dice.Float64()})
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Target = target(dice, s)
		n, a := brute(s)
		plan, err := availability.Make(s, availability.Aware)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !plan.Reachable && n > 0, plan.Reachable && n == 0:
			t.Fatalf("%+v: reachable %v, but the best is %d, %.12f", s, plan.Reachable, n, a)
		case plan.Reachable && (plan.AtLeast > n || plan.Microservices < n || plan.Minimal && plan.Microservices != n):
			t.Fatalf("%+v: planned %d, minimal %v, at least %d; the fewest are %d", s, plan.Microservices, plan.Minimal, plan.AtLeast, n)
		case plan.Reachable:
			reached++
			if plan.Minimal {
				proven++
			}
			if plan.Microservices == n {
				fewest++
			}
		}
	}
	t.Logf("%d plans reach their target, %d with the fewest microservices, %d of them proven", reached, fewest, proven)
	if fewest < reached || proven < reached {
		t.Errorf("%d plans reach their target, %d with the fewest microservices, %d of them proven", reached, fewest, proven)
	}
}

// Modules too large for the exact way stay near their bound.
func TestLargeUnequal(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		s := &availability.System{Instances: 3}
		for i := range 3 {
			m := availability.Module{Name: fmt.Sprintf("m%d", i)}
			for j := range 60 {
				m.Submodules = append(m.Submodules, availability.Submodule{Name: fmt.Sprintf("s%d", j), Availability: 0.95 + 0.05*dice.Float64()})
			}
			s.Modules = append(s.Modules, m)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Target = target(dice, s)
		plan, err := availability.Make(s, availability.Aware)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Reachable && plan.Microservices > plan.AtLeast+1 {
			t.Errorf("planned %d, at least %d are needed", plan.Microservices, plan.AtLeast)
		}
		whole(t, s, plan)
	}
}

// whole checks that a plan has every submodule once.
func whole(t *testing.T, s *availability.System, plan *availability.Plan) {
	t.Helper()
	for i, m := range s.Modules {
		var want, got []string
		for _, sub := range m.Submodules {
			want = append(want, sub.Name)
		}
		for _, g := range plan.Modules[i].Microservices {
			if len(g) == 0 {
				t.Errorf("module %s has an empty microservice", m.Name)
			}
			got = append(got, g...)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("module %s: the plan has %v", m.Name, got)
		}
	}
}

func TestReproduce(t *testing.T) {
	r, err := availability.Reproduce()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Table1) != 40 || len(r.Figure9) != 25 || len(r.Figure10) != 25 {
		t.Fatalf("%d cells, %d and %d points", len(r.Table1), len(r.Figure9), len(r.Figure10))
	}
	better := 0
	for _, c := range r.Table1 {
		switch d := c.Availability - c.Paper; {
		case c.Better:
			better++
			if c.Submodule != 0.99 || c.Target == nil || *c.Target != 0.9999 || c.Microservices != 14 || math.Abs(c.Availability-99.991720) > 1e-6 {
				t.Errorf("%+v is said to be better than the paper", c)
			}
		case math.Abs(d) > 0.00001:
			t.Errorf("%s, %v: %.6f, the paper has %.5f", c.Method, c.Submodule, c.Availability, c.Paper)
		}
	}
	if better != 1 {
		t.Errorf("%d cells are better than the paper, want 1", better)
	}
}

// The numbers were computed by another program beforehand; 0: unreachable.
func TestFewest(t *testing.T) {
	want := map[int][5][5]int{ // by backups: rows by target, columns by submodule
		1: {{0, 0, 10, 10, 10}, {0, 0, 0, 16, 10}, {0, 0, 0, 0, 10}, {0, 0, 0, 0, 10}, {}},
		2: {{0, 14, 10, 10, 10}, {0, 0, 10, 10, 10}, {0, 0, 10, 10, 10}, {0, 0, 14, 10, 10}, {0, 0, 0, 15, 10}},
		3: {{18, 10, 10, 10, 10}, {0, 14, 10, 10, 10}, {0, 20, 10, 10, 10}, {0, 0, 10, 10, 10}, {0, 0, 10, 10, 10}},
		4: {{12, 10, 10, 10, 10}, {21, 10, 10, 10, 10}, {23, 12, 10, 10, 10}, {0, 14, 10, 10, 10}, {0, 24, 10, 10, 10}},
		5: {{10, 10, 10, 10, 10}, {13, 10, 10, 10, 10}, {14, 10, 10, 10, 10}, {23, 11, 10, 10, 10}, {0, 14, 10, 10, 10}},
	}
	for backups, rows := range want {
		for i, goal := range availability.PaperTargets {
			for j, a := range availability.PaperSubmodules {
				s := availability.PaperSystem(a, backups, goal)
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
				plan, err := availability.Make(s, availability.Aware)
				if err != nil {
					t.Fatal(err)
				}
				n := plan.Microservices
				if !plan.Reachable {
					n = 0
				}
				if n != rows[i][j] || plan.Reachable != plan.Minimal {
					t.Errorf("%d backups, target %v, submodules %v: %d microservices (minimal: %v), want %d", backups, goal, a, n, plan.Minimal, rows[i][j])
				}
			}
		}
	}
}

func TestFigure8(t *testing.T) {
	s := &availability.System{Instances: 2, Modules: []availability.Module{{Name: "m", Submodules: []availability.Submodule{
		{Name: "a", Availability: 0.9}, {Name: "b", Availability: 0.9}, {Name: "c", Availability: 0.9}, {Name: "d", Availability: 0.9}}}}}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method availability.Method
		goal   float64
		want   float64
	}{{availability.Full, 0, 0.96059601}, {availability.None, 0, 1 - 0.3439*0.3439}, {availability.Aware, 0.92, 0.9639 * 0.9639}} {
		s.Target = c.goal
		plan, err := availability.Make(s, c.method)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(plan.Availability-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.method, plan.Availability, c.want)
		}
	}
}

func TestAdvice(t *testing.T) {
	s := availability.PaperSystem(0.95, 2, 0.9995)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	plan, err := availability.Make(s, availability.Aware)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Reachable || plan.Advice == nil || plan.Microservices != 24 {
		t.Fatalf("%+v", plan)
	}
	if plan.Advice.Instances != 4 {
		t.Errorf("advice: %d instances, want 4", plan.Advice.Instances)
	}
	for _, better := range []struct {
		by   float64
		want bool
	}{{0, true}, {-1e-4, false}} {
		s := availability.PaperSystem(plan.Advice.Submodule+better.by, 2, 0.9995)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if p, err := availability.Make(s, availability.Aware); err != nil || p.Reachable != better.want {
			t.Errorf("submodules of %v: reachable %v, %v", plan.Advice.Submodule+better.by, p.Reachable, err)
		}
	}
	s = availability.PaperSystem(0.95, 2, 0.9995)
	s.CommonCause = 0.5
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if plan, err = availability.Make(s, availability.Aware); err != nil || plan.Advice == nil || plan.Advice.Instances != 0 {
		t.Errorf("no number of instances mends a common cause: %+v, %v", plan.Advice, err)
	}
}

func TestCheapest(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 8))
	const most = 3
	for range 150 {
		s := randomSystem(dice, true)
		for i := range s.Modules {
			s.Modules[i].Cost = 1 + dice.Int64N(5)
		}
		s.Instances = most
		for i := range s.Modules {
			s.Modules[i].Instances = most
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Target = target(dice, s)
		best := int64(0)
		var walk func(i int, cost int64, a float64)
		walk = func(i int, cost int64, a float64) {
			if i == len(s.Modules) {
				if a >= s.Target && (best == 0 || cost < best) {
					best = cost
				}
				return
			}
			m := s.Modules[i]
			partitions(len(m.Submodules), func(g [][]int) {
				for k := 1; k <= most; k++ {
					walk(i+1, cost+m.Cost*int64(k*len(g)), a*up(m, g, k, 0))
				}
			})
		}
		walk(0, 0, 1)
		plan, err := availability.Cheapest(s, most)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Reachable != (best > 0) || best > 0 && plan.Cost != best {
			t.Fatalf("%+v: costs %d, reachable %v; the least is %d", s, plan.Cost, plan.Reachable, best)
		}
		if plan.Reachable && plan.Availability < s.Target-1e-12 {
			t.Fatalf("%+v: %v is below the target", s, plan.Availability)
		}
	}
}

func TestSensitivity(t *testing.T) {
	dice := rand.New(rand.NewPCG(9, 10))
	for i := range 60 {
		s := randomSystem(dice, true)
		if i%2 == 0 {
			s.Sites = []availability.Site{{Name: "a", Availability: 0.99}, {Name: "b", Availability: 0.97}}
		}
		if i%3 == 0 {
			s.CommonCause = 0.1
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		plan, err := availability.Make(s, availability.None)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range availability.Sensitivity(s, plan) {
			with := func(a float64) float64 {
				c := *s
				c.Modules = slices.Clone(s.Modules)
				for i := range c.Modules {
					c.Modules[i].Submodules = slices.Clone(s.Modules[i].Submodules)
					for j := range c.Modules[i].Submodules {
						if c.Modules[i].Name == x.Module && c.Modules[i].Submodules[j].Name == x.Submodule {
							c.Modules[i].Submodules[j].Availability = a
						}
					}
				}
				p, err := availability.Make(&c, availability.None)
				if err != nil {
					t.Fatal(err)
				}
				return p.Availability
			}
			const h = 1e-6
			if slope := (with(x.Availability+h) - with(x.Availability-h)) / (2 * h); math.Abs(slope-x.Importance) > 1e-5 {
				t.Errorf("%s/%s: importance %v, measured %v", x.Module, x.Submodule, x.Importance, slope)
			}
			if gain := with((1+x.Availability)/2) - plan.Availability; math.Abs(gain-x.Gain) > 1e-9 {
				t.Errorf("%s/%s: gain %v, measured %v", x.Module, x.Submodule, x.Gain, gain)
			}
		}
	}
}

func TestSimulate(t *testing.T) {
	for name, change := range map[string]func(*availability.System){
		"plain":        func(*availability.System) {},
		"common cause": func(s *availability.System) { s.CommonCause = 0.2 },
		"sites": func(s *availability.System) {
			s.Sites = []availability.Site{{Name: "a", Availability: 0.95}, {Name: "b", Availability: 0.9}, {Name: "c", Availability: 0.97}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := availability.PaperSystem(0.95, 2, 0.99)
			change(s)
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			plan, err := availability.Make(s, availability.Aware)
			if err != nil {
				t.Fatal(err)
			}
			sim := availability.Simulate(s, plan, 100_000, 1)
			if !sim.Agrees {
				t.Errorf("%+v", sim)
			}
			if again := availability.Simulate(s, plan, 100_000, 1); again != sim {
				t.Errorf("the same seed gave %+v and %+v", sim, again)
			}
			plan.Unavailability *= 1.2
			if sim := availability.Simulate(s, plan, 100_000, 1); sim.Agrees {
				t.Errorf("a model that is wrong by a fifth agrees: %+v", sim)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	s := &availability.System{Instances: 101, Target: 1, CommonCause: math.NaN(), Sites: []availability.Site{{Availability: 2}}, Modules: []availability.Module{
		{Name: "m", Cost: -1, Submodules: []availability.Submodule{{Name: "a", Availability: 1.5}, {Name: "a"}}},
		{Name: "m"}, {Instances: -1, Submodules: []availability.Submodule{{}}},
	}, Dependencies: []availability.Dependency{{From: "x", To: "m/a", Strength: math.Inf(1)}}}
	err := s.Check()
	if fault.KindOf(err) != fault.Invalid {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range fault.FieldsOf(err) {
		found[f.Path] = true
	}
	for _, path := range []string{"instances", "target", "common_cause", "sites[0].availability", "modules[0].cost", "modules[0].submodules[0].availability", "modules[0].submodules[1].name",
		"modules[1].name", "modules[1].submodules", "modules[2].name", "modules[2].instances", "modules[2].submodules[0].name", "dependencies[0].from", "dependencies[0].strength"} {
		if !found[path] {
			t.Errorf("%s is not named: %v", path, fault.FieldsOf(err))
		}
	}
	if err := (&availability.System{}).Check(); err == nil {
		t.Error("a system without modules is accepted")
	}
	good := availability.PaperSystem(0.9, 2, 0)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, method := range []availability.Method{availability.Aware, "best"} {
		if _, err := availability.Make(good, method); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s without a target: %v", method, err)
		}
	}
	good.Dependencies = nil
	if _, err := availability.Make(good, availability.Clustered); fault.KindOf(err) != fault.Invalid {
		t.Errorf("clustering without dependencies: %v", err)
	}
}

func BenchmarkPaper(b *testing.B) {
	s := availability.PaperSystem(0.99, 2, 0.9999)
	if err := s.Check(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := availability.Make(s, availability.Aware); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLarge plans 1,000 modules of 1,000 submodules.
func BenchmarkLarge(b *testing.B) {
	for _, unequal := range []bool{false, true} {
		b.Run(fmt.Sprintf("unequal=%v", unequal), func(b *testing.B) {
			dice := rand.New(rand.NewPCG(1, 1))
			s := &availability.System{Instances: 3}
			for i := range 1000 {
				m := availability.Module{Name: fmt.Sprintf("m%d", i)}
				for j := range 1000 {
					a := 0.999
					if unequal {
						a += 0.001 * dice.Float64()
					}
					m.Submodules = append(m.Submodules, availability.Submodule{Name: fmt.Sprintf("s%d", j), Availability: a})
				}
				s.Modules = append(s.Modules, m)
			}
			if err := s.Check(); err != nil {
				b.Fatal(err)
			}
			s.Target = 0.999
			var plan *availability.Plan
			for b.Loop() {
				var err error
				if plan, err = availability.Make(s, availability.Aware); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(plan.Microservices), "microservices")
			b.ReportMetric(float64(plan.Microservices-plan.AtLeast), "above-bound")
		})
	}
}

// TestHopeless: with so many poor submodules that the whole is hardly ever up,
// the best that can be reached is still each submodule for itself.
func TestHopeless(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 1))
	s := &availability.System{Target: 0.999}
	for i := range 20 {
		m := availability.Module{Name: fmt.Sprintf("m%d", i)}
		for j := range 1000 {
			m.Submodules = append(m.Submodules, availability.Submodule{Name: fmt.Sprintf("s%d", j), Availability: 0.9 + 0.1*dice.Float64()})
		}
		s.Modules = append(s.Modules, m)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	plan, err := availability.Make(s, availability.Aware)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Reachable || plan.Microservices != 20_000 || plan.Availability <= 0 || plan.Advice == nil {
		t.Errorf("%d microservices, %g, reachable %v, advice %+v", plan.Microservices, plan.Availability, plan.Reachable, plan.Advice)
	}
}
