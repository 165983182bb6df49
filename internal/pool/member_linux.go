package pool

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// How a node talks to its platform: one report waits there until there is
// something to do, so that the platform hears at once that the node is gone;
// others go beside it when something changed here.
const (
	reportWait  = 2 * time.Second
	reportAgain = 250 * time.Millisecond // after an error, and longer from then on
	reportLate  = 5 * time.Second
)

// membership is what a member node keeps beside its tasks; the node's mu guards it.
type membership struct {
	boot     string
	since    time.Time
	sequence int64
	ended    []EndedTask
	brief    []brief          // tasks that came and ended before the platform heard that they came
	used     map[string]int64 // serials of tickets, with their epochs
	moved    []Moved
	begun    map[string]string // the last move of a task, by slice
	changed  chan struct{}
	stopping bool
	limited  map[string]limited // limits of power that the platform wants, by device
}

// brief is a task that is reported as running once, so that the platform ends the
// slice here, and not as one that never came.
type brief struct {
	task  Task
	ended EndedTask
}

// limited is the last one that was tried.
type limited struct {
	watts int64
	error string
	at    time.Time
}

// limitsAgain is when a limit of power is set once more that was not set, or does not hold.
const limitsAgain = 30 * time.Second

func (n *Node) epoch() int64 { return int64(time.Since(n.member.since) / EpochLength) }

// use takes a ticket, which is good once, and returns its device, or the task of its
// slice that it shares. The caller has the lock.
func (n *Node) use(t *Ticket) (*device, *task, error) {
	m, now := n.member, n.epoch()
	_, again := m.used[t.Serial]
	switch {
	case t.Boot != m.boot || now-t.Epoch > TicketEpochs || again:
		n.log.Warn("ticket refused", "slice_id", t.Slice, "serial", t.Serial, "used", again)
		return nil, nil, fault.New(fault.Unauthenticated, "the ticket was used, or is too old")
	case n.closed:
		return nil, nil, fault.New(fault.Unavailable, "the pool node stops")
	}
	maps.DeleteFunc(m.used, func(_ string, epoch int64) bool { return now-epoch > TicketEpochs })
	m.used[t.Serial] = t.Epoch
	if err := t.Spec.check(); err != nil {
		return nil, nil, err
	}
	for _, k := range n.tasks {
		switch {
		case k.Slice != t.Slice:
		case t.Shared && !t.Move:
			return nil, k, nil
		case !t.Move || k.moving == nil:
			return nil, nil, fault.New(fault.Exhausted, "a program runs on slice %s already: what that starts shares the slice; start others from it, or when it has ended", t.Slice)
		}
	}
	i := slices.IndexFunc(n.devices, func(d *device) bool { return d.ID == t.Spec.Device && !d.Gone })
	if i < 0 {
		return nil, nil, fault.New(fault.NotFound, "there is no device %q", t.Spec.Device)
	}
	return n.devices[i], nil, nil
}

// twinFor is how long a ticket waits for its card to be given back that was lent
// by the other interface.
const twinFor = 5 * time.Second

// awaitTwin waits until the card of a ticket's device is not lent by the other
// interface any more: a platform lends it by one at a time, but may be ahead of what
// the node was told to end. The caller has the lock, which is given up meanwhile.
func (n *Node) awaitTwin(t *Ticket) error {
	for late := time.Now().Add(twinFor); ; {
		i := slices.IndexFunc(n.devices, func(d *device) bool { return d.ID == t.Spec.Device })
		if i < 0 {
			return nil // which is said when the ticket is used
		}
		x := n.twin(n.devices[i])
		switch {
		case x == nil:
			return nil
		case n.closed || time.Now().After(late):
			return fault.New(fault.Unavailable, "device %s is the card that is lent as %s now", t.Spec.Device, x.ID)
		}
		n.mu.Unlock()
		<-time.After(twinAgain)
		n.mu.Lock()
	}
}

const twinAgain = 5 * time.Millisecond

// admit makes the task that a ticket is for, or finds the one of its slice that it shares.
// The caller has the lock.
func (n *Node) admit(t *Ticket) (reply, error) {
	if err := n.awaitTwin(t); err != nil {
		return reply{}, err
	}
	d, k, err := n.use(t)
	if err != nil {
		return reply{}, err
	}
	if k == nil {
		if k, err = newTask(d, t.Spec, t.Spec.Memory); err != nil {
			return reply{}, err
		}
		k.Group, k.Slice, k.account.quota = t.Group, t.Slice, n.quotaOf(t.Group)
		k.memory.SetOver(t.Pages && d.Pages)
		n.tasks[k.ID] = k
		n.changed()
		n.log.Info("task started", "task_id", k.ID, "slice_id", k.Slice, "group", k.Group, "device", k.Device, "compute", k.Compute, "memory_bytes", t.Spec.Memory)
	} else {
		n.log.Info("task joined", "task_id", k.ID, "slice_id", k.Slice)
	}
	shown := k.show()
	return reply{Task: &shown, Token: hex.EncodeToString(k.token)}, nil
}

// changed has the platform told. The caller has the lock.
func (n *Node) changed() {
	select {
	case n.member.changed <- struct{}{}:
	default:
	}
}

// report is the next report.
func (n *Node) report() Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.member
	m.sequence++
	var lent []Device
	var figures []Figure
	for _, d := range n.listDevices(nil) {
		if d.Gone {
			continue
		}
		f := d.figure()
		f.LimitError = m.limited[d.ID].error
		if figures = append(figures, f); d.NotLent == "" {
			lent = append(lent, d)
		}
	}
	r := Report{Boot: m.boot, Sequence: m.sequence, Epoch: n.epoch(), Addresses: n.Addresses(), Devices: lent, Figures: figures, Ended: slices.Clone(m.ended), Moved: slices.Clone(m.moved), Stopping: m.stopping}
	for _, t := range n.sorted() {
		if t.Slice != "" {
			r.Tasks = append(r.Tasks, t.show())
		}
	}
	for _, b := range m.brief {
		r.Tasks = append(r.Tasks, b.task)
	}
	return r
}

// obey does what the platform wants, and forgets what it was told.
func (n *Node) obey(told Report, w Wanted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.member
	m.ended = slices.DeleteFunc(m.ended, func(e EndedTask) bool { return slices.Contains(told.Ended, e) })
	m.moved = slices.DeleteFunc(m.moved, func(e Moved) bool { return slices.Contains(told.Moved, e) })
	heard := func(id string) bool {
		return slices.ContainsFunc(told.Tasks, func(t Task) bool { return t.ID == id })
	}
	m.brief = slices.DeleteFunc(m.brief, func(b brief) bool {
		if !heard(b.task.ID) {
			return false
		}
		m.ended = append(m.ended, b.ended)
		n.changed()
		return true
	})
	maps.DeleteFunc(m.begun, func(slice, _ string) bool {
		return !slices.ContainsFunc(w.Slices, func(s WantedSlice) bool { return s.Slice == slice })
	})
	n.limitGroups(w.Groups)
	n.limitDevices(w.Power)
	for _, t := range n.sorted() {
		if t.Slice == "" {
			continue
		}
		t.came = t.came && !heard(t.ID)
		if slices.Contains(w.End, t.Slice) {
			n.endLocked(t, Released+"the platform ended the slice")
			continue
		}
		for _, x := range w.Moves {
			if x.Slice == t.Slice && m.begun[x.Slice] != x.ID && !n.closed {
				m.begun[x.Slice] = x.ID
				n.work.Go(func() { n.moveSlice(t, x) })
			}
		}
		i := slices.IndexFunc(w.Slices, func(s WantedSlice) bool { return s.Slice == t.Slice })
		if i < 0 || t.parting || w.Slices[i].Compute == t.Compute && w.Slices[i].Memory == int64(t.memory.Limit()) || (Spec{Compute: w.Slices[i].Compute, Memory: w.Slices[i].Memory}).check() != nil {
			continue
		}
		n.resizeLocked(t, w.Slices[i].Compute, w.Slices[i].Memory)
	}
}

// quotaOf is the quota of a group, which the platform may set. The caller has the lock.
func (n *Node) quotaOf(group string) *quota {
	if n.member != nil && n.quotas[group] == nil {
		n.quotas[group] = &quota{}
	}
	return n.quotas[group]
}

// limitGroups sets the quotas of the platform's groups. The caller has the lock.
func (n *Node) limitGroups(groups []WantedGroup) {
	to := map[string]int64{}
	for _, g := range groups {
		to[g.Group] = g.Compute
	}
	used := map[*quota]bool{}
	for _, all := range []map[string]*task{n.tasks, n.arriving} {
		for _, t := range all {
			used[t.account.quota] = true
		}
	}
	maps.DeleteFunc(n.quotas, func(group string, q *quota) bool {
		q.set(time.Now(), to[group])
		return !used[q]
	})
}

// limitDevices sets what devices may draw as the platform wants, where their cards say that they
// draw more or less. A card that starts anew, or comes back, has forgotten. The caller has the lock.
func (n *Node) limitDevices(power []WantedPower) {
	if len(power) == 0 || n.closed {
		return
	}
	limits := n.member.limited
	for _, d := range n.listDevices(nil) {
		i := slices.IndexFunc(power, func(p WantedPower) bool { return p.Device == d.ID })
		if i < 0 || d.Gone || d.Card == nil || d.Card.LeastLimit == nil { // or not yet
			continue
		}
		p, last := power[i], limits[d.ID]
		anew := last.watts != p.Watts
		if now := d.Card.Limit; now != nil && *now/1000 == limitOf(d.Card, p.Watts)/1000 {
			limits[d.ID] = limited{watts: p.Watts}
			continue
		}
		if !anew && time.Since(last.at) < limitsAgain {
			continue
		}
		next := limited{watts: p.Watts, at: time.Now()}
		if !anew {
			next.error = last.error
		}
		limits[d.ID] = next
		n.work.Go(func() { n.limitAs(p) })
	}
}

// limitAs sets what a device may draw as the platform wants, and has it told if that failed.
func (n *Node) limitAs(p WantedPower) {
	why := ""
	if err := n.limitPower(p.Device, max(p.Watts, 0)); err != nil {
		why, _ = fault.Message(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.member.limited[p.Device]
	if last.watts != p.Watts || last.error == why {
		return // it wants another by now, or knows that
	}
	if why != "" {
		n.log.Warn("limit of power not set", "device", p.Device, "watts", p.Watts, "error", why, "again_in", limitsAgain)
	}
	last.error = why
	n.member.limited[p.Device] = last
	n.changed()
}

// moveSlice moves a task as the platform wants, and has it told how that went.
func (n *Node) moveSlice(t *task, m Move) {
	w := way{key: m.Key, here: len(m.Addresses) == 0}
	w.dial = func(ctx context.Context) (client *Client, err error) {
		if w.here {
			return DialTicket(ctx, n.Addresses()[0], m.Ticket, m.Key)
		}
		for _, at := range m.Addresses {
			if client, err = DialTicket(ctx, at, m.Ticket, m.Key); fault.KindOf(err) != fault.Unavailable {
				break
			}
		}
		return client, err
	}
	r, err := n.move(t, w)
	n.mu.Lock()
	defer n.mu.Unlock()
	done := Moved{Slice: m.Slice, ID: m.ID, Pause: r.Pause}
	if err != nil {
		done.Error = err.Error()
	}
	n.member.moved = append(n.member.moved, done)
	n.changed()
}

// Attend keeps a member's platform informed until ctx is done, beside [Node.Run].
// It returns the platform's refusal of the node.
func (n *Node) Attend(ctx context.Context, tell Tell) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	once := func(ctx context.Context, wait time.Duration) error {
		n.telling.RLock()
		defer n.telling.RUnlock()
		r := n.report()
		w, err := tell(ctx, r, wait)
		switch {
		case err == nil:
			n.obey(r, w)
		case fault.KindOf(err) == fault.Unauthenticated:
			cancel(err)
		}
		return err
	}
	loop := func(wait time.Duration, due <-chan struct{}) {
		late := reportAgain
		for ctx.Err() == nil {
			if due != nil {
				select {
				case <-ctx.Done():
					return
				case <-due:
				}
			}
			err := once(ctx, wait)
			if err == nil {
				late = reportAgain
				continue
			}
			if ctx.Err() == nil {
				n.log.Warn("platform not told, will try again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(late):
				late = min(2*late, reportLate)
			}
			if due != nil {
				n.mu.Lock()
				n.changed()
				n.mu.Unlock()
			}
		}
	}
	var loops sync.WaitGroup
	loops.Go(func() { loop(reportWait, nil) })
	loops.Go(func() { loop(0, n.member.changed) })
	<-ctx.Done()
	loops.Wait()
	if err := context.Cause(ctx); fault.KindOf(err) == fault.Unauthenticated {
		return err
	}
	n.mu.Lock()
	n.member.stopping = true
	n.mu.Unlock()
	bye, done := context.WithTimeout(context.WithoutCancel(ctx), reportWait)
	defer done()
	_ = once(bye, 0) // otherwise the platform sees that nothing comes
	return nil
}
