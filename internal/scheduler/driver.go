package scheduler

import (
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// keptFor is how long a center is left out for a work whose room there is kept
// for others.
const keptFor = time.Second

// replica names one of a work.
type replica struct {
	work, task string
	index      int
}

// driver has the engine place what the queue offers.
type driver struct {
	*lineup
	now     int64
	snap    *registry.Snapshot
	entries map[string]*entry
	purse   *purse
	prices  map[string]core.Fen // see cheapest
	round   *queue.Round
	offer   queue.Offer
	dropped map[replica]bool // placed beyond a limit; they go on waiting
	refused map[string]bool  // shapes for which there is no room
	missed  bool             // the queue wants one that the cycle does not look at
	wake    int64
	err     error
}

func (d *driver) order(works []*place.Work) place.Turn {
	index := make(map[string]int, len(works))
	for i, w := range works {
		index[w.ID] = i
	}
	return func(place.Amounts) (int, bool) {
		if d.err != nil {
			return 0, false
		}
		o, ok := d.next()
		if !ok {
			return 0, false
		}
		i, in := index[o.ID]
		if !in {
			if e := d.works[o.ID]; e != nil && d.entries[o.ID] == nil && specified(e, d.snap) {
				d.wants[o.ID], d.missed = true, true
				return 0, false
			}
			d.q.Remove(o.ID) // its specification is gone; the next reload looks again
			if e := d.works[o.ID]; e != nil {
				e.queued = false
			}
			d.missed = true
			return 0, false
		}
		delete(d.wants, o.ID)
		d.offer = o
		return i, true
	}
}

// next is the queue's next offer that budgets have enough for.
func (d *driver) next() (queue.Offer, bool) {
	for {
		o, ok := d.round.Next()
		if !ok {
			return o, false
		}
		if e := d.works[o.ID]; e != nil && len(e.budgets) > 0 {
			if b := d.short(e); b != nil {
				d.hold(b)
				continue
			}
		}
		return o, true
	}
}

func specified(e *entry, snap *registry.Snapshot) bool {
	return !slices.ContainsFunc(e.Work.Tasks, func(t place.Task) bool { return snap.Specs[t.Spec] == nil })
}

// placed tells the queue what came of its offer.
func (d *driver) placed(w *place.Work, ps []place.Placement, us []place.Unplaced) {
	e := d.entries[w.ID]
	if e == nil || e.AllocationID != "" || d.err != nil {
		return
	}
	if ps = d.allowed(e, ps); e.more && d.claimed(d.now) {
		for _, p := range ps {
			d.dropped[replica{p.Work, p.Task, p.Replica}] = true
		}
		ps = nil
	}
	if len(ps) == 0 && e.capped != nil { // dearer centers may have room
		d.hold(e.capped)
		return
	}
	if len(ps) == 0 {
		why := "there is no room that is not kept for others"
		if len(us) > 0 {
			why = us[0].Reason
		}
		d.refused[e.key.shape] = true
		for c := range e.kept { // has the queue see that it is not for lack of room alone
			d.round.Allows(c, e.members)
		}
		for c := range shutFor(d.shut, e.RunSeconds, db.Time(d.now)) {
			d.round.Allows(c, e.members)
		}
		d.round.Refuse(why, func(qw *queue.Work) (queue.Shadow, bool) { return d.q.Shadow(qw.ID, d.feasible(e)) })
		return
	}
	for _, p := range ps[min(len(ps), d.offer.Most):] {
		d.dropped[replica{p.Work, p.Task, p.Replica}] = true
	}
	ps, poor := d.afford(e, ps[:min(len(ps), d.offer.Most)])
	if len(ps) == 0 {
		e.poor = d.now + purseAgain.Microseconds()
		d.hold(poor)
		return
	}
	d.err = d.round.Start(holdsOf(ps, e, d.snap))
}

// allowed leaves out placements that would take what is kept for others. The
// centers where that was so are left out the next time the work is tried, which
// is at once.
func (d *driver) allowed(e *entry, ps []place.Placement) []place.Placement {
	if len(ps) == 0 || !d.round.Constrained() {
		return ps
	}
	left := map[string]int{}
	for _, p := range ps {
		left[p.Candidate]++
	}
	for c, n := range left {
		if left[c] = d.round.Allows(c, n); left[c] < n {
			if e.kept == nil {
				e.kept = map[string]int64{}
			}
			e.kept[c] = d.now + keptFor.Microseconds()
			d.missed = true // what it took in this plan is free for others in the next
		}
	}
	var out []place.Placement
	for _, p := range ps {
		if left[p.Candidate] > 0 {
			left[p.Candidate]--
			out = append(out, p)
		} else {
			d.dropped[replica{p.Work, p.Task, p.Replica}] = true
		}
	}
	if e.Work.Gang && len(out) < len(ps) {
		for _, p := range out {
			d.dropped[replica{p.Work, p.Task, p.Replica}] = true
		}
		return nil
	}
	return out
}

func holdsOf(ps []place.Placement, e *entry, snap *registry.Snapshot) []queue.Hold {
	var holds []queue.Hold
	for _, p := range ps {
		i := slices.IndexFunc(holds, func(h queue.Hold) bool { return h.Place == p.Candidate })
		if i < 0 {
			holds = append(holds, queue.Hold{Place: p.Candidate})
			i = len(holds) - 1
		}
		holds[i].Members++
		if len(e.Work.Tasks) > 1 { // members differ
			if holds[i].Amounts == nil {
				holds[i].Amounts = queue.Amounts{}
			}
			for _, t := range e.Work.Tasks {
				if t.ID == p.Task {
					for name, n := range snap.Specs[t.Spec].Quantity {
						holds[i].Amounts[name] += n
					}
				}
			}
		}
	}
	return holds
}

// feasible are the centers that could run a work if they had room, as far as
// that is quickly told; nil: any.
func (d *driver) feasible(e *entry) []string {
	out := []string{}
	for _, c := range d.snap.Centers {
		ok := !c.Drained
		for i := range e.Work.Tasks {
			t := &e.Work.Tasks[i]
			_, offered := c.Offers[t.Spec]
			ok = ok && offered && (t.Pinned == nil || slices.Contains(t.Pinned, c.ID)) && (t.Regions == nil || slices.Contains(t.Regions, c.Region)) && c.SecurityGrade >= t.MinGrade &&
				(!t.MaxPrice.Known || int64(c.Offers[t.Spec]) <= t.MaxPrice.Value)
		}
		if ok {
			out = append(out, c.ID)
		}
	}
	return out
}
