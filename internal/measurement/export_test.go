package measurement

import (
	"context"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// Schedule looks once for centers that are due.
func (s *Service) Schedule(ctx context.Context) error {
	return s.schedule(ctx)
}

// MeasureNodes looks once for nodes that are due.
func (s *Service) MeasureNodes(ctx context.Context) error { return s.measureNodes(ctx) }

// Hasty takes every job without a place for one that waits.
func (s *Service) Hasty() { s.settles = 0 }

// AgeNodes makes what is known of the nodes of a center look older than it is.
func (s *Service) AgeNodes(ctx context.Context, centerID string, by time.Duration) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE measurement_nodes SET measured_at = measured_at - $2, retry_at = CASE WHEN retry_at = 0 THEN 0 ELSE retry_at - $2 END WHERE ai_center_id = $1`,
			centerID, by.Microseconds())
		return err
	})
}

// Due, and the choices of what a run runs on.
var (
	Due         = due
	ChooseSpec  = chooseSpec
	ChooseImage = chooseImage
)

// Age makes a run look older than it is.
func (s *Service) Age(ctx context.Context, id string, by time.Duration) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := getRun(ctx, tx, id)
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE `+r.table()+` SET created_at = created_at - $2 WHERE run_id = $1`, id, by.Microseconds())
		}
		return err
	})
}

// Job is the command of what a run submits.
func Job(r Run, program []byte, q core.Quantities) string {
	return r.job(program, q, false).Tasks[0].Command
}

// Look brings the open runs forward.
func (s *Service) Look(ctx context.Context) { s.lookAt(ctx, func() {}) }

// Beside is the service of another process on the same database.
func (s *Service) Beside(ctx context.Context) (*Service, error) {
	return New(ctx, s.db, s.Deps, s.log)
}

// Nodes reports the nodes of a center, as its driver would.
func (s *Service) Nodes(ctx context.Context, centerID string, nodes ...*adapterv1.Node) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error { return s.Registry.SyncNodesTx(ctx, tx, centerID, true, nodes, nil) })
}
