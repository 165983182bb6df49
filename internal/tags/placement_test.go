package tags_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/tags"
)

func TestExclude(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north")
		w.join(t, "c2", "south")
		w.set(t, ctx, "platform", "color=red")
		w.set(t, ctx, "center:c2", "color=green")
		const green, north, bad = `tags["color"] == "green"`, `region == "north"`, `region ==`
		exclude := func(what string, text, c1, c2 string) {
			t.Helper()
			got, err := w.Exclude(ctx, []string{text, text})
			must(t, err)
			if len(got) != 1 || got[text]["c1"] != c1 || got[text]["c2"] != c2 {
				t.Errorf("%s: %q", what, got)
			}
		}
		const isRed, isGreen = `does not meet tags["color"] == "green": tags["color"] is "red"`, ``
		exclude("by tag", green, isRed, isGreen)
		exclude("from memory", green, isRed, isGreen)
		exclude("by fact", north, "", `does not meet region == "north": region is "south"`)
		exclude("not an expression", bad, "cannot be judged by the task's expression: line 1, column 10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
			"cannot be judged by the task's expression: line 1, column 10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}")
		// What changed is seen at once: a tag, a fact, a tag that is hidden.
		w.set(t, ctx, "center:c1", "color=green")
		exclude("tag set", green, "", "")
		w.set(t, ctx, "center:c1", "color!")
		exclude("tag blocked", green, `does not meet tags["color"] == "green": has no tag color`, "")
		_, err := w.reg.UpdateCenter(ctx, registry.Center{ID: "c2", Name: "c2", Region: "north"})
		must(t, err)
		exclude("fact changed", north, "", "")
		d, err := w.Definition(ctx, "color")
		must(t, err)
		d.Hidden = true
		_, err = w.UpdateDefinition(ctx, d)
		must(t, err)
		const none = `does not meet tags["color"] == "green": has no tag color`
		exclude("tag hidden from policies", green, none, none)
		w.reopen(t)
		exclude("after a restart", green, none, none)
		if got, err := w.Exclude(ctx, nil); got != nil || err != nil {
			t.Errorf("nothing asked: %v, %v", got, err)
		}
	})
}

// fleet makes n tagged centers, and the same for the engine.
func fleet(tb testing.TB, w *world, ctx context.Context, n int) *place.Snapshot {
	tb.Helper()
	s := &place.Snapshot{}
	for i := range n {
		id := fmt.Sprintf("c%04d", i)
		_, err := w.reg.CreateCenter(ctx, registry.Center{ID: id, Region: fmt.Sprintf("region-%d", i%31)})
		must(tb, err)
		s.Candidates = append(s.Candidates, place.Candidate{ID: id, Region: fmt.Sprintf("region-%d", i%31), Status: place.Available, AnyImage: true,
			Total: place.Amounts{"cpu": 1e9}, Free: place.Amounts{"cpu": 1e9 - int64(i)*1e5}, Offers: map[string]place.Offer{"s": {PriceFenPerHour: place.Known(int64(100 + i%97))}}})
	}
	var most []string
	for i := range n {
		if i%4 != 0 {
			most = append(most, fmt.Sprintf("center:c%04d", i))
		}
	}
	res, err := w.Apply(ctx, tags.Batch{Selector: tags.Selector{Objects: most}, Changes: parse("on=true")})
	must(tb, err)
	if !res.Applied {
		tb.Fatalf("%+v", res)
	}
	return s
}

// BenchmarkPlacement: what expressions add to planning 1,000 jobs on 1,000
// centers: "plain" has none, "warm" answers from memory, "cold" after a change
// of a tag. Rounds alternate so that all three meet the same machine.
func BenchmarkPlacement(b *testing.B) {
	for _, kinds := range []int{1, 20, 1000} {
		b.Run(fmt.Sprintf("expressions=%d", kinds), func(b *testing.B) {
			ctx := operator(b.Context())
			w := newWorld(b, filepath.Join(b.TempDir(), "yunhe.db"))
			w.library(b, ctx)
			s := fleet(b, w, ctx, 1000)
			var list []place.Weight
			for _, p := range place.Policies() {
				list = append(list, place.Weight{Policy: p.ID, Weight: 1})
			}
			set, err := place.NewSet("all", place.Weighted, list)
			must(b, err)
			queue := func(with bool) (out []place.Work, texts []string) {
				for i := range 1000 {
					t := place.Task{ID: "0", Replicas: 1, Spec: "s", Kind: "cpu", Request: place.Amounts{"cpu": 1000}, RunSeconds: place.Known(600 + int64(i%max(kinds, 20)))}
					if with {
						t.Expression = fmt.Sprintf(`tags["on"] == "true" && region != "region-%d"`, 31+i%kinds)
						texts = append(texts, t.Expression)
					}
					out = append(out, place.Work{ID: fmt.Sprintf("job-%04d", i), Arrival: int64(i), Tasks: []place.Task{t}})
				}
				return out, texts
			}
			least := map[string]time.Duration{"plain": math.MaxInt64, "warm": math.MaxInt64, "cold": math.MaxInt64}
			round := func(name string) {
				works, texts := queue(name != "plain")
				if name == "cold" {
					w.set(b, ctx, "center:c0001", fmt.Sprintf("color=%d", time.Now().UnixNano()))
				}
				start := time.Now()
				unmet, err := w.Exclude(ctx, texts)
				must(b, err)
				snap := *s
				snap.Unmet = unmet
				res, err := place.Plan(&snap, works, set, place.Options{TableRows: 20})
				if err != nil || len(res.Placements) != 1000 {
					b.Fatalf("%d placed, %v", len(res.Placements), err)
				}
				least[name] = min(least[name], time.Since(start))
			}
			for b.Loop() {
				for _, name := range []string{"plain", "cold", "warm"} {
					round(name)
				}
			}
			for name, d := range least {
				b.ReportMetric(float64(d.Microseconds())/1000, name+"-ms")
			}
			b.ReportMetric(float64(least["warm"])/float64(least["plain"]), "warm/plain")
			b.ReportMetric(float64(least["cold"])/float64(least["plain"]), "cold/plain")
		})
	}
}
