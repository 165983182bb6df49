//go:build linux

package pool_test

import (
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool"
)

// TestSilent: a program that never waits for its work is charged for that, and for
// little of the time in which the device rests.
func TestSilent(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 100, Memory: 64 * mib})
	pieces, each, took, charged := silent(t, n, task, run("silent"))
	got, period := charged.Seconds()*1000/float64(pieces), took.Seconds()*1000/float64(pieces)
	t.Logf("%d pieces of work, one in %.3f ms, that took %.3f ms each are charged with %.3f ms", pieces, period, each, got)
	if got < 0.8*each {
		t.Error("which is less")
	}
	if got > each+(period-each)/2 {
		t.Error("which is more than half of the rest")
	}
}

// silent runs a program that says how many ms its pieces of work took, and returns with
// that how long it gave them and what its task is charged.
func silent(t *testing.T, n node, task pool.Task, cmd *exec.Cmd) (pieces int, each float64, took, charged time.Duration) {
	t.Helper()
	in, out := converse(t, cmd)
	said := func(want string) {
		t.Helper()
		if line, err := out.ReadString('\n'); line != want+"\n" || err != nil {
			t.Fatalf("it said %q, want %q", line, want)
		}
	}
	busy := func() time.Duration {
		t.Helper()
		var last time.Duration
		for { // until what was done last is charged
			all, err := dial(t, n.unix).Tasks()
			if err != nil || len(all) != 1 || all[0].ID != task.ID {
				t.Fatalf("%v: %v", all, err)
			}
			if all[0].Busy == last && last > 0 {
				return last
			}
			last = all[0].Busy
			<-time.After(50 * time.Millisecond)
		}
	}
	said("silent")
	before, began := busy(), time.Now()
	_, _ = io.WriteString(in, "\n")
	said("done")
	took = time.Since(began)
	charged = busy() - before
	_, _ = io.WriteString(in, "\n")
	line, err := out.ReadString('\n')
	if k, _ := fmt.Sscanf(line, "%d pieces of %f ms\n", &pieces, &each); k != 2 || err != nil {
		t.Fatalf("it said %q", line)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	return pieces, each, took, charged
}
