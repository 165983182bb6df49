package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
)

// startLimit bounds the start of a process.
const startLimit = 30 * time.Second

// platform is a running platform, with a gateway if one was joined.
type platform struct {
	dir, url string
	binary   string
	program  *enginetest.Program
	gateway  *enginetest.Program
	jobs     jobsv1connect.JobServiceClient
	adapters adaptersv1connect.AdapterServiceClient
	client   *http.Client
}

// startPlatform starts `yunhe` with the arguments in a new folder and waits
// until it is ready; took is how long that was.
func startPlatform(ctx context.Context, clients int, args ...string) (p *platform, took time.Duration, err error) {
	p = &platform{}
	if p.binary, err = enginetest.Binary(); err != nil {
		return nil, 0, err
	}
	if p.dir, err = os.MkdirTemp("", "yunhe-submit-"); err != nil {
		return nil, 0, fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	begin := time.Now()
	args = append(args, "--data", filepath.Join(p.dir, "platform"), "--listen", "127.0.0.1:0", "--log-level", "warn")
	if p.program, err = enginetest.StartProgram("platform", p.binary, p.dir, nil, args...); err != nil {
		return nil, 0, err
	}
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients + 4}}
	err = p.poll(ctx, p.program, func(ctx context.Context) (bool, error) {
		url, ok, err := p.program.Line("Console and API: ")
		if !ok || err != nil {
			return false, err
		}
		p.url = url
		return p.ready(ctx)
	})
	if err != nil {
		return p, 0, err
	}
	took = time.Since(begin)
	key, err := os.ReadFile(filepath.Join(p.dir, "platform", "admin.key"))
	if err != nil {
		return p, 0, fmt.Errorf("read the administrator's key: %w", err)
	}
	auth := connect.WithInterceptors(bearer(strings.TrimSpace(string(key))))
	p.jobs = jobsv1connect.NewJobServiceClient(p.client, p.url, auth)
	p.adapters = adaptersv1connect.NewAdapterServiceClient(p.client, p.url, auth)
	return p, took, nil
}

func (p *platform) ready(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", nil)
	if err != nil {
		return false, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return false, nil // not yet
	}
	return res.StatusCode == http.StatusOK, res.Body.Close()
}

// poll asks until yes, for as long as the process lives and startLimit.
func (p *platform) poll(ctx context.Context, prog *enginetest.Program, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ask(ctx); ok || err != nil {
			return err
		}
		select {
		case <-prog.Done():
			return fmt.Errorf("it ended; its log ends:\n%s", prog.Tail())
		case <-ctx.Done():
			return fmt.Errorf("not ready in %s; its log ends:\n%s", startLimit, prog.Tail())
		case <-tick.C:
		}
	}
}

// join starts a gateway with so many CPUs and waits until it is connected.
func (p *platform) join(ctx context.Context, cpus int) error {
	id := fmt.Sprintf("submit-%d", os.Getpid()) // names control groups of this machine
	token, err := p.adapters.CreateJoinToken(ctx, &adaptersv1.CreateJoinTokenRequest{AiCenterId: id})
	if err != nil {
		return fmt.Errorf("make join token: %w", err)
	}
	file := filepath.Join(p.dir, "center.yaml")
	center := fmt.Sprintf("id: %s\nname: Center\nregion: here\nperformance: 1000\ncpu: \"%d\"\nmemory: 64Gi\nprices: {small: 100}\n", id, cpus)
	if err := os.WriteFile(file, []byte(center), 0o600); err != nil {
		return fmt.Errorf("describe center: %w", err)
	}
	p.gateway, err = enginetest.StartProgram("gateway", p.binary, p.dir, []string{"YUNHE_JOIN_TOKEN=" + token.Token},
		"gateway", "--server", p.url, "--data", filepath.Join(p.dir, "gateway"), "--center", file, "--log-level", "warn")
	if err != nil {
		return err
	}
	return p.poll(ctx, p.gateway, func(ctx context.Context) (bool, error) {
		res, err := p.adapters.ListGateways(ctx, &adaptersv1.ListGatewaysRequest{})
		return err == nil && len(res.Gateways) == 1 && res.Gateways[0].Connected, err
	})
}

func (p *platform) close() error {
	var err error
	for _, prog := range []*enginetest.Program{p.gateway, p.program} {
		if prog != nil {
			err = errors.Join(err, prog.Stop())
		}
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// bearer adds a key to every call.
type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, s)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
