package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/scheduler"
)

// A replica for which there would be room, and whose shares others have, may have runs taken
// back: who has a higher priority has it for accelerators as for room. It is looked at
// when the scheduler asks for it (Ready), and again now and then while it waits.

const (
	// offerAgain is how often the scheduler is offered a replica that waits for shares that
	// runs of a lower priority have.
	offerAgain = 30 * time.Second
	// offersAtOnce is how many it is offered at once, offersEvery how often.
	offersAtOnce = 64
	offersEvery  = 5 * time.Second
	// claimsAtOnce are for how many replicas and gangs of a cycle runs are looked for at most.
	claimsAtOnce = 16
)

// offers are when replicas that wait for shares, and gangs, were last offered. Its zero value is
// empty.
type offers struct {
	mu    sync.Mutex // guards the fields below
	at    map[string]time.Time
	since time.Time
	n     int // since then
}

// offerOf names what is offered.
func offerOf(job, wish string, gang bool) string {
	if gang {
		return job + "/*"
	}
	return wish
}

// made notes that something was offered.
func (o *offers) made(key string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(key, now)
}

func (o *offers) note(key string, now time.Time) {
	if o.at == nil {
		o.at = map[string]time.Time{}
	}
	o.at[key] = now
}

// again reports whether something is to be offered now.
func (o *offers) again(key string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, was := o.at[key]; was && now.Sub(at) < offerAgain {
		return false
	}
	if now.Sub(o.since) >= offersEvery {
		o.since, o.n = now, 0
		maps.DeleteFunc(o.at, func(_ string, at time.Time) bool { return now.Sub(at) >= offerAgain })
	}
	if o.n == offersAtOnce {
		return false
	}
	o.n++
	o.note(key, now)
	return true
}

// forget has what is of a job offered as if it had not been.
func (o *offers) forget(job string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.at, func(key string, _ time.Time) bool { of, _, _ := wisher(key); return of == job })
}

// offered reports whether a replica that waits for shares is to ask for room again: then runs
// are looked for that have these, and are of a lower priority.
func (s *Service) offered(ctx context.Context, tx *db.Tx, r *record, key string, b *reading) (bool, error) {
	if !s.offers.again(key, s.db.Now()) {
		return false, nil
	}
	if b.least == nil {
		least, err := leastPooled(ctx, tx)
		if err != nil {
			return false, err
		}
		b.least = &least
	}
	return r.priority > *b.least, nil
}

// leastPooled is the least priority of those that have shares of the pool; none: the highest
// number there is.
func leastPooled(ctx context.Context, tx *db.Tx) (least int64, err error) {
	least = math.MaxInt64
	if _, err = tx.Get(ctx, `SELECT COALESCE(MIN(j.priority), $1) FROM attempts a JOIN jobs j ON j.job_id = a.job_id WHERE a.pooled AND a.ended_at = 0`, []any{least}, &least); err != nil {
		return 0, fmt.Errorf("read the least priority that has shares of the pool: %w", err)
	}
	return least, nil
}

// turnsOf adds since when replicas of a job have had their turn, by their wishes, whose runs were
// taken back for others: they do not go behind who came meanwhile.
func turnsOf(ctx context.Context, tx *db.Tx, job string, turns map[string]time.Time) error {
	err := tx.Query(ctx, `SELECT task_index, replica_index, MIN(placed_at) FROM attempts WHERE job_id = $1 AND reason = $2 GROUP BY task_index, replica_index`, []any{job, takenPreempted}, func(row db.Row) error {
		var task, replica int
		var placed int64
		err := row.Scan(&task, &replica, &placed)
		turns[wishOf(job, task, replica)] = db.Time(placed)
		return err
	})
	if err != nil {
		return fmt.Errorf("read when runs of %s were taken back: %w", job, err)
	}
	return nil
}

// claim takes runs back that have what replicas wait for, which ps are to be placed.
func (s *Service) claim(ctx context.Context, ps []scheduler.Placement, jobs map[string]*record, waits map[string]string, may scheduler.May) error {
	var open []*attempt
	err := s.db.View(ctx, func(tx *db.Tx) error {
		least, err := leastPooled(ctx, tx)
		if err == nil && slices.ContainsFunc(ps, func(p scheduler.Placement) bool { r := jobs[p.JobID]; return r != nil && r.priority > least }) {
			open, err = queryAttempts(ctx, tx, `pooled AND ended_at = 0 ORDER BY attempt_id`)
		}
		return err
	})
	if err != nil || len(open) == 0 {
		return err
	}
	runs, ending := idsOf(open), idsOf(slices.DeleteFunc(slices.Clone(open), func(a *attempt) bool { return !a.stopAsked }))
	var claims []pool.Claim
	var whose []string
	from, gangs := map[string][]pool.Yield{}, map[string]int{}
	for _, p := range ps {
		wish := wishOf(p.JobID, p.Task, p.Replica)
		if waits[wish] == "" {
			continue
		}
		if i, known := gangs[p.JobID]; known && p.Gang {
			claims[i].Wishes = append(claims[i].Wishes, wish)
			continue
		}
		if len(claims) == claimsAtOnce { // the others are offered again at once
			continue
		}
		s.offers.made(offerOf(p.JobID, wish, p.Gang), s.db.Now())
		if _, known := from[p.JobID]; !known {
			var list []pool.Yield
			for _, y := range may(p, runs) {
				list = append(list, pool.Yield(y))
			}
			from[p.JobID] = list
		}
		if len(from[p.JobID]) == 0 {
			continue
		}
		gangs[p.JobID] = len(claims)
		claims, whose = append(claims, pool.Claim{Wishes: []string{wish}, From: from[p.JobID]}), append(whose, p.JobID)
	}
	if len(claims) == 0 {
		return nil
	}
	taken, err := s.pool.Yield(ctx, claims, ending)
	if err != nil {
		return err
	}
	for i, list := range taken {
		if len(list) == 0 {
			continue
		}
		r := jobs[whose[i]]
		got, err := s.Preempt(ctx, list, fmt.Sprintf("preempted for job %s of tenant %s, which has priority %d and waits for these accelerators", r.id, r.tenant, r.priority))
		if err != nil {
			return err
		}
		s.log.Info("runs preempted for their shares of the pool", "job_id", r.id, "runs", got)
	}
	return nil
}

// stuckFor is how long a run waits for its shares, while others of its gang have theirs, until
// other such gangs give way.
const stuckFor = 30 * time.Second

// stuck is a gang of which some runs have their shares and others wait for theirs, with a place.
type stuck struct {
	r           *record
	runs, waits []string
}

// untangle has gangs whose shares are local not wait for each other for ever: each run asks by
// itself, so one may have what another lacks. The later ones, and of lower priority, begin anew
// if an earlier one then has what it waits for. placed are the runs whose slices have a place.
func (s *Service) untangle(ctx context.Context, placed map[string]bool) error {
	var gangs []*stuck
	var ending []string
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if gangs, err = stuckTx(ctx, tx, placed); err != nil || len(gangs) < 2 {
			return err
		}
		as, err := queryAttempts(ctx, tx, `pooled AND ended_at = 0 AND stop_asked ORDER BY attempt_id`)
		ending = idsOf(as)
		return err
	})
	if err != nil || len(gangs) < 2 {
		return err
	}
	slices.SortFunc(gangs, func(a, b *stuck) int {
		return cmp.Or(cmp.Compare(b.r.priority, a.r.priority), cmp.Compare(a.r.created, b.r.created), cmp.Compare(a.r.id, b.r.id))
	})
	for i, g := range gangs {
		claim := pool.Claim{Wishes: g.waits, Ahead: true} // a gang asks again when all of it has ended
		for _, o := range slices.Backward(gangs[i+1:]) {
			if !o.r.spec.NoPreemption {
				claim.From = append(claim.From, pool.Yield{Runs: o.runs})
			}
		}
		taken, err := s.pool.Yield(ctx, []pool.Claim{claim}, ending)
		if err != nil {
			return err
		}
		if len(taken[0]) == 0 {
			continue
		}
		got, err := s.Preempt(ctx, taken[0], fmt.Sprintf("preempted for job %s, which waits for these accelerators as this one does for others: all of its gang have theirs, or none", g.r.id))
		s.log.Info("gangs that waited for each other's shares of the pool untangled", "job_id", g.r.id, "runs", got)
		return err
	}
	return nil
}

func stuckTx(ctx context.Context, tx *db.Tx, placed map[string]bool) (gangs []*stuck, err error) {
	as, err := queryAttempts(ctx, tx, `pooled AND ended_at = 0 AND started_at = 0 AND placed_at < $1 ORDER BY attempt_id`, db.Micros(tx.Now.Add(-stuckFor)))
	if err != nil {
		return nil, err
	}
	waits := map[string][]string{}
	for _, a := range as {
		if !placed[a.id] && !a.stopAsked && strings.HasPrefix(a.message, lendWaits) {
			waits[a.job] = append(waits[a.job], a.id)
		}
	}
	rs, err := loadJobs(ctx, tx, sortedKeys(waits))
	if err != nil {
		return nil, err
	}
	for _, r := range rs {
		if !r.spec.Gang || r.outcome != 0 {
			continue
		}
		as, err := queryAttempts(ctx, tx, `job_id = $1 AND pooled AND ended_at = 0 ORDER BY attempt_id`, r.id)
		if err != nil {
			return nil, err
		}
		if runs := idsOf(as); len(runs) > len(waits[r.id]) {
			gangs = append(gangs, &stuck{r, runs, waits[r.id]})
		}
	}
	return gangs, nil
}

func idsOf(as []*attempt) (ids []string) {
	for _, a := range as {
		ids = append(ids, a.id)
	}
	return ids
}

// wantsPool reports whether a task wants shares of the pool.
func wantsPool(t *jobsv1.Task) bool { return t.Pool != nil }

// repooled has the pool know a job's new priority.
func (s *Service) repooled(ctx context.Context, tx *db.Tx, r *record) error {
	if s.pool == nil || !slices.ContainsFunc(r.spec.Tasks, wantsPool) {
		return nil
	}
	as, err := queryAttempts(ctx, tx, `job_id = $1 AND pooled AND ended_at = 0 ORDER BY attempt_id`, r.id)
	if err != nil {
		return err
	}
	ids := idsOf(as)
	for i, t := range r.spec.Tasks {
		if s.asks(t) {
			for replica := range int(t.ReplicaNumber) {
				ids = append(ids, wishOf(r.id, i, replica))
			}
		}
	}
	tx.AfterCommit(func() { s.offers.forget(r.id) })
	return s.pool.PriorityTx(ctx, tx, ids, r.priority)
}
