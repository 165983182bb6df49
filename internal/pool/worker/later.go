//go:build linux

package worker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Functions that came with OpenCL 2.1 and 2.2. A driver of before has no place for
// them in its table, and loaders call what they find there.

// since says whether the device is of a version of OpenCL, or a later one.
func (s *Session) since(major, minor int) bool {
	var a, b int
	_, err := fmt.Sscanf(s.lib.text("clGetDeviceInfo", s.device, clDeviceVersion), "OpenCL %d.%d", &a, &b)
	return err == nil && (a > major || a == major && b >= minor)
}

// subGroupFunction is what tells of sub-groups: the standard's, or of a driver of
// before that an extension's; 0: nothing does.
func (s *Session) subGroupFunction() uintptr {
	if s.since(2, 1) {
		return s.lib.functions["clGetKernelSubGroupInfo"]
	}
	if !slices.Contains(strings.Fields(s.lib.text("clGetDeviceInfo", s.device, clDeviceExtensions)), "cl_khr_subgroups") {
		return 0
	}
	name := cString("clGetKernelSubGroupInfoKHR")
	return s.lib.call("clGetExtensionFunctionAddressForPlatform", uintptr(s.lib.number("clGetDeviceInfo", s.device, clDevicePlatform)), atBytes(name))
}

// subGroupInfo asks about a kernel's sub-groups: of sizes that the program gives,
// with as many numbers in the answer as it has room for.
func (s *Session) subGroupInfo(m *message, b *wire.Body) error {
	var w [4]uint64 // kernel, device, what, room
	b.Words(w[:])
	sizes := b.Bytes()
	if b.Err() || len(sizes) > 24 {
		return errEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, bad := s.get(w[0], kernel)
	d, e := s.deviceWith(w[1])
	if bad == clSuccess {
		bad = e
	}
	f := s.subGroupFunction()
	if bad == clSuccess && f == 0 {
		bad = clInvalidOperation
	}
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	n, room := cell(), make([]byte, min(w[3], 64))
	var given, out uintptr
	if len(sizes) > 0 {
		given = atBytes(sizes)
	}
	if len(room) > 0 {
		out = atBytes(room)
	}
	bad = int32(s.lib.callAt(f, k.ptr, d, uintptr(uint32(w[2])), uintptr(len(sizes)), given, uintptr(len(room)), out, at(n)))
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	return s.answerLocked(m, bad, *n, 0, room[:min(*n, uint64(len(room)))])
}

// timer tells of a device's clock, by which it says when commands began and ended.
func (s *Session) timer(m *message, b *wire.Body) error {
	id := b.Word()
	if b.Err() {
		return errEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, bad := s.deviceWith(id)
	if bad == clSuccess && !s.since(2, 1) {
		bad = clInvalidOperation
	}
	device, host := cell(), cell()
	if bad == clSuccess {
		bad = s.lib.status("clGetDeviceAndHostTimer", d, at(device), at(host))
	}
	return s.answerLocked(m, bad, *device, 0, nil)
}

// specialize gives a constant of a program in intermediate language, for when it
// is built. One that has moved is made of what it was built to: it has its
// constants again when it is to be built anew.
func (s *Session) specialize(m *message, b *wire.Body) error {
	id, number := b.Word(), b.Word()
	value := bytes.Clone(b.Bytes())
	if b.Err() || len(value) == 0 {
		return errEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, bad := s.getBuilt(id, program)
	if bad == clSuccess && !s.mayKeep(len(value)+perArgument) {
		bad = clOutOfHostMemory
	}
	if bad == clSuccess {
		bad = s.setConstant(p, number, value)
	}
	return s.answerLocked(m, bad, 0, 0, nil)
}

func (s *Session) setConstant(p *object, number uint64, value []byte) int32 {
	if !p.code.replaced {
		if !s.since(2, 2) {
			return clInvalidOperation
		}
		if bad := s.lib.status("clSetProgramSpecializationConstant", p.ptr, uintptr(uint32(number)), uintptr(len(value)), atBytes(value)); bad != clSuccess {
			return bad
		}
	}
	if p.code.constants == nil {
		p.code.constants = map[uint64][]byte{}
	}
	if was, there := p.code.constants[number]; there {
		s.counts(p, -len(was)-perArgument)
	}
	p.code.constants[number] = value
	s.counts(p, len(value)+perArgument)
	return clSuccess
}

// setConstants gives a program that was made anew those that it has.
func (s *Session) setConstants(p *object) int32 {
	for number, value := range p.code.constants {
		if bad := s.setConstant(p, number, value); bad != clSuccess {
			return bad
		}
	}
	return clSuccess
}

// sendConstants sends constants of a program.
func (m *mover) sendConstants(id uint64, constants map[uint64][]byte) {
	if len(constants) == 0 {
		return
	}
	b := words(id)
	for number, value := range constants {
		b = wire.AppendBytes(binary.LittleEndian.AppendUint64(b, number), value)
	}
	m.frame(wire.FrameConstants, b)
}

// hearConstants gives a program that came its constants, or keeps them until it comes.
func (r *receiver) hearConstants(b *wire.Body) error {
	id, all := b.Word(), map[uint64][]byte{}
	for len(b.Rest()) > 0 && !b.Err() {
		number := b.Word()
		all[number] = bytes.Clone(b.Bytes())
	}
	o := r.objects[id]
	if o == nil {
		if r.constants == nil {
			r.constants = map[uint64]map[uint64][]byte{}
		}
		if r.pending += sizeOf(all) - sizeOf(r.constants[id]); r.pending > r.bounds.kept {
			return errFull
		}
		r.constants[id] = all
		return nil
	}
	if o.kind != program {
		return errEnd
	}
	if !r.hasConstants(o, all) {
		return errFull
	}
	if bad := r.setConstants(o); bad != clSuccess {
		return fmt.Errorf("constants of program %d cannot be set: error %d", id, bad)
	}
	return nil
}

// hasConstants counts and keeps a program's constants, which are to be set.
func (r *receiver) hasConstants(p *object, all map[uint64][]byte) bool {
	fits := r.counts(p, sizeOf(all)-sizeOf(p.code.constants))
	if fits {
		p.code.constants = all
	}
	return fits
}

func sizeOf(constants map[uint64][]byte) (n int) {
	for _, value := range constants {
		n += len(value) + perArgument
	}
	return n
}
