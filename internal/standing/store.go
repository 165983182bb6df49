package standing

import (
	"context"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

func readLinks(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Link, error) {
	var out []Link
	err := tx.Query(ctx, `SELECT ai_center_id, state, since, silent_us, watched_us, looked_at, silences, losses FROM center_links `+rest, args, func(row db.Row) error {
		var l Link
		var since, silent, watched, looked int64
		err := row.Scan(&l.CenterID, &l.State, &since, &silent, &watched, &looked, &l.Silences, &l.Losses)
		l.Since, l.lookedAt = db.Time(since), db.Time(looked)
		l.Silent, l.watched = time.Duration(silent)*time.Microsecond, time.Duration(watched)*time.Microsecond
		out = append(out, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the links of centers: %w", err)
	}
	return out, nil
}

func saveLink(ctx context.Context, tx *db.Tx, l *Link) error {
	_, err := tx.Exec(ctx, `INSERT INTO center_links (ai_center_id, state, since, silent_us, watched_us, looked_at, silences, losses) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (ai_center_id) DO UPDATE SET state = $2, since = $3, silent_us = $4, watched_us = $5, looked_at = $6, silences = $7, losses = $8`,
		l.CenterID, int64(l.State), db.Micros(l.Since), l.Silent.Microseconds(), l.watched.Microseconds(), db.Micros(l.lookedAt), l.Silences, l.Losses)
	if err != nil {
		return fmt.Errorf("store the link of center %s: %w", l.CenterID, err)
	}
	return nil
}

func readGraces(ctx context.Context, tx *db.Tx) ([]Grace, error) {
	var out []Grace
	err := tx.Query(ctx, `SELECT scope, id, seconds, changed_at FROM lost_graces ORDER BY CASE scope WHEN 'platform' THEN 0 WHEN 'center' THEN 1 ELSE 2 END, id`, nil, func(row db.Row) error {
		var g Grace
		var at int64
		err := row.Scan(&g.Scope, &g.ID, &g.Seconds, &at)
		g.ChangedAt = db.Time(at)
		out = append(out, g)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read graces: %w", err)
	}
	return out, nil
}

func setGrace(ctx context.Context, tx *db.Tx, g Grace) error {
	_, err := tx.Exec(ctx, `INSERT INTO lost_graces (scope, id, seconds, changed_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (scope, id) DO UPDATE SET seconds = $3, changed_at = $4`, string(g.Scope), g.ID, g.Seconds, db.Micros(g.ChangedAt))
	return err
}

func readRefusals(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Refusal, error) {
	var out []Refusal
	err := tx.Query(ctx, `SELECT ai_center_id, spec_id, image_id, reason, level, count, first_at, last_at, until FROM center_refusals `+rest, args, func(row db.Row) error {
		var r Refusal
		var first, last, until int64
		err := row.Scan(&r.CenterID, &r.SpecID, &r.ImageID, &r.Reason, &r.level, &r.Count, &first, &last, &until)
		r.FirstAt, r.LastAt, r.Until = db.Time(first), db.Time(last), db.Time(until)
		out = append(out, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read refusals: %w", err)
	}
	return out, nil
}

func saveRefusal(ctx context.Context, tx *db.Tx, r *Refusal) error {
	_, err := tx.Exec(ctx, `INSERT INTO center_refusals (ai_center_id, spec_id, image_id, reason, level, count, first_at, last_at, until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (ai_center_id, spec_id, image_id) DO UPDATE SET reason = $4, level = $5, count = $6, first_at = $7, last_at = $8, until = $9`,
		r.CenterID, r.SpecID, r.ImageID, r.Reason, r.level, r.Count, db.Micros(r.FirstAt), db.Micros(r.LastAt), db.Micros(r.Until))
	if err != nil {
		return fmt.Errorf("store a refusal of center %s: %w", r.CenterID, err)
	}
	return nil
}
