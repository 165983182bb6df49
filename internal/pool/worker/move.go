//go:build linux

package worker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// A session moves to another worker, at this node or another, while its program
// computes:
//
//	running ──▶ copying: objects are made there, memory is copied, round by round
//	   ▲           │ little is left, or it does not get less
//	   │           ▼
//	   │        stopped: between two messages; what changed since is sent
//	   │ aborted   │ the other has all (ready), and the node says go
//	   └───────────┤
//	               ▼
//	            gone: this process passes on what program and worker say,
//	            until the program has connected to the other worker
//
// Until it is gone, the session is here: if anything fails, it goes on here. No
// message is lost or done twice: those done here were done before the stop,
// all others are passed on, in their order, and the program says how many those
// are when it connects there itself.
//
// What is sent are the calls that made what there is, memory in pieces whose
// hash has changed since they were sent, programs as built, what became of
// events, and commands that wait for events that the program has not set, with
// the calls that wait for those (held.go).

const (
	piece     = 1 << 20 // of memory, that is sent again if it has changed
	reach     = 8       // pieces that are read at once
	fewBytes  = 16 << 20
	maxRounds = 4
	patience  = 30 * time.Second // for a kernel to end, before a move is given up
)

// mover sends a session.
type mover struct {
	*Session

	out    *bufio.Writer
	seed   maphash.Seed
	have   map[uint64]*sentObject
	queues map[uint64]uintptr // for reading, by context
	stage  []byte
	bytes  int64 // sent of memory, in this round

	stopped bool // the session is, and its device has done all
}

type sentObject struct {
	*object

	builds uint64
	hashes []uint64
}

// move copies the session through a connection until the other worker is ready
// to go on with it. The session is stopped then, since when is returned, or as it was.
func (s *Session) move(to net.Conn) (stopped time.Time, err error) {
	m := &mover{Session: s, out: bufio.NewWriterSize(to, 256<<10), seed: maphash.MakeSeed(), have: map[uint64]*sentObject{}, queues: map[uint64]uintptr{}, stage: make([]byte, reach*piece)}
	defer func() {
		for _, q := range m.queues {
			s.lib.call("clReleaseCommandQueue", q)
		}
	}()
	if err := s.followed(followTime); err != nil {
		return stopped, err
	}
	for round, last := 0, int64(1<<62); round < maxRounds; round++ {
		m.bytes = 0
		if err := m.copy(false); err != nil {
			return stopped, m.reason(to, err)
		}
		if m.bytes < fewBytes || m.bytes > last/2 {
			break
		}
		last = m.bytes
	}
	for {
		stopped = time.Now()
		if !s.flow.stop(patience, s.wake) {
			return stopped, fmt.Errorf("what the program computes did not end in %s", patience)
		}
		if err = s.ends(); err != nil { // it may fail, and with it what is held
			s.flow.goOn()
			return stopped, err
		}
		if !s.changing() && !s.comeBack() {
			break
		}
		s.flow.goOn()
		if err := s.followed(followTime); err != nil {
			return stopped, err
		}
	}
	if !s.gate.Load().shut(patience) {
		s.flow.goOn()
		return stopped, errors.New("the program did not end copying to a shared buffer")
	}
	if err = m.rest(to); err != nil {
		s.goOn()
		err = m.reason(to, err)
	}
	return stopped, err
}

// goOn ends a stop: the session is here.
func (s *Session) goOn() {
	s.gate.Load().open()
	s.flow.goOn()
}

// rest sends what is left when the session is stopped, and waits until the other is ready.
func (m *mover) rest(to net.Conn) error {
	m.printed.Show()
	if err := m.sendReads(); err != nil {
		return err
	}
	m.stopped = true
	if err := m.copy(true); err != nil {
		return err
	}
	m.sending.Lock()
	sent := m.sent
	m.sending.Unlock()
	m.frame(wire.FrameFinal, words(m.taken.Load(), sent+1)) // one more: that it has moved
	if err := m.out.Flush(); err != nil {
		return err
	}
	return readReady(to)
}

// followTime is how long a program may take to follow its last move.
const followTime = 10 * time.Second

// followed waits until the program has followed to this worker, and uses the
// path that it asked for.
func (s *Session) followed(patience time.Duration) error {
	late := false
	timer := time.AfterFunc(patience, func() { s.flow.lock(); late = true; s.flow.unlock() })
	defer timer.Stop()
	s.flow.lock()
	defer s.flow.unlock()
	for s.viaOther() || s.changing() { // which may begin again at once: the caller looks when the program is stopped
		if late {
			return errors.New("the program has not followed from where it was before: try again when it has used its device")
		}
		s.flow.changed.Wait()
	}
	return nil
}

// reason is why sending failed: what the other worker said, if it did.
func (m *mover) reason(to net.Conn, err error) error {
	if _, of := errors.AsType[*net.OpError](err); of || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		_ = to.SetReadDeadline(time.Now().Add(time.Second))
		if why := readReady(to); why != nil && !errors.Is(why, io.EOF) && !errors.Is(why, io.ErrUnexpectedEOF) {
			if _, of := errors.AsType[*net.OpError](why); !of {
				return why
			}
		}
		return fmt.Errorf("the other worker ended: %w", err)
	}
	return err
}

const maxReason = 4 << 10

// readReady reads what the other worker says.
func readReady(from io.Reader) error {
	var h [16]byte
	if _, err := io.ReadFull(from, h[:]); err != nil {
		return err
	}
	n, kind, err := wire.ParseFrame(h[:], maxReason)
	if err == nil && kind != wire.FrameAnswer {
		err = fmt.Errorf("a frame of kind %d where an answer was due", kind)
	}
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(from, b); err != nil {
		return err
	}
	body := wire.NewBody(b)
	if body.Word() != 0 {
		return errors.New(string(body.Bytes()))
	}
	return nil
}

// words are as a message has them.
func words(w ...uint64) []byte {
	b := make([]byte, 0, 8*len(w))
	for _, x := range w {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// frame sends a frame. An error stays with the writer, and Flush returns it.
func (m *mover) frame(kind uint64, parts ...[]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	_, _ = m.out.Write(wire.AppendFrame(nil, n, kind))
	for _, p := range parts {
		_, _ = m.out.Write(p)
	}
}

func (m *mover) call(op wire.Op, body []byte) { m.frame(wire.FrameCall, words(uint64(op)), body) }

// live are all objects that there must be, in the order in which they were
// made. What OpenCL has of them stays until release is called.
func (m *mover) live() (all []*sentObject, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, from := range []map[uint64]*object{m.objects, m.ghosts} {
		for _, o := range from {
			if o.kind == event || o.busy && o.children == 0 { // that comes when it is built
				continue
			}
			x := &sentObject{object: o}
			switch o.kind {
			case program:
				m.lib.call("clRetainProgram", o.ptr)
				x.builds = o.code.builds
			case mem:
				o.copied++
			case context:
				if m.queues[o.id] == 0 {
					m.queues[o.id] = m.lib.call("clCreateCommandQueue", o.ptr, m.devicesOf(o)[0], 0, at(cell()))
				}
			}
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *sentObject) int { return int(a.order) - int(b.order) })
	return all, func() {
		for _, o := range all {
			if o.kind == program {
				m.lib.call("clReleaseProgram", o.ptr)
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, o := range all {
			if o.kind == mem {
				o.copied--
			}
		}
		m.bury()
	}
}

// copy sends what the other worker does not have yet: all that is missing, if the session is stopped.
func (m *mover) copy(stopped bool) error {
	all, release := m.live()
	defer release()
	now := map[uint64]*sentObject{}
	for _, o := range all {
		now[o.id] = o
	}
	for _, id := range slices.Sorted(keys(m.have)) { // what is gone, or was built anew
		if old := m.have[id]; now[id] == nil || now[id].object != old.object || now[id].builds != old.builds {
			m.call(wire.OpRelease, words(id))
			delete(m.have, id)
		}
	}
	for _, o := range all {
		if m.have[o.id] == nil {
			sent, err := m.make(o)
			if err != nil {
				return err
			}
			if !sent {
				continue
			}
			m.have[o.id] = o
		}
		if o.kind == mem && o.bytes > 0 {
			if err := m.memory(m.have[o.id]); err != nil {
				return err
			}
		}
	}
	if stopped {
		if err := m.states(all); err != nil {
			return err
		}
	}
	return m.out.Flush()
}

func keys(of map[uint64]*sentObject) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for id := range of {
			if !yield(id) {
				return
			}
		}
	}
}

// still does something while the session is stopped and its device does nothing:
// PoCL compiles a kernel when it runs, and ends the process if its program's binary
// is read meanwhile.
func (m *mover) still(do func()) error {
	if m.stopped {
		do()
		return nil
	}
	if !m.flow.stop(patience, m.wake) {
		return fmt.Errorf("what the program computes did not end in %s", patience)
	}
	defer m.flow.goOn()
	if err := m.ends(); err != nil {
		return err
	}
	do()
	return nil
}

// ends waits until the device has done what it was given: for as long as the program
// can do without.
func (s *Session) ends() error {
	done := make(chan struct{})
	go func() { s.drain(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("what the device computes did not end in %s", patience)
	}
}

// make sends what makes an object, unless it is a kernel that was released meanwhile.
func (m *mover) make(o *sentObject) (sent bool, err error) {
	switch o.kind {
	case program:
		c := o.code
		m.mu.Lock()
		binary, kind, told, constants := c.came, c.kind, c.told, maps.Clone(c.constants)
		m.mu.Unlock()
		came := binary != nil
		if !came && (o.builds > 0 || c.from == fromBinary || c.from == fromBinaries) {
			kind = m.binaryType(o.object)
		}
		if !came && (o.builds > 0 || kind != 0) {
			bad, keeps := int32(clSuccess), false
			err := m.still(func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				keeps = m.keeps(o.object)
				if c.told == nil {
					c.told = m.allTold(o.object)
				}
				told = c.told
				if kind != 0 && c.from != builtIn {
					binary, bad = m.lib.built(o.ptr)
				}
			})
			if err != nil {
				return false, err
			}
			if keeps {
				return false, errors.New("a program has variables of its own on the device, which nobody else can read")
			}
			if bad != clSuccess {
				return false, fmt.Errorf("the binary of program %d: error %d", o.id, bad)
			}
			if len(o.parent.devices) > 0 && len(binary) > 0 {
				binary = append(m.binariesHead(o.ptr), binary...)
			}
		}
		hasOptions := uint64(0)
		if o.options != nil {
			hasOptions = 1
		}
		b := words(o.id, c.context, c.from, kind, hasOptions, uint64(c.how))
		for _, s := range [][]byte{c.text, o.options[:max(len(o.options)-1, 0)], binary} {
			b = wire.AppendBytes(b, s)
		}
		b = append(b, c.headers...)
		m.sendConstants(o.id, constants) // before: where the driver does not take the binary it is built anew
		m.frame(wire.FrameProgram, b)
		if told != nil {
			m.sendTold(o.id, told)
		}
	case kernel:
		// It is not retained: a program with kernels could not be built anew.
		m.mu.Lock()
		name := ""
		if sent = m.objects[o.id] == o.object || m.ghosts[o.id] == o.object; sent {
			name = m.lib.text("clGetKernelInfo", o.ptr, clKernelName)
		}
		m.mu.Unlock()
		if !sent {
			return false, nil
		}
		m.call(wire.OpCreateKernel, wire.AppendBytes(words(o.parent.id, o.id), []byte(name)))
	default:
		m.call(o.op, o.made)
	}
	return true, nil
}

// memory sends those pieces of a buffer or image that have changed.
func (m *mover) memory(o *sentObject) error {
	if o.pixel > 0 {
		return m.image(o)
	}
	n := int((o.size + piece - 1) / piece)
	if o.hashes == nil {
		o.hashes = make([]uint64, n)
	}
	q := m.queues[contextOf(o.object).id]
	for first := 0; first < n; first += reach {
		from := uint64(first) * piece
		block := m.stage[:min(o.size-from, uint64(len(m.stage)))]
		m.hold.RLock()
		bad := int32(clSuccess)
		switch {
		case o.off != nil:
			copy(block, o.off[from:])
		case o.shared != nil:
			copy(block, o.shared[from:])
		default:
			bad = m.lib.status("clEnqueueReadBuffer", q, o.ptr, 1, uintptr(from), uintptr(len(block)), atBytes(block), 0, 0, 0)
		}
		m.hold.RUnlock()
		if bad != clSuccess {
			return fmt.Errorf("buffer %d cannot be read: error %d", o.id, bad)
		}
		for i := first; len(block) > 0; i++ {
			p := block[:min(piece, len(block))]
			block = block[len(p):]
			m.changed(o, i, uint64(i)*piece, p)
		}
	}
	return nil
}

// changed sends a piece if it is not as it was sent.
func (m *mover) changed(o *sentObject, i int, from uint64, p []byte) {
	h := maphash.Bytes(m.seed, p) | 1 // 0: not sent
	if o.hashes[i] == h {
		return
	}
	o.hashes[i] = h
	m.bytes += int64(len(p))
	m.frame(wire.FrameData, words(o.id, from, uint64(len(p))), p, make([]byte, -len(p)&7))
}

func (m *mover) image(o *sentObject) error {
	if o.hashes == nil {
		o.hashes = make([]uint64, 1)
	}
	b := make([]byte, o.size)
	m.hold.RLock()
	bad := int32(clSuccess)
	if o.off != nil {
		copy(b, o.off)
	} else {
		bad = m.readAll(m.queues[contextOf(o.object).id], o.object, b)
	}
	m.hold.RUnlock()
	if bad != clSuccess {
		return fmt.Errorf("image %d cannot be read: error %d", o.id, bad)
	}
	m.changed(o, 0, 0, b)
	return nil
}

func contextOf(o *object) *object {
	for o.parent != nil {
		o = o.parent
	}
	return o
}

// states sends what objects are in, once nothing changes that any more.
func (m *mover) states(all []*sentObject) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.events()
	if err := m.sendHeld(); err != nil {
		return err
	}
	for _, o := range all {
		switch {
		case o.kind == program:
			m.sendConstants(o.id, o.code.constants)
		case o.kind == kernel:
			for _, body := range o.args {
				b := wire.NewBody(body[24:])
				if how, of := b.Word(), b.Word(); how == argHandle && m.objects[of] == nil || how == argSVM && of != 0 && !m.hasSVM(of) {
					continue // the program has released it, and sets another before it runs the kernel
				}
				m.call(wire.OpSetArg, body)
			}
			if list := slices.DeleteFunc(slices.Clone(o.reaches), func(p uint64) bool { return !m.hasSVM(p) }); len(list) > 0 {
				m.call(wire.OpExecInfo, append(words(o.id, uint64(len(list))), words(list...)...))
			}
		case o.kind == queue && o.status != clSuccess:
			m.frame(wire.FrameStatus, words(o.id, uint64(int64(o.status))))
		}
	}
	for _, o := range all {
		if o.released {
			gone = append(gone, o.id)
		}
	}
	for _, id := range gone {
		m.call(wire.OpRelease, words(id))
	}
	return nil
}

// events sends events, but for those of what is held, and returns which of all were
// released by the program while what is held waits for them. The caller has the lock.
func (m *mover) events() (gone []uint64) {
	comes := map[*object]bool{} // with what is held
	for _, h := range m.held {
		if h.made != nil && !m.ended(h) {
			comes[h.made] = true
		}
	}
	for _, from := range []map[uint64]*object{m.objects, m.ghosts} {
		for id, o := range from {
			if o.kind != event {
				continue
			}
			if o.released {
				gone = append(gone, id)
			}
			switch {
			case o.user:
				m.call(wire.OpUserEvent, words(o.parent.id, id))
			case !comes[o]:
				status, times := o.status, o.times
				if o.ptr != 0 {
					status, times = m.eventStatus(o.ptr), m.eventTimes(o.ptr)
				}
				m.frame(wire.FrameEvent, words(id, uint64(int64(status))), wire.AppendBytes(nil, times))
			}
		}
	}
	for _, h := range m.held {
		if h.made != nil && h.made.released && m.ghosts[h.made.id] != h.made {
			gone = append(gone, h.made.id)
		}
	}
	return gone
}

// eventTimes are what profiling knows of an event: none, without it.
func (s *Session) eventTimes(ptr uintptr) []byte {
	var all []byte
	for what := range uintptr(5) {
		b, bad := s.lib.info("clGetEventProfilingInfo", ptr, clProfilingFirst+what)
		if bad != clSuccess || len(b) != 8 {
			break
		}
		all = append(all, b...)
	}
	return all
}
