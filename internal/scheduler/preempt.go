package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

const (
	// preemptWorks are for how many works of a cycle runs are taken back at most.
	preemptWorks = 16
	// preemptAgain is how long after runs were asked to end for a work others are
	// looked for, beyond their grace.
	preemptAgain = time.Minute
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
		if has, err := c.has(ctx, e); err != nil {
			return err
		} else if !has { // they would end in vain
			c.freed = append(c.freed, e.Work.ID)
			c.Wake()
			continue
		}
		c.take(d, e, t)
		got, err := c.src.Preempt(ctx, t.attempts, t.why)
		if err != nil {
			return fmt.Errorf("take runs back for %s: %w", e.Work.ID, err)
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

// has reports whether what a work needs beside room is there, and asks for it.
func (c *cycler) has(ctx context.Context, e *entry) (bool, error) {
	if !e.Asks {
		return true, nil
	}
	var asked []Placement
	for _, t := range e.Work.Tasks {
		for _, i := range t.Indices {
			asked = append(asked, Placement{JobID: e.Work.ID, Task: int(taskIndex(t.ID)), Replica: i, Gang: e.Work.Gang})
		}
	}
	ready, err := c.src.Ready(ctx, asked)
	if err != nil {
		return false, fmt.Errorf("ask what else replicas need: %w", err)
	}
	return !slices.Contains(ready, false), nil
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
