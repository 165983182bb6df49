package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/db"
)

// Lists of what has an attribute with a value start from terms, so that they
// do not read every resource. A term is a number made of "name=value" or
// "name.member=value". Two may have the same number, and what was written by a
// program that knows none is looked at every time: whether a resource has what
// is wanted is for [Filter.hasAttributes] to say. The schemas bound how many
// terms a resource has (a node 643). Names alone have none: that would halve
// the rate of imports for lists that mostly find their page at once.

// term is the number of what a filter asks for.
func term(wanted string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(wanted)) // never fails
	return int64(h.Sum64())
}

// termsOf are the terms of attributes.
func termsOf(id, attributes string) (map[int64]bool, error) {
	var v any
	if err := json.Unmarshal([]byte(attributes), &v); err != nil {
		return nil, fmt.Errorf("attributes of resource %s: %w", id, err)
	}
	terms := map[int64]bool{}
	addTerms(terms, "", v)
	return terms, nil
}

// addTerms adds what [has] would find at a path.
func addTerms(terms map[int64]bool, path string, v any) {
	switch v := v.(type) {
	case nil:
	case []any:
		for _, x := range v {
			addTerms(terms, path, x)
		}
	case map[string]any:
		if path != "" {
			path += "."
		}
		for name, x := range v {
			if !strings.ContainsAny(name, ".=") { // no filter names it
				addTerms(terms, path+name, x)
			}
		}
	default:
		terms[term(path+"="+scalar(v))] = true
	}
}

// scalar is a value as filters write it.
func scalar(v any) string {
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// index gives a record its terms; the rows are still to be inserted.
func (r *record) index() (rows [][]any, err error) {
	terms, err := termsOf(r.ID, r.attributes)
	r.indexed = r.Version
	return termRows(r.ID, terms), err
}

func termRows(id string, terms map[int64]bool) (rows [][]any) {
	for _, t := range slices.Sorted(maps.Keys(terms)) {
		rows = append(rows, []any{t, id})
	}
	return rows
}

// reindex is index of what replaces old: it deletes what is no longer so.
func (r *record) reindex(ctx context.Context, tx *db.Tx, old *record) ([][]any, error) {
	terms, err := termsOf(r.ID, r.attributes)
	if err != nil {
		return nil, err
	}
	r.indexed = r.Version
	switch old.indexed {
	case old.Version:
		had, err := termsOf(r.ID, old.attributes)
		if err != nil {
			return nil, err
		}
		for _, t := range slices.Sorted(maps.Keys(had)) {
			if terms[t] {
				delete(terms, t)
				continue
			}
			if _, err := tx.Exec(ctx, `DELETE FROM resource_terms WHERE term = $1 AND resource_id = $2`, t, r.ID); err != nil {
				return nil, fmt.Errorf("delete terms of %s: %w", r.ID, err)
			}
		}
	case 0:
	default: // written by a program that knows no terms: which are there is not known
		if _, err := tx.Exec(ctx, `DELETE FROM resource_terms WHERE resource_id = $1`, r.ID); err != nil {
			return nil, fmt.Errorf("delete terms of %s: %w", r.ID, err)
		}
	}
	return termRows(r.ID, terms), nil
}

func insertTerms(ctx context.Context, tx *db.Tx, rows [][]any) error {
	// A program that knows no terms leaves those of what it deletes.
	if err := tx.InsertMissing(ctx, "resource_terms", []string{"term", "resource_id"}, rows); err != nil {
		return fmt.Errorf("insert terms: %w", err)
	}
	return nil
}

// indexAll gives terms to what was written before there were any. Several
// processes may do it at once.
func (s *Service) indexAll(ctx context.Context) error {
	for n := 1; n > 0; {
		err := s.db.Tx(ctx, func(tx *db.Tx) error {
			q := &query{}
			q.and("r.indexed <> r.version")
			records, err := readRecords(ctx, tx, q, " ORDER BY r.resource_id LIMIT 500")
			if err != nil {
				return err
			}
			var rows [][]any
			for _, r := range records {
				old := *r
				part, err := r.reindex(ctx, tx, &old)
				if err != nil {
					return err
				}
				rows = append(rows, part...)
				if _, err := tx.Exec(ctx, `UPDATE resources SET indexed = $2 WHERE resource_id = $1`, r.ID, r.indexed); err != nil {
					return fmt.Errorf("index resource %s: %w", r.ID, err)
				}
			}
			n = len(records)
			return insertTerms(ctx, tx, rows)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// enough is up to where it matters which term is rarer.
const enough = 1000

// withTerms has the query read resources t first that have the terms of what
// is wanted, of the rarest in order, and those whose terms are not kept. One of
// them at least MUST have a value.
func (q *query) withTerms(ctx context.Context, tx *db.Tx, wanted []string) error {
	var terms []int64
	least, rarest := int64(enough+1), 0
	for _, w := range wanted {
		if !strings.Contains(w, "=") {
			continue
		}
		t, n := term(w), int64(0)
		if len(wanted) > 1 {
			if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM resource_terms WHERE term = $1 LIMIT $2) t`, []any{t, int64(enough)}, &n); err != nil {
				return fmt.Errorf("count resources with %s: %w", w, err)
			}
		}
		if n < least {
			least, rarest = n, len(terms)
		}
		terms = append(terms, t)
	}
	unindexed := int64(0)
	if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM resources WHERE indexed <> version LIMIT 1) r`, nil, &unindexed); err != nil {
		return fmt.Errorf("look for resources without terms: %w", err)
	}
	// CROSS JOIN has SQLite read the terms first.
	first, or := "resource_terms", ""
	if unindexed > 0 {
		first = "(SELECT term, resource_id FROM resource_terms WHERE term = " + q.param(terms[rarest]) +
			" UNION SELECT CAST(" + q.param(terms[rarest]) + " AS BIGINT), resource_id FROM resources WHERE indexed <> version)"
		or = "r.indexed <> r.version OR "
	}
	q.first = first + " t CROSS JOIN "
	q.and("t.term = " + q.param(terms[rarest]))
	q.and("r.resource_id = t.resource_id")
	for i, t := range terms {
		if i != rarest {
			q.and("(" + or + "EXISTS (SELECT 1 FROM resource_terms o WHERE o.resource_id = t.resource_id AND o.term = " + q.param(t) + "))")
		}
	}
	return nil
}
