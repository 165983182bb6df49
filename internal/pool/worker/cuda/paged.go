//go:build linux

package cuda

import (
	"sync"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Where tasks may have more of a device together than it has, memory is managed by the
// driver, which moves it to the host when others need the room, and back when kernels
// need it: piece by piece then, as they come to it. So that kernels find it there, all of
// it is fetched when a turn begins and others had the device since; the node lends that
// for longer the longer it took. What is made in other ways (arrays, by streams, mapped
// by the program) stays on the device.

// paged is the task's memory that may be off the device.
type paged struct {
	mu      sync.Mutex         // guards what follows; held while all is fetched
	all     map[uint64]section // by its address
	streams map[uintptr]uintptr
	cells   cells
}

// section is memory, and the context that it goes with.
type section struct {
	bytes   uint64
	context uintptr
}

const (
	everywhere  = 1   // of managed memory: any stream uses it
	nonBlocking = 1   // of streams: they wait for no other
	pitchOf     = 512 // bytes that rows begin at multiples of: no device asks for more
)

// pages reports whether memory that is made now is to be such as the driver moves.
func (t *thread) pages() bool { return t.s.memory.Over() }

// managed makes n bytes that the driver moves.
func (t *thread) managed(at uintptr, n uint64) int32 {
	s := t.s
	r := s.d.call("cuMemAllocManaged", at, uintptr(n), everywhere)
	if r == success {
		s.paged.mu.Lock()
		s.paged.all[t.cells[0]] = section{n, t.context()}
		s.paged.mu.Unlock()
	}
	return r
}

// managedPitch makes rows that the driver moves, as long as it would make them or longer.
func (t *thread) managedPitch(k *call, width, rows uint64) int32 {
	element := k.args[4]
	if width == 0 || rows == 0 || element != 4 && element != 8 && element != 16 {
		return invalidValue
	}
	pitch := (width + pitchOf - 1) / pitchOf * pitchOf
	if pitch < width || pitch > ^uint64(0)/rows {
		return outOfMemory
	}
	*k.out(1) = pitch
	return t.allocate(func() int32 { return t.managed(k.args[0], pitch*rows) }, pitch*rows, nil)
}

// unpage forgets memory that is about to be freed; the answer has it known again.
func (s *Session) unpage(at uint64) (again func()) {
	s.paged.mu.Lock()
	defer s.paged.mu.Unlock()
	was, ok := s.paged.all[at]
	delete(s.paged.all, at)
	return func() {
		if ok {
			s.paged.mu.Lock()
			s.paged.all[at] = was
			s.paged.mu.Unlock()
		}
	}
}

// unpageAll forgets what goes with a context.
func (s *Session) unpageAll(context uintptr) {
	s.paged.mu.Lock()
	defer s.paged.mu.Unlock()
	for at, m := range s.paged.all {
		if m.context == context {
			delete(s.paged.all, at)
		}
	}
	delete(s.paged.streams, context)
}

// fetch moves all memory to the device, and returns when it is there. It has streams of
// its own: others may hold kernels that wait for what the program does next.
func (s *Session) fetch() {
	s.keeps(func(enter func(context uintptr)) {
		s.paged.mu.Lock()
		defer s.paged.mu.Unlock()
		used := map[uintptr]bool{}
		for at, m := range s.paged.all {
			enter(m.context)
			if s.paged.streams[m.context] == 0 {
				if s.d.at(s.d.byOp[wire.CUDAStreamCreate], s.paged.cells.at(0), nonBlocking) != success {
					continue // then kernels fetch what they come to
				}
				s.paged.streams[m.context] = uintptr(s.paged.cells[0])
			}
			used[m.context] = true
			s.d.call("cuMemPrefetchAsync", uintptr(at), uintptr(m.bytes), uintptr(s.device), s.paged.streams[m.context]) // or kernels do
		}
		for context := range used {
			enter(context)
			s.d.at(s.d.byOp[wire.CUDAStreamSynchronize], s.paged.streams[context])
		}
	})
}
