package network

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Register mounts the API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(networkv1connect.NewNetworkServiceHandler(handler{s}, srv.Options()...))
}

type handler struct{ s *Service }

func pathOut(p Path) *networkv1.Path {
	out := &networkv1.Path{From: p.From, To: p.To, Note: p.Note}
	for _, f := range p.Facts {
		x := &networkv1.PathFact{Fact: f.Name, Value: f.Value, Source: networkv1.PathFact_Source(f.Source), FromPath: f.Path}
		if !f.At.IsZero() {
			x.MeasuredAt = timestamppb.New(f.At)
		}
		out.Facts = append(out.Facts, x)
	}
	return out
}

func originOut(o *Origin) *networkv1.Origin {
	out := &networkv1.Origin{OriginId: o.ID, Name: o.Name, Region: o.Region, TenantIds: o.Tenants, UserIds: o.Users, UpdatedAt: timestamppb.New(o.UpdatedAt)}
	if o.Position != nil {
		out.Longitude, out.Latitude = &o.Position.Longitude, &o.Position.Latitude
	}
	return out
}

func (h handler) ListPaths(ctx context.Context, r *networkv1.ListPathsRequest) (*networkv1.ListPathsResponse, error) {
	rows, next, err := h.s.Paths(ctx, r.End, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	out := &networkv1.ListPathsResponse{NextPageToken: next}
	for _, p := range rows {
		out.Paths = append(out.Paths, pathOut(p))
	}
	return out, nil
}

func (h handler) GetPath(ctx context.Context, r *networkv1.GetPathRequest) (*networkv1.Path, error) {
	p, err := h.s.Between(ctx, r.From, r.To)
	if err != nil {
		return nil, err
	}
	return pathOut(p), nil
}

func (h handler) SetPath(ctx context.Context, r *networkv1.SetPathRequest) (*networkv1.Path, error) {
	x := r.GetPath()
	fact := func(v *int64) place.Fact {
		if v == nil {
			return place.Fact{}
		}
		return place.Known(*v)
	}
	d := Declaration{From: x.GetFrom(), To: x.GetTo(), Note: x.GetNote()}
	if x != nil {
		d.Facts = place.Network{LatencyMicros: fact(x.LatencyUs), JitterMicros: fact(x.JitterUs), LossPPM: fact(x.LossPpm), BandwidthKbps: fact(x.BandwidthKbps), FeeFenPerGiB: fact(x.FeeFenPerGib)}
	}
	p, err := h.s.SetPath(ctx, d)
	if err != nil {
		return nil, err
	}
	return pathOut(p), nil
}

func (h handler) DeletePath(ctx context.Context, r *networkv1.DeletePathRequest) (*networkv1.DeletePathResponse, error) {
	return &networkv1.DeletePathResponse{}, h.s.DeletePath(ctx, r.From, r.To)
}

func (h handler) ListOrigins(ctx context.Context, r *networkv1.ListOriginsRequest) (*networkv1.ListOriginsResponse, error) {
	rows, next, err := h.s.Origins(ctx, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	out := &networkv1.ListOriginsResponse{NextPageToken: next}
	for _, o := range rows {
		out.Origins = append(out.Origins, originOut(o))
	}
	return out, nil
}

func (h handler) SetOrigin(ctx context.Context, r *networkv1.SetOriginRequest) (*networkv1.Origin, error) {
	x := r.GetOrigin()
	if x == nil {
		x = &networkv1.Origin{}
	}
	o, err := h.s.SetOrigin(ctx, Origin{ID: x.OriginId, Name: x.Name, Region: x.Region, Tenants: x.TenantIds, Users: x.UserIds}, x.Longitude, x.Latitude)
	if err != nil {
		return nil, err
	}
	return originOut(o), nil
}

func (h handler) DeleteOrigin(ctx context.Context, r *networkv1.DeleteOriginRequest) (*networkv1.DeleteOriginResponse, error) {
	return &networkv1.DeleteOriginResponse{}, h.s.DeleteOrigin(ctx, r.OriginId)
}
