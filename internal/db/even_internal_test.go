package db

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestEven: a machine's clock that is set neither stops time nor has it jump; what
// it was set by is taken up slowly, and told once.
func TestEven(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		var said strings.Builder
		e := newEven(slog.New(slog.NewTextHandler(&said, nil)))
		first := e.last
		right := func(passed time.Duration) time.Time { return first.Add(passed) }
		for passed := time.Duration(0); passed < 10*time.Minute; passed += time.Second {
			if got := e.tell(right(passed), passed); !got.Equal(right(passed)) {
				t.Fatalf("with a right clock it is %v, want %v", got, right(passed))
			}
		}
		last, begun := e.last, e.passed
		for passed := begun; passed <= begun+time.Hour; passed += time.Second {
			got := e.tell(right(passed).Add(by), passed)
			if step := got.Sub(last); step < 0 || step > 1100*time.Millisecond || passed > begun && step < 900*time.Millisecond {
				t.Fatalf("set by %v, in a second %v pass", by, step)
			}
			last = got
		}
		if got := last.Sub(right(e.passed)); got.Abs() < 30*time.Second || got.Abs() > 40*time.Second || got < 0 != (by < 0) {
			t.Errorf("set by %v, an hour later %v of it are taken up, want 36 s", by, got)
		}
		// Whoever looked before another one, and comes after it, takes nothing back.
		if got := e.tell(right(e.passed), e.passed-time.Minute); !got.Equal(last) {
			t.Errorf("it goes back to %v", got)
		}
		for passed := e.passed; passed <= begun+200*time.Hour; passed += time.Minute {
			last = e.tell(right(passed).Add(by), passed)
		}
		if got := last.Sub(right(e.passed)); got != by {
			t.Errorf("set by %v, %v of it are taken up in the end", by, got)
		}
		if n := strings.Count(said.String(), "the clock of this machine was set"); n != 1 || !strings.Contains(said.String(), "the time is the machine's again") {
			t.Errorf("it said %s", said.String())
		}
	}
	if s := slept(); s < 0 || s > 100*365*24*time.Hour {
		t.Errorf("the machine slept for %v", s)
	}
}
