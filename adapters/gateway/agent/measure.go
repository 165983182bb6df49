package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"yunhe.dev/yunhe/adapters/gateway/measure"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
)

// measureMachine returns the machine's factor and notes the disk's figures. A
// machine that cannot be measured joins all the same, with none.
func (a *Agent) measureMachine(ctx context.Context) (int64, error) {
	r, err := measure.Once(ctx, a.cfg.Dir, a.cfg.Measure == MeasureAgain)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		a.log.Warn("machine not measured, or the result not kept", "error", err)
	} else {
		a.log.Info("machine measured", "performance", r.Performance, "measured_at", r.MeasuredAt)
	}
	a.disk = r.Figures.Labels()
	return r.Performance, nil
}

// describe returns the machine as the only node of the center; what jobs may
// use of it is what the center declares.
func (a *Agent) describe(ctx context.Context) *adapterv1.Node {
	n := measure.Node(ctx)
	if n.Name == "" {
		return nil
	}
	n.Allocatable = maps.Clone(a.inv.Capacity)
	maps.Copy(n.Labels, a.disk)
	if disk, err := readDisk(a.cfg.Dir); err == nil {
		n.Capacity[core.Storage] = disk.total
	}
	return n
}

type amount struct{ total, busy int64 }

// readMemory reads the machine's memory in bytes.
func readMemory() (amount, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return amount{}, fmt.Errorf("measure memory: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	var total, available int64
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var kb int64
		name, rest, _ := strings.Cut(sc.Text(), ":")
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			continue // lines without a number
		}
		switch name {
		case "MemTotal":
			total = kb << 10
		case "MemAvailable":
			available = kb << 10
		}
	}
	if total == 0 {
		return amount{}, errors.Join(errors.New("measure memory: /proc/meminfo has no MemTotal"), sc.Err())
	}
	return amount{total, total - available}, nil
}

// readDisk reads the size of the file system a folder is on, in bytes.
func readDisk(dir string) (amount, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return amount{}, fmt.Errorf("measure storage of %s: %w", dir, err)
	}
	size := int64(st.Bsize)
	return amount{int64(st.Blocks) * size, int64(st.Blocks-st.Bfree) * size}, nil
}

// measure takes the figures of a heartbeat. What cannot be read is absent; of
// the center's own figures, which cannot be, it is 0.
func (a *Agent) measure(meter *measure.Meter) *adapterv1.Measurement {
	mem, _ := readMemory()
	disk, _ := readDisk(a.cfg.Dir)
	use := meter.Read(time.Now())
	m := &adapterv1.Measurement{MeasuredAt: timestamppb.Now(), MemoryBusyBytes: mem.busy, MemoryTotalBytes: mem.total, StorageBusyBytes: disk.busy, StorageTotalBytes: disk.total,
		Storage: use.Storage, Network: use.Network}
	if use.Busy != nil {
		m.CpuBusyPermille = *use.Busy
		if a.node != nil && mem.total > 0 {
			m.Nodes = []*adapterv1.NodeUse{{Name: a.node.Name, CpuBusyPermille: *use.Busy, MemoryBusyBytes: mem.busy, Accelerators: use.Accelerators}}
		}
	}
	if path := a.prober.path(); path != nil {
		m.Paths = []*adapterv1.Path{path}
	}
	return m
}

// runMeter turns what runs have used so far into what they use now.
type runMeter struct {
	at   time.Time // of the reading before; zero: there is none
	cpus map[string]time.Duration
}

// measureRuns returns the use of each running run since the call before. A run
// that was not there then is left out, unless it has begun since: of one that a
// gateway found running, what it used just now is not known yet.
func (a *Agent) measureRuns(m *runMeter) []*adapterv1.AttemptUse {
	uses := a.sb.Usages()
	now := time.Now()
	var out []*adapterv1.AttemptUse
	cpus := make(map[string]time.Duration, len(uses))
	for _, id := range slices.Sorted(maps.Keys(uses)) {
		u := uses[id]
		cpus[id] = u.CPU
		before, known := m.cpus[id]
		since := m.at
		if !known {
			run, err := a.sb.Get(id)
			if err != nil || m.at.IsZero() || run.StartedAt().Before(m.at) {
				continue
			}
			since = run.StartedAt()
		}
		if passed := now.Sub(since); passed > 0 {
			milli := int64(float64(max(u.CPU-before, 0)) / float64(passed) * 1000)
			out = append(out, &adapterv1.AttemptUse{AttemptId: id, CpuMicroseconds: u.CPU.Microseconds(), MemoryBytes: u.MemoryBytes, CpuMilli: milli})
		}
	}
	m.at, m.cpus = now, cpus
	return out
}
