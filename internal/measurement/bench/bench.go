// Package bench measures what a machine does: integer and floating point work,
// memory, a disk, the loopback network. Every figure is of work done for a
// while, by programs that do nothing else meanwhile.
//
// What it keeps true:
//
//   - Figures are amounts by seconds. Bytes are those the program reads and
//     writes, counted exactly; MB are millions of bytes.
//   - Reads that came from the page cache are not reads of a disk: they are
//     said to be, and take no part in anything.
//   - It leaves nothing behind: its file is removed, its connections are closed.
//
// A gateway uses the parts with short spans to declare itself
// (adapters/gateway/measure); the program of the benchmark uses them all
// ([Machine]). It is sent with every run, so the package needs neither fmt nor
// JSON: its size counts.
package bench

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Workers is how many cores this process may use.
func Workers() int { return runtime.GOMAXPROCS(0) }

// sink keeps compilers from leaving out what nobody looks at.
var sink atomic.Uint64

// together runs work on n threads for about span and returns how much was
// done a second, by all. work does one piece and returns its size; it is
// called again until the time is over. With own, each thread's rate is by the
// time it worked itself, and the rates are added; otherwise all that was done is
// by the time from the first beginning to the last end, so that threads which
// worked one after the other do not count as if they had worked together.
func together(ctx context.Context, n int, span time.Duration, own bool, work func(worker int) float64) float64 {
	if ctx.Err() != nil {
		return 0
	}
	var wg, ready sync.WaitGroup
	var stop atomic.Bool
	start := make(chan struct{})
	type share struct {
		done, rate float64
		begin, end time.Duration // on the wall
	}
	shares := make([]share, n)
	ready.Add(n)
	for i := range n {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			work(i) // warm
			ready.Done()
			<-start
			x := share{begin: wall()}
			worked := busy()
			for !stop.Load() {
				x.done += work(i)
			}
			x.rate, x.end = x.done/max(busy()-worked, time.Microsecond).Seconds(), wall()
			shares[i] = x
		})
	}
	ready.Wait()
	close(start)
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	stop.Store(true)
	wg.Wait()
	if ctx.Err() != nil {
		return 0
	}
	all := shares[0]
	for _, x := range shares[1:] {
		all = share{all.done + x.done, all.rate + x.rate, min(all.begin, x.begin), max(all.end, x.end)}
	}
	if own {
		return all.rate
	}
	return all.done / max(all.end-all.begin, time.Microsecond).Seconds()
}

var started = time.Now()

// wall is the time of the clock on the wall.
func wall() time.Duration { return time.Since(started) }

// Integer returns millions of 64-bit operations a second and core while n
// cores work: shift, exclusive or, multiply, add. Its seconds are those that the
// threads worked, not those they waited for another program to end its turn.
func Integer(ctx context.Context, n int, span time.Duration) float64 {
	return together(ctx, n, span, true, func(i int) float64 {
		const rounds = 100_000
		// Four independent chains, so that the core can do what it can at a time.
		a, b, c, d := uint64(i)+1, uint64(i)+2, uint64(i)+3, uint64(i)+4
		for range rounds {
			a ^= a << 13
			b ^= b << 13
			c ^= c << 13
			d ^= d << 13
			a ^= a >> 7
			b ^= b >> 7
			c ^= c >> 7
			d ^= d >> 7
			a = a*0x9E3779B97F4A7C15 + 0x7F4A7C15
			b = b*0x9E3779B97F4A7C15 + 0x7F4A7C15
			c = c*0x9E3779B97F4A7C15 + 0x7F4A7C15
			d = d*0x9E3779B97F4A7C15 + 0x7F4A7C15
		}
		sink.Add(a ^ b ^ c ^ d)
		return rounds * 4 * 6 // two shifts, two exclusive ors, a product, a sum
	}) / 1e6 / float64(n)
}

// Float returns millions of double precision operations a second and core while
// n cores work: products and sums in turn, on scalars, seconds as of [Integer].
// The compiler makes one instruction of product and sum where every processor of
// the architecture has it (arm64). math.FMA would ask on amd64 each time whether
// this one does, and keep nothing in registers for that: a third of the speed.
func Float(ctx context.Context, n int, span time.Duration) float64 {
	return together(ctx, n, span, true, func(i int) float64 {
		const rounds = 100_000
		// Eight chains cover the latency of two units. The factors keep the
		// values in range for ever.
		m, s := 0.999999, 1e-6*float64(i+1)
		var a, b, c, d, e, f, g, h float64 = 1, 2, 3, 4, 5, 6, 7, 8
		for range rounds {
			a = a*m + s
			b = b*m + s
			c = c*m + s
			d = d*m + s
			e = e*m + s
			f = f*m + s
			g = g*m + s
			h = h*m + s
		}
		sink.Add(math.Float64bits(a + b + c + d + e + f + g + h))
		return rounds * 8 * 2
	}) / 1e6 / float64(n)
}

// ArrayBytes is how large the three arrays of [Triad] are together: several
// times what the caches hold, and no more than a part of the memory.
func ArrayBytes(cacheBytes, memoryBytes int64) int64 {
	const least, most = 96 << 20, 1 << 30
	return max(min(max(4*cacheBytes, least), most, memoryBytes/8), 3<<20)
}

// Triad returns MB/s of n cores together, the best of some takes of a span each:
// a[i] = b[i] + s*c[i] on three arrays of so many bytes together, 24 bytes for
// each i. What a processor reads before it writes is not counted, as in STREAM.
func Triad(ctx context.Context, n int, bytes int64, span time.Duration, takes int) (best float64) {
	length := int(bytes / 3 / 8 / int64(n))
	type part struct{ a, b, c []float64 }
	parts := make([]part, n)
	for range takes {
		best = max(best, together(ctx, n, span, false, func(i int) float64 {
			p := &parts[i]
			if p.a == nil { // by the worker: its memory is near it
				*p = part{make([]float64, length), make([]float64, length), make([]float64, length)}
				for j := range p.a {
					p.a[j], p.b[j], p.c[j] = 0, 1, 2
				}
			}
			a, b, c := p.a, p.b[:len(p.a)], p.c[:len(p.a)]
			for j := range a {
				a[j] = b[j] + 3*c[j]
			}
			return float64(24 * length)
		})/1e6)
	}
	return best
}

const (
	chunk = 1 << 20
	page  = 4 << 10
)

// DiskSpans is how long each part of [Disk] works; one of 0 is left out, but
// for the writing, which makes the file.
type DiskSpans struct {
	Write, Read, RandomRead, RandomWrite time.Duration
	FileBytes                            int64 // at most
}

// DiskFigures is what a disk does. Cached says that the file system knows no way
// past the page cache: reads, and random writes, were of memory then.
type DiskFigures struct {
	WriteMBps, ReadMBps       float64
	RandomReads, RandomWrites float64 // of 4 KiB, a second, one at a time
	Cached                    bool
}

// Disk measures the file system of dir with a file of its own: writing in
// order until fsync has returned, reading in order, reading and writing 4 KiB
// at random places; all but the first past the page cache.
func Disk(ctx context.Context, dir string, spans DiskSpans) (f DiskFigures, err error) {
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	file, err := os.CreateTemp(dir, ".measure-*")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	size, rate, err := fill(ctx, file, spans)
	if err != nil {
		return f, err
	}
	f.WriteMBps = rate
	direct, close, err := uncached(file, spans.RandomWrite > 0)
	if err != nil {
		return f, err
	}
	defer close()
	f.Cached = direct == file
	buf := aligned(chunk)
	n, seconds, err := during(ctx, spans.Read, func(i int64) error {
		_, err := direct.ReadAt(buf, i*chunk%size)
		return err
	})
	if err != nil {
		return f, err
	}
	f.ReadMBps = ratio(n*chunk/1e6, seconds)
	random := func(do func([]byte, int64) (int, error)) func(int64) error {
		return func(int64) error {
			_, err := do(buf[:page], rand.Int64N(size/page)*page)
			return err
		}
	}
	if n, seconds, err = during(ctx, spans.RandomRead, random(direct.ReadAt)); err != nil {
		return f, err
	}
	f.RandomReads = ratio(n, seconds)
	if n, seconds, err = during(ctx, spans.RandomWrite, random(direct.WriteAt)); err != nil {
		return f, err
	}
	f.RandomWrites = ratio(n, seconds)
	return f, nil
}

// fill writes the file and returns its size, in whole chunks, and MB/s.
func fill(ctx context.Context, file *os.File, spans DiskSpans) (size int64, rate float64, err error) {
	buf := aligned(chunk)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(buf); err != nil { // disks that pack would pack zeros
		return 0, 0, err
	}
	begin := time.Now()
	for size == 0 || time.Since(begin) < spans.Write && size+chunk <= spans.FileBytes && ctx.Err() == nil {
		if _, err := file.Write(buf); err != nil {
			return 0, 0, err
		}
		// By and by, so that the end is not one long wait for what piled up.
		if size += chunk; size%(16*chunk) == 0 {
			if err := file.Sync(); err != nil {
				return 0, 0, err
			}
		}
	}
	if err := file.Sync(); err != nil {
		return 0, 0, err
	}
	return size, float64(size) / 1e6 / time.Since(begin).Seconds(), ctx.Err()
}

// during does work until span is over and returns how often, and for how long.
func during(ctx context.Context, span time.Duration, work func(i int64) error) (n, seconds float64, err error) {
	begin := time.Now()
	for i := int64(0); time.Since(begin) < span && ctx.Err() == nil; i++ {
		if err := work(i); err != nil {
			return 0, 0, err
		}
		n++
	}
	return n, time.Since(begin).Seconds(), ctx.Err()
}

func ratio(n, seconds float64) float64 {
	if n == 0 || seconds <= 0 {
		return 0
	}
	return n / seconds
}

// aligned returns memory that starts on a page, as reads past the page cache
// need it.
func aligned(n int) []byte {
	b := make([]byte, n+page)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	return b[off : off+n : off+n]
}

// Loopback returns MB/s over one TCP connection on the loopback, which is what
// the kernel's network stack does, and the median of round trips of one byte in
// microseconds.
func Loopback(ctx context.Context, trips, stream time.Duration) (mbps, micros float64, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- peer(l) }()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		l.Close()
		return 0, 0, errors.Join(err, <-done)
	}
	mbps, micros, err = talk(c, trips, stream)
	c.Close()
	l.Close()
	return mbps, micros, errors.Join(err, <-done)
}

// peer answers one byte with one for a while, and then takes what comes.
func peer(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, chunk)
	for {
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return err
		}
		if _, err := c.Write(b[:1]); err != nil {
			return err
		}
		if b[0] == 0 {
			break
		}
	}
	for {
		if _, err := c.Read(b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func talk(c net.Conn, span, stream time.Duration) (mbps, micros float64, err error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, 0, err
	}
	b := make([]byte, chunk)
	var trips []float64
	for begin, last := time.Now(), false; !last; {
		last = time.Since(begin) > span
		if b[0] = 1; last {
			b[0] = 0
		}
		sent := time.Now()
		if _, err := c.Write(b[:1]); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return 0, 0, err
		}
		trips = append(trips, float64(time.Since(sent).Nanoseconds())/1000)
	}
	slices.Sort(trips)
	begin, n := time.Now(), 0
	for time.Since(begin) < stream {
		k, err := c.Write(b)
		if err != nil {
			return 0, 0, err
		}
		n += k
	}
	return float64(n) / 1e6 / time.Since(begin).Seconds(), trips[len(trips)/2], nil
}
