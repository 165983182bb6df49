package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSConfig says how to run NATS servers with JetStream.
type NATSConfig struct {
	// Servers is how many; more than one form a cluster. At least 1.
	Servers int
	// Modify, if not nil, changes the options of each server before it first
	// starts: operators, accounts, leaf nodes, limits. It is called with the
	// server's index, in order.
	Modify func(i int, o *server.Options)
}

// NATS is a set of running nats-servers inside this process, on loopback TCP.
// Its methods may be used concurrently, except that one server must not be
// stopped and started at once.
type NATS struct {
	dir     string
	opts    []*server.Options
	servers []*server.Server
}

// StartNATS starts cfg.Servers servers and waits until JetStream answers: in a
// cluster, until there is a meta leader that knows all servers, because a
// request sent earlier is lost without an answer. The caller must Close it.
func StartNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	if cfg.Servers < 1 {
		return nil, fmt.Errorf("start NATS: Servers must be at least 1, got %d", cfg.Servers)
	}
	ports, err := freePorts(2 * cfg.Servers)
	if err != nil {
		return nil, err
	}
	dir, err := newDir("nats", nil)
	if err != nil {
		return nil, err
	}
	n := &NATS{dir: dir, servers: make([]*server.Server, cfg.Servers)}
	for i := range cfg.Servers {
		o := natsOptions(dir, i, ports)
		if cfg.Modify != nil {
			cfg.Modify(i, o)
		}
		n.opts = append(n.opts, o)
	}
	for i := range n.opts {
		if err := n.launch(i); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	if err := n.Ready(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// natsOptions are the options of server i. The first half of ports are for
// clients, the second for routes.
func natsOptions(dir string, i int, ports []int) *server.Options {
	count := len(ports) / 2
	name := "n" + strconv.Itoa(i+1)
	o := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: ports[i], NoSigs: true,
		LogFile:   filepath.Join(dir, name+".log"),
		JetStream: true, StoreDir: filepath.Join(dir, name), JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 8 << 30,
	}
	if count == 1 {
		return o
	}
	o.Cluster = server.ClusterOpts{Name: "enginetest", Host: "127.0.0.1", Port: ports[count+i]}
	for j := range count {
		if j != i {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(ports[count+j])})
		}
	}
	return o
}

func (n *NATS) launch(i int) error {
	s, err := server.NewServer(n.opts[i].Clone())
	if err != nil {
		return fmt.Errorf("configure NATS server %s: %w", n.opts[i].ServerName, err)
	}
	s.ConfigureLogger()
	s.Start()
	n.servers[i] = s
	return nil
}

// Ready waits until every running server takes clients and JetStream answers.
func (n *NATS) Ready(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		why := n.notReady()
		if why == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("NATS is not ready: %w (%s); the log of %s ends:\n%s", ctx.Err(), why, n.opts[0].ServerName, tail(n.opts[0].LogFile))
		case <-tick.C:
		}
	}
}

// notReady says what the servers still lack, "" if nothing.
func (n *NATS) notReady() string {
	var running, leaders int
	for i, s := range n.servers {
		if s == nil {
			continue
		}
		running++
		name := n.opts[i].ServerName
		if !s.ReadyForConnections(time.Millisecond) {
			return name + " does not take clients"
		}
		if !n.opts[i].JetStream || len(n.opts) == 1 {
			leaders++
			continue
		}
		if !s.JetStreamIsCurrent() {
			return name + " has not caught up with the meta group"
		}
		if s.JetStreamIsLeader() {
			leaders++
			if peers := len(s.JetStreamClusterPeers()); peers < len(n.opts) {
				return fmt.Sprintf("the meta leader %s knows %d of %d servers", name, peers, len(n.opts))
			}
		}
	}
	if running > 0 && leaders == 0 {
		return "there is no meta leader"
	}
	return ""
}

// URL is the address of all servers, comma-separated, for a client that shall
// survive the loss of one.
func (n *NATS) URL() string { return strings.Join(n.URLs(), ",") }

// URLs are the addresses of the servers, by index, stopped ones included.
func (n *NATS) URLs() []string {
	out := make([]string, len(n.opts))
	for i, o := range n.opts {
		out[i] = "nats://127.0.0.1:" + strconv.Itoa(o.Port)
	}
	return out
}

// Server returns the running server of that index, nil if it is stopped.
func (n *NATS) Server(i int) *server.Server { return n.servers[i] }

// Leader returns the index of the server that leads a stream, -1 if none does
// now. The account is "$G" unless accounts were configured. A single server
// leads all there is.
func (n *NATS) Leader(account, stream string) int {
	for i, s := range n.servers {
		if s != nil && (len(n.servers) == 1 || s.JetStreamIsStreamLeader(account, stream)) {
			return i
		}
	}
	return -1
}

// Stop ends the server of that index and keeps its data for Start. Its clients
// see the connection close; it hands no leadership over first.
func (n *NATS) Stop(i int) {
	if s := n.servers[i]; s != nil {
		s.Shutdown()
		s.WaitForShutdown()
		n.servers[i] = nil
	}
}

// Start starts a stopped server again, on its port and data, and waits for it.
func (n *NATS) Start(ctx context.Context, i int) error {
	if n.servers[i] != nil {
		return fmt.Errorf("start NATS server %s: it runs", n.opts[i].ServerName)
	}
	if err := n.launch(i); err != nil {
		return err
	}
	return n.Ready(ctx)
}

// Close stops all servers and removes their data. Safe to call again.
func (n *NATS) Close() error {
	for i := range n.servers {
		n.Stop(i)
	}
	return removeDir(n.dir)
}

// NATSCluster starts n servers with JetStream for a test: a cluster if n > 1.
// modify may be nil; see NATSConfig.
func NATSCluster(tb testing.TB, n int, modify func(i int, o *server.Options)) *NATS {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	cluster, err := StartNATS(ctx, NATSConfig{Servers: n, Modify: modify})
	check(tb, err)
	closeAtEnd(tb, cluster)
	return cluster
}
