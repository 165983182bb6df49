//go:build linux

package worker

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/tunnel"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// A lane is a connection between two workers of one program, on which they send each
// other memory in pieces: it does not go through the program's machine then. The program
// gives both the lane's number, and one of them a key and where the other is; nodes
// connect, as workers make no sockets.
//
//	program ── await ─▶ worker B             key: HMAC(token of B's task, word and number)
//	program ── dial, key, where ─▶ worker A ─▶ node A ── number, HMAC(key, challenge…) ─▶ node B ─▶ worker B
//	program ── push ─▶ worker A ══ size, bytes ══▶ worker B ◀─ pull ── program
//
// Pieces pass in the order in which pushes and pulls are asked for: the program asks for
// both in one order. Whatever goes wrong ends the lane, and the program sees to what did
// not come. It does when one of the workers is stopped to move, too.
type lane struct {
	key   []byte
	dials bool
	ready chan struct{} // closed when there is a connection, or will be none
	conn  net.Conn      // nil: there is none
	raw   *net.TCPConn  // what ends it at once
	out   chan struct{} // closed when all that was asked for has passed; nil: nothing was
	in    chan struct{}
}

type laneID = [wire.LaneSize]byte

// lanes are a session's.
type lanes struct {
	mu     sync.Mutex // guards what follows, and lanes
	all    map[laneID]*lane
	pieces int // that pass
}

const (
	mostLanes  = 64
	mostPieces = 32
	laneTime   = 5 * time.Second // for a connection
)

// add has a lane that has no connection yet; nil: there are too many, or it is there.
func (s *lanes) add(id laneID, l *lane) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] != nil || len(s.all) >= mostLanes {
		return nil
	}
	if s.all == nil {
		s.all = map[laneID]*lane{}
	}
	l.ready = make(chan struct{})
	s.all[id] = l
	return l
}

// cut ends a lane, or all.
func (s *lanes) cut(ids ...laneID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ids) == 0 {
		ids = slices.Collect(maps.Keys(s.all))
	}
	for _, id := range ids {
		s.cutLocked(id)
	}
}

// cutLocked is cut for who has the lock.
func (s *lanes) cutLocked(id laneID) {
	l := s.all[id]
	if l == nil {
		return
	}
	delete(s.all, id)
	if c := l.raw; c != nil { // who reads or writes hears of it, also while the node has the connection, too
		_, _, _ = c.CloseRead(), c.CloseWrite(), c.Close()
	}
	l.settle()
}

// settle says that there is a connection, or will be none. The caller has the lock.
func (l *lane) settle() {
	select {
	case <-l.ready:
	default:
		close(l.ready)
	}
}

// connected is the lane's connection; nil: there is none.
func (l *lane) connected() net.Conn {
	late := time.NewTimer(laneTime)
	defer late.Stop()
	select {
	case <-l.ready:
		return l.conn
	case <-late.C:
		return nil
	}
}

// next is a lane's next piece: it passes when before is closed, and closes done; nil: there is no such
// lane. There is none any more of which a piece is lost: the other side waits for it.
func (s *lanes) next(id laneID, push bool) (l *lane, before <-chan struct{}, done chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.all[id]; l == nil {
		return nil, nil, nil
	}
	if s.pieces == mostPieces {
		s.cutLocked(id)
		return nil, nil, nil
	}
	s.pieces++
	last := &l.in
	if push {
		last = &l.out
	}
	done = make(chan struct{})
	if before = *last; before == nil {
		before = closedChannel
	}
	*last = done
	return l, before, done
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (s *lanes) passed() {
	s.mu.Lock()
	s.pieces--
	s.mu.Unlock()
}

// lane makes or ends a lane.
func (s *Session) lane(m *message, b *wire.Body) error {
	what, id := b.Word(), laneIn(b)
	switch {
	case b.Err():
		return errEnd
	case what == wire.LaneDrop:
		s.lanes.cut(id)
		return s.answer(m, clSuccess, 0, 0, nil)
	case what == wire.LaneAwait:
		if s.lanes.add(id, &lane{key: between.LaneKey(s.token, id[:])}) == nil {
			return s.answer(m, clOutOfResources, 0, 0, nil)
		}
		return s.answer(m, clSuccess, uint64(s.memory.Slot()), 0, nil)
	case what != wire.LaneDial:
		return errEnd
	}
	key, task, slot, at := b.Bytes(), b.Bytes(), b.Word(), b.Bytes()
	if b.Err() || len(key) != wire.MACSize || len(task) != wire.TaskIDSize || len(at) == 0 || len(at) > between.MaxText/2 {
		return errEnd
	}
	l := s.lanes.add(id, &lane{key: append([]byte{}, key...), dials: true})
	if l == nil {
		return s.answer(m, clOutOfResources, 0, 0, nil)
	}
	s.turn.dial(between.Dial{Lane: id, Key: l.key, Task: string(task), Slot: slot, At: string(at)})
	h := m.Header
	s.meanwhile(func() error {
		status := int32(clSuccess)
		if l.connected() == nil {
			s.lanes.cut(id)
			status = clOutOfResources
		}
		return s.answer(&message{Header: h}, status, 0, 0, nil)
	})
	return nil
}

func laneIn(b *wire.Body) (id laneID) {
	binary.LittleEndian.PutUint64(id[:], b.Word())
	binary.LittleEndian.PutUint64(id[8:], b.Word())
	return id
}

// meanwhile goes on with a message while others are read. The session is not stopped meanwhile.
func (s *Session) meanwhile(do func() error) {
	s.flow.join()
	go func() {
		defer s.flow.leave()
		if do() != nil {
			_ = s.conn.Close() // whoever reads on finds it closed, and ends
		}
	}()
}

// laneCame takes a lane's connection from the node; nil: it has none.
func (s *Session) laneCame(conn net.Conn, hello []byte, text []byte) {
	var id laneID
	copy(id[:], text)
	s.lanes.mu.Lock()
	l := s.lanes.all[id]
	tcp, _ := conn.(*net.TCPConn)
	if l == nil || l.raw != nil || tcp == nil {
		if l != nil && conn == nil {
			l.settle()
		}
		s.lanes.mu.Unlock()
		if conn != nil {
			_ = conn.Close()
		}
		return
	}
	l.raw = tcp // what is cut from here on ends it
	s.lanes.mu.Unlock()
	// Who waits for a machine that is cut off asks it for a sign of life: what it was made with is forgotten when a connection is
	// given. How long none is borne the node has said (TCP_USER_TIMEOUT).
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second})
	sealed, err := l.seal(hello)
	if err != nil {
		s.lanes.cut(id)
		return
	}
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if s.lanes.all[id] == l { // else it was cut meanwhile
		l.conn = sealed
		l.settle()
	}
}

// seal encrypts the lane's connection if it is of a hello.
func (l *lane) seal(hello []byte) (net.Conn, error) {
	if len(hello) == 0 {
		return l.raw, nil
	}
	side, prove := tunnel.Server, tunnel.ProveWorker
	if l.dials {
		side, prove = tunnel.Client, tunnel.ProveProgram
	}
	_ = l.raw.SetDeadline(time.Now().Add(laneTime))
	c, word, err := side(l.raw)
	if err == nil {
		err = prove(c, word, l.key, hello)
	}
	if err != nil {
		return nil, err
	}
	return c, l.raw.SetDeadline(time.Time{})
}

var stages = sync.Pool{New: func() any { return new([wire.LanePiece]byte) }}

// carry has a piece of memory go by a lane, or come.
func (s *Session) carry(m *message, b *wire.Body) error {
	id := laneIn(b)
	var w [14]uint64 // as of a transfer
	b.Words(w[:])
	if b.Err() || w[12] == 0 || w[12] > wire.LanePiece {
		return errEnd
	}
	push, h := m.Op == wire.OpPush, m.Header
	l, before, done := s.lanes.next(id, push)
	if l == nil {
		return s.answer(m, clOutOfResources, 0, 0, nil)
	}
	s.meanwhile(func() error {
		stage := stages.Get().(*[wire.LanePiece]byte)
		data := stage[:w[12]]
		var bad int32
		if push {
			bad = s.piece(&w, data, true)
			<-before
			if conn := l.connected(); bad == clSuccess && send(conn, data) != nil {
				bad = clOutOfResources
			}
			if bad != clSuccess {
				s.lanes.cut(id)
			}
			close(done)
		} else {
			<-before
			if receive(l.connected(), data) != nil {
				bad = clOutOfResources
				s.lanes.cut(id)
			}
			close(done)
			if bad == clSuccess {
				bad = s.piece(&w, data, false)
			}
		}
		stages.Put(stage)
		s.lanes.passed()
		return s.answer(&message{Header: h}, bad, 0, 0, nil)
	})
	return nil
}

var errNoLane = errors.New("there is no connection to the program's other worker")

func send(conn net.Conn, data []byte) error {
	if conn == nil {
		return errNoLane
	}
	return WriteAll(conn, words(uint64(len(data))), data)
}

func receive(conn net.Conn, data []byte) error {
	if conn == nil {
		return errNoLane
	}
	var size [8]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(size[:]); n != uint64(len(data)) {
		return errEnd
	}
	_, err := io.ReadFull(conn, data)
	return err
}

// piece reads a piece of memory or writes it, and waits. Where its queue has commands that wait
// for the program itself it does neither: such a call may wait for long, and moves with its program.
func (s *Session) piece(w *[14]uint64, data []byte, reads bool) int32 {
	if bad := s.resident(0, false); bad != clSuccess {
		return bad
	}
	o, done, bad := s.begin(w, data, reads)
	s.hold.RUnlock()
	if bad != clSuccess {
		return bad
	}
	one := []uint64{uint64(done)}
	s.lib.call("clWaitForEvents", 1, atWords(one))
	if s.eventStatus(done) != clSuccess {
		bad = clOutOfResources
	}
	s.lib.call("clReleaseEvent", done)
	runtime.KeepAlive(one)
	runtime.KeepAlive(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.copied--
	s.bury()
	return bad
}

// begin gives a piece to its queue. The memory stays until the caller says that it need not.
func (s *Session) begin(w *[14]uint64, data []byte, reads bool) (o *object, done uintptr, bad int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, bad := s.get(w[0], queue)
	if bad != clSuccess {
		return nil, 0, bad
	}
	o, bad = s.get(w[1], mem)
	if bad != clSuccess {
		return nil, 0, bad
	}
	if uint64(len(data)) != rowsFit(*w, o) || uint64(len(data)) > o.size {
		return nil, 0, clInvalidValue
	}
	if len(q.behind) > 0 || s.holdsAny(q) {
		return nil, 0, clInvalidOperation
	}
	name := "clEnqueueWrite"
	if reads {
		name = "clEnqueueRead"
	}
	e, origin, region := cell(), w[4:7], w[7:10]
	if o.pixel == 0 {
		bad = s.lib.status(name+"Buffer", q.ptr, o.ptr, 0, uintptr(w[4]), uintptr(len(data)), atBytes(data), 0, 0, at(e))
	} else {
		bad = s.lib.status(name+"Image", q.ptr, o.ptr, 0, atWords(origin), atWords(region), 0, 0, atBytes(data), 0, 0, at(e))
	}
	if bad != clSuccess {
		return nil, 0, bad
	}
	s.lib.call("clFlush", q.ptr)
	q.fed.Add(1)
	o.copied++
	return o, uintptr(*e), clSuccess
}
