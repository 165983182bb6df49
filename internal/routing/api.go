package routing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	routingv1 "yunhe.dev/yunhe/gen/yunhe/routing/v1"
	"yunhe.dev/yunhe/gen/yunhe/routing/v1/routingv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the API.
func (r *Router) Register(srv *rpc.Server) {
	srv.Service(routingv1connect.NewRoutingServiceHandler(api{r}, srv.Options()...))
}

type api struct{ r *Router }

func (a api) CreateService(ctx context.Context, q *routingv1.CreateServiceRequest) (*routingv1.Service, error) {
	s, err := serviceIn(q.Service)
	if err != nil {
		return nil, err
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(q.Service)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	if s, err = a.r.Create(ctx, s, q.RequestId, hex.EncodeToString(sum[:])); err != nil {
		return nil, err
	}
	return serviceOut(s), nil
}

func (a api) GetService(ctx context.Context, q *routingv1.GetServiceRequest) (*routingv1.Service, error) {
	s, err := a.r.Get(ctx, q.ServiceId)
	if err != nil {
		return nil, err
	}
	return serviceOut(s), nil
}

func (a api) ListServices(ctx context.Context, q *routingv1.ListServicesRequest) (*routingv1.ListServicesResponse, error) {
	rows, next, err := a.r.List(ctx, q.PageSize, q.PageToken)
	if err != nil {
		return nil, err
	}
	out := &routingv1.ListServicesResponse{NextPageToken: next}
	for _, s := range rows {
		out.Services = append(out.Services, serviceOut(s))
	}
	return out, nil
}

func (a api) UpdateService(ctx context.Context, q *routingv1.UpdateServiceRequest) (*routingv1.Service, error) {
	s, err := serviceIn(q.Service)
	if err != nil {
		return nil, err
	}
	s.ID = q.Service.GetServiceId()
	if s, err = a.r.Update(ctx, s); err != nil {
		return nil, err
	}
	return serviceOut(s), nil
}

func (a api) DeleteService(ctx context.Context, q *routingv1.DeleteServiceRequest) (*routingv1.DeleteServiceResponse, error) {
	return &routingv1.DeleteServiceResponse{}, a.r.Delete(ctx, q.ServiceId)
}

func (a api) ReportTraffic(ctx context.Context, q *routingv1.ReportTrafficRequest) (*routingv1.ReportTrafficResponse, error) {
	var list []Report
	for _, x := range q.Reports {
		r := Report{OriginID: x.GetOriginId(), Rate: x.GetRequestsPerSecond(), Latency: x.GetLatencyMicroseconds()}
		if x.GetAt() != nil {
			r.At = x.At.AsTime()
		}
		list = append(list, r)
	}
	return &routingv1.ReportTrafficResponse{}, a.r.Report(ctx, q.ServiceId, list)
}

func (a api) GetRoutes(ctx context.Context, q *routingv1.GetRoutesRequest) (*routingv1.Routes, error) {
	s, r, err := a.r.Routes(ctx, q.ServiceId)
	if err != nil {
		return nil, err
	}
	cat, err := a.r.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	out := &routingv1.Routes{ServiceId: r.ServiceID, Generation: r.Generation, MadeAt: timestamppb.New(r.MadeAt), ValidSeconds: valid,
		MeanMicroseconds: r.Mean, Overload: r.Overload, BeyondLimitPercent: 100 * r.Far}
	for _, p := range r.Places {
		row := &routingv1.RoutePlace{AiCenterId: p.CenterID, Replicas: int32(p.Replicas), Capacity: p.Capacity, Load: p.Load, Endpoint: s.Endpoints[p.CenterID]}
		if c := cat.Centers[p.CenterID]; c != nil {
			row.CenterName = c.Name
		}
		out.Places = append(out.Places, row)
	}
	for _, o := range r.Origins {
		row := &routingv1.OriginRoute{OriginId: o.OriginID, Demand: o.Demand, Expected: o.Expected}
		for _, w := range o.Weights {
			row.Weights = append(row.Weights, &routingv1.RouteWeight{AiCenterId: w.CenterID, Weight: int32(w.Weight), LatencyMicroseconds: w.Latency, Measured: w.Measured})
		}
		out.Origins = append(out.Origins, row)
	}
	return out, nil
}

func serviceIn(p *routingv1.Service) (*Service, error) {
	if p == nil {
		return nil, fault.Fields(fault.Field{Path: "service", Problem: "is required"})
	}
	s := &Service{Name: p.Name, JobIDs: p.JobIds, ReplicaRate: p.ReplicaRate, MaxLatency: p.MaxLatencyMicroseconds, MaxUse: p.MaxUsePercent, Move: p.MovePercent, Endpoints: p.Endpoints}
	for i, o := range p.Origins {
		x := Origin{ID: o.GetOriginId(), Name: o.GetName()}
		if (o.Longitude == nil) != (o.Latitude == nil) {
			return nil, fault.Fields(fault.Field{Path: "service.origins[" + strconv.Itoa(i) + "]", Problem: "must have both longitude and latitude or neither"})
		}
		if o.Longitude != nil {
			x.Position = &registry.Position{Longitude: *o.Longitude, Latitude: *o.Latitude}
		}
		s.Origins = append(s.Origins, x)
	}
	return s, nil
}

func serviceOut(s *Service) *routingv1.Service {
	out := &routingv1.Service{ServiceId: s.ID, Name: s.Name, TenantId: s.TenantID, JobIds: s.JobIDs, ReplicaRate: s.ReplicaRate, MaxLatencyMicroseconds: s.MaxLatency,
		MaxUsePercent: s.MaxUse, MovePercent: s.Move, Endpoints: s.Endpoints, CreatedAt: timestamppb.New(s.CreatedAt), UpdatedAt: timestamppb.New(s.UpdatedAt)}
	for _, o := range s.Origins {
		row := &routingv1.ServiceOrigin{OriginId: o.ID, Name: o.Name}
		if o.Position != nil {
			row.Longitude, row.Latitude = &o.Position.Longitude, &o.Position.Latitude
		}
		out.Origins = append(out.Origins, row)
	}
	return out
}
