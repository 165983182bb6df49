package jobs_test

import (
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// A job may name its node where its one center lets it; the center is told.
func TestChosenNode(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	c := a.Join(t, apptest.Center{ID: "chooses", Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_NODE}})
	plain := a.Join(t, apptest.Center{ID: "plain"})
	on := func(node string, centers ...string) *jobsv1.JobSpec {
		j := apptest.Job("on", 1)
		j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: centers, Node: node}
		return j
	}
	for want, j := range map[string]*jobsv1.JobSpec{
		"exactly one center":                       on("n1"),
		"exactly one center in constraints":        on("n1", c.ID, plain.ID),
		"center plain does not let jobs choose":    on("n1", plain.ID),
		"constraints.node":                         on("a\x00b", c.ID),
		"253":                                      on(strings.Repeat("n", 254), c.ID),
		"there is no center":                       on("n1", "nowhere"),
		"center nowhere does not let jobs choose ": on("n1", "nowhere"),
	} {
		_, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	id := a.Admin.Submit(t, on("n1", c.ID))
	r := c.Of(id, 1)[0]
	if r.Attempt.Node != "n1" {
		t.Errorf("the center is told of node %q, want n1", r.Attempt.Node)
	}
	r.Run()
	r.End("completed", 0)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
}
