package kubernetes_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// watched is what a Watch has told so far.
type watched struct {
	tb testing.TB

	mu        sync.Mutex // guards what follows
	changed   chan struct{}
	nodes     map[string]*adapterv1.Node
	inventory *adapterv1.Inventory
	measure   *adapterv1.Measurement
	trouble   string
	troubles  []string
	open      bool // more was announced
	longest   time.Duration
	last      time.Time
}

func (r *rig) watch() *watched {
	r.tb.Helper()
	w := &watched{tb: r.tb, changed: make(chan struct{}), nodes: map[string]*adapterv1.Node{}, last: time.Now()}
	ctx, cancel := context.WithCancel(r.tb.Context())
	stream, err := r.client.Watch(ctx, &adapterv1.WatchRequest{})
	if err != nil {
		cancel()
		r.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for stream.Receive() {
			w.take(stream.Msg())
		}
	}()
	r.tb.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

func (w *watched) take(m *adapterv1.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longest, w.last = max(w.longest, time.Since(w.last)), time.Now()
	if w.trouble = m.Trouble; m.Trouble != "" {
		w.troubles = append(w.troubles, m.Trouble)
		if m.Inventory != nil || m.Measurement != nil || len(m.Nodes)+len(m.Gone) > 0 {
			w.tb.Errorf("a message with trouble carries more: %v", m)
		}
	}
	if m.Inventory != nil {
		w.inventory = m.Inventory
	}
	if m.Measurement != nil {
		w.measure = m.Measurement
	}
	for _, n := range m.Nodes {
		w.nodes[n.Name] = n
	}
	for _, name := range m.Gone {
		delete(w.nodes, name)
	}
	w.open = m.More
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until what was told is as wanted.
func (w *watched) await(what string, ok func(w *watched) bool) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), 60*time.Second)
	defer cancel()
	for {
		w.mu.Lock()
		good, changed := ok(w), w.changed
		w.mu.Unlock()
		if good {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tb.Fatalf("not within 60 s: %s; trouble %q, inventory %v, %d nodes", what, w.trouble, w.inventory, len(w.nodes))
		}
	}
}

func (w *watched) capacity(what string, want map[string]int64) {
	w.tb.Helper()
	w.await(fmt.Sprintf("capacity %s: %v", what, want), func(w *watched) bool { return w.inventory != nil && maps.Equal(w.inventory.Capacity, want) })
}

const gib = int64(1) << 30

func TestInventoryFollowsTheCluster(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, nil)
	w := r.watch()
	two := map[string]int64{"cpu": 16000, "memory": 64 * gib, "storage": 200 * gib, "gpu": 16}
	w.capacity("of two nodes", two)
	w.await("two whole nodes", func(w *watched) bool { return len(w.nodes) == 2 && !w.open })
	for name, n := range w.nodes {
		if n.State != adapterv1.NodeState_NODE_STATE_READY || n.Architecture != "amd64" || n.Allocatable["gpu"] != 8 || n.Capacity["memory"] != 32*gib || len(n.Accelerators) != 1 {
			t.Errorf("node %s: %v", name, n)
			continue
		}
		if a := n.Accelerators[0]; a.Vendor != "NVIDIA" || a.Model != "NVIDIA-H800" || a.Count != 8 || a.MemoryBytes != 81559<<20 || a.Resource != "gpu" {
			t.Errorf("accelerators of node %s: %v", name, a)
		}
	}
	res, err := r.client.Discover(t.Context(), &adapterv1.DiscoverRequest{})
	if err != nil || !maps.Equal(res.Inventory.Capacity, two) || res.Inventory.AiCenterId != r.center || !slices.Equal(res.Inventory.Images, []string{"base"}) || res.Inventory.Version == "" {
		t.Errorf("discovered %v, %v", res, err)
	}

	first := r.label + "-0"
	patch := func(body string) {
		t.Helper()
		if _, err := r.admin.CoreV1().Nodes().Patch(t.Context(), first, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one := map[string]int64{"cpu": 8000, "memory": 32 * gib, "storage": 100 * gib, "gpu": 8}
	patch(`{"spec":{"unschedulable":true}}`)
	w.capacity("without the cordoned node", one)
	w.await("drained", func(w *watched) bool { return w.nodes[first].GetState() == adapterv1.NodeState_NODE_STATE_DRAINED })
	patch(`{"spec":{"unschedulable":false,"taints":[{"key":"own","value":"x","effect":"NoSchedule"}]}}`)
	w.await("drained by a taint", func(w *watched) bool { return w.nodes[first].GetReason() == "taint own=x:NoSchedule" })
	patch(`{"spec":{"taints":null}}`)
	w.capacity("of both again", two)

	// Somebody else's pod takes a part, until it ends.
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: r.label}, Spec: corev1.PodSpec{NodeName: first, Containers: []corev1.Container{{Name: "c", Image: "x",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "nvidia.com/gpu": resource.MustParse("2")}, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}}}
	for _, ns := range []string{"default", r.cfg.Namespace} {
		pods := r.admin.CoreV1().Pods(ns)
		if _, err := pods.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.capacity("without what the pod of somebody else has", map[string]int64{"cpu": 14500, "memory": 64 * gib, "storage": 200 * gib, "gpu": 14})
		w.await("the node says so", func(w *watched) bool {
			return w.nodes[first].Allocatable["gpu"] == 6 && w.nodes[first].Capacity["gpu"] == 8
		})
		if err := pods.Delete(t.Context(), other.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.capacity("after the pod of somebody else", two)
	}

	// Our own do not: what runs is the platform's to count.
	r.apply(attempt("own", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 3 }))
	r.running("own")
	w.capacity("with an attempt", two)

	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"requests.cpu": resource.MustParse("2"), "requests.nvidia.com/gpu": resource.MustParse("4"), "limits.memory": resource.MustParse("1Gi"), "pods": resource.MustParse("100")}}}
	if _, err := r.admin.CoreV1().ResourceQuotas(r.cfg.Namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.capacity("bounded by a quota", map[string]int64{"cpu": 2000, "memory": gib, "storage": 200 * gib, "gpu": 4})
	until(t, "the quota controller has counted", func() bool {
		q, err := r.admin.CoreV1().ResourceQuotas(r.cfg.Namespace).Get(t.Context(), "q", metav1.GetOptions{})
		return err == nil && len(q.Status.Used) == 4
	})
	r.apply(attempt("much", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 2 }))
	r.await("much", "pending with the words of the quota", func(st *adapterv1.Status) bool {
		return st.Phase == adapterv1.Phase_PHASE_PENDING && contains(st.Message, "exceeded quota: q")
	})
	r.remove([]string{"much", "own"}, nil)
	r.ended("much")
	if err := r.admin.CoreV1().ResourceQuotas(r.cfg.Namespace).Delete(t.Context(), "q", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.capacity("without a quota", two)

	if err := r.admin.CoreV1().Nodes().Delete(t.Context(), first, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.capacity("of one node", one)
	w.await("one node", func(w *watched) bool { return len(w.nodes) == 1 })
	w.await("figures", func(w *watched) bool { return w.measure.GetMeasuredAt() != nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.longest > 3*time.Second {
		t.Errorf("Watch was silent for %s, want at most 3 s", w.longest)
	}
}

// A thousand nodes of eight GPUs: how long until all are told, how long until
// a change is, and what the driver holds for it.
func TestThousandNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a minute")
	}
	const count, changes = 1000, 40
	// The controllers take a taint of new nodes off again, at 20 nodes a second.
	r := newRig(t, cluster(t), 0, func(c *kubernetes.Config) {
		c.Tolerations = []kubernetes.Toleration{{Key: corev1.TaintNodeNotReady, Operator: "Exists"}}
	})
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error {
			r.node(fmt.Sprintf("%s-%04d", r.label, i), nil)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	until(t, "kwok has made every node ready", func() bool {
		list, err := r.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "rig=" + r.label})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(list.Items, func(n corev1.Node) bool {
			return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
		})
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := time.Now()
	r.start()
	w := r.watch()
	w.await("1000 nodes", func(w *watched) bool {
		return len(w.nodes) == count && !w.open && w.inventory.GetCapacity()["gpu"] == 8*count
	})
	took := time.Since(begun)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("figure: 1000 nodes told %s after the driver began; its tables and the test's copy hold %.1f MiB", took.Round(time.Millisecond), float64(after.HeapAlloc-before.HeapAlloc)/(1<<20))
	if took > 3*time.Second {
		t.Errorf("1000 nodes took %s, want less than 3 s", took)
	}

	var all []time.Duration
	for i := range changes {
		name := fmt.Sprintf("%s-%04d", r.label, i*7)
		begun := time.Now()
		if _, err := r.admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.await("drained", func(w *watched) bool { return w.nodes[name].State == adapterv1.NodeState_NODE_STATE_DRAINED })
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	t.Logf("figure: a node's change was told after %s (median), %s (longest of %d), the patch included", all[len(all)/2], all[len(all)-1], len(all))
	if all[len(all)/2] > 500*time.Millisecond {
		t.Errorf("a change took %s, want less than 500 ms", all[len(all)/2])
	}
}
