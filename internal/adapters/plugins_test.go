package adapters_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/sdk/adapter"
)

// fakeConfig is the configuration of the fake driver.
type fakeConfig struct {
	adapter.Declared
	Password string `json:"password" jsonschema:"a secret"`
	Trouble  string `json:"trouble,omitempty" jsonschema:"what is wrong with the center"`
}

// fakeDriver is no driver of anything: what it accepts has run well at once.
type fakeDriver struct {
	adapter.Unimplemented
	center  string
	declare adapter.Declared
	secret  string
	version string
	nodes   int
	notice  string // of its inventory

	trouble  adapter.Board[string] // under the key "": what Watch says instead
	statuses adapter.Board[*adapterv1.Status]
}

func newFake(center string) *fakeDriver {
	return &fakeDriver{center: center, version: "1.0", nodes: 2, declare: adapter.Declared{Region: "r", Prices: map[string]int64{"small": 10}}}
}

func (d *fakeDriver) Describe(context.Context, *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	schema, err := adapter.Schema[fakeConfig]()
	return &adapterv1.DescribeResponse{Name: "fake", Version: d.version, Parts: []adapterv1.Part{adapterv1.Part_PART_RESOURCE, adapterv1.Part_PART_JOB}, ConfigSchema: schema}, err
}

func (d *fakeDriver) inventory() *adapterv1.Inventory {
	inv := d.declare.Inventory(d.center)
	inv.Capacity, inv.Images = map[string]int64{"cpu": 8000, "memory": 1 << 40}, []string{"host"}
	inv.Notice = d.notice
	if d.secret != "" {
		inv.Labels = map[string]string{"secret-length": fmt.Sprint(len(d.secret))}
	}
	return inv
}

func (d *fakeDriver) Watch(ctx context.Context, _ *adapterv1.WatchRequest, out *connect.ServerStream[adapterv1.WatchResponse]) error {
	whole := false
	send := func(set map[string]string, _ []string) error {
		if why := set[""]; why != "" {
			return out.Send(&adapterv1.WatchResponse{Trouble: why})
		}
		if whole {
			return out.Send(&adapterv1.WatchResponse{})
		}
		whole = true
		nodes := make([]*adapterv1.Node, d.nodes)
		for i := range nodes {
			nodes[i] = &adapterv1.Node{Name: fmt.Sprintf("n%03d", i), State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "amd64", OperatingSystem: "linux",
				Capacity: map[string]int64{"cpu": 64000, "memory": 1 << 39, "gpu": 8}, Allocatable: map[string]int64{"cpu": 64000, "memory": 1 << 39, "gpu": 8},
				Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 8, MemoryBytes: 80 << 30, Resource: "gpu"}}}
		}
		// In two pieces, as a big center sends it.
		if err := out.Send(&adapterv1.WatchResponse{Inventory: d.inventory(), Nodes: nodes[:d.nodes/2], More: true}); err != nil {
			return err
		}
		return out.Send(&adapterv1.WatchResponse{Nodes: nodes[d.nodes/2:]})
	}
	go func() {
		for ctx.Err() == nil { // at least every three seconds
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				why, _ := d.trouble.Get("")
				d.trouble.Set("", why)
			}
		}
	}()
	return d.trouble.Watch(ctx, send)
}

func (d *fakeDriver) Apply(_ context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	for _, a := range r.Attempts {
		if _, ok := d.statuses.Get(a.AttemptId); !ok {
			now := time.Now().UnixMicro()
			d.statuses.Set(a.AttemptId, &adapterv1.Status{AttemptId: a.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, StartedAt: now, EndedAt: now, Reason: "completed", LogInline: true})
		}
	}
	return &adapterv1.ApplyResponse{}, nil
}

func (d *fakeDriver) Remove(_ context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	for _, id := range r.Forget {
		d.statuses.Delete(id)
	}
	return &adapterv1.RemoveResponse{}, nil
}

func (d *fakeDriver) Observe(ctx context.Context, _ *adapterv1.ObserveRequest, out *connect.ServerStream[adapterv1.ObserveResponse]) error {
	return d.statuses.Watch(ctx, func(set map[string]*adapterv1.Status, _ []string) error {
		m := &adapterv1.ObserveResponse{}
		for _, st := range set {
			m.Statuses = append(m.Statuses, st)
		}
		return out.Send(m)
	})
}

// asDriver makes this test's program a fake driver that the platform starts.
const asDriver = "YUNHE_TEST_FAKE_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asMany) != "" {
		serveMany()
		return
	}
	if os.Getenv(asDriver) == "" {
		os.Exit(m.Run())
	}
	var cfg fakeConfig
	if err := adapter.Config(&cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d := newFake(adapter.Center("none"))
	d.declare, d.secret, d.version = cfg.Declared, cfg.Password, os.Getenv(asDriver)
	if cfg.Prices == nil {
		d.declare.Prices = map[string]int64{"small": 10}
	}
	if cfg.Trouble != "" {
		d.trouble.Set("", cfg.Trouble)
	}
	if err := adapter.Serve(context.Background(), d); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// served answers for a driver at an address of its own until stop is called.
func served(t *testing.T, d adapter.Driver) (url string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := adapter.ServeListener(ctx, l, d); err != nil {
			t.Errorf("driver: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// register registers a plug-in for the test.
func register(t *testing.T, a *apptest.App, name string, urls ...string) {
	t.Helper()
	if _, err := a.Admin.Adapters.SetPlugin(t.Context(), &adaptersv1.SetPluginRequest{Name: name, Endpoints: urls}); err != nil {
		t.Fatalf("register %s: %v", name, err)
	}
}

func get(t *testing.T, a *apptest.App, name string) *adaptersv1.Plugin {
	t.Helper()
	p, err := a.Admin.Adapters.GetPlugin(t.Context(), &adaptersv1.GetPluginRequest{Name: name})
	if err != nil {
		t.Fatalf("plug-in %s: %v", name, err)
	}
	return p
}

// states returns the states of a plug-in's instances, sorted.
func states(p *adaptersv1.Plugin) string {
	var out []string
	for _, in := range p.List {
		out = append(out, in.State)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func until(t *testing.T, a *apptest.App, name, want string) *adaptersv1.Plugin {
	t.Helper()
	var p *adaptersv1.Plugin
	defer func() {
		if t.Failed() {
			t.Logf("plug-in %s: %v", name, p)
		}
	}()
	apptest.Until(t, fmt.Sprintf("the instances of %s are %q", name, want), func() bool { p = get(t, a, name); return states(p) == want })
	return p
}

func status(t *testing.T, a *apptest.App, center string) registryv1.CenterStatus {
	t.Helper()
	c, err := a.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: center})
	if err != nil {
		t.Fatal(err)
	}
	return c.Status
}

// succeed runs a job at a center to its end.
func succeed(t *testing.T, a *apptest.App, center string) {
	t.Helper()
	j := apptest.Job("plugged", 2)
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{center}}
	a.Admin.AwaitState(t, a.Admin.Submit(t, j), jobsv1.State_STATE_SUCCEEDED)
}

func command(version string, onDemand bool) plugin.Config {
	return plugin.Config{Name: "made", Command: []string{os.Args[0]}, Env: []string{asDriver + "=" + version}, OnDemand: onDemand}
}

// declared waits for a plug-in that is configured: a loop declares it a moment
// after the start.
func declared(t *testing.T, a *apptest.App, name string) {
	t.Helper()
	apptest.Until(t, name+" is declared", func() bool {
		_, err := a.Admin.Adapters.GetPlugin(t.Context(), &adaptersv1.GetPluginRequest{Name: name})
		return err == nil
	})
}

func TestPlugins(t *testing.T) {
	t.Parallel()
	for _, pg := range []bool{false, true} {
		t.Run(map[bool]string{false: "sqlite", true: "postgres"}[pg], func(t *testing.T) {
			t.Parallel()
			a := apptest.Start(t, apptest.Options{Postgres: pg, Config: func(c *app.Config) {
				c.Adapters.Plugins = []plugin.Config{command("7", true)}
			}})
			declared(t, a, "made")
			for _, c := range []struct {
				name string
				f    func(*testing.T, *apptest.App)
			}{
				{"one that runs elsewhere", testRegistered},
				{"one that hangs delays no other", testHung},
				{"a center in trouble", testTrouble},
				{"another takes over", testStandby},
				{"one that lies about its center", testLies},
				{"a log that comes slowly", testSlowLog},
				{"instances are made, changed and ended", testMade},
				{"what is wrong is refused", testPluginRefused},
			} {
				t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
			}
		})
	}
}

func testRegistered(t *testing.T, a *apptest.App) {
	url, stop := served(t, newFake("p-remote"))
	register(t, a, "remote", url)
	p := until(t, a, "remote", "up")
	if p.Version != "1.0" || !slices.Equal(p.Parts, []string{"job", "resource"}) || p.State != "up" || p.Instances != 1 || p.Source != adaptersv1.PluginSource_PLUGIN_SOURCE_REGISTERED ||
		!strings.Contains(p.ConfigSchema, `"password"`) || p.List[0].AiCenterId != "p-remote" || p.List[0].Version != "1.0" || p.List[0].Endpoint != url {
		t.Errorf("plug-in is %v", p)
	}
	succeed(t, a, "p-remote")
	nodes, err := a.Admin.Registry.ListNodes(t.Context(), &registryv1.ListNodesRequest{AiCenterId: "p-remote"})
	if err != nil || len(nodes.Nodes) != 2 {
		t.Errorf("nodes: %v, %v, want both pieces", nodes, err)
	}
	stop() // it goes down, and comes back at another address with another version
	until(t, a, "remote", "down")
	d := newFake("p-remote")
	d.version = "1.1"
	again, _ := served(t, d)
	register(t, a, "remote", again)
	if p := until(t, a, "remote", "up"); p.Version != "1.1" {
		t.Errorf("version %q after the upgrade", p.Version)
	}
	succeed(t, a, "p-remote")
	if _, err := a.Admin.Adapters.DeletePlugin(t.Context(), &adaptersv1.DeletePluginRequest{Name: "remote"}); err != nil {
		t.Fatal(err)
	}
	if s := status(t, a, "p-remote"); s != registryv1.CenterStatus_CENTER_STATUS_UNAVAILABLE {
		t.Errorf("the center of a deleted plug-in is %v", s)
	}
}

// hung accepts every call and answers none.
type hung struct {
	*fakeDriver
	called chan struct{}
}

func (h hung) Describe(ctx context.Context, _ *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	select {
	case h.called <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// silent serves its center well and then falls silent for ever.
type silent struct{ *fakeDriver }

func (s silent) Watch(ctx context.Context, _ *adapterv1.WatchRequest, out *connect.ServerStream[adapterv1.WatchResponse]) error {
	if err := out.Send(&adapterv1.WatchResponse{Inventory: s.inventory()}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (s silent) Apply(ctx context.Context, _ *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func testHung(t *testing.T, a *apptest.App) {
	h := hung{newFake("p-hung"), make(chan struct{}, 1)}
	one, _ := served(t, h)
	two, _ := served(t, silent{newFake("p-silent")})
	three, _ := served(t, newFake("p-well"))
	register(t, a, "mixed", one, two, three)
	<-h.called // it hangs already
	apptest.Until(t, "both others are reached", func() bool { return strings.Contains(states(get(t, a, "mixed")), "up up") })
	j := apptest.Job("silent", 1)
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{"p-silent"}}
	id := a.Admin.Submit(t, j)
	a.Admin.Await(t, id, "it is placed at the silent center", func(j *jobsv1.Job) bool { return j.PlacedAt != nil })
	start := time.Now()
	succeed(t, a, "p-well")
	if took := time.Since(start); took > 10*time.Second { // a call to one that hangs takes longer
		t.Errorf("a job beside a plug-in that hangs took %s", took)
	}
	apptest.Until(t, "the silent one is down and says why", func() bool {
		for _, in := range get(t, a, "mixed").List {
			if in.AiCenterId == "p-silent" && in.State == adapters.Down {
				return strings.Contains(in.Message, "silent for")
			}
		}
		return false
	})
	if p := get(t, a, "mixed"); p.State != adapters.Down {
		t.Errorf("the state of the plug-in is %q, want that of its worst instance", p.State)
	}
}

func testTrouble(t *testing.T, a *apptest.App) {
	d := newFake("p-trouble")
	d.notice = "its clock is wrong"
	d.trouble.Set("", "the token has expired: make a new one")
	url, _ := served(t, d)
	register(t, a, "troubled", url)
	p := until(t, a, "troubled", "trouble")
	if p.List[0].Message != "the token has expired: make a new one" || p.State != adapters.Trouble {
		t.Errorf("instance is %v", p.List[0])
	}
	d.trouble.Set("", "")
	if p := until(t, a, "troubled", "up"); p.List[0].Message != d.notice {
		t.Errorf("instance is %v, want what the center's inventory notes", p.List[0])
	}
	succeed(t, a, "p-trouble")
	d.trouble.Set("", "it does not answer\x00")
	if p := until(t, a, "troubled", "trouble"); p.List[0].Message == "" {
		t.Errorf("instance is %v", p.List[0])
	}
	apptest.Until(t, "the center is unknown", func() bool { return status(t, a, "p-trouble") == registryv1.CenterStatus_CENTER_STATUS_UNKNOWN })
	d.trouble.Set("", "")
	apptest.Until(t, "the center is available", func() bool { return status(t, a, "p-trouble") == registryv1.CenterStatus_CENTER_STATUS_AVAILABLE })
	succeed(t, a, "p-trouble")
}

func testStandby(t *testing.T, a *apptest.App) {
	type serving struct {
		url  string
		stop func()
	}
	var both []serving
	for range 2 {
		url, stop := served(t, newFake("p-twice"))
		both = append(both, serving{url, stop})
	}
	register(t, a, "twice", both[0].url, both[1].url)
	p := until(t, a, "twice", "standby up")
	succeed(t, a, "p-twice")
	for _, in := range p.List {
		for _, b := range both {
			if in.State == adapters.Up && in.Endpoint == b.url {
				b.stop()
			}
		}
	}
	until(t, a, "twice", "down up")
	succeed(t, a, "p-twice")
	for _, in := range get(t, a, "twice").List {
		if in.State == adapters.Up { // only the one that serves stays
			register(t, a, "twice", in.Endpoint)
		}
	}
	if p := until(t, a, "twice", "up"); p.Instances != 1 {
		t.Errorf("plug-in is %v", p)
	}
	if s := status(t, a, "p-twice"); s != registryv1.CenterStatus_CENTER_STATUS_AVAILABLE {
		t.Errorf("the center is %v after the other instance was taken away", s)
	}
}

// liar changes its mind about which center it serves, and discovers only when asked.
type liar struct {
	*fakeDriver
	n chan string
}

func (l liar) Watch(context.Context, *adapterv1.WatchRequest, *connect.ServerStream[adapterv1.WatchResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New("it cannot be watched"))
}

func (l liar) Discover(context.Context, *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	inv := l.inventory()
	select {
	case inv.AiCenterId = <-l.n:
	default:
	}
	return &adapterv1.DiscoverResponse{Inventory: inv}, nil
}

func testLies(t *testing.T, a *apptest.App) {
	l := liar{newFake("p-asked"), make(chan string, 100)}
	url, _ := served(t, l)
	register(t, a, "asked", url)
	until(t, a, "asked", "up")
	succeed(t, a, "p-asked")
	for range cap(l.n) {
		l.n <- "p-other"
		l.n <- "p-asked"
		if len(l.n) > cap(l.n)-2 {
			break
		}
	}
	p := until(t, a, "asked", "down")
	if !strings.Contains(p.List[0].Message, `"p-other"`) {
		t.Errorf("instance is %v", p.List[0])
	}
}

// slow has a log of which it gives a byte at every third call.
type slow struct {
	*fakeDriver
	calls *atomic.Int64
}

const slowText = "slow\n"

func (s slow) Apply(_ context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	for _, a := range r.Attempts {
		now := time.Now().UnixMicro()
		s.statuses.Set(a.AttemptId, &adapterv1.Status{AttemptId: a.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, StartedAt: now, EndedAt: now, Reason: "completed", LogBytes: int64(len(slowText))})
	}
	return &adapterv1.ApplyResponse{}, nil
}

func (s slow) ReadLog(_ context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	res := &adapterv1.ReadLogResponse{Offset: r.Offset, End: r.Offset == int64(len(slowText))}
	if s.calls.Add(1)%3 == 0 && !res.End {
		res.Data = []byte(slowText[r.Offset : r.Offset+1])
	}
	return res, nil
}

func testSlowLog(t *testing.T, a *apptest.App) {
	url, _ := served(t, slow{newFake("p-slow"), new(atomic.Int64)})
	register(t, a, "slow", url)
	until(t, a, "slow", "up")
	j := apptest.Job("slow", 1)
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{"p-slow"}}
	id := a.Admin.Submit(t, j)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	if out, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || out != slowText {
		t.Errorf("log %q, %v, want %q", out, err, slowText)
	}
}

func testMade(t *testing.T, a *apptest.App) {
	ctx, c := t.Context(), a.Admin.Adapters
	apptest.Until(t, "the plug-in says what it is", func() bool { return get(t, a, "made").Version == "7" })
	if p := get(t, a, "made"); p.State != "idle" || p.Source != adaptersv1.PluginSource_PLUGIN_SOURCE_CONFIGURED {
		t.Errorf("plug-in is %v", p)
	}
	const secret = "a-secret-nobody-reads-from-a-disk"
	made := func(center, config string) (*adaptersv1.Instance, error) {
		return c.CreateInstance(ctx, &adaptersv1.CreateInstanceRequest{Plugin: "made", AiCenterId: center, Config: config})
	}
	for config, want := range map[string]string{
		``: "password", `{"password":1}`: "password", `{"password":"x","pasword":"y"}`: "pasword", `[]`: "JSON object", `{`: "JSON object",
		`{"password":"` + strings.Repeat("x", 256<<10) + `"}`: "262144",
	} {
		if _, err := made("p-made", config); code(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("configuration %.40s: %v, want a refusal that names %s", config, err, want)
		}
	}
	if in, err := made("p-made", `{"password":"`+secret+`","region":"east"}`); err != nil || in.State != "starting" || !in.Enabled {
		t.Fatalf("made: %v, %v", in, err)
	}
	until(t, a, "made", "up")
	succeed(t, a, "p-made")
	center := func() *registryv1.Center {
		k, err := a.Admin.Registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: "p-made"})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if k := center(); k.Region != "east" || k.Labels["secret-length"] != fmt.Sprint(len(secret)) {
		t.Errorf("center is %v", k)
	}
	if _, err := made("p-made", `{"password":"x"}`); code(err) != connect.CodeAborted {
		t.Errorf("a second instance for a center: %v, want a conflict", err)
	}
	// The secret is not on the disk while the process runs but in its own file.
	err := filepath.WalkDir(a.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !e.Type().IsRegular() || filepath.Base(filepath.Dir(path)) == "plugins" {
			return nil // it may be gone
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s has the secret", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(a.Dir, "plugins", "i-p-made.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the process's own file: %v, %v", info, err)
	}
	change := func(config string, enabled *bool) error {
		r := &adaptersv1.UpdateInstanceRequest{Plugin: "made", AiCenterId: "p-made", Enabled: enabled}
		if config != "" {
			r.Config = &config
		}
		_, err := c.UpdateInstance(ctx, r)
		return err
	}
	if err := change(`{"password":"other","region":"west"}`, nil); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "the new configuration holds", func() bool { return center().Region == "west" })
	if err := change(`{"password":"other","trouble":"the cluster refuses"}`, nil); err != nil {
		t.Fatal(err)
	}
	if p := until(t, a, "made", "trouble"); p.List[0].Message != "the cluster refuses" {
		t.Errorf("instance is %v", p.List[0])
	}
	if err := change(`{"password":"other"}`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, a, "made", "up")
	pid := a.Adapters.PluginPID("i-p-made")
	if _, err := c.RestartPlugin(ctx, &adaptersv1.RestartPluginRequest{Name: "made"}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "another process runs", func() bool {
		now := a.Adapters.PluginPID("i-p-made")
		return now != 0 && now != pid
	})
	until(t, a, "made", "up")
	succeed(t, a, "p-made")
	off, on := false, true
	if err := change("", &off); err != nil {
		t.Fatal(err)
	}
	if p := get(t, a, "made"); states(p) != "disabled" || p.State != "disabled" {
		t.Errorf("plug-in is %v", p)
	}
	apptest.Until(t, "its process ends", func() bool { return a.Adapters.PluginPID("i-p-made") == 0 })
	if s := status(t, a, "p-made"); s != registryv1.CenterStatus_CENTER_STATUS_UNAVAILABLE {
		t.Errorf("the center is %v while its instance is out of service", s)
	}
	if err := change("", &on); err != nil {
		t.Fatal(err)
	}
	until(t, a, "made", "up")
	succeed(t, a, "p-made")
	if _, err := c.DeleteInstance(ctx, &adaptersv1.DeleteInstanceRequest{Plugin: "made", AiCenterId: "p-made"}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "its process ends", func() bool { return a.Adapters.PluginPID("i-p-made") == 0 })
	if s := status(t, a, "p-made"); s != registryv1.CenterStatus_CENTER_STATUS_UNAVAILABLE {
		t.Errorf("the center of a deleted instance is %v", s)
	}
	if _, err := c.DeleteInstance(ctx, &adaptersv1.DeleteInstanceRequest{Plugin: "made", AiCenterId: "p-made"}); code(err) != connect.CodeNotFound {
		t.Errorf("deleted again: %v", err)
	}
}

func testPluginRefused(t *testing.T, a *apptest.App) {
	ctx, c := t.Context(), a.Admin.Adapters
	for _, r := range []*adaptersv1.SetPluginRequest{{Name: "x"}, {Endpoints: []string{"http://a:1"}}, {Name: strings.Repeat("x", 33), Endpoints: []string{"http://a:1"}},
		{Name: "x", Endpoints: []string{"ftp://a:1"}}, {Name: "x", Endpoints: []string{"http://u:p@a:1"}}, {Name: "x", Endpoints: []string{"http://a:1/path"}},
		{Name: "x", Endpoints: []string{"http://a:1", "http://a:1"}}, {Name: "x", Endpoints: []string{"http://a:1 http://b:1"}}, {Name: "x", Endpoints: make([]string, 129)}} {
		if _, err := c.SetPlugin(ctx, r); code(err) != connect.CodeInvalidArgument {
			t.Errorf("register %.200v: %v, want invalid", r, err)
		}
	}
	calls := map[string]struct {
		want connect.Code
		call func(c *apptest.Client) error
	}{
		"register over one that is configured": {connect.CodeAborted, func(c *apptest.Client) error {
			_, err := c.Adapters.SetPlugin(ctx, &adaptersv1.SetPluginRequest{Name: "made", Endpoints: []string{"http://a:1"}})
			return err
		}},
		"delete one that is configured": {connect.CodeAborted, func(c *apptest.Client) error {
			_, err := c.Adapters.DeletePlugin(ctx, &adaptersv1.DeletePluginRequest{Name: "made"})
			return err
		}},
		"delete none": {connect.CodeNotFound, func(c *apptest.Client) error {
			_, err := c.Adapters.DeletePlugin(ctx, &adaptersv1.DeletePluginRequest{Name: "none"})
			return err
		}},
		"restart none": {connect.CodeNotFound, func(c *apptest.Client) error {
			_, err := c.Adapters.RestartPlugin(ctx, &adaptersv1.RestartPluginRequest{Name: "none"})
			return err
		}},
		"an instance of none": {connect.CodeNotFound, func(c *apptest.Client) error {
			_, err := c.Adapters.CreateInstance(ctx, &adaptersv1.CreateInstanceRequest{Plugin: "none", AiCenterId: "p-none"})
			return err
		}},
		"change none": {connect.CodeNotFound, func(c *apptest.Client) error {
			_, err := c.Adapters.UpdateInstance(ctx, &adaptersv1.UpdateInstanceRequest{Plugin: "made", AiCenterId: "p-none"})
			return err
		}},
		"a bad center": {connect.CodeInvalidArgument, func(c *apptest.Client) error {
			_, err := c.Adapters.CreateInstance(ctx, &adaptersv1.CreateInstanceRequest{Plugin: "made", AiCenterId: "a b", Config: `{"password":"x"}`})
			return err
		}},
	}
	user := a.User(t, "t-plug", "u-plug", identityv1.Role_ROLE_USER)
	for name, x := range calls {
		if err := x.call(a.Admin); code(err) != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
		if err := x.call(user); code(err) != connect.CodePermissionDenied {
			t.Errorf("%s by a user: %v, want it denied", name, err)
		}
	}
}

// What was made is there after a restart, also with a new version of the
// plug-in; what is not configured any more says so.
func TestInstancesSurviveARestart(t *testing.T) {
	t.Parallel()
	known := []plugin.Config{command("1", true)}
	a := apptest.Start(t, apptest.Options{Config: func(c *app.Config) { c.Adapters.Plugins = known }})
	declared(t, a, "made")
	if _, err := a.Admin.Adapters.CreateInstance(t.Context(), &adaptersv1.CreateInstanceRequest{Plugin: "made", AiCenterId: "p-kept", Config: `{"password":"x"}`}); err != nil {
		t.Fatal(err)
	}
	until(t, a, "made", "up")
	succeed(t, a, "p-kept")
	known[0] = command("2", true)
	a.Restart()
	apptest.Until(t, "the new version serves", func() bool {
		p := get(t, a, "made")
		return states(p) == "up" && p.Version == "2" && p.List[0].Version == "2"
	})
	succeed(t, a, "p-kept")
	known[0].Name = "another"
	a.Restart()
	p := until(t, a, "made", "down")
	if !strings.Contains(p.List[0].Message, "neither built in nor configured") {
		t.Errorf("instance is %v", p.List[0])
	}
}
