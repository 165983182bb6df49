package scheduler

import (
	"maps"
	"testing"

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
