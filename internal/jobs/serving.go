package jobs

import (
	"context"
	"fmt"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// OwnedTx refuses jobs that do not exist or are not the tenant's.
func (s *Service) OwnedTx(ctx context.Context, tx *db.Tx, tenantID string, ids []string) error {
	for _, id := range ids {
		var owner string
		found, err := tx.Get(ctx, `SELECT tenant_id FROM jobs WHERE job_id = $1`, []any{id}, &owner)
		if err != nil {
			return fmt.Errorf("read job %s: %w", id, err)
		}
		if !found || owner != tenantID {
			return fault.New(fault.NotFound, "there is no job %s", id)
		}
	}
	return nil
}

// ServingTx counts the running replicas of jobs by center.
func (s *Service) ServingTx(ctx context.Context, tx *db.Tx, ids []string) (map[string]int, error) {
	out := map[string]int{}
	for _, id := range ids {
		err := tx.Query(ctx, `SELECT ai_center_id, COUNT(*) FROM attempts WHERE job_id = $1 AND ended_at = 0 AND state = $2 GROUP BY ai_center_id`,
			[]any{id, int64(running)}, func(row db.Row) error {
				var center string
				var n int
				err := row.Scan(&center, &n)
				out[center] += n
				return err
			})
		if err != nil {
			return nil, fmt.Errorf("count running replicas of %s: %w", id, err)
		}
	}
	return out, nil
}
