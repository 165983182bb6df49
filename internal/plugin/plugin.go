// Package plugin starts adapter processes, keeps them running and talks to
// them over a private socket; or talks to one that runs elsewhere.
//
//	        start            Describe answers          process ends
//	idle ─────────▶ starting ─────────────────▶ up ─────────────────▶ down ─┐
//	                   ▲                                                    │ pause, doubled
//	                   └────────────────────────────────────────────────────┘ up to 10 s
//
// A plug-in is stateless by contract, so it may be killed and started at any
// time; callers see fault.Unavailable meanwhile and ask again. It ends with
// this process, however that ends: its standard input closes.
package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/sdk/adapter"
)

// Config names a plug-in: a command to start, or the address of one that runs.
type Config struct {
	// Name of the plug-in in lists and logs.
	Name string `yaml:"name"`
	// Command and its arguments.
	Command []string `yaml:"command"`
	// Endpoint, http://host:port, instead of Command.
	Endpoint string `yaml:"endpoint"`
	// Env is added to the plug-in's environment, as NAME=value.
	Env []string `yaml:"env"`
	// OnDemand plug-ins have no instance until one is made through the API.
	OnDemand bool `yaml:"on_demand"`
}

// Instance says which center a process of a plug-in serves, and how; the zero
// value leaves that to the plug-in.
type Instance struct {
	// Name is unique among the instances of all plug-ins.
	Name string
	// Center is told to the plug-in (adapter.CenterEnv).
	Center string
	// Config is told to the plug-in by a file (adapter.ConfigEnv).
	Config []byte
}

// Check records what is wrong with the configuration under path.
func (c Config) Check(k *core.Check, path string) {
	k.ID(path+".name", c.Name)
	if (len(c.Command) == 0) == (c.Endpoint == "") {
		k.Add(path, "must have either a command or an endpoint")
	}
	if c.OnDemand && c.Endpoint != "" {
		k.Add(path+".on_demand", "needs a command: what runs elsewhere is there already")
	}
}

// Process is a plug-in. Its methods are safe for concurrent use.
type Process struct {
	cfg    Config
	inst   Instance
	log    *slog.Logger
	client adapterv1connect.DriverServiceClient
	http   *http.Client
	socket string
	file   string // of its configuration, "" if there is none

	mu   sync.Mutex // guards the fields below
	pid  int
	stop context.CancelFunc // ends the process that runs, nil if none does
}

// New returns a plug-in that is not started yet; dir keeps its socket.
func New(cfg Config, inst Instance, dir string, log *slog.Logger) (*Process, error) {
	if inst.Name == "" {
		inst.Name = cfg.Name
	}
	p := &Process{cfg: cfg, inst: inst, log: log.With("component", "plugin", "plugin", cfg.Name, "instance", inst.Name)}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	base := cfg.Endpoint
	if base == "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "cannot make the folder of plug-ins %s", dir)
		}
		// A socket's path may have 107 bytes only.
		if inst.Config != nil {
			p.file = filepath.Join(dir, inst.Name+".json")
		}
		if p.socket = filepath.Join(dir, inst.Name+".sock"); len(p.socket) > 107 {
			return nil, fault.New(fault.Invalid, "the data folder's path is too long for a socket: %q has %d bytes, at most 107 fit", p.socket, len(p.socket))
		}
		base = "http://plugin"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
		}
	}
	p.http = &http.Client{Transport: tr}
	p.client = adapterv1connect.NewDriverServiceClient(p.http, base)
	return p, nil
}

// Restart ends the process that runs, if one does; Run starts the next.
// Connections to one that runs elsewhere are made anew.
func (p *Process) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
	p.http.CloseIdleConnections()
}

// Name of the plug-in.
func (p *Process) Name() string { return p.cfg.Name }

// Instance is what the process serves.
func (p *Process) Instance() Instance { return p.inst }

// Client calls the plug-in. Calls fail while it is not up.
func (p *Process) Client() adapterv1connect.DriverServiceClient { return p.client }

// PID is the process's number, 0 while there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Run keeps the plug-in running until ctx ends. For one that runs elsewhere
// there is nothing to do.
func (p *Process) Run(ctx context.Context) error {
	if p.socket == "" {
		<-ctx.Done()
		return nil
	}
	const shortest, longest = 200 * time.Millisecond, 10 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		start := time.Now()
		err := p.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errRestart) {
			continue
		}
		if time.Since(start) > time.Minute {
			pause = shortest
		}
		p.log.Warn("plug-in ended, starting it again", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
	return nil
}

// errRestart ends a process that is to be started anew at once.
var errRestart = errors.New("restart")

func (p *Process) once(ctx context.Context) (err error) {
	pctx, stop := context.WithCancel(ctx)
	defer func() {
		if pctx.Err() != nil && ctx.Err() == nil {
			err = errRestart
		}
		stop()
		p.setPID(0, nil)
	}()
	if p.file != "" {
		if err := os.WriteFile(p.file, p.inst.Config, 0o600); err != nil {
			return fmt.Errorf("configuration of the plug-in: %w", err)
		}
		defer func() { _ = os.Remove(p.file) }() // written anew at each start
	}
	ctx = pctx
	cmd := exec.CommandContext(ctx, p.cfg.Command[0], p.cfg.Command[1:]...)
	cmd.Env = append(append(os.Environ(), p.cfg.Env...), adapter.SocketEnv+"="+p.socket)
	if p.inst.Center != "" {
		cmd.Env = append(cmd.Env, adapter.CenterEnv+"="+p.inst.Center)
	}
	if p.file != "" {
		cmd.Env = append(cmd.Env, adapter.ConfigEnv+"="+p.file)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	// If this process is killed, the plug-in is told by its closed input; the
	// signal is for one that does not look. It is tied to this thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("input of the plug-in: %w", err)
	}
	defer func() { _ = in.Close() }() // the plug-in may be gone
	out, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("output of the plug-in: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	p.setPID(cmd.Process.Pid, stop)
	p.log.Info("plug-in started", "pid", cmd.Process.Pid)
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		p.log.Info("plug-in says", "line", sc.Text())
	}
	return cmd.Wait()
}

func (p *Process) setPID(pid int, stop context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.stop = pid, stop
}
