package adapters

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestRecentReadsOnceForAll(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	reads := 0
	begun, proceed := make(chan struct{}), make(chan struct{})
	r := newRecent(func(context.Context) (int, error) {
		reads++ // one at a time
		if reads == 1 {
			close(begun)
			<-proceed
		}
		return reads, nil
	})
	get := func(age time.Duration) int {
		t.Helper()
		v, err := r.get(t.Context(), func() time.Time { return now }, age)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { get(time.Second) })
	}
	<-begun
	close(proceed)
	all.Wait()
	if reads != 1 {
		t.Fatalf("%d reads for eight who asked at once", reads)
	}
	if now = now.Add(999 * time.Millisecond); get(time.Second) != 1 {
		t.Error("read again although it was young enough")
	}
	if get(100*time.Millisecond) != 2 || get(time.Second) != 2 {
		t.Error("not read again although it was too old")
	}
	if r.forget(); get(time.Second) != 3 {
		t.Error("forgotten, and not read again")
	}
	if now = now.Add(-time.Hour); get(time.Second) != 4 {
		t.Error("believed although it is of the future")
	}
}

func TestRecentDoesNotKeepWhatWasForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	var r *recent[string]
	value, reads := "old", 0
	r = newRecent(func(context.Context) (string, error) {
		read := value
		if reads++; reads == 1 { // it changes after it was read
			value = "new"
			r.forget()
		}
		return read, nil
	})
	for _, want := range []string{"old", "new", "new"} {
		if got, err := r.get(t.Context(), time.Now, time.Hour); got != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestRecentTellsFailures(t *testing.T) {
	t.Parallel()
	fails := errors.New("no")
	r := newRecent(func(context.Context) (int, error) { return 0, fails })
	for range 2 {
		if _, err := r.get(t.Context(), time.Now, time.Hour); !errors.Is(err, fails) {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.turn <- struct{}{} // another reads
	if _, err := r.get(ctx, time.Now, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up got %v", err)
	}
}
