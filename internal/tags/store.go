package tags

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

func getVersions(ctx context.Context, tx *db.Tx) (all, placement int64, err error) {
	err = tx.Query(ctx, `SELECT name, version FROM tag_versions`, nil, func(row db.Row) error {
		var name string
		var n int64
		if err := row.Scan(&name, &n); err != nil {
			return err
		}
		switch name {
		case "all":
			all = n
		case "placement":
			placement = n
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read versions of tags: %w", err)
	}
	return all, placement, nil
}

func bumpVersion(ctx context.Context, tx *db.Tx, placement bool) error {
	q := `UPDATE tag_versions SET version = version + 1 WHERE name = 'all'`
	if placement {
		q = `UPDATE tag_versions SET version = version + 1 WHERE name IN ('all', 'placement')`
	}
	if _, err := tx.Exec(ctx, q); err != nil {
		return fmt.Errorf("count a change of tags: %w", err)
	}
	return nil
}

func readGroups(ctx context.Context, tx *db.Tx) (map[string]*Group, error) {
	out := map[string]*Group{}
	err := tx.Query(ctx, `SELECT g.group_id, g.title, g.title_zh, g.description, g.kinds, g.created_at, g.updated_at,
		(SELECT COUNT(*) FROM tag_definitions d WHERE d.group_id = g.group_id) FROM tag_groups g`, nil, func(row db.Row) error {
		g := &Group{}
		var kinds, created, updated int64
		if err := row.Scan(&g.ID, &g.Title, &g.TitleZH, &g.Description, &kinds, &created, &updated, &g.Tags); err != nil {
			return err
		}
		g.Kinds, g.CreatedAt, g.UpdatedAt = kindsOf(kinds), db.Time(created), db.Time(updated)
		out[g.ID] = g
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read groups of tags: %w", err)
	}
	return out, nil
}

func writeGroup(ctx context.Context, tx *db.Tx, g *Group) error {
	if _, err := tx.Exec(ctx, `INSERT INTO tag_groups (group_id, title, title_zh, description, kinds, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $6)
		ON CONFLICT (group_id) DO UPDATE SET title = $2, title_zh = $3, description = $4, kinds = $5, updated_at = $6`,
		g.ID, g.Title, g.TitleZH, g.Description, maskOf(g.Kinds), db.Micros(tx.Now)); err != nil {
		return fmt.Errorf("write group %s: %w", g.ID, err)
	}
	return nil
}

// readDefinitions reads the library, or of it one tag.
func readDefinitions(ctx context.Context, tx *db.Tx, key string) (map[string]*Definition, error) {
	out := map[string]*Definition{}
	rest, args := "", []any(nil)
	if key != "" {
		rest, args = " WHERE tag_key = $1", []any{key}
	}
	err := tx.Query(ctx, `SELECT tag_key, title, title_zh, group_id, description, value_type, allowed, kinds, setter, inherited, hidden, status, version, created_at, updated_at
		FROM tag_definitions`+rest, args, func(row db.Row) error {
		d := &Definition{}
		var allowed string
		var kinds, created, updated int64
		if err := row.Scan(&d.Key, &d.Title, &d.TitleZH, &d.GroupID, &d.Description, &d.Type, &allowed, &kinds, &d.Setter, &d.Inherited, &d.Hidden, &d.Status,
			&d.Version, &created, &updated); err != nil {
			return err
		}
		d.Kinds, d.CreatedAt, d.UpdatedAt = kindsOf(kinds), db.Time(created), db.Time(updated)
		out[d.Key] = d
		return json.Unmarshal([]byte(allowed), &d.Allowed)
	})
	if err != nil {
		return nil, fmt.Errorf("read tags: %w", err)
	}
	return out, nil
}

// countUses sets how many objects carry the tags and which rules set them.
func countUses(ctx context.Context, tx *db.Tx, defs map[string]*Definition) error {
	err := tx.Query(ctx, `SELECT tag_key, COUNT(*) FROM tag_values WHERE NOT blocked GROUP BY tag_key`, nil, func(row db.Row) error {
		var key string
		var n int64
		if err := row.Scan(&key, &n); err != nil {
			return err
		}
		if d := defs[key]; d != nil {
			d.Objects = n
		}
		return nil
	})
	if err == nil {
		err = tx.Query(ctx, `SELECT tag_key, rule_id FROM tag_rules ORDER BY rule_id`, nil, func(row db.Row) error {
			var key, id string
			if err := row.Scan(&key, &id); err != nil {
				return err
			}
			if d := defs[key]; d != nil {
				d.Rules = append(d.Rules, id)
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("count uses of tags: %w", err)
	}
	return nil
}

func insertDefinition(ctx context.Context, tx *db.Tx, d *Definition) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO tag_definitions (tag_key, title, title_zh, group_id, description, value_type, allowed, kinds, setter, inherited, hidden, status,
		version, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 1, $13, $13) ON CONFLICT DO NOTHING`,
		d.Key, d.Title, d.TitleZH, d.GroupID, d.Description, int64(d.Type), toJSON(d.Allowed), maskOf(d.Kinds), int64(d.Setter), d.Inherited, d.Hidden, int64(d.Status), db.Micros(tx.Now))
	if err != nil {
		return false, fmt.Errorf("insert tag %s: %w", d.Key, err)
	}
	return n == 1, nil
}

func updateDefinition(ctx context.Context, tx *db.Tx, d *Definition) error {
	if _, err := tx.Exec(ctx, `UPDATE tag_definitions SET title = $2, title_zh = $3, group_id = $4, description = $5, value_type = $6, allowed = $7, kinds = $8, setter = $9,
		inherited = $10, hidden = $11, status = $12, version = $13, updated_at = $14 WHERE tag_key = $1`,
		d.Key, d.Title, d.TitleZH, d.GroupID, d.Description, int64(d.Type), toJSON(d.Allowed), maskOf(d.Kinds), int64(d.Setter), d.Inherited, d.Hidden, int64(d.Status),
		d.Version, db.Micros(tx.Now)); err != nil {
		return fmt.Errorf("update tag %s: %w", d.Key, err)
	}
	return nil
}

// stored is a row of tag_values.
type stored struct {
	object, key string
	kind        Kind
	State
	actor
	created, updated int64
}

var valueColumns = []string{"object", "tag_key", "kind", "value", "blocked", "source", "origin", "batch_id", "reason", "created_at", "updated_at"}

func (v *stored) row() []any {
	return []any{v.object, v.key, int64(v.kind), v.Value, v.Blocked, int64(v.source), v.origin, v.batchID, v.reason, v.created, v.updated}
}

// readValues reads the values that match the rest of the query, by object.
func readValues(ctx context.Context, tx *db.Tx, rest string, args ...any) (map[string][]*stored, error) {
	out := map[string][]*stored{}
	err := tx.Query(ctx, `SELECT `+strings.Join(valueColumns, ", ")+` FROM tag_values `+rest+` ORDER BY object, tag_key`, args, func(row db.Row) error {
		v := &stored{}
		if err := row.Scan(&v.object, &v.key, &v.kind, &v.Value, &v.Blocked, &v.source, &v.origin, &v.batchID, &v.reason, &v.created, &v.updated); err != nil {
			return err
		}
		out[v.object] = append(out[v.object], v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read values of tags: %w", err)
	}
	return out, nil
}

// perQuery parameters go into one list of a query.
const perQuery = 400

// readValuesOf reads the values of the named objects.
func readValuesOf(ctx context.Context, tx *db.Tx, objects []string) (map[string][]*stored, error) {
	out := map[string][]*stored{}
	for len(objects) > 0 {
		n := min(len(objects), perQuery)
		marks, args := make([]string, n), make([]any, n)
		for i, o := range objects[:n] {
			marks[i], args[i] = "$"+strconv.Itoa(i+1), o
		}
		part, err := readValues(ctx, tx, `WHERE object IN (`+strings.Join(marks, ", ")+`)`, args...)
		if err != nil {
			return nil, err
		}
		for o, v := range part {
			out[o] = v
		}
		objects = objects[n:]
	}
	return out, nil
}

func deleteValue(ctx context.Context, tx *db.Tx, object, key string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM tag_values WHERE object = $1 AND tag_key = $2`, object, key); err != nil {
		return fmt.Errorf("delete %s of %s: %w", key, object, err)
	}
	return nil
}

var historyColumns = []string{"change_id", "at", "subject", "kind", "tag_key", "before", "before_blocked", "after", "after_blocked", "source", "origin", "batch_id", "reason"}

func (r *Record) row(kind Kind) []any {
	return []any{r.ID, db.Micros(r.At), r.Subject, int64(kind), r.Key, r.Before.Value, r.Before.Blocked, r.After.Value, r.After.Blocked, int64(r.Source), r.Origin, r.BatchID, r.Reason}
}

// record remembers a change of the library.
func record(ctx context.Context, tx *db.Tx, by actor, subject, key string, before, after any) error {
	text := func(v any) string {
		if v == nil {
			return ""
		}
		return toJSON(v)
	}
	r := Record{ID: core.NewID("tgc"), At: tx.Now, Subject: subject, Key: key, Before: State{Value: text(before)}, After: State{Value: text(after)},
		Source: by.source, Origin: by.origin, BatchID: by.batchID, Reason: by.reason}
	if err := tx.Insert(ctx, "tag_history", historyColumns, [][]any{r.row(0)}); err != nil {
		return fmt.Errorf("record change of %s: %w", subject, err)
	}
	return nil
}

// edit is a change of a value that is to be written.
type edit struct {
	old  *stored // nil: none
	next stored
	gone bool // no value any more
}

// writeEdits writes values with their history, and says whether any concerns
// what placement reads.
func writeEdits(ctx context.Context, tx *db.Tx, edits []edit, tick func(n int)) (placement bool, err error) {
	const step = 512
	for len(edits) > 0 {
		n := min(len(edits), step)
		var values, history [][]any
		for i := range edits[:n] {
			e := &edits[i]
			v := e.next
			r := Record{ID: core.NewID("tgc"), At: tx.Now, Subject: v.object, Key: v.key, Source: v.source, Origin: v.origin, BatchID: v.batchID, Reason: v.reason}
			v.created, v.updated = db.Micros(tx.Now), db.Micros(tx.Now)
			if e.old != nil {
				r.Before, v.created = e.old.State, e.old.created
				if err := deleteValue(ctx, tx, v.object, v.key); err != nil {
					return false, err
				}
			}
			if !e.gone {
				r.After = v.State
				values = append(values, v.row())
			}
			history = append(history, r.row(v.kind))
			placement = placement || v.kind == Platform || v.kind == Center || v.kind == Resource
		}
		if err := tx.Insert(ctx, "tag_values", valueColumns, values); err != nil {
			return false, fmt.Errorf("insert values of tags: %w", err)
		}
		if err := tx.Insert(ctx, "tag_history", historyColumns, history); err != nil {
			return false, fmt.Errorf("record changes of tags: %w", err)
		}
		edits = edits[n:]
		tick(n)
	}
	return placement, nil
}

const ruleColumns = `r.rule_id, r.title, r.description, r.tag_key, r.kinds, r.set_when, r.set_until, r.value, r.value_expression, r.hold_seconds, r.priority, r.mode, r.version,
	r.created_at, r.updated_at, COALESCE(l.matched, 0), COALESCE(l.problem, ''), COALESCE(l.evaluated_at, 0)`

// readRules reads the rules that match the rest of the query, by ID.
func readRules(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]RuleSpec, error) {
	var out []RuleSpec
	err := tx.Query(ctx, `SELECT `+ruleColumns+` FROM tag_rules r LEFT JOIN tag_rule_looks l ON l.rule_id = r.rule_id `+rest+` ORDER BY r.rule_id`, args, func(row db.Row) error {
		var r RuleSpec
		var kinds, created, updated, evaluated int64
		if err := row.Scan(&r.ID, &r.Title, &r.Description, &r.Key, &kinds, &r.When, &r.Until, &r.Value, &r.ValueExpression, &r.Hold, &r.Priority, &r.Mode, &r.Version,
			&created, &updated, &r.Matched, &r.Error, &evaluated); err != nil {
			return err
		}
		r.Kinds, r.CreatedAt, r.UpdatedAt, r.EvaluatedAt = kindsOf(kinds), db.Time(created), db.Time(updated), db.Time(evaluated)
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read rules of tags: %w", err)
	}
	return out, nil
}

func insertRule(ctx context.Context, tx *db.Tx, r *RuleSpec) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO tag_rules (rule_id, title, description, tag_key, kinds, set_when, set_until, value, value_expression, hold_seconds, priority, mode,
		version, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 1, $13, $13) ON CONFLICT DO NOTHING`,
		r.ID, r.Title, r.Description, r.Key, maskOf(r.Kinds), r.When, r.Until, r.Value, r.ValueExpression, r.Hold, r.Priority, int64(r.Mode), db.Micros(tx.Now))
	if err != nil {
		return false, fmt.Errorf("insert rule %s: %w", r.ID, err)
	}
	return n == 1, nil
}

func updateRule(ctx context.Context, tx *db.Tx, r *RuleSpec) error {
	if _, err := tx.Exec(ctx, `UPDATE tag_rules SET title = $2, description = $3, tag_key = $4, kinds = $5, set_when = $6, set_until = $7, value = $8, value_expression = $9,
		hold_seconds = $10, priority = $11, mode = $12, version = $13, updated_at = $14 WHERE rule_id = $1`,
		r.ID, r.Title, r.Description, r.Key, maskOf(r.Kinds), r.When, r.Until, r.Value, r.ValueExpression, r.Hold, r.Priority, int64(r.Mode), r.Version, db.Micros(tx.Now)); err != nil {
		return fmt.Errorf("update rule %s: %w", r.ID, err)
	}
	return nil
}

// deleteRule also forgets where it stood.
func deleteRule(ctx context.Context, tx *db.Tx, id string) error {
	for _, table := range []string{"tag_rule_states", "tag_rule_looks", "tag_rules"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE rule_id = $1`, id); err != nil {
			return fmt.Errorf("delete rule %s: %w", id, err)
		}
	}
	return nil
}

func count(ctx context.Context, tx *db.Tx, q string, args ...any) (n int64, err error) {
	if _, err = tx.Get(ctx, q, args, &n); err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return n, nil
}

// forgetOld deletes what nobody needs any more: results of requests after a
// day, and what rules did after 180 days. What people did stays.
func forgetOld(ctx context.Context, tx *db.Tx) error {
	for q, age := range map[string]time.Duration{
		`DELETE FROM tag_requests WHERE at < $1`:               24 * time.Hour,
		`DELETE FROM tag_history WHERE at < $1 AND source = 2`: 180 * 24 * time.Hour,
	} {
		if _, err := tx.Exec(ctx, q, db.Micros(tx.Now.Add(-age))); err != nil {
			return fmt.Errorf("forget old records: %w", err)
		}
	}
	return nil
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain records always marshal
	}
	return string(b)
}
