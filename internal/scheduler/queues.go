package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// Queue is a tenant's, or a group of queues.
type Queue struct {
	ID, Parent string
	Weight     int64
	// Guaranteed, Borrowable and Limit are by resource; of Borrowable and Limit a
	// resource that is not named is not bounded.
	Guaranteed, Borrowable, Limit core.Quantities
	Updated                       time.Time
	// Used and Waiting are of it and of those below it; SharePPM is the largest
	// part of any resource there is.
	Used     core.Quantities
	Waiting  int64
	SharePPM int64
}

// QueueOrder says which work goes first.
type QueueOrder string

// The orders.
const (
	PriorityFirst QueueOrder = "priority" // then arrival, whoever's it is
	FairShares    QueueOrder = "fair"     // priority, then the lowest share of a queue
	FirstCome     QueueOrder = "first-come"
)

// QueueSettings say how work is ordered, in all queues. The zero value with
// PriorityFirst is the default.
type QueueSettings struct {
	Order           QueueOrder `json:"order"`
	HalfLifeSeconds int64      `json:"half_life_seconds"`
	AgeingSeconds   int64      `json:"ageing_seconds"`
	AgeingMost      int64      `json:"ageing_most"`
	Backfill        bool       `json:"backfill"`
	PreemptPriority bool       `json:"preempt_priority"`
	PreemptReclaim  bool       `json:"preempt_reclaim"`
	Updated         time.Time  `json:"-"`
}

const (
	maxQueues      = 10000
	maxSpan        = 30 * 24 * 3600 // seconds
	maxAgeing      = 200            // points: from the lowest priority to the highest
	maxAmountNames = 64
	// deadlineMargin is how long before the latest start that keeps its deadline
	// a job goes before others of its priority.
	deadlineMargin = time.Hour
	// blockAfter is how long work waits until room is kept for it although nobody
	// knows when what runs will end.
	blockAfter = 10 * time.Minute
)

// settings are all that the queue is configured with.
type settings struct {
	generation int64
	QueueSettings
	queues []Queue
}

// config is for package queue.
func (s *settings) config() queue.Config {
	c := queue.Config{Order: queue.PriorityOrder, Backfill: queue.BackfillGreedy, StrictClasses: true, HalfLife: s.HalfLifeSeconds * 1e6,
		DeadlineMargin: deadlineMargin.Microseconds(), BlockAfter: blockAfter.Microseconds(), Preempt: s.PreemptPriority || s.PreemptReclaim, Devices: []string{"gpu", "npu", "mlu"}, UnknownReach: reach.Microseconds()}
	switch s.Order {
	case FairShares:
		c.Order = queue.FairShare
	case FirstCome:
		c.Order = queue.FirstCome
	}
	if s.Backfill {
		c.Backfill = queue.BackfillReserve
	}
	if s.AgeingSeconds > 0 {
		c.Ageing = queue.Ageing{Step: s.AgeingSeconds * 1e6, Max: s.AgeingMost}
		if c.Ageing.Max == 0 {
			c.Ageing.Max = 100
		}
	}
	for _, q := range s.queues {
		c.Tenants = append(c.Tenants, q.tenant())
	}
	return c
}

func (q *Queue) tenant() queue.Tenant {
	return queue.Tenant{Name: q.ID, Parent: q.Parent, Weight: q.Weight, Guaranteed: queue.Amounts(q.Guaranteed), Borrowable: queue.Amounts(q.Borrowable), Limit: queue.Amounts(q.Limit)}
}

// readSettings reads everything that configures the queue.
func readSettings(ctx context.Context, tx *db.Tx) (s settings, err error) {
	var body string
	var at int64
	if _, err := tx.Get(ctx, `SELECT body, generation, updated_at FROM queue_settings WHERE one = 1`, nil, &body, &s.generation, &at); err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(body), &s.QueueSettings); err != nil {
		return s, fmt.Errorf("stored queue settings: %w", err)
	}
	if s.Order == "" {
		s.Order = PriorityFirst
	}
	if at > 0 {
		s.Updated = db.Time(at)
	}
	err = tx.Query(ctx, `SELECT queue_id, parent_id, weight, guaranteed, borrowable, most, updated_at FROM queues ORDER BY queue_id`, nil, func(row db.Row) error {
		var q Queue
		var texts [3]string
		var at int64
		if err := row.Scan(&q.ID, &q.Parent, &q.Weight, &texts[0], &texts[1], &texts[2], &at); err != nil {
			return err
		}
		q.Updated = db.Time(at)
		for i, to := range []*core.Quantities{&q.Guaranteed, &q.Borrowable, &q.Limit} {
			if err := json.Unmarshal([]byte(texts[i]), to); err != nil {
				return fmt.Errorf("stored amounts of queue %s: %w", q.ID, err)
			}
		}
		s.queues = append(s.queues, q)
		return nil
	})
	return s, err
}

// generation of the settings as stored.
func (s *Service) generation(ctx context.Context) (n int64, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		_, err := tx.Get(ctx, `SELECT generation FROM queue_settings WHERE one = 1`, nil, &n)
		return err
	})
	return n, err
}

func (s *Service) settings(ctx context.Context) (out settings, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readSettings(ctx, tx)
		return err
	})
	return out, err
}

// Queues returns the queues by ID with what is in use.
func (s *Service) Queues(ctx context.Context) ([]Queue, error) {
	conf, err := s.settings(ctx)
	if err != nil || len(conf.queues) == 0 {
		return nil, err
	}
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	open, err := s.src.Running(ctx)
	if err != nil {
		return nil, err
	}
	waiting, err := s.src.WaitingByTenant(ctx)
	if err != nil {
		return nil, err
	}
	index := map[string]*Queue{}
	for i := range conf.queues {
		conf.queues[i].Used = core.Quantities{}
		index[conf.queues[i].ID] = &conf.queues[i]
	}
	up := func(tenant string, f func(q *Queue)) {
		for q := index[tenant]; q != nil; q = index[q.Parent] {
			f(q)
		}
	}
	for _, r := range open {
		if r.AllocationID == "" {
			up(r.Tenant, func(q *Queue) {
				for name, n := range r.Resources {
					q.Used[name] += n
				}
			})
		}
	}
	for _, t := range waiting {
		up(t.Tenant, func(q *Queue) { q.Waiting += t.Jobs })
	}
	total := totals(snap)
	for i := range conf.queues {
		for name, n := range conf.queues[i].Used {
			if total[name] > 0 {
				conf.queues[i].SharePPM = max(conf.queues[i].SharePPM, int64(float64(n)/float64(total[name])*1e6))
			}
		}
	}
	return conf.queues, nil
}

func totals(snap *registry.Snapshot) core.Quantities {
	out := core.Quantities{}
	for _, c := range snap.Centers {
		for name, n := range c.Total {
			out[name] += n
		}
	}
	return out
}

// GetQueue returns one queue with what is in use; fault.NotFound if there is
// none.
func (s *Service) GetQueue(ctx context.Context, id string) (*Queue, error) {
	qs, err := s.Queues(ctx)
	if err != nil {
		return nil, err
	}
	for i := range qs {
		if qs[i].ID == id {
			return &qs[i], nil
		}
	}
	return nil, fault.New(fault.NotFound, "there is no queue %q; see yunhe queue list", clip(id))
}

// NewQueue is what a user says of a queue; amounts are text as in
// specifications.
type NewQueue struct {
	ID, Parent                    string
	Weight                        int64
	Guaranteed, Borrowable, Limit map[string]string
}

func (n *NewQueue) parse() (Queue, error) {
	q := Queue{ID: n.ID, Parent: n.Parent, Weight: n.Weight}
	var c core.Check
	c.ID("queue_id", n.ID)
	if n.Parent != "" {
		c.ID("queue.parent_id", n.Parent)
	}
	c.Range("queue.weight", n.Weight, 1, queue.MaxWeight)
	for _, f := range []struct {
		name string
		from map[string]string
		to   *core.Quantities
	}{{"guaranteed", n.Guaranteed, &q.Guaranteed}, {"borrowable", n.Borrowable, &q.Borrowable}, {"limit", n.Limit, &q.Limit}} {
		*f.to = core.Quantities{}
		if len(f.from) > maxAmountNames {
			c.Add("queue."+f.name, "must be at most %d resources, got %d", maxAmountNames, len(f.from))
			continue
		}
		for _, name := range slices.Sorted(keys(f.from)) {
			path := "queue." + f.name + "." + clip(name)
			if c.Text(path, name, true, 0, 64); name == "" {
				continue
			}
			amount, err := core.ParseQuantity(name, f.from[name])
			switch {
			case err != nil:
				msg, _ := fault.Message(err)
				c.Add(path, "%s", msg)
			case amount < 0 || amount > queue.MaxAmount:
				c.Add(path, "must be between 0 and %s, got %s", core.FormatQuantity(name, queue.MaxAmount), core.FormatQuantity(name, amount))
			default:
				(*f.to)[name] = amount
			}
		}
	}
	return q, c.Err()
}

// SetQueue makes a queue or replaces what is said of it. fault.Invalid if it
// does not fit the others: its parent is missing, it would be below itself, or
// more is guaranteed in a group than to the group.
func (s *Service) SetQueue(ctx context.Context, n NewQueue) (*Queue, error) {
	q, err := n.parse()
	if err != nil {
		return nil, err
	}
	err = s.changeQueues(ctx, func(tx *db.Tx, conf *settings) error {
		i, found := slices.BinarySearchFunc(conf.queues, q.ID, func(q Queue, id string) int { return strings.Compare(q.ID, id) })
		if found {
			conf.queues[i] = q
		} else {
			conf.queues = slices.Insert(conf.queues, i, q)
		}
		if len(conf.queues) > maxQueues {
			return fault.New(fault.Exhausted, "there are %d queues, which is the most", maxQueues)
		}
		if err := conf.check(&q); err != nil {
			return err
		}
		args := []any{q.ID, q.Parent, q.Weight}
		for _, m := range []core.Quantities{q.Guaranteed, q.Borrowable, q.Limit} {
			b, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("encode amounts: %w", err)
			}
			args = append(args, string(b))
		}
		_, err := tx.Exec(ctx, `INSERT INTO queues (queue_id, parent_id, weight, guaranteed, borrowable, most, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (queue_id) DO UPDATE SET parent_id = $2, weight = $3, guaranteed = $4, borrowable = $5, most = $6, updated_at = $7`, append(args, db.Micros(tx.Now))...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.GetQueue(ctx, q.ID)
}

// check refuses settings that are not a tree, with the faults put down to the
// queue that is changed where they are its own.
func (s *settings) check(q *Queue) error {
	byID := map[string]*Queue{}
	for i := range s.queues {
		byID[s.queues[i].ID] = &s.queues[i]
	}
	if q.Parent != "" && byID[q.Parent] == nil {
		return fault.Fields(fault.Field{Path: "queue.parent_id", Problem: fmt.Sprintf("there is no queue %q; see yunhe queue list", clip(q.Parent))})
	}
	for up := byID[q.Parent]; up != nil; up = byID[up.Parent] {
		if up.ID == q.ID {
			return fault.Fields(fault.Field{Path: "queue.parent_id", Problem: fmt.Sprintf("%q is below this queue", clip(q.Parent))})
		}
	}
	c := s.config()
	err := c.Check()
	if err == nil {
		return nil
	}
	msg, _ := fault.Message(err)
	return fault.Wrap(fault.Invalid, fault.Fields(fault.Field{Path: "queue", Problem: msg}), "queue %s does not fit the others: %s", q.ID, msg)
}

// DeleteQueue deletes a queue; fault.Conflict while others are below it.
func (s *Service) DeleteQueue(ctx context.Context, id string) error {
	return s.changeQueues(ctx, func(tx *db.Tx, conf *settings) error {
		for _, q := range conf.queues {
			if q.Parent == id && id != "" {
				return fault.New(fault.Conflict, "queue %s has others below it, such as %s; delete or move them first", id, q.ID)
			}
		}
		n, err := tx.Exec(ctx, `DELETE FROM queues WHERE queue_id = $1`, id)
		if err == nil && n == 0 {
			return fault.New(fault.NotFound, "there is no queue %q; see yunhe queue list", clip(id))
		}
		return err
	})
}

// QueueSettings returns how work is ordered.
func (s *Service) QueueSettings(ctx context.Context) (QueueSettings, error) {
	conf, err := s.settings(ctx)
	return conf.QueueSettings, err
}

// SetQueueSettings replaces how work is ordered.
func (s *Service) SetQueueSettings(ctx context.Context, to QueueSettings) (QueueSettings, error) {
	var c core.Check
	c.Range("settings.half_life_seconds", to.HalfLifeSeconds, 0, maxSpan)
	c.Range("settings.ageing_seconds", to.AgeingSeconds, 0, maxSpan)
	c.Range("settings.ageing_most", to.AgeingMost, 0, maxAgeing)
	if err := c.Err(); err != nil {
		return QueueSettings{}, err
	}
	b, err := json.Marshal(to)
	if err != nil {
		return QueueSettings{}, fmt.Errorf("encode settings: %w", err)
	}
	err = s.changeQueues(ctx, func(tx *db.Tx, _ *settings) error {
		_, err := tx.Exec(ctx, `UPDATE queue_settings SET body = $1, updated_at = $2 WHERE one = 1`, string(b), db.Micros(tx.Now))
		return err
	})
	if err != nil {
		return QueueSettings{}, err
	}
	return s.QueueSettings(ctx)
}

// changeQueues runs a change of the settings in a transaction and has the
// scheduler hear of it, in whichever process it runs: see refresh.
func (s *Service) changeQueues(ctx context.Context, f func(tx *db.Tx, conf *settings) error) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE queue_settings SET generation = generation + 1 WHERE one = 1`); err != nil {
			return err
		}
		conf, err := readSettings(ctx, tx)
		if err != nil {
			return err
		}
		return f(tx, &conf)
	})
	if err == nil {
		s.changed.Store(true)
		s.Wake()
	}
	return err
}
