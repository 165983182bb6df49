package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// ReserveTx holds q, the sum for all replicas, at a center and counts the
// replicas as waiting there. It takes all of q or nothing; ok is false, and
// nothing is written, if the center has less than q free, is drained or does
// not exist. It returns fault.Invalid for a negative amount.
//
// A transaction that reserves or releases at several centers MUST do so in
// the order of their IDs: otherwise two such transactions can wait for each
// other, which PostgreSQL notices only after a second.
func (s *Service) ReserveTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities, replicas int64) (ok bool, err error) {
	if err := checkAmounts(q, replicas, 0); err != nil {
		return false, err
	}
	// The drained flag is read here and not only in the plan, so that nothing
	// is sent to a center after the operator was told that it is drained.
	n, err := tx.Exec(ctx, `UPDATE center_load SET waiting = waiting + $2 WHERE ai_center_id = $1
		AND EXISTS (SELECT 1 FROM centers c WHERE c.ai_center_id = $1 AND NOT c.drained)`, id, replicas)
	if err != nil {
		return false, fmt.Errorf("reserve at %s: %w", id, err)
	}
	if n == 0 {
		return false, nil
	}
	names := sorted(q) // one order for all: no deadlocks
	for i, name := range names {
		if q[name] == 0 {
			continue
		}
		n, err := tx.Exec(ctx, `UPDATE center_capacity SET used = used + $3 WHERE ai_center_id = $1 AND resource = $2 AND used + $3 <= total`,
			id, name, q[name])
		if err != nil {
			return false, fmt.Errorf("reserve %s at %s: %w", name, id, err)
		}
		if n == 0 {
			undo := core.Quantities{}
			for _, taken := range names[:i] {
				undo[taken] = q[taken]
			}
			return false, s.ReleaseTx(ctx, tx, id, undo, 0, replicas)
		}
	}
	return true, nil
}

// Claim is what is held at a center: Amounts for all of so many replicas.
type Claim struct {
	Amounts  core.Quantities
	Replicas int64
}

// ReserveAllTx is ReserveTx at many centers, by their IDs. It takes everything
// or, with an error, nothing: fault.Conflict says that a center has less than
// is claimed, is drained, has said that it goes away or does not exist: what was
// planned may be older than that, and is said when the transaction ends. It takes
// a few statements whatever the number of centers; each takes its rows in no
// certain order, so that one of two such transactions at a time may be run again.
func (s *Service) ReserveAllTx(ctx context.Context, tx *db.Tx, claims map[string]Claim) error {
	replicas, amounts := make([][]any, 0, len(claims)), make([][]any, 0, 2*len(claims))
	for _, id := range slices.Sorted(maps.Keys(claims)) {
		c := claims[id]
		if err := checkAmounts(c.Amounts, c.Replicas, 0); err != nil {
			return err
		}
		replicas = append(replicas, []any{id, c.Replicas})
		for _, name := range sorted(c.Amounts) {
			if c.Amounts[name] > 0 {
				amounts = append(amounts, []any{id, name, c.Amounts[name]})
			}
		}
	}
	all := func(rows [][]any, of string) func(n int64) error {
		return func(n int64) error {
			if int(n) < len(rows) {
				return fault.New(fault.Conflict, "%d %s than is to be reserved, or are out of use", len(rows)-int(n), of)
			}
			return nil
		}
	}
	what := fmt.Sprintf("reserve at %d centers", len(claims))
	if err := tx.ExecRowsLater(ctx, what, []string{"id TEXT", "n BIGINT"}, replicas, `UPDATE center_load SET waiting = waiting + v.n FROM v WHERE center_load.ai_center_id = v.id
		AND NOT EXISTS (SELECT 1 FROM centers c WHERE c.ai_center_id = v.id AND c.drained)
		AND NOT EXISTS (SELECT 1 FROM center_monitor m WHERE m.ai_center_id = v.id AND m.down)`, all(replicas, "centers have less room")); err != nil {
		return err
	}
	return tx.ExecRowsLater(ctx, what, []string{"id TEXT", "name TEXT", "n BIGINT"}, amounts, `UPDATE center_capacity SET used = used + v.n FROM v
		WHERE center_capacity.ai_center_id = v.id AND resource = v.name AND used + v.n <= total`, all(amounts, "resources of centers have less room"))
}

// ReleaseTx gives back q, the sum for all replicas, and counts as many
// running and waiting replicas less. Giving back more than is held is an
// unclassified error: the caller's books and ours differ.
func (s *Service) ReleaseTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities, running, waiting int64) error {
	if err := checkAmounts(q, running, waiting); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `UPDATE center_load SET running = running - $2, waiting = waiting - $3
		WHERE ai_center_id = $1 AND running >= $2 AND waiting >= $3`, id, running, waiting)
	if err != nil {
		return fmt.Errorf("release at %s: %w", id, err)
	}
	if n == 0 {
		return fmt.Errorf("release at %s: fewer than %d running and %d waiting replicas are counted there", id, running, waiting)
	}
	for _, name := range sorted(q) {
		if q[name] == 0 {
			continue
		}
		n, err := tx.Exec(ctx, `UPDATE center_capacity SET used = used - $3 WHERE ai_center_id = $1 AND resource = $2 AND used >= $3`,
			id, name, q[name])
		if err != nil {
			return fmt.Errorf("release %s at %s: %w", name, id, err)
		}
		if n == 0 {
			return fmt.Errorf("release %s at %s: less than %d is held there", name, id, q[name])
		}
	}
	return nil
}

// StartedTx counts n waiting replicas of a center as running. Counting more
// than wait there is an unclassified error.
func (s *Service) StartedTx(ctx context.Context, tx *db.Tx, id string, n int64) error {
	if err := checkAmounts(nil, n, 0); err != nil {
		return err
	}
	rows, err := tx.Exec(ctx, `UPDATE center_load SET running = running + $2, waiting = waiting - $2 WHERE ai_center_id = $1 AND waiting >= $2`, id, n)
	if err != nil {
		return fmt.Errorf("count started at %s: %w", id, err)
	}
	if rows == 0 {
		return fmt.Errorf("count started at %s: fewer than %d replicas wait there", id, n)
	}
	return nil
}

// maxHeld keeps used + n within 64 bits: totals are at most 2^53.
const maxHeld = 1 << 60

func checkAmounts(q core.Quantities, a, b int64) error {
	for _, name := range sorted(q) {
		if n := q[name]; n < 0 || n > maxHeld {
			return fault.New(fault.Invalid, "%s must be between 0 and %d, got %d", name, int64(maxHeld), n)
		}
	}
	if a < 0 || b < 0 || a > maxHeld || b > maxHeld {
		return fault.New(fault.Invalid, "replicas must be between 0 and %d, got %d and %d", int64(maxHeld), a, b)
	}
	return nil
}
