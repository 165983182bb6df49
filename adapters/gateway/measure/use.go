package measure

import (
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Use is what a machine does: traffic since the reading before, and how busy
// it is now. What the system does not say is absent, never zero.
type Use struct {
	Busy         *int64 // processors, thousandths of all cores
	Storage      *adapterv1.StorageUse
	Network      *adapterv1.NetworkUse
	Accelerators []*adapterv1.AcceleratorUse
}

// Meter reads the use of a machine again and again. It is for one goroutine,
// and another in Watch.
type Meter struct {
	s     system
	at    time.Time
	busy  [2]int64            // of all time the processors had: worked, in all
	disks map[string][6]int64 // by name: see diskstats
	nics  map[string][2]int64 // by name: bytes received and sent

	programs []*program
	asked    atomic.Pointer[asked]
}

// NewMeter returns a meter of the system below root.
func NewMeter(root string) *Meter {
	s := system{root}
	return &Meter{s: s, programs: s.programs()}
}

// Read returns the use at now, by the clock that only goes forward.
func (m *Meter) Read(now time.Time) Use {
	seconds := now.Sub(m.at).Seconds()
	first := m.at.IsZero() || seconds <= 0
	m.at = now
	u := Use{Busy: m.processors(first), Accelerators: m.accelerated(now)}
	disks, nics := m.s.diskstats(), m.s.traffic()
	if !first {
		u.Storage, u.Network = storageUse(m.disks, disks, seconds), networkUse(m.nics, nics, seconds)
	}
	m.disks, m.nics = disks, nics
	return u
}

func (m *Meter) processors(first bool) *int64 {
	line, _, _ := strings.Cut(m.s.text("proc/stat"), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return nil
	}
	v, ok := numbers(f[1:9]) // user nice system idle iowait irq softirq steal
	if !ok {
		return nil
	}
	all := int64(0)
	for _, n := range v {
		all += n
	}
	worked := all - v[3] - v[4]
	before := m.busy
	m.busy = [2]int64{worked, all}
	total := all - before[1]
	if first || total <= 0 {
		return nil
	}
	permille := min(max((worked-before[0])*1000/total, 0), 1000) // iowait may go back
	return &permille
}

func numbers(fields []string) ([]int64, bool) {
	out := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || n < 0 {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// diskstats reads what the disks did since the machine started: reads, bytes
// read, milliseconds of reads, and the same of writes. Partitions and what is
// made of other disks would count twice.
func (s system) diskstats() map[string][6]int64 {
	whole := map[string]bool{}
	for _, d := range s.disks() {
		whole[d.Name] = true
	}
	out := map[string][6]int64{}
	for line := range strings.Lines(s.text("proc/diskstats")) {
		f := strings.Fields(line)
		if len(f) < 11 || !whole[f[2]] {
			continue
		}
		v, ok := numbers(f[3:11]) // reads, merged, sectors, ms, writes, merged, sectors, ms
		if !ok || v[2] > math.MaxInt64/512 || v[6] > math.MaxInt64/512 {
			continue
		}
		out[f[2]] = [6]int64{v[0], v[2] * 512, v[3], v[4], v[6] * 512, v[7]} // sectors of 512 bytes, whatever the disk's are
	}
	return out
}

func storageUse(before, now map[string][6]int64, seconds float64) *adapterv1.StorageUse {
	sum, known := [6]int64{}, false
	for name, v := range now {
		last, was := before[name]
		d, ok := since(last[:], v[:])
		if !was || !ok {
			continue // it has just come, or its counters began anew
		}
		known = true
		for i := range sum {
			sum[i] += d[i]
		}
	}
	if !known {
		return nil
	}
	u := &adapterv1.StorageUse{Reads: rate(sum[0], seconds), ReadBytes: rate(sum[1], seconds), Writes: rate(sum[3], seconds), WrittenBytes: rate(sum[4], seconds)}
	if n := sum[0] + sum[3]; n > 0 {
		u.LatencyMicroseconds = (sum[2] + sum[5]) * 1000 / n
	}
	return u
}

func since(before, now []int64) ([]int64, bool) {
	d := make([]int64, len(now))
	for i := range now {
		if d[i] = now[i] - before[i]; d[i] < 0 {
			return nil, false
		}
	}
	return d, true
}

func rate(n int64, seconds float64) int64 { return int64(math.Round(float64(n) / seconds)) }

// traffic reads what the network interfaces of hardware carried since they
// came. Where there are none, as in a container, it is all but the loopback:
// what others are made of would count twice.
func (s system) traffic() map[string][2]int64 {
	hardware := map[string]bool{}
	for _, n := range s.nics() {
		hardware[n.Name] = true
	}
	out := map[string][2]int64{}
	for line := range strings.Lines(s.text("proc/net/dev")) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || len(f) < 9 || name == "lo" || len(hardware) > 0 && !hardware[name] {
			continue
		}
		v, ok := numbers([]string{f[0], f[8]})
		if ok {
			out[name] = [2]int64{v[0], v[1]}
		}
	}
	return out
}

func networkUse(before, now map[string][2]int64, seconds float64) *adapterv1.NetworkUse {
	sum, known := [2]int64{}, false
	for name, v := range now {
		last, was := before[name]
		d, ok := since(last[:], v[:])
		if !was || !ok {
			continue
		}
		known = true
		sum[0], sum[1] = sum[0]+d[0], sum[1]+d[1]
	}
	if !known {
		return nil
	}
	return &adapterv1.NetworkUse{ReceivedBytes: rate(sum[0], seconds), SentBytes: rate(sum[1], seconds)}
}

// accelerated is the use of all cards, those told in files first.
func (m *Meter) accelerated(now time.Time) []*adapterv1.AcceleratorUse {
	out := m.s.accelerated()
	if a := m.asked.Load(); a != nil && now.Sub(a.at) < askedFor {
		first := int32(len(out))
		for _, c := range a.cards {
			out = append(out, &adapterv1.AcceleratorUse{Index: first + c.Index, BusyPermille: c.BusyPermille, MemoryBusyBytes: c.MemoryBusyBytes, MemoryTotalBytes: c.MemoryTotalBytes})
		}
	}
	return out
}

// accelerated reads the use of the cards whose driver tells it in files, as
// those of AMD and Hygon do; the index counts those.
func (s system) accelerated() []*adapterv1.AcceleratorUse {
	var out []*adapterv1.AcceleratorUse
	for _, name := range s.names("sys/class/drm") {
		dir := "sys/class/drm/" + name + "/device/"
		if !strings.HasPrefix(name, "card") || strings.Contains(name, "-") {
			continue // a connector of a card
		}
		busy, err := strconv.ParseInt(s.text(dir+"gpu_busy_percent"), 10, 64)
		if err != nil || busy < 0 || busy > 100 {
			continue
		}
		out = append(out, &adapterv1.AcceleratorUse{Index: int32(len(out)), BusyPermille: busy * 10, MemoryBusyBytes: s.number(dir + "mem_info_vram_used"),
			MemoryTotalBytes: s.number(dir + "mem_info_vram_total")})
	}
	return out
}
