package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
)

// submission is one request on its way into the database.
type submission struct {
	ctx     context.Context // of its request: who calls, and for the audit
	id      string          // request ID, may be ""
	digest  string          // of the jobs
	records []*record

	turn chan []*submission // receives the group that this one's caller shall store
	done chan struct{}      // closed when the fields below are set
	ids  []string           // of the jobs, perhaps those of an earlier request
	made bool               // the records are stored
	err  error
}

// gatherer stores submissions that come at the same time in one transaction:
// they share its round trips and its wait for the disk. Each is acknowledged
// after the commit, as if it had been alone. A submission that comes alone
// waits for nothing. Transactions run in the goroutines of callers, so there
// is nothing to start; while a submission is queued, all may run that can.
type gatherer struct {
	store func(ctx context.Context, group []*submission) error

	mu      sync.Mutex // guards the fields below
	queue   []*submission
	running int // transactions under way
}

const (
	// gatherWidth transactions are under way at once: while one waits for the
	// disk the next is made.
	gatherWidth = 2
	// gatherJobs in one transaction, so that the first submission does not wait
	// long for the last.
	gatherJobs = 128
	// gatherLimit bounds a transaction; it serves callers whose patience differs.
	gatherLimit = 30 * time.Second
)

func newGatherer(store func(context.Context, []*submission) error) *gatherer {
	return &gatherer{store: store}
}

// do stores a submission and returns when its fields are set.
func (g *gatherer) do(x *submission) {
	x.turn, x.done = make(chan []*submission, 1), make(chan struct{})
	var group []*submission
	g.mu.Lock()
	g.queue = append(g.queue, x)
	if g.running < gatherWidth {
		g.running++
		group = g.take()
	}
	g.mu.Unlock()
	if group == nil {
		select {
		case <-x.done:
			return
		case group = <-x.turn:
		}
	}
	g.lead(context.WithoutCancel(x.ctx), group)
	g.mu.Lock()
	next := g.take()
	if next == nil {
		g.running--
	}
	g.mu.Unlock()
	if next != nil {
		next[0].turn <- next
	}
}

// take returns the submissions of the next transaction, nil if none waits;
// g.mu is held.
func (g *gatherer) take() []*submission {
	n, jobs := 0, 0
	for n < len(g.queue) && (n == 0 || jobs+len(g.queue[n].records) <= gatherJobs) {
		jobs += len(g.queue[n].records)
		n++
	}
	if n == 0 {
		return nil
	}
	group := g.queue[:n:n]
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil
	}
	return group
}

// lead stores a group.
func (g *gatherer) lead(ctx context.Context, all []*submission) {
	ctx, cancel := context.WithTimeout(ctx, gatherLimit)
	defer cancel()
	var group []*submission
	for _, x := range all {
		if x.err = x.ctx.Err(); x.err != nil { // its caller gave up
			close(x.done)
			continue
		}
		group = append(group, x)
	}
	if len(group) == 0 {
		return
	}
	err := g.store(ctx, group)
	for _, x := range group {
		one := err
		if one != nil && len(group) > 1 && fault.KindOf(one) != fault.Unavailable {
			one = g.store(ctx, []*submission{x}) // what was wrong with one is not the others' fault
		}
		if one != nil && ctx.Err() != nil {
			one = fault.Wrap(fault.Unavailable, one, "the database does not answer")
		}
		if one != nil {
			x.err = one
		}
		close(x.done)
	}
}

// storeSubmissions stores a group and sets each submission's answer. An error
// is of the whole group, and then nothing is stored.
func (s *Service) storeSubmissions(ctx context.Context, group []*submission) error {
	made := false
	run := s.db.RowsTx // request IDs are rows written here, all else is new
	if slices.ContainsFunc(group, func(x *submission) bool { return slices.ContainsFunc(x.records, mountsVolumes) }) {
		run = s.db.Tx // whether volumes are there is only read
	}
	err := run(ctx, func(tx *db.Tx) error {
		made = false
		if err := s.remember(ctx, tx, group); err != nil {
			return err
		}
		var records []*record
		var audit []identity.Success
		for _, x := range group {
			if !x.made {
				continue
			}
			audit = append(audit, identity.Success{Request: x.ctx, Subject: x.ids[0]})
			for _, r := range x.records {
				r.created = db.Micros(tx.Now)
				r.waitingSince = r.created
				records = append(records, r)
			}
		}
		if len(records) == 0 {
			return nil
		}
		made = true
		if err := s.holdVolumes(ctx, tx, records); err != nil {
			return err
		}
		if err := insertJobs(ctx, tx, records); err != nil {
			return err
		}
		if err := s.ids.AuditAllTx(ctx, tx, audit); err != nil {
			return err
		}
		tx.AfterCommit(func() { s.fresh.keep(records) })
		return s.changed(ctx, tx, records...)
	})
	if err == nil && made {
		s.sched.Wake()
	}
	return err
}

// remember stores request IDs with what they make. A submission whose request
// ID is known gets the jobs of the first with that ID, or fault.Conflict if
// those were others. It writes before it reads: a transaction that has read
// nothing never fails to be serializable, so that PostgreSQL runs submissions
// side by side.
func (s *Service) remember(ctx context.Context, tx *db.Tx, group []*submission) error {
	var named []*submission
	var rows [][]any
	for _, x := range group {
		x.ids, x.made, x.err = make([]string, len(x.records)), true, nil
		for i, r := range x.records {
			x.ids[i] = r.id
		}
		if x.id != "" {
			named = append(named, x)
			rows = append(rows, []any{core.CallerFrom(x.ctx).TenantID, x.id, x.digest, strings.Join(x.ids, " "), db.Micros(tx.Now)})
		}
	}
	fresh, err := tx.InsertNew(ctx, "requests", []string{"tenant_id", "request_id", "digest", "job_ids", "at"}, 2, rows)
	if err != nil {
		return fmt.Errorf("store request IDs: %w", err)
	}
	for i, x := range named {
		if fresh[i] {
			continue
		}
		var was, made string
		if _, err := tx.Get(ctx, `SELECT digest, job_ids FROM requests WHERE tenant_id = $1 AND request_id = $2`, rows[i][:2], &was, &made); err != nil {
			return fmt.Errorf("read request ID: %w", err)
		}
		x.made, x.ids = false, strings.Fields(made)
		if was != x.digest {
			x.err = fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "request_id", Problem: "was used for another job"}),
				"request_id %q was used for a different job", clip(x.id))
		}
	}
	return nil
}
