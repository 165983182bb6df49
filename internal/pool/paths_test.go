//go:build linux

package pool_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool"
)

// TestRing: a program of this machine uses a ring by itself, after moves, too,
// and not where it is told otherwise; none elsewhere. Who waits on one hears when
// the other is killed.
func TestRing(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	const ring = "yunhe-pool-ring"
	maps := func(w *walker) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	with := func(cmd *exec.Cmd, transport string) *exec.Cmd {
		cmd.Env = append(cmd.Env, pool.TransportVariable+"="+transport)
		return cmd
	}
	task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	w := walk(t, run("walk", "4"))
	if !strings.Contains(maps(w), ring) {
		t.Error("a program of this machine uses no ring")
	}
	for range 2 { // to a ring of another worker
		before := regexp.MustCompile(`.*` + ring).FindString(maps(w))
		if _, _, err := dial(t, n.unix).Migrate(task.ID, "", "opencl-0"); err != nil {
			t.Fatalf("%v\n%s", err, n.log)
		}
		eventually(t, func() bool { m := maps(w); return strings.Contains(m, ring) && !strings.Contains(m, before) })
	}
	if strings.Count(maps(w), ring) != 1 {
		t.Errorf("after moves it has mapped\n%s", maps(w))
	}
	w.end()
	w = walk(t, with(run("walk", "4"), "socket"))
	if strings.Contains(maps(w), ring) {
		t.Error("a program that is told to use the socket uses a ring")
	}
	w.end()
	_, far := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
	if out, err := with(far("add"), "ring").CombinedOutput(); err == nil || !strings.Contains(string(out), "there is no ring to the pool node") {
		t.Errorf("a ring over TCP: %v, %s", err, out)
	}

	// A worker that is killed while its program waits.
	cmd := run("forever")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if line, _ := in.ReadString('\n'); line != "forever\n" {
		t.Fatalf("it said %q", line)
	}
	<-time.After(50 * time.Millisecond) // it waits by then
	began := time.Now()
	if err := dial(t, n.unix).Stop(task.ID); err != nil {
		t.Fatal(err)
	}
	if line, _ := in.ReadString('\n'); line != "finish -5\n" || time.Since(began) > 2*time.Second {
		t.Errorf("after %s it said %q", time.Since(began), line)
	}
	_ = cmd.Wait()

	// And a program while its worker waits.
	task, run = share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	w = walk(t, run("walk", "4"))
	_ = w.cmd.Process.Kill()
	eventually(t, func() bool {
		tasks, err := dial(t, n.unix).Tasks()
		return err == nil && !slices.ContainsFunc(tasks, func(x pool.Task) bool { return x.ID == task.ID && x.Programs > 0 })
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !so(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never is so")
		}
	}
}
