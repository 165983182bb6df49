package slurm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// partition is what the driver reads of a partition: whether it takes jobs,
// said in two ways.
type partition struct {
	Name  text  `json:"name"`
	State words `json:"state"` // v0.0.38
	Now   struct {
		State words `json:"state"`
	} `json:"partition"`
}

// lookAtPartitions reads now and then which partitions take no jobs.
func (d *Driver) lookAtPartitions(ctx context.Context, c *looks) error {
	if c.down != nil && time.Since(c.partsAt) < partitionsEvery {
		return nil
	}
	down, there := map[string]bool{}, map[string]bool{}
	_, err := list(ctx, d.api, "partitions", 0, func(p *partition) {
		state := append(p.State, p.Now.State...)
		there[string(p.Name)] = true
		down[string(p.Name)] = len(state) > 0 && !state.has("UP")
	})
	if err != nil {
		return err
	}
	for _, p := range d.cfg.Partitions {
		if !there[p.Name] {
			return &strangeError{fmt.Sprintf("the cluster has no partition %q, or hides it from user %q; it has %s: look at partitions in the configuration", p.Name, d.cfg.User, clip(strings.Join(slices.Sorted(maps.Keys(there)), ", "), 300))}
		}
	}
	c.down, c.partsAt = down, time.Now()
	return nil
}

// uses adds up what this platform's jobs have; d.mu is held.
func (d *Driver) uses() (sum map[string]int64) {
	sum = map[string]int64{}
	for _, a := range d.attempts {
		for _, j := range a.jobs {
			if j.State.has("PENDING") && a.final == nil {
				sum["waiting"]++
			}
			if !j.running() {
				continue
			}
			sum["running"]++
			sum["cpu"] += parseTRES(string(j.TRES), "cpu") * 1000
			sum["memory"] += parseTRES(string(j.TRES), "mem")
			for _, g := range parseGRES(string(j.PerNode)) {
				for resource, name := range d.cfg.GRES {
					if g.is(name) {
						sum[resource] += g.count
					}
				}
			}
		}
	}
	return sum
}

// is reports whether g is of a kind: "gpu", or "gpu:h20".
func (g gres) is(kind string) bool {
	name, model, typed := strings.Cut(kind, ":")
	return g.name == name && (!typed || g.model == model || g.model == "")
}

// survey makes a view of the nodes, without trouble.
func (d *Driver) survey(nodes []*node, down map[string]bool, ours map[string]int64) view {
	v := view{nodes: map[string]*adapterv1.Node{}}
	used := map[string]int64{}
	capacity := map[string]int64{"cpu": 0, "memory": 0}
	for r := range d.cfg.GRES {
		capacity[r] = 0
	}
	m := &adapterv1.Measurement{MeasuredAt: timestamppb.Now(), Paths: d.way.quality(), Running: ours["running"], Waiting: ours["waiting"]}
	var load, cpus int64
	for _, n := range nodes {
		allowed, open := false, false
		for _, p := range n.Partitions {
			if d.cfg.allows(p) {
				allowed, open = true, open || !down[p]
			}
		}
		if !allowed || n.Name == "" {
			continue
		}
		out := d.node(n)
		v.nodes[out.Name] = out
		cpus += n.CPUs.or(0)
		load += min(max(n.Load.or(0), 0), n.CPUs.or(0)*100)
		if total, free := n.Memory.or(0), n.Free.or(n.FreeOld.or(-1)); free >= 0 {
			m.MemoryTotalBytes += total * mib
			m.MemoryBusyBytes += max(total-free, 0) * mib
			if cpus := n.CPUs.or(0); cpus > 0 && n.Load.set {
				m.Nodes = append(m.Nodes, &adapterv1.NodeUse{Name: out.Name, MemoryBusyBytes: max(total-free, 0) * mib,
					CpuBusyPermille: min(max(n.Load.n, 0)*10/cpus, 1000)})
			}
		}
		if !open || out.State != adapterv1.NodeState_NODE_STATE_READY {
			continue
		}
		for r, amount := range out.Allocatable {
			if r != "storage" {
				capacity[r] += amount
			}
		}
		used["cpu"] += n.UsedCPUs.or(0) * 1000
		used["memory"] += n.UsedMemory.or(0) * mib
		for r, kind := range d.cfg.GRES {
			for _, g := range parseGRES(string(n.GRESUsed)) {
				if g.is(kind) {
					used[r] += g.count
				}
			}
		}
	}
	for r := range capacity {
		// What others use is not for jobs of the platform now.
		capacity[r] = max(capacity[r]-max(used[r]-ours[r], 0), 0)
		if most, bounded := d.cfg.Capacity[r]; bounded {
			capacity[r] = min(capacity[r], most)
		}
	}
	if cpus > 0 {
		m.CpuBusyPermille = load * 10 / cpus
	}
	v.measured = m
	v.inventory = d.inventory(capacity)
	return v
}

// inventory is what is declared, with a capacity.
func (d *Driver) inventory(capacity map[string]int64) *adapterv1.Inventory {
	inv := d.cfg.Inventory(d.center)
	if inv.Name == "" {
		inv.Name = d.center
	}
	inv.Capacity = capacity
	inv.Images = slices.Sorted(maps.Keys(d.cfg.Images))
	release, version := d.api.said()
	inv.Version = fmt.Sprintf("Slurm %s, v0.0.%d", release, version)
	for _, p := range d.cfg.Partitions {
		inv.Offers = append(inv.Offers, &adapterv1.SpecOffer{ResourceSpecId: p.Spec, Price: p.Price})
		if len(p.Quantity) > 0 {
			desc := p.Desc
			if desc == "" {
				desc = "partition " + p.Name
			}
			inv.Specs = append(inv.Specs, &adapterv1.SpecDeclaration{ResourceSpecId: p.Spec, Desc: desc, Quantity: p.Quantity})
		}
	}
	slices.SortFunc(inv.Offers, func(a, b *adapterv1.SpecOffer) int { return strings.Compare(a.ResourceSpecId, b.ResourceSpecId) })
	return inv
}

var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "riscv64": "riscv64", "loongarch64": "loong64"}

// node translates a node.
func (d *Driver) node(n *node) *adapterv1.Node {
	out := &adapterv1.Node{Name: clip(string(n.Name), 253), Architecture: architectures[string(n.Architecture)], OperatingSystem: clip(string(n.System), 200)}
	if out.Architecture == "" {
		out.Architecture = clip(string(n.Architecture), 60)
	}
	if d.cfg.PoolFolder != "" {
		name, said := d.cfg.PoolNodes[out.Name]
		if out.PoolNode = out.Name; said {
			out.PoolNode = name // "": there is none
		}
	}
	for i, p := range d.cfg.Partitions {
		if !slices.Contains(n.Partitions, p.Name) {
			continue
		}
		if out.SpecIds = append(out.SpecIds, p.Spec); i == 0 { // which has those that no partition is for
			out.SpecIds = slices.AppendSeq(out.SpecIds, maps.Keys(d.cfg.Prices))
		}
	}
	slices.Sort(out.SpecIds)
	out.State, out.Reason = stateOf(n)
	out.Capacity = map[string]int64{"cpu": n.CPUs.or(0) * 1000, "memory": n.Memory.or(0) * mib}
	out.Allocatable = map[string]int64{"cpu": n.Effective.or(n.CPUs.or(0)) * 1000, "memory": max(n.Memory.or(0)-n.Reserved.or(0), 0) * mib}
	if disk := n.Disk.or(0); disk > 0 {
		out.Capacity["storage"], out.Allocatable["storage"] = disk*mib, disk*mib
	}
	for _, g := range parseGRES(string(n.GRES)) {
		for _, r := range slices.Sorted(maps.Keys(d.cfg.GRES)) {
			if g.is(d.cfg.GRES[r]) {
				out.Capacity[r] += g.count
				out.Allocatable[r] += g.count
				out.Accelerators = append(out.Accelerators, d.accelerator(g, r))
				break
			}
		}
	}
	out.Labels = map[string]string{"slurm.partitions": clip(strings.Join(n.Partitions, ","), 250)}
	if len(n.Features) > 0 {
		out.Labels["slurm.features"] = clip(strings.Join(n.Features, ","), 250)
	}
	return out
}

// vendors by resource, and for GPUs by how AMD and others call theirs.
var vendors = map[string]string{"npu": "Huawei", "mlu": "Cambricon", "dcu": "Hygon"}

func (d *Driver) accelerator(g gres, resource string) *adapterv1.Accelerator {
	m := d.cfg.Models[g.model]
	a := &adapterv1.Accelerator{Vendor: m.Vendor, Model: m.Model, Count: g.count, MemoryBytes: m.MemoryBytes, Resource: resource}
	if a.Model == "" {
		a.Model = strings.ToUpper(g.model)
	}
	if a.Vendor == "" {
		a.Vendor = vendors[resource]
	}
	if a.Vendor == "" && resource == "gpu" {
		switch lower := strings.ToLower(g.model); {
		case strings.HasPrefix(lower, "mi") || strings.HasPrefix(lower, "amd"):
			a.Vendor = "AMD"
		case lower != "":
			a.Vendor = "NVIDIA"
		}
	}
	return a
}

// stateOf says whether a node takes jobs.
func stateOf(n *node) (adapterv1.NodeState, string) {
	reason := func(word string) string {
		if n.Reason == "" {
			return "Slurm: " + word
		}
		return "Slurm: " + word + ": " + clip(string(n.Reason), 300)
	}
	for _, w := range []string{"DOWN", "ERROR", "FAIL", "FAILING", "NOT_RESPONDING", "NO_RESPOND", "FUTURE", "UNKNOWN", "INVALID", "INVALID_REG", "REBOOT_ISSUED", "REBOOT", "POWERING_DOWN", "PERFCTRS"} {
		if n.is(w) {
			return adapterv1.NodeState_NODE_STATE_NOT_READY, reason(strings.ToLower(w))
		}
	}
	for _, w := range []string{"DRAIN", "DRAINED", "DRAINING", "MAINT", "MAINTENANCE", "RESERVED", "BLOCKED", "PLANNED_DOWN"} {
		if n.is(w) {
			return adapterv1.NodeState_NODE_STATE_DRAINED, reason(strings.ToLower(w))
		}
	}
	for _, w := range []string{"IDLE", "MIXED", "ALLOCATED", "ALLOC", "COMPLETING", "PLANNED"} {
		if n.is(w) {
			return adapterv1.NodeState_NODE_STATE_READY, ""
		}
	}
	return adapterv1.NodeState_NODE_STATE_NOT_READY, reason(clip(strings.ToLower(strings.Join(n.State, "+")), 60))
}
