package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
)

const (
	probeEvery   = 500 * time.Millisecond
	probeTimeout = 1500 * time.Millisecond
	// After this long without a byte connections are made anew: one that was
	// cut without a word would else be waited for.
	silence = 4 * time.Second
	// requestTimeout bounds each request that is not a watch or a log.
	requestTimeout = 8 * time.Second
	// rereadEvery is how often credentials are read again while in trouble.
	rereadEvery = 2 * time.Second
)

// clients are the connections of one set of credentials.
type clients struct {
	server string
	rest   *rest.Config        // for commands in pods, which have connections of their own
	work   clientset.Interface // bounded in its rate
	watch  clientset.Interface // for watches and probes, never held back by work
	logs   clientset.Interface // on connections of its own: logs are long
	dialer *connrotation.Dialer
	heard  *atomic.Int64 // unix nanoseconds of the last byte from the server
	skew   *atomic.Int64 // nanoseconds the server's clock is ahead
	path   pathProbes
}

func newClients(cfg *rest.Config, rate int64) (*clients, error) {
	c := &clients{server: cfg.Host, rest: rest.CopyConfig(cfg), heard: new(atomic.Int64), skew: new(atomic.Int64)}
	c.rest.UserAgent = "yunhe-" + Name
	c.dialer = connrotation.NewDialer((&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext)
	make := func(qps float32, burst int) (clientset.Interface, error) {
		own := rest.CopyConfig(cfg)
		own.QPS, own.Burst = qps, burst
		own.UserAgent = "yunhe-" + Name
		own.ContentType, own.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		own.Dial = c.dialer.DialContext
		own.WarningHandler = rest.NoWarnings{}
		own.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &listener{rt, c.heard, c.skew} })
		return clientset.NewForConfig(own)
	}
	var errs [3]error
	c.work, errs[0] = make(float32(rate), int(2*rate))
	c.watch, errs[1] = make(-1, 0)
	c.logs, errs[2] = make(-1, 0)
	return c, errors.Join(errs[:]...)
}

// now is the time by the server's clock, as near as that is known.
func (c *clients) now() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

// listener notes when the server was last heard, and its clock.
type listener struct {
	rt          http.RoundTripper
	heard, skew *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.rt.RoundTrip(r)
	if err == nil {
		now := time.Now()
		l.heard.Store(now.UnixNano())
		if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
			l.skew.Store(int64(at.Sub(now)))
		}
		res.Body = &heardBody{res.Body, l.heard}
	}
	return res, err
}

// WrappedRoundTripper lets client-go reach what it made.
func (l *listener) WrappedRoundTripper() http.RoundTripper { return l.rt }

type heardBody struct {
	io.ReadCloser
	heard *atomic.Int64
}

// Read implements io.Reader.
func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// sessions serves the cluster until ctx ends: again with other credentials
// whenever those of the configuration have changed.
func (d *Driver) sessions(ctx context.Context, c *clients, text string) {
	for c != nil {
		session, cancel := context.WithCancel(ctx)
		var parts sync.WaitGroup
		for _, run := range d.watches(c) {
			parts.Go(func() { run(session) })
		}
		parts.Go(func() { d.probe(session, c) })
		parts.Go(func() { d.prepare(session, c) })
		parts.Go(func() { d.measure(session, c) })
		next, said := d.otherClients(ctx, text)
		cancel()
		c.dialer.CloseAll()
		parts.Wait()
		if c, text = next, said; c != nil {
			d.log.Info("credentials changed")
			d.health.clear()
			d.mu.Lock()
			d.clients = c
			d.mu.Unlock()
		}
	}
}

// otherClients waits until the configuration says something else than text,
// and that can be used, while there is trouble; nil when ctx ends.
func (d *Driver) otherClients(ctx context.Context, text string) (*clients, string) {
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ""
		case <-tick.C:
		}
		if d.cfg.KubeconfigFile == "" || d.health.trouble() == "" {
			continue
		}
		conn, now, err := d.cfg.credentials()
		if err != nil || now == text {
			continue
		}
		if c, err := newClients(conn, d.cfg.RequestsPerSecond); err == nil {
			return c, now
		}
	}
}

// probe asks the API server for its version again and again: it is the one
// request everybody may make who has valid credentials, and costs nothing.
func (d *Driver) probe(ctx context.Context, c *clients) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	since := time.Now() // the last success, or connections made anew
	unstored := 0       // how often in a row the store behind the server failed
	for {
		begun := time.Now()
		version, err := c.version(ctx)
		if ctx.Err() != nil {
			return
		}
		c.path.add(time.Since(begun), err == nil)
		switch {
		case err == nil:
			since = time.Now()
			d.answered(version, time.Duration(c.skew.Load()))
			d.health.set(partServer, "")
			// Watches go on out of the server's cache while nothing can be stored.
			if err := c.stored(ctx, d.cfg.Namespace); err == nil || ctx.Err() != nil {
				unstored = 0
				d.health.set(partStore, "")
			} else if unstored++; unstored > 1 { // once is a slow disk
				d.health.set(partStore, fmt.Sprintf("the API server %s answers, but cannot read its store: check etcd (%v)", c.server, root(err)))
			}
		case errors.Is(err, context.DeadlineExceeded) && c.heard.Load() > begun.UnixNano():
			// Others get answers: it is busy, not gone.
		default:
			d.health.set(partServer, explain(err, c.server, time.Duration(c.skew.Load())))
			if time.Since(since) > silence && time.Since(time.Unix(0, c.heard.Load())) > silence {
				c.dialer.CloseAll()
				since = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *clients) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	b, err := c.watch.Discovery().RESTClient().Get().AbsPath("/version").MaxRetries(0).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("version: %w: %w", ctx.Err(), err)
		}
		return "", err
	}
	return parseVersion(b)
}

// stored reads a Job that is not there: the server must ask its store, etcd.
func (c *clients) stored(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := c.watch.BatchV1().Jobs(namespace).Get(ctx, "yunhe-probe", metav1.GetOptions{})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}

// watches returns a function per kind of object that keeps our table of it.
func (d *Driver) watches(c *clients) []func(context.Context) {
	ns := d.cfg.Namespace
	ours := labels.Set{labelCenter: labelValue(d.center)}.String()
	nodes := labels.Set(d.cfg.NodeSelector).String()
	elsewhere := fields.AndSelectors(fields.OneTermNotEqualSelector("status.phase", "Succeeded"), fields.OneTermNotEqualSelector("status.phase", "Failed"),
		fields.OneTermNotEqualSelector("metadata.namespace", ns)).String()
	complaints := fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.kind", "Job"), fields.OneTermEqualSelector("type", "Warning")).String()
	return []func(context.Context){
		follow(d, c, partJobs, "", ours, lister(c.watch.BatchV1().Jobs(ns).List), c.watch.BatchV1().Jobs(ns).Watch, &batchv1.Job{}, d.feeds.jobs),
		follow(d, c, partPods, "", "", lister(c.watch.CoreV1().Pods(ns).List), c.watch.CoreV1().Pods(ns).Watch, &corev1.Pod{}, d.feeds.pods),
		follow(d, c, partOthers, elsewhere, "", lister(c.watch.CoreV1().Pods("").List), c.watch.CoreV1().Pods("").Watch, &corev1.Pod{}, d.feeds.others),
		follow(d, c, partNodes, "", nodes, lister(c.watch.CoreV1().Nodes().List), c.watch.CoreV1().Nodes().Watch, &corev1.Node{}, d.feeds.nodes),
		follow(d, c, partQuotas, "", "", lister(c.watch.CoreV1().ResourceQuotas(ns).List), c.watch.CoreV1().ResourceQuotas(ns).Watch, &corev1.ResourceQuota{}, d.feeds.quotas),
		follow(d, c, partEvents, complaints, "", lister(c.watch.CoreV1().Events(ns).List), c.watch.CoreV1().Events(ns).Watch, &corev1.Event{}, d.feeds.events),
	}
}

// Parts of what is watched, as they are named in the health.
const (
	partJobs   = "jobs"
	partPods   = "pods"
	partOthers = "pods of others"
	partNodes  = "nodes"
	partQuotas = "quotas"
	partEvents = "events"
)

// lister gives list functions of all types one type.
func lister[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// follow returns a function that keeps to filled until its context ends.
func follow(d *Driver, c *clients, part, field, label string, list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watcher func(context.Context, metav1.ListOptions) (watch.Interface, error), kind runtime.Object, to cache.TransformingStore,
) func(context.Context) {
	said := func(err error) {
		switch {
		case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			d.health.set(part, "")
		case errors.Is(err, context.Canceled):
		default:
			d.health.set(part, explain(err, c.server, time.Duration(c.skew.Load())))
		}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = field, label
			out, err := list(ctx, o)
			said(err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = field, label
			out, err := watcher(ctx, o)
			if err == nil || !apierrors.IsInvalid(err) { // an old server does not know lists by watch
				said(err)
			}
			return out, err
		},
	}
	log := logr.Discard() // the health says what is wrong once and better
	r := cache.NewReflectorWithOptions(lw, kind, to, cache.ReflectorOptions{Name: part, Logger: &log,
		Backoff: &utilwait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Cap: 2 * time.Second, Steps: 5, Jitter: 0.5}})
	return func(ctx context.Context) { r.RunWithContext(klog.NewContext(ctx, log)) }
}

// prepare makes what Jobs need besides themselves, as far as it may, and
// brings in order what a crash left; it tries again until that has worked.
func (d *Driver) prepare(ctx context.Context, c *clients) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		err := errors.Join(d.ensureNamespace(ctx, c), d.ensurePolicy(ctx, c), d.repair(ctx, c))
		if err == nil {
			pause.Reset(repairEvery)
			continue
		}
		d.log.Debug("cluster not prepared yet", "error", err)
		pause.Reset(time.Second + rand.N(time.Second))
	}
}

// repairEvery is the pause between two looks for what was left over.
const repairEvery = 10 * time.Minute

const partNamespace = "namespace"

func (d *Driver) ensureNamespace(ctx context.Context, c *clients) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ns := d.cfg.Namespace
	_, err := c.watch.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.watch.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{labelManaged: managedBy}}}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			d.health.set(partNamespace, fmt.Sprintf("the namespace %s is not there and the driver may not make it: kubectl create namespace %s", ns, ns))
			return err
		}
	}
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
	case apierrors.IsForbidden(err): // it may be there: creating Jobs will tell
	default:
		return err
	}
	d.health.set(partNamespace, "")
	return nil
}

// ensurePolicy makes the rule that keeps attempts without network from it.
func (d *Driver) ensurePolicy(ctx context.Context, c *clients) error {
	if d.cfg.KeepNetworkOpen {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := c.watch.NetworkingV1().NetworkPolicies(d.cfg.Namespace).Create(ctx, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "yunhe-no-network", Labels: map[string]string{labelManaged: managedBy}},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelNetwork: "none"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}},
	}, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		d.health.set(partNetwork, "")
		return nil
	case apierrors.IsForbidden(err):
		d.health.set(partNetwork, fmt.Sprintf("jobs without network would have one: %s; grant it as %s says, or set keep_network_open", serverWords(err), howto))
	}
	return err
}

const partNetwork = "network policy"
