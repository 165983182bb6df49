//go:build linux

package worker

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// capped is the size of the device's memory, or of a piece of it, as the task may have it.
func (s *Session) capped(data []byte) []byte {
	return binary.LittleEndian.AppendUint64(nil, min(binary.LittleEndian.Uint64(data), s.memory.Limit()))
}

func (o *object) unmap() {
	if o.shared != nil {
		unmapShared(o.shared)
		o.shared = nil
	}
	_ = o.file.Close() // or there is none
}

// sharedFrom is how large a buffer is that a program may map, too, once it has
// followed to where it was moved, and has the gate. It has a twin in shim/src/pool.h.
const sharedFrom = 32 << 10

// mostPromised is how many bytes of buffers a program may make without waiting for them: it is told with the answer
// to one that it waited for. They are not taken for it: if others of its task have them meanwhile, or the task may hold
// less, the task has more than that, by no more than this.
const mostPromised = 256 << 10

// promises is how many bytes of buffers the program may make from here on without waiting.
func (s *Session) promises() uint64 {
	limit := s.memory.Limit()
	return min(limit-min(s.memory.Used(), limit), mostPromised)
}

// createBuffer makes a buffer, if the task may hold as much. A shared one is a
// file in memory that the client maps too, and the device uses as its own. Small
// ones programs do not wait for, within what they are promised.
func (s *Session) createBuffer(m *message, b *wire.Body) error {
	var w [5]uint64 // context, number, flags, size, shared
	b.Words(w[:])
	host := b.Bytes()
	if b.Err() || w[3] == 0 || len(host) > 0 && uint64(len(host)) != w[3] || w[2]&clUseHostPtr != 0 {
		return errEnd
	}
	if w[3] > s.lib.number("clGetDeviceInfo", s.device, clDeviceMaxAllocation) {
		return s.refuseBuffer(m, w[1], clInvalidBufferSize)
	}
	over := uint64(0)
	if m.Flags&wire.FlagAnswer == 0 {
		over = mostPromised
	}
	if bad := s.take(w[3], over); bad != clSuccess {
		return s.refuseBuffer(m, w[1], bad)
	}
	defer s.hold.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c, bad := s.get(w[0], context)
	if bad != clSuccess {
		s.give(w[3])
		return s.refuseLocked(m, w[1], bad)
	}
	o := &object{kind: mem, bytes: w[3], size: w[3], parent: c, op: m.Op, made: words(w[0], w[1], w[2], w[3], 0, 0)}
	flags := w[2]
	if s.shares && (w[4] != 0 || s.gate.Load() == nil && w[3] >= sharedFrom) {
		fd, shared, err := sharedMemory(w[3])
		if err == nil {
			copy(shared, host)
			o.shared, o.file = shared, os.NewFile(uintptr(fd), "buffer")
			flags, host = flags&^clAllocHostPtr|clUseHostPtr, shared
		} else if w[4] != 0 {
			s.give(o.bytes)
			return s.refuseLocked(m, w[1], clAllocationFailure)
		}
	}
	if o.ptr, bad = s.newBuffer(c.ptr, flags, w[3], host); o.ptr == 0 {
		o.unmap()
		s.give(o.bytes)
		return s.refuseLocked(m, w[1], bad)
	}
	if err := s.keep(w[1], o); err != nil {
		return err
	}
	if m.Flags&wire.FlagAnswer == 0 {
		return nil
	}
	return s.answerMapped(m, o, 0, s.promises())
}

// refuseBuffer refuses to make a buffer.
func (s *Session) refuseBuffer(m *message, id uint64, bad int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuseLocked(m, id, bad)
}

// refuseLocked is refuseBuffer for who has the lock. If nobody waits for that, calls that name the buffer say it.
func (s *Session) refuseLocked(m *message, id uint64, bad int32) error {
	if m.Flags&wire.FlagAnswer != 0 {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	if err := s.mayName(id); err != nil {
		return err
	}
	if s.refused == nil {
		s.refused = map[uint64]int32{}
	}
	s.refused[id] = bad
	return nil
}

// answerMapped answers with what both map of an object, if there is something and the
// program is there: else it asks for that when it is. The caller has the lock.
func (s *Session) answerMapped(m *message, o *object, a, b uint64) error {
	if o.file == nil || s.gate.Load() == nil {
		return s.answerLocked(m, clSuccess, a, b, nil)
	}
	file := o.file
	o.file = nil
	defer file.Close()
	return s.sendFD(0, m.Call, a, b, int(file.Fd()))
}

// newBuffer makes a buffer of the device: of memory that it uses as its own, or copies, or of none.
func (s *Session) newBuffer(c uintptr, flags, size uint64, host []byte) (ptr uintptr, bad int32) {
	from, e := uintptr(0), cell()
	flags &^= clCopyHostPtr | clHostAccess // for moves and swaps it is read and written
	if len(host) > 0 {
		from = atData(host)
		if flags&clUseHostPtr == 0 {
			flags |= clCopyHostPtr
		}
	}
	ptr = s.lib.call("clCreateBuffer", c, uintptr(flags), uintptr(size), from, at(e))
	return ptr, int32(uint32(*e))
}

// newPart makes a part of a buffer.
func (s *Session) newPart(of uintptr, flags, origin, size uint64) (ptr uintptr, bad int32) {
	region, e := []uint64{origin, size}, cell()
	ptr = s.lib.call("clCreateSubBuffer", of, uintptr(flags&^clHostAccess), 0x1220, atWords(region), at(e))
	return ptr, int32(uint32(*e))
}

// margin is how much memory that is nobody's lies before and after a buffer's that both map. Programs read a little past what
// they have (OpenCV's pyrUp: one pixel), which drivers bear that take memory from a heap, or by large pages.
const margin = 64 << 10

// sharedMemory is a file in memory, mapped between margins.
func sharedMemory(size uint64) (fd int, mapped []byte, err error) {
	if fd, err = memoryFile(size); err != nil {
		return -1, nil, err
	}
	all, err := unix.MmapPtr(-1, 0, nil, around(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	at := unsafe.Add(all, margin)
	if _, err = unix.MmapPtr(fd, 0, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		_ = unix.MunmapPtr(all, around(size))
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, unsafe.Slice((*byte)(at), size), nil
}

// around is what memory takes with its margins.
func around(size uint64) uintptr {
	pages := uint64(os.Getpagesize()) - 1
	return uintptr((size+pages)&^pages + 2*margin)
}

func unmapShared(mapped []byte) {
	_ = unix.MunmapPtr(unsafe.Add(unsafe.Pointer(&mapped[0]), -margin), around(uint64(len(mapped)))) // it was mapped so
}

// sendFD answers with a descriptor.
func (s *Session) sendFD(flags uint16, call uint32, a, b uint64, fd int) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.sent++
	wire.PutAnswer(s.head[:], wire.OpAnswer, wire.FlagFD|flags, call, clSuccess, a, b, 0)
	return s.conn.write(s.head[:], nil, fd)
}

// answerLocked answers while the caller has the lock.
func (s *Session) answerLocked(m *message, status int32, a, b uint64, data []byte) error {
	if m.Flags&wire.FlagAnswer == 0 {
		return nil
	}
	return s.send(wire.OpAnswer, 0, m.Call, status, a, b, data)
}

// createPart makes a buffer of a part of a buffer, or of shared virtual memory.
func (s *Session) createPart(m *message, b *wire.Body) error {
	var w [5]uint64 // parent, number, flags, origin, size
	b.Words(w[:])
	if b.Err() {
		return errEnd
	}
	if bad := s.resident(0, false); bad != clSuccess {
		return s.refuseBuffer(m, w[1], bad)
	}
	defer s.hold.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	parent, bad := s.get(w[0], mem)
	o := &object{kind: mem, size: w[4], parent: parent, op: m.Op, made: words(w[:]...)}
	switch {
	case bad != clSuccess:
	case m.Op == wire.OpCreateSubBuffer:
		o.ptr, bad = s.newPart(parent.ptr, w[2], w[3], w[4])
	case parent.svm == nil || w[3] > parent.size || w[4] > parent.size-w[3]:
		bad = clInvalidBufferSize
	default:
		o.ptr, bad = s.bufferAt(contextOf(parent).ptr, w[2], w[4], parent.svm.at+uintptr(w[3]))
	}
	if bad != clSuccess {
		return s.refuseLocked(m, w[1], bad)
	}
	return s.made(m, w[1], o, bad, nil)
}

// imageDesc is cl_image_desc.
type imageDesc struct {
	kind, _                     uint32
	width, height, depth, array uint64
	rowPitch, _                 uint64
	levels, samples             uint32
	buffer                      uintptr
}

// createImage makes an image. How much it takes is known when it is there: what
// is more than the task may hold is given back at once.
func (s *Session) createImage(m *message, b *wire.Body) error {
	var w [14]uint64 // context, number, flags, order, type, kind, width, height, depth, array, row pitch, levels, samples, buffer
	b.Words(w[:])
	host := b.Bytes()
	if b.Err() || w[2]&clUseHostPtr != 0 {
		return errEnd
	}
	if w[11] > 1 || w[12] > 1 { // they would take more than is counted
		return s.answer(m, -65, 0, 0, nil) // CL_INVALID_IMAGE_DESCRIPTOR
	}
	if w[13] == 0 {
		w[10] = 0 // rows are packed
	}
	pixel, extent := pixelSize(uint32(w[3]), uint32(w[4])), imageDescOf(&w, 0).extent()
	need := pixel
	for _, n := range extent {
		if n != 0 && need > s.limit/n+1 {
			return s.answer(m, -40, 0, 0, nil) // CL_INVALID_IMAGE_SIZE
		}
		need *= max(n, 1)
	}
	if len(host) > 0 && uint64(len(host)) != need {
		return errEnd
	}
	size := need
	if w[13] != 0 {
		need = 0 // it is the buffer's
	}
	if bad := s.take(need, 0); bad != clSuccess {
		return s.answer(m, bad, 0, 0, nil)
	}
	defer s.hold.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c, bad := s.get(w[0], context)
	parent, of := c, uintptr(0)
	if w[13] != 0 {
		o, e := s.get(w[13], mem)
		if e != clSuccess {
			bad = e
		} else {
			parent, of = o, o.ptr
		}
	}
	ptr := uintptr(0)
	if bad == clSuccess {
		ptr, bad = s.newImage(c.ptr, &w, of, host)
	}
	if ptr == 0 {
		s.give(need)
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	o := &object{kind: mem, ptr: ptr, bytes: need, size: size, pixel: pixel, parent: parent, op: m.Op, made: append(words(w[:]...), words(0)...), extent: extent}
	if err := s.keep(w[1], o); err != nil {
		return err
	}
	return s.answerLocked(m, clSuccess, 0, 0, nil)
}

// imageDescOf reads what a message says of an image, of a buffer's memory or its own.
func imageDescOf(w *[14]uint64, buffer uintptr) *imageDesc {
	return &imageDesc{kind: uint32(w[5]), width: w[6], height: w[7], depth: w[8], array: w[9], rowPitch: w[10], levels: uint32(w[11]), samples: uint32(w[12]), buffer: buffer}
}

// newImage makes an image of the device, as a message says.
func (s *Session) newImage(c uintptr, w *[14]uint64, buffer uintptr, host []byte) (ptr uintptr, bad int32) {
	format, descs, from, e := []uint64{w[3]&0xFFFFFFFF | w[4]<<32}, []imageDesc{*imageDescOf(w, buffer)}, uintptr(0), cell()
	flags := w[2] &^ (clCopyHostPtr | clHostAccess)
	if len(host) > 0 {
		from, flags = atData(host), flags|clCopyHostPtr
	}
	ptr = s.lib.call("clCreateImage", c, uintptr(flags), atWords(format), atWords(descs), from, at(e))
	return ptr, int32(uint32(*e))
}

// extent is how many pixels, rows and slices an image has.
func (d *imageDesc) extent() [3]uint64 {
	switch d.kind {
	case 0x10F1: // 2D
		return [3]uint64{d.width, d.height, 1}
	case 0x10F2: // 3D
		return [3]uint64{d.width, d.height, d.depth}
	case 0x10F3: // 2D array
		return [3]uint64{d.width, d.height, d.array}
	case 0x10F5: // 1D array
		return [3]uint64{d.width, d.array, 1}
	}
	return [3]uint64{d.width, 1, 1}
}

// pixelSize is how many bytes a pixel of a format has. It has a twin in shim/src/memory.c.
func pixelSize(order, kind uint32) uint64 {
	channels := uint64(4)
	switch order {
	case 0x10B0, 0x10B1, 0x10B8, 0x10B9, 0x10BA, 0x10BD: // R, A, intensity, luminance, Rx, depth
		channels = 1
	case 0x10B2, 0x10B3, 0x10BB: // RG, RA, RGx
		channels = 2
	case 0x10B4, 0x10BC, 0x10BF: // RGB, RGBx, sRGB
		channels = 3
	}
	switch kind {
	case 0x10D0, 0x10D2, 0x10D7, 0x10DA:
		return channels
	case 0x10D1, 0x10D3, 0x10D8, 0x10DB, 0x10DD:
		return 2 * channels
	case 0x10D4, 0x10D5:
		return 2
	case 0x10D6, 0x10E0:
		return 4
	}
	return 4 * channels
}

func (s *Session) imageFormats(m *message, b *wire.Body) error {
	var w [3]uint64 // context, flags, kind
	b.Words(w[:])
	if b.Err() {
		return errEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, bad := s.get(w[0], context)
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	n := cell()
	bad = s.lib.status("clGetSupportedImageFormats", c.ptr, uintptr(w[1]), uintptr(uint32(w[2])), 0, 0, at(n))
	formats := make([]byte, 8*uint32(*n))
	if bad == clSuccess && len(formats) > 0 {
		bad = s.lib.status("clGetSupportedImageFormats", c.ptr, uintptr(w[1]), uintptr(uint32(w[2])), uintptr(uint32(*n)), atBytes(formats), 0)
	}
	return s.answerLocked(m, bad, 0, 0, formats)
}

const (
	shapeBuffer = iota
	shapeRect
	shapeImage
)

// transfer reads or writes memory of the device. Rows are packed on the wire.
func (s *Session) transfer(m *message, b *wire.Body) error {
	var w [14]uint64 // queue, memory, shape, waited for, origin, region, row pitch, slice pitch, bytes, number
	b.Words(w[:])
	posted := m.Flags&wire.FlagAnswer == 0
	room := w[3] != 0 && !posted || s.makeRoom(m.Op == wire.OpRead, w[12])
	bad := s.resident(0, false)
	leave := func() {}
	if bad == clSuccess {
		leave = s.hold.RUnlock
	}
	if bad == clSuccess && !room {
		bad = clOutOfResources
	}
	s.mu.Lock()
	q, e := s.get(w[0], queue)
	if bad == clSuccess {
		bad = e
	}
	if posted && w[3] != 0 && m.Op == wire.OpWrite && q != nil && !q.loose && len(s.queues) == 1 { // what comes is behind it anyway
		w[3], s.ahead = 0, true
	}
	o, e := s.get(w[1], mem)
	if bad == clSuccess {
		bad = e
	}
	list, e := s.list(m, b, event)
	if bad == clSuccess {
		bad = e
	}
	out, total, blocking := b.Word(), w[12], w[3] != 0
	if bad == clSuccess && total > o.size {
		bad = clInvalidValue
	}
	if out != 0 && s.full(1) {
		bad, out = clOutOfHostMemory, 0
	}
	reads := m.Op == wire.OpRead
	var data []byte
	switch {
	case !reads:
		data = b.Bytes()
		if uint64(len(data)) != total {
			total = 0
		}
	case total <= s.limit && bad == clSuccess && total <= rowsFit(w, o):
		if !blocking || total > keepBody {
			data = s.rooms.take(int(total))
			break
		}
		if uint64(cap(m.stage)) < total {
			m.stage = make([]byte, total)
		}
		data = m.stage[:total]
	}
	if b.Err() || bad == clSuccess && (total == 0 || total != uint64(len(data)) || total != rowsFit(w, o)) {
		s.mu.Unlock()
		leave()
		return errEnd
	}
	if bad != clSuccess {
		leave()
		return s.refuseTransfer(m, w[13], out, q, bad)
	}
	for _, x := range list {
		s.lib.call("clRetainEvent", uintptr(x))
	}
	if s.users > 0 {
		m.names = append(m.names, o)
	}
	h, wanted := s.watch(m, q)
	if h != nil && !s.mayKeep(h.kept) {
		for _, x := range list {
			s.lib.call("clReleaseEvent", uintptr(x))
		}
		leave()
		return s.refuseTransfer(m, w[13], out, q, clOutOfHostMemory)
	}
	// Nothing is given to the queue meanwhile, and who waits does so for its event: a blocking call
	// would be in the way of what other threads do, and some drivers' waits for what these give to the queue, too.
	ordered := s.users > 0 || m.Flags&wire.FlagThreads != 0
	own := m.args.take(1)
	own[0] = 0
	waitsN, waitsAt := uintptr(len(list)), atWords(list)
	if len(list) == 0 {
		waitsAt = 0
	}
	name := map[bool]string{true: "clEnqueueRead", false: "clEnqueueWrite"}[reads]
	block := uintptr(0)
	if blocking && !ordered {
		block = 1
	}
	origin, region := m.args.take(3), m.args.take(3)
	copy(origin, w[4:7])
	copy(region, w[7:10])
	over, before := func(int32) {}, workOf(q)
	if blocking {
		over = s.waits(before)
	}
	if !ordered {
		s.mu.Unlock()
	}
	switch w[2] {
	case shapeBuffer:
		bad = s.lib.status(name+"Buffer", q.ptr, o.ptr, block, uintptr(w[4]), uintptr(total), atData(data), waitsN, waitsAt, atWords(own))
	case shapeRect:
		zero := m.args.take(3)
		clear(zero)
		bad = s.lib.status(name+"BufferRect", q.ptr, o.ptr, block, atWords(origin), atWords(zero), atWords(region), uintptr(w[10]), uintptr(w[11]), 0, 0, atData(data), waitsN, waitsAt, atWords(own))
	default:
		bad = s.lib.status(name+"Image", q.ptr, o.ptr, block, atWords(origin), atWords(region), 0, 0, atData(data), waitsN, waitsAt, atWords(own))
	}
	q.fed.Add(1)
	if block != 0 && bad == clSuccess && s.lib.forgets {
		if bad = s.lib.status("clWaitForEvents", 1, atWords(own)); bad != clSuccess {
			s.lib.call("clReleaseEvent", uintptr(own[0]))
		}
	}
	if !ordered || bad != clSuccess {
		over(bad)
	}
	leave() // who waits for an answer does not keep memory
	if !ordered {
		s.mu.Lock()
	}
	for _, x := range list {
		s.lib.call("clReleaseEvent", uintptr(x))
	}
	if bad != clSuccess {
		return s.refuseTransfer(m, w[13], out, q, bad)
	}
	ptr := uintptr(own[0])
	var err error
	var made *object
	if out != 0 {
		s.lib.call("clRetainEvent", ptr)
		made = &object{kind: event, ptr: ptr, work: before}
		err = s.keep(out, made)
	}
	if wanted {
		s.lib.call("clRetainEvent", ptr)
		s.keepHeld(h, m, ptr, made)
	}
	switch {
	case blocking && ordered && err == nil:
		return s.waitFor(h, own, func(bad int32) error {
			over(bad)
			if !reads || bad != clSuccess {
				data = nil
			}
			err := s.answer(m, bad, 1, 0, data) // the next finish may have something to tell
			s.rooms.give(data)
			return err
		})
	case blocking:
		s.lib.call("clReleaseEvent", ptr)
	case reads:
		q.reads++
		s.reads = append(s.reads, read{landing: w[13], event: ptr, data: data, work: upToNow(q)})
		s.heldReads += uint64(len(data))
		s.staged.Store(true)
	default:
		room := m.body
		if h != nil { // who has it, too
			room = nil
		}
		m.taken = true
		s.writes = append(s.writes, read{event: ptr, data: data, room: room})
		s.heldWrites += uint64(len(data))
		s.staged.Store(true)
	}
	told := s.untold()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !blocking || !reads {
		data = nil
	}
	err = s.answer(m, bad, told, 0, data)
	s.rooms.give(data)
	return err
}

// refuseTransfer gives the lock back.
func (s *Session) refuseTransfer(m *message, landing, out uint64, q *object, bad int32) error {
	waited := m.Flags&wire.FlagAnswer != 0
	var err error
	if out != 0 && !waited {
		err = s.keep(out, &object{kind: event, status: bad})
	}
	if q != nil && !waited {
		q.status = bad
	}
	if m.Op == wire.OpRead && len(s.reads) >= s.bounds.reads {
		err = errFull
	} else if m.Op == wire.OpRead && landing != 0 {
		s.reads = append(s.reads, read{landing: landing}) // the client has a place for it, which it may forget
		s.staged.Store(true)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.answer(m, bad, 0, 0, nil)
}

// rowsFit is how many bytes a transfer's rows have, or 0 if its region is none.
func rowsFit(w [14]uint64, o *object) uint64 {
	n := uint64(1)
	if (w[2] == shapeImage) != (o.pixel != 0) {
		return 0
	}
	if o.pixel != 0 {
		n = o.pixel
	}
	for _, x := range w[7:10] {
		if x == 0 || n > 1<<48/x {
			return 0
		}
		n *= x
	}
	return n
}
