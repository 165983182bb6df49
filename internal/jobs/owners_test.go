package jobs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
)

// Who owns a run is told while it is open.
func TestOwners(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ada := a.User(t, "t-owners", "ada", identityv1.Role_ROLE_USER)
		c := a.Join(t, apptest.Center{ID: "c-owners"})
		j := apptest.Job("owned", 2)
		j.Tasks[0].Name = "train"
		id := ada.Submit(t, c.Pin(j))
		rs := c.Of(id, 2)
		rs[0].Run()
		rs[1].Run()
		ids := []string{rs[0].AttemptId, rs[1].AttemptId, "att_nobody"}
		want := map[string]monitor.Owner{}
		for i, r := range rs {
			want[r.AttemptId] = monitor.Owner{TenantID: "t-owners", JobID: id, JobName: "owned", CenterID: c.ID, Task: "train", Replica: int64(i), Reserved: core.Quantities(r.Resources)}
		}
		check := func() {
			t.Helper()
			got, err := a.Jobs.Owners(t.Context(), ids)
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("owners: %v (-want +got):\n%s", err, d)
			}
		}
		check()
		delete(want, rs[0].AttemptId)
		rs[0].End("completed", 0)
		check()
		if got, err := a.Jobs.Owners(t.Context(), nil); err != nil || len(got) != 0 {
			t.Errorf("owners of none: %v, %v", got, err)
		}
		rs[1].End("completed", 0)
		seen := func(c core.Caller) error { return a.Jobs.Seen(core.WithCaller(t.Context(), c), id) }
		if err := seen(core.Caller{TenantID: "t-owners"}); err != nil {
			t.Errorf("its own tenant: %v", err)
		}
		if err := seen(core.Caller{TenantID: "default"}); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another tenant: %v", err)
		}
	})
}
