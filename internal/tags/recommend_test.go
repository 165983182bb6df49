package tags_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/tags"
)

func (w *world) recommended(t testing.TB, ctx context.Context, object string) string {
	t.Helper()
	rows, err := w.Recommend(ctx, object)
	must(t, err)
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s=%s %d", r.Key, r.Value, r.Score))
	}
	return strings.Join(out, "; ")
}

func TestRecommend(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		for i := range 5 {
			w.join(t, fmt.Sprintf("n%d", i), "north")
		}
		w.join(t, "s1", "south")
		w.rule(t, ctx, tags.RuleSpec{ID: "ask", Key: "pue", When: `region == "north"`, Value: "1.3", Mode: tags.Recommend})
		w.evaluate(t)
		w.want(t, ctx, "center:n0", "") // a rule that recommends sets nothing
		equal(t, "by rule", w.recommended(t, ctx, "center:n0"), "pue=1.3 90")
		// Two of five alike is too few, four are enough.
		w.set(t, ctx, "center:n1", "color=green")
		w.set(t, ctx, "center:n2", "color=green")
		equal(t, "few carry it", w.recommended(t, ctx, "center:n0"), "pue=1.3 90")
		w.set(t, ctx, "center:n3", "color=green", "on=true")
		w.set(t, ctx, "center:n4", "color=red")
		rows, err := w.Recommend(ctx, "center:n0")
		must(t, err)
		if len(rows) != 2 || rows[1].Key != "color" || rows[1].Value != "green" || rows[1].Score < 55 || rows[1].Score > 75 {
			t.Fatalf("recommended = %+v", rows)
		}
		r := rows[1]
		if r.Reason != "3 of the 5 centers most alike carry it" || len(r.Alike) != 3 || r.Alike[0].Object != "center:n1" || r.Alike[0].Similarity != 100 || len(r.Alike[0].Common) != 5 {
			t.Errorf("reason = %+v", r)
		}

		// Answers are remembered, also over a restart.
		x, err := w.Answer(ctx, "center:n0", "color", "green", true)
		must(t, err)
		if len(x.Tags) != 1 || x.Tags[0].Source != tags.Person || x.Tags[0].Reason != "recommended: 3 of the 5 centers most alike carry it" {
			t.Errorf("accepted = %+v", x.Tags)
		}
		_, err = w.Answer(ctx, "center:n0", "color", "green", true)
		must(t, err)
		_, err = w.Answer(ctx, "center:n0", "pue", "1.3", false)
		must(t, err)
		_, err = w.Answer(ctx, "center:n0", "pue", "1.3", false)
		must(t, err)
		w.reopen(t)
		equal(t, "after answers", w.recommended(t, ctx, "center:n0"), "")
		equal(t, "others are asked still", w.recommended(t, ctx, "center:n1"), "pue=1.3 90")
		// What is blocked, or was set by anybody, is not recommended.
		w.set(t, ctx, "center:n1", "pue!")
		w.set(t, ctx, "center:n2", "pue=2")
		equal(t, "blocked", w.recommended(t, ctx, "center:n1"), "")
		equal(t, "set", w.recommended(t, ctx, "center:n2"), "")

		_, err = w.Answer(ctx, "center:n0", "on", "true", true)
		wantKind(t, "not recommended", err, fault.Conflict)
		_, err = w.Answer(ctx, "center:n0", "nope", "true", true)
		wantKind(t, "no tag", err, fault.NotFound)
		_, err = w.Answer(ctx, "center:n9", "on", "true", true)
		wantKind(t, "no object", err, fault.NotFound)
		_, err = w.Answer(member(ctx, "acme"), "center:n3", "pue", "1.3", true)
		wantKind(t, "who may not", err, fault.Denied)
		_, err = w.Answer(ctx, "x", "X", "", true)
		wantPaths(t, "nonsense", err, "object", "key", "value")
	})
}

func TestLibrary(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north")
		d, err := w.Definition(ctx, "color")
		must(t, err)
		if d.Title != "color" || d.TitleZH != "颜色" || d.Type != tags.Text || d.Setter != tags.Operators || d.Status != tags.Active || d.Version != 1 || len(d.Kinds) != 6 {
			t.Errorf("tag = %+v", d)
		}
		_, err = w.CreateDefinition(ctx, d)
		wantKind(t, "again", err, fault.Exists)
		w.set(t, ctx, "center:c1", "color=red", "pue=1.5")
		w.rule(t, ctx, tags.RuleSpec{ID: "r", Key: "color", Kinds: []tags.Kind{tags.Center}, When: "false", Value: "green"})
		narrow := d
		narrow.Allowed = []string{"green"}
		_, err = w.UpdateDefinition(ctx, narrow)
		wantKind(t, "a value would not fit", err, fault.Conflict)
		narrow.Allowed = []string{"red"}
		_, err = w.UpdateDefinition(ctx, narrow)
		wantKind(t, "a rule would not fit", err, fault.Conflict)
		narrow.Allowed, narrow.Kinds = nil, []tags.Kind{tags.Node}
		_, err = w.UpdateDefinition(ctx, narrow)
		wantKind(t, "an object would not fit", err, fault.Conflict)
		d.Allowed = []string{"red", "green"}
		d2, err := w.UpdateDefinition(ctx, d)
		must(t, err)
		if d2.Version != 2 || d2.Objects != 1 || fmt.Sprint(d2.Rules) != "[r]" {
			t.Errorf("updated = %+v", d2)
		}
		if d3, err := w.UpdateDefinition(ctx, d2); err != nil || d3.Version != 2 {
			t.Errorf("the same again = %+v, %v", d3, err)
		}
		_, err = w.UpdateDefinition(ctx, d)
		wantKind(t, "an old version", err, fault.Conflict)
		d2.Status = tags.Retired
		_, err = w.UpdateDefinition(ctx, d2)
		must(t, err)
		w.want(t, ctx, "center:c1", "color=red pue=1.5") // stays, and is shown
		_, err = w.Apply(ctx, tags.Batch{Selector: tags.Selector{Objects: []string{"center:c1"}}, Changes: parse("color=green")})
		wantPaths(t, "set what is retired", err, "changes[0].key")

		wantKind(t, "delete what is carried", w.DeleteDefinition(ctx, "color", false), fault.Conflict)
		wantKind(t, "delete a group with tags", w.DeleteGroup(ctx, "g"), fault.Conflict)
		must(t, w.DeleteDefinition(ctx, "color", true))
		w.want(t, ctx, "center:c1", "pue=1.5")
		_, err = w.Rule(ctx, "r")
		wantKind(t, "its rule", err, fault.NotFound)
		wantKind(t, "delete again", w.DeleteDefinition(ctx, "color", true), fault.NotFound)
		g, err := w.PutGroup(ctx, tags.Group{ID: "g", Title: "G", Kinds: []tags.Kind{tags.Center}})
		wantPaths(t, "a group too narrow", err, "group.kinds")
		_ = g
		_, err = w.PutGroup(ctx, tags.Group{ID: "h", Kinds: []tags.Kind{tags.Center}})
		must(t, err)
		for what, x := range map[string]struct {
			d     tags.Definition
			paths []string
		}{
			"nothing":    {tags.Definition{}, []string{"tag.key", "tag.group_id"}},
			"group":      {tags.Definition{Key: "a", GroupID: "nope"}, []string{"tag.group_id"}},
			"kinds":      {tags.Definition{Key: "a", GroupID: "h", Kinds: []tags.Kind{tags.Node}}, []string{"tag.kinds"}},
			"numbers":    {tags.Definition{Key: "a", GroupID: "g", Type: 4, Setter: 4, Status: 3, Kinds: []tags.Kind{7}}, []string{"tag.value_type", "tag.setter", "tag.status", "tag.kinds[0]", "tag.kinds"}},
			"values":     {tags.Definition{Key: "a", GroupID: "g", Type: tags.Number, Allowed: []string{"1", "x", "1"}}, []string{"tag.allowed_values[1]", "tag.allowed_values[2]"}},
			"many":       {tags.Definition{Key: "a", GroupID: "g", Allowed: make([]string, 201)}, []string{"tag.allowed_values"}},
			"long texts": {tags.Definition{Key: strings.Repeat("a", 64), GroupID: "g", Title: strings.Repeat("t", 128), Description: strings.Repeat("d", 513)}, []string{"tag.key", "tag.title", "tag.description"}},
		} {
			_, err := w.CreateDefinition(ctx, x.d)
			wantPaths(t, what, err, x.paths...)
		}
		rows, next, err := w.Records(ctx, tags.RecordFilter{Subject: "tag:color"}, 2, "")
		must(t, err)
		if len(rows) != 2 || next == "" || rows[0].After.Value != "" || !strings.Contains(rows[1].After.Value, `"status":2`) {
			t.Errorf("history of the tag = %+v", rows)
		}
		more, next, err := w.Records(ctx, tags.RecordFilter{Subject: "tag:color"}, 2, next)
		must(t, err)
		if len(more) != 2 || next != "" || more[1].Before.Value != "" {
			t.Errorf("the rest = %+v, %q", more, next)
		}
	})
}
