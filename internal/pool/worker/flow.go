//go:build linux

package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// flow is where a move stops a session: between two messages.
type flow struct {
	inside  atomic.Int64 // who reads or does a message; and closed more while it is
	mu      sync.Mutex   // guards what follows
	changed *sync.Cond
}

const closed = math.MinInt64 / 2

// lock is given back by unlock, which wakes who waits.
func (f *flow) lock() {
	f.mu.Lock()
	if f.changed == nil {
		f.changed = sync.NewCond(&f.mu)
	}
}

func (f *flow) unlock() {
	f.changed.Broadcast()
	f.mu.Unlock()
}

// enter waits until the session may go on; leave must follow.
func (f *flow) enter() {
	for f.inside.Add(1) < 0 {
		f.leave()
		f.lock()
		for f.inside.Load() < 0 {
			f.changed.Wait()
		}
		f.unlock()
	}
}

// join is enter for who must not wait, on behalf of another, while the caller is inside.
func (f *flow) join() { f.inside.Add(1) }

func (f *flow) leave() {
	if f.inside.Add(-1) < 0 {
		f.tell()
	}
}

// tell has look who waits for something of the session.
func (f *flow) tell() { f.lock(); f.unlock() }

// stop returns when nothing is read or done any more; wake makes who reads look. It
// gives up, and the session goes on, if that takes longer than patience.
func (f *flow) stop(patience time.Duration, wake func()) bool {
	f.lock()
	defer f.unlock()
	f.inside.Add(closed)
	late := false
	timer := time.AfterFunc(patience, func() { f.lock(); late = true; f.unlock() })
	defer timer.Stop()
	wake()
	for !late && f.inside.Load() > closed {
		f.changed.Wait()
	}
	if late {
		f.inside.Add(-closed)
	}
	return !late
}

func (f *flow) goOn() { f.lock(); f.inside.Add(-closed); f.unlock() }

// wake makes who waits for a message, or for another worker, look whether it shall.
func (s *Session) wake() {
	s.lanes.cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.inConn.SetReadDeadline(time.Unix(1, 0)) // of a closed one nobody reads
}

// rewind undoes wake.
func (s *Session) rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.inConn.SetReadDeadline(time.Time{})
}

// await waits for a message's header, and until the session may go on; flow.leave must follow.
func (s *Session) await() ([]byte, error) {
	for {
		if err := s.changeOver(); err != nil {
			return nil, err
		}
		s.flow.enter()
		h, err := s.in.Peek(wire.HeaderSize)
		if err == nil && (wire.Op(h[8])|wire.Op(h[9])<<8 != wire.OpBye || !s.viaOther()) {
			return h, nil
		}
		s.flow.leave()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.rewind()
			continue
		case err == io.EOF && len(h) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil && s.waitBack():
			continue
		case err != nil:
			return nil, err
		case !s.follows():
			return nil, io.EOF
		}
		_, _ = s.in.Discard(len(h)) // it has ended there only
	}
}

// attached is the connection of a program that followed its session here.
type attached struct {
	line  *Line
	conn  path
	after uint64 // how many messages it sent elsewhere
}

// attach takes the program's own connection. What was said so far goes its old
// way; the end of that says that what follows comes here.
func (s *Session) attach(from net.Conn, hello []byte, after uint64) {
	line, conn, err := OpenProgram(between.Secret{Token: s.token, Hello: hello}, from)
	if err != nil {
		s.turn.tell(between.Refused, err.Error())
		return // and the program goes on as before
	}
	s.mu.Lock()
	may := s.relayed && !s.following
	s.following = s.following || may
	s.mu.Unlock()
	if !may {
		_ = conn.Close()
		return
	}
	s.mu.Lock()
	s.shares = s.shares && line.local
	offers := s.offers(conn)
	if s.shares {
		offers |= wire.FlagMaps
	}
	for _, o := range s.objects {
		if o.file != nil && !s.shares { // nobody asks for it
			_ = o.file.Close()
			o.file = nil
		}
	}
	s.mu.Unlock()
	end := make([]byte, wire.AnswerSize)
	wire.PutAnswer(end, wire.OpEnd, 0, 0, 0, 0, 0, 0)
	s.sending.Lock()
	_, _ = s.conn.Write(end) // if that way is broken, the program counts
	s.conn = conn
	wire.PutAnswer(end, wire.OpAnswer, offers, 0, clSuccess, 0, s.sent, 0)
	_, _ = conn.Write(end) // if it is gone, reading ends
	s.sending.Unlock()
	s.back.Store(&attached{line, conn, after})
	s.wake()
	s.flow.tell()
}

// changeOver reads from the program's own connection when all has come that it
// sent elsewhere.
func (s *Session) changeOver() error {
	b := s.back.Load()
	if b == nil {
		return nil
	}
	switch taken := s.taken.Load(); {
	case taken < b.after:
		return nil
	case taken > b.after:
		return fmt.Errorf("the program says that it sent %d messages elsewhere, of which %d came", b.after, taken)
	}
	s.mu.Lock()
	_ = s.inConn.Close()
	s.inConn, s.in, s.relayed, s.following = b.conn, bufio.NewReaderSize(b.conn, 64<<10), false, false
	s.back.Store(nil)
	s.mu.Unlock()
	s.flow.tell()
	go Leave(b.line, s.turn.end)
	return nil
}

func (s *Session) viaOther() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relayed
}

// follows reports whether the program has connected, or does just now.
func (s *Session) follows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.following
}

// waitBack waits for the program when the way through the other worker is
// broken. It says no if there is none to wait for, or calls were lost.
func (s *Session) waitBack() bool {
	s.flow.lock()
	defer s.flow.unlock()
	for {
		if b := s.back.Load(); b != nil {
			return b.after == s.taken.Load()
		}
		if !s.viaOther() {
			return false
		}
		s.flow.changed.Wait()
	}
}

// gate is a page that the program maps too: it says that it copies to or from a
// shared buffer, and does not while the gate is closed.
type gate struct {
	page           []byte
	inside, closed *atomic.Uint32
}

// sendGate makes the gate, and answers with it.
func (s *Session) sendGate(flags uint16, call uint32) error {
	g, fd, err := newGate()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.gate.Store(g)
	return s.sendFD(flags, call, 1, 0, fd)
}

// share gives a program that was moved here the gate, or memory that it had mapped before.
func (s *Session) share(m *message, b *wire.Body) error {
	id := b.Word()
	if b.Err() {
		return errEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[id]
	switch {
	case !s.shares || s.relayed || m.Flags&wire.FlagAnswer == 0:
	case id == 0 && s.gate.Load() == nil:
		return s.sendGate(0, m.Call)
	case o != nil && o.file != nil:
		file := o.file
		o.file = nil
		defer file.Close()
		return s.sendFD(0, m.Call, 0, 0, int(file.Fd()))
	}
	return s.answerLocked(m, clInvalidOperation, 0, 0, nil)
}

func newGate() (*gate, int, error) {
	fd, page, err := sharedMemory(uint64(os.Getpagesize()))
	if err != nil {
		return nil, -1, fmt.Errorf("memory of a session: %w", err)
	}
	return &gate{page: page, inside: (*atomic.Uint32)(unsafe.Pointer(&page[0])), closed: (*atomic.Uint32)(unsafe.Pointer(&page[4]))}, fd, nil
}

// shut returns when the program copies nothing any more.
func (g *gate) shut(patience time.Duration) bool {
	if g == nil {
		return true
	}
	g.closed.Store(1)
	end := time.NewTimer(patience)
	defer end.Stop()
	look := time.NewTicker(50 * time.Microsecond)
	defer look.Stop()
	for g.inside.Load() > 0 {
		select {
		case <-look.C:
		case <-end.C:
			g.open()
			return false
		}
	}
	return true
}

func (g *gate) open() {
	if g != nil {
		g.closed.Store(0)
	}
}
