package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// What is in the folder of an attempt that was suspended.
const (
	fileStill  = "still"  // it stands still; as old as that
	filePaused = "paused" // microseconds it stood still before, in all
)

// Suspend stops and continues the processes of attempts.
func (d *driver) Suspend(_ context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
	defer d.runs.look()
	for still, ids := range map[bool][]string{true: r.Suspend, false: r.Resume} {
		for _, id := range ids {
			if err := d.runs.suspend(id, still); err != nil {
				return nil, connect.NewError(connect.CodeUnavailable, err)
			}
		}
	}
	return &adapterv1.SuspendResponse{}, nil
}

// suspend has an attempt that runs stand still or go on. The signal goes
// before what is written: a driver killed in between is asked again, for it
// still says the old state.
func (r *runs) suspend(id string, still bool) error {
	r.step.Lock()
	defer r.step.Unlock()
	st, err := r.status(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir := filepath.Join(r.dir, id)
	switch {
	case err != nil:
		return err
	case still && st.Phase == adapterv1.Phase_PHASE_RUNNING:
		return errors.Join(kill(dir, syscall.SIGSTOP), put(dir, fileStill, "still\n"))
	case !still && st.Phase == adapterv1.Phase_PHASE_SUSPENDED:
		return r.goOn(dir)
	}
	return nil
}

// goOn ends the standing still of an attempt.
func (r *runs) goOn(dir string) error {
	before, err := stood(dir)
	if err != nil {
		return err
	}
	return errors.Join(put(dir, filePaused, fmt.Sprintln(before.Microseconds())), os.Remove(filepath.Join(dir, fileStill)), kill(dir, syscall.SIGCONT))
}

// stood is how long an attempt has stood still in all: its timeout does not
// count that.
func stood(dir string) (time.Duration, error) {
	text, _, err := get(dir, filePaused)
	if err != nil {
		return 0, err
	}
	us, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // 0 if there is none
	total := time.Duration(us) * time.Microsecond
	still, since, err := get(dir, fileStill)
	if still != "" {
		total += time.Since(since)
	}
	return total, err
}

// Exec runs a command in the working directory of an attempt, with its
// environment. There is no sandbox to enter.
func (d *driver) Exec(ctx context.Context, stream *connect.BidiStream[adapterv1.ExecRequest, adapterv1.ExecResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	start := first.GetStart()
	st, err := d.runs.status(start.GetAttemptId())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("attempt %q is not known here", start.GetAttemptId()))
	case err != nil:
		return connect.NewError(connect.CodeUnavailable, err)
	case st.Phase != adapterv1.Phase_PHASE_RUNNING:
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("attempt %s does not run", st.AttemptId))
	case len(start.Command) == 0:
		return connect.NewError(connect.CodeInvalidArgument, errors.New("no command is given"))
	case start.Terminal:
		return connect.NewError(connect.CodeInvalidArgument, errors.New("there are no terminals here"))
	}
	dir := filepath.Join(d.runs.dir, st.AttemptId)
	a, err := attempt(dir)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, start.Command[0], start.Command[1:]...)
	cmd.Dir = filepath.Join(dir, dirWork)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range a.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what it left in the background may keep its output open
	var mu sync.Mutex           // guards stream's sending side
	cmd.Stdout = sender(func(b []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(&adapterv1.ExecResponse{Output: b})
	})
	cmd.Stderr = sender(func(b []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(&adapterv1.ExecResponse{ErrorOutput: b})
	})
	in, err := cmd.StdinPipe()
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if err := cmd.Start(); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the command cannot be run: %w", err))
	}
	go feed(stream, in) // ends with the stream, at the latest when this returns
	go d.runs.endWith(ctx, st.AttemptId, cancel)
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	code := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	mu.Lock()
	defer mu.Unlock()
	return stream.Send(&adapterv1.ExecResponse{Ended: true, ExitCode: int32(code)})
}

type sender func([]byte) error

func (s sender) Write(b []byte) (int, error) { return len(b), s(b) }

// feed gives a command its input.
func feed(stream *connect.BidiStream[adapterv1.ExecRequest, adapterv1.ExecResponse], in io.WriteCloser) {
	defer func() { _ = in.Close() }() // the command may have ended
	for {
		m, err := stream.Receive()
		if err != nil {
			return
		}
		if _, err := in.Write(m.Input); err != nil || m.InputEnd {
			return
		}
	}
}

// endWith ends a command when its attempt has ended.
func (r *runs) endWith(ctx context.Context, id string, end func()) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if st, err := r.status(id); err != nil || st.Phase == adapterv1.Phase_PHASE_ENDED {
			end()
			return
		}
	}
}
