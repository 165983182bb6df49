package monitor

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	"yunhe.dev/yunhe/gen/yunhe/monitor/v1/monitorv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the API: MonitorService.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(monitorv1connect.NewMonitorServiceHandler(&api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a *api) QueryRange(ctx context.Context, req *monitorv1.QueryRangeRequest) (*monitorv1.QueryRangeResponse, error) {
	var c core.Check
	r := Range{Query: req.Query, Start: toTime(&c, "start", req.Start), End: toTime(&c, "end", req.End), StepSeconds: req.StepSeconds}
	if err := c.Err(); err != nil {
		return nil, err
	}
	series, err := a.s.QueryRange(ctx, r)
	if err != nil {
		return nil, err
	}
	res := &monitorv1.QueryRangeResponse{Series: make([]*monitorv1.Series, len(series))}
	for i, x := range series {
		labels := make(map[string]string, len(x.Labels)+1)
		if x.Name != "" {
			labels["__name__"] = x.Name
		}
		for _, l := range x.Labels {
			labels[l.Name] = l.Value
		}
		points := make([]*monitorv1.Point, len(x.Points))
		for j, p := range x.Points {
			points[j] = &monitorv1.Point{At: p.At.UnixMilli(), Value: p.Value}
		}
		res.Series[i] = &monitorv1.Series{Labels: labels, Points: points}
	}
	return res, nil
}

func toTime(c *core.Check, path string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if err := t.CheckValid(); err != nil {
		c.Add(path, "must be a time between the years 1970 and 9999")
		return time.Time{}
	}
	return t.AsTime()
}

func (a *api) GetFigures(ctx context.Context, req *monitorv1.GetFiguresRequest) (*monitorv1.Figures, error) {
	f, err := a.s.Figures(ctx, req.AiCenterId, req.Node)
	if err != nil {
		return nil, err
	}
	return FiguresProto(req.AiCenterId, req.Node, f), nil
}

func (a *api) ListRunFigures(ctx context.Context, req *monitorv1.ListRunFiguresRequest) (*monitorv1.ListRunFiguresResponse, error) {
	list, err := a.s.RunFigures(ctx, req.JobId, int(req.Limit))
	if err != nil {
		return nil, err
	}
	res := &monitorv1.ListRunFiguresResponse{Runs: make([]*monitorv1.RunFigures, len(list))}
	for i, f := range list {
		res.Runs[i] = &monitorv1.RunFigures{AttemptId: f.AttemptID, JobId: f.JobID, JobName: f.JobName, TaskName: f.Task, ReplicaIndex: int32(f.Replica), AiCenterId: f.CenterID,
			CpuCores: f.CPU, MemoryBytes: f.Memory, ReservedCpuCores: float64(f.Reserved[core.CPU]) / 1000, ReservedMemoryBytes: f.Reserved[core.Memory], MeasuredAt: timestamppb.New(f.At)}
	}
	return res, nil
}

// FiguresProto is f as the API gives it.
func FiguresProto(center, node string, f *Figures) *monitorv1.Figures {
	out := &monitorv1.Figures{AiCenterId: center, Node: node, CpuBusyRatio: f.CPUBusy, MemoryBusyBytes: f.MemoryBusy, Nodes: f.Nodes, AcceleratorBusyRatio: f.Accelerator,
		ClockSkewSeconds: f.ClockSkew, Refused: f.Refused}
	if !f.At.IsZero() {
		out.MeasuredAt = timestamppb.New(f.At)
	}
	for _, x := range f.Accelerators {
		out.Accelerators = append(out.Accelerators, &monitorv1.AcceleratorFigures{Index: int32(x.Index), BusyRatio: x.Busy, MemoryBusyBytes: x.MemoryBusy})
	}
	if x := &f.Storage; x.Known() {
		out.Storage = &monitorv1.StorageFigures{Reads: x.Reads, Writes: x.Writes, ReadBytes: x.Read, WrittenBytes: x.Written, LatencySeconds: x.Latency}
	}
	if x := &f.Network; x.Known() {
		out.Network = &monitorv1.NetworkFigures{ReceivedBytes: x.Received, SentBytes: x.Sent}
	}
	for _, p := range f.Paths {
		out.Paths = append(out.Paths, &monitorv1.PathFigures{Peer: p.Peer, LatencySeconds: p.Latency, JitterSeconds: p.Jitter, LossRatio: p.Loss, BandwidthBitsPerSecond: p.Bandwidth})
	}
	return out
}

// TakeMessage is [Intake.Take] of what a center sends.
func (in *Intake) TakeMessage(center string, m *adapterv1.Measurement) {
	if m == nil {
		return
	}
	x := &Measurement{}
	if m.MeasuredAt != nil {
		x.At = m.MeasuredAt.AsTime()
	}
	for _, n := range m.Nodes {
		u := NodeUse{Name: n.GetName(), CPUBusyPermille: n.GetCpuBusyPermille(), MemoryBusy: n.GetMemoryBusyBytes()}
		for _, a := range n.GetAccelerators() {
			u.Accelerators = append(u.Accelerators, AcceleratorUse{int64(a.GetIndex()), a.GetBusyPermille(), a.GetMemoryBusyBytes(), a.GetMemoryTotalBytes()})
		}
		x.Nodes = append(x.Nodes, u)
	}
	if s := m.Storage; s != nil {
		x.Storage = &StorageUse{s.Reads, s.Writes, s.ReadBytes, s.WrittenBytes, s.LatencyMicroseconds}
	}
	if n := m.Network; n != nil {
		x.Network = &NetworkUse{n.ReceivedBytes, n.SentBytes}
	}
	for _, p := range m.Paths {
		x.Paths = append(x.Paths, Path{p.GetPeer(), p.GetLatencyMicroseconds(), p.GetJitterMicroseconds(), p.GetLossPpm(), p.GetBandwidthBitsPerSecond()})
	}
	for _, r := range m.Attempts {
		x.Runs = append(x.Runs, RunUse{r.GetAttemptId(), r.GetCpuMilli(), r.GetMemoryBytes()})
	}
	in.Take(center, x)
}
