package pools_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// urgent is a job whose replicas want a card each.
func (x *asking) urgent(name string, priority, replicas int32, gang bool) string {
	j := shared(name, &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
	j.Tasks[0].ReplicaNumber, j.Gang, j.Priority = replicas, gang, priority
	return x.app.Admin.Submit(x.t, j)
}

func preempting(t *testing.T, a *apptest.App) {
	t.Helper()
	_, err := a.Admin.Queues.SetQueueSettings(t.Context(), &schedulerv1.SetQueueSettingsRequest{Settings: &schedulerv1.QueueSettings{PreemptPriority: true}})
	must(t, err)
}

// stopping are which of these runs are asked to stop.
func stopping(runs ...*apptest.Replica) (out []int) {
	for i, r := range runs {
		select {
		case <-r.Stopped():
			out = append(out, i)
		default:
		}
	}
	return out
}

// What has a higher priority has cards of runs with a lower one, where there is room for it:
// of as few as do, and none that say no_preemption. These have theirs again in their
// turn, without a retry.
func TestJobsYield(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x := ask(t, a, 64000)
		one := newMachine(t, a, "one", "A", "A", "A")
		one.lives()
		keeps := shared("keeps", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		keeps.Priority, keeps.NoPreemption = -10, true
		var runs []*apptest.Replica
		for _, id := range []string{a.Admin.Submit(t, keeps), x.urgent("low", 0, 1, false), x.urgent("high", 80, 1, false)} {
			runs = append(runs, x.center.Of(id, 1)[0])
			one.runs(passes(runs)...)
			runs[len(runs)-1].Run()
		}
		preempting(t, a)
		urgent := x.urgent("urgent", 0, 1, false)
		x.waits(urgent, noRoom, 1)
		equal := x.urgent("equal", 0, 1, false)
		x.waits(equal, noRoom, 1)
		if got := stopping(runs...); len(got) > 0 {
			t.Fatalf("runs %v are taken back", got)
		}
		priority := int32(70)
		_, err := a.Admin.Jobs.UpdateJob(t.Context(), &jobsv1.UpdateJobRequest{JobId: urgent, Priority: &priority})
		must(t, err)
		runs[1].AwaitStop()
		if got := stopping(runs...); !slices.Equal(got, []int{1}) {
			t.Errorf("runs %v are taken back, want that of the lowest priority that may be", got)
		}
		if got := x.queue(); !slices.Equal(got, []string{urgent, equal}) {
			t.Errorf("in the pool's queue are %v", got)
		}
		one.mu.Lock() // it says nothing meanwhile
		a.Restart()   // which forgets nothing, and takes no more
		one.client = apptest.NewClient(a.URL(), "").Pool
		one.mu.Unlock()
		x.waits(urgent, noRoom, 1)
		if got := stopping(runs...); !slices.Equal(got, []int{1}) {
			t.Errorf("after a restart runs %v are taken back", got)
		}
		low := runs[1].JobId
		one.runs(passes([]*apptest.Replica{runs[0], runs[2]})...)
		runs[1].End("stopped", 0)
		runs[1] = x.center.Of(urgent, 1)[0]
		one.runs(passes(runs)...)
		runs[1].Run()
		x.waits(low, noRoom, 1)
		if r := a.Admin.Job(t, low).Replicas[0]; r.Reason != "preempted" || !strings.Contains(r.Message, noRoom) && !strings.Contains(r.Message, "preempted for job "+urgent) {
			t.Errorf("the run that was taken back is %v", r)
		}
		if got := x.queue(); !slices.Equal(got, []string{low, equal}) {
			t.Errorf("in the pool's queue are %v, want what was taken back first, which is older", got)
		}
		// One for which there is none to take takes none.
		x.waits(x.urgent("late", 60, 1, false), noRoom, 1)
		if got := stopping(runs...); len(got) > 0 {
			t.Errorf("runs %v are taken back in vain", got)
		}
	})
}

func passes(runs []*apptest.Replica) (out []*adapterv1.PoolPass) {
	for _, r := range runs {
		out = append(out, r.Pool.GetPasses()...)
	}
	return out
}

// A gang has the cards of as many runs as it needs, or none; of another gang all are taken
// back, with what that has without cards, too.
func TestJobsYieldGang(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x := ask(t, a, 64000)
		preempting(t, a)
		one := newMachine(t, a, "one", "A", "A", "A")
		one.lives()
		single := x.center.Of(x.urgent("single", 20, 1, false), 1)
		gang := x.center.Of(x.urgent("gang", 10, 2, true), 2)
		all := slices.Concat(single, gang)
		one.runs(passes(all)...)
		for _, r := range all {
			r.Run()
		}
		x.waits(x.urgent("too many", 15, 3, true), noRoom, 3) // one of them would wait for ever
		if got := stopping(all...); len(got) > 0 {
			t.Fatalf("runs %v are taken back in vain", got)
		}
		urgent := x.urgent("urgent", 16, 2, true)
		for _, r := range gang {
			r.AwaitStop()
		}
		if got := stopping(single...); len(got) > 0 {
			t.Error("the run with the higher priority is taken back, too")
		}
		one.runs(passes(single)...)
		for _, r := range gang {
			r.End("stopped", 0)
		}
		now := x.center.Of(urgent, 2)
		one.runs(passes(slices.Concat(single, now))...)
		for _, r := range now {
			r.Run()
		}
		x.holds(3)
	})
}

// Of gangs whose shares are local, and each of which has what the other lacks, the later one begins
// anew; with none that waits for something else.
func TestJobsTangled(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}, MaxPriority: 1}})
		must(t, err)
		local := []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA, adapterv1.Feature_FEATURE_POOL_LOCAL}
		at, nodes, held := map[string]*apptest.FakeCenter{}, map[string]*machine{}, map[string]string{}
		for _, id := range []string{"one", "two", "three"} {
			nodes[id] = newMachine(t, a, id, "A", "A")
			nodes[id].lives()
			at[id] = a.Join(t, apptest.Center{ID: "at-" + id, Features: local, PoolNodes: []string{id}})
			for range 2 {
				x, err := a.Admin.Pool.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{GroupId: "g", Fixed: true, Api: "cuda", ComputePercent: 100, MemoryMib: 10, NodeId: id})
				must(t, err)
				held[id] = x.SliceId
			}
		}
		// Each wants a card at two nodes; at which it is first is in the priorities.
		gang := func(name string, on map[string]int32) string {
			j := shared(name, &jobsv1.PoolShares{})
			one := j.Tasks[0]
			j.Tasks, j.Gang = nil, true
			for id, priority := range on {
				task := proto.CloneOf(one)
				task.Name, task.Constraints = id, &jobsv1.Constraints{Centers: []string{"at-" + id}}
				task.Pool = &jobsv1.PoolShares{Api: "cuda", Local: true, ComputePercent: 100, MemoryMib: 10, Priority: priority, GroupId: "g"}
				j.Tasks = append(j.Tasks, task)
			}
			id := a.Admin.Submit(t, j)
			a.Admin.Await(t, id, "its runs wait", func(j *jobsv1.Job) bool {
				return len(j.Replicas) == len(on) && !slices.ContainsFunc(j.Replicas, func(r *jobsv1.Replica) bool { return r.Message != noRoom })
			})
			return id
		}
		early := gang("early", map[string]int32{"one": 1, "two": 0})
		late := gang("late", map[string]int32{"one": 0, "two": 1})
		apart := gang("apart", map[string]int32{"one": 0, "three": 0})
		for id := range nodes { // one card each is free now
			_, err := a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: held[id]})
			must(t, err)
		}
		has := at["one"].Of(early, 1)[0]
		theirs := at["two"].Of(late, 1)[0]
		other := at["three"].Of(apart, 1)[0]
		nodes["one"].runs(has.Pool.GetPasses()...)
		nodes["two"].runs(theirs.Pool.GetPasses()...)
		nodes["three"].runs(other.Pool.GetPasses()...)
		for _, r := range []*apptest.Replica{has, theirs, other} {
			r.Run()
		}
		theirs.AwaitStop()
		nodes["two"].runs()
		theirs.End("stopped", 0)
		both := at["two"].Of(early, 1)[0]
		nodes["two"].runs(both.Pool.GetPasses()...)
		both.Run()
		if got := stopping(has, other, both); len(got) > 0 {
			t.Errorf("runs %v are taken back, too", got)
		}
		if r := a.Admin.Job(t, late).Replicas; slices.ContainsFunc(r, func(r *jobsv1.Replica) bool { return r.State == jobsv1.State_STATE_RUNNING }) {
			t.Errorf("of the later one run %v", r)
		}
		nodes["one"].runs()
		has.End("completed", 0)
		nodes["two"].runs()
		both.End("completed", 0)
		at["two"].Of(late, 1)[0].Run()
	})
}

// What is taken back does, none of it in vain, and what would do is found.
func TestYield(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for seed := range uint64(50) {
			w.yields(rand.New(rand.NewPCG(seed, 5)), fmt.Sprint(seed))
		}
	})
}

// yields has a pool full of runs, and one more that wants to be there.
func (w *world) yields(random *rand.Rand, seed string) {
	w.t.Helper()
	group := pools.Group{ID: "g" + seed, MaxPriority: 1}
	if random.IntN(3) == 0 {
		group.ComputeLimit = 200
	}
	for i := range 1 + random.IntN(3) {
		id := fmt.Sprintf("n%s-%d", seed, i)
		w.node(id, slices.Repeat([]string{"A"}, 1+random.IntN(3))...)
		group.Members = append(group.Members, id)
	}
	w.group(group)
	of := func(name string) pool.Shares {
		x := wish(name, "")
		x.Group, x.Job, x.Compute, x.Memory = group.ID, name, 10*(1+random.Int64N(10)), 100*(1+random.Int64N(10))
		x.Weighted = random.IntN(5) == 0
		return x
	}
	var claim pool.Claim
	var kept []string // that cannot be taken back
	for i := range 12 {
		x := of(fmt.Sprintf("%s-%d", seed, i))
		x.Wish, x.Run, x.Priority = "", x.Job+".1", random.Int64N(2)
		if x.Cards = 1 + random.Int64N(2); random.IntN(4) == 0 {
			x.Anti = "apart"
		}
		passes, _, err := w.Lend(w.t.Context(), x, pool.Home{})
		if err != nil || len(passes) == 0 {
			must(w.t, w.RunEnded(w.t.Context(), x.Run))
			continue
		}
		if random.IntN(4) == 0 || x.Priority > 0 {
			kept = append(kept, x.Run)
			continue
		}
		claim.From = append(claim.From, pool.Yield{Runs: []string{x.Run}, Lost: random.Int64N(100)})
	}
	x := of("claims-" + seed)
	x.Wish = x.Job + "/0/0"
	if x.Cards = 1 + random.Int64N(2); random.IntN(4) == 0 {
		x.Anti = "apart"
	}
	waits, not, err := w.Ask(w.t.Context(), []pool.Shares{x})
	must(w.t, err)
	if len(waits)+len(not) == 0 { // it has a place, or is refused
		must(w.t, w.RunEnded(w.t.Context(), x.Wish))
		for _, y := range claim.From {
			kept = append(kept, y.Runs...)
		}
		claim.From = nil
	}
	claim.Wishes = []string{x.Wish}
	taken, err := w.Yield(w.t.Context(), []pool.Claim{claim}, nil)
	must(w.t, err)
	placed := func() bool {
		all, err := w.Placed(w.t.Context())
		must(w.t, err)
		return all[x.Wish]
	}
	runs := taken[0]
	random.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	for i, run := range runs {
		if placed() {
			w.t.Errorf("seed %s: %d of %d runs would have done", seed, i, len(runs))
		}
		must(w.t, w.RunEnded(w.t.Context(), run))
	}
	if len(runs) > 0 && !placed() {
		w.t.Errorf("seed %s: runs %v are taken back and do not do", seed, runs)
	}
	for _, y := range claim.From {
		must(w.t, w.RunEnded(w.t.Context(), y.Runs[0]))
	}
	if len(runs) == 0 && len(claim.From) > 0 && placed() {
		w.t.Errorf("seed %s: of %d runs none is taken back, and all would do", seed, len(claim.From))
	}
	kept = append(kept, x.Wish)
	for _, run := range kept {
		must(w.t, w.RunEnded(w.t.Context(), run))
	}
}

// Of a pool's queue the job's priority decides where that of the slices is the same. A replica with a
// higher one has one with a lower one wait elsewhere where as many as may wait do.
func TestAskedPriority(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", MaxPriority: 5})
		w.node("n1", "A", "A", "A")
		must(t, w.asks("holds", 100, "", 3, ""))
		first := w.ask(pools.Request{Compute: 60}) // no job's: as a job of the priority 0
		for i := range 64 {
			must(t, w.asks(fmt.Sprintf("low-%d", i), int64(-1-i%2), "", 1, ""))
		}
		must(t, w.asks("too many", -2, "", 1, "others of its tenant wait for such shares before it"))
		line := w.line()
		if len(line) != 65 || line[0] != first.ID || line[1] != "low-0" || line[2] != "low-2" || line[33] != "low-1" {
			t.Errorf("in the queue are %v", line)
		}
		// The last of the lowest makes place, with its gang.
		must(t, w.asks("high", 3, "", 1, ""))
		if got := w.line(); len(got) != 65 || got[0] != "high" || slices.Contains(got, "low-63") {
			t.Errorf("in the queue are %v, want the one with the highest priority first and 63 of the others", got)
		}
		must(t, w.asks("low-63", -2, "", 1, "others of its tenant wait for such shares before it"))
		must(t, w.asks("gang", -1, "gang", 3, ""))
		if got := w.line(); len(got) != 67 || got[34] != "gang" { // one makes place for a gang
			t.Errorf("in the queue are %v", got)
		}
		for i := range 30 {
			must(t, w.asks(fmt.Sprintf("more-%d", i), 1, "", 1, ""))
		}
		if got := w.line(); slices.Contains(got, "low-1") || !slices.Contains(got, "gang") {
			t.Errorf("in the queue are %v", got)
		}
		must(t, w.asks("one more", 1, "", 1, ""))
		if got := w.line(); slices.Contains(got, "gang") || !slices.Contains(got, "low-62") {
			t.Errorf("in the queue are %v, want none of the gang, which came last", got)
		}
		must(t, w.Prioritize(t.Context(), []string{"low-62/0/0", "is not there"}, 90))
		if got := w.line(); got[0] != "low-62" {
			t.Errorf("in the queue are %v, want that first whose priority was raised", got)
		}
	})
}

// asks has replicas of a job ask for a card each; not is why they may not.
func (w *world) asks(job string, priority int64, gang string, replicas int, not string) error {
	var all []pool.Shares
	for i := range replicas {
		x := wish(fmt.Sprintf("%s/0/%d", job, i), gang)
		x.Job, x.JobPriority = job, priority
		all = append(all, x)
	}
	w.clock.add(time.Millisecond)
	_, nots, err := w.Ask(w.t.Context(), all)
	if err == nil && nots[all[0].Wish] != not {
		err = fmt.Errorf("%s may not ask: %q, want %q", job, nots[all[0].Wish], not)
	}
	return err
}

// line is the pool's queue: jobs, or slices that are no job's.
func (w *world) line() (out []string) {
	w.t.Helper()
	list, _, err := w.List(w.ann, pools.Filter{States: []pools.State{pools.Waiting}}, 100, "")
	must(w.t, err)
	slices.SortFunc(list, func(a, b *pools.Slice) int { return int(a.Position - b.Position) })
	for i, x := range list {
		if at := w.slice(x.ID).Position; at != int64(i)+1 {
			w.t.Errorf("slice %d of the queue says by itself that it is %d", i+1, at)
		}
		out = append(out, cmp.Or(x.Job(), x.ID))
	}
	return out
}
