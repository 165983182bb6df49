package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// measureEvery is the pause of the metrics server, which cannot be watched.
const measureEvery = 15 * time.Second

// measure tells now and then how much is used and how much runs.
func (d *Driver) measure(ctx context.Context, c *clients) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	said := "" // what was wrong with Prometheus, said once
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.whole:
			m := d.counted()
			// Without the metrics API there is no such path, which is fine.
			if err := d.nodesUse(ctx, c, m); err != nil {
				d.log.Debug("no figures of nodes", "error", err)
			} else if err := d.attemptsUse(ctx, c, m); err != nil {
				d.log.Debug("no figures of attempts", "error", err)
			}
			err := d.prometheusUse(ctx, m)
			if err != nil && err.Error() != said && ctx.Err() == nil {
				d.log.Warn("not all figures from Prometheus", "error", err)
			}
			if said = ""; err != nil {
				said = err.Error()
			}
			d.listUse(m)
			if p := c.path.take(c.server); p != nil {
				m.Paths = append(m.Paths, p)
			}
			d.board.Set(keyMeasure, m)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// counted is what the driver knows by itself.
func (d *Driver) counted() *adapterv1.Measurement {
	m := &adapterv1.Measurement{MeasuredAt: timestamppb.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts {
		switch a.told.GetPhase() {
		case adapterv1.Phase_PHASE_RUNNING, adapterv1.Phase_PHASE_SUSPENDED:
			m.Running++
		case adapterv1.Phase_PHASE_PENDING:
			m.Waiting++
		}
	}
	for _, n := range d.res.nodes {
		m.MemoryTotalBytes = saturate(m.MemoryTotalBytes, n.view.Capacity[resourceMemory])
		m.StorageTotalBytes = saturate(m.StorageTotalBytes, n.view.Capacity[resourceStorage])
	}
	return m
}

// metricsAPI is the path of the metrics API, which is an addition to a cluster.
const metricsAPI = "/apis/metrics.k8s.io/v1beta1"

func (c *clients) metrics(ctx context.Context, path, selector string) ([]metric, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	b, err := c.watch.Discovery().RESTClient().Get().AbsPath(metricsAPI+path).
		Param("labelSelector", selector).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return parseMetrics(b)
}

// nodesUse adds what the metrics API says of the center's nodes.
func (d *Driver) nodesUse(ctx context.Context, c *clients, m *adapterv1.Measurement) error {
	list, err := c.metrics(ctx, "/nodes", labels.Set(d.cfg.NodeSelector).String())
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var cores, cpu int64
	for _, n := range d.res.nodes {
		cores = saturate(cores, n.view.Capacity[resourceCPU])
	}
	for _, u := range list {
		n := d.res.nodes[u.name]
		if n == nil {
			continue
		}
		cpu, m.MemoryBusyBytes = saturate(cpu, u.cpu), saturate(m.MemoryBusyBytes, u.memory)
		m.Nodes = append(m.Nodes, &adapterv1.NodeUse{Name: u.name, CpuBusyPermille: permille(u.cpu/1e6, n.view.Capacity[resourceCPU]), MemoryBusyBytes: u.memory})
	}
	m.CpuBusyPermille = permille(cpu/1e6, cores)
	return nil
}

// permille is how many thousandths of all are busy, at most 1000.
func permille(busy, all int64) int64 {
	if all <= 0 {
		return 0
	}
	return min(int64(float64(busy)/float64(all)*1000), 1000)
}

// use is what an attempt has used as far as samples tell: between two of them
// CPU time is taken to pass evenly, so its sum is near the truth and a peak of
// memory between them is not seen.
type use struct {
	cpu, memory, peak int64 // microseconds; bytes
	milli             int64 // thousandths of a core, when it was read last
	at                time.Time
}

// add takes a sample. The first one
// stands for the time since the command began.
func (u *use) add(m metric, began time.Time) {
	since := u.at
	if since.Before(began) {
		since = began
	}
	if !m.at.After(since) {
		return
	}
	u.cpu = saturate(u.cpu, int64(float64(m.cpu)/1e9*float64(m.at.Sub(since).Microseconds())))
	u.memory, u.peak, u.at = m.memory, max(u.peak, m.memory), m.at
	u.milli = m.cpu / 1e6
}

// count takes the CPU time since the command began. Prometheus reads it less
// often than it is asked here: what passed is told of the time until it changed.
func (u *use) count(cpu int64, now, began time.Time) {
	if cpu <= u.cpu {
		if now.Sub(u.at) > countStands {
			u.milli, u.at = 0, now
		}
		return
	}
	since := u.at
	if since.Before(began) {
		since = began
	}
	if passed := now.Sub(since); passed > 0 {
		u.milli = int64(float64(cpu-u.cpu) / float64(passed.Microseconds()) * 1000)
	}
	u.cpu, u.at = cpu, now
}

// countStands is for how long a count of Prometheus stands still before nothing
// is used: longer than most read it apart.
const countStands = time.Minute

// attemptsUse takes what the metrics API says of running attempts, unless there
// is something better.
func (d *Driver) attemptsUse(ctx context.Context, c *clients, m *adapterv1.Measurement) error {
	if m.Running == 0 || d.prom != nil {
		return nil
	}
	list, err := c.metrics(ctx, "/namespaces/"+d.cfg.Namespace+"/pods", labelCenter+"="+labelValue(d.center))
	if err != nil {
		return err
	}
	byPod := make(map[string]metric, len(list))
	for _, u := range list {
		byPod[u.name] = u
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts {
		v := a.now()
		if v.pod == nil || v.pod.state.Running == nil {
			continue
		}
		u, ok := byPod[v.pod.name]
		if !ok {
			continue
		}
		a.use.add(u, v.pod.started)
	}
	return nil
}

// listUse adds what is known of running attempts.
func (d *Driver) listUse(m *adapterv1.Measurement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, a := range d.attempts {
		if v := a.now(); v.pod != nil && v.pod.state.Running != nil && !a.use.at.IsZero() {
			m.Attempts = append(m.Attempts, &adapterv1.AttemptUse{AttemptId: id, CpuMicroseconds: a.use.cpu, MemoryBytes: a.use.memory, CpuMilli: a.use.milli})
		}
	}
	slices.SortFunc(m.Attempts, func(a, b *adapterv1.AttemptUse) int {
		if a.AttemptId < b.AttemptId {
			return -1
		}
		return 1
	})
}

// metric is the use of a node, or of a pod's containers together.
type metric struct {
	name        string
	cpu, memory int64 // billionths of a core; bytes
	at          time.Time
}

// nano returns billionths of q, bounded.
func nano(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1_000_000_000) >= 0 {
		return math.MaxInt64
	}
	return q.ScaledValue(resource.Nano)
}

// parseMetrics reads the metrics API's list of nodes or pods.
func parseMetrics(b []byte) ([]metric, error) {
	type usage map[string]resource.Quantity
	var list struct {
		Items []struct {
			Metadata   struct{ Name string }
			Timestamp  time.Time
			Usage      usage
			Containers []struct{ Usage usage }
		}
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("the metrics API's answer: %w", err)
	}
	out := make([]metric, 0, len(list.Items))
	for _, i := range list.Items {
		m := metric{name: i.Metadata.Name, at: i.Timestamp}
		for _, c := range append(i.Containers, struct{ Usage usage }{i.Usage}) {
			cpu, memory := c.Usage["cpu"], c.Usage["memory"]
			if cpu.Sign() < 0 || memory.Sign() < 0 {
				return nil, fmt.Errorf("the metrics API's answer: %s uses cpu %s and memory %s", i.Metadata.Name, &cpu, &memory)
			}
			m.cpu, m.memory = saturate(m.cpu, nano(cpu)), saturate(m.memory, value(memory))
		}
		out = append(out, m)
	}
	return out, nil
}

// pathProbes are the last probes of the API server: the time one request and
// its answer took, from the driver, over a connection that is there.
type pathProbes struct {
	mu   sync.Mutex // guards what follows
	took []time.Duration
}

const (
	probesKept = 30 // a measurement's pause
	lost       = adapter.Lost
)

// add takes a probe.
func (p *pathProbes) add(took time.Duration, answered bool) {
	if !answered {
		took = adapter.Lost
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.took = append(p.took, took); len(p.took) > probesKept {
		p.took = slices.Delete(p.took, 0, len(p.took)-probesKept)
	}
}

// take says how good the path is, nil if nothing is known.
func (p *pathProbes) take(peer string) *adapterv1.Path {
	p.mu.Lock()
	defer p.mu.Unlock()
	return adapter.PathOf(peer, p.took)
}
