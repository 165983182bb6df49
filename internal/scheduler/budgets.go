package scheduler

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/metering/rate"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// ProjectLabel is the label of a job that names its project.
const ProjectLabel = "project"

// Budget holds work back that would cost more than is left.
type Budget struct {
	ID                    string
	Tenant, User, Project string    // whose work; "": anybody's
	Left                  int64     // micro-yuan neither spent nor committed; below 0: too much is
	Ends                  time.Time // of its period; zero: never
	Text                  string    // what it is and has left, for people
}

func (b *Budget) covers(it *Item) bool {
	return (b.Tenant == "" || b.Tenant == it.Work.Tenant) && (b.User == "" || b.User == it.User) && (b.Project == "" || b.Project == it.Labels[ProjectLabel])
}

// cost is what a run of this length costs from now until the period ends.
func (b *Budget) cost(price core.Fen, run time.Duration, now time.Time) int64 {
	if !b.Ends.IsZero() {
		run = max(0, min(run, b.Ends.Sub(now)))
	}
	micros, err := rate.Cost(int64(price), run)
	if err != nil { // more than anything has left
		return math.MaxInt64
	}
	return micros
}

// has reports whether a budget has as much left. What costs nothing is held
// back by none.
func (b *Budget) has(micros int64) bool { return micros <= max(0, b.Left) }

// Budgets knows what work may cost.
type Budgets interface {
	// Budgets returns those that hold work back, by ID, as read at since or after.
	// What was committed before the call counts.
	Budgets(ctx context.Context, since time.Time) ([]Budget, error)
}

// SetBudgets says who knows what work may cost; without it nothing is held back
// for its cost.
func (s *Service) SetBudgets(b Budgets) { s.budgets = b }

// BudgetsChanged tells the scheduler that a budget was set or deleted: the next
// cycle knows, in another process within a second.
func (s *Service) BudgetsChanged() {
	s.budgetsChanged.Store(true)
	s.Wake()
}

const (
	// purseFresh is how long a cycle relies on what it has read of budgets, with
	// what was placed since taken off.
	purseFresh = time.Second
	// purseAgain is how soon work that a budget holds back is tried again though
	// nothing else changed: what ends sooner than expected leaves more.
	purseAgain = 5 * time.Second
)

// purse is what the scheduling loop knows of budgets.
type purse struct {
	at    time.Time
	took  time.Duration
	list  []Budget
	ids   string
	short bool // something was held back
}

// fillPurse reads the budgets if what is known of them is old. A change of which
// there are is one of the question who asks for the same.
func (c *cycler) fillPurse(ctx context.Context) (changed bool, err error) {
	if c.budgets == nil {
		return false, nil
	}
	now := c.db.Now()
	if p := c.purse; !c.budgetsChanged.Swap(false) && p != nil && now.Sub(p.at) < max(purseFresh, 20*p.took) && !slices.ContainsFunc(p.list, func(b Budget) bool { return !b.Ends.IsZero() && !b.Ends.After(now) }) {
		p.short = false
		return false, nil
	}
	list, err := c.budgets.Budgets(ctx, now)
	if err != nil {
		return false, fmt.Errorf("read the budgets: %w", err)
	}
	next := &purse{at: now, took: c.db.Now().Sub(now), list: list}
	var ids strings.Builder
	for i := range list {
		fmt.Fprintf(&ids, "%s %q %q %q ", list[i].ID, list[i].Tenant, list[i].User, list[i].Project)
	}
	next.ids = ids.String()
	changed = c.purse != nil && c.purse.ids != next.ids || c.purse == nil && len(list) > 0
	c.purse = next
	return changed, nil
}

// bounds are the indices of the budgets that an item is bounded by.
func (p *purse) bounds(it *Item) (out []int) {
	if p == nil || it.AllocationID != "" { // what is held costs the same, used or not
		return nil
	}
	for i := range p.list {
		if p.list[i].covers(it) {
			out = append(out, i)
		}
	}
	return out
}

// wake is when to look again at what was held back; far away if nothing was.
func (p *purse) wake(now time.Time, far int64) int64 {
	if p == nil || !p.short {
		return far
	}
	at := now.Add(purseAgain)
	for i := range p.list {
		if b := &p.list[i]; !b.Ends.IsZero() && b.Ends.Before(at) {
			at = b.Ends
		}
	}
	return min(far, db.Micros(at))
}

// expectedRun is how long a work is taken to run, where it is about its cost.
func (it *Item) expectedRun() time.Duration {
	if it.RunSeconds > 0 {
		return time.Duration(it.RunSeconds) * time.Second
	}
	return reach
}

// cheapest is the lowest price of a specification at any center in use.
func (d *driver) cheapest(spec string) core.Fen {
	if p, ok := d.prices[spec]; ok {
		return p
	}
	p := cheapest(d.snap, spec)
	if d.prices == nil {
		d.prices = map[string]core.Fen{}
	}
	d.prices[spec] = p
	return p
}

func cheapest(snap *registry.Snapshot, spec string) core.Fen {
	low := core.Fen(-1)
	for _, c := range snap.Centers {
		if p, ok := c.Offers[spec]; ok && !c.Drained && (low < 0 || p < low) {
			low = p
		}
	}
	return max(0, low)
}

// short is the budget that has not even enough for the least of a work at the
// lowest price; nil: there is none.
func (d *driver) short(e *entry) *Budget {
	now := db.Time(d.now)
	for _, i := range e.budgets {
		b := &d.purse.list[i]
		if d.now < e.poor {
			return b
		}
		need := int64(0)
		for k := range e.Work.Tasks {
			t := &e.Work.Tasks[k]
			n := int64(1)
			if e.Work.Gang {
				n = int64(t.Replicas)
			}
			need = plus(need, times(b.cost(d.cheapest(t.Spec), e.expectedRun(), now), n))
		}
		if !b.has(need) {
			return b
		}
	}
	return nil
}

// cap has a work look for centers only that its budgets have enough for. A gang
// of different tasks is looked at when it has its places.
func (p *purse) cap(e *entry, w *place.Work, snap *registry.Snapshot, now time.Time) {
	if e.capped = nil; len(w.Tasks) != 1 || len(e.budgets) == 0 {
		return
	}
	t := &w.Tasks[0]
	dearest := core.Fen(0)
	for _, c := range snap.Centers {
		dearest = max(dearest, c.Offers[t.Spec])
	}
	n := int64(1)
	if w.Gang {
		n = int64(max(1, t.Replicas))
	}
	for _, i := range e.budgets {
		b := &p.list[i]
		if left := max(0, b.Left) / n; b.cost(dearest, e.expectedRun(), now) > left {
			if most := b.price(left, e.expectedRun(), now); !t.MaxPrice.Known || most < t.MaxPrice.Value {
				t.MaxPrice, e.capped = place.Known(most), b
			}
		}
	}
}

// price is the highest at which a run of this length costs at most so much.
func (b *Budget) price(micros int64, run time.Duration, now time.Time) int64 {
	low, high := int64(0), int64(rate.MaxPrice)
	for low < high {
		mid := (low + high + 1) / 2
		if b.cost(core.Fen(mid), run, now) <= micros {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// afford leaves out placements that budgets have too little left for, and takes
// off what the others cost; of a gang that is all or none. A budget that had too
// little is returned with them.
func (d *driver) afford(e *entry, ps []place.Placement) (out []place.Placement, poor *Budget) {
	if len(e.budgets) == 0 {
		return ps, nil
	}
	now, run := db.Time(d.now), e.expectedRun()
	taken := make([]int64, len(e.budgets))
	for _, p := range ps {
		price := core.Fen(0)
		for i := range e.Work.Tasks {
			if t := &e.Work.Tasks[i]; t.ID == p.Task {
				price = centerOf(d.snap, p.Candidate).Offers[t.Spec]
			}
		}
		var short *Budget
		for k, i := range e.budgets {
			if b := &d.purse.list[i]; !b.has(plus(taken[k], b.cost(price, run, now))) {
				short = b
			}
		}
		if short != nil {
			poor = short
			d.dropped[replica{p.Work, p.Task, p.Replica}] = true
			continue
		}
		for k, i := range e.budgets {
			taken[k] = plus(taken[k], d.purse.list[i].cost(price, run, now))
		}
		out = append(out, p)
	}
	if e.Work.Gang && poor != nil {
		for _, p := range out {
			d.dropped[replica{p.Work, p.Task, p.Replica}] = true
		}
		return nil, poor
	}
	for k, i := range e.budgets {
		d.purse.list[i].Left -= taken[k]
	}
	return out, poor
}

// hold refuses what is offered for its cost: no room is kept for it and nothing
// is taken back for it.
func (d *driver) hold(b *Budget) {
	d.purse.short = true
	d.round.Refuse(b.Text, func(*queue.Work) (queue.Shadow, bool) { return queue.Shadow{}, false })
}

func specOf(it *Item, task string) string {
	for i := range it.Work.Tasks {
		if it.Work.Tasks[i].ID == task {
			return it.Work.Tasks[i].Spec
		}
	}
	return ""
}

// plus and times are sums and products of costs, at most the largest number.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, n int64) int64 {
	if hi, lo := bits.Mul64(uint64(a), uint64(n)); hi == 0 && lo <= math.MaxInt64 {
		return int64(lo)
	}
	return math.MaxInt64
}
