package main

import (
	"context"
	"sync"
	"time"

	standingv1 "yunhe.dev/yunhe/gen/yunhe/standing/v1"
	"yunhe.dev/yunhe/gen/yunhe/standing/v1/standingv1connect"
)

// fakeStanding has a center that was lost and refuses something.
type fakeStanding struct {
	standingv1connect.UnimplementedStandingServiceHandler

	mu     sync.Mutex // guards the fields below
	forgot bool
	graces []*standingv1.LostGrace
}

func (f *fakeStanding) standing(id string) *standingv1.Standing {
	if id != "bj-1" {
		return &standingv1.Standing{AiCenterId: id, Link: standingv1.LinkState_LINK_STATE_CONNECTED, LostGraceSeconds: -1, HeardAt: fakeTime(0)}
	}
	x := &standingv1.Standing{AiCenterId: id, Link: standingv1.LinkState_LINK_STATE_LOST, Since: fakeTime(10 * time.Minute), SilentSeconds: 2400, LostGraceSeconds: 1800,
		HeardAt: fakeTime(40 * time.Minute), Silences: 3, Losses: 1}
	if !f.forgot {
		x.Refusals = []*standingv1.Refusal{{ResourceSpecId: "small", ImageId: "host", Reason: "the quota is used up", Count: 4, FirstAt: fakeTime(2 * time.Minute), LastAt: fakeTime(time.Minute), Until: fakeTime(-time.Minute)}}
	}
	return x
}

func (f *fakeStanding) GetStanding(_ context.Context, r *standingv1.GetStandingRequest) (*standingv1.Standing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.AiCenterId == "ghost" {
		return nil, missing("center", r.AiCenterId)
	}
	return f.standing(r.AiCenterId), nil
}

func (f *fakeStanding) ListStandings(context.Context, *standingv1.ListStandingsRequest) (*standingv1.ListStandingsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &standingv1.ListStandingsResponse{Standings: []*standingv1.Standing{f.standing("bj-1"), f.standing("sh-1")}}, nil
}

func (f *fakeStanding) ListLostGraces(context.Context, *standingv1.ListLostGracesRequest) (*standingv1.ListLostGracesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &standingv1.ListLostGracesResponse{Graces: f.graces}, nil
}

func (f *fakeStanding) SetLostGrace(_ context.Context, r *standingv1.SetLostGraceRequest) (*standingv1.LostGrace, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := &standingv1.LostGrace{AiCenterId: r.AiCenterId, TenantId: r.TenantId, Seconds: r.Seconds, ChangedAt: fakeTime(0)}
	f.graces = append(f.graces, g)
	return g, nil
}

func (f *fakeStanding) ForgetRefusals(_ context.Context, r *standingv1.ForgetRefusalsRequest) (*standingv1.Standing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot = true
	return f.standing(r.AiCenterId), nil
}
