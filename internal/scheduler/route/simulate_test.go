package route_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/route"
)

// TestQueueFormula: what Wait says is what queues of requests really show.
func TestQueueFormula(t *testing.T) {
	for _, c := range []struct {
		replicas int
		use      float64
	}{{1, 0.5}, {4, 0.7}, {10, 0.85}} {
		p := route.Place{ID: "p", Replicas: c.replicas, Rate: 1}
		out, err := route.Simulate(&route.Traffic{
			Origins: []route.TrafficOrigin{{ID: "o", Mean: c.use * float64(c.replicas)}}, Places: []route.Place{p},
			Latency: [][]int64{{0}}, Hours: 40,
		}, route.Nearest, rand.New(rand.NewPCG(3, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if want := p.Wait(c.use * float64(c.replicas)); math.Abs(out.Waited-want) > 0.12*want {
			t.Errorf("%d replicas at %v: waited %.3f s, the formula says %.3f", c.replicas, c.use, out.Waited, want)
		}
	}
}

// TestStrategies: on a day whose peak moves around the world, shares by mean
// time answer sooner than any of the others.
func TestStrategies(t *testing.T) {
	traffic := &route.Traffic{
		Origins: []route.TrafficOrigin{{ID: "east", Mean: 3, Peak: 2}, {ID: "west", Mean: 3, Peak: 14}},
		Places:  []route.Place{{ID: "e", Replicas: 9, Rate: 0.5}, {ID: "w", Replicas: 9, Rate: 0.5}},
		Latency: [][]int64{{10_000, 150_000}, {150_000, 10_000}},
		Swing:   0.8,
	}
	got := map[route.Strategy]*route.Outcome{}
	for _, s := range route.Strategies() {
		out, err := route.Simulate(traffic, s, rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		got[s] = out
		t.Logf("%+v", *out)
	}
	ours := got[route.MeanTime]
	for s, o := range got {
		if s != route.MeanTime && ours.Mean >= o.Mean {
			t.Errorf("%s: mean %.3f s, ours %.3f", s, o.Mean, ours.Mean)
		}
	}
	if ours.Late > 0.001 {
		t.Errorf("%v of the requests wait long though there is room", ours.Late)
	}
	again, err := route.Simulate(traffic, route.MeanTime, rand.New(rand.NewPCG(1, 1)))
	if err != nil || !reflect.DeepEqual(again, ours) {
		t.Errorf("the same seed, another day: %+v %v", again, err)
	}
	if _, err := route.Simulate(traffic, "best", rand.New(rand.NewPCG(1, 1))); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an unknown strategy: %v", err)
	}
}
