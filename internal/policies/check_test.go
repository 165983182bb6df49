package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

func said(problems []Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%s:%d:%d: %s", p.Field, p.Line, p.Column, p.Text))
	}
	return strings.Join(out, "\n")
}

func TestCompile(t *testing.T) {
	t.Parallel()
	filter := func(text string) Rules { return Rules{Filters: []FilterRule{{ID: "f", Expression: text}}} }
	for _, c := range []struct {
		name string
		d    Document
		want []string // of all problems, in order; none: right
	}{
		{"right", Document{ID: "a", Match: []MatchRule{{Expression: `job.tenant == "x" && "gpu" in job.kinds && time.hour >= 8`}}, Rules: filter(`labels["tier"] == "gold" || free.gpu > 0`)}, nil},
		{"all at once", Document{ID: "a b", Priority: 1001, Combination: 9, JobWeights: 3, From: time.Unix(2, 0), To: time.Unix(1, 0)},
			[]string{"policy_id:0:0: must be letters", "priority:0:0: must be between -1000 and 1000, got 1001", "combination", "job_weights", "effective_to:0:0: must be after effective_from"}},
		{"expressions point into the text", Document{ID: "a", Match: []MatchRule{{Expression: "true &&\n  job.tenat == 'x'"}}, Rules: filter(`free["gpu"] + "x" > 1`)},
			[]string{"match_rules[0].expression:2:3: undeclared reference to 'job.tenat'", "rules.filters[0].expression:1:13: found no matching overload"}},
		{"a match rule reads no center", Document{ID: "a", Match: []MatchRule{{Expression: `region == "x"`}}}, []string{"match_rules[0].expression:1:1: undeclared reference to 'region'"}},
		{"a filter is true or false", Document{ID: "a", Rules: filter(`1 + 1`)}, []string{"rules.filters[0].expression:1:1: must be true or false, is of type int"}},
		{"a score is a number", Document{ID: "a", Rules: Rules{Scores: []ScoreRule{{ID: "s", Expression: `region`}}}}, []string{"rules.scores[0].expression:1:1: must be a number, is of type string"}},
		{"unknown policies, weights out of range", Document{ID: "a", Rules: Rules{Weights: map[string]int64{"lowest-price": 1001, "nearest": -1, "no": 1}}},
			[]string{"rules.weights.lowest-price:0:0: must be between 0 and 1000, got 1001", "rules.weights.nearest:0:0: must be", `rules.weights.no:0:0: there is no built-in policy and no own score "no"`, "rules.weights:0:0: at least one must be above 0"}},
		{"one way to weigh", Document{ID: "a", Rules: Rules{Preset: "nearest", Ranking: []string{"nearest"}}}, []string{"rules.weights:0:0: only one of weights, preset and ranking"}},
		{"preset and evaluator", Document{ID: "a", Rules: Rules{Preset: "no", Evaluator: "no"}}, []string{"rules.evaluator:0:0: must be one of weighted, lexicographic", `rules.preset:0:0: there is no preset "no"`}},
		{"vetoes", Document{ID: "a", Rules: Rules{Minimums: map[string]int64{"lowest-price": 101, "mine": 5, "no": 1}, Scores: []ScoreRule{{ID: "mine", Expression: "1"}}}},
			[]string{"rules.minimums.lowest-price:0:0: must be between 1 and 100, got 101", "rules.minimums.mine:0:0: is an own score", `rules.minimums.no:0:0: there is no built-in policy "no"`}},
		{"ranking", Document{ID: "a", Rules: Rules{Ranking: []string{"nearest", "x", "nearest"}}}, []string{"rules.ranking[1]:0:0: there is no built-in", `rules.ranking[2]:0:0: "nearest" is ranked twice`}},
		{"rules by expression or module", Document{ID: "a", Rules: Rules{Filters: []FilterRule{{ID: "f"}, {ID: "f", Expression: "true", Module: &ModuleUse{ID: "m"}}}}},
			[]string{"rules.filters[0].expression:0:0: either expression or module", `rules.filters[1].filter_id:0:0: "f" is given twice`, "rules.filters[1].expression:0:0: either"}},
		{"modules", Document{ID: "a", Rules: Rules{Scores: []ScoreRule{{ID: "nearest", Module: &ModuleUse{ID: "m m", OnFailure: 3}}}}},
			[]string{`rules.scores[0].score_id:0:0: "nearest" is a built-in policy`, "rules.scores[0].module.module_id", "rules.scores[0].module.version:0:0: must be between 1", "rules.scores[0].module.on_failure"}},
		{"includes", Document{ID: "a", Includes: []Include{{ID: "a"}, {ID: "b", Version: -1}, {ID: "b"}}},
			[]string{"includes[0].policy_id:0:0: is the policy itself", "includes[1].version", `includes[2].policy_id:0:0: "b" is included twice`}},
		{"scope", Document{ID: "a", Scope: Scope{Tenants: []string{"a b"}, Regions: []string{""}, Labels: map[string]string{"": "x"}}},
			[]string{"scope.regions[0]:0:0: is required", "scope.tenants[0]:0:0: must be letters", "scope.labels:0:0: keys must not be empty"}},
	} {
		k, problems := compile(c.d, 1)
		got := strings.Split(said(problems), "\n")
		if len(problems) == 0 {
			got = nil
		}
		if (k == nil) != (len(problems) > 0) || len(got) != len(c.want) {
			t.Errorf("%s:\n%s", c.name, said(problems))
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: %q, want %q", c.name, got[i], want)
			}
		}
	}
}

// An order gives weights: of n the first weighs n, the last 1.
func TestRanking(t *testing.T) {
	t.Parallel()
	k, problems := compile(Document{ID: "a", Rules: Rules{Ranking: []string{"nearest", "mine", "lowest-price"}, Scores: []ScoreRule{{ID: "mine", Expression: "50"}}}}, 1)
	if k == nil {
		t.Fatal(said(problems))
	}
	if got, want := fmt.Sprint(k.weights), fmt.Sprint([]place.Weight{{Policy: "nearest", Weight: 3}, {Policy: "mine", Weight: 2}, {Policy: "lowest-price", Weight: 1}}); got != want {
		t.Errorf("weights %s, want %s", got, want)
	}
	for _, p := range place.Presets() { // H-2.3.2.9: presets are there for policies to name
		k, problems := compile(Document{ID: "a", Rules: Rules{Preset: p.ID}}, 1)
		if k == nil || len(k.weights) != len(p.Uses) {
			t.Errorf("preset %s: %s", p.ID, said(problems))
		}
	}
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	out := map[string]string{}
	flatten("", map[string]any{"a": []any{1.0, map[string]any{"b": "x"}}, "c": true}, out)
	if got := fmt.Sprint(out); got != `map[a[0]:1 a[1].b:"x" c:true]` {
		t.Error(got)
	}
}

func TestMeans(t *testing.T) {
	t.Parallel()
	m := meanOf([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	if m.Mean != 5 || fmt.Sprintf("%.4f", m.Error) != "0.7559" {
		t.Errorf("mean %v", m)
	}
	many := func(mean, e float64) Mean { return Mean{100, mean, e} }
	for _, c := range []struct {
		a, b  Mean
		clear bool
		note  string
	}{
		{many(10, .1), many(12, .1), true, "a clear difference"}, {many(10, 1), many(11, 1), false, "no clear difference"},
		{Mean{29, 1, 0}, many(9, 0), false, "too few"}, {Mean{}, many(9, 0), false, "not known"},
	} {
		if got := against("b", "cost_fen", c.a, c.b); got.Clear != c.clear || !strings.HasPrefix(got.Note, c.note) {
			t.Errorf("%v against %v: %v", c.b, c.a, got)
		}
	}
	d := against("b", "cost_fen", many(10, 3), many(12, 4))
	if fmt.Sprintf("%.2f %.2f %.2f", d.Difference, d.Low, d.High) != "2.00 -7.80 11.80" {
		t.Errorf("interval %v", d)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("gold", `job.tenant == "x"`, `free.gpu > 1`, `100 - running`, "lowest-price", int64(3))
	f.Fuzz(func(t *testing.T, id, match, filter, score, weight string, n int64) {
		d := Document{ID: id, Match: []MatchRule{{Expression: match}}, Rules: Rules{Weights: map[string]int64{weight: n},
			Filters: []FilterRule{{ID: "f", Expression: filter}}, Scores: []ScoreRule{{ID: "s", Expression: score}}}}
		k, problems := compile(d, 1)
		if (k == nil) != (len(problems) > 0) {
			t.Errorf("compiled %v with %v", k, problems)
		}
	})
}
