package control_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

const (
	granted  = controlv1.AllocationState_ALLOCATION_STATE_GRANTED
	waiting  = controlv1.AllocationState_ALLOCATION_STATE_WAITING
	refused  = controlv1.AllocationState_ALLOCATION_STATE_REFUSED
	released = controlv1.AllocationState_ALLOCATION_STATE_RELEASED
	expired  = controlv1.AllocationState_ALLOCATION_STATE_EXPIRED
)

func apply(t testing.TB, c *apptest.Client, r *controlv1.ApplyAllocationRequest, want controlv1.AllocationState) *controlv1.Allocation {
	t.Helper()
	a, err := c.Control.ApplyAllocation(t.Context(), r)
	must(t, err)
	if a.State != want {
		t.Fatalf("applied for %v: %v, want %v", r, a, want)
	}
	return a
}

func awaitAllocation(t testing.TB, a *apptest.App, id string, want controlv1.AllocationState) *controlv1.Allocation {
	t.Helper()
	var got *controlv1.Allocation
	apptest.Until(t, fmt.Sprintf("allocation %s is %v", id, want), func() bool {
		var err error
		got, err = a.Admin.Control.GetAllocation(t.Context(), &controlv1.GetAllocationRequest{AllocationId: id})
		must(t, err)
		return got.State == want
	})
	return got
}

func small(n int64) *controlv1.ApplyAllocationRequest {
	return &controlv1.ApplyAllocationRequest{ResourceSpecId: "small", Count: n}
}

// An allocation is held, lowers what others can use, is drawn on by the jobs
// that name it, and is given back: at once, or run by run.
func TestAllocation(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 4000})
		x := apply(t, a.Admin, small(3), granted)
		if x.AiCenterId != "c1" || x.Amounts["cpu"] != "3" || held(t, a, "c1") != 3 {
			t.Fatalf("granted %v, held %d", x, held(t, a, "c1"))
		}
		later := apply(t, a.Admin, small(2), waiting)
		if later.Reason == "" {
			t.Error("nobody says why it waits")
		}
		no := small(5)
		if r := apply(t, a.Admin, no, refused); !strings.Contains(r.Reason, "fit nowhere") {
			t.Errorf("refused because %q", r.Reason)
		}
		short := small(2)
		short.NoWait = true
		apply(t, a.Admin, short, refused)
		// Others have one core left.
		free := a.Admin.Submit(t, apptest.Job("free", 2))
		f.Of(free, 1)[0].Run()
		// Its own jobs have three, whatever else is free.
		j := apptest.Job("own", 4)
		j.AllocationId = x.AllocationId
		own := a.Admin.Submit(t, j)
		runs := f.Of(own, 3)
		if runs[0].AllocationId != "" {
			t.Errorf("kept to nodes of an allocation that has none: %v", runs[0].Attempt)
		}
		for _, r := range runs {
			r.Run()
		}
		apptest.Until(t, "the allocation is used up", func() bool {
			g, err := a.Admin.Control.GetAllocation(ctx, &controlv1.GetAllocationRequest{AllocationId: x.AllocationId})
			must(t, err)
			return g.Used["cpu"] == "3"
		})
		if n := held(t, a, "c1"); n != 4 {
			t.Errorf("%d cores are held, want 4", n)
		}
		runs[0].End("completed", 0)
		fourth := f.Of(own, 4)[3]
		if n := len(f.Of(free, 1)); n != 1 {
			t.Errorf("%d replicas of others run, want 1: the core is the allocation's", n)
		}
		_, err := a.Admin.Control.ReleaseAllocation(ctx, &controlv1.ReleaseAllocationRequest{AllocationId: x.AllocationId})
		code(t, "release while in use", err, connect.CodeAborted)
		r, err := a.Admin.Control.ReleaseAllocation(ctx, &controlv1.ReleaseAllocationRequest{AllocationId: x.AllocationId, Stop: true})
		must(t, err)
		if r.State != controlv1.AllocationState_ALLOCATION_STATE_RELEASING {
			t.Errorf("released to %v", r)
		}
		for _, r := range []*apptest.Replica{runs[1], runs[2], fourth} {
			r.AwaitStop()
			r.End("stopped", 0)
		}
		awaitAllocation(t, a, x.AllocationId, released)
		awaitAllocation(t, a, later.AllocationId, granted) // there is room now
		ops, err := a.Admin.Control.ListOperations(ctx, &controlv1.ListOperationsRequest{AllocationId: x.AllocationId})
		must(t, err)
		var said []string
		for _, o := range ops.Operations {
			said = append(said, fmt.Sprint(o.Kind, o.State))
		}
		if got := strings.Join(said, " "); got != "OPERATION_KIND_RELEASEOPERATION_STATE_SUCCEEDED OPERATION_KIND_RELEASEOPERATION_STATE_FAILED OPERATION_KIND_APPLYOPERATION_STATE_SUCCEEDED" &&
			got != "OPERATION_KIND_RELEASE OPERATION_STATE_SUCCEEDED OPERATION_KIND_RELEASE OPERATION_STATE_FAILED OPERATION_KIND_APPLY OPERATION_STATE_SUCCEEDED" {
			t.Errorf("operations %s", got)
		}
		j = apptest.Job("late", 1)
		j.AllocationId = x.AllocationId
		_, err = a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: j})
		code(t, "a job of a released allocation", err, connect.CodeInvalidArgument)
	})
}

// The same application again is the same allocation; something else under its
// ID is refused; other tenants see nothing of it and cannot draw on it.
func TestAllocationRequests(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		a.Join(t, apptest.Center{ID: "c1", CPU: 8000})
		user := a.User(t, "acme", "ann", identityv1.Role_ROLE_USER)
		r := small(2)
		r.RequestId = "once"
		x := apply(t, user, r, granted)
		if y := apply(t, user, r, granted); y.AllocationId != x.AllocationId || held(t, a, "c1") != 2 {
			t.Errorf("twice: %s and %s, %d held", x.AllocationId, y.AllocationId, held(t, a, "c1"))
		}
		other := proto.CloneOf(r)
		other.Count = 3
		_, err := user.Control.ApplyAllocation(ctx, other)
		code(t, "another application under the same ID", err, connect.CodeAborted)
		bob := a.User(t, "evil", "bob", identityv1.Role_ROLE_USER)
		_, err = bob.Control.GetAllocation(ctx, &controlv1.GetAllocationRequest{AllocationId: x.AllocationId})
		code(t, "another tenant", err, connect.CodeNotFound)
		_, err = bob.Control.ReleaseAllocation(ctx, &controlv1.ReleaseAllocationRequest{AllocationId: x.AllocationId})
		code(t, "another tenant", err, connect.CodeNotFound)
		_, err = bob.Control.GetOperation(ctx, &controlv1.GetOperationRequest{OperationId: x.OperationId})
		code(t, "another tenant", err, connect.CodeNotFound)
		list, err := bob.Control.ListAllocations(ctx, &controlv1.ListAllocationsRequest{})
		must(t, err)
		ops, err := bob.Control.ListOperations(ctx, &controlv1.ListOperationsRequest{})
		must(t, err)
		if len(list.Allocations)+len(ops.Operations) > 0 {
			t.Errorf("another tenant sees %v %v", list, ops)
		}
		j := apptest.Job("steal", 1)
		j.AllocationId = x.AllocationId
		for _, c := range []*apptest.Client{bob, a.Admin} {
			_, err = c.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: j})
			code(t, "another tenant's job", err, connect.CodeInvalidArgument)
		}
		_, err = user.Control.ApplyAllocation(ctx, &controlv1.ApplyAllocationRequest{AiCenterId: "c1", Nodes: []string{"n1"}})
		code(t, "named nodes", err, connect.CodePermissionDenied)
		_, err = user.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: "c1"})
		code(t, "isolate", err, connect.CodePermissionDenied)
		_, err = user.Control.ApplyAllocation(ctx, &controlv1.ApplyAllocationRequest{ResourceSpecId: "none", Count: -1, Amounts: map[string]string{"cpu": "x"}, AiCenterId: "nowhere", EndAt: timestamppb.New(time.Unix(1, 0)),
			PolicyWeights: map[string]int32{"none": 1}})
		for _, field := range []string{"resource_spec_id", "count", "amounts.cpu", "ai_center_id", "end_at", "policy_weights"} {
			if err == nil || !strings.Contains(problems(err), field) {
				t.Errorf("%v does not name %s", err, field)
			}
		}
	})
}

// Up while there is room, down to what is in use, below that only when told.
func TestAdjust(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 4000})
		x := apply(t, a.Admin, small(2), granted)
		adjust := func(r *controlv1.AdjustAllocationRequest) error {
			r.AllocationId = x.AllocationId
			_, err := a.Admin.Control.AdjustAllocation(ctx, r)
			return err
		}
		must(t, adjust(&controlv1.AdjustAllocationRequest{Count: 3}))
		if n := held(t, a, "c1"); n != 3 {
			t.Errorf("%d held, want 3", n)
		}
		code(t, "more than there is", adjust(&controlv1.AdjustAllocationRequest{Count: 5}), connect.CodeResourceExhausted)
		code(t, "amounts of packages", adjust(&controlv1.AdjustAllocationRequest{Amounts: map[string]string{"cpu": "1"}}), connect.CodeInvalidArgument)
		code(t, "nothing", adjust(&controlv1.AdjustAllocationRequest{}), connect.CodeInvalidArgument)
		j := apptest.Job("own", 2)
		j.AllocationId = x.AllocationId
		id := a.Admin.Submit(t, j)
		runs := f.Of(id, 2)
		code(t, "less than is in use", adjust(&controlv1.AdjustAllocationRequest{Count: 1}), connect.CodeAborted)
		must(t, adjust(&controlv1.AdjustAllocationRequest{Count: 1, BelowUse: true}))
		if n := held(t, a, "c1"); n != 2 {
			t.Errorf("%d held, want the 2 that are in use", n)
		}
		for _, r := range runs {
			r.Run()
			r.End("completed", 0)
		}
		apptest.Until(t, "what runs used is given back", func() bool { return held(t, a, "c1") == 1 })
		end := time.Now().Add(1500 * time.Millisecond)
		must(t, adjust(&controlv1.AdjustAllocationRequest{EndAt: timestamppb.New(end)}))
		awaitAllocation(t, a, x.AllocationId, expired)
		if n := held(t, a, "c1"); n != 0 || time.Now().Before(end) {
			t.Errorf("%d held after its end, %v early", n, time.Until(end))
		}
	})
}

// What starts later holds nothing before; a run that still uses it at its end
// is stopped, also when the platform was away at that moment.
func TestAllocationInTime(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 4000})
		now := time.Now()
		r := small(2)
		r.StartAt, r.EndAt = timestamppb.New(now.Add(time.Second)), timestamppb.New(now.Add(4*time.Second))
		x := apply(t, a.Admin, r, controlv1.AllocationState_ALLOCATION_STATE_SCHEDULED)
		if n := held(t, a, "c1"); n != 0 {
			t.Errorf("%d held before its start", n)
		}
		j := apptest.Job("own", 1)
		j.AllocationId = x.AllocationId
		run := f.Of(a.Admin.Submit(t, j), 1)[0] // it waited for the start
		run.Run()
		a.Stop()
		<-time.After(time.Until(now.Add(4100 * time.Millisecond))) // its end passes meanwhile
		a.Restart()
		run.AwaitStop()
		run.End("stopped", 0)
		awaitAllocation(t, a, x.AllocationId, expired)
		if n := held(t, a, "c1"); n != 0 {
			t.Errorf("%d held after its end", n)
		}
	})
}

// The whole network is one: what does not fit in one region is held in another.
func TestAcrossRegions(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		a.Join(t, apptest.Center{ID: "n1", Region: "north", CPU: 4000, Prices: map[string]int64{"small": 1}})
		a.Join(t, apptest.Center{ID: "s1", Region: "south", CPU: 4000, Prices: map[string]int64{"small": 100}})
		price := func(n int64) *controlv1.ApplyAllocationRequest {
			r := small(n)
			r.PolicyWeights = map[string]int32{"lowest-price": 1}
			return r
		}
		first := apply(t, a.Admin, price(3), granted)
		second := apply(t, a.Admin, price(3), granted)
		if first.AiCenterId != "n1" || second.AiCenterId != "s1" {
			t.Errorf("held at %s and %s, want the cheaper north first, then south", first.AiCenterId, second.AiCenterId)
		}
		in := small(2)
		in.Region = "north"
		apply(t, a.Admin, in, waiting)
		v, err := a.Admin.Control.GetResourceView(ctx, &controlv1.GetResourceViewRequest{})
		must(t, err)
		var said []string
		for _, g := range v.Regions {
			for _, k := range g.Centers {
				said = append(said, fmt.Sprint(g.Region, " ", g.Free["cpu"], "/", g.Total["cpu"], " ", k.AiCenterId, " ", k.Status, " ", k.Allocated["cpu"], " small=", k.Specs[0].Free, "@", k.Specs[0].Price))
			}
		}
		if got, want := strings.Join(said, "; "), "north 1/4 n1 available 3 small=1@1; south 1/4 s1 available 3 small=1@100"; got != want {
			t.Errorf("view %s, want %s", got, want)
		}
		v, err = a.Admin.Control.GetResourceView(ctx, &controlv1.GetResourceViewRequest{Region: "south"})
		if must(t, err); len(v.Regions) != 1 || v.Regions[0].Region != "south" {
			t.Errorf("view of the south: %v", v)
		}
	})
}

// However many apply, adjust and release at once: no more is held than there
// is, what is held is what allocations hold, and in the end nothing is.
func TestNeverOversubscribed(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		const cores, workers, turns = 16, 6, 12
		a.Join(t, apptest.Center{ID: "c1", Region: "north", CPU: cores * 1000})
		a.Join(t, apptest.Center{ID: "c2", Region: "south", CPU: cores * 1000})
		ctx, done := context.WithCancel(t.Context())
		var wg, look sync.WaitGroup
		look.Go(func() {
			for ctx.Err() == nil {
				for _, id := range []string{"c1", "c2"} {
					k, err := a.Registry.GetCenter(t.Context(), id)
					if err != nil || k.Used["cpu"] > cores*1000 {
						t.Errorf("%s: %d of %d are held, %v", id, k.Used["cpu"], cores*1000, err)
						return
					}
				}
			}
		})
		for w := range workers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(7, uint64(w)))
				var mine []string
				for range turns {
					r := small(1 + rnd.Int64N(6))
					r.NoWait = rnd.IntN(2) == 0
					x, err := a.Admin.Control.ApplyAllocation(t.Context(), r)
					if err != nil {
						t.Errorf("apply: %v", err)
						return
					}
					mine = append(mine, x.AllocationId)
					pick := mine[rnd.IntN(len(mine))]
					if rnd.IntN(2) == 0 {
						_, err = a.Admin.Control.AdjustAllocation(t.Context(), &controlv1.AdjustAllocationRequest{AllocationId: pick, Count: 1 + rnd.Int64N(6)})
					} else {
						_, err = a.Admin.Control.ReleaseAllocation(t.Context(), &controlv1.ReleaseAllocationRequest{AllocationId: pick})
					}
					if c := connect.CodeOf(err); err != nil && c != connect.CodeResourceExhausted && c != connect.CodeAborted {
						t.Errorf("change: %v", err)
					}
				}
				for _, id := range mine {
					if _, err := a.Admin.Control.ReleaseAllocation(t.Context(), &controlv1.ReleaseAllocationRequest{AllocationId: id}); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		wg.Wait()
		done()
		look.Wait()
		if n := held(t, a, "c1") + held(t, a, "c2"); n != 0 {
			t.Errorf("%d cores are held by nobody", n)
		}
	})
}
