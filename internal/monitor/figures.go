package monitor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/samples"
)

// figureAge is how old a figure may be to count as the present one: six times
// what those of nodes may be apart.
const figureAge = 90 * time.Second

// Figures is what a center, or a node, last measured. What is nil is not known.
type Figures struct {
	At           time.Time // of the newest; zero: there is none
	CPUBusy      *float64  // ratio; of a center the mean over its nodes
	MemoryBusy   *float64  // bytes; of a center the sum
	Nodes        int64     // that are measured
	Accelerators []AcceleratorFigures
	Accelerator  *float64 // mean of how busy they are
	Storage      StorageFigures
	Network      NetworkFigures
	Paths        []PathFigures // by peer
	ClockSkew    *float64      // seconds behind the platform's
	Refused      []string      // fields that cannot be
}

// AcceleratorFigures of a node.
type AcceleratorFigures struct {
	Index            int64
	Busy, MemoryBusy *float64 // ratio, bytes
}

// StorageFigures of a center: operations and bytes per second, seconds.
type StorageFigures struct{ Reads, Writes, Read, Written, Latency *float64 }

// Known tells whether any figure is.
func (s *StorageFigures) Known() bool {
	return s.Reads != nil || s.Writes != nil || s.Read != nil || s.Written != nil || s.Latency != nil
}

// NetworkFigures of a center: bytes per second.
type NetworkFigures struct{ Received, Sent *float64 }

// Known tells whether any figure is.
func (n *NetworkFigures) Known() bool { return n.Received != nil || n.Sent != nil }

// PathFigures of a way from a center: seconds, ratio, bits per second.
type PathFigures struct {
	Peer                             string
	Latency, Jitter, Loss, Bandwidth *float64
}

// centerSeries are the series of a center that are few.
const centerSeries = `__name__=~"yunhe_storage_.+|yunhe_network_.+|yunhe_path_.+|yunhe_center_clock_skew_seconds|yunhe_center_figures_refused"`

// Figures returns the present figures of a center, or of one of its nodes. It
// returns fault.Invalid for what is no ID, fault.NotFound, and what the store
// returns.
func (s *Service) Figures(ctx context.Context, center, node string) (*Figures, error) {
	var c core.Check
	if c.ID("ai_center_id", center); node != "" {
		c.Text("node", node, true, maxPeer, 0)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if s.Known != nil {
		if err := s.Known(ctx, center, node); err != nil {
			return nil, err
		}
	}
	of := centerLabel + "=" + strconv.Quote(center)
	if node != "" {
		f := &Figures{}
		return f, s.read(ctx, fmt.Sprintf(`{%s,node=%s,__name__=~"yunhe_node_.+|yunhe_accelerator_.+"}`, of, strconv.Quote(node)), func(string) *Figures { return f })
	}
	all, err := s.figures(ctx, of)
	if err != nil {
		return nil, err
	}
	if f := all[center]; f != nil {
		return f, nil
	}
	return &Figures{}, nil
}

// AllFigures returns the present figures of all centers that have any, by ID.
func (s *Service) AllFigures(ctx context.Context) (map[string]*Figures, error) {
	return s.figures(ctx, centerLabel+`!=""`)
}

func (s *Service) figures(ctx context.Context, of string) (map[string]*Figures, error) {
	out := map[string]*Figures{}
	get := func(center string) *Figures {
		f := out[center]
		if f == nil {
			f = &Figures{}
			out[center] = f
		}
		return f
	}
	if err := s.read(ctx, "{"+of+","+centerSeries+"}", get); err != nil {
		return nil, err
	}
	now := s.now()
	for _, q := range []struct {
		text string
		set  func(f *Figures, v float64)
	}{
		{"avg by (%s) (last_over_time(" + nodeCPU + "{%s}[%s]))", func(f *Figures, v float64) { f.CPUBusy = &v }},
		{"count by (%s) (last_over_time(" + nodeCPU + "{%s}[%s]))", func(f *Figures, v float64) { f.Nodes = int64(v) }},
		{"sum by (%s) (last_over_time(" + nodeMemory + "{%s}[%s]))", func(f *Figures, v float64) { f.MemoryBusy = &v }},
		{"avg by (%s) (last_over_time(" + acceleratorBusy + "{%s}[%s]))", func(f *Figures, v float64) { f.Accelerator = &v }},
	} {
		series, err := s.store.Query(ctx, fmt.Sprintf(q.text, centerLabel, of, promSeconds(figureAge)), now)
		if err != nil {
			return nil, fmt.Errorf("query figures: %w", err)
		}
		for i := range series {
			if p := series[i].Points; len(p) > 0 {
				f := get(series[i].Labels.Get(centerLabel))
				if q.set(f, p[len(p)-1].Value); f.At.IsZero() {
					f.At = p[len(p)-1].At
				}
			}
		}
	}
	return out, nil
}

func promSeconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

// read sets the figures that a selector names.
func (s *Service) read(ctx context.Context, selector string, get func(center string) *Figures) error {
	series, err := s.store.Query(ctx, selector+"["+promSeconds(figureAge)+"]", s.now())
	if err != nil {
		return fmt.Errorf("query figures: %w", err)
	}
	seen := map[*Figures]bool{}
	for i := range series {
		if x := &series[i]; len(x.Points) > 0 {
			f := get(x.Labels.Get(centerLabel))
			f.take(x)
			seen[f] = true
		}
	}
	for f := range seen {
		slices.SortFunc(f.Paths, func(a, b PathFigures) int { return strings.Compare(a.Peer, b.Peer) })
		slices.SortFunc(f.Accelerators, func(a, b AcceleratorFigures) int { return int(a.Index - b.Index) })
		slices.Sort(f.Refused)
	}
	return nil
}

// take sets the figure that a series is of.
func (f *Figures) take(x *samples.Series) {
	last := x.Points[len(x.Points)-1]
	if x.Name == figuresRefused {
		f.Refused = append(f.Refused, x.Labels.Get("field"))
		return
	}
	if to := f.place(x); to != nil {
		*to = &last.Value
		if last.At.After(f.At) {
			f.At = last.At
		}
	}
}

func (f *Figures) place(x *samples.Series) **float64 {
	switch x.Name {
	case nodeCPU:
		return &f.CPUBusy
	case nodeMemory:
		return &f.MemoryBusy
	case acceleratorBusy:
		return &f.accelerator(x).Busy
	case acceleratorMemory:
		return &f.accelerator(x).MemoryBusy
	case storageReads:
		return &f.Storage.Reads
	case storageWrites:
		return &f.Storage.Writes
	case storageRead:
		return &f.Storage.Read
	case storageWritten:
		return &f.Storage.Written
	case storageLatency:
		return &f.Storage.Latency
	case networkReceived:
		return &f.Network.Received
	case networkSent:
		return &f.Network.Sent
	case pathLatency:
		return &f.path(x).Latency
	case pathJitter:
		return &f.path(x).Jitter
	case pathLoss:
		return &f.path(x).Loss
	case pathBandwidth:
		return &f.path(x).Bandwidth
	case clockSkew:
		return &f.ClockSkew
	}
	return nil
}

func (f *Figures) path(x *samples.Series) *PathFigures {
	peer := x.Labels.Get("peer")
	i := slices.IndexFunc(f.Paths, func(p PathFigures) bool { return p.Peer == peer })
	if i < 0 {
		i = len(f.Paths)
		f.Paths = append(f.Paths, PathFigures{Peer: peer})
	}
	return &f.Paths[i]
}

func (f *Figures) accelerator(x *samples.Series) *AcceleratorFigures {
	index, _ := strconv.ParseInt(x.Labels.Get("index"), 10, 64) // ours are numbers
	i := slices.IndexFunc(f.Accelerators, func(a AcceleratorFigures) bool { return a.Index == index })
	if i < 0 {
		i = len(f.Accelerators)
		f.Accelerators = append(f.Accelerators, AcceleratorFigures{Index: index})
	}
	return &f.Accelerators[i]
}
