package main

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	calendarv1 "yunhe.dev/yunhe/gen/yunhe/calendar/v1"
	"yunhe.dev/yunhe/gen/yunhe/calendar/v1/calendarv1connect"
)

// fakeCalendar keeps one reservation and one maintenance.
type fakeCalendar struct {
	calendarv1connect.UnimplementedCalendarServiceHandler
	reservation *calendarv1.Reservation
	maintenance *calendarv1.Maintenance
}

func (f *fakeCalendar) CreateReservation(_ context.Context, req *calendarv1.CreateReservationRequest) (*calendarv1.Reservation, error) {
	if req.GetCount() > 100 {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("it cannot be honored: there is room for 100 of %d", req.GetCount()))
	}
	f.reservation = &calendarv1.Reservation{ReservationId: "rsv_1", Name: req.GetName(), TenantId: "default", UserName: "ann", State: calendarv1.Reservation_STATE_PLANNED, ResourceSpecId: req.GetResourceSpecId(),
		Count: req.GetCount(), Amounts: req.GetAmounts(), StartAt: req.GetStartAt(), EndAt: req.GetEndAt(), Recurrence: req.GetRecurrence(), TimeZone: req.GetTimeZone(), Preempt: req.GetPreempt(),
		UnusedSeconds: 1800, CreatedAt: fakeTime(time.Minute)}
	for i := range 2 {
		at := time.Duration(i) * 24 * time.Hour
		f.reservation.Occurrences = append(f.reservation.Occurrences, &calendarv1.Occurrence{Number: int32(i), State: calendarv1.Occurrence_STATE_PLANNED, StartAt: timestamppb.New(req.GetStartAt().AsTime().Add(at)),
			EndAt: timestamppb.New(req.GetEndAt().AsTime().Add(at)), Parts: []*calendarv1.Part{{AiCenterId: "gz-1", Amounts: map[string]string{"gpu": "8"}, Count: req.GetCount()}}})
	}
	return f.reservation, nil
}

func (f *fakeCalendar) ListReservations(context.Context, *calendarv1.ListReservationsRequest) (*calendarv1.ListReservationsResponse, error) {
	return &calendarv1.ListReservationsResponse{Reservations: []*calendarv1.Reservation{f.reservation}}, nil
}

func (f *fakeCalendar) GetReservation(_ context.Context, req *calendarv1.GetReservationRequest) (*calendarv1.Reservation, error) {
	if f.reservation == nil || f.reservation.GetReservationId() != req.GetReservationId() {
		return nil, missing("reservation", req.GetReservationId())
	}
	return f.reservation, nil
}

func (f *fakeCalendar) CancelReservation(ctx context.Context, req *calendarv1.CancelReservationRequest) (*calendarv1.Reservation, error) {
	return f.GetReservation(ctx, &calendarv1.GetReservationRequest{ReservationId: req.GetReservationId()})
}

func (f *fakeCalendar) CreateMaintenance(_ context.Context, req *calendarv1.CreateMaintenanceRequest) (*calendarv1.Maintenance, error) {
	f.maintenance = &calendarv1.Maintenance{MaintenanceId: "mnt_1", AiCenterId: req.GetAiCenterId(), Reason: req.GetReason(), State: calendarv1.Maintenance_STATE_PLANNED, Runs: req.GetRuns(),
		NoticeSeconds: req.GetNoticeSeconds(), DrainSeconds: req.GetDrainSeconds(), StartAt: req.GetStartAt(), EndAt: req.GetEndAt(), Recurrence: req.GetRecurrence(), TimeZone: req.GetTimeZone(),
		NextStartAt: req.GetStartAt(), NextEndAt: req.GetEndAt(), UserName: "ann", ReservationIds: []string{"rsv_1"}}
	return proto.CloneOf(f.maintenance), nil
}

func (f *fakeCalendar) ListMaintenance(context.Context, *calendarv1.ListMaintenanceRequest) (*calendarv1.ListMaintenanceResponse, error) {
	return &calendarv1.ListMaintenanceResponse{Maintenance: []*calendarv1.Maintenance{f.maintenance}}, nil
}

func (f *fakeCalendar) GetMaintenance(_ context.Context, req *calendarv1.GetMaintenanceRequest) (*calendarv1.Maintenance, error) {
	if f.maintenance == nil || f.maintenance.GetMaintenanceId() != req.GetMaintenanceId() {
		return nil, missing("maintenance", req.GetMaintenanceId())
	}
	return f.maintenance, nil
}

func (f *fakeCalendar) CancelMaintenance(ctx context.Context, req *calendarv1.CancelMaintenanceRequest) (*calendarv1.Maintenance, error) {
	return f.GetMaintenance(ctx, &calendarv1.GetMaintenanceRequest{MaintenanceId: req.GetMaintenanceId()})
}
