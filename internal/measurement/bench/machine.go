package bench

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
)

// Options of [Machine].
type Options struct {
	Dir         string // where the disk is measured
	Cores       int    // that work; 0: all that may be used
	MemoryBytes int64  // that may be used; 0: what the machine has
	DiskBytes   int64  // that the disk's file may take; 0: a part of what is free
	Quick       bool   // a tenth of the time, for tests: the figures scatter more
}

// The benchmark takes each figure several times and keeps the best: whatever
// else runs on a machine makes it slower, never faster. STREAM does the same.
const (
	tries       = 5
	triads      = 25 // many and short: one in which all cores worked undisturbed is enough
	streams     = 20
	spanOne     = 400 * time.Millisecond
	spanTriad   = 100 * time.Millisecond
	spanDisk    = 2500 * time.Millisecond
	spanRandom  = 2 * time.Second
	spanStream  = 150 * time.Millisecond
	spanTrips   = 50 * time.Millisecond
	mostFile    = 1 << 30
	shareOfRoom = 4 // of what is free on the disk
)

// Machine measures this machine in about 25 seconds. What cannot be measured is
// left out, and a note says why.
func Machine(ctx context.Context, o Options) (*report.Report, error) {
	begin := time.Now()
	r := &report.Report{Scope: report.Machine, Cores: o.Cores, Architecture: runtime.GOARCH}
	if r.Cores <= 0 || r.Cores > Workers() {
		r.Cores = Workers()
	}
	r.Host, _ = os.Hostname() // "" is what a machine without a name has
	cache, memory := int64(0), o.MemoryBytes
	r.Processor, r.MHz, cache = processor()
	if memory <= 0 {
		memory = 1 << 30
	}
	span := func(d time.Duration) time.Duration {
		if o.Quick {
			return d / 10
		}
		return d
	}
	best := func(f func() float64) (most float64) {
		for range tries {
			most = max(most, f())
		}
		return most
	}
	for _, x := range []struct {
		indicator string
		cores     int
		of        func(context.Context, int, time.Duration) float64
	}{{score.IntegerSingle, 1, Integer}, {score.IntegerAll, r.Cores, Integer}, {score.FloatSingle, 1, Float}, {score.FloatAll, r.Cores, Float}} {
		r.Add(x.indicator, best(func() float64 { return x.of(ctx, x.cores, span(spanOne)) * float64(x.cores) }), -1)
	}
	bytes := ArrayBytes(cache, memory)
	if bytes < 4*cache {
		r.Notes = append(r.Notes, "the arrays are "+strconv.FormatInt(bytes>>20, 10)+" MiB beside a cache of "+strconv.FormatInt(cache>>20, 10)+" MiB, for want of memory: part of the bandwidth is the cache's")
	}
	r.Add(score.MemoryBandwidth, Triad(ctx, r.Cores, bytes, span(spanTriad), triads), -1)
	w := writer{r}
	if err := w.disk(ctx, o, span); err != nil {
		r.Notes = append(r.Notes, "no disk was measured: "+err.Error())
	}
	w.network(ctx, span)
	r.Seconds = time.Since(begin).Seconds()
	return r, ctx.Err()
}

// writer adds to a report what may fail.
type writer struct{ *report.Report }

func (w writer) disk(ctx context.Context, o Options, span func(time.Duration) time.Duration) error {
	medium, inMemory := Medium(o.Dir)
	w.Medium = medium
	if inMemory {
		w.Notes = append(w.Notes, "the working directory is in memory ("+medium+"): no disk was measured")
		return nil
	}
	size := min(mostFile, room(o.Dir)/shareOfRoom)
	if o.DiskBytes > 0 {
		size = min(size, o.DiskBytes)
	}
	f, err := Disk(ctx, o.Dir, DiskSpans{Write: span(spanDisk), Read: span(spanRandom), RandomRead: span(spanRandom), RandomWrite: span(spanRandom), FileBytes: size})
	if err != nil {
		return err
	}
	w.Add(score.DiskWrite, f.WriteMBps, -1)
	if f.Cached {
		w.Notes = append(w.Notes, medium+" knows no way past the page cache (O_DIRECT): of the disk, writing in order only was measured")
		return nil
	}
	w.Add(score.DiskRead, f.ReadMBps, -1)
	w.Add(score.DiskReads, f.RandomReads, -1)
	w.Add(score.DiskWrites, f.RandomWrites, -1)
	return nil
}

func (w writer) network(ctx context.Context, span func(time.Duration) time.Duration) {
	var mbps, micros float64
	for range streams {
		m, t, err := Loopback(ctx, span(spanTrips), span(spanStream))
		if err != nil {
			w.Notes = append(w.Notes, "the loopback network was not measured: "+err.Error())
			return
		}
		if mbps = max(mbps, m); micros == 0 || t < micros {
			micros = t
		}
	}
	w.Add(score.Loopback, mbps, -1)
	w.Add(score.RoundTrip, micros, -1)
	w.Notes = append(w.Notes, "network: the loopback of the job's own network, not a path to anywhere")
}

// processor reads what the kernel says of the first processor: its model, its
// highest clock and its largest cache. What it does not say is empty.
func processor() (model string, mhz float64, cache int64) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", 0, 0
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch name, value = strings.TrimSpace(name), strings.TrimSpace(value); name {
		case "model name", "Model Name", "CPU part":
			if model == "" {
				model = value
			}
		case "cpu MHz":
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				mhz = max(mhz, v)
			}
		}
	}
	const cpu0 = "/sys/devices/system/cpu/cpu0/"
	if v := number(cpu0 + "cpufreq/cpuinfo_max_freq"); v > 0 {
		mhz = float64(v) / 1000
	}
	for i := range 5 {
		cache = max(cache, number(cpu0+"cache/index"+strconv.Itoa(i)+"/size"))
	}
	return model, mhz, cache
}

// number reads a file with a number, perhaps of KiB or MiB; 0 if it cannot.
func number(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	s, unit := strings.TrimSpace(string(b)), int64(1)
	if t, ok := strings.CutSuffix(s, "K"); ok {
		s, unit = t, 1<<10
	} else if t, ok := strings.CutSuffix(s, "M"); ok {
		s, unit = t, 1<<20
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n * unit
}
