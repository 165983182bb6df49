package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler"
)

// Past is a job with what became of it, for simulations.
type Past struct {
	Item    scheduler.Item // the whole job
	Created time.Time
	Ended   bool
	Runs    []PastRun // the last of each replica, by task and replica
}

// PastRun is the last run of a replica. Times that did not come are zero.
type PastRun struct {
	Task, Replica                int
	CenterID                     string
	Resources                    core.Quantities
	PlacedAt, StartedAt, EndedAt time.Time
}

// Past returns the jobs the caller may see that were submitted at or after
// since, or have not ended; of those that have, the latest, so that there are at most
// limit. Those that draw on allocations are left out. They come in the order in
// which they were submitted.
func (s *Service) Past(ctx context.Context, since time.Time, limit int) (out []Past, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		rest, args := `WHERE (created_at >= $2 OR ended_at = 0)`, []any{int64(limit), db.Micros(since)}
		if c := core.CallerFrom(ctx); !c.AllTenants {
			rest, args = rest+` AND tenant_id = $3`, append(args, c.TenantID)
		}
		var rs []*record
		err := tx.Query(ctx, `SELECT `+jobColumns+` FROM jobs `+rest+` ORDER BY CASE WHEN ended_at = 0 THEN 0 ELSE 1 END, job_id DESC LIMIT $1`, args, func(row db.Row) error {
			r, err := scanJob(row)
			if err == nil && r.spec.AllocationId == "" {
				rs = append(rs, r)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("read past jobs: %w", err)
		}
		slices.SortFunc(rs, func(a, b *record) int { return strings.Compare(a.id, b.id) })
		runs, err := pastRuns(ctx, tx, rs)
		if err != nil {
			return err
		}
		for _, r := range rs {
			p := Past{Item: whole(r.id, r.tenant, r.user, r.created, r.spec), Created: db.Time(r.created), Ended: r.ended > 0, Runs: runs[r.id]}
			p.Item.NotBefore, p.Item.Deadline, p.Item.NoPreemption = micros(r.spec.NotBefore), micros(r.spec.Deadline), r.spec.NoPreemption
			p.Item.RunSeconds, p.Item.GraceSeconds = expectations(r.spec)
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// pastJobs are so many that their runs are read together.
const pastJobs = 100

// pastRuns returns the last runs of the replicas of jobs.
func pastRuns(ctx context.Context, tx *db.Tx, rs []*record) (map[string][]PastRun, error) {
	ids := make([]string, len(rs))
	for i, r := range rs {
		ids[i] = r.id
	}
	out := map[string][]PastRun{}
	for part := range slices.Chunk(ids, pastJobs) {
		among, arg := tx.In(1, part)
		as, err := queryAttempts(ctx, tx, `job_id `+among+` ORDER BY job_id, task_index, replica_index, attempt`, arg)
		if err != nil {
			return nil, fmt.Errorf("read past runs: %w", err)
		}
		for _, a := range as {
			run := PastRun{Task: int(a.task), Replica: int(a.replica), CenterID: a.center, Resources: a.resources, PlacedAt: db.Time(a.placed), StartedAt: db.Time(a.started), EndedAt: db.Time(a.ended)}
			list := out[a.job]
			if n := len(list); n > 0 && list[n-1].Task == run.Task && list[n-1].Replica == run.Replica {
				list[n-1] = run // a later attempt
			} else {
				list = append(list, run)
			}
			out[a.job] = list
		}
	}
	return out, nil
}
