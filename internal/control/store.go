package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

const operationColumns = `operation_id, kind, state, tenant_id, user_id, ai_center_id, node, allocation_id, reason, message, steps, request_id, digest, phase, grace, stop_at,
	then_free, created_at, updated_at, ended_at`

func columns(list string) []string {
	out := strings.Split(list, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

func insertOperation(ctx context.Context, tx *db.Tx, o *Operation) error {
	err := tx.Insert(ctx, "operations", columns(operationColumns), [][]any{{o.ID, int64(o.Kind), int64(o.State), o.TenantID, o.UserID, o.CenterID, o.Node, o.AllocationID, o.Reason,
		o.Message, toJSON(o.Steps), o.requestID, o.digest, o.phase, o.grace, db.Micros(o.StopAt), o.thenFree, db.Micros(o.CreatedAt), db.Micros(tx.Now), db.Micros(o.EndedAt)}})
	if err != nil {
		return fmt.Errorf("insert operation %s: %w", o.ID, err)
	}
	return nil
}

func saveOperation(ctx context.Context, tx *db.Tx, o *Operation) error {
	o.UpdatedAt = tx.Now
	if _, err := tx.Exec(ctx, `UPDATE operations SET state = $2, message = $3, steps = $4, phase = $5, stop_at = $6, updated_at = $7, ended_at = $8, ai_center_id = $9 WHERE operation_id = $1`,
		o.ID, int64(o.State), o.Message, toJSON(o.Steps), o.phase, db.Micros(o.StopAt), db.Micros(tx.Now), db.Micros(o.EndedAt), o.CenterID); err != nil {
		return fmt.Errorf("save operation %s: %w", o.ID, err)
	}
	return nil
}

func readOperations(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Operation, error) {
	var out []*Operation
	err := tx.Query(ctx, `SELECT `+operationColumns+` FROM operations `+rest, args, func(row db.Row) error {
		o := &Operation{}
		var steps string
		var stop, created, updated, ended int64
		if err := row.Scan(&o.ID, &o.Kind, &o.State, &o.TenantID, &o.UserID, &o.CenterID, &o.Node, &o.AllocationID, &o.Reason, &o.Message, &steps, &o.requestID, &o.digest, &o.phase,
			&o.grace, &stop, &o.thenFree, &created, &updated, &ended); err != nil {
			return err
		}
		o.StopAt, o.CreatedAt, o.UpdatedAt, o.EndedAt = db.Time(stop), db.Time(created), db.Time(updated), db.Time(ended)
		out = append(out, o)
		return json.Unmarshal([]byte(steps), &o.Steps)
	})
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return out, nil
}

const allocationColumns = `allocation_id, name, tenant_id, user_id, state, reason, spec_id, packages, region, wish, ai_center_id, nodes, weights, no_wait, final, operation_id, closing,
	start_at, end_at, created_at, granted_at, ended_at, reservation_id`

func insertAllocation(ctx context.Context, tx *db.Tx, a *Allocation) error {
	err := tx.Insert(ctx, "allocations", columns(allocationColumns), [][]any{{a.ID, a.Name, a.TenantID, a.UserID, int64(a.State), a.Reason, a.SpecID, a.Count, a.Region, a.wish, a.CenterID,
		toJSON(a.Nodes), toJSON(a.weights), a.noWait, int64(a.final), a.OperationID, a.closing, db.Micros(a.StartAt), db.Micros(a.EndAt), db.Micros(a.CreatedAt), db.Micros(a.GrantedAt), db.Micros(a.EndedAt), a.ReservationID}})
	if err == nil {
		err = insertAmounts(ctx, tx, a)
	}
	if err != nil {
		return fmt.Errorf("insert allocation %s: %w", a.ID, err)
	}
	return nil
}

func insertAmounts(ctx context.Context, tx *db.Tx, a *Allocation) error {
	var rows [][]any
	for _, name := range slices.Sorted(maps.Keys(a.Amounts)) {
		rows = append(rows, []any{a.ID, name, a.Amounts[name], int64(0), int64(0)})
	}
	return tx.Insert(ctx, "allocation_amounts", []string{"allocation_id", "resource", "wanted", "held", "used"}, rows)
}

// saveAllocation writes what can change of the record and its amounts, but
// never what runs use: that is [Service.DrawTx]'s and [Service.GiveBackTx]'s.
func saveAllocation(ctx context.Context, tx *db.Tx, a *Allocation) error {
	_, err := tx.Exec(ctx, `UPDATE allocations SET state = $2, reason = $3, packages = $4, ai_center_id = $5, final = $6, closing = $7, end_at = $8, granted_at = $9, ended_at = $10
		WHERE allocation_id = $1`, a.ID, int64(a.State), a.Reason, a.Count, a.CenterID, int64(a.final), a.closing, db.Micros(a.EndAt), db.Micros(a.GrantedAt), db.Micros(a.EndedAt))
	for _, name := range slices.Sorted(maps.Keys(a.Amounts)) {
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO allocation_amounts (allocation_id, resource, wanted, held, used) VALUES ($1, $2, $3, $4, 0)
				ON CONFLICT (allocation_id, resource) DO UPDATE SET wanted = $3, held = $4`, a.ID, name, a.Amounts[name], a.held[name])
		}
	}
	if err != nil {
		return fmt.Errorf("save allocation %s: %w", a.ID, err)
	}
	return nil
}

func readAllocations(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Allocation, error) {
	var out []*Allocation
	err := tx.Query(ctx, `SELECT `+allocationColumns+` FROM allocations `+rest, args, func(row db.Row) error {
		a := &Allocation{Amounts: core.Quantities{}, Used: core.Quantities{}, held: core.Quantities{}}
		var nodes, weights string
		var start, end, created, granted, ended int64
		if err := row.Scan(&a.ID, &a.Name, &a.TenantID, &a.UserID, &a.State, &a.Reason, &a.SpecID, &a.Count, &a.Region, &a.wish, &a.CenterID, &nodes, &weights, &a.noWait, &a.final,
			&a.OperationID, &a.closing, &start, &end, &created, &granted, &ended, &a.ReservationID); err != nil {
			return err
		}
		a.StartAt, a.EndAt, a.CreatedAt, a.GrantedAt, a.EndedAt = db.Time(start), db.Time(end), db.Time(created), db.Time(granted), db.Time(ended)
		out = append(out, a)
		if err := json.Unmarshal([]byte(nodes), &a.Nodes); err != nil {
			return err
		}
		return json.Unmarshal([]byte(weights), &a.weights)
	})
	if err != nil {
		return nil, fmt.Errorf("read allocations: %w", err)
	}
	for _, a := range out {
		err := tx.Query(ctx, `SELECT resource, wanted, held, used FROM allocation_amounts WHERE allocation_id = $1`, []any{a.ID}, func(row db.Row) error {
			var name string
			var wanted, held, used int64
			err := row.Scan(&name, &wanted, &held, &used)
			a.Amounts[name], a.held[name], a.Used[name] = wanted, held, used
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read amounts of %s: %w", a.ID, err)
		}
	}
	return out, nil
}

const controlColumns = `ai_center_id, node, isolated, allocation_id, maintenance_id, reason, user_id, changed_at, generation, applied, applied_at, problem, repaired`

func readControls(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*NodeControl, error) {
	var out []*NodeControl
	err := tx.Query(ctx, `SELECT `+controlColumns+` FROM node_controls `+rest, args, func(row db.Row) error {
		n := &NodeControl{}
		var changed, at int64
		err := row.Scan(&n.CenterID, &n.Node, &n.Isolated, &n.AllocationID, &n.MaintenanceID, &n.Reason, &n.UserID, &changed, &n.generation, &n.applied, &at, &n.Problem, &n.Repaired)
		n.ChangedAt, n.AppliedAt, n.Applied = db.Time(changed), db.Time(at), n.applied == n.generation
		out = append(out, n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read node controls: %w", err)
	}
	return out, nil
}

func getControl(ctx context.Context, tx *db.Tx, center, node string) (*NodeControl, error) {
	rows, err := readControls(ctx, tx, `WHERE ai_center_id = $1 AND node = $2`, center, node)
	if err != nil || len(rows) == 0 {
		return &NodeControl{CenterID: center, Node: node}, err
	}
	return rows[0], nil
}

// putControl stores what is asked of a node, as a new generation.
func putControl(ctx context.Context, tx *db.Tx, n *NodeControl) error {
	n.generation++
	n.Problem = ""
	if _, err := tx.Exec(ctx, `INSERT INTO node_controls (`+controlColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, '', 0)
		ON CONFLICT (ai_center_id, node) DO UPDATE SET isolated = $3, allocation_id = $4, maintenance_id = $5, reason = $6, user_id = $7, changed_at = $8, generation = $9, problem = ''`,
		n.CenterID, n.Node, n.Isolated, n.AllocationID, n.MaintenanceID, n.Reason, n.UserID, db.Micros(tx.Now), n.generation); err != nil {
		return fmt.Errorf("control node %s of %s: %w", n.Node, n.CenterID, err)
	}
	return nil
}
