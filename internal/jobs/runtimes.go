package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler"
)

// kin is by what the scheduler compares the runs of a job.
func kin(user string, spec *jobsv1.JobSpec) scheduler.Kin {
	k := scheduler.Kin{User: user, Name: spec.Name}
	var b strings.Builder
	limited := true
	for _, t := range spec.Tasks {
		fmt.Fprintf(&b, "%s %s %d;", t.ResourceSpecId, t.ImageId, t.ReplicaNumber)
		limited = limited && t.TimeoutSeconds > 0
		k.LimitSeconds = max(k.LimitSeconds, t.TimeoutSeconds)
	}
	if k.Shape = b.String(); !limited {
		k.LimitSeconds = 0
	}
	return k
}

// EndedRuns returns those of the given runs that ended by themselves: nil, the
// latest. See scheduler.Source.
func (s *Service) EndedRuns(ctx context.Context, ids []string, latest int) (out []scheduler.EndedRun, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		as, err := endedRuns(ctx, tx, ids, latest)
		if err != nil {
			return fmt.Errorf("read ended runs: %w", err)
		}
		var jobs []string
		for _, a := range as {
			jobs = append(jobs, a.job)
		}
		slices.Sort(jobs)
		rs, err := loadJobs(ctx, tx, slices.Compact(jobs))
		if err != nil {
			return err
		}
		byID := make(map[string]*record, len(rs))
		for _, r := range rs {
			byID[r.id] = r
		}
		slices.SortFunc(as, func(a, b *attempt) int { return strings.Compare(a.id, b.id) }) // as they were placed
		for _, a := range as {
			r := byID[a.job]
			if r == nil || a.started == 0 || a.lost || a.stopAsked || a.state != succeeded && a.state != failed {
				continue
			}
			stated, _ := expectations(r.spec)
			out = append(out, scheduler.EndedRun{AttemptID: a.id, Tenant: r.tenant, Kin: kin(r.user, r.spec), StatedSeconds: stated, Micros: a.ended - a.placed})
		}
		return nil
	})
	return out, err
}

func endedRuns(ctx context.Context, tx *db.Tx, ids []string, latest int) ([]*attempt, error) {
	if ids == nil {
		return queryAttempts(ctx, tx, `ended_at > 0 ORDER BY attempt_id DESC LIMIT $1`, int64(latest))
	}
	among, arg := tx.In(1, ids)
	return queryAttempts(ctx, tx, `ended_at > 0 AND attempt_id `+among, arg)
}
