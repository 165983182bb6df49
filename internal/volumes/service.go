package volumes

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps volumes. It is safe for concurrent use.
type Service struct {
	// InUse reports whether a job that has not ended names the volume (kind
	// "volume"). It is set before the first call.
	InUse func(ctx context.Context, tx *db.Tx, kind, id string) (bool, error)

	db   *db.DB
	ids  *identity.Service
	reg  *registry.Service
	ad   *adapters.Service
	log  *slog.Logger
	feed *bus.Feed
	wake chan struct{}
}

// New returns the service; its loops are Run and Watch.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, reg *registry.Service, ad *adapters.Service, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "volumes", migrations); err != nil {
		return nil, err
	}
	log = log.With("component", "volumes")
	return &Service{db: d, ids: ids, reg: reg, ad: ad, log: log, feed: bus.NewFeed(b, "volumes.asked", log), wake: make(chan struct{}, 1)}, nil
}

// Watch hears of what other processes store, until ctx ends.
func (s *Service) Watch(ctx context.Context) error { return s.feed.Run(ctx) }

// asked has the loop look, in whichever process it runs.
func (s *Service) asked(ctx context.Context, tx *db.Tx, id string) error {
	tx.AfterCommit(func() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	})
	return tx.Emit(ctx, "volumes.asked", []byte(`["`+id+`"]`))
}

// Create stores a volume that its center is to make. One of that name that is
// the same in all else is answered as it is.
func (s *Service) Create(ctx context.Context, name, centerID string, bytes int64) (*Volume, error) {
	var c core.Check
	checkName(&c, name)
	c.ID("ai_center_id", centerID)
	c.Range("bytes", bytes, MinBytes, MaxBytes)
	if err := c.Err(); err != nil {
		return nil, err
	}
	caller := core.CallerFrom(ctx)
	if caller.TenantID == "" {
		return nil, fault.New(fault.Denied, "user %s belongs to no tenant, whose the volume would be", caller.UserID)
	}
	if _, err := s.reg.GetCenter(ctx, centerID); err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return nil, fault.Fields(fault.Field{Path: "ai_center_id", Problem: fmt.Sprintf("there is no center %q; see yunhe center list", centerID)})
		}
		return nil, err
	}
	var out *Volume
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		known, err := read(ctx, tx, `WHERE tenant_id = $1 AND name = $2`, caller.TenantID, name)
		if err != nil {
			return err
		}
		if len(known) > 0 {
			out = known[0]
			if out.CenterID != centerID || out.Wanted != bytes || out.State == Deleting {
				return fault.New(fault.Exists, "there is a volume %q already", name)
			}
			return nil
		}
		if offers, err := s.ad.StorageTx(ctx, tx, centerID); err != nil || !offers {
			if err == nil {
				err = fault.New(fault.Unimplemented, "center %s offers no volumes", centerID)
			}
			return err
		}
		var n int64
		if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM volumes WHERE tenant_id = $1`, []any{caller.TenantID}, &n); err != nil {
			return err
		}
		if n >= maxVolumes {
			return fault.New(fault.Exhausted, "tenant %s has %d volumes, which is the most there may be", caller.TenantID, n)
		}
		out = &Volume{ID: core.NewID("vol"), Name: name, TenantID: caller.TenantID, UserID: caller.UserID, CenterID: centerID, State: Creating,
			Wanted: bytes, Used: -1, CreatedAt: tx.Now, ChangedAt: tx.Now}
		if err := insert(ctx, tx, out); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, out.ID); err != nil {
			return err
		}
		return s.asked(ctx, tx, out.ID)
	})
	return out, err
}

// find returns the volume with an ID, or a name in the caller's tenant, that
// the caller may see.
func find(ctx context.Context, tx *db.Tx, ref string) (*Volume, error) {
	caller := core.CallerFrom(ctx)
	rows, err := read(ctx, tx, `WHERE volume_id = $1 OR tenant_id = $2 AND name = $1`, ref, caller.TenantID)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(v *Volume) bool { return !caller.Sees(v.TenantID) })
	if len(rows) == 0 {
		return nil, fault.New(fault.NotFound, "there is no volume %q; see yunhe volume list", ref)
	}
	return rows[0], nil
}

// Get returns a volume by ID or by name in the caller's tenant.
func (s *Service) Get(ctx context.Context, ref string) (*Volume, error) {
	var c core.Check
	if checkRef(&c, "volume", ref); c.Err() != nil {
		return nil, c.Err()
	}
	var out *Volume
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = find(ctx, tx, ref)
		return err
	})
	return out, err
}

// List returns a page of the volumes the caller may see, by ID; centerID may be empty.
func (s *Service) List(ctx context.Context, centerID string, size int32, token string) (list []*Volume, next string, err error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	after, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	if len(after) == 0 {
		after = []string{""}
	}
	var c core.Check
	if centerID != "" {
		c.ID("ai_center_id", centerID)
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	scope := core.CallerFrom(ctx).TenantID
	if core.CallerFrom(ctx).AllTenants {
		scope = "*"
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		list, err = read(ctx, tx, `WHERE volume_id > $1 AND ($2 = '*' OR tenant_id = $2) AND ($3 = '' OR ai_center_id = $3) ORDER BY volume_id LIMIT $4`,
			after[0], scope, centerID, int64(n)+1)
		return err
	})
	if err == nil && len(list) > n {
		list = list[:n]
		next = core.PageToken(list[n-1].ID)
	}
	return list, next, err
}

// Grow has a volume made larger. A size it has, or is to have already, changes
// nothing; a smaller one is a fault.Conflict.
func (s *Service) Grow(ctx context.Context, ref string, bytes int64) (*Volume, error) {
	var c core.Check
	checkRef(&c, "volume", ref)
	c.Range("bytes", bytes, MinBytes, MaxBytes)
	if err := c.Err(); err != nil {
		return nil, err
	}
	var out *Volume
	err := s.db.Tx(ctx, func(tx *db.Tx) (err error) {
		if out, err = find(ctx, tx, ref); err != nil {
			return err
		}
		switch {
		case out.State == Deleting || out.State == Lost:
			return fault.New(fault.Conflict, "volume %s is %s", out.Name, stateNames[out.State])
		case bytes < max(out.Wanted, out.Bytes):
			return fault.New(fault.Conflict, "volume %s has %d bytes and cannot become smaller", out.Name, max(out.Wanted, out.Bytes))
		case bytes == out.Wanted:
			return nil
		}
		if out.Wanted = bytes; out.State == Ready {
			out.State = Growing
		}
		out.Message, out.ChangedAt = "", tx.Now
		if _, err := tx.Exec(ctx, `UPDATE volumes SET state = $2, wanted = $3, message = '', tries = 0, next_at = 0, changed_at = $4 WHERE volume_id = $1`,
			out.ID, int64(out.State), out.Wanted, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("grow volume %s: %w", out.ID, err)
		}
		if err := s.ids.AuditTx(ctx, tx, out.ID); err != nil {
			return err
		}
		return s.asked(ctx, tx, out.ID)
	})
	return out, err
}

// Delete has a volume deleted with all that is in it. fault.Conflict while a
// job that has not ended names it.
func (s *Service) Delete(ctx context.Context, ref string) error {
	var c core.Check
	if checkRef(&c, "volume", ref); c.Err() != nil {
		return c.Err()
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		v, err := find(ctx, tx, ref)
		if err != nil || v.State == Deleting {
			return err
		}
		used, err := s.InUse(ctx, tx, "volume", v.ID)
		if err != nil {
			return err
		}
		if used {
			return fault.New(fault.Conflict, "volume %s is used by a job that has not ended", v.Name)
		}
		if _, err := tx.Exec(ctx, `UPDATE volumes SET state = $2, message = '', tries = 0, next_at = 0, changed_at = $3 WHERE volume_id = $1`, v.ID, int64(Deleting), db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("delete volume %s: %w", v.ID, err)
		}
		if err := s.ids.AuditTx(ctx, tx, v.ID); err != nil {
			return err
		}
		return s.asked(ctx, tx, v.ID)
	})
}

// Place is a volume as a job names it.
type Place struct {
	ID, CenterID string
	Bytes        int64 // its size
}

// Resolve returns the volumes of a tenant by what a job calls them, ID or name;
// those that are not there, or are going, are missing in the answer.
func (s *Service) Resolve(ctx context.Context, tenantID string, refs []string) (map[string]Place, error) {
	out := map[string]Place{}
	if len(refs) == 0 {
		return out, nil
	}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		for _, ref := range refs {
			rows, err := read(ctx, tx, `WHERE tenant_id = $1 AND (volume_id = $2 OR name = $2) AND state NOT IN ($3, $4)`, tenantID, ref, int64(Deleting), int64(Lost))
			if err != nil {
				return err
			}
			for _, v := range rows {
				out[ref] = Place{v.ID, v.CenterID, v.Bytes}
			}
		}
		return nil
	})
	return out, err
}

// HoldTx fails with fault.Conflict if one of the volumes is not there any more:
// in the transaction that stores a job that names them.
func (s *Service) HoldTx(ctx context.Context, tx *db.Tx, ids []string) error {
	at, err := s.CentersTx(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if at[id] == "" {
			return fault.New(fault.Conflict, "volume %s was deleted", id)
		}
	}
	return nil
}

// CentersTx returns the centers of volumes that are not going, by ID.
func (s *Service) CentersTx(ctx context.Context, tx *db.Tx, ids []string) (map[string]string, error) {
	out := make(map[string]string, len(ids))
	for _, id := range ids {
		center := ""
		found, err := tx.Get(ctx, `SELECT ai_center_id FROM volumes WHERE volume_id = $1 AND state <> $2`, []any{id, int64(Deleting)}, &center)
		if err != nil {
			return nil, fmt.Errorf("read volume %s: %w", id, err)
		}
		if found {
			out[id] = center
		}
	}
	return out, nil
}

var stateNames = map[State]string{Creating: "being made", Ready: "ready", Growing: "growing", Deleting: "being deleted", Lost: "lost"}

const columns = `volume_id, name, tenant_id, user_id, ai_center_id, state, message, wanted, bytes, used, used_at, enforced, tries, next_at, created_at, changed_at`

func insert(ctx context.Context, tx *db.Tx, v *Volume) error {
	err := tx.Insert(ctx, "volumes", strings.Split(strings.ReplaceAll(columns, " ", ""), ","), [][]any{{v.ID, v.Name, v.TenantID, v.UserID, v.CenterID, int64(v.State), v.Message,
		v.Wanted, v.Bytes, v.Used, db.Micros(v.UsedAt), v.Enforced, v.tries, int64(0), db.Micros(v.CreatedAt), db.Micros(v.ChangedAt)}})
	if err != nil {
		return fmt.Errorf("insert volume %s: %w", v.ID, err)
	}
	return nil
}

func read(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Volume, error) {
	var out []*Volume
	err := tx.Query(ctx, `SELECT `+columns+` FROM volumes `+rest, args, func(row db.Row) error {
		v := &Volume{}
		var used, next, created, changed int64
		err := row.Scan(&v.ID, &v.Name, &v.TenantID, &v.UserID, &v.CenterID, &v.State, &v.Message, &v.Wanted, &v.Bytes, &v.Used, &used, &v.Enforced, &v.tries, &next, &created, &changed)
		v.UsedAt, v.CreatedAt, v.ChangedAt = db.Time(used), db.Time(created), db.Time(changed)
		out = append(out, v)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read volumes: %w", err)
	}
	return out, nil
}
