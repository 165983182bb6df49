package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

func (h handler) ExplainJob(ctx context.Context, r *schedulerv1.ExplainJobRequest) (*schedulerv1.ExplainJobResponse, error) {
	ex, err := h.s.src.Explained(ctx, r.JobId)
	if err != nil {
		return nil, err
	}
	res := &schedulerv1.ExplainJobResponse{JobId: ex.JobID}
	records, err := h.s.decisions(ctx, ex.JobID)
	if err != nil {
		return nil, err
	}
	for _, p := range ex.Placed {
		d := records[p.DecisionID]
		if d == nil {
			return nil, fmt.Errorf("decision %s of %s is missing", p.DecisionID, ex.JobID)
		}
		out := DecisionProto(d)
		out.TaskIndex, out.ReplicaIndex, out.Attempt = int32(p.Task), int32(p.Replica), int32(p.Attempt)
		out.DecidedAt = timestamppb.New(p.At)
		res.Decisions = append(res.Decisions, out)
	}
	if ex.Waiting != nil {
		p, err := h.s.Preview(ctx, ex.Waiting)
		if err != nil {
			return nil, err
		}
		if ex.Paused {
			n := 0
			for _, d := range p.Decisions {
				d.Summary = "is not placed while the job is paused"
				n++
			}
			p.Waits, p.Start, p.Basis = []*schedulerv1.Wait{{Cause: schedulerv1.Wait_CAUSE_PAUSED, TaskIndex: -1, Replicas: int32(n), Message: "the job is paused"}}, time.Time{}, "the job is paused"
		}
		for _, d := range p.Decisions { // what would be chosen is not decided
			if d.AiCenterId != "" && !ex.Paused {
				d.Summary = "waits for its turn in the queue; center " + d.AiCenterId + " would be chosen now"
			}
			d.AiCenterId = ""
		}
		res.Decisions = append(res.Decisions, p.Decisions...)
		res.Waits, res.EstimateBasis = p.Waits, p.Basis
		if !p.Start.IsZero() {
			res.EstimatedStart = timestamppb.New(p.Start)
		}
	}
	for _, d := range res.Decisions {
		if int(d.TaskIndex) < len(ex.TaskNames) {
			d.TaskName = ex.TaskNames[d.TaskIndex]
		}
	}
	sort.SliceStable(res.Decisions, func(i, j int) bool {
		a, b := res.Decisions[i], res.Decisions[j]
		return a.TaskIndex < b.TaskIndex || a.TaskIndex == b.TaskIndex && a.ReplicaIndex < b.ReplicaIndex
	})
	return res, nil
}

// Preview is what would become of work now, with nothing placed.
type Preview struct {
	// Decisions about what waits, one per replica; Placed of them found a place.
	Decisions []*schedulerv1.Decision
	Placed    int
	Waits     []*schedulerv1.Wait
	Start     time.Time // when it may start; zero: nobody can say
	Basis     string    // what that rests on
}

// Preview says what a cycle would decide now about work that waits, or would
// wait if it were submitted, and what holds it back.
func (s *Service) Preview(ctx context.Context, it *Item) (*Preview, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := &Preview{}
	for _, h := range it.Held {
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: h.Cause, TaskIndex: int32(h.Task), Replicas: int32(h.Replicas), Message: h.Text})
		if h.Task >= 0 {
			out.Decisions = append(out.Decisions, &schedulerv1.Decision{TaskIndex: int32(h.Task), Summary: h.Text})
		}
	}
	if at := db.Time(it.NotBefore); it.NotBefore > 0 && at.After(s.db.Now()) {
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_TIME, TaskIndex: -1, Replicas: replicasOf(it), Message: "is not placed before " + at.UTC().Format(time.RFC3339),
			Until: timestamppb.New(at)})
		out.Start, out.Basis = at, "its time has not come; whether there is room then is not known"
	}
	if len(it.Work.Tasks) > 0 {
		if err := s.preview(ctx, snap, it, out); err != nil {
			return nil, err
		}
	} else if len(it.Held) > 0 {
		out.Basis = "what it waits for has no certain time"
	}
	return out, nil
}

// preview adds what the engine says of what waits for a place.
func (s *Service) preview(ctx context.Context, snap *registry.Snapshot, it *Item, out *Preview) error {
	set, err := s.policySet(ctx)
	if err != nil {
		return err
	}
	w, ok := fill(it, snap)
	if !ok {
		n := 0
		for _, t := range it.Work.Tasks {
			for _, i := range t.Indices {
				out.Decisions = append(out.Decisions, &schedulerv1.Decision{TaskIndex: taskIndex(t.ID), ReplicaIndex: int32(i), Summary: "its resource specification no longer exists"})
				n++
			}
		}
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_ROOM, TaskIndex: -1, Replicas: int32(n), Message: "its resource specification no longer exists"})
		out.Basis = "its resource specification no longer exists"
		return nil
	}
	res, err := s.plan(ctx, snap, []place.Work{w}, []*Item{it}, set)
	if err != nil {
		return err
	}
	add := func(task string, replica int, d *place.Decision) *schedulerv1.Decision {
		o := DecisionProto(d)
		o.TaskIndex, o.ReplicaIndex = taskIndex(task), int32(replica)
		out.Decisions = append(out.Decisions, o)
		return o
	}
	short := map[int32]*schedulerv1.Wait{}
	for _, u := range res.Unplaced {
		o := add(u.Task, u.Replica, u.Decision)
		o.AiCenterId, o.Summary = "", "waits: "+u.Reason
		i := taskIndex(u.Task)
		if short[i] == nil {
			short[i] = &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_ROOM, TaskIndex: i, Message: u.Reason}
			out.Waits = append(out.Waits, short[i])
		}
		short[i].Replicas++
	}
	for _, p := range res.Placements {
		add(p.Task, p.Replica, p.Decision).AiCenterId = p.Candidate
	}
	out.Placed = len(res.Placements)
	s.askQueue(it, out)
	return nil
}

// waitCauses are the queue's, in the API.
var waitCauses = map[queue.Cause]Cause{queue.CauseTime: schedulerv1.Wait_CAUSE_TIME, queue.CauseLimit: schedulerv1.Wait_CAUSE_QUOTA, queue.CauseRoom: schedulerv1.Wait_CAUSE_ROOM,
	queue.CauseReserved: schedulerv1.Wait_CAUSE_RESERVATION, queue.CauseKept: schedulerv1.Wait_CAUSE_RESERVATION, queue.CauseOrder: schedulerv1.Wait_CAUSE_ORDER}

// bases of an expected start, in words.
var bases = map[queue.Basis]string{
	queue.BasisTime:        "its time has not come; whether there is room then is not known",
	queue.BasisReservation: "room is kept for it: the expected ends of what runs, and what it takes then",
	queue.BasisEnds:        "the expected ends of what runs at the centers it can go to",
	queue.BasisRate:        "how many of its tenant go before it, and how fast its tenant's work started lately",
}

// askQueue adds what the queue says of work that waits: what holds it back
// where that is not room, and when it may start. In a process that does not
// schedule nobody can say.
func (s *Service) askQueue(it *Item, out *Preview) {
	l := s.getLine()
	if l == nil {
		if out.Basis == "" {
			out.Basis = "the queue is in another process; only what centers have is looked at"
		}
		return
	}
	now := db.Micros(s.db.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.jobs[it.Work.ID]
	if w == nil {
		if out.Basis == "" && out.Start.IsZero() {
			out.Basis = "it is not in the queue: others that wait are not looked at"
			if out.Placed > 0 {
				out.Start = db.Time(now)
			}
		}
		return
	}
	first := int64(0)
	for _, id := range w.works {
		x, ok := l.q.Explain(id, now)
		e := l.works[id]
		if !ok || e == nil {
			continue
		}
		if x.Start > 0 && (first == 0 || x.Start < first) {
			first, out.Start, out.Basis = x.Start, db.Time(x.Start), bases[x.Basis]
		}
		index := int32(-1)
		if len(e.Work.Tasks) == 1 {
			index = taskIndex(e.Work.Tasks[0].ID)
		}
		cause := waitCauses[x.Cause]
		had := slices.ContainsFunc(out.Waits, func(o *schedulerv1.Wait) bool {
			return o.Cause == cause && (o.TaskIndex == index || o.TaskIndex == -1) || cause == schedulerv1.Wait_CAUSE_ROOM || cause == schedulerv1.Wait_CAUSE_ORDER && o.Cause == schedulerv1.Wait_CAUSE_ROOM
		})
		if had {
			continue // said already, by the centers' own words
		}
		n := int32(0)
		for _, t := range e.Work.Tasks {
			n += int32(t.Replicas)
		}
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: cause, TaskIndex: index, Replicas: n, Message: x.Text})
	}
	if out.Basis == "" {
		out.Basis = "the expected ends of what runs are not known, and too little of its tenant started lately"
	}
}

func replicasOf(it *Item) (n int32) {
	for _, t := range it.Work.Tasks {
		n += int32(t.Replicas)
	}
	return n
}

// taskIndex of an ID made by strconv.Itoa.
func taskIndex(id string) int32 {
	n, _ := strconv.Atoi(id)
	return int32(n)
}
