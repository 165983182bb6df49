package monitor

import (
	"log/slog"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/samples"
)

// What waits for the store is bounded in time and in number.
func TestWaitingRoundsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	round := func(at time.Time, n int) []samples.Sample {
		out := make([]samples.Sample, n)
		for i := range out {
			out[i] = samples.Sample{Name: "x", At: at}
		}
		return out
	}

	c := NewCollector(nil, nil, slog.New(slog.DiscardHandler))
	for i := range 1000 { // 1000 rounds of 5 s, 7 samples each
		c.hold(round(now.Add(time.Duration(i)*5*time.Second), 7))
	}
	if oldest := c.waiting[0][0].At; len(c.waiting) != 121 || c.held != 121*7 || c.storing.dropped != 879*7 || !oldest.Equal(now.Add(879*5*time.Second)) {
		t.Errorf("%d rounds of %d samples wait from %s, %d dropped; want 121 rounds, 10 minutes", len(c.waiting), c.held, oldest, c.storing.dropped)
	}

	c = NewCollector(nil, nil, slog.New(slog.DiscardHandler))
	for range 50 {
		c.hold(round(now, 30_000))
	}
	if len(c.waiting) != 3 || c.held != 90_000 || c.storing.dropped != 47*30_000 {
		t.Errorf("%d rounds of %d samples wait, %d dropped; want 3 of 90000", len(c.waiting), c.held, c.storing.dropped)
	}
	c.hold(round(now, samples.MaxBatch))
	if len(c.waiting) != 1 || c.held != samples.MaxBatch {
		t.Errorf("%d rounds of %d samples wait, want only the newest", len(c.waiting), c.held)
	}
}
