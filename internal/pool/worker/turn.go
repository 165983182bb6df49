//go:build linux

package worker

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"yunhe.dev/yunhe/internal/pool/between"
)

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
	far     atomic.Bool  // nobody looks before the turn is over, unless somebody says that it is, or the calls have waited
	granted chan time.Duration
	space   chan bool
	start   time.Time
	session chan *Session // once it reads messages
	owner   atomic.Pointer[Session]
	goes    chan bool // whether a move that is ready is made
	left    atomic.Bool

	drains atomic.Bool // the device is about to be given back
	away   atomic.Bool // others had it, and the driver may have moved what the task has there
	fetch  func()      // has that moved back; nil: the node does so by its own requests

	rests func() bool // whether the device has nothing to do, also while it is given work; nil: that is not known
	gives struct {
		sync.Mutex
		n    uint64        // launches that began or ended: one is given if it is odd
		free time.Duration // since when the device is known to have nothing to do, but for what is given, since start; 0: it is not
	}

	mu    sync.Mutex // held by who gives work, or takes or gives back the device
	since time.Time
	spare time.Duration // of this turn: how long launches took while the device had nothing to do
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
		f, err := between.Read(t.node)
		switch {
		case err != nil:
			t.end()
			return
		case f.What == between.Granted:
			t.granted <- f.Time
		case f.What == between.Away:
			t.away.Store(true)
		case f.What == between.Yield:
			for until := t.until.Load(); until != 0 && !t.until.CompareAndSwap(until, 1); {
				until = t.until.Load()
			}
			t.near(0)
		case f.What == between.Space:
			t.space <- f.Time != 0
		case f.What == between.Evict:
			go func() {
				if s := t.owner.Load(); s != nil {
					s.evict()
				}
				t.say(between.Out, 0)
			}()
		case f.What == between.Commit, f.What == between.Abort:
			select {
			case t.goes <- f.What == between.Commit:
			default: // nobody moves
			}
			if s := t.owner.Load(); s != nil && f.What == between.Abort {
				if to := s.target.Load(); to != nil { // nothing more is sent there
					_ = (*to).Close()
				}
			}
		case (f.What == between.Move || f.What == between.MoveSealed) && f.Conn != nil:
			go t.with(func(s *Session) { s.moves(t, f) })
		case (f.What == between.Attach || f.What == between.AttachSealed) && f.Conn != nil:
			hello := f.Hello(between.AttachSealed)
			if len(f.Text) != 8 {
				_ = f.Conn.Close()
				continue
			}
			go t.with(func(s *Session) { s.attach(f.Conn, hello, binary.LittleEndian.Uint64(f.Text)) })
		case f.What == between.Lane, f.What == between.LaneSealed:
			hello := f.Hello(between.LaneSealed)
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
	_, _ = t.node.Write(between.PutText(what, []byte(text)[:min(len(text), between.MaxText)])) // as in say
}

// dial asks the node for a lane's connection.
func (t *Turn) dial(d between.Dial) { _, _ = t.node.Write(between.PutInWords(between.Dials, d.Text())) } // as in say

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
		t.giveBack(between.More, 0)
	default:
		t.say(between.Want, 0)
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
		t.say(between.Want, 0)
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
	t.since, t.spare = time.Now(), 0
	now := t.since.Sub(t.start)
	t.last.Store(int64(now))
	t.until.Store(int64(now + d))
	t.timer.Reset(soon)
	if t.away.Swap(false) && t.fetch != nil && t.room(0) {
		t.fetch()
		t.loaded(time.Since(t.since))
	}
}

// Done ends what Take began: the work is the device's now.
func (t *Turn) Done() { t.mu.Unlock() }

// Launch gives the device a kernel, between Take and Done. A driver that has to load it
// first, or to compile it, takes long for that while the device has nothing to do, which is
// not the device's time.
func (t *Turn) Launch(do func() int32) int32 {
	t.gives.Lock()
	t.gives.n++
	t.gives.Unlock()
	r := do()
	t.gives.Lock()
	defer t.gives.Unlock()
	t.gives.n++
	if free := t.gives.free; free != 0 {
		now := time.Since(t.start)
		t.spare += now - free
		t.gives.free = 0
		t.last.Store(int64(now))
	}
	return r
}

// Rests says how to know whether the device has nothing to do while a kernel is launched,
// which nothing is given beside.
func (t *Turn) Rests(rests func() bool) { t.rests = rests }

// watch returns when no launch is under way that began before, or the device is known to have
// nothing else to do.
func (t *Turn) watch() {
	t.gives.Lock()
	defer t.gives.Unlock()
	for n := t.gives.n; n%2 != 0 && t.gives.n == n && t.gives.free == 0; {
		t.gives.Unlock()
		rests, now := t.rests(), time.Since(t.start)
		if !rests {
			<-time.After(soon)
		}
		t.gives.Lock()
		if rests && t.gives.n == n && t.gives.free == 0 {
			t.gives.free = now
		}
	}
}

// Drains says how to wait until the device has done what it was given, which is
// asked for while the turn is locked.
func (t *Turn) Drains(drain func()) { t.drain = drain }

// Fetches says how to move the task's memory to the device when others have had that,
// which is asked for when a turn begins.
func (t *Turn) Fetches(fetch func()) { t.fetch = fetch }

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
	t.near(idle)
}

// near has somebody look so soon, if nobody does before the turn is over.
func (t *Turn) near(in time.Duration) {
	if t.far.Load() && t.far.Swap(false) {
		t.timer.Reset(in)
	}
}

// room asks the node for bytes of the device's memory. The caller has the lock.
func (t *Turn) room(n uint64) bool {
	t.say(between.Room, time.Duration(n))
	return <-t.space
}

// loaded says that the memory that was asked for is there: the turn begins then,
// and is longer the longer that took. The caller has the lock.
func (t *Turn) loaded(took time.Duration) {
	t.say(between.In, took)
	t.since, t.spare = time.Now(), 0
	now := t.since.Sub(t.start)
	t.last.Store(int64(now))
	if until := int64(now + between.SwapTurn*took); t.until.Load() < until {
		t.until.Store(until)
	}
	t.idle = min(max(took/2, idle), mostIdle)
	t.timer.Reset(t.idle)
}

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
	t.say(what, max(time.Since(t.since)-unused-t.spare, 0))
}

// say tells the node. If that is gone, so is this process in a moment.
func (t *Turn) say(what byte, d time.Duration) { _, _ = t.node.Write(between.Put(what, d)) }

// rest gives the device back when nothing came for a while, or the time is over.
// A device that a call waits for is at work. The time in which it had nothing to
// do is not charged, if it is known.
func (t *Turn) rest() {
	if !t.mu.TryLock() { // a launch may be under way
		if t.rests != nil {
			t.watch()
		}
		t.mu.Lock()
	}
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
	if until > now && !known && waited { // who looks meanwhile takes a processor from the device, if that is one
		t.timer.Reset(time.Duration(until - now))
		t.far.Store(true)
		if t.waiting.Load() == 0 || t.until.Load() != until { // since just now
			t.near(soon)
		}
		return
	}
	if until > now && quiet < t.idle {
		t.timer.Reset(max(t.idle-quiet, idle/2))
		return
	}
	before := time.Now()
	t.drained()
	unused := time.Duration(0)
	if known && quiet >= t.idle && time.Since(before) < idle/10 { // nor was memory copied
		unused = min(quiet, time.Since(t.since))
	}
	t.giveBack(between.Done, unused)
}
