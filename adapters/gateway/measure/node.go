package measure

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/core"
)

// Node describes this machine as a node of a center: what it has, and the
// facts that jobs are placed by as labels. It looks and measures nothing, so
// it takes milliseconds; what the system does not tell is left out. Allocatable is
// what the machine has: a center that offers less says so.
func Node(context.Context) *adapterv1.Node { return Inspect("/").Node() }

// resources are what the cards of vendors count as whose model is not known.
var resources = map[string]string{"NVIDIA": "gpu", "AMD": "gpu", "Intel": "gpu", "Moore Threads": "gpu", "MetaX": "gpu", "Iluvatar": "gpu",
	"Huawei": "npu", "Habana": "npu", "Kunlunxin": "npu", "Enflame": "npu", "Cambricon": "mlu", "Hygon": "dcu", "Google": "tpu"}

// Peak is what the card can do at most, by precision; nothing if it is not a
// known one.
func (a Accelerator) Peak() []accelerators.Rate {
	known, _ := accelerators.Known().Find(a.Model)
	return known.Peak
}

// Node is m in the contract's words.
func (m Machine) Node() *adapterv1.Node {
	n := &adapterv1.Node{Name: m.Name, State: adapterv1.NodeState_NODE_STATE_READY, Architecture: m.Architecture, OperatingSystem: runtime.GOOS, Labels: m.labels()}
	have := map[string]int64{core.CPU: int64(m.CPU.Threads) * 1000, core.Memory: m.MemoryBytes}
	for _, a := range m.Accelerators {
		known, _ := accelerators.Known().Find(a.Model)
		resource := first(known.Class, resources[a.Vendor])
		if resource == "" {
			continue // a card nothing is known of
		}
		have[resource]++
		x := &adapterv1.Accelerator{Vendor: first(known.Vendor, a.Vendor), Model: first(known.Model, plain(a.Model)), Count: 1, MemoryBytes: known.MemoryBytes, Resource: resource}
		same := func(y *adapterv1.Accelerator) bool {
			return y.Vendor == x.Vendor && y.Model == x.Model && y.Resource == x.Resource
		}
		if i := slices.IndexFunc(n.Accelerators, same); i >= 0 {
			n.Accelerators[i].Count++
		} else {
			n.Accelerators = append(n.Accelerators, x)
		}
	}
	n.Capacity, n.Allocatable = map[string]int64{}, map[string]int64{}
	for name, q := range have {
		if q > 0 {
			n.Capacity[name], n.Allocatable[name] = q, q
		}
	}
	return n
}

// labels are the facts, by names that sort together.
func (m Machine) labels() map[string]string {
	l := map[string]string{}
	add := func(name, value string) {
		if value != "" {
			l[name] = plain(value)
		}
	}
	count := func(name string, n int64) {
		if n > 0 {
			add(name, strconv.FormatInt(n, 10))
		}
	}
	add("cpu.vendor", m.CPU.Vendor)
	add("cpu.model", m.CPU.Model)
	count("cpu.sockets", int64(m.CPU.Sockets))
	count("cpu.cores", int64(m.CPU.Cores))
	count("cpu.threads", int64(m.CPU.Threads))
	count("cpu.mhz", int64(m.CPU.MHz))
	for _, f := range m.CPU.Features {
		add("cpu.feature."+f, "true")
	}
	add("kernel", m.Kernel)
	add("system", m.System)
	if m.Virtual {
		add("virtual", "true")
	}
	count("numa.nodes", int64(len(m.NUMA)))
	count("disks", int64(len(m.Disks)))
	fastest := int64(0)
	for _, nic := range m.NICs {
		if nic.Up {
			fastest = max(fastest, nic.SpeedMbps)
		}
	}
	count("network.mbps", fastest)
	return l
}

// maxLabel bytes are what a platform takes of a label's value.
const maxLabel = 127

// plain is what a platform takes of a text that hardware or a driver gave: one
// odd byte must not make it refuse the whole machine.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.ToValidUTF8(s[:min(len(s), maxLabel)], "")
}
