package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// Pause makes every process of the run stand still and returns when they do.
// They keep their memory and what else they hold; the wall time does not count
// until Resume. A paused run stays paused when the gateway ends, and can be
// stopped. Pausing one that is paused does nothing. It returns a Conflict
// fault if the run is not running.
func (r *Run) Pause(ctx context.Context) error {
	r.pausing.Lock()
	defer r.pausing.Unlock()
	if r.Paused() {
		return nil
	}
	if err := r.checkRunning(); err != nil {
		return err
	}
	// Noted first: a gateway that dies in between leaves a note that the next
	// one sees to be wrong, see [Run.adoptPause].
	if err := runner.NotePause(r.dir, true, monotonic()); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the pause of run %s cannot be written", r.id)
	}
	err := r.freeze(ctx)
	if err == nil && exists(filepath.Join(r.dir, runner.StopFile)) {
		err = fault.New(fault.Conflict, "run %s is ending", r.id) // its runner may have let it go on before we froze it
	}
	if err != nil {
		_ = r.groups.Freeze(false) // it may be gone
		_ = runner.NotePause(r.dir, false, monotonic())
		return err
	}
	r.setPaused(true)
	return nil
}

// Resume undoes Pause. Resuming a run that is not paused does nothing.
func (r *Run) Resume() error {
	r.pausing.Lock()
	defer r.pausing.Unlock()
	if err := r.checkRunning(); err != nil {
		return err
	}
	if !r.Paused() {
		return nil
	}
	if err := r.groups.Freeze(false); errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Conflict, "run %s is ending", r.id)
	} else if err != nil {
		return fault.Wrap(fault.Unavailable, err, "run %s cannot be resumed", r.id)
	}
	if err := runner.NotePause(r.dir, false, monotonic()); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the end of the pause of run %s cannot be written", r.id)
	}
	r.setPaused(false)
	return nil
}

// Paused tells whether the run stands still.
func (r *Run) Paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused && r.result == nil
}

func (r *Run) setPaused(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = on
}

func (r *Run) checkRunning() error {
	if r.StartedAt().IsZero() {
		// Earlier, the groups may hold the runner itself.
		return fault.New(fault.Conflict, "run %s has not started", r.id)
	}
	if _, ended := r.Result(); ended {
		return fault.New(fault.Conflict, "run %s has ended", r.id)
	}
	return nil
}

// freeze has the run stand still. The kernel offers nothing to wait on in v1;
// freezing takes well under a millisecond unless a process waits for a device, or
// for a child that was frozen before it became another program (vfork). That child
// is let go on for a moment, and all of it tried again.
func (r *Run) freeze(ctx context.Context) error {
	const again = 16 * time.Millisecond
	for tick := time.Millisecond; ; tick = min(2*tick, 50*time.Millisecond) {
		if tick == time.Millisecond || tick >= again {
			err := r.groups.Freeze(true)
			if errors.Is(err, fs.ErrNotExist) {
				return fault.New(fault.Conflict, "run %s is ending", r.id)
			}
			if err != nil {
				return fault.Wrap(fault.Unavailable, err, "run %s cannot be paused", r.id)
			}
		}
		frozen, err := r.groups.Frozen()
		if frozen {
			return nil
		}
		if err != nil {
			return fault.New(fault.Conflict, "run %s is ending", r.id)
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(fault.Unavailable, ctx.Err(), "run %s does not stand still", r.id)
		case <-r.done:
			return fault.New(fault.Conflict, "run %s has ended", r.id)
		case <-time.After(tick):
		}
		if 2*tick >= again {
			_ = r.groups.Freeze(false) // it may be gone
			<-time.After(time.Millisecond)
		}
	}
}

// adoptPause finds out whether a run an earlier gateway left stands still. The
// kernel is right; a note that says otherwise was written by a gateway that
// died before it had done what it noted, or noted what it had done.
func (r *Run) adoptPause() error {
	frozen, err := r.groups.Frozen()
	if err != nil {
		return nil // it is ending
	}
	if !frozen {
		_ = r.groups.Freeze(false) // it may be half way there
	}
	_, noted, err := runner.ReadPauses(r.dir, monotonic())
	if err == nil && noted != frozen {
		err = runner.NotePause(r.dir, frozen, monotonic())
	}
	r.paused = frozen
	return err
}
