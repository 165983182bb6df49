package jobs

import (
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/registry"
)

// A run goes to machines that take work, of its specification, and are large enough:
// those of its allocation, if that is made of machines, and else those that are no
// allocation's.
func TestSpots(t *testing.T) {
	t.Parallel()
	at := func(node, name string, state registry.NodeState) spot {
		return spot{node, &registry.Node{Name: name, State: state, Allocatable: map[string]int64{"cpu": 8000}}}
	}
	small := at("p6", "m6", registry.NodeReady)
	small.machine.Specs, small.machine.Allocatable = []string{"tiny"}, map[string]int64{"cpu": 100}
	x := &spots{at: map[string][]spot{"one": {{node: "p0"}}, "many": {at("p1", "m1", registry.NodeReady), at("p2", "m2", registry.NodeReady), at("p3", "m3", registry.NodeDrained), at("p4", "m4", registry.NodeReady), small}},
		held: map[string]map[string]string{"many": {"m2": "alloc_nodes", "m5": "alloc_other"}}}
	for _, c := range []struct {
		center, allocation, node, spec string
		want                           []string
	}{
		{center: "one", want: []string{"p0"}},
		{center: "none"},
		{center: "many", spec: "large", want: []string{"p1", "p4"}},
		{center: "many", spec: "tiny", want: []string{"p1", "p4", "p6"}},
		{center: "many", spec: "huge"},
		{center: "many", node: "m4", want: []string{"p4"}},
		{center: "many", node: "m2"},
		{center: "many", spec: "large", allocation: "alloc_amounts", want: []string{"p1", "p4"}},
		{center: "many", allocation: "alloc_nodes", want: []string{"p2"}},
		{center: "many", allocation: "alloc_nodes", node: "m1"},
		{center: "many", allocation: "alloc_other"},
	} {
		amounts := map[string]int64{"cpu": map[string]int64{"large": 8000, "huge": 8001}[c.spec], "gpu": 1} // of GPUs nobody tells
		if got := nodesOf(x.of(c.center, localWish{allocation: c.allocation, node: c.node, spec: c.spec}, amounts)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
