package kubernetes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Resource names of the platform with units of their own; all others count
// pieces.
const (
	resourceCPU     = "cpu"     // thousandths of a core
	resourceMemory  = "memory"  // bytes
	resourceStorage = "storage" // bytes
)

// amounts are quantities by resource name of the platform.
type amounts map[string]int64

func (a amounts) add(b amounts, sign int64) {
	for name, n := range b {
		a[name] = saturate(a[name], sign*n)
	}
}

// saturate adds without running over: what a cluster says of itself is not to
// be trusted.
func saturate(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}

// milli returns thousandths of q, bounded.
func milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) >= 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

// value returns q in whole units, rounded up as Kubernetes does, bounded.
func value(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// table converts between the platform's resources and the cluster's.
type table struct {
	entries []Mapping
	byName  map[corev1.ResourceName]Mapping // the first entry of each extended name
}

func newTable(entries []Mapping) table {
	t := table{entries: entries, byName: make(map[corev1.ResourceName]Mapping, len(entries))}
	for _, m := range entries {
		if _, ok := t.byName[corev1.ResourceName(m.Extended)]; !ok {
			t.byName[corev1.ResourceName(m.Extended)] = m
		}
	}
	return t
}

// raw says what a resource list has of what the platform has words for, by
// cpu, memory, storage and the names of extended resources. Negative
// quantities count as none.
func (t table) raw(list corev1.ResourceList) amounts {
	out := make(amounts, len(list))
	for name, q := range list {
		if q.Sign() <= 0 {
			continue
		}
		switch name {
		case corev1.ResourceCPU:
			out[resourceCPU] = milli(q)
		case corev1.ResourceMemory:
			out[resourceMemory] = value(q)
		case corev1.ResourceEphemeralStorage:
			out[resourceStorage] = value(q)
		default:
			if _, ok := t.byName[name]; ok {
				out[string(name)] = value(q)
			}
		}
	}
	return out
}

// merge says what raw amounts are in the platform's words; less than nothing
// counts as nothing.
func (t table) merge(raw amounts) amounts {
	out := make(amounts, len(raw))
	for name, n := range raw {
		if m, ok := t.byName[corev1.ResourceName(name)]; ok {
			name = m.Resource
		}
		out[name] = saturate(out[name], max(n, 0))
	}
	return out
}

// bound lowers raw amounts to what a quota allows in all. A quota on a part of
// the pods only bounds nothing.
func (t table) bound(raw amounts, q *corev1.ResourceQuota) {
	if len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
		return
	}
	for name, hard := range q.Spec.Hard {
		plain := corev1.ResourceName(strings.TrimPrefix(strings.TrimPrefix(string(name), "requests."), "limits."))
		for k, n := range t.raw(corev1.ResourceList{plain: hard}) {
			if have, ok := raw[k]; ok {
				raw[k] = min(have, n)
			}
		}
		if hard.Sign() <= 0 { // none at all
			for k := range t.raw(corev1.ResourceList{plain: resource.MustParse("1")}) {
				if _, ok := raw[k]; ok {
					raw[k] = 0
				}
			}
		}
	}
}

// list says what an attempt asks for in the cluster's words. has tells how
// much of an extended resource the best node has: of several that count as the
// same resource, the first that some node has enough of is taken.
func (t table) list(want map[string]int64, has func(extended string) int64) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		n := want[name]
		switch {
		case n < 0:
			return nil, fmt.Errorf("%s must not be negative, got %d", name, n)
		case n == 0:
		case name == resourceCPU:
			out[corev1.ResourceCPU] = *resource.NewMilliQuantity(n, resource.DecimalSI)
		case name == resourceMemory:
			out[corev1.ResourceMemory] = *resource.NewQuantity(n, resource.BinarySI)
		case name == resourceStorage:
			out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(n, resource.BinarySI)
		default:
			m, ok := t.choose(name, n, has)
			if !ok {
				return nil, fmt.Errorf("%s is not known here: an operator adds it to resources in the center's configuration", name)
			}
			out[corev1.ResourceName(m.Extended)] = *resource.NewQuantity(n, resource.DecimalSI)
			for _, k := range slices.Sorted(maps.Keys(m.With)) {
				out[corev1.ResourceName(k)] = *resource.NewQuantity(m.With[k], resource.DecimalSI)
			}
		}
	}
	return out, nil
}

func (t table) choose(name string, n int64, has func(string) int64) (Mapping, bool) {
	first := -1
	for i, m := range t.entries {
		if m.Resource != name {
			continue
		}
		if has(m.Extended) >= n {
			return m, true
		}
		if first < 0 {
			first = i
		}
	}
	if first < 0 {
		return Mapping{}, false
	}
	return t.entries[first], true
}

// requests sums what a pod asks for, in the way of the scheduler: the larger
// of its containers together and of each of its init containers, and overhead.
func (t table) requests(spec *corev1.PodSpec) amounts {
	sum := amounts{}
	for i := range spec.Containers {
		sum.add(t.raw(spec.Containers[i].Resources.Requests), 1)
	}
	most := amounts{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		r := t.raw(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sum.add(r, 1) // a sidecar
			continue
		}
		for name, n := range r {
			most[name] = max(most[name], n)
		}
	}
	for name, n := range most {
		sum[name] = max(sum[name], n)
	}
	sum.add(t.raw(spec.Overhead), 1)
	return sum
}

// Labels by which feature discovery and operators say what devices a node has.
var (
	modelLabels  = []string{"nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "accelerator-type", "cambricon.com/mlu.product", "hygon.com/dcu.product", "accelerator"}
	memoryLabels = []string{"nvidia.com/gpu.memory", "amd.com/gpu.vram", "huawei.com/npu.memory", "cambricon.com/mlu.memory", "hygon.com/dcu.memory"}
)

// accelerators says which devices a node has.
func (t table) accelerators(n *corev1.Node) []*adapterv1.Accelerator {
	var out []*adapterv1.Accelerator
	for _, name := range slices.Sorted(maps.Keys(n.Status.Capacity)) {
		m, ok := t.byName[name]
		if !ok {
			continue
		}
		q := n.Status.Capacity[name]
		if q.Sign() <= 0 {
			continue
		}
		a := &adapterv1.Accelerator{Vendor: m.Vendor, Model: m.Model, Count: value(q), Resource: m.Resource}
		if model := labelOf(n, m, modelLabels); model != "" {
			a.Model = model
		}
		a.MemoryBytes = deviceMemory(labelOf(n, m, memoryLabels))
		out = append(out, a)
	}
	return out
}

// labelOf returns the first of the labels that n has and that speaks of m's
// vendor: one with a vendor's domain speaks of that vendor only.
func labelOf(n *corev1.Node, m Mapping, labels []string) string {
	domain, _, _ := strings.Cut(m.Extended, "/")
	for _, l := range labels {
		of, _, qualified := strings.Cut(l, "/")
		if qualified && of != domain && of != "beta."+domain {
			continue
		}
		if v := n.Labels[l]; v != "" {
			return v
		}
	}
	return ""
}

// deviceMemory reads a device's memory from a label: MiB, as NVIDIA's feature
// discovery writes it, or a quantity with a unit such as 64G, as AMD's does.
func deviceMemory(label string) int64 {
	if label == "" || len(label) > 20 {
		return 0
	}
	if mib, err := strconv.ParseInt(label, 10, 64); err == nil {
		if mib <= 0 || mib > 1<<40 {
			return 0
		}
		return mib << 20
	}
	q, err := resource.ParseQuantity(label)
	if err != nil || q.Sign() <= 0 {
		return 0
	}
	return value(q)
}
