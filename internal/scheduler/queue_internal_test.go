package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// TestQueuePick compares the queue with a list that is sorted and cut anew
// each time, over a long random course of jobs that come, come again and go.
func TestQueuePick(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	q := newQueue()
	have := map[string]Item{}
	for step := range 4000 {
		id := fmt.Sprintf("job-%d", rng.IntN(900))
		if rng.IntN(3) == 0 {
			q.remove(id)
			delete(have, id)
		} else {
			it := Item{Since: int64(step)}
			it.Work = place.Work{ID: id, Priority: int64(rng.IntN(3)), Arrival: int64(rng.IntN(50)),
				Tasks: []place.Task{{Spec: fmt.Sprintf("spec-%d", rng.IntN(3)), Replicas: 1}}}
			q.put(it)
			have[id] = it
		}
		if step%40 > 0 {
			continue
		}
		var got []string
		for _, e := range q.pick() {
			got = append(got, e.Work.ID)
		}
		if want := pickNaively(have); !slices.Equal(got, want) {
			t.Fatalf("step %d: got %v, want %v", step, got, want)
		}
		if len(q.items) != len(have) {
			t.Fatalf("step %d: the queue has %d jobs, want %d", step, len(q.items), len(have))
		}
	}
}

func pickNaively(have map[string]Item) (ids []string) {
	var all []Item
	for _, it := range have {
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Work.Priority, a.Work.Priority), cmp.Compare(a.Work.Arrival, b.Work.Arrival), cmp.Compare(a.Work.ID, b.Work.ID))
	})
	taken := map[string]int{}
	for _, it := range all {
		if shape := it.Work.Tasks[0].Spec; taken[shape] < perShape {
			taken[shape]++
			ids = append(ids, it.Work.ID)
		}
	}
	return ids
}
