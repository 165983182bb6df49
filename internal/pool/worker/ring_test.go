//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// mirror is the program's side of a ring, by the same code: ways and words are
// the other way round.
func mirror(t testing.TB, r *ring, conn net.Conn) *ring {
	t.Helper()
	l, err := NewLine(conn)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(r.file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openRing(l, fd, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.in, m.out = m.out, m.in
	m.processors[0], m.processors[1] = m.processors[1], m.processors[0]
	return m
}

// rings are both sides of a ring.
func rings(t testing.TB) (worker, program *ring) {
	t.Helper()
	l, other := pair(t)
	r, err := newRing(l)
	if err != nil {
		t.Fatal(err)
	}
	return r, mirror(t, r, other)
}

// TestRing: what is written is read, in its order, whatever its size, both ways
// at once, by who reads slowly, too.
func TestRing(t *testing.T) {
	t.Parallel()
	a, b := rings(t)
	const all = 32 << 20
	check := func(from, to *ring, pause time.Duration) {
		sent := rand.NewChaCha8([32]byte{1})
		wrote := make(chan error, 1)
		go func() {
			size := rand.New(rand.NewPCG(1, 2))
			for left := all; left > 0; {
				head, data := make([]byte, min(left, size.IntN(60))), []byte{}
				_, _ = sent.Read(head)
				left -= len(head)
				if size.IntN(50) == 0 {
					data = make([]byte, min(left, size.IntN(3*ringSize)))
					_, _ = sent.Read(data)
					left -= len(data)
				}
				if err := from.write(head, data, -1); err != nil {
					wrote <- err
					return
				}
				if size.IntN(1000) == 0 {
					<-time.After(pause)
				}
			}
			wrote <- nil
		}()
		want, size := rand.NewChaCha8([32]byte{1}), rand.New(rand.NewPCG(3, 4))
		for left := all; left > 0; {
			got := make([]byte, 1+size.IntN(1<<17))
			n, err := to.Read(got)
			if err != nil {
				t.Error(err)
				return
			}
			other := make([]byte, n)
			_, _ = want.Read(other)
			if !bytes.Equal(got[:n], other) {
				t.Errorf("with %d bytes left others are read than were written", left)
				return
			}
			left -= n
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); check(a, b, 3*keep) }()
	check(b, a, 0)
	<-done
}

// TestRingFew: who asks and is answered finds few bytes beside the word that says that they are
// there, in whatever pieces they are written and read, and the others behind those that it did not look at yet.
func TestRingFew(t *testing.T) {
	t.Parallel()
	a, b := rings(t)
	size, text := rand.New(rand.NewPCG(1, 2)), rand.NewChaCha8([32]byte{2})
	say := func(from, to *ring, most int) {
		t.Helper()
		var want []byte
		for n := 1 + size.IntN(most); n > 0; n-- {
			p := make([]byte, 1+size.IntN(60))
			_, _ = text.Read(p)
			want = append(want, p...)
			head := size.IntN(len(p) + 1)
			if err := from.write(p[:head], p[head:], -1); err != nil {
				t.Fatal(err)
			}
			if beside := *from.out.ends == from.written; beside != (len(p) == len(want) && len(p) <= len(from.out.few)) {
				t.Fatalf("%d bytes behind %d that nobody has seen: beside the word: %v", len(p), len(want)-len(p), beside)
			}
		}
		for len(want) > 0 {
			got := make([]byte, 1+size.IntN(40))
			n, err := to.Read(got)
			if err != nil || !bytes.Equal(got[:n], want[:n]) {
				t.Fatalf("read %x, %v, want %x", got[:n], err, want)
			}
			want = want[n:]
		}
	}
	for range 20_000 { // who has read says so with what it writes
		say(a, b, 1)
		say(b, a, 3)
		say(a, b, 3)
		say(b, a, 1)
	}
}

// TestRingWakes: who waits is woken by what is written, by the alarm, and when
// the other ends, however long it has waited; descriptors come before their message.
func TestRingWakes(t *testing.T) {
	t.Parallel()
	a, b := rings(t)
	type read struct {
		text string
		err  error
	}
	reads := make(chan read, 1)
	next := func() {
		b := make([]byte, 16)
		n, err := a.Read(b)
		reads <- read{string(b[:n]), err}
	}
	for _, after := range []time.Duration{0, 5 * time.Microsecond, keep / 2, 5 * keep} {
		for _, want := range []string{"one", "two"} {
			go next()
			<-time.After(after)
			if _, err := b.Write([]byte(want)); err != nil {
				t.Fatal(err)
			}
			if r := <-reads; r.err != nil || r.text != want {
				t.Errorf("after %s: %+v, want %q", after, r, want)
			}
		}
	}
	go next()
	<-time.After(5 * keep)
	_ = a.SetReadDeadline(time.Unix(1, 0))
	if r := <-reads; !errors.Is(r.err, os.ErrDeadlineExceeded) {
		t.Errorf("woken: %+v", r)
	}
	_ = a.SetReadDeadline(time.Time{})

	if err := a.write([]byte("x"), nil, a.alarm); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	if _, k, _, _, err := unix.Recvmsg(b.fd, make([]byte, 8), oob, 0); k == 0 || err != nil {
		t.Errorf("no descriptor came: %v", err)
	}
	if n, err := b.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}

	// The other ends: what it wrote is read, and then that it has ended, by who waits for room, too.
	if _, err := b.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	full := make(chan error, 1)
	go func() { _, err := a.Write(make([]byte, 2*ringSize)); full <- err }()
	<-time.After(5 * keep)
	_ = b.Close()
	if err := <-full; !errors.Is(err, unix.EPIPE) {
		t.Errorf("who waits for room: %v", err)
	}
	go next()
	if r := <-reads; r.err != nil || r.text != "last" {
		t.Errorf("%+v", r)
	}
	go next()
	if r := <-reads; r.err != io.EOF {
		t.Errorf("%+v", r)
	}
}

// TestRingSealed: a program cannot cut off memory that its worker reads.
func TestRingSealed(t *testing.T) {
	t.Parallel()
	a, _ := rings(t)
	for _, size := range []int64{0, ringPage, 2 * ringAll} {
		if err := unix.Ftruncate(a.file, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("made %d bytes: %v", size, err)
		}
	}
}

// FuzzRing: whatever a program writes to the page of a ring, and whenever, a worker reads no
// more than there may be, refuses what cannot be, and does not wait for ever.
func FuzzRing(f *testing.F) {
	said := func(op wire.Op, body ...uint64) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(wire.HeaderSize+8*len(body)))
		b = binary.LittleEndian.AppendUint64(b, uint64(op)|wire.FlagAnswer<<16)
		return append(b, words(body...)...)
	}
	f.Add(said(wire.OpFinish, 2), []byte{0, 24, 0, 0, 0})
	f.Add(said(wire.OpPath, wire.PathRing), []byte{0, 255, 255, 255, 255, 128, 1, 0, 0, 0})
	f.Add(said(wire.OpRead, 2, 3, 0, 1, 0, 0, 0, 64, 1, 1, 64, 64, 64, 9, 0, 0), []byte{4, 1, 0, 0, 0, 132, 7, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text, how []byte) {
		worker, program := rings(t)
		copy(worker.in.data, text)
		copy(worker.in.data[ringSize-8:], text)
		end := make(chan error, 1)
		go func() {
			s := session(worker)
			s.in = bufio.NewReader(worker)
			m := &message{}
			for {
				if err := s.next(m); err != nil {
					end <- err
					return
				}
				s.flow.leave()
			}
		}()
		for ; len(how) >= 5; how = how[5:] { // a word of the page, two bits of which way
			at := int(how[0])&^3%200 + 256*int(how[0]&1)
			copy(program.page[at:at+4], how[1:5])
			if how[0]&2 != 0 {
				futexWake(program.out.written)
			}
		}
		_ = program.Close()
		select {
		case <-end:
		case <-time.After(10 * time.Second):
			t.Fatal("the worker waits for ever")
		}
		_ = unix.Munmap(worker.page)
		_ = unix.Munmap(program.page)
		for _, r := range []*ring{worker, program} {
			for _, fd := range []int{r.fd, r.alarm, r.file} {
				_ = unix.Close(fd)
			}
		}
	})
}

// BenchmarkRing is there and back for what a call that waits and its answer have, in one process.
func BenchmarkRing(b *testing.B) {
	worker, program := rings(b)
	go func() {
		got := make([]byte, 64)
		for {
			if _, err := worker.Read(got); err != nil {
				return
			}
			_, _ = worker.Write(got[:40])
		}
	}()
	got := make([]byte, 64)
	for b.Loop() {
		_, _ = program.Write(got[:24])
		_, _ = program.Read(got)
	}
	_ = program.Close()
}

// TestPathAsked: a program that asks for rings and uses none leaves nothing, and
// one is not made where it cannot be used.
func TestPathAsked(t *testing.T) {
	t.Parallel()
	l, other := pair(t)
	s := session(l)
	status := make([]byte, wire.AnswerSize)
	ask := func(what uint64, want int32) {
		t.Helper()
		b := wire.NewBody(words(what))
		if err := s.path(&message{Header: wire.Header{Op: wire.OpPath, Flags: wire.FlagAnswer}}, &b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(other, status); err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.LittleEndian.Uint64(status[16:])); got != want {
			t.Errorf("path %d is answered %d, want %d", what, got, want)
		}
	}
	ask(wire.PathUse, clInvalidOperation)
	ask(wire.PathRDMA, clInvalidOperation)
	ask(99, clInvalidOperation)
	var made *ring
	for range 3 {
		ask(wire.PathRing, clSuccess)
		made = s.better.(*ring)
		ask(wire.PathRing, clInvalidOperation) // it has one
		if !s.changing() {
			t.Error("the session may move while the program has not said what it uses")
		}
		var before, after unix.Stat_t
		_ = unix.Fstat(made.file, &before)
		ask(wire.PathStay, clSuccess)
		if err := unix.Fstat(made.file, &after); err == nil && before.Ino == after.Ino || s.changing() { // the number may be another's by now
			t.Error("what it does not use is still there")
		}
	}
	ask(wire.PathRing, clSuccess)
	made = s.better.(*ring)
	ask(wire.PathUse, clSuccess)
	if s.conn != path(made) || s.inConn != path(made) || s.changing() {
		t.Error("what it uses is not used")
	}
	b := wire.NewBody(words(wire.PathRing)) // not over a ring
	if err := s.path(&message{Header: wire.Header{Op: wire.OpPath, Flags: wire.FlagAnswer}}, &b); err != nil || s.better != nil {
		t.Errorf("a ring over a ring: %v", err)
	}
}
