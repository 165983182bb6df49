// Package platform starts the platform that a benchmark measures, as a process
// of its own, and prints what came of it. What it was given is stopped and
// removed again.
package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
)

// startLimit bounds the start of a process.
const startLimit = 30 * time.Second

// Platform is a running platform.
type Platform struct {
	// Dir is its folder, which others may use too; it is removed in the end.
	Dir string
	// URL is where it serves.
	URL string
	// Binary is the program it runs.
	Binary string
	// Key is the administrator's.
	Key string

	Jobs      jobsv1connect.JobServiceClient
	Adapters  adaptersv1connect.AdapterServiceClient
	Scheduler schedulerv1connect.SchedulerServiceClient

	program *enginetest.Program
	client  *http.Client
}

// Start starts `yunhe` with the arguments in a new folder and waits until it
// is ready; took is how long that was. So many clients may call at once
// without dialing anew.
func Start(ctx context.Context, clients int, args ...string) (p *Platform, took time.Duration, err error) {
	p = &Platform{}
	if p.Binary, err = enginetest.Binary(); err != nil {
		return nil, 0, err
	}
	if p.Dir, err = os.MkdirTemp("", "yunhe-bench-"); err != nil {
		return nil, 0, fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	begin := time.Now()
	args = append(args, "--data", filepath.Join(p.Dir, "platform"), "--listen", "127.0.0.1:0", "--log-level", "warn")
	if p.program, err = enginetest.StartProgram("platform", p.Binary, p.Dir, nil, args...); err != nil {
		return nil, 0, err
	}
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients + 4}}
	err = Poll(ctx, p.program, func(ctx context.Context) (bool, error) {
		url, ok, err := p.program.Line("Console and API: ")
		if !ok || err != nil {
			return false, err
		}
		p.URL = url
		return p.ready(ctx)
	})
	if err != nil {
		return p, 0, err
	}
	took = time.Since(begin)
	key, err := os.ReadFile(filepath.Join(p.Dir, "platform", "admin.key"))
	if err != nil {
		return p, 0, fmt.Errorf("read the administrator's key: %w", err)
	}
	p.Key = strings.TrimSpace(string(key))
	auth := connect.WithInterceptors(bearer(p.Key))
	p.Jobs = jobsv1connect.NewJobServiceClient(p.client, p.URL, auth)
	p.Adapters = adaptersv1connect.NewAdapterServiceClient(p.client, p.URL, auth)
	p.Scheduler = schedulerv1connect.NewSchedulerServiceClient(p.client, p.URL, auth)
	return p, took, nil
}

func (p *Platform) ready(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/readyz", nil)
	if err != nil {
		return false, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return false, nil // not yet
	}
	return res.StatusCode == http.StatusOK, res.Body.Close()
}

// Poll asks until yes, for as long as the process lives and startLimit.
func Poll(ctx context.Context, prog *enginetest.Program, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ask(ctx); ok || err != nil {
			return err
		}
		select {
		case <-prog.Done():
			return fmt.Errorf("it ended; its log ends:\n%s", prog.Tail())
		case <-ctx.Done():
			return fmt.Errorf("not ready in %s; its log ends:\n%s", startLimit, prog.Tail())
		case <-tick.C:
		}
	}
}

// Close stops the platform and removes its folder.
func (p *Platform) Close() error {
	var err error
	if p.program != nil {
		err = p.program.Stop()
	}
	return errors.Join(err, os.RemoveAll(p.Dir))
}

// PID is the platform's process number.
func (p *Platform) PID() int { return p.program.PID() }

// Tail is the end of what the platform has logged.
func (p *Platform) Tail() string { return p.program.Tail() }

// CPU is the processor time that the platform's process has used, 0 if that
// cannot be read.
func (p *Platform) CPU() time.Duration {
	s, ok := statOf(p.PID())
	if !ok {
		return 0
	}
	return s.cpu
}

// CPUOf is the processor time that all processes of a name have used which
// this one started, directly or not, ended ones included if their parents
// have waited for them.
func CPUOf(name string) time.Duration {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	all := map[int]stat{}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if s, ok := statOf(pid); ok {
			all[pid] = s
		}
	}
	sum := time.Duration(0)
	for pid, s := range all {
		if s.name != name {
			continue
		}
		for up := pid; up > 1; up = all[up].parent {
			if up == os.Getpid() {
				sum += s.cpu + s.waited
				break
			}
		}
	}
	return sum
}

// stat is a process as the kernel counts it.
type stat struct {
	name        string
	parent      int
	cpu, waited time.Duration // its own, and that of children it has waited for
}

func statOf(pid int) (stat, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	// Fields count from the end of the name, which may hold spaces; 14 to 17 of
	// the whole are in ticks of 10 ms.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 15 {
		return stat{}, false
	}
	s := stat{name: string(b[open+1 : end])}
	var user, system, childUser, childSystem int64
	if _, err := fmt.Sscan(fields[1]+" "+strings.Join(fields[11:15], " "), &s.parent, &user, &system, &childUser, &childSystem); err != nil {
		return stat{}, false
	}
	s.cpu, s.waited = time.Duration(user+system)*10*time.Millisecond, time.Duration(childUser+childSystem)*10*time.Millisecond
	return s, true
}

// ResidentMiB is the platform's resident memory.
func (p *Platform) ResidentMiB() (float64, error) { return p.memory("VmRSS") }

// PeakMiB is the most resident memory it has had.
func (p *Platform) PeakMiB() (float64, error) { return p.memory("VmHWM") }

func (p *Platform) memory(field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		var kib float64
		if _, err := fmt.Sscanf(line, field+": %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", p.PID(), field)
}

// bearer adds a key to every call.
type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, s)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
