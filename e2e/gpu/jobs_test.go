//go:build linux

package gpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// center is a platform with a node and, on its machine, a center whose runs have the
// driver themselves.
type center struct {
	*bench
	api  []string // what commands reach the platform by
	near []string // arguments of its gateway
}

// startCenter starts a node of a platform. It skips where runs cannot be isolated.
func startCenter(t *testing.T) *center {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		t.Skipf("SKIPPED: gateways need control groups: %v", err)
	}
	dir := t.TempDir()
	up := &bench{t: t, dir: dir, yunhe: yunhe(t), log: &syncBuffer{}, env: os.Environ()}
	url := up.serve([]string{"up", "--no-gateway", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0"}, regexp.MustCompile(`Console and API: (\S+)`))
	key, err := os.ReadFile(filepath.Join(dir, "data/admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	c := &center{api: []string{"--server", url, "--key", strings.TrimSpace(string(key))}}
	c.bench = up
	token := regexp.MustCompile(`yp_[\w-]+`).FindString(c.ask("pool", "node", "token"))
	c.bench = start(t, "--join", url, "--name", "n1", "--token", token, "--listen", "tcp:127.0.0.1:0")
	c.ask("pool", "group", "set", "g", "--tenant", "default")
	c.ask("spec", "create", "run", "cpu=2", "memory=16Gi")
	desc := filepath.Join(c.dir, "near.yaml")
	if err := os.WriteFile(desc, []byte("id: near\nprices: {run: 100}\ncpu: \"16\"\nmemory: 64Gi\naccelerators: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token = regexp.MustCompile(`yj_[\w-]+`).FindString(c.ask("center", "join-token", "--center", "near"))
	c.near = []string{"gateway", "--server", url, "--data", filepath.Join(c.dir, "near"), "--center", desc, "--token", token, "--measure", "no", "--pool-node", filepath.Join(c.dir, "node")}
	if c.libraries != "" {
		c.near = append(c.near, "--pool-libraries", c.libraries)
	}
	return c
}

// ask is what a command of the platform says.
func (c *center) ask(args ...string) string {
	c.t.Helper()
	cmd := c.command(append(args, c.api...)...)
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("yunhe %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// run runs a command as a job on a share of one card, or of more, and returns its output.
func (c *center) run(shares, command string) string {
	c.t.Helper()
	id := regexp.MustCompile(`job_\w+`).FindString(c.ask("job", "submit", "--name", "gpu", "--image", "host", "--spec", "run", "--pool", "api=cuda,local,group=g,"+shares, "--command", command))
	late := time.AfterFunc(5*time.Minute, func() { _ = exec.Command(c.yunhe, append([]string{"job", "stop", id}, c.api...)...).Run() })
	defer late.Stop()
	cmd := c.command(append([]string{"job", "wait", id}, c.api...)...)
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Errorf("the job: %v: %s", err, out)
	}
	return c.ask("job", "logs", id)
}

// TestJob: the run of a job on the card's machine, isolated from it, has a share of the
// card with the driver in its program, and of two cards, where there are two.
func TestJob(t *testing.T) {
	c := startCenter(t)
	if c.device == "" {
		t.Skip("SKIPPED: the driver of CUDA shows no card")
	}
	c.serve(append(c.near, "--share", filepath.Dir(c.cuda)+"=/programs"), regexp.MustCompile(`(connected to the platform)`))
	program := "/programs/" + filepath.Base(c.cuda)
	for _, way := range []string{"linked", "dlsym", "proc", "proc-own"} {
		run := func(what string) string { return program + " " + way + " " + what }
		out := c.run("compute=50,memory=300MiB", strings.Join([]string{run("info"), run("fill"), run("kept"), run("add 5")}, " && "))
		c.say("%s: %s", way, strings.ReplaceAll(strings.TrimSpace(out), "\n", ", "))
		if !strings.HasPrefix(out, "devices 1, ") || !strings.Contains(out, "300 MiB, 300 of 300 free") || !strings.HasSuffix(out, "filled 300, error 2\nagain 0 2\nkept 0\nsum 327680\n") {
			t.Errorf("%s: %s", way, out)
		}
	}
	cards := 0
	for _, d := range c.devices() {
		if d.API == "cuda" {
			cards++
		}
	}
	if cards < 2 {
		c.say("there is one card")
		return
	}
	out := c.run("cards=2,compute=50,memory=300MiB", program+" proc cards 1000")
	if strings.Count(out, "has 300 MiB, 299 of 300 free, then it uses 10, 6") != 2 || !strings.Contains(out, "sum 6\nat the end 0, at the end 0\n") {
		t.Errorf("on two cards: %s", out)
	}
}

// TestPyTorchJob: PyTorch in such a run has its slice's memory and computes right.
func TestPyTorchJob(t *testing.T) {
	c := startCenter(t)
	memory, same := c.torch("memory.py", "4096"), c.torch("same.py")
	// The machine's programs are shown to runs, but not what lies in folders of its own.
	where := c.output(c.native(python, "-c", "import os, sys, torch; print(*{sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(torch.__file__))}, sep='\\n')"))
	args := append(c.near, "--share", filepath.Dir(same[1])+"=/scripts")
	for folder := range strings.FieldsSeq(where) {
		if !strings.HasPrefix(folder, "/usr") {
			args = append(args, "--share", folder)
		}
	}
	c.serve(args, regexp.MustCompile(`(connected to the platform)`))
	path, err := exec.LookPath(python)
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range [][]string{memory, same} {
		shares := "compute=50,memory=8192MiB"
		if len(script) > 2 {
			shares = "compute=50,memory=" + script[2] + "MiB"
		}
		out := c.run(shares, strings.Join(append([]string{path, "/scripts/" + filepath.Base(script[1])}, script[2:]...), " "))
		c.say("%s: %s", filepath.Base(script[1]), strings.ReplaceAll(strings.TrimSpace(out), "\n", ", "))
		if !strings.HasSuffix(out, "all right\n") {
			t.Errorf("%s: %s", script, out)
		}
	}
}
