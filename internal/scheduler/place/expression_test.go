package place_test

import (
	"fmt"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// A candidate that does not meet a task's expression takes none of its
// replicas, and says why; an expression that nobody evaluated is met nowhere.
func TestExpressionFilter(t *testing.T) {
	t.Parallel()
	s := fleet(3)
	s.Unmet = map[string]map[string]string{"green": {"center-00000": "does not meet green", "center-00002": "does not meet green"}, "all": {}}
	queue := backlog(4, 1)
	for i, text := range []string{"", "green", "all", "unheard"} {
		queue[i].Tasks[0].Expression, queue[i].Priority = text, int64(9-i)
	}
	res, err := place.Plan(s, queue, eight(t), place.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Placements) != 3 || res.Placements[1].Candidate != "center-00001" {
		t.Fatalf("placements = %+v", res.Placements)
	}
	for _, e := range res.Placements[1].Decision.Table {
		want := "[{expression does not meet green}]"
		if e.Chosen {
			want = "[]"
		}
		if got := fmt.Sprint(e.Filtered); got != want {
			t.Errorf("%s: %s, want %s", e.Candidate, got, want)
		}
	}
	if len(res.Unplaced) != 1 || len(res.Unplaced[0].Decision.Table) != 3 || res.Unplaced[0].Decision.Table[0].Filtered[0].Text != "was not asked whether it meets the task's expression" {
		t.Errorf("unplaced = %+v", res.Unplaced)
	}
}
