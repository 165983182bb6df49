package policies

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Simulations take turns; who waits too long, or gives up, takes none.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{playing: make(chan struct{}, 1)}
		end, err := s.await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.await(t.Context()); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("a second one beside it: %v, want that it waited too long", err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.await(gone); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one whose caller has gone: %v", err)
		}
		go func() {
			time.Sleep(simulateFor / 2)
			end()
		}()
		last, err := s.await(t.Context())
		if err != nil {
			t.Fatalf("one that waits until it is its turn: %v", err)
		}
		last()
		if len(s.playing) != 0 {
			t.Error("a turn is left")
		}
	})
}
