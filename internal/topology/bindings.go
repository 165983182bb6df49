package topology

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/samples"
)

// Aggregate is how values of parts become one of the whole.
type Aggregate int

// The aggregates.
const (
	Mean Aggregate = 1
	Max  Aggregate = 2
	Min  Aggregate = 3
	Sum  Aggregate = 4
)

// Binding says which series is measured of which vertices.
type Binding struct {
	ID         string    `json:"-"`
	Title      string    `json:"title"`
	TitleZH    string    `json:"title_zh,omitempty"`
	Level      Level     `json:"level"` // center, node, card or link
	Expression string    `json:"expression"`
	Center     string    `json:"center_label,omitempty"` // labels of the series
	Node       string    `json:"node_label,omitempty"`
	Index      string    `json:"index_label,omitempty"`
	Peer       string    `json:"peer_label,omitempty"`
	Unit       string    `json:"unit,omitempty"`
	Scale      float64   `json:"scale,omitempty"` // 0: 1
	Relative   string    `json:"relative_to,omitempty"`
	Busy       *float64  `json:"busy,omitempty"` // thresholds; nil: none
	Warning    *float64  `json:"warning,omitempty"`
	LowIsBad   bool      `json:"low_is_bad,omitempty"`
	Low        float64   `json:"low,omitempty"` // colors are drawn from here
	High       float64   `json:"high,omitempty"`
	Aggregate  Aggregate `json:"aggregate,omitempty"` // 0: Mean
	BuiltIn    bool      `json:"-"`
	Version    int64     `json:"-"` // 0: as the platform has it
	UpdatedAt  time.Time `json:"-"`
}

// relatives are what values may be divided by.
var relatives = []string{"", "cpu", "memory", "storage", "card_memory"}

// Limits of bindings.
const (
	maxBindings   = 200
	maxExpression = 1024
)

func at(x float64) *float64 { return &x }

// defaults are the bindings the platform comes with: the series that packages
// monitor and adapters write.
var defaults = []Binding{
	{ID: "center.cpu", Title: "CPU busy", TitleZH: "CPU 利用率", Level: LevelCenter, Expression: "yunhe_center_cpu_busy_permille", Center: "center", Unit: "ratio", Scale: 0.001, Busy: at(0.8), Warning: at(0.97), High: 1},
	{ID: "center.cpu-held", Title: "CPU held by jobs", TitleZH: "作业占用 CPU", Level: LevelCenter, Expression: "yunhe_center_cpu_used_milli / yunhe_center_cpu_total_milli", Center: "center", Unit: "ratio", High: 1},
	{ID: "center.memory-held", Title: "Memory held by jobs", TitleZH: "作业占用内存", Level: LevelCenter, Expression: "yunhe_center_memory_used_bytes / yunhe_center_memory_total_bytes", Center: "center", Unit: "ratio", High: 1},
	{ID: "center.running", Title: "Replicas running", TitleZH: "运行中副本", Level: LevelCenter, Expression: "yunhe_center_running", Center: "center", Unit: "replicas", High: 1000, Aggregate: Sum},
	{ID: "center.storage-latency", Title: "Storage latency", TitleZH: "存储时延", Level: LevelCenter, Expression: "yunhe_storage_latency_seconds", Unit: "seconds", Busy: at(0.05), Warning: at(0.2), High: 0.2, Aggregate: Max},
	{ID: "center.storage-reads", Title: "Storage reads", TitleZH: "存储读 IOPS", Level: LevelCenter, Expression: "yunhe_storage_reads_per_second", Unit: "per second", High: 10_000, Aggregate: Sum},
	{ID: "center.storage-writes", Title: "Storage writes", TitleZH: "存储写 IOPS", Level: LevelCenter, Expression: "yunhe_storage_writes_per_second", Unit: "per second", High: 10_000, Aggregate: Sum},
	{ID: "center.network-received", Title: "Network received", TitleZH: "网络接收", Level: LevelCenter, Expression: "yunhe_network_received_bytes_per_second", Unit: "bytes per second", High: 1.25e9, Aggregate: Sum},
	{ID: "center.network-sent", Title: "Network sent", TitleZH: "网络发送", Level: LevelCenter, Expression: "yunhe_network_sent_bytes_per_second", Unit: "bytes per second", High: 1.25e9, Aggregate: Sum},
	{ID: "node.cpu", Title: "CPU busy", TitleZH: "CPU 利用率", Level: LevelNode, Expression: "yunhe_node_cpu_busy_ratio", Unit: "ratio", Busy: at(0.8), Warning: at(0.97), High: 1},
	{ID: "node.memory", Title: "Memory busy", TitleZH: "内存利用率", Level: LevelNode, Expression: "yunhe_node_memory_busy_bytes", Unit: "ratio", Relative: "memory", Busy: at(0.85), Warning: at(0.95), High: 1},
	{ID: "card.busy", Title: "Accelerator busy", TitleZH: "加速卡利用率", Level: LevelCard, Expression: "yunhe_accelerator_busy_ratio", Unit: "ratio", Busy: at(0.8), High: 1},
	{ID: "card.memory", Title: "Accelerator memory busy", TitleZH: "加速卡显存利用率", Level: LevelCard, Expression: "yunhe_accelerator_memory_busy_bytes", Unit: "ratio", Relative: "card_memory", High: 1},
	{ID: "link.latency", Title: "Latency", TitleZH: "时延", Level: LevelLink, Expression: "yunhe_path_latency_seconds", Unit: "seconds", Busy: at(0.1), Warning: at(0.3), High: 0.3},
	{ID: "link.jitter", Title: "Jitter", TitleZH: "抖动", Level: LevelLink, Expression: "yunhe_path_jitter_seconds", Unit: "seconds", Warning: at(0.1), High: 0.1},
	{ID: "link.loss", Title: "Loss", TitleZH: "丢包率", Level: LevelLink, Expression: "yunhe_path_loss_ratio", Unit: "ratio", Busy: at(0.01), Warning: at(0.05), High: 0.1},
	{ID: "link.bandwidth", Title: "Bandwidth", TitleZH: "带宽", Level: LevelLink, Expression: "yunhe_path_bandwidth_bits_per_second", Unit: "bits per second", LowIsBad: true, High: 10e9, Aggregate: Min},
}

// complete fills in what was left open.
func (b *Binding) complete() {
	for _, x := range []struct {
		label *string
		name  string
	}{{&b.Center, "ai_center_id"}, {&b.Node, "node"}, {&b.Index, "index"}, {&b.Peer, "peer"}} {
		if *x.label == "" {
			*x.label = x.name
		}
	}
	if b.Scale == 0 {
		b.Scale = 1
	}
	if b.Aggregate == 0 {
		b.Aggregate = Mean
	}
}

// limits tells whether values of it say anything of health.
func (b *Binding) limits() bool { return b.Busy != nil || b.Warning != nil }

// judge is what a value says of health.
func (b *Binding) judge(x float64) Health {
	reached := func(limit *float64) bool {
		if limit == nil {
			return false
		}
		if b.LowIsBad {
			return x <= *limit
		}
		return x >= *limit
	}
	switch {
	case !b.limits() || math.IsNaN(x):
		return NoHealth
	case reached(b.Warning):
		return Warning
	case reached(b.Busy):
		return Busy
	}
	return Healthy
}

func (b *Binding) check() error {
	var c core.Check
	c.ID("binding.binding_id", b.ID)
	c.Text("binding.title", b.Title, true, 0, 64)
	c.Text("binding.title_zh", b.TitleZH, false, 0, 64)
	if !slices.Contains([]Level{LevelCenter, LevelNode, LevelCard, LevelLink}, b.Level) {
		c.Add("binding.level", "must be CENTER, NODE, CARD or LINK, got %d", b.Level)
	}
	switch {
	case len(b.Expression) > maxExpression:
		c.Add("binding.expression", "must be at most %d bytes, got %d", maxExpression, len(b.Expression))
	case b.Expression == "":
		c.Add("binding.expression", "is required")
	default:
		if _, err := samples.Enforce(b.Expression, monitor.TenantLabel, ""); err != nil {
			msg, _ := fault.Message(err)
			c.Add("binding.expression", "is not usable: %s", msg)
		}
	}
	for _, x := range []struct{ path, label string }{
		{"center_label", b.Center}, {"node_label", b.Node}, {"index_label", b.Index}, {"peer_label", b.Peer},
	} {
		if x.label != "" && !isLabel(x.label) {
			c.Add("binding."+x.path, "must be a label of at most 64 letters, digits and _, got %q", clip(x.label))
		}
	}
	c.Text("binding.unit", b.Unit, false, 0, 64)
	if !slices.Contains(relatives, b.Relative) {
		c.Add("binding.relative_to", "must be empty, %s, got %q", strings.Join(relatives[1:], ", "), clip(b.Relative))
	}
	for _, x := range []struct {
		path  string
		value *float64
	}{{"scale", &b.Scale}, {"busy", b.Busy}, {"warning", b.Warning}, {"low", &b.Low}, {"high", &b.High}} {
		if x.value != nil && (math.IsNaN(*x.value) || math.Abs(*x.value) > 1e18) {
			c.Add("binding."+x.path, "must be a number between -1e18 and 1e18")
		}
	}
	if b.Low > b.High {
		c.Add("binding.low", "must not be above high %g, got %g", b.High, b.Low)
		c.Add("binding.high", "must not be below low %g, got %g", b.Low, b.High)
	}
	if b.Busy != nil && b.Warning != nil && (*b.Busy > *b.Warning) != b.LowIsBad && *b.Busy != *b.Warning {
		c.Add("binding.busy", "must be reached before warning %g, got %g", *b.Warning, *b.Busy)
		c.Add("binding.warning", "must be reached after busy %g, got %g", *b.Busy, *b.Warning)
	}
	c.Range("binding.aggregate", int64(b.Aggregate), 0, int64(Sum))
	c.Range("binding.version", b.Version, 0, 1<<53)
	return c.Err()
}

func isLabel(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return len(s) <= 64 && !strings.HasPrefix(s, "__")
}

// readBindings returns all bindings by ID, completed.
func readBindings(ctx context.Context, tx *db.Tx) (map[string]*Binding, error) {
	out := make(map[string]*Binding, len(defaults))
	for _, b := range defaults {
		b.BuiltIn = true
		b.complete()
		out[b.ID] = &b
	}
	err := tx.Query(ctx, `SELECT binding_id, body, version, updated_at FROM topology_bindings`, nil, func(row db.Row) error {
		b := &Binding{}
		var body string
		var updated int64
		if err := row.Scan(&b.ID, &body, &b.Version, &updated); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(body), b); err != nil {
			return fmt.Errorf("binding %s: %w", b.ID, err)
		}
		b.UpdatedAt = db.Time(updated)
		out[b.ID] = b
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read bindings: %w", err)
	}
	return out, nil
}

func (s *Service) bindings(ctx context.Context) (out map[string]*Binding, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readBindings(ctx, tx)
		return err
	})
	return out, err
}

// Bindings returns the bindings of a level, or all, by ID. It returns
// fault.Invalid for what is no level.
func (s *Service) Bindings(ctx context.Context, level Level) ([]Binding, error) {
	var c core.Check
	if c.Range("level", int64(level), 0, int64(LevelLink)); c.Err() != nil {
		return nil, c.Err()
	}
	all, err := s.bindings(ctx)
	if err != nil {
		return nil, err
	}
	var out []Binding
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if level == AnyLevel || all[id].Level == level {
			out = append(out, *all[id])
		}
	}
	return out, nil
}

// PutBinding adds a binding or replaces one; a version of 0 replaces
// whichever there is. Putting the same again changes nothing. It returns
// fault.Invalid with paths below "binding.", fault.Conflict for another
// version, fault.Denied for who does not see all, and fault.Exhausted if there
// are 200.
func (s *Service) PutBinding(ctx context.Context, b Binding) (Binding, error) {
	if err := b.check(); err != nil {
		return Binding{}, err
	}
	if err := mayBind(ctx); err != nil {
		return Binding{}, err
	}
	b.complete()
	body, err := json.Marshal(b)
	if err != nil {
		return Binding{}, fmt.Errorf("encode binding %s: %w", b.ID, err)
	}
	var out Binding
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		all, err := readBindings(ctx, tx)
		if err != nil {
			return err
		}
		old := all[b.ID]
		if old == nil && len(all) >= maxBindings {
			return fault.New(fault.Exhausted, "there are %d bindings, no more are allowed; delete one first", len(all))
		}
		have := int64(0)
		if old != nil {
			have = old.Version
			same, err := json.Marshal(old)
			if err != nil {
				return fmt.Errorf("encode binding %s: %w", b.ID, err)
			}
			if string(same) == string(body) {
				out = *old
				return nil
			}
		}
		if b.Version != 0 && b.Version != have {
			return fault.New(fault.Conflict, "binding %s has version %d, not %d: it was changed meanwhile; read it and try again", b.ID, have, b.Version)
		}
		out = b
		out.Version, out.UpdatedAt, out.BuiltIn = have+1, tx.Now, false
		if _, err := tx.Exec(ctx, `INSERT INTO topology_bindings (binding_id, body, version, updated_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (binding_id) DO UPDATE SET body = $2, version = $3, updated_at = $4`, b.ID, string(body), out.Version, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("write binding %s: %w", b.ID, err)
		}
		return nil
	})
	return out, err
}

// DeleteBinding deletes a binding that people made; one the platform comes
// with is as at first again, also if it is already. It returns fault.Invalid,
// fault.NotFound and fault.Denied.
func (s *Service) DeleteBinding(ctx context.Context, id string) error {
	var c core.Check
	if c.ID("binding_id", id); c.Err() != nil {
		return c.Err()
	}
	if err := mayBind(ctx); err != nil {
		return err
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM topology_bindings WHERE binding_id = $1`, id)
		if err != nil {
			return fmt.Errorf("delete binding %s: %w", id, err)
		}
		if n == 0 && !slices.ContainsFunc(defaults, func(b Binding) bool { return b.ID == id }) {
			return fault.New(fault.NotFound, "there is no binding %s", id)
		}
		return nil
	})
}

// mayBind: bindings decide what everyone sees.
func mayBind(ctx context.Context) error {
	if !core.CallerFrom(ctx).AllTenants {
		return fault.New(fault.Denied, "bindings are everyone's; only who sees all tenants may change them")
	}
	return nil
}
