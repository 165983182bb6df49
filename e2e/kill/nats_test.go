package kill_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/enginetest"
)

// natsEnv names the file with what this program, started again, serves: a NATS
// server that can be killed, stopped and cut off by itself.
const natsEnv = "YUNHE_TEST_NATS"

func TestMain(m *testing.M) {
	if os.Getenv(clockEnv) != "" {
		for range time.Tick(10 * time.Millisecond) {
			fmt.Println(time.Now().Unix())
		}
	}
	if file := os.Getenv(natsEnv); file != "" {
		if err := serveNATS(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// natsServer is one of a cluster.
type natsServer struct {
	Name, Address, Dir, Keys string
	Routes                   []string
}

func serveNATS(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var n natsServer
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	o := &server.Options{ServerName: n.Name, Host: n.Address, Port: 4222, NoSigs: true, JetStream: true, StoreDir: n.Dir, JetStreamMaxStore: 4 << 30,
		MaxPayload: 8 << 20, LogFile: n.Dir + ".log", Cluster: server.ClusterOpts{Name: "yunhe", Host: n.Address, Port: 6222}}
	for _, r := range n.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: r + ":6222"})
	}
	trust, err := bus.LoadTrust(n.Keys)
	if err != nil {
		return err
	}
	if err := trust.Apply(o); err != nil {
		return err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// startNATS starts a cluster of three servers, each on a host of its own from
// the first on, and returns their addresses.
func startNATS(t *testing.T, c *cluster, hosts *enginetest.Hosts, first int, dir, keys string) (nodes []*node, urls string) {
	self, err := os.Executable()
	must(t, err)
	var addresses, all []string
	for i := range 3 {
		addresses = append(addresses, hosts.Host(first+i).Address)
		all = append(all, "nats://"+addresses[i]+":4222")
	}
	for i, a := range addresses {
		name := fmt.Sprint("nats-", i+1)
		text, err := json.Marshal(natsServer{name, a, filepath.Join(dir, name), keys, addresses})
		must(t, err)
		file := filepath.Join(dir, name+".json")
		must(t, os.WriteFile(file, text, 0o600))
		n := &node{name: name, c: c, bin: self, host: hosts.Host(first + i), env: []string{natsEnv + "=" + file}}
		nodes = append(nodes, n)
		must(t, n.start())
		t.Cleanup(func() { must(t, n.prog.Kill()) })
	}
	return nodes, strings.Join(all, ",")
}
