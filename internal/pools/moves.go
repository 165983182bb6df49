package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// moves reports whether a slice is being moved.
func (s *Slice) moves() bool { return s.ToNode != "" }

// Move moves a slice to another device while its programs compute, and waits for
// as long as wait. device "" is any of the node's. What speaks against it is
// fault.Conflict, or Exhausted if there is no room; asking again while it moves
// there changes nothing.
func (s *Service) Move(ctx context.Context, id, node, device string, wait time.Duration) (out *Slice, err error) {
	var c core.Check
	c.ID("node_id", node)
	c.Text("device_id", device, false, 64, 0)
	if c.Range("wait_ms", wait.Milliseconds(), 0, maxWait.Milliseconds()); c.Err() != nil {
		return nil, c.Err()
	}
	told := s.feed.Watch()
	defer told.Close()
	err = s.tx(ctx, func(tx *db.Tx) error {
		x, err := own(ctx, tx, id)
		if err != nil {
			return err
		}
		switch {
		case x.moves() && x.ToNode == node && (device == "" || x.ToDevice == device), !x.moves() && x.Node == node && x.Device == device:
			out, err = s.readTx(ctx, tx, id)
			return err
		case x.moves():
			return fault.New(fault.Conflict, "slice %s is being moved to %s/%s", id, x.ToNode, x.ToDevice)
		case x.State != Assigned && x.State != Running:
			return fault.New(fault.Conflict, "slice %s has no place", id)
		case x.State == Running && x.API == pool.CUDA:
			return fault.New(fault.Conflict, "slice %s is of CUDA: its program has pointers of its device's and does not move; a slice that is held moves when no program runs on it", id)
		}
		to, err := targetTx(ctx, tx, x, node, device)
		if err != nil {
			return err
		}
		x.ToNode, x.ToDevice, x.moveID, x.MoveError, x.Pause = node, to.ID, core.NewID("move"), "", 0
		if err := lend(ctx, tx, x.ToNode, x.ToDevice, x.counted(), x.Memory, 1); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		if x.State == Assigned { // no program is there
			err = s.arriveTx(ctx, tx, x)
		} else if err = putSlice(ctx, tx, x); err == nil {
			err = s.emit(ctx, tx, x.ID, x.Node)
		}
		if err != nil {
			return err
		}
		out, err = s.readTx(ctx, tx, id)
		return err
	})
	late := time.NewTimer(wait)
	defer late.Stop()
	for err == nil && out.State == Running && wait > 0 && (out.moves() || out.MoveError == "" && out.Pause == 0) {
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Canceled, ctx.Err(), "the caller went away")
		case <-late.C:
			return out, nil
		case <-told.Changed:
			if !slices.Contains(told.Take(), id) {
				continue
			}
			err = s.db.View(ctx, func(tx *db.Tx) (err error) {
				out, err = s.readTx(ctx, tx, id)
				return err
			})
		}
	}
	return out, err
}

// targetTx returns the device of a node that a slice may move to.
func targetTx(ctx context.Context, tx *db.Tx, x *Slice, node, device string) (*Device, error) {
	to, err := readNode(ctx, tx, node, false)
	if err != nil {
		return nil, err
	}
	at := to
	if node != x.Node {
		if at, err = readNode(ctx, tx, x.Node, false); err != nil {
			return nil, err
		}
	}
	groups, err := readGroups(ctx, tx)
	if err != nil {
		return nil, err
	}
	g := groups[slices.IndexFunc(groups, func(g *Group) bool { return g.ID == x.Group })]
	live, err := neighbors(ctx, tx, []*Slice{x})
	if err != nil {
		return nil, err
	}
	x.regard(live)
	now := at.Devices[slices.IndexFunc(at.Devices, func(d *Device) bool { return d.ID == x.Device })]
	switch {
	case !to.Online:
		return nil, fault.New(fault.Conflict, "pool node %s is offline", node)
	case to.Ending:
		return nil, fault.New(fault.Conflict, "pool node %s takes nothing just now: it ends what was taken back there, or its report broke off", node)
	case to.Mode != Enabled:
		return nil, fault.New(fault.Conflict, "pool node %s is disabled or leaves", node)
	case to.Version != at.Version:
		return nil, fault.New(fault.Conflict, "pool node %s has version %s, and %s version %s: programs move between nodes of one version", node, to.Version, at.ID, at.Version)
	}
	var best *Device
	why := fault.New(fault.NotFound, "pool node %s has no device of the model %s with the driver %s", node, now.Model, now.Driver)
	switch {
	case device != "" && (node != x.Node || device != x.Device):
		why = fault.New(fault.NotFound, "pool node %s has no device %q", node, device)
	case node == x.Node:
		why = fault.New(fault.Conflict, "slice %s is on device %s of pool node %s already, which has no other of the model %s with the driver %s", x.ID, x.Device, node, now.Model, now.Driver)
	}
	for _, d := range to.Devices {
		switch left := d.ComputeLimit - d.ComputeLent; {
		case device != "" && d.ID != device, d == now:
		case d.API != now.API || d.Model != now.Model || d.Vendor != now.Vendor || d.Driver != now.Driver:
			if device != "" {
				why = fault.New(fault.Conflict, "device %s is %s with the driver %s; the slice's is %s with the driver %s: both must be the same", d.ID, d.Model, d.Driver, now.Model, now.Driver)
			}
		case to.lentAs(d) != nil:
			why = fault.New(fault.Exhausted, "device %s of pool node %s is the card that is lent as %s now", d.ID, node, to.lentAs(d).ID)
		case !d.Present || d.Disabled:
			why = fault.New(fault.Conflict, "device %s of pool node %s is disabled or gone", d.ID, node)
		case d.Physical != x.Physical:
			why = fault.New(fault.Conflict, "device %s of pool node %s differs from the slice's in its virtualization", d.ID, node)
		case !g.has(node, d.ID):
			why = fault.New(fault.Conflict, "device %s of pool node %s is not in group %s", d.ID, node, g.ID)
		case x.beside != nil && *x.beside != [2]string{node, d.ID}, x.apart[[2]string{node, d.ID}], x.apart[[2]string{node}]:
			why = fault.New(fault.Conflict, "device %s of pool node %s is not where the slice's affinity, or the other cards of its program, let it be", d.ID, node)
		case x.home != "" && x.home != node:
			why = fault.New(fault.Conflict, "slice %s stays on pool node %s: a program of CUDA has cards of one node", x.ID, x.home)
		case left < x.counted() || d.MemoryLimit-d.MemoryLent < x.Memory || x.Physical && d.Used > 0:
			why = fault.New(fault.Exhausted, "device %s of pool node %s has %d%% and %d MiB left, %d%% and %d MiB are wanted", d.ID, node, left, d.MemoryLimit-d.MemoryLent, x.counted(), x.Memory)
		case x.Memory > d.Memory: // it may lend more than it has, not to one
			why = fault.New(fault.Exhausted, "device %s of pool node %s has %d MiB of memory, %d MiB are wanted", d.ID, node, d.Memory, x.Memory)
		case x.Physical && g.MemoryLimit > 0 && g.MemoryLent+d.Memory-x.Memory > g.MemoryLimit:
			why = fault.New(fault.Exhausted, "group %s has too little of its quota left for %d MiB of a whole card: %d MiB are lent", g.ID, d.Memory, g.MemoryLent)
		case best == nil || left > best.ComputeLimit-best.ComputeLent:
			best = d
		}
	}
	if best == nil {
		return nil, why
	}
	return best, nil
}

// movesTx returns how a slice's node is to move it.
func (s *Service) movesTx(ctx context.Context, tx *db.Tx, x *Slice) (m pool.Move, err error) {
	to, err := readNode(ctx, tx, x.ToNode, false)
	if err != nil {
		return m, err
	}
	secret, err := s.secretTx(ctx, tx, x.ToNode)
	if err != nil {
		return m, err
	}
	b, err := readBeat(ctx, tx, x.ToNode)
	if err != nil {
		return m, err
	}
	m = pool.Move{Slice: x.ID, ID: x.moveID}
	if x.ToNode != x.Node { // programs reach it from anywhere, if that can be
		m.Addresses = slices.Clone(to.Addresses)
		slices.SortStableFunc(m.Addresses, strings.Compare) // rdma before tcp before unix
	}
	t := pool.Ticket{Node: x.ToNode, Boot: b.boot, Epoch: b.epoch, Serial: x.moveID, Slice: x.ID, Group: x.Group, Move: true,
		Spec: pool.Spec{Device: x.ToDevice, Compute: x.Compute, Memory: x.Memory << 20, Weighted: x.Weighted, Idle: x.Idle, Limit: x.Limit, Name: x.Name}}
	m.Ticket, m.Key, err = t.Sign(secret)
	return m, err
}

// arriveTx gives a slice that moved its new place only.
func (s *Service) arriveTx(ctx context.Context, tx *db.Tx, x *Slice) error {
	if err := s.meterTx(ctx, tx, x, tx.Now); err != nil {
		return err
	}
	if err := lend(ctx, tx, x.Node, x.Device, -x.counted(), -x.Memory, -1); err != nil {
		return err
	}
	was := x.Node
	x.Node, x.Device, x.ToNode, x.ToDevice, x.leftAt = x.ToNode, x.ToDevice, "", "", time.Time{}
	if x.Physical {
		if err := s.wholeTx(ctx, tx, x); err != nil {
			return err
		}
	}
	if err := putSlice(ctx, tx, x); err != nil {
		return err
	}
	tx.AfterCommit(func() { s.log.Info("slice moved", "slice_id", x.ID, "from", was, "to", x.Node, "device", x.Device) })
	if err := s.emit(ctx, tx, x.ID, was, x.Node); err != nil {
		return err
	}
	return s.fillTx(ctx, tx)
}

// wholeTx gives a slice all memory of the card that it has now, which may have more
// than the one it came from: as its group may have that, or, if others of it took that
// meanwhile, what it had. The caller stores it.
func (s *Service) wholeTx(ctx context.Context, tx *db.Tx, x *Slice) error {
	n, err := readNode(ctx, tx, x.Node, false)
	if err != nil {
		return err
	}
	had := x.Memory
	for _, d := range n.Devices {
		if d.ID == x.Device {
			x.Memory = max(had, d.Memory)
		}
	}
	if x.Memory == had {
		return nil
	}
	if err := s.roomTx(ctx, tx, x, 0, x.Memory-had); err != nil {
		if fault.KindOf(err) != fault.Exhausted {
			return err
		}
		tx.AfterCommit(func() {
			s.log.Warn("a whole card has less memory than there is", "slice_id", x.ID, "memory_mib", had, "reason", err)
		})
		x.Memory = had
		return nil
	}
	return lend(ctx, tx, x.Node, x.Device, 0, x.Memory-had, 0)
}

// stayTx takes the place that a slice would have moved to. The caller stores it.
func (s *Service) stayTx(ctx context.Context, tx *db.Tx, x *Slice, why string) error {
	if err := lend(ctx, tx, x.ToNode, x.ToDevice, -x.counted(), -x.Memory, -1); err != nil {
		return err
	}
	to := x.ToNode
	x.ToNode, x.ToDevice, x.leftAt, x.MoveError = "", "", time.Time{}, why
	return s.emit(ctx, tx, x.ID, to)
}

// movedTx follows what a node says of its moves. Where no program stood still, the
// pause is the least that there is: who waits for the move waits until it is known.
func (s *Service) movedTx(ctx context.Context, tx *db.Tx, node string, m pool.Moved) error {
	list, err := readSlices(ctx, tx, `WHERE slice_id = $1 AND move_id = $2 AND state = 3`, m.Slice, m.ID)
	if err != nil || len(list) == 0 {
		return err
	}
	switch x := list[0]; {
	case m.Error == "":
		if x.Pause = max(m.Pause, time.Microsecond); x.moves() && x.leftAt.IsZero() {
			x.leftAt = tx.Now
			b, err := readBeat(ctx, tx, x.Node)
			if err != nil {
				return err
			}
			b.did(x)
		}
		if err := putSlice(ctx, tx, x); err != nil {
			return err
		}
		return s.emit(ctx, tx, x.ID)
	case x.moves() && x.Node == node:
		if err := s.stayTx(ctx, tx, x, m.Error); err != nil {
			return err
		}
		if err := putSlice(ctx, tx, x); err != nil {
			return err
		}
		tx.AfterCommit(func() { s.log.Warn("slice not moved", "slice_id", x.ID, "node_id", node, "reason", m.Error) })
		return s.fillTx(ctx, tx)
	}
	return nil
}

// lostTx ends a slice that left a node and did not come to the other; one that is held
// is placed anew.
func (s *Service) lostTx(ctx context.Context, tx *db.Tx, id string) error {
	list, err := readSlices(ctx, tx, `WHERE slice_id = $1 AND state = 3 AND left_at > 0`, id)
	if err != nil || len(list) == 0 {
		return err
	}
	why := fmt.Sprintf("it did not come to pool node %s, to which it moved", list[0].ToNode)
	if list[0].Fixed {
		return s.anewWithSetTx(ctx, tx, list[0], why)
	}
	return s.endTx(ctx, tx, list[0], why)
}
