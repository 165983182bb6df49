package alarms

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/budgets"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/equipment"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/notices"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps the alarms. It is safe for concurrent use.
type Service struct {
	cfg     Config
	db      *db.DB
	bus     *bus.Bus
	ids     *identity.Service
	reg     *registry.Service
	ad      *adapters.Service
	jobs    *jobs.Service
	control *control.Service
	budgets *budgets.Service
	pool    *poolops.Service
	notices *notices.Service

	equipment *equipment.Service

	log  *slog.Logger
	feed *bus.Feed

	mu      sync.Mutex // guards open and changed
	open    map[string]bool
	changed map[string]bool // jobs that changed while the facts are looked at; nil: they are not
}

// Deps are what a Service needs.
type Deps struct {
	Bus      *bus.Bus
	Identity *identity.Service
	Registry *registry.Service
	Adapters *adapters.Service
	Jobs     *jobs.Service
	Control  *control.Service
	Budgets  *budgets.Service
	Pool     *poolops.Service
	Notices  *notices.Service

	Equipment *equipment.Service
}

// New returns the service; its loops are Run and Watch.
func New(ctx context.Context, cfg Config, d *db.DB, deps Deps, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "alarms", migrations); err != nil {
		return nil, err
	}
	log = log.With("component", "alarms")
	return &Service{cfg: cfg.filled(), db: d, bus: deps.Bus, ids: deps.Identity, reg: deps.Registry, ad: deps.Adapters, jobs: deps.Jobs, control: deps.Control, budgets: deps.Budgets, pool: deps.Pool,
		notices: deps.Notices, equipment: deps.Equipment, log: log, feed: bus.NewFeed(deps.Bus, "alarms.changed", log)}, nil
}

// Watch feeds the watchers until ctx ends.
func (s *Service) Watch(ctx context.Context) error { return s.feed.Run(ctx) }

// Run raises and clears alarms until ctx ends. One process at a time runs it.
func (s *Service) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	stop, err := s.listen(wake)
	if err != nil {
		return err
	}
	defer stop()
	var purged time.Time
	for {
		core.Round(ctx, sweepEvery)
		next, err := s.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("alarms not brought up to date, will try again", "error", err)
		}
		now := s.db.Now()
		if now.Sub(purged) > time.Hour {
			purged = now
			if err := errors.Join(s.purge(ctx), s.equipment.Forget(ctx)); err != nil && ctx.Err() == nil {
				s.log.Warn("old alarms not deleted", "error", err)
			}
		}
		due := time.NewTimer(max(next.Sub(now), sweepPause))
		select { // at most so often, whatever happens
		case <-ctx.Done():
			return nil
		case <-time.After(sweepPause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			due.Stop()
		case <-due.C:
		}
	}
}

// listen puts a value into wake when an event may have raised or cleared an
// alarm, until stop is called.
func (s *Service) listen(wake chan<- struct{}) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, subject := range []string{registry.CenterChangedSubject, registry.NodesChangedSubject, adapters.InstanceChangedSubject, jobs.RefusedSubject, budgets.ChangedSubject, pools.ChangedSubject, poolops.ChangedSubject, equipment.ChangedSubject, inventory.ChangedSubject, "control.changed", "job.changed"} {
		end, err := s.bus.Listen(subject, func(_ string, payload []byte) {
			if subject == "job.changed" && !s.concerns(payload) {
				return
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// concerns reports whether one of the jobs that changed has an open alarm.
func (s *Service) concerns(payload []byte) bool {
	var changed []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(payload, &changed); err != nil {
		s.log.Warn("event not read", "subject", "job.changed", "error", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, x := range changed {
		found = found || s.open[x.ID]
		if s.changed != nil {
			s.changed[x.ID] = true
		}
	}
	return found
}

func (s *Service) purge(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM alarms WHERE cleared_at > 0 AND cleared_at < $1`, db.Micros(tx.Now.Add(-keep)))
		return err
	})
}

// sweep looks at the facts once and brings the alarms up to date. It returns
// when to look again at the latest.
func (s *Service) sweep(ctx context.Context) (next time.Time, err error) {
	next = s.db.Now().Add(sweepEvery)
	s.begin()
	f, err := s.look(ctx)
	if err != nil {
		return next, err
	}
	if f.due.Before(next) {
		next = f.due
	}
	causes := f.causes()
	if s.note(causes) {
		next = f.at
	}
	var open map[string]*Alarm
	err = s.db.View(ctx, func(tx *db.Tx) error {
		open, err = readOpen(ctx, tx)
		return err
	})
	if err != nil || upToDate(causes, open) { // mostly there is nothing to write
		return next, err
	}
	return next, s.db.Tx(ctx, func(tx *db.Tx) error {
		open, err := readOpen(ctx, tx)
		if err != nil {
			return err
		}
		changed, err := s.reconcile(ctx, tx, causes, open)
		if err != nil || len(changed) == 0 {
			return err
		}
		payload, err := json.Marshal(changed)
		if err != nil {
			return fmt.Errorf("event alarms.changed: %w", err)
		}
		return tx.Emit(ctx, "alarms.changed", payload)
	})
}

func (s *Service) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = map[string]bool{}
}

// note keeps the jobs that alarms are about, for concerns, and reports whether
// one of them has changed since begin.
func (s *Service) note(causes map[string]*cause) (changed bool) {
	open := map[string]bool{}
	for _, c := range causes {
		if c.JobID != "" {
			open[c.JobID] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range open {
		changed = changed || s.changed[id]
	}
	s.open, s.changed = open, nil
	return changed
}

func readOpen(ctx context.Context, tx *db.Tx) (map[string]*Alarm, error) {
	rows, err := readAlarms(ctx, tx, `WHERE cleared_at = 0`)
	out := make(map[string]*Alarm, len(rows))
	for _, a := range rows {
		out[a.cause] = a
	}
	return out, err
}

// same reports whether an open alarm says of its cause what is so.
func same(c *cause, a *Alarm, open map[string]*Alarm) bool {
	return a != nil && a.Message == c.message && a.Severity == c.severity && a.ParentID == parentOf(c, open)
}

func parentOf(c *cause, open map[string]*Alarm) string {
	if p := open[c.parent]; p != nil {
		return p.ID
	}
	return ""
}

func upToDate(causes map[string]*cause, open map[string]*Alarm) bool {
	if len(causes) != len(open) {
		return false
	}
	for key, c := range causes {
		if !same(c, open[key], open) {
			return false
		}
	}
	return true
}

// reconcile makes the open alarms be those of the causes and returns the IDs
// of those that changed. Parents come before what follows from them.
func (s *Service) reconcile(ctx context.Context, tx *db.Tx, causes map[string]*cause, open map[string]*Alarm) (changed []string, err error) {
	for _, key := range slices.Sorted(maps.Keys(open)) {
		if causes[key] != nil {
			continue
		}
		a := open[key]
		a.State, a.ClearedAt = Cleared, tx.Now
		if err := saveAlarm(ctx, tx, a); err != nil {
			return nil, err
		}
		if a.told() {
			if err := s.notices.PostTx(ctx, tx, a.notice()); err != nil {
				return nil, err
			}
		}
		s.log.Info("alarm cleared", "alarm_id", a.ID, "message", a.Message)
		changed = append(changed, a.ID)
		delete(open, key)
	}
	keys := slices.SortedFunc(maps.Keys(causes), func(a, b string) int {
		if x, y := depth(causes, a), depth(causes, b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	for _, key := range keys {
		c := causes[key]
		a := open[key]
		if same(c, a, open) {
			continue
		}
		fresh := a == nil
		if fresh {
			if a, err = recent(ctx, tx, key); err != nil {
				return nil, err
			}
		}
		switch {
		case fresh && a != nil: // it is back
			a.State, a.ClearedAt, a.AcknowledgedBy, a.AcknowledgedAt, a.Note = Active, time.Time{}, "", time.Time{}, ""
			a.Count++
			a.LastAt = tx.Now
		case fresh:
			a = &Alarm{ID: core.NewID("alm"), Kind: c.kind, State: Active, About: c.About, FirstAt: tx.Now, LastAt: tx.Now, Count: 1, cause: key}
		case a.Message != c.message || a.Severity != c.severity:
			a.Count++
			a.LastAt = tx.Now
		}
		known, untold := a.Severity != 0, fresh || !a.told()
		a.Message, a.Severity, a.ParentID = c.message, c.severity, parentOf(c, open)
		if known {
			err = saveAlarm(ctx, tx, a)
		} else {
			err = insertAlarm(ctx, tx, a)
		}
		if err != nil {
			return nil, err
		}
		if untold && a.told() {
			if err := s.notices.PostTx(ctx, tx, a.notice()); err != nil {
				return nil, err
			}
		}
		if fresh {
			s.log.Warn("alarm raised", "alarm_id", a.ID, "message", a.Message, "parent_id", a.ParentID)
		}
		open[key] = a
		changed = append(changed, a.ID)
	}
	return changed, nil
}

// told reports whether people are told of it: of equipment that is down, not of
// each link and node that follows from that.
func (a *Alarm) told() bool {
	return a.ParentID == "" || a.Kind <= EquipmentRule && a.Kind != NodeNotReady
}

// notice is what people are told of an alarm.
func (a *Alarm) notice() notices.Alarm {
	return notices.Alarm{ID: a.ID, Tenant: a.TenantID, Message: a.Message, Kind: int64(a.Kind), Severity: int64(a.Severity), Cleared: a.State == Cleared}
}

// depth is how many causes are above one.
func depth(causes map[string]*cause, key string) int {
	n := 0
	for c := causes[key]; c != nil && c.parent != "" && n < 8; c = causes[c.parent] {
		n++
	}
	return n
}

const alarmColumns = `alarm_id, cause, kind, severity, state, parent_id, ai_center_id, node, job_id, allocation_id, instance_id, tenant_id, message, first_at, last_at, count,
	acknowledged_by, acknowledged_at, note, cleared_at, equipment`

func insertAlarm(ctx context.Context, tx *db.Tx, a *Alarm) error {
	cols := strings.Split(strings.Join(strings.Fields(alarmColumns), ""), ",")
	err := tx.Insert(ctx, "alarms", cols, [][]any{{a.ID, a.cause, int64(a.Kind), int64(a.Severity), int64(a.State), a.ParentID, a.CenterID, a.Node, a.JobID, a.AllocationID, a.InstanceID, a.TenantID,
		a.Message, db.Micros(a.FirstAt), db.Micros(a.LastAt), a.Count, a.AcknowledgedBy, db.Micros(a.AcknowledgedAt), a.Note, db.Micros(a.ClearedAt), a.Equipment}})
	if err != nil {
		return fmt.Errorf("insert alarm %s: %w", a.ID, err)
	}
	return nil
}

func saveAlarm(ctx context.Context, tx *db.Tx, a *Alarm) error {
	if _, err := tx.Exec(ctx, `UPDATE alarms SET severity = $2, state = $3, parent_id = $4, message = $5, last_at = $6, count = $7, acknowledged_by = $8, acknowledged_at = $9, note = $10,
		cleared_at = $11 WHERE alarm_id = $1`, a.ID, int64(a.Severity), int64(a.State), a.ParentID, a.Message, db.Micros(a.LastAt), a.Count, a.AcknowledgedBy, db.Micros(a.AcknowledgedAt), a.Note,
		db.Micros(a.ClearedAt)); err != nil {
		return fmt.Errorf("save alarm %s: %w", a.ID, err)
	}
	return nil
}

func readAlarms(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]*Alarm, error) {
	var out []*Alarm
	err := tx.Query(ctx, `SELECT `+alarmColumns+` FROM alarms `+rest, args, func(row db.Row) error {
		a := &Alarm{}
		var first, last, acked, cleared int64
		err := row.Scan(&a.ID, &a.cause, &a.Kind, &a.Severity, &a.State, &a.ParentID, &a.CenterID, &a.Node, &a.JobID, &a.AllocationID, &a.InstanceID, &a.TenantID, &a.Message, &first, &last, &a.Count,
			&a.AcknowledgedBy, &acked, &a.Note, &cleared, &a.Equipment)
		a.FirstAt, a.LastAt, a.AcknowledgedAt, a.ClearedAt = db.Time(first), db.Time(last), db.Time(acked), db.Time(cleared)
		out = append(out, a)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read alarms: %w", err)
	}
	return out, nil
}

// recent is the alarm of a cause that was cleared a moment ago, nil if there
// is none.
func recent(ctx context.Context, tx *db.Tx, key string) (*Alarm, error) {
	rows, err := readAlarms(ctx, tx, `WHERE cause = $1 AND cleared_at > $2 ORDER BY cleared_at DESC LIMIT 1`, key, db.Micros(tx.Now.Add(-again)))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

func sees(ctx context.Context, a *Alarm) bool {
	return a.TenantID == "" || core.CallerFrom(ctx).Sees(a.TenantID)
}

// count sets how many open alarms that the caller may see follow from each.
func count(ctx context.Context, tx *db.Tx, rows []*Alarm) error {
	parents := map[string]string{}
	var visible []string
	err := tx.Query(ctx, `SELECT alarm_id, parent_id, tenant_id FROM alarms WHERE cleared_at = 0`, nil, func(row db.Row) error {
		var id, parent, tenant string
		err := row.Scan(&id, &parent, &tenant)
		if parents[id] = parent; tenant == "" || core.CallerFrom(ctx).Sees(tenant) {
			visible = append(visible, id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("count alarms: %w", err)
	}
	below := map[string]int64{}
	for _, id := range visible {
		for p, n := parents[id], 0; p != "" && n < 8; p, n = parents[p], n+1 {
			below[p]++
		}
	}
	for _, a := range rows {
		a.Affected = below[a.ID]
	}
	return nil
}

// Filter says which alarms are wanted.
type Filter struct {
	States   []State // empty: open ones
	Kinds    []Kind
	CenterID string
	Severity Severity // at least
	// RootsOnly leaves out what follows from another alarm.
	RootsOnly bool
	Node      string
	From, To  time.Time // raised from here on, and before here; zero: whenever
}

// List returns a page of the alarms the caller may see, newest first, the
// token of the next page, "" on the last, and how many are open and not
// acknowledged.
func (s *Service) List(ctx context.Context, f Filter, size int32, token string) (rows []*Alarm, next string, active int64, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", 0, err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", 0, err
	}
	where, args, err := f.where()
	if err != nil {
		return nil, "", 0, err
	}
	add := func(v any) string { args = append(args, v); return "$" + strconv.Itoa(len(args)) }
	if tenant := core.CallerFrom(ctx).Tenant(""); tenant != "" {
		where = append(where, "(tenant_id = '' OR tenant_id = "+add(tenant)+")")
	}
	if key != nil {
		where = append(where, "alarm_id < "+add(key[0]))
	}
	rest := "WHERE " + strings.Join(where, " AND ") + " ORDER BY alarm_id DESC LIMIT " + add(n+1)
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		if rows, err = readAlarms(ctx, tx, rest, args...); err != nil {
			return err
		}
		if err := count(ctx, tx, rows); err != nil {
			return err
		}
		q, own := `SELECT COUNT(*) FROM alarms WHERE cleared_at = 0 AND state = $1`, []any{int64(Active)}
		if tenant := core.CallerFrom(ctx).Tenant(""); tenant != "" {
			q, own = q+` AND (tenant_id = '' OR tenant_id = $2)`, append(own, tenant)
		}
		_, err = tx.Get(ctx, q, own, &active)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", active, err
	}
	return rows[:n], core.PageToken(rows[n-1].ID), active, nil
}

func (f Filter) where() (where []string, args []any, err error) {
	var c core.Check
	if f.CenterID != "" {
		c.ID("ai_center_id", f.CenterID)
	}
	c.Range("states", int64(len(f.States)), 0, 16)
	c.Range("kinds", int64(len(f.Kinds)), 0, 32)
	for i, x := range f.States {
		c.Range("states["+strconv.Itoa(i)+"]", int64(x), 1, int64(Cleared))
	}
	for i, x := range f.Kinds {
		c.Range("kinds["+strconv.Itoa(i)+"]", int64(x), 1, int64(lastKind))
	}
	c.Range("severity", int64(f.Severity), 0, int64(Critical))
	c.Text("node", f.Node, false, 253, 0)
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		c.Add("to", "must be after from")
	}
	if err := c.Err(); err != nil {
		return nil, nil, err
	}
	add := func(v any) string { args = append(args, v); return "$" + strconv.Itoa(len(args)) }
	in := func(column string, n int, at func(int) int64) {
		marks := make([]string, n)
		for i := range marks {
			marks[i] = add(at(i))
		}
		where = append(where, column+" IN ("+strings.Join(marks, ", ")+")")
	}
	if len(f.States) == 0 {
		where = append(where, "cleared_at = 0")
	} else {
		in("state", len(f.States), func(i int) int64 { return int64(f.States[i]) })
	}
	if len(f.Kinds) > 0 {
		in("kind", len(f.Kinds), func(i int) int64 { return int64(f.Kinds[i]) })
	}
	if f.CenterID != "" {
		where = append(where, "ai_center_id = "+add(f.CenterID))
	}
	if f.Node != "" {
		where = append(where, "node = "+add(f.Node))
	}
	if !f.From.IsZero() {
		where = append(where, "first_at >= "+add(db.Micros(f.From)))
	}
	if !f.To.IsZero() {
		where = append(where, "first_at < "+add(db.Micros(f.To)))
	}
	if f.RootsOnly {
		where = append(where, "parent_id = ''")
	}
	if f.Severity > 0 {
		where = append(where, "severity >= "+add(int64(f.Severity)))
	}
	return where, args, nil
}

// Get returns an alarm and what follows from it, at any depth, oldest first,
// as far as the caller may see it. It returns fault.Invalid and fault.NotFound.
func (s *Service) Get(ctx context.Context, id string) (a *Alarm, affected []*Alarm, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		affected = nil
		if a, err = get(ctx, tx, id); err != nil {
			return err
		}
		if err := count(ctx, tx, []*Alarm{a}); err != nil {
			return err
		}
		for todo := []string{id}; len(todo) > 0 && len(affected) < most; todo = todo[1:] {
			rows, err := readAlarms(ctx, tx, `WHERE parent_id = $1 ORDER BY alarm_id LIMIT $2`, todo[0], most)
			if err != nil {
				return err
			}
			for _, x := range rows {
				if sees(ctx, x) && len(affected) < most {
					affected, todo = append(affected, x), append(todo, x.ID)
				}
			}
		}
		return nil
	})
	slices.SortFunc(affected, func(x, y *Alarm) int { return strings.Compare(x.ID, y.ID) })
	return a, affected, err
}

func get(ctx context.Context, tx *db.Tx, id string) (*Alarm, error) {
	var c core.Check
	if c.ID("alarm_id", id); c.Err() != nil {
		return nil, c.Err()
	}
	rows, err := readAlarms(ctx, tx, `WHERE alarm_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !sees(ctx, rows[0]) {
		return nil, fault.New(fault.NotFound, "there is no alarm %s", id)
	}
	return rows[0], nil
}

// Acknowledge says that the caller looks after an alarm. It returns
// fault.Invalid, fault.NotFound, and fault.Denied for a resource's alarm
// without the right to control resources.
func (s *Service) Acknowledge(ctx context.Context, id, note string) (a *Alarm, err error) {
	var c core.Check
	c.ID("alarm_id", id)
	c.Text("note", note, false, 0, 256)
	if err := c.Err(); err != nil {
		return nil, err
	}
	caller := core.CallerFrom(ctx)
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if a, err = get(ctx, tx, id); err != nil {
			return err
		}
		if a.TenantID == "" && !caller.Can("registry.write") {
			return fault.New(fault.Denied, "alarm %s is of a resource; only who may control resources acknowledges it", id)
		}
		if a.State != Active {
			return count(ctx, tx, []*Alarm{a})
		}
		a.State, a.AcknowledgedBy, a.AcknowledgedAt, a.Note = Acknowledged, caller.UserID, tx.Now, note
		if err := saveAlarm(ctx, tx, a); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		payload, err := json.Marshal([]string{id})
		if err != nil {
			return fmt.Errorf("event alarms.changed: %w", err)
		}
		if err := tx.Emit(ctx, "alarms.changed", payload); err != nil {
			return err
		}
		return count(ctx, tx, []*Alarm{a})
	})
	return a, err
}

// Follow calls send with the open alarms, oldest first, and then with every
// one that is raised or changes, as far as the caller may see them, until ctx
// ends.
func (s *Service) Follow(ctx context.Context, send func(*Alarm) error) error {
	w := s.feed.Watch()
	defer w.Close()
	var open []*Alarm
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if open, err = readAlarms(ctx, tx, `WHERE cleared_at = 0 ORDER BY alarm_id`); err != nil {
			return err
		}
		return count(ctx, tx, open)
	})
	if err != nil {
		return err
	}
	for _, a := range open {
		if sees(ctx, a) {
			if err := send(a); err != nil {
				return err
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Changed:
		}
		ids := w.Take()
		slices.Sort(ids)
		for _, id := range ids {
			a, _, err := s.Get(ctx, id)
			if fault.KindOf(err) == fault.NotFound && err != nil {
				continue
			}
			if err != nil {
				return err
			}
			if err := send(a); err != nil {
				return err
			}
		}
	}
}
