package scheduler

import (
	"context"
	"slices"
	"time"
)

// stats of this process since it started.
type stats struct {
	jobs   int64
	busy   time.Duration
	recent []int64 // scheduling times of the last jobs, microseconds
	next   int
}

// recentJobs are kept for the percentiles.
const recentJobs = 1000

// Scheduled counts a job all of whose replicas were issued, with its
// scheduling time (equation 3) in microseconds.
func (s *Service) Scheduled(us int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.jobs++
	if len(s.stats.recent) < recentJobs {
		s.stats.recent = append(s.stats.recent, us)
		return
	}
	s.stats.recent[s.stats.next] = us
	s.stats.next = (s.stats.next + 1) % recentJobs
}

func (s *Service) count(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.busy += d
}

// Stats are the scheduling figures of the standard.
type Stats struct {
	Jobs     int64
	Busy     time.Duration
	P50, P99 int64 // microseconds
	Queued   int64
}

// Stats returns the figures since this process started.
func (s *Service) Stats(ctx context.Context) (Stats, error) {
	s.mu.Lock()
	out := Stats{Jobs: s.stats.jobs, Busy: s.stats.busy}
	recent := slices.Clone(s.stats.recent)
	s.mu.Unlock()
	if n := len(recent); n > 0 {
		slices.Sort(recent)
		out.P50, out.P99 = recent[n/2], recent[min(n-1, n*99/100)]
	}
	var err error
	out.Queued, err = s.src.WaitingCount(ctx)
	return out, err
}
