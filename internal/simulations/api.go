package simulations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	simulationsv1 "yunhe.dev/yunhe/gen/yunhe/simulations/v1"
	"yunhe.dev/yunhe/gen/yunhe/simulations/v1/simulationsv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/policies"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/scheduler"
)

// Register mounts the API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(simulationsv1connect.NewSimulationServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) StartSimulation(ctx context.Context, q *simulationsv1.StartSimulationRequest) (*simulationsv1.Simulation, error) {
	x, err := specIn(q)
	if err != nil {
		return nil, err
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(q)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	out, err := a.s.Start(ctx, x, q.RequestId, hex.EncodeToString(sum[:]))
	if err != nil {
		return nil, err
	}
	return simulationOut(out, true), nil
}

func specIn(q *simulationsv1.StartSimulationRequest) (Spec, error) {
	x := Spec{Title: q.Title, Recipe: q.Recipe, Queues: q.Queues, Seed: q.Seed, Load: q.Load, Baseline: q.Baseline, Speed: q.Speed}
	given := 0
	if p := q.Platform; p != nil {
		given++
		x.Source, x.Since, x.Jobs = Platform, p.SinceSeconds, int(p.Jobs)
	}
	if f := q.Files; f != nil {
		given++
		x.Source, x.Nodes, x.NodesName, x.JobsFile, x.JobsName = Files, f.Nodes, f.NodesName, f.Jobs, f.JobsName
	}
	if q.Recipe != "" {
		given++
		x.Source = Made
	}
	if given != 1 {
		return x, fault.Fields(fault.Field{Path: "platform", Problem: "exactly one of platform, files and recipe is required"})
	}
	for _, p := range q.Policies {
		c := Compare{Preset: p.GetPreset(), ID: p.GetPolicyId(), Version: p.GetVersion(), InForce: p.GetInForce()}
		if d := p.GetDocument(); d != nil {
			doc := policies.DocumentIn(d)
			c.Document = &doc
		}
		x.Policies = append(x.Policies, c)
	}
	return x, nil
}

func (a api) GetSimulation(ctx context.Context, q *simulationsv1.GetSimulationRequest) (*simulationsv1.Simulation, error) {
	return one(a.s.Get(ctx, q.SimulationId))
}

func one(x *Simulation, err error) (*simulationsv1.Simulation, error) {
	if err != nil {
		return nil, err
	}
	return simulationOut(x, true), nil
}

func (a api) ListSimulations(ctx context.Context, q *simulationsv1.ListSimulationsRequest) (*simulationsv1.ListSimulationsResponse, error) {
	rows, next, err := a.s.List(ctx, q.PageSize, q.PageToken)
	if err != nil {
		return nil, err
	}
	out := &simulationsv1.ListSimulationsResponse{NextPageToken: next}
	for _, x := range rows {
		out.Simulations = append(out.Simulations, simulationOut(x, false))
	}
	return out, nil
}

func (a api) WatchSimulation(ctx context.Context, q *simulationsv1.WatchSimulationRequest, stream *connect.ServerStream[simulationsv1.WatchSimulationResponse]) error {
	return a.s.Follow(ctx, q.SimulationId, func(x *Simulation) error {
		return stream.Send(&simulationsv1.WatchSimulationResponse{Simulation: simulationOut(x, true)})
	})
}

func (a api) CancelSimulation(ctx context.Context, q *simulationsv1.CancelSimulationRequest) (*simulationsv1.Simulation, error) {
	return one(a.s.Cancel(ctx, q.SimulationId))
}

func (a api) DeleteSimulation(ctx context.Context, q *simulationsv1.DeleteSimulationRequest) (*simulationsv1.DeleteSimulationResponse, error) {
	return &simulationsv1.DeleteSimulationResponse{}, a.s.Delete(ctx, q.SimulationId)
}

func (a api) GetSimulationReport(ctx context.Context, q *simulationsv1.GetSimulationReportRequest) (*simulationsv1.GetSimulationReportResponse, error) {
	data, kind, err := a.s.Report(ctx, q.SimulationId, q.Format)
	if err != nil {
		return nil, err
	}
	return &simulationsv1.GetSimulationReportResponse{Content: data, ContentType: kind}, nil
}

func (a api) ListSimulationEvents(ctx context.Context, q *simulationsv1.ListSimulationEventsRequest) (*simulationsv1.ListSimulationEventsResponse, error) {
	rows, next, cut, err := a.s.Events(ctx, q.SimulationId, q.Name, q.JobId, q.PageSize, q.PageToken)
	if err != nil {
		return nil, err
	}
	out := &simulationsv1.ListSimulationEventsResponse{NextPageToken: next, Cut: cut}
	for _, e := range rows {
		x := &simulationsv1.SimulationEvent{Seconds: float64(e.At) / 1e6, What: e.What, JobId: e.Job}
		for id, n := range e.Places {
			if x.Places == nil {
				x.Places = map[string]int32{}
			}
			x.Places[id] = int32(n)
		}
		if e.Decision != nil {
			x.Decision = scheduler.DecisionProto(e.Decision)
			x.Decision.TaskName = e.Job
		}
		out.Events = append(out.Events, x)
	}
	return out, nil
}

func (a api) RecordPlatform(ctx context.Context, q *simulationsv1.RecordPlatformRequest) (*simulationsv1.RecordPlatformResponse, error) {
	rec, data, err := a.s.Record(ctx, q.SinceSeconds, int(q.Jobs))
	if err != nil {
		return nil, err
	}
	out := &simulationsv1.RecordPlatformResponse{Content: data, Centers: int32(len(rec.Centers)), Jobs: int32(len(rec.Jobs)), OpenJobs: int32(rec.Open)}
	for why, n := range rec.LeftOut {
		if out.LeftOut == nil {
			out.LeftOut = map[string]int32{}
		}
		out.LeftOut[why] = int32(n)
	}
	return out, nil
}

func simulationOut(x *Simulation, whole bool) *simulationsv1.Simulation {
	out := &simulationsv1.Simulation{SimulationId: x.ID, Title: x.Spec.Title, TenantId: x.TenantID, UserId: x.UserID, State: simulationsv1.SimulationState(x.State), Message: x.Message,
		Source: string(x.Spec.Source), Compared: x.Spec.Names, Places: x.Places, Jobs: x.Jobs, ProgressPermille: int32(x.Progress), Runs: int32(x.Runs), Version: x.Version,
		CreatedAt: stamp(x.CreatedAt), StartedAt: stamp(x.StartedAt), EndedAt: stamp(x.EndedAt)}
	if !whole {
		return out
	}
	for _, m := range x.Measures {
		row := &simulationsv1.SimulationMeasure{MeasureId: m.ID, Title: m.Title, Unit: m.Unit, MoreIsBetter: m.More}
		for _, f := range m.Figures {
			row.Figures = append(row.Figures, &simulationsv1.SimulationFigure{Name: f.Name, Value: f.Value, Best: f.Best})
		}
		out.Measures = append(out.Measures, row)
	}
	return out
}

// stamp is unset for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
