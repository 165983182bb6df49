package inventory

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// ChangedSubject is the subject of the event that resources were registered,
// changed, moved or deleted, or centers placed elsewhere. It carries nothing:
// a move changes many, and who keeps a picture asks [Service.Marks].
const ChangedSubject = "inventory.changed"

func emitChanged(ctx context.Context, tx *db.Tx) error { return tx.Emit(ctx, ChangedSubject, nil) }

// Marks returns when every registered resource last changed, and what each
// placed center is below, by ID: for those who keep a picture of the tree and
// read again only what is new. It tells of the resources of all tenants.
func (s *Service) Marks(ctx context.Context) (changed map[string]time.Time, places map[string]string, err error) {
	changed, places = map[string]time.Time{}, map[string]string{}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		err := tx.Query(ctx, `SELECT resource_id, updated_at FROM resources`, nil, func(row db.Row) error {
			var id string
			var at int64
			err := row.Scan(&id, &at)
			changed[id] = db.Time(at)
			return err
		})
		if err != nil {
			return fmt.Errorf("read when resources changed: %w", err)
		}
		at, err := readPlaces(ctx, tx, "")
		for id, p := range at {
			places[id] = p.parentID
		}
		return err
	})
	return changed, places, err
}

// Read returns the registered resources of these IDs, as many as there are
// and the caller may see, by ID; without children and identifiers.
func (s *Service) Read(ctx context.Context, ids []string) (map[string]Resource, error) {
	out := make(map[string]Resource, len(ids))
	see := visibleTo(ctx)
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readByID(ctx, tx, ids)
		if err != nil {
			return err
		}
		for id, r := range rows {
			if !see.sees(r.TenantID) {
				continue
			}
			if out[id], err = r.open(); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
