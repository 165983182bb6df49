package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/sdk/adapter"
)

// shared is one cluster with kwok for all tests of this package: each has its
// own namespace, and its own nodes by a label.
var shared struct {
	once sync.Once
	k    *enginetest.Kubernetes
	err  error
}

// driverEnv makes this test program a driver, as `yunhe driver kubernetes` is.
const driverEnv = "YUNHE_KUBERNETES_TEST_DRIVER"

func serve() error {
	var cfg kubernetes.Config
	if err := adapter.Config(&cfg); err != nil {
		return err
	}
	ctx := context.Background()
	d, err := kubernetes.New(ctx, adapter.Center(""), cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer d.Close()
	return adapter.Serve(ctx, d)
}

func TestMain(m *testing.M) {
	if os.Getenv(driverEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "driver:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if shared.k != nil {
		if err := shared.k.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the cluster:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// cluster returns the shared cluster; it skips the test aloud without one.
func cluster(tb testing.TB) *enginetest.Kubernetes {
	tb.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if shared.k, shared.err = enginetest.StartKubernetes(ctx, enginetest.KubernetesConfig{NotDurable: true}); shared.err == nil {
			shared.err = shared.k.StartKwok(ctx)
		}
	})
	var missing *enginetest.MissingError
	if errors.As(shared.err, &missing) {
		tb.Skipf("SKIPPED: %v", missing)
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.k
}

// admin is a client that may do everything.
func admin(tb testing.TB, k *enginetest.Kubernetes) clientset.Interface {
	tb.Helper()
	c, err := clientset.NewForConfig(&rest.Config{Host: k.URL, BearerToken: k.Token, TLSClientConfig: rest.TLSClientConfig{CAData: k.CA}, QPS: -1})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// rig is a driver at work, reached as the platform reaches it.
type rig struct {
	tb     testing.TB
	k      *enginetest.Kubernetes
	admin  clientset.Interface
	cfg    kubernetes.Config
	center string
	label  string // of its nodes: rig=label

	driver *kubernetes.Driver
	client adapterv1connect.DriverServiceClient
	kill   func()

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	last    map[string]*adapterv1.Status
	history map[string][]*adapterv1.Status
}

// newRig makes a rig whose driver has not started. nodes are made for it.
func newRig(tb testing.TB, k *enginetest.Kubernetes, nodes int, change func(*kubernetes.Config)) *rig {
	tb.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "#", "-").Replace(tb.Name()))
	if len(name) > 40 {
		name = name[:40]
	}
	name = strings.Trim(name, "-") + fmt.Sprintf("-%d", time.Now().UnixNano()%1e6)
	r := &rig{tb: tb, k: k, admin: admin(tb, k), center: "center-" + name, label: name, changed: make(chan struct{}), last: map[string]*adapterv1.Status{}, history: map[string][]*adapterv1.Status{}}
	r.cfg = kubernetes.Config{KubeconfigFile: k.Kubeconfig, Namespace: name, Images: map[string]string{"base": "busybox:1"},
		NodeSelector: map[string]string{"rig": name}}
	if change != nil {
		change(&r.cfg)
	}
	for i := range nodes {
		r.node(fmt.Sprintf("%s-%d", name, i), nil)
	}
	tb.Cleanup(r.clean)
	return r
}

// startRig is newRig with a driver.
func startRig(tb testing.TB, nodes int, change func(*kubernetes.Config)) *rig {
	tb.Helper()
	r := newRig(tb, cluster(tb), nodes, change)
	r.start()
	return r
}

// node makes a node that kwok plays: 8 cores, 32 GiB, 8 GPUs.
func (r *rig) node(name string, change func(*corev1.Node)) *corev1.Node {
	r.tb.Helper()
	has := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("100Gi"), "nvidia.com/gpu": resource.MustParse("8")}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rig": r.label, "nvidia.com/gpu.product": "NVIDIA-H800", "nvidia.com/gpu.memory": "81559"},
		Annotations: map[string]string{enginetest.FakeNodeKey: enginetest.FakeNodeValue}},
		Status: corev1.NodeStatus{Capacity: has, Allocatable: has, NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux"}}}
	if change != nil {
		change(n)
	}
	made, err := r.admin.CoreV1().Nodes().Create(r.tb.Context(), n, metav1.CreateOptions{})
	if err != nil {
		r.tb.Fatal(err)
	}
	return made
}

// clean removes what the rig made at the shared cluster.
func (r *rig) clean() {
	if r.kill != nil {
		r.kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.admin.CoreV1().Namespaces().Delete(ctx, r.cfg.Namespace, metav1.DeleteOptions{}); err != nil {
		r.tb.Logf("remove namespace: %v", err)
	}
	if err := r.admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "rig=" + r.label}); err != nil {
		r.tb.Logf("remove nodes: %v", err)
	}
}

// start runs a driver and keeps what it reports.
func (r *rig) start() {
	r.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(r.tb.Output(), &slog.HandlerOptions{Level: level}))
	d, err := kubernetes.New(ctx, r.center, r.cfg, log)
	if err != nil {
		cancel()
		r.tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		r.tb.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := adapter.ServeListener(ctx, l, d); err != nil && ctx.Err() == nil {
			r.tb.Errorf("serve: %v", err)
		}
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	r.driver, r.client = d, adapterv1connect.NewDriverServiceClient(&http.Client{Transport: transport}, "http://"+l.Addr().String())
	done.Go(func() { r.observe(ctx) })
	r.kill = func() {
		cancel()
		d.Close()
		done.Wait()
		transport.CloseIdleConnections()
		r.kill = nil
	}
}

func (r *rig) observe(ctx context.Context) {
	stream, err := r.client.Observe(ctx, &adapterv1.ObserveRequest{})
	if err != nil {
		if ctx.Err() == nil {
			r.tb.Errorf("observe: %v", err)
		}
		return
	}
	defer stream.Close() // nothing to learn
	for stream.Receive() {
		r.mu.Lock()
		for _, st := range stream.Msg().Statuses {
			r.last[st.AttemptId] = st
			r.history[st.AttemptId] = append(r.history[st.AttemptId], st)
		}
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
	if err := stream.Err(); err != nil && ctx.Err() == nil {
		r.tb.Errorf("observe ended: %v", err)
	}
}

// await waits until a status is as wanted and returns it.
func (r *rig) await(id, what string, ok func(*adapterv1.Status) bool) *adapterv1.Status {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.tb.Context(), 60*time.Second)
	defer cancel()
	for {
		r.mu.Lock()
		st, changed := r.last[id], r.changed
		r.mu.Unlock()
		if st != nil && ok(st) {
			return st
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.tb.Fatalf("after 60 s attempt %s is %v, want %s", id, st, what)
		}
	}
}

func (r *rig) ended(id string) *adapterv1.Status {
	r.tb.Helper()
	return r.await(id, "ended", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_ENDED })
}

func (r *rig) running(id string) *adapterv1.Status {
	r.tb.Helper()
	return r.await(id, "running", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_RUNNING })
}

// attempt is one that kwok plays: for "" it runs on until it is ended.
func attempt(id, duration string, change func(*adapterv1.Attempt)) *adapterv1.Attempt {
	a := &adapterv1.Attempt{AttemptId: id, JobId: "job_1", Name: "task", Command: "true", ImageId: "base", StopGraceSeconds: 5,
		Resources: map[string]int64{"cpu": 100, "memory": 64 << 20}, Env: map[string]string{}}
	if duration != "" {
		a.Env["KWOK_FOR"] = duration
	}
	if change != nil {
		change(a)
	}
	return a
}

func (r *rig) apply(attempts ...*adapterv1.Attempt) []*adapterv1.Refusal {
	r.tb.Helper()
	res, err := asked(r, func(ctx context.Context) (*adapterv1.ApplyResponse, error) {
		return r.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: attempts})
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	return res.Refusals
}

// asked calls the driver, again while it says that the cluster cannot be used: on a
// busy machine the API server stalls, and the platform asks again, too.
func asked[T any](r *rig, call func(context.Context) (T, error)) (out T, err error) {
	r.tb.Helper()
	until(r.tb, "the cluster can be used", func() bool {
		out, err = call(r.tb.Context())
		return connect.CodeOf(err) != connect.CodeUnavailable
	})
	return out, err
}

func (r *rig) remove(stop, forget []string) {
	r.tb.Helper()
	if _, err := r.client.Remove(r.tb.Context(), &adapterv1.RemoveRequest{Stop: stop, Forget: forget}); err != nil {
		r.tb.Fatal(err)
	}
}

// until calls f until it is true: for what only the API server can be asked.
func until(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 4*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			tb.Fatalf("not within 4 min: %s", what)
		case <-tick.C:
		}
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func wantCode(tb testing.TB, err error, want connect.Code) {
	tb.Helper()
	if err == nil || connect.CodeOf(err) != want {
		tb.Errorf("got error %v, want code %v", err, want)
	}
}
