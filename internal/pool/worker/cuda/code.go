//go:build linux

package cuda

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Options of the driver's compiler.
const (
	optionInfo      = 3 // a buffer for what it says,
	optionInfoSize  = 4 // how large that is, and how much it said
	optionError     = 5
	optionErrorSize = 6
	mostOptions     = 64
	mostLog         = 1 << 20
)

// pointers are options that are addresses of the program's: names of symbols, their
// addresses, names of kernels and of variables.
var pointers = map[int32]bool{17: true, 18: true, 25: true, 27: true}

// options are what a program gives the compiler. They stay while that may write there.
type options struct {
	keys   []int32
	values []uint64
	logs   [2][]byte // of what it says, of errors
	has    [2]bool
}

func logOf(key int32) int {
	switch key {
	case optionInfo:
		return 0
	case optionError:
		return 1
	}
	return -1
}

// readOptions reads options. It reports whether they are ones.
func readOptions(b *wire.Body) (*options, bool) {
	n := b.Count(16)
	if n > mostOptions {
		return nil, false
	}
	o := &options{keys: make([]int32, n), values: make([]uint64, n)}
	size := [2]uint64{}
	for i := range n {
		o.keys[i], o.values[i] = int32(b.Word()), b.Word()
		switch k := o.keys[i]; {
		case pointers[k]:
			return nil, false
		case k == optionInfoSize:
			size[0] = uint64(uint32(o.values[i]))
		case k == optionErrorSize:
			size[1] = uint64(uint32(o.values[i]))
		}
	}
	for i, k := range o.keys {
		l := logOf(k)
		if l < 0 {
			if k == optionInfoSize || k == optionErrorSize {
				o.values[i] = min(uint64(uint32(o.values[i])), mostLog)
			}
			continue
		}
		if o.has[l] = o.values[i] != 0; o.has[l] {
			o.logs[l] = make([]byte, min(size[l], mostLog)+1)
			o.values[i] = uint64(addr(o.logs[l]))
		}
	}
	return o, !b.Err()
}

func (o *options) args() (n, keys, values uintptr) {
	return uintptr(len(o.keys)), addr(o.keys), addr(o.values)
}

// answer is what the program gets of them.
func (o *options) answer() []byte {
	var data []byte
	for i, k := range o.keys {
		l := logOf(k)
		if l < 0 {
			data = binary.LittleEndian.AppendUint64(data, o.values[i])
			continue
		}
		text := o.logs[l]
		for j, x := range text {
			if x == 0 {
				text = text[:j+1]
				break
			}
		}
		data = wire.AppendBytes(data, text)
	}
	return data
}

// load loads code as a module or library.
func (t *thread) load(b *wire.Body) error {
	o, ok := readOptions(b)
	image := b.Bytes()
	if !ok || b.Err() || len(image) == 0 {
		return errEnd
	}
	s, d := t.s, t.s.d
	kind := wire.CUDAModule
	n, keys, values := o.args()
	t.cells[0] = 0
	var r int32
	switch {
	case t.m.Op == wire.CUDALoadLibrary:
		kind = wire.CUDALibrary
		r = d.call("cuLibraryLoadData", t.cells.at(0), addr(image), keys, values, n, 0, 0, 0)
	case n == 0:
		r = d.call("cuModuleLoadData", t.cells.at(0), addr(image))
	default:
		r = d.call("cuModuleLoadDataEx", t.cells.at(0), addr(image), n, keys, values)
	}
	runtime.KeepAlive(o)
	if r != success {
		return t.answer(r, 0, 0, o.answer())
	}
	context := t.current()
	if kind == wire.CUDALibrary {
		context = nil // it is of all
	}
	s.mu.Lock()
	m := s.mint(kind, uintptr(t.cells[0]), context)
	if d.named["cuFuncGetParamInfo"] == 0 {
		m.layouts = layoutsOf(image)
	}
	s.mu.Unlock()
	return t.answer(success, m.id, 0, o.answer())
}

// layout is where a kernel's arguments are: offset and size of each.
type layout struct {
	at    [][2]uint64
	total uint64
}

const (
	mostParams = 4096
	mostTotal  = 64 << 10
)

// add takes one more argument in, if it can be one.
func (l *layout) add(offset, size uint64) bool {
	if len(l.at) >= mostParams || offset > mostTotal || size > mostTotal || offset+size > mostTotal {
		return false
	}
	l.at = append(l.at, [2]uint64{offset, size})
	l.total = max(l.total, offset+size)
	return true
}

// layoutOf finds a function's arguments.
func (t *thread) layoutOf(o *object) (*layout, int32) {
	s := t.s
	s.mu.Lock()
	l := o.layout
	if l == nil && o.of != nil {
		l = o.of.layouts[o.text]
	}
	s.mu.Unlock()
	if l != nil {
		return l, success
	}
	ask := "cuFuncGetParamInfo"
	if o.kind == wire.CUDAKernel {
		ask = "cuKernelGetParamInfo"
	}
	if s.d.named[ask] == 0 {
		return nil, notSupported
	}
	l = &layout{}
	for i := range uintptr(mostParams) {
		r := s.d.call(ask, o.ptr, i, t.cells.at(0), t.cells.at(1))
		if r == invalidValue {
			break // there are no more
		}
		if r != success {
			return nil, r
		}
		if !l.add(t.cells[0], t.cells[1]) {
			return nil, notSupported
		}
	}
	s.mu.Lock()
	o.layout = l
	s.mu.Unlock()
	return l, success
}

func (t *thread) function(b *wire.Body) (*object, int32) {
	id := b.Word()
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.s.get(id, wire.CUDAFunction)
}

// params tells where a function's arguments are.
func (t *thread) params(b *wire.Body) error {
	o, e := t.function(b)
	if b.Err() {
		return errEnd
	}
	var l *layout
	if e == success {
		l, e = t.layoutOf(o)
	}
	if e != success {
		return t.answer(e, 0, 0, nil)
	}
	var data []byte
	for _, p := range l.at {
		data = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(data, p[0]), p[1])
	}
	return t.answer(success, uint64(len(l.at)), l.total, data)
}

// launchConfig is how a kernel is launched.
type launchConfig struct {
	grid     [7]uint64 // blocks, threads, and bytes that a block shares
	stream   uintptr
	how      uint64
	features []byte
}

const (
	featureSize  = 72
	cooperative  = 1
	packed       = 2
	mostFeatures = 32
)

// known are features of launches that hold no object of the program's.
var known = map[uint32]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 8: true, 9: true, 10: true, 11: true, 14: true}

func (t *thread) config(b *wire.Body) (o *object, c launchConfig, e int32, err error) {
	o, e = t.function(b)
	b.Words(c.grid[:])
	stream, bad := t.stream(b)
	if e == success {
		e = bad
	}
	c.stream, c.how, c.features = stream, b.Word(), b.Bytes()
	if b.Err() || len(c.features)%featureSize != 0 || len(c.features) > mostFeatures*featureSize {
		return nil, c, 0, errEnd
	}
	for i := 0; i < len(c.features); i += featureSize {
		if !known[binary.LittleEndian.Uint32(c.features[i:])] && e == success {
			e = notSupported
		}
	}
	return o, c, e, nil
}

// words is CUlaunchConfig: seven numbers of 32 bits, a stream, features and their count.
func (c *launchConfig) words() []uint64 {
	w := make([]uint64, 7)
	for i, x := range c.grid {
		w[i/2] |= uint64(uint32(x)) << (32 * (i % 2))
	}
	w[4] = uint64(c.stream)
	if len(c.features) > 0 {
		w[5], w[6] = uint64(addr(c.features)), uint64(len(c.features)/featureSize)
	}
	return w
}

func (t *thread) launch(b *wire.Body) error {
	o, c, e, err := t.config(b)
	if err != nil {
		return err
	}
	args := b.Bytes()
	if b.Err() {
		return errEnd
	}
	d := t.s.d
	var l *layout
	if e == success {
		if l, e = t.layoutOf(o); c.how&packed != 0 && e == notSupported {
			e = success // then the program knows
		}
	}
	if e == success && l != nil && uint64(len(args)) < l.total {
		e = invalidValue
	}
	if e != success {
		return t.answer(e, 0, 0, nil)
	}
	var list, extra []uintptr
	if c.how&packed != 0 {
		t.cells[0] = uint64(len(args))
		extra = []uintptr{1, addr(args), 2, t.cells.at(0), 0}
	} else {
		list = make([]uintptr, len(l.at)+1)
		for i, p := range l.at {
			if p[1] > 0 {
				list[i] = addr(args[p[0]:])
			} else {
				list[i] = t.cells.at(1)
			}
		}
	}
	g := c.grid
	r := t.launches(c.stream, func() int32 {
		switch {
		case len(c.features) > 0:
			w := c.words()
			defer runtime.KeepAlive(w)
			return d.call("cuLaunchKernelEx", addr(w), o.ptr, addr(list), addr(extra))
		case c.how&cooperative != 0:
			return d.call("cuLaunchCooperativeKernel", o.ptr, uintptr(g[0]), uintptr(g[1]), uintptr(g[2]), uintptr(g[3]), uintptr(g[4]), uintptr(g[5]), uintptr(g[6]), c.stream, addr(list))
		}
		return d.call("cuLaunchKernel", o.ptr, uintptr(g[0]), uintptr(g[1]), uintptr(g[2]), uintptr(g[3]), uintptr(g[4]), uintptr(g[5]), uintptr(g[6]), c.stream, addr(list), addr(extra))
	})
	runtime.KeepAlive(list)
	runtime.KeepAlive(extra)
	return t.answer(r, 0, 0, nil)
}

func (t *thread) occupancy(b *wire.Body) error {
	o, c, e, err := t.config(b)
	if err != nil {
		return err
	}
	if e == success {
		w := c.words()
		name := "cuOccupancyMaxPotentialClusterSize"
		if c.how != 0 {
			name = "cuOccupancyMaxActiveClusters"
		}
		t.cells[0] = 0
		e = t.s.d.call(name, t.cells.at(0), o.ptr, addr(w))
		runtime.KeepAlive(w)
	}
	return t.answer(e, uint64(uint32(t.cells[0])), 0, nil)
}

// name tells what a function or kernel is called.
func (t *thread) name(b *wire.Body) error {
	o, e := t.function(b)
	if b.Err() {
		return errEnd
	}
	if e != success {
		return t.answer(e, 0, 0, nil)
	}
	ask := "cuFuncGetName"
	if o.kind == wire.CUDAKernel {
		ask = "cuKernelGetName"
	}
	t.s.mu.Lock()
	text := o.text
	t.s.mu.Unlock()
	if text == "" {
		if e = t.s.d.call(ask, t.cells.at(0), o.ptr); e != success {
			return t.answer(e, 0, 0, nil)
		}
		text = cText(t.cells[0])
	}
	return t.answer(success, 0, 0, append([]byte(text), 0))
}

// cText reads a text of the driver's.
func cText(at uint64) string {
	const most = 64 << 10
	if at == 0 {
		return ""
	}
	p := *(**byte)(unsafe.Pointer(&at))
	n := 0
	for n < most && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// mostListed is how many objects a call lists.
const mostListed = 1 << 16

// list answers with the numbers of objects that the driver lists.
func (t *thread) list(k wire.Object, e int32, all []uint64, of *object) error {
	var data []byte
	if e == success {
		t.s.mu.Lock()
		for _, ptr := range all {
			o := t.s.mint(k, uintptr(ptr), t.current())
			if of != nil && o.of == nil {
				o.of = of
			}
			data = binary.LittleEndian.AppendUint64(data, o.id)
		}
		t.s.mu.Unlock()
	}
	return t.answer(e, 0, 0, data)
}

func (t *thread) nodes(b *wire.Body) error {
	id := b.Word()
	if b.Err() {
		return errEnd
	}
	d := t.s.d
	t.s.mu.Lock()
	g, e := t.s.get(id, wire.CUDAGraph)
	t.s.mu.Unlock()
	var all []uint64
	if e == success {
		if e = d.call("cuGraphGetNodes", g.ptr, 0, t.cells.at(0)); e == success && t.cells[0] > 0 {
			all = make([]uint64, min(t.cells[0], mostListed))
			t.cells[0] = uint64(len(all))
			e = d.call("cuGraphGetNodes", g.ptr, addr(all), t.cells.at(0))
		}
	}
	return t.list(wire.CUDANode, e, all, nil)
}

func (t *thread) kernelsOf(b *wire.Body) error {
	id := b.Word()
	if b.Err() {
		return errEnd
	}
	d := t.s.d
	count, enumerate, kind := "cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", wire.CUDAFunction
	t.s.mu.Lock()
	o, e := t.s.get(id, wire.CUDAModule)
	if e != success {
		o, e = t.s.get(id, wire.CUDALibrary)
		count, enumerate, kind = "cuLibraryGetKernelCount", "cuLibraryEnumerateKernels", wire.CUDAKernel
	}
	t.s.mu.Unlock()
	var all []uint64
	if e == success {
		t.cells[0] = 0
		if e = d.call(count, t.cells.at(0), o.ptr); e == success && uint32(t.cells[0]) > 0 {
			all = make([]uint64, min(uint32(t.cells[0]), mostListed))
			e = d.call(enumerate, addr(all), uintptr(len(all)), o.ptr)
		}
	}
	return t.list(kind, e, all, o)
}

// linker is one under way: the driver writes to its options until it ends.
type linker struct {
	options *options
	keeps   []any
}

func (t *thread) link(b *wire.Body) error {
	s, d := t.s, t.s.d
	if t.m.Op == wire.CUDALinkBegin {
		o, ok := readOptions(b)
		if !ok {
			return errEnd
		}
		n, keys, values := o.args()
		t.cells[0] = 0
		if r := d.call("cuLinkCreate_v2", n, keys, values, t.cells.at(0)); r != success {
			return t.answer(r, 0, 0, nil)
		}
		s.mu.Lock()
		l := s.mint(wire.CUDALink, uintptr(t.cells[0]), t.current())
		l.linker = &linker{options: o}
		s.mu.Unlock()
		return t.answer(success, l.id, 0, nil)
	}
	id := b.Word()
	s.mu.Lock()
	l, e := s.get(id, wire.CUDALink)
	s.mu.Unlock()
	switch t.m.Op {
	case wire.CUDALinkAdd:
		kind := b.Word()
		o, ok := readOptions(b)
		name, data := b.Bytes(), b.Bytes()
		if !ok || b.Err() || len(data) == 0 || len(name) == 0 || name[len(name)-1] != 0 {
			return errEnd
		}
		if e != success {
			return t.answer(e, 0, 0, nil)
		}
		n, keys, values := o.args()
		e = d.call("cuLinkAddData_v2", l.ptr, uintptr(kind), addr(data), uintptr(len(data)), addr(name), n, keys, values)
		s.mu.Lock()
		l.linker.keeps = append(l.linker.keeps, o)
		s.mu.Unlock()
		return t.answer(e, 0, 0, l.linker.options.answer())
	case wire.CUDALinkComplete:
		if b.Err() {
			return errEnd
		}
		if e != success {
			return t.answer(e, 0, 0, nil)
		}
		if e = d.call("cuLinkComplete", l.ptr, t.cells.at(0), t.cells.at(1)); e != success {
			return t.answer(e, 0, 0, l.linker.options.answer())
		}
		at, n := t.cells[0], t.cells[1]
		data := l.linker.options.answer()
		if at != 0 && n <= mostImage {
			data = append(data, unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)...)
		}
		return t.answer(success, 0, 0, data)
	}
	if b.Err() {
		return errEnd
	}
	if e == success {
		if e = d.call("cuLinkDestroy", l.ptr); e == success {
			s.mu.Lock()
			s.drop(l)
			s.mu.Unlock()
		}
	}
	return t.answer(e, 0, 0, nil)
}
