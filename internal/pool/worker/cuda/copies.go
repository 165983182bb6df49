//go:build linux

package cuda

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Copies to and from the program go through memory that the driver has pinned:
// only from and to such memory does it copy while it returns. An event says when
// one is done.

// stage is such memory. It ends with the context it was made in.
type stage struct {
	context uintptr
	ptr     uintptr
	b       []byte
}

// pending is a copy that nobody waits for.
type pending struct {
	stage   *stage // nil: it failed
	event   uintptr
	landing uint64 // of one to the program; 0: it is one from there
	n       int
}

// holds is how many bytes it keeps.
func (p pending) holds() int {
	if p.stage == nil {
		return 0
	}
	return len(p.stage.b)
}

type copies struct {
	mu      sync.Mutex // guards what follows
	free    []*stage
	kept    int // bytes of these
	events  map[uintptr][]uintptr
	pending []pending
	reads   int // bytes of pending ones to the program
	writes  int // and from there
}

const (
	smallestStage = 64 << 10
	mostKept      = 128 << 20
	// mostHeld is how many bytes of copies from the program that nobody waits for are
	// held before the next one waits for them. Those to the program cannot be waited
	// for: it takes their data when it waits for an answer. Clients have half as many
	// under way, in stages of up to twice their size.
	mostHeld  = 256 << 20
	mostReads = 2 * mostHeld
)

func stageSize(n int) int {
	size := smallestStage
	for size < n {
		size *= 2
	}
	return size
}

// stage finds memory of n bytes or more in the current context.
func (t *thread) stage(n int) (*stage, int32) {
	s, c, size, context := t.s, &t.s.copies, stageSize(n), t.context()
	if context == 0 {
		return nil, invalidContext
	}
	c.mu.Lock()
	if i := slices.IndexFunc(c.free, func(x *stage) bool { return x.context == context && len(x.b) == size }); i >= 0 {
		x := c.free[i]
		c.free = slices.Delete(c.free, i, i+1)
		c.kept -= size
		c.mu.Unlock()
		return x, success
	}
	c.mu.Unlock()
	const cell = 44
	var r int32
	t.quietly(func() { r = s.d.call("cuMemAllocHost_v2", t.cells.at(cell), uintptr(size)) })
	if r != success {
		return nil, r
	}
	ptr := uintptr(t.cells[cell])
	return &stage{context, ptr, unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&ptr))), size)}, success
}

// unstage keeps memory for the next copy. The caller has the lock of the copies.
func (t *thread) unstage(x *stage) {
	c := &t.s.copies
	if c.kept+len(x.b) <= mostKept {
		c.free = append(c.free, x)
		c.kept += len(x.b)
		return
	}
	t.in(x.context, func() { t.quietly(func() { t.s.d.at(t.s.d.find("cuMemFreeHost"), x.ptr) }) })
}

// event finds an event of the current context.
func (t *thread) event() (uintptr, int32) {
	s, c, context := t.s, &t.s.copies, t.context()
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.events[context]; len(all) > 0 {
		c.events[context] = all[:len(all)-1]
		return all[len(all)-1], success
	}
	const cell = 45
	t.cells[cell] = 0
	r := s.d.call("cuEventCreate", t.cells.at(cell), untimed|sleeping)
	return uintptr(t.cells[cell]), r
}

// unevent keeps an event for the next copy. The caller has the lock of the copies.
func (c *copies) unevent(context, event uintptr) {
	if c.events == nil {
		c.events = map[uintptr][]uintptr{}
	}
	c.events[context] = append(c.events[context], event)
}

// copy makes a copy of n bytes through a stage, and waits for it or does not. What
// was copied to the program is in the answer, or is sent when it is done.
func (t *thread) copy(n int, data []byte, stream uintptr, wait bool, landing uint64, do func(x *stage) int32) error {
	s, c := t.s, &t.s.copies
	out := data == nil
	if t.s.captures.Load() > 0 && t.captures(stream) {
		return t.copyFailed(captureUnsupported, landing) // what is captured is done again, when the program's memory is not here
	}
	if !wait && !t.makeRoom(out, stageSize(n)) {
		return t.copyFailed(outOfMemory, landing)
	}
	x, r := t.stage(n)
	if r != success {
		return t.copyFailed(r, landing)
	}
	e, r := t.event()
	begun := false // then the device may still use the stage
	if r == success {
		copy(x.b, data)
		r = t.work(stream, func() int32 {
			r := do(x)
			if begun = r == success; begun {
				r = s.d.call("cuEventRecord", e, stream)
			}
			return r
		})
	}
	if r != success {
		c.mu.Lock()
		if !begun {
			t.unstage(x)
		}
		if e != 0 {
			c.unevent(x.context, e)
		}
		c.mu.Unlock()
		return t.copyFailed(r, landing)
	}
	if !wait {
		c.mu.Lock()
		c.add(pending{x, e, landing, n}, 1)
		c.pending = append(c.pending, pending{x, e, landing, n})
		c.mu.Unlock()
		return t.answer(success, 0, 0, nil)
	}
	r = s.late(t.waits(func() int32 { return s.d.call("cuEventSynchronize", e) }))
	var err error
	if out && r == success {
		err = t.answer(r, 0, 0, x.b[:n])
	} else {
		err = t.answer(r, 0, 0, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.unstage(x)
	c.unevent(x.context, e)
	return err
}

// add counts what a pending copy holds, once more or less. The caller has the lock.
func (c *copies) add(p pending, times int) {
	if p.landing != 0 {
		c.reads += times * p.holds()
	} else {
		c.writes += times * p.holds()
	}
}

// copyFailed answers a copy that was not made. Who waits for its data gets none, with
// the next answer: until then it may not read.
func (t *thread) copyFailed(r int32, landing uint64) error {
	if landing != 0 {
		c := &t.s.copies
		c.mu.Lock()
		c.pending = append(c.pending, pending{landing: landing})
		c.mu.Unlock()
	}
	return t.answer(r, 0, 0, nil)
}

// makeRoom waits until n bytes more can be held for a copy to the program, or from
// there, and reports whether they can.
func (t *thread) makeRoom(out bool, n int) bool {
	s, c := t.s, &t.s.copies
	for {
		c.mu.Lock()
		_ = t.settle(false) // it sends nothing
		i := slices.IndexFunc(c.pending, func(p pending) bool { return p.landing == 0 })
		if out || i < 0 || c.writes+n <= mostHeld {
			ok := !out || c.reads == 0 || c.reads+n <= mostReads
			c.mu.Unlock()
			return ok
		}
		first := c.pending[i]
		c.mu.Unlock()
		t.in(first.stage.context, func() { t.quietly(func() { s.d.call("cuEventSynchronize", first.event) }) })
	}
}

// sendReads sends what was copied meanwhile, before an answer that may tell the
// client that it was.
func (t *thread) sendReads() error {
	c := &t.s.copies
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.settle(true)
}

// settle forgets copies that are done; those to the program only when their data may
// be sent. The caller has the lock of the copies.
func (t *thread) settle(sends bool) error {
	s, c := t.s, &t.s.copies
	if len(c.pending) == 0 {
		return nil
	}
	left := c.pending[:0]
	var err error
	t.quietly(func() {
		for _, p := range c.pending {
			if p.landing != 0 && !sends || err != nil {
				left = append(left, p)
				continue
			}
			if p.stage == nil {
				err = s.send(wire.OpData, 0, success, p.landing, 0, nil)
				continue
			}
			var r int32
			t.in(p.stage.context, func() { r = s.d.call("cuEventQuery", p.event) })
			if r == notReady {
				left = append(left, p)
				continue
			}
			if p.landing != 0 {
				data := p.stage.b[:p.n]
				if r != success {
					data = nil
				}
				err = s.send(wire.OpData, 0, success, p.landing, 0, data)
			}
			c.add(p, -1)
			t.unstage(p.stage)
			c.unevent(p.stage.context, p.event)
		}
	})
	clear(c.pending[len(left):])
	c.pending = left
	return err
}

// finishCopies waits for the copies of a context that is about to end, as that does.
func (t *thread) finishCopies(context uintptr) {
	s, c := t.s, &t.s.copies
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if p.stage != nil && p.stage.context == context {
			t.in(context, func() { t.quietly(func() { s.d.call("cuEventSynchronize", p.event) }) })
		}
	}
	_ = t.settle(true) // if the program is gone, so is this process in a moment
}

// endCopies forgets what a context that ends had, whose copies are finished.
func (s *Session) endCopies(context uintptr) {
	c := &s.copies
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = slices.DeleteFunc(c.free, func(x *stage) bool {
		if x.context == context {
			c.kept -= len(x.b)
		}
		return x.context == context
	})
	delete(c.events, context)
}

// stream reads which stream a copy is for.
func (t *thread) stream(b *wire.Body) (uintptr, int32) {
	id := b.Word()
	if id <= ownStream {
		return uintptr(id), success
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	o, e := t.s.get(id, wire.CUDAStream)
	if e != success {
		return 0, e
	}
	return o.ptr, success
}

func (t *thread) copyIn(b *wire.Body) error {
	stream, e := t.stream(b)
	wait, to := b.Word() != 0, uintptr(b.Word())
	data := b.Bytes()
	if b.Err() || len(data) == 0 {
		return errEnd
	}
	if e != success {
		return t.answer(e, 0, 0, nil)
	}
	return t.copy(len(data), data, stream, wait, 0, func(x *stage) int32 {
		return t.s.d.call("cuMemcpyHtoDAsync_v2", to, x.ptr, uintptr(len(data)), stream)
	})
}

// mostCopy is how many bytes a copy to the program has at most; clients make pieces.
const mostCopy = 1 << 30

func (t *thread) copyOut(b *wire.Body) error {
	stream, e := t.stream(b)
	b.Word() // whether it is waited for, which the landing says
	landing, from, n := b.Word(), uintptr(b.Word()), b.Word()
	if b.Err() || n == 0 || n > mostCopy {
		return errEnd
	}
	if e != success {
		return t.copyFailed(e, landing)
	}
	return t.copy(int(n), nil, stream, landing == 0, landing, func(x *stage) int32 {
		return t.s.d.call("cuMemcpyDtoHAsync_v2", x.ptr, from, uintptr(n), stream)
	})
}

// Kinds of memory in copies of boxes.
const (
	inProgram = 1
	inDevice  = 2
	inArray   = 3
)

// The words of CUDA_MEMCPY3D: two ends, and the extent.
const (
	endX = iota
	endY
	endZ
	endLOD
	endType // an int
	endHost
	endDevice
	endArray
	endNone
	endPitch
	endHeight
	endWords
	boxWidth = 2 * endWords
	boxWords = boxWidth + 3
)

func (t *thread) copyBox(b *wire.Body) error {
	s := t.s
	stream, e := t.stream(b)
	wait := b.Word() != 0
	var extent [3]uint64
	b.Words(extent[:])
	box := make([]uint64, boxWords)
	copy(box[boxWidth:], extent[:])
	types := [2]uint64{}
	for i, at := range [2]int{endWords, 0} { // where to, where from
		var w [8]uint64
		b.Words(w[:])
		x := box[at:][:endWords]
		types[i] = w[0]
		x[endType], x[endX], x[endY], x[endZ], x[endLOD], x[endPitch], x[endHeight] = w[0], w[1], w[2], w[3], w[4], w[6], w[7]
		switch w[0] {
		case inProgram:
			x[endPitch], x[endHeight] = extent[0], extent[1]
		case inDevice:
			x[endDevice] = w[5]
		case inArray:
			s.mu.Lock()
			o, bad := s.get(w[5], wire.CUDAArray)
			s.mu.Unlock()
			if bad != success {
				e = bad
			} else {
				x[endArray] = uint64(o.ptr)
			}
		default:
			return errEnd
		}
	}
	landing := b.Word()
	n := extent[0]
	for _, x := range extent[1:] {
		if x != 0 && n > mostCopy/x {
			return errEnd
		}
		n *= x
	}
	to, from := types[0] == inProgram, types[1] == inProgram
	if b.Err() || n == 0 || n > mostCopy || to && from {
		return errEnd
	}
	var data []byte
	if from {
		if data = b.Bytes(); b.Err() || uint64(len(data)) != n {
			return errEnd
		}
	}
	make3 := func() int32 { return s.d.call("cuMemcpy3DAsync_v2", addr(box), stream) }
	defer runtime.KeepAlive(box)
	if e != success {
		return t.copyFailed(e, landing)
	}
	switch {
	case to:
		return t.copy(int(n), nil, stream, landing == 0, landing, func(x *stage) int32 {
			box[endWords+endHost] = uint64(x.ptr)
			return make3()
		})
	case from:
		return t.copy(int(n), data, stream, wait, 0, func(x *stage) int32 {
			box[endHost] = uint64(x.ptr)
			return make3()
		})
	}
	r := t.work(stream, make3)
	if r == success && wait {
		r = s.late(t.waits(func() int32 { return s.d.at(s.d.byOp[wire.CUDAStreamSynchronize], stream) }))
	}
	return t.answer(r, 0, 0, nil)
}
