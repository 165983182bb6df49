package place_test

import (
	"math/big"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

func TestEvaluate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		weights []int64
		scores  []int
		want    int
	}{
		{"one policy keeps its score", []int64{7}, []int{73}, 73},
		{"equal weights average", []int64{1, 1}, []int{100, 50}, 75},
		{"weights are normalised", []int64{30, 10}, []int{100, 0}, 75},
		{"a half rounds up", []int64{1, 1}, []int{100, 1}, 51},
		{"less than a half rounds down", []int64{2, 1}, []int{0, 1}, 0},
		{"weight 0 does not count", []int64{0, 5}, []int{100, 20}, 20},
		{"all at the top", []int64{place.MaxWeight, place.MaxWeight}, []int{100, 100}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, err := place.Evaluate(c.weights, c.scores)
			if err != nil || e.Rounded() != c.want {
				t.Errorf("Evaluate(%v, %v) = %v (%d), %v, want %d", c.weights, c.scores, e, e.Rounded(), err, c.want)
			}
		})
	}
}

func TestEvaluateRejects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		weights []int64
		scores  []int
		want    string
	}{
		{"lengths that differ", []int64{1}, []int{1, 2}, "2 scores do not match 1 weights"},
		{"nothing", nil, nil, "there must be 1 to 64 weights, got 0"},
		{"a negative score", []int64{1, 1}, []int{5, -1}, "scores[1] must be 0 to 100, got -1"},
		{"a score above 100", []int64{1}, []int{101}, "scores[0] must be 0 to 100, got 101"},
		{"a negative weight", []int64{-3}, []int{1}, "weights[0] must be 0 to 1000000000000, got -3"},
		{"a weight too large", []int64{1, place.MaxWeight + 1}, []int{1, 1}, "weights[1] must be 0 to 1000000000000, got 1000000000001"},
		{"weights that are all zero", []int64{0, 0}, []int{1, 1}, "at least one of 2 weights must be above 0"},
		{"too many", slices.Repeat([]int64{1}, 65), make([]int, 65), "there must be 1 to 64 weights, got 65"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := place.Evaluate(c.weights, c.scores)
			wantInvalid(t, err, c.want)
		})
	}
}

func wantInvalid(t *testing.T, err error, want string) {
	t.Helper()
	if fault.KindOf(err) != fault.Invalid || err.Error() != want {
		t.Errorf("got %v (%v)\nwant %s (%v)", err, fault.KindOf(err), want, fault.Invalid)
	}
}

func FuzzEvaluate(f *testing.F) {
	f.Add(int64(1), int64(2), int64(3), 0, 50, 100)
	f.Add(int64(0), int64(0), int64(0), 0, 0, 0)
	f.Add(place.MaxWeight, place.MaxWeight, place.MaxWeight, 100, 100, 100)
	f.Add(int64(-1), int64(1), int64(1), 101, -1, 1)
	f.Fuzz(func(t *testing.T, w0, w1, w2 int64, s0, s1, s2 int) {
		weights, scores := []int64{w0, w1, w2}, []int{s0, s1, s2}
		valid := w0 > 0 || w1 > 0 || w2 > 0
		sum, total := new(big.Rat), new(big.Rat)
		for i, w := range weights {
			valid = valid && w >= 0 && w <= place.MaxWeight && scores[i] >= 0 && scores[i] <= 100
			sum.Add(sum, new(big.Rat).SetInt64(w))
			total.Add(total, new(big.Rat).Mul(new(big.Rat).SetInt64(w), new(big.Rat).SetInt64(int64(scores[i]))))
		}
		e, err := place.Evaluate(weights, scores)
		if (err == nil) != valid {
			t.Fatalf("Evaluate(%v, %v): %v, valid is %v", weights, scores, err, valid)
		}
		if err != nil {
			return
		}
		if total.Quo(total, sum); total.Cmp(big.NewRat(e.Num, e.Den)) != 0 || int64(e.Rounded()) != halfAway(total) {
			t.Fatalf("Evaluate(%v, %v) = %v (%d), want %v", weights, scores, e, e.Rounded(), total)
		}
	})
}

func TestSetEvaluate(t *testing.T) {
	t.Parallel()
	set, err := place.NewSet("mine", place.Weighted, []place.Weight{{Policy: "lowest-price", Weight: 3}, {Policy: "least-load", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		ids    []string
		scores []int
		want   int
		err    string
	}{
		{"in the order of the set", []string{"lowest-price", "least-load"}, []int{100, 0}, 75, ""},
		{"in another order", []string{"least-load", "lowest-price"}, []int{0, 100}, 75, ""},
		{"a part of the set", []string{"least-load"}, []int{40}, 40, ""},
		{"an unknown algorithm", []string{"astrology"}, []int{1}, 0, `algorithm "astrology" is unknown`},
		{"an algorithm without weight", []string{"nearest"}, []int{1}, 0, `algorithm "nearest" has no weight in policy set "mine"`},
		{"an algorithm twice", []string{"least-load", "least-load"}, []int{1, 1}, 0, `algorithm "least-load" is given twice`},
		{"lengths that differ", []string{"least-load"}, []int{1, 2}, 0, "2 scores do not match 1 algorithms"},
		{"a score above 100", []string{"least-load"}, []int{101}, 0, "scores[0] must be 0 to 100, got 101"},
		{"nothing", nil, nil, 0, "there must be 1 to 64 weights, got 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, err := set.Evaluate(c.ids, c.scores)
			if c.err != "" {
				wantInvalid(t, err, c.err)
			} else if err != nil || e.Rounded() != c.want {
				t.Errorf("got %v, %v, want %d", e, err, c.want)
			}
		})
	}
}

func TestParseWeights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		texts string
		want  []int64
		err   string
	}{
		{"1 2 3", []int64{1, 2, 3}, ""},
		{"10 20 30", []int64{1, 2, 3}, ""},
		{"0.3 0.7", []int64{3, 7}, ""},
		{"0.25 .5 1", []int64{1, 2, 4}, ""},
		{"1/3 1/6 0", []int64{2, 1, 0}, ""},
		{"0 0", nil, "at least one of 2 weights must be above 0"},
		{"1 -1", nil, `weights[1] must be a decimal or a fraction of at least 0, got "-1"`},
		{"1e3", nil, `weights[0] must be a decimal or a fraction of at least 0, got "1e3"`},
		{"1/0", nil, `weights[0] must be a decimal or a fraction of at least 0, got "1/0"`},
		{"./.", nil, `weights[0] must be a decimal or a fraction of at least 0, got "./."`},
		{"1 " + strings.Repeat("1", 33), nil, `weights[1] must be a decimal or a fraction of at least 0, got "` + strings.Repeat("1", 33) + `"`},
		{"1 0.0000000000001", nil, `weights[0] "1" needs a ratio above 1000000000000 to one`},
	} {
		got, err := place.ParseWeights(strings.Fields(c.texts))
		if c.err != "" {
			wantInvalid(t, err, c.err)
		} else if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("ParseWeights(%q) = %v, %v, want %v", c.texts, got, err, c.want)
		}
	}
}

func TestSetCheckRejects(t *testing.T) {
	t.Parallel()
	ok := place.Factor{ID: "f", Measure: func(*place.Ask, *place.Site) place.Fact { return place.Fact{} }}
	use := func(id string, f ...place.Factor) place.Use {
		return place.Use{Policy: place.Policy{ID: id, Factors: f}, Weight: 1}
	}
	for _, c := range []struct {
		name string
		uses []place.Use
		want string
	}{
		{"no policy", nil, `policy set "s" must have 1 to 64 policies, got 0`},
		{"an empty id", []place.Use{use("", ok)}, `policy id "" must have 1 to 32 bytes`},
		{"a long id", []place.Use{use(strings.Repeat("x", 33), ok)}, `policy id "` + strings.Repeat("x", 33) + `" must have 1 to 32 bytes`},
		{"a policy twice", []place.Use{use("p", ok), use("p", ok)}, `policy "p" is in set "s" twice`},
		{"no factor", []place.Use{use("p")}, `policy "p" must have at least 1 factor`},
		{"a factor that measures nothing", []place.Use{use("p", place.Factor{ID: "f"})},
			`factor "f" of policy "p" needs a Measure and an unknown score of 0 to 100, got 0`},
		{"an unknown score out of range", []place.Use{use("p", place.Factor{ID: "f", Unknown: 101, Measure: ok.Measure})},
			`factor "f" of policy "p" needs a Measure and an unknown score of 0 to 100, got 101`},
		{"weights all zero", []place.Use{{Policy: place.Policy{ID: "p", Factors: []place.Factor{ok}}}}, "at least one of 1 weights must be above 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantInvalid(t, (&place.Set{ID: "s", Uses: c.uses}).Check(), c.want)
		})
	}
	_, err := place.NewSet("s", place.Weighted, []place.Weight{{Policy: "astrology", Weight: 1}})
	wantInvalid(t, err, `policy "astrology" is unknown`)
}

// TestListsAreComplete: what users choose from has an ID, titles and a line
// of explanation, and IDs are the wire's: at most 32 bytes, none twice.
func TestListsAreComplete(t *testing.T) {
	t.Parallel()
	type item struct{ id, title, zh, doc string }
	lists := map[string][]item{}
	for _, p := range place.Policies() {
		lists["policy"] = append(lists["policy"], item{p.ID, p.Title, p.TitleZH, p.Doc})
		if got, ok := place.PolicyByID(p.ID); !ok || got.ID != p.ID {
			t.Errorf("policy %s is not found by its id", p.ID)
		}
	}
	for _, s := range place.Presets() {
		lists["preset"] = append(lists["preset"], item{s.ID, s.Title, s.TitleZH, s.Doc})
		if got, ok := place.Preset(s.ID); !ok || got != s {
			t.Errorf("preset %s is not found by its id", s.ID)
		}
	}
	for _, e := range place.Evaluators() {
		lists["evaluator"] = append(lists["evaluator"], item{e.ID, e.Title, e.TitleZH, e.Doc})
	}
	for _, f := range place.Filters() {
		lists["filter"] = append(lists["filter"], item{f.ID, "-", "-", f.Doc})
	}
	for kind, list := range lists {
		seen := map[string]bool{}
		for _, i := range list {
			if i.id == "" || len(i.id) > 32 || seen[i.id] || i.title == "" || i.zh == "" || i.doc == "" {
				t.Errorf("%s %+v lacks something or is listed twice", kind, i)
			}
			seen[i.id] = true
		}
	}
	for i, want := range []string{"least-load", "idle-spec", "data-topology", "lowest-price", "lowest-energy",
		"highest-performance", "highest-security", "load-fairness"} {
		if got := place.Policies()[i].ID; got != want {
			t.Errorf("policy %d is %s, want %s: the standard's a) to h) come first", i, got, want)
		}
	}
}
