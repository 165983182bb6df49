package enginetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// S3Config is what a client needs to reach an S3 server.
type S3Config struct {
	Endpoint  string // host:port, without TLS
	URL       string // the same with its scheme
	Region    string
	AccessKey string
	SecretKey string
}

// S3Server is a running S3 server (versitygw on a directory).
type S3Server struct {
	S3Config

	dir  string
	proc *process
}

// StartS3 starts an empty server with random keys. It has no buckets: the
// caller creates them, and must Close the server.
func StartS3(ctx context.Context) (*S3Server, error) {
	program, ok := find("versitygw", builtDir())
	if !ok {
		return nil, &MissingError{Engine: "S3", Need: "no versitygw found", Fix: fixTest}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := newDir("s3", nil)
	if err != nil {
		return nil, err
	}
	endpoint := "127.0.0.1:" + strconv.Itoa(port)
	s := &S3Server{dir: dir, S3Config: S3Config{
		Endpoint: endpoint, URL: "http://" + endpoint, Region: "us-east-1", AccessKey: rand.Text(), SecretKey: rand.Text(),
	}}
	if err := s.boot(ctx, program); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *S3Server) boot(ctx context.Context, program string) error {
	buckets := filepath.Join(s.dir, "buckets")
	if err := os.Mkdir(buckets, 0o755); err != nil {
		return fmt.Errorf("make the S3 server's directory: %w", err)
	}
	proc, err := start(command{
		name: "versitygw", path: program, dir: s.dir,
		args: []string{"--port", s.Endpoint, "--region", s.Region, "--keep-alive", "--quiet", "posix", buckets},
		env:  []string{"HOME=" + s.dir, "ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey},
	})
	if err != nil {
		return err
	}
	s.proc = proc
	// Without a signature the server refuses, but in its own words.
	return proc.ready(ctx, func(ctx context.Context) error { return httpGet(ctx, s.URL, http.StatusForbidden) })
}

// Close stops the server and removes its objects. Safe to call again.
func (s *S3Server) Close() error {
	var err error
	if s.proc != nil {
		err = s.proc.terminate()
	}
	return errors.Join(err, removeDir(s.dir))
}

// S3 starts an empty S3 server for a test.
func S3(tb testing.TB) S3Config {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	s, err := StartS3(ctx)
	check(tb, err)
	closeAtEnd(tb, s)
	return s.S3Config
}
