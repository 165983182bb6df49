package calendar_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	calendarv1 "yunhe.dev/yunhe/gen/yunhe/calendar/v1"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
)

// half is a center of 8 cores that reports one node, m1, with half of all it has,
// as a driver does.
type half struct {
	t      testing.TB
	center *apptest.FakeCenter
	base   *adapterv1.Inventory

	mu       sync.Mutex // guards the field below
	isolated bool
}

func withHalf(t testing.TB, a *apptest.App) *half {
	t.Helper()
	h := &half{t: t}
	h.center = a.Join(t, apptest.Center{ID: "c1", CPU: 8000, Other: h.answer})
	h.base = h.center.Inventory()
	return h
}

func (h *half) answer(what string, data []byte) ([]byte, error) {
	r := &adapterv1.SetNodeRequest{}
	if what != "setnode" {
		return nil, fault.New(fault.Unimplemented, "no %s", what)
	}
	if err := proto.Unmarshal(data, r); err != nil {
		return nil, err
	}
	h.mu.Lock()
	changed := h.isolated != r.Isolated
	h.isolated = r.Isolated
	h.mu.Unlock()
	if changed {
		go h.report()
	}
	return proto.Marshal(&adapterv1.SetNodeResponse{})
}

func (h *half) report() {
	h.t.Helper()
	h.mu.Lock()
	isolated := h.isolated
	h.mu.Unlock()
	inv := proto.CloneOf(h.base)
	n := &adapterv1.Node{Name: "m1", State: adapterv1.NodeState_NODE_STATE_READY, Allocatable: map[string]int64{}}
	for what, amount := range h.base.Capacity {
		if n.Allocatable[what] = amount / 2; isolated {
			n.State = adapterv1.NodeState_NODE_STATE_DRAINED
			inv.Capacity[what] -= amount / 2
		}
	}
	h.center.Declare(inv)
	if err := h.center.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: inv, Node: n}, &adapterv1.HeartbeatResponse{}); err != nil && h.t.Context().Err() == nil {
		h.t.Errorf("report of the node: %v", err)
	}
}

// isNode waits until the platform has the node in a state.
func isNode(t testing.TB, a *apptest.App, want registryv1.NodeState) {
	t.Helper()
	apptest.Until(t, "m1 is "+want.String(), func() bool {
		n, err := a.Admin.Registry.GetNode(t.Context(), &registryv1.GetNodeRequest{AiCenterId: "c1", Name: "m1"})
		must(t, err)
		return n.State == want
	})
}

const (
	ready   = registryv1.NodeState_NODE_STATE_READY
	drained = registryv1.NodeState_NODE_STATE_DRAINED
)

// waitsFor waits until a job is told that it waits for a maintenance.
func waitsFor(t testing.TB, a *apptest.App, job, id string) {
	t.Helper()
	apptest.Until(t, "it says that it waits for the maintenance", func() bool {
		x, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: job})
		must(t, err)
		return len(x.Decisions) > 0 && len(x.Decisions[0].Candidates) > 0 && strings.Contains(strings.Join(x.Decisions[0].Candidates[0].FilterReasons, " "), id)
	})
}

// The room of a node is kept free for its maintenance, once however many windows
// name it, and the rest of the center is not.
func TestMaintenanceOfNodes(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		h := withHalf(t, a)
		plan := func(from, to time.Duration, nodes ...string) (*calendarv1.Maintenance, error) {
			return a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c1", Nodes: nodes, StartAt: in(from), EndAt: in(to)})
		}
		refused := func(what, says string, nodes ...string) {
			t.Helper()
			_, err := plan(30*time.Minute, time.Hour, nodes...)
			code(t, what, err, connect.CodeInvalidArgument)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
		refused("a center without nodes", "center c1 reports no nodes", "m1")
		h.report()
		refused("no such node", `center c1 has no node "m2"`, "m1", "m2")
		refused("twice", "nodes[1]", "m1", "m1")
		refused("too many", "must be at most 256, got 257", make([]string, 257)...)
		first, err := plan(30*time.Minute, time.Hour, "m1")
		must(t, err)
		_, err = plan(45*time.Minute, 90*time.Minute, "m1") // the same room, later too
		must(t, err)
		a.Restart()
		// 4 of the 8 cores are there beside it.
		long := a.Admin.Submit(t, expected("long", 4, 3600))
		h.center.Of(long, 4)
		fifth := a.Admin.Submit(t, expected("fifth", 1, 3600))
		waitsFor(t, a, fifth, first.MaintenanceId)
		h.center.Of(a.Admin.Submit(t, expected("short", 4, 60)), 4)
		_, err = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 5, StartAt: in(50 * time.Minute), EndAt: in(80 * time.Minute)})
		code(t, "reserve the room of the node", err, connect.CodeResourceExhausted)
		reserve(t, a.Admin, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 4, StartAt: in(50 * time.Minute), EndAt: in(80 * time.Minute)})
		got, err := a.Admin.Calendar.GetMaintenance(ctx, &calendarv1.GetMaintenanceRequest{MaintenanceId: first.MaintenanceId})
		if must(t, err); len(got.Nodes) != 1 || got.Nodes[0].Name != "m1" || got.Nodes[0].Isolated || len(got.ReservationIds) != 1 {
			t.Errorf("before it begins: %v", got)
		}
		isNode(t, a, ready)
	})
}

// While maintenance is under way its nodes are isolated, across a restart, until
// the last window that names them is over; what somebody isolated stays so.
func TestMaintenanceIsolates(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		h := withHalf(t, a)
		h.report()
		job := a.Admin.Submit(t, expected("running", 2, 7200))
		runs := h.center.Of(job, 2)
		for i, r := range runs {
			r.Run()
			st := r.Status()
			st.Node = []string{"m1", "elsewhere"}[i]
			h.center.Report(st)
		}
		apptest.Until(t, "the nodes of the runs are known", func() bool {
			rs := a.Admin.Job(t, job).Replicas
			return rs[0].Node != "" && rs[1].Node != ""
		})
		first, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c1", Nodes: []string{"m1"}, EndAt: in(time.Hour), Runs: calendarv1.Maintenance_RUNS_REQUEUE})
		must(t, err)
		second, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c1", Nodes: []string{"m1"}, StartAt: in(time.Hour), EndAt: in(2 * time.Hour), DrainSeconds: 7200})
		must(t, err)
		runs[0].AwaitStop() // of the node only
		isNode(t, a, drained)
		runs[0].End("stopped", 0)
		if n := h.center.Stops(runs[1].AttemptId); n != 0 {
			t.Errorf("the run elsewhere was asked to stop %d times", n)
		}
		a.Restart()
		status := func(id string) *calendarv1.Maintenance {
			got, err := a.Admin.Calendar.GetMaintenance(ctx, &calendarv1.GetMaintenanceRequest{MaintenanceId: id})
			must(t, err)
			return got
		}
		apptest.Until(t, "it says so", func() bool { return status(first.MaintenanceId).Nodes[0].Isolated })
		cancel := func(id string) {
			t.Helper()
			_, err := a.Admin.Calendar.CancelMaintenance(ctx, &calendarv1.CancelMaintenanceRequest{MaintenanceId: id})
			must(t, err)
		}
		controls := func() []*controlv1.NodeControl {
			list, err := a.Admin.Control.ListNodeControls(ctx, &controlv1.ListNodeControlsRequest{AiCenterId: "c1"})
			must(t, err)
			return list.Controls
		}
		cancel(first.MaintenanceId) // the other still drains it
		apptest.Until(t, "it is out of use for the other", func() bool {
			list := controls()
			return len(list) == 1 && list[0].MaintenanceId == second.MaintenanceId && list[0].Applied && !list[0].Isolated
		})
		_, err = a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1", Node: "m1", Reason: "smoke"})
		must(t, err)
		cancel(second.MaintenanceId)
		apptest.Until(t, "it is isolated by hand only", func() bool {
			list := controls()
			return len(list) == 1 && list[0].MaintenanceId == "" && list[0].Isolated && list[0].Reason == "smoke" && list[0].Applied
		})
		isNode(t, a, drained)
		_, err = a.Admin.Control.RestoreResource(ctx, &controlv1.RestoreResourceRequest{AiCenterId: "c1", Node: "m1"})
		must(t, err)
		isNode(t, a, ready)
		h.center.Of(a.Admin.Submit(t, expected("again", 6, 60)), 6)
	})
}

// A center that cannot isolate nodes is not overbooked either: it is said, and
// the room of the node is kept free for as long as the center declares it.
func TestMaintenanceNotSet(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 8000})
		h := &half{t: t, center: f, base: f.Inventory()}
		h.report()
		m, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c1", Nodes: []string{"m1"}, EndAt: in(time.Hour)})
		must(t, err)
		apptest.Until(t, "it says that it cannot", func() bool {
			list, err := a.Admin.Calendar.ListMaintenance(ctx, &calendarv1.ListMaintenanceRequest{})
			must(t, err)
			n := list.Maintenance[0].Nodes[0]
			return !n.Isolated && strings.Contains(n.Problem, "cannot control nodes")
		})
		f.Of(a.Admin.Submit(t, expected("beside", 4, 60)), 4)
		waits := a.Admin.Submit(t, expected("waits", 1, 60))
		waitsFor(t, a, waits, m.MaintenanceId)
		if j := a.Admin.Job(t, waits); j.State != jobsv1.State_STATE_QUEUED {
			t.Errorf("it is %v", j.State)
		}
		_, err = a.Admin.Calendar.CancelMaintenance(ctx, &calendarv1.CancelMaintenanceRequest{MaintenanceId: m.MaintenanceId})
		must(t, err)
		f.Of(waits, 1)
	})
}
