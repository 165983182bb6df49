package kill_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/enginetest"
)

// roles of the platform's processes.
var roles = []string{"api", "control", "reach", "watch"}

// many says of which processes a platform on PostgreSQL and a NATS cluster
// consists: copies of each group of roles.
type many struct {
	groups   [][]string
	copies   int
	database string
	bus      string            // addresses of the servers
	hosts    *enginetest.Hosts // each process has one of its own; nil: all are here
	objects  string            // folder; "": one of the platform's
	// gatewayHosts and gatewayDirs are those of the gateways; nil: this machine,
	// and folders of the platform's.
	gatewayHosts []*enginetest.Host
	gatewayDirs  []string
	bin          string // "": the one that is built
}

// planned is how `yunhe availability plan` groups the roles as copies.
func planned(t *testing.T, bin string, copies int) [][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "roles.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "modules:\n  - name: platform\n    submodules: [{name: %s}]\ninstances: %d\ntarget: 0.9995\n",
		strings.Join(roles, ", availability: 0.97}, {name: ")+", availability: 0.97", copies), 0o600))
	out, err := exec.CommandContext(t.Context(), bin, "availability", "plan", "-f", file, "-o", "json").Output()
	must(t, err)
	var plan struct {
		Reachable bool
		Modules   []struct{ Microservices [][]string }
	}
	must(t, json.Unmarshal(out, &plan))
	if !plan.Reachable || len(plan.Modules) != 1 {
		t.Fatalf("plan %s", out)
	}
	return plan.Modules[0].Microservices
}

// startBus starts three NATS servers, and returns the folder of the keys that they trust.
func startBus(t *testing.T) (servers *enginetest.NATS, keys string) {
	t.Helper()
	keys = filepath.Join(t.TempDir(), "bus")
	must(t, os.MkdirAll(keys, 0o700))
	trust, err := bus.LoadTrust(keys)
	must(t, err)
	servers = enginetest.NATSCluster(t, 3, func(_ int, o *server.Options) {
		o.MaxPayload = 8 << 20
		err = trust.Apply(o)
	})
	must(t, err)
	return servers, keys
}

// startMany starts the processes of m, and gateways.
func startMany(t *testing.T, ctx context.Context, m many, keys string, cpus int) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	var err error
	if m.bin == "" {
		m.bin, err = enginetest.Binary()
		must(t, err)
	}
	c := &cluster{layout: layout{database: m.database, cpus: cpus}, dir: t.TempDir(), api: &balancer{}}
	if *flagKeep != "" {
		c.dir = filepath.Join(*flagKeep, strings.ReplaceAll(t.Name(), "/", "-"))
		must(t, os.MkdirAll(c.dir, 0o700))
	}
	if m.objects == "" {
		m.objects = filepath.Join(c.dir, "objects")
	}
	t.Cleanup(func() { c.end(t) })
	for i := range m.copies {
		for _, group := range m.groups {
			n := &node{name: fmt.Sprintf("%s-%d", strings.Join(group, "-"), i+1), c: c, bin: m.bin, roles: group}
			address := "127.0.0.1:0"
			if m.hosts != nil {
				n.host = m.hosts.Host(len(c.nodes))
				address = n.host.Address + ":8180"
			} else {
				port, err := enginetest.FreePort()
				must(t, err)
				address = fmt.Sprintf("127.0.0.1:%d", port)
			}
			n.url = "http://" + address
			file := filepath.Join(c.dir, n.name+".yaml")
			must(t, os.WriteFile(file, fmt.Appendf(nil, "data: %s\nroles: [%s]\nlisten: {address: %q, open_status: true}\nbus: {url: %q, keys: %q, replicas: 3}\ndatabase: {url: %q}\nobjects: {url: %q}\n",
				filepath.Join(c.dir, n.name), strings.Join(group, ", "), address, m.bus, keys, m.database, m.objects), 0o600))
			n.args = []string{"serve", "--config", file}
			c.nodes = append(c.nodes, n)
			if n.has("api") {
				c.api.add(n.url)
			}
		}
	}
	c.dirOfKey = c.nodes[0].name
	for i, n := range c.nodes {
		must(t, n.start())
		if i == 0 { // it makes the tables and the first key
			must(t, n.ready(ctx))
		}
	}
	for _, n := range c.nodes {
		must(t, n.ready(ctx))
	}
	c.url = c.api.urls[0]
	c.clients(t)
	c.startGateways(t, ctx, m)
	return c
}

// startGateways makes the specification of the jobs and starts the gateways.
func (c *cluster) startGateways(t *testing.T, ctx context.Context, m many) {
	t.Helper()
	_, err := c.registry.CreateSpec(ctx, &registryv1.CreateSpecRequest{Spec: &registryv1.Spec{ResourceSpecId: spec, ResourceSpecName: spec,
		ResourceQuantity: map[string]string{"cpu": "100m", "memory": "32Mi"}, ServiceType: "batch", Price: price}})
	must(t, err)
	suffix := centerSuffix()
	for i := range gateways {
		id := fmt.Sprintf("k%d%s", i, suffix)
		token, err := c.adapters.CreateJoinToken(ctx, &adaptersv1.CreateJoinTokenRequest{AiCenterId: id})
		must(t, err)
		file := filepath.Join(c.dir, id+".yaml")
		must(t, os.WriteFile(file, fmt.Appendf(nil, "id: %s\nname: Center %d\nregion: here\nsecurity_grade: 3\nperformance: 1000\ncpu: \"%d\"\nmemory: 4Gi\nprices: {%s: %d}\n",
			id, i, c.cpus, spec, price), 0o600))
		data := filepath.Join(c.dir, id)
		if m.gatewayDirs != nil {
			data = m.gatewayDirs[i]
		}
		g := &node{name: "gateway-" + id, c: c, bin: m.bin, env: []string{"YUNHE_JOIN_TOKEN=" + token.Token},
			args: []string{"gateway", "--server", c.url, "--data", data, "--center", file}}
		if m.gatewayHosts != nil {
			g.host = m.gatewayHosts[i]
		}
		c.nodes, c.centers = append(c.nodes, g), append(c.centers, id)
		must(t, g.start())
	}
	must(t, c.poll(ctx, time.Minute, "all gateways connected", func(ctx context.Context) (bool, error) {
		res, err := c.adapters.ListGateways(ctx, &adaptersv1.ListGatewaysRequest{})
		n := 0
		for _, g := range res.GetGateways() {
			if g.Connected {
				n++
			}
		}
		return n == gateways, err
	}))
}

func (n *node) has(role string) bool {
	for _, r := range n.roles {
		if r == role {
			return true
		}
	}
	return false
}

// ready waits until the process says that it is.
func (n *node) ready(ctx context.Context) error {
	return n.c.poll(ctx, time.Minute, n.name+" ready", func(ctx context.Context) (bool, error) {
		select {
		case <-n.prog.Done():
			return false, fmt.Errorf("it ended: %s", n.prog.Tail())
		default:
		}
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/readyz", nil)
		if err != nil {
			return false, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
}

// balancer sends each request to the next process of several, and to another if
// that cannot be reached; it passes over one that did not answer for as long as
// load balancers do.
type balancer struct {
	next http.RoundTripper

	mu   sync.Mutex // guards the fields below
	urls []string
	turn int
	out  map[string]time.Time
}

// passOver is how long.
const passOver = time.Second

func (b *balancer) add(url string) { b.urls = append(b.urls, url) }

// pick returns the next one that is not passed over, or of those that are the
// one that failed longest ago.
func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first string
	for range b.urls {
		b.turn++
		u := b.urls[b.turn%len(b.urls)]
		if time.Now().After(b.out[u]) {
			return u
		}
		if first == "" || b.out[u].Before(b.out[first]) {
			first = u
		}
	}
	return first
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	for range b.urls[1:] {
		res, err := b.try(req)
		var wire *net.OpError
		if !errors.As(err, &wire) || wire.Op != "dial" || req.GetBody == nil || req.Context().Err() != nil {
			return res, err
		}
		// Nothing was sent.
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = body
	}
	return b.try(req)
}

func (b *balancer) try(req *http.Request) (*http.Response, error) {
	to := b.pick()
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = u.Host, u.Host
	res, err := b.next.RoundTrip(req)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.out == nil {
			b.out = map[string]time.Time{}
		}
		b.out[to] = time.Now().Add(passOver)
	}
	return res, err
}
