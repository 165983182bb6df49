package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// asked is how a node is to be. It stands at the node itself, so that every
// driver of the center knows it, and what somebody changes is put right again.
type asked struct {
	Center     string `json:"center"`
	Isolated   bool   `json:"isolated,omitempty"`
	Allocation string `json:"allocation,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Cordoned: it was not before. One that an administrator has cordoned stays
	// so when it is isolated no more.
	Cordoned bool `json:"cordoned,omitempty"`
}

// askedOf reads what is asked of a node; the zero value: nothing.
func askedOf(n *corev1.Node) asked {
	var out asked
	if text := n.Annotations[noteNode]; text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return asked{}
	}
	return out
}

// shape returns the patch that makes a node be as asked, nil if it is. It is a
// pure function.
func shape(n *corev1.Node, want asked) ([]byte, error) {
	is := askedOf(n)
	want.Cordoned = want.Isolated && (is.Cordoned || !n.Spec.Unschedulable)
	spec, notes, labels := map[string]any{}, map[string]any{}, map[string]any{}
	switch {
	case want.Isolated && !n.Spec.Unschedulable:
		spec["unschedulable"] = true
	case !want.Isolated && is.Cordoned && n.Spec.Unschedulable:
		spec["unschedulable"] = nil
	}
	var value string
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == keyAllocation })
	if want.Allocation != "" {
		value = labelValue(want.Allocation)
		taints = append(taints, corev1.Taint{Key: keyAllocation, Value: value, Effect: corev1.TaintEffectNoSchedule})
	}
	sameTaint := func(a, b corev1.Taint) bool { return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect }
	held := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key != keyAllocation })
	if ours := taints[len(taints)-min(len(value), 1):]; !slices.EqualFunc(held, ours, sameTaint) {
		spec["taints"] = taints
	}
	if have, there := n.Labels[keyAllocation]; have != value || there && value == "" {
		labels[keyAllocation] = orNil(value)
	}
	text := ""
	if want.Isolated || want.Allocation != "" {
		b, err := json.Marshal(want)
		if err != nil {
			return nil, fmt.Errorf("state of node %s: %w", n.Name, err)
		}
		text = string(b)
	}
	if n.Annotations[noteNode] != text {
		notes[noteNode] = orNil(text)
	}
	if len(spec)+len(notes)+len(labels) == 0 {
		return nil, nil
	}
	// What was read is what is changed: else the API server says conflict.
	b, err := json.Marshal(map[string]any{"spec": spec, "metadata": map[string]any{"resourceVersion": n.ResourceVersion, "annotations": notes, "labels": labels}})
	if err != nil {
		return nil, fmt.Errorf("state of node %s: %w", n.Name, err)
	}
	return b, nil
}

// orNil is a value of a merge patch that takes away what is empty.
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// maxReason bounds why a node is as asked, in bytes.
const maxReason = 1024

// SetNode makes a node be as asked: isolated is cordoned, an allocation is a
// label and a taint that only its attempts tolerate. It answers when the API
// server has stored it. Errors: InvalidArgument; NotFound if the center has no
// such node; FailedPrecondition if another center holds it, or the driver's
// account may not change nodes; Unavailable.
func (d *Driver) SetNode(ctx context.Context, r *adapterv1.SetNodeRequest) (*adapterv1.SetNodeResponse, error) {
	if r.Name == "" || len(r.Name) > 253 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("name must have 1 to 253 characters, got %.300q", r.Name))
	}
	if len(r.Reason) > maxReason {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("reason must have at most %d bytes, got %d", maxReason, len(r.Reason)))
	}
	if err := d.wait(ctx, d.whole); err != nil {
		return nil, err
	}
	d.mu.Lock()
	_, known := d.res.nodes[r.Name]
	c := d.clients
	d.mu.Unlock()
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("center %s has no node %q", d.center, r.Name))
	}
	want := asked{Center: d.center, Isolated: r.Isolated, Allocation: r.AllocationId, Reason: r.Reason}
	err := d.setNode(ctx, c, r.Name, &want)
	switch {
	case apierrors.IsNotFound(err):
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("center %s has no node %q", d.center, r.Name))
	case apierrors.IsForbidden(err):
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New(explain(err, c.server, 0)))
	case err != nil:
		return nil, d.failed(err, c)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[r.Name] = want
	return &adapterv1.SetNodeResponse{}, nil
}

// setNode makes a node be as wanted; nil: as it says itself.
func (d *Driver) setNode(ctx context.Context, c *clients, name string, want *asked) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nodes := c.work.CoreV1().Nodes()
	for {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := askedOf(n)
		if is.Center != "" && is.Center != d.center && want != nil {
			if !want.Isolated && want.Allocation == "" {
				return nil // nothing of ours is there
			}
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("node %s is held by center %s", name, is.Center))
		}
		now := is
		if want != nil {
			now = *want
		}
		if now.Center != d.center {
			return nil
		}
		patch, err := shape(n, now)
		if err != nil || patch == nil {
			return err
		}
		if _, err = nodes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// drift queues a node that is not as asked any more; d.mu is held.
func (d *Driver) drift(n *corev1.Node) {
	want, told := askedOf(n), false
	if want.Center == "" { // somebody has taken all of it away
		if want, told = d.asked[n.Name]; !told {
			return
		}
	}
	if want.Center != d.center {
		return
	}
	if patch, err := shape(n, want); err != nil || patch != nil {
		d.queue.AddRateLimited(keyNode + n.Name)
	}
}

// repairNode makes a node be as asked again.
func (d *Driver) repairNode(ctx context.Context, name string) error {
	d.mu.Lock()
	c := d.clients
	told, ok := d.asked[name]
	d.mu.Unlock()
	var want *asked
	if ok {
		want = &told
	}
	err := d.setNode(ctx, c, name, want)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		d.log.Info("node was changed by somebody else and is as asked again", "node", name)
	}
	return err
}

// tolerated reports whether a taint is the one of an allocation of a center.
func (a asked) tolerated(center string, t *corev1.Taint) bool {
	return a.Center == center && a.Allocation != "" && t.Key == keyAllocation
}

// drained says why a node that is cordoned takes no new work.
func (a asked) drained(center string) string {
	if a.Center == center && a.Isolated && a.Cordoned {
		return strings.TrimSuffix("isolated: "+a.Reason, ": ")
	}
	return "cordoned"
}
