package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	simulationsv1 "yunhe.dev/yunhe/gen/yunhe/simulations/v1"
	"yunhe.dev/yunhe/gen/yunhe/simulations/v1/simulationsv1connect"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// fakeSimulations plays nothing: a simulation is done when it is watched. What
// it records is two centers and two jobs.
type fakeSimulations struct {
	simulationsv1connect.UnimplementedSimulationServiceHandler

	mu   sync.Mutex // guards list
	list []*simulationsv1.Simulation
}

func (f *fakeSimulations) find(id string) (*simulationsv1.Simulation, error) {
	for _, x := range f.list {
		if x.SimulationId == id {
			return x, nil
		}
	}
	return nil, missing("simulation", id)
}

func (f *fakeSimulations) StartSimulation(_ context.Context, r *simulationsv1.StartSimulationRequest) (*simulationsv1.Simulation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &simulationsv1.Simulation{SimulationId: fmt.Sprintf("simulation_%026d", len(f.list)+1), Title: r.Title, TenantId: "default", UserId: "admin", State: simulationsv1.SimulationState_SIMULATION_STATE_WAITING,
		Source: "platform", Places: 2, Jobs: 20, CreatedAt: fakeTime(0), Version: 1}
	switch {
	case r.Recipe != "":
		x.Source = "recipe"
	case r.Files != nil:
		x.Source, x.Title = "files", r.Files.NodesName
	}
	for _, p := range r.Policies {
		name := p.Preset
		switch {
		case p.InForce:
			name = "in force"
		case p.PolicyId != "":
			if name = p.PolicyId + "@4"; p.Version > 0 { // the latest
				name = fmt.Sprintf("%s@%d", p.PolicyId, p.Version)
			}
		case p.Document != nil:
			name = p.Document.PolicyId
		}
		x.Compared = append(x.Compared, name)
	}
	f.list = append(f.list, x)
	return x, nil
}

func (f *fakeSimulations) GetSimulation(_ context.Context, r *simulationsv1.GetSimulationRequest) (*simulationsv1.Simulation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(r.SimulationId)
}

func (f *fakeSimulations) ListSimulations(context.Context, *simulationsv1.ListSimulationsRequest) (*simulationsv1.ListSimulationsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &simulationsv1.ListSimulationsResponse{Simulations: f.list}, nil
}

func (f *fakeSimulations) WatchSimulation(_ context.Context, r *simulationsv1.WatchSimulationRequest, stream *connect.ServerStream[simulationsv1.WatchSimulationResponse]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.find(r.SimulationId)
	if err != nil {
		return err
	}
	x.State, x.ProgressPermille = simulationsv1.SimulationState_SIMULATION_STATE_RUNNING, 500
	if err := stream.Send(&simulationsv1.WatchSimulationResponse{Simulation: x}); err != nil {
		return err
	}
	x.State, x.ProgressPermille = simulationsv1.SimulationState_SIMULATION_STATE_DONE, 1000
	done := &simulationsv1.SimulationMeasure{MeasureId: "jobs.done", Title: "Jobs done", MoreIsBetter: true}
	wait := &simulationsv1.SimulationMeasure{MeasureId: "waiting_seconds.mean", Title: "Waiting, mean", Unit: "s"}
	for i, name := range x.Compared {
		done.Figures = append(done.Figures, &simulationsv1.SimulationFigure{Name: name, Value: 20})
		wait.Figures = append(wait.Figures, &simulationsv1.SimulationFigure{Name: name, Value: 30 - float64(i), Best: i == len(x.Compared)-1})
	}
	x.Measures = []*simulationsv1.SimulationMeasure{done, wait}
	return stream.Send(&simulationsv1.WatchSimulationResponse{Simulation: x})
}

func (f *fakeSimulations) CancelSimulation(_ context.Context, r *simulationsv1.CancelSimulationRequest) (*simulationsv1.Simulation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.find(r.SimulationId)
	if err == nil && x.State < simulationsv1.SimulationState_SIMULATION_STATE_DONE {
		x.State = simulationsv1.SimulationState_SIMULATION_STATE_CANCELED
	}
	return x, err
}

func (f *fakeSimulations) DeleteSimulation(_ context.Context, r *simulationsv1.DeleteSimulationRequest) (*simulationsv1.DeleteSimulationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(x *simulationsv1.Simulation) bool { return x.SimulationId == r.SimulationId })
	return &simulationsv1.DeleteSimulationResponse{}, nil
}

func (f *fakeSimulations) GetSimulationReport(_ context.Context, r *simulationsv1.GetSimulationReportRequest) (*simulationsv1.GetSimulationReportResponse, error) {
	return &simulationsv1.GetSimulationReportResponse{Content: []byte("{\"results\":[]}\n"), ContentType: "application/json"}, nil
}

func (f *fakeSimulations) ListSimulationEvents(_ context.Context, r *simulationsv1.ListSimulationEventsRequest) (*simulationsv1.ListSimulationEventsResponse, error) {
	return &simulationsv1.ListSimulationEventsResponse{Cut: true, Events: []*simulationsv1.SimulationEvent{
		{Seconds: 1.5, What: "arrives", JobId: "job_1"},
		{Seconds: 1.5, What: "starts", JobId: "job_1", Places: map[string]int32{"bj-1": 2, "gz-1": 1}, Decision: &schedulerv1.Decision{TaskName: "job_1", Policy: "gold@3", AiCenterId: "bj-1", Summary: "bj-1 is the cheapest"}},
	}}, nil
}

func (f *fakeSimulations) RecordPlatform(context.Context, *simulationsv1.RecordPlatformRequest) (*simulationsv1.RecordPlatformResponse, error) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := &sim.Input{Recorded: &sim.Recording{At: start, Start: start, Queue: "priority,backfill=greedy,strict=on", Weights: map[string]int64{"lowest-price": 1}}}
	for i, id := range []string{"bj-1", "gz-1"} {
		in.Centers = append(in.Centers, sim.RecordedCenter(place.Candidate{ID: id, Region: []string{"north", "south"}[i], Status: place.Available, AnyImage: true, Total: place.Amounts{"cpu": 4000},
			Offers: map[string]place.Offer{"small": {PriceFenPerHour: place.Known(int64(200 - 100*i))}}}))
	}
	for i := range 2 {
		j := sim.Job{ID: fmt.Sprintf("job_%d", i+1), Tenant: "default", Arrival: int64(i) * sim.Second, Run: 20 * sim.Second}
		j.Recorded(place.Work{ID: j.ID, Tenant: "default", Tasks: []place.Task{{ID: "0", Replicas: 1, Spec: "small", Request: place.Amounts{"cpu": 1000}}}})
		in.Jobs = append(in.Jobs, j)
	}
	var out bytes.Buffer
	err := in.WriteRecorded(&out)
	return &simulationsv1.RecordPlatformResponse{Content: out.Bytes(), Centers: 2, Jobs: 2, OpenJobs: 1, LeftOut: map[string]int32{"ended without having run": 3}}, err
}
