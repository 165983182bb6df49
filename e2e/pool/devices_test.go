package pool_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// TestDevices: a program on several devices of a node without a platform has as much of
// each, all or none, and those of one interface.
func TestDevices(t *testing.T) {
	yunhe, err := filepath.Abs(binary)
	must(t, err)
	if _, err := os.Stat(yunhe); err != nil {
		t.Skip("SKIPPED: bin/yunhe is not built")
	}
	w := &cudaWorld{world: &world{t: t, dir: t.TempDir()}, driver: cardstest.Build(t, "cuda")}
	program, driver := w.compile("../../shim/test/cuda.c"), w.driver
	sock, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	at := "unix:" + sock + "/s"
	node := exec.Command(yunhe, "pool", "node", "--data", filepath.Join(w.dir, "node"), "--listen", at, "--libraries", driver)
	node.Env = append(os.Environ(), "OCL_ICD_VENDORS="+w.world.vendors("pocl", "pocl.icd"), "POCL_DEVICES=pthread pthread") // it shows two
	w.serve(node, regexp.MustCompile("pool node listens"))
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), yunhe, append([]string{"pool"}, args...)...)
		cmd.Env = append(os.Environ(), "YUNHE_POOL_NODE="+at, "LD_LIBRARY_PATH="+driver)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	share := []string{"run", "--compute", "40", "--memory", "37MiB"}
	for _, c := range []struct {
		devices, program []string
		want             string
		fails            bool
	}{
		{[]string{"opencl-1", "opencl-0"}, []string{"clinfo", "-l"}, "Device #1: ", false},
		{[]string{"opencl-1"}, []string{"clinfo", "-l"}, "`-- Device #0: ", false},
		{[]string{"cuda-1", "cuda-0"}, []string{program, "proc", "cards", "1000"}, "0000:65:00.0 0000:17:00.0, then 101\ncard 0 has 37 MiB, 36 of 37 free", false},
		{[]string{"cuda-1"}, []string{program, "proc", "shows"}, "0000:65:00.0, then 101\n", false},
		{[]string{"cuda-1", "cuda-1"}, []string{program, "proc", "shows"}, "error: --device names cuda-1 twice\n", true},
		{[]string{"cuda-1", ""}, []string{program, "proc", "shows"}, "error: --device names no device", true},
		{[]string{"cuda-1", "cuda-7"}, []string{program, "proc", "shows"}, `error: there is no device "cuda-7"`, true},
		{[]string{"cuda-1", "opencl-0"}, []string{program, "proc", "shows"}, "error: --device names cuda-1 of cuda and opencl-0 of opencl: a program has those of one", true},
		{strings.Fields(strings.Repeat("cuda-1 ", 17)), []string{program, "proc", "shows"}, "error: --device must be given at most 16 times, got 17", true},
	} {
		args := append([]string{}, share...)
		for _, d := range c.devices {
			args = append(args, "--device", d)
		}
		out, err := run(append(append(args, "--"), c.program...)...)
		if (err != nil) != c.fails || !strings.Contains(out, c.want) {
			t.Errorf("on %v: %v: %s", c.devices, err, out)
		}
		if out, err := run("tasks", "-o", "json"); err != nil || !strings.Contains(out, `"tasks": []`) {
			t.Errorf("after %v there is something left: %v: %s", c.devices, err, out)
		}
	}
}
