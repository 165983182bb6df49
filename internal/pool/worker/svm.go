//go:build linux

package worker

import (
	"cmp"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Shared virtual memory (of the coarse-grained kind, in buffers) has one address
// in the program and for kernels. A program copies to and from it when it maps
// and unmaps it, as it does with buffers; what it is here is a buffer over that
// memory, so that it is counted, read, written, taken off and moved as one.
//
// On a device that computes in this process any memory of it will do (places):
// it is put where the program has kept room, and taken off and put back there.
// Both map the same where buffers can be shared. Elsewhere the driver says where it
// is, and the program has it there if it can; it stays on the device then.
// If it has something there it gives that back and asks again, not for there.

// How memory is asked for.
const (
	svmAlone  = iota
	svmShared // the program would map it, too
	svmThere  // at this address only: it is made again
)

// mostPage is the size of the largest page that a program's machine may have.
const mostPage = 1 << 20

// mostTaken is how many times another place is looked for.
const mostTaken = 64

// region is shared virtual memory.
type region struct {
	at      uintptr
	here    unsafe.Pointer // it is mapped by this process, which is bytes long
	length  uintptr
	driver  uintptr // what the driver's function returned
	context uintptr // retained
}

// offersSVM says whether the device has such memory. What others cannot have back
// is not lent where a card's memory is lent more than once.
func (s *Session) offersSVM() bool {
	return s.lib.functions["clSVMAlloc"] != 0 && s.lib.number("clGetDeviceInfo", s.device, clDeviceSVM)&clCoarseGrain != 0 && (!s.card.Over() || s.places())
}

// placesSVM tries whether a kernel of a device that is a processor may be given
// the address of any memory of this process.
func (s *Session) placesSVM() bool {
	if s.lib.number("clGetDeviceInfo", s.device, clDeviceType)&clTypeCPU == 0 || s.lib.number("clGetDeviceInfo", s.device, clDeviceUnified) == 0 {
		return false
	}
	memory, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Munmap(memory) }() // it was mapped so
	c, k, done := s.trial("kernel void k(global uchar *a) { a[1] = a[0]; }")
	defer done()
	if k == 0 {
		return false
	}
	q := s.lib.call("clCreateCommandQueue", c, s.device, 0, at(cell()))
	if q == 0 {
		return false
	}
	defer s.lib.call("clReleaseCommandQueue", q)
	one := []uint64{1}
	memory[0] = 7
	return s.lib.status("clSetKernelArgSVMPointer", k, 0, atData(memory)) == clSuccess &&
		s.lib.status("clEnqueueNDRangeKernel", q, k, 1, 0, atWords(one), 0, 0, 0, 0) == clSuccess && s.lib.status("clFinish", q) == clSuccess && memory[1] == 7
}

// createSVM makes shared virtual memory, if the task may hold as much, and says
// where it is. It takes whole pages, and as much is counted.
func (s *Session) createSVM(m *message, b *wire.Body) error {
	var w [7]uint64 // context, number, flags, size, the program's page, address, how
	b.Words(w[:])
	taken := make([]uint64, b.Count(8)) // in the program
	b.Words(taken)
	if b.Err() || w[3] == 0 || w[4] == 0 || w[4] > mostPage || w[4]&(w[4]-1) != 0 || w[6] > svmThere {
		return errEnd
	}
	if !s.offersSVM() {
		return s.answer(m, clInvalidOperation, 0, 0, nil)
	}
	if w[3] > s.lib.number("clGetDeviceInfo", s.device, clDeviceMaxAllocation) {
		return s.answer(m, clInvalidBufferSize, 0, 0, nil)
	}
	unit := max(w[4], uint64(os.Getpagesize()))
	bytes := (w[3] + unit - 1) &^ (unit - 1)
	if bad := s.take(bytes, 0); bad != clSuccess {
		return s.answer(m, bad, 0, 0, nil)
	}
	defer s.hold.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c, bad := s.get(w[0], context)
	if bad != clSuccess {
		s.give(bytes)
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	how := w[6]
	if how == svmShared && !s.shares {
		how = svmAlone
	}
	file := how == svmShared || how == svmThere && s.shares && s.gate.Load() == nil // it may have been mapped by both before
	r, fd, bad := s.newRegion(c.ptr, w[2], uintptr(bytes), uintptr(unit), uintptr(w[5]), how, file)
	var no []*region
	for bad == clSuccess && how != svmThere && len(no) < mostTaken && slices.Contains(taken, uint64(r.at)) {
		no = append(no, r)
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		r, fd, bad = s.newRegion(c.ptr, w[2], uintptr(bytes), uintptr(unit), 0, how, file)
	}
	for _, x := range no {
		s.freeRegion(x)
	}
	o := &object{kind: mem, bytes: bytes, size: w[3], parent: c, op: m.Op, svm: r}
	if fd >= 0 {
		o.file = os.NewFile(uintptr(fd), "memory")
	}
	if bad == clSuccess {
		o.ptr, bad = s.bufferAt(c.ptr, w[2], w[3], r.at)
	}
	if o.ptr == 0 {
		s.freeRegion(r)
		o.unmap()
		s.give(bytes)
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	o.made = words(w[0], w[1], w[2], w[3], w[4], uint64(r.at), svmThere, 0)
	if err := s.keep(w[1], o); err != nil {
		return err
	}
	at, _ := s.regionAt(uint64(r.at))
	s.regions = slices.Insert(s.regions, at, o)
	return s.answerMapped(m, o, uint64(r.at), 0)
}

// bufferAt makes a buffer of memory that is the device's own.
func (s *Session) bufferAt(c uintptr, flags, size uint64, memory uintptr) (ptr uintptr, bad int32) {
	e := cell()
	ptr = s.lib.call("clCreateBuffer", c, uintptr(flags&clAccess|clUseHostPtr), uintptr(size), memory, at(e))
	return ptr, int32(uint32(*e))
}

// newRegion finds memory of whole pages, each so many bytes long. It may be
// elsewhere than was asked for, but not if it must be there.
func (s *Session) newRegion(c uintptr, flags uint64, length, unit, wanted uintptr, how uint64, file bool) (r *region, fd int, bad int32) {
	r, fd = &region{length: length}, -1
	if s.places() {
		var err error
		if file {
			if fd, err = memoryFile(uint64(r.length)); err != nil {
				return nil, -1, clAllocationFailure
			}
		}
		if err = r.mapAt(wanted, fd); err != nil && how != svmThere {
			err = r.mapAt(0, fd)
		}
		if err != nil {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
			return nil, -1, clAllocationFailure
		}
		return r, fd, clSuccess
	}
	flags &= clAccess
	if r.driver = s.lib.call("clSVMAlloc", c, uintptr(flags), r.length, 0); r.driver != 0 && r.driver&(unit-1) != 0 {
		s.lib.call("clSVMFree", c, r.driver)
		r.driver = s.lib.call("clSVMAlloc", c, uintptr(flags), r.length+unit, 0)
	}
	if r.driver == 0 {
		return nil, -1, clAllocationFailure
	}
	r.context = c
	s.lib.call("clRetainContext", c)
	if r.at = (r.driver + unit - 1) &^ (unit - 1); how == svmThere && r.at != wanted {
		s.freeRegion(r)
		return nil, -1, clAllocationFailure
	}
	return r, -1, clSuccess
}

func memoryFile(size uint64) (int, error) {
	fd, err := unix.MemfdCreate("yunhe-pool", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		_ = unix.Close(fd)
	}
	return fd, err
}

// mapAt maps a file or, without one, memory at an address where there is nothing; 0 is anywhere.
func (r *region) mapAt(where uintptr, fd int) error {
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if fd >= 0 {
		flags = unix.MAP_SHARED
	}
	if where != 0 {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	p, err := unix.MmapPtr(fd, 0, address(where), r.length, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return err
	}
	if where != 0 && uintptr(p) != where { // Linux before 4.17
		_ = unix.MunmapPtr(p, r.length)
		return unix.EEXIST
	}
	r.here, r.at = p, uintptr(p)
	return nil
}

// address is memory that is not Go's.
func address(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// bytes are what is in a region of this process's.
func (r *region) bytes() []byte { return unsafe.Slice((*byte)(r.here), r.length) }

func (s *Session) freeRegion(r *region) {
	switch {
	case r == nil:
	case r.driver != 0:
		s.lib.call("clSVMFree", r.context, r.driver)
		s.lib.call("clReleaseContext", r.context)
	default:
		_ = unix.MunmapPtr(r.here, r.length) // it was mapped so
	}
}

// regionAt is where the region that begins at an address is among all, or would be. The caller has the lock.
func (s *Session) regionAt(p uint64) (int, bool) {
	return slices.BinarySearchFunc(s.regions, p, func(o *object, p uint64) int { return cmp.Compare(uint64(o.svm.at), p) })
}

// hasSVM says whether an address is one of the program's shared virtual memory, or its end. The caller has the lock.
func (s *Session) hasSVM(p uint64) bool {
	i, begins := s.regionAt(p)
	return begins || i > 0 && p-uint64(s.regions[i-1].svm.at) <= s.regions[i-1].size
}

// execInfo sets which memory a kernel reaches beside its arguments.
func (s *Session) execInfo(m *message, b *wire.Body) error {
	id := b.Word()
	list := make([]uint64, b.Count(8))
	b.Words(list)
	if b.Err() {
		return errEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, bad := s.get(id, kernel)
	for _, p := range list {
		if bad == clSuccess && !s.hasSVM(p) {
			bad = clInvalidValue
		}
	}
	if bad == clSuccess && !s.mayKeep(8*(len(list)-len(k.reaches))) {
		bad = clOutOfHostMemory
	}
	if bad == clSuccess {
		at := uintptr(0)
		if len(list) > 0 {
			at = atWords(list)
		}
		bad = s.lib.status("clSetKernelExecInfo", k.ptr, clSVMPointers, uintptr(8*len(list)), at)
	}
	if bad == clSuccess {
		s.counts(k, 8*(len(list)-len(k.reaches)))
		k.reaches = list
	}
	return s.answerLocked(m, bad, 0, 0, nil)
}
