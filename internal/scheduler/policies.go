package scheduler

import (
	"context"
	"fmt"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Policies choose what decides about work, implemented by policies. Without
// them the platform's set and the jobs' own weights decide.
type Policies interface {
	// Choose gives every work the set that decides about it, by the policies in
	// force; items[i] is what works[i] was made of, whose Set holds its own
	// weights, if it has any. Works that no policy matches are left as they are:
	// platform decides. The sets hold as long as snap.
	Choose(ctx context.Context, snap *place.Snapshot, items []*Item, works []place.Work, platform *place.Set) (Verdict, error)
}

// Verdict is what policies said of the works of a cycle.
type Verdict interface {
	// CommitTx is called in the transaction that commits placements. It returns
	// fault.Conflict if other policies are in force than those that chose: the
	// cycle then decides again.
	CommitTx(ctx context.Context, tx *db.Tx, placed []Placement) error
}

// SetPolicies says who chooses policies. It is called before the first call,
// if at all.
func (s *Service) SetPolicies(p Policies) { s.policies = p }

// choose has the policies choose; a nil verdict: there are none.
func (s *Service) choose(ctx context.Context, ps *place.Snapshot, items []*Item, works []place.Work, platform *place.Set) (Verdict, error) {
	if s.policies == nil {
		return nil, nil
	}
	v, err := s.policies.Choose(ctx, ps, items, works, platform)
	if err != nil {
		return nil, fmt.Errorf("choose policies: %w", err)
	}
	return v, nil
}
