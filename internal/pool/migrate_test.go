//go:build linux

package pool_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// walker is a program that checks each of its steps, until it is told to end.
type walker struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func walk(t *testing.T, cmd *exec.Cmd) *walker {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs lines
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &walker{t, cmd, in, bufio.NewReader(out)}
	if line := w.line(); line != "walking\n" {
		t.Fatalf("it said %q, %s", line, errs.String())
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return w
}

func (w *walker) line() string {
	s, _ := w.out.ReadString('\n')
	return s
}

// end tells it to, and expects that every step was right.
func (w *walker) end() {
	w.t.Helper()
	_, _ = io.WriteString(w.in, "\n")
	line := w.line()
	var steps int
	var longest float64
	if n, _ := fmt.Sscanf(line, "walked %d steps, the longest %f ms\n", &steps, &longest); n != 2 || steps == 0 {
		w.t.Errorf("it ended with %q", line)
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Error(err)
	}
	w.t.Logf("%s", strings.TrimSpace(line))
}

// TestMigrate: a program moves from node to node and back, over and over, and
// from here to there over TCP, while it computes; each of its steps is right.
func TestMigrate(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	for _, c := range []struct{ name, from, to string }{{"over TCP", a.tcp, b.tcp}, {"from this machine's memory", a.unix, b.tcp}} {
		t.Run(c.name, func(t *testing.T) {
			client := dial(t, c.from)
			task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan string, 1)
			go func() { why, _ := client.Ended(); ended <- why }()
			w := walk(t, program(t, c.from, task.ID, token, "walk", "8"))
			at, to := c.from, c.to
			for i := range 6 {
				moved, pause, err := dial(t, at).Migrate(task.ID, to, "")
				if err != nil {
					t.Fatalf("move %d: %v\n%s\n%s", i, err, a.log, b.log)
				}
				if moved.ID != task.ID || moved.Programs != 1 || moved.Used < 8*mib || pause <= 0 {
					t.Errorf("move %d: %+v, %s", i, moved, pause)
				}
				if at, to = to, at; i == 0 {
					to = a.tcp
				}
			}
			if _, err := dial(t, to).Resize(task.ID, 10, 0); fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), "has moved to the pool node at "+at) {
				t.Errorf("resized where it was: %v", err)
			}
			if _, err := dial(t, at).Resize(task.ID, 30, 0); err != nil {
				t.Errorf("resized where it is: %v", err)
			}
			if got := output(t, program(t, c.from, task.ID, token, "add")); !strings.HasPrefix(got, "sum ") {
				t.Errorf("a program that starts where the task was: %q", got)
			}
			w.end()
			if err := dial(t, at).Stop(task.ID); err != nil {
				t.Error(err)
			}
			if why := <-ended; why != "it was stopped" {
				t.Errorf("who asked for the task hears %q", why)
			}
		})
	}
}
