package kubernetes_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

func (r *rig) setNode(name string, isolated bool, allocation, reason string) {
	r.tb.Helper()
	_, err := r.client.SetNode(r.tb.Context(), &adapterv1.SetNodeRequest{Name: name, Isolated: isolated, AllocationId: allocation, Reason: reason})
	if err != nil {
		r.tb.Fatal(err)
	}
}

func (r *rig) patchNode(name, body string) {
	r.tb.Helper()
	if _, err := r.admin.CoreV1().Nodes().Patch(r.tb.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		r.tb.Fatal(err)
	}
}

func (r *rig) nodeIs(name, what string, ok func(*corev1.Node) bool) {
	r.tb.Helper()
	until(r.tb, name+" is "+what, func() bool {
		n, err := r.admin.CoreV1().Nodes().Get(r.tb.Context(), name, metav1.GetOptions{})
		if err != nil {
			r.tb.Fatal(err)
		}
		return ok(n)
	})
}

// reserved reports whether a node is held for an allocation.
func reserved(allocation string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool {
		return n.Labels["yunhe.dev/allocation"] == allocation && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "yunhe.dev/allocation" && t.Value == allocation && t.Effect == corev1.TaintEffectNoSchedule
		})
	}
}

func TestSetNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, cluster(t), 2, nil)
	r.cfg.KubeconfigFile = r.kubeconfig(r.k.URL, r.account(nil), r.k.CA) // as documented
	r.start()
	w := r.watch()
	first, second := r.label+"-0", r.label+"-1"
	two, one := map[string]int64{"cpu": 16000, "memory": 64 * gib, "storage": 200 * gib, "gpu": 16}, map[string]int64{"cpu": 8000, "memory": 32 * gib, "storage": 100 * gib, "gpu": 8}
	w.capacity("of two nodes", two)

	// Isolated: no new work, running goes on.
	r.apply(attempt("on", "", nil))
	on := r.running("on").Node
	for range 2 {
		r.setNode(on, true, "", "fan broken")
	}
	w.await("isolated", func(w *watched) bool {
		return w.nodes[on].GetState() == adapterv1.NodeState_NODE_STATE_DRAINED && w.nodes[on].GetReason() == "isolated: fan broken"
	})
	w.capacity("of the other node", one)
	r.running("on")
	r.apply(attempt("next", "", nil))
	if got := r.running("next").Node; got == on || got == "" {
		t.Errorf("an attempt runs at %q, which is isolated", got)
	}
	// Somebody changes it: it is put right, also by another driver.
	r.patchNode(on, `{"spec":{"unschedulable":false}}`)
	r.nodeIs(on, "cordoned again", func(n *corev1.Node) bool { return n.Spec.Unschedulable })
	r.patchNode(on, `{"spec":{"unschedulable":false},"metadata":{"annotations":{"yunhe.dev/node":null}}}`)
	r.nodeIs(on, "cordoned again, with all that was taken away", func(n *corev1.Node) bool { return n.Spec.Unschedulable && n.Annotations["yunhe.dev/node"] != "" })
	r.kill()
	r.patchNode(on, `{"spec":{"unschedulable":false}}`)
	r.start()
	r.nodeIs(on, "cordoned by a new driver", func(n *corev1.Node) bool { return n.Spec.Unschedulable })
	w = r.watch()
	r.setNode(on, false, "", "")
	w.capacity("of two nodes again", two)
	r.remove([]string{"on", "next"}, nil)
	r.ended("on")
	r.ended("next")

	// What an administrator has cordoned stays so.
	r.patchNode(first, `{"spec":{"unschedulable":true}}`)
	r.setNode(first, true, "", "")
	r.setNode(first, false, "", "")
	w.await("cordoned", func(w *watched) bool { return w.nodes[first].GetReason() == "cordoned" })
	r.patchNode(first, `{"spec":{"unschedulable":false}}`)
	w.capacity("of two nodes once more", two)

	// Held for an allocation: its attempts run there and nowhere else, others
	// do not, and it counts for the center.
	const allocation = "alloc_1"
	r.setNode(first, false, allocation, "for training")
	r.nodeIs(first, "reserved", reserved(allocation))
	of := func(a *adapterv1.Attempt) { a.AllocationId = allocation }
	var ids []string
	for i := range 4 {
		mine, other := fmt.Sprintf("mine-%d", i), fmt.Sprintf("other-%d", i)
		r.apply(attempt(mine, "", of), attempt(other, "", nil))
		ids = append(ids, mine, other)
		if got := r.running(mine).Node; got != first {
			t.Errorf("%s runs at %s, want %s, which is reserved for it", mine, got, first)
		}
		if got := r.running(other).Node; got != second {
			t.Errorf("%s runs at %s, want %s, which is reserved for none", other, got, second)
		}
	}
	w.await("ready and whole", func(w *watched) bool {
		n := w.nodes[first]
		return n.GetState() == adapterv1.NodeState_NODE_STATE_READY && n.Labels["yunhe.dev/allocation"] == allocation
	})
	w.capacity("with the reserved node", two)
	r.patchNode(first, `{"spec":{"taints":null},"metadata":{"labels":{"yunhe.dev/allocation":null}}}`)
	r.nodeIs(first, "reserved again", reserved(allocation))
	r.setNode(first, true, allocation, "both")
	r.nodeIs(first, "isolated and reserved", func(n *corev1.Node) bool { return n.Spec.Unschedulable && reserved(allocation)(n) })
	r.setNode(first, false, "", "")
	r.nodeIs(first, "as it was", func(n *corev1.Node) bool {
		return !n.Spec.Unschedulable && n.Labels["yunhe.dev/allocation"] == "" && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "yunhe.dev/allocation" }) && n.Annotations["yunhe.dev/node"] == ""
	})
	r.remove(ids, nil)
	for _, id := range ids {
		r.ended(id)
	}

	// What cannot be.
	r.patchNode(second, `{"metadata":{"annotations":{"yunhe.dev/node":"{\"center\":\"other\",\"isolated\":true}"}}}`)
	for name, c := range map[string]struct {
		req  *adapterv1.SetNodeRequest
		want connect.Code
	}{
		"no name":              {&adapterv1.SetNodeRequest{Isolated: true}, connect.CodeInvalidArgument},
		"no such node":         {&adapterv1.SetNodeRequest{Name: "nowhere", Isolated: true}, connect.CodeNotFound},
		"long reason":          {&adapterv1.SetNodeRequest{Name: first, Reason: strings.Repeat("x", 2000)}, connect.CodeInvalidArgument},
		"held by another one":  {&adapterv1.SetNodeRequest{Name: second, Isolated: true}, connect.CodeFailedPrecondition},
		"not held by this one": {&adapterv1.SetNodeRequest{Name: second}, 0},
	} {
		if _, err := r.client.SetNode(t.Context(), c.req); c.want == 0 && err != nil || c.want != 0 && connect.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Jobs that tolerate every taint keep away from nodes that are reserved.
func TestReservedFromThoseThatTolerateAll(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, func(c *kubernetes.Config) { c.Tolerations = []kubernetes.Toleration{{Operator: "Exists"}} })
	r.watch().await("two nodes", func(w *watched) bool { return len(w.nodes) == 2 && !w.open })
	r.setNode(r.label+"-0", false, "a", "")
	for i := range 6 {
		id := fmt.Sprint("other-", i)
		r.apply(attempt(id, "", nil))
		if got := r.running(id).Node; got != r.label+"-1" {
			t.Errorf("%s runs at %s, which is reserved", id, got)
		}
		r.remove([]string{id}, nil)
		r.ended(id)
	}
}

// Without the permission to change nodes that is said, and all else works.
func TestSetNodeWithoutPermission(t *testing.T) {
	t.Parallel()
	r := newRig(t, cluster(t), 1, nil)
	r.cfg.KubeconfigFile = r.kubeconfig(r.k.URL, r.account(func(_ *rbacv1.Role, all *rbacv1.ClusterRole) {
		all.Rules = slices.DeleteFunc(all.Rules, func(p rbacv1.PolicyRule) bool { return slices.Contains(p.Verbs, "patch") })
	}), r.k.CA)
	r.start()
	w := r.watch()
	w.await("a node", func(w *watched) bool { return w.trouble == "" && len(w.nodes) == 1 })
	_, err := r.client.SetNode(t.Context(), &adapterv1.SetNodeRequest{Name: r.label + "-0", Isolated: true})
	wantCode(t, err, connect.CodeFailedPrecondition)
	if err != nil && (!contains(err.Error(), `"nodes"`) || !contains(err.Error(), "docs/howto/kubernetes.md")) {
		t.Errorf("got %v, want the permission and where it is granted", err)
	}
	r.apply(attempt("a", "50ms", nil))
	r.ended("a")
}

func TestPriorityClasses(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	low, high := r.label+"-low", r.label+"-high"
	for name, value := range map[string]int32{low: 10, high: 1000} {
		_, err := r.admin.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.cfg.PriorityClasses = []kubernetes.PriorityClass{{From: 50, Class: high}, {From: -10, Class: low}}
	r.start()
	all := func(priority int64) func(*adapterv1.Attempt) {
		return func(a *adapterv1.Attempt) { a.Priority, a.Resources["gpu"] = priority, 8 }
	}
	r.apply(attempt("low", "", all(49)))
	r.running("low")
	r.apply(attempt("none", "", all(-11)))
	r.await("none", "waits", func(st *adapterv1.Status) bool { return contains(st.Message, "Insufficient nvidia.com/gpu") })
	r.apply(attempt("high", "", all(50)))
	if st := r.ended("low"); st.Reason != "lost" || !contains(st.Message, "PreemptionByScheduler") {
		t.Errorf("what the cluster preempts is %v, want lost with its words", st)
	}
	r.running("high")
	for id, want := range map[string]string{"low": low, "none": "", "high": high} {
		if got := r.job(id).Spec.Template.Spec.PriorityClassName; got != want {
			t.Errorf("%s has class %q, want %q", id, got, want)
		}
	}
	r.remove([]string{"high", "none"}, nil)
	r.ended("high")
	r.ended("none")
}

// Every rule of the built-in table, on nodes as the makers' device plug-ins
// and feature discovery leave them: what a node counts as, and what a job that
// asks for it asks the cluster for.
func TestDevicesOfEveryMaker(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, nil)
	w := r.watch()
	for i, c := range []struct {
		extended, kind, vendor, model string
		labels                        map[string]string
		memory                        int64
	}{
		{"nvidia.com/gpu", "gpu", "NVIDIA", "NVIDIA-A100-SXM4-80GB", map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}, 80 * gib},
		{"amd.com/gpu", "gpu", "AMD", "AMD_Instinct_MI300X", map[string]string{"amd.com/gpu.product-name": "AMD_Instinct_MI300X", "amd.com/gpu.vram": "192Gi"}, 192 * gib},
		{"huawei.com/Ascend910", "npu", "Huawei", "module-910b-8", map[string]string{"accelerator-type": "module-910b-8", "huawei.com/npu.memory": "65536"}, 64 * gib},
		{"huawei.com/Ascend910A", "npu", "Huawei", "Ascend910A", nil, 0},
		{"huawei.com/Ascend910B", "npu", "Huawei", "Ascend910B", nil, 0},
		{"huawei.com/Ascend910B2", "npu", "Huawei", "Ascend910B2", nil, 0},
		{"huawei.com/Ascend910B3", "npu", "Huawei", "Ascend910B3", nil, 0},
		{"huawei.com/Ascend910B4", "npu", "Huawei", "Ascend910B4", nil, 0},
		{"huawei.com/Ascend310", "npu", "Huawei", "Ascend310", nil, 0},
		{"huawei.com/Ascend310P", "npu", "Huawei", "Ascend310P", nil, 0},
		{"cambricon.com/mlu", "mlu", "Cambricon", "MLU370-X8", map[string]string{"cambricon.com/mlu.product": "MLU370-X8", "cambricon.com/mlu.memory": "49152"}, 48 * gib},
		{"cambricon.com/mlu370", "mlu", "Cambricon", "MLU370", nil, 0},
		{"cambricon.com/mlu590", "mlu", "Cambricon", "MLU590", nil, 0},
		{"cambricon.com/vmlu", "mlu", "Cambricon", "", nil, 0},
		{"hygon.com/dcu", "dcu", "Hygon", "K100_AI", map[string]string{"hygon.com/dcu.product": "K100_AI", "hygon.com/dcu.memory": "65536"}, 64 * gib},
		{"hygon.com/dcunum", "dcu", "Hygon", "", nil, 0},
	} {
		name := fmt.Sprintf("%s-%d", r.label, i)
		r.node(name, func(n *corev1.Node) {
			has := n.Status.Capacity
			delete(has, "nvidia.com/gpu")
			has[corev1.ResourceName(c.extended)] = resource.MustParse("4")
			n.Labels = map[string]string{"rig": r.label}
			for k, v := range c.labels {
				n.Labels[k] = v
			}
		})
		w.capacity(c.extended, map[string]int64{"cpu": 8000, "memory": 32 * gib, "storage": 100 * gib, c.kind: 4})
		w.await("the node", func(w *watched) bool { return len(w.nodes[name].GetAccelerators()) == 1 })
		if a := w.nodes[name].Accelerators[0]; a.Vendor != c.vendor || a.Model != c.model || a.Count != 4 || a.MemoryBytes != c.memory || a.Resource != c.kind {
			t.Errorf("%s: accelerators are %v, want %+v", c.extended, a, c)
		}
		id := fmt.Sprintf("att-%d", i)
		r.apply(attempt(id, "", func(a *adapterv1.Attempt) { a.Resources[c.kind] = 3 }), attempt(id+"-more", "", func(a *adapterv1.Attempt) { a.Resources[c.kind] = 2 }))
		running, waiting := id, id+"-more" // whichever the scheduler takes first
		r.await(id, "on its node or waiting", func(st *adapterv1.Status) bool {
			return st.Phase == adapterv1.Phase_PHASE_RUNNING || contains(st.Message, "Insufficient "+c.extended)
		})
		if r.last[id].Phase != adapterv1.Phase_PHASE_RUNNING {
			running, waiting = waiting, running
		}
		r.running(running)
		r.await(waiting, "waiting", func(st *adapterv1.Status) bool { return contains(st.Message, "Insufficient "+c.extended) })
		limits := r.job(id).Spec.Template.Spec.Containers[0].Resources.Limits
		if q := limits[corev1.ResourceName(c.extended)]; q.Value() != 3 || len(limits) != 3 {
			t.Errorf("%s: a job asks for %v, want 3 of it", c.extended, limits)
		}
		r.remove([]string{id, id + "-more"}, nil)
		r.ended(id)
		r.ended(id + "-more")
		if err := r.admin.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.await("no node", func(w *watched) bool { return len(w.nodes) == 0 })
	}
}

// Slices as HAMi's scheduler counts them: every job that gets a slice asks for
// memory and cores of the card besides.
func TestSlices(t *testing.T) {
	t.Parallel()
	r := newRig(t, cluster(t), 0, func(c *kubernetes.Config) {
		c.Resources = []kubernetes.Mapping{
			{Resource: "vgpu", Extended: "nvidia.com/gpu", Vendor: "NVIDIA", With: map[string]int64{"nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 30}},
			{Resource: "npu", Extended: "huawei.com/Ascend910B3", Vendor: "Huawei", With: map[string]int64{"huawei.com/Ascend910B3-memory": 16384}},
		}
	})
	r.node(r.label+"-0", func(n *corev1.Node) {
		for name, q := range map[corev1.ResourceName]string{"nvidia.com/gpu": "10", "nvidia.com/gpumem": "20000", "nvidia.com/gpucores": "100", "huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "65536"} {
			n.Status.Capacity[name] = resource.MustParse(q)
		}
	})
	r.start()
	w := r.watch()
	w.capacity("of slices", map[string]int64{"cpu": 8000, "memory": 32 * gib, "storage": 100 * gib, "vgpu": 10, "npu": 1})
	slice := func(a *adapterv1.Attempt) { a.Resources["vgpu"] = 1 }
	r.apply(attempt("a", "", slice), attempt("n", "", func(a *adapterv1.Attempt) { a.Resources["npu"] = 1 }))
	r.running("a")
	r.running("n")
	r.apply(attempt("b", "", slice))
	r.running("b")
	r.apply(attempt("c", "", slice))
	r.await("c", "waiting for memory of the card", func(st *adapterv1.Status) bool { return contains(st.Message, "Insufficient nvidia.com/gpumem") })
	limits := r.job("c").Spec.Template.Spec.Containers[0].Resources.Limits
	for name, want := range map[corev1.ResourceName]int64{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 30} {
		if q := limits[name]; q.Value() != want {
			t.Errorf("it asks for %v of %s, want %d", &q, name, want)
		}
	}
	r.remove([]string{"a"}, nil)
	r.running("c")
	if res := r.apply(attempt("gpu", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 1 })); len(res) != 0 {
		t.Logf("a whole card: %v", res) // amd.com/gpu is still in the table: it waits
	}
	ids := []string{"b", "c", "n", "gpu"}
	r.remove(ids, nil)
	for _, id := range append(ids, "a") {
		r.ended(id)
	}
}

// What a crash between the files of an attempt and its Job leaves: a driver
// removes it when it is old, and keeps what is young or has a Job.
func TestOrphansAreRemoved(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	r.start()
	file := func(a *adapterv1.Attempt) {
		a.Files = []*adapterv1.File{{Path: "f", Content: []byte("x")}}
	}
	r.apply(attempt("on", "", file))
	r.running("on")
	maps := r.admin.CoreV1().ConfigMaps(r.cfg.Namespace)
	owned, err := maps.Get(t.Context(), r.job("on").Name, metav1.GetOptions{})
	if err != nil || len(owned.OwnerReferences) != 1 {
		t.Fatalf("files are %v, %v, want that the Job owns them", owned, err)
	}
	r.kill()
	if _, err := maps.Patch(t.Context(), owned.Name, types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "y-gone-0123456789abcdef", Labels: owned.Labels}}
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-somebody-else"}}
	for _, m := range []*corev1.ConfigMap{orphan, foreign} {
		if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	own := func() bool {
		m, err := maps.Get(t.Context(), owned.Name, metav1.GetOptions{})
		return err == nil && len(m.OwnerReferences) == 1
	}
	r.start()
	until(t, "the files have their owner again", own)
	if _, err := maps.Get(t.Context(), orphan.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("files that may be of an Apply under way: %v, want that they stay", err)
	}
	r.kill()
	// The server's clock decides what is old: a quarter of an hour later.
	r.reverse(k, nil, func(res *http.Response) {
		res.Header.Set("Date", time.Now().Add(15*time.Minute).UTC().Format(http.TimeFormat))
	})
	r.start()
	until(t, "the orphan is gone", func() bool {
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Name == orphan.Name })
	})
	if _, err := maps.Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || !own() {
		t.Errorf("what is somebody else's: %v; files owned: %v", err, own())
	}
	r.remove([]string{"on"}, nil)
	r.ended("on")
	r.remove(nil, []string{"on"})
	until(t, "its files are collected", func() bool {
		_, err := maps.Get(t.Context(), owned.Name, metav1.GetOptions{})
		return err != nil
	})
}

// With a metrics server nodes and attempts have figures; what an attempt used
// is told with its end, also by a later driver.
func TestFiguresOfUse(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	var samples atomic.Int64
	var pod atomic.Value
	begun := time.Now()
	r.reverse(k, func(w http.ResponseWriter, req *http.Request) bool {
		path, ok := strings.CutPrefix(req.URL.Path, "/apis/metrics.k8s.io/v1beta1/")
		if !ok {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case path == "nodes" && req.URL.Query().Get("labelSelector") == "rig="+r.label:
			fmt.Fprintf(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[{"metadata":{"name":"%s-0"},"timestamp":%q,"window":"10s","usage":{"cpu":"2000000000n","memory":"8Gi"}},
				{"metadata":{"name":"of-others"},"usage":{"cpu":"1","memory":"1Gi"}}]}`, r.label, time.Now().UTC().Format(time.RFC3339))
		case strings.HasPrefix(path, "namespaces/"+r.cfg.Namespace+"/pods"):
			name, _ := pod.Load().(string)
			n := samples.Add(1)
			fmt.Fprintf(w, `{"kind":"PodMetricsList","items":[{"metadata":{"name":%q},"timestamp":%q,"window":"10s","containers":[{"name":"main","usage":{"cpu":"500m","memory":"%dMi"}},{"name":"sidecar","usage":{"cpu":"500m","memory":"1Mi"}}]}]}`,
				name, begun.Add(time.Duration(n)*time.Hour).UTC().Format(time.RFC3339), 99+n%2)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		return true
	}, nil)
	r.start()
	w := r.watch()
	r.apply(attempt("on", "", nil))
	r.running("on")
	pod.Store(r.pods("on")[0])
	w.await("figures of use", func(w *watched) bool {
		m := w.measure
		return len(m.GetNodes()) == 1 && len(m.GetAttempts()) == 1 && m.Running == 1
	})
	m := w.measure
	if n := m.Nodes[0]; n.Name != r.label+"-0" || n.CpuBusyPermille != 250 || n.MemoryBusyBytes != 8*gib || m.CpuBusyPermille != 250 || m.MemoryBusyBytes != 8*gib {
		t.Errorf("use of nodes is %v in %v", n, m)
	}
	if a := m.Attempts[0]; a.AttemptId != "on" || a.CpuMicroseconds < 3_500_000_000 || a.MemoryBytes < 100<<20 {
		t.Errorf("use of the attempt is %v, want that of both containers since it began", a)
	}
	if len(m.Paths) != 1 || m.Paths[0].Peer != strings.TrimSuffix(m.Paths[0].Peer, "/") || m.Paths[0].LatencyMicroseconds <= 0 || m.Paths[0].LossPpm != 0 {
		t.Errorf("paths are %v, want one to the API server", m.Paths)
	}
	r.remove([]string{"on"}, nil)
	st := r.ended("on")
	if st.CpuMicroseconds < 3_500_000_000 || st.MemoryPeakBytes < 100<<20 || st.Node != r.label+"-0" {
		t.Errorf("its end is %v, want what it used and where it ran", st)
	}
	r.restart()
	if again := r.ended("on"); again.CpuMicroseconds != st.CpuMicroseconds || again.MemoryPeakBytes != st.MemoryPeakBytes || again.Node != st.Node {
		t.Errorf("a later driver says %v, the first %v", again, st)
	}
}

// The store behind the server is lost while the server answers: that is said;
// then all goes on, nothing is run twice.
func TestStoreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a cluster of its own")
	}
	cluster(t) // or skip
	k := enginetest.KubernetesCluster(t)
	if err := k.StartKwok(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, k, 1, nil)
	r.start()
	w := r.watch()
	r.apply(attempt("on", "", nil))
	r.running("on")
	if err := k.KillStore(); err != nil {
		t.Fatal(err)
	}
	w.awaitTrouble(2*told, "check etcd")
	_, err := r.client.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{attempt("next", "", nil)}})
	wantCode(t, err, connect.CodeUnavailable)
	if err := k.StartStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.await("no trouble", func(w *watched) bool { return w.trouble == "" })
	r.apply(attempt("on", "", nil), attempt("next", "50ms", nil))
	r.ended("next")
	r.running("on")
	if n := len(r.pods("on")) + len(r.pods("next")); n != 2 {
		t.Errorf("the two have %d pods", n)
	}
	r.remove([]string{"on"}, nil)
	r.ended("on")
}
