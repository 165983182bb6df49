package apptest_test

import (
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		a.Join(t, apptest.Center{ID: "c1", Play: apptest.Succeed})
		id := a.Admin.Submit(t, apptest.Job("first", 3))
		j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		if j.ReplicasSucceeded != 3 {
			t.Errorf("%d replicas succeeded, want 3", j.ReplicasSucceeded)
		}
	})
}
