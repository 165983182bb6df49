package pools

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/seal"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps the pool. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	ids   *identity.Service
	meter *metering.Service
	box   *seal.Box
	log   *slog.Logger
	feed  *bus.Feed
	logs  *logs.Log

	refusals refusals
	joins    func(ctx context.Context, tx *db.Tx, node string) error
	copied   atomic.Pointer[copied]
	totals   totals
	waiting  sync.Map // by node, its last report that waited for its answer, a waiter
}

// waiter names a report.
type waiter struct {
	boot     string
	sequence int64
}

// ChangedSubject is the event that slices or nodes changed; its payload lists
// their IDs.
const ChangedSubject = "pool.changed"

// New returns the service; its loops are Run and Watch. box seals the secrets of
// nodes.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, meter *metering.Service, box *seal.Box, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "pools", migrations); err != nil {
		return nil, err
	}
	kept, err := logs.New(ctx, d)
	if err != nil {
		return nil, err
	}
	log = log.With("component", "pools")
	return &Service{db: d, ids: ids, meter: meter, box: box, log: log, feed: bus.NewFeed(b, ChangedSubject, log), logs: kept, joins: func(context.Context, *db.Tx, string) error { return nil }}, nil
}

// OnJoin has f called in the transaction in which a node joins: it may have the name of
// one that left, whose state is not its. It is to be said before nodes join.
func (s *Service) OnJoin(f func(ctx context.Context, tx *db.Tx, node string) error) { s.joins = f }

// Watch hears of what all processes change, until ctx ends.
func (s *Service) Watch(ctx context.Context) error { return s.feed.Run(ctx) }

func (s *Service) emit(ctx context.Context, tx *db.Tx, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	payload, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return tx.Emit(ctx, ChangedSubject, payload)
}

// SetSpec makes or replaces a specification.
func (s *Service) SetSpec(ctx context.Context, x Spec) (*Spec, error) {
	if err := x.check(); err != nil {
		return nil, err
	}
	err := s.tx(ctx, func(tx *db.Tx) error {
		all, err := readSpecs(ctx, tx)
		if err != nil {
			return err
		}
		if len(all) >= maxSpecs && !slices.ContainsFunc(all, func(y *Spec) bool { return y.ID == x.ID }) {
			return fault.New(fault.Exhausted, "there are %d specifications of slices, which is the most", maxSpecs)
		}
		x.UpdatedAt = tx.Now
		if _, err := tx.Exec(ctx, `INSERT INTO pool_specs (spec_id, compute, memory_mib, weighted, model, price_fen, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (spec_id) DO UPDATE SET compute = $2, memory_mib = $3, weighted = $4, model = $5, price_fen = $6, updated_at = $7`,
			x.ID, x.Compute, x.Memory, x.Weighted, x.Model, x.PriceFen, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("store specification %s: %w", x.ID, err)
		}
		return s.ids.AuditTx(ctx, tx, x.ID)
	})
	return &x, err
}

// Specs lists the specifications by ID.
func (s *Service) Specs(ctx context.Context) (out []*Spec, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readSpecs(ctx, tx)
		return err
	})
	return out, err
}

// DeleteSpec deletes a specification; fault.NotFound if there is none.
func (s *Service) DeleteSpec(ctx context.Context, id string) error {
	return s.tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM pool_specs WHERE spec_id = $1`, id)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "there is no specification %q of slices; see yunhe pool spec list", clip(id))
		}
		if err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
}

// whose checks that there are the tenants and users of a group.
func (s *Service) whose(ctx context.Context, g *Group) error {
	var c core.Check
	for i, t := range g.Tenants {
		switch err := s.ids.CheckTenant(ctx, t); {
		case fault.KindOf(err) == fault.NotFound:
			c.Add(fmt.Sprintf("group.tenant_ids[%d]", i), "there is no tenant %q", t)
		case err != nil:
			return err
		}
	}
	for i, id := range g.Users {
		path := fmt.Sprintf("group.user_ids[%d]", i)
		switch u, err := s.ids.GetUser(ctx, id); {
		case fault.KindOf(err) == fault.NotFound, fault.KindOf(err) == fault.Invalid:
			c.Add(path, "there is no user %q", clip(id))
		case err != nil:
			return err
		case !slices.Contains(g.Tenants, u.TenantID):
			c.Add(path, "user %q is of tenant %s, which is not one of group.tenant_ids", id, u.TenantID)
		}
	}
	return c.Err()
}

// where checks that there are the nodes and devices of a group. What was in it may be
// gone since.
func (g *Group) where(was *Group, nodes []*Node) error {
	var c core.Check
	for i, member := range g.Members {
		if was != nil && slices.Contains(was.Members, member) {
			continue
		}
		path := fmt.Sprintf("group.members[%d]", i)
		id, device, one := strings.Cut(member, "/")
		n, err := findNode(nodes, id)
		switch {
		case err != nil:
			c.Add(path, "there is no pool node %q", id)
		case one && !slices.ContainsFunc(n.Devices, func(d *Device) bool { return d.ID == device }):
			c.Add(path, "pool node %s has no device %q", id, device)
		}
	}
	return c.Err()
}

// SetGroup makes or replaces a group. Slices it has stay as they are.
func (s *Service) SetGroup(ctx context.Context, g Group) (*Group, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	if err := s.whose(ctx, &g); err != nil {
		return nil, err
	}
	var out *Group
	err := s.tx(ctx, func(tx *db.Tx) error {
		all, err := readGroups(ctx, tx)
		if err != nil {
			return err
		}
		var was *Group
		if i := slices.IndexFunc(all, func(x *Group) bool { return x.ID == g.ID }); i >= 0 {
			was = all[i]
		} else if len(all) >= maxGroups {
			return fault.New(fault.Exhausted, "there are %d groups of the pool, which is the most", maxGroups)
		}
		nodes, err := s.nodesTx(ctx, tx)
		if err != nil {
			return err
		}
		if err := g.where(was, nodes); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO pool_groups (group_id, tenants, users, members, compute_limit, memory_limit, max_priority, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (group_id) DO UPDATE SET tenants = $2, users = $3, members = $4, compute_limit = $5, memory_limit = $6, max_priority = $7, updated_at = $8`,
			g.ID, toJSON(g.Tenants), toJSON(g.Users), toJSON(g.Members), g.ComputeLimit, g.MemoryLimit, g.MaxPriority, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("store group %s: %w", g.ID, err)
		}
		if err := s.ids.AuditTx(ctx, tx, g.ID); err != nil {
			return err
		}
		if err := s.fillTx(ctx, tx); err != nil {
			return err
		}
		if all, err = readGroups(ctx, tx); err != nil {
			return err
		}
		out = all[slices.IndexFunc(all, func(x *Group) bool { return x.ID == g.ID })]
		return nil
	})
	return out, err
}

// Groups lists the groups the caller may see, by ID.
func (s *Service) Groups(ctx context.Context) (out []*Group, err error) {
	caller := core.CallerFrom(ctx)
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readGroups(ctx, tx)
		return err
	})
	return slices.DeleteFunc(out, func(g *Group) bool { return !g.sees(caller) }), err
}

// DeleteGroup deletes a group without slices; fault.NotFound, fault.Conflict.
func (s *Service) DeleteGroup(ctx context.Context, id string) error {
	return s.tx(ctx, func(tx *db.Tx) error {
		var live int64
		if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM pool_slices WHERE state < 4 AND group_id = $1`, []any{id}, &live); err != nil {
			return err
		}
		if live > 0 {
			return fault.New(fault.Conflict, "group %s has %d slices; release them first", clip(id), live)
		}
		n, err := tx.Exec(ctx, `DELETE FROM pool_groups WHERE group_id = $1`, id)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "there is no group %q of the pool; see yunhe pool group list", clip(id))
		}
		if err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
}

// Policy returns the pool's policy.
func (s *Service) Policy(ctx context.Context) (p Policy, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		p, err = readPolicy(ctx, tx)
		return err
	})
	return p, err
}

// SetPolicy sets the pool's policy; what is 0 stays.
func (s *Service) SetPolicy(ctx context.Context, p Policy) (Policy, error) {
	var c core.Check
	if p.check(&c, "policy"); c.Err() != nil {
		return p, c.Err()
	}
	var out Policy
	err := s.tx(ctx, func(tx *db.Tx) error {
		base, err := readPolicy(ctx, tx)
		if err != nil {
			return err
		}
		out = p.over(base)
		if _, err := tx.Exec(ctx, `INSERT INTO pool_policy (only_row, local, nodes, devices) VALUES (1, $1, $2, $3) ON CONFLICT (only_row) DO UPDATE SET local = $1, nodes = $2, devices = $3`,
			out.Local, out.Nodes, out.Devices); err != nil {
			return fmt.Errorf("store the pool's policy: %w", err)
		}
		return s.ids.AuditTx(ctx, tx, "policy")
	})
	return out, err
}

const maxTokenTTL = 7 * 24 * time.Hour

func hash(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// CreateToken makes a token with which a node may join. ttl 0 is an hour.
func (s *Service) CreateToken(ctx context.Context, ttl int64) (token string, expires time.Time, err error) {
	var c core.Check
	if c.Range("ttl_seconds", ttl, 0, int64(maxTokenTTL/time.Second)); c.Err() != nil {
		return "", expires, c.Err()
	}
	if ttl == 0 {
		ttl = 3600
	}
	raw := make([]byte, 24)
	_, _ = rand.Read(raw) // it does not fail
	token = "yp_" + base64.RawURLEncoding.EncodeToString(raw)
	err = s.tx(ctx, func(tx *db.Tx) error {
		expires = tx.Now.Add(time.Duration(ttl) * time.Second)
		if _, err := tx.Exec(ctx, `DELETE FROM pool_node_tokens WHERE expires_at < $1`, db.Micros(tx.Now)); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "pool_node_tokens", []string{"token_hash", "expires_at", "used_by"}, [][]any{{hash(token), db.Micros(expires), ""}}); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, "pool node token")
	})
	return token, expires, err
}

const secretSize = 32

func purpose(node string) string { return "pool node " + node }

// Join admits a node with a secret of its own. Asking again with the same token
// and secret answers the same; fault.Unauthenticated for a token that is unknown,
// expired or used by another, fault.Conflict for a node that is there.
func (s *Service) Join(ctx context.Context, token, node, secret string) error {
	var c core.Check
	c.ID("node_id", node)
	key, err := hex.DecodeString(secret)
	if err != nil || len(key) != secretSize {
		c.Add("secret", "must be %d bytes in hexadecimal", secretSize)
	}
	if c.Err() != nil {
		return c.Err()
	}
	who := node + " " + hash(secret)
	return s.tx(ctx, func(tx *db.Tx) error {
		var used string
		var expires int64
		found, err := tx.Get(ctx, `SELECT used_by, expires_at FROM pool_node_tokens WHERE token_hash = $1`, []any{hash(token)}, &used, &expires)
		switch {
		case err != nil:
			return err
		case !found || expires < db.Micros(tx.Now) || used != "" && used != who:
			return fault.New(fault.Unauthenticated, "the token is unknown, expired or was used by another pool node; make one with: yunhe pool node token")
		}
		var nodes, same int64
		if _, err := tx.Get(ctx, `SELECT COUNT(*), COUNT(CASE WHEN node_id = $1 THEN 1 END) FROM pool_nodes`, []any{node}, &nodes, &same); err != nil {
			return err
		}
		if same > 0 {
			if used == who {
				return nil
			}
			return fault.New(fault.Conflict, "there is a pool node %s already; drain it first, or choose another name", node)
		}
		if nodes >= maxNodes {
			return fault.New(fault.Exhausted, "there are %d pool nodes, which is the most", maxNodes)
		}
		if _, err := tx.Exec(ctx, `UPDATE pool_node_tokens SET used_by = $2 WHERE token_hash = $1`, hash(token), who); err != nil {
			return err
		}
		sealed := base64.StdEncoding.EncodeToString(s.box.Seal(key, purpose(node)))
		if err := revise(ctx, tx, false); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO pool_nodes (node_id, secret, mode, online, host, version, addresses, joined_at, rev) VALUES ($1, $2, $3, $4, '', '', '[]', $5, `+revision+`)`,
			node, sealed, int64(Enabled), false, db.Micros(tx.Now)); err != nil {
			return err
		}
		if err := s.joins(ctx, tx, node); err != nil {
			return err
		}
		tx.AfterCommit(func() { s.log.Info("pool node joined", "node_id", node) })
		if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Info, Message: "node joined", Node: node}); err != nil {
			return err
		}
		return s.emit(ctx, tx, node)
	})
}

// secretTx returns the secret of a node; fault.NotFound if there is no such node.
func (s *Service) secretTx(ctx context.Context, tx *db.Tx, node string) ([]byte, error) {
	var sealed string
	found, err := tx.Get(ctx, `SELECT secret FROM pool_nodes WHERE node_id = $1`, []any{node}, &sealed)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, noNode(node)
	}
	b, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("read the secret of pool node %s: %w", node, err)
	}
	return s.box.Open(b, purpose(node))
}

// Nodes lists the nodes by ID.
func (s *Service) Nodes(ctx context.Context) (out []*Node, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readNodes(ctx, tx)
		return err
	})
	return out, err
}

// changeNode changes a node in a transaction and returns it as it is then.
func (s *Service) changeNode(ctx context.Context, id string, change func(tx *db.Tx, n *Node) error) (out *Node, err error) {
	err = s.tx(ctx, func(tx *db.Tx) error {
		if out, err = readNode(ctx, tx, id, true); err != nil {
			return err
		}
		if err := change(tx, out); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		if err := s.emit(ctx, tx, id); err != nil {
			return err
		}
		if err := s.fillTx(ctx, tx); err != nil {
			return err
		}
		out, err = readNode(ctx, tx, id, true)
		return err
	})
	return out, err
}

// SetNode says whether a node lends.
func (s *Service) SetNode(ctx context.Context, id string, mode Mode) (*Node, error) {
	var c core.Check
	c.ID("node_id", id)
	if c.Range("mode", int64(mode), int64(Enabled), int64(Draining)); c.Err() != nil {
		return nil, c.Err()
	}
	return s.changeNode(ctx, id, func(tx *db.Tx, n *Node) error {
		if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Info, Message: "node changed", Node: id, User: core.CallerFrom(ctx).UserID, Details: "mode=" + [...]string{"", "enabled", "disabled", "draining"}[mode]}); err != nil {
			return err
		}
		if err := revise(ctx, tx, false); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE pool_nodes SET mode = $2, rev = `+revision+` WHERE node_id = $1`, id, int64(mode))
		return err
	})
}

// DeviceChange is what becomes of a device; what is nil or 0 stays.
type DeviceChange struct {
	Disabled, Physical *bool
	ComputeLimit       int64 // percent
	MemoryRatio        int64 // percent
	PowerLimit         int64 // watts; -1: as its maker set it
}

// SetDevice says whether a device lends, how much, and whether whole.
// fault.Conflict for what its slices do not allow.
func (s *Service) SetDevice(ctx context.Context, node, device string, x DeviceChange) (*Node, error) {
	var c core.Check
	c.ID("node_id", node)
	c.Text("device_id", device, true, 64, 0)
	if x.ComputeLimit != 0 {
		c.Range("compute_limit_percent", x.ComputeLimit, minLimit, maxLimit)
	}
	if x.MemoryRatio != 0 {
		c.Range("memory_limit_percent", x.MemoryRatio, minLimit, maxLimit)
	}
	if x.PowerLimit != 0 {
		c.Range("power_limit_watts", x.PowerLimit, -1, maxPower/1000)
	}
	if c.Err() != nil {
		return nil, c.Err()
	}
	return s.changeNode(ctx, node, func(tx *db.Tx, n *Node) error {
		i := slices.IndexFunc(n.Devices, func(d *Device) bool { return d.ID == device })
		if i < 0 {
			return fault.New(fault.NotFound, "pool node %s has no device %q", node, device)
		}
		d := n.Devices[i]
		if x.ComputeLimit != 0 {
			if d.ComputeLimit = x.ComputeLimit; d.ComputeLimit < d.ComputeLent {
				return fault.New(fault.Conflict, "%d%% of device %s are lent, more than the limit of %d%%", d.ComputeLent, device, d.ComputeLimit)
			}
		}
		if x.MemoryRatio != 0 {
			if x.MemoryRatio > minLimit && d.API == pool.CUDA && !n.pages(device) {
				return fault.Fields(fault.Field{Path: "memory_limit_percent", Problem: fmt.Sprintf("must be %d for device %s, whose driver moves no memory to the host and back, or whose node bounds it (--memory) or is of a version that knows nothing of that; got %d", minLimit, device, x.MemoryRatio)})
			}
			d.MemoryRatio = x.MemoryRatio
			if d.MemoryLimit = d.Memory * x.MemoryRatio / 100; d.MemoryLimit < d.MemoryLent {
				return fault.New(fault.Conflict, "%d MiB of device %s are lent, more than the limit of %d MiB", d.MemoryLent, device, d.MemoryLimit)
			}
		}
		if x.PowerLimit != 0 {
			if d.PowerLimit = x.PowerLimit; x.PowerLimit > 0 {
				if err := n.draws(device, x.PowerLimit); err != nil {
					return err
				}
			}
		}
		if x.Disabled != nil {
			d.Disabled = *x.Disabled
		}
		if x.Physical != nil && *x.Physical != d.Physical {
			if d.Physical = *x.Physical; d.Used > 0 {
				return fault.New(fault.Conflict, "device %s has %d slices: its virtualization is switched when it has none; disable it and wait, or move them", device, d.Used)
			}
		}
		if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Info, Message: "device changed", Node: node, Device: device, User: core.CallerFrom(ctx).UserID, Details: fmt.Sprintf("disabled=%t compute_limit_percent=%d physical=%t power_limit_watts=%d", d.Disabled, d.ComputeLimit, d.Physical, d.PowerLimit)}); err != nil {
			return err
		}
		return putDevice(ctx, tx, node, d)
	})
}

// pages reports whether more memory of a device of CUDA can be lent than it has, as the
// node last said.
func (n *Node) pages(device string) bool {
	return slices.ContainsFunc(n.Figures, func(f pool.Figure) bool { return f.Device == device && f.Pages })
}

// draws checks what a device shall draw at most against what its card allows, as
// the node last said.
func (n *Node) draws(device string, watts int64) error {
	i := slices.IndexFunc(n.Figures, func(f pool.Figure) bool { return f.Device == device })
	if i < 0 || n.Figures[i].LeastLimit == nil || n.Figures[i].MostLimit == nil {
		return fault.New(fault.Invalid, "power_limit_watts: nothing sets what device %s of pool node %s may draw; NVML does of cards of NVIDIA", device, n.ID)
	}
	if least, most := *n.Figures[i].LeastLimit/1000, *n.Figures[i].MostLimit/1000; watts < least || watts > most {
		return fault.New(fault.Invalid, "power_limit_watts: %d, at least %d and at most %d for device %s of pool node %s", watts, least, most, device, n.ID)
	}
	return nil
}
