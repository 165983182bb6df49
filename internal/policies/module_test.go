package policies

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yunhe.dev/yunhe/internal/tags/expr"
)

// Modules as bytes; each is the text in its comment, assembled.
var codes = map[string]string{
	// (func (export "score") (result f64) (loop $l (br $l)) (unreachable))
	"loop": "0061736d010000000105016000017c030201000709010573636f726500000a0a01080003400c000b000b",
	// filter and score: unreachable
	"trap": "0061736d010000000109026000017f6000017c03030200010712020666696c74657200000573636f726500010a09020300000b0300000b",
	// grows its memory by 16 pages until that fails, and scores the pages it has
	"grow": "0061736d010000000105016000017c030201000503010001071202066d656d6f727902000573636f726500000a13011100034041104000417f470d000b3f00b80b",
	// score: nan
	"nan": "0061736d010000000105016000017c030201000709010573636f726500000a0d010b0044000000000000f87f0b",
	// a memory of 65 pages
	"big": "0061736d010000000105016000017c030201000503010041071202066d656d6f727902000573636f726500000a0d010b0044000000000000f03f0b",
	// a table of 100,000 entries
	"table": "0061736d010000000105016000017c030201000406017000a08d060709010573636f726500000a0d010b0044000000000000f03f0b",
	// imports wasi_snapshot_preview1.proc_exit
	"wasi": "0061736d0100000001090260017f006000017c02240116776173695f736e617073686f745f70726576696577310970726f635f657869740000030201010709010573636f726500010a0d010b0044000000000000f03f0b",
	// score: () -> i32
	"none": "0061736d010000000105016000017f030201000709010573636f726500000a0601040041010b",
	// a start function that traps
	"start": "0061736d010000000108026000006000017c03030200010709010573636f726500010801000a11020300000b0b0044000000000000f03f0b",
	// score counts its calls in a global
	"state": "0061736d010000000105016000017c03020100060d017c014400000000000000000b0709010573636f726500000a14011200230044000000000000f03fa0240023000b",
	// logs its own name for labels.tier; filter: whether that has 4 bytes; score: its first byte
	"text": "0061736d0100000001160460047f7f7f7f017f60027f7f006000017f6000017c021a020579756e6865047465787400000579756e6865036c6f67000103030202030503010001071b03066d656d6f727902000666696c74657200020573636f726500030a2e0216004100410b10014100410b41e400410410004104460b15004100410b41e400410410001a41e4002d0000b80b0b11010041000b0b6c6162656c732e74696572",
	// filter has the ID written beyond its memory
	"outside": "0061736d01000000010d0260047f7f7f7f017f6000017f020e010579756e686504746578740000030201010503010001071302066d656d6f727902000666696c74657200010a10010e004100410241ffff03410410000b0b08010041000b026964",
}

func code(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hex.DecodeString(codes[name])
	if err != nil || len(b) == 0 {
		t.Fatal(name, err)
	}
	return b
}

func runtime(t testing.TB) *modules {
	t.Helper()
	m := newModules(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	m.limit = time.Minute // a slow machine is no fault of a module
	t.Cleanup(m.close)
	return m
}

func load(t testing.TB, m *modules, name string) *module {
	t.Helper()
	x, err := m.load(t.Context(), name, 1, code(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestModuleRefused(t *testing.T) {
	t.Parallel()
	m := runtime(t)
	for name, want := range map[string]string{
		"big": "memory", "table": "a table of 100000 entries, at most 4096", "wasi": "imports wasi_snapshot_preview1.proc_exit", "none": "exports neither filter", "start": "does not start",
	} {
		if _, err := m.load(t.Context(), name, 1, code(t, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	for _, b := range [][]byte{nil, []byte("\x00asm"), []byte("not a module"), code(t, "nan")[:20], append(code(t, "nan"), 4, 0xff)} {
		if _, err := m.load(t.Context(), "x", 1, b); err == nil {
			t.Errorf("loaded %x", b)
		}
	}
}

// scores runs a module over facts.
func scores(ctx context.Context, m *module, function string, facts ...expr.Facts) (out []float64, isolate bool, err error) {
	isolate, err = m.evaluate(ctx, function, len(facts), func(i int) expr.Facts { return facts[i] }, func(_ int, r uint64) {
		if function == filterFunction {
			out = append(out, float64(int32(r)))
		} else {
			out = append(out, math.Float64frombits(r))
		}
	})
	return out, isolate, err
}

func TestModuleRuns(t *testing.T) {
	t.Parallel()
	m := runtime(t)
	b, err := os.ReadFile("../../examples/policy-wasm/headroom.wasm")
	if err != nil {
		t.Fatal(err)
	}
	head, err := m.load(t.Context(), "headroom", 1, b)
	if err != nil {
		t.Fatal(err)
	}
	if f, s := head.exports(); !f || !s {
		t.Errorf("headroom exports %v %v", f, s)
	}
	facts := func(free, capacity, waiting, running int64) expr.Facts {
		return expr.Facts{"free": map[string]int64{"cpu": free}, "capacity": map[string]int64{"cpu": capacity}, "waiting": waiting, "running": running}
	}
	got, _, err := scores(t.Context(), head, scoreFunction, facts(4, 16, 0, 0), facts(16, 16, 0, 0), facts(0, 0, 0, 0))
	if err != nil || got[0] != 25 || got[1] != 100 || !math.IsNaN(got[2]) {
		t.Errorf("scores %v %v", got, err)
	}
	if got, _, err := scores(t.Context(), head, filterFunction, facts(1, 1, 2, 2), facts(1, 1, 3, 2)); err != nil || got[0] != 1 || got[1] != 0 {
		t.Errorf("filtered %v %v", got, err)
	}
	text := load(t, m, "text")
	tier := func(s string) expr.Facts { return expr.Facts{"labels": map[string]string{"tier": s}} }
	if got, _, err := scores(t.Context(), text, filterFunction, tier("gold"), tier("silver"), expr.Facts{}); err != nil || got[0] != 1 || got[1] != 0 || got[2] != 0 {
		t.Errorf("texts %v %v", got, err)
	}
	if got, _, err := scores(t.Context(), text, scoreFunction, tier("gold")); err != nil || got[0] != 'g' {
		t.Errorf("text %v %v", got, err)
	}
	// Nothing is carried from one evaluation to the next.
	state := load(t, m, "state")
	for range 3 {
		if got, _, err := scores(t.Context(), state, scoreFunction, expr.Facts{}, expr.Facts{}); err != nil || got[0] != 1 || got[1] != 2 {
			t.Errorf("state %v %v", got, err)
		}
	}
	// Memory ends at its limit: growing fails, the module goes on.
	if got, _, err := scores(t.Context(), load(t, m, "grow"), scoreFunction, expr.Facts{}); err != nil || got[0] > pages {
		t.Errorf("grew to %v %v", got, err)
	}
}

func TestModuleFaults(t *testing.T) {
	t.Parallel()
	m := runtime(t)
	trap := load(t, m, "trap")
	for i := range faultsInRow {
		_, isolate, err := scores(t.Context(), trap, scoreFunction, expr.Facts{})
		if err == nil || isolate != (i == faultsInRow-1) {
			t.Errorf("fault %d: %v, isolated %v", i, err, isolate)
		}
	}
	if n := testutil.ToFloat64(m.faults.WithLabelValues("trap")); n != faultsInRow {
		t.Errorf("%v faults counted", n)
	}
	if _, isolate, err := scores(t.Context(), trap, scoreFunction, expr.Facts{}); isolate || err == nil || !strings.Contains(err.Error(), "is isolated") {
		t.Errorf("isolated: %v %v", isolate, err)
	}
	trap.set(false, "")
	if _, isolate, err := scores(t.Context(), trap, scoreFunction, expr.Facts{}); isolate || err == nil || strings.Contains(err.Error(), "is isolated") {
		t.Errorf("restored: %v %v", isolate, err)
	}
	if _, _, err := scores(t.Context(), load(t, m, "outside"), filterFunction, expr.Facts{"id": "c1"}); err == nil || !strings.Contains(err.Error(), "outside its memory") {
		t.Errorf("outside: %v", err)
	}
	// One that does not end is ended; the limit may be short, it never ends.
	loop := load(t, m, "loop")
	m.limit = 20 * time.Millisecond
	if _, _, err := scores(t.Context(), loop, scoreFunction, expr.Facts{}); err == nil || !strings.Contains(err.Error(), "took longer than") {
		t.Errorf("loop: %v", err)
	}
	// A caller that gives up is no fault.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.limit = time.Minute
	if _, _, err := scores(ctx, loop, scoreFunction, expr.Facts{}); err != context.Canceled || loop.row != 1 {
		t.Errorf("canceled: %v, %d faults", err, loop.row)
	}
}

func FuzzModule(f *testing.F) {
	for name := range codes {
		f.Add(code(f, name))
	}
	m := runtime(f)
	m.limit = 50 * time.Millisecond
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := m.load(t.Context(), "x", 1, b)
		if err != nil {
			return
		}
		defer m.forget(t.Context(), "x", 1)
		for _, function := range []string{scoreFunction, filterFunction} {
			_, _, _ = scores(t.Context(), x, function, expr.Facts{"id": "c1"}, expr.Facts{}) // must come back
		}
	})
}

func BenchmarkModule(b *testing.B) {
	m := runtime(b)
	code, err := os.ReadFile("../../examples/policy-wasm/headroom.wasm")
	if err != nil {
		b.Fatal(err)
	}
	x, err := m.load(b.Context(), "headroom", 1, code)
	if err != nil {
		b.Fatal(err)
	}
	f := expr.Facts{"free": map[string]int64{"cpu": 4}, "capacity": map[string]int64{"cpu": 16}}
	facts := make([]expr.Facts, 1000)
	for i := range facts {
		facts[i] = f
	}
	for b.Loop() { // 1,000 centers
		if _, _, err := scores(b.Context(), x, scoreFunction, facts...); err != nil {
			b.Fatal(err)
		}
	}
}
