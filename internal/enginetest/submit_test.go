package enginetest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/enginetest"
)

func TestMeasureSubmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		got, err := enginetest.MeasureSubmit(t.Context(), enginetest.Load{Clients: 2, N: 200}, func(_ context.Context, client, i int) error {
			calls.Add(1)
			if client < 0 || client > 1 || i < 0 || i > 199 {
				t.Errorf("client %d, submission %d, want 0..1, 0..199", client, i)
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		want := enginetest.Rate{Clients: 2, N: 200, Seconds: 1, PerSecond: 200, P50: 10, P99: 10}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || calls.Load() != 200 {
			t.Errorf("%d calls, %v; rate (-want +got):\n%s", calls.Load(), err, diff)
		}
	})
}

// TestMeasureSubmitQuantiles makes submission i take i+1 ms.
func TestMeasureSubmitQuantiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := enginetest.MeasureSubmit(t.Context(), enginetest.Load{Clients: 1, N: 1000}, func(_ context.Context, _, i int) error {
			time.Sleep(time.Duration(i+1) * time.Millisecond)
			return nil
		})
		if err != nil || got.P50 != 500 || got.P99 != 990 {
			t.Errorf("p50 %v, p99 %v, %v, want 500, 990", got.P50, got.P99, err)
		}
	})
}

func TestMeasureSubmitFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("full")
	_, err := enginetest.MeasureSubmit(t.Context(), enginetest.Load{Clients: 4, N: 100}, func(_ context.Context, _, i int) error {
		if i == 57 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "submission 57") {
		t.Errorf("error = %v, want that of submission 57", err)
	}
	for _, load := range []enginetest.Load{{}, {Clients: 1}, {Clients: 3, N: 2}} {
		if _, err := enginetest.MeasureSubmit(t.Context(), load, nil); err == nil {
			t.Errorf("%+v was accepted", load)
		}
	}
}

// The engines' own tests call these with a few jobs; see TestSlurm and
// TestKubernetes.
func checkRate(t *testing.T, got enginetest.Rate, err error, system, mode string, load enginetest.Load) {
	t.Helper()
	if err != nil {
		t.Errorf("measure %s %s: %v", system, mode, err)
		return
	}
	if got.System != system || got.Mode != mode || got.Clients != load.Clients || got.N != load.N || got.PerSecond <= 0 || got.P99 < got.P50 {
		t.Errorf("rate = %+v, want %s %s of %+v", got, system, mode, load)
	}
}
