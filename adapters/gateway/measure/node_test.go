package measure

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

func TestNode(t *testing.T) {
	t.Parallel()
	h200 := Accelerator{VendorID: "0x10de", Vendor: "NVIDIA", Model: "NVIDIA H200"}
	m := Machine{Name: "gpu7", Architecture: "amd64", Kernel: "6.1\x00\xff", Virtual: true, MemoryBytes: 1 << 40, NUMA: make([]NUMANode, 2), Disks: make([]Disk, 3),
		CPU:          CPU{Vendor: "GenuineIntel", Model: strings.Repeat("x", 126) + "ü", Sockets: 2, Cores: 64, Threads: 128, MHz: 3500.9, Features: []string{"amx_bf16"}},
		NICs:         []NIC{{SpeedMbps: 400000}, {SpeedMbps: 200000, Up: true}},
		Accelerators: []Accelerator{h200, h200, {Vendor: "Huawei", DeviceID: "0xd802"}, {VendorID: "0x1234", Model: "odd"}, {Vendor: "NVIDIA", Model: "NVIDIA New"}}}
	all := map[string]int64{"cpu": 128000, "memory": 1 << 40, "gpu": 3, "npu": 1}
	want := &adapterv1.Node{Name: "gpu7", State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "amd64", OperatingSystem: runtime.GOOS, Capacity: all, Allocatable: all,
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H200 SXM 141GB", Count: 2, MemoryBytes: 141 << 30, Resource: "gpu"},
			{Vendor: "Huawei", Count: 1, Resource: "npu"}, {Vendor: "NVIDIA", Model: "NVIDIA New", Count: 1, Resource: "gpu"}},
		Labels: map[string]string{"cpu.vendor": "GenuineIntel", "cpu.model": strings.Repeat("x", 126), "cpu.sockets": "2", "cpu.cores": "64", "cpu.threads": "128", "cpu.mhz": "3500",
			"cpu.feature.amx_bf16": "true", "kernel": "6.1 ", "virtual": "true", "numa.nodes": "2", "disks": "3", "network.mbps": "200000"}}
	if diff := cmp.Diff(want, m.Node(), protocmp.Transform()); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if n := (Machine{}).Node(); len(n.Capacity) != 0 || len(n.Labels) != 0 {
		t.Errorf("of nothing: %v", n)
	}
	if runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: machines are looked at on Linux only, this is %s", runtime.GOOS)
	}
	n := Node(t.Context())
	if name, err := os.Hostname(); err != nil || n.Name != name || n.Capacity["cpu"] < int64(runtime.NumCPU())*1000 || n.Capacity["memory"] < 64<<20 {
		t.Errorf("this machine: %v, %v", n, err)
	}
}
