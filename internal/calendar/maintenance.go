package calendar

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

// Plan is maintenance to be planned.
type Plan struct {
	CenterID, Reason            string
	Nodes                       []string  // none: the whole center
	StartAt, EndAt              time.Time // StartAt zero: now
	Recurrence, TimeZone        string
	Runs                        Runs
	NoticeSeconds, DrainSeconds int64
}

func (s *Service) checkPlan(ctx context.Context, in Plan, q Request, now time.Time) (*Maintenance, error) {
	cat, err := s.reg.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	m := &Maintenance{ID: core.NewID("mnt"), CenterID: in.CenterID, Nodes: slices.Sorted(slices.Values(in.Nodes)), Reason: in.Reason, Runs: in.Runs, NoticeSeconds: in.NoticeSeconds, DrainSeconds: in.DrainSeconds, StartAt: in.StartAt.Truncate(time.Second),
		EndAt: in.EndAt.Truncate(time.Second), Recurrence: in.Recurrence, TimeZone: in.TimeZone, CreatedAt: now, requestID: q.ID, digest: q.Digest}
	if in.StartAt.IsZero() {
		m.StartAt = now.Truncate(time.Second)
	}
	if m.Runs == 0 {
		m.Runs = Finish
	}
	var c core.Check
	c.Text("request_id", q.ID, false, 64, 0)
	c.Text("reason", in.Reason, false, 0, 256)
	if c.ID("ai_center_id", in.CenterID); in.CenterID != "" && cat.Centers[in.CenterID] == nil && len(in.CenterID) <= 32 {
		c.Add("ai_center_id", "there is no center %q", clip(in.CenterID))
	}
	if err := s.checkNodes(ctx, &c, in, cat.Centers[in.CenterID] != nil); err != nil {
		return nil, err
	}
	c.Range("runs", int64(m.Runs), 1, int64(Requeue))
	c.Range("notice_seconds", in.NoticeSeconds, 0, 86400)
	c.Range("drain_seconds", in.DrainSeconds, 0, 7*86400)
	if in.NoticeSeconds > 0 && m.Runs != Requeue {
		c.Add("notice_seconds", "goes with runs that are put in the queue again")
	}
	ok := checkRule(&c, in.Recurrence, in.TimeZone, m.StartAt)
	switch {
	case in.EndAt.IsZero():
		c.Add("end_at", "is required")
	case !m.EndAt.After(m.StartAt) || !m.EndAt.After(now):
		c.Add("end_at", "must be after start_at and in the future, got %s", in.EndAt.UTC().Format(time.RFC3339))
	case m.EndAt.Sub(m.StartAt) > maxMaintained:
		c.Add("end_at", "must be at most 31 days after start_at")
	case m.StartAt.After(now.Add(maxAhead)):
		c.Add("start_at", "must be at most 366 days ahead, got %s", in.StartAt.UTC().Format(time.RFC3339))
	case ok:
		list, err := m.times(m.StartAt, m.StartAt.Add(2*maxAhead), maxTimes)
		if err != nil {
			return nil, err
		}
		for i := 1; i < len(list); i++ {
			if list[i].from.Before(list[i-1].to) {
				c.Add("recurrence", "comes again, from this start_at and end_at, before it has ended: %s", when(list[i]))
				break
			}
		}
	}
	return m, c.Err()
}

// checkNodes checks the nodes of a center, if there is one.
func (s *Service) checkNodes(ctx context.Context, c *core.Check, in Plan, known bool) error {
	if len(in.Nodes) > maxNodes {
		c.Add("nodes", "must be at most %d, got %d", maxNodes, len(in.Nodes))
		return nil
	}
	if len(in.Nodes) > 0 && known {
		some, _, err := s.reg.ListNodes(ctx, registry.NodeFilter{CenterID: in.CenterID}, 1, "")
		if err != nil {
			return err
		}
		if len(some) == 0 {
			c.Add("nodes", "center %s reports no nodes; leave them out to plan maintenance of the whole center", in.CenterID)
			return nil
		}
	}
	for i, name := range in.Nodes {
		at := "nodes[" + strconv.Itoa(i) + "]"
		if c.Text(at, name, true, 253, 0); name == "" || len(name) > 253 || !known {
			continue
		}
		if slices.Contains(in.Nodes[:i], name) {
			c.Add(at, "names %s a second time", clip(name))
			continue
		}
		_, err := s.reg.GetNode(ctx, in.CenterID, name)
		switch fault.KindOf(err) {
		case fault.NotFound:
			c.Add(at, "center %s has no node %q", in.CenterID, clip(name))
		default:
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// PlanMaintenance plans maintenance of a center, or of nodes of it. It returns fault.Invalid, and
// fault.Conflict for a request ID of something else.
func (s *Service) PlanMaintenance(ctx context.Context, in Plan, q Request) (*Maintenance, error) {
	m, err := s.checkPlan(ctx, in, q, s.db.Now())
	if err != nil {
		return nil, err
	}
	caller := core.CallerFrom(ctx)
	m.tenantID, m.UserID = caller.TenantID, caller.UserID
	id := m.ID
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		id = m.ID
		if err := bump(ctx, tx); err != nil {
			return err
		}
		if q.ID != "" {
			rows, err := readMaintenance(ctx, tx, `WHERE tenant_id = $1 AND request_id = $2`, m.tenantID, q.ID)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				id = rows[0].ID
				return same(rows[0].digest, q)
			}
		}
		if err := insertMaintenance(ctx, tx, m); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, m.ID)
	})
	if err != nil {
		return nil, err
	}
	s.changed()
	return s.Maintenance(ctx, id)
}

// Maintenance returns one maintenance.
func (s *Service) Maintenance(ctx context.Context, id string) (m *Maintenance, err error) {
	var c core.Check
	if c.ID("maintenance_id", id); c.Err() != nil {
		return nil, c.Err()
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if m, err = maintenanceTx(ctx, tx, id); err != nil {
			return err
		}
		m.Meets, err = met(ctx, tx, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, s.lookUp(ctx, m)
}

// lookUp finds how the nodes of maintenance are set.
func (s *Service) lookUp(ctx context.Context, m *Maintenance) error {
	if len(m.Nodes) == 0 || !m.EndedAt.IsZero() {
		return nil
	}
	list, err := s.ctl.Maintained(ctx, m.CenterID)
	m.controls = map[string]*control.NodeControl{}
	for _, n := range list {
		m.controls[n.Node] = n
	}
	return err
}

func maintenanceTx(ctx context.Context, tx *db.Tx, id string) (*Maintenance, error) {
	rows, err := readMaintenance(ctx, tx, `WHERE maintenance_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fault.New(fault.NotFound, "there is no maintenance %s", id)
	}
	return rows[0], nil
}

// met are the reservations that the caller may see and maintenance meets, at
// most 100.
func met(ctx context.Context, tx *db.Tx, m *Maintenance) ([]string, error) {
	if !m.EndedAt.IsZero() {
		return nil, nil
	}
	list, err := m.times(tx.Now, tx.Now.Add(horizon), maxSpans)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, x := range list {
		ts, err := readTimes(ctx, tx, `WHERE ended_at = 0 AND from_at < $1 AND to_at > $2 ORDER BY reservation_id`, db.Micros(x.to), db.Micros(x.from))
		if err != nil {
			return nil, err
		}
		for _, t := range ts {
			if len(out) == 100 || slices.Contains(out, t.ReservationID) || !slices.ContainsFunc(t.Parts, func(p Part) bool { return p.CenterID == m.CenterID }) {
				continue
			}
			if _, err := visible(ctx, tx, t.ReservationID); err == nil {
				out = append(out, t.ReservationID)
			}
		}
	}
	return out, nil
}

// ListMaintenance returns a page, newest first, and the token of the next.
func (s *Service) ListMaintenance(ctx context.Context, center string, all bool, size int32, token string) ([]*Maintenance, string, error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	if center != "" {
		c.ID("ai_center_id", center)
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	where, args := []string{"1 = 1"}, []any{}
	and := func(cond string, v any) {
		args = append(args, v)
		where = append(where, strings.ReplaceAll(cond, "?", "$"+strconv.Itoa(len(args))))
	}
	if center != "" {
		and("ai_center_id = ?", center)
	}
	if key != nil {
		and("maintenance_id < ?", key[0])
	}
	if !all {
		where = append(where, "ended_at = 0")
	}
	args = append(args, n+1)
	var rows []*Maintenance
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readMaintenance(ctx, tx, "WHERE "+strings.Join(where, " AND ")+" ORDER BY maintenance_id DESC LIMIT $"+strconv.Itoa(len(args)), args...)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(rows) > n {
		rows, next = rows[:n], core.PageToken(rows[n-1].ID)
	}
	for _, m := range rows {
		if err := s.lookUp(ctx, m); err != nil {
			return nil, "", err
		}
	}
	return rows, next, nil
}

// CancelMaintenance ends maintenance now; one that is over is returned as it is.
func (s *Service) CancelMaintenance(ctx context.Context, id string) (*Maintenance, error) {
	if _, err := s.Maintenance(ctx, id); err != nil {
		return nil, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := bump(ctx, tx); err != nil {
			return err
		}
		m, err := maintenanceTx(ctx, tx, id)
		if err != nil || !m.EndedAt.IsZero() {
			return err
		}
		m.CanceledAt, m.EndedAt = tx.Now, tx.Now
		if err := endMaintenance(ctx, tx, m); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	if err != nil {
		return nil, err
	}
	s.changed()
	return s.Maintenance(ctx, id)
}
