package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// SetDrainedTx takes a center out of use, or back into it, and reports
// whether that changed anything. It returns fault.NotFound.
func (s *Service) SetDrainedTx(ctx context.Context, tx *db.Tx, id string, drained bool) (changed bool, err error) {
	n, err := tx.Exec(ctx, `UPDATE centers SET drained = $2, updated_at = $3 WHERE ai_center_id = $1 AND drained <> $2`, id, drained, db.Micros(tx.Now))
	if err != nil {
		return false, fmt.Errorf("drain center %s: %w", id, err)
	}
	if n == 0 {
		found, err := hasCenter(ctx, tx, id)
		if err == nil && !found {
			err = noCenter(id)
		}
		return false, err
	}
	if err := emitCenter(ctx, tx, id); err != nil {
		return false, err
	}
	return true, s.changed(ctx, tx)
}

// LastSeenTx returns when a center was last heard of; the zero time: never, or
// there is no such center.
func (s *Service) LastSeenTx(ctx context.Context, tx *db.Tx, id string) (time.Time, error) {
	var at int64
	if _, err := tx.Get(ctx, `SELECT last_seen FROM center_monitor WHERE ai_center_id = $1`, []any{id}, &at); err != nil {
		return time.Time{}, fmt.Errorf("read when center %s was heard of: %w", id, err)
	}
	return db.Time(at), nil
}

// GiveBackTx gives back q as [Service.ReleaseTx] does, without replicas, unless
// the center is no more.
func (s *Service) GiveBackTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities) error {
	found, err := hasCenter(ctx, tx, id)
	if err != nil || !found {
		return err
	}
	return s.ReleaseTx(ctx, tx, id, q, 0, 0)
}

// PooledTx returns the nodes of centers on whose machine is one of these pool nodes
// ([Node.PoolNode]), or that are one of these machines ([Node.Host]), by center and name.
func (s *Service) PooledTx(ctx context.Context, tx *db.Tx, pool, hosts []string) ([]Node, error) {
	var out []Node
	for _, x := range []struct {
		where string
		of    []string
	}{{`WHERE n.pool_node <> '' AND n.pool_node IN (`, pool}, {`WHERE n.pool_node = '' AND n.host <> '' AND n.host IN (`, hosts}} {
		for some := range slices.Chunk(x.of, maxAtOnce) {
			marks, args := make([]string, len(some)), make([]any, len(some))
			for i, name := range some {
				marks[i], args[i] = "$"+strconv.Itoa(i+1), name
			}
			rows, err := readNodes(ctx, tx, x.where+strings.Join(marks, ", ")+`)`, args...)
			if err != nil {
				return nil, err
			}
			out = append(out, rows...)
		}
	}
	slices.SortFunc(out, func(a, b Node) int {
		return cmp.Or(strings.Compare(a.CenterID, b.CenterID), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

// maxAtOnce is how many one query asks for.
const maxAtOnce = 500

// NodeTx returns a node in the caller's transaction; found is false if the
// center has none of that name.
func (s *Service) NodeTx(ctx context.Context, tx *db.Tx, centerID, name string) (n Node, found bool, err error) {
	rows, err := readNodes(ctx, tx, `WHERE n.ai_center_id = $1 AND n.name = $2`, centerID, name)
	if err != nil || len(rows) == 0 {
		return n, false, err
	}
	return rows[0], true, nil
}
