package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"yunhe.dev/yunhe/sdk/adapter"
)

func TestBoardTellsEveryReaderTheLastValue(t *testing.T) {
	t.Parallel()
	var b adapter.Board[int]
	b.Set("before", 1)
	const keys, writes = 50, 200
	var wg sync.WaitGroup
	want := map[string]int{"before": 1}
	for k := range keys {
		key := fmt.Sprint("k", k)
		if k%5 == 0 {
			wg.Go(func() {
				for i := range writes {
					b.Set(key, i)
					b.Delete(key)
				}
			})
			continue
		}
		want[key] = writes - 1
		wg.Go(func() {
			for i := range writes {
				b.Set(key, i)
			}
		})
	}
	done := errors.New("seen all")
	written := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			got := map[string]int{}
			calls := 0
			err := b.Watch(t.Context(), func(set map[string]int, gone []string) error {
				if calls++; calls == 1 && set["before"] != 1 {
					t.Errorf("first call: %v, want all there was", set)
				}
				maps.Copy(got, set)
				for _, key := range gone {
					delete(got, key)
				}
				select {
				case <-written:
					if maps.Equal(got, want) {
						return done
					}
				default:
				}
				return nil
			})
			if !errors.Is(err, done) {
				t.Errorf("watch ended with %v; last seen %v, want %v", err, got, want)
			}
		})
	}
	go func() {
		for !maps.Equal(b.All(), want) {
			_, _ = b.Get("before")
		}
		close(written)
		b.Set("before", 1) // one more change, so that the readers look again
	}()
	wg.Wait()
}

func TestBoardWatchEnds(t *testing.T) {
	t.Parallel()
	var b adapter.Board[string]
	ctx, cancel := context.WithCancel(t.Context())
	var first []string
	err := b.Watch(ctx, func(set map[string]string, gone []string) error {
		first = append(slices.Collect(maps.Keys(set)), gone...)
		cancel()
		return nil
	})
	if err != nil || len(first) != 0 {
		t.Errorf("watch of an empty board: %v, %v, want one call with nothing", first, err)
	}
	b.Delete("never there")
	if v, ok := b.Get("never there"); ok {
		t.Errorf("got %q", v)
	}
}
