package control

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service controls resources. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	ids   *identity.Service
	reg   *registry.Service
	ad    *adapters.Service
	sched *scheduler.Service
	jobs  *jobs.Service
	meter *metering.Service
	log   *slog.Logger
	feed  *bus.Feed
	wake  chan struct{}

	mu    sync.Mutex // guards the fields below
	tries map[[2]string]try
}

// New returns the service; its loops are Run and Watch.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, reg *registry.Service, ad *adapters.Service, sched *scheduler.Service, work *jobs.Service, meter *metering.Service, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "control", migrations); err != nil {
		return nil, err
	}
	log = log.With("component", "control")
	return &Service{db: d, ids: ids, reg: reg, ad: ad, sched: sched, jobs: work, meter: meter, log: log, feed: bus.NewFeed(b, "control.changed", log),
		wake: make(chan struct{}, 1), tries: map[[2]string]try{}}, nil
}

// Watch feeds the watchers of operations until ctx ends.
func (s *Service) Watch(ctx context.Context) error { return s.feed.Run(ctx) }

func (s *Service) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// changed tells watchers of operations, and the loops of all processes.
func (s *Service) changed(ctx context.Context, tx *db.Tx, ops ...*Operation) error {
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = o.ID
	}
	payload, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("event control.changed: %w", err)
	}
	tx.AfterCommit(s.poke)
	return tx.Emit(ctx, "control.changed", payload)
}

func checkRequest(c *core.Check, r Request) { c.Text("request_id", r.ID, false, 64, 0) }

// begin stores a new operation of the caller's with the audit event. If the
// request was made before it returns that one's operation instead; with
// something else under the same ID, fault.Conflict.
func (s *Service) begin(ctx context.Context, tx *db.Tx, o *Operation, r Request) (known *Operation, err error) {
	caller := core.CallerFrom(ctx)
	o.ID, o.TenantID, o.UserID, o.CreatedAt, o.requestID, o.digest = core.NewID("opr"), caller.TenantID, caller.UserID, tx.Now, r.ID, r.Digest
	if o.State == 0 {
		o.State = Running
	}
	if r.ID != "" {
		rows, err := readOperations(ctx, tx, `WHERE tenant_id = $1 AND request_id = $2`, o.TenantID, r.ID)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			if rows[0].digest != r.Digest {
				return nil, fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "request_id", Problem: "was used for another request"}), "request_id %q was used for a different request", r.ID)
			}
			return rows[0], nil
		}
	}
	if err := insertOperation(ctx, tx, o); err != nil {
		return nil, err
	}
	if err := s.ids.AuditTx(ctx, tx, o.ID); err != nil {
		return nil, err
	}
	return nil, s.changed(ctx, tx, o)
}

// failed stores an operation that was refused; what it asked for changed
// nothing. A request that was malformed, or about what the caller does not
// see, is none.
func (s *Service) failed(ctx context.Context, o *Operation, r Request, err error) error {
	switch fault.KindOf(err) {
	case fault.Conflict, fault.Exhausted, fault.Unimplemented, fault.Unavailable:
	default:
		return err
	}
	if len(fault.FieldsOf(err)) > 0 {
		return err
	}
	msg, _ := fault.Message(err)
	terr := s.db.Tx(ctx, func(tx *db.Tx) error {
		*o = Operation{Kind: o.Kind, CenterID: o.CenterID, Node: o.Node, AllocationID: o.AllocationID, Reason: o.Reason}
		o.step(tx.Now, "refused", false, msg)
		o.end(tx.Now, Failed, msg)
		_, err := s.begin(ctx, tx, o, Request{}) // a later try with the same ID may succeed
		return err
	})
	if terr != nil {
		s.log.Warn("failed operation not recorded", "error", terr)
	}
	return err
}

// JoinedTx records as an operation that a center was connected: by its
// gateway, or through an instance of a plug-in.
func (s *Service) JoinedTx(ctx context.Context, tx *db.Tx, centerID, how string) error {
	o := &Operation{ID: core.NewID("opr"), Kind: Join, CenterID: centerID, TenantID: core.CallerFrom(ctx).TenantID, UserID: core.CallerFrom(ctx).UserID, CreatedAt: tx.Now}
	o.step(tx.Now, "join", true, how)
	o.end(tx.Now, Succeeded, how)
	if err := insertOperation(ctx, tx, o); err != nil {
		return err
	}
	return s.changed(ctx, tx, o)
}

// GetOperation returns an operation the caller may see.
func (s *Service) GetOperation(ctx context.Context, id string) (*Operation, error) {
	var c core.Check
	if c.ID("operation_id", id); c.Err() != nil {
		return nil, c.Err()
	}
	var out *Operation
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readOperations(ctx, tx, `WHERE operation_id = $1`, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 || !seesOperation(ctx, rows[0]) {
			return fault.New(fault.NotFound, "there is no operation %s", id)
		}
		out = rows[0]
		return nil
	})
	return out, err
}

func seesOperation(ctx context.Context, o *Operation) bool {
	return core.CallerFrom(ctx).Sees(o.TenantID)
}

// OperationFilter says which operations are wanted; empty fields: all.
type OperationFilter struct {
	States                       []OperationState
	Kinds                        []OperationKind
	CenterID, Node, AllocationID string
	TenantID                     string
}

// conditions gathers the WHERE of a list.
type conditions struct {
	where []string
	args  []any
}

func (q *conditions) and(cond string, values ...any) {
	for _, v := range values {
		q.args = append(q.args, v)
		cond = strings.Replace(cond, "?", "$"+strconv.Itoa(len(q.args)), 1)
	}
	q.where = append(q.where, cond)
}

func (q *conditions) in(column string, values []int64) {
	if len(values) == 0 {
		return
	}
	marks, args := make([]string, len(values)), make([]any, len(values))
	for i, v := range values {
		marks[i], args[i] = "?", v
	}
	q.and(column+" IN ("+strings.Join(marks, ", ")+")", args...)
}

func (q *conditions) text(order string, limit int) (string, []any) {
	out := ""
	if len(q.where) > 0 {
		out = "WHERE " + strings.Join(q.where, " AND ")
	}
	args := append(slices.Clone(q.args), limit)
	return out + " ORDER BY " + order + " LIMIT $" + strconv.Itoa(len(args)), args
}

// ListOperations returns a page of the operations the caller may see, newest
// first, and the token of the next page, "" on the last.
func (s *Service) ListOperations(ctx context.Context, f OperationFilter, size int32, token string) ([]*Operation, string, error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	checkFilterIDs(&c, "ai_center_id", f.CenterID, "allocation_id", f.AllocationID)
	c.Text("node", f.Node, false, 253, 0)
	c.Text("tenant_id", f.TenantID, false, 64, 0)
	c.Range("states", int64(len(f.States)), 0, 16)
	c.Range("kinds", int64(len(f.Kinds)), 0, 16)
	for i, x := range f.States {
		c.Range("states["+strconv.Itoa(i)+"]", int64(x), 1, int64(Partly))
	}
	for i, x := range f.Kinds {
		c.Range("kinds["+strconv.Itoa(i)+"]", int64(x), 1, int64(Join))
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	var q conditions
	if tenant := core.CallerFrom(ctx).Tenant(f.TenantID); tenant != "" {
		q.and("tenant_id = ?", tenant)
	}
	for _, x := range [][2]string{{"ai_center_id", f.CenterID}, {"node", f.Node}, {"allocation_id", f.AllocationID}} {
		if x[1] != "" {
			q.and(x[0]+" = ?", x[1])
		}
	}
	q.in("state", ints(f.States))
	q.in("kind", ints(f.Kinds))
	if key != nil {
		q.and("operation_id < ?", key[0])
	}
	rest, args := q.text("operation_id DESC", n+1)
	var rows []*Operation
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readOperations(ctx, tx, rest, args...)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].ID), nil
}

func checkFilterIDs(c *core.Check, namesAndIDs ...string) {
	for i := 0; i < len(namesAndIDs); i += 2 {
		if namesAndIDs[i+1] != "" {
			c.ID(namesAndIDs[i], namesAndIDs[i+1])
		}
	}
}

func ints[T ~int](list []T) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = int64(v)
	}
	return out
}

// WatchOperations calls send with a named operation's present state and every
// change until it has ended, or with every change of all that the caller may
// see (""), until ctx ends.
func (s *Service) WatchOperations(ctx context.Context, id string, send func(*Operation) error) error {
	w := s.feed.Watch()
	defer w.Close()
	var last time.Time
	show := func(id string, must bool) (over bool, err error) {
		o, err := s.GetOperation(ctx, id)
		if fault.KindOf(err) == fault.NotFound && !must {
			return false, nil // another tenant's
		}
		if err != nil {
			return false, err
		}
		if must && o.UpdatedAt.Equal(last) {
			return !o.EndedAt.IsZero(), nil
		}
		last = o.UpdatedAt
		return !o.EndedAt.IsZero(), send(o)
	}
	if id != "" {
		if over, err := show(id, true); over || err != nil {
			return err
		}
	}
	// An event can be lost; a look at the state now and then makes up for it.
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Changed:
			for _, x := range w.Take() {
				if id != "" && x != id {
					continue
				}
				if over, err := show(x, id != ""); err != nil || over && id != "" {
					return err
				}
			}
		case <-tick.C:
			if id != "" {
				if over, err := show(id, true); over || err != nil {
					return err
				}
			}
		}
	}
}
