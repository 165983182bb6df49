//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// message is one as a client sends it.
func sent(op wire.Op, flags uint16, call uint32, body []byte) []byte {
	h := make([]byte, wire.HeaderSize)
	binary.LittleEndian.PutUint64(h, uint64(len(h)+len(body)))
	binary.LittleEndian.PutUint16(h[8:], uint16(op))
	binary.LittleEndian.PutUint16(h[10:], flags)
	binary.LittleEndian.PutUint32(h[12:], call)
	return append(h, body...)
}

// TestBoundOfObjects: a program has so many objects, of commands that it does not wait
// for, too, and others when it has released some.
func TestBoundOfObjects(t *testing.T) {
	t.Parallel()
	out := &heard{}
	s := session(out)
	plays(t, s)
	told := func(op wire.Op, w ...uint64) int32 {
		t.Helper()
		if err := s.do(asks(op, 1, words(w...))); err != nil {
			t.Fatal(err)
		}
		status, _ := out.status(1)
		return status
	}
	id := uint64(100)
	for ; len(s.objects) < s.bounds.objects; id++ {
		if bad := told(wire.OpEnqueueMarkerWithWaitList, 2, 0, id); bad != clSuccess {
			t.Fatalf("object %d of %d: %d", len(s.objects), s.bounds.objects, bad)
		}
	}
	for _, refused := range [][]uint64{{uint64(wire.OpUserEvent), 1, 90}, {uint64(wire.OpCreateQueue), 1, 90, 0}, {uint64(wire.OpCreateKernels), 5, 1, 90}, {uint64(wire.OpCreateBuffer), 1, 90, 1, 16, 0, 0}, {uint64(wire.OpEnqueueMarker), 2, 90},
		{uint64(wire.OpRead), 2, 3, 0, 0, 0, 0, 0, 16, 1, 1, 0, 0, 16, 9, 0, 90}} {
		if bad := told(wire.Op(refused[0]), refused[1:]...); bad != clOutOfHostMemory || s.objects[90] != nil {
			t.Errorf("one more, by %s: %d", wire.Op(refused[0]), bad)
		}
	}
	m := asks(wire.OpEnqueueMarker, 1, words(2, 90))
	m.Flags = 0
	if err := s.do(m); err != nil || s.objects[90] != nil || s.objects[2].status != clOutOfHostMemory {
		t.Errorf("one that nobody waits for: %v, and the next finish tells %d", err, s.objects[2].status)
	}
	_ = told(wire.OpRelease, 100)
	if bad := told(wire.OpUserEvent, 1, 90); bad != clSuccess {
		t.Errorf("there is no room when one was released: %d", bad)
	}
}

// TestBoundOfKept: what a worker keeps for a program is counted, of all kinds, and not
// more than so much, until it is released.
func TestBoundOfKept(t *testing.T) {
	t.Parallel()
	for name, grow := range map[string]func(i uint64) (wire.Op, []byte){
		"texts": func(i uint64) (wire.Op, []byte) {
			return wire.OpCreateProgram, wire.AppendBytes(words(1, i, fromSource), make([]byte, 500))
		},
		"options": func(uint64) (wire.Op, []byte) {
			return wire.OpBuild, wire.AppendBytes(words(5), bytes.Repeat([]byte(" "), 5000))
		},
		"constants": func(i uint64) (wire.Op, []byte) {
			return wire.OpSpecialize, wire.AppendBytes(words(5, i), make([]byte, 8))
		},
		"arguments": func(i uint64) (wire.Op, []byte) {
			return wire.OpSetArg, append(words(6, i, 64, 0), wire.AppendBytes(nil, make([]byte, 64))...)
		},
		"reached": func(uint64) (wire.Op, []byte) {
			return wire.OpExecInfo, append(words(6, 600), bytes.Repeat(words(1<<44), 600)...)
		},
		"held": func(uint64) (wire.Op, []byte) { return wire.OpEnqueueMarkerWithWaitList, words(2, 1, 30, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &heard{}
			s := session(out)
			plays(t, s)
			s.objects[5].code.replaced = name == "constants" // or the device would have to be of OpenCL 2.2
			if name == "held" {
				_ = s.do(asks(wire.OpUserEvent, 1, words(1, 30)))
			}
			bad := int32(clSuccess)
			for i := uint64(100); bad == clSuccess && i < 300; i++ {
				op, body := grow(i)
				if err := s.do(asks(op, 1, body)); err != nil {
					t.Fatal(err)
				}
				if bad, _ = out.status(1); s.kept > s.bounds.kept || bad == clSuccess && s.kept == 0 {
					t.Fatalf("%d bytes are kept", s.kept)
				}
			}
			if bad != clOutOfHostMemory {
				t.Errorf("what is too much is told as %d", bad)
			}
			releaseAll(s)
			if s.kept != 0 {
				t.Errorf("%d bytes are kept of what was released", s.kept)
			}
		})
	}
}

func releaseAll(s *Session) {
	for len(s.objects) > 0 {
		for id := range s.objects {
			b := wire.NewBody(words(id))
			_ = s.release(&b)
		}
	}
}

// TestBoundOfMessages: a message is as long as its call needs at most; one that makes
// more memory than the task may have fails as that does, and the next is done.
func TestBoundOfMessages(t *testing.T) {
	t.Parallel()
	for op, size := range map[wire.Op]uint64{wire.OpFinish: mostCall, wire.OpBuild: mostBuild, wire.OpCompile: mostBuild, wire.OpCreateProgram: mostText + mostCall, wire.OpWrite: mostCall + 1<<20} {
		s := session(silent{})
		if cut, err := s.fits(wire.Header{Op: op, Size: size}); cut || err != nil {
			t.Errorf("%s of %d bytes: %v, %v", op, size, cut, err)
		}
		if cut, err := s.fits(wire.Header{Op: op, Size: size + 1}); cut || err == nil {
			t.Errorf("%s of %d bytes: %v, %v", op, size+1, cut, err)
		}
	}
	body := append(words(1, 40, 1, mostCall+1<<20, 0, mostCall+1<<20), make([]byte, mostCall+1<<20)...)
	out := &heard{}
	s := session(out)
	s.limit = 1 << 40
	plays(t, s)
	s.in = bufio.NewReader(bytes.NewReader(append(sent(wire.OpCreateBuffer, wire.FlagAnswer, 1, body), sent(wire.OpUserEvent, wire.FlagAnswer, 2, words(1, 41))...)))
	serve(t, s)
	if status, ok := out.status(1); !ok || status != clAllocationFailure || s.memory.Used() != 0 {
		t.Errorf("more than the task may have: %d, %v", status, ok)
	}
	if status, ok := out.status(2); !ok || status != clSuccess {
		t.Errorf("the next message: %d, %v", status, ok)
	}
}

// serve does the messages there are.
func serve(t *testing.T, s *Session) {
	t.Helper()
	m := &message{}
	for {
		err := s.next(m)
		if err == nil {
			err = s.do(m)
			s.flow.leave()
			s.through(m)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBoundOfReads: a transfer is not larger than what it is of, and reads that nobody
// waits for are so many.
func TestBoundOfReads(t *testing.T) {
	t.Parallel()
	out := &heard{}
	s := session(out)
	plays(t, s)
	read := func(size, id uint64) error {
		m := asks(wire.OpRead, 1, words(2, 3, 0, 0, 0, 0, 0, size, 1, 1, 0, 0, size, id, 0, 0))
		if id != 0 {
			m.Flags = 0
		}
		return s.do(m)
	}
	if err := read(4097, 0); err != nil || s.heldReads > 0 {
		t.Errorf("%v, and %d bytes are held", err, s.heldReads)
	}
	if status, _ := out.status(1); status != clInvalidValue {
		t.Errorf("a read beyond the end: %d", status)
	}
	for i := range s.bounds.reads {
		if err := read(16, uint64(i+1)); err != nil || len(s.reads) != i+1 {
			t.Fatalf("read %d: %v", i, err)
		}
	}
	if err := read(16, 99); err == nil || len(s.reads) > s.bounds.reads {
		t.Errorf("%d reads that nobody waits for: %v", len(s.reads), err)
	}
}

// TestBoundOfWaiting: so many calls wait at a time; the next is refused while they wait
// for the program, and else done by who reads.
func TestBoundOfWaiting(t *testing.T) {
	t.Parallel()
	theirs, ours := pair(t)
	s := session(theirs)
	d := plays(t, s)
	end := make(chan error, 1)
	go func() { end <- s.Serve() }()
	answers := bufio.NewReader(ours)
	var all bytes.Buffer
	all.Write(sent(wire.OpUserEvent, wire.FlagAnswer, 1, words(1, 30)))
	n := uint32(s.bounds.waiting)
	for i := range n + 3 {
		all.Write(sent(wire.OpWait, wire.FlagAnswer|wire.FlagThreads, 100+i, words(1, 30)))
	}
	all.Write(sent(wire.OpSetUserEventStatus, wire.FlagAnswer, 2, words(30, 0)))
	for i := range n + 3 {
		all.Write(sent(wire.OpWait, wire.FlagAnswer|wire.FlagThreads, 200+i, words(1, 30)))
	}
	go func() { _, _ = ours.Write(all.Bytes()) }()
	said := map[uint32]int32{}
	for len(said) < int(2*(n+3)+2) {
		h := make([]byte, wire.AnswerSize)
		if _, err := io.ReadFull(answers, h); err != nil {
			t.Fatal(err)
		}
		said[binary.LittleEndian.Uint32(h[12:])] = int32(binary.LittleEndian.Uint64(h[16:]))
	}
	for call, status := range said {
		if want := map[bool]int32{true: clOutOfResources}[call >= 100+n && call < 200]; status != want {
			t.Errorf("call %d is told %d, want %d", call, status, want)
		}
	}
	_ = ours.Close()
	if err := <-end; err != nil {
		t.Error(err)
	}
	if d.called("clWaitForEvents") == 0 || s.waiting != 0 || s.besideBytes != 0 {
		t.Errorf("%d calls with %d bytes wait", s.waiting, s.besideBytes)
	}
}

// TestBoundOfHeaders: header files are so many, in so many folders, and so large, whoever sends them.
func TestBoundOfHeaders(t *testing.T) {
	t.Parallel()
	send := func(dirs, files int, path func(i int) string, text int) error {
		b := words(uint64(dirs))
		for i := range dirs {
			b = wire.AppendBytes(b, fmt.Appendf(nil, "/d%d", i))
		}
		b = append(b, words(uint64(files))...)
		for i := range files {
			b = wire.AppendBytes(wire.AppendBytes(b, []byte(path(i))), make([]byte, text))
		}
		body := wire.NewBody(b)
		_, err := readHeaders(&body)
		return err
	}
	flat := func(i int) string { return fmt.Sprintf("/f%d.h", i) }
	deep := func(n int) func(int) string {
		return func(i int) string { return fmt.Sprintf("/%d%s/x.h", i, strings.Repeat("/x", n)) }
	}
	for name, c := range map[string]struct {
		dirs, files int
		path        func(int) string
		text        int
		bad         bool
	}{
		"as many as there may be": {mostDirs, mostFiles, flat, mostHeaders / mostFiles, false},
		"too many folders named":  {mostDirs + 1, 0, flat, 0, true},
		"too many files":          {0, mostFiles + 1, flat, 0, true},
		"too much text":           {0, mostFiles, flat, mostHeaders/mostFiles + 1, true},
		"a long path":             {0, 1, deep(mostPath/2 - 8), 0, false},
		"too long a path":         {0, 1, deep(mostPath / 2), 0, true},
		"folders in folders":      {0, mostFiles, deep(mostMade/mostFiles - 2), 0, false},
		"too many of them":        {0, mostFiles, deep(mostMade / mostFiles), 0, true},
	} {
		if err := send(c.dirs, c.files, c.path, c.text); (err != nil) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzMessages: whatever messages come one after the other, a worker does not keep
// more of them than its bounds say, and nothing of what was released.
func FuzzMessages(f *testing.F) {
	var all []byte
	add := func(op wire.Op, body []byte) { all = append(all, sent(op, wire.FlagAnswer, 1, body)...) }
	add(wire.OpCreateContext, words(60, 0))
	add(wire.OpCreateQueue, words(60, 61, 1))
	add(wire.OpCreateBuffer, words(60, 62, 1, 100, 0, 0))
	add(wire.OpCreateProgram, wire.AppendBytes(words(60, 63, 0), []byte("kernel")))
	add(wire.OpBuild, append(wire.AppendBytes(words(63), []byte("-I a")), wire.AppendBytes(wire.AppendBytes(append(wire.AppendBytes(words(1), []byte("/a")), words(1)...), []byte("/a/b.h")), []byte("text"))...))
	add(wire.OpCreateKernel, wire.AppendBytes(words(63, 64), []byte("k")))
	add(wire.OpSetArg, words(64, 0, 8, 1, 62))
	add(wire.OpUserEvent, words(60, 65))
	add(wire.OpEnqueueTask, words(61, 64, 1, 65, 66))
	add(wire.OpRead, words(61, 62, 0, 0, 0, 0, 0, 16, 1, 1, 0, 0, 16, 9, 1, 65, 67))
	add(wire.OpRelease, words(63))
	f.Add(append([]byte{}, all...))
	add(wire.OpWrite, append(words(61, 62, 0, 0, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0, 1, 65, 68), wire.AppendBytes(nil, make([]byte, 16))...))
	add(wire.OpEnqueueBarrier, words(61))
	add(wire.OpRead, words(61, 62, 0, 1, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0, 1, 66, 0))
	add(wire.OpSetUserEventStatus, words(65, 1<<32-1))
	add(wire.OpFinish, words(61))
	add(wire.OpSpecialize, wire.AppendBytes(words(5, 7), make([]byte, 4)))
	add(wire.OpCloneKernel, words(64, 69))
	add(wire.OpLink, words(60, 70, 0, 1, 63))
	add(wire.OpCreateKernels, words(5, 2, 71, 72))
	add(wire.OpExecInfo, words(64, 1, 1<<44))
	f.Add(all)
	lane := append(wire.AppendBytes(append(words(wire.LaneDial, 7, 8), wire.AppendBytes(nil, make([]byte, wire.MACSize))...), make([]byte, wire.TaskIDSize)), wire.AppendBytes(words(1), []byte("tcp:a:1"))...)
	add(wire.OpLane, lane)
	add(wire.OpLane, words(wire.LaneAwait, 9, 8))
	for _, op := range []wire.Op{wire.OpPush, wire.OpPull} {
		for _, id := range []uint64{7, 9, 10} {
			add(op, words(id, 8, 61, 62, 0, 1, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0))
		}
	}
	add(wire.OpLane, words(wire.LaneDrop, 7, 8))
	f.Add(all)
	var many []byte
	for i := range uint64(60) {
		many = append(many, sent(wire.OpEnqueueMarker, 0, 0, words(2, 100+i))...)
		many = append(many, sent(wire.OpCreateProgram, wire.FlagAnswer, 0, wire.AppendBytes(words(1, 200+i, 0), make([]byte, 200)))...)
		many = append(many, sent(wire.OpRead, 0, 0, words(2, 3, 0, 0, 0, 0, 0, 16, 1, 1, 0, 0, 16, 9+i, 0, 0))...)
	}
	f.Add(many)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			t.Skip()
		}
		s := session(silent{})
		d := plays(t, s)
		d.done = true
		s.in = bufio.NewReader(bytes.NewReader(b))
		m := &message{}
		for s.next(m) == nil {
			m.Flags &^= wire.FlagThreads // others do not go on
			err := s.do(m)
			s.flow.leave()
			s.lanes.mu.Lock()
			for _, l := range s.lanes.all {
				if l.conn == nil {
					l.conn = nobody{}
					l.settle()
				}
			}
			s.lanes.mu.Unlock()
			for s.flow.inside.Load() > 0 { // what goes by lanes
				runtime.Gosched()
			}
			if len(s.lanes.all) > mostLanes || s.lanes.pieces != 0 {
				t.Fatalf("after %s: %d lanes, %d pieces", m.Op, len(s.lanes.all), s.lanes.pieces)
			}
			if !s.mu.TryLock() || !s.hold.TryLock() {
				t.Fatal("the session is locked for good")
			}
			s.hold.Unlock()
			if n := len(s.objects) + len(s.ghosts); n > s.bounds.objects || s.kept > s.bounds.kept || s.kept < 0 || len(s.reads) > s.bounds.reads || s.memory.Used() > s.memory.Limit() {
				t.Fatalf("after %s: %d objects, %d bytes, %d reads", m.Op, n, s.kept, len(s.reads))
			}
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
		releaseAll(s)
		if s.kept != 0 || s.users != 0 || len(s.held) > 0 || s.building.Load() != 0 {
			t.Fatalf("%d bytes, %d events, %d commands are kept of what was released", s.kept, s.users, len(s.held))
		}
	})
}

// TestPromised: buffers within what a program was promised are made without its waiting for them, also when another
// program of its task has the memory meanwhile, by no more than that; one that cannot be made says so in what names it,
// and a kernel does not run with what it had before. No number stands for two.
func TestPromised(t *testing.T) {
	t.Parallel()
	const kib, most = 1 << 10, 4 << 20 // and 64 KiB at a time
	out := &heard{}
	s := session(out)
	d := plays(t, s)
	s.memory.SetLimit(most)
	s.card.SetLimit(2 * most)
	call := uint64(0)
	asked := func(op wire.Op, w ...uint64) int32 {
		t.Helper()
		call++
		if err := s.do(asks(op, uint32(call), words(w...))); err != nil {
			t.Fatal(err)
		}
		status, _ := out.status(call)
		return status
	}
	posted := func(op wire.Op, w ...uint64) error {
		m := asks(op, 0, words(w...))
		m.Flags = 0
		return s.do(m)
	}
	made := func(id, bytes uint64) bool {
		t.Helper()
		if err := posted(wire.OpCreateBuffer, 1, id, 1, bytes, 0, 0); err != nil {
			t.Fatal(err)
		}
		return s.objects[id] != nil
	}
	if bad := asked(wire.OpCreateBuffer, 1, 100, 1, kib, 0, 0); bad != clSuccess || s.promises() != mostPromised {
		t.Fatalf("%d, and %d bytes are promised", bad, s.promises())
	}
	other := *s.memory // of another slot, it would be
	if !other.Take(most - kib) {
		t.Fatal("the other program has no room")
	}
	for i := range uint64(mostPromised/(64*kib) - 1) {
		if !made(200+i, 64*kib) {
			t.Errorf("buffer %d of what was promised is not made", i)
		}
	}
	if !made(101, 63*kib) || s.memory.Used() != most+mostPromised-kib {
		t.Errorf("what was promised is not made, or not counted: %d bytes are used", s.memory.Used())
	}
	if bad := asked(wire.OpCreateBuffer, 1, 102, 1, kib, 0, 0); bad != clAllocationFailure {
		t.Errorf("who waits is not told that there is no more: %d", bad)
	}
	if !made(103, kib) || made(104, kib) || other.TakeOver(1, 0) || s.promises() != 0 {
		t.Error("the task has less or more than it was promised, all its programs together")
	}
	if bad := asked(wire.OpEnqueueFillBuffer, 2, 104, 0, 0, 0, 0, 0); bad != clAllocationFailure {
		t.Errorf("a call that names what could not be made fails with %d", bad)
	}
	for _, op := range []wire.Op{wire.OpCreateBuffer, wire.OpUserEvent} {
		if err := posted(op, 1, 104, 1, kib, 0, 0); err == nil {
			t.Errorf("%s: its number may stand for another", op)
		}
	}
	// Set well, then to what is not there, and well again.
	run := func() int32 {
		return asked(wire.OpEnqueueNDRangeKernel, 2, 6, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	if asked(wire.OpSetArg, 6, 0, 8, argHandle, 100) != clSuccess || run() != clSuccess {
		t.Fatal("a kernel does not run")
	}
	kept, ran := s.kept, d.called("clEnqueueNDRangeKernel")
	if err := posted(wire.OpSetArg, 6, 0, 8, argHandle, 104); err != nil || run() != clAllocationFailure || d.called("clEnqueueNDRangeKernel") != ran {
		t.Errorf("a kernel runs with what was there before: %v", err)
	}
	if bad := asked(wire.OpCloneKernel, 6, 106); bad != clSuccess || len(s.objects[106].unset) != 1 {
		t.Errorf("its clone may run: %d", bad)
	}
	if asked(wire.OpSetArg, 6, 0, 8, argHandle, 100) != clSuccess || run() != clSuccess || s.kept != kept {
		t.Errorf("it does not run again, or %d bytes are kept and not %d", s.kept, kept)
	}
	if err := posted(wire.OpRelease, 104); err != nil || len(s.refused) != 0 {
		t.Errorf("what could not be made stays: %v, %v", err, s.refused)
	}
	if err := posted(wire.OpCreateSubBuffer, 104, 105, 0, 0, 16); err != nil || s.objects[105] != nil || s.refused[105] != clInvalidMem {
		t.Errorf("of a part of nothing it says %v, %v", err, s.refused)
	}
}

// TestAhead: what a program writes without waiting is before what comes in a queue that it makes then. Where there are
// several queues already, or one keeps no order, the worker waits for it.
func TestAhead(t *testing.T) {
	t.Parallel()
	writes := func(s *Session, flags uint16) {
		t.Helper()
		m := asks(wire.OpWrite, 0, wire.AppendBytes(words(2, 3, 0, 1, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0, 0, 0), make([]byte, 16)))
		m.Flags = flags
		if m.blocks() {
			t.Error("the next message of the program's thread may come before it")
		}
		if err := s.do(m); err != nil || s.objects[2].status != clSuccess {
			t.Fatalf("%v, %d", err, s.objects[2].status)
		}
	}
	for _, c := range []struct {
		queues int
		loose  bool
		flags  uint16
		ahead  bool
	}{{1, false, 0, true}, {2, false, 0, false}, {1, true, 0, false}, {1, false, wire.FlagThreads, true}, {2, false, wire.FlagThreads, false}} {
		s := session(&heard{})
		d := plays(t, s)
		d.done = true
		for range c.queues {
			s.queues = append(s.queues, s.objects[2])
		}
		s.objects[2].loose = c.loose
		writes(s, c.flags)
		if s.ahead != c.ahead || len(s.writes) > 0 != c.ahead {
			t.Errorf("%+v: %v, %d writes are on their way", c, s.ahead, len(s.writes))
		}
		waits := d.called("clWaitForEvents")
		if err := s.do(asks(wire.OpCreateQueue, 1, words(1, 90, 0))); err != nil || s.ahead || d.called("clWaitForEvents") > waits != c.ahead {
			t.Errorf("%+v: another queue waits %d times: %v", c, d.called("clWaitForEvents")-waits, err)
		}
	}
}

// TestFlushedBlocks: drivers whose calls that block wait for nothing of what another thread
// flushed just then are asked to wait for it.
func TestFlushedBlocks(t *testing.T) {
	t.Parallel()
	for _, op := range []wire.Op{wire.OpRead, wire.OpWrite} {
		for _, fails := range []bool{false, true} {
			s, bad := session(&heard{}), int32(clSuccess)
			if fails {
				bad = clOutOfResources
			}
			d := plays(t, s)
			s.lib.forgets = true
			body := words(2, 3, 0, 1, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0, 0, 0)
			if op == wire.OpWrite {
				body = wire.AppendBytes(body, make([]byte, 16))
			}
			m := asks(op, 0, body)
			m.Flags = wire.FlagAnswer
			done := make(chan error)
			go func() { done <- s.do(m) }()
			soonTrue(t, "nobody waits", func() bool { return d.called("clWaitForEvents") == 1 })
			select {
			case <-done:
				t.Error("it is over before its event")
			case <-time.After(10 * time.Millisecond):
			}
			d.mu.Lock()
			var all []uintptr
			for e := range d.status {
				all = append(all, e)
			}
			d.mu.Unlock()
			for _, e := range all {
				d.end(e, bad)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if n := d.called("clReleaseEvent"); n != len(all) || n != 1 {
				t.Errorf("of %d events %d were released", len(all), n)
			}
		}
	}
}
