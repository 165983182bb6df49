//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"runtime"
	"testing"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestRooms: memory of large messages and transfers is used again, whether they are waited for or
// not, and not by two at a time; it goes back to the system when there are none for a while.
func TestRooms(t *testing.T) { // not parallel: it counts what is allocated
	const size = 1 << 20
	s := session(silent{})
	s.limit, s.bounds.held = 1<<30, 1<<30
	s.memory.SetLimit(1 << 30)
	s.objects[3].size = size
	plays(t, s).done = true
	var all []byte
	say := func(op wire.Op, flags uint16, call []uint64, data int) {
		body := words(call...)
		if data > 0 {
			body = wire.AppendBytes(body, make([]byte, data))
		}
		all = append(all, sent(op, flags, 0, body)...)
	}
	transfer := func(blocking, landing uint64) []uint64 {
		return []uint64{2, 3, 0, blocking, 0, 0, 0, size, 1, 1, 0, 0, size, landing, 0, 0}
	}
	say(wire.OpWrite, wire.FlagAnswer, transfer(1, 0), size)
	say(wire.OpWrite, 0, transfer(0, 0), size)
	say(wire.OpWrite, 0, transfer(0, 0), size)
	say(wire.OpRead, wire.FlagAnswer, transfer(1, 0), 0)
	say(wire.OpRead, 0, transfer(0, 9), 0)
	say(wire.OpFinish, wire.FlagAnswer, []uint64{2, 0}, 0)
	round := func() {
		s.in = bufio.NewReader(bytes.NewReader(all))
		serve(t, s)
	}
	round()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		round()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4*size {
		t.Errorf("20 times five transfers of %d bytes allocate %d", size, n)
	}
	if len(s.writes)+len(s.reads) > 0 {
		t.Errorf("%d writes and %d reads are on their way", len(s.writes), len(s.reads))
	}
	a, b := s.rooms.take(size), s.rooms.take(size)
	if &a[0] == &b[0] {
		t.Error("two have one memory")
	}
	if c := s.rooms.take(size / 4); cap(c) >= size {
		t.Errorf("%d bytes are given %d", size/4, cap(c))
	}
	s.rooms.give(a)
	s.rooms.give(make([]byte, mostRooms-size/2)) // instead
	if c := s.rooms.take(size); &c[0] == &a[0] {
		t.Error("more is kept than may be")
	}
	soonTrue(t, "it is kept for ever", func() bool {
		s.rooms.mu.Lock()
		defer s.rooms.mu.Unlock()
		return len(s.rooms.free) == 0 && s.rooms.bytes == 0 && s.rooms.timer == nil
	})
}
