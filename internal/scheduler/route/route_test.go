package route_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/route"
)

func solve(t interface {
	Helper()
	Fatal(...any)
}, p *route.Problem) *route.Plan {
	t.Helper()
	plan, err := route.Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestNearAndFull: everyone is served nearby until waiting there costs more
// than the way elsewhere.
func TestNearAndFull(t *testing.T) {
	p := &route.Problem{
		Origins: []route.Origin{{ID: "north", Demand: 10}, {ID: "south", Demand: 10}},
		Places:  []route.Place{{ID: "n", Replicas: 4, Rate: 10}, {ID: "s", Replicas: 4, Rate: 10}},
		Latency: [][]int64{{5_000, 40_000}, {40_000, 5_000}},
	}
	plan := solve(t, p)
	if plan.Share[0][0] != 1 || plan.Share[1][1] != 1 {
		t.Fatalf("with room everyone is served nearby: %v", plan.Share)
	}
	// 5 ms there and back, 100 ms of service, and a wait of 1.7 ms at 25 % use:
	// 0.25^(√10−1) / (4 · 0.75) · 100 ms.
	if plan.MeanMicros < 105_000 || plan.MeanMicros > 107_000 {
		t.Errorf("mean %v us, want 105,000 and a wait of 1,670", plan.MeanMicros)
	}
	p.Origins[0].Demand = 45 // of 40 that the north can serve at all
	plan = solve(t, p)
	if plan.Over[0] > 0 || plan.Over[1] > 0 || plan.Share[0][1] < 0.24 || plan.Share[1][1] != 1 {
		t.Errorf("what does not fit goes south: %+v", plan)
	}
	p.Origins[0].Demand = 100 // of 80 there are
	plan = solve(t, p)
	if math.Abs(plan.Load[0]-plan.Load[1]) > 1 || plan.Over[0] <= 0 {
		t.Errorf("too much is shared evenly: %+v", plan)
	}
}

// TestLimit: a place beyond the latency limit is used when those within it are full.
func TestLimit(t *testing.T) {
	p := &route.Problem{
		Origins:    []route.Origin{{ID: "a", Demand: 30}},
		Places:     []route.Place{{ID: "far", Replicas: 100, Rate: 10}, {ID: "near", Replicas: 4, Rate: 10}, {ID: "cut", Replicas: 50, Rate: 10}, {ID: "empty", Rate: 10}},
		Latency:    [][]int64{{30_000, 5_000, route.Unreachable, 0}},
		MaxLatency: 20_000,
	}
	if plan := solve(t, p); plan.Share[0][1] != 1 || plan.Far != 0 {
		t.Errorf("within the limit there is room: %+v", plan)
	}
	p.Origins[0].Demand = 68 // near may take 34
	if plan := solve(t, p); math.Abs(plan.Share[0][0]-0.5) > 0.001 || math.Abs(plan.Far-0.5) > 0.001 {
		t.Errorf("what is too much goes far: %+v", plan)
	}
	p.Origins[0].Demand = 0
	if plan := solve(t, p); plan.Share[0][1] != 1 {
		t.Errorf("who asks for nothing is told the nearest: %+v", plan)
	}
}

// TestBest compares with all ways to share units out, on small cases.
func TestBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &route.Problem{Units: rapid.IntRange(2, 6).Draw(t, "units")}
		for i := range rapid.IntRange(1, 3).Draw(t, "origins") {
			p.Origins = append(p.Origins, route.Origin{ID: fmt.Sprint(i), Demand: 1})
		}
		p.Units = p.Units / len(p.Origins) * len(p.Origins) // equal units of whole origins
		if p.Units == 0 {
			p.Units = len(p.Origins)
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "places") {
			p.Places = append(p.Places, route.Place{ID: fmt.Sprint(i), Replicas: rapid.IntRange(1, 3).Draw(t, "replicas"),
				Rate: float64(rapid.IntRange(1, 30).Draw(t, "rate")) / 10})
		}
		for range p.Origins {
			row := make([]int64, len(p.Places))
			for q := range row {
				row[q] = rapid.Int64Range(0, 2_000_000).Draw(t, "latency")
			}
			p.Latency = append(p.Latency, row)
		}
		plan := solve(t, p)
		best, over := math.Inf(1), math.Inf(1)
		each := p.Units / len(p.Origins)
		share := make([][]float64, len(p.Origins))
		var try func(o int)
		try = func(o int) {
			if o == len(p.Origins) {
				j, err := route.Judge(p, share)
				if err != nil {
					t.Fatal(err)
				}
				all := 0.0
				for _, x := range j.Over {
					all += x
				}
				if over = min(over, all); all < 1e-9 {
					best = min(best, j.MeanMicros)
				}
				return
			}
			share[o] = make([]float64, len(p.Places))
			var fill func(q, left int)
			fill = func(q, left int) {
				if q == len(p.Places)-1 {
					share[o][q] = float64(left) / float64(each)
					try(o + 1)
					return
				}
				for n := 0; n <= left; n++ {
					share[o][q] = float64(n) / float64(each)
					fill(q+1, left-n)
				}
			}
			fill(0, each)
		}
		try(0)
		got := 0.0
		for _, x := range plan.Over {
			got += x
		}
		if over < 1e-9 && (got > 1e-9 || plan.MeanMicros > best*(1+1e-9)+1e-6) {
			t.Fatalf("mean %v us, over %v; the best is %v\n%+v\n%v", plan.MeanMicros, got, best, p, plan.Share)
		}
	})
}

// TestSharesAddUp whatever is asked.
func TestSharesAddUp(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		p := random(dice, 1+dice.IntN(12), 1+dice.IntN(12))
		plan := solve(t, p)
		for o, row := range plan.Share {
			sum, reach := 0.0, false
			for q, s := range row {
				sum += s
				reach = reach || p.Latency[o][q] != route.Unreachable
				if s < 0 || s > 0 && p.Latency[o][q] == route.Unreachable {
					t.Fatalf("share %v of origin %d at %d", s, o, q)
				}
			}
			if reach && math.Abs(sum-1) > 1e-9 || !reach && sum != 0 {
				t.Fatalf("shares of origin %d add up to %v", o, sum)
			}
			whole := 0
			for _, w := range route.Whole(row, 1000) {
				whole += w
			}
			if reach && whole != 1000 {
				t.Fatalf("weights add up to %d", whole)
			}
		}
	}
}

func random(dice *rand.Rand, origins, places int) *route.Problem {
	p := &route.Problem{}
	for i := range origins {
		p.Origins = append(p.Origins, route.Origin{ID: fmt.Sprint(i), Demand: dice.Float64() * 100})
		row := make([]int64, places)
		for q := range row {
			if row[q] = dice.Int64N(200_000); dice.IntN(8) == 0 {
				row[q] = route.Unreachable
			}
		}
		p.Latency = append(p.Latency, row)
	}
	for i := range places {
		p.Places = append(p.Places, route.Place{ID: fmt.Sprint(i), Replicas: 1 + dice.IntN(20), Rate: 1 + 10*dice.Float64()})
	}
	return p
}

func TestCheck(t *testing.T) {
	for name, p := range map[string]*route.Problem{
		"no origins": {Places: []route.Place{{Rate: 1}}},
		"no places":  {Origins: []route.Origin{{}}, Latency: [][]int64{{}}},
		"demand":     {Origins: []route.Origin{{Demand: math.NaN()}}, Places: []route.Place{{Rate: 1}}, Latency: [][]int64{{1}}},
		"rate":       {Origins: []route.Origin{{Demand: 1}}, Places: []route.Place{{}}, Latency: [][]int64{{1}}},
		"latency":    {Origins: []route.Origin{{Demand: 1}}, Places: []route.Place{{Rate: 1}}, Latency: [][]int64{{-2}}},
		"a row":      {Origins: []route.Origin{{Demand: 1}}, Places: []route.Place{{Rate: 1}}, Latency: [][]int64{{1, 2}}},
		"use":        {Origins: []route.Origin{{Demand: 1}}, Places: []route.Place{{Rate: 1}}, Latency: [][]int64{{1}}, MaxUse: 1},
	} {
		if _, err := route.Solve(p); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForecast(t *testing.T) {
	var f route.Forecast
	for i := range int64(120) { // 10 a second, one more every minute
		f.Add((i+1)*60e6, 10+float64(i))
	}
	if got := f.In(60); math.Abs(got-130) > 1.5 {
		t.Errorf("a rising demand: %v, want about 130", got)
	}
	f.Add(60e6, 1e9) // long past
	if got := f.In(60); got > 200 {
		t.Errorf("an old observation counted: %v", got)
	}
	var day route.Forecast
	for i := range int64(4 * 96) { // four days: 100 in the first half, 10 in the second
		demand := 100.0
		if i%96 >= 48 {
			demand = 10
		}
		day.Add(i*900e6+1, demand)
		if i == 4*96-49 { // the last slot before noon of the fourth day
			if got := day.In(900); math.Abs(got-10) > 2 {
				t.Errorf("before noon: %v, want about 10", got)
			}
		}
	}
}

func TestEase(t *testing.T) {
	if got := route.Ease([]float64{1, 0}, []float64{0, 1}, 0.2); math.Abs(got[0]-0.8) > 1e-9 || math.Abs(got[1]-0.2) > 1e-9 {
		t.Errorf("%v", got)
	}
	if got := route.Ease(nil, []float64{0, 1}, 0.2); got[1] != 1 {
		t.Errorf("without old shares: %v", got)
	}
	if got := fmt.Sprint(route.Whole([]float64{1. / 3, 1. / 3, 1. / 3, 0}, 100)); got != "[34 33 33 0]" {
		t.Error(got)
	}
	// A place that is gone is left at once, and so is one that is too full.
	p := &route.Problem{Origins: []route.Origin{{Demand: 10}}, Places: []route.Place{{Replicas: 10, Rate: 10}, {Replicas: 10, Rate: 10}}, Latency: [][]int64{{1000, 2000}}}
	for name, change := range map[string]func(){"eased": func() {}, "gone": func() { p.Places[1].Replicas = 0 }} {
		change()
		next, err := route.Next(p, [][]float64{{0, 1}}, 0.2)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]float64{"eased": 0.2, "gone": 1}[name]; math.Abs(next[0][0]-want) > 1e-9 && p.Places[1].Replicas > 0 || p.Places[1].Replicas == 0 && next[0][0] != 1 {
			t.Errorf("%s: %v", name, next)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, n := range []int{10, 31, 100} {
		b.Run(fmt.Sprintf("%dx%d", n, n), func(b *testing.B) {
			p := random(rand.New(rand.NewPCG(1, 1)), n, n)
			for b.Loop() {
				solve(b, p)
			}
		})
	}
}
