package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// bump is what every change writes first: changes follow each other.
func bump(ctx context.Context, tx *db.Tx) error {
	if _, err := tx.Exec(ctx, `UPDATE calendar_version SET version = version + 1 WHERE one = 1`); err != nil {
		return fmt.Errorf("change the calendar: %w", err)
	}
	return nil
}

const reservationColumns = `reservation_id, tenant_id, user_id, name, state, reason, spec_id, packages, amounts, recurrence, time_zone, preempt, unused_seconds, start_at, end_at,
	created_at, ended_at, request_id, digest`

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null" // only maps and lists of strings and numbers come here
	}
	return string(b)
}

func insertReservation(ctx context.Context, tx *db.Tx, r *Reservation) error {
	_, err := tx.Exec(ctx, `INSERT INTO reservations (`+reservationColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		r.ID, r.TenantID, r.UserID, r.Name, int64(r.State), r.Reason, r.SpecID, r.Count, toJSON(r.Amounts), r.Recurrence, r.TimeZone, r.Preempt, r.UnusedSeconds,
		db.Micros(r.StartAt), db.Micros(r.EndAt), db.Micros(r.CreatedAt), db.Micros(r.EndedAt), r.requestID, r.digest)
	for _, t := range r.Times {
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO reservation_times (reservation_id, number, state, from_at, to_at, parts, idle_since, asked_until, ended_at) VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0)`,
				r.ID, t.Number, int64(t.State), db.Micros(t.From), db.Micros(t.To), toJSON(t.Parts))
		}
	}
	if err != nil {
		return fmt.Errorf("insert reservation %s: %w", r.ID, err)
	}
	return nil
}

func saveReservation(ctx context.Context, tx *db.Tx, r *Reservation) error {
	if _, err := tx.Exec(ctx, `UPDATE reservations SET state = $2, reason = $3, ended_at = $4 WHERE reservation_id = $1`, r.ID, int64(r.State), r.Reason, db.Micros(r.EndedAt)); err != nil {
		return fmt.Errorf("save reservation %s: %w", r.ID, err)
	}
	return nil
}

func saveTime(ctx context.Context, tx *db.Tx, t *Time) error {
	if _, err := tx.Exec(ctx, `UPDATE reservation_times SET state = $3, parts = $4, idle_since = $5, asked_until = $6, ended_at = $7, released = $8 WHERE reservation_id = $1 AND number = $2`,
		t.ReservationID, t.Number, int64(t.State), toJSON(t.Parts), db.Micros(t.idleSince), db.Micros(t.askedUntil), db.Micros(t.EndedAt), t.released); err != nil {
		return fmt.Errorf("save time %d of %s: %w", t.Number, t.ReservationID, err)
	}
	return nil
}

// readReservations reads reservations without their times.
func readReservations(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Reservation, error) {
	var out []*Reservation
	err := tx.Query(ctx, `SELECT `+reservationColumns+` FROM reservations `+rest, args, func(row db.Row) error {
		r := &Reservation{}
		var amounts string
		var start, end, created, ended int64
		if err := row.Scan(&r.ID, &r.TenantID, &r.UserID, &r.Name, &r.State, &r.Reason, &r.SpecID, &r.Count, &amounts, &r.Recurrence, &r.TimeZone, &r.Preempt, &r.UnusedSeconds,
			&start, &end, &created, &ended, &r.requestID, &r.digest); err != nil {
			return err
		}
		r.StartAt, r.EndAt, r.CreatedAt, r.EndedAt = db.Time(start), db.Time(end), db.Time(created), db.Time(ended)
		out = append(out, r)
		return json.Unmarshal([]byte(amounts), &r.Amounts)
	})
	if err != nil {
		return nil, fmt.Errorf("read reservations: %w", err)
	}
	return out, nil
}

func readTimes(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Time, error) {
	var out []Time
	err := tx.Query(ctx, `SELECT reservation_id, number, state, from_at, to_at, parts, idle_since, asked_until, ended_at, released FROM reservation_times `+rest, args, func(row db.Row) error {
		var t Time
		var parts string
		var from, to, idle, asked, ended int64
		if err := row.Scan(&t.ReservationID, &t.Number, &t.State, &from, &to, &parts, &idle, &asked, &ended, &t.released); err != nil {
			return err
		}
		t.From, t.To, t.idleSince, t.askedUntil, t.EndedAt = db.Time(from), db.Time(to), db.Time(idle), db.Time(asked), db.Time(ended)
		if err := json.Unmarshal([]byte(parts), &t.Parts); err != nil {
			return err
		}
		out = append(out, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read times of reservations: %w", err)
	}
	return out, nil
}

const maintenanceColumns = `maintenance_id, tenant_id, user_id, ai_center_id, nodes, reason, runs, notice_seconds, drain_seconds, start_at, end_at, recurrence, time_zone, created_at, canceled_at,
	ended_at, request_id, digest`

func insertMaintenance(ctx context.Context, tx *db.Tx, m *Maintenance) error {
	if _, err := tx.Exec(ctx, `INSERT INTO maintenance (`+maintenanceColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, $15, $16)`,
		m.ID, m.tenantID, m.UserID, m.CenterID, toJSON(m.Nodes), m.Reason, int64(m.Runs), m.NoticeSeconds, m.DrainSeconds, db.Micros(m.StartAt), db.Micros(m.EndAt), m.Recurrence, m.TimeZone,
		db.Micros(m.CreatedAt), m.requestID, m.digest); err != nil {
		return fmt.Errorf("insert maintenance %s: %w", m.ID, err)
	}
	return nil
}

func endMaintenance(ctx context.Context, tx *db.Tx, m *Maintenance) error {
	if _, err := tx.Exec(ctx, `UPDATE maintenance SET canceled_at = $2, ended_at = $3 WHERE maintenance_id = $1`, m.ID, db.Micros(m.CanceledAt), db.Micros(m.EndedAt)); err != nil {
		return fmt.Errorf("end maintenance %s: %w", m.ID, err)
	}
	return nil
}

func readMaintenance(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Maintenance, error) {
	var out []*Maintenance
	err := tx.Query(ctx, `SELECT `+maintenanceColumns+` FROM maintenance `+rest, args, func(row db.Row) error {
		m := &Maintenance{}
		var nodes string
		var start, end, created, canceled, ended int64
		err := row.Scan(&m.ID, &m.tenantID, &m.UserID, &m.CenterID, &nodes, &m.Reason, &m.Runs, &m.NoticeSeconds, &m.DrainSeconds, &start, &end, &m.Recurrence, &m.TimeZone, &created, &canceled,
			&ended, &m.requestID, &m.digest)
		m.StartAt, m.EndAt, m.CreatedAt, m.CanceledAt, m.EndedAt = db.Time(start), db.Time(end), db.Time(created), db.Time(canceled), db.Time(ended)
		if err != nil {
			return err
		}
		out = append(out, m)
		return json.Unmarshal([]byte(nodes), &m.Nodes)
	})
	if err != nil {
		return nil, fmt.Errorf("read maintenance: %w", err)
	}
	return out, nil
}

// demands is what open times of reservations take at their centers, but those
// of one reservation, and what maintenance takes in [from, to).
func (s *Service) demands(ctx context.Context, tx *db.Tx, except string, during span) (map[string][]demand, error) {
	out := map[string][]demand{}
	ts, err := readTimes(ctx, tx, `WHERE ended_at = 0 AND from_at < $1 AND to_at > $2 AND reservation_id <> $3`, db.Micros(during.to), db.Micros(during.from), except)
	if err != nil {
		return nil, err
	}
	for _, t := range ts {
		for _, p := range t.Parts {
			out[p.CenterID] = append(out[p.CenterID], demand{span{t.From, t.To}, p.Amounts})
		}
	}
	outages, err := s.outages(ctx, tx, during, time.Time{})
	for _, o := range outages {
		out[o.center] = append(out[o.center], o.demand)
	}
	return out, err
}

func (m *Maintenance) times(from, to time.Time, limit int) ([]span, error) {
	out, err := times(span{m.StartAt, m.EndAt}, m.Recurrence, m.TimeZone, from, to, limit)
	if err != nil {
		return nil, fmt.Errorf("stored rule of maintenance %s: %w", m.ID, err)
	}
	return out, nil
}
