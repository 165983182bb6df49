package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

const succeeded = controlv1.OperationState_OPERATION_STATE_SUCCEEDED

func node(t testing.TB, a *apptest.App, center, name string) *registryv1.Node {
	t.Helper()
	n, err := a.Admin.Registry.GetNode(t.Context(), &registryv1.GetNodeRequest{AiCenterId: center, Name: name})
	must(t, err)
	return n
}

func steps(o *controlv1.Operation) string {
	var out []string
	for _, s := range o.Steps {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

// An isolated node takes no new work while what runs goes on; a center that
// does not answer is told later, one that forgets it is told again.
func TestIsolate(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f, b := withNode(t, a, apptest.Center{ID: "c1", CPU: 4000}, "m1")
		job, run := running(t, a, f, "m1", 0)
		apptest.Until(t, "the node of the run is known", func() bool { return a.Admin.Job(t, job).Replicas[0].Node == "m1" })
		b.dark(true)
		o, err := a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1", Node: "m1", Reason: "disk", RequestId: "r1"})
		must(t, err)
		if o.EndedAt != nil || !strings.Contains(o.Message, "dark") {
			t.Errorf("while the center is away: %v", o)
		}
		list, err := a.Admin.Control.ListNodeControls(ctx, &controlv1.ListNodeControlsRequest{})
		must(t, err)
		if len(list.Controls) != 1 || list.Controls[0].Applied || !strings.Contains(list.Controls[0].Problem, "dark") || list.Controls[0].Reason != "disk" {
			t.Errorf("controls %v", list)
		}
		a.Stop()
		b.dark(false)
		a.Restart() // another process carries it on
		if o = await(t, a, o.OperationId); o.State != succeeded {
			t.Fatalf("isolated: %v", o)
		}
		again, err := a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1", Node: "m1", Reason: "disk", RequestId: "r1"})
		if must(t, err); again.OperationId != o.OperationId {
			t.Errorf("asked again: another operation %v", again)
		}
		apptest.Until(t, "it is drained", func() bool { return node(t, a, "c1", "m1").State == registryv1.NodeState_NODE_STATE_DRAINED })
		waits := a.Admin.Submit(t, f.Pin(apptest.Job("waits", 1)))
		if r := a.Admin.Job(t, job).Replicas[0]; r.State != jobsv1.State_STATE_RUNNING {
			t.Errorf("what ran is %v", r)
		}
		run.End("completed", 0)
		a.Admin.AwaitState(t, job, jobsv1.State_STATE_SUCCEEDED)
		_, before := b.setting("m1")
		b.forget("m1")
		apptest.Until(t, "the forgotten node is isolated again", func() bool {
			s, times := b.setting("m1")
			return s.Isolated && times > before && node(t, a, "c1", "m1").State == registryv1.NodeState_NODE_STATE_DRAINED
		})
		list, err = a.Admin.Control.ListNodeControls(ctx, &controlv1.ListNodeControlsRequest{AiCenterId: "c1"})
		must(t, err)
		if len(list.Controls) != 1 || list.Controls[0].Repaired != 1 {
			t.Errorf("repaired: %v", list)
		}
		if j := a.Admin.Job(t, waits); j.State != jobsv1.State_STATE_QUEUED && j.ReplicasRunning > 0 {
			t.Errorf("it took new work: %v", j)
		}
		o, err = a.Admin.Control.RestoreResource(ctx, &controlv1.RestoreResourceRequest{AiCenterId: "c1", Node: "m1"})
		must(t, err)
		if o = await(t, a, o.OperationId); o.State != succeeded {
			t.Errorf("restored: %v", o)
		}
		f.Of(waits, 1)[0].Run()
		list, err = a.Admin.Control.ListNodeControls(ctx, &controlv1.ListNodeControlsRequest{})
		if must(t, err); len(list.Controls) != 0 {
			t.Errorf("a free node is kept: %v", list)
		}
	})
}

func TestIsolateCenter(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1"})
		o, err := a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1"})
		must(t, err)
		k, err := a.Registry.GetCenter(ctx, "c1")
		if must(t, err); o.State != succeeded || !k.Drained {
			t.Errorf("isolated: %v, %v", o, k)
		}
		waits := a.Admin.Submit(t, apptest.Job("waits", 1))
		o, err = a.Admin.Control.RestoreResource(ctx, &controlv1.RestoreResourceRequest{AiCenterId: "c1"})
		if must(t, err); o.State != succeeded {
			t.Errorf("restored: %v", o)
		}
		f.Of(waits, 1)
		// A fake center answers no SetNode, as an old driver does not.
		_, err = a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1", Node: "m1"})
		code(t, "a node that is not there", err, connect.CodeNotFound)
		must(t, reportNode(f, "m1"))
		_, err = a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1", Node: "m1"})
		code(t, "a driver that cannot", err, connect.CodeUnimplemented)
		list, err := a.Admin.Control.ListOperations(ctx, &controlv1.ListOperationsRequest{Node: "m1"})
		must(t, err)
		if len(list.Operations) != 1 || list.Operations[0].State != controlv1.OperationState_OPERATION_STATE_FAILED {
			t.Errorf("operations %v", list)
		}
	})
}

// A reclaim gives notice, stops what runs after the grace period, says what,
// and survives a restart in between; the work runs again elsewhere.
func TestReclaim(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f, _ := withNode(t, a, apptest.Center{ID: "c1"}, "m1")
		job, run := running(t, a, f, "m1", 1)
		g := a.Join(t, apptest.Center{ID: "c2"})
		o, err := a.Admin.Control.ReclaimResource(ctx, &controlv1.ReclaimResourceRequest{AiCenterId: "c1", Node: "m1", Reason: "sold", GraceSeconds: 8})
		must(t, err)
		_, err = a.Admin.Control.ReclaimResource(ctx, &controlv1.ReclaimResourceRequest{AiCenterId: "c1", Node: "m1"})
		code(t, "reclaim twice", err, connect.CodeAborted)
		apptest.Until(t, "notice is given", func() bool {
			o, err = a.Admin.Control.GetOperation(ctx, &controlv1.GetOperationRequest{OperationId: o.OperationId})
			must(t, err)
			return strings.HasPrefix(steps(o), "set notice")
		})
		if i := slices.IndexFunc(o.Steps, func(s *controlv1.OperationStep) bool { return s.Name == "notice" }); !slices.Equal(o.Steps[i].Subjects, []string{job}) || o.StopAt == nil {
			t.Errorf("notice to %v", o)
		}
		select {
		case <-run.Stopped():
			if time.Now().Before(o.StopAt.AsTime()) { // on a busy machine it is over
				t.Error("stopped before the grace period was over")
			}
		default:
		}
		a.Restart()
		run.AwaitStop()
		if early := o.StopAt.AsTime().Compare(o.UpdatedAt.AsTime()) < 0; early {
			t.Errorf("stopped early: %v", o)
		}
		run.End("stopped", 0)
		if o = await(t, a, o.OperationId); o.State != succeeded || steps(o) != "set notice stop stopped" || !slices.Equal(o.Steps[2].Subjects, []string{run.AttemptId}) {
			t.Errorf("reclaimed: %v", o)
		}
		next := g.Of(job, 1)[0]
		next.Run()
		next.End("completed", 0)
		a.Admin.AwaitState(t, job, jobsv1.State_STATE_SUCCEEDED)
		if node(t, a, "c1", "m1").State != registryv1.NodeState_NODE_STATE_DRAINED {
			t.Error("it is not isolated")
		}
		// What is not tried again has failed, and says why.
		_, err = a.Admin.Control.RestoreResource(ctx, &controlv1.RestoreResourceRequest{AiCenterId: "c1", Node: "m1"})
		must(t, err)
		job, run = running(t, a, f, "m1", 0)
		o, err = a.Admin.Control.ReclaimResource(ctx, &controlv1.ReclaimResourceRequest{AiCenterId: "c1", Node: "m1", Reason: "sold", ThenFree: true})
		must(t, err)
		run.AwaitStop()
		run.End("stopped", 0)
		if o = await(t, a, o.OperationId); o.State != succeeded || !strings.HasSuffix(steps(o), "stopped set free") {
			t.Errorf("reclaimed and freed: %v", o)
		}
		if j := a.Admin.AwaitState(t, job, jobsv1.State_STATE_FAILED); j.Reason != "reclaimed" || !strings.Contains(j.Message, "sold") {
			t.Errorf("the job says %q %q", j.Reason, j.Message)
		}
		apptest.Until(t, "it takes work again", func() bool { return node(t, a, "c1", "m1").State == registryv1.NodeState_NODE_STATE_READY })
	})
}

// A node held for an allocation runs the work of that one only.
func TestOccupy(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f, b := withNode(t, a, apptest.Center{ID: "c1", CPU: 4000, Memory: 8 << 30}, "m1")
		x := apply(t, a.Admin, &controlv1.ApplyAllocationRequest{AiCenterId: "c1", Nodes: []string{"m1"}}, granted)
		if x.Amounts["cpu"] != "4" || held(t, a, "c1") != 4 {
			t.Errorf("%v, %d held", x, held(t, a, "c1"))
		}
		apptest.Until(t, "the node is held", func() bool { s, _ := b.setting("m1"); return s.AllocationId == x.AllocationId })
		second := apply(t, a.Admin, &controlv1.ApplyAllocationRequest{AiCenterId: "c1", Nodes: []string{"m1"}}, waiting)
		if !strings.Contains(second.Reason, x.AllocationId) {
			t.Errorf("waits because %q", second.Reason)
		}
		j := apptest.Job("own", 1)
		j.AllocationId = x.AllocationId
		if r := f.Of(a.Admin.Submit(t, j), 1)[0]; r.AllocationId != x.AllocationId {
			t.Errorf("sent without its allocation: %v", r.Attempt)
		}
		_, err := a.Admin.Control.AdjustAllocation(ctx, &controlv1.AdjustAllocationRequest{AllocationId: x.AllocationId, Count: 1})
		code(t, "adjust nodes", err, connect.CodeInvalidArgument)
		_, err = a.Admin.Control.ReleaseAllocation(ctx, &controlv1.ReleaseAllocationRequest{AllocationId: x.AllocationId, Stop: true})
		must(t, err)
		r := f.Await(1)[0]
		r.AwaitStop()
		r.End("stopped", 0)
		awaitAllocation(t, a, second.AllocationId, granted)
		apptest.Until(t, "the next one holds it", func() bool { s, _ := b.setting("m1"); return s.AllocationId == second.AllocationId })
	})
}

func TestWatchOperations(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	f, b := withNode(t, a, apptest.Center{ID: "c1"}, "m1")
	_ = f
	b.dark(true)
	o, err := a.Admin.Control.IsolateResource(t.Context(), &controlv1.IsolateResourceRequest{AiCenterId: "c1", Node: "m1"})
	must(t, err)
	st, err := a.Admin.Control.WatchOperations(t.Context(), &controlv1.WatchOperationsRequest{OperationId: o.OperationId})
	must(t, err)
	var last *controlv1.Operation
	for st.Receive() {
		if x := st.Msg().GetOperation(); x != nil {
			if last = x; last.EndedAt == nil {
				b.dark(false)
			}
		}
	}
	if must(t, st.Err()); last.GetState() != succeeded {
		t.Errorf("ended with %v", last)
	}
	list, err := a.Admin.Control.ListOperations(t.Context(), &controlv1.ListOperationsRequest{AiCenterId: "c1"})
	must(t, err)
	if got := fmt.Sprint(len(list.Operations), list.Operations[len(list.Operations)-1].GetKind()); got != "2 OPERATION_KIND_JOIN" {
		t.Errorf("operations of the center: %s", got)
	}
}
