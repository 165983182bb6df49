package access

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// Kinds of documents; the numbers are stored and the contract's.
const (
	kindRule       = 1
	kindConversion = 2
)

// document is a rule or a conversion as stored.
type document struct {
	kind    int64
	id      string
	version int64
	body    string // JSON; "": deleted
	at      int64
	by      string
}

type state struct {
	changes   int64
	enforce   bool
	evaluated time.Time
	seeded    int64
}

func readState(ctx context.Context, tx *db.Tx) (st state, err error) {
	var at int64
	if _, err = tx.Get(ctx, `SELECT changes, enforce, evaluated_at, seeded FROM access_state WHERE name = 'access'`, nil, &st.changes, &st.enforce, &at, &st.seeded); err != nil {
		return st, fmt.Errorf("read the state of access: %w", err)
	}
	st.evaluated = db.Time(at)
	return st, nil
}

func count(ctx context.Context, tx *db.Tx, q string, args ...any) (n int64, err error) {
	if _, err = tx.Get(ctx, q, args, &n); err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return n, nil
}

func readDocuments(ctx context.Context, tx *db.Tx) (out []document, err error) {
	err = tx.Query(ctx, `SELECT kind, id, version, body, updated_at, updated_by FROM access_documents ORDER BY kind, id`, nil, func(row db.Row) error {
		var d document
		err := row.Scan(&d.kind, &d.id, &d.version, &d.body, &d.at, &d.by)
		out = append(out, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read rules and conversions: %w", err)
	}
	return out, nil
}

func readDocument(ctx context.Context, tx *db.Tx, kind int64, id string) (d document, found bool, err error) {
	d.kind, d.id = kind, id
	found, err = tx.Get(ctx, `SELECT version, body, updated_at, updated_by FROM access_documents WHERE kind = $1 AND id = $2`, []any{kind, id}, &d.version, &d.body, &d.at, &d.by)
	if err != nil {
		return d, false, fmt.Errorf("read %s: %w", id, err)
	}
	return d, found, nil
}

// writeDocument stores a version; one without a body deletes the document.
func writeDocument(ctx context.Context, tx *db.Tx, d document, seed bool) error {
	var err error
	if d.body == "" {
		_, err = tx.Exec(ctx, `DELETE FROM access_documents WHERE kind = $1 AND id = $2`, d.kind, d.id)
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO access_documents (kind, id, version, body, updated_at, updated_by) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (kind, id) DO UPDATE SET version = $3, body = $4, updated_at = $5, updated_by = $6`, d.kind, d.id, d.version, d.body, d.at, d.by)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.id, err)
	}
	if err := tx.Insert(ctx, "access_versions", []string{"kind", "id", "version", "body", "at", "user_id"}, [][]any{{d.kind, d.id, d.version, d.body, d.at, d.by}}); err != nil {
		return fmt.Errorf("write version %d of %s: %w", d.version, d.id, err)
	}
	if seed {
		return nil
	}
	if _, err := tx.Exec(ctx, `UPDATE access_state SET changes = changes + 1 WHERE name = 'access'`); err != nil {
		return fmt.Errorf("count a change of access: %w", err)
	}
	return nil
}

// readVersions reads the versions of a document, latest first.
func readVersions(ctx context.Context, tx *db.Tx, kind int64, id string, limit int) (out []document, err error) {
	err = tx.Query(ctx, `SELECT version, body, at, user_id FROM access_versions WHERE kind = $1 AND id = $2 ORDER BY version DESC LIMIT $3`, []any{kind, id, int64(limit)}, func(row db.Row) error {
		d := document{kind: kind, id: id}
		err := row.Scan(&d.version, &d.body, &d.at, &d.by)
		out = append(out, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read versions of %s: %w", id, err)
	}
	return out, nil
}

// reportFilter says which reports are wanted; zero values: all.
type reportFilter struct {
	id     string
	after  string
	status Status
	kind   Kind
	limit  int
}

func readReports(ctx context.Context, tx *db.Tx, f reportFilter) ([]Report, error) {
	q, args := `SELECT resource_id, kind, name, status, verdicts, evaluated_at, changed_at FROM access_reports WHERE resource_id > $1`, []any{f.after}
	add := func(cond string, v any) {
		args = append(args, v)
		q += fmt.Sprintf(" AND %s = $%d", cond, len(args))
	}
	if f.id != "" {
		add("resource_id", f.id)
	}
	if f.status != 0 {
		add("status", int64(f.status))
	}
	if f.kind != 0 {
		add("kind", int64(f.kind))
	}
	q += " ORDER BY resource_id"
	if f.limit > 0 {
		args = append(args, int64(f.limit))
		q += fmt.Sprintf(" LIMIT $%d", len(args))
	}
	var out []Report
	err := tx.Query(ctx, q, args, func(row db.Row) error {
		var r Report
		var verdicts string
		var evaluated, changed int64
		if err := row.Scan(&r.ResourceID, &r.Kind, &r.Name, &r.Status, &verdicts, &evaluated, &changed); err != nil {
			return err
		}
		r.EvaluatedAt, r.ChangedAt = db.Time(evaluated), db.Time(changed)
		if err := json.Unmarshal([]byte(verdicts), &r.Verdicts); err != nil {
			return err
		}
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	return out, nil
}

// eachVerdicts calls f with the same verdicts once, and how many reports have
// them: 100,000 resources have few that differ.
func eachVerdicts(ctx context.Context, tx *db.Tx, f func(kind Kind, status Status, verdicts []Verdict, n int64)) error {
	err := tx.Query(ctx, `SELECT kind, status, verdicts, COUNT(*) FROM access_reports GROUP BY kind, status, verdicts`, nil, func(row db.Row) error {
		var kind Kind
		var status Status
		var text string
		var n int64
		if err := row.Scan(&kind, &status, &text, &n); err != nil {
			return err
		}
		var verdicts []Verdict
		if err := json.Unmarshal([]byte(text), &verdicts); err != nil {
			return err
		}
		f(kind, status, verdicts, n)
		return nil
	})
	if err != nil {
		return fmt.Errorf("count reports: %w", err)
	}
	return nil
}

func writeReport(ctx context.Context, tx *db.Tx, r *Report) error {
	if _, err := tx.Exec(ctx, `INSERT INTO access_reports (resource_id, kind, name, status, verdicts, evaluated_at, changed_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (resource_id) DO UPDATE SET kind = $2, name = $3, status = $4, verdicts = $5, evaluated_at = $6, changed_at = $7`,
		r.ResourceID, int64(r.Kind), r.Name, int64(r.Status), toJSON(r.Verdicts), db.Micros(r.EvaluatedAt), db.Micros(r.ChangedAt)); err != nil {
		return fmt.Errorf("write the report of %s: %w", r.ResourceID, err)
	}
	return nil
}

func deleteReport(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM access_reports WHERE resource_id = $1`, id); err != nil {
		return fmt.Errorf("delete the report of %s: %w", id, err)
	}
	return nil
}

// Step is a step of an access.
type Step struct {
	At      time.Time
	Step    string
	Message string
	UserID  string // "": the platform, or the resource itself
	Outcome string // "OK", or the kind of error
}

func writeStep(ctx context.Context, tx *db.Tx, resourceID string, st Step) error {
	if err := tx.Insert(ctx, "access_steps", []string{"step_id", "resource_id", "at", "step", "message", "outcome"},
		[][]any{{core.NewID("acs"), resourceID, db.Micros(tx.Now), st.Step, st.Message, st.Outcome}}); err != nil {
		return fmt.Errorf("write a step of %s: %w", resourceID, err)
	}
	return nil
}

func readSteps(ctx context.Context, tx *db.Tx, resourceID string) (out []Step, err error) {
	err = tx.Query(ctx, `SELECT at, step, message, outcome FROM access_steps WHERE resource_id = $1 ORDER BY step_id DESC LIMIT $2`, []any{resourceID, int64(maxSteps)}, func(row db.Row) error {
		var st Step
		var at int64
		err := row.Scan(&at, &st.Step, &st.Message, &st.Outcome)
		st.At = db.Time(at)
		out = append(out, st)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read steps of %s: %w", resourceID, err)
	}
	return out, nil
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain records always marshal
	}
	return string(b)
}
