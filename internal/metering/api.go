package metering

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the API: MeteringService and GET /v1/usage.csv.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(meteringv1connect.NewMeteringServiceHandler(&api{s}, srv.Options()...))
	srv.Raw("GET /v1/usage.csv", "metering.read", s.ServeCSV)
}

type api struct{ s *Service }

func (a *api) ListUsage(ctx context.Context, req *meteringv1.ListUsageRequest) (*meteringv1.ListUsageResponse, error) {
	size, err := core.PageSize(req.PageSize, 100)
	if err != nil {
		return nil, err
	}
	tenant, err := tenantOf(ctx, req.TenantId)
	if err != nil {
		return nil, err
	}
	var c core.Check
	f := Filter{
		TenantID: tenant, JobID: req.JobId, AICenterID: req.AiCenterId, UserName: req.UserName, AllocationID: req.AllocationId,
		EndedAfter: toTime(&c, "ended_after", req.EndedAfter), EndedBefore: toTime(&c, "ended_before", req.EndedBefore),
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	records, next, err := a.s.List(ctx, f, size, req.PageToken)
	if err != nil {
		return nil, err
	}
	res := &meteringv1.ListUsageResponse{NextPageToken: next, Usage: make([]*meteringv1.Usage, len(records))}
	for i, r := range records {
		res.Usage[i] = fromRecord(r)
	}
	return res, nil
}

func (a *api) GetJobCost(ctx context.Context, req *meteringv1.GetJobCostRequest) (*meteringv1.JobCost, error) {
	tenant, err := tenantOf(ctx, "")
	if err != nil {
		return nil, err
	}
	cost, err := a.s.JobCost(ctx, tenant, req.JobId)
	if err != nil {
		return nil, err
	}
	res := &meteringv1.JobCost{
		JobId: cost.JobID, Lines: make([]*meteringv1.CostLine, len(cost.Lines)),
		TotalMicros: cost.TotalMicros, TotalFen: cost.TotalFen, Currency: Currency,
	}
	for i, l := range cost.Lines {
		res.Lines[i] = &meteringv1.CostLine{Usage: fromRecord(l.Record), Fen: l.Fen}
	}
	return res, nil
}

func fromRecord(r Record) *meteringv1.Usage {
	out := &meteringv1.Usage{
		AttemptId: r.AttemptID, JobId: r.JobID, TenantId: r.TenantID, UserName: r.UserName,
		TaskName: r.TaskName, TaskIndex: r.TaskIndex, ReplicaIndex: r.ReplicaIndex, Attempt: r.Attempt,
		AiCenterId: r.AICenterID, ResourceSpecId: r.ResourceSpecID,
		StartedAt: timestamppb.New(r.StartedAt), EndedAt: timestamppb.New(r.EndedAt), DurationMicroseconds: r.Duration().Microseconds(),
		CpuMicroseconds: r.CPUMicros, MemoryPeakBytes: r.MemoryPeakBytes, Price: r.Price, CostMicros: r.CostMicros,
		Kind: meteringv1.Usage_KIND_RUN, AllocationId: r.AllocationID, PackageMicroseconds: r.packageMicros(),
	}
	if r.AllocationID != "" {
		out.Kind = meteringv1.Usage_KIND_HELD
	}
	return out
}

func toTime(c *core.Check, path string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if err := t.CheckValid(); err != nil {
		c.Add(path, "must be a time between the years 1 and 9999")
		return time.Time{}
	}
	return t.AsTime()
}
