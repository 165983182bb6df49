package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func conflict(format string, args ...any) error {
	return connect.NewError(connect.CodeAborted, fmt.Errorf(format, args...))
}

// without removes the one item whose ID is id; fault NotFound as the server's.
func without[T any](items []T, kind, id string, of func(T) string) ([]T, error) {
	if !slices.ContainsFunc(items, func(x T) bool { return of(x) == id }) {
		return items, missing(kind, id)
	}
	return slices.DeleteFunc(items, func(x T) bool { return of(x) == id }), nil
}

func (f *fakeAPI) DeleteSpec(_ context.Context, req *registryv1.DeleteSpecRequest) (_ *registryv1.DeleteSpecResponse, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if !ended(j.GetState()) && j.GetSpec().GetTasks()[0].GetResourceSpecId() == req.GetResourceSpecId() {
			return nil, conflict("specification %s is used by waiting or running jobs", req.GetResourceSpecId())
		}
	}
	f.specs, err = without(f.specs, "specification", req.GetResourceSpecId(), (*registryv1.Spec).GetResourceSpecId)
	return &registryv1.DeleteSpecResponse{}, err
}

func (f *fakeAPI) DeleteImage(_ context.Context, req *registryv1.DeleteImageRequest) (_ *registryv1.DeleteImageResponse, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images, err = without(f.images, "image", req.GetImageId(), (*registryv1.Image).GetImageId)
	return &registryv1.DeleteImageResponse{}, err
}

func (f *fakeAPI) DeleteCenter(_ context.Context, req *registryv1.DeleteCenterRequest) (_ *registryv1.DeleteCenterResponse, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.centers {
		if m := k.GetMonitoring(); k.GetAiCenterId() == req.GetAiCenterId() && m.GetRunningTaskNum()+m.GetWaitingTaskNum() > 0 {
			return nil, conflict("center %s has %d running and %d waiting replicas; drain it and wait for them, or stop them", k.GetAiCenterId(), m.GetRunningTaskNum(), m.GetWaitingTaskNum())
		}
	}
	f.centers, err = without(f.centers, "center", req.GetAiCenterId(), (*registryv1.Center).GetAiCenterId)
	return &registryv1.DeleteCenterResponse{}, err
}

func (f *fakeAPI) ListGateways(context.Context, *adaptersv1.ListGatewaysRequest) (*adaptersv1.ListGatewaysResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &adaptersv1.ListGatewaysResponse{}
	for _, k := range f.centers {
		if k.GetAdapter() == "gateway" {
			res.Gateways = append(res.Gateways, &adaptersv1.Gateway{AiCenterId: k.GetAiCenterId(), PublicKey: "U" + k.GetAiCenterId(), Version: "v1.2.3", JoinedAt: k.GetCreatedAt(),
				LastSeenAt: k.GetLastSeenAt(), Connected: fakeNow.Sub(when(k.GetLastSeenAt())) < 10*time.Second})
		}
	}
	return res, nil
}

func (f *fakeAPI) RemoveGateway(_ context.Context, req *adaptersv1.RemoveGatewayRequest) (*adaptersv1.RemoveGatewayResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.centers {
		if k.GetAiCenterId() == req.GetAiCenterId() && k.GetAdapter() == "gateway" {
			k.Adapter, k.Status = "", registryv1.CenterStatus_CENTER_STATUS_UNAVAILABLE
			return &adaptersv1.RemoveGatewayResponse{}, nil
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("center %q has no gateway", req.GetAiCenterId()))
}

func (f *fakeAPI) WriteOffJob(_ context.Context, req *jobsv1.WriteOffJobRequest) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	gone := map[string]bool{}
	for _, k := range f.centers {
		gone[k.GetAiCenterId()] = k.GetStatus() != registryv1.CenterStatus_CENTER_STATUS_AVAILABLE
	}
	open, lost := 0, []*jobsv1.Replica{}
	for _, r := range job.GetReplicas() {
		if r.GetAiCenterId() == "" || ended(r.GetState()) || req.GetAiCenterId() != "" && r.GetAiCenterId() != req.GetAiCenterId() {
			continue
		}
		if open++; gone[r.GetAiCenterId()] {
			lost = append(lost, r)
		}
	}
	if open > 0 && len(lost) == 0 {
		return nil, connect.NewError(connect.CodeAborted, errors.New("job "+job.GetJobId()+" has open runs at centers that are heard of"))
	}
	if len(lost) > 0 {
		f.change(job, func() {
			for _, r := range lost {
				r.State, r.Reason, r.Message, r.EndedAt = jobsv1.State_STATE_FAILED, "lost", req.GetReason(), fakeTime(5*time.Minute)
				if req.GetRetry() {
					r.State, job.State = jobsv1.State_STATE_QUEUED, jobsv1.State_STATE_QUEUED
				} else {
					job.State, job.Reason = jobsv1.State_STATE_FAILED, "lost"
				}
			}
		})
	}
	return proto.CloneOf(job), nil
}
