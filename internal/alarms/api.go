package alarms

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
	"yunhe.dev/yunhe/gen/yunhe/alarms/v1/alarmsv1connect"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(alarmsv1connect.NewAlarmServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) ListAlarms(ctx context.Context, r *alarmsv1.ListAlarmsRequest) (*alarmsv1.ListAlarmsResponse, error) {
	f := Filter{CenterID: r.AiCenterId, Severity: Severity(r.Severity), RootsOnly: r.RootsOnly, Node: r.Node}
	if r.From != nil {
		f.From = r.From.AsTime()
	}
	if r.To != nil {
		f.To = r.To.AsTime()
	}
	for _, x := range r.States {
		f.States = append(f.States, State(x))
	}
	for _, x := range r.Kinds {
		f.Kinds = append(f.Kinds, Kind(x))
	}
	rows, next, active, err := a.s.List(ctx, f, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	return &alarmsv1.ListAlarmsResponse{Alarms: all(rows), NextPageToken: next, Active: active}, nil
}

func (a api) GetAlarm(ctx context.Context, r *alarmsv1.GetAlarmRequest) (*alarmsv1.GetAlarmResponse, error) {
	x, affected, err := a.s.Get(ctx, r.AlarmId)
	if err != nil {
		return nil, err
	}
	return &alarmsv1.GetAlarmResponse{Alarm: out(x), Affected: all(affected)}, nil
}

func (a api) AcknowledgeAlarm(ctx context.Context, r *alarmsv1.AcknowledgeAlarmRequest) (*alarmsv1.Alarm, error) {
	x, err := a.s.Acknowledge(ctx, r.AlarmId, r.Note)
	if err != nil {
		return nil, err
	}
	return out(x), nil
}

func (a api) WatchAlarms(ctx context.Context, _ *alarmsv1.WatchAlarmsRequest, stream *connect.ServerStream[alarmsv1.WatchAlarmsResponse]) error {
	if err := stream.Send(nil); err != nil { // headers now: the caller sees that it watches
		return err
	}
	return a.s.Follow(ctx, func(x *Alarm) error { return stream.Send(&alarmsv1.WatchAlarmsResponse{Alarm: out(x)}) })
}

func out(a *Alarm) *alarmsv1.Alarm {
	return &alarmsv1.Alarm{AlarmId: a.ID, Kind: alarmsv1.AlarmKind(a.Kind), Severity: alarmsv1.Severity(a.Severity), State: alarmsv1.AlarmState(a.State), ParentId: a.ParentID, AiCenterId: a.CenterID,
		Node: a.Node, JobId: a.JobID, AllocationId: a.AllocationID, InstanceId: a.InstanceID, TenantId: a.TenantID, Message: a.Message, FirstAt: stamp(a.FirstAt), LastAt: stamp(a.LastAt), Count: a.Count,
		AcknowledgedBy: a.AcknowledgedBy, AcknowledgedAt: stamp(a.AcknowledgedAt), Note: a.Note, ClearedAt: stamp(a.ClearedAt), Affected: a.Affected, Equipment: a.Equipment}
}

func all(rows []*Alarm) []*alarmsv1.Alarm {
	list := make([]*alarmsv1.Alarm, len(rows))
	for i, a := range rows {
		list[i] = out(a)
	}
	return list
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
