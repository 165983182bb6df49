package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/internal/fault"
)

// started starts a run whose command prints its process number and waits.
func started(t testing.TB, s *sandbox.Sandbox, spec sandbox.Spec) (r *sandbox.Run, pid string) {
	t.Helper()
	spec.Command = "echo $$; exec sleep 1000"
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	log := r.Log(0, true)
	defer log.Close()
	c, err := log.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, strings.TrimSpace(string(c.Data))
}

// sh runs a command line beside a run and returns what it wrote and its code.
func sh(t testing.TB, s *sandbox.Sandbox, id, line, input string) (out, errs string, code int) {
	t.Helper()
	x, err := s.Exec(t.Context(), id, sandbox.ExecSpec{Args: []string{"sh", "-c", line}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var wg sync.WaitGroup
	var a, b []byte
	wg.Go(func() { a, _ = io.ReadAll(x.Output) })
	wg.Go(func() { b, _ = io.ReadAll(x.ErrorOutput) })
	if _, err := io.WriteString(x, input); err != nil {
		t.Fatal(err)
	}
	if err := x.CloseInput(); err != nil {
		t.Fatal(err)
	}
	code, err = x.ExitCode()
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return string(a), string(b), code
}

func TestExec(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	started(t, s, small("r", ""))
	out, errs, code := sh(t, s, "r", "cat; echo wrong >&2; exit 7", "some\x00\xffbytes")
	if out != "some\x00\xffbytes" || errs != "wrong\n" || code != 7 {
		t.Errorf("it wrote %q and %q and ended with %d", out, errs, code)
	}
	if _, _, code := sh(t, s, "r", "kill -9 $$", ""); code != 137 {
		t.Errorf("killed by signal 9 it ended with %d, want 137", code)
	}
	if out, _, _ := sh(t, s, "r", "head -c 3000000 /dev/zero", ""); len(out) != 3000000 {
		t.Errorf("of 3000000 bytes %d came", len(out))
	}
	// What stays in the background keeps nobody waiting.
	if out, _, _ := sh(t, s, "r", "sleep 1000 & echo here", ""); out != "here\n" {
		t.Errorf("it wrote %q", out)
	}
	for name, c := range map[string]struct {
		id   string
		args []string
		want fault.Kind
	}{
		"unknown run":  {"x", []string{"true"}, fault.NotFound},
		"no command":   {"r", nil, fault.Invalid},
		"no such file": {"r", []string{"no-such-program"}, fault.Invalid},
		"zero byte":    {"r", []string{"a\x00b"}, fault.Invalid},
	} {
		if x, err := s.Exec(t.Context(), c.id, sandbox.ExecSpec{Args: c.args}); fault.KindOf(err) != c.want {
			t.Errorf("%s: %v, %v, want %s", name, x, err, c.want)
		}
	}
	r, err := s.Get("r")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(t.Context(), "r", sandbox.ExecSpec{Args: []string{"true"}}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("in a paused run: %v, want Conflict", err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, r)
	if _, err := s.Exec(t.Context(), "r", sandbox.ExecSpec{Args: []string{"true"}}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("in an ended run: %v, want Conflict", err)
	}
}

// A command beside the run's own is as confined as that.
func TestExecIsConfined(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("r", "")
	spec.Env = map[string]string{"FLAVOR": "plum"}
	_, main := started(t, s, spec)
	facts := func(pid string) string {
		return fmt.Sprintf(`for n in cgroup ipc mnt net pid uts; do readlink /proc/%s/ns/$n; done
			grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/%[1]s/status; cat /proc/%[1]s/cgroup; readlink /proc/%[1]s/root /proc/%[1]s/cwd
			grep -E '^Max (open files|core)' /proc/%[1]s/limits; cat /proc/%[1]s/oom_score_adj`, pid)
	}
	own, _, _ := sh(t, s, "r", facts("self"), "")
	its, _, _ := sh(t, s, "r", facts(main), "")
	if own != its || !strings.Contains(own, "Seccomp:\t2") || !strings.Contains(own, "CapBnd:\t0000000000000000") {
		t.Errorf("the command is\n%s\nthe run's own is\n%s", own, its)
	}
	for line, want := range map[string]string{
		"ls /proc/self/fd":                                "0\n1\n2\n3\n", // 3 is the folder it lists
		"umask; pwd; echo $FLAVOR":                        "0022\n/workspace\nplum\n",
		"mount -t tmpfs none /tmp 2>/dev/null || echo no": "no\n",
		"unshare -U true 2>/dev/null || echo no":          "no\n",
		"cat /etc/shadow 2>/dev/null || echo no":          "no\n",
		"test -e /proc/1/exe && echo yes; echo end":       "end\n", // the runner cannot be seen
		"ls /dev/pts 2>/dev/null; echo end":               "end\n",
	} {
		out, _, _ := sh(t, s, "r", line, "")
		if out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
}

// Commands beside a run have the environment that is theirs, also by the next
// gateway; the run's own does not.
func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	spec := small("r", "")
	spec.Env, spec.BesideEnv = map[string]string{"FLAVOR": "plum", "SECRET": "x"}, map[string]string{"FLAVOR": "fig"}
	_, main := started(t, s, spec)
	check := func() {
		t.Helper()
		const want = "fig::/workspace\n"
		if out, _, _ := sh(t, s, "r", "echo $FLAVOR:$SECRET:$HOME", ""); out != want {
			t.Errorf("beside the run: %q, want %q", out, want)
		}
		if out, _, _ := sh(t, s, "r", "tr '\\0' '\\n' </proc/"+main+"/environ | grep -E '^(FLAVOR|SECRET)='", ""); out != "FLAVOR=plum\nSECRET=x\n" {
			t.Errorf("the run's own command has %q", out)
		}
	}
	check()
	s.Close()
	s = open(t, cfg)
	if _, err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
	for name, spec := range map[string]sandbox.Spec{
		"a name that is none": {Command: "true", BesideEnv: map[string]string{"a b": "c"}},
		"a zero byte":         {Command: "true", BesideEnv: map[string]string{"A": "b\x00"}},
		"too much":            {Command: "true", BesideEnv: map[string]string{"A": strings.Repeat("b", 128<<10)}},
	} {
		spec.ID, spec.CPUMilli, spec.MemoryBytes = "x", 100, 16<<20
		if err := spec.Validate(); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "beside_env") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExecIsLimited(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	few := small("few", "")
	few.Pids = 8
	started(t, s, few)
	if _, errs, _ := sh(t, s, "few", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done", ""); !strings.Contains(errs, "fork") && !strings.Contains(errs, "Fork") {
		t.Errorf("it started more processes than the run may have: %q", errs)
	}
	spec := small("r", "")
	spec.MemoryBytes = 32 << 20
	r, _ := started(t, s, spec)
	_, _, code := sh(t, s, "r", "head -c 100000000 /dev/zero | tail", "")
	if u, err := r.Usage(); err == nil && u.MaxMemoryBytes > spec.MemoryBytes {
		t.Errorf("%d bytes were used of %d", u.MaxMemoryBytes, spec.MemoryBytes)
	}
	if _, over := r.Result(); !over && code == 0 {
		t.Errorf("100 MB fit into %d bytes", spec.MemoryBytes)
	}
}

func TestExecTerminal(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	started(t, s, small("r", ""))
	x, err := s.Exec(t.Context(), "r", sandbox.ExecSpec{Args: []string{"sh"}, Terminal: true, Columns: 101, Rows: 31})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var seen strings.Builder
	buf := make([]byte, 4096)
	until := func(want string) {
		t.Helper()
		for !strings.Contains(seen.String(), want) {
			n, err := x.Output.Read(buf)
			seen.Write(buf[:n])
			if err != nil {
				t.Fatalf("%v after %q, want %q", err, seen.String(), want)
			}
		}
	}
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(x, text); err != nil {
			t.Fatal(err)
		}
	}
	say("test -t 0 && test -t 2 && echo 'a ter'minal; stty size </dev/tty; echo $TERM\n")
	until("a terminal\r\n")
	until("31 101\r\n")
	until("xterm-256color\r\n")
	if err := x.Resize(80, 24); err != nil {
		t.Fatal(err)
	}
	say("stty size\n")
	until("24 80\r\n")
	say("sh -c \"echo no''w; exec sleep 1000\"\n") // which has the terminal when it says so
	until("now\r\n")
	say("\x03")
	until("^C")
	say("echo still''here\n")
	until("stillhere\r\n")
	say("exit 5\n")
	if code, err := x.ExitCode(); code != 5 || err != nil {
		t.Errorf("it ended with %d, %v, want 5", code, err)
	}
	if _, err := io.ReadAll(x.Output); err != nil {
		t.Error(err)
	}
}

// Whoever goes away takes the command along: the caller, the gateway, the run.
func TestExecEnds(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	r, _ := started(t, s, small("r", ""))
	alone := func(r *sandbox.Run) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			u, err := r.Usage()
			if err != nil {
				t.Fatal(err)
			}
			if u.Pids == 1 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d processes are left of the run, want its own only", u.Pids)
			}
		}
	}
	begin := func(terminal bool) *sandbox.Exec {
		x, err := s.Exec(t.Context(), "r", sandbox.ExecSpec{Args: []string{"sh", "-c", "trap '' HUP; sleep 1000 & sleep 1000 & echo on; wait"}, Terminal: terminal})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2)
		if _, err := io.ReadFull(x.Output, buf); err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, terminal := range []bool{false, true} {
		x := begin(terminal)
		x.Close()
		x.Close()
		if code, err := x.ExitCode(); err == nil {
			t.Errorf("closed, it is said to have ended with %d", code)
		}
		alone(r)
	}
	x := begin(false)
	s.Close()
	if _, err := x.ExitCode(); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("when its gateway ends: %v, want Unavailable", err)
	}
	s = open(t, cfg)
	if _, err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get("r")
	if err != nil {
		t.Fatal(err)
	}
	alone(r)
	x = begin(true)
	defer x.Close()
	began := time.Now()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, r), "stopped", -1)
	if took := time.Since(began); took > 15*time.Second { // its grace is 10 s, and it ignores nothing but HUP
		t.Errorf("the end of a run with a command beside it took %s", took)
	}
	if code, err := x.ExitCode(); code < 128 || err != nil {
		t.Errorf("when its run ends it ends with %d, %v, want a signal", code, err)
	}
}

// The run's own end ends what runs beside it, at once.
func TestExecEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	r, err := s.Start(t.Context(), small("r", "echo go; until test -e end; do sleep 0.02; done; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "go\n")
	x, err := s.Exec(t.Context(), "r", sandbox.ExecSpec{Args: []string{"sh", "-c", "touch end; sleep 1000 & exec sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	res := wait(t, r)
	expect(t, res, "exit", 3)
	if took := res.EndedAt.Sub(res.StartedAt); took > 50*time.Second {
		t.Errorf("it took %s: the command beside it held it up", took)
	}
	if code, err := x.ExitCode(); code != 137 || err != nil {
		t.Errorf("the command beside it ended with %d, %v, want 137", code, err)
	}
}

// Many at once, broken off at any moment, leave nothing behind.
func TestExecRace(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("r", "")
	spec.Pids = 400
	r, _ := started(t, s, spec)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*2*time.Millisecond)
			defer cancel()
			x, err := s.Exec(ctx, "r", sandbox.ExecSpec{Args: []string{"sleep", "1000"}, Terminal: i%2 == 0})
			if err == nil {
				x.Close()
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		u, err := r.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if u.Pids == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are left", u.Pids)
		}
	}
}
