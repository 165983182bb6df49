package simulations

import (
	"context"
	"encoding/json"
	"fmt"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

const columns = `simulation_id, tenant_id, user_id, state, cancel_asked, message, spec, places, jobs, progress, measures, runs, created_at, started_at, ended_at, version`

func read(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Simulation, error) {
	var out []*Simulation
	err := tx.Query(ctx, `SELECT `+columns+` FROM simulations `+rest, args, func(row db.Row) error {
		s := &Simulation{}
		var spec, measures string
		var created, started, ended int64
		if err := row.Scan(&s.ID, &s.TenantID, &s.UserID, &s.State, &s.CancelAsked, &s.Message, &spec, &s.Places, &s.Jobs, &s.Progress, &measures, &s.Runs, &created, &started, &ended, &s.Version); err != nil {
			return err
		}
		s.CreatedAt, s.StartedAt, s.EndedAt = db.Time(created), db.Time(started), db.Time(ended)
		out = append(out, s)
		if err := json.Unmarshal([]byte(spec), &s.Spec); err != nil {
			return err
		}
		return json.Unmarshal([]byte(measures), &s.Measures)
	})
	if err != nil {
		return nil, fmt.Errorf("read simulations: %w", err)
	}
	return out, nil
}

// find returns a simulation that the caller may see.
func find(ctx context.Context, tx *db.Tx, id string) (*Simulation, error) {
	rows, err := read(ctx, tx, `WHERE simulation_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !core.CallerFrom(ctx).Sees(rows[0].TenantID) {
		return nil, fault.New(fault.NotFound, "there is no simulation %s; see yunhe simulation list", id)
	}
	return rows[0], nil
}

func insert(ctx context.Context, tx *db.Tx, s *Simulation, requestID, digest string) error {
	spec, err := json.Marshal(&s.Spec)
	if err != nil {
		return fmt.Errorf("encode simulation: %w", err)
	}
	err = tx.Insert(ctx, "simulations", []string{"simulation_id", "tenant_id", "user_id", "request_id", "digest", "state", "cancel_asked", "message", "spec", "places", "jobs", "progress", "measures", "runs",
		"created_at", "started_at", "ended_at", "version"},
		[][]any{{s.ID, s.TenantID, s.UserID, requestID, digest, int64(s.State), false, s.Message, string(spec), s.Places, s.Jobs, int64(0), "[]", int64(0), db.Micros(s.CreatedAt), int64(0), int64(0), int64(1)}})
	if err != nil {
		return fmt.Errorf("store simulation: %w", err)
	}
	return nil
}

// save writes what changes of a simulation, and tells of it.
func save(ctx context.Context, tx *db.Tx, s *Simulation) error {
	measures, err := json.Marshal(s.Measures)
	if err != nil {
		return fmt.Errorf("encode measures: %w", err)
	}
	s.Version++
	_, err = tx.Exec(ctx, `UPDATE simulations SET state = $2, cancel_asked = $3, message = $4, progress = $5, measures = $6, runs = $7, started_at = $8, ended_at = $9, version = $10 WHERE simulation_id = $1`,
		s.ID, int64(s.State), s.CancelAsked, s.Message, s.Progress, string(measures), s.Runs, db.Micros(s.StartedAt), db.Micros(s.EndedAt), s.Version)
	if err != nil {
		return fmt.Errorf("store simulation: %w", err)
	}
	return tell(ctx, tx, s.ID)
}

func tell(ctx context.Context, tx *db.Tx, id string) error {
	return tx.Emit(ctx, subject, []byte(`["`+id+`"]`))
}

func count(ctx context.Context, tx *db.Tx, where string, args ...any) (n int64, err error) {
	_, err = tx.Get(ctx, `SELECT COUNT(*) FROM simulations WHERE `+where, args, &n)
	return n, err
}
