package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	"yunhe.dev/yunhe/gen/yunhe/control/v1/controlv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(controlv1connect.NewControlServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

// requestOf identifies a request by its ID and everything in it.
func requestOf(m interface {
	proto.Message
	GetRequestId() string
}) (Request, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return Request{}, fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(append([]byte(m.ProtoReflect().Descriptor().Name()+" "), b...))
	return Request{m.GetRequestId(), hex.EncodeToString(sum[:])}, nil
}

func (a api) ApplyAllocation(ctx context.Context, r *controlv1.ApplyAllocationRequest) (*controlv1.Allocation, error) {
	req, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return answer(allocationOut)(a.s.Apply(ctx, Application{Name: r.Name, SpecID: r.ResourceSpecId, Count: r.Count, Amounts: r.Amounts, Nodes: r.Nodes, CenterID: r.AiCenterId, Region: r.Region,
		StartAt: timeOf(r.StartAt), EndAt: timeOf(r.EndAt), NoWait: r.NoWait, Weights: r.PolicyWeights}, req))
}

func (a api) GetAllocation(ctx context.Context, r *controlv1.GetAllocationRequest) (*controlv1.Allocation, error) {
	return answer(allocationOut)(a.s.GetAllocation(ctx, r.AllocationId))
}

func (a api) ListAllocations(ctx context.Context, r *controlv1.ListAllocationsRequest) (*controlv1.ListAllocationsResponse, error) {
	states := each(r.States, func(x controlv1.AllocationState) AllocationState { return AllocationState(x) })
	rows, next, err := a.s.ListAllocations(ctx, states, r.TenantId, r.AiCenterId, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListAllocationsResponse{Allocations: each(rows, allocationOut), NextPageToken: next}, nil
}

func (a api) AdjustAllocation(ctx context.Context, r *controlv1.AdjustAllocationRequest) (*controlv1.Allocation, error) {
	req, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return answer(allocationOut)(a.s.Adjust(ctx, r.AllocationId, Adjustment{Count: r.Count, Amounts: r.Amounts, EndAt: timeOf(r.EndAt), BelowUse: r.BelowUse}, req))
}

func (a api) ReleaseAllocation(ctx context.Context, r *controlv1.ReleaseAllocationRequest) (*controlv1.Allocation, error) {
	req, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return answer(allocationOut)(a.s.Release(ctx, r.AllocationId, r.Stop, req))
}

func (a api) IsolateResource(ctx context.Context, r *controlv1.IsolateResourceRequest) (*controlv1.Operation, error) {
	req, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return answer(operationOut)(a.s.Isolate(ctx, Target{r.AiCenterId, r.Node}, r.Reason, req))
}

func (a api) RestoreResource(ctx context.Context, r *controlv1.RestoreResourceRequest) (*controlv1.Operation, error) {
	req, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return answer(operationOut)(a.s.Restore(ctx, Target{r.AiCenterId, r.Node}, req))
}

func (a api) ReclaimResource(ctx context.Context, r *controlv1.ReclaimResourceRequest) (*controlv1.Operation, error) {
	req, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return answer(operationOut)(a.s.Reclaim(ctx, Target{r.AiCenterId, r.Node}, r.Reason, r.GraceSeconds, r.ThenFree, req))
}

func (a api) ListNodeControls(ctx context.Context, r *controlv1.ListNodeControlsRequest) (*controlv1.ListNodeControlsResponse, error) {
	rows, next, err := a.s.Controls(ctx, r.AiCenterId, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListNodeControlsResponse{NextPageToken: next, Controls: each(rows, func(n *NodeControl) *controlv1.NodeControl {
		return &controlv1.NodeControl{AiCenterId: n.CenterID, Node: n.Node, Isolated: n.Isolated, AllocationId: n.AllocationID, MaintenanceId: n.MaintenanceID, Reason: n.Reason, UserName: n.UserID, ChangedAt: stamp(n.ChangedAt),
			Applied: n.Applied, AppliedAt: stamp(n.AppliedAt), Problem: n.Problem, Repaired: n.Repaired}
	})}, nil
}

func (a api) GetOperation(ctx context.Context, r *controlv1.GetOperationRequest) (*controlv1.Operation, error) {
	return answer(operationOut)(a.s.GetOperation(ctx, r.OperationId))
}

func (a api) ListOperations(ctx context.Context, r *controlv1.ListOperationsRequest) (*controlv1.ListOperationsResponse, error) {
	f := OperationFilter{CenterID: r.AiCenterId, Node: r.Node, AllocationID: r.AllocationId, TenantID: r.TenantId}
	f.States = each(r.States, func(x controlv1.OperationState) OperationState { return OperationState(x) })
	f.Kinds = each(r.Kinds, func(x controlv1.OperationKind) OperationKind { return OperationKind(x) })
	rows, next, err := a.s.ListOperations(ctx, f, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListOperationsResponse{Operations: each(rows, operationOut), NextPageToken: next}, nil
}

func (a api) WatchOperations(ctx context.Context, r *controlv1.WatchOperationsRequest, stream *connect.ServerStream[controlv1.WatchOperationsResponse]) error {
	if r.OperationId != "" {
		if _, err := a.s.GetOperation(ctx, r.OperationId); err != nil {
			return err
		}
	}
	if err := stream.Send(nil); err != nil { // headers now: the caller sees that it watches
		return err
	}
	return a.s.WatchOperations(ctx, r.OperationId, func(o *Operation) error {
		return stream.Send(&controlv1.WatchOperationsResponse{Operation: operationOut(o)})
	})
}

func (a api) GetResourceView(ctx context.Context, r *controlv1.GetResourceViewRequest) (*controlv1.GetResourceViewResponse, error) {
	v, err := a.s.ResourceView(ctx, r.Region, r.ResourceSpecId)
	if err != nil {
		return nil, err
	}
	return &controlv1.GetResourceViewResponse{At: stamp(v.At), Regions: each(v.Regions, func(g Region) *controlv1.RegionView {
		return &controlv1.RegionView{Region: g.Name, Total: notation(g.Total), Free: notation(g.Free), Centers: each(g.Centers, func(k Center) *controlv1.CenterView {
			return &controlv1.CenterView{AiCenterId: k.ID, Name: k.Name, Status: k.Status, Total: notation(k.Total), Used: notation(k.Used), Allocated: notation(k.Allocated), Free: notation(k.Free),
				NodesReady: k.Nodes.Ready, NodesNotReady: k.Nodes.NotReady, NodesIsolated: k.Nodes.Drained, Specs: each(k.Specs, func(x SpecRoom) *controlv1.SpecView {
					return &controlv1.SpecView{ResourceSpecId: x.SpecID, Free: x.Free, Price: int64(x.Price)}
				})}
		})}
	})}, nil
}

func allocationOut(a *Allocation) *controlv1.Allocation {
	return &controlv1.Allocation{AllocationId: a.ID, Name: a.Name, TenantId: a.TenantID, UserName: a.UserID, State: controlv1.AllocationState(a.State), Reason: a.Reason, ResourceSpecId: a.SpecID,
		Count: a.Count, Amounts: notation(a.Amounts), Used: notation(a.Used), Region: a.Region, Nodes: a.Nodes, AiCenterId: a.CenterID, StartAt: stamp(a.StartAt), EndAt: stamp(a.EndAt),
		CreatedAt: stamp(a.CreatedAt), GrantedAt: stamp(a.GrantedAt), EndedAt: stamp(a.EndedAt), OperationId: a.OperationID}
}

func operationOut(o *Operation) *controlv1.Operation {
	return &controlv1.Operation{OperationId: o.ID, Kind: controlv1.OperationKind(o.Kind), State: controlv1.OperationState(o.State), TenantId: o.TenantID, UserName: o.UserID, AiCenterId: o.CenterID,
		Node: o.Node, AllocationId: o.AllocationID, Reason: o.Reason, Message: o.Message, CreatedAt: stamp(o.CreatedAt), UpdatedAt: stamp(o.UpdatedAt), EndedAt: stamp(o.EndedAt), StopAt: stamp(o.StopAt),
		Steps: each(o.Steps, func(x Step) *controlv1.OperationStep {
			return &controlv1.OperationStep{At: timestamppb.New(time.UnixMicro(x.At)), Name: x.Name, Ok: x.OK, Message: x.Message, Subjects: x.Subjects}
		})}
}

func notation(q core.Quantities) map[string]string {
	out := make(map[string]string, len(q))
	for name, n := range q {
		out[name] = core.FormatQuantity(name, n)
	}
	return out
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func answer[T, P any](f func(T) P) func(T, error) (P, error) {
	return func(v T, err error) (p P, _ error) {
		if err != nil {
			return p, err
		}
		return f(v), nil
	}
}

func each[T, P any](rows []T, f func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
