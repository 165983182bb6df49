package scheduler

import (
	"context"
	"maps"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// Scene is what the scheduler decides by, for simulations.
type Scene struct {
	// Snapshot has the centers as they are, but for what they have free: see Used.
	Snapshot *place.Snapshot
	// Used is what is held at centers, by allocations too.
	Used map[string]core.Quantities
	// Works are those of the items, filled; one whose specification is gone has no
	// tasks.
	Works   []place.Work
	Weights map[string]int32 // the platform's
	Queue   queue.Config
}

// Scene shows what items would be decided by now. Which replicas have a place
// already is not said.
func (s *Service) Scene(ctx context.Context, items []Item) (*Scene, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	set, err := s.GetPolicySet(ctx)
	if err != nil {
		return nil, err
	}
	conf, err := s.settings(ctx)
	if err != nil {
		return nil, err
	}
	out := &Scene{Used: map[string]core.Quantities{}, Works: make([]place.Work, len(items)), Weights: set.Weights, Queue: conf.config()}
	for i := range items {
		w, ok := fill(&items[i], snap)
		if !ok {
			w.Tasks = nil
		}
		w.Set = nil
		out.Works[i] = w
	}
	if out.Snapshot, err = s.snapshotFor(ctx, snap, out.Works); err != nil {
		return nil, err
	}
	out.Snapshot.Groups = nil
	for i := range out.Works {
		out.Works[i].Placed = nil
	}
	for _, c := range snap.Centers {
		out.Used[c.ID] = maps.Clone(c.Used)
	}
	return out, nil
}
