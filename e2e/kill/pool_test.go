package kill_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
)

// poolKills is how often a process of the platform is killed.
const poolKills = 6

// TestPoolKill kills the processes that control the accelerator pool, two on
// PostgreSQL, while slices are asked for and given back: each request has one
// slice, none is lent twice, and a program goes on. Then all that the pool
// consists of is started anew, the node first, and comes to the same state.
func TestPoolKill(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	servers, keys := startBus(t)
	c := startMany(t, ctx, many{groups: [][]string{roles}, copies: 2, database: enginetest.Postgres(t), bus: servers.URL()}, keys, 1)
	p := newPoolWorld(t, ctx, c)

	stop := filepath.Join(c.dir, "stop")
	program := p.program(t, ctx, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done", stop))
	clients, cctx := errgroup.WithContext(ctx)
	over := make(chan struct{})
	for i := range 4 {
		clients.Go(func() error { return p.client(cctx, i, over) })
	}
	for i := range poolKills {
		pause(ctx, 500*time.Millisecond)
		_, err := c.nodes[i%2].killAndRestart(ctx, 300*time.Millisecond)
		must(t, err)
	}
	close(over)
	if err := clients.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	p.settled(t, ctx, "after the kills")
	must(t, os.WriteFile(stop, nil, 0o600))
	<-program.Done()
	if err := program.Stop(); err != nil {
		t.Errorf("the program: %v", err)
	}

	// In any order: the node before the platform, and what was second first.
	must(t, p.node.Kill())
	for _, n := range c.nodes[:2] {
		must(t, n.prog.Kill())
	}
	anew := time.Now()
	p.startNode(t)
	for _, n := range []*node{c.nodes[1], c.nodes[0]} {
		must(t, n.start())
		must(t, n.ready(ctx))
	}
	must(t, p.request(ctx, "last"))
	must(t, c.poll(ctx, time.Minute, "the node is there again, with all that was held", func(ctx context.Context) (bool, error) {
		res, err := p.api.ListSlices(ctx, &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_WAITING}})
		if err != nil || len(res.Slices) > 0 {
			return false, err
		}
		n, err := p.only(ctx)
		return n.GetOnline() && n.LastSeenAt.AsTime().After(anew), err
	}))
	p.settled(t, ctx, "after all was started anew")
	t.Logf("%d requests for slices while processes were killed %d times", len(p.slices), poolKills)
	must(t, p.node.Stop())
	c.stop(t)
}

// poolWorld is a platform's pool with one node, which lends what OpenCL shows here.
type poolWorld struct {
	c      *cluster
	api    poolv1connect.PoolServiceClient
	front  string // where node and programs find the platform, whichever process answers
	env    []string
	node   *enginetest.Program
	joined []string // arguments of the node

	mu       sync.Mutex        // guards the fields below
	slices   map[string]string // by request
	released map[string]bool   // slices
}

func newPoolWorld(t *testing.T, ctx context.Context, c *cluster) *poolWorld {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(c.dir, c.dirOfKey, "admin.key"))
	must(t, err)
	to, err := url.Parse(c.url)
	must(t, err)
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: c.api, ErrorLog: log.New(io.Discard, "", 0)})
	t.Cleanup(front.Close)
	p := &poolWorld{
		c: c, front: front.URL, slices: map[string]string{}, released: map[string]bool{},
		api: poolv1connect.NewPoolServiceClient(&http.Client{Transport: c.api}, c.url, connect.WithInterceptors(bearer(strings.TrimSpace(string(key))))),
		env: []string{"YUNHE_SERVER=" + front.URL, "YUNHE_KEY=" + strings.TrimSpace(string(key))},
	}
	_, err = p.api.SetPoolGroup(ctx, &poolv1.SetPoolGroupRequest{GroupId: "team", Group: &poolv1.PoolGroup{GroupId: "team", TenantIds: []string{"default"}}})
	must(t, err)
	token, err := p.api.CreateNodeToken(ctx, &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	p.joined = []string{"--join", front.URL, "--token", token.Token, "--name", "n1"}
	p.startNode(t)
	p.joined = nil // once is enough
	must(t, c.poll(ctx, time.Minute, "the node lends", func(ctx context.Context) (bool, error) {
		n, err := p.only(ctx)
		return n.GetOnline() && len(n.Devices) > 0, err
	}))
	return p
}

func (p *poolWorld) startNode(t *testing.T) {
	t.Helper()
	var err error
	p.node, err = enginetest.StartProgram("pool-node", p.c.nodes[0].bin, p.c.dir, p.env, append([]string{"pool", "node", "--data", filepath.Join(p.c.dir, "pool"),
		"--listen", pool.DefaultAddress(filepath.Join(p.c.dir, "pool")), "--listen", "tcp:127.0.0.1:0"}, p.joined...)...)
	must(t, err)
	node := p.node
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the pool node says\n%s", node.Tail())
		}
		_ = node.Kill() // unless it has ended
	})
}

// only returns the pool's node.
func (p *poolWorld) only(ctx context.Context) (*poolv1.PoolNode, error) {
	res, err := p.api.ListPoolNodes(ctx, &poolv1.ListPoolNodesRequest{})
	if err != nil || len(res.Nodes) != 1 {
		return nil, fmt.Errorf("%d nodes, want one: %w", len(res.GetNodes()), err)
	}
	return res.Nodes[0], nil
}

// program runs a shell's script on a slice, and returns when it has one.
func (p *poolWorld) program(t *testing.T, ctx context.Context, script string) *enginetest.Program {
	t.Helper()
	prog, err := enginetest.StartProgram("pool-program", p.c.nodes[0].bin, p.c.dir, p.env, "pool", "run", "--group", "team", "--compute", "20", "--memory", "16MiB", "--", "sh", "-c", script)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program says\n%s", prog.Tail())
		}
		_ = prog.Kill() // unless it has ended
	})
	must(t, p.c.poll(ctx, time.Minute, "the program runs", func(ctx context.Context) (bool, error) {
		res, err := p.api.ListSlices(ctx, &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_RUNNING}})
		return len(res.GetSlices()) == 1, err
	}))
	return prog
}

// client asks for slices until over; it gives most of them back.
func (p *poolWorld) client(ctx context.Context, i int, over chan struct{}) error {
	for n := 0; ; n++ {
		select {
		case <-over:
			return nil
		default:
		}
		request := fmt.Sprintf("client%d-%d", i, n)
		if err := p.request(ctx, request); err != nil {
			return err
		}
		if n%100 == 0 {
			continue // it is held
		}
		if err := p.release(ctx, request); err != nil {
			return err
		}
	}
}

// request asks for a slice until there is an answer, and once more for it.
func (p *poolWorld) request(ctx context.Context, request string) error {
	for range 2 {
		err := p.c.poll(ctx, time.Minute, "an answer to the request "+request, func(ctx context.Context) (bool, error) {
			x, err := p.api.RequestSlice(ctx, &poolv1.RequestSliceRequest{RequestId: request, Name: request, GroupId: "team", ComputePercent: 5, MemoryMib: 16, Fixed: true})
			if err != nil {
				return false, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if was := p.slices[request]; was != "" && was != x.SliceId {
				return true, fmt.Errorf("the request %s has the slices %s and %s", request, was, x.SliceId)
			}
			p.slices[request] = x.SliceId
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *poolWorld) release(ctx context.Context, request string) error {
	p.mu.Lock()
	id := p.slices[request]
	p.released[id] = true
	p.mu.Unlock()
	return p.c.poll(ctx, time.Minute, id+" is given back", func(ctx context.Context) (bool, error) {
		x, err := p.api.ReleaseSlice(ctx, &poolv1.ReleaseSliceRequest{SliceId: id})
		return x.GetState() == poolv1.Slice_STATE_ENDED, err
	})
}

// settled checks that each request has one slice, that the slices that were given
// back have ended and the others not, and that the node has lent what these have.
func (p *poolWorld) settled(t *testing.T, ctx context.Context, when string) {
	t.Helper()
	byRequest, lent := map[string]string{}, int64(0)
	for token := ""; ; {
		res, err := p.api.ListSlices(ctx, &poolv1.ListSlicesRequest{PageSize: 1000, PageToken: token, States: []poolv1.Slice_State{
			poolv1.Slice_STATE_WAITING, poolv1.Slice_STATE_ASSIGNED, poolv1.Slice_STATE_RUNNING, poolv1.Slice_STATE_ENDED,
		}})
		must(t, err)
		for _, x := range res.Slices {
			if x.State == poolv1.Slice_STATE_ASSIGNED || x.State == poolv1.Slice_STATE_RUNNING {
				lent += x.ComputePercent
			}
			if p.slices[x.Name] == "" {
				continue // the program's
			}
			if other := byRequest[x.Name]; other != "" {
				t.Errorf("%s, the request %s has the slices %s and %s", when, x.Name, other, x.SliceId)
			}
			byRequest[x.Name] = x.SliceId
			if p.released[x.SliceId] != (x.State == poolv1.Slice_STATE_ENDED) {
				t.Errorf("%s, the slice %s is %s; given back: %v", when, x.SliceId, x.State, p.released[x.SliceId])
			}
		}
		if token = res.NextPageToken; token == "" {
			break
		}
	}
	for request, id := range p.slices {
		if byRequest[request] != id {
			t.Errorf("%s, the request %s was answered with the slice %s and has %q", when, request, id, byRequest[request])
		}
	}
	n, err := p.only(ctx)
	must(t, err)
	if d := n.Devices[0]; d.ComputeLentPercent != lent || lent > 100 || lent == 0 {
		t.Errorf("%s, the slices have %d%% and the device has lent %d%%", when, lent, d.ComputeLentPercent)
	}
}
