//go:build linux && (amd64 || arm64)

package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestMainRefusesASharedNamespace: elsewhere it would end everybody's
// processes.
func TestMainRefusesASharedNamespace(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(os.Args[0], "runner", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "first process of its own process namespace") {
		t.Errorf("got %v, %s", err, out)
	}
	if err := killAll(unix.SIGKILL); err == nil { // if this fails, nobody reads it
		t.Error("killAll worked outside")
	}
}

// TestRunnerRespectsClaims starts runners on attempts that are not theirs to
// run.
func TestRunnerRespectsClaims(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: a process namespace needs root, this is user", os.Geteuid())
	}
	for name, file := range map[string]string{"claimed": StartedFile, "ended": ExitFile} {
		dir := t.TempDir()
		write(t, dir, map[string]string{SpecFile: "{}", file: ""})
		c := exec.Command(os.Args[0], "runner", dir)
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 3 || len(out) > 0 || read(t, filepath.Join(dir, file)) != "" {
			t.Errorf("%s: %v, %s", name, c.ProcessState, out)
		}
		if file == StartedFile {
			if _, err := ReadExit(dir); err == nil {
				t.Errorf("%s: it wrote a record", name)
			}
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{SpecFile: `{"version":99}`})
	c := exec.Command(os.Args[0], "runner", dir)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	e, err := ReadExit(dir)
	if err != nil || e.Reason != StartFailed || e.Message != fmt.Sprint("the spec has version 99, this runner speaks ", Version) {
		t.Errorf("of another version: %+v, %v", e, err)
	}
}

// TestUnifiedGroupsOnKernel moves real processes on a v2 hierarchy, if only
// one without controllers.
func TestUnifiedGroupsOnKernel(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: control groups need root, this is user", os.Geteuid())
	}
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root += "/unified"
	}
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		t.Skip("skipped: no cgroup v2 hierarchy on this machine:", err)
	}
	base := filepath.Join(root, fmt.Sprintf("yunhe-test-%d", os.Getpid()))
	dir, park := filepath.Join(base, "r"), filepath.Join(base, "park")
	for _, d := range []string{base, park} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(d) })
	}
	g := Groups{V2: true, Park: park, All: []Group{{Path: dir, Controllers: []string{"cpu", "memory", "pids", "freezer"}}}}
	if err := g.create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Kill(); _ = g.Remove() })
	// A shell joins as a runner does, forks the command, and leaves.
	shell := exec.Command("/bin/sh", "-c", "echo 0 >"+dir+"/cgroup.procs; sleep 1000 & echo 0 >"+park+"/cgroup.procs; echo $!; read x")
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, dir+"/cgroup.procs"), fmt.Sprintln(child); got != want {
		t.Errorf("inside is %q, want %q", got, want)
	}
	if err := g.Freeze(true); err != nil {
		t.Fatal(err)
	}
	for {
		frozen, err := g.Frozen()
		if err != nil {
			t.Fatal(err)
		}
		if frozen {
			break
		}
		runtime.Gosched()
	}
	if err := g.Kill(); err != nil { // frozen as it is
		t.Error(err)
	}
	if u, ok := g.Usage(); !ok || u.CPUUsec < 0 {
		t.Errorf("usage %+v, %v", u, ok)
	}
	in.Close()
	_ = shell.Wait() // read fails at the end of input
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}
