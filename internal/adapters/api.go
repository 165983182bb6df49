package adapters

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(adaptersv1connect.NewAdapterServiceHandler(handler{s}, srv.Options()...))
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
	res := &adaptersv1.ListGatewaysResponse{}
	for _, g := range gs {
		res.Gateways = append(res.Gateways, &adaptersv1.Gateway{AiCenterId: g.CenterID, PublicKey: g.PublicKey, Version: g.Version,
			JoinedAt: stamp(g.JoinedAt), LastSeenAt: stamp(g.LastSeen), Connected: g.Connected})
	}
	return res, nil
}

// stamp is nil for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (h handler) RemoveGateway(ctx context.Context, r *adaptersv1.RemoveGatewayRequest) (*adaptersv1.RemoveGatewayResponse, error) {
	return &adaptersv1.RemoveGatewayResponse{}, h.s.RemoveGateway(ctx, r.AiCenterId)
}

func (h handler) ListPlugins(ctx context.Context, _ *adaptersv1.ListPluginsRequest) (*adaptersv1.ListPluginsResponse, error) {
	list, err := h.s.Plugins(ctx)
	if err != nil {
		return nil, err
	}
	res := &adaptersv1.ListPluginsResponse{}
	for _, p := range list {
		p.Schema, p.Instances = "", nil
		res.Plugins = append(res.Plugins, pluginProto(p))
	}
	return res, nil
}

func (h handler) GetPlugin(ctx context.Context, r *adaptersv1.GetPluginRequest) (*adaptersv1.Plugin, error) {
	p, err := h.s.GetPlugin(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	return pluginProto(p), nil
}

func (h handler) SetPlugin(ctx context.Context, r *adaptersv1.SetPluginRequest) (*adaptersv1.Plugin, error) {
	p, err := h.s.SetPlugin(ctx, r.Name, r.Endpoints)
	if err != nil {
		return nil, err
	}
	return pluginProto(p), nil
}

func (h handler) DeletePlugin(ctx context.Context, r *adaptersv1.DeletePluginRequest) (*adaptersv1.DeletePluginResponse, error) {
	return &adaptersv1.DeletePluginResponse{}, h.s.DeletePlugin(ctx, r.Name)
}

func (h handler) RestartPlugin(ctx context.Context, r *adaptersv1.RestartPluginRequest) (*adaptersv1.RestartPluginResponse, error) {
	return &adaptersv1.RestartPluginResponse{}, h.s.RestartPlugin(ctx, r.Name)
}

func (h handler) CreateInstance(ctx context.Context, r *adaptersv1.CreateInstanceRequest) (*adaptersv1.Instance, error) {
	in, err := h.s.CreateInstance(ctx, r.Plugin, r.AiCenterId, cmp.Or(r.Config, "{}"))
	if err != nil {
		return nil, err
	}
	return instanceProto(in), nil
}

func (h handler) UpdateInstance(ctx context.Context, r *adaptersv1.UpdateInstanceRequest) (*adaptersv1.Instance, error) {
	in, err := h.s.UpdateInstance(ctx, r.Plugin, r.AiCenterId, r.Config, r.ConfigPatch, r.Enabled)
	if err != nil {
		return nil, err
	}
	return instanceProto(in), nil
}

func (h handler) DeleteInstance(ctx context.Context, r *adaptersv1.DeleteInstanceRequest) (*adaptersv1.DeleteInstanceResponse, error) {
	return &adaptersv1.DeleteInstanceResponse{}, h.s.DeleteInstance(ctx, r.Plugin, r.AiCenterId)
}

func (h handler) GetInstance(ctx context.Context, r *adaptersv1.GetInstanceRequest) (*adaptersv1.Instance, error) {
	in, err := h.s.GetInstance(ctx, r.Plugin, r.AiCenterId)
	if err != nil {
		return nil, err
	}
	return instanceProto(in), nil
}

func (h handler) ListAccounts(ctx context.Context, r *adaptersv1.ListAccountsRequest) (*adaptersv1.ListAccountsResponse, error) {
	list, err := h.s.ListAccounts(ctx, r.AiCenterId)
	if err != nil {
		return nil, err
	}
	res := &adaptersv1.ListAccountsResponse{}
	for _, a := range list {
		res.Accounts = append(res.Accounts, accountProto(a))
	}
	return res, nil
}

func (h handler) SetAccount(ctx context.Context, r *adaptersv1.SetAccountRequest) (*adaptersv1.Account, error) {
	a, err := h.s.SetAccount(ctx, r.AiCenterId, r.TenantId, r.Name)
	if err != nil {
		return nil, err
	}
	return accountProto(a), nil
}

func (h handler) RemoveAccount(ctx context.Context, r *adaptersv1.RemoveAccountRequest) (*adaptersv1.RemoveAccountResponse, error) {
	return &adaptersv1.RemoveAccountResponse{}, h.s.RemoveAccount(ctx, r.AiCenterId, r.TenantId)
}

func accountProto(a Account) *adaptersv1.Account {
	return &adaptersv1.Account{Name: a.Name, TenantIds: a.Tenants, UseKnown: a.UseKnown, CpuCoreSeconds: a.CoreSeconds, AcceleratorSeconds: a.AccelSeconds, Runs: a.Runs,
		Made: a.Made, Missing: a.Missing}
}

func pluginProto(p Plugin) *adaptersv1.Plugin {
	out := &adaptersv1.Plugin{Name: p.Name, Version: p.Version, Parts: p.Parts, Source: adaptersv1.PluginSource(p.Source), Instances: int32(p.Count), State: p.State,
		Endpoints: p.Endpoints, ConfigSchema: p.Schema}
	for _, in := range p.Instances {
		out.List = append(out.List, instanceProto(in))
	}
	return out
}

func instanceProto(in Instance) *adaptersv1.Instance {
	return &adaptersv1.Instance{Plugin: in.Plugin, AiCenterId: in.CenterID, Endpoint: in.Endpoint, State: in.State, Message: in.Message, Version: in.Version,
		ChangedAt: stamp(in.ChangedAt), CreatedAt: stamp(in.CreatedAt), Enabled: in.Enabled,
		Origin: adaptersv1.InstanceOrigin(in.Origin), Config: in.Config}
}
