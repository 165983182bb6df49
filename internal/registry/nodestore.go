package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"yunhe.dev/yunhe/internal/db"
)

// fingerprint is what is stored of a node to see whether it changed.
type fingerprint struct{ content, indexed string }

// fewNodes is up to how many nodes are looked up one by one rather than with
// all others of their center.
const fewNodes = 32

// readFingerprints returns those of all nodes of the center, or of the named.
func readFingerprints(ctx context.Context, tx *db.Tx, centerID string, all bool, names []string) (map[string]fingerprint, error) {
	out := make(map[string]fingerprint, len(names))
	scan := func(row db.Row) error {
		var name string
		var f fingerprint
		err := row.Scan(&name, &f.content, &f.indexed)
		out[name] = f
		return err
	}
	var err error
	if all || len(names) > fewNodes {
		err = tx.Query(ctx, `SELECT name, content, indexed FROM nodes WHERE ai_center_id = $1`, []any{centerID}, scan)
	} else {
		for _, name := range names {
			if err = tx.Query(ctx, `SELECT name, content, indexed FROM nodes WHERE ai_center_id = $1 AND name = $2`, []any{centerID, name}, scan); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read nodes of %s: %w", centerID, err)
	}
	return out, nil
}

var nodeColumns = []string{
	"ai_center_id", "name", "state", "reason", "capacity", "allocatable", "architecture", "operating_system", "accelerators", "labels",
	"content", "indexed", "host", "pool_node", "specs", "created_at", "updated_at",
}

func nodeRow(n *Node, at int64) []any {
	content, indexed := n.fingerprints()
	return []any{
		n.CenterID, n.Name, int64(n.State), n.Reason, toJSON(n.Capacity), toJSON(n.Allocatable), n.Architecture, n.OS, toJSON(n.Accelerators), toJSON(n.Labels),
		content, indexed, n.Host, n.PoolNode, toJSON(slices.Concat([]string{}, n.Specs)), at, at,
	}
}

func insertNodes(ctx context.Context, tx *db.Tx, nodes []Node) error {
	if len(nodes) == 0 {
		return nil
	}
	rows := make([][]any, len(nodes))
	for i := range nodes {
		rows[i] = nodeRow(&nodes[i], db.Micros(tx.Now))
	}
	if err := tx.Insert(ctx, "nodes", nodeColumns, rows); err != nil {
		return fmt.Errorf("insert nodes of %s: %w", nodes[0].CenterID, err)
	}
	return indexNodes(ctx, tx, nodes)
}

func updateNode(ctx context.Context, tx *db.Tx, n *Node) error {
	row := nodeRow(n, db.Micros(tx.Now))
	if _, err := tx.Exec(ctx, `UPDATE nodes SET state = $3, reason = $4, capacity = $5, allocatable = $6, architecture = $7, operating_system = $8,
		accelerators = $9, labels = $10, content = $11, indexed = $12, host = $13, pool_node = $14, specs = $15, updated_at = $16 WHERE ai_center_id = $1 AND name = $2`, row[:16]...); err != nil {
		return fmt.Errorf("update node %s of %s: %w", n.Name, n.CenterID, err)
	}
	return nil
}

// indexNodes writes what queries ask for.
func indexNodes(ctx context.Context, tx *db.Tx, nodes []Node) error {
	var labels, accelerators [][]any
	for _, n := range nodes {
		for _, name := range sorted(n.Labels) {
			labels = append(labels, []any{n.CenterID, n.Name, name, n.Labels[name]})
		}
		for i, a := range n.Accelerators {
			accelerators = append(accelerators, []any{n.CenterID, n.Name, int64(i), a.Resource, a.Vendor, a.Model, a.Count})
		}
	}
	if err := tx.Insert(ctx, "node_labels", []string{"ai_center_id", "name", "label", "value"}, labels); err != nil {
		return fmt.Errorf("insert labels of nodes: %w", err)
	}
	if err := tx.Insert(ctx, "node_accelerators", []string{"ai_center_id", "name", "position", "resource", "vendor", "model", "number"}, accelerators); err != nil {
		return fmt.Errorf("insert accelerators of nodes: %w", err)
	}
	return nil
}

func reindexNodes(ctx context.Context, tx *db.Tx, nodes []Node) error {
	for _, n := range nodes {
		if err := unindexNode(ctx, tx, n.CenterID, n.Name); err != nil {
			return err
		}
	}
	return indexNodes(ctx, tx, nodes)
}

func unindexNode(ctx context.Context, tx *db.Tx, centerID, name string) error {
	_, err := tx.Exec(ctx, `DELETE FROM node_labels WHERE ai_center_id = $1 AND name = $2`, centerID, name)
	if err == nil {
		_, err = tx.Exec(ctx, `DELETE FROM node_accelerators WHERE ai_center_id = $1 AND name = $2`, centerID, name)
	}
	if err != nil {
		return fmt.Errorf("delete labels and accelerators of node %s of %s: %w", name, centerID, err)
	}
	return nil
}

func deleteNode(ctx context.Context, tx *db.Tx, centerID, name string) error {
	if err := unindexNode(ctx, tx, centerID, name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM nodes WHERE ai_center_id = $1 AND name = $2`, centerID, name); err != nil {
		return fmt.Errorf("delete node %s of %s: %w", name, centerID, err)
	}
	return nil
}

// readNodes reads the nodes n that match the rest of the query.
func readNodes(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Node, error) {
	var out []Node
	err := tx.Query(ctx, `SELECT n.ai_center_id, n.name, n.state, n.reason, n.capacity, n.allocatable, n.architecture, n.operating_system,
		n.accelerators, n.labels, n.host, n.pool_node, n.specs, n.created_at, n.updated_at FROM nodes n `+rest, args, func(row db.Row) error {
		var n Node
		var capacity, allocatable, accelerators, labels, specs string
		var created, updated int64
		if err := row.Scan(&n.CenterID, &n.Name, &n.State, &n.Reason, &capacity, &allocatable, &n.Architecture, &n.OS,
			&accelerators, &labels, &n.Host, &n.PoolNode, &specs, &created, &updated); err != nil {
			return err
		}
		n.CreatedAt, n.UpdatedAt = db.Time(created), db.Time(updated)
		for _, x := range []struct {
			text string
			into any
		}{{capacity, &n.Capacity}, {allocatable, &n.Allocatable}, {accelerators, &n.Accelerators}, {labels, &n.Labels}, {specs, &n.Specs}} {
			if err := json.Unmarshal([]byte(x.text), x.into); err != nil {
				return fmt.Errorf("record of node %s of %s: %w", n.Name, n.CenterID, err)
			}
		}
		out = append(out, n)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return out, nil
}

// readNodeSummaries counts the nodes of the centers from first to last.
func readNodeSummaries(ctx context.Context, tx *db.Tx, first, last string, centers map[string]*Center) error {
	of := func(id string) *NodeSummary {
		k := centers[id]
		if k == nil {
			return nil
		}
		if k.Nodes == nil {
			k.Nodes = &NodeSummary{}
		}
		return k.Nodes
	}
	where, args := between("ai_center_id", first, last)
	err := tx.Query(ctx, `SELECT ai_center_id, state, COUNT(*) FROM nodes`+where+` GROUP BY ai_center_id, state`, args, func(row db.Row) error {
		var id string
		var state NodeState
		var n int64
		if err := row.Scan(&id, &state, &n); err != nil {
			return err
		}
		if sum := of(id); sum != nil {
			switch state {
			case NodeReady:
				sum.Ready = n
			case NodeNotReady:
				sum.NotReady = n
			default:
				sum.Drained = n
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Query(ctx, `SELECT ai_center_id, resource, vendor, model, CAST(SUM(number) AS BIGINT) FROM node_accelerators`+where+`
		GROUP BY ai_center_id, resource, vendor, model ORDER BY ai_center_id, resource, vendor, model`, args, func(row db.Row) error {
		var id string
		var a Accelerator
		if err := row.Scan(&id, &a.Resource, &a.Vendor, &a.Model, &a.Count); err != nil {
			return err
		}
		if sum := of(id); sum != nil {
			sum.Accelerators = append(sum.Accelerators, a)
		}
		return nil
	})
}

// declareSpecs creates the specifications that neither exist nor were deleted
// by an operator, and returns the IDs of those it created.
func declareSpecs(ctx context.Context, tx *db.Tx, specs []Spec) (created []string, err error) {
	for _, sp := range specs {
		found, err := hasSpec(ctx, tx, sp.ID)
		if err != nil {
			return nil, err
		}
		if !found {
			found, err = wasDeleted(ctx, tx, sp.ID)
		}
		if err != nil {
			return nil, err
		}
		if found {
			continue
		}
		if err := insertSpec(ctx, tx, sp); err != nil {
			return nil, err
		}
		created = append(created, sp.ID)
	}
	return created, nil
}

func wasDeleted(ctx context.Context, tx *db.Tx, specID string) (bool, error) {
	var one int
	found, err := tx.Get(ctx, `SELECT 1 FROM deleted_specs WHERE resource_spec_id = $1`, []any{specID}, &one)
	if err != nil {
		return false, fmt.Errorf("read deleted specification %s: %w", specID, err)
	}
	return found, nil
}

// rememberDeleted notes whether the specification is one an operator deleted.
func rememberDeleted(ctx context.Context, tx *db.Tx, specID string, deleted bool) error {
	q := `DELETE FROM deleted_specs WHERE resource_spec_id = $1`
	if deleted {
		q = `INSERT INTO deleted_specs (resource_spec_id) VALUES ($1) ON CONFLICT DO NOTHING`
	}
	if _, err := tx.Exec(ctx, q, specID); err != nil {
		return fmt.Errorf("remember deleted specification %s: %w", specID, err)
	}
	return nil
}
