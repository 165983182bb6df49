package scheduler_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Each test uses a specification that only its own centers offer, so that one
// platform for each engine serves them all.
func TestPlatform(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"priority, then arrival", testOrder},
			{"a flood of equal jobs blocks no other", testFlood},
			{"a gang is placed whole or not at all", testGang},
			{"a decision names every candidate and why", testDecisions},
			{"what waits says why", testExplainWaiting},
			{"own weights change the choice", testOwnWeights},
			{"an unseen or drained center gets nothing", testOutOfUse},
			{"a stopped job is not placed", testStoppedNotPlaced},
			{"every policy of 6.6.2 is there and scores", testPolicies},
			{"annex A, scores", testScores},
			{"accelerators are as fast as is known", testCardSpeeds},
			{"figures of scheduling", testStats},
			{"room is never given twice", testNeverTwice},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
		}
	})
}

// The platform's own set belongs to all jobs: this test has its own platform.
func TestPolicySet(t *testing.T) {
	t.Parallel()
	apptest.Each(t, testPolicySet)
}

func code(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

// spec makes a specification of one core.
func spec(t *testing.T, a *apptest.App, id string) string {
	t.Helper()
	_, err := a.Registry.CreateSpec(t.Context(), registry.NewSpec{ID: id, Quantity: map[string]string{core.CPU: "1", core.Memory: "1Gi"}, Price: 100})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func job(name, spec string, replicas int32) *jobsv1.JobSpec {
	j := apptest.Job(name, replicas)
	j.Tasks[0].ResourceSpecId = spec
	return j
}

func explain(t *testing.T, c *apptest.Client, id string) []*schedulerv1.Decision {
	t.Helper()
	res, err := c.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res.Decisions
}

func testOrder(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-order")
	c := a.Join(t, apptest.Center{ID: "c-order", CPU: 1000, Prices: map[string]int64{s: 1}})
	first := a.Admin.Submit(t, job("first", s, 1))
	r := c.Of(first, 1)[0]
	r.Run()
	var ids []string
	for i, prio := range []int32{0, 0, 50, -50, 50} {
		j := job(fmt.Sprint("order-", i), s, 1)
		j.Priority = prio
		ids = append(ids, a.Admin.Submit(t, j))
	}
	want := []string{ids[2], ids[4], ids[0], ids[1], ids[3]}
	for i, id := range want {
		r.End("completed", 0)
		if r = c.Await(i + 2)[i+1]; r.JobId != id {
			t.Fatalf("placed as number %d: %s, want %s of %v", i, r.JobId, id, want)
		}
		r.Run()
	}
	r.End("completed", 0)
}

func testFlood(t *testing.T, a *apptest.App) {
	s, other := spec(t, a, "s-flood"), spec(t, a, "s-flood2")
	full := a.Join(t, apptest.Center{ID: "c-flood", CPU: 1000, Prices: map[string]int64{s: 1}})
	free := a.Join(t, apptest.Center{ID: "c-flood2", Prices: map[string]int64{other: 1}})
	var batch []*jobsv1.JobSpec
	for i := range 3000 { // more than a cycle takes
		j := job(fmt.Sprint("flood-", i), s, 1)
		j.Priority = 100
		batch = append(batch, j)
	}
	if _, err := a.Admin.Jobs.SubmitJobs(t.Context(), &jobsv1.SubmitJobsRequest{Jobs: batch}); err != nil {
		t.Fatal(err)
	}
	full.Await(1)
	low := job("low", other, 1)
	low.Priority = -100
	free.Of(a.Admin.Submit(t, low), 1)
	if n := len(full.Await(1)); n != 1 {
		t.Errorf("%d replicas where there is room for 1", n)
	}
}

func testGang(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-gang")
	c := a.Join(t, apptest.Center{ID: "c-gang", CPU: 3000, Prices: map[string]int64{s: 1}})
	part := a.Admin.Submit(t, job("part", s, 5))
	rs := c.Of(part, 3)
	if j := a.Admin.Job(t, part); j.State != jobsv1.State_STATE_SCHEDULING || j.PlacedAt != nil {
		t.Errorf("three of five placed: %v", j)
	}
	for _, r := range rs {
		apptest.Succeed(r)
	}
	for _, r := range c.Of(part, 5)[3:] {
		apptest.Succeed(r)
	}
	a.Admin.AwaitState(t, part, jobsv1.State_STATE_SUCCEEDED)

	big := job("gang of four", s, 4)
	big.Gang = true
	never := a.Admin.Submit(t, big)
	fits := job("gang of three", s, 2)
	fits.Tasks = append(fits.Tasks, apptest.Task("second", 1))
	fits.Tasks[1].ResourceSpecId, fits.Gang = s, true
	id := a.Admin.Submit(t, fits)
	c.Of(id, 3)
	at := a.Admin.Job(t, id)
	for _, r := range at.Replicas {
		if !r.PlacedAt.AsTime().Equal(at.PlacedAt.AsTime()) {
			t.Errorf("a gang was placed at different times: %v", at.Replicas)
		}
	}
	if j := a.Admin.Job(t, never); j.State != jobsv1.State_STATE_QUEUED {
		t.Errorf("a gang without room: %v", j)
	}
	for _, d := range explain(t, a.Admin, never) {
		if d.AiCenterId != "" || !strings.HasPrefix(d.Summary, "waits") {
			t.Errorf("a gang without room: %v", d)
		}
	}
}

// The record of a decision: for every replica every candidate, with each
// policy's score, weight and the final score, or why it was filtered.
func testDecisions(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-why")
	cheap := a.Join(t, apptest.Center{ID: "c-why-cheap", Region: "r1", Prices: map[string]int64{s: 10}, Grade: 1, Performance: 800, Play: apptest.Succeed})
	dear := a.Join(t, apptest.Center{ID: "c-why-dear", Region: "r2", Prices: map[string]int64{s: 90}, Grade: 4, Performance: 1600, Play: apptest.Succeed})
	small := a.Join(t, apptest.Center{ID: "c-why-small", Region: "r1", CPU: 500, Prices: map[string]int64{s: 5}})
	bare := a.Join(t, apptest.Center{ID: "c-why-bare", Prices: map[string]int64{s: 5}, Images: []string{"other"}})
	j := job("why", s, 3)
	j.Tasks = append(j.Tasks, apptest.Task("safe", 1))
	j.Tasks[1].ResourceSpecId, j.Tasks[1].Constraints = s, &jobsv1.Constraints{MinSecurityGrade: 3}
	j.PolicyWeights = map[string]int32{"lowest-price": 3, "highest-performance": 1}
	id := a.Admin.Submit(t, j)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	ds := explain(t, a.Admin, id)
	if len(ds) != 4 {
		t.Fatalf("%d decisions for 4 replicas", len(ds))
	}
	centers, err := a.Registry.Catalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range ds {
		wantTask, wantReplica, wantCenter := int32(0), int32(i), cheap.ID
		if i == 3 {
			wantTask, wantReplica, wantCenter = 1, 0, dear.ID
		}
		if d.TaskIndex != wantTask || d.ReplicaIndex != wantReplica || d.AiCenterId != wantCenter || d.Attempt != 1 || d.DecidedAt == nil || d.Summary == "" || d.TaskName != j.Tasks[wantTask].Name {
			t.Errorf("decision %d: %s %d/%d at %q, attempt %d: %s", i, d.TaskName, d.TaskIndex, d.ReplicaIndex, d.AiCenterId, d.Attempt, d.Summary)
		}
		seen := map[string]*schedulerv1.CandidateScore{}
		for _, k := range d.Candidates {
			seen[k.AiCenterId] = k
			checkCandidate(t, d, k)
		}
		for _, c := range []*apptest.FakeCenter{cheap, dear, small, bare} {
			if seen[c.ID] == nil {
				t.Errorf("decision %d does not name %s, one of %d centers", i, c.ID, len(centers.Centers))
			}
		}
		if !slices.ContainsFunc(seen[small.ID].FilterReasons, func(s string) bool { return strings.Contains(s, "cpu") }) {
			t.Errorf("decision %d: %s is filtered for %q, want its cpu", i, small.ID, seen[small.ID].FilterReasons)
		}
		if !slices.ContainsFunc(seen[bare.ID].FilterReasons, func(s string) bool { return strings.Contains(s, "host") }) {
			t.Errorf("decision %d: %s is filtered for %q, want the image", i, bare.ID, seen[bare.ID].FilterReasons)
		}
		if i == 3 {
			if !slices.ContainsFunc(seen[cheap.ID].FilterReasons, func(s string) bool { return strings.Contains(s, "security grade") }) {
				t.Errorf("%s is filtered for %q, want its security grade", cheap.ID, seen[cheap.ID].FilterReasons)
			}
			continue
		}
		if c, e := seen[cheap.ID], seen[dear.ID]; c.Rank != 1 || e.Rank != 2 || !c.Chosen || e.Chosen || c.FinalScore <= e.FinalScore {
			t.Errorf("decision %d: cheap %v, dear %v", i, c, e)
		}
	}
}

// checkCandidate recomputes equation 2 from the parts a record shows.
func checkCandidate(t *testing.T, d *schedulerv1.Decision, k *schedulerv1.CandidateScore) {
	t.Helper()
	if k.CenterName == "" {
		t.Errorf("candidate %s has no name", k.AiCenterId)
	}
	if len(k.FilterReasons) > 0 {
		if k.Rank != 0 || k.Chosen || k.FinalScore != 0 {
			t.Errorf("filtered and yet scored: %v", k)
		}
		return
	}
	if k.Chosen != (k.AiCenterId == d.AiCenterId) || k.Rank < 1 {
		t.Errorf("%s: %v", d.AiCenterId, k)
	}
	var sum, weights float64
	ids := map[string]bool{}
	for _, p := range k.Scores {
		ids[p.PolicyId] = true
		if p.Score < 0 || p.Score > 100 || math.Abs(p.Weighted-p.Weight*float64(p.Score)) > 1e-9 {
			t.Errorf("%s: %v", k.AiCenterId, p)
		}
		if p.Fact == "" && p.Weight > 0 {
			t.Errorf("%s: policy %s names no fact", k.AiCenterId, p.PolicyId)
		}
		sum, weights = sum+p.Weighted, weights+p.Weight
	}
	if math.Abs(weights-1) > 1e-9 || math.Abs(sum-k.FinalScore) > 1e-9 || k.FinalScoreRounded != int32(math.Floor(k.FinalScore+0.5)) {
		t.Errorf("%s: weights sum to %g, weighted scores to %g, final %g (%d)", k.AiCenterId, weights, sum, k.FinalScore, k.FinalScoreRounded)
	}
	if !ids["lowest-price"] || !ids["highest-performance"] {
		t.Errorf("%s: only policies %v are shown", k.AiCenterId, slices.Sorted(maps.Keys(ids)))
	}
}

func testExplainWaiting(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-wait")
	c := a.Join(t, apptest.Center{ID: "c-wait", CPU: 1000, Prices: map[string]int64{s: 1}})
	runs := a.Admin.Submit(t, job("runs", s, 1))
	r := c.Of(runs, 1)[0]
	r.Run()
	waits := a.Admin.Submit(t, job("waits", s, 2))
	ds := explain(t, a.Admin, waits)
	if len(ds) != 2 {
		t.Fatalf("%d decisions, want 2", len(ds))
	}
	for i, d := range ds {
		if d.Attempt != 0 || d.AiCenterId != "" || d.ReplicaIndex != int32(i) || !strings.HasPrefix(d.Summary, "waits: ") {
			t.Errorf("waits: %v", d)
		}
		k := d.Candidates[slices.IndexFunc(d.Candidates, func(k *schedulerv1.CandidateScore) bool { return k.AiCenterId == c.ID })]
		if len(k.FilterReasons) == 0 || k.Chosen {
			t.Errorf("full center: %v", k)
		}
	}
	r.End("completed", 0)
	apptest.Succeed(c.Of(waits, 1)[0])
	apptest.Succeed(c.Of(waits, 2)[1])
	for _, d := range explain(t, a.Admin, waits) {
		if d.Attempt != 1 || d.AiCenterId != c.ID {
			t.Errorf("placed now: %v", d)
		}
	}
	// A specification that goes away is said, not failed on.
	j := job("orphan", spec(t, a, "s-gone"), 1)
	id := a.Admin.Submit(t, j)
	if err := a.Registry.DeleteSpec(t.Context(), "s-gone"); err == nil {
		t.Errorf("a specification in use was deleted")
	}
	if ds := explain(t, a.Admin, id); len(ds) != 1 || ds[0].AiCenterId != "" || ds[0].Summary == "" {
		t.Errorf("offered nowhere: %v", ds)
	}
	if _, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: "job_none"}); code(err) != connect.CodeNotFound {
		t.Errorf("explain nothing: %v", err)
	}
}

func testOwnWeights(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-own")
	cheap := a.Join(t, apptest.Center{ID: "c-own-cheap", Prices: map[string]int64{s: 10}, Performance: 500, Grade: 1, Play: apptest.Succeed})
	fast := a.Join(t, apptest.Center{ID: "c-own-fast", Prices: map[string]int64{s: 50}, Performance: 2000, Grade: 2, Play: apptest.Succeed})
	safe := a.Join(t, apptest.Center{ID: "c-own-safe", Prices: map[string]int64{s: 50}, Performance: 500, Grade: 5, Play: apptest.Succeed})
	for policy, want := range map[string]*apptest.FakeCenter{"lowest-price": cheap, "highest-performance": fast, "highest-security": safe} {
		j := job("own "+policy, s, 1)
		j.PolicyWeights = map[string]int32{policy: 7}
		id := a.Admin.Submit(t, j)
		if got := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED); !slices.Equal(got.CenterIds, []string{want.ID}) {
			t.Errorf("%s: placed at %v, want %s", policy, got.CenterIds, want.ID)
		}
	}
	for name, w := range map[string]map[string]int32{"unknown": {"no-such": 1}, "all zero": {"lowest-price": 0}} {
		j := job("own wrong", s, 1)
		j.PolicyWeights = w
		if _, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j}); code(err) != connect.CodeInvalidArgument {
			t.Errorf("%s weights: %v", name, err)
		}
	}
}

func drain(t *testing.T, a *apptest.App, id string, out bool) {
	t.Helper()
	c, err := a.Registry.GetCenter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	c.Drained = out
	if _, err := a.Registry.UpdateCenter(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func testOutOfUse(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-out")
	unseen := a.Join(t, apptest.Center{ID: "c-out-unseen", Away: true, Prices: map[string]int64{s: 1}})
	drained := a.Join(t, apptest.Center{ID: "c-out-drained", Prices: map[string]int64{s: 1}})
	drain(t, a, drained.ID, true)
	id := a.Admin.Submit(t, job("out", s, 1))
	d := explain(t, a.Admin, id)[0]
	for _, k := range d.Candidates {
		if (k.AiCenterId == unseen.ID || k.AiCenterId == drained.ID) && len(k.FilterReasons) == 0 {
			t.Errorf("out of use and not filtered: %v", k)
		}
	}
	if j := a.Admin.Job(t, id); j.State != jobsv1.State_STATE_QUEUED {
		t.Errorf("placed out of use: %v", j)
	}
	unseen.Connect() // room comes without any job being submitted
	r := unseen.Of(id, 1)[0]
	apptest.Succeed(r)
	two := a.Admin.Submit(t, job("out", s, 1))
	apptest.Succeed(unseen.Of(two, 1)[0])
	if n := len(drained.Await(0)); n != 0 {
		t.Errorf("%d replicas at a drained center", n)
	}
}

func testStoppedNotPlaced(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-stop")
	c := a.Join(t, apptest.Center{ID: "c-sched-stop", CPU: 1000, Prices: map[string]int64{s: 1}})
	first := a.Admin.Submit(t, job("first", s, 1))
	r := c.Of(first, 1)[0]
	r.Run()
	gone, next := a.Admin.Submit(t, job("gone", s, 1)), a.Admin.Submit(t, job("next", s, 1))
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: gone}); err != nil {
		t.Fatal(err)
	}
	r.End("completed", 0)
	apptest.Succeed(c.Of(next, 1)[0])
	a.Admin.AwaitState(t, next, jobsv1.State_STATE_SUCCEEDED)
	for _, r := range c.Await(2) {
		if r.JobId == gone {
			t.Errorf("a stopped job was placed")
		}
	}
	if j := a.Admin.Job(t, gone); j.State != jobsv1.State_STATE_STOPPED || j.Replicas[0].AttemptId != "" {
		t.Errorf("stopped in the queue: %v", j)
	}
}

// J-6.6.2.3 to .10 by name; every listed policy scores every center.
func testPolicies(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-policy", Grade: 3, Performance: 1000, Static: 1000, Active: 5000, Longitude: 106, Latitude: 26})
	res, err := a.Admin.Scheduler.ListPolicies(t.Context(), &schedulerv1.ListPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, p := range res.Policies {
		ids[p.PolicyId] = true
		if p.Title == "" || p.TitleZh == "" || p.Doc == "" || len(p.Factors) == 0 || len(p.PolicyId) > 32 {
			t.Errorf("policy %v is not described", p)
		}
		got, err := a.Admin.Scheduler.ScoreCenter(t.Context(), &schedulerv1.ScoreCenterRequest{PolicyId: p.PolicyId, AiCenterId: c.ID})
		if err != nil || got.Score < 0 || got.Score > 100 {
			t.Errorf("score under %s: %v, %v", p.PolicyId, got, err)
		}
	}
	for _, id := range []string{"least-load", "idle-spec", "data-topology", "lowest-price", "lowest-energy", "highest-performance", "highest-security", "load-fairness"} {
		if !ids[id] {
			t.Errorf("policy %s of clause 6.6.2 is missing", id)
		}
	}
	if len(res.Presets) != len(place.Presets()) || len(res.Presets) == 0 {
		t.Errorf("%d presets", len(res.Presets))
	}
	// What scores under a policy follows its fact, here for a job pinned to two.
	s := spec(t, a, "s-policy")
	best := a.Join(t, apptest.Center{ID: "c-policy-a", Prices: map[string]int64{s: 10}, Grade: 5, Performance: 2000, Static: 100, Active: 1000})
	worst := a.Join(t, apptest.Center{ID: "c-policy-b", Prices: map[string]int64{s: 20}, Grade: 0, Performance: 500, Static: 9000, Active: 90000})
	j := job("policy", s, 1)
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{best.ID, worst.ID}}
	id := a.Admin.Submit(t, j)
	for _, p := range []string{"lowest-price", "lowest-energy", "highest-performance", "highest-security"} {
		var n [2]int32
		for i, c := range []string{best.ID, worst.ID} {
			got, err := a.Admin.Scheduler.ScoreCenter(t.Context(), &schedulerv1.ScoreCenterRequest{PolicyId: p, AiCenterId: c, JobId: id})
			if err != nil {
				t.Fatalf("%s of %s: %v", p, c, err)
			}
			n[i] = got.Score
		}
		if n[0] <= n[1] {
			t.Errorf("under %s the better center has %d, the worse %d", p, n[0], n[1])
		}
	}
}

// Work on accelerators goes where they are fastest: by what makers publish of
// the models there, and by what a center states.
func testCardSpeeds(t *testing.T, a *apptest.App) {
	ctx := t.Context()
	if _, err := a.Registry.CreateSpec(ctx, registry.NewSpec{ID: "s-card", Quantity: map[string]string{core.CPU: "1", core.Memory: "1Gi", "gpu": "1"}, Price: 100}); err != nil {
		t.Fatal(err)
	}
	centers := map[string]*apptest.FakeCenter{}
	for _, model := range []string{"NVIDIA H200", "NVIDIA A100-SXM4-80GB"} {
		id := map[string]string{"NVIDIA H200": "c-card-new", "NVIDIA A100-SXM4-80GB": "c-card-old"}[model]
		c := a.Join(t, apptest.Center{ID: id, GPU: 1000, Prices: map[string]int64{"s-card": 100}, Play: apptest.Succeed})
		node := &adapterv1.Node{Name: "n", State: adapterv1.NodeState_NODE_STATE_READY, Capacity: map[string]int64{"gpu": 1000},
			Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: model, Count: 1000, Resource: "gpu"}}}
		if err := c.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: c.Inventory(), Node: node}, &adapterv1.HeartbeatResponse{}); err != nil {
			t.Fatal(err)
		}
		centers[id] = c
	}
	goes := func(when, precision, want string) {
		t.Helper()
		j := job("card "+when, "s-card", 1)
		j.PolicyWeights = map[string]int32{"highest-performance": 1}
		j.Tasks[0].Precision = precision
		id := a.Admin.Submit(t, j)
		if got := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED); !slices.Equal(got.CenterIds, []string{want}) {
			t.Errorf("%s: placed at %v, want %s: %v", when, got.CenterIds, want, explain(t, a.Admin, id))
		}
	}
	goes("published", "FP16", "c-card-new")
	goes("published, no precision", "", "c-card-new")
	// What a center states counts before what is published.
	k, err := a.Registry.GetCenter(ctx, "c-card-old")
	if err != nil {
		t.Fatal(err)
	}
	k.Labels = map[string]string{"speed.gpu": "9", "speed.gpu.FP32": "9"}
	if _, err := a.Registry.UpdateCenter(ctx, k); err != nil {
		t.Fatal(err)
	}
	goes("stated", "", "c-card-old")
	goes("stated of another precision", "FP16", "c-card-new")
	goes("stated", "FP32", "c-card-old")
}

// Rows J-A.5.1 to J-A.6.3.
func testScores(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-score")
	c := a.Join(t, apptest.Center{ID: "c-score", Grade: 3, Prices: map[string]int64{s: 3, "small": 100}})
	id := a.Admin.Submit(t, job("score", s, 1))
	evaluate := func(ids, scores string) string {
		return "/scheduler/evaluate/score/" + c.ID + "?" + ids + "&" + scores
	}
	for _, x := range []struct {
		name, path string
		status     int
		code       string
	}{
		{"A.5", "/scheduler/algorithm/lowest-price/score/" + c.ID, 200, "OK"},
		{"A.5 for a job", "/scheduler/algorithm/lowest-price/score/" + c.ID + "?jobId=" + id, 200, "OK"},
		{"A.5 unknown algorithm", "/scheduler/algorithm/no-such/score/" + c.ID, 404, "NOT_FOUND"},
		{"A.5 unknown center", "/scheduler/algorithm/lowest-price/score/no-such", 404, "NOT_FOUND"},
		{"A.5 unknown job", "/scheduler/algorithm/lowest-price/score/" + c.ID + "?jobId=job_none", 404, "NOT_FOUND"},
		{"A.5 unknown parameter", "/scheduler/algorithm/lowest-price/score/" + c.ID + "?x=1", 400, "INVALID_ARGUMENT"},
		{"A.5 long algorithm", "/scheduler/algorithm/" + strings.Repeat("é", 500) + "/score/" + c.ID, 404, "NOT_FOUND"},
		{"A.6 repeated", evaluate("algorithmIds=lowest-price&algorithmIds=highest-security", "algorithmScores=100&algorithmScores=100"), 200, "OK"},
		{"A.6 with commas", evaluate("algorithmIds=lowest-price,highest-security", "algorithmScores=100,100"), 200, "OK"},
		{"A.6 mixed", evaluate("algorithmIds=lowest-price,highest-security", "algorithmScores=100&algorithmScores=100"), 200, "OK"},
		{"A.6 unknown algorithm", evaluate("algorithmIds=no-such", "algorithmScores=1"), 400, "INVALID_ARGUMENT"},
		{"A.6 fewer scores", evaluate("algorithmIds=lowest-price,highest-security", "algorithmScores=1"), 400, "INVALID_ARGUMENT"},
		{"A.6 algorithm twice", evaluate("algorithmIds=lowest-price,lowest-price", "algorithmScores=1,1"), 400, "INVALID_ARGUMENT"},
		{"A.6 score of 101", evaluate("algorithmIds=lowest-price", "algorithmScores=101"), 400, "INVALID_ARGUMENT"},
		{"A.6 score of -1", evaluate("algorithmIds=lowest-price", "algorithmScores=-1"), 400, "INVALID_ARGUMENT"},
		{"A.6 score of words", evaluate("algorithmIds=lowest-price", "algorithmScores=x"), 400, "INVALID_ARGUMENT"},
		{"A.6 score past all numbers", evaluate("algorithmIds=lowest-price", "algorithmScores=99999999999999999999"), 400, "INVALID_ARGUMENT"},
		{"A.6 33 algorithms", evaluate("algorithmIds="+strings.Repeat("a,", 32)+"a", "algorithmScores="+strings.Repeat("1,", 32)+"1"), 400, "INVALID_ARGUMENT"},
		{"A.6 nothing", "/scheduler/evaluate/score/" + c.ID, 400, "INVALID_ARGUMENT"},
		{"A.6 unknown center", strings.Replace(evaluate("algorithmIds=lowest-price", "algorithmScores=1"), c.ID, "no-such", 1), 404, "NOT_FOUND"},
	} {
		path, query, _ := strings.Cut(x.path, "?")
		res := a.Admin.REST(t, "GET", (&url.URL{Path: path, RawQuery: query}).String(), "")
		var e struct {
			Status   int
			Code     string
			ErrorMsg string
			Data     *struct{ Score *int }
		}
		if err := json.Unmarshal(res.Body, &e); err != nil || e.Status != res.Status || res.Status != x.status || e.Code != x.code {
			t.Errorf("%s: %d %s, want %d %s", x.name, res.Status, res.Body, x.status, x.code)
			continue
		}
		if x.status == 200 && (e.Data == nil || e.Data.Score == nil || *e.Data.Score < 0 || *e.Data.Score > 100) || x.status != 200 && (e.Data != nil || e.ErrorMsg == "") {
			t.Errorf("%s: %s", x.name, res.Body)
		}
	}
	full := a.Join(t, apptest.Center{ID: "c-score-full", CPU: 10, Prices: map[string]int64{s: 3}})
	res := a.Admin.REST(t, "GET", "/scheduler/algorithm/lowest-price/score/"+full.ID+"?jobId="+id, "")
	if res.Status != 409 || !strings.Contains(string(res.Body), "cpu") {
		t.Errorf("A.5 of a center that cannot run it: %d %s", res.Status, res.Body)
	}
	// Equation 2, rounded half away from zero, with the platform's weights.
	set, err := a.Admin.Scheduler.GetPolicySet(t.Context(), &schedulerv1.GetPolicySetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w1, w2 := float64(set.Weights["lowest-price"]), float64(set.Weights["least-load"])
	got, err := a.Admin.Scheduler.EvaluateCenter(t.Context(), &schedulerv1.EvaluateCenterRequest{AiCenterId: c.ID, PolicyIds: []string{"least-load", "lowest-price"}, Scores: []int32{31, 84}})
	if want := int32(math.Floor((w2*31+w1*84)/(w1+w2) + 0.5)); err != nil || got.Score != want {
		t.Errorf("A.6 with weights %g and %g: %v, %v, want %d", w1, w2, got, err, want)
	}
}

func testStats(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-stats")
	a.Join(t, apptest.Center{ID: "c-stats", Prices: map[string]int64{s: 3}, Play: apptest.Succeed})
	get := func() *schedulerv1.GetSchedulingStatsResponse {
		st, err := a.Admin.Scheduler.GetSchedulingStats(t.Context(), &schedulerv1.GetSchedulingStatsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	before := get()
	for range 3 {
		a.Admin.AwaitState(t, a.Admin.Submit(t, job("stats", s, 2)), jobsv1.State_STATE_SUCCEEDED)
	}
	var st *schedulerv1.GetSchedulingStatsResponse
	apptest.Until(t, "the jobs are counted", func() bool { st = get(); return st.JobsScheduled >= before.JobsScheduled+3 })
	if st.TotalMicroseconds <= before.TotalMicroseconds || st.SchedulingP50Microseconds <= 0 || st.SchedulingP99Microseconds < st.SchedulingP50Microseconds {
		t.Errorf("before %v, after %v", before, st)
	}
	if want := float64(st.JobsScheduled) / (float64(st.TotalMicroseconds) / 1e6); math.Abs(st.ThroughputPerSecond-want) > want/1000 {
		t.Errorf("throughput %g, want %g (equation 4)", st.ThroughputPerSecond, want)
	}
	w := st.Window
	if w.Seconds != 300 || w.JobsScheduled < 3 || w.ReplicasPlaced < 6 || w.MeasuredJobs < 3 || w.SchedulingP50Microseconds <= 0 || w.SchedulingP95Microseconds < w.SchedulingP50Microseconds ||
		w.SchedulingP99Microseconds < w.SchedulingP95Microseconds || w.SchedulingMaxMicroseconds < w.SchedulingP99Microseconds {
		t.Errorf("window %v", w)
	}
	if want := float64(w.JobsScheduled) / (float64(w.TotalMicroseconds) / 1e6); math.Abs(w.ThroughputPerSecond-want) > want/1000 {
		t.Errorf("throughput of the window %g, want %g (equation 4)", w.ThroughputPerSecond, want)
	}
	for _, n := range []int64{-1, 86401} {
		if _, err := a.Admin.Scheduler.GetSchedulingStats(t.Context(), &schedulerv1.GetSchedulingStatsRequest{WindowSeconds: n}); code(err) != connect.CodeInvalidArgument {
			t.Errorf("window of %d s: %v", n, err)
		}
	}
	// Queues: of the own tenant for a user, of all for an administrator.
	mine, other := a.User(t, "t-stats", "u-stats", identityv1.Role_ROLE_USER), a.User(t, "t-stats2", "u-stats2", identityv1.Role_ROLE_USER)
	stuck := job("stuck", s, 3)
	stuck.Tasks[0].Constraints = &jobsv1.Constraints{Regions: []string{"nowhere"}}
	mine.Submit(t, stuck)
	mine.Submit(t, stuck)
	other.Submit(t, stuck)
	for _, x := range []struct {
		c    *apptest.Client
		want string
	}{{mine, "t-stats:2:6"}, {other, "t-stats2:1:3"}} {
		st, err := x.c.Scheduler.GetSchedulingStats(t.Context(), &schedulerv1.GetSchedulingStatsRequest{WindowSeconds: 10})
		if err != nil || len(st.Tenants) != 1 || fmt.Sprintf("%s:%d:%d", st.Tenants[0].TenantId, st.Tenants[0].Jobs, st.Tenants[0].Replicas) != x.want || st.Queued < 3 {
			t.Errorf("queues %v, %v, want %s", st.GetTenants(), err, x.want)
		}
	}
	seen := 0
	for _, q := range get().Tenants {
		if q.TenantId == "t-stats" || q.TenantId == "t-stats2" {
			seen++
		}
	}
	if seen != 2 {
		t.Errorf("an administrator sees %d of 2 queues", seen)
	}
}

// Many jobs of many replicas over centers that are too small: what is held
// never passes the room, and everything ends.
func testNeverTwice(t *testing.T, a *apptest.App) {
	s := spec(t, a, "s-twice")
	for i := range 3 {
		a.Join(t, apptest.Center{ID: fmt.Sprint("c-twice-", i), CPU: int64(1000 * (i + 1)), Prices: map[string]int64{s: int64(i)}, Play: apptest.Succeed})
	}
	var ids []string
	for i := range 12 {
		j := job("twice", s, int32(1+i%4))
		j.Gang = i%3 == 0
		ids = append(ids, a.Admin.Submit(t, j))
	}
	for _, id := range ids {
		j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		for _, r := range j.Replicas {
			if r.Attempt != 1 {
				t.Errorf("%s: placed twice: %v", id, r)
			}
		}
	}
	for i := range 3 {
		c, err := a.Registry.GetCenter(t.Context(), fmt.Sprint("c-twice-", i))
		if err != nil || c.Used[core.CPU] != 0 || c.Running != 0 || c.Waiting != 0 {
			t.Errorf("in the end center %d holds %v: %d running, %d waiting, %v", i, c.Used, c.Running, c.Waiting, err)
		}
	}
}

func testPolicySet(t *testing.T, a *apptest.App) {
	get := func() *schedulerv1.PolicySet {
		p, err := a.Admin.Scheduler.GetPolicySet(t.Context(), &schedulerv1.GetPolicySetRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	set := func(p *schedulerv1.PolicySet) error {
		_, err := a.Admin.Scheduler.SetPolicySet(t.Context(), &schedulerv1.SetPolicySetRequest{PolicySet: p})
		return err
	}
	if p := get(); p.Preset == "" || len(p.Weights) == 0 || p.UpdatedAt != nil {
		t.Errorf("a new platform's set: %v", p)
	}
	cheap := a.Join(t, apptest.Center{ID: "a-cheap", Prices: map[string]int64{"small": 10}, Grade: 1, Play: apptest.Succeed})
	safe := a.Join(t, apptest.Center{ID: "b-safe", Prices: map[string]int64{"small": 90}, Grade: 5, Play: apptest.Succeed})
	for policy, want := range map[string]string{"lowest-price": cheap.ID, "highest-security": safe.ID} {
		if err := set(&schedulerv1.PolicySet{Weights: map[string]int32{policy: 1000}}); err != nil {
			t.Fatal(err)
		}
		if p := get(); p.Preset != "" || p.Weights[policy] != 1000 || p.UpdatedAt == nil {
			t.Errorf("set to %s: %v", policy, p)
		}
		j := a.Admin.AwaitState(t, a.Admin.Submit(t, apptest.Job(policy, 1)), jobsv1.State_STATE_SUCCEEDED)
		if !slices.Equal(j.CenterIds, []string{want}) {
			t.Errorf("under %s placed at %v, want %s", policy, j.CenterIds, want)
		}
	}
	for _, preset := range place.Presets() {
		if err := set(&schedulerv1.PolicySet{Preset: preset.ID}); err != nil {
			t.Errorf("preset %s: %v", preset.ID, err)
		}
		if p := get(); p.Preset != preset.ID || len(p.Weights) == 0 {
			t.Errorf("preset %s: %v", preset.ID, p)
		}
	}
	before := get()
	for name, p := range map[string]*schedulerv1.PolicySet{
		"nothing": nil, "no weights": {}, "all zero": {Weights: map[string]int32{"lowest-price": 0}}, "unknown policy": {Weights: map[string]int32{"no-such": 1}},
		"unknown preset": {Preset: "no-such"}, "both": {Preset: before.Preset, Weights: map[string]int32{"lowest-price": 1}},
		"negative": {Weights: map[string]int32{"lowest-price": -1}}, "past 1000": {Weights: map[string]int32{"lowest-price": 1001}},
	} {
		if err := set(p); code(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if p := get(); p.Preset != before.Preset || !maps.Equal(p.Weights, before.Weights) {
		t.Errorf("a refused set changed it: %v", p)
	}
}
