package measure

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/fault"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reference is the machine whose factor is 1000.
var reference = Figures{Cores: 4, IntegerMops: 8000, FloatMflops: 8000, MemoryMBps: 20000, DiskWriteMBps: 500, DiskReadsPerSecond: 20000, NetworkMBps: 2000, RoundTripMicros: 10}

func TestPerformance(t *testing.T) {
	t.Parallel()
	with := func(f func(*Figures)) Figures { x := reference; f(&x); return x }
	for name, c := range map[string]struct {
		f    Figures
		want int64
	}{
		"the reference": {reference, 1000},
		"nothing":       {Figures{}, 0},
		"twice in everything": {with(func(f *Figures) {
			f.IntegerMops, f.FloatMflops, f.MemoryMBps, f.DiskWriteMBps, f.DiskReadsPerSecond, f.NetworkMBps = 16000, 16000, 40000, 1000, 40000, 4000
		}), 2000},
		"more cores, each the same":         {with(func(f *Figures) { f.Cores, f.MemoryMBps = 8, 40000 }), 1000},
		"more cores on the same memory":     {with(func(f *Figures) { f.Cores = 8 }), int64(math.Round(1000 * math.Pow(2, -4.0/20)))},
		"a slow disk":                       {with(func(f *Figures) { f.DiskReadsPerSecond = 100 }), int64(math.Round(1000 * math.Pow(8, -1.0/20)))},
		"a disk in memory":                  {with(func(f *Figures) { f.DiskWriteMBps = 1e9 }), int64(math.Round(1000 * math.Pow(8, 1.0/20)))},
		"reads that came from memory":       {with(func(f *Figures) { f.DiskReadsPerSecond, f.DiskReadsFromMemory = 1e9, true }), 1000},
		"a figure that is missing":          {with(func(f *Figures) { f.NetworkMBps = 0 }), 1000},
		"figures nobody measures":           {with(func(f *Figures) { f.NetworkMBps, f.IntegerMops = math.NaN(), math.Inf(1) }), 1000},
		"round trips are a fact, no figure": {with(func(f *Figures) { f.RoundTripMicros = 1e6 }), 1000},
	} {
		for range 3 {
			if got := c.f.Performance(); got != c.want {
				t.Errorf("%s: %d, want %d", name, got, c.want)
			}
		}
	}
	// Faster in anything is never slower in all.
	v := reflect.ValueOf(&Figures{}).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Kind() != reflect.Float64 || name == "RoundTripMicros" {
			continue
		}
		last := int64(0)
		for x := 0.01; x < 100; x *= 1.5 {
			f := reference
			field := reflect.ValueOf(&f).Elem().Field(i)
			field.SetFloat(field.Float() * x)
			if got := f.Performance(); got < last {
				t.Errorf("%s times %g: %d after %d", name, x, got, last)
			} else {
				last = got
			}
		}
	}
}

// What is measured must agree with a simple measurement of the same thing made
// here. Bounds are wide: other programs run meanwhile.
func TestPlausible(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now()
	r, err := Run(t.Context(), dir)
	must(t, err)
	f := r.Figures
	within := func(what string, got, other, least, most float64) {
		t.Helper()
		t.Logf("%s: %.0f, by other means %.0f", what, got, other)
		if got < least*other || got > most*other {
			t.Errorf("%s is %.1f, and by other means %.1f: want %g to %g times that", what, got, other, least, most)
		}
	}
	if f.Cores != runtime.GOMAXPROCS(0) || r.Performance <= 0 || r.Performance != f.Performance() || r.Seconds <= 0 || r.Seconds > time.Since(begin).Seconds() {
		t.Errorf("result %+v", r)
	}
	within("integer", f.IntegerMops, chain(), 0.25, 40)
	within("float", f.FloatMflops, floatChain(), 0.25, 40)
	within("memory", f.MemoryMBps, copying(), 0.2, 8*float64(f.Cores))
	write, reads := file(t, dir)
	within("disk write", f.DiskWriteMBps, write, 0.02, 50)
	if !f.DiskReadsFromMemory {
		within("disk reads", f.DiskReadsPerSecond, reads, 0, 5) // past the cache it cannot be faster than through it
	}
	within("network", f.NetworkMBps, 100, 0.1, 1000)
	within("round trip", f.RoundTripMicros, 20, 0.05, 500)
	if left, err := filepath.Glob(filepath.Join(dir, ".measure-*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// sink keeps compilers from leaving out what nobody looks at.
var sink uint64

var started = time.Now()

func wall() time.Duration { return time.Since(started) }

// chain is millions of dependent operations a second: the least a core does.
func chain() float64 {
	const rounds = 5_000_000
	x, begin := uint64(1), wall()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range rounds {
		x = x*0x9E3779B97F4A7C15 + 1
		x ^= x >> 7
	}
	sink = x
	return rounds * 4 / 1e6 / (wall() - begin).Seconds()
}

func floatChain() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const rounds = 5_000_000
	x, begin := float64(len(os.Args)), wall() // the compiler knows what becomes of a constant
	for range rounds {
		x = x*0.999999 + 1e-6
	}
	sink = math.Float64bits(x)
	return rounds * 2 / 1e6 / (wall() - begin).Seconds()
}

// copying is MB/s of copy on memory far beyond the cache, read and written, of one core.
func copying() float64 {
	a, b := make([]byte, 128<<20), make([]byte, 128<<20)
	for i := 0; i < len(a); i += 4096 {
		a[i], b[i] = 1, 2
	}
	begin, n := time.Now(), 0
	for time.Since(begin) < 200*time.Millisecond {
		n += 2 * copy(a, b)
	}
	sink = uint64(a[len(a)/2])
	return float64(n) / 1e6 / time.Since(begin).Seconds()
}

// file is MB/s of writing, and 4 KiB reads a second through the page cache.
func file(t *testing.T, dir string) (write, reads float64) {
	t.Helper()
	p := filepath.Join(dir, "other")
	b := make([]byte, 32<<20)
	for i := range b {
		b[i] = byte(i*7 + i>>9)
	}
	begin := time.Now()
	f, err := os.Create(p)
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Sync())
	write = float64(len(b)) / 1e6 / time.Since(begin).Seconds()
	begin = time.Now()
	n := 0
	for at := int64(0); at < int64(len(b)); at += 4096 {
		_, err := f.ReadAt(b[:4096], at)
		must(t, err)
		n++
	}
	must(t, f.Close())
	return write, float64(n) / time.Since(begin).Seconds()
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Run(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Run(t.Context(), filepath.Join(t.TempDir(), "absent")); fault.KindOf(err) != fault.Unavailable || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := Inspect("/")
	want := Result{Version: benchmark, Identity: identity(m, dir), MeasuredAt: time.Unix(1_700_000_000, 0).UTC(), Seconds: 3, Machine: m, Figures: reference, Performance: 1000}
	must(t, keep(dir, want))
	got, err := Once(t.Context(), dir, false)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("kept, and then (-want +got): %s %v", diff, err)
	}
	// Whatever makes it another machine, or another benchmark, has it measured again.
	path := filepath.Join(dir, cacheFile)
	for name, spoil := range map[string]func(map[string]any){
		"another machine":   func(r map[string]any) { r["identity"] = "x" },
		"another benchmark": func(r map[string]any) { r["version"] = benchmark + 1 },
		"another formula":   func(r map[string]any) { r["performance"] = 7 },
	} {
		b, err := json.Marshal(want)
		must(t, err)
		var r map[string]any
		must(t, json.Unmarshal(b, &r))
		spoil(r)
		b, err = json.Marshal(r)
		must(t, err)
		must(t, os.WriteFile(path, b, 0o600))
		if r, ok := kept(dir); ok && r.Identity == want.Identity {
			t.Errorf("%s: taken for good: %+v", name, r)
		}
	}
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, ok := kept(dir); ok {
		t.Error("a damaged file is taken for good")
	}
	must(t, keep(dir, want))
	again, err := Once(t.Context(), dir, true)
	must(t, err)
	if again.MeasuredAt.Equal(want.MeasuredAt) || again.Figures == want.Figures {
		t.Errorf("asked to measure again: %+v", again)
	}
	if r, ok := kept(dir); !ok || r.Figures != again.Figures {
		t.Errorf("kept: %+v, %v", r, ok)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := Machine{ID: "a", Architecture: "amd64", CPU: CPU{Model: "x", Threads: 4}, MemoryBytes: 64 << 30}
	base := identity(m, dir)
	if base != identity(m, dir) {
		t.Error("not the same twice")
	}
	for name, f := range map[string]func(*Machine){
		"id": func(m *Machine) { m.ID = "b" }, "model": func(m *Machine) { m.CPU.Model = "y" }, "threads": func(m *Machine) { m.CPU.Threads = 8 }, "memory": func(m *Machine) { m.MemoryBytes *= 2 },
	} {
		x := m
		if f(&x); identity(x, dir) == base {
			t.Errorf("another %s is the same machine", name)
		}
	}
	for name, f := range map[string]func(*Machine){"kernel": func(m *Machine) { m.Kernel = "7" }, "a page of memory": func(m *Machine) { m.MemoryBytes += 4096 }, "name": func(m *Machine) { m.Name = "z" }} {
		x := m
		if f(&x); identity(x, dir) != base {
			t.Errorf("another %s is another machine", name)
		}
	}
	if runtime.GOOS == "linux" && identity(m, dir) == identity(m, "/proc") {
		t.Error("another disk is the same")
	}
}

// TestInspectHere compares with what Go itself knows of this machine.
func TestInspectHere(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: machines are looked at on Linux only, this is %s", runtime.GOOS)
	}
	m := Inspect("/")
	name, err := os.Hostname()
	must(t, err)
	if m.Name != name || m.CPU.Threads < runtime.NumCPU() || m.CPU.Cores < 1 || m.CPU.Cores > m.CPU.Threads || m.MemoryBytes < 64<<20 || m.Kernel == "" {
		t.Errorf("machine %+v", m)
	}
}

// TestInspectElsewhere looks at a machine that is made of files.
func TestInspectElsewhere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put := func(path, text string) {
		p := filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(text), 0o644))
	}
	link := func(path, to string) {
		p := filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.Symlink(to, p))
	}
	var cpus strings.Builder
	for _, c := range []string{"0 0 0", "1 0 1", "2 1 0", "3 1 1", "4 0 0", "5 0 1", "6 1 0", "7 1 1"} {
		f := strings.Fields(c)
		cpus.WriteString("processor\t: " + f[0] + "\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\ncpu MHz\t\t: 2100.5\nphysical id\t: " + f[1] + "\ncore id\t\t: " + f[2] + "\nflags\t\t: fpu avx2 fma amx_bf16 odd\n\n")
	}
	put("proc/cpuinfo", cpus.String())
	put("proc/meminfo", "MemTotal:       263856000 kB\nMemFree: 1 kB\n")
	put("proc/sys/kernel/osrelease", "6.1.0\n")
	put("proc/sys/kernel/hostname", "gpu7\n")
	put("etc/machine-id", "install\n")
	put("etc/os-release", "NAME=x\nPRETTY_NAME=\"openEuler 24.03\"\n")
	put("sys/class/dmi/id/product_uuid", "board\n")
	put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n")
	put("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n")
	put("sys/devices/system/cpu/cpu0/cache/index3/size", "36M\n")
	put("sys/devices/system/node/online", "0-1\n")
	for _, n := range []string{"0", "1"} {
		put("sys/devices/system/node/node"+n+"/cpulist", n+"-9\n")
		put("sys/devices/system/node/node"+n+"/meminfo", "Node "+n+" MemTotal:       131928000 kB\nNode "+n+" MemFree: 2 kB\n")
	}
	put("sys/block/nvme0n1/size", "7501476528\n")
	put("sys/block/nvme0n1/device/model", "KIOXIA\n")
	put("sys/block/sda/size", "100\n")
	put("sys/block/sda/queue/rotational", "1\n")
	put("sys/block/loop0/size", "8\n")
	put("sys/block/sr0/size", "0\n")
	put("sys/class/net/lo/mtu", "65536\n")
	put("sys/class/net/eth0/mtu", "9000\n")
	put("sys/class/net/eth0/speed", "200000\n")
	put("sys/class/net/eth0/operstate", "up\n")
	put("sys/class/net/eth0/device/vendor", "0x15b3\n")
	link("sys/class/net/eth0/device/driver", "../../drivers/mlx5_core")
	put("sys/class/net/eth1/device/vendor", "0x15b3\n")
	put("sys/class/net/eth1/speed", "-1\n")
	pci := func(address, class, vendor, device string) {
		for k, v := range map[string]string{"class": class, "vendor": vendor, "device": device, "numa_node": "1"} {
			put("sys/bus/pci/devices/"+address+"/"+k, v+"\n")
		}
	}
	pci("0000:00:02.0", "0x030000", "0x8086", "0x4680") // the processor's own graphics
	pci("0000:03:00.0", "0x030000", "0x1a03", "0x2000") // a console's
	pci("0000:3b:00.0", "0x030200", "0x10de", "0x2335")
	pci("0000:5e:00.0", "0x120000", "0x19e5", "0xd802")
	pci("0000:86:00.0", "0x020000", "0x15b3", "0x1021") // a network card
	link("sys/bus/pci/devices/0000:3b:00.0/driver", "../../drivers/nvidia")
	put("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 100\n")
	want := Machine{ID: "board", Name: "gpu7", Architecture: runtime.GOARCH, System: "openEuler 24.03", Kernel: "6.1.0",
		CPU:         CPU{Vendor: "GenuineIntel", Model: "Xeon", Sockets: 2, Cores: 4, Threads: 8, MHz: 3500, CacheBytes: 36 << 20, Features: []string{"avx2", "fma", "amx_bf16"}},
		MemoryBytes: 263856000 << 10, NUMA: []NUMANode{{0, "0-9", 131928000 << 10}, {1, "1-9", 131928000 << 10}},
		Disks: []Disk{{"nvme0n1", "KIOXIA", 7501476528 * 512, false}, {"sda", "", 51200, true}},
		NICs:  []NIC{{"eth0", "mlx5_core", 200000, 9000, true}, {"eth1", "", 0, 0, false}},
		Accelerators: []Accelerator{{"0000:3b:00.0", "0x10de", "0x2335", "NVIDIA", "NVIDIA H200", 1, "nvidia"},
			{"0000:5e:00.0", "0x19e5", "0xd802", "Huawei", "", 1, ""}},
	}
	if diff := cmp.Diff(want, Inspect(root)); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
	if m := Inspect(filepath.Join(root, "absent")); m.CPU.Threads != 0 || m.MemoryBytes != 0 {
		t.Errorf("of nothing: %+v", m)
	}
}
