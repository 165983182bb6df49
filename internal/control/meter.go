package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/metering"
)

// piece is the longest time that one record of held time covers: so late, at
// most, usage says what is held.
const piece = time.Hour

// meter counts the held time of an allocation: packages that no run uses, times
// how long. The packages are those applied for; amounts are counted in packages
// of the specification that covers them for the least money where they are. Runs
// inside take up whole packages, and are metered themselves.
type meter struct {
	spec           string
	price, unused  int64
	from, at       int64 // microseconds
	packageMicros  int64
	user, tenant   string
	center, holder string
}

// packages is how many of a specification cover amounts; false: none do.
func packages(spec, amounts core.Quantities) (n int64, ok bool) {
	for name, want := range amounts {
		if want <= 0 {
			continue
		}
		have := spec[name]
		if have <= 0 {
			return 0, false
		}
		n = max(n, (want+have-1)/have)
	}
	return n, true
}

// rate returns the specification by which the held time of an allocation is
// counted and its price; "" if its center offers none that covers it: then it
// costs nothing.
func (s *Service) rate(ctx context.Context, a *Allocation) (spec string, price int64, err error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return "", 0, err
	}
	center := cat.Centers[a.CenterID]
	if center == nil {
		return "", 0, nil
	}
	if a.SpecID != "" {
		return a.SpecID, int64(center.Offers[a.SpecID]), nil
	}
	best := int64(-1)
	for _, id := range slices.Sorted(maps.Keys(center.Offers)) {
		k := cat.Specs[id]
		if k == nil {
			continue
		}
		if n, ok := packages(k.Quantity, a.Amounts); ok && (best < 0 || float64(n)*float64(center.Offers[id]) < float64(best)*float64(price)) {
			spec, price, best = id, int64(center.Offers[id]), n
		}
	}
	return spec, price, nil
}

// unused is how many packages of an allocation no run uses.
func (s *Service) unused(ctx context.Context, a *Allocation, spec string) (int64, error) {
	if a.State != Granted || spec == "" {
		return 0, nil // what is releasing gives back at once what nothing uses
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return 0, err
	}
	k := cat.Specs[spec]
	if k == nil {
		return 0, nil
	}
	all, used := a.Count, int64(0)
	if a.SpecID == "" {
		all, _ = packages(k.Quantity, a.Amounts)
	}
	for name, n := range a.Used {
		if have := k.Quantity[name]; have > 0 {
			used = max(used, (n+have-1)/have)
		}
	}
	return max(0, all-used), nil
}

// meterTx brings the held time of an allocation up to date after a change of it.
func (s *Service) meterTx(ctx context.Context, tx *db.Tx, a *Allocation) error {
	m, err := readMeter(ctx, tx, a)
	if err != nil {
		return err
	}
	now := db.Micros(tx.Now)
	if m == nil {
		if a.State != Granted {
			return nil
		}
		m = &meter{from: now, at: now, user: a.UserID, tenant: a.TenantID, center: a.CenterID, holder: a.ID}
		if m.spec, m.price, err = s.rate(ctx, a); err != nil {
			return err
		}
	}
	records := m.count(now)
	if m.unused, err = s.unused(ctx, a, m.spec); err != nil {
		return err
	}
	if !a.EndedAt.IsZero() {
		records = append(records, m.close(now)...)
		if _, err := tx.Exec(ctx, `DELETE FROM allocation_meters WHERE allocation_id = $1`, a.ID); err != nil {
			return fmt.Errorf("end the meter of %s: %w", a.ID, err)
		}
		return s.meter.RecordTx(ctx, tx, records)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO allocation_meters (allocation_id, spec_id, price, unused, from_at, at, package_us) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (allocation_id) DO UPDATE SET unused = $4, from_at = $5, at = $6, package_us = $7`, a.ID, m.spec, m.price, m.unused, m.from, m.at, m.packageMicros); err != nil {
		return fmt.Errorf("meter %s: %w", a.ID, err)
	}
	return s.meter.RecordTx(ctx, tx, records)
}

func readMeter(ctx context.Context, tx *db.Tx, a *Allocation) (*meter, error) {
	m := &meter{user: a.UserID, tenant: a.TenantID, center: a.CenterID, holder: a.ID}
	found, err := tx.Get(ctx, `SELECT spec_id, price, unused, from_at, at, package_us FROM allocation_meters WHERE allocation_id = $1`, []any{a.ID},
		&m.spec, &m.price, &m.unused, &m.from, &m.at, &m.packageMicros)
	if err != nil {
		return nil, fmt.Errorf("read the meter of %s: %w", a.ID, err)
	}
	if !found {
		return nil, nil
	}
	return m, nil
}

// count adds what was held up to now and returns the pieces that are full.
func (m *meter) count(now int64) (out []metering.Record) {
	for end := m.from + piece.Microseconds(); end <= now; end += piece.Microseconds() {
		m.add(end)
		out = append(out, m.close(end)...)
	}
	m.add(now)
	return out
}

func (m *meter) add(now int64) {
	if now > m.at { // a clock that went back takes nothing away
		m.packageMicros += m.unused * (now - m.at)
		m.at = now
	}
}

// close ends a piece; one in which nothing was held unused is none.
func (m *meter) close(end int64) (out []metering.Record) {
	if m.packageMicros > 0 {
		out = []metering.Record{{AttemptID: fmt.Sprintf("%s.%d", m.holder, m.from), TenantID: m.tenant, UserName: m.user, AICenterID: m.center, ResourceSpecID: m.spec,
			StartedAt: db.Time(m.from), EndedAt: db.Time(max(end, m.from)), Price: m.price, AllocationID: m.holder, PackageMicros: m.packageMicros}}
	}
	m.from, m.packageMicros = max(end, m.from), 0
	return out
}

// meters records the pieces of held time that are full.
func (s *Service) meters(ctx context.Context) {
	var due []string
	err := s.db.View(ctx, func(tx *db.Tx) error {
		due = nil
		return tx.Query(ctx, `SELECT allocation_id FROM allocation_meters WHERE from_at <= $1 ORDER BY allocation_id`, []any{db.Micros(tx.Now.Add(-piece))}, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			due = append(due, id)
			return err
		})
	})
	s.notRead(ctx, "held time", err)
	for _, id := range due {
		s.warn(ctx, "held time not recorded", s.db.Tx(ctx, func(tx *db.Tx) error {
			rows, err := readAllocations(ctx, tx, `WHERE allocation_id = $1`, id)
			if err != nil || len(rows) == 0 {
				return err
			}
			return s.meterTx(ctx, tx, rows[0])
		}), "allocation_id", id)
	}
}
