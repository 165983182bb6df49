package budgets

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/jobs"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPeriods(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		period         Period
		zone, now      string
		from, to, name string
	}{
		{Day, "", "2026-11-22T10:00:00Z", "2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z", "a day in UTC"},
		{Day, "Asia/Shanghai", "2026-11-22T16:00:00Z", "2026-11-22T16:00:00Z", "2026-11-23T16:00:00Z", "the first moment of a day in Shanghai"},
		{Day, "Asia/Shanghai", "2026-11-22T15:59:59Z", "2026-11-21T16:00:00Z", "2026-11-22T16:00:00Z", "the last second of one"},
		{Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "a day of 25 hours"},
		{Week, "", "2026-11-22T23:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z", "a Sunday is the last day of its week"},
		{Week, "", "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", "a Monday the first"},
		{Month, "Asia/Shanghai", "2026-11-30T16:00:00Z", "2026-11-30T16:00:00Z", "2026-12-31T16:00:00Z", "December in Shanghai"},
		{Month, "", "2028-02-29T10:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "a leap day"},
		{Year, "", "2026-11-22T10:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "a year"},
	} {
		b := Budget{Period: x.period, TimeZone: x.zone}
		from, to := b.span(at(t, x.now))
		if !from.Equal(at(t, x.from)) || !to.Equal(at(t, x.to)) {
			t.Errorf("%s: from %s to %s, want %s to %s", x.name, from, to, x.from, x.to)
		}
	}
	start := at(t, "2020-05-05T05:05:05Z")
	if from, to := (&Budget{Period: Once, StartAt: start}).span(at(t, "2026-01-01T00:00:00Z")); !from.Equal(start) || !to.IsZero() {
		t.Errorf("once: from %s to %s", from, to)
	}
}

// Periods follow on each other without a gap, whatever the zone: the end of one
// is the begin of the next.
func TestPeriodsFollow(t *testing.T) {
	t.Parallel()
	zones := []string{"", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Kathmandu"}
	rapid.Check(t, func(rt *rapid.T) {
		b := Budget{Period: Period(rapid.IntRange(2, 5).Draw(rt, "period")), TimeZone: rapid.SampledFrom(zones).Draw(rt, "zone")}
		now := time.Unix(rapid.Int64Range(1_577_836_800, 1_893_456_000).Draw(rt, "now"), 0).UTC()
		from, to := b.span(now)
		if from.After(now) || !to.After(now) {
			rt.Fatalf("%s is not from %s to %s", now, from, to)
		}
		next, _ := b.span(to)
		again, _ := b.span(to.Add(-time.Microsecond))
		if !next.Equal(to) || !again.Equal(from) {
			rt.Fatalf("from %s to %s, then from %s; the last moment is of %s", from, to, next, again)
		}
	})
}

func TestCharge(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-22T10:00:00Z")
	const yuan = 1_000_000
	for _, x := range []struct {
		name                   string
		placed, started        time.Duration // before now; started 0: not yet
		run                    time.Duration
		from, to               time.Duration // of the period, from now; to 0: without end
		spent, committed, rate int64
	}{
		{"not started", time.Minute, 0, 2 * time.Hour, -time.Hour, 0, 0, 2 * yuan, 0},
		{"nobody says how long", time.Minute, 0, 0, -time.Hour, 0, 0, yuan, 0},
		{"half done", time.Hour, time.Hour, 2 * time.Hour, -5 * time.Hour, 0, yuan, yuan, yuan},
		{"longer than expected", 3 * time.Hour, 3 * time.Hour, time.Hour, -5 * time.Hour, 0, 3 * yuan, 0, yuan},
		{"begun in the period before", 3 * time.Hour, 3 * time.Hour, 4 * time.Hour, -time.Hour, 0, yuan, yuan, yuan},
		{"goes on in the next period", time.Hour, time.Hour, 9 * time.Hour, -5 * time.Hour, 2 * time.Hour, yuan, 2 * yuan, yuan},
		{"in a period to come", time.Hour, time.Hour, 4 * time.Hour, time.Hour, 0, 0, 2 * yuan, yuan},
	} {
		s := Standing{From: now.Add(x.from)}
		if x.to != 0 {
			s.To = now.Add(x.to)
		}
		c := jobs.Charge{Price: 100, PlacedAt: now.Add(-x.placed)}
		if x.started > 0 {
			c.StartedAt = now.Add(-x.started)
		}
		if s.charge(c, x.run, now); s.Spent != x.spent || s.Committed != x.committed || s.Rate != x.rate {
			t.Errorf("%s: spent %d, committed %d, rate %d, want %d, %d, %d", x.name, s.Spent, s.Committed, s.Rate, x.spent, x.committed, x.rate)
		}
	}
	s := Standing{}
	for range 3 { // more than there are micro-yuan
		s.charge(jobs.Charge{Price: core.Fen(1_000_000_000_000), PlacedAt: now, StartedAt: now.Add(-80 * 365 * 24 * time.Hour)}, 0, now)
	}
	if s.Spent < math.MaxInt64/2 || s.left() >= 0 {
		t.Errorf("spent %d, left %d", s.Spent, s.left())
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-22T10:00:00Z")
	s := Standing{Budget: Budget{Amount: 10_000_000, WarnPercents: []int32{50, 80}}, Spent: 5_000_000, Rate: 6_000_000}
	if got := s.reached(); len(got) != 1 || got[0] != 50 {
		t.Errorf("reached %v, want 50", got)
	}
	if got, want := s.next(now), now.Add(30*time.Minute+time.Millisecond); !got.Equal(want) { // 3 yuan to go at 6 an hour
		t.Errorf("next at %s, want %s", got, want)
	}
	if s.Rate = 0; !s.next(now).IsZero() {
		t.Errorf("next at %s though nothing runs", s.next(now))
	}
	if s.Spent, s.Rate = 0, 1; !s.next(now).IsZero() {
		t.Errorf("next at %s, in centuries", s.next(now))
	}
}
