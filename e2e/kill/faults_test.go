package kill_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/enginetest"
)

// Environment variables of TestFaults: how long faults happen (it is skipped
// without), the seed of the random choices, and the kinds, all if it is not set.
const (
	faultsFor   = "YUNHE_TEST_FAULTS_FOR"
	faultsSeed  = "YUNHE_TEST_FAULTS_SEED"
	faultsKinds = "YUNHE_TEST_FAULTS_KINDS"
)

// world is a platform on several hosts, with what it stands on.
type world struct {
	*cluster
	t       *testing.T
	rng     *rand.Rand
	hosts   *enginetest.Hosts
	nats    []*node
	store   *enginetest.PostgresServer // that is written
	standby *enginetest.PostgresServer
	at      [2]int   // the hosts of both
	disks   []string // of the objects and of each gateway
	log     faultLog
	since   time.Time
}

// TestFaults has every part of a platform fail, over and over, under load:
// processes are killed or stand still, servers of the bus are lost, the database
// restarts or is lost and its standby takes over, hosts are cut off, disks are
// full, clocks jump. In the end nothing that was acknowledged is lost, done
// twice or billed wrongly, what was read was never older than what had been
// read before, and what was written under a lease was written by its owner.
// A host here is a network of its own; the clock is that of one process, and not
// of the runs that a gateway starts.
func TestFaults(t *testing.T) {
	text := os.Getenv(faultsFor)
	if text == "" {
		t.Skipf("SKIPPED: it takes as long as %s says, such as 2m; make test-faults runs it", faultsFor)
	}
	length, err := time.ParseDuration(text)
	must(t, err)
	seed := rand.Uint64()
	if s := os.Getenv(faultsSeed); s != "" {
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("%s of faults, %s=%d", length, faultsSeed, seed)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := newWorld(t, ctx, rand.New(rand.NewPCG(seed, 1)))
	proofs := newProofsAt(t, w.hosts.Address)
	p := &progress{done: map[string]bool{}}
	proofs.first = p.add
	l := &load{c: w.cluster, p: p, proofs: proofs, kinds: map[string]string{}, first: map[string]bool{}, stops: make(chan string, 1<<20)}
	u := &users{load: l, rng: rand.New(rand.NewPCG(seed, 2))}

	group, gctx := errgroup.WithContext(ctx)
	lctx, end := context.WithCancel(gctx)
	begin := time.Now()
	u.run(gctx, lctx, group)
	group.Go(func() error {
		defer end()
		return w.fail(gctx, length)
	})
	if err := group.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, w.tails())
	}
	took := time.Since(begin)
	if err := w.await(ctx, int64(len(l.kinds))); err != nil {
		t.Fatalf("%v\n%s", err, w.tails())
	}
	l.full = w.log.full
	r := l.check(t, ctx)
	u.check(t, took)
	u.checkTimes(t, ctx)
	w.checkLeases(t)
	w.checkLeaseHistory(t, ctx)
	w.checkLogs(t)
	w.stopAll(t)
	t.Logf("%d jobs, %d runs; %s", len(l.kinds), r.runs, w.log.summary())
	w.compare(t, u, took)
}

func newWorld(t *testing.T, ctx context.Context, rng *rand.Rand) *world {
	bin, err := enginetest.Binary()
	must(t, err)
	groups, copies := planned(t, bin, 3), 3
	n := len(groups) * copies
	w := &world{t: t, rng: rng, since: time.Now(), hosts: enginetest.Network(t, n+5+gateways), at: [2]int{n + 3, n + 4}}
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	must(t, os.MkdirAll(keys, 0o700))
	_, err = bus.LoadTrust(keys) // makes them
	must(t, err)
	nats, urls := startNATS(t, &cluster{dir: dir}, w.hosts, n, dir, keys)
	w.nats = nats
	w.store = enginetest.PostgresOwn(t, w.postgres(0))
	dsn, _, err := w.store.NewDatabase(ctx)
	must(t, err)
	w.standby, err = w.store.StartStandby(ctx, w.postgres(1))
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(w.store.Close(), w.standby.Close())) })
	both, err := url.Parse(dsn)
	must(t, err)
	both.Host = w.hosts.Host(w.at[0]).Address + ":5432," + w.hosts.Host(w.at[1]).Address + ":5432"
	both.RawQuery += "&target_session_attrs=read-write"
	w.disks = []string{enginetest.Disk(t, "256m")}
	m := many{groups: groups, copies: copies, database: both.String(), bus: urls, hosts: w.hosts, objects: filepath.Join(w.disks[0], "objects"), bin: bin}
	for i := range gateways {
		m.gatewayHosts = append(m.gatewayHosts, w.hosts.Host(n+5+i))
		m.gatewayDirs = append(m.gatewayDirs, enginetest.Disk(t, "128m"))
	}
	w.disks = append(w.disks, m.gatewayDirs...)
	w.cluster = startMany(t, ctx, m, keys, 16)
	must(t, w.watchLeases(ctx))
	return w
}

// postgres is the configuration of a server on the first or second host: it
// crashes, its machine does not.
func (w *world) postgres(i int) enginetest.PostgresConfig {
	return enginetest.PostgresConfig{NotDurable: true, Host: w.hosts.Host(w.at[i]), Disk: "1g",
		Settings: map[string]string{"synchronous_commit": "on", "track_commit_timestamp": "on", "max_wal_size": "128MB", "min_wal_size": "32MB"}}
}

func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// faults by kind. Each does harm, mends it, and says what it did.
var faults = map[string]func(w *world, ctx context.Context) (string, error){
	"kill":      (*world).kill,
	"freeze":    (*world).freeze,
	"bus":       (*world).loseBus,
	"restart":   (*world).restartStore,
	"failover":  (*world).loseStore,
	"partition": (*world).partition,
	"disk":      (*world).fillDisk,
	"database":  (*world).fillStore,
	"clock":     (*world).jump,
}

// fail does one fault after the other for so long, each kind as often.
func (w *world) fail(ctx context.Context, length time.Duration) error {
	kinds := []string{"kill", "freeze", "bus", "restart", "failover", "partition", "disk", "database", "clock"}
	if only := os.Getenv(faultsKinds); only != "" {
		kinds = strings.Split(only, ",")
	}
	end := time.Now().Add(length)
	pause(ctx, 3*time.Second)
	for time.Now().Before(end) {
		for _, i := range w.rng.Perm(len(kinds)) {
			if time.Now().After(end) || ctx.Err() != nil {
				break
			}
			do := faults[kinds[i]]
			if do == nil {
				return fmt.Errorf("%s names the fault %q, which there is not", faultsKinds, kinds[i])
			}
			begin := time.Now()
			what, err := do(w, ctx)
			if err != nil {
				return fmt.Errorf("fault %s, %s: %w", kinds[i], what, err)
			}
			harm := time.Since(begin)
			if err := w.settle(ctx); err != nil {
				return fmt.Errorf("after the fault %s, %s: %w", kinds[i], what, err)
			}
			w.log.did(kinds[i], begin, harm)
			w.t.Logf("%7.1f s: %s; all well %.1f s later", time.Since(end.Add(-length)).Seconds(), what, (time.Since(begin) - harm).Seconds())
			pause(ctx, w.between(time.Second, 3*time.Second))
		}
	}
	return ctx.Err()
}

// settle waits until every process is ready.
func (w *world) settle(ctx context.Context) error {
	for _, n := range w.nodes {
		select {
		case <-n.prog.Done():
			// A supervisor starts it again.
			w.log.ended = append(w.log.ended, n.name+": "+n.prog.Tail())
			if err := n.start(); err != nil {
				return err
			}
		default:
		}
		if n.url != "" {
			if err := n.ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) kill(ctx context.Context) (string, error) {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	dead := w.between(0, 3*time.Second)
	at := time.Now()
	back, err := n.killAndRestart(ctx, dead)
	if n.url != "" {
		w.log.down(n.name, at, time.Now())
		w.log.killed = append(w.log.killed, moment{n.name, at})
	}
	return fmt.Sprintf("%s killed, dead for %s, ready in %s", n.name, dead.Round(time.Millisecond), back.Round(time.Millisecond)), err
}

func (w *world) freeze(ctx context.Context) (string, error) {
	victims := slices.Concat(w.nodes, w.nats)
	n := victims[w.rng.IntN(len(victims))]
	for_ := w.between(5*time.Second, 30*time.Second)
	at := time.Now()
	err := n.prog.Freeze()
	pause(ctx, for_)
	err = errors.Join(err, n.prog.Thaw())
	if n.url != "" {
		w.log.down(n.name, at, time.Now())
	}
	w.log.frozen = append(w.log.frozen, shift{n.name, at, time.Now(), 0})
	return fmt.Sprintf("%s stood still for %s", n.name, for_.Round(time.Second)), err
}

func (w *world) loseBus(ctx context.Context) (string, error) {
	n := w.nats[w.rng.IntN(len(w.nats))]
	dead := w.between(time.Second, 10*time.Second)
	_, err := n.killAndRestart(ctx, dead)
	return fmt.Sprintf("%s killed for %s", n.name, dead.Round(time.Millisecond)), err
}

func (w *world) restartStore(ctx context.Context) (string, error) {
	begin := time.Now()
	stop, how := w.store.Stop, "restarted"
	if w.rng.IntN(2) == 0 {
		stop, how = w.store.Crash, "crashed and started"
	}
	err := errors.Join(stop(), w.store.Start(ctx))
	w.log.down("database", begin, time.Now())
	return fmt.Sprintf("the database %s in %s", how, time.Since(begin).Round(time.Millisecond)), err
}

func (w *world) loseStore(ctx context.Context) (string, error) {
	begin := time.Now()
	if err := w.store.Crash(); err != nil {
		return "", err
	}
	pause(ctx, time.Second) // until someone notices
	if err := w.standby.Promote(ctx); err != nil {
		return "", err
	}
	took := time.Since(begin)
	w.log.down("database", begin, time.Now())
	lost := w.store
	w.store = w.standby
	w.at[0], w.at[1] = w.at[1], w.at[0]
	if err := lost.Close(); err != nil {
		return "", err
	}
	fresh, err := w.store.StartStandby(ctx, w.postgres(1))
	if err == nil {
		w.standby = fresh
	}
	return fmt.Sprintf("the database lost, its standby in its place after %s, and a new standby", took.Round(time.Millisecond)), err
}

func (w *world) partition(ctx context.Context) (string, error) {
	platform := len(w.nodes) - gateways
	i := w.rng.IntN(platform + 5 + gateways)
	name := "the host of "
	store := i == w.at[0] || i == w.at[1]
	switch {
	case i < platform:
		name += w.nodes[i].name
	case i < platform+3:
		name += w.nats[i-platform].name
	case i == w.at[0]:
		name += "the database"
	case i == w.at[1]:
		name += "the standby"
	default:
		name += w.nodes[i-5].name
	}
	h, for_, begin := w.hosts.Host(i), w.between(5*time.Second, 20*time.Second), time.Now()
	if store {
		for_ = w.between(3*time.Second, 8*time.Second) // nothing can be written meanwhile
	}
	err := h.Cut(ctx)
	pause(ctx, for_)
	err = errors.Join(err, h.Join(context.WithoutCancel(ctx)))
	switch {
	case i < platform:
		w.log.down(w.nodes[i].name, begin, time.Now())
	case store:
		w.log.down("database", begin, time.Now())
	}
	return fmt.Sprintf("%s cut off for %s", name, for_.Round(time.Millisecond)), err
}

func (w *world) fillDisk(ctx context.Context) (string, error) {
	i := w.rng.IntN(len(w.disks))
	name := "the objects"
	if i > 0 {
		name = w.nodes[len(w.nodes)-gateways+i-1].name
	}
	for_, begin := w.between(3*time.Second, 10*time.Second), time.Now()
	free, err := enginetest.FillDisk(w.disks[i])
	if err != nil {
		return "", err
	}
	pause(ctx, for_)
	err = free()
	if i > 0 {
		w.log.full = append(w.log.full, shift{w.centers[i-1], begin, time.Now(), 0})
	}
	return fmt.Sprintf("the disk of %s full for %s", name, for_.Round(time.Millisecond)), err
}

// fillStore fills the disk of the database, which may end of it.
func (w *world) fillStore(ctx context.Context) (string, error) {
	for_, begin, how := w.between(3*time.Second, 8*time.Second), time.Now(), ""
	free, err := w.store.FillDisk()
	if err != nil {
		return "", err
	}
	pause(ctx, for_)
	err = free()
	if !w.store.Running() {
		how = ", of which it ended"
		err = errors.Join(err, w.store.Start(ctx))
	}
	w.log.down("database", begin, time.Now())
	return fmt.Sprintf("the disk of the database full for %s%s", for_.Round(time.Millisecond), how), err
}

func (w *world) jump(ctx context.Context) (string, error) {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	by := w.between(time.Minute, time.Hour).Round(time.Second)
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	for_ := w.between(5*time.Second, 15*time.Second)
	at := time.Now()
	undo, err := jumpClock(n.prog, by)
	if err != nil {
		return "", err
	}
	pause(ctx, for_)
	err = undo()
	w.log.shifted = append(w.log.shifted, shift{n.name, at, time.Now(), by})
	return fmt.Sprintf("the clock of %s jumped by %s for %s", n.name, by, for_.Round(time.Second)), err
}

// stopAll ends all processes in order.
func (w *world) stopAll(t *testing.T) {
	for _, n := range w.nodes {
		if err := n.prog.Stop(); err != nil {
			t.Error(err)
		}
	}
}
