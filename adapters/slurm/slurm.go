// Package slurm makes a Slurm cluster a computing center. It speaks to
// slurmrestd and to nothing else, as one user of the cluster, with a token.
//
//	platform ──gRPC── driver ──HTTP, JWT── slurmrestd ── slurmctld ── slurmd
//	                    └──── output_dir (optional; pool.go writes there, too) ──── shared file system
//
// # One attempt, one job
//
// An attempt is a batch job named "yunhe:ATTEMPT"; its comment has the center
// and, once asked for, "stop". Replicas are not made elements of a job array,
// though Slurm has those: the contract's unit is the attempt, and a replica
// placed later, retried, stopped or given other files or other environment would
// not fit an array submitted before; with an array, one lost answer would
// leave a whole array in doubt instead of one job. What an array would save,
// memory in slurmctld while jobs wait, is kept small by what the platform holds back.
//
// # At most once
//
// The driver keeps nothing on disk. What was submitted it reads from GET jobs,
// and before it has read that whole list once, it submits nothing. One gap is
// left: a submission whose answer was lost, because this process was killed or
// the network broke, may still be on its way through slurmrestd when the list
// is read. Slurm has no submission that fails if the name exists. So the
// decision is made where the work is done: the batch script ([plan.script])
// begins by making a link in the attempt's folder on the shared file system,
// which only one job can make; any other ends at once by a signal that nothing
// else uses, and is not taken for the attempt ([choose]). The link
// stays until the attempt is forgotten, when a tombstone takes its place. So the
// command runs at most once, whatever is killed, as long as the directory is on
// one file system for all nodes.
//
// # States
//
//	PENDING, CONFIGURING, REQUEUED        pending, with Slurm's reason in plain words
//	RUNNING, SUSPENDED, COMPLETING        running; suspended while the command stands
//	                                      still because the platform asked (hold.go);
//	                                      pending until it has its shares of the pool
//	COMPLETED                             completed
//	FAILED                                exit, signal; by the script's own signals
//	                                      stopped, wall_time, start_failed
//	TIMEOUT, DEADLINE                     wall_time
//	OUT_OF_MEMORY                         oom
//	CANCELLED                             stopped, with a message if it was not the platform
//	PREEMPTED, NODE_FAIL, BOOT_FAIL       lost (requeue: PREEMPTED goes back to pending)
//	put back after it had begun           lost, unless requeue lets it run again
//	ended by SIGTERM, and not by us       lost: only the cluster sends that to a script
//	not listed any more                   as the folder says, else slurmdbd, else lost
//
// slurmctld is authoritative for states and times while it lists a job
// (MinJobAge, 300 s by default, after its end). An end once told never changes.
//
// # Failure
//
//   - slurmrestd or slurmctld down, token refused, TLS wrong, nonsense for an
//     answer: Watch tells it as trouble, calls fail as unavailable, and nothing
//     is concluded from it. A list that is not whole counts as no list.
//   - slurmctld killed before it saved a job it had accepted: the job is not
//     listed in two whole answers; then the attempt ends, never_started if its
//     folder shows that it has not run, otherwise lost.
//   - Shared file system slow or gone from here: ends are told without log and
//     CPU time; ReadLog fails. At the nodes: the script ends with start_failed.
//   - Clocks: all times are the cluster's. update_time, which spares reading an
//     unchanged list, is taken from the cluster's clock as well.
//
// # What it cannot do
//
// Slurm does not isolate the network of jobs and runs all of them as one user,
// so attempts can read each other's files. A command that exits with 128+n
// is not told from one that signal n ended.
package slurm

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// Name of the driver.
const Name = "slurm"

// Version of the driver.
const Version = "1.0"

// Driver serves one center. It is safe for concurrent use.
type Driver struct {
	adapter.Unimplemented
	cfg    Config
	center string
	log    *slog.Logger
	api    *client
	folder *folder // nil without output_dir
	way    *way    // nil if slurmrestd is behind a socket

	accounts accounts

	board  adapter.Board[*adapterv1.Status]
	stop   context.CancelFunc
	loops  sync.WaitGroup // the poll loop and what it started
	finish chan struct{}  // one place for each reader of folders
	kick   chan struct{}  // asks for a look at the jobs now

	submitting atomic.Int64 // submissions under way
	waiting    atomic.Int64 // calls that wait for a look at the jobs

	mu       sync.Mutex // guards the fields below and those of attempts
	attempts map[string]*attempt
	seen     time.Time     // when the last whole list of jobs was asked for; zero: never
	news     chan struct{} // closed and replaced when a field of view or seen changes
	view     view
}

// workers is how many requests about single jobs are under way at once.
// slurmrestd serves 20 connections by default, and others use it too.
const workers = 8

// readers is how many folders are read at once.
const readers = 16

// New returns a driver that is looking at the cluster already. It fails only
// for a configuration that is wrong in itself: a cluster that is down is
// trouble in Watch, and resolves by itself. ctx is for New alone; Close ends
// the driver.
func New(ctx context.Context, center string, cfg Config, log *slog.Logger) (*Driver, error) {
	if err := cfg.complete(center); err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, center: center, log: log.With("component", "slurm", "center_id", center),
		attempts: map[string]*attempt{}, news: make(chan struct{}), kick: make(chan struct{}, 1), finish: make(chan struct{}, readers),
		accounts: accounts{used: map[string]settled{}},
	}
	var err error
	if d.api, err = newClient(&d.cfg); err != nil {
		return nil, err
	}
	if cfg.OutputDir != "" {
		d.folder = &folder{base: cfg.OutputDir, center: center}
	}
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop, d.way = stop, newWay(d.cfg.URL)
	d.loops.Go(func() { d.poll(loop) })
	if d.way != nil {
		d.loops.Go(func() { d.way.run(loop) })
	}
	return d, nil
}

// Close ends the driver; jobs go on. It waits until nothing of the driver runs.
func (d *Driver) Close() {
	d.stop()
	d.loops.Wait()
	d.api.close()
}

// Describe names the driver, its configuration and what it offers: a driver
// without a cluster all that it can, one with a cluster what it can there.
// Control of nodes needs v0.0.39, suspending an output_dir, accounts and shares of
// the accelerator pool that the configuration says so.
func (d *Driver) Describe(ctx context.Context, _ *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	schema, err := adapter.Schema[Config]()
	if err != nil {
		return nil, err
	}
	out := &adapterv1.DescribeResponse{Name: Name, Version: Version, Parts: []adapterv1.Part{adapterv1.Part_PART_JOB}, ConfigSchema: schema}
	out.Features = append(out.Features, adapterv1.Feature_FEATURE_NODE)
	if d.api == nil || d.folder != nil {
		out.Features = append(out.Features, adapterv1.Feature_FEATURE_SUSPEND)
	}
	if d.api == nil || d.cfg.PoolProgram != "" {
		out.Features = append(out.Features, adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA)
	}
	if d.api == nil || d.cfg.PoolFolder != "" {
		out.Features = append(out.Features, adapterv1.Feature_FEATURE_POOL_LOCAL)
	}
	if d.api == nil || d.cfg.Accounts {
		out.Parts = append(out.Parts, adapterv1.Part_PART_ACCOUNT)
	}
	if d.api == nil || d.setsNodes(ctx) {
		out.Parts = append(out.Parts, adapterv1.Part_PART_RESOURCE)
	}
	return out, nil
}

// tell wakes who waits for news; d.mu is held.
func (d *Driver) tell() {
	close(d.news)
	d.news = make(chan struct{})
}

// look asks for a look at the jobs soon.
func (d *Driver) look() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// patience is how long a call waits for a look at the jobs. The platform gives
// up a call after ten seconds.
const patience = 4 * time.Second

// whole waits until a whole list of jobs is known that was asked for after t.
func (d *Driver) whole(ctx context.Context, t time.Time) error {
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		d.mu.Lock()
		known, news, trouble := d.seen.After(t), d.news, d.view.trouble
		d.mu.Unlock()
		if known {
			return nil
		}
		if trouble != "" {
			return unavailable("%s", trouble)
		}
		d.look()
		select {
		case <-news:
		case <-ctx.Done():
			return canceled(ctx)
		case <-timer.C:
			return unavailable("the jobs of %s could not be read within %v", d.api.where(), patience)
		}
	}
}

// hostname for messages about this machine.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return name
}
