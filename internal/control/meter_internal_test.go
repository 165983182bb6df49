package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/metering"
)

// However often the meter is looked at, the pieces follow each other, are at
// most an hour, and come to what was unused times how long.
func TestMeterCountsEveryMomentOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC).UnixMicro()
		m := &meter{from: start, at: start, holder: "alc_1"}
		want, now, last := int64(0), start, start
		names := map[string]bool{}
		got := int64(0)
		steps := rapid.SliceOfN(rapid.Int64Range(-int64(time.Minute/time.Microsecond), 5*piece.Microseconds()), 1, 12).Draw(t, "steps")
		for _, d := range steps {
			next := now + d
			out := m.count(next)
			if next > now {
				want += m.unused * (next - now)
				now = next
			}
			m.unused = rapid.Int64Range(0, 9).Draw(t, "unused")
			out = append(out, m.closeAt(d%7 == 0, now)...)
			for _, r := range out {
				if names[r.AttemptID] || r.StartedAt.UnixMicro() < last || r.EndedAt.Before(r.StartedAt) || r.Duration() > piece {
					t.Fatalf("piece %v after %d", r, last)
				}
				names[r.AttemptID], last = true, r.EndedAt.UnixMicro()
				got += r.PackageMicros
			}
		}
		for _, r := range m.close(now) {
			got += r.PackageMicros
		}
		if got != want {
			t.Fatalf("%d package-microseconds were recorded, %d were held", got, want)
		}
	})
}

// closeAt closes a piece early, as the end of an allocation does.
func (m *meter) closeAt(yes bool, now int64) []metering.Record {
	if yes {
		return m.close(now)
	}
	return nil
}

func TestPackages(t *testing.T) {
	t.Parallel()
	spec := core.Quantities{"cpu": 1000, "memory": 4}
	for _, c := range []struct {
		amounts core.Quantities
		n       int64
		ok      bool
	}{
		{core.Quantities{"cpu": 1000}, 1, true},
		{core.Quantities{"cpu": 1001}, 2, true},
		{core.Quantities{"cpu": 1000, "memory": 9}, 3, true},
		{core.Quantities{"cpu": 1000, "gpu": 1}, 0, false},
		{core.Quantities{"cpu": 0, "gpu": 0}, 0, true},
	} {
		if n, ok := packages(spec, c.amounts); n != c.n || ok != c.ok {
			t.Errorf("packages for %v: %d %v, want %d %v", c.amounts, n, ok, c.n, c.ok)
		}
	}
}
