package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
)

func tagShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show OBJECT", Short: "Show the tags of an object and where each comes from", Long: "Shows the tags of an object and where each comes from.\n\n" + objectHelp,
		Args: takes(1, 1, "an object such as center:bj-1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			o, err := a.tags.GetObjectTags(cmd.Context(), &tagsv1.GetObjectTagsRequest{Object: args[0]})
			if err != nil {
				return err
			}
			return c.printObject(o)
		},
	}
}

func (c *cli) printObject(o *tagsv1.ObjectTags) error {
	return c.print(result{msg: o, names: []string{o.GetObject()}, print: func(w io.Writer, color bool) error {
		t := text.NewTable("TAG", "VALUE", "FROM", "SET BY", "UPDATED", "HIDES")
		for _, x := range o.GetTags() {
			value, from := x.GetValue(), "itself"
			if x.GetBlocked() {
				value = "(none: blocked)"
			}
			if x.GetFrom() != o.GetObject() {
				from = x.GetFrom()
			}
			var hides []string
			for _, h := range x.GetHides() {
				hides = append(hides, h.GetValue()+" of "+h.GetFrom())
			}
			t.Row(x.GetKey(), value, from, setBy(x.GetSource(), x.GetOrigin()), c.ago(x.GetUpdatedAt()), orDash(strings.Join(hides, ", ")))
		}
		if t.Len() == 0 {
			c.note("%s has no tags", o.GetObject())
			return nil
		}
		return t.Write(w, color)
	}})
}

func setBy(source tagsv1.Source, origin string) string {
	if source == tagsv1.Source_SOURCE_RULE {
		if origin == "" {
			return "the platform"
		}
		return "rule " + origin
	}
	return orDash(origin)
}

// tagSelection is which objects are meant.
type tagSelection struct {
	kinds         []string
	center, where string
}

func (s *tagSelection) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&s.kinds, "kind", nil, "objects of this kind (repeatable): "+kindList)
	cmd.Flags().StringVar(&s.center, "center", "", "only what belongs to this center, and the center itself")
	cmd.Flags().StringVar(&s.where, "where", "", `only those for which this is true, such as 'region == "guizhou"'`)
}

func (s *tagSelection) selector(objects []string) (*tagsv1.Selector, error) {
	kinds, err := kindsFlag("--kind", s.kinds)
	return &tagsv1.Selector{Kinds: kinds, Objects: objects, AiCenterId: s.center, Expression: s.where}, err
}

func tagFindCommand(c *cli) *cobra.Command {
	var p paging
	var s tagSelection
	cmd := &cobra.Command{
		Use: "find --kind KIND", Short: "List objects with their tags",
		Example: `  yunhe tag find --kind center --where 'tags["green"] == "true"'
  yunhe tag find --kind node --center bj-1 --where '"H800" in models'`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sel, err := s.selector(nil)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*tagsv1.ObjectTags, string, error) {
				res, err := a.tags.ListTaggedObjects(cmd.Context(), &tagsv1.ListTaggedObjectsRequest{Selector: sel, PageSize: size, PageToken: token})
				return res.GetObjects(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("OBJECT", "NAME", "TAGS")
			for _, o := range list {
				names = append(names, o.GetObject())
				var tags []string
				for _, x := range o.GetTags() {
					if !x.GetBlocked() {
						tags = append(tags, x.GetKey()+"="+x.GetValue())
					}
				}
				t.Row(o.GetObject(), o.GetName(), orDash(someOf(tags, 6, c.wide())))
			}
			err = c.print(result{msg: &tagsv1.ListTaggedObjectsResponse{Objects: list, NextPageToken: next}, names: names, print: t.Write})
			c.noteMore(len(list), next)
			return err
		},
	}
	pageFlags(cmd, &p, 200)
	s.flags(cmd)
	return cmd
}

// tagChanges sorts arguments into objects and changes: KEY=VALUE sets, KEY-
// clears, KEY! blocks.
func tagChanges(args []string) (objects []string, changes []*tagsv1.TagChange) {
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		switch {
		case sets && !strings.Contains(key, ":"):
			changes = append(changes, &tagsv1.TagChange{Key: key, Value: value, Op: tagsv1.ChangeOp_CHANGE_OP_SET})
		case strings.Contains(arg, ":") || arg == "platform":
			objects = append(objects, arg)
		case strings.HasSuffix(arg, "-"):
			changes = append(changes, &tagsv1.TagChange{Key: strings.TrimSuffix(arg, "-"), Op: tagsv1.ChangeOp_CHANGE_OP_CLEAR})
		case strings.HasSuffix(arg, "!"):
			changes = append(changes, &tagsv1.TagChange{Key: strings.TrimSuffix(arg, "!"), Op: tagsv1.ChangeOp_CHANGE_OP_BLOCK})
		default:
			objects = append(objects, arg)
		}
	}
	return objects, changes
}

func tagSetCommand(c *cli) *cobra.Command {
	var s tagSelection
	req := &tagsv1.ApplyTagsRequest{}
	cmd := &cobra.Command{
		Use: "set (OBJECT... | --kind KIND) CHANGE...", Short: "Set, clear or block tags of objects, all of them or none",
		Long: `Changes tags of the named objects, or of all objects of a kind that meet a
condition. All changes are made, or none.

  KEY=VALUE   sets a tag; rules do not change it any more
  KEY-        takes back what a person set or blocked: rules and parents decide
  KEY!        the object has no value of this tag, whatever rules and parents say

` + objectHelp,
		Example: `  yunhe tag set center:bj-1 center:bj-2 green=true
  yunhe tag set --kind node --where '"H800" in models' purpose=training --dry-run
  yunhe tag set platform purpose-`,
		Args: takes(1, -1, "a change such as green=true"),
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, changes := tagChanges(args)
			if len(changes) == 0 {
				return usagef("want a change such as green=true, green- or green!")
			}
			if (len(objects) > 0) == (len(s.kinds) > 0) {
				return usagef("want either objects or --kind")
			}
			sel, err := s.selector(objects)
			if err != nil {
				return err
			}
			req.Selector, req.Changes = sel, changes
			a, err := c.api()
			if err != nil {
				return err
			}
			var res *tagsv1.BatchResult
			st, err := a.tags.ApplyTags(cmd.Context(), req)
			err = stream(a, "/yunhe.tags.v1.TagService/ApplyTags", st, err, func(m *tagsv1.ApplyTagsResponse) error {
				if res = m.GetResult(); res == nil && c.forPeople() {
					c.note("%s: %d of %d", m.GetStep(), m.GetDone(), m.GetTotal())
				}
				return nil
			})
			if err != nil {
				return err
			}
			return c.printBatch(res)
		},
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&req.DryRun, "dry-run", false, "say what would change and write nothing")
	f.StringVar(&req.RequestId, "request-id", "", "do it at most once under this name")
	f.StringVar(&req.Reason, "reason", "", "for the history")
	return cmd
}

// printBatch prints the result of a batch; a refused one is an error.
func (c *cli) printBatch(res *tagsv1.BatchResult) error {
	err := c.print(result{msg: res, names: []string{res.GetBatchId()}, print: func(w io.Writer, color bool) error {
		t := text.NewTable("OBJECT", "TAG", "BEFORE", "AFTER")
		state := func(value string, blocked bool) string {
			if blocked {
				return "(blocked)"
			}
			return orDash(value)
		}
		for _, x := range res.GetChanges() {
			t.Row(x.GetObject(), x.GetKey(), state(x.GetBefore(), x.GetBeforeBlocked()), state(x.GetAfter(), x.GetAfterBlocked()))
		}
		if t.Len() > 0 && len(res.GetProblems()) == 0 {
			if err := t.Write(w, color); err != nil {
				return err
			}
		}
		verb := "changed"
		switch {
		case len(res.GetProblems()) > 0:
			return nil
		case !res.GetApplied():
			verb = "would change"
		case res.GetRepeatedRequest():
			verb = "were changed by this request before"
		}
		_, err := fmt.Fprintf(w, "%d values %s on %d objects, %d were as wanted\n", res.GetChanged(), verb, res.GetObjects(), res.GetUnchanged())
		return err
	}})
	if err != nil || len(res.GetProblems()) == 0 {
		return err
	}
	for i, p := range res.GetProblems() {
		if i == 10 {
			c.note("… and more")
			break
		}
		c.note("%s: %s", p.GetObject(), p.GetProblem())
	}
	return fmt.Errorf("nothing was changed: %d problems", len(res.GetProblems()))
}

func tagSuggestCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "suggest OBJECT", Short: "List tags an object might carry, and why",
		Args: takes(1, 1, "an object such as center:bj-1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.tags.ListTagRecommendations(cmd.Context(), &tagsv1.ListTagRecommendationsRequest{Object: args[0]})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("TAG", ">SCORE", "REASON", "ALIKE")
			for _, r := range res.GetRecommendations() {
				names = append(names, r.GetKey()+"="+r.GetValue())
				var alike []string
				for _, o := range r.GetAlike() {
					alike = append(alike, fmt.Sprintf("%s %d%%", o.GetObject(), o.GetSimilarity()))
				}
				t.Row(r.GetKey()+"="+r.GetValue(), r.GetScore(), r.GetReason(), orDash(someOf(alike, 3, c.wide())))
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if t.Len() == 0 {
					c.note("nothing to suggest for %s", args[0])
					return nil
				}
				return t.Write(w, color)
			}})
		},
	}
}

func tagAnswerCommand(c *cli, accept bool) *cobra.Command {
	use, short := "dismiss", "Dismiss a suggested tag for good"
	if accept {
		use, short = "accept", "Set a suggested tag"
	}
	return &cobra.Command{
		Use: use + " OBJECT KEY=VALUE", Short: short,
		Args: takes(2, 2, "an object and a tag such as green=true"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, value, ok := strings.Cut(args[1], "=")
			if !ok {
				return usagef("want a tag such as green=true, got %q", args[1])
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			o, err := a.tags.AnswerTagRecommendation(cmd.Context(), &tagsv1.AnswerTagRecommendationRequest{Object: args[0], Key: key, Value: value, Accept: accept})
			if err != nil {
				return err
			}
			return c.printObject(o)
		},
	}
}

func tagHistoryCommand(c *cli) *cobra.Command {
	var p paging
	req := &tagsv1.ListTagChangesRequest{}
	cmd := &cobra.Command{
		Use: "history [SUBJECT]", Short: "Show what was changed, by whom or which rule, latest first",
		Long: `Shows what was changed, by whom or which rule, latest first. The subject is an
object, or tag:KEY, group:ID or rule:ID for changes of the library.`,
		Args: takes(0, 1, "an object, or tag:KEY, group:ID, rule:ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				req.Subject = args[0]
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*tagsv1.TagChangeRecord, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.tags.ListTagChanges(cmd.Context(), req)
				return res.GetChanges(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("WHEN", "SUBJECT", "TAG", "BEFORE", "AFTER", "BY", "REASON")
			state := func(value string, blocked bool) string {
				if blocked {
					return "(blocked)"
				}
				if strings.HasPrefix(value, "{") && !c.wide() {
					return "{…}"
				}
				return orDash(value)
			}
			for _, x := range list {
				names = append(names, x.GetChangeId())
				t.Row(c.ago(x.GetAt()), x.GetSubject(), orDash(x.GetKey()), state(x.GetBefore(), x.GetBeforeBlocked()), state(x.GetAfter(), x.GetAfterBlocked()), setBy(x.GetSource(), x.GetOrigin()), x.GetReason())
			}
			err = c.print(result{msg: &tagsv1.ListTagChangesResponse{Changes: list, NextPageToken: next}, names: names, print: t.Write})
			c.noteMore(len(list), next)
			return err
		},
	}
	pageFlags(cmd, &p, 50)
	cmd.Flags().StringVar(&req.Key, "key", "", "only of this tag")
	cmd.Flags().StringVar(&req.BatchId, "batch", "", "only of this batch")
	return cmd
}
