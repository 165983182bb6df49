//go:build linux

package worker

import (
	"slices"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// work is what a queue was given, up to a piece of it. What is known to be done
// is known from calls that waited for it: they tell when a device came to rest.
type work struct {
	on    *object // the queue
	upTo  int64
	reads int64 // that nobody waits for
	all   int64 // commands
}

// workOf is what is done when an event is: in a queue that keeps order, all that
// it was given before. The caller has the lock.
func workOf(q *object) work {
	if q.loose {
		return work{}
	}
	return upToNow(q)
}

// upToNow is all that a queue was given. The caller has the lock.
func upToNow(q *object) work { return work{q, q.given, q.reads, q.fed.Load()} }

// isDone has its queue know. The caller has the lock.
func (w work) isDone() {
	q := w.on
	q.known, q.read, q.drained = max(q.known, w.upTo), max(q.read, w.reads), max(q.drained, w.all)
}

// awaited reads a list of events, and what is done when they are. The caller has
// the lock.
func (s *Session) awaited(b wire.Body) []work {
	var all []work
	for range b.Count(8) {
		if o := s.objects[b.Word()]; o != nil && o.work.on != nil {
			all = append(all, o.work)
		}
	}
	return all
}

// waits is said before a call waits for work, and over with what came of it: one
// that failed did not wait to the end. A call that waits for what the program
// itself has yet to say does not tell anything. The caller has the lock.
func (s *Session) waits(these ...work) (over func(bad int32)) {
	if s.users > 0 || len(these) == 0 || these[0].on == nil {
		return func(int32) {}
	}
	given := s.turn.Waits()
	return func(bad int32) {
		if bad != clSuccess {
			s.turn.Waited(given, false)
			return
		}
		s.mu.Lock()
		for _, w := range these {
			w.isDone()
		}
		open := slices.ContainsFunc(s.queues, func(q *object) bool { return q.known < q.given })
		s.mu.Unlock()
		s.turn.Waited(given, !open)
	}
}

// mark is a marker behind the work that a queue was given, up to a piece of it.
type mark struct {
	work

	event uintptr
	given int64 // to the device, by all queues
}

// mark puts a marker behind what a queue was given. The caller has the lock.
func (s *Session) mark(q *object) (mark, int32) {
	m, e := mark{work: upToNow(q)}, cell()
	bad := s.lib.status("clEnqueueMarkerWithWaitList", q.ptr, 0, 0, at(e))
	m.event = uintptr(*e)
	return m, bad
}

// leaves is the event of a marker, and whether nobody here needs it any more.
type leaves struct {
	event    uintptr
	unneeded bool
}

// follow has leave give the event of a marker back. The caller has the lock.
func (s *Session) follow(m mark) mark {
	if s.lib.marksAll {
		s.left = append(s.left, leaves{event: m.event})
	}
	return m
}

// leave gives events back, those of markers once the driver is through with them. The caller has the lock.
func (s *Session) leave(events ...uintptr) {
	for _, e := range events {
		if i := slices.IndexFunc(s.left, func(l leaves) bool { return l.event == e }); i >= 0 {
			s.left[i].unneeded = true
		} else {
			s.lib.call("clReleaseEvent", e)
		}
	}
	s.left = slices.DeleteFunc(s.left, func(l leaves) bool {
		over := l.unneeded && s.isThrough(l.event)
		if over {
			s.lib.call("clReleaseEvent", l.event)
		}
		return over
	})
}

// isThrough reports whether the driver is through with an event, which only this worker
// refers to beside it: a moment after that is said to be done, as it tells who waited.
func (s *Session) isThrough(e uintptr) bool {
	return s.eventStatus(e) <= clSuccess && s.lib.number("clGetEventInfo", e, clEventReferences)&0xFFFFFFFF <= 1
}

// rests reports whether the device is known to have done all that it was given, but
// for what waits for the program itself, and whether that can be known: what queues had
// that the program has released cannot. The turn is locked.
func (s *Session) rests() (done, can bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := s.turn.given.Load()
	if len(s.marks) > 0 && s.marks[0].given != given {
		s.unmark()
	}
	if s.users > 0 && s.lib.one != nil { // clFlush would wait for what is held
		s.unmark()
		return false, false
	}
	some := false
	if len(s.marks) == 0 {
		for _, q := range s.queues {
			if s.holdsAny(q) { // what runs of it has events
				s.lib.call("clFlush", q.ptr)
				some = true
				continue
			}
			if q.known == q.given {
				continue
			}
			m, bad := s.mark(q)
			if bad != clSuccess {
				s.unmark()
				return false, false
			}
			m.given = given
			s.marks = append(s.marks, s.follow(m))
			s.lib.call("clFlush", q.ptr)
		}
	}
	for _, m := range s.marks {
		if s.eventStatus(m.event) > clSuccess {
			return false, true
		}
	}
	if slices.ContainsFunc(s.freed, func(e uintptr) bool { return s.eventStatus(e) > clSuccess }) {
		return false, true
	}
	done = some || len(s.marks) > 0
	for _, m := range s.marks {
		m.isDone()
	}
	s.unmark()
	return done, done
}

func (s *Session) unmark() {
	for _, m := range s.marks {
		s.leave(m.event)
	}
	s.marks = s.marks[:0]
}
