package run_test

import (
	"context"
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
