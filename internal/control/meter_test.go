package control_test

import (
	"testing"
	"time"

	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/metering/rate"
)

func heldUsage(t testing.TB, a *apptest.App, id string) []*meteringv1.Usage {
	t.Helper()
	res, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{AllocationId: id})
	must(t, err)
	return res.Usage
}

// What an allocation holds and no run uses is metered from the grant to the
// release, to the microsecond, and priced as its packages are; runs inside are
// metered themselves, and what they use is not counted twice.
func TestHeldTimeIsMetered(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 8000, Prices: map[string]int64{"small": 360}})
		idle := apply(t, a.Admin, small(3), granted)
		amounts := apply(t, a.Admin, &controlv1.ApplyAllocationRequest{Amounts: map[string]string{"cpu": "1500m"}}, granted)
		full := apply(t, a.Admin, small(1), granted)
		j := apptest.Job("own", 1)
		j.AllocationId = full.AllocationId
		job := a.Admin.Submit(t, j)
		run := f.Of(job, 1)[0]
		run.Run()
		if got := heldUsage(t, a, idle.AllocationId); len(got) > 0 {
			t.Errorf("recorded while it is held, before the hour: %v", got)
		}
		a.Restart() // the meter goes on
		run.End("completed", 0)
		for id, packages := range map[string]int64{idle.AllocationId: 3, amounts.AllocationId: 2} {
			_, err := a.Admin.Control.ReleaseAllocation(t.Context(), &controlv1.ReleaseAllocationRequest{AllocationId: id})
			must(t, err)
			al := awaitAllocation(t, a, id, released)
			us := heldUsage(t, a, id)
			if len(us) != 1 {
				t.Fatalf("held time of %s: %v", id, us)
			}
			u := us[0]
			span := al.EndedAt.AsTime().Sub(al.GrantedAt.AsTime())
			if u.PackageMicroseconds != packages*span.Microseconds() || u.DurationMicroseconds != span.Microseconds() || u.Kind != meteringv1.Usage_KIND_HELD || u.Price != 360 || u.JobId != "" ||
				u.AiCenterId != "c1" || u.ResourceSpecId != "small" || u.TenantId != al.TenantId || u.UserName != al.UserName {
				t.Errorf("held for %s: %v", span, u)
			}
			cost, err := rate.Cost(360, time.Duration(u.PackageMicroseconds)*time.Microsecond)
			must(t, err)
			if u.CostMicros != cost {
				t.Errorf("cost %d, want %d", u.CostMicros, cost)
			}
			// Said again, it counts once.
			_, err = a.Admin.Control.ReleaseAllocation(t.Context(), &controlv1.ReleaseAllocationRequest{AllocationId: id})
			must(t, err)
			if n := len(heldUsage(t, a, id)); n != 1 {
				t.Errorf("%d records after a second release", n)
			}
		}
		// The run is metered as a run; the allocation only while it stood empty.
		_, err := a.Admin.Control.ReleaseAllocation(t.Context(), &controlv1.ReleaseAllocationRequest{AllocationId: full.AllocationId})
		must(t, err)
		al := awaitAllocation(t, a, full.AllocationId, released)
		runs, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: job})
		must(t, err)
		if len(runs.Usage) != 1 || runs.Usage[0].Kind != meteringv1.Usage_KIND_RUN || runs.Usage[0].PackageMicroseconds != runs.Usage[0].DurationMicroseconds {
			t.Fatalf("usage of the run: %v", runs.Usage)
		}
		held, whole := int64(0), al.EndedAt.AsTime().Sub(al.GrantedAt.AsTime()).Microseconds()
		for _, u := range heldUsage(t, a, full.AllocationId) {
			held += u.PackageMicroseconds
		}
		if held <= 0 || held >= whole {
			t.Errorf("held %d of %d microseconds, with a run inside for some of it", held, whole)
		}
	})
}
