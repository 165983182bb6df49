package kill_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

// Kinds of jobs; a job's name is its kind, a hyphen and a number.
const (
	quick      = "quick"      // succeeds at once
	pair       = "pair"       // two tasks
	triple     = "triple"     // three replicas of one task
	slow       = "slow"       // runs one to two seconds, so that kills hit it
	stubborn   = "stubborn"   // fails all of its three runs
	recovering = "recovering" // fails its first run, then succeeds
	doomed     = "doomed"     // one task fails, the other is stopped for it
	halted     = "halted"     // is stopped by its client
)

// shares say how many of a hundred jobs are of each kind.
var shares = []struct {
	kind string
	n    int
}{{quick, 54}, {pair, 10}, {triple, 5}, {slow, 10}, {stubborn, 6}, {recovering, 6}, {doomed, 3}, {halted, 6}}

const spec = "tiny"

// unit is what is submitted with one request ID.
type unit struct {
	request string
	batch   bool
	twice   bool // sent again after it was acknowledged
	jobs    []*jobsv1.JobSpec
}

// makeWork cuts n jobs into single submissions and batches.
func makeWork(rng *rand.Rand, n int, proof string) []*unit {
	var out []*unit
	for made := 0; made < n; {
		u := makeUnit(rng, len(out), proof)
		u.jobs = u.jobs[:min(len(u.jobs), n-made)]
		out = append(out, u)
		made += len(u.jobs)
	}
	return out
}

// makeUnit makes the unit of a number.
func makeUnit(rng *rand.Rand, number int, proof string) *unit {
	u := &unit{request: fmt.Sprintf("unit-%d", number), twice: rng.IntN(10) == 0}
	size := 1
	if u.batch = rng.IntN(3) == 0; u.batch {
		size = 1 + rng.IntN(12)
	}
	for i := range size {
		x := rng.IntN(100)
		for _, s := range shares {
			if x -= s.n; x < 0 {
				u.jobs = append(u.jobs, makeJob(rng, s.kind, number*12+i, proof))
				break
			}
		}
	}
	return u
}

// line is what a run that ends by itself writes last.
const line = `echo "$YUNHE_JOB_ID $YUNHE_TASK_INDEX $YUNHE_REPLICA_INDEX $YUNHE_ATTEMPT ran"`

func makeJob(rng *rand.Rand, kind string, number int, proof string) *jobsv1.JobSpec {
	task := func(name string, then string) *jobsv1.Task {
		// A run has a time limit so that nothing is left if the test breaks off.
		return &jobsv1.Task{Name: name, Command: proof + "\n" + line + "\n" + then, ImageId: "host", ResourceSpecId: spec, ReplicaNumber: 1,
			Network: true, ScratchMib: 4, TimeoutSeconds: 300, StopGraceSeconds: 5}
	}
	j := &jobsv1.JobSpec{Name: fmt.Sprintf("%s-%d", kind, number), Tasks: []*jobsv1.Task{task("main", "exit 0")}}
	main := j.Tasks[0]
	then := func(last string) { main.Command = proof + "\n" + line + "\n" + last }
	const hang = "exec sleep 120"
	switch kind {
	case pair:
		j.Tasks = append(j.Tasks, task("other", "exit 0"))
	case triple:
		main.ReplicaNumber = 3
	case slow:
		main.Command = fmt.Sprintf("%s\nsleep 1.%d\n%s", proof, rng.IntN(10), line)
	case stubborn:
		j.MaxRetries = 2
		then("exit 3")
	case recovering:
		j.MaxRetries = 2
		then(`test "$YUNHE_ATTEMPT" -gt 1`)
	case doomed:
		then("exit 3")
		j.Tasks = append(j.Tasks, task("other", hang))
	case halted:
		then(hang)
	}
	return j
}

func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// load submits and stops.
type load struct {
	c       *cluster
	p       *progress
	proofs  *proofs
	work    []*unit
	jobs    int // in all
	next    atomic.Int64
	started atomic.Int64 // jobs submitted, acknowledged or not
	acked   atomic.Int64
	repeats atomic.Int64
	stops   chan string

	mu    sync.Mutex        // guards the fields below
	kinds map[string]string // names of the jobs acknowledged, by ID
	first map[string]bool   // the first job of each request

	full []shift // when the disks of centers were; set before the check
}

// ahead is how many jobs may be under way: submissions then go on for as long
// as the jobs do, and kills hit them.
const ahead = 300

func (l *load) submit(ctx context.Context) error {
	for {
		i := int(l.next.Add(1)) - 1
		if i >= len(l.work) {
			return nil
		}
		u := l.work[i]
		if err := l.p.reach(ctx, int(l.started.Add(int64(len(u.jobs))))-ahead); err != nil {
			return err
		}
		ids, err := l.submitUnit(ctx, u)
		if err != nil {
			return err
		}
		if l.acked.Add(int64(len(ids))) == int64(l.jobs) {
			close(l.stops)
		}
	}
}

// submitUnit submits a unit, some twice.
func (l *load) submitUnit(ctx context.Context, u *unit) ([]string, error) {
	ids, err := l.send(ctx, u)
	if err != nil {
		return nil, err
	}
	if u.twice {
		again, err := l.send(ctx, u)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(ids, again) {
			return nil, fmt.Errorf("request %s made the jobs %v and, sent again, %v", u.request, ids, again)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first[ids[0]] = true
	for n, id := range ids {
		l.kinds[id] = u.jobs[n].Name
		if kindOf(u.jobs[n].Name) == halted {
			l.stops <- id
		}
	}
	return ids, nil
}

// send submits a unit until it is acknowledged.
func (l *load) send(ctx context.Context, u *unit) (ids []string, err error) {
	err = l.retry(ctx, "submit "+u.request, func(ctx context.Context) error {
		if u.batch {
			res, err := l.c.jobs.SubmitJobs(ctx, &jobsv1.SubmitJobsRequest{RequestId: u.request, Jobs: u.jobs})
			ids = res.GetJobIds()
			return err
		}
		job, err := l.c.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: u.request, Job: u.jobs[0]})
		ids = []string{job.GetJobId()}
		return err
	})
	if err == nil && len(ids) != len(u.jobs) {
		err = fmt.Errorf("request %s: %d jobs, got the IDs %v", u.request, len(u.jobs), ids)
	}
	return ids, err
}

// stop stops each job of kind halted: every other one only once it runs.
func (l *load) stop(ctx context.Context) error {
	for n := 1; ; n++ {
		var id string
		select {
		case <-ctx.Done():
			return ctx.Err()
		case next, ok := <-l.stops:
			if !ok {
				return nil
			}
			id = next
		}
		if n%2 == 0 {
			if err := l.proofs.await(ctx, id); err != nil {
				return err
			}
		}
		err := l.retry(ctx, "stop "+id, func(ctx context.Context) error {
			_, err := l.c.jobs.StopJob(ctx, &jobsv1.StopJobRequest{JobId: id, Reason: "test"})
			return err
		})
		if err != nil {
			return err
		}
		l.p.add(id)
	}
}

// retry calls until it works or fails for a reason that a killed platform does
// not explain.
func (l *load) retry(ctx context.Context, what string, call func(ctx context.Context) error) error {
	for {
		tctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := call(tctx)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !passes(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		l.repeats.Add(1)
		pause(ctx, 50*time.Millisecond)
	}
}

// passes reports whether the error is one that asks to try again: the platform
// is away, went away in the middle, or has too many writers.
func passes(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	if !connect.IsWireError(err) {
		return true // said by this side: nobody answered, or the answer broke off
	}
	switch ce.Code() {
	case connect.CodeUnavailable:
		return true
	case connect.CodeAborted:
		return strings.Contains(ce.Message(), "too many writers")
	}
	return false
}
