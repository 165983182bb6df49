package train_test

import (
	"context"
	"reflect"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/sim"
	"yunhe.dev/yunhe/internal/sim/train"
	"yunhe.dev/yunhe/internal/tags/expr"
)

func inputs(t testing.TB, recipe string, seed uint64, n int) []*sim.Input {
	t.Helper()
	r, err := sim.ParseRecipe(recipe)
	if err != nil {
		t.Fatal(err)
	}
	var out []*sim.Input
	for i := range n {
		r.Seed = seed + uint64(i)
		out = append(out, r.Make())
	}
	return out
}

func queue(t testing.TB) sim.Queue {
	t.Helper()
	q, err := sim.ParseQueue("")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestLearns: for a goal that is one measure, what is learned is at least as
// good on work it has not seen as the best preset; and the same seed learns
// the same.
func TestLearns(t *testing.T) {
	t.Parallel()
	const recipe = "centers=6,jobs=150,load=0.7,gangs=0.1"
	in := train.Inputs{Learn: inputs(t, recipe, 1, 1), Choose: inputs(t, recipe, 11, 1), Report: inputs(t, recipe, 21, 1)}
	opt := train.Options{Goal: train.Goal{Cost: 1}, Queue: queue(t), Population: 6, Generations: 2, Seed: 1}
	steps := 0
	opt.Progress = func(done, all int) {
		if steps++; done != steps || all != 10 {
			t.Errorf("progress %d of %d after %d steps", done, all, steps)
		}
	}
	r, err := train.Run(t.Context(), in, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	by := map[string]train.Sets{}
	for _, s := range r.Tried {
		by[s.Name] = s
	}
	if r.Tried[0].Name != r.Chosen || r.Tried[0].Choosing > by["lowest-cost"].Choosing || by["balanced"].Choosing != 1 || by["balanced"].Held != 1 {
		t.Errorf("chosen %s: %+v", r.Chosen, r.Tried)
	}
	if len(by["learned by class"].Classes) != len(train.Classes()) || len(by["learned"].All) == 0 {
		t.Errorf("learned %+v", r.Tried)
	}
	again, err := train.Run(t.Context(), in, train.Options{Goal: opt.Goal, Queue: opt.Queue, Population: 6, Generations: 2, Seed: 1})
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("the same seed learned\n%+v\nnot\n%+v\n%v", again, r, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	good := train.Inputs{Learn: inputs(t, "centers=2,jobs=10", 1, 1), Choose: inputs(t, "centers=2,jobs=10", 2, 1), Report: inputs(t, "centers=2,jobs=10", 3, 1)}
	goal := train.Goal{Completion: 1}
	for what, c := range map[string]struct {
		in  train.Inputs
		opt train.Options
	}{
		"no goal":         {good, train.Options{}},
		"a negative goal": {good, train.Options{Goal: train.Goal{Completion: -1, Cost: 2}}},
		"population":      {good, train.Options{Goal: goal, Population: 3}},
		"generations":     {good, train.Options{Goal: goal, Generations: 201}},
		"nothing":         {train.Inputs{}, train.Options{Goal: goal}},
		"nodes":           {train.Inputs{Learn: inputs(t, "nodes=2,jobs=10", 1, 1), Choose: good.Choose, Report: good.Report}, train.Options{Goal: goal}},
	} {
		if _, err := train.Run(t.Context(), c.in, c.opt); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := train.Run(ctx, good, train.Options{Goal: goal, Queue: queue(t)}); err == nil {
		t.Error("a training that was stopped ended well")
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	in := inputs(t, "centers=2,jobs=16", 1, 1)[0]
	s, err := train.Split(in)
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := len(s.Learn[0].Jobs), len(s.Choose[0].Jobs), len(s.Report[0].Jobs); a != 8 || b != 4 || c != 4 {
		t.Errorf("split into %d, %d, %d", a, b, c)
	}
	if s.Learn[0].Jobs[7].Arrival > s.Choose[0].Jobs[0].Arrival || s.Choose[0].Jobs[3].Arrival > s.Report[0].Jobs[0].Arrival {
		t.Error("what comes later is learned from")
	}
	in.Jobs = in.Jobs[:7]
	if _, err := train.Split(in); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
}

// TestClasses: every job is of one class.
func TestClasses(t *testing.T) {
	t.Parallel()
	for _, in := range inputs(t, "centers=2,jobs=300,gangs=0.4", 1, 1) {
		seen := map[string]int{}
		for i := range in.Jobs {
			n := 0
			for _, c := range train.Classes() {
				if c.Of(&in.Jobs[i]) {
					seen[c.ID]++
					n++
				}
			}
			if n != 1 {
				t.Fatalf("job %+v is of %d classes", in.Jobs[i], n)
			}
		}
		if len(seen) != len(train.Classes()) {
			t.Errorf("only %v", seen)
		}
	}
}

// TestMatch: the expressions are ones that policies take.
func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range train.Classes() {
		if _, problems := expr.Compile(expr.PolicyJob, c.Match); len(problems) > 0 {
			t.Errorf("%s: %v", c.ID, problems)
		}
	}
}
