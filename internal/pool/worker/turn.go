//go:build linux

package worker

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// What a worker and its node say to each other about turns: a byte, and nine of
// them where a duration in nanoseconds follows.
const (
	TurnWant    = 'W' // worker: there is work
	TurnDone    = 'R' // worker: the device is given back, after so long
	TurnMore    = 'M' // worker: the same, and there is more work
	TurnGranted = 'G' // node: the device is the task's for so long
	TurnYield   = 'Y' // node: another wants it
	TurnSize    = 9
)

// PutTurn writes what is said about turns.
func PutTurn(what byte, d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64([]byte{what}, uint64(d))
}

// ReadTurn reads it.
func ReadTurn(r io.Reader) (byte, time.Duration, error) {
	var b [TurnSize]byte
	_, err := io.ReadFull(r, b[:])
	return b[0], time.Duration(binary.LittleEndian.Uint64(b[1:])), err
}

// idle is how long a worker keeps a device that it gives nothing to do.
const idle = 2 * time.Millisecond

// Turn is when a task may use its device. It is asked for with the first work
// and given back when its time is over, or nothing came for a while. What was
// given to the device is done then.
type Turn struct {
	node  io.ReadWriter
	drain func() // waits until the device has done what it was given

	until   atomic.Int64 // the end of this turn, since start; 0: it is not the task's
	last    atomic.Int64 // the last work
	granted chan time.Duration
	start   time.Time

	mu    sync.Mutex // held by who gives work, or takes or gives back the device
	since time.Time
	timer *time.Timer
}

// NewTurn asks a node through a connection. gone is called when that ends.
func NewTurn(node io.ReadWriter, gone func()) *Turn {
	t := &Turn{node: node, drain: func() {}, granted: make(chan time.Duration, 1), start: time.Now()}
	t.timer = time.AfterFunc(time.Hour, t.rest)
	go t.listen(gone)
	return t
}

func (t *Turn) listen(gone func()) {
	for {
		switch what, d, err := ReadTurn(t.node); {
		case err != nil:
			gone()
			return
		case what == TurnGranted:
			t.granted <- d
		case what == TurnYield:
			if t.until.Load() != 0 {
				t.until.Store(1)
			}
		}
	}
}

// Take returns when the task may use the device; Done must follow.
func (t *Turn) Take() {
	t.mu.Lock()
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
	d := <-t.granted
	t.since = time.Now()
	now = t.since.Sub(t.start)
	t.last.Store(int64(now))
	t.until.Store(int64(now + d))
	t.timer.Reset(idle)
}

// Done ends what Take began: the work is the device's now.
func (t *Turn) Done() { t.mu.Unlock() }

// giveBack gives the device back, of which the last part was not used. The caller has the lock.
func (t *Turn) giveBack(what byte, unused time.Duration) {
	t.drain()
	t.until.Store(0)
	t.timer.Stop()
	t.say(what, max(time.Since(t.since)-unused, 0))
}

// say tells the node. If that is gone, so is this process in a moment.
func (t *Turn) say(what byte, d time.Duration) { _, _ = t.node.Write(PutTurn(what, d)) }

// rest gives the device back when nothing came for a while, or the time is over.
func (t *Turn) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := t.until.Load()
	if until == 0 {
		return
	}
	now := int64(time.Since(t.start))
	if quiet := time.Duration(now - t.last.Load()); quiet < idle && until > now {
		t.timer.Reset(idle - quiet)
		return
	}
	before := time.Now()
	t.drain()
	unused := time.Duration(0)
	if time.Since(before) < idle/10 { // it had been idle
		unused = min(idle, time.Since(t.since))
	}
	t.giveBack(TurnDone, unused)
}
