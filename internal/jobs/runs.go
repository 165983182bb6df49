package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
)

// Allocations is who holds resources that jobs may draw on, implemented by
// control.
type Allocations interface {
	// Usable returns how much of it one run may use at most. fault.NotFound if
	// the caller's tenant has no such allocation, fault.Conflict if it is over.
	Usable(ctx context.Context, id string) (core.Quantities, error)
	// GiveBackTx gives back what a run that has ended drew.
	GiveBackTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities) error
	// NodesTx returns by center and node which allocation holds it.
	NodesTx(ctx context.Context, tx *db.Tx) (map[string]map[string]string, error)
}

// Reservations are what jobs may name; implemented by calendar.
type Reservations interface {
	// Reserved returns the most that one run may take of a reservation of the
	// caller's tenant: fault.NotFound if there is none, fault.Conflict if it is over.
	Reserved(ctx context.Context, id string) (core.Quantities, error)
	// OverTx reports whether a reservation has no time to come.
	OverTx(ctx context.Context, tx *db.Tx, id string) (bool, error)
}

// SetReservations says who keeps the reservations; without it no job may name
// one.
func (s *Service) SetReservations(r Reservations) { s.reserved = r }

// SetAllocations says who keeps the allocations; without it no job may name one.
func (s *Service) SetAllocations(a Allocations) { s.allocs = a }

// checkAllocation checks the allocation that a job names.
func (s *Service) checkAllocation(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec, cat *registry.Catalog) error {
	field, id, holds := "allocation_id", j.AllocationId, "the allocation holds"
	switch {
	case j.AllocationId != "" && j.ReservationId != "":
		c.Add(prefix+"reservation_id", "does not go with allocation_id")
		return nil
	case j.ReservationId != "":
		field, id, holds = "reservation_id", j.ReservationId, "the reservation has at one center"
	case id == "":
		return nil
	}
	var own core.Check
	if own.ID("", id); own.Err() != nil {
		c.ID(prefix+field, id)
		return nil
	}
	var limit core.Quantities
	var err error
	switch {
	case field == "reservation_id" && s.reserved != nil:
		limit, err = s.reserved.Reserved(ctx, id)
	case field == "allocation_id" && s.allocs != nil:
		limit, err = s.allocs.Usable(ctx, id)
	default:
		c.Add(prefix+field, "there are none here")
		return nil
	}
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Conflict, fault.Invalid:
		if err != nil {
			msg, _ := fault.Message(err)
			c.Add(prefix+field, "%s", msg)
			return nil
		}
	}
	if err != nil {
		return err
	}
	for i, t := range j.Tasks {
		spec := cat.Specs[t.GetResourceSpecId()]
		if spec == nil {
			continue // said already
		}
		for _, name := range sortedKeys(spec.Quantity) {
			if have := limit[name]; spec.Quantity[name] > have {
				c.Add(fmt.Sprintf("%stasks[%d].resource_spec_id", prefix, i), "needs %s of %s, %s %s", core.FormatQuantity(name, spec.Quantity[name]), name,
					holds, core.FormatQuantity(name, have))
			}
		}
	}
	return nil
}

// RunFilter says which open runs are meant; empty fields do not limit.
type RunFilter struct {
	CenterID     string
	Node         string
	Unknown      bool // with Node: also those of which no node is known
	AllocationID string
}

// Run is an open run of a replica.
type Run struct {
	AttemptID, JobID, JobName, TenantID, CenterID, Node string
	Task                                                string
	Replica                                             int64
	Reserved                                            core.Quantities
}

func (f RunFilter) where() (string, []any) {
	where, args := []string{"ended_at = 0"}, []any(nil)
	and := func(cond string, v any) {
		args = append(args, v)
		where = append(where, strings.ReplaceAll(cond, "?", fmt.Sprintf("$%d", len(args))))
	}
	if f.CenterID != "" {
		and("ai_center_id = ?", f.CenterID)
	}
	switch {
	case f.Node != "" && f.Unknown:
		and("(node = ? OR node = '')", f.Node)
	case f.Node != "":
		and("node = ?", f.Node)
	}
	if f.AllocationID != "" {
		and("allocation_id = ?", f.AllocationID)
	}
	return strings.Join(where, " AND ") + " ORDER BY attempt_id", args
}

// Runs returns the open runs that pass the filter, of every tenant.
func (s *Service) Runs(ctx context.Context, f RunFilter) (out []Run, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		where, args := f.where()
		as, err := queryAttempts(ctx, tx, where, args...)
		if err != nil {
			return err
		}
		out, err = runsOf(ctx, tx, as)
		return err
	})
	return out, err
}

// Owners returns what open runs are of, of every tenant. See monitor.Owners.
func (s *Service) Owners(ctx context.Context, attemptIDs []string) (map[string]monitor.Owner, error) {
	out := make(map[string]monitor.Owner, len(attemptIDs))
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		among, arg := tx.In(1, attemptIDs)
		as, err := queryAttempts(ctx, tx, `ended_at = 0 AND attempt_id `+among, arg)
		if err != nil {
			return err
		}
		runs, err := runsOf(ctx, tx, as)
		for _, r := range runs {
			out[r.AttemptID] = monitor.Owner{TenantID: r.TenantID, JobID: r.JobID, JobName: r.JobName, CenterID: r.CenterID, Task: r.Task, Replica: r.Replica, Reserved: r.Reserved}
		}
		return err
	})
	return out, err
}

// Seen returns fault.NotFound for a job that the caller in ctx does not see.
func (s *Service) Seen(ctx context.Context, id string) error {
	return s.db.View(ctx, func(tx *db.Tx) error {
		_, err := visible(ctx, tx, id)
		return err
	})
}

func runsOf(ctx context.Context, tx *db.Tx, as []*attempt) ([]Run, error) {
	ids := map[string]bool{}
	for _, a := range as {
		ids[a.job] = true
	}
	rs, err := loadJobs(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return nil, err
	}
	byID := map[string]*record{}
	for _, r := range rs {
		byID[r.id] = r
	}
	var out []Run
	for _, a := range as {
		if r := byID[a.job]; r != nil {
			out = append(out, Run{AttemptID: a.id, JobID: a.job, JobName: r.name, TenantID: r.tenant, CenterID: a.center, Node: a.node, Task: r.spec.Tasks[a.task].Name, Replica: a.replica, Reserved: a.resources})
		}
	}
	return out, nil
}

// TakeAway stops the open runs that pass the filter and returns those it
// asked to stop now. Each ends as failed, reason "reclaimed", and is run again
// as its job's retries allow.
func (s *Service) TakeAway(ctx context.Context, f RunFilter, why string) (out []Run, err error) {
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		out = nil
		where, args := f.where()
		as, err := queryAttempts(ctx, tx, where, args...)
		if err != nil {
			return err
		}
		as = slices.DeleteFunc(as, func(a *attempt) bool { return a.stopAsked })
		byCenter := map[string][]string{}
		for _, a := range as {
			if _, err := tx.Exec(ctx, `UPDATE attempts SET stop_asked = $2, taken = $3 WHERE attempt_id = $1`, a.id, true, clipText(why, 500)); err != nil {
				return fmt.Errorf("take %s away: %w", a.id, err)
			}
			byCenter[a.center] = append(byCenter[a.center], a.id)
		}
		if out, err = runsOf(ctx, tx, as); err != nil {
			return err
		}
		var rs []*record
		for _, id := range slices.Sorted(maps.Keys(jobsOf(out))) {
			r, err := loadJob(ctx, tx, id)
			if err != nil {
				return err
			}
			if err := saveJob(ctx, tx, r); err != nil { // watchers see that it stops
				return err
			}
			rs = append(rs, r)
		}
		if len(rs) == 0 {
			return nil
		}
		tx.AfterCommit(func() {
			for center, ids := range byCenter {
				s.ad.Stop(center, ids)
			}
		})
		return s.changed(ctx, tx, rs...)
	})
	return out, err
}

func jobsOf(runs []Run) map[string]bool {
	out := map[string]bool{}
	for _, r := range runs {
		out[r.JobID] = true
	}
	return out
}

// Unplaced is a job with replicas that have no place yet.
type Unplaced struct {
	JobID, Name, TenantID, AllocationID string
	Since                               time.Time
	Replicas                            int64
	Centers                             []string // the only ones it may run at, sorted; none: it may anywhere
}

// UnplacedSince returns the jobs whose replicas have waited for a place since
// before the time, at most limit, the longest waiting first.
func (s *Service) UnplacedSince(ctx context.Context, before time.Time, limit int) (out []Unplaced, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		return tx.Query(ctx, `SELECT `+jobColumns+` FROM jobs WHERE unplaced > 0 AND waiting_since < $1 ORDER BY waiting_since, job_id LIMIT $2`, []any{db.Micros(before), limit}, func(row db.Row) error {
			r, err := scanJob(row)
			if err == nil && r.state != jobsv1.State_STATE_PAUSED {
				out = append(out, Unplaced{r.id, r.name, r.tenant, r.spec.AllocationId, db.Time(r.waitingSince), r.unplaced, pinnedTo(r.spec)})
			}
			return err
		})
	})
	return out, err
}

// pinnedTo returns the only centers that a job's tasks may run at.
func pinnedTo(j *jobsv1.JobSpec) []string {
	var out []string
	for _, t := range j.Tasks {
		if len(t.GetConstraints().GetCenters()) == 0 {
			return nil
		}
		out = append(out, t.Constraints.Centers...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Refusal is a run that its center did not take.
type Refusal struct {
	AttemptID, JobID, Name, TenantID, CenterID, Message string
	At                                                  time.Time
}

// RefusedSubject is the subject of the event that a center did not take runs.
// It carries nothing; see [Service.RefusedSince].
const RefusedSubject = "job.refused"

// RefusedSince returns runs that centers did not take since the time, newest
// first, at most limit.
func (s *Service) RefusedSince(ctx context.Context, since time.Time, limit int) (out []Refusal, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		return tx.Query(ctx, `SELECT a.attempt_id, a.job_id, j.name, j.tenant_id, a.ai_center_id, a.message, a.ended_at FROM attempts a JOIN jobs j ON j.job_id = a.job_id
			WHERE a.reason = 'refused' AND a.ended_at >= $1 ORDER BY a.ended_at DESC, a.attempt_id LIMIT $2`, []any{db.Micros(since), limit}, func(row db.Row) error {
			var r Refusal
			var at int64
			err := row.Scan(&r.AttemptID, &r.JobID, &r.Name, &r.TenantID, &r.CenterID, &r.Message, &at)
			r.At = db.Time(at)
			out = append(out, r)
			return err
		})
	})
	return out, err
}

// UnplacedFrom returns since when the job has waited that has waited the
// longest of those that wait since the time or later; zero: there is none.
func (s *Service) UnplacedFrom(ctx context.Context, from time.Time) (since time.Time, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		var at int64
		_, err := tx.Get(ctx, `SELECT waiting_since FROM jobs WHERE unplaced > 0 AND waiting_since >= $1 ORDER BY waiting_since LIMIT 1`, []any{db.Micros(from)}, &at)
		since = db.Time(at)
		return err
	})
	return since, err
}
