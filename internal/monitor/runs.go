package monitor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/samples"
)

// Names of the samples of runs; they are labeled with attempt_id, job_id, task
// (its name), replica (its index), ai_center_id and tenant.
const (
	runCPU    = "yunhe_run_cpu_cores"
	runMemory = "yunhe_run_memory_bytes"
)

const (
	// runAge is how old a figure of a run may be to count as the present one:
	// three times what drivers let pass between them.
	runAge = 45 * time.Second
	// ownerAge is how long the owner of a run that is not measured is remembered.
	ownerAge = time.Minute
	// maxRunsHeld are those that wait for their owners: of all centers together.
	maxRunsHeld = samples.MaxBatch / 2
)

// Limits of how many runs are listed.
const (
	MaxRunFigures     = 200
	defaultRunFigures = 20
)

// Owner is what a run is of.
type Owner struct {
	TenantID, JobID, JobName, CenterID string
	Task                               string // name
	Replica                            int64
	Reserved                           core.Quantities
}

// Owners returns what the attempts are of that have not ended, by ID.
type Owners func(ctx context.Context, attemptIDs []string) (map[string]Owner, error)

// runTaken is what a center said last of a run.
type runTaken struct {
	use    RunUse
	center string
	at     time.Time
}

// owned is an owner who was asked for.
type owned struct {
	Owner
	seen time.Time
}

// holdRuns keeps what a center said of runs until their owners are asked for.
// mu is held.
func (in *Intake) holdRuns(center string, uses []RunUse, now time.Time) {
	for _, u := range uses {
		if _, held := in.runs[u.AttemptID]; !held && len(in.runs) >= maxRunsHeld {
			in.dropped += 2
			continue
		}
		in.runs[u.AttemptID] = runTaken{u, center, now}
	}
}

// GatherRuns returns what was taken of runs since the call before. What a
// center says of runs that are not there, or not at that center, is passed over.
func (in *Intake) GatherRuns(ctx context.Context) ([]samples.Sample, error) {
	in.gathering.Lock()
	defer in.gathering.Unlock()
	in.mu.Lock()
	runs := in.runs
	in.runs = map[string]runTaken{}
	in.mu.Unlock()
	now := in.now()
	maps.DeleteFunc(in.owners, func(_ string, o *owned) bool { return now.Sub(o.seen) > ownerAge })
	ids := slices.Sorted(maps.Keys(runs))
	if err := in.learn(ctx, ids, now); err != nil {
		return nil, err
	}
	out := make([]samples.Sample, 0, 2*len(ids))
	for _, id := range ids {
		r, o := runs[id], in.owners[id]
		if o == nil || o.CenterID != r.center {
			continue
		}
		o.seen = now
		of := samples.L("attempt_id", id, "job_id", o.JobID, "task", o.Task, "replica", strconv.FormatInt(o.Replica, 10), centerLabel, o.CenterID, TenantLabel, o.TenantID)
		out = append(out, samples.Sample{Name: runCPU, Labels: of, Value: float64(r.use.CPUMilli) / 1000, At: r.at},
			samples.Sample{Name: runMemory, Labels: of, Value: float64(r.use.Memory), At: r.at})
	}
	return out, nil
}

// learn asks for the owners that are not known yet.
func (in *Intake) learn(ctx context.Context, ids []string, now time.Time) error {
	unknown := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return in.owners[id] != nil })
	if len(unknown) == 0 || in.Owners == nil {
		return nil
	}
	found, err := in.Owners(ctx, unknown)
	if err != nil {
		return fmt.Errorf("ask whose runs are measured: %w", err)
	}
	for id, o := range found {
		in.owners[id] = &owned{o, now}
	}
	return nil
}

// RunFigures is what a run uses now.
type RunFigures struct {
	AttemptID string
	Owner
	CPU    float64 // cores
	Memory int64   // bytes
	At     time.Time
}

// RunFigures returns what open runs of a job, or of all jobs that the caller in
// ctx may see, use now: those that use the most CPU, at most limit (0: 20). It
// returns fault.Invalid for what is no ID or beyond a limit, fault.NotFound for
// a job the caller does not see, fault.Denied for a caller of no tenant, and
// what the store returns.
func (s *Service) RunFigures(ctx context.Context, job string, limit int) ([]RunFigures, error) {
	if limit == 0 {
		limit = defaultRunFigures
	}
	var c core.Check
	c.Range("limit", int64(limit), 1, MaxRunFigures)
	if job != "" {
		c.ID("job_id", job)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	var of []string
	if caller := core.CallerFrom(ctx); !caller.AllTenants {
		if caller.TenantID == "" {
			return nil, fault.New(fault.Denied, "user %q belongs to no tenant", caller.UserID)
		}
		of = append(of, TenantLabel+"="+strconv.Quote(caller.TenantID))
	}
	if job != "" {
		if s.Job != nil {
			if err := s.Job(ctx, job); err != nil {
				return nil, err
			}
		}
		of = append(of, "job_id="+strconv.Quote(job))
	}
	list, err := s.busiest(ctx, of, limit)
	if err != nil || len(list) == 0 || s.Owners == nil {
		return nil, err
	}
	return s.describe(ctx, list, limit)
}

// busiest returns the runs that a selector's matchers name, those that use the
// most CPU, and some more than limit: of some that ended just now, there are
// still figures.
func (s *Service) busiest(ctx context.Context, of []string, limit int) ([]RunFigures, error) {
	now, most := s.now(), 2*limit
	top, err := s.store.Query(ctx, fmt.Sprintf("topk(%d, last_over_time(%s{%s}[%s]))", most, runCPU, strings.Join(of, ","), promSeconds(runAge)), now)
	if err != nil || len(top) == 0 {
		return nil, wrapQuery(err)
	}
	ids := make([]string, len(top))
	for i := range top {
		ids[i] = regexp.QuoteMeta(top[i].Labels.Get("attempt_id"))
	}
	of = append(of, fmt.Sprintf(`__name__=~"%s|%s"`, runCPU, runMemory), `attempt_id=~`+strconv.Quote(strings.Join(ids, "|")))
	series, err := s.store.Query(ctx, fmt.Sprintf("{%s}[%s]", strings.Join(of, ","), promSeconds(runAge)), now)
	if err != nil {
		return nil, wrapQuery(err)
	}
	byID := map[string]*RunFigures{}
	for i := range series {
		x := &series[i]
		if len(x.Points) == 0 {
			continue
		}
		id, last := x.Labels.Get("attempt_id"), x.Points[len(x.Points)-1]
		f := byID[id]
		if f == nil {
			f = &RunFigures{AttemptID: id}
			byID[id] = f
		}
		if f.At = last.At; x.Name == runCPU {
			f.CPU = last.Value
		} else {
			f.Memory = int64(last.Value)
		}
	}
	out := make([]RunFigures, 0, len(byID))
	for _, f := range byID {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b RunFigures) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory), strings.Compare(a.AttemptID, b.AttemptID))
	})
	return out, nil
}

func wrapQuery(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("query figures of runs: %w", err)
}

// describe says what the runs are of, and leaves out those that have ended.
func (s *Service) describe(ctx context.Context, list []RunFigures, limit int) ([]RunFigures, error) {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].AttemptID
	}
	owners, err := s.Owners(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("ask whose runs are measured: %w", err)
	}
	caller := core.CallerFrom(ctx)
	out := list[:0]
	for _, f := range list {
		if o, open := owners[f.AttemptID]; open && caller.Sees(o.TenantID) && len(out) < limit {
			f.Owner = o
			out = append(out, f)
		}
	}
	return out, nil
}
