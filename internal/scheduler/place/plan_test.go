package place_test

import (
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

func TestPlanRejectsRepeatedCandidate(t *testing.T) {
	t.Parallel()
	s := &place.Snapshot{Candidates: []place.Candidate{{ID: "a"}, {ID: "a"}}}
	if _, err := place.Plan(s, nil, place.Presets()[0], place.Options{}); err == nil {
		t.Fatal("a candidate given twice was accepted")
	}
}
