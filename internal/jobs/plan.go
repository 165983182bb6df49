package jobs

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler"
)

// shownPlans are how many decisions a plan shows.
const shownPlans = 1000

// planned is a job as the scheduler would get it if it were submitted now.
func (s *Service) planned(ctx context.Context, spec *jobsv1.JobSpec) (*record, scheduler.Item, error) {
	if err := s.checkSpecs(ctx, "", []*jobsv1.JobSpec{spec}, false); err != nil {
		return nil, scheduler.Item{}, err
	}
	r, err := newRecord(core.CallerFrom(ctx), spec)
	if err != nil {
		return nil, scheduler.Item{}, err
	}
	r.created = db.Micros(s.db.Now())
	r.waitingSince = r.created
	var it scheduler.Item
	err = s.db.View(ctx, func(tx *db.Tx) error {
		it, err = s.item(ctx, tx, r, &reading{})
		return err
	})
	return r, it, err
}

// unlent are what replicas would wait for in the accelerator pool that nothing else holds.
func (s *Service) unlent(ctx context.Context, r *record, it *scheduler.Item) (waits []*schedulerv1.Wait, err error) {
	if !it.Asks {
		return nil, nil
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		room, err := s.pool.RoomTx(ctx, tx)
		if err != nil {
			return err
		}
		waits = nil
		for i := range it.Work.Tasks {
			t := &it.Work.Tasks[i]
			n, err := strconv.Atoi(t.ID)
			if err != nil || !s.asks(r.spec.Tasks[n]) {
				continue
			}
			why, err := room(sharesOf(r, int64(n)))
			if err != nil {
				return err
			}
			if why != "" {
				waits = append(waits, &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_POOL, TaskIndex: int32(n), Replicas: int32(t.Replicas), Message: lendWaits + why})
			}
		}
		return nil
	})
	return waits, err
}

// Plan says what would become of a job if it were submitted now; nothing is
// stored. It returns what Submit would of a job that is refused.
func (s *Service) Plan(ctx context.Context, spec *jobsv1.JobSpec) (*jobsv1.PlanJobResponse, error) {
	r, it, err := s.planned(ctx, spec)
	if err != nil {
		return nil, err
	}
	p, err := s.sched.Preview(ctx, &it)
	if err != nil {
		return nil, err
	}
	waits, err := s.unlent(ctx, r, &it)
	if err != nil {
		return nil, err
	}
	if len(waits) > 0 {
		p.Waits, p.Start, p.Basis = append(p.Waits, waits...), time.Time{}, scheduler.PoolBasis
	}
	slices.SortStableFunc(p.Decisions, func(a, b *schedulerv1.Decision) int {
		if a.TaskIndex != b.TaskIndex {
			return int(a.TaskIndex - b.TaskIndex)
		}
		return int(a.ReplicaIndex - b.ReplicaIndex)
	})
	for _, d := range p.Decisions {
		d.TaskName = spec.Tasks[d.TaskIndex].Name
	}
	res := &jobsv1.PlanJobResponse{Decisions: p.Decisions[:min(len(p.Decisions), shownPlans)], Waits: p.Waits, EstimateBasis: p.Basis,
		ReplicasPlaced: int32(p.Placed), ReplicasTotal: int32(r.total)}
	if !p.Start.IsZero() {
		res.EstimatedStart = timestamppb.New(p.Start)
	}
	return res, nil
}
