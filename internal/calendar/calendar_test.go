package calendar_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	calendarv1 "yunhe.dev/yunhe/gen/yunhe/calendar/v1"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

const (
	planned = calendarv1.Reservation_STATE_PLANNED

	active = calendarv1.Reservation_STATE_ACTIVE

	canceled = calendarv1.Reservation_STATE_CANCELED
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(t testing.TB, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func in(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }

func reserve(t testing.TB, c *apptest.Client, r *calendarv1.CreateReservationRequest) *calendarv1.Reservation {
	t.Helper()
	got, err := c.Calendar.CreateReservation(t.Context(), r)
	must(t, err)
	return got
}

func await(t testing.TB, a *apptest.App, id string, want calendarv1.Reservation_State) (got *calendarv1.Reservation) {
	t.Helper()
	apptest.Until(t, "reservation "+id+" is "+want.String(), func() bool {
		var err error
		got, err = a.Admin.Calendar.GetReservation(t.Context(), &calendarv1.GetReservationRequest{ReservationId: id})
		must(t, err)
		return got.State == want
	})
	return got
}

// waits is what explain says a job waits for.
func waits(t testing.TB, a *apptest.App, job string) []*schedulerv1.Wait {
	t.Helper()
	x, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: job})
	must(t, err)
	return x.Waits
}

func expected(name string, replicas int32, seconds int64) *jobsv1.JobSpec {
	j := apptest.Job(name, replicas)
	j.Tasks[0].ExpectedSeconds = seconds
	return j
}

// The room of a reservation is kept before it begins: work that would reach into
// it waits and is told why, shorter work passes, allocations stay out; jobs that
// name it run in it.
func TestReservation(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 5000})
		r := reserve(t, a.Admin, &calendarv1.CreateReservationRequest{RequestId: "r", ResourceSpecId: "small", Count: 3, StartAt: in(10 * time.Minute), EndAt: in(time.Hour)})
		if r.State != planned || len(r.Occurrences) != 1 || r.Occurrences[0].Parts[0].AiCenterId != "c1" || r.Occurrences[0].Parts[0].Amounts["cpu"] != "3" || r.UnusedSeconds != 1800 {
			t.Fatalf("reserved %v", r)
		}
		_, err := a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 3, StartAt: in(20 * time.Minute), EndAt: in(30 * time.Minute)})
		code(t, "more than there is", err, connect.CodeResourceExhausted)
		// Five cores, three of them promised from ten minutes on.
		long := a.Admin.Submit(t, expected("long", 4, 3600))
		f.Of(long, 2)
		apptest.Until(t, "it says that it waits for the reservation", func() bool {
			for _, w := range waits(t, a, long) {
				if strings.Contains(w.Message, r.ReservationId) && w.Cause == schedulerv1.Wait_CAUSE_WINDOW {
					return true
				}
			}
			return false
		})
		short := a.Admin.Submit(t, expected("short", 3, 60))
		for _, x := range f.Of(short, 3) {
			x.Run()
			x.End("completed", 0)
		}
		if n := len(f.Of(long, 2)); n != 2 {
			t.Errorf("%d replicas run into the reservation, want 2 beside it", n)
		}
		plan, err := a.Admin.Jobs.PlanJob(ctx, &jobsv1.PlanJobRequest{Job: expected("plan", 1, 3600)})
		must(t, err)
		if plan.ReplicasPlaced != 0 || len(plan.Waits) == 0 || !strings.Contains(plan.Decisions[0].Candidates[0].FilterReasons[0], r.ReservationId) {
			t.Errorf("planned %v", plan)
		}
		al, err := a.Admin.Control.ApplyAllocation(ctx, &controlv1.ApplyAllocationRequest{ResourceSpecId: "small", Count: 2})
		must(t, err)
		if al.State == controlv1.AllocationState_ALLOCATION_STATE_GRANTED {
			t.Errorf("granted what is promised: %v", al)
		}
		_, err = a.Admin.Control.ReleaseAllocation(ctx, &controlv1.ReleaseAllocationRequest{AllocationId: al.AllocationId})
		must(t, err)
		own := apptest.Job("own", 1)
		own.ReservationId = r.ReservationId
		early := a.Admin.Submit(t, own)
		apptest.Until(t, "it says that its reservation is to come", func() bool {
			for _, w := range waits(t, a, early) {
				if strings.Contains(w.Message, "begins at") && w.Until != nil {
					return true
				}
			}
			return false
		})
		a.Restart() // the calendar is in the database
		got, err := a.Admin.Calendar.CancelReservation(ctx, &calendarv1.CancelReservationRequest{ReservationId: r.ReservationId})
		must(t, err)
		if got.State != canceled {
			t.Errorf("canceled to %v", got)
		}
		f.Of(long, 4)
		f.Of(early, 1) // as if it named none
	})
}

// A reservation that begins takes runs back that are in its way, holds its room
// in an allocation, and ends with its jobs stopped.
func TestReservationBegins(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 4000})
		keep := apptest.Job("keep", 1)
		keep.NoPreemption = true
		kept := f.Of(a.Admin.Submit(t, keep), 1)[0]
		kept.Run()
		others := a.Admin.Submit(t, apptest.Job("others", 3))
		for _, x := range f.Of(others, 3) {
			x.Run()
		}
		user := a.User(t, "default", "user", identityv1.Role_ROLE_USER)
		_, err := user.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 2, EndAt: in(time.Hour), Preempt: true})
		code(t, "preempt without the right", err, connect.CodePermissionDenied)
		r := reserve(t, a.Admin, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 2, EndAt: in(time.Hour), Preempt: true})
		stopped := 0
		apptest.Until(t, "two runs are asked to end", func() bool {
			stopped = 0
			for _, x := range f.Of(others, 3) {
				select {
				case <-x.Stopped():
					stopped++
				default:
				}
			}
			return stopped >= 2
		})
		own := apptest.Job("own", 3)
		own.ReservationId = r.ReservationId
		job := a.Admin.Submit(t, own)
		for _, x := range f.Of(others, 3) {
			select {
			case <-x.Stopped():
				x.End("stopped", 0)
			default:
			}
		}
		r = await(t, a, r.ReservationId, active)
		if stopped != 2 {
			t.Errorf("%d runs were taken back, want 2", stopped)
		}
		part := r.Occurrences[0].Parts[0]
		al, err := a.Admin.Control.GetAllocation(ctx, &controlv1.GetAllocationRequest{AllocationId: part.AllocationId})
		must(t, err)
		if al.State != controlv1.AllocationState_ALLOCATION_STATE_GRANTED || al.Amounts["cpu"] != "2" || al.EndAt.AsTime() != r.EndAt.AsTime() {
			t.Errorf("held by %v", al)
		}
		mine := f.Of(job, 2)
		for _, x := range mine {
			x.Run()
		}
		_, err = a.Admin.Calendar.CancelReservation(ctx, &calendarv1.CancelReservationRequest{ReservationId: r.ReservationId})
		code(t, "cancel while jobs run in it", err, connect.CodeAborted)
		a.Restart()
		_, err = a.Admin.Calendar.CancelReservation(ctx, &calendarv1.CancelReservationRequest{ReservationId: r.ReservationId, Stop: true})
		must(t, err)
		for _, x := range mine {
			x.AwaitStop()
			x.End("stopped", 0)
		}
		apptest.Until(t, "the allocation is over", func() bool {
			al, err := a.Admin.Control.GetAllocation(ctx, &controlv1.GetAllocationRequest{AllocationId: part.AllocationId})
			must(t, err)
			return al.State == controlv1.AllocationState_ALLOCATION_STATE_RELEASED
		})
		select {
		case <-kept.Stopped():
			t.Error("a run that is not to be preempted was stopped")
		default:
		}
	})
}

// However many reserve at once, never more is promised than there is, nor more
// than a tenant's queue may use; the same request is one reservation.
func TestReservationsAtOnce(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		a.Join(t, apptest.Center{ID: "c1", CPU: 3000})
		a.Join(t, apptest.Center{ID: "c2", CPU: 2000})
		var wg sync.WaitGroup
		var mu sync.Mutex
		got, won := map[string]int64{}, ""
		from, to := in(time.Hour), in(2*time.Hour)
		for i := range 8 {
			wg.Go(func() {
				id := string(rune('a' + i/2)) // each twice
				r, err := a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{RequestId: id, ResourceSpecId: "small", Count: 2, StartAt: from, EndAt: to})
				if err != nil {
					if connect.CodeOf(err) != connect.CodeResourceExhausted {
						t.Errorf("reserve: %v", err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				got[r.ReservationId], won = r.Count, id
			})
		}
		wg.Wait()
		if len(got) != 2 { // 3 and 2 cores: two and two, and one core left over
			t.Errorf("reserved %v, want two of two", got)
		}
		_, err := a.Admin.Queues.SetQueue(ctx, &schedulerv1.SetQueueRequest{QueueId: "default", Queue: &schedulerv1.Queue{Weight: 1, Limit: map[string]string{"cpu": "4"}}})
		must(t, err)
		_, err = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 1, StartAt: from, EndAt: to})
		code(t, "beyond the limit of the queue", err, connect.CodeResourceExhausted)
		_, err = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{RequestId: won, ResourceSpecId: "small", Count: 1, StartAt: from, EndAt: to})
		code(t, "another request under the same ID", err, connect.CodeAborted)
		// Later there is room, week after week.
		r := reserve(t, a.Admin, &calendarv1.CreateReservationRequest{Amounts: map[string]string{"cpu": "2"}, AiCenterIds: []string{"c2"}, StartAt: to, EndAt: in(3 * time.Hour), Recurrence: "FREQ=WEEKLY;COUNT=4"})
		if len(r.Occurrences) != 4 || r.Occurrences[3].Parts[0].AiCenterId != "c2" {
			t.Errorf("reserved %v", r)
		}
	})
}

// An allocation grows, in size or time, only beside what is promised; of an
// allocation and a reservation asked for at once, one is refused.
func TestAllocationsBesideReservations(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		a.Join(t, apptest.Center{ID: "c1", CPU: 4000})
		r := reserve(t, a.Admin, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 3, StartAt: in(2 * time.Hour), EndAt: in(3 * time.Hour)})
		al, err := a.Admin.Control.ApplyAllocation(ctx, &controlv1.ApplyAllocationRequest{ResourceSpecId: "small", Count: 2, EndAt: in(time.Hour)})
		must(t, err)
		granted := func() bool {
			al, err = a.Admin.Control.GetAllocation(ctx, &controlv1.GetAllocationRequest{AllocationId: al.AllocationId})
			must(t, err)
			return al.State == controlv1.AllocationState_ALLOCATION_STATE_GRANTED
		}
		apptest.Until(t, "it is granted beside the reservation", granted)
		for what, q := range map[string]*controlv1.AdjustAllocationRequest{"longer": {EndAt: in(150 * time.Minute)}, "longer and more": {EndAt: in(150 * time.Minute), Count: 3}} {
			q.AllocationId = al.AllocationId
			_, err := a.Admin.Control.AdjustAllocation(ctx, q)
			code(t, what, err, connect.CodeResourceExhausted)
		}
		for _, q := range []*controlv1.AdjustAllocationRequest{{Count: 4}, {EndAt: in(90 * time.Minute)}, {Count: 1, EndAt: in(150 * time.Minute)}} {
			q.AllocationId = al.AllocationId
			_, err := a.Admin.Control.AdjustAllocation(ctx, q)
			must(t, err)
		}
		_, err = a.Admin.Control.ReleaseAllocation(ctx, &controlv1.ReleaseAllocationRequest{AllocationId: al.AllocationId})
		must(t, err)
		_, err = a.Admin.Calendar.CancelReservation(ctx, &calendarv1.CancelReservationRequest{ReservationId: r.ReservationId})
		must(t, err)
		var reserved error
		var wg sync.WaitGroup
		wg.Go(func() {
			_, reserved = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 3, StartAt: in(time.Hour), EndAt: in(2 * time.Hour)})
		})
		wg.Go(func() {
			al, err = a.Admin.Control.ApplyAllocation(ctx, &controlv1.ApplyAllocationRequest{ResourceSpecId: "small", Count: 3, NoWait: true})
		})
		wg.Wait()
		must(t, err)
		if got := granted(); got == (reserved == nil) {
			t.Errorf("granted: %v, reserved: %v; want one of them", got, reserved)
		}
	})
}

// Work that would reach into maintenance goes elsewhere, or waits and is told;
// what runs is put in the queue again ahead of it, without a retry.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 4000})
		running := a.Admin.Submit(t, expected("running", 1, 60))
		run := f.Of(running, 1)[0]
		run.Run()
		m, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{RequestId: "m", AiCenterId: "c1", Reason: "new disks", StartAt: in(30 * time.Minute), EndAt: in(time.Hour),
			Recurrence: "FREQ=DAILY"})
		must(t, err)
		again, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c1", EndAt: in(time.Hour), NoticeSeconds: 5})
		code(t, "notice without requeue", err, connect.CodeInvalidArgument)
		_ = again
		if m.State != calendarv1.Maintenance_STATE_PLANNED || m.NextStartAt == nil {
			t.Errorf("planned %v", m)
		}
		long := a.Admin.Submit(t, expected("long", 1, 3600))
		apptest.Until(t, "it says that it waits for the maintenance", func() bool {
			x, err := a.Admin.Scheduler.ExplainJob(ctx, &schedulerv1.ExplainJobRequest{JobId: long})
			must(t, err)
			return len(x.Decisions) > 0 && len(x.Decisions[0].Candidates) > 0 && strings.Contains(strings.Join(x.Decisions[0].Candidates[0].FilterReasons, " "), m.MaintenanceId)
		})
		f.Of(a.Admin.Submit(t, expected("short", 1, 60)), 1)
		a.Restart()
		_, err = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 1, StartAt: in(20 * time.Minute), EndAt: in(40 * time.Minute)})
		code(t, "reserve in maintenance", err, connect.CodeResourceExhausted)
		g := a.Join(t, apptest.Center{ID: "c2", CPU: 4000})
		g.Of(long, 1)
		// Now at once, with what runs taken away.
		now, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c1", StartAt: in(time.Minute), EndAt: in(time.Hour), Runs: calendarv1.Maintenance_RUNS_REQUEUE, NoticeSeconds: 120})
		must(t, err)
		run.AwaitStop()
		run.End("stopped", 0)
		g.Of(running, 1)
		j := a.Admin.Job(t, running)
		if j.State == jobsv1.State_STATE_FAILED {
			t.Errorf("the job that was put in the queue again: %v", j)
		}
		for _, id := range []string{m.MaintenanceId, now.MaintenanceId} {
			got, err := a.Admin.Calendar.CancelMaintenance(ctx, &calendarv1.CancelMaintenanceRequest{MaintenanceId: id})
			must(t, err)
			if got.State != calendarv1.Maintenance_STATE_CANCELED {
				t.Errorf("canceled: %v", got)
			}
		}
		// Maintenance every hour counts as long as anything can be reserved.
		often, err := a.Admin.Calendar.CreateMaintenance(ctx, &calendarv1.CreateMaintenanceRequest{AiCenterId: "c2", StartAt: in(30 * time.Minute), EndAt: in(50 * time.Minute), Recurrence: "FREQ=HOURLY"})
		must(t, err)
		_, err = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 1, AiCenterIds: []string{"c2"}, StartAt: in(300 * 24 * time.Hour), EndAt: in(300*24*time.Hour + 2*time.Hour)})
		code(t, "reserve in maintenance that comes every hour", err, connect.CodeResourceExhausted)
		_, err = a.Admin.Calendar.CancelMaintenance(ctx, &calendarv1.CancelMaintenanceRequest{MaintenanceId: often.MaintenanceId})
		must(t, err)
		_, err = a.Admin.Calendar.CreateReservation(ctx, &calendarv1.CreateReservationRequest{ResourceSpecId: "small", Count: 1, StartAt: in(-time.Hour), EndAt: in(-2 * time.Hour), Recurrence: "FREQ=YEARLY", TimeZone: "Asia/Shanghai"})
		code(t, "several mistakes", err, connect.CodeInvalidArgument)
		for _, field := range []string{"start_at", "end_at", "recurrence"} {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%v, want %s in it", err, field)
			}
		}
		back := expected("back", 1, 3600)
		f.Pin(back)
		f.Of(a.Admin.Submit(t, back), 1)
	})
}
