package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// last is a signal behind all others: one that is sent after another is heard after it,
// also where a program hears both at once.
const last = syscall.Signal(64)

// hearSignals is a program that says which signals it hears, and ends by SIGALRM, with
// status 7.
func hearSignals() {
	caught := make(chan os.Signal, 64)
	hup := signal.Ignored(syscall.SIGHUP)
	signal.Notify(caught)
	signal.Reset(syscall.SIGURG, syscall.SIGCHLD, syscall.SIGTTOU, syscall.SIGTTIN, syscall.SIGPIPE)
	fmt.Println("ready", os.Getpid(), "hup ignored:", hup)
	for s := range caught {
		if s == syscall.SIGALRM {
			os.Exit(7)
		}
		fmt.Println(s)
	}
}

// running is "yunhe pool run" with a program that hears signals.
type running struct {
	t       *testing.T
	cmd     *exec.Cmd
	node    *fakePoolNode
	lines   *bufio.Reader
	program *os.Process
	ready   string
}

// called makes the test binary be called name, as what it then is (TestMain).
func called(t *testing.T, dir, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// runHearing starts it; terminal is one that both have, nil: a pipe of their own.
// before are commands of a shell that becomes yunhe.
func runHearing(t *testing.T, terminal *os.File, before string) *running {
	t.Helper()
	library(t)
	dir := t.TempDir()
	r := &running{t: t, node: startPoolNode(t, nil)}
	r.cmd = exec.Command("sh", "-c", before+`exec "$0" pool run --node "$1" -- "$2"`, called(t, dir, "yunhe"), r.node.at, called(t, dir, "hears"))
	r.cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	r.cmd.Stderr = os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout = in
	if terminal != nil {
		r.cmd.Stdin = terminal
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} { // tests may be started with these ignored (nohup), and what they start would be, too
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // or it has ended
		if r.program != nil {
			_ = r.program.Kill() // likewise
		}
		_ = r.cmd.Wait()
		_ = out.Close()
	})
	if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewReader(out)
	r.ready = r.line()
	var pid int
	if _, err := fmt.Sscanf(r.ready, "ready %d", &pid); err != nil {
		t.Fatalf("the program says %q", r.ready)
	}
	r.program, _ = os.FindProcess(pid) // it does not fail
	r.node.holds(t, 1)
	return r
}

func (r *running) line() string {
	r.t.Helper()
	line, err := r.lines.ReadString('\n')
	if err != nil {
		r.t.Fatalf("the program says no more: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (r *running) send(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// hears checks that the program heard these, each once, and nothing else.
func (r *running) hears(want ...syscall.Signal) {
	r.t.Helper()
	var got, names []string
	for _, s := range want {
		names = append(names, s.String())
		got = append(got, r.line())
	}
	r.send(last)
	for line := r.line(); line != last.String(); line = r.line() {
		got = append(got, line)
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		r.t.Errorf("the program hears %q, want %q", got, names)
	}
}

// ends waits for yunhe's end, which leaves no task at the node.
func (r *running) ends() syscall.WaitStatus {
	r.t.Helper()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	r.node.holds(r.t, 0)
	return r.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// processStopped waits until a process has stopped, or goes on.
func processStopped(t *testing.T, pid int, want bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if strings.HasPrefix(rest, "T") == want {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("process %d is %.1s", pid, rest)
		}
	}
}

func openTerminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	return keys, screen
}

func press(t *testing.T, keys *os.File, key string) {
	t.Helper()
	if _, err := io.WriteString(keys, key); err != nil {
		t.Fatal(err)
	}
}

func TestPoolRunSignals(t *testing.T) {
	t.Parallel()
	t.Run("what yunhe alone is sent goes on to the program", func(t *testing.T) {
		t.Parallel()
		r := runHearing(t, nil, "")
		for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, 37} {
			r.send(s)
			r.hears(s)
		}
		r.send(syscall.SIGTERM) // it was told before
		r.hears(syscall.SIGTERM)
		r.node.holds(t, 1)
		r.send(syscall.SIGALRM)
		if s := r.ends(); s.ExitStatus() != 7 {
			t.Errorf("status %v, want 7", s)
		}
	})
	t.Run("Ctrl-Z to yunhe alone stops it and tells the program", func(t *testing.T) {
		t.Parallel()
		r := runHearing(t, nil, "")
		for range 2 {
			r.send(syscall.SIGTSTP)
			processStopped(t, r.cmd.Process.Pid, true)
			// Before it is told to go on: that takes back a stop that it has not heard of.
			if got := r.line(); got != syscall.SIGTSTP.String() {
				t.Errorf("it hears %q, want %s", got, syscall.SIGTSTP)
			}
			r.send(syscall.SIGCONT)
			processStopped(t, r.cmd.Process.Pid, false)
			r.hears(syscall.SIGCONT)
		}
	})
	t.Run("keys of a terminal reach the program once", func(t *testing.T) {
		t.Parallel()
		keys, screen := openTerminal(t)
		r := runHearing(t, screen, "")
		for key, s := range map[string]syscall.Signal{"\x03": syscall.SIGINT, "\x1c": syscall.SIGQUIT} {
			for range 3 { // and again, which ends nothing
				press(t, keys, key)
				r.hears(s)
			}
		}
		if err := unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
			t.Fatal(err)
		}
		r.hears(syscall.SIGWINCH)
		r.send(syscall.SIGINT) // of another terminal: kill -INT
		r.hears(syscall.SIGINT)
		r.node.holds(t, 1)
		r.send(syscall.SIGALRM)
		if s := r.ends(); s.ExitStatus() != 7 {
			t.Errorf("status %v, want 7", s)
		}
	})
	t.Run("a program that hears of the end of its yunhe", func(t *testing.T) {
		t.Parallel()
		r := runHearing(t, nil, "")
		r.send(syscall.SIGKILL)
		if got := r.line(); got != syscall.SIGTERM.String() {
			t.Errorf("it hears %q, want %s", got, syscall.SIGTERM)
		}
		r.ends()
	})
	t.Run("what was ignored stays so", func(t *testing.T) {
		t.Parallel()
		r := runHearing(t, nil, `trap "" HUP; `)
		if !strings.HasSuffix(r.ready, "hup ignored: true") {
			t.Errorf("of nohup the program finds %s", r.ready)
		}
	})
}

func TestPoolRunStatus(t *testing.T) {
	t.Parallel()
	library(t)
	dir := t.TempDir()
	node, yunhe := startPoolNode(t, nil), called(t, dir, "yunhe")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		program []string
		exit    int
		signal  syscall.Signal
		says    string
	}{
		{program: []string{"sh", "-c", "exit 3"}, exit: 3},
		{program: []string{"sh", "-c", "kill -TERM $$"}, exit: 143, says: "yunhe pool: sh was ended: terminated\n"},
		{program: []string{"sh", "-c", "kill -SEGV $$"}, exit: 139, says: "yunhe pool: sh was ended: segmentation fault\n"},
		{program: []string{"sh", "-c", "kill -PIPE $$"}, exit: 141},
		{program: []string{"sh", "-c", "kill -INT $$"}, exit: 130}, // only the program was
		{program: []string{"sh", "-c", "kill -INT $PPID; exec sleep 60"}, signal: syscall.SIGINT},
		{program: []string{"sh", "-c", "kill -TERM $PPID; exec sleep 60"}, exit: 143, says: "yunhe pool: sh was ended: terminated\n"},
		{program: []string{filepath.Join(dir, "none")}, exit: 127, says: "error: there is no program " + dir + "/none\n"},
		{program: []string{"yunhe-no-such-program"}, exit: 127, says: "error: there is no program yunhe-no-such-program\n"},
		{program: []string{filepath.Join(dir, "file")}, exit: 126, says: "error: " + dir + "/file cannot be started: permission denied\n"},
	} {
		cmd := exec.Command(yunhe, append([]string{"pool", "run", "--node", node.at, "--"}, x.program...)...)
		var says strings.Builder
		cmd.Env, cmd.Stderr = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache")), &says
		_ = cmd.Run() // as its state says
		s := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if x.signal != 0 && (!s.Signaled() || s.Signal() != x.signal) || x.signal == 0 && s.ExitStatus() != x.exit || says.String() != x.says {
			t.Errorf("%v: status %#x, %q; want %d or %v, %q", x.program, int(s), says.String(), x.exit, x.signal, x.says)
		}
	}
	node.holds(t, 0)
}
