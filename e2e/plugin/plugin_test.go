// Package plugin_test runs the example driver as a real process under a whole
// platform: a center of another kind, reached by the plug-in contract.
package plugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/registry"
)

// start runs a platform whose only center is the example driver.
func start(t *testing.T) (*app.App, context.Context) {
	t.Helper()
	dir := t.TempDir()
	driver := filepath.Join(dir, "driver")
	if out, err := exec.Command("go", "build", "-o", driver, "../../examples/driver").CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address = filepath.Join(dir, "d"), "127.0.0.1:0"
	cfg.Adapters.Plugins = []plugin.Config{{Name: "processes", Command: []string{driver, "--dir", filepath.Join(dir, "runs")}}}
	a, err := app.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("platform: %v", err)
		}
	})
	caller := core.WithCaller(t.Context(), core.Caller{UserID: "admin", TenantID: "default", AllTenants: true})
	until(t, "the center is available", func() bool {
		snap, err := a.Registry.Snapshot(caller)
		return err == nil && len(snap.Centers) == 1 && snap.Centers[0].Status == registry.Available && snap.Centers[0].Adapter == "processes"
	})
	return a, caller
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(60 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func submit(t *testing.T, a *app.App, ctx context.Context, command string) string {
	t.Helper()
	ids, err := a.Jobs.Submit(ctx, "", []*jobsv1.JobSpec{{Name: "p", Tasks: []*jobsv1.Task{
		{Name: "t", Command: command, ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1}}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

func await(t *testing.T, a *app.App, ctx context.Context, id string, want jobsv1.State) *jobsv1.Job {
	t.Helper()
	var j *jobsv1.Job
	until(t, fmt.Sprintf("job %s is %s", id, want), func() bool {
		var err error
		if j, err = a.Jobs.Get(ctx, id); err != nil {
			t.Fatal(err)
		}
		return j.State == want
	})
	return j
}

func TestPlugin(t *testing.T) {
	t.Parallel()
	a, ctx := start(t)

	t.Run("a job runs and is metered", func(t *testing.T) {
		j := await(t, a, ctx, submit(t, a, ctx, "echo hello; seq 1 30000"), jobsv1.State_STATE_SUCCEEDED)
		r := j.Replicas[0]
		if r.AiCenterId != "processes" || r.StartedAt == nil || !r.EndedAt.AsTime().After(r.StartedAt.AsTime()) {
			t.Errorf("replica %v", r)
		}
		usage, _, err := a.Metering.List(ctx, metering.Filter{JobID: j.JobId}, 10, "")
		if err != nil || len(usage) != 1 {
			t.Errorf("%d usage records, %v; want 1", len(usage), err)
		}
	})
	t.Run("a failure says its exit code", func(t *testing.T) {
		j := await(t, a, ctx, submit(t, a, ctx, "exit 7"), jobsv1.State_STATE_FAILED)
		if j.Replicas[0].ExitCode != 7 {
			t.Errorf("exit code %d, want 7", j.Replicas[0].ExitCode)
		}
	})
	t.Run("a stop ends it", func(t *testing.T) {
		id := submit(t, a, ctx, "sleep 600")
		await(t, a, ctx, id, jobsv1.State_STATE_RUNNING)
		if _, err := a.Jobs.Stop(ctx, id, ""); err != nil {
			t.Fatal(err)
		}
		await(t, a, ctx, id, jobsv1.State_STATE_STOPPED)
	})
	t.Run("killed in mid-run it comes back and knows", func(t *testing.T) {
		mark := filepath.Join(t.TempDir(), "ran")
		release := filepath.Join(t.TempDir(), "go")
		id := submit(t, a, ctx, "echo x >>"+mark+"; while [ ! -e "+release+" ]; do sleep 0.05; done")
		await(t, a, ctx, id, jobsv1.State_STATE_RUNNING)
		pid := a.Adapters.PluginPID("processes")
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "the driver is started again", func() bool { p := a.Adapters.PluginPID("processes"); return p != 0 && p != pid })
		if out, err := exec.Command("touch", release).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		await(t, a, ctx, id, jobsv1.State_STATE_SUCCEEDED)
		out, err := exec.Command("cat", mark).Output()
		if err != nil || strings.Count(string(out), "x") != 1 {
			t.Errorf("the command ran %d times, want once (%v)", strings.Count(string(out), "x"), err)
		}
	})
}
