package adaptertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	"yunhe.dev/yunhe/sdk/adapter"
)

// Instance is a driver that runs. Stop and Kill may be called more than once.
type Instance struct {
	// HTTP and URL reach it. The platform speaks the Connect protocol with
	// protocol buffers over HTTP/2 without encryption.
	HTTP *http.Client
	URL  string
	// Stop ends it in good order and Kill as kill -9 does; both wait for it.
	Stop, Kill func()
}

// Client calls the instance.
func (i *Instance) Client(opts ...connect.ClientOption) adapterv1connect.DriverServiceClient {
	return adapterv1connect.NewDriverServiceClient(i.HTTP, i.URL, opts...)
}

// dial returns an HTTP client of what listens on a socket.
func dial(socket string) (client *http.Client, closeIdle func()) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return &http.Client{Transport: tr}, tr.CloseIdleConnections
}

// socketDir makes a folder whose path is short: a socket's may have 107 bytes.
func socketDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "yd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a socket at most
	return dir
}

// Program is a driver in a program of its own, started as the platform starts
// it: a private socket, a standard input that closes when the platform goes.
type Program struct {
	// Command and its arguments.
	Command []string
	// Center is the ID of the center to serve; "" leaves that to the driver.
	Center string
	// Config is the driver's configuration, written as JSON into a file that
	// the driver is told of; nil: none.
	Config any
	// Env is added to this process's environment, as NAME=value.
	Env []string
}

// Start starts the program and waits until it answers. It has ended at the
// latest when t has.
func (p Program) Start(t testing.TB) *Instance {
	t.Helper()
	dir := socketDir(t)
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env = append(append(os.Environ(), p.Env...), adapter.SocketEnv+"="+socket)
	if p.Center != "" {
		cmd.Env = append(cmd.Env, adapter.CenterEnv+"="+p.Center)
	}
	if p.Config != nil {
		b, err := json.Marshal(p.Config)
		if err != nil {
			t.Fatalf("the driver's configuration: %v", err)
		}
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, adapter.ConfigEnv+"="+path)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &lines{t: t}
	cmd.Stderr, cmd.Stdout = out, out
	cmd.WaitDelay = 5 * time.Second // what the driver started may keep its output open
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("the driver does not start: %v", err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is judged by who ended it
		close(gone)
	}()
	client, closeIdle := dial(socket)
	i := &Instance{HTTP: client, URL: "http://driver"}
	end := func(ask func()) func() {
		return sync.OnceFunc(func() {
			defer closeIdle()
			ask()
			select {
			case <-gone:
			case <-time.After(10 * time.Second):
				t.Errorf("the driver runs on 10 s after its standard input was closed: it must end then, for Yunhe is gone")
				_ = cmd.Process.Kill()
				<-gone
			}
		})
	}
	i.Stop = end(func() { _ = in.Close() })
	i.Kill = end(func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		i.Kill()
		out.detach()
	})
	for deadline := time.Now().Add(30 * time.Second); ; {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close() // it listens, that was all
			return i
		}
		select {
		case <-gone:
			t.Fatalf("the driver ended before it listened on the socket named by %s; what it said is above", adapter.SocketEnv)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the driver does not listen on the socket named by %s within 30 s: %v", adapter.SocketEnv, err)
		}
	}
}

// lines copies what a driver says into the test's log.
type lines struct {
	mu sync.Mutex // guards t
	t  testing.TB
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Logf("driver says: %s", b)
	}
	return len(b), nil
}

func (l *lines) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = nil
}

const selfEnv = "YUNHE_ADAPTERTEST_DRIVER"

// Self is this test program as a driver; its TestMain must call [Main].
func Self() Program {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return Program{Command: []string{exe}, Env: []string{selfEnv + "=1"}}
}

// Main is what the TestMain of a package that uses [Self] calls: it runs the
// tests, or in a process started by Self the driver, which serve builds and
// hands to [adapter.Serve]. It does not return.
func Main(m *testing.M, serve func(ctx context.Context) error) {
	if os.Getenv(selfEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve serves a driver inside the test. Kill only breaks its connections, so
// prefer a process of its own ([Program], [Self]): that alone shows what a
// driver knows after kill -9. If d is an [io.Closer] it is closed at the end.
func Serve(t testing.TB, d adapter.Driver) *Instance {
	t.Helper()
	socket := filepath.Join(socketDir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- adapter.ServeListener(ctx, l, d) }()
	client, closeIdle := dial(socket)
	end := sync.OnceFunc(func() {
		defer closeIdle()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the driver's server: %v", err)
		}
		if c, ok := d.(io.Closer); ok {
			_ = c.Close() // as a process's end would
		}
	})
	t.Cleanup(end)
	return &Instance{HTTP: client, URL: "http://driver", Stop: end, Kill: end}
}
