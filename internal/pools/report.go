package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/rpc"
)

// Report is what a node says.
type Report struct {
	pool.Report
	Node, Secret, Host, Version string
}

const (
	maxTasks = 10000       // of a node
	maxPower = 100_000_000 // milliwatts of a device
	// bootsLate is how late a report may come of before a node started anew.
	bootsLate = time.Minute
)

func (r *Report) check(wait time.Duration) error {
	var c core.Check
	c.ID("node_id", r.Node)
	c.Text("boot", r.Boot, true, 64, 0)
	c.Range("sequence", r.Sequence, 1, 1<<53)
	c.Range("epoch", r.Epoch, 0, 1<<53)
	c.Text("host", r.Host, false, 64, 0)
	c.Text("version", r.Version, false, 64, 0)
	c.Range("wait_ms", wait.Milliseconds(), 0, maxWait.Milliseconds())
	opencl := len(r.Devices) // they come first
	if i := slices.IndexFunc(r.Devices, func(d pool.Device) bool { return d.API == pool.CUDA }); i >= 0 {
		opencl = i
	}
	if opencl <= maxDevices && len(r.Devices) > maxDevices {
		c.Add("cuda_devices", "with devices at most %d are taken, got %d", maxDevices, len(r.Devices))
		return c.Err()
	}
	if len(r.Addresses) > 16 || len(r.Devices) > maxDevices || len(r.Tasks) > maxTasks || len(r.Ended) > maxTasks || len(r.Moved) > maxTasks {
		c.Add("devices", "at most 16 addresses, %d devices and %d tasks are taken", maxDevices, maxTasks)
		return c.Err()
	}
	for i, a := range r.Addresses {
		c.Text(fmt.Sprintf("addresses[%d]", i), a, true, 256, 0)
	}
	for i, d := range r.Devices {
		path := fmt.Sprintf("devices[%d]", i)
		if d.API == pool.CUDA {
			path = fmt.Sprintf("cuda_devices[%d]", i-opencl)
		}
		c.Text(path+".device_id", d.ID, true, 64, 0)
		for _, x := range [][2]string{{"model", d.Model}, {"vendor", d.Vendor}, {"driver", d.Driver}, {"type", d.Type}} {
			c.Text(path+"."+x[0], x[1], false, 256, 0)
		}
		c.Text(path+".bus", d.Bus, false, 64, 0)
		c.Range(path+".compute_units", d.Units, 0, 1<<30)
		c.Range(path+".memory_mib", d.Memory>>20, 0, maxMemory*1024)
		if slices.ContainsFunc(r.Devices[:i], func(o pool.Device) bool { return o.ID == d.ID }) {
			c.Add(path+".device_id", "is given twice: %q", d.ID)
		}
	}
	if len(r.Figures) > 2*maxDevices {
		c.Add("figures", "must be at most %d, got %d", 2*maxDevices, len(r.Figures))
		return c.Err()
	}
	for i, f := range r.Figures {
		path := fmt.Sprintf("figures[%d]", i)
		c.Text(path+".device_id", f.Device, true, 64, 0)
		for _, x := range [][2]string{{"model", f.Model}, {"driver", f.Driver}, {"bus", f.Bus}, {"not_lent", f.NotLent}, {"fault", f.Fault}, {"energy_source", f.Source}, {"power_limit_error", f.LimitError}} {
			c.Text(path+"."+x[0], x[1], false, 256, 0)
		}
		c.Range(path+".power_milliwatts", f.Power, 0, maxPower)
		c.Range(path+".energy_millijoules", f.Energy, 0, 1<<60)
		for name, n := range map[string]*int64{"power_limit": f.Limit, "least_power_limit": f.LeastLimit, "most_power_limit": f.MostLimit} {
			if n != nil {
				c.Range(path+"."+name+"_milliwatts", *n, 0, maxPower)
			}
		}
	}
	for i, t := range r.Tasks {
		c.Range(fmt.Sprintf("tasks[%d].energy_millijoules", i), t.Energy, 0, 1<<60)
		c.Text(fmt.Sprintf("tasks[%d].slice_id", i), t.Slice, true, 64, 0)
	}
	for i, m := range r.Moved {
		c.Text(fmt.Sprintf("moved[%d].error", i), m.Error, false, 1000, 0)
	}
	for i, e := range r.Ended {
		c.Text(fmt.Sprintf("ended[%d].reason", i), e.Reason, false, 1000, 0)
	}
	return c.Err()
}

// Report records what a node says and returns what should run there, at latest
// after wait. fault.Unauthenticated for who is not a node.
func (s *Service) Report(ctx context.Context, r Report, wait time.Duration) (pool.Wanted, error) {
	if err := r.check(wait); err != nil {
		return pool.Wanted{}, err
	}
	told := s.feed.Watch()
	defer told.Close()
	// Asked before, so that who is no node costs no writer's time.
	if err := s.known(ctx, r.Node, r.Secret); err != nil {
		return pool.Wanted{}, err
	}
	if had := s.copied.Load(); had == nil || s.db.Now().Sub(had.read) > copyLasts/2 {
		if err := s.refresh(ctx); err != nil {
			return pool.Wanted{}, err
		}
	}
	var w pool.Wanted
	var running []string
	err := s.tx(ctx, func(tx *db.Tx) (err error) {
		if err := s.KnownTx(ctx, tx, r.Node, r.Secret); err != nil { // it may have left meanwhile
			return err
		}
		w, running, err = s.reportTx(ctx, tx, &r)
		return err
	})
	if err != nil || wait == 0 || len(w.End) > 0 || r.Stopping {
		return w, err
	}
	s.waiting.Store(r.Node, waiter{r.Boot, r.Sequence})
	late := time.NewTimer(wait)
	defer late.Stop()
	look := func() (now pool.Wanted, err error) {
		if len(w.Groups) > 0 { // what they have together is kept for what is known
			if err := s.refresh(ctx); err != nil {
				return now, err
			}
		}
		err = s.db.View(ctx, func(tx *db.Tx) error {
			now, err = s.wantedTx(ctx, tx, r.Node, running)
			return err
		})
		return now, err
	}
	var again <-chan time.Time
	if len(w.Groups) > 0 {
		tick := time.NewTicker(boundsEvery)
		defer tick.Stop()
		again = tick.C
	}
	for {
		select {
		case <-ctx.Done():
			s.broken(context.WithoutCancel(ctx), &r)
			return w, fault.Wrap(fault.Canceled, ctx.Err(), "the pool node went away")
		case <-late.C:
			return w, nil
		case <-told.Changed:
			if !slices.Contains(told.Take(), r.Node) {
				continue
			}
			return look()
		case <-again:
			if now, err := look(); err != nil || !slices.Equal(now.Groups, w.Groups) {
				return now, err
			}
		}
	}
}

// known is KnownTx, and logs who is refused.
func (s *Service) known(ctx context.Context, node, secret string) error {
	err := s.db.View(ctx, func(tx *db.Tx) error { return s.KnownTx(ctx, tx, node, secret) })
	if fault.KindOf(err) == fault.Unauthenticated {
		s.log.Warn("pool node refused", "node_id", clip(node))
	}
	return err
}

const (
	// boundsEvery is how often a node with weights of groups is looked up what these may
	// have there, which changes with what they have elsewhere.
	boundsEvery = time.Second
	// beatEvery is how often a node that attends is sent something.
	beatEvery = 250 * time.Millisecond
	// cutAfter is for how long a node's machine acknowledges nothing that was cut off.
	cutAfter = time.Second
)

// Attend sends something to a node now and then, until ctx ends or the process
// begins to stop. When its machine acknowledges nothing for a while, it was cut
// off, and what it had is taken back. fault.Unauthenticated for who is not a node.
func (s *Service) Attend(ctx context.Context, node, secret string, send func() error) error {
	var c core.Check
	c.ID("node_id", node)
	if err := c.Err(); err != nil {
		return err
	}
	if err := s.known(ctx, node, secret); err != nil {
		return err
	}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	var since time.Time // what is not acknowledged was sent; zero: all is
	for {
		sent := time.Now()
		if err := send(); err != nil {
			return nil //nolint:nilerr // it went away, which its report says
		}
		select {
		case <-ctx.Done():
			return nil
		case <-rpc.Stopping(ctx):
			return nil
		case <-tick.C:
		}
		quiet := rpc.Unheard(ctx)
		if quiet == 0 {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = sent
		}
		// This process may have been slow itself: then nothing was sent for long.
		if quiet = min(quiet, time.Since(since)); quiet < cutAfter {
			continue
		}
		return s.cutOff(context.WithoutCancel(ctx), node, quiet)
	}
}

// cutOff takes back what a node had that was not heard of for a while, unless it
// reported meanwhile, on another way.
func (s *Service) cutOff(ctx context.Context, node string, quiet time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	return s.tx(ctx, func(tx *db.Tx) error {
		since := tx.Now.Add(-quiet)
		n, err := tx.Exec(ctx, `UPDATE pool_beats SET gone_at = $2 WHERE node_id = $1 AND seen_at < $3`, node, db.Micros(since), db.Micros(since.Add(2*beatEvery)))
		if err != nil || n == 0 {
			return err
		}
		if err := s.goneTx(ctx, tx, node); err != nil {
			return err
		}
		return s.fillTx(ctx, tx)
	})
}

// broken notes that a node did not wait for its answer, unless it waits for a later one: until
// it reports again nobody is given a place there.
func (s *Service) broken(ctx context.Context, r *Report) {
	if last, _ := s.waiting.Load(r.Node); last != (waiter{r.Boot, r.Sequence}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	err := s.tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE pool_beats SET gone_at = $3 WHERE node_id = $1 AND boot = $2`, r.Node, r.Boot, db.Micros(tx.Now))
		if err != nil || n == 0 {
			return err
		}
		if err := revise(ctx, tx, false); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE pool_nodes SET ending = $2, rev = `+revision+` WHERE node_id = $1`, r.Node, true)
		return err
	})
	if err != nil {
		s.log.Warn("not noted that a pool node went away", "node_id", r.Node, "error", err)
	}
}

// liveAt selects what has a place at a node, or moves there: by two indexes, which SQLite
// does not use for either of two conditions.
const liveAt = `WHERE slice_id IN (SELECT slice_id FROM pool_slices WHERE state IN (2, 3) AND node_id = $1
	UNION SELECT slice_id FROM pool_slices WHERE state IN (2, 3) AND to_node = $1) ORDER BY slice_id`

// wantedTx returns what should run at a node, and what of the running should not.
func (s *Service) wantedTx(ctx context.Context, tx *db.Tx, node string, running []string) (w pool.Wanted, err error) {
	live, err := readSlices(ctx, tx, liveAt, node)
	if err != nil {
		return w, err
	}
	for _, x := range live {
		w.Slices = append(w.Slices, pool.WantedSlice{Slice: x.ID, Compute: x.Compute, Memory: x.Memory << 20})
		if x.moves() && x.Node == node && x.leftAt.IsZero() && slices.Contains(running, x.ID) {
			m, err := s.movesTx(ctx, tx, x)
			if err != nil {
				return w, err
			}
			w.Moves = append(w.Moves, m)
		}
	}
	err = tx.Query(ctx, `SELECT device_id, power_limit FROM pool_devices WHERE node_id = $1 AND power_limit <> 0 AND present ORDER BY device_id`, []any{node}, func(row db.Row) error {
		var p pool.WantedPower
		err := row.Scan(&p.Device, &p.Watts)
		w.Power = append(w.Power, p)
		return err
	})
	if err != nil {
		return w, fmt.Errorf("read what devices may draw: %w", err)
	}
	for _, id := range running {
		if !slices.ContainsFunc(live, func(x *Slice) bool { return x.ID == id }) {
			w.End = append(w.End, id)
		}
	}
	w.Groups, err = s.boundsTx(ctx, tx, node, live)
	return w, err
}

// boundsTx returns what groups that have weights at a node may have there together: of
// what the group may have at all nodes the part that its slices there have of all its
// slices, as what is lent at each node never is more than that.
func (s *Service) boundsTx(ctx context.Context, tx *db.Tx, node string, live []*Slice) (all []pool.WantedGroup, err error) {
	for _, x := range live {
		if !x.Weighted || slices.ContainsFunc(all, func(g pool.WantedGroup) bool { return g.Group == x.Group }) {
			continue
		}
		var limit, here int64
		if _, err := tx.Get(ctx, `SELECT compute_limit FROM pool_groups WHERE group_id = $1`, []any{x.Group}, &limit); err != nil {
			return nil, fmt.Errorf("read what group %s may have: %w", x.Group, err)
		}
		if limit == 0 {
			continue
		}
		for _, y := range live {
			for _, n := range []string{y.Node, y.ToNode} { // what moves has a place at both
				if y.Group == x.Group && n == node {
					here += y.Compute
				}
			}
		}
		total, err := s.totalTx(ctx, tx, x.Group)
		if err != nil {
			return nil, err
		}
		all = append(all, pool.WantedGroup{Group: x.Group, Compute: max(limit*here/total, 1)})
	}
	return all, nil
}

// reportTx records a report, and returns what wantedTx does and what runs.
func (s *Service) reportTx(ctx context.Context, tx *db.Tx, r *Report) (w pool.Wanted, running []string, err error) {
	for _, t := range r.Tasks {
		running = append(running, t.Slice)
	}
	b, err := readBeat(ctx, tx, r.Node)
	if err != nil {
		return w, nil, err
	}
	if b.boot == r.Boot && r.Sequence <= b.sequence || b.before == r.Boot && tx.Now.Sub(b.seen) < bootsLate {
		w, err = s.wantedTx(ctx, tx, r.Node, running)
		return w, running, err
	}
	for _, m := range r.Moved {
		if err := s.movedTx(ctx, tx, r.Node, m); err != nil {
			return w, nil, err
		}
	}
	live, err := readSlices(ctx, tx, liveAt, r.Node)
	if err != nil {
		return w, nil, err
	}
	for _, x := range live {
		if over, err := overWithSet(ctx, tx, x); err != nil {
			return w, nil, err
		} else if over {
			continue
		}
		if err := s.heardTx(ctx, tx, r, b, x); err != nil {
			return w, nil, err
		}
	}
	if w, err = s.wantedTx(ctx, tx, r.Node, running); err != nil {
		return w, nil, err
	}
	changed, err := s.nodeTx(ctx, tx, r, !r.Stopping, len(w.End) > 0)
	if err != nil {
		return w, nil, err
	}
	if !r.Stopping && slices.ContainsFunc(live, func(x *Slice) bool { return !r.shows(x.Device) }) {
		anew, err := s.deviceGoneTx(ctx, tx, r)
		if err != nil {
			return w, nil, err
		}
		changed = changed || anew
	}
	next := &beat{boot: r.Boot, before: b.before, sequence: r.Sequence, epoch: r.Epoch, seen: tx.Now, tasks: []reported{}, ended: r.Ended, figures: r.Figures}
	if b.boot != r.Boot {
		next.before = b.boot
	}
	if r.Stopping {
		next.gone = tx.Now
	}
	for _, t := range r.Tasks {
		next.tasks = append(next.tasks, reported{Slice: t.Slice, Used: t.Used, Busy: t.Busy.Microseconds(), Programs: int64(t.Programs), Device: t.Device, Energy: t.Energy})
	}
	if err := putBeat(ctx, tx, r.Node, next); err != nil {
		return w, nil, err
	}
	if changed {
		if err := s.emit(ctx, tx, r.Node); err != nil {
			return w, nil, err
		}
		err = s.fillTx(ctx, tx)
	}
	return w, running, err
}

// heardTx follows what a node says of a slice.
func (s *Service) heardTx(ctx context.Context, tx *db.Tx, r *Report, last *beat, x *Slice) error {
	if x.ToNode == r.Node && slices.ContainsFunc(r.Tasks, func(t pool.Task) bool { return t.Slice == x.ID && t.Device == x.ToDevice }) {
		return s.arriveTx(ctx, tx, x)
	}
	if x.Node != r.Node {
		return nil // it has not come yet
	}
	runs := slices.ContainsFunc(r.Tasks, func(t pool.Task) bool { return t.Slice == x.ID })
	reason, ended := programEnded, false
	for _, e := range r.Ended {
		if e.Slice == x.ID && (last.boot != r.Boot || !slices.Contains(last.ended, e)) { // else it was heard
			ended, reason, x.said = true, e.Reason, true
			x.past, x.pastEnergy = x.past+e.Busy, x.pastEnergy+e.Energy
			x.Busy, x.Energy = x.past, x.pastEnergy
		}
	}
	if !ended {
		last.did(x)
	}
	switch {
	case runs && x.State == Assigned:
		if x.State = Running; x.StartedAt.IsZero() {
			x.StartedAt = tx.Now
		}
		if err := s.logs.AddTx(ctx, tx, about(x, logs.Info, "task started", x.asked())); err != nil {
			return err
		}
	case runs && x.Fixed && (ended || last.boot != r.Boot): // the next program has it
		x.past, x.pastEnergy = x.Busy, x.Energy
	case runs, x.State == Assigned && !ended: // as it was, or its program has not come yet
		return nil
	case !x.leftAt.IsZero() && !ended: // it had gone, whatever has become of the node since
		return nil
	case x.moves() && !ended && last.boot == r.Boot: // it has gone
		x.leftAt = tx.Now
		return putSlice(ctx, tx, x)
	case x.Fixed:
		x.State = Assigned
		if strings.HasPrefix(reason, pool.Released) { // its time is over
			return s.endedTx(ctx, tx, x, reason)
		}
		if x.moves() { // nothing is there that its node would move
			if err := s.stayTx(ctx, tx, x, reason); err != nil {
				return err
			}
			if err := putSlice(ctx, tx, x); err != nil {
				return err
			}
			return s.fillTx(ctx, tx)
		}
	default:
		return s.endedTx(ctx, tx, x, reason)
	}
	if err := putSlice(ctx, tx, x); err != nil {
		return err
	}
	return s.emit(ctx, tx, x.ID)
}

// endedTx is endTx and fillTx.
func (s *Service) endedTx(ctx context.Context, tx *db.Tx, x *Slice, reason string) error {
	if err := s.endTx(ctx, tx, x, reason); err != nil {
		return err
	}
	return s.fillTx(ctx, tx)
}

// shows reports whether the node has a device.
func (r *Report) shows(device string) bool {
	return slices.ContainsFunc(r.Devices, func(d pool.Device) bool { return d.ID == device })
}

// deviceGoneTx has slices placed anew that have a place at a device which their node
// does not show any more, and reports whether there are any. What a program uses is
// its node's to end.
func (s *Service) deviceGoneTx(ctx context.Context, tx *db.Tx, r *Report) (anew bool, err error) {
	for {
		list, err := readSlices(ctx, tx, `WHERE state = 2 AND node_id = $1 ORDER BY slice_id`, r.Node)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(list, func(x *Slice) bool { return !r.shows(x.Device) })
		if i < 0 {
			return anew, nil
		}
		anew = true // with others, which the list would have still
		if err := s.anewWithSetTx(ctx, tx, list[i], fmt.Sprintf("device %s of pool node %s is gone", list[i].Device, r.Node)); err != nil {
			return false, err
		}
	}
}

// nodeTx stores what changed of a node, and reports whether something did.
func (s *Service) nodeTx(ctx context.Context, tx *db.Tx, r *Report, online, ending bool) (changed bool, err error) {
	n, err := readNode(ctx, tx, r.Node, false)
	if err != nil {
		return false, err
	}
	if n.Ending != ending {
		changed = true
		if err := revise(ctx, tx, false); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, `UPDATE pool_nodes SET ending = $2, rev = `+revision+` WHERE node_id = $1`, n.ID, ending); err != nil {
			return false, fmt.Errorf("store that pool node %s ends something: %w", n.ID, err)
		}
	}
	if n.Online != online || n.Host != r.Host || n.Version != r.Version || !slices.Equal(n.Addresses, r.Addresses) {
		changed = true
		if err := revise(ctx, tx, false); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, `UPDATE pool_nodes SET online = $2, host = $3, version = $4, addresses = $5, rev = `+revision+` WHERE node_id = $1`, n.ID, online, r.Host, r.Version, toJSON(r.Addresses)); err != nil {
			return false, fmt.Errorf("store pool node %s: %w", n.ID, err)
		}
		tx.AfterCommit(func() { s.log.Info("pool node changed", "node_id", n.ID, "online", online) })
		if n.Online != online {
			what := map[bool]string{true: "node is online", false: "node is offline"}[online]
			if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Info, Message: what, Node: n.ID, Details: "version=" + r.Version}); err != nil {
				return false, err
			}
		}
	}
	for _, seen := range r.Devices {
		d := &Device{ID: seen.ID, ComputeLimit: minLimit, MemoryRatio: minLimit}
		if i := slices.IndexFunc(n.Devices, func(d *Device) bool { return d.ID == seen.ID }); i >= 0 {
			d = n.Devices[i]
		}
		was := *d
		d.API, d.Bus = cmp.Or(seen.API, pool.OpenCL), seen.Bus
		d.Model, d.Vendor, d.Driver, d.Type, d.Units, d.Memory, d.Present = seen.Model, seen.Vendor, seen.Driver, seen.Type, seen.Units, seen.Memory>>20, true
		d.MemoryLimit = max(d.Memory*d.MemoryRatio/100, d.MemoryLent) // of another card in its place
		if *d == was {
			continue
		}
		changed = true
		if err := putDevice(ctx, tx, n.ID, d); err != nil {
			return false, err
		}
	}
	for _, d := range n.Devices {
		if r.shows(d.ID) {
			continue
		}
		switch {
		case d.Used == 0 && !d.set():
			changed = true
			if err := revise(ctx, tx, true); err != nil {
				return false, err
			}
			if _, err := tx.Exec(ctx, `DELETE FROM pool_devices WHERE node_id = $1 AND device_id = $2`, n.ID, d.ID); err != nil {
				return false, fmt.Errorf("remove device %s of pool node %s: %w", d.ID, n.ID, err)
			}
		case d.Present:
			changed, d.Present = true, false
			if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Error, Message: "device is gone", Node: n.ID, Device: d.ID, Details: fmt.Sprintf("model=%q", d.Model)}); err != nil {
				return false, err
			}
			if err := putDevice(ctx, tx, n.ID, d); err != nil {
				return false, err
			}
		}
	}
	return changed, nil
}
