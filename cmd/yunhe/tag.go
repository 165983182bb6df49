package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
)

func tagCommand(c *cli) *cobra.Command {
	return group("tag", groupNetwork, "Tags of centers, nodes, resources, specifications and images",
		tagListCommand(c), tagGroupsCommand(c), tagDescribeCommand(c), tagDefineCommand(c), tagDeleteCommand(c),
		tagShowCommand(c), tagFindCommand(c), tagSetCommand(c), tagSuggestCommand(c), tagAnswerCommand(c, true), tagAnswerCommand(c, false),
		tagHistoryCommand(c), tagCheckCommand(c), tagRuleCommand(c), tagShareCommand(c), tagAdoptCommand(c))
}

const objectHelp = `Objects are named platform, center:ID, node:CENTER:NAME, resource:ID, spec:ID and
image:ID.`

const kindList = "platform, center, node, resource, spec, image"

// kindsFlag reads kinds of object, comma separated.
func kindsFlag(flag string, names []string) ([]tagsv1.ObjectKind, error) {
	var out []tagsv1.ObjectKind
	for _, list := range names {
		for name := range strings.SplitSeq(list, ",") {
			k, err := enumFlag(flag, strings.TrimSpace(name), tagsv1.ObjectKind_value, "OBJECT_KIND_")
			if err != nil {
				return nil, err
			}
			if k != 0 {
				out = append(out, tagsv1.ObjectKind(k))
			}
		}
	}
	return out, nil
}

func kindNames(kinds []tagsv1.ObjectKind) string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = enumName(k.String(), "OBJECT_KIND_")
	}
	return strings.Join(out, ",")
}

func tagListCommand(c *cli) *cobra.Command {
	var groupID, kind string
	cmd := &cobra.Command{
		Use: "list", Short: "List the tags of the library",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := enumFlag("--kind", kind, tagsv1.ObjectKind_value, "OBJECT_KIND_")
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.tags.ListTags(cmd.Context(), &tagsv1.ListTagsRequest{GroupId: groupID, Kind: tagsv1.ObjectKind(k)})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("TAG", "GROUP", "TITLE", "VALUES", "KINDS", ">OBJECTS", "RULES")
			for _, x := range res.GetTags() {
				names = append(names, x.GetKey())
				t.Row(x.GetKey(), x.GetGroupId(), x.GetTitle(), tagValues(x, c.wide()), kindNames(x.GetKinds()), x.GetObjects(), orDash(someOf(x.GetRules(), 3, c.wide())))
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
	cmd.Flags().StringVar(&groupID, "group", "", "only of this group")
	cmd.Flags().StringVar(&kind, "kind", "", "only those that apply to this kind: "+kindList)
	return cmd
}

func tagValues(x *tagsv1.Tag, all bool) string {
	if len(x.GetAllowedValues()) > 0 {
		return someOf(x.GetAllowedValues(), 4, all)
	}
	return enumName(x.GetValueType().String(), "VALUE_TYPE_")
}

func tagGroupsCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "groups", Short: "List the groups of tags",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.tags.ListTagGroups(cmd.Context(), &tagsv1.ListTagGroupsRequest{})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("GROUP", "TITLE", "中文", ">TAGS", "KINDS")
			for _, g := range res.GetGroups() {
				names = append(names, g.GetGroupId())
				kinds := kindNames(g.GetKinds())
				if kinds == "" {
					kinds = "all"
				}
				t.Row(g.GetGroupId(), g.GetTitle(), g.GetTitleZh(), g.GetTags(), kinds)
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
}

func tagDescribeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "describe TAG", Short: "Show a tag of the library",
		Args: takes(1, 1, "the key of a tag"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.tags.GetTag(cmd.Context(), &tagsv1.GetTagRequest{Key: args[0]})
			if err != nil {
				return err
			}
			return c.printTag(x)
		},
	}
}

func (c *cli) printTag(x *tagsv1.Tag) error {
	return c.print(result{msg: x, names: []string{x.GetKey()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Tag", x.GetKey())
		f.Add("Title", strings.TrimSpace(x.GetTitle()+" "+x.GetTitleZh()))
		f.Add("Group", x.GetGroupId())
		f.Add("Description", x.GetDescription())
		f.Add("Values", tagValues(x, true))
		f.Add("Kinds", kindNames(x.GetKinds()))
		f.Add("Set by", enumName(x.GetSetter().String(), "SETTER_"))
		f.Add("Inherited", yesNo(x.GetInherited()))
		f.Add("In expressions", yesNo(!x.GetHiddenFromPolicies()))
		f.Add("Status", enumName(x.GetStatus().String(), "TAG_STATUS_"))
		f.Add("Carried by", fmt.Sprintf("%d objects", x.GetObjects()))
		f.Add("Rules", strings.Join(x.GetRules(), ", "))
		f.Add("Version", fmt.Sprint(x.GetVersion()))
		f.Add("Updated", c.stamp(x.GetUpdatedAt()))
		return f.Write(w, color)
	}})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func tagDefineCommand(c *cli) *cobra.Command {
	x := &tagsv1.Tag{}
	var kind, setter, status string
	var kinds []string
	cmd := &cobra.Command{
		Use: "define TAG --group GROUP", Short: "Add a tag to the library, or change what is given of it",
		Long: `Adds a tag to the library. If it is there already, what the flags give is
changed and the rest stays; values that objects carry must fit.`,
		Example: `  yunhe tag define green --group energy --type boolean --inherited --title-zh 绿色能源
  yunhe tag define tier --group business --value gold --value silver --kinds center,node`,
		Args: takes(1, 1, "the key of the tag"),
		RunE: func(cmd *cobra.Command, args []string) error {
			x.Key = args[0]
			if err := tagFlags(x, kind, setter, status, kinds); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			old, err := a.tags.GetTag(cmd.Context(), &tagsv1.GetTagRequest{Key: x.Key})
			if isNotFound(err) {
				x, err = a.tags.CreateTag(cmd.Context(), &tagsv1.CreateTagRequest{Tag: x})
				if err != nil {
					return err
				}
				return c.printTag(x)
			}
			if err != nil {
				return err
			}
			for flag, take := range map[string]func(){
				"group": func() { old.GroupId = x.GroupId }, "title": func() { old.Title = x.Title }, "title-zh": func() { old.TitleZh = x.TitleZh },
				"description": func() { old.Description = x.Description }, "type": func() { old.ValueType = x.ValueType }, "value": func() { old.AllowedValues = x.AllowedValues },
				"kinds": func() { old.Kinds = x.Kinds }, "setter": func() { old.Setter = x.Setter }, "inherited": func() { old.Inherited = x.Inherited },
				"hidden": func() { old.HiddenFromPolicies = x.HiddenFromPolicies }, "status": func() { old.Status = x.Status },
			} {
				if cmd.Flags().Changed(flag) {
					take()
				}
			}
			if old, err = a.tags.UpdateTag(cmd.Context(), &tagsv1.UpdateTagRequest{Tag: old}); err != nil {
				return err
			}
			return c.printTag(old)
		},
	}
	f := cmd.Flags()
	f.StringVar(&x.GroupId, "group", "", "group it belongs to, see `yunhe tag groups`")
	f.StringVar(&x.Title, "title", "", "title for people (default: the key)")
	f.StringVar(&x.TitleZh, "title-zh", "", "Chinese title")
	f.StringVar(&x.Description, "description", "", "what it is for")
	f.StringVar(&kind, "type", "", "what values are: text, boolean, number (default: text)")
	f.StringArrayVar(&x.AllowedValues, "value", nil, "allow only this value (repeatable; default: any)")
	f.StringArrayVar(&kinds, "kinds", nil, "kinds of object, comma separated: "+kindList+" (default: those of the group)")
	f.StringVar(&setter, "setter", "", "who may set it: operators, administrators, rules (default: operators)")
	f.BoolVar(&x.Inherited, "inherited", false, "what is below an object has its value")
	f.BoolVar(&x.HiddenFromPolicies, "hidden", false, "expressions do not see it")
	f.StringVar(&status, "status", "", "active or retired (default: active)")
	return cmd
}

// tagFlags reads the flags that are words.
func tagFlags(x *tagsv1.Tag, kind, setter, status string, kinds []string) error {
	t, err := enumFlag("--type", kind, tagsv1.ValueType_value, "VALUE_TYPE_")
	if err != nil {
		return err
	}
	who, err := enumFlag("--setter", setter, tagsv1.Setter_value, "SETTER_")
	if err != nil {
		return err
	}
	st, err := enumFlag("--status", status, tagsv1.TagStatus_value, "TAG_STATUS_")
	if err != nil {
		return err
	}
	x.ValueType, x.Setter, x.Status = tagsv1.ValueType(t), tagsv1.Setter(who), tagsv1.TagStatus(st)
	x.Kinds, err = kindsFlag("--kinds", kinds)
	return err
}

func tagDeleteCommand(c *cli) *cobra.Command {
	var withValues bool
	cmd := &cobra.Command{
		Use: "delete TAG", Short: "Delete a tag of the library",
		Args: takes(1, 1, "the key of a tag"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if withValues {
				if err := c.confirm("Delete tag " + args[0] + ", its values on all objects and the rules that set it?"); err != nil {
					return err
				}
			}
			if _, err := a.tags.DeleteTag(cmd.Context(), &tagsv1.DeleteTagRequest{Key: args[0], WithValues: withValues}); err != nil {
				return err
			}
			return c.printDone("tags", args, "deleted")
		},
	}
	cmd.Flags().BoolVar(&withValues, "with-values", false, "delete the values objects carry and the rules that set it, too")
	return cmd
}
