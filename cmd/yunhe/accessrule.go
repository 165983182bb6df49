package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	accessv1 "yunhe.dev/yunhe/gen/yunhe/access/v1"
)

func accessRuleCommand(c *cli) *cobra.Command {
	const kind = accessv1.DocumentKind_DOCUMENT_KIND_RULE
	return group("rule", "", "Conditions of access",
		accessRuleListCommand(c), accessRulePutCommand(c), accessRuleSwitchCommand(c, true), accessRuleSwitchCommand(c, false), accessRuleDeleteCommand(c),
		accessVersionsCommand(c, kind, "rule"), accessRestoreCommand(c, kind, "rule"))
}

func accessRuleListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the rules",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.access.ListAccessRules(cmd.Context(), &accessv1.ListAccessRulesRequest{})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("RULE", "KIND", "SEVERITY", "ON", ">VERSION", "CONDITION", "TITLE")
			for _, r := range res.GetRules() {
				names = append(names, r.GetRuleId())
				condition := r.GetCondition()
				if !c.wide() {
					condition = text.Cut(condition, 60)
				}
				t.Row(r.GetRuleId(), enumName(r.GetKind().String(), "RESOURCE_KIND_"), enumName(r.GetSeverity().String(), "SEVERITY_"), onOff(r.GetEnabled()), r.GetVersion(), condition, r.GetTitle())
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
}

func accessRulePutCommand(c *cli) *cobra.Command {
	r := &accessv1.AccessRule{}
	var kind, severity string
	var off bool
	cmd := &cobra.Command{
		Use: "put RULE --condition EXPRESSION", Short: "Add a rule, or replace it",
		Long: `Adds a rule, or replaces the one of this ID. Expressions are CEL over what is
known of the resource, such as region, security_grade, latency_ms, loss_percent.`,
		Example: `  yunhe access rule put grade --condition 'security_grade >= 2' --severity critical \
    --message 'set a security grade of 2 or more'
  yunhe access rule put near --known path_known --condition 'latency_ms < 50.0' --severity advice`,
		Args: takes(1, 1, "the ID of a rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := enumFlag("--kind", kind, accessv1.ResourceKind_value, "RESOURCE_KIND_")
			if err != nil {
				return err
			}
			s, err := enumFlag("--severity", severity, accessv1.Severity_value, "SEVERITY_")
			if err != nil {
				return err
			}
			r.RuleId, r.Kind, r.Severity, r.Enabled = args[0], accessv1.ResourceKind(k), accessv1.Severity(s), !off
			a, err := c.api()
			if err != nil {
				return err
			}
			if old, err := findRule(cmd.Context(), a, r.RuleId); err != nil {
				return err
			} else if old != nil {
				r.Version = old.Version
			}
			out, err := a.access.PutAccessRule(cmd.Context(), &accessv1.PutAccessRuleRequest{Rule: r})
			if err != nil {
				return err
			}
			return c.printAccessRule(out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Title, "title", "", "title for people")
	f.StringVar(&r.TitleZh, "title-zh", "", "title in Chinese")
	f.StringVar(&kind, "kind", "center", "what it is about: center, node, registered")
	f.StringVar(&severity, "severity", "major", "advice (does not count), major or critical")
	f.StringVar(&r.Condition, "condition", "", "what must hold")
	f.StringVar(&r.Applies, "applies", "", "the resources it applies to (default: all of the kind)")
	f.StringVar(&r.Known, "known", "", "whether it can be judged (default: always)")
	f.StringVar(&r.Message, "message", "", "what to do if it is not met")
	f.BoolVar(&off, "off", false, "store it switched off")
	_ = cmd.MarkFlagRequired("condition") // it was just declared
	return cmd
}

func (c *cli) printAccessRule(r *accessv1.AccessRule) error {
	return c.print(result{msg: r, names: []string{r.GetRuleId()}, print: func(w io.Writer, _ bool) error {
		_, err := fmt.Fprintf(w, "%s  version %d, %s\n", r.GetRuleId(), r.GetVersion(), onOff(r.GetEnabled()))
		return err
	}})
}

// findRule returns a rule, nil if there is none.
func findRule(ctx context.Context, a *api, id string) (*accessv1.AccessRule, error) {
	res, err := a.access.ListAccessRules(ctx, &accessv1.ListAccessRulesRequest{})
	if err != nil {
		return nil, err
	}
	for _, r := range res.GetRules() {
		if r.GetRuleId() == id {
			return r, nil
		}
	}
	return nil, nil
}

func accessRuleSwitchCommand(c *cli, on bool) *cobra.Command {
	return &cobra.Command{
		Use: onOff(on) + " RULE", Short: "Switch a rule " + onOff(on),
		Args: takes(1, 1, "the ID of a rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := findRule(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			if r == nil {
				return fmt.Errorf("there is no rule %q; `yunhe access rule list` shows them", args[0])
			}
			r.Enabled = on
			out, err := a.access.PutAccessRule(cmd.Context(), &accessv1.PutAccessRuleRequest{Rule: r})
			if err != nil {
				return err
			}
			return c.printAccessRule(out)
		},
	}
}

func accessRuleDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete RULE...", Short: "Delete rules; restore brings them back",
		Args: takes(1, -1, "the ID of a rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "rules", "deleted", func(a *api, id string) error {
				_, err := a.access.DeleteAccessRule(cmd.Context(), &accessv1.DeleteAccessRuleRequest{RuleId: id})
				return err
			})
		},
	}
}

func accessConversionCommand(c *cli) *cobra.Command {
	const kind = accessv1.DocumentKind_DOCUMENT_KIND_CONVERSION
	return group("conversion", "", "How words and amounts of sources are converted into the platform's",
		accessConversionListCommand(c), accessConversionPutCommand(c), accessConversionTestCommand(c), accessConversionDeleteCommand(c),
		accessVersionsCommand(c, kind, "conversion"), accessRestoreCommand(c, kind, "conversion"))
}

const fieldList = "resource, vendor, model, architecture, operating-system, region, label"

func accessConversionListCommand(c *cli) *cobra.Command {
	req := &accessv1.ListConversionsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the conversions; with --source in the order they are tried",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.access.ListConversions(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("CONVERSION", "SOURCE", "FIELD", "MATCH", "REPLACE", "AMOUNT", ">PRIORITY", "ON", ">VERSION")
			for _, k := range res.GetConversions() {
				names = append(names, k.GetConversionId())
				amount := "-"
				if k.GetTimes() > 1 || k.GetPer() > 1 {
					amount = fmt.Sprintf("×%d/%d", max(k.GetTimes(), 1), max(k.GetPer(), 1))
				}
				t.Row(k.GetConversionId(), orDash(k.GetSource()), enumName(k.GetField().String(), "FIELD_"), k.GetMatch(), k.GetReplace(), amount, k.GetPriority(), onOff(k.GetEnabled()), k.GetVersion())
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
	cmd.Flags().StringVar(&req.Source, "source", "", "only those that apply to this plug-in, such as slurm")
	return cmd
}

// conversionFlags declares what a conversion is made from.
func conversionFlags(cmd *cobra.Command, k *accessv1.Conversion, field *string) {
	f := cmd.Flags()
	f.StringVar(&k.Source, "source", "", "plug-in whose centers it applies to (default: all)")
	f.StringVar(field, "field", "", "what it converts: "+fieldList)
	f.StringVar(&k.Match, "match", "", "pattern (RE2) that matches the whole word")
	f.StringVar(&k.Replace, "replace", "", "what it becomes; $1 is the first group")
	f.Int64Var(&k.Times, "times", 0, "multiply the amount by this")
	f.Int64Var(&k.Per, "per", 0, "and divide it by this")
	f.Int64Var(&k.Priority, "priority", 0, "lower ones are tried first")
}

func accessConversionPutCommand(c *cli) *cobra.Command {
	k := &accessv1.Conversion{}
	var field, file string
	var off bool
	cmd := &cobra.Command{
		Use: "put CONVERSION", Short: "Add a conversion, or replace it",
		Example: `  yunhe access conversion put slurm-mem --source slurm --field resource --match memMB --replace memory --times 1048576
  yunhe access conversion put north --field region --match 'HB|TJ|BJ' --replace north`,
		Args: takes(1, 1, "the ID of a conversion"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				if err := c.readMessage(file, k); err != nil {
					return err
				}
			} else {
				n, err := enumFlag("--field", field, accessv1.Field_value, "FIELD_")
				if err != nil {
					return err
				}
				k.Field, k.Enabled = accessv1.Field(n), !off
			}
			k.ConversionId = args[0]
			a, err := c.api()
			if err != nil {
				return err
			}
			all, err := a.access.ListConversions(cmd.Context(), &accessv1.ListConversionsRequest{})
			if err != nil {
				return err
			}
			for _, old := range all.GetConversions() {
				if old.GetConversionId() == k.ConversionId {
					k.Version = old.GetVersion()
				}
			}
			out, err := a.access.PutConversion(cmd.Context(), &accessv1.PutConversionRequest{Conversion: k})
			if err != nil {
				return err
			}
			return c.print(result{msg: out, names: []string{out.GetConversionId()}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%s  version %d, %s\n", out.GetConversionId(), out.GetVersion(), onOff(out.GetEnabled()))
				return err
			}})
		},
	}
	conversionFlags(cmd, k, &field)
	cmd.Flags().StringVar(&k.Title, "title", "", "title for people")
	cmd.Flags().BoolVar(&off, "off", false, "store it switched off")
	cmd.Flags().StringVarP(&file, "file", "f", "", "read it as JSON from a file, - for standard input")
	return cmd
}

func accessConversionTestCommand(c *cli) *cobra.Command {
	k := &accessv1.Conversion{}
	var field string
	cmd := &cobra.Command{
		Use: "test FIELD=WORD...", Short: "Show what becomes of words, and which conversion does it",
		Long: `Shows what becomes of words, and which conversion does it, with one more
conversion if --match is given. Nothing is changed. An amount follows a resource
after a colon: resource=memMB:2048.`,
		Example: `  yunhe access conversion test architecture=x86_64 model=A100-SXM4-80GB
  yunhe access conversion test --field resource --match memMB --replace memory --times 1048576 resource=memMB:2048`,
		Args: takes(1, -1, "FIELD=WORD, the field one of "+fieldList),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &accessv1.TestConversionRequest{Source: k.Source}
			for _, arg := range args {
				name, word, ok := strings.Cut(arg, "=")
				n, err := enumFlag("FIELD", name, accessv1.Field_value, "FIELD_")
				if err != nil || !ok || n == 0 {
					return usagef("want FIELD=WORD, the field one of %s, got %q", fieldList, arg)
				}
				item := &accessv1.ConversionItem{Field: accessv1.Field(n), Value: word}
				if i := strings.LastIndexByte(word, ':'); item.Field == accessv1.Field_FIELD_RESOURCE && i > 0 {
					if _, err := fmt.Sscan(word[i+1:], &item.Amount); err != nil {
						return usagef("want a whole number after the colon, got %q", word)
					}
					item.Value = word[:i]
				}
				req.Items = append(req.Items, item)
			}
			if k.Match != "" {
				n, err := enumFlag("--field", field, accessv1.Field_value, "FIELD_")
				if err != nil {
					return err
				}
				k.ConversionId, k.Field = "this", accessv1.Field(n)
				req.Conversion = k
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.access.TestConversion(cmd.Context(), req)
			if err != nil {
				return err
			}
			word := func(x *accessv1.ConversionItem) string {
				if x.GetField() == accessv1.Field_FIELD_RESOURCE && x.GetAmount() != 0 {
					return fmt.Sprintf("%s:%d", x.GetValue(), x.GetAmount())
				}
				return x.GetValue()
			}
			t := text.NewTable("FIELD", "WORD", "BECOMES", "BY", "PROBLEM")
			for _, r := range res.GetResults() {
				t.Row(enumName(r.GetInput().GetField().String(), "FIELD_"), word(r.GetInput()), word(r.GetOutput()), orDash(r.GetConversionId()), orDash(r.GetProblem()))
			}
			return c.print(result{msg: res, print: t.Write})
		},
	}
	conversionFlags(cmd, k, &field)
	return cmd
}

func accessConversionDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete CONVERSION...", Short: "Delete conversions; restore brings them back",
		Args: takes(1, -1, "the ID of a conversion"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "conversions", "deleted", func(a *api, id string) error {
				_, err := a.access.DeleteConversion(cmd.Context(), &accessv1.DeleteConversionRequest{ConversionId: id})
				return err
			})
		},
	}
}
