package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// command says how to run one engine process.
type command struct {
	name  string // names the process in errors and its log file
	path  string
	args  []string
	dir   string   // working directory; the log lies here too unless logs is set
	logs  string   // directory of the log file
	env   []string // nil: this process's environment
	user  *syscall.Credential
	clone uintptr        // namespaces to create, as in syscall.SysProcAttr
	host  *Host          // it runs on; nil: this machine as it is
	stdin io.Reader      // nil: nothing
	stop  syscall.Signal // asks it to end; SIGTERM if zero
	death syscall.Signal // what it gets when this process dies; SIGKILL if zero
}

// process is a running engine process: a direct child in the foreground, in a
// process group of its own so that a terminal's Ctrl-C does not reach it
// before its owner has closed it.
type process struct {
	command
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// spawner runs every fork of this package on one thread that never ends. The
// kernel sends the parent-death signal when the *thread* that forked dies, and
// the Go scheduler ends idle threads as it likes.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// onSpawner runs f on the spawner's thread and waits for it.
func onSpawner(f func() error) error {
	result := make(chan error, 1)
	spawner() <- func() { result <- f() }
	return <-result
}

// start runs c. The caller must stop the process.
func start(c command) (*process, error) {
	if c.logs == "" {
		c.logs = c.dir
	}
	p := &process{command: c, log: filepath.Join(c.logs, c.name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", c.name, err)
	}
	defer log.Close() // the child has its own copy
	if p.death == 0 {
		p.death = syscall.SIGKILL
	}
	if p.command.stop == 0 {
		p.command.stop = syscall.SIGTERM
	}
	p.cmd = exec.Command(c.path, c.args...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdin = c.dir, c.env, c.stdin
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Go sets the parent-death signal after it has changed the user, which
	// would clear it. A wrapper such as setpriv would lose it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: p.death, Credential: c.user, Cloneflags: c.clone}
	if err := onSpawner(func() error { return c.host.enter(p.cmd.Start) }); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stopGrace is how long an engine may take to end when asked; PostgreSQL under
// load writes a checkpoint first.
const stopGrace = 15 * time.Second

// terminate asks the process to end and waits until it has; it kills the whole
// group after stopGrace. Safe to call again.
func (p *process) terminate() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(p.command.stop); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
		return errors.Join(fmt.Errorf("%s did not end within %s of %s and was killed", p.name, stopGrace, p.command.stop), p.kill())
	}
}

// kill ends the process and its group at once, as a crash would.
func (p *process) kill() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// probeEvery is the pause between two looks at an engine that is starting.
const probeEvery = 20 * time.Millisecond

// ready waits until probe succeeds. It fails when the process ends, or when
// ctx does, with the last answer of probe and the tail of the log.
func (p *process) ready(ctx context.Context, probe func(context.Context) error) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		tryCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		last := probe(tryCtx)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while starting (%v); its log ends:\n%s", p.name, p.err, tail(p.log))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%v); its log ends:\n%s", p.name, ctx.Err(), last, tail(p.log))
		case <-tick.C:
		}
	}
}

// runTo runs a program that prepares an engine to its end and returns an error
// with its output if it fails.
func runTo(ctx context.Context, c command) error {
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.env, c.stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: c.user}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := onSpawner(func() error { return c.host.enter(cmd.Start) }); err != nil {
		return fmt.Errorf("run %s: %w", c.name, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("run %s: %w: %s", c.name, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// tail returns the end of a log file, at most 4 KiB and from a line's start.
func tail(path string) string {
	const size = 4 << 10
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(log unreadable: %v)", err)
	}
	if len(b) > size {
		b = b[len(b)-size:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	if len(b) == 0 {
		return "(the log is empty)"
	}
	return string(b)
}

// dirPrefix marks the directories of this package; the janitor removes nothing
// without it.
const dirPrefix = "yunhe-engine-"

// newDir makes the directory of one engine, owned by user if it is not nil. It
// must be removed with removeDir; the janitor does so if this process cannot.
func newDir(engine string, user *syscall.Credential) (string, error) {
	return newDirIn("", engine, user)
}

// memory is a folder whose files are in memory, if there is one with room for the
// data of tests, otherwise "": the folder for temporary files.
func memory() string {
	const dir, room = "/dev/shm", 8 << 30
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}

func newDirIn(parent, engine string, user *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp(parent, dirPrefix+engine+"-")
	if err != nil {
		return "", fmt.Errorf("make directory of %s: %w", engine, err)
	}
	if err := tellJanitor(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if user != nil {
		if err := os.Chown(dir, int(user.Uid), int(user.Gid)); err != nil {
			return "", errors.Join(fmt.Errorf("give %s to user %d: %w", dir, user.Uid, err), os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// removeDir removes an engine's directory after its processes have ended.
func removeDir(dir string) error {
	if !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return fmt.Errorf("refuse to remove %s: not a directory of enginetest", dir)
	}
	return os.RemoveAll(dir)
}

// janitorScript reads directories, one a line, until the pipe from this process
// closes, which happens however the process ends. It then removes them; engines
// that are still dying may write a little longer, so it tries for 10 s.
const janitorScript = `trap '' HUP INT TERM
while IFS= read -r dir; do
	case "$dir" in */` + dirPrefix + `*) set -- "$@" "$dir" ;; esac
done
n=0
until rm -rf -- "$@" 2>/dev/null || [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; done`

// janitor starts the shell that cleans up after this process. The write end of
// the pipe is never closed: the kernel does that.
var janitor = sync.OnceValues(func() (io.Writer, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open pipe to the janitor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	go func() { _ = cmd.Wait() }() // it outlives this process; nothing to learn
	return pipe, nil
})

func tellJanitor(dir string) error {
	w, err := janitor()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, dir+"\n"); err != nil {
		return fmt.Errorf("register %s with the janitor: %w", dir, err)
	}
	return nil
}

// loopback reaches engines directly, whatever proxy the environment names.
var loopback = &http.Client{Transport: &http.Transport{Proxy: nil}}

// httpGet is a readiness probe: nil if url answers with the status.
func httpGet(ctx context.Context, url string, status int) error {
	return get(ctx, loopback, url, "", status)
}

// get is httpGet with a client of the caller's and, unless it is "", a bearer
// token.
func get(ctx context.Context, client *http.Client, url, token string, status int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("read answer of %s: %w", url, err)
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s answers %s, want %d", url, resp.Status, status)
	}
	return nil
}
