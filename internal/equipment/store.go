package equipment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

const columns = `ai_center_id, name, source, kind, state, since, ports, ports_down, worst_errors, worst_loss, body, updated_at`

// troubled is the condition of the index of what is not well.
const troubled = `(state <> 1 OR ports_down > 0 OR worst_errors > 0 OR worst_loss > 0)`

func readEquipment(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Equipment, error) {
	var out []*Equipment
	err := tx.Query(ctx, `SELECT `+columns+` FROM equipment `+rest, args, func(row db.Row) error {
		e := &Equipment{}
		var since, updated int64
		var body string
		if err := row.Scan(&e.CenterID, &e.Name, &e.Source, &e.Kind, &e.State, &since, &e.PortCount, &e.PortsDown, &e.WorstErrors, &e.WorstLoss, &body, &updated); err != nil {
			return err
		}
		e.Since, e.UpdatedAt = db.Time(since), db.Time(updated)
		out = append(out, e)
		return json.Unmarshal([]byte(body), e)
	})
	if err != nil {
		return nil, fmt.Errorf("read equipment: %w", err)
	}
	return out, nil
}

// saveEquipment writes equipment, and where its ports lead if that is another than
// before; old is nil for what is new.
func saveEquipment(ctx context.Context, tx *db.Tx, e, old *Equipment) error {
	body, err := json.Marshal(e)
	if err == nil {
		_, err = tx.Exec(ctx, `INSERT INTO equipment (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
			ON CONFLICT (ai_center_id, name) DO UPDATE SET source = $3, kind = $4, state = $5, since = $6, ports = $7, ports_down = $8, worst_errors = $9, worst_loss = $10, body = $11, updated_at = $12`,
			e.CenterID, e.Name, e.Source, int64(e.Kind), int64(e.State), db.Micros(e.Since), e.PortCount, e.PortsDown, e.WorstErrors, e.WorstLoss, string(body), db.Micros(tx.Now))
	}
	lead := e.uplinks()
	if err == nil && old == nil {
		rows := make([][]any, 0, len(lead))
		for _, node := range sorted(lead) {
			rows = append(rows, []any{e.CenterID, node, e.Name, lead[node]})
		}
		err = tx.Insert(ctx, "equipment_uplinks", []string{"ai_center_id", "node", "name", "up"}, rows)
	}
	if err != nil || old == nil {
		return wrap(err, e)
	}
	was := old.uplinks()
	for _, node := range sorted(lead) {
		n, known := was[node]
		if delete(was, node); err == nil && (!known || n != lead[node]) {
			_, err = tx.Exec(ctx, `INSERT INTO equipment_uplinks (ai_center_id, node, name, up) VALUES ($1, $2, $3, $4) ON CONFLICT (ai_center_id, node, name) DO UPDATE SET up = $4`, e.CenterID, node, e.Name, lead[node])
		}
	}
	for _, node := range sorted(was) {
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM equipment_uplinks WHERE ai_center_id = $1 AND node = $2 AND name = $3`, e.CenterID, node, e.Name)
		}
	}
	return wrap(err, e)
}

func wrap(err error, e *Equipment) error {
	if err != nil {
		return fmt.Errorf("store equipment %s of %s: %w", e.Name, e.CenterID, err)
	}
	return nil
}

func deleteEquipment(ctx context.Context, tx *db.Tx, center string, names []string) error {
	among, arg := tx.In(2, names)
	for _, table := range []string{"equipment", "equipment_uplinks"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE ai_center_id = $1 AND name `+among, center, arg); err != nil {
			return fmt.Errorf("delete equipment of %s: %w", center, err)
		}
	}
	return nil
}

// deleteCenter forgets all that is known of a center.
func deleteCenter(ctx context.Context, tx *db.Tx, center string) error {
	for _, table := range []string{"equipment", "equipment_uplinks", "equipment_sources"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE ai_center_id = $1`, center); err != nil {
			return fmt.Errorf("delete equipment of %s: %w", center, err)
		}
	}
	return nil
}

// source is who reports and may not be silent for long.
type source struct {
	center, name string
	due          time.Time
}

func readSources(ctx context.Context, tx *db.Tx) ([]source, error) {
	var out []source
	err := tx.Query(ctx, `SELECT ai_center_id, source, due_at FROM equipment_sources ORDER BY ai_center_id, source`, nil, func(row db.Row) error {
		var x source
		var due int64
		err := row.Scan(&x.center, &x.name, &due)
		x.due = db.Time(due)
		out = append(out, x)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read sources of equipment: %w", err)
	}
	return out, nil
}

// saveSource says until when a source should say something; zero: it may be
// silent.
func saveSource(ctx context.Context, tx *db.Tx, center, name string, due time.Time) error {
	var err error
	if due.IsZero() {
		_, err = tx.Exec(ctx, `DELETE FROM equipment_sources WHERE ai_center_id = $1 AND source = $2`, center, name)
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO equipment_sources (ai_center_id, source, due_at) VALUES ($1, $2, $3) ON CONFLICT (ai_center_id, source) DO UPDATE SET due_at = $3`, center, name, db.Micros(due))
	}
	if err != nil {
		return fmt.Errorf("store source of equipment %s: %w", name, err)
	}
	return nil
}

// reached returns which of the nodes of a center some equipment leads to that is
// not among those that are not well, or is and works.
func reached(ctx context.Context, tx *db.Tx, center string, nodes []string, fails map[string]bool) (map[string]bool, error) {
	out := map[string]bool{}
	among, arg := tx.In(2, nodes)
	err := tx.Query(ctx, `SELECT node, name FROM equipment_uplinks WHERE ai_center_id = $1 AND up > 0 AND node `+among, []any{center, arg}, func(row db.Row) error {
		var node, name string
		err := row.Scan(&node, &name)
		out[node] = out[node] || !fails[name]
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read ways to nodes of %s: %w", center, err)
	}
	return out, nil
}

func rulesTx(ctx context.Context, tx *db.Tx) ([]Rule, error) {
	out := make([]Rule, len(base))
	for i, b := range base {
		out[i] = b.Rule
	}
	err := tx.Query(ctx, `SELECT kind, enabled, threshold, severity, updated_at FROM equipment_rules`, nil, func(row db.Row) error {
		var r Rule
		var at int64
		err := row.Scan(&r.Kind, &r.Enabled, &r.Threshold, &r.Severity, &at)
		r.UpdatedAt = db.Time(at)
		if i := int(r.Kind) - 1; i >= 0 && i < len(out) {
			out[i] = r
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the rules of equipment: %w", err)
	}
	return out, nil
}

func emit(ctx context.Context, tx *db.Tx, centers ...string) error {
	payload, err := json.Marshal(centers)
	if err != nil {
		return fmt.Errorf("event %s: %w", ChangedSubject, err)
	}
	return tx.Emit(ctx, ChangedSubject, payload)
}

// page is a page of equipment without ports.
func page(ctx context.Context, tx *db.Tx, f Filter, after []string, n int) ([]*Equipment, error) {
	rest, args := `WHERE (ai_center_id, name) > ($1, $2)`, []any{"", ""}
	if len(after) == 2 {
		args = []any{after[0], after[1]}
	}
	if f.CenterID != "" {
		args = append(args, f.CenterID)
		rest += ` AND ai_center_id = $3`
	}
	if f.Troubled {
		rest += ` AND ` + troubled
	}
	rows, err := readEquipment(ctx, tx, rest+fmt.Sprintf(` ORDER BY ai_center_id, name LIMIT $%d`, len(args)+1), append(args, int64(n))...)
	if err != nil {
		return nil, err
	}
	sources, err := readSources(ctx, tx)
	for _, e := range rows {
		e.Ports = nil
		for _, x := range sources {
			e.Silent = e.Silent || x.center == e.CenterID && x.name == e.Source && x.due.Before(tx.Now)
		}
	}
	return rows, err
}

// Filter says which equipment is wanted.
type Filter struct {
	CenterID string
	Troubled bool
}

func (f Filter) check() error {
	var c core.Check
	if f.CenterID != "" {
		c.ID("ai_center_id", f.CenterID)
	}
	return c.Err()
}
