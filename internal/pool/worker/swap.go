//go:build linux

package worker

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// All tasks of a device together may have more memory than it has. What is on
// the device is counted in a page of the device, as what a task has is in the
// task's (Memory). A worker that finds no room there asks the node for it, in
// its turn; the node has others take all of theirs off, and those put it back in
// a turn of their own, when they next use it:
//
//	on the device ── the node says evict: drained, copied to the host, released ──▶ off
//	              ◀── in a turn, when there is room: made again of the copies ─────
//
// Handles of OpenCL change by that, so whoever uses one holds Session.hold for
// reading from when it looks it up. What commands name that wait for events which the
// program has not set (held.go) stays on the device meanwhile. Memory of this
// process that the device uses as its own (what the program maps, too, and shared virtual
// memory) is not copied: it is off when the device has no handle of it.

// take counts n bytes that are to be made as the task's and as on the device:
// all or none. With them the caller has hold for reading.
func (s *Session) take(n, over uint64) int32 {
	s.mu.Lock()
	s.bury()
	s.mu.Unlock()
	if !s.memory.TakeOver(n, over) {
		return clAllocationFailure
	}
	bad := s.resident(n, false)
	if bad != clSuccess {
		s.memory.Give(n)
	}
	return bad
}

// give gives back what take took.
func (s *Session) give(n uint64) {
	s.card.Give(n)
	s.memory.Give(n)
}

// resident returns when the session's memory is on the device with n bytes more
// that are counted as its own. The caller has hold for reading then, if it succeeds.
func (s *Session) resident(n uint64, inTurn bool) int32 {
	for {
		s.hold.RLock()
		if !s.out && s.card.Take(n) {
			return clSuccess
		}
		s.hold.RUnlock()
		if bad := s.bring(n, inTurn); bad != clSuccess {
			return bad
		}
	}
}

// bring makes room for n bytes and what is off, and puts that back. If another
// was quicker to use the room, it is off as before.
func (s *Session) bring(n uint64, inTurn bool) int32 {
	if !inTurn {
		s.turn.Take()
		defer s.turn.Done()
	}
	s.hold.RLock()
	s.mu.Lock()
	for _, o := range s.memories() {
		if o.off != nil {
			n += o.bytes
		}
	}
	s.mu.Unlock()
	s.hold.RUnlock()
	if n > s.card.Limit() {
		return clAllocationFailure
	}
	there := s.turn.room(n)
	began, bad := time.Now(), int32(clSuccess)
	switch {
	case there && s.isOut():
		s.hold.Lock()
		if s.out {
			bad = s.putBack()
		}
		s.hold.Unlock()
	case !there:
		bad = clAllocationFailure
	}
	s.turn.loaded(time.Since(began))
	return bad
}

// isOut says whether memory is off the device. If it is not, who waits for the device
// may hold it, and who brings memory does not wait for that.
func (s *Session) isOut() bool {
	s.hold.RLock()
	defer s.hold.RUnlock()
	return s.out
}

// memories are all objects of memory, in the order in which they were made. The caller has the lock.
func (s *Session) memories() []*object {
	var all []*object
	for _, from := range []map[uint64]*object{s.objects, s.ghosts} {
		for _, o := range from {
			if o.kind == mem {
				all = append(all, o)
			}
		}
	}
	for _, o := range s.dying { // what nothing is made of, but the device still uses
		if s.ghosts[o.id] != o {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *object) int { return int(a.order) - int(b.order) })
	return all
}

// evict takes the session's memory off the device.
func (s *Session) evict() {
	s.hold.Lock()
	defer s.hold.Unlock()
	if s.out {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for done := false; !done; done = len(s.freed) == 0 { // else the program has set an event just now
		s.mu.Unlock()
		s.drain()
		s.mu.Lock()
	}
	s.takeOff()
}

// takeOff copies all memory to the host and releases it. The caller has hold and the lock.
func (s *Session) takeOff() {
	s.out = true
	s.bury()
	s.eachMemArg(func(k *object, i, bytes uint64, o *object) {
		if o.pixel == 0 { // some drivers' kernels keep what they were given
			none := []uint64{0}
			s.lib.call("clSetKernelArg", k.ptr, uintptr(uint32(i)), uintptr(bytes), atWords(none))
		}
	})
	all := s.memories()
	for _, o := range all {
		if o.stays = o.stays && len(s.freed) > 0; o.named > 0 { // or was, by what runs now
			for p := o; p.kind == mem; p = p.parent {
				p.stays = true
			}
		}
	}
	for _, o := range slices.Backward(all) { // parts before what they are of
		if o.stays {
			continue
		}
		if o.bytes == 0 && o.ptr != 0 && !o.released {
			s.lib.call("clReleaseMemObject", o.ptr)
		}
		if o.bytes == 0 {
			o.ptr = 0
		}
	}
	queues := map[uint64]uintptr{}
	for _, o := range all {
		if o.bytes == 0 || o.stays || o.off != nil || o.svm != nil && o.svm.driver != 0 {
			continue
		}
		host := o.inPlace()
		if host == nil {
			var err error
			if host, err = unix.Mmap(-1, 0, int(o.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
				continue // it stays
			}
			c := contextOf(o)
			if queues[c.id] == 0 {
				queues[c.id] = s.lib.call("clCreateCommandQueue", c.ptr, s.devicesOf(c)[0], 0, at(cell()))
			}
			if s.readAll(queues[c.id], o, host) != clSuccess {
				_ = unix.Munmap(host) // it stays
				continue
			}
		}
		s.lib.call("clReleaseMemObject", o.ptr)
		o.ptr, o.off = 0, host
		s.card.Give(o.bytes)
	}
	for _, q := range queues {
		s.lib.call("clReleaseCommandQueue", q)
	}
}

// readAll reads what is in a buffer or image.
func (s *Session) readAll(q uintptr, o *object, to []byte) int32 {
	if o.pixel > 0 {
		origin, region := make([]uint64, 3), o.extent[:]
		return s.lib.status("clEnqueueReadImage", q, o.ptr, 1, atWords(origin), atWords(region), 0, 0, atData(to), 0, 0, 0)
	}
	return s.lib.status("clEnqueueReadBuffer", q, o.ptr, 1, 0, uintptr(len(to)), atData(to), 0, 0, 0)
}

// putBack puts all memory back, or none of it. The caller has hold.
func (s *Session) putBack() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var passing []uintptr // which the program has released, but others are made of
	defer func() {
		for _, ptr := range passing {
			s.lib.call("clReleaseMemObject", ptr)
		}
	}()
	for _, o := range s.memories() {
		if o.bytes > 0 && o.off == nil || o.stays {
			continue // it had stayed
		}
		bad, full := int32(clSuccess), !s.card.Take(o.bytes)
		if !full {
			o.ptr, bad = s.remake(o)
		}
		if full || bad != clSuccess {
			if !full {
				s.card.Give(o.bytes)
			}
			s.takeOff()
			return bad
		}
		if o.bytes > 0 {
			o.unmapOff()
		} else if o.released {
			passing = append(passing, o.ptr)
		}
	}
	s.eachMemArg(func(k *object, i, bytes uint64, o *object) {
		slot := []uint64{uint64(o.ptr)}
		s.lib.call("clSetKernelArg", k.ptr, uintptr(uint32(i)), uintptr(bytes), atWords(slot)) // it went well before
	})
	s.out = false
	return clSuccess
}

// remake makes memory again as a message once did.
func (s *Session) remake(o *object) (ptr uintptr, bad int32) {
	var w [14]uint64
	made := wire.NewBody(o.made)
	made.Words(w[:min(len(o.made)/8, len(w))])
	c := contextOf(o).ptr
	switch {
	case o.op == wire.OpCreateSubBuffer:
		return s.newPart(o.parent.ptr, w[2], w[3], w[4])
	case o.op == wire.OpCreateSvmBuffer:
		return s.bufferAt(c, w[2], w[4], o.parent.svm.at+uintptr(w[3]))
	case o.op == wire.OpCreateSvm:
		return s.bufferAt(c, w[2], w[3], o.svm.at)
	case o.op == wire.OpCreateImage && o.parent.kind == mem:
		return s.newImage(c, &w, o.parent.ptr, nil)
	case o.op == wire.OpCreateImage:
		return s.newImage(c, &w, 0, o.off)
	}
	if o.shared != nil {
		w[2] = w[2]&^clAllocHostPtr | clUseHostPtr
	}
	return s.newBuffer(c, w[2], w[3], o.off)
}

// inPlace is memory of this process that the device uses as its own.
func (o *object) inPlace() []byte {
	if o.svm != nil {
		return o.svm.bytes()
	}
	return o.shared
}

// eachMemArg calls do for each argument of kernels that is memory. The caller has the lock.
func (s *Session) eachMemArg(do func(k *object, i, bytes uint64, o *object)) {
	for _, k := range s.objects {
		if k.kind != kernel {
			continue
		}
		for i, body := range k.args {
			b := wire.NewBody(body[16:]) // behind kernel and argument
			if bytes := b.Word(); b.Word() == argHandle {
				if o := s.objects[b.Word()]; o != nil && o.kind == mem {
					do(k, i, bytes, o)
				}
			}
		}
	}
}

func (o *object) unmapOff() {
	if o.inPlace() == nil {
		_ = unix.Munmap(o.off) // it was mapped so
	}
	o.off = nil
}
