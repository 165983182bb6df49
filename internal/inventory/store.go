package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

var resourceColumns = []string{
	"resource_id", "type", "name", "parent_id", "platform_id", "ai_center_id", "tenant_id", "region", "service_provider", "state",
	"attributes", "labels", "version", "created_at", "updated_at", "indexed",
}

// record is a resource as it is stored.
type record struct {
	Resource
	attributes, labels string
	indexed            int64 // the version whose terms are kept; 0: none
}

func (r *record) row() []any {
	return []any{
		r.ID, r.Type, r.Name, r.ParentID, r.PlatformID, r.CenterID, r.TenantID, r.Region, r.Provider, int64(r.State),
		r.attributes, r.labels, r.Version, db.Micros(r.CreatedAt), db.Micros(r.UpdatedAt), r.indexed,
	}
}

// same compares all but version, times and terms.
func (r *record) same(o *record) bool {
	return r.Type == o.Type && r.Name == o.Name && r.ParentID == o.ParentID && r.PlatformID == o.PlatformID && r.CenterID == o.CenterID &&
		r.TenantID == o.TenantID && r.Region == o.Region && r.Provider == o.Provider && r.State == o.State &&
		r.attributes == o.attributes && r.labels == o.labels
}

// query gathers conditions and their parameters.
type query struct {
	first string // read before resources r, which it has the IDs of
	where []string
	args  []any
}

func (q *query) param(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *query) params(vs []string) string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = q.param(v)
	}
	return strings.Join(out, ", ")
}

func (q *query) and(cond string) { q.where = append(q.where, cond) }

func (q *query) text() string {
	if len(q.where) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(q.where, " AND ")
}

// readRecords reads the resources r that pass the query, then rest.
func readRecords(ctx context.Context, tx *db.Tx, q *query, rest string) ([]*record, error) {
	var out []*record
	err := tx.Query(ctx, `SELECT r.`+strings.Join(resourceColumns, ", r.")+` FROM `+q.first+`resources r`+q.text()+rest, q.args, func(row db.Row) error {
		r := &record{}
		var created, updated int64
		if err := row.Scan(&r.ID, &r.Type, &r.Name, &r.ParentID, &r.PlatformID, &r.CenterID, &r.TenantID, &r.Region, &r.Provider, &r.State,
			&r.attributes, &r.labels, &r.Version, &created, &updated, &r.indexed); err != nil {
			return err
		}
		r.CreatedAt, r.UpdatedAt = db.Time(created), db.Time(updated)
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	return out, nil
}

// open decodes what is stored as text.
func (r *record) open() (Resource, error) {
	if err := json.Unmarshal([]byte(r.attributes), &r.Attributes); err != nil {
		return Resource{}, fmt.Errorf("attributes of resource %s: %w", r.ID, err)
	}
	if err := json.Unmarshal([]byte(r.labels), &r.Labels); err != nil {
		return Resource{}, fmt.Errorf("labels of resource %s: %w", r.ID, err)
	}
	return r.Resource, nil
}

func getRecord(ctx context.Context, tx *db.Tx, id string) (*record, error) {
	q := &query{}
	q.and("r.resource_id = " + q.param(id))
	rows, err := readRecords(ctx, tx, q, "")
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// chunk is how many values one IN list has.
const chunk = 100

// chunks calls f for up to chunk of the values at a time. The last is padded
// with its own first value, so that there are few texts to prepare.
func chunks(values []string, f func(part []string) error) error {
	for len(values) > 0 {
		n := min(chunk, len(values))
		part := values[:n:n]
		size := 1
		for size < len(part) {
			size *= 10
		}
		for len(part) < size {
			part = append(part, part[0])
		}
		if err := f(part); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// readByID reads the resources of these IDs, as many as exist.
func readByID(ctx context.Context, tx *db.Tx, ids []string) (map[string]*record, error) {
	out := make(map[string]*record, len(ids))
	err := chunks(ids, func(part []string) error {
		q := &query{}
		q.and("r.resource_id IN (" + q.params(part) + ")")
		rows, err := readRecords(ctx, tx, q, "")
		for _, r := range rows {
			out[r.ID] = r
		}
		return err
	})
	return out, err
}

func insertRecords(ctx context.Context, tx *db.Tx, rows []*record) error {
	if len(rows) == 0 {
		return nil
	}
	values := make([][]any, len(rows))
	var labels, terms [][]any
	for i, r := range rows {
		part, err := r.index()
		if err != nil {
			return err
		}
		terms = append(terms, part...)
		values[i] = r.row()
		labels = append(labels, labelRows(r)...)
	}
	if err := tx.Insert(ctx, "resources", resourceColumns, values); err != nil {
		if db.IsDuplicate(err) {
			return fault.Wrap(fault.Conflict, err, "a resource of the batch was registered by someone else meanwhile; please try again")
		}
		return fmt.Errorf("insert resources: %w", err)
	}
	if err := insertTerms(ctx, tx, terms); err != nil {
		return err
	}
	return insertLabels(ctx, tx, labels)
}

func labelRows(r *record) [][]any {
	var out [][]any
	for _, name := range sorted(r.Labels) {
		out = append(out, []any{r.ID, name, r.Labels[name]})
	}
	return out
}

func insertLabels(ctx context.Context, tx *db.Tx, rows [][]any) error {
	if err := tx.Insert(ctx, "resource_labels", []string{"resource_id", "label", "value"}, rows); err != nil {
		return fmt.Errorf("insert labels: %w", err)
	}
	return nil
}

func updateRecord(ctx context.Context, tx *db.Tx, r, old *record) error {
	terms, err := r.reindex(ctx, tx, old)
	if err == nil {
		err = insertTerms(ctx, tx, terms)
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE resources SET type = $2, name = $3, parent_id = $4, platform_id = $5, ai_center_id = $6, tenant_id = $7, region = $8,
		service_provider = $9, state = $10, attributes = $11, labels = $12, version = $13, created_at = $14, updated_at = $15, indexed = $16 WHERE resource_id = $1`, r.row()...); err != nil {
		return fmt.Errorf("update resource %s: %w", r.ID, err)
	}
	if r.TenantID != old.TenantID {
		if _, err := tx.Exec(ctx, `UPDATE identifiers SET tenant_id = $2 WHERE resource_id = $1`, r.ID, r.TenantID); err != nil {
			return fmt.Errorf("update identifiers of %s: %w", r.ID, err)
		}
	}
	if r.labels == old.labels {
		return nil
	}
	if err := deleteLabels(ctx, tx, r.ID); err != nil {
		return err
	}
	return insertLabels(ctx, tx, labelRows(r))
}

func deleteLabels(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM resource_labels WHERE resource_id = $1`, id); err != nil {
		return fmt.Errorf("delete labels of %s: %w", id, err)
	}
	return nil
}

func deleteRecord(ctx context.Context, tx *db.Tx, r *record) error {
	id := r.ID
	if err := deleteLabels(ctx, tx, id); err != nil {
		return err
	}
	empty := *r
	empty.attributes = "{}"
	if _, err := empty.reindex(ctx, tx, r); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM resources WHERE resource_id = $1`, id); err != nil {
		return fmt.Errorf("delete resource %s: %w", id, err)
	}
	return nil
}

// place is where a center is in the tree.
type place struct{ parentID, platformID string }

func readPlaces(ctx context.Context, tx *db.Tx, parentID string) (map[string]place, error) {
	q := &query{}
	if parentID != "" {
		q.and("parent_id = " + q.param(parentID))
	}
	out := map[string]place{}
	err := tx.Query(ctx, `SELECT ai_center_id, parent_id, platform_id FROM center_places`+q.text(), q.args, func(row db.Row) error {
		var id string
		var p place
		err := row.Scan(&id, &p.parentID, &p.platformID)
		out[id] = p
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read places of centers: %w", err)
	}
	return out, nil
}

func getPlace(ctx context.Context, tx *db.Tx, centerID string) (p place, err error) {
	if _, err = tx.Get(ctx, `SELECT parent_id, platform_id FROM center_places WHERE ai_center_id = $1`, []any{centerID}, &p.parentID, &p.platformID); err != nil {
		return place{}, fmt.Errorf("read place of center %s: %w", centerID, err)
	}
	return p, nil
}

func setPlace(ctx context.Context, tx *db.Tx, centerID string, p place) error {
	var err error
	if p.parentID == "" {
		_, err = tx.Exec(ctx, `DELETE FROM center_places WHERE ai_center_id = $1`, centerID)
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO center_places (ai_center_id, parent_id, platform_id) VALUES ($1, $2, $3)
			ON CONFLICT (ai_center_id) DO UPDATE SET parent_id = $2, platform_id = $3`, centerID, p.parentID, p.platformID)
	}
	if err != nil {
		return fmt.Errorf("place center %s: %w", centerID, err)
	}
	return nil
}

// countChildren adds to counts what is registered directly below each of ids
// and the caller may see, and the centers placed there.
func countChildren(ctx context.Context, tx *db.Tx, see visible, ids []string, counts map[string]int64) error {
	scan := func(row db.Row) error {
		var id string
		var n int64
		err := row.Scan(&id, &n)
		counts[id] += n
		return err
	}
	err := chunks(ids, func(part []string) error {
		q := &query{}
		q.and("r.parent_id IN (" + q.params(part) + ")")
		see.limit(q)
		if err := tx.Query(ctx, `SELECT r.parent_id, COUNT(*) FROM resources r`+q.text()+` GROUP BY r.parent_id`, q.args, scan); err != nil {
			return err
		}
		q = &query{}
		q.and("parent_id IN (" + q.params(part) + ")")
		return tx.Query(ctx, `SELECT parent_id, COUNT(*) FROM center_places`+q.text()+` GROUP BY parent_id`, q.args, scan)
	})
	if err != nil {
		return fmt.Errorf("count children: %w", err)
	}
	return nil
}

// below returns the IDs of what is registered directly below the parents.
func below(ctx context.Context, tx *db.Tx, parents []string) (ids []string, err error) {
	err = chunks(parents, func(part []string) error {
		q := &query{}
		q.and("parent_id IN (" + q.params(part) + ")")
		scan := func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			ids = append(ids, id)
			return err
		}
		if err := tx.Query(ctx, `SELECT resource_id FROM resources`+q.text(), q.args, scan); err != nil {
			return err
		}
		return tx.Query(ctx, `SELECT '`+centerPrefix+`' || ai_center_id FROM center_places`+q.text(), q.args, scan)
	})
	if err != nil {
		return nil, fmt.Errorf("read what is below: %w", err)
	}
	return ids, nil
}

// belowNodes returns the IDs of what is registered below any node of a center.
func belowNodes(ctx context.Context, tx *db.Tx, centerID string) (ids []string, err error) {
	prefix := NodeID(centerID, "")
	err = tx.Query(ctx, `SELECT resource_id FROM resources WHERE SUBSTR(parent_id, 1, `+strconv.Itoa(len(prefix))+`) = $1`, []any{prefix}, func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what is below nodes: %w", err)
	}
	return ids, nil
}
