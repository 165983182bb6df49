package adapters

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct {
	adaptersv1connect.UnimplementedAdapterServiceHandler
	s *Service
}

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(adaptersv1connect.NewAdapterServiceHandler(handler{s: s}, srv.Options()...))
}

func (h handler) CreateJoinToken(ctx context.Context, r *adaptersv1.CreateJoinTokenRequest) (*adaptersv1.CreateJoinTokenResponse, error) {
	if r.TtlSeconds < 0 || r.TtlSeconds > int64(maxTokenTTL/time.Second) {
		return nil, fault.Fields(fault.Field{Path: "ttl_seconds", Problem: "must be between 0 and 604800"})
	}
	token, expires, err := h.s.CreateJoinToken(ctx, r.AiCenterId, time.Duration(r.TtlSeconds)*time.Second)
	if err != nil {
		return nil, err
	}
	return &adaptersv1.CreateJoinTokenResponse{Token: token, ExpiresAt: timestamppb.New(expires)}, nil
}

func (h handler) Join(ctx context.Context, r *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error) {
	return h.s.Join(ctx, r.Token, r.PublicKey, r.Inventory)
}

func (h handler) ListGateways(ctx context.Context, _ *adaptersv1.ListGatewaysRequest) (*adaptersv1.ListGatewaysResponse, error) {
	gs, err := h.s.Gateways(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := h.s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]*registry.Center, len(snap.Centers))
	for _, c := range snap.Centers {
		seen[c.ID] = c
	}
	res := &adaptersv1.ListGatewaysResponse{}
	for _, g := range gs {
		out := &adaptersv1.Gateway{AiCenterId: g.CenterID, PublicKey: g.PublicKey, Version: g.Version, JoinedAt: timestamppb.New(g.JoinedAt)}
		if c := seen[g.CenterID]; c != nil && !c.LastSeen.IsZero() {
			out.LastSeenAt = timestamppb.New(c.LastSeen)
			out.Connected = snap.At.Sub(c.LastSeen) < registry.SeenWithin
		}
		res.Gateways = append(res.Gateways, out)
	}
	return res, nil
}

func (h handler) RemoveGateway(ctx context.Context, r *adaptersv1.RemoveGatewayRequest) (*adaptersv1.RemoveGatewayResponse, error) {
	return &adaptersv1.RemoveGatewayResponse{}, h.s.RemoveGateway(ctx, r.AiCenterId)
}
