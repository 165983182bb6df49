package agent

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/fault"
)

// way is a connection from a gateway to a platform that can be made bad: a
// proxy before the bus that delays, drops and slows down what the gateway
// says, and delays the answers.
type way struct {
	delay   time.Duration // of each direction
	more    time.Duration // of every second probe
	dropped int           // every so many-th probe does not arrive; 0: all do
	rate    int64         // bytes per second; 0: as fast as it goes

	probes atomic.Int64
}

// forward passes what the gateway says on, message by message.
func (w *way) forward(from io.Reader, to io.Writer) error {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<16)
	ended := make(chan error, 1)
	go func() {
		for p := range pieces {
			if wait := time.Until(p.at); wait > 0 {
				<-time.After(wait)
			}
			if _, err := to.Write(p.data); err != nil {
				ended <- err
				return
			}
			if w.rate > 0 {
				<-time.After(time.Duration(int64(len(p.data)) * int64(time.Second) / w.rate))
			}
		}
		ended <- nil
	}()
	defer close(pieces)
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		at, data := time.Now().Add(w.delay), line
		if f := bytes.Fields(line); len(f) > 2 && (string(f[0]) == "PUB" || string(f[0]) == "HPUB") {
			n, err := strconv.Atoi(string(f[len(f)-1]))
			if err != nil {
				return err
			}
			body := make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return err
			}
			data = append(line, body...)
			if bytes.HasSuffix(f[1], []byte(".probe")) {
				i := w.probes.Add(1)
				if w.dropped > 0 && i%int64(w.dropped) == 0 {
					continue
				}
				if i%2 == 0 {
					at = at.Add(w.more)
				}
			}
		}
		select {
		case pieces <- piece{at, data}:
		case err := <-ended:
			return err
		}
	}
}

// back passes the platform's answers on.
func (w *way) back(from io.Reader, to io.Writer) {
	var wg sync.WaitGroup
	defer wg.Wait()
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<16)
	defer close(pieces)
	wg.Go(func() {
		for p := range pieces {
			if wait := time.Until(p.at); wait > 0 {
				<-time.After(wait)
			}
			if _, err := to.Write(p.data); err != nil {
				continue // the other side is gone, and so are we soon
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			pieces <- piece{time.Now().Add(w.delay), bytes.Clone(buf[:n])}
		}
		if err != nil {
			return
		}
	}
}

// listen returns where the way begins; it leads to address.
func (w *way) listen(t testing.TB, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", address)
			if err != nil {
				_ = in.Close() // as the other side would
				continue
			}
			wg.Go(func() { _ = w.forward(in, out); _ = out.Close() }) // its end is the other's
			wg.Go(func() { w.back(out, in); _ = in.Close() })
		}
	})
	return l.Addr().String()
}

// connected is a gateway's end of a real bus with a platform that answers.
func connected(t testing.TB, w *way) *bus.Agent {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	b, err := bus.Open(t.Context(), bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Answer(ctx, bus.AgentUp("*", "*"), "platform", 16, func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	seed, public, err := bus.NewAgentKey()
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := b.AgentJWT("c", public)
	if err != nil {
		t.Fatal(err)
	}
	address := b.AgentURLs()[0]
	if w != nil {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		address = "nats://" + w.listen(t, u.Host)
	}
	up := make(chan struct{}, 1)
	a, err := bus.DialAgent([]string{address}, "c", seed, jwt, func() { signal(up) }, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	<-up
	for { // until the platform listens
		if _, err := a.Ask(t.Context(), "hello", nil); err == nil {
			return a
		}
	}
}

func over(a *bus.Agent) *prober {
	return newProber(func(ctx context.Context, payload []byte) error {
		_, err := a.Ask(ctx, "probe", payload)
		return err
	}, a.Segments)
}

// probing runs a prober until it has sent so many probes and heard of all.
func probing(t testing.TB, p *prober, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.run(ctx) })
	defer wg.Wait()
	defer cancel()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for range tick.C {
		p.mu.Lock()
		ended := 0
		for _, x := range p.results {
			if x.took != 0 {
				ended++
			}
		}
		p.mu.Unlock()
		if ended >= n {
			return
		}
	}
}

func TestProbeMeasuresTheWay(t *testing.T) {
	t.Parallel()
	w := &way{delay: 15 * time.Millisecond, more: 8 * time.Millisecond, dropped: 10}
	p := over(connected(t, w))
	p.every, p.timeout, p.window = 25*time.Millisecond, 150*time.Millisecond, 100
	if got := p.path(); got != nil {
		t.Errorf("before any probe: %v", got)
	}
	probing(t, p, 90)
	got := p.path()
	t.Logf("a way of 30 ms, every second probe 8 ms more, every tenth lost: %v", got)
	// A busy machine adds to the way; nothing takes away from it.
	if l := got.LatencyMicroseconds; l < 30_000 {
		t.Errorf("latency %d µs, want 30 ms or more", l)
	}
	if l := got.LossPpm; l < 80_000 {
		t.Errorf("loss %d ppm, want 100000 or more", l)
	}
	if got.Peer != "platform" || got.BandwidthBitsPerSecond != 0 {
		t.Errorf("path %v, want to the platform, bandwidth not measured yet", got)
	}
}

// The same way where time is exact.
func TestProbeIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		p := newProber(func(ctx context.Context, payload []byte) error {
			if payload != nil {
				return fault.New(fault.Unavailable, "too large")
			}
			n := sent.Add(1)
			if n%10 == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(30*time.Millisecond + time.Duration(n%2)*8*time.Millisecond)
			return nil
		}, func() (int64, int64, bool) { return 0, 0, false })
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		time.Sleep(2*time.Minute + 500*time.Millisecond)
		got := p.path()
		cancel()
		synctest.Wait()
		if l := got.LatencyMicroseconds; l < 30_000 || l > 38_000 {
			t.Errorf("latency %d µs, want 30 ms to 38 ms", l)
		}
		if j := got.JitterMicroseconds; j < 7_000 || j > 8_000 {
			t.Errorf("jitter %d µs, want about 8 ms", j)
		}
		if l := got.LossPpm; l < 80_000 || l > 120_000 { // one may be on its way
			t.Errorf("loss %d ppm, want 100000 (of %d probes)", l, p.window)
		}
	})
}

func TestProbeMeasuresBandwidth(t *testing.T) {
	t.Parallel()
	const rate = 4 << 20 // bytes per second
	p := over(connected(t, &way{delay: 5 * time.Millisecond, rate: rate}))
	p.every = 10 * time.Millisecond
	probing(t, p, 5)
	p.measureBandwidth(t.Context())
	got := p.path().BandwidthBitsPerSecond
	t.Logf("a way of %d bits per second: %d", rate*8, got)
	if got == 0 || got > rate*8*5/4 { // a busy machine makes it less
		t.Errorf("bandwidth %d bits per second, want about %d", got, rate*8)
	}
	// The platform is gone: what was measured is not changed by guesses.
	p.ask = func(context.Context, []byte) error { return fault.New(fault.Unavailable, "gone") }
	p.measureBandwidth(t.Context())
	if again := p.path().BandwidthBitsPerSecond; again != got {
		t.Errorf("bandwidth without a platform %d, want what was measured", again)
	}
}

func TestProbeWithoutPlatform(t *testing.T) {
	t.Parallel()
	p := newProber(func(context.Context, []byte) error { return fault.New(fault.Unavailable, "gone") }, func() (int64, int64, bool) { return 0, 0, false })
	p.every = time.Millisecond
	probing(t, p, 10)
	if got := p.path(); got.LossPpm != 1_000_000 || got.LatencyMicroseconds != 0 || got.JitterMicroseconds != 0 {
		t.Errorf("path to a platform that is gone: %v", got)
	}
	// An older platform answers that it knows no probes: the way is there.
	p = newProber(func(context.Context, []byte) error { return fault.New(fault.Unimplemented, "unknown") }, func() (int64, int64, bool) { return 0, 0, false })
	p.every = time.Millisecond
	probing(t, p, 10)
	if got := p.path(); got.LossPpm != 0 || got.LatencyMicroseconds == 0 && got.JitterMicroseconds != 0 {
		t.Errorf("path to an older platform: %v", got)
	}
}

// A connection that breaks is none of the loss of the next one.
func TestProbeCountsSegments(t *testing.T) {
	t.Parallel()
	p := newProber(nil, nil)
	p.counted = []count{{100, 0, true}, {200, 20, true}, {5, 1, true}, {0, 0, false}, {7, 1, true}, {107, 11, true}}
	if got := p.resent(); got != 150_000 {
		t.Errorf("resent %d ppm, want 30 of 200", got)
	}
	p.counted = p.counted[:1]
	if got := p.resent(); got != 0 {
		t.Errorf("resent %d ppm of nothing", got)
	}
}

// insideVar makes the test binary the one that runs in a network of its own.
const insideVar = "YUNHE_TEST_LOSSY_NETWORK"

// Packets that the network loses are counted although TCP sends them again.
func TestProbeCountsLostPackets(t *testing.T) {
	if os.Getenv(insideVar) != "" {
		lossyNetwork(t)
		return
	}
	t.Parallel()
	for _, tool := range []string{"unshare", "ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skipf("needs root and %s: a network of its own that loses packets", tool)
		}
	}
	if out, err := exec.Command("unshare", "-n", "iptables", "-A", "INPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", "0.1", "-j", "DROP").CombinedOutput(); err != nil {
		t.Skipf("this kernel cannot lose packets on purpose: %s", out)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "sh", "-c", `ip link set lo up && exec "$0" -test.v -test.run='^TestProbeCountsLostPackets$'`, os.Args[0])
	cmd.Env = append(os.Environ(), insideVar+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func lossyNetwork(t *testing.T) {
	a := connected(t, nil)
	p := over(a)
	p.every, p.window = 2*time.Millisecond, 1500
	if _, _, ok := a.Segments(); !ok {
		t.Skip("the system does not say what TCP sent again")
	}
	probing(t, p, 300)
	clean := p.path()
	out, err := exec.Command("iptables", "-A", "INPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", "0.1", "-j", "DROP").CombinedOutput()
	if err != nil {
		t.Fatalf("iptables: %v: %s", err, strings.TrimSpace(string(out)))
	}
	p = over(a)
	p.every, p.window = 2*time.Millisecond, 1500
	probing(t, p, 600)
	lossy := p.path()
	t.Logf("without loss: %v; with 10 %% of packets lost: %v", clean, lossy)
	if clean.LossPpm > 40_000 { // on a busy machine TCP takes what is late for lost
		t.Errorf("loss without loss: %d ppm", clean.LossPpm)
	}
	if lossy.LossPpm < 50_000 || lossy.LossPpm > 300_000 {
		t.Errorf("loss %d ppm, want about 100000", lossy.LossPpm)
	}
}
