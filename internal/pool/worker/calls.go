//go:build linux

package worker

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// do makes the call that a message asks for. An error ends the connection: the
// message is not one that a client sends. What OpenCL says goes into the answer.
func (s *Session) do(m *message) error {
	defer runtime.KeepAlive(m) // arguments point into it
	b := wire.NewBody(m.body)
	if c := wire.CallOf(m.Op); c != nil {
		return s.byParams(m, c, &b)
	}
	if bad := s.refuses(m); bad != clSuccess {
		return s.answer(m, bad, 0, 0, nil)
	}
	switch m.Op {
	case wire.OpRead, wire.OpWrite:
		return s.transfer(m, &b)
	case wire.OpSetArg:
		return s.setArg(m, &b)
	case wire.OpFinish:
		return s.finish(m, &b)
	case wire.OpWait:
		return s.wait(m, &b)
	case wire.OpInfo:
		return s.info(m, &b)
	case wire.OpRelease:
		return s.release(&b)
	case wire.OpCreateBuffer:
		return s.createBuffer(m, &b)
	case wire.OpCreateSubBuffer, wire.OpCreateSvmBuffer:
		return s.createPart(m, &b)
	case wire.OpCreateSvm:
		return s.createSVM(m, &b)
	case wire.OpExecInfo:
		return s.execInfo(m, &b)
	case wire.OpCreateImage:
		return s.createImage(m, &b)
	case wire.OpImageFormats:
		return s.imageFormats(m, &b)
	case wire.OpCreateProgram, wire.OpBuild, wire.OpCompile, wire.OpLink, wire.OpBinaries:
		return s.programs(m, &b)
	case wire.OpCreateKernel, wire.OpCreateKernels, wire.OpCloneKernel:
		return s.kernels(m, &b)
	case wire.OpCreateSubDevices:
		return s.subDevices(m, &b)
	case wire.OpShare:
		return s.share(m, &b)
	case wire.OpSubGroupInfo:
		return s.subGroupInfo(m, &b)
	case wire.OpSpecialize:
		return s.specialize(m, &b)
	case wire.OpTimer:
		return s.timer(m, &b)
	case wire.OpPath:
		return s.path(m, &b)
	case wire.OpLane:
		return s.lane(m, &b)
	case wire.OpPush, wire.OpPull:
		return s.carry(m, &b)
	}
	return s.create(m, &b)
}

// byParams makes a call that the table describes.
func (s *Session) byParams(m *message, c *wire.Call, b *wire.Body) error {
	bad, err := s.giveByParams(m, c, b)
	if err != nil {
		return err
	}
	return s.answer(m, bad, 0, 0, nil) // in nobody's way: who hears it may do so late
}

// giveByParams returns what came of it. If nobody waits for that, a failure is told
// by the next finish of its queue, and by its event.
func (s *Session) giveByParams(m *message, c *wire.Call, b *wire.Body) (int32, error) {
	turn := c.Work && s.coming == nil // what comes with a program does not run yet
	if turn {
		s.turn.Take()
	} else if m.Op == wire.OpSetUserEventStatus && s.coming == nil && s.opens(m) {
		turn = s.turn.TakeUnlessDrains()
	}
	if turn {
		defer s.turn.Done()
	}
	bad := int32(clSuccess)
	if c.Work || m.Op == wire.OpEnqueueMigrateMemObjects {
		if bad = s.resident(0, turn); bad == clSuccess {
			defer s.hold.RUnlock()
		}
	}
	s.mu.Lock()
	var room [16]uintptr
	args := room[:0]
	var q *object
	var out uint64
	var slot []uint64
	one := func(k kind) {
		o, e := s.get(b.Word(), k)
		if e != clSuccess {
			bad = e
			args = append(args, 0)
			return
		}
		if k == queue {
			q = o
		}
		if o.kind == event && o.ptr == 0 {
			bad = clInvalidOperation
		}
		for _, e := range o.unset {
			bad = e
		}
		if s.users > 0 {
			m.names = append(m.names, o)
		}
		args = append(args, o.ptr)
	}
	list := func(list []uint64, e int32) {
		if e != clSuccess {
			bad = e
		}
		if len(list) == 0 {
			args = append(args, 0, 0)
			return
		}
		args = append(args, uintptr(len(list)), atWords(list))
	}
	three := func() {
		w := m.args.take(3)
		b.Words(w)
		args = append(args, atWords(w))
	}
	for _, k := range c.Params {
		switch k {
		case wire.KindQueue:
			one(queue)
		case wire.KindMem:
			one(mem)
		case wire.KindKernel:
			one(kernel)
		case wire.KindEvent:
			one(event)
		case wire.KindU32, wire.KindI32:
			args = append(args, uintptr(uint32(b.Word())))
		case wire.KindFlags, wire.KindSize:
			args = append(args, uintptr(b.Word()))
		case wire.KindSize3:
			three()
		case wire.KindOsize3:
			if b.Word() != 0 {
				three()
			} else {
				b.Words(m.args.take(3))
				args = append(args, 0)
			}
		case wire.KindWaits:
			list(s.list(m, b, event))
		case wire.KindMems:
			list(s.list(m, b, mem))
		case wire.KindPattern:
			p := b.Bytes()
			args = append(args, atBytes(p), uintptr(len(p)))
		case wire.KindColor:
			p := b.Bytes()
			if len(p) != 16 {
				s.mu.Unlock()
				return 0, errEnd
			}
			args = append(args, atBytes(p))
		case wire.KindOut:
			if out = b.Word(); out == 0 {
				args = append(args, 0)
				continue
			}
			slot = m.args.take(1)
			slot[0] = 0
			args = append(args, atWords(slot))
		}
	}
	if b.Err() {
		s.mu.Unlock()
		return 0, errEnd
	}
	if c.Name == "clEnqueueNDRangeKernel" && uint32(args[2]) > 3 {
		bad = -53 // CL_INVALID_WORK_DIMENSION
	}
	if out != 0 && s.full(1) {
		bad, out = clOutOfHostMemory, 0
	}
	name := c.Name
	if m.Op == wire.OpEnqueueWaitForEvents { // PoCL ends the process that calls it
		name, args = "clEnqueueBarrierWithWaitList", append(args, 0)
	}
	var h *held
	wanted := false
	if bad == clSuccess && q != nil && m.Op != wire.OpFlush {
		if h, wanted = s.watch(m, q); h != nil && !s.mayKeep(h.kept) {
			bad = clOutOfHostMemory
		}
	}
	if wanted && out == 0 { // the program does not want its event
		slot = make([]uint64, 1)
		if m.Op == wire.OpEnqueueBarrier {
			name, args = "clEnqueueBarrierWithWaitList", append(args, 0, 0, 0)
		}
		args[len(args)-1] = atWords(slot)
	}
	if m.Op == wire.OpSetUserEventStatus && len(args) == 2 && int32(uint32(args[1])) < clSuccess {
		s.calm()
	}
	if bad == clSuccess && !(m.Op == wire.OpFlush && s.lib.one != nil && s.holdsAny(q)) { // which would wait
		bad = s.lib.status(name, args...)
	}
	if q != nil {
		q.fed.Add(1)
		if c.Work {
			q.given++
		}
	}
	var err error
	waited := m.Flags&wire.FlagAnswer != 0
	var o *object
	if out != 0 && (bad == clSuccess || !waited) {
		o = &object{kind: event, status: bad}
		if bad == clSuccess {
			o.ptr = uintptr(slot[0])
			if q != nil {
				o.work = workOf(q)
			}
		}
		err = s.keep(out, o)
	}
	if bad == clSuccess && wanted {
		if o != nil {
			s.lib.call("clRetainEvent", o.ptr)
		}
		s.keepHeld(h, m, uintptr(slot[0]), o)
	}
	if bad != clSuccess && !waited && q != nil {
		q.status = bad
	}
	if m.Op == wire.OpSetUserEventStatus && bad == clSuccess {
		s.settle(binary.LittleEndian.Uint64(m.body))
	}
	s.mu.Unlock()
	return bad, err
}

func (s *Session) finish(m *message, b *wire.Body) error {
	id := b.Word()
	s.mu.Lock()
	o, bad := s.get(id, queue)
	if bad != clSuccess {
		s.mu.Unlock()
		return s.answer(m, bad, 0, 0, nil)
	}
	done := func(bad int32) error {
		s.mu.Lock()
		if bad == clSuccess {
			bad, o.status = o.status, clSuccess
		}
		s.bury()
		s.mu.Unlock()
		return s.answer(m, bad, 0, 0, nil)
	}
	if s.users > 0 || m.Flags&wire.FlagThreads != 0 { // it waits for what was given before, and no more: what comes meanwhile may be held
		if events := s.given(o); len(events) > 0 {
			over := s.waits(upToNow(o))
			return s.waitFor(s.heldCall(m, o), events, func(int32) error { // what has failed has come to its end, too
				over(clSuccess)
				return done(clSuccess)
			})
		}
	}
	over := s.waits(upToNow(o))
	s.mu.Unlock()
	bad = s.lib.finish(o.ptr)
	over(bad)
	return done(bad)
}

// list reads a list of objects of a kind. Events that are complete and not this
// device's need no waiting for. The caller has the lock.
func (s *Session) list(m *message, b *wire.Body, k kind) (list []uint64, bad int32) {
	list = m.args.take(b.Count(8))
	n := 0
	for range list {
		o, e := s.get(b.Word(), k)
		switch {
		case e != clSuccess:
			bad = e
			continue
		case s.users > 0:
			m.names = append(m.names, o)
		}
		switch {
		case o.ptr == 0 && o.status != clSuccess:
			bad = clFailedWait
		case o.ptr != 0:
			list[n] = uint64(o.ptr)
			n++
		}
	}
	return list[:n], bad
}

func (s *Session) wait(m *message, b *wire.Body) error {
	s.mu.Lock()
	events := *b
	list, bad := s.list(m, b, event)
	for _, e := range list {
		s.lib.call("clRetainEvent", uintptr(e)) // the program may release it while it is waited for
	}
	over := func(int32) {}
	if bad == clSuccess && len(list) > 0 && !b.Err() {
		if s.users > 0 {
			return s.waitFor(s.heldCall(m, nil), list, func(bad int32) error { return s.answer(m, bad, 1, 0, nil) }) // the next finish may have something to tell
		}
		over = s.waits(s.awaited(events)...)
	}
	told := s.untold()
	s.mu.Unlock()
	if b.Err() || len(m.body) < 16 {
		return errEnd
	}
	if bad == clSuccess && len(list) > 0 {
		bad = s.lib.status("clWaitForEvents", uintptr(len(list)), atWords(list))
		over(bad)
	}
	for _, e := range list {
		s.lib.call("clReleaseEvent", uintptr(e))
	}
	return s.answer(m, bad, told, 0, nil)
}

// untold is 1 if the next finish of a queue has something to tell, else 0. The caller has the lock.
func (s *Session) untold() uint64 {
	if slices.ContainsFunc(s.queues, func(q *object) bool { return q.status != clSuccess }) {
		return 1
	}
	return 0
}

// release forgets an object. Memory that commands still use is forgotten when they are done.
func (s *Session) release(b *wire.Body) error {
	id := b.Word()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[id]
	if b.Err() {
		return errEnd
	}
	if o == nil { // a child of the program has what its parent made, or it could not be made
		delete(s.refused, id)
		return nil
	}
	if o.kind == event && o.user { // it was not set: who waits for it waits in vain
		s.calm()
		s.lib.call("clSetUserEventStatus", o.ptr, uintptr(1<<32-1))
		s.settle(id)
	}
	if o.kind == queue && o.drained < o.fed.Load() && !s.holdsAny(o) { // what it was given goes on
		if m, bad := s.mark(o); bad == clSuccess {
			s.lib.call("clFlush", o.ptr)
			s.runs(s.follow(m).event)
		}
	}
	s.forget(o)
	if o.kind == mem && o.bytes > 0 {
		s.dying = append(s.dying, o)
		s.bury()
		return nil
	}
	if o.late = o.ptr != 0 && o.named > 0; o.ptr != 0 && !o.late {
		s.lib.call(releases[o.kind], o.ptr) // what is made of it keeps it
	}
	return nil
}

// bury frees memory that nothing uses any more. The caller has the lock.
func (s *Session) bury() {
	left := s.dying[:0]
	for _, o := range s.dying {
		switch {
		case o.copied > 0, o.named > 0, o.children > 0 && (o.off != nil || o.svm != nil), o.off == nil && s.lib.number("clGetMemObjectInfo", o.ptr, clMemReferences)&0xFFFFFFFF > 1:
			left = append(left, o)
			continue
		case o.off != nil:
			o.unmapOff()
			o.unmap()
			s.freeRegion(o.svm)
			s.memory.Give(o.bytes)
			continue
		}
		s.lib.call("clReleaseMemObject", o.ptr)
		o.unmap()
		s.freeRegion(o.svm)
		s.give(o.bytes)
	}
	clear(s.dying[len(left):])
	s.dying = left
}

// setArg sets an argument of a kernel.
func (s *Session) setArg(m *message, b *wire.Body) error {
	var w [4]uint64
	b.Words(w[:])
	bad := int32(clSuccess)
	if w[3] == argHandle {
		if bad = s.resident(0, false); bad == clSuccess {
			defer s.hold.RUnlock()
		}
	}
	s.mu.Lock()
	k, e := s.get(w[0], kernel)
	if e != clSuccess {
		bad = e
	}
	var value uintptr
	switch w[3] {
	case argValue:
		p := b.Bytes()
		if uint64(len(p)) != w[2] {
			s.mu.Unlock()
			return errEnd
		}
		value = atBytes(p)
	case argHandle:
		slot := m.args.take(1)
		id := b.Word()
		o := s.objects[id]
		if refused, ok := s.refused[id]; ok {
			bad = refused
		} else if w[2] != 8 || o == nil || o.kind != mem && o.kind != sampler {
			bad = clInvalidMem
		} else {
			slot[0] = uint64(o.ptr)
		}
		value = atWords(slot)
	case argSVM:
		p := b.Word()
		if p != 0 && !s.hasSVM(p) {
			bad = clInvalidArgValue
		}
		value = uintptr(p)
	}
	if b.Err() {
		s.mu.Unlock()
		return errEnd
	}
	more := 0
	if bad == clSuccess {
		if was := k.args[w[1]]; was == nil {
			more = len(m.body) + perArgument
		} else {
			more = len(m.body) - len(was)
		}
		if more > 0 && !s.mayKeep(more) {
			bad = clOutOfHostMemory
		}
	}
	if bad == clSuccess {
		if w[3] == argSVM {
			bad = s.lib.status("clSetKernelArgSVMPointer", k.ptr, uintptr(uint32(w[1])), value)
		} else {
			bad = s.lib.status("clSetKernelArg", k.ptr, uintptr(uint32(w[1])), uintptr(w[2]), value)
		}
		if bad == clSuccess {
			was := k.args[w[1]][:0]
			if len(s.held) > 0 {
				was = nil // some may have it
			}
			k.args[w[1]] = append(was, m.body...)
			s.counts(k, more)
			delete(k.unset, w[1])
		}
	}
	if bad != clSuccess && k != nil && m.Flags&wire.FlagAnswer == 0 {
		s.unsets(k, w[1], bad)
	}
	s.mu.Unlock()
	return s.answer(m, bad, 0, 0, nil)
}

// unsets has a kernel not run with what an argument of it was before it could not be set, which nobody
// waited for. The caller has the lock.
func (s *Session) unsets(k *object, arg uint64, bad int32) {
	was := k.args[arg]
	if was == nil {
		return
	}
	if k.unset == nil {
		k.unset = map[uint64]int32{}
	}
	k.unset[arg] = bad
	delete(k.args, arg)
	s.counts(k, -len(was)-perArgument)
}

const (
	argValue  = 0
	argHandle = 1
	argSVM    = 3
)

// infos are what can be asked of: the function, the object's kind (0: the
// device), and what comes between it and what is asked.
var infos = [...]struct {
	name string
	kind kind
	more byte
}{
	1: {"clGetDeviceInfo", 0, 0}, 2: {"clGetCommandQueueInfo", queue, 0}, 3: {"clGetMemObjectInfo", mem, 0}, 4: {"clGetImageInfo", mem, 0}, 5: {"clGetSamplerInfo", sampler, 0},
	ofProgram: {"clGetProgramInfo", program, 0}, ofBuild: {"clGetProgramBuildInfo", program, 'd'}, ofKernel: {"clGetKernelInfo", kernel, 0}, ofArg: {"clGetKernelArgInfo", kernel, 'n'},
	ofGroup: {"clGetKernelWorkGroupInfo", kernel, 'd'}, 11: {"clGetEventInfo", event, 0}, 12: {"clGetEventProfilingInfo", event, 0},
}

const (
	ofProgram = iota + 6
	ofBuild
	ofKernel
	ofArg
	ofGroup
)

// oldEvent tells of an event that the device does not know.
func oldEvent(name string, what uint64, o *object) ([]byte, int32) {
	if name == "clGetEventInfo" {
		return binary.LittleEndian.AppendUint32(nil, uint32(o.status)), clSuccess
	}
	if at := what - clProfilingFirst; at < uint64(len(o.times)/8) {
		return o.times[8*at : 8*at+8], clSuccess
	}
	return nil, clNoProfiling
}

func (s *Session) info(m *message, b *wire.Body) error {
	var w [4]uint64
	b.Words(w[:])
	if w[0] >= uint64(len(infos)) {
		return errEnd
	}
	of := &infos[w[0]]
	if of.name == "" || b.Err() || of.name == "clGetProgramInfo" && w[3] == clProgramBinaries {
		return errEnd
	}
	if of.kind == mem {
		if bad := s.resident(0, false); bad != clSuccess {
			return s.answer(m, bad, 0, 0, nil)
		}
		defer s.hold.RUnlock()
	}
	s.mu.Lock()
	data, bad := s.ask(m, &w)
	s.mu.Unlock()
	if what := uint32(w[3]); of.kind == 0 && len(data) == 8 {
		switch {
		case what == clDeviceSVM:
			clear(data)
			if s.offersSVM() && (w[2] == 0 || s.places()) { // 1: at an address that other nodes have, too
				data[0] = clCoarseGrain
			}
		case bad == clSuccess && (what == clDeviceMemory || what == clDeviceMaxAllocation):
			data = s.capped(data)
		}
	}
	return s.answer(m, bad, 0, 0, data)
}

// ask is what the driver says, or the worker knows better: of one of infos, about an
// object, with another argument, what. The caller has the lock.
func (s *Session) ask(m *message, w *[4]uint64) ([]byte, int32) {
	of, what := &infos[w[0]], uintptr(uint32(w[3]))
	var args [3]uintptr
	n := 2
	if of.kind == 0 {
		d, bad := s.deviceWith(w[1])
		if bad != clSuccess {
			return nil, bad
		}
		args = [3]uintptr{d, what}
	} else {
		o, bad := s.getBuilt(w[1], of.kind)
		switch {
		case bad == clSuccess && o.ptr == 0: // an event whose call failed when nobody waited for it, or that was done before the program moved here
			return oldEvent(of.name, w[3], o)
		case bad != clSuccess:
			return nil, bad
		case w[0] == ofBuild && what == clBuildOptions && o.options != nil:
			if string(o.options) == " \x00" {
				return o.options[1:], clSuccess // empty ones, which came so
			}
			return o.options, clSuccess
		case w[0] == ofProgram && what == clProgramSource && o.code.replaced:
			return append(bytes.Clone(o.code.text), 0), clSuccess
		case w[0] == ofProgram && what == clProgramBinarySizes && o.code.came != nil && len(o.parent.devices) == 0:
			return words(uint64(len(o.code.came))), clSuccess
		case w[0] == ofArg && o.hidden && !(o.bare && s.argsTold()):
			return nil, clNoArgInfo
		}
		if a, ok := s.before(w[0], o, w[2], uint64(what)); ok {
			return a.data, a.status
		}
		args = [3]uintptr{o.ptr, what}
		switch of.more {
		case 'd':
			d, bad := s.deviceWith(w[2])
			if bad != clSuccess {
				return nil, bad
			}
			args, n = [3]uintptr{o.ptr, d, what}, 3
		case 'n':
			args, n = [3]uintptr{o.ptr, uintptr(uint32(w[2])), what}, 3
		}
	}
	data, bad := s.lib.infoIn(m.args.take(infoRoom), s.lib.infos[w[0]], args[:n]...)
	if of.kind == program && what == clProgramDevices {
		data = s.deviceNumbers(data)
	}
	return data, bad
}
