package measurement

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/measurement/score"
)

const runColumns = `run_id, ai_center_id, scope, node, state, message, job_id, resource_spec_id, image_id, architecture, requested_by, created_at, ended_at,
	performance, decision, decided_by, result`

// allRuns are those asked for, whose schedule_node is empty, and those that
// schedules of nodes began.
const allRuns = `(SELECT ` + runColumns + `, request_id, '' AS schedule_node FROM measurement_runs
	UNION ALL SELECT ` + runColumns + `, request_id, schedule_node FROM measurement_node_runs) AS runs `

// table is where a run is kept.
func (r *Run) table() string {
	if r.ScheduleNode != "" {
		return "measurement_node_runs"
	}
	return "measurement_runs"
}

// readRuns reads the runs that match the rest of the query.
func readRuns(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Run, error) {
	var out []Run
	err := tx.Query(ctx, `SELECT `+runColumns+`, schedule_node FROM `+allRuns+rest, args, func(row db.Row) error {
		var r Run
		var created, ended int64
		var result string
		if err := row.Scan(&r.ID, &r.CenterID, &r.Scope, &r.Node, &r.State, &r.Message, &r.JobID, &r.SpecID, &r.ImageID, &r.Architecture, &r.RequestedBy, &created, &ended,
			&r.Performance, &r.Decision, &r.DecidedBy, &result, &r.ScheduleNode); err != nil {
			return err
		}
		r.CreatedAt, r.EndedAt = db.Time(created), db.Time(ended)
		if result != "" {
			if err := json.Unmarshal([]byte(result), &r.Result); err != nil {
				return fmt.Errorf("result of run %s: %w", r.ID, err)
			}
		}
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read runs of the benchmark: %w", err)
	}
	return out, nil
}

func getRun(ctx context.Context, tx *db.Tx, id string) (Run, error) {
	rows, err := readRuns(ctx, tx, `WHERE run_id = $1`, id)
	if err != nil {
		return Run{}, err
	}
	if len(rows) == 0 {
		return Run{}, fault.New(fault.NotFound, "there is no run %s of the benchmark", clip(id))
	}
	return rows[0], nil
}

// mayBegin returns fault.Conflict for a run asked for of a node that is being
// measured, and fault.Exhausted for one that a schedule may not begin now.
func mayBegin(ctx context.Context, tx *db.Tx, q Request) error {
	open, err := openNodeRuns(ctx, tx, q.CenterID)
	if err != nil {
		return err
	}
	for _, r := range open {
		if q.Node == r.ScheduleNode && q.atOnce == 0 {
			return fault.New(fault.Conflict, "node %s of center %s is being measured by its schedule: run %s", clip(q.Node), q.CenterID, r.ID)
		}
	}
	if q.atOnce == 0 {
		return nil
	}
	sch, err := getNodeSchedule(ctx, tx, q.CenterID)
	if err != nil {
		return err
	}
	known, err := readNodes(ctx, tx, q.CenterID, q.Node, q.Node) // another process may have been faster
	if err != nil {
		return err
	}
	n := known[q.Node]
	if n.due(sch).After(tx.Now) || sch.IntervalHours == 0 || int64(len(open)) >= sch.AtOnce ||
		slices.ContainsFunc(open, func(r Run) bool { return r.ScheduleNode == q.Node }) {
		return fault.New(fault.Exhausted, "the schedule of center %s begins no more now", q.CenterID)
	}
	return nil
}

// insertRun reports false if the center has an open run.
func insertRun(ctx context.Context, tx *db.Tx, r *Run, requestID string) (bool, error) {
	columns, values := runColumns+`, request_id`, `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, '', $17`
	args := []any{r.ID, r.CenterID, int64(r.Scope), r.Node, int64(r.State), r.Message, r.JobID, r.SpecID, r.ImageID, r.Architecture, r.RequestedBy,
		db.Micros(r.CreatedAt), db.Micros(r.EndedAt), r.Performance, int64(r.Decision), r.DecidedBy, requestID}
	if r.ScheduleNode != "" {
		columns, values, args = columns+`, schedule_node`, values+`, $18`, append(args, r.ScheduleNode)
	}
	n, err := tx.Exec(ctx, `INSERT INTO `+r.table()+` (`+columns+`) VALUES (`+values+`) ON CONFLICT DO NOTHING`, args...)
	if err != nil {
		return false, fmt.Errorf("insert run of the benchmark: %w", err)
	}
	return n == 1, nil
}

// saveRun writes what changes of a run; it reports false if the run was not in
// the state any more.
func saveRun(ctx context.Context, tx *db.Tx, r *Run, was State) (bool, error) {
	result, err := json.Marshal(r.Result)
	if err != nil {
		return false, fmt.Errorf("encode result: %w", err)
	}
	if r.State != Succeeded && r.State != Refused {
		result = nil
	}
	n, err := tx.Exec(ctx, `UPDATE `+r.table()+` SET state = $2, message = $3, job_id = $4, node = $5, ended_at = $6, performance = $7, decision = $8, decided_by = $9, result = $10
		WHERE run_id = $1 AND state = $11`, r.ID, int64(r.State), r.Message, r.JobID, r.Node, db.Micros(r.EndedAt), r.Performance, int64(r.Decision), r.DecidedBy, string(result), int64(was))
	if err != nil {
		return false, fmt.Errorf("store run %s: %w", r.ID, err)
	}
	return n == 1, nil
}

// replaceAwaited ends what waits for a decision at the center of a run, of the
// same scope, but for that run.
func replaceAwaited(ctx context.Context, tx *db.Tx, but *Run) error {
	for _, table := range []string{"measurement_runs", "measurement_node_runs"} {
		if _, err := tx.Exec(ctx, `UPDATE `+table+` SET decision = $3 WHERE ai_center_id = $1 AND scope = $5 AND run_id <> $2 AND decision = $4`,
			but.CenterID, but.ID, int64(Replaced), int64(Awaited), int64(but.Scope)); err != nil {
			return fmt.Errorf("replace runs of center %s: %w", but.CenterID, err)
		}
	}
	return nil
}

// ofCenter are the runs that speak for the center, not for one node that a
// schedule chose among several.
const ofCenter = `(schedule_node = '' OR decision <> 0)`

// lastWell returns the latest run of a center and scope that succeeded.
func lastWell(ctx context.Context, tx *db.Tx, centerID string, scope Scope) (r Run, found bool, err error) {
	rows, err := readRuns(ctx, tx, `WHERE ai_center_id = $1 AND scope = $2 AND state = $3 AND `+ofCenter+` ORDER BY ended_at DESC, run_id DESC LIMIT 1`, centerID, int64(scope), int64(Succeeded))
	if err != nil || len(rows) == 0 {
		return Run{}, false, err
	}
	return rows[0], true, nil
}

func readSettings(ctx context.Context, tx *db.Tx) (s Settings, err error) {
	var weights string
	var updated int64
	if _, err = tx.Get(ctx, `SELECT policy, on_join, every_days, weights, version, updated_at FROM measurement_settings WHERE id = 1`, nil,
		&s.Policy, &s.OnJoin, &s.EveryDays, &weights, &s.Version, &updated); err != nil {
		return s, fmt.Errorf("read settings of measuring: %w", err)
	}
	s.UpdatedAt, s.Weights = db.Time(updated), score.Weights()
	if weights != "" {
		s.Weights = nil
		if err := json.Unmarshal([]byte(weights), &s.Weights); err != nil {
			return s, fmt.Errorf("weights of measuring: %w", err)
		}
	}
	return s, nil
}

// writeSettings reports false if the stored version is another.
func writeSettings(ctx context.Context, tx *db.Tx, s Settings) (bool, error) {
	weights, err := json.Marshal(s.Weights)
	if err != nil {
		return false, fmt.Errorf("encode weights: %w", err)
	}
	n, err := tx.Exec(ctx, `UPDATE measurement_settings SET policy = $2, on_join = $3, every_days = $4, weights = $5, version = version + 1, updated_at = $6 WHERE id = 1 AND version = $1`,
		s.Version, int64(s.Policy), s.OnJoin, s.EveryDays, string(weights), db.Micros(tx.Now))
	if err != nil {
		return false, fmt.Errorf("store settings of measuring: %w", err)
	}
	return n == 1, nil
}

// lastRuns is when each center was last measured, whatever came of it.
func lastRuns(ctx context.Context, tx *db.Tx, scope Scope) (map[string]int64, error) {
	out := map[string]int64{}
	err := tx.Query(ctx, `SELECT ai_center_id, MAX(created_at) FROM measurement_runs WHERE scope = $1 GROUP BY ai_center_id`, []any{int64(scope)}, func(row db.Row) error {
		var id string
		var at int64
		if err := row.Scan(&id, &at); err != nil {
			return err
		}
		out[id] = at
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read when centers were measured: %w", err)
	}
	return out, nil
}

func getNodeSchedule(ctx context.Context, tx *db.Tx, centerID string) (NodeSchedule, error) {
	rows, err := readNodeSchedules(ctx, tx, `WHERE ai_center_id = $1`, centerID)
	if err != nil || len(rows) == 0 {
		return NodeSchedule{CenterID: centerID, AtOnce: 1}, err
	}
	return rows[0], nil
}

func readNodeSchedules(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []NodeSchedule, err error) {
	err = tx.Query(ctx, `SELECT ai_center_id, interval_hours, at_once, version, updated_at, updated_by, message FROM measurement_schedules `+rest, args, func(row db.Row) error {
		var n NodeSchedule
		var at int64
		err := row.Scan(&n.CenterID, &n.IntervalHours, &n.AtOnce, &n.Version, &at, &n.UpdatedBy, &n.Message)
		n.UpdatedAt = db.Time(at)
		out = append(out, n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read schedules of nodes: %w", err)
	}
	return out, nil
}

// writeNodeSchedule reports false if the stored version is another.
func writeNodeSchedule(ctx context.Context, tx *db.Tx, n NodeSchedule) (bool, error) {
	q := `UPDATE measurement_schedules SET interval_hours = $2, at_once = $3, version = $4, updated_at = $5, updated_by = $6, message = '' WHERE ai_center_id = $1 AND version = $7`
	args := []any{n.CenterID, n.IntervalHours, n.AtOnce, n.Version + 1, db.Micros(tx.Now), n.UpdatedBy, n.Version}
	if n.Version == 0 {
		args = args[:6]
		q = `INSERT INTO measurement_schedules (ai_center_id, interval_hours, at_once, version, updated_at, updated_by, message) VALUES ($1, $2, $3, $4, $5, $6, '')
			ON CONFLICT DO NOTHING`
	}
	made, err := tx.Exec(ctx, q, args...)
	if err != nil {
		return false, fmt.Errorf("store the schedule of center %s: %w", n.CenterID, err)
	}
	return made == 1, nil
}

// saveWhy says why a schedule begins nothing, unless it was changed meanwhile.
func saveWhy(ctx context.Context, tx *db.Tx, centerID string, version int64, why string) error {
	if _, err := tx.Exec(ctx, `UPDATE measurement_schedules SET message = $3 WHERE ai_center_id = $1 AND version = $2`, centerID, version, why); err != nil {
		return fmt.Errorf("store what holds the schedule of center %s: %w", centerID, err)
	}
	return nil
}

// scheduledCenters are those that something is kept of.
func scheduledCenters(ctx context.Context, tx *db.Tx) (out []string, err error) {
	err = tx.Query(ctx, `SELECT ai_center_id FROM measurement_schedules UNION SELECT ai_center_id FROM measurement_nodes ORDER BY ai_center_id`, nil, func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		out = append(out, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the centers with schedules: %w", err)
	}
	return out, nil
}

func forgetCenter(ctx context.Context, tx *db.Tx, id string) error {
	for _, table := range []string{"measurement_schedules", "measurement_nodes"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE ai_center_id = $1`, id); err != nil {
			return fmt.Errorf("forget the schedule of center %s: %w", id, err)
		}
	}
	return nil
}

// forgetNodes forgets nodes that left, with the runs their schedule began.
func forgetNodes(ctx context.Context, tx *db.Tx, centerID string, names []string) error {
	for _, name := range names {
		if _, err := tx.Exec(ctx, `DELETE FROM measurement_nodes WHERE ai_center_id = $1 AND node = $2`, centerID, name); err != nil {
			return fmt.Errorf("forget node %s: %w", name, err)
		}
		if err := pruneNodeRuns(ctx, tx, centerID, name, 0); err != nil {
			return err
		}
	}
	return nil
}

// pruneNodeRuns drops the runs of a node that its schedule began and that have
// ended, but for the last ones, the last that was well and those that speak for
// the center.
func pruneNodeRuns(ctx context.Context, tx *db.Tx, centerID, node string, keep int) error {
	if _, err := tx.Exec(ctx, `DELETE FROM measurement_node_runs WHERE ai_center_id = $1 AND schedule_node = $2 AND state > $3 AND decision = 0 AND run_id NOT IN
		(SELECT run_id FROM measurement_node_runs WHERE ai_center_id = $1 AND schedule_node = $2 AND state > $3 ORDER BY run_id DESC LIMIT $4)
		AND run_id NOT IN (SELECT run_id FROM measurement_nodes WHERE ai_center_id = $1 AND node = $2)`,
		centerID, node, int64(Running), keep); err != nil {
		return fmt.Errorf("drop old runs of node %s: %w", node, err)
	}
	return nil
}

// openNodeRuns are the runs of a center that its schedule began and that go on.
func openNodeRuns(ctx context.Context, tx *db.Tx, centerID string) ([]Run, error) {
	return readRuns(ctx, tx, `WHERE ai_center_id = $1 AND schedule_node <> '' AND state <= $2 ORDER BY run_id`, centerID, int64(Running))
}

// readNodes reads what is known of the nodes of a center, by name: of those
// between two, or with none of all.
func readNodes(ctx context.Context, tx *db.Tx, centerID, from, to string) (map[string]MeasuredNode, error) {
	out := map[string]MeasuredNode{}
	err := tx.Query(ctx, `SELECT node, measured_at, performance, run_id, failures, retry_at, message FROM measurement_nodes
		WHERE ai_center_id = $1 AND node <> '' AND (node >= $2 AND node <= $3 OR $2 = '')`, []any{centerID, from, to}, func(row db.Row) error {
		n := MeasuredNode{CenterID: centerID}
		var at, retry int64
		err := row.Scan(&n.Node, &at, &n.Performance, &n.RunID, &n.Failures, &retry, &n.Message)
		n.MeasuredAt, n.RetryAt = db.Time(at), db.Time(retry)
		out[n.Node] = n
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read nodes of center %s: %w", centerID, err)
	}
	return out, nil
}

// nodeWell records that a scheduled run of a node succeeded.
func nodeWell(ctx context.Context, tx *db.Tx, r *Run) error {
	if _, err := tx.Exec(ctx, `INSERT INTO measurement_nodes (ai_center_id, node, measured_at, performance, run_id, failures, retry_at, message) VALUES ($1, $2, $3, $4, $5, 0, 0, '')
		ON CONFLICT (ai_center_id, node) DO UPDATE SET measured_at = $3, performance = $4, run_id = $5, failures = 0, retry_at = 0, message = ''`,
		r.CenterID, r.ScheduleNode, db.Micros(tx.Now), r.Performance, r.ID); err != nil {
		return fmt.Errorf("store that node %s was measured: %w", r.ScheduleNode, err)
	}
	return nil
}

// nodeFailed records that a node, or with no name the center, was not measured,
// and when it is tried again; one that gave way has not failed.
func nodeFailed(ctx context.Context, tx *db.Tx, centerID, node, why string, gaveWay bool) error {
	var failures int64
	if _, err := tx.Get(ctx, `SELECT failures FROM measurement_nodes WHERE ai_center_id = $1 AND node = $2`, []any{centerID, node}, &failures); err != nil {
		return fmt.Errorf("read the failures of node %s: %w", node, err)
	}
	pause := roomRetry
	if !gaveWay {
		pause = min(failRetry<<min(failures, 5), failRetryMost)
		failures++
	}
	if _, err := tx.Exec(ctx, `INSERT INTO measurement_nodes (ai_center_id, node, measured_at, performance, run_id, failures, retry_at, message) VALUES ($1, $2, 0, 0, '', $3, $4, $5)
		ON CONFLICT (ai_center_id, node) DO UPDATE SET failures = $3, retry_at = $4, message = $5`, centerID, node, failures, db.Micros(tx.Now.Add(pause)), why); err != nil {
		return fmt.Errorf("store that node %s was not measured: %w", node, err)
	}
	return nil
}

func forgetRetry(ctx context.Context, tx *db.Tx, centerID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM measurement_nodes WHERE ai_center_id = $1 AND node = ''`, centerID); err != nil {
		return fmt.Errorf("forget that center %s is tried again: %w", centerID, err)
	}
	return nil
}

// centerRetries says until when centers that could not be measured are left alone.
func centerRetries(ctx context.Context, tx *db.Tx) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	err := tx.Query(ctx, `SELECT ai_center_id, retry_at FROM measurement_nodes WHERE node = ''`, nil, func(row db.Row) error {
		var id string
		var at int64
		err := row.Scan(&id, &at)
		out[id] = db.Time(at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the centers that are tried again: %w", err)
	}
	return out, nil
}
