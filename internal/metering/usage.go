// Package metering counts and prices what ran, and what was held and not used.
//
// What it keeps true:
//
//   - A run (attempt of a replica) that started has exactly one usage record.
//     Who records a run twice, in one transaction or many at once, gets the
//     first record kept; a second one that says something else is logged as a
//     discrepancy, never added and never mixed with the first.
//   - A record is never changed or removed. Its cost is computed once, when it
//     is recorded, by [rate.Cost] from the price fixed when the run was placed;
//     a later change of price does not touch it.
//   - The cost of a job is the sum of its records' costs; in fen its lines sum
//     exactly to the total ([rate.Split]).
//   - Held time is recorded in the same way, in pieces, by who holds it
//     (control): a piece has a name of its own, and is recorded in the
//     transaction that begins the next.
//   - A caller sees the records of their tenant only, unless they may see all.
//
// # States and failures
//
// A run has no record until it ends: there is nothing to update, and a crash
// before the caller's transaction commits leaves nothing behind. The recorder
// (jobs) writes the record in the transaction that ends the run, so that a run
// has ended if and only if it is metered. A record that cannot be priced (it
// ends before it starts, its price or cost is beyond what [rate] allows) is refused with
// every violation, and the caller's transaction with it.
//
// The database is authoritative; nothing is cached.
package metering

import (
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering/rate"
)

// Currency of every cost.
const Currency = "CNY"

// Record is what one run of a replica used, or a piece of the held time of an
// allocation: then it has an AllocationID and no job, task and replica.
type Record struct {
	AttemptID    string // the run, or the name of the piece; unique forever
	JobID        string
	TenantID     string
	UserName     string
	TaskName     string
	TaskIndex    int32
	ReplicaIndex int32
	Attempt      int32

	AICenterID     string
	ResourceSpecID string

	// StartedAt and EndedAt are from the kernel of the machine it ran on, kept
	// in whole microseconds.
	StartedAt time.Time
	EndedAt   time.Time

	CPUMicros       int64 // CPU time, microseconds
	MemoryPeakBytes int64
	Price           int64 // fen per package and hour, fixed when it was placed
	CostMicros      int64 // micro-yuan; set by RecordTx, whatever the caller put there

	Project string // the label of the job; "": it has none

	AllocationID  string // "": a run
	PackageMicros int64  // of held time: packages that nothing used, times microseconds
}

// Duration is EndedAt - StartedAt.
func (r Record) Duration() time.Duration { return r.EndedAt.Sub(r.StartedAt) }

// packageMicros is what the price is of.
func (r Record) packageMicros() int64 {
	if r.AllocationID != "" {
		return r.PackageMicros
	}
	return r.Duration().Microseconds()
}

// Filter selects records; zero fields select all.
type Filter struct {
	TenantID   string
	JobID      string
	AICenterID string
	UserName   string
	// AllocationID selects the held time of one allocation.
	AllocationID string
	EndedAfter   time.Time // ended at or after
	EndedBefore  time.Time // ended before
}

// Cost is what a job cost so far: one line per run that ended.
type Cost struct {
	JobID       string
	Lines       []CostLine // by task, replica and attempt
	TotalMicros int64
	TotalFen    int64 // the lines' Fen sum to exactly this
}

// CostLine is one run's share.
type CostLine struct {
	Record
	Fen int64
}

// maxID bounds identifiers and names: jobs allow less, 64 bytes for names and
// 30 for IDs made here, but centers may name things themselves.
const maxID = 128

// check validates r, cuts its times to whole microseconds and prices it.
func (r *Record) check(c *core.Check, path string) {
	c.Text(path+".attempt_id", r.AttemptID, true, maxID, 0)
	held := r.AllocationID != ""
	c.Text(path+".job_id", r.JobID, !held, maxID, 0)
	c.Text(path+".allocation_id", r.AllocationID, false, maxID, 0)
	c.Text(path+".tenant_id", r.TenantID, true, maxID, 0)
	c.Text(path+".user_name", r.UserName, false, maxID, 0)
	c.Text(path+".project", r.Project, false, maxID, 0)
	c.Text(path+".task_name", r.TaskName, false, maxID, 0)
	c.Text(path+".ai_center_id", r.AICenterID, true, maxID, 0)
	c.Text(path+".resource_spec_id", r.ResourceSpecID, true, maxID, 0)
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"task_index", int64(r.TaskIndex)}, {"replica_index", int64(r.ReplicaIndex)}, {"attempt", int64(r.Attempt)},
		{"cpu_microseconds", r.CPUMicros}, {"memory_peak_bytes", r.MemoryPeakBytes}, {"package_microseconds", r.PackageMicros},
	} {
		if n.value < 0 {
			c.Add(path+"."+n.name, "must be at least 0, got %d", n.value)
		}
	}
	if r.Price < 0 || r.Price > rate.MaxPrice {
		c.Add(path+".price", "must be between 0 and %d fen per hour, got %d", int64(rate.MaxPrice), r.Price)
		return
	}
	r.StartedAt, r.EndedAt = db.Time(db.Micros(r.StartedAt)), db.Time(db.Micros(r.EndedAt))
	switch {
	case !after1970(r.StartedAt):
		c.Add(path+".started_at", "must be a time between the years 1970 and 9999")
	case !after1970(r.EndedAt):
		c.Add(path+".ended_at", "must be a time between the years 1970 and 9999")
	case r.EndedAt.Before(r.StartedAt):
		c.Add(path+".ended_at", "must not be before started_at %s, got %s", r.StartedAt.Format(time.RFC3339Nano), r.EndedAt.Format(time.RFC3339Nano))
	default:
		var err error
		if held {
			r.CostMicros, err = rate.Held(r.Price, max(0, r.PackageMicros)) // what is below is refused above
		} else {
			r.CostMicros, err = rate.Cost(r.Price, r.Duration())
		}
		if err != nil {
			c.Add(path+".ended_at", "%s", err)
		}
	}
}

func after1970(t time.Time) bool { return t.UnixMicro() > 0 && t.Year() <= 9999 }

func (f Filter) check() error {
	var c core.Check
	c.Text("tenant_id", f.TenantID, false, maxID, 0)
	c.Text("job_id", f.JobID, false, maxID, 0)
	c.Text("ai_center_id", f.AICenterID, false, maxID, 0)
	c.Text("user_name", f.UserName, false, maxID, 0)
	c.Text("allocation_id", f.AllocationID, false, maxID, 0)
	if !f.EndedAfter.IsZero() && !f.EndedBefore.IsZero() && f.EndedBefore.Before(f.EndedAfter) {
		c.Add("ended_before", "must not be before ended_after %s, got %s", f.EndedAfter.UTC().Format(time.RFC3339Nano), f.EndedBefore.UTC().Format(time.RFC3339Nano))
	}
	return c.Err()
}

// cost makes the bill of a job.
func cost(jobID string, records []Record) (Cost, error) {
	out := Cost{JobID: jobID, Lines: make([]CostLine, len(records))}
	micros := make([]int64, len(records))
	for i, r := range records {
		micros[i] = r.CostMicros
		if out.TotalMicros += r.CostMicros; out.TotalMicros < 0 {
			return Cost{}, fmt.Errorf("cost of job %s: the sum of %d runs exceeds 2^63 micro-yuan", jobID, len(records))
		}
	}
	fen, total := rate.Split(micros)
	for i, r := range records {
		out.Lines[i] = CostLine{Record: r, Fen: fen[i]}
	}
	out.TotalFen = total
	return out, nil
}

// noJob is the answer for a job that does not exist or that the caller may
// not know of: the two look alike.
func noJob(id string) error { return fault.New(fault.NotFound, "there is no job %q", id) }
