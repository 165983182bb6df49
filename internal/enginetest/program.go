package enginetest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Binary returns the path of the built yunhe program: what YUNHE_BIN names, or
// bin/yunhe of this repository. The error says how to build it.
func Binary() (string, error) {
	path := os.Getenv("YUNHE_BIN")
	if root := Repository(); path == "" && root != "" {
		path = filepath.Join(root, "bin", "yunhe")
	}
	if path == "" || !executable(path) {
		return "", fmt.Errorf("the program %q is not built: run make build, or name it with YUNHE_BIN", path)
	}
	return filepath.Abs(path)
}

// Program is a process of Yunhe's own, started for a test or a measurement.
// It dies with the process that started it.
type Program struct {
	*process
}

// StartProgram starts path with args. What it says goes to name.log in dir,
// appended to what an earlier process of that name said there. env is added to
// the environment.
func StartProgram(name, path, dir string, env []string, args ...string) (*Program, error) {
	return StartProgramOn(nil, name, path, dir, env, args...)
}

// StartProgramOn is StartProgram on a host; nil: this machine as it is.
func StartProgramOn(h *Host, name, path, dir string, env []string, args ...string) (*Program, error) {
	p, err := start(command{name: name, path: path, args: args, dir: dir, host: h, env: append(os.Environ(), env...)})
	if err != nil {
		return nil, err
	}
	return &Program{p}, nil
}

// PID is the process's.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Log is the path of the file that has what the process said.
func (p *Program) Log() string { return p.log }

// Done is closed when the process has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Kill ends this process alone with SIGKILL, as the kernel does when memory is
// short, and waits until it is gone.
func (p *Program) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// Freeze has the process stand still until Thaw.
func (p *Program) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw has it go on.
func (p *Program) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Stop asks the process to end (SIGTERM), waits for it and returns an error
// unless it exited with 0. Stopping one that was killed is not an error.
func (p *Program) Stop() error {
	if err := p.terminate(); err != nil {
		return err
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	if p.err != nil {
		return fmt.Errorf("%s ended with: %w; its log ends:\n%s", p.name, p.err, tail(p.log))
	}
	return nil
}

// Line returns the rest of the first line of the log that starts with prefix;
// ok is false if there is none yet.
func (p *Program) Line(prefix string) (rest string, ok bool, err error) {
	f, err := os.Open(p.log)
	if err != nil {
		return "", false, fmt.Errorf("read log of %s: %w", p.name, err)
	}
	defer f.Close() // read only
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), prefix); ok {
			return rest, true, nil
		}
	}
	return "", false, nil
}

// Tail returns the end of the process's log.
func (p *Program) Tail() string { return tail(p.log) }

// FreePort returns a loopback TCP port that is free, below those the kernel
// gives to outgoing connections: a server can be killed and come back to it.
func FreePort() (int, error) { return freePort() }
