package drivernode_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/registry"
)

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestPlatform has a whole platform run jobs through the driver, and kills it.
func TestPlatform(t *testing.T) {
	program, err := filepath.Abs("driver.mjs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // where it keeps its runs
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address = filepath.Join(dir, "d"), "127.0.0.1:0"
	cfg.Adapters.Plugins = []plugin.Config{{Name: "javascript", Command: []string{node(t), program}}}
	a, err := app.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	run, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(run) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("platform: %v", err)
		}
	})
	ctx := core.WithCaller(t.Context(), core.Caller{UserID: "admin", TenantID: "default", AllTenants: true})
	until(t, "the center is available", func() bool {
		snap, err := a.Registry.Snapshot(ctx)
		return err == nil && len(snap.Centers) == 1 && snap.Centers[0].Status == registry.Available
	})
	submit := func(command string) string {
		ids, err := a.Jobs.Submit(ctx, "", []*jobsv1.JobSpec{{Name: "p", Tasks: []*jobsv1.Task{
			{Name: "t", Command: command, ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1}}}}, false)
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	await := func(id string, want jobsv1.State) *jobsv1.Job {
		var j *jobsv1.Job
		until(t, fmt.Sprintf("job %s is %s", id, want), func() bool {
			if j, err = a.Jobs.Get(ctx, id); err != nil {
				t.Fatal(err)
			}
			return j.State == want
		})
		return j
	}
	good, bad, long := submit("echo hello; seq 1 30000"), submit("exit 7"), submit("exec sleep 600")
	if r := await(good, jobsv1.State_STATE_SUCCEEDED).Replicas[0]; r.StartedAt == nil || r.EndedAt == nil {
		t.Errorf("a job that succeeded has no times: %v", r)
	}
	if r := await(bad, jobsv1.State_STATE_FAILED).Replicas[0]; r.ExitCode != 7 {
		t.Errorf("exit code %d, want 7", r.ExitCode)
	}
	await(long, jobsv1.State_STATE_RUNNING)
	pid := a.Adapters.PluginPID("javascript")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the driver is started again", func() bool { p := a.Adapters.PluginPID("javascript"); return p != 0 && p != pid })
	if _, err := a.Jobs.Stop(ctx, long, ""); err != nil {
		t.Fatal(err)
	}
	await(long, jobsv1.State_STATE_STOPPED)
}
