package place_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// where follows the replicas of groups and works through a plan.
type where struct {
	at    map[string]map[string]int // by group or work, then candidate
	works map[string]*place.Work
	sites map[string]*place.Candidate
}

func follow(s *place.Snapshot, q []place.Work) *where {
	w := &where{at: map[string]map[string]int{}, works: map[string]*place.Work{}, sites: map[string]*place.Candidate{}}
	for i := range s.Candidates {
		w.sites[s.Candidates[i].ID] = &s.Candidates[i]
	}
	for name, at := range s.Groups {
		w.at[name] = maps.Clone(at)
	}
	for i := range q {
		w.works[q[i].ID], w.at[q[i].ID] = &q[i], maps.Clone(q[i].Placed)
	}
	return w
}

func (w *where) place(p place.Placement) {
	for _, name := range append([]string{p.Work}, w.works[p.Work].Groups...) {
		if w.at[name] == nil {
			w.at[name] = map[string]int{}
		}
		w.at[name][p.Candidate]++
	}
}

func domain(c *place.Candidate, over string) string {
	switch over {
	case "":
		return c.ID
	case "region":
		return c.Region
	}
	return c.Attributes[over]
}

// breaks says how p breaks rule r, which was made for work, "" if it does not;
// passes are the candidates that all filters let through.
func (w *where) breaks(r *place.Rule, work *place.Work, candidate string, passes []string) string {
	counts, total := map[string]int{}, 0
	name := cmp.Or(r.Of, work.ID)
	for id, n := range w.at[name] {
		if c := w.sites[id]; c != nil {
			total += n
			if d := domain(c, r.Over); d != "" {
				counts[d] += n
			}
		}
	}
	here := domain(w.sites[candidate], r.Over)
	if here == "" {
		return "has no " + r.Over
	}
	switch r.Kind {
	case place.With:
		if counts[here] == 0 && (total > 0 || name != work.ID && !slices.Contains(work.Groups, name)) {
			return "is not with " + name
		}
	case place.Apart:
		if counts[here] > 0 {
			return "is not apart from " + name
		}
	case place.Spread:
		least := -1
		for _, id := range passes {
			if d := domain(w.sites[id], r.Over); d != "" && (least < 0 || counts[d] < least) {
				least = counts[d]
			}
		}
		if counts[here]+1-least > r.MaxSkew {
			return fmt.Sprintf("is %d ahead", counts[here]+1-least)
		}
	}
	return ""
}

// TestRulesHold counts replicas independently of the engine: no placement
// breaks a rule that is not preferred, and none breaks more of the preferred
// ones than it must.
func TestRulesHold(t *testing.T) {
	t.Parallel()
	ruled := 0
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		w := follow(s, q)
		for _, p := range plan(t, s, q, genSet(t), place.Options{}).Placements {
			work := w.works[p.Work]
			task := work.Tasks[slices.IndexFunc(work.Tasks, func(k place.Task) bool { return k.ID == p.Task })]
			var passes, fit []string
			for _, e := range p.Decision.Table {
				if !slices.ContainsFunc(e.Filtered, func(r place.Reason) bool { return r.Filter != "capacity" }) {
					passes = append(passes, e.Candidate)
					if len(e.Filtered) == 0 {
						fit = append(fit, e.Candidate)
					}
				}
			}
			rules := slices.Clone(task.Rules)
			slices.SortStableFunc(rules, func(a, b place.Rule) int {
				return cmp.Compare(fmt.Sprint(a.Preferred), fmt.Sprint(b.Preferred))
			})
			held := func(id string) int {
				for n := range rules {
					if w.breaks(&rules[n], work, id, passes) != "" {
						return n
					}
				}
				return len(rules)
			}
			got := held(p.Candidate)
			if got < len(rules) && !rules[got].Preferred {
				t.Fatalf("%v breaks %+v: %s", p, rules[got], w.breaks(&rules[got], work, p.Candidate, passes))
			}
			for _, id := range fit {
				if held(id) > got {
					t.Fatalf("%s/%s/%d keeps %d of %+v at %s and would keep %d at %s", p.Work, p.Task, p.Replica, got, rules, p.Candidate, held(id), id)
				}
			}
			if len(rules) > 0 {
				ruled++
			}
			w.place(p)
		}
	})
	if ruled == 0 {
		t.Error("no placement had rules")
	}
}

// TestSpreadKeepsItsBound over regions of very different size and appeal, for
// hundreds of candidates, with and without records.
func TestSpreadKeepsItsBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		s, q, set := crowd(r, 50+r.IntN(150)), demand(r, 40), someSet(t, r)
		for i := range s.Candidates {
			s.Candidates[i].Attributes = map[string]string{"rack": fmt.Sprint("k", r.IntN(1+r.IntN(40)))}
		}
		for i := range q {
			for k := range q[i].Tasks {
				switch q[i].Tasks[k].Replicas = 1 + r.IntN(20); r.IntN(4) {
				case 0:
					q[i].Tasks[k].Rules = []place.Rule{{Kind: place.Spread, Over: "region", MaxSkew: 1 + r.IntN(2)}}
				case 1:
					q[i].Tasks[k].Rules = []place.Rule{{Kind: place.Spread, MaxSkew: 1}, {Kind: place.With, Over: "region", Preferred: true}}
				case 2:
					q[i].Tasks[k].Rules = []place.Rule{{Kind: place.Spread, Over: "rack", MaxSkew: 1, Preferred: true}, {Kind: place.Apart, Of: "w0003"}}
				}
			}
		}
		want := mustPlan(t, s, q, set, place.Options{TableRows: 1})
		got := mustPlan(t, s, q, set, place.Options{NoTables: true})
		if a, b := short(got), short(want); a != b {
			t.Fatalf("seed %d: without records\n%s\nwith them\n%s", seed, a, b)
		}
		// Regions in which every filter lets some candidate through.
		for i := range q {
			for _, k := range q[i].Tasks {
				if len(k.Rules) == 0 || k.Rules[0].Over != "region" {
					continue
				}
				counts := map[string]int{}
				for _, c := range s.Candidates {
					_, offered := c.Offers[k.Spec]
					if c.Status == place.Available && (k.Spec == "" || offered) && c.SecurityGrade >= k.MinGrade && (k.Image == "" || c.AnyImage) {
						counts[c.Region] += 0
					}
				}
				regions := map[string]string{}
				for _, c := range s.Candidates {
					regions[c.ID] = c.Region
				}
				for _, p := range got.Placements {
					if p.Work == q[i].ID && len(q[i].Tasks) == 1 {
						counts[regions[p.Candidate]]++
					}
				}
				all := slices.Collect(maps.Values(counts))
				if n := slices.Max(append(all, 0)) - slices.Min(append(all, 1<<30)); len(all) > 0 && n > k.Rules[0].MaxSkew {
					t.Errorf("seed %d: work %s has %v, at most %d apart wanted", seed, q[i].ID, counts, k.Rules[0].MaxSkew)
				}
			}
		}
	}
}

func TestPlanRejectsRules(t *testing.T) {
	t.Parallel()
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("g", i)
	}
	for name, c := range map[string]struct {
		s    place.Snapshot
		work place.Work
		want string
	}{
		"a kind": {work: one("w", place.Task{Rules: []place.Rule{{Kind: "near"}}}),
			want: `work w task t: rules[0]: kind must be spread, with or apart, got "near"`},
		"no skew": {work: one("w", place.Task{Rules: []place.Rule{{Kind: place.Apart}, {Kind: place.Spread}}}),
			want: "work w task t: rules[1]: max_skew must be 1 to 1000000, got 0"},
		"a skew": {work: one("w", place.Task{Rules: []place.Rule{{Kind: place.With, MaxSkew: 2}}}),
			want: "work w task t: rules[0]: max_skew is for spread only, got 2"},
		"too many":             {work: one("w", place.Task{Rules: make([]place.Rule, 9)}), want: "work w task t: rules must be at most 8, got 9"},
		"too many groups":      {work: place.Work{ID: "w", Groups: many}, want: "work w: groups must be at most 64, got 65"},
		"a group without name": {work: place.Work{ID: "w", Groups: []string{"a", ""}}, want: "work w: groups[1] is empty"},
		"a count": {s: place.Snapshot{Groups: map[string]map[string]int{"g": {"a": -1}}},
			work: place.Work{ID: "w"}, want: `groups["g"]: replicas at a must be 0 to 1000000, got -1`},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			_, err := place.Plan(&c.s, []place.Work{c.work}, place.Presets()[0], place.Options{})
			wantInvalid(t, err, c.want)
		})
	}
}
