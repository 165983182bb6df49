package alarms

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/bus/bustest"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
)

// Only events that can raise or clear an alarm are followed, in whatever order
// and however often they come.
func TestListen(t *testing.T) {
	t.Parallel()
	ctx := bustest.Within(t)
	d := dbtest.SQLite(t)
	b, err := bus.Open(ctx, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	bustest.Go(t, func(ctx context.Context) error { return b.Relay(ctx, d) })
	s := &Service{bus: b, log: slog.New(slog.DiscardHandler), open: map[string]bool{"job_open": true}}
	wake := make(chan struct{}, 1)
	stop, err := s.listen(wake)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// All subscriptions are of one connection, which keeps the order: what
	// comes with the last event has been heard before it.
	emit := func(subject, payload string) {
		t.Helper()
		if err := d.Tx(ctx, func(tx *db.Tx) error { return tx.Emit(ctx, subject, []byte(payload)) }); err != nil {
			t.Fatal(err)
		}
	}
	woken := func(what string) {
		t.Helper()
		select {
		case <-wake:
		case <-ctx.Done():
			t.Fatalf("not woken by %s", what)
		}
	}
	for _, subject := range []string{registry.CenterChangedSubject, registry.NodesChangedSubject, adapters.InstanceChangedSubject, jobs.RefusedSubject, "control.changed"} {
		for range 3 {
			emit(subject, `["x"]`)
		}
		woken(subject)
	}
	emit("job.changed", `[{"id":"job_other"},{"id":"job_open"}]`)
	woken("a job with an alarm")
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	s := &Service{log: slog.New(slog.DiscardHandler), open: map[string]bool{"job_a": true}}
	event := func(id string) []byte { return fmt.Appendf(nil, `[{"id":%q}]`, id) }
	for payload, want := range map[string]bool{`[{"id":"job_a"}]`: true, `[{"id":"job_b"}]`: false, `[]`: false, `nonsense`: false} {
		if got := s.concerns([]byte(payload)); got != want {
			t.Errorf("concerns(%s) is %v, want %v", payload, got, want)
		}
	}
	causes := map[string]*cause{"unplaced/job_b": {About: About{JobID: "job_b"}}, "center/c": {}}
	s.begin()
	if s.concerns(event("job_b")) {
		t.Error("nobody knows yet that job_b has an alarm")
	}
	if !s.note(causes) {
		t.Error("what changed while the facts were looked at is looked at again")
	}
	if !s.concerns(event("job_b")) || s.concerns(event("job_a")) {
		t.Error("the jobs of the last look count")
	}
	s.begin()
	s.concerns(event("job_a"))
	if s.note(causes) {
		t.Error("a job without an alarm changed and is looked at again")
	}
}

// The clock wakes when silence begins to be an alarm, and at the latest when
// what begins to wait now does.
func TestDue(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	minute := Config{}.filled()
	center := func(ago time.Duration, drained bool) *registry.Center {
		k := &registry.Center{Drained: drained}
		k.LastSeen = at.Add(-ago)
		return k
	}
	moment := time.Millisecond
	for _, c := range []struct {
		name                     string
		centers                  []*registry.Center
		unplaced, unset, waiting time.Time
		want                     time.Duration
	}{
		{"nothing waits", nil, time.Time{}, time.Time{}, time.Time{}, 30 * time.Second},
		{"a center", []*registry.Center{center(time.Second, false), center(3*time.Second, false)}, time.Time{}, time.Time{}, time.Time{}, 7*time.Second + moment},
		{"centers that are silent or drained", []*registry.Center{center(time.Hour, false), center(3*time.Second, true)}, time.Time{}, time.Time{}, time.Time{}, 30 * time.Second},
		{"a job", nil, at.Add(-50 * time.Second), time.Time{}, time.Time{}, 10*time.Second + moment},
		{"a node", nil, at.Add(-40 * time.Second), at.Add(-25 * time.Second), time.Time{}, 5*time.Second + moment},
		{"an allocation", nil, time.Time{}, at.Add(-20 * time.Second), at.Add(-59 * time.Second), time.Second + moment},
		{"one that starts later", nil, time.Time{}, time.Time{}, at.Add(time.Hour), 30 * time.Second},
	} {
		if got := minute.due(at, c.centers, c.unplaced, c.unset, c.waiting).Sub(at); got != c.want {
			t.Errorf("%s: due in %s, want %s", c.name, got, c.want)
		}
	}
}
