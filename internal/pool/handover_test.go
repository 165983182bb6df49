//go:build linux

package pool_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// serves is the folder of the node that this process, started anew by a test, is.
// It gives itself to another program of its kind at SIGUSR1, to one that does not
// take it at SIGUSR2, and to what is no program at SIGHUP.
const (
	serves  = "YUNHE_POOL_TEST_SERVES"
	next    = "YUNHE_POOL_TEST_NEXT" // the other program
	refuses = "YUNHE_POOL_TEST_REFUSES"
	plays   = "YUNHE_POOL_TEST_LIBRARIES" // where what plays drivers is
	// what it says over TCP is encrypted
	encrypts = "YUNHE_POOL_TEST_ENCRYPTS"
)

func serveNode(dir string) error {
	if os.Getenv(refuses) != "" {
		_ = os.Unsetenv(refuses)
		return pool.GiveBack(errors.New("it does not want it"))
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	n, err := pool.NewNode(pool.NodeConfig{Dir: dir, Libraries: os.Getenv(plays), Encryption: os.Getenv(encrypts) != "", Listen: []string{"unix:" + dir + "/s", "tcp:127.0.0.1:0"}, Groups: []pool.Group{{Name: "a", Key: key}}}, log)
	if err != nil {
		return err
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	go func() {
		for what := range told {
			program := os.Getenv(next)
			switch what {
			case syscall.SIGUSR2:
				_ = os.Setenv(refuses, "1")
			case syscall.SIGHUP:
				program = dir
			}
			log.Info("not replaced", "error", n.Replace(context.Background(), program))
		}
	}()
	log.Info("serves", "at", n.Addresses()[1], "back", n.GivenBack())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return n.Run(ctx)
}

// served is a node that is a process.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *bufio.Scanner
	unix string
}

func serve(t *testing.T, env ...string) *served {
	t.Helper()
	start(t, pool.NodeConfig{}) // or it is skipped
	dir, err := os.MkdirTemp("", "yp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "first")
	program, err := os.ReadFile(self)
	if err == nil {
		err = install(first, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(first)
	cmd.Env = append(append(os.Environ(), serves+"="+dir, next+"="+self), env...)
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(first) // it was installed anew, say
	s := &served{t, cmd, bufio.NewScanner(out), "unix:" + dir + "/s"}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return s
}

// said waits until the node has said something, and returns the line.
func (s *served) said(what string) string {
	s.t.Helper()
	var all strings.Builder
	for s.out.Scan() {
		fmt.Fprintln(&all, s.out.Text())
		if strings.Contains(s.out.Text(), what) {
			return s.out.Text()
		}
	}
	s.t.Fatalf("it never said %q:\n%s", what, all.String())
	return ""
}

func (s *served) tell(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// TestReplace: a node gives all it has to another program, over and over, while
// programs compute on all of a device; each of their steps is right, tasks keep
// what they have and count on, and new ones start. So it is if the other program
// does not take it, or is none, also where the file of the program that takes it
// back is gone.
func TestReplace(t *testing.T) {
	t.Parallel()
	replace(t, serve(t))
}

// TestReplaceEncrypted: so does one whose programs and clients encrypt.
func TestReplaceEncrypted(t *testing.T) {
	t.Parallel()
	replace(t, serve(t, encrypts+"=1"))
}

// TestReplaceDevices: programs compute on while the device's memory changes, as a virtual
// machine's does, while it is gone, or its driver fails, also when the node becomes another
// program then, or that gives it back.
func TestReplaceDevices(t *testing.T) {
	t.Parallel()
	vendors := t.TempDir()
	lib := map[string]string{}
	for name, define := range map[string]string{"small": "MEMORY=(1ull<<30)", "large": "MEMORY=(3ull<<30)", "fails": "FAILS"} {
		lib[name] = compiled(t, "lib"+name+".so", "-D"+define, "-shared", "-fPIC", "testdata/grown.c", "-ldl")
	}
	have := func(name string) {
		t.Helper()
		path := filepath.Join(vendors, "grown.icd")
		err := os.Remove(path)
		if name != "" {
			err = os.WriteFile(path, []byte(lib[name]+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(vendors, "grown.icd"), []byte(lib["small"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "OCL_ICD_VENDORS="+vendors)
	s.said("msg=serves")
	task, token, err := dial(t, s.unix).Run(pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	w := walk(t, program(t, s.unix, task.ID, token, "walk", "8"))
	is := func(when string, gone bool, memory int64) {
		t.Helper()
		c := dial(t, s.unix)
		defer c.Close()
		list, err := c.Devices()
		if err != nil || len(list) != 1 || list[0].ID != "opencl-0" || list[0].Gone != gone || list[0].Memory != memory || list[0].Tasks == 0 {
			t.Errorf("%s: %+v, %v", when, list, err)
		}
	}
	is("at first", false, 1<<30)
	have("large")
	s.said("a device's memory has changed")
	is("larger", false, 3<<30)
	if _, run := share(t, s.unix, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 2 << 30}); !strings.HasPrefix(output(t, run("add")), "sum ") {
		t.Error("what has come is not lent")
	}
	have("small")
	s.tell(syscall.SIGUSR1) // before it has looked
	s.said("goes on in another program")
	is("smaller", false, 1<<30)
	have("")
	s.said("device gone")
	s.tell(syscall.SIGUSR1)
	s.said("goes on in another program")
	is("gone", true, 1<<30)
	starts := program(t, s.unix, task.ID, token, "add")
	if out, err := starts.CombinedOutput(); err == nil || !strings.Contains(string(out), "device opencl-0 is gone") {
		t.Errorf("a program that starts where the device is gone: %v: %s", err, out)
	}
	have("fails")
	s.tell(syscall.SIGUSR1)
	if got := s.said("msg=serves"); !strings.Contains(got, "back=\"the devices of this machine cannot be listed") {
		t.Errorf("with a driver that fails: %s", got)
	}
	is("failing", true, 1<<30)
	have("small")
	s.said("device found")
	is("there again", false, 1<<30)
	w.end()
}

func replace(t *testing.T, s *served) {
	_, tcp, _ := strings.Cut(s.said("msg=serves"), "at=")
	tcp, _, _ = strings.Cut(tcp, " ")
	var walkers []*walker
	var tasks []pool.Task
	ended := make(chan string, 2)
	for i, at := range []string{s.unix, tcp} {
		client := dial(t, at)
		task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 50 - int64(i)*20, Memory: 64 * mib, Weighted: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		go func() { why, _ := client.Ended(); ended <- why }()
		walkers, tasks = append(walkers, walk(t, program(t, at, task.ID, token, "walk", "8"))), append(tasks, task)
	}
	now := func() []pool.Task {
		t.Helper()
		c := dial(t, s.unix)
		defer c.Close()
		list, err := c.Tasks()
		if err != nil || len(list) != 2 {
			t.Fatalf("tasks are %+v, %v", list, err)
		}
		return list
	}
	was := now()
	for i, sig := range []os.Signal{syscall.SIGUSR2, syscall.SIGUSR1, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR1} {
		s.tell(sig)
		switch sig {
		case syscall.SIGHUP:
			if got := s.said("not replaced"); !strings.Contains(got, "cannot be run") {
				t.Errorf("to what is no program: %s", got)
			}
		case syscall.SIGUSR2:
			if got := s.said("msg=serves"); !strings.Contains(got, `back="it does not want it"`) {
				t.Errorf("given back: %s", got)
			}
			s.said("goes on in another program")
		default:
			if got := s.said("msg=serves"); !strings.Contains(got, `back=""`) {
				t.Errorf("given back: %s", got)
			}
			t.Log(s.said("goes on in another program"))
		}
		for k, x := range now() {
			if x.ID != tasks[k].ID || x.Compute != tasks[k].Compute || x.Memory != 64*mib || x.Used < 8*mib || x.Programs != 1 || x.Busy < was[k].Busy || x.Weighted != tasks[k].Weighted {
				t.Errorf("round %d: task %d is %+v, was %+v", i, k, x, was[k])
			}
			was[k] = x
		}
		dir := strings.TrimSuffix(strings.TrimPrefix(s.unix, "unix:"), "/s")
		if _, err := pool.LockFolder(dir); fault.KindOf(err) != fault.Exists || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", s.cmd.Process.Pid)) {
			t.Errorf("round %d: another node on its folder: %v", i, err)
		}
		more, run := share(t, tcp, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 8 * mib})
		if got := output(t, run("add")); !strings.HasPrefix(got, "sum ") {
			t.Errorf("round %d: a program that starts then: %q", i, got)
		}
		if err := dial(t, s.unix).Stop(more.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := dial(t, s.unix).Resize(tasks[0].ID, 30, 0); err != nil {
		t.Errorf("resized: %v", err)
	}
	busy := now()[0].Busy
	for i := 0; now()[0].Busy == busy; i++ { // it computes on
		if t.Context().Err() != nil {
			t.Fatal("the first task does not compute")
		}
	}
	for _, w := range walkers {
		w.end()
	}
	for _, x := range tasks {
		if err := dial(t, s.unix).Stop(x.ID); err != nil {
			t.Error(err)
		}
		if why := <-ended; why != "it was stopped" {
			t.Errorf("its holder heard %q", why)
		}
	}
	s.tell(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
