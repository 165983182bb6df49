package network

import (
	"context"
	"fmt"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

func generation(ctx context.Context, tx *db.Tx) (n int64, err error) {
	if _, err = tx.Get(ctx, `SELECT n FROM network_generation WHERE one = 1`, nil, &n); err != nil {
		return 0, fmt.Errorf("read the generation of the network: %w", err)
	}
	return n, nil
}

func bump(ctx context.Context, tx *db.Tx) error {
	if _, err := tx.Exec(ctx, `UPDATE network_generation SET n = n + 1 WHERE one = 1`); err != nil {
		return fmt.Errorf("count a change of the network: %w", err)
	}
	return nil
}

const pathColumns = `from_end, to_end, latency_us, jitter_us, loss_ppm, bandwidth_kbps, fee_fen_per_gib, note`

func readPaths(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []Declaration, err error) {
	err = tx.Query(ctx, `SELECT `+pathColumns+` FROM network_paths `+rest, args, func(row db.Row) error {
		var d Declaration
		var v [5]int64
		if err := row.Scan(&d.From, &d.To, &v[0], &v[1], &v[2], &v[3], &v[4], &d.Note); err != nil {
			return err
		}
		for i, f := range facts(&d.Facts) {
			if v[i] >= 0 {
				*f = place.Known(v[i])
			}
		}
		out = append(out, d)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read declared paths: %w", err)
	}
	return out, nil
}

func putPath(ctx context.Context, tx *db.Tx, d *Declaration) error {
	args := []any{d.From, d.To}
	for _, f := range facts(&d.Facts) {
		v := int64(-1)
		if f.Known {
			v = f.Value
		}
		args = append(args, v)
	}
	_, err := tx.Exec(ctx, `INSERT INTO network_paths (`+pathColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (from_end, to_end) DO UPDATE SET
		latency_us = $3, jitter_us = $4, loss_ppm = $5, bandwidth_kbps = $6, fee_fen_per_gib = $7, note = $8`, append(args, d.Note)...)
	if err != nil {
		return fmt.Errorf("store the path from %s to %s: %w", d.From, d.To, err)
	}
	return nil
}

func count(ctx context.Context, tx *db.Tx, table string) (n int64, err error) {
	if _, err = tx.Get(ctx, `SELECT COUNT(*) FROM `+table, nil, &n); err != nil {
		return 0, fmt.Errorf("count %s: %w", table, err)
	}
	return n, nil
}

// readOrigins returns origins by ID.
func readOrigins(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []*Origin, err error) {
	byID := map[string]*Origin{}
	err = tx.Query(ctx, `SELECT origin_id, name, region, located, longitude, latitude, updated_at FROM network_origins `+rest+` ORDER BY origin_id`, args, func(row db.Row) error {
		o := &Origin{}
		var located bool
		var at place.Position
		var updated int64
		if err := row.Scan(&o.ID, &o.Name, &o.Region, &located, &at.Longitude, &at.Latitude, &updated); err != nil {
			return err
		}
		if o.UpdatedAt = db.Time(updated); located {
			o.Position = &at
		}
		byID[o.ID] = o
		out = append(out, o)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read origins: %w", err)
	}
	if len(out) == 0 {
		return nil, nil
	}
	err = tx.Query(ctx, `SELECT origin_id, kind, member_id FROM network_origin_members `+rest+` ORDER BY kind, member_id`, args, func(row db.Row) error {
		var id, kind, member string
		if err := row.Scan(&id, &kind, &member); err != nil {
			return err
		}
		switch o := byID[id]; {
		case o == nil:
		case kind == "tenant":
			o.Tenants = append(o.Tenants, member)
		default:
			o.Users = append(o.Users, member)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read whose origins there are: %w", err)
	}
	return out, nil
}

// putOrigin stores an origin; a member of another one is fault.Conflict.
func putOrigin(ctx context.Context, tx *db.Tx, o *Origin) error {
	at := place.Position{}
	if o.Position != nil {
		at = *o.Position
	}
	_, err := tx.Exec(ctx, `INSERT INTO network_origins (origin_id, name, region, located, longitude, latitude, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (origin_id) DO UPDATE SET name = $2, region = $3, located = $4, longitude = $5, latitude = $6, updated_at = $7`,
		o.ID, o.Name, o.Region, o.Position != nil, at.Longitude, at.Latitude, db.Micros(o.UpdatedAt))
	if err != nil {
		return fmt.Errorf("store origin %s: %w", o.ID, err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM network_origin_members WHERE origin_id = $1`, o.ID); err != nil {
		return fmt.Errorf("forget whose origin %s is: %w", o.ID, err)
	}
	var rows [][]any
	for _, l := range []struct {
		kind, field string
		ids         []string
	}{{"tenant", "tenant_ids", o.Tenants}, {"user", "user_ids", o.Users}} {
		for _, id := range l.ids {
			var other string
			taken, err := tx.Get(ctx, `SELECT origin_id FROM network_origin_members WHERE kind = $1 AND member_id = $2`, []any{l.kind, id}, &other)
			if err != nil {
				return fmt.Errorf("look for the origin of %s: %w", id, err)
			}
			if taken {
				return fault.New(fault.Conflict, "%s %s is listed by origin %s already; take it out there first", l.kind, id, other)
			}
			rows = append(rows, []any{l.kind, id, o.ID})
		}
	}
	if err := tx.Insert(ctx, "network_origin_members", []string{"kind", "member_id", "origin_id"}, rows); err != nil {
		return fmt.Errorf("store whose origin %s is: %w", o.ID, err)
	}
	return nil
}

func deleteOrigin(ctx context.Context, tx *db.Tx, id string) (found bool, err error) {
	n, err := tx.Exec(ctx, `DELETE FROM network_origins WHERE origin_id = $1`, id)
	if err != nil {
		return false, fmt.Errorf("delete origin %s: %w", id, err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM network_origin_members WHERE origin_id = $1`, id); err != nil {
		return false, fmt.Errorf("forget whose origin %s is: %w", id, err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM network_paths WHERE from_end = $1 OR to_end = $1`, OriginEnd(id)); err != nil {
		return false, fmt.Errorf("delete the paths of origin %s: %w", id, err)
	}
	return n > 0, nil
}
