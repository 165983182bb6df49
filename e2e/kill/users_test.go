package kill_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

const (
	// unitsPerSecond are submitted, of one to twelve jobs each.
	unitsPerSecond = 1
	// readsPerSecond of each of so many readers.
	readsPerSecond, readers = 20, 16
	watchers                = 4
	// callTime is how long a user waits for an answer to a question.
	callTime = 5 * time.Second
)

// users submit, stop, list, get, watch and read logs.
type users struct {
	*load
	rng *rand.Rand

	mu      sync.Mutex // guards the fields below
	ids     []string   // acknowledged
	history []porcupine.Operation
	calls   int
	failed  int            // at the first try
	again   int            // and at the second
	odd     map[string]int // errors that no fault explains
	seconds map[int64][2]int
	watched int
}

// run starts them in group; they end when lctx does, after what they began.
func (u *users) run(ctx, lctx context.Context, group *errgroup.Group) {
	u.odd, u.seconds = map[string]int{}, map[int64][2]int{}
	var clients sync.WaitGroup
	clients.Add(2)
	units := make(chan *unit)
	group.Go(func() error {
		defer close(units)
		tick := time.NewTicker(time.Second / unitsPerSecond)
		defer tick.Stop()
		for made := 0; ; {
			x := makeUnit(u.rng, made, u.proofs.command)
			select {
			case <-lctx.Done():
				return nil
			case units <- x:
				made++
			}
			select {
			case <-lctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	for range 2 {
		group.Go(func() error {
			defer clients.Done()
			for x := range units {
				begin := time.Now()
				ids, err := u.submitUnit(ctx, x)
				if err != nil {
					return err
				}
				u.note(begin, nil)
				u.mu.Lock()
				u.ids = append(u.ids, ids...)
				for _, id := range ids {
					u.history = append(u.history, porcupine.Operation{Input: id, Output: jobsv1.State_STATE_UNSPECIFIED, Call: begin.UnixNano(), Return: time.Now().UnixNano()})
				}
				u.mu.Unlock()
			}
			return nil
		})
	}
	group.Go(func() error {
		clients.Wait()
		close(u.stops)
		return nil
	})
	group.Go(func() error { return u.stop(ctx) })
	for i := range readers {
		rng := rand.New(rand.NewPCG(u.rng.Uint64(), uint64(i)))
		group.Go(func() error { u.read(lctx, rng); return nil })
	}
	for range watchers {
		group.Go(func() error { u.watch(lctx); return nil })
	}
}

func (u *users) read(ctx context.Context, rng *rand.Rand) {
	tick := time.NewTicker(time.Second / readsPerSecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		id := u.pick(rng)
		if id == "" {
			continue
		}
		kind := rng.IntN(10)
		begin := time.Now()
		for try := 0; ; try++ {
			err := u.ask(ctx, kind, id)
			if ctx.Err() != nil {
				return
			}
			if try == 0 {
				u.note(begin, err)
			}
			if err == nil {
				break
			}
			u.mu.Lock()
			if try == 1 {
				u.again++
			}
			if !passes(err) {
				u.odd[err.Error()]++
			}
			u.mu.Unlock()
			pause(ctx, 100*time.Millisecond)
		}
	}
}

// note counts a call by the second in which it began.
func (u *users) note(begin time.Time, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	s := u.seconds[begin.Unix()]
	s[0]++
	if err != nil {
		u.failed++
		s[1]++
	}
	u.seconds[begin.Unix()] = s
}

func (u *users) pick(rng *rand.Rand) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.ids) == 0 {
		return ""
	}
	last := u.ids[max(0, len(u.ids)-100):] // about which something happens
	return last[rng.IntN(len(last))]
}

func (u *users) ask(ctx context.Context, kind int, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	switch {
	case kind < 2:
		_, err := u.c.jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{PageSize: 20})
		return err
	case kind < 4:
		stream, err := u.c.jobs.ReadLog(ctx, &jobsv1.ReadLogRequest{JobId: id})
		if err != nil {
			return err
		}
		for stream.Receive() {
		}
		err = stream.Err()
		if err != nil && (errors.Is(err, io.EOF) || connect.CodeOf(err) == connect.CodeNotFound || connect.CodeOf(err) == connect.CodeFailedPrecondition) {
			err = nil // it has none yet
		}
		return errors.Join(err, stream.Close())
	}
	begin := time.Now()
	j, err := u.c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: id})
	state := j.GetState()
	if connect.CodeOf(err) == connect.CodeNotFound {
		state, err = missing, nil
	}
	if err == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.history = append(u.history, porcupine.Operation{Input: id, Output: state, Call: begin.UnixNano(), Return: time.Now().UnixNano()})
	}
	return err
}

// watch follows all changes, anew whenever the process that told them is gone.
func (u *users) watch(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := u.c.jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{})
		if err == nil {
			for stream.Receive() {
				u.mu.Lock()
				u.watched++
				u.mu.Unlock()
			}
			err = errors.Join(stream.Err(), stream.Close())
		}
		if err != nil && ctx.Err() == nil && !passes(err) {
			u.mu.Lock()
			u.odd["watch: "+err.Error()]++
			u.mu.Unlock()
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// missing is the state of a job that is not there.
const missing jobsv1.State = -1

// register is a job as those see it who read it: it is there from its
// submission on, and once it has ended it stays as it is.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, o := range history {
			id := o.Input.(string)
			i, ok := at[id]
			if !ok {
				i = len(parts)
				at[id], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init: func() any { return missing },
	Step: func(state, _, output any) (bool, any) {
		was, is := state.(jobsv1.State), output.(jobsv1.State)
		switch {
		case is == jobsv1.State_STATE_UNSPECIFIED: // the submission
			return was == missing, jobsv1.State_STATE_QUEUED
		case was == missing || is == missing:
			return was == is, is
		case ended(was):
			return was == is, is
		}
		return true, is
	},
}

func ended(s jobsv1.State) bool {
	return slices.Contains([]jobsv1.State{jobsv1.State_STATE_STOPPED, jobsv1.State_STATE_SUCCEEDED, jobsv1.State_STATE_FAILED}, s)
}

// check says what the users saw.
func (u *users) check(t *testing.T, took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(register, u.history, time.Minute) {
	case porcupine.Illegal:
		t.Error("what was read of jobs is not linearizable: a job was gone, or changed after its end")
	case porcupine.Unknown:
		t.Error("whether what was read is linearizable was not found out in a minute")
	}
	for text, n := range u.odd {
		t.Errorf("%d times: %s", n, text)
	}
	if u.watched == 0 {
		t.Error("nothing was watched")
	}
	t.Logf("%d calls in %.0f s (%.0f/s), %d failed at first and %d a second time, %d changes watched; %d reads of jobs are linearizable",
		u.calls, took.Seconds(), float64(u.calls)/took.Seconds(), u.failed, u.again, u.watched, len(u.history))
}

// clockError is by how much times that are stored may differ from this test's.
const clockError = time.Second

// checkTimes checks that jobs were made, and their runs placed, when this test
// saw it, whatever the clocks of processes said at the time.
func (u *users) checkTimes(t *testing.T, ctx context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	n := 0
	for _, o := range u.history {
		if o.Output != jobsv1.State_STATE_UNSPECIFIED {
			continue
		}
		n++
		group.Go(func() error {
			j, err := u.c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: o.Input.(string)})
			if err != nil {
				return err
			}
			from, to := time.Unix(0, o.Call).Add(-clockError), time.Unix(0, o.Return).Add(clockError)
			if at := j.CreatedAt.AsTime(); at.Before(from) || at.After(to) {
				t.Errorf("job %s was made at %s by the platform, between %s and %s by this test", j.JobId, at, from, to)
			}
			for _, r := range j.Replicas {
				told := u.proofs.when(runKey{j.JobId, r.TaskIndex, r.ReplicaIndex, r.Attempt})
				if at := r.PlacedAt.AsTime(); !told.IsZero() && (at.Before(from) || at.After(told.Add(clockError))) {
					t.Errorf("a run of job %s was placed at %s by the platform, between %s and %s by this test", j.JobId, at, from, told)
				}
			}
			return nil
		})
	}
	must(t, group.Wait())
	t.Logf("the times of %d jobs are right within %v", n, clockError)
}
