package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/run"
)

// TestRounds: a loop that begins no round in its time is canceled and begun anew;
// if it does not end, whoever runs it hears of it.
func TestRounds(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		e := run.NewElector(d, "me", quiet)
		ctx, cancel := context.WithCancel(t.Context())
		begin, began := time.Now(), 0
		var ended []time.Duration
		err := e.Lead(ctx, "still", func(ctx context.Context) error {
			began++
			for range 10 { // slow, but not still
				core.Round(ctx, time.Hour)
				select {
				case <-ctx.Done():
					t.Error("a loop that keeps to its time is canceled")
				case <-time.After(time.Hour):
				}
			}
			if began == 3 {
				cancel()
			}
			<-ctx.Done()
			ended = append(ended, time.Since(begin))
			return nil
		})
		if err != nil || began != 3 || ended[0] <= 10*time.Hour || ended[0] > 11*time.Hour {
			t.Errorf("begun %d times, ended after %v: %v", began, ended, err)
		}
		release := make(chan struct{})
		err = e.Lead(t.Context(), "dead", func(ctx context.Context) error {
			core.Round(ctx, time.Second)
			<-release
			return nil
		})
		close(release)
		if err == nil || !strings.Contains(err.Error(), "loop dead stands still") {
			t.Errorf("a loop that does not end gives %v", err)
		}
	})
}

// TestRoundsFail: a loop of which every round fails for two minutes begins anew, one
// that works now and then does not, and it is said which fail.
func TestRoundsFail(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		e := run.NewElector(d, "me", quiet)
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		var begun []time.Duration
		err := e.Lead(ctx, "fails", func(ctx context.Context) error {
			if begun = append(begun, time.Since(begin)); len(begun) == 3 {
				cancel()
			}
			for failed := 0; ; {
				core.Round(ctx, 10*time.Second)
				if failed == 11 && len(begun) == 1 && time.Since(begin) < time.Hour {
					failed = 0 // one of twelve works
				} else {
					failed++
					core.RoundFailed(ctx, errors.New("no such table"))
					core.RoundFailed(ctx, errors.New("it is said twice"))
				}
				said := e.Failing()
				if want := failed >= 3; failed > 0 && (len(said) == 1) != want {
					t.Errorf("after %d failed rounds: %v", failed, said)
				} else if want && !strings.Contains(said[0].String(), fmt.Sprintf("fails has failed %d times since ", failed)) {
					t.Errorf("got %s", said[0])
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(10 * time.Second):
				}
			}
		})
		if err != nil || len(begun) != 3 || begun[1] < time.Hour || begun[2]-begun[1] != 2*time.Minute {
			t.Errorf("begun after %v: %v", begun, err)
		}
		if said := e.Failing(); said != nil {
			t.Errorf("at the end: %v", said)
		}
	})
}

// TestRoundsLease: another process takes the lease of a loop that stands still,
// even if it does not end.
func TestRoundsLease(t *testing.T) {
	t.Parallel()
	ds := postgres(t, 2)
	release, still := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stop := leader(t, ds[0], "x", "process0@here:/data", func(ctx context.Context) error {
		core.Round(ctx, time.Millisecond-2*time.Minute) // not patient at all
		once.Do(func() { close(still) })
		<-release
		return nil
	})
	wait(t, "leading", still)
	up := make(chan struct{})
	leader(t, ds[1], "x", "process1@here:/data", func(ctx context.Context) error { close(up); <-ctx.Done(); return nil })
	wait(t, "taking over from a loop that stands still", up)
	close(release)
	_ = stop() // whether the loop ended in time is not the question
}
