//go:build linux

package cuda

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// After each work an event is recorded in its stream. When a turn ends, the
// device is given back when the last of each stream has happened, so that who
// comes next has it alone, and what the turn cost is known.

type markKey struct {
	context, stream uintptr
	thread          uint64 // of its own default stream; else 0
}

type mark struct {
	event   uintptr
	pending bool

	pace  uintptr // an event behind which it is waited, see behind
	paced bool
	since time.Time
}

type marks struct {
	errands chan errand // for the keeper

	mu        sync.Mutex // guards what follows
	all       map[markKey]*mark
	capturing map[markKey]bool
}

const (
	// ahead is how long after it was given work may be undone while more is given.
	ahead = 10 * time.Millisecond
	// patience is how long it is waited for at most: it may wait for what comes next.
	patience = 100 * time.Millisecond
	// stuck is how long the end of a turn waits for work that does not end while the
	// program has more, which that work may wait for.
	stuck = time.Second
)

// key is what a stream of a thread is known by.
func (t *thread) key(stream uintptr) markKey {
	k := markKey{t.context(), stream, 0}
	switch stream {
	case 0:
		k.stream = legacyStream
	case ownStream:
		k.thread = t.id
	}
	return k
}

// launches gives the device kernels in a turn, which may have to be loaded first.
func (t *thread) launches(stream uintptr, do func() int32) int32 {
	return t.work(stream, func() int32 { return t.s.turn.Launch(do) })
}

// work gives the device work in a turn.
func (t *thread) work(stream uintptr, do func() int32) int32 {
	s := t.s
	t.behind(stream)
	s.wanting.Add(1)
	s.turn.Take()
	s.wanting.Add(-1)
	defer s.turn.Done()
	r := do()
	t.mark(stream)
	return r
}

func (t *thread) mark(stream uintptr) {
	s, key := t.s, t.key(stream)
	if key.context == 0 {
		return
	}
	if s.captures.Load() > 0 && t.captures(stream) {
		return
	}
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	m := s.marks.all[key]
	if m == nil {
		m = &mark{}
		for _, e := range []*uintptr{&m.event, &m.pace} {
			const cell = 42
			if s.d.call("cuEventCreate", t.cells.at(cell), untimed) != success {
				return
			}
			*e = uintptr(t.cells[cell])
		}
		s.marks.all[key] = m
	}
	if s.d.call("cuEventRecord", m.event, stream) != success {
		return
	}
	m.pending = true
	if !m.paced && s.d.call("cuEventRecord", m.pace, stream) == success {
		m.paced, m.since = true, time.Now()
	}
}

// captures asks whether a stream captures.
func (t *thread) captures(stream uintptr) bool {
	const cell = 43
	t.cells[cell] = 0
	return t.s.d.call("cuStreamIsCapturing", stream, t.cells.at(cell)) == success && uint32(t.cells[cell]) != 0
}

func (s *Session) captured(k markKey, begun bool) {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if s.marks.capturing[k] == begun {
		return
	}
	if begun {
		s.marks.capturing[k] = true
		s.captures.Add(1)
	} else {
		delete(s.marks.capturing, k)
		s.captures.Add(-1)
	}
}

// behind waits while what a stream was given a while ago is undone: else a turn
// would end long after its time.
func (t *thread) behind(stream uintptr) {
	s, key := t.s, t.key(stream)
	s.marks.mu.Lock()
	m := s.marks.all[key]
	late := m != nil && m.paced && time.Since(m.since) > ahead
	s.marks.mu.Unlock()
	if !late {
		return
	}
	t.quietly(func() {
		for end := time.Now().Add(patience); ; nap(100 * time.Microsecond) {
			s.marks.mu.Lock()
			if s.marks.all[key] != m || !m.paced || s.d.call("cuEventQuery", m.pace) != notReady {
				m.paced = false
				s.marks.mu.Unlock()
				return
			}
			s.marks.mu.Unlock()
			if time.Now().After(end) {
				return
			}
		}
	})
}

// nap is for threads that have nothing else to do: a timer would wake another first.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // or a little less
}

// rested looks whether all work is done. The caller has the lock of the marks;
// enter makes a context current.
func (s *Session) rested(enter func(context uintptr)) bool {
	all := true
	for k, m := range s.marks.all {
		if !m.pending {
			continue
		}
		enter(k.context)
		if s.d.call("cuEventQuery", m.event) == notReady { // of a context that has failed nothing more comes
			all = false
			continue
		}
		m.pending, m.paced = false, false
	}
	return all
}

// waits makes a call that waits for the device.
func (t *thread) waits(do func() int32) int32 {
	s := t.s
	given := s.turn.Waits()
	r := do()
	done := false
	if r == success {
		t.quietly(func() {
			s.marks.mu.Lock()
			defer s.marks.mu.Unlock()
			own := t.context()
			here := own
			done = s.rested(func(c uintptr) {
				if c != here {
					s.d.call("cuCtxSetCurrent", c)
					here = c
				}
			})
			if here != own {
				s.d.call("cuCtxSetCurrent", own)
			}
		})
	}
	s.turn.Waited(given, r == success && done)
	return r
}

// errand is what the keeper does; enter makes a context current.
type errand struct {
	do   func(enter func(context uintptr))
	done chan struct{}
}

// keeps has the keeper do something, and returns when it has.
func (s *Session) keeps(do func(enter func(context uintptr))) {
	e := errand{do, make(chan struct{})}
	s.marks.errands <- e
	<-e.done
}

// keep is the keeper: it waits for what streams were given, and fetches memory. What it
// does is not taken for what a program captures.
func (s *Session) keep() {
	runtime.LockOSThread()
	c := &cells{}
	c[0] = relaxed
	s.d.call("cuThreadExchangeStreamCaptureMode", c.at(0))
	enter := func(context uintptr) { s.d.call("cuCtxSetCurrent", context) }
	for e := range s.marks.errands {
		e.do(enter)
		close(e.done)
	}
	runtime.KeepAlive(c)
}

// drain waits until the device has done what it was given. While that is not so the
// task is charged; others are let compute beside it by the node.
func (s *Session) drain() {
	s.keeps(func(enter func(context uintptr)) {
		end := time.Now().Add(stuck)
		for wait := 20 * time.Microsecond; ; wait = min(2*wait, 500*time.Microsecond) {
			s.marks.mu.Lock()
			rested := s.rested(enter)
			s.marks.mu.Unlock()
			if rested || s.wanting.Load() > 0 && time.Now().After(end) {
				return
			}
			nap(wait)
		}
	})
}

// rests looks whether the device has nothing to do, but for what it is given just now.
func (s *Session) rests() (all bool) {
	s.keeps(func(enter func(context uintptr)) {
		s.marks.mu.Lock()
		defer s.marks.mu.Unlock()
		all = s.rested(enter)
	})
	return all
}

// endContext finishes the copies of a context that ends, and forgets its marks.
func (t *thread) endContext(context uintptr) {
	s := t.s
	t.finishCopies(context)
	s.marks.mu.Lock()
	for k := range s.marks.all {
		if k.context == context {
			delete(s.marks.all, k)
		}
	}
	s.marks.mu.Unlock()
	s.unpageAll(context)
	s.endCopies(context)
}
