package standing

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	standingv1 "yunhe.dev/yunhe/gen/yunhe/standing/v1"
	"yunhe.dev/yunhe/gen/yunhe/standing/v1/standingv1connect"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(standingv1connect.NewStandingServiceHandler(handler{s}, srv.Options()...))
}

func (h handler) GetStanding(ctx context.Context, r *standingv1.GetStandingRequest) (*standingv1.Standing, error) {
	return answer(h.s.Get(ctx, r.AiCenterId))
}

func (h handler) ListStandings(ctx context.Context, r *standingv1.ListStandingsRequest) (*standingv1.ListStandingsResponse, error) {
	list, next, err := h.s.List(ctx, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &standingv1.ListStandingsResponse{NextPageToken: next}
	for _, x := range list {
		res.Standings = append(res.Standings, out(x))
	}
	return res, nil
}

func (h handler) ListLostGraces(ctx context.Context, _ *standingv1.ListLostGracesRequest) (*standingv1.ListLostGracesResponse, error) {
	list, err := h.s.Graces(ctx)
	if err != nil {
		return nil, err
	}
	res := &standingv1.ListLostGracesResponse{}
	for _, g := range list {
		res.Graces = append(res.Graces, graceOut(g))
	}
	return res, nil
}

func (h handler) SetLostGrace(ctx context.Context, r *standingv1.SetLostGraceRequest) (*standingv1.LostGrace, error) {
	g, err := h.s.SetGrace(ctx, r.AiCenterId, r.TenantId, r.Seconds)
	if err != nil {
		return nil, err
	}
	return graceOut(g), nil
}

func (h handler) ForgetRefusals(ctx context.Context, r *standingv1.ForgetRefusalsRequest) (*standingv1.Standing, error) {
	return answer(h.s.Forget(ctx, r.AiCenterId))
}

func answer(x Standing, err error) (*standingv1.Standing, error) {
	if err != nil {
		return nil, err
	}
	return out(x), nil
}

func out(x Standing) *standingv1.Standing {
	m := &standingv1.Standing{AiCenterId: x.CenterID, Link: standingv1.LinkState(x.State), Since: stamp(x.Since), SilentSeconds: int64(x.Silent / time.Second),
		LostGraceSeconds: int64(x.Grace / time.Second), HeardAt: stamp(x.HeardAt), Silences: x.Silences, Losses: x.Losses}
	if x.Grace < 0 {
		m.LostGraceSeconds = Never
	}
	for _, r := range x.Refusals {
		m.Refusals = append(m.Refusals, &standingv1.Refusal{ResourceSpecId: r.SpecID, ImageId: r.ImageID, Reason: r.Reason, Count: r.Count,
			FirstAt: stamp(r.FirstAt), LastAt: stamp(r.LastAt), Until: stamp(r.Until)})
	}
	return m
}

func graceOut(g Grace) *standingv1.LostGrace {
	m := &standingv1.LostGrace{Seconds: g.Seconds, ChangedAt: stamp(g.ChangedAt)}
	switch g.Scope {
	case OfCenter:
		m.AiCenterId = g.ID
	case OfTenant:
		m.TenantId = g.ID
	}
	return m
}

// stamp is nil for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
