package scheduler

import (
	"context"
	"fmt"
	"maps"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/standing"
)

// SetStanding says who knows what centers have refused. It is called before the
// first call, if at all.
func (s *Service) SetStanding(x *standing.Service) { s.stand = x }

// spareRefused leaves centers out for tasks like those they refused lately.
func (s *Service) spareRefused(ctx context.Context, works []place.Work) error {
	if s.stand == nil {
		return nil
	}
	shared := map[[2]string]map[string]string{} // one map for all that ask for the same
	for i := range works {
		for k := range works[i].Tasks {
			t := &works[i].Tasks[k]
			key := [2]string{t.Spec, t.Image}
			out, known := shared[key]
			if !known {
				refused, err := s.stand.Refused(ctx, t.Spec, t.Image)
				if err != nil {
					return err
				}
				for center, r := range refused {
					if out == nil {
						out = map[string]string{}
					}
					out[center] = fmt.Sprintf("it refused the like %d times, last at %s (%s); it is tried again from %s", r.Count, r.LastAt.Format(time.TimeOnly), r.Reason, r.Until.Format(time.TimeOnly))
				}
				shared[key] = out
			}
			switch {
			case len(out) == 0:
			case len(t.Excluded) == 0:
				t.Excluded = out
			default:
				t.Excluded = maps.Clone(t.Excluded) // others have it too
				maps.Copy(t.Excluded, out)
			}
		}
	}
	return nil
}

// refusedUntil returns when the first of the refusals that hold for these works
// ends, far away if none does.
func (s *Service) refusedUntil(ctx context.Context, works []place.Work, far int64) (int64, error) {
	if s.stand == nil {
		return far, nil
	}
	for i := range works {
		for k := range works[i].Tasks {
			refused, err := s.stand.Refused(ctx, works[i].Tasks[k].Spec, works[i].Tasks[k].Image)
			if err != nil {
				return far, err
			}
			for _, r := range refused {
				far = min(far, db.Micros(r.Until))
			}
		}
	}
	return far, nil
}
