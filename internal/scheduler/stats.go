package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// figures are counts of what was scheduled: how often, and how long it took.
type figures struct {
	jobs, replicas int64
	busy           time.Duration
}

func (f *figures) add(g figures) {
	f.jobs, f.replicas, f.busy = f.jobs+g.jobs, f.replicas+g.replicas, f.busy+g.busy
}

const (
	// saveEvery is how often a process stores what it counted: what a killed one
	// loses of the figures.
	saveEvery = 5 * time.Second
	// bucketLength is how finely the past is kept, for keepBuckets.
	bucketLength = 10 * time.Second
	keepBuckets  = 25 * time.Hour
	// defaultWindow and maxWindow of the figures asked for.
	defaultWindow = 5 * time.Minute
	maxWindow     = 24 * time.Hour
	// measuredJobs is of how many jobs the percentiles of a window are at most,
	// recentJobs of how many those without one.
	measuredJobs = 10000
	recentJobs   = 1000
	// shownQueues of tenants are listed.
	shownQueues = 1000
)

// Scheduled counts a job all of whose replicas were issued, with its
// scheduling time (equation 3) in microseconds.
func (s *Service) Scheduled(us int64) {
	s.times.Observe(float64(us) / 1e6)
	s.count(figures{jobs: 1})
}

func (s *Service) count(f figures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved.add(f)
}

// Figures stores what this process counts, until ctx ends and then once more.
// Every process runs it: replicas are placed in one and reported in others.
func (s *Service) Figures(ctx context.Context) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for rounds := 0; ; rounds++ {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveEvery)
			defer cancel()
			if err := s.saveFigures(last, false); err != nil {
				s.log.Warn("figures of scheduling not stored", "error", err)
			}
			return nil
		case <-tick.C:
		}
		if err := s.saveFigures(ctx, rounds%720 == 0); err != nil && ctx.Err() == nil {
			s.log.Warn("figures of scheduling not stored, will try again", "error", err)
		}
	}
}

// saveFigures adds what was counted to the bucket of now; with tidy it moves
// what is old to bucket 0.
func (s *Service) saveFigures(ctx context.Context, tidy bool) error {
	s.mu.Lock()
	f := s.unsaved
	s.unsaved = figures{}
	s.mu.Unlock()
	if f == (figures{}) && !tidy {
		return nil
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		bucket := db.Micros(tx.Now.Truncate(bucketLength))
		const add = `INSERT INTO scheduling_figures (bucket, began_at, jobs, replicas, busy_us) VALUES ($1, 0, $2, $3, $4)
			ON CONFLICT (bucket) DO UPDATE SET jobs = scheduling_figures.jobs + $2, replicas = scheduling_figures.replicas + $3, busy_us = scheduling_figures.busy_us + $4`
		if _, err := tx.Exec(ctx, add, bucket, f.jobs, f.replicas, f.busy.Microseconds()); err != nil {
			return err
		}
		if !tidy {
			return nil
		}
		old, err := sumFigures(ctx, tx, 1, db.Micros(tx.Now.Add(-keepBuckets)))
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, add, 0, old.jobs, old.replicas, old.busy.Microseconds()); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM scheduling_figures WHERE bucket > 0 AND bucket < $1`, db.Micros(tx.Now.Add(-keepBuckets)))
		return err
	})
	if err != nil {
		s.count(f) // for the next time
		return fmt.Errorf("store figures: %w", err)
	}
	return nil
}

// sumFigures adds up the buckets from one up to, but not with, another; 0: all
// that follow.
func sumFigures(ctx context.Context, tx *db.Tx, from, to int64) (f figures, err error) {
	if to == 0 {
		to = 1 << 62
	}
	var busy int64
	_, err = tx.Get(ctx, `SELECT CAST(COALESCE(SUM(jobs), 0) AS BIGINT), CAST(COALESCE(SUM(replicas), 0) AS BIGINT), CAST(COALESCE(SUM(busy_us), 0) AS BIGINT)
		FROM scheduling_figures WHERE bucket >= $1 AND bucket < $2`, []any{from, to}, &f.jobs, &f.replicas, &busy)
	f.busy = time.Duration(busy) * time.Microsecond
	return f, err
}

// Stats are the scheduling figures of the standard, since a time and in a
// window that ends now.
type Stats struct {
	Since                        time.Time
	Jobs, Replicas               int64
	Busy                         time.Duration
	P50, P95, P99                int64 // T of the last jobs, microseconds
	Queued                       int64
	Window                       time.Duration
	WindowJobs, WindowReplicas   int64
	WindowBusy                   time.Duration
	Measured                     int64 // jobs that the percentiles of the window are of
	Window50, Window95, Window99 int64
	WindowMax                    int64
	Tenants                      []TenantQueue
}

// TenantQueue is what of a tenant waits.
type TenantQueue struct {
	Tenant         string
	Jobs, Replicas int64
	Oldest         time.Time // when the first of them was put in the queue
}

// throughput is equation 4.
func throughput(jobs int64, busy time.Duration) float64 {
	if busy <= 0 {
		return 0
	}
	return float64(jobs) / busy.Seconds()
}

// percentile of sorted times by the nearest rank: the smallest that p percent
// are not above.
func percentile(sorted []int64, p int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(1, (len(sorted)*p+99)/100)-1]
}

// Stats returns the figures with a window of at most [maxWindow]; 0 means
// [defaultWindow]. Queues are those of tenants the caller may see.
func (s *Service) Stats(ctx context.Context, window time.Duration) (Stats, error) {
	if window == 0 {
		window = defaultWindow
	}
	// What the processes counted since they last stored is missing; here it need not.
	if err := s.saveFigures(ctx, false); err != nil {
		return Stats{}, err
	}
	out := Stats{Window: window}
	now := s.db.Now()
	err := s.db.View(ctx, func(tx *db.Tx) error {
		all, err := sumFigures(ctx, tx, 0, 0)
		if err != nil {
			return err
		}
		recent, err := sumFigures(ctx, tx, db.Micros(now.Add(-window).Truncate(bucketLength)), 0)
		if err != nil {
			return err
		}
		var began int64
		if _, err := tx.Get(ctx, `SELECT began_at FROM scheduling_figures WHERE bucket = 0`, nil, &began); err != nil {
			return err
		}
		out.Since = db.Time(began)
		out.Jobs, out.Replicas, out.Busy = all.jobs, all.replicas, all.busy
		out.WindowJobs, out.WindowReplicas, out.WindowBusy = recent.jobs, recent.replicas, recent.busy
		return nil
	})
	if err != nil {
		return out, err
	}
	times, err := s.src.SchedulingTimes(ctx, now.Add(-window), measuredJobs)
	if err != nil {
		return out, err
	}
	slices.Sort(times)
	out.Measured, out.Window50, out.Window95, out.Window99 = int64(len(times)), percentile(times, 50), percentile(times, 95), percentile(times, 99)
	out.WindowMax = percentile(times, 100)
	if times, err = s.src.SchedulingTimes(ctx, time.Time{}, recentJobs); err != nil {
		return out, err
	}
	slices.Sort(times)
	out.P50, out.P95, out.P99 = percentile(times, 50), percentile(times, 95), percentile(times, 99)
	return out, s.queueLengths(ctx, &out)
}

func (s *Service) queueLengths(ctx context.Context, out *Stats) error {
	tenants, err := s.src.WaitingByTenant(ctx)
	if err != nil {
		return err
	}
	caller := core.CallerFrom(ctx)
	for _, t := range tenants {
		out.Queued += t.Jobs
		if caller.Sees(t.Tenant) && len(out.Tenants) < shownQueues {
			out.Tenants = append(out.Tenants, t)
		}
	}
	return nil
}
