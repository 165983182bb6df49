// Package kubernetes is the driver for centers that are Kubernetes clusters:
// any conformant one, reached by a kubeconfig or from inside.
//
// # What runs an attempt
//
// Each attempt is one batch/v1 Job of one pod, tried once (backoffLimit 0,
// restartPolicy Never). Replicas of a task are Jobs of their own and not
// indexes of one: the platform places, retries, stops and bills each by
// itself, perhaps at different centers.
//
//	                Apply                       the pod runs          it ends
//	(nothing) ──────────────▶ Job, pod pending ────────────▶ running ────────▶ noted at the Job
//	    │                           │ stop: suspend the Job     │ stop: deadline    │
//	    │ stop, or seen before      ▼                           ▼ of the pod        │ forget
//	    └───────────────────▶ tombstone ◀── Job deleted by      noted at the Job    ▼
//	                                        somebody else                       (nothing)
//
// # What it keeps true
//
//   - The cluster is all its memory. A Job's name is made of center and attempt
//     and the cluster lets a name exist once, so an attempt is started at most
//     once, however often Apply comes and whenever the driver is killed.
//   - What must not be started (it was stopped before it came, it has run and
//     its Job is gone) gets a tombstone: a suspended Job without pods of the
//     same name, which says how the attempt ended. Only forget removes it.
//   - An end is noted at the Job before it is told, so it stays the same when
//     the pod is collected or its node removed. Exit status, times and reason
//     are the kubelet's.
//   - Stopping shortens the pod's own deadline: the kubelet then ends the
//     command in good order and keeps exit status and log, which deletion
//     would not. A pod that has no kubelet yet, or whose kubelet does not obey
//     within the grace and half a minute, is deleted by suspending the Job.
//   - A suspended attempt keeps its pod and all it holds: its processes stand
//     still, see suspend.go. It is the same run before and after.
//   - The time limit is kept without the driver, see timer, and does not count
//     the time in which an attempt stands still.
//   - A node is isolated by a cordon, and reserved for an allocation by a label
//     and a taint. What is asked stands at the node; what others change of it
//     is put right.
//   - A volume is a PersistentVolumeClaim, see volumes.go. What provides it,
//     whether it can grow and what keeps it to its size is its storage class'.
//   - Objects of others, of other centers and without our annotations are
//     never touched.
//   - What jobs ask of the cluster is what they may use (requests = limits).
//
// # What it sees
//
// Jobs, pods, nodes, quotas and complaints about Jobs are watched, never
// polled: each watch feeds one table here and changes go out at once. Of other
// people's pods only node and requests are kept. The capacity is what ready,
// schedulable nodes have, without what others' pods ask for, at most what the
// namespace's quota allows.
//
// # When it fails
//
// A cluster that is down, slow, refuses or lies is trouble told by Watch, in a
// sentence for an operator, within two seconds: a small request twice a second
// sees what a watch does not, for example a stall. Apply, Remove and Discover
// answer "unavailable" meanwhile, Observe keeps what was last true. Everything
// resumes by itself, also with new credentials in kubeconfig_file.
package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// Name is the driver's name.
const Name = "kubernetes"

// Driver serves one center, a cluster or a part of it. It is safe for
// concurrent use.
type Driver struct {
	adapter.Unimplemented
	center string
	cfg    Config // complete
	log    *slog.Logger
	maker  maker
	health *health
	prom   *prometheus // nil: none is configured
	logs   cursors

	board    adapter.Board[any]               // for Watch, see watch.go
	statuses adapter.Board[*adapterv1.Status] // by attempt, for Observe
	queue    workqueue.TypedRateLimitingInterface[string]

	feeds struct { // they outlive a change of credentials
		jobs   *feed[*batchv1.Job]
		pods   *feed[*corev1.Pod]
		others *feed[*corev1.Pod]
		nodes  *feed[*corev1.Node]
		quotas *feed[*corev1.ResourceQuota]
		events *feed[*corev1.Event]
	}

	stop context.CancelFunc
	done sync.WaitGroup

	// claims is held to read while an attempt with volumes is stored, and to
	// write while a volume is deleted. Before mu.
	claims sync.RWMutex

	// mu guards what follows.
	mu        sync.Mutex
	clients   *clients
	attempts  map[string]*attempt
	forgotten map[string]time.Time // UIDs of Jobs that were removed for good, and when
	names     map[string]string    // attempts by the names of their Jobs
	asked     map[string]asked     // how nodes are to be, by name
	complete  bool                 // whole is closed
	res       *resources
	synced    map[string]bool
	whole     chan struct{} // closed when everything was listed once
	known     chan struct{} // closed when Jobs and pods were listed once
	version   string        // of the cluster
	clock     adapter.Clock // the cluster's
	notice    string        // about it
}

// New returns a driver that serves center and starts to watch its cluster. It
// fails only for a configuration that cannot be right; that the cluster is
// down or refuses is told by Watch. The caller must Close it; ctx ends it, too.
func New(ctx context.Context, center string, cfg Config, log *slog.Logger) (*Driver, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if center == "" {
		return nil, fmt.Errorf("the center has no ID")
	}
	conn, text, err := cfg.credentials()
	if err != nil {
		return nil, err
	}
	first, err := newClients(conn, cfg.RequestsPerSecond)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	d := &Driver{clients: first,
		center: center, cfg: cfg, log: log.With("component", Name, "center_id", center), stop: stop,
		attempts: map[string]*attempt{}, forgotten: map[string]time.Time{}, names: map[string]string{}, asked: map[string]asked{}, synced: map[string]bool{},
		whole: make(chan struct{}), known: make(chan struct{}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second)),
	}
	t := newTable(cfg.mappings())
	d.res = newResources(t, center, cfg.tolerations())
	d.maker = maker{center: center, cfg: cfg, table: t}
	d.prom = newPrometheus(cfg)
	d.logs.open, d.logs.mark = d.openLog, d.markLog
	d.feeds.jobs, d.feeds.pods, d.feeds.others = d.jobs(), d.pods(), d.others()
	d.feeds.nodes, d.feeds.quotas, d.feeds.events = d.nodes(), d.quotas(), d.events()
	d.health = &health{parts: map[string]string{}, tell: func(trouble string) {
		d.board.Set(keyTrouble, trouble)
		if trouble != "" {
			d.log.Warn("cluster cannot be used", "trouble", trouble)
		} else {
			d.log.Info("cluster can be used")
		}
	}}
	d.done.Go(func() { d.sessions(ctx, first, text) })
	d.done.Go(func() { d.beat(ctx) })
	d.done.Go(func() { d.logs.sweep(ctx) })
	for range workers {
		d.done.Go(func() { d.work(ctx) })
	}
	d.done.Go(func() {
		<-ctx.Done()
		d.queue.ShutDown()
	})
	return d, nil
}

// workers is how many attempts are brought forward at a time: each waits for
// the API server or a node's log.
const workers = 16

// Close ends the driver and waits for what it does. Attempts go on.
func (d *Driver) Close() {
	d.stop()
	d.done.Wait()
	d.logs.close()
}

// Describe names the driver, its version and its configuration.
func (d *Driver) Describe(context.Context, *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	out, err := Description()
	if err == nil && d.cfg.PoolImage != "" {
		out.Features = append(out.Features, adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA)
	}
	if err == nil && d.cfg.PoolFolder != "" {
		out.Features = append(out.Features, adapterv1.Feature_FEATURE_POOL_LOCAL)
	}
	return out, err
}

// Description is what Describe answers; it needs no cluster.
func Description() (*adapterv1.DescribeResponse, error) {
	schema, err := adapter.Schema[Config]()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return &adapterv1.DescribeResponse{Name: Name, Version: version(), ConfigSchema: schema,
		Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_SUSPEND, adapterv1.Feature_FEATURE_EXEC, adapterv1.Feature_FEATURE_NODE},
		Parts:    []adapterv1.Part{adapterv1.Part_PART_RESOURCE, adapterv1.Part_PART_JOB, adapterv1.Part_PART_IMAGE, adapterv1.Part_PART_STORAGE}}, nil
}

// version is the one of this program, as built.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "1"
}

// Discover returns the whole inventory. It waits for the first listing of the
// cluster and is unavailable in trouble.
func (d *Driver) Discover(ctx context.Context, _ *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	if err := d.wait(ctx, d.whole); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &adapterv1.DiscoverResponse{Inventory: d.inventory()}, nil
}

// patience is how long a call waits for the cluster's first listing.
const patience = 8 * time.Second

// wait returns when done is closed and there is no trouble, with an error if
// that does not come soon.
func (d *Driver) wait(ctx context.Context, done <-chan struct{}) error {
	if why := d.health.trouble(); why != "" {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s", why))
	}
	select {
	case <-done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the cluster of center %s has not been listed yet: try again", d.center))
		case <-tick.C:
			if why := d.health.trouble(); why != "" {
				return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s", why))
			}
		}
	}
}

// inventory is the center as it is now; d.mu is held.
func (d *Driver) inventory() *adapterv1.Inventory {
	inv := d.cfg.Inventory(d.center)
	if inv.Name == "" {
		inv.Name = d.center
	}
	slices.SortFunc(inv.Offers, func(a, b *adapterv1.SpecOffer) int {
		if a.ResourceSpecId < b.ResourceSpecId {
			return -1
		}
		return 1
	})
	inv.Capacity = d.res.capacity()
	inv.Images = slices.Sorted(maps.Keys(d.cfg.Images))
	inv.Version, inv.Notice = d.version, d.notice
	return inv
}
