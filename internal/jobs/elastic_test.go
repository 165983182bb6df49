package jobs_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// elasticGang is one of a core each that starts with low replicas and has at
// most n.
func elasticGang(name string, low, n int32) *jobsv1.JobSpec {
	j := apptest.Job(name, n)
	j.Gang, j.Elastic = true, true
	j.Tasks[0].ResourceSpecId, j.Tasks[0].MinReplicas, j.Tasks[0].StopGraceSeconds = "core", low, 1
	return j
}

// unasked are the runs of a job at a center that nobody asked to stop.
func unasked(c *apptest.FakeCenter, id string, n int) []*apptest.Replica {
	return slices.DeleteFunc(c.Of(id, n), func(r *apptest.Replica) bool {
		select {
		case <-r.Stopped():
			return true
		default:
			return false
		}
	})
}

func explain(t *testing.T, a *apptest.App, id string) *schedulerv1.ExplainJobResponse {
	t.Helper()
	res, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestElasticGang: it starts with its least or not at all, grows, goes on when
// the platform starts anew, and ends when those that it got have succeeded.
func TestElasticGang(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		createSpec(t, a, "core")
		one := a.Join(t, apptest.Center{ID: "c-one", CPU: 1000, Prices: map[string]int64{"core": 1}})
		id := a.Admin.Submit(t, elasticGang("grows", 2, 6))
		apptest.Until(t, "it is explained why the gang waits", func() bool {
			ws := explain(t, a, id).Waits
			return slices.ContainsFunc(ws, func(w *schedulerv1.Wait) bool {
				return w.Cause == schedulerv1.Wait_CAUSE_GANG && w.Replicas == 4
			}) && slices.ContainsFunc(ws, func(w *schedulerv1.Wait) bool {
				return w.Cause == schedulerv1.Wait_CAUSE_ROOM && w.Replicas == 2
			})
		})
		if j := a.Admin.Job(t, id); j.State != jobsv1.State_STATE_QUEUED || len(one.Of(id, 0)) > 0 {
			t.Fatalf("less than its least was placed: %v", j)
		}
		two := a.Join(t, apptest.Center{ID: "c-two", CPU: 2000, Prices: map[string]int64{"core": 1}})
		a.Admin.Await(t, id, "3 of its replicas are placed", func(j *jobsv1.Job) bool {
			n := 0
			for _, r := range j.Replicas {
				if r.Attempt > 0 {
					n++
				}
			}
			return n == 3
		})
		runs := append(one.Of(id, 1), two.Of(id, 2)...)
		for _, r := range runs {
			r.Run()
		}
		if j := a.Admin.Job(t, id); j.State != running || j.ReplicasRunning != 3 || j.SchedulingMicroseconds == 0 {
			t.Errorf("with 3 of 6 replicas: %v", j)
		}
		if ws := explain(t, a, id).Waits; len(ws) == 0 || ws[0].Cause != schedulerv1.Wait_CAUSE_ROOM || ws[0].Replicas != 3 {
			t.Errorf("what the others wait for: %v", ws)
		}
		a.Restart()
		more := a.Join(t, apptest.Center{ID: "c-more", CPU: 1000, Prices: map[string]int64{"core": 1}})
		grown := more.Of(id, 1)[0]
		grown.Run()
		// The first success: nothing more is started, and the others still count.
		runs[0].End("completed", 0)
		j := a.Admin.Await(t, id, "what waits is given up", func(j *jobsv1.Job) bool { return j.ReplicasStopped == 2 })
		if j.State != running || j.ReplicasRunning != 3 || j.ReplicasSucceeded != 1 {
			t.Errorf("after the first success: %v", j)
		}
		if _, err := a.Admin.Jobs.ScaleJob(t.Context(), &jobsv1.ScaleJobRequest{JobId: id, Task: "main", ReplicaNumber: 6}); code(err) == 0 {
			t.Error("scaled after a success")
		}
		for _, r := range append(runs[1:], grown) {
			r.End("completed", 0)
		}
		if j := a.Admin.AwaitState(t, id, succeeded); j.ReplicasSucceeded != 4 || j.ReplicasStopped != 2 || len(usage(t, a, id)) != 4 {
			t.Errorf("at the end: %v, usage %v", j, usage(t, a, id))
		}
	})
}

// TestElasticGivesWay: for work of a higher priority it gives back what is above
// its least, and only then goes as a whole; it comes back when there is room.
func TestElasticGivesWay(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		createSpec(t, a, "core")
		if _, err := a.Admin.Queues.SetQueueSettings(t.Context(), &schedulerv1.SetQueueSettingsRequest{Settings: &schedulerv1.QueueSettings{PreemptPriority: true}}); err != nil {
			t.Fatal(err)
		}
		c := a.Join(t, apptest.Center{ID: "c-way", CPU: 4000, Prices: map[string]int64{"core": 1}})
		id := a.Admin.Submit(t, elasticGang("gives-way", 2, 4))
		for _, r := range c.Of(id, 4) {
			r.Run()
		}
		urgent := func(name string, n int32) string {
			j := apptest.Job(name, n)
			j.Priority, j.Gang, j.Tasks[0].ResourceSpecId = 50, true, "core"
			return a.Admin.Submit(t, j)
		}
		stopped := func(n int) (out []*apptest.Replica) {
			t.Helper()
			apptest.Until(t, "runs are asked to stop", func() bool {
				out = nil
				for _, r := range c.Of(id, 4) {
					select {
					case <-r.Stopped():
						if r.Status().Phase != adapterv1.Phase_PHASE_ENDED {
							out = append(out, r)
						}
					default:
					}
				}
				return len(out) >= n
			})
			return out
		}
		first := urgent("first", 2)
		out := stopped(2)
		if left := unasked(c, id, 4); len(out) != 2 || len(left) != 2 {
			t.Fatalf("%d runs were taken back and %d left, want 2 and 2", len(out), len(left))
		}
		for _, r := range out {
			r.End("stopped", 0)
		}
		first1 := c.Of(first, 2)
		if j := a.Admin.Job(t, id); j.State != running || j.ReplicasRunning != 2 || j.ReplicasFailed != 0 {
			t.Errorf("after it has given way: %v", j)
		}
		// One more cannot be had without going below the least: the gang goes.
		second := urgent("second", 1)
		for _, r := range stopped(2) {
			r.End("stopped", 0)
		}
		c.Of(second, 1)
		j := a.Admin.Await(t, id, "the gang waits", func(j *jobsv1.Job) bool { return j.State == jobsv1.State_STATE_QUEUED })
		if len(unasked(c, id, 4)) != 0 {
			t.Errorf("a part of the gang runs: %v", j)
		}
		for _, r := range first1 {
			r.End("completed", 0)
		}
		a.Admin.AwaitState(t, first, succeeded)
		if again := unasked(c, id, 7); len(again) != 3 { // 4 before, and what there is room for
			t.Errorf("%d runs again, want 3", len(again))
		}
		if j := a.Admin.Job(t, id); slices.ContainsFunc(j.Replicas, func(r *jobsv1.Replica) bool { return r.Attempt > 2 }) {
			t.Errorf("replicas ran more often than twice: %v", j.Replicas)
		}
	})
}

func TestElasticRefused(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	createSpec(t, a, "core")
	for want, change := range map[string]func(*jobsv1.JobSpec){
		"job.elastic":               func(j *jobsv1.JobSpec) { j.Gang = false },
		"job.tasks[0].min_replicas": func(j *jobsv1.JobSpec) { j.Tasks[0].MinReplicas = 5 },
		"job.lost_grace_seconds":    func(j *jobsv1.JobSpec) { j.LostGraceSeconds = 29 },
	} {
		j := elasticGang("refused", 2, 4)
		change(j)
		_, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: j})
		if code(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), strings.TrimPrefix(want, "job.")) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
