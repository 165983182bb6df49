package pools

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(poolv1connect.NewPoolServiceHandler(handler{s}, srv.Options()...))
}

// stamp is nil for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// each maps a list.
func each[A, B any](list []A, f func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

// millis is a duration as a caller writes it; what is out of bounds stays so.
func millis(n int64) time.Duration {
	return time.Duration(max(-1, min(n, int64(time.Hour/time.Millisecond)))) * time.Millisecond
}

func (h handler) CreateNodeToken(ctx context.Context, r *poolv1.CreateNodeTokenRequest) (*poolv1.CreateNodeTokenResponse, error) {
	token, expires, err := h.s.CreateToken(ctx, r.TtlSeconds)
	if err != nil {
		return nil, err
	}
	return &poolv1.CreateNodeTokenResponse{Token: token, ExpiresAt: stamp(expires)}, nil
}

func (h handler) JoinNode(ctx context.Context, r *poolv1.JoinNodeRequest) (*poolv1.JoinNodeResponse, error) {
	if err := h.s.Join(ctx, r.Token, r.NodeId, r.Secret); err != nil {
		return nil, err
	}
	return &poolv1.JoinNodeResponse{NodeId: r.NodeId}, nil
}

func (h handler) AttendNode(ctx context.Context, r *poolv1.AttendNodeRequest, stream *connect.ServerStream[poolv1.AttendNodeResponse]) error {
	return h.s.Attend(ctx, r.NodeId, r.Secret, func() error { return stream.Send(&poolv1.AttendNodeResponse{}) })
}

func (h handler) ReportNode(ctx context.Context, r *poolv1.ReportNodeRequest) (*poolv1.ReportNodeResponse, error) {
	in := Report{Node: r.NodeId, Secret: r.Secret, Host: r.Host, Version: r.Version,
		Report: pool.Report{Boot: r.Boot, Sequence: r.Sequence, Epoch: r.Epoch, Addresses: r.Addresses, Stopping: r.Stopping}}
	for i, d := range slices.Concat(r.Devices, r.CudaDevices) {
		api := pool.OpenCL
		if i >= len(r.Devices) {
			api = pool.CUDA
		}
		in.Devices = append(in.Devices, pool.Device{ID: d.DeviceId, API: api, Bus: d.Bus, Model: d.Model, Vendor: d.Vendor, Driver: d.Driver, Type: d.Type, Units: d.ComputeUnits, Memory: min(max(d.MemoryMib, -1), maxMemory*2048) << 20})
	}
	in.Figures = each(r.Figures, func(f *poolv1.PoolFigures) pool.Figure {
		return pool.Figure{Device: f.DeviceId, Model: f.Model, Driver: f.Driver, Bus: f.Bus, NotLent: f.NotLent, Temperature: f.TemperatureCelsius, Busy: f.BusyPercent, Uncorrected: f.UncorrectedErrors,
			Faults: f.Faults, Fault: f.Fault, Power: f.PowerMilliwatts, Energy: f.EnergyMillijoules, Source: f.EnergySource,
			Limit: f.PowerLimitMilliwatts, LeastLimit: f.LeastPowerLimitMilliwatts, MostLimit: f.MostPowerLimitMilliwatts, LimitError: f.PowerLimitError, Pages: f.PagesMemory}
	})
	for _, t := range r.Tasks {
		in.Tasks = append(in.Tasks, pool.Task{Slice: t.SliceId, Used: t.MemoryUsedBytes, Busy: micros(t.DeviceMicros), Programs: int(t.Programs), Device: t.DeviceId, Energy: t.EnergyMillijoules})
	}
	for _, e := range r.Ended {
		in.Ended = append(in.Ended, pool.EndedTask{Slice: e.SliceId, Reason: e.Reason, Busy: micros(e.DeviceMicros), Energy: e.EnergyMillijoules})
	}
	for _, m := range r.Moved {
		in.Moved = append(in.Moved, pool.Moved{Slice: m.SliceId, ID: m.MoveId, Error: m.Error, Pause: micros(m.PauseMicros)})
	}
	w, err := h.s.Report(ctx, in, millis(r.WaitMs))
	if err != nil {
		return nil, err
	}
	moves := each(w.Moves, func(m pool.Move) *poolv1.ReportNodeResponse_Move {
		return &poolv1.ReportNodeResponse_Move{SliceId: m.Slice, MoveId: m.ID, Addresses: m.Addresses, Ticket: m.Ticket, TicketKey: m.Key}
	})
	power := each(w.Power, func(p pool.WantedPower) *poolv1.ReportNodeResponse_Power {
		return &poolv1.ReportNodeResponse_Power{DeviceId: p.Device, Watts: p.Watts}
	})
	groups := each(w.Groups, func(g pool.WantedGroup) *poolv1.ReportNodeResponse_Group {
		return &poolv1.ReportNodeResponse_Group{GroupId: g.Group, ComputePercent: g.Compute}
	})
	return &poolv1.ReportNodeResponse{End: w.End, Moves: moves, Power: power, Groups: groups, Slices: each(w.Slices, func(x pool.WantedSlice) *poolv1.ReportNodeResponse_Wanted {
		return &poolv1.ReportNodeResponse_Wanted{SliceId: x.Slice, ComputePercent: x.Compute, MemoryMib: x.Memory >> 20}
	})}, nil
}

// micros is a time that a device was had; nobody has one for a century.
func micros(n int64) time.Duration {
	return time.Duration(max(0, min(n, 100*maxSeconds*1_000_000))) * time.Microsecond
}

func (h handler) ListPoolNodes(ctx context.Context, _ *poolv1.ListPoolNodesRequest) (*poolv1.ListPoolNodesResponse, error) {
	list, err := h.s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListPoolNodesResponse{Nodes: each(list, nodeOut)}, nil
}

func (h handler) SetPoolNode(ctx context.Context, r *poolv1.SetPoolNodeRequest) (*poolv1.PoolNode, error) {
	return answerNode(h.s.SetNode(ctx, r.NodeId, Mode(r.Mode)))
}

func (h handler) SetPoolDevice(ctx context.Context, r *poolv1.SetPoolDeviceRequest) (*poolv1.PoolNode, error) {
	x := DeviceChange{Disabled: r.Disabled, ComputeLimit: r.ComputeLimitPercent, MemoryRatio: r.MemoryLimitPercent, PowerLimit: r.PowerLimitWatts}
	switch off := r.Virtualization == poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF; r.Virtualization {
	case poolv1.SetPoolDeviceRequest_VIRTUALIZATION_UNSPECIFIED:
	case poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON, poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF:
		x.Physical = &off
	default:
		return nil, fault.Fields(fault.Field{Path: "virtualization", Problem: fmt.Sprintf("must be VIRTUALIZATION_ON or VIRTUALIZATION_OFF, got %d", r.Virtualization)})
	}
	return answerNode(h.s.SetDevice(ctx, r.NodeId, r.DeviceId, x))
}

func answerNode(n *Node, err error) (*poolv1.PoolNode, error) {
	if err != nil {
		return nil, err
	}
	return nodeOut(n), nil
}

func nodeOut(n *Node) *poolv1.PoolNode {
	return &poolv1.PoolNode{NodeId: n.ID, Mode: poolv1.PoolNode_Mode(n.Mode), Online: n.Online, Version: n.Version, Host: n.Host, Addresses: n.Addresses, JoinedAt: stamp(n.JoinedAt), LastSeenAt: stamp(n.SeenAt),
		Devices: each(n.Devices, func(d *Device) *poolv1.PoolDevice {
			other := ""
			if same := n.same(d); len(same) > 0 {
				other = same[0].ID
			}
			return &poolv1.PoolDevice{DeviceId: d.ID, Model: d.Model, Vendor: d.Vendor, Driver: d.Driver, Type: d.Type, ComputeUnits: d.Units, MemoryMib: d.Memory, Bus: d.Bus, Present: d.Present, Disabled: d.Disabled,
				ComputeLimitPercent: d.ComputeLimit, MemoryLimitMib: d.MemoryLimit, MemoryLimitPercent: d.MemoryRatio, ComputeLentPercent: d.ComputeLent, MemoryLentMib: d.MemoryLent, Slices: d.Used, Physical: d.Physical, PowerLimitWatts: d.PowerLimit, Api: d.API, SameCardDeviceId: other}
		}),
		Figures: each(n.Figures, func(f pool.Figure) *poolv1.PoolFigures {
			return &poolv1.PoolFigures{DeviceId: f.Device, Model: f.Model, Driver: f.Driver, Bus: f.Bus, NotLent: f.NotLent, TemperatureCelsius: f.Temperature, BusyPercent: f.Busy, UncorrectedErrors: f.Uncorrected,
				Faults: f.Faults, Fault: f.Fault, PowerMilliwatts: f.Power, EnergyMillijoules: f.Energy, EnergySource: f.Source,
				PowerLimitMilliwatts: f.Limit, LeastPowerLimitMilliwatts: f.LeastLimit, MostPowerLimitMilliwatts: f.MostLimit, PowerLimitError: f.LimitError, PagesMemory: f.Pages}
		})}
}

func (h handler) ListSliceSpecs(ctx context.Context, _ *poolv1.ListSliceSpecsRequest) (*poolv1.ListSliceSpecsResponse, error) {
	list, err := h.s.Specs(ctx)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListSliceSpecsResponse{Specs: each(list, specOut)}, nil
}

func specOut(x *Spec) *poolv1.SliceSpec {
	return &poolv1.SliceSpec{SpecId: x.ID, ComputePercent: x.Compute, MemoryMib: x.Memory, Weighted: x.Weighted, Model: x.Model, PriceFen: x.PriceFen, UpdatedAt: stamp(x.UpdatedAt)}
}

// named checks what a request says of the thing whose ID it names.
func named(path string, there bool, id, of string) error {
	switch {
	case !there:
		return fault.Fields(fault.Field{Path: path, Problem: "is required"})
	case of != "" && of != id:
		return fault.Fields(fault.Field{Path: path + "." + path + "_id", Problem: "must be that of the request, or empty"})
	}
	return nil
}

func (h handler) SetSliceSpec(ctx context.Context, r *poolv1.SetSliceSpecRequest) (*poolv1.SliceSpec, error) {
	x := r.Spec
	if err := named("spec", x != nil, r.SpecId, x.GetSpecId()); err != nil {
		return nil, err
	}
	out, err := h.s.SetSpec(ctx, Spec{ID: r.SpecId, Compute: x.ComputePercent, Memory: x.MemoryMib, Weighted: x.Weighted, Model: x.Model, PriceFen: x.PriceFen})
	if err != nil {
		return nil, err
	}
	return specOut(out), nil
}

func (h handler) DeleteSliceSpec(ctx context.Context, r *poolv1.DeleteSliceSpecRequest) (*poolv1.DeleteSliceSpecResponse, error) {
	return &poolv1.DeleteSliceSpecResponse{}, h.s.DeleteSpec(ctx, r.SpecId)
}

func (h handler) ListPoolGroups(ctx context.Context, _ *poolv1.ListPoolGroupsRequest) (*poolv1.ListPoolGroupsResponse, error) {
	list, err := h.s.Groups(ctx)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListPoolGroupsResponse{Groups: each(list, groupOut)}, nil
}

func groupOut(g *Group) *poolv1.PoolGroup {
	return &poolv1.PoolGroup{GroupId: g.ID, TenantIds: g.Tenants, UserIds: g.Users, Members: g.Members, ComputeLimitPercent: g.ComputeLimit, MemoryLimitMib: g.MemoryLimit, MaxPriority: int32(g.MaxPriority),
		UpdatedAt: stamp(g.UpdatedAt), ComputeLentPercent: g.ComputeLent, MemoryLentMib: g.MemoryLent, Slices: g.Slices}
}

func (h handler) SetPoolGroup(ctx context.Context, r *poolv1.SetPoolGroupRequest) (*poolv1.PoolGroup, error) {
	x := r.Group
	if err := named("group", x != nil, r.GroupId, x.GetGroupId()); err != nil {
		return nil, err
	}
	out, err := h.s.SetGroup(ctx, Group{ID: r.GroupId, Tenants: x.TenantIds, Users: x.UserIds, Members: x.Members, ComputeLimit: x.ComputeLimitPercent, MemoryLimit: x.MemoryLimitMib, MaxPriority: int64(x.MaxPriority)})
	if err != nil {
		return nil, err
	}
	return groupOut(out), nil
}

func (h handler) DeletePoolGroup(ctx context.Context, r *poolv1.DeletePoolGroupRequest) (*poolv1.DeletePoolGroupResponse, error) {
	return &poolv1.DeletePoolGroupResponse{}, h.s.DeleteGroup(ctx, r.GroupId)
}

func (h handler) GetPoolPolicy(ctx context.Context, _ *poolv1.GetPoolPolicyRequest) (*poolv1.PoolPolicy, error) {
	return answerPolicy(h.s.Policy(ctx))
}

func (h handler) SetPoolPolicy(ctx context.Context, r *poolv1.SetPoolPolicyRequest) (*poolv1.PoolPolicy, error) {
	if err := named("policy", r.Policy != nil, "", ""); err != nil {
		return nil, err
	}
	return answerPolicy(h.s.SetPolicy(ctx, policyIn(r.Policy)))
}

func policyIn(p *poolv1.PoolPolicy) Policy {
	return Policy{int64(p.GetLocal()), int64(p.GetNodes()), int64(p.GetDevices())}
}

func policyOut(p Policy) *poolv1.PoolPolicy {
	return &poolv1.PoolPolicy{Local: poolv1.PoolPolicy_Local(p.Local), Nodes: poolv1.PoolPolicy_Spread(p.Nodes), Devices: poolv1.PoolPolicy_Spread(p.Devices)}
}

func answerPolicy(p Policy, err error) (*poolv1.PoolPolicy, error) {
	if err != nil {
		return nil, err
	}
	return policyOut(p), nil
}

func (h handler) RequestSlice(ctx context.Context, r *poolv1.RequestSliceRequest) (*poolv1.Slice, error) {
	return answerSlice(h.s.Request(ctx, Request{ID: r.RequestId, Group: r.GroupId, Spec: r.SpecId, Compute: r.ComputePercent, Memory: r.MemoryMib, Weighted: r.Weighted, Model: r.Model, Node: r.NodeId, Device: r.DeviceId,
		Fixed: r.Fixed, Priority: int64(r.Priority), Policy: policyIn(r.Policy), Host: r.Host, Name: r.Name, IdleSeconds: r.IdleSeconds, LimSeconds: r.LimitSeconds,
		Physical: r.Physical, Affinity: r.Affinity, Anti: r.AntiAffinity, Cards: int64(r.Cards), Across: r.AcrossNodes, API: r.Api}))
}

func (h handler) AwaitSlice(ctx context.Context, r *poolv1.AwaitSliceRequest) (*poolv1.AwaitSliceResponse, error) {
	x, a, err := h.s.Await(ctx, r.SliceId, millis(r.WaitMs))
	if err != nil {
		return nil, err
	}
	res := &poolv1.AwaitSliceResponse{Slice: sliceOut(x)}
	if a != nil {
		res.Addresses, res.Host, res.Ticket, res.TicketKey = a.Addresses, a.Host, a.Ticket, a.Key
	}
	return res, nil
}

func (h handler) ListSlices(ctx context.Context, r *poolv1.ListSlicesRequest) (*poolv1.ListSlicesResponse, error) {
	f := Filter{Group: r.GroupId, Node: r.NodeId, Device: r.DeviceId, States: each(r.States, func(s poolv1.Slice_State) State { return State(s) })}
	list, next, err := h.s.List(ctx, f, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	return &poolv1.ListSlicesResponse{Slices: each(list, sliceOut), NextPageToken: next}, nil
}

func (h handler) ResizeSlice(ctx context.Context, r *poolv1.ResizeSliceRequest) (*poolv1.Slice, error) {
	return answerSlice(h.s.Resize(ctx, r.SliceId, r.ComputePercent, r.MemoryMib))
}

func (h handler) MoveSlice(ctx context.Context, r *poolv1.MoveSliceRequest) (*poolv1.Slice, error) {
	return answerSlice(h.s.Move(ctx, r.SliceId, r.NodeId, r.DeviceId, millis(r.WaitMs)))
}

func (h handler) ReleaseSlice(ctx context.Context, r *poolv1.ReleaseSliceRequest) (*poolv1.Slice, error) {
	return answerSlice(h.s.Release(ctx, r.SliceId))
}

func answerSlice(x *Slice, err error) (*poolv1.Slice, error) {
	if err != nil {
		return nil, err
	}
	return sliceOut(x), nil
}

func sliceOut(x *Slice) *poolv1.Slice {
	out := &poolv1.Slice{SliceId: x.ID, State: poolv1.Slice_State(x.State), GroupId: x.Group, TenantId: x.Tenant, UserId: x.User, Name: x.Name, SpecId: x.Spec, ComputePercent: x.Compute, MemoryMib: x.Memory,
		Weighted: x.Weighted, Model: x.Model, Fixed: x.Fixed, Priority: int32(x.Priority), NodeId: x.Node, DeviceId: x.Device, Policy: policyOut(x.Policy), Reason: x.Reason, Position: x.Position,
		CreatedAt: stamp(x.CreatedAt), AssignedAt: stamp(x.AssignedAt), StartedAt: stamp(x.StartedAt), EndedAt: stamp(x.EndedAt), DeviceMicros: x.Busy.Microseconds(), EnergyMillijoules: x.Energy, MemoryUsedBytes: x.Used, Programs: x.Programs,
		Physical: x.Physical, Affinity: x.Affinity, AntiAffinity: x.Anti, MovingToNodeId: x.ToNode, MovingToDeviceId: x.ToDevice, MoveError: x.MoveError, PauseMicros: x.Pause.Microseconds(), CardSliceIds: x.Cards, AcrossNodes: x.Across, JobId: x.run.Job, JobPriority: int32(x.run.Priority), Api: x.API}
	if x.State == Waiting {
		out.NodeId, out.DeviceId = x.WantNode, x.WantDevice
	}
	return out
}
