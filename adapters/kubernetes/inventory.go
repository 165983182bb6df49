package kubernetes

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// node is what the driver keeps of a node.
type node struct {
	view  *adapterv1.Node // without allocatable
	alloc amounts         // raw; what pods may use in all
	free  amounts         // raw; what of it jobs of the platform may use
}

// foreign is a pod of somebody else, which holds a part of a node.
type foreign struct {
	node     string
	requests amounts // raw
}

// resources keeps what a cluster has: nodes, what others use of them, and
// quotas. The capacity is kept as it changes, never summed anew. It is not
// safe for concurrent use.
type resources struct {
	table  table
	center string
	takes  func(*corev1.Node) string // why a node takes no work of ours; "" if it does

	nodes   map[string]*node
	others  map[types.UID]foreign
	used    map[string]amounts // raw; by node, of others
	quotas  map[string]*corev1.ResourceQuota
	total   amounts // raw; free of all ready nodes
	changed map[string]bool
	dirty   bool // total or quotas changed
}

func newResources(t table, center string, tolerations []corev1.Toleration) *resources {
	return &resources{
		table: t, center: center, takes: func(n *corev1.Node) string { return refuses(n, center, tolerations) },
		nodes: map[string]*node{}, others: map[types.UID]foreign{}, used: map[string]amounts{}, quotas: map[string]*corev1.ResourceQuota{},
		total: amounts{}, changed: map[string]bool{},
	}
}

// refuses says which taint keeps our pods from a node. One that is reserved for
// an allocation takes the pods of that.
func refuses(n *corev1.Node, center string, tolerations []corev1.Toleration) string {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || askedOf(n).tolerated(center, t) {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(tol corev1.Toleration) bool { return tolerates(tol, t) }) {
			return "taint " + t.ToString()
		}
	}
	return ""
}

func tolerates(tol corev1.Toleration, t *corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	return tol.Operator == corev1.TolerationOpExists || tol.Key != "" && tol.Value == t.Value
}

// setNode takes a node's present state, nil if it is no more.
func (r *resources) setNode(name string, n *corev1.Node) {
	old := r.nodes[name]
	if old != nil {
		r.count(old, -1)
	}
	r.changed[name] = true
	if n == nil {
		delete(r.nodes, name)
		return
	}
	e := &node{view: r.viewNode(n), alloc: r.table.raw(n.Status.Allocatable)}
	r.nodes[name] = e
	r.refree(name, e)
	r.count(e, 1)
}

// count adds or takes away what a node gives to the center's capacity.
func (r *resources) count(e *node, sign int64) {
	if e.view.State == adapterv1.NodeState_NODE_STATE_READY {
		r.total.add(e.free, sign)
		r.dirty = true
	}
}

// refree computes what of a node is free for jobs.
func (r *resources) refree(name string, e *node) {
	e.free = maps.Clone(e.alloc)
	for k, n := range r.used[name] {
		if have, ok := e.free[k]; ok {
			e.free[k] = max(have-n, 0)
		}
	}
}

// setForeign takes what a pod of somebody else holds now; f.node is "" if it
// holds nothing.
func (r *resources) setForeign(uid types.UID, f foreign) {
	old, had := r.others[uid]
	if had && old.node == f.node && maps.Equal(old.requests, f.requests) {
		return
	}
	if had {
		r.use(old, -1)
		delete(r.others, uid)
	}
	if f.node != "" && len(f.requests) > 0 {
		r.others[uid] = f
		r.use(f, 1)
	}
}

func (r *resources) use(f foreign, sign int64) {
	sum := r.used[f.node]
	if sum == nil {
		sum = amounts{}
		r.used[f.node] = sum
	}
	sum.add(f.requests, sign)
	maps.DeleteFunc(sum, func(_ string, n int64) bool { return n == 0 })
	if len(sum) == 0 {
		delete(r.used, f.node)
	}
	if e := r.nodes[f.node]; e != nil {
		r.count(e, -1)
		r.refree(f.node, e)
		r.count(e, 1)
		r.changed[f.node] = true
	}
}

func (r *resources) setQuota(name string, q *corev1.ResourceQuota) {
	r.dirty = true
	if q == nil {
		delete(r.quotas, name)
		return
	}
	r.quotas[name] = q
}

// viewNode says what a node is in the contract's words.
func (r *resources) viewNode(n *corev1.Node) *adapterv1.Node {
	v := &adapterv1.Node{
		Name: n.Name, Capacity: r.table.merge(r.table.raw(n.Status.Capacity)), Labels: n.Labels,
		Architecture:    cmp.Or(n.Status.NodeInfo.Architecture, n.Labels[corev1.LabelArchStable]),
		OperatingSystem: cmp.Or(n.Status.NodeInfo.OperatingSystem, n.Labels[corev1.LabelOSStable]),
		Accelerators:    r.table.accelerators(n), Host: host(n),
		State: adapterv1.NodeState_NODE_STATE_NOT_READY, Reason: "its kubelet has not reported yet",
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			v.State, v.Reason = adapterv1.NodeState_NODE_STATE_READY, ""
		} else {
			v.Reason = c.Reason + ": " + c.Message
		}
	}
	if v.State != adapterv1.NodeState_NODE_STATE_READY {
		return v
	}
	if n.Spec.Unschedulable {
		v.State, v.Reason = adapterv1.NodeState_NODE_STATE_DRAINED, askedOf(n).drained(r.center)
	} else if why := r.takes(n); why != "" {
		v.State, v.Reason = adapterv1.NodeState_NODE_STATE_DRAINED, why
	}
	return v
}

// host names a node's machine, as its kernel does.
func host(n *corev1.Node) string {
	if id := n.Status.NodeInfo.BootID; len(id) <= 64 {
		return id
	}
	return ""
}

// takeNodes returns the nodes that changed since the last call, those that are
// no more with nil.
func (r *resources) takeNodes() map[string]*adapterv1.Node {
	out := make(map[string]*adapterv1.Node, len(r.changed))
	for name := range r.changed {
		e := r.nodes[name]
		if e == nil {
			out[name] = nil
			continue
		}
		v := proto.CloneOf(e.view)
		v.Allocatable = r.table.merge(e.free)
		out[name] = v
	}
	clear(r.changed)
	return out
}

// capacity is what jobs may use in all.
func (r *resources) capacity() amounts {
	raw := maps.Clone(r.total)
	maps.DeleteFunc(raw, func(_ string, n int64) bool { return n == 0 })
	for _, q := range r.quotas {
		r.table.bound(raw, q)
	}
	return r.table.merge(raw)
}

// best tells how much of an extended resource the best node has.
func (r *resources) best() map[string]int64 {
	out := map[string]int64{}
	for _, e := range r.nodes {
		if e.view.State != adapterv1.NodeState_NODE_STATE_READY {
			continue
		}
		for name, n := range e.free {
			out[name] = max(out[name], n)
		}
	}
	return out
}
