//go:build linux

package cuda

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"unsafe"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
	"yunhe.dev/yunhe/internal/pool/worker"
)

// session has an object of each kind and a driver none of whose functions works:
// what a message makes it do is to be refused.
func session(tb testing.TB, conn net.Conn) *Session {
	tb.Helper()
	page := func() *between.Memory {
		words := make([]uint64, between.PageSize/8) // aligned
		m := between.NewMemory(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), between.PageSize), 0)
		m.SetLimit(1 << 20)
		return m
	}
	ours, theirs := net.Pipe() // a node that always lends the device
	tb.Cleanup(func() { _ = ours.Close() })
	go func() {
		for {
			f, err := between.Read(theirs)
			if err != nil {
				return
			}
			if f.What == between.Want || f.What == between.More {
				_, _ = theirs.Write(between.Put(between.Granted, 1<<40))
			}
		}
	}()
	s := newSession(&driver{byOp: map[wire.Op]uintptr{}, named: map[string]uintptr{}}, 0, conn, page(), page(), worker.NewTurn(ours, func() {}))
	s.turn.Drains(func() {})
	s.limit = 1 << 20
	for k := wire.CUDACtx; k <= wire.CUDALink; k++ {
		o := s.mint(k, 64, nil)
		o.linker = &linker{options: &options{}}
		o.layout = &layout{at: [][2]uint64{{0, 8}, {8, 4}}, total: 12}
	}
	return s
}

func (s *Session) number(k wire.Object) uint64 { return s.byPtr[place{k, 64}].id }

type silent struct{ net.Conn }

func (silent) Write(b []byte) (int, error) { return len(b), nil }
func (silent) Close() error                { return nil }

func words(w ...uint64) []byte {
	var b []byte
	for _, x := range w {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// TestLaterCall: a call that this worker does not know, as a client of a later version
// may make, fails; the program goes on.
func TestLaterCall(t *testing.T) {
	t.Parallel()
	client, conn := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	s := session(t, conn)
	go func() { _ = s.Serve() }()
	answers, come := io.Pipe() // an empty write to a net.Pipe waits for a reader, too
	go func() { _, err := io.Copy(come, client); _ = come.CloseWithError(err) }()
	for i, c := range []struct {
		op     wire.Op
		status uint64
	}{{65535, notSupported}, {wire.CUDAEnds, success}} {
		m := binary.LittleEndian.AppendUint64(nil, wire.HeaderSize+8)
		m = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(m, uint16(c.op)), wire.FlagAnswer)
		if _, err := client.Write(append(binary.LittleEndian.AppendUint32(m, uint32(i)), words(1)...)); err != nil {
			t.Fatal(err)
		}
		a := make([]byte, wire.AnswerSize)
		if _, err := io.ReadFull(answers, a); err != nil || binary.LittleEndian.Uint64(a[16:]) != c.status {
			t.Errorf("call %d: answered %x, %v", c.op, a, err)
		}
	}
}

// FuzzMessage: no message makes a worker fail, whatever is in it.
func FuzzMessage(f *testing.F) {
	s := session(f, silent{})
	stream, fun, array := s.number(wire.CUDAStream), s.number(wire.CUDAFunction), s.number(wire.CUDAArray)
	add := func(op wire.Op, w ...uint64) { f.Add(uint16(op), words(append([]uint64{1}, w...)...)) }
	add(wire.CUDALaunch, fun, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0, 12, 1, 2)
	add(wire.CUDALaunch, fun, 1, 1, 1, 1, 1, 1, 0, 0, 2, 0, 16, 1, 2)
	add(wire.CUDALaunch, fun, 1, 1, 1, 1, 1, 1, 0, 2, 1, 72, 4, 0, 0, 0, 0, 0, 0, 0, 0, 12, 1, 2)
	add(wire.CUDACopyIn, stream, 1, 4096, 8, 7)
	add(wire.CUDACopyIn, 0, 0, 4096, 8, 7)
	add(wire.CUDACopyOut, stream, 0, 0, 4096, 8)
	add(wire.CUDACopyOut, 0, 1, 9, 4096, 1<<40)
	add(wire.CUDACopyBox, stream, 0, 8, 1, 1, 2, 0, 0, 0, 0, 4096, 8, 1, 1, 0, 0, 0, 0, 0, 8, 1, 0, 8, 1)
	add(wire.CUDACopyBox, stream, 0, 1<<40, 1<<40, 1, 1, 0, 0, 0, 0, 0, 8, 1, 3, 0, 0, 0, 0, array, 8, 1, 5)
	add(wire.CUDALoad, 2, 3, 1, 4, 64, 8, 0x00464C457F)
	add(wire.CUDALoadLibrary, 0, 8, 0xBA55ED50)
	add(wire.CUDAParams, fun)
	add(wire.CUDAName, fun)
	add(wire.CUDANodes, s.number(wire.CUDAGraph))
	add(wire.CUDAKernelsOf, s.number(wire.CUDALibrary))
	add(wire.CUDAAccess, 1, s.number(wire.CUDAPool), 0, 12, 1, 3)
	add(wire.CUDALinkBegin, 1, 5, 1)
	add(wire.CUDALinkAdd, s.number(wire.CUDALink), 1, 0, 1, 0, 8, 9)
	add(wire.CUDALinkComplete, s.number(wire.CUDALink))
	add(wire.CUDALinkEnd, s.number(wire.CUDALink))
	add(wire.CUDAOccupancy, fun, 1, 1, 1, 1, 1, 1, 0, stream, 1, 0)
	add(wire.CUDAMemAllocV2, 1<<19)
	add(wire.CUDAMemAllocPitchV2, 1<<40, 1<<40, 4)
	add(wire.CUDAArray3DCreateV2, 40, 1<<40, 1<<40, 1, 8|4<<32, 0)
	add(wire.CUDAMemCreate, 4096, 32, 1, 1, 0, 0, 0)
	add(wire.CUDAMemPoolCreate, 88, 1, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0)
	add(wire.CUDAModuleGetFunction, s.number(wire.CUDAModule), 4, 0x00646461)
	add(wire.CUDAStreamDestroyV2, 1)
	add(wire.CUDACtxSetCurrent, s.number(wire.CUDACtx))
	add(wire.CUDACtxDestroyV2, s.number(wire.CUDACtx))
	add(wire.CUDAThreadExchangeStreamCaptureMode, 2)
	add(wire.CUDATexObjectCreate, append(append(append(append([]uint64{144, 0, array}, make([]uint64, 16)...), append([]uint64{104}, make([]uint64, 13)...)...), append([]uint64{112}, make([]uint64, 14)...)...), 1)...)
	add(wire.CUDASurfObjectCreate, append([]uint64{144, 1, array}, make([]uint64, 16)...)...)
	add(wire.CUDATexObjectDestroy, 7)
	add(wire.CUDATensorMapReplaceAddress, append([]uint64{4096, 128}, make([]uint64, 16)...)...)
	add(wire.CUDAEnds)
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		if len(body) > 1<<16 {
			t.Skip()
		}
		h := make([]byte, wire.HeaderSize)
		binary.LittleEndian.PutUint64(h, uint64(wire.HeaderSize+len(body)))
		binary.LittleEndian.PutUint16(h[8:], op)
		for i := range 4 {
			binary.LittleEndian.PutUint16(h[10:], []uint16{0, wire.FlagAnswer}[i%2])
			parsed, err := wire.ParseCUDAHeader(h, 1<<20)
			if err != nil || len(body) < 8 {
				return
			}
			s := session(t, silent{})
			s.memory.SetOver(i > 1) // also where the driver moves memory
			th := &thread{s: s, id: 1, cells: &cells{}, stack: []*object{s.byPtr[place{wire.CUDACtx, 64}]}}
			m := &message{Header: parsed, thread: 1, body: append([]byte{}, body...)}
			_ = m.blocks()
			_ = th.do(m) // an error ends the connection
			if s.memory.Used() > 0 || s.card.Used() > 0 {
				t.Fatalf("%d bytes are counted for what was not made", s.memory.Used())
			}
			if !s.mu.TryLock() || !s.marks.mu.TryLock() || !s.copies.mu.TryLock() || !s.paged.mu.TryLock() {
				t.Fatal("the session is locked for good")
			}
		}
	})
}

// FuzzLayouts: no image makes a worker fail; a layout is one that can be.
func FuzzLayouts(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add(append(words(0x0010_0001_BA55_ED50, 64, 0x40_0101_0002, 8), make([]byte, 64)...))
	f.Add(append([]byte{3, 0x19, 24, 0, 4, 0x17, 12, 0}, words(0x0008_0000_0000_0000, 8<<18)...))
	f.Fuzz(func(t *testing.T, image []byte) {
		all := layoutsOf(image)
		if l := readInfo(image); l != nil {
			all["alone"] = l
		}
		for _, l := range all {
			for _, p := range l.at {
				if p[0]+p[1] > l.total || l.total > mostTotal {
					t.Fatalf("%+v", l)
				}
			}
		}
	})
}

// TestServeEnds: what is no message ends the session, and so does the client's end.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send []byte
		bad  bool
	}{
		"nothing":              {nil, false},
		"half a header":        {make([]byte, 7), true},
		"a call there is none": {words(16, 9999), true},
		"a call of OpenCL":     {words(24, uint64(wire.OpFinish), 1), true},
		"too large":            {words(1<<60, uint64(wire.CUDACtxSynchronize)), true},
		"no thread":            {words(16, uint64(wire.CUDACtxSynchronize)), true},
		"too short for it":     {words(24, uint64(wire.CUDALaunch), 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			s := session(t, theirs)
			s.in = bufio.NewReader(theirs)
			end := make(chan error, 1)
			go func() { end <- s.Serve() }()
			if len(c.send) > 0 {
				_, _ = ours.Write(c.send)
			}
			go func() { _, _ = io.Copy(io.Discard, ours) }()
			if name == "nothing" || name == "half a header" {
				_ = ours.Close()
			}
			if err := <-end; (err != nil) != c.bad {
				t.Errorf("the session ended with %v", err)
			}
			_ = ours.Close()
		})
	}
}

// TestThreads: a program may have so many threads and no more; those that end are
// not counted any more.
func TestThreads(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	s := session(t, theirs)
	end := make(chan error, 1)
	go func() { end <- s.Serve() }()
	go func() {
		message := func(thread uint64, op wire.Op) []byte { return words(24, uint64(op), thread) }
		for i := range uint64(2 * mostThreads) {
			_, _ = ours.Write(message(i+1, wire.CUDAEnds))
		}
		for i := range uint64(mostThreads + 1) {
			_, _ = ours.Write(message(i+1, wire.CUDACtxResetPersistingL2Cache))
		}
	}()
	if err := <-end; err == nil {
		t.Error("it has more threads than it may")
	}
	_ = ours.Close()
}
