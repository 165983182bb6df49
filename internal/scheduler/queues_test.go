package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/registry"
)

func setQueue(t *testing.T, a *apptest.App, q *schedulerv1.Queue) *schedulerv1.Queue {
	t.Helper()
	q.Weight = max(1, q.Weight)
	out, err := a.Admin.Queues.SetQueue(t.Context(), &schedulerv1.SetQueueRequest{QueueId: q.QueueId, Queue: q})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func setSettings(t *testing.T, a *apptest.App, s *schedulerv1.QueueSettings) {
	t.Helper()
	if _, err := a.Admin.Queues.SetQueueSettings(t.Context(), &schedulerv1.SetQueueSettingsRequest{Settings: s}); err != nil {
		t.Fatal(err)
	}
}

func cores(n string) map[string]string { return map[string]string{"cpu": n} }

// waits returns what holds a job back.
func waits(t *testing.T, c *apptest.Client, id string) *schedulerv1.ExplainJobResponse {
	t.Helper()
	res, err := c.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func causes(res *schedulerv1.ExplainJobResponse) string {
	var out []string
	for _, w := range res.Waits {
		out = append(out, strings.TrimPrefix(w.Cause.String(), "CAUSE_"))
	}
	return strings.Join(out, " ")
}

func TestQueueTree(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		api := a.Admin.Queues
		ctx := t.Context()
		setQueue(t, a, &schedulerv1.Queue{QueueId: "science", Weight: 3, Guaranteed: cores("8"), Limit: cores("16")})
		got := setQueue(t, a, &schedulerv1.Queue{QueueId: "physics", ParentId: "science", Guaranteed: map[string]string{"cpu": "4", "memory": "8Gi"}, Borrowable: cores("2.5")})
		if got.Weight != 1 || got.Guaranteed["memory"] != "8Gi" || got.Borrowable["cpu"] != "2500m" || got.UpdatedAt == nil {
			t.Errorf("queue %v", got)
		}
		for want, q := range map[string]*schedulerv1.Queue{
			"queue.parent_id":      {QueueId: "science", ParentId: "physics", Weight: 1},
			"queue.weight":         {QueueId: "x"},
			"queue.guaranteed.cpu": {QueueId: "x", Weight: 1, Guaranteed: cores("-1")},
			"queue.limit.memory":   {QueueId: "x", Weight: 1, Limit: map[string]string{"memory": "lots"}},
			"queue":                {QueueId: "chemistry", ParentId: "science", Weight: 1, Guaranteed: cores("5")}, // 4 + 5 of 8
			"queue.queue_id":       {QueueId: "other", Weight: 1},
		} {
			req := &schedulerv1.SetQueueRequest{QueueId: q.QueueId, Queue: q}
			if want == "queue.queue_id" {
				req.QueueId = "x"
			}
			_, err := api.SetQueue(ctx, req)
			if code(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), strings.TrimPrefix(want, "queue.")) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := api.SetQueue(ctx, &schedulerv1.SetQueueRequest{QueueId: "x", Queue: &schedulerv1.Queue{Weight: 1, ParentId: "nowhere"}}); code(err) != connect.CodeInvalidArgument {
			t.Errorf("below a queue that is not there: %v", err)
		}
		if _, err := api.DeleteQueue(ctx, &schedulerv1.DeleteQueueRequest{QueueId: "science"}); code(err) != connect.CodeAborted {
			t.Errorf("delete a queue with one below it: %v", err)
		}
		u := a.User(t, "t-queues", "u-queues", identityv1.Role_ROLE_USER)
		if _, err := u.Queues.DeleteQueue(ctx, &schedulerv1.DeleteQueueRequest{QueueId: "physics"}); code(err) != connect.CodePermissionDenied {
			t.Errorf("deleted by a user: %v", err)
		}
		if l, err := u.Queues.ListQueues(ctx, &schedulerv1.ListQueuesRequest{}); err != nil || len(l.Queues) != 2 || l.Queues[0].QueueId != "physics" {
			t.Errorf("list %v, %v", l, err)
		}
		for _, id := range []string{"physics", "science"} {
			if _, err := api.DeleteQueue(ctx, &schedulerv1.DeleteQueueRequest{QueueId: id}); err != nil {
				t.Errorf("delete %s: %v", id, err)
			}
		}
		for _, err := range []error{func() error {
			_, err := api.GetQueue(ctx, &schedulerv1.GetQueueRequest{QueueId: "physics"})
			return err
		}(),
			func() error {
				_, err := api.DeleteQueue(ctx, &schedulerv1.DeleteQueueRequest{QueueId: "physics"})
				return err
			}()} {
			if code(err) != connect.CodeNotFound {
				t.Errorf("of a deleted queue: %v", err)
			}
		}
		s, err := api.GetQueueSettings(ctx, &schedulerv1.GetQueueSettingsRequest{})
		if err != nil || s.Order != schedulerv1.QueueSettings_ORDER_PRIORITY || s.UpdatedAt != nil {
			t.Errorf("settings %v, %v", s, err)
		}
		setSettings(t, a, &schedulerv1.QueueSettings{Order: schedulerv1.QueueSettings_ORDER_FAIR, HalfLifeSeconds: 60, AgeingSeconds: 5, AgeingMost: 10, Backfill: true, PreemptReclaim: true})
		a.Restart()
		if s, err = a.Admin.Queues.GetQueueSettings(ctx, &schedulerv1.GetQueueSettingsRequest{}); err != nil || s.Order != schedulerv1.QueueSettings_ORDER_FAIR || s.HalfLifeSeconds != 60 || !s.Backfill || s.PreemptPriority || s.UpdatedAt == nil {
			t.Errorf("settings %v, %v", s, err)
		}
		if _, err := a.Admin.Queues.SetQueueSettings(ctx, &schedulerv1.SetQueueSettingsRequest{Settings: &schedulerv1.QueueSettings{HalfLifeSeconds: -1}}); code(err) != connect.CodeInvalidArgument {
			t.Errorf("a negative half-life: %v", err)
		}
	})
}

// A tenant never has more than its limit, over restarts, and others go on.
func TestQuota(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-quota")
		c := a.Join(t, apptest.Center{ID: "c-quota", CPU: 10000, Prices: map[string]int64{s: 1}})
		setQueue(t, a, &schedulerv1.Queue{QueueId: "group", Limit: cores("3")})
		setQueue(t, a, &schedulerv1.Queue{QueueId: "t-quota", ParentId: "group", Limit: cores("2")})
		mine, other := a.User(t, "t-quota", "u-quota", identityv1.Role_ROLE_USER), a.User(t, "t-free", "u-free", identityv1.Role_ROLE_USER)
		wide := mine.Submit(t, job("wide", s, 4)) // not a gang: two of four
		c.Of(wide, 2)
		more := mine.Submit(t, job("more", s, 1))
		free := other.Submit(t, job("free", s, 5))
		c.Of(free, 5)
		if n := len(c.Of(wide, 2)); n != 2 {
			t.Errorf("%d of the tenant run, its limit is 2", n)
		}
		if res := waits(t, mine, more); causes(res) != "QUOTA" || !strings.Contains(res.Waits[0].Message, "t-quota") {
			t.Errorf("explained by %v", res.Waits)
		}
		q, err := a.Admin.Queues.GetQueue(t.Context(), &schedulerv1.GetQueueRequest{QueueId: "group"})
		if err != nil || q.Used["cpu"] != "2" || q.WaitingJobs != 2 || q.SharePpm != 200000 {
			t.Errorf("group %v, %v", q, err)
		}
		a.Restart()
		mine = apptest.NewClient(a.Admin.URL, mine.Key)
		last := mine.Submit(t, job("last", s, 1))
		c.Of(a.Admin.Submit(t, job("the cycle was", s, 1)), 1)
		if len(c.Of(wide, 2)) != 2 || causes(waits(t, mine, last)) != "QUOTA" {
			t.Errorf("after a restart: %v", waits(t, mine, last).Waits)
		}
		apptest.Succeed(c.Of(wide, 2)[0]) // room for one more, and one only
		c.Of(wide, 3)
		setQueue(t, a, &schedulerv1.Queue{QueueId: "t-quota", ParentId: "group", Limit: cores("9")}) // its group has 3
		c.Of(wide, 4)
		if causes(waits(t, mine, more)) != "QUOTA" {
			t.Errorf("above the group's limit: %v", waits(t, mine, more).Waits)
		}
		for _, r := range c.Of(wide, 4)[1:] {
			apptest.Succeed(r)
		}
		apptest.Succeed(c.Of(more, 1)[0])
		apptest.Succeed(c.Of(last, 1)[0])
	})
}

// Whose share is smaller goes first, by weight; a higher priority before both.
func TestFairShare(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-fair")
		c := a.Join(t, apptest.Center{ID: "c-fair", CPU: 6000, Prices: map[string]int64{s: 1}})
		setSettings(t, a, &schedulerv1.QueueSettings{Order: schedulerv1.QueueSettings_ORDER_FAIR})
		setQueue(t, a, &schedulerv1.Queue{QueueId: "t-one", Weight: 1})
		setQueue(t, a, &schedulerv1.Queue{QueueId: "t-two", Weight: 2})
		block := a.Admin.Submit(t, job("block", s, 6))
		rs := c.Of(block, 6)
		one, two := a.User(t, "t-one", "u-one", identityv1.Role_ROLE_USER), a.User(t, "t-two", "u-two", identityv1.Role_ROLE_USER)
		tenants := map[string]string{}
		for range 6 { // one came first with everything
			tenants[one.Submit(t, c.Pin(job("one", s, 1)))] = "one"
		}
		for range 6 {
			tenants[two.Submit(t, c.Pin(job("two", s, 1)))] = "two"
		}
		last := a.Join(t, apptest.Center{ID: "c-last", Prices: map[string]int64{s: 1}})
		last.Of(a.Admin.Submit(t, last.Pin(job("last", s, 1))), 1) // the queue has heard of all before it
		for _, r := range rs {
			apptest.Succeed(r)
		}
		count := map[string]int{}
		for _, r := range c.Await(12)[6:] {
			count[tenants[r.JobId]]++
		}
		if !maps.Equal(count, map[string]int{"one": 2, "two": 4}) {
			t.Errorf("6 places went to %v, want 2 and 4", count)
		}
	})
}

// Runs are taken back for a guarantee and for a higher priority, and for
// nothing else; they wait again and lose no retry.
func TestPreemption(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-take")
		c := a.Join(t, apptest.Center{ID: "c-take", CPU: 3000, Prices: map[string]int64{s: 1}})
		setSettings(t, a, &schedulerv1.QueueSettings{Order: schedulerv1.QueueSettings_ORDER_FAIR, PreemptReclaim: true, Backfill: true})
		setQueue(t, a, &schedulerv1.Queue{QueueId: "t-owner", Guaranteed: map[string]string{"cpu": "2", "memory": "2Gi"}})
		owner, borrower := a.User(t, "t-owner", "u-owner", identityv1.Role_ROLE_USER), a.User(t, "t-borrower", "u-borrower", identityv1.Role_ROLE_USER)
		keep := job("keep", s, 1)
		keep.NoPreemption = true
		kept := borrower.Submit(t, keep)
		c.Of(kept, 1)[0].Run()
		var borrowed []string
		for range 2 {
			id := borrower.Submit(t, job("borrowed", s, 1))
			c.Of(id, 1)[0].Run()
			borrowed = append(borrowed, id)
		}
		// Without a claim nothing is taken: a higher priority is none here.
		high := job("high", s, 1)
		high.Priority = 50
		waiting := a.Admin.Submit(t, high)
		mine := owner.Submit(t, job("mine", s, 1))
		// The one that lost the least, which is the younger.
		r := c.Of(borrowed[1], 1)[0]
		r.AwaitStop()
		r.End("stopped", 0)
		c.Of(mine, 1)[0].Run()
		if j := a.Admin.Job(t, borrowed[1]); j.State != jobsv1.State_STATE_QUEUED || j.Replicas[0].Reason != "preempted" || !strings.Contains(j.Replicas[0].Message, "below what is guaranteed") {
			t.Errorf("preempted job %v", j)
		}
		if j := a.Admin.Job(t, waiting); j.State != jobsv1.State_STATE_QUEUED || c.Stops(c.Of(kept, 1)[0].AttemptId) != 0 || c.Stops(c.Of(borrowed[0], 1)[0].AttemptId) != 0 {
			t.Errorf("taken without a claim: %v", j)
		}
		setSettings(t, a, &schedulerv1.QueueSettings{PreemptPriority: true})
		r = c.Of(borrowed[0], 1)[0]
		r.AwaitStop()
		r.End("stopped", 0)
		apptest.Succeed(c.Of(waiting, 1)[0])
		a.Admin.AwaitState(t, waiting, jobsv1.State_STATE_SUCCEEDED)
		for i, id := range borrowed { // both run again, without a retry
			again := c.Of(id, 2)[1]
			again.Run()
			again.End("completed", 0)
			a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
			if i == 0 {
				apptest.Succeed(c.Of(mine, 1)[0])
			}
		}
	})
}

// A center that is not heard of for a moment costs nobody a run.
func TestFlickerPreemptsNothing(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-flicker")
		one := a.Join(t, apptest.Center{ID: "c-flicker1", CPU: 1000, Prices: map[string]int64{s: 1}})
		setSettings(t, a, &schedulerv1.QueueSettings{PreemptPriority: true})
		low := a.Admin.Submit(t, job("low", s, 1))
		victim := one.Of(low, 1)[0]
		victim.Run()
		away := a.Join(t, apptest.Center{ID: "c-flicker2", CPU: 1000, Prices: map[string]int64{s: 1}})
		away.Disconnect()
		apptest.Until(t, "the center is away", func() bool {
			c, err := a.Registry.GetCenter(t.Context(), "c-flicker2")
			return err == nil && c.Status != registry.Available
		})
		high := job("high", s, 1)
		high.Priority = 10
		id := a.Admin.Submit(t, high)
		if n := one.Stops(victim.AttemptId); n != 0 || a.Admin.Job(t, id).State != jobsv1.State_STATE_QUEUED {
			t.Errorf("a run was taken back while another center was away for a moment")
		}
		away.Connect()
		away.Of(id, 1)
		if n := one.Stops(victim.AttemptId); n != 0 {
			t.Errorf("the run was asked to stop %d times", n)
		}
	})
}

func TestNotBefore(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-later")
		c := a.Join(t, apptest.Center{ID: "c-later", Prices: map[string]int64{s: 1}})
		at := time.Now().Add(3 * time.Second)
		j := job("later", s, 1)
		j.NotBefore = timestamppb.New(at)
		id := a.Admin.Submit(t, j)
		c.Of(a.Admin.Submit(t, job("now", s, 1)), 1) // behind it in the queue
		res := waits(t, a.Admin, id)
		placed := a.Admin.Job(t, id).PlacedAt
		if placed == nil && (causes(res) != "TIME" || !res.Waits[0].Until.AsTime().Equal(at.UTC().Truncate(time.Microsecond))) {
			t.Errorf("explained by %v", res)
		}
		c.Of(id, 1)
		if placed = a.Admin.Job(t, id).PlacedAt; placed.AsTime().Before(at.Add(-time.Millisecond)) {
			t.Errorf("placed at %s, not before %s", placed.AsTime(), at)
		}
	})
}

// A gang that needs all there is gets it although small work keeps coming:
// with backfill, room is kept for it.
func TestReservation(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		s := spec(t, a, "s-keep")
		c := a.Join(t, apptest.Center{ID: "c-keep", CPU: 2000, Prices: map[string]int64{s: 1}})
		setSettings(t, a, &schedulerv1.QueueSettings{Backfill: true})
		small := func(seconds int64) *jobsv1.JobSpec {
			j := job("small", s, 1)
			j.Tasks[0].ExpectedSeconds = seconds
			return j
		}
		first := c.Of(a.Admin.Submit(t, small(600)), 1)[0]
		gang := job("gang", s, 2)
		gang.Gang = true
		id := a.Admin.Submit(t, gang)
		long := a.Admin.Submit(t, small(3600)) // would delay the gang
		short := a.Admin.Submit(t, small(60))  // would not
		c.Of(short, 1)
		if res := waits(t, a.Admin, long); !slices.Contains([]string{"RESERVATION", "ROOM", "ROOM RESERVATION"}, causes(res)) || a.Admin.Job(t, long).PlacedAt != nil {
			t.Errorf("the long one: %v", res.Waits)
		}
		if res := waits(t, a.Admin, id); res.EstimatedStart == nil {
			t.Errorf("the gang: %v", fmt.Sprint(res.Waits, res.EstimateBasis))
		}
		apptest.Succeed(first)
		if a.Admin.Job(t, long).PlacedAt != nil {
			t.Error("the long one went before the gang")
		}
		apptest.Succeed(c.Of(short, 1)[0])
		for _, r := range c.Of(id, 2) {
			apptest.Succeed(r)
		}
		apptest.Succeed(c.Of(long, 1)[0])
	})
}
