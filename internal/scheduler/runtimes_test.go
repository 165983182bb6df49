package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// A job that states an hour is told to take as long as those like it did, also
// when the platform has been started anew.
func TestRunForecast(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-told")
		c := a.Join(t, apptest.Center{ID: "c-told", CPU: 1000, Prices: map[string]int64{s: 1}})
		hour := func(name string) string {
			j := job(name, s, 1)
			j.Tasks[0].ExpectedSeconds = 3600
			return a.Admin.Submit(t, j)
		}
		for i := range 4 {
			apptest.Succeed(c.Of(hour(fmt.Sprint("train-", i)), 1)[0])
		}
		c.Of(hour("stays"), 1) // it has all there is
		a.Restart()
		id := hour("train-9")
		var f *schedulerv1.RunForecast
		apptest.Until(t, "a forecast", func() bool { // when the past was read
			f = waits(t, a.Admin, id).RunForecast
			return f.GetRuns() > 0
		})
		if f.Runs < 2 || f.HighSeconds > 600 || f.MedianSeconds < 1 || f.StatedSeconds != 3600 || !strings.HasPrefix(f.Basis, "the last ") {
			t.Errorf("told %v", f)
		}
	})
}
