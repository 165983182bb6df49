package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// forever ends what is valid now.
const forever = math.MaxInt64

// head is a revision: the last one, mostly. The zero head is before the first.
type head struct{ seq, at int64 }

func lastRevision(ctx context.Context, tx *db.Tx) (h head, err error) {
	if _, err = tx.Get(ctx, `SELECT seq, at FROM topology_revisions ORDER BY seq DESC LIMIT 1`, nil, &h.seq, &h.at); err != nil {
		return head{}, fmt.Errorf("read the last revision: %w", err)
	}
	return h, nil
}

func firstRevision(ctx context.Context, tx *db.Tx) (h head, err error) {
	if _, err = tx.Get(ctx, `SELECT seq, at FROM topology_revisions ORDER BY seq LIMIT 1`, nil, &h.seq, &h.at); err != nil {
		return head{}, fmt.Errorf("read the first revision: %w", err)
	}
	return h, nil
}

// revisionAt is the last revision at or before a time.
func revisionAt(ctx context.Context, tx *db.Tx, at int64) (h head, err error) {
	if _, err = tx.Get(ctx, `SELECT seq, at FROM topology_revisions WHERE at <= $1 ORDER BY at DESC LIMIT 1`, []any{at}, &h.seq, &h.at); err != nil {
		return head{}, fmt.Errorf("read the revision of a time: %w", err)
	}
	return h, nil
}

// edit is a change to record.
type edit struct {
	id   string
	prev *Item   // what is valid; nil: nothing
	next *Record // nil: it goes
	text string  // of next
}

// errStale says that others recorded changes meanwhile.
var errStale = errors.New("the image is not of the last revision")

var versionColumns = []string{"item_id", "from_seq", "until_seq", "valid_from", "valid_until", "added_at", "opened", "closed", "ai_center_id", "tenant_id", "body"}

// record writes edits as one revision, if the last one is still h; otherwise
// it returns errStale.
func record(ctx context.Context, tx *db.Tx, h head, edits []edit) error {
	last, err := lastRevision(ctx, tx)
	if err != nil {
		return err
	}
	if last != h {
		return errStale
	}
	next := head{h.seq + 1, max(db.Micros(tx.Now), h.at+1)}
	var counts [Removed + 1]int64
	var rows [][]any
	for _, e := range edits {
		kind := Changed
		switch {
		case e.prev == nil:
			kind = Added
		case e.next == nil:
			kind = Removed
		}
		counts[kind]++
		if e.prev != nil {
			n, err := tx.Exec(ctx, `UPDATE topology_versions SET until_seq = $3, valid_until = $4, closed = $5 WHERE item_id = $1 AND from_seq = $2 AND closed = 0`,
				e.id, e.prev.seq, next.seq, next.at, int64(kind))
			if err != nil {
				return fmt.Errorf("end the version of %s: %w", e.id, err)
			}
			if n != 1 {
				return errStale
			}
		}
		if e.next != nil {
			added := next.at
			if e.prev != nil {
				added = db.Micros(e.prev.Added)
			}
			rows = append(rows, []any{e.id, next.seq, int64(forever), next.at, int64(forever), added, int64(kind), int64(0), e.next.CenterID, e.next.TenantID, e.text})
		}
	}
	if err := tx.Insert(ctx, "topology_versions", versionColumns, rows); err != nil {
		if db.IsDuplicate(err) {
			return errStale
		}
		return fmt.Errorf("insert versions: %w", err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO topology_revisions (seq, at, added, changed, removed) VALUES ($1, $2, $3, $4, $5)`,
		next.seq, next.at, counts[Added], counts[Changed], counts[Removed]); err != nil {
		if db.IsDuplicate(err) {
			return errStale
		}
		return fmt.Errorf("insert revision %d: %w", next.seq, err)
	}
	return tx.Emit(ctx, ChangedSubject, fmt.Appendf(nil, `{"sequence":%d}`, next.seq))
}

// ChangedSubject is the subject of the event that the topology changed. It
// carries the sequence.
const ChangedSubject = "topology.changed"

// version is a row of topology_versions.
type version struct {
	Item
	from, until    int64 // revisions
	opened, closed ChangeKind
	ended          int64 // time
}

const versionRow = `v.item_id, v.from_seq, v.until_seq, v.valid_from, v.valid_until, v.added_at, v.opened, v.closed, v.ai_center_id, v.tenant_id, v.body`

// readVersions reads the versions v that match the rest of the query.
func readVersions(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*version, error) {
	var out []*version
	err := tx.Query(ctx, `SELECT `+versionRow+` FROM topology_versions v `+rest, args, func(row db.Row) error {
		v := &version{}
		var from, added int64
		if err := row.Scan(&v.ID, &v.from, &v.until, &from, &v.ended, &added, &v.opened, &v.closed, &v.CenterID, &v.TenantID, &v.text); err != nil {
			return err
		}
		v.seq, v.Since, v.Added = v.from, db.Time(from), db.Time(added)
		if err := json.Unmarshal([]byte(v.text), &v.Record); err != nil {
			return fmt.Errorf("record of %s: %w", v.ID, err)
		}
		out = append(out, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return out, nil
}

// readOpen reads what is valid now of one item.
func readOpen(ctx context.Context, tx *db.Tx, id string) (*Item, error) {
	rows, err := readVersions(ctx, tx, `WHERE v.item_id = $1 AND v.closed = 0`, id)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0].Item, nil
}

// readEnded reads what was valid at a revision and has ended since. It is
// found by when it ended: what ended before costs nothing.
func readEnded(ctx context.Context, tx *db.Tx, seq int64) ([]*version, error) {
	return readVersions(ctx, tx, `WHERE v.closed > 0 AND v.until_seq > $1 AND v.from_seq <= $1`, seq)
}

// forget deletes what ended before a time. What was valid then stays.
func forget(ctx context.Context, tx *db.Tx, before time.Time) (int64, error) {
	h, err := revisionAt(ctx, tx, db.Micros(before))
	if err != nil || h.seq == 0 {
		return 0, err
	}
	n, err := tx.Exec(ctx, `DELETE FROM topology_versions WHERE closed > 0 AND until_seq <= $1`, h.seq)
	if err == nil {
		_, err = tx.Exec(ctx, `DELETE FROM topology_revisions WHERE seq < $1`, h.seq)
	}
	if err != nil {
		return 0, fmt.Errorf("forget history: %w", err)
	}
	return n, nil
}

// DeclaredLink is a link that people declared.
type DeclaredLink struct {
	ID        string
	Name      string // "": the ID
	From, To  string
	Kind      LinkKind
	Bandwidth int64 // bits per second; 0: not stated
	Latency   int64 // microseconds; 0: not stated
	Provider  string
	TenantID  string // "": everyone sees it
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

func getDeclared(ctx context.Context, tx *db.Tx, id string) (*DeclaredLink, error) {
	l := &DeclaredLink{ID: id}
	var created, updated int64
	found, err := tx.Get(ctx, `SELECT name, from_id, to_id, kind, bandwidth, latency_us, service_provider, tenant_id, version, created_at, updated_at
		FROM topology_links WHERE link_id = $1`, []any{id}, &l.Name, &l.From, &l.To, &l.Kind, &l.Bandwidth, &l.Latency, &l.Provider, &l.TenantID, &l.Version, &created, &updated)
	if err != nil {
		return nil, fmt.Errorf("read link %s: %w", id, err)
	}
	if !found {
		return nil, nil
	}
	l.CreatedAt, l.UpdatedAt = db.Time(created), db.Time(updated)
	return l, nil
}

func putDeclared(ctx context.Context, tx *db.Tx, l *DeclaredLink) error {
	if _, err := tx.Exec(ctx, `INSERT INTO topology_links (link_id, name, from_id, to_id, kind, bandwidth, latency_us, service_provider, tenant_id, version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (link_id) DO UPDATE SET name = $2, from_id = $3, to_id = $4, kind = $5, bandwidth = $6,
		latency_us = $7, service_provider = $8, tenant_id = $9, version = $10, updated_at = $12`,
		l.ID, l.Name, l.From, l.To, int64(l.Kind), l.Bandwidth, l.Latency, l.Provider, l.TenantID, l.Version, db.Micros(l.CreatedAt), db.Micros(l.UpdatedAt)); err != nil {
		return fmt.Errorf("write link %s: %w", l.ID, err)
	}
	return nil
}

func deleteDeclared(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM topology_links WHERE link_id = $1`, id); err != nil {
		return fmt.Errorf("delete link %s: %w", id, err)
	}
	return nil
}

func noVertex(id string) error {
	return fault.New(fault.NotFound, "there is no %s in the topology", id)
}
func noLink(id string) error { return fault.New(fault.NotFound, "there is no link %s", id) }
