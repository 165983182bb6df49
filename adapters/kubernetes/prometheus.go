package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// A Prometheus that scrapes the cluster's kubelets and exporters of devices
// knows more than the metrics API: counters in place of samples, peaks the
// kernel saw, and how busy accelerators are.

// DeviceMetrics names the metrics of an exporter of accelerators.
type DeviceMetrics struct {
	Busy        string `json:"busy" jsonschema:"metric with the use of each device, in percent"`
	MemoryUsed  string `json:"memory_used,omitempty" jsonschema:"metric with the memory in use of each device, in MiB"`
	MemoryFree  string `json:"memory_free,omitempty" jsonschema:"metric with the free memory of each device, in MiB"`
	MemoryTotal string `json:"memory_total,omitempty" jsonschema:"metric with all memory of each device, in MiB, where none says what is free"`
	InBytes     bool   `json:"memory_in_bytes,omitempty" jsonschema:"these are in bytes, not in MiB"`
	Node        string `json:"node" jsonschema:"label with the name of the node"`
	Index       string `json:"index" jsonschema:"label with the number of the device in its node, from 0"`
}

// exporters are what the makers' exporters for Kubernetes say, by their published
// names. Only NVIDIA's is tested against figures as it gives them.
var exporters = []DeviceMetrics{
	// NVIDIA, dcgm-exporter.
	{Busy: "DCGM_FI_DEV_GPU_UTIL", MemoryUsed: "DCGM_FI_DEV_FB_USED", MemoryFree: "DCGM_FI_DEV_FB_FREE", Node: "Hostname", Index: "gpu"},
	// AMD, device-metrics-exporter.
	{Busy: "gpu_gfx_activity", MemoryUsed: "gpu_used_vram", MemoryTotal: "gpu_total_vram", Node: "hostname", Index: "gpu_id"},
	// Huawei, npu-exporter. It does not name its node: whoever scrapes it adds the label.
	{Busy: "npu_chip_info_utilization", MemoryUsed: "npu_chip_info_hbm_used_memory", MemoryTotal: "npu_chip_info_hbm_total_memory", Node: "node", Index: "id"},
	// Cambricon, mlu-exporter.
	{Busy: "mlu_utilization", MemoryUsed: "mlu_memory_used", MemoryTotal: "mlu_memory_total", InBytes: true, Node: "node", Index: "mlu"},
	// Hygon, dcu-exporter.
	{Busy: "dcu_utilizationrate", MemoryUsed: "dcu_usedmemory_bytes", MemoryTotal: "dcu_memorycap_bytes", InBytes: true, Node: "node", Index: "minor_number"},
}

// prometheus asks a Prometheus.
type prometheus struct {
	url, tokenFile string
	http           *http.Client
}

const (
	// promTimeout is below the pause of measurements.
	promTimeout = 5 * time.Second
	promMax     = 32 << 20 // bytes of an answer
)

func newPrometheus(c Config) *prometheus {
	if c.PrometheusURL == "" {
		return nil
	}
	return &prometheus{url: strings.TrimSuffix(c.PrometheusURL, "/"), tokenFile: c.PrometheusTokenFile, http: &http.Client{Timeout: promTimeout}}
}

// vector is one value of an answer.
type vector struct {
	labels map[string]string
	value  float64
}

// query asks for the present values of an expression.
func (p *prometheus) query(ctx context.Context, expression string) ([]vector, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/api/v1/query", strings.NewReader(url.Values{"query": {expression}}.Encode()))
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if p.tokenFile != "" {
		token, err := os.ReadFile(p.tokenFile) // it may be renewed
		if err != nil {
			return nil, fmt.Errorf("prometheus_token_file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	}
	res, err := p.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	defer res.Body.Close() // read only
	b, err := io.ReadAll(io.LimitReader(res.Body, promMax+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	case len(b) > promMax:
		return nil, fmt.Errorf("ask Prometheus: %s has more than %d bytes of answer", expression, promMax)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask Prometheus: %s: %.200s", res.Status, b)
	}
	return parseVectors(b)
}

// parseVectors reads the answer to an instant query. Values that are no numbers
// are left out.
func parseVectors(b []byte) ([]vector, error) {
	var answer struct {
		Status string
		Error  string
		Data   struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("the answer of Prometheus: %w", err)
	}
	if answer.Status != "success" || answer.Data.ResultType != "vector" {
		return nil, fmt.Errorf("the answer of Prometheus is %q %q: %.200s", answer.Status, answer.Data.ResultType, answer.Error)
	}
	var result []struct {
		Metric map[string]string
		Value  []any
	}
	if err := json.Unmarshal(answer.Data.Result, &result); err != nil {
		return nil, fmt.Errorf("the answer of Prometheus: %w", err)
	}
	var out []vector
	for _, r := range result {
		if len(r.Value) != 2 {
			return nil, errors.New("the answer of Prometheus has a value without a time")
		}
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, vector{labels: r.Metric, value: v})
		}
	}
	return out, nil
}

// count is a figure that cannot be negative, bounded.
func count(v float64) int64 {
	switch {
	case v <= 0:
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	default:
		return int64(v)
	}
}

// attemptsUse takes what the kernel has counted of running attempts.
func (p *prometheus) attemptsUse(ctx context.Context, d *Driver) error {
	which := fmt.Sprintf(`{namespace=%q,container=%q}`, d.cfg.Namespace, container)
	by := map[string]*use{}
	of := func(v vector) *use {
		name := v.labels["pod"]
		if by[name] == nil {
			by[name] = &use{}
		}
		return by[name]
	}
	for metric, take := range map[string]func(u *use, v float64){
		"container_cpu_usage_seconds_total":  func(u *use, v float64) { u.cpu = count(v * 1e6) },
		"container_memory_working_set_bytes": func(u *use, v float64) { u.memory = count(v) },
		"container_memory_max_usage_bytes":   func(u *use, v float64) { u.peak = count(v) },
	} {
		all, err := p.query(ctx, "max by (pod) ("+metric+which+")")
		if err != nil {
			return err
		}
		for _, v := range all {
			take(of(v), v.value)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts {
		v := a.now()
		if v.pod == nil || v.pod.state.Running == nil {
			continue
		}
		if u := by[v.pod.name]; u != nil {
			a.use.count(u.cpu, time.Now(), v.pod.started)
			a.use.memory = u.memory
			a.use.peak = max(a.use.peak, u.peak, u.memory)
		}
	}
	return nil
}

// volumeUse is what a kubelet says of a volume's file system, in bytes.
type volumeUse struct{ used, capacity int64 }

// volumesUse says how full the volumes of a namespace are, by claim, as far as a
// kubelet has measured them lately.
func (p *prometheus) volumesUse(ctx context.Context, namespace string) (map[string]volumeUse, error) {
	out := map[string]volumeUse{}
	for metric, take := range map[string]func(u *volumeUse, v int64){
		"kubelet_volume_stats_used_bytes":     func(u *volumeUse, v int64) { u.used = v },
		"kubelet_volume_stats_capacity_bytes": func(u *volumeUse, v int64) { u.capacity = v },
	} {
		// It is measured while a pod uses it, and does not change after that.
		all, err := p.query(ctx, fmt.Sprintf("max by (persistentvolumeclaim) (last_over_time(%s{namespace=%q}[1d]))", metric, namespace))
		if err != nil {
			return nil, err
		}
		for _, v := range all {
			u := out[v.labels["persistentvolumeclaim"]]
			take(&u, count(v.value))
			out[v.labels["persistentvolumeclaim"]] = u
		}
	}
	return out, nil
}

// devicesUse adds how busy the accelerators of nodes are, for one exporter.
func (p *prometheus) devicesUse(ctx context.Context, m DeviceMetrics, into map[string]map[int32]*adapterv1.AcceleratorUse) error {
	unit := float64(1 << 20)
	if m.InBytes {
		unit = 1
	}
	for _, part := range []struct {
		metric string
		take   func(u *adapterv1.AcceleratorUse, v float64)
	}{
		{m.Busy, func(u *adapterv1.AcceleratorUse, v float64) { u.BusyPermille = min(count(v*10), 1000) }},
		{m.MemoryUsed, func(u *adapterv1.AcceleratorUse, v float64) {
			u.MemoryBusyBytes = count(v * unit)
			u.MemoryTotalBytes = saturate(u.MemoryTotalBytes, u.MemoryBusyBytes)
		}},
		{m.MemoryFree, func(u *adapterv1.AcceleratorUse, v float64) {
			u.MemoryTotalBytes = saturate(u.MemoryTotalBytes, count(v*unit))
		}},
		{m.MemoryTotal, func(u *adapterv1.AcceleratorUse, v float64) { u.MemoryTotalBytes = count(v * unit) }},
	} {
		if part.metric == "" {
			continue
		}
		all, err := p.query(ctx, fmt.Sprintf("max by (%s, %s) (%s)", m.Node, m.Index, part.metric))
		if err != nil {
			return err
		}
		if len(all) == 0 && part.metric == m.Busy {
			return nil // there is no such exporter
		}
		for _, v := range all {
			index, err := strconv.ParseInt(v.labels[m.Index], 10, 32)
			if name := v.labels[m.Node]; err == nil && index >= 0 && name != "" {
				if into[name] == nil {
					into[name] = map[int32]*adapterv1.AcceleratorUse{}
				}
				u := into[name][int32(index)]
				if u == nil {
					if part.metric != m.Busy {
						continue // nothing says that it is there
					}
					u = &adapterv1.AcceleratorUse{Index: int32(index)}
					into[name][int32(index)] = u
				}
				part.take(u, v.value)
			}
		}
	}
	return nil
}

// prometheusUse adds to a measurement what a Prometheus knows.
func (d *Driver) prometheusUse(ctx context.Context, m *adapterv1.Measurement) error {
	if d.prom == nil {
		return nil
	}
	var errs []error
	if m.Running > 0 {
		errs = append(errs, d.prom.attemptsUse(ctx, d))
	}
	devices := map[string]map[int32]*adapterv1.AcceleratorUse{}
	for _, metrics := range slices.Concat(d.cfg.DeviceMetrics, exporters) {
		errs = append(errs, d.prom.devicesUse(ctx, metrics, devices))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	have := map[string]*adapterv1.NodeUse{}
	for _, n := range m.Nodes {
		have[n.Name] = n
	}
	for name, all := range devices {
		if d.res.nodes[name] == nil {
			continue // of another center, or no node's name
		}
		n := have[name]
		if n == nil {
			n = &adapterv1.NodeUse{Name: name}
			m.Nodes = append(m.Nodes, n)
		}
		for _, u := range all {
			n.Accelerators = append(n.Accelerators, u)
		}
		slices.SortFunc(n.Accelerators, func(a, b *adapterv1.AcceleratorUse) int { return int(a.Index) - int(b.Index) })
	}
	slices.SortFunc(m.Nodes, func(a, b *adapterv1.NodeUse) int { return strings.Compare(a.Name, b.Name) })
	return errors.Join(errs...)
}
