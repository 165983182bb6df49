package kill_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/metering/rate"
)

// result is what the checks saw, for the summary.
type result struct {
	runs    int
	slowest string
}

// books gathers what the checks compare.
type books struct {
	t      *testing.T
	proofs map[runKey]int
	usage  map[runKey]*meteringv1.Usage

	mu     sync.Mutex // guards the fields below
	runs   map[runKey]bool
	micros int64
	slow   time.Duration
	result result
}

// check compares all that is recorded with all that was done.
func (l *load) check(t *testing.T, ctx context.Context) result {
	b := &books{t: t, proofs: l.proofs.all(), usage: map[runKey]*meteringv1.Usage{}, runs: map[runKey]bool{}}
	l.readUsage(b, ctx)
	l.checkList(t, ctx)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for id, name := range l.kinds {
		group.Go(func() error { return l.checkJob(b, gctx, id, name) })
	}
	must(t, group.Wait())
	for k := range b.proofs {
		if !b.runs[k] {
			t.Errorf("executed and nowhere recorded: %s", k)
		}
	}
	for k, u := range b.usage {
		if !b.runs[k] {
			t.Errorf("usage of an unknown run: %v", u)
		}
	}
	l.checkTotals(b, ctx)
	l.checkCenters(t, ctx)
	l.checkAudit(t, ctx)
	b.result.runs = len(b.runs)
	return b.result
}

func (l *load) readUsage(b *books, ctx context.Context) {
	for token := ""; ; {
		res, err := l.c.metering.ListUsage(ctx, &meteringv1.ListUsageRequest{PageSize: 1000, PageToken: token})
		must(b.t, err)
		for _, u := range res.Usage {
			k := runKey{u.JobId, u.TaskIndex, u.ReplicaIndex, u.Attempt}
			if b.usage[k] != nil {
				b.t.Errorf("two usage records of %s: %v and %v", k, b.usage[k], u)
			}
			b.usage[k] = u
		}
		if token = res.NextPageToken; token == "" {
			return
		}
	}
}

// checkList compares the platform's list of jobs with those acknowledged.
func (l *load) checkList(t *testing.T, ctx context.Context) {
	listed := map[string]bool{}
	for token := ""; ; {
		res, err := l.c.jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{PageSize: 1000, PageToken: token})
		must(t, err)
		for _, j := range res.Jobs {
			if l.kinds[j.JobId] != j.Spec.Name {
				t.Errorf("job %s is listed as %q; acknowledged was %q", j.JobId, j.Spec.Name, l.kinds[j.JobId])
			}
			if listed[j.JobId] {
				t.Errorf("job %s is listed twice", j.JobId)
			}
			listed[j.JobId] = true
		}
		if token = res.NextPageToken; token == "" {
			break
		}
	}
	for id, name := range l.kinds {
		if !listed[id] {
			t.Errorf("acknowledged and gone: job %s, %s", id, name)
		}
	}
}

// want is how a job of a kind ends: its state, and the runs, state and exit
// code of the replicas of its first task.
var want = map[string]struct {
	job  jobsv1.State
	runs int32
	main jobsv1.State
	exit int32
}{
	quick:      {jobsv1.State_STATE_SUCCEEDED, 1, jobsv1.State_STATE_SUCCEEDED, 0},
	pair:       {jobsv1.State_STATE_SUCCEEDED, 1, jobsv1.State_STATE_SUCCEEDED, 0},
	triple:     {jobsv1.State_STATE_SUCCEEDED, 1, jobsv1.State_STATE_SUCCEEDED, 0},
	slow:       {jobsv1.State_STATE_SUCCEEDED, 1, jobsv1.State_STATE_SUCCEEDED, 0},
	stubborn:   {jobsv1.State_STATE_FAILED, 3, jobsv1.State_STATE_FAILED, 3},
	recovering: {jobsv1.State_STATE_SUCCEEDED, 2, jobsv1.State_STATE_SUCCEEDED, 0},
	doomed:     {jobsv1.State_STATE_FAILED, 1, jobsv1.State_STATE_FAILED, 3},
	halted:     {jobsv1.State_STATE_STOPPED, 1, jobsv1.State_STATE_STOPPED, 0},
}

func (l *load) checkJob(b *books, ctx context.Context, id, name string) error {
	j, err := l.c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: id})
	if err != nil {
		return fmt.Errorf("read job %s: %w", id, err)
	}
	kind := kindOf(name)
	w := want[kind]
	if j.State != w.job {
		b.t.Errorf("job %s (%s) ended %s (%s: %s), want %s; replicas: %v", id, name, j.State, j.Reason, j.Message, w.job, j.Replicas)
	}
	if len(j.Replicas) != int(j.ReplicasTotal) || j.ReplicasRunning != 0 || j.ReplicasSucceeded+j.ReplicasFailed+j.ReplicasStopped != j.ReplicasTotal {
		b.t.Errorf("job %s (%s) counts %d replicas in all, %d running, %d succeeded, %d failed, %d stopped, and lists %d",
			id, name, j.ReplicasTotal, j.ReplicasRunning, j.ReplicasSucceeded, j.ReplicasFailed, j.ReplicasStopped, len(j.Replicas))
	}
	micros := int64(0)
	for _, r := range j.Replicas {
		runs := w.runs
		for n := int32(1); n < r.Attempt; n++ {
			// A recovering job's command goes by the number of its run: if the first
			// never was, there is none that fails.
			if (kind != recovering || n > 1) && l.refused(b, runKey{j.JobId, r.TaskIndex, r.ReplicaIndex, n}) {
				runs++
			}
		}
		// The second task of a doomed job and a halted job are stopped, perhaps
		// before they were placed.
		stoppable := kind == halted || kind == doomed && r.TaskIndex == 1
		switch {
		case stoppable && r.State != jobsv1.State_STATE_STOPPED, stoppable && r.Attempt > runs:
			b.t.Errorf("job %s (%s): want stopped in its first run or before, got %v", id, name, r)
		case !stoppable && (r.State != w.main || r.Attempt != runs || r.ExitCode != w.exit):
			b.t.Errorf("job %s (%s): want %s with exit code %d in run %d, got %v", id, name, w.main, w.exit, runs, r)
		}
		for n := int32(1); n <= r.Attempt; n++ {
			cost, err := l.checkRun(b, ctx, j, r, n, stoppable)
			if err != nil {
				return err
			}
			micros += cost
		}
	}
	if fen := (micros + 5000) / 10000; j.CostFen != fen {
		b.t.Errorf("job %s (%s) costs %d fen; its runs cost %d micro-yuan, which is %d fen", id, name, j.CostFen, micros, fen)
	}
	cost, err := l.c.metering.GetJobCost(ctx, &meteringv1.GetJobCostRequest{JobId: id})
	if err != nil {
		return fmt.Errorf("cost of %s: %w", id, err)
	}
	if cost.TotalMicros != micros || cost.TotalFen != j.CostFen {
		b.t.Errorf("job %s (%s) costs %d micro-yuan, %d fen by its runs, and %d, %d by its bill", id, name, micros, j.CostFen, cost.TotalMicros, cost.TotalFen)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.micros += micros
	if d := j.EndedAt.AsTime().Sub(j.CreatedAt.AsTime()); d > b.slow && kind != halted {
		b.slow = d
		b.result.slowest = fmt.Sprintf("%s after %.1f s", name, d.Seconds())
	}
	return nil
}

// checkRun checks run n of a replica, of which r is the last, and returns its cost.
func (l *load) checkRun(b *books, ctx context.Context, j *jobsv1.Job, r *jobsv1.Replica, n int32, stoppable bool) (micros int64, err error) {
	k := runKey{j.JobId, r.TaskIndex, r.ReplicaIndex, n}
	b.mu.Lock()
	b.runs[k] = true
	b.mu.Unlock()
	if n < r.Attempt && l.refused(b, k) {
		return 0, nil
	}
	last := n == r.Attempt
	u, told := b.usage[k], b.proofs[k]
	started := !last || r.StartedAt != nil
	switch {
	case !started && (told > 0 || u != nil):
		b.t.Errorf("%s (%s): never started, but was executed %d times, with usage %v", k, j.Spec.Name, told, u)
	case started && (told > 1 || told == 0 && !stoppable):
		b.t.Errorf("%s (%s): executed %d times, want once; replica %v", k, j.Spec.Name, told, r)
	case started && u == nil:
		b.t.Errorf("%s (%s): there is no usage of it", k, j.Spec.Name)
	}
	if !started || u == nil {
		return 0, nil
	}
	from, to := u.StartedAt.AsTime(), u.EndedAt.AsTime()
	if last && (!from.Equal(r.StartedAt.AsTime()) || !to.Equal(r.EndedAt.AsTime()) || u.AttemptId != r.AttemptId || u.CostMicros != r.CostMicros || u.CpuMicroseconds != r.CpuMicroseconds) {
		b.t.Errorf("%s: usage %v differs from its replica %v", k, u, r)
	}
	if d := to.Sub(from); d <= 0 || u.DurationMicroseconds != d.Microseconds() {
		b.t.Errorf("%s: usage of %d microseconds from %s to %s", k, u.DurationMicroseconds, from, to)
	}
	cost, err := rate.Cost(price, to.Sub(from))
	if err != nil || u.Price != price || u.CostMicros != cost {
		b.t.Errorf("%s: usage costs %d micro-yuan at price %d, want %d at %d (%v)", k, u.CostMicros, u.Price, cost, price, err)
	}
	if !stoppable {
		err = l.checkLog(b, ctx, k, l.wasFull(u.AiCenterId, from, to))
	}
	return u.CostMicros, err
}

// refused reports whether a run that is not its replica's last never was: a
// center whose disk is full takes none, and it is placed again.
func (l *load) refused(b *books, k runKey) bool {
	return len(l.full) > 0 && b.usage[k] == nil && b.proofs[k] == 0
}

// wasFull reports whether the disk of a center was full at some time of a run's.
func (l *load) wasFull(center string, from, to time.Time) bool {
	return slices.ContainsFunc(l.full, func(f shift) bool {
		return f.name == center && from.Before(f.to.Add(clockError)) && to.After(f.from.Add(-clockError))
	})
}

// checkLog reads the log of a run that ended by itself: one line, which is lost
// if there was no room for it, and then perhaps said to be.
func (l *load) checkLog(b *books, ctx context.Context, k runKey, full bool) error {
	stream, err := l.c.jobs.ReadLog(ctx, &jobsv1.ReadLogRequest{JobId: k.job, TaskIndex: k.task, ReplicaIndex: k.replica, Attempt: k.attempt})
	if err != nil {
		return fmt.Errorf("log of %s: %w", k, err)
	}
	defer stream.Close()
	var got []byte
	for stream.Receive() {
		got = append(got, stream.Msg().Data...)
	}
	if err := stream.Err(); err != nil && err != io.EOF {
		return fmt.Errorf("log of %s: %w", k, err)
	}
	text, _, _ := strings.Cut(string(got), "[") // not in the line itself
	if want := fmt.Sprintf("%s %d %d %d ran\n", k.job, k.task, k.replica, k.attempt); string(got) != want && !(full && strings.HasPrefix(want, text)) {
		b.t.Errorf("log of %s: got %q, want %q", k, got, want)
	}
	return nil
}

// checkTotals compares the platform's sums with ours.
func (l *load) checkTotals(b *books, ctx context.Context) {
	res, err := l.c.jobs.GetJobStats(ctx, &jobsv1.GetJobStatsRequest{})
	must(b.t, err)
	if want := (b.micros + 5000) / 10000; res.CostFen_24H != want || res.Runs_24H != int64(len(b.usage)) {
		b.t.Errorf("statistics say %d fen for %d runs, want %d for %d", res.CostFen_24H, res.Runs_24H, want, len(b.usage))
	}
}

// checkCenters checks that nothing is held at any center.
func (l *load) checkCenters(t *testing.T, ctx context.Context) {
	res, err := l.c.registry.ListCenters(ctx, &registryv1.ListCentersRequest{})
	must(t, err)
	if len(res.Centers) != gateways {
		t.Errorf("there are %d centers, want %d", len(res.Centers), gateways)
	}
	for _, k := range res.Centers {
		m := k.Monitoring
		if m.RunningTaskNum != 0 || m.WaitingTaskNum != 0 || m.CpuUsed != 0 || m.MemoryUsed != 0 || m.CpuFree != int64(l.c.cpus) || m.MemoryFree != 4096 {
			t.Errorf("center %s still holds something: %v", k.AiCenterId, m)
		}
	}
}

// checkAudit checks that each submission has left its event and that nothing
// was refused.
func (l *load) checkAudit(t *testing.T, ctx context.Context) {
	times := map[string]int{}
	for token := ""; ; {
		res, err := l.c.identity.ListAuditEvents(ctx, &identityv1.ListAuditEventsRequest{PageSize: 1000, PageToken: token})
		must(t, err)
		for _, e := range res.Events {
			if e.Outcome != "OK" && e.Outcome != "UNAVAILABLE" && e.Outcome != "CANCELED" && e.Outcome != "CONFLICT" {
				t.Errorf("audit: %v", e)
			}
			if e.Outcome == "OK" && (e.Method == "yunhe.jobs.v1.JobService/SubmitJob" || e.Method == "yunhe.jobs.v1.JobService/SubmitJobs") && e.Subject != "" {
				times[e.Subject]++
			}
		}
		if token = res.NextPageToken; token == "" {
			break
		}
	}
	for id := range l.first {
		if times[id] != 1 {
			t.Errorf("the submission of job %s was audited %d times, want once", id, times[id])
		}
	}
	if len(times) != len(l.first) {
		t.Errorf("%d submissions were audited, want %d", len(times), len(l.first))
	}
}
