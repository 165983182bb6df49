package kill_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats-server/v2/server"

	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/enginetest"
)

// gateways of a cluster.
const gateways = 3

// price in fen per hour: one fen for each tenth of a second, so that every
// run costs something.
const price = 36000

// layout says how a cluster is cut.
type layout struct {
	database string // "": SQLite
	cpus     int    // of each gateway
	// split has the scheduler run in a process of its own, beside one that
	// answers users and gateways; on PostgreSQL only.
	split bool
}

// centerSuffix makes names of centers unique: control groups have them, and
// other tests may run here too.
func centerSuffix() string {
	suffix := strings.ToLower(core.NewID("x")[12:])
	return suffix[len(suffix)-8:]
}

// cluster is a platform and its gateways, each a process.
type cluster struct {
	layout
	dir, url string
	nodes    []*node // the platform, then the gateways, then the scheduler if it is split
	centers  []string
	api      *balancer // of several processes with the role api; nil: there is one
	dirOfKey string    // folder of the process that has the first key

	jobs     jobsv1connect.JobServiceClient
	registry registryv1connect.RegistryServiceClient
	adapters adaptersv1connect.AdapterServiceClient
	metering meteringv1connect.MeteringServiceClient
	identity identityv1connect.IdentityServiceClient
}

// node is one process that can be killed and comes back.
type node struct {
	name  string
	c     *cluster
	bin   string
	env   []string
	args  []string
	host  *enginetest.Host // nil: this machine as it is
	url   string           // of one of several processes of the platform, and
	roles []string         // what it does

	mu    sync.Mutex // held while the process changes
	prog  *enginetest.Program
	since time.Time // when it was last started
}

func startCluster(t *testing.T, ctx context.Context, cut layout) *cluster {
	bin, err := enginetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	c := &cluster{layout: cut, dir: t.TempDir(), dirOfKey: "platform"}
	if *flagKeep != "" {
		c.dir = filepath.Join(*flagKeep, filepath.Base(t.Name()))
	}
	must(t, os.MkdirAll(c.dir, 0o700))
	api, err := enginetest.FreePort()
	must(t, err)
	c.url = fmt.Sprintf("http://127.0.0.1:%d", api)
	buses, roles := c.bus(t), "[]"
	if c.split {
		roles = "[api, reach, watch]"
	}
	platform := c.serve(t, bin, "platform", api, buses, roles)
	c.nodes = []*node{platform}
	t.Cleanup(func() { c.end(t) })
	must(t, platform.start())
	_, err = c.ready(ctx)
	must(t, err)
	c.clients(t)
	c.startGateways(t, ctx, many{bin: bin})
	if c.split {
		n := c.serve(t, bin, "scheduler", 0, buses, "[control]")
		c.nodes = append(c.nodes, n)
		must(t, n.start())
	}
	return c
}

// bus returns the setting of the bus: in the platform's process, or one apart
// that several share.
func (c *cluster) bus(t *testing.T) string {
	if !c.split {
		port, err := enginetest.FreePort()
		must(t, err)
		return fmt.Sprintf("{listen: \"127.0.0.1:%d\"}", port)
	}
	keys := filepath.Join(c.dir, "bus")
	must(t, os.MkdirAll(keys, 0o700))
	trust, err := bus.LoadTrust(keys)
	must(t, err)
	servers := enginetest.NATSCluster(t, 1, func(_ int, o *server.Options) {
		o.MaxPayload = 8 << 20
		err = trust.Apply(o)
	})
	must(t, err)
	return fmt.Sprintf("{url: %q, keys: %q}", servers.URL(), keys)
}

// serve writes the configuration of a process of the platform.
func (c *cluster) serve(t *testing.T, bin, name string, port int, buses, roles string) *node {
	file := filepath.Join(c.dir, name+".yaml")
	config := fmt.Sprintf("data: %s\nroles: %s\nlisten: {address: \"127.0.0.1:%d\"}\nbus: %s\ndatabase: {url: %q}\nobjects: {url: %q}\n",
		filepath.Join(c.dir, name), roles, port, buses, c.database, filepath.Join(c.dir, "objects"))
	must(t, os.WriteFile(file, []byte(config), 0o600))
	return &node{name: name, c: c, bin: bin, args: []string{"serve", "--config", file}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) clients(t *testing.T) {
	key, err := os.ReadFile(filepath.Join(c.dir, c.dirOfKey, "admin.key"))
	must(t, err)
	auth := connect.WithInterceptors(bearer(strings.TrimSpace(string(key))))
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}}
	if c.api != nil {
		c.api.next = hc.Transport
		hc = &http.Client{Transport: c.api}
	}
	t.Cleanup(hc.CloseIdleConnections)
	c.jobs = jobsv1connect.NewJobServiceClient(hc, c.url, auth)
	c.registry = registryv1connect.NewRegistryServiceClient(hc, c.url, auth)
	c.adapters = adaptersv1connect.NewAdapterServiceClient(hc, c.url, auth)
	c.metering = meteringv1connect.NewMeteringServiceClient(hc, c.url, auth)
	c.identity = identityv1connect.NewIdentityServiceClient(hc, c.url, auth)
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

func (n *node) start() (err error) {
	n.since = time.Now()
	n.prog, err = enginetest.StartProgramOn(n.host, n.name, n.bin, n.c.dir, n.env, n.args...)
	return err
}

// killAndRestart kills the process, leaves it dead for a while and starts it
// again. For the platform it also waits until that is ready and says how long
// that took.
func (n *node) killAndRestart(ctx context.Context, dead time.Duration) (back time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.prog.Done():
		return 0, fmt.Errorf("%s ended by itself; its log ends:\n%s", n.name, n.prog.Tail())
	default:
	}
	if err := n.prog.Kill(); err != nil {
		return 0, err
	}
	pause(ctx, dead)
	if err := n.start(); err != nil {
		return 0, err
	}
	if n.url != "" {
		err := n.ready(ctx)
		return time.Since(n.since), err
	}
	if len(n.c.nodes) == 0 || n != n.c.nodes[0] {
		return 0, nil
	}
	return n.c.ready(ctx)
}

// ready waits until the platform is and says how long that took.
func (c *cluster) ready(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	err := c.poll(ctx, time.Minute, "platform ready", func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/readyz", nil)
		if err != nil {
			return false, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
	return time.Since(begin), err
}

// poll asks another process until it says yes; it has no other way to tell us.
func (c *cluster) poll(ctx context.Context, limit time.Duration, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := ask(ctx)
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not in %s: %s (%v)", limit, what, err)
		case <-tick.C:
		}
	}
}

// stall is how long nothing may happen at the end: longer than every retry
// and lease of the platform together.
const stall = 90 * time.Second

// await waits until all n jobs have ended.
func (c *cluster) await(ctx context.Context, n int64) error {
	ended := int64(-1)
	for {
		before := ended
		err := c.poll(ctx, stall, fmt.Sprintf("more than %d of %d jobs ended", before, n), func(ctx context.Context) (bool, error) {
			res, err := c.jobs.GetJobStats(ctx, &jobsv1.GetJobStatsRequest{})
			s := res.GetJobsByState()
			ended = s["succeeded"] + s["failed"] + s["stopped"]
			return ended > before, err
		})
		if err != nil {
			return errors.Join(err, c.open(ctx))
		}
		if ended >= n {
			return nil
		}
	}
}

// open says which jobs have not ended.
func (c *cluster) open(ctx context.Context) error {
	states := []jobsv1.State{jobsv1.State_STATE_QUEUED, jobsv1.State_STATE_SCHEDULING, jobsv1.State_STATE_DISPATCHING, jobsv1.State_STATE_RUNNING, jobsv1.State_STATE_STOPPING}
	res, err := c.jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{PageSize: 10, States: states})
	for _, j := range res.GetJobs() {
		full, gerr := c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: j.JobId})
		err = errors.Join(err, gerr, fmt.Errorf("open: %s %s %s %v", j.JobId, j.Spec.Name, j.State, full.GetReplicas()))
	}
	return err
}

// tails shows the end of every process's log.
func (c *cluster) tails() string {
	var b strings.Builder
	for _, n := range c.nodes {
		if n.prog != nil {
			fmt.Fprintf(&b, "--- %s\n%s\n", n.name, n.prog.Tail())
		}
	}
	return b.String()
}

// stop ends all processes in order; each must end well, and none may ever have
// logged an error.
func (c *cluster) stop(t *testing.T) {
	for _, n := range c.nodes {
		if err := n.prog.Stop(); err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile(n.prog.Log())
		must(t, err)
		for l := range strings.Lines(string(b)) {
			if strings.Contains(l, "level=ERROR") || strings.Contains(l, "panic") || strings.Contains(l, "fatal error") {
				t.Errorf("%s says: %s", n.name, strings.TrimSpace(l))
			}
		}
	}
}

// end kills what still runs when a test has failed, and removes the empty
// control groups of the gateways.
func (c *cluster) end(t *testing.T) {
	for _, n := range c.nodes {
		if n.prog != nil {
			must(t, n.prog.Kill())
		}
	}
	for _, id := range c.centers {
		for _, pattern := range []string{"/sys/fs/cgroup/*/yunhe/", "/sys/fs/cgroup/yunhe/"} {
			dirs, _ := filepath.Glob(pattern + id + "-*") // the pattern is well formed
			for _, d := range dirs {
				_ = os.Remove(d) // busy only if the test failed while runs ran
			}
		}
	}
}
