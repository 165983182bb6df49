//go:build linux

package worker

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// said is what a session answers while it is made: nobody but receive hears it.
type said struct {
	path // none

	status int32
	heard  bool
}

func (c *said) write(head, _ []byte, _ int) error {
	if !c.heard {
		c.status, c.heard = int32(binary.LittleEndian.Uint64(head[16:])), true
	}
	return nil
}

func (c *said) Close() error { return nil }

// receive makes the session that another worker sends, and returns when that
// says go: messages come through it then.
func (s *Session) receive() error {
	r := &receiver{Session: s, said: &said{}}
	defer func() {
		for _, q := range r.queues {
			s.lib.call("clReleaseCommandQueue", q)
		}
	}()
	from := s.conn
	s.conn, s.relayed, s.coming = r.said, true, []func() error{}
	for {
		var h [16]byte
		if _, err := io.ReadFull(s.in, h[:]); err != nil {
			return fmt.Errorf("the program did not come: %w", err)
		}
		n, kind, err := wire.ParseFrame(h[:], min(s.limit, max(s.memory.Limit(), s.memory.Used())+2*mostText)+piece)
		if err == nil && kind == wire.FrameGo && n == 0 {
			if !r.complete {
				return errors.New("the program did not come whole")
			}
			s.conn = from
			return nil
		}
		if err == nil {
			b := make([]byte, n)
			if _, err := io.ReadFull(s.in, b); err != nil {
				return fmt.Errorf("the program did not come: %w", err)
			}
			err = r.frame(kind, b)
		}
		if err != nil {
			_, _ = from.Write(answerFrame(err)) // if it is gone, it goes on there
			return err
		}
		if kind == wire.FrameFinal {
			s.drain()
			if _, err := from.Write(answerFrame(nil)); err != nil {
				return err
			}
		}
	}
}

// goOnWaiting has the calls that the program waits for wait here.
func (s *Session) goOnWaiting() {
	all := s.coming
	s.coming = nil
	for _, run := range all {
		s.flow.enter()
		go func() {
			if run() != nil {
				_ = s.conn.Close() // who reads finds it closed, and ends
			}
			s.flow.leave()
		}()
	}
}

func answerFrame(err error) []byte {
	b := words(0)
	if err != nil {
		b = wire.AppendBytes(words(1), []byte(err.Error())[:min(len(err.Error()), maxReason/2)])
	}
	return append(wire.AppendFrame(nil, len(b), wire.FrameAnswer), b...)
}

type receiver struct {
	*Session

	said     *said
	queues   map[uint64]uintptr // for writing, by context
	complete bool

	constants map[uint64]map[uint64][]byte // of programs that are yet to come
	pending   int                          // bytes of these
}

// frame does what a frame says.
func (r *receiver) frame(kind uint64, b []byte) error {
	if r.complete {
		return errors.New("a frame after the last")
	}
	body := wire.NewBody(b)
	var err error
	switch kind {
	case wire.FrameCall:
		op := wire.Op(body.Word())
		if len(b) < 8 || !makes[op] {
			return fmt.Errorf("a program that moves does not bring %s", op)
		}
		return r.call(op, b[8:])
	case wire.FrameProgram:
		err = r.program(&body)
	case wire.FrameTold:
		err = r.hearTold(&body)
	case wire.FrameConstants:
		err = r.hearConstants(&body)
	case wire.FrameData:
		err = r.data(&body)
	case wire.FrameEvent:
		id, status, times := body.Word(), int32(body.Word()), body.Bytes()
		o := &object{kind: event, status: status, times: times}
		r.mu.Lock()
		if err = r.keep(id, o); err == nil && !r.counts(o, len(times)) {
			err = errFull
		}
		r.mu.Unlock()
	case wire.FrameHeld:
		var w [3]uint64 // call, flags, number
		body.Words(w[:])
		if body.Err() {
			return errEnd
		}
		return r.again(wire.Op(w[0]), uint16(w[1]), uint32(w[2]), body.Rest())
	case wire.FrameStatus:
		o, bad := r.get(body.Word(), queue)
		if bad != clSuccess {
			return fmt.Errorf("a status of what is no queue")
		}
		o.status = int32(body.Word())
	case wire.FrameFinal:
		r.taken.Store(body.Word())
		r.sent = body.Word()
		r.complete = true
	default:
		err = fmt.Errorf("a frame of kind %d", kind)
	}
	if err == nil && body.Err() {
		err = errEnd
	}
	return err
}

// makes are the calls that make what there is.
var makes = map[wire.Op]bool{
	wire.OpCreateContext: true, wire.OpCreateQueue: true, wire.OpCreateBuffer: true, wire.OpCreateSubBuffer: true, wire.OpCreateImage: true, wire.OpCreateSampler: true,
	wire.OpCreateSvm: true, wire.OpCreateSvmBuffer: true, wire.OpExecInfo: true, wire.OpCreateKernel: true, wire.OpCreateSubDevices: true, wire.OpSetArg: true, wire.OpRelease: true, wire.OpUserEvent: true,
}

func (r *receiver) call(op wire.Op, body []byte) error {
	r.said.heard, r.said.status = false, clSuccess
	err := r.do(&message{Header: wire.Header{Size: uint64(len(body)) + wire.HeaderSize, Op: op, Flags: wire.FlagAnswer}, body: body})
	if err == nil && r.said.status != clSuccess && op == wire.OpCreateSvm {
		return fmt.Errorf("the program's shared virtual memory cannot have the same address there: error %d", r.said.status)
	}
	if err == nil && r.said.status != clSuccess {
		err = fmt.Errorf("%s fails here: error %d", op, r.said.status)
	}
	return err
}

// program makes a program of its binary; of its text, if the driver does not take that.
func (r *receiver) program(b *wire.Body) error {
	var w [6]uint64 // number, context, what of, kind of binary, built with options, how
	b.Words(w[:])
	text, options, built := b.Bytes(), b.Bytes(), b.Bytes()
	headers := b.Rest()
	if b.Err() {
		return errEnd
	}
	id, of, from, how := w[0], w[1], w[2], wire.Op(w[5])
	constants := r.constants[id]
	create := func(as uint64, text []byte) error {
		err := r.call(wire.OpCreateProgram, wire.AppendBytes(words(of, id, as), text))
		if o := r.objects[id]; err == nil && o != nil {
			if !r.hasConstants(o, constants) {
				return errFull
			}
			if as == from {
				if bad := r.setConstants(o); bad != clSuccess {
					err = fmt.Errorf("constants of program %d cannot be set: error %d", id, bad)
				}
			}
		}
		return err
	}
	build := func() error { return r.call(wire.OpBuild, append(wire.AppendBytes(words(id), options), headers...)) }
	if len(built) == 0 {
		err := create(from, text)
		if o := r.objects[id]; o != nil && w[4] != 0 {
			o.options = cString(string(options))
		}
		return err
	}
	as := uint64(fromBinary)
	if c := r.objects[of]; c != nil && len(c.devices) > 0 {
		as = fromBinaries
	}
	err := create(as, built)
	if err == nil && w[3] == clExecutable {
		err = build()
	}
	if err != nil && how == wire.OpBuild && (from == fromSource || from == fromIL) {
		if r.objects[id] != nil {
			if err := r.call(wire.OpRelease, words(id)); err != nil {
				return err
			}
		}
		if err = create(from, text); err == nil {
			err = build()
		}
		return err
	}
	o := r.objects[id]
	if err != nil || o == nil {
		return cmp.Or(err, errEnd)
	}
	r.mu.Lock()
	fits := r.counts(o, len(text)+len(options)+1+len(headers)) // beside what it was built to
	r.mu.Unlock()
	if !fits {
		return errFull
	}
	o.code.from, o.code.text, o.code.how, o.code.headers, o.code.replaced = from, text, how, bytes.Clone(headers), from != fromBinary && from != fromBinaries
	if w[3] != clExecutable { // drivers do not tell what they were given until they have built something of it
		o.code.came, o.code.kind = built, w[3]
	}
	o.code.builds = max(o.code.builds, 1)
	if o.options = nil; w[4] != 0 {
		o.options = cString(string(options))
	}
	return nil
}

// restore makes a program that came as a binary of its text again, to be built
// anew. The caller has the lock.
func (s *Session) restore(p *object) int32 {
	c := s.objects[p.code.context]
	if c == nil {
		c = s.ghosts[p.code.context]
	}
	if c == nil {
		return clInvalidContext
	}
	ptr, bad, _ := s.newProgram(c, p.code.from, p.code.text)
	if bad == clSuccess {
		s.lib.call("clReleaseProgram", p.ptr)
		p.ptr, p.code.replaced = ptr, false
		bad = s.setConstants(p)
	}
	return bad
}

// data writes a piece of a buffer, or an image.
func (r *receiver) data(b *wire.Body) error {
	id, from, p := b.Word(), b.Word(), b.Bytes()
	o := r.objects[id]
	if b.Err() || o == nil || o.kind != mem || o.bytes == 0 || len(p) == 0 || from > o.size || uint64(len(p)) > o.size-from || o.pixel > 0 && uint64(len(p)) != o.size {
		return errEnd
	}
	if bad := r.resident(0, false); bad != clSuccess {
		return fmt.Errorf("memory %d cannot be written: error %d", id, bad)
	}
	defer r.hold.RUnlock()
	c := contextOf(o)
	if r.queues == nil {
		r.queues = map[uint64]uintptr{}
	}
	if r.queues[c.id] == 0 {
		r.queues[c.id] = r.lib.call("clCreateCommandQueue", c.ptr, r.devicesOf(c)[0], 0, at(cell()))
	}
	var bad int32
	if o.pixel > 0 {
		origin, region := make([]uint64, 3), o.extent[:]
		bad = r.lib.status("clEnqueueWriteImage", r.queues[c.id], o.ptr, 1, atWords(origin), atWords(region), 0, 0, atBytes(p), 0, 0, 0)
	} else {
		bad = r.lib.status("clEnqueueWriteBuffer", r.queues[c.id], o.ptr, 1, uintptr(from), uintptr(len(p)), atBytes(p), 0, 0, 0)
	}
	if bad != clSuccess {
		return fmt.Errorf("memory %d cannot be written: error %d", id, bad)
	}
	return nil
}

// moves does what a node says of moving. It ends in another process if the
// session has moved.
func (s *Session) moves(t *Turn, f between.Frame) {
	for late := time.Now().Add(followTime); !s.moving.TryLock(); <-time.After(5 * time.Millisecond) { // one that was given up comes to its end
		if time.Now().After(late) {
			_ = f.Conn.Close()
			t.tell(between.Failed, "the program's last move has not come to its end")
			return
		}
	}
	defer s.moving.Unlock()
	s.target.Store(&f.Conn)
	defer s.target.Store(nil)
	to, err := s.sealTo(f.Conn, f.Hello(between.MoveSealed))
	session, address := [2]uint64{}, ""
	if len(f.Text) >= wire.SessionSize {
		session = [2]uint64{binary.LittleEndian.Uint64(f.Text), binary.LittleEndian.Uint64(f.Text[8:])}
		address = string(f.Text[wire.SessionSize:])
	}
	select {
	case <-t.goes: // said of a move that had failed already
	default:
	}
	var stopped time.Time
	if err == nil {
		stopped, err = s.move(to)
	}
	if err != nil {
		_ = f.Conn.Close()
		t.tell(between.Failed, err.Error())
		return
	}
	t.say(between.Ready, 0)
	if !<-t.goes {
		_ = f.Conn.Close() // the other worker ends then
		s.goOn()
		return
	}
	err = s.depart(to, session, address, func() { t.say(between.Moved, time.Since(stopped)) })
	if err != io.EOF {
		t.tell(between.Failed, err.Error())
	}
	t.gone() // the session is at neither place, or followed
}

// depart hands the session over; it returns only if that fails.
func (s *Session) depart(to net.Conn, session [2]uint64, address string, moved func()) error {
	s.mu.Lock()
	client := s.inConn
	_ = client.SetReadDeadline(time.Time{})
	s.mu.Unlock()
	s.lanes.cut()                           // what was made since the session was told to stop
	unread, _ := s.in.Peek(s.in.Buffered()) // of what is there
	if _, err := to.Write(append(wire.AppendFrame(nil, 0, wire.FrameGo), unread...)); err != nil {
		return err
	}
	moved()
	s.sending.Lock()
	defer s.sending.Unlock()
	text := []byte(address)
	head := make([]byte, wire.AnswerSize)
	wire.PutAnswer(head, wire.OpMoved, 0, 0, clSuccess, session[0], session[1], len(text))
	if err := s.conn.write(head, text, -1); err != nil {
		return err
	}
	return s.relayFrom(s.conn, to)
}
