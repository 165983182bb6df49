package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

const (
	queued    = jobsv1.State_STATE_QUEUED
	running   = jobsv1.State_STATE_RUNNING
	stopping  = jobsv1.State_STATE_STOPPING
	stopped   = jobsv1.State_STATE_STOPPED
	succeeded = jobsv1.State_STATE_SUCCEEDED
	failed    = jobsv1.State_STATE_FAILED
)

// waiting is a job that no center may run: it takes nobody's room.
func waiting(name string) *jobsv1.JobSpec {
	j := apptest.Job(name, 1)
	j.Tasks[0].Constraints = &jobsv1.Constraints{Regions: []string{"nowhere"}}
	return j
}

// One platform for each engine serves all these tests at once; each has a
// center of its own and jobs that run nowhere else.
func TestPlatform(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"the same request is one job", testIdempotent},
			{"a request ID belongs to its tenant", testRequestOfTenant},
			{"a batch is stored whole or not at all", testBatch},
			{"what is wrong is named by its path and not stored", testRefused},
			{"jobs of others are not found", testTenants},
			{"a list pages through everything once", testPages},
			{"a list is filtered", testFilters},
			{"stopping is idempotent", testStop},
			{"a job stopped before its center knew of it", testStopEarly},
			{"a job that has not ended can be changed", testUpdate},
			{"a job that has ended can be deleted", testDelete},
			{"a watcher sees the first state and every end", testWatch},
			{"a watcher of all sees its tenant only", testWatchAll},
			{"reports come twice, late and in any order", testReports},
			{"the scheduling time is known when all were issued", testSchedulingTime},
			{"a replica is tried exactly as often as asked", testRetries},
			{"a decided job stops the rest", testDecidedStops},
			{"a retry that waits when the job is decided", testDecidedWithRetry},
			{"a refused attempt has failed", testRefusedAttempt},
			{"counters always add up", testCounters},
			{"a center cannot spoil the books", testHostileReports},
			{"logs", testLogs},
			{"a log is followed over a retry", testFollowRetry},
			{"a link to a log", testSignedLink},
			{"annex A, jobs", testTrainJob},
			{"annex A, errors", testTrainErrors},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
		}
	})
}

func code(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

// violated returns the paths of an error's field violations.
func violated(err error) []string {
	var ce *connect.Error
	var out []string
	if !errors.As(err, &ce) {
		return nil
	}
	for _, d := range ce.Details() {
		v, err := d.Value()
		if bad, ok := v.(*errdetails.BadRequest); ok && err == nil {
			for _, f := range bad.FieldViolations {
				out = append(out, f.Field)
			}
		}
	}
	return out
}

func count(t *testing.T, c *apptest.Client, name string) int {
	t.Helper()
	res, err := c.Jobs.ListJobs(t.Context(), &jobsv1.ListJobsRequest{Name: name, PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(res.Jobs)
}

func testIdempotent(t *testing.T, a *apptest.App) {
	j := waiting("idem")
	j.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			res, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{RequestId: "req-1", Job: j})
			if err != nil {
				t.Errorf("concurrent duplicate: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[res.JobId] = true
		})
	}
	wg.Wait()
	if n := count(t, a.Admin, "idem"); len(ids) != 1 || n != 1 {
		t.Errorf("16 duplicates made %d jobs and were told %d IDs, want 1 and 1", n, len(ids))
	}
	j.Desc = "another"
	_, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{RequestId: "req-1", Job: j})
	if code(err) != connect.CodeAborted || !strings.Contains(err.Error(), `"req-1"`) {
		t.Errorf("other job under the same request ID: %v, want a conflict that names it", err)
	}
	res := a.Admin.REST(t, "POST", "/v1/jobs", `{"requestId":"req-1","job":{"name":"idem","tasks":[{"name":"t","command":"true","imageId":"host","resourceSpecId":"small","replicaNumber":1}]}}`)
	if res.Status != 409 || !strings.Contains(string(res.Body), `"CONFLICT"`) || !strings.Contains(string(res.Body), "request_id") {
		t.Errorf("REST: %d %s", res.Status, res.Body)
	}
	batch := &jobsv1.SubmitJobsRequest{RequestId: "req-2", Jobs: []*jobsv1.JobSpec{waiting("idem-b1"), waiting("idem-b2")}}
	first, err := a.Admin.Jobs.SubmitJobs(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Admin.Jobs.SubmitJobs(t.Context(), batch)
	if err != nil || !slices.Equal(first.JobIds, second.JobIds) {
		t.Errorf("batch again: %v, %v, want %v", second.GetJobIds(), err, first.JobIds)
	}
	batch.Jobs[0], batch.Jobs[1] = batch.Jobs[1], batch.Jobs[0]
	if _, err := a.Admin.Jobs.SubmitJobs(t.Context(), batch); code(err) != connect.CodeAborted {
		t.Errorf("batch in another order: %v, want a conflict", err)
	}
	if one, two := a.Admin.Submit(t, j), a.Admin.Submit(t, j); one == two {
		t.Errorf("without a request ID two submissions made one job %s", one)
	}
}

func testRequestOfTenant(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-req", "u-req", identityv1.Role_ROLE_USER)
	mine, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{RequestId: "shared", Job: waiting("one")})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := u.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{RequestId: "shared", Job: waiting("two")})
	if err != nil || theirs.JobId == mine.JobId {
		t.Errorf("another tenant's request: %v, %v", theirs.GetJobId(), err)
	}
	for _, id := range []string{strings.Repeat("r", 65), "a\nb"} {
		_, err := u.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{RequestId: id, Job: waiting("x")})
		if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{"request_id"}) {
			t.Errorf("request ID %q: %v", id, err)
		}
	}
	if _, err := u.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{RequestId: strings.Repeat("r", 64), Job: waiting("x")}); err != nil {
		t.Errorf("request ID of 64 bytes: %v", err)
	}
}

func testBatch(t *testing.T, a *apptest.App) {
	var jobs []*jobsv1.JobSpec
	for i := range 250 {
		jobs = append(jobs, waiting(fmt.Sprintf("batch-%03d", i)))
	}
	jobs[249].Tasks[0].ReplicaNumber = 0
	_, err := a.Admin.Jobs.SubmitJobs(t.Context(), &jobsv1.SubmitJobsRequest{Jobs: jobs})
	if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{"jobs[249].tasks[0].replica_number"}) {
		t.Errorf("batch with one wrong job: %v %v", err, violated(err))
	}
	if n := count(t, a.Admin, "batch-"); n != 0 {
		t.Errorf("%d jobs of a refused batch are stored", n)
	}
	jobs[249].Tasks[0].ReplicaNumber = 1
	res, err := a.Admin.Jobs.SubmitJobs(t.Context(), &jobsv1.SubmitJobsRequest{Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range res.JobIds {
		if i%50 == 49 && a.Admin.Job(t, id).Spec.Name != jobs[i].Name {
			t.Errorf("job %d is not in the order of the request", i)
		}
	}
	if n := count(t, a.Admin, "batch-"); n != 250 {
		t.Errorf("%d jobs stored, want 250", n)
	}
	for _, list := range [][]*jobsv1.JobSpec{nil, make([]*jobsv1.JobSpec, 5001)} {
		_, err := a.Admin.Jobs.SubmitJobs(t.Context(), &jobsv1.SubmitJobsRequest{Jobs: list})
		if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{"jobs"}) {
			t.Errorf("batch of %d: %v %v", len(list), err, violated(err))
		}
	}
}

// The table of limits is TestValidate; this is the way of a refusal to the user.
func testRefused(t *testing.T, a *apptest.App) {
	j := apptest.Job("unstored", 0)
	j.Tasks[0].ImageId, j.PolicyWeights = "nope", map[string]int32{"no-policy": 1}
	_, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j})
	want := []string{"job.tasks[0].image_id", "job.tasks[0].replica_number", "job.policy_weights"}
	if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), want) {
		t.Errorf("%v, paths %v, want %v", err, violated(err), want)
	}
	_, err = a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{})
	if !slices.Equal(violated(err), []string{"job"}) {
		t.Errorf("no job: %v %v", err, violated(err))
	}
	for body, field := range map[string]string{
		`{"job":{"name":"unstored","tasks":[{"name":"t","command":"true","imageId":"host","resourceSpecId":"small","replicaNumber":-1}]}}`:                               "job.tasks[0].replica_number",
		`{"job":{"name":"unstored` + strings.Repeat("x", 33) + `","tasks":[{"name":"t","command":"true","imageId":"host","resourceSpecId":"small","replicaNumber":1}]}}`: "job.name",
	} {
		if res := a.Admin.REST(t, "POST", "/v1/jobs", body); res.Status != 400 || !strings.Contains(string(res.Body), `"`+field+`"`) {
			t.Errorf("REST: %d %s, want 400 at %s", res.Status, res.Body, field)
		}
	}
	if n := count(t, a.Admin, "unstored"); n != 0 {
		t.Errorf("%d refused jobs are stored", n)
	}
}

func testTenants(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-tenants", Play: func(r *apptest.Replica) { r.Write("secret\n"); apptest.Succeed(r) }})
	owner := a.User(t, "t-owner", "u-owner", identityv1.Role_ROLE_USER)
	other := a.User(t, "t-other", "u-other", identityv1.Role_ROLE_USER)
	id := owner.Submit(t, c.Pin(apptest.Job("private", 1)))
	j := owner.AwaitState(t, id, succeeded)
	desc := "mine now"
	ctx := t.Context()
	calls := map[string]func(c *apptest.Client) error{
		"get": func(c *apptest.Client) error {
			_, err := c.Jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: id})
			return err
		},
		"stop": func(c *apptest.Client) error {
			_, err := c.Jobs.StopJob(ctx, &jobsv1.StopJobRequest{JobId: id})
			return err
		},
		"update": func(c *apptest.Client) error {
			_, err := c.Jobs.UpdateJob(ctx, &jobsv1.UpdateJobRequest{JobId: id, Desc: &desc})
			return err
		},
		"delete": func(c *apptest.Client) error {
			_, err := c.Jobs.DeleteJob(ctx, &jobsv1.DeleteJobRequest{JobId: id})
			return err
		},
		"log": func(c *apptest.Client) error { _, err := c.Log(t, &jobsv1.ReadLogRequest{JobId: id}); return err },
		"watch": func(c *apptest.Client) error {
			s, err := c.Jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{JobId: id})
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }()
			if s.Receive() {
				return nil
			}
			return s.Err()
		},
		"explain": func(c *apptest.Client) error {
			_, err := c.Scheduler.ExplainJob(ctx, &schedulerv1.ExplainJobRequest{JobId: id})
			return err
		},
		"score": func(cl *apptest.Client) error {
			_, err := cl.Scheduler.ScoreCenter(ctx, &schedulerv1.ScoreCenterRequest{PolicyId: "lowest-price", AiCenterId: c.ID, JobId: id})
			return err
		},
		"cost": func(c *apptest.Client) error {
			_, err := c.Metering.GetJobCost(ctx, &meteringv1.GetJobCostRequest{JobId: id})
			return err
		},
	}
	for name, call := range calls {
		if err := call(other); code(err) != connect.CodeNotFound {
			t.Errorf("%s of another tenant's job: %v, want not found", name, err)
		}
		if strings.Contains("update delete", name) {
			continue
		}
		if err := call(owner); err != nil {
			t.Errorf("%s of the own job: %v", name, err)
		}
		if err := call(a.Admin); err != nil {
			t.Errorf("%s by an administrator: %v", name, err)
		}
	}
	for _, path := range []string{"/v1/jobs/" + id, "/v1/jobs/" + id + "/events", "/v1/jobs/" + id + "/tasks/0/replicas/0/log", "/v1/jobs/" + id + "/tasks/main/replicas/" + j.Replicas[0].AttemptId + "/log",
		"/v1/jobs/" + id + "/explain", "/openapi/v1/trainjob/" + id, "/openapi/v1/trainjob/" + id + "/task/0/replica/0/log", "/scheduler/algorithm/lowest-price/score/" + c.ID + "?jobId=" + id} {
		if res := other.REST(t, "GET", path, ""); res.Status != 404 || strings.Contains(string(res.Body), "private") {
			t.Errorf("GET %s of another tenant: %d %s", path, res.Status, res.Body)
		}
		if res := owner.REST(t, "GET", path, ""); res.Status != 200 {
			t.Errorf("GET %s of the owner: %d %s", path, res.Status, res.Body)
		}
	}
	if res := other.REST(t, "POST", "/openapi/v1/trainjob/"+id+"/stop", ""); res.Status != 404 {
		t.Errorf("annex A stop of another tenant: %d %s", res.Status, res.Body)
	}
	for _, tenant := range []string{"", "t-owner"} { // naming a tenant opens nothing
		res, err := other.Jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{TenantId: tenant})
		if err != nil || len(res.Jobs) != 0 {
			t.Errorf("list of tenant %q by another: %v, %v", tenant, res, err)
		}
	}
	if res, err := a.Admin.Jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{TenantId: "t-owner"}); err != nil || len(res.Jobs) != 1 {
		t.Errorf("list of a tenant by an administrator: %v, %v", res, err)
	}
	st, err := other.Jobs.GetJobStats(ctx, &jobsv1.GetJobStatsRequest{})
	if err != nil || len(st.JobsByState) != 0 || st.Runs_24H != 0 {
		t.Errorf("figures of a tenant without jobs: %v, %v", st, err)
	}
	if st, err = owner.Jobs.GetJobStats(ctx, &jobsv1.GetJobStatsRequest{}); err != nil || st.JobsByState["succeeded"] != 1 || st.Runs_24H != 1 {
		t.Errorf("figures of the owner: %v, %v", st, err)
	}
	if got := owner.Job(t, id); got.UserName != "u-owner" || got.TenantId != "t-owner" || got.Spec.Desc != "" {
		t.Errorf("job is %v", got)
	}
	// IDs that nobody has, in every way of writing.
	for _, bad := range []string{"job_00000000000000000000000000", "x", "%00", "%ff", "%F0%9F%98%80", strings.Repeat("j", 3000), "..", "job_%27%3B"} {
		for _, path := range []string{"/v1/jobs/" + bad, "/openapi/v1/trainjob/" + bad, "/v1/jobs/" + bad + "/events", "/v1/jobs/" + bad + "/explain"} {
			if bad == ".." {
				continue // the router's business
			}
			if res := owner.REST(t, "GET", path, ""); res.Status != 404 && res.Status != 400 {
				t.Errorf("GET %.80s: %d %s", path, res.Status, res.Body)
			}
		}
	}
}

func testPages(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-pages", "u-pages", identityv1.Role_ROLE_USER)
	var before []string
	for i := range 60 {
		before = append(before, u.Submit(t, waiting(fmt.Sprintf("page-%02d", i))))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { // others submit meanwhile
		for i := 0; ctx.Err() == nil && i < 100; i++ {
			_, _ = u.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: waiting("later")}) // it may be cut short
		}
	})
	seen := map[string]int{}
	var order []string
	for token := ""; ; {
		res, err := u.Jobs.ListJobs(t.Context(), &jobsv1.ListJobsRequest{PageSize: 7, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Jobs) > 7 {
			t.Fatalf("page of %d, want at most 7", len(res.Jobs))
		}
		for _, j := range res.Jobs {
			seen[j.JobId]++
			order = append(order, j.JobId)
			if len(j.Replicas) != 0 {
				t.Errorf("a list carries replicas")
			}
		}
		if token = res.NextPageToken; token == "" {
			break
		}
	}
	cancel()
	wg.Wait()
	for _, id := range before {
		if seen[id] != 1 {
			t.Errorf("%s was listed %d times", id, seen[id])
		}
	}
	if !slices.IsSortedFunc(order, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("not newest first, or repeated: %v", order)
	}
	for _, r := range []*jobsv1.ListJobsRequest{{PageSize: -1}, {PageSize: 1001}, {PageToken: "x"}, {PageToken: "WyJhIiwiYiJd"}, {PageToken: strings.Repeat("A", 2000)},
		{Name: "a\x00"}, {Name: strings.Repeat("n", 33)}, {UserName: "\n"}, {AiCenterId: "\x00"}, {States: []jobsv1.State{99}}, {States: []jobsv1.State{-1}}, {States: make([]jobsv1.State, 40000)}} {
		if _, err := u.Jobs.ListJobs(t.Context(), r); code(err) != connect.CodeInvalidArgument {
			t.Errorf("list with %.100v: %v, want invalid", r, err)
		}
	}
	// A token somebody made up: wrong, or a place where nothing is.
	if _, err := u.Jobs.ListJobs(t.Context(), &jobsv1.ListJobsRequest{PageToken: "WyJcdTAwMDAiXQ"}); err != nil && code(err) != connect.CodeInvalidArgument { // ["\u0000"]
		t.Errorf("token of a zero: %v", err)
	}
}

func testFilters(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-filter", "u-filter", identityv1.Role_ROLE_USER)
	c := a.Join(t, apptest.Center{ID: "c-filter", Play: apptest.Succeed})
	start := time.Now()
	done := u.Submit(t, c.Pin(apptest.Job("Übung 100%", 1)))
	u.AwaitState(t, done, succeeded)
	wait := u.Submit(t, waiting("under_score"))
	for _, x := range []struct {
		name string
		r    *jobsv1.ListJobsRequest
		want []string
	}{
		{"all", &jobsv1.ListJobsRequest{}, []string{wait, done}},
		{"state", &jobsv1.ListJobsRequest{States: []jobsv1.State{succeeded}}, []string{done}},
		{"two states", &jobsv1.ListJobsRequest{States: []jobsv1.State{succeeded, queued}}, []string{wait, done}},
		{"state nobody is in", &jobsv1.ListJobsRequest{States: []jobsv1.State{failed}}, nil},
		{"part of a name", &jobsv1.ListJobsRequest{Name: "bung"}, []string{done}},
		{"name in other case", &jobsv1.ListJobsRequest{Name: "BUNG"}, []string{done}},
		{"name beyond ASCII", &jobsv1.ListJobsRequest{Name: "Übung"}, []string{done}},
		{"a percent sign is one", &jobsv1.ListJobsRequest{Name: "0%"}, []string{done}},
		{"a percent sign stands for nothing", &jobsv1.ListJobsRequest{Name: "U%e"}, nil},
		{"an underscore is one", &jobsv1.ListJobsRequest{Name: "r_s"}, []string{wait}},
		{"an underscore stands for nothing", &jobsv1.ListJobsRequest{Name: "u_der"}, nil},
		{"a backslash", &jobsv1.ListJobsRequest{Name: `\`}, nil},
		{"user", &jobsv1.ListJobsRequest{UserName: "u-filter"}, []string{wait, done}},
		{"other user", &jobsv1.ListJobsRequest{UserName: "u-nobody"}, nil},
		{"center", &jobsv1.ListJobsRequest{AiCenterId: "c-filter"}, []string{done}},
		{"other center", &jobsv1.ListJobsRequest{AiCenterId: "c-none"}, nil},
		{"created after", &jobsv1.ListJobsRequest{CreatedAfter: timestamppb.New(start.Add(time.Hour))}, nil},
		{"created before", &jobsv1.ListJobsRequest{CreatedBefore: timestamppb.New(start.Add(-time.Hour))}, nil},
		{"created between", &jobsv1.ListJobsRequest{CreatedAfter: timestamppb.New(start.Add(-time.Hour)), CreatedBefore: timestamppb.New(start.Add(time.Hour))}, []string{wait, done}},
		{"all at once", &jobsv1.ListJobsRequest{States: []jobsv1.State{succeeded}, Name: "b", UserName: "u-filter", AiCenterId: "c-filter"}, []string{done}},
	} {
		res, err := u.Jobs.ListJobs(t.Context(), x.r)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		var got []string
		for _, j := range res.Jobs {
			got = append(got, j.JobId)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

func testStop(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-stop", CPU: 1000})
	runs := a.Admin.Submit(t, c.Pin(apptest.Job("runs", 1)))
	r := c.Of(runs, 1)[0]
	r.Run()
	waits := a.Admin.Submit(t, c.Pin(apptest.Job("waits", 1)))
	stop := func(id, why string) *jobsv1.Job {
		t.Helper()
		j, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id, Reason: why})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if j := stop(waits, ""); j.State != stopped || j.ReplicasStopped != 1 || j.Message != "stopped by admin" || j.EndedAt == nil {
		t.Errorf("stopped while it waited: %v", j)
	}
	first := stop(runs, "no longer needed")
	if first.State != stopping || first.Message != "no longer needed" || first.Replicas[0].State != stopping {
		t.Errorf("stopped while it ran: %v", first)
	}
	r.AwaitStop()
	if again := stop(runs, "another reason"); again.Version != first.Version || again.Message != first.Message {
		t.Errorf("stopped again while stopping: %v", again)
	}
	r.End("stopped", 143)
	end := a.Admin.AwaitState(t, runs, stopped)
	if end.ReplicasStopped != 1 || end.Replicas[0].State != stopped || end.Replicas[0].ExitCode != 143 || end.Message != "no longer needed" {
		t.Errorf("stopped: %v", end)
	}
	if again := stop(runs, "too late"); again.Version != end.Version || again.State != stopped || again.Message != end.Message {
		t.Errorf("stopped again: %v", again)
	}
	done := a.Admin.Submit(t, c.Pin(apptest.Job("done", 1)))
	apptest.Succeed(c.Of(done, 1)[0])
	if j := stop(done, ""); j.State != succeeded {
		t.Errorf("stopped after it succeeded: %v", j)
	}
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: "job_none"}); code(err) != connect.CodeNotFound {
		t.Errorf("stop of nothing: %v", err)
	}
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: done, Reason: strings.Repeat("w", 128)}); !slices.Equal(violated(err), []string{"reason"}) {
		t.Errorf("long reason: %v", err)
	}
}

// The platform sends the stop and, to hear the truth from the center, the
// attempt: whichever comes first, it does not stay.
func testStopEarly(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-early"})
	c.Disconnect()
	id := a.Admin.Submit(t, c.Pin(apptest.Job("early", 1)))
	a.Admin.Await(t, id, "it is placed", func(j *jobsv1.Job) bool { return j.PlacedAt != nil })
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	c.Connect()
	r := c.Of(id, 1)[0]
	r.AwaitStop()
	r.End("stopped", 0)
	if j := a.Admin.AwaitState(t, id, stopped); j.StartedAt != nil || j.CostFen != 0 {
		t.Errorf("it never ran and says %v", j)
	}
}

func testUpdate(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-update", CPU: 1000})
	first := a.Admin.Submit(t, c.Pin(apptest.Job("first", 1)))
	r := c.Of(first, 1)[0]
	r.Run()
	low, high := a.Admin.Submit(t, c.Pin(apptest.Job("low", 1))), a.Admin.Submit(t, c.Pin(apptest.Job("high", 1)))
	desc, prio := "now urgent", int32(50)
	j, err := a.Admin.Jobs.UpdateJob(t.Context(), &jobsv1.UpdateJobRequest{JobId: high, Desc: &desc, Priority: &prio})
	if err != nil || j.Spec.Desc != desc || j.Spec.Priority != prio || j.Version < 2 {
		t.Fatalf("update: %v, %v", j, err)
	}
	r.End("completed", 0)
	if got := c.Await(2)[1].JobId; got != high {
		t.Errorf("%s was placed next, want %s, whose priority was raised over that of %s", got, high, low)
	}
	if now := a.Admin.Job(t, high); now.Version <= j.Version || now.Spec.Desc != desc {
		t.Errorf("it was placed as it had been before the update: %v, updated to %v", now, j)
	}
	apptest.Succeed(c.Of(high, 1)[0])
	apptest.Succeed(c.Of(low, 1)[0])
	for _, x := range []struct {
		r    *jobsv1.UpdateJobRequest
		want connect.Code
	}{
		{&jobsv1.UpdateJobRequest{JobId: high, Desc: &desc}, connect.CodeAborted},
		{&jobsv1.UpdateJobRequest{JobId: "job_none", Desc: &desc}, connect.CodeNotFound},
		{&jobsv1.UpdateJobRequest{JobId: high, Priority: ptr(int32(101))}, connect.CodeInvalidArgument},
		{&jobsv1.UpdateJobRequest{JobId: high, Desc: ptr(strings.Repeat("d", 128))}, connect.CodeInvalidArgument},
	} {
		if _, err := a.Admin.Jobs.UpdateJob(t.Context(), x.r); code(err) != x.want {
			t.Errorf("update %v: %v, want %v", x.r, err, x.want)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func testDelete(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-delete"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("deleted", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	del := func() error {
		_, err := a.Admin.Jobs.DeleteJob(t.Context(), &jobsv1.DeleteJobRequest{JobId: id})
		return err
	}
	if err := del(); code(err) != connect.CodeAborted {
		t.Errorf("delete while it runs: %v, want a conflict", err)
	}
	r.Write(strings.Repeat("x", 20<<10)) // kept as an object
	r.End("completed", 0)
	if log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || len(log) != 20<<10 {
		t.Fatalf("log of %d bytes, %v", len(log), err)
	}
	if err := del(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/jobs/" + id, "/v1/jobs/" + id + "/explain", "/v1/jobs/" + id + "/tasks/0/replicas/0/log"} {
		if res := a.Admin.REST(t, "GET", path, ""); res.Status != 404 {
			t.Errorf("GET %s after the deletion: %d %s", path, res.Status, res.Body)
		}
	}
	if err := del(); code(err) != connect.CodeNotFound {
		t.Errorf("delete again: %v", err)
	}
	usage, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: id})
	if err != nil || len(usage.Usage) != 1 {
		t.Errorf("usage after the deletion: %v, %v, want 1 record", usage, err)
	}
	// The center may still ask; nothing comes back.
	if res := c.Report(r.Status()); len(res.Recorded) != 1 || len(res.Unwanted) != 0 {
		t.Errorf("report of a deleted job: %v", res)
	}
	if res := c.Report(&adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: 1}); len(res.Unwanted) != 1 {
		t.Errorf("report that a deleted job runs: %v", res)
	}
	if res := a.Admin.REST(t, "GET", "/v1/jobs/"+id, ""); res.Status != 404 {
		t.Errorf("a report brought the job back: %d", res.Status)
	}
}

func testWatch(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-watch"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("watched", 2)))
	ctx, cancel := context.WithTimeout(t.Context(), apptest.Patience)
	defer cancel()
	s, err := a.Admin.Jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	until := func(what string, cond func(*jobsv1.Job) bool) *jobsv1.Job {
		t.Helper()
		for s.Receive() {
			if j := s.Msg().Job; cond(j) {
				return j
			}
		}
		t.Fatalf("the stream ended before %s: %v", what, s.Err())
		return nil
	}
	version := until("the first state", func(*jobsv1.Job) bool { return true }).Version
	next := func(what string, cond func(*jobsv1.Job) bool) {
		t.Helper()
		j := until(what, cond)
		if j.Version < version {
			t.Errorf("%s: version %d after %d", what, j.Version, version)
		}
		version = j.Version
	}
	rs := c.Of(id, 2)
	rs[0].Run()
	next("one runs", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 1 })
	rs[1].Run()
	next("two run", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 2 && j.State == running })
	rs[0].End("completed", 0)
	next("one succeeded", func(j *jobsv1.Job) bool { return j.ReplicasSucceeded == 1 })
	rs[1].End("completed", 0)
	next("the end", func(j *jobsv1.Job) bool { return j.State == succeeded })
	if s.Receive() || s.Err() != nil {
		t.Errorf("the stream goes on after the end: %v, %v", s.Msg(), s.Err())
	}
	// A watcher that comes late gets the end at once, and so does SSE.
	a.Admin.AwaitState(t, id, succeeded)
	res := a.Admin.REST(t, "GET", "/v1/jobs/"+id+"/events", "")
	if res.Status != 200 || res.Header.Get("Content-Type") != "text/event-stream" || strings.Count(string(res.Body), "event: job\n") != 1 || !strings.Contains(string(res.Body), "STATE_SUCCEEDED") {
		t.Errorf("events after the end: %d %s", res.Status, res.Body)
	}
}

func testWatchAll(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-watch", "u-watch", identityv1.Role_ROLE_USER)
	c := a.Join(t, apptest.Center{ID: "c-watchall", Play: apptest.Succeed})
	res := u.Open(t, "GET", "/v1/jobs/-/events", "")
	defer func() { _ = res.Body.Close() }()
	ids := []string{u.Submit(t, c.Pin(apptest.Job("mine-1", 1))), u.Submit(t, c.Pin(apptest.Job("mine-2", 1)))}
	other := a.Admin.Submit(t, c.Pin(apptest.Job("not-mine", 1)))
	a.Admin.AwaitState(t, other, succeeded)
	buf, seen := make([]byte, 64<<10), ""
	over := func() bool {
		n := 0
		for line := range strings.Lines(seen) {
			for _, id := range ids {
				if strings.HasPrefix(line, "data:") && strings.Contains(line, id) && strings.Contains(line, "STATE_SUCCEEDED") {
					n++
				}
			}
		}
		return n >= 2
	}
	for !over() {
		n, err := res.Body.Read(buf)
		seen += string(buf[:n])
		if err != nil {
			t.Fatalf("the stream ended before both jobs did: %v\n%s", err, seen)
		}
	}
	if strings.Contains(seen, other) || strings.Contains(seen, "not-mine") {
		t.Errorf("a watcher was told of another tenant's job:\n%s", seen)
	}
}

func testReports(t *testing.T, a *apptest.App) {
	c, other := a.Join(t, apptest.Center{ID: "c-report", CPU: 40_000}), a.Join(t, apptest.Center{ID: "c-report2"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("reports", 1)))
	r := c.Of(id, 1)[0]
	now := time.Now().UnixMicro()
	runs := &adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: now}
	end := &adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, StartedAt: now, EndedAt: now + 2_000_000, Reason: "completed", Log: []byte("hello\n"), LogInline: true}
	// Another center's word does not count.
	if res := other.Report(runs, end); !slices.Equal(res.Unwanted, []string{r.AttemptId}) || !slices.Equal(res.Recorded, []string{r.AttemptId}) {
		t.Errorf("another center's report: %v, want it to stop and forget", res)
	}
	if j := a.Admin.Job(t, id); j.ReplicasSucceeded+j.ReplicasRunning != 0 {
		t.Errorf("another center's report counts: %v", j)
	}
	if _, err := other.Raw(t.Context(), "putlog", marshal(t, &adapterv1.PutLogRequest{AttemptId: r.AttemptId, Data: []byte("forged")})); err != nil {
		t.Errorf("another center's log: %v, want it forgotten", err)
	}
	// The end comes before the beginning, everything comes twice.
	for _, st := range []*adapterv1.Status{end, runs, end, runs} {
		res := c.Report(st, st)
		if st == end && !slices.Contains(res.Recorded, r.AttemptId) {
			t.Errorf("the end is not recorded: %v", res)
		}
		if st == runs && !slices.Contains(res.Unwanted, r.AttemptId) {
			t.Errorf("an ended run that runs is wanted: %v", res)
		}
	}
	j := a.Admin.Job(t, id)
	x := j.Replicas[0]
	if j.State != succeeded || j.ReplicasSucceeded != 1 || j.ReplicasRunning != 0 || x.EndedAt.AsTime().Sub(x.StartedAt.AsTime()) != 2*time.Second {
		t.Errorf("job is %v", j)
	}
	if log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || log != "hello\n" {
		t.Errorf("log %q, %v", log, err)
	}
	usage, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: id})
	if err != nil || len(usage.Usage) != 1 {
		t.Errorf("usage: %v, %v, want one record", usage, err)
	}
	// Nobody ever heard of it.
	if res := c.Report(&adapterv1.Status{AttemptId: "att_x", Phase: adapterv1.Phase_PHASE_RUNNING}, &adapterv1.Status{AttemptId: "att_y", Phase: adapterv1.Phase_PHASE_ENDED}); !slices.Equal(res.Unwanted, []string{"att_x"}) ||
		!slices.Equal(res.Recorded, []string{"att_y"}) {
		t.Errorf("unknown attempts: %v", res)
	}
	// What was held is free again: as much as ever fits.
	full := a.Admin.Submit(t, c.Pin(apptest.Job("full", 40)))
	c.Of(full, 40)
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: full}); err != nil {
		t.Fatal(err)
	}
}

func testSchedulingTime(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-time"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("time", 2)))
	rs := c.Of(id, 2)
	pending := func(r *apptest.Replica) *adapterv1.Status {
		return &adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_PENDING}
	}
	c.Report(pending(rs[0]))
	if j := a.Admin.Job(t, id); j.Replicas[0].State != jobsv1.State_STATE_PENDING || j.SchedulingMicroseconds != 0 {
		t.Errorf("one accepted: %v", j)
	}
	c.Report(pending(rs[0]))
	rs[0].Run()
	if j := a.Admin.Job(t, id); j.SchedulingMicroseconds != 0 || j.Replicas[1].State != jobsv1.State_STATE_DISPATCHING {
		t.Errorf("one of two issued, and said so three times; the scheduling time is %d: %v", j.SchedulingMicroseconds, j)
	}
	c.Report(pending(rs[1]))
	j := a.Admin.Job(t, id)
	if us := j.SchedulingMicroseconds; us <= 0 || us > time.Since(j.CreatedAt.AsTime()).Microseconds() {
		t.Errorf("both issued, the scheduling time is %d µs; created %s ago", us, time.Since(j.CreatedAt.AsTime()))
	}
	rs[1].Run()
	rs[0].End("completed", 0)
	rs[1].End("completed", 0)
	if end := a.Admin.AwaitState(t, id, succeeded); end.SchedulingMicroseconds != j.SchedulingMicroseconds {
		t.Errorf("the scheduling time changed from %d to %d", j.SchedulingMicroseconds, end.SchedulingMicroseconds)
	}
}

func testRetries(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-retry"})
	for _, x := range []struct {
		name           string
		retries, fails int // the first so many runs fail
		runs           int
		want           jobsv1.State
	}{
		{"J-6.4.19 succeeded is not retried", 3, 0, 1, succeeded},
		{"J-6.4.20 fails once", 3, 1, 2, succeeded},
		{"J-6.4.20 fails to the last", 2, 2, 3, succeeded},
		{"J-6.4.20 fails for good", 2, 3, 3, failed},
		{"never again", 0, 1, 1, failed},
	} {
		j := c.Pin(apptest.Job("retry", 2)) // replica 1 always succeeds at once
		j.MaxRetries = int32(x.retries)
		id := a.Admin.Submit(t, j)
		apptest.Succeed(c.Of(id, 2)[1])
		for i := range x.runs {
			rs := c.Of(id, i+2)
			r := rs[i] // of replica 0, by attempt
			if got := r.Env["YUNHE_ATTEMPT"]; got != fmt.Sprint(i+1) || r.Env["YUNHE_REPLICA_INDEX"] != "0" {
				t.Fatalf("%s: run %d is attempt %s of replica %s", x.name, i+1, got, r.Env["YUNHE_REPLICA_INDEX"])
			}
			r.Run()
			if i < x.fails {
				r.End("exit", 7)
			} else {
				r.End("completed", 0)
			}
		}
		end := a.Admin.AwaitState(t, id, x.want)
		if got := end.Replicas[0]; int(got.Attempt) != x.runs || got.State != x.want {
			t.Errorf("%s: ended as %v", x.name, got)
		}
		usage, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: id})
		if err != nil || len(usage.Usage) != x.runs+1 {
			t.Errorf("%s: %d usage records, %v, want one for each of %d runs", x.name, len(usage.GetUsage()), err, x.runs+1)
		}
		if x.want == failed && (end.Reason != "exit" || !strings.Contains(end.Message, "exit code 7")) {
			t.Errorf("%s: reason %q, message %q", x.name, end.Reason, end.Message)
		}
		for n := 1; n <= x.runs; n++ {
			if _, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, Attempt: int32(n)}); err != nil {
				t.Errorf("%s: log of run %d: %v", x.name, n, err)
			}
		}
		if _, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, Attempt: int32(x.runs + 1)}); code(err) != connect.CodeNotFound {
			t.Errorf("%s: log of a run that never was: %v", x.name, err)
		}
	}
	// A job of one replica: while it waits again, nothing of it is placed.
	j := c.Pin(apptest.Job("retry-one", 1))
	j.MaxRetries = 1
	id := a.Admin.Submit(t, j)
	c.Of(id, 1)[0].End("exit", 1)
	apptest.Succeed(c.Of(id, 2)[1])
	if end := a.Admin.AwaitState(t, id, succeeded); end.Replicas[0].Attempt != 2 {
		t.Errorf("ended as %v", end)
	}
}

func testDecidedStops(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-decide"})
	for _, x := range []struct {
		row  string
		sp   jobsv1.SuccessPolicy
		fp   jobsv1.FailurePolicy
		ends []string // of the first replicas, in turn; the last decides
		want jobsv1.State
	}{
		{"J-6.4.14", jobsv1.SuccessPolicy_SUCCESS_POLICY_ALL, jobsv1.FailurePolicy_FAILURE_POLICY_ANY, []string{"completed", "completed", "completed"}, succeeded},
		{"J-6.4.15", jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY, jobsv1.FailurePolicy_FAILURE_POLICY_ALL, []string{"exit", "completed"}, succeeded},
		{"J-6.4.16", jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY, jobsv1.FailurePolicy_FAILURE_POLICY_ALL, []string{"exit", "oom", "signal"}, failed},
		{"J-6.4.17", jobsv1.SuccessPolicy_SUCCESS_POLICY_ALL, jobsv1.FailurePolicy_FAILURE_POLICY_ANY, []string{"completed", "wall_time"}, failed},
		{"mixed, neither holds", jobsv1.SuccessPolicy_SUCCESS_POLICY_ALL, jobsv1.FailurePolicy_FAILURE_POLICY_ALL, []string{"completed", "exit", "completed"}, failed},
	} {
		j := c.Pin(apptest.Job("decide", 3))
		j.SuccessPolicy, j.FailurePolicy = x.sp, x.fp
		id := a.Admin.Submit(t, j)
		rs := c.Of(id, 3)
		for _, r := range rs {
			r.Run()
		}
		for i, end := range x.ends {
			rs[i].End(end, 1)
		}
		for _, r := range rs[len(x.ends):] {
			if j := a.Admin.Job(t, id); j.State != stopping {
				t.Errorf("%s: decided and not stopping: %v", x.row, j)
			}
			r.AwaitStop()
			r.End("completed", 0) // it was faster than the stop: nothing changes for the job
		}
		end := a.Admin.AwaitState(t, id, x.want)
		if sum := end.ReplicasSucceeded + end.ReplicasFailed + end.ReplicasStopped; sum != 3 || end.ReplicasRunning != 0 {
			t.Errorf("%s: %v", x.row, end)
		}
		for _, r := range rs[:len(x.ends)] {
			if c.Stops(r.AttemptId) != 0 {
				t.Errorf("%s: replica %s had ended and was asked to stop", x.row, r.Env["YUNHE_REPLICA_INDEX"])
			}
		}
	}
}

func testDecidedWithRetry(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-undone", CPU: 2000})
	j := c.Pin(apptest.Job("undone", 2))
	j.MaxRetries, j.SuccessPolicy = 5, jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY
	id := a.Admin.Submit(t, j)
	rs := c.Of(id, 2)
	rs[0].Run()
	rs[1].Run()
	drain(t, a, c.ID, true) // so that the retry has to wait
	rs[0].End("exit", 1)
	if j := a.Admin.Job(t, id); j.Replicas[0].State != queued || !strings.Contains(j.Replicas[0].Message, "exit code 1") {
		t.Errorf("waits for a retry: %v", j.Replicas[0])
	}
	rs[1].End("completed", 0)
	end := a.Admin.AwaitState(t, id, succeeded)
	if end.Replicas[0].State != stopped || end.ReplicasStopped != 1 || end.ReplicasSucceeded != 1 {
		t.Errorf("decided while a retry waited: %v", end)
	}
	if _, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, Follow: true}); err != nil {
		t.Errorf("following the log of a replica that will not run again: %v, want its end", err)
	}
	if st := a.Admin.REST(t, "GET", "/openapi/v1/trainjob/"+id, ""); strings.Contains(string(st.Body), `"pending"`) {
		t.Errorf("a replica of an ended job is pending: %s", st.Body)
	}
}

func testRefusedAttempt(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-refuse", Refuse: func(*adapterv1.Attempt) string { return "no such image here" }})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("refused at", 1)))
	j := a.Admin.AwaitState(t, id, failed)
	if j.Reason != "refused" || !strings.Contains(j.Message, "no such image here") || j.StartedAt != nil || j.CostFen != 0 {
		t.Errorf("refused by its center: %v", j)
	}
}

// Whatever centers say in whatever order: counters add up, replicas agree with
// them, a decided job keeps its outcome, and nothing is held in the end.
func testCounters(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-count"})
	var wg sync.WaitGroup
	for seed := range uint64(12) {
		wg.Go(func() { play(t, a, c, rand.New(rand.NewPCG(seed, 7))) })
	}
	wg.Wait()
	if used := held(t, a, c.ID); used != 0 {
		t.Errorf("%d thousandths of a core are held by nothing", used)
	}
}

func play(t *testing.T, a *apptest.App, c *apptest.FakeCenter, rnd *rand.Rand) {
	n := 1 + rnd.IntN(5)
	j := c.Pin(apptest.Job("count", int32(n)))
	j.MaxRetries = int32(rnd.IntN(3))
	j.SuccessPolicy, j.FailurePolicy = jobsv1.SuccessPolicy(rnd.IntN(3)), jobsv1.FailurePolicy(rnd.IntN(3))
	id := a.Admin.Submit(t, j)
	c.Of(id, n)
	var outcome jobsv1.State
	trail := ""
	for step := range 400 {
		got := a.Admin.Job(t, id)
		check(t, got, trail)
		if outcome != 0 && got.State != stopping && got.State != outcome {
			t.Fatalf("%s: decided as %s, now %s", trail, outcome, got.State)
		}
		if ended(got.State) {
			if outcome == 0 {
				outcome = got.State
				continue // look once more
			}
			return
		}
		if step > 250 {
			_, _ = a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}) // an end to bad luck
		}
		rs := c.Of(id, 1)
		r := rs[rnd.IntN(len(rs))]
		what := []string{"run", "run", "completed", "exit", "oom", "again", "stop"}[rnd.IntN(7)]
		trail += fmt.Sprintf(" %s:%s", r.Env["YUNHE_REPLICA_INDEX"]+"/"+r.Env["YUNHE_ATTEMPT"], what)
		over := r.Status().Phase == adapterv1.Phase_PHASE_ENDED
		switch {
		case what == "again":
			c.Report(r.Status(), r.Status())
		case what == "stop" && rnd.IntN(12) > 0 || over:
		case what == "stop":
			if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
				t.Fatal(err)
			}
		case what == "run" && r.Status().Phase == adapterv1.Phase_PHASE_PENDING:
			r.Run()
		case what == "run":
		default:
			select {
			case <-r.Stopped():
				r.End("stopped", 0)
			default:
				r.End(what, 1)
			}
		}
	}
	t.Errorf("%s: never ends: %v", trail, a.Admin.Job(t, id))
}

func ended(s jobsv1.State) bool { return s == succeeded || s == failed || s == stopped }

// check compares a job's counters with its replicas.
func check(t *testing.T, j *jobsv1.Job, trail string) {
	t.Helper()
	by := map[jobsv1.State]int32{}
	for _, r := range j.Replicas {
		by[r.State]++
	}
	if int32(len(j.Replicas)) != j.ReplicasTotal || by[succeeded] != j.ReplicasSucceeded || by[failed] != j.ReplicasFailed || by[stopped] != j.ReplicasStopped {
		t.Fatalf("%s: counters %d/%d/%d of %d, replicas %v", trail, j.ReplicasSucceeded, j.ReplicasFailed, j.ReplicasStopped, j.ReplicasTotal, by)
	}
	if ended(j.State) != (j.EndedAt != nil) || ended(j.State) && by[succeeded]+by[failed]+by[stopped] != j.ReplicasTotal {
		t.Fatalf("%s: %s with replicas %v, ended %v", trail, j.State, by, j.EndedAt)
	}
}

// A gateway with a broken clock or a bad mind: its numbers are not believed,
// other attempts' reports in the same message get through, and what it did is
// recorded in the end.
func testHostileReports(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-hostile"})
	const much = 1 << 62
	for name, st := range map[string]*adapterv1.Status{
		"negative use":         {StartedAt: 1e15, EndedAt: 1e15 + 5, CpuMicroseconds: -5, MemoryPeakBytes: -1, ExitCode: -1 << 31},
		"end before start":     {StartedAt: 1e15, EndedAt: 1e14},
		"start far ahead":      {StartedAt: much, EndedAt: much + 1},
		"end far ahead":        {StartedAt: 1e15, EndedAt: much},
		"negative start":       {StartedAt: -much, EndedAt: 1e15},
		"end without start":    {EndedAt: 1e15},
		"message with zeros":   {StartedAt: 1e15, EndedAt: 1e15, Reason: "exit", Message: "a\x00b"},
		"reason with zeros":    {StartedAt: 1e15, EndedAt: 1e15, Reason: "a\x00b"},
		"long message":         {StartedAt: 1e15, EndedAt: 1e15, Reason: strings.Repeat("r", 1<<20), Message: strings.Repeat("云", 1<<18)},
		"phase nobody knows":   {Phase: 77},
		"log inline and empty": {StartedAt: 1e15, EndedAt: 1e15, LogInline: true},
	} {
		id := a.Admin.Submit(t, c.Pin(apptest.Job("hostile", 2)))
		rs := c.Of(id, 2)
		good := &adapterv1.Status{AttemptId: rs[1].AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "completed"}
		st.AttemptId = rs[0].AttemptId
		if st.Phase == 0 {
			st.Phase = adapterv1.Phase_PHASE_ENDED
		}
		ended := st.Phase == adapterv1.Phase_PHASE_ENDED
		var res adapterv1.ReportResponse
		if err := c.Ask("report", &adapterv1.ReportRequest{Statuses: []*adapterv1.Status{good, st}}, &res); err != nil {
			t.Errorf("%s: the report is refused for ever: %v", name, err)
			continue
		}
		if j := a.Admin.Job(t, id); j.ReplicasSucceeded != 1 || ended && j.EndedAt == nil {
			t.Errorf("%s: %v", name, j)
		}
		if ended && !slices.Contains(res.Recorded, rs[0].AttemptId) {
			t.Errorf("%s: not recorded: %v", name, &res)
		}
	}
}
