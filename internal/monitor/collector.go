package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/samples"
)

// every is how often the state is sampled: the console's charts step by 5 s at
// their finest.
const every = 5 * time.Second

// Gather returns the samples of a round. It MUST return when ctx ends.
type Gather func(ctx context.Context) ([]samples.Sample, error)

// Collector samples the state at intervals and stores it.
type Collector struct {
	// Every is the time between rounds; 0 means 5 s. It is set before Run.
	Every time.Duration

	store  Store
	gather Gather
	log    *slog.Logger

	// Only Run touches the fields below.
	waiting   [][]samples.Sample // rounds not stored yet, oldest first, none empty
	held      int                // samples in waiting
	gathering outage
	storing   outage
	refusing  outage
}

// NewCollector returns a collector; Run starts it.
func NewCollector(store Store, gather Gather, log *slog.Logger) *Collector {
	return &Collector{store: store, gather: gather, log: log.With("component", "monitor")}
}

// Run samples and stores until ctx ends, and then returns nil. Failures are
// logged and never end it. In a cluster it belongs under a lease (run.Elector): two
// collectors of one state would store most samples twice.
func (c *Collector) Run(ctx context.Context) error {
	interval := c.Every
	if interval <= 0 {
		interval = every
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		core.Round(ctx, interval)
		c.round(ctx, interval)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// round gathers once and stores what waits. Each has half of the interval, so
// that slowness of one does not take the other's time.
func (c *Collector) round(ctx context.Context, interval time.Duration) {
	got, err := c.gatherWithin(ctx, interval/2)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		core.RoundFailed(ctx, err)
	}
	c.report(&c.gathering, err, "samples not gathered", "samples gathered again")
	if len(got) > 0 {
		c.hold(got)
	}
	c.flush(ctx, interval/2)
}

func (c *Collector) gatherWithin(ctx context.Context, limit time.Duration) ([]samples.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	got, err := c.gather(ctx)
	if err != nil {
		return nil, err
	}
	if len(got) > samples.MaxBatch {
		return nil, fmt.Errorf("a round has %d samples, %d are allowed", len(got), samples.MaxBatch)
	}
	return got, nil
}

// hold appends a round and drops the oldest beyond the bounds.
func (c *Collector) hold(round []samples.Sample) {
	c.waiting = append(c.waiting, round)
	c.held += len(round)
	oldest := round[0].At.Add(-samples.LateWindow)
	for c.held > samples.MaxBatch || c.waiting[0][0].At.Before(oldest) {
		c.storing.dropped += len(c.waiting[0])
		c.pop()
	}
}

func (c *Collector) pop() {
	c.held -= len(c.waiting[0])
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
}

// flush stores the waiting rounds, oldest first, until one fails.
func (c *Collector) flush(ctx context.Context, limit time.Duration) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for len(c.waiting) > 0 {
		report, err := c.store.Append(limited, c.waiting[0])
		if ctx.Err() != nil {
			return
		}
		if err != nil && fault.KindOf(err) == fault.Invalid {
			// Asking again would not help, and would hold up the others.
			c.refusing.dropped += len(c.waiting[0])
			c.pop()
			c.report(&c.refusing, err, "samples refused", "samples accepted again")
			continue
		}
		c.report(&c.storing, err, "samples not stored", "samples stored again")
		if err != nil {
			return
		}
		c.pop()
		if n := report.Late + report.Early + report.Duplicate; n > 0 {
			c.refusing.dropped += n
			err = fmt.Errorf("%d late, %d early, %d with another value at the same time", report.Late, report.Early, report.Duplicate)
		}
		c.report(&c.refusing, err, "samples refused", "samples accepted again")
	}
}

// outage is one run of failures.
type outage struct {
	since   time.Time
	dropped int // samples lost to it
}

// report logs the first failure of an outage and its end.
func (c *Collector) report(o *outage, err error, began, ended string) {
	switch {
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		c.log.Warn(began, "error", err)
	case err == nil && !o.since.IsZero():
		c.log.Info(ended, "after", time.Since(o.since).Round(time.Millisecond), "samples_dropped", o.dropped)
		*o = outage{}
	}
}

// Center is the load of a center at a moment.
type Center struct {
	ID               string
	CPUUsedMilli     int64 // packages placed, thousandths of a core
	CPUTotalMilli    int64
	MemoryUsedBytes  int64
	MemoryTotalBytes int64
	Running          int64 // replicas
	Waiting          int64 // replicas
	// CPUBusyPermille is how busy the processors are, measured, in thousandths;
	// negative if it is not known, which gives no sample.
	CPUBusyPermille int64
}

// CenterSamples returns the samples of the centers at now, labeled with
// center=ID: yunhe_center_cpu_used_milli, yunhe_center_cpu_total_milli,
// yunhe_center_memory_used_bytes, yunhe_center_memory_total_bytes,
// yunhe_center_running, yunhe_center_waiting, yunhe_center_cpu_busy_permille.
func CenterSamples(centers []Center, now time.Time) []samples.Sample {
	out := make([]samples.Sample, 0, 7*len(centers))
	for _, c := range centers {
		at := samples.L("center", c.ID)
		add := func(name string, value int64) {
			out = append(out, samples.Sample{Name: "yunhe_center_" + name, Labels: at, Value: float64(value), At: now})
		}
		add("cpu_used_milli", c.CPUUsedMilli)
		add("cpu_total_milli", c.CPUTotalMilli)
		add("memory_used_bytes", c.MemoryUsedBytes)
		add("memory_total_bytes", c.MemoryTotalBytes)
		add("running", c.Running)
		add("waiting", c.Waiting)
		if c.CPUBusyPermille >= 0 {
			add("cpu_busy_permille", c.CPUBusyPermille)
		}
	}
	return out
}
