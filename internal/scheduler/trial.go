package scheduler

import (
	"context"
	"fmt"
	"strconv"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Trial decides about jobs one by one against the centers as they are, each as
// if it were alone. Nothing is placed.
type Trial struct {
	s    *Service
	snap *registry.Snapshot
	set  *place.Set
}

// Tried is what a trial decides about the first replica of a task.
type Tried struct {
	Task     int
	Decision *place.Decision // nil: see Reason
	Reason   string          // why nothing can be decided
	// Of the chosen center, for the run time the task states: the price in fen
	// and the energy in joules; energy is 0 where the center does not state its
	// power.
	PriceFen, EnergyJoules float64
}

// NewTrial takes the centers as they are now.
func (s *Service) NewTrial(ctx context.Context) (*Trial, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	set, err := s.policySet(ctx)
	if err != nil {
		return nil, err
	}
	return &Trial{s, snap, set}, nil
}

// Decide decides about items by the policies that p chooses (nil: those in
// force), with at most rows rows in the score tables (0: all). Allocations are
// not looked at.
func (t *Trial) Decide(ctx context.Context, items []Item, p Chooser, rows int) ([][]Tried, error) {
	out := make([][]Tried, len(items))
	var works []place.Work
	var of []*Item
	var at []int
	for i := range items {
		w, ok := fill(&items[i], t.snap)
		if !ok {
			for k := range items[i].Work.Tasks {
				out[i] = append(out[i], Tried{Task: k, Reason: "its resource specification no longer exists"})
			}
			continue
		}
		works, of, at = append(works, w), append(of, &items[i]), append(at, i)
	}
	ps, err := t.s.snapshotFor(ctx, t.snap, works)
	if err != nil {
		return nil, err
	}
	if p == nil && t.s.policies != nil {
		p = t.s.policies
	}
	if p != nil {
		if _, err := p.Choose(ctx, ps, of, works, t.set); err != nil {
			return nil, fmt.Errorf("choose policies: %w", err)
		}
	}
	for j := range works {
		w := &works[j]
		for k := range w.Tasks {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			d, err := place.Score(ps, w, k, t.set, place.Options{TableRows: rows})
			if err != nil {
				return nil, fmt.Errorf("score: %w", err)
			}
			n, _ := strconv.Atoi(w.Tasks[k].ID) // made by strconv.Itoa
			one := Tried{Task: n, Decision: d}
			if c := centerOf(t.snap, d.Chosen); c != nil {
				seconds := float64(w.Tasks[k].RunSeconds.Value)
				one.PriceFen = float64(c.Offers[w.Tasks[k].Spec]) * seconds / 3600
				one.EnergyJoules = float64(w.Tasks[k].Request[core.CPU]) / 1000 * float64(c.Power.Active) / 1000 * seconds
			}
			out[at[j]] = append(out[at[j]], one)
		}
	}
	return out, nil
}
