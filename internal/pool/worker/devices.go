//go:build linux

package worker

import (
	"encoding/binary"
	"runtime"
	"slices"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// A program may divide its device into sub-devices. They are of its slice, as
// the whole one is: their memory and their work count as the task's, and their
// work takes turns as the whole device's does. Number 0 is the whole one.

// mostParts is how many sub-devices a call makes at most.
const mostParts = 4096

// subDevices makes sub-devices, or says how many there would be if the program
// wants none. Those with the number 0 are not kept: so one of them is made again
// where a program moves to.
func (s *Session) subDevices(m *message, b *wire.Body) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := b.Word()
	how := make([]uint64, b.Count(8))
	b.Words(how)
	ids := make([]uint64, b.Count(8))
	b.Words(ids)
	if b.Err() || len(how) < 2 {
		return errEnd
	}
	d, bad := s.deviceWith(of)
	list, n := append(slices.Clone(how), 0, 0), cell() // ends, whatever came
	if bad == clSuccess && !s.lib.divides(d, how[0]) {
		bad = clInvalidValue
	}
	if bad == clSuccess {
		bad = s.lib.status("clCreateSubDevices", d, atWords(list), 0, 0, at(n))
	}
	there := int(uint32(*n))
	switch {
	case bad != clSuccess:
	case there > mostParts:
		bad = clOutOfResources
	case len(ids) > 0 && len(ids) < there:
		bad = clInvalidValue
	case len(ids) > 0 && (s.full(there) || !s.mayKeep(there*8*(len(how)+there+3))):
		bad = clOutOfHostMemory
	}
	if bad != clSuccess || len(ids) == 0 {
		return s.answerLocked(m, bad, uint64(there), 0, nil)
	}
	parts := make([]uintptr, there)
	if bad = s.lib.status("clCreateSubDevices", d, atWords(list), uintptr(there), atWords(parts), 0); bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	for i, ptr := range parts {
		if ids[i] == 0 {
			s.lib.call("clReleaseDevice", ptr)
			continue
		}
		alone := make([]uint64, there)
		alone[i] = ids[i]
		made := append(words(append([]uint64{of, uint64(len(how))}, how...)...), words(append([]uint64{uint64(there)}, alone...)...)...)
		o := &object{kind: device, ptr: ptr, parent: s.objects[of], op: m.Op, made: made}
		if err := s.keep(ids[i], o); err != nil {
			return err
		}
		s.counts(o, len(made))
	}
	return s.answerLocked(m, clSuccess, uint64(there), 0, nil)
}

// divides says whether a device can be divided so. Those that cannot are not asked to:
// some drivers end the process then (Mesa 22.3).
func (l *library) divides(d uintptr, how uint64) bool {
	all, _ := l.info("clGetDeviceInfo", d, clDevicePartitions)
	for ways := wire.NewBody(all); len(ways.Rest()) >= 8; {
		if way := ways.Word(); way == how && way != 0 {
			return true
		}
	}
	return false
}

// deviceWith returns the device with a number. The caller has the lock.
func (s *Session) deviceWith(id uint64) (uintptr, int32) {
	if id == 0 {
		return s.device, clSuccess
	}
	o, bad := s.get(id, device)
	if bad != clSuccess {
		return 0, bad
	}
	return o.ptr, clSuccess
}

// deviceList reads a list of devices. The caller has the lock.
func (s *Session) deviceList(b *wire.Body) (list []uintptr, bad int32) {
	for range b.Count(8) {
		d, e := s.deviceWith(b.Word())
		if e != clSuccess {
			bad = e
		}
		list = append(list, d)
	}
	return list, bad
}

// named reads which devices a build is for, if the message says so at its end.
// The caller has the lock.
func (s *Session) named(b *wire.Body) ([]uintptr, int32) {
	if len(b.Rest()) == 0 {
		return nil, clSuccess
	}
	return s.deviceList(b)
}

// devicesOf returns the devices of a context.
func (s *Session) devicesOf(context *object) []uintptr {
	if len(context.devices) > 0 {
		return context.devices
	}
	return []uintptr{s.device}
}

// targets returns the count and the list of devices that a program of a context
// is built for: all that it has, if none are named.
func (s *Session) targets(context *object, named []uintptr) (count, list uintptr) {
	switch all := s.devicesOf(context); {
	case len(named) > 0:
		return uintptr(len(named)), atWords(named)
	case len(all) > 1:
		return 0, 0
	default:
		return 1, atWords(all)
	}
}

// deviceNumbers replaces devices by their numbers. The caller has the lock.
func (s *Session) deviceNumbers(list []byte) []byte {
	out := make([]byte, 0, len(list))
	for i := 0; i+8 <= len(list); i += 8 {
		ptr, id := uintptr(binary.LittleEndian.Uint64(list[i:])), uint64(0)
		for _, o := range s.objects {
			if o.kind == device && o.ptr == ptr {
				id = o.id
			}
		}
		out = binary.LittleEndian.AppendUint64(out, id)
	}
	return out
}

// binaryType is what a program was built to, 0 if it was not, on the first of its
// context's devices that it was built for.
func (s *Session) binaryType(p *object) uint64 {
	for _, d := range s.devicesOf(p.parent) {
		if status, bad := s.lib.info("clGetProgramBuildInfo", p.ptr, d, clBuildStatus); bad != clSuccess || len(status) < 4 || binary.LittleEndian.Uint32(status) != 0 {
			continue
		}
		if kind := s.lib.number("clGetProgramBuildInfo", p.ptr, d, clBinaryType) & 0xFFFFFFFF; kind != 0 {
			return kind
		}
	}
	return 0
}

// keeps says whether a program has variables on a device that outlive its kernels:
// OpenCL has no call that reads them. The caller has the lock.
func (s *Session) keeps(p *object) bool {
	for _, d := range s.devicesOf(p.parent) {
		if s.lib.number("clGetProgramBuildInfo", p.ptr, d, clBuildVariables) > 0 {
			return true
		}
	}
	return false
}

// binariesHead says whose the binaries of a program are, see fromBinaries.
func (s *Session) binariesHead(program uintptr) []byte {
	sizes, _ := s.lib.info("clGetProgramInfo", program, clProgramBinarySizes)
	list, _ := s.lib.info("clGetProgramInfo", program, clProgramDevices)
	s.mu.Lock()
	numbers := s.deviceNumbers(list)
	s.mu.Unlock()
	out := words(uint64(len(numbers) / 8))
	for i := 0; i+8 <= min(len(numbers), len(sizes)); i += 8 {
		out = append(append(out, numbers[i:i+8]...), sizes[i:i+8]...)
	}
	return out
}

// ofBinaries makes a program of binaries for devices of its context; devices
// that a binary is missing for are left out. The caller has the lock.
func (s *Session) ofBinaries(m *message, c *object, id uint64, text []byte) error {
	b := wire.NewBody(text)
	var devices, texts []uintptr
	var sizes []uint64
	bad, n := int32(clSuccess), b.Count(16)
	head := make([]uint64, 2*n)
	b.Words(head)
	rest := b.Rest()
	for i := 0; i < len(head); i += 2 {
		size := head[i+1]
		if size > uint64(len(rest)) {
			return errEnd
		}
		d, e := s.deviceWith(head[i])
		if e != clSuccess {
			bad = e
		}
		if size > 0 {
			devices, sizes, texts = append(devices, d), append(sizes, size), append(texts, atBytes(rest[:size]))
		}
		rest = rest[size:]
	}
	if b.Err() || n == 0 {
		return errEnd
	}
	if len(devices) == 0 && bad == clSuccess {
		bad = clInvalidValue
	}
	if bad != clSuccess {
		return s.answerLocked(m, bad, 0, 0, nil)
	}
	o := &object{kind: program, parent: c, op: m.Op, code: &code{context: c.id, from: fromBinaries, text: slices.Clone(text)}}
	if !s.counts(o, len(text)) {
		return s.answerLocked(m, clOutOfHostMemory, 0, 0, nil)
	}
	e, status := cell(), make([]uint64, (len(devices)+1)/2)
	s.aside(func() {
		o.ptr = s.lib.call("clCreateProgramWithBinary", c.ptr, uintptr(len(devices)), atWords(devices), atWords(sizes), atWords(texts), atWords(status), at(e))
	}, c)
	runtime.KeepAlive(devices)
	if o.ptr == 0 {
		s.counts(o, -o.kept)
	} else if err := s.keep(id, o); err != nil {
		return err
	}
	return s.answerLocked(m, int32(uint32(*e)), 0, 0, words(status...)[:4*len(devices)])
}
