package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// process is a handle on a runner. It stays true when the process ends and
// its number is used again, and works for processes that are not children.
type process struct {
	fd *os.File // pidfd
}

// checkHost returns an Unavailable fault if this process may not isolate.
func checkHost() error {
	if os.Geteuid() != 0 {
		return fault.New(fault.Unavailable, "isolating jobs needs root; the gateway runs as user %d", os.Geteuid())
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&hdr, &have[0]); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the gateway's capabilities cannot be read")
	}
	var missing []string
	for _, c := range []struct {
		name string
		bit  uint
	}{{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_SETUID", unix.CAP_SETUID}, {"CAP_SETGID", unix.CAP_SETGID},
		{"CAP_SETPCAP", unix.CAP_SETPCAP}, {"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_KILL", unix.CAP_KILL},
		{"CAP_MKNOD", unix.CAP_MKNOD}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}} {
		if have[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.Unavailable, "isolating jobs needs %s, which the gateway lacks", strings.Join(missing, ", "))
	}
	return nil
}

func deviceNumber(st os.FileInfo) (major, minor uint32) {
	n := uint64(st.Sys().(*syscall.Stat_t).Rdev)
	return unix.Major(n), unix.Minor(n)
}

// spawn starts a runner as the first process of a process namespace and in a
// session of its own: it outlives us. ready is handed over, and owners, unless it
// is nil, shared.
func spawn(argv []string, env []string, null, errs, ready, owners *os.File) (*process, error) {
	fd, files := -1, []uintptr{null.Fd(), null.Fd(), errs.Fd(), ready.Fd()}
	if owners != nil {
		files = append(files, owners.Fd())
	}
	_, _, err := syscall.StartProcess(argv[0], argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID, PidFD: &fd},
	})
	if err != nil {
		return nil, fmt.Errorf("start runner %s: %w", argv[0], err)
	}
	return newProcess(fd)
}

// find returns the running process a claim names; os.ErrNotExist if it is
// gone.
func find(s runner.Started) (*process, error) {
	if s.PID <= 0 {
		return nil, fs.ErrNotExist
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err == unix.ESRCH {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", s.PID, err)
	}
	// The handle is on whoever has the number now. If that one started when
	// the runner did, it is the runner.
	ticks, err := runner.StartTicks(s.PID)
	if err != nil || ticks != s.StartTicks {
		unix.Close(fd)
		if err == nil {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	return newProcess(fd)
}

func newProcess(fd int) (*process, error) {
	if fd < 0 {
		return nil, errors.New("the kernel gives no handles on processes; Linux 5.4 or later is needed")
	}
	// Non-blocking puts it under the Go poller: waiting takes no thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make process handle pollable: %w", err)
	}
	return &process{os.NewFile(uintptr(fd), "pidfd")}, nil
}

// wait returns when the process has ended, or os.ErrClosed after close.
func (p *process) wait() error {
	c, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	return c.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		if err != nil || n == 0 {
			return false
		}
		// If it is our child it is a zombie until now; if not, this fails.
		_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil)
		return true
	})
}

// terminate sends SIGTERM, which makes a runner stop its attempt. It is not
// an error if the process has ended.
func (p *process) terminate() error {
	c, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), unix.SIGTERM, nil, 0) })
	if err != nil {
		return err
	}
	if serr == unix.ESRCH {
		return nil
	}
	return serr
}

func (p *process) close() { p.fd.Close() }

// tryLock locks f against other processes, if none has it locked.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// monotonic is the clock on which pauses are noted.
func monotonic() time.Duration { return runner.Monotonic() }

// ownSession keeps signals of the gateway's terminal from a program.
var ownSession = &syscall.SysProcAttr{Setsid: true}

// openTerminal makes a pseudo terminal: our side, and the one a command of the
// user works on. The command is handed its side open and cannot open another:
// it does not see the host's folder of terminals.
func openTerminal(uid uint32) (ours, side *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	ours = os.NewFile(uintptr(fd), "terminal") // non-blocking: under Go's poller
	fail := func(err error) (*os.File, *os.File, error) {
		ours.Close()
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	peer, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return fail(e)
	}
	if err := unix.Fchown(int(peer), int(uid), int(uid)); err != nil {
		unix.Close(int(peer))
		return fail(err)
	}
	return ours, os.NewFile(peer, "terminal"), nil
}

func resizeTerminal(f *os.File, columns, rows uint16) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	err = c.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
	return errors.Join(err, ierr)
}
