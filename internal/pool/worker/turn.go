//go:build linux

package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// What a worker and its node say to each other: a byte, and a word. That is a
// duration in nanoseconds, or how many bytes of text follow.
const (
	TurnWant    = 'W' // worker: there is work
	TurnDone    = 'R' // worker: the device is given back, after so long
	TurnMore    = 'M' // worker: the same, and there is more work
	TurnGranted = 'G' // node: the device is the task's for so long
	TurnYield   = 'Y' // node: another wants it
	TurnSize    = 9

	TurnMove   = 'V' // node: move to the worker at the other end of the connection that comes along; text: session and address
	TurnReady  = 'P' // worker: the other has all, and the session is stopped
	TurnFailed = 'F' // worker: it does not move; text: why
	TurnCommit = 'C' // node: it is the other's now
	TurnAbort  = 'X' // node: it is not
	TurnMoved  = 'D' // worker: it has moved, and was stopped so long
	TurnAttach = 'A' // node: the program has followed, its connection comes along; text: how many messages it sent elsewhere

	TurnSecret       = 'S' // node, first: the task's token; text: that, and the hello of a connection that is to be encrypted
	TurnMoveSealed   = 'v' // node: TurnMove, over a connection that is to be encrypted; its hello comes first
	TurnAttachSealed = 'a' // node: TurnAttach, so
	TurnRefused      = 'B' // worker: the connection of a program that followed is not used; text: why

	TurnDial       = 'L' // worker: connect to another worker of the program's; [Dial], in words
	TurnLane       = 'J' // node: the connection to it, or none if none comes along; text: the lane's number
	TurnLaneSealed = 'j' // node: the same, one that is to be encrypted; its hello comes first

	TurnRoom  = 'N' // worker: so many bytes are needed on the device, which has not as many left
	TurnSpace = 'K' // node: they are there now; or, if the word is 0, nobody can give them
	TurnIn    = 'I' // worker: what was to be put there is, which took so long
	TurnEvict = 'E' // node: another needs the memory: take all off the device
	TurnOut   = 'O' // worker: it was taken off
)

// PutTurn writes what is said about turns.
func PutTurn(what byte, d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64([]byte{what}, uint64(d))
}

// Frame is what was said.
type Frame struct {
	What byte
	Time time.Duration
	Text []byte
	Conn net.Conn // that came along, or nil
}

// PutText writes what is said with a text.
func PutText(what byte, text []byte) []byte {
	return append(PutTurn(what, time.Duration(len(text))), text...)
}

// hello takes what comes first in the text of a frame whose connection is to be
// encrypted; none: it is not.
func (f *Frame) hello(sealed byte) []byte {
	if f.What != sealed {
		return nil
	}
	n := min(wire.MACSize, len(f.Text))
	hello := f.Text[:n:n]
	f.Text = f.Text[n:]
	return hello
}

const maxText = 8 << 10

// ReadFrame reads what was said.
func ReadFrame(r net.Conn) (Frame, error) {
	var f Frame
	b := make([]byte, TurnSize)
	if err := f.read(r, b, true); err != nil {
		return f, err
	}
	f.What = b[0]
	n := binary.LittleEndian.Uint64(b[1:])
	switch f.What {
	case TurnDial:
		return f, f.readInWords(r, n)
	case TurnMove, TurnFailed, TurnAttach, TurnSecret, TurnMoveSealed, TurnAttachSealed, TurnRefused, TurnLane, TurnLaneSealed:
		if n > maxText {
			return f, fmt.Errorf("a text of %d bytes", n)
		}
		f.Text = make([]byte, n)
		return f, f.read(r, f.Text, false)
	}
	f.Time = time.Duration(n)
	return f, nil
}

// PutInWords writes what is said with a text as frames without one, so that a node of
// before, which does not know what is said, passes over it.
func PutInWords(what byte, text []byte) []byte {
	b := PutTurn(what, time.Duration(len(text)))
	for len(text) > 0 {
		var word [8]byte
		n := copy(word[:], text)
		b, text = append(append(b, what), word[:]...), text[n:]
	}
	return b
}

// readInWords reads the text, of n bytes, that PutInWords wrote.
func (f *Frame) readInWords(r net.Conn, n uint64) error {
	if n > maxText {
		return fmt.Errorf("a text of %d bytes", n)
	}
	b := make([]byte, (n+7)/8*TurnSize)
	if err := f.read(r, b, false); err != nil {
		return err
	}
	for ; len(b) > 0; b = b[TurnSize:] {
		if b[0] != f.What {
			return fmt.Errorf("%q within what is said by %q", b[0], f.What)
		}
		f.Text = append(f.Text, b[1:TurnSize]...)
	}
	f.Text = f.Text[:n]
	return nil
}

// restTime is more than enough for that.
const restTime = time.Second

// read fills b, and keeps a connection that comes along. A deadline is for what begins a frame: the
// rest has been written with that.
func (f *Frame) read(r net.Conn, b []byte, begins bool) error {
	u, ok := r.(*net.UnixConn)
	if !ok {
		_, err := io.ReadFull(r, b)
		return err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	for len(b) > 0 {
		n, k, _, _, err := u.ReadMsgUnix(b, oob)
		if !begins && errors.Is(err, os.ErrDeadlineExceeded) {
			begins = true
			_ = r.SetReadDeadline(time.Now().Add(restTime))
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return err
		}
		b = b[n:]
		if k == 0 {
			continue
		}
		if all, err := unix.ParseSocketControlMessage(oob[:k]); err == nil && len(all) == 1 {
			if fds, err := unix.ParseUnixRights(&all[0]); err == nil && len(fds) == 1 {
				unix.CloseOnExec(fds[0])
				file := os.NewFile(uintptr(fds[0]), "connection")
				f.Conn, err = net.FileConn(file)
				_ = file.Close()
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// idle is how long a worker keeps a device that it gives nothing to do, and soon
// after how long it looks whether the device is at work, if nobody waits for that.
const (
	idle = 2 * time.Millisecond
	soon = idle / 4
)

// Turn is when a task may use its device. It is asked for with the first work
// and given back when its time is over, or nothing came for a while. What was
// given to the device is done then.
type Turn struct {
	node  net.Conn
	gone  func()                  // ends the process
	drain func()                  // waits until the device has done what it was given
	look  func() (done, can bool) // whether it has, and whether that can be known without waiting; nil: it cannot

	until   atomic.Int64 // the end of this turn, since start; 0: it is not the task's
	last    atomic.Int64 // the last work, or when it was last known to be done
	given   atomic.Int64 // how much work the device was given,
	known   atomic.Int64 // and how much of it is known to be done
	waiting atomic.Int32 // how many calls wait for it
	granted chan time.Duration
	space   chan bool
	start   time.Time
	session chan *Session // once it reads messages
	owner   atomic.Pointer[Session]
	goes    chan bool // whether a move that is ready is made
	left    atomic.Bool

	drains atomic.Bool // the device is about to be given back

	mu    sync.Mutex // held by who gives work, or takes or gives back the device
	since time.Time
	timer *time.Timer
	idle  time.Duration // how long the device is kept with nothing to do
}

// NewTurn asks a node through a connection. gone is called when that ends.
func NewTurn(node net.Conn, gone func()) *Turn {
	t := &Turn{node: node, gone: gone, drain: func() {}, granted: make(chan time.Duration, 1), space: make(chan bool, 1), start: time.Now(), session: make(chan *Session, 1), goes: make(chan bool, 1)}
	t.timer = time.AfterFunc(time.Hour, t.rest)
	go t.listen()
	return t
}

func (t *Turn) listen() {
	for {
		f, err := ReadFrame(t.node)
		switch {
		case err != nil:
			t.end()
			return
		case f.What == TurnGranted:
			t.granted <- f.Time
		case f.What == TurnYield:
			for until := t.until.Load(); until != 0 && !t.until.CompareAndSwap(until, 1); {
				until = t.until.Load()
			}
		case f.What == TurnSpace:
			t.space <- f.Time != 0
		case f.What == TurnEvict:
			go func() {
				if s := t.owner.Load(); s != nil {
					s.evict()
				}
				t.say(TurnOut, 0)
			}()
		case f.What == TurnCommit, f.What == TurnAbort:
			select {
			case t.goes <- f.What == TurnCommit:
			default: // nobody moves
			}
			if s := t.owner.Load(); s != nil && f.What == TurnAbort {
				if to := s.target.Load(); to != nil { // nothing more is sent there
					_ = (*to).Close()
				}
			}
		case (f.What == TurnMove || f.What == TurnMoveSealed) && f.Conn != nil:
			go t.with(func(s *Session) { s.moves(t, f) })
		case (f.What == TurnAttach || f.What == TurnAttachSealed) && f.Conn != nil:
			hello := f.hello(TurnAttachSealed)
			if len(f.Text) != 8 {
				_ = f.Conn.Close()
				continue
			}
			go t.with(func(s *Session) { s.attach(f.Conn, hello, binary.LittleEndian.Uint64(f.Text)) })
		case f.What == TurnLane, f.What == TurnLaneSealed:
			hello := f.hello(TurnLaneSealed)
			go t.with(func(s *Session) { s.laneCame(f.Conn, hello, f.Text) })
		}
	}
}

// end ends the process, unless it has left.
func (t *Turn) end() {
	if !t.left.Load() {
		t.gone()
	}
}

// leave has the node know that the process has nothing of the device any more.
func (t *Turn) leave() {
	t.left.Store(true)
	_ = t.node.Close()
}

// serve says whose turns these are.
func (t *Turn) serve(s *Session) { t.session <- s }

func (t *Turn) with(do func(*Session)) {
	s := <-t.session
	t.session <- s
	do(s)
}

// tell says something with a text.
func (t *Turn) tell(what byte, text string) {
	_, _ = t.node.Write(PutText(what, []byte(text)[:min(len(text), maxText)])) // as in say
}

// dial asks the node for a lane's connection.
func (t *Turn) dial(d Dial) { _, _ = t.node.Write(PutInWords(TurnDial, d.text())) } // as in say

// Take returns when the task may use the device; Done must follow.
func (t *Turn) Take() {
	t.mu.Lock()
	t.given.Add(1)
	now := time.Since(t.start)
	switch until := t.until.Load(); {
	case until > int64(now):
		t.last.Store(int64(now))
		return
	case until != 0:
		t.giveBack(TurnMore, 0)
	default:
		t.say(TurnWant, 0)
	}
	t.begin()
}

// TakeUnlessDrains is Take for who lets work go on that was given before, and which the
// device's giving back may wait for: if that goes on, it waits for what is let go on, too,
// and nothing is taken; a turn that is over lasts until then.
func (t *Turn) TakeUnlessDrains() (taken bool) {
	for !t.mu.TryLock() {
		if t.drains.Load() {
			return false
		}
		<-time.After(shortly)
	}
	t.given.Add(1)
	if t.until.Load() != 0 {
		t.last.Store(int64(time.Since(t.start)))
	} else {
		t.say(TurnWant, 0)
		t.begin()
	}
	return true
}

// shortly is when somebody looks again who gives back the device.
const shortly = 50 * time.Microsecond

// begin returns when the device is the task's, which was asked for. The caller has the lock.
func (t *Turn) begin() {
	d := <-t.granted
	t.idle = idle
	t.since = time.Now()
	now := t.since.Sub(t.start)
	t.last.Store(int64(now))
	t.until.Store(int64(now + d))
	t.timer.Reset(soon)
}

// Done ends what Take began: the work is the device's now.
func (t *Turn) Done() { t.mu.Unlock() }

// Drains says how to wait until the device has done what it was given, which is
// asked for while the turn is locked.
func (t *Turn) Drains(drain func()) { t.drain = drain }

// Waits is said before something waits for all the work that was given; Waited
// is told what it returns.
func (t *Turn) Waits() (given int64) {
	t.waiting.Add(1)
	return t.given.Load()
}

// Waited is said when that is over. From then on the device rests, if it was
// given nothing else; what was known to be done before changes nothing.
func (t *Turn) Waited(given int64, done bool) {
	if known := t.known.Load(); done && known < given && t.known.CompareAndSwap(known, given) {
		t.last.Store(int64(time.Since(t.start)))
	}
	t.waiting.Add(-1)
}

// room asks the node for bytes of the device's memory. The caller has the lock.
func (t *Turn) room(n uint64) bool {
	t.say(TurnRoom, time.Duration(n))
	return <-t.space
}

// loaded says that the memory that was asked for is there: the turn begins then,
// and is longer the longer that took. The caller has the lock.
func (t *Turn) loaded(took time.Duration) {
	t.say(TurnIn, took)
	t.since = time.Now()
	now := t.since.Sub(t.start)
	t.last.Store(int64(now))
	if until := int64(now + SwapTurn*took); t.until.Load() < until {
		t.until.Store(until)
	}
	t.idle = min(max(took/2, idle), mostIdle)
	t.timer.Reset(t.idle)
}

// SwapTurn is how many times longer a turn is at least than it took to put its
// memory on the device.
const SwapTurn = 4

// mostIdle is how long a device is kept idle at most by whose memory was put there.
const mostIdle = 200 * time.Millisecond

// drained waits until the device has done what it was given. The caller has the lock.
func (t *Turn) drained() {
	t.drains.Store(true)
	defer t.drains.Store(false)
	t.drain()
}

// giveBack gives the device back, of which the last part was not used. The caller has the lock.
func (t *Turn) giveBack(what byte, unused time.Duration) {
	t.drained()
	t.until.Store(0)
	t.timer.Stop()
	t.say(what, max(time.Since(t.since)-unused, 0))
}

// say tells the node. If that is gone, so is this process in a moment.
func (t *Turn) say(what byte, d time.Duration) { _, _ = t.node.Write(PutTurn(what, d)) }

// rest gives the device back when nothing came for a while, or the time is over.
// A device that a call waits for is at work. The time in which it had nothing to
// do is not charged, if it is known.
func (t *Turn) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := t.until.Load()
	if until == 0 {
		return
	}
	now := int64(time.Since(t.start))
	quiet, given := time.Duration(now-t.last.Load()), t.given.Load()
	known, waited := t.known.Load() == given, t.waiting.Load() > 0
	if until > now && !known && !waited && t.look != nil {
		if quiet < soon {
			t.timer.Reset(soon)
			return
		}
		switch done, can := t.look(); {
		case done:
			t.known.Store(given)
			t.last.Store(now)
			t.timer.Reset(t.idle)
			return
		case can:
			t.timer.Reset(min(max(quiet/4, soon), idle/2))
			return
		}
	}
	if until > now && (quiet < t.idle || !known && waited) {
		t.timer.Reset(max(t.idle-quiet, idle/2))
		return
	}
	before := time.Now()
	t.drained()
	unused := time.Duration(0)
	if known && quiet >= t.idle && time.Since(before) < idle/10 { // nor was memory copied
		unused = min(quiet, time.Since(t.since))
	}
	t.giveBack(TurnDone, unused)
}
