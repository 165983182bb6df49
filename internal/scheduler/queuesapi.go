package scheduler

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

type queueHandler struct{ s *Service }

var queueOrders = map[schedulerv1.QueueSettings_Order]QueueOrder{
	schedulerv1.QueueSettings_ORDER_UNSPECIFIED: PriorityFirst,
	schedulerv1.QueueSettings_ORDER_PRIORITY:    PriorityFirst,
	schedulerv1.QueueSettings_ORDER_FAIR:        FairShares,
	schedulerv1.QueueSettings_ORDER_FIRST_COME:  FirstCome,
}

func amountsOut(q core.Quantities) map[string]string {
	out := map[string]string{}
	for name, n := range q {
		out[name] = core.FormatQuantity(name, n)
	}
	return out
}

func queueOut(q *Queue) *schedulerv1.Queue {
	return &schedulerv1.Queue{QueueId: q.ID, ParentId: q.Parent, Weight: q.Weight, Guaranteed: amountsOut(q.Guaranteed), Borrowable: amountsOut(q.Borrowable), Limit: amountsOut(q.Limit),
		Used: amountsOut(q.Used), WaitingJobs: q.Waiting, SharePpm: q.SharePPM, UpdatedAt: timestamppb.New(q.Updated)}
}

func (h queueHandler) ListQueues(ctx context.Context, _ *schedulerv1.ListQueuesRequest) (*schedulerv1.ListQueuesResponse, error) {
	qs, err := h.s.Queues(ctx)
	if err != nil {
		return nil, err
	}
	res := &schedulerv1.ListQueuesResponse{}
	for i := range qs {
		res.Queues = append(res.Queues, queueOut(&qs[i]))
	}
	return res, nil
}

func (h queueHandler) GetQueue(ctx context.Context, r *schedulerv1.GetQueueRequest) (*schedulerv1.Queue, error) {
	q, err := h.s.GetQueue(ctx, r.QueueId)
	if err != nil {
		return nil, err
	}
	return queueOut(q), nil
}

func (h queueHandler) SetQueue(ctx context.Context, r *schedulerv1.SetQueueRequest) (*schedulerv1.Queue, error) {
	if r.Queue == nil {
		return nil, fault.Fields(fault.Field{Path: "queue", Problem: "is required"})
	}
	if id := r.Queue.QueueId; id != "" && id != r.QueueId {
		return nil, fault.Fields(fault.Field{Path: "queue.queue_id", Problem: "must be the queue_id of the request, or empty"})
	}
	q, err := h.s.SetQueue(ctx, NewQueue{ID: r.QueueId, Parent: r.Queue.ParentId, Weight: r.Queue.Weight, Guaranteed: r.Queue.Guaranteed, Borrowable: r.Queue.Borrowable, Limit: r.Queue.Limit})
	if err != nil {
		return nil, err
	}
	return queueOut(q), nil
}

func (h queueHandler) DeleteQueue(ctx context.Context, r *schedulerv1.DeleteQueueRequest) (*schedulerv1.DeleteQueueResponse, error) {
	return &schedulerv1.DeleteQueueResponse{}, h.s.DeleteQueue(ctx, r.QueueId)
}

func settingsOut(s QueueSettings) *schedulerv1.QueueSettings {
	out := &schedulerv1.QueueSettings{HalfLifeSeconds: s.HalfLifeSeconds, AgeingSeconds: s.AgeingSeconds, AgeingMost: s.AgeingMost, Backfill: s.Backfill,
		PreemptPriority: s.PreemptPriority, PreemptReclaim: s.PreemptReclaim}
	for o, name := range queueOrders {
		if name == s.Order && o != schedulerv1.QueueSettings_ORDER_UNSPECIFIED {
			out.Order = o
		}
	}
	if !s.Updated.IsZero() {
		out.UpdatedAt = timestamppb.New(s.Updated)
	}
	return out
}

func (h queueHandler) GetQueueSettings(ctx context.Context, _ *schedulerv1.GetQueueSettingsRequest) (*schedulerv1.QueueSettings, error) {
	s, err := h.s.QueueSettings(ctx)
	if err != nil {
		return nil, err
	}
	return settingsOut(s), nil
}

func (h queueHandler) SetQueueSettings(ctx context.Context, r *schedulerv1.SetQueueSettingsRequest) (*schedulerv1.QueueSettings, error) {
	in := r.Settings
	if in == nil {
		return nil, fault.Fields(fault.Field{Path: "settings", Problem: "is required"})
	}
	order, ok := queueOrders[in.Order]
	if !ok {
		return nil, fault.Fields(fault.Field{Path: "settings.order", Problem: "is not one of its values"})
	}
	s, err := h.s.SetQueueSettings(ctx, QueueSettings{Order: order, HalfLifeSeconds: in.HalfLifeSeconds, AgeingSeconds: in.AgeingSeconds, AgeingMost: in.AgeingMost, Backfill: in.Backfill,
		PreemptPriority: in.PreemptPriority, PreemptReclaim: in.PreemptReclaim})
	if err != nil {
		return nil, err
	}
	return settingsOut(s), nil
}
