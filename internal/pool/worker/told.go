//go:build linux

package worker

import (
	"strings"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// A program that has moved is made of its binary, and drivers tell less of such:
// PoCL no attributes of kernels, and of what it could not build neither why nor
// with which options. So what the driver said before the first move goes along,
// and is said instead until the program is built anew.

// question is what was asked of a program or one of its kernels, by the numbers
// of infos.
type question struct {
	of   uint64
	name string // of the kernel
	more uint64 // number of the device or the argument
	what uint64
}

type told struct {
	status int32
	data   []byte
}

// toldOfProgram, toldOfBuild… are what a program built of its binary may not know.
var (
	toldOfProgram = []uint64{0x1167, 0x1168, 0x1169, 0x116A, 0x116B}        // number and names of kernels, IL, constructors and destructors
	toldOfBuild   = []uint64{clBuildStatus, clBuildOptions, 0x1183, 0x1184} // log, kind of binary
	toldOfKernel  = []uint64{0x1195}                                        // attributes
	toldOfArg     = []uint64{clArgAddress, 0x1197, clArgType, 0x1199, clArgName}
	toldOfGroup   = []uint64{0x11B1} // size that its source wants
)

// allTold asks the driver for all that it tells of a program. Nothing is built
// or computed meanwhile. The caller has the lock.
func (s *Session) allTold(p *object) map[question]told {
	all := map[question]told{}
	ask := func(q question, list []uint64, args ...uintptr) {
		for _, q.what = range list {
			data, bad := s.lib.info(infos[q.of].name, append(args[:len(args):len(args)], uintptr(q.what))...)
			all[q] = told{bad, data}
		}
	}
	ask(question{of: ofProgram}, toldOfProgram, p.ptr)
	list, _ := s.lib.info("clGetProgramInfo", p.ptr, clProgramDevices)
	var devices []uint64
	numbers := wire.NewBody(s.deviceNumbers(list))
	for range len(list) / 8 {
		devices = append(devices, numbers.Word())
	}
	each := func(of uint64, name string, list []uint64, ptr uintptr) {
		for _, n := range devices {
			if d, bad := s.deviceWith(n); bad == clSuccess {
				ask(question{of: of, name: name, more: n}, list, ptr, d)
			}
		}
	}
	each(ofBuild, "", toldOfBuild, p.ptr)
	for name := range strings.SplitSeq(string(all[question{of: ofProgram, what: 0x1168}].data), ";") {
		name = strings.TrimRight(name, "\x00")
		called := cString(name)
		k := s.lib.call("clCreateKernel", p.ptr, atBytes(called), at(cell()))
		if name == "" || k == 0 {
			continue
		}
		ask(question{of: ofKernel, name: name}, toldOfKernel, k)
		for i := range s.lib.number("clGetKernelInfo", k, clKernelArgs) & 0xFFFF {
			ask(question{of: ofArg, name: name, more: i}, toldOfArg, k, uintptr(i))
		}
		each(ofGroup, name, toldOfGroup, k)
		s.lib.call("clReleaseKernel", k)
	}
	return all
}

// before is what was told of an object before its program moved. The caller has the lock.
func (s *Session) before(of uint64, o *object, more, what uint64) (told, bool) {
	q := question{of: of, more: more, what: what}
	switch p := o.parent; {
	case o.kind == program && o.code.told != nil:
		if of == ofProgram {
			q.more = 0
		}
		a, ok := o.code.told[q]
		return a, ok
	case o.kind == kernel && p.code.told != nil:
		if of == ofKernel {
			q.more = 0
		}
		q.name = s.lib.text("clGetKernelInfo", o.ptr, clKernelName)
		a, ok := p.code.told[q]
		return a, ok
	}
	return told{}, false
}

// sendTold sends what was told of a program.
func (m *mover) sendTold(id uint64, all map[question]told) {
	b := words(id)
	for q, a := range all {
		b = wire.AppendBytes(append(b, words(q.of, q.more, q.what, uint64(int64(a.status)))...), []byte(q.name))
		b = wire.AppendBytes(b, a.data)
	}
	m.frame(wire.FrameTold, b)
}

// hearTold keeps what was told of a program before it came.
func (r *receiver) hearTold(b *wire.Body) error {
	p, bad := r.get(b.Word(), program)
	if bad != clSuccess {
		return errEnd
	}
	p.code.told = map[question]told{}
	for len(b.Rest()) > 0 && !b.Err() {
		var w [4]uint64
		b.Words(w[:])
		q := question{of: w[0], more: w[1], what: w[2], name: string(b.Bytes())}
		p.code.told[q] = told{int32(w[3]), append([]byte{}, b.Bytes()...)}
		if !r.counts(p, len(q.name)+len(p.code.told[q].data)+perArgument) {
			return errFull
		}
	}
	return nil
}
