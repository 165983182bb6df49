package measure

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

// How long each part works. Together with what they prepare it makes about
// three seconds.
const (
	spanCPU     = 350 * time.Millisecond
	spanMemory  = 500 * time.Millisecond
	spanWrite   = 500 * time.Millisecond
	spanRead    = 350 * time.Millisecond
	spanNetwork = 300 * time.Millisecond
	spanTrips   = 100 * time.Millisecond
)

func workers() int { return runtime.GOMAXPROCS(0) }

// sink keeps compilers from leaving out what nobody looks at.
var sink atomic.Uint64

// together runs work on n threads for about span and returns how much was
// done a second, by all. work does one piece and returns its size; it is
// called again until the time is over. clock is what a second is measured by.
func together(ctx context.Context, n int, span time.Duration, clock func() time.Duration, work func(worker int) float64) float64 {
	if ctx.Err() != nil {
		return 0
	}
	var wg, ready sync.WaitGroup
	var stop atomic.Bool
	start := make(chan struct{})
	rates := make([]float64, n)
	ready.Add(n)
	for i := range n {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			work(i) // warm
			ready.Done()
			<-start
			begin, done := clock(), 0.0
			for !stop.Load() {
				done += work(i)
			}
			rates[i] = done / max(clock()-begin, time.Microsecond).Seconds()
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
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}

var started = time.Now()

// wall is the time of the clock on the wall.
func wall() time.Duration { return time.Since(started) }

// integer returns millions of operations a second and core.
func integer(ctx context.Context, n int) float64 {
	return together(ctx, n, spanCPU, busy, func(i int) float64 {
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

// float returns millions of double precision operations a second and core.
// The compiler makes one instruction of product and sum where every processor of
// the architecture has it (arm64). math.FMA would ask on amd64 each time whether
// this one does, and keep nothing in registers for that: a third of the speed.
func float(ctx context.Context, n int) float64 {
	return together(ctx, n, spanCPU, busy, func(i int) float64 {
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

// arrayBytes is how large the three arrays are together: several times what
// the caches hold, and no more than a part of the memory.
func arrayBytes(m Machine) int64 {
	const least, most = 96 << 20, 1 << 30
	return max(min(max(4*m.CPU.CacheBytes, least), most, m.MemoryBytes/8), 3<<20)
}

// triad returns MB/s of all cores.
func triad(ctx context.Context, n int, bytes int64) float64 {
	length := int(bytes / 3 / 8 / int64(n))
	type part struct{ a, b, c []float64 }
	parts := make([]part, n)
	return together(ctx, n, spanMemory, wall, func(i int) float64 {
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
	}) / 1e6
}

const (
	chunk     = 1 << 20
	page      = 4 << 10
	fileBytes = 256 << 20 // at most
)

// disk measures the file system of dir with a file of its own.
func disk(ctx context.Context, dir string) (write, reads float64, cached bool, err error) {
	if ctx.Err() != nil {
		return 0, 0, false, ctx.Err()
	}
	f, err := os.CreateTemp(dir, ".measure-*")
	if err != nil {
		return 0, 0, false, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	buf := aligned(chunk)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(buf); err != nil { // disks that pack would pack zeros
		return 0, 0, false, err
	}
	begin, size := time.Now(), int64(0)
	for time.Since(begin) < spanWrite && size < fileBytes && ctx.Err() == nil {
		if _, err := f.Write(buf); err != nil {
			return 0, 0, false, err
		}
		// By and by, so that the end is not one long wait for what piled up.
		if size += chunk; size%(16*chunk) == 0 {
			if err := f.Sync(); err != nil {
				return 0, 0, false, err
			}
		}
	}
	if err := f.Sync(); err != nil {
		return 0, 0, false, err
	}
	write = float64(size) / 1e6 / time.Since(begin).Seconds()
	direct, close, err := uncached(f)
	if err != nil {
		return 0, 0, false, err
	}
	defer close()
	n := 0
	begin = time.Now()
	for buf := aligned(page); time.Since(begin) < spanRead && ctx.Err() == nil; n++ {
		at := rand.Int64N(size/page) * page
		if _, err := direct.ReadAt(buf, at); err != nil {
			return 0, 0, false, err
		}
	}
	return write, float64(n) / time.Since(begin).Seconds(), direct == f, nil
}

// aligned returns memory that starts on a page, as reads past the page cache
// need it.
func aligned(n int) []byte {
	b := make([]byte, n+page)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	return b[off : off+n : off+n]
}

// loopback returns MB/s over one connection, and the median of round trips.
func loopback(ctx context.Context) (mbps, micros float64, err error) {
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
	mbps, micros, err = talk(c)
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

func talk(c net.Conn) (mbps, micros float64, err error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, 0, err
	}
	b := make([]byte, chunk)
	var trips []float64
	for begin, last := time.Now(), false; !last; {
		last = time.Since(begin) > spanTrips
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
	for time.Since(begin) < spanNetwork {
		k, err := c.Write(b)
		if err != nil {
			return 0, 0, err
		}
		n += k
	}
	return float64(n) / 1e6 / time.Since(begin).Seconds(), trips[len(trips)/2], nil
}
