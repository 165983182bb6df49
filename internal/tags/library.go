package tags

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Groups returns the groups by ID.
func (s *Service) Groups(ctx context.Context) ([]Group, error) {
	var out []Group
	err := s.db.View(ctx, func(tx *db.Tx) error {
		groups, err := readGroups(ctx, tx)
		for _, id := range slices.Sorted(maps.Keys(groups)) {
			out = append(out, *groups[id])
		}
		return err
	})
	return out, err
}

// PutGroup creates a group or replaces it. It returns fault.Invalid, and
// fault.Exhausted if there are too many.
func (s *Service) PutGroup(ctx context.Context, g Group) (Group, error) {
	var c core.Check
	if g.check(&c); c.Err() != nil {
		return Group{}, c.Err()
	}
	if g.Title == "" {
		g.Title = g.ID
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		groups, err := readGroups(ctx, tx)
		if err != nil {
			return err
		}
		var before any
		old := groups[g.ID]
		if old == nil && len(groups) >= maxGroups {
			return fault.New(fault.Exhausted, "there are %d groups, which is the most", maxGroups)
		}
		if old != nil {
			if slices.Equal(old.Kinds, g.Kinds) && old.Title == g.Title && old.TitleZH == g.TitleZH && old.Description == g.Description {
				g = *old
				return nil
			}
			before = groupRecord(old)
			defs, err := readDefinitions(ctx, tx, "")
			if err != nil {
				return err
			}
			for _, key := range slices.Sorted(maps.Keys(defs)) {
				if d := defs[key]; d.GroupID == g.ID && len(g.Kinds) > 0 && maskOf(d.Kinds)&^maskOf(g.Kinds) != 0 {
					return fault.Fields(fault.Field{Path: "group.kinds", Problem: "tag " + key + " of the group applies to " + list(d.Kinds)})
				}
			}
		}
		if err := writeGroup(ctx, tx, &g); err != nil {
			return err
		}
		if groups, err = readGroups(ctx, tx); err != nil {
			return err
		}
		g = *groups[g.ID]
		if err := record(ctx, tx, person(ctx, "", ""), "group:"+g.ID, "", before, groupRecord(&g)); err != nil {
			return err
		}
		return s.changed(ctx, tx, false)
	})
	if err != nil {
		return Group{}, err
	}
	return g, nil
}

// DeleteGroup deletes a group without tags. It returns fault.Invalid,
// fault.NotFound and fault.Conflict.
func (s *Service) DeleteGroup(ctx context.Context, id string) error {
	var c core.Check
	if c.ID("group_id", id); c.Err() != nil {
		return c.Err()
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		groups, err := readGroups(ctx, tx)
		if err != nil {
			return err
		}
		g := groups[id]
		if g == nil {
			return fault.New(fault.NotFound, "there is no group %s", id)
		}
		if g.Tags > 0 {
			return fault.New(fault.Conflict, "group %s has %d tags; delete them or give them another group first", id, g.Tags)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM tag_groups WHERE group_id = $1`, id); err != nil {
			return err
		}
		if err := record(ctx, tx, person(ctx, "", ""), "group:"+id, "", groupRecord(g), nil); err != nil {
			return err
		}
		return s.changed(ctx, tx, false)
	})
}

// Definitions returns the tags of the library by key, those of a group and a
// kind if these are set. It returns fault.Invalid.
func (s *Service) Definitions(ctx context.Context, groupID string, kind Kind) ([]Definition, error) {
	var c core.Check
	if groupID != "" {
		c.ID("group_id", groupID)
	}
	if c.Range("kind", int64(kind), 0, int64(Image)); c.Err() != nil {
		return nil, c.Err()
	}
	var out []Definition
	err := s.db.View(ctx, func(tx *db.Tx) error {
		defs, err := readDefinitions(ctx, tx, "")
		if err != nil {
			return err
		}
		if err := countUses(ctx, tx, defs); err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(defs)) {
			if d := defs[key]; (groupID == "" || d.GroupID == groupID) && (kind == 0 || slices.Contains(d.Kinds, kind)) {
				out = append(out, *d)
			}
		}
		return nil
	})
	return out, err
}

// Definition returns a tag of the library. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) Definition(ctx context.Context, key string) (Definition, error) {
	var c core.Check
	if checkKey(&c, "key", key); c.Err() != nil {
		return Definition{}, c.Err()
	}
	var d *Definition
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		d, err = getDefinition(ctx, tx, key)
		return err
	})
	if err != nil {
		return Definition{}, err
	}
	return *d, nil
}

func getDefinition(ctx context.Context, tx *db.Tx, key string) (*Definition, error) {
	defs, err := readDefinitions(ctx, tx, key)
	if err != nil {
		return nil, err
	}
	if defs[key] == nil {
		return nil, noTag(key)
	}
	return defs[key], countUses(ctx, tx, defs)
}

func noTag(key string) error { return fault.New(fault.NotFound, "there is no tag %q", clip(key)) }

// CreateDefinition adds a tag to the library. It returns fault.Invalid with
// paths below "tag.", fault.Exists, and fault.Exhausted if there are too many.
func (s *Service) CreateDefinition(ctx context.Context, d Definition) (Definition, error) {
	return s.putDefinition(ctx, d, func(tx *db.Tx, old *Definition) error {
		if old != nil {
			return fault.New(fault.Exists, "tag %s exists already", d.Key)
		}
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM tag_definitions`)
		if err == nil && n >= maxDefinitions {
			err = fault.New(fault.Exhausted, "the library has %d tags, which is the most", maxDefinitions)
		}
		return err
	})
}

// UpdateDefinition replaces a tag whose version is d.Version. It returns
// fault.Invalid with paths below "tag.", fault.NotFound, and fault.Conflict
// for another version or if values that objects carry would not fit.
func (s *Service) UpdateDefinition(ctx context.Context, d Definition) (Definition, error) {
	return s.putDefinition(ctx, d, func(tx *db.Tx, old *Definition) error {
		switch {
		case old == nil:
			return noTag(d.Key)
		case old.Version != d.Version:
			return fault.New(fault.Conflict, "tag %s has version %d, not %d: it was changed meanwhile; read it and try again", d.Key, old.Version, d.Version)
		}
		return nil
	})
}

func (s *Service) putDefinition(ctx context.Context, d Definition, precondition func(tx *db.Tx, old *Definition) error) (Definition, error) {
	if d.Title == "" {
		d.Title = d.Key
	}
	var out *Definition
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		groups, err := readGroups(ctx, tx)
		if err != nil {
			return err
		}
		d := d
		var c core.Check
		if d.check(&c, groups[d.GroupID]); c.Err() != nil {
			return c.Err()
		}
		defs, err := readDefinitions(ctx, tx, d.Key)
		if err != nil {
			return err
		}
		old := defs[d.Key]
		if err := precondition(tx, old); err != nil {
			return err
		}
		var before any
		if old == nil {
			_, err = insertDefinition(ctx, tx, &d)
		} else {
			if same(old, &d) {
				out, err = getDefinition(ctx, tx, d.Key)
				return err
			}
			before = definitionRecord(old)
			if err := fits(ctx, tx, &d); err != nil {
				return err
			}
			d.Version = old.Version + 1
			err = updateDefinition(ctx, tx, &d)
		}
		if err != nil {
			return err
		}
		if err := record(ctx, tx, person(ctx, "", ""), "tag:"+d.Key, d.Key, before, definitionRecord(&d)); err != nil {
			return err
		}
		if out, err = getDefinition(ctx, tx, d.Key); err != nil {
			return err
		}
		return s.changed(ctx, tx, true)
	})
	if err != nil {
		return Definition{}, err
	}
	s.log.Info("tag written", "key", d.Key, "version", out.Version)
	return *out, nil
}

func same(a, b *Definition) bool {
	x, y := definitionRecord(a), definitionRecord(b)
	return toJSON(x) == toJSON(y)
}

// groupRecord and definitionRecord are what of a record is kept in the history.
func groupRecord(g *Group) any {
	return map[string]any{"title": g.Title, "title_zh": g.TitleZH, "description": g.Description, "kinds": words(g.Kinds)}
}

func definitionRecord(d *Definition) any {
	return map[string]any{"title": d.Title, "title_zh": d.TitleZH, "group_id": d.GroupID, "description": d.Description, "value_type": d.Type, "allowed_values": append([]string{}, d.Allowed...),
		"kinds": words(d.Kinds), "setter": d.Setter, "inherited": d.Inherited, "hidden": d.Hidden, "status": d.Status}
}

func words(kinds []Kind) []string {
	out := []string{}
	for _, k := range kinds {
		out = append(out, k.String())
	}
	return out
}

// fits reports the first value or rule that does not fit a changed tag.
func fits(ctx context.Context, tx *db.Tx, d *Definition) error {
	values, err := readValues(ctx, tx, `WHERE tag_key = $1`, d.Key)
	if err != nil {
		return err
	}
	for _, object := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[object] {
			if !slices.Contains(d.Kinds, v.kind) {
				return fault.New(fault.Conflict, "%s carries tag %s, which would not apply to kind %s; clear it there first", object, d.Key, v.kind)
			}
			if p := d.problem(v.Value); !v.Blocked && p != "" {
				return fault.New(fault.Conflict, "%s carries %s=%s, which would not fit: %s", object, d.Key, v.Value, p)
			}
		}
	}
	rules, err := readRules(ctx, tx, `WHERE r.tag_key = $1`, d.Key)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if p := d.problem(r.Value); r.ValueExpression == "" && p != "" {
			return fault.New(fault.Conflict, "rule %s sets %s=%s, which would not fit: %s", r.ID, d.Key, r.Value, p)
		}
		if maskOf(r.Kinds)&^maskOf(d.Kinds) != 0 {
			return fault.New(fault.Conflict, "rule %s sets tag %s on %s; it would apply to %s only", r.ID, d.Key, list(r.Kinds), list(d.Kinds))
		}
	}
	return nil
}

// DeleteDefinition deletes a tag that nothing carries and no rule sets, or,
// withValues, those too. It returns fault.Invalid, fault.NotFound and
// fault.Conflict.
func (s *Service) DeleteDefinition(ctx context.Context, key string, withValues bool) error {
	var c core.Check
	if checkKey(&c, "key", key); c.Err() != nil {
		return c.Err()
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		d, err := getDefinition(ctx, tx, key)
		if err != nil {
			return err
		}
		values, err := readValues(ctx, tx, `WHERE tag_key = $1`, key)
		if err != nil {
			return err
		}
		if !withValues {
			if len(values) > 0 {
				return fault.New(fault.Conflict, "%d objects carry tag %s; clear it there, or delete it with its values", len(values), key)
			}
			if len(d.Rules) > 0 {
				return fault.New(fault.Conflict, "rules set tag %s: %s; delete them first, or delete it with them", key, strings.Join(d.Rules, ", "))
			}
		}
		by := person(ctx, core.NewID("tgb"), "the tag was deleted")
		var edits []edit
		for _, object := range slices.Sorted(maps.Keys(values)) {
			for _, v := range values[object] {
				edits = append(edits, edit{old: v, next: stored{object: object, key: key, kind: v.kind, actor: by}, gone: true})
			}
		}
		if _, err := writeEdits(ctx, tx, edits, func(int) {}); err != nil {
			return err
		}
		for _, id := range d.Rules {
			if err := s.deleteRuleTx(ctx, tx, id, by); err != nil {
				return err
			}
		}
		for _, table := range []string{"tag_dismissals", "tag_definitions"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE tag_key = $1`, key); err != nil {
				return err
			}
		}
		if err := record(ctx, tx, by, "tag:"+key, key, definitionRecord(d), nil); err != nil {
			return err
		}
		return s.changed(ctx, tx, true)
	})
}

// Records returns a page of the history, latest first, and the token of the
// next, "" on the last. Who does not see all tenants sees of registered
// resources only those they name and may see. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) Records(ctx context.Context, f RecordFilter, size int32, token string) ([]Record, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	var where []string
	var args []any
	and := func(cond string, v any) {
		args = append(args, v)
		where = append(where, strings.ReplaceAll(cond, "?", "$"+itoa(len(args))))
	}
	if f.Subject != "" {
		if c.Text("subject", f.Subject, true, 0, 400); c.Err() == nil {
			and("subject = ?", f.Subject)
		}
	}
	if f.Key != "" {
		checkKey(&c, "key", f.Key)
		and("tag_key = ?", f.Key)
	}
	if f.BatchID != "" {
		c.ID("batch_id", f.BatchID)
		and("batch_id = ?", f.BatchID)
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	if k, _, _, ok := split(f.Subject); ok && k == Resource {
		if _, err := s.object(ctx, f.Subject); err != nil && !(core.CallerFrom(ctx).AllTenants && fault.KindOf(err) == fault.NotFound) {
			return nil, "", err // what was deleted has a history too
		}
	} else if !core.CallerFrom(ctx).AllTenants {
		and("kind <> ?", int64(Resource))
	}
	if key != nil {
		and("change_id < ?", key[0])
	}
	args = append(args, n+1)
	q := `SELECT ` + strings.Join(historyColumns, ", ") + ` FROM tag_history`
	if len(where) > 0 {
		q += ` WHERE ` + strings.Join(where, " AND ")
	}
	q += ` ORDER BY change_id DESC LIMIT $` + itoa(len(args))
	var out []Record
	err = s.db.View(ctx, func(tx *db.Tx) error {
		return tx.Query(ctx, q, args, func(row db.Row) error {
			var r Record
			var at, kind int64
			if err := row.Scan(&r.ID, &at, &r.Subject, &kind, &r.Key, &r.Before.Value, &r.Before.Blocked, &r.After.Value, &r.After.Blocked, &r.Source, &r.Origin, &r.BatchID, &r.Reason); err != nil {
				return err
			}
			r.At = db.Time(at)
			out = append(out, r)
			return nil
		})
	})
	if err != nil || len(out) <= n {
		return out, "", err
	}
	return out[:n], core.PageToken(out[n-1].ID), nil
}

// purge is how often old records are forgotten.
const purge = time.Hour
