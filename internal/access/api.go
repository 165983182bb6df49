package access

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	accessv1 "yunhe.dev/yunhe/gen/yunhe/access/v1"
	"yunhe.dev/yunhe/gen/yunhe/access/v1/accessv1connect"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(accessv1connect.NewAccessServiceHandler(handler{s}, srv.Options()...))
}

// Convert returns what a center reached by a source says, in the platform's
// words; changed is false if it says them already. What comes in is not
// changed. It never fails: what cannot be converted stays as it is.
func (s *Service) Convert(ctx context.Context, source string, inv *adapterv1.Inventory, nodes []*adapterv1.Node) (_ *adapterv1.Inventory, _ []*adapterv1.Node, changed bool) {
	lib, err := s.load(ctx)
	if err != nil {
		s.log.Warn("conversions not read, words stay as they are", "error", err)
		return inv, nodes, false
	}
	k := lib.converter(source)
	if len(k.list) == 0 {
		return inv, nodes, false
	}
	out := k.inventory(inv)
	changed = out != inv
	list := nodes
	for i, n := range nodes {
		m := k.node(n)
		if m == n {
			continue
		}
		if !changed || len(list) > 0 && &list[0] == &nodes[0] {
			list = append([]*adapterv1.Node(nil), nodes...)
		}
		list[i], changed = m, true
	}
	return out, list, changed
}

// inventory returns inv itself if nothing changes.
func (k *converter) inventory(inv *adapterv1.Inventory) *adapterv1.Inventory {
	if inv == nil {
		return nil
	}
	out := inv
	edit := func() *adapterv1.Inventory {
		if out == inv {
			out = proto.CloneOf(inv)
		}
		return out
	}
	if w := k.word(Region, inv.Region); w != inv.Region {
		edit().Region = w
	}
	if q := k.amounts(inv.Capacity); q != nil {
		edit().Capacity = q
	}
	if l := k.labels(inv.Labels); l != nil {
		edit().Labels = l
	}
	for i, sp := range inv.Specs {
		if q := k.amounts(sp.GetQuantity()); q != nil {
			edit().Specs[i].Quantity = q
		}
	}
	return out
}

// node returns n itself if nothing changes.
func (k *converter) node(n *adapterv1.Node) *adapterv1.Node {
	if n == nil {
		return nil
	}
	out := n
	edit := func() *adapterv1.Node {
		if out == n {
			out = proto.CloneOf(n)
		}
		return out
	}
	if w := k.word(Architecture, n.Architecture); w != n.Architecture {
		edit().Architecture = w
	}
	if w := k.word(OperatingSystem, n.OperatingSystem); w != n.OperatingSystem {
		edit().OperatingSystem = w
	}
	// Either both amounts are converted or none is: what jobs may use of a node
	// must not be called otherwise than what it has.
	capacity, allocatable := k.amounts(n.Capacity), k.amounts(n.Allocatable)
	if capacity != nil {
		edit().Capacity = capacity
	}
	if allocatable != nil {
		edit().Allocatable = allocatable
	}
	if l := k.labels(n.Labels); l != nil {
		edit().Labels = l
	}
	for i, a := range n.Accelerators {
		if w := k.word(Vendor, a.GetVendor()); w != a.GetVendor() {
			edit().Accelerators[i].Vendor = w
		}
		if w := k.word(Model, a.GetModel()); w != a.GetModel() {
			edit().Accelerators[i].Model = w
		}
		if w := k.word(Resource, a.GetResource()); w != a.GetResource() {
			edit().Accelerators[i].Resource = w
		}
	}
	return out
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (h handler) ListAccessRecords(ctx context.Context, r *accessv1.ListAccessRecordsRequest) (*accessv1.ListAccessRecordsResponse, error) {
	rows, next, err := h.s.Records(ctx, Status(r.Compliance), r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &accessv1.ListAccessRecordsResponse{NextPageToken: next}
	for i := range rows {
		res.Records = append(res.Records, recordProto(&rows[i]))
	}
	return res, nil
}

func (h handler) GetAccessRecord(ctx context.Context, r *accessv1.GetAccessRecordRequest) (*accessv1.AccessRecord, error) {
	x, err := h.s.Record(ctx, r.ResourceId)
	if err != nil {
		return nil, err
	}
	return recordProto(x), nil
}

var sources = map[string]accessv1.SourceType{
	"public_cloud": accessv1.SourceType_SOURCE_TYPE_PUBLIC_CLOUD, "dedicated_cloud": accessv1.SourceType_SOURCE_TYPE_DEDICATED_CLOUD,
	"edge_cloud": accessv1.SourceType_SOURCE_TYPE_EDGE_CLOUD, "hybrid_cloud": accessv1.SourceType_SOURCE_TYPE_HYBRID_CLOUD,
	"machine": accessv1.SourceType_SOURCE_TYPE_MACHINE, "container_cluster": accessv1.SourceType_SOURCE_TYPE_CONTAINER_CLUSTER,
	"batch_cluster": accessv1.SourceType_SOURCE_TYPE_BATCH_CLUSTER, "other": accessv1.SourceType_SOURCE_TYPE_OTHER,
}

func recordProto(r *Record) *accessv1.AccessRecord {
	out := &accessv1.AccessRecord{ResourceId: r.ResourceID, ResourceType: r.Type, Name: r.Name, SourceType: sources[r.Source], ProtocolType: r.Protocol, Plugin: r.Plugin,
		PluginVersion: r.Version, ComplianceStatus: accessv1.Compliance(r.Status), HealthStatus: accessv1.Health(r.Health), HealthMessage: r.HealthMessage,
		SyncedAt: stamp(r.SyncedAt), GuideFlowId: r.Guide, ClassId: r.Class, CreatedAt: stamp(r.CreatedAt), ComputeMetrics: computeProto(r)}
	if f := r.Figures; f != nil {
		p := monitor.FiguresProto("", "", f)
		out.Paths, out.NetworkMetrics, out.StorageMetrics = p.Paths, p.Network, p.Storage
	}
	for _, c := range r.Conversions {
		out.ConversionConfig = append(out.ConversionConfig, &accessv1.AppliedConversion{ConversionId: c.ID, Version: c.Version})
	}
	for _, st := range r.Log {
		out.AuditLog = append(out.AuditLog, &accessv1.AccessStep{At: stamp(st.At), Step: st.Step, Message: st.Message, UserId: st.UserID, Outcome: st.Outcome})
	}
	return out
}

// computeProto prefers what a center measured of all of itself to what it
// measured node by node.
func computeProto(r *Record) *accessv1.ComputeMetrics {
	m := &accessv1.ComputeMetrics{}
	if f := r.Figures; f != nil {
		m.CpuBusyRatio, m.MemoryBusyBytes, m.AcceleratorBusyRatio = f.CPUBusy, f.MemoryBusy, f.Accelerator
	}
	number := func(n int64) *float64 { return proto.Float64(float64(n)) }
	if x := r.Measured; !x.At.IsZero() {
		if x.MemoryTotal > 0 {
			m.CpuBusyRatio = proto.Float64(float64(x.CPUBusyPermille) / 1000)
			m.MemoryBusyBytes, m.MemoryTotalBytes = number(x.MemoryBusy), number(x.MemoryTotal)
		}
		if x.StorageTotal > 0 {
			m.StorageBusyBytes, m.StorageTotalBytes = number(x.StorageBusy), number(x.StorageTotal)
		}
	}
	if proto.Size(m) == 0 {
		return nil
	}
	return m
}

func (h handler) ListAccessReports(ctx context.Context, r *accessv1.ListAccessReportsRequest) (*accessv1.ListAccessReportsResponse, error) {
	rows, next, err := h.s.Reports(ctx, Status(r.Status), Kind(r.Kind), r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &accessv1.ListAccessReportsResponse{NextPageToken: next}
	for i := range rows {
		res.Reports = append(res.Reports, reportProto(&rows[i]))
	}
	return res, nil
}

func (h handler) GetAccessReport(ctx context.Context, r *accessv1.GetAccessReportRequest) (*accessv1.AccessReport, error) {
	x, err := h.s.Report(ctx, r.ResourceId)
	if err != nil {
		return nil, err
	}
	return reportProto(x), nil
}

func reportProto(r *Report) *accessv1.AccessReport {
	out := &accessv1.AccessReport{ResourceId: r.ResourceID, Kind: accessv1.ResourceKind(r.Kind), Name: r.Name, Status: accessv1.Compliance(r.Status),
		EvaluatedAt: stamp(r.EvaluatedAt), ChangedAt: stamp(r.ChangedAt)}
	for _, v := range r.Verdicts {
		out.Verdicts = append(out.Verdicts, &accessv1.Verdict{RuleId: v.RuleID, Title: v.Title, Severity: accessv1.Severity(v.Severity), Status: accessv1.Compliance(v.Status),
			Observed: v.Observed, Message: v.Message})
	}
	return out
}

func (h handler) GetAccessSummary(ctx context.Context, _ *accessv1.GetAccessSummaryRequest) (*accessv1.AccessSummary, error) {
	x, err := h.s.Summarize(ctx)
	if err != nil {
		return nil, err
	}
	res := &accessv1.AccessSummary{Enforce: x.Enforce, EvaluatedAt: stamp(x.EvaluatedAt)}
	for k := Center; k <= Registered; k++ {
		c := x.Kinds[k]
		res.Kinds = append(res.Kinds, &accessv1.KindSummary{Kind: accessv1.ResourceKind(k), Compliant: c[Compliant], NonCompliant: c[NonCompliant], Unknown: c[Unknown]})
	}
	for _, r := range x.Rules {
		c := x.ByRule[r.ID]
		res.Rules = append(res.Rules, &accessv1.RuleSummary{Rule: ruleProto(r), Compliant: c[Compliant], NonCompliant: c[NonCompliant], Unknown: c[Unknown]})
	}
	return res, nil
}

func (h handler) ListAccessRules(ctx context.Context, _ *accessv1.ListAccessRulesRequest) (*accessv1.ListAccessRulesResponse, error) {
	rows, err := h.s.Rules(ctx)
	if err != nil {
		return nil, err
	}
	res := &accessv1.ListAccessRulesResponse{}
	for _, r := range rows {
		res.Rules = append(res.Rules, ruleProto(r))
	}
	return res, nil
}

func required(path string) error {
	return fault.Fields(fault.Field{Path: path, Problem: "is required"})
}

func (h handler) PutAccessRule(ctx context.Context, r *accessv1.PutAccessRuleRequest) (*accessv1.AccessRule, error) {
	x := r.Rule
	if x == nil {
		return nil, required("rule")
	}
	out, err := h.s.PutRule(ctx, Rule{Meta: Meta{ID: x.RuleId, Version: x.Version}, Title: x.Title, TitleZH: x.TitleZh, Kind: Kind(x.Kind), Severity: Severity(x.Severity),
		Applies: x.Applies, Known: x.Known, Condition: x.Condition, Message: x.Message, Enabled: x.Enabled})
	if err != nil {
		return nil, err
	}
	return ruleProto(out), nil
}

func ruleProto(r *Rule) *accessv1.AccessRule {
	return &accessv1.AccessRule{RuleId: r.ID, Title: r.Title, TitleZh: r.TitleZH, Kind: accessv1.ResourceKind(r.Kind), Severity: accessv1.Severity(r.Severity), Applies: r.Applies,
		Known: r.Known, Condition: r.Condition, Message: r.Message, Enabled: r.Enabled, Version: r.Version, UpdatedAt: stamp(r.UpdatedAt), UpdatedBy: r.UpdatedBy}
}

func (h handler) DeleteAccessRule(ctx context.Context, r *accessv1.DeleteAccessRuleRequest) (*accessv1.DeleteAccessRuleResponse, error) {
	return &accessv1.DeleteAccessRuleResponse{}, h.s.DeleteRule(ctx, r.RuleId)
}

func (h handler) ListConversions(ctx context.Context, r *accessv1.ListConversionsRequest) (*accessv1.ListConversionsResponse, error) {
	if r.Source != "" {
		var c core.Check
		if c.ID("source", r.Source); c.Err() != nil {
			return nil, c.Err()
		}
	}
	rows, err := h.s.Conversions(ctx, r.Source)
	if err != nil {
		return nil, err
	}
	res := &accessv1.ListConversionsResponse{}
	for _, c := range rows {
		res.Conversions = append(res.Conversions, conversionProto(c))
	}
	return res, nil
}

func conversionOf(x *accessv1.Conversion) Conversion {
	return Conversion{Meta: Meta{ID: x.ConversionId, Version: x.Version}, Title: x.Title, Source: x.Source, Field: Field(x.Field), Match: x.Match, Replace: x.Replace,
		Times: x.Times, Per: x.Per, Priority: x.Priority, Enabled: x.Enabled}
}

func conversionProto(c *Conversion) *accessv1.Conversion {
	return &accessv1.Conversion{ConversionId: c.ID, Title: c.Title, Source: c.Source, Field: accessv1.Field(c.Field), Match: c.Match, Replace: c.Replace, Times: c.Times, Per: c.Per,
		Priority: c.Priority, Enabled: c.Enabled, Version: c.Version, UpdatedAt: stamp(c.UpdatedAt), UpdatedBy: c.UpdatedBy}
}

func (h handler) PutConversion(ctx context.Context, r *accessv1.PutConversionRequest) (*accessv1.Conversion, error) {
	if r.Conversion == nil {
		return nil, required("conversion")
	}
	out, err := h.s.PutConversion(ctx, conversionOf(r.Conversion))
	if err != nil {
		return nil, err
	}
	return conversionProto(out), nil
}

func (h handler) DeleteConversion(ctx context.Context, r *accessv1.DeleteConversionRequest) (*accessv1.DeleteConversionResponse, error) {
	return &accessv1.DeleteConversionResponse{}, h.s.DeleteConversion(ctx, r.ConversionId)
}

func (h handler) TestConversion(ctx context.Context, r *accessv1.TestConversionRequest) (*accessv1.TestConversionResponse, error) {
	var items []Item
	for _, x := range r.Items {
		items = append(items, Item{Field(x.GetField()), x.GetValue(), x.GetAmount()})
	}
	var candidate *Conversion
	if r.Conversion != nil {
		c := conversionOf(r.Conversion)
		c.Enabled, candidate = true, &c
	}
	rows, err := h.s.Try(ctx, r.Source, items, candidate)
	if err != nil {
		return nil, err
	}
	item := func(x Item) *accessv1.ConversionItem {
		return &accessv1.ConversionItem{Field: accessv1.Field(x.Field), Value: x.Value, Amount: x.Amount}
	}
	res := &accessv1.TestConversionResponse{}
	for _, x := range rows {
		res.Results = append(res.Results, &accessv1.ConversionResult{Input: item(x.In), Output: item(x.Out), ConversionId: x.By, Problem: x.Problem})
	}
	return res, nil
}

func (h handler) ListAccessVersions(ctx context.Context, r *accessv1.ListAccessVersionsRequest) (*accessv1.ListAccessVersionsResponse, error) {
	rows, err := h.s.versions(ctx, int64(r.Kind), r.Id)
	if err != nil {
		return nil, err
	}
	res := &accessv1.ListAccessVersionsResponse{}
	for _, d := range rows {
		res.Versions = append(res.Versions, versionProto(d))
	}
	return res, nil
}

func (h handler) RestoreAccessVersion(ctx context.Context, r *accessv1.RestoreAccessVersionRequest) (*accessv1.AccessVersion, error) {
	d, err := h.s.restore(ctx, int64(r.Kind), r.Id, r.Version)
	if err != nil {
		return nil, err
	}
	return versionProto(d), nil
}

func versionProto(d document) *accessv1.AccessVersion {
	return &accessv1.AccessVersion{Kind: accessv1.DocumentKind(d.kind), Id: d.id, Version: d.version, At: timestamppb.New(time.UnixMicro(d.at)), UserId: d.by, Body: d.body}
}

func (h handler) GetAccessSettings(ctx context.Context, _ *accessv1.GetAccessSettingsRequest) (*accessv1.AccessSettings, error) {
	on, err := h.s.Enforced(ctx)
	return &accessv1.AccessSettings{Enforce: on}, err
}

func (h handler) SetAccessSettings(ctx context.Context, r *accessv1.SetAccessSettingsRequest) (*accessv1.AccessSettings, error) {
	if r.Settings == nil {
		return nil, required("settings")
	}
	if err := h.s.SetEnforced(ctx, r.Settings.Enforce); err != nil {
		return nil, err
	}
	return h.GetAccessSettings(ctx, nil)
}

func (h handler) ListAccessClasses(ctx context.Context, _ *accessv1.ListAccessClassesRequest) (*accessv1.ListAccessClassesResponse, error) {
	rows, err := h.s.Classes(ctx)
	if err != nil {
		return nil, err
	}
	res := &accessv1.ListAccessClassesResponse{}
	for _, c := range rows {
		res.Classes = append(res.Classes, &accessv1.AccessClass{ClassId: c.ID, Title: c.Title, TitleZh: c.TitleZH, Condition: c.Condition, Plugins: c.Plugins,
			Protocols: c.Protocols, Centers: c.Centers})
	}
	return res, nil
}
