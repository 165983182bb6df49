package sim_test

import (
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/sim"
)

// Filling has the nodes in another order with each seed; events name them by the
// numbers they have in the input.
func TestFillNamesNodes(t *testing.T) {
	t.Parallel()
	models := []string{"a", "b", "c", "d", "e"}
	in := &sim.Input{}
	for _, m := range models {
		in.Nodes = append(in.Nodes, sim.Node{Node: pack.Node{ID: m, CPU: 8000, Memory: 8000, Cards: 2, Model: m}})
		in.Jobs = append(in.Jobs, sim.Job{ID: m, Replicas: 1, Ask: sim.Ask{Cards: 1, Share: pack.Whole, Models: []string{m}}})
	}
	given := slices.Clone(in.Nodes)
	for seed := range uint64(5) {
		placed := 0
		run(t, in, "best-fit", "", func(c *sim.Config) {
			c.Fill, c.Seed = 1, seed
			c.Log = func(e sim.Event) {
				for _, s := range e.Spots {
					placed++
					if models[e.Job] != given[s.At].Model {
						t.Errorf("job %d, which needs model %s, is on node %d of model %s", e.Job, models[e.Job], s.At, given[s.At].Model)
					}
				}
			}
		})
		if placed == 0 {
			t.Errorf("seed %d: nothing was placed", seed)
		}
	}
	for i := range given {
		if in.Nodes[i].ID != given[i].ID {
			t.Error("the order of the input's nodes was changed")
		}
	}
}
