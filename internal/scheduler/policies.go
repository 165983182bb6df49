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
	Chooser
	// Generation counts changes of what is in force.
	Generation(ctx context.Context) (int64, error)
	// Class is equal for items about which the policies in force decide alike,
	// but for the time; "" while none is in force. It does no I/O and answers
	// for the generation last read.
	Class(it *Item) string
}

// Chooser chooses among policies.
type Chooser interface {
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

// policiesChanged reports whether other policies are in force than those of
// generation, which it brings up to date: works that asked for the same may
// not any more.
func (s *Service) policiesChanged(ctx context.Context, generation *int64) (bool, error) {
	if s.policies == nil {
		return false, nil
	}
	now, err := s.policies.Generation(ctx)
	if err != nil {
		return false, fmt.Errorf("read which policies are in force: %w", err)
	}
	changed := now != *generation
	*generation = now
	return changed, nil
}

// classOf is what policies make of an item.
func (s *Service) classOf(it *Item) string {
	if s.policies == nil {
		return ""
	}
	return s.policies.Class(it)
}

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
