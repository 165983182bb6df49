package poolops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pools"
)

// place is where and whose use is.
type place struct{ node, device, group, user string }

// amounts of a time; see the columns of pool_use.
type amounts struct{ compute, memory, used, lent, busy, energy int64 }

// Count counts what was used since it was counted last.
func (s *Service) Count(ctx context.Context) error {
	var nodes []*pools.Node
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		nodes, err = s.pools.NodesTx(ctx, tx)
		return err
	}); err != nil || len(nodes) == 0 {
		return err // what does not lend is not counted
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		var micros int64
		if _, err := tx.Get(ctx, `SELECT at FROM pool_counted`, nil, &micros); err != nil {
			return err
		}
		last := db.Time(micros)
		span := min(tx.Now.Sub(last), gap)
		if micros == 0 {
			span = 0
		}
		if span < 0 {
			return nil // a clock that went back: until it is where it was
		}
		nodes, err := s.pools.NodesTx(ctx, tx)
		if err != nil {
			return err
		}
		live, err := s.pools.LiveTx(ctx, tx)
		if err != nil {
			return err
		}
		ended, err := s.pools.TakeEndedTx(ctx, tx)
		if err != nil {
			return err
		}
		hour := db.Micros(tx.Now.Truncate(time.Hour))
		if err := roomTx(ctx, tx, hour, span, nodes); err != nil {
			return err
		}
		if err := energyTx(ctx, tx, hour, nodes, micros != 0); err != nil {
			return err
		}
		use := map[place]*amounts{}
		of := func(x *pools.Slice) *amounts {
			at := place{x.Node, x.Device, x.Group, x.User}
			if use[at] == nil {
				use[at] = &amounts{}
			}
			return use[at]
		}
		for _, x := range live {
			if x.Node == "" {
				continue
			}
			had := min(span, tx.Now.Sub(x.AssignedAt)).Milliseconds()
			u := of(x)
			u.compute += x.Compute * had
			u.memory += x.Memory * had
			u.used += (x.Used >> 20) * had
			u.lent += had
			if err := markTx(ctx, tx, x, u, false); err != nil {
				return err
			}
		}
		for _, x := range ended {
			u := &amounts{} // nobody's: it had no place
			if x.Node != "" {
				u = of(x)
			}
			if had := min(span, x.EndedAt.Sub(last), x.EndedAt.Sub(x.AssignedAt)).Milliseconds(); had > 0 {
				u.compute += x.Compute * had
				u.memory += x.Memory * had
				u.lent += had
			}
			if err := markTx(ctx, tx, x, u, true); err != nil {
				return err
			}
		}
		if micros == 0 {
			clear(use) // what was used before anybody counted is of no known hour
		}
		if err := putUse(ctx, tx, hour, use); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO pool_counted (only_row, at) VALUES (1, $1) ON CONFLICT (only_row) DO UPDATE SET at = $1`, db.Micros(tx.Now))
		return err
	})
}

// markTx adds the device time and energy that are not counted yet.
func markTx(ctx context.Context, tx *db.Tx, x *pools.Slice, u *amounts, ended bool) error {
	var counted, energy int64
	found, err := tx.Get(ctx, `SELECT device_us, energy_mj FROM pool_marks WHERE slice_id = $1`, []any{x.ID}, &counted, &energy)
	if err != nil {
		return err
	}
	busy, used := max(x.Busy.Microseconds(), counted), max(x.Energy, energy)
	u.busy += busy - counted
	u.energy += used - energy
	switch {
	case ended && found:
		_, err = tx.Exec(ctx, `DELETE FROM pool_marks WHERE slice_id = $1`, x.ID)
	case !ended && (busy != counted || used != energy):
		_, err = tx.Exec(ctx, `INSERT INTO pool_marks (slice_id, device_us, energy_mj) VALUES ($1, $2, $3) ON CONFLICT (slice_id) DO UPDATE SET device_us = $2, energy_mj = $3`, x.ID, busy, used)
	}
	return err
}

func roomTx(ctx context.Context, tx *db.Tx, hour int64, span time.Duration, nodes []*pools.Node) error {
	for _, n := range nodes {
		ms := min(span, tx.Now.Sub(n.JoinedAt)).Milliseconds()
		for _, d := range n.Devices {
			if !n.Online || !d.Present || ms <= 0 || !n.Counts(d) {
				continue
			}
			if _, err := tx.Exec(ctx, `INSERT INTO pool_room (hour, node_id, device_id, compute, memory) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (hour, node_id, device_id) DO UPDATE SET compute = pool_room.compute + $4, memory = pool_room.memory + $5`, hour, n.ID, d.ID, 100*ms, d.Memory*ms); err != nil {
				return fmt.Errorf("count what the pool has: %w", err)
			}
		}
	}
	return nil
}

// energyTx counts what devices used since it was counted last, or only notes how
// far that is.
func energyTx(ctx context.Context, tx *db.Tx, hour int64, nodes []*pools.Node, count bool) error {
	for _, n := range nodes {
		for _, f := range n.Figures {
			if f.Source == "" || f.NotLent != "" {
				continue
			}
			var boot string
			var counted int64
			if _, err := tx.Get(ctx, `SELECT boot, energy_mj FROM pool_energy_marks WHERE node_id = $1 AND device_id = $2`, []any{n.ID, f.Device}, &boot, &counted); err != nil {
				return fmt.Errorf("read what energy is counted: %w", err)
			}
			if boot == n.Boot && counted == f.Energy {
				continue
			}
			used := f.Energy
			if boot == n.Boot { // else a node that was started again, which begins at 0
				used = max(f.Energy-counted, 0)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO pool_energy_marks (node_id, device_id, boot, energy_mj) VALUES ($1, $2, $3, $4)
				ON CONFLICT (node_id, device_id) DO UPDATE SET boot = $3, energy_mj = $4`, n.ID, f.Device, n.Boot, f.Energy); err != nil {
				return fmt.Errorf("store what energy is counted: %w", err)
			}
			if !count || used == 0 {
				continue
			}
			if _, err := tx.Exec(ctx, `INSERT INTO pool_room (hour, node_id, device_id, compute, memory, energy_mj) VALUES ($1, $2, $3, 0, 0, $4)
				ON CONFLICT (hour, node_id, device_id) DO UPDATE SET energy_mj = pool_room.energy_mj + $4`, hour, n.ID, f.Device, used); err != nil {
				return fmt.Errorf("count energy: %w", err)
			}
		}
	}
	return nil
}

func putUse(ctx context.Context, tx *db.Tx, hour int64, use map[place]*amounts) error {
	for at, u := range use {
		if *u == (amounts{}) {
			continue
		}
		if _, err := tx.Exec(ctx, `INSERT INTO pool_use (hour, node_id, device_id, group_id, user_id, compute, memory, used, lent_ms, device_us, energy_mj) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (hour, node_id, device_id, group_id, user_id) DO UPDATE SET compute = pool_use.compute + $6, memory = pool_use.memory + $7, used = pool_use.used + $8, lent_ms = pool_use.lent_ms + $9,
			device_us = pool_use.device_us + $10, energy_mj = pool_use.energy_mj + $11`, hour, at.node, at.device, at.group, at.user, u.compute, u.memory, u.used, u.lent, u.busy, u.energy); err != nil {
			return fmt.Errorf("count what is used of the pool: %w", err)
		}
	}
	return nil
}

// Use is what was used by one of those that a statistic tells apart. Amounts are
// of seconds.
type Use struct {
	Name                                string
	ComputeThere, ComputeLent, Busy     int64 // percent · percent · microseconds
	MemoryThere, MemoryLent, MemoryUsed int64 // MiB
	Seconds                             int64 // that slices had a place
	Energy, SliceEnergy                 int64 // millijoules: of devices, and of slices by device time
}

// Queueing is how the requests of a group fared.
type Queueing struct {
	Group                            string
	Requested, Placed, Ended, Failed int64
	MeanWait, MaxWait                time.Duration
}

// Reason is why slices ended.
type Reason struct {
	Text  string
	Count int64
}

// Statistics are of a time.
type Statistics struct {
	From, To                      time.Time
	Devices, Groups, Users, Times []Use
	Queueing                      []Queueing
	Reasons                       []Reason
}

const (
	mostDays    = 366
	byHour      = 72 * time.Hour
	mostReasons = 20
)

// Statistics returns what was used from a time to another; zero: the last 24 hours.
func (s *Service) Statistics(ctx context.Context, from, to time.Time) (out *Statistics, err error) {
	if to.IsZero() {
		to = s.db.Now()
	}
	if from.IsZero() {
		from = to.Add(-24 * time.Hour)
	}
	var c core.Check
	if d := to.Sub(from); d <= 0 || d > mostDays*24*time.Hour {
		c.Add("to", "must be after from (%s), and at most %d days after it, got %s", from.UTC().Format(time.RFC3339), mostDays, to.UTC().Format(time.RFC3339))
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = &Statistics{From: from.UTC(), To: to.UTC()}
		if err := out.readUse(ctx, tx); err != nil {
			return err
		}
		list, err := s.pools.RequestedTx(ctx, tx, from, to)
		out.queue(list)
		return err
	})
	return out, err
}

// sums gathers use by name.
type sums map[string]*Use

func (m sums) of(name string) *Use {
	if m[name] == nil {
		m[name] = &Use{Name: name}
	}
	return m[name]
}

// sorted returns them by name, in seconds.
func (m sums) sorted() []Use {
	var out []Use
	for _, u := range m {
		for _, x := range []*int64{&u.ComputeThere, &u.ComputeLent, &u.MemoryThere, &u.MemoryLent, &u.MemoryUsed, &u.Seconds} {
			*x /= 1000
		}
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b Use) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (s *Statistics) readUse(ctx context.Context, tx *db.Tx) error {
	devices, groups, users, times := sums{}, sums{}, sums{}, sums{}
	step := time.Hour
	if s.To.Sub(s.From) > byHour {
		step = 24 * time.Hour
	}
	at := func(hour int64) string { return db.Time(hour).UTC().Truncate(step).Format(time.RFC3339) }
	from, to := db.Micros(s.From.Truncate(time.Hour)), db.Micros(s.To)
	err := tx.Query(ctx, `SELECT hour, node_id, device_id, compute, memory, energy_mj FROM pool_room WHERE hour >= $1 AND hour < $2`, []any{from, to}, func(row db.Row) error {
		var hour, compute, memory, energy int64
		var node, device string
		if err := row.Scan(&hour, &node, &device, &compute, &memory, &energy); err != nil {
			return err
		}
		for _, u := range []*Use{devices.of(node + "/" + device), times.of(at(hour))} {
			u.ComputeThere += compute
			u.MemoryThere += memory
			u.Energy += energy
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what the pool had: %w", err)
	}
	err = tx.Query(ctx, `SELECT hour, node_id, device_id, group_id, user_id, compute, memory, used, lent_ms, device_us, energy_mj FROM pool_use WHERE hour >= $1 AND hour < $2`, []any{from, to}, func(row db.Row) error {
		var hour int64
		var p place
		var a amounts
		if err := row.Scan(&hour, &p.node, &p.device, &p.group, &p.user, &a.compute, &a.memory, &a.used, &a.lent, &a.busy, &a.energy); err != nil {
			return err
		}
		for _, u := range []*Use{devices.of(p.node + "/" + p.device), groups.of(p.group), users.of(p.user), times.of(at(hour))} {
			u.ComputeLent += a.compute
			u.MemoryLent += a.memory
			u.MemoryUsed += a.used
			u.Seconds += a.lent
			u.Busy += a.busy
			u.SliceEnergy += a.energy
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what was used of the pool: %w", err)
	}
	s.Devices, s.Groups, s.Users, s.Times = devices.sorted(), groups.sorted(), users.sorted(), times.sorted()
	return nil
}

func (s *Statistics) queue(list []*pools.Slice) {
	groups, waits, reasons := map[string]*Queueing{}, map[string]time.Duration{}, map[string]int64{}
	for _, x := range list {
		q := groups[x.Group]
		if q == nil {
			q = &Queueing{Group: x.Group}
			groups[x.Group] = q
		}
		q.Requested++
		if wait := max(x.AssignedAt.Sub(x.QueuedAt), 0); !x.AssignedAt.IsZero() && x.AssignedAt.UnixMicro() != 0 {
			q.Placed++
			waits[x.Group] += wait
			q.MaxWait = max(q.MaxWait, wait)
		}
		if x.State == pools.Ended {
			q.Ended++
			if x.Failed() {
				q.Failed++
			}
			reasons[x.Cause()]++
		}
	}
	for id, q := range groups {
		if q.Placed > 0 {
			q.MeanWait = waits[id] / time.Duration(q.Placed)
		}
		s.Queueing = append(s.Queueing, *q)
	}
	slices.SortFunc(s.Queueing, func(a, b Queueing) int { return strings.Compare(a.Group, b.Group) })
	for text, n := range reasons {
		s.Reasons = append(s.Reasons, Reason{text, n})
	}
	slices.SortFunc(s.Reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Text, b.Text)) })
	s.Reasons = s.Reasons[:min(len(s.Reasons), mostReasons)]
}
