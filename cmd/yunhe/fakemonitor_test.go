package main

import (
	"context"
	"time"

	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	"yunhe.dev/yunhe/gen/yunhe/monitor/v1/monitorv1connect"
)

// fakeMonitor has measured two runs of one job and one of another.
type fakeMonitor struct {
	monitorv1connect.UnimplementedMonitorServiceHandler
}

func (fakeMonitor) ListRunFigures(_ context.Context, req *monitorv1.ListRunFiguresRequest) (*monitorv1.ListRunFiguresResponse, error) {
	if req.GetJobId() == "job_ghost" {
		return nil, missing("job", req.GetJobId())
	}
	res := &monitorv1.ListRunFiguresResponse{}
	for _, r := range []*monitorv1.RunFigures{
		{AttemptId: "att_2", JobId: "job_1", JobName: "digits", TaskName: "train", ReplicaIndex: 1, AiCenterId: "bj-1", CpuCores: 1.984, MemoryBytes: 700 << 20, ReservedCpuCores: 2, ReservedMemoryBytes: 1 << 30, MeasuredAt: fakeTime(4 * time.Second)},
		{AttemptId: "att_3", JobId: "job_2", JobName: "render", TaskName: "main", AiCenterId: "sh-1", CpuCores: 0.5, MemoryBytes: 3 << 30, MeasuredAt: fakeTime(12 * time.Second)},
		{AttemptId: "att_1", JobId: "job_1", JobName: "digits", TaskName: "train", AiCenterId: "bj-1", MemoryBytes: 1 << 20, ReservedCpuCores: 0.5, ReservedMemoryBytes: 1 << 30, MeasuredAt: fakeTime(4 * time.Second)},
	} {
		if (req.GetJobId() == "" || req.GetJobId() == r.GetJobId()) && len(res.Runs) < int(req.GetLimit()) {
			res.Runs = append(res.Runs, r)
		}
	}
	return res, nil
}
