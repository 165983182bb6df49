package measurement

import (
	"context"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// Schedule looks once for centers that are due.
func (s *Service) Schedule(ctx context.Context) error {
	return s.schedule(ctx, map[string]time.Time{})
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
		_, err := tx.Exec(ctx, `UPDATE measurement_runs SET created_at = created_at - $2 WHERE run_id = $1`, id, by.Microseconds())
		return err
	})
}

// Job is the command of what a run submits.
func Job(r Run, program []byte, q core.Quantities) string {
	return r.job(program, q, false).Tasks[0].Command
}
