package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// execMain runs one command in the sandbox of the attempt in dir. It is a
// process of the host, outside of the attempt: a thread of it enters the
// sandbox, gives up every privilege as the attempt's own command did, and
// starts the command from there.
func execMain(dir string) int {
	unix.CloseOnExec(ExecRequestFD)
	unix.CloseOnExec(ExecStatusFD)
	_ = unix.CloseRange(ExecRequestFD, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	request, status := os.NewFile(ExecRequestFD, "request"), json.NewEncoder(os.NewFile(ExecStatusFD, "status"))
	x := &execution{dir: dir}
	in := json.NewDecoder(request)
	err := in.Decode(&x.req)
	if err == nil {
		err = x.start()
	}
	if err != nil {
		_ = status.Encode(ExecStatus{Problem: err.Error()}) // nobody may be listening any more
		return 1
	}
	_ = status.Encode(ExecStatus{Started: true})
	// The command has its own copies; an end of input must not wait for us.
	for fd := range 3 {
		_ = unix.Close(fd)
	}
	go func() {
		_, _ = io.Copy(io.Discard, io.MultiReader(in.Buffered(), request))
		x.kill()
	}()
	code := x.wait()
	x.killing.Lock() // who was the first to be killed must not save the others
	_ = status.Encode(ExecStatus{Ended: true, ExitCode: code})
	return 0
}

type execution struct {
	dir  string
	req  ExecRequest
	spec *Spec
	pid  int // of the command, as the host numbers it

	killing sync.Mutex // held by kill
}

func (x *execution) start() (err error) {
	if x.spec, err = ReadSpec(x.dir); err != nil {
		return err
	}
	if x.spec.Version < execVersion {
		return errors.New("the run was started by an older gateway")
	}
	if len(x.req.Argv) == 0 || x.req.Argv[0] == "" {
		return errors.New("no command is given")
	}
	claim, err := ReadStarted(x.dir)
	if err != nil {
		return err
	}
	spaces, err := findSpaces(claim, x.spec.Groups)
	if err != nil {
		return err
	}
	defer spaces.close()
	if err := limitProcess(x.spec); err != nil {
		return err
	}
	restore := raiseOOMScore()
	defer restore()
	x.pid, err = x.launch(spaces)
	if lerr := x.spec.Groups.leave(); lerr != nil && err == nil {
		x.kill()
		err = fmt.Errorf("leave control groups: %w", lerr)
	}
	return err
}

// launch starts the command from a thread that has entered the sandbox and is
// thrown away afterwards, see [launch].
func (x *execution) launch(spaces *spaces) (int, error) {
	type result struct {
		pid int
		err error
	}
	done := make(chan result)
	var body func()
	body = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			go body()
			select {}
		}
		var r result
		if r.err = spaces.enter(x.spec.Groups); r.err == nil {
			r.pid, r.err = x.run()
		}
		done <- r
	}
	go body()
	r := <-done
	return r.pid, r.err
}

// run gives up every privilege on this thread and runs the command from it.
func (x *execution) run() (int, error) {
	env := x.spec.Env
	if x.spec.BesideEnv != nil {
		env = x.spec.BesideEnv
	}
	if x.req.Terminal {
		env = append(env[:len(env):len(env)], "TERM=xterm-256color")
	}
	argv0, err := lookPath(&Spec{Argv: x.req.Argv, Env: env})
	if err != nil {
		return 0, err
	}
	if err := drop(x.spec.UID); err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(argv0, x.req.Argv, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: x.req.Terminal, Ctty: 0},
	})
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", argv0, err)
	}
	return pid, nil
}

// wait returns the command's exit status once it has ended.
func (x *execution) wait() int {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(x.pid, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 255
		case ws.Exited():
			return ws.ExitStatus()
		default:
			return 128 + int(ws.Signal())
		}
	}
}

// kill ends the command and what it started in its session, and in groups of
// the session: a shell gives each of its jobs one. What has made a session of
// its own belongs to the attempt and ends with it.
func (x *execution) kill() {
	x.killing.Lock()
	defer x.killing.Unlock()
	if x.pid <= 0 {
		return
	}
	// Again as long as there are any: they may have made others meanwhile.
	for range 100 {
		list, err := x.spec.Groups.processes()
		if err != nil { // the attempt is over
			return
		}
		found := false
		for _, pid := range list {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			if session, err := sessionOf(pid); err == nil && session == x.pid {
				found = true
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
			}
			unix.Close(fd)
		}
		if !found {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// sessionOf returns the session of a process.
func sessionOf(pid int) (int, error) {
	b, err := get("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 4 {
		return 0, fmt.Errorf("process %d: its status has %d fields", pid, len(f))
	}
	return strconv.Atoi(f[3])
}

// spaces are the namespaces of an attempt's command.
type spaces struct{ fds []int }

func (s *spaces) close() {
	for _, fd := range s.fds {
		unix.Close(fd)
	}
}

// spaceNames are in the order in which they are entered: the mounts last, for
// control groups are joined by their path on the host.
var spaceNames = []string{"pid", "ipc", "uts", "net", "cgroup", "mnt"}

// findSpaces opens the namespaces of a process of the attempt. The number of
// a process may go to another one at any moment, and entering that one's would
// put the command onto the host: so all is read through one handle on the
// process, and it counts only if it is in the process namespace of the
// runner, and not among the host's mounts.
func findSpaces(claim Started, groups Groups) (*spaces, error) {
	if ticks, err := StartTicks(claim.PID); err != nil || ticks != claim.StartTicks {
		return nil, errors.New("the run is ending")
	}
	inside, err := os.Readlink("/proc/" + strconv.Itoa(claim.PID) + "/ns/pid")
	if err != nil {
		return nil, errors.New("the run is ending")
	}
	// Now the link is known to be the runner's: numbers are not given again
	// to processes as old as it.
	if ticks, err := StartTicks(claim.PID); err != nil || ticks != claim.StartTicks {
		return nil, errors.New("the run is ending")
	}
	host := map[string]string{}
	for _, name := range []string{"pid", "mnt"} {
		if host[name], err = os.Readlink("/proc/self/ns/" + name); err != nil {
			return nil, err
		}
	}
	if inside == host["pid"] {
		return nil, errors.New("the run has no process namespace of its own")
	}
	list, err := groups.processes()
	if err != nil {
		return nil, fmt.Errorf("find the run's processes: %w", err)
	}
	for _, pid := range list {
		if s := openSpaces(pid, inside, host["mnt"]); s != nil {
			return s, nil
		}
	}
	return nil, errors.New("the run has no process to join: it is ending")
}

// openSpaces opens the namespaces of a process, nil if it is not one of the
// attempt's or has ended.
func openSpaces(pid int, inside, hostMounts string) *spaces {
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(proc)
	link := func(name string) string {
		var b [64]byte
		n, err := unix.Readlinkat(proc, name, b[:])
		if err != nil {
			return ""
		}
		return string(b[:n])
	}
	if link("pid") != inside {
		return nil
	}
	if mounts := link("mnt"); mounts == "" || mounts == hostMounts {
		return nil
	}
	s := &spaces{}
	for _, name := range spaceNames {
		fd, err := unix.Openat(proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			s.close()
			return nil
		}
		s.fds = append(s.fds, fd)
	}
	return s
}

// enter takes the calling thread into the groups and the namespaces.
func (s *spaces) enter(groups Groups) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its folder cannot change mounts
		return fmt.Errorf("unshare: %w", err)
	}
	unix.Umask(0o022)
	if err := groups.join(); err != nil {
		return fmt.Errorf("join control groups: %w", err)
	}
	for i, name := range spaceNames {
		if err := unix.Setns(s.fds[i], 0); err != nil {
			return fmt.Errorf("enter the run's %s namespace: %w", name, err)
		}
	}
	if err := unix.Chdir(Dir); err != nil {
		return fmt.Errorf("chdir to %s: %w", Dir, err)
	}
	return nil
}

// processes lists who is in the groups, as the caller's namespace numbers them.
func (g Groups) processes() ([]int, error) {
	b, err := get(filepath.Join(g.dir("pids"), "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var list []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
			list = append(list, pid)
		}
	}
	return list, nil
}
