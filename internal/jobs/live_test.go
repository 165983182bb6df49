package jobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
)

// What a job asks for while it is under way: tasks one after another, more or
// fewer replicas, runs taken back, and what would become of one.
func TestLive(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"tasks one after another", testAfter},
			{"a task that waits in vain", testAfterInVain},
			{"retries by cause", testRetryRules},
			{"a gang is run again whole", testRestartWhole},
			{"preempted and run again", testPreempt},
			{"more and fewer replicas", testScale},
			{"scaled in and out again", testScaleBack},
			{"near another job", testNear},
			{"a plan stores nothing", testPlan},
			{"what is wrong is named", testLiveRefused},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
		}
	})
}

func after(task string, c jobsv1.Dependency_Condition) []*jobsv1.Dependency {
	return []*jobsv1.Dependency{{Task: task, Condition: c}}
}

func testAfter(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-after"})
	j := apptest.Job("after", 2)
	j.Tasks[0].Name = "first"
	j.Tasks = append(j.Tasks, apptest.Task("beside", 1), apptest.Task("then", 1), apptest.Task("last", 1))
	j.Tasks[1].After = after("first", jobsv1.Dependency_CONDITION_STARTED)
	j.Tasks[2].After = after("first", jobsv1.Dependency_CONDITION_SUCCEEDED)
	j.Tasks[3].After = []*jobsv1.Dependency{{Task: "then", Condition: jobsv1.Dependency_CONDITION_ENDED}, {Task: "beside"}}
	id := a.Admin.Submit(t, c.Pin(j))
	first := c.Of(id, 2)
	first[0].Run()
	if rs := c.Of(id, 2); len(rs) != 2 {
		t.Errorf("%d replicas placed while one of first has not started", len(rs))
	}
	ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil || len(ex.Waits) != 3 || ex.Waits[0].Cause != schedulerv1.Wait_CAUSE_DEPENDENCY || ex.Waits[0].TaskIndex != 1 || !strings.Contains(ex.Waits[0].Message, "task first have started: 1") {
		t.Errorf("explained by %v, %v", ex.GetWaits(), err)
	}
	first[1].Run()
	beside := c.Of(id, 3)[2]
	if beside.Env["YUNHE_TASK_NAME"] != "beside" {
		t.Fatalf("placed next: %v", beside)
	}
	apptest.Succeed(beside)
	first[0].End("completed", 0)
	if r := a.Admin.Job(t, id).Replicas[3]; r.State != queued || !strings.Contains(r.Message, "task first have succeeded: 1") {
		t.Errorf("then while first runs: %v", r)
	}
	first[1].End("completed", 0)
	then := c.Of(id, 4)[3]
	then.Run()
	then.End("completed", 0)
	apptest.Succeed(c.Of(id, 5)[4])
	a.Admin.AwaitState(t, id, succeeded)
}

func testAfterInVain(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-vain"})
	j := apptest.Job("in vain", 1)
	j.Tasks[0].Name = "first"
	j.FailurePolicy, j.SuccessPolicy = jobsv1.FailurePolicy_FAILURE_POLICY_ALL, jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY
	j.Tasks = append(j.Tasks, apptest.Task("never", 3), apptest.Task("never too", 2), apptest.Task("clean up", 1))
	j.Tasks[1].After = after("first", jobsv1.Dependency_CONDITION_SUCCEEDED)
	j.Tasks[2].After = after("never", jobsv1.Dependency_CONDITION_STARTED)
	j.Tasks[3].After = after("never", jobsv1.Dependency_CONDITION_ENDED)
	id := a.Admin.Submit(t, c.Pin(j))
	r := c.Of(id, 1)[0]
	r.Run()
	r.End("exit", 3)
	clean := c.Of(id, 2)[1]
	if clean.Env["YUNHE_TASK_NAME"] != "clean up" {
		t.Fatalf("placed next: %v", clean)
	}
	if got := a.Admin.Job(t, id); got.ReplicasStopped != 5 || got.Replicas[1].State != stopped || !strings.Contains(got.Replicas[1].Message, "never runs: task first") {
		t.Errorf("job with tasks that never run: %v", got)
	}
	apptest.Succeed(clean)
	a.Admin.AwaitState(t, id, succeeded)
}

func testRetryRules(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-rules"})
	j := c.Pin(apptest.Job("rules", 1))
	j.RetryRules = []*jobsv1.RetryRule{{Reasons: []string{"exit"}, ExitCodes: []int32{75}, MaxRetries: 2}, {Reasons: []string{"oom"}}}
	id := a.Admin.Submit(t, j)
	for i := range 2 {
		r := c.Of(id, i+1)[i]
		r.Run()
		r.End("exit", 75)
	}
	r := c.Of(id, 3)[2]
	r.Run()
	r.End("oom", 0)
	if got := a.Admin.AwaitState(t, id, failed); got.Reason != "oom" || got.Replicas[0].Attempt != 3 {
		t.Errorf("ended as %v", got)
	}
	var runs []*jobsv1.Replica
	for token := ""; len(runs) == 0 || token != ""; {
		res, err := a.Admin.Jobs.ListRuns(t.Context(), &jobsv1.ListRunsRequest{JobId: id, PageSize: 2, PageToken: token})
		if err != nil || len(res.Runs) == 0 {
			t.Fatalf("its runs: %v, %v", res, err)
		}
		runs, token = append(runs, res.Runs...), res.NextPageToken
	}
	if got := []string{runs[0].Reason, runs[1].Reason, runs[len(runs)-1].Reason}; len(runs) != 3 || !slices.Equal(got, []string{"exit", "exit", "oom"}) || runs[0].State != failed || runs[1].Attempt != 2 || runs[1].ExitCode != 75 || runs[0].CenterName == "" {
		t.Errorf("its runs are %v", runs)
	}
	for _, x := range []struct {
		r    *jobsv1.ListRunsRequest
		runs int
		says string
	}{
		{r: &jobsv1.ListRunsRequest{JobId: id, TaskIndex: ptr(int32(0)), ReplicaIndex: ptr(int32(0))}, runs: 3},
		{r: &jobsv1.ListRunsRequest{JobId: id, ReplicaIndex: ptr(int32(1))}},
		{r: &jobsv1.ListRunsRequest{JobId: "job_none"}, says: "job_none"},
		{r: &jobsv1.ListRunsRequest{JobId: id, TaskIndex: ptr(int32(-1))}, says: "task_index"},
		{r: &jobsv1.ListRunsRequest{JobId: id, PageSize: 1001}, says: "page_size"},
		{r: &jobsv1.ListRunsRequest{JobId: id, PageToken: core.PageToken("0", "0", "one")}, says: "page_token"},
	} {
		if res, err := a.Admin.Jobs.ListRuns(t.Context(), x.r); len(res.GetRuns()) != x.runs || (err != nil) != (x.says != "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("runs of %v: %v, %v", x.r, res, err)
		}
	}
	// With a pause it waits, and says how long.
	j.RetryRules[0].BackoffSeconds = 3600
	id = a.Admin.Submit(t, j)
	r = c.Of(id, 1)[0]
	r.Run()
	r.End("exit", 75)
	a.Admin.AwaitState(t, id, queued)
	ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil || len(ex.Waits) != 1 || ex.Waits[0].Cause != schedulerv1.Wait_CAUSE_TIME || ex.Waits[0].Until.AsTime().Before(time.Now().Add(time.Hour-5*time.Minute)) {
		t.Errorf("explained by %v, %v", ex.GetWaits(), err)
	}
}

func testRestartWhole(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-whole"})
	j := c.Pin(apptest.Job("whole", 3))
	j.Gang, j.RestartWhole, j.MaxRetries = true, true, 1
	id := a.Admin.Submit(t, j)
	rs := c.Of(id, 3)
	for _, r := range rs {
		r.Run()
	}
	rs[1].End("exit", 1)
	rs[0].AwaitStop()
	rs[2].AwaitStop()
	rs[0].End("stopped", 0)
	ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil || len(ex.Waits) != 1 || ex.Waits[0].Cause != schedulerv1.Wait_CAUSE_RESTART || ex.Waits[0].Replicas != 2 {
		t.Errorf("explained by %v, %v", ex.GetWaits(), err)
	}
	if rs := c.Of(id, 3); len(rs) != 3 {
		t.Errorf("%d runs while one of the gang is still ending", len(rs))
	}
	rs[2].End("stopped", 0)
	rs = c.Of(id, 6)
	for i, r := range rs {
		if r.Env["YUNHE_ATTEMPT"] == "2" {
			apptest.Succeed(rs[i])
		}
	}
	got := a.Admin.AwaitState(t, id, succeeded)
	for _, r := range got.Replicas {
		if r.Attempt != 2 || !r.PlacedAt.AsTime().Equal(got.Replicas[0].PlacedAt.AsTime()) {
			t.Errorf("run again as %v", r)
		}
	}
}

func testPreempt(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-preempt"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("preempted", 2))) // no retries
	rs := c.Of(id, 2)
	rs[0].Run()
	rs[1].Run()
	req := &jobsv1.PreemptJobRequest{JobId: id, Reason: "for the demonstration"}
	u := a.User(t, "t-preempt", "u-preempt", identityv1.Role_ROLE_USER)
	if _, err := u.Jobs.PreemptJob(t.Context(), req); code(err) != connect.CodePermissionDenied {
		t.Errorf("preempted by a user: %v", err)
	}
	j, err := a.Admin.Jobs.PreemptJob(t.Context(), req)
	if err != nil || j.Replicas[0].State != stopping {
		t.Fatalf("preempt: %v, %v", j, err)
	}
	if _, err := a.Admin.Jobs.PreemptJob(t.Context(), req); err != nil { // nothing is left to do
		t.Errorf("preempt again: %v", err)
	}
	rs[0].AwaitStop()
	rs[1].AwaitStop()
	rs[0].End("stopped", 0)
	rs[1].End("completed", 0) // it was done before it was stopped
	again := c.Of(id, 3)[1]
	if again.Env["YUNHE_ATTEMPT"] != "2" || again.Env["YUNHE_REPLICA_INDEX"] != "0" {
		t.Fatalf("run again: %v", again)
	}
	again.Run()
	again.End("exit", 1) // a failure of its own is one
	got := a.Admin.AwaitState(t, id, failed)
	if got.Reason != "exit" || got.Replicas[1].State != succeeded {
		t.Errorf("ended as %v", got)
	}
	if _, err := a.Admin.Jobs.PreemptJob(t.Context(), req); code(err) != connect.CodeAborted {
		t.Errorf("preempt an ended job: %v", err)
	}
	never := c.Pin(apptest.Job("never preempted", 1))
	never.NoPreemption = true
	id = a.Admin.Submit(t, never)
	c.Of(id, 1)[0].Run()
	if _, err := a.Admin.Jobs.PreemptJob(t.Context(), &jobsv1.PreemptJobRequest{JobId: id}); code(err) != connect.CodeAborted {
		t.Errorf("preempt what is not to be: %v", err)
	}
}

func elastic(name string, n, low, high int32) *jobsv1.JobSpec {
	j := apptest.Job(name, n)
	j.Tasks[0].MinReplicas, j.Tasks[0].MaxReplicas = low, high
	return j
}

func scaleTo(t *testing.T, a *apptest.App, id string, n int32) *jobsv1.Job {
	t.Helper()
	j, err := a.Admin.Jobs.ScaleJob(t.Context(), &jobsv1.ScaleJobRequest{JobId: id, Task: "main", ReplicaNumber: n})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func testScale(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-scale"})
	spec := c.Pin(elastic("scale", 2, 1, 4))
	spec.Tasks[0].Name = "main"
	id := a.Admin.Submit(t, spec)
	for _, r := range c.Of(id, 2) {
		r.Run()
	}
	before := a.Admin.Job(t, id)
	if j := scaleTo(t, a, id, 4); j.ReplicasTotal != 4 || len(j.Replicas) != 4 || j.SchedulingMicroseconds != before.SchedulingMicroseconds {
		t.Errorf("scaled out: %v", j)
	}
	rs := c.Of(id, 4)
	rs[2].Run()
	rs[3].Run()
	if j := scaleTo(t, a, id, 1); j.Spec.Tasks[0].ReplicaNumber != 1 || len(j.Replicas) != 1 || j.ReplicasTotal != 4 {
		t.Errorf("scaled in, while three are ending: %v", j)
	}
	for _, r := range rs[1:] {
		r.AwaitStop()
		r.End("stopped", 0)
	}
	if j := a.Admin.Job(t, id); j.ReplicasTotal != 1 || j.ReplicasRunning != 1 || j.State != running {
		t.Errorf("scaled in: %v", j)
	}
	for n, path := range map[int32]string{0: "replica_number", 5: "replica_number"} {
		_, err := a.Admin.Jobs.ScaleJob(t.Context(), &jobsv1.ScaleJobRequest{JobId: id, Task: "main", ReplicaNumber: n})
		if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{path}) {
			t.Errorf("scale to %d: %v", n, err)
		}
	}
	rs[0].End("completed", 0)
	a.Admin.AwaitState(t, id, succeeded)
	if _, err := a.Admin.Jobs.ScaleJob(t.Context(), &jobsv1.ScaleJobRequest{JobId: id, Task: "main", ReplicaNumber: 2}); code(err) != connect.CodeAborted {
		t.Errorf("scale what has ended: %v", err)
	}
	fixed := a.Admin.Submit(t, waiting("fixed"))
	if _, err := a.Admin.Jobs.ScaleJob(t.Context(), &jobsv1.ScaleJobRequest{JobId: fixed, Task: waiting("x").Tasks[0].Name, ReplicaNumber: 2}); !slices.Equal(violated(err), []string{"task"}) {
		t.Errorf("scale what cannot be: %v", err)
	}
}

// Fewer while one waits and one has ended, then more again before the first
// have gone: nothing is counted twice, and all indices run.
func testScaleBack(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-scale2", CPU: 3000})
	spec := c.Pin(elastic("scale back", 4, 1, 4))
	spec.Tasks[0].Name = "main"
	id := a.Admin.Submit(t, spec) // small takes a core: three run, one waits
	rs := c.Of(id, 3)
	rs[0].Run()
	rs[1].Run()
	apptest.Succeed(rs[2])
	rs = c.Of(id, 4)
	rs[3].Run()
	if j := scaleTo(t, a, id, 1); j.ReplicasTotal != 3 || j.ReplicasSucceeded != 0 {
		t.Errorf("1 and 3 are ending, 2 had ended: %v", j)
	}
	rs[1].AwaitStop()
	if j := scaleTo(t, a, id, 4); j.ReplicasTotal != 4 {
		t.Errorf("out again: %v", j)
	}
	rs[3].AwaitStop()
	rs[1].End("stopped", 0)
	rs[3].End("stopped", 0)
	rs[0].End("completed", 0)
	for _, r := range c.Of(id, 7) {
		if r.Env["YUNHE_ATTEMPT"] == "2" {
			apptest.Succeed(r)
		}
	}
	got := a.Admin.AwaitState(t, id, succeeded)
	if got.ReplicasSucceeded != 4 || got.ReplicasTotal != 4 {
		t.Errorf("ended as %v", got)
	}
}

func testNear(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-near"})
	made := a.Admin.Submit(t, waiting("makes data"))
	j := apptest.Job("uses data", 1)
	j.NearJob = made
	id := a.Admin.Submit(t, j)
	ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil || len(ex.Waits) != 1 || ex.Waits[0].Cause != schedulerv1.Wait_CAUSE_NEAR_JOB {
		t.Errorf("explained by %v, %v", ex.GetWaits(), err)
	}
	made = a.Admin.Submit(t, c.Pin(apptest.Job("makes data here", 1)))
	apptest.Succeed(c.Of(made, 1)[0])
	a.Admin.AwaitState(t, made, succeeded)
	j.NearJob = made
	id = a.Admin.Submit(t, j)
	apptest.Succeed(c.Of(id, 1)[0])
	a.Admin.AwaitState(t, id, succeeded)
	u := a.User(t, "t-near", "u-near", identityv1.Role_ROLE_USER)
	if _, err := u.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j}); !slices.Equal(violated(err), []string{"job.near_job"}) {
		t.Errorf("near a job of another tenant: %v", err)
	}
}

func testPlan(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-plan"})
	j := c.Pin(apptest.Job("only planned", 2))
	j.Tasks = append(j.Tasks, apptest.Task("later", 3))
	j.Tasks[1].After = after(j.Tasks[0].Name, 0)
	p, err := a.Admin.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{Job: j})
	if err != nil || p.ReplicasPlaced != 2 || p.ReplicasTotal != 5 || len(p.Decisions) != 3 || p.Decisions[0].AiCenterId != c.ID || len(p.Decisions[0].Candidates) == 0 ||
		len(p.Waits) != 1 || p.Waits[0].Cause != schedulerv1.Wait_CAUSE_DEPENDENCY || p.Waits[0].Replicas != 3 {
		t.Errorf("plan %v, %v", p, err)
	}
	j = waiting("only planned")
	if p, err = a.Admin.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{Job: j}); err != nil || p.ReplicasPlaced != 0 || len(p.Waits) != 1 || p.Waits[0].Cause != schedulerv1.Wait_CAUSE_ROOM {
		t.Errorf("plan of what fits nowhere: %v, %v", p, err)
	}
	if n := count(t, a.Admin, "only planned"); n != 0 {
		t.Errorf("plans stored %d jobs", n)
	}
	j.Tasks[0].ReplicaNumber = 0
	if _, err := a.Admin.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{Job: j}); !slices.Equal(violated(err), []string{"job.tasks[0].replica_number"}) {
		t.Errorf("plan of a wrong job: %v", err)
	}
	if _, err := a.Admin.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{}); !slices.Equal(violated(err), []string{"job"}) {
		t.Errorf("plan of nothing: %v", err)
	}
}

func testLiveRefused(t *testing.T, a *apptest.App) {
	at := timestamppb.Now()
	for want, change := range map[string]func(*jobsv1.JobSpec){
		"job.tasks[0].after[0].task": func(j *jobsv1.JobSpec) { j.Tasks[0].After = after("nope", 0) },
		"job.tasks[0].after[0].condition": func(j *jobsv1.JobSpec) {
			j.Tasks = append(j.Tasks, apptest.Task("x", 1))
			j.Tasks[0].After = after("x", 9)
		},
		"job.tasks[0].min_replicas":          func(j *jobsv1.JobSpec) { j.Tasks[0].MinReplicas = 1 },
		"job.tasks[0].replica_number":        func(j *jobsv1.JobSpec) { j.Tasks[0].MaxReplicas, j.Tasks[0].ReplicaNumber = 2, 3 },
		"job.retry_rules[0].max_retries":     func(j *jobsv1.JobSpec) { j.RetryRules = []*jobsv1.RetryRule{{MaxRetries: 101}} },
		"job.retry_rules[0].exit_codes[1]":   func(j *jobsv1.JobSpec) { j.RetryRules = []*jobsv1.RetryRule{{ExitCodes: []int32{1, 256}}} },
		"job.retry_rules[0].backoff_seconds": func(j *jobsv1.JobSpec) { j.RetryRules = []*jobsv1.RetryRule{{BackoffSeconds: -1}} },
		"job.restart_whole":                  func(j *jobsv1.JobSpec) { j.RestartWhole = true },
		"job.near_job":                       func(j *jobsv1.JobSpec) { j.NearJob = "job_nope" },
		"job.not_before":                     func(j *jobsv1.JobSpec) { j.NotBefore = &timestamppb.Timestamp{Seconds: -1} },
		"job.deadline":                       func(j *jobsv1.JobSpec) { j.NotBefore, j.Deadline = at, at },
	} {
		j := waiting("refused")
		change(j)
		_, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j})
		if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{want}) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
