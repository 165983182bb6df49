//go:build linux

package worker

import (
	"errors"
	"fmt"
	"os"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Bounds of what a program may have of its worker's own memory and threads, beside the
// memory of its task: they hold whatever client it uses, and are above what programs
// need. docs/howto/operate-a-pool.md lists them.
type bounds struct {
	objects int    // at a time, events among them
	kept    int    // bytes: of texts, options, header files, arguments and commands that are held
	waiting int    // calls that wait, beside who reads
	held    uint64 // bytes of transfers that are not done, see mostEver
	reads   int    // that nobody has waited for
}

var usual = bounds{objects: 2 << 20, kept: 512 << 20, waiting: 4096, held: mostEver, reads: 1 << 20}

const (
	// mostText is how large a program's text or binary is, mostBuild a message
	// that has it built, and mostCall one of a call that brings no data.
	mostText  = 256 << 20
	mostBuild = 48 << 20
	mostCall  = 16 << 20

	mostOptions = 1 << 20
	mostDirs    = 64 + 2   // of header files: what the options name, the program's own, and /
	mostFiles   = 1024     // of these
	mostHeaders = 32 << 20 // bytes
	mostMade    = 16 << 10 // folders that these are in
	mostPath    = 4096
)

// perArgument is what a kernel's argument takes beside its value, about.
const perArgument = 64

var errFull = errors.New("the program has more than a worker keeps for it")

// fits says whether a message may be as long as it says. One that makes memory, and
// brings more than the task may hold, is refused as that is, without its data.
func (s *Session) fits(h wire.Header) (cut bool, err error) {
	most := uint64(mostCall)
	switch h.Op {
	case wire.OpCreateProgram:
		most = mostText + mostCall
	case wire.OpBuild, wire.OpCompile:
		most = mostBuild
	case wire.OpWrite, wire.OpCreateBuffer, wire.OpCreateImage:
		if most += max(s.memory.Limit(), s.memory.Used()); h.Op != wire.OpWrite && h.Size > most { // what is written is there
			return true, nil
		}
	}
	if h.Size > most {
		return false, fmt.Errorf("%s: a message of %d bytes, want at most %d", h.Op, h.Size, most)
	}
	return false, nil
}

// fill reads the body of a message, or past it.
func (s *Session) fill(to []byte, past int) error {
	for len(to)+past > 0 {
		var k int
		var err error
		if len(to) > 0 {
			k, err = s.in.Read(to)
			to = to[k:]
		} else {
			k, err = s.in.Discard(past)
			past -= k
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // a move begins: with the message after this one
			s.rewind()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// opSet is a set of calls.
type opSet [128]bool

func setOf(all ...wire.Op) (s opSet) {
	for _, op := range all {
		s[op] = true
	}
	return s
}

func (s *opSet) has(op wire.Op) bool { return int(op) < len(s) && s[op] }

// makesObjects are calls that make objects, and are waited for.
var makesObjects = setOf(wire.OpCreateContext, wire.OpCreateQueue, wire.OpCreateBuffer, wire.OpCreateSubBuffer, wire.OpCreateImage, wire.OpCreateSampler, wire.OpCreateProgram, wire.OpLink,
	wire.OpCreateKernel, wire.OpCreateKernels, wire.OpCloneKernel, wire.OpUserEvent, wire.OpCreateSubDevices, wire.OpCreateSvm, wire.OpCreateSvmBuffer)

// refuses is what a call fails with before it is looked at.
func (s *Session) refuses(m *message) int32 {
	switch {
	case m.cut:
		return clAllocationFailure
	case m.crowded:
		return clOutOfResources
	case makesObjects.has(m.Op):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.full(1) {
			return clOutOfHostMemory
		}
	}
	return clSuccess
}

// full says whether there is no room for n objects more. The caller has the lock.
func (s *Session) full(n int) bool {
	return len(s.objects)+len(s.ghosts)+len(s.refused)+n > s.bounds.objects
}

// counts adds n bytes to what is kept for an object, if they may be; fewer always may.
// The caller has the lock.
func (s *Session) counts(o *object, n int) bool {
	if n > 0 && !s.mayKeep(n) {
		return false
	}
	s.kept += n
	o.kept += n
	return true
}

// mayKeep says whether n bytes more may be kept. The caller has the lock.
func (s *Session) mayKeep(n int) bool { return n <= s.bounds.kept-s.kept }

// beside says whether others go on beside a call that waits; who reads messages says
// so before each, and leaves after it. If it does not, too many do already.
func (s *Session) beside(m *message) bool {
	n := m.Size
	if at := 12 * 8; m.Op == wire.OpRead && len(m.body) >= at+8 { // see transfer
		b := wire.NewBody(m.body[at:])
		n += min(b.Word(), s.limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting >= s.bounds.waiting || s.waiting > 0 && n > s.bounds.held-min(s.besideBytes, s.bounds.held) {
		return false
	}
	s.waiting++
	s.besideBytes += n
	m.beside = n
	return true
}

func (s *Session) leaves(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	s.besideBytes -= m.beside
}
