package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Outcome is what a job has come to, for comparing policies.
type Outcome struct {
	JobID         string
	Ended, Failed bool
	Waiting       time.Duration // from submission until the first replica started
	WaitingKnown  bool
	Duration      time.Duration // from then until the last ended
	DurationKnown bool
	CostFen       float64
	EnergyJoules  float64 // run time × cores × what the center states a busy core draws
	EnergyKnown   bool    // it ran, and only at centers that state it
}

// Outcomes returns what of the jobs there is.
func (s *Service) Outcomes(ctx context.Context, ids []string) ([]Outcome, error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	var out []Outcome
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		rs, err := loadJobs(ctx, tx, ids)
		if err != nil {
			return err
		}
		slices.SortFunc(rs, func(a, b *record) int { return strings.Compare(a.id, b.id) })
		for _, r := range rs {
			as, err := jobAttempts(ctx, tx, r.id)
			if err != nil {
				return err
			}
			o := Outcome{JobID: r.id, Ended: r.ended > 0, Failed: State(r.state) == State(jobsv1.State_STATE_FAILED)}
			if r.started > 0 {
				o.Waiting, o.WaitingKnown = time.Duration(r.started-r.created)*time.Microsecond, true
				if r.ended > 0 {
					o.Duration, o.DurationKnown = time.Duration(r.ended-r.started)*time.Microsecond, true
				}
			}
			for _, a := range as {
				if a.started == 0 || a.ended == 0 {
					continue
				}
				seconds := float64(a.ended-a.started) / 1e6
				o.CostFen += seconds / 3600 * float64(a.price)
				c := cat.Centers[a.center]
				if c == nil || c.Power.Active == 0 {
					o.EnergyJoules, o.EnergyKnown = -1, false
				} else if o.EnergyJoules >= 0 {
					o.EnergyJoules, o.EnergyKnown = o.EnergyJoules+seconds*float64(a.resources[core.CPU])/1000*float64(c.Power.Active)/1000, true
				}
			}
			if !o.EnergyKnown {
				o.EnergyJoules = 0
			}
			out = append(out, o)
		}
		return nil
	})
	return out, err
}

// whole describes a job as if none of it were placed.
func whole(id, tenant, user string, created int64, spec *jobsv1.JobSpec) scheduler.Item {
	it := scheduler.Item{Weights: spec.PolicyWeights, AllocationID: spec.AllocationId, User: user, Labels: spec.Labels}
	it.Work = place.Work{ID: id, Tenant: tenant, Priority: int64(spec.Priority), Arrival: created, Gang: spec.Gang, Groups: groupNames(tenant, spec.Groups)}
	for i, t := range spec.Tasks {
		pt := task(tenant, spec, i)
		pt.Replicas = int(t.ReplicaNumber)
		it.Work.Tasks = append(it.Work.Tasks, pt)
	}
	return it
}

// Preview describes a job as the caller would submit it. It returns
// fault.Invalid as submitting does, with paths below "job.".
func (s *Service) Preview(ctx context.Context, spec *jobsv1.JobSpec) (scheduler.Item, error) {
	if err := s.checkSpecs(ctx, "", []*jobsv1.JobSpec{spec}, false); err != nil {
		return scheduler.Item{}, err
	}
	c := core.CallerFrom(ctx)
	return whole("job_preview", c.TenantID, c.UserID, db.Micros(s.db.Now()), spec), nil
}

// Submitted describes a job that the caller may see as it was submitted. It
// returns fault.NotFound.
func (s *Service) Submitted(ctx context.Context, id string) (it scheduler.Item, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		it = whole(r.id, r.tenant, r.user, r.created, r.spec)
		return nil
	})
	return it, err
}

// Latest describes the latest jobs of the platform, of those that the caller
// may see, as they were submitted; latest first.
func (s *Service) Latest(ctx context.Context, limit int) (out []scheduler.Item, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		rest, args := ``, []any{int64(limit)}
		if c := core.CallerFrom(ctx); !c.AllTenants {
			rest, args = `WHERE tenant_id = $2 `, append(args, c.TenantID)
		}
		err := tx.Query(ctx, `SELECT `+jobColumns+` FROM jobs `+rest+`ORDER BY job_id DESC LIMIT $1`, args, func(row db.Row) error {
			r, err := scanJob(row)
			if err == nil {
				out = append(out, whole(r.id, r.tenant, r.user, r.created, r.spec))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("read the latest jobs: %w", err)
		}
		return nil
	})
	return out, err
}
