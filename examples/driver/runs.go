package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// What is in the folder of an attempt. The folder appears whole, by a rename,
// and so does every file in it that says something.
const (
	fileAttempt = "attempt" // what was applied
	dirWork     = "work"    // where it runs
	fileLog     = "log"     // what it writes
	fileLock    = "lock"    // locked by its processes as long as one lives
	fileStarted = "started" // the process around it; as old as its start
	fileWhy     = "why"     // why it was asked to end: stopped, wall_time
	fileAsked   = "asked"   // it had its SIGTERM
	fileExit    = "exit"    // exit status, and why; as old as its end
	fileNever   = "never"   // why it will not start: stopped, lost
)

// around runs the command and writes down its beginning and its end. It is a
// shell that outlives the driver, so a status is not lost with the driver; it
// ignores the SIGTERM that is meant for the command. Its file 3 is the lock.
const around = `trap : TERM
echo $$ >started.new && mv started.new started || exit
(cd work && exec /bin/sh -c "$1") >log 2>&1
code=$?
trap '' TERM
{ echo $code; cat why 2>/dev/null; } >exit.new
mv exit.new exit`

var (
	isID       = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	isVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// runs is a folder of runs. An attempt is started by whoever holds its lock
// and sees that it never was; the lock goes over to the processes started, so
// however many drivers look at the folder and whenever they are killed, it
// starts at most once, and once if one of them lives.
type runs struct {
	dir   string
	log   *slog.Logger
	board adapter.Board[*adapterv1.Status]
	wake  chan struct{}
	read  chan struct{} // closed when all there is was read once
	made  bool          // there was a folder; the loop's

	step sync.Mutex // an attempt and what the board says of it change together

	mu  sync.Mutex // guards err
	err error      // of the folder
}

func newRuns(dir string, log *slog.Logger) *runs {
	r := &runs{dir: dir, log: log, wake: make(chan struct{}, 1), read: make(chan struct{})}
	_ = r.folder() // the loop tries again and tells of trouble
	return r
}

// folder makes the folder, once: if it is missing later that is trouble, for a
// new one would know of nothing.
func (r *runs) folder() error {
	if r.made {
		return nil
	}
	err := os.MkdirAll(r.dir, 0o700)
	r.made = err == nil
	return err
}

// look has the loop look at the folder now.
func (r *runs) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// trouble says what is the matter with the folder, "" if nothing.
func (r *runs) trouble() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return ""
	}
	return fmt.Sprintf("the folder of runs cannot be read: %v; make it readable again, then all goes on by itself", r.err)
}

// loop starts what was accepted, ends what has to end and puts on the board
// what it sees, until ctx ends.
func (r *runs) loop(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	once := sync.OnceFunc(func() { close(r.read) })
	r.sweep()
	for {
		err := r.tend()
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		if err == nil {
			once()
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
		}
	}
}

// sweep removes what a driver that was killed left half made.
func (r *runs) sweep() {
	made, _ := filepath.Glob(filepath.Join(r.dir, ".new-*")) // the patterns are right
	gone, _ := filepath.Glob(filepath.Join(r.dir, ".old-*"))
	for _, path := range append(made, gone...) {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Hour { // another driver may be at it
			if err := os.RemoveAll(path); err != nil {
				r.log.Warn("rest of a run not removed", "path", path, "error", err)
			}
		}
	}
}

func (r *runs) tend() error {
	if err := r.folder(); err != nil {
		return err
	}
	all, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	before := r.board.All()
	for _, e := range all {
		id := e.Name()
		if !isID.MatchString(id) {
			continue // in the making, or on the way out
		}
		delete(before, id)
		if err := r.show(id); err != nil {
			r.log.Warn("run not looked after", "attempt_id", id, "error", err)
		}
	}
	for id := range before {
		r.board.Delete(id)
	}
	return nil
}

// show takes an attempt as far as it goes and puts its status on the board.
func (r *runs) show(id string) error {
	r.step.Lock()
	defer r.step.Unlock()
	now, err := r.drive(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // forgotten just now, or the folder is gone: the next look says
	}
	if before, _ := r.board.Get(id); err == nil && !proto.Equal(before, now) {
		r.board.Set(id, now)
	}
	return err
}

// drive takes an attempt as far as it goes and returns its status.
func (r *runs) drive(id string) (*adapterv1.Status, error) {
	dir := filepath.Join(r.dir, id)
	st, err := r.status(id)
	if err != nil || st.Phase == adapterv1.Phase_PHASE_ENDED {
		return st, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, fileLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }() // its processes have it too, if there are any
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return st, r.limit(dir, st)
	}
	// Nothing of it lives. It was not started yet, or its end was not written.
	if st, err = r.status(id); err != nil || st.Phase == adapterv1.Phase_PHASE_ENDED {
		return st, err
	}
	why, err := os.ReadFile(filepath.Join(dir, fileWhy))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	switch {
	case st.Phase != adapterv1.Phase_PHASE_PENDING && len(why) > 0:
		err = put(dir, fileExit, "137\n"+string(why))
	case st.Phase != adapterv1.Phase_PHASE_PENDING:
		err = put(dir, fileExit, "137\nlost\n")
	case len(why) > 0:
		err = put(dir, fileNever, string(why))
	default:
		if err := r.start(dir, lock); err != nil {
			st.Message = fmt.Sprintf("could not be started, will be tried again: %v", err)
		}
		return st, nil
	}
	if err != nil {
		return nil, err
	}
	return r.status(id)
}

// start starts an attempt, whose lock the caller holds.
func (r *runs) start(dir string, lock *os.File) error {
	a, err := attempt(dir)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", around, "sh", a.Command)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{lock}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range a.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the driver
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait() // its status is in its folder
		r.look()
	}()
	return nil
}

// settled is how long after its start an attempt hears SIGTERM for sure: the
// shell around it may not have begun the command before, and would swallow it.
const settled = 200 * time.Millisecond

// limit asks what runs too long to end, and kills what was asked long enough ago.
func (r *runs) limit(dir string, st *adapterv1.Status) error {
	if st.Phase != adapterv1.Phase_PHASE_RUNNING && st.Phase != adapterv1.Phase_PHASE_SUSPENDED {
		return nil
	}
	a, err := attempt(dir)
	if err != nil {
		return err
	}
	paused, err := stood(dir)
	if err != nil {
		return err
	}
	asked, err := os.Stat(filepath.Join(dir, fileWhy))
	switch {
	case err == nil && st.Phase == adapterv1.Phase_PHASE_SUSPENDED:
		return r.goOn(dir) // what stands still hears no signal but one
	case err == nil && time.Since(asked.ModTime()) > grace(a):
		return kill(dir, syscall.SIGKILL)
	case err == nil && time.Since(time.UnixMicro(st.StartedAt)) > settled:
		// Once, whoever looks: many programs take a second one for impatience.
		f, err := os.OpenFile(filepath.Join(dir, fileAsked), os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return errors.Join(err, f.Close(), kill(dir, syscall.SIGTERM))
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case a.TimeoutSeconds > 0 && time.Since(time.UnixMicro(st.StartedAt))-paused > time.Duration(a.TimeoutSeconds)*time.Second:
		return put(dir, fileWhy, "wall_time\n")
	}
	return nil
}

// grace is how long an attempt has to end after it was asked to.
func grace(a *adapterv1.Attempt) time.Duration {
	if a.StopGraceSeconds <= 0 {
		return 10 * time.Second
	}
	return time.Duration(a.StopGraceSeconds) * time.Second
}

// kill sends a signal to all processes of an attempt that runs.
func kill(dir string, sig syscall.Signal) error {
	b, err := os.ReadFile(filepath.Join(dir, fileStarted))
	if err != nil {
		return err
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil || pid < 2 {
		return fmt.Errorf("%s in %s is %q, want a process", fileStarted, dir, b)
	}
	if err := syscall.Kill(-pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// accept writes an attempt down unless it is known.
func (r *runs) accept(a *adapterv1.Attempt) error {
	return r.create(a.AttemptId, func(dir string) error {
		if a.Seen {
			return put(dir, fileNever, "lost\n")
		}
		work, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		defer func() { _ = work.Close() }() // only a folder
		if err := work.Mkdir(dirWork, 0o700); err != nil {
			return err
		}
		for _, f := range a.Files {
			path, mode := filepath.Join(dirWork, f.Path), os.FileMode(0o600)
			if f.Executable {
				mode = 0o700
			}
			if err := errors.Join(work.MkdirAll(filepath.Dir(path), 0o700), work.WriteFile(path, f.Content, mode)); err != nil {
				return err
			}
		}
		b, err := proto.Marshal(a)
		if err != nil {
			return err
		}
		return put(dir, fileAttempt, string(b))
	})
}

// create makes the folder of an attempt appear, filled by fill, unless there
// is one.
func (r *runs) create(id string, fill func(dir string) error) error {
	if _, err := os.Stat(filepath.Join(r.dir, id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := os.MkdirTemp(r.dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it has moved, if all went well
	if err := fill(dir); err != nil {
		return err
	}
	err = os.Rename(dir, filepath.Join(r.dir, id))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil // another call was first
	}
	return err
}

// stop asks an attempt to end; one that is not known will never start.
func (r *runs) stop(id string) error {
	if !isID.MatchString(id) {
		return nil
	}
	if err := r.create(id, func(dir string) error { return put(dir, fileNever, "stopped\n") }); err != nil {
		return err
	}
	dir := filepath.Join(r.dir, id)
	if _, err := os.Stat(filepath.Join(dir, fileWhy)); err == nil {
		return nil // the grace counts from the first
	}
	return put(dir, fileWhy, "stopped\n")
}

// forget drops an attempt that has ended.
func (r *runs) forget(id string) error {
	r.step.Lock()
	defer r.step.Unlock()
	st, err := r.status(id)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Phase != adapterv1.Phase_PHASE_ENDED {
		return nil
	}
	if err != nil {
		return err
	}
	trash, err := os.MkdirTemp(r.dir, ".old-*")
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(r.dir, id), filepath.Join(trash, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.board.Delete(id) // it may come again, as another
	return os.RemoveAll(trash)
}

// status reads what the files of an attempt say; fs.ErrNotExist if it is not known.
func (r *runs) status(id string) (*adapterv1.Status, error) {
	if !isID.MatchString(id) {
		return nil, fmt.Errorf("attempt %q: %w", id, fs.ErrNotExist)
	}
	dir := filepath.Join(r.dir, id)
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	st := &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_PENDING, Message: "about to start"}
	never, _, err := get(dir, fileNever)
	if err != nil || never != "" {
		st.Phase, st.Reason, st.Message = adapterv1.Phase_PHASE_ENDED, strings.TrimSpace(never), "it was not started here"
		return st, err
	}
	started, at, err := get(dir, fileStarted)
	if err != nil || started == "" {
		return st, err
	}
	st.Phase, st.StartedAt, st.Message = adapterv1.Phase_PHASE_RUNNING, at.UnixMicro(), ""
	still, _, err := get(dir, fileStill)
	if err != nil {
		return st, err
	}
	if still != "" {
		st.Phase = adapterv1.Phase_PHASE_SUSPENDED
	}
	exit, at, err := get(dir, fileExit)
	if err != nil || exit == "" {
		return st, err
	}
	st.Phase, st.EndedAt = adapterv1.Phase_PHASE_ENDED, at.UnixMicro()
	_, _ = fmt.Sscan(exit, &st.ExitCode, &st.Reason) // the reason may be missing
	switch {
	case st.Reason == "lost":
		st.Message = "its processes are gone without an exit status"
	case st.Reason != "":
	case st.ExitCode == 0:
		st.Reason = "completed"
	case st.ExitCode > 128:
		st.Reason, st.Message = "signal", fmt.Sprintf("signal %d ended it", st.ExitCode-128)
	default:
		st.Reason = "exit"
	}
	if info, err := os.Stat(filepath.Join(dir, fileLog)); err == nil {
		st.LogBytes = info.Size()
	}
	return st, nil
}

// output reads a piece of a log and how long it is.
func (r *runs) output(id string, offset, limit int64) (data []byte, size int64, err error) {
	f, err := os.Open(filepath.Join(r.dir, id, fileLog))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if offset < 0 || offset >= info.Size() {
		return nil, info.Size(), nil
	}
	data = make([]byte, min(limit, info.Size()-offset))
	n, err := f.ReadAt(data, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], info.Size(), err
}

func attempt(dir string) (*adapterv1.Attempt, error) {
	b, err := os.ReadFile(filepath.Join(dir, fileAttempt))
	if err != nil {
		return nil, err
	}
	a := &adapterv1.Attempt{}
	return a, proto.Unmarshal(b, a)
}

// get reads a small file and when it was written; "" if there is none.
func get(dir, name string) (string, time.Time, error) {
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", time.Time{}, err
	}
	return string(b), info.ModTime(), nil
}

// put makes a file appear whole.
func put(dir, name, text string) error {
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
