package main

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
)

// fakeQueues keeps one queue and the settings.
type fakeQueues struct {
	schedulerv1connect.UnimplementedQueueServiceHandler
	queue    *schedulerv1.Queue
	settings *schedulerv1.QueueSettings
}

func (f *fakeQueues) SetQueue(_ context.Context, req *schedulerv1.SetQueueRequest) (*schedulerv1.Queue, error) {
	f.queue = proto.CloneOf(req.GetQueue())
	f.queue.QueueId, f.queue.UpdatedAt, f.queue.Used, f.queue.SharePpm, f.queue.WaitingJobs = req.GetQueueId(), fakeTime(time.Hour), map[string]string{"gpu": "5"}, 156250, 3
	return f.queue, nil
}

func (f *fakeQueues) ListQueues(context.Context, *schedulerv1.ListQueuesRequest) (*schedulerv1.ListQueuesResponse, error) {
	res := &schedulerv1.ListQueuesResponse{}
	if f.queue != nil {
		res.Queues = append(res.Queues, f.queue)
	}
	return res, nil
}

func (f *fakeQueues) GetQueue(_ context.Context, req *schedulerv1.GetQueueRequest) (*schedulerv1.Queue, error) {
	if f.queue == nil || f.queue.QueueId != req.GetQueueId() {
		return nil, missing("queue", req.GetQueueId())
	}
	return f.queue, nil
}

func (f *fakeQueues) DeleteQueue(_ context.Context, req *schedulerv1.DeleteQueueRequest) (*schedulerv1.DeleteQueueResponse, error) {
	if f.queue == nil || f.queue.QueueId != req.GetQueueId() {
		return nil, missing("queue", req.GetQueueId())
	}
	f.queue = nil
	return &schedulerv1.DeleteQueueResponse{}, nil
}

func (f *fakeQueues) GetQueueSettings(context.Context, *schedulerv1.GetQueueSettingsRequest) (*schedulerv1.QueueSettings, error) {
	if f.settings == nil {
		return &schedulerv1.QueueSettings{Order: schedulerv1.QueueSettings_ORDER_PRIORITY}, nil
	}
	return f.settings, nil
}

func (f *fakeQueues) SetQueueSettings(_ context.Context, req *schedulerv1.SetQueueSettingsRequest) (*schedulerv1.QueueSettings, error) {
	f.settings = proto.CloneOf(req.GetSettings())
	f.settings.UpdatedAt = fakeTime(time.Minute)
	return f.settings, nil
}

func (f *fakeAPI) PlanJob(_ context.Context, req *jobsv1.PlanJobRequest) (*jobsv1.PlanJobResponse, error) {
	res := &jobsv1.PlanJobResponse{ReplicasPlaced: 1, ReplicasTotal: req.GetJob().GetTasks()[0].GetReplicaNumber(), EstimateBasis: "the expected ends of what runs at the centers it can go to",
		EstimatedStart: fakeTime(-10 * time.Minute)}
	res.Decisions = []*schedulerv1.Decision{{TaskName: req.GetJob().GetTasks()[0].GetName(), AiCenterId: "bj-1", Summary: "bj-1 is the only one of 2 centers that can run it"}}
	res.Waits = []*schedulerv1.Wait{{Cause: schedulerv1.Wait_CAUSE_ROOM, Replicas: res.ReplicasTotal - 1, Message: "no center has 1 cpu free"}}
	return res, nil
}

func (f *fakeAPI) ScaleJob(_ context.Context, req *jobsv1.ScaleJobRequest) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	for _, t := range job.GetSpec().GetTasks() {
		if t.GetName() == req.GetTask() {
			t.ReplicaNumber = req.GetReplicaNumber()
		}
	}
	return job, nil
}

func (f *fakeAPI) PreemptJob(_ context.Context, req *jobsv1.PreemptJobRequest) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	if job.GetSpec().GetNoPreemption() {
		return nil, connect.NewError(connect.CodeAborted, nil)
	}
	return job, nil
}
