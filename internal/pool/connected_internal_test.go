//go:build linux

package pool

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestConnected: the process that connected is the one that is followed; where it has
// ended by then, nobody is, though a child of it has the connection.
func TestConnected(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err) // make deps has it
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const connects = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
	for what, rest := range map[string]string{"itself": "sys.stdin.read()", "a child": "if os.fork() == 0: sys.stdin.read()"} {
		cmd := exec.CommandContext(t.Context(), python, "-c", connects+rest, l.Addr().String())
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if what == "a child" {
			if _, err := cmd.Process.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		switch c := connected(conn); {
		case what == "a child" && c.err == nil:
			t.Errorf("process %d is followed, which has ended", c.p.pid)
		case what == "itself" && (c.err != nil || c.p.pid != cmd.Process.Pid):
			t.Errorf("it is %+v, %v", c.p, c.err)
		default:
			c.close()
		}
		_ = in.Close()
		_ = conn.Close()
		if what == "itself" {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}
