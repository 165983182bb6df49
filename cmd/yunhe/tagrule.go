package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
)

// isNotFound tells whether the server does not know what was asked for.
func isNotFound(err error) bool {
	var call *callError
	if errors.As(err, &call) {
		err = call.err
	}
	return err != nil && connect.CodeOf(err) == connect.CodeNotFound
}

func tagCheckCommand(c *cli) *cobra.Command {
	var kind string
	req := &tagsv1.CheckExpressionRequest{}
	cmd := &cobra.Command{
		Use: "check EXPRESSION", Short: "Check an expression and evaluate it on an object",
		Long: `Checks an expression without using it: for the placement of tasks, or with
--kind for rules and selectors. With --on it is evaluated on an object.`,
		Example: `  yunhe tag check 'tags["green"] == "true" && region == "guizhou"' --on center:bj-1
  yunhe tag check 'cpu_busy_percent > 80' --kind center --on center:bj-1
  yunhe tag check --variables --kind node true`,
		Args: takes(1, 1, "an expression"),
		RunE: func(cmd *cobra.Command, args []string) error {
			variables, err := cmd.Flags().GetBool("variables")
			if err != nil {
				return err
			}
			k, err := enumFlag("--kind", kind, tagsv1.ObjectKind_value, "OBJECT_KIND_")
			if err != nil {
				return err
			}
			req.Expression, req.Kind = args[0], tagsv1.ObjectKind(k)
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.tags.CheckExpression(cmd.Context(), req)
			if err != nil {
				return err
			}
			err = c.print(result{msg: res, print: func(w io.Writer, color bool) error { return printChecked(w, color, req, res, variables) }})
			if err == nil && len(res.GetProblems()) > 0 {
				p := res.GetProblems()[0]
				return fmt.Errorf("line %d, column %d: %s", p.GetLine(), p.GetColumn(), p.GetMessage())
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "", "kind of object it is for: "+kindList+" (default: the placement of a task)")
	f.StringVar(&req.Object, "on", "", "evaluate it on this object")
	f.BoolVar(&req.Value, "value", false, "it makes a value, not a condition")
	f.Bool("variables", false, "list what it may read")
	return cmd
}

func printChecked(w io.Writer, color bool, req *tagsv1.CheckExpressionRequest, res *tagsv1.CheckExpressionResponse, variables bool) error {
	if variables {
		t := text.NewTable("VARIABLE", "TYPE", "MEANING")
		for _, v := range res.GetVariables() {
			doc := v.GetDoc()
			if v.GetLive() {
				doc += " (live)"
			}
			t.Row(v.GetName(), v.GetType(), doc)
		}
		if err := t.Write(w, color); err != nil {
			return err
		}
	}
	said := ""
	switch {
	case len(res.GetProblems()) > 0:
		return nil
	case !res.GetEvaluated():
		said = "the expression is right"
	case req.GetValue():
		said = req.GetObject() + ": " + orDash(res.GetValue())
		if res.GetReason() != "" {
			said += " (" + res.GetReason() + ")"
		}
	case res.GetHolds():
		said = req.GetObject() + " meets it"
	default:
		said = req.GetObject() + " " + res.GetReason()
	}
	_, err := fmt.Fprintln(w, text.Clean(said))
	return err
}

func tagRuleCommand(c *cli) *cobra.Command {
	return group("rule", "", "Rules that set tags by themselves",
		tagRuleListCommand(c), tagRuleShowCommand(c), tagRulePutCommand(c), tagRuleDeleteCommand(c))
}

func tagRuleListCommand(c *cli) *cobra.Command {
	req := &tagsv1.ListTagRulesRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the rules",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.tags.ListTagRules(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("RULE", "TAG", "VALUE", "KINDS", "WHEN", "MODE", ">MATCHED", "ERROR")
			for _, r := range res.GetRules() {
				names = append(names, r.GetRuleId())
				when := r.GetWhen()
				if len(when) > 60 && !c.wide() {
					when = strings.ToValidUTF8(when[:59], "") + "…"
				}
				t.Row(r.GetRuleId(), r.GetKey(), ruleValue(r, c.wide()), kindNames(r.GetKinds()), when, enumName(r.GetMode().String(), "RULE_MODE_"), r.GetMatched(), orDash(r.GetError()))
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
	cmd.Flags().StringVar(&req.Key, "key", "", "only those that set this tag")
	return cmd
}

func ruleValue(r *tagsv1.TagRule, all bool) string {
	if r.GetValue() != "" {
		return r.GetValue()
	}
	if e := r.GetValueExpression(); len(e) <= 30 || all {
		return "= " + e
	}
	return "= …"
}

func tagRuleShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show RULE", Short: "Show a rule",
		Args: takes(1, 1, "the ID of a rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.tags.GetTagRule(cmd.Context(), &tagsv1.GetTagRuleRequest{RuleId: args[0]})
			if err != nil {
				return err
			}
			return c.printRule(r)
		},
	}
}

func (c *cli) printRule(r *tagsv1.TagRule) error {
	return c.print(result{msg: r, names: []string{r.GetRuleId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Rule", r.GetRuleId())
		f.Add("Title", r.GetTitle())
		f.Add("Sets", r.GetKey()+" "+ruleValue(r, true))
		f.Add("On", kindNames(r.GetKinds()))
		f.Add("When", r.GetWhen())
		f.Add("Until", r.GetUntil())
		f.Add("Lasting", seconds(r.GetHoldSeconds()))
		f.Add("Priority", fmt.Sprint(r.GetPriority()))
		f.Add("Mode", enumName(r.GetMode().String(), "RULE_MODE_"))
		f.Add("Live figures", yesNo(r.GetLive()))
		f.Add("Matched", fmt.Sprintf("%d objects", r.GetMatched()))
		if r.GetError() != "" {
			f.AddColor("Error", r.GetError(), text.Red)
		}
		f.Add("Version", fmt.Sprint(r.GetVersion()))
		f.Add("Updated", c.stamp(r.GetUpdatedAt()))
		return f.Write(w, color)
	}})
}

func tagRulePutCommand(c *cli) *cobra.Command {
	r := &tagsv1.TagRule{}
	var mode string
	var kinds []string
	cmd := &cobra.Command{
		Use: "set RULE", Short: "Add a rule, or change what is given of it",
		Long: `Adds a rule that sets a tag on the objects that meet a condition and takes it
away from those that no longer do. If the rule is there already, what the flags
give is changed and the rest stays. What a person set is never changed.`,
		Example: `  yunhe tag rule set west --key purpose --value disaster-recovery --kinds center --when 'region in ["guizhou", "gansu"]'
  yunhe tag rule set hot --key load --value busy --when 'cpu_busy_percent > 85' --until 'cpu_busy_percent < 70' --hold 60
  yunhe tag rule set hot --mode off`,
		Args: takes(1, 1, "the ID of the rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := enumFlag("--mode", mode, tagsv1.RuleMode_value, "RULE_MODE_")
			if err != nil {
				return err
			}
			if r.Kinds, err = kindsFlag("--kinds", kinds); err != nil {
				return err
			}
			r.RuleId, r.Mode = args[0], tagsv1.RuleMode(m)
			a, err := c.api()
			if err != nil {
				return err
			}
			old, err := a.tags.GetTagRule(cmd.Context(), &tagsv1.GetTagRuleRequest{RuleId: r.RuleId})
			if isNotFound(err) {
				if r, err = a.tags.CreateTagRule(cmd.Context(), &tagsv1.CreateTagRuleRequest{Rule: r}); err != nil {
					return err
				}
				return c.printRule(r)
			}
			if err != nil {
				return err
			}
			given := func(flags ...string) bool { return slices.ContainsFunc(flags, cmd.Flags().Changed) }
			for flag, take := range map[string]func(){
				"title": func() { old.Title = r.Title }, "key": func() { old.Key = r.Key }, "kinds": func() { old.Kinds = r.Kinds }, "when": func() { old.When = r.When },
				"until": func() { old.Until = r.Until }, "hold": func() { old.HoldSeconds = r.HoldSeconds }, "priority": func() { old.Priority = r.Priority }, "mode": func() { old.Mode = r.Mode },
			} {
				if given(flag) {
					take()
				}
			}
			if given("value", "value-expression") {
				old.Value, old.ValueExpression = r.Value, r.ValueExpression
			}
			if old, err = a.tags.UpdateTagRule(cmd.Context(), &tagsv1.UpdateTagRuleRequest{Rule: old}); err != nil {
				return err
			}
			return c.printRule(old)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Title, "title", "", "title for people (default: the ID)")
	f.StringVar(&r.Key, "key", "", "tag it sets")
	f.StringArrayVar(&kinds, "kinds", nil, "kinds of object, comma separated: "+kindList+" (default: those of the tag)")
	f.StringVar(&r.When, "when", "", "condition under which it is set")
	f.StringVar(&r.Until, "until", "", "condition under which it is taken away (default: when the first no longer holds)")
	f.StringVar(&r.Value, "value", "", "value it sets")
	f.StringVar(&r.ValueExpression, "value-expression", "", "expression for the value, such as region")
	f.Int64Var(&r.HoldSeconds, "hold", 0, "seconds a condition must last")
	f.Int64Var(&r.Priority, "priority", 0, "where several rules set one tag the highest wins, -1000 to 1000")
	f.StringVar(&mode, "mode", "", "automatic, recommend or off (default: automatic)")
	return cmd
}

func tagRuleDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete RULE", Short: "Delete a rule; the values it set go with it",
		Args: takes(1, 1, "the ID of a rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.tags.DeleteTagRule(cmd.Context(), &tagsv1.DeleteTagRuleRequest{RuleId: args[0]}); err != nil {
				return err
			}
			return c.printDone("rules", args, "deleted")
		},
	}
}
