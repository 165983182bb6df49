package measurement

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/measurement/score"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
)

// Origin says where a value is from.
type Origin int

// The origins.
const (
	Declared Origin = 1
	Reported Origin = 2
	Measured Origin = 3
	Derived  Origin = 4
)

// Value of an indicator.
type Value struct {
	Indicator string
	Node      string // "": of the whole center
	Part      string // which of several
	Number    float64
	Text      string // instead of a number
	At        time.Time
	Origin    Origin
}

// Picture is everything that is known of a center.
type Picture struct {
	CenterID        string
	Name            string
	Performance     int64
	PerformanceFrom string
	Values          []Value
	Shares          []score.Share
	Runs            []Run
	Notes           []string
}

// picture gathers values of a center.
type picture struct {
	Picture

	k   registry.Center
	now time.Time
}

func (p *picture) number(indicator, node, part string, v float64, at time.Time, o Origin) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	p.Values = append(p.Values, Value{Indicator: indicator, Node: node, Part: part, Number: v, At: at, Origin: o})
}

func (p *picture) text(indicator, node, part, v string, at time.Time, o Origin) {
	if v != "" {
		p.Values = append(p.Values, Value{Indicator: indicator, Node: node, Part: part, Text: v, At: at, Origin: o})
	}
}

// live adds a figure of the samples, if it is known.
func (p *picture) live(indicator, node, part string, v *float64, at time.Time) {
	if v != nil {
		p.number(indicator, node, part, *v, at, Measured)
	}
}

// Picture returns the values of a center, with those of its nodes if asked for.
// It returns fault.Invalid and fault.NotFound.
func (s *Service) Picture(ctx context.Context, centerID string, nodes bool) (Picture, error) {
	k, err := s.Registry.GetCenter(ctx, centerID)
	if err != nil {
		return Picture{}, err
	}
	p := &picture{Picture: Picture{CenterID: k.ID, Name: k.Name, Performance: k.Performance}, k: k, now: s.db.Now()}
	var last map[Scope]Run
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if p.PerformanceFrom, err = s.Registry.PerformanceFromTx(ctx, tx, k.ID); err != nil {
			return err
		}
		last = map[Scope]Run{}
		for _, scope := range []Scope{Machine, Devices} {
			r, found, err := lastWell(ctx, tx, k.ID, scope)
			if err != nil {
				return err
			}
			if found {
				last[scope] = r
			}
		}
		p.Runs, err = readRuns(ctx, tx, `WHERE ai_center_id = $1 AND `+ofCenter+` ORDER BY run_id DESC LIMIT $2`, k.ID, shownRuns)
		return err
	})
	if err != nil {
		return Picture{}, err
	}
	p.center()
	if err := s.registered(ctx, p); err != nil {
		return Picture{}, err
	}
	if err := s.figures(ctx, p); err != nil {
		return Picture{}, err
	}
	if nodes {
		if err := s.nodes(ctx, p); err != nil {
			return Picture{}, err
		}
	}
	p.benchmark(last)
	slices.SortStableFunc(p.Values, func(a, b Value) int {
		return cmp.Or(cmp.Compare(order()[a.Indicator], order()[b.Indicator]), strings.Compare(a.Node, b.Node), strings.Compare(a.Part, b.Part), cmp.Compare(a.Origin, b.Origin))
	})
	return p.Picture, nil
}

// center adds what the center declares and what the registry counts.
func (p *picture) center() {
	k := &p.k
	for _, name := range slices.Sorted(keys(k.Total)) {
		n := float64(k.Total[name])
		switch name {
		case core.CPU:
			p.number("compute.cores", "", "", n/1000, k.UpdatedAt, Declared)
			p.number("compute.cores.free", "", "", float64(k.Free(name))/1000, p.now, Derived)
		case core.Memory:
			p.number("memory.capacity", "", "", n, k.UpdatedAt, Declared)
		case core.Storage:
			p.number("storage.capacity", "", "", n, k.UpdatedAt, Declared)
		default:
			p.number("accelerator.count", "", name, n, k.UpdatedAt, Declared)
			p.number("accelerator.free", "", name, float64(k.Free(name)), p.now, Derived)
		}
	}
	p.number("work.running", "", "", float64(k.Running), p.now, Derived)
	p.number("work.waiting", "", "", float64(k.Waiting), p.now, Derived)
	if m := k.Measured; !m.At.IsZero() {
		if m.MemoryTotal > 0 {
			p.number("memory.free", "", "", float64(m.MemoryTotal-m.MemoryBusy), m.At, Measured)
		}
		if m.StorageTotal > 0 {
			p.number("storage.free", "", "", float64(m.StorageTotal-m.StorageBusy), m.At, Measured)
		}
	} else if _, has := k.Total[core.Memory]; has {
		p.number("memory.free", "", "", float64(k.Free(core.Memory)), p.now, Derived)
	}
	if k.Performance > 0 {
		p.number("service.performance", "", "", float64(k.Performance), k.UpdatedAt,
			map[string]Origin{registry.PerformanceMeasured: Measured, registry.PerformanceDeclared: Declared, registry.PerformanceOperator: Declared}[p.PerformanceFrom])
	}
	if n := k.Nodes; n != nil {
		p.number("compute.nodes", "", "", float64(n.Total()), k.UpdatedAt, Reported)
		p.peaks("", n.Accelerators, k.UpdatedAt)
	}
}

// peaks adds models and what they reach together, each precision by itself.
func (p *picture) peaks(node string, list []registry.Accelerator, at time.Time) {
	var rates []accelerators.Rate
	for _, a := range list {
		name := cmp.Or(a.Model, a.Vendor, a.Resource)
		p.number("accelerator.count", node, name, float64(a.Count), at, Reported)
		known, ok := accelerators.Known().Find(a.Model)
		if memory := cmp.Or(a.Memory, known.MemoryBytes); memory > 0 {
			o := Reported
			if a.Memory == 0 {
				o = Derived
			}
			p.number("accelerator.memory", node, name, float64(memory), at, o)
		}
		if !ok {
			p.note("the peak figures of accelerator " + strconv.Quote(name) + " are not known")
			continue
		}
		for _, r := range known.Peak {
			rates = append(rates, r.Times(a.Count))
		}
	}
	for _, r := range accelerators.Totals(rates...) {
		p.number("accelerator.peak."+strings.ToLower(string(r.Precision())), node, "", r.Tera(), at, Derived)
	}
}

// note says something once.
func (p *picture) note(text string) {
	if !slices.Contains(p.Notes, text) {
		p.Notes = append(p.Notes, text)
	}
}

// registered adds what is stated of the center's network and storage.
func (s *Service) registered(ctx context.Context, p *picture) error {
	const most = 200
	for kind, fields := range map[string]map[string]string{
		"network": {"bandwidth_mbps": "network.bandwidth", "latency_us": "network.latency", "network_type": "network.type"},
		"storage": {"capacity_bytes": "storage.capacity", "iops": "storage.iops", "throughput_mbps": "storage.throughput", "storage_type": "storage.type"},
	} {
		rows, next, err := s.Inventory.List(ctx, inventory.Filter{Type: kind, CenterID: p.CenterID}, most, "")
		if err != nil {
			return err
		}
		if next != "" {
			p.note("of the registered " + kind + " resources, the first " + strconv.Itoa(most) + " are shown")
		}
		for _, r := range rows {
			for field, indicator := range fields {
				switch v := r.Attributes[field].(type) {
				case float64:
					p.number(indicator, "", cmp.Or(r.Name, r.ID), v, r.UpdatedAt, Declared)
				case string:
					p.text(indicator, "", cmp.Or(r.Name, r.ID), v, r.UpdatedAt, Declared)
				}
			}
		}
	}
	return nil
}

// figures adds what the center measures now. Samples that cannot be read leave
// the rest as it is.
func (s *Service) figures(ctx context.Context, p *picture) error {
	f, err := s.Monitor.Figures(ctx, p.CenterID, "")
	if fault.KindOf(err) == fault.Unavailable {
		p.note("live figures cannot be read now")
		f, err = &monitor.Figures{}, nil
	}
	if err != nil {
		return err
	}
	switch m := p.k.Measured; {
	case f.CPUBusy != nil:
		p.live("compute.busy", "", "", f.CPUBusy, f.At)
	case !m.At.IsZero():
		p.number("compute.busy", "", "", float64(m.CPUBusyPermille)/1000, m.At, Measured)
	}
	switch m := p.k.Measured; {
	case f.MemoryBusy != nil:
		p.live("memory.busy", "", "", f.MemoryBusy, f.At)
	case m.MemoryTotal > 0:
		p.number("memory.busy", "", "", float64(m.MemoryBusy), m.At, Measured)
	}
	p.live("accelerator.busy", "", "", f.Accelerator, f.At)
	for indicator, v := range map[string]*float64{
		"storage.reads": f.Storage.Reads, "storage.writes": f.Storage.Writes, "storage.read": f.Storage.Read, "storage.written": f.Storage.Written,
		"storage.latency": f.Storage.Latency, "network.received": f.Network.Received, "network.sent": f.Network.Sent,
	} {
		p.live(indicator, "", "", v, f.At)
	}
	for _, path := range f.Paths {
		p.live("path.latency", "", path.Peer, path.Latency, f.At)
		p.live("path.jitter", "", path.Peer, path.Jitter, f.At)
		p.live("path.loss", "", path.Peer, path.Loss, f.At)
		p.live("path.bandwidth", "", path.Peer, path.Bandwidth, f.At)
	}
	return nil
}

// liveNodes is of how many nodes the present figures are read one by one.
const liveNodes = 64

// nodes adds what each node is, and does.
func (s *Service) nodes(ctx context.Context, p *picture) error {
	list, next, err := s.Registry.ListNodes(ctx, registry.NodeFilter{CenterID: p.CenterID}, maxNodes, "")
	if err != nil {
		return err
	}
	if next != "" {
		p.note("the first " + strconv.Itoa(maxNodes) + " nodes are shown")
	}
	if err := s.nodeFigures(ctx, p, list); err != nil {
		return err
	}
	for i, n := range list {
		p.node(&n)
		if i >= liveNodes {
			p.note("live figures of the first " + strconv.Itoa(liveNodes) + " nodes are shown")
			continue
		}
		f, err := s.Monitor.Figures(ctx, p.CenterID, n.Name)
		if fault.KindOf(err) == fault.Unavailable {
			continue // said already
		}
		if err != nil {
			return err
		}
		p.live("compute.busy", n.Name, "", f.CPUBusy, f.At)
		p.live("memory.busy", n.Name, "", f.MemoryBusy, f.At)
		for _, a := range f.Accelerators {
			p.live("accelerator.busy", n.Name, strconv.FormatInt(a.Index, 10), a.Busy, f.At)
		}
	}
	return nil
}

// nodeFigures adds what the last scheduled run of each node found.
func (s *Service) nodeFigures(ctx context.Context, p *picture, list []registry.Node) error {
	if len(list) == 0 {
		return nil
	}
	return s.db.View(ctx, func(tx *db.Tx) error {
		runs, err := readRuns(ctx, tx, `WHERE run_id IN (SELECT run_id FROM measurement_nodes WHERE ai_center_id = $1 AND node >= $2 AND node <= $3) ORDER BY run_id`,
			p.CenterID, list[0].Name, list[len(list)-1].Name)
		for _, r := range runs {
			for _, f := range r.Result.Report.Figures {
				if _, known := order()[f.Indicator]; known {
					p.number(f.Indicator, r.ScheduleNode, "", f.Number, r.EndedAt, Measured)
				}
			}
			if r.Performance > 0 {
				p.number("service.measured", r.ScheduleNode, "", float64(r.Performance), r.EndedAt, Derived)
			}
		}
		return err
	})
}

// node adds what a node is, from what its driver reports.
func (p *picture) node(n *registry.Node) {
	at := n.UpdatedAt
	for _, x := range []struct {
		indicator, resource string
		by                  float64
	}{{"compute.cores", core.CPU, 1000}, {"memory.capacity", core.Memory, 1}, {"storage.capacity", core.Storage, 1}} {
		if q := n.Capacity[x.resource]; q > 0 {
			p.number(x.indicator, n.Name, "", float64(q)/x.by, at, Reported)
		}
	}
	p.text("compute.architecture", n.Name, "", n.Architecture, at, Reported)
	p.text("compute.system", n.Name, "", cmp.Or(n.Labels["system"], n.OS), at, Reported)
	p.text("compute.processor", n.Name, "", n.Labels["cpu.model"], at, Reported)
	var features []string
	for _, name := range slices.Sorted(keys(n.Labels)) {
		if f, ok := strings.CutPrefix(name, "cpu.feature."); ok {
			features = append(features, f)
		}
	}
	p.text("compute.features", n.Name, "", strings.Join(features, " "), at, Reported)
	for _, x := range []struct{ label, indicator, part string }{
		{"cpu.mhz", "compute.frequency", ""}, {"network.mbps", "network.interface", ""},
		{"disk.write.mbps", score.DiskWrite, "data folder"}, {"disk.reads.per-second", score.DiskReads, "data folder"},
	} {
		if v, err := strconv.ParseFloat(n.Labels[x.label], 64); err == nil && v > 0 {
			p.number(x.indicator, n.Name, x.part, v, at, Reported)
		}
	}
	p.peaks(n.Name, n.Accelerators, at)
}

// benchmark adds what the last runs found, and what that is worth together.
func (p *picture) benchmark(last map[Scope]Run) {
	if len(last) == 0 {
		p.note("this center was never measured: `yunhe measurement run " + p.CenterID + "`")
	}
	for _, scope := range []Scope{Machine, Devices} {
		r, ok := last[scope]
		if !ok {
			continue
		}
		rep := &r.Result.Report
		if scope == Machine {
			p.text("compute.processor", "", "", rep.Processor, r.EndedAt, Measured)
			p.text("compute.architecture", "", "", rep.Architecture, r.EndedAt, Measured)
			p.text("storage.type", "", "working directory", rep.Medium, r.EndedAt, Measured)
			if rep.MHz > 0 {
				p.number("compute.frequency", "", "", rep.MHz, r.EndedAt, Measured)
			}
		}
		for _, f := range rep.Figures {
			part := ""
			if f.Device >= 0 {
				d := rep.Devices[f.Device]
				part = strconv.Itoa(f.Device) + " " + d.Name + " (" + d.API + ")"
			}
			if _, known := order()[f.Indicator]; known {
				p.number(f.Indicator, "", part, f.Number, r.EndedAt, Measured)
			}
		}
		for _, n := range rep.Notes {
			p.note(n)
		}
	}
	r, ok := last[Machine]
	if !ok {
		return
	}
	p.Shares = r.Result.Shares
	domains := map[string][]score.Share{}
	for _, share := range r.Result.Shares {
		d := scheme()[order()[share.Indicator]].Domain
		domains[d] = append(domains[d], share)
	}
	for domain, indicator := range map[string]string{"compute": "service.computing", "storage": "service.storage", "network": "service.network"} {
		if v := score.Mean(domains[domain]); v > 0 {
			p.number(indicator, "", "", float64(v), r.EndedAt, Derived)
		}
	}
	if r.Performance > 0 {
		p.number("service.measured", "", "", float64(r.Performance), r.EndedAt, Derived)
	}
}

// Compared is one indicator of several centers.
type Compared struct {
	Indicator string
	Part      string
	Values    []*Value // in the order of the centers; nil: not known
}

// Compare returns the numbers of whole centers side by side: those that at
// least two of them have, and peaks and figures any has. It returns
// fault.Invalid and fault.NotFound.
func (s *Service) Compare(ctx context.Context, ids []string) ([]Compared, error) {
	var c core.Check
	if len(ids) < 2 || len(ids) > maxCompare {
		c.Add("ai_center_ids", "must be 2 to %d, got %d", maxCompare, len(ids))
	}
	for i, id := range ids {
		at := "ai_center_ids[" + strconv.Itoa(i) + "]"
		c.ID(at, id)
		if slices.Contains(ids[:i], id) {
			c.Add(at, "names %s a second time", clip(id))
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	var rows []Compared
	for i, id := range ids {
		p, err := s.Picture(ctx, id, false)
		if err != nil {
			return nil, err
		}
		for _, v := range p.Values {
			if v.Text != "" {
				continue
			}
			if scheme()[order()[v.Indicator]].Domain != "compute" && v.Part != "" {
				v.Part = "" // names of one center's own: compared by their largest
			}
			at := slices.IndexFunc(rows, func(r Compared) bool { return r.Indicator == v.Indicator && r.Part == v.Part })
			if at < 0 {
				at = len(rows)
				rows = append(rows, Compared{v.Indicator, v.Part, make([]*Value, len(ids))})
			}
			if old := rows[at].Values[i]; old == nil || v.Number > old.Number {
				rows[at].Values[i] = &v
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b Compared) int {
		return cmp.Or(cmp.Compare(order()[a.Indicator], order()[b.Indicator]), strings.Compare(a.Part, b.Part))
	})
	return rows, nil
}
