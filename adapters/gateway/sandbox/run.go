package sandbox

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// Reason says why a run ended; see the constants of package runner.
type Reason = runner.Reason

// Result is how a run ended. It never changes.
type Result struct {
	Reason    Reason
	ExitCode  int       // the command's; -1 if it did not exit by itself
	Signal    int       // that ended it, 0 if none
	Message   string    // for the user, mostly with start_failed
	StartedAt time.Time // zero if the command never ran
	EndedAt   time.Time // StartedAt plus the time measured, whatever the clock did

	CPU            time.Duration // measured by the kernel, of the command and all it started
	MaxMemoryBytes int64
	OOMKills       int64 // processes the kernel ended at the memory limit, even if the command survived that
	PidsLimitHits  int64 // processes and threads refused
	OutputBytes    int64
	DroppedBytes   int64 // the oldest part of the output, not kept
}

// Usage is what a running command uses now.
type Usage struct {
	CPU            time.Duration // since it started
	MemoryBytes    int64
	MaxMemoryBytes int64
	Pids           int64
}

// Run is one attempt, running or ended. Its methods are safe for concurrent
// use.
type Run struct {
	id           string
	dir          string
	groups       runner.Groups
	uid          uint32
	logFileBytes int64
	devices      []string // on the host; set before launched is closed

	launched chan struct{} // closed when Start has started the runner or failed
	done     chan struct{} // closed when result is there

	// mu guards what follows.
	mu        sync.Mutex
	err       error    // why launching failed
	proc      *process // nil before launch and after the end
	startedAt time.Time
	result    *Result
	paused    bool

	pausing sync.Mutex // held by Pause and Resume
}

// ID is the attempt's.
func (r *Run) ID() string { return r.id }

// Done is closed once the run has ended, its processes and groups are gone
// and its record is durable.
func (r *Run) Done() <-chan struct{} { return r.done }

// Result returns how the run ended; ok is false while it has not.
func (r *Run) Result() (res Result, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.result == nil {
		return Result{}, false
	}
	return *r.result, true
}

// StartedAt returns when the command began, zero if that has not happened.
func (r *Run) StartedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.startedAt
}

// Stop asks the run to end: every process gets SIGTERM and, after the grace
// period of its spec, SIGKILL. It returns at once; Done tells the end.
// The wish is kept on disk: it holds for a run that is just starting and
// even if the gateway dies. Stopping an ended run does nothing.
func (r *Run) Stop() error {
	if _, ended := r.Result(); ended {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(r.dir, runner.StopFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the wish to stop run %s cannot be written", r.id)
	}
	f.Close()
	r.mu.Lock()
	r.paused = false // the runner lets it go on, so that it can end
	proc := r.proc
	r.mu.Unlock()
	if proc == nil {
		return nil // not yet launched: the runner will find the file
	}
	if err := proc.terminate(); err != nil {
		if _, ended := r.Result(); ended {
			return nil
		}
		return fault.Wrap(fault.Unavailable, err, "run %s cannot be signaled", r.id)
	}
	return nil
}

// Usage reads the kernel's counters. It returns a Conflict fault if the run
// is not running.
func (r *Run) Usage() (Usage, error) {
	u, ok := r.groups.Usage()
	if !ok {
		return Usage{}, fault.New(fault.Conflict, "run %s is not running", r.id)
	}
	return Usage{
		CPU:         time.Duration(u.CPUUsec) * time.Microsecond,
		MemoryBytes: u.MemoryBytes, MaxMemoryBytes: u.MaxMemoryBytes, Pids: u.Pids,
	}, nil
}

// finish makes e the run's result.
func (r *Run) finish(e *runner.Exit) {
	res := &Result{
		Reason: e.Reason, ExitCode: e.ExitCode, Signal: e.Signal, Message: e.Message,
		StartedAt: micros(e.StartedAt), EndedAt: micros(e.EndedAt),
		CPU: time.Duration(e.CPUUsec) * time.Microsecond, MaxMemoryBytes: e.MaxMemoryBytes,
		OOMKills: e.OOMKills, PidsLimitHits: e.PidsLimitHits, OutputBytes: e.OutputBytes, DroppedBytes: e.DroppedBytes,
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	r.result = res
	if !res.StartedAt.IsZero() {
		r.startedAt = res.StartedAt
	}
	if r.proc != nil {
		r.proc.close()
		r.proc = nil
	}
	close(r.done)
}

func micros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
