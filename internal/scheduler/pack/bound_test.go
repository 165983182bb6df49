package pack_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
)

func TestBound(t *testing.T) {
	t.Parallel()
	part := func(shares ...int) (out []pack.Task) {
		for _, s := range shares {
			out = append(out, pack.Task{Cards: 1, Share: s})
		}
		return out
	}
	for _, x := range []struct {
		name  string
		tasks []pack.Task
		cards int
		load  float64
		want  float64
	}{
		{"only one of 810 goes on a card", part(810), 10, 1.3, 19},
		{"a third of 1000 is 333: three leave a thousandth", part(333), 10, 2, 0.1},
		{"halves and wholes fit", append(part(500), pack.Task{Cards: 8, Share: 1000}), 16, 4, 0},
		{"what has not come cannot be placed: 20 of 400 on 10 cards", part(400), 10, 0.8, 20},
		{"two of 400 go on a card, however many come", part(400), 10, 3, 20},
	} {
		got, err := pack.Bound([]pack.Node{{Cards: x.cards}}, x.tasks, x.load, 1)
		if err != nil || math.Abs(got-x.want) > 0.01 {
			t.Errorf("%s: %.4f, %v, want %v", x.name, got, err, x.want)
		}
	}
	if _, err := pack.Bound([]pack.Node{{}}, part(500), 1, 1); fault.KindOf(err) != fault.Invalid {
		t.Errorf("no card: %v", err)
	}
}

// No policy leaves less than the bound.
func TestNoPolicyBeatsTheBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		dice := rand.New(rand.NewPCG(seed, 8))
		var nodes []pack.Node
		for i := range 1 + dice.IntN(6) {
			nodes = append(nodes, pack.Node{ID: fmt.Sprint(i), Cards: 1 + dice.IntN(4)})
		}
		var tasks []pack.Task
		for range 1 + dice.IntN(4) {
			tasks = append(tasks, pack.Task{Cards: 1, Share: 50 * (1 + dice.IntN(20))})
		}
		load := 0.5 + dice.Float64()
		bound, err := pack.Bound(nodes, tasks, load, seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pack.Policies() {
			left, err := pack.Fill(nodes, tasks, p, load, seed)
			if err != nil {
				t.Fatal(err)
			}
			if left < bound-1e-6 {
				t.Errorf("seed %d: %s leaves %.4f, the bound is %.4f: %+v on %+v", seed, p, left, bound, tasks, nodes)
			}
		}
	}
}
