package pools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

func toJSON(list []string) string {
	if list == nil {
		list = []string{}
	}
	b, _ := json.Marshal(list) // strings do
	return string(b)
}

func fromJSON(text string, to any) error {
	if err := json.Unmarshal([]byte(text), to); err != nil {
		return fmt.Errorf("read a stored list: %w", err)
	}
	return nil
}

// readNodes returns all nodes by ID with their devices by ID, and what each report
// changes.
func readNodes(ctx context.Context, tx *db.Tx) ([]*Node, error) {
	return selectNodes(ctx, tx, true, "")
}

// readNode returns one with its devices. Without beats it does not read what each report
// changes. Kinds: NotFound.
func readNode(ctx context.Context, tx *db.Tx, id string, beats bool) (*Node, error) {
	nodes, err := selectNodes(ctx, tx, beats, `WHERE node_id = $1 `, id)
	if err != nil {
		return nil, err
	}
	return findNode(nodes, id)
}

func selectNodes(ctx context.Context, tx *db.Tx, beats bool, where string, args ...any) (out []*Node, err error) {
	at := map[string]*Node{}
	err = eachNode(ctx, tx, func(n *Node) { out, at[n.ID] = append(out, n), n }, where+`ORDER BY node_id`, args...)
	if err != nil {
		return nil, err
	}
	err = eachDevice(ctx, tx, func(node string, d *Device) {
		if n := at[node]; n != nil {
			n.Devices = append(n.Devices, d)
		}
	}, where+`ORDER BY node_id, device_id`, args...)
	if err != nil || !beats {
		return out, err
	}
	err = tx.Query(ctx, `SELECT node_id, seen_at, boot, figures FROM pool_beats `+where, args, func(row db.Row) error {
		var node, boot, figures string
		var seen int64
		if err := row.Scan(&node, &seen, &boot, &figures); err != nil {
			return err
		}
		n := at[node]
		if n == nil {
			return nil
		}
		n.SeenAt, n.Boot = db.Time(seen), boot
		return fromJSON(figures, &n.Figures)
	})
	if err != nil {
		return nil, fmt.Errorf("read when pool nodes reported: %w", err)
	}
	return out, nil
}

func eachNode(ctx context.Context, tx *db.Tx, f func(n *Node), rest string, args ...any) error {
	err := tx.Query(ctx, `SELECT node_id, mode, online, ending, host, version, addresses, joined_at FROM pool_nodes `+rest, args, func(row db.Row) error {
		n := &Node{}
		var addresses string
		var joined int64
		if err := row.Scan(&n.ID, &n.Mode, &n.Online, &n.Ending, &n.Host, &n.Version, &addresses, &joined); err != nil {
			return err
		}
		n.JoinedAt = db.Time(joined)
		err := fromJSON(addresses, &n.Addresses)
		f(n)
		return err
	})
	if err != nil {
		return fmt.Errorf("read pool nodes: %w", err)
	}
	return nil
}

func eachDevice(ctx context.Context, tx *db.Tx, f func(node string, d *Device), rest string, args ...any) error {
	err := tx.Query(ctx, `SELECT node_id, device_id, model, vendor, driver, type, compute_units, memory_mib, present, disabled, compute_limit, memory_limit, compute_lent, memory_lent, slices, physical, memory_ratio, power_limit, api, bus
		FROM pool_devices `+rest, args, func(row db.Row) error {
		d := &Device{}
		var node string
		if err := row.Scan(&node, &d.ID, &d.Model, &d.Vendor, &d.Driver, &d.Type, &d.Units, &d.Memory, &d.Present, &d.Disabled, &d.ComputeLimit, &d.MemoryLimit, &d.ComputeLent, &d.MemoryLent, &d.Used, &d.Physical, &d.MemoryRatio, &d.PowerLimit, &d.API, &d.Bus); err != nil {
			return err
		}
		f(node, d)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read pool devices: %w", err)
	}
	return nil
}

func findNode(nodes []*Node, id string) (*Node, error) {
	for _, n := range nodes {
		if n.ID == id {
			return n, nil
		}
	}
	return nil, noNode(id)
}

func noNode(id string) error {
	return fault.New(fault.NotFound, "there is no pool node %q; see yunhe pool node list", clip(id))
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}

func putDevice(ctx context.Context, tx *db.Tx, node string, d *Device) error {
	if err := revise(ctx, tx, false); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO pool_devices (node_id, device_id, model, vendor, driver, type, compute_units, memory_mib, present, disabled, compute_limit, memory_limit, compute_lent, memory_lent, slices, physical, memory_ratio, power_limit, api, bus, rev)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, 0, 0, $13, $14, $15, $16, $17, `+revision+`)
		ON CONFLICT (node_id, device_id) DO UPDATE SET rev = excluded.rev, model = $3, vendor = $4, driver = $5, type = $6, compute_units = $7, memory_mib = $8, present = $9, disabled = $10, compute_limit = $11, memory_limit = $12, physical = $13, memory_ratio = $14, power_limit = $15, api = $16, bus = $17`,
		node, d.ID, d.Model, d.Vendor, d.Driver, d.Type, d.Units, d.Memory, d.Present, d.Disabled, d.ComputeLimit, d.MemoryLimit, d.Physical, d.MemoryRatio, d.PowerLimit, d.API, d.Bus)
	if err != nil {
		return fmt.Errorf("store device %s of pool node %s: %w", d.ID, node, err)
	}
	return nil
}

// lend takes from a device, or gives back.
func lend(ctx context.Context, tx *db.Tx, node, device string, compute, memory, slices int64) error {
	if err := revise(ctx, tx, false); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE pool_devices SET compute_lent = compute_lent + $3, memory_lent = memory_lent + $4, slices = slices + $5, rev = `+revision+` WHERE node_id = $1 AND device_id = $2`, node, device, compute, memory, slices)
	if err != nil {
		return fmt.Errorf("lend of device %s of pool node %s: %w", device, node, err)
	}
	return nil
}

// lendIf takes from a device if it lends that, whatever a copy of it says.
func lendIf(ctx context.Context, tx *db.Tx, x *Slice) (bool, error) {
	if err := revise(ctx, tx, false); err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, `UPDATE pool_devices SET compute_lent = compute_lent + $3, memory_lent = memory_lent + $4, slices = slices + 1, rev = `+revision+` WHERE node_id = $1 AND device_id = $2
		AND present AND NOT disabled AND physical = $5 AND (NOT physical OR slices = 0) AND compute_lent + $3 <= compute_limit AND memory_lent + $4 <= memory_limit
		AND EXISTS (SELECT 1 FROM pool_nodes n WHERE n.node_id = $1 AND n.online AND NOT n.ending AND n.mode = $6)`, x.Node, x.Device, x.counted(), x.Memory, x.Physical, int64(Enabled))
	if err != nil {
		return false, fmt.Errorf("lend of device %s of pool node %s: %w", x.Device, x.Node, err)
	}
	return n > 0, nil
}

const sliceColumns = `slice_id, request_key, group_id, tenant_id, user_id, user_name, name, spec_id, compute, memory_mib, weighted, model, want_node, want_device, host, local, nodes, devices, fixed, priority,
	idle_s, limit_s, price_fen, state, node_id, device_id, reason, created_at, polled_at, assigned_at, started_at, ended_at, metered_at, device_us,
	physical, affinity, anti_affinity, move_id, to_node, to_device, left_at, move_error, pause_us, set_id, across,
	run_id, job_id, project, task_name, task_index, replica_index, run_number, energy_mj, api, queued_at, past_us, past_mj, wished, job_priority`

func readSlices(ctx context.Context, tx *db.Tx, where string, args ...any) (out []*Slice, err error) {
	err = tx.Query(ctx, `SELECT `+sliceColumns+` FROM pool_slices `+where, args, func(row db.Row) error {
		s := &Slice{}
		var created, polled, assigned, started, ended, metered, busy, left, pause, queued, past int64
		if err := row.Scan(&s.ID, &s.requestKey, &s.Group, &s.Tenant, &s.User, &s.UserName, &s.Name, &s.Spec, &s.Compute, &s.Memory, &s.Weighted, &s.Model, &s.WantNode, &s.WantDevice, &s.Host,
			&s.Policy.Local, &s.Policy.Nodes, &s.Policy.Devices, &s.Fixed, &s.Priority, &s.Idle, &s.Limit, &s.PriceFen, &s.State, &s.Node, &s.Device, &s.Reason,
			&created, &polled, &assigned, &started, &ended, &metered, &busy,
			&s.Physical, &s.Affinity, &s.Anti, &s.moveID, &s.ToNode, &s.ToDevice, &left, &s.MoveError, &pause, &s.Set, &s.Across,
			&s.run.ID, &s.run.Job, &s.run.Project, &s.run.Task, &s.run.TaskIndex, &s.run.Replica, &s.run.Number, &s.Energy, &s.API, &queued, &past, &s.pastEnergy, &s.wished, &s.run.Priority); err != nil {
			return err
		}
		s.CreatedAt, s.PolledAt, s.AssignedAt, s.StartedAt, s.EndedAt, s.meteredAt = db.Time(created), db.Time(polled), db.Time(assigned), db.Time(started), db.Time(ended), db.Time(metered)
		s.QueuedAt = db.Time(max(created, queued))
		s.Busy, s.leftAt, s.Pause, s.past = time.Duration(busy)*time.Microsecond, db.Time(left), time.Duration(pause)*time.Microsecond, time.Duration(past)*time.Microsecond
		out = append(out, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read slices: %w", err)
	}
	return out, nil
}

func putSlice(ctx context.Context, tx *db.Tx, s *Slice) error {
	if s.State != Running {
		s.past, s.pastEnergy = s.Busy, s.Energy
	}
	_, err := tx.Exec(ctx, `INSERT INTO pool_slices (`+sliceColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34,
		$35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59)
		ON CONFLICT (slice_id) DO UPDATE SET compute = $9, memory_mib = $10, state = $24, node_id = $25, device_id = $26, reason = $27, polled_at = $29, assigned_at = $30, started_at = $31, ended_at = $32, metered_at = $33, device_us = $34,
		move_id = $38, to_node = $39, to_device = $40, left_at = $41, move_error = $42, pause_us = $43, energy_mj = $53, queued_at = $55, past_us = $56, past_mj = $57`,
		s.ID, s.requestKey, s.Group, s.Tenant, s.User, s.UserName, s.Name, s.Spec, s.Compute, s.Memory, s.Weighted, s.Model, s.WantNode, s.WantDevice, s.Host, s.Policy.Local, s.Policy.Nodes, s.Policy.Devices,
		s.Fixed, s.Priority, s.Idle, s.Limit, s.PriceFen, int64(s.State), s.Node, s.Device, s.Reason, db.Micros(s.CreatedAt), db.Micros(s.PolledAt), db.Micros(s.AssignedAt), db.Micros(s.StartedAt),
		db.Micros(s.EndedAt), db.Micros(s.meteredAt), s.Busy.Microseconds(),
		s.Physical, s.Affinity, s.Anti, s.moveID, s.ToNode, s.ToDevice, db.Micros(s.leftAt), s.MoveError, s.Pause.Microseconds(), s.Set, s.Across,
		s.run.ID, s.run.Job, s.run.Project, s.run.Task, s.run.TaskIndex, s.run.Replica, s.run.Number, s.Energy, s.API, db.Micros(s.QueuedAt), s.past.Microseconds(), s.pastEnergy, s.wished, s.run.Priority)
	if err != nil {
		return fmt.Errorf("store slice %s: %w", s.ID, err)
	}
	return nil
}

// findSlice returns a slice the caller may see.
func findSlice(ctx context.Context, tx *db.Tx, id string, sees func(tenant string) bool) (*Slice, error) {
	list, err := readSlices(ctx, tx, `WHERE slice_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || !sees(list[0].Tenant) {
		return nil, fault.New(fault.NotFound, "there is no slice %q; see yunhe pool slice list", clip(id))
	}
	return list[0], nil
}

func readSpecs(ctx context.Context, tx *db.Tx) (out []*Spec, err error) {
	err = tx.Query(ctx, `SELECT spec_id, compute, memory_mib, weighted, model, price_fen, updated_at FROM pool_specs ORDER BY spec_id`, nil, func(row db.Row) error {
		x := &Spec{}
		var at int64
		err := row.Scan(&x.ID, &x.Compute, &x.Memory, &x.Weighted, &x.Model, &x.PriceFen, &at)
		x.UpdatedAt = db.Time(at)
		out = append(out, x)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read specifications of slices: %w", err)
	}
	return out, nil
}

// readGroups returns all groups by ID, with what they have.
func readGroups(ctx context.Context, tx *db.Tx) (out []*Group, err error) {
	err = tx.Query(ctx, `SELECT group_id, tenants, users, members, compute_limit, memory_limit, max_priority, updated_at FROM pool_groups ORDER BY group_id`, nil, func(row db.Row) error {
		g := &Group{}
		var tenants, users, members string
		var at int64
		if err := row.Scan(&g.ID, &tenants, &users, &members, &g.ComputeLimit, &g.MemoryLimit, &g.MaxPriority, &at); err != nil {
			return err
		}
		g.UpdatedAt = db.Time(at)
		out = append(out, g)
		for _, x := range []struct {
			text string
			to   *[]string
		}{{tenants, &g.Tenants}, {users, &g.Users}, {members, &g.Members}} {
			if err := fromJSON(x.text, x.to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read groups of the pool: %w", err)
	}
	err = tx.Query(ctx, `SELECT group_id, CAST(SUM(CASE WHEN weighted THEN 0 ELSE compute END) AS BIGINT), CAST(SUM(memory_mib) AS BIGINT), COUNT(*) FROM pool_slices WHERE state IN (2, 3) GROUP BY group_id`, nil, func(row db.Row) error {
		var id string
		var compute, memory, n int64
		err := row.Scan(&id, &compute, &memory, &n)
		for _, g := range out {
			if g.ID == id {
				g.ComputeLent, g.MemoryLent, g.Slices = compute, memory, n
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what groups of the pool have: %w", err)
	}
	return out, nil
}

func readPolicy(ctx context.Context, tx *db.Tx) (Policy, error) {
	p := Policy{LocalAny, Balanced, Balanced}
	if _, err := tx.Get(ctx, `SELECT local, nodes, devices FROM pool_policy`, nil, &p.Local, &p.Nodes, &p.Devices); err != nil {
		return p, fmt.Errorf("read the pool's policy: %w", err)
	}
	return p, nil
}

// beat is what a node last reported.
type beat struct {
	boot, before    string
	sequence, epoch int64
	seen, gone      time.Time
	tasks           []reported
	ended           []pool.EndedTask
	figures         []pool.Figure
}

// did notes what a slice did, as it was last reported.
func (b *beat) did(x *Slice) {
	for _, t := range b.tasks {
		if t.Slice == x.ID {
			x.Busy, x.Energy = x.past+time.Duration(t.Busy)*time.Microsecond, x.pastEnergy+t.Energy
		}
	}
}

type reported struct {
	Slice    string `json:"slice"`
	Used     int64  `json:"used"`
	Busy     int64  `json:"busy_us"`
	Programs int64  `json:"programs"`
	Device   string `json:"device,omitempty"`
	Energy   int64  `json:"energy_mj,omitempty"`
}

func readBeat(ctx context.Context, tx *db.Tx, node string) (*beat, error) {
	b := &beat{}
	var seen, gone int64
	var tasks, ended string
	found, err := tx.Get(ctx, `SELECT boot, before, sequence, epoch, seen_at, gone_at, tasks, ended FROM pool_beats WHERE node_id = $1`, []any{node}, &b.boot, &b.before, &b.sequence, &b.epoch, &seen, &gone, &tasks, &ended)
	if err != nil {
		return nil, fmt.Errorf("read what pool node %s reported: %w", node, err)
	}
	if !found {
		return b, nil
	}
	b.seen, b.gone = db.Time(seen), db.Time(gone)
	return b, errors.Join(fromJSON(tasks, &b.tasks), fromJSON(ended, &b.ended))
}

func putBeat(ctx context.Context, tx *db.Tx, node string, b *beat) error {
	tasks, err := json.Marshal(b.tasks)
	if err != nil {
		return fmt.Errorf("encode what pool node %s reported: %w", node, err)
	}
	ended := []byte("[]")
	if len(b.ended) > 0 {
		if ended, err = json.Marshal(b.ended); err != nil {
			return fmt.Errorf("encode what ended at pool node %s: %w", node, err)
		}
	}
	figures := []byte("[]")
	if b.figures != nil {
		if figures, err = json.Marshal(b.figures); err != nil {
			return fmt.Errorf("encode what devices of pool node %s do: %w", node, err)
		}
	}
	_, err = tx.Exec(ctx, `INSERT INTO pool_beats (node_id, boot, before, sequence, epoch, seen_at, gone_at, tasks, figures, ended) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (node_id) DO UPDATE SET boot = $2, before = $3, sequence = $4, epoch = $5, seen_at = $6, gone_at = $7, tasks = $8, figures = $9, ended = $10`, node, b.boot, b.before, b.sequence, b.epoch, db.Micros(b.seen), db.Micros(b.gone), string(tasks), string(figures), string(ended))
	if err != nil {
		return fmt.Errorf("store what pool node %s reported: %w", node, err)
	}
	return nil
}
