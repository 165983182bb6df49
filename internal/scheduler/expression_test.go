package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/tags"
)

// A task goes only where its expression over tags and facts is met; the job's
// owner reads why elsewhere not, and a tag set later lets it go.
func TestExpression(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-expr")
		plain := a.Join(t, apptest.Center{ID: "c-plain", Prices: map[string]int64{s: 1}, Play: apptest.Succeed})
		green := a.Join(t, apptest.Center{ID: "c-green", Prices: map[string]int64{s: 9}, Play: apptest.Succeed})
		tag := func(center string) {
			t.Helper()
			op := core.WithCaller(t.Context(), core.Caller{UserID: "op", AllTenants: true, Permissions: map[string]bool{"registry.write": true}})
			res, err := a.Tags.Apply(op, tags.Batch{Selector: tags.Selector{Objects: []string{"center:" + center}}, Changes: []tags.Change{{Key: "green", Value: "true"}}})
			if err != nil || !res.Applied {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		with := func(name, expression string) *jobsv1.JobSpec {
			j := job(name, s, 1)
			j.PolicyWeights = map[string]int32{"lowest-price": 1}
			j.Tasks[0].Constraints = &jobsv1.Constraints{Expression: expression}
			return j
		}
		tag(green.ID)
		const isGreen = `tags["green"] == "true" && id.startsWith("c-")`
		id := a.Admin.Submit(t, with("green", isGreen))
		if j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED); !slices.Equal(j.CenterIds, []string{green.ID}) {
			t.Errorf("ran at %v, want %s", j.CenterIds, green.ID)
		}
		reason := func(id, center string) string {
			t.Helper()
			ds := explain(t, a.Admin, id)
			i := slices.IndexFunc(ds[0].Candidates, func(k *schedulerv1.CandidateScore) bool { return k.AiCenterId == center })
			if i < 0 || len(ds[0].Candidates[i].FilterReasons) == 0 {
				return ""
			}
			return ds[0].Candidates[i].FilterReasons[0]
		}
		if got, want := reason(id, plain.ID), `does not meet tags["green"] == "true": has no tag green`; got != want {
			t.Errorf("reason = %q, want %q", got, want)
		}
		for range 3 { // now there is a rate at which the tenant's work starts
			a.Admin.AwaitState(t, a.Admin.Submit(t, with("green", isGreen)), jobsv1.State_STATE_SUCCEEDED)
		}
		waits := a.Admin.Submit(t, with("waits", `tags["green"] == "true" && id == "c-plain"`))
		if got, want := reason(waits, green.ID), `does not meet id == "c-plain": id is "c-green"`; got != want {
			t.Errorf("reason = %q, want %q", got, want)
		}
		res, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: waits})
		if err != nil || res.EstimatedStart != nil || !strings.Contains(res.EstimateBasis, "no center meets what it asks for") {
			t.Errorf("what no center meets may start at %v: %q, %v", res.GetEstimatedStart(), res.GetEstimateBasis(), err)
		}
		tag(plain.ID)
		if j := a.Admin.AwaitState(t, waits, jobsv1.State_STATE_SUCCEEDED); !slices.Equal(j.CenterIds, []string{plain.ID}) {
			t.Errorf("ran at %v, want %s", j.CenterIds, plain.ID)
		}
		_, err = a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: with("wrong", `running > 5`)})
		if code(err) != connect.CodeInvalidArgument {
			t.Errorf("an expression over live figures: %v", err)
		}
	})
}
