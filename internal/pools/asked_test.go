package pools_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// asking is a center whose runs have the cards of nodes that are played.
type asking struct {
	real
	center *apptest.FakeCenter
	brief  atomic.Bool // runs end at once
}

const noRoom = "waits for its shares of the accelerator pool: no device that is allowed has room now"

// busy is that with one node, whose card a run has.
func busy(t *testing.T, a *apptest.App, cpu int64) (x *asking, one *machine, has *apptest.Replica) {
	t.Helper()
	x, one = ask(t, a, cpu), newMachine(t, a, "one", "A")
	one.lives()
	has = x.center.Of(x.wants("busy", 1, false), 1)[0]
	x.begins(has, one)
	return x, one, has
}

func ask(t *testing.T, a *apptest.App, cpu int64) *asking {
	t.Helper()
	_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	a.User(t, "others", "eve", identityv1.Role_ROLE_USER) // of another group
	_, err = a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "a", Group: &poolv1.PoolGroup{TenantIds: []string{"others"}}})
	must(t, err)
	x := &asking{real: real{t: t, app: a}}
	x.center = a.Join(t, apptest.Center{ID: "lends", CPU: cpu, Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA}, Play: func(r *apptest.Replica) {
		if x.brief.Load() {
			apptest.Succeed(r)
		}
	}})
	return x
}

// wants submits a job whose replicas want a card each.
func (x *asking) wants(name string, replicas int32, gang bool) string {
	j := shared(name, &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
	j.Tasks[0].ReplicaNumber, j.Gang = replicas, gang
	return x.app.Admin.Submit(x.t, j)
}

// begins has the run of a replica begin on its slice.
func (x *asking) begins(run *apptest.Replica, m *machine) {
	m.runs(run.Pool.GetPasses()...)
	run.Run()
}

// holds awaits how many replicas hold room at the center.
func (x *asking) holds(n int64) {
	x.t.Helper()
	c, err := x.app.Registry.GetCenter(x.t.Context(), "lends")
	if must(x.t, err); c.Running+c.Waiting != n {
		x.t.Errorf("%d replicas hold room at the center, want %d", c.Running+c.Waiting, n)
	}
}

// queue is which jobs' slices wait in the pool, in its order.
func (x *asking) queue() (jobs []string) {
	x.t.Helper()
	res, err := x.app.Admin.Pool.ListSlices(x.t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_WAITING}, PageSize: 1000})
	must(x.t, err)
	slices.SortFunc(res.Slices, func(a, b *poolv1.Slice) int { return int(a.Position - b.Position) })
	for _, s := range res.Slices {
		jobs = append(jobs, s.JobId)
	}
	return jobs
}

// What waits for the pool holds no room at a center. It has its turn there, also when its
// card came while no center had room, and after a restart of the platform.
func TestJobsAsk(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x, one, busy := busy(t, a, 2000)
		var waiting []string
		for i := range 4 {
			waiting = append(waiting, x.wants(fmt.Sprintf("waits-%d", i), 1, false))
			x.waits(waiting[i], noRoom, 1)
		}
		if got := x.queue(); !slices.Equal(got, waiting) {
			t.Errorf("in the pool's queue are %v, want %v", got, waiting)
		}
		x.holds(1)
		if j := a.Admin.Job(t, waiting[0]); j.State != jobsv1.State_STATE_QUEUED || j.Replicas[0].AiCenterId != "" {
			t.Errorf("what waits for the pool is %v with %v", j.State, j.Replicas)
		}
		plan, err := a.Admin.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{Job: shared("next", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 10, MemoryMib: 10})})
		if err != nil || len(plan.Waits) != 1 || plan.Waits[0].Message != noRoom || plan.EstimatedStart != nil {
			t.Errorf("what is planned waits for %v: %v", plan.GetWaits(), err)
		}
		// Others have the room meanwhile, and keep it.
		plain := x.center.Of(a.Admin.Submit(t, apptest.Job("plain", 1)), 1)[0]
		plain.Run()
		one.mu.Lock() // it says nothing meanwhile
		a.Restart()
		one.client = apptest.NewClient(a.URL(), "").Pool
		one.mu.Unlock()
		if got := x.queue(); !slices.Equal(got, waiting) {
			t.Errorf("after a restart in the pool's queue are %v, want %v", got, waiting)
		}
		more := apptest.Job("more", 1)
		more.Priority = 100
		late := a.Admin.Submit(t, more)
		one.runs()
		busy.End("completed", 0)
		has := x.center.Of(late, 1)[0] // before the card's next owner, as its priority is higher
		has.Run()
		apptest.Until(t, "the card is another's, as the first came to no room", func() bool {
			s := x.slicesOf(waiting[0])
			return s[len(s)-1].State == poolv1.Slice_STATE_ENDED && s[len(s)-1].Reason == "no center had room for its replica within 15s"
		})
		x.holds(2)
		if u, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: waiting[0]}); err != nil || len(u.Usage) > 0 {
			t.Errorf("what it did not come to is billed: %v, %v", u.GetUsage(), err)
		}
		has.End("completed", 0)
		var order []string
		for range waiting {
			var run *apptest.Replica
			apptest.Until(t, "the next has its card", func() bool {
				for _, id := range waiting {
					if !slices.Contains(order, id) && a.Admin.Job(t, id).Replicas[0].AiCenterId != "" {
						run = x.center.Of(id, 1)[0]
						order = append(order, id)
						return true
					}
				}
				return false
			})
			x.begins(run, one)
			x.holds(2)
			one.runs()
			run.End("completed", 0)
		}
		if i := slices.Index(order, waiting[0]); i > 1 {
			t.Errorf("they ran in the order %v: who had come to no room lost its turn, want it first or second of %v", order, waiting)
		}
	})
}

// The replicas of a gang have their cards together, or none: two gangs do not wait for
// each other. Those of one that ends end alone.
func TestJobsAskGang(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x := ask(t, a, 64000)
		one, two := newMachine(t, a, "one", "A"), newMachine(t, a, "two", "A")
		one.lives()
		two.lives()
		at := map[string]*machine{"one": one, "two": two}
		busy := x.center.Of(x.wants("busy", 1, false), 1)[0]
		x.begins(busy, at[busy.Pool.Passes[0].NodeId])
		gangs := []string{x.wants("first", 2, true), x.wants("second", 2, true)}
		for _, id := range gangs {
			x.waits(id, noRoom, 2)
		}
		single := x.wants("single", 1, false)
		x.waits(single, noRoom, 1) // the card that is free is kept for those before it
		x.holds(1)
		if n := len(x.queue()); n != 5 {
			t.Errorf("%d slices wait, want those of both gangs and the other", n)
		}
		at[busy.Pool.Passes[0].NodeId].runs()
		busy.End("completed", 0)
		for _, id := range gangs {
			runs := x.center.Of(id, 2)
			if a, b := runs[0].Pool.Passes[0].NodeId, runs[1].Pool.Passes[0].NodeId; a == b {
				t.Fatalf("both runs have the card of %s", a)
			}
			x.holds(2)
			for _, run := range runs {
				x.begins(run, at[run.Pool.Passes[0].NodeId])
			}
			for i, run := range runs {
				own := x.slicesOf(id)
				if live := slices.DeleteFunc(own, func(s *poolv1.Slice) bool { return s.State == poolv1.Slice_STATE_ENDED }); len(live) != 2-i {
					t.Errorf("with %d of its runs the gang has %v", 2-i, live)
				}
				at[run.Pool.Passes[0].NodeId].runs()
				run.End("completed", 0)
			}
			a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		}
		apptest.Succeed(x.center.Of(single, 1)[0])
		a.Admin.AwaitState(t, single, jobsv1.State_STATE_SUCCEEDED)
	})
}

// Of what wants alike so many wait in the pool's queue, the others in the scheduler's; who
// is paused or stopped leaves the pool's.
func TestJobsAskMany(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x, _, _ := busy(t, a, 100_000)
		never := x.wants("never", 2, true) // it keeps nobody from the card
		x.waits(never, "waits for its shares of the accelerator pool: the pool has no 2 such shares at once", 2)
		many := x.wants("many", 60, false)
		x.waits(many, noRoom, 60)
		last := x.wants("last", 10, false)
		const crowded = "waits for its shares of the accelerator pool: others of its tenant wait for such shares before it"
		apptest.Until(t, "some of the last are in the pool's queue", func() bool {
			ex := x.explain(last)
			return len(ex) == 2 && (ex[0].Message == noRoom && ex[0].Replicas == 4 && ex[1].Message == crowded && ex[1].Replicas == 6)
		})
		other := shared("other", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10, NodeId: "one"})
		x.waits(a.Admin.Submit(t, other), noRoom, 1) // what is not alike waits for itself
		if n := len(x.queue()); n != 65 {
			t.Errorf("%d slices wait in the pool", n)
		}
		_, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: many})
		must(t, err)
		x.waits(last, noRoom, 10)
		apptest.Until(t, "a job that is paused waits for no card", func() bool { return !slices.Contains(x.queue(), many) })
		_, err = a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: last})
		must(t, err)
		a.Admin.AwaitState(t, last, jobsv1.State_STATE_STOPPED)
		apptest.Until(t, "a job that is stopped waits for no card", func() bool { return len(x.queue()) == 1 })
		_, err = a.Admin.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: many})
		must(t, err)
		x.waits(many, noRoom, 60)
		x.holds(1)
		if s := x.slicesOf(last); !strings.Contains(s[0].Reason, "does not wait any more") {
			t.Errorf("ended as %v", s[0])
		}
	})
}

// What draws on an allocation asks, too, and has the room that is kept for it.
func TestJobsAskAllocation(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x, one, busy := busy(t, a, 64000)
		held, err := a.Admin.Control.ApplyAllocation(t.Context(), &controlv1.ApplyAllocationRequest{AiCenterId: "lends", ResourceSpecId: "small", Count: 1})
		must(t, err)
		apptest.Until(t, "it is held", func() bool {
			y, err := a.Admin.Control.GetAllocation(t.Context(), &controlv1.GetAllocationRequest{AllocationId: held.AllocationId})
			return err == nil && y.State == controlv1.AllocationState_ALLOCATION_STATE_GRANTED
		})
		j := shared("own", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		j.AllocationId = held.AllocationId
		id := a.Admin.Submit(t, j)
		x.waits(id, noRoom, 1)
		one.runs()
		busy.End("completed", 0)
		run := x.center.Of(id, 1)[0]
		x.begins(run, one)
		run.End("completed", 0)
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	})
}

// Runs are taken back for what has a higher priority once it has its card, not before.
func TestJobsAskPreempt(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		_, err := a.Admin.Queues.SetQueueSettings(t.Context(), &schedulerv1.SetQueueSettingsRequest{Settings: &schedulerv1.QueueSettings{PreemptPriority: true}})
		must(t, err)
		x := ask(t, a, 1000)
		one := newMachine(t, a, "one", "A")
		one.lives()
		card, err := a.Admin.Pool.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{GroupId: "g", Fixed: true, Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		must(t, err)
		plain := a.Admin.Submit(t, apptest.Job("plain", 1))
		run := x.center.Of(plain, 1)[0]
		run.Run()
		j := shared("urgent", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		j.Priority = 90
		urgent := a.Admin.Submit(t, j)
		x.waits(urgent, noRoom, 1)
		if j := a.Admin.Job(t, plain); j.Replicas[0].State != jobsv1.State_STATE_RUNNING {
			t.Errorf("for what has no card a run is taken back: %v", j.Replicas)
		}
		_, err = a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: card.SliceId})
		must(t, err)
		run.AwaitStop()
		<-time.After(17 * time.Second) // longer than what has no room is kept else
		run.End("stopped", 0)
		x.begins(x.center.Of(urgent, 1)[0], one)
		x.holds(1)
		if s := x.slicesOf(urgent); len(s) != 1 {
			t.Errorf("while runs ended for it, its card was not kept: %v", s)
		}
	})
}

// A tenant with many jobs does not have others wait until all of these had their cards.
func TestJobsAskFair(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x, one, busy := busy(t, a, 64000)
		bob := a.User(t, "beta", "bob", identityv1.Role_ROLE_USER)
		_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default", "beta"}}})
		must(t, err)
		many := x.wants("many", 120, false)
		x.await(many, 64, noRoom)
		job := shared("few", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		job.Tasks[0].ReplicaNumber = 3
		few := bob.Submit(t, job)
		x.waits(few, noRoom, 3)
		urgent := x.urgent("urgent", 5, 1, false) // one of the 64 makes place for it
		x.waits(urgent, noRoom, 1)
		if got := x.queue(); len(got) != 67 || got[0] != urgent {
			t.Errorf("in the pool's queue are %d, first %s, want it first of 67", len(got), got[0])
		}
		x.brief.Store(true)
		one.runs()
		busy.End("completed", 0)
		a.Admin.AwaitState(t, urgent, jobsv1.State_STATE_SUCCEEDED)
		last, before := a.Admin.AwaitState(t, few, jobsv1.State_STATE_SUCCEEDED).Replicas[2].PlacedAt.AsTime(), 0
		for _, r := range a.Admin.AwaitState(t, many, jobsv1.State_STATE_SUCCEEDED).Replicas { // others came in for those
			if r.PlacedAt.AsTime().Before(last) {
				before++
			}
		}
		if before < 60 || before > 70 {
			t.Errorf("of the first tenant's 120 %d went before the other's, want the 64 that waited in the pool's queue then", before)
		}
	})
}

// await awaits that so many replicas of a job wait for a reason, and others for others.
func (x *asking) await(job string, n int32, what string) {
	x.t.Helper()
	apptest.Until(x.t, fmt.Sprintf("%d replicas wait: %s", n, what), func() bool {
		for _, w := range x.explain(job) {
			if w.Message == what {
				return w.Replicas >= n-1
			}
		}
		return false
	})
}

// An elastic gang runs with the cards that there are, from its least on; its others wait for theirs.
func TestJobsAskElastic(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x := ask(t, a, 64000)
		one := newMachine(t, a, "one", "A")
		one.lives()
		j := shared("elastic", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		j.Gang, j.Elastic, j.Tasks[0].ReplicaNumber, j.Tasks[0].MinReplicas = true, true, 3, 1
		id := a.Admin.Submit(t, j)
		x.begins(x.center.Of(id, 1)[0], one)
		x.waits(id, noRoom, 2)
		x.holds(1)
		two := newMachine(t, a, "two", "A")
		two.lives()
		x.center.Of(id, 2)
		x.waits(id, noRoom, 1)
		x.holds(2)
	})
}

// Two processes that ask for the same at once have it once.
func TestAskAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A")
		var all []pool.Shares
		for i := range 10 {
			all = append(all, wish(fmt.Sprintf("job/0/%d", i), ""))
		}
		two := []*pools.Service{w.Service, w.another()}
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				if _, not, err := two[i%2].Ask(t.Context(), all); err != nil || len(not) > 0 {
					t.Errorf("asked: %v, %v", not, err)
				}
			})
		}
		work.Wait()
		list, _, err := w.List(w.ann, pools.Filter{}, 100, "")
		must(t, err)
		if len(list) != 10 {
			t.Errorf("for ten wishes there are %d slices", len(list))
		}
	})
}

// What a gang's runs have, each has for itself: it does not end with what another of the gang
// asked for and did not come for. That is not billed, and tells of no failure.
func TestAskedGang(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A", "A", "A", "A")
		gang := []pool.Shares{wish("job/0/0", "job"), wish("job/0/1", "job")}
		for i := range gang {
			gang[i].Cards = 2
		}
		waits, not, err := w.Ask(t.Context(), gang)
		if err != nil || len(waits)+len(not) > 0 {
			t.Fatalf("it waits: %v, %v, %v", waits, not, err)
		}
		gang[0].Run = "att_1"
		passes, _, err := w.Lend(t.Context(), gang[0], pool.Home{})
		must(t, err)
		if len(passes) != 2 {
			t.Fatalf("its run has %v", passes)
		}
		n.runs(passes[0].Slice, passes[1].Slice)
		w.clock.add(16 * time.Second)
		n.runs(passes[0].Slice, passes[1].Slice)
		w.round()
		for _, p := range passes {
			if x := w.slice(p.Slice); x.State != pools.Running || len(x.Cards) != 2 {
				t.Errorf("what the run has is %v: %s, beside %v", x.State, x.Reason, x.Cards)
			}
		}
		over, _, err := w.List(w.ann, pools.Filter{States: []pools.State{pools.Ended}}, 100, "")
		must(t, err)
		if len(over) != 2 {
			t.Fatalf("%d slices ended", len(over))
		}
		for _, x := range over {
			if x.Failed() || !strings.Contains(x.Reason, "no center had room for its replica within 15s") {
				t.Errorf("what nobody came for ended as %q", x.Reason)
			}
		}
	})
}

// wish is what a replica of Ann's asks for.
func wish(name, gang string) pool.Shares {
	return pool.Shares{Wish: name, Gang: gang, Job: "job", Task: "main", Tenant: "default", User: "ann", UserName: "Ann", Group: "g", Compute: 60, Memory: 10, Cards: 1}
}
