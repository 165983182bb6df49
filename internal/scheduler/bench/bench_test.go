package bench_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/bench"
)

// A hundredth of the work goes through every row, and what does not depend on
// time is the same every time.
func TestRun(t *testing.T) {
	t.Parallel()
	var names []string
	placed := map[string]int{}
	for range 2 {
		names = nil
		if err := bench.Run(t.Context(), nil, 100, func(r bench.Row) {
			names = append(names, r.Name)
			if r.Placed <= 0 || r.PerSecond <= 0 || r.PeakMiB <= 0 || r.Candidates <= 0 || r.Jobs <= 0 || r.Work == "" || r.P99Of == "" {
				t.Errorf("%+v", r)
			}
			if r.OK != nil {
				t.Errorf("%s: a part of the work was judged", r.Name)
			}
			if was, ok := placed[r.Name]; ok && was != r.Placed {
				t.Errorf("%s placed %d, and before %d", r.Name, r.Placed, was)
			}
			placed[r.Name] = r.Placed
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(names, bench.Names()) {
		t.Errorf("rows %v, want %v", names, bench.Names())
	}
	// Of 320 jobs for a quarter of a card each, 80 cards hold nearly all; of 40
	// gangs of 8 for a quarter each, all. The third rack of 100 nodes has 20.
	if placed["pool"] < 300 || placed["gangs"] != 320 || placed["spread"] < 1900 {
		t.Errorf("placed %v", placed)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	if err := bench.Run(t.Context(), []string{"pool", "fastest"}, 100, func(bench.Row) { t.Error("a row") }); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an unknown row: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rows := 0
	err := bench.Run(ctx, nil, 100, func(bench.Row) { rows++; cancel() })
	if !errors.Is(err, context.Canceled) || rows != 1 {
		t.Errorf("stopped after %d rows: %v", rows, err)
	}
}
