package measure_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"yunhe.dev/yunhe/adapters/gateway/measure"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// machine is a made-up system below a folder.
type machine struct {
	t    testing.TB
	root string
}

func (m machine) write(path, text string) {
	m.t.Helper()
	p := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// counters are what the kernel has counted.
type counters struct {
	worked, idle                     int64
	reads, readSectors, readMS       int64
	writes, writtenSectors, writeMS  int64
	received, sent, loop, containers int64
}

func (m machine) count(c counters) {
	m.t.Helper()
	m.write("proc/stat", fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 0 0 0\ncpu0 1 2 3\n", c.worked, c.idle))
	m.write("proc/diskstats", fmt.Sprintf(` 259 0 nvme0n1 %d 7 %d %d %d 9 %d %d 0 1 2 0 0 0 0 0 0
 259 1 nvme0n1p1 %d 7 %d %d %d 9 %d %d 0 1 2 0 0 0 0 0 0
 7 0 loop0 5 5 5 5 5 5 5 5 5 5 5
 253 0 dm-0 9 9 9 9 9 9 9 9 9 9 9
`, c.reads, c.readSectors, c.readMS, c.writes, c.writtenSectors, c.writeMS, c.reads, c.readSectors, c.readMS, c.writes, c.writtenSectors, c.writeMS))
	m.write("proc/net/dev", fmt.Sprintf(`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: %d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0
  eth0:%d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0
docker0: %d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0
`, c.loop, c.loop, c.received, c.sent, c.containers, c.containers))
}

func newMachine(t testing.TB) machine {
	m := machine{t, t.TempDir()}
	m.write("sys/block/nvme0n1/size", "1000000\n")
	m.write("sys/block/loop0/size", "1000\n")
	m.write("sys/block/dm-0/size", "1000\n")
	m.write("sys/class/net/eth0/device/vendor", "0x1\n")
	m.write("sys/class/net/docker0/mtu", "1500\n")
	return m
}

func TestUse(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := counters{worked: 1000, idle: 9000, reads: 50, readSectors: 800, readMS: 10, writes: 5, writtenSectors: 16, writeMS: 1, received: 100, sent: 200, loop: 7, containers: 8}
	m.count(c)
	meter, at := measure.NewMeter(m.root), time.Now()
	if u := meter.Read(at); u.Busy != nil || u.Storage != nil || u.Network != nil || u.Accelerators != nil {
		t.Errorf("the first reading knows %+v; nothing has passed yet", u)
	}
	c.worked, c.idle = c.worked+100, c.idle+300
	c.reads, c.readSectors, c.readMS = c.reads+30, c.readSectors+2000, c.readMS+60
	c.writes, c.writtenSectors, c.writeMS = c.writes+10, c.writtenSectors+4000, c.writeMS+140
	c.received, c.sent, c.loop, c.containers = c.received+4000, c.sent+1000, c.loop+9999, c.containers+9999
	m.count(c)
	at = at.Add(2 * time.Second)
	u := meter.Read(at)
	if u.Busy == nil || *u.Busy != 250 {
		t.Errorf("processors busy %v, want 250", u.Busy)
	}
	// 40 operations took 200 ms.
	if d := cmp.Diff(&adapterv1.StorageUse{Reads: 15, Writes: 5, ReadBytes: 512_000, WrittenBytes: 1_024_000, LatencyMicroseconds: 5000}, u.Storage, protocmp.Transform()); d != "" {
		t.Errorf("storage (-want +got):\n%s", d)
	}
	if d := cmp.Diff(&adapterv1.NetworkUse{ReceivedBytes: 2000, SentBytes: 500}, u.Network, protocmp.Transform()); d != "" {
		t.Errorf("network (-want +got):\n%s", d)
	}
	// Nothing done is zero; nothing known is absent.
	at = at.Add(2 * time.Second)
	if u := meter.Read(at); u.Storage == nil || u.Storage.Reads != 0 || u.Storage.LatencyMicroseconds != 0 || u.Network == nil || u.Network.SentBytes != 0 || u.Busy != nil {
		t.Errorf("an idle machine whose clock stands: %+v", u)
	}
	// Counters that begin anew say nothing.
	m.count(counters{worked: 1, idle: 1})
	at = at.Add(2 * time.Second)
	if u := meter.Read(at); u.Storage != nil || u.Network != nil || u.Busy != nil {
		t.Errorf("after the counters began anew: %+v", u)
	}
	for _, f := range []string{"proc/stat", "proc/diskstats", "proc/net/dev"} {
		m.write(f, "rubbish 1 2 x\n: 99999999999999999999\ncpu a b c d e f g h i\n")
	}
	for range 2 {
		at = at.Add(2 * time.Second)
		if u := meter.Read(at); u.Storage != nil || u.Network != nil || u.Busy != nil {
			t.Errorf("rubbish is read as %+v", u)
		}
	}
}

func TestUseOfAccelerators(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.count(counters{})
	for name, busy := range map[string]string{"card0": "", "card1": "37\n", "card2": "100\n", "card3": "250\n", "card1-DP-1": "99\n"} {
		dir := "sys/class/drm/" + name + "/device/"
		m.write(dir+"vendor", "0x1002\n")
		if busy != "" {
			m.write(dir+"gpu_busy_percent", busy)
			m.write(dir+"mem_info_vram_used", "1024\n")
			m.write(dir+"mem_info_vram_total", "4096\n")
		}
	}
	u := measure.NewMeter(m.root).Read(time.Now())
	want := []*adapterv1.AcceleratorUse{{Index: 0, BusyPermille: 370, MemoryBusyBytes: 1024, MemoryTotalBytes: 4096}, {Index: 1, BusyPermille: 1000, MemoryBusyBytes: 1024, MemoryTotalBytes: 4096}}
	if d := cmp.Diff(want, u.Accelerators, protocmp.Transform()); d != "" {
		t.Errorf("accelerators (-want +got):\n%s", d)
	}
}

// The machine under the test says something that can be.
func TestUseOfThisMachine(t *testing.T) {
	t.Parallel()
	meter := measure.NewMeter("/")
	at := time.Now()
	meter.Read(at)
	u := meter.Read(at.Add(time.Second))
	if u.Storage != nil && (u.Storage.Reads < 0 || u.Storage.LatencyMicroseconds < 0) || u.Network != nil && u.Network.ReceivedBytes < 0 {
		t.Errorf("use of this machine: %+v", u)
	}
}

// program is a fake of a vendor's program.
func (m machine) program(path, script string) {
	m.t.Helper()
	// Another process writes it: one of ours that begins while a file is open for
	// writing keeps it from being run.
	cmd := exec.Command("/bin/sh", "-c", `mkdir -p "${0%/*}" && cat >"$0" && chmod 755 "$0"`, filepath.Join(m.root, path))
	cmd.Stdin = strings.NewReader("#!/bin/sh\n" + script)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
}

// Cards are read from (fake) programs of their vendors, as several releases
// print them; what cannot be read is absent and does not move the others.
func TestUseOfCardsByPrograms(t *testing.T) {
	t.Parallel()
	use := func(index int32, percent, used, total int64) *adapterv1.AcceleratorUse {
		return &adapterv1.AcceleratorUse{Index: index, BusyPermille: percent * 10, MemoryBusyBytes: used << 20, MemoryTotalBytes: total << 20}
	}
	const nvidia = "0, 37, 1024, 81559\n1, [N/A], 3, 81559\n2, 0, 0, 81559\n3, 250, 1, 2\n4, 1, 5, 4\nrubbish\n5, 100, 81559, 81559\n"
	cards := []*adapterv1.AcceleratorUse{use(0, 37, 1024, 81559), use(2, 0, 0, 81559), use(5, 100, 81559, 81559)}
	for name, x := range map[string]struct {
		nvidia, ascend string
		failed         bool
		want           []*adapterv1.AcceleratorUse
	}{
		"nvidia": {nvidia: nvidia, want: cards},
		"ascend 910B": {ascend: `
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.1                   Version: 24.1.1                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 88.2        30                0    / 0             |
| 0                         | 0000:C1:00.0  | 12          0    / 0          26838/ 32768         |
+===========================+===============+====================================================+
| 1     910B4               | Alarm         | 87.0        30                0    / 0             |
| 0                         | 0000:C2:00.0  | NA          0    / 0          29356/ 32768         |
+===========================+===============+====================================================+
| 2     910B4               | OK            | 87.0        30                0    / 0             |
| 0                         | 0000:81:00.0  | 100         0    / 0          1   / 32768          |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 12345         | python                   | 26000                   |
+===========================+===============+====================================================+
`, want: []*adapterv1.AcceleratorUse{use(0, 12, 26838, 32768), use(2, 100, 1, 32768)}},
		"ascend with two chips": {ascend: `
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
| 0     Ascend910           | OK            | 162.6                34                      0    / 0                |
| 0     0                   | 0000:9D:00.0  | 7                    0    / 0                3419 / 65536            |
| 0     Ascend910           | OK            | -                    34                      0    / 0                |
| 1     1                   | 0000:9F:00.0  | 0                    0    / 0                2874 / 65536            |
`, want: []*adapterv1.AcceleratorUse{use(0, 7, 3419, 65536), use(1, 0, 2874, 65536)}},
		"ascend without fast memory": {ascend: `
| 0     310                 | OK            | 12.8        45                0    / 970           |
| 0     0                   | 0000:86:00.0  | 3           628  / 7759                            |
`, want: []*adapterv1.AcceleratorUse{use(0, 3, 628, 7759)}},
		"both": {nvidia: "0, 1, 2, 3\n", ascend: "| 0     0  | 0000:86:00.0  | 3           628  / 7759   |\n", want: []*adapterv1.AcceleratorUse{use(0, 1, 2, 3), use(1, 3, 628, 7759)}},
		"one fails": {nvidia: "no driver'; exit 9 #", ascend: "| 0     0  | 0000:86:00.0  | 3           628  / 7759   |\n", failed: true,
			want: []*adapterv1.AcceleratorUse{use(0, 3, 628, 7759)}},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.count(counters{})
			if x.nvidia != "" {
				m.program("usr/bin/nvidia-smi", `[ "$1 $2" = "--query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits" ] && echo '`+x.nvidia+"'")
			}
			if x.ascend != "" {
				m.program("usr/local/sbin/npu-smi", `[ "$*" = info ] && echo '`+x.ascend+"'")
			}
			meter := measure.NewMeter(m.root)
			if u := meter.Read(time.Now()); u.Accelerators != nil {
				t.Errorf("before it asked it knows %v", u.Accelerators)
			}
			if err := meter.Ask(t.Context()); (err != nil) != x.failed {
				t.Error(err)
			}
			asked := time.Now()
			if d := cmp.Diff(x.want, meter.Read(asked).Accelerators, protocmp.Transform()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if u := meter.Read(asked.Add(time.Minute)); u.Accelerators != nil {
				t.Errorf("what was asked a minute ago is told as %v", u.Accelerators)
			}
		})
	}
}

// A program that hangs holds up nobody and is not started again beside itself.
func TestUseOfCardsHangs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.count(counters{})
	m.program("usr/bin/nvidia-smi", "echo x >>'"+m.root+"/started'; mkfifo '"+m.root+"/never'; read line <'"+m.root+"/never'")
	meter := measure.NewMeter(m.root)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- meter.Ask(ctx) }()
	for ctx.Err() == nil {
		if _, err := os.Stat(filepath.Join(m.root, "never")); err == nil {
			break
		}
	}
	if u := meter.Read(time.Now()); u.Accelerators != nil {
		t.Errorf("it says %v", u.Accelerators)
	}
	if err := meter.Ask(t.Context()); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("asked a second time: %v", err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it answered")
	}
	if b, err := os.ReadFile(filepath.Join(m.root, "started")); err != nil || string(b) != "x\n" {
		t.Errorf("started %q, %v", b, err)
	}
}
