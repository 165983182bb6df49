package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
)

func TestCandidateSaysWhatBusinessItSuits(t *testing.T) {
	t.Parallel()
	c := candidate(&registry.Center{ID: "c", Labels: map[string]string{
		"business": "50", "business.rendering": "90", "business.training": "101", "business.sums": "many", "businesslike": "7", "rack": "r1"}})
	if want := map[string]int64{"": 50, "rendering": 90}; !maps.Equal(c.Business, want) {
		t.Errorf("got %v, want %v", c.Business, want)
	}
}

// TestTranslationFollowsCenters changes, adds and removes centers at random and
// expects what a translation from nothing says.
func TestTranslationFollowsCenters(t *testing.T) {
	t.Parallel()
	r, s := rand.New(rand.NewPCG(5, 5)), &Service{}
	var centers []*registry.Center
	next := 0
	for step := range 200 {
		switch i := r.IntN(len(centers) + 1); {
		case r.IntN(3) == 0 || len(centers) == 0:
			next++
			c := &registry.Center{ID: fmt.Sprintf("c%03d", next), Total: core.Quantities{core.CPU: 4000}, Labels: map[string]string{"power.gpu": "1/2"}}
			centers = slices.Insert(slices.Clone(centers), i, c)
		case i == len(centers):
		case r.IntN(3) == 0:
			centers = slices.Delete(slices.Clone(centers), i, i+1)
		default:
			own := *centers[i]
			own.Used, own.Waiting = core.Quantities{core.CPU: r.Int64N(4000)}, own.Waiting+1
			centers = slices.Clone(centers)
			centers[i] = &own
		}
		snap := &registry.Snapshot{Centers: centers}
		got, want := s.snapshotOf(snap), (&Service{}).snapshotOf(snap)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", step, diff)
		}
		for i := range got.Candidates { // the caller's own
			got.Candidates[i].Status = "spoiled"
		}
	}
}
