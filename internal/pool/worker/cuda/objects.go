//go:build linux

package cuda

import (
	"yunhe.dev/yunhe/internal/pool/wire"
)

// object is what a number stands for. The number says the kind in its last byte.
type object struct {
	id      uint64
	kind    wire.Object
	ptr     uintptr
	context *object // that it is gone with; nil: none
	text    string  // a function's name
	of      *object // the module or library that a function is of
	layout  *layout // of a function
	layouts map[string]*layout
	bytes   uint64 // of an array, of memory that is mapped, or of what a context's kernels allocate from
	owners  int    // of memory that is mapped: the program's handles
	maps    int    // and mappings
	linker  *linker
}

// place is where the driver has an object.
type place struct {
	kind wire.Object
	ptr  uintptr
}

// held is memory of the device.
type held struct {
	bytes   uint64
	context *object
}

type mapping struct {
	of   *object
	size uint64
}

// bad is the error of a number that is not of an object of a kind.
func bad(k wire.Object) int32 {
	if k == wire.CUDACtx {
		return invalidContext
	}
	return invalidHandle
}

// get finds an object. Numbers of streams that are always there need none. A
// kernel may stand for the function that it is in this context. The caller has
// the lock.
func (s *Session) get(id uint64, k wire.Object) (*object, int32) {
	o := s.objects[id]
	if o != nil && (o.kind == k || k == wire.CUDAFunction && o.kind == wire.CUDAKernel) {
		return o, success
	}
	return nil, bad(k)
}

// mint gives an object of the driver's a number, or that which it has. The caller
// has the lock.
func (s *Session) mint(k wire.Object, ptr uintptr, context *object) *object {
	at := place{k, ptr}
	if o := s.byPtr[at]; o != nil {
		return o
	}
	s.last++
	o := &object{id: s.last<<8 | uint64(k), kind: k, ptr: ptr, context: context}
	if k == wire.CUDACtx {
		o.context = o
	}
	s.objects[o.id], s.byPtr[at] = o, o
	return o
}

// drop forgets an object that is no more. The caller has the lock.
func (s *Session) drop(o *object) {
	delete(s.objects, o.id)
	delete(s.byPtr, place{o.kind, o.ptr})
}

// take counts memory that is to be made.
func (s *Session) take(n uint64) bool {
	if !s.memory.Take(n) {
		return false
	}
	if !s.card.Take(n) {
		s.memory.Give(n)
		return false
	}
	return true
}

func (s *Session) give(n uint64) {
	if n > 0 {
		s.memory.Give(n)
		s.card.Give(n)
	}
}

// contextGone gives back what a context had, and forgets what was of it.
func (s *Session) contextGone(c *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, h := range s.held {
		if h.context == c {
			s.give(h.bytes)
			delete(s.held, at)
		}
	}
	for _, o := range s.objects {
		if o.context == c && o.kind != wire.CUDAMem { // that is of the device
			s.give(o.bytes)
			s.drop(o)
		}
	}
}

// current is the context of a thread, or nil.
func (t *thread) current() *object {
	if len(t.stack) == 0 {
		return nil
	}
	return t.stack[len(t.stack)-1]
}

func (t *thread) context() uintptr {
	if c := t.current(); c != nil {
		return c.ptr
	}
	return 0
}

// in makes calls with a context current.
func (t *thread) in(context uintptr, do func()) {
	if context == t.context() {
		do()
		return
	}
	d := t.s.d
	if d.call("cuCtxPushCurrent_v2", context) != success {
		return
	}
	do()
	d.call("cuCtxPopCurrent_v2", t.cells.at(len(t.cells)-1))
}

// quietly makes calls that are none of the program's, and do not end what it captures.
func (t *thread) quietly(do func()) {
	if t.s.captures.Load() == 0 {
		do()
		return
	}
	mode := len(t.cells) - 2
	t.cells[mode] = relaxed
	t.s.d.call("cuThreadExchangeStreamCaptureMode", t.cells.at(mode))
	do()
	t.s.d.call("cuThreadExchangeStreamCaptureMode", t.cells.at(mode))
}
