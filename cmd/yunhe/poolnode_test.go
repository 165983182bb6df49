package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// TestPoolNodeOutlivesItsLog: a node goes on when who reads its log has ended, and a
// second one on its folder does not begin.
func TestPoolNodeOutlivesItsLog(t *testing.T) {
	t.Parallel()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "yunhe"))
	}
	if err != nil {
		t.Fatal(err)
	}
	command := func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "yunhe"), "pool", "node", "--data", filepath.Join(dir, "d"))
		cmd.Env = os.Environ()
		return cmd
	}
	node := command()
	log, err := node.StderrPipe()
	if err == nil {
		err = node.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	defer func() { _ = node.Process.Kill() }() // or it has ended
	said := ""
	for lines := bufio.NewScanner(log); !strings.Contains(said, "pool node listens"); said += lines.Text() + "\n" {
		if lines.Scan() {
			continue
		}
		if strings.Contains(said, "shows a device") || strings.Contains(said, "cannot be listed") {
			t.Skipf("SKIPPED: no device of OpenCL (pocl-opencl-icd): %s", said)
		}
		t.Fatalf("it never listened:\n%s", said)
	}
	_ = log.Close()
	go func() { ended <- node.Wait() }()
	out, err := command().CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), filepath.Join(dir, "d")) || !strings.Contains(string(out), "another pool node (process ") {
		t.Errorf("a second node on its folder: %v, %s", err, out)
	}
	client, err := pool.Dial(t.Context(), pool.DefaultAddress(filepath.Join(dir, "d")), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, on := range []bool{false, true} { // which it logs
		if err := client.Enable("opencl-0", on); err != nil {
			t.Errorf("the node is gone with who read its log: %v", err)
		}
	}
	_ = node.Process.Signal(syscall.SIGTERM) // or it has ended, which is said next
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestPoolNodeGivesBack: a program that is given a node and does not come so far as to
// take it, because it knows no such flag, or a file is not as it was, gives it back.
func TestPoolNodeGivesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Symlink(self, filepath.Join(dir, "yunhe")), os.WriteFile(filepath.Join(dir, "before"), []byte("#!/bin/sh\necho \"again: $YUNHE_POOL_BACK\"\n"), 0o700),
			os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("groups: ["), 0o600), os.Mkdir(filepath.Join(dir, "member"), 0o700),
			os.WriteFile(filepath.Join(dir, "member", "membership.json"), []byte(`{"platform":"http://127.0.0.1:1","node":"n1","secret":"x"}`), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"--memory", "much"}, "--memory"},
		{[]string{"--groups", filepath.Join(dir, "broken.yaml")}, "broken.yaml"},
		{[]string{"--data", filepath.Join(dir, "member")}, "not hexadecimal"},
		{[]string{"--listen", "nowhere"}, "nowhere"},
	} {
		handed, err := os.Create(filepath.Join(dir, "handed"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := handed.WriteString(`{"format":1,"program":-1,"previous":"` + filepath.Join(dir, "before") + `"}`); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(dir, "yunhe"), append([]string{"pool", "node"}, c.args...)...)
		cmd.Dir, cmd.Env, cmd.ExtraFiles = dir, append(os.Environ(), "YUNHE_POOL_HANDOVER=3"), []*os.File{handed}
		out, err := cmd.CombinedOutput()
		_ = handed.Close()
		if _, why, again := strings.Cut(string(out), "again: "); err != nil || !again || !strings.Contains(why, c.says) {
			t.Errorf("%s: %v, %s, want the program before again, told of %s", c.args, err, out, c.says)
		}
	}
}
