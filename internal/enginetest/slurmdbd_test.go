package enginetest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// TestSlurmAccounting: what jobs did is kept by slurmdbd, also what happened
// while it was away.
func TestSlurmAccounting(t *testing.T) {
	t.Parallel()
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, Accounting: true, Conf: "SchedulerParameters=batch_sched_delay=0,sched_interval=1\n"})
	if err := s.KillAccounting(); err != nil {
		t.Fatal(err)
	}
	id := submit(t, s, "#!/bin/sh\nexit 3\n", "--output=/dev/null")
	if state := waitJob(t, s, id); state != "FAILED" {
		t.Errorf("job %s is %s, want FAILED", id, state)
	}
	if err := s.StartAccounting(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := s.Run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+id, "--format=State,ExitCode,NodeList")
		if err == nil && strings.TrimSpace(out) == "FAILED|3:0|n1" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("slurmdbd says %q, %v, want that the job failed with 3", out, err)
		case <-tick.C:
		}
	}
}
