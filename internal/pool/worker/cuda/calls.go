//go:build linux

package cuda

import (
	"encoding/binary"
	"runtime"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// do makes the call that a message asks for. An error ends the connection: the
// message is not one that a client sends. What CUDA says goes into the answer.
func (t *thread) do(m *message) error {
	t.m = m
	defer runtime.KeepAlive(m) // arguments point into it
	b := wire.NewBody(m.body)
	b.Word() // the thread
	if c, ok := wire.CUDACalls[m.Op]; ok {
		return t.byParams(c, &b)
	}
	switch m.Op {
	case wire.CUDALaunch:
		return t.launch(&b)
	case wire.CUDACopyIn:
		return t.copyIn(&b)
	case wire.CUDACopyOut:
		return t.copyOut(&b)
	case wire.CUDACopyBox:
		return t.copyBox(&b)
	case wire.CUDABegin:
		return t.begin()
	case wire.CUDAEnds:
		t.over = true
		return t.answer(success, 0, 0, nil)
	case wire.CUDALoad, wire.CUDALoadLibrary:
		return t.load(&b)
	case wire.CUDAParams:
		return t.params(&b)
	case wire.CUDAName:
		return t.name(&b)
	case wire.CUDANodes:
		return t.nodes(&b)
	case wire.CUDAKernelsOf:
		return t.kernelsOf(&b)
	case wire.CUDAAccess:
		return t.access(&b)
	case wire.CUDALinkBegin, wire.CUDALinkAdd, wire.CUDALinkComplete, wire.CUDALinkEnd:
		return t.link(&b)
	case wire.CUDAOccupancy:
		return t.occupancy(&b)
	}
	return t.answer(notSupported, 0, 0, nil) // of a client of a later version
}

// call is one that the table describes, as it is made.
type call struct {
	t      *thread
	f      uintptr
	c      wire.CUDACall
	args   []uintptr
	objs   []*object // those that are handles, in their order
	stream uintptr   // the first that is named; 0: none is
	given  *object   // what an answer's first handle is
	text   string    // the text that came
}

func (k *call) do() int32 { return k.t.s.d.at(k.f, k.args...) }

// out is what the driver gave back, of which the n-th parameter says where.
func (k *call) out(i int) *uint64 { return &k.t.cells[i] }

// byParams makes a call that the table describes.
func (t *thread) byParams(c wire.CUDACall, b *wire.Body) error {
	s := t.s
	k := call{t: t, f: s.d.byOp[t.m.Op], c: c, args: t.args[:0], objs: t.objs[:0]}
	status := int32(success)
	var outs [][]byte
	s.mu.Lock()
	for i, p := range c.Params {
		switch p.Form {
		case wire.FormWord:
			k.args = append(k.args, uintptr(b.Word()))
		case wire.FormDevice:
			k.args = append(k.args, uintptr(s.device))
		case wire.FormHandle:
			id := b.Word()
			if p.Object == wire.CUDAStream && id <= ownStream {
				k.args, k.objs = append(k.args, uintptr(id)), append(k.objs, nil)
				if k.stream == 0 {
					k.stream = uintptr(id)
				}
				continue
			}
			o, e := s.get(id, p.Object)
			if e != success {
				status = e
				o = &object{}
			}
			k.args, k.objs = append(k.args, o.ptr), append(k.objs, o)
			if p.Object == wire.CUDAStream && k.stream == 0 {
				k.stream = o.ptr
			}
		case wire.FormText:
			text := b.Bytes()
			if len(text) == 0 || text[len(text)-1] != 0 {
				s.mu.Unlock()
				return errEnd
			}
			k.text = string(text[:len(text)-1])
			k.args = append(k.args, addr(text))
		case wire.FormIn:
			in := b.Bytes()
			if len(in) != p.Bytes {
				s.mu.Unlock()
				return errEnd
			}
			k.args = append(k.args, addr(in))
		case wire.FormOutWord, wire.FormOutHandle:
			t.cells[i] = 0
			k.args = append(k.args, t.cells.at(i))
		case wire.FormOut:
			out := make([]byte, p.Bytes)
			outs = append(outs, out)
			k.args = append(k.args, addr(out))
		}
	}
	s.mu.Unlock()
	if b.Err() {
		return errEnd
	}
	t.args, t.objs = k.args, k.objs
	if status == success {
		status = t.hooked(&k)
	}
	if t.m.Flags&wire.FlagAnswer == 0 {
		return t.answer(status, 0, 0, nil)
	}
	var words []uint64
	s.mu.Lock()
	for i, p := range c.Params {
		switch p.Form {
		case wire.FormOutWord:
			words = append(words, t.cells[i])
		case wire.FormOutHandle:
			w := t.cells[i]
			if status == success && w != 0 && (p.Object != wire.CUDAStream || w > ownStream) {
				o := s.mint(p.Object, uintptr(w), t.current())
				if k.given == nil {
					k.given = o
				}
				w = o.id
			}
			words = append(words, w)
		}
	}
	if status == success {
		t.made(&k)
	}
	s.mu.Unlock()
	var a [2]uint64
	n := copy(a[:], words)
	var data []byte
	for _, w := range words[n:] {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	for _, out := range outs {
		data = append(data, out...)
	}
	runtime.KeepAlive(outs)
	return t.answer(status, a[0], a[1], data)
}

// hooked makes a call, with what it has to do with turns and what is counted.
func (t *thread) hooked(k *call) int32 {
	do := k.do
	if h := hooks[t.m.Op]; h != nil {
		do = func() int32 { return h(t, k) }
	}
	switch {
	case t.m.Op == wire.CUDAGraphLaunch:
		return t.launches(k.stream, do)
	case k.c.Work:
		return t.work(k.stream, do)
	case k.c.Blocks:
		return t.waits(do)
	}
	return do()
}

// made remembers what a call has made. The caller has the session's lock.
func (t *thread) made(k *call) {
	s, o := t.s, k.given
	if o == nil {
		return
	}
	switch t.m.Op {
	case wire.CUDAModuleGetFunction, wire.CUDALibraryGetKernel:
		o.text, o.of = k.text, k.objs[0]
	case wire.CUDAKernelGetFunction:
		o.text, o.of = k.objs[0].text, k.objs[0].of
	case wire.CUDAArrayCreateV2, wire.CUDAArray3DCreateV2, wire.CUDAMipmappedArrayCreate:
		o.bytes = t.cells[bytesCell]
	case wire.CUDAMemCreate:
		o.bytes, o.owners, o.context = t.cells[bytesCell], 1, nil
	case wire.CUDAMemRetainAllocationHandle:
		o.owners++
		o.context, s.objects[o.id] = nil, o
	}
}

// bytesCell is where a hook leaves how much memory was counted for an object.
const bytesCell = 40

// begin tells what the device is.
func (t *thread) begin() error {
	s, d, c := t.s, t.s.d, t.cells
	data := make([]byte, uuidSize+8+8+nameRoom+busRoom)
	dev := uintptr(s.device)
	luid := data[uuidSize:]
	mask := data[uuidSize+8:]
	name, bus := data[uuidSize+16:][:nameRoom], data[uuidSize+16+nameRoom:]
	for _, status := range []int32{
		d.call("cuDriverGetVersion", c.at(0)), d.call("cuDeviceGetAttribute", c.at(1), majorVersion, dev), d.call("cuDeviceGetAttribute", c.at(2), minorVersion, dev),
		d.call("cuDeviceGetUuid", addr(data), dev), d.call("cuDeviceGetName", addr(name), nameRoom-1, dev), d.call("cuDeviceGetPCIBusId", addr(bus), busRoom-1, dev),
	} {
		if status != success {
			return t.answer(status, 0, 0, nil)
		}
	}
	if d.call("cuDeviceGetLuid", addr(luid), addr(mask), dev) == success {
		mask[4] = 1 // it has one
	}
	runtime.KeepAlive(data)
	return t.answer(success, uint64(uint32(c[0])), c[1]<<32|uint64(uint32(c[2])), data)
}
