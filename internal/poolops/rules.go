package poolops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// RuleKind says what a rule looks at; the numbers are the API's.
type RuleKind int64

// The kinds of rules.
const (
	NodeOffline    RuleKind = 1
	DeviceGone     RuleKind = 2
	ComputeFull    RuleKind = 3
	MemoryFull     RuleKind = 4
	TaskMemoryFull RuleKind = 5
	QueueLong      RuleKind = 6
	WaitLong       RuleKind = 7
	RefusedOften   RuleKind = 8
	NotConfigured  RuleKind = 9
	DeviceHot      RuleKind = 10
	PowerHigh      RuleKind = 11
)

// Rule raises an alarm.
type Rule struct {
	Kind      RuleKind
	Enabled   bool
	Threshold int64
	Severity  int64 // 1 warning, 2 major, 3 critical
	UpdatedAt time.Time
}

// base are the rules as they are at first, and what their thresholds may be.
var base = []struct {
	Rule
	least, most int64
}{
	{Rule{Kind: NodeOffline, Enabled: true, Threshold: 15, Severity: 2}, 0, 7 * 24 * 3600},
	{Rule{Kind: DeviceGone, Enabled: true, Severity: 3}, 0, 0},
	{Rule{Kind: ComputeFull, Threshold: 95, Severity: 1}, 1, 10000},
	{Rule{Kind: MemoryFull, Enabled: true, Threshold: 95, Severity: 1}, 1, 100},
	{Rule{Kind: TaskMemoryFull, Threshold: 95, Severity: 1}, 1, 100},
	{Rule{Kind: QueueLong, Enabled: true, Threshold: 10, Severity: 1}, 1, 10000},
	{Rule{Kind: WaitLong, Enabled: true, Threshold: 600, Severity: 1}, 1, 7 * 24 * 3600},
	{Rule{Kind: RefusedOften, Enabled: true, Threshold: 20, Severity: 1}, 1, 100_000},
	{Rule{Kind: NotConfigured, Enabled: true, Threshold: 60, Severity: 1}, 1, 7 * 24 * 3600},
	{Rule{Kind: DeviceHot, Enabled: true, Threshold: 90, Severity: 2}, 1, 200},
	{Rule{Kind: PowerHigh, Threshold: 300, Severity: 1}, 1, 100_000},
}

// refusedWithin is the time in which what was refused counts.
const refusedWithin = 10 * time.Minute

func rulesTx(ctx context.Context, tx *db.Tx) ([]Rule, error) {
	var out []Rule
	for _, b := range base {
		out = append(out, b.Rule)
	}
	err := tx.Query(ctx, `SELECT kind, enabled, threshold, severity, updated_at FROM pool_alarm_rules`, nil, func(row db.Row) error {
		var r Rule
		var at int64
		err := row.Scan(&r.Kind, &r.Enabled, &r.Threshold, &r.Severity, &at)
		r.UpdatedAt = db.Time(at)
		if i := slices.IndexFunc(out, func(x Rule) bool { return x.Kind == r.Kind }); i >= 0 {
			out[i] = r
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the rules of the pool's alarms: %w", err)
	}
	return out, nil
}

// Rules lists the rules by kind.
func (s *Service) Rules(ctx context.Context) (out []Rule, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = rulesTx(ctx, tx)
		return err
	})
	return out, err
}

// SetRule changes a rule.
func (s *Service) SetRule(ctx context.Context, r Rule) (*Rule, error) {
	i := slices.IndexFunc(base, func(b struct {
		Rule
		least, most int64
	}) bool {
		return b.Kind == r.Kind
	})
	var c core.Check
	if i < 0 {
		c.Add("kind", "must be between 1 and %d, got %d", len(base), r.Kind)
		return nil, c.Err()
	}
	if base[i].most == 0 && r.Threshold != 0 {
		c.Add("rule.threshold", "must be 0: a rule of this kind has none, got %d", r.Threshold)
	} else {
		c.Range("rule.threshold", r.Threshold, base[i].least, base[i].most)
	}
	c.Range("rule.severity", r.Severity, 1, 3)
	if err := c.Err(); err != nil {
		return nil, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r.UpdatedAt = tx.Now
		if _, err := tx.Exec(ctx, `INSERT INTO pool_alarm_rules (kind, enabled, threshold, severity, updated_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (kind) DO UPDATE SET enabled = $2, threshold = $3, severity = $4, updated_at = $5`, int64(r.Kind), r.Enabled, r.Threshold, r.Severity, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("store a rule of the pool's alarms: %w", err)
		}
		if err := s.ids.AuditTx(ctx, tx, fmt.Sprintf("pool alarm rule %d", r.Kind)); err != nil {
			return err
		}
		return emit(ctx, tx, []string{})
	})
	return &r, err
}

// Trouble is what a rule finds.
type Trouble struct {
	Rule                 Rule
	Key                  string // of what it is about
	Parent               string // the key of another that it follows from, with its rule's kind; "": none
	Node, Device, Tenant string
	Message              string
}

// Troubles says what is wrong by the rules that are enabled, and when the clock
// makes something wrong that is not yet; zero: not before something changes.
func (s *Service) Troubles(ctx context.Context) (out []Trouble, next time.Time, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		l := look{at: s.db.Now(), rules: map[RuleKind]Rule{}}
		rules, err := rulesTx(ctx, tx)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Enabled {
				l.rules[r.Kind] = r
			}
		}
		if l.nodes, err = s.pools.NodesTx(ctx, tx); err != nil {
			return err
		}
		if len(l.nodes) == 0 {
			out, next = nil, time.Time{}
			return nil
		}
		if l.live, err = s.pools.LiveTx(ctx, tx); err != nil {
			return err
		}
		if l.parts, err = readComponents(ctx, tx); err != nil {
			return err
		}
		if l.refused, err = s.logs.Refused(ctx, tx, l.at.Add(-refusedWithin)); err != nil {
			return err
		}
		l.judge()
		out, next = l.out, l.next
		return nil
	})
	return out, next, err
}

// look is what the rules look at, and what they find.
type look struct {
	at      time.Time
	rules   map[RuleKind]Rule
	nodes   []*pools.Node
	live    []*pools.Slice
	parts   map[string]*Components
	refused int64

	out  []Trouble
	next time.Time
}

func (l *look) find(k RuleKind, t Trouble) {
	r, enabled := l.rules[k]
	if enabled {
		t.Rule, t.Key = r, fmt.Sprintf("pool/%d/%s", k, t.Key)
		l.out = append(l.out, t)
	}
}

// since reports whether what has been so since a time has been so for too long; if
// not, it says when it will have been.
func (l *look) since(k RuleKind, at time.Time) bool {
	r, enabled := l.rules[k]
	due := at.Add(time.Duration(r.Threshold) * time.Second)
	if !enabled || !l.at.Before(due) {
		return enabled
	}
	if l.next.IsZero() || due.Before(l.next) {
		l.next = due
	}
	return false
}

func (l *look) judge() {
	for _, n := range l.nodes {
		offline := ""
		if !n.Online && !n.SeenAt.IsZero() && n.SeenAt.UnixMicro() != 0 && l.since(NodeOffline, n.SeenAt) {
			offline = fmt.Sprintf("pool/%d/%s", NodeOffline, n.ID)
			l.find(NodeOffline, Trouble{Key: n.ID, Node: n.ID, Message: fmt.Sprintf("pool node %s has been offline since %s", n.ID, n.SeenAt.UTC().Format(time.RFC3339))})
		}
		for _, d := range n.Devices {
			l.device(n, d)
		}
		for _, f := range n.Figures {
			l.figure(n, f)
		}
		if x := l.parts[n.ID]; n.Online && x != nil && x.Applied != x.Generation && l.since(NotConfigured, x.SetAt) {
			l.find(NotConfigured, Trouble{Key: n.ID, Parent: offline, Node: n.ID, Message: fmt.Sprintf("pool node %s has not taken configuration %d, but has %d: %s", n.ID, x.Generation, x.Applied, x.Problem)})
		}
	}
	waiting, first := 0, (*pools.Slice)(nil)
	for _, x := range l.live {
		if x.State == pools.Waiting {
			if waiting++; first == nil || x.QueuedAt.Before(first.QueuedAt) {
				first = x
			}
			continue
		}
		if t := l.rules[TaskMemoryFull].Threshold; x.State == pools.Running && x.Used>>20*100 >= x.Memory*t {
			l.find(TaskMemoryFull, Trouble{Key: x.ID, Node: x.Node, Device: x.Device, Tenant: x.Tenant, Message: fmt.Sprintf("task %s of user %s has used at least %d%% of its %d MiB of memory on %s/%s", x.ID, x.User, t, x.Memory, x.Node, x.Device)})
		}
	}
	if t := l.rules[QueueLong].Threshold; int64(waiting) >= t {
		l.find(QueueLong, Trouble{Key: "queue", Message: fmt.Sprintf("at least %d slices wait for room in the accelerator pool", t)})
	}
	if first != nil && l.since(WaitLong, first.QueuedAt) {
		l.find(WaitLong, Trouble{Key: "queue", Message: fmt.Sprintf("slice %s of user %s has waited for room in the accelerator pool since %s", first.ID, first.User, first.QueuedAt.UTC().Format(time.RFC3339))})
	}
	if t := l.rules[RefusedOften].Threshold; l.refused >= t {
		l.find(RefusedOften, Trouble{Key: "refused", Message: fmt.Sprintf("the accelerator pool refused at least %d times within %s", t, refusedWithin)})
	}
}

func (l *look) figure(n *pools.Node, f pool.Figure) {
	if !n.Online {
		return
	}
	at := n.ID + "/" + f.Device
	if t := l.rules[DeviceHot].Threshold; f.Temperature != nil && *f.Temperature >= t {
		l.find(DeviceHot, Trouble{Key: at, Node: n.ID, Device: f.Device, Message: fmt.Sprintf("device %s has at least %d °C", at, t)})
	}
	if t := l.rules[PowerHigh].Threshold; f.Source != "" && f.Power >= t*1000 {
		l.find(PowerHigh, Trouble{Key: at, Node: n.ID, Device: f.Device, Message: fmt.Sprintf("device %s draws at least %d W (%s)", at, t, f.Source)})
	}
}

func (l *look) device(n *pools.Node, d *pools.Device) {
	at := n.ID + "/" + d.ID
	if !d.Present {
		l.find(DeviceGone, Trouble{Key: at, Node: n.ID, Device: d.ID, Message: fmt.Sprintf("device %s of pool node %s, a %s, is gone", d.ID, n.ID, d.Model)})
		return
	}
	if t := l.rules[ComputeFull].Threshold; d.ComputeLent > 0 && d.ComputeLent*100 >= t*d.ComputeLimit {
		l.find(ComputeFull, Trouble{Key: at, Node: n.ID, Device: d.ID, Message: fmt.Sprintf("at least %d%% of the compute of device %s is lent", t, at)})
	}
	if t := l.rules[MemoryFull].Threshold; d.MemoryLent > 0 && d.MemoryLent*100 >= t*d.MemoryLimit {
		l.find(MemoryFull, Trouble{Key: at, Node: n.ID, Device: d.ID, Message: fmt.Sprintf("at least %d%% of the memory of device %s is lent", t, at)})
	}
}
