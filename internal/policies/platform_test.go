package policies_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	policiesv1 "yunhe.dev/yunhe/gen/yunhe/policies/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

// platform has two centers: near is dear, far is cheap.
type platform struct {
	*apptest.App
	t         *testing.T
	near, far *apptest.FakeCenter
}

// each runs a test on a platform with each database engine.
func each(t *testing.T, f func(t *testing.T, p *platform)) {
	t.Helper()
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) { f(t, centers(t, a)) })
}

func centers(t *testing.T, a *apptest.App) *platform {
	prices := func(fen int64) map[string]int64 { return map[string]int64{"small": fen} }
	return &platform{App: a, t: t,
		near: a.Join(t, apptest.Center{ID: "near", Region: "north", Prices: prices(900), Performance: 2000, Grade: 4, Active: 20_000, Play: apptest.Succeed}),
		far:  a.Join(t, apptest.Center{ID: "far", Region: "south", Prices: prices(100), Performance: 500, Grade: 1, Active: 40_000, Play: apptest.Succeed})}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// code expects an error of the kind.
func code(t testing.TB, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func weights(id string, priority int32, pairs map[string]int32) *policiesv1.PolicyDocument {
	return &policiesv1.PolicyDocument{PolicyId: id, Priority: priority, Rules: &policiesv1.PolicyRules{Weights: pairs}}
}

var (
	cheap = map[string]int32{"lowest-price": 1}
	fast  = map[string]int32{"highest-performance": 1}
)

// put makes a version.
func (p *platform) put(d *policiesv1.PolicyDocument) int64 {
	p.t.Helper()
	r, err := p.Admin.Policies.CreatePolicy(p.t.Context(), &policiesv1.CreatePolicyRequest{Document: d})
	if connect.CodeOf(err) == connect.CodeAlreadyExists {
		r, err = p.Admin.Policies.UpdatePolicy(p.t.Context(), &policiesv1.UpdatePolicyRequest{Document: d})
	}
	must(p.t, err)
	return r.Version.Version
}

func (p *platform) issue(id string, version int64) {
	p.t.Helper()
	_, err := p.Admin.Policies.IssuePolicy(p.t.Context(), &policiesv1.IssuePolicyRequest{PolicyId: id, Version: version, Reason: "test"})
	must(p.t, err)
}

func (p *platform) withdraw(id string) {
	p.t.Helper()
	_, err := p.Admin.Policies.WithdrawPolicy(p.t.Context(), &policiesv1.WithdrawPolicyRequest{PolicyId: id})
	must(p.t, err)
}

func job(name string) *jobsv1.JobSpec {
	j := apptest.Job(name, 1)
	j.Tasks[0].ResourceSpecId = "small"
	return j
}

// placed submits a job and returns where it went and what decided.
func (p *platform) placed(c *apptest.Client, j *jobsv1.JobSpec) (center, policy string) {
	p.t.Helper()
	id := c.Submit(p.t, j)
	c.Await(p.t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
	d := p.decision(id)
	return d.AiCenterId, d.Policy
}

func (p *platform) decision(id string) *schedulerv1.Decision {
	p.t.Helper()
	res, err := p.Admin.Scheduler.ExplainJob(p.t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	must(p.t, err)
	if len(res.Decisions) != 1 {
		p.t.Fatalf("%d decisions about %s", len(res.Decisions), id)
	}
	return res.Decisions[0]
}

func (p *platform) goes(what string, j *jobsv1.JobSpec, center, policy string) {
	p.t.Helper()
	c, by := p.placed(p.Admin, j)
	if c != center || by != policy {
		p.t.Errorf("%s: went to %s by %s, want %s by %s", what, c, by, center, policy)
	}
}

// The life of a policy: from a draft to rolling back, the next job following
// it each time, also after a restart.
func TestLife(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		ctx, api := t.Context(), p.Admin.Policies
		p.goes("no policy", job("j0"), p.decisionOf("j00"), "balanced")
		one := p.put(weights("gold", 0, cheap))
		equal(t, "first version", one, 1)
		equal(t, "the same again", p.put(weights("gold", 0, cheap)), 1)
		equal(t, "second version", p.put(weights("gold", 0, fast)), 2)
		_, err := api.UpdatePolicy(ctx, &policiesv1.UpdatePolicyRequest{Document: weights("gold", 1, fast), BaseVersion: 1})
		code(t, "a change of an old version", err, connect.CodeAborted)
		_, err = api.UpdatePolicy(ctx, &policiesv1.UpdatePolicyRequest{Document: weights("no", 1, fast)})
		code(t, "a change of nothing", err, connect.CodeNotFound)
		v, err := api.ValidatePolicy(ctx, &policiesv1.ValidatePolicyRequest{PolicyId: "gold"})
		must(t, err)
		if !v.Valid || len(v.JobVariables) < 10 || len(v.CenterVariables) < 20 {
			t.Errorf("validated: %v", v)
		}
		s, err := api.SimulatePolicy(ctx, &policiesv1.SimulatePolicyRequest{PolicyId: "gold"})
		must(t, err)
		if s.Jobs < 1 || s.Matched != s.Jobs || s.PolicyCenters["near"] != s.Tasks || s.Method == "" {
			t.Errorf("simulated: %v", s)
		}
		r, err := api.GetPolicyRecord(ctx, &policiesv1.GetPolicyRecordRequest{PolicyId: "gold"})
		must(t, err)
		if r.Version.State != policiesv1.PolicyState_POLICY_STATE_SIMULATED || r.Version.ValidationMethod != "simulation" || r.IssuedVersion != 0 || !slices.Contains(r.Operations, "delete") {
			t.Errorf("a simulated draft: %v", r)
		}
		p.issue("gold", 1)
		p.goes("version 1 in force", job("j1"), "far", "gold@1")
		p.issue("gold", 2)
		p.issue("gold", 2) // again
		p.goes("version 2 in force", job("j2"), "near", "gold@2")
		r, err = api.RollBackPolicy(ctx, &policiesv1.RollBackPolicyRequest{PolicyId: "gold", Reason: "too dear"})
		must(t, err)
		equal(t, "rolled back to", r.IssuedVersion, 1)
		p.goes("rolled back", job("j3"), "far", "gold@1")
		_, err = api.RollBackPolicy(ctx, &policiesv1.RollBackPolicyRequest{PolicyId: "gold"})
		code(t, "nothing before", err, connect.CodeAborted)
		_, err = api.DeletePolicy(ctx, &policiesv1.DeletePolicyRequest{PolicyId: "gold"})
		code(t, "delete what is in force", err, connect.CodeAborted)
		p.Restart()
		ctx, api = t.Context(), p.Admin.Policies
		p.goes("after a restart", job("j4"), "far", "gold@1")
		p.withdraw("gold")
		p.withdraw("gold") // again
		if _, by := p.placed(p.Admin, job("j5")); by != "balanced" {
			t.Errorf("withdrawn: decided by %s", by)
		}
		r, err = api.RollBackPolicy(ctx, &policiesv1.RollBackPolicyRequest{PolicyId: "gold", Version: 2})
		must(t, err)
		equal(t, "rolled back to version 2", r.IssuedVersion, 2)
		d, err := api.DiffPolicyVersions(ctx, &policiesv1.DiffPolicyVersionsRequest{PolicyId: "gold", From: 1})
		must(t, err)
		if got := fmt.Sprint(d.Differences); len(d.Differences) != 2 || d.Differences[0].Path != "rules.weights.highest-performance" || d.Differences[0].After != "1" || d.Differences[1].Before != "1" {
			t.Errorf("differences: %s", got)
		}
		p.withdraw("gold")
		_, err = api.DeletePolicy(ctx, &policiesv1.DeletePolicyRequest{PolicyId: "gold", Reason: "done"})
		must(t, err)
		_, err = api.GetPolicyRecord(ctx, &policiesv1.GetPolicyRecordRequest{PolicyId: "gold"})
		code(t, "a deleted policy", err, connect.CodeNotFound)
		vs, err := api.ListPolicyVersions(ctx, &policiesv1.ListPolicyVersionsRequest{PolicyId: "gold"})
		must(t, err)
		equal(t, "versions kept", len(vs.Versions), 2)
		es, err := api.ListPolicyEvents(ctx, &policiesv1.ListPolicyEventsRequest{PolicyId: "gold"})
		must(t, err)
		var did []string
		for _, e := range es.Events {
			did = append(did, fmt.Sprintf("%s %d", e.Action, e.Version))
			if e.UserId == "" || e.At == nil {
				t.Errorf("an event of nobody: %v", e)
			}
		}
		equal(t, "events", strings.Join(did, ", "), "deleted 2, withdrawn 2, rolled back 2, withdrawn 1, rolled back 1, issued 2, issued 1, simulated 2, validated 2, updated 2, created 1")
		equal(t, "created anew", p.put(weights("gold", 0, cheap)), 3)
	})
}

// decisionOf is where a job goes that no policy decides about.
func (p *platform) decisionOf(name string) string {
	p.t.Helper()
	c, _ := p.placed(p.Admin, job(name))
	return c
}

// Documents that cannot work are refused with all that is wrong.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		ctx, api := t.Context(), p.Admin.Policies
		bad := weights("gold", 2000, map[string]int32{"no": 1})
		bad.MatchRules = []*policiesv1.PolicyMatchRule{{Expression: "job.tenant = 'x'"}}
		_, err := api.CreatePolicy(ctx, &policiesv1.CreatePolicyRequest{Document: bad})
		code(t, "create", err, connect.CodeInvalidArgument)
		v, err := api.ValidatePolicy(ctx, &policiesv1.ValidatePolicyRequest{Document: bad})
		must(t, err)
		var got []string
		for _, x := range v.Problems {
			got = append(got, fmt.Sprintf("%s %d:%d", x.Field, x.Line, x.Column))
		}
		if want := "priority 0:0, rules.weights.no 0:0, rules.weights 0:0, match_rules[0].expression 1:12, match_rules[0].expression 1:14"; v.Valid || strings.Join(got, ", ") != want {
			t.Errorf("problems %s, want %s", strings.Join(got, ", "), want)
		}
		lost := weights("gold", 0, cheap)
		lost.Includes = []*policiesv1.PolicyInclude{{PolicyId: "no"}, {PolicyId: "other", Version: 7}}
		lost.Rules.Filters = []*policiesv1.PolicyFilterRule{{FilterId: "f", Module: &policiesv1.PolicyModuleUse{ModuleId: "m", Version: 1}}}
		lost.Scope = &policiesv1.PolicyScope{Centers: []string{"nowhere"}, Regions: []string{"east"}}
		v, err = api.ValidatePolicy(ctx, &policiesv1.ValidatePolicyRequest{Document: lost})
		must(t, err)
		got = nil
		for _, x := range v.Problems {
			got = append(got, fmt.Sprint(x.Field, " ", x.Warning))
		}
		equal(t, "what is missing", strings.Join(got, ", "), "includes[0] false, includes[1] false, rules.filters[0].module false, scope.centers[0] true, scope.regions[0] true")
		for name, r := range map[string]*policiesv1.ValidatePolicyRequest{"nothing": {}, "both": {Document: bad, PolicyId: "x"}} {
			_, err := api.ValidatePolicy(ctx, r)
			code(t, name, err, connect.CodeInvalidArgument)
		}
		// Policies do not come round to themselves.
		p.put(weights("a", 0, cheap))
		b := weights("b", 0, cheap)
		b.Includes = []*policiesv1.PolicyInclude{{PolicyId: "a", Version: 1}}
		p.put(b)
		a := weights("a", 0, cheap)
		a.Includes = []*policiesv1.PolicyInclude{{PolicyId: "b", Version: 1}}
		_, err = api.UpdatePolicy(ctx, &policiesv1.UpdatePolicyRequest{Document: a})
		if code(t, "a circle", err, connect.CodeInvalidArgument); !strings.Contains(err.Error(), "a → b → a") {
			t.Errorf("a circle: %v", err)
		}
		// What is included stays in force.
		p.issue("a", 0)
		c := weights("c", 0, cheap)
		c.Includes = []*policiesv1.PolicyInclude{{PolicyId: "a"}}
		p.put(c)
		p.issue("c", 0)
		_, err = api.WithdrawPolicy(ctx, &policiesv1.WithdrawPolicyRequest{PolicyId: "a"})
		code(t, "withdraw what is included", err, connect.CodeAborted)
		// Who may only read changes nothing.
		reader := p.User(t, "t-reader", "reader", identityv1.Role_ROLE_USER)
		_, err = reader.Policies.IssuePolicy(ctx, &policiesv1.IssuePolicyRequest{PolicyId: "a"})
		code(t, "a user issues", err, connect.CodePermissionDenied)
	})
}

// Which policies decide: match rules, scope, priority, combination, nesting,
// dates, the job's own weights.
func TestMatching(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		labeled := func(name string, labels map[string]string) *jobsv1.JobSpec {
			j := job(name)
			j.Labels = labels
			return j
		}
		urgent := weights("urgent", 10, fast)
		urgent.MatchRules = []*policiesv1.PolicyMatchRule{{Expression: `job.priority > 50 || job.labels.urgent == "yes"`}, {Expression: `job.tenant != "x" && "small" in job.specs`}}
		p.put(urgent)
		p.issue("urgent", 0)
		p.put(weights("any", 0, cheap))
		p.issue("any", 0)
		p.goes("not urgent", job("m1"), "far", "any@1")
		p.goes("by its label", labeled("m2", map[string]string{"urgent": "yes"}), "near", "urgent@1")
		j := job("m3")
		j.Priority = 60
		p.goes("by its priority", j, "near", "urgent@1")
		// Another scope than the document's.
		_, err := p.Admin.Policies.IssuePolicy(t.Context(), &policiesv1.IssuePolicyRequest{PolicyId: "urgent", Scope: &policiesv1.PolicyScope{Businesses: []string{"training"}}})
		must(t, err)
		p.goes("not of the business", labeled("m4", map[string]string{"urgent": "yes"}), "far", "any@1")
		p.goes("of the business", labeled("m5", map[string]string{"urgent": "yes", "business": "training"}), "near", "urgent@1")
		for name, s := range map[string]*policiesv1.PolicyScope{
			"tenants": {Tenants: []string{"nobody"}}, "users": {Users: []string{"nobody"}}, "regions": {Regions: []string{"north"}}, "centers": {Centers: []string{"near"}}, "labels": {Labels: map[string]string{"a": "b"}},
		} {
			_, err := p.Admin.Policies.IssuePolicy(t.Context(), &policiesv1.IssuePolicyRequest{PolicyId: "urgent", Scope: s})
			must(t, err)
			p.goes("out of scope by "+name, labeled("m6-"+name, map[string]string{"urgent": "yes"}), "far", "any@1")
		}
		_, err = p.Admin.Policies.IssuePolicy(t.Context(), &policiesv1.IssuePolicyRequest{PolicyId: "urgent", Scope: &policiesv1.PolicyScope{Regions: []string{"north"}}})
		must(t, err)
		j = labeled("m7", map[string]string{"urgent": "yes"})
		j.Tasks[0].Constraints = &jobsv1.Constraints{Regions: []string{"north"}}
		p.goes("in scope by region", j, "near", "urgent@1")
		p.withdraw("urgent")

		// Combined: filters of one, weights of the other; then both weights.
		safe := &policiesv1.PolicyDocument{PolicyId: "safe", Priority: 20, Combination: policiesv1.PolicyCombination_POLICY_COMBINATION_MERGE, Rules: &policiesv1.PolicyRules{
			Filters: []*policiesv1.PolicyFilterRule{{FilterId: "grade", Expression: `security_grade >= 3`, Message: "is not safe enough"}}}}
		p.put(safe)
		p.issue("safe", 0)
		p.goes("filtered", job("m8"), "near", "safe@1 + any@1")
		id := p.Admin.Submit(t, job("m9"))
		p.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
		for _, c := range p.decision(id).Candidates {
			if want := map[string]string{"near": "", "far": "is not safe enough (policy safe@1)"}[c.AiCenterId]; strings.Join(c.FilterReasons, "; ") != want {
				t.Errorf("%s is filtered because %q, want %q", c.AiCenterId, c.FilterReasons, want)
			}
		}
		own := job("m10")
		own.PolicyWeights = cheap
		p.goes("own weights stay, and so do filters", own, "near", "job + safe@1 + any@1")
		p.withdraw("safe")
		own = job("m11")
		own.PolicyWeights = fast
		p.goes("own weights", own, "near", "job")
		strict := weights("any", 0, cheap)
		strict.JobWeights = policiesv1.PolicyJobWeights_POLICY_JOB_WEIGHTS_IGNORE
		p.put(strict)
		p.issue("any", 0)
		own = job("m12")
		own.PolicyWeights = fast
		p.goes("own weights that do not count", own, "far", "any@2")

		// Only the filters of the next one.
		first := weights("first", 30, fast)
		first.Combination = policiesv1.PolicyCombination_POLICY_COMBINATION_FILTERS
		p.put(first)
		p.issue("first", 0)
		p.goes("weights of the first", job("m13"), "near", "first@1 + any@2")
		p.withdraw("first")

		// Nested: a part counts where it matches.
		part := weights("part", 0, map[string]int32{"highest-performance": 100})
		part.MatchRules = []*policiesv1.PolicyMatchRule{{Expression: `job.labels.fast == "yes"`}}
		p.put(part)
		whole := weights("any", 0, cheap)
		whole.Includes = []*policiesv1.PolicyInclude{{PolicyId: "part", Version: 1}}
		p.put(whole)
		p.issue("any", 0)
		p.goes("without the part", job("m14"), "far", "any@3")
		p.goes("with the part", labeled("m15", map[string]string{"fast": "yes"}), "near", "any@3")

		// Own scores, and an order instead of weights.
		scored := &policiesv1.PolicyDocument{PolicyId: "any", Rules: &policiesv1.PolicyRules{Ranking: []string{"north-first", "lowest-price"}, Evaluator: "lexicographic",
			Scores: []*policiesv1.PolicyScoreRule{{ScoreId: "north-first", Expression: `region == "north" ? 250 : -3`}}}}
		p.put(scored)
		p.issue("any", 0)
		id = p.Admin.Submit(t, job("m16"))
		p.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
		d := p.decision(id)
		equal(t, "by the own score", d.AiCenterId, "near")
		got := map[string]int32{}
		for _, c := range d.Candidates {
			for _, s := range c.Scores {
				if s.PolicyId == "north-first" {
					got[c.AiCenterId] = s.Score
				}
			}
		}
		if !maps.Equal(got, map[string]int32{"near": 100, "far": 0}) {
			t.Errorf("own scores %v: what is outside 0 to 100 is cut", got)
		}

		// Vetoes: whatever the weights, also those of the job itself.
		vetoed := weights("any", 0, cheap)
		vetoed.Rules.Minimums = map[string]int32{"highest-performance": 50}
		p.put(vetoed)
		p.issue("any", 0)
		p.goes("by veto", job("m17"), "near", "any@5")
		own = job("m18")
		own.PolicyWeights = map[string]int32{"lowest-price": 1}
		p.goes("by veto against the job's weights", own, "near", "job + any@5")
		own = job("m19")
		own.PolicyWeights = map[string]int32{"lowest-price": 1}
		vetoed.Rules.Minimums["lowest-price"] = 50
		p.put(vetoed)
		p.issue("any", 0)
		id = p.Admin.Submit(t, own)
		apptest.Until(t, "no center passes both vetoes", func() bool {
			res, err := p.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
			must(t, err)
			return len(res.Waits) == 1 && strings.Contains(res.Waits[0].Message, "highest-performance")
		})
	})
}

// A job that a policy keeps waiting holds back no other that asks for the same.
func TestWaitingByPolicy(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		never := &policiesv1.PolicyDocument{PolicyId: "never", MatchRules: []*policiesv1.PolicyMatchRule{{Expression: `job.labels.wait == "yes"`}},
			Rules: &policiesv1.PolicyRules{Filters: []*policiesv1.PolicyFilterRule{{FilterId: "none", Expression: `region == "east"`}}}}
		p.put(never)
		p.issue("never", 0)
		var waiting []string
		for i := range 3 {
			j := job(fmt.Sprint("n", i))
			j.Labels, j.Priority = map[string]string{"wait": "yes"}, 100
			waiting = append(waiting, p.Admin.Submit(t, j))
		}
		for i := range 3 {
			if _, by := p.placed(p.Admin, job(fmt.Sprint("o", i))); by != "balanced" {
				t.Errorf("decided by %q", by)
			}
		}
		if d := p.decision(waiting[0]); d.AiCenterId != "" || !strings.Contains(fmt.Sprint(d.Candidates), "policy never@1") {
			t.Errorf("what waits: %v", d)
		}
		p.withdraw("never")
		for _, id := range waiting {
			p.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
		}
	})
}

// What would be decided now, without issuing.
func TestTry(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		p.put(weights("any", 0, cheap))
		p.issue("any", 0)
		d := weights("other", 5, fast)
		d.MatchRules = []*policiesv1.PolicyMatchRule{{Expression: `"cpu" in job.kinds && job.labels.x != "no"`}}
		try := func(r *policiesv1.TryPolicyRequest) *policiesv1.TryPolicyResponse {
			t.Helper()
			res, err := p.Admin.Policies.TryPolicy(t.Context(), r)
			must(t, err)
			return res
		}
		j := job("t1")
		j.Labels = map[string]string{"x": "yes"}
		res := try(&policiesv1.TryPolicyRequest{Document: d, Job: j})
		if !res.Matches || len(res.WithPolicy) != 1 || res.WithPolicy[0].AiCenterId != "near" || res.WithPolicy[0].Policy != "other@0" || res.Present[0].AiCenterId != "far" || res.Present[0].Policy != "any@1" {
			t.Errorf("tried: %v", res)
		}
		j.Labels["x"] = "no"
		if res = try(&policiesv1.TryPolicyRequest{Document: d, Job: j}); res.Matches || !strings.Contains(res.Reason, "match_rules[0]") || res.WithPolicy[0].Policy != "any@1" {
			t.Errorf("tried on what it does not match: %v", res)
		}
		d.Priority = -1
		j.Labels["x"] = "yes"
		if res = try(&policiesv1.TryPolicyRequest{Document: d, Job: j}); res.Matches || res.Reason != "policy any@1 goes first and decides alone" {
			t.Errorf("tried behind another: %v", res)
		}
		id := p.Admin.Submit(t, job("t2"))
		if res = try(&policiesv1.TryPolicyRequest{PolicyId: "any", JobId: id}); !res.Matches || res.WithPolicy[0].AiCenterId != "far" {
			t.Errorf("tried on a job: %v", res)
		}
		_, err := p.Admin.Policies.TryPolicy(t.Context(), &policiesv1.TryPolicyRequest{PolicyId: "any"})
		code(t, "no job", err, connect.CodeInvalidArgument)
		stranger := p.User(t, "t-stranger", "stranger", identityv1.Role_ROLE_USER)
		_, err = stranger.Policies.TryPolicy(t.Context(), &policiesv1.TryPolicyRequest{PolicyId: "any", JobId: id})
		if c := connect.CodeOf(err); c != connect.CodeNotFound && c != connect.CodePermissionDenied {
			t.Errorf("a stranger tries another's job: %v", err)
		}
	})
}

// What is issued is seen by whoever asks next, though others ask meanwhile.
func TestIssuedIsSeen(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		p.put(weights("any", 0, cheap))
		try := func() string {
			res, err := p.Admin.Policies.TryPolicy(t.Context(), &policiesv1.TryPolicyRequest{PolicyId: "any", Job: job("t")})
			if err != nil {
				return err.Error()
			}
			return res.Present[0].Policy
		}
		var others sync.WaitGroup
		done := make(chan struct{})
		for range 3 {
			others.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						try()
					}
				}
			})
		}
		for range 20 {
			p.issue("any", 0)
			equal(t, "issued", try(), "any@1")
			p.withdraw("any")
			equal(t, "withdrawn", try(), "balanced")
		}
		close(done)
		others.Wait()
	})
}

// Versions share the jobs out by hash; what became of them is compared; the
// winner is issued.
func TestCompare(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		ctx, api := t.Context(), p.Admin.Policies
		p.put(weights("gold", 0, cheap))
		p.put(weights("gold", 0, fast))
		start := &policiesv1.StartPolicyTestRequest{PolicyId: "gold", Arms: []*policiesv1.PolicyArm{{Version: 1, Percent: 50}, {Version: 2, Percent: 50}}}
		_, err := api.StartPolicyTest(ctx, start)
		code(t, "not in force", err, connect.CodeAborted)
		p.issue("gold", 1)
		for _, arms := range [][]*policiesv1.PolicyArm{nil, {{Version: 1, Percent: 50}, {Version: 2, Percent: 49}}, {{Name: "x", Version: 1, Percent: 50}, {Name: "x", Version: 2, Percent: 50}}} {
			_, err = api.StartPolicyTest(ctx, &policiesv1.StartPolicyTestRequest{PolicyId: "gold", Arms: arms})
			code(t, fmt.Sprint(arms), err, connect.CodeInvalidArgument)
		}
		x, err := api.StartPolicyTest(ctx, start)
		must(t, err)
		again, err := api.StartPolicyTest(ctx, start)
		must(t, err)
		equal(t, "started again", again.TestId, x.TestId)
		_, err = api.IssuePolicy(ctx, &policiesv1.IssuePolicyRequest{PolicyId: "gold", Version: 2})
		code(t, "issue while comparing", err, connect.CodeAborted)
		const n = 80
		var batch []*jobsv1.JobSpec
		for i := range n {
			batch = append(batch, job(fmt.Sprint("c", i)))
		}
		res, err := p.Admin.Jobs.SubmitJobs(ctx, &jobsv1.SubmitJobsRequest{Jobs: batch})
		must(t, err)
		arms := map[string]int{}
		for _, id := range res.JobIds {
			p.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
			d := p.decision(id)
			want := map[string]string{"gold@1[" + x.TestId + "/a]": "far", "gold@2[" + x.TestId + "/b]": "near"}[d.Policy]
			if want == "" || d.AiCenterId != want {
				t.Errorf("%s went to %s by %s", id, d.AiCenterId, d.Policy)
			}
			arms[want]++
		}
		if arms["far"] < n/5 || arms["near"] < n/5 { // by chance about one in 10^9
			t.Errorf("shared out %v", arms)
		}
		got, err := api.GetPolicyTest(ctx, &policiesv1.GetPolicyTestRequest{TestId: x.TestId})
		must(t, err)
		a, b := got.Arms[0].Result, got.Arms[1].Result
		if a.Jobs != int64(arms["far"]) || b.Jobs != int64(arms["near"]) || a.Ended != a.Jobs || b.Ended != b.Jobs || a.Failed != 0 || len(got.Comparisons) != 5 || a.WaitingSeconds.Jobs != a.Jobs || a.EnergyJoules.Jobs != a.Jobs {
			t.Errorf("results %v of %v", got, arms)
		}
		_, err = api.EndPolicyTest(ctx, &policiesv1.EndPolicyTestRequest{TestId: x.TestId, Winner: "z"})
		code(t, "no such arm", err, connect.CodeInvalidArgument)
		ended, err := api.EndPolicyTest(ctx, &policiesv1.EndPolicyTestRequest{TestId: x.TestId, Winner: "b", Reason: "faster"})
		must(t, err)
		if ended.Running || ended.Winner != "b" || ended.Arms[1].Result.Jobs != b.Jobs || len(ended.Comparisons) != 5 {
			t.Errorf("ended: %v", ended)
		}
		_, err = api.EndPolicyTest(ctx, &policiesv1.EndPolicyTestRequest{TestId: x.TestId, Winner: "b"})
		must(t, err) // again
		_, err = api.EndPolicyTest(ctx, &policiesv1.EndPolicyTestRequest{TestId: x.TestId, Winner: "a"})
		code(t, "another winner", err, connect.CodeAborted)
		p.goes("the winner", job("after"), "near", "gold@2")
		list, err := api.ListPolicyTests(ctx, &policiesv1.ListPolicyTestsRequest{PolicyId: "gold"})
		must(t, err)
		equal(t, "comparisons", len(list.Tests), 1)
	})
}

// Jobs are submitted while policies come and go: every decision names exactly
// one version that was in force, and it is what that version decides.
func TestUnderLoad(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		ctx, api := t.Context(), p.Admin.Policies
		p.put(weights("gold", 0, cheap)) // odd versions: far
		p.put(weights("gold", 0, fast))  // even versions: near
		p.issue("gold", 1)
		const submitters, jobs = 4, 60
		var mu sync.Mutex
		var ids []string
		var group sync.WaitGroup
		for s := range submitters {
			group.Go(func() {
				for i := range jobs {
					id := p.Admin.Submit(t, job(fmt.Sprintf("l%d-%d", s, i)))
					mu.Lock()
					ids = append(ids, id)
					mu.Unlock()
				}
			})
		}
		done := make(chan struct{})
		go func() { group.Wait(); close(done) }()
		changes := 0
		for going := true; going || changes < 20; changes++ {
			select {
			case <-done:
				going = false
			default:
			}
			var err error
			if changes%2 == 0 {
				_, err = api.IssuePolicy(ctx, &policiesv1.IssuePolicyRequest{PolicyId: "gold", Version: 2})
			} else {
				_, err = api.RollBackPolicy(ctx, &policiesv1.RollBackPolicyRequest{PolicyId: "gold", Version: 1})
			}
			must(t, err)
		}
		by := map[string]int{}
		for _, id := range ids {
			p.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
			d := p.decision(id)
			if want := map[string]string{"gold@1": "far", "gold@2": "near"}[d.Policy]; want == "" || want != d.AiCenterId {
				t.Errorf("%s went to %s by %q", id, d.AiCenterId, d.Policy)
			}
			by[d.Policy]++
		}
		t.Logf("%d changes, decided by %v", changes, by)
	})
}

// Modules are loaded while running, score and filter, and one that fails is
// isolated, known to all, and restored.
func TestModules(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		ctx, api := t.Context(), p.Admin.Policies
		headroom, err := os.ReadFile("../../examples/policy-wasm/headroom.wasm")
		must(t, err)
		upload := func(id string, code []byte) *policiesv1.PolicyModule {
			t.Helper()
			m, err := api.UploadPolicyModule(ctx, &policiesv1.UploadPolicyModuleRequest{ModuleId: id, Code: code})
			must(t, err)
			return m
		}
		m := upload("headroom", headroom)
		if m.Version != 1 || !m.Filters || !m.Scores || len(m.Sha256) != 64 || upload("headroom", headroom).Version != 1 {
			t.Errorf("uploaded %v", m)
		}
		_, err = api.UploadPolicyModule(ctx, &policiesv1.UploadPolicyModuleRequest{ModuleId: "bad", Code: []byte("no")})
		code(t, "no module", err, connect.CodeInvalidArgument)
		use := func(failure policiesv1.PolicyFailure) *policiesv1.PolicyDocument {
			return &policiesv1.PolicyDocument{PolicyId: "wasm", Rules: &policiesv1.PolicyRules{Weights: map[string]int32{"m": 1, "lowest-price": 1},
				Scores: []*policiesv1.PolicyScoreRule{{ScoreId: "m", Module: &policiesv1.PolicyModuleUse{ModuleId: "headroom", Version: 1}}}, Filters: []*policiesv1.PolicyFilterRule{{FilterId: "f", Module: &policiesv1.PolicyModuleUse{ModuleId: "headroom", Version: 1, OnFailure: failure}}}}}
		}
		p.put(use(0))
		p.issue("wasm", 0)
		p.goes("by a module", job("w1"), "far", "wasm@1")
		_, err = api.DeletePolicyModule(ctx, &policiesv1.DeletePolicyModuleRequest{ModuleId: "headroom", Version: 1})
		code(t, "delete a module in use", err, connect.CodeAborted)

		// filter and score: unreachable
		trap := []byte("\x00asm\x01\x00\x00\x00\x01\x09\x02`\x00\x01\x7f`\x00\x01\x7c\x03\x03\x02\x00\x01\x07\x12\x02\x06filter\x00\x00\x05score\x00\x01\x0a\x09\x02\x03\x00\x00\x0b\x03\x00\x00\x0b")
		equal(t, "second version", upload("headroom", trap).Version, 2)
		skip := use(policiesv1.PolicyFailure_POLICY_FAILURE_SKIP)
		skip.Rules.Scores[0].Module.Version, skip.Rules.Filters[0].Module.Version = 2, 2
		p.put(skip)
		p.issue("wasm", 0)
		for i := range 4 {
			p.goes("a module that fails is skipped", job(fmt.Sprint("w2-", i)), "far", "wasm@2")
		}
		find := func() *policiesv1.PolicyModule {
			t.Helper()
			res, err := api.ListPolicyModules(ctx, &policiesv1.ListPolicyModulesRequest{})
			must(t, err)
			return res.Modules[1]
		}
		if m := find(); !m.Isolated || m.Fault == "" || m.FaultAt == nil {
			t.Errorf("a module that failed: %v", m)
		}
		refuse := use(policiesv1.PolicyFailure_POLICY_FAILURE_REFUSE)
		refuse.Rules.Scores, refuse.Rules.Weights = nil, cheap
		refuse.Rules.Filters[0].Module.Version = 2
		p.put(refuse)
		p.issue("wasm", 0)
		id := p.Admin.Submit(t, job("w3"))
		apptest.Until(t, "it waits because of the module", func() bool { return strings.Contains(p.decision(id).Summary, "is isolated") })
		p.Restart()
		ctx, api = t.Context(), p.Admin.Policies
		if !find().Isolated {
			t.Error("a restart restored the module")
		}
		p.issue("wasm", 1)
		p.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
		r, err := api.RestorePolicyModule(ctx, &policiesv1.RestorePolicyModuleRequest{ModuleId: "headroom", Version: 2})
		must(t, err)
		if r.Isolated || find().Isolated {
			t.Errorf("restored: %v", r)
		}
		_, err = api.DeletePolicyModule(ctx, &policiesv1.DeletePolicyModuleRequest{ModuleId: "headroom", Version: 2})
		must(t, err)
		equal(t, "a number is not used again", upload("headroom", trap).Version, 3)
	})
}

// A decision carries the record of S 6.2.1, Table 5; whether weights were
// learned is said by the policy.
func TestSchedulingRecord(t *testing.T) {
	each(t, func(t *testing.T, p *platform) {
		record := func(j *jobsv1.JobSpec) *schedulerv1.SchedulingRecord {
			id := p.Admin.Submit(t, j)
			p.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
			r := p.decision(id).Record
			if !strings.HasPrefix(r.ScheduleTaskId, "dec_") {
				t.Errorf("%s: ID %q", j.Name, r.ScheduleTaskId)
			}
			r.ScheduleTaskId = ""
			return r
		}
		d := weights("learned", 0, map[string]int32{"highest-performance": 3, "lowest-energy": 1})
		d.AiAlgorithm = strings.Repeat("x", 65)
		_, err := p.Admin.Policies.CreatePolicy(t.Context(), &policiesv1.CreatePolicyRequest{Document: d})
		code(t, "a name too long", err, connect.CodeInvalidArgument)
		d.AiAlgorithm = "cross-entropy"
		p.put(d)
		p.issue("learned", 1)
		j := job("r1")
		j.Priority = 7
		want := &schedulerv1.SchedulingRecord{ScheduleTaskType: "compute", ComputeType: "cpu", Location: &schedulerv1.ScheduledLocation{Region: "north"}, Priority: 7,
			Performance: new(2.0), EnergyConsumption: new(36000.0), AiAlgorithm: "cross-entropy", OptimizationGoal: "highest-performance",
			FactorWeights: map[string]float64{"highest-performance": .75, "lowest-energy": .25}}
		if got := record(j); !proto.Equal(got, want) {
			t.Errorf("learned:\n%v\nwant\n%v", got, want)
		}
		j.Name, j.PolicyWeights = "r2", cheap
		want = &schedulerv1.SchedulingRecord{ScheduleTaskType: "compute", ComputeType: "cpu", Location: &schedulerv1.ScheduledLocation{Region: "south"}, Priority: 7,
			AiAlgorithm: "none", OptimizationGoal: "lowest-price", FactorWeights: map[string]float64{"lowest-price": 1}}
		got := record(j)
		got.Performance, got.EnergyConsumption = nil, nil
		if !proto.Equal(got, want) {
			t.Errorf("by its own weights:\n%v\nwant\n%v", got, want)
		}
	})
}
