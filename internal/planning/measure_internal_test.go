package planning

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
)

func TestMeasure(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(minutes float64) time.Time { return now.Add(-time.Duration(minutes * float64(time.Minute))) }
	one := func(since, seen float64) span {
		return span{role: "api", instance: "a", since: ago(since), seen: ago(seen)}
	}
	of := func(s span, instance string, ended bool) span {
		s.instance, s.ended = instance, ended
		return s
	}
	from := ago(1000)
	for _, c := range []struct {
		name                string
		spans               []span
		each, any           float64
		instances, failures int
	}{
		{"always there", []span{one(100, 0)}, 1, 1, 1, 0},
		{"the next sign is on its way", []span{one(100, 0.2)}, 1, 1, 1, 0},
		{"back after a failure", []span{one(100, 60), one(50, 0)}, 0.9, 0.9, 1, 1},
		{"longer than is waited for, but back", []span{one(500, 400), one(100, 0)}, 0.4, 0.4, 1, 1},
		{"gone since shortly", []span{one(100, 25)}, 0.75, 0.75, 1, 1},
		{"taken as replaced", []span{one(400, 100)}, 300.0 / 360, 0.75, 1, 1},
		{"stopped in order", []span{of(one(100, 50), "a", true), one(25, 0)}, 1, 0.75, 1, 0},
		{"one takes over", []span{one(100, 60), one(50, 0), of(one(80, 0), "b", false)}, 0.95, 1, 2, 1},
		{"before the days asked for", []span{one(2000, 900), one(800, 0)}, 0.9, 0.9, 1, 1},
	} {
		got := measure(c.spans, from, now)
		if len(got) != 1 || math.Abs(got[0].Each-c.each) > 1e-9 || math.Abs(got[0].Any-c.any) > 1e-9 || got[0].Instances != c.instances || got[0].Failures != c.failures {
			t.Errorf("%s: got %+v, want each %v, any %v, %d instances, %d failures", c.name, got, c.each, c.any, c.instances, c.failures)
		}
	}
	if roles := measure([]span{one(0, 0)}, from, now); len(roles) != 0 {
		t.Errorf("nothing is known yet: %+v", roles)
	}
	roles := measure([]span{{role: "watch", instance: "a", since: ago(9), seen: now}, one(5, 0)}, from, now)
	if len(roles) != 2 || roles[0].Name != "api" || !roles[0].Since.Equal(ago(5)) || roles[1].Name != "watch" {
		t.Errorf("roles come by name: %+v", roles)
	}
}

// Signs of life lengthen the span of their start, silence and a new start begin
// another one, and a process that ends in order has not failed.
func TestBeat(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s, err := New(ctx, d, "ins_1", []string{"api", "control"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		beat := func(start, end bool) {
			t.Helper()
			if err := s.beat(ctx, start, end); err != nil {
				t.Fatal(err)
			}
		}
		spans := func() (n, ended int64) {
			t.Helper()
			err := d.View(ctx, func(tx *db.Tx) error {
				_, err := tx.Get(ctx, `SELECT COUNT(*), COUNT(*) FILTER (WHERE ended) FROM presence WHERE role = 'api'`, nil, &n, &ended)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n, ended
		}
		expect := func(what string, want, wantEnded int64) {
			t.Helper()
			if n, ended := spans(); n != want || ended != wantEnded {
				t.Fatalf("%s: %d spans, %d ended, want %d, %d", what, n, ended, want, wantEnded)
			}
		}
		beat(true, false)
		beat(false, false)
		expect("signs of life", 1, 0)
		if err := d.Tx(ctx, func(tx *db.Tx) error { // a silence
			_, err := tx.Exec(ctx, `UPDATE presence SET since = since - 60000000, seen = seen - 60000000`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		beat(false, false)
		expect("after silence", 2, 0)
		beat(false, true)
		expect("the end", 2, 1)
		beat(true, false)
		expect("a new start", 3, 1)
		roles, err := s.Measured(ctx, 0)
		if err != nil || len(roles) != 2 || roles[0].Failures != 1 {
			t.Errorf("measured %+v, %v", roles, err)
		}
	})
}
