// Package measure says what a machine is and how fast it is, so that a compute
// gateway can declare itself in the terms every center is compared in.
//
// # What stays true
//
//   - Figures are measured on the machine, by work done for a while; none is
//     looked up or guessed. One that could not be measured is 0 and takes no part.
//   - A measurement takes about three seconds and is taken once: it is kept in
//     the data folder together with the machine's identity, and again when the
//     machine, the folder's disk or the benchmark has become another one.
//   - The same figures give the same factor, everywhere.
//
// # Figures
//
// Processor figures are for one core while every core works, because
// that is what a job gets: capacity counts the cores. Their seconds are
// those the threads worked, not those they waited for another program to end its turn.
//
//	integer   millions of 64-bit operations (shift, exclusive or, multiply, add) a second and core
//	float     millions of double precision operations a second and core, products and sums in turn, on scalars
//	memory    MB/s of all cores together: a[i] = b[i] + s*c[i], 24 bytes for each i, on arrays far beyond the cache
//	write     MB/s into a file of the data folder, in order, until fsync has returned
//	read      4 KiB reads a second at random places of that file, past the page cache
//	network   MB/s over one TCP connection on the loopback: what the kernel's network stack does
//	roundtrip microseconds for one byte there and back over it; a fact, not part of the factor
//
// MB are millions of bytes.
//
// # The factor
//
// The performance factor is 1000 times the weighted geometric mean of the
// ratios of figures to those of the reference machine. A geometric mean makes
// the order of machines independent of which one is the reference. Each
// ratio counts from 1/8 to 8: a data folder in memory must not outweigh a slow
// processor.
//
//	figure    reference        weight
//	integer   8,000 Mop/s      6   a core
//	float     8,000 MFLOPS     6   a core
//	memory    5,000 MB/s       4   a core: the machine's bandwidth by its cores
//	write     500 MB/s         1
//	read      20,000 /s        1
//	network   2,000 MB/s       2
//
// The formula is package score's, as that of the benchmark which runs as a job
// (package measurement): the same figures give the same factor, however they came.
//
// The reference machine is defined by these figures. They are round ones near those of
// a server core of about 2021 (2.5 GHz, 8 channels of memory for 32 cores)
// with a solid-state disk. A machine with exactly these figures has the factor
// 1000. An operator who knows better states a factor, which then holds.
package measure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/measurement/bench"
	"yunhe.dev/yunhe/internal/measurement/score"
)

// Figures are what was measured; see the package comment for what each is.
type Figures struct {
	Cores               int     `json:"cores"` // that worked
	IntegerMops         float64 `json:"integer_mops_per_core"`
	FloatMflops         float64 `json:"float_mflops_per_core"`
	MemoryMBps          float64 `json:"memory_mb_per_second"`
	DiskWriteMBps       float64 `json:"disk_write_mb_per_second"`
	DiskReadsPerSecond  float64 `json:"disk_random_reads_per_second"`
	NetworkMBps         float64 `json:"loopback_mb_per_second"`
	RoundTripMicros     float64 `json:"loopback_roundtrip_microseconds"`
	DiskReadsFromMemory bool    `json:"disk_reads_from_memory,omitempty"` // the file system knows no way past the page cache
}

// Performance is the factor of a machine with these figures: 1000 is the
// reference machine's, 0 says that nothing was measured.
func (f Figures) Performance() int64 {
	figures := map[string]float64{
		score.IntegerAll: f.IntegerMops * float64(f.Cores), score.FloatAll: f.FloatMflops * float64(f.Cores), score.MemoryBandwidth: f.MemoryMBps,
		score.DiskWrite: f.DiskWriteMBps, score.DiskReads: f.DiskReadsPerSecond, score.Loopback: f.NetworkMBps,
	}
	if f.DiskReadsFromMemory {
		delete(figures, score.DiskReads)
	}
	_, overall := score.Combine(figures, f.Cores, score.Weights())
	return overall
}

// Labels are the disk's figures as labels of a node: what runs have of it are
// volumes, on the same disk, so that no job could measure it.
func (f Figures) Labels() map[string]string {
	l := map[string]string{}
	if f.DiskWriteMBps > 0 {
		l["disk.write.mbps"] = strconv.FormatFloat(f.DiskWriteMBps, 'f', 0, 64)
	}
	if f.DiskReadsPerSecond > 0 && !f.DiskReadsFromMemory {
		l["disk.reads.per-second"] = strconv.FormatFloat(f.DiskReadsPerSecond, 'f', 0, 64)
	}
	return l
}

// How long each part works. Together with what they prepare it makes about
// three seconds.
const (
	spanCPU     = 350 * time.Millisecond
	spanMemory  = 500 * time.Millisecond
	spanWrite   = 500 * time.Millisecond
	spanRead    = 350 * time.Millisecond
	spanNetwork = 300 * time.Millisecond
	spanTrips   = 100 * time.Millisecond
	fileBytes   = 256 << 20
)

// Result is a measurement.
type Result struct {
	Version     int       `json:"version"` // of the benchmark: figures of different versions are not compared
	Identity    string    `json:"identity"`
	MeasuredAt  time.Time `json:"measured_at"`
	Seconds     float64   `json:"seconds"` // it took
	Machine     Machine   `json:"machine"`
	Figures     Figures   `json:"figures"`
	Performance int64     `json:"performance"`
}

// benchmark changes whenever what is measured does.
const benchmark = 1

// cacheFile is where the last measurement is kept.
const cacheFile = "measured.json"

// Run measures this machine, and the disk that dir is on. It returns
// Unavailable if dir cannot be written to. The machine should have nothing else to do.
func Run(ctx context.Context, dir string) (Result, error) {
	begin := time.Now()
	m := Inspect("/")
	f, err := run(ctx, dir, m)
	if err != nil {
		return Result{}, err
	}
	return Result{Version: benchmark, Identity: identity(m, dir), MeasuredAt: begin.UTC().Truncate(time.Second), Seconds: time.Since(begin).Seconds(),
		Machine: m, Figures: f, Performance: f.Performance()}, nil
}

// Once returns the measurement kept in dir if it is of this machine, and
// measures and keeps it else, or if again is set. Machine is as it is now in any
// case. One that cannot be kept is returned all the same, with the error.
func Once(ctx context.Context, dir string, again bool) (Result, error) {
	m := Inspect("/")
	if r, ok := kept(dir); ok && !again && r.Identity == identity(m, dir) {
		r.Machine = m
		return r, nil
	}
	r, err := Run(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	return r, keep(dir, r)
}

// kept reads the last measurement; one that cannot be read is none.
func kept(dir string) (Result, bool) {
	b, err := os.ReadFile(filepath.Join(dir, cacheFile))
	if err != nil {
		return Result{}, false
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil || r.Version != benchmark || r.Performance != r.Figures.Performance() {
		return Result{}, false
	}
	return r, true
}

func keep(dir string, r Result) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode measurement: %w", err)
	}
	path := filepath.Join(dir, cacheFile)
	err = os.WriteFile(path+".new", append(b, '\n'), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return fault.Wrap(fault.Unavailable, err, "the measurement cannot be kept in %s", dir)
}

// identity names what figures depend on. A change of memory size within the
// same 16 MiB is the kernel's own use of it, not another machine.
func identity(m Machine, dir string) string {
	h := sha256.New()
	fmt.Fprintln(h, benchmark, m.ID, m.Architecture, m.CPU.Model, m.CPU.Threads, m.MemoryBytes>>24, device(dir))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// run takes every figure. One whose measurement the machine refuses is 0, but
// for the disk's: a data folder that cannot be written to is no use.
func run(ctx context.Context, dir string, m Machine) (Figures, error) {
	var f Figures
	f.Cores = bench.Workers()
	f.IntegerMops = bench.Integer(ctx, f.Cores, spanCPU)
	f.FloatMflops = bench.Float(ctx, f.Cores, spanCPU)
	f.MemoryMBps = bench.Triad(ctx, f.Cores, bench.ArrayBytes(m.CPU.CacheBytes, m.MemoryBytes), spanMemory, 1)
	disk, err := bench.Disk(ctx, dir, bench.DiskSpans{Write: spanWrite, RandomRead: spanRead, FileBytes: fileBytes})
	f.DiskWriteMBps, f.DiskReadsPerSecond, f.DiskReadsFromMemory = disk.WriteMBps, disk.RandomReads, disk.Cached
	if err != nil {
		if ctx.Err() != nil {
			return Figures{}, ctx.Err()
		}
		return Figures{}, fault.Wrap(fault.Unavailable, err, "the disk of %s cannot be measured", dir)
	}
	f.NetworkMBps, f.RoundTripMicros, err = bench.Loopback(ctx, spanTrips, spanNetwork)
	if ctx.Err() != nil {
		return Figures{}, ctx.Err()
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return Figures{}, fault.Wrap(fault.Unavailable, err, "the loopback network cannot be measured")
	}
	return f, nil
}
