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
	var now *seen
	out := &Snapshot{Specs: c.Specs, Images: c.Images}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out.At = tx.Now
		now, err = s.see(ctx, tx, c)
		return err
	})
	if err != nil {
		return nil, err
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

// see reads the live part of the centers of c, all of it or what changed.
func (s *Service) see(ctx context.Context, tx *db.Tx, c *Catalog) (*seen, error) {
	now, old := &seen{catalog: c}, s.seen.Load()
	if tx.Engine() == db.Postgres {
		var horizon int64
		if _, err := tx.Get(ctx, `SELECT version, txid_snapshot_xmin(txid_current_snapshot()) FROM registry_version WHERE name = 'catalog'`, nil, &now.version, &horizon); err != nil {
			return nil, fmt.Errorf("read what transactions there are: %w", err)
		}
		now.horizon = uint32(horizon)
		if old != nil && old.catalog == c && old.version == now.version {
			return now, now.follow(ctx, tx, old)
		}
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

// follow makes n of old and of the rows that were written since. A row's xmin is
// the transaction that wrote it: those that old did not see are its horizon or
// later. Rows that were deleted come with another version of the catalog.
func (n *seen) follow(ctx context.Context, tx *db.Tx, old *seen) error {
	n.centers, n.down = slices.Clone(old.centers), slices.Clone(old.down)
	horizon := strconv.FormatUint(uint64(old.horizon), 10)
	// own returns the place of a center, which is this snapshot's own from then on.
	own := func(id string) (int, bool) {
		i, ok := slices.BinarySearchFunc(n.centers, id, func(k *Center, id string) int { return strings.Compare(k.ID, id) })
		if ok && n.centers[i] == old.centers[i] {
			k := *n.centers[i]
			n.centers[i] = &k
		}
		return i, ok
	}
	roomy := map[string]bool{} // whose Total and Used are this snapshot's own
	err := tx.Query(ctx, `SELECT ai_center_id, resource, total, used FROM center_capacity WHERE age(xmin) <= age($1::text::xid)`, []any{horizon}, func(row db.Row) error {
		var id, resource string
		var total, used int64
		if err := row.Scan(&id, &resource, &total, &used); err != nil {
			return err
		}
		i, ok := own(id)
		if !ok {
			return nil
		}
		k := n.centers[i]
		if !roomy[id] {
			roomy[id] = true
			k.Total, k.Used = maps.Clone(k.Total), maps.Clone(k.Used)
		}
		k.Total[resource], k.Used[resource] = total, used
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what capacity changed: %w", err)
	}
	err = tx.Query(ctx, `SELECT ai_center_id, running, waiting FROM center_load WHERE age(xmin) <= age($1::text::xid)`, []any{horizon}, func(row db.Row) error {
		var id string
		var running, waiting int64
		if err := row.Scan(&id, &running, &waiting); err != nil {
			return err
		}
		if i, ok := own(id); ok {
			n.centers[i].Running, n.centers[i].Waiting = running, waiting
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what load changed: %w", err)
	}
	err = tx.Query(ctx, `SELECT ai_center_id, `+monitorColumns+` FROM center_monitor m WHERE age(xmin) <= age($1::text::xid)`, []any{horizon}, func(row db.Row) error {
		var id string
		var m monitorRow
		if err := row.Scan(append([]any{&id}, m.dest()...)...); err != nil {
			return err
		}
		if i, ok := own(id); ok {
			n.down[i] = m.down
			n.centers[i].LastSeen, n.centers[i].Measured = m.live()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what measurements changed: %w", err)
	}
	return nil
}

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
