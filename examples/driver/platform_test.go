package main_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/registry"
)

// TestPlatform has a whole platform pause a job at the driver and run commands
// beside it.
func TestPlatform(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "driver")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address = filepath.Join(dir, "d"), "127.0.0.1:0"
	cfg.Adapters.Plugins = []plugin.Config{{Name: "processes", Command: []string{bin, "--dir", filepath.Join(dir, "runs")}}}
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
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	ctx := core.WithCaller(t.Context(), core.Caller{UserID: "admin", TenantID: "default", AllTenants: true})
	until("the center is available", func() bool {
		snap, err := a.Registry.Snapshot(ctx)
		return err == nil && len(snap.Centers) == 1 && snap.Centers[0].Status == registry.Available
	})
	ids, err := a.Jobs.Submit(ctx, "", []*jobsv1.JobSpec{{Name: "p", Tasks: []*jobsv1.Task{
		{Name: "t", Command: "echo data >file; exec sleep 600", ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1}}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	await := func(want jobsv1.State) {
		t.Helper()
		until("the job is "+want.String(), func() bool {
			j, err := a.Jobs.Get(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return j.State == want
		})
	}
	await(jobsv1.State_STATE_RUNNING)
	c, err := a.Jobs.Exec(ctx, id, 0, 0, &adapterv1.ExecStart{Command: []string{"sh", "-c", "cat file -; exit 5"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, r := range []*adapterv1.ExecRequest{{Input: []byte("more\n")}, {InputEnd: true}} {
		if err := c.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	var out []byte
	for ended := false; !ended; {
		r, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r.Output...)
		if ended = r.Ended; ended && r.ExitCode != 5 {
			t.Errorf("exit code %d, want 5", r.ExitCode)
		}
	}
	if string(out) != "data\nmore\n" {
		t.Errorf("it wrote %q", out)
	}
	if _, err := a.Jobs.Pause(ctx, id); err != nil {
		t.Fatal(err)
	}
	await(jobsv1.State_STATE_PAUSED)
	if _, err := a.Jobs.Exec(ctx, id, 0, 0, &adapterv1.ExecStart{Command: []string{"true"}}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("beside a paused run: %v, want Conflict", err)
	}
	if _, err := a.Jobs.Resume(ctx, id); err != nil {
		t.Fatal(err)
	}
	await(jobsv1.State_STATE_RUNNING)
	if _, err := a.Jobs.Pause(ctx, id); err != nil {
		t.Fatal(err)
	}
	await(jobsv1.State_STATE_PAUSED)
	if _, err := a.Jobs.Stop(ctx, id, ""); err != nil {
		t.Fatal(err)
	}
	await(jobsv1.State_STATE_STOPPED)
}
