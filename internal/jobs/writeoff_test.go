package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
)

func TestWriteOff(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"a center that is not heard of", testLostCenter},
			{"a gateway that was removed", testLostGateway},
			{"the run is tried again if asked", testLostRetry},
			{"a stopped job whose center is gone", testLostStopped},
			{"only the center that is named", testLostNamed},
			{"a report at the same time", testLostRace},
			{"who may, and what is refused", testLostRefused},
			{"a job ends when its last replica did", testEndedAt},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
		}
	})
}

func usage(t *testing.T, a *apptest.App, id string) []*meteringv1.Usage {
	t.Helper()
	res, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res.Usage
}

func writeOff(t *testing.T, a *apptest.App, r *jobsv1.WriteOffJobRequest) *jobsv1.Job {
	t.Helper()
	j, err := a.Admin.Jobs.WriteOffJob(t.Context(), r)
	if err != nil {
		t.Fatalf("write off %v: %v", r, err)
	}
	return j
}

func removeGateway(t *testing.T, a *apptest.App, id string) {
	t.Helper()
	if _, err := a.Admin.Adapters.RemoveGateway(t.Context(), &adaptersv1.RemoveGatewayRequest{AiCenterId: id}); err != nil {
		t.Fatal(err)
	}
}

func center(t *testing.T, a *apptest.App, id string) registry.Center {
	t.Helper()
	k, err := a.Registry.GetCenter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testLostCenter(t *testing.T, a *apptest.App) {
	c, there := a.Join(t, apptest.Center{ID: "c-lost"}), a.Join(t, apptest.Center{ID: "c-there"})
	j := apptest.Job("lost", 2)
	j.Tasks = append(j.Tasks, apptest.Task("second", 1))
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{c.ID}}
	j.Tasks[1].Constraints = &jobsv1.Constraints{Centers: []string{there.ID}}
	j.SuccessPolicy, j.FailurePolicy, j.MaxRetries = jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY, jobsv1.FailurePolicy_FAILURE_POLICY_ALL, 5
	id := a.Admin.Submit(t, j)
	rs, other := c.Of(id, 2), there.Of(id, 1)[0]
	rs[0].Run() // the other one never starts
	other.Run()
	conflict := func(when string) {
		t.Helper()
		_, err := a.Admin.Jobs.WriteOffJob(t.Context(), &jobsv1.WriteOffJobRequest{JobId: id})
		if code(err) != connect.CodeAborted || !strings.Contains(err.Error(), "c-lost, c-there") {
			t.Errorf("%s: %v, want a conflict that names both centers", when, err)
		}
	}
	conflict("its centers are there")
	drain(t, a, c.ID, true)
	conflict("its center is drained and there")
	drain(t, a, c.ID, false)

	began := time.UnixMicro(rs[0].Status().StartedAt)
	apptest.Until(t, "its center is heard of once more", func() bool { return center(t, a, c.ID).LastSeen.After(began) })
	c.Disconnect()
	apptest.Until(t, "the center is unknown", func() bool { return center(t, a, c.ID).Status == registry.Unknown })
	seen := center(t, a, c.ID).LastSeen
	before := a.Admin.Job(t, id)
	after := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id, Reason: "struck by lightning"})
	if after.State != running || after.ReplicasFailed != 2 || after.ReplicasRunning != 1 || after.Version != before.Version+1 || after.EndedAt != nil {
		t.Errorf("written off: %v", after)
	}
	for i, r := range after.Replicas[:2] {
		if r.State != failed || r.Reason != "lost" || !strings.Contains(r.Message, "struck by lightning: center c-lost was last heard of at "+seen.UTC().Format(time.RFC3339)) {
			t.Errorf("replica %d is %v", i, r)
		}
		if !r.EndedAt.AsTime().Equal(seen) {
			t.Errorf("replica %d ended at %s, want %s, when its center was last heard of", i, r.EndedAt.AsTime(), seen)
		}
	}
	us := usage(t, a, id)
	if len(us) != 1 || us[0].AttemptId != rs[0].AttemptId || !us[0].EndedAt.AsTime().Equal(seen) || us[0].DurationMicroseconds != seen.Sub(us[0].StartedAt.AsTime()).Microseconds() ||
		us[0].CostMicros != after.Replicas[0].CostMicros || us[0].DurationMicroseconds <= 0 || after.Replicas[1].CostMicros != 0 {
		t.Errorf("usage is %v, want the run that started, up to %s", us, seen)
	}
	if n := held(t, a, c.ID); n != 0 {
		t.Errorf("%d thousandths of a core are still held", n)
	}
	events, err := a.Admin.Identity.ListAuditEvents(t.Context(), &identityv1.ListAuditEventsRequest{Method: "yunhe.jobs.v1.JobService/WriteOffJob", PageSize: 1000})
	if err != nil || !slices.ContainsFunc(events.Events, func(e *identityv1.AuditEvent) bool {
		return e.Subject == id && e.Outcome == "OK" && e.UserId == "admin"
	}) {
		t.Errorf("audit: %v, %v", events, err)
	}
	// Again: that center has none left, the other one is there.
	again := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id, AiCenterId: c.ID, Reason: "again"})
	if again.Version != after.Version || again.Replicas[0].Message != after.Replicas[0].Message {
		t.Errorf("written off again: %v", again)
	}

	// It comes back: what it has still runs, and must not.
	c.Connect()
	for _, r := range rs {
		r.AwaitStop()
		c.AwaitApplied(r.AttemptId, 2)
		if !c.Last(r.AttemptId).Seen {
			t.Errorf("%s was sent to a center that may have forgotten it, to be started", r.AttemptId)
		}
	}
	if res := c.Report(rs[0].Status()); !slices.Equal(res.Unwanted, []string{rs[0].AttemptId}) || len(res.Recorded) != 0 {
		t.Errorf("a report that a lost run runs: %v, want it unwanted", res)
	}
	if res := rs[0].End("completed", 0); !slices.Equal(res.Recorded, []string{rs[0].AttemptId}) || len(res.Unwanted) != 0 {
		t.Errorf("a report that a lost run has ended: %v, want it recorded", res)
	}
	rs[1].Run()
	rs[1].End("exit", 9)
	if now := a.Admin.Job(t, id); now.Version != after.Version || now.ReplicasSucceeded != 0 || now.Replicas[1].ExitCode != 0 || len(usage(t, a, id)) != 1 || held(t, a, c.ID) != 0 {
		t.Errorf("what a center says too late changed the books: %v", now)
	}
	// All is said: it hears of them no more.
	sent := c.Applied(rs[0].AttemptId)
	c.Disconnect()
	c.Connect()
	next := a.Admin.Submit(t, c.Pin(apptest.Job("next", 1)))
	apptest.Succeed(c.Of(next, 1)[0])
	a.Admin.AwaitState(t, next, succeeded)
	if n := c.Applied(rs[0].AttemptId); n != sent {
		t.Errorf("a lost run that has ended was sent %d times after that", n-sent)
	}
	other.End("completed", 0)
	end := a.Admin.AwaitState(t, id, succeeded)
	if want := time.UnixMicro(other.Status().EndedAt); !end.EndedAt.AsTime().Equal(want) {
		t.Errorf("the job ended at %s, want %s", end.EndedAt.AsTime(), want)
	}
}

// Nobody needs to wait until a center is unknown whose gateway was removed; and
// then its last job can be deleted and so can the center.
func testLostGateway(t *testing.T, a *apptest.App) {
	for _, drained := range []bool{false, true} {
		c := a.Join(t, apptest.Center{ID: fmt.Sprintf("c-removed-%v", drained)})
		id := a.Admin.Submit(t, c.Pin(apptest.Job("removed", 2)))
		r := c.Of(id, 2)[0]
		// A clock that goes ahead: the run began after its center was last heard of.
		ahead := time.Now().Add(time.Hour).UnixMicro()
		c.Report(&adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: ahead})
		drain(t, a, c.ID, drained)
		removeGateway(t, a, c.ID)
		c.Disconnect()
		j := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id})
		if j.State != failed || j.Reason != "lost" || j.ReplicasFailed != 2 || j.CostFen != 0 || !strings.Contains(j.Message, "written off by admin") {
			t.Errorf("drained %v: written off: %v", drained, j)
		}
		if us := usage(t, a, id); len(us) != 1 || us[0].DurationMicroseconds != 0 || us[0].CostMicros != 0 {
			t.Errorf("drained %v: usage %v, want nothing billed", drained, us)
		}
		if x := j.Replicas[1]; x.StartedAt != nil || x.EndedAt.AsTime().Before(x.PlacedAt.AsTime()) || x.EndedAt.AsTime().After(time.Now()) {
			t.Errorf("drained %v: a replica that never started: %v", drained, x)
		}
		if _, err := a.Admin.Jobs.DeleteJob(t.Context(), &jobsv1.DeleteJobRequest{JobId: id}); err != nil {
			t.Errorf("drained %v: delete the job: %v", drained, err)
		}
		if err := a.Registry.DeleteCenter(t.Context(), c.ID); err != nil {
			t.Errorf("drained %v: delete the center: %v", drained, err)
		}
	}
}

func testLostRetry(t *testing.T, a *apptest.App) {
	c, second := a.Join(t, apptest.Center{ID: "c-retry-1"}), a.Join(t, apptest.Center{ID: "c-retry-2"})
	both := &jobsv1.Constraints{Centers: []string{c.ID, second.ID}}
	for _, x := range []struct {
		name  string
		tries int32
		ask   bool
		want  jobsv1.State
	}{{"asked", 1, true, queued}, {"asked, none left", 0, true, failed}, {"not asked", 1, false, failed}} {
		drain(t, a, second.ID, true)
		j := apptest.Job("retry-lost", 1)
		j.Tasks[0].Constraints, j.MaxRetries = both, x.tries
		id := a.Admin.Submit(t, j)
		r := c.Of(id, 1)[0]
		r.Run()
		c.Disconnect()
		removeGateway(t, a, c.ID)
		j2 := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id, Retry: x.ask})
		if j2.State != x.want {
			t.Errorf("%s: %v, want %s", x.name, j2, x.want)
		}
		if j2.State == queued {
			drain(t, a, second.ID, false)
			next := second.Of(id, 1)[0]
			if next.Env["YUNHE_ATTEMPT"] != "2" {
				t.Errorf("%s: it runs again as attempt %s", x.name, next.Env["YUNHE_ATTEMPT"])
			}
			apptest.Succeed(next)
			if end := a.Admin.AwaitState(t, id, succeeded); end.ReplicasSucceeded != 1 || end.ReplicasFailed != 0 || len(usage(t, a, id)) != 2 {
				t.Errorf("%s: ended as %v", x.name, end)
			}
		}
		if n := held(t, a, c.ID); n != 0 {
			t.Errorf("%s: %d thousandths of a core are still held", x.name, n)
		}
		// The next round needs the center again.
		c = a.Join(t, apptest.Center{ID: c.ID})
	}
}

// A job that was asked to stop waits for its center to say so; written off, it
// has ended, at the latest of what is known.
func testLostStopped(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-lost-stop"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("stopped", 2)))
	for _, r := range c.Of(id, 2) {
		r.Run()
	}
	c.Disconnect()
	if j, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil || j.State != stopping {
		t.Fatalf("stop: %v, %v", j, err)
	}
	removeGateway(t, a, c.ID)
	j := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id, Retry: true})
	if j.State != stopped || j.Reason != "stopped" || j.ReplicasFailed != 2 || j.EndedAt == nil ||
		j.EndedAt.AsTime().UnixMicro() != max(j.Replicas[0].EndedAt.AsTime().UnixMicro(), j.Replicas[1].EndedAt.AsTime().UnixMicro()) {
		t.Errorf("written off while stopping: %v", j)
	}
	if again := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id}); again.Version != j.Version {
		t.Errorf("again, after its end: %v", again)
	}
}

func testLostNamed(t *testing.T, a *apptest.App) {
	one, two := a.Join(t, apptest.Center{ID: "c-named-1"}), a.Join(t, apptest.Center{ID: "c-named-2"})
	j := apptest.Job("named", 1)
	j.Tasks = append(j.Tasks, apptest.Task("second", 1))
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{one.ID}}
	j.Tasks[1].Constraints = &jobsv1.Constraints{Centers: []string{two.ID}}
	j.FailurePolicy = jobsv1.FailurePolicy_FAILURE_POLICY_ALL
	id := a.Admin.Submit(t, j)
	one.Of(id, 1)[0].Run()
	two.Of(id, 1)[0].Run()
	one.Disconnect()
	two.Disconnect()
	removeGateway(t, a, one.ID)
	removeGateway(t, a, two.ID)
	if got := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id, AiCenterId: two.ID}); got.ReplicasFailed != 1 || got.Replicas[1].State != failed || got.Replicas[0].State != running {
		t.Errorf("the second center only: %v", got)
	}
	if got := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: id}); got.ReplicasFailed != 2 || got.State != failed {
		t.Errorf("what is left: %v", got)
	}
}

// Each run is written off or reported, never both, whichever comes first.
func testLostRace(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-lost-race"})
	const n = 12
	ids, rs := make([]string, n), make([]*apptest.Replica, n)
	for i := range n {
		ids[i] = a.Admin.Submit(t, c.Pin(apptest.Job("race", 1)))
		rs[i] = c.Of(ids[i], 1)[0]
		rs[i].Run()
	}
	removeGateway(t, a, c.ID)
	c.Disconnect()
	operator := a.User(t, "t-race", "u-race", identityv1.Role_ROLE_OPERATOR)
	var wg sync.WaitGroup
	for i := range n {
		end := &adapterv1.Status{AttemptId: rs[i].AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "completed", StartedAt: rs[i].Status().StartedAt, EndedAt: time.Now().UnixMicro()}
		for range 2 {
			wg.Go(func() { // as a process that has not heard of the removal does
				if _, _, err := a.Jobs.Report(t.Context(), c.ID, []*adapterv1.Status{end}); err != nil {
					t.Errorf("report: %v", err)
				}
			})
			wg.Go(func() {
				if _, err := operator.Jobs.WriteOffJob(t.Context(), &jobsv1.WriteOffJobRequest{JobId: ids[i]}); err != nil {
					t.Errorf("write off: %v", err)
				}
			})
		}
	}
	wg.Wait()
	for _, id := range ids {
		j := a.Admin.Job(t, id)
		check(t, j, "race")
		us := usage(t, a, id)
		lost := j.State == failed && j.Replicas[0].Reason == "lost"
		if len(us) != 1 || !lost && j.State != succeeded || !us[0].EndedAt.AsTime().Equal(j.EndedAt.AsTime()) {
			t.Errorf("%v with usage %v, want lost or succeeded, and one record of that", j, us)
		}
	}
	if k := center(t, a, c.ID); held(t, a, c.ID) != 0 || k.Running != 0 || k.Waiting != 0 {
		t.Errorf("something is still held: %v", k)
	}
}

func testLostRefused(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-lost-who"})
	owner := a.User(t, "t-lost", "u-lost", identityv1.Role_ROLE_USER)
	auditor := a.User(t, "t-lost", "u-lost-auditor", identityv1.Role_ROLE_AUDITOR)
	id := owner.Submit(t, c.Pin(apptest.Job("who", 1)))
	c.Of(id, 1)[0].Run()
	removeGateway(t, a, c.ID)
	c.Disconnect()
	for name, client := range map[string]*apptest.Client{"owner": owner, "auditor": auditor} {
		if _, err := client.Jobs.WriteOffJob(t.Context(), &jobsv1.WriteOffJobRequest{JobId: id}); code(err) != connect.CodePermissionDenied {
			t.Errorf("by the %s: %v, want permission denied", name, err)
		}
	}
	for field, r := range map[string]*jobsv1.WriteOffJobRequest{
		"reason":       {JobId: id, Reason: strings.Repeat("r", 128)},
		"ai_center_id": {JobId: id, AiCenterId: "no such\x00"},
	} {
		if _, err := a.Admin.Jobs.WriteOffJob(t.Context(), r); code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{field}) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if res := a.Admin.REST(t, "POST", "/v1/jobs/job_none/write-off", `{}`); res.Status != 404 {
		t.Errorf("no such job: %d %s", res.Status, res.Body)
	}
	queue := a.Admin.Submit(t, waiting("nothing placed"))
	if j := writeOff(t, a, &jobsv1.WriteOffJobRequest{JobId: queue, Retry: true}); j.State != queued || j.Version != 1 {
		t.Errorf("a job that waits: %v, want it as it was", j)
	}
	if j := owner.Job(t, id); j.State != running {
		t.Errorf("refused calls changed the job: %v", j)
	}
	if res := a.Admin.REST(t, "POST", "/v1/jobs/"+id+"/write-off", `{"reason":"over"}`); res.Status != 200 || !strings.Contains(string(res.Body), `"lost"`) {
		t.Errorf("REST: %d %s", res.Status, res.Body)
	}
	// The service itself: the kinds it documents.
	if _, err := a.Jobs.WriteOff(t.Context(), id, jobs.Loss{}); err == nil {
		t.Error("a caller who sees no tenant wrote a job off")
	}
}

// Centers report late and in any order; a job's end is when it ended.
func testEndedAt(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-ended"})
	at := func(seconds int) int64 {
		return time.Now().Add(time.Duration(seconds) * time.Second).UnixMicro()
	}
	end := func(r *apptest.Replica, reason string, started, ended int64) {
		c.Report(&adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, StartedAt: started, EndedAt: ended, Reason: reason})
	}
	is := func(name string, j *jobsv1.Job, started, ended int64) {
		t.Helper()
		if got := j.EndedAt.AsTime().UnixMicro(); j.EndedAt == nil || got != ended {
			t.Errorf("%s: ended at %s, want %s", name, j.EndedAt.AsTime(), time.UnixMicro(ended).UTC())
		}
		if started != 0 && j.StartedAt.AsTime().UnixMicro() != started {
			t.Errorf("%s: started at %s, want %s", name, j.StartedAt.AsTime(), time.UnixMicro(started).UTC())
		}
	}
	// 1. The last to end reports first, the first to start last; all is long ago.
	id := a.Admin.Submit(t, c.Pin(apptest.Job("ended-late", 3)))
	rs := c.Of(id, 3)
	first, last := at(-3600), at(-600)
	end(rs[0], "completed", at(-3000), last)
	end(rs[1], "completed", at(-3100), at(-900))
	end(rs[2], "completed", first, at(-700))
	is("reported late", a.Admin.AwaitState(t, id, succeeded), first, last)

	// 2. A job stopped while nothing of it ran ends when it is stopped.
	from := time.Now().UnixMicro()
	j, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: a.Admin.Submit(t, waiting("ended-never"))})
	if got := j.GetEndedAt().AsTime().UnixMicro(); err != nil || got < from || got > time.Now().UnixMicro() {
		t.Errorf("stopped before it ran: ended at %s, %v", j.GetEndedAt().AsTime(), err)
	}

	// 3. One that is stopped on its way, and ended without having started.
	id = a.Admin.Submit(t, c.Pin(apptest.Job("ended-unstarted", 1)))
	r := c.Of(id, 1)[0]
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	later := at(30)
	end(r, "stopped", 0, later)
	is("never started", a.Admin.AwaitState(t, id, stopped), 0, later)

	// 4. A retry waits; the job is decided by the end of another replica. What
	// never ran again ended with that.
	spec := c.Pin(apptest.Job("ended-decided", 2))
	spec.MaxRetries, spec.SuccessPolicy = 1, jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY
	id = a.Admin.Submit(t, spec)
	rs = c.Of(id, 2)
	drain(t, a, c.ID, true)
	end(rs[0], "exit", at(-500), at(-400))
	last = at(-300)
	end(rs[1], "completed", at(-500), last)
	is("decided while a retry waited", a.Admin.AwaitState(t, id, succeeded), 0, last)
	drain(t, a, c.ID, false)

	// 5. A retry waits and the job is stopped: that is when it ended.
	spec = c.Pin(apptest.Job("ended-stopped", 1))
	spec.MaxRetries = 1
	id = a.Admin.Submit(t, spec)
	r = c.Of(id, 1)[0]
	drain(t, a, c.ID, true)
	from = time.Now().UnixMicro()
	end(r, "exit", at(-500), at(-400))
	j, err = a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id})
	if got := j.GetEndedAt().AsTime().UnixMicro(); err != nil || j.GetState() != stopped || got < from || got > time.Now().UnixMicro() {
		t.Errorf("stopped while a retry waited: %v, %v", j, err)
	}
	drain(t, a, c.ID, false)
}
