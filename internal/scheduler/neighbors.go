package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// neighbors adds to a snapshot where the replicas are that placement rules of
// the works count. Works know where their own were when they were read; runs
// have ended since, so those of works with rules are read anew.
func (s *Service) neighbors(ctx context.Context, out *place.Snapshot, works []place.Work) error {
	names := map[string]bool{}
	for i := range works {
		for _, t := range works[i].Tasks {
			for _, r := range t.Rules {
				names[cmp.Or(r.Of, works[i].ID)] = true
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	at, err := s.src.Neighbors(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return fmt.Errorf("read where the others are: %w", err)
	}
	out.Groups = at
	for i := range works {
		if names[works[i].ID] {
			works[i].Placed = at[works[i].ID]
		}
	}
	return nil
}
