// Package execlink carries a command's input and output between the platform
// and what runs the command, by requests and answers over the bus.
//
// The side that runs the command asks ([Serve]); the platform answers
// ([Session]). It asks in two loops: one puts what the command writes, the
// other takes what is for the command. Each has one request under way with a
// sequence, so a lost message is repeated and counts once, and a reader who is
// slow holds up the command: at most [window] bytes wait on either side.
//
//	person ── Send ──▶ Session ──▶ answer to "take" ──▶ Command.Send
//	person ◀─ Receive ─ Session ◀── "put" ◀──────────── Command.Receive
//
// How it ends: with the command, whose end is the last thing put; with the
// person, whose Close is the answer to the next request; or when one side has
// not heard from the other for [patience]. Then the command is closed, which
// kills it, and the person is told.
package execlink

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

const (
	// window is how much may wait to be put, or to be taken.
	window = 256 << 10
	// poll is how long a request is left without an answer if there is none.
	poll = 5 * time.Second
	// try is how long one request may take.
	try = poll + 3*time.Second
	// patience is how long the other side may be silent.
	patience = 15 * time.Second
	// again is the pause before a failed request is repeated.
	again = 200 * time.Millisecond
)

// The requests, as the last part of a subject.
const (
	Put  = "put"
	Take = "take"
)

// Command runs somewhere. Send and Receive may be called at the same time,
// and Close at any time: it ends both, and the command.
type Command interface {
	// Send hands over what a person does. It may wait.
	Send(*adapterv1.ExecRequest) error
	// Receive returns what the command did; the last says that it has ended.
	Receive() (*adapterv1.ExecResponse, error)
	Close()
}

// Ask sends a request, [Put] or [Take], to the platform.
type Ask func(ctx context.Context, what string, data []byte) ([]byte, error)

// Serve links a command with its session until one of them ends. It closes
// the command.
func Serve(ctx context.Context, c Command, ask Ask) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	l := &link{c: c, ask: ask, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { l.receive(ctx) })
	wg.Go(func() {
		defer cancel()
		l.take(ctx)
	})
	l.put(ctx)
	cancel()
	c.Close()
	wg.Wait()
}

type link struct {
	c    Command
	ask  Ask
	wake chan struct{} // there is something to put
	room chan struct{} // something was put

	mu   sync.Mutex // guards the fields below
	next *adapterv1.ExecResponse
}

// receive gathers what the command writes.
func (l *link) receive(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := l.c.Receive()
		if err != nil {
			msg, ok := fault.Message(err)
			if !ok {
				msg = "the command was lost"
			}
			r = &adapterv1.ExecResponse{Ended: true, ExitCode: 255, ErrorOutput: []byte("yunhe: " + msg + "\n")}
		}
		size := l.add(r)
		signal(l.wake)
		for size >= window && !r.Ended {
			select {
			case <-ctx.Done():
				return
			case <-l.room:
			}
			size = l.add(nil)
		}
		if r.Ended {
			return
		}
	}
}

// add joins r to what is to be put and returns how much that is.
func (l *link) add(r *adapterv1.ExecResponse) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next = &adapterv1.ExecResponse{}
	}
	if r != nil {
		l.next.Output, l.next.ErrorOutput = append(l.next.Output, r.Output...), append(l.next.ErrorOutput, r.ErrorOutput...)
		l.next.Ended, l.next.ExitCode = r.Ended, r.ExitCode
	}
	return len(l.next.Output) + len(l.next.ErrorOutput)
}

func (l *link) taken() *adapterv1.ExecResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.next
	l.next = nil
	signal(l.room)
	return r
}

// put hands over what was gathered, and now and then nothing, as a sign of
// life, until the end was handed over or nobody wants it any more.
func (l *link) put(ctx context.Context) {
	alive := time.NewTicker(poll)
	defer alive.Stop()
	for seq := int64(1); ; seq++ {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-alive.C:
		}
		req := &adapterv1.PutExecRequest{Sequence: seq, Response: l.taken()}
		var res adapterv1.PutExecResponse
		if err := l.insist(ctx, Put, req, &res); err != nil || res.Closed || req.Response.GetEnded() {
			return
		}
	}
}

// take fetches what is for the command until nothing more will come.
func (l *link) take(ctx context.Context) {
	for seq := int64(1); ; seq++ {
		var res adapterv1.TakeExecResponse
		if err := l.insist(ctx, Take, &adapterv1.TakeExecRequest{Sequence: seq}, &res); err != nil || res.Closed {
			return
		}
		for _, r := range res.Requests {
			// One that takes no more input may go on writing.
			_ = l.c.Send(r)
		}
	}
}

// insist asks until there is an answer, or there was none for too long.
func (l *link) insist(ctx context.Context, what string, req, res proto.Message) error {
	data, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	heard := time.Now()
	for {
		tctx, cancel := context.WithTimeout(ctx, try)
		out, err := l.ask(tctx, what, data)
		cancel()
		switch {
		case err == nil:
			return proto.Unmarshal(out, res)
		case ctx.Err() != nil:
			return ctx.Err()
		case fault.KindOf(err) == fault.Exhausted: // it is there, and its reader is slow
			heard = time.Now()
		case time.Since(heard) > patience:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(again):
		}
	}
}

// Session is the platform's end. It is a [Command].
type Session struct {
	mu      sync.Mutex // guards the fields below
	changed chan struct{}

	in     []*adapterv1.ExecRequest // not yet asked for
	inSize int
	taken  int64                       // sequence of the last take that was answered
	last   *adapterv1.TakeExecResponse // and its answer

	out     []*adapterv1.ExecResponse
	outSize int
	put     int64

	heard  time.Time
	closed bool
	done   chan struct{} // closed with closed
	told   chan struct{} // closed when the other side knows that it is closed, or has ended
	over   bool          // told is closed
}

// NewSession returns a session whose other side has just been heard of.
func NewSession() *Session {
	return &Session{changed: make(chan struct{}), heard: time.Now(), done: make(chan struct{}), told: make(chan struct{})}
}

// change wakes all who wait; s.mu is held.
func (s *Session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns when something has changed or d is over; s.mu is held, and
// free meanwhile.
func (s *Session) wait(ctx context.Context, d time.Duration) error {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

var errClosed = errors.New("the session is closed")

// Send hands over what a person does; it waits while too much waits already.
func (s *Session) Send(r *adapterv1.ExecRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.inSize >= window && !s.closed && !s.over {
		_ = s.wait(context.Background(), patience) // Close ends it
	}
	if s.closed || s.over {
		return errClosed
	}
	s.in = append(s.in, r)
	s.inSize += len(r.Input)
	s.change()
	return nil
}

// Receive returns what the command did. It returns fault.Unavailable when the
// other side has not been heard of for too long.
func (s *Session) Receive() (*adapterv1.ExecResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) == 0 {
		left := patience - time.Since(s.heard)
		switch {
		case s.closed:
			return nil, io.EOF
		case left <= 0:
			return nil, fault.New(fault.Unavailable, "the center has not been heard of for %s; the command is ended there", patience)
		}
		_ = s.wait(context.Background(), left) // Close ends it
	}
	r := s.out[0]
	s.out = s.out[1:]
	s.outSize -= len(r.Output) + len(r.ErrorOutput)
	s.change()
	return r, nil
}

// Close ends the session. Told says when the other side knows.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
		s.change()
	}
}

// Done is closed by Close.
func (s *Session) Done() <-chan struct{} { return s.done }

// Told is closed when the other side needs no more answers.
func (s *Session) Told() <-chan struct{} { return s.told }

// tell notes that the other side knows of the end; s.mu is held.
func (s *Session) tell() {
	if !s.over {
		s.over = true
		close(s.told)
		s.change()
	}
}

// Answer answers a request of the other side.
func (s *Session) Answer(ctx context.Context, what string, data []byte) ([]byte, error) {
	var res proto.Message
	var err error
	switch what {
	case Put:
		req := &adapterv1.PutExecRequest{}
		if err = proto.Unmarshal(data, req); err == nil {
			res, err = s.answerPut(ctx, req)
		}
	case Take:
		req := &adapterv1.TakeExecRequest{}
		if err = proto.Unmarshal(data, req); err == nil {
			res, err = s.answerTake(ctx, req)
		}
	default:
		err = fault.New(fault.Unimplemented, "a session does not know the request %q", what)
	}
	if err != nil {
		return nil, err
	}
	return proto.Marshal(res)
}

func (s *Session) answerPut(ctx context.Context, r *adapterv1.PutExecRequest) (*adapterv1.PutExecResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	for end := s.heard.Add(poll); s.outSize >= window && !s.closed && r.Sequence > s.put; s.heard = time.Now() {
		left := time.Until(end)
		if left <= 0 {
			return nil, fault.New(fault.Exhausted, "the reader is slow")
		}
		if err := s.wait(ctx, left); err != nil {
			return nil, err
		}
	}
	if s.closed {
		s.tell()
		return &adapterv1.PutExecResponse{Closed: true}, nil
	}
	if r.Sequence > s.put { // else it is repeated
		s.put = r.Sequence
		if r.Response != nil {
			s.out = append(s.out, r.Response)
			s.outSize += len(r.Response.Output) + len(r.Response.ErrorOutput)
		}
		s.change()
	}
	if r.Response.GetEnded() {
		s.tell()
	}
	return &adapterv1.PutExecResponse{}, nil
}

func (s *Session) answerTake(ctx context.Context, r *adapterv1.TakeExecRequest) (*adapterv1.TakeExecResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if r.Sequence <= s.taken {
		return s.last, nil
	}
	for end := s.heard.Add(poll); len(s.in) == 0 && !s.closed && !s.over; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		if err := s.wait(ctx, left); err != nil {
			return nil, err
		}
		if r.Sequence <= s.taken { // it was repeated, and the repetition was answered
			return s.last, nil
		}
	}
	s.taken, s.last = r.Sequence, &adapterv1.TakeExecResponse{Requests: s.in, Closed: s.closed || s.over}
	s.in, s.inSize = nil, 0
	if s.closed {
		s.tell()
	}
	s.change()
	return s.last, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
