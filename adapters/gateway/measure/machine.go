package measure

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Machine is what the system says of itself. What it does not say is empty.
type Machine struct {
	ID           string        `json:"id,omitempty"` // of the installation
	Name         string        `json:"name"`
	Architecture string        `json:"architecture"`
	System       string        `json:"system,omitempty"` // for people
	Kernel       string        `json:"kernel,omitempty"`
	Virtual      bool          `json:"virtual"` // runs in a virtual machine
	CPU          CPU           `json:"cpu"`
	MemoryBytes  int64         `json:"memory_bytes"`
	NUMA         []NUMANode    `json:"numa_nodes,omitempty"`
	Disks        []Disk        `json:"disks,omitempty"`
	NICs         []NIC         `json:"nics,omitempty"`
	Accelerators []Accelerator `json:"accelerators,omitempty"`
}

// CPU is the machine's processors together.
type CPU struct {
	Vendor     string   `json:"vendor,omitempty"`
	Model      string   `json:"model,omitempty"`
	Sockets    int      `json:"sockets"`
	Cores      int      `json:"cores"`
	Threads    int      `json:"threads"`
	MHz        float64  `json:"mhz,omitempty"`         // the highest it is said to reach, or what it runs at
	CacheBytes int64    `json:"cache_bytes,omitempty"` // of the last level, of one instance
	Features   []string `json:"features,omitempty"`    // those programs are chosen by
}

// NUMANode is a part of the machine with memory of its own.
type NUMANode struct {
	Node        int    `json:"node"`
	CPUs        string `json:"cpus"` // as the kernel writes it: 0-15,32-47
	MemoryBytes int64  `json:"memory_bytes"`
}

// Disk is a drive.
type Disk struct {
	Name       string `json:"name"`
	Model      string `json:"model,omitempty"`
	Bytes      int64  `json:"bytes"`
	Rotational bool   `json:"rotational"`
}

// NIC is a network interface of hardware, or of the machine's host.
type NIC struct {
	Name      string `json:"name"`
	Driver    string `json:"driver,omitempty"`
	SpeedMbps int64  `json:"speed_mbps,omitempty"` // 0: it does not say
	MTU       int64  `json:"mtu"`
	Up        bool   `json:"up"`
}

// Accelerator is a card as the bus shows it.
type Accelerator struct {
	Address  string `json:"address"` // on the PCI bus
	VendorID string `json:"vendor_id"`
	DeviceID string `json:"device_id"`
	Vendor   string `json:"vendor,omitempty"`
	Model    string `json:"model,omitempty"`
	NUMANode int    `json:"numa_node"` // -1: it does not say
	Driver   string `json:"driver,omitempty"`
}

// system reads files below a root; what is not there is empty.
type system struct{ root string }

func (s system) text(path string) string {
	b, err := os.ReadFile(filepath.Join(s.root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s system) number(path string) int64 {
	n, err := strconv.ParseInt(s.text(path), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s system) names(dir string) []string {
	entries, err := os.ReadDir(filepath.Join(s.root, dir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// link is the last part of what a link leads to.
func (s system) link(path string) string {
	to, err := os.Readlink(filepath.Join(s.root, path))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// fields splits "name: value" lines into blocks, which empty lines end.
func fields(text string) []map[string]string {
	var blocks []map[string]string
	block := map[string]string{}
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		k, v, ok := strings.Cut(sc.Text(), ":")
		if ok {
			block[strings.TrimSpace(k)] = strings.TrimSpace(v)
		} else if len(block) > 0 {
			blocks = append(blocks, block)
			block = map[string]string{}
		}
	}
	if len(block) > 0 {
		blocks = append(blocks, block)
	}
	return blocks
}

// Inspect reads what the system below root says; root is "/" but in tests.
func Inspect(root string) Machine {
	s := system{root}
	m := Machine{Architecture: runtime.GOARCH, Kernel: s.text("proc/sys/kernel/osrelease"), ID: s.text("etc/machine-id"), Name: s.text("proc/sys/kernel/hostname")}
	if id := s.text("sys/class/dmi/id/product_uuid"); id != "" {
		m.ID = id // the machine's; the other is its installation's, which may have been copied
	}
	for line := range strings.Lines(s.text("etc/os-release")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			m.System = strings.Trim(v, `"`)
		}
	}
	m.CPU, m.Virtual = s.cpu()
	if mem := fields(s.text("proc/meminfo")); len(mem) > 0 {
		m.MemoryBytes = kilobytes(mem[0]["MemTotal"])
	}
	m.NUMA, m.Disks, m.NICs, m.Accelerators = s.numa(), s.disks(), s.nics(), s.accelerators()
	return m
}

func kilobytes(v string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(v, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// features are the ones that decide which build of a program runs, or runs well.
var features = []string{"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16",
	"f16c", "aes", "sha_ni", "bmi2", "asimd", "asimddp", "asimdhp", "fphp", "sve", "sve2", "bf16", "i8mm", "sm3", "sm4", "lasx", "lsx", "hypervisor"}

func (s system) cpu() (CPU, bool) {
	c := CPU{}
	sockets, cores := map[string]bool{}, map[string]bool{}
	virtual := false
	for i, b := range fields(s.text("proc/cpuinfo")) {
		if b["processor"] == "" {
			continue // a remark of some architectures
		}
		c.Threads++
		sockets[b["physical id"]] = true
		id := b["core id"]
		if id == "" {
			id = strconv.Itoa(i)
		}
		cores[b["physical id"]+"/"+id] = true
		if c.Model == "" {
			c.Vendor, c.Model = first(b["vendor_id"], b["CPU implementer"]), first(b["model name"], b["Model Name"], b["CPU part"])
			have := strings.Fields(first(b["flags"], b["Features"]))
			for _, f := range features {
				if slices.Contains(have, f) {
					c.Features = append(c.Features, f)
				}
			}
		}
		if mhz, err := strconv.ParseFloat(b["cpu MHz"], 64); err == nil {
			c.MHz = max(c.MHz, mhz)
		}
	}
	if i := slices.Index(c.Features, "hypervisor"); i >= 0 {
		virtual = true
		c.Features = slices.Delete(c.Features, i, i+1)
	}
	c.Sockets, c.Cores = len(sockets), len(cores)
	if khz := s.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); khz > 0 {
		c.MHz = float64(khz) / 1000
	}
	for _, index := range s.names("sys/devices/system/cpu/cpu0/cache") {
		size := s.text("sys/devices/system/cpu/cpu0/cache/" + index + "/size")
		unit := int64(1)
		switch {
		case strings.HasSuffix(size, "K"):
			unit = 1 << 10
		case strings.HasSuffix(size, "M"):
			unit = 1 << 20
		}
		if n, err := strconv.ParseInt(strings.TrimRight(size, "KM"), 10, 64); err == nil {
			c.CacheBytes = max(c.CacheBytes, n*unit)
		}
	}
	return c, virtual
}

func first(list ...string) string {
	for _, v := range list {
		if v != "" {
			return v
		}
	}
	return ""
}

func (s system) numa() []NUMANode {
	var nodes []NUMANode
	const dir = "sys/devices/system/node/"
	for _, name := range s.names(dir) {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil || !strings.HasPrefix(name, "node") {
			continue
		}
		node := NUMANode{Node: n, CPUs: s.text(dir + name + "/cpulist")}
		for line := range strings.Lines(s.text(dir + name + "/meminfo")) {
			if k, v, _ := strings.Cut(line, ":"); strings.HasSuffix(k, " MemTotal") {
				node.MemoryBytes = kilobytes(strings.TrimSpace(v))
			}
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b NUMANode) int { return a.Node - b.Node })
	return nodes
}

func (s system) disks() []Disk {
	var disks []Disk
	for _, name := range s.names("sys/block") {
		dir := "sys/block/" + name + "/"
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") || strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "md") {
			continue // made of others, or of memory
		}
		if size := s.number(dir+"size") * 512; size > 0 { // sectors of 512 bytes, whatever the disk's are
			disks = append(disks, Disk{Name: name, Model: s.text(dir + "device/model"), Bytes: size, Rotational: s.number(dir+"queue/rotational") == 1})
		}
	}
	return disks
}

func (s system) nics() []NIC {
	var nics []NIC
	for _, name := range s.names("sys/class/net") {
		dir := "sys/class/net/" + name + "/"
		if _, err := os.Stat(filepath.Join(s.root, dir, "device")); err != nil {
			continue // made by software
		}
		nics = append(nics, NIC{Name: name, Driver: s.link(dir + "device/driver"), SpeedMbps: max(0, s.number(dir+"speed")), MTU: s.number(dir + "mtu"), Up: s.text(dir+"operstate") == "up"})
	}
	return nics
}

// vendors are those that make accelerators, by their number on the bus.
var vendors = map[string]string{
	"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel", "0x19e5": "Huawei", "0xcabc": "Cambricon", "0x1d94": "Hygon", "0x1ed5": "Moore Threads",
	"0x1d22": "Kunlunxin", "0x1e3e": "Iluvatar", "0x1e36": "Enflame", "0x9999": "MetaX", "0x1ae0": "Google", "0x1da3": "Habana",
}

// accelerators lists the cards that compute: 3D controllers, processing
// accelerators, and displays of vendors whose displays compute.
func (s system) accelerators() []Accelerator {
	var list []Accelerator
	for _, address := range s.names("sys/bus/pci/devices") {
		dir := "sys/bus/pci/devices/" + address + "/"
		class, vendor := s.text(dir+"class"), s.text(dir+"vendor")
		computes := strings.HasPrefix(class, "0x0302") || strings.HasPrefix(class, "0x1200") || strings.HasPrefix(class, "0x0380") ||
			strings.HasPrefix(class, "0x0300") && vendors[vendor] != "" && !strings.HasPrefix(address, "0000:00:")
		if !computes {
			continue
		}
		a := Accelerator{Address: address, VendorID: vendor, DeviceID: s.text(dir + "device"), Vendor: vendors[vendor], Driver: s.link(dir + "driver"), NUMANode: -1}
		if n, err := strconv.Atoi(s.text(dir + "numa_node")); err == nil {
			a.NUMANode = n
		}
		a.Model = first(s.nvidia(address), s.text(dir+"product_name"))
		list = append(list, a)
	}
	return list
}

// nvidia is the name the driver gives its card.
func (s system) nvidia(address string) string {
	blocks := fields(s.text("proc/driver/nvidia/gpus/" + address + "/information"))
	if len(blocks) == 0 {
		return ""
	}
	return string(bytes.TrimSpace([]byte(blocks[0]["Model"])))
}
