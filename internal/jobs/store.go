package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// record is a job as stored.
type record struct {
	id, tenant, user, userName, name string
	spec                             *jobsv1.JobSpec
	rawSpec                          []byte
	priority                         int64
	state, outcome                   State
	reason, message                  string
	created, started, ended, placed  int64
	lastEnd                          int64 // of a replica, 0: none has ended
	schedulingUS, waitingSince       int64
	counts
	issued, version int64
	pauseAsked      bool
	notBefore       int64  // the pause before another run ends then
	skipped         string // indices of tasks that never run
}

// touched reports whether the job may have attempts. Counters do not tell: a
// job all of whose replicas wait for a retry looks like a new one.
func (r *record) touched() bool { return r.version > 1 }

const jobColumns = `job_id, tenant_id, user_id, user_name, name, spec, priority, state, outcome, reason, message, created_at, started_at,
	ended_at, last_end, placed_at, scheduling_us, waiting_since, total, unplaced, active, running, succeeded, failed, stopped, issued, version,
	pause_asked, paused, not_before, skipped`

var jobColumnList = func() []string {
	parts := strings.Split(jobColumns, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}()

func (r *record) values() []any {
	return []any{r.id, r.tenant, r.user, r.userName, r.name, r.rawSpec, r.priority, int64(r.state), int64(r.outcome), r.reason, r.message, r.created, r.started,
		r.ended, r.lastEnd, r.placed, r.schedulingUS, r.waitingSince, r.total, r.unplaced, r.active, r.running, r.succeeded, r.failed, r.stopped, r.issued, r.version,
		r.pauseAsked, r.paused, r.notBefore, r.skipped}
}

func scanJob(row db.Row) (*record, error) {
	r := &record{spec: &jobsv1.JobSpec{}}
	err := row.Scan(&r.id, &r.tenant, &r.user, &r.userName, &r.name, &r.rawSpec, &r.priority, &r.state, &r.outcome, &r.reason, &r.message, &r.created, &r.started,
		&r.ended, &r.lastEnd, &r.placed, &r.schedulingUS, &r.waitingSince, &r.total, &r.unplaced, &r.active, &r.running, &r.succeeded, &r.failed, &r.stopped, &r.issued, &r.version,
		&r.pauseAsked, &r.paused, &r.notBefore, &r.skipped)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(r.rawSpec, r.spec); err != nil {
		return nil, fmt.Errorf("stored specification of %s: %w", r.id, err)
	}
	return r, nil
}

func insertJobs(ctx context.Context, tx *db.Tx, rs []*record) error {
	rows := make([][]any, len(rs))
	for i, r := range rs {
		rows[i] = r.values()
	}
	if err := tx.InsertLater(ctx, "store jobs", "jobs", jobColumnList, rows); err != nil {
		return err
	}
	return insertGroups(ctx, tx, rs)
}

// loadJob returns the job, nil if there is none.
func loadJob(ctx context.Context, tx *db.Tx, id string) (*record, error) {
	var out *record
	err := tx.Query(ctx, `SELECT `+jobColumns+` FROM jobs WHERE job_id = $1`, []any{id}, func(row db.Row) (err error) {
		out, err = scanJob(row)
		return err
	})
	return out, err
}

// loadJobs returns those of the jobs that there are, in no certain order.
func loadJobs(ctx context.Context, tx *db.Tx, ids []string) ([]*record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out := make([]*record, 0, len(ids))
	among, arg := tx.In(1, ids)
	err := tx.Query(ctx, `SELECT `+jobColumns+` FROM jobs WHERE job_id `+among, []any{arg}, func(row db.Row) error {
		r, err := scanJob(row)
		out = append(out, r)
		return err
	})
	return out, err
}

// saveJob writes what can change and counts the change.
func saveJob(ctx context.Context, tx *db.Tx, r *record) error {
	r.state = stateOf(r.counts, r.outcome, r.pauseAsked)
	if ended(r.state) && r.ended == 0 {
		r.ended = r.lastEnd
	}
	r.version++
	_, err := tx.Exec(ctx, `UPDATE jobs SET priority = $2, state = $3, outcome = $4, reason = $5, message = $6, started_at = $7, ended_at = $8, placed_at = $9,
		scheduling_us = $10, waiting_since = $11, unplaced = $12, active = $13, running = $14, succeeded = $15, failed = $16, stopped = $17, issued = $18, version = $19, last_end = $20,
		pause_asked = $21, paused = $22, total = $23, not_before = $24, skipped = $25
		WHERE job_id = $1`, r.id, r.priority, int64(r.state), int64(r.outcome), r.reason, r.message, r.started, r.ended, r.placed,
		r.schedulingUS, r.waitingSince, r.unplaced, r.active, r.running, r.succeeded, r.failed, r.stopped, r.issued, r.version, r.lastEnd,
		r.pauseAsked, r.paused, r.total, r.notBefore, r.skipped)
	if err != nil {
		return fmt.Errorf("save job %s: %w", r.id, err)
	}
	return nil
}

// savePlaced is saveJob for jobs of which only replicas were placed.
func savePlaced(ctx context.Context, tx *db.Tx, rs []*record) error {
	rows := make([][]any, len(rs))
	for i, r := range rs {
		r.state = stateOf(r.counts, r.outcome, r.pauseAsked)
		r.version++
		rows[i] = []any{r.id, int64(r.state), r.placed, r.unplaced, r.active, r.version}
	}
	return tx.ExecRowsLater(ctx, "save placed jobs", []string{"id TEXT", "state BIGINT", "placed_at BIGINT", "unplaced BIGINT", "active BIGINT", "version BIGINT"}, rows,
		`UPDATE jobs SET state = v.state, placed_at = v.placed_at, unplaced = v.unplaced, active = v.active, version = v.version FROM v WHERE jobs.job_id = v.id`,
		func(n int64) error {
			if int(n) != len(rs) {
				return fmt.Errorf("save placed jobs: %d of %d are there", n, len(rs))
			}
			return nil
		})
}

// attempt is one run of a replica as stored.
type attempt struct {
	id, job                string
	task, replica, number  int64
	center, spec, decision string
	resources              core.Quantities
	price                  int64
	state                  State
	stopAsked, retry, lost bool
	pauseAsked             bool
	reason, message        string
	placed, started, ended int64
	exitCode, cpuUS, peak  int64
	node                   string // where it runs, "": not known
	taken                  string // why it is taken away from there; "": it is not
	takenAs                string // as what, see takenReclaimed; "" too: reclaimed
	spared                 int64  // earlier runs of the replica that used up no retry
	allocation             string // that it draws on
	onNodes                bool   // kept to the nodes of the allocation
	pooled                 bool   // wants shares of the accelerator pool
	address                string // by which other members of its gang reach it, as it says
	logInline              []byte // nil: not inline
}

const attemptColumns = `attempt_id, job_id, task_index, replica_index, attempt, ai_center_id, spec_id, resources, price, decision_id, state, stop_asked, retry,
	lost, reason, message, placed_at, started_at, ended_at, exit_code, cpu_us, memory_peak, node, taken, allocation_id, on_nodes, pause_asked, taken_as, spared, pooled, address`

var attemptColumnList = func() []string {
	parts := strings.Split(attemptColumns, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}()

func scanAttempt(row db.Row) (*attempt, error) {
	a := &attempt{}
	var res string
	err := row.Scan(&a.id, &a.job, &a.task, &a.replica, &a.number, &a.center, &a.spec, &res, &a.price, &a.decision, &a.state, &a.stopAsked, &a.retry,
		&a.lost, &a.reason, &a.message, &a.placed, &a.started, &a.ended, &a.exitCode, &a.cpuUS, &a.peak, &a.node, &a.taken, &a.allocation, &a.onNodes, &a.pauseAsked, &a.takenAs, &a.spared, &a.pooled, &a.address)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(res), &a.resources); err != nil {
		return nil, fmt.Errorf("stored resources of %s: %w", a.id, err)
	}
	return a, nil
}

func insertAttempts(ctx context.Context, tx *db.Tx, as []*attempt) error {
	rows := make([][]any, len(as))
	for i, a := range as {
		res, err := json.Marshal(a.resources)
		if err != nil {
			return fmt.Errorf("resources of %s: %w", a.id, err)
		}
		rows[i] = []any{a.id, a.job, a.task, a.replica, a.number, a.center, a.spec, string(res), a.price, a.decision, int64(a.state), a.stopAsked, a.retry,
			a.lost, a.reason, a.message, a.placed, a.started, a.ended, a.exitCode, a.cpuUS, a.peak, a.node, a.taken, a.allocation, a.onNodes, a.pauseAsked, a.takenAs, a.spared, a.pooled, a.address}
	}
	return tx.InsertLater(ctx, "store attempts", "attempts", attemptColumnList, rows)
}

func saveAttempt(ctx context.Context, tx *db.Tx, a *attempt) error {
	_, err := tx.Exec(ctx, `UPDATE attempts SET state = $2, retry = $3, reason = $4, message = $5, started_at = $6, ended_at = $7, exit_code = $8,
		cpu_us = $9, memory_peak = $10, log_inline = $11, stop_asked = $12, lost = $13, node = $14, pause_asked = $15, taken = $16, taken_as = $17 WHERE attempt_id = $1`,
		a.id, int64(a.state), a.retry, a.reason, a.message, a.started, a.ended, a.exitCode, a.cpuUS, a.peak, a.logInline, a.stopAsked, a.lost, a.node, a.pauseAsked, a.taken, a.takenAs)
	if err != nil {
		return fmt.Errorf("save attempt %s: %w", a.id, err)
	}
	return nil
}

func queryAttempts(ctx context.Context, tx *db.Tx, where string, args ...any) ([]*attempt, error) {
	var out []*attempt
	err := tx.Query(ctx, `SELECT `+attemptColumns+` FROM attempts WHERE `+where, args, func(row db.Row) error {
		a, err := scanAttempt(row)
		out = append(out, a)
		return err
	})
	return out, err
}

// jobAttempts returns all attempts of a job by task, replica and number.
func jobAttempts(ctx context.Context, tx *db.Tx, jobID string) ([]*attempt, error) {
	return queryAttempts(ctx, tx, `job_id = $1 ORDER BY task_index, replica_index, attempt`, jobID)
}

// standings returns all attempts of a job in that order, with what they say of where its
// replicas stand and nothing else: it is read of jobs of many replicas each time one of them ends.
func standings(ctx context.Context, tx *db.Tx, jobID string) (out []*attempt, err error) {
	err = tx.Query(ctx, `SELECT task_index, replica_index, attempt, ai_center_id, state, stop_asked, retry, started_at, ended_at, taken_as FROM attempts
		WHERE job_id = $1 ORDER BY task_index, replica_index, attempt`, []any{jobID}, func(row db.Row) error {
		a := &attempt{job: jobID}
		out = append(out, a)
		return row.Scan(&a.task, &a.replica, &a.number, &a.center, &a.state, &a.stopAsked, &a.retry, &a.started, &a.ended, &a.takenAs)
	})
	return out, err
}

// filter of ListJobs.
type filter struct {
	tenant, name, user, center string
	states                     []State
	after, before              int64 // created, microseconds; 0: open
	older                      string
	limit                      int
}

func listJobs(ctx context.Context, tx *db.Tx, f filter) ([]*record, error) {
	q := `SELECT ` + jobColumns + ` FROM jobs WHERE total > 0`
	var args []any
	and := func(cond string, v any) {
		args = append(args, v)
		q += " AND " + strings.ReplaceAll(cond, "?", fmt.Sprintf("$%d", len(args)))
	}
	if f.older != "" {
		and("job_id < ?", f.older)
	}
	if f.tenant != "" {
		and("tenant_id = ?", f.tenant)
	}
	if f.user != "" {
		and("user_id = ?", f.user)
	}
	if f.name != "" {
		// The engines do not agree on lower case beyond ASCII: there it counts.
		args = append(args, "%"+likeEscape(f.name)+"%")
		and(fmt.Sprintf(`(name LIKE $%d ESCAPE '\' OR LOWER(name) LIKE ? ESCAPE '\')`, len(args)), "%"+likeEscape(strings.ToLower(f.name))+"%")
	}
	if f.center != "" {
		and("EXISTS (SELECT 1 FROM attempts a WHERE a.job_id = jobs.job_id AND a.ai_center_id = ?)", f.center)
	}
	if f.after > 0 {
		and("created_at >= ?", f.after)
	}
	if f.before > 0 {
		and("created_at < ?", f.before)
	}
	if len(f.states) > 0 {
		marks := make([]string, len(f.states))
		for i, s := range f.states {
			args = append(args, int64(s))
			marks[i] = fmt.Sprintf("$%d", len(args))
		}
		q += " AND state IN (" + strings.Join(marks, ", ") + ")"
	}
	args = append(args, f.limit)
	q += fmt.Sprintf(" ORDER BY job_id DESC LIMIT $%d", len(args))
	var out []*record
	err := tx.Query(ctx, q, args, func(row db.Row) error {
		r, err := scanJob(row)
		out = append(out, r)
		return err
	})
	return out, err
}

func likeEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(s)
}

// centersOf returns the centers of each job's attempts, sorted.
func centersOf(ctx context.Context, tx *db.Tx, jobIDs []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, id := range jobIDs {
		err := tx.Query(ctx, `SELECT DISTINCT ai_center_id FROM attempts WHERE job_id = $1 ORDER BY ai_center_id`, []any{id}, func(row db.Row) error {
			var c string
			err := row.Scan(&c)
			out[id] = append(out[id], c)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// visible loads a job the caller may see; fault.NotFound otherwise, so that
// nobody learns which jobs others have.
func visible(ctx context.Context, tx *db.Tx, id string) (*record, error) {
	r, err := loadJob(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if r == nil || !core.CallerFrom(ctx).Sees(r.tenant) {
		return nil, fault.New(fault.NotFound, "there is no job %q", clip(id))
	}
	return r, nil
}
