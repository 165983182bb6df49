package topology

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	topologyv1 "yunhe.dev/yunhe/gen/yunhe/topology/v1"
	"yunhe.dev/yunhe/gen/yunhe/topology/v1/topologyv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(topologyv1connect.NewTopologyServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

// when reads the time asked for: zero is now.
func when(path string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	var c core.Check
	at := t.AsTime()
	if t.CheckValid() != nil || at.Year() < 1970 || at.Year() > 9999 || at.UnixMicro() <= 0 {
		c.Add(path, "must be a time between the years 1970 and 9999")
	}
	return at, c.Err()
}

func span(from, to *timestamppb.Timestamp) (sp Span, err error) {
	if sp.From, err = when("from", from); err == nil {
		sp.To, err = when("to", to)
	}
	return sp, err
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (a api) GetNetworkView(ctx context.Context, r *topologyv1.GetNetworkViewRequest) (*topologyv1.NetworkView, error) {
	at, err := when("at", r.GetAt())
	if err != nil {
		return nil, err
	}
	v, err := a.s.View(ctx, at, r.GetKnownRevision())
	if err != nil {
		return nil, err
	}
	return v.proto(), nil
}

func (v *View) proto() *topologyv1.NetworkView {
	out := &topologyv1.NetworkView{Sequence: v.seq, Revision: v.Revision, Unchanged: v.Unchanged, At: stamp(v.At), HistoryFrom: stamp(v.HistoryFrom)}
	if v.seq > 0 {
		out.ChangedAt = timestamppb.New(time.UnixMicro(v.graph.head.at))
	}
	if v.Unchanged {
		return out
	}
	groups := v.groups
	if len(groups) > maxViewVertices {
		groups = groups[:maxViewVertices]
		out.MoreVertices = int64(len(v.groups) - maxViewVertices)
	}
	for _, i := range groups {
		out.Vertices = append(out.Vertices, v.vertexProto(i))
	}
	for _, i := range v.centers {
		out.Centers = append(out.Centers, v.centerProto(i))
	}
	for i := range v.Links {
		out.Links = append(out.Links, v.Links[i].proto())
	}
	out.MoreLinks = int64(len(v.links) - len(v.Links))
	out.Nodes, out.Cards = v.picture.nodes[0].proto(), v.picture.cards[0].proto()
	return out
}

func (v *View) vertexProto(i int32) *topologyv1.ViewVertex {
	x := &v.v[i]
	out := &topologyv1.ViewVertex{NodeId: x.ID, Name: x.Name, Level: topologyv1.Level(x.Level), NodeType: topologyv1.NodeType(x.Type), Kind: x.Kind,
		State: topologyv1.VertexState(x.State), Reason: x.Reason, Health: topologyv1.Health(v.health[i]), Worst: topologyv1.Health(v.worst[i]), Region: v.region(i),
		AiCenterId: x.CenterID, Nodes: v.picture.nodes[i].proto(), Cards: v.picture.cards[i].proto()}
	if x.parent >= 0 {
		out.ParentId, out.FirstSeenUs, out.SinceUs = v.v[x.parent].ID, x.Added.UnixMicro(), x.Since.UnixMicro()
	}
	out.Located, out.Longitude, out.Latitude = degrees(x.Position)
	return out
}

func (v *View) centerProto(i int32) *topologyv1.ViewCenter {
	out := &topologyv1.ViewCenter{Center: v.vertexProto(i), LayoutTable: []*topologyv1.ViewLayout{{}}}
	nodes := v.nodesOf(i)
	out.Names = make([]string, len(nodes))
	out.Health, out.States, out.Layouts = make([]byte, len(nodes)), make([]byte, len(nodes)), make([]uint32, len(nodes))
	seen := make([]int64, len(nodes))
	layouts := map[string]uint32{"": 0}
	var cards []byte
	differs, later := false, false
	first := v.v[i].Added
	for k, n := range nodes {
		x := &v.v[n]
		out.Names[k], out.Health[k], out.States[k] = x.Name, byte(v.health[n]), byte(x.State)
		out.Layouts[k] = layoutOf(out, layouts, x.Equipment)
		seen[k] = int64(x.Added.Sub(first).Seconds())
		later = later || seen[k] != 0
		for c := x.card; c < x.card+x.cards; c++ {
			h := v.card[c]
			cards = append(cards, byte(h))
			differs = differs || h != v.health[n]
		}
	}
	if differs {
		out.CardHealth = cards
	}
	if later {
		out.FirstSeenS = seen
	}
	return out
}

// layoutOf finds or adds the layout of a node's cards.
func layoutOf(out *topologyv1.ViewCenter, known map[string]uint32, list []Cards) uint32 {
	if len(list) == 0 {
		return 0
	}
	var key strings.Builder
	for _, c := range list {
		fmt.Fprintf(&key, "%q %q %q %d %d ", c.Resource, c.Vendor, c.Model, c.Count, c.Memory)
	}
	i, ok := known[key.String()]
	if !ok {
		i = uint32(len(out.LayoutTable))
		known[key.String()] = i
		out.LayoutTable = append(out.LayoutTable, &topologyv1.ViewLayout{Cards: cardsProto(list)})
	}
	return i
}

func cardsProto(list []Cards) []*topologyv1.Cards {
	var out []*topologyv1.Cards
	room := int64(maxCards)
	for _, c := range list {
		n := min(c.Count, room)
		room -= n
		out = append(out, &topologyv1.Cards{Resource: c.Resource, Vendor: c.Vendor, Model: c.Model, Count: n, MemoryBytes: c.Memory})
	}
	return out
}

func degrees(p *registry.Position) (located bool, longitude, latitude float64) {
	if p == nil {
		return false, 0, 0
	}
	return true, float64(p.Longitude) / 1e6, float64(p.Latitude) / 1e6
}

func (c *Counts) proto() *topologyv1.Counts {
	return &topologyv1.Counts{Total: c.Total(), Healthy: c[Healthy], Busy: c[Busy], Warning: c[Warning], Down: c[Down], Unknown: c[Unknown], Isolated: c[SetAside], Unspecified: c[NoHealth]}
}

func (a api) GetViewValues(ctx context.Context, r *topologyv1.GetViewValuesRequest) (*topologyv1.ViewValues, error) {
	at, err := when("at", r.GetAt())
	if err != nil {
		return nil, err
	}
	g, l, err := a.s.Values(ctx, r.GetBindingId(), at)
	if err != nil {
		return nil, err
	}
	out := &topologyv1.ViewValues{Binding: bindingProto(l.Binding), Sequence: g.seq, At: stamp(l.at)}
	if l.link != nil {
		for i, x := range l.link {
			if !math.IsNaN(x) {
				out.Links = append(out.Links, &topologyv1.LinkValue{LinkId: strings.TrimPrefix(g.links[i].ID, linkPrefix), Value: float32(x)})
			}
		}
		return out, nil
	}
	for _, i := range g.groups[:min(len(g.groups), maxViewVertices)] {
		if x := l.vertex[i]; !math.IsNaN(x) {
			out.Vertices = append(out.Vertices, &topologyv1.VertexValue{NodeId: g.v[i].ID, Value: float32(x)})
		}
	}
	for _, i := range g.centers {
		out.Centers = append(out.Centers, l.centerProto(g, i))
	}
	return out, nil
}

func (l *layer) centerProto(g *graph, i int32) *topologyv1.CenterValues {
	out := &topologyv1.CenterValues{AiCenterId: g.v[i].CenterID, Value: float32(l.vertex[i])}
	nodes := g.nodesOf(i)
	values, some := make([]float32, len(nodes)), false
	var cards []float32
	anyCard := false
	for k, n := range nodes {
		x := l.vertex[n]
		values[k], some = float32(x), some || !math.IsNaN(x)
		if l.card == nil {
			continue
		}
		v := &g.v[n]
		for _, x := range l.card[v.card : v.card+v.cards] {
			cards, anyCard = append(cards, float32(x)), anyCard || !math.IsNaN(x)
		}
	}
	if some {
		out.Nodes = values
	}
	if anyCard {
		out.Cards = cards
	}
	return out
}

func (a api) GetTopology(ctx context.Context, r *topologyv1.GetTopologyRequest) (*topologyv1.Topology, error) {
	at, err := when("at", r.GetAt())
	if err != nil {
		return nil, err
	}
	p, err := a.s.Topology(ctx, r.GetRootId(), at, r.GetDepth(), r.GetLimit())
	if err != nil {
		return nil, err
	}
	out := &topologyv1.Topology{Sequence: p.Seq, At: stamp(p.At), HistoryFrom: stamp(p.HistoryFrom), MoreLinks: p.MoreLinks}
	for i := range p.Vertices {
		out.Vertices = append(out.Vertices, p.Vertices[i].proto())
	}
	for i := range p.Links {
		out.Links = append(out.Links, p.Links[i].proto())
	}
	return out, nil
}

func (a api) GetVertex(ctx context.Context, r *topologyv1.GetVertexRequest) (*topologyv1.Vertex, error) {
	at, err := when("at", r.GetAt())
	if err != nil {
		return nil, err
	}
	v, err := a.s.Vertex(ctx, r.GetNodeId(), at)
	if err != nil {
		return nil, err
	}
	out := v.proto()
	out.PerformanceBinding = &topologyv1.PerformanceBinding{Figures: figuresProto(v.Figures)}
	if v.Card == nil {
		out.Labels = v.Labels
	}
	return out, nil
}

func (v *Vertex) proto() *topologyv1.Vertex {
	out := &topologyv1.Vertex{NodeId: v.ID, NodeType: topologyv1.NodeType(v.Type), Name: v.Name, Kind: v.Kind, State: topologyv1.VertexState(v.State), Reason: v.Reason,
		Health: topologyv1.Health(v.Health), Worst: topologyv1.Health(v.Worst), Region: v.Location, AiCenterId: v.CenterID, TenantId: v.TenantID, ServiceProvider: v.Provider,
		Nodes: v.Nodes.proto(), Cards: v.Cards.proto(), Equipment: cardsProto(v.Equipment), Capacity: notation(v.Capacity), Since: stamp(v.Since), FirstSeen: stamp(v.Added),
		Children: v.Children, More: v.More, Architecture: v.Architecture, OperatingSystem: v.OS, Adapter: v.Adapter,
		Display: &topologyv1.Display{Level: topologyv1.Level(v.Level), ParentId: v.Display, Changes: v.Changes, HistoryFrom: stamp(v.HistoryFrom)}}
	out.Display.Located, out.Display.Longitude, out.Display.Latitude = degrees(v.Position)
	if v.Hidden.Total() > 0 {
		out.HiddenNodes = v.Hidden.proto()
	}
	if v.Card != nil {
		out.Kind, out.Capacity = "card", nil
		out.Name = v.ID[strings.LastIndexByte(v.ID[:strings.LastIndexByte(v.ID, '/')], '/')+1:]
	}
	for i := range v.Links {
		out.Connections = append(out.Connections, v.Links[i].proto())
	}
	return out
}

func notation(q core.Quantities) map[string]string {
	out := make(map[string]string, len(q))
	for name, n := range q {
		out[name] = core.FormatQuantity(name, n)
	}
	return out
}

func figuresProto(list []Figure) []*topologyv1.Figure {
	var out []*topologyv1.Figure
	for _, f := range list {
		out = append(out, &topologyv1.Figure{BindingId: f.Binding.ID, Title: f.Binding.Title, TitleZh: f.Binding.TitleZH, Unit: f.Binding.Unit, Value: f.Value,
			Health: topologyv1.Health(f.Health), MeasuredAt: stamp(f.At)})
	}
	return out
}

func (c *Connection) proto() *topologyv1.Link {
	out := linkProto(c.Item)
	out.Health, out.Figures, out.Dangling = topologyv1.Health(c.Health), figuresProto(c.Figures), c.Dangling
	return out
}

func linkProto(it *Item) *topologyv1.Link {
	l := it.Link
	return &topologyv1.Link{LinkId: strings.TrimPrefix(it.ID, linkPrefix), Name: it.Name, FromId: l.From, ToId: l.To, Kind: topologyv1.LinkKind(l.Kind),
		BandwidthBitsPerSecond: l.Bandwidth, LatencyUs: l.Latency, ServiceProvider: it.Provider, TenantId: it.TenantID, Version: l.Version, Source: topologyv1.LinkSource(l.Source),
		ResourceId: l.ResourceID, CreatedAt: stamp(it.Added), UpdatedAt: stamp(it.Since)}
}

func (a api) ListTopologyChanges(ctx context.Context, r *topologyv1.ListTopologyChangesRequest) (*topologyv1.ListTopologyChangesResponse, error) {
	sp, err := span(r.GetFrom(), r.GetTo())
	if err != nil {
		return nil, err
	}
	rows, next, begins, err := a.s.Changes(ctx, ChangeFilter{Span: sp, ItemID: r.GetNodeId(), CenterID: r.GetAiCenterId(), Newest: r.GetNewestFirst()}, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &topologyv1.ListTopologyChangesResponse{NextPageToken: next, HistoryFrom: stamp(begins)}
	for i := range rows {
		out.Changes = append(out.Changes, rows[i].proto())
	}
	return out, nil
}

func (c *Change) proto() *topologyv1.TopologyChange {
	out := &topologyv1.TopologyChange{Sequence: c.Seq, At: stamp(c.At), Kind: topologyv1.ChangeKind(c.Kind)}
	if link, ok := strings.CutPrefix(c.ID, linkPrefix); ok {
		out.LinkId = link
		if c.Before != nil {
			out.LinkBefore = linkProto(c.Before)
		}
		if c.After != nil {
			out.LinkAfter = linkProto(c.After)
		}
	} else {
		out.NodeId, out.Before, out.After = c.ID, recordProto(c.Before), recordProto(c.After)
	}
	if c.Before != nil && c.After != nil {
		out.Fields = differences(&c.Before.Record, &c.After.Record)
	}
	return out
}

func recordProto(it *Item) *topologyv1.VertexRecord {
	if it == nil {
		return nil
	}
	out := &topologyv1.VertexRecord{ParentId: it.Parent, Name: it.Name, Kind: it.Kind, NodeType: topologyv1.NodeType(it.Type), Level: topologyv1.Level(it.Level),
		State: topologyv1.VertexState(it.State), Health: topologyv1.Health(it.State.health()), Reason: it.Reason, Region: it.Region, AiCenterId: it.CenterID,
		ServiceProvider: it.Provider, Equipment: cardsProto(it.Equipment), Capacity: notation(it.Capacity), Architecture: it.Architecture, OperatingSystem: it.OS, Adapter: it.Adapter, Labels: it.Labels}
	out.Located, out.Longitude, out.Latitude = degrees(it.Position)
	return out
}

func (a api) GetChangeDensity(ctx context.Context, r *topologyv1.GetChangeDensityRequest) (*topologyv1.ChangeDensity, error) {
	sp, err := span(r.GetFrom(), r.GetTo())
	if err != nil {
		return nil, err
	}
	d, err := a.s.Density(ctx, sp, r.GetBuckets(), r.GetAiCenterId())
	if err != nil {
		return nil, err
	}
	return &topologyv1.ChangeDensity{From: stamp(d.From), To: stamp(d.To), HistoryFrom: stamp(d.Begins), LastChange: stamp(d.Last), Added: d.Added, Changed: d.Changed, Removed: d.Removed}, nil
}

func (a api) DiffTopology(ctx context.Context, r *topologyv1.DiffTopologyRequest) (*topologyv1.DiffTopologyResponse, error) {
	sp, err := span(r.GetFrom(), r.GetTo())
	if err != nil {
		return nil, err
	}
	d, err := a.s.Diff(ctx, sp, r.GetAiCenterId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &topologyv1.DiffTopologyResponse{From: stamp(d.From), To: stamp(d.To), NextPageToken: d.Next, Added: d.Added, Changed: d.Changed, Removed: d.Removed}
	for i := range d.Changes {
		out.Changes = append(out.Changes, d.Changes[i].proto())
	}
	return out, nil
}

func (a api) ListLinks(ctx context.Context, r *topologyv1.ListLinksRequest) (*topologyv1.ListLinksResponse, error) {
	at, err := when("at", r.GetAt())
	if err != nil {
		return nil, err
	}
	rows, next, err := a.s.Links(ctx, LinkFilter{VertexID: r.GetNodeId(), Source: Source(r.GetSource()), At: at}, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &topologyv1.ListLinksResponse{NextPageToken: next}
	for i := range rows {
		out.Links = append(out.Links, rows[i].proto())
	}
	return out, nil
}

func (a api) GetLink(ctx context.Context, r *topologyv1.GetLinkRequest) (*topologyv1.Link, error) {
	return shown(a.s.Link(ctx, r.GetLinkId()))
}

func shown(c Connection, err error) (*topologyv1.Link, error) {
	if err != nil {
		return nil, err
	}
	return c.proto(), nil
}

func (a api) PutLink(ctx context.Context, r *topologyv1.PutLinkRequest) (*topologyv1.Link, error) {
	p := r.GetLink()
	return shown(a.s.PutLink(ctx, DeclaredLink{ID: p.GetLinkId(), Name: p.GetName(), From: p.GetFromId(), To: p.GetToId(), Kind: LinkKind(p.GetKind()),
		Bandwidth: p.GetBandwidthBitsPerSecond(), Latency: p.GetLatencyUs(), Provider: p.GetServiceProvider(), TenantID: p.GetTenantId(), Version: p.GetVersion()}))
}

func (a api) DeleteLink(ctx context.Context, r *topologyv1.DeleteLinkRequest) (*topologyv1.DeleteLinkResponse, error) {
	return &topologyv1.DeleteLinkResponse{}, a.s.DeleteLink(ctx, r.GetLinkId(), r.GetVersion())
}

func (a api) ListBindings(ctx context.Context, r *topologyv1.ListBindingsRequest) (*topologyv1.ListBindingsResponse, error) {
	rows, err := a.s.Bindings(ctx, Level(r.GetLevel()))
	if err != nil {
		return nil, err
	}
	out := &topologyv1.ListBindingsResponse{}
	for i := range rows {
		out.Bindings = append(out.Bindings, bindingProto(&rows[i]))
	}
	return out, nil
}

func (a api) PutBinding(ctx context.Context, r *topologyv1.PutBindingRequest) (*topologyv1.Binding, error) {
	p := r.GetBinding()
	b := Binding{ID: p.GetBindingId(), Title: p.GetTitle(), TitleZH: p.GetTitleZh(), Level: Level(p.GetLevel()), Expression: p.GetExpression(), Center: p.GetCenterLabel(),
		Node: p.GetNodeLabel(), Index: p.GetIndexLabel(), Peer: p.GetPeerLabel(), Unit: p.GetUnit(), Scale: p.GetScale(), Relative: p.GetRelativeTo(), LowIsBad: p.GetLowIsBad(),
		Low: p.GetLow(), High: p.GetHigh(), Aggregate: Aggregate(p.GetAggregate()), Version: p.GetVersion()}
	if p != nil {
		b.Busy, b.Warning = p.Busy, p.Warning
	}
	out, err := a.s.PutBinding(ctx, b)
	if err != nil {
		return nil, err
	}
	return bindingProto(&out), nil
}

func bindingProto(b *Binding) *topologyv1.Binding {
	return &topologyv1.Binding{BindingId: b.ID, Title: b.Title, TitleZh: b.TitleZH, Level: topologyv1.Level(b.Level), Expression: b.Expression, CenterLabel: b.Center,
		NodeLabel: b.Node, IndexLabel: b.Index, PeerLabel: b.Peer, Unit: b.Unit, Scale: b.Scale, RelativeTo: b.Relative, Busy: b.Busy, Warning: b.Warning, LowIsBad: b.LowIsBad,
		Low: b.Low, High: b.High, Aggregate: topologyv1.Aggregate(b.Aggregate), BuiltIn: b.BuiltIn, Version: b.Version, UpdatedAt: stamp(b.UpdatedAt)}
}

func (a api) DeleteBinding(ctx context.Context, r *topologyv1.DeleteBindingRequest) (*topologyv1.DeleteBindingResponse, error) {
	return &topologyv1.DeleteBindingResponse{}, a.s.DeleteBinding(ctx, r.GetBindingId())
}
