//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

func byteView(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}

func page(t testing.TB) []byte {
	t.Helper()
	words := make([]uint64, between.PageSize/8) // aligned
	return byteView(words)
}

func TestMemory(t *testing.T) {
	t.Parallel()
	p := page(t)
	a, b := between.NewMemory(p, 0), between.NewMemory(p, 1)
	a.SetLimit(10)
	if !a.Take(6) || b.Take(5) || !b.Take(4) || a.Take(1) {
		t.Errorf("10 bytes were not shared as 6 and 4: %d used", a.Used())
	}
	a.SetLimit(11) // while both run
	if !b.Take(1) || b.Take(1) {
		t.Error("one byte more is not one byte more")
	}
	a.SetLimit(2) // what is held stays
	if a.Take(1) || a.Used() != 11 {
		t.Errorf("%d used", a.Used())
	}
	a.Reap(1) // the second worker was killed
	if a.Used() != 6 {
		t.Errorf("6 are held by who lives, %d are counted", a.Used())
	}
	if a.Give(6); a.Used() != 0 || a.Take(1<<63) || a.Take(1<<64-1) {
		t.Errorf("%d used", a.Used())
	}
}

func TestMemoryTogether(t *testing.T) {
	t.Parallel()
	p := page(t)
	between.NewMemory(p, 0).SetLimit(100)
	var all sync.WaitGroup
	var mu sync.Mutex
	took := 0
	for slot := range 8 {
		all.Go(func() {
			m := between.NewMemory(p, slot)
			for range 50 {
				if m.Take(1) {
					mu.Lock()
					took++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if took != 100 {
		t.Errorf("%d of 100 bytes were taken", took)
	}
}

// session has an object of each kind and a library none of whose functions
// works: what a message makes it do is to be refused.
func session(conn path) *Session {
	s := &Session{lib: &library{functions: map[string]uintptr{}}, conn: conn, inConn: conn, in: bufio.NewReader(conn), limit: 1 << 20, bounds: bounds{objects: 40, kept: 4096, waiting: 4, held: 1 << 16, reads: 8}, objects: map[uint64]*object{}, ghosts: map[uint64]*object{}, memory: between.NewMemory(byteView(make([]uint64, between.PageSize/8)), 0)}
	s.memory.SetLimit(1 << 20)
	s.card = between.NewMemory(byteView(make([]uint64, between.PageSize/8)), 0)
	s.card.SetLimit(1 << 20)
	s.turn = &Turn{node: nobody{}, drain: func() {}, start: time.Now()}
	s.turn.until.Store(1 << 62)
	for k := context; k <= device; k++ {
		s.objects[uint64(k)] = &object{kind: k, ptr: 64, size: 4096, id: uint64(k), code: &code{}, args: map[uint64][]byte{}, parent: s.objects[uint64(context)]} // a program's context
	}
	s.objects[20] = &object{kind: mem, ptr: 64, pixel: 4}
	s.objects[21] = &object{kind: event, status: -5}
	s.objects[22] = &object{kind: mem, ptr: 64, size: 4096, parent: s.objects[uint64(context)], svm: &region{at: 1 << 44, length: 4096}}
	s.regions = []*object{s.objects[22]}
	for id, o := range s.objects {
		o.id = id
	}
	s.places = func() bool { return false }
	return s
}

// nobody is who a worker speaks to, and does not hear it; of a lane, one that brings nothing but zeros.
type nobody struct{ net.Conn }

func (nobody) Write(b []byte) (int, error) { return len(b), nil }
func (nobody) Read(b []byte) (int, error)  { clear(b); return len(b), nil }

type silent struct{ path }

func (silent) write([]byte, []byte, int) error { return nil }
func (silent) Write(b []byte) (int, error)     { return len(b), nil }
func (silent) Close() error                    { return nil }

// FuzzMessage: no message makes a worker fail, whatever is in it.
func FuzzMessage(f *testing.F) {
	add := func(op wire.Op, w ...uint64) {
		var b []byte
		for _, x := range w {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		f.Add(uint16(op), b)
	}
	add(wire.OpFinish, 2)
	add(wire.OpEnqueueNDRangeKernel, 2, 6, 1, 0, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 30)
	add(wire.OpEnqueueNDRangeKernel, 2, 6, 9, 0, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 1, 7, 30)
	add(wire.OpRead, 2, 3, 0, 1, 0, 0, 0, 64, 1, 1, 64, 64, 64, 9, 0, 0)
	add(wire.OpRead, 2, 20, 2, 0, 0, 0, 0, 1<<40, 1<<40, 1, 0, 0, 1<<50, 9, 1, 21, 31)
	add(wire.OpWrite, 2, 3, 1, 0, 0, 0, 0, 8, 1, 1, 8, 8, 8, 0, 0, 32, 8, 1)
	add(wire.OpCreateBuffer, 1, 40, 1, 100, 0, 0)
	add(wire.OpCreateImage, 1, 41, 1, 0x10B5, 0x10D2, 0x10F1, 1<<40, 1<<40, 1, 1, 0, 0, 0, 0, 0)
	add(wire.OpSetArg, 6, 0, 8, 1, 3)
	add(wire.OpSetArg, 6, 0, 8, 3, 1<<44+4096)
	add(wire.OpSetArg, 6, 0, 8, 3, 1<<44-1)
	add(wire.OpExecInfo, 6, 2, 1<<44, 1<<63)
	add(wire.OpExecInfo, 6, 1<<61, 1<<44)
	add(wire.OpCreateSvm, 1, 42, 1, 100, 4096, 1<<44, 1, 2, 1<<44, 7)
	add(wire.OpCreateSvm, 1, 42, 1, 1<<63, 1<<20, 1, 2, 0)
	add(wire.OpCreateSvmBuffer, 22, 43, 1, 4000, 97)
	add(wire.OpCreateSvmBuffer, 3, 43, 1, 1<<63, 1<<63)
	add(wire.OpInfo, 11, 21, 0, 0x11D3)
	add(wire.OpLink, 1, 50, 0, 1, 5)
	add(wire.OpCompile, 5, 0, 1, 5, 3, 0)
	add(wire.OpCreateKernels, 5, 2, 60, 61)
	add(wire.OpRelease, 3)
	add(wire.OpCreateSubDevices, 0, 2, 0x1086, 1, 2, 70, 71)
	add(wire.OpCreateSubDevices, 8, 3, 0x1087, 1, 1, 1, 0)
	add(wire.OpCreateContext, 72, 3, 0, 8, 9)
	add(wire.OpCreateQueue, 1, 73, 0, 8)
	add(wire.OpCreateProgram, 1, 74, 4, 32, 1, 8, 8, 0x11)
	add(wire.OpBuild, 5, 0, 0, 0, 1, 8)
	add(wire.OpSubGroupInfo, 6, 0, 0x11B8, 24, 8, 3)
	add(wire.OpSubGroupInfo, 6, 8, 0x2033, 1<<63, 1<<63)
	add(wire.OpSpecialize, 5, 7, 4, 5)
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		if len(body) > 1<<16 {
			t.Skip()
		}
		h := make([]byte, wire.HeaderSize)
		binary.LittleEndian.PutUint64(h, uint64(wire.HeaderSize+len(body)))
		binary.LittleEndian.PutUint16(h[8:], op)
		for _, flags := range []uint16{0, wire.FlagAnswer} {
			binary.LittleEndian.PutUint16(h[10:], flags)
			parsed, err := wire.ParseHeader(h, 1<<20)
			if err != nil {
				return
			}
			s := session(silent{})
			_ = s.do(&message{Header: parsed, body: append([]byte{}, body...)}) // an error ends the connection
			if s.memory.Used() > 0 || s.card.Used() > 0 {
				t.Fatalf("%d bytes are counted for what was not made", s.memory.Used())
			}
			if !s.mu.TryLock() || !s.hold.TryLock() {
				t.Fatal("the session is locked for good")
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
		"a call there is none": {binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 16), 9999), true},
		"too large":            {binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1<<60), uint64(wire.OpFinish)), true},
		"too short for it":     {binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 16), uint64(wire.OpRead)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, ours := pair(t)
			end := make(chan error, 1)
			go func() { end <- session(theirs).Serve() }()
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

func TestOptions(t *testing.T) {
	t.Parallel()
	some := headers{dirs: []string{"/a", "/b c"}, files: []header{{path: "/a/x.h"}}}
	for _, x := range []struct {
		options, want string
		with          headers
		bad           bool
	}{
		{options: ""},
		{options: "-DX=1 -cl-fast-relaxed-math", want: "-DX=1 -cl-fast-relaxed-math"},
		{options: `-DX="a  b" -w`, want: `-DX="a  b" -w`},
		{options: "-I/etc", bad: true},
		{options: "-w -I .", bad: true},
		{options: `"-I/etc"`, bad: true},
		{options: `-"I"/etc`, bad: true},
		{options: "@/etc/passwd", bad: true},
		{options: "-include x", bad: true},
		{options: "-w\x00", bad: true},
		{options: "-I here -w -I/there", with: some, want: `-I ./a -w -I "./b c"`},
		{options: "-I here -w -I /there", with: headers{dirs: some.dirs}, want: "-w"}, // nothing is included
		{options: "-I here -w", with: some, want: `-I ./a -w -I "./b c"`},             // the last is of no option
		{options: "-Ia -Ib -Ic", with: some, bad: true},
		{options: "-w", with: headers{dirs: []string{"/"}, files: some.files}, want: "-w -I ./"},
	} {
		if got, ok := x.with.options(x.options); ok == x.bad || !x.bad && got != x.want {
			t.Errorf("options %q: %q, %v, want %q", x.options, got, ok, x.want)
		}
	}
}

// TestHeaders: header files come with paths that lead nowhere else, and are there
// for a build only. It is not parallel: it changes the process's folder.
func TestHeaders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(t.TempDir())
	body := func(dir, path string) *wire.Body {
		b := wire.AppendBytes(words(1), []byte(dir))
		b = wire.AppendBytes(wire.AppendBytes(append(b, words(1)...), []byte(path)), []byte("text"))
		body := wire.NewBody(b)
		return &body
	}
	h, err := readHeaders(body("/inc", "/inc/a.h"))
	if err != nil || len(h.dirs) != 1 || len(h.files) != 1 || string(h.files[0].text) != "text" {
		t.Fatalf("headers are %v, %v", h, err)
	}
	done, err := h.unpack()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("./inc/a.h"); string(text) != "text" {
		t.Errorf("the file is %q, %v", text, err)
	}
	done()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	for _, bad := range [][2]string{{"inc", "/inc/a.h"}, {"/inc", "a.h"}, {"/inc", "/inc/../../a.h"}, {"/inc\x00", "/a.h"}, {"/inc", "/a\".h"}, {"", "/a.h"}, {"/../inc", "/a.h"}} {
		if h, err := readHeaders(body(bad[0], bad[1])); err == nil {
			t.Errorf("%q: taken as %v", bad, h)
		}
	}
}

// FuzzReceive: no program that another worker sends makes this one fail, and
// what it does not make is not counted.
func FuzzReceive(f *testing.F) {
	frame := func(kind uint64, b []byte) []byte { return append(wire.AppendFrame(nil, len(b), kind), b...) }
	f.Add(append(frame(wire.FrameCall, words(uint64(wire.OpCreateContext), 1)), frame(wire.FrameGo, nil)...))
	f.Add(frame(wire.FrameCall, words(uint64(wire.OpCreateBuffer), 1, 40, 1, 100, 0, 0)))
	f.Add(frame(wire.FrameData, wire.AppendBytes(words(3, 4000), make([]byte, 96))))
	f.Add(frame(wire.FrameData, wire.AppendBytes(words(20, 1<<63), make([]byte, 9))))
	f.Add(frame(wire.FrameProgram, append(words(50, 1, 0, 4, 1, 10), wire.AppendBytes(wire.AppendBytes(wire.AppendBytes(nil, []byte("kernel")), []byte("-w")), []byte("b"))...)))
	f.Add(append(frame(wire.FrameEvent, append(words(60, 0), wire.AppendBytes(nil, make([]byte, 40))...)), frame(wire.FrameStatus, words(2, 1<<63))...))
	f.Add(frame(wire.FrameTold, append(wire.AppendBytes(words(5, 8, 0, 0x1195, 0), []byte("k")), wire.AppendBytes(nil, []byte("what"))...)))
	constants := frame(wire.FrameConstants, append(wire.AppendBytes(words(50, 7), make([]byte, 4)), wire.AppendBytes(words(8), make([]byte, 8))...))
	f.Add(append(constants, append(frame(wire.FrameProgram, append(words(50, 1, 2, 0, 0, 0), make([]byte, 24)...)), constants...)...))
	f.Add(frame(wire.FrameConstants, words(5, 7, 1<<63)))
	user := frame(wire.FrameCall, words(uint64(wire.OpUserEvent), 1, 61))
	for op, body := range map[wire.Op][]byte{
		wire.OpEnqueueMarkerWithWaitList: words(2, 1, 61, 62), wire.OpFinish: words(2), wire.OpWait: words(1, 61), wire.OpEnqueueBarrier: words(2), wire.OpSetUserEventStatus: words(61, 0),
		wire.OpRead: words(2, 3, 0, 1, 0, 0, 0, 16, 1, 1, 0, 0, 16, 9, 1, 61, 63), wire.OpWrite: append(words(2, 3, 0, 0, 0, 0, 0, 16, 1, 1, 0, 0, 16, 0, 1, 61, 63), wire.AppendBytes(nil, make([]byte, 16))...),
	} {
		held := frame(wire.FrameHeld, append(words(uint64(op), wire.FlagAnswer, 7), body...))
		f.Add(slices.Concat(user, held, held, frame(wire.FrameCall, words(uint64(wire.OpRelease), 61)), frame(wire.FrameFinal, words(5, 6)), frame(wire.FrameGo, nil)))
	}
	f.Add(append(frame(wire.FrameFinal, words(5, 6)), frame(wire.FrameGo, nil)...))
	f.Add(frame(wire.FrameCall, words(uint64(wire.OpFinish), 2)))
	f.Add(append(frame(wire.FrameCall, words(uint64(wire.OpCreateSvm), 1, 42, 1, 100, 4096, 1<<44, 2, 0)), frame(wire.FrameCall, words(uint64(wire.OpExecInfo), 6, 1, 1<<44))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := session(silent{})
		s.in = bufio.NewReader(bytes.NewReader(b))
		complete := s.receive() == nil
		if complete && !bytes.Contains(b, frame(wire.FrameGo, nil)) {
			t.Fatal("a program has come that was not sent whole")
		}
		if s.memory.Used() > 0 || s.card.Used() > 0 {
			t.Fatalf("%d bytes are counted for what was not made", s.memory.Used())
		}
		if !s.mu.TryLock() || !s.hold.TryLock() {
			t.Fatal("the session is locked for good")
		}
		s = session(silent{}) // where all is made
		d := plays(t, s)
		d.done = true
		s.in = bufio.NewReader(bytes.NewReader(b))
		_ = s.receive()
		if n := len(s.objects) + len(s.ghosts); n > s.bounds.objects || s.kept > s.bounds.kept || s.kept < 0 || len(s.coming) > s.bounds.waiting {
			t.Fatalf("%d objects, %d bytes, %d calls that wait", n, s.kept, len(s.coming))
		}
		if !s.mu.TryLock() || !s.hold.TryLock() {
			t.Fatal("the session is locked for good")
		}
	})
}

// TestFrame: what node and worker say to each other arrives as it was said, with
// the connection that comes along.
func TestFrame(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		file := os.NewFile(uintptr(fd), "")
		defer file.Close()
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	ours, theirs := conn(fds[0]), conn(fds[1])
	file, err := ours.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, _ = ours.Write(append(between.Put(between.Granted, time.Second), between.PutText(between.Failed, []byte("why"))...))
	if _, _, err := ours.WriteMsgUnix(between.PutText(between.Move, []byte("here")), unix.UnixRights(int(file.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	_, _ = ours.Write([]byte{between.Failed, 0, 0, 0, 0, 0, 0, 1, 0})
	for _, want := range []between.Frame{{What: between.Granted, Time: time.Second}, {What: between.Failed, Text: []byte("why")}, {What: between.Move, Text: []byte("here")}} {
		got, err := between.Read(theirs)
		if err != nil || got.What != want.What || got.Time != want.Time || string(got.Text) != string(want.Text) || (got.Conn != nil) != (want.What == between.Move) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		if got.Conn != nil {
			_ = got.Conn.Close()
		}
	}
	if _, err := between.Read(theirs); err == nil {
		t.Error("a text without end is read")
	}
}

// TestTurnDrains: who lets work go on does not wait for the device's being given back,
// which may wait for that work, nor does it give the device back.
func TestTurnDrains(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	drains, goOn := make(chan struct{}), make(chan struct{})
	turn := &Turn{node: theirs, drain: sync.OnceFunc(func() { close(drains); <-goOn }), start: time.Now(), since: time.Now(), idle: idle, granted: make(chan time.Duration, 1)}
	turn.timer = time.AfterFunc(time.Hour, turn.rest)
	turn.until.Store(1) // it is over
	if !turn.TakeUnlessDrains() {
		t.Fatal("not taken though nobody gives back")
	}
	turn.Done()
	go turn.rest()
	<-drains
	if turn.TakeUnlessDrains() {
		t.Fatal("taken while the device is given back")
	}
	close(goOn)
	if f, err := between.Read(ours); err != nil || f.What != between.Done {
		t.Fatalf("said %+v, %v", f, err)
	}
	taken := make(chan bool)
	go func() { taken <- turn.TakeUnlessDrains() }()
	if f, err := between.Read(ours); err != nil || f.What != between.Want {
		t.Fatalf("said %+v, %v", f, err)
	}
	turn.granted <- time.Hour
	if !<-taken {
		t.Error("not taken when it is granted")
	}
}

// TestTurnUsed: a turn is charged whole, but for the time in which the device is
// known to have rested; one that a call waits for does not rest.
func TestTurnUsed(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name           string
		quiet, left    time.Duration
		known, waiting bool
		looks          int // until one finds that the work is done, after that second
		unused         time.Duration
	}{
		{name: "its time is over while work follows work", left: -1},
		{name: "its time is over while a call waits", quiet: 2 * idle, left: -1, waiting: true},
		{name: "nothing came, and nobody asked for an end", quiet: 2 * idle, left: time.Hour},
		{name: "nothing came after the end", quiet: 2 * idle, left: time.Hour, known: true, unused: 2 * idle},
		{name: "nobody asked for an end, which is found", quiet: soon, left: time.Hour, looks: 3, unused: time.Second},
		{name: "its time is over before the end is found", quiet: soon, left: idle, looks: 1000},
	} {
		ours, theirs := net.Pipe()
		turn := &Turn{node: theirs, drain: func() {}, start: time.Now().Add(-time.Second), since: time.Now().Add(-time.Second), idle: idle}
		turn.timer = time.AfterFunc(time.Hour, turn.rest)
		if end.looks > 0 {
			turn.look = func() (done, can bool) { end.looks--; return end.looks <= 0, true }
			turn.idle = end.unused // from when the end is found
		}
		turn.given.Store(3)
		given := turn.Waits()
		if !end.waiting {
			turn.Waited(given, end.known)
		}
		now := time.Since(turn.start)
		turn.last.Store(int64(now - end.quiet))
		turn.until.Store(int64(now + end.left))
		go turn.rest()
		f, err := between.Read(ours)
		if err != nil || f.What != between.Done {
			t.Fatalf("%s: said %+v, %v", end.name, f, err)
		}
		least, most := time.Second-end.unused, time.Second-end.unused+500*time.Millisecond
		if end.unused > 0 {
			most = time.Second
		}
		if turn.look != nil {
			least, most = time.Second, 1500*time.Millisecond
		}
		if f.Time > most || f.Time < least-500*time.Microsecond {
			t.Errorf("%s: a turn of 1 s is charged with %s", end.name, f.Time)
		}
		_ = ours.Close()
	}
	turn := &Turn{start: time.Now().Add(-time.Second), idle: idle, timer: time.NewTimer(0)}
	<-turn.timer.C
	turn.given.Store(1)
	given := turn.Waits()
	turn.until.Store(int64(time.Hour))
	if turn.rest(); turn.until.Load() == 0 {
		t.Error("the device is given back while a call waits for it")
	}
	turn.Waited(given, true)
	if last := turn.last.Load(); turn.known.Load() != 1 || last < int64(time.Second) {
		t.Errorf("work was waited for, and is not known to be done: %d at %d", turn.known.Load(), last)
	}
	at := turn.last.Load()
	turn.Waited(turn.Waits(), true)
	if turn.last.Load() != at {
		t.Error("waiting for nothing counts as work")
	}
}

// TestTurnWaits: while a call waits for a device nobody looks at that; it is given back
// when the call is over, and when somebody else is to have it, long before the turn ends.
func TestTurnWaits(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(turn *Turn, node net.Conn, given int64){
		"the call is over": func(turn *Turn, _ net.Conn, given int64) { turn.Waited(given, true) },
		"another wants it": func(_ *Turn, node net.Conn, _ int64) { _, _ = node.Write(between.Put(between.Yield, 0)) },
	} {
		ours, theirs := net.Pipe()
		turn := NewTurn(theirs, func() {})
		turn.mu.Lock()
		turn.granted <- time.Hour
		turn.begin()
		turn.given.Store(1)
		turn.mu.Unlock()
		given := turn.Waits()
		for !turn.far.Load() {
			runtime.Gosched()
		}
		if turn.until.Load() < int64(time.Minute) {
			t.Errorf("%s: it is given back before", name)
		}
		end(turn, ours, given)
		_ = ours.SetReadDeadline(time.Now().Add(time.Minute))
		if f, err := between.Read(ours); err != nil || f.What != between.Done {
			t.Errorf("%s: said %+v, %v", name, f, err)
		}
		_ = ours.Close()
	}
}

// TestKnownDone: work is known to be done when a call has waited for all of it,
// and not when one was refused, waited for a part, or for the program itself.
func TestKnownDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		wait  func(s *Session, a, b *object)
		known int64
	}{
		{"all", func(s *Session, a, b *object) { s.waits(work{on: a, upTo: 2}, work{on: b, upTo: 1})(clSuccess) }, 3},
		{"one queue after the other", func(s *Session, a, b *object) {
			s.waits(work{on: a, upTo: 2})(clSuccess)
			s.waits(workOf(b))(clSuccess)
		}, 3},
		{"one of two queues", func(s *Session, a, _ *object) { s.waits(workOf(a))(clSuccess) }, 0},
		{"a part", func(s *Session, a, b *object) { s.waits(work{on: a, upTo: 1}, work{on: b, upTo: 1})(clSuccess) }, 0},
		{"refused", func(s *Session, a, b *object) { s.waits(work{on: a, upTo: 2}, work{on: b, upTo: 1})(clInvalidEvent) }, 0},
		{"a queue without order", func(s *Session, a, b *object) {
			a.loose = true
			s.waits(work{on: b, upTo: 1})(clSuccess)
			s.waits(workOf(a))(clSuccess)
		}, 0},
		{"the program itself", func(s *Session, a, b *object) {
			s.users = 1
			s.waits(work{on: a, upTo: 2}, work{on: b, upTo: 1})(clSuccess)
		}, 0},
		{"less than came meanwhile", func(s *Session, a, b *object) {
			over := s.waits(work{on: a, upTo: 2}, work{on: b, upTo: 1})
			a.given = 3
			s.turn.given.Store(4)
			over(clSuccess)
		}, 0},
	} {
		a, b := &object{kind: queue, given: 2}, &object{kind: queue, given: 1}
		s := &Session{queues: []*object{a, b}, turn: &Turn{start: time.Now()}}
		s.turn.given.Store(3)
		c.wait(s, a, b)
		if got := s.turn.known.Load(); got != c.known {
			t.Errorf("%s: %d pieces of work of 3 are known to be done, want %d", c.name, got, c.known)
		}
		if n := s.turn.waiting.Load(); n != 0 {
			t.Errorf("%s: %d calls wait for ever", c.name, n)
		}
	}
}

type answers struct {
	path
	last []byte
}

func (a *answers) write(head, _ []byte, _ int) error {
	a.last = slices.Clone(head)
	return nil
}

// TestWaitTells: who waited for an event is told whether a finish has yet to say
// that something failed before, and asks for that only then.
func TestWaitTells(t *testing.T) {
	t.Parallel()
	for _, failed := range []int32{clSuccess, clAllocationFailure} {
		to := &answers{}
		s := session(to)
		s.objects[30] = &object{kind: event} // it is over
		s.queues = []*object{s.objects[uint64(queue)]}
		s.queues[0].status = failed
		m := &message{Header: wire.Header{Op: wire.OpWait, Flags: wire.FlagAnswer}, body: words(1, 30)}
		if err := s.do(m); err != nil {
			t.Fatal(err)
		}
		if status, tells := int64(binary.LittleEndian.Uint64(to.last[16:])), binary.LittleEndian.Uint64(to.last[24:]) != 0; status != clSuccess || tells != (failed != clSuccess) {
			t.Errorf("with %d on the queue it is told %d, and that there is more: %v", failed, status, tells)
		}
	}
}
