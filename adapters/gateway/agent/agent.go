// Package agent is the compute gateway: it makes a bare machine a computing
// center. It joins a platform with a one-time token, dials out to the signal
// bus with a key of its own, and runs what it is told in the sandbox.
//
// What it keeps true, whatever is killed:
//
//   - An attempt runs at most once. The sandbox sees to that while it knows the
//     attempt; after the attempt is forgotten, the agent's ledger of recorded
//     attempts does ([ledger]).
//   - An attempt accepted is on disk before the platform is told so.
//   - How an attempt ended is reported until the platform says that it is
//     recorded; only then are its files deleted. Its log is handed over first.
//   - Loss of the platform changes nothing for what runs.
//   - An accelerator is an attempt's alone, from before it starts until it has
//     ended, whichever gateway sees the end.
//   - An isolated machine starts nothing new and declares that it has nothing
//     for new work, after a restart too; what runs goes on.
//   - Volumes outlive runs and gateways. One that a run has, or is being started
//     with, is not deleted. Where the kernel or the file system cannot map owners,
//     none are offered.
//   - The platform is told which images are here whenever that changes; an
//     image stays while an attempt is being started or runs in it.
//
// Accelerators are found by their device files when the gateway starts (kinds
// in devices.go) and handed out whole. A command sees the files of its own
// only. The libraries of a driver belong to the machine: the image "host" has them, another
// image must bring those that fit.
//
// A killed agent starts again, adopts the runs its predecessor left, and asks
// the platform what else should run.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/switches"
	"yunhe.dev/yunhe/adapters/gateway/volumes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Joiner asks the platform to admit a gateway.
type Joiner func(ctx context.Context, r *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error)

// Config of a gateway.
type Config struct {
	// Dir keeps the gateway's key, its runs and its ledger.
	Dir string
	// Token to join with; only needed the first time.
	Token string
	// Center is what the gateway declares. Capacity is measured where it is
	// not given.
	Center Center
	// Shares are folders of this machine shown read-only to commands of the
	// image "host": "/path", or "/path=/where" to show it elsewhere.
	Shares []string
	// Root is looked at instead of / for /dev and /sys; tests have devices of
	// their own there.
	Root string
	// Measure says whether the machine's speed is measured where the center
	// does not state it: MeasureOnce, MeasureAgain, or not at all.
	Measure string
	// Version of the program.
	Version string
	// Program is the yunhe whose "pool exec" runs commands on shares of the
	// accelerator pool; "": none can have any.
	Program string
	// PoolNodes are the folders of pool nodes on this machine which its runs may use
	// beside them, and PoolLibraries that of the driver of CUDA, "": where systems have it.
	PoolNodes     []string
	PoolLibraries string
	// Switches of the center, which are asked how they are.
	Switches switches.Config
	// Join reaches the platform.
	Join Joiner
}

// Center is what a gateway declares about its computing center.
type Center struct {
	ID            string            `yaml:"id"`
	Name          string            `yaml:"name"`
	Region        string            `yaml:"region"`
	Longitude     float64           `yaml:"longitude"`
	Latitude      float64           `yaml:"latitude"`
	SecurityGrade int64             `yaml:"security_grade"`
	StaticWatts   float64           `yaml:"static_watts_per_cpu"`
	ActiveWatts   float64           `yaml:"active_watts_per_cpu"`
	Performance   int64             `yaml:"performance"`
	CPU           string            `yaml:"cpu"`    // "" is all of the machine's
	Memory        string            `yaml:"memory"` // "" is 80 % of the machine's
	Prices        map[string]int64  `yaml:"prices"` // fen per hour by specification
	Labels        map[string]string `yaml:"labels"`
	Accelerators  string            `yaml:"accelerators"` // "" is all that are found, "none" is none
}

// The values of Config.Measure.
const (
	MeasureOnce  = "once"  // unless this very machine was measured already
	MeasureAgain = "again" // at every start
)

// membership is what the gateway keeps of its joining.
type membership struct {
	Seed     string   `json:"seed"` // its own key; never leaves the machine
	CenterID string   `json:"ai_center_id"`
	URLs     []string `json:"bus_urls"`
	JWT      string   `json:"bus_jwt"`
}

// Agent is a running gateway.
type Agent struct {
	cfg    Config
	log    *slog.Logger
	sb     *sandbox.Sandbox
	bus    *bus.Agent
	id     string
	inv    *adapterv1.Inventory
	ledger *ledger
	resync chan struct{}
	images *images.Store
	// volumes is nil where this machine can keep none.
	volumes *volumes.Store
	// declare says that what the gateway declares has changed.
	declare chan struct{}
	devices *devices
	prober  *prober           // of the way to the platform
	node    *adapterv1.Node   // the machine; nil: it has no name
	disk    map[string]string // its figures, as labels of the machine
	lends   bool              // runs may have shares of the accelerator pool

	switches *switches.Watch

	// locks are held, one for each attempt, while it is looked up and started
	// or forgotten: between the ledger's no and the sandbox's no it must not
	// pass from the one to the other.
	locks [64]sync.Mutex

	refused  refusals
	sessions sync.WaitGroup // of commands beside runs
	slots    chan struct{}  // one for each of them

	mu      sync.Mutex // guards the fields below
	dirty   map[string]bool
	wake    chan struct{}
	never   map[string]verdict // how attempts ended that never ran here
	early   map[string]bool    // to be stopped, and not here yet
	adopted map[string]bool    // left by the predecessor
	setting setting            // how the machine is to be
}

// verdict is how an attempt ended that the sandbox does not know.
type verdict struct{ reason, message string }

// lock returns the lock of an attempt.
func (a *Agent) lock(id string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return &a.locks[h.Sum32()%uint32(len(a.locks))]
}

// Run joins if needed and serves until ctx ends. Runs go on when it returns.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot make the gateway's folder %s", cfg.Dir)
	}
	store, err := images.Open(ImagesDir(cfg.Dir))
	if err != nil {
		return err
	}
	if cfg.Center.Accelerators != "" && cfg.Center.Accelerators != "none" {
		return fault.New(fault.Invalid, "accelerators: want none, or nothing for all of them, got %q", cfg.Center.Accelerators)
	}
	devs, err := newDevices(cfg.Root, cfg.Center.Accelerators == "none")
	if err != nil {
		return err
	}
	inv, err := inventory(cfg, devs.count())
	if err != nil {
		return err
	}
	a := &Agent{cfg: cfg, inv: inv, log: log.With("component", "gateway"), images: store, devices: devs,
		dirty: map[string]bool{}, wake: make(chan struct{}, 1), resync: make(chan struct{}, 1), declare: make(chan struct{}, 1),
		slots: make(chan struct{}, maxSessions),
		never: map[string]verdict{}, early: map[string]bool{}, adopted: map[string]bool{}}
	if inv.Performance == 0 && cfg.Measure != "" {
		if inv.Performance, err = a.measureMachine(ctx); err != nil {
			return err
		}
	}
	a.node = a.describe(ctx)
	a.switches = switches.New(cfg.Switches, a.node.GetName(), filepath.Join(cfg.Dir, "switches.json"), log)
	a.readSetting()
	a.openPool()
	m, err := member(ctx, cfg, a.inventory(), log)
	if err != nil {
		return err
	}
	a.id, inv.AiCenterId, a.log = m.CenterID, m.CenterID, a.log.With("ai_center_id", m.CenterID)
	if a.ledger, err = openLedger(filepath.Join(cfg.Dir, "recorded")); err != nil {
		return err
	}
	defer a.ledger.close()
	a.sb, err = sandbox.New(sandbox.Config{Dir: RunsDir(cfg.Dir), GatewayID: groupName(m.CenterID, cfg.Dir), HostPaths: cfg.Shares}, log)
	if err != nil {
		return err
	}
	defer a.sb.Close()
	if err := a.openVolumes(); err != nil {
		return err
	}
	runs, err := a.sb.Adopt(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		a.adopted[r.ID()] = true
		a.devices.restore(r)
		a.follow(ctx, r)
	}
	a.log.Info("gateway started", "adopted", len(runs))
	a.bus, err = bus.DialAgent(m.URLs, m.CenterID, m.Seed, m.JWT, func() { signal(a.resync) }, a.log)
	if err != nil {
		return err
	}
	defer a.bus.Close()
	var wg sync.WaitGroup
	a.prober = newProber(func(ctx context.Context, payload []byte) error {
		_, err := a.bus.Ask(ctx, "probe", payload)
		return err
	}, a.bus.Segments)
	wg.Go(func() { a.prober.run(ctx) })
	wg.Go(func() { a.heartbeats(ctx) })
	wg.Go(func() { a.switches.Run(ctx) })
	wg.Go(func() { a.reports(ctx) })
	wg.Go(func() { a.watchImages(ctx) })
	defer a.sessions.Wait()
	err = a.bus.Answer(ctx, 64, a.answer)
	wg.Wait()
	return err
}

// ImagesDir is where the gateway with the given data folder has its images.
func ImagesDir(dir string) string { return filepath.Join(dir, "images") }

// groupName names a gateway's control groups. A gateway ends what it finds there
// and does not know, and one of another platform may serve a center of the same ID
// on this machine: its folder is what a gateway has for itself.
func groupName(center, dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	h := fnv.New64a()
	h.Write([]byte(dir)) // it never fails
	return fmt.Sprintf("%s-%016x", center, h.Sum64())
}

// RunsDir is where the gateway with the given data folder has its runs.
func RunsDir(dir string) string { return filepath.Join(dir, "runs") }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// member returns the gateway's membership, joining if there is none.
func member(ctx context.Context, cfg Config, inv *adapterv1.Inventory, log *slog.Logger) (*membership, error) {
	path := filepath.Join(cfg.Dir, "gateway.json")
	m := &membership{}
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, m); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the gateway's membership in %s cannot be read", path)
		}
	case errors.Is(err, fs.ErrNotExist):
		if m.Seed, _, err = bus.NewAgentKey(); err != nil {
			return nil, fmt.Errorf("make key: %w", err)
		}
		// The key is kept before the token is used: a second try after a crash
		// shows the same key and is admitted with the same token.
		if err := writeFile(path, m); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("read membership: %w", err)
	}
	if m.JWT != "" {
		return m, nil
	}
	if cfg.Token == "" {
		return nil, fault.New(fault.Invalid, "this gateway has not joined yet: give it a token (--token), made with: yunhe center join-token")
	}
	pub, err := bus.PublicKey(m.Seed)
	if err != nil {
		return nil, err
	}
	for {
		res, err := cfg.Join(ctx, &adaptersv1.JoinRequest{Token: cfg.Token, PublicKey: pub, Inventory: inv})
		if err == nil {
			m.CenterID, m.URLs, m.JWT = res.AiCenterId, res.BusUrls, res.BusJwt
			return m, writeFile(path, m)
		}
		if fault.KindOf(err) != fault.Unavailable {
			return nil, err
		}
		log.Warn("platform not reachable, will try again", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func writeFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(path+".new", path)
}

// inventory is what the gateway declares, measured where it is not given.
func inventory(cfg Config, accelerators map[string]int64) (*adapterv1.Inventory, error) {
	c := cfg.Center
	cpu, memory := int64(runtime.NumCPU())*1000, int64(0)
	var err error
	if c.CPU != "" {
		if cpu, err = core.ParseQuantity(core.CPU, c.CPU); err != nil {
			return nil, err
		}
	}
	if c.Memory != "" {
		if memory, err = core.ParseQuantity(core.Memory, c.Memory); err != nil {
			return nil, err
		}
	} else {
		mem, err := readMemory()
		if err != nil {
			return nil, err
		}
		memory = mem.total / 5 * 4
	}
	disk, err := readDisk(cfg.Dir)
	if err != nil {
		return nil, err
	}
	inv := &adapterv1.Inventory{AiCenterId: c.ID, Name: c.Name, Region: c.Region, Longitude: c.Longitude, Latitude: c.Latitude, SecurityGrade: c.SecurityGrade,
		StaticMilliwattsPerCpu: int64(c.StaticWatts * 1000), ActiveMilliwattsPerCpu: int64(c.ActiveWatts * 1000), Performance: c.Performance,
		Capacity: map[string]int64{core.CPU: cpu, core.Memory: memory, core.Storage: disk.total}, Version: cfg.Version, Labels: c.Labels}
	maps.Copy(inv.Capacity, accelerators)
	for spec, price := range c.Prices {
		inv.Offers = append(inv.Offers, &adapterv1.SpecOffer{ResourceSpecId: spec, Price: price})
	}
	return inv, nil
}

// inventory is what the gateway declares at present.
func (a *Agent) inventory() *adapterv1.Inventory {
	inv := proto.CloneOf(a.inv)
	list, err := a.images.List()
	if err != nil {
		a.log.Warn("images cannot be read, declaring the others", "error", err)
	}
	inv.Images = []string{images.Host}
	for _, m := range list {
		if m.NoShell == "" && len(inv.Images) < maxImages {
			inv.Images = append(inv.Images, m.ID)
		}
	}
	return inv
}

// maxImages is what the platform takes from one center.
const maxImages = 1000

// watchImages has the platform told when images come or go.
func (a *Agent) watchImages(ctx context.Context) {
	err := a.images.Watch(ctx, func() { signal(a.declare) })
	if err == nil {
		return
	}
	// The machine may be out of watches. Declaring the same again changes nothing.
	const every = 10 * time.Second
	a.log.Warn("images are not watched, looking every 10 s", "error", err)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			signal(a.declare)
		}
	}
}

// answer serves one request of the platform.
func (a *Agent) answer(ctx context.Context, what string, data []byte) ([]byte, error) {
	switch what {
	case "apply":
		return serve(data, &adapterv1.ApplyRequest{}, func(r *adapterv1.ApplyRequest) (proto.Message, error) { return a.apply(ctx, r) })
	case "remove":
		return serve(data, &adapterv1.RemoveRequest{}, func(r *adapterv1.RemoveRequest) (proto.Message, error) { return a.remove(r) })
	case "readlog":
		return serve(data, &adapterv1.ReadLogRequest{}, func(r *adapterv1.ReadLogRequest) (proto.Message, error) { return a.readLog(ctx, r) })
	case "suspend":
		return serve(data, &adapterv1.SuspendRequest{}, func(r *adapterv1.SuspendRequest) (proto.Message, error) { return a.suspend(ctx, r) })
	case "exec":
		return serve(data, &adapterv1.OpenExecRequest{}, func(r *adapterv1.OpenExecRequest) (proto.Message, error) { return a.exec(ctx, r) })
	case "setnode":
		return serve(data, &adapterv1.SetNodeRequest{}, func(r *adapterv1.SetNodeRequest) (proto.Message, error) { return a.setNode(r) })
	case "listvolumes":
		return serve(data, &adapterv1.ListVolumesRequest{}, func(*adapterv1.ListVolumesRequest) (proto.Message, error) { return a.listVolumes(ctx) })
	case "ensurevolume":
		return serve(data, &adapterv1.EnsureVolumeRequest{}, func(r *adapterv1.EnsureVolumeRequest) (proto.Message, error) { return a.ensureVolume(ctx, r) })
	case "removevolume":
		return serve(data, &adapterv1.RemoveVolumeRequest{}, func(r *adapterv1.RemoveVolumeRequest) (proto.Message, error) { return a.removeVolume(r) })
	case "discover":
		return serve(data, &adapterv1.DiscoverRequest{}, func(*adapterv1.DiscoverRequest) (proto.Message, error) {
			inv, _ := a.settled(a.inventory())
			return &adapterv1.DiscoverResponse{Inventory: inv}, nil
		})
	case "describe":
		return serve(data, &adapterv1.DescribeRequest{}, func(*adapterv1.DescribeRequest) (proto.Message, error) {
			return &adapterv1.DescribeResponse{Name: "gateway", Version: a.cfg.Version, Parts: a.parts(), Features: a.features()}, nil
		})
	default:
		return nil, fault.New(fault.Unimplemented, "the gateway does not know the request %q", what)
	}
}

func serve[T proto.Message](data []byte, req T, f func(T) (proto.Message, error)) ([]byte, error) {
	if err := proto.Unmarshal(data, req); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the request cannot be read")
	}
	res, err := f(req)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(res)
}

// startWidth attempts are started at once: more would only wait for the CPU.
const startWidth = 8

func (a *Agent) apply(ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	res := &adapterv1.ApplyResponse{}
	var mu sync.Mutex // guards res and lost
	var lost error
	var wg sync.WaitGroup
	slots := make(chan struct{}, startWidth)
	for _, at := range r.Attempts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			refusal, err := a.startOrRefuse(ctx, at)
			mu.Lock()
			defer mu.Unlock()
			if refusal != nil {
				res.Refusals = append(res.Refusals, refusal)
			}
			lost = errors.Join(lost, err)
		})
	}
	wg.Wait()
	return res, lost
}

// forNow reports whether an error says that the machine is full: another center
// should rather take the run than that the platform asks here again and again.
func forNow(err error) (why string, yes bool) {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "the disk of the machine is full", true
	case errors.Is(err, syscall.ENOMEM):
		return "the machine has no memory left", true
	case fault.KindOf(err) == fault.Exhausted:
		why, _ = fault.Message(err)
		return why, true
	}
	return "", false
}

// startOrRefuse starts one attempt unless it is known, or says why not; an error
// has the platform ask again. What was refused stays so, though there may be room
// by now: the platform, which is told once or more often, has placed it elsewhere,
// and a message that took longer would have it run twice.
func (a *Agent) startOrRefuse(ctx context.Context, at *adapterv1.Attempt) (*adapterv1.Refusal, error) {
	lock := a.lock(at.AttemptId)
	lock.Lock()
	defer lock.Unlock()
	if was := a.refused.of(at.AttemptId); was != nil {
		return was, nil
	}
	reason, err := a.start(ctx, at)
	why, later := forNow(err)
	if later {
		reason, err = why, nil
	}
	if reason == "" {
		return nil, err
	}
	refusal := &adapterv1.Refusal{AttemptId: at.AttemptId, Reason: reason, Later: later}
	a.refused.put(refusal)
	return refusal, nil
}

// refusals are the last that were given.
type refusals struct {
	mu    sync.Mutex // guards the fields below
	byID  map[string]*adapterv1.Refusal
	order []string // oldest first
}

// keepRefusals is far more than a center refuses while a message is under way.
const keepRefusals = 10_000

func (r *refusals) of(id string) *adapterv1.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

func (r *refusals) put(x *adapterv1.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]*adapterv1.Refusal{}
	}
	if len(r.order) == keepRefusals {
		delete(r.byID, r.order[0])
		r.order = r.order[1:]
	}
	r.byID[x.AttemptId], r.order = x, append(r.order, x.AttemptId)
}

// start starts one attempt unless it is known. A refusal is for good; an
// error has the platform ask again, but see forNow. The caller has its lock.
func (a *Agent) start(ctx context.Context, at *adapterv1.Attempt) (refusal string, err error) {
	if a.ledger.has(at.AttemptId) {
		a.mark(at.AttemptId) // a platform restored from a backup does not know that it ended
		return "", nil
	}
	if _, err := a.sb.Get(at.AttemptId); err == nil || a.refuse(at) {
		a.mark(at.AttemptId) // what is known of it is told again
		return "", nil
	}
	if at.Node != "" && (a.node == nil || at.Node != a.node.Name) {
		return fmt.Sprintf("this gateway runs on another machine than %q", cleanText(at.Node)), nil
	}
	if at.Pool != nil && len(at.Pool.Passes) == 0 {
		return "", fault.New(fault.Exhausted, "its shares of the accelerator pool did not come with it: %s", cleanText(at.Pool.Lacking))
	}
	if err := a.admit(at); err != nil {
		return "", err
	}
	run, err := a.launch(ctx, at)
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Unimplemented, fault.NotFound:
		if err != nil {
			msg, _ := fault.Message(err)
			return msg, nil
		}
	}
	if err != nil {
		return "", err
	}
	a.follow(ctx, run)
	return "", nil
}

// launch starts an attempt that is not here yet.
func (a *Agent) launch(ctx context.Context, at *adapterv1.Attempt) (_ *sandbox.Run, err error) {
	spec := sandbox.Spec{ID: at.AttemptId, Command: at.Command, Env: map[string]string{}, CPUMilli: at.Resources[core.CPU], MemoryBytes: at.Resources[core.Memory],
		DiskBytes: at.ScratchBytes, Network: at.Network, WallTime: time.Duration(at.TimeoutSeconds) * time.Second, StopGrace: time.Duration(at.StopGraceSeconds) * time.Second}
	for _, f := range at.Files {
		mode := os.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		spec.Files = append(spec.Files, sandbox.File{Path: f.Path, Data: f.Content, Mode: mode})
	}
	if at.ImageId != images.Host {
		image, err := a.images.Use(at.ImageId)
		if err != nil {
			return nil, err
		}
		// Once the attempt has started its folder says that it uses the image.
		defer image.Close()
		spec.RootFS, spec.ImageUser, spec.Env = image.Rootfs, image.User, image.Environ()
	}
	maps.Copy(spec.Env, at.Env)
	done, err := a.mount(&spec, at.Volumes)
	if err != nil {
		return nil, err
	}
	// Once the attempt has started its folder says that it uses them.
	defer done()
	given, err := a.devices.take(at.AttemptId, at.Resources)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.devices.release(at.AttemptId)
		}
	}()
	a.devices.equip(&spec, given)
	if at.Pool != nil {
		if err := a.share(&spec, at.Pool); err != nil {
			return nil, err
		}
	}
	return a.sb.Start(ctx, spec)
}

// refuse decides whether an attempt that is not here must not be started, and
// how it is then said to have ended.
func (a *Agent) refuse(at *adapterv1.Attempt) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case at.Seen:
		// It ran under a gateway whose folder is gone. Starting it would run it twice.
		a.never[at.AttemptId] = verdict{"lost", "the gateway does not know this run any more"}
	case a.early[at.AttemptId]:
		a.never[at.AttemptId] = verdict{"stopped", "stopped before it started"}
	default:
		return false
	}
	return true
}

// follow reports a run's start now and its end when it comes.
func (a *Agent) follow(ctx context.Context, run *sandbox.Run) {
	a.mark(run.ID())
	go func() {
		select {
		case <-run.Done():
			a.devices.release(run.ID()) // before the platform hears of it and sends the next one
			a.mark(run.ID())
		case <-ctx.Done():
		}
	}()
}

// mark says that an attempt has something to report.
func (a *Agent) mark(ids ...string) {
	a.mu.Lock()
	for _, id := range ids {
		a.dirty[id] = true
	}
	a.mu.Unlock()
	signal(a.wake)
}

func (a *Agent) remove(r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	for _, id := range r.Stop {
		a.stop(id)
	}
	return &adapterv1.RemoveResponse{}, nil
}

func (a *Agent) stop(id string) {
	lock := a.lock(id)
	lock.Lock()
	defer lock.Unlock()
	run, err := a.sb.Get(id)
	if err != nil {
		// It is forgotten, or it has yet to come; the platform then sends it, to
		// hear from us that it does not run.
		if !a.ledger.has(id) {
			a.mu.Lock()
			a.early[id] = true
			a.mu.Unlock()
		}
		return
	}
	if err := run.Stop(); err != nil {
		a.log.Warn("run not stopped", "attempt_id", id, "error", err)
	}
}

const maxLogPiece = 512 << 10

func (a *Agent) readLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	run, err := a.sb.Get(r.AttemptId)
	if err != nil {
		return nil, err
	}
	limit := r.Limit
	if limit <= 0 || limit > maxLogPiece {
		limit = maxLogPiece
	}
	res := &adapterv1.ReadLogResponse{Offset: r.Offset}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(min(r.WaitMilliseconds, 10_000))*time.Millisecond+time.Second)
	defer cancel()
	log := run.Log(r.Offset, r.WaitMilliseconds > 0)
	defer func() { _ = log.Close() }() // read only
	for int64(len(res.Data)) < limit {
		c, err := log.Next(ctx)
		if err != nil {
			// io.EOF, or nothing came in time: the platform asks again.
			_, res.End = run.Result()
			return res, nil
		}
		if len(res.Data) == 0 {
			res.Offset = c.Offset
		}
		res.Data = append(res.Data, c.Data...)
		if r.WaitMilliseconds > 0 {
			break // the first bytes are what is waited for
		}
	}
	if int64(len(res.Data)) > limit {
		res.Data = res.Data[:limit]
	}
	return res, nil
}

func cleanText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
