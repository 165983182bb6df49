package kubernetes

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// patched is a node after a merge patch, as an API server does it.
func patched(t *testing.T, n *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	var is, change map[string]any
	b, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &is); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		t.Fatal(err)
	}
	var merge func(to, from map[string]any)
	merge = func(to, from map[string]any) {
		for k, v := range from {
			under, deep := v.(map[string]any)
			switch {
			case v == nil:
				delete(to, k)
			case deep:
				if _, ok := to[k].(map[string]any); !ok {
					to[k] = map[string]any{}
				}
				merge(to[k].(map[string]any), under)
			default:
				to[k] = v
			}
		}
	}
	merge(is, change)
	out := &corev1.Node{}
	if b, err = json.Marshal(is); err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever is asked and whatever others change in between: a node gets as
// asked in one step, then nothing is left to do; and in the end it has what
// others gave it.
func TestShape(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(n int) bool { return random.IntN(n) == 0 }
	own := corev1.Taint{Key: "own", Value: "x", Effect: corev1.TaintEffectNoExecute}
	for round := range 300 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7", Labels: map[string]string{"zone": "a"}}, Spec: corev1.NodeSpec{Unschedulable: pick(2), Taints: []corev1.Taint{own}}}
		first := n.DeepCopy()
		others := false // whether somebody else has changed the cordon
		for range 6 {
			want := asked{Center: "c", Isolated: pick(2), Reason: "why"}
			if pick(2) {
				want.Allocation = "alloc/1" // no label's value: it is hashed
			}
			patch, err := shape(n, want)
			if err != nil {
				t.Fatal(err)
			}
			if patch != nil {
				n = patched(t, n, patch)
			}
			if again, err := shape(n, want); err != nil || again != nil {
				t.Fatalf("round %d: of %+v is left: %s, %v", round, want, again, err)
			}
			ours := slices.ContainsFunc(n.Spec.Taints, func(x corev1.Taint) bool {
				return x.Key == keyAllocation && x.Value == labelValue("alloc/1") && x.Effect == corev1.TaintEffectNoSchedule
			})
			if want.Isolated && !n.Spec.Unschedulable || ours != (want.Allocation != "") || (n.Labels[keyAllocation] != "") != ours || n.Labels["zone"] != "a" || !slices.Contains(n.Spec.Taints, own) {
				t.Fatalf("round %d: asked %+v, got %+v, %v", round, want, n.Spec, n.Labels)
			}
			switch random.IntN(6) { // drift
			case 0:
				n.Spec.Unschedulable, others = !n.Spec.Unschedulable, true
			case 1:
				n.Spec.Taints = []corev1.Taint{own}
			case 2:
				delete(n.Labels, keyAllocation)
			case 3:
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: keyAllocation, Value: "forged", Effect: corev1.TaintEffectNoExecute})
			default:
				continue
			}
			if patch, err = shape(n, askedOf(n)); askedOf(n).Center != "" && err == nil && patch != nil {
				n = patched(t, n, patch)
			}
		}
		if patch, err := shape(n, asked{Center: "c"}); err != nil {
			t.Fatal(err)
		} else if patch != nil {
			n = patched(t, n, patch)
		}
		if n.Annotations[noteNode] != "" || !maps.Equal(n.Labels, first.Labels) || !slices.Equal(n.Spec.Taints, first.Spec.Taints) {
			t.Fatalf("round %d: in the end it has %v, %v, %v", round, n.Annotations, n.Labels, n.Spec.Taints)
		}
		if !others && n.Spec.Unschedulable != first.Spec.Unschedulable {
			t.Fatalf("round %d: in the end cordoned is %v, at first %v", round, n.Spec.Unschedulable, first.Spec.Unschedulable)
		}
	}
}

// A node that is reserved gives its resources to the jobs of its allocation;
// one that another center has reserved gives none.
func TestReservedNodesCount(t *testing.T) {
	t.Parallel()
	for center, want := range map[string]adapterv1.NodeState{"c": adapterv1.NodeState_NODE_STATE_READY, "d": adapterv1.NodeState_NODE_STATE_DRAINED} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		patch, err := shape(n, asked{Center: "c", Allocation: "a"})
		if err != nil {
			t.Fatal(err)
		}
		r := newResources(newTable(builtin), center, nil)
		if v := r.viewNode(patched(t, n, patch)); v.State != want {
			t.Errorf("for center %s it is %v: %q, want %v", center, v.State, v.Reason, want)
		}
	}
}

func TestPathProbes(t *testing.T) {
	t.Parallel()
	var p pathProbes
	if got := p.take("x"); got != nil {
		t.Errorf("of no probes: %v", got)
	}
	for i := range 100 { // the last thirty count
		p.add(time.Duration(i)*time.Hour, i%2 == 0)
	}
	for _, ms := range []int{10, 14, 0, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 10, 12, 0} {
		p.add(time.Duration(ms)*time.Millisecond, ms > 0)
	}
	got := p.take("x")
	if got.Peer != "x" || got.LatencyMicroseconds != 12_000 || got.LossPpm != 66_666 || got.JitterMicroseconds != (4+4+25*2)*1000/27 {
		t.Errorf("got %v", got)
	}
	p = pathProbes{}
	p.add(time.Second, false)
	if got := p.take("x"); got.LossPpm != 1_000_000 || got.LatencyMicroseconds != 0 {
		t.Errorf("without an answer: %v", got)
	}
}

func TestUse(t *testing.T) {
	t.Parallel()
	var u use
	for _, s := range []metric{
		{cpu: 500_000_000, memory: 100, at: at0.Add(10 * time.Second)},
		{cpu: 500_000_000, memory: 100, at: at0.Add(10 * time.Second)}, // the same once more
		{cpu: 2_000_000_000, memory: 300, at: at0.Add(20 * time.Second)},
		{cpu: 0, memory: 200, at: at0.Add(30 * time.Second)},
		{cpu: 9, memory: 900, at: at0.Add(-time.Second)}, // of an earlier pod of that name
	} {
		u.add(s, at0)
	}
	if u.cpu != 25_000_000 || u.memory != 200 || u.peak != 300 {
		t.Errorf("got %+v, want 25 s of CPU, 200 bytes now and 300 at most", u)
	}
}

func TestTimeLeft(t *testing.T) {
	t.Parallel()
	v := view{job: &jobView{timeout: 60}, pod: runningPod()}
	if got := left(v, at0.Add(20*time.Second)); got != 43*time.Second {
		t.Errorf("after 20 s there are %s left", got)
	}
	v.job.stood = stood{Total: 15e6, Since: at0.Add(40 * time.Second).UnixMicro()}
	for _, after := range []time.Duration{40 * time.Second, time.Hour} { // it stands still
		if got := left(v, at0.Add(after)); got != 38*time.Second {
			t.Errorf("after %s, of which it stood still for all but 25 s, there are %s left", after, got)
		}
	}
}
