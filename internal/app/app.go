// Package app builds and runs the platform: every component is made here, top
// to bottom, in one function, and no component can be used before it exists.
//
//	engines     db (SQLite | PostgreSQL) · bus (NATS) · samples · objects
//	components  identity · registry · inventory · tags · network · adapters · scheduler · metering · jobs · monitor
//	edge        rpc (gRPC, Connect, REST, T/AI 123.6) · console
//
// Start order is the order of construction; stop order is its reverse: the
// edge stops taking calls first, the engines close last.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/access"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/alarms"
	"yunhe.dev/yunhe/internal/budgets"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/calendar"
	"yunhe.dev/yunhe/internal/console"
	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/equipment"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/measurement"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/notices"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/planning"
	"yunhe.dev/yunhe/internal/policies"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/routing"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/run"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/seal"
	"yunhe.dev/yunhe/internal/simulations"
	"yunhe.dev/yunhe/internal/standing"
	"yunhe.dev/yunhe/internal/tags"
	"yunhe.dev/yunhe/internal/topology"
	"yunhe.dev/yunhe/internal/volumes"
)

// App is a platform process.
type App struct {
	Identity  *identity.Service
	Registry  *registry.Service
	Inventory *inventory.Service
	Tags      *tags.Service
	Topology  *topology.Service
	Network   *network.Service
	Equipment *equipment.Service
	Adapters  *adapters.Service
	Scheduler *scheduler.Service
	Jobs      *jobs.Service
	Policies  *policies.Service
	Metering  *metering.Service
	Budgets   *budgets.Service
	Monitor   *monitor.Service
	Access    *access.Service
	Control   *control.Service
	Calendar  *calendar.Service
	Alarms    *alarms.Service
	Routing   *routing.Router
	Standing  *standing.Service
	Volumes   *volumes.Service
	Pools     *pools.Service
	PoolOps   *poolops.Service
	Notices   *notices.Service

	Simulations *simulations.Service
	Planning    *planning.Service

	Measurement *measurement.Service

	cfg      Config
	log      *slog.Logger
	instance *run.Instance
	leases   *run.Elector
	loops    map[string][]string // names of those that one process at a time runs, by role
	db       *db.DB
	bus      *bus.Bus
	tsdb     *samples.Store // this process's own
	objects  objects.Store
	samples  monitor.Store // where the samples are, which may be another process
	intake   *monitor.Intake
	ln       net.Listener
	srv      *http.Server
	group    *run.Group
	trace    func(context.Context) error
}

// New builds the platform and opens its engines. Close it if Run is not called.
func New(ctx context.Context, cfg Config, log *slog.Logger) (_ *App, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot make the data folder %s", cfg.Data)
	}
	a := &App{cfg: cfg, log: log, group: run.NewGroup(log), loops: map[string][]string{}}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.trace, err = startTracing(ctx, cfg.Trace); err != nil {
		return nil, err
	}
	logs, err := a.openEngines(ctx)
	if err != nil {
		return nil, err
	}
	a.leases.Register(reg)
	if err := a.buildComponents(ctx, logs, reg); err != nil {
		return nil, err
	}
	return a, a.buildEdge(reg)
}

// openEngines opens state, signals, samples and objects.
func (a *App) openEngines(ctx context.Context) (*objects.Chunks, error) {
	cfg, err := a.cfg, error(nil)
	if a.instance, err = run.OpenInstance(cfg.Data); err != nil {
		return nil, err
	}
	if a.db, err = db.Open(ctx, db.Config{URL: cfg.path(cfg.Database.URL, "yunhe.db"), Name: run.Session(a.instance.ID)}, a.log); err != nil {
		return nil, err
	}
	if err := run.Init(ctx, a.db); err != nil {
		return nil, err
	}
	a.leases = run.NewElector(a.db, a.instance.ID, a.log)
	a.bus, err = bus.Open(ctx, bus.Config{URL: cfg.Bus.URL, Dir: cfg.path(cfg.Bus.Keys, "bus"), Listen: cfg.Bus.Listen, Advertise: cfg.Bus.Advertise, Replicas: cfg.Bus.Replicas}, a.log)
	if err != nil {
		return nil, err
	}
	if a.tsdb, err = samples.Open(cfg.samples(), a.log, a.db.Now); err != nil {
		return nil, err
	}
	a.samples = a.tsdb
	if cfg.relaysSamples() {
		a.samples = monitor.NewRelay(a.bus)
	}
	store, err := objects.Open(ctx, cfg.objects())
	if err != nil {
		return nil, err
	}
	a.objects = store
	return objects.NewChunks(store), nil
}

func (a *App) buildComponents(ctx context.Context, logs *objects.Chunks, reg *prometheus.Registry) (err error) {
	d, log := a.db, a.log
	if a.Identity, err = identity.New(ctx, d, log); err != nil {
		return err
	}
	a.Identity.Collect(reg)
	if err := a.Identity.Bootstrap(ctx, a.cfg.Data); err != nil {
		return err
	}
	if a.Registry, err = registry.New(ctx, d, log); err != nil {
		return err
	}
	if err := a.Registry.Defaults(ctx); err != nil {
		return err
	}
	box, err := seal.Open(filepath.Join(a.cfg.path(a.cfg.Bus.Keys, "bus"), "secrets.key"))
	if err != nil {
		return err
	}
	if a.Inventory, err = inventory.New(ctx, d, a.Registry, box, log); err != nil {
		return err
	}
	if a.Tags, err = tags.New(ctx, d, a.Registry, log); err != nil {
		return err
	}
	a.Tags.SetResources(resources{a.Inventory})
	if err := a.Tags.Defaults(ctx); err != nil {
		return err
	}
	if a.Topology, err = topology.New(ctx, topology.Config{History: a.cfg.Topology.History}, d, a.bus, a.Registry, a.Inventory, a.samples, log); err != nil {
		return err
	}
	if a.Network, err = network.New(ctx, d, a.Identity, a.Registry, a.samples, a.Topology, log); err != nil {
		return err
	}
	if a.Adapters, err = adapters.New(ctx, d, a.bus, a.Registry, logs, box, filepath.Join(a.cfg.Data, "plugins"), log); err != nil {
		return err
	}
	if a.Scheduler, err = scheduler.New(ctx, d, a.Registry, reg, log); err != nil {
		return err
	}
	if a.Standing, err = standing.New(ctx, d, a.Identity, a.Registry, log); err != nil {
		return err
	}
	if a.Metering, err = metering.New(ctx, d, log); err != nil {
		return err
	}
	if a.Jobs, err = jobs.New(ctx, d, a.bus, a.Identity, a.Registry, a.Adapters, a.Scheduler, a.Metering, a.Standing, logs, log); err != nil {
		return err
	}
	a.Jobs.SetURL(strings.TrimRight(a.cfg.Listen.URL, "/"))
	if a.Budgets, err = budgets.New(ctx, d, a.bus, a.Identity, a.Metering, a.Jobs, a.Scheduler, log); err != nil {
		return err
	}
	if a.Volumes, err = volumes.New(ctx, d, a.bus, a.Identity, a.Registry, a.Adapters, log); err != nil {
		return err
	}
	if a.Pools, err = pools.New(ctx, d, a.bus, a.Identity, a.Metering, box, log); err != nil {
		return err
	}
	if a.PoolOps, err = poolops.New(ctx, poolops.Process{Version: a.cfg.Version, Self: a.cfg.Program}, d, a.bus, a.Identity, a.Pools, logs, log); err != nil {
		return err
	}
	if a.Notices, err = notices.New(ctx, d, a.bus, a.Identity, box, log); err != nil {
		return err
	}
	if a.Policies, err = policies.New(ctx, d, policies.Deps{Identity: a.Identity, Registry: a.Registry, Tags: a.Tags, Scheduler: a.Scheduler, Jobs: a.Jobs}, reg, log); err != nil {
		return err
	}
	if a.Simulations, err = simulations.New(ctx, d, a.bus, a.Identity, a.Policies, a.objects, log); err != nil {
		return err
	}
	if a.Control, err = control.New(ctx, d, a.bus, a.Identity, a.Registry, a.Adapters, a.Scheduler, a.Jobs, a.Metering, log); err != nil {
		return err
	}
	if a.Calendar, err = calendar.New(ctx, d, calendar.Deps{Identity: a.Identity, Registry: a.Registry, Tags: a.Tags, Scheduler: a.Scheduler, Jobs: a.Jobs, Control: a.Control}, log); err != nil {
		return err
	}
	if a.Routing, err = routing.New(ctx, d, a.Identity, a.Registry, a.Jobs, log); err != nil {
		return err
	}
	measured := monitor.New(a.samples, log)
	measured.Now = d.Now
	deps := measurement.Deps{Bus: a.bus, Identity: a.Identity, Registry: a.Registry, Inventory: a.Inventory, Monitor: measured, Jobs: a.Jobs}
	if a.Measurement, err = measurement.New(ctx, d, deps, log); err != nil {
		return err
	}
	if a.Equipment, err = equipment.New(ctx, d, a.Identity, a.Registry, a.Inventory, a.Network, log); err != nil {
		return err
	}
	if a.Alarms, err = alarms.New(ctx, a.cfg.Alarms, d, alarms.Deps{Equipment: a.Equipment, Bus: a.bus, Identity: a.Identity, Registry: a.Registry, Adapters: a.Adapters, Jobs: a.Jobs, Control: a.Control, Budgets: a.Budgets, Pool: a.PoolOps, Notices: a.Notices}, log); err != nil {
		return err
	}
	roles := a.cfg.Roles
	if len(roles) == 0 {
		roles = Roles
	}
	if a.Planning, err = planning.New(ctx, d, a.instance.ID, roles, a.works, log); err != nil {
		return err
	}
	a.Monitor = monitor.New(a.samples, log)
	a.Monitor.Now = d.Now
	a.Monitor.Known, a.Monitor.Job, a.Monitor.Owners = a.known, a.Jobs.Seen, a.Jobs.Owners
	if a.Access, err = access.New(ctx, d, access.Deps{Identity: a.Identity, Registry: a.Registry, Inventory: a.Inventory, Monitor: a.Monitor, Adapters: a.Adapters}, log); err != nil {
		return err
	}
	a.Adapters.SetAccess(a.Access)
	a.Scheduler.SetHeld(a.Access.Held)
	// Answers that lower components need from higher ones.
	a.Adapters.SetWork(a.Jobs)
	a.intake = monitor.NewIntake(d.Now, log)
	a.intake.Owners = a.Jobs.Owners
	a.Adapters.SetMeasured(a.intake.TakeMessage)
	a.Adapters.SetEquipment(a.Equipment.SaidTx)
	a.Scheduler.SetSource(a.Jobs)
	a.Scheduler.SetTags(a.Tags)
	a.Scheduler.SetStanding(a.Standing)
	a.Standing.SetRuns(a.Jobs)
	a.Scheduler.SetBus(a.bus)
	a.Scheduler.SetNetwork(a.Network)
	a.Jobs.SetNetwork(a.Network)
	a.Scheduler.SetPolicies(a.Policies)
	a.Registry.InUse = a.Jobs.InUse
	a.Volumes.InUse = a.Jobs.InUse
	a.Jobs.SetVolumes(a.Volumes)
	a.Jobs.SetPool(a.Pools)
	a.Adapters.SetTenants(a.Identity.CheckTenant)
	a.Metering.Jobs = a.Jobs
	a.Jobs.SetAllocations(a.Control)
	a.Scheduler.SetAllocations(a.Control)
	a.Scheduler.SetCalendar(a.Calendar)
	a.Scheduler.SetBudgets(a.Budgets)
	a.Jobs.SetReservations(a.Calendar)
	a.Adapters.SetJoined(a.Control.JoinedTx)

	a.group.Add("identity.audit", a.Identity.Run)
	a.group.Add("leases", a.leases.Run)
	a.led("", "bus.relay", a.relay)
	a.group.Add("scheduler.figures", a.Scheduler.Figures)
	a.group.Add("jobs.watch", a.Jobs.Watch)
	a.group.Add("control.watch", a.Control.Watch)
	a.group.Add("volumes.watch", a.Volumes.Watch)
	a.group.Add("pools.watch", a.Pools.Watch)
	a.group.Add("poolops.watch", a.PoolOps.Watch)
	a.group.Add("alarms.watch", a.Alarms.Watch)
	a.group.Add("simulations.watch", a.Simulations.Watch)
	a.group.Add("planning.presence", a.Planning.Run)
	if a.cfg.runs(Reach) {
		a.group.Add("adapters.answer", a.Adapters.Answer)
	}
	if a.cfg.runs(Reach) {
		known := slices.Clone(a.cfg.Adapters.BuiltIn)
		for _, c := range a.cfg.Adapters.Plugins {
			known = append(known, adapters.Known{Config: c, Source: adapters.Configured})
		}
		instances := func(ctx context.Context) error { return a.Adapters.RunInstances(ctx, known) }
		a.led(Reach, "adapters.instances", instances)
	}
	// Placements are sent by the process that made them, so Control reaches out too.
	if a.cfg.runs(Reach) || a.cfg.runs(Control) || a.cfg.runs(API) {
		a.group.Add("adapters.send", a.Adapters.Run)
	}
	if a.cfg.runs(Control) {
		a.led(Control, "scheduler.cycle", a.Scheduler.Run)
		a.led(Control, "tags.rules", a.Tags.Run)
		a.led(Control, "control.run", a.Control.Run)
		a.led(Control, "calendar.run", a.Calendar.Run)
		a.led(Control, "budgets.run", a.Budgets.Run)
		a.led(Control, "volumes.run", a.Volumes.Run)
		a.led(Control, "pools.run", a.Pools.Run)
		a.led(Control, "poolops.run", a.PoolOps.Run)
		a.led(Control, "poolops.upgrades", a.PoolOps.RunUpgrades)
		a.led(Control, "notices.run", a.Notices.Run)
		a.led(Control, "topology.watch", a.Topology.Run)
		a.led(Control, "measurement.run", a.Measurement.Run)
		a.led(Control, "alarms.sweep", a.Alarms.Run)
		a.led(Control, "access.judge", a.Access.Run)
		a.led(Control, "routing.run", a.Routing.Run)
		a.led(Control, "standing.run", a.Standing.Run)
		a.led(Control, "simulations.run", a.Simulations.Run)
		a.led(Control, "jobs.purge", a.Jobs.Purge)
		a.led(Control, "jobs.lend", a.Jobs.Lend)
	}
	if a.cfg.runs(API) {
		a.group.Add("topology.values", a.Topology.Follow)
	}
	if a.cfg.runs(API) || a.cfg.runs(Control) {
		a.group.Add("network.follow", a.Network.Follow)
	}
	if a.cfg.runs(Watch) {
		a.led(Watch, "monitor.collect", a.collect)
	}
	if a.cfg.runs(Reach) {
		measured := monitor.NewCollector(a.samples, a.intake.Gather, log)
		measured.Every = time.Second
		a.group.Add("monitor.measured", measured.Run)
		a.group.Add("monitor.runs", monitor.NewCollector(a.samples, a.intake.GatherRuns, log).Run)
	}
	return nil
}

// known tells the monitor, which does not know them, whether there is a center,
// or a node of it.
func (a *App) known(ctx context.Context, center, node string) error {
	if node != "" {
		_, err := a.Registry.GetNode(ctx, center, node)
		return err
	}
	_, err := a.Registry.GetCenter(ctx, center)
	return err
}

func (a *App) relay(ctx context.Context) error { return a.bus.Relay(ctx, a.db) }

// led adds a loop that one process at a time runs, of a role.
func (a *App) led(role, name string, l run.Loop) {
	a.group.Add(name, func(ctx context.Context) error { return a.leases.Lead(ctx, name, l) })
	a.loops[role] = append(a.loops[role], name)
}

// works reports whether a role of this process does its work: the API answers,
// and what one process at a time does for the role is done by some process.
func (a *App) works(ctx context.Context, role string) error {
	if err := a.bus.Ready(); err != nil {
		return err
	}
	for _, name := range a.loops[role] {
		if !a.leases.Live(name) {
			return fault.New(fault.Unavailable, "no process runs %s", name)
		}
	}
	for _, f := range a.leases.Failing() {
		if slices.Contains(a.loops[role], f.Loop) {
			return fault.New(fault.Unavailable, "%s", f)
		}
	}
	if role != API {
		return nil
	}
	return alive(ctx, a.URL())
}

// collect samples the state; where samples are in the folder of this process,
// it is the one that answers the others for as long as it does.
func (a *App) collect(ctx context.Context) error {
	own := monitor.NewCollector(a.tsdb, a.gather, a.log)
	if !a.cfg.relaysSamples() {
		return own.Run(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return own.Run(ctx) })
	g.Go(func() error { return monitor.Serve(ctx, a.bus, a.tsdb) })
	return g.Wait()
}

// gather takes the samples of a round: of centers and of services.
func (a *App) gather(ctx context.Context) ([]samples.Sample, error) {
	snap, err := a.Registry.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	centers := make([]monitor.Center, 0, len(snap.Centers))
	for _, c := range snap.Centers {
		m := monitor.Center{ID: c.ID, CPUUsedMilli: c.Used[core.CPU], CPUTotalMilli: c.Total[core.CPU], MemoryUsedBytes: c.Used[core.Memory],
			MemoryTotalBytes: c.Total[core.Memory], Running: c.Running, Waiting: c.Waiting, CPUBusyPermille: -1}
		if snap.At.Sub(c.Measured.At) < registry.SeenWithin {
			m.CPUBusyPermille = c.Measured.CPUBusyPermille
		}
		centers = append(centers, m)
	}
	out := monitor.CenterSamples(centers, snap.At)
	traffic, err := a.Routing.Samples(ctx, snap.At, samples.MaxBatch-len(out))
	if err != nil {
		return nil, err
	}
	return append(out, traffic...), nil
}

// buildEdge mounts the API and the console and listens.
func (a *App) buildEdge(reg *prometheus.Registry) error {
	srv := rpc.New(rpc.Config{OpenStatus: a.cfg.Listen.OpenStatus, Ready: a.Ready, Troubles: a.troubles}, a.Identity, reg, a.log)
	if a.cfg.runs(API) {
		a.Identity.Register(srv)
		a.Registry.Register(srv)
		a.Inventory.Register(srv)
		a.Tags.Register(srv)
		a.Topology.Register(srv)
		a.Network.Register(srv)
		a.Equipment.Register(srv)
		a.Adapters.Register(srv)
		a.Scheduler.Register(srv)
		a.Metering.Register(srv)
		a.Budgets.Register(srv)
		a.Jobs.Register(srv)
		a.Policies.Register(srv)
		a.Simulations.Register(srv)
		a.Measurement.Register(srv)
		a.Control.Register(srv)
		a.Calendar.Register(srv)
		a.Volumes.Register(srv)
		a.Pools.Register(srv)
		a.Alarms.Register(srv)
		a.PoolOps.Register(srv)
		a.Notices.Register(srv)
		a.Routing.Register(srv)
		a.Standing.Register(srv)
		a.Monitor.Register(srv)
		a.Planning.Register(srv)
		a.Access.Register(srv)
		srv.Handle("GET /openapi.json", rpc.OpenAPI())
		srv.Handle("/", console.Handler())
	}
	h, err := srv.Handler()
	if err != nil {
		return err
	}
	if a.ln, err = net.Listen("tcp", a.cfg.Listen.Address); err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot listen on %s", a.cfg.Listen.Address)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS
	a.srv = &http.Server{Handler: traced(h), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, Protocols: protocols,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	stopping := make(chan struct{})
	a.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return rpc.WithConn(ctx, c, stopping) }
	a.srv.RegisterOnShutdown(func() { close(stopping) })
	if a.cfg.Listen.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(a.cfg.Listen.CertFile, a.cfg.Listen.KeyFile)
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "listen.cert_file and listen.key_file cannot be read")
		}
		a.srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	a.group.Add("edge", a.serve)
	return nil
}

// serve answers until ctx ends and then finishes the calls under way.
func (a *App) serve(ctx context.Context) error {
	fail := make(chan error, 1)
	go func() {
		if a.srv.TLSConfig != nil {
			fail <- a.srv.ServeTLS(a.ln, "", "")
			return
		}
		fail <- a.srv.Serve(a.ln)
	}()
	select {
	case err := <-fail:
		return err
	case <-ctx.Done():
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := a.srv.Shutdown(sctx); err != nil {
		// Watchers and followers never end by themselves.
		return errors.Join(a.srv.Close())
	}
	return nil
}

// troubles says what this process does without success, though it can serve.
func (a *App) troubles() []string {
	var list []string
	for _, f := range a.leases.Failing() {
		list = append(list, f.String())
	}
	return list
}

// Ready reports whether the process can serve: its engines answer.
func (a *App) Ready(ctx context.Context) error {
	return errors.Join(a.db.Ping(ctx), a.bus.Ready())
}

// URL is where the API and the console answer.
func (a *App) URL() string {
	scheme := "http"
	if a.cfg.Listen.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + a.ln.Addr().String()
}

// Run serves until ctx ends, then stops in order and closes everything.
func (a *App) Run(ctx context.Context) error {
	a.log.Info("platform started", "url", a.URL(), "database", string(a.db.Engine()))
	err := a.group.Run(ctx)
	a.Close()
	return err
}

// Close closes the engines. Run calls it.
func (a *App) Close() {
	if a.ln != nil {
		_ = a.ln.Close() // closed by the server already, mostly
	}
	if a.bus != nil {
		a.bus.Close()
	}
	if a.Policies != nil {
		a.Policies.Close()
	}
	if a.tsdb != nil {
		if err := a.tsdb.Close(); err != nil {
			a.log.Warn("samples not closed", "error", err)
		}
	}
	if a.db != nil {
		if err := a.db.Close(); err != nil {
			a.log.Warn("database not closed", "error", err)
		}
	}
	if a.instance != nil {
		if err := a.instance.Close(); err != nil {
			a.log.Warn("data folder not released", "error", err)
		}
	}
	if a.trace != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := a.trace(ctx); err != nil {
			a.log.Debug("traces not flushed", "error", err)
		}
	}
}
