package calendar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	calendarv1 "yunhe.dev/yunhe/gen/yunhe/calendar/v1"
	"yunhe.dev/yunhe/gen/yunhe/calendar/v1/calendarv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(calendarv1connect.NewCalendarServiceHandler(api{s}, srv.Options()...))
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
	sum := sha256.Sum256(b)
	return Request{m.GetRequestId(), hex.EncodeToString(sum[:])}, nil
}

func (a api) CreateReservation(ctx context.Context, r *calendarv1.CreateReservationRequest) (*calendarv1.Reservation, error) {
	q, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	got, err := a.s.Reserve(ctx, Wish{Name: r.Name, SpecID: r.ResourceSpecId, Count: r.Count, Amounts: r.Amounts, Centers: r.AiCenterIds, Regions: r.Regions, Expression: r.Expression,
		StartAt: timeOf(r.StartAt), EndAt: timeOf(r.EndAt), Recurrence: r.Recurrence, TimeZone: r.TimeZone, Preempt: r.Preempt, UnusedSeconds: r.UnusedSeconds}, q)
	if err != nil {
		return nil, err
	}
	return reservationOut(got), nil
}

func (a api) ListReservations(ctx context.Context, r *calendarv1.ListReservationsRequest) (*calendarv1.ListReservationsResponse, error) {
	var states []State
	for _, x := range r.States {
		states = append(states, State(x))
	}
	rows, next, err := a.s.Reservations(ctx, states, r.TenantId, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &calendarv1.ListReservationsResponse{NextPageToken: next}
	for _, x := range rows {
		res.Reservations = append(res.Reservations, reservationOut(x))
	}
	return res, nil
}

func (a api) GetReservation(ctx context.Context, r *calendarv1.GetReservationRequest) (*calendarv1.Reservation, error) {
	got, err := a.s.Reservation(ctx, r.ReservationId)
	if err != nil {
		return nil, err
	}
	return reservationOut(got), nil
}

func (a api) CancelReservation(ctx context.Context, r *calendarv1.CancelReservationRequest) (*calendarv1.Reservation, error) {
	got, err := a.s.Cancel(ctx, r.ReservationId, r.Stop)
	if err != nil {
		return nil, err
	}
	return reservationOut(got), nil
}

func (a api) CreateMaintenance(ctx context.Context, r *calendarv1.CreateMaintenanceRequest) (*calendarv1.Maintenance, error) {
	q, err := requestOf(r)
	if err != nil {
		return nil, err
	}
	return a.maintenance(a.s.PlanMaintenance(ctx, Plan{CenterID: r.AiCenterId, Nodes: r.Nodes, Reason: r.Reason, StartAt: timeOf(r.StartAt), EndAt: timeOf(r.EndAt), Recurrence: r.Recurrence,
		TimeZone: r.TimeZone, Runs: Runs(r.Runs), NoticeSeconds: r.NoticeSeconds, DrainSeconds: r.DrainSeconds}, q))
}

func (a api) ListMaintenance(ctx context.Context, r *calendarv1.ListMaintenanceRequest) (*calendarv1.ListMaintenanceResponse, error) {
	rows, next, err := a.s.ListMaintenance(ctx, r.AiCenterId, r.All, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &calendarv1.ListMaintenanceResponse{NextPageToken: next}
	for _, x := range rows {
		one, err := a.maintenance(x, nil)
		if err != nil {
			return nil, err
		}
		res.Maintenance = append(res.Maintenance, one)
	}
	return res, nil
}

func (a api) GetMaintenance(ctx context.Context, r *calendarv1.GetMaintenanceRequest) (*calendarv1.Maintenance, error) {
	return a.maintenance(a.s.Maintenance(ctx, r.MaintenanceId))
}

func (a api) CancelMaintenance(ctx context.Context, r *calendarv1.CancelMaintenanceRequest) (*calendarv1.Maintenance, error) {
	return a.maintenance(a.s.CancelMaintenance(ctx, r.MaintenanceId))
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return db.Time(db.Micros(t.AsTime()))
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func amountsOut(q core.Quantities) map[string]string {
	out := map[string]string{}
	for name, n := range q {
		out[name] = core.FormatQuantity(name, n)
	}
	return out
}

// shownTimes are the latest times of a reservation that are shown.
const shownTimes = 500

func reservationOut(r *Reservation) *calendarv1.Reservation {
	out := &calendarv1.Reservation{ReservationId: r.ID, Name: r.Name, TenantId: r.TenantID, UserName: r.UserID, State: calendarv1.Reservation_State(r.State), Reason: r.Reason,
		ResourceSpecId: r.SpecID, Count: r.Count, Amounts: amountsOut(r.Amounts), StartAt: stamp(r.StartAt), EndAt: stamp(r.EndAt), Recurrence: r.Recurrence, TimeZone: r.TimeZone,
		Preempt: r.Preempt, UnusedSeconds: r.UnusedSeconds, CreatedAt: stamp(r.CreatedAt), EndedAt: stamp(r.EndedAt)}
	for _, t := range r.Times[max(0, len(r.Times)-shownTimes):] {
		o := &calendarv1.Occurrence{Number: int32(t.Number), State: calendarv1.Occurrence_State(t.State), StartAt: stamp(t.From), EndAt: stamp(t.To), EndedAt: stamp(t.EndedAt)}
		for _, p := range t.Parts {
			o.Parts = append(o.Parts, &calendarv1.Part{AiCenterId: p.CenterID, Amounts: amountsOut(p.Amounts), Count: p.Count, AllocationId: p.AllocationID})
		}
		out.Occurrences = append(out.Occurrences, o)
	}
	return out
}

func (a api) maintenance(m *Maintenance, err error) (*calendarv1.Maintenance, error) {
	if err != nil {
		return nil, err
	}
	now := a.s.db.Now()
	out := &calendarv1.Maintenance{MaintenanceId: m.ID, AiCenterId: m.CenterID, Reason: m.Reason, State: calendarv1.Maintenance_STATE_PLANNED, Runs: calendarv1.Maintenance_Runs(m.Runs),
		NoticeSeconds: m.NoticeSeconds, DrainSeconds: m.DrainSeconds, StartAt: stamp(m.StartAt), EndAt: stamp(m.EndAt), Recurrence: m.Recurrence, TimeZone: m.TimeZone, UserName: m.UserID,
		CreatedAt: stamp(m.CreatedAt), ReservationIds: m.Meets}
	for _, name := range m.Nodes {
		n := &calendarv1.Maintenance_Node{Name: name}
		if c := m.controls[name]; c != nil {
			n.Isolated, n.Problem = c.Applied, c.Problem
		}
		out.Nodes = append(out.Nodes, n)
	}
	next, err := m.times(now, now.Add(100*maxAhead), 1)
	if err != nil {
		return nil, err
	}
	switch {
	case !m.CanceledAt.IsZero():
		out.State = calendarv1.Maintenance_STATE_CANCELED
	case !m.EndedAt.IsZero() || len(next) == 0:
		out.State = calendarv1.Maintenance_STATE_ENDED
	default:
		out.NextStartAt, out.NextEndAt = stamp(next[0].from), stamp(next[0].to)
		if !next[0].from.After(now) {
			out.State = calendarv1.Maintenance_STATE_UNDER_WAY
		}
	}
	return out, nil
}
