//go:build linux

package worker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// path carries what a program and its worker say to each other: bytes, in their
// order. One goroutine at a time reads, and one writes.
//
// A program comes by a socket, and may ask for a better path then ([Session.path]):
// the worker makes one ready, and the program says on the socket that it uses it
// from there on. The socket stays: it carries descriptors, and ends when either side does.
type path interface {
	// Read ends with os.ErrDeadlineExceeded while a deadline is over.
	io.ReadWriteCloser
	// SetReadDeadline knows two: one that is over, and none.
	SetReadDeadline(t time.Time) error
	// write writes all of two pieces. The reader has a descriptor before it has read them; -1: there is none.
	write(head, data []byte, fd int) error
	// handOver says how the process that this one becomes goes on: arguments of [Relay].
	handOver() ([]string, error)
}

// Path is a path to who only reads and writes ([WriteAll]).
type Path interface {
	io.ReadWriteCloser
	path
}

// Relay passes on what a program that was moved and its new worker say to each
// other, until the program has followed or ended. It is told which descriptors
// those are: the new worker's connection, the program's, and if that has a ring, its
// memory and how many bytes were read and written.
func Relay(args []string) error {
	var n [5]uint64
	if len(args) != 2 && len(args) != len(n) {
		return errors.New("which connections?")
	}
	for i, a := range args {
		var err error
		if n[i], err = strconv.ParseUint(a, 10, 32); err != nil {
			return fmt.Errorf("%q is not a number", a)
		}
	}
	to, err := Connection(int(n[0]))
	if err != nil {
		return err
	}
	conn, err := Connection(int(n[1]))
	if err != nil {
		return err
	}
	l, err := NewLine(conn)
	if err != nil {
		return err
	}
	var program path = l
	if len(args) == len(n) {
		if program, err = openRing(l, int(n[2]), uint32(n[3]), uint32(n[4])); err != nil {
			return err
		}
	}
	relay(program, to)
	return nil
}

// Connection is one that was given as an open file.
func Connection(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "connection")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connection %d: %w", fd, err)
	}
	return conn, nil
}

func relay(program path, to net.Conn) {
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		_, _ = io.Copy(program, to) // it ends when either does, however
		_ = program.Close()
	}()
	_, _ = io.Copy(to, program)
	var bye [wire.HeaderSize]byte
	bye[0], bye[8], bye[9] = wire.HeaderSize, 0xFF, 0xFF
	if _, err := to.Write(bye[:]); err == nil { // the program has ended; its worker does, too
		<-followed
	}
}

// relayFrom becomes a process that only passes on: what the device holds for
// the program ends with what this process was. Where it cannot, it returns io.EOF
// when all was passed on.
func (s *Session) relayFrom(program path, to net.Conn) error {
	file, plain := to.(interface{ File() (*os.File, error) })
	args, err := []string(nil), errors.ErrUnsupported // of one that is encrypted
	if plain {
		args, err = program.handOver()
	}
	if errors.Is(err, errors.ErrUnsupported) {
		s.relayHere(to)
		return io.EOF
	}
	if err != nil {
		return err
	}
	f, err := file.File()
	if err != nil {
		return err
	}
	fd, err := keepOpen(int(f.Fd()))
	if err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", append([]string{os.Args[0], "relay", fd}, args...), os.Environ())
}

// relayHere passes on what program and worker say to each other in this process,
// where another cannot: what the device holds for the program is released first.
func (s *Session) relayHere(to net.Conn) {
	s.turn.leave()
	s.mu.Lock()
	for _, all := range []map[uint64]*object{s.objects, s.ghosts} {
		for _, o := range all {
			if o.kind != mem || o.ptr == 0 {
				continue
			}
			s.lib.call(releases[mem], o.ptr)
			o.unmap() // the node counts it no more
		}
	}
	s.mu.Unlock()
	relay(s.conn, to)
}

// keepOpen is a copy of a descriptor that the process this one becomes has, too.
func keepOpen(fd int) (string, error) {
	n, err := unix.Dup(fd)
	return strconv.Itoa(n), err
}

// offers are the better paths that a program of a connection may ask for, as
// flags of the first answer, and what else it may.
func (s *Session) offers(p path) (flags uint16) {
	flags = wire.FlagLater | wire.FlagLanes | wire.FlagPosts
	if l, ok := p.(*Line); ok && l.local {
		flags |= wire.FlagRing
	} else if ok && hasRDMA(l.at) {
		flags |= wire.FlagRDMA
	}
	return flags
}

// path answers a program that asks for a better path, uses the one it has asked
// for, or does not. It does not move between the first and one of the others.
func (s *Session) path(m *message, b *wire.Body) error {
	what := b.Word()
	if b.Err() {
		return errEnd
	}
	s.mu.Lock()
	old, better := s.inConn, s.better
	relayed := s.relayed
	s.mu.Unlock()
	l, _ := old.(*Line)
	switch {
	case what == wire.PathRing && better == nil && l != nil && l.local && !relayed:
		r, err := newRing(l)
		if err != nil {
			return s.answer(m, clOutOfResources, 0, 0, nil)
		}
		s.setBetter(r)
		return s.sendFD(0, m.Call, ringSize, 0, r.file)
	case what == wire.PathRDMA && better == nil && l != nil && hasRDMA(l.at) && !relayed:
		r, port, err := newRDMA(l)
		if err != nil {
			return s.answer(m, clOutOfResources, 0, 0, []byte(err.Error()))
		}
		s.setBetter(r)
		return s.answer(m, clSuccess, uint64(port), 0, r.token[:])
	case what == wire.PathUse && better != nil:
		if r, ok := better.(*rdma); ok && !r.usable() {
			return errors.New("the program uses a path that it has not come by")
		}
		s.mu.Lock()
		s.inConn, s.better = better, nil
		s.in.Reset(better) // nothing followed
		s.mu.Unlock()
		s.flow.tell()
		s.sending.Lock()
		defer s.sending.Unlock()
		s.sent++
		wire.PutAnswer(s.head[:], wire.OpAnswer, 0, m.Call, clSuccess, 0, 0, 0)
		err := s.conn.write(s.head[:], nil, -1)
		s.conn = better
		return err
	case what == wire.PathStay:
		if r, ok := better.(interface{ stay() }); ok {
			r.stay()
		}
		s.setBetter(nil)
		return s.answer(m, clSuccess, 0, 0, nil)
	}
	return s.answer(m, clInvalidOperation, 0, 0, nil)
}

func (s *Session) setBetter(p path) {
	s.mu.Lock()
	s.better = p
	s.mu.Unlock()
	s.flow.tell()
}

// changing reports whether the program has asked for a better path, and has not
// said whether it uses it.
func (s *Session) changing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.better != nil
}
