package pool_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// TestCUDA: what people do with devices of CUDA by the command line, on a stand-in
// of the driver.
func TestCUDA(t *testing.T) {
	yunhe, err := filepath.Abs("../../bin/yunhe")
	must(t, err)
	if _, err := os.Stat(yunhe); err != nil {
		t.Skip("SKIPPED: bin/yunhe is not built")
	}
	driver, dir := cardstest.Build(t, "cuda"), t.TempDir()
	program := filepath.Join(dir, "cuda")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-o", program, "../../shim/test/cuda.c", "-L"+driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sock, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), yunhe, append([]string{"pool"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+driver, "YUNHE_POOL_NODE=unix:"+sock+"/s", "HOME="+dir, "XDG_CACHE_HOME="+dir)
		return cmd
	}
	pool := func(args ...string) (string, bool) {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		return string(out), err == nil
	}

	ctx, stop := context.WithCancel(context.Background())
	node := command("node", "--listen", "unix:"+sock+"/s", "--libraries", driver)
	said, err := node.StderrPipe()
	must(t, err)
	must(t, node.Start())
	t.Cleanup(func() { stop(); _ = node.Process.Signal(os.Interrupt); _ = node.Wait() })
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "pool node listens") {
	}
	go func() { // until the node ends, which its clean-up waits for
		for ctx.Err() == nil && lines.Scan() {
		}
	}()

	if out, ok := pool("devices"); !ok || !strings.Contains(out, "cuda-0") || !strings.Contains(out, "FAKE H100") {
		t.Fatalf("devices: %s", out)
	}
	if out, ok := pool("run", "--device", "cuda-1", "--compute", "30", "--memory", "37MiB", "--", program, "proc", "env"); !ok || out != "filled 37, error 2\nagain 0 2\n" {
		t.Errorf("memory: %v, %s", ok, out)
	}
	if out, ok := pool("run", "--api", "cuda", "--memory", "37MiB", "--", program, "linked", "add", "5"); !ok || out != "sum 327680\n" {
		t.Errorf("it computes: %v, %s", ok, out)
	}
	for _, not := range [][]string{{"--api", "opencl", "--device", "cuda-0"}, {"--api", "metal"}} {
		if out, ok := pool(append(append([]string{"run", "--memory", "1MiB"}, not...), "--", program, "linked", "info")...); ok || !strings.Contains(out, "error: ") {
			t.Errorf("%v: %s", not, out)
		}
	}

	held := command("run", "--device", "cuda-0", "--compute", "30", "--memory", "16MiB", "--", program, "dlsym", "hold", "16")
	in, err := held.StdinPipe()
	must(t, err)
	out, err := held.StdoutPipe()
	must(t, err)
	must(t, held.Start())
	answers := bufio.NewScanner(out)
	expect := func(ask, want string) {
		t.Helper()
		_, err := in.Write([]byte(ask))
		must(t, err)
		if !answers.Scan() || answers.Text() != want {
			t.Errorf("after %q: %q, want %q", ask, answers.Text(), want)
		}
	}
	expect("", "holds 0")
	tasks, ok := pool("tasks")
	if !ok || strings.Count(tasks, "16.0 MiB") < 2 || !strings.Contains(tasks, "cuda-0") {
		t.Errorf("tasks: %s", tasks)
	}
	id := strings.Fields(tasks[strings.Index(tasks, "\n")+1:])[0]
	expect("m", "more 2")
	if out, ok := pool("resize", id, "--memory", "17MiB", "--compute", "50"); !ok {
		t.Errorf("resize: %s", out)
	}
	expect("m", "more 0")
	expect("m", "more 2")
	if out, ok := pool("disable", "cuda-0"); !ok {
		t.Errorf("disable: %s", out)
	}
	if out, ok := pool("run", "--device", "cuda-0", "--compute", "30", "--memory", "1MiB", "--", program, "dlsym", "info"); ok || !strings.Contains(out, "disabled") {
		t.Errorf("a disabled device: %s", out)
	}
	expect("u", "uses 17")
	must(t, in.Close())
	must(t, held.Wait())
	if out, ok := pool("enable", "cuda-0"); !ok {
		t.Errorf("enable: %s", out)
	}

	for flag, says := range map[string]string{"--limit": "it ran for its limit", "--idle": "idle timeout"} {
		cmd := command("run", "--device", "cuda-0", "--memory", "16MiB", flag, "1s", "--", program, "dlsym", "hold", "16")
		_, err := cmd.StdinPipe() // stays open: the program does not end by itself
		must(t, err)
		var all bytes.Buffer
		cmd.Stdout, cmd.Stderr = &all, &all
		if err := cmd.Run(); err == nil || !strings.Contains(all.String(), says) || !strings.Contains(all.String(), "was ended") {
			t.Errorf("%s: %v: %s", flag, err, all.String())
		}
	}
}

// TestCUDARemote: the same on a machine without a driver.
func TestCUDARemote(t *testing.T) {
	yunhe, err := filepath.Abs("../../bin/yunhe")
	must(t, err)
	if _, err := os.Stat(yunhe); err != nil {
		t.Skip("SKIPPED: bin/yunhe is not built")
	}
	driver, dir := cardstest.Build(t, "cuda"), t.TempDir()
	program := filepath.Join(dir, "cudaremote")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-o", program, "../../shim/test/cudaremote.c", "-L"+driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sock, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	must(t, os.WriteFile(filepath.Join(dir, "groups.yaml"), []byte("groups:\n  - name: a\n    key: a key of group a, long enough\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "key"), []byte("a key of group a, long enough"), 0o600))
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), yunhe, append([]string{"pool"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+dir)
		return cmd
	}
	ctx, stop := context.WithCancel(context.Background())
	node := command("node", "--listen", "unix:"+sock+"/s", "--listen", "tcp:127.0.0.1:0", "--groups", "groups.yaml", "--libraries", driver)
	said, err := node.StderrPipe()
	must(t, err)
	must(t, node.Start())
	t.Cleanup(func() { stop(); _ = node.Process.Signal(os.Interrupt); _ = node.Wait() })
	at := ""
	lines := bufio.NewScanner(said)
	for at == "" && lines.Scan() {
		if _, rest, is := strings.Cut(lines.Text(), " tcp:"); is && strings.Contains(lines.Text(), "pool node listens") {
			at = "tcp:" + strings.TrimRight(rest, `"`)
		}
	}
	go func() { // until the node ends, which its clean-up waits for
		for ctx.Err() == nil && lines.Scan() {
		}
	}()
	run := func(at string, args ...string) (string, error) {
		out, err := command(append([]string{"run", "--node", at, "--group", "a", "--key-file", "key", "--device", "cuda-0", "--memory", "37MiB"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := run(at, "--", program, "fill"); err != nil || out != "filled 37, error 2\nagain 0\n" {
		t.Errorf("over TCP: %v: %s", err, out)
	}
	if out, err := run(at, "--", program, "late"); err != nil || out != "launched 0\nthen 700 700 700 700\n" {
		t.Errorf("over TCP: %v: %s", err, out)
	}
	if out, err := run(at, "--", program, "open", filepath.Join(driver, "libcuda.so.1")); err != nil || out != "the same driver\n" {
		t.Errorf("the driver by its whole name: %v: %s", err, out)
	}
	if out, err := run("unix:"+sock+"/s", "--remote", "--", program, "open", "libcuda.so.1"); err != nil || out != "the same driver\n" {
		t.Errorf("on the node's machine: %v: %s", err, out)
	}
	if out, err := run("unix:"+sock+"/s", "--", program, "fill"); err == nil || !strings.Contains(out, "libcuda.so.1") {
		t.Errorf("where the program has no driver, and none is asked for: %v: %s", err, out)
	}
	for flag, says := range map[string]string{"--limit": "it ran for its limit", "--idle": "idle timeout"} {
		cmd := command("run", "--node", at, "--group", "a", "--key-file", "key", "--device", "cuda-0", "--memory", "16MiB", flag, "1s", "--", program, "hold", "16")
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		notes, err := cmd.StderrPipe()
		must(t, err)
		must(t, cmd.Start())
		answers, heard := bufio.NewScanner(out), bufio.NewScanner(notes)
		if !answers.Scan() || answers.Text() != "filled 16, error 0" {
			t.Errorf("%s: %s", flag, answers.Text())
		}
		for flag == "--idle" && answers.Text() != "more 46" { // its slice has ended, it has not
			_, err := in.Write([]byte("m"))
			must(t, err)
			if !answers.Scan() {
				break
			}
		}
		for flag == "--limit" && answers.Scan() { // until it is ended
		}
		told := false
		for !told && heard.Scan() {
			told = strings.Contains(heard.Text(), says)
		}
		_ = in.Close()
		for heard.Scan() { // before it is waited for
		}
		if err = cmd.Wait(); flag == "--limit" && err == nil || !told {
			t.Errorf("%s: %v, and it is told: %v", flag, err, told)
		}
	}
}
