package standing_test

import (
	"strings"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	standingv1 "yunhe.dev/yunhe/gen/yunhe/standing/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/standing"
)

const (
	running   = jobsv1.State_STATE_RUNNING
	succeeded = jobsv1.State_STATE_SUCCEEDED
	failed    = jobsv1.State_STATE_FAILED
)

// TestLostWorkGoesElsewhere: within the grace what runs is left alone; after it
// the run is given up and started elsewhere, and what comes back late changes
// nothing.
func TestLostWorkGoesElsewhere(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		c := a.Join(t, apptest.Center{ID: "c-lost"})
		submit := func(name string, grace int64, change func(*jobsv1.JobSpec)) (string, *apptest.Replica) {
			j := apptest.Job(name, 1)
			j.LostGraceSeconds = grace
			change(j)
			id := a.Admin.Submit(t, j)
			r := c.Of(id, 1)[0]
			r.Run()
			return id, r
		}
		plain := func(*jobsv1.JobSpec) {}
		id, r := submit("plain", 0, plain)
		never, nr := submit("never", standing.Never, plain)
		long, lr := submit("long", 7200, plain)
		ruled, _ := submit("ruled", 0, func(j *jobsv1.JobSpec) {
			j.RetryRules = []*jobsv1.RetryRule{{Reasons: []string{"lost"}, MaxRetries: 0}}
		})
		there := a.Join(t, apptest.Center{ID: "c-there"}) // after they had their place
		silent := func(want standingv1.LinkState) {
			t.Helper()
			apptest.Until(t, "the link is "+want.String(), func() bool {
				if err := a.Standing.Look(ctx); err != nil {
					t.Fatal(err)
				}
				x, err := a.Admin.Standing.GetStanding(ctx, &standingv1.GetStandingRequest{AiCenterId: c.ID})
				return err == nil && x.Link == want
			})
		}
		c.Disconnect()
		silent(standingv1.LinkState_LINK_STATE_SILENT)
		must(t, a.Standing.Wait(ctx, c.ID, standing.DefaultGrace-time.Minute))
		must(t, a.Standing.Look(ctx))
		if j := a.Admin.Job(t, id); j.State != running || j.Replicas[0].Attempt != 1 {
			t.Errorf("in the grace: %v", j)
		}
		// A restart does not begin the grace anew, nor does it end it.
		a.Restart()
		there.Connect()
		apptest.Until(t, "the other center is heard of", func() bool {
			x, err := a.Admin.Standing.GetStanding(ctx, &standingv1.GetStandingRequest{AiCenterId: there.ID})
			return err == nil && time.Since(x.HeardAt.AsTime()) < 5*time.Second
		})
		must(t, a.Standing.Look(ctx))
		must(t, a.Standing.Wait(ctx, c.ID, time.Minute))
		silent(standingv1.LinkState_LINK_STATE_LOST)
		again := there.Of(id, 1)[0]
		again.Run()
		if j := a.Admin.Job(t, id); j.Replicas[0].Attempt != 2 || j.Replicas[0].AiCenterId != there.ID {
			t.Errorf("lost and run again: %v", j.Replicas)
		}
		if j := a.Admin.AwaitState(t, ruled, failed); j.Reason != "lost" || !strings.Contains(j.Message, "longer than its grace") {
			t.Errorf("a job whose rules do not run lost ones again: %v", j)
		}
		for _, open := range []string{never, long} {
			if j := a.Admin.Job(t, open); j.State != running || j.Replicas[0].Attempt != 1 {
				t.Errorf("given up in its own grace: %v", j)
			}
		}
		// It comes back: the lost run is stopped, and that it succeeded after all
		// does not count; what was not given up goes on.
		c.Connect()
		silent(standingv1.LinkState_LINK_STATE_BACK)
		r.AwaitStop()
		r.End("completed", 0)
		nr.End("completed", 0)
		lr.End("completed", 0)
		a.Admin.AwaitState(t, never, succeeded)
		a.Admin.AwaitState(t, long, succeeded)
		if j := a.Admin.Job(t, id); j.State != running || j.Replicas[0].Attempt != 2 {
			t.Errorf("after a late end of the lost run: %v", j)
		}
		again.End("completed", 0)
		a.Admin.AwaitState(t, id, succeeded)
	})
}

// TestRefusedWorkGoesElsewhere: a center that has no room for a kind of work is
// left alone by such work, and the work that it refused is run elsewhere.
func TestRefusedWorkGoesElsewhere(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		full := a.Join(t, apptest.Center{ID: "c-full", Later: true, Refuse: func(*adapterv1.Attempt) string { return "the quota is used up" }})
		id := a.Admin.Submit(t, apptest.Job("refused", 1))
		apptest.Until(t, "the refusal is remembered", func() bool {
			x, err := a.Admin.Standing.GetStanding(ctx, &standingv1.GetStandingRequest{AiCenterId: full.ID})
			return err == nil && len(x.Refusals) == 1 && x.Refusals[0].Reason == "the quota is used up" && x.Refusals[0].Until.AsTime().After(x.Refusals[0].LastAt.AsTime())
		})
		j := a.Admin.Await(t, id, "it waits again", func(j *jobsv1.Job) bool { return j.State == jobsv1.State_STATE_QUEUED })
		if j.Replicas[0].Reason != "refused" || j.ReplicasFailed != 0 {
			t.Errorf("refused for now: %v", j)
		}
		apptest.Until(t, "explain says that the center refused", func() bool { return strings.Contains(explained(t, a, id), "it refused the like 1 times") })
		there := a.Join(t, apptest.Center{ID: "c-room"})
		r := there.Of(id, 1)[0]
		if n := len(full.Of(a.Admin.Submit(t, apptest.Job("other", 1)), 0)); n != 0 {
			t.Errorf("%d runs of the like went to the center that refuses", n)
		}
		r.Run()
		r.End("completed", 0)
		if j := a.Admin.AwaitState(t, id, succeeded); j.Replicas[0].Attempt != 2 {
			t.Errorf("run elsewhere: %v", j.Replicas)
		}
	})
}

func explained(t *testing.T, a *apptest.App, id string) string {
	t.Helper()
	res, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	must(t, err)
	return res.String()
}
