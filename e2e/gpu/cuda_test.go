//go:build linux

package gpu_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// play builds what plays the driver, NVML and nvidia-smi, and the programs.
func (b *bench) play() {
	b.t.Helper()
	b.libraries = cardstest.Build(b.t, "cuda", "nvml")
	for _, p := range []struct {
		to         *string
		name, libs string
	}{{&b.cuda, "cuda", "-L" + b.libraries + " -l:libcuda.so.1 -ldl"}, {&b.pool, "pool", "-l:libOpenCL.so.1 -pthread"}} {
		if *p.to != "" {
			continue
		}
		*p.to = filepath.Join(b.dir, p.name)
		args := append([]string{"-std=gnu11", "-O2", "-o", *p.to, "../../shim/test/" + p.name + ".c"}, strings.Fields(p.libs)...)
		if out, err := exec.CommandContext(b.t.Context(), "gcc", args...).CombinedOutput(); err != nil {
			b.t.Fatalf("%s: %v: %s", p.name, err, out)
		}
	}
}

// smi asks nvidia-smi; without a card a script plays it.
func (b *bench) smi(query ...string) [][]string {
	b.t.Helper()
	name := "nvidia-smi"
	if !card {
		name = data(b.t, "nvidia-smi")
	}
	out, err := b.native(append([]string{name}, query...)...).Output()
	if err != nil {
		b.t.Skipf("SKIPPED: %s does not answer: %v: %s", name, err, out)
	}
	r := csv.NewReader(strings.NewReader(string(out)))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, -1
	rows, err := r.ReadAll()
	if err != nil {
		b.t.Fatalf("%s: %v: %s", name, err, out)
	}
	return rows
}

// TestMachine says what there is, for whoever reads the other tests' figures.
func TestMachine(t *testing.T) {
	b := start(t)
	for _, d := range b.devices() {
		b.say("device %s: %s, %s, %s, %d MiB, %s", d.ID, d.API, d.Model, d.Driver, d.Memory>>20, d.Bus)
	}
	for _, ask := range [][]string{{"uname", "-srm"}, {"ldd", "--version"}, {b.cuda, "proc", "info"}, {b.cuda, "linked", "add", "5"}, {python, "-c", "import torch, sys; print(sys.version.split()[0], 'torch', torch.__version__, 'CUDA', torch.version.cuda)"}} {
		out, err := b.native(ask...).CombinedOutput()
		line, _, _ := strings.Cut(string(out), "\n")
		b.say("%s: %s %v", filepath.Base(ask[0]), line, map[bool]any{true: "", false: err}[err == nil])
	}
	b.say("%d processors; the node said:\n%s", runtime.NumCPU(), b.log)
}

// TestDiscovery: what the node knows of the card is what nvidia-smi says.
func TestDiscovery(t *testing.T) {
	b := start(t)
	if b.device == "" {
		t.Fatal("the driver of CUDA shows no card")
	}
	rows := b.smi("--query-gpu=pci.bus_id,name,uuid,memory.total,ecc.mode.current,mig.mode.current,power.draw,utilization.gpu,temperature.gpu", "--format=csv,noheader,nounits")
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		missing := false
		for _, d := range b.devices() {
			missing = missing || d.API == "cuda" && d.Card == nil
		}
		if !missing || time.Now().After(deadline) || !card {
			break
		}
	}
	matched := 0
	for _, d := range b.devices() {
		if d.API != "cuda" {
			continue
		}
		for _, row := range rows {
			bus, ok := strings.CutPrefix(strings.ToLower(row[0]), "0000") // of eight digits
			if !ok || bus != d.Bus {
				continue
			}
			matched++
			if d.Card == nil {
				t.Errorf("%s: NVML says nothing of the card at %s", d.ID, d.Bus)
				continue
			}
			c := d.Card
			near := func(what, smi string, own *int64, scale, within float64) {
				want, err := strconv.ParseFloat(smi, 64)
				switch {
				case err != nil && own == nil: // both do not know
				case err != nil || own == nil || math.Abs(float64(*own)/scale-want) > within:
					t.Errorf("%s, %s: nvidia-smi says %q, the node %v", d.ID, what, smi, tell(own))
				}
			}
			mode := func(what, smi string, own *bool) {
				if got := map[bool]string{true: "Enabled", false: "Disabled"}[own != nil && *own]; own != nil && got != smi || own == nil && (smi == "Enabled" || smi == "Disabled") {
					t.Errorf("%s, %s: nvidia-smi says %q, the node %v", d.ID, what, smi, own)
				}
			}
			if c.Model != row[1] || c.UUID != row[2] || d.UUID != row[2] {
				t.Errorf("%s: nvidia-smi says %s, %s; NVML %s, %s; the driver %s, %s", d.ID, row[1], row[2], c.Model, c.UUID, d.Model, d.UUID)
			}
			near("MiB of memory", row[3], &c.Memory, 1<<20, 1024)
			mode("ECC", row[4], c.ECC)
			mode("MIG", row[5], c.MIG)
			near("watts", row[6], c.Power, 1000, 60) // a moment later
			near("use", row[7], c.Busy, 1, 100)
			near("degrees", row[8], c.Temperature, 1, 8)
			b.say("%s at %s: %s, %s, %d MiB (%d of CUDA), ECC %v, MIG %v, %v mW, %v %%, %v degrees", d.ID, d.Bus, c.Model, c.UUID, c.Memory>>20, d.Memory>>20, tell(c.ECC), tell(c.MIG), tell(c.Power), tell(c.Busy), tell(c.Temperature))
		}
	}
	if matched == 0 {
		t.Errorf("nvidia-smi shows %v, the node %+v", rows, b.devices())
	}
}

func tell[T any](p *T) any {
	if p == nil {
		return "not told"
	}
	return *p
}

// TestMemory: however a program finds the driver, it sees its slice's memory and has
// no more, to 1 MiB, of whatever kind; what it freed it has again.
func TestMemory(t *testing.T) {
	b := start(t)
	const mib = 1234
	for _, way := range []string{"linked", "dlsym", "proc", "proc-own"} {
		run := func(args ...string) string {
			return b.output(b.share(fmt.Sprintf("--compute 100 --memory %dMiB", mib), append([]string{b.cuda, way}, args...)...))
		}
		if got, want := run("info"), fmt.Sprintf("%d MiB, %d of %d free, other 101 101", mib, mib, mib); !strings.HasPrefix(got, "devices 1, ") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
		if got, want := run("fill"), fmt.Sprintf("filled %d, error 2\nagain 0 2\n", mib); got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
		if got, want := run("kinds"), "managed 3\npitch 4\nasync 5\npool 6\narray 8\nmapped 4\nheap 7\nnone 0\n"; got != want {
			t.Errorf("%s: kinds of memory: got %q, want %q", way, got, want)
		}
		if got, want := run("kept")+run("contexts")+run("add", "5"), "kept 0\n8 then 0\nsum 327680\n"; got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
	}
	b.say("a slice of %d MiB holds as many, however functions are found", mib)
}

// pages runs two programs that have six tenths of the card's memory each, where the node
// lends more than there is: both compute right.
func (b *bench) pages(flags string, program func(mib, seconds int) []string) {
	b.t.Helper()
	var all []*running
	mib := 0
	for _, d := range b.devices() {
		if d.ID == b.device {
			mib = int(d.Memory>>20) * 6 / 10 / 256 * 256
		}
	}
	at := time.Now()
	for range 2 {
		all = append(all, b.begin(b.share(fmt.Sprintf("--compute 50 --memory %dMiB %s", mib+512, flags), program(mib, seconds(20))...), "has"))
	}
	b.say("two programs have %d MiB each after %v", mib, time.Since(at).Round(time.Millisecond))
	at = time.Now()
	for _, r := range all {
		r.tell("g\n")
	}
	for _, r := range all {
		line := r.expect("right")
		if err := r.cmd.Wait(); err != nil {
			b.t.Errorf("%v: %s", err, &r.err)
		}
		b.say("%s, after %v", line, time.Since(at).Round(time.Millisecond))
	}
}

// TestMemoryOvercommit: programs with more memory than the card, together, compute right,
// with the driver in them and by workers.
func TestMemoryOvercommit(t *testing.T) {
	b := start(t, "--memory-overcommit", "140")
	for _, flags := range []string{"", "--remote"} {
		b.pages(flags, func(mib, seconds int) []string {
			return []string{b.cuda, "proc", "paged", strconv.Itoa(mib), strconv.Itoa(seconds)}
		})
	}
}

// TestPyTorchMemoryOvercommit: so does PyTorch.
func TestPyTorchMemoryOvercommit(t *testing.T) {
	b := start(t, "--memory-overcommit", "140")
	b.pages("", func(mib, seconds int) []string {
		return b.torch("pages.py", strconv.Itoa(mib), strconv.Itoa(seconds))
	})
}

// TestDriversOwnMemory: what the card has in use for a program beyond what is counted,
// by nvidia-smi: what the driver needs for a context, code and itself.
func TestDriversOwnMemory(t *testing.T) {
	b := start(t)
	const mib = 512
	used := func() (n float64) {
		rows := b.smi("--query-gpu=memory.used,uuid", "--format=csv,noheader,nounits")
		for _, row := range rows {
			for _, d := range b.devices() {
				if d.ID == b.device && d.UUID == row[1] {
					n, _ = strconv.ParseFloat(row[0], 64)
				}
			}
		}
		return n
	}
	before := used()
	r := b.begin(b.share(fmt.Sprintf("--memory %dMiB", 2*mib), b.cuda, "proc", "hold", strconv.Itoa(mib)), "holds 0")
	after, counted := used(), int64(0)
	for _, k := range b.tasks() {
		counted += k.Used >> 20
	}
	_ = r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
	own := after - before - mib
	b.say("the program has %d MiB, the node counted %d; nvidia-smi shows %.0f more than before: %.0f MiB are the driver's own", mib, counted, after-before, own)
	if counted != mib || card && (own < 0 || own > 2048) {
		t.Errorf("counted %d MiB of %d; beyond that the card has %.0f MiB more in use", counted, mib, own)
	}
}

// rounds are those of a kernel: well below a turn.
func rounds() int {
	if card {
		return 40000 // of some 20 ns, where a card's processors all compute
	}
	return 200000 // ns
}

// TestShares: programs beside each other compute by their shares.
func TestShares(t *testing.T) {
	b := start(t)
	args := []string{b.cuda, "proc", "rate", strconv.Itoa(rounds()), strconv.Itoa(seconds(10))}
	b.shares("kernels", b.rate(b.native(args...)), func(share int) *exec.Cmd {
		return b.share(fmt.Sprintf("--compute %d --memory 256MiB", share), args...)
	})
}

// TestSpeed: a program whose kernels are the most of its time is as fast on a whole
// share as without one; and what calls cost.
func TestSpeed(t *testing.T) {
	b := start(t)
	for _, n := range []int{rounds(), rounds() / 20} {
		args := []string{b.cuda, "proc", "rate", strconv.Itoa(n), strconv.Itoa(seconds(5))}
		b.speed(fmt.Sprintf("kernels of %d rounds", n), func() float64 { return b.rate(b.native(args...)) }, func() float64 { return b.rate(b.share("--memory 256MiB", args...)) })
	}
	native, shared := b.output(b.native(b.cuda, "proc", "costs")), b.output(b.share("--memory 256MiB", b.cuda, "proc", "costs"))
	b.say("calls, natively and on a share: %s; %s", strings.ReplaceAll(native, "\n", " "), strings.ReplaceAll(shared, "\n", " "))
}

// TestGraphs: captured graphs take turns, and capturing goes on while the library
// looks whether the device is done; and a kernel that waits for its program ends.
func TestGraphs(t *testing.T) {
	b := start(t)
	if got := b.output(b.share("--compute 30 --memory 256MiB", b.cuda, "proc", "graph", "1000", strconv.Itoa(seconds(3)))); !strings.Contains(got, "kernels ") {
		t.Errorf("graphs: %q", got)
	} else {
		b.say("graphs of 1 ms on 30 %%: %s", strings.ReplaceAll(got, "\n", " "))
	}
	if got := b.output(b.share("--memory 256MiB", b.cuda, "proc", "waits", "300")); got != "went on\n" {
		t.Errorf("a kernel that waits for its program: %q", got)
	}
}

// TestIsolation: a kernel with an address that is none ends its own program's work,
// and its neighbor's goes on.
func TestIsolation(t *testing.T) {
	b := start(t)
	neighbor := b.ready(b.share("--compute 50 --memory 256MiB", b.cuda, "proc", "rate", strconv.Itoa(rounds()), strconv.Itoa(seconds(5))))
	neighbor.tell("g\n")
	for _, remote := range []string{"", " --remote"} {
		out, errs, _ := b.result(b.share("--compute 50 --memory 256MiB"+remote, b.cuda, "proc", "wild"), time.Minute)
		b.say("a wild kernel%s: %s %s", remote, strings.TrimSpace(out), strings.TrimSpace(errs))
		if strings.Contains(out, "wild 0") || !strings.Contains(out, "wild ") {
			t.Errorf("a wild kernel%s: %q %q", remote, out, errs)
		}
	}
	b.say("its neighbor did %.1f kernels by the second", neighbor.did())
	if got := b.output(b.share("--memory 256MiB", b.cuda, "proc", "add", "5")); got != "sum 327680\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// both are shares of the first two cards, if there are so many.
func (b *bench) both(flags string, args ...string) *exec.Cmd {
	b.t.Helper()
	var cards []string
	for _, d := range b.devices() {
		if d.API == "cuda" {
			cards = append(cards, d.ID)
		}
	}
	if len(cards) < 2 {
		b.t.Skip("SKIPPED: the driver of CUDA shows one card")
	}
	return b.command(slices.Concat([]string{"pool", "run", "--device", cards[0], "--device", cards[1]}, strings.Fields(flags), []string{"--"}, args)...)
}

// TestCards: a program with shares of two cards has of each what it was given, computes
// right on both, and copies from one to the other.
func TestCards(t *testing.T) {
	b := start(t)
	for _, way := range []string{"linked", "dlsym", "proc", "proc-own"} {
		out := b.output(b.both("--compute 50 --memory 300MiB", b.cuda, way, "cards", "1000"))
		b.say("%s: %s", way, strings.ReplaceAll(strings.TrimSpace(out), "\n", ", "))
		if strings.Count(out, "has 300 MiB, 299 of 300 free, then it uses 10, 6") != 2 || !strings.Contains(out, "sum 6\nat the end 0, at the end 0\n") {
			t.Errorf("%s: %s", way, out)
		}
	}
	refused := b.both("--memory 300MiB --remote", b.cuda, "proc", "shows")
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "several cards, here 2, on their node's machine only") {
		t.Errorf("by workers: %v: %s", err, out)
	}
}

// TestPyTorchCards: PyTorch computes the same on shares of two cards as on the processor,
// and its processes, one for each card, sum over them.
func TestPyTorchCards(t *testing.T) {
	b := start(t)
	out, errs, err := b.result(b.both("--compute 50 --memory 8192MiB", b.torch("cards.py", "2")...), 3*time.Minute)
	b.say("%s", strings.ReplaceAll(strings.TrimSpace(out), "\n", ", "))
	if err != nil || !strings.HasSuffix(out, "all right\n") {
		t.Errorf("%v: %s\n%s", err, out, errs)
	}
}

// TestRemote: a program that has the pool's library for its driver, computed for by a
// worker, sees its slice, computes right and by its share.
func TestRemote(t *testing.T) {
	b := start(t)
	for _, way := range []string{"linked", "dlsym", "proc", "proc-own"} {
		run := func(args ...string) string {
			return b.output(b.share("--memory 300MiB --remote", append([]string{b.cuda, way}, args...)...))
		}
		if got := run("info"); !strings.HasPrefix(got, "devices 1, ") || !strings.Contains(got, "300 MiB, 300 of 300 free") {
			t.Errorf("%s: %q", way, got)
		}
		if got, want := run("fill")+run("kept")+run("add", "5"), "filled 300, error 2\nagain 0 2\nkept 0\nsum 327680\n"; got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
	}
	args := []string{b.cuda, "proc", "rate", strconv.Itoa(rounds()), strconv.Itoa(seconds(10))}
	alone := b.rate(b.native(args...))
	far := b.rate(b.share("--memory 256MiB --remote", args...))
	b.say("by a worker: speed %.4f of native", far/alone)
	b.shares("kernels by a worker", alone, func(share int) *exec.Cmd {
		return b.share(fmt.Sprintf("--compute %d --memory 256MiB --remote", share), args...)
	})
	b.say("calls by a worker: %s", strings.ReplaceAll(b.output(b.share("--memory 256MiB --remote", b.cuda, "proc", "costs")), "\n", " "))
}

// torch skips where there is no PyTorch.
func (b *bench) torch(script string, args ...string) []string {
	b.t.Helper()
	if !card {
		b.t.Skip("SKIPPED: PyTorch needs a card: what plays the driver has few kernels")
	}
	if _, errs, err := b.result(b.native(python, "-c", "import torch"), time.Minute); err != nil {
		b.t.Skipf("SKIPPED: %s has no PyTorch: %s", python, lastLine(errs))
	}
	return append([]string{python, data(b.t, script)}, args...)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// TestPyTorchMemory: PyTorch, unchanged, sees its slice's memory, has no more, and
// says that it is out of memory; by each of the ways in which it allocates.
func TestPyTorchMemory(t *testing.T) {
	b := start(t)
	script := b.torch("memory.py", "4096")
	for _, how := range []string{"", "expandable_segments:True", "backend:cudaMallocAsync"} {
		cmd := b.share("--memory 4096MiB", script...)
		if how != "" {
			cmd.Env = append(cmd.Env, "PYTORCH_CUDA_ALLOC_CONF="+how)
		}
		out, errs, err := b.result(cmd, 2*time.Minute)
		b.say("%q: %s", how, strings.TrimSpace(out))
		if err != nil || !strings.HasSuffix(out, "all right\n") {
			t.Errorf("%q: %v: %s\n%s", how, err, out, errs)
		}
	}
}

// TestPyTorchSame: PyTorch computes the same on a slice as on the processor, in
// graphs, on several streams, with data that forked processes load.
func TestPyTorchSame(t *testing.T) {
	b := start(t)
	script := b.torch("same.py")
	out, errs, err := b.result(b.share("--compute 50 --memory 8192MiB", script...), 3*time.Minute)
	b.say("%s", strings.ReplaceAll(strings.TrimSpace(out), "\n", ", "))
	if err != nil || !strings.HasSuffix(out, "all right\n") {
		natively, _, e := b.result(b.native(script...), 3*time.Minute)
		t.Errorf("%v: %s\n%s\nnatively: %v: %s", err, out, errs, e, natively)
	}
}

// TestPyTorchShares: two programs of PyTorch compute by their shares.
func TestPyTorchShares(t *testing.T) {
	b := start(t)
	args := b.torch("rate.py", strconv.Itoa(seconds(10)))
	b.shares("PyTorch", b.rate(b.native(args...)), func(share int) *exec.Cmd {
		return b.share(fmt.Sprintf("--compute %d --memory 8192MiB", share), args...)
	})
}

// TestPyTorchSpeed: PyTorch is as fast on a whole share as without one.
func TestPyTorchSpeed(t *testing.T) {
	b := start(t)
	for _, what := range []string{"matmul", "layers"} {
		args := b.torch("rate.py", strconv.Itoa(seconds(5)), what)
		b.speed("PyTorch, "+what, func() float64 { return b.rate(b.native(args...)) }, func() float64 { return b.rate(b.share("--memory 8192MiB", args...)) })
	}
}

// TestPyTorchRemote: how far PyTorch comes that a worker computes for. It is not
// expected to run (docs/howto/cuda.md), but to say so: what it must not do is hang, crash, or
// compute something else.
func TestPyTorchRemote(t *testing.T) {
	b := start(t)
	out, errs, err := b.result(b.share("--memory 8192MiB --remote", b.torch("same.py")...), 2*time.Minute)
	b.say("PyTorch by a worker: %v; it says %q; %s", err, strings.TrimSpace(out), lastLine(errs))
	switch text := fmt.Sprint(err); {
	case err == nil && !strings.HasSuffix(out, "all right\n"):
		t.Errorf("it computes something else: %s\n%s", out, errs)
	case strings.Contains(text, "within"), strings.Contains(errs, "egmentation"), strings.Contains(text, "139"), strings.Contains(text, "134"):
		t.Errorf("%v: %s", err, errs)
	}
}

// TestBench prints what the benchmarks measure here.
func TestBench(t *testing.T) {
	if !card {
		t.Skip("SKIPPED: make bench-cuda and make bench-pool are for machines without a card")
	}
	b := start(t)
	for _, script := range []string{"benchcuda.sh", "benchpool.sh"} {
		if script == "benchpool.sh" && b.twin == "" {
			b.say("benchpool.sh: OpenCL shows no card of NVIDIA's")
			continue
		}
		cmd := b.native("sh", data(t, script))
		cmd.Env = append(cmd.Env, "YUNHE="+b.yunhe, "PROGRAMS="+folder, "LIBRARIES="+b.libraries, "GPU="+b.model, "KERNELS=1000", "TMPDIR="+os.TempDir())
		out, errs, err := b.result(cmd, 8*time.Minute)
		b.say("%s: %v\n%s\n%s", script, err, out, errs)
		if err != nil {
			t.Error(err)
		}
	}
}
