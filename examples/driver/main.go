// Command driver is an example of a Yunhe driver: it makes the machine it runs
// on a computing center whose jobs are plain processes. It shows the contract
// in one file; it isolates nothing, so use a compute gateway for real work.
//
// All it knows is in its folder, so it can be killed at any time:
//
//	ATTEMPT/command   what to run
//	ATTEMPT/started   when it began; made first, with O_EXCL: it runs at most once
//	ATTEMPT/log       its output
//	ATTEMPT/exit      its exit status, written by the shell around it
//	ATTEMPT/stop      somebody asked for its end
//
// The shell around a command outlives the driver, which is why an exit status
// is not lost with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

type driver struct {
	adapter.Unimplemented
	center, dir string
	price       int64
}

func main() {
	d := &driver{}
	flag.StringVar(&d.center, "center", "processes", "ID of the center")
	flag.StringVar(&d.dir, "dir", filepath.Join(os.TempDir(), "yunhe-driver"), "folder of what it runs")
	flag.Int64Var(&d.price, "price", 100, "price of the specification small, fen per hour")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := adapter.Serve(ctx, d); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// Describe names the driver and the one part it offers.
func (d *driver) Describe(context.Context, *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	return &adapterv1.DescribeResponse{Name: "processes", Version: "1", Parts: []adapterv1.Part{adapterv1.Part_PART_JOB}}, nil
}

// Discover tells what the machine has.
func (d *driver) Discover(context.Context, *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	return &adapterv1.DiscoverResponse{Inventory: &adapterv1.Inventory{
		AiCenterId: d.center, Name: "Plain processes", Region: "local", Version: "1", Images: []string{"host"},
		Capacity: map[string]int64{"cpu": int64(runtime.NumCPU()) * 1000, "memory": 2 << 30},
		Offers:   []*adapterv1.SpecOffer{{ResourceSpecId: "small", Price: d.price}},
	}}, nil
}

// Apply starts what is new.
func (d *driver) Apply(_ context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	res := &adapterv1.ApplyResponse{}
	for _, a := range r.Attempts {
		if a.ImageId != "host" {
			res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: fmt.Sprintf("image %q is not here", a.ImageId)})
			continue
		}
		if err := d.start(a); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	return res, nil
}

// around runs the command, with its output in log, and keeps its exit status.
const around = `sh ./command >log 2>&1; echo $? >exit.new && mv exit.new exit`

func (d *driver) start(a *adapterv1.Attempt) error {
	dir := filepath.Join(d.dir, filepath.Base(a.AttemptId))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if a.Seen {
		if _, err := os.Stat(filepath.Join(dir, "started")); err != nil {
			return os.WriteFile(filepath.Join(dir, "lost"), nil, 0o600)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "command"), []byte(a.Command), 0o600); err != nil {
		return err
	}
	started, err := os.OpenFile(filepath.Join(dir, "started"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // it has been started
	}
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", around)
	cmd.Dir = dir
	for k, v := range a.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the driver
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // its status is in the file exit
	_, err = fmt.Fprintf(started, "%d %d\n", time.Now().UnixMicro(), cmd.Process.Pid)
	return errors.Join(err, started.Sync(), started.Close())
}

// Remove stops and forgets.
func (d *driver) Remove(_ context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	for _, id := range r.Stop {
		dir := filepath.Join(d.dir, filepath.Base(id))
		if _, pid := begun(dir); pid > 0 {
			_ = os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600) // says why it ended
			_ = syscall.Kill(-pid, syscall.SIGKILL)                  // the whole session
		}
	}
	for _, id := range r.Forget {
		if err := os.RemoveAll(filepath.Join(d.dir, filepath.Base(id))); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	return &adapterv1.RemoveResponse{}, nil
}

// begun reads when an attempt started and the process around it.
func begun(dir string) (at int64, pid int) {
	b, err := os.ReadFile(filepath.Join(dir, "started"))
	if err != nil {
		return 0, 0
	}
	_, _ = fmt.Sscan(string(b), &at, &pid) // zero if a crash cut it short
	return at, pid
}

// Observe looks at the folder and sends what changed.
func (d *driver) Observe(ctx context.Context, _ *adapterv1.ObserveRequest, stream *connect.ServerStream[adapterv1.ObserveResponse]) error {
	sent := map[string]adapterv1.Phase{}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		dirs, err := filepath.Glob(filepath.Join(d.dir, "*"))
		if err != nil {
			return err
		}
		res := &adapterv1.ObserveResponse{}
		for _, dir := range dirs {
			if st := status(dir); st.Phase != sent[st.AttemptId] {
				sent[st.AttemptId] = st.Phase
				res.Statuses = append(res.Statuses, st)
			}
		}
		if len(res.Statuses) > 0 {
			if err := stream.Send(res); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// status reads what the files of an attempt say.
func status(dir string) *adapterv1.Status {
	st := &adapterv1.Status{AttemptId: filepath.Base(dir), Phase: adapterv1.Phase_PHASE_PENDING}
	if _, err := os.Stat(filepath.Join(dir, "lost")); err == nil {
		st.Phase, st.Reason, st.Message = adapterv1.Phase_PHASE_ENDED, "lost", "the driver does not know this run any more"
		return st
	}
	at, pid := begun(dir)
	if at == 0 {
		return st
	}
	st.StartedAt, st.Phase = at, adapterv1.Phase_PHASE_RUNNING
	if log, err := os.Stat(filepath.Join(dir, "log")); err == nil {
		st.LogBytes = log.Size()
	}
	end := func(reason string, when time.Time) {
		st.Phase, st.Reason, st.EndedAt = adapterv1.Phase_PHASE_ENDED, reason, when.UnixMicro()
	}
	if info, err := os.Stat(filepath.Join(dir, "exit")); err == nil {
		b, _ := os.ReadFile(filepath.Join(dir, "exit")) // it was moved here whole
		code, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		st.ExitCode = int32(code)
		if end("exit", info.ModTime()); code == 0 {
			st.Reason = "completed"
		}
		return st
	}
	if syscall.Kill(pid, 0) == nil {
		return st
	}
	if info, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
		end("stopped", info.ModTime())
	} else {
		end("lost", time.Now())
		st.Message = "its process is gone without an exit status"
	}
	return st
}

// ReadLog reads a piece of the output.
func (d *driver) ReadLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	dir := filepath.Join(d.dir, filepath.Base(r.AttemptId))
	until := time.Now().Add(time.Duration(r.WaitMilliseconds) * time.Millisecond)
	for {
		st := status(dir)
		res := &adapterv1.ReadLogResponse{Offset: r.Offset, End: st.Phase == adapterv1.Phase_PHASE_ENDED}
		f, err := os.Open(filepath.Join(dir, "log"))
		if err == nil {
			buf := make([]byte, min(max(r.Limit, 1), 512<<10))
			n, rerr := f.ReadAt(buf, r.Offset)
			_ = f.Close() // read only
			if rerr != nil && !errors.Is(rerr, io.EOF) {
				return nil, connect.NewError(connect.CodeUnavailable, rerr)
			}
			res.Data = buf[:n]
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
		if len(res.Data) > 0 || res.End || time.Now().After(until) || ctx.Err() != nil {
			return res, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
