package objects

import (
	"context"
	"errors"
	"io"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// source reads what a caller puts. It holds the caller to the announced size
// before the last byte is passed on, so that an upload of the wrong size
// cannot complete, and it remembers why reading failed, because HTTP clients
// bury that.
type source struct {
	ctx  context.Context
	r    io.Reader
	key  string
	size int64 // -1 if unknown
	got  int64
	err  error // what ended the stream, nil or io.EOF if all is well

	stall *stall // nil if nobody waits
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if err := s.ctx.Err(); err != nil {
		s.err = err
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	// The caller may take its time; only the storage is on the clock.
	s.stall.pause()
	n, err := s.r.Read(p)
	s.stall.resume()
	s.got += int64(n)
	if s.got > MaxSize {
		err = fault.New(fault.TooLarge, "object %q has more than %d bytes", s.key, int64(MaxSize))
	}
	if s.size >= 0 {
		switch {
		case s.got > s.size:
			err = fault.New(fault.Invalid, "object %q: more than the announced %d bytes were sent", s.key, s.size)
		case err == io.EOF && s.got < s.size:
			err = fault.New(fault.Invalid, "object %q: %d bytes announced, %d sent", s.key, s.size, s.got)
		}
	}
	if err != nil && err != io.EOF {
		s.err = err
		return 0, err
	}
	return n, err
}

// failed returns the error that ended the stream early, nil if none did.
func (s *source) failed() error { return s.err }

// errStalled is the cause of a context that a stall ended.
var errStalled = errors.New("no progress")

// stall ends a context when the storage makes no progress for a while: a
// deadline for calls whose duration depends on how much they move.
type stall struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// watch returns a context that ends with errStalled unless pause or resume is
// called at least every after. The caller calls stop.
func watch(ctx context.Context, after time.Duration) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stall{after: after, cancel: cancel}
	s.timer = time.AfterFunc(after, func() { cancel(errStalled) })
	return ctx, s
}

func (s *stall) pause() {
	if s != nil {
		s.timer.Stop()
	}
}

func (s *stall) resume() {
	if s != nil {
		s.timer.Reset(s.after)
	}
}

func (s *stall) stop() {
	s.timer.Stop()
	s.cancel(nil)
}
