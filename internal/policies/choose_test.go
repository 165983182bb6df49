package policies

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/tags"
)

// world is policies on a database whose clock the test moves.
type world struct {
	*Service
	reg *registry.Service
	d   *db.DB
	now atomic.Int64
}

func open(t testing.TB, url string) *world {
	t.Helper()
	w := &world{}
	w.now.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	log := slog.New(slog.DiscardHandler)
	d, err := db.Open(t.Context(), db.Config{URL: url, Now: func() time.Time { return time.UnixMicro(w.now.Load()) }}, log)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	w.d = d
	ids, err := identity.New(t.Context(), d, log)
	must(t, err)
	w.reg, err = registry.New(t.Context(), d, log)
	must(t, err)
	tg, err := tags.New(t.Context(), d, w.reg, log)
	must(t, err)
	w.Service, err = New(t.Context(), d, Deps{Identity: ids, Registry: w.reg, Tags: tg}, prometheus.NewRegistry(), log)
	must(t, err)
	t.Cleanup(w.Close)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func operator(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "op", TenantID: "platform", AllTenants: true, Permissions: map[string]bool{"scheduler.write": true}})
}

// snapshot has n centers, registered too.
func (w *world) snapshot(t testing.TB, n int) *place.Snapshot {
	t.Helper()
	out := &place.Snapshot{}
	for i := range n {
		id := fmt.Sprintf("c%04d", i)
		_, err := w.reg.CreateCenter(t.Context(), registry.Center{ID: id, Name: id, Region: []string{"north", "south"}[i%2]})
		must(t, err)
		out.Candidates = append(out.Candidates, place.Candidate{ID: id, Region: []string{"north", "south"}[i%2], Status: place.Available, Free: place.Amounts{"cpu": int64(i+1) * 1000}})
	}
	return out
}

func (w *world) choices(t testing.TB, ctx context.Context, snap *place.Snapshot, items []*scheduler.Item) ([]string, scheduler.Verdict) {
	t.Helper()
	works := make([]place.Work, len(items))
	for i, it := range items {
		works[i] = it.Work
	}
	v, err := w.Choose(ctx, snap, items, works, place.Presets()[0])
	must(t, err)
	out := make([]string, len(works))
	for i := range works {
		if works[i].Set != nil {
			out[i] = works[i].Set.ID
		}
	}
	return out, v
}

func item(id, tenant string) *scheduler.Item {
	return &scheduler.Item{Work: place.Work{ID: id, Tenant: tenant, Tasks: []place.Task{{ID: "0", Replicas: 1, Spec: "s", Kind: "cpu"}}}}
}

func engines(t *testing.T, f func(t *testing.T, ctx context.Context, url string)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, operator(t.Context()), filepath.Join(t.TempDir(), "yunhe.db"))
	})
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, operator(t.Context()), enginetest.Postgres(t)) })
}

// A policy is in force between its dates, and changes by another process are
// seen within a second; what was chosen before them cannot be committed.
func TestDatesAndGenerations(t *testing.T) {
	engines(t, func(t *testing.T, ctx context.Context, url string) {
		w := open(t, url)
		snap := w.snapshot(t, 2)
		d := Document{ID: "dated", From: w.d.Now().Add(time.Hour), To: w.d.Now().Add(2 * time.Hour), Rules: Rules{Preset: "nearest"}}
		_, err := w.Create(ctx, d, "")
		must(t, err)
		_, err = w.Issue(ctx, "dated", 0, nil, "")
		must(t, err)
		items := []*scheduler.Item{item("j1", "a")}
		for _, want := range []string{"", "dated@1", ""} {
			if got, _ := w.choices(t, ctx, snap, items); got[0] != want {
				t.Errorf("at %s: %q, want %q", w.d.Now(), got[0], want)
			}
			w.now.Add(time.Hour.Microseconds())
		}
		_, before := w.choices(t, ctx, snap, items)
		must(t, w.d.Tx(ctx, func(tx *db.Tx) error { return before.CommitTx(ctx, tx, nil) }))
		// As another process does it: this one's memory does not know.
		must(t, w.d.Tx(ctx, func(tx *db.Tx) error {
			h, err := getHead(ctx, tx, "dated")
			if err != nil {
				return err
			}
			h.issued, h.scope = 0, ""
			if err := writeHead(ctx, tx, h); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE policy_state SET generation = generation + 1 WHERE one = 1`)
			return err
		}))
		err = w.d.Tx(ctx, func(tx *db.Tx) error { return before.CommitTx(ctx, tx, nil) })
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("committed what other policies chose: %v", err)
		}
		w.now.Add(time.Second.Microseconds())
		b, err := w.current(ctx)
		must(t, err)
		if len(b.entries) != 0 {
			t.Error("the change of another process is not seen after a second")
		}
	})
}

// Many choose at once while policies change: every choice is one that was in
// force, and the same jobs get the same sets in whatever order they come.
func TestChooseTogether(t *testing.T) {
	engines(t, func(t *testing.T, ctx context.Context, url string) {
		w := open(t, url)
		snap := w.snapshot(t, 4)
		for _, preset := range []string{"nearest", "lowest-cost"} {
			d := Document{ID: "p", Rules: Rules{Preset: preset, Filters: []FilterRule{{ID: "f", Expression: `region == "north" || job.tenant == "a"`}}}}
			if _, err := w.Create(ctx, d, ""); err != nil {
				_, err = w.Update(ctx, d, 0, "")
				must(t, err)
			}
		}
		_, err := w.Issue(ctx, "p", 1, nil, "")
		must(t, err)
		var items []*scheduler.Item
		for i := range 50 {
			items = append(items, item(fmt.Sprint("j", i), []string{"a", "b"}[i%2]))
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 20 {
					works := make([]place.Work, len(items))
					for i, it := range items {
						works[i] = it.Work
					}
					if _, err := w.Choose(ctx, snap, items, works, place.Presets()[0]); err != nil {
						t.Error(err)
						return
					}
					for i := range works {
						set := works[i].Set
						if set == nil || set.ID != works[0].Set.ID || (set.ID != "p@1" && set.ID != "p@2") {
							t.Errorf("%d chosen by %v", i, set)
							return
						}
					}
				}
			})
		}
		for i := range 20 {
			_, err := w.Issue(ctx, "p", int64(i%2+1), nil, "")
			must(t, err)
		}
		group.Wait()
		forth, _ := w.choices(t, ctx, snap, items)
		slices.Reverse(items)
		back, _ := w.choices(t, ctx, snap, items)
		slices.Reverse(back)
		if strings.Join(forth, " ") != strings.Join(back, " ") {
			t.Errorf("chosen by %v, in the other order by %v", forth, back)
		}
	})
}

// BenchmarkChoose is what policies cost a cycle: 2,000 jobs of 20 classes,
// 20 policies with match rules, filters and scores, 1,000 centers.
func BenchmarkChoose(b *testing.B) {
	w := open(b, filepath.Join(b.TempDir(), "yunhe.db"))
	ctx := operator(b.Context())
	snap := w.snapshot(b, 1000)
	for i := range 20 {
		d := Document{ID: fmt.Sprint("p", i), Priority: int64(i), Match: []MatchRule{{Expression: fmt.Sprintf(`job.tenant == "t%d" && "cpu" in job.kinds`, i)}},
			Rules: Rules{Weights: map[string]int64{"lowest-price": 3, "s": 1}, Filters: []FilterRule{{ID: "f", Expression: `security_grade >= 0`}}, Scores: []ScoreRule{{ID: "s", Expression: `region == "north" ? 80 : 20`}}}}
		_, err := w.Create(ctx, d, "")
		must(b, err)
		_, err = w.Issue(ctx, d.ID, 0, nil, "")
		must(b, err)
	}
	items := make([]*scheduler.Item, 2000)
	for i := range items {
		items[i] = item(fmt.Sprint("j", i), fmt.Sprint("t", i%20))
	}
	works := make([]place.Work, len(items))
	b.ResetTimer()
	for b.Loop() {
		for i, it := range items {
			works[i] = it.Work
		}
		if _, err := w.Choose(ctx, snap, items, works, place.Presets()[0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(items))/b.Elapsed().Seconds(), "jobs/s")
}
