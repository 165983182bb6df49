//go:build linux

package worker

import (
	"bytes"
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// made keeps what a call made, and answers.
func (s *Session) made(m *message, id uint64, o *object, bad int32, data []byte) error {
	if o.ptr != 0 {
		if err := s.keep(id, o); err != nil {
			return err
		}
	}
	return s.answerLocked(m, bad, 0, 0, data)
}

// create makes what needs little: contexts, queues, samplers, user events.
func (s *Session) create(m *message, b *wire.Body) error {
	if m.Op == wire.OpCreateQueue && s.ahead {
		s.drain()
		s.ahead = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := cell()
	if m.Op == wire.OpCreateContext {
		id, made := b.Word(), bytes.Clone(m.body)
		devices, bad := s.deviceList(b)
		if b.Err() {
			return errEnd
		}
		if bad != clSuccess {
			return s.answerLocked(m, bad, 0, 0, nil)
		}
		o := &object{kind: context, op: m.Op, made: made, devices: devices}
		if !s.mayKeep(2 * len(made)) {
			return s.answerLocked(m, clOutOfHostMemory, 0, 0, nil)
		}
		list := s.devicesOf(o)
		if o.ptr = s.lib.call("clCreateContext", 0, uintptr(len(list)), atWords(list), 0, 0, at(e)); o.ptr != 0 {
			s.counts(o, 2*len(made))
		}
		return s.made(m, id, o, int32(uint32(*e)), nil)
	}
	c, bad := s.get(b.Word(), context)
	id := b.Word()
	var w [3]uint64
	on := s.device
	switch m.Op {
	case wire.OpCreateQueue:
		if b.Words(w[:1]); len(b.Rest()) > 0 {
			var e int32
			if w[1] = b.Word(); bad == clSuccess {
				on, e = s.deviceWith(w[1])
				bad = e
			}
		}
	case wire.OpCreateSampler:
		b.Words(w[:])
	}
	if b.Err() {
		return errEnd
	}
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	switch m.Op {
	case wire.OpCreateQueue:
		ptr := s.lib.call("clCreateCommandQueue", c.ptr, on, uintptr(w[0]), at(e))
		return s.made(m, id, &object{kind: queue, ptr: ptr, parent: c, op: m.Op, made: words(c.id, id, w[0], w[1]), loose: w[0]&clOutOfOrder != 0}, int32(uint32(*e)), nil)
	case wire.OpCreateSampler:
		ptr := s.lib.call("clCreateSampler", c.ptr, uintptr(uint32(w[0])), uintptr(uint32(w[1])), uintptr(uint32(w[2])), at(e))
		return s.made(m, id, &object{kind: sampler, ptr: ptr, parent: c, op: m.Op, made: words(c.id, id, w[0], w[1], w[2])}, int32(uint32(*e)), nil)
	case wire.OpUserEvent:
		ptr := s.lib.call("clCreateUserEvent", c.ptr, at(e))
		if ptr == 0 {
			return s.answerLocked(m, int32(uint32(*e)), 0, 0, nil)
		}
		s.users++
		o := &object{kind: event, ptr: ptr, parent: c, user: true}
		o.behind = []*object{o}
		if err := s.keep(id, o); err != nil {
			return err
		}
		return s.answerLocked(m, clSuccess, 0, 0, nil)
	}
	return errEnd
}

const (
	fromSource = iota
	fromBinary
	fromIL
	builtIn
	fromBinaries // of several devices: how many, for each its number and the size of its binary, and the binaries
)

func (s *Session) programs(m *message, b *wire.Body) error {
	if bytes.Contains(m.body, []byte("printf")) {
		s.prints.Store(true)
	}
	switch m.Op {
	case wire.OpCreateProgram:
		return s.createProgram(m, b)
	case wire.OpBuild, wire.OpCompile:
		return s.build(m, b)
	case wire.OpLink:
		return s.link(m, b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, bad := s.getBuilt(b.Word(), program)
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	if p.code.came != nil && len(p.parent.devices) == 0 {
		return s.answerLocked(m, clSuccess, 0, 0, p.code.came)
	}
	var built []byte
	s.aside(func() { built, bad = s.lib.built(p.ptr) }, p)
	return s.answerLocked(m, bad, 0, 0, built)
}

// aside makes a call that may take long while others go on, and objects that it
// names stay. The caller has the lock, which is given back meanwhile.
func (s *Session) aside(call func(), names ...*object) {
	name(names...)
	s.mu.Unlock()
	call()
	s.mu.Lock()
	s.unname(names...)
}

// builds is aside for building a program: who asks for that waits until it is built,
// as drivers have them wait.
func (s *Session) builds(p *object, call func(), names ...*object) {
	p.busy = true
	s.building.Add(1)
	s.aside(call, append(names, p)...)
	p.busy = false
	s.building.Add(-1)
	if s.built != nil {
		s.built.Broadcast()
	}
}

// getBuilt is get for who asks the driver about a program, which it waits for while
// it is being built. The caller has the lock, which is given back meanwhile.
func (s *Session) getBuilt(id uint64, k kind) (*object, int32) {
	for {
		o, bad := s.get(id, k)
		if bad != clSuccess || !o.busy {
			return o, bad
		}
		if s.built == nil {
			s.built = sync.NewCond(&s.mu)
		}
		s.built.Wait()
	}
}

// built is what a program was built to, for one device after the other.
func (l *library) built(program uintptr) ([]byte, int32) {
	sizes, bad := l.info("clGetProgramInfo", program, clProgramBinarySizes)
	if bad != clSuccess {
		return nil, bad
	}
	all := uint64(0)
	for i := 0; i < len(sizes); i += 8 {
		all += binary.LittleEndian.Uint64(sizes[i:])
	}
	out, at := make([]byte, all+1), uint64(0)
	list := make([]uintptr, len(sizes)/8)
	for i := range list {
		if n := binary.LittleEndian.Uint64(sizes[8*i:]); n > 0 {
			list[i] = atBytes(out[at:])
			at += n
		}
	}
	bad = l.status("clGetProgramInfo", program, clProgramBinaries, uintptr(8*len(list)), atWords(list), 0)
	return out[:all], bad
}

func (s *Session) createProgram(m *message, b *wire.Body) error {
	var w [3]uint64
	b.Words(w[:])
	text := b.Bytes()
	if b.Err() || len(text) == 0 && w[2] != fromSource {
		return errEnd
	}
	if w[2] > fromBinaries {
		return errEnd
	}
	if w[2] != fromSource {
		s.prints.Store(true) // for all that is known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, bad := s.get(w[0], context)
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	if w[2] == fromBinaries {
		return s.ofBinaries(m, c, w[1], text)
	}
	o := &object{kind: program, parent: c, op: m.Op, code: &code{context: w[0], from: w[2], text: bytes.Clone(text)}}
	if !s.counts(o, len(text)) {
		return s.answerLocked(m, clOutOfHostMemory, 0, 0, nil)
	}
	var status uint64
	if s.aside(func() { o.ptr, bad, status = s.newProgram(c, w[2], text) }, c); o.ptr == 0 {
		s.counts(o, -o.kept)
	} else if err := s.keep(w[1], o); err != nil {
		return err
	}
	return s.answerLocked(m, bad, status, 0, nil)
}

// newProgram makes a program in a context.
func (s *Session) newProgram(in *object, from uint64, text []byte) (ptr uintptr, bad int32, status uint64) {
	e, of := cell(), cell()
	c, sizes, texts, devices := in.ptr, []uint64{uint64(len(text))}, []uintptr{atBytes(text)}, s.devicesOf(in)
	switch from {
	case fromSource:
		if len(text) == 0 {
			texts[0] = atBytes([]byte{0})
		}
		ptr = s.lib.call("clCreateProgramWithSource", c, 1, atWords(texts), atWords(sizes), at(e))
	case fromBinary:
		ptr = s.lib.call("clCreateProgramWithBinary", c, 1, atWords(devices), atWords(sizes), atWords(texts), at(of), at(e))
	case fromIL:
		if s.lib.functions["clCreateProgramWithIL"] == 0 {
			return 0, clInvalidOperation, 0
		}
		ptr = s.lib.call("clCreateProgramWithIL", c, atBytes(text), uintptr(len(text)), at(e))
	case builtIn:
		names := cString(string(text))
		ptr = s.lib.call("clCreateProgramWithBuiltInKernels", c, uintptr(len(devices)), atWords(devices), atBytes(names), at(e))
	}
	return ptr, int32(uint32(*e)), uint64(uint32(*of))
}

// build builds a program, or compiles it.
func (s *Session) build(m *message, b *wire.Body) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, bad := s.getBuilt(b.Word(), program)
	options := b.Bytes()
	var included, names []uintptr
	var keep [][]byte
	var uses []*object
	if m.Op == wire.OpCompile {
		for range b.Count(16) {
			h, e := s.get(b.Word(), program)
			called := cString(string(b.Bytes()))
			if e != clSuccess {
				bad = e
				continue
			}
			keep, uses = append(keep, called), append(uses, h)
			included, names = append(included, h.ptr), append(names, atBytes(called))
		}
	}
	more := b.Rest()
	h, err := readHeaders(b)
	named, e := s.named(b)
	if bad == clSuccess {
		bad = e
	}
	if b.Err() || err != nil {
		return errEnd
	}
	if bad == clSuccess && p.code.replaced {
		bad = s.restore(p)
	}
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	if now := len(options) + 1 + len(more); !s.counts(p, now-len(p.options)-len(p.code.headers)) {
		return s.answerLocked(m, clOutOfHostMemory, 0, 0, nil)
	}
	before, had := *p.code, p.options
	p.options, p.code.how, p.code.headers, p.code.told, p.code.came = cString(string(options)), m.Op, bytes.Clone(more), nil, nil
	p.code.builds++
	here, ok := h.options(string(options))
	ok = ok && len(options) <= mostOptions
	if !ok {
		bad = -43 // CL_INVALID_BUILD_OPTIONS
		if m.Op == wire.OpCompile {
			bad = -66 // CL_INVALID_COMPILER_OPTIONS
		}
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	// The client must know which arguments are handles; the program's own options are what an info shows.
	text := cString(here + withArgInfo)
	count, devices := s.targets(p.parent, named)
	s.builds(p, func() {
		done, err := h.unpack()
		if err != nil {
			bad = clOutOfResources
			return
		}
		defer done()
		if m.Op == wire.OpBuild {
			bad = s.lib.status("clBuildProgram", p.ptr, count, devices, atBytes(text), 0, 0)
			return
		}
		var list, called uintptr
		if len(included) > 0 {
			list, called = atWords(included), atWords(names)
		}
		bad = s.lib.status("clCompileProgram", p.ptr, count, devices, atBytes(text), uintptr(len(included)), list, called, 0, 0)
	}, uses...)
	runtime.KeepAlive([]any{text, named, included, names, keep})
	if bad == clInvalidOperation { // it has kernels, or cannot be compiled: it is what it was
		s.counts(p, len(had)+len(before.headers)-len(p.options)-len(p.code.headers))
		p.options, p.code.how, p.code.headers, p.code.told, p.code.came, p.code.builds = had, before.how, before.headers, before.told, before.came, before.builds
	}
	return s.answerLocked(m, bad, 0, 0, nil)
}

func (s *Session) link(m *message, b *wire.Body) error {
	c, id := b.Word(), b.Word()
	options := b.Bytes()
	s.mu.Lock()
	defer s.mu.Unlock()
	of, bad := s.get(c, context)
	uses, unfit := []*object{of}, false
	inputs := make([]uintptr, b.Count(8))
	for i := range inputs {
		p, e := s.get(b.Word(), program)
		if e != clSuccess {
			bad = e
			continue
		}
		inputs[i], uses = p.ptr, append(uses, p)
		if !s.linkable(p) {
			unfit = true
		}
	}
	named, e := s.named(b)
	if bad == clSuccess {
		bad = e
	}
	if b.Err() || len(inputs) == 0 {
		return errEnd
	}
	if _, ok := (headers{}).options(string(options)); bad == clSuccess && (!ok || len(options) > mostOptions) {
		bad = -67 // CL_INVALID_LINKER_OPTIONS
	}
	if bad == clSuccess && unfit {
		bad = clInvalidOperation
	}
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	told, text := cell(), cString(string(options))
	count, devices := s.targets(of, named)
	var ptr uintptr
	s.aside(func() {
		ptr = s.lib.call("clLinkProgram", of.ptr, count, devices, atBytes(text), uintptr(len(inputs)), atWords(inputs), 0, 0, at(told))
	}, uses...)
	runtime.KeepAlive([]any{text, named, inputs})
	there := uint64(0)
	if ptr != 0 {
		there = 1
		if err := s.keep(id, &object{kind: program, ptr: ptr, parent: of, code: &code{context: c, from: fromBinary, how: m.Op}}); err != nil {
			return err
		}
	}
	return s.answerLocked(m, int32(uint32(*told)), there, 0, nil)
}

// linkable says that a program has something to link: PoCL ends the process that links one which was not compiled, or not
// without errors. What was made of binaries is what these are.
func (s *Session) linkable(p *object) bool {
	if p.busy || p.code.replaced || p.code.came != nil || p.code.from != fromSource && p.code.from != fromIL {
		return true
	}
	return slices.ContainsFunc(s.devicesOf(p.parent), func(d uintptr) bool {
		return s.lib.number("clGetProgramBuildInfo", p.ptr, d, clBuildStatus)&0xFFFFFFFF == 0 && s.lib.number("clGetProgramBuildInfo", p.ptr, d, clBinaryType)&0xFFFFFFFF != 0
	})
}

const withArgInfo = " -cl-kernel-arg-info"

// hides says that a program was built without what tells of its kernels' arguments.
func (o *object) hides() bool {
	return o.options != nil && !bytes.Contains(o.options, []byte("-cl-kernel-arg-info"))
}

// tellsArgs finds out whether the driver tells of kernels' arguments of a program that
// was built without options, as PoCL does.
func (s *Session) tellsArgs() bool {
	_, k, done := s.trial("kernel void k(global int *a) { a[0] = 1; }")
	defer done()
	if k == 0 {
		return false
	}
	_, bad := s.lib.info("clGetKernelArgInfo", k, 0, clArgName)
	return bad == clSuccess
}

// trial makes a kernel k of a text, in a context of its own, to try what the
// driver does; 0: it makes none. done gives both back.
func (s *Session) trial(text string) (c, k uintptr, done func()) {
	var p uintptr
	done = func() {
		for _, x := range []struct {
			release string
			of      uintptr
		}{{"clReleaseKernel", k}, {"clReleaseProgram", p}, {"clReleaseContext", c}} {
			if x.of != 0 {
				s.lib.call(x.release, x.of)
			}
		}
	}
	e, devices := cell(), []uintptr{s.device}
	if c = s.lib.call("clCreateContext", 0, 1, atWords(devices), 0, 0, at(e)); c == 0 {
		return 0, 0, done
	}
	name, source := cString("k"), cString(text)
	texts := []uintptr{atBytes(source)}
	defer runtime.KeepAlive([]any{name, source, texts, devices})
	p = s.lib.call("clCreateProgramWithSource", c, 1, atWords(texts), 0, at(e))
	if p == 0 {
		return c, 0, done
	}
	if s.lib.status("clBuildProgram", p, 1, atWords(devices), 0, 0, 0) != clSuccess {
		return c, 0, done
	}
	k = s.lib.call("clCreateKernel", p, atBytes(name), at(e))
	return c, k, done
}

// classes says of each argument of a kernel what it is: m memory, s a sampler,
// l local memory, v a value, and ? that it is not known, as of programs that
// were not made from source.
func (s *Session) classes(k uintptr) []byte {
	out := make([]byte, uint32(s.lib.number("clGetKernelInfo", k, clKernelArgs)))
	for i := range out {
		if _, bad := s.lib.info("clGetKernelArgInfo", k, uintptr(i), clArgAddress); bad != clSuccess {
			out[i] = '?'
			continue
		}
		kind := s.lib.text("clGetKernelArgInfo", k, uintptr(i), clArgType)
		switch address := s.lib.number("clGetKernelArgInfo", k, uintptr(i), clArgAddress) & 0xFFFFFFFF; {
		case address == clAddressLocal:
			out[i] = 'l'
		case address == clAddressGlobal || address == clAddressConstant || strings.HasPrefix(kind, "image"):
			out[i] = 'm'
		case kind == "sampler_t":
			out[i] = 's'
		default:
			out[i] = 'v'
		}
	}
	return out
}

func (s *Session) kernels(m *message, b *wire.Body) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, e := b.Word(), cell()
	switch m.Op {
	case wire.OpCloneKernel:
		k, bad := s.get(from, kernel)
		if bad == clSuccess && s.lib.functions["clCloneKernel"] == 0 {
			bad = clInvalidOperation
		}
		if bad == clSuccess && !s.mayKeep(k.kept) {
			bad = clOutOfHostMemory
		}
		if bad != clSuccess {
			return s.answerLocked(m, bad, 0, 0, nil)
		}
		ptr := s.lib.call("clCloneKernel", k.ptr, at(e))
		args := map[uint64][]byte{}
		for i, body := range k.args {
			args[i] = bytes.Clone(body) // which setting it again changes
		}
		o := &object{kind: kernel, ptr: ptr, hidden: k.hidden, bare: k.bare, parent: k.parent, args: args, unset: maps.Clone(k.unset), reaches: k.reaches}
		if ptr != 0 {
			s.counts(o, k.kept)
		}
		return s.made(m, b.Word(), o, int32(uint32(*e)), nil)
	case wire.OpCreateKernel:
		id, name := b.Word(), cString(string(b.Bytes()))
		p, bad := s.getBuilt(from, program)
		if b.Err() {
			return errEnd
		}
		if bad != clSuccess {
			return s.answerLocked(m, bad, 0, 0, nil)
		}
		var ptr uintptr
		s.aside(func() { ptr = s.lib.call("clCreateKernel", p.ptr, atBytes(name), at(e)) }, p)
		if ptr == 0 {
			return s.answerLocked(m, int32(uint32(*e)), 0, 0, nil)
		}
		return s.made(m, id, &object{kind: kernel, ptr: ptr, hidden: p.hides(), bare: len(p.options) == 1, parent: p, args: map[uint64][]byte{}}, clSuccess, s.classes(ptr))
	}
	ids := make([]uint64, b.Count(8))
	b.Words(ids)
	p, bad := s.getBuilt(from, program)
	if b.Err() || len(ids) == 0 {
		return errEnd
	}
	list, n := make([]uintptr, len(ids)), cell()
	if bad == clSuccess && s.full(len(ids)) {
		bad = clOutOfHostMemory
	}
	if bad == clSuccess {
		s.aside(func() {
			bad = s.lib.status("clCreateKernelsInProgram", p.ptr, uintptr(len(ids)), atWords(list), at(n))
		}, p)
	}
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	var lines []byte
	for i, ptr := range list[:min(int(uint32(*n)), len(list))] {
		if err := s.keep(ids[i], &object{kind: kernel, ptr: ptr, hidden: p.hides(), bare: len(p.options) == 1, parent: p, args: map[uint64][]byte{}}); err != nil {
			return err
		}
		lines = append(append(lines, s.classes(ptr)...), '\n')
	}
	return s.answerLocked(m, clSuccess, 0, 0, lines)
}
