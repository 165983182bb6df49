package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// Snapshot is a catalog with the live part of its centers. It belongs to
// everyone but for the list: nobody may change what that points to.
type Snapshot struct {
	At      time.Time
	Version int64     // of the catalog
	Centers []*Center // by ID
	Specs   map[string]*Spec
	Images  map[string]*Image
}

// seen is what a snapshot was made of, for the next one on PostgreSQL to read
// only what changed since.
type seen struct {
	catalog *Catalog
	version int64  // of the catalog in the database
	horizon uint32 // all transactions before it had ended
	centers []*Center
	down    []bool // by the place in centers: it said that it goes away
}

// Snapshot returns the catalog with what is live about its centers now, as of
// one moment. With a thousand centers whose rooms and measurements are four
// thousand rows this is called many times a second, so on PostgreSQL it reads
// the rows that transactions wrote which the last snapshot did not see; that
// takes 1/8 of the time while 3,000 jobs/s are placed. SQLite cannot tell.
func (s *Service) Snapshot(ctx context.Context) (*Snapshot, error) {
	c, err := s.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	out := &Snapshot{Version: c.Version, Specs: c.Specs, Images: c.Images}
	now, err := s.follow(ctx, c, &out.At)
	if err != nil {
		return nil, err
	}
	if now == nil {
		if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
			out.At = tx.Now
			now, err = see(ctx, tx, c)
			return err
		}); err != nil {
			return nil, err
		}
	}
	for i, k := range now.centers { // silence is seen by the clock
		if status := statusAt(k.Drained, now.down[i], k.LastSeen, out.At); status != k.Status {
			own := *k
			own.Status = status
			now.centers[i] = &own
		}
	}
	if s.db.Engine() == db.Postgres {
		s.seen.Store(now)
	}
	out.Centers = slices.Clone(now.centers)
	return out, nil
}

// see reads the live part of the centers of c.
func see(ctx context.Context, tx *db.Tx, c *Catalog) (*seen, error) {
	now := &seen{catalog: c}
	if tx.Engine() == db.Postgres {
		var horizon int64
		if _, err := tx.Get(ctx, `SELECT version, txid_snapshot_xmin(txid_current_snapshot()) FROM registry_version WHERE name = 'catalog'`, nil, &now.version, &horizon); err != nil {
			return nil, fmt.Errorf("read what transactions there are: %w", err)
		}
		now.horizon = uint32(horizon)
	}
	byID := make(map[string]*Center, len(c.Centers))
	for id, k := range c.Centers {
		own := *k
		byID[id] = &own
	}
	if err := readCapacity(ctx, tx, byID, "", "", true); err != nil {
		return nil, err
	}
	down := map[string]bool{}
	err := readLive(ctx, tx, byID, "", "", func(k *Center, isDown bool) {
		now.centers, down[k.ID] = append(now.centers, k), isDown
	})
	slices.SortFunc(now.centers, func(a, b *Center) int { return strings.Compare(a.ID, b.ID) })
	for _, k := range now.centers {
		now.down = append(now.down, down[k.ID])
	}
	return now, err
}

// follow makes what is to be seen now of what was, and of the rows that were
// written since; nil: all is to be read. It sets the moment that this is of. A
// row's xmin is the transaction that wrote it: those that were not seen are the
// horizon of then or later. Rows that were deleted come with another version of
// the catalog. All this is one query, because the scheduler waits for it.
func (s *Service) follow(ctx context.Context, c *Catalog, at *time.Time) (*seen, error) {
	old := s.seen.Load()
	if old == nil || old.catalog != c {
		return nil, nil
	}
	var n *seen
	err := s.db.Read(ctx, func(tx *db.Tx) error {
		*at = tx.Now
		n = &seen{catalog: c, centers: slices.Clone(old.centers), down: slices.Clone(old.down)}
		// own returns a center, which is this snapshot's own from then on.
		own := func(id string) (i int, ok bool) {
			i, ok = slices.BinarySearchFunc(n.centers, id, func(k *Center, id string) int { return strings.Compare(k.ID, id) })
			if ok && n.centers[i] == old.centers[i] {
				k := *n.centers[i]
				n.centers[i] = &k
			}
			return i, ok
		}
		roomy := map[string]bool{} // whose Total and Used are this snapshot's own
		var part, a, b int64
		var id, resource string
		var m monitorRow
		into := append([]any{&part, &id, &resource, &a, &b}, m.dest()...)
		return tx.Query(ctx, changedSince, []any{strconv.FormatUint(uint64(old.horizon), 10)}, func(row db.Row) error {
			if err := row.Scan(into...); err != nil {
				return err
			}
			if part == partCatalog {
				n.version, n.horizon = a, uint32(b)
				return nil
			}
			i, ok := own(id)
			if !ok {
				return nil
			}
			k := n.centers[i]
			switch part {
			case partCapacity:
				if !roomy[id] {
					roomy[id] = true
					k.Total, k.Used = maps.Clone(k.Total), maps.Clone(k.Used)
				}
				k.Total[resource], k.Used[resource] = a, b
			case partLoad:
				k.Running, k.Waiting = a, b
			case partMonitor:
				n.down[i] = m.down
				k.LastSeen, k.Measured = m.live()
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read what changed at centers: %w", err)
	}
	if n.version != old.version {
		return nil, nil
	}
	return n, nil
}

// The parts of changedSince.
const (
	partCatalog int64 = iota
	partCapacity
	partLoad
	partMonitor
)

// changedSince reads, of PostgreSQL, the version of the catalog, which
// transactions there are, and the rows that others than a horizon's wrote.
const changedSince = `SELECT 0, '', '', version, txid_snapshot_xmin(txid_current_snapshot()), 0, FALSE, 0, 0, 0, 0, 0, 0 FROM registry_version WHERE name = 'catalog'
	UNION ALL SELECT 1, ai_center_id, resource, total, used, 0, FALSE, 0, 0, 0, 0, 0, 0 FROM center_capacity WHERE age(xmin) <= age($1::text::xid)
	UNION ALL SELECT 2, ai_center_id, '', running, waiting, 0, FALSE, 0, 0, 0, 0, 0, 0 FROM center_load WHERE age(xmin) <= age($1::text::xid)
	UNION ALL SELECT 3, ai_center_id, '', 0, 0, ` + monitorColumns + ` FROM center_monitor m WHERE age(xmin) <= age($1::text::xid)`

// monitorColumns are those of center_monitor as m.
const monitorColumns = `m.last_seen, m.down, m.measured_at, m.cpu_busy_permille, m.memory_busy, m.memory_total, m.storage_busy, m.storage_total`

// monitorRow is what they say.
type monitorRow struct {
	down           bool
	seen, measured int64
	figures        Measured
}

func (r *monitorRow) dest() []any {
	return []any{&r.seen, &r.down, &r.measured, &r.figures.CPUBusyPermille, &r.figures.MemoryBusy, &r.figures.MemoryTotal, &r.figures.StorageBusy, &r.figures.StorageTotal}
}

func (r *monitorRow) live() (lastSeen time.Time, m Measured) {
	r.figures.At = db.Time(r.measured)
	return db.Time(r.seen), r.figures
}
