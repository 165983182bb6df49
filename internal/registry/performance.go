package registry

import (
	"context"
	"fmt"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// Where a center's performance factor is from. A declaration changes a declared
// one only; a measurement does not change what an operator stated, unless an
// operator says so.
const (
	PerformanceDeclared = "declared"
	PerformanceMeasured = "measured"
	PerformanceOperator = "operator"
)

// SetPerformanceTx makes a measured factor the center's: one that was declared or
// measured before, and with force also one that an operator stated. It reports
// whether the factor is now the center's. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) SetPerformanceTx(ctx context.Context, tx *db.Tx, id string, performance int64, force bool) (bool, error) {
	var c core.Check
	c.ID("ai_center_id", id)
	c.Range("performance", performance, 1, maxSpeed)
	if err := c.Err(); err != nil {
		return false, err
	}
	from, err := s.PerformanceFromTx(ctx, tx, id)
	if err != nil || from == PerformanceOperator && !force {
		return false, err
	}
	if _, err := tx.Exec(ctx, `UPDATE centers SET performance = $2, performance_from = $3, updated_at = $4 WHERE ai_center_id = $1`,
		id, performance, PerformanceMeasured, db.Micros(tx.Now)); err != nil {
		return false, fmt.Errorf("set performance of center %s: %w", id, err)
	}
	return true, s.changed(ctx, tx)
}

// PerformanceFromTx returns where a center's factor is from. It returns
// fault.NotFound.
func (s *Service) PerformanceFromTx(ctx context.Context, tx *db.Tx, id string) (from string, err error) {
	found, err := tx.Get(ctx, `SELECT performance_from FROM centers WHERE ai_center_id = $1`, []any{id}, &from)
	if err != nil {
		return "", fmt.Errorf("read performance of center %s: %w", id, err)
	}
	if !found {
		return "", noCenter(id)
	}
	return from, nil
}

// statedTx notes that an operator stated the factor.
func statedTx(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `UPDATE centers SET performance_from = $2 WHERE ai_center_id = $1`, id, PerformanceOperator); err != nil {
		return fmt.Errorf("note performance of center %s: %w", id, err)
	}
	return nil
}
