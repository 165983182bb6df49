// Package bench measures how fast the scheduler's engines decide: place
// (centers), pack (nodes and cards) and queue (what is tried next), in memory,
// without a store, a network or a clock of their own. The work is drawn from
// fixed seeds, so that two runs decide the same and differ in time only.
//
// Every row does its work from an empty start in this process, after what the
// rows before it left was given back to the system. What is timed is deciding:
// making the fleet and putting the jobs into the queue is not, except where a
// row says so. Figures of others stand beside the rows as they were published
// or measured by others; they are not measured here.
package bench

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Row is what one piece of work came to.
type Row struct {
	Name       string  `json:"name"` // to choose it by
	Work       string  `json:"work"`
	Candidates int     `json:"candidates"` // centers, or nodes of 8 cards
	Jobs       int     `json:"jobs"`       // in the queue, or asked for one after another
	Placed     int     `json:"placed"`     // members, where they are gangs
	PerSecond  float64 `json:"per_second"` // placed, by the time spent deciding
	// PerCPUSecond is placed by the processor time that the process used
	// meanwhile, collecting garbage included: what other work on the machine
	// changes least. 0: not known here.
	PerCPUSecond float64 `json:"per_cpu_second,omitempty"`
	P99Millis    float64 `json:"p99_ms"`
	P99Of        string  `json:"p99_of"`   // a decision, or a cycle of some length
	PeakMiB      float64 `json:"peak_mib"` // most memory the process held from the system
	// Ratio is the time of a decision against that on a tenth of the nodes; 0:
	// the row is not about that.
	Ratio float64 `json:"ratio,omitempty"`
	Goal  string  `json:"goal,omitempty"`
	OK    *bool   `json:"ok,omitempty"` // nil: no goal, or only a part of the work was done
	Peer  string  `json:"peer,omitempty"`
}

// item is a piece of work and what it shall reach.
type item struct {
	Row
	// goals; 0: none
	perSecond, p99, mib, ratio float64
	again                      int // how often it is done; the fastest counts
	run                        func(r *Row, m *meter) error
}

// Names lists the rows in their order.
func Names() []string {
	var out []string
	for _, x := range items(1) {
		out = append(out, x.Name)
	}
	return out
}

// Run measures the rows named, all if there is none, and tells each as it is
// there. Of the work it does one part in `parts`, at most all: less than all
// shows that it runs, and is not judged.
func Run(ctx context.Context, names []string, parts int, each func(Row)) error {
	all := items(max(parts, 1))
	for _, n := range names {
		if !slices.ContainsFunc(all, func(x item) bool { return x.Name == n }) {
			return fault.New(fault.Invalid, "there is no row %q; there are %v", n, Names())
		}
	}
	for _, x := range all {
		if len(names) > 0 && !slices.Contains(names, x.Name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if parts > 1 {
			x.again = 1
		}
		row, err := x.best()
		if err != nil {
			return err
		}
		if x.Goal != "" && parts <= 1 {
			ok := row.PerSecond >= x.perSecond && (x.p99 == 0 || row.P99Millis < x.p99) && (x.mib == 0 || row.PeakMiB < x.mib) && (x.ratio == 0 || row.Ratio <= x.ratio)
			row.OK = &ok
		}
		each(row)
	}
	return nil
}

// best does the work as often as the item says.
func (x *item) best() (best Row, err error) {
	for i := range max(x.again, 1) {
		m := newMeter()
		row := x.Row
		err := x.run(&row, m)
		row.PeakMiB = m.stop()
		if err != nil {
			return row, err
		}
		row.P99Millis = m.p99()
		if m.busy > 0 {
			row.PerSecond = float64(row.Placed) / m.busy.Seconds()
		}
		if m.cpu > 0 {
			row.PerCPUSecond = float64(row.Placed) / m.cpu.Seconds()
		}
		if i == 0 || row.PerSecond > best.PerSecond {
			best = row
		}
	}
	return best, nil
}

// meter takes the times of one row and watches the memory meanwhile.
type meter struct {
	busy  time.Duration // between on and off, together
	cpu   time.Duration
	since time.Time
	used  time.Duration
	count [64 * 16]int // of samples, by their logarithm
	n     int
	end   chan struct{}
	peak  chan float64
}

func newMeter() *meter {
	debug.FreeOSMemory()
	m := &meter{end: make(chan struct{}), peak: make(chan float64)}
	go m.watch()
	return m
}

func held() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64()-s[1].Value.Uint64()) / (1 << 20)
}

func (m *meter) watch() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	most := held()
	for {
		select {
		case <-tick.C:
			most = max(most, held())
		case <-m.end:
			m.peak <- max(most, held())
			return
		}
	}
}

func (m *meter) stop() float64 {
	close(m.end)
	return <-m.peak
}

// on and off are around what is timed.
func (m *meter) on() { m.since, m.used = time.Now(), cpuTime() }
func (m *meter) off() {
	m.busy += time.Since(m.since)
	m.cpu += cpuTime() - m.used
}

// add takes the time of a decision or a cycle.
func (m *meter) add(d time.Duration) {
	m.n++
	x := 0
	if d > 1 {
		x = int(16 * math.Log2(float64(d)))
	}
	m.count[min(x, len(m.count)-1)]++
}

// p99 is the time in milliseconds that 99 of 100 samples do not pass, within
// the 4.4 % of a step.
func (m *meter) p99() float64 {
	rest := m.n / 100
	for x := len(m.count) - 1; x >= 0; x-- {
		if rest -= m.count[x]; rest < 0 {
			return math.Exp2(float64(x+1)/16) / 1e6
		}
	}
	return 0
}
