package measurement

import (
	"context"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	measurementv1 "yunhe.dev/yunhe/gen/yunhe/measurement/v1"
	"yunhe.dev/yunhe/gen/yunhe/measurement/v1/measurementv1connect"
	"yunhe.dev/yunhe/internal/measurement/score"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(measurementv1connect.NewMeasurementServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) ListIndicators(context.Context, *measurementv1.ListIndicatorsRequest) (*measurementv1.ListIndicatorsResponse, error) {
	out := &measurementv1.ListIndicatorsResponse{}
	for _, x := range Indicators() {
		out.Indicators = append(out.Indicators, &measurementv1.Indicator{IndicatorId: x.ID, Title: x.Title, TitleZh: x.TitleZH,
			Kind:   measurementv1.IndicatorKind(named(measurementv1.IndicatorKind_value, "INDICATOR_KIND_", string(x.Kind))),
			Domain: measurementv1.Domain(named(measurementv1.Domain_value, "DOMAIN_", x.Domain)),
			Aspect: measurementv1.Aspect(named(measurementv1.Aspect_value, "ASPECT_", x.Aspect)),
			Unit:   x.Unit, Source: x.Source, Clause: x.Clause, Precision: x.Precision, LowerIsBetter: x.Lower})
	}
	return out, nil
}

func named(values map[string]int32, prefix, name string) int32 {
	return values[prefix+strings.ToUpper(name)]
}

func (a api) GetMeasurement(ctx context.Context, r *measurementv1.GetMeasurementRequest) (*measurementv1.Measurement, error) {
	p, err := a.s.Picture(ctx, r.GetAiCenterId(), r.GetNodes())
	if err != nil {
		return nil, err
	}
	out := &measurementv1.Measurement{AiCenterId: p.CenterID, Name: p.Name, Performance: p.Performance, PerformanceFrom: p.PerformanceFrom, Runs: each(p.Runs, runOut), Notes: p.Notes}
	for _, v := range p.Values {
		out.Values = append(out.Values, &measurementv1.Value{IndicatorId: v.Indicator, Node: v.Node, Part: v.Part, Number: v.Number, Text: v.Text, At: stamp(v.At),
			Origin: measurementv1.Origin(v.Origin)})
	}
	for _, x := range p.Shares {
		out.Shares = append(out.Shares, &measurementv1.Share{IndicatorId: x.Indicator, Value: x.Value, Reference: x.Reference, Weight: x.Weight.Weight, Score: x.Score,
			PerCore: score.PerCore(x.Indicator)})
	}
	return out, nil
}

func (a api) CompareMeasurements(ctx context.Context, r *measurementv1.CompareMeasurementsRequest) (*measurementv1.CompareMeasurementsResponse, error) {
	rows, err := a.s.Compare(ctx, r.GetAiCenterIds())
	if err != nil {
		return nil, err
	}
	out := &measurementv1.CompareMeasurementsResponse{AiCenterIds: r.GetAiCenterIds()}
	for _, row := range rows {
		x := &measurementv1.ComparedIndicator{IndicatorId: row.Indicator, Part: row.Part}
		for _, v := range row.Values {
			y := &measurementv1.ComparedValue{}
			if v != nil {
				y.Known, y.Number, y.Origin = true, v.Number, measurementv1.Origin(v.Origin)
				if first := row.Values[0]; first != nil && first.Number > 0 && v.Number/first.Number < 1e12 {
					y.RatioPermille = int64(math.Round(1000 * v.Number / first.Number))
				}
			}
			x.Values = append(x.Values, y)
		}
		out.Rows = append(out.Rows, x)
	}
	return out, nil
}

func (a api) RunMeasurement(ctx context.Context, r *measurementv1.RunMeasurementRequest) (*measurementv1.MeasurementRun, error) {
	return answer(a.s.Start(ctx, Request{RequestID: r.GetRequestId(), CenterID: r.GetAiCenterId(), Node: r.GetNode(), Scope: Scope(r.GetScope()),
		SpecID: r.GetResourceSpecId(), ImageID: r.GetImageId()}))
}

func (a api) ListMeasurementRuns(ctx context.Context, r *measurementv1.ListMeasurementRunsRequest) (*measurementv1.ListMeasurementRunsResponse, error) {
	rows, next, err := a.s.List(ctx, r.GetAiCenterId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &measurementv1.ListMeasurementRunsResponse{Runs: each(rows, runOut), NextPageToken: next}, nil
}

func (a api) GetMeasurementRun(ctx context.Context, r *measurementv1.GetMeasurementRunRequest) (*measurementv1.MeasurementRun, error) {
	return answer(a.s.Get(ctx, r.GetRunId()))
}

func (a api) DecideMeasurementRun(ctx context.Context, r *measurementv1.DecideMeasurementRunRequest) (*measurementv1.MeasurementRun, error) {
	return answer(a.s.Decide(ctx, r.GetRunId(), r.GetAccept()))
}

func (a api) GetMeasurementSettings(ctx context.Context, _ *measurementv1.GetMeasurementSettingsRequest) (*measurementv1.MeasurementSettings, error) {
	s, err := a.s.Settings(ctx)
	if err != nil {
		return nil, err
	}
	return settingsOut(s), nil
}

func (a api) UpdateMeasurementSettings(ctx context.Context, r *measurementv1.UpdateMeasurementSettingsRequest) (*measurementv1.MeasurementSettings, error) {
	p := r.GetSettings()
	s := Settings{Policy: Policy(p.GetPolicy()), OnJoin: p.GetOnJoin(), EveryDays: int64(p.GetEveryDays()), Version: p.GetVersion()}
	for _, w := range p.GetWeights() {
		s.Weights = append(s.Weights, score.Weight{Indicator: w.GetIndicatorId(), Reference: w.GetReference(), Weight: w.GetWeight()})
	}
	s, err := a.s.SetSettings(ctx, s)
	if err != nil {
		return nil, err
	}
	return settingsOut(s), nil
}

func (a api) GetNodeSchedule(ctx context.Context, r *measurementv1.GetNodeScheduleRequest) (*measurementv1.NodeSchedule, error) {
	n, err := a.s.NodeSchedule(ctx, r.GetAiCenterId())
	return scheduleOut(n, err)
}

func (a api) UpdateNodeSchedule(ctx context.Context, r *measurementv1.UpdateNodeScheduleRequest) (*measurementv1.NodeSchedule, error) {
	p := r.GetSchedule()
	n, err := a.s.SetNodeSchedule(ctx, NodeSchedule{CenterID: p.GetAiCenterId(), IntervalHours: int64(p.GetIntervalHours()), AtOnce: int64(p.GetAtOnce()), Version: p.GetVersion()})
	return scheduleOut(n, err)
}

func scheduleOut(n NodeSchedule, err error) (*measurementv1.NodeSchedule, error) {
	if err != nil {
		return nil, err
	}
	return &measurementv1.NodeSchedule{AiCenterId: n.CenterID, IntervalHours: int32(n.IntervalHours), AtOnce: int32(n.AtOnce), Version: n.Version, UpdatedAt: stamp(n.UpdatedAt),
		UpdatedBy: n.UpdatedBy, Message: n.Message}, nil
}

func (a api) ListMeasuredNodes(ctx context.Context, r *measurementv1.ListMeasuredNodesRequest) (*measurementv1.ListMeasuredNodesResponse, error) {
	rows, next, err := a.s.MeasuredNodes(ctx, r.GetAiCenterId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &measurementv1.ListMeasuredNodesResponse{NextPageToken: next, Nodes: each(rows, func(n MeasuredNode) *measurementv1.MeasuredNode {
		return &measurementv1.MeasuredNode{Node: n.Node, MeasuredAt: stamp(n.MeasuredAt), Performance: n.Performance, RunId: n.RunID, DueAt: stamp(n.DueAt), Failures: int32(n.Failures),
			Message: n.Message, Open: n.Open}
	})}, nil
}

func answer(r Run, err error) (*measurementv1.MeasurementRun, error) {
	if err != nil {
		return nil, err
	}
	return runOut(r), nil
}

func runOut(r Run) *measurementv1.MeasurementRun {
	rep := &r.Result.Report
	out := &measurementv1.MeasurementRun{RunId: r.ID, AiCenterId: r.CenterID, Scope: measurementv1.Scope(r.Scope), Node: r.Node, State: measurementv1.RunState(r.State),
		Message: r.Message, JobId: r.JobID, ResourceSpecId: r.SpecID, ImageId: r.ImageID, RequestedBy: r.RequestedBy, CreatedAt: stamp(r.CreatedAt), EndedAt: stamp(r.EndedAt),
		Performance: r.Performance, Decision: measurementv1.Decision(r.Decision), DecidedBy: r.DecidedBy, Notes: rep.Notes, Cores: int32(rep.Cores), Processor: rep.Processor}
	for _, f := range rep.Figures {
		x := &measurementv1.Figure{IndicatorId: f.Indicator, Number: f.Number}
		if f.Device >= 0 {
			x.Part = rep.Devices[f.Device].Name
		}
		out.Figures = append(out.Figures, x)
	}
	return out
}

func settingsOut(s Settings) *measurementv1.MeasurementSettings {
	out := &measurementv1.MeasurementSettings{Policy: measurementv1.Policy(s.Policy), OnJoin: s.OnJoin, EveryDays: int32(s.EveryDays), Version: s.Version, UpdatedAt: stamp(s.UpdatedAt)}
	for _, w := range s.Weights {
		out.Weights = append(out.Weights, &measurementv1.Weight{IndicatorId: w.Indicator, Reference: w.Reference, Weight: w.Weight, PerCore: score.PerCore(w.Indicator)})
	}
	return out
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func each[T, P any](rows []T, f func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
