//go:build linux

package worker

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Commands that wait, themselves or through others, for events that the program
// sets itself and has not set are the driver's, as all are: it tells what is wrong
// with them, and runs them when their time comes. But they may never end, so what
// brings a device to rest does not wait for them, and a program that moves has them
// made again where it goes, in their order. For that is kept, of each:
//
//   - its message, and its kernel's arguments as they were then;
//   - what it names: an object that the program has released stays until then;
//   - its event at the driver: once it waits for nothing of the program's any more,
//     it runs, and the device rests when that has happened.
//
// Calls that wait for such commands are kept, too. The session may be stopped
// while they wait, and who has the program next answers them.
//
//	command ──▶ held ── the last event that it waits for is set ──▶ freed ── done ──▶ forgotten
//	                └── the program moves: made again there, held
type held struct {
	wire.Header

	body    []byte
	queue   *object
	on      []*object // events that the program has not set
	names   []*object
	kernel  *object
	args    [][]byte // of that: messages that set them
	reaches []uint64
	ptr     uintptr  // the driver's event
	made    *object  // the program's, or nil
	parked  bool     // a call waits for it, while the session may be stopped
	waits   []uint64 // of that, events that it waits for; none: they have come to their ends
	kept    int      // bytes
	over    bool     // it has failed before the program has set what it waits for
}

// behind says which events that the program has not set a message waits for. The caller has the lock.
func (s *Session) behind(m *message, q *object) (on []*object) {
	add := func(more []*object) {
		for _, e := range more {
			if !slices.Contains(on, e) {
				on = append(on, e)
			}
		}
	}
	listed := false
	if q != nil {
		add(q.behind)
	}
	for _, o := range m.names {
		if o.kind == event {
			listed = listed || o.ptr != 0 // else the driver is not told of it
			add(o.behind)
		}
	}
	marker := m.Op == wire.OpEnqueueMarker || m.Op == wire.OpEnqueueMarkerWithWaitList
	all := m.Op == wire.OpFinish || !listed && (fences[m.Op] || marker) || marker && s.lib.marksAll
	for _, h := range s.held {
		if all && h.holds(q) {
			add(h.on)
		}
	}
	return on
}

// fences are what all later commands of their queue wait for.
var fences = map[wire.Op]bool{wire.OpEnqueueBarrier: true, wire.OpEnqueueBarrierWithWaitList: true, wire.OpEnqueueWaitForEvents: true}

// holdsAny says whether commands of a queue are held. The caller has the lock.
func (s *Session) holdsAny(q *object) bool {
	return slices.ContainsFunc(s.held, func(h *held) bool { return h.holds(q) })
}

func (h *held) holds(q *object) bool { return h.queue == q && h.ptr != 0 && !h.over }

// pass finds which commands of a queue have failed before what they wait for was set,
// as another event has that they wait for: they hold back nothing any more, but are
// kept until then, as PoCL uses their events when that is set. The caller has the lock.
func (s *Session) pass(q *object) {
	any := false
	for _, h := range s.held {
		if !h.holds(q) || q.loose && !fences[h.Op] { // such are behind nothing
			continue
		}
		if !s.ended(h) {
			break
		}
		if h.over, any = true, true; h.made != nil {
			h.made.behind = nil
		}
	}
	if !any {
		return
	}
	q.behind = nil
	for _, h := range s.held {
		if h.holds(q) {
			q.isBehind(h)
		}
	}
}

// isBehind says that what comes next in a queue waits for what a command of it does.
func (q *object) isBehind(h *held) {
	if q.loose && !fences[h.Op] {
		return
	}
	for _, e := range h.on {
		if !slices.Contains(q.behind, e) {
			q.behind = append(q.behind, e)
		}
	}
}

// watch is said before a command is given to a queue. It returns what is to be kept
// of it, nil if it waits for nothing of the program's, and whether its event is
// wanted: to know when the device rests. The caller has the lock.
func (s *Session) watch(m *message, q *object) (h *held, wanted bool) {
	if s.users == 0 {
		return nil, false
	}
	s.pass(q)
	any := s.holdsAny(q)
	on := s.behind(m, q)
	if len(on) == 0 {
		return nil, any
	}
	if !any {
		if before, bad := s.mark(q); bad == clSuccess {
			s.runs(s.follow(before).event)
		}
	}
	return s.newHeld(m, q, on), true
}

func (s *Session) newHeld(m *message, q *object, on []*object) *held {
	h := &held{Header: m.Header, queue: q, on: on, names: m.names}
	m.names = nil
	if q != nil && !slices.Contains(h.names, q) {
		h.names = append(h.names, q)
	}
	for _, k := range h.names {
		if k.kind != kernel || m.Op != wire.OpEnqueueNDRangeKernel && m.Op != wire.OpEnqueueTask {
			continue
		}
		h.kernel, h.args, h.reaches = k, slices.Collect(maps.Values(k.args)), k.reaches
		for _, a := range h.args {
			b := wire.NewBody(a[24:])
			if how, of := b.Word(), s.objects[b.Word()]; how == argHandle && of != nil {
				h.names = append(h.names, of)
			}
		}
		break
	}
	h.kept = 256 + 8*(len(h.names)+len(h.reaches))
	if m.Op != wire.OpWrite { // whose data is counted by itself
		h.kept += len(m.body)
	}
	for _, a := range h.args {
		h.kept += len(a)
	}
	return h
}

// keepHeld keeps a command that was given to the driver, whose event it is given;
// or only that, if it is not held. The caller has the lock.
func (s *Session) keepHeld(h *held, m *message, ptr uintptr, made *object) {
	if h == nil {
		s.runs(ptr)
		return
	}
	h.ptr, h.made = ptr, made
	s.kept += h.kept
	if made != nil {
		made.behind = h.on
	}
	if h.body = m.body; m.Op != wire.OpWrite {
		h.body = bytes.Clone(m.body)
	} else {
		m.taken = true
	}
	h.queue.isBehind(h)
	s.keepNamed(h)
}

// heldCall is a call that gives the device nothing, and waits; nil if it does not for what is held. The caller has the lock.
func (s *Session) heldCall(m *message, q *object) *held {
	on := s.behind(m, q)
	if len(on) == 0 {
		return nil
	}
	h := s.newHeld(m, q, on)
	h.body, m.taken = m.body, true
	s.keepNamed(h)
	return h
}

// given are events of all that a queue was given; none, if that is not known. They
// are retained. A marker would do, but PoCL ends the process if one waits for several
// commands that fail. The caller has the lock.
func (s *Session) given(q *object) (events []uint64) {
	if !s.holdsAny(q) {
		e := make([]uint64, 1)
		if s.lib.status("clEnqueueMarkerWithWaitList", q.ptr, 0, 0, atWords(e)) != clSuccess {
			return nil
		}
		return e
	}
	for _, h := range s.held {
		if h.queue == q && h.ptr != 0 {
			events = append(events, uint64(h.ptr))
		}
	}
	for _, e := range s.freed {
		events = append(events, uint64(e))
	}
	for _, e := range events {
		s.lib.call("clRetainEvent", uintptr(e))
	}
	return events
}

func (s *Session) keepNamed(h *held) {
	s.held = append(s.held, h)
	name(h.names...)
}

// name has objects stay, whether the program releases them or not, until unname. The caller has the lock.
func name(all ...*object) {
	for _, o := range all {
		o.named++
	}
}

// drop ends that something is held. The caller has the lock.
func (s *Session) drop(h *held) {
	if h.ptr != 0 {
		s.runs(h.ptr)
		s.kept -= h.kept
	}
	s.held = slices.DeleteFunc(s.held, func(x *held) bool { return x == h })
	s.unname(h.names...)
}

func (s *Session) unname(all ...*object) {
	for _, o := range all {
		if o.named--; o.named > 0 || !o.released {
			continue
		}
		if o.late {
			s.lib.call(releases[o.kind], o.ptr)
			o.late = false
		}
		if o.children == 0 {
			s.forget(o)
		}
	}
}

// calm waits a moment until what runs before commands that are held has come to its end:
// PoCL 3.1 ends the process if a command fails while the one before it in its queue
// ends, of which that driver tells what waits for it after it says that it is done: it then runs
// what has failed. What comes before is mostly the worker's own marker. Looks are counted, and not time, in which this process
// may not have run at all; there are more of them where the driver is just telling. The caller has the lock.
func (s *Session) calm() {
	s.forgetFreed()
	runs := func(e uintptr) bool { return s.eventStatus(e) > clSuccess }
	ends := func(l leaves) bool { return !s.isThrough(l.event) }
	tells := func(l leaves) bool { return ends(l) && !runs(l.event) }
	most := func() int {
		switch {
		case slices.ContainsFunc(s.left, tells):
			return calmTells
		case slices.ContainsFunc(s.left, ends), slices.ContainsFunc(s.freed, runs):
			return calmRuns
		}
		return 0
	}
	for looks := 0; looks < most(); looks++ {
		<-time.After(calmEvery)
	}
}

const (
	calmEvery = 100 * time.Microsecond
	calmRuns  = 500
	calmTells = 5000
)

// opens says whether work for the device waits for the event that a message sets, and for nothing else.
func (s *Session) opens(m *message) bool {
	b := wire.NewBody(m.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.objects[b.Word()]
	return u != nil && slices.ContainsFunc(s.held, func(h *held) bool {
		c := wire.CallOf(h.Op)
		return h.ptr != 0 && c != nil && c.Work && len(h.on) == 1 && h.on[0] == u
	})
}

// settle says that the program has set an event of its own. The caller has the lock.
func (s *Session) settle(id uint64) {
	u := s.objects[id]
	if u == nil || !u.user {
		return
	}
	without := func(list []*object) []*object {
		return slices.DeleteFunc(slices.Clone(list), func(o *object) bool { return o == u })
	}
	u.user, u.behind = false, nil
	s.users--
	for _, h := range slices.Clone(s.held) {
		h.on = without(h.on)
		if h.queue != nil {
			h.queue.behind = without(h.queue.behind)
		}
		if h.made != nil && !h.over {
			h.made.behind = h.on
		}
		if len(h.on) > 0 {
			continue
		}
		if h.parked {
			h.parked = false
			s.flow.join()
		}
		s.drop(h)
	}
}

// runs keeps an event of what runs, until that is done. The caller has the lock.
func (s *Session) runs(e uintptr) {
	const few = 256
	if s.freed = append(s.freed, e); len(s.freed) > s.mostFreed {
		s.forgetFreed()
		s.mostFreed = max(few, 2*len(s.freed))
	}
}

// forgetFreed forgets events of what is done. The caller has the lock.
func (s *Session) forgetFreed() {
	var done []uintptr
	s.freed = slices.DeleteFunc(s.freed, func(e uintptr) bool {
		if s.eventStatus(e) > clSuccess {
			return false
		}
		done = append(done, e)
		return true
	})
	s.leave(done...)
}

// waitFor waits for events of the driver's, which it releases, and then does what is
// left of a message; if that waits for what is held, the session may be stopped
// meanwhile. The caller has the lock, which waitFor gives back.
func (s *Session) waitFor(h *held, events []uint64, then func(bad int32) error) error {
	run := func() error {
		if h != nil {
			s.flow.leave() // or the event has been set just now, which has joined
		}
		for s.lib.one != nil && s.isParked(h) { // who sets it could not call the driver while that is asked to wait
			<-time.After(time.Millisecond)
		}
		bad := int32(clSuccess)
		for i := range events {
			if e := s.lib.status("clWaitForEvents", 1, atWords(events[i:])); e != clSuccess {
				bad = e
			}
		}
		s.mu.Lock() // who sets an event may be about to: PoCL still uses events that have failed then
		for _, e := range events {
			s.lib.call("clReleaseEvent", uintptr(e))
		}
		if h != nil {
			h.waits = nil
		}
		s.mu.Unlock()
		s.unpark(h)
		return then(bad)
	}
	if h != nil {
		h.parked, h.waits = true, events
	}
	coming := h != nil && s.coming != nil
	if coming {
		s.coming = append(s.coming, run)
	}
	s.mu.Unlock()
	if coming {
		return nil
	}
	return run()
}

func (s *Session) isParked(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h != nil && h.parked
}

// unpark returns when a call that has waited may go on. If an error ended that
// before the events were set, the session must go on first.
func (s *Session) unpark(h *held) {
	if !s.isParked(h) {
		return
	}
	s.flow.enter()
	s.mu.Lock()
	set := !h.parked // meanwhile, which has joined
	if !set {
		s.goesOn(h)
	}
	s.mu.Unlock()
	if set {
		s.flow.leave()
	}
}

// goesOn says that a call does not wait any more, though the program has not set
// what it waits for. The caller has the lock.
func (s *Session) goesOn(h *held) {
	if h.parked = false; h.ptr == 0 {
		s.drop(h)
	} else {
		s.pass(h.queue)
	}
}

// waitsInVain says whether a call waits though all that it waits for has come to its
// end: that failed, and the call is about to return, unless the session is stopped. The
// caller has the lock.
func (s *Session) waitsInVain(h *held) bool {
	return h.parked && !slices.ContainsFunc(h.waits, func(e uint64) bool { return s.eventStatus(uintptr(e)) > clSuccess })
}

// comeBack has calls that wait in vain return while the session is stopped, once it
// goes on, and says whether there are some: who has the program next could not
// tell what came of them.
func (s *Session) comeBack() (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range slices.Clone(s.held) {
		if s.waitsInVain(h) {
			s.goesOn(h)
			s.flow.join()
			some = true
		}
	}
	return some
}

// ended says that a command has failed for another reason than what it waits for. The caller has the lock.
func (s *Session) ended(h *held) bool { return h.ptr != 0 && s.eventStatus(h.ptr) <= clSuccess }

// sendHeld sends what is held. The caller has the lock.
func (m *mover) sendHeld() error {
	for _, h := range m.held {
		if m.waitsInVain(h) {
			return errors.New("what a call of the program waits for has failed just now: try again")
		}
		if m.ended(h) {
			continue
		}
		for _, a := range h.args {
			m.call(wire.OpSetArg, a)
		}
		if len(h.reaches) > 0 {
			m.call(wire.OpExecInfo, append(words(h.kernel.id, uint64(len(h.reaches))), words(h.reaches...)...))
		}
		m.frame(wire.FrameHeld, words(uint64(h.Op), uint64(h.Flags), uint64(h.Call)), h.body)
	}
	return nil
}

// again makes what was held where the program was before.
func (r *receiver) again(op wire.Op, flags uint16, call uint32, body []byte) error {
	c := wire.CallOf(op)
	waits := op == wire.OpFinish || op == wire.OpWait
	if !waits && op != wire.OpRead && op != wire.OpWrite && (c == nil || c.Params[0] != wire.KindQueue) {
		return errEnd
	}
	if len(r.coming) >= r.bounds.waiting {
		return errFull
	}
	m := &message{Header: wire.Header{Size: uint64(len(body)) + wire.HeaderSize, Op: op, Flags: flags | wire.FlagAnswer, Call: call}, body: body}
	n := len(r.coming)
	r.said.heard, r.said.status = false, clSuccess
	if err := r.do(m); err != nil {
		return err
	}
	if waits = waits || m.blocks(); waits != (len(r.coming) > n) || r.said.status != clSuccess {
		return errEnd
	}
	return nil
}
