package planning

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
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
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "yunhe.db") },
		"postgres": func(t *testing.T) string { return enginetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testBeat(t, url(t))
		})
	}
}

func testBeat(t *testing.T, url string) {
	ctx, quiet := t.Context(), slog.New(slog.DiscardHandler)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d, err := db.Open(ctx, db.Config{URL: url, Now: func() time.Time { return now }}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var works error
	s, err := New(ctx, d, "ins_1", []string{"api", "control"}, func(context.Context, string) error { return works }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	began := map[string]bool{}
	for _, step := range []struct {
		what        string
		after       time.Duration
		start, end  bool
		spans       int64
		failures    int
		each, while float64 // seconds there, and counted
	}{
		{"the start", 0, true, false, 1, 0, 0, 0},
		{"a sign of life", 10 * time.Second, false, false, 1, 0, 10, 10},
		{"a late one", silent, false, false, 1, 0, 25, 25},
		{"after silence", time.Minute, false, false, 2, 1, 25, 85},
		{"the end", 10 * time.Second, false, true, 2, 1, 35, 95},
		{"a new start", time.Hour, true, false, 3, 1, 35, 95},
		{"and on", 5 * time.Second, false, false, 3, 1, 40, 100},
	} {
		now = now.Add(step.after)
		if step.start {
			clear(began)
		}
		if err := s.beat(ctx, s.roles, began, step.end); err != nil {
			t.Fatal(err)
		}
		var n int64
		if err := d.View(ctx, func(tx *db.Tx) error {
			_, err := tx.Get(ctx, `SELECT COUNT(*) FROM presence WHERE role = 'api'`, nil, &n)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		roles, err := s.Measured(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n != step.spans {
			t.Errorf("%s: %d spans, want %d", step.what, n, step.spans)
		}
		if step.while == 0 {
			continue
		}
		if len(roles) != 2 || roles[0].Failures != step.failures || math.Abs(roles[0].Each-step.each/step.while) > 1e-9 {
			t.Errorf("%s: measured %+v, want %v of %v seconds and %d failures", step.what, roles, step.each, step.while, step.failures)
		}
	}
	works = errors.New("it is idle")
	idle := map[string]bool{}
	if roles := s.working(ctx, idle); len(roles) != 0 || !idle["api"] {
		t.Errorf("roles %v give signs of life, idle are %v", roles, idle)
	}
	works = nil
	if roles := s.working(ctx, idle); len(roles) != 2 || idle["api"] {
		t.Errorf("roles %v give signs of life, idle are %v", roles, idle)
	}
}
