package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// Replicas placed by where others are, on the whole platform.
func TestPlacementRules(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		a.Join(t, apptest.Center{ID: "c-east", Region: "east"})
		west := a.Join(t, apptest.Center{ID: "c-west", Region: "west"})
		job := func(name string, replicas int32, rules ...*jobsv1.PlacementRule) *jobsv1.JobSpec {
			j := apptest.Job(name, replicas)
			j.Tasks[0].Constraints = &jobsv1.Constraints{Rules: rules}
			return j
		}
		// Where its replicas went, once all have a place.
		where := func(id string) string {
			t.Helper()
			var out []string
			j := a.Admin.Await(t, id, "all replicas placed", func(j *jobsv1.Job) bool {
				return !slices.ContainsFunc(j.Replicas, func(r *jobsv1.Replica) bool { return r.AiCenterId == "" })
			})
			for _, r := range j.Replicas {
				out = append(out, strings.TrimPrefix(r.AiCenterId, "c-"))
			}
			slices.Sort(out)
			return strings.Join(out, " ")
		}

		spread := job("spread", 6, &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_SPREAD, Over: "region"})
		if got := where(a.Admin.Submit(t, spread)); got != "east east east west west west" {
			t.Errorf("spread over regions: %s", got)
		}

		two := job("two tasks", 3, &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_SPREAD})
		two.Tasks = append(two.Tasks, apptest.Task("beside", 3))
		two.Tasks[1].Constraints = two.Tasks[0].Constraints
		if got := where(a.Admin.Submit(t, two)); got != "east east east west west west" {
			t.Errorf("two tasks spread together: %s", got)
		}

		blue := job("blue", 2)
		blue.Groups = []string{"blue"}
		blue.Tasks[0].Constraints.Centers = []string{"c-west"}
		first := a.Admin.Submit(t, blue)
		if got := where(first); got != "west west" {
			t.Fatalf("pinned: %s", got)
		}
		red := job("red", 2, &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_APART, OfGroup: "blue"})
		if got := where(a.Admin.Submit(t, red)); got != "east east" {
			t.Errorf("apart from a group: %s", got)
		}
		with := job("with", 2, &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_WITH, Over: "region", OfJob: first})
		id := a.Admin.Submit(t, with)
		if got := where(id); got != "west west" {
			t.Errorf("with a job: %s", got)
		}

		// A group of another tenant has the same name and is another group.
		u := a.User(t, "t-rules", "u-rules", identityv1.Role_ROLE_USER)
		mine := job("mine", 1, &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_WITH, OfGroup: "blue"})
		res, err := u.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{Job: mine})
		if err != nil || res.ReplicasPlaced != 0 || len(res.Waits) != 1 || !strings.Contains(res.Waits[0].Message, "has to wait for a first replica of t-rules/blue") {
			t.Errorf("with a group of another tenant: %v, %v", res, err)
		}
		mine.Tasks[0].Constraints.Rules[0].OfGroup, mine.Tasks[0].Constraints.Rules[0].OfJob = "", first
		if _, err := u.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: mine}); !slices.Equal(violated(err), []string{"job.tasks[0].constraints.rules[0].of_job"}) {
			t.Errorf("with a job of another tenant: %v", err)
		}

		// Once its runs have ended, nothing of the group is left to keep apart from.
		for _, r := range west.Of(first, 2) {
			apptest.Succeed(r)
		}
		a.Admin.AwaitState(t, first, succeeded)
		only := job("only west", 1, red.Tasks[0].Constraints.Rules[0])
		only.Tasks[0].Constraints.Centers = []string{"c-west"}
		if got := where(a.Admin.Submit(t, only)); got != "west" {
			t.Errorf("apart from a group that has ended: %s", got)
		}
	})
}

func TestPlacementRulesRefused(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	rule := func(f func(*jobsv1.PlacementRule)) func(*jobsv1.JobSpec) {
		return func(j *jobsv1.JobSpec) {
			r := &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_APART}
			f(r)
			j.Tasks[0].Constraints = &jobsv1.Constraints{Rules: []*jobsv1.PlacementRule{r}}
		}
	}
	for want, change := range map[string]func(*jobsv1.JobSpec){
		"rules[0].kind":     rule(func(r *jobsv1.PlacementRule) { r.Kind = 0 }),
		"rules[0].over":     rule(func(r *jobsv1.PlacementRule) { r.Over = strings.Repeat("x", 64) }),
		"rules[0].of_group": rule(func(r *jobsv1.PlacementRule) { r.OfGroup = "\x01" }),
		"rules[0].of_job":   rule(func(r *jobsv1.PlacementRule) { r.OfJob = "job_nope" }),
		"rules[0].max_skew": rule(func(r *jobsv1.PlacementRule) { r.MaxSkew = 1 }),
		"rules": func(j *jobsv1.JobSpec) {
			j.Tasks[0].Constraints = &jobsv1.Constraints{}
			for range 9 {
				j.Tasks[0].Constraints.Rules = append(j.Tasks[0].Constraints.Rules, &jobsv1.PlacementRule{Kind: jobsv1.PlacementRule_KIND_APART})
			}
		},
	} {
		refused(t, a, "job.tasks[0].constraints."+want, change)
	}
	refused(t, a, "job.tasks[0].constraints.rules[0].max_skew", rule(func(r *jobsv1.PlacementRule) {
		r.Kind, r.MaxSkew = jobsv1.PlacementRule_KIND_SPREAD, 10001
	}))
	refused(t, a, "job.groups[1]", func(j *jobsv1.JobSpec) { j.Groups = []string{"a", "a"} })
	refused(t, a, "job.groups[0]", func(j *jobsv1.JobSpec) { j.Groups = []string{""} })
	refused(t, a, "job.groups", func(j *jobsv1.JobSpec) {
		for i := range 17 {
			j.Groups = append(j.Groups, fmt.Sprint(i))
		}
	})
}

func refused(t *testing.T, a *apptest.App, want string, change func(*jobsv1.JobSpec)) {
	t.Helper()
	j := waiting("refused")
	change(j)
	_, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j})
	if code(err) != connect.CodeInvalidArgument || !slices.Equal(violated(err), []string{want}) {
		t.Errorf("%s: %v", want, err)
	}
}
