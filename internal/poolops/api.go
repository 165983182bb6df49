package poolops

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(poolv1connect.NewPoolOperationServiceHandler(handler{s}, srv.Options()...))
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() || t.UnixMicro() == 0 {
		return nil
	}
	return timestamppb.New(t)
}

func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func each[A, B any](list []A, f func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

func (h handler) TellNode(ctx context.Context, r *poolv1.TellNodeRequest) (*poolv1.TellNodeResponse, error) {
	t := Told{Node: r.NodeId, Secret: r.Secret, Generation: r.Generation, Problem: r.Problem, Program: r.Program, Attempt: r.Attempt, AttemptProblem: r.AttemptProblem}
	for _, e := range r.Entries {
		t.Sequences = append(t.Sequences, e.Sequence)
		t.Entries = append(t.Entries, logs.Entry{At: moment(e.At), Level: logs.Level(e.Level), Message: e.Message, Device: e.DeviceId, Slice: e.SliceId, Details: e.Details})
	}
	t.Parts = each(r.Components, func(c *poolv1.PoolComponent) Part { return Part{int64(c.Kind), c.Version, c.Running} })
	wait := time.Duration(max(-1, min(r.WaitMs, int64(time.Hour/time.Millisecond)))) * time.Millisecond
	w, err := h.s.Tell(ctx, t, wait)
	if err != nil {
		return nil, err
	}
	out := &poolv1.TellNodeResponse{Config: configOut(w.Config), Generation: w.Generation, Attempt: w.Attempt}
	if w.Release != nil {
		out.Release = releaseOut(w.Release)
	}
	return out, nil
}

func configOut(c Config) *poolv1.PoolConfig {
	return &poolv1.PoolConfig{LogLevel: poolv1.LogLevel(c.Level), IdleLimitSeconds: c.Idle, RunLimitSeconds: c.Run}
}

func (h handler) SearchPoolLogs(ctx context.Context, r *poolv1.SearchPoolLogsRequest) (*poolv1.SearchPoolLogsResponse, error) {
	f := logs.Filter{Level: logs.Level(r.Level), From: moment(r.From), To: moment(r.To), Node: r.NodeId, Slice: r.SliceId, Text: r.Text, User: r.UserId}
	list, next, err := h.s.logs.Search(ctx, f, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	return &poolv1.SearchPoolLogsResponse{NextPageToken: next, Entries: each(list, func(e logs.Entry) *poolv1.PoolLogEntry {
		return &poolv1.PoolLogEntry{LogId: e.ID, At: stamp(e.At), Level: poolv1.LogLevel(e.Level), Source: e.Source, Message: e.Message, NodeId: e.Node, DeviceId: e.Device, SliceId: e.Slice,
			UserId: e.User, TenantId: e.Tenant, GroupId: e.Group, Details: e.Details}
	})}, nil
}

func (h handler) ExportPoolLogs(ctx context.Context, r *poolv1.ExportPoolLogsRequest) (*poolv1.PoolFile, error) {
	f := logs.Filter{Level: logs.Level(r.Level), From: moment(r.From), To: moment(r.To), Node: r.NodeId, Slice: r.SliceId, Text: r.Text, User: r.UserId}
	return fileOut(h.s.ExportLogs(ctx, f, Format(r.Format)))
}

func fileOut(f *File, err error) (*poolv1.PoolFile, error) {
	if err != nil {
		return nil, err
	}
	return &poolv1.PoolFile{Name: f.Name, ContentType: f.Type, Content: f.Content}, nil
}

func (h handler) ListPoolComponents(ctx context.Context, _ *poolv1.ListPoolComponentsRequest) (*poolv1.ListPoolComponentsResponse, error) {
	return h.components(h.s.Components(ctx))
}

func (h handler) ConfigurePoolNodes(ctx context.Context, r *poolv1.ConfigurePoolNodesRequest) (*poolv1.ListPoolComponentsResponse, error) {
	switch {
	case r.Config == nil && r.Change == nil:
		return nil, fault.Fields(fault.Field{Path: "config", Problem: "or change is required"})
	case r.Config != nil && r.Change != nil:
		return nil, fault.Fields(fault.Field{Path: "change", Problem: "is not given beside config"})
	case r.Config != nil:
		return h.components(h.s.Configure(ctx, r.NodeIds, Config{Level: logs.Level(r.Config.LogLevel), Idle: r.Config.IdleLimitSeconds, Run: r.Config.RunLimitSeconds}.Whole()))
	}
	x := ConfigChange{Idle: r.Change.IdleLimitSeconds, Run: r.Change.RunLimitSeconds}
	if r.Change.LogLevel != nil {
		x.Level = new(logs.Level(*r.Change.LogLevel))
	}
	return h.components(h.s.Configure(ctx, r.NodeIds, x))
}

func (h handler) components(list []*Components, err error) (*poolv1.ListPoolComponentsResponse, error) {
	if err != nil {
		return nil, err
	}
	return &poolv1.ListPoolComponentsResponse{PlatformVersion: h.s.version, Nodes: each(list, func(x *Components) *poolv1.PoolNodeComponents {
		return &poolv1.PoolNodeComponents{NodeId: x.Node, Online: x.Online, Config: configOut(x.Config), Generation: x.Generation, AppliedGeneration: x.Applied, Problem: x.Problem, ToldAt: stamp(x.ToldAt),
			Components: each(x.Parts, func(p Part) *poolv1.PoolComponent {
				return &poolv1.PoolComponent{Kind: poolv1.PoolComponent_Kind(p.Kind), Version: p.Version, Running: p.Running}
			})}
	})}, nil
}

func (h handler) ListPoolAlarmRules(ctx context.Context, _ *poolv1.ListPoolAlarmRulesRequest) (*poolv1.ListPoolAlarmRulesResponse, error) {
	list, err := h.s.Rules(ctx)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListPoolAlarmRulesResponse{Rules: each(list, ruleOut)}, nil
}

func ruleOut(r Rule) *poolv1.PoolAlarmRule {
	return &poolv1.PoolAlarmRule{Kind: poolv1.PoolAlarmRule_Kind(r.Kind), Enabled: r.Enabled, Threshold: r.Threshold, Severity: int32(r.Severity), UpdatedAt: stamp(r.UpdatedAt)}
}

func (h handler) SetPoolAlarmRule(ctx context.Context, r *poolv1.SetPoolAlarmRuleRequest) (*poolv1.PoolAlarmRule, error) {
	if r.Rule == nil {
		return nil, fault.Fields(fault.Field{Path: "rule", Problem: "is required"})
	}
	if r.Rule.Kind != 0 && r.Rule.Kind != r.Kind {
		return nil, fault.Fields(fault.Field{Path: "rule.kind", Problem: "must be that of the request, or empty"})
	}
	out, err := h.s.SetRule(ctx, Rule{Kind: RuleKind(r.Kind), Enabled: r.Rule.Enabled, Threshold: r.Rule.Threshold, Severity: int64(r.Rule.Severity)})
	if err != nil {
		return nil, err
	}
	return ruleOut(*out), nil
}

func (h handler) GetPoolStatistics(ctx context.Context, r *poolv1.GetPoolStatisticsRequest) (*poolv1.PoolStatistics, error) {
	st, err := h.s.Statistics(ctx, moment(r.From), moment(r.To))
	if err != nil {
		return nil, err
	}
	use := func(list []Use) []*poolv1.PoolUse {
		return each(list, func(u Use) *poolv1.PoolUse {
			return &poolv1.PoolUse{Name: u.Name, ComputeThere: u.ComputeThere, ComputeLent: u.ComputeLent, DeviceMicros: u.Busy, MemoryThere: u.MemoryThere, MemoryLent: u.MemoryLent, MemoryUsed: u.MemoryUsed, SliceSeconds: u.Seconds, EnergyMillijoules: u.Energy, SliceEnergyMillijoules: u.SliceEnergy}
		})
	}
	return &poolv1.PoolStatistics{From: stamp(st.From), To: stamp(st.To), Devices: use(st.Devices), Groups: use(st.Groups), Users: use(st.Users), Times: use(st.Times),
		Queueing: each(st.Queueing, func(q Queueing) *poolv1.PoolQueueing {
			return &poolv1.PoolQueueing{GroupId: q.Group, Requested: q.Requested, Placed: q.Placed, Ended: q.Ended, Failed: q.Failed, MeanWaitMs: q.MeanWait.Milliseconds(), MaxWaitMs: q.MaxWait.Milliseconds()}
		}),
		Reasons: each(st.Reasons, func(x Reason) *poolv1.PoolReason { return &poolv1.PoolReason{Reason: x.Text, Count: x.Count} })}, nil
}

func (h handler) ExportPoolReport(ctx context.Context, r *poolv1.ExportPoolReportRequest) (*poolv1.PoolFile, error) {
	return fileOut(h.s.Report(ctx, ReportKind(r.Kind), Format(r.Format), moment(r.From), moment(r.To), r.Language))
}

func releaseOut(r *Release) *poolv1.PoolRelease {
	return &poolv1.PoolRelease{Sha256: r.Sum, Version: r.Version, Bytes: r.Bytes, UploadedAt: stamp(r.UploadedAt)}
}

func (h handler) UploadPoolRelease(ctx context.Context, r *poolv1.UploadPoolReleaseRequest) (*poolv1.UploadPoolReleaseResponse, error) {
	received, whole, err := h.s.Upload(ctx, Release{Sum: r.Sha256, Version: r.Version, Bytes: r.Bytes}, r.Offset, r.Content)
	if err != nil {
		return nil, err
	}
	out := &poolv1.UploadPoolReleaseResponse{Received: received}
	if whole != nil {
		out.Release = releaseOut(whole)
	}
	return out, nil
}

func (h handler) ListPoolReleases(ctx context.Context, _ *poolv1.ListPoolReleasesRequest) (*poolv1.ListPoolReleasesResponse, error) {
	list, err := h.s.Releases(ctx)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListPoolReleasesResponse{Releases: each(list, releaseOut)}, nil
}

func (h handler) FetchPoolRelease(ctx context.Context, r *poolv1.FetchPoolReleaseRequest) (*poolv1.FetchPoolReleaseResponse, error) {
	content, err := h.s.Fetch(ctx, r.NodeId, r.Secret, r.Sha256, r.Offset)
	if err != nil {
		return nil, err
	}
	return &poolv1.FetchPoolReleaseResponse{Content: content}, nil
}

func upgradeOut(x *Upgrade) *poolv1.PoolUpgrade {
	return &poolv1.PoolUpgrade{UpgradeId: x.ID, State: poolv1.PoolUpgrade_State(x.State), Release: releaseOut(&x.Release), Batch: x.Batch, Gray: x.Gray, PauseSeconds: x.Pause, PatienceSeconds: x.Patience, KeepOnFailure: x.Keep,
		Reason: x.Reason, UserId: x.User, CreatedAt: stamp(x.CreatedAt), EndedAt: stamp(x.EndedAt), Nodes: each(x.Steps, func(n *Step) *poolv1.PoolUpgrade_Node {
			return &poolv1.PoolUpgrade_Node{NodeId: n.Node, State: poolv1.PoolUpgrade_Node_State(n.State), FromSha256: n.From, FromVersion: n.FromVersion, Reason: n.Reason, BeganAt: stamp(n.BeganAt), EndedAt: stamp(n.EndedAt)}
		})}
}

func (h handler) StartPoolUpgrade(ctx context.Context, r *poolv1.StartPoolUpgradeRequest) (*poolv1.PoolUpgrade, error) {
	x, err := h.s.StartUpgrade(ctx, Upgrade{Release: Release{Sum: r.Sha256}, Batch: r.Batch, Gray: r.Gray, Pause: r.PauseSeconds, Patience: r.PatienceSeconds, Keep: r.KeepOnFailure}, r.NodeIds, r.Platform)
	if err != nil {
		return nil, err
	}
	return upgradeOut(x), nil
}

func (h handler) ListPoolUpgrades(ctx context.Context, _ *poolv1.ListPoolUpgradesRequest) (*poolv1.ListPoolUpgradesResponse, error) {
	list, err := h.s.Upgrades(ctx)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListPoolUpgradesResponse{Upgrades: each(list, upgradeOut)}, nil
}

func (h handler) ChangePoolUpgrade(ctx context.Context, r *poolv1.ChangePoolUpgradeRequest) (*poolv1.PoolUpgrade, error) {
	x, err := h.s.ChangeUpgrade(ctx, r.UpgradeId, Action(r.Action))
	if err != nil {
		return nil, err
	}
	return upgradeOut(x), nil
}
