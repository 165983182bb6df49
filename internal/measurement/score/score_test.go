package score_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
)

func reference(cores float64) map[string]float64 {
	out := map[string]float64{}
	for _, w := range score.Weights() {
		if out[w.Indicator] = w.Reference; score.PerCore(w.Indicator) {
			out[w.Indicator] *= cores
		}
	}
	return out
}

func TestCombine(t *testing.T) {
	t.Parallel()
	shares, factor := score.Combine(reference(4), 4, score.Weights())
	if factor != 1000 || len(shares) != len(score.Weights()) {
		t.Errorf("the reference machine: %d of %d shares", factor, len(shares))
	}
	for _, s := range shares {
		if s.Score != 1000 || s.Value != s.Reference {
			t.Errorf("share of the reference machine: %+v", s)
		}
	}
	f := reference(1)
	f[score.DiskReads] = 100 // counts as an eighth, not as a two hundredth
	want := int64(math.Round(1000 * math.Pow(8, -1.0/20)))
	if _, got := score.Combine(f, 1, score.Weights()); got != want {
		t.Errorf("a slow disk: %d, want %d", got, want)
	}
	f[score.DiskReads] = math.NaN()
	if shares, got := score.Combine(f, 1, score.Weights()); got != 1000 || len(shares) != len(score.Weights())-1 {
		t.Errorf("what was not measured takes part: %d of %v", got, shares)
	}
	if shares, got := score.Combine(nil, 0, score.Weights()); got != 0 || shares != nil {
		t.Errorf("of nothing: %d of %v", got, shares)
	}
	// A delay that is shorter is better.
	trip := []score.Weight{{Indicator: score.RoundTrip, Reference: 10, Weight: 1}}
	if shares, got := score.Combine(map[string]float64{score.RoundTrip: 5}, 1, trip); got != 2000 || shares[0].Score != 2000 {
		t.Errorf("half the delay: %d", got)
	}
}

// Whoever is faster in one figure and slower in none is never worth less, the
// order of weights does not matter, and what an accelerator does is no part of it.
func TestCombineProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		weights := score.Weights()
		for i := range weights {
			weights[i].Weight = rapid.Int64Range(0, 100).Draw(t, "weight")
		}
		cores := rapid.IntRange(1, 256).Draw(t, "cores")
		f := map[string]float64{}
		for _, id := range score.Weighable() {
			f[id] = rapid.Float64Range(1, 1e6).Draw(t, id)
		}
		_, before := score.Combine(f, cores, weights)
		f["accelerator.measured.fp32"] = rapid.Float64Range(1, 1e6).Draw(t, "device")
		rotated := append(weights[3:len(weights):len(weights)], weights[:3]...)
		if _, got := score.Combine(f, cores, rotated); got < before-1 || got > before+1 { // of rounding
			t.Fatalf("in another order, with a device: %d, before %d", got, before)
		}
		f[rapid.SampledFrom(score.Weighable()[:10]).Draw(t, "which")] *= rapid.Float64Range(1, 10).Draw(t, "by")
		if _, got := score.Combine(f, cores, weights); got < before {
			t.Fatalf("faster is worth less: %d, before %d", got, before)
		}
	})
}

func machine(change func(*report.Report)) *report.Report {
	r := &report.Report{Scope: report.Machine, Cores: 2, MHz: 2600}
	for id, v := range map[string]float64{score.IntegerSingle: 7700, score.IntegerAll: 15300, score.FloatSingle: 9200, score.FloatAll: 18300, score.MemoryBandwidth: 20000,
		score.DiskWrite: 700, score.DiskRead: 900, score.DiskReads: 10000, score.DiskWrites: 9000, score.Loopback: 3000, score.RoundTrip: 13} {
		r.Add(id, v, -1)
	}
	change(r)
	return r
}

func TestImplausible(t *testing.T) {
	t.Parallel()
	set := func(indicator string, v float64) func(*report.Report) {
		return func(r *report.Report) {
			for i := range r.Figures {
				if r.Figures[i].Indicator == indicator {
					r.Figures[i].Number = v
				}
			}
		}
	}
	device := func(d report.Device, indicator string, v float64) func(*report.Report) {
		return func(r *report.Report) { r.Devices = []report.Device{d}; r.Add(indicator, v, 0) }
	}
	h200 := report.Device{API: "cuda", Class: "gpu", Units: 132, MHz: 1980, Name: "NVIDIA H200"}
	pocl := report.Device{API: "opencl", Class: "cpu", Units: 2, MHz: 2596, Name: "pthread"}
	peak := func(model, precision string) (float64, bool) {
		v, ok := map[string]float64{"NVIDIA H200 FP32": 67, "NVIDIA H200 FP64": 67}[model+" "+precision]
		return v, ok
	}
	for name, c := range map[string]struct {
		change func(*report.Report)
		cores  int64
		want   string // "": it can be
	}{
		"an honest machine":          {func(*report.Report) {}, 2, ""},
		"one that boosts":            {func(r *report.Report) { r.MHz = 1500 }, 0, ""},
		"more cores than given":      {func(r *report.Report) { r.Cores = 8 }, 2, "8 cores worked, and the job had 2"},
		"integer beyond the clock":   {set(score.IntegerSingle, 200_000), 2, score.IntegerSingle},
		"float beyond the clock":     {set(score.FloatAll, 1e6), 2, score.FloatAll},
		"no clock told, beyond any":  {func(r *report.Report) { r.MHz = 0; set(score.FloatAll, 1e6)(r) }, 2, score.FloatAll},
		"memory beyond the cores":    {set(score.MemoryBandwidth, 1e6), 2, score.MemoryBandwidth},
		"a disk of light":            {set(score.DiskRead, 1e6), 2, score.DiskRead},
		"too many reads":             {set(score.DiskReads, 1e8), 2, score.DiskReads},
		"a loopback beyond memory":   {set(score.Loopback, 1e6), 2, score.Loopback},
		"a trip through no kernel":   {set(score.RoundTrip, 0.01), 2, score.RoundTrip},
		"a device as it is":          {device(h200, score.DeviceFP32, 58), 2, ""},
		"more than the peak figure":  {device(h200, score.DeviceFP32, 90), 2, "published peak of NVIDIA H200"},
		"FP64 more than the peak":    {device(h200, score.DeviceFP64, 90), 2, "published peak of NVIDIA H200"},
		"a processor as a device":    {device(pocl, score.DeviceFP32, 0.3), 2, ""},
		"more than its clocks":       {device(pocl, score.DeviceFP32, 5), 2, "compute units"},
		"an unknown device":          {device(report.Device{Name: "x"}, score.DeviceFP32, 19_000), 2, ""},
		"beyond any device":          {device(report.Device{Name: "x"}, score.DeviceFP32, 21_000), 2, "any device"},
		"a figure of no device":      {device(h200, score.DiskRead, 5), 2, "no figure of a device"},
		"memory of no device's":      {device(h200, score.DeviceBandwidth, 50_000), 2, "any memory"},
		"a device's memory as it is": {device(h200, score.DeviceBandwidth, 4500), 2, ""},
	} {
		bad := score.Implausible(machine(c.change), c.cores, peak)
		if got := strings.Join(bad, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
