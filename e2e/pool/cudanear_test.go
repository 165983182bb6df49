package pool_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/pods"
)

// had has slices by yunhe with these arguments, which puts what programs need into a
// folder, until stop is called or the test ends.
func (w *cudaWorld) had(dir string, args ...string) (said *bytes.Buffer, stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	cmd := w.bench.Yunhe(ctx, "", nil, args...)
	said = &bytes.Buffer{}
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	must(w.t, cmd.Start())
	stop = func() { cancel(); _ = cmd.Wait() } // it was told to end
	w.t.Cleanup(stop)
	w.until("the slice is ready", func() bool { return exec.Command(binary, "pool", "ready", dir).Run() == nil })
	return said, stop
}

// started is a program that somebody else starts, with the driver where it is.
func (w *cudaWorld) started(env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(w.t.Context()), "/bin/sh", append([]string{"-c", `"$0" "$@"`, w.near}, args...)...)
	cmd.Env = append([]string{"LD_LIBRARY_PATH=" + w.driver}, env...)
	return cmd
}

// isTwoCards has programs on two cards of 37 MiB each see both, and no more of them.
func (w *cudaWorld) isTwoCards(env []string) {
	t := w.t
	t.Helper()
	for range 2 { // one after the other
		if out, err := w.started(env, "proc", "cards", "1000").CombinedOutput(); err != nil || !strings.Contains(string(out), ", then 101\n") ||
			strings.Count(string(out), "has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n") != 2 || !strings.Contains(string(out), "sum 6\n") {
			t.Errorf("with %q: %v: %s", env, err, out)
		}
	}
	if out, err := w.started(env, "linked", "fill").CombinedOutput(); err != nil || string(out) != "filled 37, error 2\nagain 0 2\n" {
		t.Errorf("with %q: %v: %s", env, err, out)
	}
	a, b := w.both("pod-1")
	if a.DeviceId == b.DeviceId || a.NodeId != b.NodeId || a.State != poolv1.Slice_STATE_RUNNING || a.Api != pool.CUDA {
		t.Errorf("the slices are %v and %v", a, b)
	}
}

// endsWith has a program hold memory, which is ended when its slices are given back.
func (w *cudaWorld) endsWith(env []string, stop func()) {
	t := w.t
	t.Helper()
	k := talkTo(t, w.started(env, "dlsym", "hold", "37"))
	k.expect("", "holds 0")
	k.expect("m", "more 2")
	stop()
	if err := k.cmd.Wait(); err == nil {
		t.Errorf("it goes on without its slices: %s", k.errs.String())
	}
	w.until("the slices have ended", func() bool {
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{})
		must(t, err)
		return len(res.Slices) == 0
	})
}

// TestCUDAInto: programs that others start on the node's machine have the driver themselves,
// on two cards, where the slices are to be there; a node that they cannot come to by a
// socket is refused, and its slice given back.
func TestCUDAInto(t *testing.T) {
	w := openCUDA(t)
	w.start("n1", true)
	w.start("n2", false)
	w.online(2)
	t.Setenv("HOSTNAME", "pod-1")
	dir := t.TempDir()
	into := []string{"pool", "run", "--platform", "--into", dir, "--api", "cuda", "--local", "only", "--compute", "40", "--memory", "37MiB"}
	said, stop := w.had(dir, append(into, "--on", "n1", "--cards", "2")...)
	library := filepath.Join(dir, pool.CUDABefore)
	if i, err := os.Stat(library); err != nil || i.Mode().Perm() != 0o755 {
		t.Errorf("what they load: %v, %v", i, err)
	}
	env := []string{"LD_PRELOAD=" + library, pool.FileVariable + "=" + filepath.Join(dir, pool.SliceFile)}
	w.isTwoCards(env)
	w.endsWith(env, stop)
	if !strings.Contains(said.String(), "LD_PRELOAD="+library+"\n") {
		t.Errorf("it says %s", said)
	}
	if out, err := w.started(env, "proc", "info").CombinedOutput(); err == nil || !strings.Contains(string(out), "there is no slice: it has ended") {
		t.Errorf("afterwards: %v: %s", err, out)
	}

	if out, err := w.bench.Yunhe(t.Context(), "", nil, append(into, "--on", "n2")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "is reached at tcp:127.0.0.1:") || !strings.Contains(string(out), "--node-socket") {
		t.Errorf("a node without a socket: %v: %s", err, out)
	}
	w.until("its slice is given back", func() bool { return len(w.live()) == 0 })
	shared := filepath.Join(w.dir, "n2", pool.SharedSocket)
	if out, err := w.bench.Yunhe(t.Context(), "", nil, append(into, "--node-socket", shared+".not")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "must be the shared socket") || !strings.Contains(string(out), "no such file") {
		t.Errorf("a socket that is not there: %v: %s", err, out)
	}
	_, stop = w.had(dir, append(into, "--on", "n2", "--node-socket", shared)...)
	if out, err := w.started(env, "proc", "fill").CombinedOutput(); err != nil || string(out) != "filled 37, error 2\nagain 0 2\n" {
		t.Errorf("by the node's shared socket: %v: %s", err, out)
	}
	stop()
	if out, err := w.run("--api", "cuda", "--local", "only", "--on", "n2", "--node-socket", shared, "--memory", "37MiB", "--", w.near, "proc", "fill"); err != nil || out != "filled 37, error 2\nagain 0 2\n" {
		t.Errorf("a program that is started with it: %v: %s", err, out)
	}
}

// TestCUDAPodsLocal: what the webhook makes of a pod whose slices are on its own machine:
// its programs have the driver themselves, on two cards, by the socket that the node
// shares. The container beside it and its own are played as processes.
func TestCUDAPodsLocal(t *testing.T) {
	w := openCUDA(t)
	w.start("n1", false) // it is reached by TCP, or by that socket
	w.online(1)
	t.Setenv("HOSTNAME", "pod-1")
	dir, shared := t.TempDir(), filepath.Join(w.dir, "n1", pool.SharedFolder)
	o := pods.Options{Image: "yunhe:1", Server: w.url, Secret: "s", NodeFolder: "/var/lib/yunhe-pool/shared"}
	shown := []string{"/yunhe-pool-node", shared, "/yunhe-pool", dir}
	side, env := podded(t, `"pool.yunhe.dev/local":"true","pool.yunhe.dev/api":"cuda"`, `"yunhe.dev/pool-cards":"2","yunhe.dev/pool-compute":"40","yunhe.dev/pool-memory":"37"`, o, shown...)
	_, stop := w.had(dir, side...)
	w.isTwoCards(env)
	w.endsWith(env, stop)

	// One of OpenCL comes by the socket, too.
	side, _ = podded(t, `"pool.yunhe.dev/local":"true"`, `"yunhe.dev/pool-compute":"40","yunhe.dev/pool-memory":"37"`, o, shown...)
	_, stop = w.had(dir, side...)
	lines, err := os.ReadFile(filepath.Join(dir, pool.SliceFile))
	must(t, err)
	if want := "YUNHE_POOL_ADDRESS=unix:" + shared + "/pool.sock\n"; !strings.HasPrefix(string(lines), want) || strings.Contains(string(lines), "CUDA") {
		t.Errorf("one of OpenCL finds %s, want %s", lines, want)
	}
	stop()
}
