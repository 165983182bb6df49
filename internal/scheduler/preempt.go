package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

const (
	// preemptWorks are for how many works of a cycle runs are taken back at most.
	preemptWorks = 16
	// preemptAgain is how long after runs were asked to end for a work others are
	// looked for, beyond their grace.
	preemptAgain = time.Minute
	// endsIn is how long after their grace runs that end may take to have ended.
	endsIn = 30 * time.Second
	// lostAfter is how long a center is not heard of until work that could run
	// there is served by taking runs back elsewhere.
	lostAfter = 5 * time.Minute
)

// preempt takes runs back for work that was refused, where the settings allow
// it. A center that is not heard of just now may be back at once: as long as
// the work could run there, nothing is taken back for it.
func (c *cycler) preempt(ctx context.Context, d *driver) error {
	if !c.l.conf.PreemptPriority && !c.l.conf.PreemptReclaim {
		return nil
	}
	for _, e := range c.claimants(d) {
		t := c.victims(d, e)
		if len(t.attempts) == 0 {
			continue
		}
		needs := needsOf(e)
		if ready, err := c.src.Ready(ctx, needs, c.may()); err != nil {
			return fmt.Errorf("ask what else replicas need: %w", err)
		} else if slices.Contains(ready, false) { // they would end in vain
			c.freed = append(c.freed, e.Work.ID)
			c.Wake()
			continue
		}
		c.take(d, e, t)
		got, err := c.src.Preempt(ctx, t.attempts, t.why)
		if err != nil {
			return fmt.Errorf("take runs back for %s: %w", e.Work.ID, err)
		}
		if len(needs) > 0 {
			if err := c.src.Hold(ctx, needs, db.Time(d.now+t.grace).Add(endsIn)); err != nil {
				return fmt.Errorf("keep what %s needs: %w", e.Work.ID, err)
			}
		}
		c.log.Info("runs preempted", "job_id", e.Work.ID, "runs", got, "why", t.why)
	}
	return nil
}

// claimants are the works that runs might be taken back for: the first of
// every tenant whose like found no room, at most preemptWorks. The queue does
// not offer the others of a shape once one of them was refused.
func (c *cycler) claimants(d *driver) []*entry {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	var out []*entry
	for key, li := range c.l.lists {
		if !d.refused[key.shape] {
			continue
		}
		for _, e := range li.live() {
			if !e.gone && e.queued && !e.more { // nobody gives way to an elastic gang that grows
				out = append(out, e)
				break
			}
		}
	}
	slices.SortFunc(out, compare)
	return out[:min(len(out), preemptWorks)]
}

// needsOf are the replicas of a work that need something beside room.
func needsOf(e *entry) (out []Placement) {
	if !e.Asks {
		return nil
	}
	for _, t := range e.Work.Tasks {
		for _, i := range t.Indices {
			out = append(out, Placement{JobID: e.Work.ID, work: e.id, Task: int(taskIndex(t.ID)), Replica: i, Gang: e.Work.Gang})
		}
	}
	return out
}

// may says of which runs work may have what they hold that the queue does not know of: for its
// priority, where the settings allow that.
func (c *cycler) may() May {
	if !c.l.conf.PreemptPriority {
		return nil
	}
	return func(p Placement, attempts []string) (out []Yield) {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		if e := c.l.works[p.work]; e == nil || e.more { // nobody gives way to an elastic gang that grows
			return nil
		}
		runs := map[string][]string{} // by work
		for _, id := range attempts {
			if r, known := c.l.runs[id]; known {
				runs[r.id] = nil
			}
		}
		for id, r := range c.l.runs {
			if _, of := runs[r.id]; of {
				runs[r.id] = append(runs[r.id], id)
			}
		}
		for _, v := range c.l.q.Yields(p.work, slices.Collect(maps.Keys(runs)), db.Micros(c.db.Now())) {
			out = append(out, Yield{c.l.whole(runs[v.ID]), v.Lost})
		}
		return out
	}
}

// taking are runs to be taken back for a work.
type taking struct {
	attempts []string
	why      string
	works    map[string]bool // of the queue
	grace    int64           // microseconds
}

// take has the queue know that runs end for a work.
func (c *cycler) take(d *driver, e *entry, t taking) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.asked[e.id] = d.now + t.grace + preemptAgain.Microseconds()
	for id := range t.works {
		c.l.q.Expect(id, d.now+t.grace)
	}
}

// victims returns the runs to take back for a work, none if there is no need
// or no right to.
func (c *cycler) victims(d *driver, e *entry) (t taking) {
	places := d.feasible(e)
	for _, id := range places {
		if k := centerOf(d.snap, id); k.Status != registry.Available && d.snap.At.Sub(k.LastSeen) < lostAfter {
			return taking{}
		}
	}
	places = slices.DeleteFunc(places, func(id string) bool { return centerOf(d.snap, id).Status != registry.Available })
	if len(places) == 0 {
		return taking{}
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if d.now < c.l.asked[e.id] {
		return taking{}
	}
	p, ok := c.l.q.Victims(e.id, d.now, queue.VictimsOptions{Places: places, Spread: e.members > 1})
	if !ok {
		return taking{}
	}
	t.works = map[string]bool{}
	claims := map[queue.Claim]bool{}
	for _, v := range p.Victims {
		if v.Why == queue.ClaimPriority && !c.l.conf.PreemptPriority || v.Why == queue.ClaimGuarantee && !c.l.conf.PreemptReclaim || v.Shrink {
			return taking{}
		}
		t.works[v.ID], t.grace, claims[v.Why] = true, max(t.grace, v.Grace), true
	}
	for id, r := range c.l.runs {
		if t.works[r.id] {
			t.attempts = append(t.attempts, id)
		}
	}
	t.attempts = c.l.whole(t.attempts)
	t.why = fmt.Sprintf("preempted for job %s of tenant %s", e.Work.ID, e.Work.Tenant)
	if claims[queue.ClaimGuarantee] {
		t.why += ", which is below what is guaranteed to it"
	} else {
		t.why += fmt.Sprintf(", which has priority %d", e.Work.Priority)
	}
	return t
}
