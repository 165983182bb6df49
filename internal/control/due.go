package control

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// DueFrom returns the first time from each of the two on since when a node is
// not as it was asked to be, and since when an allocation waits for room; zero:
// there is none. For alarms.
func (s *Service) DueFrom(ctx context.Context, unsetFrom, waitingFrom time.Time) (unset, waiting time.Time, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		var at [2]int64
		if _, err := tx.Get(ctx, `SELECT changed_at FROM node_controls WHERE applied <> generation AND changed_at >= $1 ORDER BY changed_at LIMIT 1`, []any{db.Micros(unsetFrom)}, &at[0]); err != nil {
			return fmt.Errorf("read node controls: %w", err)
		}
		if _, err := tx.Get(ctx, `SELECT start_at FROM allocations WHERE state = $1 AND start_at >= $2 ORDER BY start_at LIMIT 1`, []any{int64(Waiting), db.Micros(waitingFrom)}, &at[1]); err != nil {
			return fmt.Errorf("read allocations: %w", err)
		}
		unset, waiting = db.Time(at[0]), db.Time(at[1])
		return nil
	})
	return unset, waiting, err
}
