//go:build linux

package worker

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// driver plays a driver of OpenCL. It makes whatever it is asked for.
type driver struct {
	handles   atomic.Uint64
	functions map[string]uintptr

	mu     sync.Mutex // guards what follows
	status map[uintptr]int32
	refers uint64               // how many refer to each event
	done   bool                 // commands are when they are given
	ended  *sync.Cond           // a status has changed
	calls  map[string]int       // how often it was called
	stands map[string]chan bool // calls that do not return before they are told to
}

// played are those that no test has: there is room for so many functions in a process only.
var played struct {
	mu   sync.Mutex // guards idle
	idle []*driver
}

// plays has a session use a driver of its own.
func plays(t testing.TB, s *Session) *driver {
	played.mu.Lock()
	defer played.mu.Unlock()
	var d *driver
	if n := len(played.idle); n > 0 {
		d, played.idle = played.idle[n-1], played.idle[:n-1]
	} else {
		d = newDriver()
	}
	t.Cleanup(func() {
		played.mu.Lock()
		defer played.mu.Unlock()
		played.idle = append(played.idle, d)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status, d.calls, d.stands, d.done, d.refers = map[uintptr]int32{}, map[string]int{}, map[string]chan bool{}, false, 1
	s.lib.functions = d.functions
	return d
}

type called [14]uintptr

// set writes a word where an argument says.
func (a *called) set(i int, w uint64) {
	if a[i] != 0 {
		*(*uint64)(address(a[i])) = w
	}
}

func newDriver() *driver {
	d := &driver{functions: map[string]uintptr{}}
	d.ended = sync.NewCond(&d.mu)
	d.handles.Store(1 << 12)
	event := func(at int) func(a *called) uintptr {
		return func(a *called) uintptr {
			if a[at] != 0 {
				a.set(at, uint64(d.event(1)))
			}
			return 0
		}
	}
	object := func(*called) uintptr { return uintptr(d.handles.Add(64)) }
	fine := func(*called) uintptr { return 0 }
	all := map[string]func(a *called) uintptr{
		"clCreateUserEvent": func(*called) uintptr { return d.event(2) }, "clEnqueueReadBuffer": event(8), "clEnqueueWriteBuffer": event(8), "clEnqueueReadImage": event(10), "clEnqueueWriteImage": event(10),
		"clEnqueueReadBufferRect": event(13), "clEnqueueWriteBufferRect": event(13),
		"clSetUserEventStatus": func(a *called) uintptr { d.end(a[0], int32(a[1])); return 0 },
		"clGetEventInfo": func(a *called) uintptr {
			d.mu.Lock()
			defer d.mu.Unlock()
			if a[1] == clEventReferences {
				a.set(4, 8)
				a.set(3, d.refers)
				return 0
			}
			a.set(3, uint64(uint32(d.status[a[0]])))
			return 0
		},
		"clGetDeviceInfo": func(a *called) uintptr { // all is 65536
			if a.set(4, 8); a[2] >= 8 {
				a.set(3, 1<<16)
			}
			return 0
		},
		"clGetProgramBuildInfo": func(a *called) uintptr { // all were compiled
			if a.set(5, 8); a[3] >= 8 {
				a.set(4, map[bool]uint64{true: 1}[a[2] == clBinaryType])
			}
			return 0
		},
		"clCreateKernelsInProgram": func(a *called) uintptr {
			a.set(2, uint64(d.handles.Add(64)))
			a.set(3, 1)
			return 0
		},
		"clWaitForEvents": func(a *called) uintptr {
			d.mu.Lock()
			defer d.mu.Unlock()
			e := *(*uintptr)(address(a[1]))
			for d.status[e] > 0 && !d.done {
				d.ended.Wait()
			}
			if d.status[e] < 0 {
				return uintptr(1<<64 + clFailedWait)
			}
			return 0
		},
	}
	for _, name := range strings.Fields("clLinkProgram clCreateProgramWithSource clCreateProgramWithBinary clCreateProgramWithIL clCreateKernel clCloneKernel clCreateContext clCreateCommandQueue clCreateBuffer clCreateSubBuffer clCreateImage clCreateSampler") {
		all[name] = object
	}
	for _, name := range strings.Fields("clBuildProgram clCompileProgram clReleaseProgram clReleaseCommandQueue clReleaseKernel clReleaseContext clReleaseSampler clReleaseDevice clReleaseMemObject clReleaseEvent clRetainCommandQueue clRetainEvent clFlush clFinish clSetKernelArg clSetKernelExecInfo clSetKernelArgSVMPointer clSetProgramSpecializationConstant") {
		all[name] = fine
	}
	for _, c := range wire.Calls {
		if n := len(c.Params); n > 0 && c.Params[n-1] == wire.KindOut {
			at := n - 1
			for _, k := range c.Params {
				if k == wire.KindWaits || k == wire.KindMems || k == wire.KindPattern { // which are two
					at++
				}
			}
			all[c.Name] = event(at)
		}
	}
	for name, do := range all {
		d.functions[name] = purego.NewCallback(func(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13 uintptr) uintptr {
			d.mu.Lock()
			d.calls[name]++
			stand := d.stands[name]
			d.mu.Unlock()
			if stand != nil {
				stand <- true
				<-stand
			}
			return do(&called{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13})
		})
	}
	return d
}

// event is a new one.
func (d *driver) event(status int32) uintptr {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := uintptr(d.handles.Add(64))
	if status == 1 && d.done {
		status = 0
	}
	d.status[e] = status
	return e
}

// end says that an event has happened, or failed.
func (d *driver) end(e uintptr, status int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status[e] = status
	d.ended.Broadcast()
}

func (d *driver) called(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[name]
}

// stand has calls of a function not return before something is said; they say when they have come.
func (d *driver) stand(name string) chan bool {
	c := make(chan bool)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stands[name] = c
	return c
}

// heard is what a session answers.
type heard struct {
	silent

	mu   sync.Mutex // guards what follows
	all  []uint64   // numbers of the calls
	said map[uint64]int32
}

func (h *heard) write(head, _ []byte, _ int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := uint64(binary.LittleEndian.Uint32(head[12:]))
	h.all = append(h.all, n)
	if h.said == nil {
		h.said = map[uint64]int32{}
	}
	h.said[n] = int32(binary.LittleEndian.Uint64(head[16:]))
	return nil
}

func (h *heard) status(call uint64) (status int32, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	status, ok = h.said[call]
	return status, ok
}

// asks is a call that a program waits for.
func asks(op wire.Op, call uint32, body []byte) *message {
	return &message{Header: wire.Header{Size: uint64(len(body)) + wire.HeaderSize, Op: op, Flags: wire.FlagAnswer | wire.FlagThreads, Call: call}, body: body}
}

func soonTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); <-time.After(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal(what)
		}
	}
}

// TestAside: while programs are linked, built, compiled and made, other threads' calls
// are done, the device comes to rest, and what they name stays though the program
// releases it. Who asks for what is being built waits.
func TestAside(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*message{
		"clLinkProgram":             asks(wire.OpLink, 1, words(1, 50, 0, 1, 5)),
		"clBuildProgram":            asks(wire.OpBuild, 1, words(5, 0)),
		"clCompileProgram":          asks(wire.OpCompile, 1, words(5, 0, 0)),
		"clCreateProgramWithBinary": asks(wire.OpCreateProgram, 1, words(1, 50, fromBinary, 8, 1)),
		"clCreateKernel":            asks(wire.OpCreateKernel, 1, words(5, 50, 1, 'k')),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !takesLong.has(m.Op) {
				t.Error("who reads messages waits for it")
			}
			out := &heard{}
			s := session(out)
			s.bounds = usual
			d := plays(t, s)
			stands := d.stand(name)
			done := make(chan error)
			go func() { done <- s.do(m) }()
			<-stands
			if err := s.do(asks(wire.OpUserEvent, 2, words(1, 60))); err != nil {
				t.Error(err)
			}
			if _, ok := out.status(2); !ok {
				t.Error("another thread's call is not done meanwhile")
			}
			if _, can := s.rests(); can {
				t.Error("it rests while the program has an event to set")
			}
			released := m.Op != wire.OpCreateProgram
			if released {
				if err := s.release(&[]wire.Body{wire.NewBody(words(5))}[0]); err != nil {
					t.Error(err)
				}
			}
			if n := d.called("clReleaseProgram"); n != 0 {
				t.Error("what it names is gone")
			}
			stands <- true
			if err := <-done; err != nil {
				t.Error(err)
			}
			if _, ok := out.status(1); !ok {
				t.Error("it is not answered")
			}
			if n := d.called("clReleaseProgram"); n != map[bool]int{true: 1}[released] {
				t.Errorf("what it names is released %d times", n)
			}
		})
	}
}

// TestBuilding: who asks about a program that is being built waits for that, and
// others do not wait for them.
func TestBuilding(t *testing.T) {
	t.Parallel()
	out := &heard{}
	s := session(out)
	d := plays(t, s)
	stands := d.stand("clBuildProgram")
	var all sync.WaitGroup
	all.Go(func() { _ = s.do(asks(wire.OpBuild, 1, words(5, 0))) })
	<-stands
	for i, m := range []*message{asks(wire.OpInfo, 2, words(ofBuild, 5, 0, clBuildStatus)), asks(wire.OpCreateKernel, 3, words(5, 70, 1, 'k')), asks(wire.OpBinaries, 4, words(5)), asks(wire.OpSpecialize, 5, words(5, 7, 4, 5))} {
		if !takesLong.has(m.Op) && m.Op != wire.OpInfo || s.building.Load() == 0 {
			t.Errorf("who reads messages waits for call %d", i+2)
		}
		all.Go(func() { _ = s.do(m) })
	}
	_ = s.do(asks(wire.OpUserEvent, 6, words(1, 60)))
	if _, ok := out.status(6); !ok {
		t.Error("another thread's call is not done meanwhile")
	}
	<-time.After(20 * time.Millisecond)
	for call := range uint64(6) {
		if _, ok := out.status(call); ok {
			t.Errorf("call %d does not wait until the program is built", call)
		}
	}
	stands <- true
	all.Wait()
	if len(out.all) != 6 || s.building.Load() != 0 || s.objects[5].busy || s.objects[5].named != 0 {
		t.Errorf("answered were %v", out.all)
	}
}

// TestFreed: events of what goes on in queues that are gone are forgotten when that is
// done, though the device never comes to rest.
func TestFreed(t *testing.T) {
	t.Parallel()
	s := session(silent{})
	s.bounds = usual
	d := plays(t, s)
	for i := range 20000 {
		q := &object{kind: queue, ptr: 64}
		q.fed.Add(1)
		if err := s.keep(uint64(100+i), q); err != nil {
			t.Fatal(err)
		}
		b := wire.NewBody(words(uint64(100 + i)))
		if err := s.release(&b); err != nil {
			t.Fatal(err)
		}
		if i >= 100 { // so many run
			d.end(s.freed[0], 0)
			d.end(s.freed[len(s.freed)-1], 0)
		}
		if len(s.freed) > 1000 {
			t.Fatalf("%d events are kept after %d queues", len(s.freed), i+1)
		}
	}
	if n := d.called("clReleaseEvent"); n < 19000 {
		t.Errorf("%d events were released", n)
	}
}

// TestFailsEarly: a call that waits for an event of the program's and for one that
// fails is told so at once, and leaves nothing behind; what comes next in its queue is
// not held back.
func TestFailsEarly(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		out := &heard{}
		s := session(out)
		d := plays(t, s)
		done := make(chan bool)
		_ = s.do(asks(wire.OpUserEvent, 1, words(1, 60)))
		go func() {
			s.flow.enter()
			_ = s.do(asks(wire.OpRead, 2, words(2, 3, 0, 1, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0, 1, 60, 61)))
			s.flow.leave()
			close(done)
		}()
		parked := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.held) == 1 && s.held[0].parked
		}
		soonTrue(t, "it does not wait", parked)
		if stopped && !s.flow.stop(time.Minute, func() {}) {
			t.Fatal("a call that waits for the program keeps it from moving")
		}
		if s.comeBack() {
			t.Error("it returns before anything has failed")
		}
		s.mu.Lock()
		ptr := s.objects[61].ptr
		s.mu.Unlock()
		d.end(ptr, -14)
		if stopped {
			m := &mover{Session: s}
			s.mu.Lock()
			if err := m.sendHeld(); err == nil {
				t.Error("a call that has failed is sent, or lost")
			}
			s.mu.Unlock()
			if !s.comeBack() {
				t.Error("it does not return while the session is stopped")
			}
			if _, ok := out.status(2); ok {
				t.Error("it is answered while the session is stopped")
			}
			s.flow.goOn()
		}
		<-done
		if !s.flow.stop(time.Minute, func() {}) {
			t.Error("the session does not stop again")
		}
		if status, ok := out.status(2); !ok || status != clFailedWait {
			t.Errorf("the call is told %d, %v", status, ok)
		}
		s.flow.goOn()
		s.mu.Lock()
		if s.pass(s.objects[2]); s.holdsAny(s.objects[2]) || len(s.objects[2].behind) > 0 || len(s.objects[61].behind) > 0 {
			t.Error("what has failed holds back what comes next")
		}
		s.mu.Unlock()
		_ = s.do(asks(wire.OpSetUserEventStatus, 3, words(60, 0)))
		for _, e := range s.freed { // what came before it
			d.end(e, 0)
		}
		if s.forgetFreed(); len(s.held)+len(s.freed)+s.users+s.objects[2].named+s.objects[3].named+s.objects[60].named != 0 {
			t.Errorf("%d held, %d events, %d of the program's are left", len(s.held), len(s.freed), s.users)
		}
	}
}

// TestCalm: before something is to fail, PoCL is through with the worker's own markers, which
// it is a moment after they are done; but not for longer than a moment.
func TestCalm(t *testing.T) {
	t.Parallel()
	s := session(&heard{})
	d := plays(t, s)
	s.queues = append(s.queues, s.objects[2])
	s.lib.marksAll, d.refers, d.done = true, 2, true
	drain := func() {
		s.objects[2].fed.Add(1)
		s.drainNow()
	}
	drain()
	begun := time.Now()
	if s.calm(); time.Since(begun) < calmTells*calmEvery || len(s.left) != 1 {
		t.Errorf("the driver refers to a marker that has ended: %d are followed after %v", len(s.left), time.Since(begun))
	}
	d.mu.Lock()
	d.refers = 1
	released := d.calls["clReleaseEvent"]
	d.mu.Unlock()
	if drain(); len(s.left) != 0 {
		t.Errorf("%d markers are followed when the driver is through with both", len(s.left))
	}
	d.mu.Lock()
	if n := d.calls["clReleaseEvent"] - released; n != 2 {
		t.Errorf("%d events were given back, not 2", n)
	}
	d.refers = 2
	d.mu.Unlock()
	// So is the one before a command that is held, which may fail.
	_ = s.do(asks(wire.OpUserEvent, 1, words(1, 60)))
	_ = s.do(asks(wire.OpEnqueueMarkerWithWaitList, 2, words(2, 1, 60, 62)))
	if len(s.left) != 1 {
		t.Fatalf("%d markers are followed before a command that is held", len(s.left))
	}
	begun = time.Now()
	if _ = s.do(asks(wire.OpSetUserEventStatus, 3, words(60, 1<<32-1))); time.Since(begun) < calmTells*calmEvery || len(s.left) != 1 {
		t.Errorf("what is held failed %v after it was to, with %d markers", time.Since(begun), len(s.left))
	}
	d.mu.Lock()
	d.refers = 1
	d.mu.Unlock()
	s.forgetFreed()
	s.lib.marksAll = false // another driver's
	if drain(); len(s.left) != 0 {
		t.Error("markers of other drivers are followed, too")
	}
}

// TestMarksAll: where a marker with a list waits for all that its queue was given before, it is
// held as long as that: what brings the device to rest does not wait for it. So is one whose
// list has only events that the driver is not told of: it is given none.
func TestMarksAll(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		s := session(&heard{})
		d := plays(t, s)
		s.lib.marksAll, s.objects[2].loose = all, true
		for _, id := range []uint64{60, 61} {
			_ = s.do(asks(wire.OpUserEvent, 1, words(1, id)))
		}
		_ = s.do(asks(wire.OpEnqueueMarkerWithWaitList, 2, words(2, 1, 60, 62)))
		_ = s.do(asks(wire.OpEnqueueMarkerWithWaitList, 3, words(2, 1, 61, 63)))
		_ = s.do(asks(wire.OpEnqueueBarrierWithWaitList, 4, words(2, 1, 61, 64)))
		_ = s.keep(65, &object{kind: event}) // it was done before the program moved here
		_ = s.do(asks(wire.OpEnqueueMarkerWithWaitList, 5, words(2, 1, 65, 66)))
		_ = s.do(asks(wire.OpSetUserEventStatus, 6, words(61, 0)))
		want := []uint64{62, 66}
		if all {
			want = []uint64{62, 63, 66}
		}
		var is []uint64
		for _, h := range s.held {
			is = append(is, h.made.id)
		}
		if !slices.Equal(is, want) {
			t.Errorf("%v: %d are held, not %d", all, is, want)
		}
		_ = s.do(asks(wire.OpSetUserEventStatus, 7, words(60, 0)))
		for _, e := range s.freed {
			d.end(e, 0)
		}
		if s.forgetFreed(); len(s.held)+len(s.freed)+s.users != 0 {
			t.Errorf("%v: %d held, %d events, %d of the program's are left", all, len(s.held), len(s.freed), s.users)
		}
	}
}

// TestOldWait: a driver is asked for a barrier, not for the wait of OpenCL 1.0, with which PoCL
// ends the process, also for what waits for the program.
func TestOldWait(t *testing.T) {
	t.Parallel()
	out := &heard{}
	s := session(out)
	s.bounds = usual
	d := plays(t, s)
	for i, m := range []*message{
		asks(wire.OpEnqueueWaitForEvents, 1, words(uint64(queue), 1, uint64(event))),
		asks(wire.OpUserEvent, 2, words(1, 60)),
		asks(wire.OpEnqueueWaitForEvents, 3, words(uint64(queue), 1, 60)),
		asks(wire.OpEnqueueBarrier, 4, words(uint64(queue))),
	} {
		if err := s.do(m); err != nil {
			t.Fatal(err)
		}
		if status, ok := out.status(uint64(i + 1)); !ok || status != clSuccess {
			t.Errorf("call %d: %d", i+1, status)
		}
	}
	if old, barriers := d.called("clEnqueueWaitForEvents"), d.called("clEnqueueBarrierWithWaitList"); old != 0 || barriers != 3 {
		t.Errorf("%d waits, %d barriers", old, barriers)
	}
}
