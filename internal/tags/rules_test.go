package tags_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags"
)

func (w *world) rule(t testing.TB, ctx context.Context, r tags.RuleSpec) tags.RuleSpec {
	t.Helper()
	out, err := w.CreateRule(ctx, r)
	must(t, err)
	return out
}

func TestRules(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north", machine("m1"))
		w.join(t, "c2", "south")
		w.rule(t, ctx, tags.RuleSpec{ID: "north", Key: "color", Kinds: []tags.Kind{tags.Center}, When: `region == "north"`, Value: "blue"})
		w.rule(t, ctx, tags.RuleSpec{ID: "named", Key: "color", Kinds: []tags.Kind{tags.Node}, When: `"H800" in models`, ValueExpression: `architecture + "-" + main_vendor`})
		equal(t, "written", w.evaluate(t), 2)
		equal(t, "written again", w.evaluate(t), 0)
		w.want(t, ctx, "center:c1", "color=blue(north)")
		w.want(t, ctx, "center:c2", "")
		w.want(t, ctx, "node:c1:m1", "color=amd64-NVIDIA(named)")

		// What a person set stays, also the decision that there is none.
		w.set(t, ctx, "center:c1", "color=red")
		w.set(t, ctx, "node:c1:m1", "color!")
		equal(t, "written over people", w.evaluate(t), 0)
		w.want(t, ctx, "center:c1", "color=red")
		w.want(t, ctx, "node:c1:m1", "color!")
		w.set(t, ctx, "center:c1", "color-")
		w.set(t, ctx, "node:c1:m1", "color-")
		w.want(t, ctx, "center:c1", "")
		equal(t, "written when people let go", w.evaluate(t), 2)

		// The higher priority wins, then the lower ID; facts change.
		w.rule(t, ctx, tags.RuleSpec{ID: "gold", Key: "color", Kinds: []tags.Kind{tags.Center}, When: `labels["tier"] == "gold"`, Value: "gold", Priority: 5})
		w.rule(t, ctx, tags.RuleSpec{ID: "a-gold", Key: "color", Kinds: []tags.Kind{tags.Center}, When: `labels["tier"] == "gold" && region == "north"`, Value: "yellow", Priority: 5})
		w.evaluate(t)
		w.want(t, ctx, "center:c1", "color=yellow(a-gold)")
		w.want(t, ctx, "center:c2", "color=gold(gold)")
		_, err := w.reg.UpdateCenter(ctx, registry.Center{ID: "c1", Name: "c1", Region: "south"})
		must(t, err)
		w.evaluate(t)
		w.want(t, ctx, "center:c1", "")
		w.want(t, ctx, "node:c1:m1", "color=amd64-NVIDIA(named)")

		// A rule that goes takes along what it set, not what people did.
		w.set(t, ctx, "center:c2", "pue=1.5")
		must(t, w.DeleteRule(ctx, "gold"))
		r, err := w.Rule(ctx, "named")
		must(t, err)
		if r.Matched != 1 || r.EvaluatedAt.IsZero() || r.Error != "" || r.Version != 1 {
			t.Errorf("rule = %+v", r)
		}
		r.Mode = tags.Off
		_, err = w.UpdateRule(ctx, r)
		must(t, err)
		w.evaluate(t)
		w.want(t, ctx, "center:c2", "pue=1.5")
		w.want(t, ctx, "node:c1:m1", "")
		_, err = w.UpdateRule(ctx, r)
		wantKind(t, "an old version", err, fault.Conflict)

		// The history says who and what.
		rows, _, err := w.Records(ctx, tags.RecordFilter{Subject: "center:c1"}, 0, "")
		must(t, err)
		var said []string
		for _, r := range rows {
			said = append(said, fmt.Sprintf("%d %s %s→%s", r.Source, r.Origin, r.Before.Value, r.After.Value))
		}
		equal(t, "history", said, []string{"2 a-gold yellow→", "2 a-gold blue→yellow", "2 north →blue", "1 op red→", "1 op blue→red", "2 north →blue"})

		// What is deleted loses its tags; a node that returns has what people set.
		w.set(t, ctx, "node:c1:m1", "on=true")
		w.join(t, "c1", "north")
		must(t, w.reg.DeleteCenter(ctx, "c2"))
		w.evaluate(t)
		w.join(t, "c1", "north", machine("m1"))
		w.join(t, "c2", "south")
		w.want(t, ctx, "node:c1:m1", "on=true")
		w.want(t, ctx, "center:c2", "")
	})
}

// Rules do not read what rules set: no circles.
func TestRulesReadPeople(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north", machine("m1"))
		w.rule(t, ctx, tags.RuleSpec{ID: "a", Key: "on", Kinds: []tags.Kind{tags.Center}, When: `!("on" in tags)`, Value: "true"})
		w.rule(t, ctx, tags.RuleSpec{ID: "b", Key: "on", Kinds: []tags.Kind{tags.Node}, When: `tags["color"] == "red"`, Value: "true"})
		for range 3 {
			w.evaluate(t)
			w.want(t, ctx, "center:c1", "on=true(a)")
		}
		w.set(t, ctx, "platform", "color=red")
		w.evaluate(t)
		w.want(t, ctx, "node:c1:m1", "color=red@platform on=true(b)")
	})
}

func TestHysteresis(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north")
		w.rule(t, ctx, tags.RuleSpec{ID: "busy", Key: "on", Kinds: []tags.Kind{tags.Center}, When: `measured && cpu_busy_percent >= 80`, Until: `cpu_busy_percent < 60`, Value: "true", Hold: 30})
		at := func(what string, after time.Duration, permille int64, want string) {
			t.Helper()
			w.clock.advance(after)
			w.busy(t, "c1", permille)
			w.evaluate(t)
			if got := w.has(t, ctx, "center:c1"); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		const on = "on=true(busy)"
		at("busy at first", 0, 850, "")
		at("busy for 10 s", 10*time.Second, 850, "")
		at("not busy", 10*time.Second, 700, "")
		at("busy anew", 10*time.Second, 850, "")
		at("busy for 20 s", 20*time.Second, 850, "")
		w.reopen(t)
		at("a restart counts anew", 15*time.Second, 850, "")
		at("busy for 31 s", 31*time.Second, 850, on)
		at("between the two", 40*time.Second, 700, on)
		at("idle", 10*time.Second, 500, on)
		at("idle for 29 s", 29*time.Second, 500, on)
		at("idle for 30 s", time.Second, 500, "")
		// It is seen to be busy, then nobody looks for long.
		at("busy", 10*time.Second, 900, "")
		at("after a pause", 5*time.Minute, 900, "")
		at("30 s later", 30*time.Second, 900, on)
	})
}

func TestRuleRejects(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		good := tags.RuleSpec{ID: "r", Key: "color", Kinds: []tags.Kind{tags.Center}, When: "true", Value: "x"}
		for what, x := range map[string]struct {
			change func(r *tags.RuleSpec)
			paths  []string
		}{
			"nothing":        {func(r *tags.RuleSpec) { *r = tags.RuleSpec{} }, []string{"rule.rule_id", "rule.key", "rule.when", "rule.value"}},
			"unknown tag":    {func(r *tags.RuleSpec) { r.Key = "nope" }, []string{"rule.key"}},
			"kind":           {func(r *tags.RuleSpec) { r.Key, r.Value = "size", "m" }, []string{"rule.kinds"}},
			"value":          {func(r *tags.RuleSpec) { r.Key, r.Value = "on", "maybe" }, []string{"rule.value"}},
			"two values":     {func(r *tags.RuleSpec) { r.ValueExpression = "id" }, []string{"rule.value"}},
			"numbers":        {func(r *tags.RuleSpec) { r.Hold, r.Priority, r.Mode = -1, 1001, 4 }, []string{"rule.hold_seconds", "rule.priority", "rule.mode"}},
			"syntax":         {func(r *tags.RuleSpec) { r.When = `region ==` }, []string{"rule.when"}},
			"not of a kind":  {func(r *tags.RuleSpec) { r.Kinds, r.When = nil, `region == "x"` }, []string{"rule.when", "rule.when", "rule.when"}},
			"until":          {func(r *tags.RuleSpec) { r.Until = `1` }, []string{"rule.until"}},
			"value of a bad": {func(r *tags.RuleSpec) { r.Value, r.ValueExpression = "", `1` }, []string{"rule.value_expression"}},
			"live":           {func(r *tags.RuleSpec) { r.When, r.Hold = `running > 5`, 10 }, []string{"rule.hold_seconds"}},
		} {
			r := good
			x.change(&r)
			_, err := w.CreateRule(ctx, r)
			wantPaths(t, what, err, x.paths...)
		}
		r := good
		r.When = `running > 5`
		r = w.rule(t, ctx, r)
		if !r.Live || r.Hold != 60 {
			t.Errorf("a rule over live figures = %+v", r)
		}
		_, err := w.CreateRule(ctx, good)
		wantKind(t, "again", err, fault.Exists)
		_, err = w.Rule(ctx, "nope")
		wantKind(t, "unknown", err, fault.NotFound)
		wantKind(t, "delete unknown", w.DeleteRule(ctx, "nope"), fault.NotFound)

		// What cannot be evaluated changes nothing and is said.
		w.join(t, "c1", "north")
		w.rule(t, ctx, tags.RuleSpec{ID: "odd", Key: "color", Kinds: []tags.Kind{tags.Center}, When: `int(name) > 1`, Value: "x"})
		w.evaluate(t)
		odd, err := w.Rule(ctx, "odd")
		must(t, err)
		if !strings.HasPrefix(odd.Error, "on center:c1: ") || odd.Matched != 0 {
			t.Errorf("rule that cannot be evaluated = %+v", odd)
		}
	})
}

func TestDefaults(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		must(t, w.Defaults(ctx))
		w.join(t, "c1", "guizhou", machine("m1"))
		w.busy(t, "c1", 50)
		w.evaluate(t)
		w.want(t, ctx, "center:c1", "accelerator=H800(accelerator) accelerator-vendor=NVIDIA(accelerator-vendor) region=guizhou(region) resource-type=gpu(resource-type) scale=medium(scale) security-grade=3(security-grade)")
		w.want(t, ctx, "node:c1:m1", "accelerator=H800(accelerator) accelerator-vendor=NVIDIA(accelerator-vendor) architecture=amd64(architecture) region=guizhou@center:c1(region) resource-type=gpu(resource-type) security-grade=3@center:c1(security-grade)")
		rules, err := w.Rules(ctx, "")
		must(t, err)
		for _, r := range rules {
			if r.Error != "" {
				t.Errorf("rule %s: %s", r.ID, r.Error)
			}
		}
		// Once only.
		must(t, w.DeleteDefinition(ctx, "scale", true))
		w.reopen(t)
		must(t, w.Defaults(ctx))
		_, err = w.Definition(ctx, "scale")
		wantKind(t, "a default that was deleted", err, fault.NotFound)
		w.evaluate(t)
		if got := w.has(t, ctx, "center:c1"); strings.Contains(got, "scale") {
			t.Errorf("tags = %s", got)
		}
	})
}

// Run notices what changed without being asked, and stops.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north")
		w.rule(t, ctx, tags.RuleSpec{ID: "north", Key: "color", Kinds: []tags.Kind{tags.Center}, When: `region == "north"`, Value: "blue"})
		run, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := w.Run(run); err != nil {
				t.Error(err)
			}
		})
		until := func(want string) {
			t.Helper()
			end := time.NewTimer(20 * time.Second)
			defer end.Stop()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for w.has(t, ctx, "center:c1") != want {
				select {
				case <-end.C:
					t.Fatalf("center has %q, want %q", w.has(t, ctx, "center:c1"), want)
				case <-tick.C:
				}
			}
		}
		until("color=blue(north)")
		_, err := w.reg.UpdateCenter(ctx, registry.Center{ID: "c1", Name: "c1", Region: "south"})
		must(t, err)
		until("")
		w.rule(t, ctx, tags.RuleSpec{ID: "south", Key: "color", Kinds: []tags.Kind{tags.Center}, When: `region == "south"`, Value: "red"})
		until("color=red(south)")
		stop()
		wg.Wait()
	})
}

func TestCheckExpression(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north")
		w.set(t, ctx, "platform", "color=red")
		x, err := w.CheckExpression(ctx, 0, `tags["color"] == "blue" && region == "north"`, "center:c1", false)
		must(t, err)
		if !x.Evaluated || x.Holds || x.Reason != `does not meet tags["color"] == "blue": tags["color"] is "red"` || x.Facts["region"] != "north" || x.Facts["running"] != nil {
			t.Errorf("checked = %+v", x)
		}
		x, err = w.CheckExpression(ctx, tags.Center, `region + "-" + string(running)`, "center:c1", true)
		must(t, err)
		if x.Value != "north-0" || len(x.Problems) > 0 {
			t.Errorf("value = %+v", x)
		}
		x, err = w.CheckExpression(ctx, tags.Node, `region = "north"`, "", false)
		must(t, err)
		if len(x.Problems) == 0 || x.Problems[0].Column != 8 || x.Evaluated || len(x.Variables) < 10 {
			t.Errorf("problems = %+v", x.Problems)
		}
		_, err = w.CheckExpression(ctx, tags.Node, `true`, "center:c1", false)
		wantPaths(t, "another kind", err, "object")
		_, err = w.CheckExpression(ctx, tags.Center, `true`, "center:c9", false)
		wantKind(t, "no object", err, fault.NotFound)
	})
}
