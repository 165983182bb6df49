package kill_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
)

// groupingJobs are submitted to each grouping.
const groupingJobs = 24

// TestGrouping runs the same jobs on platforms whose roles are grouped
// otherwise. States, exit codes, runs and logs come out the same, and each bill
// is the sum of its runs.
func TestGrouping(t *testing.T) {
	bin, err := enginetest.Binary()
	must(t, err)
	var each [][]string
	for _, r := range roles {
		each = append(each, []string{r})
	}
	plan := planned(t, bin, 3)
	t.Logf("planned: %v", plan)
	var first []string
	for _, x := range []struct {
		name   string
		groups [][]string
		copies int
	}{{"one process", [][]string{roles}, 1}, {"each role by itself, twice", each, 2}, {"as planned, three times", plan, 3}} {
		t.Run(x.name, func(t *testing.T) {
			got := grouping(t, x.groups, x.copies)
			if first == nil {
				first = got
			} else if !slices.Equal(got, first) {
				t.Errorf("the jobs came out as\n%s\nwith one process as\n%s", strings.Join(got, "\n"), strings.Join(first, "\n"))
			}
		})
	}
}

// grouping runs the jobs and returns what became of each, by name.
func grouping(t *testing.T, groups [][]string, copies int) []string {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	proofs := newProofs(t)
	servers, keys := startBus(t)
	c := startMany(t, ctx, many{groups: groups, copies: copies, database: enginetest.Postgres(t), bus: servers.URL()}, keys, 8)
	work := makeWork(rand.New(rand.NewPCG(1, 1)), groupingJobs, proofs.command)
	p := &progress{done: map[string]bool{}}
	proofs.first = p.add
	l := &load{c: c, p: p, proofs: proofs, work: work, jobs: groupingJobs, kinds: map[string]string{}, first: map[string]bool{}, stops: make(chan string, groupingJobs)}
	clients, cctx := errgroup.WithContext(ctx)
	for range 4 {
		clients.Go(func() error { return l.submit(cctx) })
	}
	clients.Go(func() error { return l.stop(cctx) })
	if err := clients.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	if err := c.await(ctx, groupingJobs); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	r := l.check(t, ctx)
	out := l.outcomes(t, ctx)
	c.explained(t, ctx)
	c.stop(t)
	t.Logf("%d processes, %d jobs, %d runs", len(groups)*copies, groupingJobs, r.runs)
	return out
}

// outcomes says how each job ended, without what differs from one time to the
// next: identifiers, times, and how far one got that was stopped.
func (l *load) outcomes(t *testing.T, ctx context.Context) []string {
	var out []string
	for id, name := range l.kinds {
		j, err := l.c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: id})
		must(t, err)
		text := fmt.Sprintf("%s %s", name, j.State)
		for _, r := range j.Replicas {
			text += fmt.Sprintf("; %d.%d %s", r.TaskIndex, r.ReplicaIndex, r.State)
			if r.State != jobsv1.State_STATE_STOPPED {
				text += fmt.Sprintf(" exit %d after %d runs", r.ExitCode, r.Attempt)
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// explained has each process say what a job waits for that its tenant's queue
// keeps back, which one process alone knows. There is no room for it either:
// that one hears of the limit a moment later than of the job.
func (c *cluster) explained(t *testing.T, ctx context.Context) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(c.dir, c.dirOfKey, "admin.key"))
	must(t, err)
	auth := connect.WithInterceptors(bearer(strings.TrimSpace(string(key))))
	id := ""
	for _, url := range c.api.urls {
		one := schedulerv1connect.NewSchedulerServiceClient(http.DefaultClient, url, auth)
		if id == "" {
			_, err := schedulerv1connect.NewQueueServiceClient(http.DefaultClient, url, auth).SetQueue(ctx, &schedulerv1.SetQueueRequest{QueueId: "default", Queue: &schedulerv1.Queue{QueueId: "default", Weight: 1, Limit: map[string]string{"cpu": "10m"}}})
			must(t, err)
			j, err := c.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: &jobsv1.JobSpec{Name: "bounded", Tasks: []*jobsv1.Task{{Name: "t", Command: "true", ImageId: "host", ResourceSpecId: spec, ReplicaNumber: 1000, ScratchMib: 8}}, Gang: true}})
			must(t, err)
			id = j.JobId
		}
		var said []*schedulerv1.Wait
		err := c.poll(ctx, time.Minute, url+" says that the queue's limit holds the job back", func(ctx context.Context) (bool, error) {
			x, err := one.ExplainJob(ctx, &schedulerv1.ExplainJobRequest{JobId: id})
			if err != nil {
				return false, err
			}
			said = x.Waits
			return slices.ContainsFunc(said, func(w *schedulerv1.Wait) bool { return w.Cause == schedulerv1.Wait_CAUSE_QUOTA }), nil
		})
		if err != nil {
			t.Fatalf("%v; it said %v", err, said)
		}
	}
}
