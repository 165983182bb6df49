package access

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags/expr"
)

func itoa(n int) string { return strconv.Itoa(n) }

// platform is the caller of what the platform does by itself.
func platform(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{AllTenants: true})
}

// view is what is known of the network at a moment.
type view struct {
	snap      *registry.Snapshot
	figures   map[string]*monitor.Figures
	reached   map[string]adapters.Instance // by center
	sources   map[string]string            // source type of centers that are part of a cloud
	summaries map[string]*registry.NodeSummary
	chips     map[string][]string // models of accelerators, by center
	archs     map[string][]string // architectures, by center
}

// look reads what changes often; architectures come from the last look at nodes.
func (s *Service) look(ctx context.Context, archs map[string][]string) (*view, error) {
	ctx = platform(ctx)
	v := &view{reached: map[string]adapters.Instance{}, sources: map[string]string{}, summaries: map[string]*registry.NodeSummary{}, chips: map[string][]string{}, archs: archs}
	var err error
	if v.snap, err = s.reg.Snapshot(ctx); err != nil {
		return nil, err
	}
	if v.figures, err = s.mon.AllFigures(ctx); err != nil {
		return nil, err
	}
	if err := s.reach(ctx, v); err != nil {
		return nil, err
	}
	for token := ""; ; {
		rows, next, err := s.reg.ListCenters(ctx, "", 1000, token)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			k := &rows[i]
			if k.Nodes == nil {
				continue
			}
			v.summaries[k.ID] = k.Nodes
			for _, a := range k.Nodes.Accelerators {
				v.chips[k.ID] = append(v.chips[k.ID], a.Model)
			}
		}
		if token = next; token == "" {
			break
		}
	}
	return v, s.clouds(ctx, v)
}

// reach finds what reaches each center.
func (s *Service) reach(ctx context.Context, v *view) error {
	plugins, err := s.ad.Plugins(ctx)
	if err != nil {
		return err
	}
	for _, p := range plugins {
		if p.Name == adapters.GatewayPlugin {
			continue
		}
		for _, in := range p.Instances {
			// Of several that know a center, the one that serves it counts.
			if old, ok := v.reached[in.CenterID]; in.CenterID != "" && (!ok || old.State != adapters.Up) {
				v.reached[in.CenterID] = in
			}
		}
	}
	gateways, err := s.ad.Gateways(ctx)
	if err != nil {
		return err
	}
	for _, g := range gateways {
		in := adapters.Instance{Plugin: adapters.GatewayPlugin, CenterID: g.CenterID, Version: g.Version, State: adapters.Down, CreatedAt: g.JoinedAt}
		switch {
		case g.Connected:
			in.State = adapters.Up
		case g.LastSeen.IsZero():
			in.State = adapters.Starting
		default:
			in.Message = "the gateway is not connected"
		}
		v.reached[g.CenterID] = in
	}
	return nil
}

// clouds finds the centers that are part of a registered cloud.
func (s *Service) clouds(ctx context.Context, v *view) error {
	kinds := map[string]string{} // of clouds, by ID
	if err := s.eachResource(ctx, inventory.Filter{Type: "cloud"}, func(r *inventory.Resource) {
		kinds[r.ID], _ = r.Attributes["cloud_platform_type"].(string)
	}); err != nil || len(kinds) == 0 {
		return err
	}
	return s.eachResource(ctx, inventory.Filter{Type: "center"}, func(r *inventory.Resource) {
		if kind, ok := kinds[r.ParentID]; ok {
			v.sources[r.CenterID] = cloudSource(kind)
		}
	})
}

func cloudSource(kind string) string {
	switch kind {
	case "public", "dedicated", "edge", "hybrid":
		return kind + "_cloud"
	}
	return "other"
}

func (s *Service) eachResource(ctx context.Context, f inventory.Filter, each func(*inventory.Resource)) error {
	for token := ""; ; {
		rows, next, err := s.inv.List(platform(ctx), f, 1000, token)
		if err != nil {
			return err
		}
		for i := range rows {
			each(&rows[i])
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// source is the source type of a center.
func (v *view) source(k *registry.Center) string {
	if x := v.sources[k.ID]; x != "" {
		return x
	}
	switch k.Adapter {
	case adapters.GatewayPlugin:
		return "machine"
	case "kubernetes":
		return "container_cluster"
	case "slurm":
		return "batch_cluster"
	}
	return "other"
}

// facts are what rules may read of a center.
func (v *view) facts(k *registry.Center) expr.Facts {
	f := expr.AccessCenter.Facts()
	f["id"], f["name"], f["region"], f["security_grade"] = k.ID, k.Name, k.Region, k.SecurityGrade
	f["performance"], f["adapter"], f["drained"], f["capacity"] = k.Performance, k.Adapter, k.Drained, units(k.Total)
	f["source_type"], f["status"] = v.source(k), statusWord(k.Status)
	if k.Labels != nil {
		f["labels"] = k.Labels
	}
	if k.Position != nil {
		f["located"], f["longitude"], f["latitude"] = true, float64(k.Position.Longitude)/1e6, float64(k.Position.Latitude)/1e6
	}
	if n := v.summaries[k.ID]; n != nil {
		f["nodes"] = map[string]int64{"ready": n.Ready, "not_ready": n.NotReady, "drained": n.Drained, "total": n.Total()}
	}
	if x := v.chips[k.ID]; x != nil {
		f["models"] = x
	}
	if x := v.archs[k.ID]; x != nil {
		f["architectures"] = x
	}
	if in, ok := v.reached[k.ID]; ok {
		f["version"], f["connection"] = in.Version, in.State
	}
	if !k.LastSeen.IsZero() {
		f["seen"], f["seen_seconds"] = true, int64(v.snap.At.Sub(k.LastSeen).Seconds())
	}
	figureFacts(f, v.figures[k.ID])
	if c := classOf(f); c != nil {
		f["class"], f["class_plugins"] = c.ID, c.Plugins
	}
	return f
}

func figureFacts(f expr.Facts, x *monitor.Figures) {
	if x == nil {
		return
	}
	f["measured"] = !x.At.IsZero()
	if x.Refused != nil {
		f["refused"] = x.Refused
	}
	if x.ClockSkew != nil {
		f["clock_known"], f["clock_skew_seconds"] = true, *x.ClockSkew
	}
	for i, p := range x.Paths {
		f["path_known"] = true
		worst := func(name string, v *float64, unit float64) {
			if v != nil {
				f[name] = max(f[name].(float64), *v*unit) // it is one
			}
		}
		worst("latency_ms", p.Latency, 1000)
		worst("jitter_ms", p.Jitter, 1000)
		worst("loss_percent", p.Loss, 100)
		if p.Bandwidth != nil && (i == 0 || *p.Bandwidth/1e6 < f["bandwidth_mbps"].(float64)) { // it is one
			f["bandwidth_mbps"] = *p.Bandwidth / 1e6
		}
	}
}

func statusWord(st registry.Status) string {
	switch st {
	case registry.Available:
		return "available"
	case registry.Unavailable:
		return "unavailable"
	}
	return "unknown"
}

// units are amounts as rules read them: cores, GiB, pieces.
func units(q core.Quantities) map[string]int64 {
	out := make(map[string]int64, len(q))
	for name, n := range q {
		switch name {
		case core.CPU:
			n /= 1000
		case core.Memory, core.Storage:
			n >>= 30
		}
		out[name] = n
	}
	return out
}

var nodeStates = [...]string{registry.NodeReady: "ready", registry.NodeNotReady: "not_ready", registry.NodeDrained: "drained"}

// nodeFacts are what rules may read of a node.
func nodeFacts(n *registry.Node, region string) expr.Facts {
	f := expr.AccessNode.Facts()
	f["id"], f["name"], f["center"], f["region"] = inventory.NodeID(n.CenterID, n.Name), n.Name, n.CenterID, region
	f["state"], f["architecture"], f["operating_system"] = nodeStates[n.State], n.Architecture, n.OS
	f["capacity"], f["allocatable"] = units(n.Capacity), units(n.Allocatable)
	if n.Labels != nil {
		f["labels"] = n.Labels
	}
	var list []any
	models := map[string]bool{}
	most := int64(0)
	for _, a := range n.Accelerators {
		list = append(list, map[string]any{"vendor": a.Vendor, "model": a.Model, "count": a.Count, "memory": a.Memory >> 30, "resource": a.Resource})
		if models[a.Model] = true; a.Count > most {
			most, f["main_model"], f["main_vendor"] = a.Count, a.Model, a.Vendor
		}
	}
	if list != nil {
		f["accelerators"], f["models"] = list, slices.Sorted(maps.Keys(models))
	}
	return f
}

var resourceStates = [...]string{"", "registered", "available", "unavailable", "maintenance", "retired"}

// resourceFacts are what rules may read of a registered resource.
func resourceFacts(r *inventory.Resource) expr.Facts {
	f := expr.AccessResource.Facts()
	f["id"], f["name"], f["type"], f["parent"], f["center"] = r.ID, r.Name, r.Type, r.ParentID, r.CenterID
	f["region"], f["provider"] = r.Region, r.Provider
	if int(r.State) < len(resourceStates) {
		f["state"] = resourceStates[r.State]
	}
	if r.Attributes != nil {
		f["attributes"] = r.Attributes
	}
	if r.Labels != nil {
		f["labels"] = r.Labels
	}
	return f
}

// registered tells whether a resource is stored in the inventory, and is not a
// center or a node.
func registered(id string) bool { return !strings.Contains(id, ":") }
