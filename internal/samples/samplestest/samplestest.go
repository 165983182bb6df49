// Package samplestest is the suite that every engine of samples.Store passes.
// What it checks is what callers may rely on.
package samplestest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/samples"
)

// Run runs the suite. open returns a store whose clock is the real one; it may
// be the same for all subtests, which use names of their own.
func Run(t *testing.T, open func(t *testing.T) *samples.Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s *samples.Store)
	}{
		{"what is appended is found", found},
		{"every kind of result", results},
		{"every float", floats},
		{"the first value of a time stays", duplicates},
		{"late samples are stored within the window", late},
		{"early samples are refused", early},
		{"a bad sample refuses its batch", badSamples},
		{"bad queries are invalid", badQueries},
		{"too many series are invalid", manySeries},
		{"concurrent appends and queries", concurrent},
		{"an ended context ends calls", ended},
		{"an enforced query sees one tenant", enforced},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// base is a recent whole second: what subtests append lies around it.
func base() time.Time { return time.Now().Add(-time.Minute).UTC().Truncate(time.Second) }

func mustAppend(t *testing.T, s *samples.Store, want samples.Report, batch ...samples.Sample) {
	t.Helper()
	got, err := s.Append(t.Context(), batch)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	if got != want {
		t.Errorf("append: got %+v, want %+v", got, want)
	}
}

func mustQuery(t *testing.T, s *samples.Store, expr string, at time.Time) []samples.Series {
	t.Helper()
	got, err := s.Query(t.Context(), expr, at)
	if err != nil {
		t.Fatalf("query %s: %v", expr, err)
	}
	return got
}

func wantSeries(t *testing.T, what string, got []samples.Series, want ...samples.Series) {
	t.Helper()
	opts := cmp.Options{cmpopts.EquateNaNs(), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantKind(t *testing.T, what string, err error, want fault.Kind, words ...string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: got kind %v, want %v (error: %v)", what, fault.KindOf(err), want, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error does not say %q: %v", what, word, err)
		}
	}
}

func points(from time.Time, step time.Duration, values ...float64) []samples.Point {
	var out []samples.Point
	for i, v := range values {
		out = append(out, samples.Point{At: from.Add(time.Duration(i) * step), Value: v})
	}
	return out
}

func found(t *testing.T, s *samples.Store) {
	at := base()
	mustAppend(t, s, samples.Report{Stored: 4},
		samples.Sample{Name: "found_use", Labels: samples.L("zone", "z", "center", "a", "empty", ""), Value: 1, At: at},
		samples.Sample{Name: "found_use", Labels: samples.L("center", "中心 \"b\"\n"), Value: 2, At: at},
		samples.Sample{Name: "found_use", Labels: samples.L("zone", "z", "center", "a"), Value: 3, At: at.Add(30*time.Second + time.Millisecond)},
		samples.Sample{Name: "found_other", Value: 9, At: at},
	)
	a := samples.Series{Name: "found_use", Labels: samples.L("center", "a", "zone", "z"), Points: points(at, 0, 1)}
	b := samples.Series{Name: "found_use", Labels: samples.L("center", "中心 \"b\"\n"), Points: points(at, 0, 2)}
	wantSeries(t, "at base", mustQuery(t, s, "sort(found_use)", at), a, b)
	wantSeries(t, "before base", mustQuery(t, s, "found_use", at.Add(-time.Millisecond)))
	wantSeries(t, "one of them", mustQuery(t, s, `found_use{center=~"中[^x]*"}`, at), b)
	wantSeries(t, "no such name", mustQuery(t, s, "found_nothing", at))
	wantSeries(t, "no labels", mustQuery(t, s, "found_other", at), samples.Series{Name: "found_other", Points: points(at, 0, 9)})

	got, err := s.QueryRange(t.Context(), `found_use{center="a"}`, at, at.Add(40*time.Second), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	a.Points = points(at, 10*time.Second, 1, 1, 1, 1, 3)
	wantSeries(t, "range", got, a)
}

func results(t *testing.T, s *samples.Store) {
	at := base()
	var batch []samples.Sample
	for i := range 5 {
		batch = append(batch, samples.Sample{Name: "results_total", Labels: samples.L("k", "v"), Value: float64(10 * i), At: at.Add(time.Duration(i) * 10 * time.Second)})
	}
	mustAppend(t, s, samples.Report{Stored: 5}, batch...)
	end := at.Add(40 * time.Second)
	wantSeries(t, "scalar", mustQuery(t, s, "1 + 1", end), samples.Series{Points: points(end, 0, 2)})
	wantSeries(t, "range selector", mustQuery(t, s, "results_total[25s]", end),
		samples.Series{Name: "results_total", Labels: samples.L("k", "v"), Points: points(at.Add(20*time.Second), 10*time.Second, 20, 30, 40)})
	wantSeries(t, "function", mustQuery(t, s, "increase(results_total[40s]) * 0 + 7", end),
		samples.Series{Labels: samples.L("k", "v"), Points: points(end, 0, 7)})
	wantSeries(t, "aggregate", mustQuery(t, s, "sum(results_total)", end), samples.Series{Points: points(end, 0, 40)})
	wantSeries(t, "offset", mustQuery(t, s, "results_total offset 10s", end),
		samples.Series{Name: "results_total", Labels: samples.L("k", "v"), Points: points(end, 0, 30)})
	_, err := s.Query(t.Context(), `"text"`, end)
	wantKind(t, "string", err, fault.Invalid, "string")
	got, err := s.QueryRange(t.Context(), "vector(time() * 0 + 1.5)", at, at, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	wantSeries(t, "range of one", got, samples.Series{Points: points(at, 0, 1.5)})
}

func floats(t *testing.T, s *samples.Store) {
	at := base().Add(123 * time.Millisecond)
	values := []float64{0, 1.0 / 3, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN(), 1 << 53}
	for i, v := range values {
		name := fmt.Sprintf("floats_%d", i)
		mustAppend(t, s, samples.Report{Stored: 1}, samples.Sample{Name: name, Value: v, At: at})
		got := mustQuery(t, s, name, at)
		wantSeries(t, fmt.Sprint(v), got, samples.Series{Name: name, Points: points(at, 0, v)})
	}
}

func duplicates(t *testing.T, s *samples.Store) {
	at := base()
	first := samples.Sample{Name: "duplicates", Labels: samples.L("a", "1", "b", "2"), Value: 1, At: at}
	other := samples.Sample{Name: "duplicates", Labels: samples.L("b", "2", "a", "1"), Value: 2, At: at}
	good := samples.Sample{Name: "duplicates_good", Value: 5, At: at}
	mustAppend(t, s, samples.Report{Stored: 1}, first)
	mustAppend(t, s, samples.Report{Stored: 1}, first) // the same again
	mustAppend(t, s, samples.Report{Stored: 1, Duplicate: 1}, other, good)
	wantSeries(t, "first", mustQuery(t, s, "duplicates", at),
		samples.Series{Name: "duplicates", Labels: samples.L("a", "1", "b", "2"), Points: points(at, 0, 1)})
	wantSeries(t, "neighbor", mustQuery(t, s, "duplicates_good", at), samples.Series{Name: "duplicates_good", Points: points(at, 0, 5)})

	nan := samples.Sample{Name: "duplicates_nan", Value: math.NaN(), At: at}
	mustAppend(t, s, samples.Report{Stored: 2}, nan, nan)
	mustAppend(t, s, samples.Report{Stored: 1}, nan)

	first.At, other.At = at.Add(time.Second), at.Add(time.Second)
	mustAppend(t, s, samples.Report{Stored: 2, Duplicate: 1}, first, other, first) // within one batch
	wantSeries(t, "first in batch", mustQuery(t, s, "duplicates", first.At),
		samples.Series{Name: "duplicates", Labels: samples.L("a", "1", "b", "2"), Points: points(first.At, 0, 1)})
}

func late(t *testing.T, s *samples.Store) {
	now := base()
	sample := func(name string, ago time.Duration, v float64) samples.Sample {
		return samples.Sample{Name: name, Labels: samples.L("agent", "x"), Value: v, At: now.Add(-ago)}
	}
	mustAppend(t, s, samples.Report{Stored: 1}, sample("late", 0, 0))
	mustAppend(t, s, samples.Report{Stored: 3}, sample("late", 2*time.Minute, 2), sample("late", time.Minute, 1), sample("late", 9*time.Minute, 9))
	mustAppend(t, s, samples.Report{Stored: 1}, sample("late_new", 8*time.Minute, 8))
	mustAppend(t, s, samples.Report{Stored: 2, Late: 2},
		sample("late", 30*time.Second, 0.5), sample("late", 3*time.Hour, 180), sample("late_new", 4*time.Hour, 240), sample("late_new", 7*time.Minute, 7))
	wantSeries(t, "late", mustQuery(t, s, "late[20m]", now), samples.Series{
		Name: "late", Labels: samples.L("agent", "x"),
		Points: []samples.Point{
			{At: now.Add(-9 * time.Minute), Value: 9},
			{At: now.Add(-2 * time.Minute), Value: 2},
			{At: now.Add(-time.Minute), Value: 1},
			{At: now.Add(-30 * time.Second), Value: 0.5},
			{At: now, Value: 0},
		},
	})
	wantSeries(t, "late_new", mustQuery(t, s, "late_new[5h]", now), samples.Series{
		Name: "late_new", Labels: samples.L("agent", "x"), Points: points(now.Add(-8*time.Minute), time.Minute, 8, 7),
	})
}

func early(t *testing.T, s *samples.Store) {
	now := base()
	mustAppend(t, s, samples.Report{Stored: 2, Early: 2},
		samples.Sample{Name: "early", Value: 1, At: now},
		samples.Sample{Name: "early", Value: 2, At: time.Now().Add(samples.LateWindow + time.Minute)},
		samples.Sample{Name: "early", Value: 3, At: time.Now().AddDate(100, 0, 0)},
		samples.Sample{Name: "early", Labels: samples.L("a", "b"), Value: 4, At: time.Now()},
	)
	wantSeries(t, "early", mustQuery(t, s, "count_over_time(early[1h])", now), samples.Series{Points: points(now, 0, 1)})
	mustAppend(t, s, samples.Report{Early: 1}, samples.Sample{Name: "early", Value: 3, At: time.Now().AddDate(1, 0, 0)})
	mustAppend(t, s, samples.Report{})
}

func badSamples(t *testing.T, s *samples.Store) {
	at := base()
	good := samples.Sample{Name: "bad_good", Value: 1, At: at}
	for _, bad := range []samples.Sample{
		{Name: "", At: at},
		{Name: "1a", At: at},
		{Name: "a-b", At: at},
		{Name: "名", At: at},
		{Name: strings.Repeat("a", samples.MaxName+1), At: at},
		{Name: "a", Labels: samples.L("", "v"), At: at},
		{Name: "a", Labels: samples.L("a:b", "v"), At: at},
		{Name: "a", Labels: samples.L("__name__", "v"), At: at},
		{Name: "a", Labels: samples.L("l", "\xff"), At: at},
		{Name: "a", Labels: samples.L("l", strings.Repeat("v", samples.MaxLabelValue+1)), At: at},
		{Name: "a", Labels: samples.L("l", "1", "m", "2", "l", "3"), At: at},
		{Name: "a", Labels: make(samples.Labels, samples.MaxLabels+1), At: at},
		{Name: "a"},
		{Name: "a", At: time.Unix(-1, 0)},
		{Name: "a", At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		report, err := s.Append(t.Context(), []samples.Sample{good, bad})
		wantKind(t, fmt.Sprintf("append %.40q %.40q at %v", bad.Name, bad.Labels, bad.At), err, fault.Invalid, "sample 1: ")
		if report != (samples.Report{}) {
			t.Errorf("append %.40q: got %+v, want nothing stored", bad.Name, report)
		}
	}
	_, err := s.Append(t.Context(), make([]samples.Sample, samples.MaxBatch+1))
	wantKind(t, "batch above the limit", err, fault.Invalid, fmt.Sprint(samples.MaxBatch))
	wantSeries(t, "good neighbors", mustQuery(t, s, "bad_good", at))
}

func badQueries(t *testing.T, s *samples.Store) {
	at := base()
	for _, expr := range []string{"", "  ", "(", "foo{", "foo{}}", "rate(foo)", "unknown_function(foo)", "foo + + ", strings.Repeat("a", samples.MaxExpr+1)} {
		_, err := s.Query(t.Context(), expr, at)
		wantKind(t, fmt.Sprintf("query %.20q", expr), err, fault.Invalid)
		_, err = s.QueryRange(t.Context(), expr, at, at, time.Second)
		wantKind(t, fmt.Sprintf("range query %.20q", expr), err, fault.Invalid)
	}
	mustAppend(t, s, samples.Report{Stored: 2},
		samples.Sample{Name: "bad_left", Labels: samples.L("x", "1"), At: at}, samples.Sample{Name: "bad_left", Labels: samples.L("x", "2"), At: at})
	_, err := s.Query(t.Context(), "bad_left + on() bad_left", at)
	wantKind(t, "ambiguous match", err, fault.Invalid)
	for _, step := range []time.Duration{-time.Second, 0, time.Microsecond} {
		_, err = s.QueryRange(t.Context(), "1", at, at.Add(time.Minute), step)
		wantKind(t, fmt.Sprint("step ", step), err, fault.Invalid, "step")
	}
	_, err = s.QueryRange(t.Context(), "1", at, at.Add(-time.Millisecond), time.Second)
	wantKind(t, "a range that ends before it begins", err, fault.Invalid)
	_, err = s.QueryRange(t.Context(), "1", at, at.Add(samples.MaxPoints*time.Second), time.Second)
	wantKind(t, "one point too many", err, fault.Invalid, "11001", "11000")
	got, err := s.QueryRange(t.Context(), "vector(1)", at, at.Add((samples.MaxPoints-1)*time.Second), time.Second)
	if err != nil || len(got) != 1 || len(got[0].Points) != samples.MaxPoints {
		t.Errorf("as many points as allowed: got %d series, %v, want 1 with %d points", len(got), err, samples.MaxPoints)
	}
	_, err = s.QueryRange(t.Context(), "1", time.Unix(0, 0), time.Unix(200e9, 0), time.Millisecond)
	wantKind(t, "a range of millennia", err, fault.Invalid)
	_, err = s.Query(t.Context(), "1", time.Time{})
	wantKind(t, "no time", err, fault.Invalid, "year 1")
}

func manySeries(t *testing.T, s *samples.Store) {
	at := base()
	var batch []samples.Sample
	for i := range samples.MaxSeries + 1 {
		batch = append(batch, samples.Sample{Name: "many", Labels: samples.L("i", fmt.Sprint(i)), Value: 1, At: at})
	}
	mustAppend(t, s, samples.Report{Stored: len(batch)}, batch...)
	_, err := s.Query(t.Context(), "many", at)
	wantKind(t, "one series too many", err, fault.Invalid, "10001", "10000")
	_, err = s.QueryRange(t.Context(), "many", at, at, time.Second)
	wantKind(t, "one series too many in a range", err, fault.Invalid, "10001", "10000")
	if got := mustQuery(t, s, `many{i!="0"}`, at); len(got) != samples.MaxSeries {
		t.Errorf("as many series as allowed: got %d", len(got))
	}
	wantSeries(t, "count", mustQuery(t, s, "count(many)", at), samples.Series{Points: points(at, 0, samples.MaxSeries+1)})
}

func concurrent(t *testing.T, s *samples.Store) {
	at := base()
	const writers, batches, each = 4, 10, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for b := range batches {
				var batch []samples.Sample
				for i := range each {
					batch = append(batch, samples.Sample{
						Name: "concurrent", Labels: samples.L("w", fmt.Sprint(w), "i", fmt.Sprint(i)), Value: 1,
						At: at.Add(time.Duration(b) * time.Second),
					})
				}
				if report, err := s.Append(t.Context(), batch); err != nil || report.Stored != each {
					t.Errorf("append: %+v, %v, want all %d stored", report, err, each)
				}
				if _, err := s.Query(t.Context(), "sum by (w) (concurrent)", at.Add(time.Minute)); err != nil {
					t.Errorf("query: %v", err)
				}
			}
		})
	}
	wg.Wait()
	end := at.Add(30 * time.Second)
	wantSeries(t, "all of them", mustQuery(t, s, "sum(count_over_time(concurrent[1m]))", end),
		samples.Series{Points: points(end, 0, writers*batches*each)})
}

func ended(t *testing.T, s *samples.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Append(ctx, []samples.Sample{{Name: "ended", At: base()}})
	wantKind(t, "append", err, fault.Canceled)
	_, err = s.Query(ctx, "ended", base())
	wantKind(t, "query", err, fault.Canceled)
	_, err = s.QueryRange(ctx, "ended", base(), base(), time.Second)
	wantKind(t, "range query", err, fault.Canceled)
}

func enforced(t *testing.T, s *samples.Store) {
	at := base().Truncate(time.Minute).Add(time.Second) // not where windows meet
	mustAppend(t, s, samples.Report{Stored: 3},
		samples.Sample{Name: "enforced", Labels: samples.L("tenant", "mine", "job", "1"), Value: 1, At: at},
		samples.Sample{Name: "enforced", Labels: samples.L("tenant", "other", "job", "1"), Value: 10, At: at},
		samples.Sample{Name: "enforced", Labels: samples.L("job", "1"), Value: 100, At: at},
	)
	for expr, want := range map[string]float64{
		"sum(enforced)":                                   1,
		`sum({__name__=~"enforced"})`:                     1,
		`sum(enforced{tenant=~".*"})`:                     1,
		"sum(max_over_time(enforced[1m]))":                1,
		"sum(sum_over_time(enforced[1m:1m] @ end()))":     1,
		`sum(enforced) + sum(enforced{tenant!="nobody"})`: 2,
		`count(enforced or enforced{job="1"})`:            1,
	} {
		confined, err := samples.Enforce(expr, "tenant", "mine")
		if err != nil {
			t.Errorf("enforce %s: %v", expr, err)
			continue
		}
		got := mustQuery(t, s, confined, at.Truncate(time.Minute).Add(time.Minute))
		if len(got) != 1 || got[0].Points[0].Value != want {
			t.Errorf("%s, enforced as %s: got %v, want %v", expr, confined, got, want)
		}
	}
	confined, err := samples.Enforce(`sum(enforced{tenant="other"})`, "tenant", "mine")
	if err != nil {
		t.Fatal(err)
	}
	wantSeries(t, "another tenant's", mustQuery(t, s, confined, at))
}
