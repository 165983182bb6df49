package monitor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/samples"
)

// Measurement is what a center measured about itself at a moment. What is nil
// was not measured.
type Measurement struct {
	At      time.Time // by the clock of the center; zero: it does not say
	Nodes   []NodeUse
	Storage *StorageUse
	Network *NetworkUse
	Paths   []Path
	Runs    []RunUse
}

// NodeUse is the use of a node.
type NodeUse struct {
	Name            string
	CPUBusyPermille int64 // of all cores
	MemoryBusy      int64 // bytes
	Accelerators    []AcceleratorUse
}

// AcceleratorUse is the use of an accelerator.
type AcceleratorUse struct {
	Index        int64
	BusyPermille int64
	MemoryBusy   int64 // bytes
	MemoryTotal  int64 // bytes; 0: not known
}

// StorageUse is the traffic of all storage of a center, per second.
type StorageUse struct {
	Reads, Writes           int64 // operations
	ReadBytes, WrittenBytes int64
	LatencyMicros           int64 // mean of an operation; 0: there was none
}

// NetworkUse is the traffic of all interfaces of a center, bytes per second.
type NetworkUse struct{ ReceivedBytes, SentBytes int64 }

// Path is the quality of a way from a center to a peer.
type Path struct {
	Peer          string
	LatencyMicros int64 // round trip
	JitterMicros  int64
	LossPPM       int64 // millionths
	BitsPerSecond int64 // 0: not measured
}

// RunUse is what an attempt uses.
type RunUse struct {
	AttemptID string
	CPUMilli  int64 // thousandths of a core
	Memory    int64 // bytes
}

// Refusal is a figure that cannot be. Field names no node or peer, so that
// there are few of them: "nodes[].cpu_busy_permille".
type Refusal struct{ Field, Problem string }

func (r Refusal) ofRuns() bool { return strings.HasPrefix(r.Field, "attempts") }

// Names of the samples of measurements; all are labeled with ai_center_id.
const (
	nodeCPU           = "yunhe_node_cpu_busy_ratio"              // node
	nodeMemory        = "yunhe_node_memory_busy_bytes"           // node
	acceleratorBusy   = "yunhe_accelerator_busy_ratio"           // node, index
	acceleratorMemory = "yunhe_accelerator_memory_busy_bytes"    // node, index
	storageReads      = "yunhe_storage_reads_per_second"         //
	storageWrites     = "yunhe_storage_writes_per_second"        //
	storageRead       = "yunhe_storage_read_bytes_per_second"    //
	storageWritten    = "yunhe_storage_written_bytes_per_second" //
	storageLatency    = "yunhe_storage_latency_seconds"          //
	networkReceived   = "yunhe_network_received_bytes_per_second"
	networkSent       = "yunhe_network_sent_bytes_per_second"
	pathLatency       = "yunhe_path_latency_seconds"           // peer
	pathJitter        = "yunhe_path_jitter_seconds"            // peer
	pathLoss          = "yunhe_path_loss_ratio"                // peer
	pathBandwidth     = "yunhe_path_bandwidth_bits_per_second" // peer
	clockSkew         = "yunhe_center_clock_skew_seconds"      // of the center's clock
	figuresRefused    = "yunhe_center_figures_refused"         // field: how many of this measurement
	centerLabel       = "ai_center_id"
)

// What figures can be. They are far above what machines do, so that only what
// is wrong is refused.
const (
	maxMeasuredNodes = 10_000
	maxMeasuredPaths = 64
	maxMeasuredRuns  = 20_000
	maxRunCPU        = 1_000_000_000 // thousandths of a core
	maxAccelerators  = 1024
	maxBytes         = 1 << 60
	maxOperations    = 1_000_000_000 // per second
	maxTraffic       = 1 << 50       // bytes per second
	maxMicros        = int64(time.Hour / time.Microsecond)
	maxBandwidth     = 1_000_000_000_000_000 // bits per second
	maxPeer          = 253
	// maxSkew is how far the clock of a center may be off before it cannot be
	// told whether its figures are of now.
	maxSkew = 10 * time.Minute
)

// normalize makes samples of a measurement that came at now, in the units the
// names say, and refuses what cannot be: the rest is taken all the same. Every
// sample has the time at which it came, so that one wrong clock does not put a
// center's figures elsewhere. Of runs it only says which can be; those refused
// are the last.
func normalize(center string, m *Measurement, now time.Time) ([]samples.Sample, []RunUse, []Refusal) {
	n := normalizer{center: center, now: now}
	if !m.At.IsZero() {
		skew := now.Sub(m.At)
		if skew.Abs() > maxSkew {
			n.refuse("measured_at", "is %s away from the time it came, at most %s: are the clocks right?", skew.Round(time.Second), maxSkew)
			m = &Measurement{}
		}
		n.add(clockSkew, min(max(skew, -maxClock), maxClock).Seconds())
	}
	n.nodes(m.Nodes)
	if x := m.Storage; x != nil {
		n.whole("storage.reads", storageReads, x.Reads, maxOperations, 1)
		n.whole("storage.writes", storageWrites, x.Writes, maxOperations, 1)
		n.whole("storage.read_bytes", storageRead, x.ReadBytes, maxTraffic, 1)
		n.whole("storage.written_bytes", storageWritten, x.WrittenBytes, maxTraffic, 1)
		if x.LatencyMicros != 0 {
			n.whole("storage.latency_microseconds", storageLatency, x.LatencyMicros, maxMicros, 1e6)
		}
	}
	if x := m.Network; x != nil {
		n.whole("network.received_bytes", networkReceived, x.ReceivedBytes, maxTraffic, 1)
		n.whole("network.sent_bytes", networkSent, x.SentBytes, maxTraffic, 1)
	}
	n.paths(m.Paths)
	runs := n.runs(m.Runs)
	counts := map[string]int{}
	for _, r := range n.refused {
		counts[r.Field]++
	}
	for _, r := range n.refused {
		if c := counts[r.Field]; c > 0 {
			n.add(figuresRefused, float64(c), "field", r.Field)
			delete(counts, r.Field)
		}
	}
	return n.out, runs, n.refused
}

// maxClock is the largest skew that is told.
const maxClock = 100 * 365 * 24 * time.Hour

type normalizer struct {
	center  string
	now     time.Time
	out     []samples.Sample
	refused []Refusal
}

func (n *normalizer) add(name string, value float64, labels ...string) {
	n.out = append(n.out, samples.Sample{Name: name, Labels: append(samples.L(labels...), samples.Label{Name: centerLabel, Value: n.center}), Value: value, At: n.now})
}

func (n *normalizer) refuse(field, format string, args ...any) {
	n.refused = append(n.refused, Refusal{field, fmt.Sprintf(format, args...)})
}

// whole adds value/unit if the value is between 0 and most.
func (n *normalizer) whole(field, name string, value, most int64, unit float64, labels ...string) {
	if value < 0 || value > most {
		n.refuse(field, "must be between 0 and %d, got %d", most, value)
		return
	}
	n.add(name, float64(value)/unit, labels...)
}

func (n *normalizer) nodes(list []NodeUse) {
	if len(list) > maxMeasuredNodes {
		n.refuse("nodes", "must be at most %d, got %d", maxMeasuredNodes, len(list))
		return
	}
	seen := make(map[string]bool, len(list))
	for i := range list {
		x := &list[i]
		if !isName(x.Name) || seen[x.Name] {
			n.refuse("nodes[].name", "must be 1 to %d bytes on one line and not twice, got %s", maxPeer, clip(x.Name))
			continue
		}
		seen[x.Name] = true
		n.whole("nodes[].cpu_busy_permille", nodeCPU, x.CPUBusyPermille, 1000, 1000, "node", x.Name)
		n.whole("nodes[].memory_busy_bytes", nodeMemory, x.MemoryBusy, maxBytes, 1, "node", x.Name)
		n.accelerators(x)
	}
}

func (n *normalizer) accelerators(x *NodeUse) {
	seen := make(map[int64]bool, len(x.Accelerators))
	for _, a := range x.Accelerators {
		if a.Index < 0 || a.Index >= maxAccelerators || seen[a.Index] {
			n.refuse("nodes[].accelerators[].index", "must be between 0 and %d and not twice, got %d on %s", maxAccelerators-1, a.Index, clip(x.Name))
			continue
		}
		seen[a.Index] = true
		at := []string{"node", x.Name, "index", strconv.FormatInt(a.Index, 10)}
		n.whole("nodes[].accelerators[].busy_permille", acceleratorBusy, a.BusyPermille, 1000, 1000, at...)
		most := int64(maxBytes)
		switch {
		case a.MemoryTotal < 0 || a.MemoryTotal > maxBytes:
			n.refuse("nodes[].accelerators[].memory_total_bytes", "must be between 0 and %d, got %d", int64(maxBytes), a.MemoryTotal)
			continue
		case a.MemoryTotal > 0:
			most = a.MemoryTotal
		case a.MemoryBusy == 0:
			continue // nothing is known of its memory
		}
		n.whole("nodes[].accelerators[].memory_busy_bytes", acceleratorMemory, a.MemoryBusy, most, 1, at...)
	}
}

func (n *normalizer) paths(list []Path) {
	if len(list) > maxMeasuredPaths {
		n.refuse("paths", "must be at most %d, got %d", maxMeasuredPaths, len(list))
		return
	}
	var seen []string
	for _, p := range list {
		if !isName(p.Peer) || slices.Contains(seen, p.Peer) {
			n.refuse("paths[].peer", "must be 1 to %d bytes on one line and not twice, got %s", maxPeer, clip(p.Peer))
			continue
		}
		seen = append(seen, p.Peer)
		n.whole("paths[].loss_ppm", pathLoss, p.LossPPM, 1_000_000, 1e6, "peer", p.Peer)
		if p.LossPPM != 1_000_000 { // otherwise nothing came that took any time
			n.whole("paths[].latency_microseconds", pathLatency, p.LatencyMicros, maxMicros, 1e6, "peer", p.Peer)
			n.whole("paths[].jitter_microseconds", pathJitter, p.JitterMicros, maxMicros, 1e6, "peer", p.Peer)
		}
		if p.BitsPerSecond != 0 {
			n.whole("paths[].bandwidth_bits_per_second", pathBandwidth, p.BitsPerSecond, maxBandwidth, 1, "peer", p.Peer)
		}
	}
}

func (n *normalizer) runs(list []RunUse) []RunUse {
	if len(list) > maxMeasuredRuns {
		n.refuse("attempts", "must be at most %d, got %d", maxMeasuredRuns, len(list))
		return nil
	}
	var out []RunUse
	seen := make(map[string]bool, len(list))
	for _, x := range list {
		switch {
		case !isName(x.AttemptID) || seen[x.AttemptID]:
			n.refuse("attempts[].attempt_id", "must be 1 to %d bytes on one line and not twice, got %s", maxPeer, clip(x.AttemptID))
		case x.CPUMilli < 0 || x.CPUMilli > maxRunCPU:
			n.refuse("attempts[].cpu_milli", "must be between 0 and %d, got %d", maxRunCPU, x.CPUMilli)
		case x.Memory < 0 || x.Memory > maxBytes:
			n.refuse("attempts[].memory_bytes", "must be between 0 and %d, got %d", int64(maxBytes), x.Memory)
		default:
			out = append(out, x)
		}
		seen[x.AttemptID] = true
	}
	return out
}

func isName(s string) bool {
	return s != "" && len(s) <= maxPeer && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// clip quotes what somebody sent, shortened.
func clip(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return strconv.Quote(s)
}
