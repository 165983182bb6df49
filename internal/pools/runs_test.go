package pools_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
	"yunhe.dev/yunhe/internal/pools/agent"
)

func shared(name string, shares *jobsv1.PoolShares) *jobsv1.JobSpec {
	j := apptest.Job(name, 1)
	j.Labels = map[string]string{"project": "vision"}
	j.Tasks[0].Pool, j.Tasks[0].Network = shares, true
	return j
}

func pass(p *adapterv1.PoolPass) pool.Pass {
	return pool.Pass{Slice: p.SliceId, Addresses: p.Addresses, Host: p.Host, Ticket: p.Ticket, Key: p.TicketKey}
}

// redeem begins the tasks of a run, as what gateways start it by does.
func (r *real) redeem(at *apptest.Replica) []*agent.Task {
	r.t.Helper()
	var tasks []*agent.Task
	for _, p := range at.GetPool().GetPasses() {
		k, err := agent.Redeem(r.t.Context(), pass(p))
		must(r.t, err)
		r.t.Cleanup(k.Client.Close)
		tasks = append(tasks, k)
	}
	return tasks
}

// slicesOf returns the slices that a job ever had, the newest first.
func (r *real) slicesOf(job string) (out []*poolv1.Slice) {
	r.t.Helper()
	res, err := r.app.Admin.Pool.ListSlices(r.t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{1, 2, 3, 4}})
	must(r.t, err)
	for _, x := range res.Slices {
		if x.JobId == job {
			out = append(out, x)
		}
	}
	return out
}

// explain is what a job waits for.
func (r *real) explain(job string) []*schedulerv1.Wait {
	r.t.Helper()
	ex, err := r.app.Admin.Scheduler.ExplainJob(r.t.Context(), &schedulerv1.ExplainJobRequest{JobId: job})
	must(r.t, err)
	return ex.Waits
}

// waits awaits that a job waits in the queue with so many replicas, for this only.
func (r *real) waits(job, what string, replicas int32) {
	r.t.Helper()
	apptest.Until(r.t, "job "+job+" waits: "+what, func() bool {
		got := r.explain(job)
		return len(got) == 1 && got[0].Cause == schedulerv1.Wait_CAUSE_POOL && got[0].Message == what && got[0].Replicas == replicas
	})
}

// The run of a job goes to a center that can give it shares of the pool, gets passes
// to slices of its own once they have a place, and computes on them; they end with
// it, and its next run gets others. Others wait, and are told for what.
func TestJobs(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a)
		center := a.Join(t, apptest.Center{ID: "lends", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL}})
		a.Join(t, apptest.Center{ID: "bare", Refuse: func(*adapterv1.Attempt) string { return "it came here" }})
		b, err := built()
		must(t, err)
		native, err := exec.CommandContext(t.Context(), b.program, "add", "3").Output()
		must(t, err)

		j := shared("first", &jobsv1.PoolShares{ComputePercent: 80, MemoryMib: 64})
		j.MaxRetries = 1
		first := a.Admin.Submit(t, j)
		run := center.Of(first, 1)[0]
		tasks := r.redeem(run)
		if out, err := r.over(tasks, "add", "3").CombinedOutput(); err != nil || string(out) != string(native) || len(tasks) != 1 {
			t.Errorf("on %d tasks it computes %q, natively %q: %v", len(tasks), out, native, err)
		}
		run.Run()
		old := r.slicesOf(first)
		if len(old) != 1 || old[0].GroupId != "g" || old[0].ComputePercent != 80 {
			t.Fatalf("its slices: %v", old)
		}
		if job := a.Admin.Job(t, first); job.Spec.Tasks[0].Pool.GroupId != "g" || strings.Contains(job.String(), run.Pool.Passes[0].Ticket) {
			t.Errorf("stored: %v", job)
		}

		second := a.Admin.Submit(t, shared("second", &jobsv1.PoolShares{ComputePercent: 50, MemoryMib: 64, Cards: 1}))
		const waits = "waits for its shares of the accelerator pool: no device that is allowed has room now"
		r.waits(second, waits, 1)
		if c, err := a.Registry.GetCenter(t.Context(), "lends"); err != nil || c.Running+c.Waiting != 1 {
			t.Errorf("what waits for the pool takes room at a center: %v, %v", c, err)
		}

		run.End("exit", 1) // its program may be there still
		why, err := tasks[0].Client.Ended()
		if err != nil || !strings.Contains(why, "virtual resource released") {
			t.Errorf("the client of a run that ended is told %q, %v", why, err)
		}
		r.state(old[0].SliceId, poolv1.Slice_STATE_ENDED)
		other := center.Of(second, 1)[0]
		if other.Pool.Passes[0].SliceId == old[0].SliceId || a.Admin.Job(t, second).Replicas[0].Message != "" {
			t.Errorf("the second has %v", other.Pool)
		}
		held := r.redeem(other)
		other.Run()
		r.waits(first, waits, 1)
		if _, _, _, _, err := pass(run.Pool.Passes[0]).Redeem(t.Context()); err == nil {
			t.Error("a pass is good twice")
		}

		a.Restart() // the platform forgets nothing
		if r.slicesOf(second)[0].State != poolv1.Slice_STATE_RUNNING {
			t.Errorf("after a restart: %v", r.slicesOf(second))
		}
		other.End("completed", 0)
		again := center.Of(first, 2)[1]
		if again.Env["YUNHE_ATTEMPT"] != "2" || again.Pool.Passes[0].SliceId == old[0].SliceId {
			t.Errorf("its next run: %v", again)
		}
		anew := r.redeem(again)
		if out, err := r.over(anew, "add", "3").CombinedOutput(); err != nil || string(out) != string(native) {
			t.Errorf("the next run computes %q: %v", out, err)
		}
		held[0].Client.Close()
		again.Run()
		again.End("completed", 0)
		a.Admin.AwaitState(t, first, jobsv1.State_STATE_SUCCEEDED)
		apptest.Until(t, "all slices have ended", func() bool {
			res, err := a.Admin.Pool.ListSlices(t.Context(), &poolv1.ListSlicesRequest{})
			must(t, err)
			return len(res.Slices) == 0
		})
		if n := len(r.slicesOf(first)); n != 2 {
			t.Errorf("two runs had %d slices", n)
		}
		usage, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: first})
		must(t, err)
		slices := 0
		for _, u := range usage.Usage {
			if u.AllocationId != "" {
				if slices++; u.JobId != first || u.TaskName == "" || u.PackageMicroseconds <= 0 || u.AiCenterId != "pool/n1" {
					t.Errorf("metered: %v", u)
				}
			}
		}
		if slices != 2 {
			t.Errorf("metered %d slices: %v", slices, usage.Usage)
		}
	})
}

// One that is stopped while it waits never begins; what the pool refuses when the run
// is due fails it, with the reason; what it could never have is refused at once.
func TestJobsWithoutShares(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a)
		center := a.Join(t, apptest.Center{ID: "lends", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL}})
		x := r.request(80, 20, true)
		waits := a.Admin.Submit(t, shared("waits", &jobsv1.PoolShares{ComputePercent: 50, MemoryMib: 64}))
		r.waits(waits, "waits for its shares of the accelerator pool: no device that is allowed has room now", 1)
		_, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: waits})
		must(t, err)
		a.Admin.AwaitState(t, waits, jobsv1.State_STATE_STOPPED)
		r.state(r.slicesOf(waits)[0].SliceId, poolv1.Slice_STATE_ENDED)
		if list := r.slicesOf(waits); len(list) != 1 || list[0].Reason != "its replica does not wait any more" {
			t.Errorf("its slices: %v", list)
		}
		_, err = a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: x.SliceId})
		must(t, err)

		late := shared("late", &jobsv1.PoolShares{ComputePercent: 50, MemoryMib: 64})
		late.Tasks[0].Name, late.Tasks[0].After = "late", []*jobsv1.Dependency{{Task: "gate"}}
		late.Tasks = append(late.Tasks, apptest.Task("gate", 1))
		id := a.Admin.Submit(t, late)
		gate := center.Of(id, 1)[0]
		_, err = a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}, ComputeLimitPercent: 40}})
		must(t, err)
		apptest.Succeed(gate)
		j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED)
		if m := j.Replicas[0]; m.Reason != "pool_refused" || !strings.Contains(m.Message, "exceeds the quota of group g") {
			t.Errorf("it failed as %v", m)
		}
		for _, c := range []struct {
			shares *jobsv1.PoolShares
			says   string
		}{
			{&jobsv1.PoolShares{}, "pool.compute_percent"},
			{&jobsv1.PoolShares{ComputePercent: 10, MemoryMib: 1, GroupId: "none"}, "no group"},
			{&jobsv1.PoolShares{ComputePercent: 50, MemoryMib: 1}, "exceeds the quota of group g"},
			{&jobsv1.PoolShares{ComputePercent: 10, MemoryMib: 1, Cards: 3}, "3 cards are wanted"},
			{&jobsv1.PoolShares{ComputePercent: 10, MemoryMib: 1, Priority: 1}, "pool.priority"},
			{&jobsv1.PoolShares{ComputePercent: 10, MemoryMib: 1, SpecId: "x"}, "pool.spec_id"},
		} {
			if _, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: shared("bad", c.shares)}); err == nil || !strings.Contains(err.Error(), c.says) {
				b, _ := json.Marshal(c.shares)
				t.Errorf("%s: %v, want %q", b, err, c.says)
			}
		}
		j2 := shared("net", &jobsv1.PoolShares{ComputePercent: 10, MemoryMib: 1})
		j2.Tasks[0].Network = false
		if _, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j2}); err == nil || !strings.Contains(err.Error(), "network") {
			t.Errorf("without the network: %v", err)
		}
	})
}

// A job has cards of two nodes, and computes on both in one program.
func TestJobsCards(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a)
		r.join("n2")
		center := a.Join(t, apptest.Center{ID: "lends", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL}})
		id := a.Admin.Submit(t, shared("cards", &jobsv1.PoolShares{ComputePercent: 50, MemoryMib: 64, Cards: 2, AcrossNodes: true}))
		run := center.Of(id, 1)[0]
		tasks := r.redeem(run)
		if out, err := r.over(tasks, "cards", "5").CombinedOutput(); err != nil || !strings.Contains(string(out), "2") || len(tasks) != 2 {
			t.Errorf("on %d cards: %s, %v", len(tasks), out, err)
		}
		list := r.slicesOf(id)
		if len(list) != 2 || list[0].NodeId == list[1].NodeId {
			t.Errorf("its cards: %v", list)
		}
		run.Run()
		run.End("completed", 0)
		for _, x := range list {
			r.state(x.SliceId, poolv1.Slice_STATE_ENDED)
		}
	})
}

// A job for programs of CUDA goes to a center that can give it a slice of such a
// device, which its program computes on by a worker.
func TestJobsCUDA(t *testing.T) {
	t.Parallel()
	driver := cardstest.Build(t, "cuda")
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-o", program, "../../shim/test/cudaremote.c", "-L"+driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("the test's program: %v: %s", err, out)
	}
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a, pool.NodeConfig{Libraries: driver})
		a.Join(t, apptest.Center{ID: "old", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL}, Refuse: func(*adapterv1.Attempt) string { return "it came here" }})
		for _, c := range []struct {
			shares *jobsv1.PoolShares
			says   string
		}{
			{&jobsv1.PoolShares{Api: "metal", ComputePercent: 10, MemoryMib: 1}, "pool.api: must be opencl or cuda"},
			{&jobsv1.PoolShares{Api: "cuda", ComputePercent: 10, MemoryMib: 1, Cards: 2}, "pool.cards: must be 1 with the api cuda"},
			{&jobsv1.PoolShares{Api: "cuda", ComputePercent: 10, MemoryMib: 1, Model: "none"}, "no device of the api cuda"},
		} {
			if _, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: shared("bad", c.shares)}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: %v, want %q", c.shares, err, c.says)
			}
		}
		id := a.Admin.Submit(t, shared("cuda", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 50, MemoryMib: 37}))
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_QUEUED)
		center := a.Join(t, apptest.Center{ID: "lends", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA}})
		run := center.Of(id, 1)[0]
		if run.GetPool().GetApi() != pool.CUDA {
			t.Errorf("its center is sent %v", run.GetPool())
		}
		task := r.redeem(run)[0]
		library, err := pool.RemoteCUDA(t.TempDir())
		must(t, err)
		cmd := exec.CommandContext(t.Context(), program, "fill")
		cmd.Env = append(append(os.Environ(), pool.RemoteCUDAEnvironment(library, "", "")...), pool.Environment(0, pool.CUDA, task.At, task.ID, task.Token)...)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "filled 37, error 2\nagain 0\n" || task.API != pool.CUDA {
			t.Errorf("on a device of %s: %v: %s", task.API, err, out)
		}
		run.Run()
		run.End("completed", 0)
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		if list := r.slicesOf(id); len(list) != 1 || list[0].Api != pool.CUDA {
			t.Errorf("its slices: %v", list)
		}
	})
}

// A run that takes long to begin at its center (its image is loaded) is sent new
// passes meanwhile, as they are good for 30 to 45 s; what its center says of it stays.
func TestJobsStartLate(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		r := start(t, a)
		center := a.Join(t, apptest.Center{ID: "late", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL}})
		job := a.Admin.Submit(t, shared("late", &jobsv1.PoolShares{ComputePercent: 40, MemoryMib: 64}))
		run := center.Of(job, 1)[0]
		const says = "its image is loaded"
		center.Report(&adapterv1.Status{AttemptId: run.AttemptId, Phase: adapterv1.Phase_PHASE_PENDING, Message: says})
		center.AwaitApplied(run.AttemptId, 2)
		if j := a.Admin.Job(t, job); j.Replicas[0].Message != says || j.Replicas[0].Attempt != 1 {
			t.Errorf("it is %v", j.Replicas[0])
		}
		last := center.Last(run.AttemptId)
		if len(last.Pool.Passes) != 1 || last.Pool.Passes[0].SliceId != run.Pool.Passes[0].SliceId {
			t.Fatalf("it was sent %v after %v", last.Pool, run.Pool)
		}
		client, _, _, _, err := pass(last.Pool.Passes[0]).Redeem(t.Context())
		must(t, err)
		defer client.Close()
		run.Run()
		run.End("completed", 0)
		a.Admin.AwaitState(t, job, jobsv1.State_STATE_SUCCEEDED)
		r.state(last.Pool.Passes[0].SliceId, poolv1.Slice_STATE_ENDED)
	})
}
