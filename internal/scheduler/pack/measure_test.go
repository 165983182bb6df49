package pack_test

import (
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/pack"
)

// Two nodes of two cards, 4 cores each. Half of the likely tasks ask for half
// a card and 1 core, half for two cards.
func TestMeasure(t *testing.T) {
	t.Parallel()
	nodes := []pack.Node{{ID: "a", CPU: 4000, Memory: 8, Cards: 2}, {ID: "b", CPU: 4000, Memory: 8, Cards: 2}}
	half, two := pack.Task{CPU: 1000, Cards: 1, Share: 500}, pack.Task{CPU: 1000, Cards: 2, Share: 1000}
	c, err := pack.New(nodes, pack.BestFit, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Measure([]pack.Task{half, two})
	want := func(what string, amount float64) {
		t.Helper()
		if got := m.Amount(); got != amount {
			t.Errorf("%s: %v is fragmented, want %v", what, got, amount)
		}
	}
	want("empty", 0)
	p, ok := c.Place(half)
	if !ok {
		t.Fatal("half a card does not fit")
	}
	// On its node 1,500 are free: no use to the task of two cards, which is half
	// of the tasks; all is of use to the other half.
	want("half a card is taken", 750)
	q, _ := c.Place(pack.Task{CPU: 3000, Cards: 1, Share: 1000})
	// The same node has no core and 500 left: no use to anybody.
	if q.Node != p.Node {
		t.Fatalf("best-fit puts it on node %d, not on %d", q.Node, p.Node)
	}
	want("no core is left", 500)
	c.Release(half, p)
	// 1 core, one card: two cards do not fit, half a card does.
	want("half is given back", 500)
}
