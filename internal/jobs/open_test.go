package jobs_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/scheduler"
)

// TestOpen: all open runs are named, and those that are not known are as
// [jobs.Service.Running] says, also where the others of their gang are known.
func TestOpen(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		createSpec(t, a, "core")
		c := a.Join(t, apptest.Center{ID: "c-one", CPU: 5000, Prices: map[string]int64{"core": 1}})
		gang := a.Admin.Submit(t, elasticGang("gang", 2, 3))
		c.Of(gang, 3)
		single := apptest.Job("single", 1)
		single.Tasks[0].ResourceSpecId = "core"
		ended := a.Admin.Submit(t, single)
		c.Of(a.Admin.Submit(t, single), 1)
		run := c.Of(ended, 1)[0]
		run.Run()
		run.End("completed", 0)
		a.Admin.AwaitState(t, ended, succeeded)

		all, err := a.Jobs.Running(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(all, func(x, y scheduler.Running) int { return cmp.Compare(x.AttemptID, y.AttemptID) })
		core := 0
		for _, r := range all {
			if r.Gang {
				core++
			}
		}
		if len(all) != 4 || core != 2 {
			t.Fatalf("%d runs are open, %d of them of a gang's least, want 4 and 2", len(all), core)
		}
		for known := range 1 << len(all) {
			var ids []string
			var unknown []scheduler.Running
			for i, r := range all {
				ids = append(ids, r.AttemptID)
				if known&(1<<i) == 0 {
					unknown = append(unknown, r)
				}
			}
			open, fresh, err := a.Jobs.Open(t.Context(), func(id string) bool {
				i := slices.Index(ids, id)
				return i >= 0 && known&(1<<i) != 0
			})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(open)
			slices.SortFunc(fresh, func(x, y scheduler.Running) int { return strings.Compare(x.AttemptID, y.AttemptID) })
			if !slices.Equal(open, ids) || !reflect.DeepEqual(fresh, unknown) {
				t.Errorf("with those of %b known: %v, %+v, want %+v", known, open, fresh, unknown)
			}
		}
	})
}
