package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// head is a policy as stored.
type head struct {
	id             string
	latest, issued int64
	scope          string // JSON
	at             int64
	by             string
	test           string
	words          string
}

const headColumns = `policy_id, latest, issued, issued_scope, issued_at, issued_by, test_id, words`

func readHeads(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []head, err error) {
	err = tx.Query(ctx, `SELECT `+headColumns+` FROM policies `+rest, args, func(row db.Row) error {
		var h head
		err := row.Scan(&h.id, &h.latest, &h.issued, &h.scope, &h.at, &h.by, &h.test, &h.words)
		out = append(out, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return out, nil
}

// getHead returns a policy, nil if there is none.
func getHead(ctx context.Context, tx *db.Tx, id string) (*head, error) {
	rows, err := readHeads(ctx, tx, `WHERE policy_id = $1`, id)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func writeHead(ctx context.Context, tx *db.Tx, h *head) error {
	_, err := tx.Exec(ctx, `INSERT INTO policies (`+headColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (policy_id) DO UPDATE SET latest = $2, issued = $3, issued_scope = $4, issued_at = $5, issued_by = $6, test_id = $7, words = $8`,
		h.id, h.latest, h.issued, h.scope, h.at, h.by, h.test, h.words)
	if err != nil {
		return fmt.Errorf("write policy %s: %w", h.id, err)
	}
	return nil
}

const versionColumns = `version, state, body, note, created_at, created_by, checked_at, checked`

func readVersions(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []Version, err error) {
	err = tx.Query(ctx, `SELECT `+versionColumns+` FROM policy_versions `+rest, args, func(row db.Row) error {
		var v Version
		var body string
		var created, checked int64
		if err := row.Scan(&v.Version, &v.State, &body, &v.Note, &created, &v.CreatedBy, &checked, &v.Checked); err != nil {
			return err
		}
		v.CreatedAt, v.CheckedAt = db.Time(created), db.Time(checked)
		out = append(out, v)
		return json.Unmarshal([]byte(body), &out[len(out)-1].Document)
	})
	if err != nil {
		return nil, fmt.Errorf("read versions of policies: %w", err)
	}
	return out, nil
}

// getVersion returns a version, nil if there is none.
func getVersion(ctx context.Context, tx *db.Tx, id string, version int64) (*Version, error) {
	rows, err := readVersions(ctx, tx, `WHERE policy_id = $1 AND version = $2`, id, version)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func insertVersion(ctx context.Context, tx *db.Tx, id string, v *Version, body string) error {
	return tx.Insert(ctx, "policy_versions", []string{"policy_id", "version", "state", "body", "note", "created_at", "created_by", "checked_at", "checked"},
		[][]any{{id, v.Version, int64(v.State), body, v.Note, db.Micros(v.CreatedAt), v.CreatedBy, int64(0), ""}})
}

func setState(ctx context.Context, tx *db.Tx, id string, version int64, to State) error {
	_, err := tx.Exec(ctx, `UPDATE policy_versions SET state = $3 WHERE policy_id = $1 AND version = $2`, id, version, int64(to))
	return err
}

// setChecked notes that a version was checked; of those not issued yet it
// raises the state.
func setChecked(ctx context.Context, tx *db.Tx, id string, version int64, to State, how string) error {
	_, err := tx.Exec(ctx, `UPDATE policy_versions SET checked_at = $3, checked = $4, state = CASE WHEN state < $5 THEN $5 ELSE state END WHERE policy_id = $1 AND version = $2`,
		id, version, db.Micros(tx.Now), how, int64(to))
	return err
}

// stored is an event with what only the component reads.
type stored struct {
	Event
	scope string
}

func readEvents(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []stored, err error) {
	err = tx.Query(ctx, `SELECT event_id, policy_id, at, action, version, scope, user_id, reason FROM policy_events `+rest, args, func(row db.Row) error {
		var e stored
		var at int64
		err := row.Scan(&e.ID, &e.PolicyID, &at, &e.Action, &e.Version, &e.scope, &e.UserID, &e.Reason)
		e.At = db.Time(at)
		out = append(out, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read events of policies: %w", err)
	}
	return out, nil
}

func event(ctx context.Context, tx *db.Tx, id, action string, version int64, scope, reason string) error {
	return tx.Insert(ctx, "policy_events", []string{"event_id", "policy_id", "at", "action", "version", "scope", "user_id", "reason"},
		[][]any{{core.NewID("pevt"), id, db.Micros(tx.Now), action, version, scope, core.CallerFrom(ctx).UserID, reason}})
}

func count(ctx context.Context, tx *db.Tx, q string, args ...any) (n int64, err error) {
	if _, err = tx.Get(ctx, q, args, &n); err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return n, nil
}

func generation(ctx context.Context, tx *db.Tx) (int64, error) {
	return count(ctx, tx, `SELECT generation FROM policy_state WHERE one = 1`)
}

func (s *Service) bump(ctx context.Context, tx *db.Tx) error {
	if _, err := tx.Exec(ctx, `UPDATE policy_state SET generation = generation + 1 WHERE one = 1`); err != nil {
		return fmt.Errorf("count a change of policies: %w", err)
	}
	tx.AfterCommit(func() {
		s.mu.Lock()
		s.changes++
		s.mu.Unlock()
		if s.changed != nil {
			s.changed()
		}
	})
	return nil
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // documents, scopes and arms always marshal
	}
	return string(b)
}

func scopeFrom(text string) (s Scope, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &s)
	}
	return s, err
}

func words(d *Document) string {
	return strings.ToLower(d.ID + "\n" + d.Title + "\n" + d.Description)
}
