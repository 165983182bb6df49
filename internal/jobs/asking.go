package jobs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// A replica that wants shares of the accelerator pool takes room at a center only when
// the pool has lent it what it wants. Once there would be room for it, the scheduler asks
// (Ready). What the pool cannot lend at once the replica waits for in the pool's queue, out of
// the scheduler's; when it has a place there, the scheduler looks for room again.
//
// Those whose shares are on their own machine are placed first: which node is asked
// depends on where that is (local.go). Of them a few wait with a place, where none has room now.

// asks reports whether a task asks the pool before its replicas are placed.
func (s *Service) asks(t *jobsv1.Task) bool { return s.pool != nil && t.Pool != nil && !t.Pool.Local }

// wishOf names what a replica asks for.
func wishOf(job string, task, replica int) string {
	return job + "/" + strconv.Itoa(task) + "/" + strconv.Itoa(replica)
}

// wisher returns whose wish it is.
func wisher(wish string) (job string, task, replica int) {
	parts := strings.Split(wish, "/")
	if len(parts) == 3 {
		task, _ = strconv.Atoi(parts[1])
		replica, _ = strconv.Atoi(parts[2])
	}
	return parts[0], task, replica
}

// waitForPool holds replicas that wait for what they asked the pool for, or that it would not
// take into its queue; of a gang all.
func (s *Service) waitForPool(ctx context.Context, tx *db.Tx, r *record, it *scheduler.Item, b *reading) error {
	it.Asks = slices.ContainsFunc(r.spec.Tasks, s.asks)
	if s.pool == nil || !slices.ContainsFunc(r.spec.Tasks, wantsPool) {
		return nil
	}
	if b.asked == nil {
		asked, err := s.pool.AskedTx(ctx, tx)
		if err != nil {
			return err
		}
		b.asked = &asked
	}
	behind := map[int]int{}   // by task, where in b.crowd it is: its other replicas are behind as many
	asked := map[int]string{} // by task, the last answer: that of all replicas of a gang, which ask together
	offered, more, failed := map[string]bool{}, false, error(nil)
	waits := func(t *place.Task, task, replica int) string {
		wish := wishOf(r.id, task, replica)
		if w, has := b.asked.Wishes[wish]; has {
			if w.Waits == "" {
				return ""
			}
			key := offerOf(r.id, wish, it.Work.Gang)
			again, known := offered[key]
			if !known && !more && b.queue {
				again, failed = s.offered(ctx, tx, r, key, b)
				offered[key] = again
			}
			if again {
				it.Anew = true // and waits as before when nothing comes of it
				return ""
			}
			return w.Waits
		}
		if text, known := asked[task]; known && it.Work.Gang {
			return text
		}
		if i, known := behind[task]; known {
			b.crowd[i].replicas++
			return asked[task]
		}
		w := sharesOf(r, int64(task))
		if w.Local && !b.local.full(r.id, task, t) {
			return ""
		}
		if asked[task] = b.asked.Full(w); asked[task] != "" {
			behind[task] = len(b.crowd)
			b.crowd = append(b.crowd, crowded{r.id, w, 1})
		}
		asked[task] = cmp.Or(asked[task], s.crowd.refused(wish, s.db.Now()))
		return asked[task]
	}
	why := ""
	for _, list := range []*[]place.Task{&it.Work.Tasks, &it.More} {
		held := len(it.Held)
		more = list == &it.More
		for i := range *list {
			t := &(*list)[i]
			n, err := strconv.Atoi(t.ID)
			if err != nil || r.spec.Tasks[n].Pool == nil {
				continue
			}
			t.Indices = slices.DeleteFunc(slices.Clone(t.Indices), func(replica int) bool {
				text := waits(t, n, replica)
				if text == "" {
					return false
				}
				hold(it, held, n, 1, lendWaits+text)
				why = text
				return true
			})
			t.Replicas = len(t.Indices)
		}
		if failed != nil {
			return failed
		}
		if len(it.Held) == held {
			continue
		}
		it.Anew = true
		if list == &it.Work.Tasks && it.Work.Gang {
			for _, rest := range append(slices.Clone(it.Work.Tasks), it.More...) {
				if n, err := strconv.Atoi(rest.ID); err == nil && rest.Replicas > 0 {
					hold(it, held, n, rest.Replicas, lendWaits+"others of its gang: "+why)
				}
			}
			it.Work.Tasks, it.More = nil, nil
		}
		*list = slices.DeleteFunc(*list, func(t place.Task) bool { return t.Replicas == 0 })
	}
	return nil
}

// crowded is a job of which replicas did not ask the pool, as others wait there.
type crowded struct {
	job      string
	shares   pool.Shares
	replicas int
}

// crowd are those that the scheduler holds. Its zero value is empty.
type crowd struct {
	mu    sync.Mutex                // guards the fields below
	lists map[pool.Shares][]crowded // by what is alike, in the order in which they are to be looked at again
	nots  map[string]refusal        // of wishes that may not ask, a while ago
}

// kind is what tells of two whether they ask for the same, in the same turn.
func (x *crowded) kind() pool.Shares {
	w := &x.shares
	return pool.Shares{Tenant: w.Tenant, User: w.User, Group: w.Group, Spec: w.Spec, API: w.API, Model: w.Model, Node: w.Node, Whole: w.Whole, Local: w.Local, Priority: w.Priority, JobPriority: w.JobPriority}
}

// refusal is why, and until when it is not asked again.
type refusal struct {
	why   string
	until time.Time
}

// notAgain is after how long the pool is asked again that refused a replica.
const notAgain = 2 * time.Second

func (c *crowd) refuse(not map[string]string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.nots, func(_ string, r refusal) bool { return now.After(r.until) })
	for wish, why := range not {
		if c.nots == nil {
			c.nots = map[string]refusal{}
		}
		c.nots[wish] = refusal{why, now.Add(notAgain)}
	}
}

func (c *crowd) refused(wish string, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, is := c.nots[wish]; is && now.Before(r.until) {
		return r.why
	}
	return ""
}

// stand has jobs wait for the pool's queue; what is known of those that were read is old.
func (c *crowd) stand(read []*record, list []crowded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lists) > 0 {
		anew := make(map[string]bool, len(read))
		for _, r := range read {
			anew[r.id] = true
		}
		c.leave(anew)
	}
	for _, x := range list {
		if c.lists == nil {
			c.lists = map[pool.Shares][]crowded{}
		}
		c.lists[x.kind()] = append(c.lists[x.kind()], x)
	}
}

// leave takes out what is of jobs.
func (c *crowd) leave(jobs map[string]bool) {
	for kind, list := range c.lists {
		if list = slices.DeleteFunc(list, func(x crowded) bool { return jobs[x.job] }); len(list) == 0 {
			delete(c.lists, kind)
		} else {
			c.lists[kind] = list
		}
	}
}

// next takes out the jobs that may ask the pool now, those of higher priorities first.
func (c *crowd) next(full func(pool.Shares) string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := map[string]bool{}
	for _, kind := range slices.SortedFunc(maps.Keys(c.lists), func(a, b pool.Shares) int { return cmp.Compare(b.JobPriority, a.JobPriority) }) {
	kind:
		for _, x := range c.lists[kind] {
			for range x.replicas {
				if full(x.shares) != "" {
					break kind
				}
				jobs[x.job] = true
			}
		}
	}
	if len(jobs) > 0 {
		c.leave(jobs)
	}
	return sortedKeys(jobs)
}

func (c *crowd) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lists) == 0
}

// uncrowd returns the jobs that may ask the pool now and could not.
func (s *Service) uncrowd(ctx context.Context, tx *db.Tx) ([]string, error) {
	if s.crowd.empty() {
		return nil, nil
	}
	asked, err := s.pool.AskedTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	return s.crowd.next(asked.Full), nil
}

// hold adds replicas to those that wait for the pool, from the first on.
func hold(it *scheduler.Item, first, task, replicas int, text string) {
	for i := range it.Held[first:] {
		if h := &it.Held[first+i]; h.Task == task && h.Text == text {
			h.Replicas += replicas
			return
		}
	}
	it.Held = append(it.Held, scheduler.Held{Cause: schedulerv1.Wait_CAUSE_POOL, Task: task, Replicas: replicas, Text: text})
}

// Ready asks the pool for what replicas want that would be placed, and returns which
// may be: those that have it, or want nothing. For others runs are taken back that have what
// these want, and are of a lower priority. See scheduler.Source.
func (s *Service) Ready(ctx context.Context, ps []scheduler.Placement, may scheduler.May) ([]bool, error) {
	ready := make([]bool, len(ps))
	if s.pool == nil || len(ps) == 0 {
		return slices.Repeat([]bool{true}, len(ps)), nil
	}
	jobs := map[string]*record{}
	for _, p := range ps {
		jobs[p.JobID] = nil
	}
	turns := map[string]time.Time{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rs, err := loadJobs(ctx, tx, sortedKeys(jobs))
		for _, r := range rs {
			if jobs[r.id] = r; r.touched() && slices.ContainsFunc(r.spec.Tasks, s.asks) {
				err = errors.Join(err, turnsOf(ctx, tx, r.id, turns))
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var list []pool.Shares
	for _, p := range ps {
		r := jobs[p.JobID]
		if r == nil || r.unplaced == 0 || p.Task >= len(r.spec.Tasks) || !s.asks(r.spec.Tasks[p.Task]) {
			continue
		}
		w := sharesOf(r, int64(p.Task))
		w.Wish, w.Replica = wishOf(r.id, p.Task, p.Replica), int32(p.Replica)
		w.Since = turns[w.Wish]
		if p.Gang {
			w.Gang = r.id
		}
		list = append(list, w)
	}
	var waits, not map[string]string
	if len(list) > 0 {
		if waits, not, err = s.pool.Ask(ctx, list); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			// What wants no shares is placed all the same.
			s.log.Warn("the pool was not asked for shares, will try again", "replicas", len(list), "error", err)
			waits, not = nil, map[string]string{}
			for _, w := range list {
				not[w.Wish] = "the pool cannot be asked now"
			}
		}
	}
	s.crowd.refuse(not, s.db.Now())
	if len(waits) > 0 && may != nil {
		if err := s.claim(ctx, ps, jobs, waits, may); err != nil { // they wait, and others are placed
			if ctx.Err() != nil {
				return nil, err
			}
			s.log.Warn("no runs taken back for shares of the pool, will try again", "replicas", len(waits), "error", err)
		}
	}
	gangs := map[string]bool{}
	for i, p := range ps {
		wish := wishOf(p.JobID, p.Task, p.Replica)
		ready[i] = waits[wish] == "" && not[wish] == ""
		if p.Gang && !ready[i] {
			gangs[p.JobID] = true
		}
	}
	for i, p := range ps {
		ready[i] = ready[i] && !(p.Gang && gangs[p.JobID])
	}
	return ready, nil
}

// Hold has replicas keep what they have beside room until then, for runs that end for them. See
// scheduler.Source.
func (s *Service) Hold(ctx context.Context, ps []scheduler.Placement, until time.Time) error {
	if s.pool == nil {
		return nil
	}
	var wishes []string
	for _, p := range ps {
		wishes = append(wishes, wishOf(p.JobID, p.Task, p.Replica))
	}
	return s.pool.Hold(ctx, wishes, until)
}

// tend keeps what replicas wait for that still do, and has those looked at again that
// have it. placed are the wishes and runs that have a place.
func (s *Service) tend(ctx context.Context, last *lent, placed map[string]bool) error {
	now := s.db.Now()
	for wish := range last.woken {
		if !placed[wish] {
			delete(last.woken, wish)
		}
	}
	var have []string
	jobs := map[string]bool{}
	for id := range placed {
		if job, _, _ := wisher(id); job != id && !last.woken[id] {
			jobs[job], have = true, append(have, id)
		}
	}
	if len(have) > 0 {
		if err := s.lookAgain(ctx, sortedKeys(jobs)); err != nil {
			return err
		}
	}
	for _, id := range have {
		last.woken[id] = true
	}
	if now.Sub(last.kept) < askPool {
		return nil
	}
	last.kept = now
	if err := s.untangle(ctx, placed); err != nil { // what waits is kept all the same
		s.log.Warn("gangs that wait for shares of the pool not looked at, will try again", "error", err)
	}
	var keep, gone []string
	err := s.db.View(ctx, func(tx *db.Tx) error {
		keep, gone = nil, nil
		asked, err := s.pool.AskedTx(ctx, tx)
		if err != nil || len(asked.Wishes) == 0 {
			return err
		}
		jobs := map[string]*record{}
		for wish := range asked.Wishes {
			job, _, _ := wisher(wish)
			jobs[job] = nil
		}
		rs, err := loadJobs(ctx, tx, sortedKeys(jobs))
		if err != nil {
			return err
		}
		for _, r := range rs {
			jobs[r.id] = r
		}
		for wish, w := range asked.Wishes {
			job, task, replica := wisher(wish)
			switch r := jobs[job]; {
			case r == nil || r.outcome != 0 || r.pauseAsked || task >= len(r.spec.Tasks) || replica >= int(r.spec.Tasks[task].ReplicaNumber) || r.unplaced == 0 && !w.Placed: // of one that was placed its run comes
				gone = append(gone, wish)
			case !w.Placed:
				keep = append(keep, wish)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.pool.Keep(ctx, keep); err != nil || len(gone) == 0 {
		return err
	}
	slices.Sort(gone)
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		for _, wish := range gone {
			if err := s.pool.RunEndedTx(ctx, tx, wish); err != nil {
				return err
			}
		}
		return nil
	})
}

// lookAgain has the queue read jobs again that wait.
func (s *Service) lookAgain(ctx context.Context, ids []string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		rs, err := loadJobs(ctx, tx, ids)
		if err != nil {
			return err
		}
		rs = slices.DeleteFunc(rs, func(r *record) bool { return r.unplaced == 0 || r.outcome != 0 || r.pauseAsked })
		slices.SortFunc(rs, func(a, b *record) int { return cmp.Compare(a.id, b.id) })
		for _, r := range rs {
			r.waitingSince = db.Micros(tx.Now)
			if err := saveJob(ctx, tx, r); err != nil {
				return err
			}
		}
		tx.AfterCommit(s.sched.Wake)
		return s.changed(ctx, tx, rs...)
	})
}
