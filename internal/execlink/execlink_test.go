package execlink_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/execlink"
	"yunhe.dev/yunhe/internal/fault"
)

// echo is a command that writes what it reads, and ends with the input.
type echo struct {
	in   chan []byte
	done chan struct{}
	once sync.Once
}

func newEcho() *echo { return &echo{in: make(chan []byte), done: make(chan struct{})} }

func (e *echo) Send(r *adapterv1.ExecRequest) error {
	for _, b := range [][]byte{r.Input, nil} {
		if b == nil && !r.InputEnd {
			return nil
		}
		if len(b) == 0 && b != nil {
			continue
		}
		select {
		case e.in <- b:
		case <-e.done:
			return io.EOF
		}
	}
	return nil
}

func (e *echo) Receive() (*adapterv1.ExecResponse, error) {
	select {
	case b := <-e.in:
		if b == nil {
			return &adapterv1.ExecResponse{Ended: true, ExitCode: 7}, nil
		}
		return &adapterv1.ExecResponse{Output: b}, nil
	case <-e.done:
		return nil, io.EOF
	}
}

func (e *echo) Close() { e.once.Do(func() { close(e.done) }) }

func (e *echo) closed() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// read returns what a session brings until its command has ended.
func read(s *execlink.Session) (out []byte, code int32, err error) {
	for {
		r, err := s.Receive()
		if err != nil {
			return out, 0, err
		}
		if out = append(out, r.Output...); r.Ended {
			return out, r.ExitCode, nil
		}
	}
}

var errLost = fault.New(fault.Unavailable, "lost")

// Requests and answers are lost, and every byte comes once and in order.
func TestLossyLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := execlink.NewSession(), newEcho()
		rng := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex // guards rng
		lose := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(3) == 0
		}
		var served sync.WaitGroup
		served.Go(func() {
			execlink.Serve(t.Context(), c, func(ctx context.Context, what string, data []byte) ([]byte, error) {
				if lose() {
					return nil, errLost
				}
				out, err := s.Answer(ctx, what, data)
				if lose() {
					return nil, errLost
				}
				return out, err
			})
		})
		var want []byte
		go func() {
			for i := range 300 {
				b := bytes.Repeat([]byte{byte(i)}, 1000)
				if err := s.Send(&adapterv1.ExecRequest{Input: b}); err != nil {
					t.Error(err)
				}
			}
			_ = s.Send(&adapterv1.ExecRequest{InputEnd: true})
		}()
		for i := range 300 {
			want = append(want, bytes.Repeat([]byte{byte(i)}, 1000)...)
		}
		got, code, err := read(s)
		if err != nil || code != 7 || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %d, %v; want the %d that were sent, and 7", len(got), code, err, len(want))
		}
		served.Wait()
		<-s.Told()
		if !c.closed() {
			t.Error("the command is not closed")
		}
	})
}

// A reader who takes nothing holds up the command, and does not lose it.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := execlink.NewSession(), newEcho()
		go execlink.Serve(t.Context(), c, s.Answer)
		sent := make(chan int, 1000)
		go func() {
			for i := range 100 {
				if s.Send(&adapterv1.ExecRequest{Input: make([]byte, 64<<10)}) != nil {
					return
				}
				sent <- i
			}
			_ = s.Send(&adapterv1.ExecRequest{InputEnd: true})
		}()
		time.Sleep(time.Hour)
		if n := len(sent); n > 30 {
			t.Errorf("%d pieces of 64 KiB were taken though nobody reads", n)
		}
		got, code, err := read(s)
		if len(got) != 100*64<<10 || code != 7 || err != nil {
			t.Errorf("%d bytes, %d, %v", len(got), code, err)
		}
	})
}

// Whichever side goes away, the other ends.
func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("the person closes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, c := execlink.NewSession(), newEcho()
			var served sync.WaitGroup
			served.Go(func() { execlink.Serve(t.Context(), c, s.Answer) })
			time.Sleep(time.Second)
			s.Close()
			s.Close()
			served.Wait()
			<-s.Told()
			if !c.closed() {
				t.Error("the command is not closed")
			}
			if _, err := s.Receive(); !errors.Is(err, io.EOF) {
				t.Errorf("Receive after Close: %v", err)
			}
			if err := s.Send(&adapterv1.ExecRequest{}); err == nil {
				t.Error("Send after Close succeeded")
			}
		})
	})
	t.Run("the platform is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newEcho()
			begin := time.Now()
			execlink.Serve(t.Context(), c, func(context.Context, string, []byte) ([]byte, error) { return nil, errLost })
			if took := time.Since(begin); took < 10*time.Second || took > time.Minute || !c.closed() {
				t.Errorf("given up after %s, closed %v", took, c.closed())
			}
		})
	})
	t.Run("the center is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, c := execlink.NewSession(), newEcho()
			ctx, cancel := context.WithCancel(t.Context())
			var served sync.WaitGroup
			served.Go(func() { execlink.Serve(ctx, c, s.Answer) })
			time.Sleep(time.Hour) // it is there, and has nothing to say
			cancel()
			served.Wait()
			begin := time.Now()
			// Its last word, that the command was ended, may have come through or not.
			if _, code, err := read(s); fault.KindOf(err) != fault.Unavailable && (err != nil || code == 0) {
				t.Errorf("Receive: exit code %d, %v, want Unavailable, or that it was ended", code, err)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("noticed after %s", took)
			}
			s.Close()
		})
	})
	t.Run("the command is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, c := execlink.NewSession(), newEcho()
			go execlink.Serve(t.Context(), c, s.Answer)
			c.Close()
			r, err := s.Receive()
			if err != nil || !r.Ended || r.ExitCode == 0 || len(r.ErrorOutput) == 0 {
				t.Errorf("%v, %v; want an end that says why", r, err)
			}
			s.Close()
		})
	})
}

// What a center sends may be anything.
func FuzzAnswer(f *testing.F) {
	f.Add("put", []byte{8, 1})
	f.Add("take", []byte{8, 1})
	f.Add("put", []byte{8, 1, 18, 2, 24, 1})
	f.Add("x", []byte{})
	f.Fuzz(func(_ *testing.T, what string, data []byte) {
		s := execlink.NewSession()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, _ = s.Answer(ctx, what, data) // it must return
		s.Close()
		_, _ = s.Answer(ctx, what, data)
	})
}
