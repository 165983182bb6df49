package metering

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// columns in the order of values and scan.
const columns = `attempt_id, job_id, tenant_id, user_name, task_name, task_index, replica_index, attempt,
	ai_center_id, resource_spec_id, started_at, ended_at, cpu_micros, memory_peak, price, cost_micros, allocation_id, package_us, project`

const columnCount = 19 // beside recorded_at, which only insert writes

func (r *Record) values() []any {
	return []any{
		r.AttemptID, r.JobID, r.TenantID, r.UserName, r.TaskName, int64(r.TaskIndex), int64(r.ReplicaIndex), int64(r.Attempt),
		r.AICenterID, r.ResourceSpecID, db.Micros(r.StartedAt), db.Micros(r.EndedAt), r.CPUMicros, r.MemoryPeakBytes, r.Price, r.CostMicros, r.AllocationID, r.PackageMicros, r.Project,
	}
}

func scan(row db.Row) (r Record, err error) {
	var started, ended int64
	err = row.Scan(&r.AttemptID, &r.JobID, &r.TenantID, &r.UserName, &r.TaskName, &r.TaskIndex, &r.ReplicaIndex, &r.Attempt,
		&r.AICenterID, &r.ResourceSpecID, &started, &ended, &r.CPUMicros, &r.MemoryPeakBytes, &r.Price, &r.CostMicros, &r.AllocationID, &r.PackageMicros, &r.Project)
	r.StartedAt, r.EndedAt = db.Time(started), db.Time(ended)
	return r, err
}

// maxChunk is how many rows or keys a statement has at most. Chunks are powers
// of two: few statement texts, which the engines keep prepared.
const maxChunk = 64

// chunk returns the size of the next chunk of n.
func chunk(n int) int {
	size := maxChunk
	for size > n {
		size /= 2
	}
	return size
}

// insert stores the records whose run has none yet and returns those runs.
func insert(ctx context.Context, tx *db.Tx, records []Record) (stored map[string]bool, err error) {
	stored = make(map[string]bool, len(records))
	for len(records) > 0 {
		n := chunk(len(records))
		args := make([]any, 0, n*(columnCount+1))
		rows := make([]string, n)
		for i := range n {
			rows[i] = "(" + params(len(args)+1, columnCount+1) + ")"
			args = append(append(args, records[i].values()...), db.Micros(tx.Now))
		}
		q := `INSERT INTO usage (` + columns + `, recorded_at) VALUES ` + strings.Join(rows, ",") + ` ON CONFLICT (attempt_id) DO NOTHING RETURNING attempt_id`
		err := tx.Query(ctx, q, args, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			stored[id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
		records = records[n:]
	}
	return stored, nil
}

// params returns n parameters from number first: "$4,$5,$6".
func params(first, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(first + i))
	}
	return b.String()
}

func byAttempt(ctx context.Context, tx *db.Tx, id string) (r Record, found bool, err error) {
	err = tx.Query(ctx, `SELECT `+columns+` FROM usage WHERE attempt_id = $1`, []any{id}, func(row db.Row) (err error) {
		found = true
		r, err = scan(row)
		return err
	})
	return r, found, err
}

func ofJob(ctx context.Context, tx *db.Tx, tenantID, jobID string, limit int) ([]Record, error) {
	where, args := Filter{TenantID: tenantID, JobID: jobID}.where()
	return query(ctx, tx, fmt.Sprintf(`SELECT %s FROM usage%s ORDER BY task_index, replica_index, attempt, attempt_id LIMIT %d`, columns, where, limit), args)
}

// position is where a page ends: the key of its last row.
type position struct {
	endedAt   int64
	attemptID string
}

// list returns the newest records that end before the position.
func list(ctx context.Context, tx *db.Tx, f Filter, before *position, limit int) ([]Record, error) {
	where, args := f.where()
	if before != nil {
		word := " AND "
		if where == "" {
			word = " WHERE "
		}
		where += fmt.Sprintf("%s(ended_at, attempt_id) < ($%d, $%d)", word, len(args)+1, len(args)+2)
		args = append(args, before.endedAt, before.attemptID)
	}
	args = append(args, limit)
	return query(ctx, tx, fmt.Sprintf(`SELECT %s FROM usage%s ORDER BY ended_at DESC, attempt_id DESC LIMIT $%d`, columns, where, len(args)), args)
}

func query(ctx context.Context, tx *db.Tx, q string, args []any) ([]Record, error) {
	var out []Record
	err := tx.Query(ctx, q, args, func(row db.Row) error {
		r, err := scan(row)
		out = append(out, r)
		return err
	})
	return out, err
}

// where returns the condition, which names only what is selected by: both
// engines then choose the index that serves it.
func (f Filter) where() (string, []any) {
	var conds []string
	var args []any
	text := func(cond, value string) {
		if value != "" {
			args = append(args, value)
			conds = append(conds, fmt.Sprintf("%s $%d", cond, len(args)))
		}
	}
	at := func(cond string, t time.Time) {
		if !t.IsZero() {
			args = append(args, ceilMicros(t))
			conds = append(conds, fmt.Sprintf("%s $%d", cond, len(args)))
		}
	}
	text("tenant_id =", f.TenantID)
	text("job_id =", f.JobID)
	text("ai_center_id =", f.AICenterID)
	text("user_name =", f.UserName)
	text("allocation_id =", f.AllocationID)
	at("ended_at >=", f.EndedAfter)
	at("ended_at <", f.EndedBefore)
	if conds == nil {
		return "", nil
	}
	return " WHERE " + strings.Join(conds, " AND "), args
}

// ceilMicros rounds up: a record ends on a whole microsecond, so it ended at
// or after (or before) t if and only if it did so for t rounded up.
func ceilMicros(t time.Time) int64 {
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us
}

func sum(ctx context.Context, tx *db.Tx, f Filter) (micros, runs int64, err error) {
	where, args := f.where()
	_, err = tx.Get(ctx, `SELECT CAST(COALESCE(SUM(cost_micros), 0) AS BIGINT), COUNT(*) FILTER (WHERE allocation_id = '') FROM usage`+where, args, &micros, &runs)
	return micros, runs, err
}

func jobCosts(ctx context.Context, tx *db.Tx, jobIDs []string) (map[string]int64, error) {
	costs := make(map[string]int64, len(jobIDs))
	for len(jobIDs) > 0 {
		n := chunk(len(jobIDs))
		args := make([]any, n)
		for i, id := range jobIDs[:n] {
			args[i] = id
		}
		q := `SELECT job_id, CAST(SUM(cost_micros) AS BIGINT) FROM usage WHERE job_id IN (` + params(1, n) + `) GROUP BY job_id`
		err := tx.Query(ctx, q, args, func(row db.Row) error {
			var id string
			var micros int64
			err := row.Scan(&id, &micros)
			costs[id] = micros
			return err
		})
		if err != nil {
			return nil, err
		}
		jobIDs = jobIDs[n:]
	}
	return costs, nil
}
