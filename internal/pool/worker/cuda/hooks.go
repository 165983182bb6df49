//go:build linux

package cuda

import (
	"encoding/binary"
	"unsafe"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// hooks are calls of the table that have more to them than their parameters.
var hooks map[wire.Op]func(t *thread, k *call) int32

func init() {
	hooks = map[wire.Op]func(t *thread, k *call) int32{
		wire.CUDADevicePrimaryCtxRetain: func(t *thread, k *call) int32 {
			r := k.do()
			if r == success {
				t.s.mu.Lock()
				t.s.primary++
				t.s.mu.Unlock()
			}
			return r
		},
		wire.CUDADevicePrimaryCtxReleaseV2: primaryRelease,
		wire.CUDADevicePrimaryCtxResetV2:   primaryRelease,
		wire.CUDACtxCreateV2: func(t *thread, k *call) int32 {
			r := k.do()
			if r == success {
				t.s.mu.Lock()
				t.stack = append(t.stack, t.s.mint(wire.CUDACtx, uintptr(*k.out(0)), nil))
				t.s.mu.Unlock()
			}
			return r
		},
		wire.CUDACtxDestroyV2: func(t *thread, k *call) int32 {
			c := k.objs[0]
			t.endContext(c.ptr)
			r := k.do()
			if r == success {
				t.s.contextGone(c)
				if t.current() == c {
					t.stack = t.stack[:len(t.stack)-1]
				}
			}
			return r
		},
		wire.CUDACtxPushCurrentV2: func(t *thread, k *call) int32 {
			r := k.do()
			if r == success {
				t.stack = append(t.stack, k.objs[0])
			}
			return r
		},
		wire.CUDACtxPopCurrentV2: func(t *thread, k *call) int32 {
			r := k.do()
			if r == success && len(t.stack) > 0 {
				t.stack = t.stack[:len(t.stack)-1]
			}
			return r
		},
		wire.CUDACtxSetCurrent: setCurrent,
		wire.CUDACtxSetLimit:   setLimit,

		wire.CUDADeviceTotalMemV2: func(t *thread, k *call) int32 { *k.out(0) = t.s.memory.Limit(); return success },
		wire.CUDAMemGetInfoV2: func(t *thread, k *call) int32 {
			r := k.do()
			limit, used := t.s.memory.Limit(), t.s.memory.Used()
			left := max(limit, used) - used
			if !t.pages() { // else what others have makes room
				left = min(left, *k.out(0))
			}
			*k.out(0), *k.out(1) = left, limit
			return r
		},
		wire.CUDAMemAllocV2:                  allocate,
		wire.CUDAMemAllocAsync:               func(t *thread, k *call) int32 { return t.allocate(k.do, uint64(k.args[1]), nil) },
		wire.CUDAMemAllocFromPoolAsync:       func(t *thread, k *call) int32 { return t.allocate(k.do, uint64(k.args[1]), nil) },
		wire.CUDAMemAllocPitchV2:             allocatePitch,
		wire.CUDAMemFreeV2:                   free,
		wire.CUDAMemFreeAsync:                free,
		wire.CUDAArrayCreateV2:               func(t *thread, k *call) int32 { return t.counted(k, arrayBytes(in(k, 1, 24), 1, false)) },
		wire.CUDAArray3DCreateV2:             func(t *thread, k *call) int32 { return t.counted(k, arrayBytes(in(k, 1, 40), 1, true)) },
		wire.CUDAMipmappedArrayCreate:        func(t *thread, k *call) int32 { return t.counted(k, arrayBytes(in(k, 1, 40), uint32(k.args[2]), true)) },
		wire.CUDAArrayDestroy:                destroy,
		wire.CUDAMipmappedArrayDestroy:       destroy,
		wire.CUDAMemCreate:                   createMemory,
		wire.CUDAMemRelease:                  releaseMemory,
		wire.CUDAMemMap:                      mapMemory,
		wire.CUDAMemUnmap:                    unmapMemory,
		wire.CUDAMemPoolCreate:               func(t *thread, k *call) int32 { return t.ours(k, in(k, 1, 88), 8) },
		wire.CUDAMemGetAllocationGranularity: func(t *thread, k *call) int32 { return t.ours(k, in(k, 1, 32), 8) },
		wire.CUDAMemGetAccess:                func(t *thread, k *call) int32 { return t.ours(k, in(k, 1, 8), 0) },
		wire.CUDAMemPoolSetAttribute: func(t *thread, k *call) int32 {
			if uint32(k.args[1]) == threshold {
				clear(in(k, 2, 8)) // a pool keeps nothing that is not counted any more
			}
			return k.do()
		},
		wire.CUDAMemPoolGetAccess: func(t *thread, k *call) int32 { return t.ours(k, in(k, 2, 8), 0) },
		wire.CUDAMemGetAllocationPropertiesFromHandle: func(t *thread, k *call) int32 {
			r := k.do()
			clear(in(k, 0, 32)[12:24]) // which device, and an address
			return r
		},

		wire.CUDATexObjectCreate: func(t *thread, k *call) int32 {
			if k.args[4] == 0 {
				k.args[3] = 0 // no view
			}
			k.args = k.args[:4]
			return t.makeTexture(k)
		},
		wire.CUDASurfObjectCreate:  (*thread).makeTexture,
		wire.CUDATexObjectDestroy:  (*thread).endTexture,
		wire.CUDASurfObjectDestroy: (*thread).endTexture,
		wire.CUDATensorMapReplaceAddress: func(t *thread, k *call) int32 {
			copy(in(k, 0, 128), in(k, 2, 128))
			k.args = k.args[:2]
			return k.do()
		},

		wire.CUDAModuleUnload:     destroyCode,
		wire.CUDALibraryUnload:    destroyCode,
		wire.CUDAStreamDestroyV2:  destroy,
		wire.CUDAEventDestroyV2:   destroy,
		wire.CUDAGraphDestroy:     destroy,
		wire.CUDAGraphExecDestroy: destroy,
		wire.CUDAMemPoolDestroy:   destroy,

		wire.CUDACtxSynchronize:    synchronized,
		wire.CUDAStreamSynchronize: synchronized,
		wire.CUDAEventSynchronize:  synchronized,
		wire.CUDAStreamQuery:       synchronized,
		wire.CUDAEventQuery:        synchronized,

		wire.CUDAStreamBeginCaptureV2: func(t *thread, k *call) int32 {
			r := k.do()
			if r == success {
				t.s.captured(t.key(k.stream), true)
			}
			return r
		},
		wire.CUDAStreamEndCapture: func(t *thread, k *call) int32 {
			r := k.do()
			t.s.captured(t.key(k.stream), false)
			return r
		},
		wire.CUDAStreamGetCaptureInfoV2: func(t *thread, k *call) int32 {
			k.args[4] = 0 // what it depends on; how many these are
			return k.do()
		},
		wire.CUDAThreadExchangeStreamCaptureMode: func(t *thread, k *call) int32 {
			*k.out(1) = uint64(k.args[0])
			k.args = append(k.args[:0], t.cells.at(1))
			return k.do()
		},
	}
}

// in is what an argument points to, which the table says the length of.
func in(k *call, i, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&k.args[i]))), n)
}

// primaryRelease ends a use of the primary context, which may be the last.
func primaryRelease(t *thread, k *call) int32 {
	s, reset := t.s, t.m.Op == wire.CUDADevicePrimaryCtxResetV2
	s.mu.Lock()
	last := s.primary == 1 || reset
	c := s.primaryContext(t)
	s.mu.Unlock()
	if last && c != nil {
		t.endContext(c.ptr)
	}
	r := k.do()
	if r != success {
		return r
	}
	if last && c != nil {
		s.contextGone(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reset && s.primary > 0 {
		s.primary--
	}
	return r
}

// primaryContext finds the device's primary context, if the program has used it.
// The caller has the lock.
func (s *Session) primaryContext(t *thread) *object {
	const cell = 41
	if s.primary == 0 || s.d.at(s.d.byOp[wire.CUDADevicePrimaryCtxRetain], t.cells.at(cell), uintptr(s.device)) != success {
		return nil
	}
	s.d.at(s.d.byOp[wire.CUDADevicePrimaryCtxReleaseV2], uintptr(s.device))
	return s.byPtr[place{wire.CUDACtx, uintptr(t.cells[cell])}]
}

func setCurrent(t *thread, k *call) int32 {
	id := uint64(k.args[0])
	t.s.mu.Lock()
	c, e := t.s.get(id, wire.CUDACtx)
	t.s.mu.Unlock()
	switch {
	case id == 0:
		k.args[0] = 0
	case e != success:
		return e
	default:
		k.args[0] = c.ptr
	}
	r := k.do()
	if r != success {
		return r
	}
	if len(t.stack) > 0 {
		t.stack = t.stack[:len(t.stack)-1]
	}
	if id != 0 {
		t.stack = append(t.stack, c)
	}
	return r
}

// setLimit sets a limit of the current context. What kernels allocate from is the
// device's memory, and counts from what every context has on.
func setLimit(t *thread, k *call) int32 {
	const heap, usual = 2, 8 << 20
	s, c := t.s, t.current()
	if uint32(k.args[0]) != heap || c == nil {
		return k.do()
	}
	want := max(uint64(k.args[1]), usual) - usual
	s.mu.Lock()
	defer s.mu.Unlock()
	if want > c.bytes && !s.take(want-c.bytes) {
		return outOfMemory
	}
	r := k.do()
	if r != success {
		if want > c.bytes {
			s.give(want - c.bytes)
		}
		return r
	}
	if want < c.bytes {
		s.give(c.bytes - want)
	}
	c.bytes = want
	return r
}

// synchronized is a call that waits for the device, or asks whether it is done.
func synchronized(t *thread, k *call) int32 { return t.s.late(k.do()) }

func allocate(t *thread, k *call) int32 {
	n := uint64(k.args[1])
	if t.pages() {
		return t.allocate(func() int32 { return t.managed(k.args[0], n) }, n, nil)
	}
	return t.allocate(k.do, n, nil)
}

// allocate has memory of n bytes made, whose address is the call's first answer; then says
// whether more is to be counted.
func (t *thread) allocate(do func() int32, n uint64, then func() (more uint64)) int32 {
	s := t.s
	if n > 0 && !s.take(n) {
		return outOfMemory
	}
	r := do()
	if r != success {
		s.give(n)
		return r
	}
	at := t.cells[0]
	if then != nil {
		if more := then(); more > n {
			if !s.take(more - n) {
				s.give(n)
				s.d.at(s.d.byOp[wire.CUDAMemFreeV2], uintptr(at))
				t.cells[0] = 0
				return outOfMemory
			}
			n = more
		} else {
			s.give(n - more)
			n = more
		}
	}
	s.mu.Lock()
	s.held[at] = held{n, t.current()}
	s.mu.Unlock()
	return r
}

// allocatePitch counts the width until the driver says how long a row is.
func allocatePitch(t *thread, k *call) int32 {
	w, h := uint64(k.args[2]), uint64(k.args[3])
	if h > 0 && w > ^uint64(0)/h {
		return outOfMemory
	}
	if t.pages() {
		return t.managedPitch(k, w, h)
	}
	return t.allocate(k.do, w*h, func() uint64 {
		if p := *k.out(1); h == 0 || p <= ^uint64(0)/h {
			return p * h
		}
		return ^uint64(0)
	})
}

func free(t *thread, k *call) int32 {
	s, at := t.s, uint64(k.args[0])
	again := s.unpage(at)
	r := k.do()
	if r != success {
		again()
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.held[at]; ok {
		delete(s.held, at)
		s.give(h.bytes)
	}
	return r
}

// counted makes an object that is memory of n bytes.
func (t *thread) counted(k *call, n uint64) int32 {
	if !t.s.take(n) {
		return outOfMemory
	}
	r := k.do()
	if r != success {
		t.s.give(n)
	}
	t.cells[bytesCell] = n
	return r
}

// destroy ends an object.
func destroy(t *thread, k *call) int32 {
	s, o := t.s, k.objs[0]
	if o == nil {
		return invalidHandle // a stream that is always there
	}
	r := k.do()
	if r != success {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(o)
	if o.kind == wire.CUDAArray || o.kind == wire.CUDAMipmap {
		s.give(o.bytes)
	}
	return r
}

// destroyCode ends a module or library, and what was found in it.
func destroyCode(t *thread, k *call) int32 {
	r := destroy(t, k)
	if r != success {
		return r
	}
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if o.of == k.objs[0] {
			s.drop(o)
		}
	}
	return r
}

// arrayBytes is how much memory an array takes at least. Descriptors are of 24
// bytes, or 40 of three dimensions.
func arrayBytes(d []byte, levels uint32, three bool) uint64 {
	const layered, sparse, deferred = 1, 0x40, 0x80 // memory of these is made and mapped by itself
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(d[8*i:]) }
	w, h, z, at := word(0), word(1), uint64(0), 16
	var flags uint32
	if three {
		z, at = word(2), 24
		flags = binary.LittleEndian.Uint32(d[32:])
	}
	if flags&(sparse|deferred) != 0 {
		return 0
	}
	texel := uint64(4)
	switch binary.LittleEndian.Uint32(d[at:]) {
	case 1, 8:
		texel = 1
	case 2, 9, 16:
		texel = 2
	}
	channels := uint64(binary.LittleEndian.Uint32(d[at+4:]))
	const most = 1 << 20 // of an extent and of channels; no device has arrays as large
	if w > most || h > most || z > most || channels > 16 {
		return 1 << 62
	}
	var all uint64
	for i := range min(max(levels, 1), 32) {
		depth := z
		if flags&layered == 0 {
			depth = z >> i
		}
		all += max(w>>i, 1) * max(h>>i, 1) * max(depth, 1) * channels * texel
	}
	return min(all, 1<<62)
}

// ours makes a call that is given properties of memory: those of the device are
// the slice's, nothing is shared with others, and no address is the client's. The
// place is at an offset.
func (t *thread) ours(k *call, p []byte, location int) int32 {
	if len(p) > 8 {
		if binary.LittleEndian.Uint32(p[4:]) != 0 {
			return notSupported
		}
		clear(p[16:24])
	}
	if e := t.s.located(p[location:]); e != success {
		return e
	}
	return k.do()
}

// located puts the device into the place where memory is to be, a kind and a number.
func (s *Session) located(p []byte) int32 {
	if binary.LittleEndian.Uint32(p) != onDevice {
		return notSupported
	}
	if binary.LittleEndian.Uint32(p[4:]) != 0 {
		return invalidDevice
	}
	binary.LittleEndian.PutUint32(p[4:], uint32(s.device))
	return success
}

func createMemory(t *thread, k *call) int32 {
	n := uint64(k.args[1])
	if !t.s.take(n) {
		return outOfMemory
	}
	r := t.ours(k, in(k, 2, 32), 8)
	if r != success {
		t.s.give(n)
	}
	t.cells[bytesCell] = n
	return r
}

// unused gives back memory that nothing uses any more. The caller has the lock.
func (s *Session) unused(o *object) {
	if o.owners == 0 {
		delete(s.objects, o.id)
	}
	if o.owners == 0 && o.maps == 0 {
		s.drop(o)
		s.give(o.bytes)
	}
}

func releaseMemory(t *thread, k *call) int32 {
	s, o := t.s, k.objs[0]
	s.mu.Lock() // a handle may be another's a moment later
	defer s.mu.Unlock()
	r := k.do()
	if r == success {
		o.owners--
		s.unused(o)
	}
	return r
}

func mapMemory(t *thread, k *call) int32 {
	s, o := t.s, k.objs[0]
	r := k.do()
	if r == success {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.maps++
		s.mappings[uint64(k.args[0])] = mapping{o, uint64(k.args[1])}
	}
	return r
}

func unmapMemory(t *thread, k *call) int32 {
	s, at, n := t.s, uint64(k.args[0]), uint64(k.args[1])
	r := k.do()
	if r != success {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, m := range s.mappings {
		if p-at < n {
			delete(s.mappings, p)
			m.of.maps--
			s.unused(m.of)
		}
	}
	return r
}

// access says who may reach memory: only the device may.
func (t *thread) access(b *wire.Body) error {
	of, at, n, rows := b.Word(), b.Word(), b.Word(), b.Bytes()
	if b.Err() || len(rows) == 0 || len(rows)%12 != 0 {
		return errEnd
	}
	s := t.s
	for i := 0; i < len(rows); i += 12 {
		if e := s.located(rows[i:]); e != success {
			return t.answer(e, 0, 0, nil)
		}
	}
	if of == 0 {
		return t.answer(s.d.call("cuMemSetAccess", uintptr(at), uintptr(n), addr(rows), uintptr(len(rows)/12)), 0, 0, nil)
	}
	s.mu.Lock()
	pool, e := s.get(at, wire.CUDAPool)
	s.mu.Unlock()
	if e == success {
		e = s.d.call("cuMemPoolSetAccess", pool.ptr, addr(rows), uintptr(len(rows)/12))
	}
	return t.answer(e, 0, 0, nil)
}
