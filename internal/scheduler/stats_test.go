package scheduler_test

import (
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// The figures go on over a restart, and those of jobs are exact.
func TestStatsAfterRestart(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-again")
		a.Join(t, apptest.Center{ID: "c-again", Prices: map[string]int64{s: 3}, Play: apptest.Succeed})
		get := func() *schedulerv1.GetSchedulingStatsResponse {
			st, err := a.Admin.Scheduler.GetSchedulingStats(t.Context(), &schedulerv1.GetSchedulingStatsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		var longest int64
		for range 3 {
			longest = max(longest, a.Admin.AwaitState(t, a.Admin.Submit(t, job("again", s, 1)), jobsv1.State_STATE_SUCCEEDED).SchedulingMicroseconds)
		}
		var before *schedulerv1.GetSchedulingStatsResponse
		apptest.Until(t, "the jobs are counted", func() bool { before = get(); return before.JobsScheduled == 3 && before.ReplicasPlaced == 3 })
		if before.Window.SchedulingMaxMicroseconds != longest || before.Window.MeasuredJobs != 3 {
			t.Errorf("window %v, longest %d", before.Window, longest)
		}
		a.Restart()
		after := get()
		if after.JobsScheduled != 3 || after.ReplicasPlaced != 3 || after.TotalMicroseconds != before.TotalMicroseconds || !after.Since.AsTime().Equal(before.Since.AsTime()) ||
			after.SchedulingP99Microseconds != longest || after.Window.SchedulingMaxMicroseconds != longest || after.Window.JobsScheduled != 3 {
			t.Errorf("before the restart %v, after it %v", before, after)
		}
	})
}
