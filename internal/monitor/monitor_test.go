package monitor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/samples"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, at string) *samples.Store {
	t.Helper()
	s, err := samples.Open(samples.Config{URL: at}, slog.New(slog.DiscardHandler), time.Now)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}

// each runs a test on both engines of the store.
func each(t *testing.T, f func(t *testing.T, store *samples.Store)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); f(t, openStore(t, t.TempDir())) })
	t.Run("prometheus", func(t *testing.T) { t.Parallel(); f(t, openStore(t, enginetest.Prometheus(t))) })
}

func fill(t testing.TB, store *samples.Store, batch []samples.Sample) {
	t.Helper()
	report, err := store.Append(t.Context(), batch)
	if err != nil || report.Stored != len(batch) {
		t.Fatalf("append %d samples: %+v, %v", len(batch), report, err)
	}
}

func as(ctx context.Context, c core.Caller) context.Context { return core.WithCaller(ctx, c) }

// tenants are chosen to be taken for one another: as prefixes, as patterns,
// by case.
var tenants = []string{"a", "ab", "A", "a.", "a|b", ".*", "b", "租户", `a"}`}

// world is a minute of samples of every tenant and of none, a few values each.
func world(end time.Time) []samples.Sample {
	var out []samples.Sample
	for at := end.Add(-time.Minute); !at.After(end); at = at.Add(10 * time.Second) {
		n := float64(at.Unix() % 100)
		out = append(out, samples.Sample{Name: "x", Labels: samples.L("center", "c1"), Value: n, At: at},
			samples.Sample{Name: "y", Labels: samples.L("center", "c1"), Value: 2 * n, At: at})
		for i, tenant := range tenants {
			out = append(out, samples.Sample{Name: "x", Labels: samples.L("center", "c1", "tenant", tenant), Value: n + float64(i), At: at},
				samples.Sample{Name: "only_" + string(rune('p'+i)), Labels: samples.L("tenant", tenant), Value: n, At: at})
		}
	}
	return out
}

func visible(batch []samples.Sample, tenant string) []samples.Sample {
	return slices.DeleteFunc(slices.Clone(batch), func(s samples.Sample) bool {
		own := s.Labels.Get("tenant")
		return own != "" && own != tenant
	})
}

// exprs have no range that ends on a sample: whether that one counts differs
// between versions of Prometheus.
var exprs = []string{
	`x`, `y`, `-x`, `(x)`, `x{tenant="b"}`, `x{tenant="a"}`, `x{tenant=""}`, `x{tenant!="a"}`, `x{tenant=~".*"}`, `x{tenant=~".+"}`, `x{tenant!~"a.*"}`,
	`x{tenant="b",tenant=~"b"}`, `x{"tenant"="b"}`, `{"x",tenant="b"}`, `{__name__=~".+"}`, `{tenant="b"}`, `{tenant=~"b|A"}`, `{tenant!=""}`, `{center="c1"} or {tenant="b"}`,
	`only_p`, `only_v`, `x or only_v`, `x and on(center) y`, `x unless on(tenant) x{tenant="a"}`, `x * on(center) group_left y`, `sum(x)`, `count(x)`, `count by (tenant) (x)`,
	`topk(3, x)`, `count_values("v", x)`, `quantile(0.5, x)`, `group(x) by (tenant)`, `absent(x{tenant="b"})`, `absent(only_v)`, `absent_over_time(x{tenant="b"}[35s])`,
	`label_replace(x, "tenant", "a", "tenant", ".*")`, `label_replace(x, "who", "$1", "tenant", "(.*)")`, `label_join(x, "who", "-", "tenant", "center")`, `x offset 10s`, `x offset -10s`, `x @ end()`, `x{tenant="b"} @ start()`,
	`max_over_time(x[35s])`, `max_over_time(x[55s:10s])`, `sum_over_time(sum(x)[55s:10s])`, `deriv(x[55s])`, `scalar(sum(x))`, `vector(1)`, `1`, `1 + sum(x)`, `time()`,
	`x # {tenant="b"}`, "x{tenant=\"b\"\n}", `sort_desc(x)`, `changes(x[55s])`, `x == 3`, `x > bool 3`, `count({__name__!=""})`, `last_over_time({tenant="b"}[55s])`, `timestamp(x{tenant="b"})`,
}

// A confined query of all series answers what the query itself answers where
// no other tenant's series exist.
func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *samples.Store) {
		end := time.Now().UTC().Truncate(10 * time.Second)
		all := world(end)
		fill(t, store, all)
		s := monitor.New(store, slog.New(slog.DiscardHandler))
		for _, tenant := range append([]string{"without-series"}, tenants...) {
			alone := openStore(t, t.TempDir())
			fill(t, alone, visible(all, tenant))
			answers := 0
			for _, expr := range exprs {
				r := monitor.Range{Query: expr, Start: end.Add(-time.Minute), End: end, StepSeconds: 10}
				got, err := s.QueryRange(as(t.Context(), core.Caller{TenantID: tenant}), r)
				want, werr := alone.QueryRange(t.Context(), expr, r.Start, r.End, 10*time.Second)
				if fault.KindOf(err) != fault.KindOf(werr) { // neither, or both fail
					t.Errorf("%s asks %s: %v, alone %v", tenant, expr, err, werr)
				}
				answers += len(want)
				if diff := cmp.Diff(sorted(ofAbsent(expr, want)), sorted(ofAbsent(expr, got)), cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
					t.Errorf("%s asks %s (-alone +confined): %s", tenant, expr, diff)
				}
			}
			if answers < len(exprs)/2 {
				t.Errorf("%s got %d series in all: the test tests little", tenant, answers)
			}
		}
		for _, expr := range exprs {
			r := monitor.Range{Query: expr, Start: end.Add(-time.Minute), End: end, StepSeconds: 10}
			got, err := s.QueryRange(as(t.Context(), core.Caller{TenantID: "a", AllTenants: true}), r)
			want, werr := store.QueryRange(t.Context(), expr, r.Start, r.End, 10*time.Second)
			if fault.KindOf(err) != fault.KindOf(werr) { // an older server may not know the syntax
				t.Errorf("who may see all asks %s: %v, the store says %v", expr, err, werr)
			}
			if diff := cmp.Diff(sorted(want), sorted(got), cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("who may see all asks %s (-want +got): %s", expr, diff)
			}
		}
	})
}

// ofAbsent takes the tenant off an answer that absent() may have put there: it
// repeats the query, not the data.
func ofAbsent(expr string, series []samples.Series) []samples.Series {
	if strings.Contains(strings.ToLower(expr), "absent") {
		for i := range series {
			series[i].Labels = slices.DeleteFunc(series[i].Labels, func(l samples.Label) bool { return l.Name == "tenant" })
		}
	}
	return series
}

func sorted(series []samples.Series) []samples.Series {
	slices.SortFunc(series, func(a, b samples.Series) int {
		return strings.Compare(fmt.Sprint(a.Name, a.Labels), fmt.Sprint(b.Name, b.Labels))
	})
	return series
}

// FuzzTenantsAreIsolated is TestTenantsAreIsolated for any expression.
func FuzzTenantsAreIsolated(f *testing.F) {
	for _, expr := range exprs {
		f.Add(expr)
	}
	end := time.Now().UTC().Truncate(10 * time.Second)
	full, alone := openStore(f, f.TempDir()), openStore(f, f.TempDir())
	all := world(end)
	fill(f, full, all)
	fill(f, alone, visible(all, "a"))
	s := monitor.New(full, slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, expr string) {
		r := monitor.Range{Query: expr, Start: end.Add(-20 * time.Second), End: end, StepSeconds: 10}
		got, err := s.QueryRange(as(t.Context(), core.Caller{TenantID: "a"}), r)
		want, werr := alone.QueryRange(t.Context(), expr, r.Start, r.End, 10*time.Second)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%q: %v, want an answer or invalid", expr, err)
			}
			return
		}
		if werr != nil {
			t.Fatalf("%q: confined %v, alone %v", expr, got, werr)
		}
		if diff := cmp.Diff(sorted(ofAbsent(expr, want)), sorted(ofAbsent(expr, got)), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%q (-alone +confined): %s", expr, diff)
		}
	})
}

func TestQueryRangeRejects(t *testing.T) {
	t.Parallel()
	s := monitor.New(openStore(t, t.TempDir()), slog.New(slog.DiscardHandler))
	end := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return end }
	day := 24 * time.Hour
	for _, c := range []struct {
		r             monitor.Range
		path, problem string // none: valid
	}{
		{monitor.Range{Query: "x"}, "", ""},
		{monitor.Range{}, "query", "is required"},
		{monitor.Range{Query: strings.Repeat(" ", 4095) + "x"}, "", ""},
		{monitor.Range{Query: strings.Repeat(" ", 4096) + "x"}, "query", "must be at most 4096 bytes, got 4097"},
		{monitor.Range{Query: "x{"}, "query", "is not PromQL: 1:3: parse error"},
		{monitor.Range{Query: "\xff"}, "query", "is not PromQL"},
		{monitor.Range{Query: "info(x)"}, "query", "is not PromQL"},
		{monitor.Range{Query: "x", Start: end.Add(time.Second)}, "start", "must not be after end 2026-05-01T00:00:00Z, got 2026-05-01T00:00:01Z"},
		{monitor.Range{Query: "x", Start: end.Add(-31 * day)}, "", ""},
		{monitor.Range{Query: "x", Start: end.Add(-32 * day)}, "start", "must be at most 31 days before end, got 32.0 days"},
		{monitor.Range{Query: "x", Start: time.Unix(1, 0)}, "start", "must be at most 31 days before end, got 20574.0 days"},
		{monitor.Range{Query: "x", Start: time.Unix(-1, 0)}, "start", "must be between the years 1970 and 9999, got year 1969"},
		{monitor.Range{Query: "x", Start: end, End: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "end", "must be between the years 1970 and 9999, got year 10000"},
		{monitor.Range{Query: "x", StepSeconds: -1}, "step_seconds", "must be between 1 and 2678400, or 0 for a 120th of the range, got -1"},
		{monitor.Range{Query: "x", StepSeconds: math.MaxInt64}, "step_seconds", "got 9223372036854775807"},
		{monitor.Range{Query: "x", StepSeconds: 2678400}, "", ""},
		{monitor.Range{Query: "x", Start: end.Add(-10_999 * time.Second), StepSeconds: 1}, "", ""},
		{monitor.Range{Query: "x", Start: end.Add(-11_000 * time.Second), StepSeconds: 1}, "step_seconds", "must be at least 2 for a range of 3h3m20s: 1 gives 11001 points per series, 11000 are allowed"},
		{monitor.Range{Query: "x", Start: end.Add(-31 * day), StepSeconds: 243}, "step_seconds", "must be at least 244"},
		{monitor.Range{Query: "x", Start: end.Add(-31 * day), StepSeconds: 244}, "", ""},
	} {
		_, err := s.QueryRange(as(t.Context(), core.Caller{TenantID: "a"}), c.r)
		fields := fault.FieldsOf(err)
		if c.path == "" && err != nil ||
			c.path != "" && (fault.KindOf(err) != fault.Invalid || len(fields) != 1 || fields[0].Path != c.path || !strings.Contains(fields[0].Problem, c.problem)) {
			t.Errorf("QueryRange(%+v): %v; want %s %s", c.r, err, c.path, c.problem)
		}
	}
	_, err := s.QueryRange(as(t.Context(), core.Caller{TenantID: "a"}), monitor.Range{Start: end.Add(time.Hour), StepSeconds: -5})
	if got := len(fault.FieldsOf(err)); got != 3 {
		t.Errorf("%d violations at once, want 3: %v", got, err)
	}
	if _, err := s.QueryRange(t.Context(), monitor.Range{Query: "x"}); fault.KindOf(err) != fault.Denied {
		t.Errorf("a caller of no tenant: %v, want denied", err)
	}
}

func TestQueryRangeBoundsTheAnswer(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	now := time.Now().UTC().Truncate(time.Second)
	var batch []samples.Sample
	for i := range 101 {
		batch = append(batch, samples.Sample{Name: "x", Labels: samples.L("i", fmt.Sprint(i)), Value: 1, At: now})
	}
	fill(t, store, batch)
	s := monitor.New(store, slog.New(slog.DiscardHandler))
	// max_over_time carries each sample through all 2000 points.
	r := monitor.Range{Query: `max_over_time(x{i!="100"}[1h])`, Start: now, End: now.Add(1999 * time.Second), StepSeconds: 1}
	ctx := as(t.Context(), core.Caller{TenantID: "a"})
	if got, err := s.QueryRange(ctx, r); err != nil || len(got) != 100 || len(got[0].Points) != 2000 {
		t.Errorf("200000 points: %d series, %v", len(got), err)
	}
	r.Query = `max_over_time(x[1h])`
	_, err := s.QueryRange(ctx, r)
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "has 202000 points in 101 series, 200000 points are allowed") {
		t.Errorf("202000 points: %v, want invalid", err)
	}
}

func TestQueryRangeDefaults(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	now := time.Now().UTC().Truncate(time.Second)
	fill(t, store, []samples.Sample{{Name: "x", Value: 1, At: now.Add(-time.Minute)}})
	s := monitor.New(store, slog.New(slog.DiscardHandler))
	s.Now = func() time.Time { return now }
	times := func(r monitor.Range) (first, last time.Time, n int) {
		r.Query = "vector(1)"
		got, err := s.QueryRange(as(t.Context(), core.Caller{TenantID: "a"}), r)
		must(t, err)
		p := got[0].Points
		return p[0].At, p[len(p)-1].At, len(p)
	}
	for _, c := range []struct {
		name        string
		r           monitor.Range
		first, last time.Time
		n           int
	}{
		{"the last hour in 120 steps", monitor.Range{}, now.Add(-time.Hour), now, 121},
		{"the hour before an end", monitor.Range{End: now.Add(-time.Hour)}, now.Add(-2 * time.Hour), now.Add(-time.Hour), 121},
		{"steps of a second at least", monitor.Range{Start: now.Add(-10 * time.Second)}, now.Add(-10 * time.Second), now, 11},
		{"one point", monitor.Range{Start: now}, now, now, 1},
	} {
		if first, last, n := times(c.r); !first.Equal(c.first) || !last.Equal(c.last) || n != c.n {
			t.Errorf("%s: %d points from %s to %s; want %d from %s to %s", c.name, n, first, last, c.n, c.first, c.last)
		}
	}
}

type gate map[string]core.Caller

func (g gate) Authenticate(_ context.Context, token string) (core.Caller, error) {
	c, ok := g[token]
	if !ok {
		return c, fault.New(fault.Unauthenticated, "unknown key")
	}
	return c, nil
}

func (gate) Audit(context.Context, core.Audit, string, string) error { return nil }

func TestOverTheWire(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	at := time.Now().UTC().Truncate(time.Second)
	fill(t, store, append(monitor.CenterSamples([]monitor.Center{{ID: "c1", CPUUsedMilli: 2500}}, at),
		samples.Sample{Name: "job_cpu", Labels: samples.L("tenant", "a"), Value: math.Inf(1), At: at},
		samples.Sample{Name: "job_cpu", Labels: samples.L("tenant", "b"), Value: 2, At: at}))
	reads := map[string]bool{"monitor.read": true}
	api := rpc.New(rpc.Config{}, gate{
		"a": {TenantID: "a", Permissions: reads}, "all": {AllTenants: true, Permissions: reads},
		"nowhere": {UserID: "usr_n", Permissions: reads}, "powerless": {TenantID: "a"},
	}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	monitor.New(store, slog.New(slog.DiscardHandler)).Register(api)
	h, err := api.Handler()
	must(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)

	ms := fmt.Sprint(at.UnixMilli())
	for _, c := range []struct {
		token, query, more string
		status             int
		want               string
	}{
		{"a", "yunhe_center_cpu_used_milli", "", 200, `{"series":[{"labels":{"__name__":"yunhe_center_cpu_used_milli","center":"c1"},"points":[{"at":"` + ms + `","value":2500}]}]}`},
		{"a", "job_cpu", "", 200, `{"series":[{"labels":{"__name__":"job_cpu","tenant":"a"},"points":[{"at":"` + ms + `","value":"Infinity"}]}]}`},
		{"all", "sum without (tenant) (job_cpu{tenant='b'})", "", 200, `{"series":[{"points":[{"at":"` + ms + `","value":2}]}]}`},
		{"a", "job_cpu{tenant='b'}", "", 200, `{}`},
		{"a", "x{", "", 400, `"field":"query"`},
		{"a", "x", "&step_seconds=-1", 400, `"field":"step_seconds"`},
		{"a", "x", "&start=2020-01-01T00:00:00Z", 400, `"field":"start"`},
		{"a", "x", "&color=red", 400, "color"},
		{"nowhere", "x", "", 403, "belongs to no tenant"},
		{"powerless", "x", "", 403, "monitor.read"},
		{"", "x", "", 401, "UNAUTHENTICATED"},
	} {
		q := url.Values{"query": {c.query}, "end": {at.Format(time.RFC3339)}}
		if !strings.Contains(c.more, "start") {
			q.Set("start", at.Format(time.RFC3339))
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/query-range?"+q.Encode()+c.more, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+c.token)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		body, err := io.ReadAll(res.Body)
		must(t, errors.Join(err, res.Body.Close()))
		got := string(body)
		if res.StatusCode == http.StatusOK {
			var v, w any
			must(t, json.Unmarshal(body, &v))
			must(t, json.Unmarshal([]byte(c.want), &w))
			if diff := cmp.Diff(w, prune(v)); diff == "" {
				got = c.want
			}
		}
		if res.StatusCode != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%q asks %s%s: %d %s, want %d %s", c.token, c.query, c.more, res.StatusCode, body, c.status, c.want)
		}
	}
}

// prune drops empty lists and objects: whether they are written is not ours.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			x = prune(x)
			v[k] = x
			if m, ok := x.(map[string]any); ok && len(m) == 0 {
				delete(v, k)
			}
			if l, ok := x.([]any); ok && len(l) == 0 {
				delete(v, k)
			}
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

// logBuffer holds what was logged.
type logBuffer struct {
	mu sync.Mutex // guards b

	b bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) lines(with string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			out = append(out, line)
		}
	}
	return out
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
