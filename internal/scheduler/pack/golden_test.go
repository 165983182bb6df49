package pack_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/pack"
)

// history hashes what a policy does on random clusters: 40 of them, 200 steps each.
func history(t *testing.T, policy pack.Policy) uint64 {
	t.Helper()
	h := fnv.New64a()
	for seed := range uint64(40) {
		dice := rand.New(rand.NewPCG(seed, 1))
		nodes, tasks := randomCluster(dice)
		c, err := pack.New(nodes, policy, tasks, seed)
		if err != nil {
			t.Fatal(err)
		}
		type held struct {
			t pack.Task
			p pack.Placement
		}
		var all []held
		for range 200 {
			if len(all) > 0 && dice.IntN(3) == 0 {
				k := dice.IntN(len(all))
				c.Release(all[k].t, all[k].p)
				all = append(all[:k], all[k+1:]...)
				continue
			}
			task := tasks[dice.IntN(len(tasks))]
			p, ok := c.Place(task)
			fmt.Fprintln(h, p.Node, p.Cards, ok)
			if ok {
				all = append(all, held{task, p})
			}
		}
	}
	return h.Sum64()
}

// The index must not change what is decided: these are the placements of the
// plain scan of all nodes that it took the place of.
func TestSamePlacementsAsEver(t *testing.T) {
	t.Parallel()
	for policy, want := range map[pack.Policy]uint64{
		pack.Waste: 0x35024521f2a34167, pack.FGD: 0xbc8aa7f67508a209, pack.BestFit: 0xbaf8ae8fddb1d093, pack.DotProduct: 0xe83d33a641ecf056,
		pack.Packing: 0x669a03a1e8486d76, pack.Clustering: 0x6c43544d5dde1e18,
	} {
		if got := history(t, policy); got != want {
			t.Errorf("%s placed otherwise: %#x, was %#x", policy, got, want)
		}
	}
}
