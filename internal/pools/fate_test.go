package pools_test

import (
	"context"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
)

// breaks has what the machine says to its platform break off, and it says nothing more.
func (m *machine) breaks() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.still = true
	ctx, stop := context.WithTimeout(m.t.Context(), 300*time.Millisecond)
	defer stop()
	m.report.WaitMs = 5000
	for ctx.Err() == nil {
		m.report.Sequence++
		_, _ = m.client.ReportNode(ctx, m.report) // the last one breaks off
	}
	m.report.WaitMs = 0
}

// ends says that the programs of slices ended so.
func (m *machine) ends(reason string, passes ...*adapterv1.PoolPass) {
	m.t.Helper()
	m.mu.Lock()
	m.report.Ended = nil
	for _, p := range passes {
		m.report.Ended = append(m.report.Ended, &poolv1.ReportNodeRequest_Ended{SliceId: p.SliceId, Reason: reason})
	}
	m.mu.Unlock()
	m.runs()
}

// A node whose report breaks off is given nothing until it reports again, and is gone soon; that an
// earlier one of its reports breaks off says nothing.
func TestBroken(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A")
		x := w.ask(pools.Request{Compute: 10})
		n.runs(x.ID)
		wait := func() (breaks func()) {
			n.Sequence++
			r := n.Report
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, err := w.Service.Report(ctx, r, 5*time.Second); fault.KindOf(err) != fault.Canceled {
					t.Errorf("a report that broke off: %v", err)
				}
			}()
			apptest.Until(t, "it waits", func() bool { return w.Waits(n.Node) == r.Sequence })
			return func() { cancel(); <-done }
		}
		first := wait()
		second := wait()
		first()
		w.clock.add(3 * time.Second)
		w.round()
		if y := w.ask(pools.Request{Compute: 10}); y.State != pools.Assigned || w.slice(x.ID).State != pools.Running {
			t.Errorf("when another report waits: %v, and what runs %v", y.State, w.slice(x.ID).State)
		}
		second()
		y := w.ask(pools.Request{Compute: 10})
		if y.State != pools.Waiting || w.slice(x.ID).State != pools.Running {
			t.Errorf("when none waits: %v, and what runs %v", y.State, w.slice(x.ID).State)
		}
		n.report()
		if y = w.slice(y.ID); y.State != pools.Assigned {
			t.Errorf("when it has reported again: %v, %s", y.State, y.Reason)
		}
		wait()()
		w.clock.add(2 * time.Second)
		w.round()
		if y = w.slice(y.ID); y.State != pools.Waiting || w.slice(x.ID).Reason != "pool node n1 is gone" {
			t.Errorf("when it has not: %v, and what ran ended as %q", y.State, w.slice(x.ID).Reason)
		}
	})
}

// A run that fails since what lent it its cards went ends as such, and is run again without using up
// a retry, a few times if its program had them; what was taken from it by somebody's decision, and
// its own failure, is its own.
func TestJobsUnlent(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		x, machines := ask(t, a, 64000), map[string]*machine{}
		join := func(id string) *machine {
			machines[id] = newMachine(t, a, id, "A")
			machines[id].lives()
			return machines[id]
		}
		job := func(name string) string {
			return x.app.Admin.Submit(t, shared(name, &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10}))
		}
		// begun is the nth run of a job, which has its card.
		begun := func(id string, n int) (*apptest.Replica, *machine) {
			run := x.center.Of(id, n)[n-1]
			m := machines[run.Pool.Passes[0].NodeId]
			x.begins(run, m)
			return run, m
		}
		over := func(id string, n int, reason, message string) {
			t.Helper()
			res, err := a.Admin.Jobs.ListRuns(t.Context(), &jobsv1.ListRunsRequest{JobId: id})
			if must(t, err); len(res.Runs) < n || res.Runs[n-1].Reason != reason || res.Runs[n-1].Message != message {
				t.Errorf("its runs are %v, want number %d to have ended as %q: %q", res.Runs, n, reason, message)
			}
		}

		// By itself, and with what its owner released.
		one := join("one")
		own := job("own")
		run, _ := begun(own, 1)
		one.ends("its client ended the connection", run.Pool.Passes...)
		run.End("exit", 3)
		a.Admin.AwaitState(t, own, jobsv1.State_STATE_FAILED)
		over(own, 1, "exit", "")
		released := job("released")
		run, _ = begun(released, 1)
		_, err := a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: run.Pool.Passes[0].SliceId})
		must(t, err)
		run.End("exit", 1)
		a.Admin.AwaitState(t, released, jobsv1.State_STATE_FAILED)
		over(released, 1, "exit", "its shares of the accelerator pool ended: it was released")
		one.runs()

		// Nothing gets from its node to where it runs.
		far := job("far")
		run, _ = begun(far, 1)
		one.ends(pool.ClientLost, run.Pool.Passes...)
		run.End("exit", 1)
		over(far, 1, "pool_lost", "its shares of the accelerator pool ended: its client cannot be reached any more")
		run, _ = begun(far, 2)
		one.runs()
		apptest.Succeed(run)
		a.Admin.AwaitState(t, far, jobsv1.State_STATE_SUCCEEDED)

		// Its node breaks off, which the platform knows, and believes a second later.
		broken := job("broken")
		run, _ = begun(broken, 1)
		one.breaks()
		run.End("signal", 0)
		over(broken, 1, "pool_lost", "its shares of the accelerator pool ended: pool node one is gone")
		two := join("two")
		run, _ = begun(broken, 2)
		two.runs()
		apptest.Succeed(run)
		if j := a.Admin.AwaitState(t, broken, jobsv1.State_STATE_SUCCEEDED); j.Replicas[0].Attempt != 2 {
			t.Errorf("it succeeded in run %d", j.Replicas[0].Attempt)
		}

		// Its node goes before its program had the card, which it has a pass to.
		never := job("never")
		run = x.center.Of(never, 1)[0]
		run.Run()
		two.breaks()
		apptest.Until(t, "its slice waits for another place", func() bool { return len(x.queue()) == 1 })
		run.End("exit", 1)
		over(never, 1, "pool_lost", "its shares of the accelerator pool ended: their node or device went before it had them")
		three := join("three")
		run, _ = begun(never, 2)
		three.runs()
		apptest.Succeed(run)
		a.Admin.AwaitState(t, never, jobsv1.State_STATE_SUCCEEDED)

		// A program that ends nodes does so a few times.
		deadly := job("deadly")
		for n := 1; n <= 6; n++ {
			run, _ = begun(deadly, n)
			three.ends("the pool node stops", run.Pool.Passes...)
			run.End("exit", 1)
		}
		a.Admin.AwaitState(t, deadly, jobsv1.State_STATE_FAILED)
		over(deadly, 6, "pool_lost", "its shares of the accelerator pool ended: the pool node stops")

		// Who would rather have it fail says so.
		ruled := shared("ruled", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
		ruled.RetryRules = []*jobsv1.RetryRule{{Reasons: []string{"pool_lost"}}}
		id := a.Admin.Submit(t, ruled)
		run, _ = begun(id, 1)
		three.ends("the pool node stops", run.Pool.Passes...)
		run.End("exit", 1)
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED)
	})
}
