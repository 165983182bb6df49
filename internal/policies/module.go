package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tetratelabs/wazero"
	wasm "github.com/tetratelabs/wazero/api"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// What a module gets.
const (
	pages       = 64          // of memory, 64 KiB each
	tableSize   = 4096        // entries of its tables
	batchTime   = time.Second // for all centers of one evaluation
	faultsInRow = 3           // then it is isolated
	faultsInAll = 10          // since it was loaded or restored; the same
	logLines    = 8           // of one evaluation
	logLength   = 200
)

// Functions that a module may export.
const (
	filterFunction = "filter" // () -> i32: 0 keeps the center out
	scoreFunction  = "score"  // () -> f64: 0 to 100; not a number: nothing known
)

// modules runs WebAssembly: every module is compiled once, and every
// evaluation has an instance of its own, so that nothing is carried from one
// to the next.
type modules struct {
	log    *slog.Logger
	faults *prometheus.CounterVec
	limit  time.Duration

	mu   sync.Mutex // guards the fields below
	rt   wazero.Runtime
	have map[string]*module // by ID, version and content
}

// module is a version of a module, compiled.
type module struct {
	id      string
	version int64
	owner   *modules
	code    wazero.CompiledModule

	mu       sync.Mutex // guards the fields below
	isolated bool
	why      string // the last fault
	row, all int
}

func newModules(metrics prometheus.Registerer, log *slog.Logger) *modules {
	m := &modules{log: log, limit: batchTime, have: map[string]*module{},
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "yunhe_policy_module_faults_total", Help: "Evaluations in which a policy's module failed."}, []string{"module"})}
	metrics.MustRegister(m.faults)
	return m
}

func (m *modules) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rt != nil {
		_ = m.rt.Close(context.Background()) // frees memory; nothing can be done about an error
		m.rt = nil
	}
}

// runtime is made when the first module is there.
func (m *modules) runtime(ctx context.Context) (wazero.Runtime, error) {
	if m.rt != nil {
		return m.rt, nil
	}
	// Without reference types tables do not grow.
	features := wasm.CoreFeaturesV1 | wasm.CoreFeatureBulkMemoryOperations | wasm.CoreFeatureMultiValue | wasm.CoreFeatureNonTrappingFloatToIntConversion | wasm.CoreFeatureSignExtensionOps
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(features).WithMemoryLimitPages(pages).WithCloseOnContextDone(true).WithDebugInfoEnabled(false))
	host := rt.NewHostModuleBuilder("yunhe")
	i32, f64 := wasm.ValueTypeI32, wasm.ValueTypeF64
	host = host.NewFunctionBuilder().WithGoModuleFunction(wasm.GoModuleFunc(hostNumber), []wasm.ValueType{i32, i32}, []wasm.ValueType{f64}).Export("number")
	host = host.NewFunctionBuilder().WithGoModuleFunction(wasm.GoModuleFunc(hostText), []wasm.ValueType{i32, i32, i32, i32}, []wasm.ValueType{i32}).Export("text")
	host = host.NewFunctionBuilder().WithGoModuleFunction(wasm.GoModuleFunc(hostLog), []wasm.ValueType{i32, i32}, nil).Export("log")
	if _, err := host.Instantiate(ctx); err != nil {
		_ = rt.Close(ctx) // the first error counts
		return nil, fmt.Errorf("make the functions of modules: %w", err)
	}
	m.rt = rt
	return rt, nil
}

// load compiles a module, or finds it compiled. It returns fault.Invalid for
// what is no module or needs more than it gets.
func (m *modules) load(ctx context.Context, id string, version int64, code []byte) (*module, error) {
	sum := sha256.Sum256(code)
	key := fmt.Sprintf("%s@%d %x", id, version, sum)
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.have[key]; have != nil {
		return have, nil
	}
	if err := checkTables(code); err != nil {
		return nil, err
	}
	rt, err := m.runtime(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) error {
		return fault.Fields(fault.Field{Path: "code", Problem: fmt.Sprintf(format, args...)})
	}
	compiled, err := rt.CompileModule(context.WithoutCancel(ctx), code)
	if err != nil {
		return nil, bad("is not a WebAssembly module that can run here: %s", line(err))
	}
	out := &module{id: id, version: version, owner: m, code: compiled}
	for _, f := range compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		if from != "yunhe" || name != "number" && name != "text" && name != "log" {
			_ = compiled.Close(ctx)
			return nil, bad("imports %s.%s; there are only yunhe.number, yunhe.text and yunhe.log", clip(from), clip(name))
		}
	}
	if len(compiled.ImportedMemories()) > 0 {
		_ = compiled.Close(ctx)
		return nil, bad("imports a memory; it must bring its own")
	}
	filters, scores := out.exports()
	if !filters && !scores {
		_ = compiled.Close(ctx)
		return nil, bad("exports neither filter: () -> i32 nor score: () -> f64")
	}
	// That it starts is part of being right.
	if err := out.run(ctx, "", 0, nil, nil); err != nil {
		_ = compiled.Close(ctx)
		return nil, bad("does not start: %s", line(err))
	}
	m.have[key] = out
	return out, nil
}

// forget frees a module that was deleted or never stored.
func (m *modules) forget(ctx context.Context, id string, version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, x := range m.have {
		if x.id == id && x.version == version {
			delete(m.have, key) // what runs keeps it until it ends
		}
	}
}

// exports says which functions of the right form the module has.
func (m *module) exports() (filters, scores bool) {
	is := func(name string, result wasm.ValueType) bool {
		f := m.code.ExportedFunctions()[name]
		return f != nil && len(f.ParamTypes()) == 0 && len(f.ResultTypes()) == 1 && f.ResultTypes()[0] == result
	}
	return is(filterFunction, wasm.ValueTypeI32), is(scoreFunction, wasm.ValueTypeF64)
}

// state says whether the module is isolated, and its last fault.
func (m *module) state() (isolated bool, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isolated, m.why
}

// set follows what is stored.
func (m *module) set(isolated bool, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isolated && !isolated { // restored
		m.row, m.all = 0, 0
	}
	m.isolated, m.why = isolated, why
}

// caller is what the functions of the host see of an evaluation.
type caller struct {
	facts expr.Facts
	lines int
	log   *slog.Logger
}

type callerKey struct{}

// run makes an instance and calls a function of it n times, with the facts of
// each; "" calls none.
func (m *module) run(ctx context.Context, function string, n int, facts func(i int) expr.Facts, took func(i int, result uint64)) error {
	c := &caller{log: m.owner.log.With("module", m.id, "version", m.version)}
	ctx = context.WithValue(ctx, callerKey{}, c)
	ctx, cancel := context.WithTimeout(ctx, m.owner.limit)
	defer cancel()
	// The runtime may be closed only after what runs: it is with the process.
	in, err := m.owner.rt.InstantiateModule(ctx, m.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return err
	}
	defer func() { _ = in.Close(context.WithoutCancel(ctx)) }() // frees memory
	if function == "" {
		return nil
	}
	f := in.ExportedFunction(function)
	if f == nil {
		return errors.New("exports no function " + function)
	}
	stack := make([]uint64, 1)
	for i := range n {
		c.facts = facts(i)
		stack[0] = 0
		if err := f.CallWithStack(ctx, stack); err != nil {
			if ctx.Err() == context.DeadlineExceeded {
				return fmt.Errorf("took longer than %s", m.owner.limit)
			}
			return err
		}
		took(i, stack[0])
	}
	return nil
}

// evaluate is run with what a fault means for the module. isolate is true
// when this fault made it isolated.
func (m *module) evaluate(ctx context.Context, function string, n int, facts func(i int) expr.Facts, took func(i int, result uint64)) (isolate bool, err error) {
	if isolated, why := m.state(); isolated {
		return false, fmt.Errorf("is isolated: %s", why)
	}
	err = m.run(ctx, function, n, facts, took)
	if err != nil && ctx.Err() != nil {
		return false, ctx.Err() // the caller gave up, not the module
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.row = 0
		return false, nil
	}
	m.why, m.row, m.all = line(err), m.row+1, m.all+1
	if !m.isolated && (m.row >= faultsInRow || m.all >= faultsInAll) {
		m.isolated, isolate = true, true
	}
	m.owner.faults.WithLabelValues(m.id).Inc()
	return isolate, errors.New(m.why)
}

// line is the first line of an error, for people.
func line(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.TrimSuffix(strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))), " (recovered by wazero)")
	if len(text) > logLength {
		text = strings.ToValidUTF8(text[:logLength], "") + "…"
	}
	return text
}

// named reads the name at stack[0], stack[1] and what it names: a variable, or
// an entry of one after a dot, such as "free.gpu".
func named(ctx context.Context, m wasm.Module, stack []uint64) (any, bool) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || c.facts == nil || m.Memory() == nil {
		return nil, false
	}
	const longest = 256
	n := uint32(stack[1])
	b, ok := m.Memory().Read(uint32(stack[0]), n)
	if !ok || n > longest {
		return nil, false
	}
	name := string(b)
	if v, ok := c.facts[name]; ok {
		return v, true
	}
	for i := len(name) - 1; i > 0; i-- {
		if name[i] != '.' {
			continue
		}
		switch v := c.facts[name[:i]].(type) {
		case map[string]string:
			s, ok := v[name[i+1:]]
			return s, ok
		case map[string]int64:
			n, ok := v[name[i+1:]]
			return n, ok
		}
	}
	return nil, false
}

// hostNumber is number(name, length) -> f64: a number, 1 or 0 for true or
// false; not a number for what is not there or is none.
func hostNumber(ctx context.Context, m wasm.Module, stack []uint64) {
	v, _ := named(ctx, m, stack)
	n := math.NaN()
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		n = v
	case bool:
		n = 0
		if v {
			n = 1
		}
	}
	stack[0] = wasm.EncodeF64(n)
}

// hostText is text(name, length, to, room) -> i32: writes at most room bytes
// of a text, or of a list joined by commas, and returns how long it is; -1 for
// what is not there or is no text.
func hostText(ctx context.Context, m wasm.Module, stack []uint64) {
	v, _ := named(ctx, m, stack)
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case []string:
		s = strings.Join(v, ",")
	default:
		stack[0] = wasm.EncodeI32(-1)
		return
	}
	if n := min(len(s), int(min(uint32(stack[3]), math.MaxInt32))); n > 0 && !m.Memory().Write(uint32(stack[2]), []byte(s[:n])) {
		panic(errors.New("gave yunhe.text a place outside its memory")) // wazero makes a fault of the module of it
	}
	stack[0] = wasm.EncodeI32(int32(min(len(s), math.MaxInt32)))
}

// hostLog is log(text, length): for who writes the module; at the level of
// debugging.
func hostLog(ctx context.Context, m wasm.Module, stack []uint64) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || m.Memory() == nil || c.lines >= logLines {
		return
	}
	c.lines++
	if b, ok := m.Memory().Read(uint32(stack[0]), min(uint32(stack[1]), logLength)); ok {
		c.log.DebugContext(ctx, "module says", "text", strings.ToValidUTF8(string(b), "�"))
	}
}

// checkTables refuses modules whose tables are large: their size is not
// limited by the runtime.
func checkTables(code []byte) error {
	bad := fault.Fields(fault.Field{Path: "code", Problem: "is not a WebAssembly module"})
	if len(code) < 8 || string(code[:8]) != "\x00asm\x01\x00\x00\x00" {
		return bad
	}
	rest := code[8:]
	next := func(b []byte) (n uint64, left []byte, ok bool) { // LEB128
		for i := 0; i < len(b) && i < 5; i++ {
			n |= uint64(b[i]&0x7f) << (7 * i)
			if b[i]&0x80 == 0 {
				return n, b[i+1:], true
			}
		}
		return 0, nil, false
	}
	for len(rest) > 0 {
		section := rest[0]
		size, body, ok := next(rest[1:])
		if !ok || size > uint64(len(body)) {
			return bad
		}
		rest = body[size:]
		if section != 4 {
			continue
		}
		body = body[:size]
		n, body, ok := next(body)
		if !ok {
			return bad
		}
		for range n {
			if len(body) < 2 {
				return bad
			}
			flag := body[1] // after the type of its entries
			var least uint64
			if least, body, ok = next(body[2:]); !ok {
				return bad
			}
			if least > tableSize {
				return fault.Fields(fault.Field{Path: "code", Problem: fmt.Sprintf("has a table of %d entries, at most %d", least, tableSize)})
			}
			if flag&1 != 0 {
				if _, body, ok = next(body); !ok {
					return bad
				}
			}
		}
	}
	return nil
}

func sum(code []byte) string {
	s := sha256.Sum256(code)
	return hex.EncodeToString(s[:])
}

// checkModuleID checks the name of a module.
func checkModuleID(id string) error {
	var c core.Check
	c.ID("module_id", id)
	return c.Err()
}
