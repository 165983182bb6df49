package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
)

// fakePool has one node, and gives each slice a place at once.
type fakePool struct {
	poolv1connect.UnimplementedPoolServiceHandler

	mu     sync.Mutex // guards what follows
	node   *poolv1.PoolNode
	spec   *poolv1.SliceSpec
	group  *poolv1.PoolGroup
	policy *poolv1.PoolPolicy
	slice  *poolv1.Slice
}

func newFakePool() *fakePool {
	return &fakePool{
		node: &poolv1.PoolNode{NodeId: "n1", Mode: poolv1.PoolNode_MODE_ENABLED, Online: true, Version: "v1.2.3",
			Devices: []*poolv1.PoolDevice{{DeviceId: "opencl-0", Api: "opencl", Model: "Card A", ComputeUnits: 8, MemoryMib: 8192, Present: true, ComputeLimitPercent: 100, MemoryLimitPercent: 100, MemoryLimitMib: 8192}}},
		policy: &poolv1.PoolPolicy{Local: poolv1.PoolPolicy_LOCAL_ANY, Nodes: poolv1.PoolPolicy_SPREAD_BALANCED, Devices: poolv1.PoolPolicy_SPREAD_BALANCED},
	}
}

func (f *fakePool) CreateNodeToken(context.Context, *poolv1.CreateNodeTokenRequest) (*poolv1.CreateNodeTokenResponse, error) {
	return &poolv1.CreateNodeTokenResponse{Token: "yp_token", ExpiresAt: fakeTime(-time.Hour)}, nil
}

func (f *fakePool) ListPoolNodes(context.Context, *poolv1.ListPoolNodesRequest) (*poolv1.ListPoolNodesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListPoolNodesResponse{Nodes: []*poolv1.PoolNode{f.node}}, nil
}

func (f *fakePool) SetPoolNode(_ context.Context, r *poolv1.SetPoolNodeRequest) (*poolv1.PoolNode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node.Mode = r.Mode
	return f.node, nil
}

func (f *fakePool) SetPoolDevice(_ context.Context, r *poolv1.SetPoolDeviceRequest) (*poolv1.PoolNode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.node.Devices[0]; r.DeviceId != d.DeviceId {
		return nil, missing("device", r.DeviceId)
	}
	d := f.node.Devices[0]
	if r.Disabled != nil {
		d.Disabled = *r.Disabled
	}
	if r.ComputeLimitPercent > 0 {
		d.ComputeLimitPercent = r.ComputeLimitPercent
	}
	if r.Virtualization != 0 {
		d.Physical = r.Virtualization == poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF
	}
	if r.PowerLimitWatts > 0 { // such a card is shown from then on
		f.node.Figures = []*poolv1.PoolFigures{{DeviceId: d.DeviceId, Driver: "nvml", PowerMilliwatts: 90_500, EnergySource: "counter", PowerLimitMilliwatts: new(r.PowerLimitWatts * 1000)}}
	} else if r.PowerLimitWatts < 0 {
		f.node.Figures[0].PowerLimitError = "Insufficient Permissions"
	}
	if d := f.node.Devices[0]; r.MemoryLimitPercent > 0 {
		d.MemoryLimitPercent, d.MemoryLimitMib = r.MemoryLimitPercent, d.MemoryMib*r.MemoryLimitPercent/100
	}
	return f.node, nil
}

func (f *fakePool) SetSliceSpec(_ context.Context, r *poolv1.SetSliceSpecRequest) (*poolv1.SliceSpec, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spec = r.Spec
	f.spec.SpecId = r.SpecId
	return f.spec, nil
}

func (f *fakePool) ListSliceSpecs(context.Context, *poolv1.ListSliceSpecsRequest) (*poolv1.ListSliceSpecsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListSliceSpecsResponse{Specs: some(f.spec)}, nil
}

// some lists what there is.
func some[T any](x *T) []*T {
	if x == nil {
		return nil
	}
	return []*T{x}
}

func (f *fakePool) DeleteSliceSpec(context.Context, *poolv1.DeleteSliceSpecRequest) (*poolv1.DeleteSliceSpecResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spec = nil
	return &poolv1.DeleteSliceSpecResponse{}, nil
}

func (f *fakePool) SetPoolGroup(_ context.Context, r *poolv1.SetPoolGroupRequest) (*poolv1.PoolGroup, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.group = r.Group
	f.group.GroupId = r.GroupId
	return f.group, nil
}

func (f *fakePool) ListPoolGroups(context.Context, *poolv1.ListPoolGroupsRequest) (*poolv1.ListPoolGroupsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListPoolGroupsResponse{Groups: some(f.group)}, nil
}

func (f *fakePool) DeletePoolGroup(context.Context, *poolv1.DeletePoolGroupRequest) (*poolv1.DeletePoolGroupResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.group = nil
	return &poolv1.DeletePoolGroupResponse{}, nil
}

func (f *fakePool) GetPoolPolicy(context.Context, *poolv1.GetPoolPolicyRequest) (*poolv1.PoolPolicy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy, nil
}

func (f *fakePool) SetPoolPolicy(_ context.Context, r *poolv1.SetPoolPolicyRequest) (*poolv1.PoolPolicy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Policy.Local != 0 {
		f.policy.Local = r.Policy.Local
	}
	if r.Policy.Nodes != 0 {
		f.policy.Nodes = r.Policy.Nodes
	}
	return f.policy, nil
}

func (f *fakePool) RequestSlice(_ context.Context, r *poolv1.RequestSliceRequest) (*poolv1.Slice, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GroupId != "team-a" {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("there is no group of the pool that user admin may use"))
	}
	f.slice = &poolv1.Slice{SliceId: "slice_01", State: poolv1.Slice_STATE_ASSIGNED, GroupId: r.GroupId, UserId: "admin", Name: r.Name, NodeId: "n1", DeviceId: cmp.Or(r.Api, "opencl") + "-0", Api: cmp.Or(r.Api, "opencl"), ComputePercent: r.ComputePercent,
		MemoryMib: r.MemoryMib, Fixed: r.Fixed}
	return f.slice, nil
}

// AwaitSlice is of a slice that never has a place.
func (f *fakePool) AwaitSlice(ctx context.Context, _ *poolv1.AwaitSliceRequest) (*poolv1.AwaitSliceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.slice
	if x == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no such slice"))
	}
	said := x.State == poolv1.Slice_STATE_WAITING
	x.State, x.Position, x.Reason = poolv1.Slice_STATE_WAITING, 1, "all nodes are full"
	if said {
		f.mu.Unlock()
		defer f.mu.Lock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &poolv1.AwaitSliceResponse{Slice: x}, nil
}

func (f *fakePool) ListSlices(context.Context, *poolv1.ListSlicesRequest) (*poolv1.ListSlicesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListSlicesResponse{Slices: some(f.slice)}, nil
}

func (f *fakePool) ResizeSlice(_ context.Context, r *poolv1.ResizeSliceRequest) (*poolv1.Slice, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slice.ComputePercent = r.ComputePercent
	return f.slice, nil
}

// MoveSlice takes two calls, and to n8 for ever.
func (f *fakePool) MoveSlice(ctx context.Context, r *poolv1.MoveSliceRequest) (*poolv1.Slice, error) {
	if r.NodeId == "n8" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch x := f.slice; {
	case r.NodeId == "n9":
		x.MoveError = "the pool node ended the connection"
	case x.MovingToNodeId == "":
		x.MoveError, x.MovingToNodeId, x.MovingToDeviceId = "", r.NodeId, "opencl-0"
	default:
		x.NodeId, x.MovingToNodeId, x.PauseMicros = r.NodeId, "", 12_340
	}
	return f.slice, nil
}

func (f *fakePool) ReleaseSlice(context.Context, *poolv1.ReleaseSliceRequest) (*poolv1.Slice, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := f.slice
	f.slice = nil
	return gone, nil
}
