package jobs_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestPause(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"runs stand still and go on", testPauseRunning},
			{"what waits is not placed", testPauseWaiting},
			{"an attempt that begins to run", testPauseOnItsWay},
			{"what is lost is said again", testPauseLost},
			{"the last wish counts", testPauseRace},
			{"a retry waits", testPauseRetry},
			{"stopped while paused", testPauseStop},
			{"centers that cannot", testPauseLacking},
			{"who may, and what is refused", testPauseRefused},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
		}
	})
}

// pausable joins a center that suspends.
func pausable(t *testing.T, a *apptest.App, id string) *apptest.FakeCenter {
	t.Helper()
	return a.Join(t, apptest.Center{ID: id, Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_SUSPEND}})
}

func pause(t *testing.T, a *apptest.App, id string) *jobsv1.Job {
	t.Helper()
	j, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id})
	if err != nil {
		t.Fatalf("pause %s: %v", id, err)
	}
	return j
}

func resume(t *testing.T, a *apptest.App, id string) *jobsv1.Job {
	t.Helper()
	j, err := a.Admin.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: id})
	if err != nil {
		t.Fatalf("resume %s: %v", id, err)
	}
	return j
}

func testPauseRunning(t *testing.T, a *apptest.App) {
	c := pausable(t, a, "c-still")
	id := a.Admin.Submit(t, c.Pin(apptest.Job("still", 2)))
	rs := c.Of(id, 2)
	for _, r := range rs {
		r.Run()
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	if j := pause(t, a, id); !j.PauseAsked {
		t.Errorf("pausing: %v", j)
	}
	j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	if j.ReplicasPaused != 2 || j.ReplicasRunning != 0 || !j.PauseAsked || j.Replicas[0].State != jobsv1.State_STATE_PAUSED {
		t.Errorf("paused: %v", j)
	}
	if k := center(t, a, c.ID); k.Running != 2 {
		t.Errorf("the center counts %d running, want 2: they hold what they hold", k.Running)
	}
	if again := pause(t, a, id); again.Version != j.Version {
		t.Errorf("paused twice it is %v", again)
	}
	resume(t, a, id)
	j = a.Admin.Await(t, id, "all run", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 2 })
	if j.State != jobsv1.State_STATE_RUNNING || j.ReplicasPaused != 0 || j.PauseAsked {
		t.Errorf("resumed: %v", j)
	}
	if again := resume(t, a, id); again.Version != j.Version {
		t.Errorf("resumed twice it is %v", again)
	}
	pause(t, a, id)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	for _, r := range rs { // its own end comes before the wish to go on
		r.End("completed", 0)
	}
	j = a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	if j.ReplicasPaused != 0 || j.PauseAsked {
		t.Errorf("ended: %v", j)
	}
	if k := center(t, a, c.ID); k.Running != 0 {
		t.Errorf("the center counts %d running, want 0", k.Running)
	}
	if us := usage(t, a, id); len(us) != 2 || us[0].EndedAt.AsTime().Before(us[0].StartedAt.AsTime()) {
		t.Errorf("usage %v", us)
	}
	events, err := a.Admin.Identity.ListAuditEvents(t.Context(), &identityv1.ListAuditEventsRequest{Method: "yunhe.jobs.v1.JobService/PauseJob", PageSize: 1000})
	if err != nil || !slices.ContainsFunc(events.Events, func(e *identityv1.AuditEvent) bool { return e.Subject == id && e.Outcome == "OK" }) {
		t.Errorf("audit %v, %v", events, err)
	}
}

func testPauseWaiting(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-queue", CPU: 1000, Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_SUSPEND}})
	first := a.Admin.Submit(t, c.Pin(apptest.Job("first", 1)))
	r := c.Of(first, 1)[0]
	r.Run()
	second := a.Admin.Submit(t, c.Pin(apptest.Job("second", 1)))
	j := pause(t, a, second)
	if j.State != jobsv1.State_STATE_PAUSED || j.ReplicasPaused != 0 {
		t.Errorf("paused while it waits: %v", j)
	}
	ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: second})
	if err != nil || len(ex.Decisions) != 1 || !strings.Contains(ex.Decisions[0].Summary, "paused") {
		t.Errorf("explained: %v, %v", ex, err)
	}
	r.End("completed", 0)
	third := a.Admin.Submit(t, c.Pin(apptest.Job("third", 1)))
	c.Of(third, 1)[0].Run() // it goes where the paused one would have gone
	if j := a.Admin.Job(t, second); j.State != jobsv1.State_STATE_PAUSED || j.Replicas[0].AttemptId != "" {
		t.Errorf("still paused: %v", j)
	}
	resume(t, a, second)
	if j := a.Admin.Job(t, second); j.State != jobsv1.State_STATE_QUEUED {
		t.Errorf("resumed: %v", j)
	}
	c.Of(third, 1)[0].End("completed", 0)
	c.Of(second, 1)[0].Run()
	a.Admin.AwaitState(t, second, jobsv1.State_STATE_RUNNING)
}

func testPauseOnItsWay(t *testing.T, a *apptest.App) {
	c := pausable(t, a, "c-way")
	id := a.Admin.Submit(t, c.Pin(apptest.Job("way", 1)))
	r := c.Of(id, 1)[0]
	if j := pause(t, a, id); j.State != jobsv1.State_STATE_DISPATCHING || !j.PauseAsked {
		t.Errorf("pausing: %v", j)
	}
	r.Run()
	j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	if j.ReplicasPaused != 1 || j.StartedAt == nil {
		t.Errorf("paused: %v", j)
	}
}

func testPauseLost(t *testing.T, a *apptest.App) {
	c := pausable(t, a, "c-deaf")
	id := a.Admin.Submit(t, c.Pin(apptest.Job("deaf", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	c.Drop("suspend", 2)
	pause(t, a, id)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	c.Disconnect()
	resume(t, a, id) // to a center that does not hear
	c.Connect()
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	if n := c.Applied(r.AttemptId); n < 1 {
		t.Errorf("applied %d times", n)
	}
}

func testPauseRace(t *testing.T, a *apptest.App) {
	c := pausable(t, a, "c-race-pause")
	id := a.Admin.Submit(t, c.Pin(apptest.Job("race", 1)))
	c.Of(id, 1)[0].Run()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id})
			} else {
				_, err = a.Admin.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: id})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	pause(t, a, id)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	resume(t, a, id)
	j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	if j.ReplicasRunning != 1 || j.ReplicasPaused != 0 {
		t.Errorf("after all: %v", j)
	}
}

func testPauseRetry(t *testing.T, a *apptest.App) {
	c := pausable(t, a, "c-retry-pause")
	spec := c.Pin(apptest.Job("retry", 1))
	spec.MaxRetries = 1
	id := a.Admin.Submit(t, spec)
	r := c.Of(id, 1)[0]
	r.Run()
	pause(t, a, id)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	r.End("signal", 137)
	j := a.Admin.Await(t, id, "it has failed once", func(j *jobsv1.Job) bool { return j.ReplicasPaused == 0 })
	if j.State != jobsv1.State_STATE_PAUSED || j.Replicas[0].State != jobsv1.State_STATE_QUEUED {
		t.Errorf("failed while paused: %v", j)
	}
	resume(t, a, id)
	c.Of(id, 2)[1].Run()
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
}

func testPauseStop(t *testing.T, a *apptest.App) {
	c := pausable(t, a, "c-stop-pause")
	id := a.Admin.Submit(t, c.Pin(apptest.Job("stop", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	pause(t, a, id)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	j, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id})
	if err != nil || j.State != jobsv1.State_STATE_STOPPING || j.PauseAsked {
		t.Fatalf("stopping: %v, %v", j, err)
	}
	for _, f := range []func() error{
		func() error {
			_, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id})
			return err
		},
		func() error {
			_, err := a.Admin.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: id})
			return err
		},
	} {
		if err := f(); connect.CodeOf(err) != connect.CodeAborted && connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("while it stops: %v", err)
		}
	}
	r.AwaitStop()
	r.End("stopped", -1)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
	if _, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id}); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("pausing what has ended: %v", err)
	}
	// A paused job that waits has nothing to stop at any center.
	far := c.Pin(apptest.Job("far", 1))
	far.Tasks[0].Constraints.MinSecurityGrade = 5
	id = a.Admin.Submit(t, far)
	pause(t, a, id)
	if j, err = a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil || j.State != jobsv1.State_STATE_STOPPED {
		t.Errorf("stopped while it waits, paused: %v, %v", j, err)
	}
}

func testPauseLacking(t *testing.T, a *apptest.App) {
	can, cannot := pausable(t, a, "c-can"), a.Join(t, apptest.Center{ID: "c-cannot"})
	spec := apptest.Job("both", 1)
	spec.Tasks = []*jobsv1.Task{can.Pin(apptest.Job("x", 1)).Tasks[0], cannot.Pin(apptest.Job("y", 1)).Tasks[0]}
	spec.Tasks[0].Name, spec.Tasks[1].Name = "one", "two"
	id := a.Admin.Submit(t, spec)
	can.Of(id, 1)[0].Run()
	cannot.Of(id, 1)[0].Run()
	before := a.Admin.Await(t, id, "both run", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 2 })
	_, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id})
	if err == nil || !strings.Contains(err.Error(), "center c-cannot") || strings.Contains(err.Error(), "c-can,") {
		t.Errorf("refused with %v", err)
	}
	if j := a.Admin.Job(t, id); j.Version != before.Version || j.PauseAsked {
		t.Errorf("refused, it is %v", j)
	}
	cannot.Of(id, 1)[0].End("completed", 0) // now all its open runs can
	a.Admin.Await(t, id, "one has ended", func(j *jobsv1.Job) bool { return j.ReplicasSucceeded == 1 })
	pause(t, a, id)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
}

func testPauseRefused(t *testing.T, a *apptest.App) {
	other := a.User(t, "t-pause", "u-pause", identityv1.Role_ROLE_USER)
	auditor := a.User(t, "t-pause", "u-look", identityv1.Role_ROLE_AUDITOR)
	c := pausable(t, a, "c-mine")
	id := a.Admin.Submit(t, c.Pin(apptest.Job("mine", 1)))
	for _, x := range []struct {
		who  *apptest.Client
		id   string
		want connect.Code
	}{{a.Admin, "job_none", connect.CodeNotFound}, {other, id, connect.CodeNotFound}, {auditor, id, connect.CodePermissionDenied}} {
		if _, err := x.who.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: x.id}); connect.CodeOf(err) != x.want {
			t.Errorf("pause: %v, want %s", err, x.want)
		}
		if _, err := x.who.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: x.id}); connect.CodeOf(err) != x.want {
			t.Errorf("resume: %v, want %s", err, x.want)
		}
	}
	if res := a.Admin.REST(t, "POST", "/v1/jobs/"+id+"/pause", "{}"); res.Status != 200 || !strings.Contains(string(res.Body), `"pauseAsked":true`) {
		t.Errorf("over REST: %+v", res)
	}
}

// A wish outlives the platform: it is in the database, and its center is told
// again.
func TestPauseOutlivesPlatform(t *testing.T) {
	t.Parallel()
	for _, pg := range []bool{false, true} {
		t.Run(map[bool]string{false: "sqlite", true: "postgres"}[pg], func(t *testing.T) {
			t.Parallel()
			a := apptest.Start(t, apptest.Options{Postgres: pg})
			c := pausable(t, a, "c1")
			id := a.Admin.Submit(t, c.Pin(apptest.Job("long", 1)))
			c.Of(id, 1)[0].Run()
			c.Drop("suspend", 1000)
			pause(t, a, id)
			a.Restart()
			c.Drop("suspend", 0)
			a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
			a.Restart()
			if j := a.Admin.Job(t, id); j.State != jobsv1.State_STATE_PAUSED || !j.PauseAsked {
				t.Errorf("after a restart: %v", j)
			}
			resume(t, a, id)
			a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
		})
	}
}
