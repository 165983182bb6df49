package topology

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Span is a time after From, up to and including To. Zero: since history
// began; until now.
type Span struct{ From, To time.Time }

// checkSpan checks the form and fills in the end: now, or the last change,
// which is later where the clock went back.
func (s *Service) checkSpan(ctx context.Context, c *core.Check, sp *Span) error {
	now := s.db.Now()
	if sp.To.IsZero() || sp.To.After(now) {
		var last head
		err := s.db.View(ctx, func(tx *db.Tx) (err error) {
			last, err = lastRevision(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
		if sp.To = now; last.at > db.Micros(now) {
			sp.To = db.Time(last.at)
		}
	}
	if sp.From.After(sp.To) {
		c.Add("from", "must not be after to %s, got %s", sp.To.Format(time.RFC3339Nano), sp.From.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// ChangeFilter says which changes are wanted; the zero value: all.
type ChangeFilter struct {
	Span
	ItemID   string // a vertex, or "link:ID"
	CenterID string
	Newest   bool // the last first
}

// condition gathers the parts of a WHERE and their parameters.
type condition struct {
	where []string
	args  []any
}

func (q *condition) param(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *condition) and(cond string) { q.where = append(q.where, cond) }

func (q *condition) text() string { return " WHERE " + strings.Join(q.where, " AND ") }

// limit adds what the caller may see of versions v.
func (q *condition) limit(w viewer, itemID, center string) {
	if !w.all {
		q.and("(v.tenant_id = '' OR v.tenant_id = " + q.param(w.tenant) + ")")
	}
	if itemID != "" {
		q.and("v.item_id = " + q.param(itemID))
	}
	if center != "" {
		q.and("v.ai_center_id = " + q.param(center))
	}
}

// itemOf is the item that changes of a vertex are recorded of.
func itemOf(id string) string {
	center, rest, _, ok := splitCard(id)
	if !ok {
		return id
	}
	// Resources of accelerators have no slash but where a vendor named them.
	name, _, _ := cutLast(rest)
	return nodeID(center, name)
}

func cutLast(s string) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func checkItem(c *core.Check, path, id string) {
	if link, ok := strings.CutPrefix(id, linkPrefix); ok {
		c.Text(path, link, true, 0, maxID)
		return
	}
	checkVertex(c, path, id)
}

// ended is true of versions after which there is nothing. The first half is
// the index's own condition, which SQLite does not conclude from the second.
const ended = "v.closed > 0 AND v.closed = 3"

// seqs are the revisions of a span: after the first, up to the last.
type seqs struct{ after, last head }

func spanSeqs(ctx context.Context, tx *db.Tx, sp Span) (out seqs, err error) {
	if !sp.From.IsZero() {
		if out.after, err = revisionAt(ctx, tx, db.Micros(sp.From)); err != nil {
			return out, err
		}
	}
	out.last, err = revisionAt(ctx, tx, db.Micros(sp.To))
	return out, err
}

// Changes returns a page of what changed, by time, and the token of the next
// page, "" on the last. It returns fault.Invalid.
func (s *Service) Changes(ctx context.Context, f ChangeFilter, size int32, token string) (rows []Change, next string, begins time.Time, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", begins, err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", begins, err
	}
	var afterSeq int64
	if key != nil {
		if afterSeq, err = strconv.ParseInt(key[0], 10, 64); err != nil {
			return nil, "", begins, fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
		}
	}
	var c core.Check
	if err := s.checkSpan(ctx, &c, &f.Span); err != nil {
		return nil, "", begins, err
	}
	if f.ItemID != "" {
		checkItem(&c, "node_id", f.ItemID)
	}
	if f.CenterID != "" {
		c.ID("ai_center_id", f.CenterID)
	}
	if err := c.Err(); err != nil {
		return nil, "", begins, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		first, err := firstRevision(ctx, tx)
		if err != nil {
			return err
		}
		begins = db.Time(first.at)
		between, err := spanSeqs(ctx, tx, f.Span)
		if err != nil {
			return err
		}
		// A change is a version that begins, or one that ends with nothing after.
		for _, of := range []struct{ column, more string }{{"from_seq", ""}, {"until_seq", ended}} {
			q := &condition{}
			q.and("v." + of.column + " > " + q.param(between.after.seq))
			q.and("v." + of.column + " <= " + q.param(between.last.seq))
			if of.more != "" {
				q.and(of.more)
			}
			q.limit(viewerOf(ctx), itemOf(f.ItemID), f.CenterID)
			order, than := "", ">"
			if f.Newest {
				order, than = " DESC", "<"
			}
			if key != nil {
				q.and("(v." + of.column + ", v.item_id) " + than + " (" + q.param(afterSeq) + ", " + q.param(key[1]) + ")")
			}
			part, err := readVersions(ctx, tx, q.text()+" ORDER BY v."+of.column+order+", v.item_id"+order+" LIMIT "+q.param(n+1), q.args...)
			if err != nil {
				return err
			}
			for _, v := range part {
				rows = append(rows, v.change(of.more != ""))
			}
		}
		slices.SortFunc(rows, func(a, b Change) int {
			if f.Newest {
				a, b = b, a
			}
			if a.Seq != b.Seq {
				return int(min(max(a.Seq-b.Seq, -1), 1))
			}
			return strings.Compare(a.ID, b.ID)
		})
		if len(rows) > n {
			rows = rows[:n]
			next = core.PageToken(strconv.FormatInt(rows[n-1].Seq, 10), rows[n-1].ID)
		}
		return readBefore(ctx, tx, rows)
	})
	return rows, next, begins, err
}

// change is what a version's begin, or its end, was.
func (v *version) change(end bool) Change {
	if end {
		return Change{Seq: v.until, At: db.Time(v.ended), Kind: Removed, ID: v.ID, Before: &v.Item}
	}
	return Change{Seq: v.from, At: v.Since, Kind: v.opened, ID: v.ID, After: &v.Item}
}

// readBefore sets what was before changes, as far as history goes.
func readBefore(ctx context.Context, tx *db.Tx, rows []Change) error {
	for i := range rows {
		if rows[i].Kind != Changed {
			continue
		}
		before, err := readVersions(ctx, tx, `WHERE v.item_id = $1 AND v.from_seq < $2 AND v.until_seq = $2 ORDER BY v.from_seq DESC LIMIT 1`, rows[i].ID, rows[i].Seq)
		if err != nil {
			return err
		}
		if len(before) == 1 {
			rows[i].Before = &before[0].Item
		}
	}
	return nil
}

// Density says how much changed in equal parts of a time.
type Density struct {
	Span
	Begins, Last            time.Time // history begins; the last change
	Added, Changed, Removed []int64
}

// Density returns how much changed in each of 1 to 500 parts (0: 100) of a
// time, of one center or of all. It returns fault.Invalid.
func (s *Service) Density(ctx context.Context, sp Span, buckets int32, center string) (*Density, error) {
	if buckets == 0 {
		buckets = 100
	}
	var c core.Check
	if err := s.checkSpan(ctx, &c, &sp); err != nil {
		return nil, err
	}
	c.Range("buckets", int64(buckets), 1, 500)
	if center != "" {
		c.ID("ai_center_id", center)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	out := &Density{Span: sp, Added: make([]int64, buckets), Changed: make([]int64, buckets), Removed: make([]int64, buckets)}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		first, err := firstRevision(ctx, tx)
		if err != nil {
			return err
		}
		last, err := lastRevision(ctx, tx)
		if err != nil {
			return err
		}
		out.Begins, out.Last = db.Time(first.at), db.Time(last.at)
		if out.From.IsZero() {
			if out.From = out.Begins; first.seq == 0 || out.From.After(out.To) {
				out.From = out.To
			}
			out.From = out.From.Add(-time.Microsecond) // the first change is in it
		}
		width := max((db.Micros(out.To)-db.Micros(out.From)+int64(buckets)-1)/int64(buckets), 1)
		bucket := func(at int64) int { return int(min((at-db.Micros(out.From)-1)/width, int64(buckets)-1)) }
		if w := viewerOf(ctx); w.all && center == "" {
			return tx.Query(ctx, `SELECT at, added, changed, removed FROM topology_revisions WHERE at > $1 AND at <= $2`, []any{db.Micros(out.From), db.Micros(out.To)}, func(row db.Row) error {
				var at, added, changed, removed int64
				if err := row.Scan(&at, &added, &changed, &removed); err != nil {
					return err
				}
				i := bucket(at)
				out.Added[i] += added
				out.Changed[i] += changed
				out.Removed[i] += removed
				return nil
			})
		}
		between, err := spanSeqs(ctx, tx, out.Span)
		if err != nil {
			return err
		}
		for _, of := range []struct{ column, time, kind, more string }{{"from_seq", "valid_from", "opened", ""}, {"until_seq", "valid_until", "closed", ended}} {
			q := &condition{}
			q.and("v." + of.column + " > " + q.param(between.after.seq))
			q.and("v." + of.column + " <= " + q.param(between.last.seq))
			if of.more != "" {
				q.and(of.more)
			}
			q.limit(viewerOf(ctx), "", center)
			err := tx.Query(ctx, `SELECT v.`+of.time+`, v.`+of.kind+`, COUNT(*) FROM topology_versions v`+q.text()+` GROUP BY v.`+of.time+`, v.`+of.kind, q.args, func(row db.Row) error {
				var at, n int64
				var kind ChangeKind
				if err := row.Scan(&at, &kind, &n); err != nil {
					return err
				}
				[][]int64{Added: out.Added, Changed: out.Changed, Removed: out.Removed}[kind][bucket(at)] += n
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count changes: %w", err)
	}
	return out, nil
}

// Diff is what is different between two times.
type Diff struct {
	Span
	Changes                 []Change // by ID
	Next                    string
	Added, Changed, Removed int64 // of all pages
}

// Diff returns a page of what is different between two times, by ID: what is
// not the same at the second as at the first, whatever happened in between. It
// returns fault.Invalid.
func (s *Service) Diff(ctx context.Context, sp Span, center string, size int32, token string) (*Diff, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, err
	}
	var c core.Check
	if sp.From.IsZero() {
		c.Add("from", "is required")
	}
	if err := s.checkSpan(ctx, &c, &sp); err != nil {
		return nil, err
	}
	if center != "" {
		c.ID("ai_center_id", center)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if _, err := s.moment(ctx, sp.From); err != nil {
		return nil, atIsFrom(err)
	}
	out := &Diff{Span: sp}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		between, err := spanSeqs(ctx, tx, sp)
		if err != nil {
			return err
		}
		// What was valid at the first time and ended until the second, and what
		// began since the first time and is valid at the second.
		was, err := readSpan(ctx, tx, between, center, `v.closed > 0 AND v.until_seq > $1 AND v.until_seq <= $2 AND v.from_seq <= $1`)
		if err != nil {
			return err
		}
		is, err := readSpan(ctx, tx, between, center, `v.from_seq > $1 AND v.from_seq <= $2 AND v.until_seq > $2`)
		if err != nil {
			return err
		}
		out.compare(was, is)
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := out.Changes
	if key != nil {
		at, found := slices.BinarySearchFunc(all, key[0], func(c Change, id string) int { return strings.Compare(c.ID, id) })
		if found {
			at++
		}
		all = all[at:]
	}
	if len(all) > n {
		all, out.Next = all[:n], core.PageToken(all[n-1].ID)
	}
	out.Changes = all
	return out, s.lastEnds(ctx, out)
}

// lastEnds says of what went when it went last: what changed in between was
// another version.
func (s *Service) lastEnds(ctx context.Context, d *Diff) error {
	return s.db.View(ctx, func(tx *db.Tx) error {
		for i := range d.Changes {
			c := &d.Changes[i]
			if c.Kind != Removed {
				continue
			}
			var at int64
			if _, err := tx.Get(ctx, `SELECT until_seq, valid_until FROM topology_versions WHERE item_id = $1 AND closed = 3 AND valid_until <= $2
				ORDER BY from_seq DESC LIMIT 1`, []any{c.ID, db.Micros(d.To)}, &c.Seq, &at); err != nil {
				return fmt.Errorf("read when %s went: %w", c.ID, err)
			}
			c.At = db.Time(at)
		}
		return nil
	})
}

func atIsFrom(err error) error {
	fields := fault.FieldsOf(err)
	for i := range fields {
		fields[i].Path = "from"
	}
	if len(fields) == 0 {
		return err
	}
	return fault.Fields(fields...)
}

func readSpan(ctx context.Context, tx *db.Tx, between seqs, center, where string) (map[string]*version, error) {
	q := &condition{args: []any{between.after.seq, between.last.seq}}
	q.and(where)
	q.limit(viewerOf(ctx), "", center)
	rows, err := readVersions(ctx, tx, q.text(), q.args...)
	out := make(map[string]*version, len(rows))
	for _, v := range rows {
		out[v.ID] = v
	}
	return out, err
}

// compare fills in what is different.
func (d *Diff) compare(was, is map[string]*version) {
	for id, a := range was {
		b := is[id]
		switch {
		case b == nil:
			d.Changes = append(d.Changes, a.change(true))
			d.Removed++
		case a.text != b.text || a.CenterID != b.CenterID || a.TenantID != b.TenantID:
			d.Changes = append(d.Changes, Change{Seq: b.from, At: b.Since, Kind: Changed, ID: id, Before: &a.Item, After: &b.Item})
			d.Changed++
		}
	}
	for id, b := range is {
		if was[id] == nil {
			d.Changes = append(d.Changes, Change{Seq: b.from, At: b.Since, Kind: Added, ID: id, After: &b.Item})
			d.Added++
		}
	}
	slices.SortFunc(d.Changes, func(a, b Change) int { return strings.Compare(a.ID, b.ID) })
}
