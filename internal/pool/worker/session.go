//go:build linux

// Package worker makes the calls of OpenCL that one program asks for on one
// device. A worker is a process: what a program does to a device (a kernel that
// writes where it must not, one that never ends) ends with its worker, and
// other programs' workers go on.
//
// Messages are read by one goroutine at a time. A call that waits for the
// device is made by the goroutine that read it; if the program has other
// threads, or events that it sets itself, another goroutine reads on meanwhile,
// because what the call waits for may be what comes next.
//
// What a message asks for is checked here, whatever client sent it: numbers of
// objects and their kinds, counts, and sizes of memory against what rows and
// regions need. A message that is not one ends the connection.
package worker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

type kind uint8

const (
	context kind = iota + 1
	queue
	mem
	sampler
	program
	kernel
	event
	device // part of the whole one
)

// invalid is the error of a number that is not of an object of a kind.
var invalid = map[kind]int32{context: clInvalidContext, queue: clInvalidQueue, mem: clInvalidMem, sampler: clInvalidSampler, program: clInvalidProgram, kernel: clInvalidKernel, event: clInvalidEvent, device: clInvalidDevice}

var releases = [...]string{context: "clReleaseContext", queue: "clReleaseCommandQueue", mem: "clReleaseMemObject", sampler: "clReleaseSampler", program: "clReleaseProgram", kernel: "clReleaseKernel", event: "clReleaseEvent", device: "clReleaseDevice"}

// object is what a client's number stands for.
type object struct {
	kind   kind
	ptr    uintptr
	bytes  uint64   // counted as the task's
	size   uint64   // of memory
	pixel  uint64   // bytes of an image's
	shared []byte   // what both sides map, or may
	kept   int      // bytes that are kept of it, see bounds
	file   *os.File // of that, for a program that was moved here and may ask for it
	off    []byte   // of memory that is off the device, what is in it
	svm    *region
	copied int   // by movers, who need it to stay
	status int32 // of a queue, what a call that nobody waited for failed with; of an event, why there is none
	user   bool
	work   work // of an event, what is done when it is

	behind []*object // of an event or a queue, the program's own that are not set and that it, or what comes next in it, waits for
	named  int       // by what is held, or by calls that others go on beside
	late   bool      // its handle is released when it is not named any more
	stays  bool      // on the device, when other memory was last taken off

	given, known int64        // of a queue, how much work it was given, and how much of that is known to be done
	reads, read  int64        // and how many reads that nobody waits for
	fed          atomic.Int64 // commands of all kinds that it was given
	drained      int64        // and how many of those are known to be done
	loose        bool         // a queue that does not keep order

	options []byte // of a program, as it was built, with the 0 at the end
	busy    bool   // a program is being built
	hidden  bool   // a kernel's arguments are known to the worker only: the program did not ask for that
	bare    bool   // a kernel's program was built without options

	// What another worker needs to make it again, see move.go.
	id, order uint64
	op        wire.Op
	made      []byte // the parameters of the message that made it, without data
	parent    *object
	children  int
	released  bool              // by the program, while it has children
	args      map[uint64][]byte // of a kernel, as they were last set
	unset     map[uint64]int32  // and those that could not be set, when nobody waited for that
	reaches   []uint64          // addresses that a kernel reaches beside its arguments
	extent    [3]uint64         // of an image
	code      *code             // of a program
	devices   []uintptr         // of a context, if it has others than the whole one
	times     []byte            // of an event that another worker's device did
}

// code is what a program was made of.
type code struct {
	context  uint64
	from     uint64
	text     []byte
	how      wire.Op // how it was last built, or 0
	headers  []byte  // that came with that, as they came
	builds   uint64
	replaced bool // it is made of its binary, where the program knows it by its text
	told     map[question]told
	came     []byte // what it was built to, of one that can only be linked and has moved
	kind     uint64 // of that

	constants map[uint64][]byte // by their numbers, see specialize
}

// read is one that the client does not wait for, until it waits for something else.
type read struct {
	landing uint64
	event   uintptr
	data    []byte
	room    []byte // in which that is, of a write, if others may have it then
	work           // up to it
}

// Session is one program's connection.
type Session struct {
	lib    *library
	device uintptr
	memory *between.Memory // the task's
	card   *between.Memory // what is on the device, of all tasks
	turn   *Turn
	token  []byte        // of the task
	in     *bufio.Reader // the reader's, of whom there is one at a time
	ahead  bool          // the reader's: what comes in another queue may have to wait for writes that were not waited for
	limit  uint64        // bytes of a message
	bounds bounds
	shares bool // buffers may be memory that the client maps
	flow   flow
	gate   atomic.Pointer[gate]     // of shared buffers; nil without, as before the program asks for it where it was moved to
	taken  atomic.Uint64            // messages
	back   atomic.Pointer[attached] // the connection of a client that has connected by itself, from a message on

	argsTold func() bool // see tellsArgs, which is done once
	places   func() bool // see placesSVM, which is done once

	hold sync.RWMutex // held for reading by who uses memory of the device, for writing by who takes it off or puts it back
	out  bool         // the session's memory is off the device; hold guards it

	moving  sync.Mutex               // who has it moves the session
	target  atomic.Pointer[net.Conn] // to where that goes
	landing sync.Mutex               // who has it sends what was read meanwhile
	sending sync.Mutex               // guards what follows
	conn    path                     // to the client
	sent    uint64                   // messages
	head    [wire.AnswerSize]byte

	rooms    rooms
	lanes    lanes
	building atomic.Int32 // programs that are being built

	prints  atomic.Bool // a program's kernels may print
	printed *Prints     // nil: it is not shown

	mu                    sync.Mutex // guards what follows
	inConn                path       // from the client
	better                path       // that it asked for, and may use from a message on
	relayed               bool       // messages come through the worker that the session was moved from
	following             bool       // the client has connected by itself
	objects               map[uint64]*object
	ghosts                map[uint64]*object // released, but others are made of them
	refused               map[uint64]int32   // what could not be made, and why, when nobody waited for that
	order                 uint64
	reads                 []read
	writes                []read      // whose data must stay until they are done
	staged                atomic.Bool // there may be some of these, or heldReads
	heldReads, heldWrites uint64      // bytes of these
	dying                 []*object
	marks                 []mark
	queues                []*object
	regions               []*object      // of shared virtual memory, by address
	users                 int            // events that the program sets, and has not
	held                  []*held        // in their order
	freed                 []uintptr      // events of commands that run though their queues have some that are held, or are gone
	kept                  int            // bytes, for all objects and what is held
	waiting               int            // calls beside who reads
	besideBytes           uint64         // of these
	left                  []leaves       // events of markers, where it matters when drivers are through with them (calm)
	mostFreed             int            // when there are more, those of what is done are forgotten
	built                 *sync.Cond     // a program has been built; nil: nobody waits for that
	coming                []func() error // what is left of calls that wait, while the session comes; nil: it does not
}

// message is one that was read.
type message struct {
	wire.Header

	body    []byte
	taken   bool      // the body is kept by another
	crowded bool      // too many wait to go on beside it
	cut     bool      // it brings more than the task may hold, and was not read
	beside  uint64    // bytes, while others go on
	stage   []byte    // for what is read and sent at once, if it is little
	names   []*object // while the program has events that it has not set, what it names
	args    arena
}

// arena is memory for arguments that are pointers: it stays where it is until
// the next message.
type arena struct {
	first []uint64
	more  [][]uint64
}

func (a *arena) take(n int) []uint64 {
	if a.first == nil {
		a.first = make([]uint64, 0, 1024)
	}
	if used := len(a.first); used+n <= cap(a.first) {
		a.first = a.first[:used+n]
		return a.first[used:]
	}
	w := make([]uint64, max(n, 1))
	a.more = append(a.more, w)
	return w
}

func (a *arena) reset() { a.first, a.more = a.first[:0], nil }

var errEnd = errors.New("the message is not one of this call")

// Serve reads and answers until the connection ends. It returns what was wrong
// with what the client sent, or nil.
func (s *Session) Serve() error {
	end := make(chan error, 1)
	go s.readOn(end)
	return <-end
}

func (s *Session) readOn(end chan<- error) {
	m := &message{}
	for {
		if err := s.next(m); err != nil {
			if err == io.EOF || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
				err = nil
			}
			end <- err
			return
		}
		if waits := takesLong.has(m.Op) || m.blocks() || m.Op == wire.OpInfo && s.building.Load() > 0; waits && (m.Flags&wire.FlagThreads != 0 || s.userEvents()) {
			if s.beside(m) {
				go s.readOn(end)
				err := s.do(m)
				s.leaves(m)
				s.flow.leave()
				s.through(m)
				if err != nil {
					_ = s.conn.Close() // whoever reads on finds it closed, and ends
				}
				return
			}
			m.crowded = s.userEvents() // it may wait for what would come next
		}
		err := s.do(m)
		s.flow.leave()
		s.through(m)
		if err != nil {
			end <- err
			return
		}
	}
}

// takesLong are calls that others go on beside. All are waited for: nothing that
// comes next is about what they make.
var takesLong = setOf(wire.OpFinish, wire.OpWait, wire.OpBuild, wire.OpCompile, wire.OpLink, wire.OpCreateProgram, wire.OpBinaries, wire.OpCreateKernel, wire.OpCreateKernels, wire.OpSpecialize)

// blocks reports whether a message is a transfer that is waited for. One that is
// not keeps its place: what comes next may name its event, or what it writes.
func (m *message) blocks() bool {
	const at = 3 * 8 // see transfer
	return m.Flags&wire.FlagAnswer != 0 && (m.Op == wire.OpRead || m.Op == wire.OpWrite) && len(m.body) >= at+8 && binary.LittleEndian.Uint64(m.body[at:]) != 0
}

func (s *Session) userEvents() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users > 0
}

const keepBody = 64 << 10

// next reads a message. The session does not move until the message is done (flow.leave).
func (s *Session) next(m *message) error {
	h, err := s.await()
	if err != nil {
		return err
	}
	if err = s.read(m, h); err != nil {
		s.flow.leave()
	}
	return err
}

func (s *Session) read(m *message, h []byte) error {
	var err error
	if m.Header, err = wire.ParseHeader(h, s.limit); err != nil {
		return err
	}
	m.cut, m.crowded = false, false
	if m.Size > mostCall {
		if m.cut, err = s.fits(m.Header); err != nil {
			return err
		}
	}
	_, _ = s.in.Discard(len(h)) // it is there
	n, past := int(m.Size-wire.HeaderSize), 0
	if m.cut {
		n, past = 0, n
	}
	if cap(m.body) < n || m.taken {
		m.taken = false
		m.body = s.rooms.take(n)
	}
	m.body = m.body[:n]
	m.args.reset()
	m.names = nil
	if err := s.fill(m.body, past); err != nil {
		return err
	}
	s.taken.Add(1)
	return nil
}

// through gives the memory of a large message back, once that is done.
func (s *Session) through(m *message) {
	if cap(m.body) <= keepBody {
		return
	}
	if !m.taken {
		s.rooms.give(m.body)
	}
	m.body = nil
}

// tellsOfWork says whether the answer of a message may tell that work is done: what that has printed comes before.
func (m *message) tellsOfWork() bool {
	if m.Op != wire.OpInfo || len(m.body) < 8 {
		return true
	}
	of := binary.LittleEndian.Uint64(m.body)
	return of < uint64(len(infos)) && infos[of].kind == event
}

// answer ends a call that is waited for.
func (s *Session) answer(m *message, status int32, a, b uint64, data []byte) error {
	if m.Flags&wire.FlagAnswer == 0 {
		return nil
	}
	if err := s.sendReads(); err != nil {
		return err
	}
	if s.prints.Load() && m.tellsOfWork() {
		s.printed.Show()
	}
	return s.send(wire.OpAnswer, 0, m.Call, status, a, b, data)
}

func (s *Session) send(op, flags uint16, call uint32, status int32, a, b uint64, data []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.sent++
	wire.PutAnswer(s.head[:], op, flags, call, status, a, b, len(data))
	return s.conn.write(s.head[:], data, -1)
}

// sendReads sends what was read meanwhile, before an answer that may tell the
// client that it was.
func (s *Session) sendReads() error {
	if !s.staged.Load() {
		return nil
	}
	s.landing.Lock()
	defer s.landing.Unlock()
	for _, r := range s.doneReads() {
		if err := s.send(wire.OpData, 0, 0, clSuccess, r.landing, 0, r.data); err != nil {
			return err
		}
		s.rooms.give(r.data)
	}
	s.mu.Lock()
	s.heldReads = lengths(s.reads)
	s.staged.Store(len(s.reads)+len(s.writes) > 0)
	s.mu.Unlock()
	return nil
}

// doneReads takes the reads that are done. The caller has landing.
func (s *Session) doneReads() (done []read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.writes)+len(s.reads) == 0 {
		return nil
	}
	s.forgetWrites()
	left := s.reads[:0]
	for _, r := range s.reads {
		status := int32(clOutOfResources)
		if r.event != 0 {
			if status = s.eventStatus(r.event); status > clSuccess && r.on != nil && r.reads <= r.on.read {
				one := []uint64{uint64(r.event)} // it is done, which some drivers say late (Mesa 22.3)
				s.lib.call("clWaitForEvents", 1, atWords(one))
				status = s.eventStatus(r.event)
			}
		}
		if status > clSuccess {
			left = append(left, r)
			continue
		}
		if r.event != 0 {
			s.lib.call("clReleaseEvent", r.event)
		}
		if status < clSuccess {
			r.data = nil
		}
		done = append(done, r)
	}
	clear(s.reads[len(left):])
	s.reads = left
	return done
}

// forgetWrites drops the data of writes that are done. The caller has the lock.
func (s *Session) forgetWrites() {
	left := s.writes[:0]
	for _, w := range s.writes {
		if s.eventStatus(w.event) > clSuccess {
			left = append(left, w)
			continue
		}
		s.lib.call("clReleaseEvent", w.event)
		s.rooms.give(w.room)
	}
	clear(s.writes[len(left):])
	s.writes = left
	s.heldWrites = lengths(left)
}

func lengths(list []read) (n uint64) {
	for _, r := range list {
		n += uint64(len(r.data))
	}
	return n
}

const (
	// mostHeld is how many bytes of transfers that nobody waits for are held in
	// this machine's memory before the next one waits for them, and mostEver where it
	// cannot: for reads, of which the client sees to it, and for writes behind events
	// that the program sets itself.
	mostHeld = 256 << 20
	mostEver = 4 * mostHeld
)

// makeRoom waits until data of n bytes can be held for a transfer, and reports
// whether it can.
func (s *Session) makeRoom(reads bool, n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reads {
		return len(s.reads) < s.bounds.reads && (s.heldReads == 0 || s.heldReads+n <= s.bounds.held)
	}
	if s.heldWrites+n <= mostHeld {
		return true
	}
	s.mu.Unlock()
	s.drain()
	s.mu.Lock()
	s.forgetWrites()
	return s.heldWrites == 0 || s.heldWrites+n <= s.bounds.held
}

func (s *Session) eventStatus(ptr uintptr) int32 {
	status := cell()
	if bad := s.lib.status("clGetEventInfo", ptr, clEventStatus, 4, at(status), 0); bad != clSuccess {
		return bad
	}
	return int32(uint32(*status))
}

// drain waits until the device has done what it was given, but for what is held:
// that may be never. What the program lets run meanwhile is waited for, too.
func (s *Session) drain() {
	for more := true; more; {
		s.drainNow()
		s.mu.Lock()
		s.forgetFreed()
		more = len(s.freed) > 0
		s.mu.Unlock()
	}
}

// drainNow waits for what runs now. It waits for markers: some drivers' clFinish (PoCL's)
// waits for what comes meanwhile, too, which may be held.
func (s *Session) drainNow() {
	s.mu.Lock()
	s.forgetFreed()
	var marks []mark
	var flushed, whole []uintptr // queues
	for _, q := range s.queues {
		holds := s.holdsAny(q)
		if holds && s.lib.one != nil { // such a driver's clFlush would wait
			continue
		}
		if !holds && q.drained < q.fed.Load() {
			if m, bad := s.mark(q); bad == clSuccess {
				marks = append(marks, s.follow(m))
			} else {
				whole = append(whole, q.ptr)
			}
			if s.lib.one != nil { // before it is given what is held
				s.lib.call("clFlush", q.ptr)
				continue
			}
		}
		s.lib.call("clRetainCommandQueue", q.ptr) // the program may release it meanwhile
		flushed = append(flushed, q.ptr)
	}
	events := slices.Clone(s.freed)
	for _, e := range events {
		s.lib.call("clRetainEvent", e)
	}
	for _, m := range marks {
		events = append(events, m.event)
	}
	s.mu.Unlock()
	for _, q := range flushed { // one may wait for another
		s.lib.call("clFlush", q)
	}
	for _, q := range whole {
		s.lib.finish(q)
	}
	for i, e := range events {
		one := []uint64{uint64(e)}
		s.lib.call("clWaitForEvents", 1, atWords(one)) // what has failed has come to its end, too
		runtime.KeepAlive(one)
		if i < len(events)-len(marks) {
			s.lib.call("clReleaseEvent", e)
		}
	}
	for _, q := range flushed {
		s.lib.call("clReleaseCommandQueue", q)
	}
	s.mu.Lock()
	for _, m := range marks {
		m.on.drained = max(m.on.drained, m.all)
		s.leave(m.event)
	}
	s.mu.Unlock()
}

// get returns an object of a kind. The caller has the lock.
func (s *Session) get(id uint64, k kind) (*object, int32) {
	o := s.objects[id]
	if o == nil || o.kind != k {
		if bad, ok := s.refused[id]; ok {
			return nil, bad
		}
		return nil, invalid[k]
	}
	return o, clSuccess
}

// mayName says whether a number can be that of a new object. One that is in use is an
// error of the client. The caller has the lock.
func (s *Session) mayName(id uint64) error {
	if _, refused := s.refused[id]; id == 0 || s.objects[id] != nil || s.ghosts[id] != nil || refused {
		return fmt.Errorf("the number %d is in use or is none", id)
	}
	if s.full(1) {
		return errFull
	}
	return nil
}

// keep remembers a new object.
func (s *Session) keep(id uint64, o *object) error {
	if err := s.mayName(id); err != nil {
		return err
	}
	s.order++
	o.id, o.order = id, s.order
	if o.parent != nil {
		o.parent.children++
	}
	s.objects[id] = o
	if o.kind == queue {
		s.queues = append(s.queues, o)
	}
	return nil
}

// forget ends what is remembered of an object, once nothing is made of it.
func (s *Session) forget(o *object) {
	delete(s.objects, o.id)
	if o.kind == queue {
		s.queues = slices.DeleteFunc(s.queues, func(q *object) bool { return q == o })
	}
	if o.svm != nil {
		s.regions = slices.DeleteFunc(s.regions, func(r *object) bool { return r == o })
	}
	if o.released = true; o.children > 0 || o.named > 0 {
		s.ghosts[o.id] = o
		return
	}
	delete(s.ghosts, o.id)
	s.counts(o, -o.kept)
	if p := o.parent; p != nil {
		if p.children--; p.released && p.children == 0 {
			s.forget(p)
		}
	}
}

// Run serves a program's connection for a device; or, if it is moved here, the
// connection of the worker that has it.
func Run(from net.Conn, secret between.Secret, platform, index int, memory, card *between.Memory, turn *Turn, moved bool) error {
	line, conn, err := OpenProgram(secret, from) // before anything of the device is used
	if err != nil {
		return err
	}
	lib, err := open()
	if err != nil {
		return err
	}
	for _, h := range lib.devices() {
		if h.Platform != platform || h.Index != index {
			continue
		}
		lib.forgets, lib.marksAll = strings.HasPrefix(h.Driver, forgetful), strings.HasPrefix(h.Driver, marking)
		if serial(h.Device) {
			lib.one = &sync.Mutex{}
		}
		s := &Session{
			lib: lib, device: h.device, memory: memory, card: card, turn: turn, token: secret.Token, conn: conn, inConn: conn, in: bufio.NewReaderSize(conn, 64<<10), objects: map[uint64]*object{}, ghosts: map[uint64]*object{},
			limit: uint64(h.Memory) + mostCall, bounds: usual,
		}
		s.argsTold, s.places = sync.OnceValue(s.tellsArgs), sync.OnceValue(s.placesSVM)
		turn.drain, turn.look = s.drain, s.rests
		turn.owner.Store(s)
		if moved {
			s.shares = line.local && lib.sharesHostMemory(h) // the program comes the same way
			if err := s.receive(); err != nil {
				return err
			}
			if err := s.capture(); err != nil {
				return err
			}
			s.goOnWaiting()
			turn.serve(s)
			return s.Serve()
		}
		go Leave(line, turn.end)
		if line.local && lib.sharesHostMemory(h) {
			s.shares = true
			err = s.sendGate(s.offers(conn), 0)
		} else {
			err = s.send(wire.OpAnswer, s.offers(conn), 0, clSuccess, 0, 0, nil)
		}
		if err != nil {
			return err
		}
		if err := s.capture(); err != nil {
			return err
		}
		turn.serve(s)
		return s.Serve()
	}
	return fmt.Errorf("there is no device %d of platform %d any more", index, platform)
}

// Leave calls gone, which ends the process, when the program has gone, whatever
// the device is doing: who waits for a kernel that never ends does not read.
func Leave(conn *Line, gone func()) {
	conn.ended()
	gone()
}

// sharesHostMemory tries whether a buffer made of host memory is that memory:
// what the device writes there is seen without asking for it. Of some drivers'
// (Mesa's rusticl) no images are made, though of other buffers.
func (l *library) sharesHostMemory(h handle) bool {
	if l.number("clGetDeviceInfo", h.device, clDeviceUnified) == 0 {
		return false
	}
	host, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return false
	}
	bad, devices := cell(), []uintptr{h.device}
	context := l.call("clCreateContext", 0, 1, atWords(devices), 0, 0, at(bad))
	if context == 0 {
		return false
	}
	defer l.call("clReleaseContext", context)
	queue := l.call("clCreateCommandQueue", context, h.device, 0, at(bad))
	buffer := l.call("clCreateBuffer", context, clUseHostPtr, uintptr(len(host)), atBytes(host), at(bad))
	plain := l.call("clCreateBuffer", context, 1, uintptr(len(host)), 0, at(bad))
	if queue == 0 || buffer == 0 || plain == 0 {
		return false
	}
	defer l.call("clReleaseCommandQueue", queue)
	defer l.call("clReleaseMemObject", buffer)
	defer l.call("clReleaseMemObject", plain)
	want := []byte{1, 2, 3, 4}
	l.call("clEnqueueFillBuffer", queue, buffer, atBytes(want), 4, 64, 4, 0, 0, 0)
	l.call("clFinish", queue)
	seen := [4]byte(host[64:68]) == [4]byte(want)
	host[128] = 7
	got := make([]byte, 1)
	l.call("clEnqueueReadBuffer", queue, buffer, 1, 128, 1, atBytes(got), 0, 0, 0)
	return seen && got[0] == 7 && (l.makesImageOf(context, buffer) || !l.makesImageOf(context, plain))
}

// makesImageOf tries whether an image can be made of a buffer.
func (l *library) makesImageOf(context, buffer uintptr) bool {
	format, desc := []uint64{0x10B5 | 0x10DA<<32}, []imageDesc{{kind: 0x10F6, width: 16, buffer: buffer}} // RGBA of unsigned bytes
	image := l.call("clCreateImage", context, 1, atWords(format), atWords(desc), 0, at(cell()))
	if image != 0 {
		l.call("clReleaseMemObject", image)
	}
	return image != 0
}
