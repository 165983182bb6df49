package metering

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Jobs answers whose job one is. It tells a job that has used nothing yet from
// one that does not exist.
type Jobs interface {
	// JobTenant returns the tenant of the job; ok is false if there is none.
	JobTenant(ctx context.Context, id string) (tenant string, ok bool, err error)
}

// Service keeps usage records. It is safe for concurrent use.
type Service struct {
	// Jobs is set by app before the first call. Without it a job that has no
	// usage counts as one that does not exist.
	Jobs Jobs

	db  *db.DB
	log *slog.Logger
}

// New brings the tables up to date and returns a service that is ready.
func New(ctx context.Context, d *db.DB, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "metering", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, log: log.With("component", "metering")}, nil
}

// RecordTx stores the usage of runs inside the caller's transaction, once and
// only once per AttemptID. For a run that has a record the first is kept: to
// say the same again changes nothing, and something else is logged as a
// discrepancy when the transaction commits. It is all or nothing:
// fault.Invalid lists every violation of every record and nothing is written.
// records is not changed or retained.
func (s *Service) RecordTx(ctx context.Context, tx *db.Tx, records []Record) error {
	var c core.Check
	own := slices.Clone(records)
	for i := range own {
		own[i].check(&c, fmt.Sprintf("usage[%d]", i))
	}
	if err := c.Err(); err != nil {
		return err
	}
	// One order for all writers, so that two who record the same runs wait for
	// each other instead of locking each other out.
	slices.SortStableFunc(own, func(a, b Record) int { return strings.Compare(a.AttemptID, b.AttemptID) })
	var first, again []Record
	for i, r := range own {
		if i > 0 && own[i-1].AttemptID == r.AttemptID {
			again = append(again, r)
		} else {
			first = append(first, r)
		}
	}
	stored, err := insert(ctx, tx, first)
	if err != nil {
		return fmt.Errorf("record usage of %d runs: %w", len(first), err)
	}
	for _, r := range first {
		if !stored[r.AttemptID] {
			again = append(again, r)
		}
	}
	for _, r := range again {
		kept, ok, err := byAttempt(ctx, tx, r.AttemptID)
		if err != nil {
			return fmt.Errorf("usage of run %s: %w", r.AttemptID, err)
		}
		if !ok {
			return fmt.Errorf("usage of run %s was neither stored nor there before", r.AttemptID)
		}
		if kept != r {
			tx.AfterCommit(func() { s.discrepancy(kept, r) })
		}
	}
	return nil
}

func (s *Service) discrepancy(kept, refused Record) {
	s.log.Warn("usage recorded again with other values, the first is kept", "attempt_id", kept.AttemptID, "job_id", kept.JobID,
		"kept_started_at", kept.StartedAt, "kept_ended_at", kept.EndedAt, "kept_cost_micros", kept.CostMicros,
		"refused_started_at", refused.StartedAt, "refused_ended_at", refused.EndedAt, "refused_cost_micros", refused.CostMicros)
}

// JobCostsTx returns the cost of each of the jobs in micro-yuan; jobs without
// usage are missing. It does not ask who the caller is.
func (s *Service) JobCostsTx(ctx context.Context, tx *db.Tx, jobIDs []string) (map[string]int64, error) {
	costs, err := jobCosts(ctx, tx, jobIDs)
	if err != nil {
		return nil, fmt.Errorf("cost of %d jobs: %w", len(jobIDs), err)
	}
	return costs, nil
}

// maxCostLines bounds an answer that is not paged: about 5 MB of JSON.
const maxCostLines = 10_000

// JobCost returns the cost of a job, of the tenant's if tenantID is not "".
// A job that has used nothing costs nothing. Kinds: NotFound if the tenant has
// no such job; TooLarge if it has more runs than one answer can hold.
func (s *Service) JobCost(ctx context.Context, tenantID, jobID string) (Cost, error) {
	var c core.Check
	c.Text("job_id", jobID, true, maxID, 0)
	if err := c.Err(); err != nil {
		return Cost{}, err
	}
	var records []Record
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		records, err = ofJob(ctx, tx, tenantID, jobID, maxCostLines+1)
		return err
	})
	if err != nil {
		return Cost{}, fmt.Errorf("usage of job %s: %w", jobID, err)
	}
	if len(records) > maxCostLines {
		return Cost{}, fault.New(fault.TooLarge, "job %s has more than %d runs, the most one answer lists; read them page by page at /v1/usage?job_id=%s", jobID, maxCostLines, jobID)
	}
	if len(records) == 0 {
		if err := s.known(ctx, tenantID, jobID); err != nil {
			return Cost{}, err
		}
	}
	return cost(jobID, records)
}

// known returns NotFound unless the tenant ("": any) has the job.
func (s *Service) known(ctx context.Context, tenantID, jobID string) error {
	if s.Jobs == nil {
		return noJob(jobID)
	}
	owner, ok, err := s.Jobs.JobTenant(ctx, jobID)
	if err != nil {
		return fmt.Errorf("tenant of job %s: %w", jobID, err)
	}
	if !ok || tenantID != "" && owner != tenantID {
		return noJob(jobID)
	}
	return nil
}

// List returns up to size records (1 to 1000) that f selects, newest end
// first, and the token of the next page, "" after the last. It does not ask
// who the caller is: f.TenantID says whose records. A record made while a
// caller pages is seen if it sorts behind the page last read; no record is
// seen twice. It returns fault.Invalid for a wrong filter, size or token.
func (s *Service) List(ctx context.Context, f Filter, size int, token string) (records []Record, next string, err error) {
	if err := f.check(); err != nil {
		return nil, "", err
	}
	if size < 1 || size > 1000 {
		return nil, "", fault.Fields(fault.Field{Path: "page_size", Problem: fmt.Sprintf("must be between 1 and 1000, got %d", size)})
	}
	before, err := parseToken(token)
	if err != nil {
		return nil, "", err
	}
	records, err = s.page(ctx, f, before, size+1)
	if err != nil {
		return nil, "", err
	}
	if len(records) > size {
		records = records[:size]
		last := records[size-1]
		next = core.PageToken(strconv.FormatInt(db.Micros(last.EndedAt), 10), last.AttemptID)
	}
	return records, next, nil
}

func parseToken(token string) (*position, error) {
	key, err := core.ParsePageToken(token, 2)
	if err != nil || key == nil {
		return nil, err
	}
	var c core.Check
	c.Text("page_token", key[1], true, maxID, 0)
	at, err := strconv.ParseInt(key[0], 10, 64)
	if err != nil || c.Err() != nil {
		return nil, fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
	}
	return &position{endedAt: at, attemptID: key[1]}, nil
}

func (s *Service) page(ctx context.Context, f Filter, before *position, limit int) ([]Record, error) {
	var records []Record
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		records, err = list(ctx, tx, f, before, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list usage: %w", err)
	}
	return records, nil
}

// Summary returns the cost in micro-yuan and the number of runs that ended at
// or after since, of the tenant, or of all if tenantID is "". It does not ask
// who the caller is.
func (s *Service) Summary(ctx context.Context, tenantID string, since time.Time) (micros, runs int64, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		micros, runs, err = sum(ctx, tx, Filter{TenantID: tenantID, EndedAfter: since})
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("sum usage: %w", err)
	}
	return micros, runs, nil
}

// tenantOf returns the tenant to which a request of the caller in ctx is
// limited, "" for all. A caller of no tenant who may not see all sees nothing.
func tenantOf(ctx context.Context, wanted string) (string, error) {
	caller := core.CallerFrom(ctx)
	if !caller.AllTenants && caller.TenantID == "" {
		return "", fault.New(fault.Denied, "user %q belongs to no tenant", caller.UserID)
	}
	return caller.Tenant(wanted), nil
}
