//go:build linux

package pool_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// TestSliceFile: programs that find their slice by a file of others compute on it, and
// say why there is none when it is not there, or not any more.
func TestSliceFile(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	client := dial(t, a.tcp)
	goes := make(chan string, 4)
	client.Follows = func(at string) { goes <- at }
	task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() { why, _ := client.Ended(); ended <- why }()
	file := filepath.Join(t.TempDir(), pool.SliceFile)
	put := func(at string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(pool.Environment(0, pool.OpenCL, at, task.ID, token), "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(args ...string) *exec.Cmd {
		b, err := built()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), b.program, args...)
		cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+b.vendors, pool.FileVariable+"="+file)
		return cmd
	}
	fails := func(cmd *exec.Cmd, when, want string) {
		t.Helper()
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s, want %q", when, err, out, want)
		}
	}
	const none = "yunhe pool: there is no slice: it has ended, or has no place yet\n"
	fails(finds("add", "3"), "before it is there", none)
	put(a.tcp)
	want := native(t, "add", "3")
	if got := output(t, finds("add", "3")); got != want {
		t.Errorf("it says %q, natively %q", got, want)
	}
	if _, _, err := dial(t, a.tcp).Migrate(task.ID, b.tcp, ""); err != nil {
		t.Fatal(err)
	}
	if at := <-goes; at != b.tcp {
		t.Errorf("its client hears that it went to %q, not %q", at, b.tcp)
	}
	put(b.tcp)
	a.stop() // nobody says there any more where it is
	w := walk(t, finds("walk", "4"))
	if err := dial(t, b.tcp).Stop(task.ID); err != nil {
		t.Fatal(err)
	}
	if why := <-ended; why != "it was stopped" {
		t.Errorf("its client hears %q", why)
	}
	rest, _ := io.ReadAll(w.out)
	if err := w.cmd.Wait(); err == nil || !strings.Contains(w.errs.String(), "yunhe pool: the slice has ended, or its node cannot be reached any more\n") {
		t.Errorf("whose slice ended under it: %v: %s%s", err, rest, w.errs)
	}
	fails(finds("add", "3"), "when it has ended, by what was written", "yunhe pool: refused: ")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	fails(finds("add", "3"), "when it has ended", none)
}
