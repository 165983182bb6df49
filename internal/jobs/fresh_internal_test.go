package jobs

import (
	"fmt"
	"testing"
)

func TestFresh(t *testing.T) {
	t.Parallel()
	var f fresh
	if f.has("a") || f.get("a", 1) != nil {
		t.Error("one is known before any was kept")
	}
	r := &record{id: "a", version: 1}
	f.keep([]*record{r, {id: "b", version: 4}})
	r.priority = 9 // whoever gave it may change it
	got := f.get("a", 1)
	if got == nil || got.priority != 0 {
		t.Fatalf("got %+v, want a as it was kept", got)
	}
	got.version = 7 // it is the caller's own
	if f.get("a", 1) == nil || f.get("a", 7) != nil || f.get("b", 1) != nil || f.get("b", 4) == nil {
		t.Error("a job is known with another version than it had, or not with that")
	}
	f.drop([]string{"a", "c"})
	if f.has("a") || !f.has("b") {
		t.Error("another one was dropped")
	}
	many := make([]*record, maxFresh)
	for i := range many {
		many[i] = &record{id: fmt.Sprint(i), version: 1}
	}
	f.keep(many)
	if f.has("b") || len(f.m) != maxFresh {
		t.Errorf("%d are kept, at most %d should", len(f.m), maxFresh)
	}
	f.keep(append(many, &record{id: "more"}))
	if len(f.m) != maxFresh {
		t.Errorf("%d are kept of more than there is room for", len(f.m))
	}
}
