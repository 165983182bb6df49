package slurm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Suspending. slurmrestd cannot suspend jobs, and Slurm lets only its operators;
// but it sends signals. A running script lets its command stand still at
// signalHold and go on at signalGo, and a file beside the log says which.
// What is wanted is a word of the job's comment, so a later process
// knows it; what is so is that file. The loop asks again until both agree.

// holdWord in a job's comment: its command is to stand still.
const holdWord = "hold"

// How often the loop signals a script whose command is not as wanted, and how
// long it looks without pause for what comes of a signal.
const (
	holdAgain = 2 * time.Second
	holdEager = 3 * time.Second
)

// Suspend suspends running attempts and resumes suspended ones. The time limit
// of a suspended attempt goes on, and it keeps what it has. Without output_dir
// it is unimplemented: whether a command stands still would not be known.
func (d *Driver) Suspend(ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
	if d.folder == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("attempts of center %s cannot be suspended: what became of it could not be seen without output_dir", d.center))
	}
	if len(r.Suspend)+len(r.Resume) == 0 {
		return &adapterv1.SuspendResponse{}, nil
	}
	if err := d.whole(ctx, time.Time{}); err != nil {
		return nil, err
	}
	var group errgroup.Group
	group.SetLimit(workers)
	for _, id := range r.Suspend {
		group.Go(func() error { return d.wantHold(ctx, id, true) })
	}
	for _, id := range r.Resume {
		group.Go(func() error { return d.wantHold(ctx, id, false) })
	}
	if err := group.Wait(); err != nil {
		return nil, unavailable("%s", d.api.explain(err))
	}
	d.look()
	return &adapterv1.SuspendResponse{}, nil
}

// wantHold notes at the cluster whether an attempt's command is to stand still,
// and signals its script.
func (d *Driver) wantHold(ctx context.Context, id string, hold bool) error {
	d.mu.Lock()
	a := d.attempts[id]
	d.mu.Unlock()
	if a == nil {
		return nil
	}
	a.op.Lock()
	defer a.op.Unlock()
	d.mu.Lock()
	j, st := a.holdable(), d.phaseOf(id)
	held := a.held
	d.mu.Unlock()
	if j == nil || st != adapterv1.Phase_PHASE_RUNNING && st != adapterv1.Phase_PHASE_SUSPENDED {
		return nil
	}
	comment, wanted := withWord(string(j.Comment), holdWord, hold), wantsHold(j)
	if wanted == hold && held == hold {
		return nil
	}
	if wanted != hold {
		_, err := d.api.call(ctx, http.MethodPost, fmt.Sprintf("job/%d", j.ID.n), map[string]any{"comment": comment})
		var no *apiError
		if errors.As(err, &no) {
			return nil // it has just ended
		}
		if err != nil {
			return err
		}
		d.mu.Lock()
		if a.holdable() == j {
			noted := *j // lists are shared with readers
			noted.Comment = text(comment)
			a.jobs = []*job{&noted}
		}
		d.mu.Unlock()
	}
	ready := d.folder.ready(id)
	d.mu.Lock()
	if a.asked = time.Now(); ready {
		a.nudged = a.asked
	}
	d.mu.Unlock()
	if !ready {
		return nil // the loop signals it when it can take a signal
	}
	return d.nudge(ctx, j.ID.n, hold)
}

// nudge signals a script. A job that has just ended takes no signal.
func (d *Driver) nudge(ctx context.Context, id int64, hold bool) error {
	sig := signalGo
	if hold {
		sig = signalHold
	}
	err := d.cancel(ctx, id, fmt.Sprint(sig))
	var no *apiError
	if errors.As(err, &no) {
		return nil
	}
	return err
}

// phaseOf is what was told last of an attempt.
func (d *Driver) phaseOf(id string) adapterv1.Phase {
	st, _ := d.board.Get(id)
	return st.GetPhase()
}

// holdable returns the job of an attempt that can be suspended or resumed, nil
// if there is none; the driver's mu is held.
func (a *attempt) holdable() *job {
	if len(a.jobs) != 1 || a.final != nil || a.finishing || a.stopped || !a.forgotten.IsZero() || !a.jobs[0].running() {
		return nil
	}
	return a.jobs[0]
}

func wantsHold(j *job) bool {
	_, hold := noted(string(j.Comment), holdWord)
	return hold
}

// withWord is a comment with a word, or without it.
func withWord(comment, word string, with bool) string {
	var out []string
	for _, w := range strings.Fields(comment) {
		if w != word {
			out = append(out, w)
		}
	}
	if with {
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

// lookAtHolds finds whether the commands that are to stand still, or did, do,
// and signals the scripts of those that are not as wanted.
func (d *Driver) lookAtHolds(ctx context.Context) {
	if d.folder == nil {
		return
	}
	var ask []*attempt
	d.mu.Lock()
	for _, a := range d.attempts {
		// What another process asked for may be under way: each is read once.
		if j := a.holdable(); j != nil && (a.held != wantsHold(j) || !a.holdKnown) {
			ask = append(ask, a)
		}
	}
	d.mu.Unlock()
	now := time.Now()
	for _, a := range ask {
		held, ready := d.folder.suspended(a.id), d.folder.ready(a.id)
		d.mu.Lock()
		if j := a.holdable(); j != nil {
			a.holdKnown = true
			if a.held != held {
				a.held = held
				d.publish(judge(facts{attempt: a.id, jobs: a.jobs, stopped: a.stopped, again: d.cfg.Requeue, held: held}))
			}
			d.settleHold(ctx, a, j, ready, now)
		}
		d.mu.Unlock()
	}
}

// settleHold signals a script whose command is not as wanted, unless that was
// done a moment ago; d.mu is held.
func (d *Driver) settleHold(ctx context.Context, a *attempt, j *job, ready bool, now time.Time) {
	want := wantsHold(j)
	if a.held == want {
		return
	}
	if now.Sub(a.asked) < holdEager {
		d.look()
	}
	if !ready || now.Sub(a.nudged) < holdAgain { // a script that has not set its traps would end by the signal
		return
	}
	a.nudged = now
	d.loops.Go(func() {
		if err := d.nudge(ctx, j.ID.n, want); err != nil && ctx.Err() == nil {
			d.log.Warn("a job is not signaled yet", "attempt_id", a.id, "slurm_job", j.ID.n, "error", err)
		}
	})
}
