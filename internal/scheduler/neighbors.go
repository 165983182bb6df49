package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// neighbors adds to a snapshot where the replicas are that placement rules of
// the works count, and to distributed works where those are that theirs talk to.
// Works know where their own were when they were read; runs have ended since, so
// those are read anew. Works that are tasks of one job count as the job.
func (s *Service) neighbors(ctx context.Context, out *place.Snapshot, works []place.Work) error {
	names := map[string]bool{}
	for i := range works {
		w := &works[i]
		if w.Distributed {
			w.Mates = jobOf(w)
			names[w.Mates] = true
		}
		for k := range w.Tasks {
			t := &w.Tasks[k]
			if len(t.Rules) == 0 {
				continue
			}
			t.Rules = slices.Clone(t.Rules)
			for n := range t.Rules {
				if r := &t.Rules[n]; r.Of == "" {
					r.Of = jobOf(w)
				}
				names[t.Rules[n].Of] = true
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
		switch w, job := &works[i], jobOf(&works[i]); {
		case !names[job]:
		case job == w.ID:
			w.Placed = at[job]
		case w.Distributed:
			w.Placed = at[job]
			fallthrough
		default:
			w.Groups = append(slices.Clip(w.Groups), job)
		}
	}
	return nil
}

// jobOf returns the ID of the job a work is of; see [split] and [moreOf].
func jobOf(w *place.Work) string {
	if i := strings.IndexAny(w.ID, "/+"); i >= 0 {
		return w.ID[:i]
	}
	return w.ID
}
