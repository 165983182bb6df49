//go:build linux

// Package cuda makes the calls of CUDA's driver interface that one program asks
// for on one device; package worker does so for OpenCL, and lends the connection
// and the turns. It runs in a process for each program: what a program does to a
// device ends with that.
//
// Each thread of the program has a thread here that makes its calls, so that
// what the driver keeps for a thread (the current context, the default stream of
// its own, the mode of capturing) is as it would be there. Messages are read by
// one thread at a time, the one whose message came last: as long as one thread
// speaks nobody else is woken. It hands that on when a message is another's, and
// before a call that may wait for the device if the program has other threads.
// So calls are made in the order in which they were sent, but for those whose
// answers are waited for and take long.
//
//	program's thread 1 ┐                           ┌ thread 1 ┐
//	program's thread 2 ┼─ messages, in one order ─▶┤ thread 2 ├─▶ libcuda
//	                                               └ keeper ──┘ (waits for what streams were given when a turn ends)
//
// What a message asks for is checked here, whatever client sent it: numbers of
// objects and their kinds, lengths, what copies need. Addresses of the device are
// the driver's to check. Memory is counted when it is made.
package cuda

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
	"yunhe.dev/yunhe/internal/pool/worker"
)

// Session is one program's connection.
type Session struct {
	d      *driver
	device int32
	memory *between.Memory // the task's
	card   *between.Memory // what is on the device, of all tasks
	turn   *worker.Turn
	in     *bufio.Reader // the reader's, of whom there is one at a time
	limit  uint64        // bytes of a message
	prints *worker.Prints
	end    chan error // why the session ends

	captures atomic.Int32 // how many streams capture
	wanting  atomic.Int32 // how many calls wait for a turn

	sending sync.Mutex // guards what follows
	conn    io.ReadWriteCloser
	head    [wire.AnswerSize]byte

	mu       sync.Mutex // guards what follows
	objects  map[uint64]*object
	byPtr    map[place]*object
	last     uint64 // number of an object
	threads  map[uint64]*thread
	held     map[uint64]held // the device's memory, by its address
	mappings map[uint64]mapping
	textures map[texture]bool
	primary  int   // how often the primary context is used
	status   int32 // what a call that nobody waited for failed with, first

	marks  marks
	copies copies
	paged  paged
}

// message is one that was read.
type message struct {
	wire.Header

	thread uint64
	body   []byte
}

// thread makes the calls of one of the program's.
type thread struct {
	s     *Session
	id    uint64
	hand  chan *message // its next message, and with it the reader's role
	over  bool
	stack []*object // contexts that are current, the last one really
	args  []uintptr
	objs  []*object
	cells *cells
	m     *message
}

const (
	// mostThreads is how many a program may have.
	mostThreads = 4096
	keepBody    = 64 << 10
	mostImage   = 2 << 30
)

var errEnd = errors.New("the message is not one of this call")

// Serve reads and answers until the connection ends. It returns what was wrong
// with what the client sent, or nil.
func (s *Session) Serve() error {
	go s.keep()
	go s.dispatch(&message{})
	return <-s.end
}

func (s *Session) stop(err error) {
	if err == io.EOF || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		err = nil
	}
	select {
	case s.end <- err:
	default:
	}
}

// dispatch reads a message and gives it, and the reader's role, to its thread.
func (s *Session) dispatch(m *message) {
	if err := s.read(m); err != nil {
		s.stop(err)
		return
	}
	t, err := s.threadOf(m.thread)
	if err != nil {
		s.stop(err)
		return
	}
	t.hand <- m
}

func (s *Session) threadOf(id uint64) (*thread, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.threads[id]
	if t != nil {
		return t, nil
	}
	if len(s.threads) >= mostThreads {
		return nil, fmt.Errorf("the program has more than %d threads", mostThreads)
	}
	t = &thread{s: s, id: id, hand: make(chan *message, 1), cells: &cells{}}
	s.threads[id] = t
	go t.run()
	return t, nil
}

// run makes a thread's calls. The system's thread ends with it.
func (t *thread) run() {
	runtime.LockOSThread()
	for !t.over {
		t.serve(<-t.hand)
	}
}

// serve makes calls and reads the next, as long as that is this thread's.
func (t *thread) serve(m *message) {
	s := t.s
	for {
		passed := m.blocks() && m.Flags&wire.FlagThreads != 0 && m.Flags&wire.FlagAnswer != 0
		if passed {
			go s.dispatch(&message{})
		}
		if err := t.do(m); err != nil {
			s.stop(err)
			return
		}
		if passed {
			return
		}
		if t.over {
			s.forget(t)
			go s.dispatch(m)
			return
		}
		if err := s.read(m); err != nil {
			s.stop(err)
			return
		}
		if m.thread == t.id {
			continue
		}
		next, err := s.threadOf(m.thread)
		if err != nil {
			s.stop(err)
			return
		}
		next.hand <- m
		return
	}
}

func (s *Session) forget(t *thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.threads, t.id)
}

// read reads a message.
func (s *Session) read(m *message) error {
	h, err := s.in.Peek(wire.HeaderSize)
	if err != nil {
		if err == io.EOF && len(h) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if m.Header, err = wire.ParseCUDAHeader(h, s.limit); err != nil {
		return err
	}
	_, _ = s.in.Discard(len(h)) // it is there
	n := int(m.Size - wire.HeaderSize)
	if n < 8 {
		return errEnd
	}
	if cap(m.body) < n || cap(m.body) > keepBody && n <= keepBody && m.Op != wire.CUDACopyIn {
		m.body = make([]byte, n, max(n, 4096))
	}
	m.body = m.body[:n]
	if _, err := io.ReadFull(s.in, m.body); err != nil {
		return err
	}
	m.thread = binary.LittleEndian.Uint64(m.body)
	return nil
}

// blocks reports whether a call may wait for the device, or take long.
func (m *message) blocks() bool {
	word := func(i int) bool { return len(m.body) >= 8*(i+1) && binary.LittleEndian.Uint64(m.body[8*i:]) != 0 }
	switch m.Op {
	case wire.CUDACopyIn:
		return word(2)
	case wire.CUDACopyBox: // see copyBox
		return word(2) || len(m.body) > 8*22 && binary.LittleEndian.Uint64(m.body[8*6:]) == inProgram && !word(22)
	case wire.CUDACopyOut:
		return !word(2)
	case wire.CUDALoad, wire.CUDALoadLibrary, wire.CUDALinkAdd, wire.CUDALinkComplete:
		return true
	}
	return wire.CUDACalls[m.Op].Blocks
}

// answer ends a call. One that nobody waits for tells its failure by the next that
// waits for the device.
func (t *thread) answer(status int32, a, b uint64, data []byte) error {
	s := t.s
	if t.m.Flags&wire.FlagAnswer == 0 {
		if status != success && status != notReady {
			s.mu.Lock()
			if s.status == success {
				s.status = status
			}
			s.mu.Unlock()
		}
		return nil
	}
	if err := t.sendReads(); err != nil {
		return err
	}
	if t.m.blocks() {
		s.prints.Show()
	}
	return s.send(wire.OpAnswer, t.m.Call, status, a, b, data)
}

// late is the status of a call that waited for the device: that of an earlier one
// that nobody waited for, if that failed.
func (s *Session) late(status int32) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status == success && s.status != success {
		status, s.status = s.status, success
	}
	return status
}

func (s *Session) send(op uint16, call uint32, status int32, a, b uint64, data []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	wire.PutAnswer(s.head[:], op, 0, call, status, a, b, len(data))
	return worker.WriteAll(s.conn, s.head[:], data)
}

func newSession(d *driver, device int32, conn io.ReadWriteCloser, memory, card *between.Memory, turn *worker.Turn) *Session {
	return &Session{
		d: d, device: device, memory: memory, card: card, turn: turn, conn: conn, in: bufio.NewReaderSize(conn, 64<<10), limit: mostImage, end: make(chan error, 1),
		objects: map[uint64]*object{}, byPtr: map[place]*object{}, threads: map[uint64]*thread{}, held: map[uint64]held{}, mappings: map[uint64]mapping{}, textures: map[texture]bool{},
		marks: marks{all: map[markKey]*mark{}, capturing: map[markKey]bool{}, errands: make(chan errand)},
		paged: paged{all: map[uint64]section{}, streams: map[uintptr]uintptr{}},
	}
}

// Run serves a program's connection for the device with a UUID.
func Run(conn net.Conn, secret between.Secret, uuid, folder string, memory, card *between.Memory, turn *worker.Turn, gone func()) error {
	line, path, err := worker.OpenProgram(secret, conn) // before anything of the device is used
	if err != nil {
		return err
	}
	d, err := open(folder)
	if err != nil {
		return err
	}
	device, err := d.device(uuid)
	if err != nil {
		return err
	}
	s := newSession(d, device, path, memory, card, turn)
	turn.Drains(s.drain)
	turn.Fetches(s.fetch)
	if blocking := os.Getenv("CUDA_LAUNCH_BLOCKING"); blocking == "" || blocking == "0" { // or a launch lasts until its kernel has ended
		turn.Rests(s.rests)
	}
	go worker.Leave(line, gone)
	if err := s.send(wire.OpAnswer, 0, success, 0, 0, nil); err != nil {
		return err
	}
	if s.prints, err = worker.Capture(func(text []byte) { _ = s.send(wire.OpPrinted, 0, success, 0, 0, text) }); err != nil { // if the program is gone, so is this process in a moment
		return err
	}
	return s.Serve()
}
