//go:build linux

package pool_test

import (
	"io"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

func movesProgram(t *testing.T) string {
	t.Helper()
	return compiled(t, "moves", "../../shim/test/moves.c", "-l:libOpenCL.so.1")
}

// TestMigrateTells: all that OpenCL told of programs and kernels before a move it
// tells after it, though they are made of what they were built to.
func TestMigrateTells(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	in, out := converse(t, run(movesProgram(t), "tells"))
	told := func() []string {
		var all []string
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				t.Fatalf("it ended after %q: %v\n%s", all, err, a.log)
			}
			if line == "told\n" {
				return all
			}
			all = append(all, line)
		}
	}
	want, at, to := told(), a.tcp, b.tcp
	if !strings.Contains(strings.Join(want, ""), "reqd_work_group_size(4, 2, 1") {
		t.Errorf("before it moved: %s", want)
	}
	for i := range 3 {
		if _, _, err := dial(t, at).Migrate(task.ID, to, ""); err != nil {
			t.Fatal(err)
		}
		at, to = to, at
		_, _ = io.WriteString(in, "\n")
		got := told()
		for k := range max(len(got), len(want)) {
			if k >= len(got) || k >= len(want) || got[k] != want[k] {
				t.Errorf("after move %d: %q, before %q", i+1, got[min(k, len(got)-1)], want[min(k, len(want)-1)])
			}
		}
	}
}
