package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ReadyFD is the descriptor a runner writes the command's start time to, in
// unix microseconds as text, and closes; without a start it closes when the
// runner ends.
const ReadyFD = 3

// OwnersFD is the user namespace that maps the owners of files in volumes to
// the command's user. It is there if the spec has volumes.
const OwnersFD = 4

// Main is the runner's program: it runs the attempt in the folder args[0]
// and returns the process's exit status. It MUST be the first process of a
// process namespace of its own; otherwise it refuses.
func Main(args []string) int {
	// What ends a process by default stops the attempt instead. A signal that
	// came before this line is lost, hence StopFile.
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	if len(args) == 1 && args[0] == "version" {
		fmt.Println("yunhe-runner", Version)
		return 0
	}
	if len(args) == 1 && args[0] == "hold" { // keeps a namespace until our input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	if len(args) == 2 && args[0] == "exec" {
		return execMain(args[1])
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: runner FOLDER | runner exec FOLDER | runner hold | runner version")
		return 2
	}
	// The command gets descriptors 0 to 2 and no other. CloseRange does it
	// for whatever the gateway left open, where the kernel has it (5.11).
	unix.CloseOnExec(ReadyFD)
	_ = unix.CloseRange(ReadyFD, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	a := &attempt{dir: args[0], term: term, start: time.Now()}
	if err := a.run(); errors.Is(err, errClaimed) {
		return 3 // nothing to complain about: that is what claims are for
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "runner: attempt %s: %v\n", filepath.Base(a.dir), err)
		return 1
	}
	return 0
}

// attempt is the one this process runs.
type attempt struct {
	dir     string
	term    <-chan os.Signal
	start   time.Time
	spec    *Spec
	claimed *os.File // StartedFile
	log     logWriter
}

var errClaimed = errors.New("the attempt is someone else's")

// run takes the attempt from its folder to its record. An error means that
// it left no record: someone else holds the attempt, or the folder is gone.
func (a *attempt) run() error {
	pid, ticks, err := self()
	if err != nil {
		return err
	}
	// The lock says that the attempt is alive. It goes with the process.
	lock, err := unix.Open(a.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
		return errClaimed // by a runner, or by a gateway that is giving the attempt up
	} else if err != nil {
		return fmt.Errorf("lock attempt: %w", err)
	}
	if _, err := os.Stat(filepath.Join(a.dir, ExitFile)); err == nil {
		return errClaimed // the gateway gave up on us and wrote the record
	}
	if _, err := os.Stat(filepath.Join(a.dir, StartedFile)); err == nil {
		return errClaimed
	}
	e := &Exit{ExitCode: -1}
	if err := a.execute(e, Started{PID: pid, StartTicks: ticks}); err != nil {
		if errors.Is(err, errClaimed) {
			return err
		}
		e.Reason, e.Message = StartFailed, err.Error()
	}
	if e.EndedAt == 0 {
		e.EndedAt = a.now()
	}
	return a.record(e)
}

// execute runs the command and fills e. An error means that the command
// never ran.
func (a *attempt) execute(e *Exit, claim Started) (err error) {
	if a.spec, err = ReadSpec(a.dir); err != nil {
		return err
	}
	s := a.spec
	if s.Version != Version {
		return fmt.Errorf("the spec has version %d, this runner speaks %d", s.Version, Version)
	}
	if a.stopAsked() {
		e.Reason, e.Message = Stopped, "stopped before the command ran"
		return nil
	}

	// 1. Claim the attempt. The claim is on disk before the command runs, so
	// that not even a power failure lets anyone run it again. That takes
	// about as long as the isolation and goes on next to it.
	text, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	if a.claimed, err = fill(a.dir, StartedFile, append(text, '\n')); err != nil {
		return err
	}
	defer a.claimed.Close()
	claimed := filepath.Join(a.dir, StartedFile)
	if err := os.Link(claimed+reserved, claimed); errors.Is(err, fs.ErrExist) {
		return errClaimed
	} else if err != nil {
		return err
	}
	_ = os.Remove(claimed + reserved) // it is the same file, and has done its work
	durable := make(chan error, 1)
	go func() { durable <- a.syncClaim() }()

	// 2. Groups, output pipe, limits.
	defer func() {
		if err := s.Groups.Remove(); err != nil { // the next gateway sweeps them
			fmt.Fprintf(os.Stderr, "runner: attempt %s: remove control groups: %v\n", s.ID, err)
		}
	}()
	if err := s.Groups.create(); err != nil {
		return fmt.Errorf("create control groups: %w", err)
	}
	if err := limitProcess(s); err != nil {
		return err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make output pipe: %w", err)
	}
	writeEnd := os.NewFile(uintptr(pipe[1]), "output")
	a.log = logWriter{dir: a.dir, fileSize: s.LogFileBytes, keep: int64(s.LogFiles)}

	// 3. The command.
	restore := raiseOOMScore()
	mainPID, at, err := launch(s, writeEnd, durable, a.now)
	restore()
	writeEnd.Close()
	if lerr := s.Groups.leave(); lerr != nil && err == nil {
		err = fmt.Errorf("leave control groups: %w", lerr)
		_ = killAll(unix.SIGKILL)
	}
	if err != nil {
		return err
	}
	e.StartedAt = at
	claim.StartedAt = at
	if err := json.NewEncoder(a.claimed).Encode(claim); err != nil && a.log.err == nil {
		a.log.err = err // only the start time is missing: go on
	}
	_, _ = unix.Write(ReadyFD, strconv.AppendInt(nil, at, 10)) // nobody may be listening any more
	unix.Close(ReadyFD)
	s.Files, s.Root = nil, nil

	// 4. Its output and its end.
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		copyOutput(pipe[0], &a.log)
	}()
	status, cause := a.wait(mainPID)
	// Commands that were run beside ours have other parents: nobody waited.
	_ = killAll(unix.SIGKILL)
	e.EndedAt = a.now()
	select {
	case <-copied:
	case <-time.After(time.Second):
		// Every process of the namespace is gone and what they wrote is
		// copied; someone outside was handed the pipe. Do not wait for them.
	}
	a.account(e)
	classify(e, status, cause)
	return nil
}

// syncClaim makes the claim durable: the file's content, its name in the
// attempt's folder, and the folder's in the root.
func (a *attempt) syncClaim() error {
	if err := a.claimed.Sync(); err != nil {
		return fmt.Errorf("claim attempt: %w", err)
	}
	for _, d := range []string{a.dir, filepath.Dir(a.dir)} {
		if err := syncDir(d); err != nil {
			return fmt.Errorf("claim attempt: %w", err)
		}
	}
	return nil
}

// reaped is one of our children, ended.
type reaped struct {
	pid    int
	status unix.WaitStatus
}

// wait returns how the main process ended once no process is left, and why
// they were ended, "" if the main process did so by itself. The runner being
// the namespace's first process, every orphan becomes its child.
func (a *attempt) wait(mainPID int) (status unix.WaitStatus, cause Reason) {
	children := make(chan reaped)
	go func() {
		defer close(children)
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
			switch err {
			case nil:
				children <- reaped{pid, ws}
			case unix.EINTR:
			default: // ECHILD: nobody is left
				return
			}
		}
	}()
	var wall, kill <-chan time.Time
	limit, began := time.Duration(a.spec.WallTimeUsec)*time.Microsecond, Monotonic()
	if limit > 0 {
		wall = time.After(limit)
	}
	end := func(why Reason) {
		cause = why
		a.thaw()
		_ = killAll(unix.SIGTERM)
		kill = time.After(time.Duration(a.spec.GraceUsec) * time.Microsecond)
	}
	if a.stopAsked() {
		end(Stopped)
	}
	for {
		select {
		case c, more := <-children:
			if !more {
				return status, cause
			}
			if c.pid != mainPID {
				continue
			}
			status = c.status
			if cause == "" {
				// The command is over; what it left in the background goes.
				// When it was asked to stop, the others keep their grace.
				kill = time.After(0)
			}
			wall = nil
			mainPID = -1
		case <-a.term:
			if cause == "" && mainPID > 0 {
				end(Stopped)
			}
		case <-wall:
			if left := a.wallLeft(limit, began); left > 0 {
				wall = time.After(left)
			} else if cause == "" {
				end(WallTime)
			}
		case <-kill:
			a.thaw()
			_ = killAll(unix.SIGKILL)
			// One call reaches everyone: a fork under way fails. The second
			// look is for a frozen one, thawed a moment too late.
			kill = time.After(100 * time.Millisecond)
		}
	}
}

// wallLeft is how long the command may still run, 0 if its time is over.
// Pauses do not count. While it is paused that is asked for again now and then.
func (a *attempt) wallLeft(limit, began time.Duration) time.Duration {
	now := Monotonic()
	paused, on, err := ReadPauses(a.dir, now)
	if err != nil {
		return 0 // better too early than never
	}
	left := limit - (now - began - paused)
	if on {
		return max(left, 100*time.Millisecond)
	}
	return max(left, 0)
}

// Monotonic is the machine's clock that nobody sets, the same for every
// process.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every Linux has it
	return time.Duration(ts.Nano())
}

func (a *attempt) stopAsked() bool {
	_, err := os.Stat(filepath.Join(a.dir, StopFile))
	return err == nil
}

// thaw lets frozen processes run: on cgroup v1 they do not die before.
func (a *attempt) thaw() { _ = a.spec.Groups.Freeze(false) }

// account fills in what the kernel counted.
func (a *attempt) account(e *Exit) {
	if u, ok := a.spec.Groups.Usage(); ok {
		e.CPUUsec, e.MaxMemoryBytes = u.CPUUsec, u.MaxMemoryBytes
		e.OOMKills, e.PidsLimitHits = u.OOMKills, u.PidsLimitHits
	} else {
		var ru unix.Rusage
		if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) == nil {
			e.CPUUsec = (ru.Utime.Nano() + ru.Stime.Nano()) / 1000
			e.MaxMemoryBytes = ru.Maxrss * 1024
		}
	}
	var err error
	if e.OutputBytes, e.DroppedBytes, err = a.log.finish(); err != nil {
		e.Message = "some output could not be kept: " + err.Error()
	}
}

func classify(e *Exit, status unix.WaitStatus, cause Reason) {
	if status.Exited() {
		e.ExitCode = status.ExitStatus()
	} else {
		e.Signal = int(status.Signal())
	}
	switch {
	case cause != "":
		e.Reason = cause
	case e.ExitCode == 0:
		e.Reason = Completed
	case e.OOMKills > 0:
		// The kernel chose one process of several; that the command failed
		// is put down to it.
		e.Reason = OOM
	case e.Signal != 0:
		e.Reason = Signaled
	default:
		e.Reason = Exited
	}
}

// record writes the exit record. As long as the disk is full or failing it
// tries again: the lock keeps the attempt alive meanwhile, and a result that
// exists must not turn into a lost one.
func (a *attempt) record(e *Exit) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := WriteExit(a.dir, e)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		fmt.Fprintf(os.Stderr, "runner: attempt %s: write record, will try again: %v\n", filepath.Base(a.dir), err)
		time.Sleep(pause)
	}
}

// now is the wall clock at the runner's start plus the monotonic time since:
// durations between its results are true whatever the clock did.
func (a *attempt) now() int64 { return a.start.Add(time.Since(a.start)).UnixMicro() }

// self returns the runner's process id and start time as the host sees them,
// after making sure that it is alone: killAll in a shared namespace would end
// the machine's processes.
func self() (pid int, ticks uint64, err error) {
	// The host's /proc is still mounted here and numbers processes its way.
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return 0, 0, err
	}
	if pid, err = strconv.Atoi(link); err != nil {
		return 0, 0, err
	}
	if os.Getpid() != 1 || pid == 1 {
		return 0, 0, errors.New("a runner must be the first process of its own process namespace")
	}
	ticks, err = StartTicks(pid)
	return pid, ticks, err
}

// StartTicks returns when process pid started, in clock ticks since boot.
func StartTicks(pid int) (uint64, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	b, err := get(path)
	if err != nil {
		return 0, err
	}
	// The command name, in parentheses, may hold anything; fields after it
	// are numbered from 3.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("read %s: %d fields after the name, want 20 or more", path, len(f))
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// killAll signals every process of the namespace but the runner itself.
func killAll(sig unix.Signal) error {
	if os.Getpid() != 1 {
		return errors.New("not the first process of a namespace")
	}
	return unix.Kill(-1, sig)
}

// raiseOOMScore makes the child that is forked next a better victim than the
// platform's own processes when the machine runs out of memory. Going back
// needs no privilege as long as it is not below where we started.
func raiseOOMScore() (restore func()) {
	const path = "/proc/self/oom_score_adj"
	old, err := get(path)
	if err != nil || put(path, "500") != nil {
		return func() {}
	}
	return func() { _ = put(path, string(bytes.TrimSpace(old))) }
}

// copyOutput moves what the command writes into the log until nobody can
// write any more. It never stops reading: a full disk must not block a job.
func copyOutput(fd int, log *logWriter) {
	buf := make([]byte, 64<<10) // a pipe's size
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil || n == 0:
			return
		default:
			log.write(buf[:n])
		}
	}
}
