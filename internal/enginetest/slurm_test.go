package enginetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// waitJob waits for a job to leave the queue's active states, and returns the
// state it has then.
func waitJob(t *testing.T, s *enginetest.Slurm, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := s.Run(ctx, "", "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T")
		if err != nil {
			t.Fatal(err)
		}
		switch state := strings.TrimSpace(out); state {
		case "PENDING", "CONFIGURING", "RUNNING", "COMPLETING":
		default:
			return state
		}
		select {
		case <-ctx.Done():
			t.Fatalf("job %s is still %s", id, out)
		case <-tick.C:
		}
	}
}

func submit(t *testing.T, s *enginetest.Slurm, script string, args ...string) string {
	t.Helper()
	out, err := s.Run(t.Context(), script, "sbatch", append([]string{"--parsable"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func TestSlurm(t *testing.T) {
	t.Parallel()
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{
		Nodes: 2, GPUs: 4, Conf: "SchedulerParameters=batch_sched_delay=0,sched_interval=1\n",
	})

	t.Run("a job with two GPUs completes", func(t *testing.T) {
		id := submit(t, s, "#!/bin/sh\necho $((6 * 7)) gpus=$CUDA_VISIBLE_DEVICES\n", "--gres=gpu:h20:2", "--output=cli.txt")
		if state := waitJob(t, s, id); state != "COMPLETED" {
			t.Fatalf("job %s is %s, want COMPLETED", id, state)
		}
		got, err := os.ReadFile(filepath.Join(s.Work, "cli.txt"))
		if err != nil || string(got) != "42 gpus=0,1\n" {
			t.Errorf("job wrote %q, %v", got, err)
		}
	})
	t.Run("a job that fails is FAILED", func(t *testing.T) {
		id := submit(t, s, "#!/bin/sh\nexit 3\n", "--output=/dev/null")
		if state := waitJob(t, s, id); state != "FAILED" {
			t.Errorf("job %s is %s, want FAILED", id, state)
		}
	})
	t.Run("a job over REST completes as its user", func(t *testing.T) {
		id := submitREST(t, s, "nobody", "#!/bin/sh\nid -un\n", "rest.txt")
		if state := waitJob(t, s, id); state != "COMPLETED" {
			t.Fatalf("job %s is %s, want COMPLETED", id, state)
		}
		got, err := os.ReadFile(filepath.Join(s.Work, "rest.txt"))
		if err != nil || string(got) != "nobody\n" {
			t.Errorf("job wrote %q, %v, want nobody", got, err)
		}
	})
	t.Run("submissions are measured", func(t *testing.T) {
		load := enginetest.Load{Clients: 2, N: 6}
		rate, err := s.MeasureSbatch(t.Context(), load)
		checkRate(t, rate, err, "slurm", "sbatch held", load)
		rate, err = s.MeasureREST(t.Context(), load)
		checkRate(t, rate, err, "slurm", "slurmrestd held", load)
		rate, err = s.MeasureLoss(t.Context(), load)
		checkRate(t, rate, err, "slurm", "slurmctld killed", load)
		if rate.Lost == nil || *rate.Lost < 0 || *rate.Lost > load.N {
			t.Errorf("lost = %v, want 0..%d", rate.Lost, load.N)
		}
		if missing, err := s.Missing(t.Context(), []string{"1", "99999"}); err != nil || len(missing) != 1 || missing[0] != "99999" {
			t.Errorf("missing = %q, %v, want 99999", missing, err)
		}
	})
	t.Run("a job outlives its controller", func(t *testing.T) {
		gate, err := os.Create(filepath.Join(s.Work, "gate"))
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Close()
		if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		id := submit(t, s, "#!/bin/sh\nflock "+gate.Name()+" echo passed\n", "--output=gate.txt")
		if err := s.StopController(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), "", "scontrol", "ping"); err == nil {
			t.Error("a killed slurmctld answers")
		}
		if err := s.StartController(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		if state := waitJob(t, s, id); state != "COMPLETED" {
			t.Errorf("job %s is %s, want COMPLETED", id, state)
		}
	})
}

func submitREST(t *testing.T, s *enginetest.Slurm, user, script, output string) string {
	t.Helper()
	token, err := s.Token(t.Context(), user, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"script": script, "job": map[string]any{
		"name": "rest", "current_working_directory": s.Work, "standard_output": filepath.Join(s.Work, output),
		"environment": map[string]string{"PATH": "/usr/bin:/bin"}, "tasks": 1, "memory_per_node": 50,
	}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.RESTURL+"/slurm/v0.0.38/job/submit", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-SLURM-USER-NAME", user)
	req.Header.Set("X-SLURM-USER-TOKEN", token)
	status, answer := do(t, req)
	var got struct {
		JobID int `json:"job_id"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || status != http.StatusOK || got.JobID == 0 {
		t.Fatalf("submit answered %d %s (%v)", status, answer, err)
	}
	return strconv.Itoa(got.JobID)
}

// TestSlurmCloseEndsJobs has a job lock a file for ever and waits for the lock
// after Close.
func TestSlurmCloseEndsJobs(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	first := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1})
	submit(t, first, "#!/bin/sh\nexec flock "+lock+" sh -c 'echo held >"+lock+".held; exec sleep 1000'\n", "--output=/dev/null")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(lock + ".held"); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("the job did not start")
		case <-tick.C:
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !lockFree(t, lock) {
		t.Error("the job outlived its cluster")
	}
}

func lockFree(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
