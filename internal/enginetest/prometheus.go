package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// PrometheusServer is a running Prometheus server.
type PrometheusServer struct {
	// URL is its base, without a slash at the end. Remote write goes to
	// URL + "/api/v1/write", queries to URL + "/api/v1/query".
	URL string

	dir  string
	proc *process
}

// StartPrometheus starts a server with the remote-write receiver and the
// lifecycle API enabled. config is the text of its prometheus.yml; with "" it
// scrapes nothing. The caller must Close it.
func StartPrometheus(ctx context.Context, config string) (*PrometheusServer, error) {
	program, ok := find("prometheus")
	if !ok {
		return nil, &MissingError{Engine: "Prometheus", Need: "no prometheus found", Fix: fixTest}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := newDir("prometheus", nil)
	if err != nil {
		return nil, err
	}
	s := &PrometheusServer{dir: dir, URL: "http://127.0.0.1:" + strconv.Itoa(port)}
	if err := s.boot(ctx, program, port, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *PrometheusServer) boot(ctx context.Context, program string, port int, config string) error {
	file := filepath.Join(s.dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return fmt.Errorf("write Prometheus configuration: %w", err)
	}
	proc, err := start(command{
		name: "prometheus", path: program, dir: s.dir,
		args: []string{
			"--config.file=" + file, "--web.listen-address=127.0.0.1:" + strconv.Itoa(port),
			"--storage.tsdb.path=" + filepath.Join(s.dir, "data"), "--web.enable-remote-write-receiver", "--web.enable-lifecycle",
		},
	})
	if err != nil {
		return err
	}
	s.proc = proc
	return proc.ready(ctx, func(ctx context.Context) error { return httpGet(ctx, s.URL+"/-/ready", http.StatusOK) })
}

// Close stops the server and removes its samples. Safe to call again.
func (s *PrometheusServer) Close() error {
	var err error
	if s.proc != nil {
		err = s.proc.terminate()
	}
	return errors.Join(err, removeDir(s.dir))
}

// Prometheus starts a server that scrapes nothing for a test and returns its
// base URL.
func Prometheus(tb testing.TB) string {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	s, err := StartPrometheus(ctx, "")
	check(tb, err)
	closeAtEnd(tb, s)
	return s.URL
}
