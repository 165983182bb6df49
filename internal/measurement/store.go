package measurement

import (
	"context"
	"encoding/json"
	"fmt"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/measurement/score"
)

const runColumns = `run_id, ai_center_id, scope, node, state, message, job_id, resource_spec_id, image_id, architecture, requested_by, created_at, ended_at,
	performance, decision, decided_by, result`

// readRuns reads the runs that match the rest of the query.
func readRuns(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Run, error) {
	var out []Run
	err := tx.Query(ctx, `SELECT `+runColumns+` FROM measurement_runs `+rest, args, func(row db.Row) error {
		var r Run
		var created, ended int64
		var result string
		if err := row.Scan(&r.ID, &r.CenterID, &r.Scope, &r.Node, &r.State, &r.Message, &r.JobID, &r.SpecID, &r.ImageID, &r.Architecture, &r.RequestedBy, &created, &ended,
			&r.Performance, &r.Decision, &r.DecidedBy, &result); err != nil {
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

// insertRun reports false if the center has an open run.
func insertRun(ctx context.Context, tx *db.Tx, r *Run, requestID string) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO measurement_runs (`+runColumns+`, request_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, '', $17)
		ON CONFLICT DO NOTHING`, r.ID, r.CenterID, int64(r.Scope), r.Node, int64(r.State), r.Message, r.JobID, r.SpecID, r.ImageID, r.Architecture, r.RequestedBy,
		db.Micros(r.CreatedAt), db.Micros(r.EndedAt), r.Performance, int64(r.Decision), r.DecidedBy, requestID)
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
	n, err := tx.Exec(ctx, `UPDATE measurement_runs SET state = $2, message = $3, job_id = $4, node = $5, ended_at = $6, performance = $7, decision = $8, decided_by = $9, result = $10
		WHERE run_id = $1 AND state = $11`, r.ID, int64(r.State), r.Message, r.JobID, r.Node, db.Micros(r.EndedAt), r.Performance, int64(r.Decision), r.DecidedBy, string(result), int64(was))
	if err != nil {
		return false, fmt.Errorf("store run %s: %w", r.ID, err)
	}
	return n == 1, nil
}

// replaceAwaited ends what waits for a decision at a center, but for one run.
func replaceAwaited(ctx context.Context, tx *db.Tx, centerID, but string) error {
	if _, err := tx.Exec(ctx, `UPDATE measurement_runs SET decision = $3 WHERE ai_center_id = $1 AND run_id <> $2 AND decision = $4`,
		centerID, but, int64(Replaced), int64(Awaited)); err != nil {
		return fmt.Errorf("replace runs of center %s: %w", centerID, err)
	}
	return nil
}

// lastWell returns the latest run of a center and scope that succeeded.
func lastWell(ctx context.Context, tx *db.Tx, centerID string, scope Scope) (r Run, found bool, err error) {
	rows, err := readRuns(ctx, tx, `WHERE ai_center_id = $1 AND scope = $2 AND state = $3 ORDER BY ended_at DESC, run_id DESC LIMIT 1`, centerID, int64(scope), int64(Succeeded))
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
