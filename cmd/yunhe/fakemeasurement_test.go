package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	measurementv1 "yunhe.dev/yunhe/gen/yunhe/measurement/v1"
	"yunhe.dev/yunhe/gen/yunhe/measurement/v1/measurementv1connect"
)

// fakeMeasurement has a few indicators, and runs that succeed as soon as they
// are looked at; those of devices are refused.
type fakeMeasurement struct {
	measurementv1connect.UnimplementedMeasurementServiceHandler

	mu sync.Mutex // guards the fields below

	runs     []*measurementv1.MeasurementRun
	settings *measurementv1.MeasurementSettings
	schedule *measurementv1.NodeSchedule
}

func newFakeMeasurement() *fakeMeasurement {
	return &fakeMeasurement{settings: &measurementv1.MeasurementSettings{Policy: measurementv1.Policy_POLICY_AUTOMATIC, Version: 1,
		Weights: []*measurementv1.Weight{{IndicatorId: "memory.bandwidth", Reference: 5000, Weight: 4, PerCore: true}}}}
}

func (f *fakeMeasurement) ListIndicators(context.Context, *measurementv1.ListIndicatorsRequest) (*measurementv1.ListIndicatorsResponse, error) {
	return &measurementv1.ListIndicatorsResponse{Indicators: []*measurementv1.Indicator{
		{IndicatorId: "compute.cores", Title: "Processor cores", TitleZh: "处理器核数", Kind: measurementv1.IndicatorKind_INDICATOR_KIND_STATIC, Domain: measurementv1.Domain_DOMAIN_COMPUTE,
			Aspect: measurementv1.Aspect_ASPECT_SPECIFICATION, Unit: "cores", Source: "declared by the center", Clause: "G 6.5 a"},
		{IndicatorId: "memory.bandwidth", Title: "Memory bandwidth", TitleZh: "内存带宽", Kind: measurementv1.IndicatorKind_INDICATOR_KIND_STATIC, Domain: measurementv1.Domain_DOMAIN_COMPUTE,
			Aspect: measurementv1.Aspect_ASPECT_PERFORMANCE, Unit: "MB/s", Source: "the benchmark", Clause: "G 6.5 b"},
		{IndicatorId: "memory.free", Title: "Memory remaining", TitleZh: "剩余内存", Kind: measurementv1.IndicatorKind_INDICATOR_KIND_DYNAMIC, Domain: measurementv1.Domain_DOMAIN_COMPUTE,
			Aspect: measurementv1.Aspect_ASPECT_PERFORMANCE, Unit: "bytes", Source: "the last heartbeat", Clause: "H 2.3.3.19"},
		{IndicatorId: "service.performance", Title: "Performance factor in use", TitleZh: "生效的性能系数", Kind: measurementv1.IndicatorKind_INDICATOR_KIND_COMBINED,
			Domain: measurementv1.Domain_DOMAIN_SERVICE, Aspect: measurementv1.Aspect_ASPECT_PERFORMANCE, Source: "what placement uses", Clause: "H 2.3.3.20"},
	}}, nil
}

func (f *fakeMeasurement) GetMeasurement(_ context.Context, r *measurementv1.GetMeasurementRequest) (*measurementv1.Measurement, error) {
	at := fakeTime(time.Minute)
	return &measurementv1.Measurement{AiCenterId: r.AiCenterId, Name: "北京一号", Performance: 1200, PerformanceFrom: "measured",
		Values: []*measurementv1.Value{
			{IndicatorId: "compute.cores", Number: 8, At: at, Origin: measurementv1.Origin_ORIGIN_DECLARED},
			{IndicatorId: "memory.bandwidth", Number: 41234.5, At: at, Origin: measurementv1.Origin_ORIGIN_MEASURED},
			{IndicatorId: "memory.free", Node: "n1", Number: 1 << 33, At: at, Origin: measurementv1.Origin_ORIGIN_MEASURED},
			{IndicatorId: "service.performance", Number: 1200, At: at, Origin: measurementv1.Origin_ORIGIN_MEASURED},
		},
		Shares: []*measurementv1.Share{{IndicatorId: "memory.bandwidth", Value: 5154.3, Reference: 5000, Weight: 4, Score: 1031, PerCore: true}},
		Notes:  []string{"the working directory is in memory (tmpfs): no disk was measured"}}, nil
}

func (f *fakeMeasurement) CompareMeasurements(_ context.Context, r *measurementv1.CompareMeasurementsRequest) (*measurementv1.CompareMeasurementsResponse, error) {
	return &measurementv1.CompareMeasurementsResponse{AiCenterIds: r.AiCenterIds, Rows: []*measurementv1.ComparedIndicator{
		{IndicatorId: "compute.cores", Values: []*measurementv1.ComparedValue{{Known: true, Number: 8, RatioPermille: 1000}, {Known: true, Number: 4, RatioPermille: 500}}},
		{IndicatorId: "memory.bandwidth", Values: []*measurementv1.ComparedValue{{Known: true, Number: 41234.5, RatioPermille: 1000}, {}}},
	}}, nil
}

func (f *fakeMeasurement) RunMeasurement(_ context.Context, r *measurementv1.RunMeasurementRequest) (*measurementv1.MeasurementRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Scope == 0 {
		r.Scope = measurementv1.Scope_SCOPE_MACHINE
	}
	run := &measurementv1.MeasurementRun{RunId: fmt.Sprintf("mrn_%d", len(f.runs)+1), AiCenterId: r.AiCenterId, Scope: r.Scope, State: measurementv1.RunState_RUN_STATE_RUNNING,
		JobId: "job_1", ResourceSpecId: "medium", ImageId: "host", RequestedBy: "admin", CreatedAt: fakeTime(time.Minute)}
	f.runs = append([]*measurementv1.MeasurementRun{run}, f.runs...)
	return proto.CloneOf(run), nil
}

func (f *fakeMeasurement) GetMeasurementRun(_ context.Context, r *measurementv1.GetMeasurementRunRequest) (*measurementv1.MeasurementRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, run := range f.runs {
		if run.RunId != r.RunId {
			continue
		}
		if run.EndedAt == nil {
			run.EndedAt, run.Cores, run.Processor = fakeTime(0), 2, "Test CPU"
			run.State, run.Message = measurementv1.RunState_RUN_STATE_REFUSED, "accelerator.measured.fp32 of NVIDIA H200 is 120, more than 70.35: the published peak of NVIDIA H200"
			if run.Scope == measurementv1.Scope_SCOPE_MACHINE {
				run.State, run.Message, run.Performance, run.Decision = measurementv1.RunState_RUN_STATE_SUCCEEDED, "", 1200, measurementv1.Decision_DECISION_AWAITED
				run.Figures = []*measurementv1.Figure{{IndicatorId: "memory.bandwidth", Number: 41234.5}}
			}
		}
		return proto.CloneOf(run), nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no run %s of the benchmark", r.RunId))
}

func (f *fakeMeasurement) ListMeasurementRuns(context.Context, *measurementv1.ListMeasurementRunsRequest) (*measurementv1.ListMeasurementRunsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &measurementv1.ListMeasurementRunsResponse{}
	for _, run := range f.runs {
		out.Runs = append(out.Runs, proto.CloneOf(run))
	}
	return out, nil
}

func (f *fakeMeasurement) DecideMeasurementRun(ctx context.Context, r *measurementv1.DecideMeasurementRunRequest) (*measurementv1.MeasurementRun, error) {
	run, err := f.GetMeasurementRun(ctx, &measurementv1.GetMeasurementRunRequest{RunId: r.RunId})
	if err != nil {
		return nil, err
	}
	run.Decision, run.DecidedBy = measurementv1.Decision_DECISION_REJECTED, "admin"
	if r.Accept {
		run.Decision = measurementv1.Decision_DECISION_ACCEPTED
	}
	return run, nil
}

func (f *fakeMeasurement) GetMeasurementSettings(context.Context, *measurementv1.GetMeasurementSettingsRequest) (*measurementv1.MeasurementSettings, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.settings), nil
}

func (f *fakeMeasurement) UpdateMeasurementSettings(_ context.Context, r *measurementv1.UpdateMeasurementSettingsRequest) (*measurementv1.MeasurementSettings, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settings = proto.CloneOf(r.Settings)
	f.settings.Version++
	return proto.CloneOf(f.settings), nil
}

func (f *fakeMeasurement) GetNodeSchedule(_ context.Context, r *measurementv1.GetNodeScheduleRequest) (*measurementv1.NodeSchedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.schedule == nil {
		return &measurementv1.NodeSchedule{AiCenterId: r.AiCenterId, AtOnce: 1}, nil
	}
	return proto.CloneOf(f.schedule), nil
}

func (f *fakeMeasurement) UpdateNodeSchedule(_ context.Context, r *measurementv1.UpdateNodeScheduleRequest) (*measurementv1.NodeSchedule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Schedule.AtOnce > 16 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("schedule.at_once: must be between 1 and 16, got %d", r.Schedule.AtOnce))
	}
	f.schedule = proto.CloneOf(r.Schedule)
	f.schedule.Version++
	f.schedule.UpdatedBy, f.schedule.UpdatedAt, f.schedule.Message = "admin", fakeTime(time.Minute), "job job_7 waits for a place it could have at the center"
	return proto.CloneOf(f.schedule), nil
}

func (f *fakeMeasurement) ListMeasuredNodes(context.Context, *measurementv1.ListMeasuredNodesRequest) (*measurementv1.ListMeasuredNodesResponse, error) {
	return &measurementv1.ListMeasuredNodesResponse{Nodes: []*measurementv1.MeasuredNode{
		{Node: "n1", MeasuredAt: fakeTime(time.Hour), Performance: 1200, RunId: "mrn_1", DueAt: fakeTime(-23 * time.Hour)},
		{Node: "n2", Failures: 2, DueAt: fakeTime(time.Minute), Message: "the log has no report"},
		{Node: "n3", Open: true, DueAt: fakeTime(time.Minute)},
	}}, nil
}
