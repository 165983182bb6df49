//go:build linux

// Package gpu has the tests of the accelerator pool that are for a machine with a
// card of NVIDIA's: scripts/testgpu.sh builds all that they need, so that nothing is
// built there, and runs them. Elsewhere they run, shortened, on what plays the driver
// (internal/pool/cards/testdata) and on whatever OpenCL shows, so that they are right
// when a card is at hand: every line then says so, and nothing that is measured is of
// a card.
//
// Each test is judged by itself; one that finds no card, no PyTorch or no driver of
// OpenCL is skipped and says why.
package gpu_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The environment that scripts/testgpu.sh sets.
var (
	card   = os.Getenv("YUNHE_TEST_GPU") == "1" // a card is asked for
	folder = os.Getenv("YUNHE_GPU_DIR")         // where all is that was built
	found  = os.Getenv("YUNHE_GPU_LIBRARIES")   // where libcuda.so.1 is, if the loader does not know
	python = cmp.Or(os.Getenv("YUNHE_GPU_PYTHON"), "python3")
)

// bench is a node with a card, or with what plays two, and programs.
type bench struct {
	t                   *testing.T
	dir, yunhe, sock    string
	libraries           string // of the driver; "": the loader finds them
	cuda, pool          string // programs of CUDA (shim/test/cuda.c), of OpenCL (shim/test/pool.c)
	device, twin, model string // of CUDA; of OpenCL
	env                 []string
	log                 *syncBuffer
}

// syncBuffer is written to and read at once.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// say logs what was measured, and of what.
func (b *bench) say(format string, args ...any) {
	b.t.Helper()
	of := b.model
	if !card {
		of = "STAND-IN, no GPU"
	}
	b.t.Logf("["+of+"] "+format, args...)
}

// seconds is how long, or how often, something is measured.
func seconds(n int) int {
	if card {
		return n
	}
	return 1
}

func data(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if folder != "" {
		path = filepath.Join(folder, name)
	}
	if _, e := os.Stat(path); err != nil || e != nil {
		t.Fatal(err, e)
	}
	return path
}

// yunhe is the program.
func yunhe(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/yunhe")
	if folder != "" {
		path = filepath.Join(folder, "yunhe")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("SKIPPED: bin/yunhe is not built")
	}
	return path
}

// start starts a node. Without a card it skips, and says so.
func start(t *testing.T, flags ...string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), yunhe: yunhe(t), libraries: found, log: &syncBuffer{}}
	if folder != "" {
		b.cuda, b.pool = filepath.Join(folder, "cuda"), filepath.Join(folder, "pool")
	} else if card {
		t.Fatal("YUNHE_GPU_DIR is not set: scripts/testgpu.sh run does that")
	}
	if !card {
		b.play()
	}
	sock, err := os.MkdirTemp("", "yp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	b.sock = filepath.Join(sock, "s")
	b.env = append(os.Environ(), "YUNHE_POOL_NODE=unix:"+b.sock, "HOME="+b.dir, "XDG_CACHE_HOME="+b.dir)
	if b.libraries != "" {
		b.env = append(b.env, "LD_LIBRARY_PATH="+strings.TrimSuffix(b.libraries+":"+os.Getenv("LD_LIBRARY_PATH"), ":"))
		flags = append(flags, "--libraries", b.libraries)
	}
	b.node(append([]string{"pool", "node", "--data", filepath.Join(b.dir, "node"), "--listen", "unix:" + b.sock}, flags...))
	for _, d := range b.devices() {
		switch {
		case d.API == "cuda" && b.device == "":
			b.device, b.model = d.ID, d.Model
		case d.API == "opencl" && b.twin == "" && (!card || strings.Contains(d.Vendor, "NVIDIA")):
			b.twin = d.ID
		}
	}
	if b.device == "" && b.twin == "" {
		b.none()
	}
	return b
}

// none ends a test to which no card is shown: if the machine has none it is skipped.
func (b *bench) none() {
	b.t.Helper()
	if cards, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(cards) > 0 { // the pattern is one
		b.t.Fatalf("this machine has %v, and the node finds no card:\n%s", cards, b.log)
	}
	b.t.Skipf("SKIPPED: there is no card of NVIDIA's here. The node said:\n%s", b.log)
}

func (b *bench) node(args []string) { b.serve(args, regexp.MustCompile(`(pool node listens)`)) }

// serve starts what runs until the test ends, waits until it says something, and returns
// what is in brackets there.
func (b *bench) serve(args []string, ready *regexp.Regexp) string {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, b.yunhe, args...)
	cmd.Env = b.env
	said, err := cmd.StderrPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	lines, heard, over := bufio.NewScanner(said), make(chan string, 1), make(chan bool)
	go func() {
		defer close(over)
		for lines.Scan() {
			fmt.Fprintln(b.log, lines.Text())
			if m := ready.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case heard <- m[1]:
				default: // it says so again
				}
			}
		}
	}()
	b.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		time.AfterFunc(20*time.Second, stop)
		<-over
		_ = cmd.Wait()
		if b.t.Failed() {
			b.t.Logf("yunhe %s said:\n%s", args[0], b.log)
		}
	})
	select {
	case what := <-heard:
		return what
	case <-over:
		if card && strings.Contains(b.log.String(), "shows a device") {
			b.none()
		}
		b.t.Fatalf("yunhe %s does not start: %s", strings.Join(args, " "), b.log)
	case <-time.After(time.Minute):
		b.t.Fatalf("yunhe %s does not say that it has started: %s", strings.Join(args, " "), b.log)
	}
	return ""
}

// device is what "yunhe pool devices" tells.
type device struct {
	ID, API, Model, Vendor, UUID, Bus, Driver string
	Memory                                    int64 `json:"memory_bytes"`
	Card                                      *struct {
		Model, UUID, Bus string
		Memory           int64  `json:"memory_bytes"`
		Used             int64  `json:"memory_used_bytes"`
		Temperature      *int64 `json:"temperature_celsius"`
		Power            *int64 `json:"power_mw"`
		Busy             *int64 `json:"busy_percent"`
		ECC, MIG         *bool
	}
}

func (b *bench) devices() (all []device) {
	b.t.Helper()
	b.tell(&all, "devices")
	return all
}

type task struct {
	ID          string
	Compute     int64
	Used        int64 `json:"memory_used_bytes"`
	DeviceTime  int64 `json:"device_time_ns"`
	MemoryBytes int64 `json:"memory_bytes"`
}

func (b *bench) tasks() (all []task) {
	b.t.Helper()
	b.tell(&all, "tasks")
	return all
}

func (b *bench) tell(to any, what string) {
	b.t.Helper()
	var said map[string]json.RawMessage
	out, err := b.command("pool", what, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err == nil {
		err = json.Unmarshal(said[what], to)
	}
	if err != nil {
		b.t.Fatalf("pool %s: %v: %s", what, err, out)
	}
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), b.yunhe, args...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return cmd
}

// native is a program without the pool.
func (b *bench) native(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return cmd
}

// share is a program on a share of the device of CUDA.
func (b *bench) share(flags string, args ...string) *exec.Cmd {
	if b.device == "" {
		b.t.Skip("SKIPPED: the driver of CUDA shows no card")
	}
	return b.command(append(append([]string{"pool", "run", "--device", b.device}, append(strings.Fields(flags), "--")...), args...)...)
}

// result runs a program to its end, and says what it wrote and how it ended.
func (b *bench) result(cmd *exec.Cmd, within time.Duration) (out, errs string, err error) {
	b.t.Helper()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	late := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if !late.Stop() {
		err = fmt.Errorf("it did not end within %v", within)
	}
	return o.String(), e.String(), err
}

func (b *bench) output(cmd *exec.Cmd) string {
	b.t.Helper()
	out, errs, err := b.result(cmd, 2*time.Minute)
	if err != nil {
		b.t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out, errs)
	}
	return out
}

// running is a program that says when it is ready, and computes when it is told to.
type running struct {
	b   *bench
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
}

func (b *bench) ready(cmd *exec.Cmd) *running { return b.begin(cmd, "ready") }

func (b *bench) begin(cmd *exec.Cmd, says string) *running {
	b.t.Helper()
	r := &running{b: b, cmd: cmd}
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	r.out, cmd.Stderr = bufio.NewReader(out), &r.err
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	r.expect(says)
	return r
}

func (r *running) expect(begin string) string {
	r.b.t.Helper()
	line, err := r.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, begin) {
		_ = r.cmd.Process.Kill()
		r.b.t.Fatalf("%v: it says %q, not %q: %v\n%s", r.cmd.Args, line, begin, err, &r.err)
	}
	return strings.TrimSpace(line)
}

func (r *running) tell(what string) {
	r.b.t.Helper()
	if _, err := io.WriteString(r.in, what); err != nil {
		r.b.t.Fatal(err)
	}
}

// did reads how much a program computed, by the second.
func (r *running) did() float64 {
	r.b.t.Helper()
	var n, s float64
	line := r.expect("did")
	if _, err := fmt.Sscanf(line, "did %f in %f", &n, &s); err != nil || s <= 0 {
		r.b.t.Fatalf("%q: %v", line, err)
	}
	if err := r.cmd.Wait(); err != nil {
		r.b.t.Fatalf("%v: %v\n%s", r.cmd.Args, err, &r.err)
	}
	return n / s
}

// rate is that of one program alone.
func (b *bench) rate(cmd *exec.Cmd) float64 {
	b.t.Helper()
	r := b.ready(cmd)
	r.tell("g\n")
	return r.did()
}

// pairs are shares that are tried beside each other.
func pairs() [][2]int {
	if card {
		return [][2]int{{50, 50}, {10, 90}, {30, 70}}
	}
	return [][2]int{{30, 70}}
}

// shares runs two programs beside each other, and judges what each has of what both
// do together: to 50 % within one percentage point, above within two. Alone is what
// one does without the pool. Where there is no card, the machine that computes does other
// things too: within 15, in one of three tries.
func (b *bench) shares(what string, alone float64, program func(share int) *exec.Cmd) {
	b.t.Helper()
	tries := 3
	if card {
		tries = 1
	}
	for _, pair := range pairs() {
		off := ""
		for range tries {
			if off = b.sharesOf(what, alone, pair, program); off == "" {
				break
			}
			b.say("%s", off)
		}
		if off != "" {
			b.t.Error(off)
		}
	}
}

// sharesOf runs a pair, and says what is wrong with what they have.
func (b *bench) sharesOf(what string, alone float64, pair [2]int, program func(share int) *exec.Cmd) (off string) {
	b.t.Helper()
	one, two := b.ready(program(pair[0])), b.ready(program(pair[1]))
	before, at := b.tasks(), time.Now()
	one.tell("g\n")
	two.tell("g\n")
	x, y := one.did(), 0.0
	after, took := b.tasks(), time.Since(at)
	y = two.did()
	for i, rate := range []float64{x, y} {
		has, within := 100*rate/(x+y), 1.0
		if pair[i] > 50 {
			within = 2
		}
		if !card {
			within = 15
		}
		b.say("%s, %d beside %d: %.2f %% of what both did; %.2f %% of what one does alone", what, pair[i], pair[1-i], has, 100*rate/alone)
		if math.Abs(has-float64(pair[i])) > within {
			off = fmt.Sprintf("%s: a share of %d beside one of %d has %.2f %%, which is more than %g points off", what, pair[i], pair[1-i], has, within)
		}
	}
	for _, k := range after {
		for _, w := range before {
			if w.ID == k.ID {
				b.say("%s, %d: %.2f %% of the device's time, as the node counts it", what, k.Compute, 100*float64(k.DeviceTime-w.DeviceTime)/float64(took))
			}
		}
	}
	return off
}

// speed judges how fast a program is on a whole share.
func (b *bench) speed(what string, native, shared func() float64) {
	b.t.Helper()
	n, s := 0.0, 0.0
	for range seconds(2) { // the better of two of each, in turn
		n, s = max(n, native()), max(s, shared())
	}
	b.say("%s: %.1f by the second natively, %.1f on a share of 100 %%: speed %.4f of native", what, n, s, s/n)
	if least := map[bool]float64{true: 0.98, false: 0.5}[card]; s < least*n {
		b.t.Errorf("%s: on a share of 100 %% it has %.4f of its native speed, less than %g", what, s/n, least)
	}
}
