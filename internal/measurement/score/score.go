// Package score says what figures of the benchmark are worth together, and
// which cannot be.
//
// # The combined indicator
//
// A factor is 1000 times the weighted geometric mean of the ratios of figures to
// those of the reference machine. A geometric mean makes the order of machines
// independent of which one is the reference. Each ratio counts from 1/8 to 8: a
// disk in memory must not outweigh a slow processor. Figures that were not
// measured take no part. A machine with exactly the reference's figures has
// the factor 1000, whatever the weights.
//
// The weights are data: [Weights] are those that hold unless an operator has
// set others. Rates of accelerators take no part: each precision is a figure of
// its own, and none is worth so much of another.
//
// # What cannot be
//
// [Implausible] compares figures with limits that no machine of their kind
// passes: operations for each clock, published peaks, what one core can move.
// They are generous, so that no honest machine is refused, and still far below
// what a program that counts wrongly, or lies, would claim.
package score

import (
	"math"
	"slices"
	"strconv"

	"yunhe.dev/yunhe/internal/measurement/report"
)

// The figures a benchmark can have.
const (
	IntegerSingle   = "compute.integer.single"
	IntegerAll      = "compute.integer.all"
	FloatSingle     = "compute.float.single"
	FloatAll        = "compute.float.all"
	MemoryBandwidth = "memory.bandwidth"
	DiskWrite       = "storage.write.sequential"
	DiskRead        = "storage.read.sequential"
	DiskReads       = "storage.read.random"
	DiskWrites      = "storage.write.random"
	Loopback        = "network.loopback.bandwidth"
	RoundTrip       = "network.loopback.latency"
	DeviceFP32      = "accelerator.measured.fp32"
	DeviceFP64      = "accelerator.measured.fp64"
	DeviceBandwidth = "accelerator.measured.bandwidth"
)

// Weight is what one figure counts, and what the reference machine has.
type Weight struct {
	Indicator string  `json:"indicator"`
	Reference float64 `json:"reference"`
	Weight    int64   `json:"weight"`
}

// PerCore tells whether a figure is compared by the cores that worked, because
// that is what a job gets: capacity counts the cores.
func PerCore(indicator string) bool {
	return slices.Contains([]string{IntegerAll, FloatAll, MemoryBandwidth}, indicator)
}

// Weighable are the figures that may take part.
func Weighable() []string {
	return []string{IntegerSingle, IntegerAll, FloatSingle, FloatAll, MemoryBandwidth, DiskWrite, DiskRead, DiskReads, DiskWrites, Loopback, RoundTrip}
}

// Weights are those that hold unless others are set. The references are round
// figures near those of a server core of about 2021 with a solid-state disk.
func Weights() []Weight {
	return []Weight{{IntegerAll, 8000, 6}, {FloatAll, 8000, 6}, {MemoryBandwidth, 5000, 4}, {DiskWrite, 500, 1}, {DiskReads, 20000, 1}, {Loopback, 2000, 2}}
}

// Share is one figure beside the reference machine's.
type Share struct {
	Weight
	Value float64 // by core where it is compared so
	Score int64   // 1000 is the reference machine's
}

// bound keeps one figure from deciding alone.
const bound = 8

// Combine returns what the factor is made of, in the order of the weights, and
// the factor: 0 if nothing that counts was measured.
func Combine(figures map[string]float64, cores int, weights []Weight) (shares []Share, factor int64) {
	for _, w := range weights {
		v := figures[w.Indicator]
		if PerCore(w.Indicator) {
			v /= float64(max(1, cores))
		}
		if !(v > 0) || math.IsInf(v, 0) || !(w.Reference > 0) || w.Weight <= 0 {
			continue
		}
		r := v / w.Reference
		if w.Indicator == RoundTrip { // less is better
			r = w.Reference / v
		}
		shares = append(shares, Share{w, v, int64(math.Round(1000 * min(max(r, 1.0/bound), bound)))})
	}
	return shares, Mean(shares)
}

// Mean is the factor of some shares: 0 if there are none.
func Mean(shares []Share) int64 {
	sum, weights := 0.0, 0.0
	for _, s := range shares {
		r := s.Value / s.Reference
		if s.Indicator == RoundTrip {
			r = s.Reference / s.Value
		}
		sum += float64(s.Weight.Weight) * math.Log(min(max(r, 1.0/bound), bound))
		weights += float64(s.Weight.Weight)
	}
	if weights == 0 {
		return 0
	}
	return int64(math.Round(1000 * math.Exp(sum/weights)))
}

// Most that can be, each with generous room.
const (
	clockRoom    = 1.25   // above the clock a machine states
	maxMHz       = 7000   // where none is stated
	scalarOps    = 16     // of 64-bit integer work in one clock of one core
	floatOps     = 16     // scalar, of double precision, in one clock of one core
	deviceFP32   = 512    // a clock and compute unit of a device that is no processor: 128 lanes of product and sum, issued twice
	cpuFP32      = 128    // and of one that is: four vectors of 16
	coreMBps     = 200e3  // memory of one core
	machineMBps  = 12e6   // memory of a machine
	diskMBps     = 200e3  // any file system
	diskPerSec   = 5e6    // one at a time: a fifth of a microsecond each
	loopbackMBps = 400e3  // one connection
	minTrip      = 0.2    // microseconds
	maxTeraFLOPS = 20_000 // of one device nothing is known of
	deviceGBps   = 40_000
)

// Implausible returns what in a report cannot be; nothing if all can. cores is
// what the job was given, 0 if that is not known. peak returns the published
// rate of a known device in tera operations a second, by "FP32" or "FP64".
func Implausible(r *report.Report, cores int64, peak func(model, precision string) (tera float64, ok bool)) []string {
	var bad []string
	most := func(indicator string, limit float64, why string) {
		if v, ok := r.Find(indicator); ok && v > limit {
			bad = append(bad, indicator+" is "+short(v)+", more than "+short(limit)+": "+why)
		}
	}
	n := float64(r.Cores)
	if cores > 0 && int64(r.Cores) > cores {
		bad = append(bad, strconv.Itoa(r.Cores)+" cores worked, and the job had "+strconv.FormatInt(cores, 10))
	}
	mhz := float64(maxMHz)
	if r.MHz > 0 {
		// A virtual machine may state the base clock of a processor that boosts to twice that.
		mhz = min(maxMHz, 2*clockRoom*r.MHz)
	}
	perCore := "what a core can do at " + short(mhz) + " MHz"
	most(IntegerSingle, mhz*scalarOps, perCore)
	most(IntegerAll, n*mhz*scalarOps, perCore)
	most(FloatSingle, mhz*floatOps, perCore)
	most(FloatAll, n*mhz*floatOps, perCore)
	most(MemoryBandwidth, min(n*coreMBps, machineMBps), "what the cores can move")
	for _, x := range []string{DiskWrite, DiskRead} {
		most(x, diskMBps, "what any file system does")
	}
	for _, x := range []string{DiskReads, DiskWrites} {
		most(x, diskPerSec, "what is possible one at a time")
	}
	most(Loopback, loopbackMBps, "what one connection can carry")
	if v, ok := r.Find(RoundTrip); ok && v < minTrip {
		bad = append(bad, RoundTrip+" is "+short(v)+", less than "+short(minTrip)+": no way through a kernel is so short")
	}
	return append(bad, devices(r, peak)...)
}

func devices(r *report.Report, peak func(model, precision string) (float64, bool)) (bad []string) {
	for _, f := range r.Figures {
		if f.Device < 0 {
			continue
		}
		d := r.Devices[f.Device]
		limit, why := 0.0, ""
		precision := map[string]string{DeviceFP32: "FP32", DeviceFP64: "FP64"}[f.Indicator]
		switch {
		case f.Indicator == DeviceBandwidth:
			limit, why = deviceGBps, "what any memory does"
		case precision == "":
			bad = append(bad, f.Indicator+" is no figure of a device")
			continue
		default:
			var ok bool
			if limit, ok = peak(d.Name, precision); ok {
				limit, why = limit*1.05, "the published peak of "+d.Name
				break
			}
			limit, why = maxTeraFLOPS, "what any device does"
			ops := float64(deviceFP32)
			if d.Class == "cpu" {
				ops = cpuFP32
			}
			if d.Units > 0 && d.MHz > 0 {
				limit, why = float64(d.Units)*float64(d.MHz)*2*clockRoom*ops/1e6, "what its compute units can do in that many clocks"
			}
		}
		if f.Number > limit {
			bad = append(bad, f.Indicator+" of "+d.Name+" is "+short(f.Number)+", more than "+short(limit)+": "+why)
		}
	}
	return bad
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
