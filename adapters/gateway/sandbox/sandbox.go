package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// Config says where and for whom runs are kept.
type Config struct {
	Dir       string   // absolute; made if missing; one gateway at a time
	GatewayID string   // names this gateway's control groups
	HostPaths []string // host folders shown read-only to commands without image, besides /usr and the like: "/path", or "/path=/where" to show it elsewhere
	FirstUID  uint32   // lowest of the user ids given to runs; default 200000
	UIDs      uint32   // how many there are, which bounds the runs at a time; default 100000

	Cgroups string   // where control groups are mounted; default /sys/fs/cgroup
	Runner  []string // how to start a runner; default: the one embedded, see [runner.Main]
}

// Sandbox starts runs and keeps track of them. Its methods are safe for
// concurrent use.
type Sandbox struct {
	cfg    Config
	log    *slog.Logger
	lock   *os.File
	groups *cgroups
	runner []string
	root   [2][]runner.Node // without image: without and with network
	null   *os.File
	errs   *os.File // what runners have to complain about
	closed chan struct{}
	watch  sync.WaitGroup // one per running run
	adopt  sync.Mutex     // held by Adopt

	// mu guards what follows.
	mu      sync.Mutex
	adopted bool
	closing bool
	runs    map[string]*Run
	uids    map[uint32]string // taken, by whom
	nextUID uint32
}

// New returns a Sandbox on cfg.Dir. It starts nothing, not even a look at
// the runs that are there (see Adopt). It returns an Invalid fault for a bad
// Config, Conflict if another process uses the folder, Unimplemented on
// systems other than Linux, and Unavailable if this machine cannot keep what
// a Spec asks for: no root, no control groups, no way to run the runner.
func New(cfg Config, log *slog.Logger) (*Sandbox, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := checkHost(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the folder of runs %s cannot be made", cfg.Dir)
	}
	s := &Sandbox{
		cfg: cfg, log: log.With("component", "sandbox"), closed: make(chan struct{}),
		runs: map[string]*Run{}, uids: map[uint32]string{}, nextUID: cfg.FirstUID,
	}
	if err := s.open(); err != nil {
		s.closeFiles()
		return nil, err
	}
	return s, nil
}

func (c *Config) validate() error {
	if c.FirstUID == 0 {
		c.FirstUID = 200_000
	}
	if c.UIDs == 0 {
		c.UIDs = 100_000
	}
	if c.Cgroups == "" {
		c.Cgroups = "/sys/fs/cgroup"
	}
	var v violations
	if !filepath.IsAbs(c.Dir) || filepath.Clean(c.Dir) == "/" {
		v.add("dir", "must be an absolute path below /, got %q", c.Dir)
	}
	if !validID(c.GatewayID) {
		v.add("gateway_id", "must be 1 to 64 letters, digits, '.', '_' or '-', not starting with '.' or '-', got %q", c.GatewayID)
	}
	for i, entry := range c.HostPaths {
		source, p := hostPath(entry)
		for _, x := range []string{source, p} {
			if !filepath.IsAbs(x) || filepath.Clean(x) != x || x == "/" {
				v.add(fmt.Sprintf("host_paths[%d]", i), "must be a clean absolute path below /, got %q", x)
			}
		}
		for _, own := range []string{"/proc", "/dev", "/tmp", "/etc", "/var/tmp", runner.Dir} {
			if p == own || strings.HasPrefix(p, own+"/") {
				v.add(fmt.Sprintf("host_paths[%d]", i), "must not lie in %s, which runs have of their own, got %q", own, p)
			}
		}
	}
	// 65534 and -1 mean nobody and nothing; users of the machine come first.
	if c.FirstUID < 65536 || uint64(c.FirstUID)+uint64(c.UIDs) >= 1<<32-1 {
		v.add("first_uid", "the range %d+%d must lie between 65536 and 4294967294", c.FirstUID, c.UIDs)
	}
	return fault.Fields(v...)
}

// open takes hold of what s needs; closeFiles lets go, also after a failure.
func (s *Sandbox) open() (err error) {
	if s.lock, err = os.OpenFile(filepath.Join(s.cfg.Dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder of runs %s is not usable", s.cfg.Dir)
	}
	// A gateway killed while it was forking leaves a child that holds the
	// lock until its exec, a moment later.
	free, err := tryLock(s.lock)
	for end := time.Now().Add(time.Second); err == nil && !free && time.Now().Before(end); free, err = tryLock(s.lock) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder of runs %s cannot be locked", s.cfg.Dir)
	}
	if !free {
		return fault.New(fault.Conflict, "the folder of runs %s is in use by another gateway", s.cfg.Dir)
	}
	if s.groups, err = openCgroups(s.cfg.Cgroups, "yunhe/"+s.cfg.GatewayID); err != nil {
		return err
	}
	if s.runner = s.cfg.Runner; len(s.runner) == 0 {
		if s.runner, err = runnerCommand(s.cfg.Dir); err != nil {
			return err
		}
	}
	if err := checkRunner(s.runner); err != nil {
		return err
	}
	for i := range s.root {
		if s.root[i], err = hostRoot(s.cfg.HostPaths, i == 1); err != nil {
			return fmt.Errorf("look at the host's programs: %w", err)
		}
	}
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	s.errs, err = os.OpenFile(filepath.Join(s.cfg.Dir, ".runners.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return err
}

func (s *Sandbox) closeFiles() {
	for _, f := range []*os.File{s.null, s.errs, s.lock} {
		if f != nil {
			f.Close()
		}
	}
}

// Close stops watching and lets go of the folder. Runs go on: the next
// gateway adopts them. Nothing else may be called on s afterwards; what is
// known of its runs can still be read.
func (s *Sandbox) Close() {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	runs := s.all()
	s.mu.Unlock()
	if again {
		return
	}
	close(s.closed)
	for _, r := range runs {
		r.mu.Lock()
		if r.proc != nil {
			r.proc.close()
		}
		r.mu.Unlock()
	}
	s.watch.Wait()
	s.closeFiles()
}

// all returns every run by ID; s.mu is held.
func (s *Sandbox) all() []*Run {
	runs := make([]*Run, 0, len(s.runs))
	for _, r := range s.runs {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *Run) int { return strings.Compare(a.id, b.id) })
	return runs
}

// Start runs spec, once for its ID whatever happens: a second call, also
// after a restart of the gateway, returns the run that is or was. It returns
// when the command runs or has failed to (then Result says start_failed);
// when ctx ends before, it returns the run all the same. Errors are faults:
// Invalid for spec, Exhausted if all user ids are taken, Unavailable if the
// machine refused; then nothing ran and nothing is left of the attempt.
func (s *Sandbox) Start(ctx context.Context, spec Spec) (*Run, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	spec = spec.withDefaults()
	if err := s.adoptOnce(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	r, exists := s.runs[spec.ID]
	if !exists {
		uid, err := s.takeUID(spec.ID)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		r = s.newRun(spec.ID)
		r.uid, r.logFileBytes = uid, spec.LogFileBytes
		s.runs[spec.ID] = r
	}
	s.mu.Unlock()
	if exists {
		select {
		case <-r.launched:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r.mu.Lock()
		defer r.mu.Unlock()

		if r.err != nil {
			return nil, r.err
		}
		return r, nil
	}
	ready, err := s.launch(r, spec)
	if err != nil {
		s.mu.Lock()
		delete(s.runs, r.id)
		delete(s.uids, r.uid)
		s.mu.Unlock()
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		close(r.launched)
		return nil, err
	}
	close(r.launched)
	r.awaitReady(ctx, ready)
	return r, nil
}

func (s *Sandbox) newRun(id string) *Run {
	return &Run{
		id: id, dir: filepath.Join(s.cfg.Dir, id), groups: s.groups.plan(id, Spec{}),
		launched: make(chan struct{}), done: make(chan struct{}),
	}
}

// launch writes the attempt's spec and starts its runner. The spec needs no
// fsync: what must survive a power failure is that the attempt was started,
// and the runner sees to that. On error nothing is left of the attempt.
func (s *Sandbox) launch(r *Run, spec Spec) (ready *os.File, err error) {
	root := s.root[0]
	if spec.Network {
		root = s.root[1]
	}
	if spec.RootFS != "" {
		if root, err = imageRoot(spec.RootFS, spec.Network); err != nil {
			return nil, err
		}
		root = append(root, imageAccounts(spec.RootFS, spec.ImageUser, r.uid)...)
	}
	devices, err := hostDevices(spec.Devices)
	if err != nil {
		return nil, err
	}
	volumes, err := runnerVolumes(spec.Volumes)
	if err != nil {
		return nil, err
	}
	groups := s.groups.plan(r.id, spec)
	if len(devices) > 0 && s.groups.devices != "" {
		groups.All = append(groups.All, s.groups.deviceGroup(r.id, devices))
	}
	r.devices = sources(devices)
	b, err := json.Marshal(spec.plan(r.uid, root, devices, volumes, groups))
	if err != nil {
		return nil, fmt.Errorf("encode spec of run %s: %w", r.id, err)
	}
	refused := func(err error) (*os.File, error) {
		if rerr := os.RemoveAll(r.dir); rerr != nil {
			s.log.Warn("folder of failed start stays", "run_id", r.id, "error", rerr)
		}
		return nil, fault.Wrap(fault.Unavailable, err, "run %s cannot be started on this machine now", r.id)
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "run %s cannot be started on this machine now", r.id)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(r.dir, runner.SpecFile), b, 0o600), runner.Reserve(r.dir)); err != nil {
		return refused(err)
	}
	ready, w, err := os.Pipe()
	if err != nil {
		return refused(err)
	}
	var owners *os.File
	if len(volumes) > 0 {
		if owners, err = mapUser(s.runner, s.VolumeUID(), int(r.uid)); err != nil {
			closeAll(ready, w)
			return refused(err)
		}
		defer owners.Close()
	}
	argv := append(s.runner[:len(s.runner):len(s.runner)], r.dir)
	proc, err := spawn(argv, runnerEnv, s.null, s.errs, w, owners)
	w.Close()
	if err != nil {
		ready.Close()
		return refused(err)
	}
	s.follow(r, proc)
	return ready, nil
}

// awaitReady returns when the command runs, the runner has ended or ctx has.
func (r *Run) awaitReady(ctx context.Context, ready *os.File) {
	defer ready.Close()
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var buf [32]byte
	n, _ := ready.Read(buf[:]) // an end without text: the record will tell
	at, err := strconv.ParseInt(string(buf[:n]), 10, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.startedAt.IsZero() {
		r.startedAt = micros(at)
	}
}

// follow waits for the runner's end in the background.
func (s *Sandbox) follow(r *Run, proc *process) {
	r.mu.Lock()
	r.proc = proc
	r.mu.Unlock()
	s.watch.Go(func() {
		_ = proc.wait() // fails only when Close closed it
		select {
		case <-s.closed:
			return
		default:
		}
		s.conclude(r)
	})
}

// conclude gives a run whose runner has ended its result: the record the
// runner left, or else one that says it is lost.
func (s *Sandbox) conclude(r *Run) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		e, err := s.settle(r)
		if err == nil {
			s.mu.Lock()
			delete(s.uids, r.uid)
			s.mu.Unlock()
			r.finish(e)
			s.log.Info("run ended", "run_id", r.id, "reason", e.Reason, "exit_code", e.ExitCode)
			return
		}
		s.log.Warn("end of run cannot be recorded, will try again", "run_id", r.id, "error", err)
		select {
		case <-s.closed:
			return
		case <-time.After(pause):
		}
	}
}

// Get returns the run with the given ID, a NotFound fault if there is none.
// It knows the runs of an earlier gateway once Adopt has returned.
func (s *Sandbox) Get(id string) (*Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r, ok := s.runs[id]
	if !ok {
		return nil, fault.New(fault.NotFound, "there is no run %q on this gateway", id)
	}
	return r, nil
}

// Usages reads what each run that is running uses, by ID.
func (s *Sandbox) Usages() map[string]Usage {
	s.mu.Lock()
	runs := s.all()
	s.mu.Unlock()
	out := make(map[string]Usage, len(runs))
	for _, r := range runs {
		if _, ended := r.Result(); ended {
			continue
		}
		if u, err := r.Usage(); err == nil { // else it is starting or just over
			out[r.id] = u
		}
	}
	return out
}

// trashPrefix marks folders on their way out: a removal cut short must not
// turn an ended run into a lost one.
const trashPrefix = ".trash-"

// Remove forgets an ended run and deletes its output. Its ID is free again:
// the caller MUST NOT use it for another attempt. It returns NotFound, or
// Conflict if the run has not ended.
func (s *Sandbox) Remove(id string) error {
	r, err := s.Get(id)
	if err != nil {
		return err
	}
	if _, ended := r.Result(); !ended {
		return fault.New(fault.Conflict, "run %s has not ended", id)
	}
	trash := filepath.Join(s.cfg.Dir, trashPrefix+id)
	if err := os.Rename(r.dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Unavailable, err, "run %s cannot be removed", id)
	}
	s.mu.Lock()
	if s.runs[id] == r {
		delete(s.runs, id)
	}
	s.mu.Unlock()
	if err := os.RemoveAll(trash); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the output of run %s cannot be deleted", id)
	}
	return nil
}

// takeUID gives a user id no other run has; s.mu is held. They go round so
// that a number is not used again soon.
func (s *Sandbox) takeUID(id string) (uint32, error) {
	if uint64(len(s.uids)) >= uint64(s.cfg.UIDs) {
		return 0, fault.New(fault.Exhausted, "all %d user ids are taken by running runs", s.cfg.UIDs)
	}
	for {
		uid := s.nextUID
		if s.nextUID++; s.nextUID >= s.cfg.FirstUID+s.cfg.UIDs {
			s.nextUID = s.cfg.FirstUID
		}
		if _, taken := s.uids[uid]; !taken {
			s.uids[uid] = id
			return uid, nil
		}
	}
}
