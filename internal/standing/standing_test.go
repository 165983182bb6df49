package standing_test

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/standing"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a platform without its loops: time passes as the test says.
type world struct {
	*standing.Service
	reg  *registry.Service
	ids  *identity.Service
	d    *db.DB
	url  string
	us   atomic.Int64
	runs runs
}

// runs notes what is given up.
type runs struct {
	open  map[string]bool
	given []string // centers whose default grace was over
	short []string // centers where a job with the shortest grace is given up
}

func (r *runs) OpenLosses(context.Context) (map[string]bool, error) { return r.open, nil }

func (r *runs) GiveUp(_ context.Context, silent []standing.Link, graces standing.Graces) error {
	for _, l := range silent {
		if l.Over(graces.For(0, "t", l.CenterID)) {
			r.given = append(r.given, l.CenterID)
		}
		if l.Over(graces.For(30, "t", l.CenterID)) {
			r.short = append(r.short, l.CenterID)
		}
	}
	return nil
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "yunhe.db") },
		"postgres": func(t *testing.T) string { return enginetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{url: url(t)}
			w.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
			w.open(t)
			t.Cleanup(func() { _ = w.d.Close() })
			f(t, w)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) open(t *testing.T) {
	t.Helper()
	var err error
	w.d, err = db.Open(t.Context(), db.Config{URL: w.url, Now: func() time.Time { return time.UnixMicro(w.us.Load()) }}, quiet)
	must(t, err)
	w.ids, err = identity.New(t.Context(), w.d, quiet)
	must(t, err)
	w.reg, err = registry.New(t.Context(), w.d, quiet)
	must(t, err)
	w.Service, err = standing.New(t.Context(), w.d, w.ids, w.reg, quiet)
	must(t, err)
	w.SetRuns(&w.runs)
}

// restart ends the platform and starts it again after a while.
func (w *world) restart(t *testing.T, down time.Duration) {
	t.Helper()
	must(t, w.d.Close())
	w.us.Add(down.Microseconds())
	w.open(t)
}

func (w *world) join(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := w.reg.CreateCenter(t.Context(), registry.Center{ID: id, Total: core.Quantities{core.CPU: 1000}})
		must(t, err)
	}
	w.hear(t, ids...)
}

// grace sets that of the platform.
func (w *world) grace(t *testing.T, seconds int64) {
	t.Helper()
	_, err := w.SetGrace(t.Context(), "", "", seconds)
	must(t, err)
}

// hear is a heartbeat of each center.
func (w *world) hear(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error { return w.reg.HeartbeatTx(t.Context(), tx, id, nil) }))
	}
}

// pass lets time pass, in which the platform looks and these centers are heard.
func (w *world) pass(t *testing.T, d time.Duration, heard ...string) {
	t.Helper()
	const step = 10 * time.Second
	for ; d > 0; d -= step {
		w.us.Add(step.Microseconds())
		w.hear(t, heard...)
		must(t, w.Look(t.Context()))
	}
}

func (w *world) is(t *testing.T, id string, want standing.State) standing.Standing {
	t.Helper()
	x, err := w.Get(t.Context(), id)
	must(t, err)
	if x.State != want {
		t.Errorf("center %s is %s after %s of silence, want %s", id, x.State, x.Silent, want)
	}
	return x
}

func TestLost(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.join(t, "a", "b")
		w.grace(t, 120)
		w.pass(t, 30*time.Second, "a", "b")
		w.is(t, "a", standing.Connected)
		// In the grace nothing is given up, and it is counted from the first look.
		w.pass(t, 100*time.Second, "b")
		w.is(t, "a", standing.Silent)
		if len(w.runs.given) > 0 || !slices.Contains(w.runs.short, "a") {
			t.Errorf("given up in the grace: %v; of those with a short one: %v", w.runs.given, w.runs.short)
		}
		w.pass(t, 40*time.Second, "b")
		if x := w.is(t, "a", standing.Lost); x.Losses != 1 || x.Silences != 1 || !slices.Contains(w.runs.given, "a") || slices.Contains(w.runs.given, "b") {
			t.Errorf("lost: %+v, given up: %v", x, w.runs.given)
		}
		// It comes back, and has to stop what was given up.
		w.runs.open = map[string]bool{"a": true}
		w.pass(t, 10*time.Second, "a", "b")
		w.is(t, "a", standing.Back)
		w.runs.open = nil
		w.pass(t, 10*time.Second, "a", "b")
		if x := w.is(t, "a", standing.Connected); x.Silent != 0 {
			t.Errorf("connected, and silent for %s", x.Silent)
		}
		// A center that is no more has no link.
		w.pass(t, 20*time.Second, "a")
		must(t, w.reg.DeleteCenter(t.Context(), "b"))
		w.pass(t, 10*time.Second, "a")
		if _, err := w.Get(t.Context(), "b"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("the standing of a deleted center: %v", err)
		}
	})
}

// TestFlicker: a link that is heard of now and then never loses anything.
func TestFlicker(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.join(t, "a", "b")
		w.grace(t, 60)
		for range 6 {
			w.pass(t, 60*time.Second, "b") // back just before the end
			w.pass(t, 10*time.Second, "a", "b")
		}
		if x := w.is(t, "a", standing.Connected); x.Silences != 6 || x.Losses != 0 || len(w.runs.given) > 0 {
			t.Errorf("%+v, given up: %v", x, w.runs.given)
		}
	})
}

// TestGraceSurvivesRestarts: what was waited counts, the time in which nobody
// listened does not, and after a start centers have time to come back.
func TestGraceSurvivesRestarts(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.join(t, "a", "b", "c")
		w.grace(t, 300)
		w.pass(t, 2*time.Minute, "b", "c")
		w.restart(t, 10*time.Hour)
		w.pass(t, 10*time.Second, "b") // c needs longer to come back
		if x := w.is(t, "a", standing.Silent); x.Silent < 100*time.Second || x.Silent > 2*time.Minute {
			t.Errorf("silent for %s after a restart, want about 2 min", x.Silent)
		}
		w.is(t, "c", standing.Silent)
		w.pass(t, 2*time.Minute, "b", "c")
		w.is(t, "c", standing.Connected)
		w.restart(t, time.Minute)
		w.pass(t, 10*time.Second, "b", "c")
		w.is(t, "a", standing.Silent)
		// Over, but for the time to settle.
		must(t, w.Wait(t.Context(), "a", 2*time.Minute))
		w.restart(t, time.Minute)
		w.pass(t, 20*time.Second, "b", "c")
		if w.is(t, "a", standing.Silent); len(w.runs.given) > 0 {
			t.Errorf("given up right after a start: %v", w.runs.given)
		}
		w.pass(t, 20*time.Second, "b", "c")
		w.is(t, "a", standing.Lost)
		w.restart(t, time.Hour)
		w.pass(t, 10*time.Second, "b", "c")
		w.is(t, "a", standing.Lost)
	})
}

// TestCutOff: when nobody is heard of it is the platform that is cut off.
func TestCutOff(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.join(t, "a", "b")
		w.grace(t, 60)
		w.pass(t, 3*time.Minute)
		w.is(t, "a", standing.Silent)
		w.pass(t, 40*time.Second, "b")
		w.is(t, "a", standing.Silent)
		w.pass(t, 30*time.Second, "b")
		w.is(t, "a", standing.Lost)
		// With the only other one lost for long, the last one counts by itself.
		w.pass(t, 90*time.Second)
		w.is(t, "b", standing.Lost)
	})
}

func TestGraces(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.join(t, "a", "b")
		_, err := w.ids.CreateTenant(ctx, identity.Tenant{ID: "t", Name: "T"})
		must(t, err)
		set := func(center, tenant string, seconds int64) {
			t.Helper()
			_, err := w.SetGrace(ctx, center, tenant, seconds)
			must(t, err)
		}
		set("", "", 30)
		set("a", "", standing.Never)
		set("a", "", standing.Never)
		w.pass(t, 2*time.Minute, "b")
		if x := w.is(t, "a", standing.Silent); x.Grace >= 0 || len(w.runs.given) > 0 {
			t.Errorf("a center whose work is never given up: %+v, given up: %v", x, w.runs.given)
		}
		set("", "t", 60)
		w.pass(t, 10*time.Second, "b")
		if !slices.Contains(w.runs.given, "a") {
			t.Error("the grace of the tenant does not go before that of the center")
		}
		set("a", "", 0)
		w.pass(t, 10*time.Second, "b")
		if x := w.is(t, "a", standing.Lost); x.Grace != 30*time.Second {
			t.Errorf("grace of a center without its own: %s, want the platform's", x.Grace)
		}
		gs, err := w.Graces(ctx)
		must(t, err)
		if len(gs) != 2 || gs[0].Scope != standing.OfPlatform || gs[1] != (standing.Grace{Scope: standing.OfTenant, ID: "t", Seconds: 60, ChangedAt: gs[1].ChangedAt}) {
			t.Errorf("graces: %+v", gs)
		}
		for what, call := range map[string]func() error{
			"ai_center_id": func() error { _, err := w.SetGrace(ctx, "a b", "", 60); return err },
			"tenant_id":    func() error { _, err := w.SetGrace(ctx, "a", "t", 60); return err },
			"seconds":      func() error { _, err := w.SetGrace(ctx, "", "", 29); return err },
		} {
			fs := fault.FieldsOf(call())
			if len(fs) != 1 || fs[0].Path != what {
				t.Errorf("fields %v, want %s", fs, what)
			}
		}
		for _, call := range []func() error{
			func() error { _, err := w.SetGrace(ctx, "nope", "", 60); return err },
			func() error { _, err := w.SetGrace(ctx, "", "nope", 60); return err },
		} {
			if err := call(); fault.KindOf(err) != fault.NotFound {
				t.Errorf("a grace of nobody: %v", err)
			}
		}
	})
}

// TestRefusals: a center that refuses is left alone for a while, longer each
// time, and what it refused survives a restart.
func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.join(t, "a", "b")
		refuse := func(times int) {
			t.Helper()
			must(t, w.d.Tx(ctx, func(tx *db.Tx) error {
				for range times {
					if err := w.RefusedTx(ctx, tx, "a", "small", "host", "quota: "+strings.Repeat("x", 1000)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		blocked := func(spec string) []string {
			t.Helper()
			got, err := w.Refused(ctx, spec, "host")
			must(t, err)
			return slices.Sorted(maps.Keys(got))
		}
		if got := blocked("small"); len(got) > 0 {
			t.Errorf("blocked at first: %v", got)
		}
		refuse(5) // under way at once: that is one
		if got := blocked("small"); !slices.Equal(got, []string{"a"}) || len(blocked("large")) > 0 {
			t.Errorf("blocked: %v, and for others: %v", got, blocked("large"))
		}
		for _, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute} {
			x, err := w.Get(ctx, "a")
			must(t, err)
			if len(x.Refusals) != 1 || x.Refusals[0].Until.Sub(w.d.Now()) != want || len(x.Refusals[0].Reason) > 500 {
				t.Fatalf("refusals %+v, want left alone for %s", x.Refusals, want)
			}
			w.restart(t, want+time.Second)
			if got := blocked("small"); len(got) > 0 {
				t.Errorf("blocked after %s: %v", want, got)
			}
			refuse(1)
		}
		// It decays: after a long while it begins anew.
		w.us.Add((3 * time.Hour).Microseconds())
		refuse(1)
		x, err := w.Forget(ctx, "b")
		must(t, err)
		if len(x.Refusals) > 0 || len(blocked("small")) != 1 {
			t.Errorf("forgotten of b: %v", x.Refusals)
		}
		if x, err = w.Get(ctx, "a"); err != nil || x.Refusals[0].Until.Sub(w.d.Now()) != 30*time.Second || x.Refusals[0].Count != 1 {
			t.Errorf("after hours: %+v, %v", x.Refusals, err)
		}
		if x, err = w.Forget(ctx, "a"); err != nil || len(x.Refusals) > 0 || len(blocked("small")) > 0 {
			t.Errorf("forgotten: %+v, %v", x.Refusals, err)
		}
	})
}
