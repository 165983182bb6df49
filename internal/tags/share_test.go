package tags_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
)

func outcomes(res *tagsv1.AdoptTagsResponse) string {
	var out []string
	for _, r := range res.GetResults() {
		out = append(out, r.Kind+" "+r.Id+" "+r.Outcome)
	}
	return strings.Join(out, ", ")
}

// What one platform shares another adopts, as it was; what is different there
// stays unless it is to be replaced; and what is wrong with one thing is not the others' fault.
func TestShare(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, there *world) {
		here := newWorld(t, filepath.Join(t.TempDir(), "yunhe.db"))
		from, to := client(t, here), client(t, there)
		if _, err := from.PutTagGroup(ctx, &tagsv1.PutTagGroupRequest{Group: &tagsv1.TagGroup{GroupId: "power", Title: "Power", TitleZh: "能源"}}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"power.green", "power.source", "power.other"} {
			tag := &tagsv1.Tag{Key: key, Title: key, GroupId: "power", Inherited: true, Kinds: []tagsv1.ObjectKind{tagsv1.ObjectKind_OBJECT_KIND_CENTER}}
			if _, err := from.CreateTag(ctx, &tagsv1.CreateTagRequest{Tag: tag}); err != nil {
				t.Fatal(err)
			}
		}
		rule := &tagsv1.TagRule{RuleId: "green-north", Title: "North is green", Key: "power.green", When: `region == "north"`, Value: "true"}
		if _, err := from.CreateTagRule(ctx, &tagsv1.CreateTagRuleRequest{Rule: rule}); err != nil {
			t.Fatal(err)
		}
		tag, err := from.GetTag(ctx, &tagsv1.GetTagRequest{Key: "power.green"})
		if err != nil || !strings.Contains(fmt.Sprint(tag.Operations), "share") {
			t.Errorf("the operations of a tag are %v, %v; want share among them", tag.GetOperations(), err)
		}
		shared, err := from.ShareTags(ctx, &tagsv1.ShareTagsRequest{Keys: []string{"power.green", "power.source"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(shared.Groups) != 1 || len(shared.Tags) != 2 || len(shared.Rules) != 1 || shared.Tags[0].Version != 0 || shared.Tags[0].Operations != nil {
			t.Fatalf("shared: %v", shared)
		}
		_, err = from.ShareTags(ctx, &tagsv1.ShareTagsRequest{Keys: []string{"no.such"}})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a key there is not: %v", err)
		}
		adopt := func(s *tagsv1.SharedTags, replace, dry bool) string {
			t.Helper()
			res, err := to.AdoptTags(ctx, &tagsv1.AdoptTagsRequest{Shared: s, Replace: replace, DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			return outcomes(res)
		}
		const all = "group power %[1]s, tag power.green %[1]s, tag power.source %[1]s, rule green-north %[1]s"
		for _, step := range []struct {
			dry  bool
			want string
		}{{true, "created"}, {false, "created"}, {true, "same"}, {false, "same"}} {
			if got, want := adopt(shared, false, step.dry), fmt.Sprintf(all, step.want); got != want {
				t.Errorf("adopted (only said: %v): %s, want %s", step.dry, got, want)
			}
		}
		back, err := to.ShareTags(ctx, &tagsv1.ShareTagsRequest{Keys: []string{"power.green", "power.source"}})
		if err != nil || !proto.Equal(back, shared) {
			t.Errorf("adopted, it is\n%v, %v; shared was\n%v", back, err, shared)
		}
		other := proto.CloneOf(shared)
		other.Tags[0].Title, other.Rules[0].When = "Renewable", `region == "south"`
		const changed = "group power same, tag power.green %[1]s, tag power.source same, rule green-north %[1]s"
		if got, want := adopt(other, false, false), fmt.Sprintf(changed, "different"); got != want {
			t.Errorf("changed: %s, want %s", got, want)
		}
		if x, err := to.GetTag(ctx, &tagsv1.GetTagRequest{Key: "power.green"}); err != nil || x.Title != "power.green" {
			t.Errorf("what was different did not stay: %v, %v", x, err)
		}
		if got, want := adopt(other, true, false), fmt.Sprintf(changed, "replaced"); got != want {
			t.Errorf("changed and to be replaced: %s, want %s", got, want)
		}
		if x, err := to.GetTag(ctx, &tagsv1.GetTagRequest{Key: "power.green"}); err != nil || x.Title != "Renewable" {
			t.Errorf("what was to be replaced is %v, %v", x, err)
		}
		bad := &tagsv1.SharedTags{Tags: []*tagsv1.Tag{{Key: "Bad Key", GroupId: "power"}, {Key: "power.good", Title: "Good", GroupId: "power"}}, Rules: []*tagsv1.TagRule{{RuleId: "r", Key: "power.good", When: "nonsense(", Value: "x"}}}
		if got, want := adopt(bad, false, false), "tag Bad Key refused, tag power.good created, rule r refused"; got != want {
			t.Errorf("partly wrong: %s, want %s", got, want)
		}
		_, err = to.AdoptTags(ctx, &tagsv1.AdoptTagsRequest{})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "shared") {
			t.Errorf("nothing: %v", err)
		}
	})
}
