// Command driver is an example of a Yunhe driver: it makes the machine it runs
// on a computing center whose jobs are plain processes. It isolates nothing, so
// use a compute gateway for real work. It passes the whole of sdk/adaptertest.
//
// main.go answers the calls of the contract, features.go those a driver may leave
// out; runs.go is the backend, a folder of runs. All the driver knows is there, so it can be killed at any time, and
// two can serve one folder during an upgrade.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// config is what an operator may set; its JSON Schema comes from here.
type config struct {
	adapter.Declared
	Dir    string `json:"dir,omitempty" jsonschema:"folder of what it runs"`
	Memory int64  `json:"memory,omitempty" jsonschema:"bytes that jobs may use, 2 GiB if not given"`
}

type driver struct {
	adapter.Unimplemented
	center string
	cfg    config
	runs   *runs
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg := config{Memory: 2 << 30, Declared: adapter.Declared{Name: "Plain processes", Region: "local", Prices: map[string]int64{"small": 100}}}
	center := flag.String("center", "processes", "ID of the center, unless Yunhe names it")
	flag.StringVar(&cfg.Dir, "dir", filepath.Join(os.TempDir(), "yunhe-driver"), "folder of what it runs")
	flag.Parse()
	if err := adapter.Config(&cfg); err != nil {
		return err
	}
	d := &driver{center: adapter.Center(*center), cfg: cfg, runs: newRuns(cfg.Dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))}
	go d.runs.loop(ctx)
	return adapter.Serve(ctx, d)
}

// Describe names the driver, the one part it offers and its configuration.
func (d *driver) Describe(context.Context, *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	schema, err := adapter.Schema[config]()
	if err != nil {
		return nil, err
	}
	return &adapterv1.DescribeResponse{Name: "processes", Version: "2", Parts: []adapterv1.Part{adapterv1.Part_PART_JOB}, ConfigSchema: schema,
		Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_SUSPEND, adapterv1.Feature_FEATURE_EXEC}}, nil
}

func (d *driver) inventory() *adapterv1.Inventory {
	inv := d.cfg.Inventory(d.center)
	inv.Version, inv.Images, inv.Capacity = "2", []string{"host"}, d.capacity()
	return inv
}

func (d *driver) capacity() map[string]int64 {
	return map[string]int64{"cpu": int64(runtime.NumCPU()) * 1000, "memory": d.cfg.Memory}
}

// Discover tells what the machine has.
func (d *driver) Discover(context.Context, *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	return &adapterv1.DiscoverResponse{Inventory: d.inventory()}, nil
}

// Watch tells what the machine has, and every second that it is still there,
// or what is the matter with its folder.
func (d *driver) Watch(ctx context.Context, _ *adapterv1.WatchRequest, stream *connect.ServerStream[adapterv1.WatchResponse]) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for told := false; ; {
		res := &adapterv1.WatchResponse{Trouble: d.runs.trouble()}
		if res.Trouble != "" {
			told = false // after trouble all is told again
		} else if res.Measurement = d.measure(); !told {
			told = true
			res.Inventory = d.inventory()
			res.Nodes = []*adapterv1.Node{{Name: "machine", State: adapterv1.NodeState_NODE_STATE_READY, Capacity: d.capacity(), Allocatable: d.capacity(),
				Architecture: runtime.GOARCH, OperatingSystem: runtime.GOOS}}
		}
		if err := stream.Send(res); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (d *driver) measure() *adapterv1.Measurement {
	m := &adapterv1.Measurement{MeasuredAt: timestamppb.Now()}
	for _, st := range d.runs.board.All() {
		switch st.Phase {
		case adapterv1.Phase_PHASE_RUNNING, adapterv1.Phase_PHASE_SUSPENDED:
			m.Running++
		case adapterv1.Phase_PHASE_PENDING:
			m.Waiting++
		}
	}
	return m
}

// Apply writes down what is new; the loop of runs starts it.
func (d *driver) Apply(_ context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	defer d.runs.look()
	res := &adapterv1.ApplyResponse{}
	for _, a := range r.Attempts {
		if why := d.refuse(a); why != "" {
			res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: why})
		} else if err := d.runs.accept(a); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	return res, nil
}

// maxEnv is what the kernel passes to a program for sure.
const maxEnv = 64 << 10

// refuse says why an attempt can never run here, "" if it can.
func (d *driver) refuse(a *adapterv1.Attempt) string {
	_, offered := d.cfg.Prices[a.ResourcespecId]
	switch {
	case !isID.MatchString(a.AttemptId):
		return fmt.Sprintf("attempt_id %q must match %s", a.AttemptId, isID)
	case a.ImageId != "host":
		return fmt.Sprintf("image %q is not here, only host", a.ImageId)
	case !offered:
		return fmt.Sprintf("specification %q is not offered, only %q", a.ResourcespecId, slices.Sorted(maps.Keys(d.cfg.Prices)))
	case a.Command == "" || len(a.Command) > maxEnv:
		return fmt.Sprintf("command must have 1 to %d bytes, got %d", maxEnv, len(a.Command))
	}
	capacity := d.capacity()
	for _, name := range slices.Sorted(maps.Keys(a.Resources)) {
		if q, most := a.Resources[name], capacity[name]; q < 0 || q > most {
			return fmt.Sprintf("%s must be 0 to %d here, got %d", name, most, q)
		}
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		if size += len(name) + len(a.Env[name]) + 2; !isVariable.MatchString(name) {
			return fmt.Sprintf("the environment's names must match %s, got %q", isVariable, name)
		}
	}
	if size > maxEnv {
		return fmt.Sprintf("the environment must have at most %d bytes, got %d", maxEnv, size)
	}
	for _, f := range a.Files {
		if !filepath.IsLocal(f.Path) || filepath.Clean(f.Path) == "." {
			return fmt.Sprintf("file %q is outside of the working directory", f.Path)
		}
	}
	return ""
}

// Remove stops and forgets.
func (d *driver) Remove(_ context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	defer d.runs.look()
	for _, id := range r.Stop {
		if err := d.runs.stop(id); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	for _, id := range r.Forget {
		if err := d.runs.forget(id); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	return &adapterv1.RemoveResponse{}, nil
}

// Observe sends what the loop of runs sees.
func (d *driver) Observe(ctx context.Context, _ *adapterv1.ObserveRequest, stream *connect.ServerStream[adapterv1.ObserveResponse]) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.runs.read: // all there is, not a part
	}
	return d.runs.board.Watch(ctx, func(set map[string]*adapterv1.Status, _ []string) error {
		return stream.Send(&adapterv1.ObserveResponse{Statuses: slices.Collect(maps.Values(set))})
	})
}

// maxPiece is the contract's limit of one answer.
const maxPiece = 512 << 10

// ReadLog reads a piece of the output.
func (d *driver) ReadLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	limit := r.Limit
	if limit <= 0 || limit > maxPiece {
		limit = maxPiece
	}
	wait := time.NewTimer(time.Duration(r.WaitMilliseconds) * time.Millisecond)
	defer wait.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// Whether it has ended comes first: what it wrote before is there then.
		st, err := d.runs.status(r.AttemptId)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("attempt %q is not known here", r.AttemptId))
		}
		if err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
		data, size, err := d.runs.output(r.AttemptId, r.Offset, limit)
		if err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
		res := &adapterv1.ReadLogResponse{Data: data, Offset: r.Offset}
		res.End = st.Phase == adapterv1.Phase_PHASE_ENDED && r.Offset+int64(len(data)) >= size
		if len(data) > 0 || res.End {
			return res, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.C:
			return res, nil
		case <-tick.C:
		}
	}
}
